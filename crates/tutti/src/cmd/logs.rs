//! `tutti logs`: the output of a submitted job, from its files.

use super::ask_journal;
use super::job_range::{Several, check_no_array, targets_of, whole_jobs};
use super::show::{LogFile, Stream, ask_to_show, files_of};
use anyhow::Context;
use clap::Args;
use nix::libc;
use nix::sys::statfs::{FUSE_SUPER_MAGIC, FsType, NFS_SUPER_MAGIC, fstatfs};
use nix::unistd::{Gid, User, geteuid, getgrouplist};
use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;
use tutti_client::ask::{ask_until_answered, unexpected};
use tutti_client::output::ended;
use tutti_linux::as_user::with_rights_of;
use tutti_node::codes::coded;
use tutti_node::exit::Exit;
use tutti_types::{JobId, Outcome};
use tutti_wire::code::Code;
use tutti_wire::local::{Reply, Request};
use tutti_wire::report::JobReport;
use tutti_wire::show::ShowReport;

/// How often files are looked at while a job runs.
const PAUSE: Duration = Duration::from_millis(200);

/// What one read takes.
const PIECE_BYTES: usize = 256 << 10;

/// The user and group that own nothing: the kernel's overflow ID.
const NO_ID: u32 = 65_534;

/// Files of one job that are shown together.
const FILES_MAX: usize = 256;

const EXAMPLES: &str = "\
Examples:
  tutti logs 7                 what job 7 has written so far
  tutti logs -f last           follow your latest job until it ends
  tutti logs -n 20 --rank 3 7  the last 20 lines of rank 3
  tutti logs --err solver      standard error of your job of this name

With -f, the exit code is that of the job, as with `tutti wait`. Ctrl-C ends
`tutti logs` alone.";

#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct LogsArgs {
    /// Follow: print what is written until the job has ended
    #[arg(short, long)]
    follow: bool,

    /// Only the file of this rank
    #[arg(short, long, value_name = "RANK")]
    rank: Option<u32>,

    /// Standard error instead of standard output
    #[arg(short, long)]
    err: bool,

    /// Begin with the last lines, at most this number
    #[arg(short = 'n', long, value_name = "LINES")]
    lines: Option<u64>,

    /// A job, the name of one of your jobs, or `last`
    #[arg(value_name = "JOB", value_parser = whole_jobs)]
    job: Several,
}

impl LogsArgs {
    /// Whether the exit code is that of a job.
    pub(crate) const fn follows(&self) -> bool {
        self.follow
    }

    /// Those that print what a job writes from now on.
    pub(super) const fn from_now_on(job: Several, rank: Option<u32>) -> Self {
        Self { follow: true, rank, err: false, lines: Some(0), job }
    }
}

pub(crate) fn execute(args: &LogsArgs) -> anyhow::Result<Exit> {
    let targets = targets_of(std::slice::from_ref(&args.job), true)?;
    let [target] = targets[..] else {
        let reason = "logs shows one job at a time; name it by its number, such as 7";
        return Err(coded(Code::CannotUnderstand, reason));
    };
    let mut report = ask_to_show(target.job, false)?;
    check_no_array(&report.job)?;
    if args.follow && report.ended_ms.is_none() && report.started_ms.is_none() {
        wait_for_begin(&report)?;
        report = ask_to_show(target.job, false)?;
    }
    let stream = if args.err { Stream::Error } else { Stream::Output };
    let mut shown = open_all(&report, stream, args.rank, args.lines)?;
    if !args.follow {
        shown.print_all()?;
        return shown.exit();
    }
    let end = end_of(target.job);
    let (report, outcome) = shown.follow(&end)?;
    ended::say_how(&report, outcome);
    Ok(Exit::of_job(outcome.exit_code))
}

