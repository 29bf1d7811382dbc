//! What the steps of a job ask of each other by PMIx.
//!
//! Each step has a PMIx server on each of its nodes, which knows its own tasks. What goes beyond
//! them goes to the keeper. One keeper has the [`Hub`] of a job: that of the job's first node. The
//! keepers of the other nodes pass requests on to it ([`super::Far`]). A hub has published names,
//! meetings of ranks of several steps, and requests for what a rank of another step has said of
//! itself. All of it belongs to a job: no step finds anything of another job.
//!
//! What waits belongs to a [`Part`] of a step, and is answered or dropped when that ends.

use super::ask::{
    ALL_RANKS, Answer, Ask, EACH, Found, MODEX_BYTES_MAX, Meeting, Members, Refused, Value,
    members_bytes,
};
use super::{PmixSpace, ToPmix};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;
use tutti_types::{JobId, LaunchId, NodeId, StepId, StepKey, UserId};

/// Maximum number of names that a job has published at a time.
pub const NAMES_PER_JOB_MAX: usize = 1024;

/// Maximum length of the names and values that the jobs of a user have published on a node.
pub const NAMES_USER_BYTES_MAX: usize = 16 << 20;

/// Maximum length of what waits for a step.
pub const WAITING_BYTES_MAX: usize = 4 << 20;

/// Maximum length of the values that one lookup finds: its answer is one message.
const FOUND_BYTES_MAX: usize = 128 << 10;

/// Maximum length of what one request has other lookups of the job find, in all.
const FOUND_AT_ONCE_BYTES_MAX: usize = 8 << 20;

/// How many groups have numbers of their own. Then the first number comes again.
const GROUPS_MAX: u32 = u32::MAX / 2;

/// Maximum time of a wait for a name, in seconds.
const WAIT_S_MAX: u32 = 600;

/// A step on one of its nodes: what a PMIx server serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Part {
    /// The step, and which launch of its job.
    pub launch: LaunchId,
    /// The node.
    pub node: NodeId,
}

impl Part {
    /// The step.
    #[must_use]
    pub const fn step(&self) -> StepKey {
        self.launch.key()
    }
}

/// Messages for PMIx servers, in order.
pub type Out = Vec<(Part, ToPmix)>;

/// What the jobs of a node have published.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Published {
    names: BTreeMap<(JobId, ByteBuf), Name>,
    /// How many of a job.
    of_job: BTreeMap<JobId, usize>,
    /// Length of the names and values of a user.
    of_user: BTreeMap<UserId, usize>,
}

/// The lookups that wait, by their numbers: in the order in which they came.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Lookups {
    all: BTreeMap<u64, Lookup>,
    so_far: u64,
    /// Which of them name each name.
    by_name: BTreeMap<(JobId, ByteBuf), BTreeSet<u64>>,
    /// When the wait of each is over.
    due: BTreeSet<(u64, u64)>,
}

/// A spawned step of which tasks have ended without a word to an MPI server.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Silent {
    /// The step that has spawned it.
    parent: StepKey,
    tasks: u32,
    /// The exit status of one that failed.
    code: u8,
}

/// The PMIx servers of jobs, and what they have asked for.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Hub {
    steps: BTreeMap<StepKey, Served>,
    published: Published,
    lookups: Lookups,
    meetings: Vec<Gathering>,
    /// How many groups were founded.
    groups_so_far: u32,
    fetches: BTreeMap<u32, Fetch>,
    fetches_so_far: u32,
    spawns: Vec<Spawning>,
    /// Spawned steps of which tasks have ended without a word to an MPI server.
    silent: BTreeMap<StepKey, Silent>,
    /// Length of what waits for each step.
    waiting: BTreeMap<StepKey, usize>,
}

/// A step with a PMIx server that is ready.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Served {
    launch: LaunchId,
    user: UserId,
    space: PmixSpace,
    /// The nodes from which word has come.
    joined: BTreeSet<NodeId>,
    /// Those of them where nothing of it is left.
    left: BTreeSet<NodeId>,
}

