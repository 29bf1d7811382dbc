//! The crate on the real kernel: groups, trees of processes, starts. Needs root, cgroup2 and
//! `userfaultfd`, and fails where it has not got them: nothing is skipped.
//!
//! Every test makes a subtree `tutti-test-<pid>-<name>` of its own and removes it, also when it
//! fails. Nothing is timed: waits are for a state, with a deadline that only a defect reaches.
//! Where the point is that nothing happens, that is watched for [`support::QUIET`].

#![allow(clippy::unwrap_used, reason = "the lint spares tests, but not their helpers")]

mod device_gate;
mod group;
mod group_limits;
mod nursery;
mod priority;
mod spawn_fails;
mod spawn_sets;
mod support;
mod track;
mod walk;
mod walk_group;
mod walk_minder;
