//! Stopping, continuing and ending a tree of processes by signals, where no group can be made.
//!
//! After section 3 of the process-tracking paper: SIGSTOP from the top down, so that no parent
//! sees a child of its own stopped; each stop is verified; none is signalled twice; SIGCONT from
//! the bottom up. Always SIGSTOP, never SIGTSTP, which may be ignored and does nothing to an
//! orphaned process group.
//!
//! The tree changes while it is walked. So a suspension is done only when one whole pass over the
//! tree has found every process stopped, signalled none, and met none that ended since the pass
//! before. Then nothing can have been missed: a stopped process makes no child, and only one that
//! ends while the pass is under way leaves its children to another, behind the walk's back.
//!
//! The target of a signal is made sure by number *and* start time, through a pidfd where the kernel
//! has them, so that a number that was used again is never signalled.
//!
//! Where there is a group that is to be stopped by signals all the same, it lists anew for each
//! pass what belongs to it: also those whose parent has ended, wherever they are in the tree now.
//! Its list has numbers only, so it is read again when all on it have been looked at: what is still
//! on it is what was seen.
//!
//! A process that had stopped before a walk gets no signal, and the walk says which these are: they
//! were stopped by their own program or user, and stay so when the others are continued.
//!
//! What this cannot do, other than the freezer: SIGCONT from elsewhere wakes what was stopped;
//! parents get SIGCHLD for it; a process that its program stops at the same moment counts as
//! stopped by the walk; and without a group orphans are found only if the root, or what is walked
//! below it, is a child subreaper.

mod kill;
mod resume;
mod suspend;

use crate::cgroup::Cgroup;
use crate::proc::{ProcessStat, StuckProcess, Tree};
use crate::{Error, clock};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

pub use kill::{kill_forest, kill_tree, signal_forest, signal_tree};
pub use resume::{
    continue_named, resume_forest, resume_forest_except, resume_group_except, resume_tree,
    signal_named, stopped_among,
};
pub use suspend::{Halt, halt_forest, halt_group, suspend_forest, suspend_tree};

/// How many processes an error names.
const STUCK_NAMED_MAX: usize = 16;

/// The order in which a tree is stopped, and what is waited for.
///
/// Half of a walk's deadline belongs to its order. What has not stopped by then is stopped as by
/// [`Traversal::AllAtOnce`]: better a parent that sees a stopped child than a tree that runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Traversal {
    /// Each process must have stopped before the next is signalled (the paper's section 3).
    DepthFirst,
    /// All of a level are signalled, and must have stopped before the next level.
    BreadthFirst,
    /// Depth first, but one that has not stopped at once only holds up its own subtree (figure 7).
    /// Resuming takes effect at once, and is as [`Traversal::DepthFirst`].
    Hybrid,
    /// All are signalled, parents before children, and verified after. By far the fastest, since
    /// all stop at the same time; a parent may see a stopped child for that moment.
    AllAtOnce,
}

/// How to stop or continue a tree.
#[derive(Clone, Copy, Debug)]
pub struct Walk {
    /// The order.
    pub traversal: Traversal,
    /// How long to wait before looking again whether a process has stopped.
    pub retry_interval: Duration,
    /// When to give up.
    pub deadline: Duration,
}

/// The top of a tree of processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Root {
    pid: i32,
    /// When it began, if that is known: a number may be another's by now.
    start_time: Option<u64>,
    scope: Scope,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scope {
    Whole,
    Below,
}

impl Root {
    /// The process and all its descendants.
    #[must_use]
    pub fn whole(pid: i32) -> Self {
        Self { pid, start_time: None, scope: Scope::Whole }
    }

    /// Only the descendants of the process, which itself is left alone: a minder.
    #[must_use]
    pub fn below(pid: i32) -> Self {
        Self { pid, start_time: None, scope: Scope::Below }
    }

