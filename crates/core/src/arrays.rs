//! Job arrays: one submission, many jobs that differ in an index.
//!
//! An array is one record: what is asked of each element, and the state of each position
//! ([`Positions`]). An element becomes a job, with a number of its own, only when it comes into
//! line. At most [`ELEMENTS_IN_LINE`] elements of an array are in line at a time, and at most as
//! many as its limit says live. More come when half of those in line have started or ended, so
//! numbers mostly follow one another. Policies see a few plain jobs of an array, and elements that
//! wait cost only the ranges that they are in. Elements that are held while they are in line leave
//! it, so others come; for the limit of the array they still count, as they may be released.
//!
//! An element has its place in line by the moment when it comes into it, as a job that is submitted
//! then. An array that starts after other jobs, or that a hold keeps, brings nothing into line.
//! Each of its elements may start after the element of the same index in another array: until that
//! has ended well, the element does not come into line.
//!
//! An array ends when no element is left; its outcome is that of the element with the highest exit
//! code.

use crate::action::Action;
use crate::apply::Core;
use crate::begin::Begin;
use crate::event::{Event, NeverAfter, SubmitOptions};
use crate::orders::HeldBy;
use crate::policy::WaitReason;
use crate::state::record::Phase;
use crate::termination::ENDED_BY_TERM;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};
use tutti_types::after::{After, AfterJobs, AfterWhat};
use tutti_types::array::{ArraySpec, Indices, Positions};
use tutti_types::ids::{ClassName, JobId, QueueName, RequestId};
use tutti_types::job::{Checkpoint, EndReason, FirstStep, JobSpec, Outcome, Warning};
use tutti_types::limits::{ELEMENTS_IN_LINE, JOBS_MAX};
use tutti_types::policy::PolicyArgs;
use tutti_types::refusal::Refusal;
use tutti_types::time::{ClusterTime, Nanos};

/// All arrays that have not ended, and their elements that live as jobs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Arrays {
    arrays: BTreeMap<JobId, Array>,
    /// The array and the position of each element that is a job.
    elements: BTreeMap<JobId, (JobId, u32)>,
    /// The arrays of which an element may come into line.
    ready: BTreeSet<JobId>,
    /// The arrays whose elements start after those of an array, for each that has such.
    pairs: BTreeMap<JobId, BTreeSet<JobId>>,
    /// What has become of what elements start after, and was not looked at yet.
    news: VecDeque<PairNews>,
}

/// Elements before those of an array have ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct PairNews {
    /// The array whose elements wait.
    array: JobId,
    /// Those of its elements that start after them.
    positions: Positions,
    /// Whether they have ended well.
    ok: bool,
}

/// That each element starts after one of another array.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Pair {
    /// The other array.
    of: JobId,
    /// The elements whose other has not ended well yet.
    left: Positions,
    /// Whether those whose other has failed stay until they are cancelled.
    stays: bool,
}

/// An array.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Array {
    /// What is asked of each element.
    spec: JobSpec,
    queue: Option<QueueName>,
    first: FirstStep,
    /// When elements begin at the earliest: those in line wait for it, as jobs do.
    begin: Option<Begin>,
    /// The signal that each gets before its time limit, if any.
    warning: Option<Warning>,
    /// How each saves its state by itself, if it does.
    checkpoint: Option<Checkpoint>,
    /// How long before it loses a turn each is asked to vacate, if it is.
    vacate: Option<Nanos>,
    /// Whether the memory of each may leave while it does not run.
    swap: bool,
    no_requeue: bool,
    args: PolicyArgs,
    array: ArraySpec,
    /// The elements that are no jobs yet.
    waiting: Positions,
    /// Those of them that are held, by the owner and by an administrator.
    held: Positions,
    held_by_administrator: Positions,
    /// What elements start after one by one, if they do.
    pair: Option<Pair>,
    /// The elements that have ended well.
    well: Positions,
    /// The elements in line, and those that have started.
    queued: BTreeSet<JobId>,
    started: BTreeSet<JobId>,
    /// The numbers of the elements that became jobs.
    numbers: Vec<ElementNumbers>,
    ends: ArrayEnds,
    outcome: Outcome,
    /// Whether jobs that start after its start were told of it.
    has_started: bool,
}

