//! Becoming the parent of orphans.

use crate::{Error, Result};

/// Makes this process the one that orphaned descendants go to, instead of init.
///
/// It must then reap what it did not start. Inherited by threads, not by children.
///
/// # Errors
/// What `prctl(PR_SET_CHILD_SUBREAPER)` says; no kernel since 3.4 refuses.
pub fn become_subreaper() -> Result<()> {
    // SAFETY: takes no pointer.
    match unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) } {
        0 => Ok(()),
        _ => Err(Error::last("prctl(PR_SET_CHILD_SUBREAPER)")),
    }
}
