//! `tutti alloc`: processors for a command that is typed here.
//!
//! The job is a batch job whose one task waits: a shell line that prints its environment, and then
//! reads its standard input to the end. A `tutti run` in the background is its front end. This
//! process holds the other end of that input. So the job ends when this process does, however it
//! ends.

use anyhow::Context;
use clap::Args;
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::Pid;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io::{ErrorKind, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;
use tutti_client::ask::ask;
use tutti_client::{JobOptions, outer_job};
use tutti_node::codes::coded;
use tutti_node::exit::Exit;
use tutti_types::JobId;
use tutti_wire::code::Code;
use tutti_wire::local::Request;

#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct AllocArgs {
    #[command(flatten)]
    pub(crate) job: JobOptions,

    /// The command and its arguments [default: your shell]
    #[arg(trailing_var_arg = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

const EXAMPLES: &str = "\
Examples:
  tutti alloc -n 4                   a shell; `tutti run` in it starts steps
  tutti alloc -n 8 -t 1h ./steps.sh  runs here, and starts steps in the job
  tutti alloc -n 2 tutti run ./mpi   a step, and the job ends with it";

/// What the job's task is: its environment with an empty variable behind it, then a wait. Signals
/// that are meant for programs do not end it, and the job with it.
const WAITER: &str =
    "trap '' HUP QUIT ALRM USR1 USR2 && env -0 && printf '\\0' && exec cat > /dev/null";

/// How long the job may take to end by itself, before its front end ends it.
const END_PATIENCE: Duration = Duration::from_secs(5);

/// The most of an environment that is read.
const ENVIRONMENT_BYTES_MAX: u64 = 4 << 20;

/// What happens while it waits.
enum Happening {
    /// The job has begun: the environment of its task. `None`: it will not.
    Began(Option<Variables>),
    /// The command has ended.
    CommandEnded(std::io::Result<ExitStatus>),
    /// The front end has ended, and so has the job.
    JobEnded(std::io::Result<ExitStatus>),
    /// A signal came.
    Signal(Signal),
}

type Variables = BTreeMap<OsString, OsString>;

pub(crate) fn execute(args: AllocArgs) -> anyhow::Result<Exit> {
    let given: Vec<OsString> = std::env::args_os().skip(2).collect();
    let count = given.len().saturating_sub(args.command.len());
    let mut options = given[..count].to_vec();
    options.retain(|word| word != "--");
    alloc(&options, &args.job, ("alloc", Words::Tutti), &args.command)
}

/// In which words it is said that the job has its processors, and that it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Words {
    Tutti,
    /// Those of `salloc`.
    Slurm,
    /// Not at all.
    None,
}

impl Words {
    fn begun(self, variables: &Variables) {
        let of = |name: &str| variables.get(OsStr::new(name)).cloned().unwrap_or_default();
        let job = of("TUTTI_JOB");
        let job = job.to_string_lossy();
        match self {
            Self::Tutti => say!("tutti: job {job} has its processors"),
            Self::Slurm => {
                say!("salloc: Granted job allocation {job}");
                let nodes = of("SLURM_JOB_NODELIST");
                say!("salloc: Nodes {} are ready for job", nodes.to_string_lossy());
            }
            Self::None => {}
        }
    }

    fn over(self, variables: &Variables) {
        if self == Self::Slurm {
            let job = variables.get(OsStr::new("TUTTI_JOB")).cloned().unwrap_or_default();
            say!("salloc: Relinquishing job allocation {}", job.to_string_lossy());
        }
    }
}

