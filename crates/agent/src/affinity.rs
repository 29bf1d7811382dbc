//! Where the processes of jobs may run: on the processors of their job, whatever they ask for.
//!
//! Where a cpuset can be written, the kernel sees to it: each job's group has one, and each task's
//! within it where tasks have own processors. Elsewhere processes can bind themselves to any
//! processor: those that did are looked for once a second by a thread and brought back, so many
//! threads at a time. A program's own binding within its processors stays. A job that goes on on
//! other processors takes its processes along, when the first timetable comes that says so. So does
//! one of which others have the processors of ended tasks: those that are left stay where they are.

use super::driver::Agent;
use super::job::Job;
use super::track::{List, TaskId};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tracing::warn;
use tutti_linux::affinity;
use tutti_linux::cgroup::LimitBy;
use tutti_linux::pidfd::{Held, for_each_listed};
use tutti_node::log::PROVOKED;
use tutti_node::platform::groups::{Cgroup, Hierarchy};
use tutti_node::platform::time as clock;
use tutti_types::{JobId, ProcessorSet, StepKey, Timetable};
use tutti_wire::code::Code;
use tutti_wire::launch::Launch;

/// How often processes are looked for that have left their processors. Longer where that takes long, so that it
/// costs a hundredth of a processor.
const LOOK_NS: u64 = 1_000_000_000;

/// Threads that are looked at each time.
const THREADS_MAX: usize = 4_096;

/// The user for which threads that look for processes are counted.
const WATCH: u32 = u32::MAX - 1;

/// See the head of the file.
#[derive(Debug, Default)]
pub(super) struct Affinity {
    /// Whether groups can hold processes to processors here.
    holds: bool,
    /// When to look next; never while the kernel holds all jobs.
    due_ns: Option<u64>,
    /// Where the next look begins.
    next: Option<(TaskId, usize)>,
    /// Whether a thread looks.
    is_looking: bool,
}

impl Affinity {
    pub(super) fn new(hierarchy: Option<&Hierarchy>) -> Self {
        let by = hierarchy.map_or(LimitBy::None, |it| it.limits().processors);
        Self { holds: by != LimitBy::None, ..Self::default() }
    }

    /// Holds a job that is about to begin to its processors; whether the kernel does.
    pub(super) fn hold(
        &self,
        job: JobId,
        group: Option<&Cgroup>,
        processors: &ProcessorSet,
    ) -> bool {
        let Some(group) = group.filter(|_| self.holds && !processors.is_empty()) else {
            return false;
        };
        let list: Vec<u32> = processors.iter().collect();
        let held = group.set_processors(&list).inspect_err(|error| {
            warn!(code = %Code::GoesWithout, "job {job} is not held to its processors: {error}");
        });
        held.is_ok()
    }

    /// A job has processes that the kernel does not hold.
    pub(super) fn watch(&mut self) {
        if tutti_node::platform::processes::are_simulated() {
            // They have no masks.
            return;
        }
        self.due_ns.get_or_insert_with(|| clock::monotonic_ns() + LOOK_NS);
    }

    pub(super) fn due_ns(&self) -> Option<u64> {
        self.due_ns.filter(|_| !self.is_looking)
    }
}

/// All processors of the tasks that a launch begins here, and all that it holds.
pub(super) fn processors_of(launch: &Launch) -> ProcessorSet {
    let mut all = launch.share.held.clone().unwrap_or_default();
    launch.share.tasks.iter().for_each(|task| all.union_with(&task.processors));
    all
}

/// What has been one of the `old` processors is the one of the `new` at the same place; the new
/// ones, where that is none. If some of the old ones are left, nothing moves.
fn moved(set: &[u32], old: &[u32], new: &[u32]) -> Vec<u32> {
    if new.iter().all(|processor| old.contains(processor)) {
        let kept: Vec<u32> = set.iter().copied().filter(|it| new.contains(it)).collect();
        return if kept.is_empty() { new.to_vec() } else { kept };
    }
    let place = |processor| old.iter().position(|it| it == processor);
    let moved: Option<Vec<u32>> =
        set.iter().map(|processor| new.get(place(processor)?).copied()).collect();
    moved.filter(|set| !set.is_empty()).unwrap_or_else(|| new.to_vec())
}

/// Where a job may run on this node, and what holds it there.
pub(super) struct Confinement {
    /// Its processors; empty: not known yet.
    processors: ProcessorSet,
    /// Whether its group holds it there.
    is_held: bool,
    /// Changes of where its processes may run.
    masks: Masks,
}

