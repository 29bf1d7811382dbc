//! Commands that compete: run in turns, so that whatever else the machine does hits all alike.

use anyhow::{Context, bail};
use serde::Serialize;
use std::ffi::OsString;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use tutti_client::scratch::percentile;
use tutti_node::executable::own_program;

/// A command to be timed from its start to its end, its output read through a pipe.
#[derive(Clone, Debug)]
pub(super) struct Contender {
    /// What tables call it.
    pub(super) name: String,
    argv: Vec<OsString>,
    instance: Option<PathBuf>,
    expects: Expects,
}

/// What the output must be for the run to count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Expects {
    /// So many lines.
    Lines(usize),
    /// At least so many bytes.
    Bytes(u64),
}

impl Contender {
    /// A command, of the `PATH`.
    pub(super) fn command<S: Into<OsString>>(
        name: &str,
        argv: impl IntoIterator<Item = S>,
        expects: Expects,
    ) -> Self {
        let argv = argv.into_iter().map(Into::into).collect();
        Self { name: name.into(), argv, instance: None, expects }
    }

    /// A verb of this program, for the instance in a directory.
    pub(super) fn verb<S: Into<OsString>>(
        name: &str,
        instance: &Path,
        words: impl IntoIterator<Item = S>,
        expects: Expects,
    ) -> anyhow::Result<Self> {
        let program = own_program()?;
        let argv =
            std::iter::once(program.into_os_string()).chain(words.into_iter().map(Into::into));
        Ok(Self {
            name: name.into(),
            argv: argv.collect(),
            instance: Some(instance.to_owned()),
            expects,
        })
    }

    /// Runs it once.
    ///
    /// # Errors
    /// If it can't be started, fails, or says something else than it should.
    pub(super) fn run(&self) -> anyhow::Result<Duration> {
        let mut command = Command::new(&self.argv[0]);
        command.args(&self.argv[1..]).stdin(Stdio::null()).stdout(Stdio::piped());
        if let Some(instance) = &self.instance {
            command.env("TUTTI_DIR", instance);
        }
        let begin = Instant::now();
        let mut child = command.spawn().with_context(|| format!("cannot start {}", self.name))?;
        let read = match child.stdout.take() {
            Some(mut output) => discard(&mut output),
            None => Ok(Discarded::default()),
        };
        let status = child.wait()?;
        let took = begin.elapsed();
        let read = read?;
        if !status.success() {
            bail!("{} failed: {status}", self.name);
        }
        let right = match self.expects {
            Expects::Lines(lines) => read.lines == lines,
            Expects::Bytes(bytes) => read.bytes >= bytes,
        };
        if !right {
            bail!(
                "{} put out {} bytes in {} lines instead of {:?}",
                self.name,
                read.bytes,
                read.lines,
                self.expects
            );
        }
        Ok(took)
    }
}

/// What was read and thrown away.
#[derive(Default)]
struct Discarded {
    bytes: u64,
    lines: usize,
}

/// Pieces as large as this are data, without a count of lines: counting would cost the reader
/// time.
const COUNTED_BYTES_MAX: usize = 4096;

fn discard(output: &mut impl Read) -> std::io::Result<Discarded> {
    let mut chunk = vec![0; 1 << 20];
    let mut read = Discarded::default();
    loop {
        let count = output.read(&mut chunk)?;
        if count == 0 {
            return Ok(read);
        }
        read.bytes += count as u64;
        if count <= COUNTED_BYTES_MAX {
            read.lines += chunk[..count].iter().filter(|&&byte| byte == b'\n').count();
        }
    }
}

/// How long a contender took.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Timing {
    /// The user.
    pub(super) what: String,
    /// The median, in microseconds.
    pub(super) median_us: u64,
    /// The shortest, in microseconds.
    pub(super) least_us: u64,
    /// What it took over what the first contender took in the same round: the median.
    pub(super) ratio: f64,
    /// Between these is the ratio of half of the rounds.
    pub(super) ratio_half: [f64; 2],
    /// Round by round, in microseconds.
    rounds_us: Vec<u64>,
}

/// What one contender took over what another did in the same round, so that a round in which the
/// machine was slow for both does not count.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Ratio {
    /// The median of the rounds.
    pub(super) median: f64,
    /// Between these are half of the rounds.
    pub(super) half: [f64; 2],
}

impl Timing {
    fn new(what: &str, rounds_us: &[u64], first_us: &[u64]) -> Self {
        let Ratio { median: ratio, half: ratio_half } = Ratio::of(rounds_us, first_us);
        Self {
            what: what.into(),
            median_us: median(&mut rounds_us.to_vec()),
            least_us: rounds_us.iter().copied().min().unwrap_or_default(),
            ratio,
            ratio_half,
            rounds_us: rounds_us.to_vec(),
        }
    }

