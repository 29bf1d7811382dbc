//! Job arrays: their elements as jobs of their own, and what users ask of them.
//!
//! The core says which element becomes a job and when. Here it gets what the array has: its user,
//! its name, its launch, which is kept once. What differs is filled in when it is looked at: the
//! variables of an element, and `%A` and `%a` in the names of its files.

use super::driver::{Connection, Driver, Kind};
use super::error::Problem;
use super::jobs::Entry;
use super::notify::of_element;
use super::report;
use super::requests::Forbidden;
use serde_bytes::ByteBuf;
use tutti_core::{
    ArrayEnds, ArrayView, ElementNumbers, ElementOrder, ElementState, Event, HeldBy, NumberIndex,
};
use tutti_journal::Job;
use tutti_types::{ArraySpec, EndReason, Indices, JobId, Nanos, Outcome, Positions};
use tutti_wire::code::Code;
use tutti_wire::launch::{LaunchSpec, Stdio};
use tutti_wire::limits::{ARRAY_NUMBERS_MAX, ELEMENTS_FOUND_MAX, SHOWN_INDICES_BYTES_MAX};
use tutti_wire::local::{ArrayOrder, JobRequest, Reply};
use tutti_wire::pattern::fill_in_element;
use tutti_wire::report::{ArrayReport, ElementsReport, JobReport};

/// The exit code of an element that was cancelled before it was a job.
const ENDED_BY_TERM: u8 = 128 + 15;

/// What tells an element from the others of its array.
#[derive(Clone, Copy, Debug)]
pub(super) struct Element {
    pub(super) array: JobId,
    pub(super) index: u32,
    position: u32,
    count: u32,
    min: u32,
    max: u32,
    step: u32,
}

impl Element {
    fn of(array: &ArrayView<'_>, position: u32) -> Option<Self> {
        let indices = &array.array.indices;
        Some(Self {
            array: array.id,
            index: indices.at(position)?,
            position,
            count: indices.count(),
            min: indices.min(),
            max: indices.max(),
            step: indices.step(),
        })
    }

    /// Whether it has the lowest index.
    pub(super) const fn is_first(self) -> bool {
        self.index == self.min
    }

    pub(super) const fn report(self) -> ArrayReport {
        ArrayReport { job: self.array, index: Some(self.index), elements: None }
    }

    /// Fills in what is the element's own.
    pub(super) fn fill_in(self, launch: &mut LaunchSpec) {
        let lines = launch.environment.iter().find_map(|it| it.strip_prefix(LINES));
        let line = lines.map(|lines| {
            let line = lines.split(|&byte| byte == b'\n').nth(self.position as usize);
            [b"TUTTI_LINE=", line.unwrap_or_default()].concat()
        });
        let is_own = |text: &ByteBuf| OWN.iter().any(|own| text.starts_with(own));
        launch.environment.retain(|text| !is_own(text));
        let values = [
            ("JOB", "JOB_ID", self.array.0),
            ("INDEX", "TASK_ID", self.index.into()),
            ("COUNT", "TASK_COUNT", self.count.into()),
            ("MIN", "TASK_MIN", self.min.into()),
            ("MAX", "TASK_MAX", self.max.into()),
            ("STEP", "TASK_STEP", self.step.into()),
        ];
        for (ours, theirs, value) in values {
            launch.environment.push(format!("TUTTI_ARRAY_{ours}={value}").into_bytes().into());
            if launch.slurm {
                let text = format!("SLURM_ARRAY_{theirs}={value}");
                launch.environment.push(text.into_bytes().into());
            }
        }
        launch.environment.extend(line.map(ByteBuf::from));
        if let Stdio::Files { input, output, error, .. } = &mut launch.stdio {
            for file in input.iter_mut().chain([output]).chain(error) {
                *file = fill_in_element(file, self.array, self.index).into();
            }
        }
    }
}

/// The variable with the lines of all elements, in what is kept of an array.
const LINES: &[u8] = b"TUTTI_LINES=";

/// How the variables begin that only elements have.
const OWN: [&[u8]; 4] = [b"TUTTI_ARRAY_", b"SLURM_ARRAY_", LINES, b"TUTTI_LINE="];

/// Drops what a submitter inside an element of an array has inherited of it.
pub(super) fn drop_inherited(request: &mut JobRequest) {
    let is_array = request.array.is_some();
    let stays = |text: &ByteBuf| is_array && text.starts_with(LINES);
    let is_own = |text: &ByteBuf| OWN.iter().any(|own| text.starts_with(own));
    request.launch.environment.retain(|text| !is_own(text) || stays(text));
}

