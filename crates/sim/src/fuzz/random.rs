//! Scripts from a seed. Each seed leaves out some kinds of steps altogether, and has habits of its own:
//! what only comes about in calm, or in haste, comes about too.

use super::cluster::job;
use super::script::{Script, Start};
use super::step::{
    CLASSES, KEEPS_ROWS, Step, USERS, class_name, device_name, resource_name, user_name,
};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use tutti_types::param::{NodePart, Param, ParamKind, UNBOUNDED};
use tutti_types::{
    Amount, JobSpec, Nanos, NoRespawn, NodeId, NodeWish, OnBadExit, OnNodeLoss, Per, ResourceWish,
    TaskStatus, class, params, queue,
};

const MS: u64 = 1_000_000;

/// The actors of a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    /// Users and their tasks only.
    Users,
    /// Besides, administrators, and nodes that fail.
    Everybody,
}

/// What makes a step, how often, and whether users or tasks do it.
type Kind = (u64, Who, fn(&mut Random) -> Step);

/// So many of them, the first, are in every script.
const ALWAYS: usize = 3;

/// Every kind of step that there is.
const KINDS: &[Kind] = &[
    (72, Who::Users, |random| Step::Pass(random.below(300 * MS))),
    (24, Who::Users, |random| Step::Pass(random.below(3 * MS))),
    (96, Who::Users, |random| Step::Submit(Box::new(spec(random)))),
    (60, Who::Users, |random| Step::EndTask(random.place(), random.place(), status(random))),
    (48, Who::Users, |random| Step::EndTasks(random.place())),
    (48, Who::Users, |random| Step::EndJob(random.place(), status(random))),
    (84, Who::Users, |random| Step::Clear(random.place())),
    (48, Who::Users, |_| Step::DeliverKills),
    (24, Who::Users, |random| Step::Cancel(random.place(), random.one_in(2))),
    (12, Who::Users, |random| Step::Requeue(random.place(), random.one_in(2))),
    (36, Who::Users, |random| Step::Suspend(random.place())),
    (36, Who::Users, |random| Step::Resume(random.place())),
    (12, Who::Users, |random| Step::Signal(random.place(), random.rank(), 10)),
    (12, Who::Users, |random| Step::FrontEndLost(random.place())),
    (12, Who::Users, |random| Step::Nonsense(random.below(50), random.number(9))),
    (96, Who::Users, |random| Step::Arrive(random.place())),
    (51, Who::Everybody, |random| Step::Foreign(random.number(4), random.number(3))),
    (51, Who::Everybody, |random| {
        let place = random.place();
        Step::Resource(place, random.number(4), random.number(3), random.one_in(2))
    }),
    (51, Who::Everybody, |random| Step::Devices(random.number(3), random.number(4))),
    (17, Who::Everybody, |random| {
        Step::Device(random.number(3), random.number(5), random.one_in(2))
    }),
    (51, Who::Everybody, |random| {
        let user = random.one_in(2);
        Step::Bank(user, (!random.one_in(4)).then(|| random.below(900 * MS)))
    }),
    (51, Who::Everybody, |random| {
        let user = (!random.one_in(4)).then(|| random.number(USERS));
        // Now and then one that is not allowed.
        Step::Weight(user, (!random.one_in(4)).then(|| random.number(6)))
    }),
    (34, Who::Everybody, |random| Step::Miss(random.number(3))),
    (51, Who::Everybody, |random| Step::Lose(random.number(3))),
    (51, Who::Everybody, |random| Step::Join(random.number(3), 1 + random.number(5))),
    (34, Who::Everybody, |random| Step::Drain(random.number(3), random.one_in(2))),
    (17, Who::Everybody, |random| Step::Remove(random.number(3))),
    (51, Who::Everybody, |random| Step::Node(random.number(4), random.number(9), random.number(9))),
    (51, Who::Everybody, |random| Step::Hold(random.below(200))),
    (17, Who::Everybody, |random| Step::Forget(random.below(200))),
    (51, Who::Everybody, |random| set(random, &["policy"])),
    (51, Who::Everybody, |random| set(random, &["discipline"])),
    (51, Who::Everybody, |random| set(random, &["quantum", "rows"])),
    (34, Who::Everybody, |random| set(random, &["order", "half_life"])),
    (102, Who::Everybody, |random| set(random, &[])),
    (102, Who::Everybody, |random| {
        let rule = random.any(class::RULES);
        Step::Rule(random.place(), rule.name.to_owned(), value(random, rule))
    }),
    (17, Who::Everybody, |random| Step::ForgetClass(random.place())),
    (102, Who::Everybody, |random| Step::SubmitTo(random.place(), Box::new(spec(random)))),
    (51, Who::Everybody, |random| {
        let limit = random.any(queue::LIMITS);
        Step::Limit(random.place(), limit.name.to_owned(), value(random, limit))
    }),
    (9, Who::Everybody, |random| Step::ForgetQueue(random.place())),
    (17, Who::Users, |random| Step::SubmitHeld(Box::new(spec(random)), random.one_in(2))),
    (24, Who::Users, |random| Step::HoldJob(random.place(), random.one_in(2))),
    (36, Who::Users, |random| Step::Release(random.place(), random.one_in(2))),
    (24, Who::Everybody, |random| Step::JobClass(random.place(), random.place())),
    (48, Who::Users, |random| {
        Step::JobLimit(random.place(), (!random.one_in(4)).then(|| random.below(400 * MS)))
    }),
    (48, Who::Everybody, |random| {
        let job = random.place();
        Step::MoveJob(job, (!random.one_in(3)).then(|| random.place()))
    }),
    (12, Who::Everybody, |random| Step::BankPeriod(random.one_in(2), !random.one_in(3))),
    (12, Who::Everybody, |random| Step::Day(random.below(50))),
    (24, Who::Everybody, |random| {
        let class = random.place();
        let used = random.below(400 * MS);
        Step::AfterUse(class, (!random.one_in(4)).then(|| (used, random.place())))
    }),
    (48, Who::Users, |random| Step::SubmitBatch(Box::new(spec(random)))),
    (48, Who::Users, |random| {
        let after = (0..=random.below(3)).map(|_| (random.place(), random.below(4)));
        let (after, one, stays) = (after.collect(), random.one_in(3), random.one_in(4));
        Step::SubmitAfter(Box::new(spec(random)), after, one, stays)
    }),
    (96, Who::Users, |random| {
        let (job, tasks) = (random.place(), random.number(4));
        Step::StartStep(job, tasks, random.number(3), random.one_in(4))
    }),
    (48, Who::Users, |random| Step::EndStep(random.place(), status(random))),
    (48, Who::Users, |random| Step::EndStepTask(random.place(), random.place(), status(random))),
    (24, Who::Users, |random| Step::CancelStep(random.place(), random.one_in(2))),
    (12, Who::Users, |random| Step::StepFrontEndLost(random.place())),
    (36, Who::Users, |random| Step::SubmitVacating(Box::new(spec(random)), random.below(200 * MS))),
    (48, Who::Users, |random| Step::SubmitSwapping(Box::new(spec(random)))),
    (96, Who::Users, |random| Step::Swapped(random.place(), random.below(101))),
    (36, Who::Users, |random| Step::SubmitLater(Box::new(spec(random)), random.below(200 * MS))),
    (36, Who::Users, |random| {
        let (batch, shell) = (random.one_in(2), random.one_in(3));
        Step::SubmitWarned(Box::new(spec(random)), random.below(200 * MS), batch, shell)
    }),
    (36, Who::Users, |random| {
        let (batch, shell) = (random.one_in(3), random.one_in(3));
        let spec = Box::new(spec(random));
        Step::SubmitSaver(spec, random.below(200 * MS), batch, shell, random.one_in(3))
    }),
    (48, Who::Users, |random| Step::Checkpoint(random.place(), random.below(4))),
    (6, Who::Everybody, |random| Step::RollOut(random.below(400 * MS))),
    (36, Who::Everybody, |_| Step::RollIn),
    (12, Who::Users, |random| Step::MoveBegin(random.place(), random.below(100 * MS))),
    (48, Who::Users, |random| {
        let spec = Box::new(spec(random));
        let most = if random.one_in(4) { 70 } else { 6 };
        let count = random.number(most);
        let limit = (!random.one_in(3)).then(|| 1 + random.number(4));
        let (held, after) = (random.one_in(5), random.one_in(5));
        Step::SubmitArray(spec, count, limit, held, after.then(|| random.place()))
    }),
    (48, Who::Users, |random| {
        let (array, first) = (random.place(), random.number(8));
        Step::Elements(array, first, first + random.number(5), random.below(6))
    }),
    (24, Who::Users, |random| Step::WholeArray(random.place(), random.below(6))),
    (60, Who::Everybody, |random| Step::Charge(!random.one_in(3))),
    (96, Who::Everybody, |random| {
        let (job, row, node) = (random.place(), random.below(6), random.number(3));
        let processors = if random.one_in(2) { 0 } else { 1 + random.number(10) };
        Step::OrderStart(job, row, node, processors)
    }),
    (72, Who::Everybody, |random| Step::Order(random.place(), random.below(10), random.place())),
    (24, Who::Everybody, |random| {
        let (what, node, ns) = (random.below(6), random.number(3), random.below(400 * MS));
        Step::Timed(what, node, ns, random.one_in(2).then(|| random.below(200 * MS)))
    }),
    (36, Who::Everybody, |random| Step::TimedDue(random.place(), random.one_in(2))),
    (24, Who::Everybody, |random| {
        Step::MoveTimed(random.place(), random.one_in(2).then(|| random.below(200 * MS)))
    }),
    (36, Who::Users, |random| Step::SubmitImage(Box::new(spec(random)), random.below(200 * MS))),
    (72, Who::Users, |random| Step::Saver(random.place(), random.below(6))),
    (72, Who::Users, |random| Step::Lend(random.place(), !random.one_in(4))),
];

