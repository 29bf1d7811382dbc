//! Two jobs that are trees of processes and take turns.

use super::super::processes::Kind;
use super::super::scratch::Scratch;
use super::super::{options, processors};
use anyhow::ensure;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tutti_client::scratch::ScratchInstance;
use tutti_types::{ClassName, JobId, Nanos};
use tutti_wire::local::Request;
use tutti_wire::report::SwitchRecord;

/// How many switches are wanted of each kind.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    pub(super) switches: u64,
    /// The longest that they are waited for, as long as there are enough of them.
    pub(super) length_max: Nanos,
    pub(super) switches_least: u64,
    /// How many times the expected time they may take before what came is all.
    pub(super) patience: u32,
}

/// What each of the jobs is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) processes: u32,
    pub(super) kind: Kind,
}

/// How long two trees may take to be complete, for each of their processes, and at least.
const READY_PER_PROCESS: Duration = Duration::from_millis(100);
const READY_LEAST: Duration = Duration::from_secs(20);

/// The jobs, which are ended when this is.
pub(super) struct Trees<'a> {
    own: &'a ScratchInstance,
    jobs: [JobId; 2],
}

impl<'a> Trees<'a> {
    /// Starts both, which are switched by `method`, and waits until they are complete.
    pub(super) fn start(
        own: &'a ScratchInstance,
        scratch: &Scratch,
        method: &str,
        shape: Shape,
        more: &[OsString],
    ) -> anyhow::Result<Self> {
        let class = ClassName::new(&format!("bench-{method}"));
        let settings = vec![("control".into(), method.into())];
        own.ask(&Request::SetClass { class: class.clone(), settings })?;
        let ready = ["first", "second"]
            .map(|name| scratch.path(format!("{method}-{}-{name}", count(scratch))));
        let [first, second] = &ready;
        let (first, second) = (
            submit(own, &class, shape, (first, second), more)?,
            submit(own, &class, shape, (second, first), more)?,
        );
        let trees = Self { own, jobs: [first, second] };
        trees.wait_for(&ready, shape.processes)?;
        Ok(trees)
    }

    pub(super) const fn jobs(&self) -> [JobId; 2] {
        self.jobs
    }

    fn wait_for(&self, files: &[PathBuf], processes: u32) -> anyhow::Result<()> {
        let patience = Instant::now() + READY_LEAST.max(READY_PER_PROCESS * processes);
        while !files.iter().all(|file| file.exists()) {
            ensure!(
                self.own.jobs()?.len() >= files.len(),
                "a tree of {processes} processes could not be started"
            );
            ensure!(
                Instant::now() < patience,
                "two trees of {processes} processes were not complete in time"
            );
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Sleeps while the switches happen: asking would disturb them.
    pub(super) fn records(
        &self,
        wanted: Wanted,
        quantum: Nanos,
    ) -> anyhow::Result<Vec<SwitchRecord>> {
        let since = tutti_linux::clock::monotonic_ns();
        let most = (wanted.length_max.0 / quantum.0.max(1)).max(wanted.switches_least);
        let count = wanted.switches.min(most);
        let expected = Duration::from_nanos(quantum.0) * u32::try_from(count)?;
        let patience = Instant::now() + expected * wanted.patience + Duration::from_secs(5);
        loop {
            std::thread::sleep(expected + Duration::from_millis(100));
            let mut records = self.own.switches(u32::MAX)?;
            records.retain(|r| r.due_ns >= since && !r.left.is_empty() && !r.came.is_empty());
            if records.len() as u64 >= count || Instant::now() > patience {
                return Ok(records);
            }
        }
    }

    pub(super) fn end(self) -> anyhow::Result<()> {
        self.end_both()
    }

    fn end_both(&self) -> anyhow::Result<()> {
        for job in self.jobs {
            self.own.ask(&Request::Cancel { target: job.into(), at_once: true })?;
            // It was killed: its exit code is no news.
            self.own.ask(&Request::Wait { job })?;
        }
        Ok(())
    }
}

/// What was given up must not keep the processors from what is measured next.
impl Drop for Trees<'_> {
    fn drop(&mut self) {
        let _ = self.end_both();
    }
}

fn submit(
    own: &ScratchInstance,
    class: &ClassName,
    shape: Shape,
    (ready, beside): (&Path, &Path),
    more: &[OsString],
) -> anyhow::Result<JobId> {
    let mut job = options(1, Some(processors()))?;
    job.class = Some(class.to_string());
    job.name = ready.file_name().map(|name| name.to_string_lossy().into_owned());
    let mut argv = vec![
        std::env::current_exe()?.into_os_string(),
        "processes".into(),
        shape.processes.to_string().into(),
        shape.kind.word().into(),
        "--ready".into(),
        ready.into(),
        "--beside".into(),
        beside.into(),
    ];
    argv.extend(more.iter().cloned());
    own.submit(&job, &argv)
}

/// How many files there are: a number that no name has had.
fn count(scratch: &Scratch) -> usize {
    std::fs::read_dir(scratch.path("")).map_or(0, Iterator::count)
}
