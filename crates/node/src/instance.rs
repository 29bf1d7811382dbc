//! Where an instance lives: its state directory, its sockets, and how a verb finds them.
//!
//! A system instance (started by root's `tutti up`) lives in `/run/tutti` and serves every user. A
//! private instance lives in a directory that only its owner may enter and serves its owner. A verb
//! looks at `TUTTI_DIR` first, then for a system instance, then for the user's own.
//! `TUTTI_CLUSTER` keeps several instances apart.

use crate::codes::coded;
use crate::executable::runs;
use crate::layout::{self, is_of_a_job};
use crate::released;
use crate::state_dir::{self, Directory, open_to_others};
use anyhow::Context;
use nix::unistd::{Pid, getppid};
use std::fs::{self, DirBuilder, Permissions};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use tutti_journal::SqliteStore;
use tutti_linux::proc::{self, ProcessStat};
use tutti_secure::Name;
use tutti_types::JobId;
use tutti_types::digest::Digest;
use tutti_wire::code::Code;

/// An instance's place on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instance {
    directory: PathBuf,
    /// Whether only its owner may use it.
    pub private: bool,
}

/// Whether a user may do everything with an instance of that owner: the daemons are the user's, or
/// the user is root.
pub fn may_run_instance(uid: u32, owner: u32) -> bool {
    uid == 0 || uid == owner
}

impl Instance {
    /// The instance at this directory; a system instance is one in `/run`.
    pub fn at(directory: PathBuf) -> Self {
        let name = directory.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let named = name == "tutti" || name.starts_with("tutti-");
        let private = !(named && directory.parent() == Some(Path::new("/run")));
        Self { directory, private }
    }

    /// The instance that a verb of this user means: the one that answers, or, if none does, the
    /// user's own that may be started.
    pub fn locate() -> Self {
        if let Some(directory) = said_directory() {
            return Self::at(directory);
        }
        let system = Self::at(system_directory());
        // A socket that does not answer for a moment is that of a controller that is being started
        // again: a private instance would share the processors with it.
        let is_there = system.controller_socket().exists();
        if is_there { system } else { Self::at(private_directory()) }
    }

    /// Another instance of this user's or of the system that runs beside this one.
    pub fn beside(&self) -> Option<Self> {
        [system_directory(), private_directory()]
            .into_iter()
            .map(Self::at)
            .find(|other| other != self && matches!(other.open(), Ok(Some(_))) && other.answers())
    }

    /// The user's own instance, if verbs do not find it because the system's is found first.
    pub fn hidden(&self) -> Option<Self> {
        if said_directory().is_some() || self.private {
            return None;
        }
        self.beside().filter(|other| other.private)
    }

    /// How to reach an instance that verbs do not find by themselves.
    pub fn hidden_note(&self) -> String {
        let directory = self.directory.display();
        format!(
            "a private instance of yours runs as well, in {directory}; `TUTTI_DIR={directory} tutti ps` shows its jobs"
        )
    }

    /// The instance that `tutti up` starts: the system's for root, the user's own otherwise.
    pub fn to_start() -> Self {
        if let Some(directory) = said_directory() {
            return Self::at(directory);
        }
        let root = nix::unistd::geteuid().is_root();
        Self::at(if root { system_directory() } else { private_directory() })
    }

    /// What is in the state directory, if there is one: code that opens, writes or removes
    /// something there goes through this.
    ///
    /// # Errors
    /// If others could have put it there: [`state_dir::NotOurs`], or with what else is wrong.
    pub fn open(&self) -> anyhow::Result<Option<Directory>> {
        Directory::open(&self.directory)
    }

    /// Whether this user may do more with it than to ask its controller.
    ///
    /// # Errors
    /// [`state_dir::NotOurs`] of a private instance that is another's, root's included; or as for
    /// [`Self::open`].
    pub fn check_owner(&self) -> anyhow::Result<()> {
        match self.open()? {
            Some(directory) if self.private && !directory.is_own() => Err(directory.not_ours()),
            _ => Ok(()),
        }
    }

    /// The state directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Where clients and agents reach the controller.
    pub fn controller_socket(&self) -> PathBuf {
        self.directory.join("controller.sock")
    }

    /// Where the agent and front ends reach the keeper.
    pub fn keeper_socket(&self) -> PathBuf {
        self.directory.join("keeper.sock")
    }

    /// Where clients here find the way to other nodes, at the agent.
    pub fn gate_socket(&self) -> PathBuf {
        self.directory.join("gate.sock")
    }

    /// Whether this is a client machine of a cluster, as far as any user can see: front ends find
    /// the way to nodes here, and no keeper.
    pub fn is_client(&self) -> bool {
        self.gate_socket().exists() && !self.keeper_socket().exists()
    }