/// Runs a command beside a job of these options, which were read before. The job has this name,
/// unless its options name it.
///
/// # Errors
/// If the front end or the command can't be started.
pub(crate) fn alloc(
    options: &[OsString],
    job: &JobOptions,
    (name, words): (&str, Words),
    command: &[OsString],
) -> anyhow::Result<Exit> {
    if job.signal.as_ref().is_some_and(|it| it.only_shell) {
        let reason = "--signal B:... is for the shell of a batch script, and there is none here; without B: \
                      the signal goes to the steps of the job";
        return Err(coded(Code::BadValue, reason));
    }
    // Before any thread: all of them are to leave these to the one that reads them.
    let (signals, events) = (taken_signals()?, channel());
    let mut front = front_end(options, job, (name, words))?;
    let front_pid = Pid::from_raw(i32::try_from(front.id())?);
    // What the job's task waits for; it is closed when this process ends.
    let held = front.stdin.take().context("the front end has no input")?;
    let out = front.stdout.take().context("the front end has no output")?;
    let (send, receive) = events;
    watch_signals(signals, send.clone());
    watch_output(out, send.clone());
    watch_end(front, send.clone(), Happening::JobEnded);
    let variables = match until_it_begins(&receive, front_pid)? {
        Ok(variables) => variables,
        Err(exit) => return Ok(exit),
    };
    words.begun(&variables);
    lend_idle_slots(&variables);
    let child = match start(command, &variables) {
        Ok(child) => child,
        Err((reason, exit)) => {
            say!("tutti: {reason}");
            drop(held);
            until_the_job_has_ended(&receive, front_pid);
            return Ok(exit);
        }
    };
    let child_pid = Pid::from_raw(i32::try_from(child.id())?);
    watch_end(child, send, Happening::CommandEnded);
    let (status, is_over) = until_it_has_ended(&receive, child_pid)?;
    words.over(&variables);
    drop(held);
    if !is_over {
        until_the_job_has_ended(&receive, front_pid);
    }
    Ok(Exit::of_job(code_of(status)))
}

/// The job's task only waits from now on: what no step uses is lent to other jobs. Where that can't
/// be said, the job keeps all that it has.
fn lend_idle_slots(variables: &Variables) {
    let job = variables.get(OsStr::new("TUTTI_JOB")).and_then(|it| it.to_str()?.parse().ok());
    if let Some(job) = job {
        let _ = ask(&Request::Lend { job: JobId(job), lends: true });
    }
}

fn taken() -> SigSet {
    [Signal::SIGINT, Signal::SIGQUIT, Signal::SIGTERM, Signal::SIGHUP].into_iter().collect()
}

/// Signals that are read instead of heeded.
fn taken_signals() -> anyhow::Result<SignalFd> {
    let set = taken();
    set.thread_block()?;
    Ok(SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC)?)
}

/// Starts the front end of the job, out of the terminal's foreground: `^C` is for the command.
fn front_end(
    options: &[OsString],
    job: &JobOptions,
    (name, words): (&str, Words),
) -> anyhow::Result<Child> {
    let mut front = Command::new(std::env::current_exe()?);
    front.arg("run").args(options);
    if outer_job().is_some() {
        front.arg("--outside");
    }
    if words != Words::Tutti {
        front.arg("--for-salloc");
    }
    if job.name.is_none() {
        front.args(["--name", name]);
    }
    front.args(["--hold-slots", "--raw", "--input", "0", "--", "sh", "-c", WAITER]);
    front.stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0);
    front.spawn().context("cannot start the front end of the job")
}

fn watch_signals(signals: SignalFd, send: Sender<Happening>) {
    std::thread::spawn(move || {
        while let Ok(Some(found)) = signals.read_signal() {
            let number = i32::try_from(found.ssi_signo).ok();
            let signal = number.and_then(|it| Signal::try_from(it).ok());
            if signal.is_some_and(|signal| send.send(Happening::Signal(signal)).is_err()) {
                return;
            }
        }
    });
}

fn watch_output(mut out: ChildStdout, send: Sender<Happening>) {
    std::thread::spawn(move || {
        let variables = read_environment(&mut out);
        let _ = send.send(Happening::Began(variables));
        // Nothing more is expected.
        let _ = std::io::copy(&mut out, &mut std::io::sink());
    });
}

fn watch_end(
    mut child: Child,
    send: Sender<Happening>,
    happening: fn(std::io::Result<ExitStatus>) -> Happening,
) {
    std::thread::spawn(move || send.send(happening(child.wait())));
}

/// The variables of the task that a command in the job is to have.
fn read_environment(out: impl Read) -> Option<Variables> {
    let (mut text, mut byte) = (Vec::new(), [0]);
    let mut out = std::io::BufReader::new(out.take(ENVIRONMENT_BYTES_MAX));
    while !text.ends_with(b"\0\0") {
        out.read_exact(&mut byte).ok()?;
        text.push(byte[0]);
    }
    let pairs = text.split(|&byte| byte == 0).filter_map(|pair| {
        let at = pair.iter().position(|&byte| byte == b'=')?;
        let (name, value) = (&pair[..at], &pair[at + 1..]);
        let is_ours = name.starts_with(b"TUTTI_") || name.starts_with(b"SLURM_") || name == b"PATH";
        is_ours.then(|| (OsString::from_vec(name.to_vec()), OsStr::from_bytes(value).to_owned()))
    });
    Some(pairs.collect())
}

