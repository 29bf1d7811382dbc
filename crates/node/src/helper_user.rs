//! The user of a helper: a process outside of its job's group that does something for that job.
//!
//! It is executed with the rights of the keeper, and becomes the job's user by itself. A process
//! that was that user's from its execution on could be traced until it has closed its memory. A
//! process of the job could make it execute another program then: outside of the job's turns and
//! limits, and beyond the job's end.

use std::io;
use tutti_linux::own_processes::{become_user_unseen, hide_memory};
use tutti_linux::spawn::Identity;
use tutti_wire::launch::Credentials;

/// Becomes this user, or stays that of the keeper, unseen by the job's processes. For a process
/// with one thread.
///
/// # Errors
/// What the kernel says; the process is to end then.
pub fn become_user(user: Option<&Credentials>) -> io::Result<()> {
    let Some(Credentials { uid, gid, groups }) = user else { return hide_memory() };
    become_user_unseen(&Identity { uid: *uid, gid: *gid, groups: groups.clone() })
}
