//! What a supervisor that was killed has left: daemons that live on. And daemons whose directory
//! was removed.
//!
//! The keeper holds the tasks, so it stays as it is. Controller and agent are made to be killed,
//! and learn what they must know from the journal and from the keeper: they begin anew, as children
//! of the supervisor that comes after.

use super::ROLES;
use super::process::Process;
use nix::unistd::geteuid;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use tracing::info;
use tutti_linux::proc;
use tutti_node::instance::Instance;
use tutti_node::{pidlock, presence};

/// The keeper, if it lives.
pub(super) fn keeper(instance: &Instance) -> Option<Process> {
    presence::keeper(instance).map(|(pid, process)| Process::held(pid, process))
}

/// Ends the daemon of this role, if it lives.
///
/// # Errors
/// What the kernel says.
pub(super) fn end(instance: &Instance, role: &str) -> anyhow::Result<()> {
    while let Some(pid) = pidlock::holder(instance, role)? {
        let process = Process::resume(pid);
        // Still the same: the number was not another's when it was taken hold of.
        if pidlock::holder(instance, role)? == Some(pid) {
            info!("the {role} that was here before, process {pid}, is followed by another");
            process.end();
        }
    }
    Ok(())
}

/// A daemon of an instance that lives on though its directory, where it would be found, was
/// removed.
pub(super) fn without_directory(instance: &Instance) -> Option<i32> {
    let uid = geteuid().as_raw();
    let reached = keeper(instance).map(|keeper| keeper.pid());
    let roles = ROLES.into_iter().filter_map(|role| pidlock::holder(instance, role).ok()?);
    let known: Vec<i32> = roles.chain(reached).collect();
    // Until its program runs, a child of the keeper looks like the keeper. It may be suspended.
    let is_child = |pid: i32| proc::ancestors(pid).iter().any(|it| known.contains(it));
    let is_meant = |pid: &i32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let words: Vec<&[u8]> = line.split(|byte| *byte == 0).skip(1).collect();
        let [role, b"--directory", directory, ..] = words[..] else { return false };
        ROLES.iter().any(|known| known.as_bytes() == role)
            && directory == instance.directory().as_os_str().as_bytes()
            && proc::user_ids(*pid).is_ok_and(|[_, effective, ..]| effective == uid)
            && sees_the_same_files(*pid)
    };
    proc::all().into_iter().find(|pid| !known.contains(pid) && is_meant(pid) && !is_child(*pid))
}

/// The supervisor of a daemon, if it lives.
pub(super) fn supervisor_of(daemon: i32) -> Option<i32> {
    let program = |pid: i32| fs::read_link(format!("/proc/{pid}/exe")).ok();
    let parent = proc::ancestors(daemon).first().copied()?;
    (parent > 1 && program(parent) == program(daemon)).then_some(parent)
}

/// Whether a path means the same to it as to us.
fn sees_the_same_files(pid: i32) -> bool {
    let seen_by = |pid: &str| {
        let mounts = fs::read_link(format!("/proc/{pid}/ns/mnt")).ok()?;
        let root = fs::metadata(format!("/proc/{pid}/root")).ok()?;
        Some((mounts, root.dev(), root.ino()))
    };
    let ours = seen_by("self");
    ours.is_some() && seen_by(&pid.to_string()) == ours
}
