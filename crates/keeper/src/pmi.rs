//! The PMI server of a job, and the socket of each task at which it is reached.
//!
//! The sockets are made with the tasks, since that is cheap and it is not known beforehand which
//! program is an MPI program; whatever else a task speaks there costs its own connection.

mod handover;

use super::context::Context;
use super::job::{Job, Phase, Task};
use super::watch::{Token, Watch};
use std::io::{self, ErrorKind, Read, Write};
use tracing::warn;
use tutti_node::link::Interest;
use tutti_node::log::PROVOKED;
use tutti_node::platform::ways::{self, Stream};
use tutti_types::{StepId, TaskPlacement, UserId};
use tutti_wire::code::Code;
use tutti_wire::launch::{Launch, cut};
#[cfg(not(test))]
use tutti_wire::limits::EXCHANGE_USER_BYTES_MAX;
use tutti_wire::limits::TASK_DETAIL_BYTES_MAX;
use tutti_wire::pmi::{
    Effect, Exchange, LineBuffer, STORE_BYTES_MAX, Server, ServerSpec, TaskState, process_mapping,
};

/// Answers that a task has not read. It speaks and listens in turn: with more than this it is not
/// listened to until it has read them.
const UNSENT_BYTES_MAX: usize = 16 << 10;

/// What is read of a task at once, so that one task's commands take little of the keeper's time at
/// a time.
const READ_BYTES_MAX: usize = 4 << 10;

/// How many commands of a task are answered before others have their turn. Clients wait for each
/// answer; the last words of one that has ended are heard whole.
const COMMANDS_AT_ONCE: usize = 32;
const COMMANDS_LAST: usize = READ_BYTES_MAX;

/// In tests little, so that two jobs reach it.
#[cfg(test)]
const EXCHANGE_USER_BYTES_MAX: usize = 1 << 20;

/// The server of a job, and its connections by the tasks' places.
pub(super) struct PmiJob {
    server: Server,
    connections: Vec<Option<Connection>>,
    /// What of the server's is counted for its user.
    counted: usize,
}

struct Connection {
    stream: Stream,
    token: Token,
    lines: LineBuffer,
    unsent: Vec<u8>,
    interest: Interest,
    /// Whether commands may wait in `lines` whose turn comes with the next round.
    has_more: bool,
}

/// Why the job is to be ended.
pub(super) struct Abort {
    /// The task that is to blame.
    pub(super) index: usize,
    /// The status for it.
    pub(super) code: i32,
    pub(super) message: String,
}

/// When so much is freed at once, it is given back to the kernel.
const LOOSE_BYTES: usize = 1 << 20;

/// The name of a step's key-value space, which no other launch has. MPI libraries make the names of
/// files in `/dev/shm` from it. A file of another job, or one that a killed job left, fails them.
fn space_name(launch: &Launch) -> String {
    let (job, began) = (launch.job, launch.began.0);
    match launch.step {
        StepId::FIRST => format!("kvs_{job}_{began:x}"),
        step => format!("kvs_{job}_{began:x}_{step}"),
    }
}

impl PmiJob {
    fn new(launch: &Launch) -> Self {
        let nodes = (0_u32..).zip(&launch.nodes);
        let of_ranks = nodes.flat_map(|(place, node)| (0..node.tasks).map(move |_| place));
        Self {
            server: Server::new(ServerSpec {
                job: launch.job,
                user: UserId(launch.credentials.uid),
                size: launch.size,
                ranks: launch.share.tasks.iter().map(|task: &TaskPlacement| task.rank).collect(),
                space_name: space_name(launch),
                process_mapping: process_mapping(of_ranks),
                attributes: Vec::new(),
                universe: launch.nodes.iter().fold(0, |sum: u32, it| sum.saturating_add(it.slots)),
                spawned: launch.spawned.clone(),
            }),
            connections: launch.share.tasks.iter().map(|_| None).collect(),
            counted: 0,
        }
    }

    /// Closes a task's connection.
    pub(super) fn close(&mut self, index: usize, context: &mut Context) {
        if let Some(connection) = self.connections.get_mut(index).and_then(Option::take) {
            context.watches.remove(&connection.stream, connection.token);
        }
    }

