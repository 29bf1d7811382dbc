//! Groups of processes in tests: the kernel's, or those of the simulated machine that the thread is
//! at.

use super::machine::{Machine, here, is_cut_off, machine, root_group, with_here};
use nix::libc;
use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::sync::{LazyLock, OnceLock};
use std::time::{Duration, Instant};
use tracing::debug;
pub use tutti_linux::cgroup::Haste;
use tutti_linux::cgroup::{self, CpuUsage, FreezeError, LimitBy, LimitSupport, NoCgroup};
use tutti_linux::device_control::Gate;
use tutti_linux::pidfd::Held;
use tutti_linux::signal::{self, Halt, Walk, WalkError, WalkReport};
use tutti_linux::swap::SwapBy;
use tutti_linux::{Error, Result};

/// While this file is there, no group of the kernel's is killed at once, as on kernels before 5.14:
/// for tests.
pub static OLD_KERNEL: OnceLock<PathBuf> = OnceLock::new();

fn is_on_an_old_kernel() -> bool {
    OLD_KERNEL.get().is_some_and(|file| file.exists())
}

/// One group.
#[derive(Debug)]
pub enum Cgroup {
    Real(cgroup::Cgroup),
    /// Of this machine, at this path.
    Simulated(usize, PathBuf),
}

/// A descriptor where there is none.
pub static NULL: LazyLock<File> =
    LazyLock::new(|| File::open("/dev/null").expect("every machine has one"));

fn gone(path: &Path) -> Error {
    let source = io::Error::from_raw_os_error(libc::ENOENT);
    Error::File { operation: "use", path: path.to_owned(), source }
}

/// Asks the kernel, or the simulated machine.
macro_rules! ask {
    ($group:expr, $real:ident => $of_real:expr, ($machine:ident, $path:ident) => $of_simulated:expr) => {
        match $group {
            Cgroup::Real($real) => $of_real,
            Cgroup::Simulated(index, $path) => machine(*index, |$machine| $of_simulated),
        }
    };
}

impl Cgroup {
    pub fn open(path: &Path) -> Result<Self> {
        let Some(index) = here() else { return cgroup::Cgroup::open(path).map(Self::Real) };
        let is_there = machine(index, |machine| machine.groups.contains_key(path));
        if is_there { Ok(Self::Simulated(index, path.to_owned())) } else { Err(gone(path)) }
    }

    pub fn create_child(&self, name: &str) -> Result<Self> {
        match self {
            Self::Real(group) => group.create_child(name).map(Self::Real),
            Self::Simulated(index, path) => machine(*index, |machine| {
                if !machine.groups.contains_key(path) {
                    return Err(gone(path));
                }
                let path = path.join(name);
                debug!("group {} is made", path.display());
                machine.groups.entry(path.clone()).or_default();
                Ok(Self::Simulated(*index, path))
            }),
        }
    }

    pub fn path(&self) -> &Path {
        match self {
            Self::Real(group) => group.path(),
            Self::Simulated(_, path) => path,
        }
    }

