//! The connection with a keeper that holds some of the job's tasks.
//!
//! The way to a keeper on another node goes over agents and a network, and may break and be there
//! again. Nothing is lost by that: the front end attaches once more, says how much of the output it
//! has got, and hears how much of what it sent has arrived; both go on from there, with what each
//! has kept.
//!
//! A keeper of this node that breaks its connection has ended, and its tasks with it. But if it had
//! not taken the front end in yet, it had begun none of them: the keeper after it is asked to, and
//! waits for that.

use super::pipes::Pipes;
use anyhow::Context;
use nix::errno::Errno;
use std::collections::VecDeque;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};
use tutti_node::codes::coded;
use tutti_node::instance::Instance;
use tutti_node::link::{Link, LinkError};
use tutti_types::{EndReason, NodeId, StepKey};
use tutti_wire::Role;
use tutti_wire::attach::{FromFrontEnd, TerminalSize};
use tutti_wire::branch::Through;
use tutti_wire::code::Code;
use tutti_wire::limits::KEPT_BYTES_MAX;
use tutti_wire::local::KeeperAt;

/// How long a keeper on another node is looked for: it keeps the output longer than that.
pub(super) const PATIENCE: Duration = Duration::from_secs(100);

/// The same when the job has ended: its node was lost, most likely.
pub(super) const PATIENCE_AT_END: Duration = Duration::from_secs(5);

/// How long a keeper that may have begun nothing is waited for when the job has ended: what it says
/// may come later than the end, which no output holds up.
const PATIENCE_UNATTACHED: Duration = Duration::from_secs(1);

/// How often; and once it has been away for longer than a moment.
pub(super) const RETRY: Duration = Duration::from_millis(100);
const RETRY_LATER: Duration = Duration::from_millis(500);

/// A node that is away for longer is worth a word.
const REMARK_AFTER: Duration = Duration::from_secs(3);

const TOO_FEW_DESCRIPTORS: &str = "this process may not have as many files open as `tutti run` needs, one for each node \
                                   of the job and some more; raise the limit (`ulimit -n`), or use `tutti submit`";

/// See the head of the file.
pub(super) struct Keeper {
    /// Nothing while the way to it is broken.
    pub(super) link: Option<Link>,
    pub(super) pipes: Pipes,
    at: KeeperAt,
    /// The node that it is on, if that is another one.
    pub(super) far: Option<NodeId>,
    /// Whether it took us in. It starts no task before, so one that did not has no output of ours.
    pub(super) attached: bool,
    pub(super) finished: bool,
    /// How many bytes of frames came from it over earlier connections.
    received: u64,
    /// How many had come over this one when it took us in.
    counts_from: Option<u64>,
    sent: Sent,
    /// The size of the terminal that rank 0 is to have.
    terminal: Option<TerminalSize>,
    /// Since when the way to it is broken, when it was tried last, and whether that was said.
    away: Option<Away>,
}

#[derive(Clone, Copy)]
struct Away {
    since: Instant,
    tried: Instant,
    is_said: bool,
}

impl Away {
    fn begin() -> Self {
        let now = Instant::now();
        Self { since: now, tried: now, is_said: false }
    }
}

/// The latest of what was sent.
#[derive(Default)]
struct Sent {
    messages: VecDeque<FromFrontEnd>,
    bytes: usize,
    /// How many messages there were before those.
    before: u64,
}

impl Sent {
    fn note(&mut self, message: &FromFrontEnd) {
        self.bytes += bytes_of(message);
        self.messages.push_back(message.clone());
        while self.bytes > KEPT_BYTES_MAX
            && let Some(oldest) = self.messages.pop_front()
        {
            self.bytes -= bytes_of(&oldest);
            self.before += 1;
        }
    }

    /// What was sent behind the first so many, if all of it is there.
    fn behind(&self, heard: u64) -> Option<impl Iterator<Item = &FromFrontEnd>> {
        let skip = usize::try_from(heard.checked_sub(self.before)?).ok()?;
        (skip <= self.messages.len()).then(|| self.messages.iter().skip(skip))
    }
}

/// Whether each task of a job that ended so had begun: then each keeper had taken the front end in.
const fn began_everywhere(reason: EndReason) -> bool {
    matches!(reason, EndReason::Completed)
}

/// What a message takes, at least.
fn bytes_of(message: &FromFrontEnd) -> usize {
    match message {
        FromFrontEnd::Input { data, .. } => size_of::<FromFrontEnd>() + data.len(),
        _ => size_of::<FromFrontEnd>(),
    }
}

