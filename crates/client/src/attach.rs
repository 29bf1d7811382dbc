//! `tutti attach`: sees the output of a running job beside its front end, and may give it input.
//!
//! The keepers of the job's nodes send what its tasks write from now on. Whatever becomes of this
//! process, the job goes on.

use super::input::Input;
use super::keeper::dial;
use super::panes::{self, Act, Panes, PanesOptions};
use super::run::{have_descriptors, shortest};
use super::sink::{Output, OutputError, OutputOptions};
use super::terminal::{Purpose, Terminal};
use crate::ask::{ask_until_answered, unexpected};
use crate::output::ended;
use nix::poll::{PollFd, PollFlags, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use serde_bytes::Bytes;
use std::os::fd::AsFd;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};
use tutti_node::exit::Exit;
use tutti_node::link::{Link, LinkError};
use tutti_types::{JobId, Outcome};
use tutti_wire::attach::{FromFrontEnd, ToFrontEndWith};
use tutti_wire::code::Code;
use tutti_wire::launch::InputTo;
use tutti_wire::local::{KeeperAt, Reply, Request};
use tutti_wire::report::JobReport;

/// How long nothing is waited for that no descriptor tells of.
const LOOK: u16 = 200;

/// How often a keeper that went away is looked for.
const RETRY: Duration = Duration::from_millis(500);

/// How long output of a job that has ended is waited for.
const PATIENCE_AT_END: Duration = Duration::from_secs(2);

/// Maximum wait for the answers of keepers before it says that it is attached.
const SAID_AFTER: Duration = Duration::from_secs(1);

/// Input that waits for slow tasks before more is read.
const INPUT_UNSENT_MAX: usize = 256 << 10;

/// What one read of input takes.
const INPUT_BYTES: usize = 64 << 10;

/// How a job is seen.
pub struct AttachOptions {
    /// How its output is shown.
    pub output: OutputOptions,
    /// The ranks that get what is typed.
    pub input: InputTo,
    /// The only rank that is shown.
    pub rank: Option<u32>,
    /// Whether each rank has a pane.
    pub panes: bool,
    /// The ranks that read input.
    pub readers: InputTo,
}

/// The job that is seen.
pub struct Seen {
    /// Its number.
    pub job: JobId,
    /// Its name.
    pub name: String,
    /// The number of its tasks.
    pub tasks: u32,
}

type End = anyhow::Result<(JobReport, Outcome)>;

/// The way to the keeper of one node.
struct View {
    at: KeeperAt,
    link: Option<Link>,
    /// It has said that output follows.
    is_attached: bool,
    /// All tasks of the node have ended, or it shows nothing.
    is_over: bool,
    tried: Instant,
}

struct Viewer {
    job: JobId,
    views: Vec<View>,
    output: Output,
    rank: Option<u32>,
    input: Input,
    input_open: bool,
    signals: SignalFd,
    terminal: Option<Terminal>,
    /// When it began, until it says that it is attached.
    untold: Option<Instant>,
    end: Receiver<End>,
    ended: Option<(Instant, JobReport, Outcome)>,
}

/// What a round came to.
enum Round {
    GoesOn,
    /// Output can't be written any more.
    Failed(OutputError),
}

/// Shows the output of a job until it ends, or the user detaches; the exit code.
///
/// # Errors
/// If the job is not to be seen.
pub fn attach(seen: Seen, options: AttachOptions) -> anyhow::Result<Exit> {
    let signals = detach_signals()?;
    if options.panes {
        panes::check_count(seen.tasks)?;
    }
    let terminal = options.panes.then(|| Terminal::new(Purpose::Panes)).transpose()?;
    have_descriptors();
    let job = seen.job;
    let keepers = match ask_until_answered(&Request::Keepers { job })? {
        Reply::Starting { attach, .. } => attach,
        _ => return unexpected(),
    };
    let end = end_of(job);
    let panes = options.panes.then(|| panes_of(&seen, &options));
    let input = Input::new(options.input, seen.tasks);
    let views = keepers.into_iter().map(|at| View::new(at, job)).collect();
    let mut viewer = Viewer {
        job,
        views,
        output: Output::new(options.output, seen.tasks, job, seen.name).in_panes(panes),
        rank: options.rank,
        input_open: input.wanted() || options.panes,
        input,
        signals,
        terminal,
        untold: Some(Instant::now()),
        end,
        ended: None,
    };
    if options.panes {
        // Later it would stand in the panes.
        viewer.say_attached();
    }
    viewer.terminal.iter_mut().for_each(Terminal::enter);
    if let Some(panes) = &mut viewer.output.panes {
        panes.enter(Some(job), Terminal::size());
    }
    viewer.serve()
}

