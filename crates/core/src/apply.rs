//! The core itself: takes in events, one small handler for each, and says what must be done.
//!
//! Each call of [`Core::apply`] goes through the same steps, whatever happened: move the accounts on
//! to now; let the event's handler change what is known; carry out what is due (limits, graces);
//! seat jobs from the queue where there is room now; then publish the difference.
//!
//! Whatever an event names that is not known (any more) is ignored: reports cross on their way
//! with decisions, and the core must not trust any driver to send only what makes sense.

mod former;
mod settings;
mod submit;

pub use former::FormerCore;

use crate::action::Action;
use crate::after::JobsAfter;
use crate::allocation::Allocation;
use crate::arrays::{Arrays, ElementOrder};
use crate::bank::Bank;
use crate::begin::Begins;
use crate::by_use::RulesByUse;
use crate::checkpoint::Checkpoints;
use crate::devices::Devices;
use crate::event::{Event, SubmitOptions};
use crate::frame::Frame;
use crate::freed::Freed;
use crate::kept_memory::Admitted;
use crate::ledger::Ledger;
use crate::local_moves::NodesToLookAt;
use crate::longer_leases::Longer;
use crate::matrix::Matrix;
use crate::migrate::Migration;
use crate::network::Network;
use crate::node_loss::{Loss, Reruns};
use crate::orders::HeldBy;
use crate::outside::Outside;
use crate::policy::classes::ByClass;
use crate::policy::deadline::Plans;
use crate::policy::{self, Machine, Policy};
use crate::publish::{Outbox, Sent};
use crate::queue::Queue;
use crate::queues::Queues;
use crate::reserved_rows::Quick;
use crate::resources::Resources;
use crate::respawn::Respawns;
use crate::roll_out::RollOut;
use crate::state::nodes::Nodes;
use crate::state::record::{Deaths, Phase, Record, Residence, TaskEnd};
use crate::state::table::Table;
use crate::swap::Swaps;
use crate::termination::ENDED_BY_KILL;
use crate::timed::Timed;
use crate::vacate::Vacates;
use crate::warning::Warnings;
use crate::weight::UserWeights;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::hash::{Hash, Hasher};
use serde::{Deserialize, Serialize};
use tutti_types::access::Access;
use tutti_types::account::{BankAccount, Renewal};
use tutti_types::class::Classes;
use tutti_types::digest::Digest;
use tutti_types::ids::{ClassName, FeatureName, JobId, NodeId, ProcessorSet, Rank, RowId, StepKey};
use tutti_types::job::{EndReason, TaskStatus};
use tutti_types::params::Params;
use tutti_types::period::Calendar;
use tutti_types::settings::Settings;
use tutti_types::time::ClusterTime;

