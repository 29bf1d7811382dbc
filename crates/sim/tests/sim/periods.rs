//! Parameters of some hours, in a simulation.

use crate::scenario::{S, ends, gang, job, settings};
use tutti_sim::{ChangeAtTimes, Machine, Settings};
use tutti_types::{
    ClusterTime, NamedNodes, Nanos, NodeId, Overrides, Params, TimedChange, default_classes,
    parse_week,
};

const HOUR: u64 = 3600 * S;

/// Two processors; at night, jobs take turns.
fn by_night(rows_by_day: u64, begins: &str) -> Settings {
    let rows =
        |rows| Overrides { params: [("rows".to_owned(), rows)].into(), ..Overrides::default() };
    Settings {
        periods: vec![("20:00-06:00".parse().unwrap(), rows(2))],
        calendar: vec![(ClusterTime(0), parse_week(begins).unwrap())],
        ..gang(2, rows_by_day, 60 * S)
    }
}

#[test]
fn jobs_take_turns_from_the_hour_on_in_which_they_may() {
    let jobs = [job(0, 3 * HOUR, 2), job(0, HOUR, 2)];
    assert_eq!(ends(&by_night(1, "mon 12:00"), &jobs), [3 * HOUR, 4 * HOUR]);
    // From 20:00 on, an hour after the beginning, the second takes every other turn, and the first
    // of them: the turn of the one that had run was just over.
    let turn = 60 * S;
    assert_eq!(ends(&by_night(1, "mon 19:00"), &jobs)[1], 3 * HOUR - turn);
    let without = Settings { calendar: Vec::new(), ..by_night(1, "mon 19:00") };
    assert_eq!(ends(&without, &jobs)[1], 4 * HOUR, "nobody knows what time it is");
    // Clocks are put back an hour, half an hour after the beginning.
    let mut back = by_night(1, "mon 19:00");
    back.calendar.push((ClusterTime(HOUR / 2), parse_week("mon 18:30").unwrap()));
    assert_eq!(ends(&back, &jobs)[1], 4 * HOUR - turn, "two hours, then two of turns");
}

#[test]
fn a_simulation_whose_hours_change_for_ever_ends_all_the_same() {
    let settings = by_night(2, "mon 00:00");
    let jobs = [job(0, S, 1)];
    assert_eq!(ends(&settings, &jobs), [S]);
}

/// A change at these hours after the beginning.
fn at(hours: &[u64], change: TimedChange) -> ChangeAtTimes {
    let moments = hours.iter().map(|hours| (ClusterTime(hours * HOUR), hours * 3_600_000));
    let settings = tutti_types::Settings::new(Params::default(), default_classes());
    ChangeAtTimes::new(("00:00".parse().unwrap(), change), moments, &settings).unwrap()
}

fn node_0() -> NamedNodes {
    NamedNodes { list: "node0".into(), nodes: [NodeId(0)].into(), sets: [].into() }
}

#[test]
fn a_node_that_goes_out_at_a_time_takes_no_job_that_may_last_longer() {
    let timed = vec![
        at(&[2], TimedChange::Out { nodes: node_0(), ahead: None }),
        at(&[5], TimedChange::In { nodes: node_0() }),
    ];
    let of_two = Settings { machine: Machine::new(2, 1).unwrap(), ..settings(1, "space:fcfs") };
    let changed = Settings { timed, ..of_two.clone() };
    // Two short ones fill both nodes; one that is too long for the first waits for the second.
    let jobs = [job(0, HOUR, 1), job(0, HOUR, 1), job(0, 3 * HOUR, 1), job(0, 3 * HOUR, 1)];
    assert_eq!(ends(&of_two, &jobs), [HOUR, HOUR, 4 * HOUR, 4 * HOUR]);
    // The last one has the second node after the third, before the first comes back.
    assert_eq!(ends(&changed, &jobs), [HOUR, HOUR, 4 * HOUR, 7 * HOUR]);
    // Whatever is to come, nothing is waited for once all jobs have ended.
    let back = TimedChange::In { nodes: node_0() };
    let ended = Settings { timed: vec![at(&[90], back)], ..of_two };
    assert_eq!(ends(&ended, &jobs[..1]), [HOUR]);
}

#[test]
fn parameters_change_at_a_time_of_a_simulation() {
    let rows = [("rows".to_owned(), 2)].into();
    let overrides = Overrides { params: rows, ..Overrides::default() };
    let set = at(&[1], TimedChange::Set(overrides));
    let settings = Settings { timed: vec![set], ..gang(2, 1, 60 * S) };
    let jobs = [job(0, 3 * HOUR, 2), job(0, HOUR, 2)];
    let turn = Nanos::from_secs(60).0;
    assert_eq!(ends(&settings, &jobs)[1], 3 * HOUR - turn);
}
