//! A directory for temporary files of each job, which goes with the job: its `TMPDIR`.
//!
//! It lies where every user may make one, so nothing is assumed of a name that is taken, and the
//! next one is tried that can't be foreseen; and its owner may put anything in its place, so what
//! is removed is never reached through a link.
//!
//! Most jobs leave theirs empty. Making and removing a directory takes the disk a third of a
//! millisecond, a new name for one a tenth of that: so a few of those that were left empty are kept
//! for the next jobs of the same users.

use super::removal::{Owned, Removal, remove_beside};
use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};
use nix::unistd::{getegid, geteuid};
use serde_bytes::ByteBuf;
use std::ffi::OsString;
use std::fs::{self, DirBuilder};
use std::io::ErrorKind;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, lchown};
use std::path::{Path, PathBuf};
#[cfg(test)]
use std::time::Duration;
use tracing::warn;
use tutti_linux::random::random_u32;
use tutti_types::JobId;
use tutti_wire::code::Code;
use tutti_wire::handover::HeldSpares;
use tutti_wire::launch::Credentials;

/// Names that are tried before a job goes without.
const NAMES_MAX: u32 = 16;

/// For the owner alone.
const MODE: u32 = 0o700;

/// Directories that are kept empty.
const SPARES_MAX: usize = 8;

/// What follows the prefix in the name of a job's directory.
pub(super) const JOB: &str = "-job-";

/// The same, of one that could not be removed.
pub(super) const LEFT: &str = "-left-";

/// User and group.
type Owner = (u32, u32);

/// Makes the directories of jobs, and keeps some that are empty for the next ones.
pub(super) struct Scratches {
    /// How the names of all begin.
    prefix: PathBuf,
    spares: Vec<(PathBuf, Owner)>,
    numbers: u64,
}

impl Scratches {
    pub(super) fn new(prefix: PathBuf) -> Self {
        Self { prefix, spares: Vec::new(), numbers: 0 }
    }

    /// Those that are kept, and how many there were.
    pub(super) fn hand_over(&self) -> HeldSpares {
        let spare =
            |(path, owner): &(PathBuf, Owner)| (ByteBuf::from(path.as_os_str().as_bytes()), *owner);
        HeldSpares { kept: self.spares.iter().map(spare).collect(), numbers: self.numbers }
    }

    /// Goes on with those of another program. What that one was still removing is removed, by a
    /// thread: all that is there and is neither kept nor one of `in_use`.
    pub(super) fn take_over(&mut self, handed: HeldSpares, in_use: &[&Path]) {
        let path = |bytes: ByteBuf| PathBuf::from(OsString::from_vec(bytes.into_vec()));
        self.spares = handed.kept.into_iter().map(|(bytes, owner)| (path(bytes), owner)).collect();
        self.numbers = handed.numbers;
        let is_known = |path: &PathBuf| {
            in_use.contains(&path.as_path()) || self.spares.iter().any(|(spare, _)| spare == path)
        };
        let mut left = left(&self.prefix);
        left.retain(|(path, _)| !is_known(path));
        drop(remove_beside(left));
    }

    /// The directory of a job, for its owner alone.
    pub(super) fn make(&mut self, job: JobId, owner: Option<&Credentials>) -> Option<PathBuf> {
        self.reuse(job, owner).or_else(|| make(&self.prefix, job, owner))
    }

    fn reuse(&mut self, job: JobId, owner: Option<&Credentials>) -> Option<PathBuf> {
        let us = (geteuid().as_raw(), getegid().as_raw());
        let owner = owner.map_or(us, |owner| (owner.uid, owner.gid));
        let index = self.spares.iter().position(|(_, of)| *of == owner)?;
        let (spare, _) = self.spares.swap_remove(index);
        let path = with_suffix(&self.prefix, &format!("-job-{job}"));
        if !rename(&spare, &path) {
            drop(remove(spare, owner.0));
            return None;
        }
        // Its owner may have done anything with it meanwhile.
        if as_new(&path) == Some(owner) {
            return Some(path);
        }
        drop(remove(path, owner.0));
        None
    }

    /// Takes the directory of a job of this user away, with all that is in it; gives what takes
    /// longer.
    pub(super) fn take_back(&mut self, path: PathBuf, user: u32) -> Option<Removal> {
        let has_room = self.spares.len() < SPARES_MAX;
        let owner = as_new(&path).filter(|owner| has_room && owner.0 == user);
        let Some(owner) = owner else { return remove(path, user) };
        self.numbers += 1;
        // A user that knew the name could take it, and have each directory be made anew.
        let Ok(random) = random_u32() else { return remove(path, user) };
        let name = format!("-job-none.{}.{random:08x}", self.numbers);
        let spare = with_suffix(&self.prefix, &name);
        if !rename(&path, &spare) {
            return remove(path, user);
        }
        self.spares.push((spare, owner));
        None
    }
}

