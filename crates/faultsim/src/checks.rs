//! What must always hold in a simulated world (the numbers are those of the promises,
//! `docs/internals/invariants.md`), and what must hold when all has come to an end.

use super::engine::{HEAD, World};
use std::collections::{BTreeMap, BTreeSet};
use tutti_controller as controller;
use tutti_core::{JobState, JobView, check};
use tutti_keeper as keeper;
use tutti_node::simulated::machine::{Daemon, Ran, at, machine, root_group};
use tutti_node::simulated::process::Process;
use tutti_types::{JobId, LaunchId, NoRespawn, OnNodeLoss, Rank};

/// So many rounds of the controller are between two looks at all of its state.
const CORE_LOOKED_AT_EVERY: u64 = 4;

/// The longest lease of the simulated world. So long a node may go by the time of the controller's
/// machine before it lost its power.
const LEASE_MAX_NS: u64 = 20_000_000_000;

/// Clocks here count whole nanoseconds.
const ROUNDING_NS: u64 = 10;

/// A task of a job.
type Task = (JobId, Rank);

/// Which tasks run on all machines, as when each was looked at last: after all that changes which
/// do.
#[derive(Default)]
pub(super) struct Running {
    /// Where each does, and in which launch of its job, if the keeper has said.
    tasks: BTreeMap<Task, (usize, Option<u32>)>,
    /// Those of each machine.
    here: BTreeMap<usize, Vec<Task>>,
}

impl Running {
    /// Takes a task in that runs there; what is wrong with that.
    fn add(
        &mut self,
        (job, rank): Task,
        site: usize,
        (launch, respawns): (Option<u32>, bool),
    ) -> Option<String> {
        if let Some((other, _)) = self.tasks.insert((job, rank), (site, launch)) {
            return Some(format!("rank {rank} of job {job} runs twice, on n{other} and n{site}"));
        }
        if respawns {
            return None;
        }
        // All of those before are of one launch.
        let of_job = self.tasks.range((job, Rank(0))..=(job, Rank(u32::MAX)));
        let mut others = of_job.filter(|(task, _)| task.1 != rank);
        let known = |(task, (on, launch)): (&Task, &(usize, Option<u32>))| {
            launch.map(|launch| (task.1, *on, launch))
        };
        let (other, on, of) = others.find_map(known)?;
        let launch = launch.filter(|launch| *launch != of)?;
        Some(format!(
            "rank {rank} of launch {launch} of job {job} runs on n{site} beside rank {other} of \
             launch {of} on n{on}"
        ))
    }

    /// `now` names the tasks that run there, each with its launch, and whether ranks of its job may
    /// be of several launches.
    fn look_again(&mut self, site: usize, now: Vec<(Task, (Option<u32>, bool))>) -> Vec<String> {
        for task in self.here.remove(&site).unwrap_or_default() {
            self.tasks.remove(&task);
        }
        self.here.insert(site, now.iter().map(|(task, _)| *task).collect());
        now.into_iter().filter_map(|(task, launch)| self.add(task, site, launch)).collect()
    }
}

/// Whether tasks of a job may begin again after they were lost.
const fn begins_again(rule: OnNodeLoss) -> bool {
    matches!(rule, OnNodeLoss::Requeue | OnNodeLoss::Respawn { .. })
}

impl World {
    /// No task runs twice at a time (5): what was queued again begins only where the former can't
    /// go on. Nor does any task of a launch run beside one of another launch of the job, unless
    /// lost ranks of it may be started again.
    pub(super) fn check_running(&mut self, site: usize) {
        let launches = self.keeper(site).map(keeper::Stepped::launches).unwrap_or_default();
        let number = |job: JobId| {
            let launch = launches.iter().find(|launch| launch.job == job);
            launch.map(|launch| launch.number)
        };
        let accepted = &self.users.accepted;
        let respawns = |job: JobId| {
            let plan = accepted.get(&job);
            // A job whose answer its user has not read yet may be one.
            plan.is_none_or(|plan| matches!(plan.on_node_loss, OnNodeLoss::Respawn { .. }))
        };
        let now = machine(site, |machine| {
            let running = machine.processes.values_mut().filter(|process| process.runs());
            let task = |process: &mut Process| {
                process.launch = process.launch.or_else(|| number(process.job));
                ((process.job, process.rank), (process.launch, respawns(process.job)))
            };
            running.map(task).collect()
        });
        let (wrong, now_ns) = (self.running.look_again(site, now), self.now_ns);
        self.wrong.extend(wrong.into_iter().map(|wrong| format!("{wrong}, at {now_ns}")));
    }

