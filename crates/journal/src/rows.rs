//! Rows of jobs, as they are stored. These types are those of the journal's form alone: a message or a report may get
//! another field, and what was stored is still read. Their fields, and the order of these, change only with the form
//! ([`crate::SCHEMA_VERSION`]).

use crate::entry::EndedJob;
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;
use tutti_types::{ClusterTime, JobId, Nanos, Outcome, Rank};
use tutti_wire::code::Code;
use tutti_wire::launch::{
    AdoptedProcess, Credentials, InputTo, LaunchSpec, OpenMode, Stdio, Usage,
};
use tutti_wire::local::SubmitKey;
use tutti_wire::report::{ArrayReport, JobReport, TaskHistory};

/// Nanoseconds of a millisecond.
const MS: u64 = 1_000_000;

/// A job that has ended; forms 4 and 5.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct EndedRow {
    report: ReportRow,
    uid: u32,
    gid: u32,
    key: Option<SubmitKey>,
    time_limit: Option<Nanos>,
    outcome: Outcome,
    accepted: ClusterTime,
    at: ClusterTime,
    accepted_ms: u64,
    ended_ms: u64,
    tasks: Vec<TaskRow>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct ReportRow {
    job: JobId,
    name: String,
    user: String,
    class: String,
    former_class: Option<String>,
    state: String,
    reason: String,
    code: Option<Code>,
    detail: String,
    suspended: Vec<String>,
    tasks: u32,
    processors: u32,
    /// Of an array or an element of one, that in words ([`ArrayReport::to_words`]).
    placement: Vec<String>,
    row: Option<u32>,
    rows: u32,
    share_percent: Option<u32>,
    age_s: u64,
    service_ms: u64,
    waited_ms: u64,
    suspended_ms: u64,
    usage: Option<UsageRow>,
    deadline_s: Option<i64>,
    at_risk_s: Option<u64>,
    ends_s: Option<u64>,
    cpu_ms: Option<u64>,
    exit_code: Option<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct TaskRow {
    rank: Rank,
    exit_code: u8,
    usage: UsageRow,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct UsageRow {
    user_us: u64,
    system_us: u64,
    cpu_whole: bool,
    memory_peak_bytes: u64,
    memory_whole: bool,
    read_bytes: u64,
    written_bytes: u64,
    io_whole: bool,
    processes: Option<u64>,
    processes_peak: Option<u64>,
    processes_whole: bool,
    switches: u64,
}

/// A job that has not ended; form 4, which had its whole launch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct JobRow4 {
    pub(crate) job: JobId,
    pub(crate) credentials: Credentials,
    pub(crate) key: Option<SubmitKey>,
    pub(crate) user: String,
    pub(crate) launch: LaunchRow4,
    pub(crate) accepted: ClusterTime,
    pub(crate) accepted_ms: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LaunchRow4 {
    name: String,
    argv: Vec<ByteBuf>,
    script: Option<ByteBuf>,
    environment: Vec<ByteBuf>,
    directory: ByteBuf,
    umask: u32,
    rlimits: Vec<(u32, u64, u64)>,
    stdio: StdioRow4,
    processes_max: Option<u64>,
    adopt: Vec<AdoptedProcess>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum StdioRow4 {
    FrontEnd { input: InputTo },
    Files { input: Option<ByteBuf>, output: ByteBuf, error: Option<ByteBuf>, append: bool },
    Kept,
}

impl From<EndedJob> for EndedRow {
    fn from(job: EndedJob) -> Self {
        let EndedJob {
            report,
            uid,
            gid,
            key,
            time_limit,
            outcome,
            accepted,
            at,
            accepted_ms,
            ended_ms,
            tasks,
        } = job;
        Self {
            report: report.into(),
            uid,
            gid,
            key,
            time_limit,
            outcome,
            accepted,
            at,
            accepted_ms,
            ended_ms,
            tasks: tasks.into_iter().map(Into::into).collect(),
        }
    }
}

impl From<EndedRow> for EndedJob {
    fn from(row: EndedRow) -> Self {
        let EndedRow {
            report,
            uid,
            gid,
            key,
            time_limit,
            outcome,
            accepted,
            at,
            accepted_ms,
            ended_ms,
            tasks,
        } = row;
        let left = |limit: Nanos| limit.0.saturating_sub(outcome.service.0) / MS;
        let report = JobReport::from(report);
        let report = JobReport {
            // `run` sends no key. Neither does `adopt`.
            submitted: key.is_some() || report.array.is_some(),
            time_limit_ms: time_limit.map(|limit| limit.0 / MS),
            time_left_ms: time_limit.map(left),
            position: None,
            wait: None,
            behind: None,
            swapped_bytes: None,
            lent_processors: None,
            ..report
        };
        Self {
            report,
            uid,
            gid,
            key,
            time_limit,
            outcome,
            accepted,
            at,
            accepted_ms,
            ended_ms,
            tasks: tasks.into_iter().map(Into::into).collect(),
        }
    }
}

impl From<JobReport> for ReportRow {
    fn from(report: JobReport) -> Self {
        let JobReport {
            job,
            name,
            user,
            class,
            former_class,
            state,
            reason,
            code,
            detail,
            suspended,
            tasks,
            processors,
            // A job that has ended has none: its place in the row is the array's.
            placement: _,
            array,
            row,
            rows,
            share_percent,
            age_s,
            service_ms,
            waited_ms,
            suspended_ms,
            usage,
            deadline_s,
            at_risk_s,
            ends_s,
            cpu_ms,
            exit_code,
            // They follow from the rest of the row.
            submitted: _,
            time_limit_ms: _,
            time_left_ms: _,
            // The details behind the row have it.
            queue: _,
            first: _,
            slots: _,
            nodes_asked: _,
            // A job that has ended has none.
            resources: _,
            position: _,
            wait: _,
            behind: _,
            swapped_bytes: _,
            lent_processors: _,
        } = report;
        Self {
            job,
            name,
            user,
            class,
            former_class,
            state,
            reason,
            code,
            detail,
            suspended,
            tasks,
            processors,
            placement: array.map_or_else(Vec::new, |array| array.to_words()),
            row,
            rows,
            share_percent,
            age_s,
            service_ms,
            waited_ms,
            suspended_ms,
            usage: usage.map(Into::into),
            deadline_s,
            at_risk_s,
            ends_s,
            cpu_ms,
            exit_code,
        }
    }
}

impl From<ReportRow> for JobReport {
    fn from(row: ReportRow) -> Self {
        let ReportRow {
            job,
            name,
            user,
            class,
            former_class,
            state,
            reason,
            code,
            detail,
            suspended,
            tasks,
            processors,
            placement,
            row,
            rows,
            share_percent,
            age_s,
            service_ms,
            waited_ms,
            suspended_ms,
            usage,
            deadline_s,
            at_risk_s,
            ends_s,
            cpu_ms,
            exit_code,
        } = row;
        Self {
            job,
            name,
            user,
            class,
            former_class,
            state,
            reason,
            code,
            detail,
            suspended,
            tasks,
            processors,
            array: ArrayReport::of_words(&placement),
            placement: Vec::new(),
            row,
            rows,
            share_percent,
            age_s,
            service_ms,
            waited_ms,
            suspended_ms,
            usage: usage.map(Into::into),
            deadline_s,
            at_risk_s,
            ends_s,
            cpu_ms,
            exit_code,
            submitted: false,
            time_limit_ms: None,
            time_left_ms: None,
            queue: None,
            resources: Vec::new(),
            position: None,
            wait: None,
            behind: None,
            swapped_bytes: None,
            lent_processors: None,
            first: None,
            slots: None,
            nodes_asked: None,
        }
    }
}

impl From<TaskHistory> for TaskRow {
    fn from(task: TaskHistory) -> Self {
        let TaskHistory { rank, exit_code, usage } = task;
        Self { rank, exit_code, usage: usage.into() }
    }
}

impl From<TaskRow> for TaskHistory {
    fn from(row: TaskRow) -> Self {
        let TaskRow { rank, exit_code, usage } = row;
        Self { rank, exit_code, usage: usage.into() }
    }
}

impl From<Usage> for UsageRow {
    fn from(usage: Usage) -> Self {
        let Usage {
            user_us,
            system_us,
            cpu_whole,
            memory_peak_bytes,
            memory_whole,
            read_bytes,
            written_bytes,
            io_whole,
            processes,
            processes_peak,
            processes_whole,
            switches,
        } = usage;
        Self {
            user_us,
            system_us,
            cpu_whole,
            memory_peak_bytes,
            memory_whole,
            read_bytes,
            written_bytes,
            io_whole,
            processes,
            processes_peak,
            processes_whole,
            switches,
        }
    }
}

impl From<UsageRow> for Usage {
    fn from(row: UsageRow) -> Self {
        let UsageRow {
            user_us,
            system_us,
            cpu_whole,
            memory_peak_bytes,
            memory_whole,
            read_bytes,
            written_bytes,
            io_whole,
            processes,
            processes_peak,
            processes_whole,
            switches,
        } = row;
        Self {
            user_us,
            system_us,
            cpu_whole,
            memory_peak_bytes,
            memory_whole,
            read_bytes,
            written_bytes,
            io_whole,
            processes,
            processes_peak,
            processes_whole,
            switches,
        }
    }
}

impl From<LaunchRow4> for LaunchSpec {
    fn from(row: LaunchRow4) -> Self {
        let LaunchRow4 {
            name,
            argv,
            script,
            environment,
            directory,
            umask,
            rlimits,
            stdio,
            processes_max,
            adopt,
        } = row;
        Self {
            name,
            argv,
            script,
            environment,
            directory,
            umask,
            rlimits,
            stdio: stdio.into(),
            processes_max,
            adopt,
            nice: 0,
            slurm: false,
            resume: None,
            vacate: None,
        }
    }
}

impl From<StdioRow4> for Stdio {
    fn from(row: StdioRow4) -> Self {
        match row {
            StdioRow4::FrontEnd { input } => Self::FrontEnd { input },
            StdioRow4::Files { input, output, error, append } => {
                let mode = if append { OpenMode::Append } else { OpenMode::TruncateOnce };
                Self::Files { input, output, error, mode }
            }
            StdioRow4::Kept => Self::Kept,
        }
    }
}
