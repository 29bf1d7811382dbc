//! The agent's side of its keeper: what that reports, what it holds when it is met, and what goes with it when it ends.

use super::affinity::Confinement;
use super::driver::{Agent, EVENTS};
use super::ipc;
use super::job::tasks::Tasks;
use super::job::{Findings, Job, grip, remove_group};
use super::lease::Former;
use super::subtree_control::{Name, Suspended, name};
use super::track::{self, Begun, TaskId};
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tracing::warn;
use tutti_linux::proc::ProcessStat;
use tutti_linux::signal::{Root, kill_forest};
use tutti_node::layout;
use tutti_node::platform::groups::Cgroup;
use tutti_types::{JobId, LaunchId, Rank, StepKey, TaskStatus};
use tutti_wire::code::Code;
use tutti_wire::keeper::{FromKeeper, HeldJob, ToKeeper};
use tutti_wire::launch::Usage;
use tutti_wire::tree::{Answer, FromAgent};

impl Agent {
    pub(super) fn on_keeper(&mut self) {
        let Some(link) = &mut self.keeping.keeper else { return };
        let received = link.receive();
        loop {
            let Some(link) = &mut self.keeping.keeper else { return };
            match link.next::<FromKeeper>() {
                Ok(Some(message)) => self.on_report(message),
                Ok(None) => break,
                Err(_) => return self.lose_keeper(),
            }
        }
        if received.is_err() {
            self.lose_keeper();
        }
    }

    /// What it has said before its end still counts.
    pub(super) fn on_keeper_end(&mut self) {
        self.on_keeper();
        if self.keeping.keeper_process.is_some() {
            self.lose_keeper();
        }
    }

    fn on_report(&mut self, report: FromKeeper) {
        if let FromKeeper::TaskEnded { launch, .. } | FromKeeper::Cleared { launch, .. } = &report
            && let Some(reports) = self.keeping.held_back.get_mut(launch)
        {
            return reports.push(report);
        }
        match report {
            FromKeeper::Held(parts) => self.on_held(parts),
            FromKeeper::Welcome { incarnation, tasks_max } => {
                self.keeping.tasks_max = tasks_max;
                self.on_keeper_welcome(incarnation);
            }
            FromKeeper::TaskStarted { launch, rank, root } if launch.is_further() => {
                self.on_step_started(launch, rank, root);
            }
            FromKeeper::TaskStarted { launch, rank, root } => {
                let minder = self.minder_named(root);
                if let Some(record) = self.launched(launch) {
                    record.tasks.begin(rank, root);
                    let trees = match &record.group {
                        Some(_) if record.is_frozen_as_one() => Vec::new(),
                        // All of the group is stopped again, if it is not its turn.
                        Some(_) => vec![Root::whole(root)],
                        None => {
                            record.minders.extend(minder.map(|name| (rank, name)));
                            record.trees(rank)
                        }
                    };
                    let minder = minder.filter(|_| record.group.is_none());
                    trees.into_iter().for_each(|tree| self.switch.root(launch.job, tree));
                    minder.into_iter().for_each(|it| self.allow_notices_below(launch.job, it));
                }
                self.track(launch.job, rank, root, Begun::Now);
                self.follow_late(launch.job);
                self.tell_controller(FromAgent::TaskStarted { launch, rank, root });
            }
            FromKeeper::TaskEnded { launch, rank, status, detail, usage } => {
                self.on_task_ended(launch, rank, (status, detail, usage));
            }
            FromKeeper::Exchange(exchange) => self.exchange(exchange),
            FromKeeper::Piece { peer, piece } => {
                self.tell_controller(FromAgent::Piece { peer, piece });
            }
            FromKeeper::OutputLost { launch, what } => {
                if let Some(job) = self.launched(launch) {
                    job.findings.note_output_lost(&what);
                }
                self.tell_controller(FromAgent::OutputLost { launch, what });
            }
            FromKeeper::Cleared { launch, usage } if launch.is_further() => {
                self.on_step_cleared(launch, usage);
            }
            FromKeeper::Cleared { launch, usage } => self.on_cleared(launch, usage),
            FromKeeper::Alive => self.on_keeper_alive(),
            FromKeeper::Carried(carried) => {
                if let Some(used) = self.external.used.carried(carried) {
                    self.tell_controller(FromAgent::Used(used));
                }
            }
            FromKeeper::Lapsed => self.on_keeper_lapse(),
            FromKeeper::GoesOn { launch, failure, ends } => {
                if failure.is_none()
                    && let Some(job) = self.launched(launch)
                {
                    job.findings.note_image();
                }
                self.tell_controller(FromAgent::GoesOn { launch, failure, ends });
            }
        }
    }

