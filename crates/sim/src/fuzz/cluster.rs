//! A pretended cluster around the core: it carries out actions, keeps the timetables that nodes
//! were sent, and adds up by itself, slot by slot, which job ran for how long. After every event it
//! checks the core, and what the core told of itself. What is wrong panics, as tests do.
#![allow(clippy::unwrap_used, reason = "a check that fails panics")]

mod actions;
mod steps;

use super::images::Images;
use super::swaps::Swaps;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use tutti_core::{Action, Core, Event, JobState, JobView, Order, Part, SubmitOptions, check};
use tutti_types::{
    ClassName, ClassSpec, ClusterTime, EndReason, GroupId, IfAbsent, JobId, JobSpec, LaunchId,
    Nanos, NodeId, NodeSpec, NodeWish, OnBadExit, OnNodeLoss, Outcome, Params, ProcessorSet,
    QueueName, Rank, Refusal, RequestId, RowId, StepKey, TaskStatus, Timetable, UserId,
    default_classes,
};

/// A job of one processor a task, with nothing special.
#[must_use]
pub fn job(tasks: u32) -> JobSpec {
    JobSpec {
        owner: UserId(1000),
        group: GroupId(100),
        class: ClassName::new("production"),
        tasks,
        processors_per_task: Some(1),
        memory_per_task_bytes: None,
        time_limit: None,
        grace: Nanos::from_secs(1),
        attached: false,
        movable: false,
        weights: None,
        resources: Vec::new(),
        deadline: None,
        nodes: NodeWish::default(),
        on_node_loss: OnNodeLoss::default(),
        on_bad_exit: OnBadExit::KillOnSignal,
    }
}

/// A node of so many processors, and so much memory in bytes.
#[must_use]
pub fn node_spec(processors: u32, memory_bytes: u64) -> NodeSpec {
    NodeSpec { name: "n".into(), processors: ProcessorSet::first(processors), memory_bytes }
}

/// What the nodes hold of one job.
#[derive(Clone, Debug, Default)]
pub struct Held {
    /// Tasks that run, by node; a node with none left waits to be cleared.
    pub tasks: BTreeMap<NodeId, BTreeSet<Rank>>,
    /// Nodes that were told to kill it.
    pub killed: BTreeSet<NodeId>,
    /// On how many nodes it was launched.
    pub nodes: usize,
}

/// See the module.
#[derive(Debug)]
pub struct Cluster {
    /// The core that decides.
    pub core: Core,
    /// In nanoseconds.
    pub now: u64,
    /// When the core wants to be woken.
    pub wake: ClusterTime,
    /// Timetables by node: the one in effect and those that wait to activate.
    pub timetables: BTreeMap<NodeId, VecDeque<Timetable>>,
    /// What nodes hold of the jobs that were launched.
    pub held: BTreeMap<JobId, Held>,
    /// How jobs ended.
    pub outcomes: BTreeMap<JobId, Outcome>,
    /// Why requests were refused, in their order.
    pub refusals: Vec<Refusal>,
    /// The jobs that were accepted, in their order.
    pub accepted: Vec<JobId>,
    /// The time that each job ran, by our own reckoning, in nanoseconds.
    pub service: BTreeMap<JobId, u64>,
    /// The jobs that take turns in each row.
    homes: BTreeMap<RowId, BTreeSet<JobId>>,
    /// When each row last had its turn.
    pub last_turn: BTreeMap<RowId, u64>,
    /// The longest that a row waited for its turn, in nanoseconds.
    pub longest_wait: u64,
    /// What is to be said of jobs that leave and come.
    pub moves: Vec<Event>,
    /// Memory that nodes move.
    pub(super) swaps: Swaps,
    /// Images that nodes have.
    pub(super) images: Images,
    /// Since when each job has had its processors.
    since: BTreeMap<JobId, u64>,
    /// In whose slots each job runs, as far as we were told.
    runs: BTreeMap<JobId, Vec<RowId>>,
    /// How often jobs were in line again.
    pub requeued: BTreeMap<JobId, u32>,
    /// How often that was asked for.
    pub(super) requeue_orders: BTreeMap<JobId, u32>,
    /// How often all jobs were rolled out.
    pub roll_outs: u32,
    /// Whether jobs were given other classes by request.
    has_reclassed: bool,
    /// Whether a job was asked for that is asked to vacate.
    has_vacating: bool,
    /// By how much changes took effect later for jobs that are asked to vacate, in all, in
    /// nanoseconds. Nodes run others in place of an ended job at once, and the ledger counts that
    /// from the change on, so it may be off by so much.
    put_off_ns: u64,
    /// The latest launch of each job that was launched again, in whole or in part.
    launches: BTreeMap<JobId, u32>,
    /// When ranks that start again have their first turn at the earliest, in nanoseconds: the
    /// others go on meanwhile.
    joins: BTreeMap<(JobId, NodeId), u64>,
    /// Everything the core ever asked for.
    pub log: Vec<Action>,
    /// What nodes hold of further steps.
    pub steps: BTreeMap<StepKey, BTreeMap<NodeId, BTreeSet<Rank>>>,
    /// What nodes are to kill of further steps.
    step_kills: Vec<(StepKey, NodeId)>,
    /// The jobs that elements of arrays became, by array and position.
    pub elements: BTreeMap<(JobId, u32), JobId>,
    /// How further steps ended.
    pub step_outcomes: BTreeMap<StepKey, Outcome>,
    /// Jobs of an earlier controller had numbers up to this.
    spent: u64,
    requests: u64,
}

