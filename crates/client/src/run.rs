//! `tutti run`: one job, from the request to its exit code.

use super::ask;
use super::connect::connect_or_start;
use super::input::Input;
use super::intake::{Intake, Trouble};
use super::keeper::{self, Keeper};
use super::open_mpi::{self, Suspect};
use super::panes::{self, Act, Panes, PanesOptions};
use super::signals::{SignalTarget, cancel, hold_signals, pass_on_signals};
use super::sink::{Output, OutputError, OutputOptions};
use super::submission::{self, connect_again, until_answered};
use super::task_ends::{self, Face, TaskEnds, TellEnds};
use super::terminal::{Purpose, Terminal};
use super::unenforced_limits::Asked;
use crate::output::{account, ended};
use anyhow::Context;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};
use tutti_node::codes::{coded, is_away};
use tutti_node::exit::Exit;
use tutti_node::instance::Instance;
use tutti_node::link::{Link, LinkError};
use tutti_types::{FirstStep, JobId, Nanos, OnNodeLoss, Outcome, Rank, StepId, StepKey, StepSpec};
use tutti_wire::code::Code;
use tutti_wire::launch::InputTo;
use tutti_wire::local::{JobRequest, KeeperAt, Reply, Request, StepRequest};
use tutti_wire::report::JobReport;

/// How `run` shows the job, beyond what the job is.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// How output is shown.
    pub output: OutputOptions,
    /// The tasks that get input.
    pub input: InputTo,
    /// Whether to say in the end what the job used.
    pub summary: bool,
    /// What is asked for a step of the job that this process is in.
    pub inside: Inside,
    /// Whether rank 0 has a terminal of its own.
    pub terminal: bool,
    /// Whether each rank has a pane. All ranks read input then, unless `input` is for none.
    pub panes: bool,
    /// Whether and where it is said how each task ends.
    pub tells_ends: TellEnds,
}

/// What a run inside a job asks for.
#[derive(Clone, Copy, Debug, Default)]
pub struct Inside {
    /// Whether it is to be a job of its own all the same.
    pub outside: bool,
    /// Whether it shares processors with other steps.
    pub overlap: bool,
    /// Whether it is a step or nothing, also where the job that the environment names is gone.
    pub only_step: bool,
    /// Whether it has free slots at once or is refused, as what a program has spawned. Which step
    /// it is goes to the socket that is standard input, as a [`SpawnAnswer`].
    ///
    /// [`SpawnAnswer`]: tutti_wire::spawn::SpawnAnswer
    pub spawned: bool,
    /// The step serves the tasks of its job, and is not suspended with it.
    pub serves: bool,
}

/// Input that waits for slow tasks before more is read.
const INPUT_UNSENT_MAX: usize = 256 << 10;

/// How long a controller that went away is looked for, and how often.
const PATIENCE: Duration = Duration::from_secs(20);
const RETRY_ALONE: Duration = Duration::from_millis(10);

/// The same in a cluster, where the way to it may be broken.
const PATIENCE_FAR: Duration = keeper::PATIENCE;
const RETRY_FAR: Duration = Duration::from_millis(100);

/// Room for one read of input, and for one where the first was filled.
const INPUT_BYTES_FIRST: usize = 4 << 10;
const INPUT_BYTES_MOST: usize = 64 << 10;

struct Front {
    /// What is asked of the next controller, should this one end.
    again: Request,
    /// Nothing while it is away: its supervisor starts another.
    controller: Option<Link>,
    /// When it went away.
    away_since: Option<Instant>,
    intake: Intake,
    signals: SignalTarget,
    /// The user's terminal, if rank 0 has one of its own.
    terminal: Option<Terminal>,
    input: Input,
    input_open: bool,
    input_room: Vec<u8>,
    ended: Option<(Outcome, Box<JobReport>)>,
    ended_at: Option<Instant>,
    /// What is said in the end beside what went wrong.
    summary: Option<String>,
    wants_summary: bool,
    /// The exit code that a failure of the front end itself calls for.
    failed: Option<Exit>,
    /// Whether output of tasks on another node did not come through.
    output_lost: bool,
    /// Where the ends of tasks are reported.
    ends: Option<TaskEnds>,
    /// Whether the job's task waits for the end of its input while steps use the slots.
    holds_slots: bool,
    /// That the job waits in line, once it has waited long enough to be worth a line.
    queued: Option<Queued>,
}

