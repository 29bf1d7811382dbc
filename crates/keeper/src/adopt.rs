//! A task that ran before it was a task: processes that `tutti adopt` named, with all that descends
//! from them.
//!
//! They are not the keeper's children. They are moved into the task's cgroup, again and again until
//! no descendant is outside, and their ends are seen through their descriptors. The task ends when
//! all that were named have ended; what they leave behind ends with it, as in any task. Without
//! cgroups they stay where they are, and the agent follows their descendants.

use super::context::{Context, chain};
use super::job::{Job, Phase, nap_ns};
use super::program::Refusal;
use super::watch::{Token, Watch};
use anyhow::Context as _;
use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::LazyLock;
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};
use tutti_linux::affinity;
use tutti_linux::inherited::Inherited;
use tutti_linux::pidfd::Held;
use tutti_linux::proc::{self, ProcessStat};
use tutti_linux::reap::End;
use tutti_linux::signal::Root;
use tutti_node::instance::{is_in_a_job, is_of_the_system, is_of_this_instance};
use tutti_node::link::Interest;
use tutti_node::platform::groups::Cgroup;
use tutti_node::platform::time as clock;
use tutti_node::service::attach;
use tutti_node::workers::{Bounds, Workers};
use tutti_types::TaskStatus;
use tutti_wire::handover::HandedProcess;
use tutti_wire::keeper::FromKeeper;
use tutti_wire::launch::Usage;

/// How often it is looked whether a descendant is still outside: far more than anything but a fork
/// bomb needs.
const ROUNDS_MAX: u32 = 1_000;

/// The processes with which an adopted task began.
pub(super) struct Adopted {
    processes: Vec<Process>,
}

struct Process {
    held: Held,
    token: Option<Token>,
    /// Set when it has ended: its wait status, if that is known.
    ended: Option<Option<i32>>,
}

/// How many processes the service manager is asked to move at once.
const ATTACH_MAX: usize = 1000;

impl Adopted {
    /// Their numbers, also of those that have ended.
    pub(super) fn pids(&self) -> Vec<i32> {
        self.processes.iter().map(|process| process.held.pid()).collect()
    }

    pub(super) fn signal(&self, signal: i32) {
        for process in &self.processes {
            process.held.signal(signal);
        }
    }

    /// Takes hold of the process with this number, if it is one of them or descends from one.
    fn hold(&self, pid: i32) -> Result<Option<Held>, Refusal> {
        let held = match Held::whoever_is(pid) {
            Ok(held) => held,
            Err(error) if error.is_gone() => return Ok(None),
            Err(error) => return Err(cannot_come(pid, &error)),
        };
        let mut line = proc::ancestors(pid);
        line.push(pid);
        // One that has ended has no descendants, and perhaps no number.
        let is_above =
            |process: &Process| line.contains(&process.held.pid()) && !process.held.has_ended();
        Ok(self.processes.iter().any(is_above).then_some(held))
    }

    /// The numbers of those that have not ended, as far as that was noticed.
    pub(super) fn living(&self) -> Vec<i32> {
        let living = self.processes.iter().filter(|process| process.ended.is_none());
        living.map(|process| process.held.pid()).collect()
    }

    /// The trees of those that have not ended. A number that is another's by now is not among them.
    pub(super) fn trees(&self) -> Vec<Root> {
        self.processes.iter().filter_map(|process| process.held.name()).map(Root::from).collect()
    }

    /// What another program must know to go on with them.
    pub(super) fn hand_over(&self) -> Vec<HandedProcess> {
        let hand_over = |process: &Process| HandedProcess {
            pid: process.held.pid(),
            fd: process.held.as_fd().as_raw_fd(),
            ended: process.ended,
        };
        self.processes.iter().map(hand_over).collect()
    }

    /// Goes on with those of another program.
    pub(super) fn take_over(
        handed: Vec<HandedProcess>,
        watch: Watch,
        context: &mut Context,
        inherited: &mut Inherited,
    ) -> io::Result<Self> {
        let mut processes = Vec::new();
        for process in handed {
            let held = Held::resume(process.pid, inherited.take(process.fd)?);
            let token = match process.ended {
                None => Some(context.watches.add(&held, watch, Interest::READ)?),
                Some(_) => None,
            };
            context.children.adopted.insert(process.pid);
            processes.push(Process { held, token, ended: process.ended });
        }
        Ok(Self { processes })
    }
}

