//! Limits on memory, processes and processors, and weights of processor time: in cgroup2 itself, or
//! in companion groups of cgroup v1. What is particular about processors: `cpuset.rs`.
//!
//! On the hybrid layout the controllers belong to v1. A group with a limit then gets a companion
//! there, at the same place below a base: that of this process when the subtree was made, so that
//! whatever bounds us bounds our children. Companions are made only when a limit is set, since
//! each costs a write at every start of a process.
//!
//! Companions for processor time all lie directly at their base, by one name with a point in it:
//! there a group competes with all processes of the machine. Below the subtree's own companion it
//! would only make way for its brothers, and with them have as much as any user. Those for
//! processors of the groups in a job's lie directly below that of the job, likewise: a step has
//! none of its own.
//!
//! The bases are written on the subtree as an extended attribute: a process that takes over
//! later may itself live elsewhere in v1, and must find the same companions.

use super::hierarchy::Mounts;
use super::unit::{CONTROLLERS, Unit, is_systemd_here};
use super::{keyed, make_directory, remove_tree, subdirectories, subdirectories_if};
use crate::device_control::v1;
use crate::procfile::read_text;
use crate::{Error, Result, xattr};
use std::ffi::CStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// Name of the extended attribute with the bases, on the top group.
const MARK: &CStr = c"user.companions";

/// Which kind of cgroup enforces a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitBy {
    /// A controller of cgroup2.
    V2,
    /// A companion group of cgroup v1.
    V1,
    /// Nothing.
    None,
}

/// Which limits can be enforced in a subtree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitSupport {
    /// On memory.
    pub memory: LimitBy,
    /// On the number of processes.
    pub processes: LimitBy,
    /// Which kind can say how much processor time counts.
    pub weight: LimitBy,
    /// On which processors processes may run.
    pub processors: LimitBy,
}

#[derive(Clone, Copy)]
pub(super) struct Controller {
    pub(super) name: &'static str,
    pub(super) file_v2: &'static str,
    file_v1: &'static str,
}

pub(super) const MEMORY: Controller =
    Controller { name: "memory", file_v2: "memory.max", file_v1: "memory.limit_in_bytes" };
const PIDS: Controller = Controller { name: "pids", file_v2: "pids.max", file_v1: "pids.max" };
const CPU: Controller = Controller { name: "cpu", file_v2: "cpu.weight", file_v1: "cpu.shares" };
pub(super) const CPUSET: Controller =
    Controller { name: "cpuset", file_v2: "cpuset.cpus", file_v1: "cpuset.cpus" };
/// It has no files in cgroup2: there, a program closes devices.
pub(super) const DEVICES: Controller =
    Controller { name: "devices", file_v2: "", file_v1: "devices.deny" };
const ALL: [Controller; 5] = [MEMORY, PIDS, CPU, CPUSET, DEVICES];

/// The highest major and minor number of a character device.
const NO_DEVICE: (u32, u32) = (0xfff, 0xf_ffff);

/// The file with the most memory that a group used at once, in v2 (from kernel 5.19 on) and in v1.
const PEAK_V2: &str = "memory.peak";
const PEAK_V1: &str = "memory.max_usage_in_bytes";

/// The subtree of ours that a group lies in.
#[derive(Debug)]
pub(super) struct Top {
    pub(super) path: PathBuf,
    memory_base: Option<PathBuf>,
    pids_base: Option<PathBuf>,
    cpu_base: Option<PathBuf>,
    cpuset_base: Option<PathBuf>,
    devices_base: Option<PathBuf>,
    /// What sets of processors of jobs in v1 were given first, the last time.
    pub(super) cpuset_values: Mutex<Option<(String, String)>>,
}

impl Top {
    /// The subtree around an existing group, by the mark on it; without any, the group itself.
    pub(super) fn of(group: &Path) -> Self {
        group
            .ancestors()
            .find_map(|path| Some(Self::from_mark(path, &xattr::read(path, MARK)?)))
            .unwrap_or_else(|| Self::here(group))
    }

    /// Whether an instance has this group as its subtree.
    pub(super) fn is_marked(group: &Path) -> bool {
        xattr::read(group, MARK).is_some()
    }

    /// A subtree with its companions where this process lives in v1.
    pub(super) fn here(path: &Path) -> Self {
        let mounts = Mounts::read().unwrap_or_default();
        Self {
            path: path.to_owned(),
            memory_base: mounts.own_v1("memory"),
            pids_base: mounts.own_v1("pids"),
            cpu_base: mounts.own_v1("cpu"),
            cpuset_base: mounts.own_v1("cpuset"),
            devices_base: mounts.own_v1("devices"),
            cpuset_values: Mutex::default(),
        }
    }