/// Waits until a task of the job has begun, or the job has ended without.
fn wait_for_begin(report: &ShowReport) -> anyhow::Result<()> {
    let job = report.job.job;
    let why = match report.job.reason.as_str() {
        "" => String::new(),
        reason => format!(": {reason}"),
    };
    say!("tutti: job {job} is {}{why}; waiting for its output", report.job.state);
    match ask_until_answered(&Request::WaitBegun { job })? {
        Reply::Done | Reply::Ended { .. } => Ok(()),
        _ => unexpected(),
    }
}

/// Waits for the end of the job in a thread.
fn end_of(job: JobId) -> Receiver<anyhow::Result<(JobReport, Outcome)>> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let request = Request::Wait { job };
        let answer = ask_until_answered(&request).or_else(|error| ask_journal(&request, error));
        let end = answer.and_then(|reply| match reply {
            Reply::Ended { outcome, report, .. } => Ok((*report, outcome)),
            _ => unexpected(),
        });
        let _ = sender.send(end);
    });
    receiver
}

/// Finds the files of the job: of one rank, if that is given, from the last lines on.
pub(super) fn open_all(
    report: &ShowReport,
    stream: Stream,
    rank: Option<u32>,
    lines: Option<u64>,
) -> anyhow::Result<Shown> {
    let job = &report.job;
    let Some(details) = &report.details else {
        let reason = format!(
            "job {} belongs to {}, or an earlier release ran it; only its owner, or root, may see its output",
            job.job, job.user
        );
        return Err(coded(Code::NotAllowed, reason));
    };
    if report.ended_ms.is_none() && report.started_ms.is_none() {
        let reason = format!(
            "job {} is {}, and has no output yet; `tutti logs -f {0}` waits for it",
            job.job, job.state
        );
        return Err(coded(Code::NoOutput, reason));
    }
    let files = files_of(job, details, stream, rank)?;
    if files.len() > FILES_MAX {
        let reason = format!(
            "job {} has {} files; at most {FILES_MAX} are shown at once: choose one with --rank",
            job.job,
            files.len()
        );
        return Err(coded(Code::TooMuchAsked, reason));
    }
    if let (Some(rank), [LogFile { writers: (_, 2..), path, .. }]) = (rank, &files[..]) {
        say!(
            "tutti: rank {rank} has no file of its own: {} has lines of other ranks, too; submit with a name such as \
             -o %j-%r",
            path.display()
        );
    }
    Ok(Shown::new(files, lines, Owner::of(&job.user)))
}

/// The owner of a job whose output root reads. Files are opened with the owner's rights: the paths
/// are the owner's choice, and may lead to files of others by then.
struct Owner {
    uid: u32,
    gid: u32,
    groups: Vec<u32>,
}

impl Owner {
    /// `None`: files are opened with the caller's own rights.
    fn of(user: &str) -> Option<Self> {
        if !geteuid().is_root() {
            return None;
        }
        let Ok(Some(known)) = User::from_name(user) else {
            // A number, or a user that this machine does not know: it has no rights here then.
            let uid = user.parse().unwrap_or(NO_ID);
            return (uid != 0).then_some(Self { uid, gid: NO_ID, groups: Vec::new() });
        };
        let groups = CString::new(user).map(|name| getgrouplist(&name, known.gid));
        let groups = groups.ok().and_then(Result::ok).unwrap_or_default();
        let groups = groups.into_iter().map(Gid::as_raw).collect();
        let (uid, gid) = (known.uid.as_raw(), known.gid.as_raw());
        (uid != 0).then_some(Self { uid, gid, groups })
    }
}

/// The files that are printed.
pub(super) struct Shown {
    files: Vec<Reading>,
    owner: Option<Owner>,
    /// The file that was printed last.
    latest: Option<usize>,
    has_failed: bool,
    buffer: Vec<u8>,
}

/// A file, and how far it was printed.
struct Reading {
    of: LogFile,
    file: Option<File>,
    at: u64,
    /// How many lines are printed of what is there already.
    lines: Option<u64>,
}

