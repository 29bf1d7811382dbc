//! What this process does at a signal, as the kernel knows it: on `exec` it keeps what is ignored.

use std::ffi::c_int;
use std::ptr;

/// Whether nothing was changed for a signal: it ends the process, stops it, or does nothing.
pub(crate) fn is_default(signal: c_int) -> bool {
    handler(signal) == Some(libc::SIG_DFL as u64)
}

/// Whether a signal is ignored. At the start of a program: whether its starter wants that, as
/// `nohup` does for SIGHUP, and shells for SIGINT and SIGQUIT of what they start in the background.
#[must_use]
pub fn is_ignored(signal: c_int) -> bool {
    handler(signal) == Some(libc::SIG_IGN as u64)
}

/// Stops to ignore a signal, in this process and in what it starts from now on: at the start of a
/// program whose children are to react to it although its own starter ignored it.
pub fn stop_ignoring(signal: c_int) {
    if is_ignored(signal) {
        // SAFETY: the default is no function of ours.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
}

/// Not by the C library, which spares the two signals that it uses itself.
fn handler(signal: c_int) -> Option<u64> {
    // The kernel's sigaction: handler, flags, restorer (on some machines) and mask.
    let mut now = [0_u64; 4];
    let none: *const u64 = ptr::null();
    // SAFETY: `now` is as long as the kernel writes.
    let result = unsafe {
        libc::syscall(libc::SYS_rt_sigaction, signal, none, now.as_mut_ptr(), size_of::<u64>())
    };
    (result == 0).then_some(now[0])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_and_default_signals_are_told_apart() {
        // Nothing else here touches this one.
        let signal = libc::SIGURG;
        assert!(is_default(signal) && !is_ignored(signal));
        // SAFETY: to ignore a signal is always sound.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
        assert!(!is_default(signal) && is_ignored(signal));
        stop_ignoring(signal);
        assert!(is_default(signal));
        assert!(!is_default(1000) && !is_ignored(1000), "there is no such signal");
    }
}
