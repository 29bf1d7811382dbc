//! Standard streams that were closed when the program began.
//!
//! The standard library opens `/dev/null` in their place before `main`, so that no file gets one of
//! their numbers. What is written there then would be lost without a word; so it is noted before.

use std::sync::atomic::{AtomicU8, Ordering};

static CLOSED: AtomicU8 = AtomicU8::new(0);

/// Whether this standard stream (0 to 2) was closed when the program began.
#[must_use]
pub fn was_closed(stream: u8) -> bool {
    stream < 3 && CLOSED.load(Ordering::Relaxed) >> stream & 1 == 1
}

/// Run by the loader, before the standard library does anything.
extern "C" fn look() {
    for stream in 0..3 {
        // SAFETY: takes no pointer.
        if unsafe { libc::fcntl(stream, libc::F_GETFD) } == -1 {
            CLOSED.fetch_or(1 << stream, Ordering::Relaxed);
        }
    }
}

// SAFETY: the section holds addresses of functions that the loader calls; this one needs nothing
// that is set up later.
#[used]
#[unsafe(link_section = ".init_array")]
static LOOK: extern "C" fn() = look;
