use super::*;
use tutti_types::JobId;

const NODE: NodeId = NodeId(0);

/// The nodes below child 1 and child 2.
const BELOW: [[NodeId; 2]; 2] = [[NodeId(1), NodeId(2)], [NodeId(3), NodeId(4)]];

fn members() -> BTreeSet<NodeId> {
    BELOW.into_iter().flatten().chain([NODE]).collect()
}

fn barrier(round: u32) -> Barrier {
    Barrier { group: BarrierGroup::World, tag: 0, round }
}

fn values(of: NodeId, bytes: usize) -> Values {
    vec![(of.to_string().into_bytes().into(), vec![0; bytes].into())].into()
}

/// A part of what nodes have stored before the first barrier.
fn part(nodes: &[NodeId], (number, is_last): (u32, bool), bytes: usize) -> Passed {
    let values = nodes.first().map(|node| values(*node, bytes)).unwrap_or_default();
    let launch = LaunchId::first(JobId(7));
    let barrier = barrier(0);
    let bytes = values.bytes();
    let exchange = Exchange { launch, barrier, number, is_last, bytes, values };
    Passed { nodes: nodes.to_vec(), exchange }
}

impl Gathering {
    fn hear(&mut self, child: Option<Child>, passed: Passed, now_ns: u64) -> Vec<Passed> {
        let is_there = |node: &NodeId| match child {
            Some(1) => BELOW[0].contains(node),
            Some(_) => BELOW[1].contains(node),
            None => *node == NODE,
        };
        self.take_in(child, passed, is_there, &members(), now_ns)
    }
}

/// The nodes of each part, and the keys in it.
fn shown(parts: &[Passed]) -> Vec<String> {
    let text = |part: &Passed| {
        let nodes: Vec<String> = part.nodes.iter().map(ToString::to_string).collect();
        let keys = part.exchange.values.iter();
        let keys: Vec<_> = keys.map(|(key, _)| String::from_utf8_lossy(key).into_owned()).collect();
        let end = if part.exchange.is_last { "." } else { "" };
        format!("{}: {} {}{end}", nodes.join(","), part.exchange.number, keys.join(","))
    };
    parts.iter().map(text).collect()
}

const WHOLE: (u32, bool) = (0, true);

#[test]
fn nodes_that_have_all_completed_a_barrier_are_passed_on_as_one() {
    let mut gathering = Gathering::default();
    let ([one, two], below) = (BELOW[0], BELOW[1]);
    assert!(gathering.hear(None, part(&[NODE], WHOLE, 9), 0).is_empty());
    assert!(gathering.hear(Some(1), part(&[one], WHOLE, 9), 0).is_empty());
    // A sum itself, in parts between which others come.
    assert!(gathering.hear(Some(2), part(&below, (0, false), 9), 0).is_empty());
    assert!(gathering.hear(Some(1), part(&[two], WHOLE, 9), 0).is_empty());
    let sum = gathering.hear(Some(2), part(&below, (1, true), 9), 0);
    assert_eq!(shown(&sum), ["0,1,2,3,4: 0 0,1,2,3,3."]);
    assert_eq!(sum[0].exchange.bytes, sum[0].exchange.values.bytes());
    assert_eq!(gathering.due_ns(), None, "nothing is kept");
}

#[test]
fn a_long_sum_goes_in_parts_of_moderate_length() {
    let mut gathering = Gathering::default();
    for (child, node) in [(1, 1), (1, 2), (2, 3), (2, 4)] {
        let of_node = part(&[NodeId(node)], WHOLE, 40 << 10);
        assert!(gathering.hear(Some(child), of_node, 0).is_empty());
    }
    let sum = gathering.hear(None, part(&[NODE], WHOLE, 9), 0);
    let starts = ["0,1,2,3,4: 0 0,1", "0,1,2,3,4: 1 2", "0,1,2,3,4: 2 3", "0,1,2,3,4: 3 4."];
    assert_eq!(shown(&sum), starts);
}

