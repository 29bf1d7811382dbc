//! Devices of nodes: what each node has, and which job has which.
//!
//! A device is a number of a resource that belongs to one node; with files, or only counted. A job
//! asks for so many of a name ([`Amount::OnNodes`]). Placement counts devices as it counts memory:
//! over all rows, since a suspended job keeps what it has. A job gets particular devices when it
//! starts: those near its processors first, then by number. It has them until it ends, while it is
//! preempted, too.
//!
//! Jobs that give up their devices before they lose a turn (`--vacate`), or all that the parameter
//! `share_devices` permits, may have a device *in turns*. Then:
//!
//! - Their homes are in different rows, and the matrix never has two of them in one slot
//!   ([`Matrix::kept_apart`]).
//! - A device that no job has comes before one that others have, the one of the fewest jobs first.
//! - A preempted job has no row, so its devices are given to no other.
//! - Under policies that preempt by themselves (`classes`, `deadline`) no further job gets a device
//!   that another has. Those that had one in turns before still have it.
//!
//! A device that is taken from a node stays with the job that has it, and is given to no other.

use crate::apply::Core;
use crate::event::Event;
use crate::matrix::Matrix;
use crate::policy::Machine;
use crate::state::record::{Part, Residence};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};
use tutti_types::device::{Device, DeviceId};
use tutti_types::ids::{JobId, NodeId, ProcessorSet, RowId};
use tutti_types::job::{ControlMethod, JobSpec};
use tutti_types::limits::DEVICES_PER_NODE_MAX;
use tutti_types::params::ShareDevices;
use tutti_types::resource::{Amount, DeviceWish, ResourceName};

/// The devices of all nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Devices {
    nodes: BTreeMap<NodeId, OfNode>,
    /// The jobs that may have their devices in turns, and whether each vacates.
    in_turns: BTreeMap<JobId, bool>,
}

/// Those of one node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct OfNode {
    /// What its agent found.
    found: BTreeMap<DeviceId, Device>,
    /// What an administrator named; `None`: there is to be none, whatever was found.
    named: BTreeMap<DeviceId, Option<Device>>,
    /// The jobs that have each device, by number; several have it in turns.
    users: BTreeMap<DeviceId, Vec<JobId>>,
}

/// For which job devices are looked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asker<'a> {
    /// The job, if it may have devices already.
    own: Option<JobId>,
    /// How it could have devices in turns with others, if it may.
    turns: Option<Turns<'a>>,
}

/// Where a job would have its turns.
#[derive(Clone, Copy, Debug)]
struct Turns<'a> {
    matrix: &'a Matrix,
    /// The row of its home; `None`: a new one.
    row: Option<RowId>,
    /// Whether others must vacate.
    vacating: bool,
}

impl Asker<'_> {
    /// One that has no device in turns with others.
    pub(crate) const fn alone(own: Option<JobId>) -> Self {
        Self { own, turns: None }
    }
}

impl<'a> Machine<'a> {
    /// Whether a job could have devices in turns with others, and whether it vacates.
    fn in_turns(self, spec: &JobSpec) -> Option<bool> {
        let class = self.classes.get(&spec.class);
        if class.is_some_and(|class| class.control() == ControlMethod::Priority) {
            // It goes on beside others.
            return None;
        }
        let vacates = spec.devices().next()?.vacates;
        match self.params.share_devices() {
            ShareDevices::Vacate => vacates.then_some(true),
            ShareDevices::All => Some(vacates),
            ShareDevices::Never => None,
        }
    }

    /// A job that would begin in a row (`None`: a new one).
    pub(crate) fn asker(self, spec: &JobSpec, row: Option<RowId>) -> Asker<'a> {
        let preempts = crate::policy::of(self.params).sets_aside();
        let may = !preempts && self.in_turns(spec).is_some();
        let vacating = self.params.share_devices() == ShareDevices::Vacate;
        let turns = may.then_some(Turns { matrix: self.matrix, row, vacating });
        Asker { own: None, turns }
    }
}