impl Shown {
    fn new(files: Vec<LogFile>, lines: Option<u64>, owner: Option<Owner>) -> Self {
        let reading = |of| Reading { of, file: None, at: 0, lines };
        let files = files.into_iter().map(reading).collect();
        let buffer = vec![0; PIECE_BYTES];
        Self { files, owner, latest: None, has_failed: false, buffer }
    }

    /// Prints what is there, and reports files that are not.
    fn print_all(&mut self) -> anyhow::Result<()> {
        for index in 0..self.files.len() {
            self.print_new(index)?;
            if self.files[index].file.is_none() {
                self.say_missing(index);
            }
        }
        Ok(())
    }

    /// Prints what is there and what comes, until the job has ended; gives how.
    fn follow(
        &mut self,
        end: &Receiver<anyhow::Result<(JobReport, Outcome)>>,
    ) -> anyhow::Result<(JobReport, Outcome)> {
        loop {
            for index in 0..self.files.len() {
                self.print_new(index)?;
            }
            match end.recv_timeout(PAUSE) {
                Ok(ended) => {
                    // All was written before the end was reported.
                    self.print_all()?;
                    return ended;
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(coded(Code::System, "the thread that waits for the job is gone"));
                }
            }
        }
    }

    fn exit(&self) -> anyhow::Result<Exit> {
        Ok(if self.has_failed { Exit::FAILED } else { Exit::OK })
    }

    /// What has come since the last piece, at most so much at a time; nothing if nothing has.
    pub(super) fn next_piece(&mut self) -> anyhow::Result<Option<Vec<u8>>> {
        let count = self.files.len();
        // The file of the last piece first: its lines stay together.
        let first = self.latest.unwrap_or(0);
        for index in (first..count).chain(0..first) {
            let Reading { of, file, at, lines } = &mut self.files[index];
            let Some((mut file, length)) = look(of, file, at, lines, self.owner.as_ref())? else {
                continue;
            };
            let left =
                usize::try_from(length.saturating_sub(*at)).unwrap_or(PIECE_BYTES).min(PIECE_BYTES);
            let length = file.read(&mut self.buffer[..left]).with_context(|| failed(&of.path))?;
            if length == 0 {
                continue;
            }
            let mut piece = Vec::new();
            if count > 1 && self.latest != Some(index) {
                let gap = if self.latest.is_some() { "\n" } else { "" };
                piece.extend(format!("{gap}==> {} <==\n", of.path.display()).into_bytes());
            }
            self.latest = Some(index);
            piece.extend_from_slice(&self.buffer[..length]);
            *at += length as u64;
            return Ok(Some(piece));
        }
        Ok(None)
    }

    /// The first file that is not there, if none is.
    pub(super) fn missing(&self) -> Option<&LogFile> {
        let is_there = self.files.iter().any(|reading| reading.file.is_some());
        self.files.first().filter(|_| !is_there).map(|reading| &reading.of)
    }

    /// Prints what has come to a file since it was looked at.
    fn print_new(&mut self, index: usize) -> anyhow::Result<()> {
        let is_one = self.files.len() == 1;
        let Reading { of, file, at, lines } = &mut self.files[index];
        let Some((mut file, length)) = look(of, file, at, lines, self.owner.as_ref())? else {
            return Ok(());
        };
        let why = || failed(&of.path);
        let mut out = std::io::stdout().lock();
        // What comes meanwhile is printed in the next round, so that each file has its turn.
        while *at < length {
            let left = usize::try_from(length - *at).unwrap_or(PIECE_BYTES);
            let count = match file.read(&mut self.buffer[..PIECE_BYTES.min(left)]) {
                Ok(0) => break,
                Ok(count) => count,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error).with_context(why),
            };
            if !is_one && self.latest != Some(index) {
                let gap = if self.latest.is_some() { "\n" } else { "" };
                writeln!(out, "{gap}==> {} <==", of.path.display())?;
            }
            self.latest = Some(index);
            out.write_all(&self.buffer[..count])?;
            *at += count as u64;
        }
        out.flush()?;
        Ok(())
    }

    fn say_missing(&mut self, index: usize) {
        let LogFile { path, node, .. } = &self.files[index].of;
        self.has_failed = true;
        let where_from = match node.as_str() {
            "" => String::new(),
            node if is_here(node) => " on this machine".into(),
            node => format!(" here; the job wrote it on node {node}: run `tutti logs` there"),
        };
        say!([NoOutput] "tutti: there is no file {}{where_from}", path.display());
    }
}

