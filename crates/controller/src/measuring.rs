//! Nodes of a cluster are measured when they have joined, and again from time to time, while they
//! are idle (GRM paper, section 5.1: placements go by the performance of nodes).
//!
//! A node is asked once it has had no job for `measure_after`. Its agent ends the measurement if a
//! job comes, and says nothing then; so it is asked again. When a node was measured is known to
//! this controller alone: the next one counts from its own beginning.
//!
//! Its network is measured to its parent in the control tree, while the parent is idle too. Nodes
//! with one parent are measured one after the other.

use super::agents::NodeEntry;
use super::driver::Driver;
use std::collections::BTreeMap;
use tracing::{info, warn};
use tutti_core::Event;
use tutti_types::{ClusterTime, Figures, Nanos, NetworkFigures, NodeId};
use tutti_wire::code::Code;
use tutti_wire::tree::ToAgent;

/// After this, a node is measured again.
const AGAIN_AFTER: Nanos = Nanos::from_secs(24 * 3600);

/// A node that has not answered is asked again after this, if not later.
const RETRY: Nanos = Nanos::from_secs(5);

/// The most that a figure can be, in the unit of each: no processor and no memory of today comes
/// near.
const MOST: u32 = 50_000_000;

/// By how much two measurements of one node may differ: the second is not believed beyond that.
const RATIO_MAX: u64 = 10;

/// The most that a network can do: bandwidth in MB a second, latency in microseconds.
const BANDWIDTH_MOST: u32 = 200_000;
const LATENCY_MOST: u32 = 10_000_000;

/// The network is measured so long after a node is asked: its processors are measured before that.
const NETWORK_AFTER: Nanos = Nanos::from_secs(2);

/// After this, the network of the next node with the same parent is measured.
const NETWORK_EACH: Nanos = Nanos::from_millis(100);

/// At most so many nodes with one parent are asked at a time.
const NETWORK_AT_ONCE: u32 = 100;

/// Why figures of a network can't be right, if so. What was measured before is no bound: networks
/// break down, and are replaced by others.
fn network_absurdity(figures: NetworkFigures) -> Option<String> {
    let values = [
        ("bandwidth", figures.bandwidth_mb_s, BANDWIDTH_MOST, "MB/s"),
        ("latency", figures.latency_us, LATENCY_MOST, "us"),
    ];
    let wrong = values.into_iter().find(|&(_, value, most, _)| value == 0 || value > most);
    wrong.map(|(what, value, most, unit)| {
        format!("{what} can't be {value} {unit}; it is 1 to {most}")
    })
}

/// Why figures can't be right, if so; `before`: the node's figures until now.
pub(super) fn absurdity(figures: Figures, before: Option<Figures>) -> Option<String> {
    let values = |it: Figures| {
        [("int", it.int), ("float", it.float), ("double", it.double), ("memory", it.memory)]
    };
    for (what, value) in values(figures) {
        if value == 0 || value > MOST {
            return Some(format!("{what} can't be {value}; figures are 1 to {MOST}"));
        }
    }
    let pairs =
        before.into_iter().flat_map(|before| values(before).into_iter().zip(values(figures)));
    for ((what, former), (_, value)) in pairs {
        let (less, more) = (u64::from(former.min(value)), u64::from(former.max(value)));
        if more > less * RATIO_MAX {
            return Some(format!(
                "{what} was {former} and is {value}, which is more than {RATIO_MAX} times apart; \
                 `tutti bench node` there sets it"
            ));
        }
    }
    None
}

/// What is known of a node that may be measured.
#[derive(Clone, Copy, Debug)]
struct Seen {
    /// The life of its agent.
    life: u64,
    /// Since when it has had no job; `None`: it has one.
    idle_since: Option<ClusterTime>,
    /// When it was measured last, if it was.
    measured: Option<ClusterTime>,
    /// When it was asked last, if it was.
    asked: Option<ClusterTime>,
}

impl Seen {
    fn new(life: u64, measured: Option<ClusterTime>) -> Self {
        Self { life, idle_since: None, measured, asked: None }
    }