    /// Reads what a task sent; whether more may come.
    fn read(&mut self, index: usize, context: &mut Context) -> bool {
        let Some(Some(connection)) = self.connections.get_mut(index) else { return true };
        let most = context.scratch.len().min(READ_BYTES_MAX);
        match connection.stream.read(&mut context.scratch[..most]) {
            Ok(0) => false,
            Ok(count) => {
                connection.lines.extend(&context.scratch[..count]);
                true
            }
            Err(error) => matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted),
        }
    }

    /// Whether commands of a task wait for the next round.
    fn has_more(&self, index: usize) -> bool {
        self.connections.get(index).and_then(Option::as_ref).is_some_and(|it| it.has_more)
    }

    /// Answers a task's commands, as many as it reads the answers of, and so many at most.
    fn answer(
        &mut self,
        index: usize,
        most: usize,
        context: &mut Context,
        effects: &mut Vec<Effect>,
    ) {
        self.leave_more(index, false);
        for _ in 0..most {
            let Some(Some(connection)) = self.connections.get_mut(index) else { return };
            if connection.is_behind() {
                return;
            }
            match connection.lines.next_line() {
                Ok(Some(line)) => self.server.handle(index, line, &mut context.mpi.names, effects),
                Ok(None) => return,
                Err(error) => {
                    effects.push(Effect::Close { task: index, error });
                    return;
                }
            }
            self.send_replies(effects, context);
        }
        self.leave_more(index, true);
    }

    fn leave_more(&mut self, index: usize, has_more: bool) {
        if let Some(Some(connection)) = self.connections.get_mut(index) {
            connection.has_more = has_more;
        }
    }

    /// Sends the answers among what is to be done, and leaves the rest.
    fn send_replies(&mut self, effects: &mut Vec<Effect>, context: &mut Context) {
        let mut rest = Vec::new();
        for effect in effects.drain(..) {
            let Effect::Reply { task, line } = effect else {
                rest.push(effect);
                continue;
            };
            self.queue(task, &line);
            if !self.flush(task, context) {
                self.close(task, context);
            }
        }
        *effects = rest;
    }

    /// Ends the wait in barriers that will never open, since a task has ended.
    fn give_up_barriers(&mut self, tasks: &[Task], effects: &mut Vec<Effect>) {
        let has_ended = |index: usize| tasks.get(index).is_some_and(Task::has_ended);
        if tasks.iter().any(Task::has_ended) {
            self.server.give_up_barriers(has_ended, effects);
        }
    }

    /// Counts for the user what the server keeps; whether that is less than one may have.
    fn count(&mut self, uid: u32, context: &mut Context) -> bool {
        let bytes = self.server.bytes();
        let of_user = context.mpi.pmi_bytes.entry(uid).or_default();
        *of_user = *of_user - self.counted + bytes;
        self.counted = bytes;
        *of_user <= EXCHANGE_USER_BYTES_MAX
    }

    fn queue(&mut self, index: usize, line: &[u8]) {
        if let Some(Some(connection)) = self.connections.get_mut(index) {
            connection.unsent.extend_from_slice(line);
        }
    }

    /// Writes what waits for a task; whether the connection is still of use.
    fn flush(&mut self, index: usize, context: &Context) -> bool {
        let Some(Some(connection)) = self.connections.get_mut(index) else { return true };
        let useful = connection.write();
        let interest = interest(&connection.unsent, connection.has_more);
        if useful && interest != connection.interest {
            connection.interest = interest;
            context.watches.modify(&connection.stream, connection.token, interest);
        }
        useful
    }
}

impl Connection {
    /// Whether it has left too many answers unread to get more.
    const fn is_behind(&self) -> bool {
        self.unsent.len() > UNSENT_BYTES_MAX
    }

    fn write(&mut self) -> bool {
        while !self.unsent.is_empty() {
            match self.stream.write(&self.unsent) {
                Ok(count) => drop(self.unsent.drain(..count)),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return true,
                Err(_) => return false,
            }
        }
        true
    }
}

