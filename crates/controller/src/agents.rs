//! The controller's side of its agents.

use super::driver::{Connection, Driver, Kind};
use super::exchange::{Sending, send_parts};
use super::leases::Missed;
use serde_bytes::ByteBuf;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use tracing::{info, warn};
use tutti_core::{Event, JobState, JobView, PlacementView};
use tutti_node::link::Link;
use tutti_secure::Fingerprint;
use tutti_types::limits::FEATURES_MAX;
use tutti_types::{
    ClusterTime, Device, EndReason, FeatureName, JobId, LaunchId, Nanos, NodeId, NodeSpec,
    OnNodeLoss, ProcessorSet, Rank, StepId, StepKey, TaskStatus, Timetable,
};
use tutti_wire::branch::{
    ClockReply, FromBranch, Joining, Order, Origin, Recipients, Report, ToBranch, batches,
    split_shares,
};
use tutti_wire::code::Code;
use tutti_wire::constraint::is_feature_name;
use tutti_wire::keeper::ToKeeper;
use tutti_wire::launch::{Launch, Share, Usage, cut};
use tutti_wire::limits::{ITEM_BYTES_MAX, TASK_DETAIL_BYTES_MAX};
use tutti_wire::report::{NodeSwap, SwapMeans};
use tutti_wire::tree::{FromAgent, Join, Settings, ToAgent};
use tutti_wire::{Role, TooLong};

/// How often nodes say how busy they are, where that matters: as often as the kernel counts.
const LOAD_INTERVAL: Nanos = Nanos::from_secs(5);

/// What was launched on the node, and what is known of it.
pub(super) struct Launches {
    /// What was launched there and has not been forgotten.
    pub(super) launched: BTreeSet<LaunchId>,
    /// Launches of which nothing was heard yet: an agent that ended may not have read them.
    pub(super) unconfirmed: BTreeMap<LaunchId, Unconfirmed>,
    /// Those by an earlier controller, since its keeper was known, of which it may never have
    /// heard.
    pub(super) remembered: BTreeSet<LaunchId>,
}

/// How the node went, and what it still has from before.
pub(super) struct Absence {
    /// Whether it is to be forgotten as soon as nothing of ours runs there.
    pub(super) is_removed: bool,
    /// How it went when it was last up.
    pub(super) gone: Gone,
    /// When it counts as lost, while its agent is not there.
    pub(super) missed: Option<Missed>,
    /// What it has, and launches of jobs that are in line again, or run elsewhere, of which it
    /// still ends what is left from before it was lost: until then it has not joined.
    pub(super) residue: Option<(NodeSpec, BTreeSet<LaunchId>)>,
}

/// A node, as far as the core need not know it.
pub(super) struct NodeEntry {
    /// Its host name.
    pub(super) name: String,
    /// The connection of the branch that its agent is in.
    pub(super) agent: Option<u64>,
    /// Whether it is the controller's machine.
    pub(super) is_here: bool,
    /// Where in the control tree its agent is, and how well it knows the time.
    pub(super) place: Joining,
    /// Where front ends on it reach its keeper.
    pub(super) attach: ByteBuf,
    /// Where other nodes reach it.
    pub(super) address: String,
    /// How many tasks its keeper can hold.
    pub(super) tasks_max: u32,
    /// The latest timetable, for an agent that comes back.
    pub(super) timetable: Option<Timetable>,
    /// What was launched on the node, and what is known of it.
    pub(super) launches: Launches,
    /// What tells its keeper from an earlier one.
    pub(super) keeper: Option<u64>,
    /// When a controller first heard of that keeper.
    pub(super) keeper_since: ClusterTime,
    /// When its agent first joined, if it joined under another controller: at the beginning.
    pub(super) joined: ClusterTime,
    /// When its agent last joined this controller: for the first time, or at another place in the
    /// tree.
    pub(super) rejoined: ClusterTime,
    /// Which change to shorter leases its agent has confirmed; zero: none.
    pub(super) confirmed: ClusterTime,
    /// How the node went, and what it still has from before.
    pub(super) absence: Absence,
}

/// How a node went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Gone {
    /// It was out of reach for too long, or was started anew.
    Lost,
    /// It was taken down.
    Down,
    /// It was taken out of the cluster.
    Removed,
}

impl Gone {
    /// What happened to the node, after its name.
    pub(super) const fn past(self) -> &'static str {
        match self {
            Self::Lost => "was lost",
            Self::Down => "was taken down",
            Self::Removed => "was removed",
        }
    }
}

