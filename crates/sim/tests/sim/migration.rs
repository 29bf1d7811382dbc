//! Jobs that go on on other processors, and what it costs them.

use crate::scenario::{S, ends, gang, job};
use tutti_sim::{Machine, MoveCost, Progress, Settings, parse_hosts};
use tutti_types::Nanos;

fn moving(seconds: u64) -> Settings {
    let mut settings = gang(4, 2, S);
    settings.params.choose("migration", "on").unwrap();
    let move_cost = MoveCost { per_job: Nanos(seconds * S), per_processor: Nanos::ZERO };
    Settings { movable: true, move_cost, ..settings }
}

#[test]
fn who_moves_beside_the_others_has_all_turns_but_for_what_it_costs() {
    // Three jobs of two processors on four: the third takes turns with the first, until the second
    // ends at 10; then it has had five seconds of a hundred.
    let jobs = [job(0, 100 * S, 2), job(0, 10 * S, 2), job(0, 100 * S, 2)];
    let stays = Settings { movable: false, ..moving(0) };
    assert_eq!(ends(&stays, &jobs), [199 * S, 10 * S, 200 * S]);
    // The first has had five seconds too, and loses no turn from then on.
    assert_eq!(ends(&moving(0), &jobs), [105 * S, 10 * S, 105 * S]);
    // Three seconds to leave, and three to come.
    assert_eq!(ends(&moving(3), &jobs), [105 * S, 10 * S, 111 * S]);
    let by_slot = Settings { progress: Progress::BySlot, ..moving(3) };
    assert_eq!(ends(&by_slot, &jobs), [105 * S, 10 * S, 111 * S]);
}

#[test]
fn a_job_that_moves_to_a_slower_node_takes_longer_from_then_on() {
    let hosts = parse_hosts("fast 2 0 3 3 3 3 0\nslow 2 0 1 1 1 1 0").unwrap();
    let machine = Machine::of_hosts(&hosts).unwrap();
    let limited = |run| tutti_sim::Job { estimate: Nanos(10_000 * S), ..job(0, run * S, 2) };
    // The first and the third need a hundred seconds of the fast node, the second ten of the slow
    // one.
    let jobs = [limited(150), limited(5), limited(150)];
    let settings = Settings { hosts, machine, ..moving(0) };
    // The third has had five seconds; the other 95 take three times as long.
    assert_eq!(ends(&settings, &jobs), [105 * S, 10 * S, 295 * S]);
}
