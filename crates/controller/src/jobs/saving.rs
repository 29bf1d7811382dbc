//! How a job saves its state, and what became of that.

use tutti_types::NodeId;
use tutti_wire::launch::cut;
use tutti_wire::limits::TASK_DETAIL_BYTES_MAX;
use tutti_wire::show::CheckpointReport;

/// See the head of the file.
#[derive(Default)]
pub(crate) struct Saving {
    /// What a reader is shown of it, if the job saves its state.
    report: Option<CheckpointReport>,
    /// Why its processes could not be saved to an image, or restored from one.
    failure: String,
    /// The nodes that may have an image of its processes, from earlier runs.
    images_on: Vec<NodeId>,
}

impl Saving {
    /// That of a job of an earlier controller, with the node that has its image.
    pub(crate) fn of_before(image_on: Option<NodeId>) -> Self {
        Self { images_on: image_on.into_iter().collect(), ..Self::default() }
    }

    /// Keeps what a reader is shown of it, with why it failed.
    pub(crate) fn note_report(&mut self, report: CheckpointReport) {
        let why = Some(self.failure.clone()).filter(|why| !why.is_empty());
        self.report = Some(CheckpointReport { why, ..report });
    }

    /// What a reader is shown of it, if the job saves its state.
    pub(crate) const fn report(&self) -> Option<&CheckpointReport> {
        self.report.as_ref()
    }

    /// Its processes could not be saved, or restored, for this reason; empty: they were.
    pub(crate) fn note_failure(&mut self, why: String) {
        self.failure = cut(why, TASK_DETAIL_BYTES_MAX);
    }

    /// Why its processes could not be saved or restored, as far as this controller knows.
    pub(crate) fn failure(&self) -> &str {
        &self.failure
    }

    /// A run of it is over, which may have left images on its nodes.
    pub(super) fn note_run(&mut self, nodes: &[NodeId]) {
        if self.makes_images() {
            self.images_on.extend_from_slice(nodes);
        }
    }

    /// The nodes that may have an image of its processes, if it makes images, by now.
    pub(crate) fn nodes_with_images<'a>(
        &'a self,
        nodes: &'a [NodeId],
    ) -> impl Iterator<Item = NodeId> + 'a {
        let all = nodes.iter().chain(&self.images_on).copied();
        let makes_images = self.makes_images();
        all.filter(move |_| makes_images)
    }

    fn makes_images(&self) -> bool {
        self.report.as_ref().is_some_and(|report| report.signal == 0)
    }
}