/// Notes in what a job asks for that it gives up its devices before it loses a turn, or not.
pub(crate) fn note_vacating(spec: &mut JobSpec, gives_up: bool) {
    for wish in &mut spec.resources {
        if let Amount::OnNodes { vacates, .. } = &mut wish.amount {
            *vacates = gives_up;
        }
    }
}

/// A device as an administrator sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceView<'a> {
    /// What it is.
    pub device: &'a Device,
    /// Whether an administrator named it; otherwise the node's agent found it.
    pub is_named: bool,
    /// The jobs that have it, by number. Several have it in turns.
    pub users: &'a [JobId],
}

impl OfNode {
    /// The devices that jobs can get, by name and number.
    fn devices(&self) -> impl Iterator<Item = DeviceView<'_>> {
        // A file is of one device: of the one that an administrator named.
        let is_named = |file| self.named.values().flatten().any(|it| it.files.contains(file));
        let found = self.found.iter().filter(|(id, device)| {
            !self.named.contains_key(id) && !device.files.iter().any(is_named)
        });
        let found = found.map(|(_, device)| (device, false));
        let named = self.named.values().flatten().map(|device| (device, true));
        let mut all: Vec<(&Device, bool)> = found.chain(named).collect();
        all.sort_by_key(|(device, _)| device.id);
        all.into_iter().map(|(device, is_named)| {
            let users = self.users.get(&device.id).map_or(&[][..], Vec::as_slice);
            DeviceView { device, is_named, users }
        })
    }

    /// How many devices of a name a job can get.
    fn free(&self, name: ResourceName, is_free: impl Fn(&[JobId]) -> bool) -> u32 {
        let free = self.devices().filter(|it| it.device.id.name == name && is_free(it.users));
        u32::try_from(free.count()).unwrap_or(u32::MAX)
    }

    /// The devices for a wish: those of the fewest jobs first, of these those near the processors.
    fn choose(
        &self,
        wish: (ResourceName, u32),
        near: &ProcessorSet,
        is_free: impl Fn(&[JobId]) -> bool,
    ) -> Vec<DeviceId> {
        let (name, count) = wish;
        let free = self.devices().filter(|it| it.device.id.name == name && is_free(it.users));
        let shared = |device: &Device| {
            device.near.iter().filter(|&processor| near.contains(processor)).count()
        };
        let rank =
            |it: DeviceView<'_>| (it.users.len(), usize::MAX - shared(it.device), it.device.id);
        let mut free: Vec<_> = free.map(rank).collect();
        free.sort_unstable();
        free.into_iter().take(count as usize).map(|(.., id)| id).collect()
    }

    /// A job has a device no more.
    fn take_from(&mut self, job: JobId) {
        self.users.retain(|_, users| {
            users.retain(|&user| user != job);
            !users.is_empty()
        });
    }
}

