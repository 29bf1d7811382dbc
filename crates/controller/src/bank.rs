//! `tutti bank`: which accounts may use how much processor time, by the names of users and groups.

use super::driver::Driver;
use super::report::user_name;
use nix::unistd::{Gid, Group, User};
use std::collections::{BTreeMap, BTreeSet};
use tutti_core::{Core, Event};
use tutti_node::calendar::period_began_ms;
use tutti_node::platform::time::wall_ms;
use tutti_types::{BankAccount, BankPeriod, GroupId, Nanos, ProcessorTime, Renewal, UserId};
use tutti_wire::local::Reply;
use tutti_wire::report::BankReport;
use tutti_wire::units::parse_duration;

impl Driver {
    pub(super) fn reply_bank(&mut self, token: u64) {
        let accounts = self.core.bank().map(|(account, balance)| BankReport {
            account: account_name(account),
            allowance_s: balance.allowance.seconds(),
            used_s: balance.used.seconds(),
            left_s: balance.left().seconds(),
            period: self.core.renewals().get(&account).map(|it| it.period.name().to_owned()),
        });
        let accounts = accounts.collect();
        self.reply(token, &Reply::Bank(accounts));
    }
}

/// All allowances, with the periods after which they count from nothing again.
pub(super) type Bank = BTreeMap<BankAccount, (ProcessorTime, Option<BankPeriod>)>;

pub(super) fn bank_of(core: &Core) -> Bank {
    let period = |account| core.renewals().get(&account).map(|renewal| renewal.period);
    core.bank().map(|(account, it)| (account, (it.allowance, period(account)))).collect()
}

/// An allowance as it is set: `100h`, `100h/month`.
pub(super) fn allowance_text(of: Option<&(ProcessorTime, Option<BankPeriod>)>) -> String {
    let Some((time, period)) = of else { return "none".into() };
    let period = period.map_or(String::new(), |period| format!("/{}", period.name()));
    format!("{}{period}", Nanos::from_secs(time.seconds()))
}

/// Sets an allowance from text: `+10h` is on top of what there is, and keeps its period.
pub(super) fn set_allowance(bank: &mut Bank, text: &str, value: &str) -> Result<(), String> {
    let account = account(text)?;
    if value == "none" {
        bank.remove(&account);
        return Ok(());
    }
    let (length, period) = match value.split_once('/') {
        Some((length, name)) => {
            let period = BankPeriod::ALL.into_iter().find(|period| period.name() == name);
            let wrong =
                || format!("{text}={value}: the period is day, week or month, not {name:?}");
            (length, Some(period.ok_or_else(wrong)?))
        }
        None => (value, None),
    };
    let (more, length) = match length.strip_prefix('+') {
        Some(length) => (true, length),
        None => (false, length),
    };
    let length = parse_duration(length).map_err(|error| format!("{text}: {error}"))?;
    let mut allowance = (ProcessorTime::of_one(length), period);
    if more {
        let before = bank.get(&account);
        let before = before.ok_or_else(|| format!("{text} has no allowance yet; set one first"))?;
        allowance.0.0 = allowance.0.0.saturating_add(before.0.0);
        allowance.1 = period.or(before.1);
    }
    bank.insert(account, allowance);
    Ok(())
}

/// What makes one bank of another, and lines that say so.
pub(super) fn bank_changes(
    (old, new): (&Bank, &Bank),
    events: &mut Vec<Event>,
    lines: &mut Vec<String>,
) {
    let accounts: BTreeSet<BankAccount> = old.keys().chain(new.keys()).copied().collect();
    for account in accounts {
        let (was, is) = (old.get(&account), new.get(&account));
        if was == is {
            continue;
        }
        let name = account_name(account);
        lines.push(format!(
            "{name} had {} and has {} now",
            allowance_text(was),
            allowance_text(is)
        ));
        events.push(Event::SetBank { account, allowance: is.map(|it| it.0) });
        let period = |of: Option<&(_, Option<BankPeriod>)>| of.and_then(|it| it.1);
        if period(was) != period(is) {
            let renewal = period(is)
                .map(|period| Renewal { period, began_ms: period_began_ms(period, wall_ms()) });
            events.push(Event::SetBankPeriod { account, renewal });
        }
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
    uid.ok_or_else(|| {
        format!(
            "there is no user {name} on this machine; give the name or number of one, or a group as \
             @{name}"
        )
    })
}

/// The number of a group; a number does too.
pub(super) fn group_of_name(name: &str) -> Result<u32, String> {
    let known = Group::from_name(name).ok().flatten().map(|group| group.gid.as_raw());
    let gid = known.or_else(|| name.parse().ok());
    gid.ok_or_else(|| {
        format!("there is no group {name} on this machine; give the name or number of one")
    })
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
