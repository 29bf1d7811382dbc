//! Tasks whose processes can be saved to an image, as the keeper sees them.
//!
//! Such a task has a *saver* (`process`) where others have their minder: the first process of a PID
//! namespace of its own. The keeper writes what to run to a file, asks the saver to save by a byte,
//! and hears from it what a minder says, or that the processes are saved.
//!
//! A job with images has a directory that outlives the instance. It stays when a run has ended, and
//! until the controller says that the job has:
//!
//! - `kept`, for root alone: the order, the image, the one that is being made, and why something
//!   has failed;
//! - `tmp`: its `TMPDIR`, which its next run finds as the one before has left it.
//!
//! Where nodes share a directory of images, image and `TMPDIR` are in a directory there. Only the
//! saver and threads touch that: the keeper's loop waits for no file system of other machines.

mod files;
mod images;
mod machine;
mod memory;
mod patience;
mod process;
mod room;
mod whole;

use super::context::Context;
use super::job::Job;
use super::job::Phase;
use super::program::Refusal;
use super::script;
use images::{TMP, directory, put_away};
use nix::fcntl::OFlag;
use nix::unistd::pipe2;
use serde_bytes::ByteBuf;
use std::env::split_paths;
use std::ffi::{CString, OsStr, OsString};
use std::fs::{self, DirBuilder, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt, chown};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use tutti_linux::spawn::{Child, Spawn, StdioFd, Unwanted};
use tutti_node::executable::RUNNING;
use tutti_node::shared_images::IMAGES_VARIABLE;
use tutti_types::{SharedImage, TaskStatus};
use tutti_wire::frame::encode;
use tutti_wire::keeper::FromKeeper;
use tutti_wire::launch::{Credentials, Launch, cut};
use tutti_wire::limits::TASK_DETAIL_BYTES_MAX;
use tutti_wire::saver::{
    DAMAGED, IMAGE, NOT_RESTORED, NOT_SAVED, NOT_STARTED, ORDER, SAVED_GOES_ON, SAVER_FD,
    SAVER_REPORT_FD, SaverOrder, SaverStream, WENT_ON, WHY,
};

pub(super) use images::{end_removals, keep_images, remove_gone};
pub use process::main as serve;

/// The variable that names the command which saves and restores, and that command otherwise.
const CRIU_VARIABLE: &str = "TUTTI_CRIU";
const CRIU: &str = "criu";

/// Maximum length of what a saver says of a failure.
const WHY_BYTES_MAX: u64 = 1 << 10;

/// Where commands of the system are that are not in every `PATH`.
const SYSTEM_DIRECTORIES: &str = "/usr/sbin:/sbin";

/// The command that saves and restores: that of the environment, or `criu`. One without a slash is
/// searched for in the `PATH` of this process, then in `/usr/sbin` and `/sbin`.
#[must_use]
pub fn criu() -> OsString {
    let named = std::env::var_os(CRIU_VARIABLE).filter(|it| !it.is_empty());
    let named = named.unwrap_or_else(|| CRIU.into());
    let path = std::env::var_os("PATH").unwrap_or_default();
    // A saver has no environment, and so no such variable.
    find(&named, &path).map_or(named, PathBuf::into_os_string)
}

/// The first executable file of a name without a slash.
fn find(name: &OsStr, path: &OsStr) -> Option<PathBuf> {
    if name.as_bytes().contains(&b'/') {
        return None;
    }
    let directories = split_paths(path).chain(split_paths(SYSTEM_DIRECTORIES));
    let mut found = directories.filter(|it| it.is_absolute()).map(|it| it.join(name));
    found.find(|file| {
        let is_executable = |it: fs::Metadata| it.is_file() && it.permissions().mode() & 0o111 != 0;
        fs::metadata(file).is_ok_and(is_executable)
    })
}

/// Makes the directory of a job whose processes can be saved; an image that this run is not
/// restored from is removed. Its `TMPDIR`; `None` for other jobs.
pub(super) fn prepare(launch: &Launch, context: &Context) -> Result<Option<PathBuf>, Refusal> {
    if !launch.saves_image {
        return Ok(None);
    }
    if context.launching.uid != 0 {
        let why = "processes are saved to an image (--checkpoint) only by an instance of root";
        return Err(Refusal::new(why.into()));
    }
    let directory = directory(&context.launching.images, launch.job);
    let shared = shared_directory(launch, context)?;
    let made = make(&directory, &launch.credentials, launch.resumes > 0).and_then(|tmp| {
        // That of an earlier run is no news of this one.
        match fs::remove_file(directory.join(images::KEPT).join(WENT_ON)) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            _ => Ok(tmp),
        }
    });
    let made = made.map(|tmp| Some(shared.map_or(tmp, |shared| shared.join(TMP))));
    made.map_err(|error| {
        Refusal::new(format!("cannot make '{}' for its image: {error}", directory.display()))
    })
}

