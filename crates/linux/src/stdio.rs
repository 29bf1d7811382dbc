//! Standard streams that were closed when the program began.
//!
//! `/dev/null` is opened in their place before anything else, so that no file gets one of
//! their numbers. What is written there then would be lost without a word; so it is noted.

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

/// What the standard library does before its `main`, for a program that has one of its own: a
/// program that writes to a pipe without a reader gets an error, and is not ended.
pub fn begin() {
    for stream in 0..3 {
        if was_closed(stream) {
            // SAFETY: the path is NUL-terminated. The lowest number is taken, and those below are
            // open.
            unsafe { libc::open(c"/dev/null".as_ptr(), libc::O_RDWR) };
        }
    }
    // SAFETY: to ignore a signal is always sound.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
}

// SAFETY: the section holds addresses of functions that the loader calls; this one needs nothing
// that is set up later.
#[used]
#[unsafe(link_section = ".init_array")]
static LOOK: extern "C" fn() = look;
