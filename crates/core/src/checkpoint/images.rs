//! Which nodes can read the image of a job's processes: the one that has it, or all that share the
//! directory of images with it.
//!
//! Nodes with the same *place* share a directory. Where the images of a job are is settled when it
//! begins: its temporary directory is there, too, and its processes know that by name.

use super::{Checkpoints, Core};
use crate::state::record::Record;
use alloc::collections::{BTreeMap, BTreeSet};
use serde::{Deserialize, Serialize};
use tutti_types::ids::{JobId, NodeId};
use tutti_types::job::SharedImage;

/// Where nodes put images that other nodes can read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Places(BTreeMap<NodeId, u64>);

/// An image of a job's processes.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Image {
    /// The node that has made it.
    pub(super) node: NodeId,
    /// On which nodes the job may be without it.
    among: Option<BTreeSet<NodeId>>,
    /// The nodes that could not restore it. They are tried again when no other is left.
    refused: BTreeSet<NodeId>,
}

impl Places {
    pub(super) fn of(&self, node: NodeId) -> Option<u64> {
        self.0.get(&node).copied()
    }

    /// The nodes on which a job with this image may be.
    fn nodes_for(&self, image: &Image, shared: Option<SharedImage>) -> BTreeSet<NodeId> {
        let of_place = shared.map(|shared| shared.place);
        let readers = self.0.iter().filter(|&(_, &place)| Some(place) == of_place);
        let mut nodes: BTreeSet<NodeId> = readers.map(|(&node, _)| node).collect();
        nodes.insert(image.node);
        if let Some(among) = &image.among {
            nodes.retain(|node| *node == image.node || among.contains(node));
        }
        if !nodes.is_subset(&image.refused) {
            nodes.retain(|node| !image.refused.contains(node));
        }
        nodes
    }
}

/// The first node of a run.
fn node_of(record: &Record) -> Option<NodeId> {
    record.residence()?.parts.first().map(|part| part.node)
}

impl Checkpoints {
    /// The processes of a job were saved on its only node.
    pub(super) fn note_image(&mut self, record: &mut Record) {
        let Some(saver) = self.jobs.get_mut(&record.id).filter(|it| it.spec.saves_image()) else {
            return;
        };
        let Some(node) = node_of(record) else { return };
        let among = record.spec.nodes.among.take();
        let among = saver.image.take().map_or(among, |image| image.among);
        let image = Image { node, among, refused: BTreeSet::new() };
        record.spec.nodes.among = Some(self.places.nodes_for(&image, saver.shared));
        saver.image = Some(image);
    }

    /// The processes of a job could not be restored on its only node.
    pub(super) fn note_not_restored(&mut self, record: &mut Record) {
        let Some(saver) = self.jobs.get_mut(&record.id) else { return };
        let (Some(node), Some(image)) = (node_of(record), saver.image.as_mut()) else { return };
        image.refused.insert(node);
        record.spec.nodes.among = Some(self.places.nodes_for(image, saver.shared));
    }
}

impl Core {
    /// A node puts images into a directory that others share, or does so no more.
    pub(crate) fn on_image_place(&mut self, node: NodeId, place: Option<u64>) {
        let places = &mut self.checkpoints.places;
        let before = match place {
            Some(place) => places.0.insert(node, place),
            None => places.0.remove(&node),
        };
        if before != place {
            self.look_for_images();
        }
    }

    /// Jobs may go on from their images where these can be read now.
    fn look_for_images(&mut self) {
        let places = &self.checkpoints.places;
        for (&job, saver) in &self.checkpoints.jobs {
            let (Some(image), Some(record)) = (&saver.image, self.jobs.get_mut(&job)) else {
                continue;
            };
            if saver.shared.is_some() {
                record.spec.nodes.among = Some(places.nodes_for(image, saver.shared));
            }
        }
        self.queue.disturbed = true;
        self.queue.reconsider();
    }

    /// A job starts from the beginning when it runs next, on any node that it may be on.
    pub(super) fn drop_image(&mut self, job: JobId) {
        let Some(saver) = self.checkpoints.jobs.get_mut(&job) else { return };
        let Some(Image { among, .. }) = saver.image.take() else { return };
        saver.resumes = 0;
        saver.last = None;
        let Some(record) = self.jobs.get_mut(&job) else { return };
        record.spec.nodes.among = among;
        self.queue.disturbed = true;
        self.queue.reconsider();
    }

    /// The node that has made the image of a job's processes.
    #[must_use]
    pub fn image_of(&self, job: JobId) -> Option<NodeId> {
        self.checkpoints.jobs.get(&job)?.image.as_ref().map(|image| image.node)
    }

    /// Where the images of a job are, if in a directory that nodes share.
    #[must_use]
    pub fn shared_image(&self, job: JobId) -> Option<SharedImage> {
        self.checkpoints.jobs.get(&job)?.shared
    }

    /// The directory in which a node puts images that others can read.
    #[must_use]
    pub fn image_place(&self, node: NodeId) -> Option<u64> {
        self.checkpoints.places.of(node)
    }

    /// All images of jobs that have not ended in directories that nodes share.
    pub fn shared_images(&self) -> impl Iterator<Item = (JobId, u64)> {
        let all = self.checkpoints.jobs.iter();
        all.filter_map(|(&job, saver)| Some((job, saver.shared?.number)))
    }

    /// The jobs whose images a node is to keep, or that may save one there.
    pub fn images_on(&self, node: NodeId) -> impl Iterator<Item = JobId> {
        let savers = self.checkpoints.jobs.iter().filter(|(_, saver)| saver.spec.saves_image());
        savers.map(|(&job, saver)| (job, saver.image.as_ref())).filter_map(move |(job, image)| {
            let runs_there = self.residence(job).is_some_and(|it| it.part(node).is_some());
            (runs_there || image.is_some_and(|image| image.node == node)).then_some(job)
        })
    }
}