/// What is said of a job in line, and when.
struct Queued {
    due: Instant,
    text: String,
}

/// A job that starts earlier was not queued for its user: a policy program of the site's, for one,
/// starts a job a moment after it came.
const QUEUED_AFTER: Duration = Duration::from_millis(100);

/// Runs a job to its end and gives the exit code of the whole.
///
/// # Errors
/// If there is no controller to speak with, or no more.
pub fn run(mut request: JobRequest, options: RunOptions) -> anyhow::Result<Exit> {
    hold_signals()?;
    let suspect = open_mpi::serve(&mut request)?;
    let asked = Asked::of(&request);
    let (size, name) = (request.first.tasks(request.tasks), request.launch.name.clone());
    let grace = request.grace;
    let mut tell: Option<Box<Tell>> = None;
    let (request, of_its_own) = match step_of(&request, options.inside)? {
        Some(mut step) => {
            if options.tells_ends == TellEnds::Socket {
                task_ends::take_slots(&mut step, StepId::FIRST);
            }
            if options.inside.spawned {
                task_ends::take_slots(&mut step, own_step());
                tell = Some(Box::new(task_ends::tell_start()?));
            }
            let own = (!options.inside.only_step).then_some(Request::Run(request));
            (Request::RunStep(Box::new(step)), own)
        }
        None => (Request::Run(request), None),
    };
    let asked = Some(asked);
    let patience = Duration::ZERO;
    let work = Work { request, of_its_own, size, name, grace, asked, suspect, tell, patience };
    work.run(options)
}

/// Runs a step that was asked for, to its end, and gives its exit code.
///
/// # Errors
/// If the job can't have it, or there is no controller to speak with.
pub(super) fn run_step(step: StepRequest, options: RunOptions) -> anyhow::Result<Exit> {
    hold_signals()?;
    Work::of_step(step, None).run(options)
}

/// As [`run_step`]; tells first whether the job has taken the step. Slots that are not free are
/// asked for again for some time.
///
/// # Errors
/// If there is no controller to speak with.
pub(super) fn run_spawned(
    step: StepRequest,
    options: RunOptions,
    (tell, patience): (Box<Tell>, Duration),
) -> anyhow::Result<Exit> {
    hold_signals()?;
    Work { patience, ..Work::of_step(step, Some(tell)) }.run(options)
}

/// Tells which step was accepted, or why none is.
type Tell = dyn FnOnce(Result<StepId, String>);

/// What is to run in the foreground.
struct Work {
    request: Request,
    /// What is asked for instead where the job is gone that a step is asked of.
    of_its_own: Option<Request>,
    size: u32,
    name: String,
    grace: Nanos,
    asked: Option<Asked>,
    suspect: Option<Suspect>,
    /// Tells another process whether the request was accepted.
    tell: Option<Box<Tell>>,
    /// How long slots are asked for that are not free.
    patience: Duration,
}

/// The pause before slots are asked for again.
const SLOTS_PAUSE: Duration = Duration::from_millis(50);

/// The user's terminal, where the work needs it as one.
fn terminal_of(options: &RunOptions, size: u32) -> anyhow::Result<Option<Terminal>> {
    if options.panes {
        panes::check_count(size)?;
    }
    let purpose = if options.panes { Purpose::Panes } else { Purpose::Pty };
    let has_terminal = options.terminal || options.panes;
    has_terminal.then(|| Terminal::new(purpose)).transpose()
}