/// Why processes are not brought in, or not yet.
enum Hindrance {
    Refused(Refusal),
    /// The kernel denies the moves of these processes: the service manager is to be asked for them.
    Denied {
        left: Vec<i32>,
        refusal: Refusal,
    },
}

impl From<Refusal> for Hindrance {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

/// A question to the service manager that a thread has put, whether it moves processes.
pub(super) struct Attaching {
    index: usize,
    /// Those that it was asked for, now and before.
    asked: BTreeSet<i32>,
    questions: u32,
    /// What is said of the task if it refuses.
    refusal: Refusal,
    answer: Receiver<anyhow::Result<()>>,
    naps: u32,
}

/// How often the service manager is asked for processes of one job.
const QUESTIONS_MAX: u32 = 64;

/// Threads that wait for the service manager.
const WAITING: Bounds = Bounds { of_user: 2, all: 8 };

impl Job {
    pub(super) fn is_adopted(&self) -> bool {
        !self.launch.spec.adopt.is_empty()
    }

    /// Takes the processes in.
    pub(super) fn adopt(&mut self, index: usize, context: &mut Context) {
        self.adopt_after(index, &BTreeSet::new(), 0, context);
    }

    /// Takes the processes in, of which the service manager was asked to move some.
    fn adopt_after(
        &mut self,
        index: usize,
        asked: &BTreeSet<i32>,
        questions: u32,
        context: &mut Context,
    ) {
        let launch = self.launch.id();
        match self.try_to_adopt(index, asked, context) {
            Ok(adopted) => {
                let rank = self.tasks[index].rank;
                let root = adopted.pids().first().copied().unwrap_or(0);
                context.reports.push(FromKeeper::TaskStarted { launch, rank, root });
                // Without a cgroup it is not counted what others wait for.
                self.tasks[index].usage = Usage::unknown();
                self.tasks[index].phase = Phase::Adopted(adopted);
            }
            Err(Hindrance::Refused(Refusal { status, detail })) => {
                self.end_unstarted(index, status, detail, context);
            }
            Err(Hindrance::Denied { left, refusal }) => {
                let Refusal { status, ref detail } = refusal;
                if questions >= QUESTIONS_MAX {
                    return self.end_unstarted(index, status, detail.clone(), context);
                }
                let answer = self.ask_manager(index, &left);
                let asked = asked.iter().copied().chain(left).collect();
                let questions = questions + 1;
                let attaching = Attaching { index, asked, questions, refusal, answer, naps: 0 };
                self.attaching = Some(attaching);
                context.beside.insert(launch.key(), clock::monotonic_ns() + nap_ns(1));
            }
        }
    }

    /// Has a thread ask the service manager to move processes: it may take seconds to answer, or
    /// for ever.
    fn ask_manager(&self, index: usize, left: &[i32]) -> Receiver<anyhow::Result<()>> {
        static WORKERS: LazyLock<Workers> = LazyLock::new(|| Workers::new(WAITING));
        let (tell, answer) = sync_channel(1);
        let group = self.tasks[index].group.as_ref().map(|group| group.path().to_owned());
        let left = left.to_vec();
        let ask = move || {
            let asked = group.context("the task has no group").and_then(|it| attach(&left, &it));
            // The job may be gone.
            drop(tell.send(asked));
        };
        WORKERS.start(self.launch.credentials.uid, Box::new(ask));
        answer
    }

    /// Whether the service manager may still move processes into the group of a task.
    pub(super) fn is_attaching(&self, index: usize) -> bool {
        self.attaching.as_ref().is_some_and(|attaching| attaching.index == index)
    }

    /// The time has come to see whether the service manager has answered.
    pub(super) fn watch_attaching(&mut self, context: &mut Context) {
        let Some(attaching) = &mut self.attaching else { return };
        let answer = match attaching.answer.try_recv() {
            Err(TryRecvError::Empty) => {
                attaching.naps = attaching.naps.saturating_add(1);
                let at_ns = clock::monotonic_ns() + nap_ns(attaching.naps);
                context.beside.insert(self.key(), at_ns);
                return;
            }
            Err(TryRecvError::Disconnected) => Err(anyhow::anyhow!("it was not asked")),
            Ok(answer) => answer,
        };
        let Some(attaching) = self.attaching.take() else { return };
        let Attaching { index, asked, questions, refusal, .. } = attaching;
        match answer {
            _ if self.life.is_killed() => {
                self.end_unstarted(index, TaskStatus::Signaled(9), String::new(), context);
            }
            Ok(()) => self.adopt_after(index, &asked, questions, context),
            Err(refused) => {
                let detail = format!("{}; {refused:#}", refusal.detail);
                self.end_unstarted(index, refusal.status, detail, context);
            }
        }
    }