impl Devices {
    /// The devices of a node that jobs can get, by name and number.
    pub fn on(&self, node: NodeId) -> impl Iterator<Item = DeviceView<'_>> {
        self.nodes.get(&node).into_iter().flat_map(OfNode::devices)
    }

    /// Whether any node has a device of a name.
    #[must_use]
    pub fn has(&self, name: ResourceName) -> bool {
        self.nodes.values().any(|of_node| of_node.devices().any(|it| it.device.id.name == name))
    }

    /// Whether any node has a resource of a name that is only counted.
    #[must_use]
    pub fn has_counted(&self, name: ResourceName) -> bool {
        let is_it = |device: &Device| device.is_counted() && device.id.name == name;
        self.nodes.values().any(|of_node| of_node.devices().any(|it| is_it(it.device)))
    }

    /// What the agent of a node found, by name and number, whatever an administrator says of it.
    pub fn found_on(&self, node: NodeId) -> impl Iterator<Item = &Device> {
        self.nodes.get(&node).into_iter().flat_map(|of_node| of_node.found.values())
    }

    /// What the agent of a node found; of too many, the first.
    fn set_found(&mut self, node: NodeId, devices: &[Device]) {
        let proper = devices.iter().filter(|device| device.is_proper() && !device.is_counted());
        let proper = proper.take(DEVICES_PER_NODE_MAX);
        let found: BTreeMap<_, _> = proper.map(|device| (device.id, device.clone())).collect();
        self.change(node, |of_node| of_node.found = found);
    }

    /// What an administrator says of a device; `None`: there is to be none.
    fn set_named(&mut self, node: NodeId, id: DeviceId, device: Option<Device>) {
        self.change(node, |of_node| match device {
            Some(device) if device.id == id && device.is_proper() => {
                if of_node.named.len() < DEVICES_PER_NODE_MAX || of_node.named.contains_key(&id) {
                    of_node.named.insert(id, Some(device));
                }
            }
            Some(_) => {}
            None if of_node.found.contains_key(&id) => drop(of_node.named.insert(id, None)),
            None => drop(of_node.named.remove(&id)),
        });
    }

    /// Changes what is kept of a node, and keeps nothing that says nothing.
    fn change(&mut self, node: NodeId, change: impl FnOnce(&mut OfNode)) {
        let of_node = self.nodes.entry(node).or_default();
        change(of_node);
        if *of_node == OfNode::default() {
            self.nodes.remove(&node);
        }
    }

    /// How many tasks of a job the devices suffice for that it can get on a node.
    pub(crate) fn tasks(&self, node: NodeId, spec: &JobSpec, asker: Asker<'_>) -> u32 {
        self.least(node, spec, |of_node, name| {
            of_node.free(name, |users| self.is_free(users, asker))
        })
    }

    /// Whether a job can get a device that these jobs have.
    fn is_free(&self, users: &[JobId], asker: Asker<'_>) -> bool {
        users.iter().all(|&user| {
            asker.own == Some(user)
                || asker.turns.is_some_and(|turns| self.gives_turns(user, turns))
        })
    }

    /// Whether a job that has a device gives turns to one that would be in a row.
    fn gives_turns(&self, user: JobId, turns: Turns<'_>) -> bool {
        let may = self.in_turns.get(&user).is_some_and(|&vacates| vacates || !turns.vacating);
        may && turns.matrix.seat(user).is_some_and(|seat| Some(seat.row) != turns.row)
    }

    /// Whether a job may have its devices in turns with others, also ones that come later.
    #[must_use]
    pub fn are_in_turns(&self, job: JobId) -> bool {
        self.in_turns.contains_key(&job)
    }

    /// The jobs that have a device of these nodes in turns with a job.
    fn others(&self, job: JobId, nodes: impl Iterator<Item = NodeId>) -> BTreeSet<JobId> {
        let mut others = BTreeSet::new();
        for of_node in nodes.filter_map(|node| self.nodes.get(&node)) {
            for users in of_node.users.values().filter(|users| users.contains(&job)) {
                others.extend(users.iter().copied().filter(|&other| other != job));
            }
        }
        others
    }

    /// The same of all devices of the node.
    pub(crate) fn tasks_if_alone(&self, node: NodeId, spec: &JobSpec) -> u32 {
        self.least(node, spec, |of_node, name| {
            let count = of_node.devices().filter(|it| it.device.id.name == name).count();
            u32::try_from(count).unwrap_or(u32::MAX)
        })
    }

    fn least(
        &self,
        node: NodeId,
        spec: &JobSpec,
        count: impl Fn(&OfNode, ResourceName) -> u32,
    ) -> u32 {
        let of_node = self.nodes.get(&node);
        let tasks = spec.devices().map(|wish| {
            let devices = of_node.map_or(0, |of_node| count(of_node, wish.name));
            wish.tasks(devices, spec.tasks)
        });
        tasks.min().unwrap_or(u32::MAX)
    }

    /// Gives a job the devices that a part of it needs, as far as it can get them.
    fn assign(&mut self, (job, spec): (JobId, &JobSpec), part: &Part, asker: Asker<'_>) {
        for wish in spec.devices() {
            let Some(of_node) = self.nodes.get(&part.node) else { return };
            let wish = (wish.name, wish.needed(part.tasks, spec.tasks));
            let chosen = of_node.choose(wish, &part.processors, |users| self.is_free(users, asker));
            let Some(of_node) = self.nodes.get_mut(&part.node) else { return };
            for id in chosen {
                let users = of_node.users.entry(id).or_default();
                let place = users.partition_point(|&user| user < job);
                users.insert(place, job);
            }
        }
    }

    /// Takes back what a job has on a node.
    fn release(&mut self, node: NodeId, job: JobId) {
        if self.nodes.contains_key(&node) {
            self.change(node, |of_node| of_node.take_from(job));
        }
    }

    /// A node is lost, with all that was on it. Gives the jobs that had devices there in turns.
    fn lose(&mut self, node: NodeId) -> BTreeSet<JobId> {
        let Some(of_node) = self.nodes.get(&node) else { return BTreeSet::new() };
        let shared = of_node.users.values().filter(|users| users.len() > 1);
        let shared = shared.flatten().copied().collect();
        self.change(node, |of_node| of_node.users.clear());
        shared
    }

    /// A node is none any more.
    pub(crate) fn remove(&mut self, node: NodeId) {
        self.nodes.remove(&node);
    }

    /// What jobs have, by node: device and job.
    pub(crate) fn users(&self) -> impl Iterator<Item = (NodeId, DeviceId, JobId)> + '_ {
        self.nodes.iter().flat_map(|(&node, of_node)| {
            let users = of_node.users.iter();
            users.flat_map(move |(&id, jobs)| jobs.iter().map(move |&job| (node, id, job)))
        })
    }

    /// The devices that a job has on a node, also those that the node has no more.
    fn of(&self, node: NodeId, job: JobId) -> Vec<DeviceId> {
        let users = self.nodes.get(&node).into_iter().flat_map(|of_node| &of_node.users);
        users.filter(|(_, users)| users.contains(&job)).map(|(&id, _)| id).collect()
    }
}

