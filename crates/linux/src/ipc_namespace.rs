//! Namespaces for System V IPC and POSIX message queues.
//!
//! The kernel does not say which process made a queue or a set of semaphores, so their job would be
//! unknown when their makers have ended. In a namespace of their own they need not be found: they
//! go when the last process in it has ended and the last descriptor of it is closed.

use crate::rt::set_nice;
use crate::{Error, Result};
use nix::errno::Errno;
use nix::sched::{CloneFlags, setns, unshare};
use std::fs::File;
use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};

const OWN: &str = "/proc/thread-self/ns/ipc";

/// The most namespaces that are made ahead. Each takes some memory of the kernel.
const AHEAD_MAX: usize = 4;

/// Makes namespaces, on a thread of its own: the caller stays where it is, and need not wait for
/// one that was ordered ahead.
///
/// Each is empty, and lasts as long as its descriptor, or a process that has entered it (see
/// [`crate::spawn::Spawn::ipc`]).
#[derive(Debug, Default)]
pub struct Maker {
    workshop: Option<Workshop>,
}

/// The thread, for as long as its orders can be sent.
#[derive(Debug)]
struct Workshop {
    orders: Sender<()>,
    made: Receiver<Result<OwnedFd>>,
    /// Those that are not taken yet.
    ordered: usize,
    /// How many were taken since some were last made ahead.
    taken: usize,
}

impl Maker {
    /// Nothing is started before the first namespace is wanted.
    #[must_use]
    pub const fn new() -> Self {
        Self { workshop: None }
    }

    /// One to keep: the one that was made ahead, or else a new one.
    ///
    /// # Errors
    /// `EPERM` without privileges; what starting a thread says.
    pub fn take(&mut self) -> Result<OwnedFd> {
        let mut workshop = match self.workshop.take() {
            Some(workshop) => workshop,
            None => Workshop::open()?,
        };
        let made = workshop.take();
        if made.is_ok() {
            self.workshop = Some(workshop);
        }
        made
    }

    /// Has some made for the next launches, if one was ever wanted: as many as were taken since the
    /// last call, up to a few. So short jobs that come many at a time do not wait for them.
    pub fn make_ahead(&mut self) {
        if let Some(workshop) = &mut self.workshop {
            let wanted = std::mem::take(&mut workshop.taken).clamp(1, AHEAD_MAX);
            (workshop.ordered..wanted).for_each(|_| workshop.order());
        }
    }
}

impl Workshop {
    fn open() -> Result<Self> {
        let home = open_own()?;
        let (orders, to_do) = channel();
        let (done, made) = channel();
        let thread = std::thread::Builder::new().name("namespaces".into()).stack_size(64 << 10);
        let work = move || {
            be_patient();
            while to_do.recv().is_ok() {
                let _ = done.send(make(&home));
            }
        };
        thread.spawn(work).map_err(Error::file("start a thread for", Path::new(OWN)))?;
        Ok(Self { orders, made, ordered: 0, taken: 0 })
    }

    fn order(&mut self) {
        // A launch that takes one finds out if the maker has ended.
        let _ = self.orders.send(());
        self.ordered += 1;
    }

    fn take(&mut self) -> Result<OwnedFd> {
        if self.ordered == 0 {
            self.order();
        }
        self.ordered -= 1;
        self.taken += 1;
        self.made.recv().unwrap_or_else(|_| {
            Err(Error::Call { call: "unshare", source: ErrorKind::BrokenPipe.into() })
        })
    }
}

/// Making one ahead delays no other, as it would with the priority of a daemon. That it fails
/// changes nothing.
fn be_patient() {
    // SAFETY: takes no pointer; it is about this thread.
    if unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) } < 0 {
        let _ = set_nice(0);
    }
}

/// Makes one and goes home again: it must not last because its maker is in it.
fn make(home: &OwnedFd) -> Result<OwnedFd> {
    let failed = |call| move |error: Errno| Error::Call { call, source: error.into() };
    unshare(CloneFlags::CLONE_NEWIPC).map_err(failed("unshare"))?;
    let made = open_own();
    setns(home, CloneFlags::CLONE_NEWIPC).map_err(failed("setns"))?;
    made
}

fn open_own() -> Result<OwnedFd> {
    File::open(OWN).map(OwnedFd::from).map_err(Error::file("open", Path::new(OWN)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    #[test]
    fn it_is_another_each_time_and_nobody_else_is_in_it() {
        let name = |path: &str| std::fs::read_link(path).unwrap();
        let own = name(OWN);
        let mut maker = Maker::new();
        let one = maker.take().unwrap();
        maker.make_ahead();
        maker.make_ahead();
        let (second, third) = (maker.take().unwrap(), maker.take().unwrap());
        (0..20).for_each(|_| drop(maker.take().unwrap()));
        maker.make_ahead();
        assert_eq!(maker.workshop.as_ref().unwrap().ordered, AHEAD_MAX);
        let names =
            [&one, &second, &third].map(|fd| name(&format!("/proc/self/fd/{}", fd.as_raw_fd())));
        assert!(names[0] != names[1] && names[1] != names[2] && names[0] != names[2]);
        assert!(!names.contains(&own));
        let threads = std::fs::read_dir("/proc/self/task").unwrap();
        for thread in threads {
            let within = std::fs::read_link(thread.unwrap().path().join("ns/ipc"));
            assert!(within.is_err() || !names.contains(&within.unwrap()));
        }
    }
}