    /// Where processes of jobs register for notice before their slots end, at the agent.
    pub fn vacate_socket(&self) -> PathBuf {
        layout::vacate_socket(&self.directory)
    }

    /// What outlives the instance. The state directory of the system's is gone after a restart of
    /// the machine.
    fn lasting_directory(&self) -> PathBuf {
        match self.directory.file_name().filter(|_| !self.private) {
            Some(name) => Path::new("/var/lib").join(name),
            None => self.directory.clone(),
        }
    }

    /// What the machine is in a cluster: it is all gone when the machine leaves that.
    pub fn cluster_directory(&self) -> PathBuf {
        self.lasting_directory().join("cluster")
    }

    /// Where the keeper puts images of jobs' processes; the directory is made with the first.
    pub fn images(&self) -> PathBuf {
        self.lasting_directory().join("images")
    }

    /// Where the daemons find which directory of images nodes share, if there is one: see
    /// [`shared_images`](crate::shared_images).
    pub fn shared_images_file(&self) -> PathBuf {
        self.directory.join("shared-images")
    }

    /// The controller's journal. Like what the machine is in a cluster, that of the system's
    /// instance outlives it.
    ///
    /// # Errors
    /// If its directory can't be made.
    pub fn make_journal_place(&self) -> anyhow::Result<PathBuf> {
        let path = self.journal_path();
        if let Some(directory) = path.parent().filter(|directory| !directory.exists()) {
            DirBuilder::new().mode(0o755).recursive(true).create(directory).with_context(|| {
                format!("cannot make {directory:?}, where the journal of the instance belongs")
            })?;
        }
        Ok(path)
    }

    /// The journal, whether it is there or not.
    pub fn journal_path(&self) -> PathBuf {
        self.lasting_directory().join("journal.db")
    }

    /// Where it is written which notifications of the journal's events were delivered.
    pub fn notified_file(&self) -> PathBuf {
        self.lasting_directory().join("notified")
    }

    /// Where it is written up to which number jobs are released: see [`Instance::released`].
    pub fn released_file(&self) -> PathBuf {
        self.lasting_directory().join("released")
    }

    /// The last job that is released, if any is: the instance was started without its former state
    /// since, and what still runs of such jobs is external load, which no daemon ends.
    pub fn released(&self) -> JobId {
        released::read(&self.released_file())
    }

    /// The journal of a former state has one of these names: the first that is free.
    pub fn former_journal(&self) -> PathBuf {
        let named = |number: u32| self.journal_path().with_file_name(format!("former-{number}.db"));
        (1..).map(named).find(|path| !path.exists()).unwrap_or_else(|| named(0))
    }

    /// Whether the journal stays when the instance ends: the system's, and the one that a user has
    /// without naming a directory. One in a directory that its user has named leaves nothing there.
    pub fn keeps_journal(&self) -> bool {
        !self.private || self.directory == private_directory()
    }

    /// The journal, if there is one in a directory that others can't write.
    pub fn left_journal(&self) -> Option<PathBuf> {
        let journal = self.journal_path();
        let directory = journal.parent().map(Directory::open);
        let is_ours = matches!(directory, Some(Ok(Some(_))));
        (is_ours && journal.exists()).then_some(journal)
    }

    /// How many jobs the instance that was here last has left; none where that can't be read.
    pub fn jobs_left(&self) -> u64 {
        let Some(journal) = self.left_journal() else { return 0 };
        let left = SqliteStore::open_to_read(&journal).and_then(|journal| journal.unfinished());
        left.unwrap_or(0)
    }

    /// Where a verb of this user looks for an instance, or would start one.
    pub fn of_this_user() -> Vec<Self> {
        let mut places = vec![Self::locate(), Self::to_start()];
        places.dedup();
        places
    }

    /// Of the places where a verb of this user looks for an instance: where one that is gone has
    /// left jobs, and how many.
    pub fn with_jobs_left() -> Option<(Self, u64)> {
        let left = Self::of_this_user().into_iter().map(|place| {
            let jobs = place.jobs_left();
            (place, jobs)
        });
        left.filter(|(_, jobs)| *jobs > 0).find(|(place, _)| !place.answers())
    }

    /// What starts an instance here, for this user to type.
    pub fn up_command(&self) -> String {
        match *self == Self::to_start() {
            true => "tutti up".into(),
            false => format!("TUTTI_DIR={} tutti up", self.directory.display()),
        }
    }

    /// Forgets what was queued, set and recorded; no process may write the journal any more.
    pub fn remove_journal(&self) {
        let journal = self.journal_path();
        let Some(Ok(Some(directory))) = journal.parent().map(Directory::open) else { return };
        for suffix in ["", "-wal", "-shm", "-lock"] {
            let mut file = journal.clone().into_os_string();
            file.push(suffix);
            directory.remove(Path::new(&file));
        }
        directory.remove(&self.clock_gap_file());
        directory.remove(&self.reach_file());
        directory.remove(&self.notified_file());
        directory.remove(&self.notified_file().with_extension("next"));
    }