    pub fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Real(group) => group.fd(),
            Self::Simulated(..) => NULL.as_fd(),
        }
    }

    fn set_frozen(&self, frozen: bool) -> Result<()> {
        let Self::Simulated(index, path) = self else { return Ok(()) };
        super::machine::at(*index, || {
            with_here(|machine, now| {
                let group = machine.groups.get(path).ok_or_else(|| gone(path))?;
                machine.is_refrozen |= group.is_frozen.replace(frozen) != frozen;
                machine.settle(now);
                Ok(())
            })
        })
        .unwrap_or(Ok(()))
    }

    pub fn request_freeze(&self) -> Result<()> {
        match self {
            Self::Real(group) => group.request_freeze(),
            Self::Simulated(..) if is_cut_off() => Ok(()),
            Self::Simulated(..) => self.set_frozen(true),
        }
    }

    pub fn request_thaw(&self) -> Result<()> {
        match self {
            Self::Real(group) => group.request_thaw(),
            Self::Simulated(..) if is_cut_off() => Ok(()),
            Self::Simulated(..) => self.set_frozen(false),
        }
    }

    pub fn freeze_requested(&self) -> Result<bool> {
        ask!(self, group => group.freeze_requested(),
            (machine, path) => machine.groups.get(path).map(|it| it.is_frozen.get()).ok_or_else(|| gone(path)))
    }

    pub fn is_frozen(&self) -> Result<bool> {
        match self {
            Self::Real(group) => group.is_frozen(),
            Self::Simulated(..) => self.freeze_requested(),
        }
    }

    pub fn freeze(&self, deadline: Duration) -> std::result::Result<Duration, FreezeError> {
        match self {
            Self::Real(group) => group.freeze(deadline),
            Self::Simulated(..) => Ok(self.request_freeze().map(|()| Duration::ZERO)?),
        }
    }

    pub fn kill(&self) -> Result<()> {
        match self {
            Self::Real(group) => group.kill(),
            Self::Simulated(..) if is_cut_off() => Ok(()),
            Self::Simulated(index, path) => {
                super::machine::at(*index, || {
                    with_here(|machine, now| machine.kill_group(path, now));
                });
                Ok(())
            }
        }
    }

    pub fn kill_at_once(&self) -> Result<bool> {
        match self {
            Self::Real(_) if is_on_an_old_kernel() => Ok(false),
            Self::Real(group) => group.kill_at_once(),
            Self::Simulated(..) => self.kill().map(|()| true),
        }
    }

    pub fn processes(&self) -> Result<Vec<i32>> {
        // Nothing looks into simulated processes: none has any memory.
        ask!(self, group => group.processes(), (_machine, _path) => Ok(Vec::new()))
    }

    pub fn cpu_usage(&self) -> Result<CpuUsage> {
        ask!(self, group => group.cpu_usage(), (_machine, _path) => Ok(CpuUsage::default()))
    }

    pub fn io_bytes(&self) -> Option<(u64, u64)> {
        ask!(self, group => group.io_bytes(), (_machine, _path) => None)
    }

    pub fn take_in(&self, process: &Held) -> Result<bool> {
        ask!(self, group => group.take_in(process), (_machine, path) => Err(gone(path)))
    }

    pub fn is_populated(&self) -> Result<bool> {
        ask!(self, group => group.is_populated(), (machine, path) => {
            Ok(is_cut_off() || machine.processes.values().any(|it| it.group.starts_with(path)))
        })
    }

    pub fn remove(&self) -> Result<bool> {
        ask!(self, group => group.remove(), (machine, path) => {
            let is_used = is_cut_off() || machine.processes.values().any(|it| it.group.starts_with(path));
            if !is_used {
                debug!("group {} is removed", path.display());
                machine.groups.retain(|group, _| !group.starts_with(path));
            }
            Ok(!is_used)
        })
    }

    pub fn remove_around(&self, child: &str) -> Result<bool> {
        match self {
            Self::Real(group) => group.remove_around(child),
            Self::Simulated(..) => self.remove(),
        }
    }

    pub fn remove_unlimited(&self) -> Result<bool> {
        match self {
            Self::Real(group) => group.remove_unlimited(),
            Self::Simulated(..) => self.remove(),
        }
    }

    pub fn set_memory_limit(&self, bytes: u64) -> Result<LimitBy> {
        ask!(self, group => group.set_memory_limit(bytes), (_machine, _path) => Ok(LimitBy::V2))
    }

    pub fn set_process_limit(&self, count: u64) -> Result<LimitBy> {
        ask!(self, group => group.set_process_limit(count), (_machine, _path) => Ok(LimitBy::V2))
    }

    pub fn set_processor_quota(&self, processors: u32) -> Result<()> {
        ask!(self, group => group.set_processor_quota(processors), (_machine, _path) => Ok(()))
    }

    pub fn set_processors(&self, processors: &[u32]) -> Result<LimitBy> {
        let Self::Simulated(index, path) = self else {
            return self.real().map_or(Ok(LimitBy::None), |it| it.set_processors(processors));
        };
        if is_cut_off() {
            return Ok(LimitBy::V2);
        }
        let set = |machine: &mut Machine, now| {
            let group = machine.groups.get(path).ok_or_else(|| gone(path))?;
            group.processors.set(processors.iter().copied().collect());
            machine.changed = true;
            machine.settle(now);
            Ok(LimitBy::V2)
        };
        super::machine::at(*index, || with_here(set)).unwrap_or(Ok(LimitBy::V2))
    }

    pub fn processors(&self) -> Option<Vec<u32>> {
        ask!(self, group => group.processors(), (machine, path) => {
            let own = machine.groups.get(path)?.processors.get();
            (!own.is_empty()).then(|| own.iter().collect())
        })
    }

    pub fn held_to(&self) -> Option<Vec<u32>> {
        ask!(self, group => group.held_to(), (machine, path) => {
            let around = machine.around(path);
            let mut sets = around.iter().map(|group| group.processors.get());
            sets.find(|set| !set.is_empty()).map(|set| set.iter().collect())
        })
    }

    pub fn remove_set_of(&self, gone: &Path) {
        ask!(self, group => group.remove_set_of(gone), (_machine, _path) => ());
    }

    pub fn close_devices(&self, closed: &[(u32, u32)]) -> Result<()> {
        ask!(self, group => group.close_devices(closed), (_machine, _path) => Ok(()))
    }

    pub fn close_devices_by_gate(&self, closed: &[(u32, u32)], own: &[(u32, u32)]) -> Result<Gate> {
        ask!(self, group => group.close_devices_by_gate(closed, own),
             (_machine, _path) => Gate::unattached())
    }

    pub fn note_missing_devices(&self, files: &[String]) -> bool {
        ask!(self, group => group.note_missing_devices(files), (_machine, _path) => true)
    }

    pub fn missing_devices(&self) -> Vec<String> {
        ask!(self, group => group.missing_devices(), (_machine, _path) => Vec::new())
    }

    pub fn device_gate(&self) -> Result<Option<Gate>> {
        ask!(self, group => group.device_gate(), (_machine, _path) => Ok(None))
    }

    pub fn closes_devices(&self) -> bool {
        ask!(self, group => group.closes_devices(), (_machine, _path) => true)
    }

    pub fn companions(&self) -> Vec<PathBuf> {
        ask!(self, group => group.companions(), (_machine, _path) => Vec::new())
    }

    pub fn count_memory(&self) -> Option<PathBuf> {
        ask!(self, group => group.count_memory(), (_machine, _path) => None)
    }

    pub fn swap_by(&self) -> SwapBy {
        ask!(self, group => group.swap_by(), (_machine, _path) => SwapBy::None)
    }

    pub fn resident_bytes(&self) -> Result<u64> {
        ask!(self, group => group.resident_bytes(), (_machine, _path) => Ok(0))
    }

    pub fn swap_out(&self, goes_on: &dyn Fn() -> bool) -> Result<SwapBy> {
        ask!(self, group => group.swap_out(goes_on), (_machine, _path) => Ok(SwapBy::None))
    }

    pub fn swap_in(&self, goes_on: &dyn Fn() -> bool) -> Result<()> {
        ask!(self, group => group.swap_in(goes_on), (_machine, _path) => Ok(()))
    }

    pub fn restore_limits(&self) -> Result<()> {
        ask!(self, group => group.restore_limits(), (_machine, _path) => Ok(()))
    }

    pub fn oom_kills(&self) -> u64 {
        ask!(self, group => group.oom_kills(), (_machine, _path) => 0)
    }

    pub fn has_reached_process_limit(&self) -> bool {
        ask!(self, group => group.has_reached_process_limit(), (_machine, _path) => false)
    }

    pub fn memory_peak(&self) -> Option<u64> {
        ask!(self, group => group.memory_peak(), (_machine, _path) => None)
    }

    pub fn prepare_to_yield(&self) -> Result<()> {
        ask!(self, group => group.prepare_to_yield(), (_machine, _path) => Ok(()))
    }

    pub fn set_yielding(&self, yielding: bool) -> Result<()> {
        let Self::Simulated(index, path) = self else {
            return self.real().map_or(Ok(()), |group| group.set_yielding(yielding));
        };
        let set = |machine: &mut Machine, now| {
            machine.groups.get(path).ok_or_else(|| gone(path))?.yields.set(yielding);
            machine.changed = true;
            machine.settle(now);
            Ok(())
        };
        super::machine::at(*index, || with_here(set)).unwrap_or(Ok(()))
    }

    /// No thread is boosted on a simulated machine.
    pub fn calm(&self) {
        if let Some(group) = self.real() {
            group.calm();
        }
    }

    fn real(&self) -> Option<&cgroup::Cgroup> {
        match self {
            Self::Real(group) => Some(group),
            Self::Simulated(..) => None,
        }
    }
}