impl Cluster {
    /// A cluster without nodes.
    #[must_use]
    pub fn new(params: Params) -> Self {
        Self {
            core: Core::new(params, default_classes()),
            now: 0,
            wake: ClusterTime::NEVER,
            timetables: BTreeMap::new(),
            held: BTreeMap::new(),
            outcomes: BTreeMap::new(),
            refusals: Vec::new(),
            accepted: Vec::new(),
            service: BTreeMap::new(),
            homes: BTreeMap::new(),
            last_turn: BTreeMap::new(),
            longest_wait: 0,
            moves: Vec::new(),
            swaps: Swaps::default(),
            images: Images::default(),
            since: BTreeMap::new(),
            runs: BTreeMap::new(),
            requeued: BTreeMap::new(),
            requeue_orders: BTreeMap::new(),
            roll_outs: 0,
            has_reclassed: false,
            has_vacating: false,
            put_off_ns: 0,
            launches: BTreeMap::new(),
            joins: BTreeMap::new(),
            log: Vec::new(),
            steps: BTreeMap::new(),
            step_kills: Vec::new(),
            elements: BTreeMap::new(),
            step_outcomes: BTreeMap::new(),
            spent: 0,
            requests: 0,
        }
    }

    /// A cluster with nodes 0, 1, ... of so many processors and 1000 bytes each.
    #[must_use]
    pub fn with_nodes(widths: &[u32]) -> Self {
        let mut cluster = Self::new(Params::default());
        for (node, &width) in (0..).zip(widths) {
            cluster.join(node, width);
        }
        cluster
    }

    /// A node joins, with so many processors and 1000 bytes.
    pub fn join(&mut self, node: u32, width: u32) {
        self.event(Event::NodeJoined { node: NodeId(node), spec: node_spec(width, 1000) });
    }

    /// A node is lost, with all that it holds.
    pub fn lose(&mut self, node: u32) {
        self.lose_by(node, Event::NodeLost { node: NodeId(node) });
    }

    /// A node is taken out, with all that it holds.
    pub fn remove(&mut self, node: u32) {
        self.lose_by(node, Event::NodeRemoved { node: NodeId(node) });
    }