    /// The same tree, of the process that has the number now and of no later one; `None` if there
    /// is none, or that is another than was named already.
    #[must_use]
    pub fn held(self) -> Option<Self> {
        let stat = ProcessStat::read(self.pid).ok()?;
        let is_it = self.start_time.is_none_or(|began| began == stat.start_time);
        is_it.then_some(Self { start_time: Some(stat.start_time), ..self })
    }

    /// Only the descendants of the process that began then; see [`Root::below`].
    #[must_use]
    pub fn below_named((pid, start_time): (i32, u64)) -> Self {
        Self { start_time: Some(start_time), ..Self::below(pid) }
    }
}

impl From<i32> for Root {
    fn from(pid: i32) -> Self {
        Self::whole(pid)
    }
}

impl From<(i32, u64)> for Root {
    /// The process that began then (clock ticks since boot, as in [`ProcessStat`]) and all its
    /// descendants; none, if it has ended and its number is another's.
    fn from((pid, start_time): (i32, u64)) -> Self {
        Self { start_time: Some(start_time), ..Self::whole(pid) }
    }
}

/// What a walk has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WalkReport {
    /// Processes found in the end, ended ones left out.
    pub processes: usize,
    /// Signals sent.
    pub signals: usize,
    /// How often it waited for a retry interval.
    pub retries: usize,
    /// How long it took.
    pub took: Duration,
}

/// Why a walk failed.
#[derive(Debug, thiserror::Error)]
pub enum WalkError {
    /// Some process did not do as told in time. A suspension has been undone.
    #[error("{} did not follow within {waited:?}", named(stuck))]
    Timeout {
        /// How long it was waited for.
        waited: Duration,
        /// Which ones, and where they hang; the first 16.
        stuck: Vec<StuckProcess>,
    },
    /// A process may not be signalled by this user. A suspension has been undone.
    #[error("process {pid} may not be signalled")]
    NotPermitted {
        /// Which one; the first, if several.
        pid: i32,
        /// What the kernel answered.
        source: io::Error,
    },
    /// `/proc` could not be read.
    #[error(transparent)]
    Kernel(#[from] Error),
}

fn named(stuck: &[StuckProcess]) -> String {
    if stuck.is_empty() {
        return "the processes, which come and go,".to_owned();
    }
    stuck.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// A process that was signalled, or had stopped before.
struct Known {
    start_time: u64,
    /// It was sent a signal.
    is_ours: bool,
    /// It has been seen stopped since: the signal has done its work.
    was_stopped: bool,
}

/// What to do about a process that may not be signalled.
#[derive(Clone, Copy, PartialEq, Eq)]
enum OnRefusal {
    /// The whole walk has failed.
    Fail,
    /// The others are signalled nevertheless.
    GoOn,
}

/// The processes to be walked.
#[derive(Clone)]
enum Whom<'a> {
    /// With the start time of each, since a root may end and its number be used again.
    Roots(Vec<(Root, u64)>),
    /// All of a group, of any descent.
    Group(&'a Cgroup),
}

/// What is known during one walk.
struct Walker<'a> {
    whom: Whom<'a>,
    known: BTreeMap<i32, Known>,
    /// Those met when they had ended but were not reaped, with the start time of each.
    ended: BTreeSet<(i32, u64)>,
    /// The keys of `known`, as first signalled: parents before children.
    order: Vec<i32>,
    start: Instant,
    deadline: Duration,
    signals: usize,
    retries: usize,
    on_refusal: OnRefusal,
    /// The first refusal that was passed over.
    refused: Option<WalkError>,
}

/// A process at which a pass begins or goes on, with the parent that it must have.
type Place = (i32, Option<i32>);

impl<'a> Walker<'a> {
    fn of_roots<R: Copy + Into<Root>>(roots: &[R], deadline: Duration) -> Result<Self, WalkError> {
        let mut found = Vec::new();
        for &root in roots {
            let root: Root = root.into();
            let is_it =
                |stat: &ProcessStat| root.start_time.is_none_or(|began| began == stat.start_time);
            if let Some(stat) = read_if_exists(root.pid)?.filter(is_it) {
                found.push((root, stat.start_time));
            }
        }
        Ok(Self::new(Whom::Roots(found), deadline))
    }

