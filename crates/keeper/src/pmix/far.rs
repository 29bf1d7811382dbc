//! Steps of a job meet over its nodes: one keeper has the hub, the others pass requests on to it.
//!
//! [`tutti_wire::pmix::Far`] has the channels between keepers. Here is what comes and goes over
//! them: what the tasks of this node ask for, and what the PMIx servers of other nodes are to hear.

use super::requests::{Asked, Silent};
use crate::context::{Context, Mpi};
use crate::driver::Keeper;
use crate::job::Job;
use tracing::warn;
use tutti_node::platform::time::monotonic_ns;
use tutti_types::{LaunchId, NodeId, Rank, StepId, StepKey, UserId};
use tutti_wire::code::Code;
use tutti_wire::pmix::{
    Answer, MODEX_BYTES_MAX, Part, Peer, Piece, PmixSpace, Refused, Said, ToPmix,
};

impl Mpi {
    /// Says something to another keeper. One that is far behind counts as gone.
    fn say(&mut self, peer: Peer, said: &Said) {
        if !self.far.say(peer, said, (self.seed, monotonic_ns())) {
            let Peer { job, node, .. } = peer;
            warn!(code = %Code::TooMuchAsked, "job {job}: the keeper of node {node} is far behind");
            self.lost.push(peer);
        }
    }

    /// Tasks of a spawned step on that node have ended without a word to an MPI server. If all of
    /// the step have, those that wait for it hear so.
    fn note_silent(
        &mut self,
        of: Peer,
        (child, parent): (StepId, (StepId, u32)),
        tasks: (u32, u32),
        code: u8,
    ) {
        let key = StepKey { job: of.job, step: child };
        let whole = self.hub.note_silent((key, parent.0, parent.1), tasks, code);
        let Some((part, code)) = whole else { return };
        match self.far.own() == Some(part.node) {
            true => self.silent.push(silent(of, (child, parent), code)),
            false => self.say(part.peer(), &Said::AllSilent { child, parent, code }),
        }
    }
}

impl Job {
    /// This step on this node.
    pub(crate) fn part(&self) -> Part {
        let place = self.launch.share.node_rank as usize;
        let node = self.launch.nodes.get(place).map_or(NodeId(u32::MAX), |node| node.node);
        Part { launch: self.launch.id(), node }
    }

    /// The keeper that has the job's hub; `None`: this one.
    fn hub_peer(&self) -> Option<Peer> {
        let node = self.launch.hub.filter(|node| *node != self.part().node)?;
        Some(Peer { node, ..self.part().peer() })
    }

    /// Its PMIx server is ready: the other steps of the job may meet it. A hub elsewhere hears of
    /// all parts of a spawned step, of which it waits for each; of other steps it hears of the
    /// first part, and of those that ask for something.
    pub(crate) fn enter_hub(&self, context: &mut Context) {
        let first = self.launch.nodes.iter().find(|node| node.tasks > 0).map(|node| node.node);
        let is_needed = first == Some(self.part().node) || self.launch.spawned.is_some();
        match self.hub_peer() {
            Some(peer) if is_needed => self.join_hub(peer, context),
            Some(_) => {}
            None => {
                // It was made before.
                let Ok(space) = self.pmix_space(context) else { return };
                let user = UserId(self.launch.credentials.uid);
                let mpi = &mut context.mpi;
                mpi.hub.add(self.part(), user, space, &mut mpi.to_pmix);
            }
        }
    }

    /// The hub elsewhere knows this step from now on.
    fn join_hub(&self, peer: Peer, context: &mut Context) {
        let Ok(space) = self.pmix_space(context) else { return };
        let (launch, user) = (self.launch.id(), UserId(self.launch.credentials.uid));
        if context.mpi.far.join(launch) {
            context.mpi.say(peer, &Said::Join { launch, user, space });
        }
    }

    /// The other steps of the job meet it no more.
    pub(super) fn leave_hub(&self, context: &mut Context) {
        let (launch, mpi) = (self.launch.id(), &mut context.mpi);
        match self.hub_peer() {
            None => mpi.hub.remove(self.part(), &mut mpi.to_pmix),
            Some(peer) if mpi.far.leave(launch) => mpi.say(peer, &Said::Leave { launch }),
            Some(_) => {}
        }
    }

