//! What users and misfortune do in a simulated world, from a seed: each seed leaves out some kinds
//! of misfortune altogether, since some faults only show without others.

use tutti_node::simulated::machine::Daemon;
use tutti_node::simulated::random::Random;
use tutti_types::{FirstStep, Nanos, NoRespawn, OnNodeLoss};

const MS: u64 = 1_000_000;
const SEC: u64 = 1000 * MS;

/// See the head of the file.
#[derive(Clone, Debug)]
pub(super) struct Script {
    pub(super) seed: u64,
    pub(super) machines: usize,
    pub(super) processors: u32,
    /// How long anything is under way at least, and how much longer it may be.
    pub(super) latency_ns: (u64, u64),
    /// Parameters that are set at the beginning.
    pub(super) params: Vec<(String, String)>,
    pub(super) acts: Vec<Timed>,
    /// When misfortune ends, and all must come to an end.
    pub(super) calm_ns: u64,
    /// How long that may take.
    pub(super) patience_ns: u64,
    /// Whether a loss of power may tear what is being written.
    pub(super) tears: bool,
    /// Whether a daemon may be killed in the middle of what it does, rather than between one thing
    /// and the next.
    pub(super) cuts_short: bool,
    /// The class whose jobs make way instead of being stopped, if any.
    pub(super) making_way: Option<&'static str>,
}

/// Worlds of smaller seeds are as they were before there were such.
const FIRST_THAT_TEARS: u64 = 6_000_000;

/// The same of parts that are killed in the middle of what they do.
pub(super) const FIRST_THAT_CUTS_SHORT: u64 = 20_000_000;

/// How long all may take to come to an end once nothing fails any more.
const PATIENCE_NS: u64 = 900 * SEC;

/// Worlds from this seed on are clusters of some size in a calm time, and from that one on for some
/// hours.
pub(super) const FIRST_CALM: u64 = 1_000_000_000_000;
pub(super) const FIRST_CALM_HOURS: u64 = 2_000_000_000_000;

/// How many machines those have, and processors each.
const CALM_SIZE: Size = (CLUSTER, 4);

/// How many machines a cluster has, where hours of clusters are counted.
pub(super) const CLUSTER: usize = 32;

/// How long they last, how often a job is handed in, and how often something goes wrong, in the
/// mean.
const CALM_NS: u64 = 600 * SEC;
const CALM_HOURS_NS: u64 = 2 * 3600 * SEC;
const CALM_JOB_EVERY_NS: u64 = 120 * SEC;
const CALM_MISFORTUNE_EVERY_NS: u64 = 300 * SEC;

/// How long those that are left may take in the end, which take turns.
const CALM_PATIENCE_NS: u64 = 6 * 3600 * SEC;

/// Something that is done at a moment. The number stays with it when others are left out.
#[derive(Clone, Debug)]
pub(super) struct Timed {
    pub(super) number: usize,
    pub(super) at_ns: u64,
    pub(super) act: Act,
}

/// What a job is to do.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pub(super) tasks: u32,
    pub(super) life_ms: u64,
    pub(super) lines: u64,
    pub(super) code: i32,
    pub(super) class: &'static str,
    pub(super) on_node_loss: OnNodeLoss,
    /// Whether its owner waits for it, and sees its output.
    pub(super) is_attached: bool,
    pub(super) nodes: Option<u32>,
}

impl Plan {
    /// What the job starts with: some are batch jobs, which have one task and hold the rest.
    pub(super) const fn first(&self) -> FirstStep {
        match !self.is_attached && self.life_ms % 4 == 3 {
            true => FirstStep::Once,
            false => FirstStep::EachSlot,
        }
    }

    /// In how many barriers its ranks meet, as those of MPI programs do. The run time decides, as
    /// in [`requeue_or_respawn`]. Ranks that go on without others would wait for them.
    pub(super) const fn barriers(&self) -> u64 {
        match self.on_node_loss {
            OnNodeLoss::Kill | OnNodeLoss::Requeue => self.life_ms % 5,
            _ => 0,
        }
    }

