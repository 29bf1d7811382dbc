//! Whether an instance is there: its supervisor, its controller, or a keeper that outlived both.

use crate::instance::Instance;
use crate::state_dir;
use anyhow::Context;
use nix::fcntl::{Flock, FlockArg, OFlag};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};
use tutti_linux::file_locks;
use tutti_linux::peer::{peer_credentials, peer_lives, peer_process};

/// Whether a supervisor holds the instance.
pub fn is_supervised(instance: &Instance) -> bool {
    // In another's directory anybody may have put the lock.
    let Ok(Some(directory)) = instance.open() else { return false };
    match directory.file(&instance.lock_file(), OFlag::O_RDONLY) {
        Ok(file) => Flock::lock(file, FlockArg::LockSharedNonblock).is_err(),
        // Other users may not open the lock of the system's instance, but see that it is held.
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            directory.inode(&instance.lock_file()).is_some_and(file_locks::is_locked)
        }
        Err(_) => false,
    }
}

/// The keeper, if it lives: its number, and a descriptor of the process.
pub fn keeper(instance: &Instance) -> Option<(i32, OwnedFd)> {
    let stream = state_dir::connect(&instance.keeper_socket()).ok()?;
    if !peer_lives(&stream) {
        return None;
    }
    let pid = peer_credentials(&stream).ok()?.pid;
    Some((pid, peer_process(&stream).ok()?))
}

/// Whether a keeper lives: tasks may run without a supervisor, and unknown to a controller.
pub fn has_keeper(instance: &Instance) -> bool {
    keeper(instance).is_some()
}

/// Whether a part of the instance runs, or is about to be started again.
pub fn is_alive(instance: &Instance) -> bool {
    instance.answers() || is_supervised(instance) || has_keeper(instance)
}

/// Ends the daemons of this machine, which is one of a cluster, and its tasks.
///
/// # Errors
/// If it can't be told, or does not end.
pub fn end(instance: &Instance) -> anyhow::Result<()> {
    let Some(directory) = instance.open()? else { return Ok(()) };
    let mut text = String::new();
    if let Ok(mut lock) = directory.file(&instance.lock_file(), OFlag::O_RDONLY) {
        lock.read_to_string(&mut text)?;
    }
    if !is_supervised(instance) {
        return Ok(());
    }
    let pid: Option<i32> = text.trim().parse().ok();
    // Of others many would be meant, or the first of all.
    let pid = pid.filter(|pid| *pid > 1).context("the lock does not say which process holds it")?;
    kill(Pid::from_raw(pid), Signal::SIGTERM).context("cannot tell the supervisor to end")?;
    let patience = Instant::now() + Duration::from_secs(30);
    while is_supervised(instance) {
        anyhow::ensure!(Instant::now() < patience, "a daemon still runs; see the log");
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(())
}