/// Consecutive positions that have consecutive job numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ElementNumbers {
    /// The first position.
    pub position: u32,
    /// The number of its job.
    pub job: JobId,
    /// How many.
    pub count: u32,
}

/// How many elements of an array have ended, and how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ArrayEnds {
    /// Those that ended well.
    pub ok: u32,
    /// Those that ended otherwise by themselves.
    pub failed: u32,
    /// Those that were cancelled.
    pub cancelled: u32,
}

/// What is to become of elements of an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ElementOrder {
    /// They end, after their graces or at once.
    Cancel {
        /// Why.
        reason: EndReason,
        /// Whether to leave out SIGTERM and the grace.
        at_once: bool,
    },
    /// Those that wait are held.
    Hold {
        /// The user that asks.
        by: HeldBy,
    },
    /// Those that are held come into line.
    Release {
        /// The user that asks.
        by: HeldBy,
    },
}

/// Where an element of an array stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ElementState {
    /// It is no job yet.
    Waiting,
    /// It is no job yet, and held.
    Held,
    /// It is or was a job of this number.
    Job(JobId),
    /// It was cancelled before it became a job.
    Cancelled,
}

/// What is known of an array that has not ended.
#[derive(Clone, Copy, Debug)]
pub struct ArrayView<'a> {
    /// Its number.
    pub id: JobId,
    /// What is asked of each element.
    pub spec: &'a JobSpec,
    /// Its queue, if any.
    pub queue: Option<&'a QueueName>,
    /// What each element starts with.
    pub first: FirstStep,
    /// Its indices and its limit.
    pub array: &'a ArraySpec,
    /// The elements that are no jobs yet and are not held.
    pub waiting: &'a Positions,
    /// The elements that are no jobs yet and are held by their owner.
    pub held: &'a Positions,
    /// The same, held by an administrator.
    pub held_by_administrator: &'a Positions,
    /// The elements in line.
    pub queued: &'a BTreeSet<JobId>,
    /// The elements that have started and not ended.
    pub started: &'a BTreeSet<JobId>,
    /// The numbers of the elements that became jobs.
    pub numbers: &'a [ElementNumbers],
    /// How elements ended.
    pub ends: ArrayEnds,
    /// The service of those that ended.
    pub service: Nanos,
}

impl Array {
    /// How many elements are no jobs yet.
    fn unmade(&self) -> u32 {
        self.waiting.count() + self.held.count() + self.held_by_administrator.count()
    }

    fn has_ended(&self) -> bool {
        self.queued.is_empty() && self.started.is_empty() && self.unmade() == 0
    }

    /// Whether one more element may live, and there is one.
    fn has_room(&self) -> bool {
        let lives = self.queued.len() + self.started.len();
        let has_room = self.array.limit.is_none_or(|limit| lives < limit as usize);
        has_room && !self.waiting.is_empty() && (self.pair.is_none() || !self.ripe().is_empty())
    }

    /// The waiting elements that no element of another array blocks.
    fn ripe(&self) -> Positions {
        let mut ripe = self.waiting.clone();
        if let Some(pair) = &self.pair {
            ripe.take(&pair.left);
        }
        ripe
    }

    /// Takes out the next element that is to come into line.
    fn next(&mut self) -> Option<u32> {
        if self.pair.is_none() {
            return self.waiting.pop_first();
        }
        let position = self.ripe().pop_first()?;
        self.waiting.take(&Positions::of([position].into()));
        Some(position)
    }

    fn note_made(&mut self, position: u32, job: JobId) {
        if let Some(last) = self.numbers.last_mut()
            && last.position + last.count == position
            && last.job.0 + u64::from(last.count) == job.0
        {
            last.count += 1;
        } else {
            self.numbers.push(ElementNumbers { position, job, count: 1 });
        }
        self.queued.insert(job);
    }

