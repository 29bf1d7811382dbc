//! `tutti doctor --leftovers`: what instances that are gone have left, and its removal.
//!
//! The name of a thing says its owner: cgroups and directories for temporary files are named after
//! their instance, and an instance is gone when no daemon of it runs. Removed is only what is
//! certainly that, and of an instance of the user's own: others could have made it so that its
//! removal hits something else. All else is shown ([`super::leftover_ipc`]: shared memory, queues
//! and semaphores).

use super::leftover_ipc;
use crate::supervise;
use nix::unistd::geteuid;
use serde::Serialize;
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use tutti_client::output::{counted, fold, plain, print, print_json, terminal_width};
use tutti_linux::cgroup::{mount_points, processes_of};
use tutti_linux::proc::{self, ProcessStat, command_line};
use tutti_linux::remove_tree::remove_tree_of;
use tutti_node::exit::Exit;
use tutti_node::instance::{self, Instance, is_in_a_job};
use tutti_node::presence;

/// How deep below a mount point a cgroup of ours can be: that of a user's service manager, and
/// more.
const DEPTH_MAX: u32 = 8;

/// How often an emptied cgroup is tried to be removed: what was killed in it takes a moment to end.
const ATTEMPTS_MAX: u32 = 500;

/// Something that was left.
#[derive(Debug, Serialize)]
pub(super) struct Leftover {
    /// `instance`, `cgroup`, `directory`, `process`, `memory`, `queue` or `semaphores`.
    kind: &'static str,
    /// Which.
    name: String,
    /// What it is.
    text: String,
    /// Whether `--remove` removes it.
    removable: bool,
    /// Whether it was removed.
    removed: bool,
    #[serde(skip)]
    path: PathBuf,
}

impl Leftover {
    fn new(kind: &'static str, path: &Path, owner: Option<u32>, text: String) -> Self {
        let (removable, removed) = (owner == Some(geteuid().as_raw()), false);
        let text = match owner {
            Some(owner) if !removable => format!("{text}; user {owner} can remove it"),
            _ => text,
        };
        Self { kind, name: path.display().to_string(), text, removable, removed, path: path.into() }
    }

    /// One that is only shown.
    pub(super) fn shown(kind: &'static str, name: String, text: String) -> Self {
        Self { kind, name, text, removable: false, removed: false, path: PathBuf::new() }
    }

    fn remove(&mut self) {
        self.removed = match self.kind {
            "instance" => {
                supervise::clean_up_for_dead(&Instance::at(self.path.clone()));
                let is_gone = !has_remains(&self.path);
                if is_gone {
                    self.text = "its daemons were gone".into();
                }
                is_gone
            }
            // It went with its instance.
            "cgroup" if !self.path.exists() => true,
            // Since it was found, an instance of that name may have been started.
            _ if Daemons::find().have(&self.path) => false,
            "cgroup" => is_own(&self.path) && remove_group(&self.path),
            // Follows no links, and has no more rights than the job's user.
            _ => remove_tree_of(&self.path, None).is_ok(),
        };
    }
}

pub(super) fn execute(remove: bool, json: bool) -> anyhow::Result<Exit> {
    let daemons = Daemons::find();
    let mut found = instances();
    found.extend(cgroups(&daemons));
    found.extend(directories(&daemons));
    found.extend(processes(&daemons));
    found.extend(leftover_ipc::find());
    if remove {
        found.iter_mut().filter(|it| it.removable).for_each(Leftover::remove);
    }
    if json {
        print_json(&found)?;
    } else {
        print(&render(&found, terminal_width().unwrap_or(usize::MAX)))?;
    }
    let is_left = found.iter().any(|leftover| !leftover.removed);
    Ok(if is_left { Exit::FAILED } else { Exit::OK })
}

fn render(found: &[Leftover], width: usize) -> String {
    if found.is_empty() {
        return "nothing is left of instances that are gone\n".into();
    }
    let mut text = String::new();
    for leftover in found {
        let removed = if leftover.removed { "; removed" } else { "" };
        let line = format!("{} {}: {}{removed}", leftover.kind, leftover.name, leftover.text);
        for part in fold(&plain(&line), width) {
            text.push_str(&format!("{part}\n"));
        }
    }
    if found.iter().any(|leftover| leftover.removable && !leftover.removed) {
        text.push_str("-> tutti doctor --leftovers --remove\n");
    }
    text
}

