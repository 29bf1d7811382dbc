//! `tutti up --fresh`: an instance that begins without its former state.
//!
//! While no daemon but the keeper runs, the journal gets another name, and the number of the last
//! job goes into the file of released jobs ([`tutti_node::released`]). The instance then starts as
//! always. Its controller finds no journal, goes on with the numbers of jobs, and has all agents
//! release what they hold up to that number.

use super::{ROLES, found, lock, refuse_beside_one_without_directory, refuse_journal_in_use};
use crate::supervise::NOTIFIER;
use anyhow::Context;
use std::ffi::OsString;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use tutti_node::codes::coded;
use tutti_node::instance::Instance;
use tutti_node::layout;
use tutti_node::membership::Place;
use tutti_node::released;
use tutti_node::service;
use tutti_types::JobId;
use tutti_wire::code::Code;

/// A former state.
pub(crate) struct SetAside {
    /// Its journal, if there was one.
    pub(crate) journal: Option<PathBuf>,
    /// Its last job.
    pub(crate) until: JobId,
}

/// Sets the state of an instance that does not run aside, and releases its jobs.
///
/// # Errors
/// If it runs, or the machine is a node of a cluster and not its head; with what to do.
pub(crate) fn set_aside(instance: &Instance) -> anyhow::Result<SetAside> {
    let membership = Place::of(instance).membership()?;
    if let Some(membership) = membership.filter(|membership| !membership.head.is_empty()) {
        let reason = format!(
            "this machine is a node of cluster {}, and the state is at its head: use --fresh there, and the nodes follow",
            membership.cluster
        );
        return Err(coded(Code::Membership, reason));
    }
    instance.prepare()?;
    let Some(_lock) = lock(instance)? else {
        let reason = format!(
            "the instance in {} runs; `tutti down --leave-jobs` ends it and leaves its jobs running, `tutti down` ends \
             them too: use --fresh after one of these",
            instance.directory().display()
        );
        return Err(coded(Code::NotStarted, reason));
    };
    refuse_beside_one_without_directory(instance)?;
    for role in ROLES.into_iter().chain([NOTIFIER]).filter(|role| *role != "keeper") {
        found::end(instance, role)?;
    }
    refuse_journal_in_use(instance)?;
    let path = instance.make_journal_place()?;
    let until = JobId(tutti_controller::jobs_made(instance).max(last_of_groups(instance)));
    if until > JobId(0) {
        let file = instance.released_file();
        released::write(&file, until)
            .with_context(|| format!("cannot write {}", file.display()))?;
    }
    let former = instance.former_journal();
    let journal = rename(&path, &former)?.then_some(former);
    // What is said there of the journal is not true of the next one.
    instance.remove_journal();
    Ok(SetAside { journal, until })
}

/// The highest number of a job with a group on this machine: a journal that was restored may know
/// of fewer.
fn last_of_groups(instance: &Instance) -> u64 {
    let subtrees = service::subtrees(&instance.cgroup_name());
    let names: Vec<String> =
        subtrees.iter().flat_map(|it| it.children().unwrap_or_default()).collect();
    names.iter().filter_map(|name| layout::job_of(name)).max().unwrap_or_default().0
}

/// Renames a journal with all of its files; whether there was one.
fn rename(journal: &Path, former: &Path) -> anyhow::Result<bool> {
    let mut was_there = false;
    // The one that is looked for is the last to go.
    for suffix in ["-wal", "-shm", ""] {
        let [from, to] = [journal, former].map(|path| {
            let mut name = OsString::from(path);
            name.push(suffix);
            PathBuf::from(name)
        });
        match fs::rename(&from, &to) {
            Ok(()) => was_there = suffix.is_empty(),
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => {
                let what = format!("cannot rename {} to {}", from.display(), to.display());
                return Err(error).context(what);
            }
        }
    }
    Ok(was_there)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_journal_is_renamed_with_all_of_its_files() {
        let base = std::env::temp_dir().join(format!("tutti-aside-{}", std::process::id()));
        fs::create_dir_all(&base).unwrap();
        let [journal, former] = ["journal.db", "former-1.db"].map(|name| base.join(name));
        assert!(!rename(&journal, &former).unwrap());
        for name in ["journal.db", "journal.db-wal"] {
            fs::write(base.join(name), name).unwrap();
        }
        assert!(rename(&journal, &former).unwrap());
        assert_eq!(fs::read(base.join("former-1.db-wal")).unwrap(), b"journal.db-wal");
        assert!(former.exists() && !journal.exists());
        fs::remove_dir_all(&base).unwrap();
    }
}
