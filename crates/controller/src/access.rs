//! `tutti access`: which users may submit jobs, and from which machines.

use super::bank::{account_name, group_of_name, user_of_name};
use super::driver::Driver;
use super::error::Problem;
use super::host_names::IsOne;
use nix::ifaddrs::getifaddrs;
use std::cell::Cell;
use std::collections::BTreeSet;
use std::net::IpAddr;
use tutti_core::Event;
use tutti_types::{Access, BankAccount, Grantee, GroupId, NodeId, NodeSetName, Origin, UserId};
use tutti_wire::code::Code;
use tutti_wire::host_list::HostItem;
use tutti_wire::launch::Credentials;
use tutti_wire::local::Reply;
use tutti_wire::origins::{OriginItem, parse_origins};
use tutti_wire::report::AccessReport;

/// How all users are written, and every machine.
const EVERYBODY: &str = "all";
const ANYWHERE: &str = "anywhere";

/// So many users and groups may be listed: more are a group's affair.
const GRANTS_MAX: usize = 10_000;

impl Driver {
    pub(super) fn reply_access(&mut self, token: u64) {
        let report = |(grantee, origin): (&Grantee, &Origin)| AccessReport {
            user: name(*grantee),
            from: match origin {
                Origin::Anywhere => ANYWHERE.into(),
                Origin::Machines(list) => list.clone(),
            },
        };
        let list = self.core.access().iter().map(report).collect();
        self.reply(token, &Reply::Access(list));
    }

    pub(super) fn on_set_access(&mut self, token: u64, uid: u32, settings: &[(String, String)]) {
        let grants = self.admin(uid).map_err(Problem::from).and_then(|()| {
            settings.iter().map(|(who, from)| self.grant(who, from)).collect::<Result<Vec<_>, _>>()
        });
        let grants = match grants {
            Ok(grants) => grants,
            Err(problem) => return self.fail(token, problem),
        };
        let mut seen = BTreeSet::new();
        for (grantee, origin) in &grants {
            let reason = match origin {
                _ if !seen.insert(*grantee) => "is named twice; write it once",
                None if !self.core.access().contains_key(grantee) => {
                    "is not on the list; `tutti access` shows it"
                }
                _ => continue,
            };
            return self.fail(token, Problem::from(format!("{} {reason}", name(*grantee))));
        }
        if self.core.access().len().saturating_add(grants.len()) > GRANTS_MAX {
            let reason =
                format!("at most {GRANTS_MAX} users and groups can be listed; list groups");
            return self.fail(token, Problem::from(reason));
        }
        for (grantee, origin) in grants {
            self.apply(&Event::SetAccess { grantee, origin });
        }
        self.ask_host_names(None, true);
        self.reply_access(token);
    }

    /// What a setting asks for.
    fn grant(&self, who: &str, from: &str) -> Result<(Grantee, Option<Origin>), Problem> {
        let grantee = match who.strip_prefix('@') {
            _ if who == EVERYBODY => Grantee::Everybody,
            Some(group) => Grantee::Group(GroupId(group_of_name(group)?)),
            None => Grantee::User(UserId(user_of_name(who)?)),
        };
        let origin = match from {
            "none" => None,
            ANYWHERE => Some(Origin::Anywhere),
            list => {
                // A name without a user would shut out the users that are meant.
                self.check_origins(list)?;
                Some(Origin::Machines(list.into()))
            }
        };
        Ok((grantee, origin))
    }

    /// Whether all nodes and sets of a list are there, and the rest can be read.
    fn check_origins(&self, list: &str) -> Result<(), Problem> {
        for item in parse_origins(list).map_err(|error| Problem::from(error.to_string()))? {
            match item {
                OriginItem::Nodes(HostItem::Set(name)) => {
                    self.named(&format!("set:{name}"))?;
                }
                OriginItem::Nodes(HostItem::Names(names)) => {
                    for name in names {
                        if !self.is_client_machine(&name) {
                            self.named(&name)?;
                        }
                    }
                }
                OriginItem::Addresses(_) | OriginItem::Hosts(_) | OriginItem::Netgroup(_) => {}
            }
        }
        Ok(())
    }

    /// Has name servers asked for the machine of a node, or for all, if any list needs that.
    pub(super) fn ask_host_names(&self, node: Option<NodeId>, anew: bool) {
        let lists = self.core.access().values().filter_map(|origin| match origin {
            Origin::Anywhere => None,
            Origin::Machines(list) => parse_origins(list).ok(),
        });
        let (mut needs_names, mut netgroups) = (false, BTreeSet::new());
        for item in lists.flatten() {
            match item {
                OriginItem::Hosts(_) => needs_names = true,
                OriginItem::Netgroup(name) => drop(netgroups.insert(name)),
                OriginItem::Nodes(_) | OriginItem::Addresses(_) => {}
            }
        }
        let needs_names = needs_names || !netgroups.is_empty();
        self.cluster.host_names.need(needs_names.then_some(netgroups));
        if needs_names {
            let all = self.cluster.nodes.keys().copied().chain(self.cluster.clients.numbers());
            let nodes = all.filter(|it| node.is_none_or(|node| node == *it));
            let addresses: Vec<IpAddr> = nodes.flat_map(|node| self.addresses_of(node)).collect();
            self.cluster.host_names.ask(&addresses, anew);
        }
    }