impl Confinement {
    /// That of a job which begins.
    pub(super) fn new(processors: ProcessorSet, is_held: bool) -> Self {
        Self { processors, is_held, masks: Masks::default() }
    }

    /// That of a job of an earlier agent, by what its group is held to. It may have been held to
    /// fewer processors than the job has.
    pub(super) fn of_before(processors: Option<Vec<u32>>) -> Self {
        let masks = Masks { is_narrowed: true, ..Masks::default() };
        let is_held = processors.is_some();
        Self { processors: processors.into_iter().flatten().collect(), is_held, masks }
    }

    /// Its processors; empty: not known yet.
    pub(super) const fn processors(&self) -> &ProcessorSet {
        &self.processors
    }

    /// Whether the job's group holds it there.
    pub(super) const fn is_held(&self) -> bool {
        self.is_held
    }

    /// The job has ended: its cgroups may be those of a later launch from now on.
    pub(super) fn close(&self) {
        self.masks.close();
    }

    /// The job runs elsewhere from now on: gives where it ran, and where it does.
    fn take(&mut self, new: ProcessorSet) -> [Vec<u32>; 2] {
        self.masks.is_narrowed |= new.is_subset(&self.processors);
        let old: Vec<u32> = std::mem::replace(&mut self.processors, new).iter().collect();
        let new: Vec<u32> = self.processors.iter().collect();
        let common: Vec<u32> = old.iter().copied().filter(|it| new.contains(it)).collect();
        self.masks.note_stale([old.clone(), common]);
        [old, new]
    }
}

impl Job {
    /// The job may run on more processors than before: steps get what it had lent. Tasks that are
    /// there stay where they are.
    fn widen(&mut self, id: JobId, new: &ProcessorSet) {
        let place = &mut self.confinement;
        let is_wider = place.processors != *new;
        place.processors.clone_from(new);
        if !is_wider || !place.masks.is_narrowed {
            return;
        }
        let group = self.group.as_ref().filter(|_| place.is_held);
        let list: Vec<u32> = new.iter().collect();
        if let Some(Err(error)) = group.map(|group| group.set_processors(&list)) {
            warn!(code = %Code::GoesWithout, "job {id} is not held to its processors: {error}");
        }
    }
}

impl Agent {
    /// Takes the processes of jobs to where a timetable has them run.
    pub(super) fn follow(&mut self, timetable: &Timetable) {
        let mut moves = BTreeMap::new();
        for candidate in timetable.slots.iter().flat_map(|slot| &slot.candidates) {
            let Some(job) = self.jobs.get_mut(&candidate.launch.job) else { continue };
            let new = &candidate.processors;
            if job.launch != candidate.launch || job.tasks.are_cleared() || new.is_empty() {
                continue;
            }
            // Tasks need not use all that their job has.
            job.confinement.masks.late = None;
            if job.confinement.processors.is_subset(new) {
                job.widen(candidate.launch.job, new);
                continue;
            }
            if job.confinement.masks.is_narrowed {
                // It lends other processors than before. What is on those that it keeps stays.
                let mut both = job.confinement.processors.clone();
                both.union_with(new);
                job.widen(candidate.launch.job, &both);
            }
            if job.confinement.processors != *new {
                moves.insert(candidate.launch.job, new.clone());
            }
        }
        for (id, new) in moves {
            let is_not_begun = |job: &&mut Job| !job.confinement.is_held && !job.tasks.have_begun();
            match self.jobs.get_mut(&id).filter(is_not_begun) {
                // Its tasks are on their way to where they were to begin. Where its group holds it,
                // they begin on the new ones.
                Some(job) => job.confinement.masks.late = Some(new),
                None => self.move_processes(id, new),
            }
        }
    }

    /// A task of a job has begun: it goes to where a timetable has it run since it was launched.
    pub(super) fn follow_late(&mut self, id: JobId) {
        if let Some(new) = self.jobs.get_mut(&id).and_then(|job| job.confinement.masks.late.take())
        {
            self.move_processes(id, new);
        }
    }