/// A launch of which nothing was heard yet.
pub(super) struct Unconfirmed {
    launch: Launch,
    /// Whether there was an agent that may have read it.
    was_sent: bool,
}

/// An agent's connection, and through it that of all below it in the tree.
#[derive(Default)]
pub(super) struct Branch {
    /// The name of its own node.
    head: String,
    /// What is to be sent.
    orders: Vec<Order>,
    /// What is to be sent of what MPI programs exchange.
    pub(super) sending: VecDeque<Sending>,
    /// Nodes that were removed, to be said after it.
    pub(super) removed: Vec<NodeId>,
}

impl NodeEntry {
    /// A node of which nothing else is known yet.
    pub(super) fn named(name: String) -> Self {
        Self {
            name,
            agent: None,
            is_here: false,
            place: Joining::default(),
            attach: ByteBuf::new(),
            address: String::new(),
            tasks_max: u32::MAX,
            keeper: None,
            keeper_since: ClusterTime::default(),
            timetable: None,
            launches: Launches {
                launched: BTreeSet::new(),
                unconfirmed: BTreeMap::new(),
                remembered: BTreeSet::new(),
            },
            joined: ClusterTime::default(),
            rejoined: ClusterTime::default(),
            confirmed: ClusterTime::default(),
            absence: Absence { is_removed: false, gone: Gone::Lost, missed: None, residue: None },
        }
    }

    /// Nothing more is to be known of the job there; gives which launch of it was there, if any
    /// was.
    pub(super) fn forget(&mut self, job: JobId) -> Option<LaunchId> {
        let mut launches = self.launches.launched.iter();
        let launch = launches.find(|launch| launch.job == job && !launch.is_further()).copied()?;
        self.launches.unconfirmed.remove(&launch);
        self.launches.remembered.remove(&launch);
        self.launches.launched.remove(&launch);
        Some(launch)
    }

    /// Its keeper is this one; gives whether it was before.
    fn note_keeper_incarnation(&mut self, incarnation: u64, now: ClusterTime) -> bool {
        let is_same = self.keeper.replace(incarnation) == Some(incarnation);
        if !is_same {
            self.keeper_since = now;
        }
        is_same
    }
}

/// The ranks of a placement: they are always consecutive.
pub(super) fn ranks_of(placed: &PlacementView) -> impl Iterator<Item = Rank> + use<> {
    let first = placed.first_rank.0;
    (first..first.saturating_add(placed.tasks)).map(Rank)
}

impl Driver {
    pub(super) fn node_name(&self, node: NodeId) -> String {
        let known = self.cluster.nodes.get(&node).map(|entry| entry.name.as_str());
        // After a restart of the controller its nodes have not all joined again.
        let known = known.or_else(|| self.core.node_spec(node).map(|spec| spec.name.as_str()));
        let known = known.or_else(|| self.cluster.clients.get(node).map(|client| &*client.name));
        let name = known.or_else(|| self.cluster.removals.name_of(node));
        name.map_or_else(|| format!("node-{node}"), str::to_owned)
    }

    /// What happened to a node on which a job has lost tasks: `node n3 was removed`. One that is up
    /// has another keeper, or was started anew.
    pub(super) fn how_it_went(&self, node: NodeId) -> String {
        if self.core.timetable(node).is_some() {
            return format!("node {} lost its tasks", self.node_name(node));
        }
        let gone = self.cluster.nodes.get(&node).map(|entry| entry.absence.gone);
        let gone = gone.unwrap_or(match self.cluster.removals.name_of(node) {
            Some(_) => Gone::Removed,
            None => Gone::Lost,
        });
        format!("node {} {}", self.node_name(node), gone.past())
    }

    pub(super) fn tell_node(&mut self, node: NodeId, message: ToAgent) {
        self.tell_nodes(vec![node], message);
    }

    /// Tells nodes the same; over each branch of the tree it goes once.
    pub(super) fn tell_nodes(&mut self, mut nodes: Vec<NodeId>, message: ToAgent) {
        nodes.sort_unstable();
        if let ToAgent::Launch { launch, shares } = &message {
            for (node, share) in shares {
                let Some(entry) = self.cluster.nodes.get_mut(node) else { continue };
                entry.launches.launched.insert(launch.id());
                let launch = Launch { share: share.clone(), ..launch.clone() };
                let was_sent = entry.agent.is_some();
                entry.launches.unconfirmed.insert(launch.id(), Unconfirmed { launch, was_sent });
            }
        }
        for (branch, nodes) in self.by_branch(&nodes) {
            self.send_order(branch, Recipients::Nodes(nodes), message.clone());
        }
    }