/// What is set at the beginning, if at all: our own reckoning of which job ran when needs to know
/// it.
const FIXED: &str = "lead";

impl Script {
    /// The script of a seed: the same on every machine.
    #[must_use]
    pub fn random(seed: u64, steps: usize, who: Who) -> Self {
        let mut random = Random::new(seed);
        let mut start = Start { nodes: vec![2, 4, 3], ..Start::default() };
        start.params.insert("quantum".to_owned(), 2 * MS + random.below(8 * MS));
        start.params.insert("rows".to_owned(), 1 + random.below(5));
        let discipline = params::TABLE.iter().find(|param| param.name == "discipline");
        let set = discipline.map(|param| (param.name.to_owned(), value(&mut random, param)));
        start.params.extend(set);
        if who == Who::Everybody && random.one_in(2) {
            let policies = params::TABLE.iter().find(|param| param.name == "policy");
            let policy = random.below(policies.map_or(1, |param| param.max + 1));
            start.params.insert("policy".to_owned(), policy);
        }
        start.params.insert("order".to_owned(), u64::from(random.one_in(4)));
        if random.one_in(2) {
            start.params.insert("half_life".to_owned(), 1000 * MS + random.below(1000 * MS));
        }
        if who == Who::Everybody && random.one_in(2) {
            start.params.insert("deadline_slack".to_owned(), random.below(MS));
        }
        if who == Who::Everybody && random.one_in(4) {
            start.params.insert(FIXED.to_owned(), random.below(40 * MS));
        }
        let kinds = KINDS.iter().filter(|(_, does, _)| who == Who::Everybody || *does == who);
        let always = &KINDS[..ALWAYS];
        let others = kinds.skip(ALWAYS).filter(|_| !random.one_in(3));
        let kinds: Vec<&Kind> = always.iter().chain(others).collect();
        let steps = (0..steps).map(|_| step(&mut random, &kinds)).collect();
        Self { start, steps }
    }
}

