//! System V IPC that no process uses any more.
//!
//! An object outlives its maker. Of shared memory the kernel remembers the number of its maker, and
//! when that was, so that its owner can be known. Of queues and semaphores it remembers the
//! user, when they were made, and the processes that used them last ([`used`]).

use crate::procfile::read_text;
use crate::{Error, Result};
use std::path::Path;
use std::str::FromStr;

pub mod used;

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
    /// The user that made it.
    pub uid: u32,
    /// When it was made, or its owner was changed: seconds since 1970.
    pub made_s: u64,
}

/// The segments there are; none where the kernel has none.
#[must_use]
pub fn segments() -> Vec<Segment> {
    parse(&read_text(Path::new(SHM)).unwrap_or_default(), segment)
}

fn segment(line: &Line) -> Option<Segment> {
    Some(Segment {
        id: line.value("shmid")?,
        bytes: line.value("size")?,
        maker: line.value("cpid")?,
        attached: line.value("nattch")?,
        uid: line.value("cuid")?,
        made_s: line.value("ctime")?,
    })
}

/// A line of one of the kernel's tables. The columns have names, since their number differs.
struct Line<'a> {
    names: &'a [&'a str],
    values: Vec<&'a str>,
}

impl Line<'_> {
    fn value<T: FromStr>(&self, name: &str) -> Option<T> {
        let at = self.names.iter().position(|known| *known == name)?;
        self.values.get(at)?.parse().ok()
    }
}

fn parse<T>(text: &str, make: impl Fn(&Line) -> Option<T>) -> Vec<T> {
    let mut lines = text.lines();
    let names: Vec<&str> = lines.next().unwrap_or_default().split_whitespace().collect();
    let made =
        |line: &str| make(&Line { names: &names, values: line.split_whitespace().collect() });
    lines.filter_map(made).collect()
}

/// Removes a segment, unless a process has attached it since.
///
/// # Errors
/// What `shmctl(IPC_RMID)` says: it is gone, or another user's.
pub fn remove(segment: &Segment) -> Result<()> {
    // The number may be another's by now.
    if !segments().contains(segment) {
        return Err(gone(SHM));
    }
    // SAFETY: nothing is read or written through the pointer for this command.
    match unsafe { libc::shmctl(segment.id, libc::IPC_RMID, std::ptr::null_mut()) } {
        0 => Ok(()),
        _ => Err(Error::last("shmctl(IPC_RMID)")),
    }
}

fn gone(table: &str) -> Error {
    let source = std::io::Error::from_raw_os_error(libc::ENOENT);
    Error::file("remove from", Path::new(table))(source)
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
        assert_eq!(parse(text, segment), [expected]);
        assert!(parse("", segment).is_empty());
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