    fn move_processes(&mut self, id: JobId, new: ProcessorSet) {
        let Some(job) = self.jobs.get_mut(&id) else { return };
        let [old, new] = job.confinement.take(new);
        let Some(job) = self.jobs.get(&id) else { return };
        let (tasks, is_held) = (self.tasks_of(id, job), job.confinement.is_held);
        let moved_sets = match &job.group {
            Some(group) if is_held => {
                move_sets(group, tasks.iter().map(|(_, path)| path), &old, &new)
            }
            _ => Ok(()),
        };
        if let Err(error) = moved_sets {
            warn!(code = %Code::GoesWithout, "job {id} is not held to its new processors: {error}");
        }
        if tutti_node::platform::processes::are_simulated() {
            // The groups' sets are all that holds processes there.
            return;
        }
        let own = |path: &Path| open(path)?.processors().filter(|_| is_held);
        let list = |(task, path): &(TaskId, PathBuf)| {
            let list = self.processes.tracker.list_of(*task)?;
            Some((list, own(path).unwrap_or_else(|| new.clone())))
        };
        let tasks: Vec<(List, Vec<u32>)> = tasks.iter().filter_map(list).collect();
        let change = job.confinement.masks.begin();
        self.processes.beside.start(self.owner_of(id), move || {
            let is_done = change.make(id, &tasks);
            Box::new(move |agent: &mut Self| {
                if let Some(job) = agent.jobs.get_mut(&id).filter(|_| is_done) {
                    job.confinement.masks.end(&change);
                }
            })
        });
    }

    /// The tasks of a job that are here, those of further steps too, each with its group's path.
    fn tasks_of(&self, id: JobId, job: &Job) -> Vec<(TaskId, PathBuf)> {
        let ranks = job.tasks.ranks().iter();
        let first = ranks.map(|&rank| ((StepKey::first(id), rank), job.group_of(rank)));
        first.chain(self.tasks_of_steps(id)).collect()
    }

    /// Has processes brought back that may run elsewhere than their jobs, if it is time to look.
    pub(super) fn watch_affinity(&mut self, now_ns: u64) {
        if self.processes.affinity.due_ns().is_none_or(|due_ns| due_ns > now_ns) {
            return;
        }
        self.processes.affinity.due_ns = None;
        let tasks = self.unheld();
        if tasks.is_empty() {
            return;
        }
        self.processes.affinity.is_looking = true;
        let from = self.processes.affinity.next.take();
        self.processes.beside.start(WATCH, move || {
            let next = look_at_all(&tasks, from);
            Box::new(move |agent: &mut Self| {
                let ended_ns = clock::monotonic_ns();
                let took_ns = ended_ns.saturating_sub(now_ns);
                agent.processes.affinity.is_looking = false;
                agent.processes.affinity.next = next;
                let pause_ns = LOOK_NS.max(took_ns.saturating_mul(100));
                agent.processes.affinity.due_ns = Some(ended_ns + pause_ns);
            })
        });
    }

    /// The tasks that only this agent holds to their processors.
    fn unheld(&self) -> Vec<Unheld> {
        let is_unheld = |job: &&Job| !job.confinement.is_held && !job.tasks.are_cleared();
        let unheld = |task: TaskId| {
            let job = self.jobs.get(&task.0.job).filter(is_unheld)?;
            let (list, place) = (self.processes.tracker.list_of(task)?, &job.confinement);
            let (processors, change) = (place.processors.iter().collect(), place.masks.current());
            Some(Unheld { task, list, processors, change })
        };
        let first = |(&id, job): (&JobId, &Job)| -> Vec<TaskId> {
            job.tasks.living().map(|rank| (StepKey::first(id), rank)).collect()
        };
        let jobs = self.jobs.iter().filter(|(_, job)| is_unheld(job));
        let mut tasks: Vec<TaskId> = jobs.flat_map(first).collect();
        tasks.extend(self.living_tasks_of_steps());
        // The next look goes on at one of them.
        tasks.sort_unstable();
        tasks.into_iter().filter_map(unheld).collect()
    }
}

/// A task that no cpuset holds to its processors.
struct Unheld {
    task: TaskId,
    list: List,
    processors: Vec<u32>,
    change: Change,
}

/// Looks at the processes of tasks from one of them on, until so many threads were looked at; gives where to go on.
fn look_at_all(tasks: &[Unheld], from: Option<(TaskId, usize)>) -> Option<(TaskId, usize)> {
    let mut left = THREADS_MAX;
    let mut from = from;
    for unheld in tasks {
        let first = match from {
            Some((begin, _)) if unheld.task < begin => continue,
            Some((begin, first)) if unheld.task == begin => first,
            _ => 0,
        };
        from = None;
        if let Some(index) = unheld.look(first, &mut left) {
            return Some((unheld.task, index));
        }
    }
    None
}