/// The step that was accepted, or why none was.
fn step_of_reply(reply: &Reply) -> Result<StepId, String> {
    match reply {
        Reply::StepAccepted { key, .. } => Ok(key.step),
        Reply::Declined { reason, .. } | Reply::Failed { reason, .. } => Err(reason.clone()),
        other => Err(format!("the controller answered {}", reply_name(other))),
    }
}

/// Says a refusal where another than the user of `tutti run` reads it; the exit code then.
fn refused_elsewhere(
    reply: &Reply,
    request: &Request,
    tells_ends: TellEnds,
) -> anyhow::Result<Option<Exit>> {
    if let (TellEnds::Socket, Reply::Declined { reason, code }) = (tells_ends, reply) {
        // One that starts many steps says it once for many.
        task_ends::tell_declined(&code.mark(reason))?;
        return Ok(Some(Exit::DECLINED));
    }
    let within = match request {
        Request::RunStep(step) => Some(step.job),
        _ => None,
    };
    let Some(face) = tells_ends.face() else { return Ok(None) };
    let Some(refusal) = face.refusal(reply, within) else { return Ok(None) };
    say!("{face}: error: {refusal}");
    Ok(Some(Exit::FAILED))
}

impl Work {
    fn of_step(step: StepRequest, tell: Option<Box<Tell>>) -> Self {
        let (size, name) = (step.spec.tasks, step.launch.name.clone());
        let grace = step.spec.grace;
        let request = Request::RunStep(Box::new(step));
        let (of_its_own, asked, suspect) = (None, None, None);
        let patience = Duration::ZERO;
        Self { request, of_its_own, size, name, grace, asked, suspect, tell, patience }
    }

    fn run(self, options: RunOptions) -> anyhow::Result<Exit> {
        let terminal = terminal_of(&options, self.size)?;
        let Self { mut request, mut of_its_own, size, name, grace, asked, suspect, tell, patience } =
            self;
        let mut controller = ask(connect_or_start()?, &request);
        // The controller is at work meanwhile.
        have_descriptors();
        let target = pass_on_signals(grace).map_err(keeper::explained)?;
        // Whatever one that has ended had decided ended with it, before a task was started: tasks
        // wait for us.
        let first = submission::answer(&mut controller);
        let reply = until_answered(first, || {
            controller = ask(connect_again()?, &request);
            submission::answer(&mut controller)
        })?;
        // The job that the environment names is of another instance, or long gone.
        let mut reply = match (of_its_own.take(), reply) {
            (Some(own), Reply::Failed { code: Code::NoJob | Code::JobEnded, .. }) => {
                request = own;
                controller = ask(connect_again()?, &request);
                submission::answer(&mut controller)?
            }
            (_, reply) => reply,
        };
        let until = Instant::now() + patience;
        while is_short_of_slots(&reply) && Instant::now() < until {
            std::thread::sleep(SLOTS_PAUSE);
            controller = ask(connect_again()?, &request);
            reply = submission::answer(&mut controller)?;
        }
        if let Some(tell) = tell {
            tell(step_of_reply(&reply));
        }
        if let Some(exit) = refused_elsewhere(&reply, &request, options.tells_ends)? {
            return Ok(exit);
        }
        let (key, queued) = match on_reply(reply, &target, options.tells_ends.face())? {
            Ok(accepted) => accepted,
            Err(exit) => return Ok(exit),
        };
        let job = key.job;
        if let Some(asked) = asked {
            asked.say_unheld(Some(&controller));
        }
        if let Some(suspect) = suspect {
            suspect.watch(job, size);
        }
        let input = Input::new(options.input, size);
        let panes = options.panes.then(|| panes_of(job, &name, size, options.input));
        let step = options.tells_ends.number_of(key.step);
        let output = Output::new(options.output, size, job, name).of_step(step).in_panes(panes);
        let holds_slots = matches!(&request, Request::Run(it) if it.first == FirstStep::Once);
        let front = Front {
            again: asked_again(request, job),
            controller: Some(controller),
            away_since: None,
            intake: Intake::new(key, output),
            signals: target,
            terminal,
            input_open: options.panes || (input.wanted() && may_read_terminal()),
            input_room: Vec::new(),
            input,
            ended: None,
            ended_at: None,
            summary: None,
            wants_summary: options.summary,
            failed: None,
            output_lost: false,
            ends: TaskEnds::of(options.tells_ends)?,
            holds_slots,
            queued,
        };
        front.serve()
    }
}