/// What is waited for: no more is read of a task before what is left of it is answered.
const fn interest(unsent: &[u8], has_more: bool) -> Interest {
    Interest { read: unsent.len() <= UNSENT_BYTES_MAX && !has_more, write: !unsent.is_empty() }
}

/// Makes the connection of a task; returns the task's end of it.
pub(super) fn connect(job: &mut Job, index: usize, context: &mut Context) -> io::Result<Stream> {
    let (ours, theirs) = ways::pair()?;
    context.launching.room.check(&theirs)?;
    ours.set_nonblocking(true)?;
    let watch = Watch::Pmi(job.key(), index);
    let token = context.watches.add(&ours, watch, Interest::READ)?;
    let connection = Connection {
        stream: ours,
        token,
        lines: LineBuffer::new(),
        unsent: Vec::new(),
        interest: Interest::READ,
        has_more: false,
    };
    let pmi = job.pmi.get_or_insert_with(|| PmiJob::new(&job.launch));
    if let Some(slot) = pmi.connections.get_mut(index) {
        *slot = Some(connection);
    }
    Ok(theirs)
}

impl Job {
    /// A task spoke to its PMI server, or reads its answers.
    pub(super) fn on_pmi(&mut self, index: usize, reads: bool, context: &mut Context) {
        self.hear_pmi(index, (reads, COMMANDS_AT_ONCE), context);
    }

    fn hear_pmi(&mut self, index: usize, (reads, most): (bool, usize), context: &mut Context) {
        let key = self.key();
        let Some(pmi) = &mut self.pmi else { return };
        let mut effects = Vec::new();
        // What waits for it first: then it may be listened to.
        let mut open = pmi.flush(index, context);
        let reads = reads && (most == COMMANDS_LAST || !pmi.has_more(index));
        open &= !reads || pmi.read(index, context);
        pmi.answer(index, most, context, &mut effects);
        // Whether more is read of it may have changed.
        open &= pmi.flush(index, context);
        if pmi.has_more(index) {
            context.mpi.unheard.insert((key, Some(index)));
        }
        if let Some(abort) = self.waits_for_one_that_never_began() {
            return self.abort(abort, context);
        }
        let Some(pmi) = &mut self.pmi else { return };
        pmi.give_up_barriers(&self.tasks, &mut effects);
        let mut abort = self.carry_out(effects, context);
        let Some(pmi) = &mut self.pmi else { return };
        if !pmi.count(self.launch.credentials.uid, context) && abort.is_none() {
            abort = Some(too_much(index, "the jobs of its user", EXCHANGE_USER_BYTES_MAX));
        }
        if !open {
            pmi.close(index, context);
        }
        if let Some(abort) = abort {
            self.abort(abort, context);
        }
    }

    /// Does what the server asks for; why the job is to be ended, if it is.
    fn carry_out(&mut self, effects: Vec<Effect>, context: &mut Context) -> Option<Abort> {
        let key = self.key();
        let pmi = self.pmi.as_mut()?;
        let (mut abort, mut spawns) = (None, Vec::new());
        for effect in effects {
            match effect {
                Effect::Reply { task, line } => {
                    pmi.queue(task, &line);
                    if !pmi.flush(task, context) {
                        pmi.close(task, context);
                    }
                }
                Effect::Abort { task: index, code, message } => {
                    let message = cut(message, TASK_DETAIL_BYTES_MAX);
                    abort = Some(Abort { index, code, message });
                }
                Effect::Full { task } => {
                    abort = Some(too_much(task, "the job", STORE_BYTES_MAX));
                }
                Effect::Close { task, error } => {
                    let job = self.launch.job;
                    warn!(target: PROVOKED, code = %Code::NotUnderstood, %job, "task at {task}: {error}");
                    pmi.close(task, context);
                }
                Effect::BarrierComplete { .. } => context.note_exchange(key),
                Effect::Spawn { task, spawned } => spawns.push((task, spawned)),
                Effect::Finalized { .. } => {}
            }
        }
        for (task, mut spawned) in spawns {
            spawned.parent = self.parent_of(task);
            self.spawn_tasks(task, (spawned, Vec::new()), None, context);
        }
        abort
    }