    /// Against another contender of the same rounds.
    pub(super) fn over(&self, other: &Self) -> Ratio {
        Ratio::of(&self.rounds_us, &other.rounds_us)
    }
}

impl Ratio {
    fn of(one: &[u64], other: &[u64]) -> Self {
        let mut ratios: Vec<f64> =
            one.iter().zip(other).map(|(one, other)| ratio(*one, *other)).collect();
        ratios.sort_by(f64::total_cmp);
        let at = |percent| percentile(&ratios, percent);
        Self { median: at(50), half: [at(25), at(75)] }
    }
}

/// What two at once took over twice what one took in the same round: the median.
pub(super) fn over_twice(two_us: &[u64], one_us: &[u64]) -> f64 {
    let twice: Vec<u64> = one_us.iter().map(|one| 2 * one).collect();
    Ratio::of(two_us, &twice).median
}

/// Runs the contenders in turns, `rounds` times each after one round that does not count.
///
/// # Errors
/// If any run fails.
pub(super) fn alternate(contenders: &[Contender], rounds: usize) -> anyhow::Result<Vec<Timing>> {
    let mut samples = vec![Vec::with_capacity(rounds); contenders.len()];
    for round in 0..=rounds {
        for (contender, samples) in contenders.iter().zip(&mut samples) {
            let took = contender.run()?;
            if round > 0 {
                samples.push(micros(took));
            }
        }
    }
    Ok(timings(contenders.iter().map(|contender| &contender.name[..]).zip(&samples)))
}

/// What contenders took, from their times of the same rounds.
pub(super) fn timings<'a>(
    contenders: impl Iterator<Item = (&'a str, &'a Vec<u64>)> + Clone,
) -> Vec<Timing> {
    let Some((_, first)) = contenders.clone().next() else { return Vec::new() };
    contenders.map(|(what, rounds_us)| Timing::new(what, rounds_us, first)).collect()
}

/// Sorts the values and gives the one in the middle.
pub(super) fn median(values: &mut [u64]) -> u64 {
    values.sort_unstable();
    percentile(values, 50)
}

/// The one in the middle of values that are no integers; zero of none.
pub(super) fn median_f64(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    percentile(&values, 50)
}

/// Whole microseconds.
pub(super) fn micros(length: Duration) -> u64 {
    u64::try_from(length.as_micros()).unwrap_or(u64::MAX)
}

/// One over the other, rounded to thousandths so that JSON does not pretend to more.
#[expect(clippy::cast_precision_loss, reason = "microseconds of a benchmark are below 2^52")]
pub(super) fn ratio(one: u64, other: u64) -> f64 {
    (one as f64 / other.max(1) as f64 * 1000.0).round() / 1000.0
}

/// Milliseconds with two digits behind the point.
pub(super) fn ms(us: u64) -> String {
    format!("{}.{:02} ms", us / 1000, us % 1000 / 10)
}

/// Where a program of the `PATH` is.
pub(super) fn find_program(name: &str) -> Option<PathBuf> {
    std::env::split_paths(&std::env::var_os("PATH")?)
        .map(|directory| directory.join(name))
        .find(|path| path.is_file())
}

/// What tables say where there is no MPICH to compare with.
pub(super) const NOT_INSTALLED: &str = "not installed (tests/install-deps installs it)";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_of_values() {
        assert_eq!(median(&mut [3, 1, 2]), 2);
        assert_eq!(median(&mut []), 0);
        assert!((median_f64(&[1.5, 0.5, 9.0]) - 1.5).abs() < 1e-9);
    }

    #[test]
    fn numbers_for_people() {
        assert_eq!(ms(12_345), "12.34 ms");
        assert!((ratio(3, 2) - 1.5).abs() < 1e-9);
    }

    #[test]
    fn a_ratio_is_that_of_the_rounds_and_not_of_the_medians() {
        let one = Timing::new("one", &[40, 10, 20], &[40, 10, 20]);
        let other = Timing::new("other", &[10, 20, 40], &[40, 10, 20]);
        assert_eq!((one.median_us, other.median_us, other.least_us), (20, 20, 10));
        assert_eq!(one.over(&other), Ratio { median: 0.5, half: [0.5, 4.0] });
        assert!((other.ratio - 2.0).abs() < 1e-9, "{}", other.ratio);
        assert!((over_twice(&[40, 10, 20], &[5, 10, 20]) - 0.5).abs() < 1e-9);
    }

    #[test]
    fn a_contender_must_say_what_it_should() {
        let echo = |expects| Contender::command("echo", ["echo", "a"], expects);
        assert!(echo(Expects::Lines(1)).run().is_ok());
        assert!(echo(Expects::Lines(2)).run().is_err());
        assert!(echo(Expects::Bytes(3)).run().is_err());
        assert!(Contender::command("false", ["false"], Expects::Lines(0)).run().is_err());
    }
}