pub fn freeze_all(groups: &[&Cgroup], haste: &mut Haste, deadline: Instant) -> Vec<usize> {
    let real: Vec<&cgroup::Cgroup> = groups.iter().filter_map(|group| group.real()).collect();
    if real.len() == groups.len() {
        return cgroup::freeze_all(&real, haste, deadline);
    }
    for group in groups {
        // One that is gone counts as frozen.
        let _ = group.request_freeze();
    }
    Vec::new()
}

/// By signals to all processes: in a simulated world they stand still as they do in the freezer.
pub fn halt_group(group: &Cgroup, walk: &Walk) -> Halt {
    match group.real() {
        Some(group) => signal::halt_group(group, walk),
        None => Halt {
            outcome: group
                .request_freeze()
                .map(|()| WalkReport::default())
                .map_err(WalkError::from),
            before: BTreeSet::new(),
        },
    }
}

pub fn resume_group_except(
    group: &Cgroup,
    stopped: &BTreeSet<(i32, u64)>,
    walk: &Walk,
) -> std::result::Result<(), WalkError> {
    match group.real() {
        Some(group) => signal::resume_group_except(group, stopped, walk).map(drop),
        None => Ok(group.request_thaw()?),
    }
}

/// The subtree of an instance.
#[derive(Debug)]
pub enum Hierarchy {
    Real(cgroup::Hierarchy, Cgroup),
    Simulated(Cgroup),
}

