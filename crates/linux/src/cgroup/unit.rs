//! The unit of a service manager whose groups are ours to make.
//!
//! systemd is the only writer of the groups of its units, but for a unit with `Delegate=`: the
//! group of such a unit and all below it belong to the unit's processes, and systemd says so by an
//! extended attribute. A group that hands controllers down to others may have no process of its
//! own. So the daemons of an instance are in a leaf, [`DAEMONS`], and its subtree lies beside that.
//!
//! ```text
//! tutti.service          the unit
//!   daemons              supervisor, keeper, controller, agent
//!   tutti-0-1b2c3d4e     the subtree: jobs
//!   .control             what systemd starts to reload or stop the unit, while it does
//! ```
//!
//! Before version 254 systemd starts the main process of a unit in the group of the unit itself,
//! and the kernel refuses that while controllers are handed down there: a unit in which jobs
//! outlived the main process could not be started again. So between the two no controllers are
//! handed down ([`Unit::make_startable`]); their values are kept as extended attributes of the
//! groups, and come back once the new main process is in its leaf ([`Unit::settle`]).

use super::hierarchy::Mounts;
use super::{Cgroup, make_directory, subdirectories};
use crate::procfile::read_text;
use crate::{Error, Result, xattr};
use std::ffi::CStr;
use std::fs;
use std::path::{Path, PathBuf};

/// The name of the group of the daemons, below that of their unit.
pub const DAEMONS: &str = "daemons";

/// Where systemd puts what it starts for a unit that runs already.
const CONTROL: &str = ".control";

/// By which systemd tells that a group is delegated: to all users since version 251, to root
/// before.
const DELEGATED: [&CStr; 2] = [c"user.delegate", c"trusted.delegate"];

/// How the names of units begin that are ours by their names alone.
const OURS: &str = "tutti";

/// On the group of a unit in which systemd starts main processes.
const STARTED_HERE: &CStr = c"user.tutti.started";
/// The controllers that a group has handed down.
const HANDED_DOWN: &CStr = c"user.tutti.controllers";
/// The values of a group for as long as it has no controllers, one `file=value` to a line.
const VALUES: &CStr = c"user.tutti.values";

/// The files whose values are kept.
const KEPT: [&str; 7] =
    ["memory.max", "pids.max", "cpuset.cpus", "cpu.max", "cpu.weight", "cpu.idle", "io.weight"];

/// The controllers that are handed down from the group of a unit.
pub(super) const CONTROLLERS: [&str; 5] = ["cpu", "cpuset", "io", "memory", "pids"];

/// Groups are looked at that are at most so far below that of a unit: of tasks, and of what those
/// make below their own, such as containers.
const DEPTH_MAX: usize = 16;

/// How often processes are moved until no other has been born meanwhile.
const ROUNDS_MAX: usize = 100;

/// Where systemd is the machine's first process (`man sd_booted`).
const BOOTED: &str = "/run/systemd/system";

/// Whether systemd runs this machine, and with it all groups that are not delegated.
#[must_use]
pub fn is_systemd_here() -> bool {
    Path::new(BOOTED).is_dir()
}

/// A unit that is delegated to its processes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unit {
    group: PathBuf,
}

impl Unit {
    /// The unit of this process, if that is delegated, and the process is where a daemon may be in
    /// it.
    #[must_use]
    pub fn own() -> Option<Self> {
        Self::around(&Mounts::read().ok()?)
    }

    /// The same of another process.
    #[must_use]
    pub fn of(pid: i32) -> Option<Self> {
        Self::around(&Mounts::read_of(pid).ok()?)
    }

    fn around(mounts: &Mounts) -> Option<Self> {
        let group = unit_of(&mounts.own_v2()?)?;
        let is_delegated = || {
            DELEGATED
                .iter()
                .any(|name| xattr::read(&group, name).as_deref().map(str::trim) == Some("1"))
        };
        let is_ours = || name_of(&group).starts_with(OURS);
        (is_delegated() || is_ours()).then_some(Self { group })
    }

    /// The unit right below a slice that has a subtree of this name with a process in it: one of
    /// ours by its name, unless `of_any_name`. In a slice with units of several users, others could
    /// make such a subtree.
    #[must_use]
    pub fn left_in(slice: &Path, subtree: &str, of_any_name: bool) -> Option<Self> {
        let groups = slice.read_dir().ok()?.filter_map(|entry| Some(entry.ok()?.path()));
        let has_left = |group: &PathBuf| {
            (of_any_name || name_of(group).starts_with(OURS))
                && Cgroup::open(&group.join(subtree))
                    .is_ok_and(|left| left.is_populated().unwrap_or(false))
        };
        groups.into_iter().find(has_left).map(|group| Self { group })
    }

    /// The group of the unit.
    #[must_use]
    pub fn group(&self) -> &Path {
        &self.group
    }

    /// The name of the unit, such as `tutti.service`.
    #[must_use]
    pub fn name(&self) -> &str {
        name_of(&self.group)
    }

