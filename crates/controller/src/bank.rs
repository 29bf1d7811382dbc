//! `tutti bank`: which accounts may use how much processor time, by the names of users and groups.

use super::driver::Driver;
use super::error::Problem;
use super::report::user_name;
use nix::unistd::{Gid, Group, User};
use tutti_core::Event;
use tutti_types::{BankAccount, GroupId, ProcessorTime, UserId};
use tutti_wire::local::Reply;
use tutti_wire::report::BankReport;
use tutti_wire::units::parse_duration;

/// What a setting asks for: an account, and its new allowance.
type Order = (BankAccount, Option<ProcessorTime>);

impl Driver {
    pub(super) fn reply_bank(&mut self, token: u64) {
        let accounts = self.core.bank().map(|(account, balance)| BankReport {
            account: account_name(account),
            allowance_s: balance.allowance.seconds(),
            used_s: balance.used.seconds(),
            left_s: balance.left().seconds(),
        });
        let accounts = accounts.collect();
        self.reply(token, &Reply::Bank(accounts));
    }

    pub(super) fn on_set_bank(&mut self, token: u64, uid: u32, settings: &[(String, String)]) {
        let orders = self.admin(uid).map_err(Problem::from).and_then(|()| {
            let order = |(account, value): &(String, String)| self.order(account, value);
            Ok(settings.iter().map(order).collect::<Result<_, _>>()?)
        });
        let orders: Vec<Order> = match orders {
            Ok(orders) => orders,
            Err(problem) => return self.fail(token, problem),
        };
        for (account, allowance) in orders {
            self.apply(&Event::SetBank { account, allowance });
        }
        self.reply_bank(token);
    }

    /// What is asked for; `+10h` is on top of what there is.
    fn order(&self, text: &str, value: &str) -> Result<Order, String> {
        let account = account(text)?;
        if value == "none" {
            return Ok((account, None));
        }
        let (more, length) = match value.strip_prefix('+') {
            Some(length) => (true, length),
            None => (false, value),
        };
        let length = parse_duration(length).map_err(|error| error.to_string())?;
        let mut allowance = ProcessorTime::of_one(length);
        if more {
            let before = self.core.bank().find(|&(other, _)| other == account);
            let before =
                before.ok_or_else(|| format!("{text} has no allowance yet; set one first"))?;
            allowance.0 = allowance.0.saturating_add(before.1.allowance.0);
        }
        Ok((account, Some(allowance)))
    }
}

/// `ada`, or `@physics` for a group; numbers do too.
pub(super) fn account(text: &str) -> Result<BankAccount, String> {
    Ok(match text.strip_prefix('@') {
        None => BankAccount::User(UserId(user_of_name(text)?)),
        Some(group) => BankAccount::Group(GroupId(group_of_name(group)?)),
    })
}

/// The number of a user; a number does too.
pub(super) fn user_of_name(name: &str) -> Result<u32, String> {
    let known = User::from_name(name).ok().flatten().map(|user| user.uid.as_raw());
    let uid = known.or_else(|| name.parse().ok());
    uid.ok_or_else(|| format!("there is no user {name}; a group is @{name}"))
}

/// The number of a group; a number does too.
pub(super) fn group_of_name(name: &str) -> Result<u32, String> {
    let known = Group::from_name(name).ok().flatten().map(|group| group.gid.as_raw());
    let gid = known.or_else(|| name.parse().ok());
    gid.ok_or_else(|| format!("there is no group {name}"))
}

/// How an account is written.
pub(super) fn account_name(account: BankAccount) -> String {
    match account {
        BankAccount::User(user) => user_name(user.0),
        BankAccount::Group(group) => match Group::from_gid(Gid::from_raw(group.0)) {
            Ok(Some(known)) => format!("@{}", known.name),
            _ => format!("@{group}"),
        },
    }
}