/// Everything that decides.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Core {
    pub(crate) now: ClusterTime,
    /// What an administrator has set.
    pub(crate) settings: Settings,
    pub(crate) calendar: Option<Calendar>,
    /// When something else may hold.
    pub(crate) settings_until: ClusterTime,
    /// What of it holds now.
    pub(crate) params: Params,
    pub(crate) classes: Classes,
    pub(crate) nodes: Nodes,
    pub(crate) matrix: Matrix,
    pub(crate) jobs: Table<Record>,
    pub(crate) queue: Queue,
    pub(crate) by_class: ByClass,
    pub(crate) resources: Resources,
    pub(crate) bank: Bank,
    /// The users that may submit jobs.
    pub(crate) access: Access,
    /// Processors that others than our jobs use.
    pub(crate) foreign: BTreeMap<NodeId, ProcessorSet>,
    /// What programs may need of nodes' processors.
    pub(crate) features: BTreeMap<NodeId, BTreeSet<FeatureName>>,
    pub(crate) ledger: Ledger,
    pub(crate) frame: Frame,
    /// When the latest change took or takes effect.
    pub(crate) activated: ClusterTime,
    pub(crate) versions: u64,
    /// When all nodes were last told, and when each was on its own.
    pub(crate) sent_all: Sent,
    pub(crate) sent: Vec<Sent>,
    /// The slots that are held for classes without jobs.
    pub(crate) held: BTreeMap<ClassName, RowId>,
    pub(crate) outbox: Outbox,
    /// When the grace of a job is over.
    pub(crate) deadlines: BTreeSet<(ClusterTime, JobId)>,
    /// What is kept of jobs with a deadline.
    pub(crate) plans: Plans,
    /// Resident jobs without processors.
    pub(crate) aside: BTreeSet<JobId>,
    /// Resident jobs whose tasks on a node have all ended, by node.
    pub(crate) absent: BTreeSet<(NodeId, JobId)>,
    pub(crate) jobs_made: u64,
    /// The jobs that go on on other processors.
    pub(crate) migration: Migration,
    stopping: bool,
    /// Leases of nodes that may be longer than those that are given now.
    pub(crate) longer_leases: Longer,
    /// Whether the driver wants to know which nodes need timetables.
    pub(crate) tells_nodes: bool,
    /// The wish that the driver holds.
    pub(crate) wake: ClusterTime,
    /// Whether jobs that were asked to end are killed when their grace is over.
    pub(crate) kills: bool,
    /// How much more some users may use than others.
    pub(crate) weights: UserWeights,
    /// The jobs in line of classes that keep rows.
    pub(crate) quick: Quick,
    /// Queues, and the jobs in them.
    pub(crate) queues: Queues,
    /// The waiting jobs that are kept out of the line.
    pub(crate) holds: BTreeMap<JobId, HeldBy>,
    /// The classes that jobs get once they have used so much.
    pub(crate) by_use: RulesByUse,
    /// The accounts that count from nothing again with each period.
    pub(crate) renewals: BTreeMap<BankAccount, Renewal>,
    /// The jobs that go on beyond their time limits, and the classes that they had.
    pub(crate) overrun: BTreeMap<JobId, ClassName>,
    /// The jobs that are more than a task in each slot.
    pub(crate) allocations: BTreeMap<JobId, Allocation>,
    /// The waiting jobs that start after others.
    pub(crate) after: JobsAfter,
    /// When further steps are killed, if they are not done by then.
    pub(crate) step_deadlines: BTreeSet<(ClusterTime, StepKey)>,
    /// The waiting jobs that begin no earlier than at a moment.
    pub(crate) begins: Begins,
    /// The jobs that get a signal before their limits.
    pub(crate) warnings: Warnings,
    /// The jobs that may be asked to vacate.
    pub(crate) vacates: Vacates,
    /// The job arrays.
    pub(crate) arrays: Arrays,
    /// A site's own policy.
    pub(crate) outside: Outside,
    /// Lost ranks that are to be started again, and that were.
    pub(crate) respawns: Respawns,
    /// Processors of ended tasks that others have, or get.
    pub(crate) freed: Freed,
    /// The jobs that save their state by themselves.
    pub(crate) checkpoints: Checkpoints,
    /// What changes at times.
    pub(crate) timed: Timed,
    /// Devices of nodes, and which job has which.
    pub(crate) devices: Devices,
    /// The jobs that are rolled out, or were.
    pub(crate) roll_out: RollOut,
    /// The jobs whose memory may leave, and those whose memory has.
    pub(crate) swaps: Swaps,
    /// How often jobs may be queued again, and were.
    pub(crate) reruns: Reruns,
    /// The nodes where jobs may go to other processors.
    pub(crate) to_look_at: NodesToLookAt,
    /// Bandwidth and latency between nodes.
    pub(crate) network: Network,
}