    fn try_to_adopt(
        &self,
        index: usize,
        asked: &BTreeSet<i32>,
        context: &mut Context,
    ) -> Result<Adopted, Hindrance> {
        let owner = self.launch.credentials.uid;
        let mut processes = Vec::new();
        for wanted in &self.launch.spec.adopt {
            let held = Held::open(wanted.pid, wanted.start_time).map_err(|error| Refusal {
                status: if error.is_gone() {
                    TaskStatus::Unknown
                } else {
                    TaskStatus::NotExecutable
                },
                detail: match error.is_gone() {
                    true => format!("process {} ended before it was adopted", wanted.pid),
                    false => format!("process {} can't be adopted: {}", wanted.pid, chain(&error)),
                },
            })?;
            processes.push(Process { held, token: None, ended: None });
        }
        let mut adopted = Adopted { processes };
        let pids = adopted.pids();
        if let Some(pid) = pids.iter().find(|pid| context.children.adopted.contains(pid)) {
            return Err(is_taken(*pid).into());
        }
        if let Some(pid) =
            pids.iter().find(|&&pid| is_of_the_system(pid) || is_of_this_instance(pid))
        {
            let reason =
                format!("process {pid} is the system's own, or tutti's, and can't be adopted");
            return Err(Refusal::new(reason).into());
        }
        let processors: Vec<u32> = self.launch.share.tasks[index].processors.iter().collect();
        let group = self.tasks[index].group.as_ref();
        bring_in(&adopted, owner, (group, asked), &processors)?;
        context.children.adopted.extend(pids);
        for process in &mut adopted.processes {
            let watch = Watch::Adopted(self.key(), index);
            let token = context.watches.add(&process.held, watch, Interest::READ);
            process.token = Some(token.map_err(|error| {
                Refusal::new(format!("process {} can't be watched: {error}", process.held.pid()))
            })?);
        }
        Ok(adopted)
    }

