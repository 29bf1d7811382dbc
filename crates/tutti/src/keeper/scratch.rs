//! A directory for temporary files of each job, which goes with the job: its `TMPDIR`.
//!
//! It lies where everybody may make one, so nothing is assumed of a name that is taken; and its owner may
//! put anything in its place, so what is removed is never reached through a link.

use nix::unistd::{getegid, geteuid};
use std::fs::{self, DirBuilder};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, lchown};
use std::path::{Path, PathBuf};
use std::sync::mpsc::sync_channel;
use std::time::Duration;
use tutti_core::JobId;
use tutti_wire::launch::Credentials;

/// Names that are tried before a job goes without.
const NAMES_MAX: u32 = 16;

/// How long the end of a job waits for its files to be removed; what takes longer goes on after it.
const PATIENCE: Duration = Duration::from_millis(100);

/// Makes the directory of a job, for its owner alone.
pub(super) fn make(prefix: &Path, job: JobId, owner: Option<&Credentials>) -> Option<PathBuf> {
    for number in 0..NAMES_MAX {
        let suffix = if number == 0 { String::new() } else { format!(".{number}") };
        let mut path = prefix.as_os_str().to_owned();
        path.push(format!("-job-{job}{suffix}"));
        let path = PathBuf::from(path);
        match DirBuilder::new().mode(0o700).create(&path) {
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
                say!("tutti keeper: job {job} has no TMPDIR of its own: {error}");
                return None;
            }
        }
    }
    say!("tutti keeper: job {job} has no TMPDIR of its own: all its names are taken");
    None
}

fn is_us(user: &Credentials) -> bool {
    user.uid == geteuid().as_raw() && user.gid == getegid().as_raw()
}

/// Whether a `TMPDIR` is that of a job, of whatever instance: it will go with that job.
pub(super) fn is_a_jobs(value: &[u8]) -> bool {
    let name = value.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
    let name = String::from_utf8_lossy(name);
    name.starts_with("tutti-") && name.contains("-job-")
}

/// Removes it with all that is in it.
pub(super) fn remove(path: PathBuf) {
    match fs::remove_dir(&path) {
        Ok(()) => return,
        Err(error) if error.kind() == ErrorKind::NotFound => return,
        // There is something in it, or it is no directory any more.
        Err(_) => {}
    }
    let (done, wait) = sync_channel(1);
    let begun = std::thread::Builder::new().stack_size(256 << 10).spawn(move || {
        remove_now(&path);
        // Nobody may wait any more.
        let _ = done.send(());
    });
    if begun.is_ok() {
        let _ = wait.recv_timeout(PATIENCE);
    }
}

fn remove_now(path: &Path) {
    if let Err(error) = fs::remove_dir_all(path)
        && error.kind() != ErrorKind::NotFound
    {
        say!("tutti keeper: cannot remove {}: {error}", path.display());
    }
}

/// Removes what an earlier keeper has left.
pub(super) fn remove_all(prefix: &Path) {
    for path in left(prefix) {
        remove_now(&path);
    }
}

fn left(prefix: &Path) -> Vec<PathBuf> {
    let (Some(parent), Some(name)) = (prefix.parent(), prefix.file_name()) else {
        return Vec::new();
    };
    let begin = format!("{}-job-", name.to_string_lossy());
    let entries = fs::read_dir(parent).into_iter().flatten().flatten();
    let ours = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(&begin));
    ours.map(|entry| entry.path()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn the_directory_of_an_outer_job_is_known() {
        assert!(is_a_jobs(b"/tmp/tutti-0-0123abcd-job-7") && is_a_jobs(b"/t/tutti-1-a-job-1.2"));
        assert!(!is_a_jobs(b"/scratch/ada") && !is_a_jobs(b"") && !is_a_jobs(b"/tmp"));
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
        assert_eq!((one.clone(), other.clone()), (base.join("t-job-7"), base.join("t-job-7.1")));
        assert_eq!(fs::metadata(&one).unwrap().permissions().mode() & 0o777, 0o700);
        symlink(&elsewhere, one.join("link")).unwrap();
        fs::create_dir(one.join("below")).unwrap();
        remove(one);
        fs::remove_dir(&other).unwrap();
        symlink(&elsewhere, &other).unwrap();
        assert_eq!(left(&prefix), std::slice::from_ref(&other));
        remove_all(&prefix);
        assert!(left(&prefix).is_empty() && elsewhere.join("kept").exists());
        fs::remove_dir_all(&base).unwrap();
    }
}