#[test]
fn what_waits_in_vain_goes_on_after_a_while() {
    let mut gathering = Gathering::default();
    assert!(gathering.hear(Some(1), part(&[NodeId(1)], WHOLE, 9), 5).is_empty());
    assert!(gathering.hear(None, part(&[NODE], WHOLE, 9), 6).is_empty());
    assert_eq!(gathering.due_ns(), Some(5 + HELD_NS));
    // All tasks of the branch may be known to have ended before.
    assert!(gathering.on_time(4 + HELD_NS, |_| false).is_empty());
    assert_eq!(shown(&gathering.on_time(5 + HELD_NS, |_| false)), ["0,1: 0 0,1."]);
    assert_eq!(gathering.due_ns(), None);
}

#[test]
fn a_job_of_one_child_is_passed_on_at_once() {
    let mut gathering = Gathering::default();
    for members in [&BTreeSet::new(), &[NodeId(1)].into()] {
        let parts = part(&[NodeId(1)], (0, false), 9);
        let sum = gathering.take_in(Some(1), parts, |_| true, members, 0);
        assert_eq!(shown(&sum), ["1: 0 1"]);
        // A sum of a child with nodes that are not known here goes on when it is whole.
        let parts = part(&[NodeId(1), NodeId(2)], (0, false), 9);
        assert!(gathering.take_in(Some(1), parts, |_| true, members, 0).is_empty());
        let parts = part(&[NodeId(1), NodeId(2)], (1, true), 9);
        let sum = gathering.take_in(Some(1), parts, |_| true, members, 0);
        assert_eq!(shown(&sum), ["1,2: 0 1,1."]);
    }
}

#[test]
fn nodes_are_counted_only_where_they_are_and_parts_only_in_their_order() {
    let mut gathering = Gathering::default();
    let (one, two) = (NodeId(1), NodeId(2));
    // Child 2 speaks for a node that is below child 1.
    assert!(gathering.hear(Some(2), part(&[one], WHOLE, 9), 0).is_empty());
    assert!(gathering.hear(Some(2), part(&BELOW[1], WHOLE, 9), 0).is_empty());
    assert!(gathering.hear(None, part(&[NODE], WHOLE, 9), 0).is_empty());
    assert!(gathering.hear(Some(1), part(&[two], WHOLE, 9), 0).is_empty());
    // The end of what has begun before this agent was there.
    assert!(gathering.hear(Some(1), part(&[one], (1, true), 9), 0).is_empty());
    // A child is lost in the middle, and says it all again.
    assert!(gathering.hear(Some(1), part(&[one], (0, false), 9), 0).is_empty());
    gathering.lose(1);
    assert!(gathering.hear(Some(1), part(&[one], (1, true), 9), 0).is_empty());
    let sum = gathering.hear(Some(1), part(&[one], WHOLE, 9), 0);
    assert_eq!(shown(&sum), ["0,1,2,3,4: 0 0,1,2,3."]);
}

#[test]
fn what_is_kept_of_a_job_is_bounded_and_the_controller_hears_of_it() {
    let mut gathering = Gathering::default();
    let mut most = 0;
    for number in 0..64 {
        let sum = gathering.hear(Some(1), part(&[NodeId(1)], (number, false), 60 << 10), 0);
        let kept: usize =
            gathering.launches.values().flat_map(BTreeMap::values).map(Held::bytes).sum();
        most = most.max(kept);
        if let [announcement] = &sum[..] {
            assert!(announcement.exchange.bytes > EXCHANGE_BYTES_MAX);
            assert!(announcement.exchange.values.is_empty() && !announcement.exchange.is_last);
            return;
        }
        assert!(sum.is_empty());
    }
    panic!("{most} bytes are kept");
}

#[test]
fn of_a_job_that_is_unknown_nothing_is_kept() {
    let mut gathering = Gathering::default();
    assert!(gathering.hear(Some(1), part(&[NodeId(1)], (0, false), 9), 0).is_empty());
    assert!(gathering.on_time(HELD_NS, |_| true).is_empty());
    assert!(gathering.due_ns().is_some(), "the rest may come");
    assert!(gathering.on_time(2 * HELD_NS, |_| false).is_empty());
    assert_eq!(gathering.due_ns(), None);
}
