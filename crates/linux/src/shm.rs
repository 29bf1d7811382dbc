//! Shared memory that processes leave behind when they are killed.
//!
//! A file in `/dev/shm` outlives its maker. Which files a set of processes uses can only be
//! seen while they live, in their maps; whether a file is theirs alone, only after they are gone.
//! So this is done in two steps, before and after a kill.
//!
//! POSIX semaphores are such files, too; their names begin with `sem.`.

use crate::{Error, Result, proc};
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{DirEntryExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

const PLACE: &str = "/dev/shm";

/// The kernel dates files by its latest tick: by as much a file may seem older than it is. A tick
/// is 10 ms at most.
const TICK_MAX: Duration = Duration::from_millis(10);

/// Most files that [`mapped_files`] finds.
const FILES_MAX: usize = 4096;

/// A file of shared memory, or a semaphore.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedFile {
    /// Where it lies.
    pub path: PathBuf,
    /// Tells it, on its device, from others that had or will have its name.
    pub inode: u64,
    /// Its device.
    pub device: u64,
    /// Its owner.
    pub uid: u32,
    /// Its size in bytes.
    pub bytes: u64,
    /// When it was made, seconds since 1970.
    pub made_s: u64,
}

impl SharedFile {
    fn at(path: PathBuf) -> Option<Self> {
        let found = fs::symlink_metadata(&path).ok().filter(fs::Metadata::is_file)?;
        let made = found.created().or_else(|_| found.modified()).ok()?;
        let made_s = made.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let (inode, device, uid, bytes) = (found.ino(), found.dev(), found.uid(), found.len());
        Some(Self { path, inode, device, uid, bytes, made_s })
    }

    /// Whether it is a semaphore.
    #[must_use]
    pub fn is_semaphore(&self) -> bool {
        self.name().as_encoded_bytes().starts_with(b"sem.")
    }

    fn name(&self) -> &OsStr {
        self.path.file_name().unwrap_or_default()
    }
}

/// Those that are wanted and that no process has open or mapped, of the processes that may be
/// looked at; none if they could not all be looked at in time.
#[must_use]
pub fn unused(wanted: impl Fn(&SharedFile) -> bool, until: Option<Instant>) -> Vec<SharedFile> {
    let entries = fs::read_dir(PLACE).into_iter().flatten().flatten();
    let files = entries.filter_map(|entry| SharedFile::at(entry.path()));
    unused_of(files.filter(wanted).collect(), until)
}

fn unused_of(mut files: Vec<SharedFile>, until: Option<Instant>) -> Vec<SharedFile> {
    if files.is_empty() {
        return files;
    }
    match used(&files.iter().map(|file| file.name().to_owned()).collect(), until) {
        Some(used) => files.retain(|file| !used.contains(&(file.device, file.inode))),
        None => files.clear(),
    }
    files
}

/// The inodes of those there are; nothing where they can't be seen.
#[must_use]
pub fn inodes() -> Option<BTreeSet<u64>> {
    let entries = fs::read_dir(PLACE).ok()?;
    entries.map(|entry| entry.map(|entry| entry.ino())).collect::<std::io::Result<_>>().ok()
}

/// Removes one that no process used. It stays if a process uses it now, if that can't be found out
/// in time, or if it is another one by now. That it is gone is fine.
///
/// # Errors
/// What the kernel says.
pub fn remove_unused(file: &SharedFile, until: Instant) -> Result<()> {
    let is_same = SharedFile::at(file.path.clone()).as_ref() == Some(file);
    if !is_same || unused_of(vec![file.clone()], Some(until)).is_empty() {
        return Ok(());
    }
    fs::remove_file(&file.path).map_err(Error::file("remove", &file.path))
}

/// What processes have mapped, and what they have open under one of these names, as devices and
/// numbers on them. Of other files nothing is asked: the server of one may never answer. `None` if
/// the time was over before all were looked at.
fn used(names: &BTreeSet<OsString>, until: Option<Instant>) -> Option<BTreeSet<(u64, u64)>> {
    let mut used = BTreeSet::new();
    for pid in proc::all() {
        if until.is_some_and(|until| Instant::now() >= until) {
            return None;
        }
        each_mapping(pid, |line| used.extend(mapped(line)));
        for entry in fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten() {
            let path = fs::read_link(entry.path()).unwrap_or_default();
            let is_in = [Some(Path::new("/")), Some(Path::new(PLACE))].contains(&path.parent());
            if is_in
                && path.file_name().is_some_and(|name| names.contains(name))
                && let Ok(found) = fs::metadata(entry.path())
            {
                used.insert((found.dev(), found.ino()));
            }
        }
    }
    Some(used)
}

/// The device and the number of the file in a line of maps; nothing if there is none.
fn mapped(line: &str) -> Option<(u64, u64)> {
    let mut words = line.split_ascii_whitespace().skip(3);
    let (major, minor) = words.next()?.split_once(':')?;
    let number = |text| u64::from_str_radix(text, 16).ok();
    let inode: u64 = words.next()?.parse().ok()?;
    (inode != 0).then_some((nix::sys::stat::makedev(number(major)?, number(minor)?), inode))
}

/// The shared memory files that these processes have mapped, as far as they are found in time.
/// Processes that are gone have none. The maps of a process that is in the middle of a change can't
/// be read before that is over.
#[must_use]
pub fn mapped_files(pids: &[i32], until: Instant) -> BTreeSet<PathBuf> {
    let mut files = BTreeSet::new();
    for &pid in pids {
        if Instant::now() >= until {
            break;
        }
        each_mapping(pid, |line| {
            // A file that was removed already is marked, and needs nothing.
            if files.len() < FILES_MAX
                && let Some(path) = mapped_path(line)
                && path.starts_with(PLACE)
                && !line.ends_with(" (deleted)")
            {
                files.insert(path.to_owned());
            }
        });
    }
    files
}