    /// What is known of a node with this life of its agent; `measured`: when one was measured
    /// that is seen for the first time.
    fn of(
        all: &mut BTreeMap<NodeId, Self>,
        node: NodeId,
        life: u64,
        measured: Option<ClusterTime>,
    ) -> &mut Self {
        let seen = all.entry(node).or_insert_with(|| Self::new(life, measured));
        if seen.life != life {
            *seen = Self::new(life, None);
        }
        seen
    }

    /// Whether the node is to be measured now, given whether it is idle; notes that it is asked.
    fn is_due(&mut self, now: ClusterTime, is_idle: bool, after: Nanos) -> bool {
        let has_passed = |since: Option<ClusterTime>, time| since.is_none_or(|it| it + time <= now);
        self.idle_since = is_idle.then(|| self.idle_since.unwrap_or(now));
        let is_due = self.idle_since.is_some_and(|since| since + after <= now)
            && has_passed(self.measured, AGAIN_AFTER)
            && has_passed(self.asked, after.max(RETRY));
        if is_due {
            self.asked = Some(now);
        }
        is_due
    }
}

/// When nodes were looked at last, and what was seen.
#[derive(Default)]
pub(super) struct Measuring {
    looked: ClusterTime,
    nodes: BTreeMap<NodeId, Seen>,
    /// The same of nodes' networks.
    networks: BTreeMap<NodeId, Seen>,
}

impl Driver {
    /// When nodes are looked at next. Figures are only compared, so a lone node needs none.
    pub(super) fn measuring_due(&self) -> ClusterTime {
        let after = self.core.params().measure_after();
        match after == Nanos::ZERO || self.cluster.nodes.len() < 2 || self.due.stopping.is_some() {
            true => ClusterTime::NEVER,
            false => self.cluster.measuring.looked + Nanos(after.0 / 2),
        }
    }

    /// Has nodes measured that have been idle for long enough.
    pub(super) fn look_for_idle_nodes(&mut self) {
        let (now, after) = (self.now(), self.core.params().measure_after());
        let known: BTreeMap<NodeId, (bool, bool)> = self
            .core
            .nodes()
            .map(|it| (it.id, (it.up && !it.away && it.drained.is_none(), it.figures.is_some())))
            .collect();
        let is_idle = |node: &NodeId, entry: &NodeEntry| {
            let is_up = known.get(node).is_some_and(|&(is_up, _)| is_up);
            is_up && entry.agent.is_some() && entry.launches.launched.is_empty()
        };
        let nodes = &self.cluster.nodes;
        let idle: BTreeMap<&str, bool> =
            nodes.iter().map(|(node, it)| (&*it.name, is_idle(node, it))).collect();
        let Measuring { looked, nodes: seen, networks } = &mut self.cluster.measuring;
        *looked = now;
        seen.retain(|node, _| nodes.contains_key(node));
        networks.retain(|node, _| nodes.contains_key(node));
        let (mut due, mut due_networks) = (Vec::new(), Vec::new());
        let mut asked: BTreeMap<&str, u32> = BTreeMap::new();
        for (node, entry) in nodes.iter().filter(|(node, _)| known.contains_key(node)) {
            let has_figures = known.get(node).is_some_and(|&(_, has_figures)| has_figures);
            let own_is_idle = idle.get(&*entry.name).copied().unwrap_or(false);
            // Measured under an earlier controller, as far as is known here.
            if Seen::of(seen, *node, entry.place.life, has_figures.then_some(now)).is_due(
                now,
                own_is_idle,
                after,
            ) {
                due.push(*node);
            }
            let Some(&parent_is_idle) = idle.get(&*entry.place.parent) else { continue };
            let has_figures = self.core.network().link_of(*node).is_some();
            let network = Seen::of(networks, *node, entry.place.life, has_figures.then_some(now));
            if network.is_due(now, own_is_idle && parent_is_idle, after) {
                let turn = asked.entry(&*entry.place.parent).or_default();
                if *turn == NETWORK_AT_ONCE {
                    network.asked = None;
                    continue;
                }
                let after = NETWORK_AFTER + Nanos(NETWORK_EACH.0 * u64::from(*turn));
                due_networks.push((*node, after));
                *turn += 1;
            }
        }
        if !due.is_empty() {
            info!("idle nodes are measured: {}", due.len());
            self.tell_nodes(due, ToAgent::Measure);
        }
        for (node, after) in due_networks {
            self.tell_nodes(vec![node], ToAgent::MeasureNetwork { after });
        }
    }

