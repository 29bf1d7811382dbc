//! Scripts of jobs: written where only their owner can read them, and how to run one.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use tracing::warn;
use tutti_linux::remove_tree::remove_tree;
use tutti_types::JobId;
use tutti_wire::code::Code;
use tutti_wire::launch::Credentials;

/// The interpreter of a script that does not name one.
const SHELL: &[u8] = b"/bin/sh";

/// How the directory of a job in the spool begins.
const JOB: &str = "job-";

/// The directory of a job in the spool.
pub(super) fn directory(spool: &Path, job: JobId) -> PathBuf {
    spool.join(format!("{JOB}{job}"))
}

/// The file of a job's script.
pub(super) fn path(spool: &Path, job: JobId) -> PathBuf {
    directory(spool, job).join("script")
}

/// Writes a job's script; the spool itself must be one that its owner can pass through.
///
/// # Errors
/// If it can't be written, with the file named.
pub(super) fn write(
    spool: &Path,
    job: JobId,
    text: &[u8],
    owner: Option<&Credentials>,
) -> Result<PathBuf, String> {
    let directory = directory(spool, job);
    let path = path(spool, job);
    write_file(&directory, &path, text, owner)
        .map_err(|error| format!("cannot write the script '{}': {error}", path.display()))?;
    Ok(path)
}

fn write_file(
    directory: &Path,
    path: &Path,
    text: &[u8],
    owner: Option<&Credentials>,
) -> io::Result<()> {
    // Left over from a keeper that was killed.
    remove(directory);
    DirBuilder::new().recursive(true).mode(0o711).create(directory)?;
    // The mode above is less the mask of our parent.
    fs::set_permissions(directory, fs::Permissions::from_mode(0o711))?;
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o500).open(path)?;
    file.write_all(text)?;
    if let Some(owner) = owner {
        chown(path, Some(owner.uid), Some(owner.gid))?;
    }
    Ok(())
}

/// Removes a job's directory in the spool.
pub(super) fn remove(directory: &Path) {
    if let Err(error) = remove_tree(directory) {
        warn!(code = %Code::System, "cannot remove {}: {error}", directory.display());
    }
}

/// Removes what an earlier keeper, which was killed, has left in the spool, but for jobs up to this
/// number.
pub(super) fn remove_all(spool: &Path, kept: JobId) {
    for entry in fs::read_dir(spool).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        let job = name.strip_prefix(JOB).map(|rest| rest.parse().map_or(JobId(u64::MAX), JobId));
        if job.is_some_and(|job| job > kept) {
            remove(&entry.path());
        }
    }
}

/// What to start so that the script runs: the interpreter that its first line names, as the kernel
/// would, or the shell; then the script.
///
/// The kernel is not asked to do it, since state directories often lie in file systems from which
/// nothing may be executed.
pub(super) fn command(text: &[u8], path: &[u8]) -> Vec<Vec<u8>> {
    let mut words = Vec::new();
    if let Some((interpreter, argument)) = tutti_wire::script::interpreter(text) {
        words.push(interpreter.to_vec());
        // All that follows the interpreter is one argument.
        if !argument.is_empty() {
            words.push(argument.to_vec());
        }
    }
    if words.is_empty() {
        words.push(SHELL.to_vec());
    }
    words.push(path.to_vec());
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_says_who_runs_it() {
        let check = |text: &str, expected: &str| {
            let words = command(text.as_bytes(), b"/s");
            let words: Vec<&str> = words.iter().map(|w| std::str::from_utf8(w).unwrap()).collect();
            assert_eq!(words.join("|"), expected, "{text:?}");
        };
        check("#!/bin/bash\necho", "/bin/bash|/s");
        check("#! /usr/bin/env  -S python3 -u \n", "/usr/bin/env|-S python3 -u|/s");
        check("echo hello", "/bin/sh|/s");
        check("#!\n", "/bin/sh|/s");
        check("", "/bin/sh|/s");
        check("#!/bin/bash\r\n", "/bin/bash|/s");
    }

    #[test]
    fn a_script_is_its_owners_alone_and_goes_with_the_job() {
        let spool = std::env::temp_dir().join(format!("tutti-spool-{}", std::process::id()));
        for _ in 0..2 {
            let path = write(&spool, JobId(4), b"exit 0", None).unwrap();
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o500);
            let above = fs::metadata(path.parent().unwrap()).unwrap();
            assert_eq!(above.permissions().mode() & 0o777, 0o711);
        }
        remove(&directory(&spool, JobId(4)));
        assert!(fs::read_dir(&spool).unwrap().next().is_none());
        write(&spool, JobId(5), b"exit 0", None).unwrap();
        remove_all(&spool, JobId(0));
        assert!(fs::read_dir(&spool).unwrap().next().is_none());
        fs::remove_dir(&spool).unwrap();
    }
}
