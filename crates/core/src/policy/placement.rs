//! Placement: which processors of a row a job gets. Here is `packed`: as few nodes as possible, and
//! on them the least loaded processors. The others are in [`super::grm`] and [`super::buddy`]; jobs
//! with a wish about their nodes are in [`super::chosen`].
//!
//! Whether a job fits a row at all depends on counts alone: a node can take as many tasks as its
//! free processors and its unallocated memory allow. The job fits if the nodes together can take
//! all. So what is found here is found whenever there is anything to find.

use super::{Machine, WaitReason, admission, buddy, chosen, expected_load, grm};
use crate::matrix::{Index, Widths};
use crate::state::record::{Binding, Part};
use alloc::vec::Vec;
use tutti_types::ids::{ClassName, NodeId, ProcessorSet, RowId};
use tutti_types::job::JobSpec;
use tutti_types::placing::Placement;
use tutti_types::resource::ResourceName;

/// Chooses the processors for a job in a row, or in a new row if `None`.
pub type Lay = fn(Machine<'_>, &JobSpec, Option<RowId>) -> Result<Vec<Part>, Lack>;

/// What keeps a job out of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lack {
    /// Processors: too few are free.
    Nodes,
    /// There are enough processors, but memory is allocated to others, or they have the devices.
    Memory,
}

/// Whether any processors will do for a job: its tasks take one each, and no memory.
pub(crate) fn is_plain(spec: &JobSpec) -> bool {
    spec.nodes.is_none()
        && spec.processors_per_task.unwrap_or(1) == 1
        && spec.memory_per_task_bytes.unwrap_or(0) == 0
        && spec.devices().next().is_none()
}

impl Machine<'_> {
    /// Whether a job fits wherever enough processors are free.
    pub(crate) fn counts_suffice(self, spec: &JobSpec) -> bool {
        let by_counts = match self.params.placement() {
            Placement::Packed | Placement::RoundRobin | Placement::SpareCycles => true,
            Placement::LowLoad | Placement::HighLoad => false,
        };
        by_counts && is_plain(spec) && !buddy::applies(self, spec) && !self.leaving.concern(spec)
    }

    /// With fewer free processors than so many, a job fits no row.
    pub(crate) fn least_processors(self, spec: &JobSpec) -> u64 {
        let shares = self.params.placement() == Placement::HighLoad;
        match spec.processors_per_task {
            None if shares => 1,
            Some(_) | None => processors(spec, self.matrix.widths()),
        }
    }

    /// A job with a wish has no more processors than so many, of all that there are.
    pub(crate) fn most_processors(self, spec: &JobSpec) -> u64 {
        let own = u64::from(spec.processors_per_task.unwrap_or(1).max(1));
        if !spec.nodes.exclusive && spec.processors_per_task.is_some() {
            return u64::from(spec.tasks) * own;
        }
        // Its nodes may be any, and it may have all of their processors.
        let mut left = u64::from(spec.nodes.count.unwrap_or(spec.tasks));
        let mut levels = self.levels();
        levels.reverse();
        let widest = levels.into_iter().map(|(width, nodes)| {
            let taken = nodes.min(left);
            left -= taken;
            u64::from(width) * taken
        });
        widest.sum()
    }

    /// How many tasks of a job the memory and the devices of a node suffice for that others leave,
    /// in a row (`None`: a new one).
    pub(crate) fn room_beside(self, node: NodeId, spec: &JobSpec, row: Option<RowId>) -> u32 {
        let by_memory = match spec.memory_per_task_bytes {
            None | Some(0) => u32::MAX,
            Some(_) => tasks_by_memory(self.free_bytes(node, &spec.class), spec),
        };
        by_memory.min(self.devices.tasks(node, spec, self.asker(spec, row)))
    }

    /// The same with nothing else on the node.
    pub(super) fn room_if_alone(self, node: NodeId, spec: &JobSpec) -> u32 {
        let memory = self.bytes_if_alone(node, &spec.class);
        tasks_by_memory(memory, spec).min(self.devices.tasks_if_alone(node, spec))
    }

    /// Why a job waits for which there are enough processors.
    pub(crate) fn lack_beside(self, spec: &JobSpec) -> WaitReason {
        match self.lacks_devices(spec) {
            Some(name) => WaitReason::Device { name },
            None => WaitReason::Memory,
        }
    }

    /// The devices of which others leave too few on all nodes together.
    pub(crate) fn lacks_devices(self, spec: &JobSpec) -> Option<ResourceName> {
        let first = spec.devices().next()?.name;
        let asker = self.asker(spec, None);
        let tasks = |node| u64::from(self.devices.tasks(node, spec, asker).min(spec.tasks));
        let room: u64 = self.columns().map(|(node, _)| tasks(node)).sum();
        let needs_memory = spec.memory_per_task_bytes.unwrap_or(0) > 0;
        (!needs_memory || room < u64::from(spec.tasks)).then_some(first)
    }

    /// Why a job waits that fits none of the rows, of which there are as many as may be.
    pub(super) fn lack_of_room(self, spec: &JobSpec) -> WaitReason {
        if !spec.nodes.is_none() {
            return WaitReason::Wish { limit: self.rows };
        }
        if buddy::applies(self, spec) {
            return WaitReason::Block { size: buddy::size(spec) };
        }
        match self.params.placement() {
            Placement::LowLoad => WaitReason::IdleNodes { nodes: spec.tasks },
            Placement::Packed
            | Placement::RoundRobin
            | Placement::SpareCycles
            | Placement::HighLoad => WaitReason::Rows { limit: self.rows },
        }
    }
}

