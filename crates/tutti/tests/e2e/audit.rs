//! What is left of an instance, as it is seen from outside: processes, cgroups, shared memory,
//! directories.

use crate::harness::{Instance, command_line, describe, eventually, processes};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Processes of the instance in this directory, and those with this length of sleep.
fn processes_of(dir: &Path, nap: &str) -> Vec<i32> {
    let name = dir.to_string_lossy();
    let variable = format!("TUTTI_DIR={name}");
    let is_its = |pid: &i32| {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        let words = command_line(*pid);
        environment.split(|&b| b == 0).any(|entry| entry == variable.as_bytes())
            || words.iter().any(|word| *word == name || word.contains(nap))
    };
    processes().into_iter().filter(is_its).collect()
}

/// Processes and cgroups of the instance of a user that is, or was, in this directory, and
/// processes with this length of sleep.
pub(crate) fn traces_of(dir: &Path, user: u32, nap: &str) -> Vec<String> {
    let processes = processes_of(dir, nap).into_iter().map(describe);
    let groups = cgroups_named(&cgroup_name(dir, user)).into_iter();
    processes.chain(groups.map(|found| format!("cgroup {}", found.display()))).collect()
}

/// Ends all of these.
pub(crate) fn end_by_force(dir: &Path, user: u32, nap: &str) {
    // A killed process holds its group until it is reaped.
    for _ in 0..30 {
        for pid in processes_of(dir, nap) {
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
        let groups = cgroups_named(&cgroup_name(dir, user));
        groups.iter().for_each(|group| end_group(group));
        if groups.iter().all(|group| !group.exists()) {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

/// Ends the processes of a cgroup, and removes it with those below.
pub(crate) fn end_group(group: &Path) {
    let _ = fs::write(group.join("cgroup.kill"), "1");
    remove_groups(group);
}

fn remove_groups(path: &Path) {
    for entry in fs::read_dir(path).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_groups(&entry.path());
        }
    }
    let _ = fs::remove_dir(path);
}

/// The cgroups of that name in every hierarchy that is mounted.
pub(crate) fn cgroups_named(name: &str) -> Vec<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let mut found = Vec::new();
    for line in mounts.lines() {
        let mut words = line.split(' ').skip(1);
        if let (Some(path), Some("cgroup" | "cgroup2")) = (words.next(), words.next()) {
            find_directory(Path::new(path), name, 8, &mut found);
        }
    }
    found
}

fn find_directory(path: &Path, name: &str, depth: u32, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(path).into_iter().flatten().flatten() {
        if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            continue;
        }
        // Companions for processor time lie beside each other: their names have points.
        if entry.file_name().to_string_lossy().split('.').next() == Some(name) {
            found.push(entry.path());
        } else if depth > 0 {
            find_directory(&entry.path(), name, depth - 1, found);
        }
    }
}

/// The name of an instance's cgroup, as the product makes it.
pub(crate) fn cgroup_name(dir: &Path, user: u32) -> String {
    let hash = tutti_types::digest::Digest::of(dir.as_os_str().as_encoded_bytes());
    format!("tutti-{user}-{:08x}", hash >> 32)
}

/// Shared memory, and directories of instances whose owner has gone.
pub(crate) fn shared_files() -> BTreeSet<PathBuf> {
    let list = |path: &str| fs::read_dir(path).into_iter().flatten().flatten().map(|e| e.path());
    let abandoned = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let ours = ["tutti-demo-", "tutti-bench-", "tutti-doctor-"];
        let owner = ours.iter().find_map(|prefix| name.strip_prefix(prefix));
        owner.is_some_and(|pid| {
            pid.parse().is_ok_and(|pid: i32| pid != 0 && command_line(pid).is_empty())
        })
    };
    list("/dev/shm").chain(list("/tmp").filter(abandoned)).collect()
}

#[test]
fn finds_what_is_left() {
    let instance = Instance::new().up();
    let sleeper = Command::new("sleep").arg(&instance.nap).spawn();
    let mut sleeper = sleeper.unwrap();
    let left = instance.leftovers();
    sleeper.kill().unwrap();
    sleeper.wait().unwrap();
    for what in ["sleep", "keeper", "controller", "agent", "cgroup", "directory"] {
        assert!(
            left.iter().any(|found| found.contains(what)),
            "the audit misses {what}: {left:#?}"
        );
    }
    let file = PathBuf::from(format!("/dev/shm/te2e-{}", std::process::id()));
    fs::write(&file, "x").unwrap();
    let left = instance.leftovers();
    fs::remove_file(&file).unwrap();
    let name = file.display().to_string();
    assert!(left.iter().any(|found| found.contains(&name)), "{left:#?}");
    instance.tutti(&["down"]).expect(0);
    eventually("an audit that finds nothing", || instance.leftovers().is_empty().then_some(()));
}