    fn new(whom: Whom<'a>, deadline: Duration) -> Self {
        Self {
            whom,
            known: BTreeMap::new(),
            ended: BTreeSet::new(),
            order: Vec::new(),
            start: Instant::now(),
            deadline,
            signals: 0,
            retries: 0,
            on_refusal: OnRefusal::Fail,
            refused: None,
        }
    }

    /// The parents and children now, and where a pass begins.
    fn survey(&self) -> Result<(Tree, Vec<Place>), WalkError> {
        match &self.whom {
            Whom::Roots(roots) => {
                let tree = Tree::read()?;
                let tops = Self::tops(roots, &tree)?;
                Ok((tree, tops))
            }
            Whom::Group(group) => {
                let (tree, tops) = Tree::among(|| group.processes())?;
                Ok((tree, tops.into_iter().map(|pid| (pid, None)).collect()))
            }
        }
    }

    /// The roots that are still the same processes, or their children. A root whose parent is one
    /// is found below that: else each process would be walked once for each root above it.
    fn tops(roots: &[(Root, u64)], tree: &Tree) -> Result<Vec<Place>, WalkError> {
        let mut living = Vec::new();
        for &(root, start_time) in roots {
            if let Some(stat) = read_if_exists(root.pid)?.filter(|it| it.start_time == start_time) {
                living.push((root, stat.ppid));
            }
        }
        let whole: BTreeSet<i32> = living
            .iter()
            .filter(|(root, _)| root.scope == Scope::Whole)
            .map(|(it, _)| it.pid)
            .collect();
        let mut tops = Vec::new();
        for (root, parent) in living {
            match root.scope {
                Scope::Whole if whole.contains(&parent) => {}
                Scope::Whole => tops.push((root.pid, None)),
                Scope::Below => {
                    let began = roots.iter().find(|(it, _)| it.pid == root.pid).map(|it| it.1);
                    tops.extend(children_of_same(tree, root.pid, began)?.unwrap_or_default());
                }
            }
        }
        Ok(tops)
    }

    /// The children of a process that was met; `None` if it has ended since.
    fn children(&self, tree: &Tree, pid: i32) -> Result<Option<Vec<Place>>, WalkError> {
        children_of_same(tree, pid, self.known.get(&pid).map(|known| known.start_time))
    }

    /// Signals a process that was not signalled before.
    fn send_first(&mut self, handle: &Handle, signal: i32) -> Result<(), WalkError> {
        let ProcessStat { pid, start_time, .. } = handle.stat;
        if handle.send(signal)? {
            self.signals += 1;
            self.order.push(pid);
            self.known.insert(pid, Known { start_time, is_ours: true, was_stopped: false });
        }
        Ok(())
    }

    fn is_known(&self, stat: &ProcessStat) -> bool {
        self.known.get(&stat.pid).is_some_and(|known| known.start_time == stat.start_time)
    }

    /// The signalled process `pid` as it is now; `None` if it has ended.
    fn look_at_known(&self, pid: i32) -> Result<Option<ProcessStat>, WalkError> {
        let stat = read_if_exists(pid)?;
        Ok(stat.filter(|stat| self.is_known(stat) && !stat.has_ended()))
    }

    fn left(&self) -> Duration {
        self.deadline.saturating_sub(self.start.elapsed())
    }

    /// Waits for one retry interval, or what is left. `false` if nothing is.
    fn wait(&mut self, retry_interval: Duration) -> bool {
        let left = self.left();
        if left.is_zero() {
            return false;
        }
        self.retries += 1;
        clock::nap(retry_interval.min(left));
        true
    }

    fn report(&self, processes: usize) -> WalkReport {
        let Self { signals, retries, .. } = *self;
        WalkReport { processes, signals, retries, took: self.start.elapsed() }
    }

