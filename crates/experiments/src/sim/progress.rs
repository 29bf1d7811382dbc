//! How far a simulation has got, on a terminal.

use super::source::Origin;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::fs::File;
use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// A bar on standard error, if that is a terminal, and the run is long enough to see it. Threads
/// that read and those that simulate tell it of what they did.
#[derive(Clone)]
pub(super) struct Progress(Arc<Bar>);

struct Bar {
    bar: ProgressBar,
    unit: Unit,
    begun: Instant,
    shown: AtomicBool,
    /// What the bar was not told yet.
    untold: AtomicU64,
}

/// What is counted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Unit {
    Bytes,
    Jobs,
    Nothing,
}

/// A bar for a run that takes no longer than this would only flicker.
const QUIET: Duration = Duration::from_millis(700);
/// So many jobs are told at once.
const JOBS_AT_ONCE: u64 = 256;

impl Progress {
    /// For callers that need none.
    pub(super) fn none() -> Self {
        Self::new(0, "", Unit::Nothing, "")
    }

    /// For a run with so many jobs, or, if that is not known, for a whole trace, by what is read
    /// of it.
    pub(super) fn of(origin: &Origin, jobs: Option<u64>, what: &str) -> Self {
        match (jobs, origin) {
            (Some(jobs), _) => Self::new(jobs, what, Unit::Jobs, "{pos}/{len} jobs"),
            (None, Origin::File(path)) => {
                let bytes = path.metadata().map_or(0, |data| data.len());
                Self::new(bytes, what, Unit::Bytes, "{percent} %")
            }
            (None, Origin::Model(_)) => Self::none(),
        }
    }

    fn new(length: u64, what: &str, unit: Unit, figures: &str) -> Self {
        let bar = ProgressBar::with_draw_target(Some(length), ProgressDrawTarget::hidden());
        let template = format!("{{msg}} [{{bar:40}}] {figures}, {{eta}} left");
        if let Ok(style) = ProgressStyle::with_template(&template) {
            bar.set_style(style.progress_chars("=> "));
        }
        bar.set_message(what.to_owned());
        let (begun, shown) = (Instant::now(), AtomicBool::new(false));
        Self(Arc::new(Bar { bar, unit, begun, shown, untold: AtomicU64::new(0) }))
    }

    /// Another job was taken.
    pub(super) fn job(&self) {
        self.count(Unit::Jobs, 1, JOBS_AT_ONCE);
    }

    fn count(&self, unit: Unit, more: u64, at_once: u64) {
        let bar = &self.0;
        if bar.unit != unit {
            return;
        }
        if bar.untold.fetch_add(more, Relaxed) + more < at_once {
            return;
        }
        bar.bar.inc(bar.untold.swap(0, Relaxed));
        if !bar.shown.load(Relaxed) && bar.begun.elapsed() > QUIET {
            bar.shown.store(true, Relaxed);
            bar.bar.set_draw_target(ProgressDrawTarget::stderr_with_hz(5));
        }
    }

    /// Takes the bar away.
    pub(super) fn finish(&self) {
        self.0.bar.finish_and_clear();
    }
}

/// A file that tells how much of it was read.
pub(super) struct Counted {
    file: File,
    progress: Progress,
}

impl Counted {
    pub(super) fn new(file: File, progress: &Progress) -> Self {
        Self { file, progress: progress.clone() }
    }
}

impl Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read(buffer)?;
        self.progress.count(Unit::Bytes, count as u64, 1);
        Ok(count)
    }
}
