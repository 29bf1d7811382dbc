//! Timetables of nodes, made from the matrix and the frame.
//!
//! In the slot of a row, a node's candidates are, in this order:
//!
//! 1. the jobs at home in the row, each with what its class says of empty time;
//! 2. the guests of the row;
//! 3. substitutes: jobs that run on this node only, in cyclic row order from the row on.
//!
//! The part of a site's policy on the node may have given those of one node another order
//! ([`crate::Order::Arrange`]).
//!
//! Under a policy with levels, the node itself chooses which substitute comes first, by what
//! classes have had there ([`tutti_types::timetable::ClassPart`]). The core can't know it, so it
//! counts nothing of it: such time is idle time that a node gives away.
//!
//! Homes and guests are disjoint, so each of them runs if it is present and whatever else is: a
//! gang runs on all its nodes or on none, by arithmetic and presence alone. Substitutes run in
//! place of what is absent; that is a matter of one node only, so a gang is never one.
//!
//! A timetable goes to the nodes for which it is different. The frame (rows, lengths, epoch) is the
//! same in all of them; if it changes, all get a new one.

use crate::action::Action;
use crate::apply::Core;
use crate::frame::Layout;
use crate::ledger::{Rows, Runs, Stage};
use crate::matrix::{Changes, Column, Owner, Seat};
use crate::memory_turns;
use crate::share::{self, Present, Users};
use crate::state::record::Phase;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};
use tutti_types::ids::{ClassName, JobId, NodeId, ProcessorSet, RowId};
use tutti_types::job::ControlMethod;
use tutti_types::limits::{CLASS_JOBS_MAX, SUBSTITUTES_PER_SLOT_MAX};
use tutti_types::time::ClusterTime;
use tutti_types::timetable::{Candidate, ClassPart, IfAbsent, Slot, Timetable};

/// The candidates of a node, for every row that has a slot or may get one.
pub(crate) type NodePlan = BTreeMap<RowId, Vec<Candidate>>;

/// What remains to be sent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Outbox {
    /// Nodes that need a timetable whether or not it changed.
    pub(crate) nodes: Vec<NodeId>,
    /// All of them do.
    pub(crate) all_nodes: bool,
    /// Since the frame is another one.
    pub(crate) reframed: bool,
    /// Parameters or classes are others, so slots may be.
    pub(crate) reshaped: bool,
    /// Nodes where a job's tasks have all ended, or one such job is gone.
    pub(crate) quieter: BTreeSet<NodeId>,
    /// Jobs to launch, once their timetables are out.
    pub(crate) launches: Vec<JobId>,
    /// Jobs that leave and come, once the timetables without them are out, and they are launched:
    /// one that starts may set out at once.
    pub(crate) moves: Vec<JobId>,
    /// What became different in the matrix; known while it is being sent.
    changes: Changes,
}

/// When a node was last told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Sent {
    pub(crate) version: u64,
    pub(crate) activates: ClusterTime,
}

impl Core {
    /// The jobs that may run in which row's slot on a node.
    pub(crate) fn node_plan(&self, node: NodeId) -> NodePlan {
        let mut plan = NodePlan::new();
        let Some(column) = self.matrix.column(node) else { return plan };
        for (row, _) in self.matrix.rows().filter(|(_, row)| !row.classes.is_empty()) {
            let mut candidates = Vec::new();
            // A row that uses nothing here has no one to be substituted: a job that could stand in
            // is a guest.
            if column.cells(row).is_some() {
                self.built_in_order((row, node, column), &mut candidates);
                self.put_in_order(row, node, &mut candidates);
            }
            plan.insert(row, candidates);
        }
        plan
    }

    fn built_in_order(
        &self,
        (row, node, column): (RowId, NodeId, &Column),
        candidates: &mut Vec<Candidate>,
    ) {
        self.homes_and_guests((row, node, column), candidates);
        self.substitutes((row, node, column), candidates);
    }