impl Keeper {
    /// Asks a keeper for the job. It is looked for if there is no way to it now.
    ///
    /// # Errors
    /// If no descriptor is left for that: nothing that is waited for would change it.
    pub(super) fn attach(
        at: &KeeperAt,
        key: StepKey,
        terminal: Option<TerminalSize>,
    ) -> anyhow::Result<Self> {
        let (pipes, far) = match at {
            KeeperAt::Here(_) => (Pipes::default(), None),
            KeeperAt::Node(node) => (Pipes::far(), Some(*node)),
        };
        let asked = dial(at).and_then(|mut link| {
            link.send(&FromFrontEnd::Attach { key, received: far.map(|_| 0), terminal });
            link.flush().context("the keeper went away")?;
            Ok(link)
        });
        if let Err(error) = &asked
            && has_no_descriptor(error)
        {
            return Err(coded(Code::System, TOO_FEW_DESCRIPTORS));
        }
        let link = asked.ok();
        Ok(Self {
            away: link.is_none().then(Away::begin),
            link,
            pipes,
            at: at.clone(),
            far,
            attached: false,
            finished: false,
            received: 0,
            counts_from: None,
            sent: Sent::default(),
            terminal,
        })
    }

    /// One of this node, with which there is a connection.
    pub(super) fn over(link: Link, key: StepKey) -> Self {
        let mut keeper = Self {
            away: None,
            link: Some(link),
            pipes: Pipes::default(),
            at: KeeperAt::Here(Vec::new().into()),
            far: None,
            attached: false,
            finished: false,
            received: 0,
            counts_from: None,
            sent: Sent::default(),
            terminal: None,
        };
        keeper.send(&FromFrontEnd::Attach { key, received: None, terminal: None });
        keeper
    }

    /// Whether something may still come from it, of a job that has ended in this way and then.
    pub(super) fn owes(&self, reason: EndReason, ended: Instant) -> bool {
        let has_begun = self.attached || began_everywhere(reason);
        !self.finished && (has_begun || ended.elapsed() < PATIENCE_UNATTACHED)
    }

    /// Whether it must have had output for us, and never took us in.
    pub(super) fn was_missed(&self, reason: EndReason) -> bool {
        !self.attached && began_everywhere(reason)
    }

    /// Whether another connection may be found to go on with.
    const fn may_come_back(&self) -> bool {
        self.far.is_some() || !self.attached
    }

    /// The user's terminal has another size.
    pub(super) fn resize(&mut self, size: TerminalSize) {
        self.terminal = Some(size);
        self.send(&FromFrontEnd::Resize { size });
    }

    /// Queues a message, and keeps it in case it does not arrive.
    pub(super) fn send(&mut self, message: &FromFrontEnd) {
        if self.may_come_back() {
            self.sent.note(message);
        }
        if let Some(link) = self.link.as_mut().filter(|_| self.away.is_none()) {
            link.send(message);
        }
    }

    /// How many bytes wait to be sent, or to be sent again.
    pub(super) fn unsent(&self) -> usize {
        match (&self.link, &self.away) {
            (Some(link), None) => link.unsent(),
            _ => usize::MAX / 2,
        }
    }

    /// It has taken us in, and this many of our messages. False if what it lacks is not kept.
    pub(super) fn on_attached(&mut self, heard: u64) -> bool {
        let is_back = self.away.take().is_some();
        self.attached = true;
        let Some(link) = &mut self.link else { return true };
        self.counts_from = Some(link.taken_bytes());
        if is_back {
            let Some(unheard) = self.sent.behind(heard) else { return false };
            unheard.for_each(|message| link.send(message));
        }
        if self.far.is_none() {
            self.sent = Sent::default();
        }
        true
    }

    /// The connection broke. Whether it is worth while to look for another.
    pub(super) fn lose(&mut self, error: &LinkError) -> bool {
        if let (Some(from), Some(link)) = (self.counts_from.take(), &self.link) {
            self.received += link.taken_bytes() - from;
        }
        self.link = None;
        self.away.get_or_insert_with(Away::begin).tried = Instant::now();
        self.may_come_back() && matches!(error, LinkError::Closed | LinkError::Io(_))
    }

    /// Whether the way to it is broken, and it has not been found again.
    pub(super) const fn is_away(&self) -> bool {
        self.away.is_some()
    }

