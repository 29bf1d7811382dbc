//! SIGCONT from the bottom up.

use super::{
    Handle, Place, Root, Traversal, Walk, WalkError, WalkReport, Walker, Whom, children_of_same,
    read_if_exists,
};
use crate::cgroup::Cgroup;
use crate::proc::{ProcessStat, Tree};
use std::collections::BTreeSet;

/// Continues all descendants of `root` and then itself: children before their parents, each seen
/// running before the next (before the next level, or not until all are signalled, as
/// `walk.traversal` says). Nothing happens to a root that does not exist.
///
/// # Errors
/// [`WalkError::Timeout`] names those still stopped, [`WalkError::NotPermitted`] the first that
/// could not be signalled; all others have been continued nevertheless.
pub fn resume_tree(root: impl Into<Root>, walk: &Walk) -> Result<WalkReport, WalkError> {
    resume_forest(&[root.into()], walk)
}

/// As [`resume_tree`], for several trees at once.
///
/// # Errors
/// As [`resume_tree`].
pub fn resume_forest<R: Copy + Into<Root>>(
    roots: &[R],
    walk: &Walk,
) -> Result<WalkReport, WalkError> {
    resume_forest_except(roots, &BTreeSet::new(), walk)
}

/// As [`resume_forest`], but leaves these processes as they are, each named by its number and start
/// time. A process below them, and not among them, is continued.
///
/// # Errors
/// As [`resume_tree`].
pub fn resume_forest_except<R: Copy + Into<Root>>(
    roots: &[R],
    except: &BTreeSet<(i32, u64)>,
    walk: &Walk,
) -> Result<WalkReport, WalkError> {
    resume(Walker::of_roots(roots, walk.deadline)?, except, walk)
}

/// As [`resume_forest_except`], for all processes of a group.
///
/// # Errors
/// As [`resume_tree`].
pub fn resume_group_except(
    group: &Cgroup,
    except: &BTreeSet<(i32, u64)>,
    walk: &Walk,
) -> Result<WalkReport, WalkError> {
    resume(Walker::new(Whom::Group(group), walk.deadline), except, walk)
}

/// Continues exactly these processes, each named by its number and start time, those with the
/// highest numbers first: children mostly before their parents. Takes effect at once. One that may
/// not be signalled stays as it is.
pub fn continue_named(names: &BTreeSet<(i32, u64)>) {
    signal_named(names.iter().rev(), libc::SIGCONT);
}

/// Sends a signal to exactly these processes, each named by its number and start time, in this
/// order. One that may not be signalled stays as it is.
pub fn signal_named<'a>(names: impl IntoIterator<Item = &'a (i32, u64)>, signal: i32) {
    for &(pid, start_time) in names {
        if let Ok(Some(handle)) = Handle::open(pid)
            && handle.stat.start_time == start_time
        {
            let _ = handle.send(signal);
        }
    }
}

/// Those of the processes that a signal has stopped, each named by its number and start time.
#[must_use]
pub fn stopped_among<'a>(names: impl IntoIterator<Item = &'a (i32, u64)>) -> Vec<(i32, u64)> {
    let is_stopped = |&&(pid, start_time): &&(i32, u64)| {
        ProcessStat::read(pid).is_ok_and(|it| it.start_time == start_time && it.state == 'T')
    };
    names.into_iter().filter(is_stopped).copied().collect()
}

fn resume(
    walker: Walker<'_>,
    except: &BTreeSet<(i32, u64)>,
    walk: &Walk,
) -> Result<WalkReport, WalkError> {
    let mut resume = Resume { walker, except, which: Which::All, stuck: Vec::new(), refused: None };
    let processes = resume.round(walk)?;
    // Again, since the first round may have missed one that changed its parent while it was read.
    resume.which = Which::Stopped;
    while resume.round(walk)? > 0 && !resume.walker.left().is_zero() {}
    match resume.refused {
        Some(error) => Err(error),
        None if resume.stuck.is_empty() => Ok(resume.walker.report(processes)),
        None => Err(resume.walker.timeout(&resume.stuck)),
    }
}

/// Which of the processes not yet continued are.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Which {
    /// Also those that do not look stopped: a SIGSTOP may be on its way to them.
    All,
    Stopped,
}

struct Resume<'a> {
    walker: Walker<'a>,
    except: &'a BTreeSet<(i32, u64)>,
    which: Which,
    stuck: Vec<i32>,
    refused: Option<WalkError>,
}