/// What is wrong with a request for an array, if anything is.
pub(super) fn why_no_array(request: &JobRequest) -> Option<Problem> {
    let array = request.array.as_ref()?;
    let what = if array.limit == Some(0) {
        "an array with a limit of 0 would never start; give at least %1"
    } else if matches!(request.launch.stdio, Stdio::FrontEnd { .. }) {
        "an array has no front end; submit it with `tutti submit` or `tutti batch`"
    } else if !request.launch.adopt.is_empty() {
        "processes that are adopted are no array"
    } else {
        return None;
    };
    Some(Problem::new(Code::Improper, what))
}

impl Driver {
    /// A job or an array that has not ended.
    pub(super) fn entry(&self, job: JobId) -> Option<&Entry> {
        self.jobs.get(&job).or_else(|| self.arrays.get(&job)).map(Box::as_ref)
    }

    /// The same, to change it.
    pub(super) fn entry_mut(&mut self, job: JobId) -> Option<&mut Entry> {
        let found = self.jobs.get_mut(&job).or_else(|| self.arrays.get_mut(&job));
        found.map(Box::as_mut)
    }

    /// What tells a job from the others of its array, if it is of one.
    pub(super) fn element(&self, job: JobId) -> Option<Element> {
        let (array, position) = self.core.element_of(job)?;
        Element::of(&self.core.array(array)?, position)
    }

    /// An element of an array came into line: it is a job from now on.
    pub(super) fn on_element_made(&mut self, array: JobId, job: JobId) {
        let element = self.element(job);
        let now = self.now();
        let Some(view) = self.core.job(job, now) else { return };
        let Some(whole) = self.arrays.get(&array) else { return };
        let Some(shelf) = self.users.shelves.get_mut(&whole.owner.uid()) else { return };
        let launch = shelf.share(&whole.terms.launch);
        let made = Job {
            job,
            key: None,
            user: whole.owner.user.clone(),
            credentials: whole.owner.credentials.clone(),
            name: launch.name().to_owned(),
            launch: launch.segments(),
            accepted: whole.times.accepted,
            accepted_ms: whole.times.accepted_ms,
            notify: of_element(whole.notify.as_deref(), element),
        };
        self.memory.journal.note_job(&made);
        let shown = self.shown_of(job, view.spec, made.accepted_ms);
        let mut entry =
            Entry { shown, ..Entry::new(made, (view.spec, view.first), view.queue, launch) };
        entry.terms.be_element(element);
        self.jobs.insert(job, Box::new(entry));
        self.job_submitted(job);
    }

    /// None of the elements of an array is left.
    pub(super) fn on_array_ended(
        &mut self,
        array: JobId,
        outcome: Outcome,
        ends: ArrayEnds,
        (numbers, well): (&[ElementNumbers], &Positions),
    ) {
        let Some(entry) = self.arrays.remove(&array) else { return };
        let reason = match outcome.reason {
            EndReason::NodeLost(node) => self.how_it_went(node),
            reason => reason.to_string(),
        };
        let mut report = report::ended_job(array, &entry, outcome, reason, self.now());
        report.detail = said(ends);
        report.usage = None;
        report.cpu_ms = None;
        let spec = entry.terms.array.as_ref().map(ToString::to_string).unwrap_or_default();
        let count = entry.terms.array.as_ref().map_or(0, |array| array.indices.count());
        let numbers = numbers.iter().take(ARRAY_NUMBERS_MAX);
        let ArrayEnds { ok, failed, cancelled } = ends;
        let elements = ElementsReport {
            spec,
            count,
            ok,
            failed,
            cancelled,
            numbers: numbers.map(|it| (it.position, it.job.0, it.count)).collect(),
            well: Some(well.runs().collect()).filter(|it: &Vec<_>| it.len() <= ARRAY_NUMBERS_MAX),
            ..ElementsReport::default()
        };
        report.array = Some(ArrayReport { job: array, index: None, elements: Some(elements) });
        let ended = entry.ended(report.clone(), self.now(), outcome, Vec::new());
        self.let_go(ended.uid, entry.terms.launch);
        self.note_end(&ended, None);
        self.job_ended(&ended, entry.notify.as_deref());
        self.ends.ended.push(ended);
        self.watch_history();
        for token in entry.clients.into_all() {
            if let Some(Connection { kind: Kind::Client(client), .. }) =
                self.intake.connections.get_mut(&token)
            {
                client.forget(array);
            }
            let (detail, report) = (report.detail.clone(), Box::new(report.clone()));
            self.reply(token, &Reply::Ended { job: array, outcome, detail, report });
        }
    }

