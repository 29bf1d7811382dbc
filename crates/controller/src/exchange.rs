//! What MPI processes of different nodes must know of each other: each keeper collects what its
//! tasks store, and when all have entered a barrier, all keepers of the job get what the others
//! have.
//!
//! It comes and goes in parts (`tutti_wire::pmi::Exchange`). What of it is kept for one job is
//! counted: a job that needs more than [`EXCHANGE_BYTES_MAX`] at once is ended.

use super::agents::ranks_of;
use super::driver::{Connection, Driver, Kind};
use super::jobs::Entry;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use tutti_core::{Event, JobState};
use tutti_node::link::Link;
use tutti_types::{
    ClusterTime, EndReason, JobId, LaunchId, Nanos, NodeId, Rank, StepId, StepKey, TaskStatus,
};
use tutti_wire::branch::{Passed, ToBranch};
use tutti_wire::code::Code;
#[cfg(not(test))]
use tutti_wire::limits::EXCHANGE_BYTES_MAX;
use tutti_wire::pmi::{Barrier, BarrierGroup, Collected, Exchange, Values, packed};
use tutti_wire::pmix::{Peer, Piece};
use tutti_wire::tree::ToAgent;

/// In tests little, so that a few parts reach it.
#[cfg(test)]
const EXCHANGE_BYTES_MAX: usize = 1 << 20;

/// What of an answer may wait for the head's agent: orders that come after it wait for no more than
/// that.
const AHEAD_BYTES: usize = 256 << 10;

/// Nodes send once more what they have stored, each after it has joined again: the controller is a
/// new one, or what was on its way was lost with an agent between. So long after that no barrier is
/// judged to wait for it in vain.
const SENT_AGAIN: Nanos = Nanos::from_secs(10);

/// What the nodes of a job have stored before barriers, as far as it may be needed.
#[derive(Default)]
pub(super) struct Exchanges {
    /// Barriers that some nodes have completed, by the sender of what they stored: one node, or
    /// several as one, as the sender wrote them.
    gathered: BTreeMap<Barrier, BTreeMap<Vec<NodeId>, Sequence>>,
    /// The latest of each group and tag that all have completed, for nodes that have missed the
    /// answer. The oldest first.
    answered: VecDeque<Arc<Answer>>,
}

/// What has come of one sender.
#[derive(Default)]
struct Sequence {
    /// Those of its nodes that take part and were in reach when it began.
    nodes: Vec<NodeId>,
    collected: Collected,
}

/// What all nodes of a job have stored before a barrier.
struct Answer {
    launch: LaunchId,
    barrier: Barrier,
    parts: Vec<Values>,
    bytes: usize,
}

/// An answer on its way to nodes of a branch.
pub(super) struct Sending {
    to: Vec<NodeId>,
    answer: Arc<Answer>,
    next: usize,
}

impl Exchanges {
    /// What is kept of barriers that are not complete.
    pub(super) fn gathered_bytes(&self) -> usize {
        let of_sender = |(nodes, sequence): (&Vec<NodeId>, &Sequence)| {
            nodes.len() * 8 + sequence.collected.bytes()
        };
        let of_barrier = |(barrier, by): (&Barrier, &BTreeMap<Vec<NodeId>, Sequence>)| {
            barrier.group.bytes() + by.iter().map(of_sender).sum::<usize>()
        };
        self.gathered.iter().map(of_barrier).sum()
    }

    /// What is kept, about.
    pub(super) fn bytes(&self) -> usize {
        self.gathered_bytes() + self.answered.iter().map(|it| it.bytes).sum::<usize>()
    }

    /// Takes in a part that these nodes have sent as one. `there`: see [`Sequence::nodes`]. Gives
    /// the nodes that have completed its barrier.
    fn take_in(
        &mut self,
        nodes: Vec<NodeId>,
        there: Vec<NodeId>,
        exchange: Exchange,
    ) -> BTreeSet<NodeId> {
        let senders = self.gathered.entry(exchange.barrier.clone()).or_default();
        let complete = |senders: &BTreeMap<Vec<NodeId>, Sequence>| -> BTreeSet<NodeId> {
            let whole = senders.values().filter(|it| it.collected.is_whole());
            whole.flat_map(|it| &it.nodes).copied().collect()
        };
        let known = complete(senders);
        // In a changed tree, nodes send with others what they have sent before.
        if !there.iter().all(|node| known.contains(node)) {
            let sequence = senders.entry(nodes).or_default();
            if exchange.number == 0 {
                sequence.nodes = there;
            }
            sequence.collected.take_in(exchange);
        }
        complete(senders)
    }