/// What a front end asks that has lost its connection, once its request was accepted.
fn asked_again(request: Request, job: JobId) -> Request {
    match request {
        Request::RunStep(step) => Request::RunStep(Box::new(StepRequest { again: true, ..*step })),
        _ => Request::Return { job },
    }
}

/// A number that the environment of a task has.
fn own_number(name: &str) -> Option<u32> {
    std::env::var(name).ok()?.parse().ok()
}

/// The step that this process is in, or the job's first.
fn own_step() -> StepId {
    own_number("TUTTI_STEP").map_or(StepId::FIRST, StepId)
}

/// The request for a step, if this process is in a job and is to start one.
///
/// # Errors
/// If it asks for what a step can't have.
fn step_of(request: &JobRequest, inside: Inside) -> anyhow::Result<Option<StepRequest>> {
    let Some(job) = request.within.filter(|_| !inside.outside) else {
        anyhow::ensure!(!inside.overlap, "--overlap is for a `tutti run` inside a job");
        return Ok(None);
    };
    let only_for_jobs = [
        ("--class", request.names_class),
        ("-q", request.queue.is_some() && std::env::var_os("TUTTI_QUEUE").is_none()),
        ("-t", request.time_limit.is_some()),
        ("-d", request.deadline.is_some()),
        ("--begin", request.begin_ms.is_some()),
        ("--signal", request.warning.is_some()),
        ("--checkpoint", request.checkpoint.is_some_and(|it| it.saves_image())),
        ("--checkpoint-signal", request.checkpoint.is_some()),
        ("--vacate", request.launch.vacate.is_some()),
        ("--resource", request.resources.iter().any(|it| it.devices().is_none())),
        ("--device", request.resources.iter().any(|it| it.devices().is_some())),
        ("-x", request.nodes.exclude.is_some()),
        ("--constraint", request.nodes.constraint.is_some()),
        ("--spread", request.nodes.spread),
        ("--exclusive", request.nodes.exclusive),
        ("--on-node-loss", request.on_node_loss != OnNodeLoss::Kill),
        ("--swap", request.swap),
        ("--policy-arg", !request.policy_args.is_empty()),
        ("--weights", request.weights.is_some()),
        ("--notify", request.notify.is_some()),
        ("--max-tasks", matches!(request.first, FirstStep::Tasks(_))),
    ];
    if let Some((option, _)) = only_for_jobs.iter().find(|(_, is_asked)| *is_asked) {
        let reason = format!(
            "{option} is for a job, and this `tutti run` is inside job {job}: leave it out to start \
             a step of that job, or start a job of its own with --outside"
        );
        return Err(coded(Code::BadValue, reason));
    }
    // The task that waits for the step lends its processors; a step's own tasks lend nothing.
    let is_first = own_step() == StepId::FIRST;
    let lender = own_number("TUTTI_RANK").map(Rank);
    Ok(Some(StepRequest {
        job,
        key: submission::new_key()?,
        again: false,
        spec: StepSpec {
            tasks: request.tasks,
            processors_per_task: request.processors_per_task,
            overlap: inside.overlap,
            nodes: request.nodes.count,
            grace: request.grace,
            on_bad_exit: request.on_bad_exit,
            lender: lender.filter(|_| is_first),
            beside: None,
            spawned_by: None,
            on_node: None,
        },
        memory_per_task_bytes: request.memory_per_task_bytes,
        launch: request.launch.clone(),
        spawned: None,
        node: request.nodes.only.clone(),
        serves: inside.serves,
    }))
}

