//! `tutti run`: one job, from the request to its exit code.

use super::input::Input;
use super::keeper::{self, Keeper};
use super::output::{Output, OutputError, OutputOptions};
use super::signals::{SignalTarget, hold_signals, pass_on_signals};
use super::start::connect_or_start;
use super::submission::{self, connect_again, until_answered};
use super::unheld::Asked;
use crate::codes::{coded, is_away};
use crate::exit::Exit;
use crate::instance::Instance;
use crate::link::{Link, LinkError};
use crate::output::{account, ended};
use anyhow::Context;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use serde_bytes::Bytes;
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};
use tutti_core::{JobId, Outcome, Rank};
use tutti_wire::attach::{FromFrontEnd, ToFrontEndWith};
use tutti_wire::code::Code;
use tutti_wire::launch::InputTo;
use tutti_wire::local::{JobRequest, KeeperAt, Reply, Request};
use tutti_wire::report::JobReport;

/// How `run` shows the job, beyond what the job is.
#[derive(Clone, Debug)]
pub(crate) struct RunOptions {
    /// How output is shown.
    pub(crate) output: OutputOptions,
    /// Who gets input.
    pub(crate) input: InputTo,
    /// Whether to say in the end what the job used.
    pub(crate) summary: bool,
}

/// Input that waits for slow tasks before more is read.
const INPUT_UNSENT_MAX: usize = 256 << 10;

/// How long a controller that went away is looked for, and how often, in milliseconds.
const PATIENCE: Duration = Duration::from_secs(20);
const RETRY_MS: u8 = 10;

/// The same in a cluster, where the way to it may be broken.
const PATIENCE_FAR: Duration = keeper::PATIENCE;
const RETRY_FAR_MS: u8 = 100;

/// Room for one read of input, and for one where the first was filled.
const INPUT_BYTES_FIRST: usize = 4 << 10;
const INPUT_BYTES_MOST: usize = 64 << 10;

struct Front {
    /// Nothing while it is away: its supervisor starts another.
    controller: Option<Link>,
    /// When it went away.
    away_since: Option<Instant>,
    keepers: Vec<Keeper>,
    signals: SignalTarget,
    output: Output,
    input: Input,
    input_open: bool,
    input_room: Vec<u8>,
    job: JobId,
    ended: Option<(Outcome, Box<JobReport>)>,
    ended_at: Option<Instant>,
    /// What is said in the end beside what went wrong.
    summary: Option<String>,
    wants_summary: bool,
    /// The exit code that a failure of the front end itself calls for.
    failed: Option<Exit>,
    /// Whether output of tasks on another node did not come through.
    output_lost: bool,
}

/// Runs a job to its end and gives the exit code of the whole.
///
/// # Errors
/// If there is no controller to speak with, or no more.
pub(crate) fn run(request: JobRequest, options: RunOptions) -> anyhow::Result<Exit> {
    hold_signals()?;
    let (size, name) = (request.tasks, request.launch.name.clone());
    let asked = Asked::of(&request);
    let request = Request::Run(request);
    let mut controller = ask(connect_or_start()?, &request);
    // The controller is at work meanwhile.
    have_descriptors();
    let target = pass_on_signals()?;
    // Whatever one that has ended had decided ended with it, before a task was started: those wait for us.
    let first = submission::answer(&mut controller);
    let reply = until_answered(first, || {
        controller = ask(connect_again()?, &request);
        submission::answer(&mut controller)
    })?;
    let job = match on_reply(reply, &target)? {
        Ok(job) => job,
        Err(exit) => return Ok(exit),
    };
    asked.say_unheld();
    let input = Input::new(options.input, size);
    let front = Front {
        controller: Some(controller),
        away_since: None,
        keepers: Vec::new(),
        signals: target,
        output: Output::new(options.output, size, job, name),
        input_open: input.wanted() && may_read_terminal(),
        input_room: Vec::new(),
        input,
        job,
        ended: None,
        ended_at: None,
        summary: None,
        wants_summary: options.summary,
        failed: None,
        output_lost: false,
    };
    front.serve()
}