impl Drop for Scratches {
    fn drop(&mut self) {
        for (spare, owner) in self.spares.drain(..) {
            drop(remove(spare, owner.0));
        }
    }
}

/// Whether it has another name now, which was free.
pub(super) fn rename(from: &Path, to: &Path) -> bool {
    renameat2(AT_FDCWD, from, AT_FDCWD, to, RenameFlags::RENAME_NOREPLACE).is_ok()
}

/// The owner of the directory, if it is as [`make`] makes them: empty, and for its owner alone.
fn as_new(path: &Path) -> Option<Owner> {
    let found = fs::symlink_metadata(path).ok()?;
    let is_private = found.is_dir() && found.mode() & 0o7777 == MODE;
    let is_empty = is_private && fs::read_dir(path).ok()?.next().is_none();
    is_empty.then(|| (found.uid(), found.gid()))
}

fn with_suffix(prefix: &Path, suffix: &str) -> PathBuf {
    let mut path = prefix.as_os_str().to_owned();
    path.push(suffix);
    path.into()
}

/// Makes the directory of a job, for its owner alone.
fn make(prefix: &Path, job: JobId, owner: Option<&Credentials>) -> Option<PathBuf> {
    for number in 0..NAMES_MAX {
        let Some(suffix) = suffix(number) else { break };
        let path = with_suffix(prefix, &format!("-job-{job}{suffix}"));
        match DirBuilder::new().mode(MODE).create(&path) {
            Ok(()) => {
                let given = match owner {
                    Some(to) if !is_us(to) => lchown(&path, Some(to.uid), Some(to.gid)),
                    _ => Ok(()),
                };
                if given.is_ok() {
                    return Some(path);
                }
                let _ = fs::remove_dir(&path);
                return None;
            }
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => {
                warn!(code = %Code::GoesWithout, "job {job} has no TMPDIR of its own: {error}");
                return None;
            }
        }
    }
    warn!(code = %Code::GoesWithout, "job {job} has no TMPDIR of its own: all its names are taken");
    None
}

/// After the first name, which tells what it is and which anybody can take ahead.
fn suffix(number: u32) -> Option<String> {
    match number {
        0 => Some(String::new()),
        _ => random_u32().ok().map(|random| format!(".{random:08x}")),
    }
}

fn is_us(user: &Credentials) -> bool {
    user.uid == geteuid().as_raw() && user.gid == getegid().as_raw()
}

/// Whether a `TMPDIR` is that of a job, of whatever instance: it will go with that job.
pub(super) fn is_a_jobs(value: &[u8]) -> bool {
    let name = value.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
    let name = String::from_utf8_lossy(name);
    name.starts_with("tutti-") && name.contains(JOB)
}

/// Removes it with all that this user has put in it; gives what takes longer.
fn remove(path: PathBuf, user: u32) -> Option<Removal> {
    match fs::remove_dir(&path) {
        Ok(()) => None,
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        // There is something in it, or it is no directory any more.
        Err(_) => Some(remove_beside(vec![(path, Some(user))])),
    }
}

/// Removes what an earlier keeper has left. There may be much of it: no caller waits.
pub(super) fn remove_all(prefix: &Path) -> Removal {
    remove_beside(left(prefix))
}