    /// Starts a job on nodes, in as many orders as its shares need. A job that no order holds ends;
    /// gives whether it goes on.
    pub(super) fn launch_on_nodes(&mut self, launch: Launch, shares: Vec<(NodeId, Share)>) -> bool {
        let job = launch.job;
        match split_shares(&launch, shares) {
            Ok(parts) => {
                for (launch, shares) in std::iter::repeat_n(launch, parts.len()).zip(parts) {
                    let nodes = shares.iter().map(|(node, _)| *node).collect();
                    self.tell_nodes(nodes, ToAgent::Launch { launch, shares });
                }
                true
            }
            Err(TooLong { .. }) if launch.step != StepId::FIRST => false,
            Err(TooLong { bytes }) => {
                let detail = format!(
                    "its launch on a node takes {bytes} bytes, and at most {ITEM_BYTES_MAX} are possible; use fewer \
                     nodes or a smaller environment"
                );
                warn!(code = %Code::TooMuchAsked, "job {job} is ended: {detail}");
                if let Some(entry) = self.jobs.get_mut(&job) {
                    entry.run.note_detail(Rank(0), Code::TooMuchAsked.mark(&detail));
                }
                let (reason, at_once) = (EndReason::TaskFailed, true);
                self.decision.follow_ups.push_back(Event::Cancel { job, reason, at_once });
                false
            }
        }
    }

    /// Those of these nodes that are in reach, by the connection of their branch.
    pub(super) fn by_branch(&self, nodes: &[NodeId]) -> BTreeMap<u64, Vec<NodeId>> {
        let mut branches: BTreeMap<u64, Vec<NodeId>> = BTreeMap::new();
        for &node in nodes {
            if let Some(branch) = self.cluster.nodes.get(&node).and_then(|entry| entry.agent) {
                branches.entry(branch).or_default().push(node);
            }
        }
        branches
    }

    fn send_order(&mut self, branch: u64, to: Recipients, order: ToAgent) {
        if let Some(Connection { kind: Kind::Branch(branch), .. }) =
            self.intake.connections.get_mut(&branch)
        {
            branch.orders.push(Order { to, order });
        }
    }

    /// Sends what has gathered for each branch.
    pub(super) fn send_orders(&mut self) {
        for connection in self.intake.connections.values_mut() {
            if let Kind::Branch(branch) = &mut connection.kind {
                for batch in batches(std::mem::take(&mut branch.orders)) {
                    connection.link.send(&ToBranch::Orders(batch));
                }
                for node in std::mem::take(&mut branch.removed) {
                    connection.link.send(&ToBranch::Removed { node });
                }
                send_parts(&mut branch.sending, &mut connection.link);
            }
        }
    }

    pub(super) fn agent_settings(&self) -> Settings {
        let params = self.core.params();
        Settings {
            freeze_deadline: params.freeze_deadline(),
            retry_interval: params.retry_interval(),
            traversal: params.traversal(),
            load_interval: match params.placement().goes_by_load() {
                true => LOAD_INTERVAL,
                false => Nanos::ZERO,
            },
            usage_interval: params.usage_interval(),
            foreign_milli: params.foreign_milli(),
            held_count: !self.core.avoids_external_load(),
            orphans: params.orphans(),
            clock: params.clock(),
            fan_out: u32::try_from(params.fan_out()).unwrap_or(u32::MAX),
            lease: params.lease(),
            lease_since: self.core.leases_shortened(),
            released: self.memory.released,
        }
    }

    pub(super) fn on_branch(&mut self, token: u64, message: FromBranch) {
        match message {
            FromBranch::Here { name, .. } => {
                if let Some(Connection { kind: Kind::Branch(branch), .. }) =
                    self.intake.connections.get_mut(&token)
                {
                    branch.head = name;
                }
            }
            FromBranch::Reports(reports) => {
                for Report { from, report } in reports {
                    self.on_report(token, from, report);
                }
            }
            FromBranch::Exchange(passed) => self.on_exchange(token, passed),
            FromBranch::Gone(nodes) => {
                for node in nodes {
                    self.cluster.clients.lose(token, |client| client == node);
                    self.on_agent_gone(token, node);
                }
            }
            FromBranch::Client(client) => self.on_client_machine(token, client),
            FromBranch::Clock { asked_ns } => {
                let now = self.now();
                let reply = ClockReply {
                    asked_ns,
                    came: now,
                    went: now,
                    error: Nanos::ZERO,
                    era: 0,
                    // Only the agent of this machine asks, if any, and it vouches for others
                    // itself.
                    lease: ClusterTime(0),
                    system: None,
                };
                if let Some(connection) = self.intake.connections.get_mut(&token) {
                    connection.link.send(&ToBranch::Clock(reply));
                }
            }
            FromBranch::Times(times) => {
                for (node, error) in times {
                    if let Some(entry) = self.cluster.nodes.get_mut(&node) {
                        entry.place.time_error = error;
                    }
                }
            }
            // Streams to the controller end at the agent of its machine, and that signs
            // certificates and measures no connection to it.
            FromBranch::Tunnel(_) | FromBranch::Renew { .. } | FromBranch::Probe { .. } => {}
        }
    }

