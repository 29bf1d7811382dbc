//! Finding a place in cgroup2 where groups can be made, and proving that they work there.
//!
//! Permission bits don't tell: a directory may be writable and processes still not be allowed in,
//! since that takes rights on the common ancestor too. So each candidate is tried: a group is
//! made, frozen, a process is born into it, which must not run before the group is thawed.

use super::Others;
use super::cgroup_v1::{LimitSupport, Top};
use super::probe::{self, try_out};
use super::unit::Unit;
use super::{Cgroup, CpuUsage, make_directory, subdirectories};
use crate::clock::nap;
use crate::{Error, Result};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long [`Hierarchy::remove`] waits for killed processes to end.
const REMOVE: Duration = Duration::from_secs(5);

/// The subtree of cgroup2 that belongs to us.
#[derive(Debug)]
pub struct Hierarchy {
    group: Cgroup,
}

/// A place that was tried, and why it will not do.
#[derive(Debug)]
pub struct Attempt {
    /// The group below which the subtree was to be made.
    pub candidate: PathBuf,
    /// What went wrong.
    pub reason: Error,
}

/// No group can be made anywhere; with every place that was tried, in order.
#[derive(Debug)]
pub struct NoCgroup {
    /// The places; none if cgroup2 is not mounted.
    pub tried: Vec<Attempt>,
}

impl std::fmt::Display for NoCgroup {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.tried.is_empty() {
            return f.write_str("no cgroup2 hierarchy is mounted");
        }
        f.write_str("no group of processes can be made")?;
        for Attempt { candidate, reason } in &self.tried {
            write!(f, "; below {}: {reason}", candidate.display())?;
            let mut cause = std::error::Error::source(reason);
            while let Some(error) = cause {
                write!(f, ": {error}")?;
                cause = error.source();
            }
        }
        Ok(())
    }
}

impl std::error::Error for NoCgroup {}

impl Hierarchy {
    /// Finds a place for the subtree `name` and makes it, or takes over the one that is there.
    ///
    /// Tried in this order, each proved by a trial: where one is that has groups already, the unit
    /// of a service manager that is delegated to this process ([`Unit`]), the root of cgroup2, the
    /// group of this process.
    ///
    /// # Errors
    /// [`NoCgroup`] tells for each place why not.
    pub fn find(name: &str) -> std::result::Result<Self, NoCgroup> {
        let mounts = Mounts::read().unwrap_or_default();
        let unit = Unit::own();
        let mut candidates = mounts.candidates(unit.as_ref().map(Unit::group));
        // An earlier release, or one that was started otherwise, may have left jobs in another
        // place.
        let has_groups =
            |top: &PathBuf| subdirectories(&top.join(name)).is_ok_and(|it| !it.is_empty());
        if let Some(index) = candidates.iter().position(has_groups) {
            candidates[..=index].rotate_right(1);
        }
        let mut tried = Vec::new();
        for candidate in candidates {
            match Self::make_in(&candidate, name) {
                Ok(hierarchy) => return Ok(hierarchy),
                Err(reason) => tried.push(Attempt { candidate, reason }),
            }
        }
        Err(NoCgroup { tried })
    }

    fn make_in(candidate: &Path, name: &str) -> Result<Self> {
        let path = candidate.join(name);
        let existed = path.exists();
        make_directory(&path)?;
        match Self::prove(&path, existed) {
            Ok(group) => Ok(Self { group }),
            Err(error) => {
                if !existed {
                    let _ = fs::remove_dir(&path);
                }
                Err(error)
            }
        }
    }

    fn prove(path: &Path, existed: bool) -> Result<Cgroup> {
        // One that is taken over may have its companions elsewhere.
        let top = Arc::new(if existed { Top::taken_over(path) } else { Top::here(path) });
        let group = Cgroup::open_below(path, Arc::clone(&top))?;
        probe::sweep(&group);
        let trial = group.create_child(&probe::name())?;
        let result = try_out(&trial);
        let _ = trial.request_thaw();
        let _ = trial.remove();
        result?;
        top.enable_controllers();
        top.favour_daemons();
        top.mark();
        Ok(group)
    }

    /// The subtree `name` that [`Hierarchy::find`] made earlier, wherever this process would find a
    /// place for it.
    #[must_use]
    pub fn existing(name: &str) -> Option<Self> {
        let unit = Unit::own();
        let candidates =
            Mounts::read().unwrap_or_default().candidates(unit.as_ref().map(Unit::group));
        candidates.iter().find_map(|candidate| Self::open(&candidate.join(name)).ok())
    }

    /// Opens a subtree that [`Hierarchy::find`] made earlier.
    ///
    /// # Errors
    /// As [`Cgroup::open`].
    pub fn open(root: &Path) -> io::Result<Self> {
        Ok(Self { group: Cgroup::open(root)? })
    }

