//! Descriptors that go from one program to the next in the same process, over `execve`.
//!
//! Before: [`keep_all_open`] has the kernel leave them open. After: [`Inherited::take_all`] finds
//! what was left open, once, and the code that knows their meaning takes them by number. What is
//! not taken is closed.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether all descriptors above the standard streams stay open when another program is executed in
/// this process.
///
/// # Errors
/// What reading `/proc/self/fd` and `fcntl` say.
pub fn keep_all_open(stay: bool) -> io::Result<()> {
    for number in all_open()? {
        set_closing(number, !stay)?;
    }
    Ok(())
}

/// All that are open now, besides the standard streams and the one that is needed to find out.
fn all_open() -> io::Result<Vec<RawFd>> {
    let mut numbers = Vec::new();
    for entry in std::fs::read_dir("/proc/self/fd")? {
        numbers.extend(entry?.file_name().to_str().and_then(|name| name.parse::<RawFd>().ok()));
    }
    numbers.retain(|&number| number > 2 && flags(number) >= 0);
    Ok(numbers)
}

fn flags(number: RawFd) -> i32 {
    // SAFETY: takes no pointer; a number that is not open is answered with an error.
    unsafe { libc::fcntl(number, libc::F_GETFD) }
}

fn set_closing(number: RawFd, closes: bool) -> io::Result<()> {
    let flag = if closes { libc::FD_CLOEXEC } else { 0 };
    // SAFETY: takes no pointer; a number that is not open is answered with an error.
    match unsafe { libc::fcntl(number, libc::F_SETFD, flag) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// What the program before has left open, besides the standard streams.
#[derive(Debug)]
pub struct Inherited {
    descriptors: BTreeMap<RawFd, OwnedFd>,
}

static TAKEN: AtomicBool = AtomicBool::new(false);

impl Inherited {
    /// Takes all descriptors above the standard streams that stay open over `execve`. What this
    /// program opens itself closes then, as the standard library and this crate open everything; so
    /// those that stay open now were left by the program before.
    ///
    /// # Errors
    /// What reading `/proc/self/fd` says; `EBUSY` for a second call: they have owners by now.
    pub fn take_all() -> io::Result<Self> {
        if TAKEN.swap(true, Ordering::SeqCst) {
            return Err(io::Error::from_raw_os_error(libc::EBUSY));
        }
        let mut descriptors = BTreeMap::new();
        for number in all_open()? {
            if flags(number) != 0 {
                continue;
            }
            set_closing(number, true)?;
            // SAFETY: open, left by the program before, which is gone; and this one has no other
            // owner of it, since this is done once and whatever this program opens closes on
            // `execve`.
            descriptors.insert(number, unsafe { OwnedFd::from_raw_fd(number) });
        }
        Ok(Self { descriptors })
    }

    /// Takes the one of this number.
    ///
    /// # Errors
    /// `EBADF` if it was not left, or is taken.
    pub fn take(&mut self, number: RawFd) -> io::Result<OwnedFd> {
        let taken = self.descriptors.remove(&number);
        taken.ok_or_else(|| io::Error::from_raw_os_error(libc::EBADF))
    }
}