    fn note_outcomes(&mut self, outcome: Outcome, count: u32) {
        if count == 0 {
            return;
        }
        let ends = &mut self.ends;
        match outcome.reason {
            EndReason::Completed if outcome.exit_code == 0 => ends.ok += count,
            EndReason::Cancelled
            | EndReason::ShutDown
            | EndReason::Declined
            | EndReason::Requeued { .. }
            | EndReason::NeverAfter(_) => {
                ends.cancelled += count;
            }
            EndReason::Completed
            | EndReason::TaskFailed
            | EndReason::TimedOut
            | EndReason::OutOfMemory
            | EndReason::FrontEndLost
            | EndReason::NodeLost(_) => ends.failed += count,
        }
        let whole = &mut self.outcome;
        whole.service = Nanos(whole.service.0.saturating_add(outcome.service.0));
        let was_well = whole.ended_well();
        if outcome.exit_code > whole.exit_code || (was_well && !outcome.ended_well()) {
            whole.exit_code = outcome.exit_code;
            whole.reason = outcome.reason;
        }
    }
}

impl Arrays {
    /// A job is held; if it is an element, another may come into line in its place.
    pub(crate) fn note_hold(&mut self, job: JobId) {
        if let Some((array, _)) = self.elements.get(&job) {
            self.ready.insert(*array);
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.arrays.len()
    }

    pub(crate) fn contains(&self, array: JobId) -> bool {
        self.arrays.contains_key(&array)
    }

    /// How many arrays are of a class.
    pub(crate) fn of_class(&self, class: &ClassName) -> usize {
        self.arrays.values().filter(|array| array.spec.class == *class).count()
    }

    /// The queue, what is asked, and how many elements are no jobs yet, of each array.
    pub(crate) fn in_queues(&self) -> impl Iterator<Item = (&QueueName, &JobSpec, u32)> {
        let arrays = self.arrays.values();
        arrays.filter_map(|it| Some((it.queue.as_ref()?, &it.spec, it.unmade())))
    }

    /// Elements of an array may come into line.
    pub(crate) fn look_at(&mut self, array: JobId) {
        if self.arrays.contains_key(&array) {
            self.ready.insert(array);
        }
    }

    /// Whether the elements of an array are never queued again once they have run.
    pub(crate) fn run_once(&self, array: JobId) -> bool {
        self.arrays.get(&array).is_some_and(|array| array.no_requeue)
    }

    /// Whether no element of an array will start that has not started by now.
    pub(crate) fn has_started(&self, array: JobId) -> bool {
        self.arrays.get(&array).is_some_and(|it| it.has_started)
    }
}

impl Core {
    /// An order about some elements of an array came in.
    pub(crate) fn on_elements_event(
        &mut self,
        now: ClusterTime,
        event: &Event,
        actions: &mut Vec<Action>,
    ) {
        if let Event::Elements { array, positions, order } = event {
            self.on_elements(now, (*array, Some(positions)), *order, actions);
        }
    }

    /// A user asks for an array. Answered as a request for a job.
    pub(crate) fn on_submit_array(
        &mut self,
        request: RequestId,
        (spec, options, array): (&JobSpec, &SubmitOptions, &ArraySpec),
        actions: &mut Vec<Action>,
    ) {
        let count = array.indices.count();
        let refusal = match spec.deadline {
            Some(_) => Err(Refusal::ArrayWithDeadline),
            None => self
                .admit(spec, options, count)
                .and_then(|()| self.admit_pair(options.after.as_ref(), Some(&array.indices))),
        };
        actions.push(match refusal {
            Ok(()) => Action::Accept { request, job: self.take_on_array(spec, options, array) },
            Err(refusal) => Action::Decline { request, refusal },
        });
    }

    fn take_on_array(
        &mut self,
        spec: &JobSpec,
        options: &SubmitOptions,
        array: &ArraySpec,
    ) -> JobId {
        let id = JobId(self.jobs_made + 1);
        self.jobs_made = id.0;
        let all = Positions::first(array.indices.count());
        let none = Positions::default();
        let (waiting, held, held_by_administrator) = match options.hold {
            None => (all, none.clone(), none),
            Some(HeldBy::Owner) => (none.clone(), all, none),
            Some(HeldBy::Administrator) => (none.clone(), none, all),
        };
        let spec = JobSpec { attached: false, ..spec.clone() };
        let outcome = Outcome { reason: EndReason::Completed, exit_code: 0, service: Nanos::ZERO };
        let made = Array {
            spec,
            queue: options.queue.clone(),
            first: options.first,
            begin: options.begin,
            warning: options.warning,
            checkpoint: options.checkpoint,
            vacate: options.vacate,
            swap: options.swap,
            no_requeue: options.no_requeue,
            args: options.args.clone(),
            array: array.clone(),
            waiting,
            held,
            held_by_administrator,
            pair: None,
            well: Positions::default(),
            queued: BTreeSet::new(),
            started: BTreeSet::new(),
            numbers: Vec::new(),
            ends: ArrayEnds::default(),
            outcome,
            has_started: false,
        };
        self.count_unmade(&made, 0, made.unmade());
        self.arrays.arrays.insert(id, made);
        if let Some(after) = &options.after {
            let (each, whole): (Vec<After>, Vec<After>) =
                after.jobs.iter().copied().partition(|it| it.what == AfterWhat::Each);
            if let Some(&After { job, .. }) = each.first() {
                self.pair_with(id, job, after.stays);
            }
            if !whole.is_empty() {
                self.start_after(id, &AfterJobs { jobs: whole, ..after.clone() });
            }
        }
        if let Some(never) = &options.never {
            self.never_after(id, never);
        }
        self.arrays.look_at(id);
        id
    }