impl Core {
    /// A core that knows of no node and no job.
    #[must_use]
    pub fn new(params: Params, classes: Classes) -> Self {
        let mut core = Self {
            now: ClusterTime::default(),
            settings: Settings::new(params.clone(), classes.clone()),
            calendar: None,
            settings_until: ClusterTime::NEVER,
            params,
            classes,
            nodes: Nodes::default(),
            matrix: Matrix::default(),
            jobs: Table::default(),
            queue: Queue::default(),
            by_class: ByClass::default(),
            resources: Resources::default(),
            bank: Bank::default(),
            access: Access::new(),
            foreign: BTreeMap::new(),
            features: BTreeMap::new(),
            ledger: Ledger::default(),
            frame: Frame::default(),
            activated: ClusterTime::default(),
            versions: 0,
            sent_all: Sent::default(),
            sent: Vec::new(),
            held: BTreeMap::new(),
            outbox: Outbox::default(),
            deadlines: BTreeSet::new(),
            plans: Plans::default(),
            aside: BTreeSet::new(),
            absent: BTreeSet::new(),
            jobs_made: 0,
            migration: Migration::default(),
            stopping: false,
            longer_leases: Longer::default(),
            tells_nodes: true,
            wake: ClusterTime::NEVER,
            kills: true,
            weights: UserWeights::default(),
            quick: Quick::default(),
            queues: Queues::default(),
            holds: BTreeMap::new(),
            by_use: RulesByUse::new(),
            renewals: BTreeMap::new(),
            overrun: BTreeMap::new(),
            allocations: BTreeMap::new(),
            after: JobsAfter::default(),
            step_deadlines: BTreeSet::new(),
            begins: Begins::default(),
            warnings: Warnings::default(),
            vacates: Vacates::default(),
            arrays: Arrays::default(),
            outside: Outside::default(),
            respawns: Respawns::default(),
            freed: Freed::default(),
            checkpoints: Checkpoints::default(),
            timed: Timed::default(),
            devices: Devices::default(),
            roll_out: RollOut::default(),
            swaps: Swaps::default(),
            reruns: Reruns::default(),
            to_look_at: NodesToLookAt::default(),
            network: Network::default(),
        };
        core.follow_settings();
        core
    }

    /// Leaves out which nodes need timetables ([`Action::Timetable`] and [`Action::Timetables`]): for
    /// a driver without nodes, which asks the core itself which jobs run when.
    #[must_use]
    pub fn without_timetables(self) -> Self {
        Self { tells_nodes: false, ..self }
    }

    /// Kills no job that was asked to end, whatever its grace: for a driver that ends each job at its limit
    /// itself.
    #[must_use]
    pub fn without_kills(self) -> Self {
        Self { kills: false, ..self }
    }

    /// Takes in one event that happened at `now` and appends what must be done to `actions`.
    ///
    /// A `now` before that of an earlier event counts as that one's: time does not run backwards.
    pub fn apply(&mut self, now: ClusterTime, event: &Event, actions: &mut Vec<Action>) {
        let (now, at_stake) = (self.advance(now, event), self.promises_at_stake(event));
        self.take_in(now, event, actions);
        self.settle(now, event, actions);
        self.note_overridden(event, &at_stake, actions);
    }