    /// That a task has run to its end somewhere is forgotten there only when the job's end is on
    /// disk (5): a controller that did not know of it would begin the job once more. No check asks
    /// of a launch after which there was another, since the job has been queued again; but there is
    /// another only when something may have been lost.
    pub(super) fn check_forgotten(&mut self, site: usize) {
        let Some(keeper) = self.keeper(site) else { return };
        let held = keeper.launches();
        let before = std::mem::take(&mut self.sites[site].held);
        if held == before {
            self.sites[site].held = held;
            return;
        }
        self.check_founded(&held);
        if let Some(controller) = self.controller() {
            let given_up = &self.sites[site].given_up;
            let is_gone = |launch: &&LaunchId| !held.contains(launch) && !given_up.contains(launch);
            let requeues = |job: JobId| {
                let plan = self.users.accepted.get(&job);
                plan.is_none_or(|plan| begins_again(plan.on_node_loss))
            };
            let is_latest =
                |launch: &&LaunchId| self.launches.is_latest(**launch) || !requeues(launch.job);
            let gone = before.iter().filter(is_gone).filter(is_latest);
            let gone = gone.filter(|launch| controller.ended(launch.job).is_some());
            let (disk, now_ns) = (&self.disk, self.now_ns);
            let wrong: Vec<String> = gone
                .filter(|launch| {
                    disk.lacks_the_end_of(launch.job) && self.has_finished(site, **launch)
                })
                .map(|LaunchId { job, .. }| {
                    format!("n{site} forgets job {job} before its end is on disk, at {now_ns}")
                })
                .collect();
            self.wrong.extend(wrong);
        }
        self.sites[site].held = held;
    }

    /// Whether a task of a launch has run to its end by itself on this machine. One that was
    /// forgotten with the power is to be ended, whatever it has done: the client that was told of
    /// its end would not know what that is.
    fn has_finished(&self, site: usize, launch: LaunchId) -> bool {
        let tasks = (launch.job, Rank(0))..=(launch.job, Rank(u32::MAX));
        if self.lapses.is_launch_forgotten(launch) {
            return false;
        }
        let is_of_it = |ran: &Ran| {
            ran.launch.is_none_or(|number| number == launch.number)
                && !self.lapses.is_forgotten(ran.began_ns)
        };
        machine(site, |machine| {
            machine.finished.range(tasks).any(|(_, ran)| ran.iter().any(is_of_it))
        })
    }

    /// A job is launched again only when something of its launch before may have been lost (5).
    fn check_founded(&mut self, held: &[LaunchId]) {
        let now_ns = self.now_ns;
        if self.lapses.is_disk_bad() {
            self.launches.lose(now_ns);
        }
        let lost_ns = self.launches.lost_ns().map(|lost_ns| self.lapses.heard_ns(lost_ns));
        for &launch in held {
            if self.launches.is_unfounded(launch, now_ns, lost_ns) {
                let (number, job) = (launch.number, launch.job);
                self.wrong.push(format!(
                    "launch {number} of job {job} begins at {now_ns}, and nothing was lost of the one before"
                ));
            }
        }
    }

    /// When the switch thread has done its work, only those run that the timetable names (2).
    pub(super) fn check_turn(&mut self, site: usize) {
        if !machine(site, |machine| machine.processes.values().any(Process::runs)) {
            return;
        }
        let Some(agent) = self.agent(site) else { return };
        let (named, here) = at(site, || (agent.named(), agent.launches()));
        // An agent that has just begun has not heard yet what there is.
        let is_stray = |job: JobId| !named.contains(&job) && here.iter().any(|it| it.job == job);
        let stray = machine(site, |machine| {
            let mut running = machine.taking_turns();
            running.find(|process| is_stray(process.job)).map(|process| process.job)
        });
        if let Some(job) = stray {
            let now_ns = self.now_ns;
            self.wrong.push(format!(
                "job {job} runs on n{site} out of turn at {now_ns}: {named:?} of {here:?} may"
            ));
        }
    }

