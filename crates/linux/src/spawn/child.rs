//! The child between fork and exec, and the minder.
//!
//! After a fork of a process that may have threads, only async-signal-safe calls are allowed: no
//! allocation, no lock, no panic that unwinds. And the memory may be the parent's own, which runs
//! on. So everything here is a system call on what `prepare.rs` has laid out, made without the C
//! library (see `raw.rs`); but for the minder, which always has a copy of the memory.
//!
//! The order matters:
//! 1. Minder first, since all else is for the process below it.
//! 2. v1 groups, IPC namespace, scheduling and OOM score while still privileged.
//! 3. Descriptors: sources may be the targets of others, so all are copied out of the way first.
//!    What is not handed over is closed before the limits, so that files can be opened under a
//!    low limit on descriptors.
//! 4. Limits and processors before the identity, since raising takes privilege.
//! 5. Directory and files after the identity: the user's rights decide.

use super::prepare::{Plan, Stream};
use super::raw::{self, Answer, word};
use super::spawn_pool::CLONE_INTO_CGROUP;
use super::{Identity, Step};
use std::ffi::{CStr, CString, c_char, c_int, c_long};
use std::io;
use std::mem::{MaybeUninit, size_of};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;
use std::sync::OnceLock;

/// What other processes have; a caller that keeps exact time may have set less.
const TIMER_SLACK_NS: usize = 50_000;
/// The kernel's own `getpriority` says 20 less the nice value, so that nothing it says is an error.
const NICE_OF_NOBODY_SPECIAL: usize = 20;
/// As shells do for a command that could not be run.
const EXIT_NOT_RUN: c_int = 127;

/// The two returns of a fork.
pub(crate) enum Fork {
    /// In the new process.
    Child,
    /// In the caller.
    Parent {
        /// The new process.
        pid: i32,
        /// Its descriptor.
        pidfd: OwnedFd,
    },
}

/// Whether a process can be made in a group by `clone3`: from Linux 5.7 on, and where no filter of
/// a container forbids that call. Asked of the kernel once, with a group that there can't be.
pub(crate) fn has_births_into_groups() -> bool {
    static HAS: OnceLock<bool> = OnceLock::new();
    *HAS.get_or_init(|| {
        // SAFETY: all zero is a valid clone_args.
        let mut arguments: libc::clone_args = unsafe { MaybeUninit::zeroed().assume_init() };
        // In the memory of this process, so that none is copied before the kernel looks at the
        // group.
        arguments.flags = u64::from(libc::CLONE_VM.cast_unsigned()) | CLONE_INTO_CGROUP;
        arguments.exit_signal = u64::from(libc::SIGCHLD.cast_unsigned());
        arguments.cgroup = u64::from(NO_DESCRIPTOR.cast_unsigned());
        // SAFETY: the structure is as long as said; no process is made, since there is no such
        // descriptor.
        let result = unsafe {
            libc::syscall(libc::SYS_clone3, &raw mut arguments, size_of::<libc::clone_args>())
        };
        result == -1 && io::Error::last_os_error().raw_os_error() == Some(libc::EBADF)
    })
}

/// Above all descriptors that the kernel gives.
const NO_DESCRIPTOR: c_int = c_int::MAX;

/// Makes a process, born into `cgroup` if given, that sends `exit_signal` (0: none, and then only
/// `__WALL` reaps it) when it ends. Where the kernel makes none in a group, the child moves there
/// before this returns in it; if it can't, it writes [`Step::Group`] to `report` and ends.
///
/// # Safety
/// The child must do only what is async-signal-safe, and must not return into code that is not.
pub(crate) unsafe fn fork_into(
    cgroup: Option<BorrowedFd>,
    exit_signal: c_int,
    report: Option<RawFd>,
) -> io::Result<Fork> {
    // SAFETY: as the caller promises.
    unsafe { fork_with(0, cgroup, exit_signal, report) }
}