/// There is a connection for each node of the job, and a pipe for each rank: as many as may be had. What the tasks
/// may have open is in the request already.
fn have_descriptors() {
    if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE)
        && soft < hard
    {
        let _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
    }
}

fn ask(mut controller: Link, request: &Request) -> Link {
    controller.send(request);
    // One that has ended meanwhile is found out when it does not answer.
    let _ = controller.flush();
    controller
}

/// The job, if there is one now, or how the front end ends without.
fn on_reply(reply: Reply, target: &SignalTarget) -> anyhow::Result<Result<JobId, Exit>> {
    match reply {
        Reply::Accepted { job, waits } => {
            target.set_waiting(!waits.is_empty());
            target.set(job);
            if !waits.is_empty() {
                say!("tutti: job {job} is queued: {waits}");
            }
            Ok(Ok(job))
        }
        Reply::Declined { reason, code } => {
            say!("tutti: declined: {}", code.mark(&reason));
            Ok(Err(Exit::DECLINED))
        }
        Reply::Failed { reason, code } => Err(coded(code, reason)),
        other => anyhow::bail!(
            "the controller answered something else ({}), after signal {}",
            reply_name(&other),
            target.last()
        ),
    }
}

fn reply_name(reply: &Reply) -> String {
    format!("{reply:?}").split([' ', '(', '{']).next().unwrap_or_default().to_owned()
}

/// A job in the background of a terminal would be stopped for reading from it.
fn may_read_terminal() -> bool {
    match nix::unistd::tcgetpgrp(std::io::stdin()) {
        Ok(foreground) => foreground == nix::unistd::getpgrp(),
        Err(_) => true,
    }
}

impl Front {
    fn serve(mut self) -> anyhow::Result<Exit> {
        loop {
            self.send_all();
            self.on_controller()?;
            for index in 0..self.keepers.len() {
                self.on_pipes(index);
                self.on_keeper(index);
            }
            if self.finished() {
                break;
            }
            self.send_all();
            self.wait()?;
        }
        if let Err(error) = self.output.finish() {
            self.on_output_error(&error);
        }
        self.look_for_missed();
        Ok(self.report())
    }

    fn finished(&self) -> bool {
        let (Some((outcome, _)), Some(at)) = (&self.ended, self.ended_at) else { return false };
        !self.keepers.iter().any(|keeper| keeper.owes(outcome.reason, at))
    }

    /// A keeper that has not taken us in though its tasks have run.
    fn look_for_missed(&mut self) {
        let Some((outcome, _)) = &self.ended else { return };
        if self.keepers.iter().any(|keeper| keeper.was_missed(outcome.reason)) {
            let lost = format!("a node did not pass on what its tasks of job {} wrote", self.job);
            say!("tutti: {}", Code::OutputLost.mark(&lost));
            self.output_lost = true;
        }
    }

