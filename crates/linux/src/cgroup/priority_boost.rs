//! Priority boost of processes that are to stop, where others want the same processors.
//!
//! A process stops when it next runs. If another process has its processor, that takes until the
//! kernel gives it a turn: some milliseconds for each that is before it, and each of its threads
//! must have one. With real-time priority all have stopped within some 0.1 ms. But to list the
//! processes, and two calls for each, costs more than a whole stop without contention. So a stop is
//! boosted when it turns out to be slow, and so are those after it from their beginning.

use super::{Cgroup, subdirectories};
use crate::proc::threads;
use crate::rt::{Waiting, calm, give_way, hurry, may_calm};
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// A stop that took longer had contention: a hundred processes stop sooner, also on processors that
/// must wake up first. A process that waits for the turns of others waits longer.
const SLOW: Duration = Duration::from_millis(1);

/// So many stops are hurried, or not, until one shows what they need. That one is slow if others
/// are still in the way: it must be rare among the switches of a hundred nodes, too.
const STOPS: u32 = 4096;

/// A group of more threads is not hurried, as it stands alone in a stop or beside others: the calls
/// would take longer than most stops.
const HURRIED_MAX: usize = 128;

/// So many stops a group that has more, or whose threads may not be hurried, is left alone.
const STOPS_UNHURRIED: u32 = 256;

/// What the numbers of one thread more fit into, which have seven digits at most.
const NUMBERS_BYTES: usize = 8 * (HURRIED_MAX + 1);

/// Whether the next stop is to be hurried, as those before it tell.
#[derive(Debug, Default, PartialEq, Eq)]
pub enum Haste {
    /// No, unless it is slow.
    #[default]
    Watch,
    /// Yes, and so many after it.
    Hurry(u32),
    /// No: a thread that this one boosts it could not make ordinary again.
    Never,
}

impl Haste {
    /// A stop begins: the processes of the groups are boosted, if that is called for.
    pub(super) fn begin(&mut self, groups: &[&Cgroup]) -> Hurried {
        let Self::Hurry(left) = *self else { return Hurried::default() };
        *self = left.checked_sub(1).map_or(Self::Watch, Self::Hurry);
        Hurried::all_of(groups)
    }

    /// Some have not stopped after `took`: they are hurried from now on, if that is slow. Gives
    /// whether anybody is since now.
    pub(super) fn go_on(
        &mut self,
        groups: &[&Cgroup],
        hurried: &mut Hurried,
        took: Duration,
    ) -> bool {
        let begins = self.learn(hurried, took);
        if begins {
            *hurried = Hurried::all_of(groups);
        }
        begins && !hurried.is_nobody()
    }

    /// All have stopped after `took`.
    pub(super) fn end(&mut self, hurried: &Hurried, took: Duration) {
        self.learn(hurried, took);
    }

    /// If this one is slow, stops are hurried from now on, where that is allowed; gives whether
    /// they are.
    fn learn(&mut self, hurried: &Hurried, took: Duration) -> bool {
        if *self != Self::Watch || !hurried.is_nobody() || !is_slow(took) {
            return false;
        }
        *self = if may_calm() { Self::Hurry(STOPS) } else { Self::Never };
        *self != Self::Never
    }
}

/// Whether a stop that takes this long must have had contention.
pub(super) fn is_slow(took: Duration) -> bool {
    took > SLOW
}

/// Threads that are hurried while this lives.
#[derive(Debug, Default)]
pub(super) struct Hurried {
    threads: Vec<i32>,
}

impl Hurried {
    /// All of those groups that have few enough.
    fn all_of(groups: &[&Cgroup]) -> Self {
        let mut hurried = Self::default();
        let mut threads = Vec::new();
        for group in groups {
            threads.clear();
            if group.is_hurried(&mut threads) {
                // A process that may not be boosted is as late as without.
                threads.retain(|&thread| {
                    hurry(thread).inspect_err(|_| group.leave_alone()).unwrap_or(false)
                });
                hurried.threads.append(&mut threads);
            }
        }
        hurried
    }

    fn is_nobody(&self) -> bool {
        self.threads.is_empty()
    }

    /// Yields to boosted threads, or to any thread where none is boosted.
    pub(super) fn give_way(&self, rounds: u32, done: impl FnMut() -> bool) -> bool {
        let to = if self.is_nobody() { Waiting::Anybody } else { Waiting::Hurried };
        give_way(to, rounds, done)
    }
}

impl Drop for Hurried {
    fn drop(&mut self) {
        self.threads.iter().copied().for_each(calm);
    }
}

impl Cgroup {
    /// Makes the threads that are still boosted here and below ordinary again: the agent that
    /// boosted them may have been killed before it could.
    pub fn calm(&self) {
        // A group that is gone has none.
        for process in self.processes().unwrap_or_default() {
            threads(process).into_iter().for_each(calm);
        }
    }

    /// Whether its threads are to be hurried, which are added to `found`.
    fn is_hurried(&self, found: &mut Vec<i32>) -> bool {
        let less = |left: u32| left.checked_sub(1);
        if self.unhurried.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok() {
            return false;
        }
        let are_few = read_threads(&self.path, found);
        if !are_few {
            self.leave_alone();
        }
        are_few
    }

    fn leave_alone(&self) {
        self.unhurried.store(STOPS_UNHURRIED, Ordering::Relaxed);
    }
}

/// Adds the threads here and below; gives whether they are no more than may be hurried.
fn read_threads(group: &Path, found: &mut Vec<i32>) -> bool {
    let mut text = [0; NUMBERS_BYTES];
    // A group that is gone has none.
    let read = File::open(group.join("cgroup.threads")).and_then(|mut file| file.read(&mut text));
    let text = &text[..read.unwrap_or(0)];
    let numbers = text.split(|&byte| byte == b'\n').filter_map(|line| str::from_utf8(line).ok());
    // 0 stands for a thread of a pid namespace that is not below ours, and would be the calling
    // one.
    found.extend(
        numbers.filter_map(|number| number.parse().ok()).filter(|&thread: &i32| thread > 0),
    );
    text.len() < NUMBERS_BYTES
        && found.len() <= HURRIED_MAX
        && subdirectories(group).unwrap_or_default().iter().all(|below| read_threads(below, found))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A stop of groups without processes takes so long; by the end, or before it.
    fn stop(haste: &mut Haste, took: Duration, is_late: bool) {
        let mut hurried = haste.begin(&[]);
        if is_late {
            haste.go_on(&[], &mut hurried, took);
        }
        haste.end(&hurried, took);
    }

    #[test]
    fn after_a_slow_stop_so_many_are_hurried_and_one_shows_whether_they_must_be() {
        for is_late in [false, true] {
            let mut haste = Haste::default();
            stop(&mut haste, SLOW, is_late);
            assert_eq!(haste, Haste::Watch);
            stop(&mut haste, SLOW * 2, is_late);
            if !may_calm() {
                assert_eq!(haste, Haste::Never);
                continue;
            }
            for left in (0..=STOPS).rev() {
                assert_eq!(haste, Haste::Hurry(left));
                stop(&mut haste, SLOW / 2, is_late);
            }
            assert_eq!(haste, Haste::Watch);
            stop(&mut haste, SLOW / 2, is_late);
            assert_eq!(haste, Haste::Watch);
        }
    }
}
