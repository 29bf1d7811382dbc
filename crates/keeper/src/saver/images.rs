//! Directories of jobs with images: their names, and their removal by threads.
//!
//! A directory that is not needed any more is renamed at once. Threads remove only what has such a
//! name, so they never touch the directory of a job that starts meanwhile. What a killed keeper has
//! left under such a name is removed by the next one.

use crate::removal::{Removal, beside};
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::{self, symlink_metadata};
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tracing::{info, warn};
use tutti_linux::random::random_u32;
use tutti_linux::remove_tree::{remove_tree, remove_tree_of};
use tutti_types::JobId;
use tutti_wire::code::Code;
use tutti_wire::frame::decode;
use tutti_wire::saver::{ORDER, SaverOrder};

/// Prefixes of directory names: a job's; one that is to be removed; one of which something is left
/// that its user may not remove.
pub(super) const JOB: &str = "job-";
const GONE: &str = "gone-";
const LEFT: &str = "left-";

/// In the directory of a job: its `TMPDIR`, which belongs to the job's user, and all else.
pub(super) const TMP: &str = "tmp";
pub(super) const KEPT: &str = "kept";

/// Maximum wait for removals when the keeper ends. The next keeper removes what is left.
const PATIENCE: Duration = Duration::from_secs(10);

/// The directory of a job with images.
pub(super) fn directory(images: &Path, job: JobId) -> PathBuf {
    images.join(name(job))
}

/// The name of that, and how it begins in a directory that nodes share.
pub(super) fn name(job: JobId) -> String {
    format!("{JOB}{job}")
}

/// Renames the directory of a job, and has it removed by a thread, with what the job has in a
/// directory that nodes share, if that is meant too. A missing one is fine.
///
/// # Errors
/// If it can't be renamed.
pub(super) fn put_away(directory: &Path, with_shared: bool) -> io::Result<()> {
    if !with_shared {
        // Without an order, it is not known where that is.
        match fs::remove_file(directory.join(KEPT).join(ORDER)) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    let gone = directory.with_file_name(format!("{GONE}{:08x}", random_u32()?));
    match fs::rename(directory, &gone) {
        Ok(()) => start(gone),
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    Ok(())
}

/// Removes the directories of all jobs but these, and what an earlier keeper has not removed.
/// `shared`: in directories that nodes share, those of jobs that may be on other nodes.
pub(crate) fn keep_images(images: &Path, kept: &BTreeSet<JobId>, shared: &BTreeSet<(JobId, u64)>) {
    for (name, path) in entries(images) {
        let number = name.strip_prefix(JOB).and_then(|number| number.parse().ok());
        if number.is_some_and(|number| !kept.contains(&JobId(number))) {
            info!("removing {}", path.display());
            let is_needed = |of_job: PathBuf| {
                let is_it =
                    |&(job, number): &(JobId, u64)| of_job.ends_with(shared_name(job, number));
                shared.iter().any(is_it)
            };
            if let Err(error) = put_away(&path, !shared_of(&path).is_some_and(is_needed)) {
                warn!(code = %Code::System, "cannot rename {}: {error}", path.display());
            }
        }
    }
    remove_gone(images);
}

/// The name of the directory of a job's images in one that nodes share.
pub(super) fn shared_name(job: JobId, number: u64) -> String {
    format!("{}-{number:x}", name(job))
}

/// The directory of a job's images in one that nodes share, if its order names one.
fn shared_of(directory: &Path) -> Option<PathBuf> {
    let order = fs::read(directory.join(KEPT).join(ORDER)).ok()?;
    let order: SaverOrder = decode(order.get(4..)?).ok()?;
    Some(OsString::from_vec(order.shared?.into_vec()).into())
}

/// Has threads remove what has the name of a directory that is to be removed.
pub(crate) fn remove_gone(images: &Path) {
    for (name, path) in entries(images) {
        let is_new = name.starts_with(GONE) && removals().iter().all(|(known, _)| *known != path);
        if is_new {
            start(path);
        }
    }
}

fn entries(images: &Path) -> Vec<(String, PathBuf)> {
    let all = fs::read_dir(images).into_iter().flatten().flatten();
    all.filter_map(|entry| Some((entry.file_name().into_string().ok()?, entry.path()))).collect()
}

fn start(gone: PathBuf) {
    // The keeper's loop waits for nothing here but the owner of one directory.
    let user = symlink_metadata(gone.join(TMP)).map_or(0, |found| found.uid());
    let path = gone.clone();
    let removal = beside(user, move || remove_now(&path));
    removals().push((gone, removal));
}

/// Removes a directory. The job's user may have moved directories of other users into its `TMPDIR`,
/// so that is emptied with the rights of its owner. What is left then stays.
fn remove_now(gone: &Path) {
    if let Some(shared) = shared_of(gone) {
        let name = shared.file_name().and_then(OsStr::to_str).unwrap_or_default();
        let renamed = shared.with_file_name(format!("{GONE}{name}"));
        match fs::rename(&shared, &renamed) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                warn!(code = %Code::System, "cannot rename {}: {error}", shared.display());
            }
            // A keeper that was killed may have renamed it.
            _ if renamed.exists() => remove_now(&renamed),
            _ => {}
        }
    }
    let tmp = gone.join(TMP);
    let removed = match symlink_metadata(&tmp) {
        Ok(found) => remove_tree_of(&tmp, Some(found.uid())),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    };
    let Err(error) = removed else {
        if let Err(error) = remove_tree(gone) {
            warn!(code = %Code::System, "cannot remove {}: {error}", gone.display());
        }
        return;
    };
    for (name, path) in entries(gone) {
        if name != TMP
            && let Err(error) = remove_tree(&path)
        {
            warn!(code = %Code::System, "cannot remove {}: {error}", path.display());
        }
    }
    let left = gone.file_name().and_then(OsStr::to_str).unwrap_or_default().replacen(GONE, LEFT, 1);
    let left = gone.with_file_name(left);
    let left = if fs::rename(gone, &left).is_ok() { &left } else { gone };
    let (tmp, left) = (tmp.display(), left.display());
    warn!(code = %Code::System, "cannot remove {tmp}: {error}; what is left is in {left}");
}

