//! Jobs that have ended: the latest of them from memory, all that are kept from the journal.

use super::driver::Driver;
use super::error::Problem;
use super::jobs::Ended;
use super::requests::Forbidden;
use tracing::warn;
use tutti_journal::{EndedJob, EndedSpan, ListedJob};
use tutti_node::codes::code_of_journal;
use tutti_node::platform::time::wall_ms;
use tutti_types::{ClusterTime, JobId, Nanos};
use tutti_wire::history::{EndedQuery, EndedReport, Ending, JobPart};
use tutti_wire::limits::ENDED_JOBS_BYTES_MAX;
use tutti_wire::local::Reply;
use tutti_wire::report::HistoryReport;
use tutti_wire::show::NodeShare;

/// Jobs that are looked at for one answer: reading them takes a few milliseconds, in which no other
/// client is answered.
pub(super) const PAGE_JOBS: usize = 500;

/// How often it is looked whether jobs are too old, at least and at most; between that, ten times
/// while a job is kept.
const LOOK_MIN: Nanos = Nanos::from_secs(1);
const LOOK_MAX: Nanos = Nanos::from_secs(3600);

impl Driver {
    pub(super) fn on_history(&mut self, token: u64, uid: u32, job: JobId) {
        let found = match (self.owned(uid, job), self.ends.ended.get(job)) {
            (Ok(()), _) => return self.fail(token, Forbidden::NotEnded(job)),
            (Err(Forbidden::Ended { .. }), Some(ended)) => Ok(told(ended)),
            (Err(Forbidden::NoJob(_)), _) => self.read_from_journal(uid, job),
            (Err(error), _) => Err(error.into()),
        };
        match found {
            Ok(report) => self.reply(token, &Reply::History(Box::new(report))),
            Err(reason) => self.fail(token, reason),
        }
    }

    /// A job that ended too long ago to be in memory.
    fn read_from_journal(&mut self, uid: u32, job: JobId) -> Result<HistoryReport, Problem> {
        let found = self.memory.journal.ended_job(job);
        self.say_left_out();
        let found = found?;
        let ended = Ended::from(found.ok_or(Forbidden::NoJob(job))?);
        if uid != 0 && uid != ended.uid {
            return Err(Forbidden::NotYours(job, ended.report.user).into());
        }
        Ok(told(&ended))
    }

    pub(super) fn on_past(&mut self, token: u64, uid: u32, query: &EndedQuery) {
        match self.page(uid, query) {
            Ok(page) => self.reply(token, &page),
            Err(reason) => self.fail(token, reason),
        }
    }

    fn page(&mut self, uid: u32, query: &EndedQuery) -> Result<Reply, Problem> {
        let in_full = query.part == JobPart::All;
        let found = self.memory.journal.ended_list(&span_of(query)?, PAGE_JOBS, in_full);
        self.say_left_out();
        Ok(page_of(uid, found?, query, wall_ms()))
    }

    // ------------------------------------------------------------------ what is forgotten

    /// There is something that will be too old one day, or is too much.
    pub(super) fn watch_history(&mut self) {
        let size = self.memory.journal.ended_size();
        if size.bytes > self.core.params().history_bytes() {
            self.due.history_due = self.now();
        } else if size.jobs > 0 && self.due.history_due == ClusterTime::NEVER {
            self.due.history_due = self.now() + self.look_again();
        }
    }

    fn look_again(&self) -> Nanos {
        let keep = self.core.params().keep_history().unwrap_or(LOOK_MAX);
        Nanos(keep.0 / 10).clamp(LOOK_MIN, LOOK_MAX)
    }

