//! How long one `apply` takes on a large machine that is full:
//! `cargo run --release -p tutti-core --example apply [-- NODES RUNNING QUEUED]`.
//!
//! Each policy begins with `QUEUED` jobs in line behind `RUNNING` ones of some ten nodes each, on
//! nodes of 64 processors. Then, by turns, a random job ends and another one is submitted.
#![allow(clippy::unwrap_used, reason = "a measurement that can't go on may panic")]

use std::time::{Duration, Instant};
use tutti_core::{
    Action, ClassName, ClusterTime, Core, Event, GroupId, JobId, JobSpec, Nanos, NodeId, NodeSpec,
    OnBadExit, Params, ProcessorSet, RequestId, TaskStatus, UserId, default_classes,
};

const WIDTH: u32 = 64;
const ROUNDS: usize = 2_000;
const SECOND: u64 = 1_000_000_000;

fn main() {
    let mut sizes = std::env::args().skip(1).map(|size| size.parse::<u32>().unwrap());
    let nodes = sizes.next().unwrap_or(100_000);
    let running = sizes.next().unwrap_or(10_000);
    let queued = sizes.next().unwrap_or(100_000);
    println!("{nodes} nodes of {WIDTH} processors, {running} jobs running, {queued} in line");
    println!("policy               event        median       p99   longest  actions");
    for policy in ["space:fcfs", "space:easy", "space:sjbf", "gang:fcfs", "gang:easy"] {
        let mut bench = Bench::new(policy, nodes);
        bench.fill(running, queued);
        bench.measure(policy);
    }
}

struct Bench {
    core: Core,
    actions: Vec<Action>,
    nodes: u32,
    running: Vec<JobId>,
    requests: u64,
    now: u64,
    random: u64,
}

impl Bench {
    fn new(policy: &str, nodes: u32) -> Self {
        let mut params = Params::default();
        params.choose("policy", policy).unwrap();
        let mut core = Core::new(params, default_classes());
        let mut actions = Vec::new();
        for node in (0..nodes).map(NodeId) {
            let (processors, memory_bytes) = (ProcessorSet::first(WIDTH), 1 << 38);
            let spec = NodeSpec { name: node.to_string(), processors, memory_bytes };
            core.apply(ClusterTime(0), &Event::NodeJoined { node, spec }, &mut actions);
        }
        actions.clear();
        let (running, random) = (Vec::new(), 0x9e37_79b9_7f4a_7c15);
        Self { core, actions, nodes, running, requests: 0, now: 0, random }
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
        self.requests += 1;
        let spec = JobSpec {
            owner: UserId(1),
            group: GroupId(0),
            class: ClassName::new("production"),
            tasks: u32::try_from(processors).unwrap(),
            processors_per_task: Some(1),
            memory_per_task_bytes: None,
            time_limit: Some(Nanos(seconds * SECOND)),
            grace: Nanos(SECOND),
            attached: false,
            movable: false,
            weights: None,
            circuit: None,
            deadline: None,
            on_bad_exit: OnBadExit::KillOnSignal,
        };
        Event::Submit { request: RequestId(self.requests), spec }
    }

    /// How long the event takes, and how many actions follow.
    fn apply(&mut self, event: &Event) -> (Duration, usize) {
        self.now += SECOND / 100;
        let begun = Instant::now();
        self.core.apply(ClusterTime(self.now), event, &mut self.actions);
        let took = begun.elapsed();
        let count = self.actions.len();
        for action in self.actions.drain(..) {
            if let Action::Launch { job, .. } = action {
                self.running.push(job);
            }
        }
        (took, count)
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

    fn measure(&mut self, policy: &str) {
        let (mut ends, mut submits) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            let index = self.below(self.running.len() as u64);
            let job = self.running.swap_remove(usize::try_from(index).unwrap());
            let jobs = [job].into();
            ends.push(self.apply(&Event::JobsEnded { jobs, status: TaskStatus::Exited(0) }));
            let event = self.any_job();
            submits.push(self.apply(&event));
        }
        for (name, mut times) in [("a job ends", ends), ("submit", submits)] {
            times.sort_unstable();
            let at = |part: usize| times[times.len() * part / 1000].0.as_secs_f64() * 1e3;
            let (longest, actions) = times[times.len() - 1];
            let longest = longest.as_secs_f64() * 1e3;
            println!(
                "{policy:<20} {name:<10} {:>6.3} ms {:>6.3} ms {longest:>6.3} ms {actions:>8}",
                at(500),
                at(990),
            );
        }
    }
}
