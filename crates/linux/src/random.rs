//! Numbers that can't be guessed.

use std::io;

/// One of the kernel's.
///
/// # Errors
/// What `getrandom` says: a kernel without it, or a filter that forbids it.
pub fn random_u32() -> io::Result<u32> {
    let mut bytes = [0_u8; 4];
    // SAFETY: the buffer is ours, and as long as is said.
    match unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) } {
        // So few bytes come all at once.
        4 => Ok(u32::from_ne_bytes(bytes)),
        _ => Err(io::Error::last_os_error()),
    }
}
