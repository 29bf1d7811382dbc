//! Which code an error carries: by its type where it has one, by what its place says where it is
//! only a text.

use crate::link::LinkError;
use crate::state_dir::NotOurs;
use std::fmt;
use tutti_journal::JournalError;
use tutti_types::{EndReason, Outcome, QueueRefusal, Refusal, TaskStatus};
use tutti_wire::code::Code;

/// A text with its code.
#[derive(Debug)]
pub struct Coded {
    code: Code,
    text: String,
}

impl fmt::Display for Coded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Coded {}

/// An error of this code.
pub fn coded(code: Code, text: impl fmt::Display) -> anyhow::Error {
    Coded { code, text: text.to_string() }.into()
}

/// Whether that code says that the controller may be there for a client that asks again.
pub const fn is_away(code: Code) -> bool {
    matches!(code, Code::ControllerAway | Code::OutOfReach)
}

/// The code of an error: that of the first of its causes that has one.
pub fn code_of(error: &anyhow::Error) -> Code {
    error
        .downcast_ref::<Coded>()
        .map(|coded| coded.code)
        .unwrap_or_else(|| error.chain().find_map(code_of_cause).unwrap_or(Code::Other))
}

fn code_of_cause(cause: &(dyn std::error::Error + 'static)) -> Option<Code> {
    use tutti_secure::{AuthorityError, CertificateError, CredentialsError, NameError, TokenError};
    if let Some(Coded { code, .. }) = cause.downcast_ref() {
        return Some(*code);
    }
    if let Some(error) = cause.downcast_ref::<JournalError>() {
        return Some(code_of_journal(error));
    }
    if let Some(error) = cause.downcast_ref::<LinkError>() {
        return match error {
            LinkError::Io(error) if tutti_secure::StreamError::of(error).is_some() => {
                Some(Code::NotTrusted)
            }
            LinkError::Io(_) | LinkError::Closed => Some(Code::ControllerAway),
            LinkError::Decode(_) => Some(Code::OtherRelease),
            LinkError::TooLong(_) => Some(Code::TooMuchAsked),
        };
    }
    if cause.is::<NotOurs>() {
        return Some(Code::OthersInstance);
    }
    if cause.is::<TokenError>()
        || cause.is::<CertificateError>()
        || cause.is::<CredentialsError>()
        || cause.is::<AuthorityError>()
        || cause.is::<tutti_secure::StreamError>()
    {
        return Some(Code::NotTrusted);
    }
    if cause.is::<tutti_wire::units::UnitError>()
        || cause.is::<tutti_wire::host_list::HostListError>()
        || cause.is::<NameError>()
    {
        return Some(Code::BadValue);
    }
    (cause.is::<std::io::Error>() || cause.is::<nix::errno::Errno>()).then_some(Code::System)
}

/// The code of what is wrong with a journal.
pub const fn code_of_journal(error: &JournalError) -> Code {
    match error {
        JournalError::Storage { .. } | JournalError::InUse { .. } => Code::JournalUnusable,
        JournalError::Damaged { .. } => Code::JournalDamaged,
        JournalError::NotOne { .. } => Code::BadValue,
        JournalError::TooNew { .. } => Code::JournalOfOther,
    }
}

/// The code of a refusal of the core.
pub const fn code_of_refusal(refusal: &Refusal) -> Code {
    match refusal {
        Refusal::NothingAsked | Refusal::NoTime { .. } => Code::BadValue,
        Refusal::TooManyProcessors { .. }
        | Refusal::TaskTooWide { .. }
        | Refusal::TooManyTasks { .. } => Code::TooLarge,
        Refusal::TooMuchMemory { .. } => Code::TooMuchMemory,
        Refusal::TooFewNodes { .. } | Refusal::Wish(_) => Code::NoSuchNodes,
        Refusal::NoResource { .. } | Refusal::NoDevices { .. } => Code::NoResource,
        Refusal::TooManyResources { .. } | Refusal::ResourceTwice => Code::BadValue,
        Refusal::NoNodes => Code::NoNodes,
        Refusal::UnknownClass { .. } => Code::NoClass,
        Refusal::TooManyJobs { .. } => Code::TooManyJobs,
        Refusal::Deadline { .. } | Refusal::NoTimeForClass { .. } | Refusal::NoMemoryByDeadline => {
            Code::DeadlineTooSoon
        }
        Refusal::Queue(QueueRefusal::Unknown { .. }) => Code::NoQueue,
        Refusal::Queue(_) => Code::QueueLimit,
        Refusal::DeadlineWithoutLimit
        | Refusal::NoDeadlines
        | Refusal::HeldWithDeadline
        | Refusal::DeadlineAfterJobs
        | Refusal::DeadlineWithBegin
        | Refusal::ArrayWithDeadline
        | Refusal::DeadlineWithResources => Code::NoDeadlines,
        Refusal::AfterTooMany { .. } => Code::BadValue,
        Refusal::AfterNone { .. } => Code::NoJob,
        Refusal::AfterEach { .. } => Code::BadValue,
        Refusal::ShuttingDown => Code::ShuttingDown,
    }
}

/// The code of how a job ended; nothing if its tasks have simply run.
pub fn code_of_end<'a>(
    outcome: Outcome,
    mut statuses: impl Iterator<Item = &'a TaskStatus>,
) -> Option<Code> {
    match outcome.reason {
        EndReason::Completed | EndReason::TaskFailed => statuses.find_map(|status| match status {
            TaskStatus::NotFound => Some(Code::NoProgram),
            TaskStatus::NotExecutable => Some(Code::NotExecutable),
            TaskStatus::OutOfMemory => Some(Code::OutOfMemory),
            TaskStatus::Lost => Some(Code::NodeLost),
            TaskStatus::Unknown => Some(Code::ExitUnknown),
            TaskStatus::Unfinalized(_) if outcome.reason == EndReason::TaskFailed => {
                Some(Code::NotFinalized)
            }
            TaskStatus::NotRestored => Some(Code::NotRestored),
            TaskStatus::Damaged => Some(Code::NotSaved),
            TaskStatus::Exited(_)
            | TaskStatus::Saved
            | TaskStatus::Signaled(_)
            | TaskStatus::Aborted(_)
            | TaskStatus::Unfinalized(_) => None,
        }),
        EndReason::Cancelled | EndReason::Requeued { .. } => Some(Code::Cancelled),
        EndReason::TimedOut => Some(Code::TimedOut),
        EndReason::OutOfMemory => Some(Code::OutOfMemory),
        EndReason::FrontEndLost => Some(Code::FrontEndLost),
        EndReason::NodeLost(_) => Some(Code::NodeLost),
        EndReason::ShutDown => Some(Code::InstanceEnded),
        EndReason::NeverAfter(_) | EndReason::Declined => Some(Code::NeverStarted),
    }
}

#[cfg(test)]
mod tests {
    use super::{code_of_end, code_of_refusal};
    use tutti_types::{EndReason, Nanos, Outcome, Refusal, TaskStatus};
    use tutti_wire::code::Code;

    /// What it would take a million jobs, or an old kernel, to see.
    #[test]
    fn what_is_hard_to_provoke_has_its_code() {
        assert_eq!(code_of_refusal(&Refusal::TooManyJobs { limit: 7 }), Code::TooManyJobs);
        assert_eq!(code_of_refusal(&Refusal::NoNodes), Code::NoNodes);
        let outcome =
            Outcome { reason: EndReason::Completed, exit_code: 121, service: Nanos::ZERO };
        let statuses = [TaskStatus::Exited(3), TaskStatus::Unknown];
        assert_eq!(code_of_end(outcome, statuses.iter()), Some(Code::ExitUnknown));
        assert_eq!(code_of_end(outcome, statuses[..1].iter()), None);
    }
}