impl Resume<'_> {
    /// Continues what is found, and returns how many were.
    fn round(&mut self, walk: &Walk) -> Result<usize, WalkError> {
        let mut count = 0;
        let (tree, tops) = self.walker.survey()?;
        for batch in batches(&tree, tops, walk.traversal)? {
            let sent = self.send(&tree, &batch)?;
            count += sent.len();
            self.wait_until_running(walk, sent)?;
        }
        Ok(count)
    }

    fn send(&mut self, tree: &Tree, batch: &[Name]) -> Result<Vec<i32>, WalkError> {
        let mut sent = Vec::new();
        for &(pid, start_time) in batch {
            let Some(handle) = Handle::open(pid)?.filter(|it| it.stat.start_time == start_time)
            else {
                continue;
            };
            let is_due = self.which == Which::All || handle.stat.state == 'T';
            let is_spared = self.except.contains(&(pid, handle.stat.start_time));
            let is_done = self.walker.is_known(&handle.stat);
            if !is_due || is_spared || is_done || !tree.may_be(&handle.stat) {
                continue;
            }
            match self.walker.send_first(&handle, libc::SIGCONT) {
                Ok(()) => sent.push(pid),
                Err(error) => {
                    self.refused.get_or_insert(error);
                }
            }
        }
        Ok(sent)
    }

    fn wait_until_running(&mut self, walk: &Walk, mut sent: Vec<i32>) -> Result<(), WalkError> {
        loop {
            let mut still = Vec::new();
            for &pid in &sent {
                if self.walker.look_at_known(pid)?.is_some_and(|stat| stat.state == 'T') {
                    still.push(pid);
                }
            }
            if still.is_empty() {
                return Ok(());
            }
            if !self.walker.wait(walk.retry_interval) {
                self.stuck.extend(still);
                return Ok(());
            }
            sent = still;
        }
    }
}

/// A process by its number and start time: when it is continued, its number may be another's.
type Name = (i32, u64);

/// The processes, children before their parents; each batch must run before the next.
fn batches(
    tree: &Tree,
    tops: Vec<Place>,
    traversal: Traversal,
) -> Result<Vec<Vec<Name>>, WalkError> {
    let mut level = tops;
    let mut levels = Vec::new();
    while !level.is_empty() {
        let (mut names, mut below) = (Vec::new(), Vec::new());
        for (pid, parent) in level {
            let belongs = |stat: &ProcessStat| parent.is_none_or(|parent| stat.ppid == parent);
            let Some(stat) = read_if_exists(pid)?.filter(belongs) else { continue };
            names.push((pid, stat.start_time));
            let children = children_of_same(tree, pid, Some(stat.start_time))?;
            below.extend(children.unwrap_or_default());
        }
        levels.push(names);
        level = below;
    }
    levels.reverse();
    Ok(match traversal {
        Traversal::BreadthFirst => levels,
        Traversal::AllAtOnce => vec![levels.concat()],
        Traversal::DepthFirst | Traversal::Hybrid => {
            levels.concat().into_iter().map(|name| vec![name]).collect()
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proc::ProcessStat;
    use crate::signal::suspend::Pass;
    use std::collections::BTreeMap;
    use std::process::{Child, Command, Stdio};
    use std::time::Duration;

    /// Ended with the test.
    struct Sleeper(Child);

    impl Drop for Sleeper {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    /// A group that has this process, if it began then.
    fn listed(pid: i32, start_time: u64) -> Tree {
        let began = BTreeMap::from([(pid, start_time)]);
        Tree::Listed { children: BTreeMap::new(), began }
    }

    #[test]
    fn of_a_group_nobody_is_signalled_who_has_the_number_of_one_that_has_ended() {
        let mut command = Command::new("sleep");
        let child = Sleeper(command.arg("1000").stdout(Stdio::null()).spawn().unwrap());
        let pid = child.0.id().cast_signed();
        let began = ProcessStat::read(pid).unwrap().start_time;
        let deadline = Duration::from_secs(20);
        let retry_interval = Duration::from_millis(1);
        let walk = Walk { traversal: Traversal::AllAtOnce, retry_interval, deadline };
        for (began, signals) in [(began - 1, 0), (began, 1)] {
            let tree = listed(pid, began);
            let mut walker = Walker::new(Whom::Roots(Vec::new()), deadline);
            let mut pass = Pass::default();
            walker.pass_depth_first(&walk, &tree, vec![(pid, None)], &mut pass).unwrap();
            assert_eq!(walker.signals, signals, "SIGSTOP");
            assert!(!pass.is_final(), "who has left may have left children");
            let walker = Walker::new(Whom::Roots(Vec::new()), deadline);
            let (except, stuck) = (&BTreeSet::new(), Vec::new());
            let mut resume = Resume { walker, except, which: Which::All, stuck, refused: None };
            let named = [(pid, ProcessStat::read(pid).unwrap().start_time)];
            assert_eq!(resume.send(&tree, &named).unwrap().len(), signals, "SIGCONT");
        }
    }
}
