//! What of the machine this process may use: its processors by affinity and cpuset, processor time
//! and memory by the limits of the groups that it is in.
//!
//! In a container, or in a unit with `CPUQuota=`, the machine has more than that. The limits stand
//! in the group of the process and those above it, as far as they are mounted: in a container the
//! root group that is visible is the container's own.

use crate::cgroup::own_groups;
use crate::container::pid_namespace;
use crate::proc::online_processors;
use std::fs;
use std::path::Path;

/// Limits on this process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Allowance {
    /// Processor time that the groups may use, in thousandths of a processor; `None`: all.
    pub quota_milli: Option<u32>,
    /// Memory that the groups may use, bytes; `None`: all.
    pub memory_bytes: Option<u64>,
}

impl Allowance {
    /// As the kernel has it now.
    #[must_use]
    pub fn read() -> Self {
        let mut least = Self::default();
        for (point, own) in own_groups() {
            for group in own.ancestors().take_while(|group| group.starts_with(&point)) {
                least.take_least(&Self::of(group));
            }
        }
        least
    }

    /// The limits of one group, of v2 or v1.
    fn of(group: &Path) -> Self {
        let text = |file: &str| fs::read_to_string(group.join(file)).ok();
        let v1 = || {
            let quota = text("cpu.cfs_quota_us")?;
            Some(format!("{} {}", quota.trim(), text("cpu.cfs_period_us")?))
        };
        let quota = text("cpu.max").or_else(v1);
        let memory = text("memory.max").or_else(|| text("memory.limit_in_bytes"));
        Self {
            quota_milli: quota.and_then(|text| parse_quota(&text)),
            memory_bytes: memory.and_then(|text| text.trim().parse().ok()),
        }
    }

    fn take_least(&mut self, other: &Self) {
        let least = |a: Option<u64>, b: Option<u64>| a.into_iter().chain(b).min();
        let quota = least(self.quota_milli.map(u64::from), other.quota_milli.map(u64::from));
        self.quota_milli = quota.and_then(|milli| u32::try_from(milli).ok());
        self.memory_bytes = least(self.memory_bytes, other.memory_bytes);
    }

    /// The processors to run jobs on, ascending: those that this process may use, and no more of
    /// them than the quota has time for, a part of one counted as one.
    #[must_use]
    pub fn processors(&self) -> Vec<u32> {
        let seed = pid_namespace().unwrap_or(0);
        self.processors_of(online_processors(), seed)
    }

    /// Containers on one machine begin at different processors, by their pid namespace: else all
    /// with a quota would use the first ones.
    fn processors_of(&self, mut online: Vec<u32>, seed: u64) -> Vec<u32> {
        let Some(milli) = self.quota_milli else { return online };
        let count = usize::try_from(milli.div_ceil(1000).max(1)).unwrap_or(usize::MAX);
        if count < online.len() {
            let len = online.len();
            online.rotate_left(usize::try_from(seed % len as u64).unwrap_or(0));
            online.truncate(count);
            online.sort_unstable();
        }
        online
    }

    /// Of the memory of the machine, what there is for jobs.
    #[must_use]
    pub fn memory_of(&self, machine_bytes: u64) -> u64 {
        self.memory_bytes.map_or(machine_bytes, |limit| limit.min(machine_bytes))
    }
}

/// `QUOTA PERIOD` in microseconds, in thousandths; `None` for `max` or a negative quota, which is
/// none.
fn parse_quota(text: &str) -> Option<u32> {
    let mut words = text.split_whitespace();
    let quota: u64 = words.next()?.parse().ok()?;
    let period: u64 = words.next()?.parse().ok().filter(|&period| period > 0)?;
    u32::try_from(quota.saturating_mul(1000) / period).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotas_are_read_as_v2_and_v1_write_them() {
        assert_eq!(parse_quota("150000 100000\n"), Some(1500));
        assert_eq!(parse_quota("max 100000\n"), None);
        assert_eq!(parse_quota("-1 100000\n"), None);
        assert_eq!(parse_quota("1 0"), None);
        assert_eq!(parse_quota(""), None);
    }

    #[test]
    fn a_quota_leaves_as_many_processors_as_it_has_time_for() {
        let with = |quota_milli| Allowance { quota_milli, memory_bytes: None };
        let online: Vec<u32> = (0..64).collect();
        let count = |milli| with(Some(milli)).processors_of(online.clone(), 7).len();
        assert_eq!([10, 1000, 1001, 2500, 64_000, 70_000].map(count), [1, 1, 2, 3, 64, 64]);
        assert_eq!(with(None).processors_of(online.clone(), 7), online);
    }

    #[test]
    fn two_containers_with_a_quota_use_different_processors() {
        let one = Allowance { quota_milli: Some(2000), memory_bytes: None };
        let online: Vec<u32> = (0..8).collect();
        assert_eq!(one.processors_of(online.clone(), 16), [0, 1]);
        assert_eq!(one.processors_of(online, 23), [0, 7]);
        assert_eq!(one.processors_of(vec![3, 5, 9], 1), [5, 9]);
    }

    #[test]
    fn the_least_limit_on_the_way_up_holds() {
        let mut least = Allowance { quota_milli: Some(1500), memory_bytes: None };
        least.take_least(&Allowance { quota_milli: Some(2000), memory_bytes: Some(7) });
        least.take_least(&Allowance { quota_milli: None, memory_bytes: Some(9) });
        assert_eq!(least, Allowance { quota_milli: Some(1500), memory_bytes: Some(7) });
        assert_eq!(least.memory_of(100), 7);
        assert_eq!(Allowance::default().memory_of(100), 100);
    }
}