    /// What tables show of an array that has not ended. `shown`: what they show of a live job.
    pub(super) fn array_report(
        &self,
        array: JobId,
        shown: impl Fn(JobId) -> Option<JobReport>,
    ) -> Option<JobReport> {
        let (entry, view) = (self.arrays.get(&array)?, self.core.array(array)?);
        let outcome = Outcome { reason: EndReason::Completed, exit_code: 0, service: Nanos::ZERO };
        let now = self.now();
        let report = report::ended_job(array, entry, outcome, String::new(), now);
        let elements = elements_of(&view);
        let (reason, wait) = match elements.unmade == 0 && elements.queued == 0 {
            true => (String::new(), None),
            false => self.why_elements_wait(&view, shown),
        };
        let live = view.started.iter().map(|&job| self.core.service(job).0);
        let service = live.fold(view.service.0, u64::saturating_add);
        Some(JobReport {
            state: if elements.running > 0 { "running" } else { "queued" }.into(),
            service_ms: service / 1_000_000,
            reason,
            wait,
            code: None,
            detail: String::new(),
            age_s: now.since(entry.times.accepted).0 / 1_000_000_000,
            usage: None,
            cpu_ms: None,
            exit_code: None,
            suspended_ms: 0,
            array: Some(ArrayReport { job: array, index: None, elements: Some(elements) }),
            ..report
        })
    }

    /// Why elements of an array wait, and the word for it: of those that are no jobs yet, if there
    /// are any.
    fn why_elements_wait(
        &self,
        view: &ArrayView<'_>,
        shown: impl Fn(JobId) -> Option<JobReport>,
    ) -> (String, Option<String>) {
        let said = |reason: String, word: &str| (reason, Some(word.to_owned()));
        if let Some(why) = self.core.why_array_waits(view.id) {
            return said(why.to_string(), why.word());
        }
        let lives = view.queued.len() + view.started.len();
        match view.array.limit {
            _ if view.waiting.is_empty() && !view.held_by_administrator.is_empty() => {
                said("held by an administrator".into(), "held-by-administrator")
            }
            _ if view.waiting.is_empty() && !view.held.is_empty() => {
                said("held; `tutti release` puts them in line".into(), "held")
            }
            Some(limit) if lives >= limit as usize && view.queued.is_empty() => {
                said(format!("for its limit of {limit} elements at once"), "array-limit")
            }
            // The others wait behind the first one in line.
            _ => match view.queued.first().and_then(|&job| shown(job)) {
                Some(first) => (first.reason, first.wait),
                None => said("behind other jobs in line".into(), "line"),
            },
        }
    }

    /// An order about some elements of an array.
    pub(super) fn on_elements(
        &mut self,
        token: u64,
        uid: u32,
        (array, indices): (JobId, Option<&Indices>),
        order: ArrayOrder,
    ) {
        let mut positions = match self.positions_of(uid, array, indices) {
            Ok(positions) => positions,
            Err(problem) => return self.fail(token, problem),
        };
        if order == ArrayOrder::CancelWaiting
            && let Some(view) = self.core.array(array)
        {
            positions = positions.take(&unmade(&view));
        }
        if order == ArrayOrder::CancelHeld
            && let Some(view) = self.core.array(array)
        {
            let mut held = view.held.clone();
            held.add(view.held_by_administrator);
            positions = positions.take(&held);
        }
        let by = self.acts_as(uid, array);
        let by_any = if self.admin(uid).is_ok() { HeldBy::Administrator } else { by };
        let reason = EndReason::Cancelled;
        let order = match order {
            ArrayOrder::Cancel { at_once } => ElementOrder::Cancel { reason, at_once },
            ArrayOrder::CancelWaiting | ArrayOrder::CancelHeld => {
                ElementOrder::Cancel { reason, at_once: false }
            }
            ArrayOrder::Hold => ElementOrder::Hold { by },
            ArrayOrder::Release => ElementOrder::Release { by: by_any },
        };
        self.apply(&Event::Elements { array, positions, order });
        self.reply(token, &Reply::Done);
    }

