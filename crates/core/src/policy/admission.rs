//! Admission: a job is declined if it could not start even with the machine to itself, and with all
//! nodes of it that are drained or out of reach just now.

use super::placement::{most_tasks, most_tasks_of_all, shares_all};
use super::{Machine, chosen};
use alloc::vec::Vec;
use tutti_types::constraints::{NodeWish, WishRefusal};
use tutti_types::ids::NodeId;
use tutti_types::job::JobSpec;
use tutti_types::limits::{NEAREST_TRIES_MAX, TASKS_PER_JOB_MAX, TIME_LIMIT_MIN};
use tutti_types::placing::Placement;
use tutti_types::refusal::Refusal;
use tutti_types::resource::{Amount, ResourceWish};

/// See the module.
pub(super) fn if_it_can_ever_fit(machine: Machine<'_>, spec: &JobSpec) -> Result<(), Refusal> {
    check_request(machine, spec)?;
    let machine = machine.whole();
    if machine.width() == 0 {
        return Err(Refusal::NoNodes);
    }
    if !spec.nodes.is_none() {
        check_wish(machine, spec)?;
        check_devices(machine, spec)?;
        return check_memory(machine, spec);
    }
    match spec.processors_per_task {
        Some(each) => check_processors(machine, spec, each)?,
        None if machine.params.placement() == Placement::LowLoad => {
            check_processors(machine, spec, 1)?;
        }
        None => {}
    }
    check_devices(machine, spec)?;
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
    let widest = machine.levels().last().map_or(0, |&(width, _)| width);
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

/// Whether the nodes that a job wants have enough processors for it.
fn check_wish(machine: Machine<'_>, spec: &JobSpec) -> Result<(), Refusal> {
    let (wish, tasks) = (&spec.nodes, spec.tasks);
    if let Some(nodes) = wish.count
        && (nodes == 0 || nodes > tasks)
    {
        return Err(match nodes {
            0 => Refusal::NothingAsked,
            nodes => WishRefusal::MoreNodesThanTasks { nodes, tasks }.into(),
        });
    }
    let columns = machine.columns().filter(|(_, column)| column.width > 0);
    let allowed = columns.filter(|&(node, _)| wish.allows(node));
    let widths: Vec<u32> = allowed.map(|(_, column)| column.width).collect();
    let Some(&widest) = widths.iter().max() else { return Err(WishRefusal::NoneAmong.into()) };
    if let Some(each) = spec.processors_per_task
        && each > widest
    {
        return Err(Refusal::TaskTooWide { asked: each, available: widest });
    }
    let fits = |count| {
        let nodes = NodeWish { count, ..wish.clone() };
        let (memory_per_task_bytes, resources) = (None, Vec::new());
        chosen::fits(machine, &JobSpec { nodes, memory_per_task_bytes, resources, ..spec.clone() })
    };
    if fits(wish.count) {
        return Ok(());
    }
    let seats = chosen::blank_seats(machine, spec);
    let Some(asked) = wish.count else {
        let room = seats.iter().map(|seats| u64::from(seats.count)).sum();
        return Err(WishRefusal::NoRoomAmong { tasks, room }.into());
    };
    let most = asked.min(u32::try_from(seats.len()).unwrap_or(u32::MAX));
    let fewer = (1..=most).rev().take(NEAREST_TRIES_MAX as usize);
    let more = (asked + 1..=tasks).take(NEAREST_TRIES_MAX as usize);
    let nearest = fewer.chain(more).find(|&count| fits(Some(count)));
    let (there, among) = (u32::try_from(widths.len()).unwrap_or(u32::MAX), wish.is_choosy());
    Err(WishRefusal::NotSoManyNodes { asked, there, among, nearest }.into())
}

/// Whether the nodes have the devices for a job, or how many it could ask for instead.
fn check_devices(machine: Machine<'_>, spec: &JobSpec) -> Result<(), Refusal> {
    for wish in spec.resources.iter().filter(|wish| wish.devices().is_some()) {
        let Amount::OnNodes { count: asked, per, vacates } = wish.amount else { continue };
        let fits = |count| {
            let amount = Amount::OnNodes { count, per, vacates };
            let resources = [ResourceWish { amount, ..*wish }].into();
            fits_beside(
                machine,
                &JobSpec { resources, memory_per_task_bytes: None, ..spec.clone() },
            )
        };
        if fits(asked) {
            continue;
        }
        let nodes = machine.columns().map(|(node, _)| node);
        let all = nodes.flat_map(|node| machine.devices.on(node));
        let count = all.filter(|it| it.device.id.name == wish.name).count();
        let (mut most, mut exceeds) = (0, asked);
        while exceeds - most > 1 {
            let middle = most + (exceeds - most) / 2;
            if fits(middle) { most = middle } else { exceeds = middle }
        }
        let (name, amount) = (wish.name, wish.amount);
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        return Err(Refusal::NoDevices { name, amount, count, most });
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

/// Whether the nodes that count have the memory and the devices for a job that is as large as this
/// one.
pub(super) fn has_room_beside(machine: Machine<'_>, spec: &JobSpec) -> bool {
    let asks_none = spec.memory_per_task_bytes.unwrap_or(0) == 0 && spec.devices().next().is_none();
    asks_none || fits_beside(machine, spec)
}

/// Whether all tasks would fit if each had so many bytes and nothing else ran.
fn fits_memory(machine: Machine<'_>, spec: &JobSpec, bytes: u64) -> bool {
    fits_beside(machine, &JobSpec { memory_per_task_bytes: Some(bytes), ..spec.clone() })
}

/// Whether all tasks would get what they ask for if nothing else ran.
fn fits_beside(machine: Machine<'_>, spec: &JobSpec) -> bool {
    if !spec.nodes.is_none() {
        return chosen::fits(machine, spec);
    }
    let shared = shares_all(machine, spec);
    let room = |node: NodeId, width: u32| {
        let beside = machine.room_if_alone(node, spec);
        let by_width = most_tasks(machine, spec, width, width);
        u64::from(if shared { beside } else { beside.min(by_width) })
    };
    let mut left = u64::from(spec.tasks);
    for (node, column) in machine.columns().filter(|(_, column)| column.width > 0) {
        left = left.saturating_sub(room(node, column.width));
        if left == 0 {
            return true;
        }
    }
    false
}