    fn on_report(&mut self, token: u64, from: Origin, report: FromAgent) {
        let (nodes, report) = match (from, report) {
            (Origin::Joiner(place), FromAgent::Join(join)) => {
                return self.on_join(token, join, place);
            }
            (Origin::Nodes(nodes), report) => (nodes, report),
            (Origin::Joiner(_), _) => {
                return warn!(code = %Code::NotUnderstood, "an agent spoke out of turn; ignored");
            }
        };
        for node in nodes {
            // One that has just gone may have reported something before.
            if self.cluster.nodes.get(&node).is_some_and(|entry| entry.agent == Some(token)) {
                self.on_node_report(node, report.clone());
            }
        }
    }

    /// The first of all nodes is shown.
    fn note_not_vacated(&mut self, job: JobId, what: String) {
        if let Some(entry) = self.jobs.get_mut(&job).filter(|entry| entry.not_vacated.is_empty()) {
            entry.not_vacated = cut(what, TASK_DETAIL_BYTES_MAX);
        }
    }

    fn on_node_report(&mut self, node: NodeId, report: FromAgent) {
        match report {
            FromAgent::Cleared { launch, .. } if self.is_residue(node, launch) => {
                self.on_residue_cleared(node, launch);
            }
            // What an earlier launch of a job did is over, and was reckoned with; also one of the
            // same number that was forgotten with a loss of power.
            FromAgent::TaskStarted { launch, .. }
            | FromAgent::TaskEnded { launch, .. }
            | FromAgent::OutputLost { launch, .. }
            | FromAgent::NotVacated { launch, .. }
            | FromAgent::Swapped { launch, .. }
            | FromAgent::GoesOn { launch, .. }
            | FromAgent::Cleared { launch, .. }
                if !self.is_latest(node, launch) || !self.is_launched(node, launch) => {}
            FromAgent::TaskStarted { launch, .. }
            | FromAgent::TaskEnded { launch, .. }
            | FromAgent::Cleared { launch, .. }
            | FromAgent::OutputLost { launch, .. }
                if launch.is_further() =>
            {
                self.confirm(node, launch);
                self.on_step_report(node, report);
            }
            FromAgent::TaskStarted { launch, .. } => {
                self.confirm(node, launch);
                self.note_begun(launch.job);
            }
            FromAgent::TaskEnded { launch, rank, status, detail, usage } => {
                self.confirm(node, launch);
                self.on_task_ended((launch.job, rank), status, detail, &usage);
            }
            FromAgent::Cleared { launch, usage } => {
                self.confirm(node, launch);
                let job = launch.job;
                if let Some(entry) = self.jobs.get_mut(&job)
                    && entry.run.clear(node)
                {
                    entry.usage.add(&usage);
                }
                self.apply(&Event::JobCleared { job, nodes: [node].into() });
            }
            FromAgent::OutputLost { launch, what } => {
                if let Some(entry) = self.jobs.get_mut(&launch.job) {
                    entry.output_lost = cut(what, TASK_DETAIL_BYTES_MAX);
                }
            }
            FromAgent::Piece { peer, piece } => self.pass_piece(node, peer, piece),
            FromAgent::GoesOn { .. } | FromAgent::HasImage { .. } => self.on_saver(node, report),
            FromAgent::NotVacated { launch, what } => self.note_not_vacated(launch.job, what),
            FromAgent::Leaving => self.on_leaving(node),
            FromAgent::Load(averages) => self.apply(&Event::NodeLoad { node, averages }),
            FromAgent::Used(used) => self.on_used(node, used),
            FromAgent::Foreign(processors) => self.on_foreign(node, processors),
            FromAgent::Swapped { .. } => self.on_swapped(node, &report),
            FromAgent::Memory(bytes) => self.on_memory(node, bytes),
            FromAgent::Measured(figures) => self.on_node_measured(node, figures),
            FromAgent::NetworkMeasured(figures) => self.on_network_measured(node, figures),
            FromAgent::Policy(report) => self.on_policy_report(node, report),
            FromAgent::Answer { query, answer } => self.on_answer(query, node, answer),
            FromAgent::Keeper(incarnation) => self.on_other_keeper(node, incarnation),
            FromAgent::Lease(since) => {
                let is_latest = since == self.core.leases_shortened();
                if let Some(entry) = self.cluster.nodes.get_mut(&node).filter(|_| is_latest) {
                    entry.confirmed = since;
                }
            }
            FromAgent::Join(_) => {
                info!("node {} joined twice; ignored", self.node_name(node));
            }
        }
    }

