//! Suspends, resumes, signals and ends parts of a job: a task, or a process with all below it.
//!
//! Whole jobs are switched by the timetable alone; this is for a user that wants to stop one task
//! or one subtree while the rest goes on. Both can hold at once: a part that its user suspended
//! stays suspended when its job's turn comes. What is below a process, the genealogy says: also
//! what its children left behind when they ended.
//!
//! A task of a job that is switched by the freezer is frozen by its own cgroup; everything else is
//! stopped by signals. A process in a frozen cgroup does not show that it was stopped, but it will
//! be before it does anything. In a job that is switched by signals, the switch thread is told
//! which processes it must leave alone.
//!
//! What a job has stopped itself stays stopped when the part around it is suspended and resumed.
//! Where the job is to end, everything goes on, so that it can.

use super::driver::Agent;
use super::job::Job;
use super::orders::Step;
use super::suspend::{Learns, walk};
use super::track::TaskId;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tracing::warn;
use tutti_linux::cgroup::FreezeError;
use tutti_linux::proc::ProcessStat;
use tutti_linux::signal::{
    Walk, WalkError, continue_named, halt_forest, kill_forest, resume_forest_except, signal_forest,
    stopped_among, suspend_forest,
};
use tutti_linux::track::{Member, Seen};
use tutti_node::platform::groups::Cgroup;
use tutti_node::platform::time as clock;
use tutti_types::{ControlMethod, JobId, LaunchId, Nanos, Rank};
use tutti_wire::code::Code;
use tutti_wire::keeper::{StoppedPart, ToKeeper};
use tutti_wire::limits::SUSPENDED_PROCESSES_MAX;
use tutti_wire::report::Target;
use tutti_wire::tree::Settings;

/// What looking at one process a few times takes on a busy machine.
const LOOKS_AT_EACH: Duration = Duration::from_micros(200);
/// Other orders about parts of the job wait meanwhile.
const LOOKS_MAX: Duration = Duration::from_secs(2);

pub(super) const SIGTERM: i32 = 15;
const SIGKILL: i32 = 9;
pub(super) const SIGSTOP: i32 = 19;
const SIGCONT: i32 = 18;

/// A process, named for good: by number and start time.
pub(super) type Name = (i32, u64);

/// A part of a job that was asked to end, and is killed when its grace is over.
pub(super) struct Ending {
    pub(super) due_ns: u64,
    /// The launch of the job: a later one has other tasks.
    launch: LaunchId,
    /// Whether it is a whole task.
    is_task: bool,
    task: TaskId,
    processes: BTreeSet<Name>,
}

