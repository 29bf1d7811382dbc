//! Weights of users: how much more one may use than another.
//!
//! Where users compete, their use counts divided by their weights. The weight of a job's user
//! counts; without one, that of the group of the job; without that, 1.

use crate::apply::Core;
use alloc::collections::BTreeMap;
use serde::{Deserialize, Serialize};
use tutti_types::account::BankAccount;
use tutti_types::ids::{GroupId, UserId};
use tutti_types::limits::{USER_WEIGHT_MAX, USER_WEIGHTS_MAX};

/// The weights that were set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct UserWeights {
    by_account: BTreeMap<BankAccount, u32>,
}

impl UserWeights {
    /// The weight of a user with a job of that group.
    pub(crate) fn of(&self, user: UserId, group: GroupId) -> u32 {
        let accounts = [BankAccount::User(user), BankAccount::Group(group)];
        accounts.iter().find_map(|account| self.by_account.get(account)).copied().unwrap_or(1)
    }
}

impl Core {
    /// The weight of a user with a job of that group, from 1 to [`USER_WEIGHT_MAX`].
    #[must_use]
    pub fn weight_of(&self, owner: u32, group: u32) -> u32 {
        self.weights.of(UserId(owner), GroupId(group))
    }

    /// The weights that were set, users first.
    pub fn weights(&self) -> impl Iterator<Item = (BankAccount, u32)> + '_ {
        self.weights.by_account.iter().map(|(&account, &weight)| (account, weight))
    }

    /// An administrator sets the weight of a user or a group, or takes it back.
    pub(crate) fn on_set_weight(&mut self, account: BankAccount, weight: Option<u32>) {
        // Slots are as long as users weigh.
        self.outbox.reshaped = true;
        self.queue.stale = true;
        self.queue.disturbed = true;
        let weights = &mut self.weights.by_account;
        match weight {
            None => drop(weights.remove(&account)),
            Some(weight) if !(1..=USER_WEIGHT_MAX).contains(&weight) => {}
            Some(weight) => {
                if weights.len() < USER_WEIGHTS_MAX || weights.contains_key(&account) {
                    weights.insert(account, weight);
                }
            }
        }
        self.weigh_anew(account);
    }
}