    /// A node has another keeper than before.
    fn on_other_keeper(&mut self, node: NodeId, incarnation: u64) {
        let now = self.now();
        if let Some(entry) = self.cluster.nodes.get_mut(&node) {
            entry.note_keeper_incarnation(incarnation, now);
        }
        self.note_keeper(node);
    }

    /// An agent may have missed orders about memory, or not have carried them out.
    fn repeat_swaps(&mut self, node: NodeId) {
        let orders: Vec<_> = self.core.swap_orders(node).collect();
        orders.into_iter().for_each(|order| self.carry_out(order));
    }

    /// A node has moved memory of a job.
    fn on_swapped(&mut self, node: NodeId, report: &FromAgent) {
        let FromAgent::Swapped { launch, order, resident_bytes, left_bytes, took, space_bytes } =
            *report
        else {
            return;
        };
        let job = launch.job;
        self.apply(&Event::Swapped {
            job,
            node,
            order,
            resident_bytes,
            left_bytes,
            took,
            space_bytes,
        });
        self.note_state(job);
    }

    /// A node has another amount of memory for jobs, since released jobs have ended there or grown.
    fn on_memory(&mut self, node: NodeId, memory_bytes: u64) {
        let view = self.core.nodes().find(|view| view.id == node && view.up && !view.away);
        let Some(spec) = view.map(|view| view.spec.clone()) else { return };
        if spec.memory_bytes != memory_bytes {
            self.apply(&Event::NodeJoined { node, spec: NodeSpec { memory_bytes, ..spec } });
        }
    }

    /// How much a node that joins can swap out, if it could more or less before.
    fn note_swap(&mut self, node: NodeId, swap: NodeSwap) {
        let space_bytes = match swap.by {
            SwapMeans::None => 0,
            _ => swap.free_bytes.saturating_sub(swap.total_bytes / 16),
        };
        // What it has said after each order is about as good, unless others use the space.
        let differs = |it: u64| {
            (it == 0) != (space_bytes == 0) || it.abs_diff(space_bytes) > swap.total_bytes / 16
        };
        if self.core.swap_space(node).is_none_or(differs) {
            self.apply(&Event::NodeSwap { node, space_bytes });
        }
    }

    /// An agent that joins again says once more what is known, and that is not worth an entry of
    /// the journal.
    fn on_foreign(&mut self, node: NodeId, processors: ProcessorSet) {
        let known = self.core.foreign_on(node).cloned().unwrap_or_default();
        if known != processors {
            self.apply(&Event::Foreign { node, processors });
        }
    }

    /// Whether it is the latest launch on a node of a job that has not ended.
    pub(super) fn is_latest(&self, node: NodeId, launch: LaunchId) -> bool {
        let latest = self.core.launch_on(launch.job, node);
        self.jobs.contains_key(&launch.job) && latest.number == launch.number
    }

    /// Whether it was launched on this node, as far as is known here.
    pub(super) fn is_launched(&self, node: NodeId, launch: LaunchId) -> bool {
        self.cluster.nodes.get(&node).is_some_and(|entry| entry.launches.launched.contains(&launch))
    }

    fn confirm(&mut self, node: NodeId, launch: LaunchId) {
        if let Some(entry) = self.cluster.nodes.get_mut(&node) {
            entry.launches.unconfirmed.remove(&launch);
            entry.launches.remembered.remove(&launch);
        }
    }

    /// What a node that joins holds has come to it: if its keeper has ended with it since, the next
    /// agent holds nothing, and must not be given it anew. Of what was forgotten with the power, no
    /// number is given again while the keeper still ends it.
    fn take_held(&mut self, node: NodeId, held: &[LaunchId]) {
        for &launch in held {
            self.confirm(node, launch);
        }
        self.keep_ended(node, held);
        if let Some(launch) = held.iter().max()
            && launch.job.0 > self.core.jobs_made()
        {
            self.apply(&Event::Held { job: launch.job });
        }
    }