    /// What an event by itself makes otherwise.
    fn take_in(&mut self, now: ClusterTime, event: &Event, actions: &mut Vec<Action>) {
        match event {
            Event::NodeJoined { node, spec } => self.on_node_joined(*node, spec, actions),
            Event::Held { job } => self.leave_out(*job),
            Event::Forgot { job } => self.on_forgot(now, *job),
            Event::NodeOutOfReach { node } => self.on_node_out_of_reach(now, *node),
            Event::NodeLost { node } => self.on_node_lost(now, *node, actions),
            Event::SetDrained { node, reason } => self.on_drained(now, *node, reason.as_deref()),
            Event::NodeRemoved { node } => self.on_node_removed(now, *node, actions),
            Event::SetNodeSet { name, nodes } => self.on_set_node_set(name, nodes),
            Event::NodeMeasured { .. }
            | Event::NodeLoad { .. }
            | Event::NodeFeatures { .. }
            | Event::NetworkMeasured { .. }
            | Event::ImagePlace { .. } => self.on_measured(event),
            Event::Submit { .. } | Event::SubmitWith { .. } | Event::SubmitArray { .. } => {
                self.on_submit_event(now, event, actions);
            }
            Event::Elements { .. } => self.on_elements_event(now, event, actions),
            Event::SubmitStep { .. }
            | Event::StepTasksEnded { .. }
            | Event::StepCleared { .. }
            | Event::CancelStep { .. }
            | Event::StepFrontEndLost { .. } => self.on_step_event(now, event, actions),
            Event::TasksEnded { job, ranks, status } => {
                self.on_tasks_ended(now, (*job, ranks), *status, actions);
            }
            Event::JobCleared { job, nodes } => self.on_job_cleared(now, *job, nodes, actions),
            Event::JobsEnded { jobs, status } => self.on_jobs_ended(now, jobs, *status, actions),
            Event::Cancel { job, reason, at_once } => {
                self.on_cancel(now, (*job, *reason, *at_once), actions);
            }
            Event::Signal { job, ranks, signal } => self.on_signal(*job, ranks, *signal, actions),
            Event::Checkpoint { job, order } => self.on_checkpoint(now, (*job, *order), actions),
            Event::Hold { .. } | Event::Release { .. } => self.on_hold_event(now, event, actions),
            Event::SetJobClass { .. }
            | Event::SetTimeLimit { .. }
            | Event::SetBegin { .. }
            | Event::MoveJob { .. }
            | Event::MovedOut { .. }
            | Event::MovedIn { .. }
            | Event::Suspend { .. }
            | Event::Resume { .. } => self.on_job_change(event),
            Event::SetClassAfter { class, rule } => self.on_set_class_after(class, rule.as_ref()),
            Event::FrontEndLost { job } => self.on_front_end_lost(now, *job, actions),
            Event::SetParams { params } => self.on_set_params(now, params),
            Event::SetClass { class, spec } => self.on_set_class(now, class, *spec),
            Event::ForgetClass { class } => self.on_forget_class(now, class),
            Event::SetPeriod { .. } | Event::Calendar { .. } => self.on_calendar_event(now, event),
            Event::SetTimed { .. } | Event::SetTimedMoment { .. } | Event::TimedDue { .. } => {
                self.on_timed_event(now, event, actions);
            }
            Event::Foreign { node, processors } => self.on_foreign(*node, processors),
            Event::SetBankPeriod { .. } | Event::BankPeriod { .. } => self.on_bank_periods(event),
            Event::SetResource { name, spec } => self.on_set_resource(*name, *spec),
            Event::DevicesFound { .. } | Event::SetDevice { .. } => self.on_device_event(event),
            Event::SetBank { account, allowance } => self.on_set_bank(*account, *allowance),
            Event::SetAccess { grantee, origin } => self.on_set_access(*grantee, origin.as_ref()),
            Event::SetWeight { account, weight } => self.on_set_weight(*account, *weight),
            Event::SetQueue { name, spec } => self.on_set_queue(name, spec.as_ref()),
            Event::SetClassUsers { class, allowed } => self.on_set_class_users(class, allowed),
            Event::SetPolicyProgram { program } => self.on_set_policy_program(program.as_ref()),
            Event::PolicyInCharge { on } => self.on_policy_in_charge(*on),
            Event::PolicyOrder { order } => self.on_order(order, actions),
            Event::Began => self.on_began(now),
            Event::ShutDown | Event::GoDown => self.on_end(now, event, actions),
            Event::RollOut { .. } | Event::RollIn => self.on_roll_event(now, event, actions),
            Event::Swapped { .. } | Event::NodeSwap { .. } => self.on_swap_event(event),
            Event::Lend { job, lends } => self.on_lend(*job, *lends),
            // The wish is spent; if it is still due, it is made again.
            Event::Tick => self.wake = ClusterTime::NEVER,
        }
    }

    /// Other rules hold at some times, or the week is another one.
    fn on_calendar_event(&mut self, now: ClusterTime, event: &Event) {
        if let Event::SetPeriod { period, overrides } = event {
            self.on_set_period(now, *period, overrides);
        } else if let Event::Calendar { week } = event {
            self.on_calendar(now, *week);
        }
    }

    /// Moves the accounts on to the time of an event, which is returned, and notes what it may change.
    fn advance(&mut self, now: ClusterTime, event: &Event) -> ClusterTime {
        let now = now.max(self.now);
        let before = core::mem::replace(&mut self.now, now);
        self.follow_leaving(before);
        self.ledger.forget_moved();
        self.queue.touched.clear();
        self.matrix.forget_touched();
        self.ledger.advance(now);
        self.charge();
        self.quick.note(event);
        self.queue.stale |= event.may_break_promises();
        self.queue.disturbed |= event.is_interference();
        if self.settings_until <= now {
            self.take_settings(now);
        }
        now
    }