fn step(random: &mut Random, kinds: &[&Kind]) -> Step {
    let mut ticket = random.below(kinds.iter().map(|(tickets, ..)| tickets).sum());
    for (tickets, _, make) in kinds {
        match ticket.checked_sub(*tickets) {
            None => return make(random),
            Some(left) => ticket = left,
        }
    }
    Step::DeliverKills
}

fn resources(random: &mut Random) -> Vec<ResourceWish> {
    let mut wishes = Vec::new();
    for place in 0..2 {
        if random.one_in(4) {
            let amounts = [Amount::One, Amount::Number(random.number(2)), Amount::Count(2)];
            wishes.push(ResourceWish { name: resource_name(place), amount: *random.any(&amounts) });
        }
    }
    if random.one_in(5) {
        let per = *random.any(&[Per::Job, Per::Node, Per::Task]);
        let amount = Amount::OnNodes { count: 1 + random.number(3), per, vacates: false };
        wishes.push(ResourceWish { name: device_name(), amount });
    }
    wishes
}

fn spec(random: &mut Random) -> JobSpec {
    let tasks = 1 + random.number(7);
    let respawn = respawn(random.number(3), random.below(300 * MS));
    JobSpec {
        owner: user_name(if random.even || random.one_in(2) { 0 } else { random.number(USERS) }),
        class: class_name(match random.place() {
            place if random.even && place % CLASSES.len() == KEEPS_ROWS => place + 1,
            place => place,
        }),
        processors_per_task: match random.plain {
            true => Some(1),
            false => *random.any(&[None, Some(1), Some(1), Some(2)]),
        },
        memory_per_task_bytes: (!random.plain && random.one_in(4)).then(|| random.below(300)),
        time_limit: random.one_in(random.limited).then(|| Nanos(MS + random.below(400 * MS))),
        deadline: random.one_in(3).then(|| Nanos(MS + random.below(2000 * MS))),
        grace: Nanos(random.below(300 * MS)),
        attached: random.one_in(2),
        movable: random.one_in(2),
        resources: resources(random),
        on_bad_exit: *random.any(&[OnBadExit::Kill, OnBadExit::KillOnSignal, OnBadExit::Continue]),
        nodes: wish(random),
        on_node_loss: *random.any(&[
            OnNodeLoss::Kill,
            OnNodeLoss::Requeue,
            OnNodeLoss::Notify { signal: None },
            OnNodeLoss::Notify { signal: Some(10) },
            respawn,
            respawn,
        ]),
        // Now and then more tasks than there are processors.
        ..job(if tasks == 7 { 11 } else { tasks })
    }
}

