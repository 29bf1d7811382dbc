//! What tasks ask for by PMIx beyond their own step.
//!
//! The PMIx server of each step passes such requests on. They are gathered while jobs are served,
//! and answered at the end of the round by the [`Hub`](tutti_wire::pmix::Hub) of this keeper, which
//! knows all steps of a job here. A spawn goes the way of one by PMI-1 ([`crate::spawner`]); it is
//! answered when the PMIx server of the new step is ready.

use super::Pmix;
use crate::context::Context;
use crate::driver::Keeper;
use crate::job::{Job, Phase, Task};
use crate::pmi::Abort;
use serde_bytes::ByteBuf;
use tutti_node::platform::time::monotonic_ns;
use tutti_types::{Rank, StepId, StepKey, UserId};
use tutti_wire::code::Code;
use tutti_wire::pmi::TaskState;
use tutti_wire::pmix::{Answer, Ask, PmixNode, PmixSpace, Refused, ToPmix};
use tutti_wire::spawn::Spawned;

/// What a PMIx server may leave unread beside the answer to a fence: one that reads takes far less.
pub(super) const UNREAD_BYTES_MAX: usize = 8 << 20;

/// How the names of variables begin that a spawn can't set: each task has its own.
const OWN_VARIABLES: [&[u8]; 4] = [b"TUTTI_", b"PMI_", b"PMIX_", b"SLURM_"];

/// A request of a task.
pub(crate) struct Asked {
    step: StepKey,
    /// The task's place among those of the step here.
    task: usize,
    rank: Rank,
    number: u32,
    ask: Ask,
}

/// Spawned tasks that have ended without a word to their MPI server.
pub(crate) struct Silent {
    /// The step that has spawned them, and the rank.
    parent: (StepKey, Rank),
    child: StepId,
    /// The exit status of the first that failed.
    code: u8,
}

impl Job {
    /// The step, as PMIx servers know it.
    pub(super) fn pmix_space(&self, context: &Context) -> Result<PmixSpace, super::Refusal> {
        let launch = &self.launch;
        let node = |node: &tutti_wire::launch::JobNode| PmixNode {
            name: node.name.clone(),
            tasks: node.tasks,
        };
        let spawned = launch.spawned.as_ref();
        let parent = spawned.and_then(|spawned| spawned.parent).and_then(|(step, rank)| {
            let step = StepKey { job: launch.job, step };
            Some((context.mpi.hub.space_of(step)?.to_owned(), rank.0))
        });
        Ok(PmixSpace {
            name: super::space_of(launch)?,
            nodes: launch.nodes.iter().map(node).collect(),
            node: launch.share.node_rank,
            universe: launch.nodes.iter().fold(0, |sum: u32, it| sum.saturating_add(it.slots)),
            programs: spawned.map_or_else(Vec::new, |spawned| {
                spawned.programs.iter().map(|program| program.tasks).collect()
            }),
            parent,
        })
    }

    /// Its PMIx server is ready: the other steps of the job may meet it.
    pub(super) fn enter_hub(&self, context: &mut Context) {
        // It was made before.
        let Ok(space) = self.pmix_space(context) else { return };
        let user = UserId(self.launch.credentials.uid);
        let mpi = &mut context.mpi;
        mpi.hub.add(self.key(), user, space, &mut mpi.to_pmix);
    }

    /// A task asks for something beyond its step.
    pub(super) fn on_ask(&self, (number, task): (u32, usize), ask: Ask, context: &mut Context) {
        let Some(rank) = self.tasks.get(task).map(|task| task.rank) else { return };
        context.mpi.asked.push(Asked { step: self.key(), task, rank, number, ask });
    }

    /// Sends its PMIx server what comes of requests.
    fn send_pmix(&mut self, message: &ToPmix, context: &mut Context) {
        let Some(Pmix { helper, session, fence_bytes, .. }) = &mut self.pmix else { return };
        if let ToPmix::Answer { number, .. } = message {
            session.end_ask(*number);
        }
        let Some(link) = helper.link() else { return };
        link.send(message);
        let is_behind = link.unsent() > UNREAD_BYTES_MAX.saturating_add(*fence_bytes);
        self.settle_pmix(context);
        if is_behind {
            let reason = "the PMIx server misbehaved: it does not read its answers";
            self.fail_pmix(reason, context);
        }
    }

