//! Orders of users about parts of jobs, one after the other for each job.
//!
//! An order goes through the job's tasks here that it means. What it does to their processes is
//! done beside the loop; the agent answers the controller when all of it is done, or with what went
//! wrong.

use super::driver::Agent;
use super::subtree_control::PartError;
use super::track::TaskId;
use std::collections::VecDeque;
use tutti_types::{JobId, LaunchId, Nanos, Rank, StepKey};
use tutti_wire::report::Target;
use tutti_wire::tree::{Answer, FromAgent};

/// How many orders about parts of one job may wait.
const WAITING_MAX: usize = 64;

/// What is to become of a part.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    Suspend,
    Resume,
    Signal(u8),
    /// With so much time to end by itself.
    End(Nanos),
}

/// An order.
pub(super) struct Order {
    /// The launch of the job that it is about: a later one has other tasks.
    launch: LaunchId,
    /// The question that it answers.
    query: u64,
    kind: Kind,
    target: Target,
    /// The tasks that it has not begun with.
    ranks: VecDeque<Rank>,
}

/// What has become of an order about one task.
pub(super) enum Step {
    /// It is done.
    Done,
    /// This is to be done beside the loop first.
    Beside(Work),
}

/// Work beside the loop; gives what the loop does then.
pub(super) type Work = Box<dyn FnOnce() -> Act + Send>;
/// What the loop does about an order.
pub(super) type Act = Box<dyn FnOnce(&mut Agent) -> Result<Step, PartError> + Send>;

impl Step {
    /// Has `work` done beside the loop, and then `act` by the loop with what that gives.
    pub(super) fn beside<T: Send + 'static>(
        work: impl FnOnce() -> T + Send + 'static,
        act: impl FnOnce(&mut Agent, T) -> Result<Self, PartError> + Send + 'static,
    ) -> Self {
        Self::Beside(Box::new(move || {
            let result = work();
            Box::new(move |agent| act(agent, result))
        }))
    }

    /// Does `act` when this is done.
    pub(super) fn then(
        self,
        act: impl FnOnce(&mut Agent) -> Result<Self, PartError> + Send + 'static,
    ) -> Self {
        match self {
            Self::Done => Self::beside(|| (), |agent, ()| act(agent)),
            Self::Beside(work) => Self::Beside(Box::new(move || {
                let first = work();
                Box::new(move |agent| Ok(first(agent)?.then(act)))
            })),
        }
    }
}

impl Agent {
    /// Begins with an order, or has it wait for those before it; the answer, if there is one at
    /// once.
    pub(super) fn order(&mut self, query: u64, kind: Kind, target: Target) -> Option<Answer> {
        let id = target.job;
        let Some(job) = self.jobs.get(&id) else {
            return Some(Answer::Failed(format!("job {id} has no task on this node")));
        };
        let launch = job.launch;
        let ranks = match target.rank {
            Some(rank) => [rank].into(),
            None => job.tasks.roots().keys().copied().collect(),
        };
        let orders = self.processes.orders.entry(id).or_default();
        if orders.len() > WAITING_MAX {
            return Some(Answer::Failed(format!(
                "{WAITING_MAX} orders about parts of job {id} wait already; try again when some are done"
            )));
        }
        orders.push_back(Order { launch, query, kind, target, ranks });
        if orders.len() == 1 {
            self.go_on_with_orders(id);
        }
        None
    }

    /// Goes on with the first order of a job, and those after it, until something is to be done
    /// beside the loop.
    fn go_on_with_orders(&mut self, id: JobId) {
        while let Some(order) =
            self.processes.orders.get_mut(&id).and_then(|orders| orders.front_mut())
        {
            let (kind, target, launch) = (order.kind, order.target, order.launch);
            let Some(rank) = order.ranks.pop_front() else {
                self.end_order(id, Answer::Done);
                continue;
            };
            let is_here =
                self.launched(launch).is_some_and(|it| it.tasks.roots().contains_key(&rank));
            let result = match is_here {
                true => self.begin(kind, target, (StepKey::first(id), rank)),
                false => Err(PartError::NoTask(id, rank)),
            };
            if self.is_beside(id, result) {
                return;
            }
        }
        self.processes.orders.remove(&id);
    }

    fn begin(&mut self, kind: Kind, target: Target, task: TaskId) -> Result<Step, PartError> {
        match kind {
            Kind::Suspend => self.suspend_part(target, task),
            Kind::Resume => self.resume_part(target, task),
            Kind::Signal(signal) => self.signal_part(target, task, signal),
            Kind::End(grace) => self.end_part(target, task, grace),
        }
    }

    /// Whether the first order of a job goes on beside the loop. If it can't be carried out, it
    /// ends.
    fn is_beside(&mut self, id: JobId, result: Result<Step, PartError>) -> bool {
        match result {
            Ok(Step::Done) => false,
            Ok(Step::Beside(work)) => {
                let owner = self.owner_of(id);
                let order = self.processes.orders.get(&id).and_then(VecDeque::front);
                let (launch, rank) = match order {
                    Some(order) => (order.launch, order.target.rank.unwrap_or_default()),
                    None => return false,
                };
                self.processes.beside.start(owner, move || {
                    let act = work();
                    Box::new(move |agent| {
                        // The job may have ended meanwhile, and another launch of it have begun.
                        let result = match agent.launched(launch) {
                            Some(_) => act(agent),
                            None => Err(PartError::NoTask(id, rank)),
                        };
                        if !agent.is_beside(id, result) {
                            agent.go_on_with_orders(id);
                        }
                    })
                });
                true
            }
            Err(error) => {
                self.end_order(id, Answer::Failed(error.to_string()));
                false
            }
        }
    }

    fn end_order(&mut self, id: JobId, answer: Answer) {
        let order = self.processes.orders.get_mut(&id).and_then(VecDeque::pop_front);
        if let Some(Order { query, .. }) = order {
            self.tell_controller(FromAgent::Answer { query, answer });
        }
    }

    /// The user of work on the processes of a job. One that an earlier agent launched is counted
    /// with all such.
    pub(super) fn owner_of(&self, id: JobId) -> u32 {
        self.jobs.get(&id).and_then(|job| job.owner).unwrap_or(u32::MAX)
    }
}
