//! How processes are doing, as `tutti ps --tree` shows it.

use super::subtree_control::Name;
use super::track::TaskId;
use std::collections::BTreeSet;
use tutti_linux::proc::{ProcessStat, command_line};
use tutti_linux::track::Member;
use tutti_wire::launch::cut;
use tutti_wire::limits::COMMAND_BYTES_MAX;
use tutti_wire::report::{ProcessReport, TaskReport};

/// Makes the report on a task. `room`: for how many processes the answer has room.
pub(super) fn report(
    task: TaskId,
    node: &str,
    members: &[Member],
    stands: &Stands,
    room: &mut usize,
) -> TaskReport {
    let count = members.len().min(*room);
    *room -= count;
    let look = |member: &Member| {
        let stat = ProcessStat::read(member.pid).ok().filter(|stat| !stat.has_ended())?;
        Some(ProcessReport {
            pid: member.pid,
            parent: member.parent,
            state: stands.state(&stat).into(),
            cpu_ms: u64::try_from(stat.cpu_time().as_millis()).unwrap_or(u64::MAX),
            memory_bytes: stat.resident_bytes(),
            command: cut(command_line(&stat), COMMAND_BYTES_MAX),
        })
    };
    TaskReport {
        job: task.0.job,
        rank: task.1,
        node: node.into(),
        processes: members[..count].iter().filter_map(look).collect(),
        left_out: (members.len() - count) as u64,
    }
}

/// What makes processes of a task stand still.
pub(super) struct Stands<'a> {
    /// Its cgroup is frozen.
    pub(super) frozen: bool,
    /// Those that a user has suspended by signals.
    pub(super) stopped: &'a BTreeSet<Name>,
}

impl Stands<'_> {
    fn state(&self, stat: &ProcessStat) -> &'static str {
        match stat.state {
            _ if self.stopped.contains(&(stat.pid, stat.start_time)) => "suspended",
            'T' | 't' => "stopped",
            _ if self.frozen => "frozen",
            'R' => "running",
            'D' => "waiting",
            _ => "sleeping",
        }
    }
}
