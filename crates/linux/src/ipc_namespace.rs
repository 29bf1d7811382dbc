//! Namespaces for System V IPC and POSIX message queues.
//!
//! The kernel does not say who made a queue or a set of semaphores, so nobody could tell whose they are
//! when their makers have ended. In a namespace of their own they need not be found: they go when the
//! last process in it has ended and the last descriptor of it is closed.

use crate::{Error, Result};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::Path;

const OWN: &str = "/proc/thread-self/ns/ipc";

/// Makes an empty one, which lasts as long as the descriptor, or a process that has entered it (see
/// [`crate::spawn::Spawn::ipc`]). The caller stays where it is.
///
/// # Errors
/// `EPERM` without privileges; what starting a thread says.
pub fn make() -> Result<OwnedFd> {
    // A thread of its own, since it can't go back without the right to enter the old one.
    let thread = std::thread::Builder::new().name("namespace".into()).stack_size(64 << 10);
    let thread = thread.spawn(|| {
        // SAFETY: takes no pointer, and changes this thread only.
        if unsafe { libc::unshare(libc::CLONE_NEWIPC) } == -1 {
            return Err(Error::last("unshare"));
        }
        File::open(OWN).map(OwnedFd::from).map_err(Error::file("open", Path::new(OWN)))
    });
    let thread = thread.map_err(Error::file("start a thread for", Path::new(OWN)))?;
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    #[test]
    fn it_is_another_each_time_and_the_caller_stays() {
        let name = |path: &str| std::fs::read_link(path).unwrap();
        let own = name(OWN);
        let (one, other) = (make().unwrap(), make().unwrap());
        let of = |fd: &OwnedFd| name(&format!("/proc/self/fd/{}", fd.as_raw_fd()));
        assert!(of(&one) != of(&other) && of(&one) != own);
        assert_eq!(name(OWN), own);
    }
}
