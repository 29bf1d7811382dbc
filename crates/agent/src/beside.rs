//! Work on the processes of jobs, done by threads beside the agent's loop.
//!
//! How long it takes to stop, signal or kill processes is in the hands of the user whose processes
//! they are. So the loop has threads do it, a bounded number for each user, and takes in what is to
//! be done then.

use super::driver::Agent;
use nix::sys::eventfd::{EfdFlags, EventFd};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tutti_node::link::{Interest, Poller};
use tutti_node::workers::{Bounds, Workers};

/// How many threads there are. One may be busy for ten seconds with a process that hangs.
const BOUNDS: Bounds = Bounds { of_user: 4, all: 32 };

/// What the loop does when a piece of work is done.
pub(super) type Then = Box<dyn FnOnce(&mut Agent) + Send>;

/// The threads, and what they have done.
pub(super) struct Beside {
    workers: Workers,
    done: Arc<Done>,
}

struct Done {
    then: Mutex<Vec<Then>>,
    /// Readable while there is any.
    bell: EventFd,
}

impl Done {
    fn lock(&self) -> MutexGuard<'_, Vec<Then>> {
        self.then.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self, then: Then) {
        self.lock().push(then);
        // Fails only when it was rung 2^64 times and never heard.
        let _ = self.bell.write(1);
    }
}

/// Has the loop do something, from another thread.
pub(super) struct Teller(Arc<Done>);

impl Teller {
    pub(super) fn tell(&self, then: Then) {
        self.0.tell(then);
    }
}

impl Beside {
    /// Without a thread yet; `poller` reports with `token` when something is done.
    pub(super) fn new(poller: &Poller, token: u64) -> io::Result<Self> {
        let bell = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?;
        poller.add(&bell, token, Interest::READ)?;
        let done = Arc::new(Done { then: Mutex::default(), bell });
        Ok(Self { workers: Workers::new(BOUNDS), done })
    }

    /// Has a thread do it for this user. The loop does then what the work gives.
    pub(super) fn start(&self, user: u32, work: impl FnOnce() -> Then + Send + 'static) {
        let done = Arc::clone(&self.done);
        let work = move || done.tell(work());
        self.workers.start_for_sure(user, Box::new(work));
    }

    /// For a thread that has something for the loop to do.
    pub(super) fn teller(&self) -> Teller {
        Teller(Arc::clone(&self.done))
    }

    fn take(&self) -> Vec<Then> {
        let _ = self.done.bell.read();
        std::mem::take(&mut self.done.lock())
    }
}

impl Agent {
    /// Takes in what threads have done.
    pub(super) fn on_done_beside(&mut self) {
        for then in self.processes.beside.take() {
            then(self);
        }
    }
}