    /// Answers a task that wants more tasks started; `refused`: why none are.
    pub(super) fn answer_spawn(
        &mut self,
        task: usize,
        refused: Option<&str>,
        context: &mut Context,
    ) {
        let Some(pmi) = &mut self.pmi else { return };
        let mut effects = Vec::new();
        pmi.server.answer_spawn(task, refused, &mut effects);
        pmi.send_replies(&mut effects, context);
    }

    /// The root of a task has ended, and is not reaped yet: hears what it said last, such as that
    /// it wants the job ended.
    pub(super) fn hear_last_words(&mut self, index: usize, context: &mut Context) {
        self.hear_pmix(usize::MAX, context);
        if self.has_begun_mpi(index) {
            self.hear_pmi(index, (true, COMMANDS_LAST), context);
        }
    }

    /// A task has ended: others may wait for it in vain.
    pub(super) fn end_pmi(&mut self, index: usize, context: &mut Context) {
        if let Some(abort) = self.waits_for_one_that_never_began() {
            return self.abort(abort, context);
        }
        let Some(pmi) = &mut self.pmi else { return };
        pmi.close(index, context);
        let mut effects = Vec::new();
        pmi.give_up_barriers(&self.tasks, &mut effects);
        if let Some(abort) = self.carry_out(effects, context) {
            self.abort(abort, context);
        }
    }

    /// Why the job is to be ended, if a task has ended without a word to MPI and others are in
    /// `MPI_Init` here, which waits for all: they could not begin. Some libraries ignore what PMI
    /// says of it. A PMIx library does not say what its tasks wait for: one that has failed is
    /// waited for.
    pub(super) fn waits_for_one_that_never_began(&self) -> Option<Abort> {
        let has_one_ended = self.tasks.iter().any(Task::has_ended);
        if self.launch.size < 2 || self.life.is_killed() || !has_one_ended {
            return None;
        }
        let is_mute = |index: &usize| !self.has_spoken(*index);
        let lives = |index: &usize| !self.tasks[*index].has_ended();
        let count = 0..self.tasks.len();
        let by_pmi = self.pmi.as_ref().map(|pmi| &pmi.server);
        let in_barrier = |index: &usize| by_pmi.is_some_and(|it| it.waits_for_all(*index));
        let in_pmix = |index: &usize| self.pmix_state(*index) == TaskState::Begun;
        let pmi_waits = by_pmi.and_then(|_| count.clone().filter(lives).find(in_barrier));
        let pmix_waits = count.clone().filter(lives).find(in_pmix);
        let index = pmi_waits.or(pmix_waits)?;
        let ends_vainly = |index: &usize| match self.tasks[*index].phase {
            Phase::Ended { status, .. } => pmi_waits.is_some() || status.exit_code() != 0,
            _ => false,
        };
        let ended = count.filter(is_mute).find(ends_vainly)?;
        let Phase::Ended { status, .. } = &self.tasks[ended].phase else { return None };
        let (rank, code) = (self.tasks[ended].rank, status.exit_code());
        let reason = format!(
            "rank {rank} ended with exit code {code} before MPI_Init, in which other ranks wait for it"
        );
        Some(Abort { index, code: i32::from(code), message: Code::NotFinalized.mark(&reason) })
    }

    /// Whether a task has begun MPI and not finalized it.
    fn has_begun_mpi(&self, index: usize) -> bool {
        self.pmi.as_ref().is_some_and(|pmi| pmi.server.state(index) == TaskState::Begun)
            || self.pmix_state(index) == TaskState::Begun
    }

    /// Whether a task has said a word by PMI-1.
    pub(super) fn has_spoken_pmi(&self, index: usize) -> bool {
        self.pmi.as_ref().is_some_and(|pmi| pmi.server.has_spoken(index))
    }

    /// Whether an MPI program of a task has finalized, and may have shut the task's connection
    /// down.
    pub(super) fn has_finalized(&self, index: usize) -> bool {
        self.pmi.as_ref().is_some_and(|pmi| pmi.server.state(index) == TaskState::Finalized)
    }

    /// Whether other tasks of the job may wait for this one, which has ended: those of its step, or
    /// those that have spawned it.
    pub(super) fn is_unfinalized(&self, index: usize) -> bool {
        (self.launch.size > 1 || self.launch.spawned.is_some()) && self.has_begun_mpi(index)
    }

