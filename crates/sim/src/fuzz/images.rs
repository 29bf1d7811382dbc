//! Images of jobs' processes: which node has which, whatever the core thinks.
//!
//! Savers answer in time, late and never; processes can't be saved, or not be restored. An image is
//! kept until its job has ended or is to start anew, and the job runs nowhere else.

use super::Cluster;
use std::collections::BTreeMap;
use tutti_core::{CheckpointOrder, Core, Event, JobState};
use tutti_types::{ClusterTime, EndReason, JobId, NodeId, TaskStatus};

/// Images that nodes have.
#[derive(Debug, Default)]
pub(super) struct Images {
    /// By job, the node that has it.
    kept: BTreeMap<JobId, NodeId>,
    /// Runs whose processes are saved, and that have not ended.
    saved: BTreeMap<JobId, NodeId>,
}

impl Images {
    /// A job has ended.
    pub(super) fn forget(&mut self, job: JobId) {
        self.kept.remove(&job);
        self.saved.remove(&job);
    }
}

impl Cluster {
    /// What becomes of a job that saves an image: 0 its processes are saved, 1 they can't be, 2
    /// they can't be restored, 3 it is to start anew, 4 they are saved and go on, 5 they can't be
    /// saved and are ended.
    pub fn answer_saver(&mut self, job: JobId, what: u64) {
        let Some(view) = self.core.checkpoint(job).filter(|it| it.spec.saves_image()) else {
            return;
        };
        let resumes = view.resumes > 0;
        let mut held = self.held.get(&job).into_iter().flat_map(|held| held.tasks.values());
        let runs = held.any(|tasks| !tasks.is_empty());
        match what {
            0 if runs => self.end_run(job, TaskStatus::Saved),
            1 => self.event(Event::Checkpoint { job, order: CheckpointOrder::NotSaved }),
            2 if runs && resumes => self.end_run(job, TaskStatus::NotRestored),
            3 => self.event(Event::Checkpoint { job, order: CheckpointOrder::Anew }),
            5 if runs && resumes => self.end_run(job, TaskStatus::Damaged),
            4 if runs => self.event(Event::Checkpoint { job, order: CheckpointOrder::Kept }),
            _ => {}
        }
    }

    /// What is about to become of an image.
    pub(super) fn foresee_image(&mut self, event: &Event) {
        let node_of = |core: &Core, job| {
            core.checkpoint(job).filter(|it| it.spec.saves_image())?;
            core.parts(job).first().map(|part| part.node)
        };
        match *event {
            Event::TasksEnded { job, status: TaskStatus::Saved, .. } => {
                self.images.saved.extend(node_of(&self.core, job).map(|node| (job, node)));
            }
            // It says that there is one, also one that was not heard of when it was made.
            Event::TasksEnded { job, status: TaskStatus::Damaged, .. }
                if !self.images.kept.contains_key(&job) && !self.is_requeued(job) =>
            {
                self.images.saved.extend(node_of(&self.core, job).map(|node| (job, node)));
            }
            Event::Checkpoint { job, order: CheckpointOrder::Kept } => {
                self.images.kept.extend(node_of(&self.core, job).map(|node| (job, node)));
            }
            Event::Checkpoint { job, order: order @ CheckpointOrder::Anew }
                if self.core.why_no_checkpoint(job, order).is_none() =>
            {
                self.images.kept.remove(&job);
            }
            _ => {}
        }
    }

    /// Whether the run of a job ends since it was asked to be queued again.
    fn is_requeued(&self, job: JobId) -> bool {
        let state = self.core.job(job, ClusterTime(self.now)).map(|view| view.state);
        matches!(state, Some(JobState::Ending { reason: EndReason::Requeued { .. }, .. }))
    }

    fn end_run(&mut self, job: JobId, status: TaskStatus) {
        *self.requeue_orders.entry(job).or_default() += 1;
        self.end_tasks(job, status);
        self.clear(job);
    }

    /// A job is queued again: what was saved of its run is its image from now on.
    pub(super) fn note_image(&mut self, job: JobId) {
        if let Some(node) = self.images.saved.remove(&job) {
            self.images.kept.insert(job, node);
        }
    }

    /// Nodes keep what jobs go on from, and jobs go on only there.
    pub(super) fn check_images(&self) {
        for (&job, &node) in &self.images.kept {
            assert_eq!(self.core.image_of(job), Some(node), "the image of job {job} is lost");
            assert!(self.core.images_on(node).any(|it| it == job), "node {node} drops job {job}");
            let on: Vec<NodeId> = self.core.parts(job).iter().map(|part| part.node).collect();
            let place = self.core.shared_image(job).map(|shared| shared.place);
            let can_read = |other: NodeId| {
                other == node || place.is_some() && self.core.image_place(other) == place
            };
            assert!(
                on.iter().all(|&it| can_read(it)),
                "job {job} runs on {on:?} without its image"
            );
        }
        for view in self.core.jobs(ClusterTime(self.now)) {
            let known = self.core.image_of(view.id);
            assert_eq!(known, self.images.kept.get(&view.id).copied(), "image of job {}", view.id);
        }
    }
}
