//! The saver: the first process of a PID namespace in which the processes of a task are.
//!
//! It starts the task's program, or has CRIU restore its processes, and ends with the task's root;
//! the kernel then ends all that is left in the namespace. Asked to, it has CRIU save them. CRIU
//! runs in the namespace too, as the job's user: files that processes have open are opened again
//! with the rights of that user. It is no part of an image, so that another release can restore it.
//!
//! The root of the task takes in what loses its parent. So all processes are one tree below the
//! root, as CRIU wants it. While they are saved they stand still, until the image is whole and has
//! its name. Then they end, or go on. Before an image of those that went on is restored, files to
//! which they have appended since are cut: what was written later is written again. What is cut off
//! is kept in files beside them.

use super::images::KEPT;
use super::patience::Patience;
use super::{files, machine, make_job, memory, room, whole};
use anyhow::{Context, bail, ensure};
use nix::errno::Errno;
use nix::fcntl::Flock;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::Pid;
use serde_bytes::ByteBuf;
use std::collections::BTreeSet;
use std::ffi::{CString, OsStr, OsString};
use std::fs::{self, DirBuilder, File};
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{DirBuilderExt, chown};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};
use tutti_linux::inherited::Inherited;
use tutti_linux::own_processes::{
    become_user_that_restores, fail_beyond_limit, mount_own_proc, write_no_more,
};
use tutti_linux::reap::{End, ended_child, reap};
use tutti_linux::remove_tree::remove_tree;
use tutti_linux::spawn::{Identity, Nursery, Report, Spawn, StdioFd, Unwanted, read_report};
use tutti_node::executable::RUNNING;
use tutti_wire::frame::decode;
use tutti_wire::launch::Credentials;
use tutti_wire::saver::{
    DAMAGED, IMAGE, NOT_KEPT, NOT_RESTORED, NOT_SAVED, NOT_STARTED, ORDER, SAVE_AND_END, SAVED,
    SAVED_GOES_ON, SAVER_FD, SAVER_REPORT_FD, SaverOrder, SaverStream, WENT_ON, WHY,
};

/// The descriptor by which CRIU finds the directory of an image.
const IMAGE_FD: i32 = 3;

/// Below the directory of an order: the image that is being made, and the one before it.
const NEW: &str = "new";
const OLD: &str = "old";

/// In an image: the PIDs and thread IDs of its processes.
const NUMBERS: &str = "tutti-pids";

/// In an image: what CRIU says.
const LOG: &str = "criu.log";

/// Below the directory of an order: what CRIU prints.
const SAID: &str = "said";

/// Files that are open and have no name are part of an image up to this size.
const GHOST_LIMIT: &str = "256M";

/// PIDs that CRIU and its helpers may take while they restore.
const PIDS_OF_CRIU: u32 = 64;

/// How often it is looked whether there is room for what CRIU writes, and whether it gets on, in
/// milliseconds.
const LOOK: u16 = 500;

/// How long CRIU may take to fail: when it may write no more, and when the root that it saves has
/// ended.
const TO_FAIL: Duration = Duration::from_secs(10);

/// An exit status from here on says that CRIU was ended by a signal, where a shell has run it.
const SIGNALED: u8 = 128;

/// Maximum length of a log of CRIU that is read.
const LOG_BYTES_MAX: u64 = 4 << 20;

/// What CRIU does at present.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Doing {
    /// Whether the processes end then.
    Saves {
        ends: bool,
    },
    Restores,
}

/// CRIU while it runs.
struct Criu {
    pid: i32,
    doing: Doing,
    patience: Patience,
    /// Whether it took too long, and may write no more.
    is_late: bool,
    /// The wait status of the task's root, if that has ended meanwhile.
    root: Option<i32>,
}