    /// The candidates of one row on a node in the built-in order; `None`: there is no such row.
    pub(crate) fn own_order(&self, row: RowId, node: NodeId) -> Option<Vec<Candidate>> {
        let column = self.matrix.column(node)?;
        self.matrix.row(row).filter(|row| !row.classes.is_empty())?;
        let mut candidates = Vec::new();
        if column.cells(row).is_some() {
            self.built_in_order((row, node, column), &mut candidates);
        }
        Some(candidates)
    }

    fn homes_and_guests(
        &self,
        (row, node, column): (RowId, NodeId, &Column),
        candidates: &mut Vec<Candidate>,
    ) {
        let mut guests = Vec::new();
        for &(_, job) in &column.residents {
            let Some(seat) = self.matrix.seat(job) else { continue };
            let is_home = seat.row == row && seat.active;
            if !is_home && !seat.guest_in.contains(&row) {
                continue;
            }
            let Some(set) = seat.used_on(node) else { continue };
            if is_home {
                let class = self.classes.get(&seat.class);
                let empty = class.map_or(IfAbsent::Down, |class| class.empty());
                candidates.push(self.candidate((job, node), set, empty));
            } else {
                guests.push(self.candidate((job, node), set, IfAbsent::Down));
            }
        }
        candidates.append(&mut guests);
    }

    fn substitutes(
        &self,
        (row, node, column): (RowId, NodeId, &Column),
        candidates: &mut Vec<Candidate>,
    ) {
        // What a guest lends is idle in the turns of its own row, and in no others.
        let mut kept = ProcessorSet::new();
        let mut found: Vec<(bool, RowId, JobId)> = Vec::new();
        for &(_, job) in &column.residents {
            let Some(seat) = self.matrix.seat(job) else { continue };
            // Of one that lends, all that it has would have to be idle, as for a guest.
            let elsewhere =
                seat.row != row && !seat.guest_in.contains(&row) && seat.lent.is_empty();
            if seat.active && seat.parts.len() == 1 && elsewhere {
                found.push((seat.row < row, seat.row, job));
            }
            if seat.guest_in.contains(&row)
                && let Some(lent) = seat.lent_on(node)
            {
                kept.union_with(lent);
            }
        }
        found.sort_unstable();
        for (_, _, job) in found.into_iter().take(SUBSTITUTES_PER_SLOT_MAX) {
            let listed = |other: JobId| candidates.iter().any(|it| it.launch.job == other);
            if self.matrix.kept_apart(job).any(listed) {
                // It would run beside one with which it has a device in turns.
                continue;
            }
            let set = self.matrix.seat(job).and_then(|seat| seat.used_on(node));
            if let Some(set) = set.filter(|set| !set.overlaps(&kept)) {
                candidates.push(self.candidate((job, node), set, IfAbsent::Down));
            }
        }
    }

    fn candidate(
        &self,
        (job, node): (JobId, NodeId),
        processors: ProcessorSet,
        if_absent: IfAbsent,
    ) -> Candidate {
        Candidate { launch: self.launch_on(job, node), processors, if_absent }
    }

    /// A node's timetable as it was last sent; `None` for a node that is not up.
    #[must_use]
    pub fn timetable(&self, node: NodeId) -> Option<Timetable> {
        self.timetable_by(node, &self.node_plan(node))
    }

    /// The same, given the plan of the node.
    pub(crate) fn timetable_by(&self, node: NodeId, plan: &NodePlan) -> Option<Timetable> {
        self.matrix.column(node)?;
        let own = self.sent.get(node.0 as usize).copied().unwrap_or_default();
        let sent = if own.version > self.sent_all.version { own } else { self.sent_all };
        Some(self.timetable_from(plan, sent))
    }

