//! Groups of processes in cgroup2: the fence, the freezer, the end of all within.
//!
//! A process made straight into a group (see [`crate::spawn`]) and everything it starts stays
//! there: leaving takes write permission on `cgroup.procs` files that ordinary users don't have.
//! The group can be frozen and thawed as one, and ended as one.
//!
//! [`Hierarchy`] is the subtree that belongs to us; [`Cgroup`] is one group in it. Only what every
//! cgroup2 mount has is relied on: the hybrid layout, where the controllers stay with cgroup v1,
//! will do. Limits on memory and processes are set where a controller is found, in v2 or in a
//! companion group of v1 (see `cgroup_v1.rs`), and reported as missing where none is.
//!
//! Waiting for a freeze: by reading `cgroup.events` again after naps of 30 to 50 us. Notices by
//! poll or inotify come at most once in 10 ms a file, a hundred times too slow for a switch.

mod cgroup_v1;
mod cpuset;
mod devices;
mod freeze;
mod hierarchy;
mod layout;
mod migrate;
mod others;
mod priority_boost;
mod probe;
mod reclaim;
mod unit;
mod weight;

pub use cgroup_v1::{LimitBy, LimitSupport};
pub(crate) use cpuset::parse_list;
pub use freeze::{FreezeError, freeze_all};
pub(crate) use hierarchy::leave_cpu_group;
pub use hierarchy::{Attempt, Hierarchy, NoCgroup};
pub use layout::{Layout, layout, own_groups, v2_point};
pub use others::Others;
pub use priority_boost::Haste;
pub use unit::{DAEMONS, Unit, is_systemd_here};

use crate::clock::Naps;
use crate::pidfd::for_each_listed;
use crate::procfile::read_text;
use crate::{Error, Result};
use cgroup_v1::Top;
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// How long [`Cgroup::kill`] goes on where it must send signals one by one.
const KILL_BY_SIGNALS: Duration = Duration::from_secs(5);

/// Processor time that a group has used, its ended processes included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuUsage {
    /// In user mode, microseconds.
    pub user_us: u64,
    /// In the kernel, microseconds.
    pub system_us: u64,
}

/// One group, with the files that a switch needs kept open once they were used (at most four
/// descriptors each).
///
/// Dropping it closes them; the group stays until [`Cgroup::remove`].
#[derive(Debug)]
pub struct Cgroup {
    path: PathBuf,
    directory: OwnedFd,
    events: OnceLock<File>,
    freeze: OnceLock<File>,
    weight: OnceLock<weight::Weight>,
    /// Number of further stops at which no thread here is boosted.
    unhurried: AtomicU32,
    /// The companion that only counts the memory of this group.
    counter: OnceLock<PathBuf>,
    top: Arc<Top>,
}

/// The same group, however often it is open; a later one with its name is another.
impl PartialEq for Cgroup {
    fn eq(&self, other: &Self) -> bool {
        self.number().is_some() && self.number() == other.number()
    }
}

impl Eq for Cgroup {}

impl Cgroup {
    /// Opens an existing group. Its companions in v1 are found through the mark that
    /// [`Hierarchy::find`] leaves on the subtree.
    ///
    /// # Errors
    /// When `path` is no group of cgroup2 below its root, or may not be written.
    pub fn open(path: &Path) -> Result<Self> {
        let group = Self::open_below(path, Arc::new(Top::of(path)))?;
        // What is no group has none of these.
        group.events()?;
        group.freezer()?;
        Ok(group)
    }

