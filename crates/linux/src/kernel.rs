//! What this kernel can do of the newer calls that the rest of this crate relies on or has
//! fall-backs for.

use crate::pidfd;
use crate::spawn::has_births_into_groups;
use std::path::Path;

/// The oldest release that has every call without a fall-back: `pidfd_open`, and `poll` of what it
/// opens.
pub const LEAST_RELEASE: &str = "5.3";

/// How a process gets into its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Births {
    /// It is made there by `clone3` (Linux 5.7).
    IntoGroup,
    /// It moves there itself before it does anything else: the kernel is older, or a filter forbids
    /// `clone3`.
    Moved,
}

/// What `uname` calls the kernel.
#[must_use]
pub fn release() -> String {
    nix::sys::utsname::uname()
        .map_or_else(|_| "?".into(), |it| it.release().to_string_lossy().into_owned())
}

/// The name of a call that is needed and that this kernel, or a filter, refuses.
#[must_use]
pub fn missing_call() -> Option<&'static str> {
    let own = std::process::id().cast_signed();
    pidfd::open(own).err().filter(|error| !error.is_gone()).map(|_| "pidfd_open")
}

/// How processes get into their groups here.
#[must_use]
pub fn births() -> Births {
    if has_births_into_groups() { Births::IntoGroup } else { Births::Moved }
}

/// Whether groups such as this one are ended by one write to `cgroup.kill` (Linux 5.14), rather
/// than by signals to each process while they are frozen.
#[must_use]
pub fn kills_groups_at_once(group: &Path) -> bool {
    group.join("cgroup.kill").exists()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_that_runs_these_tests_has_all_that_is_needed() {
        assert_eq!(missing_call(), None);
        assert!(release().starts_with(|c: char| c.is_ascii_digit()));
    }
}
