//! Which processors the processes of a group may run on, whatever they ask for.
//!
//! Within these a process may bind itself as it likes. In cgroup2 the set of a group counts only as
//! far as those above have it. In v1 a set must lie within that of the group above, and a group
//! takes processes only once it has processors and memory nodes.
//!
//! In v1 the kernel looks at how the whole machine balances its load whenever a set changes that is
//! to be balanced by itself. Ours need not be while the set around them is: that one balances all
//! of its processors, and a thread moves only where it may run. So the flag is taken away before
//! there is anything in the set.

use super::cgroup_v1::{CPUSET, LimitBy, Top};
use super::{Cgroup, make_directory};
use crate::procfile::read_text;
use crate::{Error, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::PoisonError;

const CPUS: &str = "cpuset.cpus";
const MEMS: &str = "cpuset.mems";
const BALANCE: &str = "cpuset.sched_load_balance";
const CLONE: &str = "cgroup.clone_children";

impl Cgroup {
    /// Holds all processes here and below to these processors. Where v1 does it, only those that
    /// are started later, or taken in; and a group within a group that is held may have only
    /// processors of that.
    ///
    /// # Errors
    /// [`Error::NoController`] as for [`Cgroup::set_memory_limit`]; what the kernel says of
    /// processors that are not there, or not the group's above.
    pub fn set_processors(&self, processors: &[u32]) -> Result<LimitBy> {
        self.top.set_processors(&self.path, processors)
    }

    /// The processors that the group itself is held to, if it is.
    #[must_use]
    pub fn processors(&self) -> Option<Vec<u32>> {
        self.top.processors_of(&self.path)
    }

    /// The processors that its processes are held to, by its own set or by that of the nearest
    /// group of ours around it that has one.
    #[must_use]
    pub fn held_to(&self) -> Option<Vec<u32>> {
        let ours = |group: &&Path| *group != self.top.path && group.starts_with(&self.top.path);
        let mut around = self.path.ancestors().take_while(ours);
        around.find_map(|group| self.top.processors_of(group))
    }

    /// Removes what is left in v1 of the set of a group that is gone, below this one. Until then
    /// this one can lose none of the processors of that set.
    pub fn remove_set_of(&self, gone: &Path) {
        if let Some(set) = self.top.set_of(gone) {
            // A process that is in there still keeps its set, and its processors.
            let _ = fs::remove_dir(set);
        }
    }
}

impl Top {
    /// The processors that a group is held to by a set of its own.
    pub(super) fn processors_of(&self, group: &Path) -> Option<Vec<u32>> {
        let list = read_text(&self.set_of(group)?.join(CPUS)).ok()?;
        parse_list(list.trim()).filter(|processors| !processors.is_empty())
    }

    fn set_processors(&self, group: &Path, processors: &[u32]) -> Result<LimitBy> {
        let list = list_of(processors);
        if self.enable_down_to(group, CPUSET) {
            return write(group, CPUS, &list).map(|()| LimitBy::V2);
        }
        let Some(set) = self.make_set(group)? else {
            let path = group.to_owned();
            return Err(Error::NoController { path, controller: CPUSET.name });
        };
        // Processors that were away do not come back by themselves.
        let written = write(&set, CPUS, &list)
            .or_else(|_| self.widen().and_then(|()| write(&set, CPUS, &list)));
        if written.is_err() {
            // No process can join a set without processors.
            let _ = fs::remove_dir(&set);
        }
        written.map(|()| LimitBy::V1)
    }

    /// Where the set of a group is, if it has one of its own.
    fn set_of(&self, group: &Path) -> Option<PathBuf> {
        if group.join(CPUS).exists() {
            return Some(group.to_owned());
        }
        let set = self.place(self.base(CPUSET)?, group, CPUSET)?;
        (group != self.path && set.is_dir()).then_some(set)
    }

    /// Makes the set of a group in v1, without processors, and the sets around it.
    fn make_set(&self, group: &Path) -> Result<Option<PathBuf>> {
        let Some(base) = self.base(CPUSET).filter(|_| group != self.path) else { return Ok(None) };
        let Some(set) = self.place(base, group, CPUSET) else { return Ok(None) };
        if self.make_set_as_before(&set) || has(&set, MEMS) {
            return Ok(Some(set));
        }
        let (Some(around), Some(top)) =
            (set.parent(), self.place(base, &self.path, CPUSET).filter(|top| *top != set))
        else {
            return Ok(None);
        };
        if !has(&top, MEMS) {
            make_directory(&top)?;
            // Else what is made below has all of them at once.
            write(&top, CLONE, "0")?;
            write(&top, BALANCE, &own_balance(base))?;
            self.widen()?;
        }
        if around != top && !has(around, CPUS) {
            // A task may have a set where its job has none.
            make_inner(around)?;
            write(around, CPUS, &read(&top, CPUS)?)?;
        }
        let values = make_inner(&set)?;
        if around == top {
            self.note_cpuset_values(values);
        }
        Ok(Some(set))
    }

    fn note_cpuset_values(&self, values: Option<(String, String)>) {
        *self.cpuset_values.lock().unwrap_or_else(PoisonError::into_inner) = values;
    }

    /// Makes a set right below that around all of ours, by what the one before it was given: part
    /// of each launch. Whether it is made; if not, it is as if nothing was done.
    fn make_set_as_before(&self, set: &Path) -> bool {
        let values = self.cpuset_values.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let is_below_top = set.parent().and_then(Path::file_name) == self.path.file_name();
        let Some((balance, mems)) = values.filter(|_| is_below_top) else { return false };
        fs::create_dir(set).is_ok()
            && write(set, BALANCE, &balance).and_then(|()| write(set, MEMS, &mems)).is_ok()
    }

    /// Gives the set around all of ours what is around it.
    fn widen(&self) -> Result<()> {
        let Some(base) = self.base(CPUSET) else { return Ok(()) };
        let Some(top) = self.place(base, &self.path, CPUSET) else { return Ok(()) };
        self.note_cpuset_values(None);
        for file in [CPUS, MEMS] {
            write(&top, file, &read(base, file)?)?;
        }
        Ok(())
    }
}

/// Gives what it wrote, of [`BALANCE`] and [`MEMS`].
fn make_inner(set: &Path) -> Result<Option<(String, String)>> {
    make_directory(set)?;
    let Some(above) = set.parent() else { return Ok(None) };
    let (balance, mems) = (read(above, BALANCE)?, read(above, MEMS)?);
    write(set, BALANCE, &balance)?;
    write(set, MEMS, &mems)?;
    Ok(Some((balance, mems)))
}

/// Whether a set has this. The file that is asked for is the last that is written: a maker that was
/// killed on the way leaves a set that takes no process.
fn has(set: &Path, file: &str) -> bool {
    read(set, file).is_ok_and(|list| !list.is_empty())
}

/// What the flag is to be in sets within this one.
fn own_balance(around: &Path) -> String {
    let is_balanced = read(around, BALANCE).is_ok_and(|flag| flag == "1");
    u8::from(!is_balanced).to_string()
}

fn read(set: &Path, file: &str) -> Result<String> {
    let path = set.join(file);
    read_text(&path).map(|text| text.trim().to_owned()).map_err(Error::file("read", &path))
}

fn write(set: &Path, file: &str, text: &str) -> Result<()> {
    let path = set.join(file);
    fs::write(&path, text).map_err(Error::file("write", &path))
}

fn list_of(processors: &[u32]) -> String {
    let numbers: Vec<String> = processors.iter().map(u32::to_string).collect();
    numbers.join(",")
}

/// A list as the kernel writes it, such as `0-3,8`.
pub(crate) fn parse_list(list: &str) -> Option<Vec<u32>> {
    /// More than any machine has: a list of the kernel's own is never longer.
    const MOST: u32 = 1 << 20;
    let mut found = Vec::new();
    for part in list.split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (first.parse::<u32>().ok()?, last.parse::<u32>().ok()?);
        if last >= MOST {
            return None;
        }
        found.extend(first..=last);
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_as_the_kernel_writes_them() {
        assert_eq!(parse_list("0-2,7"), Some(vec![0, 1, 2, 7]));
        assert_eq!(parse_list(""), Some(vec![]));
        assert_eq!(parse_list("0-4294967295"), None);
        assert_eq!(parse_list("a"), None);
        assert_eq!(list_of(&[0, 1, 7]), "0,1,7");
    }
}
