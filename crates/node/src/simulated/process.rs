//! A simulated process of a task: it computes for so long, says a line now and then, and ends.

use super::groups::NULL;
use super::machine::{Group, Set, held_to};
use super::meeting::{LOOK_NS, Meeting};
use super::stream::{inherited, stir};
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use std::ffi::CStr;
use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::rc::Rc;
use tutti_linux::reap;
use tutti_linux::spawn::{Child, Spawn, StdioFd};
use tutti_types::{JobId, Rank};

/// How long a process that can't write waits before it tries again.
const BLOCKED_NS: u64 = 1_000_000;

/// See the head of the file.
pub struct Process {
    pub job: JobId,
    pub rank: Rank,
    pub group: PathBuf,
    /// That group, and those above it.
    pub within: Vec<Rc<Group>>,
    /// Of which launch of its job it is, once the keeper has been asked.
    pub launch: Option<u32>,
    pub began_ns: u64,
    /// Whether no group that it is in is frozen, once that was looked at.
    pub may_run: Option<bool>,
    /// The processors that it is bound to.
    pub bound: Set,
    output: Option<File>,
    /// What it says in all, and the rest of a line that it is at.
    lines: u64,
    said: u64,
    rest: Vec<u8>,
    code: i32,
    /// How long it computes, and how much of that is done.
    life_ns: u64,
    done_ns: u64,
    /// Since when it runs, or has run up to now.
    since_ns: u64,
    runs: bool,
    blocked: bool,
    /// What it does as a rank of an MPI program, if it is one.
    pub meeting: Option<Meeting>,
    pub signalled: Option<i32>,
    pub killed: bool,
}

/// How it ended.
#[derive(Clone, Copy, Debug)]
pub enum End {
    Exit(i32),
    Signal(i32),
}

impl End {
    pub fn of_kernel(self) -> reap::End {
        match self {
            Self::Exit(code) => reap::End::Exited(code.to_le_bytes()[0]),
            Self::Signal(signal) => reap::End::Signaled(signal.to_le_bytes()[0]),
        }
    }
}

/// What a program of the world is asked to do: how long to compute, in milliseconds, how many lines
/// to say meanwhile, the status to end with, and in how many barriers to meet the others of the
/// job.
pub fn arguments(life_ms: u64, lines: u64, code: i32, barriers: u64) -> Vec<String> {
    let numbers = [life_ms.to_string(), lines.to_string(), code.to_string(), barriers.to_string()];
    ["/world/program".to_owned()].into_iter().chain(numbers).collect()
}

/// The line that a rank says as its `number`th.
pub fn line(rank: Rank, number: u64) -> String {
    format!("rank {rank} line {number}\n")
}

impl Drop for Process {
    /// Its output ends.
    fn drop(&mut self) {
        self.stir();
    }
}

impl Process {
    pub fn make(pid: i32, spawn: &Spawn, now_ns: u64) -> io::Result<(Self, Child)> {
        let number = |index: usize| {
            let text = spawn.argv.get(index).and_then(|word| word.to_str().ok());
            text.and_then(|text| text.parse::<u64>().ok()).unwrap_or(0)
        };
        let known = |name: &str| {
            let all = spawn.env.iter().flat_map(|some| some.iter());
            let value = |entry: &CStr| entry.to_str().ok()?.strip_prefix(name)?.parse().ok();
            all.filter_map(|entry| value(entry)).next().unwrap_or(0_u64)
        };
        let (job, rank) = (JobId(known("TUTTI_JOB=")), known("TUTTI_RANK="));
        let size = u32::try_from(known("PMI_SIZE=")).unwrap_or(0);
        let id = (job, Rank(u32::try_from(rank).unwrap_or(u32::MAX)));
        let server = spawn.pass.first().and_then(|(fd, _)| inherited(*fd));
        let meets = number(4) > 0 && size > 1;
        let meeting =
            server.filter(|_| meets).map(|server| Meeting::new(server, id, size, number(4)));
        let output = match &spawn.stdio[1] {
            StdioFd::Fd(fd) => {
                let output = File::from(fd.try_clone_to_owned()?);
                fcntl(&output, FcntlArg::F_SETFL(OFlag::O_NONBLOCK | OFlag::O_WRONLY))?;
                Some(output)
            }
            _ => None,
        };
        let group = super::machine::root_group().join(format!("job-{job}/step-0/rank-{rank}"));
        let process = Self {
            job,
            rank: id.1,
            meeting,
            group,
            within: Vec::new(),
            launch: None,
            began_ns: now_ns,
            may_run: None,
            bound: spawn.processors.unwrap_or_default().iter().copied().collect(),
            output,
            lines: number(2),
            said: 0,
            rest: Vec::new(),
            code: i32::try_from(number(3)).unwrap_or(0),
            life_ns: number(1) * 1_000_000,
            done_ns: 0,
            since_ns: now_ns,
            runs: false,
            blocked: false,
            signalled: None,
            killed: false,
        };
        let nothing = || NULL.try_clone().map(OwnedFd::from);
        let child = Child { pid, pidfd: nothing()?, report: nothing()?, status: None };
        Ok((process, child))
    }

