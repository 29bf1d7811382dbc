//! The part of a site's policy on this node: a program that the agent starts, asks, gives up and
//! starts again.
//!
//! It runs as a user of its own, outside of all jobs. A thread waits for it ([`Worker`]), so the
//! agent never does. What it orders goes to the controller, which has it checked and changes the
//! node's timetable; no switch waits for it. Without a part none of this costs anything.

use super::driver::Agent;
use std::time::Duration;
use tracing::{info, warn};
use tutti_node::link::Interest;
use tutti_policy::{
    Failure, Life, Limits, Mode, NodeAnswer, NodeSession, Out, Reply, Worker, start_of,
};
use tutti_types::{ClusterTime, JobId, Nanos, Rank, Timetable};
use tutti_wire::code::Code;
use tutti_wire::tree::{FromAgent, PolicyNews, PolicyPart, PolicyReport};

/// The token of the thread's replies in the poller.
pub(super) const POLICY: u64 = 12;

/// A part that is to run.
pub(super) struct Part {
    wanted: PolicyPart,
    worker: Option<Worker<NodeAnswer>>,
    session: NodeSession,
    life: Life,
}

impl Agent {
    /// Runs this part from now on, or none. One that runs already goes on.
    pub(super) fn on_policy_part(&mut self, wanted: Option<PolicyPart>) {
        let Some(wanted) = wanted else { return self.end_policy_part() };
        let of = |it: &PolicyPart| PolicyPart { limit: Nanos::ZERO, ..it.clone() };
        match &mut self.processes.policy {
            Some(part) if of(&part.wanted) == of(&wanted) => part.wanted = wanted,
            Some(_) | None => {
                self.end_policy_part();
                let node = self.service.node;
                let session = NodeSession::new(Mode::Live, node, &self.options.node);
                let (worker, life) = (None, Life::default());
                self.processes.policy = Some(Box::new(Part { wanted, worker, session, life }));
            }
        }
    }

    /// There is no part any more.
    pub(super) fn end_policy_part(&mut self) {
        let Some(part) = self.processes.policy.take() else { return };
        if let Some(worker) = part.worker {
            self.poller.remove(worker.wake());
            worker.stop();
        }
    }

    pub(super) fn on_policy_news(&mut self, news: PolicyNews) {
        let Some(part) = &mut self.processes.policy else { return };
        match news {
            PolicyNews::Message(text) => part.session.take_in(text),
            PolicyNews::Refused { round, index, reason } => {
                part.session.refuse(round, index, reason);
            }
        }
    }

    pub(super) fn tell_policy_of_timetable(&mut self, timetable: &Timetable) {
        if let Some(part) = &mut self.processes.policy {
            part.session.note_timetable(timetable);
        }
    }

    pub(super) fn tell_policy_of_end(&mut self, job: JobId, rank: Rank) {
        if let Some(part) = &mut self.processes.policy {
            part.session.note_ends(job, [rank]);
        }
    }

    /// When something is due for the part, by the monotonic clock.
    pub(super) fn policy_due_ns(&self) -> Option<u64> {
        let part = self.processes.policy.as_ref()?;
        let now = self.tree.clock().now();
        let due = match part.life.state() {
            tutti_policy::State::Off => now,
            tutti_policy::State::Starting => ClusterTime::NEVER,
            tutti_policy::State::Down(until) => until,
            tutti_policy::State::Up(_) => part.session.due(now),
        };
        (due != ClusterTime::NEVER).then(|| self.tree.clock().own_ns(due))
    }

    /// Does what is due for the part: takes its replies, passes on its orders, asks it.
    pub(super) fn follow_policy_part(&mut self) {
        let now = self.tree.clock().now();
        let Some(part) = &mut self.processes.policy else { return };
        if part.life.is_to_start(now) && !self.service.stopping {
            self.start_policy_part(now);
        }
        while let Some(reply) = self.policy_reply() {
            self.take_policy_reply(reply, now);
        }
        let is_joined = self.has_joined();
        while let Some(part) = &mut self.processes.policy
            && let Some((index, out)) = part.session.next(now)
        {
            let round = part.session.round();
            if !is_joined {
                part.session.refuse(round, index, "the controller is out of reach".into());
                continue;
            }
            self.tell_controller(FromAgent::Policy(match out {
                Out::Message(text) => PolicyReport::Message(text),
                Out::Arrange { row, candidates } => {
                    PolicyReport::Arrange { round, index, row, candidates }
                }
            }));
        }
        if let Some(part) = &mut self.processes.policy
            && part.life.is_up()
            && part.session.due(now) <= now
            && let Some(worker) = &part.worker
        {
            let line = part.session.line(now);
            worker.ask(line, part.session.round(), Duration::from_nanos(part.wanted.limit.0));
        }
    }

    fn policy_reply(&self) -> Option<Reply<NodeAnswer>> {
        self.processes.policy.as_ref()?.worker.as_ref()?.reply()
    }

    fn take_policy_reply(&mut self, reply: Reply<NodeAnswer>, now: ClusterTime) {
        let Some(part) = &mut self.processes.policy else { return };
        match reply {
            Reply::Began(_) => {
                part.session.begin();
                part.life.began(now);
                self.tell_controller(FromAgent::Policy(PolicyReport::Began));
            }
            Reply::Answered(answer) => {
                part.session.take(answer);
                if part.life.answered(now) {
                    info!("the policy's part on this node answers again");
                }
            }
            Reply::Failed { why, said } => self.policy_part_failed(&why, &said, now),
        }
    }

    fn policy_part_failed(&mut self, why: &Failure, said: &[String], now: ClusterTime) {
        let Some(part) = &mut self.processes.policy else { return };
        part.session.begin();
        if part.life.failed(now) {
            let path = &part.wanted.path;
            warn!(code = %Code::PartEnded,
                "the policy's part {path} on this node failed: {why}; the built-in order holds"
            );
            for line in said {
                warn!(code = %Code::PartEnded, "the policy's part wrote: {line}");
            }
        }
        self.tell_controller(FromAgent::Policy(PolicyReport::Failed));
    }

    fn start_policy_part(&mut self, now: ClusterTime) {
        let Some(part) = &mut self.processes.policy else { return };
        let PolicyPart { path, user, memory_bytes, processes, .. } = part.wanted.clone();
        let start = start_of(path, user.as_deref(), Limits { memory_bytes, processes });
        let begun = start.and_then(|start| {
            if part.worker.is_none() {
                let worker = Worker::of_node().map_err(|error| error.to_string())?;
                let added = self.poller.add(worker.wake(), POLICY, Interest::READ);
                added.map_err(|error| error.to_string())?;
                part.worker = Some(worker);
            }
            Ok(start)
        });
        match (begun, &part.worker) {
            (Ok(start), Some(worker)) => {
                worker.start(start, part.session.hello(now));
                part.life.starts();
            }
            (Ok(_), None) => {}
            (Err(reason), _) => self.policy_part_failed(&Failure::NotStarted(reason), &[], now),
        }
    }
}