    /// Elements of a new array, or all of it, can never start after a job that has ended.
    fn never_after(&mut self, id: JobId, never: &NeverAfter) {
        let NeverAfter { job: of, elements, stays } = never;
        let (of, stays) = (*of, *stays);
        let Some(failed) = elements else {
            self.wait_in_vain(id, of);
            return;
        };
        let Some(array) = self.arrays.arrays.get_mut(&id) else { return };
        let left = Positions::first(array.array.indices.count()).take(failed);
        if left.is_empty() {
            return;
        }
        array.pair = Some(Pair { of, left: left.clone(), stays });
        self.arrays.news.push_back(PairNews { array: id, positions: left, ok: false });
    }

    /// Whether elements may start after those of another array, one by one.
    pub(crate) fn admit_pair(
        &self,
        after: Option<&AfterJobs>,
        own: Option<&Indices>,
    ) -> Result<(), Refusal> {
        let is_each = |it: &&After| it.what == AfterWhat::Each;
        let Some(after) = after else { return Ok(()) };
        let mut each = after.jobs.iter().filter(is_each);
        let Some(&After { job, .. }) = each.next() else { return Ok(()) };
        let of = self.arrays.arrays.get(&job).map(|array| &array.array.indices);
        let has_all = own.zip(of).is_some_and(|(own, of)| own.positions(of).count() == own.count());
        match has_all && !after.one && each.next().is_none() {
            true => Ok(()),
            false => Err(Refusal::AfterEach { job }),
        }
    }

    fn pair_with(&mut self, id: JobId, of: JobId, stays: bool) {
        let Some(other) = self.arrays.arrays.get(&of) else { return };
        let live: BTreeSet<u32> = self
            .arrays
            .elements
            .values()
            .filter(|(array, _)| *array == of)
            .map(|(_, position)| *position)
            .collect();
        let mut open = Positions::of(live.into_iter().collect());
        [&other.waiting, &other.held, &other.held_by_administrator]
            .into_iter()
            .for_each(|positions| open.add(positions));
        let mut failed = Positions::first(other.array.indices.count());
        failed.take(&open);
        failed.take(&other.well);
        let own = |positions: &Positions| self.like(id, of, positions);
        let (mut left, failed) = (own(&open), own(&failed));
        left.add(&failed);
        if !failed.is_empty() {
            self.arrays.news.push_back(PairNews { array: id, positions: failed, ok: false });
        }
        if let Some(array) = self.arrays.arrays.get_mut(&id) {
            array.pair = Some(Pair { of, left, stays });
        }
        self.arrays.pairs.entry(of).or_default().insert(id);
    }

    /// The elements of an array that have the indices of elements of another one.
    fn like(&self, id: JobId, of: JobId, positions: &Positions) -> Positions {
        let arrays = &self.arrays.arrays;
        let (Some(own), Some(other)) = (arrays.get(&id), arrays.get(&of)) else {
            return Positions::default();
        };
        let (own, other) = (&own.array.indices, &other.array.indices);
        let indices = positions.iter().filter_map(|position| other.at(position));
        Positions::of(indices.filter_map(|index| own.position(index)).collect())
    }