    /// Carries out what is due, seats jobs where there is room now, and publishes the difference.
    fn settle(&mut self, now: ClusterTime, event: &Event, actions: &mut Vec<Action>) {
        self.carry_out_due(now, event, actions);
        self.follow_roll_out(now, actions);
        self.follow_swaps();
        self.follow_respawns(now, event, actions);
        self.give_away_due(now);
        self.reclassify();
        self.follow_rules_by_use(actions);
        self.drop_kept_rows();
        self.matrix.follow_levels(policy::of(&self.params).has_levels, &self.foreign);
        self.follow_begins(now);
        self.follow_moments_after(now);
        self.follow_after(actions);
        loop {
            self.fill_arrays(now, actions);
            self.let_in();
            if self.policy().plans() {
                self.seat_planned(now);
            } else {
                self.drop_plans(now);
                self.seat_in_line(now);
            }
            if self.follow_after(actions) || self.can_fill_arrays() {
                continue;
            }
            self.ask_wanted(now, actions);
            // What is promised counts on turns that jobs lend from now on, or take back.
            if !self.follow_lending(now) {
                break;
            }
        }
        self.publish(now, actions);
        self.warn_due(now, actions);
        self.ask_to_wake(now, actions);
    }

    /// A user asks for a job or an array.
    fn on_submit_event(&mut self, now: ClusterTime, event: &Event, actions: &mut Vec<Action>) {
        if let Event::Submit { request, spec } = event {
            self.on_submit(now, *request, (spec, &SubmitOptions::default()), actions);
        } else if let Event::SubmitWith { request, spec, options } = event {
            self.on_submit(now, *request, (spec, options), actions);
        } else if let Event::SubmitArray { request, spec, options, array } = event {
            self.on_submit_array(*request, (spec, options, array), actions);
        }
    }

    /// The instance ends: for a while, or for good, and then nothing waits for another.
    fn on_end(&mut self, now: ClusterTime, event: &Event, actions: &mut Vec<Action>) {
        if *event == Event::GoDown {
            return self.on_go_down(now, actions);
        }
        self.on_shut_down(now, |_| false, actions);
        self.end_arrays(now, actions);
    }

    /// Jobs may begin again.
    pub(crate) fn open_again(&mut self, now: ClusterTime) {
        self.stopping = false;
        self.open_or_close_all(now);
        self.queue.reconsider();
    }

    /// A job is to end: after its grace, or at once.
    fn on_cancel(
        &mut self,
        now: ClusterTime,
        (job, reason, at_once): (JobId, EndReason, bool),
        actions: &mut Vec<Action>,
    ) {
        if self.arrays.contains(job) {
            let order = ElementOrder::Cancel { reason, at_once };
            return self.on_elements(now, (job, None), order, actions);
        }
        match at_once {
            false => self.end_job(now, job, reason, actions),
            true => self.kill_job(now, job, reason, actions),
        }
    }

    /// Jobs have ended, and nothing is left of them.
    fn on_jobs_ended(
        &mut self,
        now: ClusterTime,
        jobs: &[JobId],
        status: TaskStatus,
        actions: &mut Vec<Action>,
    ) {
        for &job in jobs {
            self.on_job_ended(now, job, status, actions);
        }
    }

    /// Something happens to further steps of jobs.
    fn on_step_event(&mut self, now: ClusterTime, event: &Event, actions: &mut Vec<Action>) {
        if let Event::SubmitStep { request, job, key, spec } = event {
            self.on_submit_step(now, (*request, *job), (key, spec), actions);
        } else if let Event::StepTasksEnded { key, ranks, status } = event {
            self.on_step_tasks_ended(now, (*key, ranks), *status, actions);
        } else if let Event::StepCleared { key, nodes } = event {
            self.on_step_cleared(now, (*key, nodes), actions);
        } else if let Event::CancelStep { key, reason, at_once } = event {
            self.on_cancel_step(now, (*key, *reason, *at_once), actions);
        } else if let Event::StepFrontEndLost { key } = event {
            self.on_step_front_end_lost(now, *key, actions);
        }
    }

