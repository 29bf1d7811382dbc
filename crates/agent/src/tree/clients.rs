//! Client machines: users submit there, look and cancel, and no task runs there.
//!
//! The agent of a client machine is a child of the head's agent, and of no other. It never joins:
//! the core knows nothing of it. What it may send are streams of users to the controller and to
//! keepers, and what every child asks for itself: the time and its next certificate. So that
//! streams find back, the head's agent gives it a number that no node has.
//!
//! Which users it may speak for, the head has on record since its token was made. Root of the
//! machine could claim to be any user, so each stream is checked against that.

use super::Tree;
use crate::routes::{Child, Way};
use nix::unistd::geteuid;
use tutti_node::link::LinkError;
use tutti_wire::branch::{
    ClientMachine, FromBranch, Place, ToBranch, Vouch, client_number, is_client,
};

/// What an agent hears that has the certificate of a client machine and wants more.
pub(super) const ONLY_STREAMS: &str = "its certificate is that of a client machine, which runs no \
     task: a machine that is to be a node joins by what `tutti invite` prints";

impl Tree {
    /// Whether a child has the certificate of a client machine, and says what only a node may.
    pub(super) fn speaks_as_node(&self, child: Child, message: &FromBranch) -> bool {
        let below = self.branch.children.get(&child);
        let is_client = below.is_some_and(|below| below.is_client() && !below.is_leaving());
        match message {
            FromBranch::Here { .. }
            | FromBranch::Tunnel(_)
            | FromBranch::Renew { .. }
            | FromBranch::Clock { .. } => false,
            FromBranch::Reports(_)
            | FromBranch::Exchange(_)
            | FromBranch::Gone(_)
            | FromBranch::Times(_)
            | FromBranch::Probe { .. }
            | FromBranch::Client(_) => is_client,
        }
    }

    /// Gives a child that is a client machine a number, and says so to it and to the controller.
    pub(super) fn number_client(&mut self, child: Child) {
        let Some(below) = self.branch.children.get(&child).filter(|below| below.is_client()) else {
            return;
        };
        let name = below.name().to_owned();
        // Its agent has ended, or the network broke, and that was not noticed yet.
        if let Some(former) = self.routes.child_of(&name).filter(|former| *former != child) {
            self.lose_child(former, &LinkError::Closed);
        }
        let node = client_number(self.branch.clients);
        // Far more than ever connect; the first have gone by then.
        self.branch.clients = (self.branch.clients + 1) % (u32::MAX >> 1);
        self.routes.add_client(name.clone(), node, child);
        if let Some(below) = self.branch.children.get_mut(&child) {
            let address = below.neighbour.link.transport().address();
            let address = address.map_or_else(String::new, |address| address.to_string());
            below.neighbour.send(&ToBranch::Client { node });
            self.branch.upward.client(ClientMachine { node, name, address });
        }
    }

    /// The same for all of them: the controller is another one.
    pub(super) fn number_clients(&mut self) {
        let clients = self.branch.children.iter().filter(|(_, it)| it.is_client() && it.is_taken());
        for child in clients.map(|(&child, _)| child).collect::<Vec<_>>() {
            self.number_client(child);
        }
    }

    /// Why a client machine may not open a stream for this user to that place, if it may not.
    pub(super) fn client_objection(&mut self, vouch: &Vouch, to: Place) -> Option<String> {
        let Way::Down(child) = self.routes.way(Place::Node(vouch.node)) else { return None };
        let below = self.branch.children.get(&child).filter(|below| below.is_client())?;
        if matches!(to, Place::Node(node) if is_client(node)) {
            return Some("a client machine has no jobs".into());
        }
        let (uid, owner) = (vouch.uid, geteuid().as_raw());
        if self.entrance.members.may_speak_for(below.name(), uid, owner) {
            return None;
        }
        let name = below.name();
        Some(match uid {
            0 => format!(
                "root of client machine {name} is not root in the cluster: ask as one of its users, \
                 or at the head"
            ),
            _ => format!(
                "client machine {name} may not speak for user {uid}: `tutti nodes clients {name} \
                 --users ...` at the head gives it other users"
            ),
        })
    }
}