    /// Elements of an array have ended: those that start after them are looked at soon.
    fn note_pairs(&mut self, of: JobId, positions: &Positions, ok: bool) {
        if positions.is_empty() {
            return;
        }
        for array in self.arrays.pairs.get(&of).cloned().unwrap_or_default() {
            let positions = self.like(array, of, positions);
            if !positions.is_empty() {
                self.arrays.news.push_back(PairNews { array, positions, ok });
            }
        }
    }

    /// Lets elements into line whose others have ended well, and ends those that never can start.
    /// Whether there were any.
    pub(crate) fn follow_pairs(&mut self, actions: &mut Vec<Action>) -> bool {
        let mut any = false;
        while let Some(PairNews { array: id, positions, ok }) = self.arrays.news.pop_front() {
            let Some(array) = self.arrays.arrays.get_mut(&id) else { continue };
            let Some(pair) = &mut array.pair else { continue };
            any = true;
            if ok {
                pair.left.take(&positions);
                self.arrays.look_at(id);
            } else if !pair.stays {
                let reason = EndReason::NeverAfter(pair.of);
                let order = ElementOrder::Cancel { reason, at_once: true };
                self.on_elements(self.now, (id, Some(&positions)), order, actions);
            }
        }
        any
    }

    /// An array has ended: it waits for none, and none waits for it any more.
    fn unpair(&mut self, id: JobId, pair: Option<&Pair>) {
        self.arrays.pairs.remove(&id);
        let Some(of) = pair.map(|pair| pair.of) else { return };
        if let Some(others) = self.arrays.pairs.get_mut(&of) {
            others.remove(&id);
            if others.is_empty() {
                self.arrays.pairs.remove(&of);
            }
        }
    }

    /// Elements that are no jobs yet count as jobs that wait, for the limits of their queue.
    fn count_unmade(&mut self, array: &Array, before: u32, after: u32) {
        if let Some(queue) = &array.queue {
            self.queues.count_elements(queue, &array.spec, (before, after));
        }
    }

    /// Whether an array has elements that may come into line now.
    pub(crate) fn can_fill_arrays(&self) -> bool {
        !self.arrays.ready.is_empty() && !self.is_closed() && self.jobs.len() < JOBS_MAX
    }

    /// Brings elements into line where their arrays let them.
    pub(crate) fn fill_arrays(&mut self, now: ClusterTime, actions: &mut Vec<Action>) {
        while self.can_fill_arrays()
            && let Some(id) = self.arrays.ready.pop_first()
        {
            if !self.after.waits(id) && self.fill_array(now, id, actions) {
                self.queue.reconsider();
            }
        }
    }

    /// How many elements of an array are in line. Those that are held are jobs, but not in line.
    fn in_line(&self, array: &Array) -> usize {
        array.queued.iter().filter(|job| !self.holds.contains_key(job)).count()
    }

    /// Whether elements of an array are to become jobs.
    fn takes_more(&self, array: &Array) -> bool {
        array.has_room() && self.in_line(array) <= ELEMENTS_IN_LINE / 2
    }

    /// Whether any element came into line.
    fn fill_array(&mut self, now: ClusterTime, id: JobId, actions: &mut Vec<Action>) -> bool {
        let Some(mut array) = self.arrays.arrays.remove(&id) else { return false };
        let (before, mut any) = (array.unmade(), false);
        let takes_more = self.takes_more(&array);
        let mut in_line = self.in_line(&array);
        while takes_more
            && in_line < ELEMENTS_IN_LINE
            && array.has_room()
            && self.jobs.len() < JOBS_MAX
        {
            let Some(position) = array.next() else { break };
            let (queue, first) = (array.queue.clone(), array.first);
            let (begin, warning, checkpoint) = (array.begin, array.warning, array.checkpoint);
            let (vacate, args) = (array.vacate, array.args.clone());
            let options = SubmitOptions {
                queue,
                first,
                begin,
                warning,
                vacate,
                swap: array.swap,
                no_requeue: array.no_requeue,
                args,
                checkpoint,
                ..SubmitOptions::default()
            };
            let Ok(job) = self.take_on(now, &array.spec, &options) else {
                array.waiting.add(&Positions::of([position].into()));
                break;
            };
            array.note_made(position, job);
            in_line += 1;
            self.arrays.elements.insert(job, (id, position));
            actions.push(Action::ElementMade { array: id, position, job });
            any = true;
        }
        if any {
            // There may be several.
            self.queue.newcomer = None;
        }
        self.count_unmade(&array, before, array.unmade());
        if self.takes_more(&array) && self.jobs.len() >= JOBS_MAX {
            self.arrays.ready.insert(id);
        }
        self.arrays.arrays.insert(id, array);
        any
    }

