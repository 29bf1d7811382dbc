//! Further steps of jobs on this node, as the agent knows them.
//!
//! A step's processes are in the group of its job, so they are suspended and resumed with it. Where
//! there is no group, their roots are among those of the job. What the keeper reports of a step
//! goes to the controller as what it reports of a job does. A job has not ended here before its
//! steps have.
//!
//! One step of a job on each node may serve its other tasks, as the daemon of a virtual machine of
//! PVM does. It has a group beside that of the job, and runs on while the job is suspended.

use super::driver::{Agent, EVENTS, bytes_of};
use super::job::remove_group;
use super::job::tasks::Tasks;
use super::subtree_control::SIGTERM;
use super::track::{Begun, Place, TaskId};
use std::path::{Path, PathBuf};
use tracing::warn;
use tutti_linux::signal::Root;
use tutti_node::layout;
use tutti_node::platform::groups::Cgroup;
use tutti_types::{JobId, LaunchId, Rank, StepKey, TaskStatus};
use tutti_wire::code::Code;
use tutti_wire::keeper::{HeldJob, ToKeeper};
use tutti_wire::launch::{Launch, Usage};
use tutti_wire::tree::FromAgent;

/// A further step of a job, until the controller says that its end is known.
pub(super) struct Step {
    launch: LaunchId,
    /// Its group, in that of its job, or beside it.
    group: Option<Cgroup>,
    /// See [`Launch::serves`].
    serves: bool,
    tasks: Tasks,
    /// The controller does not know of it, so no `Forget` will come.
    strange: bool,
}

impl Agent {
    /// All that the keeper was given, and has not been told to forget.
    pub(super) fn all_launches(&self) -> Vec<LaunchId> {
        let jobs = self.jobs.values().map(|job| job.launch);
        jobs.chain(self.steps.values().map(|step| step.launch)).collect()
    }

    fn step_launched(&mut self, launch: LaunchId) -> Option<&mut Step> {
        self.steps.get_mut(&launch.key()).filter(|step| step.launch == launch)
    }

    pub(super) fn on_launch_step(&mut self, mut launch: Launch) {
        let (id, key) = (launch.id(), launch.id().key());
        if self.steps.contains_key(&key) {
            return;
        }
        let job = self.jobs.get(&key.job).filter(|job| job.launch.number == id.number);
        let job = job.filter(|job| !job.tasks.are_cleared() && job.clearing.is_none());
        let group = job.and_then(|job| job.group.as_ref());
        launch.share.is_closed =
            !launch.share.closed.is_empty() && group.is_some_and(|group| group.closes_devices());
        launch.share.is_bound = job.is_some_and(|job| job.confinement.is_held());
        let made = match job.map(|job| &job.group) {
            Some(None) => Ok(None),
            _ if launch.serves && self.has_server(key.job) => Err(()),
            Some(Some(_)) if launch.serves => self.make_group_of_server(&launch).map(Some),
            Some(Some(group)) => {
                group.create_child(&layout::group_of_step(key.step)).map(Some).map_err(|error| {
                    warn!(code = %Code::GoesWithout, "job {key} can't have a cgroup: {error}");
                })
            }
            // The job has ended here meanwhile.
            None => Err(()),
        };
        let Ok(group) = made else {
            let usage = Usage::default();
            return self.tell_controller(FromAgent::Cleared { launch: id, usage });
        };
        let tasks = Tasks::of(&launch.share);
        let ranks = tasks.ranks().iter().copied();
        self.processes.tracker.begin(key, ranks, &self.poller, EVENTS);
        let cgroup = group.as_ref().map(|group| bytes_of(group.path()));
        let step = Step { launch: id, group, serves: launch.serves, tasks, strange: false };
        self.steps.insert(key, step);
        if self.jobs.get(&key.job).is_some_and(|job| !job.confinement.is_held()) {
            self.processes.affinity.watch();
        }
        self.tell_keeper_at_once(&ToKeeper::Launch { launch, cgroup });
        if self.keeping.keeper.is_none() {
            self.lose_step(key);
        }
    }

    /// Whether a step here serves the other tasks of a job. One with an ended task may be
    /// followed by another before it is cleared.
    fn has_server(&self, job: JobId) -> bool {
        let mut of_job = self.steps.iter().filter(|(key, _)| key.job == job);
        let runs = |step: &Step| step.serves && !step.tasks.have_ended();
        of_job.any(|(_, step)| runs(step) && !step.tasks.are_cleared())
    }

    /// Makes a group beside that of the job, with the job's processors.
    fn make_group_of_server(&self, launch: &Launch) -> Result<Cgroup, ()> {
        let say = |error: &dyn std::error::Error| {
            warn!(code = %Code::GoesWithout, "job {} can't have a cgroup: {error}", launch.id());
        };
        let hierarchy = self.groups.hierarchy.as_ref().ok_or(())?;
        let group =
            hierarchy.create(&layout::group_of_server(launch.id())).map_err(|error| say(&error))?;
        let of_job = self.jobs.get(&launch.job).map(|job| &job.confinement);
        let held = of_job.filter(|place| place.is_held()).map(|place| place.processors().iter());
        let processors: Vec<u32> = held.into_iter().flatten().collect();
        if !processors.is_empty()
            && let Err(error) = group.set_processors(&processors)
        {
            say(&error);
        }
        super::devices::close_all(launch.job, &group, &launch.share);
        Ok(group)
    }