    /// Where it is written how many jobs a private instance has had, for one whose journal was
    /// removed: output files have the numbers of their jobs, and must not be written over.
    pub fn count_file(&self) -> Option<PathBuf> {
        let is_kept = self.private && self.keeps_journal();
        is_kept.then(|| self.directory.join("jobs-made"))
    }

    /// Where the keeper puts scripts of jobs.
    pub fn spool(&self) -> PathBuf {
        self.directory.join("jobs")
    }

    /// How the names of its jobs' directories for temporary files begin.
    pub fn scratch(&self) -> PathBuf {
        std::env::temp_dir().join(self.cgroup_name())
    }

    /// Where the supervisor is told to upgrade to another executable.
    pub fn supervisor_socket(&self) -> PathBuf {
        self.directory.join("supervisor.sock")
    }

    /// How far cluster time is ahead of this machine's clock.
    pub fn clock_file(&self) -> PathBuf {
        self.directory.join("clock")
    }

    /// The same, while the journal lacks something that was done.
    pub fn clock_gap_file(&self) -> PathBuf {
        self.directory.join("clock.gap")
    }

    /// What is to become either of the two; one that a controller leaves which is killed then means
    /// nothing.
    pub fn clock_next_file(&self) -> PathBuf {
        self.directory.join("clock.next")
    }

    /// How far the journal goes, as the controller knows since this start of the machine.
    pub fn reach_file(&self) -> PathBuf {
        self.directory.join("reach")
    }

    /// Held by the supervisor while the instance lives.
    pub fn lock_file(&self) -> PathBuf {
        self.directory.join("lock")
    }

    /// Held by the daemon of this kind while it runs.
    pub fn role_file(&self, role: &str) -> PathBuf {
        self.directory.join(format!("{role}.lock"))
    }

    /// What the daemons have to say.
    pub fn log_file(&self) -> PathBuf {
        self.directory.join("log")
    }

    /// The name of its cgroup subtree: readable, and different for every directory.
    pub fn cgroup_name(&self) -> String {
        self.cgroup_name_for(nix::unistd::geteuid().as_raw())
    }

    /// The same where the instance is this user's.
    pub fn cgroup_name_for(&self, uid: u32) -> String {
        let path = self.directory.as_os_str().as_encoded_bytes();
        format!("tutti-{uid}-{:08x}", Digest::of(path) >> 32)
    }

    /// Whether a controller takes connections there.
    pub fn answers(&self) -> bool {
        state_dir::listens(&self.controller_socket())
    }

    /// Makes the state directory, or checks that one which exists is ours alone to write: in a
    /// directory like `/tmp` anybody could have made it before us.
    pub fn prepare(&self) -> anyhow::Result<()> {
        let mode = if self.private { 0o700 } else { 0o755 };
        let path = &self.directory;
        if let Some(parent) = path.parent()
            && !parent.exists()
        {
            fs::create_dir_all(parent).with_context(|| format!("cannot make {parent:?}"))?;
        }
        match DirBuilder::new().mode(mode).create(path) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                let directory = self.open()?.ok_or_else(|| open_to_others(path))?;
                if !directory.is_own() {
                    return Err(directory.not_ours());
                }
            }
            Err(error) => {
                return Err(error).with_context(|| {
                    format!("cannot make the state directory {path:?}; set TUTTI_DIR to another")
                });
            }
        }
        fs::create_dir_all(self.spool())?;
        // Tasks of other users must get through to their own job's directory.
        fs::set_permissions(self.spool(), Permissions::from_mode(0o711))?;
        Ok(())
    }
}

/// Whether a process is in the cgroup of a job, of whatever instance.
pub fn is_in_a_job(pid: i32) -> bool {
    let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    let own = groups.lines().find_map(|line| line.strip_prefix("0::")).unwrap_or_default();
    let parts: Vec<&str> = own.split('/').collect();
    parts.windows(2).any(|two| two[0].starts_with("tutti-") && is_of_a_job(two[1]))
}

/// Whether a process is the first one, or a thread of the kernel: no job's.
pub fn is_of_the_system(pid: i32) -> bool {
    // The second process is not the kernel's in a pid namespace.
    pid <= 1 || ProcessStat::read(pid).is_ok_and(|stat| stat.is_of_the_kernel())
}

/// The process that has started this daemon.
static SUPERVISOR: LazyLock<i32> = LazyLock::new(|| getppid().as_raw());

/// The same. The first call is made at the start of a daemon, while its supervisor is there.
pub fn supervisor() -> Pid {
    Pid::from_raw(*SUPERVISOR)
}