    /// A minder that lives, by its number and start time: it is a child of the keeper.
    pub(super) fn minder_named(&self, pid: i32) -> Option<Name> {
        let stat = ProcessStat::read(pid).ok()?;
        let is_child = self.keeping.keeper_pid == 0 || stat.ppid == self.keeping.keeper_pid;
        is_child.then_some((pid, stat.start_time))
    }

    /// Follows a task's processes from now on.
    fn track(&mut self, id: JobId, rank: Rank, root: i32, begun: Begun) {
        let Some(job) = self.jobs.get(&id) else { return };
        let place = match &job.group {
            Some(_) => track::Place::Group(job.group_of(rank)),
            None if !job.adopted.is_empty() => track::Place::Trees(job.adopted.clone()),
            None => {
                // One that has ended already has nothing below it.
                let minder = job.minders.get(&rank).copied().unwrap_or((root, u64::MAX));
                track::Place::Minder(minder)
            }
        };
        let begun = match job.adopted.len() {
            0 => begun,
            count => Begun::Adopted(count),
        };
        if !job.confinement.is_held() {
            self.processes.affinity.watch();
        }
        self.processes.tracker.started((StepKey::first(id), rank), root, place, begun);
    }

    fn on_task_ended(&mut self, launch: LaunchId, rank: Rank, end: (TaskStatus, String, Usage)) {
        let left = self.what_is_left((launch.key(), rank));
        if left.is_empty() {
            return self.task_has_ended(launch, rank, end);
        }
        self.keeping.held_back.insert(launch, Vec::new());
        self.processes.beside.start(self.owner_of(launch.job), move || {
            let killed = kill_forest(&left);
            Box::new(move |agent: &mut Self| {
                if let Err(error) = killed {
                    warn!(code = %Code::ProcessStuck, "cannot end what job {} has left: {error}", launch.job);
                }
                // Nothing where the job was lost meanwhile.
                let Some(reports) = agent.keeping.held_back.remove(&launch) else { return };
                agent.task_has_ended(launch, rank, end);
                reports.into_iter().for_each(|report| agent.on_report(report));
            })
        });
    }

    /// What a task leaves that its keeper does not end. Without a cgroup only the genealogy knows what adopted processes
    /// have left behind, and it knows which processes have left a cgroup.
    fn what_is_left(&mut self, task: TaskId) -> Vec<Name> {
        let strays =
            self.jobs.get(&task.0.job).is_some_and(|it| it.group.is_none() && it.is_adopted());
        let mut left = self.processes.tracker.runaways(task);
        if strays {
            left.extend(self.processes.tracker.members(task).iter().filter_map(name));
        }
        left
    }

    /// A task has ended, and nothing of it is left.
    fn task_has_ended(
        &mut self,
        launch: LaunchId,
        rank: Rank,
        (status, detail, mut usage): (TaskStatus, String, Usage),
    ) {
        let (job, task) = (launch.job, (launch.key(), rank));
        self.tell_policy_of_end(job, rank);
        self.processes.tracker.end_task(task).put_into(&mut usage);
        if launch.is_further() {
            return self.step_task_has_ended(launch, rank, (status, detail, usage));
        }
        if let Some(record) = self.jobs.get_mut(&job) {
            usage.switches = record.switches.load(Ordering::Relaxed);
            record.tasks.end(rank, (status, detail.clone(), usage));
            record.suspended.forget_task(rank);
        }
        self.tell_controller(FromAgent::TaskEnded { launch, rank, status, detail, usage });
    }

