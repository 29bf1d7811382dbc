//! Further steps of the jobs of a pretended cluster.

use super::Cluster;
use std::collections::BTreeMap;
use tutti_core::Event;
use tutti_types::{
    ClusterTime, EndReason, JobId, Nanos, NodeId, OnBadExit, ProcessorSet, Rank, RequestId, StepId,
    StepKey, StepSpec, TaskStatus,
};

impl Cluster {
    /// A job is asked for a further step.
    pub fn start_step(&mut self, job: JobId, (tasks, each): (u32, u32), overlap: bool) {
        self.requests += 1;
        let spec = StepSpec {
            tasks,
            processors_per_task: (each > 0).then_some(each),
            overlap,
            nodes: None,
            grace: Nanos::from_millis(50),
            on_bad_exit: OnBadExit::KillOnSignal,
            lender: tasks.is_multiple_of(2).then_some(Rank(0)),
            beside: (overlap && tasks == 1).then_some(Rank(each)),
            spawned_by: (each == 0 && !overlap).then_some(StepId(tasks % 3)),
            on_node: (tasks % 5 == 4).then_some(NodeId(each % 3)),
        };
        let mut key = [0; 16];
        key[..8].copy_from_slice(&self.requests.to_le_bytes());
        let request = RequestId(self.requests);
        self.event(Event::SubmitStep { request, job, key, spec });
    }

    fn pick_step(&self, place: usize) -> Option<StepKey> {
        let jobs = self.core.jobs(ClusterTime(self.now)).map(|view| view.id);
        let keys: Vec<StepKey> =
            jobs.flat_map(|job| self.core.steps(job).map(|step| step.key)).collect();
        keys.get(place % keys.len().max(1)).copied()
    }

    /// All that is left of a step ends like this.
    pub fn end_step(&mut self, place: usize, status: TaskStatus) {
        let Some(key) = self.pick_step(place) else { return };
        for node in self.steps.get(&key).cloned().unwrap_or_default().into_keys() {
            self.clear_step(key, node, status);
        }
    }

    /// A task of a step ends; its node reports the rest later.
    pub fn end_step_task(&mut self, place: usize, rank: usize, status: TaskStatus) {
        let Some(key) = self.pick_step(place) else { return };
        let ranks: Vec<Rank> = self
            .steps
            .get(&key)
            .into_iter()
            .flat_map(|it| it.values().flatten())
            .copied()
            .collect();
        if let Some(&rank) = ranks.get(rank % ranks.len().max(1)) {
            let nodes = self.steps.get_mut(&key).into_iter().flat_map(|it| it.values_mut());
            nodes.for_each(|ranks| {
                ranks.remove(&rank);
            });
            self.event(Event::StepTasksEnded { key, ranks: vec![rank], status });
        }
    }

    /// What a node has of a step ends like this.
    pub(super) fn clear_step(&mut self, key: StepKey, node: NodeId, status: TaskStatus) {
        let Some(ranks) = self.steps.get_mut(&key).and_then(|nodes| nodes.remove(&node)) else {
            return;
        };
        for rank in ranks {
            self.event(Event::StepTasksEnded { key, ranks: vec![rank], status });
        }
        self.event(Event::StepCleared { key, nodes: vec![node] });
    }

    /// A user ends a step.
    pub fn cancel_step(&mut self, place: usize, at_once: bool) {
        if let Some(key) = self.pick_step(place) {
            self.event(Event::CancelStep { key, reason: EndReason::Cancelled, at_once });
        }
    }

    /// The front end of a step is gone.
    pub fn lose_front_end_of_step(&mut self, place: usize) {
        if let Some(key) = self.pick_step(place) {
            self.event(Event::StepFrontEndLost { key });
        }
    }

    /// Steps are within their job, and have processors for themselves unless they share them.
    pub(super) fn check_steps(&self) {
        for view in self.core.jobs(ClusterTime(self.now)) {
            let mut taken: BTreeMap<NodeId, ProcessorSet> = BTreeMap::new();
            for step in self.core.steps(view.id) {
                for part in step.parts.iter().filter(|part| !part.cleared) {
                    let job = self.core.parts(view.id);
                    let of_job = job.iter().find(|it| it.node == part.node).expect("in its job");
                    assert!(part.processors.is_subset(&of_job.processors), "{:?}", step.key);
                    let shares = step.spec.overlap || step.spec.beside.is_some();
                    if shares || part.left < part.tasks {
                        continue;
                    }
                    let taken = taken.entry(part.node).or_default();
                    // Where slots share processors, so do tasks that are spawned into them.
                    let is_crowded = of_job.tasks > of_job.processors.count();
                    let may_share = step.spec.spawned_by.is_some() && is_crowded;
                    let shares = taken.overlaps(&part.processors);
                    assert!(may_share || !shares, "{:?} shares", step.key);
                    taken.union_with(&part.processors);
                }
            }
        }
    }
}
