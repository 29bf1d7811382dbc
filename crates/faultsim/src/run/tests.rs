//! Many worlds, and the ways that once failed: by hand, `cargo run -p faultsim` has more.
#![expect(clippy::print_stdout, reason = "how many worlds there were is shown")]

use super::*;
use crate::engine::HEAD;
use crate::script::{Act, FIRST_CALM, FIRST_THAT_CUTS_SHORT, Plan, Timed};
use std::time::{SystemTime, UNIX_EPOCH};
use tutti_agent as agent;
use tutti_node::simulated::machine::{Daemon, at, machine};
use tutti_types::OnNodeLoss;

/// Worlds that are tried each time, with the same seeds, and those that are new each time. Half of
/// the former are such as were there first, in which some kinds of misfortune do not occur.
const FIXED: u64 = 380;
const NEW: u64 = 200;

/// Seeds that have found something: a `run` that was accepted as the first on a full disk and
/// forgotten; one whose keeper ended before it had taken the front end in; ends that an earlier
/// controller had not brought to disk; a node that is lost while its tasks end; leases that are
/// over before they have come down a deep tree; launches that were forgotten with the power; a node
/// that joined and ended before it was heard of; a keeper that ends while it ends what no daemon
/// knows; an end that was taken for one by an earlier controller; tasks that end where no daemon
/// hears it, before the machine is restarted; a `run` whose launch a full disk did not take; a
/// launch that is forgotten while the next one ends, which was taken for wrong; a task that was
/// killed, and looked at again when its job had been launched once more; launches that a full disk
/// did not take, and of which the next controller did not know; an end that was not on disk when a
/// node of its job joined; a number that was forgotten with the power and given again while a
/// keeper still ended the job that had it; an agent that begins beside a keeper that is stopped,
/// while the node's lease ends; agents that were turned away by the head's for so long that they
/// did not go where it sent them any more; a machine that loses its power before it is on; a job
/// that was launched again since its node had another keeper than was known; a part of a job that
/// had ended and was begun again when its machine had been restarted, and then the controller; an
/// answer that was seconds under way, from which the time was taken for better known than it was;
/// two agents of a machine that began at the same nanosecond; cluster time after a restart of the
/// controller's machine that was near what it had been before; a job that began while the
/// controller after a loss of power said one by one which nodes are out of reach, beside itself as
/// the one before had launched it; agent and keeper of a node that stood still at once; an agent of
/// the controller's machine that stood still until its node was lost, or another one, for which it
/// vouched when it went on; tasks of a launch that were taken for those of a later one, or of one
/// that was known to a daemon after a loss of power, by the world itself; nodes that were lost, and
/// joined under a controller of which a loss of power left nothing; numbers that were left out
/// after a loss of power, and given out since the next one took that away; ends that a stopped
/// controller had not brought to disk, and launches of which it was told too late, which the world
/// took for being there; a launch that a keeper was given before it had said what it holds, so that
/// the agent took it for lost; an agent that was killed between telling the keeper of a launch and
/// holding its group, so that it ran out of its turn; an agent that was stopped below another one
/// while the controller's machine was restarted, whose time the world took for being gone by though
/// its lease was over; a head's agent that had just begun, which the check took for one that knows
/// the time of before the restart; an unknown launch whose end was reported twice, so that the
/// second time was taken for the end of the launch that had got its number.
const FOUND: &[u64] = &[
    500_195,
    500_588,
    500_159,
    2_000_845,
    2_000_252,
    2_000_281,
    2_000_677,
    2_000_736,
    2_000_503,
    3_000_127,
    3_000_727,
    4_000_123,
    4_000_970,
    4_000_054,
    5_000_070,
    5_011_330,
    5_013_604,
    5_014_070,
    5_014_334,
    6_000_487,
    6_001_692,
    6_001_796,
    1_795_349_063,
    1_795_356_858,
    7_100_704,
    8_002_680,
    9_001_183,
    11_019_635,
    11_031_980,
    1_795_372_468,
    12_013_942,
    12_022_311,
    12_007_417,
    12_012_021,
    13_007_327,
    13_015_737,
    13_016_903,
    14_059_186,
    14_025_902,
    14_066_025,
    14_084_076,
    16_021_740,
    16_061_939,
    16_028_462,
    16_069_213,
    13_016_004,
    20_000_437,
    20_000_953,
    20_001_042,
    20_001_334,
    20_026_319,
    20_062_349,
    90_012_811,
    90_106_586,
    90_106_697,
    90_107_450,
    90_149_566,
    90_161_162,
    1_795_922_576,
    1_795_948_288,
];

