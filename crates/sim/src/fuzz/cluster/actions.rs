//! How a pretended cluster carries the core's actions out.

use super::Cluster;
use tutti_core::policy::{CLASSES, POLICIES};
use tutti_core::{Action, CheckpointNews, Event, Part, Place, StepAction};
use tutti_types::limits::REQUEUES_MAX;
use tutti_types::{ClusterTime, ControlMethod, JobId, Nanos, NodeId, Rank};

impl Cluster {
    pub(super) fn carry_out(&mut self, action: &Action) {
        match action {
            Action::Accept { job, .. } => {
                assert!(job.0 > self.spent, "{job:?} may be held by a node");
                assert!(!self.accepted.contains(job), "{job:?} was given twice");
                self.accepted.push(*job);
            }
            Action::Decline { refusal, .. } => self.refusals.push(refusal.clone()),
            Action::Timetable { node, version } => self.take_timetable(*node, *version),
            Action::Timetables { version } => {
                let up: Vec<NodeId> =
                    self.core.nodes().filter(|view| view.up).map(|view| view.id).collect();
                assert!(!up.is_empty(), "no target");
                for node in up {
                    self.take_timetable(node, *version);
                }
            }
            Action::Launch { job, control } => self.launch(*job, *control),
            Action::Signal { job, node, .. }
            | Action::SignalRoots { job, node, .. }
            | Action::Terminate { job, node } => {
                assert!(self.held[job].tasks.contains_key(node), "signal to no job");
            }
            Action::Kill { job, node } => {
                self.held.get_mut(job).expect("kill of no job").killed.insert(*node);
            }
            Action::Step(action) => self.carry_out_of_step(action),
            Action::Ended { job, outcome } => {
                assert!(self.steps.keys().all(|key| key.job != *job), "a step outlives its job");
                self.swaps.forget(*job);
                self.images.forget(*job);
                let left = self.held.remove(job).unwrap_or_default();
                assert!(left.tasks.is_empty(), "job {job} ended before it was cleared: {left:?}");
                let ours = self.service.remove(job).unwrap_or(0);
                if self.core.params().lead() == Nanos::ZERO {
                    self.compare_service(*job, outcome.service, ours);
                }
                assert!(self.outcomes.insert(*job, *outcome).is_none(), "ended twice");
            }
            Action::PromiseBroken { job, .. } | Action::JobDeclined { job, .. } => {
                assert!(!self.held.contains_key(job), "job {job} had started");
            }
            Action::Reclassed { job, class } => {
                assert!(self.core.classes().contains_key(class), "job {job}: no class {class}");
            }
            Action::ElementMade { array, position, job } => {
                let is_new = self.elements.insert((*array, *position), *job).is_none();
                assert!(is_new, "element {position} of array {array} is made twice");
                self.accepted.push(*job);
            }
            Action::ArrayEnded { array, outcome, ends, .. } => {
                let made = self.elements.range((*array, 0)..=(*array, u32::MAX)).count();
                let all = (ends.ok + ends.failed + ends.cancelled) as usize;
                assert!(made <= all, "array {array} ended before its elements");
                assert!(self.outcomes.insert(*array, *outcome).is_none(), "ended twice");
            }
            Action::Checkpoint { job, news } => self.note_checkpoint(*job, *news),
            Action::Requeued { job } => self.wait_again(*job),
            Action::Respawn { job, node, from, ranks } => {
                self.respawn(*job, (*node, *from), ranks);
            }
            Action::RanksLost { job, ranks, .. } => {
                assert!(!ranks.is_empty(), "no rank of job {job} is lost");
                self.runs_nowhere(*job, ranks);
            }
            Action::RanksGivenUp { job, ranks, .. } => self.runs_nowhere(*job, ranks),
            Action::MoveOut { job } => self.begin_move_out(*job),
            Action::MoveIn { job } => self.begin_move_in(*job),
            Action::Swap { job, node, order, out } => self.order_swap((*job, *node), *order, *out),
            Action::WakeAt { at } => self.wake = *at,
        }
    }

    /// Each request to save the state may have the job in line again.
    fn note_checkpoint(&mut self, job: JobId, news: CheckpointNews) {
        let is_asked =
            matches!(news, CheckpointNews::AskedToEnd { .. } | CheckpointNews::AskedToGoOn);
        *self.requeue_orders.entry(job).or_default() += u32::from(is_asked);
    }

    fn carry_out_of_step(&mut self, action: &StepAction) {
        match action {
            StepAction::Launch { key } => {
                let ranks = |part: &Part| part.placements().iter().map(|it| it.rank).collect();
                let parts = self.core.step_parts(*key);
                let nodes = parts.iter().map(|part| (part.node, ranks(part))).collect();
                assert!(self.steps.insert(*key, nodes).is_none(), "{key:?} starts twice");
            }
            StepAction::Kill { key, node } => {
                let has = self.steps.get(key).is_some_and(|nodes| nodes.contains_key(node));
                if has {
                    self.step_kills.push((*key, *node));
                }
            }
            StepAction::Ended { key, outcome } => {
                let left = self.steps.remove(key).unwrap_or_default();
                assert!(left.is_empty(), "{key:?} ended before it was cleared: {left:?}");
                assert!(self.step_outcomes.insert(*key, *outcome).is_none(), "ended twice");
            }
            StepAction::Accept { .. }
            | StepAction::Decline { .. }
            | StepAction::Signal { .. }
            | StepAction::RanksFailed { .. }
            | StepAction::Terminate { .. } => {}
        }
    }