    /// A job has started; if it is an element, another may come into line.
    pub(crate) fn note_element_start(&mut self, job: JobId) {
        let Some(&(id, _)) = self.arrays.elements.get(&job) else { return };
        if let Some(array) = self.arrays.arrays.get_mut(&id) {
            array.queued.remove(&job);
            array.started.insert(job);
            // Its moment has come, by whatever clock.
            array.begin = None;
        }
        self.arrays.look_at(id);
        self.note_array_start(id);
    }

    /// A job is in line again.
    pub(crate) fn note_element_requeue(&mut self, job: JobId) {
        let Some((id, _)) = self.arrays.elements.get(&job) else { return };
        if let Some(array) = self.arrays.arrays.get_mut(id) {
            array.started.remove(&job);
            array.queued.insert(job);
        }
    }

    /// A job has ended; if it is an element, its array counts it and may end.
    pub(crate) fn note_element_end(
        &mut self,
        job: JobId,
        outcome: Outcome,
        actions: &mut Vec<Action>,
    ) {
        let Some((id, position)) = self.arrays.elements.remove(&job) else { return };
        let (ended, ok) = (Positions::of([position].into()), outcome.ended_well());
        if let Some(array) = self.arrays.arrays.get_mut(&id) {
            array.queued.remove(&job);
            array.started.remove(&job);
            array.note_outcomes(outcome, 1);
            if ok {
                array.well.insert(position);
            }
        }
        self.note_pairs(id, &ended, ok);
        self.arrays.look_at(id);
        self.note_array_start(id);
        self.end_array_if_done(id, actions);
    }

    /// Tells jobs that start after an array's start, once each element has started or ended.
    fn note_array_start(&mut self, id: JobId) {
        let Some(array) = self.arrays.arrays.get_mut(&id) else { return };
        if !array.has_started && array.queued.is_empty() && array.unmade() == 0 {
            array.has_started = true;
            self.after.note_start(id);
        }
    }

    fn end_array_if_done(&mut self, id: JobId, actions: &mut Vec<Action>) {
        if !self.arrays.arrays.get(&id).is_some_and(Array::has_ended) {
            return;
        }
        let Some(array) = self.arrays.arrays.remove(&id) else { return };
        self.arrays.ready.remove(&id);
        self.after.forget(id);
        self.after.note_end(id, array.outcome);
        self.unpair(id, array.pair.as_ref());
        let Array { numbers, ends, outcome, well, .. } = array;
        actions.push(Action::ArrayEnded { array: id, outcome, ends, numbers, well });
    }

    /// An order about elements of an array: those at these positions, or all.
    pub(crate) fn on_elements(
        &mut self,
        now: ClusterTime,
        (id, positions): (JobId, Option<&Positions>),
        order: ElementOrder,
        actions: &mut Vec<Action>,
    ) {
        let Some(array) = self.arrays.arrays.get(&id) else { return };
        let all = Positions::first(array.array.indices.count());
        let wanted = positions.unwrap_or(&all);
        let elements = &self.arrays.elements;
        let is_wanted = |job: &&JobId| {
            elements.get(job).is_some_and(|&(_, position)| wanted.contains(position))
        };
        let live: Vec<JobId> =
            array.queued.iter().chain(&array.started).filter(is_wanted).copied().collect();
        match order {
            ElementOrder::Cancel { reason, at_once } => {
                self.cancel_unmade(id, wanted, reason);
                for job in live {
                    match at_once {
                        false => self.end_job(now, job, reason, actions),
                        true => self.kill_job(now, job, reason, actions),
                    }
                }
                self.note_array_start(id);
                self.end_array_if_done(id, actions);
            }
            ElementOrder::Hold { by } => {
                self.hold_unmade(id, wanted, by);
                live.into_iter().for_each(|job| self.on_hold(job, by));
            }
            ElementOrder::Release { by } => {
                self.release_unmade(id, wanted, by);
                live.into_iter().for_each(|job| self.on_release(job, by));
            }
        }
    }