impl Unheld {
    /// Looks at the processes of the task, but for the first ones, until so many threads were looked at; then says at
    /// which it stopped. Brings back those that may run elsewhere.
    fn look(&self, first: usize, left: &mut usize) -> Option<usize> {
        // Nothing is known before the first timetable.
        if self.processors.is_empty() {
            return None;
        }
        let (mut strays, mut stopped_at) = (BTreeSet::new(), None);
        for (index, pid) in self.list.read().into_iter().enumerate().skip(first) {
            if *left == 0 {
                stopped_at = Some(index);
                break;
            }
            let look = affinity::look(pid, &self.processors, *left);
            *left -= look.threads.max(1).min(*left);
            if look.strays {
                strays.insert(pid);
            }
        }
        if !strays.is_empty() {
            let is_stray = |pid: &i32| strays.contains(pid);
            let list = || self.list.read().into_iter().filter(is_stray).collect();
            self.change.confine(self.task.0.job, list, &self.processors);
        }
        stopped_at
    }
}

/// Changes of where the processes of a job may run. They are made beside the loop, one at a time; a later one makes
/// void what is left of those before.
#[derive(Debug, Default)]
struct Masks {
    latest: Arc<AtomicU64>,
    turn: Arc<Mutex<()>>,
    /// Masks that processes may have which none of the changes has taken from them.
    stale: Vec<Vec<u32>>,
    /// Whether the job's group was, or may have been, held to fewer processors than the job has.
    is_narrowed: bool,
    /// Where a job that no group holds is to run once its tasks have begun, if that is elsewhere
    /// than they begin.
    late: Option<ProcessorSet>,
}

/// Stale masks of a job that are remembered.
const STALE_MAX: usize = 16;

/// One of the changes of a job.
#[derive(Clone, Debug)]
struct Change {
    number: u64,
    latest: Arc<AtomicU64>,
    turn: Arc<Mutex<()>>,
    stale: Vec<Vec<u32>>,
}

impl Masks {
    fn note_stale(&mut self, masks: [Vec<u32>; 2]) {
        for mask in masks {
            if !mask.is_empty() && !self.stale.contains(&mask) {
                self.stale.push(mask);
            }
        }
        let surplus = self.stale.len().saturating_sub(STALE_MAX);
        self.stale.drain(..surplus);
    }

    /// The state after the latest change: void as soon as there is another.
    fn current(&self) -> Change {
        let number = self.latest.load(Ordering::SeqCst);
        let (latest, turn) = (Arc::clone(&self.latest), Arc::clone(&self.turn));
        Change { number, latest, turn, stale: Vec::new() }
    }

    /// A new change, which makes those before void.
    fn begin(&self) -> Change {
        self.latest.fetch_add(1, Ordering::SeqCst);
        Change { stale: self.stale.clone(), ..self.current() }
    }

    /// All of a change was made.
    fn end(&mut self, change: &Change) {
        if change.is_latest() {
            self.stale.clear();
        }
    }

    /// The job has ended.
    fn close(&self) {
        self.latest.fetch_add(1, Ordering::SeqCst);
    }
}

impl Change {
    fn is_latest(&self) -> bool {
        self.latest.load(Ordering::SeqCst) == self.number
    }

    /// Confines the processes of tasks; whether that was not made void meanwhile.
    fn make(&self, job: JobId, tasks: &[(List, Vec<u32>)]) -> bool {
        for (list, processors) in tasks {
            self.confine(job, || list.read(), processors);
        }
        self.is_latest()
    }

    fn confine(&self, job: JobId, list: impl Fn() -> Vec<i32>, processors: &[u32]) {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let confine = |process: &Held| {
            if !self.is_latest() {
                return;
            }
            if let Err(error) = affinity::confine(process, processors, &self.stale) {
                let pid = process.pid();
                warn!(target: PROVOKED, code = %Code::GoesWithout, "process {pid} of job {job} stays on its processors: {error}");
            }
        };
        // The list can't fail.
        let _ = for_each_listed(|| Ok(if self.is_latest() { list() } else { Vec::new() }), confine);
    }
}

fn open(path: &Path) -> Option<Cgroup> {
    Cgroup::open(path).ok()
}