/// There is a connection for each node of the job, and a pipe for each rank: as many as may be had.
/// What the tasks may have open is in the request already.
pub(super) fn have_descriptors() {
    if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE)
        && soft < hard
    {
        let _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
    }
}

/// The shortest of these times, rounded up to what the kernel takes.
pub(super) fn shortest<const N: usize>(times: [Option<Duration>; N]) -> PollTimeout {
    let Some(time) = times.into_iter().flatten().min() else { return PollTimeout::NONE };
    let millis = time.as_micros().div_ceil(1000).min(u128::from(u16::MAX));
    PollTimeout::from(u16::try_from(millis).unwrap_or(u16::MAX))
}

fn ask(mut controller: Link, request: &Request) -> Link {
    controller.send(request);
    // One that has ended meanwhile is found out when it does not answer.
    let _ = controller.flush();
    controller
}

/// Whether a job has fewer free slots than a spawn asks for.
const fn is_short_of_slots(reply: &Reply) -> bool {
    matches!(reply, Reply::Declined { code: Code::TooLarge, .. })
}

/// The job, if there is one now, and what to say if it goes on waiting; or how the front end ends
/// without.
fn on_reply(
    reply: Reply,
    target: &SignalTarget,
    face: Option<Face>,
) -> anyhow::Result<Result<(StepKey, Option<Queued>), Exit>> {
    match reply {
        Reply::Accepted { job, waits } => {
            let key = StepKey::first(job);
            target.set_waiting(!waits.is_empty());
            target.set(key);
            let queued = (!waits.is_empty()).then(|| Queued {
                due: Instant::now() + QUEUED_AFTER,
                text: match face {
                    Some(face) => format!("{face}: job {job} queued and waiting for resources"),
                    None => format!("tutti: job {job} is queued: {waits}"),
                },
            });
            Ok(Ok((key, queued)))
        }
        Reply::StepAccepted { key, waits } => {
            target.set_waiting(!waits.is_empty());
            target.set(key);
            Ok(Ok((key, None)))
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

fn panes_of(job: JobId, name: &str, size: u32, input: InputTo) -> Panes {
    let readers = if input == InputTo::Nobody { InputTo::Nobody } else { InputTo::All };
    let title = format!("job {job} {name}");
    Panes::new(PanesOptions { title, size, readers, input, is_viewer: false })
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
            self.intake.send_all();
            self.on_controller()?;
            self.say_queued();
            self.take_in();
            if self.finished() {
                break;
            }
            self.intake.send_all();
            self.wait()?;
        }
        if let Err(error) = self.intake.output.finish() {
            self.on_output_error(&error);
        }
        self.linger();
        // What follows is for its former mode.
        self.terminal = None;
        self.look_for_missed();
        Ok(self.report())
    }

    fn take_in(&mut self) {
        let mut troubles = Vec::new();
        self.intake.take_in(self.ended_at, &mut troubles);
        for trouble in &troubles {
            self.on_trouble(trouble);
        }
        if let Err(error) = self.intake.output.write_due() {
            self.on_output_error(&error);
        }
    }

    fn finished(&self) -> bool {
        let (Some((outcome, _)), Some(at)) = (&self.ended, self.ended_at) else { return false };
        !self.intake.keepers.iter().any(|keeper| keeper.owes(outcome.reason, at))
    }

    /// Shows what is in panes until a key is pressed, or this process is to end by a signal.
    fn linger(&mut self) {
        let Some(terminal) = &mut self.terminal else { return };
        let Some((outcome, _)) = self.ended.as_ref().filter(|_| self.failed.is_none()) else {
            return;
        };
        let key = self.intake.key;
        let text = format!("job {key} has ended, exit code {}", outcome.exit_code);
        let last = self.signals.last();
        let ends = [Signal::SIGTERM, Signal::SIGHUP].map(|signal| signal as u8);
        let is_over = || self.signals.last() != last || ends.contains(&last);
        panes::linger(&mut self.intake.output, terminal, text, None, is_over);
    }

    /// A keeper that has not taken us in though its tasks have run.
    fn look_for_missed(&mut self) {
        let Some((outcome, _)) = &self.ended else { return };
        if self.intake.keepers.iter().any(|keeper| keeper.was_missed(outcome.reason)) {
            let lost =
                format!("a node did not pass on what its tasks of job {} wrote", self.intake.key);
            say!("tutti: {}", Code::OutputLost.mark(&lost));
            self.output_lost = true;
        }
    }

    /// Waits until there is something to read, and reads standard input if it is there.
    fn wait(&mut self) -> anyhow::Result<()> {
        let stdin = std::io::stdin();
        // One that has finished takes no more of what was meant for it.
        let keepers = &self.intake.keepers;
        let listening = keepers.iter().filter(|keeper| !keeper.finished);
        let unsent = listening.map(Keeper::unsent).max().unwrap_or(0);
        let has_panes = self.intake.output.panes.is_some();
        let read_input =
            self.input_open && (unsent < INPUT_UNSENT_MAX || has_panes) && !keepers.is_empty();
        let mut fds = Vec::with_capacity(3 + keepers.len());
        if let Some(controller) = self.controller.as_ref().filter(|_| self.ended.is_none()) {
            fds.push(PollFd::new(controller.as_fd(), PollFlags::POLLIN));
        }
        let (links, pipes) = self.intake.poll();
        fds.extend(self.terminal.iter().map(|it| PollFd::new(it.as_fd(), PollFlags::POLLIN)));
        fds.extend(links);
        let pipes_at = fds.len();
        fds.extend(pipes);
        let input_at = fds.len();
        if read_input {
            fds.push(PollFd::new(stdin.as_fd(), PollFlags::POLLIN));
        }
        match poll(&mut fds, self.wait_at_most()) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
        let ready: Vec<bool> = fds.iter().map(|fd| fd.any().unwrap_or(true)).collect();
        drop(fds);
        self.intake.note(ready[pipes_at..input_at].iter().copied());
        if let Some(size) = self.terminal.as_mut().and_then(Terminal::on_signals) {
            match &mut self.intake.output.panes {
                Some(panes) => panes.resize(size),
                None => self.intake.keepers.iter_mut().for_each(|keeper| keeper.resize(size)),
            }
        }
        match ready.get(input_at) {
            Some(true) if has_panes => self.on_keys(unsent < INPUT_UNSENT_MAX),
            Some(true) => self.on_input(),
            _ => {}
        }
        Ok(())
    }

    fn wait_at_most(&self) -> PollTimeout {
        let is_away = self.ended.is_none() && self.controller.is_none();
        let is_new = self.away_since.is_some_and(|since| since.elapsed() < keeper::RETRY);
        let of_controller = match is_away {
            true if is_new => Some(RETRY_ALONE),
            true => Some(RETRY_FAR),
            false => None,
        };
        let of_keepers = self.intake.wait_at_most(self.ended.is_some());
        let queued = self.queued.as_ref();
        let of_queued = queued.map(|it| it.due.saturating_duration_since(Instant::now()));
        shortest([of_controller, of_keepers, self.intake.output.due_in(), of_queued])
    }

    /// Says that the job waits, if it has waited for a while.
    fn say_queued(&mut self) {
        if let Some(queued) = self.queued.take_if(|queued| queued.due <= Instant::now()) {
            say!("{}", queued.text);
        }
    }

    fn on_input(&mut self) {
        // Most jobs read little or nothing: no page is written to before one does.
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
            self.end_loans();
        }
        let mut wrong = Vec::new();
        let typed = &self.input_room[..count];
        let messages = match self.terminal.as_mut().filter(|_| count > 0).map(|it| it.take(typed)) {
            None => self.input.take(typed, &mut wrong),
            Some((_, true)) => return self.end_from_terminal(),
            Some((keys, _)) if keys.is_empty() => return,
            Some((keys, _)) => self.input.take(&keys, &mut wrong),
        };
        if count == size {
            self.input_room.resize(INPUT_BYTES_MOST, 0);
        }
        for line in wrong {
            say!("tutti: {line}");
        }
        for message in messages {
            for keeper in self.intake.keepers.iter_mut().filter(|keeper| !keeper.finished) {
                keeper.send(&message);
            }
        }
    }

    /// The task is to learn that its input has ended, so it needs turns from now on.
    fn end_loans(&mut self) {
        if self.holds_slots {
            let request = Request::Lend { job: self.intake.key.job, lends: false };
            // Where the controller has gone away, the one after it is asked again.
            self.holds_slots = ask::ask(&request).is_err();
        }
    }

    /// What is typed in panes; dropped where what was typed before still waits.
    fn on_keys(&mut self, has_room: bool) {
        let Some(panes) = &mut self.intake.output.panes else { return };
        let Some(acts) = panes.read_keys() else {
            self.input_open = false;
            return;
        };
        for act in acts {
            match act {
                Act::Send(message) if has_room => {
                    for keeper in self.intake.keepers.iter_mut().filter(|it| !it.finished) {
                        keeper.send(&message);
                    }
                }
                Act::Send(_) => panes.note_dropped(),
                // As ^C does.
                Act::Leave => drop(kill(Pid::this(), Signal::SIGINT)),
            }
        }
    }

    /// The user has typed what ends the job instead of a key for it.
    fn end_from_terminal(&mut self) {
        self.terminal.iter_mut().for_each(Terminal::leave);
        self.input_open = false;
        say!("tutti: ending job {}; ^C kills it", self.intake.key);
        self.signals.set_ending();
        self.cancel();
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
        // So says the head while its controller is being started again, and an agent that can't
        // reach the head.
        if matches!(reply, Reply::Failed { code, .. } if is_away(code)) {
            self.lose_controller();
            return Ok(());
        }
        self.away_since = None;
        match reply {
            // It may say so again after it was away.
            Reply::Starting { attach, .. } if self.intake.keepers.is_empty() => {
                self.signals.set_waiting(false);
                self.queued = None;
                self.attach(&attach)?;
            }
            Reply::Accepted { waits, .. }
                if !waits.is_empty() && !self.intake.keepers.is_empty() =>
            {
                let job = self.intake.key;
                let reason = format!(
                    "the journal could not be written when job {job} began, and the controller after that \
                     would begin it once more; it is ended, and what became of it is not known"
                );
                return Err(coded(Code::JournalUnusable, reason));
            }
            Reply::Starting { .. } | Reply::Accepted { .. } | Reply::StepAccepted { .. } => {}
            Reply::Notice { text } => say!("tutti: {text}"),
            Reply::Ended { outcome, report, .. } => {
                self.queued = None;
                self.summary = self.wants_summary.then(|| account::summary(&report));
                self.ended = Some((outcome, report));
                self.ended_at = Some(Instant::now());
            }
            Reply::Failed { reason, code } => {
                let job = self.intake.key;
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
        match super::connect::dial(&instance) {
            Ok(mut controller) if in_time => {
                controller.send(&self.again);
                // One that has ended meanwhile is found out when it does not answer.
                let _ = controller.flush();
                self.controller = Some(controller);
                if !self.input_open {
                    self.end_loans();
                }
                Ok(())
            }
            Err(_) if in_time => Ok(()),
            _ => {
                let job = self.intake.key;
                let reason = format!(
                    "the controller went away and did not come back; what became of job {job} is not \
                     known"
                );
                Err(coded(Code::ControllerAway, reason))
            }
        }
    }

    fn attach(&mut self, keepers: &[KeeperAt]) -> anyhow::Result<()> {
        let is_pty = self.terminal.as_ref().is_some_and(Terminal::is_pty);
        let terminal = is_pty.then(Terminal::size);
        let attach = |keeper| Keeper::attach(keeper, self.intake.key, terminal);
        self.intake.keepers = keepers.iter().map(attach).collect::<anyhow::Result<_>>()?;
        self.terminal.iter_mut().for_each(Terminal::enter);
        if let Some(panes) = &mut self.intake.output.panes {
            let key = self.intake.key;
            panes.enter((key.step == StepId::FIRST).then_some(key.job), Terminal::size());
        }
        if !self.input_open && self.input.wanted() {
            for message in self.input.take(b"", &mut Vec::new()) {
                for keeper in &mut self.intake.keepers {
                    keeper.send(&message);
                }
            }
        }
        Ok(())
    }

    fn on_trouble(&mut self, trouble: &Trouble) {
        let job = self.intake.key;
        match trouble {
            Trouble::Output(error) => self.on_output_error(error),
            Trouble::InputLost => {
                say!("tutti: some of the input of job {job} was lost; ending it");
                self.failed = Some(Exit::FAILED);
                self.cancel();
            }
            Trouble::NodeLost(node) => {
                let lost = format!(
                    "lost the connection with node {node}: what its tasks of job {job} write from now on, or \
                     have just written, is not shown"
                );
                say!("tutti: {}", Code::OutputLost.mark(&lost));
                self.output_lost = true;
            }
            Trouble::KeeperLost(error) => {
                let lost = format!("lost the output of job {job}: {error}");
                say!("tutti: {}", Code::OutputLost.mark(&lost));
            }
            Trouble::Refused { reason, was_attached } => {
                let lost = Code::OutputLost.mark(&format!("no output: {reason}"));
                say!("tutti: {lost}");
                self.output_lost |= was_attached;
            }
            Trouble::TaskEnded(rank, status, far) => {
                self.input.on_task_ended(*rank);
                self.ends.iter_mut().for_each(|ends| ends.tell(*rank, *status, *far));
                if let Some(panes) = &mut self.intake.output.panes {
                    panes.on_task_ended(*rank, *status);
                }
            }
            Trouble::Killed => {}
        }
    }

    /// Output that can't be written ends the job: running on for nothing helps no user.
    fn on_output_error(&mut self, error: &OutputError) {
        self.failed = Some(match error {
            OutputError::ReaderGone => Exit::READER_GONE,
            OutputError::Failed(error) => {
                let lost = format!("{error:#}; ending job {}", self.intake.key);
                say!("tutti: {}", Code::OutputLost.mark(&lost));
                Exit::OUTPUT_LOST
            }
        });
        self.intake.discard();
        if self.ended.is_none() {
            self.cancel();
        }
    }

    fn cancel(&self) {
        if let Ok(mut link) = super::connect::connect() {
            link.send(&cancel(self.intake.key, false));
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
        if !self.ends.as_ref().is_some_and(|ends| ends.say(*outcome)) {
            let step = self.intake.key.step;
            match &self.ends {
                Some(TaskEnds::AsSlurm(_)) => ended::say_how_as_srun(step, report, *outcome),
                _ => ended::say_how_step(step, report, *outcome),
            }
        }
        if let Some(summary) = &self.summary {
            say!("tutti: {summary}");
        }
        if self.output_lost && outcome.exit_code == 0 {
            return Exit::OUTPUT_LOST;
        }
        let not_begun = self.ends.as_ref().and_then(|ends| ends.code_of_not_begun(*outcome));
        Exit::of_job(not_begun.unwrap_or(outcome.exit_code))
    }
}