/// The same for clusters of some size in a calm time.
const CALM: u64 = 2;

#[test]
fn in_all_worlds_everything_goes_well() {
    let calm = FIRST_CALM..FIRST_CALM + CALM;
    let cut_short = FIRST_THAT_CUTS_SHORT..FIRST_THAT_CUTS_SHORT + FIXED / 2;
    let fixed = (0..FIXED / 2).chain(cut_short).chain(FOUND.iter().copied());
    judge(&fixed.chain(calm).collect::<Vec<_>>());
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs());
    println!("new seeds from {now} on");
    let calm = FIRST_CALM + now..FIRST_CALM + now + CALM;
    judge(&(now..now + NEW).chain(calm).collect::<Vec<_>>());
}

/// Fails if any of them did, with the report.
fn judge(seeds: &[u64]) {
    let report = live_all(seeds);
    println!("{}", report.summary());
    if let Some(failure) = report.first_failure() {
        panic!("{failure}");
    }
}

#[test]
fn the_same_seed_gives_the_same_world_to_the_last_event() {
    for seed in [3, 14, 29, 43] {
        let [one, other] = [0, 1].map(|_| live(Script::of(seed), false));
        assert_eq!(one, other, "seed {seed}");
        assert!(one.rounds > 100, "something happened");
    }
}

#[test]
fn worlds_of_other_seeds_are_others() {
    let [one, other] = [3, 4].map(|seed| live(Script::of(seed), false));
    assert_ne!(one.digest, other.digest);
}

/// One machine, on which these things happen at these moments, in milliseconds.
pub(super) fn told(acts: Vec<(u64, Act)>) -> Script {
    let timed = acts.into_iter().enumerate();
    let timed = timed.map(|(number, (at_ms, act))| Timed { number, at_ns: at_ms * 1_000_000, act });
    let (acts, calm_ns) = (timed.collect(), 3 * SEC);
    Script { machines: 1, params: Vec::new(), making_way: None, acts, calm_ns, ..Script::of(1) }
}

/// A job that is begun again wherever it was lost.
pub(super) const JOB: Plan = Plan {
    tasks: 1,
    life_ms: 60_000,
    lines: 0,
    code: 0,
    class: "production",
    on_node_loss: OnNodeLoss::Requeue,
    is_attached: false,
    nodes: None,
};

/// The agent of the controller's machine stands still, and nothing suspends what runs there: its
/// lease has no end. When it goes on it vouches for others.
#[test]
fn no_node_is_lost_while_the_agent_of_the_controllers_machine_stands_still() {
    let script = told(vec![
        (1_000, Act::Submit(JOB)),
        (2_000, Act::Stop(HEAD, Daemon::Agent, 45_000_000_000)),
        (2_100, Act::Crash(HEAD, Daemon::Controller, 10_000_000)),
    ]);
    let mut world = World::new(Script { machines: 2, calm_ns: 50 * SEC, ..script }, false);
    world.prepare();
    world.run_until(40 * SEC);
    assert_eq!(world.controller().unwrap().core().lost_nodes().count(), 0);
    come_to_an_end(&mut world);
    tutti_node::simulated::machine::leave();
    assert!(world.wrong.is_empty(), "{:#?}", world.wrong);
}