    /// Moves all processes that are in the group of the unit itself to [`DAEMONS`], and gives back
    /// what [`Unit::make_startable`] has taken. To be called by the main process, before it starts
    /// any other.
    ///
    /// # Errors
    /// What making the group, or moving a process, says.
    pub fn settle(&self) -> Result<()> {
        let leaf = self.group.join(DAEMONS);
        make_directory(&leaf)?;
        let own = Mounts::read()?.own_v2();
        if own.as_deref() == Some(&self.group) {
            let _ = xattr::write(&self.group, STARTED_HERE, "1");
        }
        let members = || read_text(&self.group.join("cgroup.procs")).unwrap_or_default();
        let mut left = members();
        for _ in 0..ROUNDS_MAX {
            for pid in left.lines() {
                move_to(&leaf, pid)?;
            }
            left = members();
            if left.is_empty() {
                break;
            }
        }
        give_back(&self.group, DEPTH_MAX);
        Ok(())
    }

    /// Has systemd be able to start a main process in the unit again, where it does so in the group
    /// of the unit itself: until [`Unit::settle`] nothing there is bounded, weighed or held to
    /// processors. Nothing is done in a unit without jobs, or where the main process begins in its
    /// leaf.
    ///
    /// # Errors
    /// What the kernel says to taking the controllers away.
    pub fn make_startable(&self) -> Result<()> {
        match xattr::read(&self.group, STARTED_HERE) {
            Some(_) => take_away(&self.group, DEPTH_MAX),
            None => Ok(()),
        }
    }
}

fn move_to(group: &Path, pid: &str) -> Result<()> {
    let file = group.join("cgroup.procs");
    match fs::write(&file, pid).map_err(Error::file("write", &file)) {
        // It has ended.
        Err(error) if error.errno() == Some(libc::ESRCH) => Ok(()),
        result => result,
    }
}

/// The group of the unit that a daemon in this group is in: of the unit nearest above, if the group
/// is that of the unit, or one that only daemons are in.
fn unit_of(own: &Path) -> Option<PathBuf> {
    let is_unit = |path: &Path| {
        let name = name_of(path);
        let kind = Path::new(name).extension();
        let is_manager = name == "init.scope" || name.starts_with("user@");
        kind.is_some_and(|kind| kind == "service" || kind == "scope") && !is_manager
    };
    let within = |leaf: &str| own.parent().filter(|_| name_of(own) == leaf);
    let unit = within(DAEMONS).or_else(|| within(CONTROL)).unwrap_or(own);
    is_unit(unit).then(|| unit.to_owned())
}

fn name_of(group: &Path) -> &str {
    group.file_name().and_then(|name| name.to_str()).unwrap_or_default()
}

/// From the leaves up: a group can't lose a controller that one below hands down. What fails
/// below does not keep other groups from it; the kernel says whether it matters.
fn take_away(group: &Path, depth: usize) -> Result<()> {
    let below = subdirectories(group)?;
    for child in below.iter().filter(|_| depth > 0) {
        let _ = take_away(child, depth - 1);
    }
    let file = group.join("cgroup.subtree_control");
    let handed_down = read_text(&file).unwrap_or_default();
    if handed_down.trim().is_empty() {
        return Ok(());
    }
    for child in &below {
        keep_values(child);
    }
    let _ = xattr::write(group, HANDED_DOWN, handed_down.trim());
    let without: Vec<String> = handed_down.split_whitespace().map(|it| format!("-{it}")).collect();
    fs::write(&file, without.join(" ")).map_err(Error::file("write", &file))
}

fn keep_values(group: &Path) {
    let mut kept = String::new();
    for file in KEPT {
        let value = read_text(&group.join(file)).unwrap_or_default();
        let value = value.trim();
        if !value.is_empty() && !value.contains('\n') {
            kept.push_str(&format!("{file}={value}\n"));
        }
    }
    let _ = xattr::write(group, VALUES, &kept);
}

/// From the top down. What can't be given back is lost: the tasks run on.
fn give_back(group: &Path, depth: usize) {
    let Some(handed_down) = xattr::read(group, HANDED_DOWN) else { return };
    for controller in handed_down.split_whitespace() {
        let _ = fs::write(group.join("cgroup.subtree_control"), format!("+{controller}"));
    }
    xattr::remove(group, HANDED_DOWN);
    for child in subdirectories(group).unwrap_or_default() {
        for line in xattr::read(&child, VALUES).unwrap_or_default().lines() {
            if let Some((file, value)) = line.split_once('=').filter(|it| KEPT.contains(&it.0)) {
                let _ = fs::write(child.join(file), value);
            }
        }
        xattr::remove(&child, VALUES);
        if depth > 0 {
            give_back(&child, depth - 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_daemon_is_in_the_group_of_its_unit_or_in_a_leaf_of_it() {
        let unit = |own: &str| unit_of(Path::new(own)).map(|unit| name_of(&unit).to_owned());
        for own in ["/c/system.slice/tutti.service", "/c/system.slice/tutti.service/daemons"] {
            assert_eq!(unit(own).as_deref(), Some("tutti.service"), "{own}");
        }
        assert_eq!(unit("/c/a.slice/b.scope/.control").as_deref(), Some("b.scope"));
        for own in [
            "/c",
            "/c/user.slice/user-7.slice/user@7.service",
            "/c/user.slice/user-7.slice/user@7.service/init.scope",
            "/c/init.scope",
            "/c/system.slice",
            "/c/libpod-1.scope/container",
            "/c/a.service/daemons/more",
        ] {
            assert_eq!(unit(own), None, "{own}");
        }
    }
}
