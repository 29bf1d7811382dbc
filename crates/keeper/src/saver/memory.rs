//! How much of a task's memory an image has to hold, about.

use super::process::read_status;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use tutti_linux::cgroup::own_groups;
use tutti_node::layout;

/// The memory of these processes that is no named file's, in bytes: by their own figures with the
/// files that they have open and that have no name, or by the figures of their group. What of it is
/// swapped out counts, too.
pub(super) fn to_save(processes: &BTreeSet<u32>) -> u64 {
    let mut unnamed = BTreeMap::new();
    let (mut own, mut shared) = (0, 0);
    for process in processes {
        let place = format!("/proc/{process}");
        let status = read_status(&place);
        // Threads are among the numbers, too.
        if status.lines().any(|line| line == format!("Tgid:\t{process}")) {
            own += kib(&status, &["RssAnon:", "VmSwap:"]);
            shared += kib(&status, &["RssShmem:"]);
            add_unnamed(&PathBuf::from(place), &mut unnamed);
        }
    }
    let unnamed: u64 = unnamed.values().sum();
    (own + shared.max(unnamed)).max(of_group().unwrap_or(0))
}

fn kib(status: &str, names: &[&str]) -> u64 {
    let is_named = |line: &&str| names.iter().any(|name| line.starts_with(name));
    let number = |line: &str| line.split_whitespace().nth(1)?.parse::<u64>().ok();
    status.lines().filter(is_named).filter_map(number).sum::<u64>() << 10
}

/// The files that a process has open and that have no name any more, or never had one: each once,
/// with what it takes.
fn add_unnamed(process: &Path, unnamed: &mut BTreeMap<(u64, u64), u64>) {
    for entry in fs::read_dir(process.join("fd")).into_iter().flatten().flatten() {
        let Ok(found) = fs::metadata(entry.path()) else { continue };
        if found.is_file() && found.nlink() == 0 {
            unnamed.insert((found.dev(), found.ino()), found.blocks() * 512);
        }
    }
}

/// What the memory controller counts for the group of this process, without what it has cached.
fn of_group() -> Option<u64> {
    let groups = own_groups();
    // Another's would have the memory of daemons, or of the whole machine.
    let is_jobs =
        |group: &&PathBuf| group.iter().any(|part| part.to_str().is_some_and(layout::is_of_a_job));
    let groups: Vec<&PathBuf> = groups.iter().map(|(_, group)| group).filter(is_jobs).collect();
    let read = |file: &str| groups.iter().find_map(|it| fs::read_to_string(it.join(file)).ok());
    let stat = read("memory.stat")?;
    let swapped = read("memory.swap.current").and_then(|text| text.trim().parse().ok());
    Some(of_stat(&stat) + swapped.unwrap_or(0))
}

/// The first names are those of v1, which has the swap in the same file.
fn of_stat(stat: &str) -> u64 {
    let value = |name: &str| {
        let line = stat.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.and_then(|value| value.trim().parse::<u64>().ok())
    };
    let first = |names: [&str; 2]| names.into_iter().find_map(value).unwrap_or(0);
    first(["total_rss", "anon"])
        + first(["total_shmem", "shmem"])
        + value("total_swap").unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::memfd::{MFdFlags, memfd_create};
    use std::io::Write;

    #[test]
    fn memory_counts_that_is_mapped_by_no_process() {
        let own = BTreeSet::from([std::process::id()]);
        let file = memfd_create(c"tutti-test", MFdFlags::empty()).unwrap();
        fs::File::from(file.try_clone().unwrap()).write_all(&vec![7; 96 << 20]).unwrap();
        let with = to_save(&own);
        assert!(with >= 96 << 20, "{with}");
        let mut unnamed = BTreeMap::new();
        add_unnamed(Path::new("/proc/self"), &mut unnamed);
        assert!(unnamed.values().any(|bytes| *bytes == 96 << 20), "{unnamed:?}");
        // Once, by however many descriptors.
        assert_eq!(unnamed.values().filter(|bytes| **bytes == 96 << 20).count(), 1);
        drop(file);
    }

    #[test]
    fn the_figures_of_groups_are_read_in_both_forms() {
        let v2 = "anon 100\nfile 7000\nshmem 20\nanon_thp 5\n";
        assert_eq!(of_stat(v2), 120);
        let v1 = "cache 9\nrss 1\nshmem 2\nswap 3\ntotal_cache 9\ntotal_rss 100\n\
                  total_shmem 30\ntotal_swap 4\n";
        assert_eq!(of_stat(v1), 134);
        assert_eq!(of_stat(""), 0);
        assert_eq!(
            kib("VmSwap:\t    2 kB\nRssAnon:\t 3 kB\nVmRSS:\t 9 kB\n", &["RssAnon:", "VmSwap:"]),
            5 << 10
        );
    }
}
