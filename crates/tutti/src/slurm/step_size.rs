//! The size of a step, and its node, as `srun` inside a job understands its options.
//!
//! What the options leave open comes from the job: `SLURM_NTASKS` and `SLURM_NNODES` count as `-n`
//! and `-N`. A job always has `SLURM_NTASKS`. Where there are as many tasks as nodes, it may have
//! asked for nodes alone, so that count gives way to `-N` and `--ntasks-per-node` of the step.

use super::asked::Source;
use super::hosts::unfolded;
use super::options::Line;
use tutti_wire::units::{parse_count, shown};

/// What a step finds of its job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct JobSize {
    pub(super) tasks: Option<u32>,
    nodes: Option<u32>,
    processors: Option<u32>,
    /// The names of its nodes, in their order; none if they are not known.
    hosts: Vec<String>,
    /// How many GPUs it has on this node; `None`: it has none.
    pub(super) gpus_here: Option<u32>,
}

impl JobSize {
    pub(super) fn of_environment() -> Self {
        let count = |name: &str| {
            let value = std::env::var(name).ok()?;
            value.parse::<u32>().ok().filter(|count| *count > 0)
        };
        let hosts = std::env::var("SLURM_JOB_NODELIST").ok();
        Self {
            tasks: count("SLURM_NTASKS"),
            nodes: count("SLURM_NNODES").or_else(|| count("SLURM_JOB_NUM_NODES")),
            processors: count("SLURM_CPUS_PER_TASK"),
            gpus_here: count("SLURM_GPUS_ON_NODE"),
            hosts: hosts.and_then(|list| unfolded(&list).ok()).unwrap_or_default(),
        }
    }

    /// On how many nodes it is, as far as that is known.
    pub(super) fn nodes(&self) -> u32 {
        self.nodes.unwrap_or(1)
    }
}

/// What a step asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct StepSize {
    pub(super) tasks: Option<u32>,
    nodes: Option<u32>,
    processors: Option<u32>,
    /// The node that all its tasks are on.
    node: Option<String>,
    /// What of its options has no effect.
    pub(super) notes: Vec<String>,
}

impl StepSize {
    /// The same as options.
    pub(super) fn sources(&self) -> impl Iterator<Item = Source> {
        let count = |count: Option<u32>| count.map(|count| count.to_string());
        let all = [
            ("ntasks", count(self.tasks)),
            ("nodes", count(self.nodes)),
            ("cpus-per-task", count(self.processors)),
            ("nodelist", self.node.clone()),
        ];
        all.into_iter().filter_map(|(name, value)| {
            let value = Some(value?);
            Some(Source { origin: String::new(), name, value })
        })
    }
}

/// Options that [`step_size`] reads.
pub(super) const OPTIONS: [&str; 7] =
    ["ntasks", "nodes", "ntasks-per-node", "tasks-per-node", "nodelist", "exclude", "relative"];

/// Counts that options name.
struct Counts {
    tasks: Option<u32>,
    nodes: Option<u32>,
    per_node: Option<u32>,
}

impl Counts {
    fn of(line: &Line) -> Result<Self, String> {
        let count = |name: &str, least: bool| match line.last(name) {
            None => Ok(None),
            Some(value) => {
                let text = if least { value.split(['-', ':']).next() } else { None };
                match parse_count(text.unwrap_or(value)) {
                    Ok(count) if count > 0 => Ok(Some(count)),
                    _ => Err(format!("--{name}={}: a count above 0 is expected", shown(value))),
                }
            }
        };
        let per_node = count("ntasks-per-node", false)?.or(count("tasks-per-node", false)?);
        Ok(Self { tasks: count("ntasks", false)?, nodes: count("nodes", true)?, per_node })
    }
}

/// What a step asks for, given the command line and its job.
///
/// # Errors
/// If the counts are none, or the nodes that are named can't be had.
pub(super) fn step_size(line: &Line, job: &JobSize) -> Result<StepSize, String> {
    let given = Counts::of(line)?;
    let listed = named(line, "nodelist", job)?;
    let at_least = u32::try_from(listed.len()).unwrap_or(u32::MAX);
    let nodes = given.nodes.or(job.nodes).map(|nodes| nodes.max(at_least));
    let nodes = nodes.or((at_least > 0).then_some(at_least));
    let is_sized = given.nodes.is_some() || given.per_node.is_some();
    let of_job = job.tasks.filter(|tasks| !(is_sized && Some(*tasks) == job.nodes));
    let of_nodes = nodes.filter(|_| is_sized || job.nodes.is_some());
    let of_nodes = of_nodes.map(|nodes| nodes.saturating_mul(given.per_node.unwrap_or(1)));
    let tasks = given.tasks.or(of_job).or(of_nodes).or(given.per_node);
    let nodes = nodes.map(|nodes| nodes.min(tasks.unwrap_or(nodes)));
    let mut size = StepSize { tasks, nodes, ..StepSize::default() };
    if given.tasks.is_none() && !is_sized && !line.has("cpus-per-task") {
        size.processors = job.processors;
    }
    if let (Some(per_node), Some(tasks), Some(nodes)) = (given.per_node, tasks, nodes)
        && tasks > per_node.saturating_mul(nodes)
    {
        size.notes.push(format!(
            "warning: can't honor --ntasks-per-node set to {per_node} which doesn't match the \
             requested tasks {tasks} with the number of requested nodes {nodes}. Ignoring \
             --ntasks-per-node."
        ));
    }
    size.node = node(line, (listed, size.nodes), job)?;
    if size.node.is_some() {
        size.nodes = None;
    }
    // One node is as few as it takes, unless more would be needed.
    if given.nodes.is_none() && size.nodes == Some(1) {
        size.nodes = None;
    }
    Ok(size)
}

