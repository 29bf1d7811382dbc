//! Jobs as Slurm's tables have them.

use crate::cmd::job_range::{Found, find_elements};
use crate::cmd::{ask_journal, ask_of_the_past};
use nix::unistd::User;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};
use tutti_client::ask::{Asker, all_pages, ask, ask_each, jobs_of, unexpected};
use tutti_node::codes::code_of;
use tutti_node::platform::time::wall_ms;
use tutti_types::{ArraySpec, Indices, JobId};
use tutti_wire::code::Code;
use tutti_wire::history::{EndedQuery, EndedReport, Ending, JobPart};
use tutti_wire::local::{Reply, Request};
use tutti_wire::report::{ArrayReport, ElementsReport, JobReport};
use tutti_wire::show::{JobDetails, ShowReport, StepReport};

/// A state in Slurm's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum State {
    Pending,
    Running,
    Suspended,
    Completing,
    Completed,
    Cancelled,
    Failed,
    Timeout,
    NodeFail,
    OutOfMemory,
}

impl State {
    pub(super) const ALL: [Self; 10] = [
        Self::Pending,
        Self::Running,
        Self::Suspended,
        Self::Completing,
        Self::Completed,
        Self::Cancelled,
        Self::Failed,
        Self::Timeout,
        Self::NodeFail,
        Self::OutOfMemory,
    ];

    /// Its word and its letters.
    pub(super) const fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::Pending => ("PENDING", "PD"),
            Self::Running => ("RUNNING", "R"),
            Self::Suspended => ("SUSPENDED", "S"),
            Self::Completing => ("COMPLETING", "CG"),
            Self::Completed => ("COMPLETED", "CD"),
            Self::Cancelled => ("CANCELLED", "CA"),
            Self::Failed => ("FAILED", "F"),
            Self::Timeout => ("TIMEOUT", "TO"),
            Self::NodeFail => ("NODE_FAIL", "NF"),
            Self::OutOfMemory => ("OUT_OF_MEMORY", "OOM"),
        }
    }

    /// Of a word of Tutti's for a job that has not ended. One that waits for its turn runs: only a
    /// user's order and a preemption suspend a job.
    fn of_live(word: &str) -> Self {
        match word {
            "queued" | "checkpointed" => Self::Pending,
            "suspended" | "swapped" | "preempting" | "preempted" | "resuming" => Self::Suspended,
            "ending" | "checkpointing" => Self::Completing,
            _ => Self::Running,
        }
    }

    /// Of a job that has not ended. What is shown of an array itself are its elements that wait.
    fn of_report(report: &JobReport) -> Self {
        match report.is_whole_array() {
            true => Self::Pending,
            false => Self::of_live(&report.state),
        }
    }

    const fn of_ending(ending: Ending) -> Self {
        match ending {
            Ending::Completed => Self::Completed,
            Ending::Failed => Self::Failed,
            Ending::TimedOut => Self::Timeout,
            Ending::OutOfMemory => Self::OutOfMemory,
            Ending::Lost => Self::NodeFail,
            Ending::Cancelled | Ending::Abandoned | Ending::ShutDown | Ending::NeverStarted => {
                Self::Cancelled
            }
        }
    }

    pub(super) const fn has_ended(self) -> bool {
        !matches!(self, Self::Pending | Self::Running | Self::Suspended | Self::Completing)
    }
}

/// Exit status and signal of what ran out of memory.
pub(super) const OUT_OF_MEMORY: &str = "0:125";

/// States that Slurm has and no job here is ever in.
const OTHER_STATES: [&str; 26] = [
    "BF",
    "BOOT_FAIL",
    "CF",
    "CONFIGURING",
    "DL",
    "DEADLINE",
    "PR",
    "PREEMPTED",
    "RD",
    "RESV_DEL_HOLD",
    "RF",
    "REQUEUE_FED",
    "RH",
    "REQUEUE_HOLD",
    "RQ",
    "REQUEUED",
    "RS",
    "RESIZING",
    "RV",
    "REVOKED",
    "SI",
    "SIGNALING",
    "SE",
    "SPECIAL_EXIT",
    "SO",
    "STAGE_OUT",
];

