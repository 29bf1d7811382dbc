//! Where the processes of jobs may run: on the processors of their job, whatever they ask for.
//!
//! Where a cpuset can be written, the kernel sees to it: each job's group has one, and each task's within it where
//! tasks have own processors. Elsewhere processes can bind themselves to any processor: those that did are looked
//! for once a second and brought back, so many threads at a time. A program's own binding within its processors
//! stays. A job that goes on on other processors takes its processes along, when the first timetable comes that says so.

use super::driver::Agent;
use super::job::Job;
use super::track::TaskId;
use std::collections::BTreeMap;
use std::path::Path;
use tracing::warn;
use tutti_linux::affinity;
use tutti_linux::cgroup::LimitBy;
use tutti_linux::pidfd::Held;
use tutti_node::log::PROVOKED;
use tutti_node::platform::groups::{Cgroup, Hierarchy};
use tutti_node::platform::time as clock;
use tutti_types::{JobId, ProcessorSet, Rank, Timetable};
use tutti_wire::code::Code;
use tutti_wire::launch::Launch;

/// How often processes are looked for that have left their processors. Longer where that takes long, so that it
/// costs a hundredth of a processor.
const LOOK_NS: u64 = 1_000_000_000;

/// Threads that are looked at each time.
const THREADS_MAX: usize = 4_096;

/// See the head of the file.
#[derive(Debug, Default)]
pub(super) struct Affinity {
    /// Whether groups can hold processes to processors here.
    holds: bool,
    /// When to look next; never while the kernel holds all jobs.
    due_ns: Option<u64>,
    /// Where the next look begins.
    next: Option<(TaskId, usize)>,
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
        #[cfg(feature = "simulation")]
        if tutti_node::platform::processes::are_simulated() {
            // They have no masks.
            return;
        }
        self.due_ns.get_or_insert_with(|| clock::monotonic_ns() + LOOK_NS);
    }

    pub(super) const fn due_ns(&self) -> Option<u64> {
        self.due_ns
    }
}

/// All processors of the tasks that a launch begins here.
pub(super) fn processors_of(launch: &Launch) -> ProcessorSet {
    let mut all = ProcessorSet::new();
    launch.share.tasks.iter().for_each(|task| all.union_with(&task.processors));
    all
}

/// What has been one of the `old` processors is the one of the `new` at the same place; the new ones, where that
/// is none.
fn moved(set: &[u32], old: &[u32], new: &[u32]) -> Vec<u32> {
    let place = |processor| old.iter().position(|it| it == processor);
    let moved: Option<Vec<u32>> =
        set.iter().map(|processor| new.get(place(processor)?).copied()).collect();
    moved.filter(|set| !set.is_empty()).unwrap_or_else(|| new.to_vec())
}

impl Agent {
    /// Takes the processes of jobs to where a timetable has them run.
    pub(super) fn follow(&mut self, timetable: &Timetable) {
        let mut moves = BTreeMap::new();
        for candidate in timetable.slots.iter().flat_map(|slot| &slot.candidates) {
            let Some(job) = self.jobs.get_mut(&candidate.launch.job) else { continue };
            let new = &candidate.processors;
            if job.launch != candidate.launch || job.cleared.is_some() || new.is_empty() {
                continue;
            }
            // Tasks need not use all that their job has.
            if job.processors.is_subset(new) {
                job.processors.clone_from(new);
            } else {
                moves.insert(candidate.launch.job, new.clone());
            }
        }
        for (job, new) in moves {
            self.move_processes(job, new);
        }
    }

    fn move_processes(&mut self, id: JobId, new: ProcessorSet) {
        let Some(job) = self.jobs.get_mut(&id) else { return };
        let old: Vec<u32> = std::mem::replace(&mut job.processors, new).iter().collect();
        let new: Vec<u32> = job.processors.iter().collect();
        let Some(job) = self.jobs.get(&id) else { return };
        let moved_sets = if job.is_held { move_sets(job, &old, &new) } else { Ok(()) };
        if let Err(error) = moved_sets {
            warn!(code = %Code::GoesWithout, "job {id} is not held to its new processors: {error}");
        }
        let common: Vec<u32> = old.iter().copied().filter(|it| new.contains(it)).collect();
        for rank in job.roots.keys() {
            let own = job.own_processors(*rank).unwrap_or_else(|| new.clone());
            for pid in self.tracker.processes((id, *rank)) {
                self.confine((id, *rank), pid, &own, &[old.clone(), common.clone()]);
            }
        }
    }

    /// Brings back processes that may run elsewhere than their jobs, if it is time to look.
    pub(super) fn watch_affinity(&mut self, now_ns: u64) {
        if self.affinity.due_ns.is_none_or(|due_ns| due_ns > now_ns) {
            return;
        }
        let mut left = THREADS_MAX;
        let mut from = self.affinity.next.take();
        let tasks = self.unheld();
        for &task in &tasks {
            let first = match from {
                Some((begin, _)) if task < begin => continue,
                Some((begin, first)) if task == begin => first,
                _ => 0,
            };
            from = None;
            let Some(done) = self.look_at(task, first, &mut left) else { continue };
            self.affinity.next = Some((task, done));
            break;
        }
        let took_ns = clock::monotonic_ns().saturating_sub(now_ns);
        let again_ns = now_ns + LOOK_NS.max(took_ns.saturating_mul(100));
        self.affinity.due_ns = (!tasks.is_empty()).then_some(again_ns);
    }

