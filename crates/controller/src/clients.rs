//! Client machines, from which users submit and on which no task runs: which are connected.
//!
//! They are no nodes, and the core knows nothing of them. The agent of this machine says which are
//! connected, and decides which users they may speak for; a controller that begins hears of all
//! anew.

use super::driver::Driver;
use super::report::first_page;
use std::collections::BTreeMap;
use tutti_secure::Users;
use tutti_types::NodeId;
use tutti_wire::branch::ClientMachine;
use tutti_wire::local::Reply;
use tutti_wire::report::ClientReport;

/// Those that are connected, by number, each with the connection of the agent that says so.
#[derive(Debug, Default)]
pub(super) struct Clients(BTreeMap<NodeId, (u64, ClientMachine)>);

impl Clients {
    /// One is connected.
    pub(super) fn note(&mut self, token: u64, client: ClientMachine) {
        // It has one number at a time.
        self.0.retain(|_, (_, known)| known.name != client.name);
        self.0.insert(client.node, (token, client));
    }

    /// Those are not connected any more of which an agent has said so.
    pub(super) fn lose(&mut self, token: u64, is_lost: impl Fn(NodeId) -> bool) {
        self.0.retain(|&node, (of, _)| *of != token || !is_lost(node));
    }

    /// The one of this number.
    pub(super) fn get(&self, node: NodeId) -> Option<&ClientMachine> {
        self.0.get(&node).map(|(_, client)| client)
    }

    /// The numbers of all.
    pub(super) fn numbers(&self) -> impl Iterator<Item = NodeId> {
        self.0.keys().copied()
    }

    /// The number of the one of this name.
    pub(super) fn number_of(&self, name: &str) -> Option<NodeId> {
        self.named(name).map(|client| client.node)
    }

    fn named(&self, name: &str) -> Option<&ClientMachine> {
        self.0.values().map(|(_, client)| client).find(|client| client.name == name)
    }
}

impl Driver {
    /// A client machine is connected.
    pub(super) fn on_client_machine(&mut self, token: u64, client: ClientMachine) {
        let node = client.node;
        self.cluster.clients.note(token, client);
        self.ask_host_names(Some(node), false);
    }

    /// Whether a client machine that is connected has this name.
    pub(super) fn is_client_machine(&self, name: &str) -> bool {
        self.cluster.clients.named(name).is_some()
    }

    /// A page of the client machines that may connect.
    pub(super) fn reply_clients(&mut self, token: u64, from: u32) {
        let known = self.cluster.members.as_mut().map(|members| {
            let skipped = usize::try_from(from).unwrap_or(usize::MAX);
            let rest = members.clients().skip(skipped);
            rest.map(|(name, users)| (name.clone(), users.clone())).collect::<Vec<_>>()
        });
        let reports = known.unwrap_or_default().into_iter().map(|(name, users)| {
            let connected = self.cluster.clients.named(&name);
            let address = connected.map(|client| client.address.clone());
            let state = if connected.is_some() { "up" } else { "away" }.into();
            let users = match users {
                Users::All => None,
                Users::Only(users) => Some(users.iter().map(|&uid| self.user_name(uid)).collect()),
            };
            ClientReport { name, state, address, users }
        });
        let (clients, left_out) = first_page(reports, |report| {
            let users = report.users.iter().flatten();
            let texts = users.chain([&report.name]).map(|text| text.len() + 1);
            size_of::<ClientReport>() + texts.sum::<usize>()
        });
        let shown = u32::try_from(clients.len()).unwrap_or(u32::MAX);
        let next = left_out.map(|_| from.saturating_add(shown));
        self.reply(token, &Reply::Clients { clients, next });
    }
}