/// Opens a file of the job unless it is open, and goes to where it was read to; its length.
fn look<'a>(
    of: &LogFile,
    file: &'a mut Option<File>,
    at: &mut u64,
    lines: &mut Option<u64>,
    owner: Option<&Owner>,
) -> anyhow::Result<Option<(&'a File, u64)>> {
    if file.is_none() {
        *file = find(of, owner)?;
    }
    let Some(mut file) = file.as_ref() else { return Ok(None) };
    let why = || failed(&of.path);
    let length = file.metadata().with_context(why)?.len();
    if length < *at {
        // Another launch of the job emptied it.
        *at = 0;
    }
    if let Some(lines) = lines.take() {
        *at = begin_of_last(file, lines).with_context(why)?;
    }
    file.seek(SeekFrom::Start(*at)).with_context(why)?;
    Ok(Some((file, length)))
}

/// Opens a file of the job, if it is there.
fn find(of: &LogFile, owner: Option<&Owner>) -> anyhow::Result<Option<File>> {
    let opened = match owner {
        Some(Owner { uid, gid, groups }) => with_rights_of(*uid, *gid, groups, || open(&of.path)),
        None => open(&of.path),
    };
    let file = match opened {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error).with_context(|| failed(&of.path)),
    };
    if !of.node.is_empty() && !is_here(&of.node) && !is_shared(&file) {
        say!(
            "tutti: the job writes {} on node {}; the file of this name here may be another one",
            of.path.display(),
            of.node
        );
    }
    Ok(Some(file))
}

fn failed(path: &Path) -> String {
    format!("cannot read the output file {}", path.display())
}

/// Opens a regular file; a pipe would never end.
fn open(path: &Path) -> std::io::Result<File> {
    let mut options = OpenOptions::new();
    let file = options.read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(std::io::Error::other("it is no regular file")),
    }
}

/// Whether a node is this machine.
fn is_here(node: &str) -> bool {
    nix::unistd::gethostname().is_ok_and(|name| name.to_string_lossy() == node)
}

/// Whether a file is on a file system that other machines may have, too.
fn is_shared(file: &File) -> bool {
    const OF_NETWORKS: [FsType; 7] = [
        NFS_SUPER_MAGIC,
        FsType(0x0102_1997), // 9p
        FUSE_SUPER_MAGIC,
        FsType(0x0bd0_0bd0), // Lustre
        FsType(0x0047_5047), // GPFS
        FsType(0x1983_0326), // BeeGFS
        FsType(0x00c3_6400), // Ceph
    ];
    fstatfs(file).is_ok_and(|found| OF_NETWORKS.contains(&found.filesystem_type()))
}

/// How much of a file is looked through for its last lines: one may have holes, or no line ends.
const LOOK_BACK_BYTES_MAX: u64 = 64 << 20;

/// Where the last lines of a file begin.
fn begin_of_last(mut file: &File, lines: u64) -> std::io::Result<u64> {
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
    use super::{PIECE_BYTES, begin_of_last};
    use std::fs::File;
    use std::io::{Seek, Write};

    fn begin(text: &[u8], lines: u64) -> u64 {
        let path = std::env::temp_dir().join(format!("tutti-logs-{}", std::process::id()));
        let mut file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
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
}
