//! Which kinds of cgroups are mounted, and where this process is in them.

use super::hierarchy::Mounts;
use std::fs;
use std::path::PathBuf;

/// Which kinds of cgroups are mounted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// cgroup2 alone.
    V2,
    /// cgroup2 beside hierarchies of v1, which have controllers.
    Hybrid,
    /// v1 alone.
    V1,
    /// Neither.
    None,
}

impl Layout {
    /// The word for it in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::V2 => "v2",
            Self::Hybrid => "hybrid",
            Self::V1 => "v1",
            Self::None => "none",
        }
    }

    fn parse(mountinfo: &str) -> Self {
        let is_mounted = |kind: &str| {
            let kind = format!(" - {kind} ");
            // Hierarchies without a controller have a name instead.
            mountinfo.lines().any(|line| line.contains(&kind) && !line.contains("name="))
        };
        match (is_mounted("cgroup2"), is_mounted("cgroup")) {
            (true, false) => Self::V2,
            (true, true) => Self::Hybrid,
            (false, true) => Self::V1,
            (false, false) => Self::None,
        }
    }
}

/// Which kinds of cgroups this process sees.
#[must_use]
pub fn layout() -> Layout {
    Layout::parse(&fs::read_to_string("/proc/self/mountinfo").unwrap_or_default())
}

/// The group of this process in each mounted hierarchy, after the mount point.
#[must_use]
pub fn own_groups() -> Vec<(PathBuf, PathBuf)> {
    let mounts = Mounts::read().unwrap_or_default();
    let own = |point: PathBuf| {
        let group = mounts.group_beside(&point).unwrap_or_else(|| point.clone());
        (point, group)
    };
    mounts.points().into_iter().map(own).collect()
}

/// Where cgroup2 is mounted.
#[must_use]
pub fn v2_point() -> Option<PathBuf> {
    let points = Mounts::read().unwrap_or_default().points();
    points.into_iter().find(|point| point.join("cgroup.controllers").exists())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layouts_are_known_by_what_is_mounted() {
        let v2 = "30 23 0:26 / /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw\n";
        let v1 = "31 23 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n";
        let named = "32 23 0:28 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,name=systemd\n";
        assert_eq!(Layout::parse(v2), Layout::V2);
        assert_eq!(Layout::parse(&[v2, named].concat()), Layout::V2);
        assert_eq!(Layout::parse(&[v2, v1].concat()), Layout::Hybrid);
        assert_eq!(Layout::parse(v1), Layout::V1);
        assert_eq!(Layout::parse("1 1 0:1 / /proc rw - proc proc rw\n"), Layout::None);
    }
}