/// As [`fork_into`], in new namespaces (flags of `clone(2)`).
///
/// # Safety
/// As for [`fork_into`].
pub(crate) unsafe fn fork_with(
    namespaces: c_int,
    cgroup: Option<BorrowedFd>,
    exit_signal: c_int,
    report: Option<RawFd>,
) -> io::Result<Fork> {
    let mut pidfd: c_int = -1;
    let born_there = cgroup.filter(|_| has_births_into_groups());
    let pid = if let Some(cgroup) = born_there {
        // SAFETY: all zero is a valid clone_args.
        let mut arguments: libc::clone_args = unsafe { MaybeUninit::zeroed().assume_init() };
        let flags = libc::CLONE_PIDFD | namespaces;
        arguments.flags = u64::from(flags.cast_unsigned()) | CLONE_INTO_CGROUP;
        arguments.pidfd = (&raw mut pidfd) as u64;
        arguments.exit_signal = u64::from(exit_signal.cast_unsigned());
        arguments.cgroup = u64::from(cgroup.as_raw_fd().cast_unsigned());
        // SAFETY: the structure is as long as said and `pidfd` can be written. Memory is copied,
        // not shared, and the caller promises what the child does.
        unsafe {
            libc::syscall(libc::SYS_clone3, &raw mut arguments, size_of::<libc::clone_args>())
        }
    } else {
        // The older call, since filters of containers forbid clone3.
        let flags = c_long::from(libc::CLONE_PIDFD | namespaces | exit_signal);
        // SAFETY: as above; without a new stack the child goes on with its copy of this one.
        unsafe { libc::syscall(libc::SYS_clone, flags, 0_usize, &raw mut pidfd, 0_usize, 0_usize) }
    };
    match pid {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            if let (Some(cgroup), None) = (cgroup, born_there) {
                move_to(cgroup, report);
            }
            Ok(Fork::Child)
        }
        pid => Ok(Fork::Parent {
            pid: i32::try_from(pid).expect("process numbers are at most 2^22"),
            // SAFETY: the kernel has just made it for us.
            pidfd: unsafe { OwnedFd::from_raw_fd(pidfd) },
        }),
    }
}

/// Moves this process, which has one thread, to a group. If the group is frozen, the process is
/// when this returns.
fn move_to(group: BorrowedFd, report: Option<RawFd>) {
    let flags = word(libc::O_WRONLY | libc::O_CLOEXEC);
    let file = [word(group.as_raw_fd()), c"cgroup.procs".as_ptr() as usize, flags, 0, 0];
    // SAFETY: the path is NUL-terminated.
    let moved = unsafe { raw::call(libc::SYS_openat, file) }.and_then(|file| {
        let moved = raw::write(raw::small(file), b"0");
        raw::close(raw::small(file));
        moved
    });
    if let Err(errno) = moved {
        if let Some(report) = report {
            tell(report, &Failure { step: Step::Group, errno });
        }
        raw::exit(EXIT_NOT_RUN)
    }
}

fn tell(report: RawFd, failure: &Failure) {
    let mut bytes = [0; 8];
    bytes[..4].copy_from_slice(&(failure.step as c_int).to_ne_bytes());
    bytes[4..].copy_from_slice(&failure.errno.to_ne_bytes());
    let _ = raw::write(report, &bytes);
}

/// The signals that this thread had blocked before all were; blocked as before when dropped.
pub(super) struct HeldSignals(libc::sigset_t);

/// Blocks all signals of this thread, so that no handler of the parent runs in a child.
pub(super) fn hold_signals() -> HeldSignals {
    let mut all = MaybeUninit::<libc::sigset_t>::uninit();
    let mut before = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: both sets can be written, and all zero is a set. It fails for no mask there is.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
        HeldSignals(before.assume_init())
    }
}

impl Drop for HeldSignals {
    fn drop(&mut self) {
        // SAFETY: the mask is a valid set; the old one is not asked for.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, ptr::null_mut()) };
    }
}

struct Failure {
    step: Step,
    errno: c_int,
}

/// Turns the error of a system call into the failure of `step`.
fn check(step: Step, answer: Answer) -> Result<usize, Failure> {
    answer.map_err(|errno| Failure { step, errno })
}

