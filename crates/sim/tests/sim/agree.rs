//! Progress by arithmetic agrees with progress slot by slot; and the same run twice is the same.

use crate::scenario::{gang, job, simulate};
use proptest::prelude::*;
use tutti_sim::{Job, Machine, Order, Progress, Settings};
use tutti_types::Nanos;

const MS: u64 = 1_000_000;

fn random_jobs() -> impl Strategy<Value = Vec<Job>> {
    let job = (0u64..60 * MS, 1u64..200 * MS, 1u32..9);
    prop::collection::vec(job, 1..40).prop_map(|jobs| {
        let mut submit = 0;
        let spaced = jobs.into_iter().map(|(gap, run, width)| {
            submit += gap;
            let short = gap % 7 == 0;
            let estimate = Nanos(if short { run / 2 } else { run + gap });
            Job { estimate, number: submit, ..crate::scenario::job(submit, run, width) }
        });
        spaced.collect()
    })
}

/// Nodes of different speeds and loads.
fn random_hosts() -> impl Strategy<Value = String> {
    let host = (1u32..5, 1u32..9, 0u32..3);
    prop::collection::vec(host, 2..5).prop_map(|hosts| {
        let line = |(width, speed, load)| format!("h {width} 0 {speed} {speed} 5 {speed} {load}");
        hosts.into_iter().map(line).collect::<Vec<_>>().join("\n")
    })
}

proptest! {
    #[test]
    fn arithmetic_agrees_with_slots_where_nodes_differ(
        jobs in random_jobs(), hosts in random_hosts(), rows in 1u64..4, quantum in 2 * MS..40 * MS,
        placement in 0u64..5, bags in any::<bool>(),
    ) {
        let hosts = tutti_sim::parse_hosts(&hosts).unwrap();
        let machine = Machine::of_hosts(&hosts).unwrap();
        let mut by_event =
            Settings { machine, hosts, bags, skips_declined: true, ..gang(1, rows, quantum) };
        by_event.params.set("placement", placement).unwrap();
        let by_slot = Settings { progress: Progress::BySlot, ..by_event.clone() };
        let (a, summary_a) = simulate(&by_event, jobs.iter().copied());
        let (b, summary_b) = simulate(&by_slot, jobs.iter().copied());
        prop_assert_eq!(&a, &b);
        prop_assert_eq!(a.len() as u64 + summary_a.declined(), jobs.len() as u64);
        prop_assert_eq!(summary_a.utilisation(), summary_b.utilisation());
        prop_assert!(summary_a.utilisation() <= 1.0);
    }
}

proptest! {
    #[test]
    fn arithmetic_agrees_with_slots(
        jobs in random_jobs(), rows in 1u64..6, quantum in 2 * MS..40 * MS,
        cost in prop_oneof![Just(0), 1u64..3 * MS, 5 * MS..60 * MS],
        nodes in prop_oneof![Just((1, 8)), Just((2, 4)), Just((8, 1))],
        end_first in any::<bool>(),
    ) {
        let machine = Machine::new(nodes.0, nodes.1).unwrap();
        let order = if end_first { Order::EndFirst } else { Order::SubmitFirst };
        // A job that loses all of its turns to switches never ends.
        let switch_cost = Nanos(cost.min(quantum / 2));
        let by_event = Settings { machine, order, switch_cost, ..gang(1, rows, quantum) };
        let by_slot = Settings { progress: Progress::BySlot, ..by_event.clone() };
        let (a, summary_a) = simulate(&by_event, jobs.iter().copied());
        let (b, summary_b) = simulate(&by_slot, jobs.iter().copied());
        prop_assert_eq!(&a, &b);
        prop_assert_eq!(a.len(), jobs.len());
        prop_assert_eq!(summary_a.switches(), summary_b.switches());
        prop_assert_eq!(summary_a.utilisation(), summary_b.utilisation());
        prop_assert_eq!(summary_a.switching(), summary_b.switching());
        prop_assert_eq!(summary_a.loss_of_capacity(), summary_b.loss_of_capacity());
        let (again, _) = simulate(&by_event, jobs.iter().copied());
        prop_assert_eq!(a, again);
    }
}

#[test]
fn lead_delays_what_was_decided_in_both() {
    let jobs = [job(0, 50 * MS, 8), job(7 * MS, 30 * MS, 8), job(9 * MS, 80 * MS, 4)];
    let mut settings = gang(8, 3, 10 * MS);
    let (without, _) = simulate(&settings, jobs);
    settings.params.set("lead", 5 * MS).unwrap();
    let by_slot = Settings { progress: Progress::BySlot, ..settings.clone() };
    let (with, _) = simulate(&settings, jobs);
    assert_eq!(with, simulate(&by_slot, jobs).0);
    assert_ne!(with, without);
}