    /// What an earlier driver was told to end has ended, and none of its nodes is in reach yet.
    fn on_began(&mut self, now: ClusterTime) {
        self.stopping = false;
        self.roll_out.pause();
        // Its program is no more.
        self.on_policy_in_charge(false);
        self.miss_all(now);
        self.ask_again_to_move();
    }

    /// Seats jobs as their turn in the queue comes.
    fn seat_in_line(&mut self, now: ClusterTime) {
        if !self.policy().sets_aside() {
            self.bring_back();
        }
        self.seat_now(now);
        // Jobs beyond their limits come back when the last one in line has started.
        while !self.policy().sets_aside() && !self.overrun.is_empty() && self.bring_back() {
            self.seat_now(now);
        }
    }

    fn seat_now(&mut self, now: ClusterTime) {
        // A home that moved could take what was promised.
        if !self.queue.promised() {
            self.unify();
        }
        if self.outside_decides() {
            self.seat_for_outside(now);
            while !self.queue.promised() && self.unify() {
                self.seat_for_outside(now);
            }
            return self.preempt_overrun();
        }
        self.seat_queued(now);
        // A seated job may be where it, or another job, should rather not be.
        while !self.queue.promised()
            && (self.unify() || self.migrate() || self.move_within_nodes() || self.free_kept_row())
        {
            self.queue.reconsider();
            self.seat_queued(now);
        }
        self.preempt_overrun();
        self.take_turns_in_memory();
    }

    /// Whether any home moved.
    fn unify(&mut self) -> bool {
        let moved = self.matrix.unify(self.params.packing());
        for &(job, home) in &moved {
            self.ledger.rehome(job, home);
        }
        !moved.is_empty()
    }

    /// When the latest event happened.
    #[must_use]
    pub const fn now(&self) -> ClusterTime {
        self.now
    }

    /// When an [`Event::Tick`] is wanted; never, if none is.
    #[must_use]
    pub const fn wake_at(&self) -> ClusterTime {
        self.wake
    }

    /// Whether the instance was told to end.
    #[must_use]
    pub const fn is_stopping(&self) -> bool {
        self.stopping
    }

    /// The highest number that a job has had.
    #[must_use]
    pub const fn jobs_made(&self) -> u64 {
        self.jobs_made
    }

    /// A number for the whole state: equal for equal states, on every machine.
    #[must_use]
    pub fn digest(&self) -> u64 {
        let mut digest = Digest::new();
        self.hash_into(&mut digest);
        digest.finish()
    }

    fn hash_into(&self, digest: &mut Digest) {
        // Without `..`, so that the compiler asks of each new field whether it counts.
        let Self {
            now,
            settings,
            calendar,
            settings_until,
            params,
            classes,
            nodes,
            matrix,
            jobs,
            queue,
            by_class,
            resources,
            bank,
            access,
            foreign,
            features,
            ledger,
            frame,
            activated,
            versions,
            sent_all,
            sent,
            held,
            outbox,
            deadlines,
            plans,
            aside,
            absent,
            jobs_made,
            migration,
            stopping,
            longer_leases,
            wake,
            weights,
            quick,
            queues,
            holds,
            by_use,
            renewals,
            overrun,
            allocations,
            after,
            step_deadlines,
            begins,
            warnings,
            vacates,
            arrays,
            outside,
            respawns,
            freed,
            timed,
            devices,
            // What the driver asked for, not what happened.
            tells_nodes: _,
            checkpoints,
            roll_out,
            swaps,
            reruns,
            to_look_at,
            network,
            kills: _,
        } = self;
        (now, params, classes, nodes, settings, calendar, settings_until).hash(digest);
        (matrix, jobs, queue, ledger, frame, activated, versions).hash(digest);
        (sent_all, sent, held, outbox, deadlines, plans, aside, absent).hash(digest);
        (jobs_made, migration, stopping, by_class, resources, bank).hash(digest);
        (foreign, wake, longer_leases, access, weights, quick, queues, holds).hash(digest);
        (by_use, renewals, overrun, allocations, after, step_deadlines, begins).hash(digest);
        (warnings, arrays, outside, freed, timed, devices, checkpoints).hash(digest);
        (roll_out, vacates, features, respawns, swaps, reruns, to_look_at, network).hash(digest);
    }