/// What is there; the jobs that it was for are not known any more.
fn left(prefix: &Path) -> Vec<Owned> {
    let (Some(parent), Some(name)) = (prefix.parent(), prefix.file_name()) else {
        return Vec::new();
    };
    let begins = [JOB, LEFT].map(|kind| format!("{}{kind}", name.to_string_lossy()));
    let is_ours = |entry: &fs::DirEntry| {
        let name = entry.file_name();
        begins.iter().any(|begin| name.to_string_lossy().starts_with(begin))
    };
    let entries = fs::read_dir(parent).into_iter().flatten().flatten();
    entries.filter(is_ours).map(|entry| (entry.path(), None)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use tutti_linux::remove_tree::remove_tree;

    fn us() -> u32 {
        geteuid().as_raw()
    }

    #[test]
    fn the_directory_of_an_outer_job_is_known() {
        assert!(is_a_jobs(b"/tmp/tutti-0-0123abcd-job-7") && is_a_jobs(b"/t/tutti-1-a-job-1.2"));
        assert!(!is_a_jobs(b"/scratch/ada") && !is_a_jobs(b"") && !is_a_jobs(b"/tmp"));
    }

    #[test]
    fn what_is_left_empty_is_used_again_by_the_same_user_only_and_as_if_it_were_new() {
        let base = std::env::temp_dir().join(format!("tutti-spares-{}", std::process::id()));
        fs::create_dir(&base).unwrap();
        let inode = |path: &Path| fs::metadata(path).unwrap().ino();
        let mut scratches = Scratches::new(base.join("t"));
        let first = scratches.make(JobId(1), None).unwrap();
        let made = inode(&first);
        assert!(scratches.take_back(first.clone(), us()).is_none());
        assert!(!first.exists());
        if geteuid().is_root() {
            let nobody = Credentials { uid: 65534, gid: 65534, groups: Vec::new() };
            let others = scratches.make(JobId(2), Some(&nobody)).unwrap();
            assert_ne!(inode(&others), made);
            assert_eq!(fs::metadata(&others).unwrap().uid(), 65534);
        }
        let again = scratches.make(JobId(3), None).unwrap();
        assert_eq!((again.clone(), inode(&again)), (base.join("t-job-3"), made));
        // What is not as it was made goes: with something in it, or open to others.
        fs::write(again.join("left"), "x").unwrap();
        let removal = scratches.take_back(again, us()).unwrap();
        assert!(removal.wait(Duration::from_secs(30)));
        let open = scratches.make(JobId(4), None).unwrap();
        fs::set_permissions(&open, fs::Permissions::from_mode(0o755)).unwrap();
        assert!(scratches.take_back(open, us()).is_none());
        assert!(scratches.spares.is_empty());
        // Nor is what its owner has done to one that was kept.
        let kept = scratches.make(JobId(5), None).unwrap();
        assert!(scratches.take_back(kept, us()).is_none());
        let spare = scratches.spares[0].0.clone();
        let name = spare.to_string_lossy().into_owned();
        let (_, unforeseen) = name.rsplit_once('.').unwrap();
        assert!(unforeseen.len() == 8 && u32::from_str_radix(unforeseen, 16).is_ok(), "{name}");
        fs::write(spare.join("later"), "x").unwrap();
        let new = scratches.make(JobId(6), None).unwrap();
        assert!(fs::read_dir(&new).unwrap().next().is_none() && !spare.exists());
        assert!(scratches.take_back(new, us()).is_none());
        drop(scratches);
        let is_spare = |(path, _): &Owned| path.to_string_lossy().contains("-job-none");
        assert!(!left(&base.join("t")).iter().any(is_spare));
        fs::remove_dir_all(&base).unwrap();
    }

    #[test]
    fn nobody_can_take_all_names_ahead() {
        let base = std::env::temp_dir().join(format!("tutti-names-{}", std::process::id()));
        fs::create_dir(&base).unwrap();
        let prefix = base.join("t");
        fs::write(base.join("t-job-7"), "").unwrap();
        (1..100).for_each(|number| fs::write(base.join(format!("t-job-7.{number}")), "").unwrap());
        let made = make(&prefix, JobId(7), None).unwrap();
        assert!(left(&prefix).contains(&(made, None)));
        remove_tree(&base).unwrap();
    }

    #[test]
    fn a_directory_is_private_and_goes_with_what_is_in_it_and_nothing_else() {
        let base = std::env::temp_dir().join(format!("tutti-scratch-{}", std::process::id()));
        fs::create_dir(&base).unwrap();
        let (prefix, elsewhere) = (base.join("t"), base.join("elsewhere"));
        fs::create_dir(&elsewhere).unwrap();
        fs::write(elsewhere.join("kept"), "x").unwrap();
        let one = make(&prefix, JobId(7), None).unwrap();
        let other = make(&prefix, JobId(7), None).unwrap();
        assert_eq!(one, base.join("t-job-7"));
        let name = other.to_string_lossy().into_owned();
        let unforeseen = name.rsplit_once("t-job-7.").map_or("", |(_, suffix)| suffix);
        assert!(u32::from_str_radix(unforeseen, 16).is_ok() && unforeseen.len() == 8, "{name}");
        assert_eq!(fs::metadata(&one).unwrap().permissions().mode() & 0o777, 0o700);
        symlink(&elsewhere, one.join("link")).unwrap();
        fs::create_dir(one.join("below")).unwrap();
        assert!(remove(one, us()).unwrap().wait(Duration::from_secs(30)));
        fs::remove_dir(&other).unwrap();
        symlink(&elsewhere, &other).unwrap();
        assert_eq!(left(&prefix), [(other, None)]);
        assert!(remove_all(&prefix).wait(Duration::from_secs(30)));
        assert!(left(&prefix).is_empty() && elsewhere.join("kept").exists());
        fs::remove_dir_all(&base).unwrap();
    }
}