    fn launch(&mut self, job: JobId, control: ControlMethod) {
        let class = &self.core.job(job, ClusterTime(self.now)).unwrap().spec.class;
        assert_eq!(control, self.core.classes()[class].control());
        self.since.insert(job, self.now);
        let held = self.held.entry(job).or_default();
        for part in self.core.parts(job) {
            let ranks = part.placements().iter().map(|task| task.rank).collect();
            assert!(held.tasks.insert(part.node, ranks).is_none(), "launched twice");
            held.nodes += 1;
            assert!(self.timetables.contains_key(&part.node), "no timetable before it");
        }
        assert!(held.nodes > 0, "launched nowhere");
    }

    /// Lost ranks of a job begin again: they run nowhere else, and their launch is a new one.
    fn respawn(&mut self, job: JobId, (node, from): (NodeId, NodeId), ranks: &[Rank]) {
        assert!(!ranks.is_empty(), "nothing of job {job} begins again");
        self.runs_nowhere(job, ranks);
        assert!(self.timetables.contains_key(&node), "no timetable before it");
        let launch = self.core.launch_on(job, node);
        assert!(launch.number > self.launches.get(&job).copied().unwrap_or(0), "{launch:?} is old");
        self.launches.insert(job, launch.number);
        let activates = self.core.timetable(node).expect("it is up").activates;
        self.joins.insert((job, node), activates.0);
        let held = self.held.get_mut(&job).expect("only what was launched begins again");
        assert!(held.tasks.values().all(|tasks| ranks.iter().all(|rank| !tasks.contains(rank))));
        held.killed.remove(&from);
        let had = held.tasks.insert(node, ranks.iter().copied().collect());
        assert!(had.is_none(), "job {job} is twice on node {node}");
    }

    /// No node has any of these ranks of a job.
    fn runs_nowhere(&self, job: JobId, ranks: &[Rank]) {
        let held = self.held.get(&job).into_iter().flat_map(|held| held.tasks.values().flatten());
        let twice = held.into_iter().find(|rank| ranks.contains(rank));
        assert_eq!(twice, None, "a rank of job {job} runs twice at once");
    }

    /// A job that a node has lost begins anew.
    fn wait_again(&mut self, job: JobId) {
        self.swaps.forget(job);
        self.note_image(job);
        let left = self.held.remove(&job).unwrap_or_default();
        assert!(left.tasks.is_empty(), "job {job} is queued before it was cleared: {left:?}");
        let again = self.requeued.entry(job).or_default();
        *again += 1;
        let orders = self.requeue_orders.get(&job).copied().unwrap_or(0);
        let most = REQUEUES_MAX + orders + self.roll_outs;
        assert!(*again <= most, "job {job} goes round");
        let number = self.core.launch_of(job).number;
        let before = self.launches.insert(job, number).unwrap_or(0);
        assert!(number > before, "launch {number} of job {job} is old");
        self.service.remove(&job);
        self.runs.remove(&job);
        self.since.remove(&job);
    }

    /// A job that is preempted by the rules of classes has had its time.
    fn begin_move_out(&mut self, job: JobId) {
        if self.moves.contains(&Event::MovedOut { job }) {
            // A driver that begins is asked again.
            return;
        }
        let view = self.core.job(job, ClusterTime(self.now)).expect("moves are for known jobs");
        assert_eq!(view.place, Place::Leaving);
        let processors = view.placements.iter().map(|it| u64::from(it.processors.count())).sum();
        let time = self.core.classes()[&view.spec.class].do_not_disturb(processors);
        let had = self.now - self.since[&job];
        let by_class = POLICIES[self.core.params().policy()].name == CLASSES.name;
        let enough = time.is_some_and(|time| had >= time.0);
        assert!(
            !by_class || view.suspended || enough,
            "job {job} was disturbed after {had} of {time:?}"
        );
        self.moves.push(Event::MovedOut { job });
    }

    fn begin_move_in(&mut self, job: JobId) {
        if self.moves.contains(&Event::MovedIn { job }) {
            return;
        }
        let held = self.held.get_mut(&job).expect("only a launched job comes back");
        let parts = self.core.parts(job);
        if parts.iter().all(|part| part.left == part.launched() && !part.cleared && !part.lost) {
            // Perhaps elsewhere than before, with all its tasks.
            let of = |part: &Part| part.placements().iter().map(|task| task.rank).collect();
            held.tasks = parts.iter().map(|part| (part.node, of(part))).collect();
            held.nodes = parts.len();
        }
        self.moves.push(Event::MovedIn { job });
    }
}