/// A system call whose arguments are numbers.
fn call(number: c_long, arguments: [c_int; 4]) -> Answer {
    let [a, b, c, d] = arguments.map(word);
    // SAFETY: takes no pointer.
    unsafe { raw::call(number, [a, b, c, d, 0]) }
}

/// All that the child does. Does not return.
pub(super) fn run(plan: &mut Plan) -> ! {
    let Err(failure) = set_up_and_execute(plan);
    if let (Step::Execute, Some(complaint)) = (failure.step, &plan.complaint) {
        complain(complaint, failure.errno);
    }
    tell(plan.report, &failure);
    raw::exit(EXIT_NOT_RUN)
}

/// In one call, so that tasks that share a file do not write into each other's lines. That it fails
/// changes nothing.
fn complain(text: &CStr, errno: c_int) {
    // A table of texts, looked up without allocation.
    let why = nix::errno::Errno::from_raw(errno).desc();
    let parts = [text.to_bytes(), why.as_bytes(), b"\n"]
        .map(|part| libc::iovec { iov_base: part.as_ptr().cast_mut().cast(), iov_len: part.len() });
    let arguments = [word(libc::STDERR_FILENO), parts.as_ptr() as usize, parts.len(), 0, 0];
    // SAFETY: the parts are valid for the call, which only reads them.
    let _ = unsafe { raw::call(libc::SYS_writev, arguments) };
}

fn set_up_and_execute(plan: &mut Plan) -> Result<std::convert::Infallible, Failure> {
    reset_signal_actions(&plan.signals);
    if let Some(status) = plan.status {
        split_off_minder(status)?;
    }
    join_companions(&plan.companions)?;
    if let Some(namespace) = plan.ipc {
        check(Step::Ipc, call(libc::SYS_setns, [namespace, libc::CLONE_NEWIPC, 0, 0]))?;
    }
    if plan.new_session {
        check(Step::Session, call(libc::SYS_setsid, [0; 4]))?;
    }
    reset_scheduling(plan.oom_score, plan.nice);
    arrange_descriptors(plan)?;
    if plan.terminal {
        // Its process group, the only one of the new session, is in the foreground from now on.
        #[allow(clippy::cast_possible_truncation, reason = "numbers of ioctls have 32 bits")]
        let take = libc::TIOCSCTTY as c_int;
        check(Step::Terminal, call(libc::SYS_ioctl, [libc::STDIN_FILENO, take, 0, 0]))?;
    }
    set_limits(&plan.rlimits)?;
    if let Some(words) = &plan.processors {
        bind(words, plan.held_by_group)?;
    }
    if let Some(identity) = &plan.identity {
        become_user(identity)?;
    }
    // SAFETY: the directory is a NUL-terminated string.
    let entered = unsafe { raw::call(libc::SYS_chdir, [plan.cwd.as_ptr() as usize, 0, 0, 0, 0]) };
    check(Step::Directory, entered)?;
    // It cannot fail.
    let _ = call(libc::SYS_umask, [plan.umask.cast_signed(), 0, 0, 0]);
    open_streams(&plan.stdio)?;
    if plan.adopts_orphans {
        check(Step::Minder, call(libc::SYS_prctl, [libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0]))?;
    }
    if plan.ends_with_parent {
        // After it has become its user, since that undoes it. It cannot fail.
        let _ = call(libc::SYS_prctl, [libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0]);
    }
    unblock_signals();
    execute(plan)
}

/// Exec resets handlers but keeps what is ignored; a task must not inherit that we ignore SIGPIPE.
fn reset_signal_actions(signals: &[c_int]) {
    // The kernel's sigaction: handler, flags, restorer (on some machines) and mask. All zero is
    // the default.
    let default = [0_u64; 4];
    for &signal in signals {
        let arguments = [word(signal), default.as_ptr() as usize, 0, size_of::<u64>(), 0];
        // SAFETY: `default` is as long as the kernel reads, and the old one is not asked for.
        let _ = unsafe { raw::call(libc::SYS_rt_sigaction, arguments) };
    }
}