    pub(crate) fn machine(&self) -> Machine<'_> {
        Machine {
            nodes: &self.nodes,
            matrix: &self.matrix,
            classes: &self.classes,
            params: &self.params,
            rows: (self.policy().shares.rows)(&self.params).max(1),
            external: &self.foreign,
            devices: &self.devices,
            network: &self.network,
            jobs: &self.jobs,
            ledger: &self.ledger,
            now: self.now,
            admitted: Some(Admitted { jobs: &self.jobs, aside: &self.aside, swaps: &self.swaps }),
            whole: false,
            leaving: self.leaving(),
        }
    }

    pub(crate) fn policy(&self) -> &'static Policy {
        policy::of(&self.params)
    }

    fn on_tasks_ended(
        &mut self,
        now: ClusterTime,
        (job, ranks): (JobId, &[Rank]),
        status: TaskStatus,
        actions: &mut Vec<Action>,
    ) {
        self.checkpoints.note_status(job, status);
        let Some(rules) = self.jobs.get(&job).map(|record| self.rules_of(record)) else { return };
        let Some(record) = self.jobs.get_mut(&job) else { return };
        let each = u64::from(record.spec.processors_per_task.unwrap_or(1));
        let Phase::Resident(residence) = &mut record.phase else { return };
        let mut emptied = BTreeSet::new();
        let (mut fatal, mut failing) = (None, false);
        let all: Vec<Rank> = if ranks.is_empty() { residence.left().collect() } else { Vec::new() };
        for &rank in all.iter().chain(ranks) {
            let (end, node) = residence.task_ended(rank, status, rules);
            emptied.extend(node);
            match end {
                TaskEnd::Unknown | TaskEnd::Noted => {}
                TaskEnd::Failing => failing = true,
                TaskEnd::Fatal(reason) => fatal = fatal.or(Some(reason)),
            }
        }
        if let Some(reason) = fatal {
            self.kill_resident(now, job, (reason, Deaths::Collateral), actions);
        } else if failing && !self.checkpoints.note_failing(job) {
            self.fail_after_grace(job);
        }
        let ended = if ranks.is_empty() { &all } else { ranks };
        self.name_ended(StepKey::first(job), ended, actions);
        let has_emptied = !emptied.is_empty();
        let freed = (all.len() + ranks.len()) as u64 * each;
        for node in emptied {
            self.after_part_ended(job, node);
        }
        self.release_if_spent(now, job, actions);
        // What a step can ever have is less only where all tasks of a part have ended.
        if has_emptied {
            self.go_on_with_steps(now, job, actions);
        } else {
            // Tasks that share processors leave them when the last of the part has ended.
            self.give_to_steps(now, (job, freed), actions);
        }
        self.note_freed(job);
        self.note_idle(job);
    }

    /// A job's tasks on a node have all ended: others run in its place from now on.
    pub(crate) fn after_part_ended(&mut self, job: JobId, node: NodeId) {
        let Some(residence) = self.residence(job) else { return };
        let present = residence.present();
        if !residence.part(node).is_some_and(|part| part.lost) {
            self.absent.insert((node, job));
        }
        self.outbox.quieter.insert(node);
        if !present {
            self.ledger.halt(job);
            self.queue.stale = true;
            self.queue.disturbed = true;
        }
    }

    fn on_job_cleared(
        &mut self,
        now: ClusterTime,
        job: JobId,
        nodes: &[NodeId],
        actions: &mut Vec<Action>,
    ) {
        let Some(residence) = self.residence(job) else { return };
        let all: Vec<NodeId> =
            if nodes.is_empty() { residence.nodes_left().collect() } else { Vec::new() };
        for &node in all.iter().chain(nodes) {
            // An end that was not reported is no success.
            let loss = match self.residence(job).is_some_and(|it| it.has_lost_on(node)) {
                true => self.loss_on(job, node),
                false => Loss::Nothing,
            };
            let Some(residence) = self.residence_mut(job) else { return };
            if residence.clear(node).is_none() {
                continue;
            }
            self.lose_steps_on(now, (job, node), actions);
            self.answer_loss(now, (job, node, loss), actions);
            self.after_part_ended(job, node);
        }
        self.note_freed(job);
        self.note_idle(job);
        self.release_if_spent(now, job, actions);
        self.finish_if_cleared(job, actions);
    }

    fn on_job_ended(
        &mut self,
        now: ClusterTime,
        job: JobId,
        status: TaskStatus,
        actions: &mut Vec<Action>,
    ) {
        self.checkpoints.note_status(job, status);
        let Some(rules) = self.jobs.get(&job).map(|record| self.rules_of(record)) else { return };
        let Some(record) = self.jobs.get_mut(&job) else { return };
        let Phase::Resident(residence) = &mut record.phase else { return };
        residence.end(status, rules, now);
        self.give_ranks_up(job, actions);
        self.finish_if_cleared(job, actions);
    }

    pub(crate) fn on_signal(
        &self,
        job: JobId,
        ranks: &[Rank],
        signal: u8,
        actions: &mut Vec<Action>,
    ) {
        let Some(residence) = self.residence(job) else { return };
        for part in residence.parts.iter().filter(|part| !part.cleared) {
            let here = ranks.iter().filter(|&&rank| part.has(rank));
            let here: Vec<Rank> =
                here.filter(|rank| !residence.ended.contains_key(rank)).copied().collect();
            if ranks.is_empty() || !here.is_empty() {
                actions.push(Action::Signal { job, node: part.node, ranks: here, signal });
            }
        }
    }

    /// A job that is ending keeps its turns, so that it can.
    pub(crate) fn on_suspend(&mut self, job: JobId) {
        let Some(record) = self.jobs.get_mut(&job).filter(|record| !record.suspended) else {
            return;
        };
        match &record.phase {
            Phase::Queued { .. } => {
                record.suspended = true;
                self.leave_line(job);
                self.queue.suspended.insert(job);
            }
            Phase::Resident(residence) if !residence.ending() => {
                record.suspended = true;
                // Nothing new unless it takes turns.
                self.matrix.deactivate(job);
                self.ledger.hold(job);
                self.swap_out(job);
            }
            Phase::Resident(_) => {}
        }
    }

    pub(crate) fn on_resume(&mut self, job: JobId) {
        let Some(record) = self.jobs.get_mut(&job).filter(|record| record.suspended) else {
            return;
        };
        record.suspended = false;
        match &record.phase {
            Phase::Queued { .. } => {
                let machine = self.matrix.widths();
                self.queue.remove(job, &record.spec, machine);
                if !self.is_out_of_line(job) {
                    self.enter_line(job);
                }
                self.queue.reconsider();
            }
            Phase::Resident(_) => {
                self.swaps.resume(job);
                self.give_turns(job);
            }
        }
    }

    fn on_front_end_lost(&mut self, now: ClusterTime, job: JobId, actions: &mut Vec<Action>) {
        let kill_at = now + self.params.front_end_grace();
        let Some(record) = self.jobs.get_mut(&job).filter(|record| record.spec.attached) else {
            return;
        };
        match &mut record.phase {
            Phase::Queued { .. } => {
                self.end_queued(job, EndReason::FrontEndLost, ENDED_BY_KILL, actions);
            }
            Phase::Resident(residence) => {
                residence.orphan(kill_at);
                if residence.ending() {
                    self.expect_end(job);
                } else {
                    self.set_deadline(job);
                }
            }
        }
    }

    pub(crate) fn on_shut_down(
        &mut self,
        now: ClusterTime,
        stays: impl Fn(&Record) -> bool,
        actions: &mut Vec<Action>,
    ) {
        self.stopping = true;
        // A job that stays in line is for the next driver.
        self.open_or_close_all(now);
        let jobs = self.jobs.iter().filter(|(_, record)| !stays(record));
        for job in jobs.map(|(job, _)| job).collect::<Vec<JobId>>() {
            self.end_job(now, job, EndReason::ShutDown, actions);
        }
    }

    pub(crate) fn residence(&self, job: JobId) -> Option<&Residence> {
        self.jobs.get(&job)?.residence()
    }

    pub(crate) fn residence_mut(&mut self, job: JobId) -> Option<&mut Residence> {
        self.jobs.get_mut(&job)?.residence_mut()
    }
}