/// The states that a list names; `None`: all.
///
/// # Errors
/// If a word is no state.
pub(super) fn states(items: &[String]) -> Result<Option<Vec<State>>, String> {
    let mut found = Vec::new();
    for item in items {
        let word = item.to_ascii_uppercase();
        if word == "ALL" {
            return Ok(None);
        }
        match State::ALL
            .into_iter()
            .find(|state| [state.words().0, state.words().1].contains(&&*word))
        {
            Some(state) => found.push(state),
            None if OTHER_STATES.contains(&&*word) || ["ST", "STOPPED"].contains(&&*word) => {}
            None => return Err(format!("Invalid job state specified: {item}")),
        }
    }
    Ok(Some(found))
}

/// A job, with what tables of Slurm's show.
#[derive(Clone, Debug)]
pub(super) struct Job {
    /// Apart: a list is sorted by moving jobs, and a report is large.
    pub(super) report: Box<JobReport>,
    pub(super) state: State,
    pub(super) submitted_ms: u64,
    pub(super) started_ms: Option<u64>,
    pub(super) ended_ms: Option<u64>,
    pub(super) uid: Option<u32>,
    /// What only its owner sees, where that was asked for.
    pub(super) details: Option<Box<JobDetails>>,
    /// The steps that it started after its first one, where that was asked for.
    pub(super) steps: Vec<StepReport>,
    /// How much was asked for.
    pub(super) part: JobPart,
}

/// A job, an array or elements of one, as an argument names them: `7`, `7_3`, `7_[10-20]`, and
/// `7.batch` or `7_3.0` of their steps.
#[derive(Clone, Debug)]
pub(super) struct Named {
    pub(super) job: JobId,
    pub(super) indices: Option<Indices>,
}

impl Named {
    pub(super) fn of(text: &str) -> Option<Self> {
        let Some((array, indices)) = text.split_once('_') else {
            return number(text).map(|job| Self { job, indices: None });
        };
        let indices = indices.split('.').next().unwrap_or(indices);
        let list = indices.strip_prefix('[').and_then(|list| list.strip_suffix(']'));
        let spec: ArraySpec = list.unwrap_or(indices).parse().ok()?;
        Some(Self { job: number(array)?, indices: Some(spec.indices) })
    }

    /// Whether a job in a list is meant.
    pub(super) fn has(&self, job: &Job) -> bool {
        match &self.indices {
            None => job.report.is_or_is_of(self.job),
            Some(indices) => job.report.array.as_ref().is_some_and(|array| {
                let is_one = match (array.index, &array.elements) {
                    (Some(index), _) => indices.position(index).is_some(),
                    (None, Some(elements)) => are_waiting(elements, indices),
                    (None, None) => false,
                };
                array.job == self.job && is_one
            }),
        }
    }

    /// The jobs that are meant, ended or not; of an array that is named, its elements, and its own
    /// line while some are not in line.
    ///
    /// # Errors
    /// If the instance does not answer.
    pub(super) fn all(&self) -> anyhow::Result<Vec<Job>> {
        let whole = match self.indices {
            None => one(self.job)?,
            Some(_) => None,
        };
        if let Some(job) = whole.as_ref().filter(|job| !job.report.is_whole_array()) {
            return Ok(vec![job.clone()]);
        }
        if whole.is_none() && self.indices.is_none() {
            return Ok(Vec::new());
        }
        let Found { jobs: found, waiting, .. } = match find_elements(self.job, self.indices.clone())
        {
            Ok(found) => found,
            Err(error) if super::has_no_instance(&error) || code_of(&error) == Code::NoJob => {
                Found { jobs: Vec::new(), waiting: 0, never: None }
            }
            Err(error) => return Err(error),
        };
        let whole = match whole {
            None if waiting > 0 => one(self.job)?,
            whole => whole,
        };
        let mut all = several(found.into_iter().map(|(_, job)| job))?;
        all.extend(whole.filter(Job::has_waiting_elements));
        Ok(all)
    }
}

/// Whether some of these indices are of elements that wait. What tables show of them may be cut.
fn are_waiting(elements: &ElementsReport, indices: &Indices) -> bool {
    let Some(waiting) = &elements.waiting else { return false };
    let known = waiting.strip_suffix(",...");
    let shown: Option<Indices> = known.unwrap_or(waiting).parse().ok();
    let is_beyond = |shown: &Indices| known.is_some() && indices.max() > shown.max();
    shown.is_some_and(|shown| !shown.positions(indices).is_empty() || is_beyond(&shown))
}

impl Job {
    pub(super) const fn id(&self) -> JobId {
        self.report.job
    }