    /// Where the subtree is.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.group.path()
    }

    /// The group at the top of the subtree.
    #[must_use]
    pub fn group(&self) -> &Cgroup {
        &self.group
    }

    /// Makes the group `name` directly below, or opens it if it exists.
    ///
    /// # Errors
    /// What `mkdir` and opening say.
    pub fn create(&self, name: &str) -> Result<Cgroup> {
        self.group.create_child(name)
    }

    /// The names of the groups directly below.
    ///
    /// # Errors
    /// When the directory cannot be read.
    pub fn children(&self) -> Result<Vec<String>> {
        let groups = subdirectories(self.path())?;
        let name = |path: PathBuf| Some(path.file_name()?.to_str()?.to_owned());
        Ok(groups.into_iter().filter_map(name).collect())
    }

    /// The subtrees of other instances, where they can be seen.
    #[must_use]
    pub fn others(&self) -> Option<Others> {
        Some(Others::of(self.path()))
    }

    /// Processor time used in the subtree, also by groups that have been removed.
    ///
    /// # Errors
    /// What reading `cpu.stat` says.
    pub fn cpu_usage(&self) -> Result<CpuUsage> {
        self.group.cpu_usage()
    }

    /// Which limits can be enforced on groups of the subtree.
    #[must_use]
    pub fn limits(&self) -> LimitSupport {
        self.group.top.limits()
    }

    /// Kills everything in the subtree and removes it. `false` if a process had still not ended
    /// after five seconds.
    ///
    /// # Errors
    /// What killing and removing say.
    pub fn remove(&self) -> Result<bool> {
        let end = Instant::now() + REMOVE;
        loop {
            // Again and again: a process outside may put more in.
            self.group.kill()?;
            if self.group.remove()? {
                return Ok(true);
            }
            if Instant::now() >= end {
                return Ok(false);
            }
            nap(Duration::from_millis(1));
        }
    }
}

/// One mounted hierarchy.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Mount {
    /// The group that is visible as the mount point.
    root: PathBuf,
    point: PathBuf,
    is_v2: bool,
    /// In v1: names of the controllers, among other options.
    options: Vec<String>,
}

impl Mount {
    /// Where `group`, a path of `/proc/PID/cgroup`, is to be seen.
    fn locate(&self, group: &Path) -> Option<PathBuf> {
        Some(self.point.join(group.strip_prefix(&self.root).ok()?))
    }
}

/// The mounted hierarchies and the groups of a process in them, of this one mostly.
#[derive(Debug, Default)]
pub(super) struct Mounts {
    mounts: Vec<Mount>,
    /// Controllers (none: cgroup2) and the group.
    own: Vec<(Vec<String>, PathBuf)>,
}

impl Mounts {
    pub(super) fn read() -> Result<Self> {
        Self::read_with(Path::new("/proc/self/cgroup"))
    }

    /// As this process sees the hierarchies, and the groups of process `pid`.
    pub(super) fn read_of(pid: i32) -> Result<Self> {
        Self::read_with(&PathBuf::from(format!("/proc/{pid}/cgroup")))
    }

    fn read_with(own: &Path) -> Result<Self> {
        let read = |path: &Path| fs::read_to_string(path).map_err(Error::file("read", path));
        let mounts = read(Path::new("/proc/self/mountinfo"))?;
        Ok(Self::parse(&mounts, &read(own)?))
    }

    fn parse(mountinfo: &str, own: &str) -> Self {
        Self {
            mounts: mountinfo.lines().filter_map(parse_mount).collect(),
            own: own.lines().filter_map(parse_own).collect(),
        }
    }

    /// Where this process lives in the v1 hierarchy of `controller`; the mount point if its own
    /// group lies outside of what is mounted.
    pub(super) fn own_v1(&self, controller: &str) -> Option<PathBuf> {
        let is_it = |name: &String| name == controller;
        let mount = self.mounts.iter().find(|m| !m.is_v2 && m.options.iter().any(is_it))?;
        let own = self.own.iter().find(|(names, _)| names.iter().any(is_it));
        let located = own.and_then(|(_, group)| mount.locate(group));
        Some(located.unwrap_or_else(|| mount.point.clone()))
    }

    /// The group of the process in the hierarchy in which `group` is.
    pub(super) fn group_beside(&self, group: &Path) -> Option<PathBuf> {
        let mount = self.mount_of(group)?;
        let is_it = |names: &[String]| match mount.is_v2 {
            true => names.is_empty(),
            false => names.iter().any(|name| mount.options.contains(name)),
        };
        let (_, own) = self.own.iter().find(|(names, _)| is_it(names))?;
        mount.locate(own)
    }

