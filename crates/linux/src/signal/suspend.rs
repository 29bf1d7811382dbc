//! SIGSTOP from the top down.

use super::{
    Handle, Known, OnRefusal, Place, Root, Traversal, Walk, WalkError, WalkReport, Walker, Whom,
    read_if_exists,
};
use crate::cgroup::Cgroup;
use crate::proc::{ProcessStat, Tree};
use std::collections::BTreeSet;
use std::time::Duration;

/// Stops `root` and all its descendants, and returns when each has been seen stopped. Nothing
/// happens to a root that does not exist.
///
/// # Errors
/// [`WalkError`]; all that was stopped has then been continued.
pub fn suspend_tree(root: impl Into<Root>, walk: &Walk) -> Result<WalkReport, WalkError> {
    suspend_forest(&[root.into()], walk)
}

/// As [`suspend_tree`], for several trees at once.
///
/// # Errors
/// As [`suspend_tree`]; then all trees run.
pub fn suspend_forest<R: Copy + Into<Root>>(
    roots: &[R],
    walk: &Walk,
) -> Result<WalkReport, WalkError> {
    Walker::of_roots(roots, walk.deadline)?.stop_or_undo(walk)
}

/// What became of a suspension that is not undone.
#[derive(Debug)]
pub struct Halt {
    /// Whether all have stopped. After an error those that were found have been sent SIGSTOP, and
    /// stop as soon as they can; others may run.
    pub outcome: Result<WalkReport, WalkError>,
    /// Processes that had stopped before, each by its number and start time.
    pub before: BTreeSet<(i32, u64)>,
}

/// As [`suspend_forest`], but nothing is continued if it fails, and one process that may not be
/// signalled does not keep the others running.
pub fn halt_forest<R: Copy + Into<Root>>(roots: &[R], walk: &Walk) -> Halt {
    match Walker::of_roots(roots, walk.deadline) {
        Ok(walker) => walker.halt(walk),
        Err(error) => Halt { outcome: Err(error), before: BTreeSet::new() },
    }
}

/// As [`halt_forest`], for all processes of a group, those included that come into it meanwhile and
/// those whose parent has ended. Its freezer is not used.
pub fn halt_group(group: &Cgroup, walk: &Walk) -> Halt {
    Walker::new(Whom::Group(group), walk.deadline).halt(walk)
}

/// What one pass over the tree has met.
#[derive(Default)]
pub(super) struct Pass {
    found: usize,
    /// Sent a signal in this pass, or first met in it: it may have made a child before it stopped.
    fresh: usize,
    /// Met, but not where it was expected: the tree was changing.
    moved: usize,
    running: Vec<i32>,
}