    fn open_below(path: &Path, top: Arc<Top>) -> Result<Self> {
        let directory = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_PATH | libc::O_DIRECTORY)
            .open(path)
            .map_err(Error::file("open group", path))?;
        let (events, freeze, weight) = (OnceLock::new(), OnceLock::new(), OnceLock::new());
        Ok(Self {
            path: path.to_owned(),
            directory: directory.into(),
            events,
            freeze,
            weight,
            unhurried: AtomicU32::new(0),
            counter: OnceLock::new(),
            top,
        })
    }

    fn events(&self) -> Result<&File> {
        self.opened(&self.events, "cgroup.events", OpenOptions::new().read(true))
    }

    fn freezer(&self) -> Result<&File> {
        self.opened(&self.freeze, "cgroup.freeze", OpenOptions::new().read(true).write(true))
    }

    /// Many groups live and end without ever being switched: their files are never opened.
    fn opened<'a>(
        &self,
        file: &'a OnceLock<File>,
        name: &'static str,
        options: &OpenOptions,
    ) -> Result<&'a File> {
        if let Some(file) = file.get() {
            return Ok(file);
        }
        let path = self.path.join(name);
        let opened = options.open(&path).map_err(Error::file("open", &path))?;
        Ok(file.get_or_init(|| opened))
    }

    /// Makes the group `name` directly below, or opens it if it exists.
    ///
    /// # Errors
    /// What `mkdir` and opening say.
    pub fn create_child(&self, name: &str) -> Result<Self> {
        Self::create_below(&self.path, name, &self.top)
    }

    fn create_below(parent: &Path, name: &str, top: &Arc<Top>) -> Result<Self> {
        let path = parent.join(name);
        make_directory(&path)?;
        Self::open_below(&path, Arc::clone(top))
    }

    /// Where the group is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The directory (`O_PATH`), for [`crate::spawn::Spawn::cgroup`].
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.directory.as_fd()
    }

    /// Asks for all processes here and below to be frozen; does not wait. What is born into a
    /// group so asked is born frozen.
    ///
    /// # Errors
    /// [`Error::is_gone`] for a removed group.
    pub fn request_freeze(&self) -> Result<()> {
        self.write_freeze(b"1")
    }

    /// Lets all processes here and below run on, if no group above is frozen.
    ///
    /// # Errors
    /// [`Error::is_gone`] for a removed group.
    pub fn request_thaw(&self) -> Result<()> {
        self.write_freeze(b"0")
    }

    fn write_freeze(&self, value: &[u8]) -> Result<()> {
        let result = self.freezer()?.write_all_at(value, 0);
        result.map_err(|source| self.error("write", "cgroup.freeze", source))
    }

    /// Whether a freeze has been asked for, of this group itself.
    ///
    /// # Errors
    /// [`Error::is_gone`] for a removed group.
    pub fn freeze_requested(&self) -> Result<bool> {
        let mut buffer = [0; 8];
        match self.freezer()?.read_at(&mut buffer, 0) {
            Ok(_) => Ok(buffer[0] == b'1'),
            Err(source) => Err(self.error("read", "cgroup.freeze", source)),
        }
    }

    /// Whether every process here and below has stopped running. A group without processes is
    /// frozen as soon as it was asked to be.
    ///
    /// # Errors
    /// [`Error::is_gone`] for a removed group.
    pub fn is_frozen(&self) -> Result<bool> {
        self.event("frozen ")
    }

    /// Whether a process exists here or below, ended ones that are not yet reaped left out.
    ///
    /// # Errors
    /// [`Error::is_gone`] for a removed group.
    pub fn is_populated(&self) -> Result<bool> {
        self.event("populated ")
    }

    /// Reads one flag of `cgroup.events`. Called often during a switch: no allocation.
    fn event(&self, name: &'static str) -> Result<bool> {
        let mut buffer = [0; 256];
        let length = self
            .events()?
            .read_at(&mut buffer, 0)
            .map_err(|source| self.error("read", "cgroup.events", source))?;
        flag(&buffer[..length], name).ok_or_else(|| Error::Malformed {
            path: self.path.join("cgroup.events"),
            wanted: "populated and frozen",
        })
    }

    /// Kills every process here and below, frozen ones too. They end soon after: see
    /// [`Cgroup::is_populated`]. A group that is gone counts as killed.
    ///
    /// # Errors
    /// What the kernel says; on kernels before 5.14, which have no `cgroup.kill`, `ETIMEDOUT` if
    /// five seconds of signals did not end them.
    pub fn kill(&self) -> Result<()> {
        match self.kill_at_once()? {
            true => Ok(()),
            false => self.kill_by_signals(),
        }
    }

    /// As [`Cgroup::kill`], but never takes long: `false` on kernels that have no `cgroup.kill`,
    /// and nothing is killed then.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn kill_at_once(&self) -> Result<bool> {
        let file = self.path.join("cgroup.kill");
        match fs::write(&file, "1") {
            Ok(()) => Ok(true),
            Err(source) if source.raw_os_error() == Some(libc::ENODEV) => Ok(true),
            Err(source) if source.kind() == io::ErrorKind::NotFound => Ok(!self.path.is_dir()),
            Err(source) => Err(Error::File { operation: "write", path: file, source }),
        }
    }

    /// Frozen first, so that none is born between the reading of the list and its end.
    pub(crate) fn kill_by_signals(&self) -> Result<()> {
        match self.request_freeze() {
            Err(error) if error.is_gone() => return Ok(()),
            other => other?,
        }
        let end = Instant::now() + KILL_BY_SIGNALS;
        let mut naps = Naps::default();
        loop {
            let left_here = for_each_listed(
                || self.processes_if_same(),
                |process| process.signal(libc::SIGKILL),
            )?;
            let left = end.saturating_duration_since(Instant::now());
            if left_here == 0 || left.is_zero() {
                match self.request_thaw() {
                    Err(error) if error.is_gone() => return Ok(()),
                    other => other?,
                }
                let timeout = io::Error::from_raw_os_error(libc::ETIMEDOUT);
                return if left_here == 0 {
                    Ok(())
                } else {
                    Err(self.error("end all of", "cgroup.procs", timeout))
                };
            }
            naps.nap(left);
        }
    }

    /// The processes here and below, in no order. Groups that vanish meanwhile are left out.
    ///
    /// # Errors
    /// What reading `cgroup.procs` says.
    pub fn processes(&self) -> Result<Vec<i32>> {
        processes_of(&self.path)
    }

    /// As [`Cgroup::processes`]; none if the group was removed, also where another has its name by
    /// now.
    fn processes_if_same(&self) -> Result<Vec<i32>> {
        let found = self.processes()?;
        Ok(if self.is_there() { found } else { Vec::new() })
    }

    /// Whether the group was not removed. A later group with its name is another one.
    #[must_use]
    pub fn is_there(&self) -> bool {
        fs::metadata(&self.path).is_ok_and(|found| self.number() == Some(found.ino()))
    }

    /// The number of the group, which the kernel gives to no other.
    fn number(&self) -> Option<u64> {
        nix::sys::stat::fstat(&self.directory).ok().map(|own| own.st_ino)
    }

    /// Processor time used here and below, by ended processes too.
    ///
    /// # Errors
    /// [`Error::is_gone`] for a removed group.
    pub fn cpu_usage(&self) -> Result<CpuUsage> {
        let path = self.path.join("cpu.stat");
        let text = read_text(&path).map_err(Error::file("read", &path))?;
        parse_cpu_stat(&text).ok_or(Error::Malformed { path, wanted: "user_usec and system_usec" })
    }

    /// What was read from and written to devices here and below, bytes, where a controller of
    /// cgroup2 counts it.
    #[must_use]
    pub fn io_bytes(&self) -> Option<(u64, u64)> {
        read_text(&self.path.join("io.stat")).ok().map(|text| parse_io_stat(&text))
    }

    /// Removes the group, those below it, and their companions. `false` if a process is still
    /// there; `true` also if there was no such group.
    ///
    /// # Errors
    /// What `rmdir` says otherwise.
    pub fn remove(&self) -> Result<bool> {
        Ok(self.top.remove_companions(&self.path)? && remove_tree(&self.path)?)
    }

    /// As [`Cgroup::remove`], where most have this one group below and nothing else.
    ///
    /// # Errors
    /// What `rmdir` says otherwise.
    pub fn remove_around(&self, child: &str) -> Result<bool> {
        // Whatever comes of it shows when this one is removed.
        let _ = fs::remove_dir(self.path.join(child));
        self.remove()
    }

    /// As [`Cgroup::remove`] for a group for which nothing was ever limited or weighed: it has no
    /// companion but the one that [`Cgroup::count_memory`] made.
    ///
    /// # Errors
    /// What `rmdir` says.
    pub fn remove_unlimited(&self) -> Result<bool> {
        let is_alone = self.counter.get().map_or(Ok(true), |counter| remove_tree(counter))?;
        Ok(is_alone && remove_tree(&self.path)?)
    }

    /// Has the memory of all processes that are started here later counted together, where that can
    /// be done. In cgroup v1, the file into which a new process must write itself for that (see
    /// [`Cgroup::companions`]).
    pub fn count_memory(&self) -> Option<PathBuf> {
        let companion = self.top.count_memory(&self.path)?;
        Some(self.counter.get_or_init(|| companion).join("tasks"))
    }

    /// Bounds the memory of all processes here and below together, page cache included; beyond it
    /// the kernel ends one of them. Where v1 does it, only processes started later are bounded.
    ///
    /// # Errors
    /// [`Error::NoController`] where no memory controller can be used, and where only v1 has one
    /// also for the top of a subtree.
    pub fn set_memory_limit(&self, bytes: u64) -> Result<LimitBy> {
        self.top.set_memory_limit(&self.path, bytes)
    }

    /// Bounds how many processes and threads may exist here and below; `fork` fails with `EAGAIN`
    /// beyond. Where v1 does it, only processes started later count.
    ///
    /// # Errors
    /// [`Error::NoController`] as for [`Cgroup::set_memory_limit`].
    pub fn set_process_limit(&self, count: u64) -> Result<LimitBy> {
        self.top.set_process_limit(&self.path, count)
    }

    /// The v1 `tasks` files into which a new process must write itself ("0") while it has one
    /// thread, so that the limits of this group, and of those above, hold for it.
    #[must_use]
    pub fn companions(&self) -> Vec<PathBuf> {
        self.top.companions(&self.path)
    }

    /// How many processes here and below the kernel has ended for want of memory. 0 where no
    /// memory controller counts.
    #[must_use]
    pub fn oom_kills(&self) -> u64 {
        self.top.oom_kills(&self.path)
    }

    /// Whether a fork here or below was refused, since there were as many processes as the limit of
    /// this group allows.
    #[must_use]
    pub fn has_reached_process_limit(&self) -> bool {
        self.top.has_reached_process_limit(&self.path)
    }

    /// The most memory used at once, bytes, where a memory controller counts.
    #[must_use]
    pub fn memory_peak(&self) -> Option<u64> {
        match self.counter.get() {
            Some(counter) => cgroup_v1::peak_of_companion(counter),
            None => self.top.memory_peak(&self.path),
        }
    }

    fn error(&self, operation: &'static str, file: &str, source: io::Error) -> Error {
        Error::File { operation, path: self.path.join(file), source }
    }
}

