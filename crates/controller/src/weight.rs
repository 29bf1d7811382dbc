//! `tutti weight`: how much more some users may use than others.

use super::bank::{account, account_name};
use super::driver::Driver;
use super::error::Problem;
use tutti_core::Event;
use tutti_types::BankAccount;
use tutti_types::limits::{USER_WEIGHT_MAX, USER_WEIGHTS_MAX};
use tutti_wire::local::Reply;
use tutti_wire::report::WeightReport;

/// What a setting asks for: a user or group, and its new weight.
type Order = (BankAccount, Option<u32>);

impl Driver {
    pub(super) fn reply_weights(&mut self, token: u64) {
        let weights = self.core.weights();
        let weights =
            weights.map(|(of, weight)| WeightReport { account: account_name(of), weight });
        let weights = weights.collect();
        self.reply(token, &Reply::Weights(weights));
    }

    pub(super) fn on_set_weights(&mut self, token: u64, uid: u32, settings: &[(String, String)]) {
        let orders = self.admin(uid).map_err(Problem::from).and_then(|()| {
            let orders = settings.iter().map(|(account, value)| order(account, value));
            Ok(orders.collect::<Result<Vec<Order>, String>>()?)
        });
        let orders = match orders {
            Ok(orders) => orders,
            Err(problem) => return self.fail(token, problem),
        };
        if self.core.weights().count().saturating_add(orders.len()) > USER_WEIGHTS_MAX {
            let reason = format!(
                "at most {USER_WEIGHTS_MAX} users and groups can have a weight; give it to groups"
            );
            return self.fail(token, Problem::from(reason));
        }
        for (account, weight) in orders {
            self.apply(&Event::SetWeight { account, weight });
        }
        self.reply_weights(token);
    }
}

/// What is asked for.
pub(super) fn order(text: &str, value: &str) -> Result<Order, String> {
    let account = account(text)?;
    if value == "none" {
        return Ok((account, None));
    }
    let weight = value.parse::<u32>().ok().filter(|weight| (1..=USER_WEIGHT_MAX).contains(weight));
    let wrong = || {
        format!(
            "invalid weight {value:?} of {text}; write a whole number from 1 to {USER_WEIGHT_MAX}, \
             or none"
        )
    };
    weight.map(|weight| (account, Some(weight))).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::order;
    use tutti_types::{BankAccount, GroupId, UserId};

    #[test]
    fn a_weight_is_a_whole_number_from_1_to_1000_or_none() {
        assert_eq!(order("7", "3"), Ok((BankAccount::User(UserId(7)), Some(3))));
        assert_eq!(order("@7", "1000"), Ok((BankAccount::Group(GroupId(7)), Some(1000))));
        assert_eq!(order("7", "none"), Ok((BankAccount::User(UserId(7)), None)));
        for wrong in ["0", "1001", "-1", "1.5", "", "much"] {
            let error = order("7", wrong).unwrap_err();
            assert!(error.contains("from 1 to 1000"), "{error}");
        }
        assert!(order("no-such-user", "2").unwrap_err().contains("there is no user"));
        assert!(order("@no-such-group", "2").unwrap_err().contains("there is no group"));
    }
}