/// The directory of a job's images, if they are in one that nodes share.
fn shared_directory(launch: &Launch, context: &Context) -> Result<Option<PathBuf>, Refusal> {
    let Some(SharedImage { place, number }) = launch.shared_image else { return Ok(None) };
    let shared = context.launching.shared_images.as_ref();
    match shared.filter(|shared| shared.place == place) {
        Some(shared) => {
            let name = images::shared_name(launch.job, number);
            Ok(Some(shared.directory.join(name)))
        }
        None => {
            let why = format!(
                "its images are in a directory that nodes share ({IMAGES_VARIABLE}), and this \
                 node has another one since its instance was started"
            );
            Err(Refusal::new(why))
        }
    }
}

fn make(directory: &Path, owner: &Credentials, restores: bool) -> io::Result<PathBuf> {
    if !restores {
        put_away(directory, true)?;
    }
    if let Some(images) = directory.parent().filter(|images| !images.exists()) {
        DirBuilder::new().mode(0o755).recursive(true).create(images)?;
        fs::set_permissions(images, Permissions::from_mode(0o711))?;
    }
    make_job(directory, owner)
}

/// Makes the directory of a job's images, with what has to be in it.
fn make_job(directory: &Path, owner: &Credentials) -> io::Result<PathBuf> {
    let (kept, tmp) = (directory.join(images::KEPT), directory.join(TMP));
    for (path, mode) in [(directory, 0o711), (&*kept, 0o700), (&*tmp, 0o700)] {
        match DirBuilder::new().mode(mode).create(path) {
            Ok(()) => fs::set_permissions(path, Permissions::from_mode(mode))?,
            Err(error) if error.kind() == ErrorKind::AlreadyExists => continue,
            Err(error) => return Err(error),
        }
        if path == tmp {
            chown(path, Some(owner.uid), Some(owner.gid))?;
        }
    }
    Ok(tmp)
}

/// Starts the saver of a task that would be started so.
pub(super) fn spawn(
    launch: &Launch,
    task: &Spawn<'_>,
    unwanted: &Unwanted,
    context: &mut Context,
) -> Result<Child, Refusal> {
    if task.cgroup.is_none() {
        // Suspended by signals, its processes would be saved as stopped ones.
        let why = "processes are saved to an image (--checkpoint) only where jobs have cgroups; \
                   `tutti doctor` says why there are none";
        return Err(Refusal::new(why.into()));
    }
    let kept = directory(&context.launching.images, launch.job).join(images::KEPT);
    let shared = shared_directory(launch, context)?;
    write_order(&kept, &order(launch, task, (shared, &context.launching.spool)))
        .map_err(|error| Refusal::io("cannot write what to run", &error))?;
    let started = start(&kept, task, unwanted, context);
    started.map_err(|error| Refusal::io("cannot start the process that saves it", &error))
}

fn start(
    kept: &Path,
    task: &Spawn<'_>,
    unwanted: &Unwanted,
    context: &mut Context,
) -> io::Result<Child> {
    let (ours, theirs) = UnixStream::pair()?;
    let (report, reports) = pipe2(OFlag::O_CLOEXEC)?;
    context.launching.room.check(&reports)?;
    ours.set_nonblocking(true)?;
    nonblocking(&report)?;
    let words = [&b"tutti"[..], b"saver", kept.as_os_str().as_bytes()];
    let argv = words.map(|word| CString::new(word).unwrap_or_default());
    let spawn = Spawn {
        argv: &argv,
        env: [&[], &[]],
        program: &[CString::new(RUNNING).unwrap_or_default()],
        cwd: c"/",
        umask: 0o077,
        nice: Some(0),
        rlimits: &[],
        identity: None,
        processors: None,
        held_by_group: false,
        stdio: [StdioFd::Null, StdioFd::Null, StdioFd::Null],
        pass: &[(theirs.as_raw_fd(), SAVER_FD), (reports.as_raw_fd(), SAVER_REPORT_FD)],
        new_session: true,
        terminal: false,
        complaint: None,
        minder: false,
        isolated: true,
        ..task.clone()
    };
    let child = context.launching.nursery.spawn(&spawn, unwanted)?;
    Ok(Child { report, status: Some(OwnedFd::from(ours)), ..child })
}

