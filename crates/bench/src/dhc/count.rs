//! `tutti-bench dhc --count`: what one admission costs in messages, by the number of nodes.
//!
//! The cluster is a head and hollow nodes (`agent/src/hollow.rs`), in the control tree over TLS.
//! Jobs of random sizes are submitted, one after the other. Two things are counted for each:
//!
//! - *Decision*: messages between controllers of levels, to map the job and to report its load. A
//!   second core counts them, which has the same nodes and jobs as the controller. Both must choose
//!   the same nodes.
//! - *Delivery*: messages with orders that each hollow node gets from its parent. A question that
//!   all nodes have answered says that all of them have come.

use crate::tree::{Cluster, make_room};
use crate::{Bench, options, progress};
use anyhow::{Context, ensure};
use serde::Serialize;
use std::fmt::Write as _;
use tutti_agent::{HollowAgents, HollowNode};
use tutti_client::ask::{pages_of_nodes, unexpected};
use tutti_client::scratch::ScratchInstance;
use tutti_core::{Action, Core, Event};
use tutti_types::{
    ClassName, ClusterTime, GroupId, JobId, JobSpec, Nanos, NodeId, NodeSpec, NodeWish, OnBadExit,
    OnNodeLoss, Params, ProcessorSet, RequestId, UserId, default_classes,
};
use tutti_wire::local::{Reply, Request};
use tutti_wire::report::NodeReport;

/// How many nodes there are, the head among them.
const NODES: [u16; 4] = [8, 64, 512, 4096];
const QUICK_NODES: [u16; 2] = [8, 64];

/// Jobs of each size of a cluster.
const JOBS: u64 = 24;

/// Rows of each level: no job waits.
const ROWS: u64 = 64;

/// What came out for one size.
#[derive(Debug, Serialize)]
pub(super) struct Count {
    nodes: usize,
    processors: u64,
    /// The most connections between a node and the head.
    depth: u16,
    /// Messages of a decision.
    decision_mean: f64,
    decision_most: u64,
    /// Two for each level.
    bound: u64,
    /// Messages with orders that a node gets for an admission.
    node_mean: f64,
    node_most: u64,
}

/// Counts these sizes, or all.
///
/// # Errors
/// If a cluster does not come up, or the controller decides otherwise than the core beside it.
pub(super) fn measure(bench: &Bench, nodes: &[u16]) -> anyhow::Result<Vec<Count>> {
    let sizes = match (nodes, bench.quick) {
        ([], true) => &QUICK_NODES[..],
        ([], false) => &NODES,
        (nodes, _) => nodes,
    };
    let most = usize::from(sizes.iter().copied().max().unwrap_or(2));
    make_room(most, u32::try_from(Params::default().fan_out())?)?;
    let cluster = Cluster::found(most - 1, true)?;
    sizes.iter().map(|&nodes| of(&cluster, nodes.into())).collect()
}

fn of(cluster: &Cluster, nodes: usize) -> anyhow::Result<Count> {
    progress(&format!("dhc: messages of admissions on {nodes} nodes"));
    let own = cluster.head()?;
    own.set("policy", "dhc")?;
    own.set("rows", &ROWS.to_string())?;
    let head = reports(&own)?;
    let width = head.first().context("the head is there")?.processors;
    // As many as the head has: then all blocks are whole.
    let node = HollowNode { processors: width, ..HollowNode::default() };
    let agents = cluster.join_as(nodes - 1, node)?;
    settle(&own, nodes)?;
    let all = reports(&own)?;
    let depth = all.iter().filter_map(|report| report.depth).max().unwrap_or(0);
    let mut beside = Beside::new(&all)?;
    let mut random = 1_u64;
    let (mut decisions, mut deliveries) = (Vec::new(), Vec::new());
    for _ in 0..JOBS {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let level = (random >> 20) % u64::from(beside.levels + 1);
        let tasks = u32::try_from(1 + (random >> 33) % (1 << level))?;
        let before = agents.ordered();
        let job = own.submit(&options(tasks, None)?, &["sleep".into(), "1000".into()])?;
        settle(&own, nodes)?;
        deliveries.push(got(&agents, &before));
        decisions.push(beside.admit(tasks)?);
        ensure!(
            placed(&own, job)? == beside.placed(job),
            "the controller has chosen other nodes for job {job} than the core beside it"
        );
    }
    agents.end()?;
    own.end()?;
    let each = |got: &Vec<u64>| got.iter().sum::<u64>() as f64 / got.len() as f64;
    Ok(Count {
        nodes,
        processors: all.iter().map(|report| u64::from(report.processors)).sum(),
        depth,
        decision_mean: decisions.iter().sum::<u64>() as f64 / decisions.len() as f64,
        decision_most: decisions.iter().copied().max().unwrap_or(0),
        bound: 2 * u64::from(beside.levels),
        node_mean: deliveries.iter().map(each).sum::<f64>() / deliveries.len() as f64,
        node_most: deliveries.iter().flatten().copied().max().unwrap_or(0),
    })
}