    /// Where the hierarchy is mounted in which `group` is.
    pub(super) fn point_of(&self, group: &Path) -> Option<PathBuf> {
        self.mount_of(group).map(|mount| mount.point.clone())
    }

    fn mount_of(&self, group: &Path) -> Option<&Mount> {
        let around = self.mounts.iter().filter(|mount| group.starts_with(&mount.point));
        around.max_by_key(|mount| mount.point.components().count())
    }

    /// The group of the process in cgroup2.
    pub(super) fn own_v2(&self) -> Option<PathBuf> {
        let own = self.own.iter().find(|(names, _)| names.is_empty());
        own.and_then(|(_, group)| self.v2()?.locate(group))
    }

    /// The groups below which a subtree may be allowed, best first; `unit` is that of a unit
    /// delegated to us.
    fn candidates(&self, unit: Option<&Path>) -> Vec<PathBuf> {
        let Some(mount) = self.v2() else { return Vec::new() };
        let mut found: Vec<PathBuf> = unit.map(Path::to_owned).into_iter().collect();
        // What is below the unit is there for its sake, and takes no subtree of its own.
        let own = self.own_v2().filter(|own| unit.is_none_or(|unit| !own.starts_with(unit)));
        for place in [mount.point.clone()].into_iter().chain(own) {
            if !found.contains(&place) {
                found.push(place);
            }
        }
        found
    }

    /// Where the v1 hierarchy of `controller` is mounted: its root group, unless this is a
    /// container.
    fn point_v1(&self, controller: &str) -> Option<&Path> {
        let is_it =
            |mount: &&Mount| !mount.is_v2 && mount.options.iter().any(|it| it == controller);
        self.mounts.iter().find(is_it).map(|mount| mount.point.as_path())
    }

    pub(super) fn points(&self) -> Vec<PathBuf> {
        self.mounts.iter().map(|mount| mount.point.clone()).collect()
    }

    fn v2(&self) -> Option<&Mount> {
        let at = |point: &str| self.mounts.iter().find(|m| m.is_v2 && m.point == Path::new(point));
        at("/sys/fs/cgroup")
            .or_else(|| at("/sys/fs/cgroup/unified"))
            .or_else(|| self.mounts.iter().find(|m| m.is_v2))
    }
}

/// Moves the calling thread, and no other, to the root group of the v1 `cpu` controller, where that
/// is mounted and may be written.
pub(crate) fn leave_cpu_group() {
    move_to_cpu_root(&Mounts::read().unwrap_or_default());
}

fn move_to_cpu_root(mounts: &Mounts) {
    if let Some(root) = mounts.point_v1("cpu") {
        // `tasks` takes threads, and 0 is the calling one. A thread without the right to move stays
        // where it is.
        let _ = fs::write(root.join("tasks"), "0");
    }
}

/// A line of `/proc/self/mountinfo`: `id parent dev root point options [tags] - type source more`.
fn parse_mount(line: &str) -> Option<Mount> {
    let (left, right) = line.split_once(" - ")?;
    let mut left = left.split(' ').skip(3);
    let (root, point) = (left.next()?, left.next()?);
    let mut right = right.split(' ');
    let is_v2 = match right.next()? {
        "cgroup2" => true,
        "cgroup" => false,
        _ => return None,
    };
    let options = right.nth(1)?.split(',').map(str::to_owned).collect();
    Some(Mount { root: unescape(root), point: unescape(point), is_v2, options })
}

/// Space, tab, newline and backslash are written as three octal digits.
fn unescape(text: &str) -> PathBuf {
    let replaced = text.replace("\\040", " ").replace("\\011", "\t").replace("\\012", "\n");
    PathBuf::from(replaced.replace("\\134", "\\"))
}