/// The path in a line of maps: what follows five words. It may have spaces itself.
fn mapped_path(line: &str) -> Option<&Path> {
    let mut rest = line;
    for _ in 0..5 {
        (_, rest) = rest.trim_start_matches(' ').split_once(' ')?;
    }
    Some(Path::new(rest.trim_start_matches(' ')))
}

/// Reads the maps of a process, line by line: all of them together can be hundreds of megabytes.
fn each_mapping(pid: i32, mut act: impl FnMut(&str)) {
    let Ok(maps) = File::open(format!("/proc/{pid}/maps")) else { return };
    let (mut maps, mut line) = (BufReader::new(maps), Vec::new());
    while maps.read_until(b'\n', &mut line).is_ok_and(|length| length > 0) {
        act(String::from_utf8_lossy(&line).trim_end_matches('\n'));
        line.clear();
    }
}

/// Files of a user that were made since a moment.
#[derive(Clone, Debug)]
pub struct Left {
    /// Where they are, among others.
    pub files: BTreeSet<PathBuf>,
    /// The user.
    pub uid: u32,
    /// The moment.
    pub since: SystemTime,
}

impl Left {
    fn has(&self, path: &Path) -> bool {
        let since = self.since.checked_sub(TICK_MAX).unwrap_or(self.since);
        path.parent() == Some(Path::new(PLACE))
            && fs::symlink_metadata(path).is_ok_and(|found| {
                found.is_file()
                    && found.uid() == self.uid
                    && found.created().or_else(|_| found.modified()).is_ok_and(|at| at >= since)
            })
    }
}

/// Removes those of the files that belong to `uid`, were made since `since`, and that no process
/// has open or mapped any more. Gives what was removed.
#[must_use]
pub fn remove_left(files: &BTreeSet<PathBuf>, uid: u32, since: SystemTime) -> Vec<PathBuf> {
    remove_all_left(&[Left { files: files.clone(), uid, since }])
}

/// As [`remove_left`], with one look at the processes for all.
#[must_use]
pub fn remove_all_left(left: &[Left]) -> Vec<PathBuf> {
    let ours = |of: &Left| -> Vec<PathBuf> {
        of.files.iter().filter(|path| of.has(path)).cloned().collect()
    };
    let left: BTreeSet<PathBuf> = left.iter().flat_map(ours).collect();
    let left = unused_of(left.into_iter().filter_map(SharedFile::at).collect(), None);
    let left = left.into_iter().map(|file| file.path);
    left.filter(|path| fs::remove_file(path).is_ok()).collect()
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

    #[test]
    fn the_path_of_a_mapping_is_all_that_follows_and_only_its_beginning_tells_the_place() {
        let path = |path: &str| {
            let line = format!("7f00-7f01 rw-s 00000000 00:1a 77 {:20}{path}", "");
            mapped_path(&line).map(Path::to_owned)
        };
        assert_eq!(path("/dev/shm/a b"), Some("/dev/shm/a b".into()));
        assert!(path("/dev/shm/a").unwrap().starts_with(PLACE));
        assert!(!path("/tmp/dev/shm/a").unwrap().starts_with(PLACE));
        assert!(!path("/tmp/x /dev/shm/a").unwrap().starts_with(PLACE));
        assert_eq!(mapped_path("7f00-7f01 rw-p 00000000 00:00 0"), None);
        assert_eq!(mapped_path(""), None);
    }

    #[test]
    fn a_file_is_unused_until_it_is_opened_or_mapped_under_whatever_name() {
        let path = PathBuf::from(format!("{PLACE}/sem.tutti-test-{}", std::process::id()));
        let file = fs::File::options().create_new(true).read(true).write(true).open(&path).unwrap();
        file.set_len(4096).unwrap();
        let late = Instant::now() + Duration::from_secs(600);
        let find = || unused(|file| file.path == path, None).pop();
        assert_eq!(find(), None, "it is open");
        let length = std::num::NonZeroUsize::new(4096).unwrap();
        let (protection, flags) =
            (nix::sys::mman::ProtFlags::PROT_READ, nix::sys::mman::MapFlags::MAP_SHARED);
        // SAFETY: a new mapping, which has no reader.
        let map = unsafe { nix::sys::mman::mmap(None, length, protection, flags, &file, 0) };
        drop(file);
        assert_eq!(find(), None, "it is mapped");
        // SAFETY: it has no user.
        unsafe { nix::sys::mman::munmap(map.unwrap(), 4096).unwrap() };
        let found = find().unwrap();
        assert_eq!(
            unused(|file| file.path == path, Some(Instant::now())),
            [],
            "nothing can be told in no time"
        );
        assert!(found.is_semaphore() && found.bytes == 4096 && found.made_s > 0);
        assert!(inodes().unwrap().contains(&found.inode));
        let open = fs::File::open(&path).unwrap();
        remove_unused(&found, late).unwrap();
        assert!(path.exists(), "it was opened since");
        drop(open);
        let other = SharedFile { inode: found.inode + 1, ..found.clone() };
        remove_unused(&other, late).unwrap();
        assert!(path.exists(), "it is another");
        remove_unused(&found, late).unwrap();
        assert!(!path.exists());
    }
}
