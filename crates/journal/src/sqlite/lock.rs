//! The lock by which a controller has a journal to itself.

use super::MODE;
use crate::{JournalError, wal};
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// What is read of the process that holds the lock.
const LOCK_BYTES_MAX: u64 = 100;

/// Keeps other controllers away from the journal at this path; not where the file system has no
/// such locks.
pub(super) fn lock(path: &Path) -> Result<Option<Flock<File>>, JournalError> {
    let place = wal::beside(path, "-lock");
    let failed = |error: std::io::Error| JournalError::Storage {
        path: path.into(),
        what: "opened",
        why: format!("{}: {error}", place.display()),
    };
    let mut options = OpenOptions::new();
    let options = options.create(true).truncate(false).read(true).write(true).mode(MODE);
    let file = options.open(&place).map_err(failed)?;
    let mut file = match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
        Ok(file) => file,
        Err((file, Errno::EWOULDBLOCK)) => {
            let mut by = String::new();
            let _ = file.take(LOCK_BYTES_MAX).read_to_string(&mut by);
            return Err(JournalError::InUse { path: path.into(), by });
        }
        Err((_, Errno::EOPNOTSUPP | Errno::ENOSYS)) => return Ok(None),
        Err((_, error)) => return Err(failed(error.into())),
    };
    // For a process that finds it held; on a full disk it is told less.
    let by = format!(" (process {})", std::process::id());
    let _ = file.set_len(0).and_then(|()| file.write_all(by.as_bytes()));
    Ok(Some(file))
}

/// The error of a journal at this path that a controller has, also one that is not seen from here
/// otherwise; `None` if none has it, or there is none.
#[must_use]
pub fn in_use(path: &Path) -> Option<JournalError> {
    let file = File::open(wal::beside(path, "-lock")).ok()?;
    // Shared: two that only look do not keep each other away.
    let (file, error) = Flock::lock(file, FlockArg::LockSharedNonblock).err()?;
    if error != Errno::EWOULDBLOCK {
        return None;
    }
    let mut by = String::new();
    let _ = file.take(LOCK_BYTES_MAX).read_to_string(&mut by);
    Some(JournalError::InUse { path: path.into(), by })
}