    /// What a node has, if that is new.
    fn note_found(
        &mut self,
        node: NodeId,
        (features, devices, swap, images): (
            BTreeSet<FeatureName>,
            Vec<Device>,
            NodeSwap,
            Option<u64>,
        ),
    ) {
        self.note_devices(node, devices);
        self.note_swap(node, swap);
        if self.core.image_place(node) != images {
            self.apply(&Event::ImagePlace { node, place: images });
        }
        let good = features.into_iter().filter(|feature| is_feature_name(&feature.0));
        let features: BTreeSet<_> = good.take(FEATURES_MAX).collect();
        if !self.core.node_features(node).eq(&features) {
            self.apply(&Event::NodeFeatures { node, features });
        }
    }

    fn on_join(&mut self, token: u64, join: Join, place: Joining) {
        let name = join.spec.name.clone();
        let (attempt, life) = (place.attempt, place.life);
        let joiner = Recipients::Joiner { name: name.clone(), attempt, life };
        let known = self.cluster.nodes.iter().find(|(_, node)| node.name == name);
        let known = known.map(|(&node, entry)| (node, entry.agent, entry.place.life));
        let is_here = matches!(
            self.intake.connections.get(&token),
            Some(Connection { kind: Kind::Branch(branch), .. }) if branch.head == name
        );
        let refusal = match known {
            Some((_, Some(_), life)) if life != place.life => {
                Some(format!("a node named {name} has joined already"))
            }
            _ if is_here => None,
            _ => self.may_not_join(&name, place.key, known.map(|(node, ..)| node)),
        };
        if let Some(reason) = refusal {
            return self.send_order(token, joiner, ToAgent::Refused { reason });
        }
        let node = match known {
            Some((node, agent, _)) => {
                // It has another place in the tree; what it was told at the former one may be lost.
                if let Some(former) = agent {
                    self.on_agent_gone(former, node);
                }
                node
            }
            None => {
                self.cluster.next_node = self.cluster.next_node.saturating_add(1);
                NodeId(self.cluster.next_node - 1)
            }
        };
        let now = self.now();
        let entry = self.cluster.nodes.entry(node).or_insert_with(|| NodeEntry::named(name));
        let same_keeper = entry.note_keeper_incarnation(join.keeper, now);
        entry.agent = Some(token);
        entry.is_here = is_here;
        entry.rejoined = now;
        // One that has joined under an earlier controller may be the same that it was then.
        if known.is_none_or(|(.., life)| life != place.life && life != 0) {
            entry.joined = now;
        }
        entry.place = place;
        entry.attach.clone_from(&join.attach);
        entry.address.clone_from(&join.address);
        entry.tasks_max = join.tasks_max;
        (entry.absence.missed, entry.absence.residue) = (None, None);
        self.note_keeper(node);
        self.ask_host_names(Some(node), false);
        if is_here {
            self.count_anew(node);
        }
        let (up, away) = self.is_back(node, &join);
        let Join { spec, held, features, devices, swap, images, .. } = join;
        self.take_held(node, &held);
        let Some(entry) = self.cluster.nodes.get(&node) else { return };
        let (timetable, launched) = (entry.timetable.clone(), entry.launches.launched.clone());
        let left = self.left_of(&held, &launched);
        let known = held.iter().copied().filter(|launch| launched.contains(launch)).collect();
        let (clock_ahead_ns, settings) = (self.clock.clock_ahead.0, self.agent_settings());
        self.send_order(token, joiner, ToAgent::Welcome { node, clock_ahead_ns, settings, known });
        self.tell_images(node);
        self.tell_part(node);
        if up {
            timetable.into_iter().for_each(|it| self.tell_timetable(node, it));
            self.reconcile(node, &launched, &held, same_keeper);
        }
        self.note_found(node, (features, devices, swap, images));
        if away || !up {
            self.join_when_clear(node, spec, left);
        }
        self.stop_waiting_for_nodes();
    }

    /// Why a node is not let in: it was removed, and inner agents of the tree don't know that; or
    /// the former holder of its name was, and may still run something.
    fn may_not_join(&mut self, name: &str, key: [u8; 32], known: Option<NodeId>) -> Option<String> {
        let key = Fingerprint::from_bytes(key);
        let members = self.cluster.members.as_mut();
        let objection = members.and_then(|members| members.objection(name, None, key));
        objection.or_else(|| {
            self.is_being_removed(known?).then(|| {
                format!("the machine that was node {name} is being removed, which is waited for")
            })
        })
    }