    /// The next part of what is to be sent of barriers.
    pub(super) fn next_exchange(&mut self) -> Option<Exchange> {
        self.pmi.as_mut().filter(|_| !self.life.is_killed())?.server.next_part(self.launch.id())
    }

    /// The controller may have missed what was sent of barriers.
    pub(super) fn send_exchanges(&mut self, context: &mut Context) {
        if let Some(pmi) = &mut self.pmi {
            pmi.server.send_again();
            context.note_exchange(self.key());
        }
    }

    /// There is another agent: it says when it wants to have what is to be sent of barriers.
    pub(super) fn hold_exchanges(&mut self) {
        if let Some(pmi) = &mut self.pmi {
            pmi.server.send_nothing();
        }
    }

    /// A part of what all nodes have stored before a barrier.
    pub(super) fn on_exchanged(&mut self, exchange: &Exchange, context: &mut Context) {
        let Some(pmi) = &mut self.pmi else { return };
        let mut effects = Vec::new();
        pmi.server.hear(exchange, &mut effects);
        let within = pmi.count(self.launch.credentials.uid, context);
        let abort = self.carry_out(effects, context);
        let too_much = || too_much(0, "the jobs of its user", EXCHANGE_USER_BYTES_MAX);
        if let Some(abort) = abort.or_else(|| (!within).then(too_much)) {
            self.abort(abort, context);
        }
        self.answer_fence(context);
    }

    /// Stores a part of what this node says in a fence of PMIx. Gives the fence's number once it
    /// has said all.
    pub(super) fn store_fence(
        &mut self,
        (node, part): (u32, u32),
        data: &[u8],
        is_last: bool,
        context: &mut Context,
    ) -> Option<u32> {
        let pmi = self.pmi.get_or_insert_with(|| PmiJob::new(&self.launch));
        let mut effects = Vec::new();
        pmi.server.store_fence(node, part, data, &mut effects);
        let fence = is_last.then(|| pmi.server.complete_fence(&mut effects));
        let within = pmi.count(self.launch.credentials.uid, context);
        let abort = self.carry_out(effects, context);
        let too_much = || too_much(0, "the jobs of its user", EXCHANGE_USER_BYTES_MAX);
        if let Some(abort) = abort.or_else(|| (!within).then(too_much)) {
            self.abort(abort, context);
        }
        fence
    }

    /// What all nodes have said in a fence of PMIx, once they all have.
    pub(super) fn take_fence(&mut self, fence: u32) -> Option<Vec<Vec<u8>>> {
        self.pmi.as_mut()?.server.take_fence(fence)
    }

    /// The job has ended, on this node at least: gives back what the server keeps.
    pub(super) fn drop_pmi(&mut self, context: &mut Context) {
        let Some(pmi) = self.pmi.take() else { return };
        for connection in pmi.connections.into_iter().flatten() {
            context.watches.remove(&connection.stream, connection.token);
        }
        let uid = self.launch.credentials.uid;
        if let Some(of_user) = context.mpi.pmi_bytes.get_mut(&uid) {
            *of_user -= pmi.counted;
            if *of_user == 0 {
                context.mpi.pmi_bytes.remove(&uid);
            }
        }
        context.is_heap_loose |= pmi.counted > LOOSE_BYTES;
    }

    /// A task asked that the whole job end, or is the reason why it must.
    pub(super) fn abort(&mut self, abort: Abort, context: &mut Context) {
        let Abort { index, code, message } = abort;
        // An abort is no success, whatever its author passed; a status has eight bits.
        let code = code.to_le_bytes()[0].max(1);
        if let Some(task) = self.tasks.get_mut(index) {
            task.aborted.get_or_insert((code, message));
        }
        self.kill(context);
    }
}

/// The end of a job for which there is no room.
fn too_much(index: usize, of: &str, most: usize) -> Abort {
    let mib = most >> 20;
    let message = format!("{of} made the PMI server of a node keep more than {mib} MiB");
    Abort { index, code: 1, message: Code::TooMuchStored.mark(&message) }
}