    /// One that is taken over. A program that knew fewer controllers may have made it: the
    /// companions for the others are where this process lives.
    pub(super) fn taken_over(path: &Path) -> Self {
        let (of, here) = (Self::of(path), Self::here(path));
        Self {
            memory_base: of.memory_base.or(here.memory_base),
            pids_base: of.pids_base.or(here.pids_base),
            cpu_base: of.cpu_base.or(here.cpu_base),
            cpuset_base: of.cpuset_base.or(here.cpuset_base),
            devices_base: of.devices_base.or(here.devices_base),
            cpuset_values: Mutex::default(),
            path: of.path,
        }
    }

    fn from_mark(path: &Path, mark: &str) -> Self {
        let base =
            |key: &str| mark.lines().find_map(|line| line.strip_prefix(key)).map(PathBuf::from);
        Self {
            path: path.to_owned(),
            memory_base: base("memory="),
            pids_base: base("pids="),
            cpu_base: base("cpu="),
            cpuset_base: base("cpuset="),
            devices_base: base("devices="),
            cpuset_values: Mutex::default(),
        }
    }

    /// Leaves the mark. Where extended attributes are refused, later processes fall back to
    /// their own place in v1, which is mostly the same.
    pub(super) fn mark(&self) {
        let mut mark = String::new();
        for controller in ALL {
            if let Some(base) = self.base(controller).and_then(Path::to_str) {
                mark.push_str(&format!("{}={base}\n", controller.name));
            }
        }
        let _ = xattr::write(&self.path, MARK, &mark);
    }

    /// Tries to hand the controllers of cgroup2 down into the subtree. Refusals are no errors: the
    /// controllers may belong to v1, or processes may live beside the subtree. Above the subtree
    /// only where the group there is ours too, or no service manager's.
    pub(super) fn enable_controllers(&self) {
        let above = self.path.parent().filter(|above| {
            !is_systemd_here() || Unit::own().is_some_and(|unit| unit.group() == *above)
        });
        let enable = |group: &Path, controller: &str| {
            let _ = fs::write(group.join("cgroup.subtree_control"), format!("+{controller}"));
        };
        for controller in CONTROLLERS {
            if let Some(above) = above {
                enable(above, controller);
            }
            // Not `cpu`: below, all jobs would be weighed, also where none makes way.
            if controller != CPU.name {
                enable(&self.path, controller);
            }
        }
    }

    pub(super) fn limits(&self) -> LimitSupport {
        let control = fs::read_to_string(self.path.join("cgroup.subtree_control"));
        let offered = fs::read_to_string(self.path.join("cgroup.controllers"));
        let in_v2 = |name| {
            let names = if name == CPU.name { &offered } else { &control };
            names.as_ref().is_ok_and(|c| c.split_whitespace().any(|n| n == name))
        };
        let by = |controller: Controller| {
            if in_v2(controller.name) {
                LimitBy::V2
            } else if self.base(controller).is_some_and(may_write) {
                LimitBy::V1
            } else {
                LimitBy::None
            }
        };
        LimitSupport {
            memory: by(MEMORY),
            processes: by(PIDS),
            weight: by(CPU),
            processors: by(CPUSET),
        }
    }

    pub(super) fn set_memory_limit(&self, group: &Path, bytes: u64) -> Result<LimitBy> {
        self.set_limit(group, MEMORY, bytes)
    }

    pub(super) fn set_process_limit(&self, group: &Path, count: u64) -> Result<LimitBy> {
        self.set_limit(group, PIDS, count)
    }

    /// The companion of `group` that closes devices; made if need be. Processes that are in the
    /// group already are not in it yet.
    pub(super) fn make_devices(&self, group: &Path) -> Result<PathBuf> {
        let path = || group.to_owned();
        let none = || Error::NoController { path: path(), controller: DEVICES.name };
        self.make_companion(group, DEVICES)?.ok_or_else(none)
    }

    /// The companion of `group` that closes devices, if it has one.
    pub(super) fn own_devices(&self, group: &Path) -> Option<PathBuf> {
        let base = self.used_base(DEVICES).filter(|_| group != self.path)?;
        self.place(base, group, DEVICES).filter(|companion| companion.is_dir())
    }

    /// Whether the hierarchy `devices` is there, for this process to write.
    pub(super) fn may_close_devices(&self) -> bool {
        self.base(DEVICES).is_some_and(may_write)
    }

    /// Closes a device that no machine has to a group without processes, which is removed again.
    ///
    /// # Errors
    /// [`Error::NoController`] without the hierarchy; what the kernel says: `EPERM` without
    /// `CAP_SYS_ADMIN`.
    pub(super) fn try_closing_devices(&self) -> Result<()> {
        let none = || Error::NoController { path: self.path.clone(), controller: DEVICES.name };
        let base = self.base(DEVICES).ok_or_else(none)?;
        let name = self.path.file_name().and_then(|name| name.to_str()).ok_or_else(none)?;
        let trial = base.join(format!("{name}.trial-{}", std::process::id()));
        make_directory(&trial)?;
        let done = v1::deny(&trial, &[NO_DEVICE]);
        let _ = fs::remove_dir(&trial);
        done
    }