/// Devices that a part of a job needs, of each wish.
pub(crate) fn needed<'a>(
    spec: &'a JobSpec,
    part: &'a Part,
) -> impl Iterator<Item = (ResourceName, u32)> + 'a {
    let needed = |wish: DeviceWish| (wish.name, wish.needed(part.tasks, spec.tasks));
    spec.devices().map(needed)
}

impl Core {
    /// The devices of all nodes.
    #[must_use]
    pub const fn devices(&self) -> &Devices {
        &self.devices
    }

    /// The devices that a job has on a node.
    #[must_use]
    pub fn devices_of(&self, job: JobId, node: NodeId) -> Vec<DeviceId> {
        match self.jobs.get(&job) {
            Some(record) if record.spec.devices().next().is_some() => self.devices.of(node, job),
            Some(_) | None => Vec::new(),
        }
    }

    /// The jobs that have a device in turns with a job, by number.
    #[must_use]
    pub fn shares_devices_with(&self, job: JobId) -> Vec<JobId> {
        self.matrix.kept_apart(job).collect()
    }

    /// Devices of a node are others.
    pub(crate) fn on_device_event(&mut self, event: &Event) {
        if let Event::DevicesFound { node, devices } = event {
            self.on_devices_found(*node, devices);
        } else if let Event::SetDevice { node, id, device } = event {
            self.set_device(*node, *id, device.as_ref());
        }
    }

    fn on_devices_found(&mut self, node: NodeId, devices: &[Device]) {
        self.devices.set_found(node, devices);
        self.after_devices_changed();
    }

    fn set_device(&mut self, node: NodeId, id: DeviceId, device: Option<&Device>) {
        if self.nodes.get(node).is_some() {
            self.devices.set_named(node, id, device.cloned());
            self.after_devices_changed();
        }
    }

    /// Jobs may fit that did not, or the other way round.
    fn after_devices_changed(&mut self) {
        self.unpark();
        self.queue.reconsider();
        self.forget_promises();
    }