    /// Forgets what is too old or too much.
    pub(super) fn forget_history(&mut self) {
        let params = self.core.params();
        let keep = params.keep_history().map(|keep| keep.0 / 1_000_000);
        let before_ms = keep.map_or(0, |keep_ms| wall_ms().saturating_sub(keep_ms));
        let bytes_max = params.history_bytes();
        self.ends.ended.forget(before_ms);
        let more = self.memory.journal.forget_ended(before_ms, bytes_max);
        let pause = match more {
            Ok(true) => Nanos::from_millis(10),
            Ok(false) if self.memory.journal.ended_size().jobs == 0 => {
                self.due.history_due = ClusterTime::NEVER;
                return;
            }
            Ok(false) => self.look_again(),
            Err(error) => {
                warn!(code = %code_of_journal(&error), "{error}");
                LOOK_MAX
            }
        };
        self.due.history_due = self.now() + pause;
    }
}

/// The bounds of a query.
///
/// # Errors
/// If there is no such user.
pub(super) fn span_of(query: &EndedQuery) -> Result<EndedSpan, String> {
    let uid = query.user.as_deref().map(user_number).transpose()?;
    let EndedQuery { since_ms, until_ms, after, .. } = *query;
    Ok(EndedSpan { uid, since_ms, until_ms, after })
}

/// The answer to a user's query, of the jobs within its bounds: at most [`PAGE_JOBS`].
pub(super) fn page_of(uid: u32, found: Vec<ListedJob>, query: &EndedQuery, now_ms: u64) -> Reply {
    let whole = found.len() == PAGE_JOBS;
    let (mut bytes, mut next, mut jobs) = (0, None, Vec::new());
    for listed in found {
        let end = (listed.job.ended_ms, listed.job.report.job);
        let ending = Ending::of(listed.job.outcome);
        if query.endings.is_empty() || query.endings.contains(&ending) {
            let is_own = uid == 0 || uid == listed.job.uid;
            let part = if is_own { query.part } else { JobPart::Table };
            // Places are stored once, and sent twice.
            bytes += 2 * listed.stored_bytes;
            if bytes > ENDED_JOBS_BYTES_MAX && !jobs.is_empty() {
                return Reply::Past { next, jobs };
            }
            jobs.push(shown(listed, part, ending, now_ms));
        }
        next = Some(end);
    }
    Reply::Past { next: next.filter(|_| whole), jobs }
}

/// The number of a user that is named, or numbered.
fn user_number(user: &str) -> Result<u32, String> {
    if let Ok(uid) = user.parse() {
        return Ok(uid);
    }
    match nix::unistd::User::from_name(user) {
        Ok(Some(found)) => Ok(found.uid.as_raw()),
        _ => Err(format!("there is no user {user} on the controller's machine; try the number")),
    }
}

pub(super) fn told(ended: &Ended) -> HistoryReport {
    let now_ms = wall_ms();
    let age_s = now_ms.saturating_sub(ended.accepted_ms) / 1000;
    HistoryReport {
        job: tutti_wire::report::JobReport { age_s, ..ended.report.clone() },
        ending: Ending::of(ended.outcome),
        ended_s: now_ms.saturating_sub(ended.ended_ms) / 1000,
        accepted_ms: ended.accepted_ms,
        ended_ms: ended.ended_ms,
        tasks: ended.tasks.clone(),
    }
}

/// As much of a job as was asked for, and the asker may see.
fn shown(listed: ListedJob, part: JobPart, ending: Ending, now_ms: u64) -> EndedReport {
    let ListedJob { job, nodes, steps, details, .. } = listed;
    let EndedJob { mut report, uid, gid, accepted_ms, ended_ms, time_limit, .. } = job;
    report.age_s = now_ms.saturating_sub(accepted_ms) / 1000;
    let has_places = part > JobPart::Table;
    if has_places {
        let place = |share: &NodeShare| format!("{}:{}", share.node, share.processors);
        report.placement = nodes.iter().map(place).collect();
    }
    let details = details.filter(|_| part == JobPart::All);
    let steps = if has_places { steps } else { Vec::new() };
    EndedReport { job: report, uid, gid, ending, accepted_ms, ended_ms, time_limit, details, steps }
}
