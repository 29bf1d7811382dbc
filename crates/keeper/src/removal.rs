//! Removing what jobs have left in their directories, beside the loop.
//!
//! A user may leave a great deal, or put a file system there that never answers: so it is done by
//! threads ([`tutti_node::workers`]).
//!
//! It is done with the rights of the job's user: what that user may not remove, as
//! another's directory that was moved there, stays, and is put out of the way under a name that
//! says so ([`LEFT`]).

use super::scratch::{self, JOB, LEFT};
use std::fs::symlink_metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::Duration;
use tracing::warn;
use tutti_linux::random::random_u32;
use tutti_linux::remove_tree::remove_tree_of;
use tutti_node::workers::{Bounds, Workers};
use tutti_wire::code::Code;

/// Threads at once, for what belongs to one user and in all.
const BOUNDS: Bounds = Bounds { of_user: 2, all: 32 };

/// A directory, and its owner; without that, as [`remove_tree_of`] says.
pub(super) type Owned = (PathBuf, Option<u32>);

/// To wait for the end of a removal.
pub(super) struct Removal(Receiver<()>);

impl Removal {
    /// Waits until all of it is gone or given up, at most so long; whether that is so.
    pub(super) fn wait(&self, patience: Duration) -> bool {
        // Nothing is sent: each piece that is done has a sender less.
        self.0.recv_timeout(patience) == Err(RecvTimeoutError::Disconnected)
    }

    /// Whether all of it is gone or given up.
    pub(super) fn is_done(&self) -> bool {
        self.wait(Duration::ZERO)
    }
}

static WORKERS: LazyLock<Workers> = LazyLock::new(|| Workers::new(BOUNDS));

/// Has a thread remove what belongs to a user, by this function.
pub(super) fn beside(user: u32, remove: impl FnOnce() + Send + 'static) -> Removal {
    let (done, wait) = sync_channel(1);
    let work = move || {
        remove();
        drop(done);
    };
    WORKERS.start(user, Box::new(work));
    Removal(wait)
}

/// Has these removed, with all that is in them.
pub(super) fn remove_beside(paths: Vec<Owned>) -> Removal {
    let (done, wait) = sync_channel(1);
    for (path, owner) in paths {
        let user = symlink_metadata(&path).map_or(u32::MAX, |found| found.uid());
        let done = done.clone();
        WORKERS.start(
            user,
            Box::new(move || {
                remove_now(&path, owner);
                drop(done);
            }),
        );
    }
    Removal(wait)
}

fn remove_now(path: &Path, owner: Option<u32>) {
    #[cfg(test)]
    super::fixture::wait_while_removals_are_held();
    if let Err(error) = remove_tree_of(path, owner) {
        let left = put_aside(path).unwrap_or_else(|| path.to_owned());
        let (path, left) = (path.display(), left.display());
        warn!(code = %Code::System, "cannot remove {path}: {error}; what is left is in {left}");
    }
}

/// Gives what could not be removed a name that tells so; nothing if it has one, or gets none.
fn put_aside(path: &Path) -> Option<PathBuf> {
    let name = path.file_name()?.to_str()?;
    let (prefix, job) = name.split_once(JOB)?;
    let left = path.with_file_name(format!("{prefix}{LEFT}{job}.{:08x}", random_u32().ok()?));
    scratch::rename(path, &left).then_some(left)
}