    /// Sends what changed: timetables, then launches, then the jobs that leave and come.
    pub(crate) fn publish(&mut self, now: ClusterTime, actions: &mut Vec<Action>) {
        let reframed = self.reframe(now) | core::mem::take(&mut self.outbox.reframed);
        let all_nodes = core::mem::take(&mut self.outbox.all_nodes);
        // Lists are put back when they are done with: what they took of memory is used again.
        let mut changes = core::mem::take(&mut self.outbox.changes);
        let mut nodes = core::mem::take(&mut self.outbox.nodes);
        self.matrix.settle(&mut changes);
        if self.tells_nodes {
            nodes.extend_from_slice(&changes.nodes);
            // It finds the runs in it.
            nodes.sort();
            nodes.dedup();
            self.tell(now, all_nodes || reframed, &nodes, actions);
        }
        nodes.clear();
        self.outbox.nodes = nodes;
        let mut runs = Vec::with_capacity(changes.jobs.len());
        self.runs_of(&changes.jobs, &mut runs);
        // Where a job is absent, others may run in its place; what a class says of its empty time
        // may also decide which, and so may a policy's part on the node.
        let arranged = &self.outside.arranged;
        if all_nodes {
            self.outbox.quieter.extend(self.absent.iter().map(|&(node, _)| node));
            self.outbox.quieter.extend(arranged.keys());
        } else if !(self.absent.is_empty() && arranged.is_empty()) {
            let is_otherwise = |node| self.anybody_absent(node) || arranged.contains_key(&node);
            let nodes = changes.nodes.iter().copied().filter(|&node| is_otherwise(node));
            let nodes: Vec<NodeId> = nodes.collect();
            self.outbox.quieter.extend(nodes);
        }
        changes.nodes.clear();
        changes.jobs.clear();
        self.outbox.changes = changes;
        while let Some(node) = self.outbox.quieter.pop_first() {
            self.runs_on(node, &mut runs);
        }
        let rows = || self.matrix.rows().map(|(row, _)| row).collect();
        let frame = (reframed).then(|| (self.frame.clone(), rows()));
        self.ledger.stage(Stage { at: self.activated, frame, runs });
        let mut launches = core::mem::take(&mut self.outbox.launches);
        for job in launches.drain(..) {
            self.launch(job, actions);
        }
        self.outbox.launches = launches;
        self.launch_again(actions);
        let mut moves = core::mem::take(&mut self.outbox.moves);
        for job in moves.drain(..) {
            self.ask_to_move(job, actions);
        }
        self.outbox.moves = moves;
        self.send_swaps(actions);
        self.start_claimed(now, actions);
        self.note_seated();
    }

    /// Says which nodes get new timetables.
    fn tell(
        &mut self,
        now: ClusterTime,
        all_nodes: bool,
        nodes: &[NodeId],
        actions: &mut Vec<Action>,
    ) {
        let nodes = || nodes.iter().copied().filter(|&node| self.matrix.column(node).is_some());
        let anybody = if all_nodes {
            self.matrix.columns().next().is_some()
        } else {
            nodes().next().is_some()
        };
        if !anybody {
            return;
        }
        let version = self.versions + 1;
        let sent = Sent { version, activates: self.activation(now) };
        if all_nodes {
            self.sent_all = sent;
            actions.push(Action::Timetables { version });
        } else {
            for node in nodes() {
                let index = node.0 as usize;
                if self.sent.len() <= index {
                    self.sent.resize(index + 1, Sent::default());
                }
                self.sent[index] = sent;
                actions.push(Action::Timetable { node, version });
            }
        }
        self.versions = version;
    }

    /// When what is sent now takes effect: never before what was sent earlier, so that there is
    /// one frame at any moment.
    pub(crate) fn activation(&self, now: ClusterTime) -> ClusterTime {
        (now + self.lead()).max(self.activated)
    }

    /// Makes a new frame if rows or their lengths are others than before.
    pub(crate) fn reframe(&mut self, now: ClusterTime) -> bool {
        let at = self.activation(now);
        self.activated = at;
        let reshaped = self.matrix.take_reshaped()
            | core::mem::take(&mut self.outbox.reshaped)
            | self.note_absent();
        // A row may be of another level though nothing else of it is different.
        if !reshaped && !self.policy().has_levels {
            return false;
        }
        let layout = self.layout();
        if self.frame.has(&layout) {
            return false;
        }
        self.frame = self.frame.followed_by(&layout, at);
        true
    }

