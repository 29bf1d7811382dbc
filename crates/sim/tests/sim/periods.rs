//! Parameters of some hours, in a simulation.

use crate::scenario::{S, ends, gang, job};
use tutti_sim::Settings;
use tutti_types::{ClusterTime, Overrides, parse_week};

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