    pub(super) fn on_step_started(&mut self, launch: LaunchId, rank: Rank, root: i32) {
        let Some(step) = self.step_launched(launch) else { return };
        step.tasks.begin(rank, root);
        self.follow_step(launch.key(), rank, root, Begun::Now);
        self.tell_controller(FromAgent::TaskStarted { launch, rank, root });
    }

    /// Has a task of a step switched with its job, and follows its processes.
    fn follow_step(&mut self, key: StepKey, rank: Rank, root: i32, begun: Begun) {
        let minder = self.minder_named(root);
        let (Some(step), Some(job)) = (self.steps.get(&key), self.jobs.get(&key.job)) else {
            return;
        };
        let tree = match &job.group {
            _ if step.serves => None,
            Some(_) if job.is_frozen_as_one() => None,
            Some(_) => Some(Root::whole(root)),
            None => minder.map(Root::below_named),
        };
        let place = match &step.group {
            Some(group) => Place::Group(group.path().join(layout::group_of_task(rank))),
            None => Place::Minder(minder.unwrap_or((root, u64::MAX))),
        };
        if let Some(tree) = tree {
            self.switch.root(key.job, tree);
        }
        if let Some(minder) = minder.filter(|_| job.group.is_none()) {
            self.allow_notices_below(key.job, minder);
        }
        self.processes.tracker.started((key, rank), root, place, begun);
    }

    pub(super) fn step_task_has_ended(
        &mut self,
        launch: LaunchId,
        rank: Rank,
        (status, detail, usage): (TaskStatus, String, Usage),
    ) {
        if let Some(step) = self.step_launched(launch) {
            step.tasks.end(rank, (status, detail.clone(), usage));
        }
        self.tell_controller(FromAgent::TaskEnded { launch, rank, status, detail, usage });
    }

    /// Removes what a step had. What is left in v1 of the sets of its tasks would hold the job to
    /// their processors, which it may lend from now on.
    fn remove_groups(&mut self, key: StepKey) {
        let Some(step) = self.steps.get_mut(&key) else { return };
        let Some(group) = step.group.take() else { return };
        remove_group(Some(&group));
        let job = self.jobs.get(&key.job).filter(|job| job.confinement.is_held());
        if let Some(of_job) = job.and_then(|job| job.group.as_ref()) {
            let ranks = step.tasks.ranks().iter();
            let sets = ranks.map(|&rank| group.path().join(layout::group_of_task(rank)));
            sets.for_each(|set| of_job.remove_set_of(&set));
        }
    }

    pub(super) fn on_step_cleared(&mut self, launch: LaunchId, mut usage: Usage) {
        let key = launch.key();
        self.processes.tracker.end(key, &self.poller);
        let mut is_strange = false;
        if let Some(step) = self.step_launched(launch) {
            step.tasks.clear(&mut usage);
            is_strange = step.strange;
            self.remove_groups(key);
        }
        self.tell_controller(FromAgent::Cleared { launch, usage });
        if is_strange {
            self.on_forget_step(launch);
        }
        self.go_on_to_clear(key.job);
    }

    /// Whether steps of a job have to end before the job does, which its keeper says has. They are
    /// killed.
    pub(super) fn ends_steps_first(&mut self, id: JobId, usage: Usage) -> bool {
        let left = self.steps_left(id);
        for &launch in &left {
            self.tell_keeper(&ToKeeper::Kill { launch });
        }
        // From now on no step is begun.
        if let Some(job) = self.jobs.get_mut(&id) {
            job.clearing = Some(usage);
        }
        !left.is_empty()
    }

    /// Ends a job of which only steps were left, and these are gone.
    fn go_on_to_clear(&mut self, id: JobId) {
        if !self.steps_left(id).is_empty() {
            return;
        }
        let Some(job) = self.jobs.get(&id).filter(|job| !job.tasks.are_cleared()) else { return };
        // What the job has left may be being removed already.
        let is_under_way = self.keeping.held_back.contains_key(&job.launch);
        if let Some(usage) = job.clearing.filter(|_| !is_under_way) {
            self.on_cleared(job.launch, usage);
        }
    }

    /// The tasks of further steps of a job, each with its group's path.
    pub(super) fn tasks_of_steps(&self, id: JobId) -> impl Iterator<Item = (TaskId, PathBuf)> {
        let is_of_it = move |key: &StepKey, step: &Step| key.job == id && !step.tasks.are_cleared();
        let steps = self.steps.iter().filter(move |(key, step)| is_of_it(key, step));
        steps.flat_map(|(&key, step)| {
            let group = step.group.as_ref().map_or(Path::new(""), Cgroup::path);
            let ranks = step.tasks.ranks().iter();
            ranks.map(move |&rank| ((key, rank), group.join(layout::group_of_task(rank))))
        })
    }