    /// Waits until there is something to read, and reads standard input if it is there.
    fn wait(&mut self) -> anyhow::Result<()> {
        let stdin = std::io::stdin();
        // One that has finished takes no more of what was meant for it.
        let listening = self.keepers.iter().filter(|keeper| !keeper.finished);
        let unsent = listening.map(Keeper::unsent).max().unwrap_or(0);
        let read_input = self.input_open && unsent < INPUT_UNSENT_MAX && !self.keepers.is_empty();
        let mut fds = Vec::with_capacity(2 + self.keepers.len());
        if let Some(controller) = self.controller.as_ref().filter(|_| self.ended.is_none()) {
            fds.push(PollFd::new(controller.as_fd(), PollFlags::POLLIN));
        }
        for keeper in self.keepers.iter().filter(|keeper| !keeper.finished) {
            let Some(link) = &keeper.link else { continue };
            let mut flags = PollFlags::POLLIN;
            flags.set(PollFlags::POLLOUT, link.unsent() > 0);
            fds.push(PollFd::new(link.as_fd(), flags));
        }
        let pipes_at = fds.len();
        fds.extend(self.keepers.iter().flat_map(|keeper| keeper.pipes.poll()));
        let input_at = fds.len();
        if read_input {
            fds.push(PollFd::new(stdin.as_fd(), PollFlags::POLLIN));
        }
        let is_away = self.ended.is_none() && self.controller.is_none();
        let is_missed =
            |keeper: &Keeper| keeper.is_away() || (self.ended.is_some() && !keeper.attached);
        let misses = self.keepers.iter().any(|keeper| is_missed(keeper) && !keeper.finished);
        let is_new = self.away_since.is_some_and(|since| since.elapsed() < keeper::RETRY);
        let timeout = match (is_away, misses) {
            (true, _) if is_new => RETRY_MS.into(),
            (false, false) => PollTimeout::NONE,
            _ => RETRY_FAR_MS.into(),
        };
        match poll(&mut fds, timeout) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
        let ready: Vec<bool> = fds.iter().map(|fd| fd.any().unwrap_or(true)).collect();
        drop(fds);
        let mut of_pipes = ready[pipes_at..input_at].iter().copied();
        for keeper in &mut self.keepers {
            keeper.pipes.note(&mut of_pipes);
        }
        if ready.get(input_at) == Some(&true) {
            self.on_input();
        }
        Ok(())
    }

    fn on_input(&mut self) {
        // Most jobs read little or nothing: no page is written to before somebody does.
        let size = self.input_room.len().clamp(INPUT_BYTES_FIRST, INPUT_BYTES_MOST);
        self.input_room.resize(size, 0);
        let count = match nix::unistd::read(std::io::stdin(), &mut self.input_room) {
            Ok(count) => count,
            Err(nix::errno::Errno::EINTR | nix::errno::Errno::EAGAIN) => return,
            // A closed or unreadable standard input is an empty one.
            Err(_) => 0,
        };
        if count == 0 {
            self.input_open = false;
        }
        let mut wrong = Vec::new();
        let messages = self.input.take(&self.input_room[..count], &mut wrong);
        if count == size {
            self.input_room.resize(INPUT_BYTES_MOST, 0);
        }
        for line in wrong {
            say!("tutti: {line}");
        }
        for message in messages {
            for keeper in self.keepers.iter_mut().filter(|keeper| !keeper.finished) {
                keeper.send(&message);
            }
        }
    }

    fn send_all(&mut self) {
        for keeper in &mut self.keepers {
            let link = keeper.link.as_mut().filter(|_| !keeper.finished);
            if link.is_some_and(|link| link.flush().is_err()) {
                // Its end is noticed where it is read from.
            }
        }
    }

    fn on_controller(&mut self) -> anyhow::Result<()> {
        if self.ended.is_some() {
            return Ok(());
        }
        let Some(controller) = &mut self.controller else { return self.look_for_controller() };
        let received = controller.receive();
        loop {
            let Some(controller) = &mut self.controller else { return Ok(()) };
            match controller.next() {
                Ok(Some(reply)) => self.on_reply(reply)?,
                Ok(None) => break,
                Err(LinkError::Closed | LinkError::Io(_)) => {
                    self.lose_controller();
                    return Ok(());
                }
                Err(error) => return Err(error).context("the controller can't be understood"),
            }
        }
        if self.ended.is_none() && received.is_err() {
            self.lose_controller();
        }
        Ok(())
    }

