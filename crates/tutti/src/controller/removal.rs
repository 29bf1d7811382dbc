//! Nodes that an administrator takes out of the cluster.
//!
//! A node's name is struck off at once, so that it does not come back; but its jobs may run elsewhere, and
//! it is forgotten, only when nothing of them runs there any more. One that is in reach is told to go out
//! of service, suspends what it has and says so, as it does when it is taken down. For one that is not in
//! reach its lease is waited for, as for any other that is missed. Who asked is answered then.

use super::driver::Driver;
use super::problem::Problem;
use crate::codes::code_of;
use crate::membership::Place;
use std::collections::{BTreeMap, BTreeSet};
use tutti_core::{Event, NodeId};
use tutti_wire::tree::ToAgent;

/// Who waits for which nodes to be gone, and what those were called that are: jobs may end because of it only then.
#[derive(Debug, Default)]
pub(super) struct Removals {
    waiting: Vec<(u64, BTreeSet<NodeId>)>,
    names: BTreeMap<NodeId, String>,
}

impl Removals {
    /// Whether this client waits.
    pub(super) fn is_open_for(&self, client: u64) -> bool {
        self.waiting.iter().any(|(asker, _)| *asker == client)
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
        self.removals.waiting.push((token, nodes.clone()));
        for &node in nodes {
            let is_up = self.core.nodes().any(|view| view.id == node && view.up);
            let Some(entry) = self.nodes.get_mut(&node) else { continue };
            entry.is_removed = true;
            let is_in_reach = entry.agent.is_some();
            self.tell_node(node, if is_up { ToAgent::Leave } else { ToAgent::Stop });
            if !is_up {
                self.finish_removal(node);
            } else if !is_in_reach {
                let name = self.node_name(node);
                say!("tutti controller: node {name} is out of reach; its lease is waited for");
            }
        }
        self.answer_removals();
    }

    /// Nothing of ours runs on a node any more; if it was to be taken out, it is.
    pub(super) fn finish_removal(&mut self, node: NodeId) {
        if self.nodes.get(&node).is_some_and(|entry| entry.is_removed) {
            if let Some(entry) = self.nodes.remove(&node) {
                self.removals.names.insert(node, entry.name);
            }
            self.apply(&Event::NodeRemoved { node });
            self.answer_removals();
        }
    }

    fn answer_removals(&mut self) {
        let nodes = &self.nodes;
        let is_done = |(_, waited): &mut (u64, BTreeSet<NodeId>)| {
            !waited.iter().any(|node| nodes.contains_key(node))
        };
        let done: Vec<u64> =
            self.removals.waiting.extract_if(.., is_done).map(|(asker, _)| asker).collect();
        for asker in done {
            self.reply_nodes(asker);
        }
    }
}
