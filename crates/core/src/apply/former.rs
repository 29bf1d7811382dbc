//! The state as form 4 of the journal has it.

use super::*;
use crate::ledger::FormerLedger;
use crate::matrix::{FormerMatrix, Owner};
use crate::queue::FormerQueue;
use crate::resources::FormerCircuits;
use tutti_types::time::Nanos;

/// See the head of the file: all that [`Core`] had then, in its order.
#[derive(Debug, Deserialize)]
pub struct FormerCore {
    now: ClusterTime,
    settings: Settings,
    calendar: Option<Calendar>,
    settings_until: ClusterTime,
    params: Params,
    classes: Classes,
    nodes: Nodes,
    matrix: FormerMatrix,
    jobs: Table<Record>,
    queue: FormerQueue,
    by_class: ByClass,
    circuits: FormerCircuits,
    bank: Bank,
    access: Access,
    foreign: BTreeMap<NodeId, ProcessorSet>,
    ledger: FormerLedger,
    frame: Frame,
    activated: ClusterTime,
    versions: u64,
    sent_all: Sent,
    sent: Vec<Sent>,
    held: BTreeMap<ClassName, RowId>,
    outbox: Outbox,
    deadlines: BTreeSet<(ClusterTime, JobId)>,
    plans: Plans,
    aside: BTreeSet<JobId>,
    absent: BTreeSet<(NodeId, JobId)>,
    jobs_made: u64,
    migration: Migration,
    stopping: bool,
    longer_leases: Longer,
    tells_nodes: bool,
    wake: ClusterTime,
}

impl From<FormerCore> for Core {
    fn from(former: FormerCore) -> Self {
        let kills: BTreeMap<JobId, ClusterTime> =
            former.deadlines.iter().map(|&(at, job)| (job, at)).collect();
        let grace = |job| former.jobs.get(&job).map_or(Nanos::ZERO, |it| it.spec.grace);
        let owner = |job| former.jobs.get(&job).map(|it| Owner::of(&it.spec)).unwrap_or_default();
        let ledger = former.ledger.upgrade(grace, |job| kills.get(&job).copied());
        let mut core = Self {
            ledger,
            kills: true,
            weights: UserWeights::default(),
            quick: Quick::to_look_for(),
            queues: Queues::default(),
            holds: BTreeMap::new(),
            by_use: RulesByUse::new(),
            renewals: BTreeMap::new(),
            overrun: BTreeMap::new(),
            allocations: BTreeMap::new(),
            after: JobsAfter::default(),
            step_deadlines: BTreeSet::new(),
            begins: Begins::default(),
            warnings: Warnings::default(),
            vacates: Vacates::default(),
            arrays: Arrays::default(),
            outside: Outside::default(),
            respawns: Respawns::default(),
            freed: Freed::default(),
            checkpoints: Checkpoints::default(),
            timed: Timed::default(),
            features: BTreeMap::new(),
            devices: Devices::default(),
            roll_out: RollOut::default(),
            swaps: Swaps::default(),
            reruns: Reruns::default(),
            to_look_at: NodesToLookAt::default(),
            network: Network::default(),
            now: former.now,
            settings: former.settings,
            calendar: former.calendar,
            settings_until: former.settings_until,
            params: former.params,
            classes: former.classes,
            nodes: former.nodes,
            matrix: former.matrix.upgrade(owner),
            jobs: former.jobs,
            queue: former.queue.into(),
            by_class: former.by_class,
            resources: former.circuits.into(),
            bank: former.bank,
            access: former.access,
            foreign: former.foreign,
            frame: former.frame,
            activated: former.activated,
            versions: former.versions,
            sent_all: former.sent_all,
            sent: former.sent,
            held: former.held,
            outbox: former.outbox,
            deadlines: former.deadlines,
            plans: former.plans,
            aside: former.aside,
            absent: former.absent,
            jobs_made: former.jobs_made,
            migration: former.migration,
            stopping: former.stopping,
            longer_leases: former.longer_leases,
            tells_nodes: former.tells_nodes,
            wake: former.wake,
        };
        core.queue.upgrade(&core.jobs);
        core.line_up_all();
        core
    }
}