    /// All nodes have completed a barrier: the answer to it takes the place of that to the round
    /// before.
    fn answer(&mut self, launch: LaunchId, barrier: Barrier) -> Arc<Answer> {
        let senders = self.gathered.remove(&barrier).unwrap_or_default();
        let of_sender = |it: Sequence| it.collected.into_parts();
        let parts = packed(senders.into_values().flat_map(of_sender).collect());
        let bytes = barrier.group.bytes() + parts.iter().map(Values::bytes).sum::<usize>();
        self.answered.retain(|it| !it.barrier.is_like(&barrier));
        // A node says once more what it has stored before earlier rounds: it has their answers.
        self.gathered.retain(|it, _| !it.is_like(&barrier) || it.round > barrier.round);
        let answer = Arc::new(Answer { launch, barrier, parts, bytes });
        self.answered.push_back(Arc::clone(&answer));
        while self.answered.len() > 1
            && self.answered.iter().map(|it| it.bytes).sum::<usize>() > EXCHANGE_BYTES_MAX
        {
            self.answered.pop_front();
        }
        answer
    }
}

impl Answer {
    /// A part of it.
    fn part(&self, place: usize) -> Exchange {
        Exchange::of_parts(self.launch, &self.barrier, (&self.parts, self.bytes), place)
    }
}

/// Sends parts of answers as far as the other end takes them.
pub(super) fn send_parts(sending: &mut VecDeque<Sending>, link: &mut Link) {
    while link.unsent() < AHEAD_BYTES
        && let Some(mut it) = sending.pop_front()
    {
        let exchange = it.answer.part(it.next);
        let is_last = exchange.is_last;
        link.send(&ToBranch::Exchanged(Passed { nodes: it.to.clone(), exchange }));
        it.next += 1;
        if !is_last {
            // Those of several jobs take turns.
            sending.push_back(it);
        }
    }
}

impl Driver {
    /// A part of what nodes of a branch have stored before a barrier that their tasks have all
    /// entered.
    pub(super) fn on_exchange(&mut self, token: u64, passed: Passed) {
        let Passed { nodes, exchange } = passed;
        let (launch, barrier) = (exchange.launch, exchange.barrier.clone());
        if !self.jobs.contains_key(&launch.job) {
            return;
        }
        if self.core.has_respawned(launch.job) {
            let detail = "ranks that were started again after a node was lost can't take part in the \
                          MPI exchange of the others";
            return self.end_for_barrier(launch.key(), detail, false);
        }
        if launch.number != self.core.launch_of(launch.job).number {
            return;
        }
        let members = self.members(launch.key(), &barrier.group);
        let is_there = |node: &NodeId| {
            let agent = self.cluster.nodes.get(node).and_then(|entry| entry.agent);
            agent == Some(token) && members.contains(node)
        };
        let there: Vec<NodeId> = nodes.iter().filter(|node| is_there(node)).copied().collect();
        let Some(exchanges) = self.exchanges_of(launch.key()).filter(|_| !there.is_empty()) else {
            return;
        };
        let mut answered =
            exchanges.answered.iter().filter(|known| known.barrier.is_like(&barrier));
        if let Some(known) = answered.find(|known| known.barrier.round >= barrier.round) {
            // All have completed it. Those that are at it miss the answer; those that are at a
            // later one have had it.
            let is_missed = known.barrier == barrier && exchange.is_last;
            let answer = is_missed.then(|| Arc::clone(known));
            return answer.into_iter().for_each(|answer| self.send_answer(&there, &answer));
        }
        let complete = exchanges.take_in(nodes, there, exchange);
        if exchanges.gathered_bytes() > EXCHANGE_BYTES_MAX {
            return self.end_greedy(launch.key());
        }
        if complete.is_superset(&members) {
            let answer = exchanges.answer(launch, barrier);
            let members: Vec<NodeId> = members.into_iter().collect();
            return self.send_answer(&members, &answer);
        }
        self.give_up_barriers(launch.key());
    }

