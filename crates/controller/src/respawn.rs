//! Ranks that are started again after a node was lost: launches and events.
//!
//! The core decides ([`tutti_core::Action::Respawn`]). The launch has a number that no earlier one of
//! the job had, so that no report of the lost tasks is taken for one of these. The other nodes of
//! the job keep their launch.

use super::driver::Driver;
use super::jobs::Entry;
use std::fmt::Write;
use tutti_types::{ClusterTime, JobId, NodeId, Rank};
use tutti_wire::event::{What, ranks_text};
use tutti_wire::launch::Launch;
use tutti_wire::limits::JOB_DETAIL_BYTES_MAX;
use tutti_wire::tree::ToAgent;

/// Ranks as text: `rank 3` or `ranks 2-5`.
fn words(ranks: &[Rank]) -> String {
    let noun = if ranks.len() == 1 { "rank" } else { "ranks" };
    format!("{noun} {}", ranks_text(&mut ranks.to_vec()))
}

impl Driver {
    /// Tasks of a job were lost, and wait for processors. What was heard of their ends does not
    /// count.
    pub(super) fn on_ranks_lost(
        &mut self,
        job: JobId,
        node: NodeId,
        mut ranks: Vec<Rank>,
        until: ClusterTime,
    ) {
        if let Some(entry) = self.jobs.get_mut(&job) {
            entry.run.take_back(&ranks);
        }
        let wait_ms = until.since(self.now()).0 / 1_000_000;
        let (node, ranks) = (self.node_name(node), ranks_text(&mut ranks));
        self.job_event(job, What::JobRanksLost { node, ranks, wait_ms });
        self.ask_disk_soon();
    }

    /// Lost tasks of a job start again.
    pub(super) fn on_respawn(
        &mut self,
        job: JobId,
        (node, from): (NodeId, NodeId),
        mut ranks: Vec<Rank>,
    ) {
        let now_on = self.node_name(node);
        let detail = format!("{}, started again on {now_on}", self.how_it_went(from));
        if let Some(entry) = self.jobs.get_mut(&job) {
            entry.run.take_back(&ranks);
            ranks.iter().for_each(|&rank| entry.run.note_detail(rank, detail.clone()));
            entry.run.start_again_on(node);
        }
        // The launch that its keeper has lost.
        if let Some(former) = self.cluster.nodes.get_mut(&node).and_then(|entry| entry.forget(job))
        {
            self.tell_node(node, ToAgent::Forget { launch: former });
        }
        self.note_places(job);
        let number = self.core.launch_on(job, node).number;
        let (from, ranks) = (self.node_name(from), ranks_text(&mut ranks));
        let part = self.core.parts(job).iter().find(|part| part.node == node);
        let processors = part.map_or_else(String::new, |part| part.processors.to_string());
        let (name, launch) = (now_on, number);
        let what = What::JobRanksRespawned { node: name, ranks, processors, launch, from };
        self.job_event(job, what);
        self.ask_disk_soon();
        if let Some(launch) = self.launch_for(job, node) {
            let shares = vec![(node, launch.share.clone())];
            self.launch_on_nodes(launch, shares);
        }
    }

    /// Lost tasks of a job are not started again.
    pub(super) fn on_ranks_given_up(&mut self, job: JobId, node: NodeId, mut ranks: Vec<Rank>) {
        let detail = format!("lost with node {}", self.node_name(node));
        if let Some(entry) = self.jobs.get_mut(&job) {
            ranks.iter().for_each(|&rank| entry.run.give_up_task(rank, &detail));
        }
        let (node, ranks) = (self.node_name(node), ranks_text(&mut ranks));
        self.job_event(job, What::JobRanksGivenUp { node, ranks });
    }

    /// The launch of a job as one of its nodes gets it: by its own number, with the tasks that have
    /// not ended.
    pub(super) fn launch_for(&self, job: JobId, node: NodeId) -> Option<Launch> {
        let (launch, shares) = self.make_launch(job, self.core.control_of(job)?)?;
        let mut share = shares.into_iter().find_map(|(of, share)| (of == node).then_some(share))?;
        let number = self.core.launch_on(job, node).number;
        let joins = number != launch.number;
        if joins {
            let view = self.core.job(job, self.now())?;
            let has_ended = |rank| view.ended.iter().any(|(ended, _)| *ended == rank);
            share.tasks.retain(|task| !has_ended(task.rank));
        }
        Some(Launch { number, share, joins, ..launch })
    }

    /// What a reader should know of a job that has not ended, with the ranks that wait.
    pub(super) fn detail_with_waiting_ranks(&self, job: JobId, entry: &Entry) -> String {
        let mut detail = entry.detail();
        for waiting in self.core.waiting_ranks(job) {
            if detail.len() >= JOB_DETAIL_BYTES_MAX {
                break;
            }
            let (ranks, node) = (words(&waiting.ranks), self.node_name(waiting.node));
            let line_break = if detail.is_empty() { "" } else { "\n" };
            let wait = match waiting.until {
                Some(until) => {
                    let seconds = until.since(self.now()).0.div_ceil(1_000_000_000);
                    format!("waits for processors for up to {seconds}s")
                }
                None => "waits for the job's turns".into(),
            };
            let _ = write!(detail, "{line_break}{ranks} lost with node {node}: {wait}");
        }
        detail
    }
}
