//! Weights of users.

use crate::cluster::Cluster;
use tutti_core::Event;
use tutti_types::limits::{USER_WEIGHT_MAX, USER_WEIGHTS_MAX};
use tutti_types::{BankAccount, GroupId, UserId};

const ADA: BankAccount = BankAccount::User(UserId(7));
const PHYSICS: BankAccount = BankAccount::Group(GroupId(3));

fn weigh(c: &mut Cluster, account: BankAccount, weight: Option<u32>) {
    c.event(Event::SetWeight { account, weight });
}

#[test]
fn the_weight_of_a_user_counts_before_that_of_the_group() {
    let mut c = Cluster::with_nodes(&[4]);
    assert_eq!(c.core.weight_of(7, 3), 1);
    weigh(&mut c, PHYSICS, Some(3));
    assert_eq!((c.core.weight_of(7, 3), c.core.weight_of(7, 4)), (3, 1));
    weigh(&mut c, ADA, Some(2));
    assert_eq!((c.core.weight_of(7, 3), c.core.weight_of(8, 3)), (2, 3));
    weigh(&mut c, ADA, None);
    assert_eq!(c.core.weight_of(7, 3), 3);
    assert_eq!(c.core.weights().collect::<Vec<_>>(), [(PHYSICS, 3)]);
}

#[test]
fn a_weight_that_may_not_be_is_ignored() {
    let mut c = Cluster::with_nodes(&[4]);
    for weight in [0, USER_WEIGHT_MAX + 1, u32::MAX] {
        weigh(&mut c, ADA, Some(weight));
    }
    assert_eq!(c.core.weights().count(), 0);
    for user in (100..).take(USER_WEIGHTS_MAX) {
        weigh(&mut c, BankAccount::User(UserId(user)), Some(2));
    }
    weigh(&mut c, ADA, Some(USER_WEIGHT_MAX));
    assert_eq!(c.core.weight_of(7, 3), 1, "the table is full");
    weigh(&mut c, BankAccount::User(UserId(100)), Some(5));
    assert_eq!(c.core.weight_of(100, 3), 5);
}