    fn positions_of(
        &self,
        uid: u32,
        array: JobId,
        indices: Option<&Indices>,
    ) -> Result<Positions, Problem> {
        self.owned(uid, array)?;
        let view = self.core.array(array).ok_or_else(|| no_array(array))?;
        wanted(array, &view.array.indices, indices)
    }

    /// The jobs that elements of an array are or were.
    pub(super) fn on_find_elements(&mut self, token: u64, array: JobId, indices: Option<&Indices>) {
        match self.find_elements(array, indices) {
            Ok(reply) => self.reply(token, &reply),
            Err(problem) => self.fail(token, problem),
        }
    }

    fn find_elements(&mut self, array: JobId, indices: Option<&Indices>) -> Result<Reply, Problem> {
        if let Some(view) = self.core.array(array) {
            let all = &view.array.indices;
            let positions = wanted(array, all, indices)?;
            let (mut jobs, mut waiting, mut never) = (Vec::new(), 0, None);
            let state = view.states();
            for (position, index) in all.named(&positions) {
                match state(position) {
                    ElementState::Job(job) => jobs.push((index, job)),
                    ElementState::Waiting | ElementState::Held => waiting += 1,
                    ElementState::Cancelled => never = Some(ENDED_BY_TERM),
                }
            }
            return found(jobs, waiting, never);
        }
        let report = match self.ends.ended.get(array) {
            Some(ended) => ended.report.clone(),
            None => {
                self.store();
                let found = self.memory.journal.ended_job(array);
                self.say_left_out();
                found?.ok_or_else(|| Problem::from(Forbidden::NoJob(array)))?.report
            }
        };
        let exit_code = report.exit_code;
        let elements = report.array.and_then(|it| it.elements).ok_or_else(|| no_array(array))?;
        of_ended(array, &elements, exit_code, indices)
    }

    /// The live jobs of an array, for orders that only live jobs can follow.
    pub(super) fn live_elements(&self, array: JobId) -> Option<Vec<JobId>> {
        let view = self.core.array(array)?;
        Some(view.queued.iter().chain(view.started).copied().collect())
    }
}

/// The jobs that elements of an array were that has ended, with this exit code.
fn of_ended(
    array: JobId,
    elements: &ElementsReport,
    exit_code: Option<u8>,
    indices: Option<&Indices>,
) -> Result<Reply, Problem> {
    let spec: ArraySpec = elements.spec.parse().map_err(|_| no_array(array))?;
    let positions = wanted(array, &spec.indices, indices)?;
    let run = |&(position, job, count): &(u32, u64, u32)| {
        let job = JobId(job);
        ElementNumbers { position, job, count }
    };
    let numbers = NumberIndex::of(elements.numbers.iter().map(run).collect());
    let (mut jobs, mut never) = (Vec::new(), None);
    for (position, index) in spec.indices.named(&positions) {
        match numbers.job(position) {
            Some(job) => jobs.push((index, job)),
            None if indices.is_some() && elements.numbers.len() >= ARRAY_NUMBERS_MAX => {
                return Err(not_kept(array, index));
            }
            // If none ever began, all ended as the array did.
            None if elements.numbers.is_empty() => never = exit_code,
            None => never = Some(ENDED_BY_TERM),
        }
    }
    found(jobs, 0, never)
}

fn found(jobs: Vec<(u32, JobId)>, waiting: u32, never: Option<u8>) -> Result<Reply, Problem> {
    if jobs.len() > ELEMENTS_FOUND_MAX {
        let reason = format!(
            "{} elements have begun, and an answer lists at most {ELEMENTS_FOUND_MAX}; name a part \
             of them, such as 7_[0-99]",
            jobs.len()
        );
        return Err(Problem::new(Code::TooMuchAsked, reason));
    }
    Ok(Reply::Elements { jobs, waiting, never })
}

fn wanted(array: JobId, all: &Indices, indices: Option<&Indices>) -> Result<Positions, Problem> {
    match indices {
        None => Ok(Positions::first(all.count())),
        Some(indices) => positions_in(array, all, indices),
    }
}

fn positions_in(array: JobId, all: &Indices, indices: &Indices) -> Result<Positions, Problem> {
    let positions = all.positions(indices);
    if positions.is_empty() {
        let reason =
            format!("array {array} has no element {indices}; its indices are {}", cut(all));
        return Err(Problem::new(Code::NoJob, reason));
    }
    Ok(positions)
}