fn unblock_signals() {
    // The kernel's set: a bit for each of 64 signals.
    let none = 0_u64;
    let set = [word(libc::SIG_SETMASK), (&raw const none) as usize, 0, size_of::<u64>(), 0];
    // SAFETY: the set is as long as said, and the old one is not asked for.
    let _ = unsafe { raw::call(libc::SYS_rt_sigprocmask, set) };
}

fn join_companions(files: &[CString]) -> Result<(), Failure> {
    files
        .iter()
        .try_for_each(|file| write_file(file, b"0"))
        .map_err(|errno| Failure { step: Step::Companions, errno })
}

fn write_file(path: &CStr, content: &[u8]) -> Result<(), c_int> {
    let fd = raw::open(path, libc::O_WRONLY | libc::O_CLOEXEC, 0)?;
    let written = raw::write(fd, content);
    raw::close(fd);
    written.map(|_| ())
}

/// The child must not profit, or suffer, from what a daemon of ours has set for itself. Failing is
/// no reason not to run: nothing of it can be the user's loss.
fn reset_scheduling(oom_score: bool, wanted: Option<c_int>) {
    let policy = call(libc::SYS_sched_getscheduler, [0; 4]).unwrap_or(0);
    let policy = policy & !word(libc::SCHED_RESET_ON_FORK);
    if policy == word(libc::SCHED_FIFO) || policy == word(libc::SCHED_RR) {
        let ordinary = libc::sched_param { sched_priority: 0 };
        let arguments = [0, word(libc::SCHED_OTHER), (&raw const ordinary) as usize, 0, 0];
        // SAFETY: `ordinary` is valid for the call.
        let _ = unsafe { raw::call(libc::SYS_sched_setscheduler, arguments) };
    }
    // A user may have made all of their processes nicer: that stays, unless another value is
    // wanted.
    let process = libc::PRIO_PROCESS.cast_signed();
    let nice = call(libc::SYS_getpriority, [process, 0, 0, 0]);
    let wanted = wanted.or_else(|| nice.is_ok_and(|it| it > NICE_OF_NOBODY_SPECIAL).then_some(0));
    if let Some(wanted) = wanted {
        let _ = call(libc::SYS_setpriority, [process, 0, wanted, 0]);
    }
    let slack = call(libc::SYS_prctl, [libc::PR_GET_TIMERSLACK, 0, 0, 0]);
    if slack.is_ok_and(|slack| slack < TIMER_SLACK_NS) {
        let arguments = [word(libc::PR_SET_TIMERSLACK), TIMER_SLACK_NS, 0, 0, 0];
        // SAFETY: takes no pointer.
        let _ = unsafe { raw::call(libc::SYS_prctl, arguments) };
    }
    if oom_score {
        let _ = write_file(c"/proc/self/oom_score_adj", b"0");
    }
}

/// Afterwards exactly these are open: 0 to 2, the targets, and the report at `first_free`, which
/// closes itself at exec.
fn arrange_descriptors(plan: &mut Plan) -> Result<(), Failure> {
    const STEP: Step = Step::Descriptors;
    let copy = |fd: RawFd, lowest: RawFd| {
        check(STEP, call(libc::SYS_fcntl, [fd, libc::F_DUPFD_CLOEXEC, lowest, 0])).map(raw::small)
    };
    plan.report = copy(plan.report, plan.first_free)?;
    for (source, _) in &mut plan.moves {
        *source = copy(*source, plan.first_free)?;
    }
    for &(source, target) in &plan.moves {
        // The copy without the close-on-exec flag is what is wanted.
        check(STEP, raw::duplicate(source, target, 0))?;
    }
    for (target, stream) in (0..).zip(&plan.stdio) {
        if let Stream::Null = stream {
            open_at(STEP, target, c"/dev/null", libc::O_RDWR, 0)?;
        }
    }
    if plan.report != plan.first_free {
        check(STEP, raw::duplicate(plan.report, plan.first_free, libc::O_CLOEXEC))?;
        plan.report = plan.first_free;
    }
    let mut gap = 3;
    for &kept in plan.kept.iter().chain([&plan.first_free]) {
        close_from_to(gap, kept - 1);
        gap = kept + 1;
    }
    close_from_to(gap, RawFd::MAX);
    Ok(())
}

