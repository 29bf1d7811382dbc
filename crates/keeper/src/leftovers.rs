//! What an earlier keeper of this node has left, when it was killed: groups with processes, files
//! of shared memory that these use, directories, scripts.

use super::KeeperOptions;
use super::context::chain;
use super::lease_watch::WALK;
use super::scratch;
use super::script;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};
use tracing::{info, warn};
use tutti_linux::proc;
use tutti_linux::shm::{self, Left};
use tutti_node::layout::{is_of_a_helper, is_of_a_job, is_released};
use tutti_node::platform::groups::{Cgroup, Hierarchy, resume_group_except};
use tutti_node::released;
use tutti_types::JobId;
use tutti_wire::code::Code;

/// Maximum number of processes of a group whose shared memory is looked for, and how long.
const PROCESSES_LOOKED_AT_MAX: usize = 4_096;
const LOOK_MAX: Duration = Duration::from_millis(500);

/// So many files of a group are enough.
const FILES_MAX: usize = 4_096;

/// Maximum number of groups within a group that are asked for their age.
const GROUPS_MAX: usize = 4_096;

/// Ends and removes all of it. Tasks that an earlier keeper held have lost their streams, and their
/// status is unknown.
pub(super) fn remove(options: &KeeperOptions) {
    let released = released::read(&options.released);
    let hierarchy = options.cgroup_root.as_ref().and_then(|root| Hierarchy::open(root).ok());
    let goes_on = hierarchy.as_ref().is_some_and(|it| let_go_on(it, released));
    if !goes_on {
        drop(scratch::remove_all(&options.scratch));
    }
    script::remove_all(&options.spool, if goes_on { released } else { JobId(0) });
    let (Some(root), Some(hierarchy)) = (&options.cgroup_root, hierarchy) else { return };
    let mut names = hierarchy.children().unwrap_or_default();
    names.retain(|name| is_of_a_job(name) || is_of_a_helper(name));
    names.retain(|name| !is_released(name, released));
    let mut left = Vec::new();
    let until = Instant::now() + LOOK_MAX;
    for name in names {
        warn!(code = %Code::PartEnded, "ending {name}, which an earlier keeper left");
        let path = root.join(&name);
        left.extend(Cgroup::open(&path).map_or_else(|_| Vec::new(), |it| shared_by(&it, until)));
        match Hierarchy::open(&path).map(|group| group.remove()) {
            Ok(Ok(true)) => {}
            _ => warn!(code = %Code::ProcessStuck, "{name} does not end"),
        }
    }
    // What one job shares with another is unused only when both have ended.
    for file in shm::remove_all_left(&left) {
        info!("removed {}, which a job of an earlier keeper left", file.display());
    }
}

/// Has released jobs run without their keeper: it was killed while some of them were suspended.
/// Whether there are such.
fn let_go_on(hierarchy: &Hierarchy, until: JobId) -> bool {
    let left = released::remove_empty(hierarchy, until);
    for (name, group) in released::groups(hierarchy, until) {
        info!("{name} is of a released job: it goes on as external load");
        if let Err(error) = group.request_thaw() {
            warn!(code = %Code::ProcessStuck, "cannot resume {name}: {}", chain(&error));
        }
        if let Err(error) = resume_group_except(&group, &BTreeSet::new(), &WALK) {
            warn!(code = %Code::ProcessStuck, "cannot resume {name}: {}", chain(&error));
        }
    }
    left
}

/// The shared memory that processes of a group use: files of their own users.
fn shared_by(group: &Cgroup, until: Instant) -> Vec<Left> {
    let mut owners: BTreeMap<u32, BTreeSet<PathBuf>> = BTreeMap::new();
    let mut pids = group.processes().unwrap_or_default();
    pids.truncate(PROCESSES_LOOKED_AT_MAX);
    for pid in pids {
        // The user that started it: a program may run with the rights of its file's owner.
        let Ok([user, ..]) = proc::user_ids(pid) else { continue };
        let is_users =
            |path: &PathBuf| fs::symlink_metadata(path).is_ok_and(|found| found.uid() == user);
        let files: Vec<PathBuf> =
            shm::mapped_files(&[pid], until).into_iter().filter(is_users).collect();
        if !files.is_empty() {
            owners.entry(user).or_default().extend(files);
        }
        if owners.values().map(BTreeSet::len).sum::<usize>() >= FILES_MAX {
            break;
        }
    }
    let since = if owners.is_empty() { SystemTime::now() } else { age(group.path()) };
    owners.into_iter().map(|(uid, files)| Left { files, uid, since }).collect()
}

/// When the oldest of the groups here and below was made, or got its first group: that of the first
/// task is as old as the job.
fn age(group: &Path) -> SystemTime {
    let mut oldest = SystemTime::now();
    let mut waiting = vec![group.to_owned()];
    for _ in 0..GROUPS_MAX {
        let Some(path) = waiting.pop() else { break };
        if let Ok(at) = fs::metadata(&path).and_then(|found| found.modified()) {
            oldest = oldest.min(at);
        }
        let below = fs::read_dir(&path).into_iter().flatten().flatten();
        let is_group = |entry: &fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_dir());
        waiting.extend(below.filter(is_group).map(|entry| entry.path()));
    }
    oldest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_as_old_as_the_oldest_within() {
        let top = std::env::temp_dir().join(format!("tutti-age-{}", std::process::id()));
        fs::create_dir_all(top.join("step-0/rank-0")).unwrap();
        let old = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000);
        fs::File::open(top.join("step-0/rank-0")).unwrap().set_modified(old).unwrap();
        assert_eq!(age(&top), old);
        fs::remove_dir_all(&top).unwrap();
    }
}