    /// The number of its array, and its index, or the indices that wait.
    pub(super) fn array(&self) -> Option<(JobId, String)> {
        let array = self.report.array.as_ref()?;
        let index = array.index.map(|index| index.to_string());
        let waiting = || {
            let elements = array.elements.as_ref()?;
            let limit = elements.limit.map_or_else(String::new, |limit| format!("%{limit}"));
            elements.waiting.as_ref().map(|waiting| format!("{waiting}{limit}"))
        };
        Some((array.job, index.or_else(waiting)?))
    }

    /// Whether it is an array itself that has nothing of its own to show: its elements are jobs.
    pub(super) fn is_shown_by_elements(&self) -> bool {
        self.report.is_whole_array() && !self.has_waiting_elements()
    }

    /// Whether it is an array with elements that are not in line.
    fn has_waiting_elements(&self) -> bool {
        let elements = self.report.array.as_ref().and_then(|array| array.elements.as_ref());
        elements.is_some_and(|elements| elements.waiting.is_some())
    }

    /// An array as a job for each element that waits, as far as their indices are known; what is
    /// beyond stays one. Any other job is itself.
    pub(super) fn unfolded(self) -> Vec<Self> {
        let of = self.report.array.as_ref().filter(|_| self.has_waiting_elements());
        let elements = of.and_then(|array| array.elements.as_ref());
        let Some(waiting) = elements.and_then(|it| it.waiting.clone()) else { return vec![self] };
        let known = waiting.strip_suffix(",...");
        let Ok(indices) = known.unwrap_or(&waiting).parse::<Indices>() else { return vec![self] };
        let element = |index| {
            let mut job = self.clone();
            if let Some(array) = &mut job.report.array {
                (array.index, array.elements) = (Some(index), None);
            }
            job
        };
        let mut all: Vec<Self> = indices.iter().map(element).collect();
        if known.is_some() {
            all.push(self);
        }
        all
    }

    /// As Slurm shows it: `7`, `7_3`, `7_[10-99%10]`.
    pub(super) fn shown_id(&self) -> String {
        if let Some(ArrayReport { job, index: Some(index), .. }) = self.report.array {
            return format!("{job}_{index}");
        }
        match self.array() {
            Some((array, index)) if self.has_waiting_elements() => format!("{array}_[{index}]"),
            Some((array, index)) => format!("{array}_{index}"),
            None => self.id().to_string(),
        }
    }

    fn live(report: JobReport, now_ms: u64) -> Self {
        let state = State::of_report(&report);
        let submitted_ms = now_ms.saturating_sub(report.age_s.saturating_mul(1000));
        let started_ms = (state != State::Pending)
            .then(|| submitted_ms.saturating_add(report.waited_ms).min(now_ms));
        let uid = uid_of(&report.user);
        Self {
            report: Box::new(report),
            state,
            submitted_ms,
            started_ms,
            ended_ms: None,
            uid,
            details: None,
            steps: Vec::new(),
            part: JobPart::Table,
        }
    }

    /// One of a list of ended jobs, of which this much was asked for.
    fn ended(it: EndedReport, part: JobPart) -> Self {
        let ran_ms = it.job.service_ms.saturating_add(it.job.suspended_ms);
        let started_ms = match it.job.placement.is_empty() {
            false => Some(it.accepted_ms.saturating_add(it.job.waited_ms)),
            true => (ran_ms > 0 || it.ending == Ending::Completed)
                .then(|| it.ended_ms.saturating_sub(ran_ms).max(it.accepted_ms)),
        };
        Self {
            state: State::of_ending(it.ending),
            submitted_ms: it.accepted_ms,
            started_ms,
            ended_ms: Some(it.ended_ms),
            uid: Some(it.uid),
            report: Box::new(it.job),
            details: it.details,
            steps: it.steps,
            part,
        }
    }

    fn shown(show: ShowReport) -> Self {
        let state = match show.ending {
            Some(ending) => State::of_ending(ending),
            None => State::of_report(&show.job),
        };
        Self {
            state,
            submitted_ms: show.accepted_ms,
            started_ms: show.started_ms,
            ended_ms: show.ended_ms,
            uid: uid_of(&show.job.user),
            report: Box::new(show.job),
            details: show.details,
            steps: show.steps,
            part: JobPart::All,
        }
    }

    /// Seconds that its turns gave it, as its time limit counts them.
    pub(super) const fn elapsed_s(&self) -> u64 {
        self.report.service_ms / 1000
    }

