//! Wakes a thread before its time.

use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::time::TimeSpec;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;
use tutti_node::platform::time::monotonic_ns;

/// A bell that one thread rings and another one waits for.
#[derive(Clone, Debug)]
pub(super) struct Bell(Arc<EventFd>);

impl Bell {
    /// A bell that has not been rung.
    pub(super) fn new() -> std::io::Result<Self> {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        Ok(Self(Arc::new(EventFd::from_value_and_flags(0, flags)?)))
    }

    /// Rings it; a thread that waits wakes up, one that waits later does so at once.
    pub(super) fn ring(&self) {
        // Fails only when it was rung 2^64 times and never heard.
        let _ = self.0.write(1);
    }

    /// Takes note that it was rung, for a thread that waits for other things, too.
    pub(super) fn clear(&self) {
        let _ = self.0.read();
    }

    /// Waits until it is rung or the monotonic clock has reached `deadline_ns`.
    pub(super) fn wait_until(&self, deadline_ns: u64) {
        loop {
            let now = monotonic_ns();
            if now >= deadline_ns {
                return;
            }
            let left = TimeSpec::from(Duration::from_nanos(deadline_ns - now));
            let timeout = (deadline_ns != u64::MAX).then_some(left);
            let mut fds = [PollFd::new(self.0.as_fd(), PollFlags::POLLIN)];
            if ppoll(&mut fds, timeout, None).is_ok_and(|ready| ready > 0) {
                let _ = self.0.read();
                return;
            }
        }
    }
}

impl AsFd for Bell {
    /// Readable while it is rung.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