struct Saver {
    order: SaverOrder,
    kept: PathBuf,
    /// Where the images are: there, or in a directory that nodes share.
    store: PathBuf,
    keeper: UnixStream,
    reports: File,
    /// Where PIDs are those of outside.
    outside: File,
    nursery: Nursery,
    unwanted: Unwanted,
    /// The root of the task, once it is there.
    root: Option<i32>,
    /// CRIU, while it runs.
    criu: Option<Criu>,
    /// What the keeper has asked since CRIU began: to save, and whether to end then.
    wanted: Option<bool>,
    /// Room on the file system, while an image is being made.
    room: Option<Flock<File>>,
    /// Whether that room was too little for it.
    is_short: bool,
}

/// Does what the keeper orders that has started this process; `words`: the directory with the
/// order, or, for the process that becomes CRIU: `run`, user, group, other groups, job, command.
///
/// # Errors
/// If there is no such keeper, or nothing can be started.
pub fn main(words: &[OsString]) -> anyhow::Result<()> {
    if let [first, uid, gid, groups, job, command @ ..] = words
        && first == "run"
    {
        return run((uid, gid, groups), job, command);
    }
    let [kept] = words else { bail!("this verb is for the keeper") };
    let mut inherited = Inherited::take_all().context("cannot see what was handed over")?;
    let keeper = inherited.take(SAVER_FD).context("this verb is for the keeper")?;
    let reports = inherited.take(SAVER_REPORT_FD).context("this verb is for the keeper")?;
    let mut mask = SigSet::empty();
    mask.add(Signal::SIGCHLD);
    mask.thread_block()?;
    let signals = SignalFd::with_flags(&mask, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?;
    let kept = PathBuf::from(kept);
    let order = fs::read(kept.join(ORDER)).context("there is no order")?;
    let order: SaverOrder = decode(order.get(4..).unwrap_or_default())?;
    let shared = order.shared.as_ref().map(|it| OsString::from_vec(it.to_vec()));
    let store = shared.map_or_else(|| kept.clone(), |it| Path::new(&it).join(KEPT));
    let outside = mount_own_proc().context("cannot mount /proc")?;
    let mut saver = Saver {
        order,
        kept,
        store,
        keeper: UnixStream::from(keeper),
        reports: File::from(reports),
        outside,
        nursery: Nursery::new(),
        unwanted: Unwanted::look_up(),
        root: None,
        criu: None,
        wanted: None,
        room: None,
        is_short: false,
    };
    saver.keeper.set_nonblocking(true)?;
    saver.begin()?;
    saver.serve(&signals)
}

/// Becomes a user, and then CRIU.
fn run(
    (uid, gid, groups): (&OsStr, &OsStr, &OsStr),
    job: &OsStr,
    command: &[OsString],
) -> anyhow::Result<()> {
    let number = |text: &OsStr| text.to_str().and_then(|text| text.parse::<u32>().ok());
    let groups = groups.to_str().unwrap_or_default().split(',').filter(|text| !text.is_empty());
    let groups = groups.map(str::parse).collect::<Result<Vec<u32>, _>>()?;
    let (Some(uid), Some(gid)) = (number(uid), number(gid)) else { bail!("no user") };
    let [program, arguments @ ..] = command else { bail!("no command") };
    become_user_that_restores(&Identity { uid, gid, groups }).context("cannot become the user")?;
    if arguments.first().is_some_and(|word| word == "restore") {
        files::cut(Path::new(&format!("/proc/self/fd/{IMAGE_FD}")), job)?;
    }
    // A limit that is put on what it writes is an error for it, and not its end: it must let go of
    // the processes that it saves.
    fail_beyond_limit();
    let error = Command::new(program).args(arguments).env_clear().exec();
    Err(error).with_context(|| format!("cannot run '{}'", program.display()))
}

impl Saver {
    fn serve(&mut self, signals: &SignalFd) -> anyhow::Result<()> {
        loop {
            let events = PollFlags::POLLIN;
            let mut watched =
                [PollFd::new(signals.as_fd(), events), PollFd::new(self.keeper.as_fd(), events)];
            let patience = if self.criu.is_some() { LOOK.into() } else { PollTimeout::NONE };
            match poll(&mut watched, patience) {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(error) => return Err(error.into()),
            }
            if self.is_stuck() {
                return Ok(());
            }
            while let Ok(Some(_)) = signals.read_signal() {}
            while let Some(pid) = ended_child() {
                let Some(reaped) = reap(pid)? else { break };
                if self.on_ended(pid, reaped.status) {
                    return Ok(());
                }
            }
            self.listen()?;
            if self.criu.is_none()
                && self.root.is_some()
                && let Some(ends) = self.wanted.take()
                && let Err(error) = self.save(ends)
            {
                self.say_not_saved(&error, ends);
            }
        }
    }

    /// Looks whether CRIU has room and gets on. Whether all is over, since it restores nothing.
    fn is_stuck(&mut self) -> bool {
        let Some(criu) = &mut self.criu else { return false };
        let now = Instant::now();
        if criu.doing == Doing::Restores {
            if !criu.patience.is_over(now, 0) {
                return false;
            }
            let seconds = criu.patience.seconds();
            let why =
                anyhow::anyhow!("CRIU has restored nothing within {seconds} s, and was ended");
            self.note_why(&why);
            // What is in the namespace ends with this process.
            self.say(NOT_RESTORED);
            return true;
        }
        if room::is_short(&self.store) {
            self.is_short = true;
            write_no_more(criu.pid);
        }
        if criu.patience.is_over(now, whole::bytes_of(&self.store.join(NEW))) {
            if criu.is_late || criu.root.is_some() {
                end_tree(criu.pid);
            }
            // It lets go of the processes by itself, if it can.
            write_no_more(criu.pid);
            criu.is_late = true;
            criu.patience = Patience::with(0, now);
            criu.patience.shorten(TO_FAIL);
        }
        false
    }

    /// Hears whether the keeper asks for an image.
    fn listen(&mut self) -> anyhow::Result<()> {
        let mut bytes = [0; 64];
        match self.keeper.read(&mut bytes) {
            // What is in the namespace ends with this process.
            Ok(0) => bail!("the keeper has ended"),
            Ok(count) => {
                let ends = bytes[..count].contains(&SAVE_AND_END);
                self.wanted = Some(ends || self.wanted == Some(true));
                Ok(())
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn say(&mut self, number: i32) {
        let _ = self.keeper.write_all(&number.to_ne_bytes());
    }

    /// Keeps why something has failed, for the keeper to read.
    fn note_why(&self, error: &anyhow::Error) {
        let text: String = format!("{error:#}").chars().filter(|it| !it.is_control()).collect();
        let _ = fs::write(self.kept.join(WHY), text.chars().take(300).collect::<String>());
    }

    fn say_not_saved(&mut self, error: &anyhow::Error, ends: bool) {
        // First: there may be no room for the reason.
        let _ = remove_tree(&self.store.join(NEW));
        self.note_why(error);
        self.room = None;
        // Those that were stopped for it go on.
        let _ = kill(Pid::from_raw(-1), Signal::SIGCONT);
        self.say(if ends { NOT_SAVED } else { NOT_KEPT });
    }

    /// Starts the program, or the restoration.
    fn begin(&mut self) -> anyhow::Result<()> {
        if !self.order.restores {
            if let Err(error) = self.make_store() {
                self.note_why(&error);
                self.say(NOT_STARTED);
                std::process::exit(1)
            }
            return self.start();
        }
        match self.restore() {
            Ok(()) => Ok(()),
            Err(error) => {
                self.note_why(&error);
                self.say(NOT_RESTORED);
                std::process::exit(1)
            }
        }
    }

    /// Makes the job's directory in the one that nodes share, if its images are there.
    fn make_store(&mut self) -> anyhow::Result<()> {
        let Some(directory) = self.store.parent().filter(|_| self.order.shared.is_some()) else {
            return Ok(());
        };
        let (uid, gid, groups) = self.order.identity.clone();
        make_job(directory, &Credentials { uid, gid, groups })
            .with_context(|| format!("cannot make '{}' for its image", directory.display()))?;
        let Some(script) = self.order.script.take() else { return Ok(()) };
        // The shell has it open, on whichever node it goes on.
        let copy = directory.join("script");
        fs::copy(OsString::from_vec(script.to_vec()), &copy).context("cannot copy its script")?;
        chown(&copy, Some(uid), Some(gid))?;
        for word in self.order.argv.iter_mut().filter(|word| **word == script) {
            *word = ByteBuf::from(copy.as_os_str().as_bytes());
        }
        Ok(())
    }

    fn start(&mut self) -> anyhow::Result<()> {
        let order = &self.order;
        let texts = |texts: &[ByteBuf]| -> Result<Vec<CString>, _> {
            texts.iter().map(|text| CString::new(text.to_vec())).collect()
        };
        let (argv, environment) = (texts(&order.argv)?, texts(&order.environment)?);
        let candidates = texts(&order.candidates)?;
        let directory = CString::new(order.directory.to_vec())?;
        let complaint = order.complaint.as_ref().map(|it| CString::new(it.to_vec())).transpose()?;
        let (uid, gid, groups) = order.identity.clone();
        let stream = |stream: &SaverStream| {
            Ok::<_, std::ffi::NulError>(match stream {
                SaverStream::Null => StdioFd::Null,
                SaverStream::Output => StdioFd::Stdout,
                SaverStream::File { path, flags } => {
                    let path = CString::new(path.to_vec())?;
                    StdioFd::Open { path, flags: *flags, mode: 0o666 }
                }
            })
        };
        let [input, output, error] = &order.streams;
        let spawn = Spawn {
            argv: &argv,
            env: [&environment, &[]],
            program: &candidates,
            cwd: &directory,
            umask: order.umask,
            nice: Some(order.nice),
            rlimits: &order.rlimits,
            identity: Some(Identity { uid, gid, groups }),
            stdio: [stream(input)?, stream(output)?, stream(error)?],
            adopts_orphans: true,
            ends_with_parent: false,
            complaint: complaint.as_deref(),
            ..plain(&order.processors)
        };
        let child = self.nursery.spawn(&spawn, &self.unwanted)?;
        let mut ended = [PollFd::new(child.report.as_fd(), PollFlags::POLLIN)];
        while poll(&mut ended, PollTimeout::NONE) == Err(Errno::EINTR) {}
        if let Ok(Report::Failed { step, errno }) = read_report(child.report.as_fd()) {
            let bytes = [step as i32, errno].map(i32::to_ne_bytes).concat();
            let _ = self.reports.write_all(&bytes);
        }
        self.follow(child.pid)
    }

    /// This is the root of the task.
    fn follow(&mut self, root: i32) -> anyhow::Result<()> {
        self.root = Some(root);
        let number = self.number_outside(root)?;
        self.say(number);
        Ok(())
    }

    /// The PID that a child has outside of the namespace.
    fn number_outside(&self, child: i32) -> anyhow::Result<i32> {
        let outside = format!("/proc/self/fd/{}", self.outside.as_raw_fd());
        let children = fs::read_to_string(format!("{outside}/thread-self/children"))
            .context("the kernel does not list children (CONFIG_PROC_CHILDREN)")?;
        let is_it = |number: &i32| {
            let status = read_status(&format!("{outside}/{number}"));
            let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
            let last = numbers.and_then(|line| line.split_whitespace().next_back()?.parse().ok());
            last == Some(child)
        };
        let mut numbers = children.split_whitespace().filter_map(|it| it.parse().ok());
        numbers.find(is_it).context("the task's root has no PID outside")
    }

    /// A child was reaped. Whether all is over.
    fn on_ended(&mut self, pid: i32, status: i32) -> bool {
        if self.root == Some(pid) {
            if let Some(criu) = &mut self.criu {
                // What ended it may be what has ended CRIU, which is then reaped next.
                criu.root = Some(status);
                criu.patience.shorten(TO_FAIL);
                return false;
            }
            self.say(status);
            return true;
        }
        let Some(criu) = self.criu.take_if(|criu| criu.pid == pid) else { return false };
        match criu.doing {
            Doing::Saves { ends } => self.on_saved(&criu, status, ends),
            Doing::Restores => match self.go_on(status) {
                Ok(()) => false,
                Err(error) => {
                    self.note_why(&error);
                    self.say(NOT_RESTORED);
                    true
                }
            },
        }
    }

    /// CRIU has ended that was to save the processes. Whether all is over.
    fn on_saved(&mut self, criu: &Criu, status: i32, ends: bool) -> bool {
        let done = self.complete(status, ends);
        let is_saved = done.is_ok();
        if let Err(mut error) = done {
            if criu.is_late {
                error = error.context("CRIU made no progress");
            }
            if !ended_by_itself(status) && self.store.join(NEW).join(LOG).exists() {
                // It was within them, and has not put back what they were.
                self.end_strangers();
                let _ = kill(Pid::from_raw(-1), Signal::SIGSTOP);
                if self.has_image() {
                    let _ = remove_tree(&self.store.join(NEW));
                    self.note_why(&error);
                    self.say(DAMAGED);
                    return true;
                }
                error = anyhow::anyhow!("{error:#}, and may have damaged its processes");
            }
            if criu.root.is_none() {
                self.say_not_saved(&error, ends);
            }
        }
        match criu.root {
            _ if is_saved && ends => self.say(SAVED),
            Some(status) => self.say(status),
            None if is_saved => {
                self.room = None;
                let _ = kill(Pid::from_raw(-1), Signal::SIGCONT);
                self.say(SAVED_GOES_ON);
            }
            None => {}
        }
        is_saved && ends || criu.root.is_some()
    }

    /// Whether there is an earlier image from which the processes can be restored.
    fn has_image(&self) -> bool {
        self.bring_back().is_ok() && whole::check(&self.store.join(IMAGE), files::RENAMED).is_ok()
    }

    /// Gives the image before the one that was being made its name again, if that was not whole.
    fn bring_back(&self) -> io::Result<()> {
        let (image, old) = (self.store.join(IMAGE), self.store.join(OLD));
        match !image.exists() && old.exists() {
            true => fs::rename(&old, &image),
            false => Ok(()),
        }
    }

    /// Ends processes that are not of the task: what CRIU has left.
    fn end_strangers(&self) {
        let own = std::process::id().to_string();
        for number in numbers().unwrap_or_default() {
            let is_own = parent(number).is_some_and(|parent| parent == own);
            if let Ok(pid) = i32::try_from(number)
                && is_own
                && self.root != Some(pid)
            {
                end_tree(pid);
            }
        }
    }

    /// Has CRIU save all processes.
    fn save(&mut self, ends: bool) -> anyhow::Result<()> {
        let Some(root) = self.root else { return Ok(()) };
        let new = self.store.join(NEW);
        remove_tree(&new)?;
        self.bring_back()?;
        let memory = memory::to_save(&numbers()?);
        self.room = Some(room::reserve(&self.kept, &self.store, NEW, memory)?);
        self.is_short = false;
        let (uid, gid, _) = self.order.identity;
        DirBuilder::new().mode(0o700).create(&new)?;
        chown(&new, Some(uid), Some(gid))?;
        let root = root.to_string();
        let arguments = ["dump", "--tree", &root, "--leave-stopped", "--ghost-limit", GHOST_LIMIT];
        self.start_criu(&new, &arguments, (Doing::Saves { ends }, memory))
    }

    /// CRIU has ended that was to save them.
    fn complete(&self, status: i32, ends: bool) -> anyhow::Result<()> {
        let [new, image, old] = [NEW, IMAGE, OLD].map(|name| self.store.join(name));
        if self.is_short {
            bail!(
                "the image is larger than was expected: the file system of '{}' was almost full",
                self.store.display()
            );
        }
        judge(&new, &self.kept.join(SAID), status)?;
        whole::expect(&new, self.root.unwrap_or_default())?;
        let numbers = numbers()?;
        let (uid, gid, _) = self.order.identity;
        files::note(&new, &numbers, (uid, gid), ends).context("cannot write down its files")?;
        let numbers: Vec<String> = numbers.iter().map(u32::to_string).collect();
        fs::write(new.join(NUMBERS), numbers.join("\n"))?;
        machine::note(&new).context("cannot write down the machine")?;
        list_and_sync(&new)?;
        remove_tree(&old)?;
        match fs::rename(&image, &old) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error.into()),
            _ => {}
        }
        fs::rename(&new, &image)?;
        // The one before it goes when a crash of the machine can't take this one any more.
        sync(&self.store).context("cannot write the image to the disk")?;
        let _ = remove_tree(&old);
        if !ends && self.order.shared.is_some() {
            // Another keeper knows of it though it was not told.
            fs::write(self.kept.join(WENT_ON), "")?;
        }
        Ok(())
    }

    /// Has CRIU restore the processes.
    fn restore(&mut self) -> anyhow::Result<()> {
        // The machine may have crashed before the one that followed it had its name.
        self.bring_back()?;
        let image = self.store.join(IMAGE);
        let none = || format!("there is no whole image in '{}'", self.store.display());
        let numbers = fs::read_to_string(image.join(NUMBERS)).with_context(none)?;
        machine::check(&image)?;
        whole::check(&image, files::RENAMED)?;
        let taken = numbers.lines().map(str::parse).collect::<Result<BTreeSet<u32>, _>>();
        let taken = taken.context("the image is damaged")?;
        let first = free_numbers(&taken, pid_max())?;
        // The next PID is the one after it.
        fs::write("/proc/sys/kernel/ns_last_pid", (first - 1).to_string())?;
        let doing = (Doing::Restores, whole::bytes_of(&image));
        self.start_criu(&image, &["restore", "--restore-detached"], doing)
    }

    /// CRIU has ended that was to restore them.
    fn go_on(&mut self, status: i32) -> anyhow::Result<()> {
        judge(&self.store.join(IMAGE), &self.kept.join(SAID), status)?;
        let numbers = numbers()?;
        let own = std::process::id();
        // All others are below it.
        let own = own.to_string();
        let is_child = |number: &&u32| parent(**number).is_some_and(|parent| parent == own);
        let root = numbers.iter().find(is_child).context("nothing was restored")?;
        // What they append from now on is written again if they are restored once more.
        files::go_on(&self.store.join(IMAGE))?;
        self.follow(i32::try_from(*root)?)
    }

    /// Starts CRIU, for an image or for memory of so many bytes.
    fn start_criu(
        &mut self,
        image: &Path,
        words: &[&str],
        (doing, bytes): (Doing, u64),
    ) -> anyhow::Result<()> {
        let directory = File::open(image)?;
        let (uid, gid, groups) = &self.order.identity;
        let groups: Vec<String> = groups.iter().map(u32::to_string).collect();
        let place = format!("/proc/self/fd/{IMAGE_FD}");
        let mut all: Vec<Vec<u8>> = ["tutti", "saver", "run"].map(|it| it.into()).to_vec();
        all.extend([uid.to_string(), gid.to_string(), groups.join(",")].map(String::into_bytes));
        all.push(self.order.job.to_string().into_bytes());
        all.push(self.order.criu.to_vec());
        all.extend(words.iter().map(|word| word.as_bytes().to_vec()));
        let common = [
            "--images-dir",
            &place,
            "--log-file",
            LOG,
            "-v2",
            "--manage-cgroups=ignore",
            "--file-locks",
        ];
        all.extend(common.map(|word| word.as_bytes().to_vec()));
        if *uid != 0 {
            all.push(b"--unprivileged".to_vec());
        }
        let argv = all.into_iter().map(CString::new).collect::<Result<Vec<_>, _>>()?;
        let said = CString::new(self.kept.join(SAID).into_os_string().into_vec())?;
        let flags = nix::libc::O_WRONLY | nix::libc::O_CREAT | nix::libc::O_TRUNC;
        let program = [CString::new(RUNNING)?];
        let spawn = Spawn {
            argv: &argv,
            env: [&[], &[]],
            program: &program,
            stdio: [
                StdioFd::Null,
                StdioFd::Open { path: said, flags, mode: 0o600 },
                StdioFd::Stdout,
            ],
            pass: &[(directory.as_raw_fd(), IMAGE_FD)],
            ..plain(&self.order.processors)
        };
        let child = self.nursery.spawn(&spawn, &self.unwanted)?;
        let patience = Patience::with(bytes, Instant::now());
        self.criu = Some(Criu { pid: child.pid, doing, patience, is_late: false, root: None });
        Ok(())
    }
}

/// A process without anything of its own.
fn plain(processors: &[u32]) -> Spawn<'_> {
    Spawn {
        argv: &[],
        env: [&[], &[]],
        program: &[],
        cwd: c"/",
        umask: 0o077,
        nice: Some(0),
        rlimits: &[],
        identity: None,
        cgroup: None,
        companions: &[],
        limits_memory: true,
        ipc: None,
        processors: (!processors.is_empty()).then_some(processors),
        held_by_group: false,
        stdio: [StdioFd::Null, StdioFd::Null, StdioFd::Null],
        pass: &[],
        new_session: true,
        terminal: false,
        minder: false,
        complaint: None,
        isolated: false,
        adopts_orphans: false,
        ends_with_parent: false,
    }
}

/// Lists the files of an image, and writes them to the disk. The one takes the processor and the
/// other the disk, so they are done at the same time.
fn list_and_sync(image: &Path) -> anyhow::Result<()> {
    let cannot = "cannot write the image to the disk";
    thread::scope(|scope| {
        let synced = scope.spawn(|| sync_files(image));
        whole::note(image, LOG).context("cannot list the files of the image")?;
        let synced = synced.join().unwrap_or_else(|_| Err(ErrorKind::Other.into()));
        synced.context(cannot)
    })?;
    sync(&image.join(whole::LIST)).and_then(|()| sync(image)).context(cannot)
}

/// Writes an image to the disk: its files, and its directory.
fn sync_files(image: &Path) -> io::Result<()> {
    for entry in fs::read_dir(image)? {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            sync(&entry.path())?;
        }
    }
    sync(image)
}

