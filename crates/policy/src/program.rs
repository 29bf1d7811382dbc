//! The process of the program: its pipes, and the bounds on what it says.
//!
//! It runs as a user of its own, in a session of its own, with none of the caller's descriptors, at
//! an ordinary scheduling policy and a worse nice value. It is killed when it is late or wrong or
//! over its [`Limits`], when the [`Program`] is dropped, and when the thread that started it ends,
//! even if the whole process was killed.

use crate::limits::{Limits, Watch};
use crate::protocol::ANSWER_BYTES_MAX;
use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::libc::RLIMIT_DATA;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, killpg};
use nix::sys::stat::Mode;
use nix::unistd::{Pid, User, geteuid, pipe2, read, write};
use std::collections::VecDeque;
use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};
use tutti_linux::reap;
use tutti_linux::spawn::{Identity, Nursery, Spawn, StdioFd, Unwanted};

/// Lines of its standard error that are kept until they are taken, and how long one may be.
const SAID_MAX: usize = 20;
const SAID_BYTES_MAX: usize = 300;

/// Reads from its standard error while one answer is awaited, each of at most [`CHUNK`] bytes.
const ERROR_READS_MAX: u32 = 64;
const CHUNK: usize = 64 << 10;

/// The words before the reason why the file of a program can't be executed.
pub const CANNOT_EXECUTE: &str = "can't be executed: ";

/// How long a program has for its end when its input has ended.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// How a program is started.
#[derive(Clone, Debug)]
pub struct Start {
    /// The file to execute.
    pub path: String,
    /// The user that it runs as; `None`: the caller's.
    pub identity: Option<Identity>,
    /// Its environment, `NAME=value`.
    pub environment: Vec<String>,
    /// Its nice value.
    pub nice: i32,
    /// What it may have; `None`: it has no limits.
    pub limits: Option<Limits>,
}

/// The nice value of a program: a worse one than that of a daemon.
const NICE: i32 = 5;

/// The user that a program of root's instance runs as, unless the site names another.
const DEFAULT_USER: &str = "nobody";

/// How a daemon starts a program: as a user of its own where the daemon is root's, with nothing of
/// the daemon's environment.
///
/// # Errors
/// Why it can't be that user (`user`; `None`: one without privileges).
pub fn start_of(path: String, user: Option<&str>, limits: Limits) -> Result<Start, String> {
    let searched = std::env::var("PATH").unwrap_or_else(|_| "/usr/local/bin:/usr/bin:/bin".into());
    let environment =
        vec![format!("PATH={searched}"), "LANG=C.UTF-8".into(), "PYTHONDONTWRITEBYTECODE=1".into()];
    let (identity, limits) = (identity(user)?, Some(limits));
    Ok(Start { path, identity, environment, nice: NICE, limits })
}

/// The user that a program runs as; `None`: the daemon's own.
fn identity(user: Option<&str>) -> Result<Option<Identity>, String> {
    let own = geteuid();
    let name = match user {
        None if !own.is_root() => return Ok(None),
        None => DEFAULT_USER,
        Some(name) => name,
    };
    let user = User::from_name(name).ok().flatten();
    let user = user.ok_or_else(|| format!("there is no user {name} for it (policy_user)"))?;
    match own {
        own if own == user.uid => Ok(None),
        own if own.is_root() => Ok(Some(Identity {
            uid: user.uid.as_raw(),
            gid: user.gid.as_raw(),
            groups: Vec::new(),
        })),
        _ => Err(format!("only a daemon of root's can run it as {name} (policy_user)")),
    }
}

/// Whether the kernel makes no namespaces for us, as in many containers.
fn is_refusal(error: &io::Error) -> bool {
    let refusals = [Errno::EPERM, Errno::EINVAL, Errno::ENOSPC, Errno::EUSERS];
    refusals.iter().any(|it| error.raw_os_error() == Some(*it as i32))
}