    /// Cluster time is nowhere further off than is said there. A node out of reach has not heard
    /// that the controller's machine has another time now; nothing runs by the former one when the
    /// node's lease is over.
    pub(super) fn check_time(&mut self, site: usize) {
        let known = self.agent(site).filter(|agent| agent.has_joined());
        let (Some(agent), Some(controller)) = (known, self.controller()) else { return };
        // A head that has just begun knows no time itself.
        let head = self.agent(HEAD).filter(|head| head.has_joined());
        let has_heard = head.is_some_and(|head| head.era() == agent.era());
        let is_late = self.now_ns >= self.time_since_ns + LEASE_MAX_NS;
        let goes_by_it = has_heard || is_late && at(site, || agent.holds_lease());
        if !goes_by_it {
            return;
        }
        let Some((time, error_ns)) = at(site, || agent.time()) else { return };
        let true_time = at(HEAD, || controller.now());
        let off_ns = time.0.abs_diff(true_time.0);
        if off_ns > error_ns + ROUNDING_NS {
            let now_ns = self.now_ns;
            self.wrong.push(format!(
                "cluster time is {off_ns} ns off on n{site} at {now_ns}, and {error_ns} ns were said"
            ));
        }
    }

    /// What a node that is lost had there is nothing that anybody counts on.
    pub(super) fn note_given_up(&mut self) {
        let Some(controller) = self.controller() else { return };
        let site = |name: &str| name.strip_prefix('n').and_then(|number| number.parse().ok());
        let lost = controller.core().lost_nodes();
        let lost: BTreeSet<usize> = lost.filter_map(|spec| site(&spec.name)).collect();
        self.launches.note_down(lost.clone(), self.now_ns);
        for site in lost {
            let held = self.keeper(site).map(keeper::Stepped::launches).unwrap_or_default();
            self.sites[site].given_up.extend(held);
        }
    }

