//! What threads beside the loop of `tutti top` wake it by.

use nix::sys::eventfd::{EfdFlags, EventFd};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

/// Wakes the loop.
#[derive(Clone)]
pub(super) struct Wake(Arc<EventFd>);

impl Wake {
    /// # Errors
    /// If the system has no more descriptors.
    pub(super) fn new() -> anyhow::Result<Self> {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        Ok(Self(Arc::new(EventFd::from_value_and_flags(0, flags)?)))
    }

    /// The loop has something to receive.
    pub(super) fn up(&self) {
        // It fails only where the loop is to wake already.
        let _ = self.0.write(1);
    }

    /// What the loop waits for.
    pub(super) fn awaited(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// The loop is awake; whether it was woken.
    pub(super) fn is_up(&self) -> bool {
        self.0.read().is_ok()
    }
}
