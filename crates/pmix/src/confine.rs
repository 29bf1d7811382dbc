//! What the process can't do any more, before it loads a library that its user chose.
//!
//! It is outside of the group of its job. What it started would be too: it would run in the turns
//! of other jobs, and outlive its own. So it can start no process and no program, whatever it
//! loads, and a tracer can't make it.
//!
//! The keeper has limited its memory and its threads by a group of its own, where there are groups.
//! The limits here hold everywhere.

use std::io;

/// Maximum length of writable memory beside what the order says: stacks of threads, and what the
/// allocator reserves.
const RESERVED_BYTES: u64 = 320 << 20;

/// Descriptors beside one for each task.
const DESCRIPTORS: u64 = 256;

/// Confines this process for good.
///
/// # Errors
/// If the kernel refuses it.
pub(crate) fn confine(tasks: u64, memory_bytes: u64) -> io::Result<()> {
    limit(libc::RLIMIT_CORE, 0)?;
    limit(libc::RLIMIT_DATA, memory_bytes.saturating_add(RESERVED_BYTES))?;
    limit(libc::RLIMIT_NOFILE, 4 * tasks + DESCRIPTORS)?;
    // SAFETY: takes no pointers.
    check(unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0) })?;
    // SAFETY: takes no pointers.
    check(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) })?;
    filter()
}

/// Ends this process with the keeper that has started it, also while it is stopped. A process that
/// changes its user loses that.
///
/// # Errors
/// If the kernel refuses it.
pub(crate) fn end_with_keeper() -> io::Result<()> {
    // SAFETY: takes no pointers.
    check(unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0) })
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// A limit that is lower already stays.
fn limit(resource: libc::__rlimit_resource_t, most: u64) -> io::Result<()> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the pointer is to a value of ours.
    check(unsafe { libc::getrlimit(resource, &raw mut limit) })?;
    let most = most.min(limit.rlim_max);
    let lower = libc::rlimit { rlim_cur: most, rlim_max: most };
    // SAFETY: the pointer is to a value of ours.
    check(unsafe { libc::setrlimit(resource, &raw const lower) })
}

#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: u32 = 0xc000_00b7;

/// Above these are the numbers of another interface of x86-64.
#[cfg(target_arch = "x86_64")]
const NUMBERS_END: u32 = 0x4000_0000;
#[cfg(not(target_arch = "x86_64"))]
const NUMBERS_END: u32 = u32::MAX;

/// Calls that make processes, execute programs, or leave the job's processors.
const FORBIDDEN: &[libc::c_long] = &[
    #[cfg(target_arch = "x86_64")]
    libc::SYS_fork,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_vfork,
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_sched_setaffinity,
    libc::SYS_sched_setattr,
    libc::SYS_sched_setparam,
    libc::SYS_sched_setscheduler,
];

const REFUSE: u32 = libc::SECCOMP_RET_ERRNO | libc::EPERM.cast_unsigned();
const ABSENT: u32 = libc::SECCOMP_RET_ERRNO | libc::ENOSYS.cast_unsigned();

/// Has the kernel refuse what makes processes. The C library makes threads by `clone` where there
/// is no `clone3`, whose flags a filter can't see.
fn filter() -> io::Result<()> {
    const LOAD: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
    const EQUALS: u32 = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    const AT_LEAST: u32 = libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K;
    const HAS: u32 = libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K;
    const RETURN: u32 = libc::BPF_RET | libc::BPF_K;
    // Places in what a filter sees of a call: its number, the architecture, the first argument.
    const NUMBER: u32 = 0;
    const MACHINE: u32 = 4;
    const FIRST: u32 = 16;
    let line = |code: u32, k: u32, yes: u8, no: u8| libc::sock_filter {
        code: u16::try_from(code).unwrap_or(0),
        jt: yes,
        jf: no,
        k,
    };
    let number = |call: libc::c_long| u32::try_from(call).unwrap_or(u32::MAX);
    let mut program = vec![
        line(LOAD, MACHINE, 0, 0),
        line(EQUALS, ARCHITECTURE, 1, 0),
        line(RETURN, libc::SECCOMP_RET_KILL_PROCESS, 0, 0),
        line(LOAD, NUMBER, 0, 0),
        line(AT_LEAST, NUMBERS_END, 0, 1),
        line(RETURN, REFUSE, 0, 0),
    ];
    for &call in FORBIDDEN {
        program.push(line(EQUALS, number(call), 0, 1));
        program.push(line(RETURN, REFUSE, 0, 0));
    }
    program.extend([
        line(EQUALS, number(libc::SYS_clone3), 0, 1),
        line(RETURN, ABSENT, 0, 0),
        line(EQUALS, number(libc::SYS_clone), 0, 3),
        line(LOAD, FIRST, 0, 0),
        line(HAS, libc::CLONE_THREAD.cast_unsigned(), 1, 0),
        line(RETURN, REFUSE, 0, 0),
        line(RETURN, libc::SECCOMP_RET_ALLOW, 0, 0),
    ]);
    let program = libc::sock_fprog {
        len: u16::try_from(program.len()).unwrap_or(0),
        filter: program.as_mut_ptr(),
    };
    // SAFETY: the program is complete, and lives until the kernel has copied it.
    check(unsafe {
        libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program, 0, 0)
    })
}