/// First the job may run on both, since its tasks must never have what it has not.
fn move_sets<'a>(
    group: &Cgroup,
    tasks: impl Iterator<Item = &'a PathBuf>,
    old: &[u32],
    new: &[u32],
) -> tutti_linux::Result<()> {
    let before = group.processors().unwrap_or_default();
    let own = moved(&before, old, new);
    let both: ProcessorSet = before.iter().chain(&own).copied().collect();
    group.set_processors(&both.iter().collect::<Vec<u32>>())?;
    for path in tasks {
        match open(path) {
            // The keeper has removed it: the task has ended.
            None => group.remove_set_of(path),
            Some(task) => {
                if let Some(set) = task.processors() {
                    task.set_processors(&moved(&set, old, new))?;
                }
            }
        }
    }
    group.set_processors(&own).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tutti_linux::proc::{online_processors, processors_of};

    #[test]
    fn a_job_that_goes_on_elsewhere_is_held_there_with_its_tasks() {
        let processors = online_processors();
        let &[one, other, ..] = &processors[..] else { panic!("THIS TEST NEEDS TWO PROCESSORS") };
        let top = Hierarchy::find(&format!("tutti-test-{}-moves", std::process::id()))
            .unwrap_or_else(|why| panic!("THIS TEST NEEDS ROOT AND CGROUP2: {why}"));
        let mut sleep = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let pid = sleep.id().cast_signed();
        let group = top.create("job-1").unwrap();
        let may = group.set_processors(&[one]);
        let task_in = |step: &str, rank: &str| {
            let task = group.create_child(step).unwrap().create_child(rank).unwrap();
            task.set_processors(&[one]).unwrap();
            task
        };
        let [task, further] = ["step-0", "step-1"].map(|step| task_in(step, "rank-0"));
        // One that has ended: in v1 its set is left.
        let gone = task_in("step-1", "rank-1");
        gone.remove_unlimited().unwrap();
        assert!(task.take_in(&Held::whoever_is(pid).unwrap()).unwrap());
        let before = processors_of(pid);
        let tasks = [&task, &further, &gone].map(|it| it.path().to_owned());
        let moved = move_sets(&group, tasks.iter(), &[one], &[other]);
        let after = [processors_of(pid), task.processors(), further.held_to(), group.held_to()];
        sleep.kill().unwrap();
        sleep.wait().unwrap();
        assert!(top.remove().unwrap());
        may.unwrap();
        moved.unwrap();
        assert_eq!(before, Some(vec![one]));
        assert_eq!(after, std::array::from_fn(|_| Some(vec![other])));
    }

    #[test]
    fn the_last_of_several_changes_counts_in_whatever_order_they_are_made() {
        let processors = online_processors();
        let &[one, other, ..] = &processors[..] else { panic!("THIS TEST NEEDS TWO PROCESSORS") };
        let mut sleep = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let pid = sleep.id().cast_signed();
        let list = || vec![pid];
        let mut masks = Masks::default();
        masks.note_stale([vec![one, other], Vec::new()]);
        let (earlier, later) = (masks.begin(), masks.begin());
        later.confine(JobId(1), list, &[other]);
        earlier.confine(JobId(1), list, &[one]);
        let moved = processors_of(pid);
        masks.end(&earlier);
        let (is_kept, watch) = (!masks.stale.is_empty(), masks.current());
        masks.end(&later);
        // A look from before the job ended changes nothing after it.
        masks.close();
        watch.confine(JobId(1), list, &[one]);
        let watched = processors_of(pid);
        sleep.kill().unwrap();
        sleep.wait().unwrap();
        assert_eq!((moved, watched), (Some(vec![other]), Some(vec![other])));
        assert!(is_kept && masks.stale.is_empty());
    }

    #[test]
    fn each_processor_has_its_place_taken_by_one() {
        assert_eq!(moved(&[3], &[2, 3], &[5, 7]), [7]);
        assert_eq!(moved(&[2, 3], &[2, 3], &[3, 4]), [3, 4]);
        // Of what it was before nothing is known.
        assert_eq!(moved(&[1], &[2, 3], &[5, 7]), [5, 7]);
        assert_eq!(moved(&[3], &[2, 3], &[5]), [5]);
    }

    #[test]
    fn tasks_stay_on_their_processors_when_others_of_the_job_are_given_away() {
        assert_eq!(moved(&[1], &[0, 1, 2], &[1, 2]), [1]);
        assert_eq!(moved(&[0, 1, 2], &[0, 1, 2], &[1, 2]), [1, 2]);
        assert_eq!(moved(&[0], &[0, 1, 2], &[1, 2]), [1, 2]);
    }
}