    /// The tasks of further steps that have not ended.
    pub(super) fn living_tasks_of_steps(&self) -> impl Iterator<Item = TaskId> {
        let steps = self.steps.iter().filter(|(_, step)| !step.tasks.are_cleared());
        steps.flat_map(|(&key, step)| step.tasks.living().map(move |rank| (key, rank)))
    }

    fn steps_left(&self, id: JobId) -> Vec<LaunchId> {
        let of_job = self.steps.values().filter(|step| step.launch.job == id);
        of_job.filter(|step| !step.tasks.are_cleared()).map(|step| step.launch).collect()
    }

    /// Sends a signal to all steps of a job. It is not meant for one that serves the others, unless
    /// all are to end.
    pub(super) fn signal_steps(&mut self, id: JobId, signal: u8) {
        for launch in self.steps_left(id) {
            let serves = self.steps.get(&launch.key()).is_some_and(|step| step.serves);
            if serves && i32::from(signal) != SIGTERM {
                continue;
            }
            self.tell_keeper(&ToKeeper::Signal { launch, ranks: Vec::new(), signal });
        }
    }

    pub(super) fn on_kill_step(&mut self, launch: LaunchId) {
        match self.step_launched(launch).map(|step| step.tasks.cleared()) {
            Some(None) => self.tell_keeper(&ToKeeper::Kill { launch }),
            known => {
                let usage = known.flatten().unwrap_or_default();
                self.tell_controller(FromAgent::Cleared { launch, usage });
            }
        }
    }

    pub(super) fn on_forget_step(&mut self, launch: LaunchId) {
        let Some(step) = self.step_launched(launch) else { return };
        if !step.tasks.are_cleared() {
            step.strange = true;
            return self.tell_keeper(&ToKeeper::Kill { launch });
        }
        self.steps.remove(&launch.key());
        self.tell_keeper(&ToKeeper::Forget { launch });
    }

    /// A controller has said whether it knows of a step.
    pub(super) fn meet_step(&mut self, launch: LaunchId, is_known: bool) {
        match is_known {
            true => {
                self.report_step_again(launch);
                self.tell_keeper(&ToKeeper::SendExchanges { launch });
            }
            false if launch.job <= self.groups.released.until() => self.release_step(launch),
            false => self.on_forget_step(launch),
        }
    }

    /// A step of a released job goes on with it.
    fn release_step(&mut self, launch: LaunchId) {
        match self.step_launched(launch) {
            Some(step) if !step.tasks.are_cleared() => step.strange = true,
            _ => self.on_forget_step(launch),
        }
    }

    fn report_step_again(&mut self, launch: LaunchId) {
        let Some(step) = self.step_launched(launch) else { return };
        let mut messages: Vec<FromAgent> = step.tasks.report_begins(launch).collect();
        messages.extend(step.tasks.report_ends(launch));
        messages.extend(step.tasks.report_cleared(launch));
        messages.into_iter().for_each(|message| self.tell_controller(message));
    }

    /// Goes on with a step that the keeper holds from before this agent.
    pub(super) fn adopt_step(&mut self, mut held: HeldJob) {
        let key = held.launch.key();
        if self.steps.contains_key(&key) {
            return;
        }
        let path = held.cgroup.take().map(|path| PathBuf::from(as_os(path.into_vec())));
        let step = Step {
            launch: held.launch,
            group: path.and_then(|path: PathBuf| Cgroup::open(Path::new(&path)).ok()),
            serves: held.serves,
            tasks: Tasks::held(&mut held),
            strange: false,
        };
        let is_live = !step.tasks.are_cleared();
        self.steps.insert(key, step);
        if is_live {
            self.processes.tracker.begin(key, [], &self.poller, EVENTS);
            for (rank, root) in held.roots {
                self.follow_step(key, rank, root, Begun::Before);
            }
        }
        if is_live && self.jobs.get(&key.job).is_none_or(|job| job.tasks.are_cleared()) {
            // The agent before this one was about to end it with its job.
            self.tell_keeper(&ToKeeper::Kill { launch: held.launch });
        }
    }

    /// All steps of a job went with their keeper.
    pub(super) fn lose_steps(&mut self, id: JobId) {
        for launch in self.steps_left(id) {
            self.lose_step(launch.key());
        }
    }

    /// The tasks of a step went with their keeper.
    pub(super) fn lose_step(&mut self, key: StepKey) {
        self.processes.tracker.end(key, &self.poller);
        let Some(step) = self.steps.get_mut(&key) else { return };
        self.keeping.held_back.remove(&step.launch);
        step.tasks.lose();
        let (launch, strange) = (step.launch, step.strange);
        self.remove_groups(key);
        self.report_step_again(launch);
        if strange {
            self.on_forget_step(launch);
        }
    }
}

fn as_os(bytes: Vec<u8>) -> std::ffi::OsString {
    std::os::unix::ffi::OsStringExt::from_vec(bytes)
}
