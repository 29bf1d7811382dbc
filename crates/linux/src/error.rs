//! What can go wrong between us and the kernel: one error type, path and operation inside.

use std::io;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// The result of talking to the kernel.
pub type Result<T> = std::result::Result<T, Error>;

/// A refusal of the kernel, or an answer that makes no sense.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// An operation on a file or directory failed.
    #[error("cannot {operation} {}", path.display())]
    File {
        /// What was tried, as a verb: "write", "make group".
        operation: &'static str,
        /// What it was tried on.
        path: PathBuf,
        /// What the kernel answered.
        source: io::Error,
    },
    /// A system call that concerns no file failed.
    #[error("{call} failed")]
    Call {
        /// The name of the call.
        call: &'static str,
        /// What the kernel answered.
        source: io::Error,
    },
    /// A file of the kernel has a content that is not understood.
    #[error("{} has no readable {wanted}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What was looked for.
        wanted: &'static str,
    },
    /// Neither hierarchy of cgroups offers the controller here.
    #[error("no {controller} controller can be used for {}", path.display())]
    NoController {
        /// The group that was to be limited.
        path: PathBuf,
        /// "memory" or "pids".
        controller: &'static str,
    },
    /// The limit on locked memory is too low to lock all of it.
    #[error("the limit on locked memory is {limit_bytes} bytes; locking all needs no limit")]
    LockLimit {
        /// The soft `RLIMIT_MEMLOCK`, in bytes.
        limit_bytes: u64,
    },
    /// The group does what no group does: it lets processes run while it is frozen, for one.
    #[error("{} does not behave like a group: {what}", path.display())]
    Misbehaves {
        /// The group.
        path: PathBuf,
        /// What was seen.
        what: &'static str,
    },
}

impl Error {
    /// For `map_err` on what concerns a file.
    pub(crate) fn file(operation: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::File { operation, path: path.to_owned(), source }
    }

    /// The last error of this thread, as that of `call`.
    pub(crate) fn last(call: &'static str) -> Self {
        Self::Call { call, source: io::Error::last_os_error() }
    }

    /// The error number that the kernel gave, if it was the kernel.
    #[must_use]
    pub fn errno(&self) -> Option<i32> {
        match self {
            Self::File { source, .. } | Self::Call { source, .. } => source.raw_os_error(),
            _ => None,
        }
    }

    /// Whether what was asked about no longer exists: a removed group, an ended process.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        matches!(self.errno(), Some(libc::ENOENT | libc::ENODEV | libc::ESRCH))
    }

    /// Whether this process has no right to what was asked.
    #[must_use]
    pub fn is_denied(&self) -> bool {
        matches!(self.errno(), Some(libc::EACCES | libc::EPERM))
    }
}

impl From<Error> for io::Error {
    /// Keeps the kind; the error itself is inside.
    fn from(error: Error) -> Self {
        let kind = error
            .errno()
            .map_or(io::ErrorKind::Other, |errno| Self::from_raw_os_error(errno).kind());
        Self::new(kind, error)
    }
}
