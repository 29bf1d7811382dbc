//! Banks: how much processor time a user or a group may use (LLNL paper, sharing of resources).
//!
//! A user with an account with an allowance is charged for what the user's jobs get: time of their
//! turns, times their processors. All jobs compete alike within their classes until an allowance is
//! spent; then the jobs of that user, or of that group, count as standby, and when there is more
//! again they get back the class that they had. Users and groups without an account may use as much
//! as they like.
//!
//! An allowance counts from when it was first set; a change of it leaves what was used as it was.
//!
//! An allowance may be for a day, a week or a month: with the next one, its use counts from
//! nothing. When a period begins is for the driver to say, since only it knows a calendar.
//!
//! When exactly it is spent depends on turns to come. So it is looked at again when it could be at
//! the earliest, but not more often than every [`BANK_GRAIN`]: it may be exceeded by that much.

use crate::apply::Core;
use crate::event::Event;
use crate::state::record::Record;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};
use tutti_types::account::{Balance, BankAccount, BankPeriod, ProcessorTime, Renewal};
use tutti_types::ids::{ClassName, JobId};
use tutti_types::job::JobSpec;
use tutti_types::limits::BANK_GRAIN;
use tutti_types::time::{ClusterTime, Nanos};

/// All accounts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Bank {
    pub(crate) accounts: BTreeMap<BankAccount, Balance>,
    /// Those that had nothing left when this was last looked at.
    spent: BTreeSet<BankAccount>,
}

/// The accounts that a job is charged to.
const fn accounts_of(spec: &JobSpec) -> [BankAccount; 2] {
    [BankAccount::User(spec.owner), BankAccount::Group(spec.group)]
}

impl Bank {
    fn is_spent_for(&self, spec: &JobSpec) -> bool {
        accounts_of(spec).iter().any(|account| self.spent.contains(account))
    }

    /// Gives a job the class that its owner can afford; whether that is another.
    pub(crate) fn reclassify(&self, record: &mut Record) -> bool {
        record.set_standby(self.is_spent_for(&record.spec))
    }
}

/// The class of jobs with a spent allowance.
const STANDBY: &str = "standby";

impl Record {
    /// The class counts as standby from now on, or again as what it was; whether that is new.
    fn set_standby(&mut self, standby: bool) -> bool {
        match (standby, self.former.take()) {
            (true, None) if &*self.spec.class.0 != STANDBY => {
                let class = ClassName::new(STANDBY);
                self.former = Some(core::mem::replace(&mut self.spec.class, class));
                true
            }
            (false, Some(former)) => {
                self.spec.class = former;
                true
            }
            (_, former) => {
                self.former = former;
                false
            }
        }
    }
}

impl Core {
    /// Charges every job for what it got since this was last done, where that counts.
    pub(crate) fn charge(&mut self) {
        self.count_uses();
        if self.bank.accounts.is_empty() {
            return;
        }
        let jobs: Vec<JobId> = self.jobs.keys().collect();
        for job in jobs {
            let service = self.ledger.service(job, self.now);
            let processors = self.charged_processors(job);
            let Some(record) = self.jobs.get_mut(&job) else { continue };
            let accounts = accounts_of(&record.spec);
            let Some(residence) = record.residence_mut() else { continue };
            let before = core::mem::replace(&mut residence.charged, service);
            let time = u128::from(service.0 - before.0);
            let used = time * u128::from(processors);
            for account in accounts {
                if let Some(balance) = self.bank.accounts.get_mut(&account) {
                    balance.used.0 += used;
                }
            }
        }
    }

    /// Accounts count from nothing again with other periods, or a period has begun.
    pub(crate) fn on_bank_periods(&mut self, event: &Event) {
        if let Event::SetBankPeriod { account, renewal } = event {
            self.renew_bank(*account, *renewal);
        } else if let Event::BankPeriod { period, began_ms } = event {
            self.on_bank_period(*period, *began_ms);
        }
    }

    /// An administrator has an account count from nothing again with each period, or only once.
    fn renew_bank(&mut self, account: BankAccount, renewal: Option<Renewal>) {
        match renewal.filter(|_| self.bank.accounts.contains_key(&account)) {
            Some(renewal) => drop(self.renewals.insert(account, renewal)),
            None => drop(self.renewals.remove(&account)),
        }
    }

    /// A period has begun: what accounts with this period used before counts no more. What was left
    /// of an allowance is not added to the next.
    fn on_bank_period(&mut self, period: BankPeriod, began_ms: u64) {
        for (account, renewal) in &mut self.renewals {
            if renewal.period == period && renewal.began_ms < began_ms {
                renewal.began_ms = began_ms;
                if let Some(balance) = self.bank.accounts.get_mut(account) {
                    balance.used = ProcessorTime::default();
                }
            }
        }
    }

    /// The accounts that count from nothing again with each period.
    #[must_use]
    pub const fn renewals(&self) -> &BTreeMap<BankAccount, Renewal> {
        &self.renewals
    }

    /// An administrator sets an allowance, or closes the account.
    pub(crate) fn on_set_bank(&mut self, account: BankAccount, allowance: Option<ProcessorTime>) {
        if self.bank.accounts.is_empty() {
            // Until now no account was charged, and what was used so far counts for none.
            let jobs: Vec<JobId> = self.jobs.keys().collect();
            for job in jobs {
                let service = self.ledger.service(job, self.now);
                if let Some(residence) = self.residence_mut(job) {
                    residence.charged = service;
                }
            }
        }
        match allowance {
            Some(allowance) => self.bank.accounts.entry(account).or_default().allowance = allowance,
            None => {
                self.bank.accounts.remove(&account);
                self.renewals.remove(&account);
            }
        }
    }

    /// An account with a spent allowance, or with one again, gets another class.
    pub(crate) fn reclassify(&mut self) {
        if self.bank.accounts.is_empty() && self.bank.spent.is_empty() {
            return;
        }
        let spent = self.bank.accounts.iter().filter(|(_, balance)| balance.is_spent());
        let spent: BTreeSet<BankAccount> = spent.map(|(&account, _)| account).collect();
        if spent == self.bank.spent {
            return;
        }
        self.bank.spent = spent;
        let jobs: Vec<JobId> = self.jobs.keys().collect();
        for job in jobs {
            self.reclassify_job(job);
        }
    }

    /// The same for one job.
    pub(crate) fn reclassify_job(&mut self, job: JobId) {
        let Some(record) = self.jobs.get_mut(&job) else { return };
        if self.bank.reclassify(record) {
            self.after_reclass(job);
        }
    }

    /// When an allowance could be spent at the earliest.
    pub(crate) fn next_spent(&self, now: ClusterTime) -> ClusterTime {
        let mut at = ClusterTime::NEVER;
        for (account, balance) in self.bank.accounts.iter().filter(|(_, it)| !it.is_spent()) {
            let theirs = self.matrix.seats().filter(|(job, seat)| {
                let record = self.jobs.get(job);
                seat.active && record.is_some_and(|it| accounts_of(&it.spec).contains(account))
            });
            let processors: u64 = theirs.map(|(_, seat)| seat.processors).sum();
            if processors > 0 {
                let time = balance.left().0.div_ceil(u128::from(processors));
                let time = Nanos(u64::try_from(time).unwrap_or(u64::MAX));
                at = at.min(now + time.max(BANK_GRAIN));
            }
        }
        at
    }

    /// All accounts, users first, as of the latest event.
    pub fn bank(&self) -> impl Iterator<Item = (BankAccount, Balance)> + '_ {
        self.bank.accounts.iter().map(|(&account, &balance)| (account, balance))
    }
}