    fn on_reply(&mut self, reply: Reply) -> anyhow::Result<()> {
        // So says the head while its controller is being started again, and an agent that can't reach the head.
        if matches!(reply, Reply::Failed { code, .. } if is_away(code)) {
            self.lose_controller();
            return Ok(());
        }
        self.away_since = None;
        match reply {
            // It may say so again after it was away.
            Reply::Starting { attach, .. } if self.keepers.is_empty() => {
                self.signals.set_waiting(false);
                self.attach(&attach)?;
            }
            Reply::Accepted { waits, .. } if !waits.is_empty() && !self.keepers.is_empty() => {
                let job = self.job;
                let reason = format!(
                    "the journal could not be written when job {job} began, and the controller after that \
                     would begin it once more; it is ended, and what became of it is not known"
                );
                return Err(coded(Code::JournalUnusable, reason));
            }
            Reply::Starting { .. } | Reply::Accepted { .. } => {}
            Reply::Ended { outcome, report, .. } => {
                self.summary = self.wants_summary.then(|| account::summary(&report));
                self.ended = Some((outcome, report));
                self.ended_at = Some(Instant::now());
            }
            Reply::Failed { reason, code } => {
                let job = self.job;
                let reason = format!("what became of job {job} is not known: {reason}");
                return Err(coded(code, reason));
            }
            other => {
                say!("tutti: the controller said {}; ignored", reply_name(&other));
            }
        }
        Ok(())
    }

    fn lose_controller(&mut self) {
        self.controller = None;
        self.away_since.get_or_insert_with(Instant::now);
    }

    /// The one after it knows the job, which goes on meanwhile.
    fn look_for_controller(&mut self) -> anyhow::Result<()> {
        let instance = Instance::locate();
        let is_cluster = instance.gate_socket().exists();
        let patience = if is_cluster { PATIENCE_FAR } else { PATIENCE };
        let in_time = self.away_since.is_some_and(|since| since.elapsed() < patience);
        match super::start::dial(&instance) {
            Ok(mut controller) if in_time => {
                controller.send(&Request::Return { job: self.job });
                // One that has ended meanwhile is found out when it does not answer.
                let _ = controller.flush();
                self.controller = Some(controller);
                Ok(())
            }
            Err(_) if in_time => Ok(()),
            _ => {
                let job = self.job;
                let reason = format!(
                    "the controller went away and did not come back; what became of job {job} is not \
                     known"
                );
                Err(coded(Code::ControllerAway, reason))
            }
        }
    }

    fn attach(&mut self, keepers: &[KeeperAt]) -> anyhow::Result<()> {
        let attach = |keeper| Keeper::attach(keeper, self.job);
        self.keepers = keepers.iter().map(attach).collect::<anyhow::Result<_>>()?;
        if !self.input_open && self.input.wanted() {
            for message in self.input.take(b"", &mut Vec::new()) {
                for keeper in &mut self.keepers {
                    keeper.send(&message);
                }
            }
        }
        Ok(())
    }

    fn on_pipes(&mut self, index: usize) {
        if let Err(error) = self.keepers[index].pipes.pass(&mut self.output) {
            self.on_output_error(&error);
        }
    }

    fn on_keeper(&mut self, index: usize) {
        let keeper = &mut self.keepers[index];
        if keeper.finished {
            return;
        }
        if !keeper.look_for(self.job, self.ended_at) {
            return self.give_up(index, &LinkError::Closed);
        }
        let Some(link) = &mut keeper.link else { return };
        let received = link.receive();
        if let Err(error) = self.read_keeper(index).and(received) {
            let keeper = &mut self.keepers[index];
            if !keeper.finished && !keeper.lose(&error) {
                self.give_up(index, &error);
            }
        }
    }

    /// A keeper is not to be found any more.
    fn give_up(&mut self, index: usize, error: &LinkError) {
        match (error, self.keepers[index].far) {
            (_, Some(node)) if self.keepers[index].attached => {
                let lost = format!(
                    "lost the connection with node {node}: what its tasks of job {} write from now on, or \
                     have just written, is not shown",
                    self.job
                );
                say!("tutti: {}", Code::OutputLost.mark(&lost));
                self.output_lost = true;
            }
            (LinkError::Closed, _) => {}
            _ => {
                let lost = format!("lost the output of job {}: {error}", self.job);
                say!("tutti: {}", Code::OutputLost.mark(&lost));
            }
        }
        self.keepers[index].finished = true;
        self.end_pipes(index, None);
    }