fn reports(own: &ScratchInstance) -> anyhow::Result<Vec<NodeReport>> {
    pages_of_nodes(|from| own.ask(&Request::Nodes { from }))
}

/// Waits until what was sent to nodes has come there: each has answered what was asked after it.
fn settle(own: &ScratchInstance, nodes: usize) -> anyhow::Result<()> {
    let latest = Request::Switches { count: 1, from: NodeId(0) };
    let Reply::Switches { nodes: answers, .. } = own.ask(&latest)? else { return unexpected() };
    ensure!(answers.len() == nodes, "{} of {nodes} nodes answered", answers.len());
    // The agents count at the end of a round, which may come after the answer.
    std::thread::sleep(std::time::Duration::from_millis(200));
    Ok(())
}

fn got(agents: &HollowAgents, before: &[u64]) -> Vec<u64> {
    agents.ordered().iter().zip(before).map(|(now, before)| now - before).collect()
}

/// The names of the nodes that a job has.
fn placed(own: &ScratchInstance, job: JobId) -> anyhow::Result<Vec<String>> {
    let jobs = own.jobs()?;
    let job = jobs.into_iter().find(|it| it.job == job).context("the job is there")?;
    let name = |place: &String| place.split(':').next().unwrap_or_default().to_owned();
    Ok(job.placement.iter().map(name).collect())
}

/// A core that has the nodes and jobs of the controller.
struct Beside {
    core: Core,
    names: Vec<String>,
    levels: u32,
    requests: u64,
    actions: Vec<Action>,
}

impl Beside {
    fn new(nodes: &[NodeReport]) -> anyhow::Result<Self> {
        let mut params = Params::default();
        params.choose("policy", "dhc")?;
        params.set("rows", ROWS)?;
        let mut own = Self {
            core: Core::new(params, default_classes()),
            names: nodes.iter().map(|node| node.name.clone()).collect(),
            levels: 0,
            requests: 0,
            actions: Vec::new(),
        };
        for (node, report) in (0..).map(NodeId).zip(nodes) {
            let (name, processors) = (report.name.clone(), ProcessorSet::first(report.processors));
            let spec = NodeSpec { name, processors, memory_bytes: report.memory_bytes };
            own.apply(&Event::NodeJoined { node, spec });
        }
        own.levels = own.core.levels().context("there are levels")?.top();
        Ok(own)
    }

    fn apply(&mut self, event: &Event) {
        self.actions.clear();
        self.core.apply(ClusterTime(self.requests), event, &mut self.actions);
    }

    /// The names of the nodes that a job has.
    fn placed(&self, job: JobId) -> Vec<String> {
        let name = |node: NodeId| self.names.get(node.0 as usize).cloned();
        self.core.parts(job).iter().filter_map(|part| name(part.node)).collect()
    }

    /// Admits a job; the messages between controllers of levels.
    fn admit(&mut self, tasks: u32) -> anyhow::Result<u64> {
        let levels = self.core.levels().context("there are levels")?;
        let mapped = levels.map(tasks.into()).context("there is a block for it")?;
        let before = levels.messages().reports;
        self.requests += 1;
        let spec = JobSpec {
            owner: UserId(0),
            group: GroupId(0),
            class: ClassName::new("production"),
            tasks,
            processors_per_task: None,
            memory_per_task_bytes: None,
            time_limit: None,
            grace: Nanos(0),
            attached: false,
            movable: false,
            weights: None,
            resources: Vec::new(),
            deadline: None,
            nodes: NodeWish::default(),
            on_node_loss: OnNodeLoss::default(),
            on_bad_exit: OnBadExit::KillOnSignal,
        };
        self.apply(&Event::Submit { request: RequestId(self.requests), spec });
        let levels = self.core.levels().context("there are levels")?;
        Ok(u64::from(mapped.messages) + levels.messages().reports - before)
    }
}

/// The table.
pub(super) fn markdown(counts: &[Count]) -> String {
    let mut text = String::from(
        "| nodes | processors | depth of the tree | messages of a decision: mean | most | two a level \
         | orders to a node: mean | most |\n|---|---|---|---|---|---|---|---|\n",
    );
    for it in counts {
        // Writing to a string can't fail.
        let _ = writeln!(
            text,
            "| {} | {} | {} | {:.1} | {} | {} | {:.2} | {} |",
            it.nodes,
            it.processors,
            it.depth,
            it.decision_mean,
            it.decision_most,
            it.bound,
            it.node_mean,
            it.node_most
        );
    }
    text
}