    /// Tries again, when it is time to; false when that has been done for too long. `ended` is when
    /// the job did.
    pub(super) fn look_for(&mut self, job: StepKey, ended: Option<Instant>) -> bool {
        let Some(away) = &mut self.away else { return true };
        let is_late = away.since.elapsed() > PATIENCE
            || ended.is_some_and(|ended| ended.max(away.since).elapsed() > PATIENCE_AT_END);
        if is_late {
            self.link = None;
            return false;
        }
        if !away.is_said && away.since.elapsed() > REMARK_AFTER {
            away.is_said = true;
            match self.far {
                Some(_) => say!(
                    "tutti: a node of job {job} is out of reach; what its tasks write is shown when it is back"
                ),
                None => say!("tutti: job {job} waits for the keeper of this node, which is gone"),
            }
        }
        let wait = if away.is_said { RETRY_LATER } else { RETRY };
        if self.link.is_none() && away.tried.elapsed() > wait {
            away.tried = Instant::now();
            if let Ok(mut link) = dial(&self.at) {
                let received = self.far.map(|_| self.received);
                let terminal = self.terminal;
                link.send(&FromFrontEnd::Attach { key: job, received, terminal });
                // One that has ended meanwhile is found out when it does not answer.
                let _ = link.flush();
                self.link = Some(link);
            }
        }
        true
    }
}

/// Whether that failed since this process may have no more files open.
fn has_no_descriptor(error: &anyhow::Error) -> bool {
    let number = |cause: &(dyn std::error::Error + 'static)| match cause.downcast_ref::<Errno>() {
        Some(number) => Some(*number),
        None => cause.downcast_ref::<io::Error>()?.raw_os_error().map(Errno::from_raw),
    };
    error.chain().filter_map(number).any(|it| matches!(it, Errno::EMFILE | Errno::ENFILE))
}

/// The same error, or what to do if it is that no more files may be open.
pub(super) fn explained(error: anyhow::Error) -> anyhow::Error {
    match has_no_descriptor(&error) {
        true => coded(Code::System, TOO_FEW_DESCRIPTORS),
        false => error,
    }
}

/// A connection with a keeper that has been greeted.
pub(super) fn dial(keeper: &KeeperAt) -> anyhow::Result<Link> {
    let mut link = match keeper {
        KeeperAt::Here(socket) => {
            let path = Path::new(OsStr::from_bytes(socket));
            let stream = UnixStream::connect(path)
                .with_context(|| format!("cannot reach the keeper at {}", path.display()))?;
            let mut link = Link::new(stream)?;
            link.take_descriptors();
            link
        }
        KeeperAt::Node(node) => {
            let gate = Instance::locate().gate_socket();
            let stream = UnixStream::connect(&gate)
                .with_context(|| format!("cannot reach the agent at {}", gate.display()))?;
            let mut link = Link::new(stream)?;
            link.greet(Role::Gate);
            link.send(&Through { node: *node });
            link
        }
    };
    link.greet(Role::FrontEnd);
    Ok(link)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tutti_types::JobId;

    #[test]
    fn who_has_not_said_a_word_is_waited_for_if_its_tasks_have_run() {
        let nowhere = KeeperAt::Here(b"/none".to_vec().into());
        let mut keeper = Keeper::attach(&nowhere, StepKey::first(JobId(1)), None).unwrap();
        let now = Instant::now();
        let long_ago = now.checked_sub(PATIENCE_UNATTACHED * 2).unwrap();
        let owes = |keeper: &Keeper, ended| {
            [EndReason::Completed, EndReason::Cancelled].map(|reason| keeper.owes(reason, ended))
        };
        assert_eq!(owes(&keeper, long_ago), [true, false]);
        assert!(keeper.was_missed(EndReason::Completed));
        assert!(!keeper.was_missed(EndReason::Cancelled));
        keeper.on_attached(0);
        assert_eq!(owes(&keeper, long_ago), [true, true], "its output comes");
        assert!(!keeper.was_missed(EndReason::Completed));
        keeper.finished = true;
        assert_eq!(owes(&keeper, now), [false, false]);
    }

    #[test]
    fn what_was_sent_is_kept_as_far_as_it_can_be_under_way() {
        let mut sent = Sent::default();
        let message = |length| FromFrontEnd::Input { rank: None, data: vec![7; length].into() };
        (1..=3).for_each(|length| sent.note(&message(length)));
        let behind = |sent: &Sent, heard| sent.behind(heard).map(Iterator::count);
        assert_eq!(
            [0, 2, 3, 4].map(|heard| behind(&sent, heard)),
            [Some(3), Some(1), Some(0), None]
        );
        assert_eq!(sent.behind(2).unwrap().next(), Some(&message(3)));
        (0..8).for_each(|_| sent.note(&message(KEPT_BYTES_MAX / 4)));
        assert_eq!([7, 11].map(|heard| behind(&sent, heard)), [None, Some(0)]);
        assert_eq!(behind(&sent, 8), Some(3));
    }
}