    pub(super) fn partition(&self) -> &str {
        self.report.queue.as_deref().unwrap_or(&self.report.class)
    }

    /// The names of its nodes; none before it has some.
    pub(super) fn nodes(&self) -> Vec<&str> {
        let of_placement =
            self.report.placement.iter().map(|it| it.split(':').next().unwrap_or(it));
        let found: Vec<&str> = of_placement.collect();
        match &self.details {
            Some(details) if found.is_empty() => {
                details.nodes.iter().map(|share| share.node.as_str()).collect()
            }
            _ => found,
        }
    }

    /// How many nodes it has, or asked for.
    pub(super) fn node_count(&self) -> usize {
        match self.nodes().len() {
            0 => usize::try_from(self.report.nodes_asked.unwrap_or(1)).unwrap_or(1),
            count => count,
        }
    }

    /// Why it is in its state, in one word.
    pub(super) fn reason(&self) -> &'static str {
        match self.state {
            State::Pending => match self.report.wait.as_deref() {
                Some("held") => "JobHeldUser",
                Some("held-by-administrator") => "JobHeldAdmin",
                Some("begin") => "BeginTime",
                Some("after") => "Dependency",
                Some("never") => "DependencyNeverSatisfied",
                Some("resource") => "Licenses",
                Some("limit") => "QOSResourceLimit",
                Some("nodes") => "ReqNodeNotAvail",
                Some("array-limit") => "JobArrayTaskLimit",
                Some("line") => "Priority",
                _ => "Resources",
            },
            State::Timeout => "TimeLimit",
            State::NodeFail => "NodeDown",
            State::OutOfMemory => "OutOfMemory",
            State::Failed => "NonZeroExitCode",
            _ => "None",
        }
    }

    /// When it ends at the latest, if it gets all of the time.
    pub(super) fn expected_end_ms(&self) -> Option<u64> {
        let left = self.report.time_left_ms.filter(|_| !self.state.has_ended())?;
        (self.state == State::Running).then(|| wall_ms().saturating_add(left))
    }

    /// Whether tables show why it has ended instead of where it was.
    pub(super) const fn is_listed_by_reason(&self) -> bool {
        matches!(
            self.state,
            State::Pending | State::Timeout | State::OutOfMemory | State::Failed | State::NodeFail
        )
    }

    /// What it waits for of other jobs, in the words of `sbatch`.
    pub(super) fn dependency(&self) -> String {
        let Some(details) = &self.details else { return String::new() };
        let word = |after: &String| {
            let (job, what) = after.split_once(':').unwrap_or((after, "ok"));
            let delay = what.strip_prefix("start+").and_then(|it| it.strip_suffix('s'));
            let delay = delay.and_then(|it| it.parse::<u64>().ok());
            let (name, minutes) = match (what, delay) {
                (_, Some(seconds)) => ("after", format!("+{}", seconds.div_ceil(60))),
                ("start", None) => ("after", String::new()),
                ("each", None) => ("aftercorr", String::new()),
                ("any", None) => ("afterany", String::new()),
                ("notok", None) => ("afternotok", String::new()),
                (_, None) => ("afterok", String::new()),
            };
            format!("{name}:{job}{minutes}(unfulfilled)")
        };
        let between = if details.after_one { "?" } else { "," };
        details.after.iter().map(word).collect::<Vec<String>>().join(between)
    }

    /// What it runs: of a batch job the script alone, without its arguments.
    pub(super) fn command(&self) -> String {
        let command = self.details.as_ref().map(|details| &details.command[..]).unwrap_or_default();
        match command {
            [script, ..] if self.is_batch() => script.clone(),
            words => words.join(" "),
        }
    }

    /// The name of its user's group and its number, where the user is known here.
    pub(super) fn group(&self) -> Option<(String, u32)> {
        let user = self.uid.map(nix::unistd::Uid::from_raw)?;
        let gid = User::from_uid(user).ok().flatten()?.gid;
        let group = nix::unistd::Group::from_gid(gid).ok().flatten();
        Some((group.map_or_else(|| gid.to_string(), |group| group.name), gid.as_raw()))
    }

    /// Exit status and signal: `2:0`, `0:15`.
    pub(super) fn exit_code(&self) -> String {
        match self.report.exit_code {
            None => "0:0".into(),
            Some(_) if self.state == State::OutOfMemory => OUT_OF_MEMORY.into(),
            Some(_) if self.state == State::Timeout => "0:0".into(),
            Some(code) if code > 128 => format!("0:{}", code - 128),
            // It has a code of Tutti's, and no status of its own.
            Some(_) if self.state == State::Cancelled => "0:15".into(),
            Some(code) => format!("{code}:0"),
        }
    }

    /// Whether its script runs once, so that it has a batch step.
    pub(super) fn is_batch(&self) -> bool {
        match self.report.first.as_deref() {
            Some(first) => first == "batch",
            None => self.report.submitted,
        }
    }
}