    /// How many tasks it starts with.
    pub(super) const fn launched(&self) -> u32 {
        self.first().tasks(self.tasks)
    }
}

/// Something that is done.
#[derive(Clone, Debug)]
pub(super) enum Act {
    Submit(Plan),
    /// The job of the latest but so many.
    Cancel(u64, bool),
    Suspend(u64),
    Resume(u64),
    /// Its first task only waits from now on, or does so no more: its idle slots are lent.
    Lend(u64, bool),
    Drain(usize),
    Undrain(usize),
    Set(&'static str, String),
    /// Kills a daemon, which is started again after so long.
    Crash(usize, Daemon, u64),
    /// Stops one for so long.
    Stop(usize, Daemon, u64),
    PowerLoss(usize, u64),
    /// Nothing gets from these to those; nor back, if both ways are cut.
    Cut(Vec<usize>, Vec<usize>, bool),
    Mend,
    DiskFull(bool),
    DiskBroken(bool),
    /// A clock goes a little faster, or slower.
    Drift(usize, bool),
    Slow(usize, u64),
    /// People's clock is set.
    WallStep(usize, i64),
    Latency(u64, u64),
}

/// A kind of thing that may be done, how often, and what makes it.
type Kind = (u64, fn(&mut Random, Size) -> Act);

/// How many machines there are, and how many processors each has.
type Size = (usize, u32);

const USERS: &[Kind] = &[
    (60, |random, size| Act::Submit(plan(random, size))),
    (5, |random, _| Act::Cancel(random.below(8), random.one_in(2))),
    (3, |random, _| Act::Suspend(random.below(8))),
    (3, |random, _| Act::Resume(random.below(8))),
    (2, |random, (machines, _)| Act::Drain(site(random, machines))),
    (2, |random, (machines, _)| Act::Undrain(site(random, machines))),
    (2, |random, _| Act::Set("quantum", format!("{}ms", random.within(5, 400)))),
    (1, |random, _| Act::Set("fan_out", random.within(2, 5).to_string())),
    (1, |random, _| Act::Set("lease", format!("{}s", random.within(2, 20)))),
    (6, |random, _| Act::Lend(random.below(8), !random.one_in(3))),
];

const MISFORTUNES: &[Kind] = &[
    (10, |random, _| Act::Crash(0, Daemon::Controller, pause(random))),
    (10, |random, (machines, _)| Act::Crash(site(random, machines), Daemon::Agent, pause(random))),
    (5, |random, (machines, _)| Act::Crash(site(random, machines), Daemon::Keeper, pause(random))),
    (3, |random, _| Act::Stop(0, Daemon::Controller, outage(random))),
    (5, |random, (machines, _)| Act::Stop(site(random, machines), Daemon::Agent, outage(random))),
    (3, |random, (machines, _)| Act::Stop(site(random, machines), Daemon::Keeper, outage(random))),
    (4, |random, (machines, _)| Act::PowerLoss(site(random, machines), outage(random))),
    (2, |random, _| Act::PowerLoss(0, outage(random))),
    (20, |random, (machines, _)| cut(random, machines)),
    (3, |_, _| Act::DiskFull(true)),
    (3, |_, _| Act::DiskBroken(true)),
    // As much as temperatures do, which change slowly.
    (3, |random, (machines, _)| Act::Drift(site(random, machines), random.one_in(2))),
    (3, |random, (machines, _)| Act::Slow(site(random, machines), random.any_length(20 * MS))),
    (2, |random, (machines, _)| {
        let hour = 3_600_000;
        Act::WallStep(
            site(random, machines),
            i64::try_from(random.below(2 * hour)).unwrap_or(0) - 3_600_000,
        )
    }),
    (2, |random, _| Act::Latency(random.within(20_000, MS), random.any_length(20 * MS))),
];

/// The classes of jobs.
pub(super) const CLASSES: &[&str] = &["interactive", "production", "standby"];

fn site(random: &mut Random, machines: usize) -> usize {
    usize::try_from(random.below(machines as u64)).unwrap_or(0)
}

fn pause(random: &mut Random) -> u64 {
    2 * MS + random.any_length(2 * SEC)
}

fn outage(random: &mut Random) -> u64 {
    match random.knows_long_ones() && random.one_in(3) {
        true => random.within(4 * SEC, 40 * SEC),
        false => 10 * MS + random.any_length(40 * SEC),
    }
}

/// Some machines from the others: both ways, or one.
fn cut(random: &mut Random, machines: usize) -> Act {
    let mut sides = [Vec::new(), Vec::new()];
    for site in 0..machines {
        sides[usize::from(random.one_in(2))].push(site);
    }
    let [one, other] = sides;
    Act::Cut(one, other, random.one_in(2))
}

/// What ends a misfortune that lasts.
fn remedy(act: &Act) -> Option<Act> {
    match act {
        Act::Cut(..) => Some(Act::Mend),
        Act::DiskFull(true) => Some(Act::DiskFull(false)),
        Act::DiskBroken(true) => Some(Act::DiskBroken(false)),
        _ => None,
    }
}

fn plan(random: &mut Random, (machines, processors): Size) -> Plan {
    let is_attached = random.one_in(3);
    let all = machines as u64 * u64::from(processors);
    let tasks = u32::try_from(random.any_length(all)).unwrap_or(1);
    let life_ms = match random.knows_long_ones() && random.one_in(5) {
        true => random.within(8_000, 60_000),
        false => random.any_length(15_000),
    };
    Plan {
        tasks,
        life_ms,
        lines: random.below(20),
        code: if random.one_in(10) { 3 } else { 0 },
        class: random.any::<&str>(CLASSES),
        on_node_loss: match random.below(4) {
            0 => OnNodeLoss::Kill,
            1 => OnNodeLoss::Notify { signal: Some(10) },
            _ if is_attached => OnNodeLoss::Kill,
            _ => requeue_or_respawn(life_ms),
        },
        is_attached,
        nodes: random
            .one_in(8)
            .then(|| u32::try_from(random.within(1, machines as u64)).unwrap_or(1)),
    }
}

/// What a node's loss means for a job that no front end waits for. The job's run time decides, so
/// that the other random numbers of a seed stay as they were. Batch jobs can't respawn
/// ([`Plan::first`]).
const fn requeue_or_respawn(life_ms: u64) -> OnNodeLoss {
    if life_ms % 4 != 1 {
        return OnNodeLoss::Requeue;
    }
    let otherwise = match life_ms % 3 {
        0 => NoRespawn::Kill,
        1 => NoRespawn::Requeue,
        _ => NoRespawn::Notify,
    };
    OnNodeLoss::Respawn { wait: Nanos::from_secs(20), signal: Some(10), otherwise }
}

/// A job of minutes.
fn long_plan(random: &mut Random, size: Size) -> Plan {
    Plan { life_ms: random.within(60_000, 20 * 60_000), ..plan(random, size) }
}

/// Does it at that moment, and what ends it, if it lasts, later.
fn add(acts: &mut Vec<(u64, Act)>, at_ns: u64, act: Act, random: &mut Random, calm_ns: u64) {
    if let Some(remedy) = remedy(&act) {
        let until_ns = (at_ns + outage(random)).min(calm_ns);
        acts.push((until_ns, remedy));
    }
    acts.push((at_ns, act));
}

impl Script {
    /// Whether processes end only by themselves or where the job is to end.
    pub(super) fn keeps_processes(&self) -> bool {
        let loses = |timed: &Timed| {
            matches!(timed.act, Act::PowerLoss(..) | Act::Crash(_, Daemon::Keeper, _))
        };
        !self.acts.iter().any(loses)
    }