    /// The directory in which the processor time of `group` is weighed; made if need be.
    pub(super) fn weigh(&self, group: &Path) -> Result<PathBuf> {
        if self.enable_down_to(group, CPU) {
            return Ok(group.to_owned());
        }
        let path = || group.to_owned();
        let none = || Error::NoController { path: path(), controller: CPU.name };
        self.make_companion(group, CPU)?.ok_or_else(none)
    }

    fn set_limit(&self, group: &Path, controller: Controller, value: u64) -> Result<LimitBy> {
        let (file, by) = if self.enable_down_to(group, controller) {
            (group.join(controller.file_v2), LimitBy::V2)
        } else if let Some(companion) = self.make_companion(group, controller)? {
            (companion.join(controller.file_v1), LimitBy::V1)
        } else {
            let path = group.to_owned();
            return Err(Error::NoController { path, controller: controller.name });
        };
        fs::write(&file, value.to_string()).map_err(Error::file("write", &file))?;
        Ok(by)
    }

    /// Whether the controller of cgroup2 works in `group`; hands it down first where it does not.
    pub(super) fn enable_down_to(&self, group: &Path, controller: Controller) -> bool {
        let file = group.join(controller.file_v2);
        if file.exists() {
            return true;
        }
        if self.base(controller).is_some() {
            // A controller is in v1 or in cgroup2, not in both.
            return false;
        }
        let value = format!("+{}", controller.name);
        for above in self.within(group).iter().rev() {
            if *above != group {
                let _ = fs::write(above.join("cgroup.subtree_control"), &value);
            }
        }
        file.exists()
    }

    /// Has the memory of processes that are started later in `group` counted for this group. In v1,
    /// the companion that does so.
    pub(super) fn count_memory(&self, group: &Path) -> Option<PathBuf> {
        if self.path.join(MEMORY.file_v2).exists() {
            if self.path.join(PEAK_V2).exists() {
                self.enable_down_to(group, MEMORY);
            }
            return None;
        }
        self.make_companion(group, MEMORY).ok()?
    }

    /// Makes the companion of `group`. Companions of processes lie within those of the groups
    /// above, so that limits set there later hold here too.
    fn make_companion(&self, group: &Path, controller: Controller) -> Result<Option<PathBuf>> {
        let Some(base) = self.base(controller).filter(|_| group != self.path) else {
            return Ok(None);
        };
        if controller.is_flat() {
            // The top's has no process, and marks that there are others.
            for group in [&self.path, group] {
                let Some(path) = self.place(base, group, controller) else { return Ok(None) };
                make_directory(&path)?;
            }
            return Ok(self.place(base, group, controller));
        }
        let Some(relative) = self.relative(group) else { return Ok(None) };
        let mut path = base.to_owned();
        for part in relative.components() {
            path.push(part);
            make_directory(&path)?;
        }
        Ok(Some(path))
    }

    /// Where the companion of a group is, if it has one.
    pub(super) fn place(
        &self,
        base: &Path,
        group: &Path,
        controller: Controller,
    ) -> Option<PathBuf> {
        let relative = self.relative(group)?;
        // So many directories are within each other; points stand between the others.
        let depth = match controller.name {
            "cpu" => 1,
            "memory" => 2,
            "cpuset" => 3,
            _ => return Some(base.join(relative)),
        };
        Some(base.join(relative.to_str()?.splitn(depth, '/').map(pointed).collect::<PathBuf>()))
    }

    /// A process belongs into the companion of the nearest group that has one. By the file for
    /// single threads: the kernel then need not wait until no process of the machine forks.
    pub(super) fn companions(&self, group: &Path) -> Vec<PathBuf> {
        ALL.into_iter()
            .filter_map(|controller| self.nearest_companion(group, controller))
            .map(|companion| companion.join("tasks"))
            .collect()
    }

    fn nearest_companion(&self, group: &Path, controller: Controller) -> Option<PathBuf> {
        let base = self.used_base(controller)?;
        // The top has one as soon as any group has, but no limit: joining it would be in vain.
        self.within(group)
            .into_iter()
            .filter(|above| *above != self.path)
            .filter_map(|above| self.place(base, above, controller))
            .find(|companion| companion.is_dir())
    }

