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

/// What stands for the user of the keeper.
const SAME: &str = "-";

/// Becomes this user, or stays that of the keeper, unseen by the job's processes. For a process
/// with one thread.
///
/// # Errors
/// What the kernel says; the process is to end then.
pub fn become_user(user: Option<&Credentials>) -> io::Result<()> {
    let Some(Credentials { uid, gid, groups }) = user else { return hide_memory() };
    become_user_unseen(&Identity { uid: *uid, gid: *gid, groups: groups.clone() })
}

/// This user, or that of the keeper, as a word of a command line.
pub fn word_of(user: Option<&Credentials>) -> String {
    let Some(Credentials { uid, gid, groups }) = user else { return SAME.to_owned() };
    let groups: Vec<String> = groups.iter().map(ToString::to_string).collect();
    format!("{uid}:{gid}:{}", groups.join(","))
}

/// What [`word_of`] has said; `None` if it has not.
#[allow(clippy::option_option, reason = "the inner one is what become_user takes")]
pub fn user_of(word: &str) -> Option<Option<Credentials>> {
    if word == SAME {
        return Some(None);
    }
    let mut parts = word.splitn(3, ':');
    let mut number = || parts.next()?.parse().ok();
    let (uid, gid) = (number()?, number()?);
    let groups = parts.next()?.split(',').filter(|it| !it.is_empty());
    let groups = groups.map(|it| it.parse().ok()).collect::<Option<_>>()?;
    Some(Some(Credentials { uid, gid, groups }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_read_as_they_are_written() {
        for groups in [vec![], vec![7], vec![7, 8]] {
            let user = Some(Credentials { uid: 1000, gid: 100, groups });
            assert_eq!(user_of(&word_of(user.as_ref())), Some(user));
        }
        assert_eq!(user_of(&word_of(None)), Some(None));
        for word in ["", "-s", "1", "1:2", "1:2:x", "-1:2:", "1:2:3:4"] {
            assert_eq!(user_of(word), None, "{word}");
        }
    }
}