    fn timeout(&self, stuck: &[i32]) -> WalkError {
        let stuck = stuck.iter().take(STUCK_NAMED_MAX).map(|&pid| StuckProcess::look_at(pid));
        WalkError::Timeout { waited: self.start.elapsed(), stuck: stuck.collect() }
    }
}

/// Sends a signal, one of the real-time signals too, to the process group of this leader; to the
/// process alone if it leads none. The number must be the process's own still: it is not reaped
/// yet.
pub fn send_to_group(leader: i32, signal: i32) {
    // SAFETY: takes no pointer.
    if leader > 1 && unsafe { libc::kill(-leader, signal) } != 0 {
        // SAFETY: as above.
        unsafe { libc::kill(leader, signal) };
    }
}

/// Sends a signal to one process, which is the caller's to name: a child that it has not reaped.
pub fn send_to_one(pid: i32, signal: i32) {
    if pid > 1 {
        // SAFETY: takes no pointer.
        unsafe { libc::kill(pid, signal) };
    }
}

fn children_of(tree: &Tree, pid: i32) -> impl DoubleEndedIterator<Item = Place> {
    tree.children(pid).into_iter().map(move |child| (child, Some(pid)))
}

/// As [`children_of`], of the process that began then; `None` if it has ended, since the children
/// that were read are another's perhaps. Of a process that has none nothing more is looked at.
fn children_of_same(
    tree: &Tree,
    pid: i32,
    began: Option<u64>,
) -> Result<Option<Vec<Place>>, WalkError> {
    let children: Vec<Place> = children_of(tree, pid).collect();
    if children.is_empty() || matches!(tree, Tree::Listed { .. }) {
        return Ok(Some(children));
    }
    let stat = read_if_exists(pid)?;
    let is_same = stat.is_some_and(|stat| began.is_none_or(|began| began == stat.start_time));
    Ok(is_same.then_some(children))
}

fn read_if_exists(pid: i32) -> Result<Option<ProcessStat>, WalkError> {
    match ProcessStat::read(pid) {
        Ok(stat) => Ok(Some(stat)),
        Err(error) if error.is_gone() => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// A process that cannot turn into another between the look at it and the signal.
struct Handle {
    /// Opened before `stat` was read: both are of the same process if the start time is the one
    /// that was expected. `None` on kernels before 5.3 and when descriptors run out.
    pidfd: Option<OwnedFd>,
    stat: ProcessStat,
}

impl Handle {
    /// `None` if the process does not exist, has ended, or is ourselves.
    fn open(pid: i32) -> Result<Option<Self>, WalkError> {
        if pid.unsigned_abs() == std::process::id() || pid <= 0 {
            return Ok(None);
        }
        // SAFETY: takes no pointer.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
        // SAFETY: the kernel has just opened it for us.
        let pidfd = i32::try_from(fd)
            .ok()
            .filter(|&fd| fd >= 0)
            .map(|fd| unsafe { OwnedFd::from_raw_fd(fd) });
        let stat = read_if_exists(pid)?.filter(|stat| !stat.has_ended());
        Ok(stat.map(|stat| Self { pidfd, stat }))
    }

    /// `false` if it has ended meanwhile.
    fn send(&self, signal: i32) -> Result<bool, WalkError> {
        let pid = self.stat.pid;
        let none: *mut libc::siginfo_t = std::ptr::null_mut();
        let result = match &self.pidfd {
            // SAFETY: `none` stands for no information along with the signal; the rest are numbers.
            Some(fd) => unsafe {
                libc::syscall(libc::SYS_pidfd_send_signal, fd.as_raw_fd(), signal, none, 0)
            },
            // SAFETY: takes no pointer.
            None => unsafe { libc::kill(pid, signal).into() },
        };
        if result == 0 {
            return Ok(true);
        }
        let source = io::Error::last_os_error();
        match source.raw_os_error() {
            Some(libc::ESRCH) => Ok(false),
            _ => Err(WalkError::NotPermitted { pid, source }),
        }
    }
}
