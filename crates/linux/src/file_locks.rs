//! Locks on files (`flock`), for a process that may not open the file.

use std::fs;

/// Whether a process that is seen here has the file with this number locked for itself alone. The
/// number alone tells files apart: of some file systems the kernel names another device here than
/// `stat` does.
#[must_use]
pub fn is_locked(inode: u64) -> bool {
    let locks = fs::read_to_string("/proc/locks").unwrap_or_default();
    locks.lines().any(|line| is_lock_of(line, inode))
}

/// Whether a line such as `1: FLOCK ADVISORY WRITE 4711 00:1a:25 0 EOF` is of a lock on this file.
/// One that only waits for it has an arrow after the number.
fn is_lock_of(line: &str, inode: u64) -> bool {
    let words: Vec<&str> = line.split_ascii_whitespace().collect();
    let [_, "FLOCK", _, "WRITE", _, file, ..] = words[..] else { return false };
    file.rsplit(':').next().and_then(|number| number.parse().ok()) == Some(inode)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::fcntl::{Flock, FlockArg};
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn a_lock_is_seen_while_it_is_held() {
        let path = std::env::temp_dir().join(format!("tutti-lock-{}", std::process::id()));
        let file = fs::File::create(&path).unwrap();
        fs::remove_file(&path).unwrap();
        let inode = file.metadata().unwrap().ino();
        assert!(!is_locked(inode));
        let lock = Flock::lock(file, FlockArg::LockExclusive).unwrap();
        assert!(is_locked(inode));
        drop(lock);
        assert!(!is_locked(inode));
    }

    #[test]
    fn only_a_lock_that_is_held_counts() {
        assert!(is_lock_of("1: FLOCK  ADVISORY  WRITE 4711 00:1a:25 0 EOF", 25));
        assert!(!is_lock_of("1: -> FLOCK  ADVISORY  WRITE 4712 00:1a:25 0 EOF", 25));
        assert!(!is_lock_of("1: FLOCK  ADVISORY  READ 4711 00:1a:25 0 EOF", 25));
        assert!(!is_lock_of("1: POSIX  ADVISORY  WRITE 4711 00:1a:25 0 EOF", 25));
        assert!(!is_lock_of("nonsense", 25) && !is_lock_of("", 25));
    }
}