fn nonblocking(fd: &OwnedFd) -> io::Result<()> {
    nix::fcntl::fcntl(fd, nix::fcntl::FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
    Ok(())
}

fn order(
    launch: &Launch,
    task: &Spawn<'_>,
    (directory, spool): (Option<PathBuf>, &Path),
) -> SaverOrder {
    let script = launch.spec.script.is_some().then(|| script::path(spool, launch.job));
    let texts = |texts: &[CString]| -> Vec<ByteBuf> {
        texts.iter().map(|text| ByteBuf::from(text.as_bytes())).collect()
    };
    let [shared, own] = task.env;
    let stream = |stream: &StdioFd<'_>| match stream {
        StdioFd::Open { path, flags, .. } => {
            SaverStream::File { path: ByteBuf::from(path.as_bytes()), flags: *flags }
        }
        StdioFd::Stdout => SaverStream::Output,
        StdioFd::Null | StdioFd::Fd(_) => SaverStream::Null,
    };
    let owner = &launch.credentials;
    SaverOrder {
        job: launch.job,
        argv: texts(task.argv),
        environment: [texts(shared), texts(own)].concat(),
        candidates: texts(task.program),
        directory: ByteBuf::from(task.cwd.to_bytes()),
        umask: task.umask,
        nice: task.nice.unwrap_or(0),
        rlimits: task.rlimits.to_vec(),
        identity: (owner.uid, owner.gid, owner.groups.clone()),
        processors: task.processors.unwrap_or_default().to_vec(),
        streams: [&task.stdio[0], &task.stdio[1], &task.stdio[2]].map(stream),
        complaint: task.complaint.map(|text| ByteBuf::from(text.to_bytes())),
        criu: ByteBuf::from(criu().into_vec()),
        shared: directory.map(|it| ByteBuf::from(it.into_os_string().into_vec())),
        script: script.map(|it| ByteBuf::from(it.into_os_string().into_vec())),
        restores: launch.resumes > 0,
    }
}

fn write_order(kept: &Path, order: &SaverOrder) -> io::Result<()> {
    let mut bytes = Vec::new();
    encode(order, &mut bytes).map_err(|_| ErrorKind::InvalidInput)?;
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    options.open(kept.join(ORDER))?.write_all(&bytes)
}

impl Job {
    fn kept(&self, context: &Context) -> PathBuf {
        directory(&context.launching.images, self.launch.job).join(images::KEPT)
    }

    /// Asks for the processes of all tasks to be saved.
    pub(super) fn ask_savers(&self, how: u8) {
        for task in &self.tasks {
            let Phase::Running(process) = &task.phase else { continue };
            let minder = process.minder.as_ref().filter(|_| self.launch.saves_image);
            if let Some(minder) = minder {
                // One that has ended hears nothing, and one that is far behind was asked before.
                let _ = nix::unistd::write(&minder.fd, &[how]);
            }
        }
    }

    /// What the end of a task means that its saver has told.
    pub(super) fn judge_saver(&mut self, told: i32, context: &Context) -> (TaskStatus, String) {
        // Files of shared memory are found again by the processes that have them.
        self.traces.keep_shared();
        match told {
            NOT_RESTORED => (TaskStatus::NotRestored, why(&self.kept(context))),
            NOT_STARTED => (TaskStatus::NotExecutable, why(&self.kept(context))),
            DAMAGED => (TaskStatus::Damaged, why(&self.kept(context))),
            _ => (TaskStatus::Saved, String::new()),
        }
    }

    /// The end of a run that was to be restored from its image, and has no process: the job is held
    /// and keeps its image. Other ends stay as they are.
    pub(super) fn or_not_restored(
        &mut self,
        had_root: bool,
        (status, detail): (TaskStatus, String),
    ) -> (TaskStatus, String) {
        let restores = self.launch.saves_image && self.launch.resumes > 0;
        if !restores || had_root || self.life.is_killed() {
            return (status, detail);
        }
        let why = match detail.is_empty() {
            true => "the process that restores it ended and gave no reason".into(),
            false => detail,
        };
        self.traces.keep_shared();
        (TaskStatus::NotRestored, why)
    }

    /// A task goes on: it is saved, or could not be.
    pub(super) fn report_goes_on(&self, said: i32, context: &mut Context) {
        let failure = (said != SAVED_GOES_ON).then(|| why(&self.kept(context)));
        let (launch, ends) = (self.launch.id(), said == NOT_SAVED);
        context.reports.push(FromKeeper::GoesOn { launch, failure, ends });
    }

    /// Whether there is an image of its processes, made while they went on.
    pub(super) fn has_image(&self, context: &Context) -> bool {
        // A run that starts from the beginning has removed an earlier one.
        let kept = self.kept(context);
        let has_image = match self.launch.shared_image {
            None => files::has_list(&kept.join(IMAGE)),
            Some(_) => kept.join(WENT_ON).exists(),
        };
        self.launch.saves_image && has_image
    }
}

/// What a saver has said of a failure.
fn why(kept: &Path) -> String {
    let mut text = String::new();
    let read = fs::File::open(kept.join(WHY))
        .and_then(|file| file.take(WHY_BYTES_MAX).read_to_string(&mut text));
    match read {
        Ok(_) => cut(text, TASK_DETAIL_BYTES_MAX),
        Err(error) => format!("the reason can't be read: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_without_a_slash_is_found_in_the_path() {
        let find = |name: &str, path: &str| find(OsStr::new(name), OsStr::new(path));
        assert_eq!(find("sh", "/nowhere:/bin"), Some("/bin/sh".into()));
        assert_eq!(find("./sh", "/bin"), None);
        assert_eq!(find("passwd", "/etc"), None, "it is no program");
    }
}
