//! Shared memory that processes leave behind when they are killed.
//!
//! A file in `/dev/shm` outlives whoever made it. Which files a set of processes uses can only be
//! seen while they live, in their maps; whether a file is theirs alone, only after they are gone.
//! So this is done in two steps, before and after a kill.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

const PLACE: &str = "/dev/shm";

/// The kernel dates files by its latest tick: by as much a file may seem older than it is. A tick is 10 ms at most.
const TICK_MAX: Duration = Duration::from_millis(10);

/// The shared memory files that these processes have mapped. Processes that are gone have none.
#[must_use]
pub fn mapped_files(pids: &[i32]) -> BTreeSet<PathBuf> {
    let mut files = BTreeSet::new();
    for pid in pids {
        collect(&PathBuf::from(format!("/proc/{pid}/maps")), &mut files);
    }
    files
}

fn collect(maps: &Path, files: &mut BTreeSet<PathBuf>) {
    let Ok(text) = fs::read(maps) else { return };
    for line in String::from_utf8_lossy(&text).lines() {
        // A file that was removed already is marked, and needs nothing.
        if let Some(at) = line.find(PLACE)
            && !line.ends_with(" (deleted)")
        {
            files.insert(PathBuf::from(&line[at..]));
        }
    }
}

/// Removes those of the files that belong to `uid`, were made since `since`, and that no process
/// has mapped any more. Gives what was removed.
#[must_use]
pub fn remove_left(files: &BTreeSet<PathBuf>, uid: u32, since: SystemTime) -> Vec<PathBuf> {
    let since = since.checked_sub(TICK_MAX).unwrap_or(since);
    let ours = |path: &&PathBuf| {
        path.parent() == Some(Path::new(PLACE))
            && fs::symlink_metadata(path).is_ok_and(|found| {
                found.is_file()
                    && found.uid() == uid
                    && found.created().or_else(|_| found.modified()).is_ok_and(|at| at >= since)
            })
    };
    let mut left: Vec<PathBuf> = files.iter().filter(ours).cloned().collect();
    if left.is_empty() {
        return left;
    }
    let used = mapped_by_anybody();
    left.retain(|path| !used.contains(path) && fs::remove_file(path).is_ok());
    left
}

fn mapped_by_anybody() -> BTreeSet<PathBuf> {
    let mut files = BTreeSet::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        if entry.file_name().as_encoded_bytes().first().is_some_and(u8::is_ascii_digit) {
            collect(&entry.path().join("maps"), &mut files);
        }
    }
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_ours_new_and_unused_is_removed() {
        let path = PathBuf::from(format!("{PLACE}/tutti-test-{}", std::process::id()));
        fs::write(&path, "left").unwrap();
        // As of a job that began since the tick before.
        let begin = fs::metadata(&path).unwrap().created().unwrap() + Duration::from_millis(4);
        let files: BTreeSet<PathBuf> = [path.clone()].into();
        let uid = fs::metadata(&path).unwrap().uid();
        let later = SystemTime::now() + Duration::from_secs(60);
        assert!(remove_left(&files, uid, later).is_empty(), "older than the job");
        assert!(remove_left(&files, uid + 1, begin).is_empty(), "another user's");
        assert_eq!(remove_left(&files, uid, begin), std::slice::from_ref(&path));
        assert!(!path.exists());
        let outside: BTreeSet<PathBuf> = [PathBuf::from("/dev/shm/../null")].into();
        assert!(remove_left(&outside, 0, begin).is_empty(), "outside of its place");
    }
}