    /// What a node holds of jobs of ours though it was not launched there, as far as is known.
    fn left_of(&self, held: &[LaunchId], launched: &BTreeSet<LaunchId>) -> BTreeSet<LaunchId> {
        let is_ours = |launch: &&LaunchId| self.jobs.contains_key(&launch.job);
        held.iter().filter(is_ours).filter(|it| !launched.contains(it)).copied().collect()
    }

    /// A node joins when nothing is left on it of jobs that it may be given again.
    fn join_when_clear(&mut self, node: NodeId, spec: NodeSpec, residue: BTreeSet<LaunchId>) {
        if residue.is_empty() {
            self.apply(&Event::NodeJoined { node, spec });
        } else if let Some(entry) = self.cluster.nodes.get_mut(&node) {
            entry.absence.residue = Some((spec, residue));
        }
    }

    /// Whether a report is of what a lost node brought back, which no one waits for.
    fn is_residue(&self, node: NodeId, launch: LaunchId) -> bool {
        let residue =
            self.cluster.nodes.get(&node).and_then(|entry| entry.absence.residue.as_ref());
        residue.is_some_and(|(_, launches)| launches.contains(&launch))
    }

    fn on_residue_cleared(&mut self, node: NodeId, launch: LaunchId) {
        let Some(entry) = self.cluster.nodes.get_mut(&node) else { return };
        if let Some((spec, mut residue)) = entry.absence.residue.take() {
            residue.remove(&launch);
            self.join_when_clear(node, spec, residue);
        }
    }

    /// Jobs that were launched on a node and that its keeper does not hold are launched again if
    /// they can't have begun there; the others went with an earlier keeper.
    fn reconcile(
        &mut self,
        node: NodeId,
        launched: &BTreeSet<LaunchId>,
        held: &[LaunchId],
        same_keeper: bool,
    ) {
        let now = self.now();
        for &launch in launched.iter().filter(|launch| !held.contains(launch)) {
            if launch.is_further() {
                self.reconcile_step(node, launch, same_keeper);
                continue;
            }
            let job = launch.job;
            if self.has_cleared(node, job) {
                // The machine was restarted since, and remembers nothing of it.
                continue;
            }
            let unread = self.unread_launch(node, launch, same_keeper);
            let running = |view: JobView| matches!(view.state, JobState::Running { .. });
            if let Some(launch) = unread
                && self.core.job(job, now).is_some_and(running)
            {
                let shares = vec![(node, launch.share.clone())];
                self.launch_on_nodes(launch, shares);
                continue;
            }
            let ranks: Vec<Rank> = self
                .core
                .job(job, now)
                .into_iter()
                .flat_map(|view| view.placements)
                .filter(|placed| placed.node == node)
                .flat_map(|placed| ranks_of(&placed))
                .collect();
            for rank in ranks {
                let (lost, why) = (TaskStatus::Lost, "its node lost it".into());
                self.on_task_ended((job, rank), lost, why, &Usage::unknown());
            }
            self.apply(&Event::JobCleared { job, nodes: [node].into() });
        }
        for &launch in launched.iter().filter(|launch| held.contains(launch)) {
            self.repeat_failed(node, launch);
            if launch.is_further() {
                if self.core.is_step_killed(launch.key()) {
                    self.tell_node(node, ToAgent::Kill { launch });
                }
                continue;
            }
            let killed =
                |view: JobView| matches!(view.state, JobState::Ending { kill_at: None, .. });
            if self.core.job(launch.job, now).is_some_and(killed) {
                self.tell_node(node, ToAgent::Kill { launch });
            }
        }
        // Behind the launches: an agent does nothing for a job that it does not know.
        self.repeat_swaps(node);
    }

    /// Whether all of a job on a node was over and reported, under this controller or another.
    pub(super) fn has_cleared(&self, node: NodeId, job: JobId) -> bool {
        let view = self.core.job(job, self.now());
        let mut parts = view.into_iter().flat_map(|view| view.placements);
        parts.any(|part| part.node == node && part.cleared)
    }

    /// A launch that the node's agent has not read: it or the controller ended before. A keeper
    /// that is the same as then would hold what it had been given; unless a loss of power has had
    /// us forget that it was to end it, since the job is somewhere else. Another keeper says
    /// nothing: the one before may have run it to its end while the node was out of reach, and it
    /// is unknown by now.
    fn unread_launch(&self, node: NodeId, id: LaunchId, same_keeper: bool) -> Option<Launch> {
        let entry = self.cluster.nodes.get(&node)?;
        if let Some(Unconfirmed { launch, was_sent }) = entry.launches.unconfirmed.get(&id) {
            return (same_keeper || !was_sent).then(|| launch.clone());
        }
        let is_doubtful = !same_keeper || self.core.is_in_doubt();
        if is_doubtful || !entry.launches.remembered.contains(&id) || !self.is_latest(node, id) {
            return None;
        }
        self.launch_for(id.job, node)
    }

