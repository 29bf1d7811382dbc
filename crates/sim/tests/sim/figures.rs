//! Figures of a few jobs, worked out by hand.

use crate::scenario::{S, gang, job, settings, simulate};
use tutti_sim::{GroupBy, Job, Measure, Settings, Summary, run};
use tutti_types::Nanos;

/// One processor for 10 s; both for 5 s, which wait for it; one for 5 s with them.
fn jobs() -> [Job; 3] {
    let named = |number, user, job| Job { number, user, ..job };
    [
        named(1, 7, job(0, 10 * S, 1)),
        named(2, 8, job(0, 5 * S, 2)),
        named(3, 7, job(4 * S, 5 * S, 1)),
    ]
}

#[test]
fn three_jobs_first_come_first_served() {
    let (_, summary) = simulate(&settings(2, "space:fcfs"), jobs());
    let results = summary.results();
    // They start at 0, 10 and 15 s, and end at 10, 15 and 20 s.
    assert_eq!(results.wait_s, Measure { mean: 7.0, median: 10.0, p95: 10.9, max: 11.0 });
    assert_eq!(
        results.response_s,
        Measure { mean: 41.0 / 3.0, median: 15.0, p95: 15.9, max: 16.0 }
    );
    // Run times below 10 s count as 10 s: 1, 1.5, 1.6.
    assert!((results.slowdown.mean - 4.1 / 3.0).abs() < 1e-12);
    assert_eq!((results.slowdown.median, results.slowdown.max), (1.5, 1.6));
    assert_eq!(summary.makespan_s(), 20.0);
    assert_eq!(summary.utilisation(), 25.0 / 40.0);
    // A processor idles while the second waits, for 10 s; and none waits while one idles later.
    assert_eq!(summary.loss_of_capacity(), 10.0 / 40.0);
    assert_eq!((summary.switches(), results.preemptions, summary.switching()), (0, 0, 0.0));
}

#[test]
fn two_jobs_in_turns_with_a_price() {
    let settings = Settings { switch_cost: Nanos(S / 4), ..gang(2, 2, S) };
    let (finished, summary) = simulate(&settings, [job(0, 3 * S, 2), job(0, 3 * S, 2)]);
    // Each turn of a second gets 0.75 s done: four turns each. The second is alone in its last.
    assert_eq!(finished[0].end.0, 7 * S);
    assert_eq!(finished[1].end.0, 7 * S + 3 * S / 4);
    assert_eq!((finished[0].preemptions, finished[1].preemptions), (3, 3));
    assert_eq!(summary.switches(), 6);
    let lost_s = summary.switching() * summary.makespan_s();
    assert!((lost_s - (summary.makespan_s() - 6.0)).abs() < 1e-9, "{lost_s}");
}

#[test]
fn groups_add_up() {
    for (by, names) in [
        (GroupBy::User, &["7", "8"][..]),
        (GroupBy::Size, &["1", "2"]),
        (GroupBy::Class, &["only"]),
    ] {
        let mut summary = Summary::new(2, Some(by));
        let workload = jobs().into_iter().map(Ok::<_, std::convert::Infallible>);
        run(&settings(2, "space:fcfs"), workload, &mut summary).unwrap();
        let groups = summary.groups(&["only".to_owned()]);
        let found: Vec<&str> = groups.iter().filter_map(|it| it.group.as_deref()).collect();
        assert_eq!(found, names);
        assert_eq!(groups.iter().map(|group| group.jobs).sum::<u64>(), 3);
        let shares: f64 = groups.iter().map(|group| group.work_share).sum();
        assert!((shares - 1.0).abs() < 1e-12);
    }
}
