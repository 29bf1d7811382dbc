//! Memory of jobs on nodes that swap: what is resident there, whatever the core thinks.
//!
//! Nodes answer orders late, in any order, and with any part of a job's memory left behind. An
//! answer to an order that a later one has replaced is on its way still. What is resident on a node
//! never exceeds what the core counts there.

use super::Cluster;
use std::collections::{BTreeMap, BTreeSet};
use tutti_core::Event;
use tutti_types::{ClusterTime, JobId, Nanos, NodeId};

/// An order that a node has not answered.
#[derive(Clone, Copy, Debug)]
struct Order {
    job: JobId,
    node: NodeId,
    number: u64,
    out: bool,
}

/// What nodes are to move, and what they have moved.
#[derive(Debug, Default)]
pub(super) struct Swaps {
    orders: Vec<Order>,
    /// The latest order about each job on each node.
    latest: BTreeMap<(JobId, NodeId), u64>,
    /// How many percent of its memory are resident, of jobs of which some has left.
    resident: BTreeMap<(JobId, NodeId), u64>,
    /// The jobs of which memory was ever to leave.
    out: BTreeSet<JobId>,
}

impl Swaps {
    /// The core orders something.
    pub(super) fn order(&mut self, (job, node): (JobId, NodeId), number: u64, out: bool) {
        self.orders.push(Order { job, node, number, out });
        self.latest.insert((job, node), number);
        if out {
            self.out.insert(job);
        } else {
            // From now on it may be there again.
            self.resident.remove(&(job, node));
        }
    }

    /// A job has ended, or starts anew.
    pub(super) fn forget(&mut self, job: JobId) {
        self.resident.retain(|&(other, _), _| other != job);
        self.latest.retain(|&(other, _), _| other != job);
    }
}

impl Cluster {
    /// How many jobs were ever to leave memory.
    pub(super) fn swapped_out(&self) -> u64 {
        self.swaps.out.len() as u64
    }

    /// The core has the memory of a job moved.
    pub(super) fn order_swap(&mut self, (job, node): (JobId, NodeId), number: u64, out: bool) {
        assert!(self.held[&job].tasks.contains_key(&node), "memory of no job is moved");
        self.swaps.order((job, node), number, out);
    }

    /// A node answers one of the orders, with so many percent of the job's memory left there.
    pub fn answer_swap(&mut self, index: usize, percent: u64) {
        self.answer_swap_after(index, percent, None);
    }

    /// The same after so long; `None`: a nanosecond for each byte of the job.
    pub fn answer_swap_after(&mut self, index: usize, percent: u64, took: Option<Nanos>) {
        if self.swaps.orders.is_empty() {
            return;
        }
        let Order { job, node, number, out } =
            self.swaps.orders.remove(index % self.swaps.orders.len());
        let allocated = self.allocated(job, node);
        let resident_bytes = if out { allocated * percent / 100 } else { allocated };
        if out && self.swaps.latest.get(&(job, node)) == Some(&number) {
            self.swaps.resident.insert((job, node), percent);
        }
        let (order, left_bytes) = (number, allocated - resident_bytes);
        let took = took.unwrap_or(Nanos(allocated));
        let space_bytes = allocated * 5;
        self.event(Event::Swapped {
            job,
            node,
            order,
            resident_bytes,
            left_bytes,
            took,
            space_bytes,
        });
    }

    /// All nodes answer.
    pub fn answer_swaps(&mut self) {
        while !self.swaps.orders.is_empty() {
            self.answer_swap(0, 10);
        }
    }

    /// The memory that is allocated to a job on a node.
    fn allocated(&self, job: JobId, node: NodeId) -> u64 {
        let Some(view) = self.core.job(job, ClusterTime(self.now)) else { return 0 };
        let slots = view.placements.iter().find(|part| part.node == node).map_or(0, |it| it.slots);
        view.spec.memory_per_task_bytes.unwrap_or(0) * u64::from(slots)
    }

    /// What is resident never exceeds what is counted.
    pub(super) fn check_swaps(&self) {
        for view in self.core.nodes().filter(|view| view.up) {
            let resident = view.jobs.iter().map(|&job| {
                let percent = self.swaps.resident.get(&(job, view.id)).copied().unwrap_or(100);
                self.allocated(job, view.id) * percent / 100
            });
            let (sum, counted) = (resident.sum::<u64>(), view.admitted_bytes);
            assert!(sum <= counted, "node {}: {sum} bytes resident, {counted} counted", view.id);
        }
    }
}