/// Closes all descriptors but these two. For a process between fork and exec.
pub(crate) fn close_all_but(one: RawFd, other: RawFd) {
    let (low, high) = (one.min(other), one.max(other));
    close_from_to(0, low - 1);
    close_from_to(low + 1, high - 1);
    close_from_to(high + 1, RawFd::MAX);
}

/// Closes all descriptors from `first` to `last`. Before kernel 5.9 one by one: the minder would
/// hold open a file whose closing another process waits for.
fn close_from_to(first: RawFd, last: RawFd) {
    if first > last || call(libc::SYS_close_range, [first, last, 0, 0]).is_ok() {
        return;
    }
    let mut limit = libc::rlimit64 { rlim_cur: 0, rlim_max: 0 };
    let resource = libc::RLIMIT_NOFILE as usize;
    // SAFETY: `limit` can be written, and no new one is set.
    let _ =
        unsafe { raw::call(libc::SYS_prlimit64, [0, resource, 0, (&raw mut limit) as usize, 0]) };
    let limit = RawFd::try_from(limit.rlim_cur).unwrap_or(RawFd::MAX).min(65_536);
    for fd in first..=last.min(limit) {
        raw::close(fd);
    }
}

fn set_limits(limits: &[(c_int, u64, u64)]) -> Result<(), Failure> {
    for &(resource, soft, hard) in limits {
        let limit = libc::rlimit64 { rlim_cur: soft, rlim_max: hard };
        let arguments = [0, word(resource), (&raw const limit) as usize, 0, 0];
        // SAFETY: `limit` is valid for the call, and the old one is not asked for.
        check(Step::Limits, unsafe { raw::call(libc::SYS_prlimit64, arguments) })?;
    }
    Ok(())
}

/// The group may hold it to other processors by now, since the job was moved: it stays on those.
fn bind(words: &[u64], held_by_group: bool) -> Result<(), Failure> {
    let arguments = [0, size_of_val(words), words.as_ptr() as usize, 0, 0];
    // SAFETY: the mask is as long as said; 0 is this thread.
    let bound = unsafe { raw::call(libc::SYS_sched_setaffinity, arguments) };
    match bound {
        Err(libc::EINVAL) if held_by_group => Ok(()),
        bound => check(Step::Processors, bound).map(|_| ()),
    }
}

/// Groups first: afterwards there is no right to set them. In a user namespace of one user (a
/// rootless container) there never is one: there is no other user to become either, so a process of
/// that user keeps them.
fn become_user(identity: &Identity) -> Result<(), Failure> {
    let Identity { uid, gid, ref groups } = *identity;
    let [uid, gid] = [uid, gid].map(u32::cast_signed);
    let arguments = [groups.len(), groups.as_ptr() as usize, 0, 0, 0];
    // SAFETY: the list is as long as said.
    let answer = unsafe { raw::call(libc::SYS_setgroups, arguments) };
    if answer != Err(libc::EPERM) || !is_already(uid, gid) {
        check(Step::Identity, answer)?;
    }
    check(Step::Identity, call(libc::SYS_setresgid, [gid, gid, gid, 0]))?;
    check(Step::Identity, call(libc::SYS_setresuid, [uid, uid, uid, 0]))?;
    Ok(())
}

/// Whether this process is of that user and group.
fn is_already(uid: c_int, gid: c_int) -> bool {
    let is = |number, id: c_int| call(number, [0; 4]) == Ok(word(id));
    is(libc::SYS_geteuid, uid) && is(libc::SYS_getegid, gid)
}

