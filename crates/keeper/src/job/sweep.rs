//! What a job has on this node besides its processes: directories for temporary files, a namespace
//! of IPC, shared memory. When all of its tasks have ended, before its end is reported, they are
//! removed. Directories and shared memory are removed by threads, since a user decides how long
//! they take. The end of a job waits for them a tenth of a second at most.

use super::{Job, SharedFiles, nap_ns};
use crate::context::Context;
use crate::removal::Removal;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};
use std::time::SystemTime;
use tutti_linux::shm;
use tutti_node::platform::time as clock;
use tutti_node::workers::{Bounds, Workers};

/// How long the end of a job waits for what is removed; what takes longer goes on after it.
const PATIENCE_NS: u64 = 100_000_000;

/// Threads that look in all processes of the machine for the users of shared memory.
const BOUNDS: Bounds = Bounds { of_user: 2, all: 8 };

/// See the head of the file.
pub(crate) struct Traces {
    /// Where its temporary files are.
    pub(super) scratch: Option<PathBuf>,
    /// Where the files of its PMIx server are, if that is no task's `TMPDIR`.
    pub(super) pmix_scratch: Option<PathBuf>,
    /// The namespace of its IPC on this node, until it has ended.
    pub(super) ipc: Option<OwnedFd>,
    /// Shared memory that its processes used when they were ended.
    pub(super) shared: SharedFiles,
    /// Since when that can be theirs.
    pub(super) began: SystemTime,
    /// What is removed of it before its end is reported.
    sweep: Option<Sweep>,
}

impl Traces {
    /// Those of a job that begins now, without directories.
    pub(super) fn new(ipc: Option<OwnedFd>) -> Self {
        let (scratch, pmix_scratch, shared) = (None, None, SharedFiles::new());
        Self { scratch, pmix_scratch, ipc, shared, began: SystemTime::now(), sweep: None }
    }

    /// Where its temporary files are, and those of its PMIx server.
    pub(crate) fn directories(&self) -> impl Iterator<Item = &Path> {
        self.scratch.as_deref().into_iter().chain(self.pmix_scratch.as_deref())
    }

    /// Where its PMIx server has its files.
    pub(crate) fn directory_of_pmix(&self) -> Option<&Path> {
        self.pmix_scratch.as_deref().or(self.scratch.as_deref())
    }

    /// The namespace of its IPC on this node, if it has its own.
    pub(crate) fn ipc(&self) -> Option<BorrowedFd<'_>> {
        self.ipc.as_ref().map(OwnedFd::as_fd)
    }

    /// Its IPC ends with its last process. Whether it had its own.
    pub(super) fn drop_ipc(&mut self) -> bool {
        self.ipc.take().is_some()
    }

    /// Shared memory that its processes use, which are to be ended.
    pub(super) fn note_shared(&mut self, files: SharedFiles) {
        self.shared.extend(files);
    }

    /// Shared memory that its next run finds again stays.
    pub(crate) fn keep_shared(&mut self) {
        self.shared.clear();
    }

    /// Whether they are being removed.
    pub(super) const fn are_swept(&self) -> bool {
        self.sweep.is_some()
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
}

/// A removal that is under way.
struct Sweep {
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
        let traces = &mut self.traces;
        let directories = traces.scratch.take().into_iter().chain(traces.pmix_scratch.take());
        let take_back = |directory| context.launching.scratches.take_back(directory, user);
        let scratches = directories.filter_map(take_back).collect();
        let shared = (!traces.shared.is_empty()).then(|| traces.remove_shared(user));
        let until_ns = clock::monotonic_ns() + PATIENCE_NS;
        traces.sweep = Some(Sweep { scratches, shared, until_ns, naps: 0 });
        self.watch_sweep(context);
    }

    /// The time has come to see how far a removal is.
    pub(super) fn watch_sweep(&mut self, context: &mut Context) {
        let key = self.key();
        let Some(sweep) = &mut self.traces.sweep else { return };
        let now_ns = clock::monotonic_ns();
        if sweep.is_done() || sweep.until_ns <= now_ns {
            self.traces.sweep = None;
            return self.report_cleared(context);
        }
        sweep.naps = sweep.naps.saturating_add(1);
        context.beside.insert(key, now_ns + nap_ns(sweep.naps));
    }
}
