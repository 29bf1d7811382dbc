//! Whether an instance is there: its supervisor, its controller, or a keeper that outlived both.

use crate::instance::Instance;
use crate::trusted;
use nix::fcntl::{Flock, FlockArg, OFlag};
use std::os::fd::OwnedFd;
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
    let stream = trusted::connect(&instance.keeper_socket()).ok()?;
    if !peer_lives(&stream) {
        return None;
    }
    let pid = peer_credentials(&stream).ok()?.pid;
    Some((pid, peer_process(&stream).ok()?))
}

/// Whether tasks may run that nobody supervises, and that a controller may not know.
pub fn has_keeper(instance: &Instance) -> bool {
    keeper(instance).is_some()
}

/// Whether a part of the instance runs, or is about to be started again.
pub fn is_alive(instance: &Instance) -> bool {
    instance.answers() || is_supervised(instance) || has_keeper(instance)
}