    /// Ends a job, or a further step, of which a node waits in a barrier for another one where all
    /// tasks have ended without entering it.
    pub(super) fn give_up_barriers(&mut self, key: StepKey) {
        let waits = |exchanges: &Exchanges| !exchanges.gathered.is_empty();
        if !self.known_exchanges(key).is_some_and(waits) {
            return;
        }
        let Some((has_said, gone)) = self.left_behind(key).filter(|(_, gone)| !gone.is_empty())
        else {
            return;
        };
        // The others have their grace then, and the reason is reported.
        if has_said {
            return;
        }
        let members = |barrier: &Barrier| self.members(key, &barrier.group);
        let Some(exchanges) = self.known_exchanges(key) else { return };
        let is_stuck = |(barrier, by): (&Barrier, &BTreeMap<Vec<NodeId>, Sequence>)| {
            let has_sent = |node: &NodeId| by.values().any(|it| it.nodes.contains(node));
            members(barrier).intersection(&gone).any(|node| !has_sent(node))
        };
        if !exchanges.gathered.iter().any(is_stuck) {
            return;
        }
        if let Some(later) = self.may_hear_more(key, &gone) {
            self.due.barriers_due = self.due.barriers_due.min(later);
            return;
        }
        self.end_for_barrier(key, "ranks waited in an MPI barrier for ranks that had ended", false);
    }

    /// Until when these nodes may still send what was lost of what they had sent; `None`: they have
    /// sent it.
    fn may_hear_more(&self, key: StepKey, gone: &BTreeSet<NodeId>) -> Option<ClusterTime> {
        let now = self.now();
        let launched = self.jobs.get(&key.job).and_then(|entry| entry.times.started);
        let since = |node| match self.cluster.nodes.get(node) {
            Some(entry) if entry.agent.is_some() => entry.rejoined,
            _ => now,
        };
        let is_later = |since: &ClusterTime| launched.is_none_or(|launched| *since >= launched);
        let rejoined = gone.iter().map(since).filter(is_later).max()?;
        Some(rejoined + SENT_AGAIN).filter(|until| now < *until)
    }

    /// Looks once more at barriers that may wait in vain.
    pub(super) fn look_at_barriers(&mut self) {
        self.due.barriers_due = ClusterTime::NEVER;
        let steps = |job: JobId, entry: &Entry| {
            let further = entry.steps.ids().map(|step| StepKey { job, step });
            further.chain([StepKey::first(job)]).collect::<Vec<_>>()
        };
        let all = self.jobs.iter().flat_map(|(&job, entry)| steps(job, entry));
        for key in all.collect::<Vec<_>>() {
            self.give_up_barriers(key);
        }
    }

    /// Whether a task has said that it left the others, and the nodes where all tasks have ended;
    /// `None` if tasks may end as they like, or are to end.
    fn left_behind(&self, key: StepKey) -> Option<(bool, BTreeSet<NodeId>)> {
        let entry = self.jobs.get(&key.job)?;
        let said = |status: &TaskStatus| matches!(status, TaskStatus::Unfinalized(_));
        if key.step == StepId::FIRST {
            let view = self.core.job(key.job, self.now())?;
            // Then it is known why its tasks end.
            let ends = matches!(view.state, JobState::Ending { .. });
            let gone = view.placements.iter().filter(|placed| placed.tasks_left == 0);
            let gone = gone.map(|placed| placed.node).collect();
            let may = view.spec.on_bad_exit.goes_on();
            return (!may && !ends).then(|| (entry.run.statuses().any(said), gone));
        }
        let step = entry.steps.get(key.step)?;
        if self.core.is_step_killed(key) {
            return None;
        }
        let view = self.core.steps(key.job).find(|view| view.key == key)?;
        let gone = view.parts.iter().filter(|part| part.left == 0).map(|part| part.node).collect();
        let may = view.spec.on_bad_exit.goes_on();
        (!may).then(|| (step.has_said(said), gone))
    }