/// An element of an array that has ended, of which no number is kept.
fn not_kept(array: JobId, index: u32) -> Problem {
    let reason = format!(
        "the number of element {array}_{index} is not known any more: array {array} has ended, and \
         its elements came into line in more than {ARRAY_NUMBERS_MAX} runs; `tutti history` lists \
         the jobs that have ended"
    );
    Problem::new(Code::NoJob, reason)
}

fn no_array(job: JobId) -> Problem {
    Problem::new(Code::NoJob, format!("job {job} is no array; `tutti ps {job}` shows it"))
}

/// As much of indices as a line of a table has room for.
fn cut(indices: &Indices) -> String {
    cut_to(indices, &Positions::first(indices.count())).unwrap_or_default()
}

fn cut_to(indices: &Indices, positions: &Positions) -> Option<String> {
    // A range is two bytes with its comma, at least.
    indices.shown(positions, SHOWN_INDICES_BYTES_MAX / 2 + 1).map(shortened)
}

/// As much of a list of indices as a line of a table has room for.
pub(super) fn shortened(mut text: String) -> String {
    if text.len() > SHOWN_INDICES_BYTES_MAX {
        text.truncate(SHOWN_INDICES_BYTES_MAX);
        text.truncate(text.rfind(',').unwrap_or(text.len()));
        text.push_str(",...");
    }
    text
}

/// The elements of an array that are no jobs yet.
fn unmade(view: &ArrayView<'_>) -> Positions {
    let mut unmade = view.waiting.clone();
    unmade.add(view.held);
    unmade.add(view.held_by_administrator);
    unmade
}

/// How many elements of an array are in which state.
fn elements_of(view: &ArrayView<'_>) -> ElementsReport {
    let unmade = unmade(view);
    let limit = view.array.limit.map_or_else(String::new, |limit| format!("%{limit}"));
    let count = |jobs: usize| u32::try_from(jobs).unwrap_or(u32::MAX);
    ElementsReport {
        spec: format!("{}{limit}", cut(&view.array.indices)),
        count: view.array.indices.count(),
        limit: view.array.limit,
        waiting: cut_to(&view.array.indices, &unmade),
        unmade: unmade.count(),
        held: view.held.count() + view.held_by_administrator.count(),
        queued: count(view.queued.len()),
        running: count(view.started.len()),
        ok: view.ends.ok,
        failed: view.ends.failed,
        cancelled: view.ends.cancelled,
        numbers: Vec::new(),
        well: None,
    }
}

/// How the elements of an array ended, in words.
fn said(ends: ArrayEnds) -> String {
    let ArrayEnds { ok, failed, cancelled } = ends;
    format!("elements: {ok} ended well, {failed} failed, {cancelled} cancelled")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(elements: &ElementsReport, exit_code: u8, indices: &str) -> Result<Reply, Problem> {
        let indices: Indices = indices.parse().unwrap();
        of_ended(JobId(7), elements, Some(exit_code), Some(&indices))
    }

    fn of(spec: &str, numbers: Vec<(u32, u64, u32)>) -> ElementsReport {
        ElementsReport { spec: spec.into(), numbers, ..ElementsReport::default() }
    }

    #[test]
    fn elements_that_were_no_jobs_have_an_exit_code() {
        let found = asked(&of("10-19", vec![(0, 30, 5)]), 3, "12,18").ok();
        let expected =
            Reply::Elements { jobs: vec![(12, JobId(32))], waiting: 0, never: Some(143) };
        assert_eq!(found, Some(expected));
        let found = asked(&of("10-19", Vec::new()), 120, "12").ok();
        let expected = Reply::Elements { jobs: Vec::new(), waiting: 0, never: Some(120) };
        assert_eq!(found, Some(expected), "it never started, as its array");
    }

    #[test]
    fn an_element_whose_number_is_not_kept_is_an_error() {
        let run = |it: u32| (it * 2, u64::from(it) * 3 + 8, 1);
        let most = u32::try_from(ARRAY_NUMBERS_MAX).unwrap();
        let elements = of("0-99999", (0..most).map(run).collect());
        assert!(asked(&elements, 0, "0,2,13998").is_ok());
        let reason = asked(&elements, 0, "0,14000").err().map(|problem| format!("{problem:?}"));
        assert!(reason.is_some_and(|it| it.contains("7_14000 is not known any more")));
        let all = of_ended(JobId(7), &elements, Some(0), None);
        assert!(matches!(all, Ok(Reply::Elements { jobs, .. }) if jobs.len() == ARRAY_NUMBERS_MAX));
    }
}