    /// Nothing more is written to the pipes of a rank, or to any.
    fn end_pipes(&mut self, index: usize, rank: Option<Rank>) {
        if let Err(error) = self.keepers[index].pipes.end(rank, &mut self.output) {
            self.on_output_error(&error);
        }
    }

    fn read_keeper(&mut self, index: usize) -> Result<(), LinkError> {
        loop {
            let keeper = &mut self.keepers[index];
            let Some(link) = &mut keeper.link else { return Ok(()) };
            let Some(message) = link.next::<ToFrontEndWith<&Bytes>>()? else {
                return Ok(());
            };
            match message {
                ToFrontEndWith::Attached { heard } => {
                    if !keeper.on_attached(heard) {
                        say!("tutti: some of the input of job {} was lost; ending it", self.job);
                        self.failed = Some(Exit::FAILED);
                        self.cancel();
                    }
                }
                ToFrontEndWith::Output { rank, stream, data } => {
                    let bytes = data.len();
                    // After a failure what still comes is thrown away.
                    if self.failed.is_some() {
                        continue;
                    }
                    let written = self.output.take(rank, stream, data);
                    if let Some(request) = keeper.pipes.ask(rank, stream, bytes) {
                        keeper.send(&request);
                    }
                    if let Err(error) = written {
                        self.on_output_error(&error);
                    }
                }
                ToFrontEndWith::Pipe { rank, stream } => {
                    let pipe = link.next_descriptor().filter(|_| self.failed.is_none());
                    let answer = keeper.pipes.take(rank, stream, pipe);
                    keeper.send(&answer);
                }
                // How it ended, the controller says.
                ToFrontEndWith::TaskEnded { rank, .. } => self.end_pipes(index, Some(rank)),
                ToFrontEndWith::Finished => {
                    if keeper.far.is_some()
                        && let Some(link) = &mut keeper.link
                    {
                        link.send(&FromFrontEnd::Done);
                        let _ = link.flush();
                    }
                    keeper.finished = true;
                }
                ToFrontEndWith::Refused { reason } => {
                    let lost = Code::OutputLost.mark(&format!("no output: {reason}"));
                    say!("tutti: {lost}");
                    self.output_lost |= keeper.attached;
                    keeper.finished = true;
                }
            }
        }
    }

    /// Output that can't be written ends the job: running on for nothing helps nobody.
    fn on_output_error(&mut self, error: &OutputError) {
        self.failed = Some(match error {
            OutputError::ReaderGone => Exit::READER_GONE,
            OutputError::Failed(error) => {
                let lost = format!("{error:#}; ending job {}", self.job);
                say!("tutti: {}", Code::OutputLost.mark(&lost));
                Exit::OUTPUT_LOST
            }
        });
        for keeper in self.keepers.iter_mut().filter(|keeper| !keeper.pipes.is_empty()) {
            keeper.pipes.clear();
            // It throws away then what nobody reads, so that no task waits for us.
            if let Some(link) = &keeper.link {
                let _ = link.stream().shutdown(Shutdown::Both);
            }
        }
        if self.ended.is_none() {
            self.cancel();
        }
    }

    fn cancel(&self) {
        if let Ok(mut link) = super::start::connect() {
            link.send(&Request::Cancel { target: self.job.into(), at_once: false });
            // A job that has ended meanwhile needs no end.
            let _ = link.call::<Reply>();
        }
    }

    /// Says what the exit code alone does not, and gives it.
    fn report(&self) -> Exit {
        let Some((outcome, report)) = &self.ended else { return Exit::FAILED };
        if let Some(failed) = self.failed {
            return failed;
        }
        ended::say_how(report, *outcome);
        if let Some(summary) = &self.summary {
            say!("tutti: {summary}");
        }
        if self.output_lost && outcome.exit_code == 0 {
            return Exit::OUTPUT_LOST;
        }
        Exit::of_job(outcome.exit_code)
    }
}
