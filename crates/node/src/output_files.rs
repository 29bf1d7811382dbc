//! The files that a submitted job writes: their names, by patterns, and how they are read.
//!
//! A file is read with the rights of the job's owner: the path is the owner's choice, and may lead
//! to files of others.

use crate::codes::coded;
use nix::fcntl::{AT_FDCWD, OFlag, OpenHow, ResolveFlag, openat2};
use nix::libc;
use nix::sys::statfs::{
    BPF_FS_MAGIC, CGROUP_SUPER_MAGIC, CGROUP2_SUPER_MAGIC, DEBUGFS_MAGIC, FsType, PROC_SUPER_MAGIC,
    RDTGROUP_SUPER_MAGIC, SECURITYFS_MAGIC, SELINUX_MAGIC, SMACK_MAGIC, SYSFS_MAGIC, TRACEFS_MAGIC,
    fstatfs,
};
use nix::unistd::{Gid, Uid, User, geteuid, getgrouplist};
use std::ffi::{CString, OsStr};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use tutti_linux::as_user::with_rights_of;
use tutti_types::{Rank, StepId};
use tutti_wire::code::Code;
use tutti_wire::launch::{NULL_DEVICE, Stdio};
use tutti_wire::pattern::{PatternError, PatternValues, expand, names_node, names_rank};
use tutti_wire::report::JobReport;
use tutti_wire::show::JobDetails;

/// The user and group that own nothing: the kernel's overflow ID.
const NO_ID: u32 = 65_534;

/// What is read at once while the last lines are looked for.
const PIECE_BYTES: usize = 256 << 10;

/// How much of a file is looked through for its last lines: one may have holes, or no line ends.
const LOOK_BACK_BYTES_MAX: u64 = 64 << 20;

/// Which output of a job is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// Standard output.
    Output,
    /// Standard error.
    Error,
}

/// A file that a job writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogFile {
    /// Its path from the root.
    pub path: PathBuf,
    /// The node on which it is written.
    pub node: String,
    /// The tasks that write to it: the lowest rank, and how many there are.
    pub writers: (u32, u32),
}

/// A file's name for people: filled in, unless each rank or node has its own.
#[must_use]
pub fn file_name(pattern: &[u8], job: &JobReport, details: &JobDetails) -> String {
    if job.is_whole_array() {
        return directory(details).join(OsStr::from_bytes(pattern)).to_string_lossy().into_owned();
    }
    let is_one = job.tasks == 1 || !(names_rank(pattern) || names_node(pattern));
    let node = details.nodes.first().map(|share| share.node.as_str());
    let filled = match (is_one, node, names_node(pattern)) {
        (true, Some(node), _) => path_of(pattern, job, details, (0, node)).ok(),
        (true, None, false) => path_of(pattern, job, details, (0, "")).ok(),
        _ => None,
    };
    let path = filled.unwrap_or_else(|| directory(details).join(OsStr::from_bytes(pattern)));
    path.to_string_lossy().into_owned()
}

fn directory(details: &JobDetails) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(&details.directory))
}

fn path_of(
    pattern: &[u8],
    job: &JobReport,
    details: &JobDetails,
    (rank, node): (u32, &str),
) -> Result<PathBuf, PatternError> {
    let values = PatternValues {
        job: job.job,
        rank: Rank(rank),
        name: &job.name,
        node,
        user: &details.user_in_names,
        step: StepId::FIRST.0,
    };
    let name = expand(pattern, &values)?;
    Ok(directory(details).join(OsStr::from_bytes(&name)))
}

/// The files of one stream of a job: of one rank, or of all of them by rank.
///
/// # Errors
/// If the job writes no files, has no such rank, or its nodes are not known.
pub fn files_of(
    job: &JobReport,
    details: &JobDetails,
    stream: Stream,
    rank: Option<u32>,
) -> anyhow::Result<Vec<LogFile>> {
    let number = job.job;
    let none = |reason: String| Err(coded(Code::NoOutput, reason));
    let (output, error) = match &details.stdio {
        Stdio::Files { output, error, .. } => (output, error.as_ref().unwrap_or(output)),
        Stdio::FrontEnd { .. } => {
            return none(format!(
                "job {number} has no output file: a `tutti run` shows its output where it was started; `tutti \
                 submit` writes files"
            ));
        }
        Stdio::Kept => {
            return none(format!(
                "job {number} has no output file that Tutti knows: its processes were adopted, and write where they \
                 wrote before"
            ));
        }
    };
    let pattern = match stream {
        Stream::Output => output,
        Stream::Error => error,
    };
    if pattern.as_slice() == NULL_DEVICE {
        return none(format!("the output of job {number} goes to /dev/null, and is not kept"));
    }
    if let Some(rank) = rank.filter(|rank| *rank >= job.tasks) {
        let last = job.tasks.saturating_sub(1);
        let reason = format!("job {number} has no rank {rank}; its ranks are 0 to {last}");
        return Err(coded(Code::NoPart, reason));
    }
    let mut files: Vec<LogFile> = Vec::new();
    for (first, count, node) in groups(job, details, pattern) {
        let has_rank = |rank: u32| (first..first.saturating_add(count)).contains(&rank);
        if rank.is_none_or(has_rank) {
            let path = path_of(pattern, job, details, (first, node))
                .map_err(|error| coded(Code::BadFile, error.to_string()))?;
            files.push(LogFile { path, node: node.to_owned(), writers: (first, count) });
        }
    }
    if files.is_empty() {
        return none(format!(
            "the nodes of job {number} are not known, and so the names of its files; `tutti show {number}` has their \
             pattern"
        ));
    }
    Ok(files)
}