/// Whether a process is one of the daemons of the instance that this one is a daemon of, or has
/// started them, or descends from one.
///
/// When the supervisor has ended, the daemons are children of a process that has many others: they
/// are known by their program then.
pub fn is_of_this_instance(pid: i32) -> bool {
    let mut line = proc::ancestors(pid);
    line.push(pid);
    line.retain(|&it| it > 1);
    let is_supervised = getppid().as_raw() == *SUPERVISOR && *SUPERVISOR > 1;
    let is_daemon = |&it: &i32| match is_supervised {
        true => it == *SUPERVISOR,
        false => runs(Path::new(&format!("/proc/{it}/exe"))),
    };
    proc::ancestors(std::process::id().cast_signed()).contains(&pid) || line.iter().any(is_daemon)
}

/// Where instances may be: those that verbs look for, and whatever else is named like one.
pub fn places() -> Vec<PathBuf> {
    let mut places = vec![Instance::locate().directory, system_directory(), private_directory()];
    let mut parents: Vec<PathBuf> = vec!["/run".into(), LASTING.into(), std::env::temp_dir()];
    parents.dedup();
    for parent in parents {
        let entries = fs::read_dir(parent).into_iter().flatten().flatten();
        let named = entries.filter(|entry| {
            let name = entry.file_name();
            name == "tutti" || name.to_string_lossy().starts_with("tutti-")
        });
        places.extend(named.map(|entry| entry.path()));
    }
    places.sort();
    places.dedup();
    places
}

/// What this machine is called.
pub fn host_name() -> String {
    nix::unistd::gethostname().unwrap_or_default().to_string_lossy().into_owned()
}

/// The place that this user has named.
pub fn said_directory() -> Option<PathBuf> {
    let said = std::env::var_os("TUTTI_DIR").filter(|said| !said.is_empty())?;
    Some(absolute(said.into()))
}

fn absolute(path: PathBuf) -> PathBuf {
    std::path::absolute(&path).unwrap_or(path)
}

/// Which of several instances is meant. Empty is none: so a shell takes a variable back for one
/// command.
///
/// # Errors
/// If it is set to what is no name: another instance than was meant must not be taken for it.
pub fn said_cluster() -> anyhow::Result<Option<Name>> {
    let Some(said) = std::env::var_os("TUTTI_CLUSTER").filter(|said| !said.is_empty()) else {
        return Ok(None);
    };
    let name = said.to_str().filter(|said| said.len() <= CLUSTER_BYTES_MAX);
    let name = name.and_then(|said| Name::new(said).ok());
    name.map(Some).ok_or_else(|| {
        let reason = format!(
            "TUTTI_CLUSTER is {said:?}, an invalid name of a cluster: a name begins with a letter or digit, goes on \
             with letters, digits, '-', '.' and '_', and has at most {CLUSTER_BYTES_MAX} of them"
        );
        coded(Code::BadValue, reason)
    })
}

fn with_cluster(name: &str) -> String {
    match said_cluster() {
        Ok(Some(cluster)) => format!("{name}-{cluster}"),
        // What is no name was refused before any verb began.
        Ok(None) | Err(_) => name.to_owned(),
    }
}

fn system_directory() -> PathBuf {
    Path::new("/run").join(with_cluster("tutti"))
}

/// Jobs go on when their user logs out, and cron's find the same instance: so it is not where the
/// user's session manager puts what goes with the session, nor does it depend on what the
/// environment says.
fn private_directory() -> PathBuf {
    let lasting = Path::new(LASTING);
    let parent = if lasting.is_dir() { lasting.to_owned() } else { std::env::temp_dir() };
    parent.join(with_cluster(&format!("tutti-{}", nix::unistd::geteuid())))
}

/// The longest name in `TUTTI_CLUSTER`: sockets are in a directory of that name, and the kernel
/// knows none whose path has more than 107 bytes.
const CLUSTER_BYTES_MAX: usize = 40;

/// Files there are on this machine, and outlive its restart.
const LASTING: &str = "/var/tmp";

#[cfg(test)]
mod tests {
    use super::{Instance, is_of_the_system};

    #[test]
    fn the_first_process_is_the_systems_and_ours_is_not() {
        assert!(is_of_the_system(1));
        assert!(!is_of_the_system(std::process::id().cast_signed()));
        assert!(!is_of_the_system(i32::MAX));
    }

    #[test]
    fn every_directory_has_a_cgroup_of_its_own() {
        let one = Instance::at("/tmp/a".into());
        let other = Instance::at("/tmp/b".into());
        assert_ne!(one.cgroup_name(), other.cgroup_name());
        assert!(one.private && Instance::at("/run/user/1000/tutti".into()).private);
        for system in ["/run/tutti", "/run/tutti-lab"] {
            assert!(!Instance::at(system.into()).private, "{system}");
        }
    }
}