    fn cancel_unmade(&mut self, id: JobId, wanted: &Positions, reason: EndReason) {
        let Some(mut array) = self.arrays.arrays.remove(&id) else { return };
        let before = array.unmade();
        let of = [&mut array.waiting, &mut array.held, &mut array.held_by_administrator];
        let mut taken = Positions::default();
        of.into_iter().for_each(|positions| taken.add(&positions.take(wanted)));
        let count = taken.count();
        let exit_code = reason.exit_code_or(ENDED_BY_TERM);
        array.note_outcomes(Outcome { reason, exit_code, service: Nanos::ZERO }, count);
        self.count_unmade(&array, before, array.unmade());
        self.arrays.arrays.insert(id, array);
        self.note_pairs(id, &taken, false);
    }

    fn hold_unmade(&mut self, id: JobId, wanted: &Positions, by: HeldBy) {
        let Some(array) = self.arrays.arrays.get_mut(&id) else { return };
        let held = array.waiting.take(wanted);
        match by {
            HeldBy::Owner => array.held.add(&held),
            HeldBy::Administrator => {
                let owners = array.held.take(wanted);
                array.held_by_administrator.add(&held);
                array.held_by_administrator.add(&owners);
            }
        }
    }

    fn release_unmade(&mut self, id: JobId, wanted: &Positions, by: HeldBy) {
        let Some(array) = self.arrays.arrays.get_mut(&id) else { return };
        let released = array.held.take(wanted);
        array.waiting.add(&released);
        if by == HeldBy::Administrator {
            let released = array.held_by_administrator.take(wanted);
            array.waiting.add(&released);
        }
        self.arrays.look_at(id);
    }

    /// An array gets another class: its elements that wait, and those that live.
    pub(crate) fn set_array_class(&mut self, id: JobId, class: &ClassName) {
        let Some(array) = self.arrays.arrays.get_mut(&id) else { return };
        array.spec.class = class.clone();
        let live: Vec<JobId> = array.queued.iter().chain(&array.started).copied().collect();
        live.into_iter().for_each(|job| self.on_set_job_class(job, class));
    }

    /// An array gets another time limit: its elements that wait, and those that live.
    pub(crate) fn set_array_limit(&mut self, id: JobId, limit: Option<Nanos>) {
        let Some(array) = self.arrays.arrays.get_mut(&id) else { return };
        array.spec.time_limit = limit;
        let live: Vec<JobId> = array.queued.iter().chain(&array.started).copied().collect();
        live.into_iter().for_each(|job| self.on_set_time_limit(job, limit));
    }

    /// The instance ends for good: nothing of an array waits for another.
    pub(crate) fn end_arrays(&mut self, now: ClusterTime, actions: &mut Vec<Action>) {
        let order = ElementOrder::Cancel { reason: EndReason::ShutDown, at_once: false };
        for id in self.arrays.arrays.keys().copied().collect::<Vec<JobId>>() {
            self.on_elements(now, (id, None), order, actions);
        }
    }

    /// All arrays that have not ended, by number.
    pub fn arrays(&self) -> impl Iterator<Item = ArrayView<'_>> {
        self.arrays.arrays.iter().map(|(&id, array)| view(id, array))
    }