/// The number of a user. Each name is looked up once: that reads a file, or asks a server.
fn uid_of(user: &str) -> Option<u32> {
    static KNOWN: Mutex<BTreeMap<String, Option<u32>>> = Mutex::new(BTreeMap::new());
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(uid) = known.get(user) {
        return *uid;
    }
    let found = User::from_name(user).ok().flatten().map(|user| user.uid.as_raw());
    let uid = found.or_else(|| user.parse().ok());
    known.insert(user.to_owned(), uid);
    uid
}

/// How long squeue shows jobs that have ended, in seconds.
pub(super) const MIN_JOB_AGE_S: u64 = 300;

/// Jobs that have not ended, and, with `since_ms`, those that ended since then: this much of them.
///
/// # Errors
/// If the instance that runs does not answer. Without one there are no jobs.
pub(super) fn listed(
    since_ms: Option<u64>,
    user: Option<&str>,
    part: JobPart,
) -> anyhow::Result<Vec<Job>> {
    let mut asker = Asker::default();
    let now = wall_ms();
    let live = all_pages(JobId(0), |from| {
        let (page, next) = jobs_of(asker.ask(&Request::Jobs { ended: false, from })?)?;
        if let Some(from) = next {
            asker.ask_ahead(Request::Jobs { ended: false, from });
        }
        let lives = |report: &JobReport| {
            report.exit_code.is_none() && user.is_none_or(|user| report.user == user)
        };
        let page = page.into_iter().filter(lives).map(|report| Job::live(report, now));
        Ok((page.collect(), next))
    });
    let mut live = match live {
        Err(error) if super::has_no_instance(&error) => Vec::new(),
        live => live?,
    };
    // Later: a job that ended in between is among those that ended.
    let mut all = match since_ms {
        Some(since_ms) => ended(&mut asker, since_ms, user, part)?,
        None => return Ok(live),
    };
    if !live.is_empty() {
        let has_ended: BTreeSet<JobId> = all.iter().map(Job::id).collect();
        live.retain(|job| !has_ended.contains(&job.id()));
    }
    all.extend(live);
    all.sort_by_key(Job::id);
    Ok(all)
}

fn ended(
    asker: &mut Asker,
    since_ms: u64,
    user: Option<&str>,
    part: JobPart,
) -> anyhow::Result<Vec<Job>> {
    let name = user.map(str::to_owned);
    let mut query =
        EndedQuery { user: name, since_ms: Some(since_ms), part, ..EndedQuery::default() };
    let mut all = Vec::new();
    loop {
        let question = Request::Past(query.clone());
        let behind = |page: &[u8]| {
            let after = Some(Reply::next_of_past(page)?);
            Some(Request::Past(EndedQuery { after, ..query.clone() }))
        };
        let answer = asker.ask_and_ahead(&question, behind);
        let answer = match answer.or_else(|error| ask_journal(&question, error)) {
            Err(error) if super::has_no_instance(&error) => return Ok(all),
            answer => answer?,
        };
        let Reply::Past { next, jobs } = answer else { return unexpected() };
        query.after = next;
        all.extend(jobs.into_iter().map(|it| Job::ended(it, part)));
        if next.is_none() {
            return Ok(all);
        }
    }
}

/// One job, with its details; `None` if there is none of this number.
///
/// # Errors
/// If the instance does not answer.
pub(super) fn one(job: JobId) -> anyhow::Result<Option<Job>> {
    shown_in(ask_of_the_past(&Request::Show { job, environment: false }))
}

/// For more jobs than these, all that have not ended are asked for at once.
pub(super) const FEW: usize = 100;