fn panes_of(seen: &Seen, options: &AttachOptions) -> Panes {
    let title = format!("job {} {}", seen.job, seen.name);
    let (readers, input) = (options.readers, options.input);
    Panes::new(PanesOptions { title, size: seen.tasks, readers, input, is_viewer: true })
}

/// Ctrl-\ and Ctrl-C end this process alone.
fn detach_signals() -> anyhow::Result<SignalFd> {
    let mut set = SigSet::empty();
    for signal in [Signal::SIGQUIT, Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        set.add(signal);
    }
    set.thread_block()?;
    Ok(SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?)
}

/// Waits for the end of the job in a thread.
fn end_of(job: JobId) -> Receiver<End> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let end = ask_until_answered(&Request::Wait { job }).and_then(|reply| match reply {
            Reply::Ended { outcome, report, .. } => Ok((*report, outcome)),
            _ => unexpected(),
        });
        let _ = sender.send(end);
    });
    receiver
}

impl View {
    fn new(at: KeeperAt, job: JobId) -> Self {
        let link = look(&at, job);
        Self { at, link, is_attached: false, is_over: false, tried: Instant::now() }
    }

    /// Looks for a keeper that went away, as it does for an upgrade.
    fn look_again(&mut self, job: JobId) {
        if self.link.is_none() && !self.is_over && self.tried.elapsed() >= RETRY {
            self.tried = Instant::now();
            self.link = look(&self.at, job);
        }
    }

    fn send(&mut self, message: &FromFrontEnd) {
        if let Some(link) = self.link.as_mut().filter(|_| !self.is_over) {
            link.send(message);
        }
    }
}

/// Asks a keeper for the job's output.
fn look(at: &KeeperAt, job: JobId) -> Option<Link> {
    let mut link = dial(at).ok()?;
    link.send(&FromFrontEnd::Watch { job });
    link.flush().ok()?;
    Some(link)
}

impl Viewer {
    fn serve(mut self) -> anyhow::Result<Exit> {
        loop {
            if self.ended.is_none()
                && let Ok(end) = self.end.try_recv()
            {
                let (report, outcome) = end?;
                self.ended = Some((Instant::now(), report, outcome));
            }
            match self.round() {
                Round::GoesOn => {}
                Round::Failed(OutputError::ReaderGone) => return Ok(Exit::READER_GONE),
                Round::Failed(OutputError::Failed(error)) => {
                    return Err(error.context("cannot write the output"));
                }
            }
            let is_over = self.views.iter().all(|view| view.is_over);
            if let Some((at, report, outcome)) = &self.ended
                && (is_over || at.elapsed() > PATIENCE_AT_END)
            {
                if self.output.finish().is_err() {
                    return Ok(Exit::READER_GONE);
                }
                if let Some(terminal) = &mut self.terminal {
                    let code = outcome.exit_code;
                    let text = format!("job {} has ended, exit code {code}", self.job);
                    let signals = Some(self.signals.as_fd());
                    panes::linger(&mut self.output, terminal, text, signals, || false);
                }
                self.terminal = None;
                ended::say_how(report, *outcome);
                return Ok(Exit::of_job(outcome.exit_code));
            }
            if self.wait()? {
                let _ = self.output.finish();
                say!("tutti: detached from job {}; it goes on", self.job);
                return Ok(Exit::OK);
            }
        }
    }

    /// Takes in what has come.
    fn round(&mut self) -> Round {
        for index in 0..self.views.len() {
            let (job, has_ended) = (self.job, self.ended.is_some());
            let view = &mut self.views[index];
            view.look_again(job);
            let Some(link) = view.link.as_mut().filter(|_| !view.is_over) else { continue };
            let received = link.flush().and_then(|()| link.receive());
            match self.read(index) {
                Ok(Some(error)) => return Round::Failed(error),
                Ok(None) if received.is_ok() => {}
                Ok(None) | Err(_) => {
                    let view = &mut self.views[index];
                    view.link = None;
                    view.is_over |= has_ended;
                }
            }
        }
        if let Some(begun) = self.untold {
            let is_answered = self.views.iter().all(|view| view.is_attached || view.is_over);
            if is_answered || begun.elapsed() > SAID_AFTER {
                self.say_attached();
            }
        }
        match self.output.write_due() {
            Ok(()) => Round::GoesOn,
            Err(error) => Round::Failed(error),
        }
    }

    fn say_attached(&mut self) {
        if self.untold.take().is_some() {
            say!("tutti: attached to job {}; Ctrl-\\ detaches", self.job);
        }
    }