/// Directories that threads remove.
fn removals() -> MutexGuard<'static, Vec<(PathBuf, Removal)>> {
    static ALL: Mutex<Vec<(PathBuf, Removal)>> = Mutex::new(Vec::new());
    let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
    all.retain(|(_, removal)| !removal.is_done());
    all
}

/// Waits until all directories are removed that are to be, up to 10 s.
pub(crate) fn end_removals() {
    let until = Instant::now() + PATIENCE;
    let all: Vec<(PathBuf, Removal)> = removals().drain(..).collect();
    for (_, removal) in all {
        removal.wait(until.saturating_duration_since(Instant::now()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::wait_for;
    use std::fs::{Permissions, create_dir, create_dir_all, set_permissions};
    use std::os::unix::fs::{PermissionsExt, chown};

    fn names(images: &Path) -> Vec<String> {
        entries(images).into_iter().map(|(name, _)| name).collect()
    }

    #[test]
    fn directories_of_other_users_stay_and_a_new_directory_of_the_same_job_is_not_touched() {
        if !nix::unistd::geteuid().is_root() {
            return;
        }
        let images = std::env::temp_dir().join(format!("tutti-images-{}", std::process::id()));
        let of = |job: u64| directory(&images, JobId(job));
        for job in 1..=3 {
            create_dir_all(of(job).join("kept/image")).unwrap();
            create_dir(of(job).join(TMP)).unwrap();
            chown(of(job).join(TMP), Some(70_001), Some(70_001)).unwrap();
        }
        // As if its user had moved it there.
        let theirs = of(1).join(TMP).join("theirs");
        create_dir(&theirs).unwrap();
        fs::write(theirs.join("file"), "x").unwrap();
        chown(&theirs, Some(70_002), Some(70_002)).unwrap();
        set_permissions(&theirs, Permissions::from_mode(0o755)).unwrap();
        fs::write(of(2).join(TMP).join("file"), "x").unwrap();
        create_dir(images.join("gone-of-a-killed-keeper")).unwrap();
        keep_images(&images, &[JobId(3)].into(), &BTreeSet::new());
        assert!(!of(1).exists() && !of(2).exists(), "they are renamed before this returns");
        create_dir(of(2)).unwrap();
        wait_for("the removals", || removals().is_empty().then_some(()));
        let mut found = names(&images);
        found.sort();
        let left = found.pop().unwrap();
        assert_eq!(found, ["job-2", "job-3"]);
        assert!(left.starts_with(LEFT), "{left}");
        let left = images.join(left);
        assert_eq!(names(&left), [TMP]);
        let inside = fs::read_dir(left.join(TMP)).unwrap().flatten().next().unwrap().path();
        assert!(inside.join("file").exists(), "it is another user's");
        // A thing that was put aside is not tried again.
        keep_images(&images, &BTreeSet::new(), &BTreeSet::new());
        wait_for("the removals", || removals().is_empty().then_some(()));
        assert_eq!(names(&images).len(), 1);
        remove_tree(&images).unwrap();
    }
}