fn until_it_begins(
    receive: &Receiver<Happening>,
    front: Pid,
) -> anyhow::Result<Result<Variables, Exit>> {
    loop {
        match receive.recv()? {
            Happening::Began(Some(variables)) => return Ok(Ok(variables)),
            Happening::JobEnded(status) => {
                let code = code_of(status?);
                return Ok(Err(Exit::of_job(if code == 0 { 1 } else { code })));
            }
            Happening::Signal(signal) => drop(kill(front, signal)),
            // The end of the front end follows.
            Happening::Began(None) | Happening::CommandEnded(_) => {}
        }
    }
}

/// How the command has ended, and whether the job ended before it.
fn until_it_has_ended(
    receive: &Receiver<Happening>,
    command: Pid,
) -> anyhow::Result<(ExitStatus, bool)> {
    let mut is_over = false;
    loop {
        match receive.recv()? {
            Happening::CommandEnded(status) => return Ok((status?, is_over)),
            Happening::JobEnded(_) => {
                is_over = true;
                say!("tutti: the job has ended; its command gets SIGHUP");
                let _ = kill(command, Signal::SIGHUP);
                let _ = kill(command, Signal::SIGCONT);
            }
            // A terminal has sent them to the command, too.
            Happening::Signal(Signal::SIGINT | Signal::SIGQUIT) | Happening::Began(_) => {}
            Happening::Signal(signal) => drop(kill(command, signal)),
        }
    }
}

/// Its task ends by the end of its input, unless it is suspended: then the front end ends the job.
fn until_the_job_has_ended(receive: &Receiver<Happening>, front: Pid) {
    loop {
        match receive.recv_timeout(END_PATIENCE) {
            Ok(Happening::JobEnded(_)) | Err(RecvTimeoutError::Disconnected) => return,
            Ok(Happening::Signal(signal)) => drop(kill(front, signal)),
            Ok(Happening::Began(_) | Happening::CommandEnded(_)) => {}
            Err(RecvTimeoutError::Timeout) => drop(kill(front, Signal::SIGTERM)),
        }
    }
}

/// Starts the command, or says why it can't be, with the exit code of a shell.
fn start(command: &[OsString], variables: &Variables) -> Result<Child, (String, Exit)> {
    let shell = std::env::var_os("SHELL").filter(|it| !it.is_empty());
    let shell = [shell.unwrap_or_else(|| "/bin/sh".into())];
    let words = if command.is_empty() { &shell[..] } else { command };
    let mut child = Command::new(&words[0]);
    child.args(&words[1..]).envs(variables);
    // It inherits what is held by the thread that makes it.
    let make = || {
        taken().thread_unblock()?;
        child.spawn()
    };
    let made = std::thread::scope(|scope| scope.spawn(make).join());
    let made = made.unwrap_or_else(|_| Err(std::io::Error::other("its thread has failed")));
    made.map_err(|error| {
        let code = if error.kind() == ErrorKind::NotFound { 127 } else { 126 };
        (format!("cannot run {}: {error}", words[0].to_string_lossy()), Exit::of_job(code))
    })
}

fn code_of(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX)
}

#[cfg(test)]
mod tests {
    use super::read_environment;

    #[test]
    fn only_variables_of_the_job_are_taken_and_a_cut_environment_is_none() {
        let text = b"TUTTI_JOB=7\0HOME=/x\0SLURM_X=a=b\nc\0PATH=/p\0\0more";
        let found = read_environment(&text[..]).unwrap();
        let shown: Vec<String> =
            found.iter().map(|(name, value)| format!("{name:?}={value:?}")).collect();
        let expected = [r#""PATH"="/p""#, r#""SLURM_X"="a=b\nc""#, r#""TUTTI_JOB"="7""#];
        assert_eq!(shown, expected);
        assert!(read_environment(&b"TUTTI_JOB=7\0"[..]).is_none());
        assert!(read_environment(&b""[..]).is_none());
    }
}
