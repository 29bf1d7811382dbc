//! What the cluster has that options of Slurm's commands name: partitions, counted resources, sets
//! of nodes.

use crate::cmd::ask_of_the_past;
use tutti_client::ask::{ask, pages_of_nodes};
use tutti_types::params::SLURM_STRICT;
use tutti_wire::local::{Reply, Request};
use tutti_wire::report::NodeReport;

/// A class or queue, which is a partition in Slurm's words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Partition {
    pub(super) name: String,
    pub(super) is_queue: bool,
    /// Whether jobs of `sbatch` are in it that name none.
    pub(super) is_default: bool,
    /// The longest time limit of its jobs, in seconds.
    pub(super) most_s: Option<u64>,
}

/// What options can name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Cluster {
    pub(super) partitions: Vec<Partition>,
    /// Names of counted resources.
    pub(super) resources: Vec<String>,
    /// What nodes have, and names of sets of nodes.
    pub(super) features: Vec<String>,
    /// Names of devices of nodes.
    pub(super) devices: Vec<String>,
    /// Whether unknown partitions, accounts and QOS are rejected.
    pub(super) is_strict: bool,
}

/// The class of jobs that are submitted and name none.
const DEFAULT_CLASS: &str = "production";

/// The class of what is no job.
const NO_JOBS: &str = "foreign";

impl Cluster {
    /// As it is now; empty where no instance runs and none has left a journal.
    pub(super) fn now() -> Self {
        let (partitions, is_strict) = partitions_and_strict();
        let mut found = Self { partitions, is_strict, ..Self::default() };
        if let Ok(Reply::Resources(resources)) = ask_of_the_past(&Request::Resources) {
            found.resources = resources.into_iter().map(|it| it.resource).collect();
        }
        let nodes = nodes();
        let mut devices: Vec<String> = nodes
            .iter()
            .flat_map(|node| &node.devices)
            .filter_map(|it| Some(it.device.split_once(':')?.0.to_owned()))
            .collect();
        devices.sort();
        devices.dedup();
        found.devices = devices;
        let mut features: Vec<String> =
            nodes.into_iter().flat_map(|node| [node.sets, node.features]).flatten().collect();
        features.sort();
        features.dedup();
        found.features = features;
        found
    }

    pub(super) fn partition(&self, name: &str) -> Option<&Partition> {
        self.partitions.iter().find(|it| it.name == name)
    }
}

/// All nodes; none where no instance runs.
pub(super) fn nodes() -> Vec<NodeReport> {
    pages_of_nodes(|from| ask(&Request::Nodes { from })).unwrap_or_default()
}

/// All partitions: queues, then classes that are no queue's name.
pub(super) fn partitions() -> Vec<Partition> {
    partitions_and_strict().0
}

/// The same, and whether unknown ones are rejected.
fn partitions_and_strict() -> (Vec<Partition>, bool) {
    let (mut all, mut is_strict) = (Vec::new(), false);
    if let Ok(Reply::Queues(queues)) = ask_of_the_past(&Request::Queues) {
        for queue in queues {
            let set = |name: &str| {
                let mut settings = queue.settings.iter().filter(|it| it.during.is_none());
                settings.find(|it| it.name == name).map(|it| it.value.clone())
            };
            let limit = set("job_time").and_then(|it| tutti_wire::units::parse_duration(&it).ok());
            all.push(Partition {
                name: queue.name.clone(),
                is_queue: true,
                is_default: set("default").is_some_and(|it| it == "yes"),
                most_s: limit.map(|limit| limit.0 / 1_000_000_000),
            });
        }
    }
    if let Ok(Reply::Params { classes, params, .. }) = ask_of_the_past(&Request::Params) {
        is_strict = params.iter().any(|it| it.name == SLURM_STRICT && it.value == "on");
        let has_default = all.iter().any(|it| it.is_default);
        for class in classes {
            if class.name == NO_JOBS || all.iter().any(|it| it.name == class.name) {
                continue;
            }
            all.push(Partition {
                is_default: !has_default && class.name == DEFAULT_CLASS,
                name: class.name,
                is_queue: false,
                most_s: None,
            });
        }
    }
    (all, is_strict)
}