    /// `false` if a process still is in one.
    pub(super) fn remove_companions(&self, group: &Path) -> Result<bool> {
        for controller in ALL {
            let Some(base) = self.used_base(controller) else { continue };
            let Some(companion) = self.place(base, group, controller) else { continue };
            let points = if controller.is_flat() { below_by_points(&companion)? } else { vec![] };
            for path in points.into_iter().chain([companion]) {
                if !remove_tree(&path)? {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// In v1 the kernel counts at the group of the process that it ended, not above.
    pub(super) fn oom_kills(&self, group: &Path) -> u64 {
        if let Ok(text) = fs::read_to_string(group.join("memory.events")) {
            return keyed(&text, "oom_kill").unwrap_or(0);
        }
        let own = self.used_base(MEMORY).and_then(|base| self.place(base, group, MEMORY));
        let below = own.and_then(|own| below_by_points(&own).ok()).unwrap_or_default();
        let nearest = self.nearest_companion(group, MEMORY);
        let counted = below.iter().chain(&nearest);
        counted.map(|it| count_below(it, &["memory.oom_control"], "oom_kill")).sum()
    }

    /// Late kernels of v2 count at the group whose limit it was, others at that of the process
    /// which wanted another: perhaps for the sake of a limit above, and then there never were as
    /// many here as may be.
    pub(super) fn has_reached_process_limit(&self, group: &Path) -> bool {
        let own = group.join(PIDS.file_v2).exists().then(|| group.to_owned());
        let Some(limited) = own.or_else(|| self.nearest_companion(group, PIDS)) else {
            return false;
        };
        let number = |file: &str| -> Option<u64> {
            fs::read_to_string(limited.join(file)).ok()?.trim().parse().ok()
        };
        let Some(most) = number(PIDS.file_v2) else { return false };
        count_below(&limited, &["pids.events.local", "pids.events"], "max") > 0
            && number("pids.peak").is_none_or(|peak| peak >= most)
    }

    pub(super) fn memory_peak(&self, group: &Path) -> Option<u64> {
        let v1 = || self.nearest_companion(group, MEMORY);
        peak_in(&group.join(PEAK_V2)).or_else(|| peak_of_companion(&v1()?))
    }

    /// Where companions are, if any group of the subtree has one: then its top has one, too.
    fn used_base(&self, controller: Controller) -> Option<&Path> {
        let base = self.base(controller)?;
        base.join(self.path.file_name()?).is_dir().then_some(base)
    }

    /// `group` and what is above it, up to and with the top.
    fn within<'a>(&self, group: &'a Path) -> Vec<&'a Path> {
        group.ancestors().take_while(|above| above.starts_with(&self.path)).collect()
    }

    /// `group` below the parent of the top: the name of the top comes first.
    pub(super) fn relative<'a>(&self, group: &'a Path) -> Option<&'a Path> {
        group.strip_prefix(self.path.parent()?).ok()
    }

    pub(super) fn base(&self, controller: Controller) -> Option<&Path> {
        match controller.name {
            "memory" => self.memory_base.as_deref(),
            "pids" => self.pids_base.as_deref(),
            "cpuset" => self.cpuset_base.as_deref(),
            "devices" => self.devices_base.as_deref(),
            _ => self.cpu_base.as_deref(),
        }
    }
}

impl Controller {
    /// Whether its companions lie beside each other, with points in their names. Each level of a
    /// tree of memory groups is another group to make, and to charge each page to.
    fn is_flat(self) -> bool {
        self.name == CPU.name || self.name == MEMORY.name
    }
}

fn peak_in(file: &Path) -> Option<u64> {
    read_text(file).ok()?.trim().parse().ok()
}

/// The most memory used at once by the processes of a companion.
pub(super) fn peak_of_companion(companion: &Path) -> Option<u64> {
    peak_in(&companion.join(PEAK_V1))
}

fn pointed(part: &str) -> String {
    part.replace('/', ".")
}

/// The companions of groups below the one with this companion, where names give the hierarchy.
pub(super) fn below_by_points(companion: &Path) -> Result<Vec<PathBuf>> {
    let (Some(base), Some(name)) = (companion.parent(), companion.file_name()) else {
        return Ok(Vec::new());
    };
    let prefix = [name.as_bytes(), b"."].concat();
    subdirectories_if(base, |name| name.as_bytes().starts_with(&prefix))
}

/// What the first of these files that is there counts by that name, here and below.
fn count_below(group: &Path, files: &[&str], key: &str) -> u64 {
    let text = files.iter().find_map(|file| fs::read_to_string(group.join(file)).ok());
    let below = subdirectories(group).unwrap_or_default();
    text.and_then(|text| keyed(&text, key)).unwrap_or(0)
        + below.iter().map(|child| count_below(child, files, key)).sum::<u64>()
}

fn may_write(path: &Path) -> bool {
    nix::unistd::access(path, nix::unistd::AccessFlags::W_OK).is_ok()
}

#[cfg(test)]
mod tests;