    /// That of a seed, the same on every machine.
    pub(super) fn of(seed: u64) -> Self {
        match seed {
            ..FIRST_CALM => Self::random(seed),
            FIRST_CALM..FIRST_CALM_HOURS => Self::calm(seed, CALM_NS),
            FIRST_CALM_HOURS.. => Self::calm(seed, CALM_HOURS_NS),
        }
    }

    /// So much of calm hours: jobs run for minutes and take turns in slots of half a minute, and
    /// every few minutes something goes wrong.
    fn calm(seed: u64, calm_ns: u64) -> Self {
        let mut random = Random::new(seed);
        let size = CALM_SIZE;
        let params = [("quantum", "30s"), ("rows", "3")];
        let mut acts: Vec<(u64, Act)> = Vec::new();
        for _ in 0..calm_ns / CALM_JOB_EVERY_NS {
            acts.push((random.below(calm_ns), Act::Submit(long_plan(&mut random, size))));
        }
        for _ in 0..calm_ns / CALM_MISFORTUNE_EVERY_NS {
            let (at_ns, act) = (random.below(calm_ns), kind(&mut random, MISFORTUNES));
            let act = act(&mut random, size);
            add(&mut acts, at_ns, act, &mut random, calm_ns);
        }
        Self {
            seed,
            machines: size.0,
            processors: size.1,
            latency_ns: (random.within(20_000, 300_000), random.any_length(2 * MS)),
            params: params.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
            acts: numbered(acts),
            calm_ns,
            patience_ns: CALM_PATIENCE_NS,
            tears: true,
            cuts_short: true,
            making_way: Some("standby"),
        }
    }

