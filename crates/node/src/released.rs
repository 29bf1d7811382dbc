//! Released jobs: those of a former state that the instance was started without. What still runs of
//! them is external load. No daemon ends or suspends it.
//!
//! Which jobs these are is one number: all up to it. Numbers of jobs are never used twice, so it
//! stays true. Each node has it in a file, since a keeper that begins ends what it finds in groups
//! of other jobs.

use crate::layout::is_released;
use crate::platform::groups::{Cgroup, Hierarchy};
use std::path::Path;
use std::{fs, io};
use tutti_types::JobId;

/// The last released job that a file names; zero where there is no such file.
pub fn read(file: &Path) -> JobId {
    let text = fs::read_to_string(file).unwrap_or_default();
    JobId(text.trim().parse().unwrap_or(0))
}

/// Has the daemons that begin from now on know the last released job.
///
/// # Errors
/// If the file can't be written.
pub fn write(file: &Path, until: JobId) -> io::Result<()> {
    let next = file.with_extension("next");
    fs::write(&next, format!("{until}\n"))?;
    fs::rename(&next, file)
}

/// The groups of released jobs in an instance's subtree, by name.
pub fn groups(hierarchy: &Hierarchy, until: JobId) -> Vec<(String, Cgroup)> {
    if until == JobId(0) {
        return Vec::new();
    }
    let mut names = hierarchy.children().unwrap_or_default();
    names.retain(|name| is_released(name, until));
    let open = |name: String| {
        let group = Cgroup::open(&hierarchy.path().join(&name)).ok()?;
        Some((name, group))
    };
    names.into_iter().filter_map(open).collect()
}

/// Removes the groups of released jobs that have no process any more. Whether any is left.
pub fn remove_empty(hierarchy: &Hierarchy, until: JobId) -> bool {
    let mut is_left = false;
    for (_, group) in groups(hierarchy, until) {
        is_left |= matches!(group.is_populated(), Ok(true)) || !matches!(group.remove(), Ok(true));
    }
    is_left
}

/// Ends what is left in an instance's groups and removes them, but for groups of released jobs with
/// processes. Whether there are such.
pub fn remove_others(hierarchy: &Hierarchy, until: JobId) -> bool {
    if !remove_empty(hierarchy, until) {
        let _ = hierarchy.remove();
        return false;
    }
    let names = hierarchy.children().unwrap_or_default();
    for name in names.iter().filter(|name| !is_released(name, until)) {
        if let Ok(group) = Hierarchy::open(&hierarchy.path().join(name)) {
            let _ = group.remove();
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_released_job_is_kept_in_a_file() {
        let file = std::env::temp_dir().join(format!("tutti-released-{}", std::process::id()));
        assert_eq!(read(&file), JobId(0));
        write(&file, JobId(41)).unwrap();
        write(&file, JobId(42)).unwrap();
        assert_eq!(read(&file), JobId(42));
        fs::write(&file, "").unwrap();
        assert_eq!(read(&file), JobId(0));
        fs::remove_file(&file).unwrap();
    }
}