/// The owner of the directory; `None` if it is none, never through a link.
fn owner_of(path: &Path) -> Option<u32> {
    fs::symlink_metadata(path).ok().filter(fs::Metadata::is_dir).map(|found| found.uid())
}

fn is_own(path: &Path) -> bool {
    owner_of(path) == Some(geteuid().as_raw())
}

/// The user of the instance that a directory for temporary files is of. The directory itself is
/// that of the job's user.
fn owner_of_scratch(path: &Path, group: &str) -> Option<u32> {
    let of_instance = group.split('-').nth(1)?.parse().ok()?;
    let of_directory = owner_of(path)?;
    // A user that is not root gives it its name.
    Some(if geteuid().is_root() { of_instance } else { of_directory })
}

/// The daemons that run, of all instances that can be seen.
struct Daemons {
    pids: BTreeSet<i32>,
    /// Names of the cgroups of their instances.
    groups: BTreeSet<String>,
}

impl Daemons {
    fn find() -> Self {
        let mut daemons = Self { pids: BTreeSet::new(), groups: BTreeSet::new() };
        for pid in proc::all() {
            let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let words: Vec<String> =
                words.split(|&b| b == 0).map(|word| String::from_utf8_lossy(word).into()).collect();
            let at = words.iter().position(|word| word == "--directory");
            let role = words.get(1).map(String::as_str);
            if matches!(role, Some("keeper" | "agent" | "controller"))
                && let Some(directory) = at.and_then(|at| words.get(at + 1))
                && let Ok(ids) = proc::user_ids(pid)
            {
                daemons.pids.insert(pid);
                let instance = Instance::at(directory.into());
                daemons.groups.insert(instance.cgroup_name_for(ids[1]));
            }
        }
        daemons
    }

    /// Whether what is named so is of an instance of theirs.
    fn have(&self, path: &Path) -> bool {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        group_in(&name).is_some_and(|group| self.groups.contains(group))
    }
}

/// The name of an instance's cgroup, if a name begins with one.
fn group_in(name: &str) -> Option<&str> {
    let rest = name.strip_prefix("tutti-")?;
    let (uid, rest) = rest.split_once('-')?;
    let hash = rest.split('-').next()?;
    let is_number = !uid.is_empty() && uid.bytes().all(|byte| byte.is_ascii_digit());
    let is_hash = hash.len() == 8 && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
    (is_number && is_hash).then(|| &name[.."tutti-".len() + uid.len() + 1 + hash.len()])
}

/// Directories of instances without a supervisor, with something in them that only one makes.
fn instances() -> Vec<Leftover> {
    let is_dead = |path: &Path| {
        let instance = Instance::at(path.into());
        // Of others' we can't tell, and they are theirs to remove.
        let own = instance.open().ok().flatten();
        own.is_some_and(|own| own.is_own())
            && !presence::is_supervised(&instance)
            && !instance.answers()
            && !presence::has_keeper(&instance)
    };
    let dead = instance::places().into_iter().filter(|path| is_dead(path) && has_remains(path));
    let found = |path: PathBuf| {
        let instance = Instance::at(path.clone());
        let removed = match instance.private && instance.keeps_journal() {
            true => "`--remove` takes away all but its journal",
            false => "`--remove` takes that away",
        };
        let text = format!(
            "its daemons are gone; `{}` goes on with what it has, {removed}",
            instance.up_command()
        );
        Leftover::new("instance", &path, owner_of(&path), text)
    };
    dead.map(found).collect()
}

/// Whether there is something in a directory that an instance removes when it ends.
fn has_remains(path: &Path) -> bool {
    ["lock", "controller.sock", "keeper.sock"].iter().any(|name| path.join(name).exists())
}

