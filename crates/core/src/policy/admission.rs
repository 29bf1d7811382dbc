//! Admission: a job is declined if it could not start even with the machine to itself.

use super::placement::{most_tasks, most_tasks_of_all, shares_all, tasks_by_memory};
use super::{Machine, Placement};
use crate::action::Refusal;
use crate::ids::NodeId;
use crate::job::JobSpec;
use crate::limits::{TASKS_PER_JOB_MAX, TIME_LIMIT_MIN};

/// See the module.
pub(super) fn if_it_can_ever_fit(machine: Machine<'_>, spec: &JobSpec) -> Result<(), Refusal> {
    check_request(machine, spec)?;
    let blank = machine.matrix.blank();
    if blank.free() == 0 {
        return Err(Refusal::NoNodes);
    }
    match spec.processors_per_task {
        Some(each) => check_processors(machine, spec, each)?,
        None if machine.params.placement() == Placement::LowLoad => {
            check_processors(machine, spec, 1)?;
        }
        None => {}
    }
    check_memory(machine, spec)
}

/// What is wrong with a request whatever the machine has.
fn check_request(machine: Machine<'_>, spec: &JobSpec) -> Result<(), Refusal> {
    if spec.tasks == 0 || spec.processors_per_task == Some(0) {
        return Err(Refusal::NothingAsked);
    }
    if spec.tasks > TASKS_PER_JOB_MAX {
        return Err(Refusal::TooManyTasks { limit: TASKS_PER_JOB_MAX });
    }
    if spec.time_limit.is_some_and(|limit| limit < TIME_LIMIT_MIN) {
        return Err(Refusal::NoTime { shortest: TIME_LIMIT_MIN });
    }
    if !machine.classes.contains_key(&spec.class) {
        let known = machine.classes.keys().cloned().collect();
        return Err(Refusal::UnknownClass { class: spec.class.clone(), known });
    }
    Ok(())
}

fn check_processors(machine: Machine<'_>, spec: &JobSpec, each: u32) -> Result<(), Refusal> {
    let widest = machine.matrix.blank().levels().map(|(width, _)| width).max().unwrap_or(0);
    if each > widest {
        return Err(Refusal::TaskTooWide { asked: each, available: widest });
    }
    let tasks = u64::from(spec.tasks);
    let room = most_tasks_of_all(machine, spec);
    if tasks > room && machine.params.placement() == Placement::LowLoad {
        return Err(Refusal::TooFewNodes { asked: tasks, available: room });
    }
    if tasks > room {
        let asked = tasks * u64::from(each);
        return Err(Refusal::TooManyProcessors { asked, available: room * u64::from(each) });
    }
    Ok(())
}

fn check_memory(machine: Machine<'_>, spec: &JobSpec) -> Result<(), Refusal> {
    let Some(asked_bytes) = spec.memory_per_task_bytes.filter(|&bytes| bytes > 0) else {
        return Ok(());
    };
    if fits_memory(machine, spec, asked_bytes) {
        return Ok(());
    }
    // The most that fits, by bisection: 64 steps at most.
    let (mut fits, mut exceeds) = (0, asked_bytes);
    while exceeds - fits > 1 {
        let middle = fits + (exceeds - fits) / 2;
        if fits_memory(machine, spec, middle) {
            fits = middle;
        } else {
            exceeds = middle;
        }
    }
    Err(Refusal::TooMuchMemory { asked_bytes, available_bytes: fits })
}

/// Whether all tasks would fit if each had so many bytes and nothing else ran.
fn fits_memory(machine: Machine<'_>, spec: &JobSpec, bytes: u64) -> bool {
    let spec = JobSpec { memory_per_task_bytes: Some(bytes), ..spec.clone() };
    let shared = shares_all(machine, &spec);
    let room = |(width, node): (u32, NodeId)| {
        let memory = machine.nodes.get(node).map_or(0, |node| node.spec.memory_bytes);
        let by_memory = tasks_by_memory(memory, &spec);
        let by_width = most_tasks(machine, &spec, width, width);
        u64::from(if shared { by_memory } else { by_memory.min(by_width) })
    };
    let mut left = u64::from(spec.tasks);
    for node in
        machine.matrix.blank().widest(machine.matrix.loads()).filter(|&(width, _)| width > 0)
    {
        left = left.saturating_sub(room(node));
        if left == 0 {
            return true;
        }
    }
    false
}