    /// The addresses of the machine of a node or a client, as far as they are known: that from
    /// which its agent has connected, and all that this machine has.
    fn addresses_of(&self, node: NodeId) -> Vec<IpAddr> {
        if let Some(client) = self.cluster.clients.get(node) {
            return client.address.parse().into_iter().collect();
        }
        match self.cluster.nodes.get(&node) {
            Some(entry) if !entry.is_here => entry.place.address.parse().into_iter().collect(),
            Some(_) => own_addresses(),
            // It has just gone.
            None => Vec::new(),
        }
    }

    /// Why a user may not submit jobs from the machine that this connection is from, if so.
    pub(super) fn no_access(&self, token: u64, who: &Credentials) -> Option<Problem> {
        if self.core.access().is_empty() {
            return None;
        }
        let (machine, addresses) = (self.machine_of(token), self.client_addresses(token));
        self.cluster.host_names.ask(&addresses, false);
        let is_unknown = Cell::new(false);
        let groups = || who.groups.iter().copied().chain([who.gid]).map(GroupId);
        let is_there = |list: &str| self.is_in((&machine, &addresses), list, &is_unknown);
        if self.core.may_submit(UserId(who.uid), groups(), is_there) {
            return None;
        }
        let others = elsewhere(self.core.access(), UserId(who.uid), groups());
        let user = super::report::user_name(who.uid);
        let reason = match others.is_empty() {
            true => format!(
                "{user} may not submit jobs here: an administrator can allow it with `tutti access \
                 {user}={ANYWHERE}`"
            ),
            false => {
                let (others, address) = (others.join(","), shown(&addresses));
                let more = match is_unknown.get() {
                    true => "; its host name is being looked up, so try again in some seconds",
                    false => "",
                };
                format!("{user} may submit jobs from {others}, not from {machine}{address}{more}")
            }
        };
        Some(Problem::new(Code::NoAccess, reason))
    }

    /// The addresses of the machine that a client is on.
    fn client_addresses(&self, token: u64) -> Vec<IpAddr> {
        let vouch =
            self.intake.connections.get(&token).and_then(|connection| connection.vouch.as_ref());
        vouch.map_or_else(own_addresses, |vouch| self.addresses_of(vouch.node))
    }

    /// The name of the machine that a client is on.
    pub(super) fn machine_of(&self, token: u64) -> String {
        let vouch =
            self.intake.connections.get(&token).and_then(|connection| connection.vouch.as_ref());
        match vouch {
            Some(vouch) => self.node_name(vouch.node),
            None => {
                let here = self.cluster.nodes.values().find(|entry| entry.is_here);
                here.map_or_else(tutti_node::instance::host_name, |entry| entry.name.clone())
            }
        }
    }

    /// Whether a machine is in a list, of which some nodes may not be there any more; notes if that
    /// is unknown.
    fn is_in(
        &self,
        (machine, addresses): (&str, &[IpAddr]),
        list: &str,
        is_unknown: &Cell<bool>,
    ) -> bool {
        let is_machine = |item: OriginItem| match item {
            OriginItem::Nodes(HostItem::Names(names)) => names.iter().any(|name| name == machine),
            OriginItem::Nodes(HostItem::Set(set)) => {
                let nodes = self.core.node_sets().get(&NodeSetName::new(&set));
                nodes.is_some_and(|nodes| nodes.iter().any(|&node| self.node_name(node) == machine))
            }
            // Nodes may have such names, too.
            OriginItem::Hosts(pattern) if pattern.eq_ignore_ascii_case(machine) => true,
            item @ (OriginItem::Addresses(_) | OriginItem::Hosts(_) | OriginItem::Netgroup(_)) => {
                let is_one = self.cluster.host_names.is_one(&item, addresses);
                is_unknown.set(is_unknown.get() || is_one == IsOne::Unknown);
                is_one == IsOne::Yes
            }
        };
        parse_origins(list).is_ok_and(|items| items.into_iter().any(is_machine))
    }
}

/// The addresses of this machine.
fn own_addresses() -> Vec<IpAddr> {
    let all = getifaddrs().into_iter().flatten().filter_map(|it| it.address);
    let ip = all.filter_map(|address| {
        let v4 = address.as_sockaddr_in().map(|it| IpAddr::V4(it.ip()));
        v4.or_else(|| address.as_sockaddr_in6().map(|it| IpAddr::V6(it.ip())))
    });
    ip.collect()
}

/// An address behind the name of its machine; nothing of this machine, which has several.
fn shown(addresses: &[IpAddr]) -> String {
    match addresses {
        [address] => format!(" ({address})"),
        _ => String::new(),
    }
}

/// From where a user may submit jobs.
fn elsewhere(access: &Access, user: UserId, groups: impl Iterator<Item = GroupId>) -> Vec<String> {
    let all = [Grantee::Everybody, Grantee::User(user)].into_iter();
    let mut lists: Vec<String> = all
        .chain(groups.map(Grantee::Group))
        .filter_map(|grantee| match access.get(&grantee)? {
            Origin::Anywhere => None,
            Origin::Machines(list) => Some(list.clone()),
        })
        .collect();
    lists.sort();
    lists.dedup();
    lists
}

fn name(grantee: Grantee) -> String {
    match grantee {
        Grantee::Everybody => EVERYBODY.into(),
        Grantee::User(user) => account_name(BankAccount::User(user)),
        Grantee::Group(group) => account_name(BankAccount::Group(group)),
    }
}
