//! The parts of a site's policy on nodes: which there are to be, what they order, and messages
//! between them and the program here.
//!
//! Agents start them and speak with them. What a part orders comes here, is checked by the core,
//! and becomes an event as an order of the program does.

use super::driver::Driver;
use std::collections::BTreeSet;
use tutti_core::{Event, Order};
use tutti_policy::Limits;
use tutti_types::NodeId;
use tutti_wire::tree::{PolicyNews, PolicyPart, PolicyReport, ToAgent};

/// The parts, as the controller knows them.
#[derive(Default)]
pub(super) struct OnNodes {
    /// What agents were to start last.
    wanted: Option<PolicyPart>,
    /// Where one answers.
    up: BTreeSet<NodeId>,
}

impl OnNodes {
    /// How many answer.
    pub(super) fn count(&self) -> usize {
        self.up.len()
    }
}

impl Driver {
    /// Has agents start or end their parts, if others are wanted than before.
    pub(super) fn follow_parts(&mut self) {
        let wanted = self.core.policy_program().filter(|_| self.wants_program()).and_then(|it| {
            let (path, user) = (it.node.clone()?, it.user.clone());
            let (limit, limits) = (self.core.params().policy_limit(), self.policy_limits());
            let Limits { memory_bytes, processes } = limits;
            Some(PolicyPart { path, user, limit, memory_bytes, processes })
        });
        self.outsider.session.parts().want(wanted.is_some());
        if wanted == self.outsider.on_nodes.wanted {
            return;
        }
        if wanted.is_none() {
            self.outsider.on_nodes.up.clear();
        }
        self.outsider.on_nodes.wanted.clone_from(&wanted);
        let nodes: Vec<NodeId> = self.cluster.nodes.keys().copied().collect();
        self.tell_nodes(nodes.clone(), ToAgent::PolicyPart(wanted.clone()));
        if wanted.is_some() {
            // An agent keeps none for itself.
            nodes.into_iter().for_each(|node| self.repeat_timetable(node));
        }
    }

    fn repeat_timetable(&mut self, node: NodeId) {
        if let Some(timetable) = self.cluster.nodes.get(&node).and_then(|it| it.timetable.clone()) {
            self.tell_timetable(node, timetable);
        }
    }

    /// An agent has joined, with no part of this policy.
    pub(super) fn tell_part(&mut self, node: NodeId) {
        self.forget_part(node);
        if let Some(part) = self.outsider.on_nodes.wanted.clone() {
            self.tell_node(node, ToAgent::PolicyPart(Some(part)));
        }
    }

    /// The built-in order holds again on a node.
    fn forget_part(&mut self, node: NodeId) {
        self.outsider.on_nodes.up.remove(&node);
        let order = Order::Arrange { node, row: None, candidates: Vec::new() };
        if self.core.check_order(&order).is_ok() {
            self.apply(&Event::PolicyOrder { order });
        }
    }

    /// The part on a node has something to say.
    pub(super) fn on_policy_report(&mut self, node: NodeId, report: PolicyReport) {
        if self.outsider.on_nodes.wanted.is_none() {
            return;
        }
        match report {
            PolicyReport::Began => {
                self.forget_part(node);
                self.outsider.on_nodes.up.insert(node);
            }
            PolicyReport::Failed => self.forget_part(node),
            PolicyReport::Message(text) => self.outsider.session.parts().take_in(node, text),
            PolicyReport::Arrange { round, index, row, candidates } => {
                let order = Order::Arrange { node, row, candidates };
                let now = self.now();
                match self.outsider.session.parts().consider(&self.core, now, order) {
                    Ok(event) => self.apply(&event),
                    Err(reason) => {
                        let news = PolicyNews::Refused { round, index, reason };
                        self.tell_node(node, ToAgent::PolicyNews(news));
                    }
                }
            }
        }
    }

    /// Sends what the program has for its parts.
    pub(super) fn send_to_parts(&mut self) {
        for (node, text) in self.outsider.session.parts().take_out() {
            let to = match node {
                Some(node) => vec![node],
                None => self.outsider.on_nodes.up.iter().copied().collect(),
            };
            self.tell_nodes(to, ToAgent::PolicyNews(PolicyNews::Message(text)));
        }
    }
}