    /// The tasks that only this thread holds to their processors.
    fn unheld(&self) -> Vec<TaskId> {
        let is_unheld = |(_, job): &(&JobId, &Job)| !job.is_held && job.cleared.is_none();
        let tasks = |(&id, job): (&JobId, &Job)| -> Vec<TaskId> {
            let lives = |rank: &&Rank| !job.ended.contains_key(rank);
            job.roots.keys().filter(lives).map(|&rank| (id, rank)).collect()
        };
        self.jobs.iter().filter(is_unheld).flat_map(tasks).collect()
    }

    /// Looks at the processes of a task, but for the first ones, until so many threads were looked at; then says at
    /// which it stopped.
    fn look_at(&self, task: TaskId, first: usize, left: &mut usize) -> Option<usize> {
        // Nothing is known before the first timetable.
        let own = &self.jobs.get(&task.0).filter(|job| !job.processors.is_empty())?.processors;
        let own: Vec<u32> = own.iter().collect();
        for (index, pid) in self.tracker.processes(task).into_iter().enumerate().skip(first) {
            if *left == 0 {
                return Some(index);
            }
            let look = affinity::look(pid, &own, *left);
            *left -= look.threads.max(1).min(*left);
            if look.strays {
                self.confine(task, pid, &own, &[]);
            }
        }
        None
    }

    /// Only what is of the task still, once it is held: its number may be another's by then.
    fn confine(&self, task: TaskId, pid: i32, processors: &[u32], stale: &[Vec<u32>]) {
        let Ok(process) = Held::whoever_is(pid) else { return };
        if !self.tracker.processes(task).contains(&pid) {
            return;
        }
        if let Err(error) = affinity::confine(&process, processors, stale) {
            warn!(target: PROVOKED, code = %Code::GoesWithout, "process {pid} of job {} stays on its processors: {error}", task.0);
        }
    }
}

impl Job {
    /// The processors that the group of a task is held to.
    fn own_processors(&self, rank: Rank) -> Option<Vec<u32>> {
        open(&self.group_of(rank))?.processors().filter(|_| self.is_held)
    }
}

fn open(path: &Path) -> Option<Cgroup> {
    Cgroup::open(path).ok()
}

/// First the job may run on both, since its tasks must never have what it has not.
fn move_sets(job: &Job, old: &[u32], new: &[u32]) -> tutti_linux::Result<()> {
    let Some(group) = &job.group else { return Ok(()) };
    let before = group.processors().unwrap_or_default();
    let own = moved(&before, old, new);
    let both: ProcessorSet = before.iter().chain(&own).copied().collect();
    group.set_processors(&both.iter().collect::<Vec<u32>>())?;
    for &rank in job.roots.keys() {
        if let Some(task) = open(&job.group_of(rank))
            && let Some(set) = task.processors()
        {
            task.set_processors(&moved(&set, old, new))?;
        }
    }
    group.set_processors(&own).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{BTreeMap, BTreeSet};
    use std::sync::Arc;
    use tutti_linux::proc::{online_processors, processors_of};
    use tutti_types::{ControlMethod, LaunchId};
    use tutti_wire::launch::Usage;

    /// A job of one task, whose root is `root`.
    fn job(group: Cgroup, root: i32) -> Job {
        Job {
            launch: LaunchId::first(JobId(1)),
            control: ControlMethod::Freeze,
            owner: None,
            ipc_before: None,
            step: group.path().join(tutti_node::layout::FIRST_STEP),
            processors: ProcessorSet::new(),
            is_held: true,
            group: Some(Arc::new(group)),
            roots: BTreeMap::from([(Rank(0), root)]),
            ranks: BTreeSet::from([Rank(0)]),
            adopted: Vec::new(),
            stopped: BTreeMap::new(),
            ended: BTreeMap::new(),
            switches: Arc::default(),
            counted: Usage::default(),
            cleared: None,
            frozen: BTreeSet::new(),
            output_lost: String::new(),
            strange: false,
        }
    }

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
        let task = group.create_child(tutti_node::layout::FIRST_STEP).unwrap();
        let task = task.create_child("rank-0").unwrap();
        task.set_processors(&[one]).unwrap();
        assert!(task.take_in(&Held::whoever_is(pid).unwrap()).unwrap());
        let before = processors_of(pid);
        let job = job(group, pid);
        let moved = move_sets(&job, &[one], &[other]);
        let after = (processors_of(pid), task.processors());
        sleep.kill().unwrap();
        sleep.wait().unwrap();
        assert!(top.remove().unwrap());
        may.unwrap();
        moved.unwrap();
        assert_eq!((before, after), (Some(vec![one]), (Some(vec![other]), Some(vec![other]))));
    }

    #[test]
    fn each_processor_has_its_place_taken_by_one() {
        assert_eq!(moved(&[3], &[2, 3], &[5, 7]), [7]);
        assert_eq!(moved(&[2, 3], &[2, 3], &[3, 4]), [3, 4]);
        // Of what it was before nothing is known.
        assert_eq!(moved(&[1], &[2, 3], &[5, 7]), [5, 7]);
        assert_eq!(moved(&[3], &[2, 3], &[5]), [5]);
    }
}
