//! Nodes that differ: the comparison of placements of the General Resource Manager's figure 3, and
//! how jobs get on where one node is slower than another.

use crate::scenario::{S, ends, gang, job, settings};
use tutti_sim::{Host, Job, Machine, Settings, parse_hosts};
use tutti_types::{Nanos, Weights};

/// The machine of the documented comparison.
const FORTY_SEVEN: &str = include_str!("../../../../docs/benchmarks/grm/hosts.txt");
const PLACEMENTS: [&str; 4] = ["round-robin", "spare-cycles", "low-load", "high-load"];
const MINUTE: u64 = 60 * S;

fn on(hosts: &str, settings: Settings) -> Settings {
    let hosts = parse_hosts(hosts).unwrap();
    Settings { machine: Machine::of_hosts(&hosts).unwrap(), hosts, ..settings }
}

/// How long the Monte Carlo job of the documented comparison takes under each placement.
fn execution_times(hosts: &[Host]) -> Vec<u64> {
    let monte_carlo = Job { estimate: Nanos(120 * MINUTE), ..job(0, 10 * MINUTE, 30) };
    let time = |placement| {
        let mut settings = Settings {
            machine: Machine::of_hosts(hosts).unwrap(),
            hosts: hosts.to_vec(),
            weights: Some(Weights { int: 1, double: 3, ..Weights::NONE }),
            bags: true,
            ..settings(1, "space")
        };
        settings.params.choose("placement", placement).unwrap();
        ends(&settings, &[monte_carlo])[0] / S
    };
    PLACEMENTS.map(time).to_vec()
}

#[test]
fn on_mixed_hosts_the_load_is_not_enough() {
    let hosts = parse_hosts(FORTY_SEVEN).unwrap();
    let mut kinds: Vec<&str> = hosts.iter().filter_map(|it| it.name.split('-').next()).collect();
    kinds.sort_unstable();
    kinds.dedup();
    assert_eq!((hosts.len(), kinds.len()), (47, 5));
    let times = execution_times(&hosts);
    assert!(times.is_sorted_by(|slower, faster| slower > faster), "{times:?}");
    let fraction = |a: usize, b: usize| times[a] as f64 / times[b] as f64;
    assert!(fraction(2, 1) < 0.75, "estimates are worth something: {times:?}");
}

#[test]
fn on_hosts_of_one_kind_the_load_is_enough() {
    let mut hosts = parse_hosts(FORTY_SEVEN).unwrap();
    let figures = hosts[0].figures;
    hosts.iter_mut().for_each(|host| host.figures = figures);
    let times = execution_times(&hosts);
    assert!(times[0] > times[1], "{times:?}");
    assert_eq!(times[1], times[2], "the least loaded are the fastest");
}

#[test]
fn a_gang_is_as_fast_as_its_slowest_task_and_a_bag_ends_task_by_task() {
    let hosts = "fast 1 0 3 3 3 3 0\nslow 1 0 1 1 1 1 0";
    let wide = |run: u64| Job { estimate: Nanos(1000 * S), ..job(0, run * S, 2) };
    // The mean of the nodes is two.
    let gang_ends = ends(&on(hosts, settings(1, "space")), &[wide(150)]);
    assert_eq!(gang_ends, [300 * S]);
    // In turns of a second, each gets half of the fast node. The bag needs a hundred seconds of it,
    // which it has after 199; then the other has had 99 of 150, and every turn is its own.
    let small = Job { estimate: Nanos(1000 * S), ..job(0, 225 * S, 1) };
    let mut turns = on(hosts, gang(1, 2, S));
    turns.params.choose("placement", "low-load").unwrap();
    turns.bags = true;
    let by_slot = Settings { progress: tutti_sim::Progress::BySlot, ..turns.clone() };
    let bag_ends = ends(&turns, &[wide(150), small]);
    assert_eq!(bag_ends, ends(&by_slot, &[wide(150), small]));
    assert_eq!(bag_ends[1], 250 * S);
    turns.bags = false;
    assert_eq!(ends(&turns, &[wide(150), small])[1], 300 * S);
}

#[test]
fn a_job_that_is_slow_where_it_is_ends_at_its_limit() {
    let hosts = "slow 1 0 1 1 1 1 3\nfast 1 0 3 3 3 3 0";
    let limited = Job { estimate: Nanos(150 * S), ..job(0, 100 * S, 2) };
    let settings = on(hosts, settings(1, "space"));
    assert_eq!(ends(&settings, &[limited]), [150 * S]);
    let bags = Settings { bags: true, ..settings };
    assert_eq!(ends(&bags, &[limited]), [150 * S]);
}
