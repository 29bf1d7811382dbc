//! The PMI server of a job, and the socket of each task at which it is reached.
//!
//! The sockets are made with the tasks, since that is cheap and nobody knows beforehand which
//! program is an MPI program; whatever else a task speaks there costs its own connection.

mod handover;

use super::context::Context;
use super::job::Job;
use super::watch::{Event, Token, Watch};
use crate::link::Interest;
use crate::outside::ways::{self, Stream};
use std::io::{self, ErrorKind, Read, Write};
use tutti_core::{TaskPlacement, UserId};
use tutti_wire::keeper::FromKeeper;
use tutti_wire::launch::Launch;
use tutti_wire::pmi::{Effect, Exchange, LineBuffer, Server, ServerSpec, process_mapping};

/// Answers that a task has not read. It speaks and listens in turn, so more than a few is a fault.
const UNSENT_BYTES_MAX: usize = 1 << 20;

/// The server of a job, and its connections by the tasks' places.
pub(super) struct PmiJob {
    server: Server,
    connections: Vec<Option<Connection>>,
    /// What was said of barriers that are not open yet, for an agent that has not heard it.
    unanswered: Vec<Exchange>,
}

struct Connection {
    stream: Stream,
    token: Token,
    lines: LineBuffer,
    unsent: Vec<u8>,
    interest: Interest,
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
                space_name: format!("kvs_{}", launch.job),
                process_mapping: process_mapping(of_ranks),
                attributes: Vec::new(),
            }),
            connections: launch.share.tasks.iter().map(|_| None).collect(),
            unanswered: Vec::new(),
        }
    }

    /// Closes a task's connection.
    pub(super) fn close(&mut self, index: usize, context: &mut Context) {
        if let Some(connection) = self.connections.get_mut(index).and_then(Option::take) {
            context.watches.remove(&connection.stream, connection.token);
        }
    }

    /// Reads what a task said; whether it will say more.
    fn hear(&mut self, index: usize, context: &mut Context, effects: &mut Vec<Effect>) -> bool {
        let Some(Some(connection)) = self.connections.get_mut(index) else { return true };
        let count = match connection.stream.read(&mut context.scratch) {
            Ok(0) => return false,
            Ok(count) => count,
            Err(error) => {
                return matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted);
            }
        };
        connection.lines.extend(&context.scratch[..count]);
        loop {
            match connection.lines.next_line() {
                Ok(Some(line)) => self.server.handle(index, line, &mut context.names, effects),
                Ok(None) => return true,
                Err(error) => {
                    effects.push(Effect::Close { task: index, error });
                    return true;
                }
            }
        }
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
        let interest = Interest { read: true, write: !connection.unsent.is_empty() };
        if useful && interest != connection.interest {
            connection.interest = interest;
            context.watches.modify(&connection.stream, connection.token, interest);
        }
        useful
    }
}

impl Connection {
    fn write(&mut self) -> bool {
        while !self.unsent.is_empty() {
            match self.stream.write(&self.unsent) {
                Ok(count) => drop(self.unsent.drain(..count)),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    return self.unsent.len() <= UNSENT_BYTES_MAX;
                }
                Err(_) => return false,
            }
        }
        true
    }
}

/// Makes the connection of a task; returns the task's end of it.
pub(super) fn connect(job: &mut Job, index: usize, context: &mut Context) -> io::Result<Stream> {
    let (ours, theirs) = ways::pair()?;
    context.room.check(&theirs)?;
    ours.set_nonblocking(true)?;
    let watch = Watch::Pmi(job.launch.job, index);
    let token = context.watches.add(&ours, watch, Interest::READ)?;
    let connection = Connection {
        stream: ours,
        token,
        lines: LineBuffer::new(),
        unsent: Vec::new(),
        interest: Interest::READ,
    };
    let pmi = job.pmi.get_or_insert_with(|| PmiJob::new(&job.launch));
    if let Some(slot) = pmi.connections.get_mut(index) {
        *slot = Some(connection);
    }
    Ok(theirs)
}

impl Job {
    /// A task spoke to its PMI server, or reads its answers.
    pub(super) fn on_pmi(&mut self, index: usize, event: Event, context: &mut Context) {
        let Some(pmi) = &mut self.pmi else { return };
        let mut effects = Vec::new();
        let mut open = !event.read || pmi.hear(index, context, &mut effects);
        let mut answered = vec![index];
        let mut abort = None;
        for effect in effects {
            match effect {
                Effect::Reply { task, line } => {
                    pmi.queue(task, &line);
                    if !answered.contains(&task) {
                        answered.push(task);
                    }
                }
                Effect::Abort { task, code, message } => abort = Some((task, code, message)),
                Effect::Close { task, error } => {
                    say!([NotUnderstood] "tutti keeper: job {}: task at {task}: {error}", self.launch.job);
                    open &= task != index;
                }
                Effect::BarrierComplete { barrier } => {
                    let (launch, stored) = (self.launch.id(), pmi.server.take_stored());
                    let exchange = Exchange { launch, barrier, stored };
                    pmi.unanswered.push(exchange.clone());
                    context.reports.push(FromKeeper::Exchange(exchange));
                }
                Effect::Finalized { .. } => {}
            }
        }
        for task in answered {
            let useful = pmi.flush(task, context);
            if !useful || (task == index && !open) {
                pmi.close(task, context);
            }
        }
        if let Some((task, code, message)) = abort {
            self.abort(task, code, message, context);
        }
    }

    /// What was said of barriers and is not answered yet.
    pub(super) fn unanswered(&self) -> impl Iterator<Item = &Exchange> {
        self.pmi.iter().flat_map(|pmi| &pmi.unanswered)
    }

    /// All nodes have completed a barrier.
    pub(super) fn on_exchanged(&mut self, exchange: Exchange, context: &mut Context) {
        let Some(pmi) = &mut self.pmi else { return };
        let mut effects = Vec::new();
        pmi.unanswered.retain(|waiting| waiting.barrier != exchange.barrier);
        pmi.server.release(&exchange.barrier, exchange.stored, &mut effects);
        for effect in effects {
            let Effect::Reply { task, line } = effect else { continue };
            pmi.queue(task, &line);
            if !pmi.flush(task, context) {
                pmi.close(task, context);
            }
        }
    }

    /// A task asked that the whole job end, with this status.
    fn abort(&mut self, index: usize, code: i32, message: String, context: &mut Context) {
        // An abort is no success, whatever its author passed; a status has eight bits.
        let code = code.to_le_bytes()[0].max(1);
        if let Some(task) = self.tasks.get_mut(index) {
            task.aborted.get_or_insert((code, message));
        }
        self.kill(context);
    }
}
