//! Groups of low priority: they get the processor time that no other group wants.

use super::Cgroup;
use super::cgroup_v1::Top;
use super::unit::DAEMONS;
use crate::{Error, Result};
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

/// The file that says how much a group's processor time counts.
#[derive(Debug)]
pub(super) struct Weight {
    path: PathBuf,
    file: File,
    words: Words,
}

/// What is written to make way, and to have as much as others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Words {
    name: &'static str,
    yielding: &'static str,
    ordinary: &'static str,
}

/// The first that is there is used. `cpu.idle` (from kernel 5.15 on, also in v1) also has processes
/// that wake up run at once before those of low priority; the others only give them the least.
const WAYS: [Words; 3] = [
    Words { name: "cpu.idle", yielding: "1", ordinary: "0" },
    Words { name: "cpu.weight", yielding: "1", ordinary: "100" },
    Words { name: "cpu.shares", yielding: "2", ordinary: "1024" },
];

/// The time for which a quota of processor time holds: the kernel's own.
const PERIOD_US: u64 = 100_000;

impl Cgroup {
    /// Makes it possible that the group makes way: where a controller of v1 does it, only for
    /// processes that are started later. Nothing changes yet.
    ///
    /// # Errors
    /// [`Error::NoController`] where no controller of processor time can be used; what the kernel
    /// says.
    pub fn prepare_to_yield(&self) -> Result<()> {
        self.weight().map(|_| ())
    }

    /// Has all processes here and below get only the processor time that no other wants, or as much
    /// as others again. Takes effect at once.
    ///
    /// # Errors
    /// As [`Cgroup::prepare_to_yield`]; [`Error::is_gone`] for a removed group.
    pub fn set_yielding(&self, yielding: bool) -> Result<()> {
        let Weight { path, file, words } = self.weight()?;
        let word = if yielding { words.yielding } else { words.ordinary };
        file.write_all_at(word.as_bytes(), 0).map_err(Error::file("write", path))
    }

    /// Bounds the processor time of all processes here and below together to that of so many
    /// processors. Where a controller of v1 does it, only those that are started later count.
    ///
    /// # Errors
    /// As [`Cgroup::prepare_to_yield`].
    pub fn set_processor_quota(&self, processors: u32) -> Result<()> {
        let directory = self.top.weigh(&self.path)?;
        let quota_us = u64::from(processors).saturating_mul(PERIOD_US);
        let words = match directory == self.path {
            true => vec![("cpu.max", format!("{quota_us} {PERIOD_US}"))],
            false => vec![
                ("cpu.cfs_period_us", PERIOD_US.to_string()),
                ("cpu.cfs_quota_us", quota_us.to_string()),
            ],
        };
        for (name, word) in words {
            let path = directory.join(name);
            fs::write(&path, word).map_err(Error::file("write", &path))?;
        }
        Ok(())
    }

    fn weight(&self) -> Result<&Weight> {
        if let Some(weight) = self.weight.get() {
            return Ok(weight);
        }
        let directory = self.top.weigh(&self.path)?;
        let there = WAYS.into_iter().find(|words| directory.join(words.name).exists());
        let words = there
            .ok_or_else(|| Error::NoController { path: directory.clone(), controller: "cpu" })?;
        let path = directory.join(words.name);
        let file =
            OpenOptions::new().write(true).open(&path).map_err(Error::file("open", &path))?;
        Ok(self.weight.get_or_init(|| Weight { path, file, words }))
    }
}

impl Top {
    /// Has the daemons beside the subtree run before all jobs in it: an agent without real-time
    /// priority to switch with would wait for its turn like one of them. Only where both are in one
    /// unit: nothing of others is weighed.
    pub(super) fn favour_daemons(&self) {
        let daemons = self.path.parent().map(|unit| unit.join(DAEMONS)).filter(|it| it.is_dir());
        if let Some(daemons) = daemons {
            let _ = fs::write(daemons.join("cpu.weight"), "10000");
            let _ = fs::write(self.path.join("cpu.weight"), "1");
        }
    }
}
