//! The limits that a daemon has as a process (`man getrlimit`).

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Raises the soft limits that could hinder a daemon. Hard limits stay as they are: what users may
/// ask for is measured by them (`check_limits` in `controller/src/requests/submit.rs`), and root
/// gives tasks any limit without them.
pub fn raise() {
    for resource in [
        Resource::RLIMIT_AS,
        Resource::RLIMIT_CPU,
        Resource::RLIMIT_DATA,
        Resource::RLIMIT_FSIZE,
        Resource::RLIMIT_MEMLOCK,
        Resource::RLIMIT_NOFILE,
        Resource::RLIMIT_NPROC,
    ] {
        if let Ok((soft, hard)) = getrlimit(resource)
            && soft < hard
        {
            let _ = setrlimit(resource, hard, hard);
        }
    }
}

/// What every daemon needs: room ([`make_room`]), and its log.
pub fn prepare_daemon() {
    make_room();
    crate::log::begin();
}

/// What a process with many nodes or tasks needs, as far as it is allowed: descriptors, a processor
/// soon, also when all of them are busy with tasks, no limits of the shell that started the
/// instance, and protection when memory runs out. Tasks get the limits of their own front ends.
pub fn make_room() {
    raise();
    if let Ok((_, hard)) = getrlimit(Resource::RLIMIT_NOFILE) {
        // Root may go beyond the hard limit, others up to it.
        if setrlimit(Resource::RLIMIT_NOFILE, DESCRIPTORS, hard.max(DESCRIPTORS)).is_err() {
            let _ = setrlimit(Resource::RLIMIT_NOFILE, hard.min(DESCRIPTORS), hard);
        }
    }
    let _ = tutti_linux::rt::set_nice(-10);
    tutti_linux::oom_score::protect_daemon();
}

/// Three for each cgroup, some for each task's pipes: enough for tens of thousands of tasks.
const DESCRIPTORS: u64 = 1 << 19;
