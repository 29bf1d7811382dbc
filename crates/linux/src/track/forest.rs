//! The forests of tasks: a pure structure, told of births, ends and sightings.
//!
//! A process is named by its number and its birth. Numbers are used again, but not within
//! [`SAME_NS`]: two words on a number whose births lie closer are on the same process. Births are in
//! nanoseconds since boot, from an event or from `/proc` (which has them to a hundredth of a
//! second).
//!
//! Words may come late, twice, or not at all: a sighting repairs what was missed, and an event
//! older than a sighting changes nothing but what the sighting could not know, which is the parent
//! that has ended since.

use std::collections::{BTreeMap, BTreeSet, HashMap};

/// No system runs through all its process numbers in so short a time.
const SAME_NS: u64 = 250_000_000;

/// The process that gets the children of one that has ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Orphans {
    /// To their nearest living ancestor.
    #[default]
    Ancestor,
    /// To the task: they are at its top from then on.
    Task,
}

/// How a task begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// With one process, from which all others descend: a process that is found with an unknown
    /// parent is put below it.
    OneRoot,
    /// With several, of which none descends from another: a process that is found with an unknown
    /// parent is put at the top.
    Several,
}

/// A process as it was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Its number.
    pub pid: i32,
    /// Its parent, as the kernel has it.
    pub parent: i32,
    /// Its birth, nanoseconds since boot.
    pub born_ns: u64,
}

/// A process in its forest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its number.
    pub pid: i32,
    /// Its parent or, when that has ended, its nearest living ancestor; `None`: it is at the top.
    pub parent: Option<i32>,
    /// Its birth, nanoseconds since boot.
    pub born_ns: u64,
}

impl Member {
    /// Whether that is the process that was found, and not another with its number.
    #[must_use]
    pub const fn is(&self, seen: &Seen) -> bool {
        self.pid == seen.pid && same(self.born_ns, seen.born_ns)
    }
}

/// How many processes a task had.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// That were ever in it.
    pub created: u64,
    /// That are in it now.
    pub living: u64,
    /// The most at once. The kernel tells an end when the parent has had it, perhaps: a process
    /// that makes one after the other may count as having two.
    pub peak: u64,
}

struct Process<K> {
    task: K,
    parent: Option<i32>,
    children: BTreeSet<i32>,
    born_ns: u64,
}

/// When a process that has ended lived, nanoseconds since boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Life {
    /// Its birth.
    pub born_ns: u64,
    /// Its end, or when that was noticed.
    pub ended_ns: u64,
}

/// Processes that have ended of which it is remembered when they lived, of all tasks together.
const PAST_MAX: usize = 1 << 17;

struct Task {
    past: BTreeMap<i32, Life>,
    origin: Origin,
    root: Option<i32>,
    members: BTreeSet<i32>,
    tally: Tally,
}

/// The processes of some tasks, which are named by `K`.
pub struct Forest<K> {
    orphans: Orphans,
    tasks: BTreeMap<K, Task>,
    processes: HashMap<i32, Process<K>>,
    /// How many lives are remembered.
    past: usize,
}

impl<K> Default for Forest<K> {
    fn default() -> Self {
        Self {
            orphans: Orphans::default(),
            tasks: BTreeMap::new(),
            processes: HashMap::new(),
            past: 0,
        }
    }
}

impl<K: Copy + Ord> Forest<K> {
    /// The process that gets children from now on.
    pub const fn set_orphans(&mut self, orphans: Orphans) {
        self.orphans = orphans;
    }

    /// From now on there is this task, without a process yet.
    pub fn add_task(&mut self, task: K, origin: Origin) {
        let (root, members, tally) = (None, BTreeSet::new(), Tally::default());
        let past = BTreeMap::new();
        self.tasks.entry(task).or_insert(Task { past, origin, root, members, tally });
    }