fn open_streams(streams: &[Stream; 3]) -> Result<(), Failure> {
    let steps = [Step::Stdin, Step::Stdout, Step::Stderr];
    for (target, (stream, step)) in (0..).zip(streams.iter().zip(steps)) {
        match stream {
            Stream::File { path, flags, mode } => open_at(step, target, path, *flags, *mode)?,
            Stream::Output => drop(check(step, raw::duplicate(1, target, 0))?),
            Stream::Given | Stream::Null => {}
        }
    }
    Ok(())
}

fn open_at(step: Step, target: RawFd, path: &CStr, flags: c_int, mode: u32) -> Result<(), Failure> {
    let flags = flags | libc::O_CLOEXEC | libc::O_NOCTTY;
    let fd = raw::open(path, flags, mode).map_err(|errno| Failure { step, errno })?;
    if fd == target {
        // It was free: the caller's own stream was closed.
        check(step, call(libc::SYS_fcntl, [fd, libc::F_SETFD, 0, 0]))?;
    } else {
        check(step, raw::duplicate(fd, target, 0))?;
        raw::close(fd);
    }
    Ok(())
}

/// Tries the candidates as `execvp` does: goes on where there is no such file or it may not be
/// run, but remembers the latter, since it says more.
fn execute(plan: &mut Plan) -> Result<std::convert::Infallible, Failure> {
    let mut worst = libc::ENOENT;
    for file in &plan.program {
        match exec(file, &plan.argv, &plan.env) {
            libc::EACCES => worst = libc::EACCES,
            libc::ENOENT | libc::ENOTDIR | libc::ESTALE | libc::ENODEV | libc::ETIMEDOUT => {}
            libc::ENOEXEC => {
                // A script without `#!`.
                plan.shell_argv[1] = file.as_ptr();
                exec(c"/bin/sh", &plan.shell_argv, &plan.env);
                worst = libc::ENOEXEC;
                break;
            }
            other => {
                worst = other;
                break;
            }
        }
    }
    Err(Failure { step: Step::Execute, errno: worst })
}

/// Why it did not come to it.
fn exec(file: &CStr, argv: &[*const c_char], env: &[*const c_char]) -> c_int {
    let arguments = [file.as_ptr() as usize, argv.as_ptr() as usize, env.as_ptr() as usize, 0, 0];
    // SAFETY: the arrays end in a null pointer, and the plan holds all strings.
    unsafe { raw::call(libc::SYS_execve, arguments) }.err().unwrap_or(0)
}

/// Makes this process the minder and returns in its child only.
fn split_off_minder(status: RawFd) -> Result<(), Failure> {
    check(Step::Minder, call(libc::SYS_prctl, [libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0]))?;
    // Memory and stack are copied, and the child goes on in the same code, which is
    // async-signal-safe.
    match check(Step::Minder, call(libc::SYS_clone, [libc::SIGCHLD, 0, 0, 0]))? {
        0 => Ok(()),
        // Lossless: process numbers are at most 2^22.
        #[allow(clippy::cast_possible_truncation, reason = "process numbers are at most 2^22")]
        root => mind(root as i32, status),
    }
}

/// What the kernel sends to the minder when its parent, the keeper, has ended.
const PARENT_ENDED: c_int = libc::SIGHUP;

/// Reaps everything below until nothing is left. All signals stay blocked: only SIGKILL ends it.
/// When the keeper ends before, no daemon knows of the task any more: then all of it is ended.
fn mind(root: i32, status: RawFd) -> ! {
    // SAFETY: takes no pointer.
    let keeper = unsafe { libc::getppid() };
    // SAFETY: the strings are NUL-terminated; what these calls answer changes nothing.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, PARENT_ENDED);
        // Out of reach of the terminal and out of the way.
        libc::setsid();
        libc::chdir(c"/".as_ptr());
        libc::prctl(libc::PR_SET_NAME, c"minder".as_ptr());
    }
    // It must hold no stream open whose end another process waits for.
    close_from_to(0, status - 1);
    close_from_to(status + 1, RawFd::MAX);
    write_number(status, root);
    let mut ending = keeper_is_gone(status);
    loop {
        if ending {
            kill_children();
        }
        // Signals wait while they are blocked, so none is missed between this and the next line.
        while let Some((ended, wait_status)) = ended_any() {
            if ended == root {
                // Before it is reaped: what is sent to its number until that is read reaches no
                // other process.
                write_number(status, wait_status);
                // SAFETY: no code uses it again.
                unsafe { libc::close(status) };
            }
            reap(ended);
        }
        // Others may send that signal, too; a process that has lost its parent has another one.
        // SAFETY: takes no pointer.
        ending |= wait_for_signal() == PARENT_ENDED && unsafe { libc::getppid() } != keeper;
    }
}