/// The rule of a job whose lost ranks wait so long, in nanoseconds, for their processors.
fn respawn(otherwise: u32, wait_ns: u64) -> OnNodeLoss {
    let otherwise = match otherwise {
        0 => NoRespawn::Kill,
        1 => NoRespawn::Requeue,
        _ => NoRespawn::Notify,
    };
    OnNodeLoss::Respawn { wait: Nanos(wait_ns), signal: Some(12), otherwise }
}

fn wish(random: &mut Random) -> NodeWish {
    if random.plain || random.one_in(2) {
        return NodeWish::default();
    }
    let among = (0..4).filter(|_| random.one_in(2)).map(NodeId).collect();
    NodeWish {
        count: random.one_in(2).then(|| 1 + random.number(4)),
        among: random.one_in(3).then_some(among),
        except: (0..4).filter(|_| random.one_in(9)).map(NodeId).collect(),
        spread: random.one_in(3),
        exclusive: random.one_in(3),
    }
}

fn status(random: &mut Random) -> TaskStatus {
    let well = TaskStatus::Exited(0);
    let badly = [
        TaskStatus::Exited(3),
        TaskStatus::Exited(85),
        TaskStatus::Signaled(12),
        TaskStatus::Signaled(11),
        TaskStatus::Aborted(6),
        TaskStatus::NotFound,
        TaskStatus::NotExecutable,
        TaskStatus::OutOfMemory,
        TaskStatus::Unknown,
        TaskStatus::Lost,
        TaskStatus::Unfinalized(0),
        TaskStatus::Unfinalized(2),
    ];
    if random.one_in(2) { well } else { *random.any(&badly) }
}

/// Sets one of these parameters, or of all that may change, if none is named.
fn set(random: &mut Random, names: &[&str]) -> Step {
    let wanted = |param: &&Param| match names {
        [] => param.name != FIXED,
        names => names.contains(&param.name),
    };
    let table: Vec<&Param> = params::TABLE.iter().filter(wanted).collect();
    let param = *random.any(&table);
    Step::Set(param.name.to_owned(), value(random, param))
}

/// A value in the parameter's range, of the size that matters in a small cluster.
fn value(random: &mut Random, param: &Param) -> u64 {
    let most = match param.kind {
        ParamKind::Duration | ParamKind::DurationOr(_) => 150 * MS,
        ParamKind::Count | ParamKind::CountOr(_) => 12,
        ParamKind::BytesOr(_) | ParamKind::NodePart => 1000,
        ParamKind::Share => 6000,
        ParamKind::Choice(_) => u64::MAX,
    };
    let value = param.min + random.below((param.max - param.min).min(most) + 1);
    match param.kind {
        ParamKind::DurationOr(_) | ParamKind::CountOr(_) | ParamKind::BytesOr(_)
            if random.one_in(4) =>
        {
            UNBOUNDED
        }
        ParamKind::DurationOr(_)
        | ParamKind::CountOr(_)
        | ParamKind::BytesOr(_)
        | ParamKind::Duration
        | ParamKind::Count
        | ParamKind::Share
        | ParamKind::Choice(_) => value,
        ParamKind::NodePart if random.one_in(2) => NodePart::Part(value).value(),
        ParamKind::NodePart => value,
    }
}

/// A seed's numbers, and its habits.
struct Random {
    generator: Xoshiro256PlusPlus,
    /// Whether jobs ask for nothing but one processor a task.
    plain: bool,
    /// Whether all jobs are of one user, and of no class that keeps rows.
    even: bool,
    /// One job in so many has a time limit.
    limited: u64,
}

impl Random {
    fn new(seed: u64) -> Self {
        let generator = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut random = Self { generator, plain: false, even: false, limited: 1 };
        random.plain = random.one_in(2);
        random.even = random.one_in(2);
        random.limited = *random.any(&[1, 3]);
        random
    }

    /// Below `count`, which is at least 1; each nearly as likely.
    fn below(&mut self, count: u64) -> u64 {
        let product = u128::from(self.generator.next_u64()) * u128::from(count);
        u64::try_from(product >> 64).unwrap_or(0)
    }

    fn number(&mut self, count: u32) -> u32 {
        u32::try_from(self.below(u64::from(count))).unwrap_or(0)
    }

    /// A place among things whose number is unknown.
    fn place(&mut self) -> usize {
        self.number(1000) as usize
    }

    fn rank(&mut self) -> Option<u32> {
        self.one_in(2).then(|| self.number(12))
    }

    fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }

    fn any<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[usize::try_from(self.below(of.len() as u64)).unwrap_or(0)]
    }
}