    /// A task has said something of itself that was asked for.
    pub(super) fn on_fetched(
        &self,
        number: u32,
        data: Option<serde_bytes::ByteBuf>,
        context: &mut Context,
    ) {
        let (launch, mpi) = (self.launch.id(), &mut context.mpi);
        match self.hub_peer() {
            None => mpi.hub.fetched(self.part(), number, data, &mut mpi.to_pmix),
            Some(peer) => mpi.say(peer, &Said::Fetched { launch, number, data }),
        }
    }

    /// A spawn was accepted: it is answered when the new step is served.
    pub(crate) fn await_child(&self, number: u32, child: StepId, context: &mut Context) {
        let Some(peer) = self.hub_peer() else {
            let mpi = &mut context.mpi;
            return mpi.hub.await_child((self.part(), number), child, &mut mpi.to_pmix);
        };
        self.join_hub(peer, context);
        let launch = self.launch.id();
        context.mpi.say(peer, &Said::AwaitChild { launch, number, child });
    }

    /// A step that a task has spawned has ended.
    pub(crate) fn fail_child(&self, child: StepId, context: &mut Context) {
        let mpi = &mut context.mpi;
        match self.hub_peer() {
            None => {
                let child = StepKey { job: self.launch.job, step: child };
                mpi.hub.fail_child(child, &mut mpi.to_pmix);
            }
            // It knows of none that nothing was said about.
            Some(peer) if mpi.far.knows(peer) => mpi.say(peer, &Said::FailChild { child }),
            Some(_) => {}
        }
    }

    /// The tasks of this node, which were spawned, have ended without a word to an MPI server.
    pub(super) fn say_silent(&self, (step, rank): (StepId, Rank), code: u8, context: &mut Context) {
        let count = u32::try_from(self.tasks.len()).unwrap_or(u32::MAX);
        let (child, tasks) = (self.launch.step, (count, self.launch.size));
        let parent = (step, rank.0);
        match self.hub_peer() {
            None => context.mpi.note_silent(self.part().peer(), (child, parent), tasks, code),
            Some(peer) => context.mpi.say(peer, &Said::Silent { child, parent, tasks, code }),
        }
    }

    /// What its PMIx server was to hear before it was there.
    pub(super) fn hear_held(&mut self, context: &mut Context) {
        for message in context.mpi.far.take_held(self.launch.id()) {
            self.send_pmix(&message, context);
        }
    }
}

impl Keeper {
    /// Passes a request of a task here on to the job's hub.
    pub(super) fn ask_hub(&mut self, Asked { step, rank, number, ask, .. }: Asked) {
        let Some(job) = self.jobs.get(&step) else { return };
        let (part, context) = (job.part(), &mut self.context);
        let Some(peer) = job.hub_peer() else {
            let (mpi, now_ns) = (&mut context.mpi, monotonic_ns());
            return mpi.hub.ask((part, number), (rank.0, now_ns), ask, &mut mpi.to_pmix);
        };
        job.join_hub(peer, context);
        let launch = part.launch;
        context.mpi.say(peer, &Said::Ask { launch, number, rank: rank.0, ask });
    }

    /// A PMIx server is to hear something: one of this node, or of another.
    pub(super) fn send_to_part(&mut self, part: Part, message: ToPmix) {
        if self.context.mpi.far.own() == Some(part.node) {
            return self.with(part.step(), |job, context| {
                if job.launch.id() == part.launch {
                    job.send_pmix(&message, context);
                }
            });
        }
        self.context.mpi.say(part.peer(), &Said::Word { launch: part.launch, message });
    }

    /// A piece has come of another keeper; `None`: that one is gone.
    pub(crate) fn on_piece(&mut self, peer: Peer, piece: Option<&Piece>) {
        let Some(piece) = piece else {
            self.context.mpi.far.forget(peer);
            return self.on_lost(peer);
        };
        let mpi = &mut self.context.mpi;
        let came = mpi.far.take_in(peer, piece, (mpi.seed, monotonic_ns()));
        if came.is_anew {
            self.on_lost(peer);
        }
        for said in came.said {
            self.on_said(peer, said);
        }
    }

