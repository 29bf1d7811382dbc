//! Answers from the journal of an instance that does not run.
//!
//! A verb asks here when no controller answers. The journal is only read. One answer takes one page
//! of jobs, or the state. Jobs that ended longer ago than `keep_history` are left out, as the next
//! controller would.

use super::driver::blank_core;
use super::error::Problem;
use super::history::{PAGE_JOBS, page_of, span_of, told};
use super::jobs::{ENDED_MAX, Ended};
use super::report;
use super::requests::Forbidden;
use super::show::ended_report;
use super::time_base;
use super::usage::used_page;
use std::path::Path;
use tutti_core::Core;
use tutti_journal::{EndedJob, EndedSpan, JournalError, ReadOnly};
use tutti_node::codes::{code_of_journal, coded};
use tutti_node::instance::Instance;
use tutti_node::platform::time::wall_ms;
use tutti_types::JobId;
use tutti_wire::history::{EndedQuery, JobPart};
use tutti_wire::limits::USAGE_BYTES_MAX;
use tutti_wire::local::{Reply, Request};
use tutti_wire::report::JobReport;

/// Answers a request as the controller would; `None` where nothing was left, or only a controller
/// can answer.
///
/// # Errors
/// If the journal can't be read.
pub fn answer(instance: &Instance, request: &Request) -> anyhow::Result<Option<Reply>> {
    let Some(path) = instance.left_journal() else { return Ok(None) };
    let answered = Offline::open(&path).and_then(|mut offline| offline.answer(request));
    answered.map_err(|error| coded(code_of_journal(&error), error.to_string()))
}

/// So many numbers no job gets that a journal which can't be read may have given to jobs.
const NUMBERS_UNREAD: u64 = 1_000;

/// How many jobs an instance that does not run has had, or more: no job may have had a number above
/// that.
#[must_use]
pub fn jobs_made(instance: &Instance) -> u64 {
    let said = time_base::reach_of_former(instance).map_or(0, |reach| reach.jobs);
    let counted = instance.count_file().and_then(|file| std::fs::read_to_string(file).ok());
    let counted = counted.and_then(|text| text.trim().parse().ok()).unwrap_or(0);
    let known = said.max(counted).max(instance.released().0);
    let Some(path) = instance.left_journal() else { return known };
    let core = ReadOnly::open(&path).and_then(|mut journal| journal.core(blank_core));
    core.map_or(known.saturating_add(NUMBERS_UNREAD), |core| known.max(core.jobs_made()))
}

/// What is known of the instance.
struct Offline {
    journal: ReadOnly,
    core: Core,
    now_ms: u64,
}

impl Offline {
    fn open(path: &Path) -> Result<Self, JournalError> {
        let mut journal = ReadOnly::open(path)?;
        let core = journal.core(blank_core)?;
        Ok(Self { journal, core, now_ms: wall_ms() })
    }

    fn answer(&mut self, request: &Request) -> Result<Option<Reply>, JournalError> {
        let reply = match request {
            Request::Params | Request::StandingParams => report::settings(&self.core),
            Request::Queues => super::site::queues(&self.core),
            Request::Past(query) => self.past(query)?,
            Request::Usage(query) => {
                used_page(query, |since, until| self.journal.used(since, until, USAGE_BYTES_MAX))?
            }
            Request::Jobs { ended: true, from } | Request::JobsWithUsage { from } => {
                self.jobs(*from)?
            }
            Request::History { job } => match self.ended_job(*job)? {
                Some(ended) => Reply::History(Box::new(told(&Ended::from(ended)))),
                None => return Ok(self.unknown(*job)),
            },
            Request::Wait { job } => match self.ended_job(*job)? {
                Some(EndedJob { outcome, report, .. }) => {
                    let (detail, report) = (report.detail.clone(), Box::new(report));
                    Reply::Ended { job: *job, outcome, detail, report }
                }
                None => return Ok(self.unknown(*job)),
            },
            Request::Show { job, environment } => match self.shown(*job, *environment)? {
                Some(reply) => reply,
                None => return Ok(self.unknown(*job)),
            },
            _ => return Ok(None),
        };
        Ok(Some(reply))
    }

    /// The earliest end that is not forgotten, in milliseconds since 1970.
    fn kept_since_ms(&self) -> u64 {
        let keep = self.core.params().keep_history();
        keep.map_or(0, |keep| self.now_ms.saturating_sub(keep.0 / 1_000_000))
    }

    fn past(&mut self, query: &EndedQuery) -> Result<Reply, JournalError> {
        let since_ms = query.since_ms.unwrap_or(0).max(self.kept_since_ms());
        let within = match span_of(query) {
            Ok(within) => EndedSpan { since_ms: Some(since_ms), ..within },
            Err(reason) => return Ok(Problem::from(reason).failed()),
        };
        let in_full = query.part == JobPart::All;
        let found = self.journal.ended_list(&within, PAGE_JOBS, in_full)?;
        Ok(page_of(nix::unistd::geteuid().as_raw(), found, query, self.now_ms))
    }

    /// Those that have ended, by number.
    fn jobs(&mut self, from: JobId) -> Result<Reply, JournalError> {
        let within = EndedSpan { since_ms: Some(self.kept_since_ms()), ..EndedSpan::default() };
        let now_ms = self.now_ms;
        let shown = |ended: EndedJob| JobReport {
            age_s: now_ms.saturating_sub(ended.accepted_ms) / 1000,
            ..ended.report
        };
        let ended = self.journal.ended(&within, ENDED_MAX)?;
        let mut jobs: Vec<JobReport> = ended.into_iter().map(shown).collect();
        jobs.sort_by_key(|job| job.job);
        Ok(report::page(jobs.into_iter().filter(|report| report.job >= from)))
    }

    fn ended_job(&mut self, job: JobId) -> Result<Option<EndedJob>, JournalError> {
        let since_ms = self.kept_since_ms();
        Ok(self.journal.ended_job(job)?.filter(|ended| ended.ended_ms >= since_ms))
    }

    fn shown(&mut self, job: JobId, environment: bool) -> Result<Option<Reply>, JournalError> {
        let since_ms = self.kept_since_ms();
        let found = self.journal.ended_details(job)?;
        let found = found.filter(|(ended, _)| ended.ended_ms >= since_ms);
        Ok(found.map(|(ended, details)| {
            let uid = nix::unistd::geteuid().as_raw();
            match ended_report(uid, ended, details, environment) {
                Ok(report) => Reply::Show(Box::new(report)),
                Err(problem) => problem.failed(),
            }
        }))
    }

    /// The answer about a job that has not ended here: that there is none of this number, or none,
    /// since only a controller knows more.
    fn unknown(&self, job: JobId) -> Option<Reply> {
        let is_known = self.core.job(job, self.core.now()).is_some();
        (!is_known).then(|| Problem::from(Forbidden::NoJob(job)).failed())
    }
}