    /// Nothing of a job runs here any more. Before the controller hears of it, what the job has left
    /// is removed: beside the loop, since that takes a look at all processes.
    pub(super) fn on_cleared(&mut self, launch: LaunchId, usage: Usage) {
        let id = launch.job;
        if self.launched(launch).is_none() {
            return self.tell_controller(FromAgent::Cleared { launch, usage });
        }
        if self.ends_steps_first(id, usage) {
            return;
        }
        self.switch.remove(id);
        self.end_notices(id);
        let lives = self.processes.tracker.end(StepKey::first(id), &self.poller);
        let owned =
            self.jobs.get_mut(&id).and_then(|job| Some((job.owner?, job.ipc_before.take())));
        let left =
            owned.filter(|(owner, before)| ipc::may_be_left(&lives, *owner, before.as_ref()));
        let Some((owner, before)) = left else { return self.has_cleared(launch, usage) };
        self.keeping.held_back.insert(launch, Vec::new());
        self.processes.beside.start(owner, move || {
            ipc::remove_left(&lives, owner, before.as_ref());
            Box::new(move |agent: &mut Self| {
                // Nothing where the job was lost meanwhile.
                let Some(reports) = agent.keeping.held_back.remove(&launch) else { return };
                agent.has_cleared(launch, usage);
                reports.into_iter().for_each(|report| agent.on_report(report));
            })
        });
    }

    fn has_cleared(&mut self, launch: LaunchId, mut usage: Usage) {
        let mut is_strange = false;
        if let Some(job) = self.launched(launch) {
            let counted = job.tasks.counted();
            if !usage.io_whole {
                (usage.read_bytes, usage.written_bytes, usage.io_whole) =
                    (counted.read_bytes, counted.written_bytes, counted.io_whole);
            }
            usage.switches = job.switches.load(Ordering::Relaxed);
            job.confinement.close();
            job.tasks.clear(&mut usage);
            is_strange = job.strange;
            match job.group.take() {
                Some(group) if matches!(group.is_populated(), Ok(false)) => {
                    self.groups.emptied.push(group);
                }
                group => remove_group(group.as_deref()),
            }
        }
        self.tell_controller(FromAgent::Cleared { launch, usage });
        if is_strange {
            self.on_forget(launch);
            self.groups.released.look_soon(tutti_node::platform::time::monotonic_ns());
        }
    }

    /// Removes groups in which nothing runs any more. It takes the kernel long, and nothing waits
    /// for it: so it is done after the controller heard of the end, or for a later launch.
    pub(super) fn remove_emptied(&mut self) {
        for group in std::mem::take(&mut self.groups.emptied) {
            remove_group(Some(&group));
        }
    }

    /// Parts of what the keeper holds; its welcome comes after all of them.
    fn on_held(&mut self, parts: Vec<HeldJob>) {
        for part in parts {
            let next = match self.keeping.held.last_mut() {
                Some(job) => job.take_in(part),
                None => Some(part),
            };
            self.keeping.held.extend(next);
        }
    }

    /// A keeper that was there before this agent holds jobs to adopt; one that is new has lost all.
    fn on_keeper_welcome(&mut self, incarnation: u64) {
        let held = std::mem::take(&mut self.keeping.held);
        let is_another = self.keeping.keeper_incarnation.replace(incarnation) != Some(incarnation);
        for held in &held {
            self.keeping.unsure.remove(&held.launch);
        }
        for launch in std::mem::take(&mut self.keeping.unsure) {
            if launch.is_further() {
                self.lose_step(launch.key());
            } else if self.launched(launch).is_some() {
                self.lose_job(launch.job);
            }
        }
        let (further, first): (Vec<_>, Vec<_>) =
            held.into_iter().partition(|it| it.launch.is_further());
        let until = self.groups.released.until();
        if until > JobId(0) {
            self.tell_keeper(&ToKeeper::Release { until });
        }
        for job in first {
            let id = job.launch.job;
            self.adopt(job);
            if id <= until {
                self.release(id);
            }
        }
        further.into_iter().for_each(|step| self.adopt_step(step));
        self.leases.former = Former::Known;
        self.remove_strange_groups();
        if is_another {
            self.tell_controller(FromAgent::Keeper(incarnation));
        }
        if self.has_joined() {
            for launch in self.all_launches() {
                self.tell_keeper(&ToKeeper::SendExchanges { launch });
            }
        }
        if !self.tree.has_parent() {
            self.connect();
        }
    }