impl Hierarchy {
    fn real(hierarchy: cgroup::Hierarchy) -> Self {
        let group = Cgroup::Real(cgroup::Cgroup::open(hierarchy.path()).expect("it is there"));
        Self::Real(hierarchy, group)
    }

    pub fn find(name: &str) -> std::result::Result<Self, NoCgroup> {
        match here() {
            None => cgroup::Hierarchy::find(name).map(Self::real),
            Some(index) => Ok(Self::Simulated(Cgroup::Simulated(index, root_group()))),
        }
    }

    pub fn open(root: &Path) -> io::Result<Self> {
        match here() {
            None => cgroup::Hierarchy::open(root).map(Self::real),
            Some(_) => Ok(Self::Simulated(Cgroup::open(root)?)),
        }
    }

    fn group(&self) -> &Cgroup {
        match self {
            Self::Real(_, group) | Self::Simulated(group) => group,
        }
    }

    pub fn path(&self) -> &Path {
        self.group().path()
    }

    pub fn others(&self) -> Option<cgroup::Others> {
        match self {
            Self::Real(hierarchy, _) => hierarchy.others(),
            Self::Simulated(_) => None,
        }
    }

    pub fn create(&self, name: &str) -> Result<Cgroup> {
        match self {
            Self::Real(hierarchy, _) => hierarchy.create(name).map(Cgroup::Real),
            Self::Simulated(group) => group.create_child(name),
        }
    }

    pub fn children(&self) -> Result<Vec<String>> {
        match self {
            Self::Real(hierarchy, _) => hierarchy.children(),
            Self::Simulated(group) => Ok(ask!(group, _group => Vec::new(), (machine, root) => {
                let below = |path: &PathBuf| {
                    (path.parent() == Some(root)).then(|| path.file_name()).flatten().map(ToOwned::to_owned)
                };
                let names = machine.groups.keys().filter_map(below);
                names.map(|name| name.to_string_lossy().into_owned()).collect()
            })),
        }
    }

    pub fn cpu_usage(&self) -> Result<CpuUsage> {
        self.group().cpu_usage()
    }

    pub fn limits(&self) -> LimitSupport {
        match self {
            Self::Real(hierarchy, _) => hierarchy.limits(),
            Self::Simulated(_) => {
                let none = LimitBy::None;
                LimitSupport {
                    memory: LimitBy::V2,
                    processes: LimitBy::V2,
                    weight: none,
                    processors: LimitBy::V2,
                }
            }
        }
    }

    pub fn remove(&self) -> Result<bool> {
        match self {
            Self::Real(hierarchy, _) => hierarchy.remove(),
            Self::Simulated(group) => {
                group.kill()?;
                group.remove()
            }
        }
    }
}