/// The value, 0 or 1, in the line of `cgroup.events` that begins with `name`.
fn flag(text: &[u8], name: &str) -> Option<bool> {
    text.split(|&byte| byte == b'\n')
        .find_map(|line| line.strip_prefix(name.as_bytes()))
        .map(|value| value == b"1")
}

fn parse_cpu_stat(text: &str) -> Option<CpuUsage> {
    Some(CpuUsage { user_us: keyed(text, "user_usec")?, system_us: keyed(text, "system_usec")? })
}

/// The sums over all devices, each of which has a line: `8:0 rbytes=1 wbytes=2 rios=3 ...`.
fn parse_io_stat(text: &str) -> (u64, u64) {
    let sum = |key: &str| {
        let values = text.split_whitespace().filter_map(|word| word.strip_prefix(key));
        values.filter_map(|value| value.parse::<u64>().ok()).sum()
    };
    (sum("rbytes="), sum("wbytes="))
}

/// The number in the line `key number`, of which many files of the kernel are made.
fn keyed(text: &str, key: &str) -> Option<u64> {
    text.lines()
        .find_map(|line| line.strip_prefix(key)?.strip_prefix(' '))
        .and_then(|value| value.trim().parse().ok())
}

/// `mkdir` that is content with a directory that is there.
fn make_directory(path: &Path) -> Result<()> {
    match fs::create_dir(path) {
        Err(source) if source.kind() != io::ErrorKind::AlreadyExists => {
            Err(Error::File { operation: "make group", path: path.to_owned(), source })
        }
        _ => Ok(()),
    }
}

