//! Processes and groups for tests, removed when they go out of scope.

use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::Pid;
use std::ffi::{CStr, CString};
use std::fs::{self, File};
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};
use tutti_linux::affinity::bind;
use tutti_linux::cgroup::{Cgroup, Hierarchy};
use tutti_linux::proc::ProcessStat;
use tutti_linux::signal::{Root, Traversal, Walk, kill_tree};
use tutti_linux::spawn::{
    Child, Identity, Nursery, Report, Spawn, StdioFd, Unwanted, program_candidates, read_number,
    read_report,
};

/// How long nothing must happen where nothing is to happen.
pub(crate) const QUIET: Duration = Duration::from_millis(60);
/// When a state that must come has not come.
pub(crate) const LATE: Duration = Duration::from_secs(20);
/// `nobody`.
pub(crate) const NOBODY: u32 = 65_534;

pub(crate) fn need_root() {
    let uid = nix::unistd::geteuid();
    assert!(uid.is_root(), "THIS TEST NEEDS ROOT: it runs as uid {uid}; run the tests as root");
}

/// Waits until `condition` holds.
pub(crate) fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + LATE;
    while !condition() {
        assert!(Instant::now() < end, "after {LATE:?} still not so: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A subtree of cgroup2, ended and removed with the test.
pub(crate) struct Subtree(pub(crate) Hierarchy);

impl Subtree {
    pub(crate) fn new(name: &str) -> Self {
        need_root();
        let name = format!("tutti-test-{}-{name}", std::process::id());
        match Hierarchy::find(&name) {
            Ok(hierarchy) => Self(hierarchy),
            Err(why) => panic!("THIS TEST NEEDS CGROUP2: {why}"),
        }
    }

    pub(crate) fn group(&self, name: &str) -> Cgroup {
        self.0.create(name).expect("a subtree that was found takes groups")
    }
}

impl Drop for Subtree {
    fn drop(&mut self) {
        let removed = self.0.remove();
        if !std::thread::panicking() {
            assert!(
                matches!(removed, Ok(true)),
                "{} is left: {removed:?}",
                self.0.path().display()
            );
        }
    }
}

/// With a copy of the memory, and in a group, where it is shared until the program runs.
pub(crate) fn each_way(name: &str, check: impl Fn(Option<&Cgroup>)) {
    check(None);
    let subtree = Subtree::new(name);
    let group = subtree.group("g");
    check(Some(&group));
}

/// A directory, removed with the test.
pub(crate) struct Directory(pub(crate) PathBuf);

impl Directory {
    pub(crate) fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("tutti-test-{}-{name}", std::process::id()));
        fs::create_dir(&path).expect("the name is new");
        Self(path)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A process to be started: by default a shell script as root, its output kept.
pub(crate) struct Launch {
    pub(crate) program: Option<CString>,
    pub(crate) argv: Vec<CString>,
    pub(crate) env: Vec<CString>,
    pub(crate) cwd: CString,
    pub(crate) rlimits: Vec<(i32, u64, u64)>,
    pub(crate) identity: Option<Identity>,
    pub(crate) companions: Vec<CString>,
    pub(crate) limits_memory: bool,
    pub(crate) processors: Option<Vec<u32>>,
    pub(crate) held_by_group: bool,
    pub(crate) pass: Vec<(i32, i32)>,
    pub(crate) stdin: StdioFd<'static>,
    pub(crate) stdout: Option<StdioFd<'static>>,
    pub(crate) stderr: StdioFd<'static>,
    pub(crate) minder: bool,
    pub(crate) complaint: Option<CString>,
}

impl Launch {
    pub(crate) fn sh(script: &str) -> Self {
        Self::program(&["sh", "-c", script])
    }

    pub(crate) fn program(argv: &[&str]) -> Self {
        Self {
            program: None,
            argv: argv.iter().map(|&part| c_string(part)).collect(),
            env: vec![c"PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin".to_owned()],
            cwd: c"/".to_owned(),
            rlimits: Vec::new(),
            identity: None,
            companions: Vec::new(),
            limits_memory: false,
            processors: None,
            held_by_group: false,
            pass: Vec::new(),
            stdin: StdioFd::Null,
            stdout: None,
            stderr: StdioFd::Null,
            minder: false,
            complaint: None,
        }
    }

    pub(crate) fn nobody(mut self) -> Self {
        self.identity = Some(Identity { uid: NOBODY, gid: NOBODY, groups: vec![] });
        self
    }

    pub(crate) fn minded(mut self) -> Self {
        self.minder = true;
        self
    }

    pub(crate) fn start(&self, group: Option<&Cgroup>) -> Process {
        self.start_from(&mut Nursery::new(), group)
    }

    pub(crate) fn start_from(&self, nursery: &mut Nursery, group: Option<&Cgroup>) -> Process {
        let (read, write) = nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC).expect("a pipe");
        let path = self.env[0].to_bytes().strip_prefix(b"PATH=");
        let program = match &self.program {
            Some(program) => vec![program.clone()],
            None => program_candidates(&self.argv[0], path),
        };
        let stdout = self.stdout.clone().unwrap_or(StdioFd::Fd(write.as_fd()));
        let child = nursery
            .spawn(
                &Spawn {
                    argv: &self.argv,
                    env: [&self.env[..1], &self.env[1..]],
                    program: &program,
                    cwd: &self.cwd,
                    umask: 0o027,
                    nice: None,
                    rlimits: &self.rlimits,
                    identity: self.identity.clone(),
                    cgroup: group.map(Cgroup::fd),
                    companions: &self.companions,
                    limits_memory: self.limits_memory,
                    ipc: None,
                    processors: self.processors.as_deref(),
                    held_by_group: self.held_by_group,
                    stdio: [self.stdin.clone(), stdout, self.stderr.clone()],
                    pass: &self.pass,
                    new_session: true,
                    terminal: false,
                    minder: self.minder,
                    isolated: false,
                    adopts_orphans: false,
                    ends_with_parent: false,
                    complaint: self.complaint.as_deref(),
                },
                &Unwanted::look_up(),
            )
            .expect("it starts");
        Process { child, output: read.into(), reaped: false }
    }

    /// Runs it to its end; its output.
    pub(crate) fn output(&self, group: Option<&Cgroup>) -> String {
        let mut process = self.start(group);
        let output = process.read_all();
        assert_eq!(process.report(), Report::Running, "it was executed");
        process.wait();
        output
    }
}

pub(crate) fn c_string(text: &str) -> CString {
    CString::new(text).expect("no NUL byte in a test")
}

/// A process that was started; ended and reaped with the test.
pub(crate) struct Process {
    pub(crate) child: Child,
    output: File,
    reaped: bool,
}

impl Process {
    pub(crate) fn pid(&self) -> i32 {
        self.child.pid
    }

    /// What it has written, until all writers have ended.
    pub(crate) fn read_all(&mut self) -> String {
        let mut text = String::new();
        self.output.read_to_string(&mut text).expect("text");
        text
    }

    /// One line of what it writes.
    pub(crate) fn read_line(&mut self) -> String {
        let mut line = Vec::new();
        let mut byte = [0];
        while self.output.read(&mut byte).expect("a readable pipe") == 1 && byte[0] != b'\n' {
            line.push(byte[0]);
        }
        String::from_utf8(line).expect("text")
    }

    /// Whether there is nothing to read within `limit`.
    pub(crate) fn is_silent(&self, limit: Duration) -> bool {
        use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
        let mut fds = [PollFd::new(self.output.as_fd(), PollFlags::POLLIN)];
        poll(&mut fds, PollTimeout::try_from(limit).expect("short")).expect("poll") == 0
    }

    /// What became of its execution.
    pub(crate) fn report(&self) -> Report {
        let mut report = None;
        eventually("the report is there", || {
            report = read_report(self.child.report.as_fd()).ok();
            report.is_some()
        });
        report.expect("it was waited for")
    }

    /// The next number that its minder tells.
    pub(crate) fn number(&self) -> Option<i32> {
        let status: &OwnedFd = self.child.status.as_ref().expect("it has a minder");
        let mut number = None;
        eventually("the minder tells", || {
            number = read_number(status.as_fd()).ok();
            number.is_some()
        });
        number.expect("it was waited for")
    }

    /// Waits for its end.
    pub(crate) fn wait(&mut self) -> WaitStatus {
        use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
        let mut fds = [PollFd::new(self.child.pidfd.as_fd(), PollFlags::POLLIN)];
        let ended = poll(&mut fds, PollTimeout::try_from(LATE).expect("short")).expect("poll");
        assert_eq!(ended, 1, "after {LATE:?} it has not ended");
        self.reaped = true;
        waitpid(Pid::from_raw(self.pid()), None).expect("it is our child")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if !self.reaped {
            // Whole: below a minder first, since it would otherwise leave its children to us.
            let _ = kill_tree(Root::below(self.pid()));
            let _ = kill_tree(self.pid());
            let _ = waitpid(Pid::from_raw(self.pid()), None);
        }
    }
}

/// Numbers of the threads of a process.
pub(crate) fn threads(pid: i32) -> Vec<i32> {
    let names = fs::read_dir(format!("/proc/{pid}/task")).expect("the process is there");
    names.map(|name| name.unwrap().file_name().to_str().unwrap().parse().unwrap()).collect()
}

/// A process that runs `body` in a copy of this one; ended and reaped with the test.
pub(crate) struct Forked(pub(crate) i32);

impl Forked {
    /// `body` must do system calls only: the copy has one thread, and others' locks may be held.
    pub(crate) fn new(body: fn()) -> Self {
        // SAFETY: the child runs `body`, which keeps to system calls, and exits.
        match unsafe { nix::unistd::fork() }.expect("fork") {
            nix::unistd::ForkResult::Parent { child } => Self(child.as_raw()),
            nix::unistd::ForkResult::Child => {
                body();
                // SAFETY: runs nothing of the parent's.
                unsafe { libc::_exit(1) }
            }
        }
    }

    /// A process that hangs in the kernel where neither freezer nor SIGSTOP reach it, only SIGKILL:
    /// in a system call that touches a page which is never provided.
    pub(crate) fn stuck() -> Self {
        let stuck = Self::new(hang_on_a_page);
        eventually("it hangs (THIS TEST NEEDS userfaultfd)", || {
            tutti_linux::proc::wchan(stuck.0).as_deref() == Some("handle_userfault")
        });
        stuck
    }

    /// A process of two threads that do nothing but compute.
    pub(crate) fn busy() -> Self {
        let busy = Self::new(compute_in_two_threads);
        eventually("a second thread", || threads(busy.0).len() == 2);
        busy
    }

    /// The same as `nobody`, whose threads may have real-time priority if root may allow that here.
    pub(crate) fn busy_as_nobody() -> Self {
        let busy = Self::new(|| {
            let limit = libc::rlimit { rlim_cur: 99, rlim_max: 99 };
            // SAFETY: `limit` outlives the call; the other takes no pointer.
            unsafe {
                libc::setrlimit(libc::RLIMIT_RTPRIO, &raw const limit);
                libc::setresuid(NOBODY, NOBODY, NOBODY);
            }
            compute_in_two_threads();
        });
        eventually("a second thread", || threads(busy.0).len() == 2);
        busy
    }

    /// All its threads have only this processor, and count for so much there.
    pub(crate) fn confine(&self, processor: u32, nice: i32) {
        bind(self.0, &[processor]).expect("it may be bound");
        for thread in threads(self.0) {
            // SAFETY: takes no pointer.
            let result = unsafe { libc::setpriority(libc::PRIO_PROCESS, thread as u32, nice) };
            assert_eq!(result, 0, "root may set it");
        }
    }

    pub(crate) fn move_to(&self, group: &Cgroup) {
        fs::write(group.path().join("cgroup.procs"), self.0.to_string()).expect("root may move it");
    }
}

impl Drop for Forked {
    fn drop(&mut self) {
        let _ = kill_tree(self.0);
        let _ = waitpid(Pid::from_raw(self.0), None);
    }
}

fn compute_in_two_threads() {
    const STACK_BYTES: usize = 64 << 10;
    extern "C" fn compute(_: *mut libc::c_void) -> i32 {
        loop {
            std::hint::spin_loop();
        }
    }
    // SAFETY: the stack is the thread's own, and lasts as long as the process.
    unsafe {
        let stack = libc::mmap(
            std::ptr::null_mut(),
            STACK_BYTES,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        );
        let flags = libc::CLONE_VM | libc::CLONE_SIGHAND | libc::CLONE_THREAD;
        libc::clone(compute, stack.byte_add(STACK_BYTES), flags, std::ptr::null_mut());
    }
    compute(std::ptr::null_mut());
}

/// Of linux/userfaultfd.h.
const UFFD_API: u64 = 0xaa;
const UFFDIO_API: u64 = 0xc018_aa3f;
const UFFDIO_REGISTER: u64 = 0xc020_aa00;
const REGISTER_MODE_MISSING: u64 = 1;

fn hang_on_a_page() {
    // SAFETY: the two structures are as long as the kernel's, the page is our own, and reading it
    // is left to the kernel.
    unsafe {
        let fd = libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC);
        let fd = libc::c_int::try_from(fd).unwrap_or(-1);
        let mut api = [UFFD_API, 0, 0];
        libc::ioctl(fd, UFFDIO_API, api.as_mut_ptr());
        let page = libc::mmap(
            std::ptr::null_mut(),
            4096,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        );
        let mut register = [page as u64, 4096, REGISTER_MODE_MISSING, 0];
        libc::ioctl(fd, UFFDIO_REGISTER, register.as_mut_ptr());
        let mut pipe = [-1; 2];
        libc::pipe(pipe.as_mut_ptr());
        libc::write(pipe[1], page, 4096);
    }
}