/// Why an order about a part can't be carried out.
#[derive(Debug, thiserror::Error)]
pub(super) enum PartError {
    /// There is no such task here.
    #[error("task {0}.{1} is not running here")]
    NoTask(JobId, Rank),
    /// The process is not one of the task's.
    #[error("process {pid} does not belong to {}", Target { pid: None, ..*target })]
    NotInTask { pid: i32, target: Target },
    /// What is suspended part by part could not be told any more.
    #[error(
        "parts that are suspended by themselves, with those of job {0}, would have {1} processes on this node; at most \
         {SUSPENDED_PROCESSES_MAX} are possible: resume some, or suspend the whole job"
    )]
    TooManyStopped(JobId, usize),
    /// The cgroup could not be frozen in time.
    #[error(transparent)]
    Freeze(#[from] tutti_linux::cgroup::FreezeError),
    /// A cgroup file could not be written.
    #[error(transparent)]
    Cgroup(#[from] tutti_linux::Error),
    /// The processes could not all be stopped or resumed in time.
    #[error(transparent)]
    Walk(#[from] WalkError),
}

/// How a part is stopped.
enum Means {
    /// By the freezer of the task's own cgroup.
    Freezer(Cgroup),
    Signals,
}

/// A part that is being stopped by signals.
struct Stop {
    target: Target,
    task: TaskId,
    /// The processes that were told to stop.
    done: BTreeSet<Name>,
    /// Those that the job had stopped itself.
    own: BTreeSet<Name>,
    begun_ns: u64,
}

impl Agent {
    pub(super) fn suspend_part(&mut self, target: Target, task: TaskId) -> Result<Step, PartError> {
        match self.means(target, task)? {
            Means::Freezer(group) => {
                self.job_of(task)?.suspended.frozen.insert(task.1);
                let deadline = Duration::from_nanos(self.settings.freeze_deadline.0);
                let group = Arc::new(group);
                let frozen = Arc::clone(&group);
                let after = move |agent: &mut Self, result: Result<_, FreezeError>| {
                    let job = agent.job_of(task)?;
                    if result.is_err() {
                        job.suspended.frozen.remove(&task.1);
                    } else if !job.suspended.frozen.contains(&task.1) {
                        // The job was asked to end meanwhile.
                        group.request_thaw()?;
                    }
                    result?;
                    Ok(Step::Done)
                };
                Ok(Step::beside(move || frozen.freeze(deadline), after))
            }
            Means::Signals => {
                let (done, own, begun_ns) =
                    (BTreeSet::new(), BTreeSet::new(), clock::monotonic_ns());
                self.stop(Stop { target, task, done, own, begun_ns }, Ok(()))
            }
        }
    }

    /// Goes on with a part that is being stopped, given how it went until now. One that can't be
    /// stopped is not suspended.
    fn stop(&mut self, stop: Stop, went: Result<(), PartError>) -> Result<Step, PartError> {
        let Stop { target, task, .. } = stop;
        if !stop.done.is_empty() && !self.job_of(task)?.suspended.parts.contains_key(&target) {
            // The job was asked to end meanwhile, so that all of it goes on.
            return self.continue_part(
                target,
                task,
                Means::Signals,
                stop.done.into_iter().collect(),
            );
        }
        let result = went.and_then(|()| self.stop_more(stop));
        if result.is_err() {
            drop(self.lift(target));
            self.undo_stop(target, task);
        }
        result
    }

    /// Continues what was born while a part was stopped in vain, where the switch thread stops jobs
    /// by signals: a walk leaves that to it, since it may be another's turn.
    fn undo_stop(&mut self, target: Target, task: TaskId) {
        if self.job_of(task).is_ok_and(|job| !job.is_frozen_at_switches())
            && let Ok(found) = self.processes_of(target, task)
        {
            self.switch.undo(task.0.job, found.into_iter().collect());
        }
    }

    /// Until all of it was told to stop, and no new process is found. The switch thread knows of
    /// each before it is stopped.
    fn stop_more(&mut self, mut stop: Stop) -> Result<Step, PartError> {
        let Stop { target, task, .. } = stop;
        let mut found = self.processes_of(target, task)?;
        stop.own.extend(self.stopped_itself(task, &found, &stop.done)?);
        found.retain(|name| !stop.own.contains(name));
        let all: BTreeSet<Name> = found.iter().copied().collect();
        if all.is_subset(&stop.done) {
            return Ok(Step::Done);
        }
        if let Err(error) = self.note_stopped(target, task, all.clone()) {
            if stop.done.is_empty() {
                return Err(error);
            }
            return Ok(self.resume_part(target, task)?.then(move |_| Err(error)));
        }
        // What is found later may have been stopped by the walk before.
        let learns = if stop.done.is_empty() { Learns::Yes } else { Learns::No };
        self.tell_of_stopped_now(task.0.job, learns);
        stop.done = all;
        let spent = Duration::from_nanos(clock::monotonic_ns().saturating_sub(stop.begun_ns));
        let walk = walk_of_stop(self.settings, found.len(), spent);
        let group = self.task_group(task);
        let is_frozen_at_switches = self.job_of(task)?.is_frozen_at_switches();
        let work = move || match is_frozen_at_switches {
            true => stop_found(&found, &walk, group.as_ref()),
            // Nothing is continued if that fails: it may not be the job's turn any more.
            false => halt_forest(&found, &walk).outcome.map(drop).map_err(PartError::from),
        };
        Ok(Step::beside(work, |agent, went| agent.stop(stop, went)))
    }

    /// Those of the processes found that the job has stopped itself, since neither a user nor this
    /// order has. Where the job is switched by signals, the switch thread keeps them apart.
    fn stopped_itself(
        &mut self,
        task: TaskId,
        found: &[Name],
        done: &BTreeSet<Name>,
    ) -> Result<Vec<Name>, PartError> {
        let job = self.job_of(task)?;
        if !job.is_frozen_at_switches() {
            return Ok(Vec::new());
        }
        let by_users = job.suspended.processes();
        let others = found.iter().filter(|name| !done.contains(name) && !by_users.contains(name));
        Ok(stopped_among(others))
    }

    /// Continues what [`Self::suspend_part`] has stopped.
    pub(super) fn resume_part(&mut self, target: Target, task: TaskId) -> Result<Step, PartError> {
        match self.means(target, task)? {
            Means::Freezer(group) => {
                self.job_of(task)?.suspended.frozen.remove(&task.1);
                group.request_thaw()?;
                Ok(Step::Done)
            }
            Means::Signals => {
                let found = self.processes_of(target, task);
                // Also of what has ended: its number may be another's one day.
                let mut stopped = self.lift(target);
                found?;
                let job = self.job_of(task)?;
                if !job.is_frozen_at_switches() {
                    return Ok(Step::Done);
                }
                let others = job.suspended.processes();
                stopped.retain(|name| !others.contains(name));
                Ok(Step::beside(move || continue_named(&stopped), |_, ()| Ok(Step::Done)))
            }
        }
    }

    pub(super) fn signal_part(
        &mut self,
        target: Target,
        task: TaskId,
        signal: u8,
    ) -> Result<Step, PartError> {
        let found = self.processes_of(target, task)?;
        let number = i32::from(signal);
        if stops_or_continues(number) && !self.job_of(task)?.is_frozen_at_switches() {
            self.stop_or_continue(task.0.job, found.into_iter().collect(), number);
            return Ok(Step::Done);
        }
        let work = move || signal_forest(&found, i32::from(signal));
        Ok(Step::beside(work, |_, signalled| {
            signalled?;
            Ok(Step::Done)
        }))
    }

    /// A signal for the process groups of tasks' roots.
    pub(super) fn on_signal(&mut self, launch: LaunchId, ranks: Vec<Rank>, signal: u8) {
        let is_switched_by_signals = |job: &mut Job| !job.is_frozen_at_switches();
        let number = i32::from(signal);
        if !stops_or_continues(number) || !self.launched(launch).is_some_and(is_switched_by_signals)
        {
            return self.tell_keeper(&ToKeeper::Signal { launch, ranks, signal });
        }
        let mut meant =
            self.launched(launch).map(|job| job.tasks.ranks().clone()).unwrap_or_default();
        meant.retain(|rank| ranks.is_empty() || ranks.contains(rank));
        let mut names = BTreeSet::new();
        for rank in meant {
            let members = self.processes.tracker.members((launch.key(), rank));
            let is_meant = |it: &&Member| number == SIGCONT || is_in_group_of_a_top(it, &members);
            names.extend(members.iter().filter(is_meant).filter_map(name));
        }
        self.stop_or_continue(launch.job, names, number);
    }

    /// Has the switch thread, which stops and continues all of a job by signals, stop or continue
    /// processes of it: not out of its turn, and until the contrary is said.
    fn stop_or_continue(&self, job: JobId, names: BTreeSet<Name>, signal: i32) {
        match signal {
            SIGCONT => self.switch.go_on(job, Some(names)),
            _ => self.switch.halt(job, names, signal),
        }
    }

    /// A job is asked to end: SIGTERM for its tasks, which must be able to act upon it. So nothing
    /// of it stays suspended, whether its users have done that or the job itself.
    pub(super) fn on_terminate(&mut self, launch: LaunchId) {
        let signal = u8::try_from(SIGTERM).unwrap_or(15);
        self.tell_keeper(&ToKeeper::Signal { launch, ranks: Vec::new(), signal });
        if launch.is_further() {
            return;
        }
        self.signal_steps(launch.job, signal);
        let Some(job) = self.launched(launch) else { return };
        let Suspended { parts, frozen } = std::mem::take(&mut job.suspended);
        let tasks: Vec<_> = frozen.iter().map(|&rank| job.group_of(rank)).collect();
        let is_frozen_at_switches = job.is_frozen_at_switches();
        if job.group.is_some() {
            // One that is gone has ended.
            tasks
                .into_iter()
                .filter_map(|path| Cgroup::open(&path).ok())
                .for_each(|it| drop(it.request_thaw()));
        }
        if !parts.is_empty() {
            self.tell_of_stopped(launch.job);
        }
        if is_frozen_at_switches {
            continue_named(&parts.into_values().flatten().collect());
            let (ranks, signal) = (Vec::new(), u8::try_from(SIGCONT).unwrap_or(18));
            self.tell_keeper(&ToKeeper::Signal { launch, ranks, signal });
        } else {
            self.switch.go_on(launch.job, None);
        }
    }

    /// SIGTERM, which what was suspended must be able to act upon, and SIGKILL later.
    pub(super) fn end_part(
        &mut self,
        target: Target,
        task: TaskId,
        grace: Nanos,
    ) -> Result<Step, PartError> {
        let found = self.processes_of(target, task)?;
        let due_ns = clock::monotonic_ns().saturating_add(grace.0);
        let (is_task, processes) = (target.pid.is_none(), found.iter().copied().collect());
        let launch = self.job_of(task)?.launch;
        let ending = Ending { due_ns, launch, is_task, task, processes };
        if grace.0 == 0 {
            self.kill_rest(&ending)?;
            return Ok(Step::Done);
        }
        let means = self.means(target, task)?;
        let signalled = self.signal_part(target, task, u8::try_from(SIGTERM).unwrap_or(15))?;
        Ok(signalled.then(move |agent| {
            // From now on, since it may take long to have all of it go on.
            agent.processes.endings.push(ending);
            agent.continue_part(target, task, means, found)
        }))
    }

    /// A part that is to end goes on, also what the job has stopped of it, but for other parts that
    /// users have suspended. One that has ended meanwhile has nothing left that could.
    fn continue_part(
        &mut self,
        target: Target,
        task: TaskId,
        means: Means,
        found: Vec<Name>,
    ) -> Result<Step, PartError> {
        self.lift(target);
        let Ok(job) = self.job_of(task) else { return Ok(Step::Done) };
        if let Means::Freezer(group) = means {
            job.suspended.frozen.remove(&task.1);
            match group.request_thaw() {
                Err(error) if error.is_gone() => return Ok(Step::Done),
                result => result?,
            }
        }
        if !job.is_frozen_at_switches() {
            self.switch.go_on(task.0.job, Some(found.into_iter().collect()));
            return Ok(Step::Done);
        }
        let others = job.suspended.processes();
        let walk = walk_of_part(self.settings, found.len());
        let work = move || resume_forest_except(&found, &others, &walk);
        Ok(Step::beside(work, |_, resumed| {
            resumed?;
            Ok(Step::Done)
        }))
    }

    /// Kills what should have ended by now.
    pub(super) fn end_due(&mut self, now_ns: u64) {
        if self.processes.endings.is_empty() {
            return;
        }
        let due: Vec<Ending> =
            self.processes.endings.extract_if(.., |ending| ending.due_ns <= now_ns).collect();
        for ending in due {
            // Nothing is left of a job that has ended, and its cgroups may be those of a later
            // launch.
            if self.launched(ending.launch).is_none_or(|job| job.tasks.are_cleared()) {
                continue;
            }
            if let Err(error) = self.kill_rest(&ending) {
                warn!(code = %Code::ProcessStuck, "cannot end a part of job {}: {error}", ending.task.0);
            }
        }
    }

    /// Those that were there, and all that descends from them. Processes are killed beside the
    /// loop: a user may have made very many, which make others meanwhile.
    fn kill_rest(&mut self, ending: &Ending) -> Result<(), PartError> {
        if ending.is_task
            && let Some(group) = self.task_group(ending.task)
            && group.kill_at_once()?
        {
            return Ok(());
        }
        let mut found = BTreeSet::new();
        for &(pid, start_time) in &ending.processes {
            let members = self.processes.tracker.subtree(ending.task, pid);
            if members.first().and_then(name) == Some((pid, start_time)) {
                found.extend(members.iter().filter_map(name));
            }
        }
        let found: Vec<Name> = found.into_iter().collect();
        let (job, is_frozen) = (ending.task.0.job, self.is_frozen(ending.task));
        self.processes.beside.start(self.owner_of(job), move || {
            // No process can make another in a group that is frozen.
            let killed = match is_frozen {
                true => signal_forest(&found, SIGKILL).map(drop),
                false => kill_forest(&found).map(drop),
            };
            if let Err(error) = killed {
                warn!(code = %Code::ProcessStuck, "cannot end a part of job {job}: {error}");
            }
            Box::new(|_| {})
        });
        Ok(())
    }

    fn job_of(&mut self, (key, rank): TaskId) -> Result<&mut Job, PartError> {
        self.jobs.get_mut(&key.job).ok_or(PartError::NoTask(key.job, rank))
    }

    fn means(&mut self, target: Target, task: TaskId) -> Result<Means, PartError> {
        let job = self.job_of(task)?;
        match (target.pid, &job.group, job.control) {
            (None, Some(_), ControlMethod::Freeze | ControlMethod::Priority) => {
                Ok(Means::Freezer(Cgroup::open(&job.group_of(task.1))?))
            }
            _ => Ok(Means::Signals),
        }
    }

    /// The processes that are meant, each before those below it.
    fn processes_of(&mut self, target: Target, task: TaskId) -> Result<Vec<Name>, PartError> {
        let members = match target.pid {
            None => self.processes.tracker.members(task),
            Some(pid) => {
                let members = self.processes.tracker.subtree(task, pid);
                if members.is_empty() {
                    return Err(PartError::NotInTask { pid, target });
                }
                members
            }
        };
        Ok(members.iter().filter_map(name).collect())
    }

    /// A part with these processes is suspended from now on.
    fn note_stopped(
        &mut self,
        target: Target,
        task: TaskId,
        processes: BTreeSet<Name>,
    ) -> Result<(), PartError> {
        let parts = self.jobs.values().flat_map(|job| &job.suspended.parts);
        let others = parts.filter(|(part, _)| **part != target);
        let all = others.map(|(_, processes)| processes.len()).sum::<usize>() + processes.len();
        if all > SUSPENDED_PROCESSES_MAX {
            return Err(PartError::TooManyStopped(target.job, all));
        }
        self.job_of(task)?.suspended.parts.insert(target, processes);
        Ok(())
    }

    /// The cgroup of a task, if it has one.
    fn task_group(&self, (key, rank): TaskId) -> Option<Cgroup> {
        let job = self.jobs.get(&key.job).filter(|job| job.group.is_some())?;
        Cgroup::open(&job.group_of(rank)).ok()
    }

    /// Whether the task stands still, by itself or with its job.
    pub(super) fn is_frozen(&self, task: TaskId) -> bool {
        self.task_group(task).is_some_and(|group| group.is_frozen().unwrap_or(false))
    }

    /// The part is suspended no more; the switch thread lets it go on, where it switches by
    /// signals. Gives what was stopped of it.
    fn lift(&mut self, target: Target) -> BTreeSet<Name> {
        let job = self.jobs.get_mut(&target.job);
        let stopped = job.and_then(|job| job.suspended.parts.remove(&target)).unwrap_or_default();
        self.tell_of_stopped(target.job);
        stopped
    }

    /// Tells the switch thread, where it matters to it, and the keeper, for an agent after us.
    pub(super) fn tell_of_stopped(&mut self, id: JobId) {
        self.tell_of_stopped_now(id, Learns::Yes);
    }

    fn tell_of_stopped_now(&mut self, id: JobId, learns: Learns) {
        let Some(job) = self.jobs.get(&id) else { return };
        if !job.is_frozen_at_switches() {
            self.switch.spare(id, job.suspended.processes(), learns);
        }
        let parts = job.suspended.for_keeper();
        let launch = job.launch;
        self.tell_keeper(&ToKeeper::Stopped { launch, parts });
    }
}

impl Job {
    fn is_frozen_at_switches(&self) -> bool {
        self.group.is_some() && self.control != ControlMethod::Signal
    }
}

/// Parts of a job that its users have suspended.
#[derive(Default)]
pub(super) struct Suspended {
    /// Those that were suspended by signals, with their processes.
    parts: BTreeMap<Target, BTreeSet<Name>>,
    /// Tasks that may have been suspended by the freezer.
    frozen: BTreeSet<Rank>,
}

impl Suspended {
    /// Those that the keeper remembers. The freezer may have suspended any task.
    pub(super) fn of_before(parts: Vec<StoppedPart>, tasks: &BTreeSet<Rank>) -> Self {
        let part = |part: StoppedPart| (part.target, part.processes.into_iter().collect());
        Self { parts: parts.into_iter().map(part).collect(), frozen: tasks.clone() }
    }

    /// Whether any was suspended by signals.
    pub(super) fn has_parts(&self) -> bool {
        !self.parts.is_empty()
    }

    /// All processes that were suspended by signals.
    pub(super) fn processes(&self) -> BTreeSet<Name> {
        self.parts.values().flatten().copied().collect()
    }

    /// A task has ended.
    pub(super) fn forget_task(&mut self, rank: Rank) {
        self.parts.retain(|part, _| part.rank != Some(rank));
    }

    /// As the keeper remembers them for an agent after this one.
    fn for_keeper(&self) -> Vec<StoppedPart> {
        let part = |(&target, processes): (&Target, &BTreeSet<Name>)| StoppedPart {
            target,
            processes: processes.iter().copied().collect(),
        };
        self.parts.iter().map(part).collect()
    }
}

/// Whether a signal stops processes, at once or unless their programs say otherwise, or continues
/// them.
const fn stops_or_continues(signal: i32) -> bool {
    const SIGTSTP: i32 = 20;
    const SIGTTIN: i32 = 21;
    const SIGTTOU: i32 = 22;
    matches!(signal, SIGSTOP | SIGCONT | SIGTSTP | SIGTTIN | SIGTTOU)
}

/// Whether a process is in the process group of one at the top of its task, as the root's is.
fn is_in_group_of_a_top(member: &Member, members: &[Member]) -> bool {
    let is_top = |pid: i32| members.iter().any(|it| it.pid == pid && it.parent.is_none());
    ProcessStat::read(member.pid).is_ok_and(|stat| stat.pid == member.pid && is_top(stat.pgrp))
}

/// Stops processes, of which some may be in a group that stands still: there they do not show that
/// they have stopped, and do nothing before they have.
fn stop_found(found: &[Name], walk: &Walk, group: Option<&Cgroup>) -> Result<(), PartError> {
    let is_frozen = || group.is_some_and(|group| group.is_frozen().unwrap_or(false));
    if is_frozen() {
        signal_forest(found, SIGSTOP)?;
        return Ok(());
    }
    match suspend_forest(found, walk) {
        Err(WalkError::Timeout { .. }) if is_frozen() => drop(signal_forest(found, SIGSTOP)?),
        other => drop(other?),
    }
    Ok(())
}

/// A user's order may take as long as it takes to look at so many processes a few times.
fn walk_of_part(settings: Settings, processes: usize) -> Walk {
    let looks = LOOKS_AT_EACH.saturating_mul(u32::try_from(processes).unwrap_or(u32::MAX));
    let walk = walk(settings);
    Walk { deadline: walk.deadline + looks.min(LOOKS_MAX), ..walk }
}

/// As [`walk_of_part`], for an order that has taken so long already. Each walk has its own time:
/// what was spent on finding the processes to stop, and on telling others, is none of it, unless
/// the order takes far too long.
fn walk_of_stop(settings: Settings, processes: usize, spent: Duration) -> Walk {
    let walk = walk_of_part(settings, processes);
    let order_max = walk_of_part(settings, usize::MAX).deadline;
    Walk { deadline: walk.deadline.min(order_max.saturating_sub(spent)), ..walk }
}

/// Nothing, if it has ended: its number may be that of another user's process by now, and root
/// sends the signals.
pub(super) fn name(member: &Member) -> Option<Name> {
    let stat = ProcessStat::read(member.pid).ok()?;
    let seen = Seen { pid: stat.pid, parent: stat.ppid, born_ns: stat.born_ns() };
    member.is(&seen).then_some((stat.pid, stat.start_time))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::first_settings;

    #[test]
    fn what_an_order_took_before_a_walk_is_none_of_the_walks_time() {
        let settings = first_settings();
        let one = walk_of_part(settings, 1).deadline;
        let after = |spent| walk_of_stop(settings, 1, spent).deadline;
        assert_eq!([after(Duration::ZERO), after(one)], [one, one]);
        // But all walks together end.
        let all = Duration::from_nanos(settings.freeze_deadline.0) + LOOKS_MAX;
        assert_eq!(after(all - one / 2), one / 2);
        assert_eq!(after(all + one), Duration::ZERO);
    }
}
