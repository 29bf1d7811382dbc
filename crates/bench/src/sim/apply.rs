//! How long one decision takes on a large machine that is full: one event, one `apply`.
//!
//! Each policy begins with jobs in line behind running ones of some ten nodes each, on nodes of 64
//! processors, of a thousand users. Then, by turns, a random job ends and another one is submitted.

use crate::figures::Figure;
use crate::progress;
use std::time::{Duration, Instant};
use tutti_core::{Action, Core, Event};
use tutti_types::{
    ClassName, ClusterTime, GroupId, JobId, JobSpec, Nanos, NodeId, NodeSpec, OnBadExit, Params,
    ProcessorSet, RequestId, TaskStatus, UserId, default_classes,
};

const WIDTH: u32 = 64;
const ROUNDS: usize = 2_000;
const USERS: u64 = 1_000;
const SECOND: u64 = 1_000_000_000;
const MEDIAN_MS: f64 = 0.2;
const P99_MS: f64 = 5.0;

/// How large the machine is, and how full.
#[derive(Clone, Copy)]
struct Size {
    nodes: u32,
    running: u32,
    queued: u32,
}

/// Measures all policies.
///
/// # Errors
/// If there is no such policy.
pub(super) fn measure(bench: &crate::Bench) -> anyhow::Result<Vec<Figure>> {
    let size = match bench.quick {
        true => Size { nodes: 10_000, running: 1_000, queued: 10_000 },
        false => Size { nodes: 100_000, running: 10_000, queued: 100_000 },
    };
    let Size { nodes, running, queued } = size;
    let mut figures = Vec::new();
    let policies = ["space:fcfs", "space:easy", "space:sjbf", "gang:fcfs", "gang:easy"];
    let orders = ["arrival", "users"];
    for (policy, order) in policies.iter().flat_map(|policy| orders.map(|order| (policy, order))) {
        progress(&format!("decisions of {policy}, order={order}"));
        let mut full = Full::new(policy, order, nodes)?;
        full.fill(running, queued);
        for (event, times) in full.measure() {
            let what = format!(
                "{policy}, order={order}, {event}: {nodes} nodes, {running} jobs running, {queued} in line"
            );
            figures.push(figure(&what, times));
        }
    }
    Ok(figures)
}

fn figure(what: &str, mut times: Vec<Duration>) -> Figure {
    times.sort_unstable();
    let at = |part: usize| times[(times.len() - 1) * part / 1000].as_secs_f64() * 1e3;
    let (median, p99, longest) = (at(500), at(990), at(1000));
    let measured = format!("median {median:.3}, 99 % {p99:.3}, longest {longest:.1} ms");
    let must_reach = format!("median {MEDIAN_MS}, 99 % {P99_MS} ms");
    Figure::goal(what, measured, &must_reach, median < MEDIAN_MS && p99 < P99_MS)
}

/// A machine that is full, and its core.
struct Full {
    core: Core,
    actions: Vec<Action>,
    nodes: u32,
    running: Vec<JobId>,
    requests: u64,
    now: u64,
    random: u64,
}

impl Full {
    fn new(policy: &str, order: &str, nodes: u32) -> anyhow::Result<Self> {
        let mut params = Params::default();
        params.choose("policy", policy)?;
        params.choose("order", order)?;
        let mut core = Core::new(params, default_classes());
        let mut actions = Vec::new();
        for node in (0..nodes).map(NodeId) {
            let (processors, memory_bytes) = (ProcessorSet::first(WIDTH), 1 << 38);
            let spec = NodeSpec { name: node.to_string(), processors, memory_bytes };
            core.apply(ClusterTime(0), &Event::NodeJoined { node, spec }, &mut actions);
        }
        actions.clear();
        let (running, random) = (Vec::new(), 0x9e37_79b9_7f4a_7c15);
        Ok(Self { core, actions, nodes, running, requests: 0, now: 0, random })
    }

    /// A number below `limit` (xorshift, so that every run is the same).
    fn below(&mut self, limit: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % limit
    }

    fn job(&mut self, processors: u64) -> Event {
        let seconds = 3600 + self.below(36_000);
        let user = u32::try_from(self.below(USERS)).unwrap_or(0);
        self.requests += 1;
        let spec = JobSpec {
            owner: UserId(user),
            group: GroupId(0),
            class: ClassName::new("production"),
            tasks: u32::try_from(processors).unwrap_or(u32::MAX),
            processors_per_task: Some(1),
            memory_per_task_bytes: None,
            time_limit: Some(Nanos(seconds * SECOND)),
            grace: Nanos(SECOND),
            attached: false,
            movable: false,
            weights: None,
            resources: Vec::new(),
            deadline: None,
            nodes: tutti_types::NodeWish::default(),
            on_node_loss: tutti_types::OnNodeLoss::default(),
            on_bad_exit: OnBadExit::KillOnSignal,
        };
        Event::Submit { request: RequestId(self.requests), spec }
    }

    /// How long the event takes.
    fn apply(&mut self, event: &Event) -> Duration {
        self.now += SECOND / 100;
        let begun = Instant::now();
        self.core.apply(ClusterTime(self.now), event, &mut self.actions);
        let took = begun.elapsed();
        for action in self.actions.drain(..) {
            if let Action::Launch { job, .. } = action {
                self.running.push(job);
            }
        }
        took
    }

    /// Jobs that fill the machine in all rows, then those in line.
    fn fill(&mut self, running: u32, queued: u32) {
        let all = u64::from(self.nodes) * u64::from(WIDTH);
        let rows = if self.core.params().policy() == 0 { self.core.params().rows() } else { 1 };
        let each = all * u64::from(rows) / u64::from(running);
        while self.core.job_count() < running as usize {
            let processors = each / 2 + self.below(each);
            let event = self.job(processors.clamp(1, all));
            self.apply(&event);
        }
        for _ in 0..queued {
            let event = self.any_job();
            self.apply(&event);
        }
    }

    /// Small or large, seldom very large.
    fn any_job(&mut self) -> Event {
        let all = u64::from(self.nodes) * u64::from(WIDTH);
        let most = all >> self.below(16);
        let processors = 1 + self.below(most.max(1));
        self.job(processors)
    }

    fn measure(&mut self) -> [(&'static str, Vec<Duration>); 2] {
        let (mut ends, mut submits) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            let index = self.below(self.running.len() as u64);
            let job = self.running.swap_remove(usize::try_from(index).unwrap_or(0));
            let jobs = [job].into();
            ends.push(self.apply(&Event::JobsEnded { jobs, status: TaskStatus::Exited(0) }));
            let event = self.any_job();
            submits.push(self.apply(&event));
        }
        [("a job ends", ends), ("submit", submits)]
    }
}
