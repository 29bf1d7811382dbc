//! One agent's routes, told what passes.

use super::*;
use tutti_types::{JobId, LaunchId, NodeSpec, ProcessorSet};
use tutti_wire::branch::Joining;
use tutti_wire::launch::Usage;
use tutti_wire::tree::{Join, Settings};

const LEFT: Child = 20;
const RIGHT: Child = 21;

fn routes() -> Routes {
    let mut routes = Routes::new("here".into(), false);
    routes.note_own(1);
    assert_eq!(ways(&routes.split(welcome("here", 1, 0))), [Way::Here]);
    routes
}

/// The request of a node to join.
fn join(name: &str, attempt: u64) -> Report {
    let joining = Joining { attempt, life: 7, depth: 2, ..Joining::default() };
    let spec = NodeSpec { name: name.into(), processors: ProcessorSet::default(), memory_bytes: 0 };
    let join = Join {
        spec,
        held: Vec::new(),
        attach: Vec::new().into(),
        address: String::new(),
        tasks_max: 1,
        features: [].into(),
        keeper: 1,
        devices: Vec::new(),
        swap: tutti_wire::report::NodeSwap::default(),
        images: None,
    };
    Report { from: Origin::Joiner(joining), report: FromAgent::Join(join) }
}

fn answer(name: &str, attempt: u64, order: ToAgent) -> Order {
    Order { to: Recipients::Joiner { name: name.into(), attempt, life: 7 }, order }
}

fn welcome(name: &str, attempt: u64, node: u32) -> Order {
    let settings = Settings { fan_out: 2, ..Settings::default() };
    let (node, clock_ahead_ns) = (NodeId(node), 0);
    answer(name, attempt, ToAgent::Welcome { node, clock_ahead_ns, settings, known: Vec::new() })
}

fn refused(name: &str, attempt: u64) -> Order {
    answer(name, attempt, ToAgent::Refused { reason: String::new() })
}

fn ways(split: &Split) -> Vec<Way> {
    split.orders.iter().map(|(way, _)| *way).collect()
}

/// Has a node join below a child.
fn joined(routes: &mut Routes, child: Child, name: &str, node: u32) {
    assert!(routes.note_report(child, &mut join(name, 1)));
    assert_eq!(ways(&routes.split(welcome(name, 1, node))), [Way::Down(child)]);
}

fn report(node: u32) -> Report {
    let report = FromAgent::Cleared { launch: LaunchId::first(JobId(1)), usage: Usage::default() };
    Report { from: Origin::Nodes(vec![NodeId(node)]), report }
}

#[test]
fn who_asked_in_another_life_is_not_answered_in_this_one_and_is_gone() {
    let mut routes = routes();
    let mut asked = join("a", 1);
    if let Origin::Joiner(joining) = &mut asked.from {
        joining.life = 8;
    }
    assert!(routes.note_report(LEFT, &mut asked));
    let split = routes.split(welcome("a", 1, 5));
    assert_eq!(
        (split.orders.len(), split.gone),
        (0, vec![NodeId(5)]),
        "nobody else is let in before"
    );
}

#[test]
fn an_order_for_many_goes_each_way_once_with_those_that_are_there() {
    let mut routes = routes();
    joined(&mut routes, LEFT, "a", 1);
    joined(&mut routes, LEFT, "b", 2);
    joined(&mut routes, RIGHT, "c", 3);
    let nodes = [0, 1, 2, 3, 9].map(NodeId).to_vec();
    let order = Order { to: Recipients::Nodes(nodes), order: ToAgent::Stop };
    let split = routes.split(order);
    let to = |nodes: &[u32]| Recipients::Nodes(nodes.iter().copied().map(NodeId).collect());
    let expected =
        [(Way::Here, to(&[0])), (Way::Down(LEFT), to(&[1, 2])), (Way::Down(RIGHT), to(&[3]))];
    let found: Vec<_> = split.orders.into_iter().map(|(way, order)| (way, order.to)).collect();
    assert_eq!(found, expected);
    assert_eq!(routes.counts(), [(LEFT, 2), (RIGHT, 1)].into());
}