    /// An agent has measured the connection to its parent.
    pub(super) fn on_network_measured(&mut self, node: NodeId, figures: NetworkFigures) {
        let now = self.now();
        if let Some(seen) = self.cluster.measuring.networks.get_mut(&node) {
            seen.measured = Some(now);
        }
        let name = self.node_name(node);
        if let Some(why) = network_absurdity(figures) {
            return warn!(
                code = %Code::BadValue, node = name,
                "figures of the network of {name} are ignored: {why}"
            );
        }
        let nodes = &self.cluster.nodes;
        let parent = nodes.get(&node).map(|entry| &entry.place.parent);
        let peer = nodes.iter().find(|(_, entry)| Some(&entry.name) == parent).map(|(&id, _)| id);
        if let Some(peer) = peer {
            self.apply(&Event::NetworkMeasured { node, peer, figures });
        }
    }

    /// An agent has measured its node.
    pub(super) fn on_node_measured(&mut self, node: NodeId, figures: Figures) {
        // Also figures that are ignored: a node that gives such is not asked all the time.
        let now = self.now();
        if let Some(seen) = self.cluster.measuring.nodes.get_mut(&node) {
            seen.measured = Some(now);
        }
        let before = self.core.nodes().find(|it| it.id == node).and_then(|it| it.figures);
        if let Some(why) = absurdity(figures, before) {
            let name = self.node_name(node);
            return warn!(code = %Code::BadValue, node = name, "figures of {name} are ignored: {why}");
        }
        self.apply(&Event::NodeMeasured { node, figures });
    }
}

#[cfg(test)]
mod tests {
    use super::{AGAIN_AFTER, MOST, Seen, absurdity, network_absurdity};
    use tutti_types::{ClusterTime, Figures, Nanos, NetworkFigures};

    fn all(value: u32) -> Figures {
        Figures { int: value, float: value, double: value, memory: value }
    }

    #[test]
    fn figures_of_nothing_of_wonders_and_far_from_those_before_are_absurd() {
        assert_eq!(absurdity(all(4000), None), None);
        assert_eq!(absurdity(all(4000), Some(all(3000))), None);
        assert_eq!(absurdity(all(4000), Some(all(400))), None);
        for wrong in [
            Figures { memory: 0, ..all(4000) },
            Figures { int: MOST + 1, ..all(4000) },
            Figures { double: u32::MAX, ..all(4000) },
        ] {
            assert!(absurdity(wrong, None).is_some(), "{wrong:?}");
        }
        let says = absurdity(Figures { float: 399, ..all(4000) }, Some(all(4000))).unwrap();
        assert!(says.contains("float was 4000 and is 399"), "{says}");
        assert!(absurdity(all(4001), Some(all(400))).is_some());
    }

    #[test]
    fn figures_of_a_network_are_those_of_a_network() {
        let figures = |bandwidth_mb_s, latency_us| NetworkFigures { bandwidth_mb_s, latency_us };
        for possible in [figures(1, 1), figures(117, 55), figures(50_000, 1), figures(1, 9_999_999)]
        {
            assert_eq!(network_absurdity(possible), None);
        }
        for wrong in [
            figures(0, 55),
            figures(117, 0),
            figures(u32::MAX, 1),
            figures(200_001, 1),
            figures(117, 10_000_001),
        ] {
            assert!(network_absurdity(wrong).is_some(), "{wrong:?}");
        }
    }

    #[test]
    fn a_node_is_measured_once_it_was_idle_for_long_enough_and_again_later() {
        let (after, mut seen) = (Nanos::from_secs(60), Seen::new(1, None));
        let mut at = |second: u64, is_idle| {
            seen.is_due(ClusterTime(0) + Nanos::from_secs(second), is_idle, after)
        };
        assert!(!at(0, true) && !at(59, true));
        assert!(!at(60, false), "a job came");
        assert!(!at(70, true) && !at(129, true));
        assert!(at(130, true) && !at(131, true), "it is asked once");
        assert!(at(190, true), "it has not answered");
        let now = ClusterTime(0) + Nanos::from_secs(191);
        seen.measured = Some(now);
        let mut at = |later: Nanos| seen.is_due(now + later, true, after);
        assert!(!at(Nanos::from_secs(3600)) && at(AGAIN_AFTER));
    }
}