    /// One of a few minutes, in which much goes wrong.
    fn random(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let machines = match random.below(20) {
            0 => random.within(9, 32),
            1..=3 => 1,
            _ => random.within(2, 8),
        };
        let machines = usize::try_from(machines).unwrap_or(1);
        let calm_ns = SEC * random.within(20, 240);
        let params = vec![
            ("quantum".to_owned(), format!("{}ms", random.within(5, 300))),
            ("rows".to_owned(), random.within(1, 4).to_string()),
            ("fan_out".to_owned(), random.within(2, 5).to_string()),
            ("lease".to_owned(), format!("{}s", random.within(2, 15))),
            ("lead".to_owned(), format!("{}ms", random.any(&[0, 0, 5, 50]))),
        ];
        let misfortunes: Vec<Kind> =
            MISFORTUNES.iter().filter(|_| !random.one_in(3)).copied().collect();
        let processors = u32::try_from(random.within(1, 4)).unwrap_or(1);
        let size = (machines, processors);
        let mut acts: Vec<(u64, Act)> = Vec::new();
        for _ in 0..random.within(4, 40) {
            let act = kind(&mut random, USERS)(&mut random, size);
            acts.push((random.below(calm_ns), act));
        }
        let count = if misfortunes.is_empty() { 0 } else { random.below(25) };
        for _ in 0..count {
            let act = kind(&mut random, &misfortunes)(&mut random, size);
            // Much goes wrong only just after something has happened.
            let at_ns = match random.one_in(2) {
                true => random.any(&acts).0 + random.any_length(SEC),
                false => random.below(calm_ns),
            };
            add(&mut acts, at_ns.min(calm_ns), act, &mut random, calm_ns);
        }
        let latency_ns = (random.within(20_000, 300_000), random.any_length(2 * MS));
        let tears = seed >= FIRST_THAT_TEARS;
        let cuts_short = seed >= FIRST_THAT_CUTS_SHORT;
        Self {
            seed,
            machines,
            processors,
            latency_ns,
            params,
            acts: numbered(acts),
            calm_ns,
            patience_ns: PATIENCE_NS,
            tears,
            cuts_short,
            making_way: (tears && random.one_in(2)).then(|| *random.any(CLASSES)),
        }
    }
}

fn numbered(acts: Vec<(u64, Act)>) -> Vec<Timed> {
    let timed = acts.into_iter().enumerate();
    timed.map(|(number, (at_ns, act))| Timed { number, at_ns, act }).collect()
}

fn kind(random: &mut Random, kinds: &[Kind]) -> fn(&mut Random, Size) -> Act {
    let mut ticket = random.below(kinds.iter().map(|(tickets, _)| tickets).sum());
    for (tickets, make) in kinds {
        match ticket.checked_sub(*tickets) {
            None => return *make,
            Some(left) => ticket = left,
        }
    }
    kinds[0].1
}
