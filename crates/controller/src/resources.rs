//! `tutti resource` and `tutti nodes resource`: how many of each counted resource there are, in the
//! cluster and on each node.

use super::driver::Driver;
use super::error::Problem;
use std::collections::BTreeMap;
use tutti_core::{Event, JobState};
use tutti_types::limits::{DEVICES_PER_NODE_MAX, RESOURCE_COUNT_MAX, RESOURCES_MAX};
use tutti_types::{Device, DeviceId, NodeId, ResourceName, ResourceSpec, ResourceWish};
use tutti_wire::local::Reply;
use tutti_wire::report::ResourceReport;

impl Driver {
    pub(super) fn reply_resources(&mut self, token: u64) {
        let now = self.now();
        let mut reports: Vec<(ResourceName, ResourceReport)> = Vec::new();
        for view in self.core.resources() {
            let ResourceSpec { count, jobs_each, lent } = view.spec;
            let resource = view.name.to_string();
            let (in_use, jobs, queued) = (view.in_use, 0, 0);
            let report = ResourceReport { resource, count, in_use, jobs_each, lent, jobs, queued };
            reports.push((view.name, report));
        }
        for view in self.core.jobs(now).filter(|view| !view.spec.resources.is_empty()) {
            let waits = matches!(view.state, JobState::Queued { .. });
            for (name, report) in &mut reports {
                let asks = view.spec.resources.iter().any(|wish| wish.name == *name);
                let has = view.resources.iter().any(|grant| grant.name == *name);
                report.queued += u32::from(waits && asks);
                report.jobs += u32::from(has);
            }
        }
        let reports = reports.into_iter().map(|(_, report)| report).collect();
        self.reply(token, &Reply::Resources(reports));
    }

    pub(super) fn on_set_resources(
        &mut self,
        token: u64,
        uid: u32,
        settings: &[(String, String)],
        (jobs_each, lent): (u32, bool),
    ) {
        let orders = self.admin(uid).map_err(Problem::from).and_then(|()| {
            let order = |(name, count): &(String, String)| order(name, count, (jobs_each, lent));
            let orders = settings.iter().map(order).collect::<Result<Vec<_>, String>>()?;
            self.check_number(&orders)?;
            self.check_names(&orders)?;
            Ok(orders)
        });
        match orders {
            Ok(orders) => {
                for (name, spec) in orders {
                    self.apply(&Event::SetResource { name, spec });
                }
                self.reply_resources(token);
            }
            Err(problem) => self.fail(token, problem),
        }
    }

    /// What a job asks for: of a resource that only nodes have, it asks these.
    pub(super) fn wishes(&self, asked: Vec<ResourceWish>) -> Vec<ResourceWish> {
        let of_cluster = |name| self.core.resources().any(|view| view.name == name);
        let of_nodes = |name| self.core.devices().has(name);
        let wish = |wish: ResourceWish| match !of_cluster(wish.name) && of_nodes(wish.name) {
            true => wish.of_nodes(),
            false => wish,
        };
        asked.into_iter().map(wish).collect()
    }

    pub(super) fn on_set_node_resources(
        &mut self,
        token: u64,
        uid: u32,
        nodes: &str,
        settings: &[(String, String)],
    ) {
        let asked = self.admin(uid).map_err(Problem::from);
        match asked.and_then(|()| self.resources_asked(nodes, settings)) {
            Ok(orders) => {
                for (node, id, device) in orders {
                    self.apply(&Event::SetDevice { node, id, device });
                }
                self.reply_nodes(token);
            }
            Err(problem) => self.fail(token, problem),
        }
    }

    /// Which numbers of resources nodes are to have, and which they are to have no more.
    fn resources_asked(
        &self,
        nodes: &str,
        settings: &[(String, String)],
    ) -> Result<Vec<(NodeId, DeviceId, Option<Device>)>, Problem> {
        let nodes = self.named(nodes)?;
        let mut counts = BTreeMap::new();
        for (name, count) in settings {
            let (name, spec) = order(name, count, (1, false))?;
            if counts.insert(name, spec.count).is_some() {
                return Err(format!("{name} is set twice; set it once").into());
            }
            if self.core.resources().any(|view| view.name == name) {
                return Err(format!(
                    "{name} is a resource of the whole cluster; give what nodes have another name"
                )
                .into());
            }
        }
        let mut orders = Vec::new();
        for node in nodes {
            let mut left: usize = 0;
            for device in self.core.devices().on(node).map(|it| it.device) {
                let DeviceId { name, number } = device.id;
                match counts.get(&name) {
                    None => left += 1,
                    Some(_) if !device.is_counted() => {
                        let node = self.node_name(node);
                        return Err(format!(
                            "node {node} has devices {name}; `tutti nodes device` names these"
                        )
                        .into());
                    }
                    Some(&count) if number >= count => orders.push((node, device.id, None)),
                    Some(_) => {}
                }
            }
            let asked = counts.values().map(|&count| count as usize);
            if asked.fold(left, usize::saturating_add) > DEVICES_PER_NODE_MAX {
                return Err(format!(
                    "a node can have at most {DEVICES_PER_NODE_MAX} of all its resources and \
                     devices together"
                )
                .into());
            }
            for (&name, &count) in &counts {
                let ids = (0..count).map(|number| DeviceId { name, number });
                orders.extend(ids.map(|id| (node, id, Some(Device::counted(id)))));
            }
        }
        Ok(orders)
    }

    /// A name stands for a resource of the cluster, or for one of nodes.
    fn check_names(&self, orders: &[(ResourceName, ResourceSpec)]) -> Result<(), String> {
        let is_new = |name| !self.core.resources().any(|view| view.name == name);
        let taken = |&&(name, spec): &&(ResourceName, ResourceSpec)| {
            spec.count > 0 && is_new(name) && self.core.devices().has_counted(name)
        };
        match orders.iter().find(taken) {
            Some((name, _)) => Err(format!(
                "{name} is a resource of nodes (`tutti nodes resource`); give what the cluster has \
                 another name"
            )),
            None => Ok(()),
        }
    }

    /// There may be so many resources.
    fn check_number(&self, orders: &[(ResourceName, ResourceSpec)]) -> Result<(), String> {
        let known = |name: &ResourceName| self.core.resources().any(|view| view.name == *name);
        let new = orders.iter().filter(|(name, spec)| spec.count > 0 && !known(name)).count();
        match self.core.resources().count() + new > RESOURCES_MAX {
            true => Err(format!(
                "there can be at most {RESOURCES_MAX} resources; remove one with NAME=none first"
            )),
            false => Ok(()),
        }
    }
}

/// What a setting asks for: a resource, and how many of it there are to be.
pub(super) fn order(
    name: &str,
    count: &str,
    (jobs_each, lent): (u32, bool),
) -> Result<(ResourceName, ResourceSpec), String> {
    let name = ResourceName::new(name).map_err(|error| error.to_string())?;
    let count = match count {
        "none" => 0,
        count => {
            count.parse().ok().filter(|&count| count <= RESOURCE_COUNT_MAX).ok_or_else(|| {
                format!("invalid count {count:?} of {name}: use none, or 0 to {RESOURCE_COUNT_MAX}")
            })?
        }
    };
    if jobs_each == 0 {
        return Err("a number of which no job may have any is none; use --jobs-each 1".into());
    }
    Ok((name, ResourceSpec { count, jobs_each, lent }))
}
