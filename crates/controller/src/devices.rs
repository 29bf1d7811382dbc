//! Devices of nodes: what agents find, what administrators name, and what a launch says of them.

use super::driver::Driver;
use super::error::Problem;
use super::report;
use super::upgrade::failure;
use std::collections::{BTreeMap, BTreeSet};
use tutti_core::Event;
use tutti_types::limits::DEVICES_PER_NODE_MAX;
use tutti_types::{Device, DeviceId, JobId, NodeId};
use tutti_wire::local::Reply;
use tutti_wire::report::DeviceReport;
use tutti_wire::tree::{Answer, Question};

/// What an administrator wants to be otherwise.
struct Asked {
    node: NodeId,
    removed: Vec<DeviceId>,
    named: Vec<Device>,
}

impl Driver {
    /// What an agent found is as it was before, or new.
    pub(super) fn note_devices(&mut self, node: NodeId, devices: Vec<Device>) {
        if !self.core.devices().found_on(node).eq(&devices) {
            self.apply(&Event::DevicesFound { node, devices });
        }
    }

    pub(super) fn on_set_devices(
        &mut self,
        token: u64,
        uid: u32,
        node: &str,
        settings: &[(String, String)],
    ) {
        let asked = self.admin(uid).map_err(Problem::from);
        let asked = asked.and_then(|()| self.devices_asked(node, settings));
        let Asked { node, removed, named } = match asked {
            Ok(asked) => asked,
            Err(problem) => return self.fail(token, problem),
        };
        if named.is_empty() {
            for id in removed {
                self.apply(&Event::SetDevice { node, id, device: None });
            }
            return self.reply_nodes(token);
        }
        let is_kept = |id: &DeviceId| !named.iter().any(|device| device.id == *id);
        let others = self.core.devices().on(node).map(|it| it.device);
        let others = others.filter(|device| is_kept(&device.id)).cloned().collect();
        self.ask(token, &[node], &Question::Devices { devices: named, others });
    }

    /// What settings say, in part unchecked: only the node knows its files.
    fn devices_asked(&self, node: &str, settings: &[(String, String)]) -> Result<Asked, Problem> {
        let nodes = self.named(node)?;
        let (Some(&node), 1) = (nodes.first(), nodes.len()) else {
            return Err(format!("name one node; {node} has {}", nodes.len()).into());
        };
        let (mut removed, mut named) = (Vec::new(), Vec::new());
        let devices = || self.core.devices().on(node).map(|it| it.device);
        let counted = devices().filter(|device| device.is_counted()).count();
        let known: BTreeSet<DeviceId> =
            devices().filter(|device| !device.is_counted()).map(|device| device.id).collect();
        let mut seen = BTreeSet::new();
        for (id, files) in settings {
            let id: DeviceId = id.parse().map_err(wrong)?;
            if !seen.insert(id) {
                return Err(format!("{id} is set twice; set it once").into());
            }
            match files.as_str() {
                "none" if !known.contains(&id) => {
                    let name = self.node_name(node);
                    return Err(format!("node {name} has no device {id}").into());
                }
                "none" => removed.push(id),
                files => named.push(Device::named(id, files).map_err(wrong)?),
            }
            if devices().any(|device| device.is_counted() && device.id.name == id.name) {
                let (node, name) = (self.node_name(node), id.name);
                return Err(format!(
                    "node {node} counts {name} as a resource; take that away first: tutti nodes \
                     resource {node} {name}=none"
                )
                .into());
            }
        }
        if !removed.is_empty() && !named.is_empty() {
            return Err("take devices away (none) and name others in two commands"
                .to_owned()
                .into());
        }
        let new = named.iter().filter(|device| !known.contains(&device.id)).count();
        if counted + known.len() + new > DEVICES_PER_NODE_MAX {
            return Err(format!("a node can have at most {DEVICES_PER_NODE_MAX} devices").into());
        }
        Ok(Asked { node, removed, named })
    }

    /// A node has looked at the files that an administrator names.
    pub(super) fn name_devices(
        &mut self,
        question: &Question,
        answers: Vec<(NodeId, Answer)>,
    ) -> Reply {
        let Question::Devices { devices: asked, .. } = question else { return Reply::Done };
        let (node, found) = match answers.into_iter().next() {
            Some((node, Answer::Devices(found))) => (node, found),
            Some((_, Answer::Failed(reason))) => return failure(question, reason).failed(),
            _ => return failure(question, "the node did not answer".into()).failed(),
        };
        let fits = |a: &Device, it: &Device| a.files == it.files || a.cdi().is_some();
        let is_asked = |it: &Device| {
            it.is_proper() && !it.is_counted() && asked.iter().any(|a| a.id == it.id && fits(a, it))
        };
        for device in found.into_iter().filter(is_asked) {
            self.apply(&Event::SetDevice { node, id: device.id, device: Some(device) });
        }
        report::nodes(self, &BTreeMap::new(), NodeId(0))
    }

    /// The devices that a job has on a node.
    pub(super) fn devices_of(&self, job: JobId, node: NodeId) -> Vec<Device> {
        let ids = self.core.devices_of(job, node);
        if ids.is_empty() {
            return Vec::new();
        }
        let all = self.core.devices().on(node).map(|it| it.device);
        all.filter(|device| ids.contains(&device.id)).cloned().collect()
    }

    /// The files of the devices of a node that a job does not have.
    pub(super) fn files_closed_to(&self, job: JobId, node: NodeId) -> Vec<String> {
        let others = self.core.devices().on(node).filter(|it| !it.users.contains(&job));
        others.flat_map(|it| &it.device.files).cloned().collect()
    }

    pub(super) fn device_reports(&self, node: NodeId) -> Vec<DeviceReport> {
        let report = |it: tutti_core::DeviceView<'_>| DeviceReport {
            device: it.device.id.to_string(),
            files: it.device.files.clone(),
            maker: it.device.maker,
            pci_address: it.device.pci.clone(),
            numa_node: it.device.numa,
            origin: if it.is_named { "named" } else { "found" }.into(),
            jobs: it.users.to_vec(),
        };
        self.core.devices().on(node).map(report).collect()
    }

    /// The devices of a name that a job has, by node: `gpu=0,1`, or `gpu=0,1@a` on each of several
    /// nodes.
    pub(super) fn devices_shown(
        &self,
        job: JobId,
        nodes: &[NodeId],
        name: tutti_types::ResourceName,
    ) -> Vec<String> {
        let on = |&node: &NodeId| {
            let ids = self.core.devices_of(job, node).into_iter().filter(|id| id.name == name);
            let numbers: Vec<String> = ids.map(|id| id.number.to_string()).collect();
            let at =
                if nodes.len() > 1 { format!("@{}", self.node_name(node)) } else { String::new() };
            (!numbers.is_empty()).then(|| format!("{name}={}{at}", numbers.join(",")))
        };
        nodes.iter().filter_map(on).collect()
    }
}

fn wrong(error: tutti_types::DeviceError) -> Problem {
    error.to_string().into()
}
