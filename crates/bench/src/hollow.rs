//! `tutti-bench hollow`: a cluster of nodes that start nothing, for as long as a command runs.
//!
//! What depends on the size of a cluster and on what its nodes have can be tried so on one machine:
//! which jobs are accepted, when they would start, what tables show.

use super::tree::Cluster;
use anyhow::Context;
use clap::Args;
use std::ffi::OsString;
use std::process::Command;
use tutti_agent::HollowNode;
use tutti_wire::units::parse_bytes;

#[derive(Args, Debug)]
pub(super) struct HollowArgs {
    /// How many nodes besides the head, at most 4096
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=4096))]
    nodes: u16,

    /// How many processors each has
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=1024))]
    processors: u32,

    /// How much memory each has
    #[arg(long, default_value = "256G", value_parser = |text: &str| parse_bytes(text))]
    memory: u64,

    /// How many GPUs each has
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u32).range(..=64))]
    gpus: u32,

    /// What runs meanwhile; TUTTI_DIR names the cluster
    #[arg(required = true, trailing_var_arg = true)]
    command: Vec<OsString>,
}

/// Runs the command; its exit code.
///
/// # Errors
/// If the cluster does not come up, or the command does not start.
pub(super) fn execute(args: &HollowArgs) -> anyhow::Result<u8> {
    let &HollowArgs { nodes, processors, memory, gpus, .. } = args;
    let cluster = Cluster::found(nodes.into(), false)?;
    let own = cluster.head()?;
    let agents = cluster.join_as(
        nodes.into(),
        HollowNode { processors, memory_bytes: memory, gpus, has_ranks: false },
    )?;
    let (program, words) = args.command.split_first().context("name a command")?;
    let mut command = Command::new(program);
    command.args(words).env("TUTTI_DIR", own.directory()).env_remove("TUTTI_CLUSTER");
    let status = command.status();
    agents.end()?;
    own.end()?;
    let status = status.with_context(|| format!("cannot execute {}", program.display()))?;
    Ok(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1))
}