/// Why the program gives no answer.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// It can't be started.
    #[error("it can't be started: {0}")]
    NotStarted(String),
    /// It did not answer in time.
    #[error("it has not answered within {0:?}")]
    Late(Duration),
    /// It closed its standard output, or ended.
    #[error("it has ended")]
    Ended,
    /// Its answer is too long.
    #[error("its answer is longer than {} KiB", ANSWER_BYTES_MAX >> 10)]
    TooLong,
    /// It wrote more than the answer to one line.
    #[error("it wrote without being asked")]
    Unasked,
    /// It has more memory than it may.
    #[error("its processes have more than {} MiB of memory (policy_memory)", .0 >> 20)]
    TooMuchMemory(u64),
    /// It has more processes than it may.
    #[error("it has more than {0} processes and threads (policy_processes)")]
    TooManyProcesses(u64),
    /// It can't be talked to.
    #[error("it can't be talked to: {0}")]
    Pipe(#[from] Errno),
    /// Its answer is no answer.
    #[error(transparent)]
    Wrong(#[from] crate::protocol::Wrong),
}

/// A program that was started.
#[derive(Debug)]
pub struct Program {
    pid: i32,
    ask: Option<OwnedFd>,
    answers: OwnedFd,
    errors: Option<OwnedFd>,
    /// Of its standard output, what has been read beyond the latest answer.
    buffer: Vec<u8>,
    /// Where what is read is put: to clear it for each answer would take longer than to read one.
    room: Box<[u8]>,
    said: VecDeque<String>,
    line_said: Vec<u8>,
    dropped: u64,
    is_reaped: bool,
    watch: Watch,
}

impl Program {
    /// Starts it.
    ///
    /// # Errors
    /// If no process can be made. A file that can't be executed shows at the first exchange, with
    /// the reason on its standard error.
    pub fn start(start: &Start, nursery: &mut Nursery) -> Result<Self, Failure> {
        Self::spawn(start, nursery).map_err(|error| Failure::NotStarted(error.to_string()))
    }

    fn spawn(start: &Start, nursery: &mut Nursery) -> io::Result<Self> {
        let path = CString::new(start.path.as_bytes())?;
        let environment = start.environment.iter().map(|it| CString::new(it.as_bytes()));
        let environment = environment.collect::<Result<Vec<_>, _>>()?;
        let (their_in, ask) = pipe2(OFlag::O_CLOEXEC)?;
        let (answers, their_out) = pipe2(OFlag::O_CLOEXEC)?;
        let (errors, their_err) = pipe2(OFlag::O_CLOEXEC)?;
        for ours in [&ask, &answers, &errors] {
            nix::fcntl::fcntl(ours, nix::fcntl::FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        }
        let stdio = [their_in.as_fd(), their_out.as_fd(), their_err.as_fd()].map(StdioFd::Fd);
        let complaint = CString::new(format!("{}: {CANNOT_EXECUTE}", start.path))?;
        let bytes = start.limits.and_then(|limits| limits.memory_bytes);
        let data = bytes.map(|bytes| (RLIMIT_DATA.cast_signed(), bytes, bytes));
        let mut spawn = Spawn {
            argv: std::slice::from_ref(&path),
            env: [&environment, &[]],
            program: std::slice::from_ref(&path),
            cwd: c"/",
            umask: 0o022,
            nice: Some(start.nice),
            rlimits: data.as_slice(),
            identity: start.identity.clone(),
            cgroup: None,
            companions: &[],
            limits_memory: false,
            ipc: None,
            processors: None,
            held_by_group: false,
            stdio,
            pass: &[],
            new_session: true,
            terminal: false,
            minder: false,
            // Whatever it starts, in sessions of their own, too, ends with it.
            isolated: geteuid().is_root(),
            adopts_orphans: false,
            ends_with_parent: true,
            complaint: Some(&complaint),
        };
        let unwanted = Unwanted::look_up();
        let child = match nursery.spawn(&spawn, &unwanted) {
            Err(error) if spawn.isolated && is_refusal(&error) => {
                spawn.isolated = false;
                nursery.spawn(&spawn, &unwanted)?
            }
            done => done?,
        };
        Ok(Self {
            pid: child.pid,
            ask: Some(ask),
            answers,
            errors: Some(errors),
            buffer: Vec::new(),
            room: vec![0; CHUNK].into(),
            said: VecDeque::new(),
            line_said: Vec::new(),
            dropped: 0,
            is_reaped: false,
            watch: Watch::new(start.limits),
        })
    }

    /// Its process.
    #[must_use]
    pub const fn pid(&self) -> i32 {
        self.pid
    }

    /// Sends a line, which ends with a newline, and awaits the line that answers it, without its
    /// newline.
    ///
    /// # Errors
    /// If there is none within `limit`. Then the program is of no more use.
    pub fn exchange(&mut self, line: &str, limit: Duration) -> Result<Vec<u8>, Failure> {
        let until = Instant::now() + limit;
        let mut to_send = line.as_bytes();
        let mut error_reads = 0;
        if !self.buffer.is_empty() {
            return Err(Failure::Unasked);
        }
        loop {
            // Mostly the pipe takes the line at once.
            if let (false, Some(ask)) = (to_send.is_empty(), &self.ask) {
                match write(ask, to_send) {
                    Ok(sent) => to_send = &to_send[sent..],
                    Err(Errno::EAGAIN | Errno::EINTR) => {}
                    Err(Errno::EPIPE) => {
                        self.hear_errors(&mut error_reads);
                        return Err(Failure::Ended);
                    }
                    Err(errno) => return Err(errno.into()),
                }
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Failure::Late(limit));
            }
            self.watch.look(self.pid)?;
            let hears_errors = error_reads < ERROR_READS_MAX;
            if self.wait(!to_send.is_empty(), hears_errors, self.watch.wait(left))? {
                self.hear_errors(&mut error_reads);
            }
            if let Some(answer) = self.hear()? {
                return Ok(answer);
            }
        }
    }

    /// Waits until something can be read, or written. Whether something is on standard error.
    fn wait(&self, sends: bool, hears_errors: bool, left: Duration) -> Result<bool, Failure> {
        let answers = self.answers.as_fd();
        let of_answers = || PollFd::new(answers, PollFlags::POLLIN);
        // A place without a descriptor of its own waits for the answer, too.
        let ask = self.ask.as_ref().filter(|_| sends);
        let ask = ask.map_or_else(of_answers, |ask| PollFd::new(ask.as_fd(), PollFlags::POLLOUT));
        let errors = self.errors.as_ref().filter(|_| hears_errors);
        let has_errors = errors.is_some();
        let errors =
            errors.map_or_else(of_answers, |it| PollFd::new(it.as_fd(), PollFlags::POLLIN));
        let mut fds = [of_answers(), errors, ask];
        let count = if sends { 3 } else { 1 + usize::from(has_errors) };
        let ms = left.as_millis().clamp(1, 60_000);
        let timeout = PollTimeout::try_from(ms).unwrap_or(PollTimeout::MAX);
        match poll(&mut fds[..count], timeout) {
            Ok(_) => Ok(has_errors && fds[1].any().unwrap_or(false)),
            Err(Errno::EINTR) => Ok(false),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Whether it lives and keeps to its limits.
    ///
    /// # Errors
    /// Why it is of no more use.
    pub fn look(&mut self) -> Result<(), Failure> {
        match self.is_gone() {
            true => Err(Failure::Ended),
            false => self.watch.look(self.pid),
        }
    }

    /// Reads what is there of the answer; the answer, if it is whole.
    fn hear(&mut self) -> Result<Option<Vec<u8>>, Failure> {
        let count = match read(&self.answers, &mut self.room) {
            Ok(0) => {
                self.hear_errors(&mut 0);
                return Err(Failure::Ended);
            }
            Ok(count) => count,
            Err(Errno::EAGAIN | Errno::EINTR) => return Ok(None),
            Err(errno) => return Err(errno.into()),
        };
        let read = &self.room[..count];
        let end = read.iter().position(|&byte| byte == b'\n');
        self.buffer.extend_from_slice(&read[..end.unwrap_or(count)]);
        if self.buffer.len() > ANSWER_BYTES_MAX {
            return Err(Failure::TooLong);
        }
        match end {
            None => Ok(None),
            Some(end) if end + 1 < count => Err(Failure::Unasked),
            Some(_) => Ok(Some(std::mem::take(&mut self.buffer))),
        }
    }

    /// Reads what is there of its standard error.
    fn hear_errors(&mut self, reads: &mut u32) {
        let mut chunk = [0; CHUNK];
        while *reads < ERROR_READS_MAX {
            let Some(errors) = &self.errors else { return };
            *reads += 1;
            match read(errors, &mut chunk) {
                Ok(0) => {
                    self.errors = None;
                    self.end_line();
                }
                Ok(count) => chunk[..count].iter().for_each(|&byte| self.say(byte)),
                Err(_) => return,
            }
        }
    }

    fn say(&mut self, byte: u8) {
        if byte == b'\n' {
            self.end_line();
        } else if self.line_said.len() < SAID_BYTES_MAX {
            self.line_said.push(byte);
        }
    }

    fn end_line(&mut self) {
        let line = std::mem::take(&mut self.line_said);
        if line.is_empty() {
            return;
        }
        let printable = |byte: u8| if byte.is_ascii_control() { '?' } else { char::from(byte) };
        let text = match std::str::from_utf8(&line) {
            Ok(text) => text.chars().map(|c| if c.is_control() { '?' } else { c }).collect(),
            Err(_) => line.iter().map(|&byte| printable(byte)).collect(),
        };
        self.said.push_back(text);
        // What it said last tells why it ended.
        if self.said.len() > SAID_MAX {
            self.said.pop_front();
            self.dropped += 1;
        }
    }

    /// What it has said on its standard error since this was last asked, and how many lines more.
    pub fn take_said(&mut self) -> (Vec<String>, u64) {
        self.hear_errors(&mut 0);
        (self.said.drain(..).collect(), std::mem::take(&mut self.dropped))
    }

    /// Kills it, with all of its session that did not leave its group. Whether it is gone: one that
    /// another process traces goes when that lets it.
    pub fn kill(&mut self) -> bool {
        if !self.is_reaped {
            let _ = killpg(Pid::from_raw(self.pid), Signal::SIGKILL);
            self.ask = None;
        }
        self.is_gone()
    }

    /// Tells it by the end of its input that all is over, and gives it a moment for last words.
    pub fn finish(&mut self) {
        self.ask = None;
        let until = Instant::now() + LAST_WORDS;
        while !self.is_gone() && Instant::now() < until {
            self.hear_errors(&mut 0);
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Whether nothing is left of its process; does not wait.
    pub fn is_gone(&mut self) -> bool {
        if !self.is_reaped {
            self.is_reaped = !matches!(reap::reap(self.pid), Ok(None));
        }
        self.is_reaped
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        for _ in 0..20 {
            if self.kill() {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Whether a file can be opened, to tell a user at once.
///
/// # Errors
/// What the kernel answers.
pub fn can_open(path: &str) -> Result<(), Errno> {
    open(path, OFlag::O_RDONLY | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK, Mode::empty()).map(drop)
}

#[cfg(test)]
mod tests {
    use super::{Failure, Program, Start};
    use std::os::unix::fs::PermissionsExt;
    use std::time::{Duration, Instant};
    use tutti_linux::spawn::Nursery;

    #[test]
    fn a_program_that_hangs_ends_with_the_thread_that_started_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("hang");
        std::fs::write(&path, "#!/bin/sh\ntrap '' TERM HUP\nwhile :; do sleep 60; done\n").unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
        let start = Start {
            path: path.to_str().unwrap().into(),
            identity: None,
            environment: vec!["PATH=/usr/bin:/bin".into()],
            nice: 0,
            limits: None,
        };
        let begun = std::thread::spawn(move || {
            let mut program = Program::start(&start, &mut Nursery::new()).unwrap();
            let silence = program.exchange("{}\n", Duration::from_millis(100));
            assert!(matches!(silence, Err(Failure::Late(_))), "{silence:?}");
            // As where no destructor runs.
            std::mem::ManuallyDrop::new(program)
        });
        let mut program = begun.join().unwrap();
        let until = Instant::now() + Duration::from_secs(20);
        while !program.is_gone() {
            assert!(Instant::now() < until, "it goes on");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}
