//! A policy outside: what it may order, and what the built-in policy promised before.

use crate::cluster::{Cluster, job, params};
use tutti_core::{Event, Order, OrderRefusal, RowChoice};
use tutti_types::{
    IfAbsent, JobId, JobSpec, Nanos, NoRespawn, NodeId, OnNodeLoss, ProcessorSet, RowId,
};

fn of(processors: u32, seconds: u64) -> JobSpec {
    let (time_limit, grace) = (Some(Nanos::from_secs(seconds)), Nanos::ZERO);
    JobSpec { time_limit, grace, ..job(processors) }
}

const fn start(job: JobId) -> Order {
    Order::Start { job, row: RowChoice::Any, places: Vec::new() }
}

#[test]
fn an_order_can_not_delay_a_start_that_was_promised() {
    for discipline in ["easy", "sjbf", "conservative"] {
        let mut params = params(&[("rows", 1)]);
        params.choose("policy", "external").unwrap();
        params.choose("discipline", discipline).unwrap();
        let mut c = Cluster::new(params);
        c.join(0, 3);
        let runs = c.submit(of(2, 60));
        let wide = c.submit(of(3, 60));
        c.event(Event::PolicyInCharge { on: true });
        let (long, short) = (c.submit(of(1, 100)), c.submit(of(1, 30)));
        let refused = c.core.check_order(&start(long));
        assert_eq!(refused, Err(OrderRefusal::Delays(long, wide)), "{discipline}");
        for order in [Order::Preempt { job: runs }, Order::Move { job: long, before: None }] {
            assert_eq!(c.core.check_order(&order), Err(OrderRefusal::Promised), "{discipline}");
        }
        c.order(start(long));
        c.order(start(short));
        assert!(c.core.parts(long).is_empty() && !c.core.parts(short).is_empty(), "{discipline}");
        c.advance_ms(30_000);
        c.finish(short);
        c.advance_ms(30_000);
        c.finish(runs);
        assert!(!c.core.parts(wide).is_empty(), "{discipline}: the promise is kept");
    }
}

/// A cluster under a policy outside, with two nodes of two processors, a gang on both, and a job on
/// the first alone, each in a row of its own.
fn with_two_rows() -> (Cluster, JobId, JobId) {
    let mut params = params(&[("rows", 4)]);
    params.choose("policy", "external").unwrap();
    let mut c = Cluster::new(params);
    c.join(0, 2);
    c.join(1, 2);
    c.event(Event::PolicyInCharge { on: true });
    let (gang, single) = (c.submit(of(4, 60)), c.submit(of(2, 60)));
    let on_first = vec![(NodeId(0), ProcessorSet::first(2))];
    for (job, places) in [(gang, Vec::new()), (single, on_first)] {
        c.order(Order::Start { job, row: RowChoice::New, places });
    }
    (c, gang, single)
}

fn first_in(c: &Cluster, node: u32, job: JobId) -> bool {
    let timetable = c.core.timetable(NodeId(node)).unwrap();
    let slot =
        timetable.slots.iter().find(|it| it.candidates.iter().any(|it| it.launch.job == job));
    slot.is_some_and(|slot| slot.candidates[0].launch.job == job)
}

#[test]
fn a_gang_comes_first_on_its_nodes_whatever_a_part_orders() {
    let (mut c, gang, single) = with_two_rows();
    let row = c.core.home(gang).and_then(|home| home.row);
    let arrange = |candidates| Order::Arrange { node: NodeId(0), row, candidates };
    let refused = |c: &Cluster, order: &Order| c.core.check_order(order).unwrap_err();
    // The built-in order has the gang first, too.
    let timetable = c.core.timetable(NodeId(0)).unwrap();
    let slot = timetable.slots.iter().find(|it| Some(it.row) == row).unwrap();
    let mut reversed: Vec<_> =
        slot.candidates.iter().map(|it| (it.launch.job, it.if_absent)).collect();
    assert_eq!(reversed.iter().map(|it| it.0).collect::<Vec<_>>(), [gang, single]);
    reversed.reverse();
    let order = arrange(reversed);
    assert_eq!(refused(&c, &order), OrderRefusal::NoChange);
    c.order(arrange(vec![(single, IfAbsent::Hold), (gang, IfAbsent::Hold)]));
    assert!(first_in(&c, 0, gang));
    let twice = arrange(vec![(gang, IfAbsent::Down), (gang, IfAbsent::Down)]);
    assert_eq!(refused(&c, &twice), OrderRefusal::Twice(gang));
    let nowhere = Order::Arrange { node: NodeId(7), row, candidates: Vec::new() };
    assert_eq!(refused(&c, &nowhere), OrderRefusal::NoNode(NodeId(7)));
    let no_row = Order::Arrange { node: NodeId(0), row: Some(RowId(99)), candidates: Vec::new() };
    assert_eq!(refused(&c, &no_row), OrderRefusal::NoRow(RowId(99)));
    let strange = arrange(vec![(JobId(99), IfAbsent::Down)]);
    let no_candidate = OrderRefusal::NoCandidate(JobId(99), NodeId(0), row.unwrap());
    assert_eq!(refused(&c, &strange), no_candidate);
    let reset = Order::Arrange { node: NodeId(0), row: None, candidates: Vec::new() };
    c.order(reset.clone());
    assert_eq!(refused(&c, &reset), OrderRefusal::NoChange);
    // A part of a program that is not in charge orders nothing.
    c.event(Event::PolicyInCharge { on: false });
    assert_eq!(refused(&c, &order), OrderRefusal::NotInCharge);
}

/// It has nothing left, and waits without a limit for the program to want it again.
#[test]
fn a_preempted_job_that_loses_its_node_starts_again_when_it_is_restored() {
    for restores in [true, false] {
        let mut params = params(&[]);
        params.choose("policy", "external").unwrap();
        let mut c = Cluster::new(params);
        c.join(0, 2);
        c.join(1, 2);
        c.event(Event::PolicyInCharge { on: true });
        let (wait, otherwise) = (Nanos::from_secs(1), NoRespawn::Kill);
        let on_node_loss = OnNodeLoss::Respawn { wait, signal: None, otherwise };
        let id = c.submit(JobSpec { on_node_loss, ..job(2) });
        c.order(start(id));
        let row = |c: &Cluster| c.core.home(id).map(|home| home.row);
        let node = c.core.parts(id)[0].node;
        assert!(row(&c).flatten().is_some());
        c.order(Order::Preempt { job: id });
        c.lose(node.0);
        c.arrive();
        c.advance_ms(5_000);
        assert_eq!(row(&c), Some(None), "it has no turns, and has not ended");
        match restores {
            true => c.order(Order::Restore { job: id }),
            // Without the program, preempted jobs come back.
            false => c.event(Event::PolicyInCharge { on: false }),
        }
        assert!(row(&c).flatten().is_some());
        assert_ne!(c.core.parts(id)[0].node, node);
    }
}