    /// A task wants more tasks started, by PMIx.
    fn spawn_by_pmix(
        &mut self,
        (number, task): (u32, usize),
        (mut spawned, environment, is_mpi): (Spawned, Vec<ByteBuf>, bool),
        context: &mut Context,
    ) {
        let asker = (self.key(), number);
        // Others wait for no call of MPI_Init.
        spawned.parent = self.parent_of(task).filter(|_| is_mpi);
        spawned.preput.clear();
        if spawned.tasks().is_none_or(|tasks| tasks == 0) {
            return refuse(asker, Refused::Invalid, context);
        }
        let is_allowed = |variable: &ByteBuf| {
            let is_own = OWN_VARIABLES.iter().any(|start| variable.starts_with(start));
            let has_name = variable.iter().position(|byte| *byte == b'=').is_some_and(|at| at > 0);
            has_name && !is_own && !variable.contains(&0)
        };
        let environment = environment.into_iter().filter(is_allowed).collect();
        self.spawn_tasks(task, (spawned, environment), Some(number), context);
    }

    /// Spawned tasks have ended, all of them here and without a word to an MPI server: the tasks
    /// that have spawned them would wait for ever.
    pub(crate) fn note_silent_end(&self, context: &mut Context) {
        let Some(parent) = self.launch.spawned.as_ref().and_then(|spawned| spawned.parent) else {
            return;
        };
        let is_whole = self.tasks.len() == self.launch.size as usize;
        let is_silent = |index: usize| !self.has_spoken(index);
        if is_whole
            && !self.life.is_killed()
            && self.life.has_started()
            && (0..self.tasks.len()).all(is_silent)
        {
            let step = StepKey { job: self.launch.job, step: parent.0 };
            let child = self.launch.step;
            let codes = self.tasks.iter().map(|task| match &task.phase {
                Phase::Ended { status, .. } => status.exit_code(),
                _ => 0,
            });
            let code = codes.into_iter().find(|code| *code != 0).unwrap_or(0);
            context.mpi.silent.push(Silent { parent: (step, parent.1), child, code });
        }
    }

    fn has_spoken(&self, index: usize) -> bool {
        self.pmix_state(index) != TaskState::Silent || self.has_spoken_pmi(index)
    }

    fn on_silent_children(&mut self, silent: &Silent, context: &mut Context) {
        if self.life.is_killed() {
            return;
        }
        let is_it = |task: &Task| task.rank == silent.parent.1 && !task.has_ended();
        // It can't wait for them any more.
        let Some(index) = self.tasks.iter().position(is_it) else { return };
        let reason = format!(
            "the tasks that it has spawned (step {}) ended without a call of MPI_Init, with exit \
             status {}; MPI_Comm_spawn is for MPI programs",
            silent.child, silent.code
        );
        let message = Code::NotFinalized.mark(&reason);
        self.abort(Abort { index, code: i32::from(silent.code), message }, context);
    }
}

/// Refuses a request.
pub(crate) fn refuse((step, number): (StepKey, u32), why: Refused, context: &mut Context) {
    let answer = Answer::Refused(why);
    context.mpi.to_pmix.push((step, ToPmix::Answer { number, answer }));
}

impl Keeper {
    /// Answers what tasks have asked for in this round.
    pub(crate) fn serve_requests(&mut self) {
        self.send_answers();
        while self.has_requests() {
            for asked in std::mem::take(&mut self.context.mpi.asked) {
                self.on_asked(asked);
                // One at a time: the answers of a round can be far longer than its requests.
                self.send_answers();
            }
            for silent in std::mem::take(&mut self.context.mpi.silent) {
                let act = |job: &mut Job, c: &mut Context| job.on_silent_children(&silent, c);
                self.with(silent.parent.0, act);
            }
            self.send_answers();
        }
    }

    /// Whether something is to be done that no event will report.
    pub(crate) fn has_requests(&self) -> bool {
        let mpi = &self.context.mpi;
        !(mpi.asked.is_empty() && mpi.silent.is_empty() && mpi.to_pmix.is_empty())
    }

    fn send_answers(&mut self) {
        loop {
            let messages = std::mem::take(&mut self.context.mpi.to_pmix);
            if messages.is_empty() {
                return;
            }
            for (step, message) in messages {
                self.with(step, |job, c| job.send_pmix(&message, c));
            }
        }
    }

    fn on_asked(&mut self, asked: Asked) {
        let Asked { step, task, rank, number, ask } = asked;
        let Ask::Spawn { spawned, environment, is_mpi } = ask else {
            let mpi = &mut self.context.mpi;
            let now_ns = monotonic_ns();
            return mpi.hub.ask((step, number), (rank.0, now_ns), ask, &mut mpi.to_pmix);
        };
        // What is spawned could be on another node, where no task of this step can reach it.
        let first = self.jobs.get(&StepKey::first(step.job));
        if first.is_none_or(|first| first.launch.nodes.len() > 1) {
            return refuse((step, number), Refused::NotSupported, &mut self.context);
        }
        let what = (spawned, environment, is_mpi);
        self.with(step, |job, c| job.spawn_by_pmix((number, task), what, c));
    }
}
