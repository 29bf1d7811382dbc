//! One line of a trace.

use std::fmt;

/// One job, or one burst of a job that was rolled out and in: the 18 fields of a line. What is -1
/// in the file (not known) is None.
///
/// Times are in nanoseconds: the file's seconds may have a fraction, and sums must be exact.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Job {
    /// Field 1: the job's number in its file. Logs that were cleaned or cut have gaps.
    pub number: u64,
    /// Field 2: when it was submitted, in ns after the log's beginning.
    pub submit_ns: Option<u64>,
    /// Field 3: how long it waited on the real machine, in ns; for a burst, since the end of the
    /// burst before.
    pub wait_ns: Option<u64>,
    /// Field 4: wall clock time from start to end, in ns; 0 is possible.
    pub run_ns: Option<u64>,
    /// Field 5: processors that it had.
    pub allocated_processors: Option<u32>,
    /// Field 6: processor time, in ns, mean over its processors.
    pub cpu_ns: Option<u64>,
    /// Field 7: memory used, in KB, mean of its processors. A fraction is cut off.
    pub used_memory_kb: Option<u64>,
    /// Field 8: processors that it asked for. Absent in models and old logs.
    pub requested_processors: Option<u32>,
    /// Field 9: the time that its user said it would take, in ns.
    pub requested_ns: Option<u64>,
    /// Field 10: memory asked for, in KB for each processor. A fraction is cut off.
    pub requested_memory_kb: Option<u64>,
    /// Field 11: how it ended.
    pub status: Option<Status>,
    /// Field 12: its user, a number from 1.
    pub user: Option<u64>,
    /// Field 13: its group, a number from 1.
    pub group: Option<u64>,
    /// Field 14: its program; same number, same program.
    pub executable: Option<u64>,
    /// Field 15: its queue. By custom 0 is interactive.
    pub queue: Option<u64>,
    /// Field 16: which machine of several.
    pub partition: Option<u64>,
    /// Field 17: the job that must have ended before this one may start.
    pub preceding_job: Option<u64>,
    /// Field 18: from that job's end to this submit, in ns.
    pub think_ns: Option<u64>,
}

/// How a job ended, as its line tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// 0: it failed.
    Failed,
    /// 1: it completed.
    Completed,
    /// 2: a burst, and the job goes on with the next one.
    PartContinued,
    /// 3: the last burst of a job that completed.
    PartCompleted,
    /// 4: the last burst of a job that failed.
    PartFailed,
    /// 5: cancelled, before its start or later (its run time tells).
    Cancelled,
}

impl Status {
    /// The number that stands for it in field 11.
    #[must_use]
    pub fn code(self) -> u64 {
        match self {
            Status::Failed => 0,
            Status::Completed => 1,
            Status::PartContinued => 2,
            Status::PartCompleted => 3,
            Status::PartFailed => 4,
            Status::Cancelled => 5,
        }
    }

    /// What the number in field 11 stands for.
    #[must_use]
    pub fn from_code(code: u64) -> Option<Status> {
        Some(match code {
            0 => Status::Failed,
            1 => Status::Completed,
            2 => Status::PartContinued,
            3 => Status::PartCompleted,
            4 => Status::PartFailed,
            5 => Status::Cancelled,
            _ => return None,
        })
    }

    /// Whether the line tells a burst, not a whole job.
    #[must_use]
    pub fn is_burst(self) -> bool {
        matches!(self, Status::PartContinued | Status::PartCompleted | Status::PartFailed)
    }
}

impl Job {
    /// Whether this is a burst of a rolled job, not a whole one.
    #[must_use]
    pub fn is_burst(&self) -> bool {
        self.status.is_some_and(Status::is_burst)
    }
}

/// The fields of a line, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "each is described at the field of Job of the same name")]
pub enum Field {
    Number,
    Submit,
    Wait,
    Run,
    AllocatedProcessors,
    Cpu,
    UsedMemory,
    RequestedProcessors,
    Requested,
    RequestedMemory,
    Status,
    User,
    Group,
    Executable,
    Queue,
    Partition,
    PrecedingJob,
    Think,
}

/// How many fields a line has.
pub const FIELDS: usize = 18;
const _: () = assert!(Field::Think as usize + 1 == FIELDS, "Field has all fields, in order");

impl Field {
    fn name(self) -> &'static str {
        match self {
            Field::Number => "job number",
            Field::Submit => "submit time",
            Field::Wait => "wait time",
            Field::Run => "run time",
            Field::AllocatedProcessors => "allocated processors",
            Field::Cpu => "CPU time",
            Field::UsedMemory => "memory used",
            Field::RequestedProcessors => "requested processors",
            Field::Requested => "requested time",
            Field::RequestedMemory => "requested memory",
            Field::Status => "status",
            Field::User => "user",
            Field::Group => "group",
            Field::Executable => "executable",
            Field::Queue => "queue",
            Field::Partition => "partition",
            Field::PrecedingJob => "preceding job",
            Field::Think => "think time",
        }
    }
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "field {} ({})", *self as usize + 1, self.name())
    }
}