    /// Gives a job that was placed its devices.
    pub(crate) fn assign_devices(&mut self, job: JobId) {
        let Some(record) = self.jobs.get(&job) else { return };
        if record.spec.devices().next().is_none() {
            return;
        }
        let Some(residence) = record.residence() else { return };
        // Taken out, since what is looked at of the matrix is a part of the same core.
        let mut devices = core::mem::take(&mut self.devices);
        let machine = self.machine();
        let asker = match self.matrix.seat(job) {
            Some(seat) => machine.asker(&record.spec, Some(seat.row)),
            // Without a row it could come to where another of them is.
            None => Asker::alone(None),
        };
        if let Some(vacates) = machine.in_turns(&record.spec) {
            devices.in_turns.insert(job, vacates);
        }
        for part in residence.parts.iter().filter(|part| !part.lost) {
            devices.assign((job, &record.spec), part, asker);
        }
        self.devices = devices;
        self.follow_turns(job);
    }

    /// The matrix knows with which jobs a job has devices in turns.
    fn follow_turns(&mut self, job: JobId) {
        let parts = self.residence(job).map_or(&[][..], |residence| &residence.parts);
        let others = self.devices.others(job, parts.iter().map(|part| part.node));
        self.matrix.keep_apart(job, &others);
    }

    /// A node is lost, with the devices that jobs had there.
    pub(crate) fn lose_devices(&mut self, node: NodeId) {
        for job in self.devices.lose(node) {
            self.follow_turns(job);
        }
    }

    /// A part of a job that was lost begins again on a node: it gets devices there.
    pub(crate) fn assign_devices_on(&mut self, job: JobId, node: NodeId) {
        let Some(record) = self.jobs.get(&job) else { return };
        if let Some(part) = record.residence().and_then(|residence| residence.part(node)) {
            self.devices.assign((job, &record.spec), part, Asker::alone(None));
        }
    }

    /// A job has ended, or gets others: its devices are free.
    pub(crate) fn release_devices(&mut self, (job, spec): (JobId, &JobSpec), parts: &[Part]) {
        if spec.devices().next().is_some() {
            for part in parts {
                self.devices.release(part.node, job);
            }
            self.devices.in_turns.remove(&job);
            self.matrix.keep_apart(job, &BTreeSet::new());
        }
    }

    /// A device that a job has and does not need, or the other way round; for the invariants.
    pub(crate) fn wrong_devices(&self) -> Option<alloc::string::String> {
        let mut counted: BTreeMap<(NodeId, JobId, ResourceName), u32> = BTreeMap::new();
        for (node, id, job) in self.devices.users() {
            *counted.entry((node, job, id.name)).or_default() += 1;
        }
        let mut asked = BTreeMap::new();
        for (job, record) in self.jobs.iter() {
            let parts = record.residence().map_or(&[][..], |it: &Residence| &it.parts);
            for part in parts.iter().filter(|part| !part.lost) {
                for (name, count) in needed(&record.spec, part).filter(|(_, count)| *count > 0) {
                    asked.insert((part.node, job, name), count);
                }
            }
        }
        (counted != asked).then(|| alloc::format!("jobs have {counted:?}, and need {asked:?}"))
    }

    /// Jobs that have a device together and may not; for the invariants.
    pub(crate) fn wrong_turns(&self) -> Option<alloc::string::String> {
        let mut apart: BTreeMap<JobId, BTreeSet<JobId>> = BTreeMap::new();
        for (&node, of_node) in &self.devices.nodes {
            for (id, users) in of_node.users.iter().filter(|(_, users)| users.len() > 1) {
                if let Some(job) = users.iter().find(|&&job| !self.devices.are_in_turns(job)) {
                    return Some(alloc::format!("{id} of {node} is not job {job}'s alone"));
                }
                for &job in users {
                    let others = users.iter().copied().filter(|&other| other != job);
                    apart.entry(job).or_default().extend(others);
                }
            }
        }
        let is_known = |&job: &JobId| self.jobs.contains_key(&job);
        if !self.devices.in_turns.keys().all(is_known) {
            return Some("jobs that have ended have devices in turns".into());
        }
        (apart != *self.matrix.all_kept_apart()).then(|| {
            let known = self.matrix.all_kept_apart();
            alloc::format!("jobs have devices in turns: {apart:?}; the matrix knows {known:?}")
        })
    }
}
