//! Devices of nodes: what each node has, and which job has which.
//!
//! A device is a number of a resource that belongs to one node. A job asks for so many of a name
//! ([`Amount::OnNodes`](tutti_types::resource::Amount::OnNodes)). Placement counts devices as it
//! counts memory: over all rows, since a suspended job keeps what it has. A job gets particular
//! devices when it starts: those near its processors first, then by number. It has them until it
//! ends, while it is preempted, too.
//!
//! A device that is taken from a node stays with the job that has it, and is given to no other.

use crate::controller::Core;
use crate::event::Event;
use crate::state::record::{Part, Residence};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};
use tutti_types::device::{Device, DeviceId};
use tutti_types::ids::{JobId, NodeId, ProcessorSet};
use tutti_types::job::JobSpec;
use tutti_types::limits::DEVICES_PER_NODE_MAX;
use tutti_types::resource::{DeviceWish, ResourceName};

/// The devices of all nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Devices {
    nodes: BTreeMap<NodeId, OfNode>,
}

/// Those of one node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct OfNode {
    /// What its agent found.
    found: BTreeMap<DeviceId, Device>,
    /// What an administrator named; `None`: there is to be none, whatever was found.
    named: BTreeMap<DeviceId, Option<Device>>,
    /// The job that has each device.
    users: BTreeMap<DeviceId, JobId>,
}

/// A device as an administrator sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceView<'a> {
    /// What it is.
    pub device: &'a Device,
    /// Whether an administrator named it; otherwise the node's agent found it.
    pub is_named: bool,
    /// The job that has it.
    pub user: Option<JobId>,
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
            let user = self.users.get(&device.id).copied();
            DeviceView { device, is_named, user }
        })
    }

    /// How many devices of a name a job can get; `own`: with those that this job has.
    fn free(&self, name: ResourceName, own: Option<JobId>) -> u32 {
        let is_free = |it: &DeviceView<'_>| {
            it.device.id.name == name && (it.user.is_none() || it.user == own)
        };
        u32::try_from(self.devices().filter(is_free).count()).unwrap_or(u32::MAX)
    }

    /// The free devices for a wish: those near the processors first.
    fn choose(&self, name: ResourceName, count: u32, near: &ProcessorSet) -> Vec<DeviceId> {
        let free = self.devices().filter(|it| it.user.is_none() && it.device.id.name == name);
        let shared = |device: &Device| {
            device.near.iter().filter(|&processor| near.contains(processor)).count()
        };
        let mut free: Vec<_> =
            free.map(|it| (usize::MAX - shared(it.device), it.device.id)).collect();
        free.sort_unstable();
        free.into_iter().take(count as usize).map(|(_, id)| id).collect()
    }
}

impl Devices {
    /// The devices of a node that jobs can get, by name and number.
    pub fn on(&self, node: NodeId) -> impl Iterator<Item = DeviceView<'_>> {
        self.nodes.get(&node).into_iter().flat_map(OfNode::devices)
    }

    /// What the agent of a node found, by name and number, whatever an administrator says of it.
    pub fn found_on(&self, node: NodeId) -> impl Iterator<Item = &Device> {
        self.nodes.get(&node).into_iter().flat_map(|of_node| of_node.found.values())
    }

    /// What the agent of a node found; of too many, the first.
    fn set_found(&mut self, node: NodeId, devices: &[Device]) {
        let proper = devices.iter().filter(|device| device.is_proper()).take(DEVICES_PER_NODE_MAX);
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

    /// How many tasks of a job the free devices of a node suffice for; `own`: with those that this
    /// job has there.
    pub(crate) fn tasks(&self, node: NodeId, spec: &JobSpec, own: Option<JobId>) -> u32 {
        self.least(node, spec, |of_node, name| of_node.free(name, own))
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

    /// Gives a job the devices that a part of it needs, as far as they are free.
    fn assign(&mut self, (job, spec): (JobId, &JobSpec), part: &Part) {
        let Some(of_node) = self.nodes.get_mut(&part.node) else { return };
        for wish in spec.devices() {
            let count = wish.needed(part.tasks, spec.tasks);
            for id in of_node.choose(wish.name, count, &part.processors) {
                of_node.users.insert(id, job);
            }
        }
    }

    /// Takes back what a job has on a node.
    fn release(&mut self, node: NodeId, job: JobId) {
        if self.nodes.contains_key(&node) {
            self.change(node, |of_node| of_node.users.retain(|_, user| *user != job));
        }
    }

    /// A node is lost, with all that was on it.
    pub(crate) fn lose(&mut self, node: NodeId) {
        if self.nodes.contains_key(&node) {
            self.change(node, |of_node| of_node.users.clear());
        }
    }

    /// A node is none any more.
    pub(crate) fn remove(&mut self, node: NodeId) {
        self.nodes.remove(&node);
    }

    /// What jobs have, by node: device and job.
    pub(crate) fn users(&self) -> impl Iterator<Item = (NodeId, DeviceId, JobId)> + '_ {
        let of_node = |(&node, of_node): (&NodeId, &OfNode)| {
            let users: Vec<_> = of_node.users.iter().map(|(&id, &job)| (node, id, job)).collect();
            users
        };
        self.nodes.iter().flat_map(of_node)
    }

    /// The devices that a job has on a node, also those that the node has no more.
    fn of(&self, node: NodeId, job: JobId) -> Vec<DeviceId> {
        let users = self.nodes.get(&node).into_iter().flat_map(|of_node| &of_node.users);
        users.filter(|&(_, &user)| user == job).map(|(&id, _)| id).collect()
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
        self.queue.unpark();
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
        for part in residence.parts.iter().filter(|part| !part.lost) {
            self.devices.assign((job, &record.spec), part);
        }
    }

    /// A part of a job that was lost begins again on a node: it gets devices there.
    pub(crate) fn assign_devices_on(&mut self, job: JobId, node: NodeId) {
        let Some(record) = self.jobs.get(&job) else { return };
        if let Some(part) = record.residence().and_then(|residence| residence.part(node)) {
            self.devices.assign((job, &record.spec), part);
        }
    }

    /// A job has ended, or gets others: its devices are free.
    pub(crate) fn release_devices(&mut self, (job, spec): (JobId, &JobSpec), parts: &[Part]) {
        if spec.devices().next().is_some() {
            for part in parts {
                self.devices.release(part.node, job);
            }
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
}
