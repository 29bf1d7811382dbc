//! What a loss of power of the controller's machine leaves, though nothing else happened that must
//! be on disk.

use super::tests::{JOB, told};
use super::{SEC, come_to_an_end};
use crate::engine::{HEAD, World};
use crate::script::{Act, Plan, Script};
use tutti_node::simulated::machine::{at, leave, name_of};
use tutti_types::{ClassName, Figures, JobId, OnNodeLoss};
use tutti_wire::local::{NodeChange, Request, Section, Setting};
use tutti_wire::report::Target;

/// How much of what was written last is there all the same is another matter with each.
const SEEDS: std::ops::Range<u64> = 1..9;

/// When a user asks for something, and when the power goes.
const ASKED_NS: u64 = 2 * SEC;
const LOST_MS: u64 = 8_000;

/// Two jobs, of which the second is suspended, and a class of no use; and the power goes at that
/// moment, for a tenth of a second.
fn losing_power(seed: u64, lost_ms: u64) -> World {
    let acts = vec![
        (300, Act::Submit(JOB)),
        (400, Act::Submit(JOB)),
        (500, Act::Suspend(0)),
        (lost_ms, Act::PowerLoss(HEAD, 100_000_000)),
    ];
    let calm_ns = (lost_ms + 2_000) * 1_000_000;
    let mut world = World::new(Script { seed, calm_ns, ..told(acts) }, false);
    world.prepare();
    world.users.command(class("day"));
    world
}

fn class(name: &str) -> Request {
    let settings = vec![("priority".to_owned(), "3".to_owned())];
    Request::SetClass { class: ClassName::new(name), settings }
}

/// What a user may have set, or asked for.
fn what_holds(world: &World) -> String {
    let Some(controller) = world.controller() else { return "nothing".into() };
    let core = controller.core();
    let bank: Vec<_> = core.bank().map(|(account, balance)| (account, balance.allowance)).collect();
    let weights: Vec<_> = core.weights().collect();
    let nodes: Vec<_> = core.nodes().map(|node| (node.id, node.drained, node.figures)).collect();
    let jobs: Vec<_> =
        core.jobs(at(HEAD, || controller.now())).map(|job| (job.id, job.suspended)).collect();
    format!(
        "{:?} {:?} {bank:?} {weights:?} {:?} {nodes:?} {jobs:?}",
        core.settings(),
        core.access(),
        core.node_sets()
    )
}

/// One of each that its user is told is done.
fn requests() -> Vec<Request> {
    let pair = |name: &str, value: &str| vec![(name.to_owned(), value.to_owned())];
    let job = |number| Target { job: JobId(number), rank: None, pid: None };
    let node = name_of(HEAD);
    let drain = NodeChange::Drain { reason: "dust".into() };
    vec![
        Request::SetParams { settings: pair("quantum", "250ms") },
        class("night"),
        Request::ForgetClass { class: ClassName::new("day") },
        Request::SetPeriod {
            period: "mon-fri 08:00-18:00".into(),
            class: None,
            settings: pair("quantum", "250ms"),
        },
        Request::Configure {
            settings: vec![Setting {
                line: 0,
                section: Section::Bank,
                during: None,
                name: "root".into(),
                value: "5h".into(),
            }],
            dry_run: false,
        },
        Request::SetWeights { settings: pair("root", "7") },
        Request::SetAccess { settings: pair("root", "anywhere") },
        Request::SetNodeSets { settings: pair("new", &node) },
        Request::ChangeNodes { nodes: node.clone(), change: drain },
        Request::Measured { node, figures: Figures { int: 1, float: 2, double: 3, memory: 4 } },
        Request::Suspend { target: job(1) },
        Request::Resume { target: job(2) },
    ]
}

/// And then nothing happens that must be on disk.
#[test]
fn what_was_set_or_asked_for_outlives_a_loss_of_power() {
    for request in requests() {
        for seed in SEEDS {
            let mut world = losing_power(seed, LOST_MS);
            world.run_until(ASKED_NS);
            let before = what_holds(&world);
            world.users.command(request.clone());
            world.wake_users();
            world.run_until(ASKED_NS + SEC / 2);
            let asked = what_holds(&world);
            assert_ne!(asked, before, "{request:?} is done");
            world.run_until(LOST_MS * 1_000_000 + SEC);
            assert_eq!(what_holds(&world), asked, "{request:?}, seed {seed}");
            come_to_an_end(&mut world);
            leave();
            assert!(world.wrong.is_empty(), "{request:?}, seed {seed}: {:#?}", world.wrong);
        }
    }
}

/// A job that runs for a minute, while nothing else happens, has run for most of it.
#[test]
fn time_goes_back_by_some_seconds_at_most() {
    for seed in SEEDS {
        let mut world = losing_power(seed, 50_000);
        let now = |world: &World| at(HEAD, || world.controller().map(|it| it.now().0));
        world.run_until(49 * SEC);
        let before = now(&world).unwrap();
        world.run_until(51 * SEC);
        let after = now(&world).unwrap();
        let back_ns = before.saturating_sub(after);
        assert!(back_ns < 20 * SEC, "seed {seed}: by {back_ns} ns");
        leave();
    }
}

/// After a loss of power a thousand numbers are left out, by which nodes may know jobs that were
/// forgotten. If that is forgotten with the power, too, they would be given once more.
#[test]
fn no_number_is_given_before_it_is_on_disk_which_are_left_out() {
    let run = Plan { is_attached: true, on_node_loss: OnNodeLoss::Kill, life_ms: 100, ..JOB };
    let loss = Act::PowerLoss(HEAD, 100_000_000);
    let acts = vec![
        (300, Act::Submit(JOB)),
        (2_000, loss.clone()),
        (2_050, Act::DiskBroken(true)),
        (4_000, Act::Submit(run)),
        (6_000, loss),
        (6_050, Act::DiskBroken(false)),
        (8_000, Act::Submit(run)),
    ];
    let mut world = World::new(Script { calm_ns: 9 * SEC, ..told(acts) }, false);
    world.prepare();
    world.run_until(6 * SEC - 1);
    assert_eq!((world.users.accepted.len(), world.users.refused), (1, 1), "the disk takes nothing");
    come_to_an_end(&mut world);
    leave();
    assert!(world.wrong.is_empty(), "{:#?}", world.wrong);
    assert_eq!(world.users.accepted.len(), 2);
}