/// The nodes that an option names, each of which the job has.
fn named(line: &Line, option: &str, job: &JobSize) -> Result<Vec<String>, String> {
    let Some(list) = line.last(option) else { return Ok(Vec::new()) };
    let failed = |why: String| format!("--{option}={}: {why}", shown(list));
    let mut names: Vec<String> = Vec::new();
    for name in unfolded(list).map_err(failed)? {
        let is_known = job.hosts.is_empty() || job.hosts.contains(&name);
        if option == "nodelist" && !is_known {
            let reason = format!(
                "Requested node configuration is not available: the job has no node {}; its nodes \
                 are in SLURM_JOB_NODELIST",
                shown(&name)
            );
            return Err(failed(reason));
        }
        if is_known && !names.contains(&name) {
            names.push(name);
        }
    }
    Ok(names)
}

/// The one node of a step; `None` if it may have any.
fn node(
    line: &Line,
    (mut listed, nodes): (Vec<String>, Option<u32>),
    job: &JobSize,
) -> Result<Option<String>, String> {
    const ONE_OR_ALL: &str = "a step has one node that is named, or any";
    let excluded = named(line, "exclude", job)?;
    let nodes = nodes.map_or(1, |nodes| nodes as usize);
    let is_whole = nodes >= job.hosts.len() && !job.hosts.is_empty();
    if let Some(relative) = line.last("relative") {
        let from = relative.parse::<usize>().ok();
        let from = from.filter(|from| from.saturating_add(nodes) <= job.hosts.len());
        let Some(from) = from else {
            return Err(format!(
                "--relative={}: Requested node configuration is not available: the job has {} \
                 nodes, and the step asks for {nodes}",
                shown(relative),
                job.hosts.len()
            ));
        };
        if !listed.is_empty() || !excluded.is_empty() {
            return Err("--relative excludes --nodelist and --exclude".into());
        }
        listed = job.hosts[from..from + nodes].to_vec();
    }
    if !excluded.is_empty() {
        if is_whole || listed.iter().any(|name| excluded.contains(name)) {
            return Err(format!(
                "--exclude={}: Requested node configuration is not available: the step needs a \
                 node that is excluded; ask for fewer nodes with -N",
                shown(&excluded.join(","))
            ));
        }
        if listed.is_empty() {
            listed = job.hosts.clone();
            listed.retain(|name| !excluded.contains(name));
        }
        if listed.len() > 1 {
            return Err(format!(
                "--exclude={}: {ONE_OR_ALL}; name one with --nodelist",
                shown(&excluded.join(","))
            ));
        }
    }
    match nodes {
        1 => Ok(listed.into_iter().next()),
        _ if listed.is_empty() || is_whole => Ok(None),
        _ => Err(format!(
            "the step is to be on {nodes} nodes, of them {}, and the job has {}: {ONE_OR_ALL}",
            shown(&listed.join(",")),
            job.hosts.len()
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::{JobSize, OPTIONS, step_size};
    use crate::slurm::options::{Line, Order, read, value};
    use std::ffi::OsString;

    fn line(text: &str) -> Line {
        let mut known: Vec<_> = OPTIONS.iter().map(|name| value(name, None)).collect();
        for (name, letter) in [
            ("ntasks", 'n'),
            ("nodes", 'N'),
            ("nodelist", 'w'),
            ("exclude", 'x'),
            ("relative", 'r'),
        ] {
            known.retain(|it| it.long != name);
            known.push(value(name, Some(letter)));
        }
        let words: Vec<OsString> = text.split_whitespace().map(OsString::from).collect();
        read(&known, Order::Strict, &words)
    }

    fn job(tasks: u32, nodes: u32) -> JobSize {
        let hosts = (1..=nodes).map(|node| format!("n{node}")).collect();
        JobSize {
            tasks: Some(tasks),
            nodes: Some(nodes),
            processors: Some(2),
            hosts,
            gpus_here: None,
        }
    }

    fn shown(text: &str, job: &JobSize) -> String {
        match step_size(&line(text), job) {
            Ok(size) => {
                let mut all: Vec<String> = size
                    .sources()
                    .map(|it| format!("{}={}", it.name, it.value.unwrap_or_default()))
                    .collect();
                all.extend(size.notes.iter().map(|_| "noted".to_owned()));
                all.join(" ")
            }
            Err(problem) => problem,
        }
    }

    #[test]
    fn what_a_step_leaves_open_comes_from_its_job() {
        for (text, of_job, expected) in [
            ("", (4, 4), "ntasks=4 nodes=4 cpus-per-task=2"),
            ("", (4, 1), "ntasks=4 cpus-per-task=2"),
            ("--ntasks-per-node=1", (4, 4), "ntasks=4 nodes=4"),
            ("--ntasks-per-node=2", (4, 4), "ntasks=8 nodes=4"),
            ("-n 4 --ntasks-per-node=1", (4, 4), "ntasks=4 nodes=4"),
            ("-n 4 --ntasks-per-node=2", (4, 4), "ntasks=4 nodes=4"),
            ("-n 4", (8, 4), "ntasks=4 nodes=4"),
            ("-n 2", (8, 4), "ntasks=2 nodes=2"),
            ("-n 1", (8, 4), "ntasks=1"),
            ("-N 2", (8, 4), "ntasks=8 nodes=2"),
            ("-N 2", (4, 4), "ntasks=2 nodes=2"),
            ("-N 1", (4, 4), "ntasks=1 nodes=1"),
            ("-N 2 --ntasks-per-node=1", (4, 4), "ntasks=2 nodes=2"),
            ("-N 2-4 -n 8", (8, 4), "ntasks=8 nodes=2"),
            ("--tasks-per-node=1", (8, 4), "ntasks=8 nodes=4 noted"),
            ("-n 8 --ntasks-per-node=1", (8, 4), "ntasks=8 nodes=4 noted"),
            ("-n 0", (4, 4), "--ntasks=0: a count above 0 is expected"),
        ] {
            assert_eq!(shown(text, &job(of_job.0, of_job.1)), expected, "{text} in {of_job:?}");
        }
    }

    #[test]
    fn a_job_without_slurms_variables_leaves_the_size_to_the_options() {
        let none = JobSize::default();
        assert_eq!(shown("", &none), "");
        assert_eq!(shown("-n 3 -N 2", &none), "ntasks=3 nodes=2");
        assert_eq!(shown("--ntasks-per-node=2", &none), "ntasks=2");
        assert_eq!(shown("-w n3 -n 1", &none), "ntasks=1 nodelist=n3");
    }

    #[test]
    fn a_step_is_on_the_node_that_it_names_if_that_is_all_it_needs() {
        for (text, expected) in [
            ("-N 1 -n 1 -w n2", "ntasks=1 nodelist=n2"),
            ("-n 1 -w n2", "ntasks=1 nodelist=n2"),
            ("-N 1 -w n4", "ntasks=1 nodelist=n4"),
            ("-w n2", "ntasks=4 nodes=4 cpus-per-task=2"),
            ("-w n[1-4]", "ntasks=4 nodes=4 cpus-per-task=2"),
            ("-N 4 -w n2,n3", "ntasks=4 nodes=4"),
            ("-N 1 -n 1 -r 2", "ntasks=1 nodelist=n3"),
            ("-N 1 -n 1 -x n1,n2,n4,other", "ntasks=1 nodelist=n3"),
            ("-x other", "ntasks=4 nodes=4 cpus-per-task=2"),
        ] {
            assert_eq!(shown(text, &job(4, 4)), expected, "{text}");
        }
        for (text, why) in [
            ("-N 1 -n 1 -w n9", "the job has no node n9"),
            ("-N 2 -n 2 -w n2,n3", "the step is to be on 2 nodes, of them n2,n3"),
            ("-N 1 -n 1 -r 4", "--relative=4: Requested node configuration is not available"),
            ("-N 2 -r 1", "the step is to be on 2 nodes, of them n2,n3"),
            ("-N 1 -n 1 -x n1", "name one with --nodelist"),
            ("-x n1", "ask for fewer nodes with -N"),
            ("-N 1 -r 1 -w n2", "--relative excludes --nodelist"),
            ("-N 1 -n 1 -w n[2", "--nodelist=n[2: Invalid hostlist"),
        ] {
            let problem = shown(text, &job(4, 4));
            assert!(problem.contains(why), "{text}: {problem}");
        }
    }
}