    /// The processes that a task has had and when they lived: those that live now until `now_ns`.
    /// Of very many, some; of those with the same number, the last.
    #[must_use]
    pub fn lives(&self, task: K, now_ns: u64) -> BTreeMap<i32, Life> {
        let Some(record) = self.tasks.get(&task) else { return BTreeMap::new() };
        let mut lives = record.past.clone();
        for pid in &record.members {
            if let Some(process) = self.processes.get(pid) {
                lives.insert(*pid, Life { born_ns: process.born_ns, ended_ns: now_ns });
            }
        }
        lives
    }

    /// Forgets a task and its processes; says how many it had.
    pub fn remove_task(&mut self, task: K) -> Tally {
        let Some(removed) = self.tasks.remove(&task) else { return Tally::default() };
        self.past -= removed.past.len();
        for pid in &removed.members {
            self.processes.remove(pid);
        }
        removed.tally
    }

    /// The tasks there are.
    pub fn tasks(&self) -> impl Iterator<Item = K> + '_ {
        self.tasks.keys().copied()
    }

    /// How many processes a task has had.
    #[must_use]
    pub fn tally(&self, task: K) -> Tally {
        self.tasks.get(&task).map_or_else(Tally::default, |task| task.tally)
    }

    /// The task that a process belongs to.
    #[must_use]
    pub fn task_of(&self, pid: i32) -> Option<K> {
        self.processes.get(&pid).map(|process| process.task)
    }

    /// Whether a process belongs to a task, or is remembered to have belonged to one.
    #[must_use]
    pub fn has_had(&self, pid: i32) -> bool {
        self.processes.contains_key(&pid)
            || self.tasks.values().any(|task| task.past.contains_key(&pid))
    }

    /// The processes of a task: each before those below it, siblings by number.
    #[must_use]
    pub fn members(&self, task: K) -> Vec<Member> {
        let Some(task) = self.tasks.get(&task) else { return Vec::new() };
        let is_top = |pid: &i32| self.processes.get(pid).is_some_and(|it| it.parent.is_none());
        self.preorder(task.members.iter().copied().filter(is_top).collect())
    }

    /// A process and all that are below it, each before those below it.
    #[must_use]
    pub fn subtree(&self, pid: i32) -> Vec<Member> {
        self.preorder(vec![pid])
    }

    fn preorder(&self, mut stack: Vec<i32>) -> Vec<Member> {
        stack.reverse();
        let mut found = Vec::new();
        while let Some(pid) = stack.pop() {
            let Some(process) = self.processes.get(&pid) else { continue };
            found.push(Member { pid, parent: process.parent, born_ns: process.born_ns });
            stack.extend(process.children.iter().rev());
        }
        found
    }

    /// The first process of a task exists. It may have ended already.
    pub fn began(&mut self, task: K, pid: i32, born_ns: u64) {
        if self.processes.get(&pid).is_some_and(|it| it.task == task && same(it.born_ns, born_ns)) {
            return;
        }
        self.insert(task, pid, born_ns);
        if let Some(task) = self.tasks.get_mut(&task).filter(|task| task.origin == Origin::OneRoot)
        {
            task.root = Some(pid);
        }
    }

    /// A process was made by another.
    pub fn forked(&mut self, parent: i32, child: i32, born_ns: u64) {
        let known = self.processes.get(&child).map(|it| (it.task, same(it.born_ns, born_ns)));
        if known.is_some_and(|(_, same)| !same) {
            // Its number is used again: its end was missed.
            self.end(child);
        }
        let Some(task) = self.task_of(parent) else { return };
        match known {
            Some((of, true)) if of == task => self.link(child, Some(parent)),
            // A group's list is the better source on membership.
            Some((_, true)) => {}
            _ => {
                self.insert(task, child, born_ns);
                self.link(child, Some(parent));
            }
        }
    }

    /// A process has ended.
    pub fn exited(&mut self, pid: i32, at_ns: u64) {
        // Otherwise it was another one with that number.
        let Some(process) = self.processes.get(&pid) else { return };
        if process.born_ns > at_ns.saturating_add(SAME_NS) {
            return;
        }
        let life = Life { born_ns: process.born_ns, ended_ns: at_ns };
        if let Some(task) = self.tasks.get_mut(&process.task)
            && self.past < PAST_MAX
        {
            self.past += usize::from(task.past.insert(pid, life).is_none());
        }
        self.end(pid);
    }

    /// These, and no others, are the processes of a task.
    pub fn repair(&mut self, task: K, seen: &[Seen]) {
        let Some(record) = self.tasks.get(&task) else { return };
        let now: HashMap<i32, u64> = seen.iter().map(|seen| (seen.pid, seen.born_ns)).collect();
        let is_gone = |pid: &i32| match (now.get(pid), self.processes.get(pid)) {
            (Some(&born), Some(known)) => !same(born, known.born_ns),
            _ => true,
        };
        for pid in record.members.iter().copied().filter(is_gone).collect::<Vec<_>>() {
            self.end(pid);
        }
        let is_new = |seen: &&Seen| self.task_of(seen.pid) != Some(task);
        let new: Vec<Seen> = seen.iter().filter(is_new).copied().collect();
        for seen in &new {
            self.insert(task, seen.pid, seen.born_ns);
        }
        self.find_root(task, &new);
        let root = self.tasks.get(&task).and_then(|task| task.root);
        for seen in &new {
            let parent = Some(seen.parent).filter(|&it| self.task_of(it) == Some(task));
            self.link(seen.pid, parent.or(root));
        }
    }

    /// The root of a task that is seen for the first time: the longest member of those whose
    /// parents are not.
    fn find_root(&mut self, task: K, seen: &[Seen]) {
        let is_top = |seen: &&Seen| self.task_of(seen.parent) != Some(task);
        let oldest = seen.iter().filter(is_top).min_by_key(|seen| (seen.born_ns, seen.pid));
        let oldest = oldest.map(|seen| seen.pid);
        if let Some(record) = self.tasks.get_mut(&task)
            && record.origin == Origin::OneRoot
            && record.tally.created == seen.len() as u64
        {
            record.root = oldest;
        }
    }

    fn insert(&mut self, task: K, pid: i32, born_ns: u64) {
        self.end(pid);
        let Some(record) = self.tasks.get_mut(&task) else { return };
        record.members.insert(pid);
        record.tally.created += 1;
        record.tally.living += 1;
        record.tally.peak = record.tally.peak.max(record.tally.living);
        let (parent, children) = (None, BTreeSet::new());
        self.processes.insert(pid, Process { task, parent, children, born_ns });
    }

    /// Puts a process below another of its task, unless that is below it.
    fn link(&mut self, pid: i32, parent: Option<i32>) {
        let Some(parent) = parent else { return };
        let above = std::iter::successors(Some(parent), |at| self.processes.get(at)?.parent);
        if !self.processes.contains_key(&parent) || above.into_iter().any(|at| at == pid) {
            return;
        }
        let Some(process) = self.processes.get_mut(&pid) else { return };
        let before = process.parent.replace(parent);
        if let Some(before) = before.and_then(|before| self.processes.get_mut(&before)) {
            before.children.remove(&pid);
        }
        if let Some(parent) = self.processes.get_mut(&parent) {
            parent.children.insert(pid);
        }
    }

    fn end(&mut self, pid: i32) {
        let Some(ended) = self.processes.remove(&pid) else { return };
        if let Some(parent) = ended.parent.and_then(|parent| self.processes.get_mut(&parent)) {
            parent.children.remove(&pid);
        }
        let heir = match self.orphans {
            Orphans::Ancestor => ended.parent,
            Orphans::Task => None,
        };
        for child in ended.children {
            if let Some(child) = self.processes.get_mut(&child) {
                child.parent = None;
            }
            self.link(child, heir);
        }
        if let Some(task) = self.tasks.get_mut(&ended.task) {
            task.members.remove(&pid);
            task.tally.living -= 1;
            if task.root == Some(pid) {
                task.root = None;
            }
        }
    }
}

const fn same(born_ns: u64, other_ns: u64) -> bool {
    born_ns.abs_diff(other_ns) < SAME_NS
}

#[cfg(test)]
mod tests;
