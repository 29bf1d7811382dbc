//! `tutti logs -f`, against `cat` of the same file, and while the job writes.

use super::super::contend::{Contender, Expects, Ratio, alternate, micros, ms, timings};
use super::super::figures::Figure;
use super::super::scratch::Scratch;
use super::super::tree::used_ns;
use super::super::{Bench, options, progress};
use anyhow::{Context, bail};
use serde_bytes::ByteBuf;
use std::ffi::OsString;
use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tutti_client::scratch::ScratchInstance;
use tutti_client::work::{BLOCK_BYTES, rounds_for};
use tutti_node::executable::own_program;
use tutti_types::JobId;
use tutti_wire::launch::{OpenMode, Stdio as JobStdio};
use tutti_wire::local::{Reply, Request};

/// What the job writes at a time, in blocks: 10 MB.
const BLOCKS: u64 = 10_000_000 / BLOCK_BYTES;

/// How long it waits then; writing takes some milliseconds, too.
const PAUSE_MS: u64 = 94;

/// How long the other job takes, alone.
const OTHER: Duration = Duration::from_millis(500);

pub(super) fn measure(bench: &Bench) -> anyhow::Result<Vec<Figure>> {
    let own = ScratchInstance::start("bench")?;
    let scratch = Scratch::new("faces")?;
    let file = scratch.path("out");
    let seconds = if bench.quick { 2 } else { 10 };
    progress("faces: logs -f while a job writes");
    let (job, mut figures) = follow(&own, &file, seconds)?;
    progress("faces: logs -f against cat");
    let rounds = if bench.quick { 3 } else { 15 };
    figures.insert(0, against_cat(&own, &file, job, rounds)?);
    progress("faces: another job while logs -f reads");
    figures.push(beside(&own, &file, rounds)?);
    own.end()?;
    Ok(figures)
}

/// Submits a job that writes 100 MB/s to a file, for so long.
fn submit(own: &ScratchInstance, file: &Path, seconds: u64) -> anyhow::Result<JobId> {
    let words = [
        "work".to_owned(),
        "0".to_owned(),
        format!("--print={BLOCKS}"),
        format!("--again={}", seconds * 10),
        format!("--wait-ms={PAUSE_MS}"),
    ];
    let program = std::env::current_exe()?.into_os_string();
    let argv: Vec<OsString> =
        std::iter::once(program).chain(words.into_iter().map(Into::into)).collect();
    let output = ByteBuf::from(file.as_os_str().as_encoded_bytes());
    let stdio = JobStdio::Files { input: None, output, error: None, mode: OpenMode::Truncate };
    let request = tutti_client::job_request(&options(1, None)?, "production", &argv, None, stdio)?;
    match own.ask(&Request::Submit(request, tutti_client::new_key()?))? {
        Reply::Accepted { job, .. } => Ok(job),
        _ => tutti_client::ask::unexpected(),
    }
}

/// `tutti logs -f` with a thread that takes what it prints.
struct Follower {
    child: Child,
    bytes: Arc<AtomicU64>,
    thread: JoinHandle<()>,
}

impl Follower {
    fn start(own: &ScratchInstance, job: JobId) -> anyhow::Result<Self> {
        let mut command = Command::new(own_program()?);
        command.args(["logs", "-f", &job.to_string()]).env("TUTTI_DIR", own.directory());
        let mut child =
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let mut output = child.stdout.take().context("there is no pipe")?;
        let bytes = Arc::<AtomicU64>::default();
        let sum = Arc::clone(&bytes);
        let thread = std::thread::spawn(move || {
            let mut room = vec![0; 1 << 20];
            while let Ok(count @ 1..) = output.read(&mut room) {
                sum.fetch_add(count as u64, Ordering::Relaxed);
            }
        });
        Ok(Self { child, bytes, thread })
    }

    /// Waits for its end: how many bytes it printed.
    fn end(mut self) -> anyhow::Result<u64> {
        let status = self.child.wait()?;
        if !status.success() {
            bail!("tutti logs -f failed: {status}");
        }
        self.thread.join().ok().context("the reader panicked")?;
        Ok(self.bytes.load(Ordering::Relaxed))
    }
}