    fn adopt(&mut self, mut held: HeldJob) {
        let launch = held.launch;
        if self.jobs.contains_key(&launch.job) {
            return;
        }
        let group = held.cgroup.take().and_then(|path| {
            let path = PathBuf::from(std::ffi::OsString::from_vec(path.into_vec()));
            Cgroup::open(&path).ok().map(Arc::new)
        });
        if let Some(group) = &group
            && let Err(error) = group.restore_limits()
        {
            warn!(code = %Code::System, "job {} has less memory than it may: {error}", launch.job);
        }
        let processors = group.as_ref().and_then(|group| group.processors());
        let minders = held.roots.iter().filter(|_| group.is_none() && held.adopted.is_empty());
        let minders = minders.filter_map(|&(rank, root)| Some((rank, self.minder_named(root)?)));
        let minders: BTreeMap<Rank, Name> = minders.collect();
        let tasks = Tasks::held(&mut held);
        let mut job = Job {
            launch,
            control: held.control,
            owner: None,
            ipc_before: None,
            step: group.as_ref().map(|group| layout::step_of(group.path())).unwrap_or_default(),
            group,
            confinement: Confinement::of_before(processors),
            minders,
            adopted: held.adopted,
            suspended: Suspended::of_before(held.stopped, tasks.ranks()),
            tasks,
            switches: Arc::default(),
            clearing: None,
            findings: Findings::of_before(held.has_image),
            strange: false,
        };
        if !job.tasks.are_cleared() {
            job.check_control(launch.job);
            let gate = super::devices::gate_again(launch.job, job.group.as_deref());
            self.allow_notices(&job, (held.vacate, gate.is_some()));
            if self.leases.former == Former::Suspended && grip(&job).is_by_signals() {
                // The switch thread suspends them in its own way.
                if let Some(group) = &job.group {
                    group.calm();
                    let _ = group.request_thaw();
                }
            }
            self.groups.awaited.adopt(launch.job, job.group.as_deref());
            self.switch.gate(launch.job, gate);
            job.switches = self.switch.adopt(launch, grip(&job), job.suspended.processes());
            // Those that it holds have begun; it reports those to come before long.
            self.processes.tracker.begin(StepKey::first(launch.job), [], &self.poller, EVENTS);
        } else {
            remove_group(job.group.as_deref());
        }
        let (roots, has_stopped) = (job.tasks.roots().clone(), job.suspended.has_parts());
        self.jobs.insert(launch.job, job);
        if has_stopped {
            self.tell_of_stopped(launch.job);
        }
        for (rank, root) in roots {
            self.track(launch.job, rank, root, Begun::Before);
        }
    }

    /// Groups of an earlier agent that died between making a group and launching into it.
    fn remove_strange_groups(&self) {
        let known: BTreeSet<String> = self.jobs.keys().map(layout::group_of_job).collect();
        for (name, group) in self.job_groups() {
            if !known.contains(&name) {
                remove_group(Some(&group));
            }
        }
    }

    /// The groups of all jobs, known or not, but for released ones.
    pub(super) fn job_groups(&self) -> Vec<(String, Cgroup)> {
        let Some(hierarchy) = &self.groups.hierarchy else { return Vec::new() };
        let mut names = hierarchy.children().unwrap_or_default();
        let until = self.groups.released.until();
        names.retain(|name| layout::is_of_a_job(name) && !layout::is_released(name, until));
        let open = |name: String| {
            let group = Cgroup::open(&hierarchy.path().join(&name)).ok()?;
            Some((name, group))
        };
        names.into_iter().filter_map(open).collect()
    }

    pub(super) fn lose_keeper(&mut self) {
        self.keeping.keeper_process = None;
        self.keeping.held.clear();
        if self.service.stopping {
            self.keeping.keeper = None;
            return;
        }
        warn!(code = %Code::PartEnded, "lost the keeper; waiting for it to come back");
        for (query, _) in std::mem::take(&mut self.keeping.asked_for_life) {
            let answer = Answer::Failed("the keeper has ended".into());
            self.tell_controller(FromAgent::Answer { query, answer });
        }
        self.keeping.keeper = None;
        self.retry_soon();
    }

    /// The tasks of a job went with their keeper.
    pub(super) fn lose_job(&mut self, id: JobId) {
        self.lose_steps(id);
        self.switch.remove(id);
        self.end_notices(id);
        self.processes.tracker.end(StepKey::first(id), &self.poller);
        let Some(job) = self.jobs.get_mut(&id) else { return };
        self.keeping.held_back.remove(&job.launch);
        job.confinement.close();
        let group = job.group.take();
        if id > self.groups.released.until() {
            remove_group(group.as_deref());
        }
        job.tasks.lose();
        let (launch, strange) = (job.launch, job.strange);
        self.report_again(id);
        if strange {
            // No other message will say that it is to be forgotten.
            self.on_forget(launch);
        }
    }
}