/// Names of the directories in `path`; none if it has vanished.
fn subdirectories(path: &Path) -> Result<Vec<PathBuf>> {
    subdirectories_if(path, |_| true)
}

/// Those with such names.
fn subdirectories_if(path: &Path, is_wanted: impl Fn(&OsStr) -> bool) -> Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(path) {
        Ok(entries) => entries,
        Err(source) if source.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(source) => return Err(Error::file("list", path)(source)),
    };
    let mut found = Vec::new();
    for entry in entries.flatten() {
        if is_wanted(&entry.file_name()) && entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            found.push(entry.path());
        }
    }
    Ok(found)
}

/// Where hierarchies are mounted, of v1 and v2.
#[must_use]
pub fn mount_points() -> Vec<PathBuf> {
    hierarchy::Mounts::read().unwrap_or_default().points()
}

/// As [`Cgroup::processes`], of a group that need not be open.
///
/// # Errors
/// As [`Cgroup::processes`].
pub fn processes_of(group: &Path) -> Result<Vec<i32>> {
    let mut found = Vec::new();
    collect_processes(group, &mut found)?;
    Ok(found)
}

fn collect_processes(group: &Path, found: &mut Vec<i32>) -> Result<()> {
    let path = group.join("cgroup.procs");
    match fs::read_to_string(&path) {
        // 0 stands for a process of a pid namespace that is not below ours; 0 must not be killed.
        Ok(text) => found
            .extend(text.lines().filter_map(|pid| pid.parse().ok()).filter(|&pid: &i32| pid > 0)),
        Err(source) => {
            if source.kind() == io::ErrorKind::NotFound {
                return Ok(());
            }
            let error = Error::File { operation: "read", path, source };
            // EOPNOTSUPP: a threaded group, whose processes are listed above it.
            if !error.is_gone() && error.errno() != Some(libc::EOPNOTSUPP) {
                return Err(error);
            }
        }
    }
    for child in subdirectories(group)? {
        collect_processes(&child, found)?;
    }
    Ok(())
}