impl Served {
    /// The nodes with tasks, with the first rank of each.
    fn nodes(&self) -> impl Iterator<Item = (NodeId, u32, u32)> {
        let next = |first: &mut u32, node: &super::PmixNode| {
            let own = *first;
            *first = first.saturating_add(node.tasks);
            Some((node.node, own, node.tasks))
        };
        self.space.nodes.iter().scan(0, next).filter(|(_, _, tasks)| *tasks > 0)
    }

    /// Its parts.
    fn parts(&self) -> impl Iterator<Item = Part> {
        self.nodes().map(|(node, ..)| Part { launch: self.launch, node })
    }

    /// The parts that have any of these ranks, which are in ascending order.
    fn parts_with(&self, ranks: &[u32]) -> Vec<Part> {
        let is_all = ranks.last() == Some(&ALL_RANKS);
        let has = |first: u32, tasks: u32| {
            let next = ranks.get(ranks.partition_point(|rank| *rank < first));
            is_all || next.is_some_and(|rank| *rank < first.saturating_add(tasks))
        };
        let nodes = self.nodes().filter(|(_, first, tasks)| has(*first, *tasks));
        nodes.map(|(node, ..)| Part { launch: self.launch, node }).collect()
    }

    /// The part that serves a rank.
    fn part_of(&self, rank: u32) -> Option<Part> {
        let mut nodes = self.nodes();
        let found = nodes.find(|(_, first, tasks)| {
            rank == ALL_RANKS || (*first..first.saturating_add(*tasks)).contains(&rank)
        });
        found.map(|(node, ..)| Part { launch: self.launch, node })
    }

    fn tasks(&self) -> u32 {
        self.nodes().map(|(_, _, tasks)| tasks).fold(0, u32::saturating_add)
    }

