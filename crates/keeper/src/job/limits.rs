//! What a task may use: the limits of its group, what is said of those that it reached, and its
//! processors.

use super::super::context::chain;
use nix::libc;
use tracing::warn;
use tutti_node::platform::groups::Cgroup;
use tutti_types::{ProcessorSet, StepId};
use tutti_wire::code::Code;
use tutti_wire::launch::{JobNode, Launch};

/// What a step may have that serves the other tasks of its job: it runs outside of the job's group.
/// It holds messages that wait to be read.
const SERVER_MEMORY_BYTES: u64 = 256 << 20;
const SERVER_PROCESSES: u64 = 16;

/// Whether the groups of its tasks have limits of their own.
pub(crate) const fn is_limited(launch: &Launch) -> bool {
    launch.serves || launch.memory_per_task_bytes.is_some() || launch.spec.processes_max.is_some()
}

/// Gives a task's group the limits that its job asks for. A task goes without where nothing holds
/// it to them: the asker was told.
pub(super) fn set(group: &Cgroup, launch: &Launch) {
    let (memory, processes) = match launch.serves {
        true => (Some(SERVER_MEMORY_BYTES), Some(SERVER_PROCESSES)),
        false => (launch.memory_per_task_bytes, launch.spec.processes_max),
    };
    if let Some(bytes) = memory
        && let Err(error) = group.set_memory_limit(bytes)
    {
        warn!(code = %Code::GoesWithout, "memory is not limited: {}", chain(&error));
    }
    if let Some(most) = processes
        && let Err(error) = group.set_process_limit(most)
    {
        warn!(code = %Code::GoesWithout, "processes are not limited: {}", chain(&error));
    }
}

/// Gives a job's group the memory of all its slots on this node. Tasks that have limits of their
/// own need none above until others of the job run beside them.
pub(super) fn set_of_job(group: &Cgroup, launch: &Launch) {
    let Some(bytes) = allocated(launch) else { return };
    if let Err(error) = group.set_memory_limit(bytes) {
        warn!(code = %Code::GoesWithout, "memory is not limited: {}", chain(&error));
    }
}

/// The memory of all slots of a job on this node. The task of a batch job has that of all slots of
/// the first node.
fn allocated(launch: &Launch) -> Option<u64> {
    let slots = |node: &JobNode| u64::from(node.slots.max(1));
    let of_a_task = launch.memory_per_task_bytes?;
    let each = match &launch.share.held {
        Some(_) => of_a_task / launch.nodes.first().map_or(1, slots),
        None => of_a_task,
    };
    let here = launch.nodes.get(launch.share.node_rank as usize).map_or(1, slots);
    Some(each.saturating_mul(here))
}

/// Whether its tasks have processors of their own here: some that no other task of it has. The only
/// task of a further step has them if its job has more, on which other steps may run.
pub(crate) fn have_own_processors(launch: &Launch, group: &Cgroup) -> bool {
    let tasks = &launch.share.tasks;
    let mut taken = ProcessorSet::new();
    let are_own = tasks.iter().all(|task| {
        let is_own = !task.processors.is_empty() && !task.processors.overlaps(&taken);
        taken.union_with(&task.processors);
        is_own
    });
    let are_others_kept_out = || {
        let held = || group.held_to();
        match (tasks.len(), launch.step) {
            (0 | 1, StepId::FIRST) => false,
            (0 | 1, _) => held().is_some_and(|all| all.iter().any(|it| !taken.contains(*it))),
            _ => held().is_some(),
        }
    };
    are_own && are_others_kept_out()
}

/// Holds a task's group to the task's own processors. Without, the job's hold it still.
pub(super) fn hold(group: &Cgroup, launch: &Launch, index: usize) {
    let processors: Vec<u32> = launch.share.tasks[index].processors.iter().collect();
    if let Err(error) = group.set_processors(&processors) {
        warn!(code = %Code::GoesWithout, "a task is not held to its processors: {}", chain(&error));
    }
}

/// Adds to what a reader should know of a task that it had as many processes as it may, and wanted
/// more. What became of that is the program's own affair, so its status stays. To be called while
/// the group exists.
pub(super) fn note_reached(group: &Cgroup, launch: &Launch, detail: &mut String) {
    let Some(most) = launch.spec.processes_max else { return };
    let noun = if most == 1 { "process" } else { "processes" };
    let text = format!("reached its limit of {most} {noun} (--max-processes)");
    // The group is looked at until it is empty.
    if detail.ends_with(&text) || !group.has_reached_process_limit() {
        return;
    }
    if !detail.is_empty() {
        detail.push_str("; ");
    }
    detail.push_str(&text);
}

/// What `ulimit` calls a resource, by the kernel's number.
pub(crate) fn resource_name(resource: u32) -> Option<&'static str> {
    Some(match resource {
        libc::RLIMIT_CPU => "ulimit -t",
        libc::RLIMIT_FSIZE => "ulimit -f",
        libc::RLIMIT_DATA => "ulimit -d",
        libc::RLIMIT_STACK => "ulimit -s",
        libc::RLIMIT_CORE => "ulimit -c",
        libc::RLIMIT_RSS => "ulimit -m",
        libc::RLIMIT_NPROC => "ulimit -u",
        libc::RLIMIT_NOFILE => "ulimit -n",
        libc::RLIMIT_MEMLOCK => "ulimit -l",
        libc::RLIMIT_AS => "ulimit -v",
        _ => return None,
    })
}
