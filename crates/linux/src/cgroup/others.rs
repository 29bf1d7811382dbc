//! The subtrees of other instances on this machine, and the processors that their jobs hold.
//!
//! The mark that [`Hierarchy::find`](super::Hierarchy::find) leaves on a subtree identifies it, of
//! any user: names, sets of processors and states of groups can be read by every user. Directories
//! that appear or vanish in a subtree, or beside the own one, make a descriptor readable
//! (`inotify`); so nothing polls.

use super::cgroup_v1::Top;
use super::hierarchy::Mounts;
use super::{flag, processes_of, subdirectories};
use crate::proc;
use crate::procfile::read_bytes;
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use std::collections::BTreeSet;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

/// How deep below the root of the hierarchy subtrees are looked for: those in units of a user's
/// service manager lie at 6.
const DEPTH_MAX: u32 = 7;
/// How many groups are visited at most in a search.
const VISITS_MAX: u32 = 4096;
/// How many subtrees are watched at most.
const SUBTREES_MAX: usize = 64;
/// How many processes of a group without a set are looked at.
const PROCESSES_MAX: usize = 64;

/// The subtrees of other instances; see the module.
#[derive(Debug)]
pub struct Others {
    own: PathBuf,
    root: PathBuf,
    subtrees: Vec<PathBuf>,
    /// `None` where the kernel gives none: changes are seen when [`Others::held`] is called.
    changes: Option<Inotify>,
}

impl Others {
    /// Finds the subtrees of other instances, seen from the own subtree.
    #[must_use]
    pub fn of(own: &Path) -> Self {
        let root = Mounts::read().unwrap_or_default().point_of(own);
        let root = root.unwrap_or_else(|| own.to_owned());
        let changes = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK).ok();
        let mut others = Self { own: own.to_owned(), root, subtrees: Vec::new(), changes };
        if let Some(above) = own.parent() {
            others.watch(above);
        }
        others.find();
        others
    }

    /// Looks for subtrees that have appeared.
    pub fn find(&mut self) {
        let mut left = VISITS_MAX;
        let mut found = Vec::new();
        self.search(&self.root, DEPTH_MAX, &mut left, &mut found);
        found.iter().filter(|path| !self.subtrees.contains(path)).for_each(|path| self.watch(path));
        self.subtrees = found;
    }

    fn search(&self, group: &Path, depth: u32, left: &mut u32, found: &mut Vec<PathBuf>) {
        for path in subdirectories(group).unwrap_or_default() {
            if *left == 0 || found.len() == SUBTREES_MAX {
                return;
            }
            *left -= 1;
            if path == self.own {
                continue;
            }
            if Top::is_marked(&path) {
                found.push(path);
            } else if depth > 1 {
                self.search(&path, depth - 1, left, found);
            }
        }
    }

    fn watch(&self, group: &Path) {
        let flags = AddWatchFlags::IN_CREATE | AddWatchFlags::IN_DELETE | AddWatchFlags::IN_ONLYDIR;
        if let Some(changes) = &self.changes {
            // Without a watch, changes are seen later.
            let _ = changes.add_watch(group, flags);
        }
    }

    /// A descriptor that is readable when a group has appeared or vanished.
    #[must_use]
    pub fn changes(&self) -> Option<BorrowedFd<'_>> {
        self.changes.as_ref().map(AsFd::as_fd)
    }

    /// Makes the descriptor unreadable until the next change.
    pub fn take_changes(&self) {
        while self
            .changes
            .as_ref()
            .is_some_and(|it| it.read_events().is_ok_and(|it| !it.is_empty()))
        {}
    }

    /// The processors to which groups with processes are held, of those directly below the subtrees
    /// whose name `is_job` accepts.
    #[must_use]
    pub fn held(&self, is_job: impl Fn(&str) -> bool) -> BTreeSet<u32> {
        let mut held = BTreeSet::new();
        for subtree in &self.subtrees {
            let top = Top::of(subtree);
            for group in subdirectories(subtree).unwrap_or_default() {
                let accepted = group.file_name().and_then(|it| it.to_str()).is_some_and(&is_job);
                if accepted && is_populated(&group) {
                    held.extend(top.processors_of(&group).unwrap_or_else(|| by_masks(&group)));
                }
            }
        }
        held
    }
}

/// Where the processes of a group may run, which no set holds.
fn by_masks(group: &Path) -> Vec<u32> {
    let processes = processes_of(group).unwrap_or_default();
    let masks = processes.into_iter().take(PROCESSES_MAX).filter_map(proc::processors_of);
    masks.flatten().collect()
}

fn is_populated(group: &Path) -> bool {
    let events = read_bytes(&group.join("cgroup.events")).unwrap_or_default();
    flag(&events, "populated ") == Some(true)
}
