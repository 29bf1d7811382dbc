//! How much of the controller's machine a delivery may take: processes, memory, and what it says.
//!
//! Each has a group of its own beside the groups of jobs, with limits, which is also how all that
//! it has started is ended. Where no group can be made, or none with limits, its processes are
//! limited one by one (`man getrlimit`).

use super::place::Key;
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::{self, Seek, SeekFrom, Write};
use std::path::PathBuf;
use tracing::debug;
use tutti_linux::cgroup::{Cgroup, Hierarchy};
use tutti_linux::proc::{self, ProcessStat};
use tutti_node::layout;

/// Processes and threads of a delivery at once, those included that have ended and that their
/// parents have not reaped.
const PROCESSES_MAX: u64 = 64;

/// Memory of a delivery, files in memory and cached files included.
const MEMORY_BYTES: u64 = 256 << 20;

/// The length of a file of a delivery where only its processes are limited: files in memory do not
/// count as a process's memory.
const FILE_BYTES_MAX: u64 = 1 << 30;

/// The most that a delivery says of itself.
const SAID_BYTES_MAX: u64 = 4 << 10;

/// What a delivery does with itself before it becomes its user.
#[derive(Serialize, Deserialize)]
pub(super) struct Entrance {
    /// Files into which it writes itself.
    files: Vec<PathBuf>,
    /// Whether limits hold for it then.
    has_limits: bool,
}

/// The groups of deliveries.
#[derive(Default)]
pub(super) struct Groups {
    /// The name of the instance's subtree.
    subtree: String,
    /// Those of deliveries that have ended, until they are removed.
    ended: Vec<Cgroup>,
}

impl Groups {
    /// Those in the subtree of this name. Ends what an earlier notifier has left there.
    pub(super) fn new(subtree: String) -> Self {
        let mut ended = Vec::new();
        if let Some(hierarchy) = Hierarchy::existing(&subtree) {
            let mut names = hierarchy.children().unwrap_or_default();
            names.retain(|name| layout::is_of_a_notification(name));
            ended.extend(names.iter().filter_map(|name| hierarchy.create(name).ok()));
        }
        let mut groups = Self { subtree, ended };
        groups.remove();
        groups
    }

    /// Makes the group of a delivery; `None` where none can be made.
    pub(super) fn make(&self, (event, way): Key) -> (Option<Cgroup>, Entrance) {
        let without = || (None, Entrance { files: Vec::new(), has_limits: false });
        // Looked for each time: the agent makes it, perhaps later.
        let has_place = !self.subtree.is_empty();
        let hierarchy = has_place.then(|| Hierarchy::existing(&self.subtree)).flatten();
        let Some(hierarchy) = hierarchy else { return without() };
        let group = match hierarchy.create(&layout::group_of_notification(event, way)) {
            Ok(group) => group,
            Err(error) => {
                debug!("no group for a notification: {error}");
                return without();
            }
        };
        let limited =
            [group.set_process_limit(PROCESSES_MAX), group.set_memory_limit(MEMORY_BYTES)];
        let has_limits = limited.iter().all(Result::is_ok);
        for error in limited.into_iter().filter_map(Result::err) {
            debug!("a notification without one of its limits: {error}");
        }
        let mut files = group.companions();
        files.push(group.path().join("cgroup.procs"));
        (Some(group), Entrance { files, has_limits })
    }

    /// Ends all that is in the group of a delivery that is over.
    pub(super) fn end(&mut self, group: Cgroup) {
        self.ended.push(group);
    }

    /// Removes those in which nothing runs any more.
    pub(super) fn remove(&mut self) {
        self.ended.retain(|group| {
            let _ = group.kill();
            matches!(group.remove(), Ok(false))
        });
    }

    /// Whether some are to be removed yet.
    pub(super) fn has_ended(&self) -> bool {
        !self.ended.is_empty()
    }
}

impl Entrance {
    /// Puts this process under its limits; `uid`: of the user that it will be.
    ///
    /// # Errors
    /// If it can't be limited at all.
    pub(super) fn enter(&self, uid: u32) -> io::Result<()> {
        // It is as protected as the daemon that has started it, and as urgent.
        let _ = tutti_linux::oom_score::expose_to_user();
        if tutti_linux::rt::nice() < 0 {
            let _ = tutti_linux::rt::set_nice(0);
        }
        let is_in = self.files.iter().all(|file| fs::write(file, "0").is_ok());
        if is_in && self.has_limits {
            return Ok(());
        }
        let processes = threads_of(uid).saturating_add(PROCESSES_MAX);
        for (resource, most) in [
            (Resource::RLIMIT_NPROC, processes),
            (Resource::RLIMIT_DATA, MEMORY_BYTES),
            (Resource::RLIMIT_FSIZE, FILE_BYTES_MAX),
        ] {
            let most = most.min(getrlimit(resource)?.1);
            setrlimit(resource, most, most)?;
        }
        Ok(())
    }
}

/// How many threads a user's processes have: the kernel counts all of them.
fn threads_of(uid: u32) -> u64 {
    let is_its = |pid: &i32| proc::user_ids(*pid).is_ok_and(|ids| ids[0] == uid);
    let all = proc::all().into_iter().filter(is_its);
    all.filter_map(|pid| ProcessStat::read(pid).ok()).map(|stat| u64::from(stat.threads)).sum()
}

/// A file without a name that can't grow, for what a delivery says.
pub(super) fn for_words() -> io::Result<File> {
    let file = unnamed()?;
    file.set_len(SAID_BYTES_MAX)?;
    seal(&file, SealFlag::empty())?;
    Ok(file)
}

/// A file without a name that has this, and that can't be changed.
pub(super) fn with_text(text: &[u8]) -> io::Result<File> {
    let mut file = unnamed()?;
    file.write_all(text)?;
    file.seek(SeekFrom::Start(0))?;
    seal(&file, SealFlag::F_SEAL_WRITE)?;
    Ok(file)
}

fn unnamed() -> io::Result<File> {
    let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
    Ok(File::from(memfd_create(c"tutti-notification", flags)?))
}

fn seal(file: &File, more: SealFlag) -> io::Result<()> {
    let length = SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_SEAL;
    fcntl(file, FcntlArg::F_ADD_SEALS(length | more))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn what_a_delivery_says_has_a_bound() {
        let mut file = for_words().unwrap();
        let all = [b'x'; 4 << 10];
        file.write_all(&all).unwrap();
        assert!(file.write_all(b"x").is_err(), "it can't grow");
        assert!(file.set_len(1 << 20).is_err() && file.set_len(0).is_err());
        let mut read = Vec::new();
        file.seek(SeekFrom::Start(0)).unwrap();
        file.read_to_end(&mut read).unwrap();
        assert_eq!(read, all, "and is as long as it may be");
    }

    #[test]
    fn an_order_cannot_be_changed() {
        let mut file = with_text(b"order").unwrap();
        let mut text = String::new();
        file.read_to_string(&mut text).unwrap();
        assert_eq!(text, "order");
        assert!(file.write_all(b"x").is_err() && file.set_len(0).is_err());
    }

    #[test]
    fn threads_of_a_user_are_counted() {
        let own = nix::unistd::getuid().as_raw();
        assert!(threads_of(own) >= 1);
        assert_eq!(threads_of(u32::MAX - 7), 0);
    }
}