/// Whether the keeper ended before the kernel was asked to tell of it: what we write has no reader
/// then.
fn keeper_is_gone(status: RawFd) -> bool {
    let mut look = libc::pollfd { fd: status, events: 0, revents: 0 };
    // SAFETY: one structure, which can be written.
    unsafe { libc::poll(&raw mut look, 1, 0) > 0 && look.revents & libc::POLLERR != 0 }
}

/// A child that has ended and is not reaped, with its wait status; exits if there is no child at
/// all.
fn ended_any() -> Option<(i32, c_int)> {
    let flags = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT | libc::__WALL;
    let mut found = MaybeUninit::<libc::siginfo_t>::zeroed();
    // SAFETY: what is found can be written.
    let result = unsafe { libc::waitid(libc::P_ALL, 0, found.as_mut_ptr(), flags) };
    if result == -1 {
        return match io::Error::last_os_error().raw_os_error() {
            Some(libc::ECHILD) => raw::exit(0),
            _ => None,
        };
    }
    // SAFETY: zeros are valid, and a call that succeeds has written what it says of a child, or
    // left them.
    let (ended, how, status) = unsafe {
        let found = found.assume_init();
        (found.si_pid(), found.si_code, found.si_status())
    };
    let wait_status = match how {
        libc::CLD_EXITED => (status & 0xff) << 8,
        libc::CLD_DUMPED => status | 0x80,
        _ => status,
    };
    (ended != 0).then_some((ended, wait_status))
}

fn reap(ended: i32) {
    // SAFETY: nothing is written.
    unsafe { libc::waitpid(ended, ptr::null_mut(), libc::__WALL | libc::WNOHANG) };
}

/// Waits until a child or the keeper has ended.
fn wait_for_signal() -> c_int {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: the set is made before it is used; what is said about the signal is not asked for.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), libc::SIGCHLD);
        libc::sigaddset(set.as_mut_ptr(), PARENT_ENDED);
        libc::sigwaitinfo(set.as_ptr(), ptr::null_mut())
    }
}

/// Kills all children. What was below them becomes ours and has its turn when they are reaped.
fn kill_children() {
    let mut numbers = [0_u8; 4096];
    // SAFETY: the path is NUL-terminated, the buffer as long as said, the descriptor ours.
    let length = unsafe {
        let fd = libc::open(c"/proc/thread-self/children".as_ptr(), libc::O_RDONLY);
        if fd == -1 {
            return;
        }
        let length = libc::read(fd, numbers.as_mut_ptr().cast(), numbers.len());
        libc::close(fd);
        usize::try_from(length).unwrap_or(0)
    };
    // A number that the end of the buffer cuts is left for the next time.
    let end = numbers[..length].iter().rposition(|&byte| byte == b' ').unwrap_or(0);
    for number in numbers[..end].split(|&byte| byte == b' ') {
        let pid = number.iter().fold(0_i32, |sum, digit| {
            sum.wrapping_mul(10).wrapping_add(i32::from(digit.wrapping_sub(b'0')))
        });
        if pid > 1 {
            // SAFETY: takes no pointer. It is our child and not reaped: the number is its own.
            unsafe { libc::kill(pid, libc::SIGKILL) };
        }
    }
}

/// A reader that is gone does not matter: SIGPIPE is blocked.
pub(crate) fn write_number(fd: RawFd, number: i32) {
    let bytes = number.to_ne_bytes();
    // SAFETY: the buffer is four bytes.
    unsafe { libc::write(fd, bytes.as_ptr().cast(), bytes.len()) };
}