/// The tasks that share each file: the lowest rank, how many, and the node that writes it.
fn groups<'a>(
    job: &JobReport,
    details: &'a JobDetails,
    pattern: &[u8],
) -> Vec<(u32, u32, &'a str)> {
    let (by_rank, by_node) = (names_rank(pattern), names_node(pattern));
    let first_node = details.nodes.first().map_or("", |share| share.node.as_str());
    if !by_rank && !by_node {
        return vec![(0, job.tasks, first_node)];
    }
    let mut groups = Vec::new();
    let mut first = 0_u32;
    for share in &details.nodes {
        let node = share.node.as_str();
        match by_rank {
            true => groups.extend((first..first + share.tasks).map(|rank| (rank, 1, node))),
            false => groups.push((first, share.tasks, node)),
        }
        first = first.saturating_add(share.tasks);
    }
    // Behind the nodes that are listed, names with a node in them are not known.
    if !by_node {
        groups.extend((first..job.tasks).map(|rank| (rank, 1, "")));
    }
    groups
}

/// The owner of a job whose output root reads.
#[derive(Clone, Debug)]
pub struct Owner {
    uid: u32,
    gid: u32,
    groups: Vec<u32>,
}

impl Owner {
    /// The user of this name, or number. `None`: files are opened with the caller's own rights,
    /// since it is not root, or the owner is.
    #[must_use]
    pub fn named(user: &str) -> Option<Self> {
        if !geteuid().is_root() {
            return None;
        }
        match User::from_name(user) {
            Ok(Some(known)) => Self::known(&known),
            // A number, or a user that this machine does not know: it has no rights here then.
            _ => Self::unknown(user.parse().unwrap_or(NO_ID)),
        }
    }

    /// The user of this number, as [`Self::named`].
    #[must_use]
    pub fn numbered(uid: u32) -> Option<Self> {
        if !geteuid().is_root() {
            return None;
        }
        match User::from_uid(Uid::from_raw(uid)) {
            Ok(Some(known)) => Self::known(&known),
            _ => Self::unknown(uid),
        }
    }

    fn known(user: &User) -> Option<Self> {
        let groups = CString::new(&*user.name).map(|name| getgrouplist(&name, user.gid));
        let groups = groups.ok().and_then(Result::ok).unwrap_or_default();
        let groups = groups.into_iter().map(Gid::as_raw).collect();
        let (uid, gid) = (user.uid.as_raw(), user.gid.as_raw());
        (uid != 0).then_some(Self { uid, gid, groups })
    }

    fn unknown(uid: u32) -> Option<Self> {
        (uid != 0).then_some(Self { uid, gid: NO_ID, groups: Vec::new() })
    }
}

/// Opens an output file with the rights of its owner, or with those of this process.
///
/// # Errors
/// If it is not there, no regular file, or not the owner's to read.
pub fn open(path: &Path, owner: Option<&Owner>) -> io::Result<File> {
    let file = match owner {
        Some(Owner { uid, gid, groups }) => {
            with_rights_of(*uid, *gid, groups, || open_for_other(path))?
        }
        None => {
            // A pipe or a terminal would never end.
            let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
            OpenOptions::new().read(true).custom_flags(flags).open(path)?
        }
    };
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::other("it is no regular file")),
    }
}

/// File systems in which the kernel shows itself.
const OF_THE_KERNEL: [FsType; 11] = [
    PROC_SUPER_MAGIC,
    SYSFS_MAGIC,
    CGROUP_SUPER_MAGIC,
    CGROUP2_SUPER_MAGIC,
    DEBUGFS_MAGIC,
    TRACEFS_MAGIC,
    SECURITYFS_MAGIC,
    SELINUX_MAGIC,
    SMACK_MAGIC,
    BPF_FS_MAGIC,
    RDTGROUP_SUPER_MAGIC,
];

