//! Turns of jobs in a journal: which job has which processors when, as the core decides.

use crate::turns::{NodeNames, TurnsFile};
use tutti_core::{Action, Core, Event, JobState};
use tutti_sim::Observer;
use tutti_sim::picture::Gantt;
use tutti_types::{ClusterTime, JobId};

/// Recorder of what a core decides, event by event.
#[derive(Debug)]
pub(super) struct Turns {
    gantt: Gantt,
    names: NodeNames,
}

impl Turns {
    /// From a core on, with the jobs that it has.
    pub(super) fn of(core: &Core) -> Self {
        let mut turns = Self { gantt: Gantt::for_trace(), names: NodeNames::default() };
        let at = core.now();
        for view in core.jobs(at) {
            if !matches!(view.state, JobState::Queued { .. }) {
                turns.gantt.begin_job(view.id, view.id.0, at, core);
            }
        }
        turns.gantt.decided(at, core);
        let names = core.nodes().map(|node| (node.id.0, node.spec.name.clone()));
        turns.names.0.extend(names);
        turns
    }

    /// After an event: what followed from it. `number` is the number of a job for people.
    pub(super) fn note(
        &mut self,
        core: &Core,
        (at, event): (ClusterTime, &Event),
        actions: &[Action],
        number: impl Fn(JobId) -> JobId,
    ) {
        if let Event::NodeJoined { node, spec } = event {
            self.names.0.insert(node.0, spec.name.clone());
        }
        for action in actions {
            match action {
                Action::Launch { job, .. } => {
                    self.gantt.begin_job(*job, number(*job).0, at, core);
                }
                Action::Requeued { job } | Action::Ended { job, .. } => {
                    self.gantt.end_job(*job, at);
                }
                _ => {}
            }
        }
        self.gantt.decided(at, core);
    }

    /// Writes it.
    ///
    /// # Errors
    /// If it is too much, or can't be written.
    pub(super) fn write(self, file: TurnsFile) -> anyhow::Result<()> {
        file.write(self.gantt, &self.names)
    }
}
