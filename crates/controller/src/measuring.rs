//! Nodes of a cluster are measured when they have joined, and again from time to time, while they
//! are idle (GRM paper, section 5.1: placements go by the performance of nodes).
//!
//! A node is asked once it has had no job for `measure_after`. Its agent ends the measurement if a
//! job comes, and says nothing then; so it is asked again. When a node was measured is known to
//! this controller alone: the next one counts from its own beginning.

use super::driver::Driver;
use std::collections::BTreeMap;
use tracing::{info, warn};
use tutti_core::Event;
use tutti_types::{ClusterTime, Figures, Nanos, NodeId};
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
        let views: BTreeMap<NodeId, (bool, bool)> = self
            .core
            .nodes()
            .map(|it| (it.id, (it.up && !it.away && it.drained.is_none(), it.figures.is_some())))
            .collect();
        let measuring = &mut self.cluster.measuring;
        measuring.looked = now;
        measuring.nodes.retain(|node, _| self.cluster.nodes.contains_key(node));
        let mut due = Vec::new();
        for (&node, entry) in &self.cluster.nodes {
            let Some(&(is_up, has_figures)) = views.get(&node) else { continue };
            let life = entry.place.life;
            let seen = measuring.nodes.entry(node).or_insert_with(|| {
                // Under an earlier controller, as far as is known here.
                Seen::new(life, has_figures.then_some(now))
            });
            if seen.life != life {
                *seen = Seen::new(life, None);
            }
            let is_idle = is_up && entry.agent.is_some() && entry.launches.launched.is_empty();
            if seen.is_due(now, is_idle, after) {
                due.push(node);
            }
        }
        if !due.is_empty() {
            info!("idle nodes are measured: {}", due.len());
            self.tell_nodes(due, ToAgent::Measure);
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
    use super::{AGAIN_AFTER, MOST, Seen, absurdity};
    use tutti_types::{ClusterTime, Figures, Nanos};

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
