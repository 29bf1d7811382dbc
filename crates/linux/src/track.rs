//! The genealogy of processes: descent, and the kernel's notices of births and ends.
//!
//! After section 3 of the process-tracking paper. A task is the forest of the processes that
//! descend from its root, whichever of their ancestors lives: when a process ends, its children go
//! to their nearest living ancestor, where the kernel would give them to init. The kernel keeps no
//! such tree, so it is kept here ([`Forest`]), fed by its process events ([`events`]) where they
//! can be had, and by what is found in `/proc` ([`seen`]) to begin with, and where something was
//! missed.

pub mod events;
mod forest;
mod io_reports;
mod netlink;

pub use events::{Exit, ProcessEvent, ProcessEvents};
pub use forest::{Forest, Life, Member, Origin, Orphans, Seen, Tally};
pub use io_reports::{IoReport, IoReports};

use crate::proc::ProcessStat;

/// What `/proc` says now of these processes; those that have ended are left out, also those that
/// are not reaped yet.
#[must_use]
pub fn seen(pids: &[i32]) -> Vec<Seen> {
    let stat = |&pid: &i32| ProcessStat::read(pid).ok().filter(|stat| !stat.has_ended());
    let seen =
        |stat: ProcessStat| Seen { pid: stat.pid, parent: stat.ppid, born_ns: stat.born_ns() };
    pids.iter().filter_map(stat).map(seen).collect()
}