/// Writes a file to the disk, or the names in a directory.
fn sync(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// Whether CRIU has ended by itself. Then it has put back what the processes were.
fn ended_by_itself(status: i32) -> bool {
    matches!(End::of(status), Some(End::Exited(..SIGNALED)))
}

/// The parent of a process; none of a thread.
fn parent(process: u32) -> Option<String> {
    let status = read_status(&format!("/proc/{process}"));
    let value = |name: &str| status.lines().find_map(|line| line.strip_prefix(name));
    let is_process = value("Tgid:\t") == Some(&process.to_string());
    value("PPid:\t").filter(|_| is_process).map(str::to_owned)
}

/// Ends a process and all below it.
fn end_tree(pid: i32) {
    let mut all = vec![pid.to_string()];
    let numbers = numbers().unwrap_or_default();
    let mut next = 0;
    while let Some(above) = all.get(next).cloned() {
        next += 1;
        let below = numbers.iter().filter(|&&number| parent(number).as_ref() == Some(&above));
        all.extend(below.map(u32::to_string));
    }
    for pid in all.iter().filter_map(|number| number.parse().ok()) {
        let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
    }
}

/// Whether CRIU has done it.
fn judge(image: &Path, said: &Path, status: i32) -> anyhow::Result<()> {
    match End::of(status) {
        Some(End::Exited(0)) => return Ok(()),
        Some(End::Signaled(signal)) => bail!("CRIU was ended by signal {signal}"),
        _ => {}
    }
    let mut log = Vec::new();
    let _ = File::open(image.join(LOG)).and_then(|it| it.take(LOG_BYTES_MAX).read_to_end(&mut log));
    let log = String::from_utf8_lossy(&log);
    if let Some(error) = first_error(&log) {
        bail!("CRIU: {error}");
    }
    let mut text = Vec::new();
    let _ = File::open(said).and_then(|it| it.take(LOG_BYTES_MAX).read_to_end(&mut text));
    let said = String::from_utf8_lossy(&text);
    match said.lines().rfind(|line| !line.trim().is_empty()) {
        Some(line) => bail!("{line}"),
        None => bail!("CRIU failed and gave no reason"),
    }
}

/// An error after which CRIU goes on: it has no right to open more files than others may.
const NO_FAILURE: &str = "Can't setup RLIMIT_NOFILE for self";

/// The first error in a log of CRIU, without time and place.
fn first_error(log: &str) -> Option<&str> {
    let is_failure = |line: &&str| line.contains("Error (") && !line.contains(NO_FAILURE);
    let line = log.lines().find(is_failure)?;
    let error = line.split_once("Error (")?.1;
    Some(error.split_once("): ").map_or(error, |(_, text)| text).trim())
}

/// The PIDs and thread IDs in this namespace, but for this process.
fn numbers() -> anyhow::Result<BTreeSet<u32>> {
    let number = |name: &OsStr| name.to_str().and_then(|name| name.parse::<u32>().ok());
    let own = std::process::id();
    let mut all = BTreeSet::new();
    for process in fs::read_dir("/proc").context("cannot read /proc")?.flatten() {
        let Some(pid) = number(&process.file_name()).filter(|&pid| pid != own) else { continue };
        all.insert(pid);
        for thread in fs::read_dir(process.path().join("task")).into_iter().flatten().flatten() {
            all.extend(number(&thread.file_name()));
        }
    }
    Ok(all)
}

/// PIDs are less than this.
fn pid_max() -> u32 {
    let text = fs::read_to_string("/proc/sys/kernel/pid_max").unwrap_or_default();
    text.trim().parse().unwrap_or(32_768)
}

/// The first of enough PIDs in a row that none of these has.
fn free_numbers(taken: &BTreeSet<u32>, end: u32) -> anyhow::Result<u32> {
    // The kernel begins with 300 when it has come to the end.
    let mut first = 300;
    for &number in taken.range(first..) {
        if number - first >= PIDS_OF_CRIU {
            break;
        }
        first = number + 1;
    }
    ensure!(first + PIDS_OF_CRIU < end, "there are no free PIDs for the processes of CRIU");
    Ok(first)
}

/// The file `status` of a process; empty if it has ended. A name of a process is any bytes.
pub(super) fn read_status(process: &str) -> String {
    let status = fs::read(format!("{process}/status")).unwrap_or_default();
    String::from_utf8_lossy(&status).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_error_of_a_log_is_named() {
        let log = "(00.01) Warn  (criu/kerndat.c:1195): no\n\
                   (00.01) Error (criu/rlimit.c:20): rlimit: Can't setup RLIMIT_NOFILE for self: \
                   Operation not permitted\n\
                   (00.02) Error (criu/files-reg.c:1790): Can't lookup mount=24 for fd=10\n\
                   (00.03) Error (criu/cr-dump.c:2111): Dumping FAILED.\n";
        assert_eq!(first_error(log), Some("Can't lookup mount=24 for fd=10"));
        assert_eq!(first_error("(00.01) Warn (a.c:1): no"), None);
        let task = "(00.010925) pie: 10: Error (criu/pie/restorer.c:316): Unable to drop\n";
        assert_eq!(first_error(task), Some("Unable to drop"));
    }

    #[test]
    fn pids_that_an_image_has_are_left_free() {
        let free = |taken: &[u32], end| free_numbers(&taken.iter().copied().collect(), end).ok();
        assert_eq!(free(&[2, 3], 32_768), Some(300));
        assert_eq!(free(&[2, 310, 400], 32_768), Some(311));
        assert_eq!(free(&[310, 340, 360], 32_768), Some(361));
        assert_eq!(free(&[310, 340, 360], 400), None);
    }
}
