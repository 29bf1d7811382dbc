//! Which nodes are there, and which of them take jobs: what happens when one joins, is lost, is
//! drained, is out of reach, or is removed.
//!
//! A drained node takes no new jobs. Its jobs run on, keep their processors through all
//! turns, and come back to them if they were preempted; it stays drained until an administrator
//! says otherwise, also if it is lost and joins again. So it is with a node that is out of reach,
//! until it joins again or is lost. A job that would fit if all these nodes took jobs is accepted,
//! and waits; it holds up no other.
//!
//! After a loss of power the journal may lack what happened last: a node that is out of reach may run what was
//! launched then. So no node takes new jobs until each of those is back, and says what it has, or is lost: no
//! job runs twice at a time.

use crate::action::Action;
use crate::apply::Core;
use crate::event::Event;
use crate::matrix::Column;
use crate::state::record::{Course, Phase};
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use tutti_types::ids::{FeatureName, JobId, NodeId};
use tutti_types::job::NodeSpec;
use tutti_types::limits::JOB_NUMBER_MAX;
use tutti_types::time::ClusterTime;

impl Core {
    /// A node that is up already has a new agent, which adopts what the node's keeper holds: it
    /// needs its timetable and what it may have missed. With other processors than before, it is
    /// another node.
    pub(crate) fn on_node_joined(
        &mut self,
        node: NodeId,
        spec: &NodeSpec,
        actions: &mut Vec<Action>,
    ) {
        let known = self.nodes.get(node).filter(|record| record.up).map(|record| &record.spec);
        match known.map(|known| known.processors == spec.processors && known.name == spec.name) {
            Some(true) => {
                self.nodes.set_memory(node, spec.memory_bytes);
                if self.nodes.set_away(node, false) {
                    self.open_or_close(self.now, node);
                    self.after_missed(self.now);
                }
                self.queue.reconsider();
                self.outbox.nodes.push(node);
                self.kill_again(node, actions);
                actions.extend(self.swap_orders(node));
                return;
            }
            Some(false) => self.on_node_lost(self.now, node, actions),
            None => {}
        }
        if self.nodes.get(node).is_some_and(|before| before.spec.name != spec.name) {
            self.forget_network(node);
        }
        self.nodes.join(node, spec.clone());
        self.matrix.add_node(node, &spec.processors);
        if !self.takes_jobs(node) {
            self.matrix.close(node);
        }
        self.unpark();
        self.forget_promises();
    }

    /// Jobs that were killed while the node's agent was away may not have been killed there.
    fn kill_again(&self, node: NodeId, actions: &mut Vec<Action>) {
        let Some(column) = self.matrix.column(node) else { return };
        for job in self.known_on(node, column) {
            if let Some(residence) = self.residence(job)
                && matches!(residence.course, Course::Killed { .. })
                && residence.nodes_left().any(|left| left == node)
            {
                actions.push(Action::Kill { job, node });
            }
        }
    }

    /// The jobs of which something may be on a node that is up.
    fn known_on(&self, node: NodeId, column: &Column) -> Vec<JobId> {
        let homes = column.residents.iter().map(|&(_, job)| job);
        // Others may have the places of tasks that have ended.
        let ended = self.absent.range((node, JobId(0))..=(node, JobId(u64::MAX)));
        let mut known: Vec<JobId> = homes.chain(self.aside_on(node)).collect();
        for &(_, job) in ended {
            if !known.contains(&job) {
                known.push(job);
            }
        }
        known
    }

    /// What was on a node is gone; what becomes of the jobs, each said itself.
    pub(crate) fn on_node_lost(
        &mut self,
        now: ClusterTime,
        node: NodeId,
        actions: &mut Vec<Action>,
    ) {
        self.foreign.remove(&node);
        self.outside.arranged.remove(&node);
        let Some(column) = self.matrix.column(node) else { return };
        let residents = self.known_on(node, column);
        self.matrix.remove_node(node);
        self.break_promises_on(now, node);
        self.nodes.lose(node);
        self.swaps.lose_node(node);
        self.lose_devices(node);
        self.after_missed(now);
        self.absent.retain(|&(other, _)| other != node);
        // More tasks than there are processors now share them.
        self.unpark();
        self.forget_promises();
        for job in residents {
            let loss = self.loss_on(job, node);
            if self.residence_mut(job).is_some_and(|residence| residence.lose(node)) {
                self.lose_steps_on(now, (job, node), actions);
                self.answer_loss(now, (job, node, loss), actions);
                self.after_part_ended(job, node);
                self.release_if_spent(now, job, actions);
            }
            self.recount_freed(job);
            self.finish_if_cleared(job, actions);
        }
    }

    /// A job has other processors in its row than before: so many come free when it ends.
    pub(crate) fn recount_freed(&mut self, job: JobId) {
        if let Some(seat) = self.matrix.seat(job) {
            self.ledger.come_back(job, seat.row, seat.processors);
        }
    }