/// How many processors a job needs at least, on a machine of so many.
pub(crate) fn processors(spec: &JobSpec, machine: Widths) -> u64 {
    let tasks = u64::from(spec.tasks);
    match spec.processors_per_task {
        Some(each) => tasks * u64::from(each.max(1)),
        // Where there are not so many, tasks share what there is.
        None if spec.nodes.is_none() && tasks > machine.all => machine.open,
        None if spec.nodes.is_none() => tasks,
        // On the nodes that it wants there may be only few.
        None => 1,
    }
}

/// Whether a job for which [`Machine::counts_suffice`] fits a new row.
pub(super) fn fits_blank(machine: Machine<'_>, spec: &JobSpec) -> bool {
    let free = machine.matrix.blank().free();
    free > 0 && processors(spec, machine.matrix.widths()) <= free
}

/// Chooses the processors by the parameters. Memory that only a node has that takes no jobs now is
/// a lack of nodes: no end of other jobs would help.
pub(super) fn lay(
    machine: Machine<'_>,
    spec: &JobSpec,
    row: Option<RowId>,
) -> Result<Vec<Part>, Lack> {
    let clear = match machine.leaving.concern(spec) {
        true => Some(clear_of_leaving(machine, spec)),
        false => None,
    };
    let has_fewer = clear.is_some() || machine.matrix.has_closed();
    let spec = clear.as_ref().unwrap_or(spec);
    let laid = lay_as_set(machine, spec, row);
    let is_vain = |lack: &Lack| {
        *lack == Lack::Memory && has_fewer && !admission::has_room_beside(machine, spec)
    };
    laid.map_err(|lack| if is_vain(&lack) { Lack::Nodes } else { lack })
}

/// What a job asks for, kept off nodes that go out of service too soon for it. As with nodes that
/// take no jobs now, it waits rather than have its tasks share the processors of the others.
fn clear_of_leaving(machine: Machine<'_>, spec: &JobSpec) -> JobSpec {
    let mut clear = spec.clone();
    clear.nodes.except.extend(machine.leaving.too_soon(spec));
    if spec.processors_per_task.is_none() && !shares_processors(machine, spec) {
        clear.processors_per_task = Some(1);
    }
    clear
}

fn lay_as_set(machine: Machine<'_>, spec: &JobSpec, row: Option<RowId>) -> Result<Vec<Part>, Lack> {
    if !spec.nodes.is_none() {
        return chosen::lay(machine, spec, row);
    }
    if buddy::applies(machine, spec) {
        return buddy::lay(machine, spec, row);
    }
    match machine.params.placement() {
        Placement::Packed => packed(machine, spec, row),
        Placement::RoundRobin
        | Placement::SpareCycles
        | Placement::LowLoad
        | Placement::HighLoad => grm::lay(machine, spec, row),
    }
}

/// How many tasks of a job a node can take with so many processors free of all that it has.
pub(super) fn most_tasks(machine: Machine<'_>, spec: &JobSpec, free: u32, width: u32) -> u32 {
    let own = free / spec.processors_per_task.unwrap_or(1).max(1);
    match machine.params.placement() {
        Placement::Packed | Placement::RoundRobin | Placement::SpareCycles => own,
        Placement::LowLoad if free == width => own.min(1),
        Placement::LowLoad => 0,
        Placement::HighLoad if spec.processors_per_task.is_none() && free > 0 => {
            own.max(machine.params.tasks_per_node())
        }
        Placement::HighLoad => own,
    }
}

