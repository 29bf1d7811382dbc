//! What `run` and `submit` may say of nodes.

use super::JobOptions;
use super::request::{NODES, count};
use crate::output::counted;
use anyhow::ensure;
use clap::Args;
use nix::sys::signal::Signal;
use tutti_types::{Nanos, NoRespawn, OnBadExit, OnNodeLoss, Warning};
use tutti_wire::constraint::parse_constraint;
use tutti_wire::host_list::parse_host_list;
use tutti_wire::local::NodesRequest;
use tutti_wire::units::{parse_count, parse_duration};

// No doc comment: clap would show it as the verb's own text.
#[derive(Args, Clone, Debug)]
pub struct NodeOptions {
    /// Number of nodes; the tasks are spread evenly over them
    #[arg(short = 'N', long = "node-count", value_name = "NODES", value_parser = count)]
    #[arg(help_heading = NODES)]
    count: Option<u32>,

    /// Maximum number of tasks on a node; with -N the number on each node
    #[arg(long, value_name = "N", value_parser = count, help_heading = NODES)]
    tasks_per_node: Option<u32>,

    /// Only these nodes, such as a[1-8],b,set:gpu: a1 to a8, b, and the nodes of the set gpu
    #[arg(short = 'w', long = "nodes", value_name = "LIST", value_parser = list)]
    #[arg(help_heading = NODES)]
    only: Option<String>,

    /// No node of this list
    #[arg(short = 'x', long, value_name = "LIST", value_parser = list, help_heading = NODES)]
    exclude: Option<String>,

    /// Only nodes with these features: avx2&ssd, (intel|amd)&gpu; a set of nodes is one, too
    #[arg(short = 'C', long, value_name = "FEATURES", value_parser = constraint)]
    #[arg(help_heading = NODES)]
    constraint: Option<String>,

    /// As few tasks on a node as possible, instead of as few nodes
    #[arg(long, help_heading = NODES)]
    spread: bool,

    /// No other job on the job's nodes in its turns; other jobs have their own turns
    #[arg(long, help_heading = NODES)]
    exclusive: bool,
}

