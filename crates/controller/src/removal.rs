//! Nodes that an administrator takes out of the cluster.
//!
//! A node's name is struck off at once, so that it does not come back; but its jobs may run
//! elsewhere, and it is forgotten, only when nothing of them runs there any more. One that is in
//! reach is told to go out of service, suspends what it has and says so, as it does when it is
//! taken down. For one that is not in reach its lease is waited for, as for any other that is
//! missed; one that does not go is cut off, and is out of reach then. The asker is answered when
//! nothing runs there any more, and the agent that has spoken for the node does not any more from
//! then on.

use super::driver::{Connection, Driver, Kind};
use super::error::Problem;
use std::collections::{BTreeMap, BTreeSet};
use tracing::info;
use tutti_core::Event;
use tutti_node::codes::code_of;
use tutti_node::membership::Place;
use tutti_types::{ClusterTime, Nanos, NodeId};
use tutti_wire::tree::ToAgent;

/// A node that is told to go says at once that it does.
const PATIENCE: Nanos = Nanos::from_secs(5);

/// The clients that wait for which nodes to be gone, and what those were called that are: jobs may
/// end because of it only then.
#[derive(Debug, Default)]
pub(super) struct Removals {
    waiting: Vec<(u64, BTreeSet<NodeId>)>,
    names: BTreeMap<NodeId, String>,
    /// The nodes that were told to go, and until when that is waited for.
    told: BTreeMap<NodeId, ClusterTime>,
}

impl Removals {
    /// Whether this client waits.
    pub(super) fn is_open_for(&self, client: u64) -> bool {
        self.waiting.iter().any(|(asker, _)| *asker == client)
    }

    /// When [`Driver::cut_off`] has something to do.
    pub(super) fn due(&self) -> ClusterTime {
        self.told.values().min().copied().unwrap_or(ClusterTime::NEVER)
    }

    /// What a node was called that was taken out.
    pub(super) fn name_of(&self, node: NodeId) -> Option<&str> {
        self.names.get(&node).map(String::as_str)
    }
}

impl Driver {
    /// Takes nodes out of the cluster, and answers when that is done.
    pub(super) fn remove_nodes(&mut self, token: u64, nodes: &BTreeSet<NodeId>) {
        for &node in nodes {
            if let Err(error) = Place::of(&self.instance).expel(&self.node_name(node)) {
                let problem = Problem::new(code_of(&error), format_args!("{error:#}"));
                return self.fail(token, problem);
            }
        }
        self.cluster.removals.waiting.push((token, nodes.clone()));
        for &node in nodes {
            let is_up = self.core.nodes().any(|view| view.id == node && view.up);
            let Some(entry) = self.cluster.nodes.get_mut(&node) else { continue };
            entry.absence.is_removed = true;
            let is_in_reach = entry.agent.is_some();
            self.tell_node(node, if is_up { ToAgent::Leave } else { ToAgent::Stop });
            if !is_up {
                self.finish_removal(node);
            } else if is_in_reach {
                let until = self.now() + PATIENCE;
                self.cluster.removals.told.insert(node, until);
            } else {
                let name = self.node_name(node);
                info!("node {name} is out of reach; its lease is waited for");
            }
        }
        self.answer_removals();
    }

    /// Nothing of ours runs on a node any more; if it was to be taken out, it is.
    pub(super) fn finish_removal(&mut self, node: NodeId) {
        if self.cluster.nodes.get(&node).is_some_and(|entry| entry.absence.is_removed) {
            if let Some(entry) = self.cluster.nodes.remove(&node) {
                self.cluster.removals.names.insert(node, entry.name);
            }
            self.cluster.removals.told.remove(&node);
            self.say_removed(node);
            self.apply(&Event::NodeRemoved { node });
            self.answer_removals();
        }
    }

    /// Whether a node is to be taken out, and may not be gone yet.
    pub(super) fn is_being_removed(&self, node: NodeId) -> bool {
        self.cluster.nodes.get(&node).is_some_and(|entry| entry.absence.is_removed)
    }

    /// Those that were told to go and are still there go by force: they are out of reach from then
    /// on.
    pub(super) fn cut_off(&mut self, now: ClusterTime) {
        let late = |(&node, &until): (&NodeId, &ClusterTime)| (until <= now).then_some(node);
        for node in self.cluster.removals.told.iter().filter_map(late).collect::<Vec<_>>() {
            self.cluster.removals.told.remove(&node);
            let name = self.node_name(node);
            info!("node {name} did not leave at the order to; it is cut off");
            self.say_removed(node);
        }
    }

    /// Its parent lets go of it.
    pub(super) fn say_removed(&mut self, node: NodeId) {
        for connection in self.intake.connections.values_mut() {
            if let Connection { kind: Kind::Branch(branch), .. } = connection {
                branch.removed.push(node);
            }
        }
    }

    fn answer_removals(&mut self) {
        let nodes = &self.cluster.nodes;
        let is_done = |(_, waited): &mut (u64, BTreeSet<NodeId>)| {
            !waited.iter().any(|node| nodes.contains_key(node))
        };
        let done: Vec<u64> =
            self.cluster.removals.waiting.extract_if(.., is_done).map(|(asker, _)| asker).collect();
        for asker in done {
            self.reply_nodes(asker);
        }
    }
}