/// How many tasks of a job all nodes can take together, with nothing else on them.
pub(super) fn most_tasks_of_all(machine: Machine<'_>, spec: &JobSpec) -> u64 {
    let levels = machine.levels().into_iter();
    levels.map(|(width, nodes)| u64::from(most_tasks(machine, spec, width, width)) * nodes).sum()
}

/// Whether there are so many tasks that they share all processors: more than there would be room
/// for if all nodes took jobs. While some do not, a job waits for its processors rather than share
/// the others.
pub(super) fn shares_all(machine: Machine<'_>, spec: &JobSpec) -> bool {
    spec.processors_per_task.is_none()
        && machine.params.placement() != Placement::LowLoad
        && u64::from(spec.tasks) > most_tasks_of_all(machine.whole(), spec)
}

/// Whether a job's tasks may not have processors of their own each, as the parameters say.
pub(crate) fn shares_processors(machine: Machine<'_>, spec: &JobSpec) -> bool {
    let by_node = machine.params.placement() == Placement::HighLoad;
    spec.processors_per_task.is_none() && (by_node || shares_all(machine, spec))
}

/// The processors for a job that shares all of them.
pub(super) fn share_all(
    machine: Machine<'_>,
    spec: &JobSpec,
    row: Option<RowId>,
) -> Result<Vec<Part>, Lack> {
    let parts = shared(machine, spec, &|node| machine.room_beside(node, spec, row))?;
    let free = |part: &Part| machine.matrix.free_on(row, part.node) == part.processors;
    if parts.iter().all(free) { Ok(parts) } else { Err(Lack::Nodes) }
}

/// See the module.
fn packed(machine: Machine<'_>, spec: &JobSpec, row: Option<RowId>) -> Result<Vec<Part>, Lack> {
    let index = match row {
        None => machine.matrix.blank(),
        Some(row) => &machine.matrix.row(row).ok_or(Lack::Nodes)?.index,
    };
    let each = spec.processors_per_task.unwrap_or(1).max(1);
    let asked = u64::from(spec.tasks) * u64::from(each);
    if spec.processors_per_task.is_none() && asked > machine.matrix.width() {
        return share_all(machine, spec, row);
    }
    if index.free() < asked {
        return Err(Lack::Nodes);
    }
    let part = |node, tasks, first| {
        let processors = choose(machine, &spec.class, row, node, tasks * each);
        Part { binding: Binding::Own(each), ..Part::new(node, processors, first, tasks) }
    };
    if let Some(node) = one_node(machine, spec, row, index, each) {
        return Ok([part(node, spec.tasks, 0)].into());
    }
    let counts = counts(machine, (spec, row), index, each)?;
    let mut parts = Vec::with_capacity(counts.len());
    let mut first = 0;
    for (node, tasks) in counts {
        parts.push(part(node, tasks, first));
        first += tasks;
    }
    Ok(parts)
}

/// The node that takes all tasks of a job, if one does: rather one with enough processors without
/// external load.
fn one_node(
    machine: Machine<'_>,
    spec: &JobSpec,
    row: Option<RowId>,
    index: &Index,
    each: u32,
) -> Option<NodeId> {
    let width = spec.tasks.checked_mul(each)?;
    let fits = |node| machine.room_beside(node, spec, row) >= spec.tasks;
    let is_calm = |node| match machine.external.get(&node) {
        None => true,
        Some(external) => machine.matrix.free_on(row, node).without(external).count() >= width,
    };
    let loads = machine.matrix.loads();
    let least_loaded = |good: &dyn Fn(NodeId) -> bool| {
        if !machine.weighs_expected_load(row) {
            return index.least_loaded(loads, width, good);
        }
        let nodes = index.some_least_loaded(loads, width, expected_load::NODES_MAX, good);
        let expected = |node: &NodeId| {
            let set = choose(machine, &spec.class, row, *node, width);
            (machine.expected_load(*node, &spec.class, &set), *node)
        };
        if nodes.len() > 1 {
            nodes.into_iter().min_by_key(expected)
        } else {
            nodes.first().copied()
        }
    };
    let calm =
        (!machine.external.is_empty()).then(|| least_loaded(&|node| is_calm(node) && fits(node)));
    calm.flatten().or_else(|| least_loaded(&fits))
}