    /// One of the processes with which an adopted task began has ended.
    pub(super) fn on_adopted(&mut self, index: usize, context: &mut Context) {
        let Phase::Adopted(adopted) = &mut self.tasks[index].phase else { return };
        for process in adopted.processes.iter_mut().filter(|process| process.ended.is_none()) {
            if process.held.has_ended() {
                process.ended = Some(process.held.status());
                if let Some(token) = process.token.take() {
                    context.watches.remove(&process.held, token);
                }
            }
        }
        if !adopted.living().is_empty() {
            return;
        }
        for pid in adopted.pids() {
            context.children.adopted.remove(&pid);
        }
        let (status, detail) = judge(&adopted.processes);
        self.tasks[index].phase = Phase::Ending { status, detail, naps: 0 };
        self.try_to_clear(index, context);
    }
}

/// The worst of what is known; that nothing is known of one is said.
fn judge(processes: &[Process]) -> (TaskStatus, String) {
    let status = |process: &Process| {
        let raw = process.ended.flatten()?;
        Some(super::job::task_status(End::of(raw)?))
    };
    let unknown = processes.iter().find(|process| status(process).is_none());
    let worst = processes.iter().filter_map(status).max_by_key(|status| status.exit_code());
    match (worst, unknown) {
        (Some(worst), None) => (worst, String::new()),
        (Some(worst), Some(_)) if worst.exit_code() != 0 => (worst, String::new()),
        (_, unknown) => {
            let pid = unknown.map_or(0, |process| process.held.pid());
            let detail = format!(
                "how process {pid} ended is not known: it was not started by tutti, and kernels \
                 before 6.15 report it only to the process that started it"
            );
            (TaskStatus::Unknown, detail)
        }
    }
}

/// Brings processes and all their descendants into a group, and binds them to processors. The
/// service manager was asked to move some.
fn bring_in(
    adopted: &Adopted,
    owner: u32,
    (group, asked): (Option<&Cgroup>, &BTreeSet<i32>),
    processors: &[u32],
) -> Result<(), Hindrance> {
    let roots = adopted.pids();
    let mut done = BTreeSet::new();
    for _ in 0..ROUNDS_MAX {
        let mut all = roots.clone();
        for &root in &roots {
            all.extend(proc::descendants(root).unwrap_or_default());
        }
        let inside: BTreeSet<i32> = match group {
            Some(group) => group.processes().unwrap_or_default().into_iter().collect(),
            None => done.clone(),
        };
        let lives = |pid: &i32| ProcessStat::read(*pid).is_ok_and(|stat| !stat.has_ended());
        // One that the service manager has moved is to be bound, too.
        let is_new =
            |pid: &i32| !inside.contains(pid) || (asked.contains(pid) && !done.contains(pid));
        let outside: Vec<i32> = all.into_iter().filter(is_new).filter(lives).collect();
        if outside.is_empty() {
            return Ok(());
        }
        // Before any of them is brought in: those that are in end with the job if it is refused.
        for &pid in &outside {
            if let Some(process) = adopted.hold(pid)? {
                may_be_in(&process, owner, group)?;
            }
        }
        for (at, &pid) in outside.iter().enumerate() {
            if let Some(process) = adopted.hold(pid)? {
                let left = &outside[at..outside.len().min(at + ATTACH_MAX)];
                take_in(&process, left, owner, group, processors)?;
                done.insert(pid);
            }
        }
    }
    Err(Refusal::new("its processes are made faster than they can be adopted".into()).into())
}

/// Brings one process in, and perhaps with it those that are `left`. Nothing is brought in if it
/// has ended meanwhile: its number may be that of another user's process.
fn take_in(
    process: &Held,
    left: &[i32],
    owner: u32,
    group: Option<&Cgroup>,
    processors: &[u32],
) -> Result<(), Hindrance> {
    let pid = process.pid();
    may_be_in(process, owner, group)?;
    if process.has_ended() {
        return Ok(());
    }
    let refused = |error| cannot_come(pid, &error);
    let is_in = group.map_or(Ok(true), |group| enter(group, process, left))?;
    if is_in && !processors.is_empty() {
        affinity::bind_held(process, processors).map_err(refused)?;
    }
    Ok(())
}

/// Moves a process into a group: `false` if it has ended. Where the kernel denies the move, as out
/// of a user's login session, the user's service manager is to be asked for it, and for all that
/// are `left`.
fn enter(group: &Cgroup, process: &Held, left: &[i32]) -> Result<bool, Hindrance> {
    let pid = process.pid();
    match group.take_in(process) {
        Err(denied) if denied.is_denied() => {
            Err(Hindrance::Denied { left: left.to_vec(), refusal: cannot_come(pid, &denied) })
        }
        other => Ok(other.map_err(|error| cannot_come(pid, &error))?),
    }
}

/// Whether a process may be adopted, or is in the group already: the service manager has moved it.
fn may_be_in(process: &Held, owner: u32, group: Option<&Cgroup>) -> Result<(), Refusal> {
    may_come(process, owner).or_else(|refusal| {
        let pid = process.pid();
        let is_in = group.is_some_and(|it| it.processes().is_ok_and(|all| all.contains(&pid)));
        if is_in { check_owner(pid, owner) } else { Err(refusal) }
    })
}

/// Whether a process may be adopted; one that has ended may.
fn may_come(process: &Held, owner: u32) -> Result<(), Refusal> {
    let pid = process.pid();
    let may_come = match check_owner(pid, owner) {
        Ok(()) if is_in_a_job(pid) => Err(is_taken(pid)),
        other => other,
    };
    // What was read is what it was itself only if it is there still.
    if process.has_ended() { Ok(()) } else { may_come }
}

fn cannot_come(pid: i32, error: &tutti_linux::Error) -> Refusal {
    let help = "; an instance that root has started (`tutti up`) can";
    Refusal::new(format!("process {pid} can't be adopted: {}{help}", chain(error)))
}

/// Since the controller looked, another job may have adopted it.
fn is_taken(pid: i32) -> Refusal {
    Refusal::new(format!("process {pid} belongs to another job already"))
}

/// The controller has looked at those that were named on its own machine; others, what descends
/// from them, and what has changed since, is looked at here.
fn check_owner(pid: i32, owner: u32) -> Result<(), Refusal> {
    match proc::user_ids(pid) {
        Ok(ids) if owner != 0 && ids != [owner; 4] => {
            let name = ProcessStat::read(pid).map(|stat| stat.comm).unwrap_or_default();
            Err(Refusal::new(format!(
                "process {pid} ({name}) belongs to what is to be adopted and runs as another user; \
                 root may have it adopted"
            )))
        }
        // It has ended meanwhile.
        _ => Ok(()),
    }
}
