//! What a job was submitted with, as it stands now.

use crate::arrays::Element;
use crate::launch_store::Kept;
use tutti_core::PlacementView;
use tutti_types::{ArraySpec, FirstStep, JobSpec, Nanos, QueueName};
use tutti_wire::launch::LaunchSpec;

/// See the head of the file.
pub(crate) struct Terms {
    /// What to run.
    pub(crate) launch: Kept,
    /// Its class.
    pub(crate) class: String,
    /// Its queue, if any.
    pub(crate) queue: Option<String>,
    /// How many tasks it starts with.
    pub(crate) tasks: u32,
    /// What it starts with.
    pub(crate) first: FirstStep,
    /// How many slots it asked for.
    pub(crate) slots: u32,
    /// How many processors it asked for; once it has some, how many these are.
    processors: u32,
    /// How long it may run.
    pub(crate) time_limit: Option<Nanos>,
    /// Whether `tutti submit` made it.
    submitted: bool,
    /// What tells it from the others of its array, if it is an element.
    element: Option<Element>,
    /// The indices and the limit, if it is an array.
    pub(crate) array: Option<ArraySpec>,
}

impl Terms {
    pub(super) fn new(
        (spec, first): (&JobSpec, FirstStep),
        queue: Option<&QueueName>,
        launch: Kept,
        submitted: bool,
    ) -> Self {
        Self {
            launch,
            class: spec.class.to_string(),
            queue: queue.map(ToString::to_string),
            tasks: first.tasks(spec.tasks),
            first,
            slots: spec.tasks,
            processors: spec.tasks.saturating_mul(spec.processors_per_task.unwrap_or(1)),
            time_limit: spec.time_limit,
            submitted,
            element: None,
            array: None,
        }
    }

    /// How it is called.
    pub(crate) const fn name(&self) -> &str {
        self.launch.name()
    }

    /// What it is to run, with what is its own as an element.
    pub(crate) fn whole_launch(&self) -> Option<LaunchSpec> {
        let mut launch = self.launch.whole()?;
        if let Some(element) = self.element {
            element.fill_in(&mut launch);
        }
        Some(launch)
    }

    /// Whether it came by `tutti submit`.
    pub(crate) const fn is_submitted(&self) -> bool {
        self.submitted
    }

    /// What tells it from the others of its array, if it is an element.
    pub(crate) const fn element(&self) -> Option<Element> {
        self.element
    }

    /// It is an element of an array, which came by `tutti submit` as all arrays do.
    pub(crate) const fn be_element(&mut self, element: Option<Element>) {
        self.element = element;
        self.submitted = true;
    }

    /// How many processors it asked for; once it has some, how many these are.
    pub(crate) const fn processors(&self) -> u32 {
        self.processors
    }

    /// It has these: fewer than it asked for, if tasks share some.
    pub(crate) fn note_processors(&mut self, placements: &[PlacementView]) {
        let had = placements.iter().map(|placed| placed.processors.count()).sum();
        if had > 0 {
            self.processors = had;
        }
    }
}
