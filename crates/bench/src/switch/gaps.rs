//! What a switch costs the job itself: from the last instant before it stood still to the first
//! after, less the other's slot.
//!
//! The processes of both jobs look at the clock all the time and remember when they ran. Where none
//! of a job ran for about a slot, it was switched.

use super::super::contend::{median, ms};
use super::super::figures::Figure;
use super::super::processes::Kind;
use super::super::scratch::Scratch;
use super::trees::{Shape, Trees};
use anyhow::{Context, ensure};
use serde::Serialize;
use tutti_client::scratch::{ScratchInstance, percentile};
use tutti_types::Nanos;

/// How many processes each job has; the paper's largest tree.
const PROCESSES: u32 = 15;
const QUANTUM: Nanos = Nanos::from_millis(50);

/// What came out.
#[derive(Debug, Serialize)]
pub(super) struct Gaps {
    processes: u32,
    gaps: usize,
    median_us: u64,
    p99_us: u64,
}

pub(super) fn measure(
    own: &ScratchInstance,
    scratch: &Scratch,
    seconds: u32,
) -> anyhow::Result<Gaps> {
    own.set("quantum", &format!("{}ns", QUANTUM.0))?;
    let directories = scratch.path("stretches");
    std::fs::create_dir(&directories)?;
    let more = ["--seconds".into(), seconds.to_string().into(), "--stretches".into()];
    let more: Vec<_> = more.into_iter().chain([directories.clone().into_os_string()]).collect();
    let shape = Shape { processes: PROCESSES, kind: Kind::Busy };
    let trees = Trees::start(own, scratch, "freeze", shape, &more)?;
    for job in trees.jobs() {
        own.wait(job)?;
    }
    let mut gaps = Vec::new();
    for job in trees.jobs() {
        let mut stretches = Vec::new();
        for entry in std::fs::read_dir(&directories)? {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if name.starts_with(&format!("{job}-")) {
                let text = std::fs::read_to_string(&path)?;
                stretches.extend(text.lines().filter_map(parse));
            }
        }
        gaps.extend(gaps_in(stretches, QUANTUM.0));
    }
    ensure!(!gaps.is_empty(), "the jobs were never switched");
    let mut gaps: Vec<u64> = gaps.into_iter().map(|ns| ns / 1000).collect();
    let median_us = median(&mut gaps);
    Ok(Gaps { processes: PROCESSES, gaps: gaps.len(), median_us, p99_us: percentile(&gaps, 99) })
}

fn parse(line: &str) -> Option<(u64, u64)> {
    let (from, to) = line.split_once(' ')?;
    Some((from.parse().ok()?, to.parse().ok()?))
}

/// The times in which none ran, where they are about a slot or more, less the slot.
fn gaps_in(mut stretches: Vec<(u64, u64)>, slot_ns: u64) -> Vec<u64> {
    stretches.sort_unstable();
    let mut gaps = Vec::new();
    let mut last = None;
    for (from, to) in stretches {
        if let Some(last) = last
            && from > last
            && from - last > slot_ns / 2
        {
            gaps.push((from - last).saturating_sub(slot_ns));
        }
        last = last.max(Some(to));
    }
    gaps
}

impl Gaps {
    pub(super) fn text(&self) -> String {
        format!(
            "\nA job of {} processes stands still {} (99 %: {}) longer than the other's slot, by its \
             own account of {} switches\n",
            self.processes,
            ms(self.median_us),
            ms(self.p99_us),
            self.gaps
        )
    }

    /// The line of the table of figures.
    pub(super) fn figure(&self) -> Figure {
        let what = format!("what a job of {} processes sees of a switch", self.processes);
        let measured = format!("{} (99 %: {})", ms(self.median_us), ms(self.p99_us));
        Figure::goal(&what, measured, "median under 1.00 ms", self.median_us < 1000)
    }
}

/// Writes what a process remembers of when it ran.
///
/// # Errors
/// If the file can't be written.
pub(crate) fn write(directory: &std::path::Path, stretches: &[(u64, u64)]) -> anyhow::Result<()> {
    let job = std::env::var("TUTTI_JOB").unwrap_or_default();
    let path = directory.join(format!("{job}-{}", std::process::id()));
    let text: String = stretches.iter().map(|(from, to)| format!("{from} {to}\n")).collect();
    std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::gaps_in;

    #[test]
    fn a_gap_is_what_is_beyond_the_slot_while_nobody_ran() {
        let one = [(0, 100), (1150, 1200), (1210, 1900)];
        let other = [(90, 120), (1160, 2000), (3000, 3100)];
        assert_eq!(gaps_in([one, other].concat(), 1000), [30, 0]);
        assert!(gaps_in(vec![(0, 10), (20, 30)], 1000).is_empty());
    }
}