/// As [`one`] for each of several jobs; without those that are not there.
///
/// # Errors
/// If the instance does not answer.
pub(super) fn several(jobs: impl IntoIterator<Item = JobId>) -> anyhow::Result<Vec<Job>> {
    let mut wanted: BTreeSet<JobId> = jobs.into_iter().collect();
    let mut all = Vec::with_capacity(wanted.len());
    if wanted.len() > FEW {
        let live = all_live()?.into_iter();
        all.extend(live.filter(|show| wanted.remove(&show.job.job)).map(Job::shown));
    }
    let question = |job| Request::Show { job, environment: false };
    let questions: Vec<Request> = wanted.into_iter().map(question).collect();
    let asked = ask_each(&questions, |_, reply| {
        all.extend(shown_in(reply)?);
        Ok(())
    });
    match asked {
        Err(error) if all.is_empty() && super::has_no_instance(&error) => {
            for question in &questions {
                all.extend(shown_in(ask_of_the_past(question))?);
            }
        }
        asked => asked?,
    }
    all.sort_by_key(Job::id);
    Ok(all)
}

/// All jobs that have not ended.
fn all_live() -> anyhow::Result<Vec<ShowReport>> {
    let mut asker = Asker::default();
    let pages = all_pages(JobId(0), |from| match asker.ask(&Request::ShowAll { from })? {
        Reply::ShownJobs { jobs, next } => Ok((jobs, next)),
        _ => unexpected(),
    });
    match pages {
        Err(error) if super::has_no_instance(&error) => Ok(Vec::new()),
        pages => pages,
    }
}

/// Adds the details and steps of these jobs where less than this much is known.
///
/// # Errors
/// If the instance does not answer.
pub(super) fn add_details<'a>(
    jobs: impl IntoIterator<Item = &'a mut Job>,
    part: JobPart,
) -> anyhow::Result<()> {
    let jobs = jobs.into_iter().filter(|job| job.part < part);
    let mut jobs: BTreeMap<JobId, &mut Job> = jobs.map(|job| (job.id(), job)).collect();
    if jobs.is_empty() {
        return Ok(());
    }
    for known in several(jobs.keys().copied().collect::<Vec<_>>())? {
        if let Some(job) = jobs.remove(&known.id()) {
            (job.details, job.steps, job.part) = (known.details, known.steps, known.part);
        }
    }
    Ok(())
}

/// The job that an answer shows.
fn shown_in(reply: anyhow::Result<Reply>) -> anyhow::Result<Option<Job>> {
    match reply {
        Ok(Reply::Show(show)) => Ok(Some(Job::shown(*show))),
        Ok(_) => unexpected(),
        Err(error) if super::has_no_instance(&error) || code_of(&error) == Code::NoJob => Ok(None),
        Err(error) => Err(error),
    }
}

/// A job that has not ended, with what it has used so far.
///
/// # Errors
/// If the instance does not answer.
pub(super) fn with_usage(job: JobId) -> anyhow::Result<Option<Job>> {
    let Reply::Jobs { jobs, .. } = ask(&Request::JobsWithUsage { from: job })? else {
        return unexpected();
    };
    let found = jobs.into_iter().find(|report| report.job == job && report.exit_code.is_none());
    Ok(found.map(|report| Job::live(report, wall_ms())))
}

/// The number of a job in an argument: `7`, and `7.batch` or `7.0` of its steps.
pub(super) fn number(text: &str) -> Option<JobId> {
    let job = text.split('.').next().unwrap_or(text);
    job.parse().ok().filter(|&number: &u64| number > 0).map(JobId)
}

#[cfg(test)]
mod tests {
    use super::{State, number, states};

    #[test]
    fn a_job_that_waits_for_its_turn_runs() {
        assert_eq!(State::of_live("running"), State::Running);
        assert_eq!(State::of_live("queued"), State::Pending);
        for word in ["suspended", "swapped", "preempting", "preempted", "resuming"] {
            assert_eq!(State::of_live(word), State::Suspended, "{word}");
        }
    }

    #[test]
    fn states_are_named_by_words_and_letters() {
        let list = |text: &str| states(&text.split(',').map(str::to_owned).collect::<Vec<_>>());
        assert_eq!(list("PD,running"), Ok(Some(vec![State::Pending, State::Running])));
        assert_eq!(list("cd,all"), Ok(None));
        assert_eq!(list("CF,RH"), Ok(Some(vec![])), "no job here is in these");
        assert!(list("nonsense").is_err());
    }

    #[test]
    fn a_step_names_its_job() {
        assert_eq!(number("7").map(|job| job.0), Some(7));
        assert_eq!(number("7.batch").map(|job| job.0), Some(7));
        for text in ["", "x", "0", "-3", "7_2"] {
            assert_eq!(number(text), None, "{text}");
        }
    }
}
