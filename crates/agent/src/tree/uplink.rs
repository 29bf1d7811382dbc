//! What goes up to the parent at the end of a round: in its order, in as few messages as that
//! allows, and what several nodes have in common once.

use serde::Serialize;
use tutti_types::{Nanos, NodeId};
use tutti_wire::branch::{ClientMachine, FromBranch, Origin, Report};
use tutti_wire::frame::pack;
use tutti_wire::limits::{BATCH_BYTES_MAX, BATCH_MAX, ORIGINS_MAX};
use tutti_wire::tree::FromAgent;

/// So many of the latest reports are looked at for one that says the same.
const COMPARED_MAX: usize = 16;

/// See the head of the file.
#[derive(Debug, Default)]
pub(super) struct Upward(Vec<FromBranch>);

impl Upward {
    /// A report of this node or of one below.
    pub(super) fn report(&mut self, report: Report) {
        if let Origin::Nodes(nodes) = &report.from
            && let Some(known) = self.same(nodes, &report.report)
        {
            return known.extend_from_slice(nodes);
        }
        match self.0.last_mut() {
            Some(FromBranch::Reports(reports)) if reports.len() < BATCH_MAX => reports.push(report),
            _ => self.0.push(FromBranch::Reports(vec![report])),
        }
    }

    /// The child that says the same already, unless one of these nodes has said something else
    /// since.
    fn same(&mut self, nodes: &[NodeId], report: &FromAgent) -> Option<&mut Vec<NodeId>> {
        let Some(FromBranch::Reports(reports)) = self.0.last_mut() else { return None };
        let mut latest = (0..reports.len()).rev().take(COMPARED_MAX);
        let place = latest.find(|&place| {
            let said = &reports[place];
            let speaks = |of: &Vec<NodeId>| nodes.iter().any(|node| of.contains(node));
            said.report == *report || matches!(&said.from, Origin::Nodes(of) if speaks(of))
        })?;
        let said = &mut reports[place];
        match &mut said.from {
            Origin::Nodes(of)
                if said.report == *report && of.len() + nodes.len() <= ORIGINS_MAX =>
            {
                Some(of)
            }
            Origin::Nodes(_) | Origin::Joiner(_) => None,
        }
    }

    /// Nodes are out of reach. What they have reported goes first, and what they report if they are
    /// back at once goes after it.
    pub(super) fn gone(&mut self, nodes: Vec<NodeId>) {
        match self.0.last_mut() {
            _ if nodes.is_empty() => {}
            Some(FromBranch::Gone(gone)) => gone.extend(nodes),
            _ => self.0.push(FromBranch::Gone(nodes)),
        }
    }

    /// A client machine is connected.
    pub(super) fn client(&mut self, client: ClientMachine) {
        self.0.push(FromBranch::Client(client));
    }

    /// How far off the clocks of nodes may be. In which order that comes is nothing to anybody.
    pub(super) fn times(&mut self, times: Vec<(NodeId, Nanos)>) {
        let known = self.0.iter_mut().find_map(|message| match message {
            FromBranch::Times(known) => Some(known),
            _ => None,
        });
        match known {
            _ if times.is_empty() => {}
            Some(known) => known.extend(times),
            None => self.0.push(FromBranch::Times(times)),
        }
    }

    /// Whether there is nothing.
    pub(super) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// No one waits for it any more.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// All of it, in messages of which each fits into a frame.
    pub(super) fn take(&mut self) -> Vec<FromBranch> {
        fn split<T: Serialize>(
            items: Vec<T>,
            of: impl Fn(Vec<T>) -> FromBranch,
        ) -> Vec<FromBranch> {
            pack(items, BATCH_BYTES_MAX, usize::MAX).into_iter().map(of).collect()
        }
        let split = |message| match message {
            FromBranch::Reports(reports) => split(reports, FromBranch::Reports),
            FromBranch::Gone(nodes) => split(nodes, FromBranch::Gone),
            FromBranch::Times(times) => split(times, FromBranch::Times),
            other => vec![other],
        };
        std::mem::take(&mut self.0).into_iter().flat_map(split).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tutti_wire::frame::encoded_len;
    use tutti_wire::limits::FRAME_BYTES_MAX;
    use tutti_wire::tree::Answer;

    fn done(node: u32, query: u64) -> Report {
        let report = FromAgent::Answer { query, answer: Answer::Done };
        Report { from: Origin::Nodes(vec![NodeId(node)]), report }
    }

    /// The child of each answer, in the order of what is sent; letters for the rest.
    fn shown(upward: &mut Upward) -> Vec<String> {
        let report = |report: &Report| match (&report.from, &report.report) {
            (Origin::Nodes(nodes), FromAgent::Answer { query, .. }) => {
                let nodes: Vec<String> = nodes.iter().map(ToString::to_string).collect();
                format!("{} by {}", query, nodes.join(","))
            }
            _ => "?".to_owned(),
        };
        let message = |message: FromBranch| match message {
            FromBranch::Reports(reports) => reports.iter().map(report).collect(),
            FromBranch::Gone(nodes) => vec![format!("{} gone", nodes.len())],
            FromBranch::Times(times) => vec![format!("{} times", times.len())],
            _ => vec!["?".to_owned()],
        };
        upward.take().into_iter().flat_map(message).collect()
    }

    #[test]
    fn what_many_say_is_said_once_and_nothing_overtakes_anything_of_its_node() {
        let mut upward = Upward::default();
        for (node, query) in [(1, 7), (2, 7), (3, 8), (3, 7), (1, 8), (1, 7), (4, 7)] {
            upward.report(done(node, query));
        }
        assert_eq!(shown(&mut upward), ["7 by 1,2", "8 by 3,1", "7 by 3,1,4"]);
        assert!(upward.take().is_empty());
    }

    #[test]
    fn who_is_gone_has_reported_before_and_joins_after() {
        let mut upward = Upward::default();
        upward.report(done(1, 7));
        upward.times(vec![(NodeId(2), Nanos(5))]);
        upward.gone(vec![NodeId(1)]);
        upward.gone(vec![NodeId(2)]);
        upward.report(done(3, 7));
        upward.times(vec![(NodeId(3), Nanos(5))]);
        assert_eq!(shown(&mut upward), ["7 by 1", "2 times", "2 gone", "7 by 3"]);
    }

    #[test]
    fn long_answers_of_many_nodes_go_in_several_messages() {
        let mut upward = Upward::default();
        for node in 0..5 {
            let text = node.to_string().repeat(5 << 20);
            let report = FromAgent::Answer { query: 7, answer: Answer::Failed(text) };
            upward.report(Report { from: Origin::Nodes(vec![NodeId(node)]), report });
        }
        let messages = upward.take();
        assert_eq!(messages.len(), 5);
        for message in messages {
            assert!(encoded_len(&message) < FRAME_BYTES_MAX);
        }
    }

    #[test]
    fn a_report_is_of_no_more_nodes_than_a_frame_has_room_for() {
        let mut upward = Upward::default();
        let some = u32::try_from(ORIGINS_MAX / 2).expect("it is small");
        for first in [0, some, 2 * some] {
            let from = Origin::Nodes((first..first + some).map(NodeId).collect());
            upward.report(Report { from, ..done(0, 7) });
        }
        let FromBranch::Reports(reports) = upward.take().remove(0) else { panic!("no reports") };
        let counts = reports.iter().map(|report| match &report.from {
            Origin::Nodes(nodes) => nodes.len(),
            Origin::Joiner(_) => 0,
        });
        assert_eq!(counts.collect::<Vec<_>>(), [ORIGINS_MAX, ORIGINS_MAX / 2]);
    }
}