    /// An array that has not ended.
    #[must_use]
    pub fn array(&self, id: JobId) -> Option<ArrayView<'_>> {
        self.arrays.arrays.get(&id).map(|array| view(id, array))
    }

    /// The array and the position of a job that is an element and has not ended.
    #[must_use]
    pub fn element_of(&self, job: JobId) -> Option<(JobId, u32)> {
        self.arrays.elements.get(&job).copied()
    }

    /// The jobs that an array as a whole starts after, if it waits for any.
    #[must_use]
    pub fn why_array_waits(&self, id: JobId) -> Option<WaitReason> {
        self.why_after(id).or_else(|| {
            let array = self.arrays.arrays.get(&id)?;
            let pair = array.pair.as_ref()?;
            let blocked = !array.waiting.is_empty() && array.ripe().is_empty();
            let after = After { job: pair.of, what: AfterWhat::Each };
            blocked.then_some(WaitReason::After { after, more: 0, one: false })
        })
    }

    /// What is wrong with the arrays, if anything is.
    pub(crate) fn wrong_arrays(&self) -> Option<String> {
        let mut elements = 0;
        for (&id, array) in &self.arrays.arrays {
            if let Some(what) = self.wrong_array(id, array) {
                return Some(format!("array {id} {what}: {array:?}"));
            }
            elements += array.queued.len() + array.started.len();
        }
        (elements != self.arrays.elements.len())
            .then(|| format!("{elements} elements, not {:?}", self.arrays.elements))
    }

    fn wrong_array(&self, id: JobId, array: &Array) -> Option<&'static str> {
        let lives = array.queued.len() + array.started.len();
        let ended = array.ends.ok + array.ends.failed + array.ends.cancelled;
        let all = u32::try_from(lives).ok()? + ended + array.unmade();
        if all != array.array.indices.count() {
            return Some("has lost elements");
        }
        if array.array.limit.is_some_and(|limit| lives > limit as usize) {
            return Some("has more elements than its limit");
        }
        if array.has_ended() || array.numbers.iter().any(|it| it.count == 0) {
            return Some("has ended");
        }
        let all = array.queued.iter().map(|job| (job, true));
        for (job, queued) in all.chain(array.started.iter().map(|job| (job, false))) {
            let is_queued = self.jobs.get(job).map(|it| matches!(it.phase, Phase::Queued { .. }));
            let of = self.arrays.elements.get(job).map(|(of, _)| *of);
            if is_queued != Some(queued) || of != Some(id) {
                return Some("has another job than it knows");
            }
        }
        if let Some(pair) = &array.pair {
            let other = self.arrays.arrays.get(&pair.of);
            let well = other.map(|other| self.like(id, pair.of, &other.well));
            let mut both = well.clone().unwrap_or_default();
            if !both.take(&pair.left).is_empty() {
                return Some("has elements wait that may start");
            }
            let mut ripe = array.ripe();
            ripe.take(&well.unwrap_or_else(|| ripe.clone()));
            if !ripe.is_empty() {
                return Some("has elements that may start too early");
            }
            if !self.arrays.pairs.get(&pair.of).is_some_and(|all| all.contains(&id))
                && other.is_some()
            {
                return Some("does not hear of those before");
            }
        }
        let is_open = !self.after.waits(id) && !self.is_closed();
        if is_open && self.takes_more(array) && self.jobs.len() < JOBS_MAX {
            return Some("could bring an element into line");
        }
        None
    }
}

const fn view(id: JobId, array: &Array) -> ArrayView<'_> {
    ArrayView {
        id,
        spec: &array.spec,
        queue: array.queue.as_ref(),
        first: array.first,
        array: &array.array,
        waiting: &array.waiting,
        held: &array.held,
        held_by_administrator: &array.held_by_administrator,
        queued: &array.queued,
        started: &array.started,
        numbers: array.numbers.as_slice(),
        ends: array.ends,
        service: array.outcome.service,
    }
}

/// The numbers of an array's elements, to look many of them up.
#[derive(Debug)]
pub struct NumberIndex(Vec<ElementNumbers>);

impl NumberIndex {
    /// Of runs in any order.
    #[must_use]
    pub fn of(mut runs: Vec<ElementNumbers>) -> Self {
        runs.sort_unstable_by_key(|run| run.position);
        Self(runs)
    }

    /// The job that the element at a position is or was.
    #[must_use]
    pub fn job(&self, position: u32) -> Option<JobId> {
        let behind = self.0.partition_point(|run| run.position <= position);
        let run = self.0[..behind].last()?;
        let offset = position - run.position;
        (offset < run.count).then(|| JobId(run.job.0 + u64::from(offset)))
    }
}

impl ArrayView<'_> {
    /// How many elements are no jobs yet.
    #[must_use]
    pub fn unmade(&self) -> u32 {
        self.waiting.count() + self.held.count() + self.held_by_administrator.count()
    }

    /// Where the element at each position stands.
    pub fn states(&self) -> impl Fn(u32) -> ElementState + '_ {
        let index = NumberIndex::of(self.numbers.to_vec());
        move |position| {
            if self.waiting.contains(position) {
                return ElementState::Waiting;
            }
            if self.held.contains(position) || self.held_by_administrator.contains(position) {
                return ElementState::Held;
            }
            index.job(position).map_or(ElementState::Cancelled, ElementState::Job)
        }
    }
}
