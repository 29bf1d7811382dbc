//! Ending a tree, and sending it any other signal.

use super::{
    Handle, OnRefusal, Root, Scope, Traversal, Walk, WalkError, WalkReport, Walker, Whom,
    children_of_same, read_if_exists,
};
use crate::proc::ProcessStat;
use std::collections::BTreeSet;
use std::time::Duration;

/// How long a tree may take to end.
const KILL_DEADLINE: Duration = Duration::from_secs(10);
/// How long one attempt to stop all of it may take, before what has been found is killed.
const STOP_DEADLINE: Duration = Duration::from_millis(500);
/// Between two looks whether those that were killed have ended.
const RETRY_INTERVAL: Duration = Duration::from_micros(200);

/// Ends `root` and all its descendants: stops all from the top down, so that none makes another,
/// then sends SIGKILL, until none is left. Ended processes that their parents have not reaped
/// don't count.
///
/// # Errors
/// [`WalkError::Timeout`] after ten seconds, naming the processes that hang;
/// [`WalkError::NotPermitted`] if one may not be signalled, with all others ended.
pub fn kill_tree(root: impl Into<Root>) -> Result<WalkReport, WalkError> {
    kill_forest(&[root.into()])
}

/// As [`kill_tree`], for several trees at once.
///
/// # Errors
/// As [`kill_tree`].
pub fn kill_forest<R: Copy + Into<Root>>(roots: &[R]) -> Result<WalkReport, WalkError> {
    let mut walker = Walker::of_roots(roots, KILL_DEADLINE)?;
    let mut processes = 0;
    loop {
        let stopped = walker.stop_what_can_be()?;
        // Only a walk that was completed proves that there is none.
        if stopped.found == Some(0) {
            return Ok(walker.report(processes));
        }
        let sent = walker.kill_found()?;
        processes += sent;
        walker.wait_for_ends()?;
        match stopped.refused {
            Some(error) if sent == 0 => return Err(error),
            _ if walker.left().is_zero() => {
                let left: Vec<i32> = walker.list()?.into_iter().map(|(pid, _)| pid).collect();
                return Err(walker.timeout(&left));
            }
            _ => {}
        }
    }
}

/// The outcome of stopping a tree in order to kill it.
struct Stopped {
    /// How many live in it; `None` if time ran out before all were found.
    found: Option<usize>,
    /// The first that may not be signalled.
    refused: Option<WalkError>,
}

impl Walker<'_> {
    /// Everything alive in the tree now, parents before children, with the start time of each.
    fn list(&self) -> Result<Vec<(i32, u64)>, WalkError> {
        let (tree, mut queue) = self.survey()?;
        let mut found = Vec::new();
        let mut next = 0;
        while let Some(&(pid, parent)) = queue.get(next) {
            next += 1;
            let stat = read_if_exists(pid)?;
            let belongs = |stat: &ProcessStat| parent.is_none_or(|parent| stat.ppid == parent);
            if let Some(stat) = stat.filter(belongs) {
                let children = children_of_same(&tree, pid, Some(stat.start_time))?;
                queue.extend(children.unwrap_or_default());
                if !stat.has_ended() {
                    found.push((pid, stat.start_time));
                }
            }
        }
        // A root whose parent, another root, has ended meanwhile is below none any more.
        if let Whom::Roots(roots) = &self.whom {
            let met: BTreeSet<i32> = found.iter().map(|&(pid, _)| pid).collect();
            let is_left =
                |it: &&(Root, u64)| it.0.scope == Scope::Whole && !met.contains(&it.0.pid);
            for &(root, start_time) in roots.iter().filter(is_left) {
                let stat = read_if_exists(root.pid)?;
                if stat.is_some_and(|it| it.start_time == start_time && !it.has_ended()) {
                    found.push((root.pid, start_time));
                }
            }
        }
        Ok(found)
    }

    /// Stops the tree, as far as that goes, and takes over the processes that were found.
    fn stop_what_can_be(&mut self) -> Result<Stopped, WalkError> {
        let walk = Walk {
            traversal: Traversal::AllAtOnce,
            retry_interval: RETRY_INTERVAL,
            deadline: STOP_DEADLINE.min(self.left()),
        };
        // Roots by their identity as of the beginning, not as of now.
        let mut stopper = Walker::new(self.whom.clone(), walk.deadline);
        stopper.on_refusal = OnRefusal::GoOn;
        let found = match stopper.stop_all(&walk) {
            Ok(report) => Some(report.processes),
            Err(WalkError::Timeout { .. }) => None,
            Err(error) => return Err(error),
        };
        self.signals += stopper.signals;
        self.known = stopper.known;
        self.order = stopper.order;
        Ok(Stopped { found, refused: stopper.refused })
    }

    fn kill_found(&mut self) -> Result<usize, WalkError> {
        let mut sent = 0;
        for &pid in &self.order {
            if let Some(handle) = Handle::open(pid)?
                && self.is_known(&handle.stat)
                && handle.send(libc::SIGKILL).unwrap_or(false)
            {
                sent += 1;
            }
        }
        self.signals += sent;
        Ok(sent)
    }

    /// Until all that were killed have ended, or for as long as one attempt to stop may take.
    fn wait_for_ends(&mut self) -> Result<(), WalkError> {
        let mut living = self.order.clone();
        let mut waited = Duration::ZERO;
        loop {
            let mut still = Vec::new();
            for pid in living {
                if self.look_at_known(pid)?.is_some() {
                    still.push(pid);
                }
            }
            living = still;
            if living.is_empty() || waited > STOP_DEADLINE || !self.wait(RETRY_INTERVAL) {
                return Ok(());
            }
            waited += RETRY_INTERVAL;
        }
    }
}

/// Sends `signal` once to `root` and all its descendants, from the top down: to those that exist
/// when it begins. A child that is adopted or born just then may be missed.
///
/// # Errors
/// [`WalkError::NotPermitted`] names the first that may not be signalled; all others have been.
pub fn signal_tree(root: impl Into<Root>, signal: i32) -> Result<WalkReport, WalkError> {
    signal_forest(&[root.into()], signal)
}

/// As [`signal_tree`], for several trees.
///
/// # Errors
/// As [`signal_tree`].
pub fn signal_forest<R: Copy + Into<Root>>(
    roots: &[R],
    signal: i32,
) -> Result<WalkReport, WalkError> {
    let mut walker = Walker::of_roots(roots, Duration::MAX)?;
    // All of them first: the signal may make parents reap, or end, before they are asked.
    let listed = walker.list()?;
    let mut refused = None;
    for (pid, start_time) in listed {
        let Some(handle) = Handle::open(pid)? else { continue };
        if handle.stat.start_time != start_time {
            continue;
        }
        if let Err(error) = walker.send_first(&handle, signal) {
            refused.get_or_insert(error);
        }
    }
    refused.map_or_else(|| Ok(walker.report(walker.signals)), Err)
}
