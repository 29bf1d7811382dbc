//! A thread that waits for the program, so that a controller never does.

use crate::node::{NodeAnswer, parse_node_answer};
use crate::program::{Failure, Program, Start};
use crate::protocol::{Answer, Greeting, Wrong, parse_answer, parse_greeting};
use nix::sys::eventfd::{EfdFlags, EventFd};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;
use tutti_linux::spawn::Nursery;

/// Processes that were killed and are not gone yet, before no other is started.
const LEFT_MAX: usize = 4;

/// How long a program may take to begin: an interpreter may have much to read.
const GREETING_LIMIT: Duration = Duration::from_secs(10);

/// How often it is looked whether the program still lives, and keeps to its limits.
const LOOK_EVERY: Duration = Duration::from_millis(200);

enum Ask {
    Start {
        start: Start,
        hello: String,
    },
    Round {
        line: String,
        round: u64,
        limit: Duration,
    },
    Stop,
    /// It has ended by itself, or is over its limits, while nothing was asked.
    Fail(Failure),
}

/// What the thread reports.
#[derive(Debug)]
pub enum Reply<A = Answer> {
    /// The program has answered the first line.
    Began(Greeting),
    /// It has answered a round.
    Answered(A),
    /// It is dead, late or wrong, and was killed.
    Failed {
        /// Why.
        why: Failure,
        /// The last lines that it wrote to its standard error.
        said: Vec<String>,
    },
}

/// The thread.
#[derive(Debug)]
pub struct Worker<A = Answer> {
    ask: Sender<Ask>,
    replies: Receiver<Reply<A>>,
    wake: Arc<EventFd>,
}

impl Worker {
    /// Begins the thread, which does nothing yet.
    ///
    /// # Errors
    /// If there can be no thread.
    pub fn new() -> std::io::Result<Self> {
        Self::reading(parse_answer)
    }
}

impl Worker<NodeAnswer> {
    /// The same, for a part on a node.
    ///
    /// # Errors
    /// If there can be no thread.
    pub fn of_node() -> std::io::Result<Self> {
        Self::reading(parse_node_answer)
    }
}

/// How an answer is read, given the round that was asked.
type Reads<A> = fn(&[u8], u64) -> Result<A, Wrong>;

impl<A: Send + 'static> Worker<A> {
    fn reading(reads: Reads<A>) -> std::io::Result<Self> {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        let wake = Arc::new(EventFd::from_value_and_flags(0, flags)?);
        let (ask, asked) = channel();
        let (reply, replies) = channel();
        let wakes = Arc::clone(&wake);
        let send = move |it| {
            let sent = reply.send(it).is_ok();
            let _ = wakes.write(1);
            sent
        };
        thread::Builder::new().name("policy".into()).spawn(move || serve(&asked, reads, &send))?;
        Ok(Self { ask, replies, wake })
    }

    /// Becomes readable when there is a reply.
    #[must_use]
    pub fn wake(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    /// Starts a program, and has it answer the first line.
    pub fn start(&self, start: Start, hello: String) {
        let _ = self.ask.send(Ask::Start { start, hello });
    }

    /// Has the program answer a round within this time.
    pub fn ask(&self, line: String, round: u64, limit: Duration) {
        let _ = self.ask.send(Ask::Round { line, round, limit });
    }

    /// Kills the program, when the answer that is awaited has come or is overdue.
    pub fn stop(&self) {
        let _ = self.ask.send(Ask::Stop);
    }

    /// The next reply, if there is one.
    pub fn reply(&self) -> Option<Reply<A>> {
        let _ = self.wake.read();
        self.replies.try_recv().ok()
    }
}

fn serve<A>(asked: &Receiver<Ask>, reads: Reads<A>, send: &impl Fn(Reply<A>) -> bool) {
    let mut nursery = Nursery::new();
    let mut program: Option<Program> = None;
    let mut left: Vec<Program> = Vec::new();
    loop {
        let ask = match asked.recv_timeout(LOOK_EVERY) {
            Ok(ask) => ask,
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => match program.as_mut().map(Program::look) {
                Some(Err(why)) => Ask::Fail(why),
                Some(Ok(())) => continue,
                None => match asked.recv() {
                    Ok(ask) => ask,
                    Err(_) => break,
                },
            },
        };
        left.retain_mut(|program| !program.is_gone());
        let reply = match ask {
            Ask::Fail(why) => Err(why),
            Ask::Stop => {
                put_away(&mut program, &mut left);
                continue;
            }
            Ask::Start { start, hello } => {
                put_away(&mut program, &mut left);
                begin(&start, &hello, &mut nursery, &mut program, left.len())
            }
            Ask::Round { line, round, limit } => match &mut program {
                None => continue,
                Some(program) => program
                    .exchange(&line, limit)
                    .and_then(|line| Ok(Reply::Answered(reads(&line, round)?))),
            },
        };
        let reply = reply.unwrap_or_else(|why| {
            let said = program.as_mut().map_or_else(Vec::new, |program| program.take_said().0);
            put_away(&mut program, &mut left);
            Reply::Failed { why, said }
        });
        if !send(reply) {
            break;
        }
    }
    put_away(&mut program, &mut left);
}

fn begin<A>(
    start: &Start,
    hello: &str,
    nursery: &mut Nursery,
    program: &mut Option<Program>,
    left: usize,
) -> Result<Reply<A>, Failure> {
    if left >= LEFT_MAX {
        let reason = "earlier ones were killed and are not gone; is one traced?";
        return Err(Failure::NotStarted(reason.to_owned()));
    }
    let started = program.insert(Program::start(start, nursery)?);
    let line = started.exchange(hello, GREETING_LIMIT)?;
    Ok(Reply::Began(parse_greeting(&line)?))
}

/// Kills the program; if it is not gone at once, it is looked at again later.
fn put_away(program: &mut Option<Program>, left: &mut Vec<Program>) {
    let Some(mut killed) = program.take() else { return };
    killed.kill();
    for _ in 0..10 {
        if killed.is_gone() {
            return;
        }
        thread::sleep(Duration::from_millis(5));
    }
    left.push(killed);
}