    /// What the keeper has made for it may have something to be read, or soon be watched: its pipes
    /// are the kernel's.
    pub fn stir(&self) {
        if self.output.is_some() {
            stir();
        }
    }

    pub const fn runs(&self) -> bool {
        self.runs
    }

    /// Whether a group that it is in is to stand still.
    pub fn is_frozen(&self) -> bool {
        self.within.iter().any(|group| group.is_frozen.get())
    }

    /// On which processors it may run: its own, as far as its groups leave any of them.
    pub fn processors(&self) -> Set {
        self.bound.within(held_to(&self.within))
    }

    /// Whether it runs only where no other would.
    pub fn makes_way(&self) -> bool {
        self.within.iter().any(|group| group.yields.get())
    }

    /// It has got so far; from now on it runs if it may. Gives how it has ended, if it has.
    pub fn go_on(&mut self, may_run: bool, now_ns: u64) -> Option<End> {
        if self.runs && !self.blocked {
            self.done_ns += now_ns.saturating_sub(self.since_ns);
        }
        let ran = self.runs || may_run;
        (self.runs, self.since_ns) = (may_run, now_ns);
        if self.killed {
            return Some(End::Signal(9));
        }
        match self.signalled {
            // A frozen process notices when it goes on; but the last signal ends even that.
            Some(9) => return Some(End::Signal(9)),
            Some(signal @ (1 | 2 | 15)) if may_run => return Some(End::Signal(signal)),
            _ => {}
        }
        if ran {
            self.say();
        }
        if may_run && !self.blocked {
            self.blocked = self.meet();
        }
        let is_done = !self.blocked
            && self.done_ns >= self.life_ns
            && self.said == self.lines
            && self.rest.is_empty();
        (is_done && may_run).then_some(End::Exit(self.code))
    }

    /// Meets the others where it is time; whether it waits for them.
    fn meet(&mut self) -> bool {
        let is_done = self.done_ns >= self.life_ns;
        loop {
            let Some(meeting) = self.meeting.as_mut().filter(|it| it.is_due(is_done)) else {
                return false;
            };
            let (part, parts) = meeting.parts();
            let at_ns = self.life_ns / parts * part;
            if self.done_ns < at_ns.min(self.life_ns) {
                return false;
            }
            if meeting.go_on() {
                return true;
            }
        }
    }

    /// When it has computed enough to say its next line, to meet the others, or to end.
    fn next_at(&self) -> u64 {
        let line_ns = match self.said == self.lines {
            true => self.life_ns,
            false => self.life_ns / (self.lines + 1) * (self.said + 1),
        };
        let meets = self.meeting.as_ref().filter(|it| it.is_due(false)).map(Meeting::parts);
        meets.map_or(line_ns, |(part, parts)| line_ns.min(self.life_ns / parts * part))
    }

    fn say(&mut self) {
        self.blocked = false;
        while self.said < self.lines && self.done_ns >= self.next_at() {
            if self.rest.is_empty() {
                self.rest = line(self.rank, self.said).into_bytes();
            }
            self.stir();
            match self.output.as_mut().map(|output| output.write(&self.rest)) {
                None => self.rest.clear(),
                Some(Ok(count)) => drop(self.rest.drain(..count)),
                Some(Err(error)) if error.kind() == ErrorKind::WouldBlock => {
                    self.blocked = true;
                    return;
                }
                // It has no reader any more.
                Some(Err(_)) => self.rest.clear(),
            }
            if self.rest.is_empty() {
                self.said += 1;
            }
        }
    }

    /// When it does something next, if it runs.
    pub fn due_ns(&self) -> Option<u64> {
        let left_ns = match self.blocked {
            true if self.meeting.is_some() => LOOK_NS,
            true => BLOCKED_NS,
            false => self.next_at().saturating_sub(self.done_ns),
        };
        self.runs.then_some(self.since_ns + left_ns)
    }
}
