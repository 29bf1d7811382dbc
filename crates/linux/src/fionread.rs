//! How much of a stream has arrived, without taking it.

use crate::{Error, Result};
use std::os::fd::{AsRawFd, BorrowedFd};

/// How many bytes of a pipe or socket can be read without waiting. At the end of the stream none
/// can.
///
/// # Errors
/// If it is neither.
pub fn arrived_bytes(stream: BorrowedFd<'_>) -> Result<usize> {
    let mut count: libc::c_int = 0;
    // SAFETY: the kernel writes one int through the pointer.
    let result = unsafe { libc::ioctl(stream.as_raw_fd(), libc::FIONREAD, &raw mut count) };
    if result < 0 {
        return Err(Error::last("ioctl FIONREAD"));
    }
    Ok(usize::try_from(count).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::fd::AsFd;

    #[test]
    fn what_was_written_is_counted() {
        let (reader, mut writer) = std::io::pipe().unwrap();
        assert_eq!(arrived_bytes(reader.as_fd()).unwrap(), 0);
        writer.write_all(b"one two").unwrap();
        writer.write_all(b" three").unwrap();
        assert_eq!(arrived_bytes(reader.as_fd()).unwrap(), 13);
        drop(writer);
        assert_eq!(arrived_bytes(reader.as_fd()).unwrap(), 13, "the end is no byte");
        let null = std::fs::File::open("/dev/null").unwrap();
        assert!(arrived_bytes(null.as_fd()).is_err());
    }
}