#[test]
fn nobody_reports_for_who_is_not_below_him() {
    let mut routes = routes();
    joined(&mut routes, LEFT, "a", 1);
    assert!(routes.note_report(LEFT, &mut report(1)));
    assert!(!routes.note_report(RIGHT, &mut report(1)));
    assert!(!routes.note_report(LEFT, &mut report(0)), "for this node itself");
    assert_eq!(routes.gone(RIGHT, vec![NodeId(1)]), []);
    // Of what several say together, the part that may be so counts.
    joined(&mut routes, RIGHT, "b", 2);
    let mut both = report(1);
    both.from = Origin::Nodes(vec![NodeId(1), NodeId(2)]);
    assert!(routes.note_report(LEFT, &mut both));
    assert_eq!(both.from, Origin::Nodes(vec![NodeId(1)]));
}

#[test]
fn who_has_moved_is_gone_first_and_the_old_place_has_nothing_more_to_say() {
    let mut routes = routes();
    joined(&mut routes, LEFT, "a", 1);
    let mut again = join("a", 2);
    assert_eq!(routes.has_left(&again), Some((LEFT, NodeId(1))));
    assert_eq!(routes.gone(LEFT, vec![NodeId(1)]), [NodeId(1)]);
    assert!(routes.note_report(RIGHT, &mut again));
    assert_eq!(routes.has_left(&again), None);
    assert_eq!(routes.gone(LEFT, vec![NodeId(1)]), []);
    assert_eq!(ways(&routes.split(welcome("a", 2, 1))), [Way::Down(RIGHT)]);
    assert_eq!(routes.lose(LEFT), []);
    assert_eq!(routes.way(Place::Node(NodeId(1))), Way::Down(RIGHT));
}

#[test]
fn another_agent_of_the_same_name_has_not_moved() {
    let mut routes = routes();
    joined(&mut routes, LEFT, "a", 1);
    let mut other = join("a", 1);
    let Origin::Joiner(joining) = &mut other.from else { panic!() };
    joining.life += 1;
    assert_eq!(routes.has_left(&other), None);
    assert!(routes.note_report(RIGHT, &mut other));
    // It is refused, and the one that was there first stays.
    let mut answer = refused("a", 1);
    let Recipients::Joiner { life, .. } = &mut answer.to else { panic!() };
    *life += 1;
    assert_eq!(ways(&routes.split(answer)), [Way::Down(RIGHT)]);
    assert_eq!(routes.way(Place::Node(NodeId(1))), Way::Down(LEFT));
}

#[test]
fn an_answer_to_an_earlier_request_is_nobodys() {
    let mut routes = routes();
    assert!(routes.note_report(LEFT, &mut join("a", 1)));
    assert!(routes.note_report(RIGHT, &mut join("a", 2)));
    let split = routes.split(welcome("a", 1, 1));
    assert_eq!((ways(&split), split.gone), (vec![], vec![]));
    assert_eq!(ways(&routes.split(welcome("a", 2, 1))), [Way::Down(RIGHT)]);
    // Nor does this node take one of its own for another.
    routes.note_own(2);
    assert_eq!(ways(&routes.split(welcome("here", 1, 0))), []);
}

#[test]
fn who_was_welcomed_and_is_not_there_any_more_is_gone() {
    let mut routes = routes();
    assert!(routes.note_report(LEFT, &mut join("a", 1)));
    assert_eq!(routes.lose(LEFT), []);
    let split = routes.split(welcome("a", 1, 5));
    assert_eq!((ways(&split), split.gone), (vec![], vec![NodeId(5)]));
    assert_eq!(routes.split(refused("a", 1)).gone, []);
}