/// How many tasks go to which nodes, by node number.
fn counts(
    machine: Machine<'_>,
    (spec, row): (&JobSpec, Option<RowId>),
    index: &Index,
    each: u32,
) -> Result<Vec<(NodeId, u32)>, Lack> {
    let mut left = spec.tasks;
    let mut room = 0u64;
    let mut counts = Vec::new();
    let widest = index.widest(machine.matrix.loads());
    for (free, node) in widest.take_while(|&(free, _)| free >= each) {
        let most = free / each;
        room += u64::from(most);
        let tasks = most.min(machine.room_beside(node, spec, row)).min(left);
        if tasks > 0 {
            if counts.is_empty() {
                // No later one takes more than this one could.
                counts.reserve(left.div_ceil(most) as usize);
            }
            counts.push((node, tasks));
            left -= tasks;
        }
        if left == 0 {
            counts.sort_unstable();
            return Ok(counts);
        }
    }
    Err(if room >= u64::from(spec.tasks) { Lack::Memory } else { Lack::Nodes })
}

/// The least loaded free processors of a node for a job of a class, ties by expected load
/// ([`expected_load`]) and number. External load counts as one row.
pub(crate) fn choose(
    machine: Machine<'_>,
    class: &ClassName,
    row: Option<RowId>,
    node: NodeId,
    count: u32,
) -> ProcessorSet {
    let free = machine.matrix.free_on(row, node);
    if free.count() == count {
        return free;
    }
    let has_external_load = machine.external.contains_key(&node);
    if machine.matrix.row_count() <= usize::from(row.is_some()) && !has_external_load {
        // No other row loads any of them.
        return free.lowest(count);
    }
    let column = machine.matrix.column(node);
    let load = |processor| column.map_or(0, |column| machine.load_of(node, column, processor));
    let mut free: Vec<(usize, u32)> = free.iter().map(|p| (load(p), p)).collect();
    free.sort_unstable();
    if let Some(column) = column.filter(|_| machine.weighs_expected_load(row)) {
        machine.sort_by_expected_load((node, column), class, count as usize, &mut free);
    }
    free.into_iter().take(count as usize).map(|(_, processor)| processor).collect()
}

/// More tasks than the machine has processors: all processors of all nodes, the tasks in blocks in
/// proportion to the nodes' processors (largest remainder, ties by number) as far as memory and
/// devices allow, the rest where they are left. A node that gets no task is not taken up, nor one
/// where the job does not want to be. `room`: for how many tasks each node has both.
pub(crate) fn shared(
    machine: Machine<'_>,
    spec: &JobSpec,
    room: &dyn Fn(NodeId) -> u32,
) -> Result<Vec<Part>, Lack> {
    let columns = machine.columns();
    let columns: Vec<_> =
        columns.filter(|&(node, c)| c.width > 0 && spec.nodes.allows(node)).collect();
    let all: u64 = columns.iter().map(|(_, column)| u64::from(column.width)).sum();
    if all == 0 {
        return Err(Lack::Nodes);
    }
    let tasks = u64::from(spec.tasks);
    let fair = |width: u32| tasks * u64::from(width) / all;
    let remainder = |width: u32| tasks * u64::from(width) % all;
    let mut by_remainder: Vec<usize> = (0..columns.len()).collect();
    by_remainder.sort_by_key(|&i| (u64::MAX - remainder(columns[i].1.width), columns[i].0));
    let odd = tasks - columns.iter().map(|(_, column)| fair(column.width)).sum::<u64>();
    let mut counts: Vec<u64> = columns.iter().map(|(_, column)| fair(column.width)).collect();
    for &i in by_remainder.iter().take(usize::try_from(odd).unwrap_or(usize::MAX)) {
        counts[i] += 1;
    }
    let mut spill = 0;
    let rooms: Vec<u64> = columns.iter().map(|&(node, _)| u64::from(room(node))).collect();
    for (count, &room) in counts.iter_mut().zip(&rooms) {
        spill += count.saturating_sub(room);
        *count = (*count).min(room);
    }
    for (count, room) in counts.iter_mut().zip(rooms) {
        let more = spill.min(room - *count);
        *count += more;
        spill -= more;
    }
    if spill > 0 {
        return Err(Lack::Memory);
    }
    let mut first = 0;
    let part = |(&(node, column), count): (&(NodeId, &crate::matrix::Column), u64)| {
        let tasks = u32::try_from(count).expect("no part has more tasks than the job");
        let part = Part::new(node, column.processors.clone(), first, tasks);
        first += tasks;
        part
    };
    Ok(columns.iter().zip(counts).map(part).filter(|part| part.tasks > 0).collect())
}

/// How many of the job's tasks fit into so much memory.
pub(crate) fn tasks_by_memory(bytes: u64, spec: &JobSpec) -> u32 {
    match spec.memory_per_task_bytes {
        None | Some(0) => u32::MAX,
        Some(each) => u32::try_from(bytes / each).unwrap_or(u32::MAX),
    }
}