    /// What slots all rows shall have.
    fn layout(&mut self) -> Layout {
        let live = || self.matrix.rows().filter(|(_, row)| !row.classes.is_empty());
        // The users of the only row share nothing with others.
        let several = live().nth(1).is_some();
        let mut present = Present::new();
        for (id, row) in live() {
            let mut names: BTreeMap<ClassName, Users> =
                row.classes.keys().map(|name| (name.clone(), Users::new())).collect();
            for (name, owner) in row.owners.keys().filter(|_| several) {
                let weight = self.weight(*owner);
                let users = names.entry(name.clone()).or_default();
                let before = users.entry(owner.user).or_default();
                *before = weight.max(*before);
            }
            present.insert(id, names);
        }
        let standing_in = match several {
            true => self.add_absent(&mut present),
            false => BTreeMap::new(),
        };
        self.hold_slots(&mut present);
        let mut layout =
            (self.policy().shares.layout)(&present, &self.classes, self.params.quantum());
        memory_turns::give_to(&standing_in, &mut layout);
        if self.policy().has_levels {
            return self.in_strobes(layout);
        }
        if let Layout::Turns(turns) = &mut layout {
            for (row, turns) in turns {
                let mut names = present.get(row).into_iter().flat_map(BTreeMap::keys);
                turns.soon =
                    names.any(|name| self.classes.get(name).is_some_and(|it| it.rows() > 0));
            }
        }
        layout
    }

    /// How much a user weighs against others of the same class; at least one.
    pub(crate) fn weight(&self, owner: Owner) -> u32 {
        self.weight_of(owner.user.0, owner.group.0).max(1)
    }

    /// Gives every class that holds its empty time a slot of its own while it has nothing to run.
    fn hold_slots(&mut self, present: &mut Present) {
        let busy: BTreeSet<_> = present.values().flat_map(BTreeMap::keys).cloned().collect();
        let mut held = BTreeMap::new();
        for (name, class) in &self.classes {
            let holds = class.empty() == IfAbsent::Hold && class.share() > 0;
            if holds && !busy.contains(name) && !present.is_empty() {
                let known = self.held.get(name).copied();
                let row = known.unwrap_or_else(|| self.matrix.make_row_id());
                held.insert(name.clone(), row);
            }
        }
        for (name, &row) in &held {
            present.insert(row, [(name.clone(), Users::new())].into());
        }
        self.held = held;
    }

    fn timetable_from(&self, plan: &NodePlan, sent: Sent) -> Timetable {
        let slot = |slot: &crate::frame::FrameSlot| {
            let candidates = plan.get(&slot.row).cloned().unwrap_or_default();
            let chosen = candidates.iter().rev();
            let chosen = chosen.take_while(|it| self.is_nodes_choice(it.launch.job, slot.row));
            let local = u32::try_from(chosen.count()).unwrap_or(u32::MAX);
            Slot { row: slot.row, length: slot.length, candidates, local }
        };
        let local = |slot: &Slot| slot.local > 0;
        let slots: Vec<Slot> = self.frame.slots.iter().map(slot).collect();
        let classes = if slots.iter().any(local) { self.class_parts(&slots) } else { Vec::new() };
        Timetable {
            version: sent.version,
            activates: sent.activates,
            epoch: self.frame.epoch,
            slots,
            classes,
        }
    }

    /// Whether a node chooses by itself if a job there runs in a row's slot.
    pub(crate) fn is_nodes_choice(&self, job: JobId, row: RowId) -> bool {
        let is_substitute = |seat: &Seat| seat.row != row && !seat.guest_in.contains(&row);
        self.policy().has_levels && self.matrix.seat(job).is_some_and(is_substitute)
    }