    /// The launches that the controller knows of now may not be on disk.
    pub(super) fn note_launches(&mut self) {
        let Some(controller) = self.controller() else { return };
        let now = at(HEAD, || controller.now());
        let launch = |view: JobView<'_>| match view.state {
            JobState::Running { since } | JobState::Ending { since, .. } => {
                let decided_ns = self.now_ns.saturating_sub(now.since(since).0);
                Some((LaunchId { number: view.requeues, ..LaunchId::first(view.id) }, decided_ns))
            }
            JobState::Queued { .. } => None,
        };
        let known = controller.core().jobs(now).filter_map(launch).collect();
        self.lapses.note_launches(known);
    }

    /// What the core decides is as its own checks demand it (2, 7).
    pub(super) fn check_core(&mut self) {
        if !self.rounds.is_multiple_of(CORE_LOOKED_AT_EVERY) {
            return;
        }
        let Some(controller) = self.controller() else { return };
        // To which nothing has happened since, that is the same.
        let until = Some(controller.core().now());
        if self.checked == until {
            return;
        }
        let violations = check::check(controller.core());
        self.checked = until;
        self.wrong.extend(violations.iter().map(|it| format!("{it:?}")));
    }

    /// Whether all has come to an end.
    pub(super) fn is_quiet(&self) -> bool {
        let machines = 0..self.sites.len();
        let is_done = |site: usize| {
            self.agent(site).is_some_and(|agent| agent.has_joined() && agent.launches().is_empty())
                && self.keeper(site).is_some_and(|keeper| keeper.launches().is_empty())
        };
        let is_done_with = |controller: &controller::Stepped| {
            let reached = controller.core().reached_nodes();
            controller.jobs().is_empty() && reached == self.sites.len()
        };
        self.controller().is_some_and(is_done_with)
            && machines.into_iter().all(is_done)
            && !self.users.are_waiting()
    }

    /// What is not quiet, in words.
    pub(super) fn unrest(&self) -> String {
        let mut words = vec![format!(
            "{} s after all is well again:",
            (self.now_ns - self.script.calm_ns) / 1_000_000_000
        )];
        match self.controller() {
            None => words.push("there is no controller".into()),
            Some(controller) => {
                for node in controller.core().nodes().filter(|node| !node.up || node.away) {
                    words.push(format!("{} is not up", node.spec.name));
                }
                for view in controller.core().jobs(controller.now()) {
                    words.push(format!("job {} is {:?}", view.id, view.state));
                }
            }
        }
        for site in 0..self.sites.len() {
            let joined = self.agent(site).map(|agent| (agent.has_joined(), agent.launches()));
            let keeps = self.keeper(site).map(|keeper| keeper.launches());
            let runs = machine(site, |it| {
                it.processes.values().map(|it| (it.job, it.rank, it.runs())).collect::<Vec<_>>()
            });
            words.push(format!("n{site}: agent {joined:?}, keeper {keeps:?}, processes {runs:?}"));
        }
        if self.users.are_waiting() {
            words.push("users wait".into());
        }
        words.join("\n  ")
    }

    /// Nothing is left of anything (4), every job that was accepted has been reported (5).
    pub(super) fn check_end(&mut self) {
        let Some(controller) = self.controller() else { return };
        let mut wrong = Vec::new();
        for (&job, plan) in &self.users.accepted {
            let ends = |rank: u32| {
                let of = |site| machine(site, |it| it.finished.get(&(job, Rank(rank))).cloned());
                let all = (0..self.sites.len()).filter_map(of).flatten();
                // So may be the launch, of which the end is told to a controller that does not know
                // of it.
                let is_forgotten = |ran: &Ran| {
                    let launch =
                        ran.launch.map(|number| LaunchId { number, ..LaunchId::first(job) });
                    launch.is_some_and(|launch| self.lapses.is_launch_forgotten(launch))
                        || self.lapses.is_forgotten(ran.began_ns)
                        || self.lapses.is_forgotten(ran.ended_ns)
                };
                all.filter(|ran| !is_forgotten(ran)).count()
            };
            let twice = (0..plan.launched()).find(|rank| ends(*rank) > 1);
            if let Some(rank) = twice.filter(|_| !begins_again(plan.on_node_loss)) {
                wrong.push(format!("rank {rank} of job {job} has run to its end more than once"));
            }
            match controller.ended(job) {
                None => wrong.push(format!("job {job} was accepted, and nothing is known of it")),
                Some(outcome) if outcome.exit_code == 0 => {
                    let has_run = |rank: u32| {
                        (0..self.sites.len()).any(|site| {
                            machine(site, |it| it.finished.contains_key(&(job, Rank(rank))))
                        })
                    };
                    // A job that is told of lost ranks goes on without them.
                    let may_lack = matches!(
                        plan.on_node_loss,
                        OnNodeLoss::Notify { .. }
                            | OnNodeLoss::Respawn { otherwise: NoRespawn::Notify, .. }
                    );
                    if !may_lack && (plan.code != 0 || !(0..plan.launched()).all(has_run)) {
                        wrong
                            .push(format!("job {job} has not run to its end, and is said to have"));
                    }
                }
                Some(_) => {}
            }
            // Where no process of it is lost, no rank waits in vain.
            let why = controller.why(job).unwrap_or_default();
            if self.script.keeps_processes() && why.contains("MPI barrier") {
                wrong.push(format!("job {job} is ended though none of its ranks was lost: {why}"));
            }
        }
        for site in 0..self.sites.len() {
            machine(site, |machine| {
                machine.groups.retain(|path, _| *path != root_group());
                if !machine.processes.is_empty() || !machine.groups.is_empty() {
                    let (groups, tasks) = (machine.groups.keys(), machine.processes.keys());
                    let left = (groups.collect::<Vec<_>>(), tasks.collect::<Vec<_>>());
                    wrong.push(format!("n{site} has something left: {left:?}"));
                }
                machine.groups.insert(root_group(), std::rc::Rc::default());
            });
        }
        self.wrong.append(&mut wrong);
    }

    /// A controller that takes over at the very end knows what this one knows.
    pub(super) fn check_journal(&mut self) {
        self.crash(HEAD, Daemon::Controller, 1_000_000);
        self.run_until(self.now_ns + 5_000_000_000);
    }
}