    /// Ends a job, or a further step, of which the tasks can't go on together.
    fn end_for_barrier(&mut self, key: StepKey, detail: &str, at_once: bool) {
        let (job, reason) = (key.job, EndReason::TaskFailed);
        if let Some(exchanges) = self.exchanges_of(key) {
            *exchanges = Exchanges::default();
        }
        let Some(entry) = self.jobs.get_mut(&job) else { return };
        if key.step == StepId::FIRST {
            entry.run.note_detail(Rank(0), detail.into());
            return self.apply(&Event::Cancel { job, reason, at_once });
        }
        if let Some(step) = entry.steps.get_mut(key.step) {
            step.note_detail(detail);
        }
        self.apply(&Event::CancelStep { key, reason, at_once });
    }

    /// The nodes of a job or step store more before a barrier than they may.
    fn end_greedy(&mut self, key: StepKey) {
        let mib = EXCHANGE_BYTES_MAX >> 20;
        let detail =
            format!("its tasks stored more than {mib} MiB for each other before a barrier");
        self.end_for_barrier(key, &Code::TooMuchStored.mark(&detail), true);
    }

    fn known_exchanges(&self, key: StepKey) -> Option<&Exchanges> {
        let entry = self.jobs.get(&key.job)?;
        match key.step {
            StepId::FIRST => Some(&entry.run.exchanges),
            step => entry.steps.get(step).map(|step| &step.exchanges),
        }
    }

    /// What is kept of the barriers of a step.
    fn exchanges_of(&mut self, key: StepKey) -> Option<&mut Exchanges> {
        let entry = self.jobs.get_mut(&key.job)?;
        match key.step {
            StepId::FIRST => Some(&mut entry.run.exchanges),
            step => entry.steps.get_mut(step).map(|step| &mut step.exchanges),
        }
    }

    /// Has an answer sent to nodes; over each branch of the tree it goes once.
    fn send_answer(&mut self, nodes: &[NodeId], answer: &Arc<Answer>) {
        for (branch, to) in self.by_branch(nodes) {
            if let Some(Connection { kind: Kind::Branch(branch), .. }) =
                self.intake.connections.get_mut(&branch)
            {
                let answer = Arc::clone(answer);
                branch.sending.push_back(Sending { to, answer, next: 0 });
            }
        }
    }

    /// The node whose keeper has the hub of a job; `None` for a job of one node.
    pub(super) fn hub_of(&self, job: JobId) -> Option<NodeId> {
        let parts = self.core.parts(job);
        parts.first().filter(|_| parts.len() > 1).map(|part| part.node)
    }

    /// Passes on what the keeper of a node says to that of another node of a job. It is said again
    /// if it does not come. If one of them has nothing of the job any more, the sender hears so.
    pub(super) fn pass_piece(&mut self, from: NodeId, peer: Peer, piece: Piece) {
        let (job, core) = (peer.job, &self.core);
        let has = |node| {
            let is_it = |part: &tutti_core::Part| part.node == node && !part.lost;
            core.parts(job).iter().any(is_it) && core.launch_on(job, node).number == peer.number
        };
        if piece.data.len() > Piece::BYTES_MAX {
            return;
        }
        if has(from) && has(peer.node) {
            let (to, peer) = (peer.node, Peer { node: from, ..peer });
            return self.tell_node(to, ToAgent::Piece { peer, piece: Some(piece) });
        }
        self.tell_node(from, ToAgent::Piece { peer, piece: None });
    }

    /// The nodes that take part.
    fn members(&self, key: StepKey, group: &BarrierGroup) -> BTreeSet<NodeId> {
        if key.step != StepId::FIRST {
            let takes_part = |part: &&tutti_core::Part| match group {
                BarrierGroup::World => true,
                BarrierGroup::Node => false,
                BarrierGroup::Ranks(ranks) => ranks.iter().any(|&rank| part.has(rank)),
            };
            let parts = self.core.step_parts(key).iter().filter(takes_part);
            return parts.map(|part| part.node).collect();
        }
        let Some(view) = self.core.job(key.job, self.now()) else { return BTreeSet::new() };
        let takes_part = |placed: &&tutti_core::PlacementView| match group {
            // Where there are slots alone, no task enters it.
            BarrierGroup::World => placed.tasks > 0,
            BarrierGroup::Node => false,
            BarrierGroup::Ranks(ranks) => ranks_of(placed).any(|rank| ranks.contains(&rank)),
        };
        view.placements.iter().filter(takes_part).map(|placed| placed.node).collect()
    }
}