/// Removes groups from the leaves up. `false` as soon as one has processes.
fn remove_tree(group: &Path) -> Result<bool> {
    // Most have no group below; those that have are busy, like those with a process.
    if remove_group(group)? {
        return Ok(true);
    }
    let below = subdirectories(group)?;
    for child in &below {
        if !remove_tree(child)? {
            return Ok(false);
        }
    }
    Ok(!below.is_empty() && remove_group(group)?)
}

fn remove_group(group: &Path) -> Result<bool> {
    match fs::remove_dir(group) {
        Ok(()) => Ok(true),
        Err(source) => match source.raw_os_error() {
            Some(libc::ENOENT) => Ok(true),
            Some(libc::EBUSY | libc::ENOTEMPTY) => Ok(false),
            _ => Err(Error::File { operation: "remove group", path: group.to_owned(), source }),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_devices_moved_is_summed() {
        let text = "8:0 rbytes=100 wbytes=7 rios=1 wios=1\n8:16 rbytes=20 wbytes=1 dbytes=9\n";
        assert_eq!(parse_io_stat(text), (120, 8));
        assert_eq!(parse_io_stat(""), (0, 0));
    }

    #[test]
    fn a_later_group_with_the_same_name_is_not_killed() {
        let top = Hierarchy::find(&format!("tutti-test-{}-same-name", std::process::id()))
            .expect("THIS TEST NEEDS CGROUP2");
        let before = top.create("g").unwrap();
        assert!(before.is_there() && before.remove().unwrap());
        let after = top.create("g").unwrap();
        let mut sleep = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let held = crate::pidfd::tests::hold(sleep.id().cast_signed());
        assert!(after.take_in(&held).unwrap());
        let (listed, lives) = (before.processes_if_same().unwrap(), !before.is_there());
        let _ = before.kill_by_signals();
        let survives = !held.has_ended();
        sleep.kill().unwrap();
        sleep.wait().unwrap();
        assert!(top.remove().unwrap());
        assert!(listed.is_empty() && lives && survives);
    }

    /// As on kernels before 5.14.
    #[test]
    fn signals_end_all_of_a_group_that_makes_others_meanwhile() {
        let top = Hierarchy::find(&format!("tutti-test-{}-by-signals", std::process::id()))
            .expect("THIS TEST NEEDS CGROUP2");
        let group = top.create("g").unwrap();
        let within = group.create_child("within").unwrap();
        let line = format!(
            "echo $$ > {}/cgroup.procs; while :; do sleep 0.1 & sleep 0.01; done",
            within.path().display()
        );
        let mut shell = std::process::Command::new("sh").args(["-c", &line]).spawn().unwrap();
        let end = Instant::now() + Duration::from_secs(20);
        while group.processes().unwrap().len() < 3 && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(group.processes().unwrap().len() >= 3);
        group.kill_by_signals().unwrap();
        let status = shell.wait().unwrap();
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(libc::SIGKILL));
        assert!(!group.freeze_requested().unwrap(), "what comes there next would stand still");
        assert!(top.remove().unwrap());
    }

    #[test]
    fn events_are_read_by_name() {
        let text = b"populated 1\nfrozen 0\n";
        assert_eq!(flag(text, "populated "), Some(true));
        assert_eq!(flag(text, "frozen "), Some(false));
        assert_eq!(flag(b"populated 1\n", "frozen "), None);
    }

    #[test]
    fn processor_time_is_read_by_name() {
        let text = "usage_usec 30\nuser_usec 20\nsystem_usec 10\nnice_usec 0\n";
        assert_eq!(parse_cpu_stat(text), Some(CpuUsage { user_us: 20, system_us: 10 }));
        assert_eq!(parse_cpu_stat("usage_usec 30\n"), None);
    }

    #[test]
    fn no_group_is_not_opened() {
        assert!(Cgroup::open(Path::new("/nonexistent")).unwrap_err().is_gone());
        assert!(Cgroup::open(Path::new("/proc")).is_err());
    }
}
