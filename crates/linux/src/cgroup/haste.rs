//! Hurrying those who are to stop, where others want the same processors.
//!
//! A process stops when it next runs. If somebody else's process has its processor, that takes until the kernel gives it
//! a turn: some milliseconds for each that is before it, and each of its threads must have one. With real-time
//! priority all have stopped within some 0.1 ms. But to read who there is, and two calls for each, costs more than a whole stop where
//! nobody is in the way. So a stop is hurried when it turns out to be slow, and so are those after it from their beginning.

use super::{Cgroup, subdirectories};
use crate::rt::{Waiting, calm, give_way, hurry};
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::time::Duration;

/// A stop that took longer was in somebody's way: a hundred processes stop within half a millisecond.
const SLOW: Duration = Duration::from_micros(500);

/// So many stops are hurried, or not, until one shows what they need. That one is slow if others are still in the way: it
/// must be rare among the switches of a hundred nodes, too.
const STOPS: u32 = 4096;

/// More threads are not hurried: the calls would take longer than most stops.
const HURRIED_MAX: usize = 128;

/// What their numbers fit into, which have seven digits at most.
const NUMBERS_BYTES: usize = 8 * HURRIED_MAX;

/// Whether the next stop is to be hurried, as those before it tell.
#[derive(Debug, Default, PartialEq, Eq)]
pub enum Haste {
    /// No, unless it is slow.
    #[default]
    Watch,
    /// Yes, and so many after it.
    Hurry(u32),
    /// No, nor are so many after it: they have too many threads, or it is not permitted.
    Rest(u32),
}

impl Haste {
    /// A stop begins: whoever is in the groups is hurried, if that is called for.
    pub(super) fn begin(&mut self, groups: &[&Cgroup]) -> Hurried {
        match *self {
            Self::Watch => {}
            Self::Rest(left) => *self = left.checked_sub(1).map_or(Self::Watch, Self::Rest),
            Self::Hurry(left) => {
                *self = left.checked_sub(1).map_or(Self::Watch, Self::Hurry);
                return self.hurry(groups);
            }
        }
        Hurried::default()
    }

    /// Some have not stopped after `took`: they are hurried from now on, if that is slow.
    pub(super) fn go_on(
        &mut self,
        groups: &[&Cgroup],
        hurried: &mut Hurried,
        took: Duration,
    ) -> bool {
        let begins = *self == Self::Watch && hurried.threads.is_empty() && is_slow(took);
        if begins {
            *self = Self::Hurry(STOPS);
            *hurried = self.hurry(groups);
        }
        begins
    }

    /// All have stopped after `took`.
    pub(super) fn end(&mut self, hurried: &Hurried, took: Duration) {
        if *self == Self::Watch && hurried.threads.is_empty() && is_slow(took) {
            *self = Self::Hurry(STOPS);
        }
    }

    fn hurry(&mut self, groups: &[&Cgroup]) -> Hurried {
        let (mut hurried, mut threads) = (Hurried::default(), Vec::new());
        if !groups.iter().all(|group| read_threads(&group.path, &mut threads)) {
            *self = Self::Rest(STOPS);
        } else if !hurried.add(&threads) {
            *self = Self::Rest(u32::MAX);
        }
        hurried
    }
}

/// Whether somebody must have been in the way of a stop that takes so long.
pub(super) fn is_slow(took: Duration) -> bool {
    took > SLOW
}

/// Threads that are hurried while this lives.
#[derive(Debug, Default)]
pub(super) struct Hurried {
    threads: Vec<i32>,
}

impl Hurried {
    /// Gives whether it is permitted.
    fn add(&mut self, threads: &[i32]) -> bool {
        for &thread in threads {
            match hurry(thread) {
                Ok(true) => self.threads.push(thread),
                Ok(false) => {}
                Err(_) => return false,
            }
        }
        true
    }

    /// Gives way to those that are hurried, or to anybody where none is.
    pub(super) fn give_way(&self, rounds: u32, done: impl FnMut() -> bool) -> bool {
        let to = if self.threads.is_empty() { Waiting::Anybody } else { Waiting::Hurried };
        give_way(to, rounds, done)
    }
}

impl Drop for Hurried {
    fn drop(&mut self) {
        self.threads.iter().copied().for_each(calm);
    }
}

impl Cgroup {
    /// Makes whoever is still hurried here and below ordinary again: whoever hurried them may have been killed
    /// before it could.
    pub fn calm(&self) {
        let mut threads = Vec::new();
        // Nobody hurries more.
        read_threads(&self.path, &mut threads);
        threads.into_iter().for_each(calm);
    }
}

/// Adds the threads here and below; gives whether they are no more than may be hurried.
fn read_threads(group: &Path, found: &mut Vec<i32>) -> bool {
    let mut text = [0; NUMBERS_BYTES];
    // A group that is gone has none.
    let read = File::open(group.join("cgroup.threads")).and_then(|mut file| file.read(&mut text));
    let text = &text[..read.unwrap_or(0)];
    let numbers = text.split(|&byte| byte == b'\n').filter_map(|line| str::from_utf8(line).ok());
    // 0 stands for a thread of a pid namespace that is not below ours, and would be the calling one.
    found.extend(
        numbers.filter_map(|number| number.parse().ok()).filter(|&thread: &i32| thread > 0),
    );
    text.len() < NUMBERS_BYTES - 8
        && found.len() <= HURRIED_MAX
        && subdirectories(group).unwrap_or_default().iter().all(|below| read_threads(below, found))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A stop of groups that have nobody in them takes so long; by the end, or before it.
    fn stop(haste: &mut Haste, took: Duration, is_late: bool) {
        let mut hurried = haste.begin(&[]);
        if is_late {
            haste.go_on(&[], &mut hurried, took);
        }
        haste.end(&hurried, took);
    }

    #[test]
    fn stops_are_hurried_after_a_slow_one_and_looked_at_again() {
        for is_late in [false, true] {
            let mut haste = Haste::default();
            stop(&mut haste, SLOW, is_late);
            assert_eq!(haste, Haste::Watch);
            stop(&mut haste, SLOW * 2, is_late);
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