/// A list of nodes, as it was typed: which nodes there are, the controller knows.
pub fn list(text: &str) -> Result<String, String> {
    match parse_host_list(text) {
        Ok(_) => Ok(text.to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// What is asked of features, as it was typed: which there are, the controller knows.
fn constraint(text: &str) -> Result<String, String> {
    match parse_constraint(text) {
        Ok(_) => Ok(text.to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// What is to become of a job when a node is lost, as an argument.
pub(super) fn on_node_loss(text: &str) -> Result<OnNodeLoss, String> {
    match text.split_once('=').unwrap_or((text, "")) {
        ("kill", "") => Ok(OnNodeLoss::Kill),
        ("requeue", "") => Ok(OnNodeLoss::Requeue),
        ("notify", "") => Ok(OnNodeLoss::Notify { signal: None }),
        ("notify", signal) => Ok(OnNodeLoss::Notify { signal: Some(parse_signal(signal)?) }),
        _ if text.split(['=', ':', ',']).next() == Some("respawn") => respawn(text),
        _ => {
            Err("write kill, requeue, notify, notify=SIGNAL such as notify=USR1, or respawn".into())
        }
    }
}

/// What the failure of a rank means for the others, as an argument.
pub(super) fn on_rank_failure(text: &str) -> Result<OnBadExit, String> {
    match text.split_once('=').unwrap_or((text, "")) {
        ("kill", "") => Ok(OnBadExit::Kill),
        ("continue", "") => Ok(OnBadExit::Continue),
        ("notify", "") => Ok(OnBadExit::Notify { signal: None }),
        ("notify", signal) => Ok(OnBadExit::Notify { signal: Some(parse_signal(signal)?) }),
        _ => Err("write kill, continue, notify, or notify=SIGNAL such as notify=USR1".into()),
    }
}

/// How long lost ranks wait for processors, unless the job says so.
const RESPAWN_WAIT: Nanos = Nanos::from_secs(600);

/// `respawn[=TIME][,SIGNAL][:kill|:requeue|:notify]`.
fn respawn(text: &str) -> Result<OnNodeLoss, String> {
    let (rest, otherwise) = match text.split_once(':').unwrap_or((text, "kill")) {
        (rest, "kill") => (rest, NoRespawn::Kill),
        (rest, "requeue") => (rest, NoRespawn::Requeue),
        (rest, "notify") => (rest, NoRespawn::Notify),
        (_, other) => {
            return Err(format!(
                "{other:?} is no choice for lost ranks that find no processors; write kill, requeue \
                 or notify, such as respawn=5m:notify"
            ));
        }
    };
    let (rest, signal) = match rest.split_once(',') {
        Some((rest, signal)) => (rest, Some(parse_signal(signal)?)),
        None => (rest, None),
    };
    let wait = match rest.strip_prefix("respawn").unwrap_or_default() {
        "" => RESPAWN_WAIT,
        time => {
            let time = time.strip_prefix('=').unwrap_or(time);
            parse_duration(time).map_err(|error| error.to_string())?
        }
    };
    Ok(OnNodeLoss::Respawn { wait, signal, otherwise })
}

/// A signal by its name or number.
pub fn parse_signal(text: &str) -> Result<u8, String> {
    let upper = text.to_uppercase();
    let name = if upper.starts_with("SIG") { upper } else { format!("SIG{upper}") };
    if let Ok(signal) = name.parse::<Signal>() {
        return Ok(signal as u8);
    }
    match text.parse::<u8>() {
        Ok(number @ 1..=64) => Ok(number),
        _ => Err(format!(
            "{text:?} is no signal; write a name such as TERM, or a number from 1 to 64"
        )),
    }
}

/// How long before its limit a job gets a signal that names no time.
const WARNING_BEFORE: Nanos = Nanos::from_secs(60);

/// A signal before the time limit, as Slurm writes it: `USR2@90`, `B:USR1@5m`. A plain number
/// counts seconds.
pub(super) fn parse_warning(text: &str) -> Result<Warning, String> {
    let (flags, rest) = text.split_once(':').map_or(("", text), |(flags, rest)| {
        match flags.bytes().all(|byte| b"BbRr".contains(&byte)) && !flags.is_empty() {
            true => (flags, rest),
            false => ("", text),
        }
    });
    let (signal, before) = match rest.split_once('@') {
        Some((signal, time)) => (signal, warning_time(time)?),
        None => (rest, WARNING_BEFORE),
    };
    let only_shell = flags.contains(['B', 'b']);
    Ok(Warning { signal: parse_signal(signal)?, before, only_shell })
}

/// The signal that asks a job to save its state, and whether only the shell of a batch script gets
/// it: `USR1`, `B:USR1`.
pub(super) fn parse_checkpoint_signal(text: &str) -> Result<(u8, bool), String> {
    let (signal, only_shell) = match text.split_once(':') {
        Some(("B" | "b", signal)) => (parse_signal(signal)?, true),
        Some(_) => return Err(format!("{text:?} is no signal; write USR1, or B:USR1")),
        None => (parse_signal(text)?, false),
    };
    if [Signal::SIGKILL, Signal::SIGSTOP].iter().any(|&unheard| unheard as u8 == signal) {
        return Err(format!("no program hears of the signal {text:?}; write USR1, or B:USR1"));
    }
    Ok((signal, only_shell))
}

fn warning_time(time: &str) -> Result<Nanos, String> {
    match parse_count(time) {
        Ok(seconds) => Ok(Nanos::from_secs(seconds.into())),
        Err(_) => parse_duration(time).map_err(|error| error.to_string()),
    }
}

impl JobOptions {
    /// How many tasks: as asked, or as nodes would have them.
    ///
    /// # Errors
    /// If there are too many for their nodes, or to be counted.
    pub fn tasks(&self) -> anyhow::Result<u32> {
        let NodeOptions { count, tasks_per_node, .. } = self.nodes;
        let nodes = count.unwrap_or(1);
        let Some(room) = nodes.checked_mul(tasks_per_node.unwrap_or(1)) else {
            anyhow::bail!(
                "{} with that many tasks each are too many; ask for fewer",
                counted(nodes, "node")
            );
        };
        let Some(tasks) = self.tasks else { return Ok(room) };
        if let (Some(nodes), Some(each)) = (count, tasks_per_node) {
            ensure!(
                tasks <= room,
                "there is room for {room} on {} with at most {each} each, and {tasks} were asked for; ask \
                 for more nodes (-N) or fewer tasks (-n)",
                counted(nodes, "node")
            );
        }
        Ok(tasks)
    }

    /// What is asked of nodes.
    ///
    /// # Errors
    /// As [`Self::tasks`].
    pub(super) fn nodes_request(&self) -> anyhow::Result<NodesRequest> {
        let tasks = self.tasks()?;
        let NodeOptions { count, tasks_per_node, only, exclude, constraint, spread, exclusive } =
            self.nodes.clone();
        let count = count.or_else(|| tasks_per_node.map(|each| tasks.div_ceil(each)));
        Ok(NodesRequest { count, only, exclude, constraint, spread, exclusive })
    }
}