/// Runs `body` as `nobody`, this thread only: the kernel keeps identities by thread.
pub(crate) fn as_nobody<T: Send>(body: impl FnOnce() -> T + Send) -> T {
    need_root();
    let run = || {
        // SAFETY: takes no pointer.
        let result = unsafe { libc::syscall(libc::SYS_setresuid, NOBODY, NOBODY, NOBODY) };
        assert_eq!(result, 0, "root may become nobody");
        body()
    };
    std::thread::scope(|scope| scope.spawn(run).join().expect("the body does not panic"))
}

/// Usual parameters for walks; the deadline is one that only a defect reaches.
pub(crate) fn walk(traversal: Traversal) -> Walk {
    Walk { traversal, retry_interval: Duration::from_micros(100), deadline: LATE }
}

/// The state letter of a process; `-` if there is none.
pub(crate) fn state(pid: i32) -> char {
    ProcessStat::read(pid).map_or('-', |stat| stat.state)
}

/// Processor time of processes, clock ticks.
pub(crate) fn ticks(pids: &[i32]) -> u64 {
    pids.iter().filter_map(|&pid| ProcessStat::read(pid).ok()).map(|s| s.utime + s.stime).sum()
}

/// A script of a binary tree of `levels` levels in which every process spins.
pub(crate) fn busy_tree(levels: u32) -> String {
    format!(
        "t() {{ if [ $1 -gt 1 ]; then (t $(($1-1))) & (t $(($1-1))) & fi; while :; do :; done; }}; \
         t {levels}"
    )
}

pub(crate) fn companions(group: &Cgroup) -> Vec<CString> {
    let path = |path: PathBuf| c_string(path.to_str().expect("text"));
    group.companions().into_iter().map(path).collect()
}

pub(crate) fn open(path: &CStr, flags: i32) -> StdioFd<'static> {
    StdioFd::Open { path: path.to_owned(), flags, mode: 0o666 }
}