fn cgroups(daemons: &Daemons) -> Vec<Leftover> {
    let mut found = Vec::new();
    for mount in mount_points() {
        find_groups(&mount, DEPTH_MAX, &mut found);
    }
    found.retain(|path| !daemons.have(path));
    let leftover = |path: PathBuf| {
        let text = match processes_of(&path).unwrap_or_default().len() {
            0 => "the empty cgroup of an instance that is gone".into(),
            count => format!(
                "the cgroup of an instance that is gone, with {}",
                counted(count as u64, "process")
            ),
        };
        Leftover::new("cgroup", &path, owner_of(&path), text)
    };
    found.into_iter().map(leftover).collect()
}

fn find_groups(directory: &Path, depth: u32, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            continue;
        }
        let name = entry.file_name().to_string_lossy().into_owned();
        // A point parts the names of groups where they all lie beside each other.
        if group_in(&name) == name.split('.').next() {
            found.push(entry.path());
        } else if depth > 0 {
            find_groups(&entry.path(), depth - 1, found);
        }
    }
}

/// Ends what is in it, where that can be done at once, and removes it.
fn remove_group(path: &Path) -> bool {
    let _ = fs::write(path.join("cgroup.kill"), "1");
    for _ in 0..ATTEMPTS_MAX {
        remove_below(path);
        if !path.exists() {
            return true;
        }
        if !path.join("cgroup.kill").exists() {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    false
}

fn remove_below(path: &Path) {
    for entry in fs::read_dir(path).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_below(&entry.path());
        }
    }
    let _ = fs::remove_dir(path);
}

/// Temporary files of jobs.
fn directories(daemons: &Daemons) -> Vec<Leftover> {
    let entries = fs::read_dir(std::env::temp_dir()).into_iter().flatten().flatten();
    let leftover = |entry: fs::DirEntry| {
        let name = entry.file_name().to_string_lossy().into_owned();
        let group = group_in(&name)?;
        let path = entry.path();
        if name[group.len()..].starts_with("-left-") {
            return owner_of(&path).map(|owner| not_removable(&path, owner));
        }
        if !name[group.len()..].starts_with("-job-") {
            return None;
        }
        let text = "temporary files of a job whose instance is gone".into();
        let owner = owner_of_scratch(&path, group);
        (!daemons.have(&path)).then(|| Leftover::new("directory", &path, owner, text))
    };
    entries.filter_map(leftover).collect()
}

/// What the keeper has put aside, also of an instance that lives.
fn not_removable(path: &Path, owner: u32) -> Leftover {
    let text = format!(
        "what a job of user {owner} has left and this user may not remove, as files of others; \
         they can, or root"
    );
    Leftover::shown("directory", path.display().to_string(), text)
}

/// Processes that were started in a job and are in none any more.
fn processes(daemons: &Daemons) -> Vec<Leftover> {
    let mut found = Vec::new();
    for pid in proc::all() {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        let job = environment.split(|&b| b == 0).find_map(|word| word.strip_prefix(b"TUTTI_JOB="));
        let Some(job) = job.map(String::from_utf8_lossy) else { continue };
        let is_held = || proc::ancestors(pid).iter().any(|above| daemons.pids.contains(above));
        // Verbs, and processes that run tests within a job, are no strays.
        let is_own = pid.unsigned_abs() == std::process::id() || daemons.pids.contains(&pid);
        // What it descends from is asked last: that is much to read.
        if !is_own
            && !is_in_a_job(pid)
            && !is_held()
            && let Ok(stat) = ProcessStat::read(pid)
        {
            let text = format!(
                "{}, started in job {job} and in none now; `kill -9 {pid}` ends it",
                command_line(&stat)
            );
            found.push(Leftover::shown("process", pid.to_string(), text));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::group_in;

    #[test]
    fn names_of_ours_are_told_from_others() {
        assert_eq!(group_in("tutti-0-0123abcd"), Some("tutti-0-0123abcd"));
        assert_eq!(group_in("tutti-1000-0123abcd-job-7.1"), Some("tutti-1000-0123abcd"));
        for other in ["tutti-0", "tutti-x-0123abcd", "tutti-0-0123abc", "tutti--0123abcd", "a", ""]
        {
            assert_eq!(group_in(other), None, "{other}");
        }
    }
}
