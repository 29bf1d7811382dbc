//! Shared memory, message queues and semaphores of which no known user lives to use them again.
//! Their owners can't be told any more: jobs have their own, unless their class says `ipc=node` or
//! no root started them, and the agent removes of those what it can tell (`agent/src/ipc.rs`).
//! POSIX shared memory and semaphores are files, which all have in common.

use super::leftovers::Leftover;
use std::time::{SystemTime, UNIX_EPOCH};
use tutti_linux::posix_queues::{self, PosixQueue};
use tutti_linux::proc::ProcessStat;
use tutti_linux::shm::{self, SharedFile};
use tutti_linux::sysvipc::used::{self, Kind, Used};
use tutti_linux::sysvipc::{self, Segment};
use tutti_wire::units::{format_bytes, format_seconds};

/// Those of this user, or of all for root.
pub(super) fn find() -> Vec<Leftover> {
    let euid = nix::unistd::geteuid();
    let is_seen = |uid: u32| euid.is_root() || uid == euid.as_raw();
    let segments = sysvipc::segments().into_iter().filter(|it| is_seen(it.uid) && is_over(it));
    let used = used::all().into_iter().filter(|it| is_seen(it.uid));
    let used = used.filter(|it| !it.users.iter().any(|&pid| lives(pid)));
    let queues = posix_queues::all().into_iter().filter(|it| is_seen(it.uid) && !it.open);
    let now_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs());
    let mut found: Vec<Leftover> = segments.map(|it| memory(&it)).collect();
    found.extend(used.map(|it| queue_or_set(&it, now_s)));
    found.extend(queues.map(|it| posix_queue(&it, now_s)));
    found.extend(shm::unused(|it| is_seen(it.uid), None).iter().map(|it| shared_file(it, now_s)));
    found
}

fn lives(pid: i32) -> bool {
    ProcessStat::read(pid).is_ok()
}

fn is_over(segment: &Segment) -> bool {
    segment.attached == 0 && !lives(segment.maker)
}

fn memory(segment: &Segment) -> Leftover {
    let size = format_bytes(segment.bytes);
    let text =
        format!("{size} made by process {}, which has ended; see `man ipcrm`", segment.maker);
    Leftover::shown("memory", segment.id.to_string(), text)
}

fn queue_or_set(one: &Used, now_s: u64) -> Leftover {
    let Used { count, uid, made_s, users, .. } = one;
    let (kind, what) = match one.kind {
        Kind::Queue => ("queue", format!("{count} messages")),
        Kind::Semaphores => ("semaphores", format!("{count} semaphores")),
    };
    let pids: Vec<String> = users.iter().take(USERS_NAMED_MAX).map(ToString::to_string).collect();
    let more = if users.len() > USERS_NAMED_MAX { " and others" } else { "" };
    let last = match users.len() {
        0 => "used by no process".to_owned(),
        1 => format!("used last by process {}, which has ended", pids[0]),
        _ => format!("used last by processes {}{more}, which have ended", pids.join(", ")),
    };
    let ago = format_seconds(now_s.saturating_sub(*made_s));
    let text = format!("{what} of user {uid}, made {ago} ago, {last}; see `man ipcrm`");
    Leftover::shown(kind, one.id.to_string(), text)
}

/// A set of semaphores may have thousands.
const USERS_NAMED_MAX: usize = 4;

fn posix_queue(queue: &PosixQueue, now_s: u64) -> Leftover {
    let used_s = u64::try_from(queue.used_s).unwrap_or(0);
    let (uid, ago) = (queue.uid, format_seconds(now_s.saturating_sub(used_s)));
    let text =
        format!("of user {uid}, made or used last {ago} ago, open nowhere; see `man mq_overview`");
    Leftover::shown("queue", format!("/{}", queue.name.to_string_lossy()), text)
}

/// Shared memory by its name, or a semaphore.
fn shared_file(file: &SharedFile, now_s: u64) -> Leftover {
    let (kind, what) = match file.is_semaphore() {
        true => ("semaphores", "a semaphore".to_owned()),
        false => ("memory", format_bytes(file.bytes)),
    };
    let (uid, ago) = (file.uid, format_seconds(now_s.saturating_sub(file.made_s)));
    let text = format!(
        "{what} of user {uid}, made {ago} ago, open and mapped nowhere; see `man shm_overview`"
    );
    Leftover::shown(kind, file.path.display().to_string(), text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_of_them_is_told() {
        let set = Used {
            kind: Kind::Semaphores,
            id: 3,
            count: 2,
            uid: 1000,
            made_s: 100,
            used_s: 0,
            users: Vec::new(),
        };
        let told = |one: &Used| format!("{:?}", queue_or_set(one, 130));
        assert!(
            told(&set).contains("2 semaphores of user 1000, made 30s ago, used by no process;")
        );
        let used = Used { users: vec![7, 8], ..set };
        assert!(told(&used).contains("used last by processes 7, 8, which have ended;"));
        let many = Used { kind: Kind::Queue, users: (1..9).collect(), ..set };
        assert!(told(&many).contains("2 messages") && told(&many).contains("3, 4 and others"));
    }
}
