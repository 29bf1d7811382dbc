//! What the program's part at the controller has to do with those on nodes: messages both ways, and
//! their orders.

use crate::bounds::Rate;
use crate::protocol::News;
use std::collections::VecDeque;
use tutti_core::{Core, Event, Order};
use tutti_types::{ClusterTime, NodeId};

/// Messages of parts that wait for the next line.
const MESSAGES_MAX: usize = 1000;

/// Messages to parts and orders of parts, each: how many at once, and how many in each second.
const BURST: u64 = 1000;
const PER_SECOND: u64 = 200;

/// The parts on nodes, as the session knows them.
#[derive(Clone, Debug)]
pub struct Parts {
    are_wanted: bool,
    /// What came from them.
    messages: VecDeque<(NodeId, String)>,
    lost: u64,
    /// What is to go to one of them, or to all.
    outbox: Vec<(Option<NodeId>, String)>,
    sends: Rate,
    orders: Rate,
}

impl Default for Parts {
    fn default() -> Self {
        Self {
            are_wanted: false,
            messages: VecDeque::new(),
            lost: 0,
            outbox: Vec::new(),
            sends: Rate::new(BURST, PER_SECOND),
            orders: Rate::new(BURST, PER_SECOND),
        }
    }
}

impl Parts {
    /// Whether there are to be any.
    pub const fn want(&mut self, are_wanted: bool) {
        self.are_wanted = are_wanted;
    }

    /// A part has sent this to the program.
    pub fn take_in(&mut self, node: NodeId, text: String) {
        if self.messages.len() >= MESSAGES_MAX {
            self.messages.pop_front();
            self.lost += 1;
        }
        self.messages.push_back((node, text));
    }

    /// What the program has sent to a part, or to all, since this was last asked.
    pub fn take_out(&mut self) -> Vec<(Option<NodeId>, String)> {
        std::mem::take(&mut self.outbox)
    }

    /// What becomes of an order of the part on a node.
    ///
    /// # Errors
    /// Why it is not done.
    pub fn consider(
        &mut self,
        core: &Core,
        now: ClusterTime,
        order: Order,
    ) -> Result<Event, String> {
        core.check_order(&order).map_err(|refusal| refusal.to_string())?;
        match self.orders.take(now) {
            true => Ok(Event::PolicyOrder { order }),
            false => Err(format!("at most {PER_SECOND} orders of all nodes in a second")),
        }
    }

    pub(crate) fn send(
        &mut self,
        core: &Core,
        now: ClusterTime,
        (node, text): (Option<NodeId>, String),
    ) -> Result<(), String> {
        if !self.are_wanted {
            return Err("there are no parts on nodes; name their program (policy_node)".to_owned());
        }
        if let Some(node) = node.filter(|&node| core.up_node(node).is_none()) {
            return Err(format!("node {node} is not up"));
        }
        if !self.sends.take(now) {
            return Err(format!("at most {PER_SECOND} messages in a second"));
        }
        self.outbox.push((node, text));
        Ok(())
    }

    /// Whether nothing has come.
    pub(crate) fn is_silent(&self) -> bool {
        self.messages.is_empty() && self.lost == 0
    }

    pub(crate) fn news(&mut self, most: usize, events: &mut Vec<News<'_>>) {
        if self.lost > 0 {
            events.push(News::MessagesLost { count: std::mem::take(&mut self.lost) });
        }
        while events.len() < most
            && let Some((node, text)) = self.messages.pop_front()
        {
            events.push(News::Message { node: node.0, text });
        }
    }

    pub(crate) fn forget_messages(&mut self) {
        self.messages.clear();
        self.outbox.clear();
        self.lost = 0;
    }

    /// For a program that was started anew.
    pub(crate) fn renewed(&self) -> Self {
        let mut renewed = self.clone();
        renewed.forget_messages();
        renewed
    }
}
