//! `tutti access`: which users may submit jobs, and from which machines.

use super::bank::{account_name, group_of_name, user_of_name};
use super::driver::Driver;
use super::error::Problem;
use tutti_core::Event;
use tutti_types::{Access, BankAccount, Grantee, GroupId, NodeSetName, Origin, UserId};
use tutti_wire::code::Code;
use tutti_wire::host_list::{HostItem, parse_host_list};
use tutti_wire::launch::Credentials;
use tutti_wire::local::Reply;
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
        if self.core.access().len().saturating_add(grants.len()) > GRANTS_MAX {
            let reason =
                format!("at most {GRANTS_MAX} users and groups can be listed; list groups");
            return self.fail(token, Problem::from(reason));
        }
        for (grantee, origin) in grants {
            self.apply(&Event::SetAccess { grantee, origin });
        }
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
                self.named(list)?;
                Some(Origin::Machines(list.into()))
            }
        };
        Ok((grantee, origin))
    }

    /// Why a user may not hand in jobs from the machine that this connection is from, if so.
    pub(super) fn no_access(&self, token: u64, who: &Credentials) -> Option<Problem> {
        let machine = self.machine_of(token);
        let groups = || who.groups.iter().copied().chain([who.gid]).map(GroupId);
        let is_there = |list: &str| self.is_in(&machine, list);
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
                format!("{user} may submit jobs from {}, not from {machine}", others.join(","))
            }
        };
        Some(Problem::new(Code::NoAccess, reason))
    }

    /// The name of the machine that a client is on.
    pub(super) fn machine_of(&self, token: u64) -> String {
        let vouch = self.connections.get(&token).and_then(|connection| connection.vouch.as_ref());
        match vouch {
            Some(vouch) => self.node_name(vouch.node),
            None => {
                let here = self.nodes.values().find(|entry| entry.is_here);
                here.map_or_else(tutti_node::instance::host_name, |entry| entry.name.clone())
            }
        }
    }

    /// Whether a machine is in a list of nodes, some of which may not be there any more.
    fn is_in(&self, machine: &str, list: &str) -> bool {
        let is_machine = |item: HostItem| match item {
            HostItem::Names(names) => names.iter().any(|name| name == machine),
            HostItem::Set(set) => {
                let nodes = self.core.node_sets().get(&NodeSetName::new(&set));
                nodes.is_some_and(|nodes| nodes.iter().any(|&node| self.node_name(node) == machine))
            }
        };
        parse_host_list(list).is_ok_and(|items| items.into_iter().any(is_machine))
    }
}

/// From where a user may hand in jobs.
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
