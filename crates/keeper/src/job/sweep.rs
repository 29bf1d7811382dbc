//! What is removed of a job when all of its tasks have ended, before its end is reported: its
//! directory for temporary files, and shared memory that it has left. Both are done by threads,
//! since a user decides how long they take; and the end of a job waits for them a tenth of a second
//! at most.

use super::{Job, nap_ns};
use crate::context::Context;
use crate::removal::Removal;
use std::sync::LazyLock;
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};
use tutti_linux::shm;
use tutti_node::platform::time as clock;
use tutti_node::workers::{Bounds, Workers};

/// How long the end of a job waits for what is removed; what takes longer goes on after it.
const PATIENCE_NS: u64 = 100_000_000;

/// Threads that look in all processes of the machine for the users of shared memory.
const BOUNDS: Bounds = Bounds { of_user: 2, all: 8 };

/// A removal that is under way.
pub(super) struct Sweep {
    scratches: Vec<Removal>,
    shared: Option<Receiver<()>>,
    until_ns: u64,
    naps: u32,
}

impl Sweep {
    fn is_done(&self) -> bool {
        let is_gone = |shared: &Receiver<()>| shared.try_recv() == Err(TryRecvError::Disconnected);
        self.scratches.iter().all(Removal::is_done) && self.shared.as_ref().is_none_or(is_gone)
    }
}

impl Job {
    /// Has removed what it leaves, and reports its end when that is done.
    pub(super) fn begin_sweep(&mut self, context: &mut Context) {
        let user = self.launch.credentials.uid;
        let directories = self.scratch.take().into_iter().chain(self.pmix_scratch.take());
        let take_back = |directory| context.launching.scratches.take_back(directory, user);
        let scratches = directories.filter_map(take_back).collect();
        let shared = (!self.shared.is_empty()).then(|| self.remove_shared(user));
        let until_ns = clock::monotonic_ns() + PATIENCE_NS;
        self.sweep = Some(Sweep { scratches, shared, until_ns, naps: 0 });
        self.watch_sweep(context);
    }

    /// Shared memory that its next run finds again stays.
    pub(crate) fn keep_shared(&mut self) {
        self.shared.clear();
    }

    /// The sender that the receiver belongs to is dropped when it is done. The files are kept: a
    /// keeper that takes over does it again.
    fn remove_shared(&self, user: u32) -> Receiver<()> {
        static WORKERS: LazyLock<Workers> = LazyLock::new(|| Workers::new(BOUNDS));
        let (done, wait) = sync_channel(1);
        let (files, began) = (self.shared.clone(), self.began);
        let remove = move || {
            let _ = shm::remove_left(&files, user, began);
            drop(done);
        };
        WORKERS.start(user, Box::new(remove));
        wait
    }

    /// The time has come to see how far a removal is.
    pub(super) fn watch_sweep(&mut self, context: &mut Context) {
        let key = self.key();
        let Some(sweep) = &mut self.sweep else { return };
        let now_ns = clock::monotonic_ns();
        if sweep.is_done() || sweep.until_ns <= now_ns {
            self.sweep = None;
            return self.report_cleared(context);
        }
        sweep.naps = sweep.naps.saturating_add(1);
        context.beside.insert(key, now_ns + nap_ns(sweep.naps));
    }
}