/// Opens a file for another user. That user may have named a path through this process, such as
/// `/proc/self/fd/3`: the kernel lets a process look into itself, whatever rights a thread has.
fn open_for_other(path: &Path) -> io::Result<File> {
    let flags = OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
    let how = OpenHow::new().flags(flags).resolve(ResolveFlag::RESOLVE_NO_MAGICLINKS);
    let file = match openat2(AT_FDCWD, path, how) {
        Ok(file) => File::from(file),
        Err(nix::Error::ENOSYS) => {
            return Err(io::Error::other("to read files of other users, Linux 5.6 is needed"));
        }
        Err(error) => return Err(error.into()),
    };
    // What the kernel shows there may depend on capabilities, which this thread keeps.
    match OF_THE_KERNEL.contains(&fstatfs(&file)?.filesystem_type()) {
        true => Err(io::Error::other("it is no output file, but one of the kernel's")),
        false => Ok(file),
    }
}

/// Where the last lines of a file begin.
///
/// # Errors
/// If it can't be read.
pub fn begin_of_last(mut file: &File, lines: u64) -> io::Result<u64> {
    let mut at = file.seek(SeekFrom::End(0))?;
    let (end, mut found) = (at, 0);
    let least = end.saturating_sub(LOOK_BACK_BYTES_MAX);
    if lines == 0 {
        return Ok(end);
    }
    let mut piece = vec![0; PIECE_BYTES];
    while at > least {
        let begin = at.saturating_sub(PIECE_BYTES as u64).max(least);
        let count = usize::try_from(at - begin).unwrap_or(PIECE_BYTES);
        file.seek(SeekFrom::Start(begin))?;
        file.read_exact(&mut piece[..count])?;
        for index in (0..count).rev() {
            let position = begin + index as u64;
            // The line end that ends the file begins no line.
            if piece[index] == b'\n' && position + 1 < end {
                found += 1;
                if found == lines {
                    return Ok(position + 1);
                }
            }
        }
        at = begin;
    }
    Ok(least)
}

#[cfg(test)]
mod tests {
    use super::{Owner, PIECE_BYTES, begin_of_last, open};
    use nix::unistd::geteuid;
    use std::fs::{self, File};
    use std::io::{Seek, Write};
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::path::{Path, PathBuf};

    fn place(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("tutti-output-{name}-{}", std::process::id()))
    }

    fn begin(text: &[u8], lines: u64) -> u64 {
        let path = place("lines");
        let mut file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
        fs::remove_file(&path).unwrap();
        file.write_all(text).unwrap();
        file.rewind().unwrap();
        begin_of_last(&file, lines).unwrap()
    }

    #[test]
    fn last_lines_begin_behind_a_line_end() {
        assert_eq!(begin(b"one\ntwo\nthree\n", 1), 8);
        assert_eq!(begin(b"one\ntwo\nthree", 2), 4);
        assert_eq!(begin(b"one\ntwo\n", 9), 0);
        assert_eq!((begin(b"one\ntwo\n", 0), begin(b"", 3)), (8, 0));
        let mut long = vec![b'x'; 3 * PIECE_BYTES];
        long[PIECE_BYTES - 1] = b'\n';
        assert_eq!(begin(&long, 1), PIECE_BYTES as u64);
    }

    #[test]
    fn a_user_reads_no_file_by_way_of_the_process_that_opens_it() {
        if !geteuid().is_root() {
            return;
        }
        let other = Owner { uid: 1001, gid: 1001, groups: Vec::new() };
        let why = |path: &Path| open(path, Some(&other)).unwrap_err().to_string();
        let base = place("magic");
        fs::create_dir(&base).unwrap();
        // A file that all may read in a directory that this user may not enter.
        let (hidden, link) = (base.join("hidden"), place("link"));
        fs::create_dir(&hidden).unwrap();
        fs::write(hidden.join("file"), "secret").unwrap();
        fs::set_permissions(hidden.join("file"), fs::Permissions::from_mode(0o644)).unwrap();
        fs::set_permissions(&hidden, fs::Permissions::from_mode(0o700)).unwrap();
        assert!(why(&hidden.join("file")).contains("Permission denied"));
        let file = File::open(hidden.join("file")).unwrap();
        symlink(format!("/proc/self/fd/{}", file.as_raw_fd()), &link).unwrap();
        assert!(why(&link).contains("symbolic links"), "{}", why(&link));
        assert!(why(Path::new("/proc/self/maps")).contains("the kernel's"));
        assert!(why(Path::new("/dev/null")).contains("no regular file"));
        fs::remove_file(&link).unwrap();
        fs::remove_dir_all(&base).unwrap();
    }
}