    fn on_task_ended(
        &mut self,
        (job, rank): (JobId, Rank),
        status: TaskStatus,
        detail: String,
        &usage: &Usage,
    ) {
        let Some(entry) = self.jobs.get_mut(&job) else { return };
        if !entry.run.end_task(rank, status, usage) {
            // Said again by an agent that joined again.
            return;
        }
        match status {
            TaskStatus::NotRestored | TaskStatus::Damaged => entry.saving.note_failure(detail),
            TaskStatus::Saved => entry.saving.note_failure(String::new()),
            _ => entry.run.note_detail(rank, detail),
        }
        self.apply(&Event::TasksEnded { job, ranks: [rank].into(), status });
        self.give_up_barriers(StepKey::first(job));
    }

    /// A branch of the tree broke off.
    pub(super) fn on_branch_gone(&mut self, token: u64) {
        self.cluster.clients.lose(token, |_| true);
        let of_branch =
            |(&node, entry): (&NodeId, &NodeEntry)| (entry.agent == Some(token)).then_some(node);
        for node in self.cluster.nodes.iter().filter_map(of_branch).collect::<Vec<_>>() {
            self.on_agent_gone(token, node);
        }
    }

    fn on_agent_gone(&mut self, token: u64, node: NodeId) {
        if self.cluster.nodes.get(&node).is_some_and(|entry| entry.agent == Some(token)) {
            self.miss(node);
            self.answer_for_lost(node);
        }
    }

    pub(super) fn on_node_lost(&mut self, node: NodeId) {
        self.lose_node(node, Gone::Lost);
    }

    /// What was on a node is gone.
    pub(super) fn lose_node(&mut self, node: NodeId, gone: Gone) {
        if let Some(entry) = self.cluster.nodes.get_mut(&node) {
            entry.absence.gone = if entry.absence.is_removed { Gone::Removed } else { gone };
            entry.absence.missed = None;
            entry.launches.launched.clear();
            entry.launches.unconfirmed.clear();
            entry.launches.remembered.clear();
            let (name, past) = (&entry.name, entry.absence.gone.past());
            match entry.absence.gone {
                Gone::Lost => warn!(code = %Code::NodeLost, "node {name} {past}"),
                // As was asked.
                Gone::Down | Gone::Removed => info!("node {name} {past}"),
            }
        }
        self.note_lost_tasks(node);
        self.apply(&Event::NodeLost { node });
        if self.is_abandoned() {
            self.give_up(node);
        }
        self.finish_removal(node);
    }

    /// A node goes out of service. What ends there from now on ends because of that, and is not
    /// asked for any more.
    fn on_leaving(&mut self, node: NodeId) {
        // Before it may be forgotten.
        self.tell_node(node, ToAgent::Stop);
        self.lose_node(node, Gone::Down);
        if let Some(entry) = self.cluster.nodes.get_mut(&node) {
            entry.agent = None;
        }
        self.answer_for_lost(node);
    }

    /// Jobs that go on without a node say at their end which of their tasks it took along.
    pub(super) fn note_lost_tasks(&mut self, node: NodeId) {
        let mut lost = Vec::new();
        for view in self.core.jobs(self.now()) {
            let goes_on = matches!(view.spec.on_node_loss, OnNodeLoss::Notify { .. });
            let here = view.placements.iter().filter(|part| part.node == node && !part.cleared);
            lost.extend(here.filter(|_| goes_on).flat_map(ranks_of).map(|rank| (view.id, rank)));
        }
        let why = format!("lost with node {}", self.node_name(node));
        for (job, rank) in lost {
            let Some(entry) = self.jobs.get_mut(&job) else { continue };
            entry.run.lose_task(rank, &why);
        }
    }

    /// Nothing starts again what ended: jobs would wait for ever. What is left of the instance
    /// ends, so that another can be started.
    fn give_up(&mut self, node: NodeId) {
        warn!(code = %Code::PartEnded, "the supervisor is gone, and an agent; ending");
        let Some(entry) = self.cluster.nodes.get(&node) else { return };
        let keeper = Path::new(OsStr::from_bytes(&entry.attach));
        if let Ok(stream) = UnixStream::connect(keeper)
            && let Ok(mut link) = Link::new(stream)
        {
            link.greet(Role::Agent);
            link.send(&ToKeeper::Stop);
            let _ = link.flush();
        }
        self.stop(None);
    }
}