impl Pass {
    pub(super) fn is_final(&self) -> bool {
        self.fresh == 0 && self.moved == 0 && self.running.is_empty()
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Visit {
    Stopped,
    Running,
    Gone,
}

impl Walker<'_> {
    fn stop_or_undo(&mut self, walk: &Walk) -> Result<WalkReport, WalkError> {
        let result = self.stop_all(walk);
        if result.is_err() {
            self.undo();
        }
        result
    }

    fn halt(mut self, walk: &Walk) -> Halt {
        self.on_refusal = OnRefusal::GoOn;
        let outcome = self.stop_all(walk).and_then(|report| match self.refused.take() {
            Some(refused) => Err(refused),
            None => Ok(report),
        });
        let before = self.known.iter().filter(|(_, known)| !known.is_ours);
        Halt { outcome, before: before.map(|(&pid, known)| (pid, known.start_time)).collect() }
    }

    /// Passes over the tree until one finds everything stopped. Does not undo.
    pub(super) fn stop_all(&mut self, walk: &Walk) -> Result<WalkReport, WalkError> {
        loop {
            let traversal = self.traversal_now(walk);
            let walk = &Walk { traversal, ..*walk };
            let (tree, tops) = self.survey()?;
            let mut pass = Pass::default();
            if walk.traversal == Traversal::BreadthFirst {
                self.pass_by_levels(walk, &tree, tops, &mut pass)?;
            } else {
                self.pass_depth_first(walk, &tree, tops, &mut pass)?;
            }
            if pass.is_final() {
                return Ok(self.report(pass.found));
            }
            // The cheap way first: whole passes only when those that were met have stopped.
            self.wait_until_stopped(walk, &mut pass.running)?;
            let is_last = traversal == Traversal::AllAtOnce;
            if (is_last && !pass.running.is_empty()) || self.left().is_zero() {
                return Err(self.timeout(&pass.running));
            }
        }
    }

    /// A busy process stops only when it gets a processor, so a large tree of them takes long in
    /// any order but the last.
    fn traversal_now(&self, walk: &Walk) -> Traversal {
        match self.left_for(walk.traversal).is_zero() {
            true => Traversal::AllAtOnce,
            false => walk.traversal,
        }
    }

    fn left_for(&self, traversal: Traversal) -> Duration {
        match traversal {
            Traversal::AllAtOnce => self.left(),
            _ => self.left().saturating_sub(self.deadline / 2),
        }
    }

    /// Waits for one retry interval, or what is left of the time for this order. `false` if nothing
    /// is.
    fn wait_in(&mut self, walk: &Walk) -> bool {
        let left = self.left_for(walk.traversal);
        !left.is_zero() && self.wait(walk.retry_interval.min(left))
    }

    pub(super) fn pass_depth_first(
        &mut self,
        walk: &Walk,
        tree: &Tree,
        tops: Vec<Place>,
        pass: &mut Pass,
    ) -> Result<(), WalkError> {
        let mut stack = tops;
        stack.reverse();
        while let Some((pid, parent)) = stack.pop() {
            let visit = self.visit(walk, tree, (pid, parent), pass)?;
            let visit = match (visit, walk.traversal) {
                (Visit::Running, Traversal::DepthFirst) => self.wait_for(walk, pid)?,
                _ => visit,
            };
            match (visit, walk.traversal) {
                (Visit::Gone, _) => continue,
                (Visit::Stopped, _) => {}
                (Visit::Running, Traversal::AllAtOnce) => pass.running.push(pid),
                (Visit::Running, Traversal::Hybrid) => {
                    pass.running.push(pid);
                    continue;
                }
                (Visit::Running, Traversal::DepthFirst | Traversal::BreadthFirst) => {
                    pass.running.push(pid);
                    return Ok(());
                }
            }
            match self.children(tree, pid)? {
                Some(children) => stack.extend(children.into_iter().rev()),
                None => pass.moved += 1,
            }
        }
        Ok(())
    }

    fn pass_by_levels(
        &mut self,
        walk: &Walk,
        tree: &Tree,
        tops: Vec<Place>,
        pass: &mut Pass,
    ) -> Result<(), WalkError> {
        let mut level = tops;
        while !level.is_empty() {
            let mut present = Vec::new();
            for (pid, parent) in level {
                match self.visit(walk, tree, (pid, parent), pass)? {
                    Visit::Gone => continue,
                    Visit::Stopped => {}
                    Visit::Running => pass.running.push(pid),
                }
                present.push(pid);
            }
            self.wait_until_stopped(walk, &mut pass.running)?;
            if !pass.running.is_empty() {
                return Ok(());
            }
            level = Vec::new();
            for pid in present {
                match self.children(tree, pid)? {
                    Some(children) => level.extend(children),
                    None => pass.moved += 1,
                }
            }
        }
        Ok(())
    }

    /// Looks at one process, and signals it if that was not done or has been made void.
    fn visit(
        &mut self,
        walk: &Walk,
        tree: &Tree,
        (pid, parent): Place,
        pass: &mut Pass,
    ) -> Result<Visit, WalkError> {
        if self.known.contains_key(&pid)
            && let Some(stat) = self.look_at_known(pid)?
        {
            pass.found += 1;
            let is_stopped = stat.is_stopped();
            let known = self.known.get_mut(&pid).expect("it was looked at");
            if !is_stopped && known.was_stopped {
                // Another process continued it: the first signal is spent.
                known.was_stopped = false;
                self.send_again(pid, pass)?;
            } else if is_stopped {
                known.was_stopped = true;
            }
            return Ok(if is_stopped { Visit::Stopped } else { Visit::Running });
        }
        let Some(handle) = Handle::open(pid)? else {
            self.meet_ended(pid, pass)?;
            return Ok(Visit::Gone);
        };
        if parent.is_some_and(|parent| handle.stat.ppid != parent) || !tree.may_be(&handle.stat) {
            // Adopted by another meanwhile, or a stranger with a number used again.
            pass.moved += 1;
            return Ok(Visit::Gone);
        }
        pass.found += 1;
        if handle.stat.state == 'T' && handle.stat.is_stopped() {
            self.meet_stopped(&handle.stat);
            pass.fresh += 1;
            return Ok(Visit::Stopped);
        }
        match self.send_first(&handle, libc::SIGSTOP) {
            Err(refusal) if self.on_refusal == OnRefusal::GoOn => {
                self.refused.get_or_insert(refusal);
                return Ok(Visit::Stopped);
            }
            other => other?,
        }
        pass.fresh += 1;
        if walk.traversal == Traversal::AllAtOnce {
            // It is looked at when all have been signalled.
            return Ok(Visit::Running);
        }
        self.check_stopped(pid)
    }

    /// Its own program or user has stopped it.
    fn meet_stopped(&mut self, stat: &ProcessStat) {
        let known = Known { start_time: stat.start_time, is_ours: false, was_stopped: true };
        self.order.push(stat.pid);
        self.known.insert(stat.pid, known);
    }

    /// What ends during a pass may leave children to a process whose children were read before.
    /// So it makes another pass necessary, but only once: it may stay unreaped for as long as its
    /// parent is stopped.
    fn meet_ended(&mut self, pid: i32, pass: &mut Pass) -> Result<(), WalkError> {
        let is_old = match read_if_exists(pid)? {
            Some(stat) => !self.ended.insert((pid, stat.start_time)),
            None => false,
        };
        // Ourselves are passed over, and don't end.
        if !is_old && pid.unsigned_abs() != std::process::id() {
            pass.moved += 1;
        }
        Ok(())
    }

    fn send_again(&mut self, pid: i32, pass: &mut Pass) -> Result<(), WalkError> {
        if let Some(handle) = Handle::open(pid)?
            && self.is_known(&handle.stat)
            && handle.send(libc::SIGSTOP)?
        {
            pass.fresh += 1;
            self.signals += 1;
            if let Some(known) = self.known.get_mut(&pid) {
                known.is_ours = true;
            }
        }
        Ok(())
    }

    fn check_stopped(&mut self, pid: i32) -> Result<Visit, WalkError> {
        let Some(stat) = self.look_at_known(pid)? else { return Ok(Visit::Gone) };
        if !stat.is_stopped() {
            return Ok(Visit::Running);
        }
        if let Some(known) = self.known.get_mut(&pid) {
            known.was_stopped = true;
        }
        Ok(Visit::Stopped)
    }

    /// Until it has stopped or ended, or the deadline.
    fn wait_for(&mut self, walk: &Walk, pid: i32) -> Result<Visit, WalkError> {
        while self.wait_in(walk) {
            let visit = self.check_stopped(pid)?;
            if visit != Visit::Running {
                return Ok(visit);
            }
        }
        Ok(Visit::Running)
    }

    /// Until none of `running` runs, or the deadline; leaves those that do.
    fn wait_until_stopped(&mut self, walk: &Walk, running: &mut Vec<i32>) -> Result<(), WalkError> {
        loop {
            let mut still = Vec::new();
            for &pid in running.iter() {
                if self.check_stopped(pid)? == Visit::Running {
                    still.push(pid);
                }
            }
            *running = still;
            if running.is_empty() || !self.wait_in(walk) {
                return Ok(());
            }
        }
    }

    /// Continues all that were signalled, from the bottom up. A SIGSTOP that has not yet been
    /// acted upon is taken back by it too.
    pub(super) fn undo(&mut self) {
        for &pid in self.order.iter().rev() {
            if let Ok(Some(handle)) = Handle::open(pid)
                && self.is_known(&handle.stat)
                && self.known.get(&pid).is_some_and(|known| known.is_ours)
            {
                let _ = handle.send(libc::SIGCONT);
            }
        }
    }
}