    fn lose_by(&mut self, node: u32, event: Event) {
        self.timetables.remove(&NodeId(node));
        self.steps.values_mut().for_each(|nodes| drop(nodes.remove(&NodeId(node))));
        let mut victims = Vec::new();
        for (&job, held) in &mut self.held {
            if held.tasks.remove(&NodeId(node)).is_some() {
                victims.push(job);
            }
        }
        self.event(event);
        for job in victims {
            let view = self.core.job(job, ClusterTime(self.now));
            let goes_on = |view: &JobView<'_>| {
                matches!(
                    view.spec.on_node_loss,
                    OnNodeLoss::Notify { .. } | OnNodeLoss::Respawn { .. }
                )
                    || matches!(view.state, JobState::Queued { .. })
                    // Nothing of it was left elsewhere, and it began again at once.
                    || self.requeued.contains_key(&job)
            };
            let ends = view
                .is_none_or(|view| matches!(view.state, JobState::Ending { .. }) || goes_on(&view));
            assert!(ends, "job {job} goes on without node {node}");
        }
    }

    /// A node holds a job of an earlier controller.
    pub fn hold(&mut self, job: u64) {
        self.spent = self.spent.max(job);
        self.event(Event::Held { job: JobId(job) });
    }

    /// The machine with the journal has lost its power: all nodes are out of reach at first.
    pub fn forget(&mut self, job: u64) {
        self.spent = self.spent.max(job);
        self.event(Event::Forgot { job: JobId(job) });
        self.event(Event::Began);
    }

    /// Submits and gives the number, if it was accepted.
    pub fn try_submit(&mut self, spec: JobSpec) -> Option<JobId> {
        self.submits(|request| Event::Submit { request, spec })
    }

    /// Asks for a job by an event with this request, and gives its number if it was accepted.
    pub fn submits(&mut self, event: impl FnOnce(RequestId) -> Event) -> Option<JobId> {
        self.requests += 1;
        let before = self.accepted.len();
        self.event(event(RequestId(self.requests)));
        self.accepted.get(before).copied()
    }

    /// Submits to a queue and gives the number, if it was accepted.
    pub fn try_submit_to(&mut self, queue: QueueName, spec: JobSpec) -> Option<JobId> {
        let options = SubmitOptions { queue: Some(queue), ..SubmitOptions::default() };
        self.submits(|request| Event::submit(request, spec, options))
    }

    /// Submits what must be accepted.
    pub fn submit(&mut self, spec: JobSpec) -> JobId {
        self.try_submit(spec).expect("accepted")
    }

    /// A user ends a job.
    pub fn cancel(&mut self, job: JobId, at_once: bool) {
        self.event(Event::Cancel { job, reason: EndReason::Cancelled, at_once });
    }

    /// The owner of a job has it wait in line again.
    pub fn requeue(&mut self, job: JobId, hold: bool) {
        *self.requeue_orders.entry(job).or_default() += 1;
        let reason = EndReason::Requeued { hold };
        self.event(Event::Cancel { job, reason, at_once: false });
    }

    /// One task ends.
    pub fn end_task(&mut self, job: JobId, rank: u32, status: TaskStatus) {
        let rank = Rank(rank);
        for tasks in self.held.get_mut(&job).into_iter().flat_map(|held| held.tasks.values_mut()) {
            tasks.remove(&rank);
        }
        self.event(Event::TasksEnded { job, ranks: vec![rank], status });
    }

    /// All tasks that still run end like this.
    pub fn end_tasks(&mut self, job: JobId, status: TaskStatus) {
        let held = self.held.get(&job).cloned().unwrap_or_default();
        for rank in held.tasks.values().flatten() {
            self.end_task(job, rank.0, status);
        }
    }

    /// Every node without tasks of the job reports so.
    pub fn clear(&mut self, job: JobId) {
        let held = self.held.get(&job).cloned().unwrap_or_default();
        let is_held = self.core.parts(job).iter().any(Part::is_held);
        for (node, tasks) in held.tasks {
            if tasks.is_empty() && (!is_held || held.killed.contains(&node)) {
                self.clear_node(job, node);
            }
        }
    }

    /// A node that still has something of the job gets rid of it and reports so.
    fn clear_node(&mut self, job: JobId, node: NodeId) {
        // A node ends what it has of steps first, and those that are started there meanwhile.
        let has = |(key, nodes): &(&StepKey, &BTreeMap<NodeId, BTreeSet<Rank>>)| {
            key.job == job && nodes.contains_key(&node)
        };
        while let Some(key) = self.steps.iter().find(has).map(|(key, _)| *key) {
            self.clear_step(key, node, TaskStatus::Signaled(9));
        }
        let had = self.held.get_mut(&job).and_then(|held| held.tasks.remove(&node));
        if had.is_some() {
            self.event(Event::JobCleared { job, nodes: vec![node] });
        }
    }

    /// All tasks that still run end like this, and nothing of the job is left: in one.
    pub fn end_job(&mut self, job: JobId, status: TaskStatus) {
        self.steps.retain(|key, _| key.job != job);
        if let Some(held) = self.held.get_mut(&job) {
            held.tasks.clear();
            held.killed.clear();
        }
        self.event(Event::JobsEnded { jobs: vec![job], status });
    }

    /// A job ends well, and is cleared everywhere.
    pub fn finish(&mut self, job: JobId) -> Outcome {
        self.end_tasks(job, TaskStatus::Exited(0));
        self.clear(job);
        self.outcomes[&job]
    }

    /// The first of these jobs that runs.
    #[must_use]
    pub fn first_running(&self, jobs: &[JobId]) -> Option<JobId> {
        let runs = |job: &JobId| {
            let view = self.core.job(*job, ClusterTime(self.now));
            view.is_some_and(|view| matches!(view.state, JobState::Running { .. }))
        };
        jobs.iter().copied().find(runs)
    }

    /// The nodes do what they were told to kill.
    pub fn deliver_kills(&mut self) {
        for (key, node) in std::mem::take(&mut self.step_kills) {
            self.clear_step(key, node, TaskStatus::Signaled(9));
        }
        for (job, held) in self.held.clone() {
            for node in held.killed {
                for rank in held.tasks.get(&node).into_iter().flatten() {
                    self.end_task(job, rank.0, TaskStatus::Signaled(9));
                }
                self.clear_node(job, node);
                if let Some(held) = self.held.get_mut(&job) {
                    held.killed.remove(&node);
                }
            }
        }
    }

    /// Time passes, with ticks when the core asked for them.
    pub fn advance(&mut self, nanos: u64) {
        let target = self.now + nanos;
        while self.wake.0 <= target {
            self.pass(self.wake.0.max(self.now));
            self.event(Event::Tick);
        }
        self.pass(target);
    }

    /// Time passes.
    pub fn advance_ms(&mut self, millis: u64) {
        self.advance(millis * 1_000_000);
    }

    /// Something happens: the core gets it, does what it must, and is checked.
    pub fn event(&mut self, event: Event) {
        if event == Event::Tick {
            self.wake = ClusterTime::NEVER;
        }
        self.foresee_image(&event);
        let mut actions = Vec::new();
        self.core.apply(ClusterTime(self.now), &event, &mut actions);
        for action in &actions {
            self.carry_out(action);
        }
        self.log.extend(actions);
        let mut violations = check::check(&self.core);
        self.has_reclassed |= matches!(event, Event::SetJobClass { .. });
        self.has_vacating |= matches!(
            &event,
            Event::SubmitWith { options, .. } | Event::SubmitArray { options, .. }
                if options.vacate.is_some()
        );
        violations.retain(|it| !(self.has_reclassed && it.rule == check::Rule::KeptRows));
        assert!(violations.is_empty(), "after {event:?}: {violations:#?}");
        let latest = self.timetables.values().filter_map(|sent| sent.back());
        let late = latest.map(|sent| sent.activates.0.saturating_sub(self.now));
        // Nodes know of ends by themselves, so some changes need no timetable.
        let counted = self.core.counts_from().0.saturating_sub(self.now);
        if self.has_vacating {
            self.put_off_ns += late.max().unwrap_or(0).max(counted);
        }
        self.compare_timetables(&event);
        self.compare_views();
        self.check_steps();
        self.check_swaps();
        self.check_images();
        (0..4).for_each(|salt| self.imagine_absences(salt));
        self.note_rows();
    }

    /// What was sent last is what the core would send now: no change was kept from anybody.
    fn compare_timetables(&self, event: &Event) {
        for (&node, sent) in &self.timetables {
            let due = self.core.timetable(node).expect("only nodes that are up have timetables");
            assert_eq!(sent.back(), Some(&due), "node {node} after {event:?}");
            assert!(due.epoch <= due.activates);
        }
    }

    /// A job that is not said to have moved runs in the rows where it ran, and got what our own
    /// reckoning says.
    fn compare_views(&mut self) {
        for &job in &self.core.moved().jobs {
            self.runs.insert(job, self.core.runs_in(job).to_vec());
        }
        self.runs.retain(|&job, _| self.core.job(job, ClusterTime(self.now)).is_some());
        let now = ClusterTime(self.now);
        for view in self.core.jobs(now) {
            let known = self.runs.get(&view.id).map_or(&[][..], |rows| rows);
            assert_eq!(self.core.runs_in(view.id), known, "job {} moved", view.id);
            if self.core.params().lead() == Nanos::ZERO {
                let ours = self.service.get(&view.id).copied().unwrap_or(0);
                self.compare_service(view.id, self.core.service(view.id), ours);
            }
        }
    }

    /// What the core counts for a job is what ran, but for what was put off.
    fn compare_service(&self, job: JobId, counted: Nanos, ours: u64) {
        let off = counted.0.abs_diff(ours);
        assert!(off <= self.put_off_ns, "service of job {job}: {counted:?}, and {ours} ns ran");
    }

    /// Whichever nodes may be absent, on all nodes alike: no processor has two jobs, and gangs run
    /// whole.
    fn imagine_absences(&self, salt: u64) {
        let present =
            |launch: LaunchId| (launch.job.0 ^ salt).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 63 == 1;
        let newest: BTreeMap<NodeId, &Timetable> =
            self.timetables.iter().filter_map(|(&node, sent)| Some((node, sent.back()?))).collect();
        for slot in 0..self.core.frame().slots.len() {
            let mut ran: BTreeMap<JobId, BTreeSet<NodeId>> = BTreeMap::new();
            for (&node, timetable) in &newest {
                let mut running = Vec::new();
                timetable.running(slot, present, &mut running);
                let mut taken = ProcessorSet::new();
                for candidate in &timetable.slots[slot].candidates {
                    if running.contains(&candidate.launch) {
                        assert!(!taken.overlaps(&candidate.processors), "node {node}");
                        taken.union_with(&candidate.processors);
                        ran.entry(candidate.launch.job).or_default().insert(node);
                    }
                }
            }
            for (job, nodes) in ran {
                assert_eq!(nodes, self.placed_on(job), "job {job} would run by halves");
            }
        }
    }

    /// The nodes where a job has a place in the matrix (a node that was lost has none).
    fn placed_on(&self, job: JobId) -> BTreeSet<NodeId> {
        let nodes = self.core.nodes().filter(|view| view.jobs.contains(&job));
        nodes.map(|view| view.id).collect()
    }

    /// A policy outside orders something. What can't be done changes nothing, and a start that can
    /// be done is one.
    pub fn order(&mut self, order: Order) {
        let may = self.core.check_order(&order);
        let (job, ended) = (order.job(), self.outcomes.len());
        let (starts, declines) =
            (matches!(order, Order::Start { .. }), matches!(order, Order::Decline { .. }));
        self.event(Event::PolicyOrder { order });
        if may.is_ok() && starts {
            let job = job.expect("a start is one of a job");
            assert!(!self.core.parts(job).is_empty(), "job {job} was to start");
        }
        if may.is_ok() && declines {
            assert!(self.outcomes.len() > ended, "job {job:?} was to be declined");
        }
    }

    /// Jobs that are on their way arrive.
    pub fn arrive(&mut self) {
        while !self.moves.is_empty() {
            self.arrive_one(0);
        }
    }

    /// One of them does; no job needs more rows for it but those that begin.
    pub fn arrive_one(&mut self, index: usize) {
        if self.moves.is_empty() {
            return;
        }
        let arrival = self.moves.remove(index % self.moves.len());
        if let Event::MovedIn { job } = arrival {
            self.since.insert(job, self.now);
        }
        // Not slots that are held for classes without jobs.
        let rows = |core: &Core| core.rows().filter(|row| !row.cells.is_empty()).count();
        // A job that has lost all its ranks gets them again when it has arrived, and others start
        // on what one that left had.
        let begins = |core: &Core| {
            let placed = core.jobs(core.now()).filter(|it| !it.placements.is_empty());
            placed.map(|it| 1 + core.respawns(it.id) as usize).sum::<usize>()
        };
        let (before, begun) = (rows(&self.core), begins(&self.core));
        self.event(arrival.clone());
        let (after, new) = (rows(&self.core), begins(&self.core).saturating_sub(begun));
        assert!(after <= before + new, "{arrival:?} makes {after} rows of {before}");
    }

    fn take_timetable(&mut self, node: NodeId, version: u64) {
        let timetable = self.core.timetable(node).expect("only nodes that are up get messages");
        assert_eq!(timetable.version, version);
        let sent = self.timetables.entry(node).or_default();
        assert!(sent.back().is_none_or(|before| before.version < version));
        assert!(sent.back().is_none_or(|before| before.activates <= timetable.activates));
        sent.push_back(timetable);
        self.drop_replaced(node);
    }

    fn drop_replaced(&mut self, node: NodeId) {
        let sent = self.timetables.get_mut(&node).unwrap();
        while sent.get(1).is_some_and(|next| next.activates.0 <= self.now) {
            sent.pop_front();
        }
    }

    /// Steps from switch to switch up to `target`, noting which jobs run.
    pub fn pass(&mut self, target: u64) {
        while self.now < target {
            let nodes: Vec<NodeId> = self.timetables.keys().copied().collect();
            nodes.iter().for_each(|&node| self.drop_replaced(node));
            let mut until = target;
            let mut ran: BTreeMap<JobId, BTreeSet<NodeId>> = BTreeMap::new();
            let mut gifts: BTreeSet<JobId> = BTreeSet::new();
            let mut turn = None;
            for sent in self.timetables.values() {
                if let Some(next) = sent.get(1) {
                    until = until.min(next.activates.0);
                }
            }
            for (&node, sent) in &self.timetables {
                let timetable = &sent[0];
                let now = ClusterTime(self.now);
                if timetable.activates > now {
                    until = until.min(timetable.activates.0);
                    continue;
                }
                let Some(position) = timetable.position(now) else { continue };
                until = until.min(position.ends.0);
                let row = timetable.slots[position.slot].row;
                assert_eq!(*turn.get_or_insert(row), row, "nodes differ in whose turn it is");
                let mut running = Vec::new();
                let present =
                    |launch| self.is_launched(launch, node) && self.present(launch.job, node);
                timetable.running(position.slot, present, &mut running);
                let slot = &timetable.slots[position.slot];
                slot.candidates.iter().filter(|it| running.contains(&it.launch)).for_each(|it| {
                    self.judge_steps((it.launch.job, node), &it.processors);
                });
                // The core counts nothing of what the node chooses.
                let chosen = slot.candidates.len().saturating_sub(slot.local as usize);
                let chosen = slot.candidates[chosen..].iter().map(|it| it.launch.job);
                gifts.extend(chosen);
                for launch in running {
                    ran.entry(launch.job).or_default().insert(node);
                }
            }
            self.judge(&ran);
            self.note_turn(turn, until);
            for job in ran.keys().filter(|job| !gifts.contains(job)) {
                *self.service.entry(*job).or_default() += until - self.now;
            }
            // By the timetables in force: those that name it no more may have yet to activate.
            let is_named = |job: JobId| {
                let slots = self.timetables.values().flat_map(|sent| &sent[0].slots);
                slots.flat_map(|slot| &slot.candidates).any(|it| it.launch.job == job)
            };
            let lends = |job: &&JobId| self.core.lends_all(**job) && !is_named(**job);
            for job in self.held.keys().filter(lends) {
                assert!(!ran.contains_key(job), "job {job} runs on what it lends");
                *self.service.entry(*job).or_default() += until - self.now;
            }
            self.now = until;
        }
    }

    /// Whether that is the latest launch of its job on a node.
    fn is_launched(&self, launch: LaunchId, node: NodeId) -> bool {
        self.core.launch_on(launch.job, node) == launch
    }

    fn present(&self, job: JobId, node: NodeId) -> bool {
        let tasks = self.held.get(&job).and_then(|held| held.tasks.get(&node));
        let is_held = || self.core.parts(job).iter().any(|it| it.node == node && it.is_held());
        tasks.is_some_and(|tasks| !tasks.is_empty() || is_held())
    }

    /// Steps of a job that runs have processors that no other job runs on.
    fn judge_steps(&self, (job, node): (JobId, NodeId), processors: &ProcessorSet) {
        for (key, nodes) in self.steps.iter().filter(|(key, _)| key.job == job) {
            let part = self.core.step_parts(*key).iter().find(|part| part.node == node);
            let (Some(ranks), Some(part)) = (nodes.get(&node), part) else { continue };
            for task in part.placements().iter().filter(|task| ranks.contains(&task.rank)) {
                let has = task.processors.is_subset(processors);
                assert!(has, "{key:?} runs on {}, and its job on {processors}", task.processors);
            }
        }
    }

    /// Gangs run whole: wherever they are present, or nowhere.
    fn judge(&self, ran: &BTreeMap<JobId, BTreeSet<NodeId>>) {
        for (job, nodes) in ran {
            let present =
                self.held[job].tasks.keys().copied().filter(|&node| self.present(*job, node));
            let joins = |node| self.joins.get(&(*job, node)).is_some_and(|at| self.now < *at);
            let present = present.filter(|&node| !joins(node));
            assert_eq!(*nodes, present.collect(), "job {job} runs by halves");
        }
    }

    /// A row that leaves the frame and comes back begins to wait anew, also if it does both at once:
    /// then no job that took turns there still does.
    fn note_rows(&mut self) {
        let mut homes: BTreeMap<RowId, BTreeSet<JobId>> = BTreeMap::new();
        let takes_turns = |job: &JobView<'_>| !job.suspended && !self.core.lends_all(job.id);
        for job in self.core.jobs(ClusterTime(self.now)).filter(takes_turns) {
            if let Some(row) = job.row {
                homes.entry(row).or_default().insert(job.id);
            }
        }
        let before = std::mem::replace(&mut self.homes, homes);
        let rows: BTreeSet<RowId> = self.core.frame().slots.iter().map(|slot| slot.row).collect();
        let stays = |row: &RowId| {
            let (before, now) = (before.get(row), self.homes.get(row));
            before.zip(now).is_some_and(|(before, now)| !before.is_disjoint(now))
        };
        self.last_turn.retain(|row, _| rows.contains(row) && stays(row));
        for row in rows {
            self.last_turn.entry(row).or_insert(self.now);
        }
    }

    fn note_turn(&mut self, turn: Option<RowId>, until: u64) {
        if let Some(last) = turn.and_then(|row| self.last_turn.get_mut(&row)) {
            self.longest_wait = self.longest_wait.max(self.now.saturating_sub(*last));
            *last = until;
        }
    }

    /// Ends everything, and makes sure that nothing is left.
    pub fn drain(&mut self) {
        for array in self.core.arrays().map(|view| view.id).collect::<Vec<JobId>>() {
            self.cancel(array, true);
        }
        self.event(Event::RollIn);
        for _ in 0..4 {
            self.arrive();
            self.answer_swaps();
            let jobs: Vec<JobId> =
                self.core.jobs(ClusterTime(self.now)).map(|view| view.id).collect();
            for job in jobs {
                self.cancel(job, true);
                self.deliver_kills();
                self.end_tasks(job, TaskStatus::Signaled(9));
                self.clear(job);
            }
        }
        assert_eq!(self.core.job_count(), 0);
        assert_eq!(self.core.frame().slots, []);
        assert!(self.held.is_empty(), "{:?}", self.held);
        assert_eq!(self.core.rows().count(), 0);
        for node in self.core.nodes() {
            assert!(node.used.is_empty() && node.admitted_bytes == 0 && node.jobs.is_empty());
        }
        self.advance_ms(5);
        assert_eq!(self.wake, ClusterTime::NEVER);
        let ended: Vec<&JobId> = self.outcomes.keys().collect();
        assert_eq!(ended, self.accepted.iter().collect::<Vec<_>>(), "all accepted were reported");
    }
}

/// Sets parameters by name.
#[must_use]
pub fn params(values: &[(&str, u64)]) -> Params {
    let mut params = Params::default();
    for (name, value) in values {
        params.set(name, *value).unwrap();
    }
    params
}

/// The rules of a class with a share.
#[must_use]
pub fn shared(share: u32, empty: IfAbsent) -> ClassSpec {
    let spec = ClassSpec::default().with("share", u64::from(share)).unwrap();
    spec.with("empty", u64::from(empty == IfAbsent::Down)).unwrap()
}
