//! System V shared memory that nobody uses any more.
//!
//! A segment outlives whoever made it. The kernel remembers the number of its maker, though, and when
//! that was, so that it can be known whose it is. (Of semaphores and message queues it does not.)

use crate::text::read_text;
use crate::{Error, Result};
use std::path::Path;

const SHM: &str = "/proc/sysvipc/shm";

/// A segment of shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Names it.
    pub id: i32,
    /// Its size in bytes.
    pub bytes: u64,
    /// The process that made it.
    pub maker: i32,
    /// How many have it attached.
    pub attached: u64,
    /// The user who made it.
    pub uid: u32,
    /// When it was made, or its owner was changed: seconds since 1970.
    pub made_s: u64,
}

/// The segments there are; none where the kernel has none.
#[must_use]
pub fn segments() -> Vec<Segment> {
    parse(&read_text(Path::new(SHM)).unwrap_or_default())
}

/// The columns have names, since their number differs.
fn parse(text: &str) -> Vec<Segment> {
    let mut lines = text.lines();
    let names: Vec<&str> = lines.next().unwrap_or_default().split_whitespace().collect();
    let segment = |line: &str| {
        let values: Vec<&str> = line.split_whitespace().collect();
        let value = |name: &str| {
            let at = names.iter().position(|known| *known == name)?;
            values.get(at).copied()
        };
        Some(Segment {
            id: value("shmid")?.parse().ok()?,
            bytes: value("size")?.parse().ok()?,
            maker: value("cpid")?.parse().ok()?,
            attached: value("nattch")?.parse().ok()?,
            uid: value("cuid")?.parse().ok()?,
            made_s: value("ctime")?.parse().ok()?,
        })
    };
    lines.filter_map(segment).collect()
}

/// Removes a segment, unless somebody has attached it since.
///
/// # Errors
/// What `shmctl(IPC_RMID)` says: it is gone, or another user's.
pub fn remove(segment: &Segment) -> Result<()> {
    // The number may be another's by now.
    if !segments().contains(segment) {
        let source = std::io::Error::from_raw_os_error(libc::ENOENT);
        return Err(Error::file("remove from", Path::new(SHM))(source));
    }
    // SAFETY: nothing is read or written through the pointer for this command.
    match unsafe { libc::shmctl(segment.id, libc::IPC_RMID, std::ptr::null_mut()) } {
        0 => Ok(()),
        _ => Err(Error::last("shmctl(IPC_RMID)")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_found_by_name() {
        let text = "       key      shmid perms    size  cpid  lpid nattch   uid   gid  cuid  cgid  \
                    atime dtime ctime rss swap\n 0 7 600 4096 12 13 0 1000 1000 1001 1000 0 0 1700000000 0 0\nx\n";
        let expected = Segment {
            id: 7,
            bytes: 4096,
            maker: 12,
            attached: 0,
            uid: 1001,
            made_s: 1_700_000_000,
        };
        assert_eq!(parse(text), [expected]);
        assert!(parse("").is_empty());
    }

    #[test]
    fn a_segment_is_found_by_its_maker_and_removed() {
        // SAFETY: takes no pointer.
        let id = unsafe { libc::shmget(libc::IPC_PRIVATE, 4096, 0o600) };
        assert!(id >= 0);
        let own = std::process::id().cast_signed();
        let segment = segments().into_iter().find(|segment| segment.id == id).unwrap();
        assert_eq!((segment.maker, segment.attached, segment.bytes), (own, 0, 4096));
        remove(&segment).unwrap();
        assert!(segments().iter().all(|segment| segment.id != id));
        assert!(remove(&segment).unwrap_err().is_gone());
    }
}
