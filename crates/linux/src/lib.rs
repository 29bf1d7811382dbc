//! Talking to the kernel: groups of processes, signals, `/proc`, new processes, clocks.
//!
//! The problem: a set of processes must be started inside a fence that none of them can leave,
//! be stopped and continued as one within a fraction of a millisecond, and be ended without
//! a rest, and the descent of processes must be known ([`track`]). The approach: a cgroup where one
//! may be written ([`cgroup`]), a child subreaper and a walk over the tree of processes with
//! SIGSTOP where not ([`signal`], [`spawn`]).
//!
//! Everything here is synchronous and takes paths, descriptors and numbers. It knows nothing of
//! what the processes are for, and it is the only crate of the workspace with `unsafe` in it; but
//! for the name of the function with which the program begins. Times are [`std::time::Duration`] or
//! nanoseconds of `CLOCK_MONOTONIC`, sizes are bytes. Built for 64-bit Linux; needs kernel 5.7 or
//! later for groups, 5.4 for the rest.

pub mod affinity;
pub mod allowance;
pub mod as_user;
pub mod cgroup;
pub mod clock;
pub mod code_pages;
pub mod container;
pub mod device_control;
pub mod devices;
pub mod disposition;
mod error;
pub mod file_locks;
pub mod fionread;
pub mod heap;
pub mod host_names;
pub mod inherited;
pub mod ipc_namespace;
pub mod kernel;
pub mod oom_score;
pub mod own_processes;
pub mod peer;
pub mod pidfd;
pub mod posix_queues;
pub mod proc;
pub mod processor;
mod procfile;
pub mod pty;
pub mod random;
pub mod reap;
pub mod remove_tree;
pub mod rt;
pub mod scm_rights;
pub mod shm;
pub mod signal;
pub mod spawn;
pub mod stdio;
pub mod subreaper;
pub mod swap;
pub mod system_clock;
pub mod sysvipc;
pub mod tcp;
pub mod track;
mod xattr;

pub use error::{Error, Result};