    /// The classes of the jobs of a timetable, with what they have of the time beside each other.
    fn class_parts(&self, slots: &[Slot]) -> Vec<ClassPart> {
        let mut jobs: BTreeMap<Option<ClassName>, Vec<JobId>> = BTreeMap::new();
        let named = slots.iter().flat_map(|slot| &slot.candidates).map(|it| it.launch.job);
        let named: BTreeSet<JobId> = named.collect();
        for job in named.into_iter().take(CLASS_JOBS_MAX) {
            let Some(seat) = self.matrix.seat(job) else { continue };
            let idle = (seat.class == share::idle_only()).then(share::idle_only);
            let of = idle.or_else(|| share::sharers(&self.classes, &seat.class));
            jobs.entry(of).or_default().push(job);
        }
        let part = |class: &Option<ClassName>| match class {
            None => u32::try_from(share::rest(&self.classes)).unwrap_or(u32::MAX),
            Some(class) => self.classes.get(class).map_or(0, |class| class.share()),
        };
        jobs.into_iter()
            .map(|(class, jobs)| ClassPart { part: part(&class), class, jobs })
            .collect()
    }

    /// In which rows' slots the jobs that run only on this node run, as far as the core knows which
    /// is present.
    fn runs_on(&self, node: NodeId, runs: &mut Vec<(JobId, Runs)>) {
        let Some(column) = self.matrix.column(node) else { return };
        let mut here: BTreeMap<JobId, Runs> = BTreeMap::new();
        for &(_, job) in &column.residents {
            if let Some(seat) = self.matrix.seat(job).filter(|seat| seat.parts.len() == 1) {
                here.insert(job, Runs { home: seat.row, ..Runs::default() });
            }
        }
        let mut running = Vec::new();
        for (row, candidates) in self.node_plan(node) {
            running.clear();
            let length = tutti_types::time::Nanos::ZERO;
            let slot = Slot { row, length, candidates, local: 0 };
            let timetable = Timetable { slots: [slot].into(), ..Timetable::default() };
            timetable.running(0, |launch| self.present_on(launch.job, node), &mut running);
            for launch in &running {
                if let Some(runs) = here.get_mut(&launch.job)
                    && !self.is_nodes_choice(launch.job, row)
                {
                    runs.rows.push(row);
                }
            }
        }
        runs.extend(here);
    }

    /// Jobs run in the slots of their homes and where they are guests, while all are present.
    fn runs_of(&self, jobs: &[JobId], runs: &mut Vec<(JobId, Runs)>) {
        for &job in jobs {
            let Some(seat) = self.matrix.seat(job) else {
                // Nothing is said of a job that has ended.
                if self.ledger.has(job) {
                    runs.push((job, Runs::default()));
                }
                continue;
            };
            let own = seat.active.then_some(seat.row);
            let mut rows: Rows = own.into_iter().chain(seat.guest_in.iter().copied()).collect();
            rows.sort();
            runs.push((job, Runs { home: seat.row, rows }));
        }
    }

    fn anybody_absent(&self, node: NodeId) -> bool {
        self.absent.range((node, JobId(0))..=(node, JobId(u64::MAX))).next().is_some()
    }

    fn present_on(&self, job: JobId, node: NodeId) -> bool {
        self.jobs.get(&job).is_some_and(|record| match &record.phase {
            Phase::Queued { .. } => false,
            Phase::Resident(residence) => residence.present_on(node),
        })
    }

    fn launch(&self, job: JobId, actions: &mut Vec<Action>) {
        if let Some(control) = self.control_of(job) {
            actions.push(Action::Launch { job, control });
        }
    }

    /// How a job's processes are suspended and resumed, if there is such a job.
    #[must_use]
    pub fn control_of(&self, job: JobId) -> Option<ControlMethod> {
        let class = self.classes.get(&self.jobs.get(&job)?.spec.class);
        Some(class.map(|class| class.control()).unwrap_or_default())
    }

    /// Whether a job has System V IPC and POSIX message queues of its own.
    #[must_use]
    pub fn own_ipc(&self, job: JobId) -> bool {
        let class = self.jobs.get(&job).and_then(|job| self.classes.get(&job.spec.class));
        class.is_none_or(|class| class.own_ipc())
    }
}