/// Agents are stopped while the controller's machine is restarted, and its time goes back. An agent
/// below another one still has the former time when it goes on. Its lease is over, so nothing runs
/// by that time.
#[test]
fn the_former_cluster_time_is_not_gone_by_after_the_lease() {
    let stopped = |site| (5_000, Act::Stop(site, Daemon::Agent, 40 * SEC));
    // Those that join now find that the head takes two.
    let begins_anew = |site| (2_000, Act::Crash(site, Daemon::Agent, 10_000_000));
    let script = told(vec![
        begins_anew(1),
        begins_anew(2),
        begins_anew(3),
        stopped(1),
        stopped(2),
        stopped(3),
        (6_000, Act::PowerLoss(HEAD, 1_000_000_000)),
    ]);
    let params =
        vec![("fan_out".to_owned(), "2".to_owned()), ("lease".to_owned(), "5s".to_owned())];
    let mut world = World::new(Script { machines: 4, params, calm_ns: 60 * SEC, ..script }, false);
    world.prepare();
    world.run_until(5 * SEC);
    let members = 1..4;
    let joined = |world: &World, site| world.agent(site).is_some_and(agent::Stepped::has_joined);
    assert!(members.clone().all(|site| joined(&world, site)), "all are in");
    world.run_until(44 * SEC);
    let era = |site| world.agent(site).unwrap().era();
    for site in members {
        assert_ne!(era(site), era(HEAD), "n{site} has not heard of the restart");
        assert!(!at(site, || world.agent(site).unwrap().holds_lease()));
    }
    come_to_an_end(&mut world);
    tutti_node::simulated::machine::leave();
    assert!(world.wrong.is_empty(), "{:#?}", world.wrong);
}

/// A task runs to its end while there is no controller, and then its keeper ends. The next
/// controller hears that there is another keeper; if it ends before it hears what the agent knows
/// of the job, and the agent with it, none does.
#[test]
fn what_an_earlier_keeper_has_begun_is_not_begun_again() {
    let plan = Plan {
        tasks: 1,
        life_ms: 60,
        lines: 0,
        code: 0,
        class: "interactive",
        on_node_loss: OnNodeLoss::Kill,
        is_attached: false,
        nodes: None,
    };
    let mut world = World::new(
        told(vec![
            (950, Act::Submit(plan)),
            (1_000, Act::Crash(HEAD, Daemon::Controller, 80_000_000)),
            (1_040, Act::Crash(HEAD, Daemon::Keeper, 2_000_000)),
        ]),
        false,
    );
    let has_joined = |world: &World| world.agent(HEAD).is_some_and(agent::Stepped::has_joined);
    world.prepare();
    world.run_until(1_079_000_000);
    assert!(!has_joined(&world), "the controller is not back yet");
    while !has_joined(&world) {
        world.run_until(world.now_ns + 1_000);
        assert!(world.now_ns < 2 * SEC, "it joins");
    }
    world.crash(HEAD, Daemon::Controller, 30_000_000);
    world.crash(HEAD, Daemon::Agent, 30_000_000);
    come_to_an_end(&mut world);
    tutti_node::simulated::machine::leave();
    assert!(world.wrong.is_empty(), "{:#?}", world.wrong);
}

/// Two jobs of one task each take turns on either processor. Both on one of them end, and one of
/// the others moves there. Whatever stands still or is killed about then, it has left its old
/// processor before another job runs there, and both run in the end.
#[test]
fn a_job_that_moves_leaves_its_old_processor_before_another_runs_there() {
    let job = |life_ms| Act::Submit(Plan { life_ms, on_node_loss: OnNodeLoss::Kill, ..JOB });
    let jobs = [(1_000, 2_000), (1_010, 30_000), (1_020, 2_000), (1_030, 30_000)];
    let pause = 150_000_000;
    let faults = |at_ms| {
        [
            None,
            Some((at_ms, Act::Crash(HEAD, Daemon::Agent, pause))),
            Some((at_ms, Act::Crash(HEAD, Daemon::Controller, pause))),
            Some((at_ms, Act::Stop(HEAD, Daemon::Keeper, 2 * SEC))),
            Some((at_ms, Act::Stop(HEAD, Daemon::Agent, 500_000_000))),
        ]
    };
    // They end after some five seconds, and 100 ms later one moves.
    for fault in (4_900..5_500).step_by(60).flat_map(faults) {
        let acts = jobs.map(|(at_ms, life_ms)| (at_ms, job(life_ms))).into_iter();
        let script = told(acts.chain(fault.clone()).collect());
        let script = Script { processors: 2, calm_ns: 15 * SEC, cuts_short: true, ..script };
        let mut world = World::new(script, false);
        world.prepare();
        world.run_until(12 * SEC);
        let running: Vec<_> = machine(HEAD, |machine| {
            let running = machine.taking_turns();
            running.map(|it| (it.job, it.processors())).collect()
        });
        let moved =
            matches!(running[..], [(one, on), (other, there)] if one != other && on != there);
        tutti_node::simulated::machine::leave();
        assert!(moved && world.wrong.is_empty(), "{fault:?}: {running:?}, {:#?}", world.wrong);
    }
}