    /// Whether all of it is served.
    fn is_whole(&self) -> bool {
        self.nodes().all(|(node, ..)| self.joined.contains(&node))
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Name {
    part: Part,
    user: UserId,
    rank: u32,
    value: Value,
    once: bool,
}

/// A request that waits: the part of a step, and the number of the request there.
type Asker = (Part, u32);

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Lookup {
    asker: Asker,
    names: Vec<ByteBuf>,
    /// How many of its names are not published, each counted once.
    missing: usize,
    bytes: usize,
    until_ns: u64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Gathering {
    job: JobId,
    meeting: Meeting,
    members: Vec<Members>,
    /// Those that take part.
    parts: BTreeSet<Part>,
    came: Vec<(Asker, ByteBuf)>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Fetch {
    asker: Asker,
    owner: Part,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Spawning {
    asker: Asker,
    child: StepKey,
}

fn answer((part, number): Asker, answer: Answer, out: &mut Out) {
    out.push((part, ToPmix::Answer { number, answer }));
}

fn refuse(asker: Asker, why: Refused, out: &mut Out) {
    answer(asker, Answer::Refused(why), out);
}

impl Published {
    /// Takes in names, if there is room for all of them.
    fn add(
        &mut self,
        (part, user, rank): (Part, UserId, u32),
        names: Vec<(ByteBuf, Value)>,
        once: bool,
    ) -> Result<(), Refused> {
        let job = part.launch.job;
        let mut given: Vec<&ByteBuf> = names.iter().map(|(name, _)| name).collect();
        given.sort_unstable();
        given.dedup();
        let is_taken = |name: &&ByteBuf| self.has(job, name);
        if given.len() < names.len() || given.iter().any(is_taken) {
            return Err(Refused::Taken);
        }
        let more: usize = names.iter().map(|(name, value)| published_bytes(name, value)).sum();
        let of_job = self.of_job.get(&job).copied().unwrap_or(0) + names.len();
        let of_user = self.of_user.get(&user).copied().unwrap_or(0) + more;
        if of_job > NAMES_PER_JOB_MAX || of_user > NAMES_USER_BYTES_MAX {
            return Err(Refused::NoRoom);
        }
        if !names.is_empty() {
            self.of_job.insert(job, of_job);
            self.of_user.insert(user, of_user);
        }
        for (name, value) in names {
            self.names.insert((job, name), Name { part, user, rank, value, once });
        }
        Ok(())
    }

    fn has(&self, job: JobId, name: &ByteBuf) -> bool {
        self.get(job, name).is_some()
    }

    fn get(&self, job: JobId, name: &ByteBuf) -> Option<&Name> {
        self.names.get(&(job, name.clone()))
    }

    /// Takes back those of a step's names that are meant; which.
    fn take_back(
        &mut self,
        step: StepKey,
        is_meant: impl Fn(&ByteBuf, &Name) -> bool,
    ) -> Vec<ByteBuf> {
        let of_job = self.names.range((step.job, ByteBuf::new())..);
        let of_job = of_job.take_while(|((job, _), _)| *job == step.job);
        let meant = of_job.filter(|((_, name), it)| it.part.step() == step && is_meant(name, it));
        let meant: Vec<ByteBuf> = meant.map(|((_, name), _)| name.clone()).collect();
        meant.iter().for_each(|name| self.remove(step.job, name));
        meant
    }

    fn remove(&mut self, job: JobId, name: &ByteBuf) {
        let key = (job, name.clone());
        let Some(gone) = self.names.remove(&key) else { return };
        subtract(&mut self.of_job, job, 1);
        subtract(&mut self.of_user, gone.user, published_bytes(name, &gone.value));
    }
}

impl Lookups {
    fn add(&mut self, lookup: Lookup) {
        let (job, number) = (lookup.asker.0.launch.job, self.so_far);
        self.so_far += 1;
        for name in &lookup.names {
            self.by_name.entry((job, name.clone())).or_default().insert(number);
        }
        self.due.insert((lookup.until_ns, number));
        self.all.insert(number, lookup);
    }

    fn remove(&mut self, number: u64) -> Option<Lookup> {
        let lookup = self.all.remove(&number)?;
        self.due.remove(&(lookup.until_ns, number));
        for name in &lookup.names {
            let key = (lookup.asker.0.launch.job, name.clone());
            if let Some(numbers) = self.by_name.get_mut(&key) {
                numbers.remove(&number);
                if numbers.is_empty() {
                    self.by_name.remove(&key);
                }
            }
        }
        Some(lookup)
    }

    /// A name of a job is published, or is not any more. The lookups that miss nothing now.
    fn note(&mut self, job: JobId, name: &ByteBuf, is_there: bool) -> Vec<u64> {
        let mut whole = Vec::new();
        for number in self.by_name.get(&(job, name.clone())).into_iter().flatten() {
            let Some(lookup) = self.all.get_mut(number) else { continue };
            if !is_there {
                lookup.missing += 1;
                continue;
            }
            lookup.missing = lookup.missing.saturating_sub(1);
            if lookup.missing == 0 {
                whole.push(*number);
            }
        }
        whole
    }
}

/// Length of what is published under a name.
fn published_bytes(name: &ByteBuf, value: &Value) -> usize {
    name.len() + value.bytes.len()
}

/// Length of what a step says in a meeting.
fn meeting_bytes(members: &[Members], data: &ByteBuf) -> usize {
    members_bytes(members) + data.len()
}

/// Takes something away from a sum. What has none left is forgotten.
fn subtract<K: Ord>(sums: &mut BTreeMap<K, usize>, key: K, less: usize) {
    if let Some(sum) = sums.get_mut(&key) {
        *sum = sum.saturating_sub(less);
        if *sum == 0 {
            sums.remove(&key);
        }
    }
}

impl Hub {
    /// The PMIx server of a part is ready: the other steps of the job learn of its step, and it of
    /// theirs.
    pub fn add(&mut self, part: Part, user: UserId, space: PmixSpace, out: &mut Out) {
        let step = part.step();
        if self.steps.get(&step).is_some_and(|served| served.launch != part.launch) {
            self.remove_step(step, out);
        }
        let is_new = !self.steps.contains_key(&step);
        let served = self.steps.entry(step).or_insert_with(|| Served {
            launch: part.launch,
            user,
            space,
            joined: BTreeSet::new(),
            left: BTreeSet::new(),
        });
        served.joined.insert(part.node);
        served.left.remove(&part.node);
        if is_new {
            self.introduce(step, out);
        }
        self.answer_spawns(step, out);
    }

    /// A step is new: all parts of its job's other steps hear of it, and all of its own of those.
    fn introduce(&self, step: StepKey, out: &mut Out) {
        let Some(served) = self.steps.get(&step) else { return };
        for (_, other) in self.of_job(step.job).filter(|(other, _)| **other != step) {
            let others = other.parts().filter(|it| !other.left.contains(&it.node));
            out.extend(others.map(|it| (it, ToPmix::Space(served.space.clone()))));
            out.extend(served.parts().map(|it| (it, ToPmix::Space(other.space.clone()))));
        }
    }

    /// Answers the spawns of a step that is served as a whole.
    fn answer_spawns(&mut self, step: StepKey, out: &mut Out) {
        let Some(served) = self.steps.get(&step).filter(|served| served.is_whole()) else { return };
        let name = served.space.name.clone();
        self.spawns.retain(|it| {
            if it.child == step {
                answer(it.asker, Answer::Started(name.clone()), out);
            }
            it.child != step
        });
    }

    /// A part has ended, or its PMIx server has: what waits for it is dropped, and others wait for
    /// it no more. With the last of a step, the step is gone.
    pub fn remove(&mut self, part: Part, out: &mut Out) {
        let step = part.step();
        let Some(served) = self.steps.get_mut(&step).filter(|it| it.launch == part.launch) else {
            return self.fail_child(step, out);
        };
        if !served.joined.contains(&part.node) {
            return self.fail_child(step, out);
        }
        served.left.insert(part.node);
        if served.left == served.joined {
            return self.remove_step(step, out);
        }
        self.fail_child(step, out);
        self.drop_waiting(|it| *it == part, out);
    }

    /// A node is out of reach, or its keeper is another one: so is all that a launch of a job has
    /// there.
    pub fn remove_node(&mut self, (job, number): (JobId, u32), node: NodeId, out: &mut Out) {
        let of_launch = self.of_job(job).filter(|(_, it)| it.launch.number == number);
        let parts = of_launch.filter(|(_, it)| it.joined.contains(&node));
        let parts = parts.map(|(_, it)| Part { launch: it.launch, node });
        for part in parts.collect::<Vec<_>>() {
            self.remove(part, out);
        }
        let is_there =
            |it: &Part| (it.launch.job, it.launch.number, it.node) == (job, number, node);
        self.drop_waiting(is_there, out);
    }

    /// All of a step has ended.
    fn remove_step(&mut self, step: StepKey, out: &mut Out) {
        self.fail_child(step, out);
        let Some(served) = self.steps.remove(&step) else { return };
        for name in self.published.take_back(step, |_, _| true) {
            self.lookups.note(step.job, &name, false);
        }
        self.silent.retain(|_, it| it.parent != step);
        self.drop_waiting(|it| it.step() == step, out);
        for (_, other) in self.of_job(step.job) {
            let each = other.parts().filter(|it| !other.left.contains(&it.node));
            let gone = || ToPmix::Gone { space: served.space.name.clone() };
            out.extend(each.map(|it| (it, gone())));
        }
    }

    /// Parts are gone: what they have asked for is dropped, and what others wait for is refused.
    fn drop_waiting(&mut self, is_gone: impl Fn(&Part) -> bool, out: &mut Out) {
        let of_them = self.lookups.all.iter().filter(|(_, it)| is_gone(&it.asker.0));
        for number in of_them.map(|(number, _)| *number).collect::<Vec<_>>() {
            let Some(lookup) = self.lookups.remove(number) else { continue };
            subtract(&mut self.waiting, lookup.asker.0.step(), lookup.bytes);
        }
        self.spawns.retain(|it| !is_gone(&it.asker.0));
        let waiting = &mut self.waiting;
        self.meetings.retain(|it| {
            let is_over = it.parts.iter().any(&is_gone);
            if is_over {
                it.came.iter().for_each(|(asker, data)| {
                    subtract(waiting, asker.0.step(), meeting_bytes(&it.members, data));
                });
                let others = it.came.iter().filter(|(asker, _)| !is_gone(&asker.0));
                others.for_each(|(asker, _)| refuse(*asker, Refused::Ended, out));
            }
            !is_over
        });
        self.fetches.retain(|_, it| {
            let (of_owner, of_asker) = (is_gone(&it.owner), is_gone(&it.asker.0));
            if of_owner && !of_asker {
                refuse(it.asker, Refused::Ended, out);
            }
            !of_owner && !of_asker
        });
    }

    /// The name space of a step whose PMIx server is ready.
    #[must_use]
    pub fn space_of(&self, step: StepKey) -> Option<&str> {
        self.steps.get(&step).map(|served| &*served.space.name)
    }

    /// Takes in a request of a rank. A spawn is not for here.
    pub fn ask(&mut self, asker: Asker, (rank, now_ns): (u32, u64), ask: Ask, out: &mut Out) {
        if !self.serves(&asker.0) {
            return refuse(asker, Refused::Ended, out);
        }
        let bytes = ask.bytes();
        match ask {
            Ask::Publish { names, once } => self.publish(asker, rank, (names, once), out),
            Ask::Lookup { names, wait_s } => {
                let until_ns = wait_s.map(|wait_s| {
                    let wait_s = if wait_s == 0 { WAIT_S_MAX } else { wait_s.min(WAIT_S_MAX) };
                    now_ns.saturating_add(u64::from(wait_s) * 1_000_000_000)
                });
                self.look_up(asker, names, (until_ns, bytes), out);
            }
            Ask::Unpublish { names } => self.unpublish(asker, rank, &names, out),
            Ask::Meet { meeting, members, data } => {
                self.meet(asker, (meeting, members), data, out);
            }
            Ask::Modex { space, rank } => self.fetch(asker, &space, rank, out),
            Ask::Spawn { .. } => refuse(asker, Refused::NotSupported, out),
        }
    }

    /// Whether a part has joined, and has not left.
    fn serves(&self, part: &Part) -> bool {
        let served = self.steps.get(&part.step()).filter(|it| it.launch == part.launch);
        served.is_some_and(|it| it.joined.contains(&part.node) && !it.left.contains(&part.node))
    }

    fn of_job(&self, job: JobId) -> impl Iterator<Item = (&StepKey, &Served)> {
        self.steps.range(StepKey::first(job)..).take_while(move |(step, _)| step.job == job)
    }

    /// The step of a job that has this name space.
    fn named(&self, job: JobId, space: &str) -> Option<&Served> {
        self.of_job(job).map(|(_, served)| served).find(|it| it.space.name == space)
    }

    /// Takes note that something waits for a step; whether there is room.
    fn note_waiting(&mut self, step: StepKey, bytes: usize) -> bool {
        let sum = self.waiting.get(&step).copied().unwrap_or(0) + bytes;
        if sum > WAITING_BYTES_MAX {
            return false;
        }
        self.waiting.insert(step, sum);
        true
    }

    fn publish(
        &mut self,
        asker: Asker,
        rank: u32,
        (names, once): (Vec<(ByteBuf, Value)>, bool),
        out: &mut Out,
    ) {
        let (part, job) = (asker.0, asker.0.launch.job);
        let Some(user) = self.steps.get(&part.step()).map(|served| served.user) else {
            return refuse(asker, Refused::Ended, out);
        };
        let given: Vec<ByteBuf> = names.iter().map(|(name, _)| name.clone()).collect();
        if let Err(why) = self.published.add((part, user, rank), names, once) {
            return refuse(asker, why, out);
        }
        answer(asker, Answer::Done, out);
        let whole = given.iter().flat_map(|name| self.lookups.note(job, name, true));
        let whole: BTreeSet<u64> = whole.collect();
        self.answer_whole(&whole, out);
    }

    /// Answers lookups that miss nothing any more. One that was read once may be missing again.
    fn answer_whole(&mut self, whole: &BTreeSet<u64>, out: &mut Out) {
        let mut left = FOUND_AT_ONCE_BYTES_MAX;
        for number in whole {
            if self.lookups.all.get(number).is_none_or(|it| it.missing > 0) {
                continue;
            }
            let Some(Lookup { asker, names, bytes, .. }) = self.lookups.remove(*number) else {
                continue;
            };
            subtract(&mut self.waiting, asker.0.step(), bytes);
            match left.checked_sub(self.found_bytes(asker.0.launch.job, &names)) {
                Some(rest) => {
                    left = rest;
                    self.answer_lookup(asker, &names, out);
                }
                None => refuse(asker, Refused::NoRoom, out),
            }
        }
    }

    fn unpublish(&mut self, asker: Asker, rank: u32, names: &[ByteBuf], out: &mut Out) {
        let gone = self.published.take_back(asker.0.step(), |name, it| match names {
            [] => it.rank == rank,
            names => names.contains(name),
        });
        for name in &gone {
            self.lookups.note(asker.0.launch.job, name, false);
        }
        match names.is_empty() || !gone.is_empty() {
            true => answer(asker, Answer::Done, out),
            false => refuse(asker, Refused::NotFound, out),
        }
    }

    fn look_up(
        &mut self,
        asker: Asker,
        names: Vec<ByteBuf>,
        (until_ns, bytes): (Option<u64>, usize),
        out: &mut Out,
    ) {
        let job = asker.0.launch.job;
        let missing = names.iter().filter(|name| !self.published.has(job, name));
        let missing = missing.collect::<BTreeSet<_>>().len();
        match until_ns {
            Some(until_ns) if missing > 0 => {
                if !self.note_waiting(asker.0.step(), bytes) {
                    return refuse(asker, Refused::NoRoom, out);
                }
                self.lookups.add(Lookup { asker, names, missing, bytes, until_ns });
            }
            _ => self.answer_lookup(asker, &names, out),
        }
    }

    /// What the answer to a lookup takes, in bytes.
    fn found_bytes(&self, job: JobId, names: &[ByteBuf]) -> usize {
        let found = |name: &ByteBuf| {
            let published = self.published.get(job, name)?;
            let space = self.space_of(published.part.step()).map_or(0, str::len);
            Some(name.len() + published.value.bytes.len() + space + EACH)
        };
        names.iter().filter_map(found).sum()
    }

    fn answer_lookup(&mut self, asker: Asker, names: &[ByteBuf], out: &mut Out) {
        if self.found_bytes(asker.0.launch.job, names) > FOUND_BYTES_MAX {
            return refuse(asker, Refused::NoRoom, out);
        }
        let mut found = Vec::new();
        for name in names {
            let job = asker.0.launch.job;
            let Some(published) = self.published.get(job, name) else { continue };
            let space = self.space_of(published.part.step());
            let space = space.map(String::from).unwrap_or_default();
            let (value, rank) = (published.value.clone(), published.rank);
            let is_gone = published.once;
            found.push(Found { name: name.clone(), value, space, rank });
            if is_gone {
                self.published.remove(job, name);
                self.lookups.note(job, name, false);
            }
        }
        match found.is_empty() {
            true => refuse(asker, Refused::NotFound, out),
            false => answer(asker, Answer::Found(found), out),
        }
    }

    /// The parts of steps with these members, the members in one order: all parts name the same.
    fn parts_of(&self, asker: Part, members: &mut Vec<Members>) -> Result<BTreeSet<Part>, Refused> {
        let job = asker.launch.job;
        if members.len() > self.of_job(job).count() {
            return Err(Refused::Invalid);
        }
        let named = self.of_job(job).map(|(_, it)| (&*it.space.name, it));
        let named: BTreeMap<&str, &Served> = named.collect();
        let (mut parts, mut steps) = (BTreeSet::new(), BTreeSet::new());
        for of_step in &mut *members {
            let served = *named.get(&*of_step.space).ok_or(Refused::NotFound)?;
            of_step.ranks.sort_unstable();
            of_step.ranks.dedup();
            let is_all = of_step.ranks.iter().copied().eq(0..served.tasks());
            if is_all || of_step.ranks.contains(&ALL_RANKS) {
                of_step.ranks = [ALL_RANKS].into();
            }
            let of_it = served.parts_with(&of_step.ranks);
            if of_it.is_empty() {
                return Err(Refused::NotFound);
            }
            if of_it.iter().any(|part| served.left.contains(&part.node)) {
                return Err(Refused::Ended);
            }
            parts.extend(of_it);
            steps.insert(served.launch);
        }
        let is_twice = steps.len() < members.len();
        members.sort_unstable();
        match parts.contains(&asker) && !is_twice {
            true => Ok(parts),
            false => Err(Refused::Invalid),
        }
    }

    fn meet(
        &mut self,
        asker: Asker,
        (meeting, mut members): (Meeting, Vec<Members>),
        data: ByteBuf,
        out: &mut Out,
    ) {
        let parts = match self.parts_of(asker.0, &mut members) {
            Ok(parts) => parts,
            Err(why) => return refuse(asker, why, out),
        };
        // As it is kept: in one order.
        let bytes = meeting_bytes(&members, &data);
        if !self.note_waiting(asker.0.step(), bytes) {
            return refuse(asker, Refused::NoRoom, out);
        }
        let is_it = |it: &Gathering| {
            (it.job, it.meeting) == (asker.0.launch.job, meeting)
                && it.members == members
                && it.came.iter().all(|(came, _)| came.0 != asker.0)
        };
        let at = self.meetings.iter().position(is_it).unwrap_or_else(|| {
            let (job, came) = (asker.0.launch.job, Vec::new());
            self.meetings.push(Gathering { job, meeting, members, parts, came });
            self.meetings.len() - 1
        });
        let Some(gathering) = self.meetings.get_mut(at) else { return };
        gathering.came.push((asker, data));
        if gathering.came.len() < gathering.parts.len() {
            return;
        }
        let gathering = self.meetings.remove(at);
        for (asker, data) in &gathering.came {
            let bytes = meeting_bytes(&gathering.members, data);
            subtract(&mut self.waiting, asker.0.step(), bytes);
        }
        // Numbers that count up are those of the library's own communicators.
        let group = u32::MAX - self.groups_so_far;
        if matches!(meeting, Meeting::Group(_)) {
            self.groups_so_far = self.groups_so_far.wrapping_add(1) % GROUPS_MAX;
        }
        let all: Vec<u8> = gathering.came.iter().flat_map(|(_, it)| it.iter().copied()).collect();
        for (asker, _) in gathering.came {
            match meeting {
                Meeting::Fence | Meeting::Group(_) if all.len() > MODEX_BYTES_MAX => {
                    refuse(asker, Refused::NoRoom, out);
                }
                Meeting::Fence => answer(asker, Answer::Data(all.clone().into()), out),
                Meeting::Connect | Meeting::Disconnect => answer(asker, Answer::Done, out),
                Meeting::Group(_) => {
                    let data = all.clone().into();
                    answer(asker, Answer::Group { number: group, data }, out);
                }
            }
        }
    }

    fn fetch(&mut self, asker: Asker, space: &str, rank: u32, out: &mut Out) {
        let found = self.named(asker.0.launch.job, space);
        // The library would wait for ever for a rank that its server does not serve.
        let owner = found.and_then(|served| Some((served.part_of(rank)?, served)));
        let Some((owner, served)) = owner else { return refuse(asker, Refused::NotFound, out) };
        if served.left.contains(&owner.node) {
            return refuse(asker, Refused::Ended, out);
        }
        let mut number = self.fetches_so_far;
        while self.fetches.contains_key(&number) {
            number = number.wrapping_add(1);
        }
        self.fetches_so_far = number.wrapping_add(1);
        self.fetches.insert(number, Fetch { asker, owner });
        out.push((owner, ToPmix::Fetch { number, rank }));
    }

    /// A PMIx server has answered [`ToPmix::Fetch`]. What was not asked of it is dropped.
    pub fn fetched(&mut self, part: Part, number: u32, data: Option<ByteBuf>, out: &mut Out) {
        if self.fetches.get(&number).is_none_or(|fetch| fetch.owner != part) {
            return;
        }
        let Some(fetch) = self.fetches.remove(&number) else { return };
        match data {
            Some(data) => answer(fetch.asker, Answer::Data(data), out),
            None => refuse(fetch.asker, Refused::NotFound, out),
        }
    }

    /// A spawn was accepted: it is answered when the new step is served on all of its nodes.
    pub fn await_child(&mut self, asker: Asker, child: StepId, out: &mut Out) {
        let child = StepKey { job: asker.0.launch.job, step: child };
        self.spawns.push(Spawning { asker, child });
        self.answer_spawns(child, out);
    }

    /// The tasks of a spawned step will never begin, if they have not.
    pub fn fail_child(&mut self, child: StepKey, out: &mut Out) {
        self.spawns.retain(|it| {
            if it.child == child {
                refuse(it.asker, Refused::Ended, out);
            }
            it.child != child
        });
    }

    /// So many of the `size` tasks of a spawned step have ended without a word, one of them with
    /// this status. If no other is left, the part that has the rank which has spawned them, and
    /// the status of one that failed.
    pub fn note_silent(
        &mut self,
        (child, parent, rank): (StepKey, StepId, u32),
        (tasks, size): (u32, u32),
        code: u8,
    ) -> Option<(Part, u8)> {
        let parent = StepKey { job: child.job, step: parent };
        let part = self.steps.get(&parent)?.part_of(rank)?;
        let new = Silent { parent, tasks: 0, code: 0 };
        let silent = self.silent.entry(child).or_insert(new);
        silent.tasks = silent.tasks.saturating_add(tasks);
        silent.code = if silent.code == 0 { code } else { silent.code };
        if silent.tasks < size {
            return None;
        }
        self.silent.remove(&child).map(|silent| (part, silent.code))
    }

    /// When a wait for a name is over, in monotonic time.
    #[must_use]
    pub fn due_ns(&self) -> Option<u64> {
        self.lookups.due.first().map(|(until_ns, _)| *until_ns)
    }

    /// Refuses what has waited too long.
    pub fn look(&mut self, now_ns: u64, out: &mut Out) {
        while let Some(&(until_ns, number)) = self.lookups.due.first() {
            if until_ns > now_ns {
                return;
            }
            let Some(late) = self.lookups.remove(number) else { return };
            subtract(&mut self.waiting, late.asker.0.step(), late.bytes);
            refuse(late.asker, Refused::Late, out);
        }
    }

    /// Whether nothing is known or waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
            && self.published.names.is_empty()
            && self.lookups.all.is_empty()
            && self.meetings.is_empty()
            && self.fetches.is_empty()
            && self.spawns.is_empty()
            && self.silent.is_empty()
    }
}

#[cfg(test)]
mod tests;