    /// Nothing comes to a node any more, or again.
    pub(crate) fn on_set_drained(&mut self, now: ClusterTime, node: NodeId, reason: Option<&str>) {
        self.nodes.set_drained(node, reason.map(Into::into));
        self.open_or_close(now, node);
    }

    /// A node's agent is out of reach, for an unknown time.
    pub(crate) fn on_node_out_of_reach(&mut self, now: ClusterTime, node: NodeId) {
        if self.nodes.set_away(node, true) {
            self.open_or_close(now, node);
        }
    }

    /// What happened last may not be known, jobs up to this number included.
    pub(crate) fn on_forgot(&mut self, now: ClusterTime, job: JobId) {
        self.leave_out(job);
        self.roll_out.pause();
        self.nodes.doubt();
        self.open_or_close_all(now);
    }

    /// None of the nodes that are up is in reach yet. All in one: if they were so one after the other, the others
    /// would be given meanwhile what the first are not.
    pub(crate) fn miss_all(&mut self, now: ClusterTime) {
        for node in self.nodes.up().map(|(id, _)| id).collect::<Vec<NodeId>>() {
            self.nodes.set_away(node, true);
        }
        self.open_or_close_all(now);
        self.after_missed(now);
    }

    /// Numbers up to this one are given to no other job.
    pub(crate) fn leave_out(&mut self, job: JobId) {
        self.jobs_made = self.jobs_made.max(job.0.min(JOB_NUMBER_MAX));
    }

    /// Whether no job begins before all nodes that are out of reach are back or lost.
    #[must_use]
    pub const fn is_in_doubt(&self) -> bool {
        self.nodes.is_in_doubt()
    }

    /// A node that was out of reach is back or lost.
    fn after_missed(&mut self, now: ClusterTime) {
        if self.nodes.clear_doubt() {
            self.open_or_close_all(now);
        }
    }

    pub(crate) fn open_or_close_all(&mut self, now: ClusterTime) {
        for node in self.nodes.up().map(|(id, _)| id).collect::<Vec<NodeId>>() {
            self.open_or_close(now, node);
        }
    }

    /// Whether new jobs are placed on a node.
    pub(crate) fn takes_jobs(&self, node: NodeId) -> bool {
        self.nodes.takes_jobs(node) && !self.is_closed()
    }

    /// New jobs are placed on a node from now on, or none.
    fn open_or_close(&mut self, now: ClusterTime, node: NodeId) {
        if self.takes_jobs(node) {
            self.matrix.open(node);
            self.unpark();
            // Nothing moved there meanwhile.
            self.note_came_free(core::iter::once(node));
        } else {
            self.matrix.close(node);
            self.call_off_starts_on(now, node);
        }
        // What was promised rests on other nodes than there are now.
        self.forget_promises();
        self.migration.rows = true;
    }

    /// A job that was promised to begin on a node begins elsewhere, if there is time.
    fn call_off_starts_on(&mut self, now: ClusterTime, node: NodeId) {
        let plans = self.plans.rows.values();
        let here = plans.flat_map(|plan| plan.promises.on(node)).map(|(job, _)| job);
        let is_queued = |job: &JobId| {
            self.jobs.get(job).is_some_and(|it| matches!(it.phase, Phase::Queued { .. }))
        };
        for job in here.filter(is_queued).collect::<Vec<JobId>>() {
            self.break_promise(now, job);
        }
    }

    /// What a node can do, or how busy it is.
    pub(crate) fn on_measured(&mut self, event: &Event) {
        if let Event::NodeMeasured { node, figures } = event {
            self.nodes.measure(*node, *figures);
        } else if let Event::NodeLoad { node, averages } = event {
            self.nodes.load(*node, *averages);
        } else if let Event::NodeFeatures { node, features } = event {
            self.note_features(*node, features);
        } else if let Event::NetworkMeasured { node, peer, figures } = event {
            self.on_network_measured(*node, *peer, *figures);
        } else if let Event::ImagePlace { node, place } = event {
            self.on_image_place(*node, *place);
        }
        // Where blocks of processors are chosen by figures, another may be free.
        if self.policy().has_levels {
            self.queue.reconsider();
        }
    }

    /// What programs may need of a node's processors.
    fn note_features(&mut self, node: NodeId, features: &BTreeSet<FeatureName>) {
        self.features.insert(node, features.clone());
    }

    /// A node is none of ours any more.
    pub(crate) fn on_node_removed(
        &mut self,
        now: ClusterTime,
        node: NodeId,
        actions: &mut Vec<Action>,
    ) {
        self.on_node_lost(now, node, actions);
        self.nodes.remove(node);
        self.note_removed(node);
        self.features.remove(&node);
        self.forget_network(node);
        self.swaps.remove_node(node);
        self.devices.remove(node);
        self.on_image_place(node, None);
    }
}