    /// Another keeper knows nothing any more of what was said, if it is there at all.
    pub(super) fn on_lost(&mut self, peer: Peer) {
        let mpi = &mut self.context.mpi;
        mpi.hub.remove_node((peer.job, peer.number), peer.node, &mut mpi.to_pmix);
        let of_job = self.jobs.range_mut(StepKey::first(peer.job)..);
        let of_job = of_job.take_while(|(step, _)| step.job == peer.job).map(|(_, job)| job);
        for job in of_job.filter(|job| job.hub_peer() == Some(peer)) {
            mpi.far.leave(job.launch.id());
            let part = job.part();
            let asks = job.pmix.as_ref().map(|pmix| pmix.session.asks().collect::<Vec<_>>());
            for number in asks.into_iter().flatten() {
                let answer = Answer::Refused(Refused::Ended);
                mpi.to_pmix.push((part, ToPmix::Answer { number, answer }));
            }
        }
    }

    fn on_said(&mut self, peer: Peer, said: Said) {
        let is_its = |launch: LaunchId| (launch.job, launch.number) == (peer.job, peer.number);
        let part = |launch| Part { launch, node: peer.node };
        let mpi = &mut self.context.mpi;
        let out = &mut mpi.to_pmix;
        match said {
            Said::Join { launch, user, space } if is_its(launch) && is_of(&space, peer.node) => {
                mpi.hub.add(part(launch), user, space, out);
            }
            Said::Leave { launch } if is_its(launch) => mpi.hub.remove(part(launch), out),
            Said::Ask { launch, number, rank, ask } if is_its(launch) => {
                let asker = (part(launch), number);
                let objection = match ask.is_within_limits() {
                    true => mpi.far.is_behind(peer).then_some(Refused::NoRoom),
                    false => Some(Refused::Invalid),
                };
                match objection {
                    None => mpi.hub.ask(asker, (rank, monotonic_ns()), ask, out),
                    Some(why) => super::refuse(asker, why, &mut self.context),
                }
            }
            Said::Fetched { launch, number, data } if is_its(launch) => {
                let data = data.filter(|data| data.len() <= MODEX_BYTES_MAX);
                mpi.hub.fetched(part(launch), number, data, out);
            }
            Said::AwaitChild { launch, number, child } if is_its(launch) => {
                mpi.hub.await_child((part(launch), number), child, out);
            }
            Said::FailChild { child } => {
                mpi.hub.fail_child(StepKey { job: peer.job, step: child }, out);
            }
            Said::Silent { child, parent, tasks, code } => {
                mpi.note_silent(peer, (child, parent), tasks, code);
            }
            Said::AllSilent { child, parent, code } => {
                mpi.silent.push(silent(peer, (child, parent), code));
            }
            Said::Word { launch, message } if is_its(launch) => {
                self.on_word(peer, launch, message);
            }
            // No keeper says this of another launch.
            _ => {}
        }
        // One at a time: the answers of a round can be far longer than its requests.
        self.send_answers();
    }

    /// The hub has something for a PMIx server of this node.
    fn on_word(&mut self, peer: Peer, launch: LaunchId, message: ToPmix) {
        let is_one = matches!(
            message,
            ToPmix::Space(_) | ToPmix::Gone { .. } | ToPmix::Answer { .. } | ToPmix::Fetch { .. }
        );
        let Some(job) = self.jobs.get(&launch.key()).filter(|job| job.launch.id() == launch) else {
            if matches!(message, ToPmix::Space(_) | ToPmix::Gone { .. }) {
                self.context.mpi.far.hold(launch, message);
            }
            return;
        };
        if is_one && job.hub_peer() == Some(peer) {
            self.with(launch.key(), |job, context| job.send_pmix(&message, context));
        }
    }
}

fn silent(of: Peer, (child, (step, rank)): (StepId, (StepId, u32)), code: u8) -> Silent {
    let step = StepKey { job: of.job, step };
    Silent { parent: (step, Rank(rank)), child, code }
}

/// Whether a step is described as it is on this node.
fn is_of(space: &PmixSpace, node: NodeId) -> bool {
    space.nodes.get(space.node as usize).is_some_and(|it| it.node == node)
}
