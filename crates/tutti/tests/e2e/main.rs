//! End-to-end tests: the real program, real instances, real processes and cgroups.
//!
//! They need root, the packages of `tests/install-deps`, and two processors that are not busy with
//! anything else; where there are more, each test uses two of them. Each test has an instance of its own, and each instance is audited when its test
//! has passed: nothing of it may be left (see [`audit`]).
#![allow(clippy::unwrap_used, reason = "a test that can't go on has failed")]

mod access;
mod accounts;
mod adopt;
mod affinity;
mod anywhere;
mod audit;
mod bench;
mod by_hand;
mod classes;
mod cli;
mod cluster;
mod clusters;
mod codes;
mod containers;
mod control;
mod deadline;
mod demo;
mod disk;
mod env;
mod escape;
mod exit;
mod external_load;
mod faults;
mod faults_by_steps;
mod frames;
mod fugitives;
mod gangs;
mod harness;
mod heads;
mod hostile;
mod join_ssh;
mod leftovers;
mod messages;
mod mpi;
mod nested;
mod nodes;
mod old_kernels;
mod on_request;
mod oom_score;
mod order;
mod orders;
mod partition;
mod pmi;
mod port;
mod priority;
mod private;
mod queues;
mod reboot;
mod recovery;
mod resources;
mod run;
mod service;
mod shared_files;
mod sharing;
mod sim;
mod squatters;
mod stalls;
mod stdio;
mod stuck;
mod submit;
mod subtree;
mod switch;
mod tidy;
mod top;
mod track;
mod tree;
mod unborn;
mod upgrade;
mod upgrade_all;
mod without_cgroups;
mod witness;
