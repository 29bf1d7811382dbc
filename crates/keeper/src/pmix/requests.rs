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
use tutti_types::{Rank, StepId, StepKey};
use tutti_wire::code::Code;
use tutti_wire::pmi::TaskState;
use tutti_wire::pmix::{Answer, Ask, Part, PmixNode, PmixSpace, Refused, ToPmix};
use tutti_wire::spawn::Spawned;

/// What a PMIx server may leave unread beside the answer to a fence: one that reads takes far less.
pub(super) const UNREAD_BYTES_MAX: usize = 8 << 20;

/// How the names of variables begin that a spawn can't set: each task has its own.
const OWN_VARIABLES: [&[u8]; 4] = [b"TUTTI_", b"PMI_", b"PMIX_", b"SLURM_"];

/// A request of a task.
pub(crate) struct Asked {
    pub(super) step: StepKey,
    /// The task's place among those of the step here.
    task: usize,
    pub(super) rank: Rank,
    pub(super) number: u32,
    pub(super) ask: Ask,
}

/// Spawned tasks that have ended without a word to their MPI server.
pub(crate) struct Silent {
    /// The step that has spawned them, and the rank.
    pub(super) parent: (StepKey, Rank),
    pub(super) child: StepId,
    /// The exit status of the first that failed.
    pub(super) code: u8,
}

impl Job {
    /// The step, as PMIx servers know it.
    pub(super) fn pmix_space(&self, context: &Context) -> Result<PmixSpace, super::Refusal> {
        let launch = &self.launch;
        // Nodes with slots alone have no server.
        let nodes = || launch.nodes.iter().filter(|node| node.tasks > 0);
        let own = self.part().node;
        let place = nodes().position(|node| node.node == own).unwrap_or(0);
        let node = |node: &tutti_wire::launch::JobNode| PmixNode {
            node: node.node,
            name: node.name.clone(),
            tasks: node.tasks,
        };
        let spawned = launch.spawned.as_ref();
        let parent = spawned.and_then(|spawned| spawned.parent).and_then(|(step, rank)| {
            // It may be on another node: it has left this step its environment.
            let here = context.mpi.hub.space_of(StepKey { job: launch.job, step });
            let name = here.map(str::to_owned).or_else(|| super::inherited_space(launch, step));
            Some((name?, rank.0))
        });
        Ok(PmixSpace {
            name: super::space_of(launch)?,
            nodes: nodes().map(node).collect(),
            node: u32::try_from(place).unwrap_or(u32::MAX),
            universe: launch.nodes.iter().fold(0, |sum: u32, it| sum.saturating_add(it.slots)),
            programs: spawned.map_or_else(Vec::new, |spawned| {
                spawned.programs.iter().map(|program| program.tasks).collect()
            }),
            parent,
        })
    }

    /// A task asks for something beyond its step.
    pub(super) fn on_ask(&self, (number, task): (u32, usize), ask: Ask, context: &mut Context) {
        let Some(rank) = self.tasks.get(task).map(|task| task.rank) else { return };
        context.mpi.asked.push(Asked { step: self.key(), task, rank, number, ask });
    }

    /// Sends its PMIx server what comes of requests.
    pub(super) fn send_pmix(&mut self, message: &ToPmix, context: &mut Context) {
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
        let asker = (self.part(), number);
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
        let is_over_nodes = self.launch.hub.is_some() && self.pmix.is_some();
        let is_silent = |index: usize| !self.has_spoken(index);
        let is_running = !self.life.is_killed() && self.life.has_started();
        let are_silent = is_running && (0..self.tasks.len()).all(is_silent);
        if (is_whole || is_over_nodes) && are_silent {
            let step = StepKey { job: self.launch.job, step: parent.0 };
            let child = self.launch.step;
            let codes = self.tasks.iter().map(|task| match &task.phase {
                Phase::Ended { status, .. } => status.exit_code(),
                _ => 0,
            });
            let code = codes.into_iter().find(|code| *code != 0).unwrap_or(0);
            match is_over_nodes {
                true => self.say_silent(parent, code, context),
                false => context.mpi.silent.push(Silent { parent: (step, parent.1), child, code }),
            }
        }
    }

    /// Whether a task has called its MPI library's first function.
    pub(crate) fn has_spoken(&self, index: usize) -> bool {
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
pub(crate) fn refuse((part, number): (Part, u32), why: Refused, context: &mut Context) {
    let answer = Answer::Refused(why);
    context.mpi.to_pmix.push((part, ToPmix::Answer { number, answer }));
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
            for peer in std::mem::take(&mut self.context.mpi.lost) {
                self.context.mpi.far.forget(peer);
                self.on_lost(peer);
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
        let are_empty = mpi.asked.is_empty() && mpi.silent.is_empty() && mpi.to_pmix.is_empty();
        !are_empty || !mpi.lost.is_empty()
    }

    pub(super) fn send_answers(&mut self) {
        loop {
            let messages = std::mem::take(&mut self.context.mpi.to_pmix);
            if messages.is_empty() {
                return;
            }
            for (part, message) in messages {
                self.send_to_part(part, message);
            }
        }
    }

    fn on_asked(&mut self, asked: Asked) {
        let Asked { step, task, number, .. } = asked;
        match asked.ask {
            Ask::Spawn { spawned, environment, is_mpi } => {
                let what = (spawned, environment, is_mpi);
                self.with(step, |job, c| job.spawn_by_pmix((number, task), what, c));
            }
            ask => self.ask_hub(Asked { ask, ..asked }),
        }
    }
}
