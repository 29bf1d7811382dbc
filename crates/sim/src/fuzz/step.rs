//! What can happen, as steps of a script, and what each does to the cluster.

use super::cluster::{Cluster, job};
use super::script::asked;
use serde::{Deserialize, Serialize};
use std::fmt;
use tutti_core::{
    Begin, CheckpointOrder, DueChange, ElementOrder, Event, HeldBy, Moment, Order, RowChoice,
    SubmitOptions,
};
use tutti_types::param::{Param, Shown};
use tutti_types::{
    After, AfterJobs, AfterUse, AfterWhat, ArraySpec, BankAccount, BankPeriod, Checkpoint,
    ClassName, ClusterTime, Device, DeviceId, EndReason, Figures, FirstStep, Grantee, GroupId,
    IfAbsent, Indices, JobId, JobSpec, LoadAverages, NamedJobs, NamedNodes, Nanos, NetworkFigures,
    NodeId, NodeSetName, Origin, Overrides, Positions, ProcessorSet, ProcessorTime, QueueName,
    Rank, Renewal, ResourceName, ResourceSpec, RowId, StepId, StepKey, TaskStatus, TimedChange,
    UserId, Warning, When, class, params,
};

/// One thing that happens. Numbers of jobs and ranks are places among those that there are, counted
/// round: so a step means something wherever it stands in a script.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Step {
    /// So many nanoseconds pass.
    Pass(u64),
    /// A user asks for a job.
    Submit(#[serde(with = "asked")] Box<JobSpec>),
    /// A task of a job (its place among those that run) ends.
    EndTask(usize, usize, TaskStatus),
    /// All tasks of a job end well, one after the other.
    EndTasks(usize),
    /// A job ends in one.
    EndJob(usize, TaskStatus),
    /// Nodes that have no task of a job any more say so.
    Clear(usize),
    /// Nodes kill what they were told to.
    DeliverKills,
    /// A job that is on its way out of the matrix, or back, arrives.
    Arrive(usize),
    /// A user ends a job: with a grace, or at once.
    Cancel(usize, bool),
    /// A user has a job wait in line again, held if so said.
    Requeue(usize, bool),
    /// A user suspends a job.
    Suspend(usize),
    /// A user resumes it.
    Resume(usize),
    /// A user sends a signal to a rank of a job, or to all.
    Signal(usize, Option<u32>, u8),
    /// The front end of a job is gone.
    FrontEndLost(usize),
    /// A node is out of reach.
    Miss(u32),
    /// A node is lost.
    Lose(u32),
    /// A node joins, with so many processors.
    Join(u32, u32),
    /// An administrator drains a node, or has it take jobs again.
    Drain(u32, bool),
    /// An administrator takes a node out.
    Remove(u32),
    /// A node was measured, and says how busy it is.
    Node(u32, u32, u32),
    /// A parameter gets a value.
    Set(String, u64),
    /// A rule of a class gets a value.
    Rule(usize, String, u64),
    /// A class is to be no more.
    ForgetClass(usize),
    /// Others than our jobs use the first so many processors of a node.
    Foreign(u32, u32),
    /// There are so many of a resource, for so many jobs each; whether preempted jobs give it back.
    Resource(usize, u32, u32, bool),
    /// The agent of a node finds so many devices there.
    Devices(u32, u32),
    /// An administrator names a device of a node, or has there be none of that number.
    Device(u32, u32, bool),
    /// The user of all jobs, or the user's group, may use so many nanoseconds of processor time;
    /// `None`: any.
    Bank(bool, Option<u64>),
    /// One of the users of the jobs, or their group, has a weight; `None`: none of its own.
    Weight(Option<u32>, Option<u32>),
    /// A node holds a job of an earlier controller, of this number.
    Hold(u64),
    /// The machine with the journal loses its power; jobs up to this number may be known to nodes.
    Forget(u64),
    /// A user asks for a job in a queue.
    SubmitTo(usize, #[serde(with = "asked")] Box<JobSpec>),
    /// A limit of a queue gets a value; a queue without it is made.
    Limit(usize, String, u64),
    /// A queue is to be no more.
    ForgetQueue(usize),
    /// Reports of an unknown job and an unknown node.
    Nonsense(u64, u32),
    /// A user asks for a job that is held: by its owner, or by an administrator.
    SubmitHeld(#[serde(with = "asked")] Box<JobSpec>, bool),
    /// A job is held: by its owner, or by an administrator.
    HoldJob(usize, bool),
    /// A job is released: by its owner, or by an administrator.
    Release(usize, bool),
    /// A job gets the class in this place.
    JobClass(usize, usize),
    /// Give a job or an array another time limit, in nanoseconds, or none.
    JobLimit(usize, Option<u64>),
    /// An administrator moves a job before another, or before all.
    MoveJob(usize, Option<usize>),
    /// A class gets a rule by use: so many nanoseconds of a processor, and the class in this place.
    AfterUse(usize, Option<(u64, usize)>),
    /// The account of the user of all jobs, or of the user's group, is renewed each day, or not.
    BankPeriod(bool, bool),
    /// A day begins, which is the one of this number.
    Day(u64),
    /// A user asks for a batch job.
    SubmitBatch(#[serde(with = "asked")] Box<JobSpec>),
    /// A user asks for a job that starts after these: each by its place among those that live, and
    /// what must have become of it. Whether one is enough, and whether it stays when it can't
    /// start.
    SubmitAfter(#[serde(with = "asked")] Box<JobSpec>, Vec<(usize, u64)>, bool, bool),
    /// A job gets a further step: so many tasks, processors for each, and whether they overlap.
    StartStep(usize, u32, u32, bool),
    /// A further step ends: all its tasks, and nothing is left of it.
    EndStep(usize, TaskStatus),
    /// A task of a further step ends.
    EndStepTask(usize, usize, TaskStatus),
    /// A user ends a further step: with a grace, or at once.
    CancelStep(usize, bool),
    /// The front end of a further step is gone.
    StepFrontEndLost(usize),
    /// A user asks for a job that begins after so many nanoseconds at the earliest.
    SubmitLater(#[serde(with = "asked")] Box<JobSpec>, u64),
    /// A user asks for a job that is asked to vacate so many nanoseconds before it loses a turn.
    SubmitVacating(#[serde(with = "asked")] Box<JobSpec>, u64),
    /// A user asks for a job whose memory may leave while it does not run.
    SubmitSwapping(#[serde(with = "asked")] Box<JobSpec>),
    /// A node answers an order about the memory of a job, of which so many percent stay.
    Swapped(usize, u64),
    /// A user asks for a job, or a batch job, that gets a signal so many nanoseconds before its
    /// limit: only its roots, or all.
    SubmitWarned(#[serde(with = "asked")] Box<JobSpec>, u64, bool, bool),
    /// A user asks for a job, or a batch job, that saves its state when it is asked, within so many
    /// nanoseconds: by its shell alone, and now and then by itself.
    SubmitSaver(#[serde(with = "asked")] Box<JobSpec>, u64, bool, bool, bool),
    /// A user asks for a job of one task whose processes are saved to an image, within so many
    /// nanoseconds.
    SubmitImage(#[serde(with = "asked")] Box<JobSpec>, u64),
    /// What becomes of the processes of such a job: 0 saved, 1 not saved, 2 not restored; 3 it is
    /// to start anew; 4 saved, and they go on.
    Saver(usize, u64),
    /// A job is asked to save its state: 0 to go on, else to end; 2 by force, 3 and held.
    Checkpoint(usize, u64),
    /// All jobs are rolled out, within so many nanoseconds.
    RollOut(u64),
    /// They come back.
    RollIn,
    /// The moment of a job is so many nanoseconds after now.
    MoveBegin(usize, u64),
    /// A user asks for an array of so many elements, so many of them at once; whether it is held,
    /// and whether it starts after the job in this place.
    SubmitArray(#[serde(with = "asked")] Box<JobSpec>, u32, Option<u32>, bool, Option<usize>),
    /// An order about the elements of an array from one position to another: 0 and 1 end them, 2
    /// and 3 hold them, 4 and 5 release them.
    Elements(usize, u32, u32, u64),
    /// A user ends, holds or releases an array as a whole, by the same numbers.
    WholeArray(usize, u64),
    /// The program of the site's own policy answers, or does not any more.
    Charge(bool),
    /// It orders a start: of a job (its place among those that live), in a row, on so many
    /// processors of nodes from a first one on; no processors: wherever it fits.
    OrderStart(usize, u64, u32, u32),
    /// It orders something else about a job; the numbers say what, and of which other job.
    Order(usize, u64, usize),
    /// Something is to change so many nanoseconds after now: the number says what, of which node;
    /// and so many nanoseconds before it is looked at how long jobs last.
    Timed(u64, u32, u64, Option<u64>),
    /// The moment of the change in this place has come: for the last time, or not.
    TimedDue(usize, bool),
    /// The moment of the change in this place is so many nanoseconds after now; `None`: it is
    /// forgotten.
    MoveTimed(usize, Option<u64>),
    /// The first task of a batch job only waits, or does so no more.
    Lend(usize, bool),
}

/// The classes that jobs have here; the last is there once it has a rule.
pub(super) const CLASSES: [&str; 5] = ["interactive", "production", "benchmark", "standby", "site"];

/// The resources that jobs ask for here.
const RESOURCES: [&str; 2] = ["barrier", "licence"];

/// The name of all devices.
pub(super) fn device_name() -> ResourceName {
    ResourceName::new("gpu").expect("a name")
}

/// A device; those with an even number are near processor 0.
fn device(number: u32) -> Device {
    let id = DeviceId { name: device_name(), number };
    let near = ProcessorSet::first(if number.is_multiple_of(2) { 1 } else { 0 });
    let files = vec![format!("/dev/gpu{number}")];
    Device { id, files, maker: None, pci: None, numa: None, near }
}

/// The resource in this place.
pub(super) fn resource_name(place: usize) -> ResourceName {
    ResourceName::new(RESOURCES[place % RESOURCES.len()]).expect("a name")
}

/// The group of all jobs here.
const GROUP: BankAccount = BankAccount::Group(GroupId(100));

/// How many users jobs have here.
pub(super) const USERS: u32 = 4;

/// The user of this number: the first is the one of most jobs.
pub(super) fn user_name(number: u32) -> UserId {
    UserId(job(1).owner.0 + number % USERS)
}

/// The queue in this place.
pub(super) fn queue_name(place: usize) -> QueueName {
    QueueName::new(["short", "long"][place % 2])
}

/// The place of the class that keeps rows from the start.
pub(super) const KEEPS_ROWS: usize = 0;

/// The class in this place.
pub(super) fn class_name(place: usize) -> ClassName {
    ClassName::new(CLASSES[place % CLASSES.len()])
}

impl Step {
    #[expect(clippy::too_many_lines, reason = "one arm for each kind of step")]
    pub(super) fn take(&self, cluster: &mut Cluster) {
        match self {
            Self::Pass(nanos) => cluster.advance(*nanos),
            Self::Submit(spec) => drop(cluster.try_submit((**spec).clone())),
            Self::EndTask(job, rank, status) => {
                let job = pick(cluster, *job);
                let held = cluster.held.get(&job).cloned().unwrap_or_default();
                let ranks: Vec<Rank> = held.tasks.into_values().flatten().collect();
                if !ranks.is_empty() {
                    cluster.end_task(job, ranks[rank % ranks.len()].0, *status);
                }
            }
            Self::EndTasks(job) => cluster.end_tasks(pick(cluster, *job), TaskStatus::Exited(0)),
            Self::EndJob(job, status) => cluster.end_job(pick(cluster, *job), *status),
            Self::Clear(job) => cluster.clear(pick(cluster, *job)),
            Self::DeliverKills => cluster.deliver_kills(),
            Self::Arrive(place) => cluster.arrive_one(*place),
            Self::Requeue(job, hold) => cluster.requeue(pick(cluster, *job), *hold),
            Self::Cancel(job, at_once) => cluster.cancel(pick(cluster, *job), *at_once),
            Self::Suspend(job) => cluster.event(Event::Suspend { job: pick(cluster, *job) }),
            Self::Resume(job) => cluster.event(Event::Resume { job: pick(cluster, *job) }),
            Self::Signal(job, rank, signal) => {
                let (job, ranks) = (pick(cluster, *job), rank.iter().copied().map(Rank).collect());
                cluster.event(Event::Signal { job, ranks, signal: *signal });
            }
            Self::FrontEndLost(job) => {
                cluster.event(Event::FrontEndLost { job: pick(cluster, *job) });
            }
            Self::Miss(node) => cluster.event(Event::NodeOutOfReach { node: NodeId(*node) }),
            Self::Lose(node) => cluster.lose(*node),
            Self::Join(node, width) => join(cluster, *node, *width),
            Self::Drain(node, drained) => drain(cluster, NodeId(*node), *drained),
            Self::Remove(node) => cluster.remove(*node),
            Self::Node(node, speed, load) => {
                tell_of_node(cluster, NodeId(*node), *speed, *load);
            }
            Self::Set(name, value) => set(cluster, name, *value),
            Self::Rule(class, name, value) => {
                let class = class_name(*class);
                let spec = cluster.core.classes().get(&class).copied().unwrap_or_default();
                if let Ok(spec) = spec.with(name, *value) {
                    cluster.event(Event::SetClass { class, spec });
                }
            }
            Self::ForgetClass(class) => {
                cluster.event(Event::ForgetClass { class: class_name(*class) });
            }
            Self::Foreign(node, width) => {
                let processors = ProcessorSet::first(*width);
                cluster.event(Event::Foreign { node: NodeId(*node), processors });
            }
            Self::Resource(place, count, jobs_each, lent) => {
                let spec = ResourceSpec { count: *count, jobs_each: *jobs_each, lent: *lent };
                cluster.event(Event::SetResource { name: resource_name(*place), spec });
            }
            Self::Devices(node, count) => {
                let devices = (0..*count).map(device).collect();
                cluster.event(Event::DevicesFound { node: NodeId(*node), devices });
            }
            Self::Device(node, number, is_there) => {
                let device = device(*number);
                let (node, id) = (NodeId(*node), device.id);
                let device = is_there.then_some(device);
                cluster.event(Event::SetDevice { node, id, device });
            }
            Self::Weight(user, weight) => {
                let account = user.map_or(GROUP, |user| BankAccount::User(user_name(user)));
                cluster.event(Event::SetWeight { account, weight: *weight });
            }
            Self::Bank(of_user, ns) => bank(cluster, *of_user, *ns),
            Self::Hold(job) => cluster.hold(*job),
            Self::Forget(job) => cluster.forget(*job),
            Self::SubmitTo(queue, spec) => {
                let _ = cluster.try_submit_to(queue_name(*queue), (**spec).clone());
            }
            Self::Limit(queue, name, value) => limit(cluster, queue_name(*queue), name, *value),
            Self::ForgetQueue(queue) => {
                cluster.event(Event::SetQueue { name: queue_name(*queue), spec: None });
            }
            Self::Nonsense(job, node) => nonsense(cluster, JobId(1000 + job), NodeId(50 + node)),
            Self::SubmitHeld(spec, owner) => {
                let by = held_by(*owner);
                let spec = (**spec).clone();
                let options = SubmitOptions { hold: Some(by), ..SubmitOptions::default() };
                cluster.submits(|request| Event::submit(request, spec, options));
            }
            Self::SubmitBatch(spec) => {
                let spec = (**spec).clone();
                let first = match spec.tasks {
                    tasks if tasks.is_multiple_of(3) => FirstStep::Tasks(tasks / 3),
                    _ => FirstStep::Once,
                };
                let options = SubmitOptions { first, ..SubmitOptions::default() };
                cluster.submits(|request| Event::submit(request, spec, options));
            }
            Self::SubmitAfter(spec, jobs, one, stays) => {
                let spec = (**spec).clone();
                let after = after(cluster, jobs, *one, *stays);
                let options = SubmitOptions { after, ..SubmitOptions::default() };
                cluster.submits(|request| Event::submit(request, spec, options));
            }
            Self::SubmitVacating(spec, ns) => {
                let (spec, vacate) = ((**spec).clone(), Some(Nanos(*ns)));
                let options = SubmitOptions { vacate, ..SubmitOptions::default() };
                cluster.submits(|request| Event::submit(request, spec, options));
            }
            Self::SubmitSwapping(spec) => {
                let no_requeue = spec.tasks.is_multiple_of(3);
                let options = SubmitOptions { swap: true, no_requeue, ..SubmitOptions::default() };
                let spec = JobSpec { movable: false, ..(**spec).clone() };
                cluster.submits(|request| Event::submit(request, spec, options));
            }
            Self::Swapped(place, percent) => cluster.answer_swap(*place, *percent),
            Self::Lend(job, lends) => {
                let job = pick(cluster, *job);
                cluster.event(Event::Lend { job, lends: *lends });
            }
            Self::SubmitLater(spec, ns) => {
                let (spec, at) = ((**spec).clone(), ClusterTime(cluster.now) + Nanos(*ns));
                let begin = Some(Begin { at, unix_ms: 0 });
                let options = SubmitOptions { begin, ..SubmitOptions::default() };
                cluster.submits(|request| Event::submit(request, spec, options));
            }
            Self::SubmitWarned(spec, ns, is_batch, only_shell) => {
                let spec = (**spec).clone();
                let first = if *is_batch { FirstStep::Once } else { FirstStep::EachSlot };
                let (before, only_shell) = (Nanos(*ns), *only_shell);
                let warning = Some(Warning { signal: 12, before, only_shell });
                let options = SubmitOptions { first, warning, ..SubmitOptions::default() };
                cluster.submits(|request| Event::submit(request, spec, options));
            }
            Self::SubmitSaver(spec, ns, is_batch, only_shell, now_and_then) => {
                let spec = (**spec).clone();
                let first = if *is_batch { FirstStep::Once } else { FirstStep::EachSlot };
                let (grace, only_shell) = (Nanos(*ns), *only_shell);
                let every = now_and_then.then_some(Nanos(ns.saturating_mul(3).max(1)));
                let exit_code = now_and_then.then_some(85);
                let checkpoint = Checkpoint { signal: 12, only_shell, grace, exit_code, every };
                let checkpoint = Some(checkpoint);
                let options = SubmitOptions { first, checkpoint, ..SubmitOptions::default() };
                cluster.submits(|request| Event::submit(request, spec, options));
            }
            Self::SubmitImage(spec, ns) => {
                let (signal, grace) = (Checkpoint::IMAGE, Nanos(*ns));
                let (only_shell, exit_code) = (false, None);
                let every = ns.is_multiple_of(3).then_some(Nanos(ns.saturating_mul(3).max(1)));
                let checkpoint = Checkpoint { signal, only_shell, grace, exit_code, every };
                let checkpoint = Some(checkpoint);
                let options = SubmitOptions { checkpoint, ..SubmitOptions::default() };
                let spec = JobSpec { tasks: 1, movable: false, ..(**spec).clone() };
                cluster.submits(|request| Event::submit(request, spec, options));
            }
            Self::Saver(job, what) => cluster.answer_saver(pick(cluster, *job), *what),
            Self::Checkpoint(job, order) => {
                let job = pick(cluster, *job);
                let (force, hold) = (*order == 2, *order == 3);
                let order = match order {
                    0 => CheckpointOrder::GoOn,
                    _ => CheckpointOrder::End { force, hold },
                };
                cluster.event(Event::Checkpoint { job, order });
            }
            Self::RollOut(ns) => {
                cluster.roll_outs += 1;
                cluster.event(Event::RollOut { patience: Nanos(*ns) });
            }
            Self::RollIn => cluster.event(Event::RollIn),
            Self::MoveBegin(job, ns) => {
                let (job, at) = (pick(cluster, *job), ClusterTime(cluster.now) + Nanos(*ns));
                cluster.event(Event::SetBegin { job, at });
            }
            Self::StartStep(job, tasks, each, overlap) => {
                let job = pick(cluster, *job);
                cluster.start_step(job, (*tasks, *each), *overlap);
            }
            Self::EndStep(place, status) => cluster.end_step(*place, *status),
            Self::EndStepTask(place, rank, status) => {
                cluster.end_step_task(*place, *rank, *status);
            }
            Self::CancelStep(place, at_once) => cluster.cancel_step(*place, *at_once),
            Self::StepFrontEndLost(place) => cluster.lose_front_end_of_step(*place),
            Self::SubmitArray(spec, count, limit, held, before) => {
                let hold = held.then_some(HeldBy::Owner);
                let after = before.and_then(|place| match place % 3 {
                    0 => after(cluster, &[(place, 2)], false, false),
                    kind => pick_array(cluster, place).map(|job| {
                        let jobs = vec![After { job, what: AfterWhat::Each }];
                        AfterJobs { jobs, one: false, stays: kind == 1 }
                    }),
                });
                let options = SubmitOptions { hold, after, ..SubmitOptions::default() };
                submit_array(cluster, (**spec).clone(), options, (*count, *limit));
            }
            Self::Elements(array, first, last, order) => {
                let Some(array) = pick_array(cluster, *array) else { return };
                let positions = Positions::of((*first..=*last).collect());
                let order = order_of(*order);
                cluster.event(Event::Elements { array, positions, order });
            }
            Self::WholeArray(array, order) => {
                let Some(job) = pick_array(cluster, *array) else { return };
                cluster.event(match order_of(*order) {
                    ElementOrder::Cancel { reason, at_once } => {
                        Event::Cancel { job, reason, at_once }
                    }
                    ElementOrder::Hold { by } => Event::Hold { job, by },
                    ElementOrder::Release { by } => Event::Release { job, by },
                });
            }
            Self::HoldJob(job, owner) => {
                cluster.event(Event::Hold { job: pick(cluster, *job), by: held_by(*owner) });
            }
            Self::Release(job, owner) => {
                cluster.event(Event::Release { job: pick(cluster, *job), by: held_by(*owner) });
            }
            Self::JobClass(job, class) => {
                let (job, class) = (pick(cluster, *job), class_name(*class));
                cluster.event(Event::SetJobClass { job, class });
            }
            Self::JobLimit(job, limit) => {
                let job = pick(cluster, *job);
                cluster.event(Event::SetTimeLimit { job, limit: limit.map(Nanos) });
            }
            Self::AfterUse(class, rule) => {
                let rule = rule
                    .map(|(used, class)| AfterUse { used: Nanos(used), class: class_name(class) });
                cluster.event(Event::SetClassAfter { class: class_name(*class), rule });
            }
            Self::BankPeriod(of_user, renewed) => {
                let account = if *of_user { BankAccount::User(user_name(0)) } else { GROUP };
                let (period, began_ms) = (BankPeriod::Day, 0);
                let renewal = renewed.then_some(Renewal { period, began_ms });
                cluster.event(Event::SetBankPeriod { account, renewal });
            }
            Self::Day(began_ms) => {
                let (period, began_ms) = (BankPeriod::Day, *began_ms);
                cluster.event(Event::BankPeriod { period, began_ms });
            }
            Self::Charge(on) => cluster.event(Event::PolicyInCharge { on: *on }),
            Self::OrderStart(job, row, node, processors) => {
                order_start(cluster, *job, *row, (*node, *processors));
            }
            Self::Order(job, what, other) => order(cluster, *job, *what, *other),
            Self::Timed(what, node, ns, ahead) => timed(cluster, (*what, *node), *ns, *ahead),
            Self::TimedDue(place, last) => {
                let Some(number) = pick_timed(cluster, *place) else { return };
                let next = (!last).then(|| moment(cluster, 50_000_000));
                let due = vec![DueChange { number, unix_ms: 0, next }];
                cluster.event(Event::TimedDue { due });
            }
            Self::MoveTimed(place, ns) => {
                let Some(number) = pick_timed(cluster, *place) else { return };
                cluster.event(match ns {
                    Some(ns) => {
                        let next = Some(moment(cluster, *ns));
                        Event::SetTimedMoment { number, next }
                    }
                    None => Event::SetTimed { number, entry: None },
                });
            }
            Self::MoveJob(job, before) => {
                let before = before.map(|before| pick(cluster, before));
                cluster.event(Event::MoveJob { job: pick(cluster, *job), before });
            }
        }
    }
}

const fn moment(cluster: &Cluster, ns: u64) -> Moment {
    Moment { at: ClusterTime(cluster.now.saturating_add(ns)), unix_ms: 0 }
}

fn pick_timed(cluster: &Cluster, place: usize) -> Option<u32> {
    let numbers: Vec<u32> = cluster.core.timed().map(|(number, _)| number).collect();
    numbers.get(place % numbers.len().max(1)).copied()
}

/// Something is to change at a time.
fn timed(cluster: &mut Cluster, (what, node): (u64, u32), ns: u64, ahead: Option<u64>) {
    let nodes = || NamedNodes {
        list: node.to_string(),
        nodes: [NodeId(node)].into(),
        sets: [NodeSetName::new("gpu")].into_iter().filter(|_| node == 0).collect(),
    };
    let change = match what % 6 {
        0..=2 => TimedChange::Out { nodes: nodes(), ahead: ahead.map(Nanos) },
        3 => TimedChange::In { nodes: nodes() },
        4 => TimedChange::Release(NamedJobs {
            classes: [class_name(usize::try_from(node).unwrap_or(0))].into(),
            ..NamedJobs::default()
        }),
        _ => {
            let mut overrides = Overrides::default();
            overrides.params.insert("rows".into(), u64::from(node) + 1);
            TimedChange::Set(overrides)
        }
    };
    let entry = (When::Weekly { days: 1, minute: 0 }, change, Some(moment(cluster, ns)));
    let number = cluster.core.timed_made() + 1;
    cluster.event(Event::SetTimed { number, entry: Some(entry) });
}

/// A policy outside orders a start, of whatever job, wherever it says.
fn order_start(cluster: &mut Cluster, job: usize, row: u64, (node, processors): (u32, u32)) {
    let rows: Vec<RowId> = cluster.core.free_in_rows().map(|(row, _)| row).collect();
    let chosen = usize::try_from(row).ok().and_then(|row| rows.get(row).copied());
    let row = match row {
        0 if node == 0 => RowChoice::New,
        4.. => RowChoice::Any,
        row => RowChoice::In(chosen.unwrap_or(RowId(row + 50))),
    };
    let free = |node| match row {
        RowChoice::In(row) => cluster.core.free_for_new(Some(row), node),
        RowChoice::Any | RowChoice::New => cluster.core.free_for_new(None, node),
    };
    let (mut left, mut places) = (processors, Vec::new());
    for node in (node..4).map(NodeId).take_while(|_| processors > 0) {
        // Now and then processors that are not free, or do not exist.
        let set =
            if processors > 9 { ProcessorSet::first(processors) } else { free(node).lowest(left) };
        left -= set.count().min(left);
        if !set.is_empty() {
            places.push((node, set));
        }
    }
    let job = any_job(cluster, job);
    cluster.order(Order::Start { job, row, places });
}

/// A policy outside orders something else.
fn order(cluster: &mut Cluster, job: usize, what: u64, other: usize) {
    let (job, other_job) = (any_job(cluster, job), any_job(cluster, other));
    cluster.order(match what % 10 {
        0 => Order::Decline { job, reason: "not today".to_owned() },
        1 => Order::Decline { job, reason: "x".repeat(1000) },
        2 => Order::Move { job, before: Some(other_job) },
        3 => Order::Move { job, before: None },
        4 => Order::Preempt { job },
        5 => Order::Restore { job },
        6 => Order::SetClass { job, class: class_name(other) },
        7 => Order::Arrange { node: node_of(other), row: None, candidates: Vec::new() },
        8 => arrangement(cluster, job, other),
        _ => Order::Leave { job },
    });
}

fn node_of(number: usize) -> NodeId {
    NodeId(u32::try_from(number % 4).unwrap_or(0))
}

/// Another order of the candidates of one slot, at times with a job that may be none.
fn arrangement(cluster: &Cluster, job: JobId, other: usize) -> Order {
    let node = node_of(other);
    let slots = cluster.core.timetable(node).map_or_else(Vec::new, |it| it.slots);
    let Some(slot) = slots.get(other / 4 % slots.len().max(1)) else {
        return Order::Arrange { node, row: Some(RowId(5000)), candidates: Vec::new() };
    };
    let empty = if other.is_multiple_of(3) { IfAbsent::Hold } else { IfAbsent::Down };
    let mut candidates: Vec<_> = slot.candidates.iter().map(|it| (it.launch.job, empty)).collect();
    candidates.reverse();
    candidates.truncate(1 + other / 16 % 4);
    if other.is_multiple_of(11) {
        candidates.push((job, IfAbsent::Down));
    }
    Order::Arrange { node, row: Some(slot.row), candidates }
}

/// A job among those that live; or one that does not exist.
fn any_job(cluster: &Cluster, place: usize) -> JobId {
    if place % 7 == 6 { JobId(5000) } else { pick(cluster, place) }
}

/// A limit of a queue gets a value; a queue without it is made.
fn limit(cluster: &mut Cluster, name: QueueName, limit: &str, value: u64) {
    let mut spec = cluster.core.queues().get(&name).cloned().unwrap_or_default();
    if spec.limits.set(limit, value).is_ok() {
        cluster.event(Event::SetQueue { name, spec: Some(spec) });
    }
}

/// The user of all jobs, or the user's group, may use so much processor time.
fn bank(cluster: &mut Cluster, of_user: bool, ns: Option<u64>) {
    let account = if of_user { BankAccount::User(user_name(0)) } else { GROUP };
    let allowance = ns.map(|ns| ProcessorTime::of_one(Nanos(ns)));
    cluster.event(Event::SetBank { account, allowance });
}

const fn held_by(owner: bool) -> HeldBy {
    if owner { HeldBy::Owner } else { HeldBy::Administrator }
}

/// An array of so many elements, so many of them at once.
fn submit_array(
    cluster: &mut Cluster,
    spec: JobSpec,
    options: SubmitOptions,
    (count, limit): (u32, Option<u32>),
) {
    let indices = Indices::of((0..count.max(1)).collect()).expect("some, each once");
    let array = ArraySpec { indices, limit };
    cluster.submits(|request| Event::SubmitArray { request, spec, options, array });
}

fn pick_array(cluster: &Cluster, place: usize) -> Option<JobId> {
    let arrays: Vec<JobId> = cluster.core.arrays().map(|view| view.id).collect();
    arrays.get(place % arrays.len().max(1)).copied()
}

const fn order_of(number: u64) -> ElementOrder {
    match number % 6 {
        0 => ElementOrder::Cancel { reason: EndReason::Cancelled, at_once: false },
        1 => ElementOrder::Cancel { reason: EndReason::Cancelled, at_once: true },
        2 => ElementOrder::Hold { by: HeldBy::Owner },
        3 => ElementOrder::Hold { by: HeldBy::Administrator },
        4 => ElementOrder::Release { by: HeldBy::Owner },
        _ => ElementOrder::Release { by: HeldBy::Administrator },
    }
}

fn pick(cluster: &Cluster, place: usize) -> JobId {
    let jobs: Vec<JobId> =
        cluster.core.jobs(ClusterTime(cluster.now)).map(|view| view.id).collect();
    jobs.get(place % jobs.len().max(1)).copied().unwrap_or(JobId(0))
}

fn what_of(number: u64) -> AfterWhat {
    let words = AfterWhat::WORDS;
    // One more than there are words.
    let place = usize::try_from(number).unwrap_or(0) % (words.len() + 1);
    if place == words.len() {
        return AfterWhat::StartPlus(Nanos::from_millis(number % 500));
    }
    words[usize::try_from(number).unwrap_or(0) % words.len()].1
}

/// The jobs to start after, of those that live.
fn after(cluster: &Cluster, jobs: &[(usize, u64)], one: bool, stays: bool) -> Option<AfterJobs> {
    let of =
        |&(place, what): &(usize, u64)| After { job: pick(cluster, place), what: what_of(what) };
    Some(AfterJobs { jobs: jobs.iter().map(of).collect(), one, stays })
}

fn set(cluster: &mut Cluster, name: &str, value: u64) {
    let mut params = cluster.core.params().clone();
    if params.set(name, value).is_ok() {
        cluster.event(Event::SetParams { params });
    }
}

/// A node joins anew; if it was up with other means, what it held is gone.
fn join(cluster: &mut Cluster, node: u32, width: u32) {
    let same = cluster
        .core
        .nodes()
        .any(|view| view.id == NodeId(node) && view.up && view.spec.processors.count() == width);
    if !same {
        cluster.lose(node);
    }
    cluster.join(node, width);
    // The first has no swap space, until it says more.
    let space_bytes = 400 * u64::from(node);
    cluster.event(Event::NodeSwap { node: NodeId(node), space_bytes });
    // Two directories of images, and nodes that have none.
    let place = Some(u64::from(node % 3)).filter(|&place| place < 2);
    cluster.event(Event::ImagePlace { node: NodeId(node), place });
}

fn drain(cluster: &mut Cluster, node: NodeId, drained: bool) {
    let reason = drained.then(|| "broken".to_owned());
    cluster.event(Event::SetDrained { node, reason });
}

/// How fast and how busy a node is.
fn tell_of_node(cluster: &mut Cluster, node: NodeId, speed: u32, load: u32) {
    let figures = Figures { int: speed, float: 1, double: 7 * speed, memory: 0 };
    cluster.event(Event::NodeMeasured { node, figures });
    let network = NetworkFigures { bandwidth_mb_s: speed, latency_us: load };
    cluster.event(Event::NetworkMeasured { node, peer: NodeId(load), figures: network });
    let averages = LoadAverages { now: 500 * load, ..LoadAverages::default() };
    cluster.event(Event::NodeLoad { node, averages });
}

fn nonsense(cluster: &mut Cluster, job: JobId, node: NodeId) {
    let (status, rank) = (TaskStatus::Exited(1), Rank(node.0));
    let key = StepKey { job, step: StepId(node.0) };
    let (reason, at_once) = (EndReason::Cancelled, true);
    for event in [
        Event::StepTasksEnded { key, ranks: vec![rank], status },
        Event::StepCleared { key, nodes: vec![node] },
        Event::CancelStep { key, reason, at_once },
        Event::StepFrontEndLost { key },
        Event::JobCleared { job, nodes: vec![node] },
        Event::JobCleared { job, nodes: vec![] },
        Event::NodeOutOfReach { node },
        Event::NodeLost { node },
        Event::NodeRemoved { node },
        Event::SetDrained { node, reason: Some(String::new()) },
        Event::SetDrained { node, reason: None },
        Event::SetAccess { grantee: Grantee::Everybody, origin: Some(Origin::Anywhere) },
        Event::SetAccess { grantee: Grantee::Everybody, origin: None },
        Event::SetNodeSet { name: NodeSetName::new("gpu"), nodes: [node].into() },
        Event::TasksEnded { job, ranks: vec![rank], status },
        Event::TasksEnded { job, ranks: vec![], status },
        Event::JobsEnded { jobs: vec![job, job], status },
        Event::Signal { job, ranks: vec![rank], signal: 1 },
        Event::Hold { job, by: HeldBy::Owner },
        Event::Release { job, by: HeldBy::Administrator },
        Event::SetJobClass { job, class: class_name(0) },
        Event::SetTimeLimit { job, limit: None },
        Event::SetTimeLimit { job, limit: Some(Nanos(1 << 30)) },
        Event::MoveJob { job, before: Some(job) },
        Event::MoveJob { job, before: None },
        Event::MovedOut { job },
        Event::MovedIn { job },
        Event::swapped_at_once(job, node, 0),
        Event::Tick,
    ] {
        cluster.event(event);
    }
}

/// A sentence for a reader.
impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let set = |table: &'static [Param], name: &str, value| {
            let param = table.iter().find(|param| param.name == name);
            param.map_or(String::new(), |param| format!("{name}={}", Shown(param, value)))
        };
        match self {
            Self::Pass(nanos) => write!(f, "{} pass", Nanos(*nanos)),
            Self::Submit(spec) => write!(f, "submit {} tasks, {}", spec.tasks, spec.class),
            Self::SubmitHeld(spec, _) => {
                write!(f, "submit {} held tasks, {}", spec.tasks, spec.class)
            }
            Self::SubmitBatch(spec) => {
                write!(f, "submit a batch job of {} slots, {}", spec.tasks, spec.class)
            }
            Self::SubmitAfter(spec, jobs, one, stays) => {
                let of = |&(job, what): &(usize, u64)| format!("{job}:{}", what_of(what));
                let jobs: Vec<String> = jobs.iter().map(of).collect();
                let between = if *one { "|" } else { "," };
                let (tasks, class, jobs) = (spec.tasks, &spec.class, jobs.join(between));
                let stays = if *stays { ", stays" } else { "" };
                write!(f, "submit a job of {tasks} tasks, {class}, after {jobs}{stays}")
            }
            Self::SubmitVacating(spec, ns) => {
                let (tasks, class) = (spec.tasks, &spec.class);
                write!(f, "submit {tasks} tasks, {class}, that vacate {} before", Nanos(*ns))
            }
            Self::SubmitImage(spec, _) => {
                write!(f, "submit a job, {}, that has an image", spec.class)
            }
            Self::SubmitSwapping(spec) => {
                write!(f, "submit {} tasks, {}, that may be swapped out", spec.tasks, spec.class)
            }
            Self::Swapped(place, percent) => {
                write!(f, "order {place} about memory is answered, {percent}% stay")
            }
            Self::SubmitLater(spec, ns) => {
                let (tasks, class) = (spec.tasks, &spec.class);
                write!(f, "submit {tasks} tasks, {class}, that begin after {}", Nanos(*ns))
            }
            Self::Set(name, value) => write!(f, "params {}", set(params::TABLE, name, *value)),
            Self::Rule(class, name, value) => {
                write!(f, "class {} {}", class_name(*class), set(class::RULES, name, *value))
            }
            other => write!(f, "{other:?}"),
        }
    }
}