/// A line of `/proc/PID/cgroup`: `number:controllers:group`.
fn parse_own(line: &str) -> Option<(Vec<String>, PathBuf)> {
    let (_, rest) = line.split_once(':')?;
    let (controllers, group) = rest.split_once(':')?;
    let controllers = controllers.split(',').filter(|name| !name.is_empty());
    Some((controllers.map(str::to_owned).collect(), PathBuf::from(group)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HYBRID: &str = "\
22 1 0:20 / /proc rw - proc proc rw
35 31 0:32 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory
39 31 0:36 / /sys/fs/cgroup/pids rw,relatime - cgroup cgroup rw,pids
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
";

    #[test]
    fn a_thread_moves_to_the_root_of_the_v1_cpu_controller_alone() {
        let place = std::env::temp_dir().join(format!("tutti-cpu-root-{}", std::process::id()));
        for (line, moves) in [
            ("- cgroup cgroup rw,cpu,cpuacct", true),
            ("- cgroup cgroup rw,cpuset", false),
            ("- cgroup2 cgroup2 rw", false),
        ] {
            fs::create_dir(&place).unwrap();
            fs::write(place.join("tasks"), "").unwrap();
            let mount = format!("30 23 0:26 / {} rw {line}\n", place.display());
            move_to_cpu_root(&Mounts::parse(&mount, ""));
            let written = fs::read_to_string(place.join("tasks")).unwrap();
            fs::remove_dir_all(&place).unwrap();
            assert_eq!(written, if moves { "0" } else { "" }, "{line}");
        }
    }

    /// On machines with that controller; others have no such group to leave.
    #[test]
    fn a_thread_that_becomes_real_time_leaves_its_cpu_group_and_others_stay() {
        let mounts = Mounts::read().unwrap();
        let Some(root) = mounts.point_v1("cpu") else { return };
        let group = root.join(format!("tutti-cpu-group-{}", std::process::id()));
        // Without the right to make a group there is none to leave either.
        if fs::create_dir(&group).is_err() {
            return;
        }
        let own = || {
            let groups = fs::read_to_string("/proc/thread-self/cgroup").unwrap();
            let of_cpu = groups
                .lines()
                .filter_map(parse_own)
                .find(|(controllers, _)| controllers.iter().any(|controller| controller == "cpu"));
            of_cpu.map(|(_, group)| group).unwrap()
        };
        let [moved, stays] = [true, false].map(|leaves| {
            let tasks = group.join("tasks");
            let thread = std::thread::spawn(move || {
                fs::write(tasks, "0").unwrap();
                let before = own();
                if leaves {
                    let _ = crate::rt::become_highest();
                }
                (before, own())
            });
            thread.join().unwrap()
        });
        // The group is empty once its last thread is gone, a moment later.
        for _ in 0..1000 {
            if fs::remove_dir(&group).is_ok() {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        assert!(moved.0.ends_with(group.file_name().unwrap()), "{moved:?}");
        assert_eq!((&moved.1, &stays.0), (&PathBuf::from("/"), &stays.1));
        assert_eq!(stays.0, moved.0);
    }

    #[test]
    fn the_hybrid_layout() {
        let mounts = Mounts::parse(HYBRID, "8:pids:/\n4:memory:/a/b\n0::/own\n");
        let root = PathBuf::from("/sys/fs/cgroup/unified");
        assert_eq!(mounts.candidates(None), [root.clone(), root.join("own")]);
        assert_eq!(mounts.own_v1("memory"), Some("/sys/fs/cgroup/memory/a/b".into()));
        assert_eq!(mounts.own_v1("pids"), Some("/sys/fs/cgroup/pids".into()));
        assert_eq!(mounts.own_v1("cpuset"), None);
    }

    #[test]
    fn the_unified_layout_with_a_delegated_unit() {
        let own = "/user.slice/user-7.slice/user@7.service/app.slice/tutti-1.scope/daemons";
        let mounts = Mounts::parse(
            "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n",
            &format!("0::{own}\n"),
        );
        let at = |path: &str| PathBuf::from(format!("/sys/fs/cgroup{path}"));
        let unit = at(own.trim_end_matches("/daemons"));
        assert_eq!(mounts.candidates(Some(&unit)), [unit, at("")]);
        assert_eq!(
            mounts.candidates(None),
            [at(""), at(own)],
            "the manager's own groups are never touched"
        );
    }

    #[test]
    fn a_container_sees_a_part() {
        let mounts = Mounts::parse(
            "30 23 0:26 /docker/1 /mnt/a\\040b rw - cgroup2 cgroup2 rw\n",
            "0::/docker/1/sub\n",
        );
        assert_eq!(mounts.candidates(None), ["/mnt/a b", "/mnt/a b/sub"].map(PathBuf::from));
        let outside = Mounts::parse("30 23 0:26 /x /m rw - cgroup2 cgroup2 rw\n", "0::/y\n");
        assert_eq!(outside.candidates(None), [PathBuf::from("/m")]);
    }

    #[test]
    fn no_cgroup2_no_candidate() {
        let mounts = Mounts::parse("garbage\n1 2 - x\n", "garbage\n");
        assert!(mounts.candidates(None).is_empty());
        let none = NoCgroup { tried: Vec::new() };
        assert_eq!(none.to_string(), "no cgroup2 hierarchy is mounted");
    }

    #[test]
    fn the_refusal_tells_why() {
        let source = io::Error::from_raw_os_error(libc::EACCES);
        let path = PathBuf::from("/g/x");
        let reason = Error::File { operation: "make group", path, source };
        let none = NoCgroup { tried: vec![Attempt { candidate: "/g".into(), reason }] };
        let expected = "no group of processes can be made; below /g: cannot make group /g/x: \
                        Permission denied (os error 13)";
        assert_eq!(none.to_string(), expected);
    }
}