    /// Reads what one keeper has sent.
    fn read(&mut self, index: usize) -> Result<Option<OutputError>, LinkError> {
        let view = &mut self.views[index];
        let Some(link) = &mut view.link else { return Ok(None) };
        while let Some(message) = link.next::<ToFrontEndWith<&Bytes>>()? {
            match message {
                ToFrontEndWith::Output { rank, stream, data } => {
                    if self.rank.is_none_or(|only| only == rank.0)
                        && let Err(error) = self.output.take(rank, stream, data)
                    {
                        return Ok(Some(error));
                    }
                }
                ToFrontEndWith::TaskEnded { rank, status, .. } => {
                    self.input.on_task_ended(rank);
                    if let Some(panes) = &mut self.output.panes {
                        panes.on_task_ended(rank, status);
                    }
                }
                ToFrontEndWith::Finished => view.is_over = true,
                ToFrontEndWith::Refused { reason } => {
                    say!("tutti: {}", Code::OutputLost.mark(&format!("no output: {reason}")));
                    view.is_over = true;
                }
                ToFrontEndWith::Skipped { bytes } => {
                    say!(
                        "tutti: {bytes} bytes of output are left out here: this process reads too slowly"
                    );
                }
                ToFrontEndWith::Attached { .. } => view.is_attached = true,
                ToFrontEndWith::Pipe { .. }
                | ToFrontEndWith::ReturnPipe { .. }
                | ToFrontEndWith::Killed => {}
            }
        }
        Ok(None)
    }

    /// Waits for something to happen; whether that is a signal to detach.
    fn wait(&mut self) -> anyhow::Result<bool> {
        let stdin = std::io::stdin();
        let links =
            || self.views.iter().filter(|view| !view.is_over).filter_map(|it| it.link.as_ref());
        let unsent = links().map(Link::unsent).max().unwrap_or(0);
        let has_panes = self.output.panes.is_some();
        let reads = self.input_open && (unsent < INPUT_UNSENT_MAX || has_panes);
        let mut fds = vec![PollFd::new(self.signals.as_fd(), PollFlags::POLLIN)];
        if reads {
            fds.push(PollFd::new(stdin.as_fd(), PollFlags::POLLIN));
        }
        for link in links() {
            let mut flags = PollFlags::POLLIN;
            flags.set(PollFlags::POLLOUT, link.unsent() > 0);
            fds.push(PollFd::new(link.as_fd(), flags));
        }
        let terminal_at = fds.len();
        fds.extend(self.terminal.iter().map(|it| PollFd::new(it.as_fd(), PollFlags::POLLIN)));
        let look = Duration::from_millis(LOOK.into());
        let due = self.output.panes.as_ref().and_then(|panes| panes.due_in());
        match poll(&mut fds, shortest([Some(look), due])) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
        let ready = |at: usize| fds.get(at).is_some_and(|fd| fd.any().unwrap_or(true));
        let (signalled, typed) = (ready(0), reads && ready(1));
        let of_terminal = ready(terminal_at);
        drop(fds);
        if of_terminal
            && let Some(size) = self.terminal.as_mut().and_then(Terminal::on_signals)
            && let Some(panes) = &mut self.output.panes
        {
            panes.resize(size);
        }
        // It is not read: nothing follows it.
        match typed {
            true if has_panes => Ok(self.on_keys(unsent < INPUT_UNSENT_MAX) || signalled),
            true => {
                self.on_input();
                Ok(signalled)
            }
            false => Ok(signalled),
        }
    }

    /// What is typed in panes; whether that is to detach.
    fn on_keys(&mut self, has_room: bool) -> bool {
        let Some(panes) = &mut self.output.panes else { return false };
        let Some(acts) = panes.read_keys() else {
            self.input_open = false;
            return false;
        };
        for act in &acts {
            match act {
                Act::Send(message) if has_room => {
                    self.views.iter_mut().for_each(|view| view.send(message));
                }
                Act::Send(_) => panes.note_dropped(),
                Act::Leave => {}
            }
        }
        acts.contains(&Act::Leave)
    }

    fn on_input(&mut self) {
        let mut room = vec![0; INPUT_BYTES];
        let count = match nix::unistd::read(std::io::stdin(), &mut room) {
            Ok(count) => count,
            Err(nix::errno::Errno::EINTR | nix::errno::Errno::EAGAIN) => return,
            Err(_) => 0,
        };
        if count == 0 {
            // The tasks' own front end decides when their input ends.
            self.input_open = false;
            return;
        }
        let mut wrong = Vec::new();
        for message in self.input.take(&room[..count], &mut wrong) {
            self.views.iter_mut().for_each(|view| view.send(&message));
        }
        for line in wrong {
            say!("tutti: {line}");
        }
    }
}