/// Follows a job while it writes.
fn follow(
    own: &ScratchInstance,
    file: &Path,
    seconds: u64,
) -> anyhow::Result<(JobId, Vec<Figure>)> {
    let begin = Instant::now();
    let job = submit(own, file, seconds)?;
    let follower = Follower::start(own, job)?;
    let pid = follower.child.id().cast_signed();
    let written = || std::fs::metadata(file).map_or(0, |file| file.len());
    let all = seconds * 10 * BLOCKS * BLOCK_BYTES;
    let (mut behind, mut used) = (0, 0);
    while written() < all {
        std::thread::sleep(Duration::from_millis(20));
        behind = behind.max(written().saturating_sub(follower.bytes.load(Ordering::Relaxed)));
        used = used_ns(pid).unwrap_or(used);
    }
    let passed = begin.elapsed();
    own.wait(job)?;
    let ended = Instant::now();
    let printed = follower.end()?;
    let late_us = micros(ended.elapsed());
    anyhow::ensure!(printed == all, "tutti logs -f printed {printed} of {all} bytes");
    let rate = u128::from(all) / passed.as_micros().max(1);
    let share = u128::from(used) * 100 / passed.as_nanos().max(1);
    let what = format!("logs -f of a job that writes {rate} MB/s");
    Ok((
        job,
        vec![
            Figure::shown(
                &format!("{what}: behind"),
                format!(
                    "{} MB at most; all was printed {} after the end",
                    behind / 1_000_000,
                    ms(late_us)
                ),
            ),
            Figure::shown(&format!("{what}: processor"), format!("{share} %")),
        ],
    ))
}

/// The whole file, by `logs -f` of the job that has ended, and by `cat`.
fn against_cat(
    own: &ScratchInstance,
    file: &Path,
    job: JobId,
    rounds: usize,
) -> anyhow::Result<Figure> {
    let length = std::fs::metadata(file)?.len();
    let expects = Expects::Bytes(length);
    let words = ["logs", "-f", &job.to_string()].map(OsString::from);
    let contenders = [
        Contender::command("cat", ["cat".into(), file.as_os_str().to_owned()], expects),
        Contender::verb("tutti logs -f", own.directory(), words, expects)?,
    ];
    let times = alternate(&contenders, rounds)?;
    let Ratio { median, half: [low, high] } = times[0].over(&times[1]);
    let rate = |us: u64| length / us.max(1);
    let measured = format!(
        "{median:.2} ({low:.2} to {high:.2} in half of the rounds): {} MB/s, cat {} MB/s",
        rate(times[1].median_us),
        rate(times[0].median_us)
    );
    let what = "logs -f of a file, speed over that of cat";
    Ok(Figure::goal(what, measured, "0.5", median >= 0.5))
}

/// Another job beside the one that writes, with `logs -f` and without, in turns.
fn beside(own: &ScratchInstance, file: &Path, rounds: usize) -> anyhow::Result<Figure> {
    let program = std::env::current_exe()?.into_os_string();
    let size = rounds_for(OTHER).to_string();
    let words: [OsString; 4] = ["run".into(), program, "work".into(), size.into()];
    let other = Contender::verb("another job", own.directory(), words, Expects::Lines(0))?;
    let mut took_us = [const { Vec::new() }; 2];
    for _ in 0..rounds {
        for (with, took_us) in took_us.iter_mut().enumerate() {
            let job = submit(own, file, 2)?;
            let follower = (with == 1).then(|| Follower::start(own, job)).transpose()?;
            std::thread::sleep(Duration::from_millis(200));
            took_us.push(micros(other.run()?));
            own.wait(job)?;
            follower.map_or(Ok(0), Follower::end)?;
        }
    }
    let times = timings(["without", "with"].into_iter().zip(&took_us));
    let Ratio { median, half: [low, high] } = times[1].over(&times[0]);
    let measured = format!(
        "{median:.3} ({low:.3} to {high:.3} in half of the rounds): {}",
        ms(times[1].median_us)
    );
    Ok(Figure::shown("another job of 0.5 s beside both, over beside the writer alone", measured))
}
