//! What the steps of a job ask of each other by PMIx, on the node that they share.
//!
//! Each step has a PMIx server of its own, which knows its own tasks. What goes beyond them goes to
//! the keeper, which holds one [`Hub`] for all jobs of its node: published names, meetings of ranks
//! of several steps, and requests for what a rank of another step has said of itself. All of it
//! belongs to a job: no step finds anything of another job.
//!
//! What waits belongs to a step, and is answered or dropped when the step ends.

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
use tutti_types::{JobId, StepKey, UserId};

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

/// Maximum time of a wait for a name, in seconds.
const WAIT_S_MAX: u32 = 600;

/// Messages for PMIx servers, in order.
pub type Out = Vec<(StepKey, ToPmix)>;

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

/// The PMIx servers of a node's jobs, and what they have asked for.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Hub {
    steps: BTreeMap<StepKey, Served>,
    published: Published,
    lookups: Lookups,
    meetings: Vec<Gathering>,
    fetches: BTreeMap<u32, Fetch>,
    fetches_so_far: u32,
    spawns: Vec<Spawning>,
    /// Length of what waits for each step.
    waiting: BTreeMap<StepKey, usize>,
}

/// A step whose PMIx server is ready.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Served {
    user: UserId,
    space: PmixSpace,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Name {
    step: StepKey,
    user: UserId,
    rank: u32,
    value: Value,
    once: bool,
}

/// A request that waits: the step, and the number of the request there.
type Asker = (StepKey, u32);

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
    steps: Vec<StepKey>,
    came: Vec<(Asker, ByteBuf)>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Fetch {
    asker: Asker,
    owner: StepKey,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Spawning {
    asker: Asker,
    child: StepKey,
}

fn answer((step, number): Asker, answer: Answer, out: &mut Out) {
    out.push((step, ToPmix::Answer { number, answer }));
}

fn refuse(asker: Asker, why: Refused, out: &mut Out) {
    answer(asker, Answer::Refused(why), out);
}

/// Whether a rank of a step is on this node.
fn serves(space: &PmixSpace, rank: u32) -> bool {
    let node = space.node as usize;
    let before = space.nodes.iter().take(node);
    let first: u64 = before.map(|node| u64::from(node.tasks)).sum();
    let tasks = space.nodes.get(node).map_or(0, |node| u64::from(node.tasks));
    rank == ALL_RANKS || (first..first + tasks).contains(&u64::from(rank))
}

impl Published {
    /// Takes in names, if there is room for all of them.
    fn add(
        &mut self,
        (step, user, rank): (StepKey, UserId, u32),
        names: Vec<(ByteBuf, Value)>,
        once: bool,
    ) -> Result<(), Refused> {
        let job = step.job;
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
            self.names.insert((job, name), Name { step, user, rank, value, once });
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
        let meant = of_job.filter(|((_, name), it)| it.step == step && is_meant(name, it));
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
        let (job, number) = (lookup.asker.0.job, self.so_far);
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
            let key = (lookup.asker.0.job, name.clone());
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
    /// The PMIx server of a step is ready: the others of the job learn of the step, and it of
    /// theirs.
    pub fn add(&mut self, step: StepKey, user: UserId, space: PmixSpace, out: &mut Out) {
        for (&other, served) in self.of_job(step.job) {
            out.push((other, ToPmix::Space(space.clone())));
            out.push((step, ToPmix::Space(served.space.clone())));
        }
        let name = space.name.clone();
        self.steps.insert(step, Served { user, space });
        self.spawns.retain(|it| {
            if it.child == step {
                answer(it.asker, Answer::Started(name.clone()), out);
            }
            it.child != step
        });
    }

    /// A step has ended, or its PMIx server has: all that is its own is dropped, and others wait
    /// for it no more.
    pub fn remove(&mut self, step: StepKey, out: &mut Out) {
        self.fail_child(step, out);
        let Some(served) = self.steps.remove(&step) else { return };
        for name in self.published.take_back(step, |_, _| true) {
            self.lookups.note(step.job, &name, false);
        }
        let of_step = self.lookups.all.iter().filter(|(_, it)| it.asker.0 == step);
        for number in of_step.map(|(number, _)| *number).collect::<Vec<_>>() {
            self.lookups.remove(number);
        }
        self.spawns.retain(|it| it.asker.0 != step);
        let waiting = &mut self.waiting;
        self.meetings.retain(|it| {
            let is_over = it.steps.contains(&step);
            if is_over {
                it.came.iter().for_each(|(asker, data)| {
                    subtract(waiting, asker.0, meeting_bytes(&it.members, data));
                });
                let others = it.came.iter().filter(|(asker, _)| asker.0 != step);
                others.for_each(|(asker, _)| refuse(*asker, Refused::Ended, out));
            }
            !is_over
        });
        self.fetches.retain(|_, it| {
            if it.owner == step && it.asker.0 != step {
                refuse(it.asker, Refused::Ended, out);
            }
            it.owner != step && it.asker.0 != step
        });
        self.waiting.remove(&step);
        for (&other, _) in self.of_job(step.job) {
            out.push((other, ToPmix::Gone { space: served.space.name.clone() }));
        }
    }

    /// The name space of a step whose PMIx server is ready.
    #[must_use]
    pub fn space_of(&self, step: StepKey) -> Option<&str> {
        self.steps.get(&step).map(|served| &*served.space.name)
    }

    /// Takes in a request of a rank. A spawn is not for here.
    pub fn ask(&mut self, asker: Asker, (rank, now_ns): (u32, u64), ask: Ask, out: &mut Out) {
        if !self.steps.contains_key(&asker.0) {
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

    fn of_job(&self, job: JobId) -> impl Iterator<Item = (&StepKey, &Served)> {
        self.steps.range(StepKey::first(job)..).take_while(move |(step, _)| step.job == job)
    }

    /// The step of a job that has this name space.
    fn named(&self, job: JobId, space: &str) -> Option<(StepKey, &Served)> {
        let mut of_job = self.of_job(job);
        of_job.find(|(_, it)| it.space.name == space).map(|(step, served)| (*step, served))
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
        let (step, job) = (asker.0, asker.0.job);
        let Some(user) = self.steps.get(&step).map(|served| served.user) else {
            return refuse(asker, Refused::Ended, out);
        };
        let given: Vec<ByteBuf> = names.iter().map(|(name, _)| name.clone()).collect();
        if let Err(why) = self.published.add((step, user, rank), names, once) {
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
            subtract(&mut self.waiting, asker.0, bytes);
            match left.checked_sub(self.found_bytes(asker.0.job, &names)) {
                Some(rest) => {
                    left = rest;
                    self.answer_lookup(asker, &names, out);
                }
                None => refuse(asker, Refused::NoRoom, out),
            }
        }
    }

    fn unpublish(&mut self, asker: Asker, rank: u32, names: &[ByteBuf], out: &mut Out) {
        let gone = self.published.take_back(asker.0, |name, it| match names {
            [] => it.rank == rank,
            names => names.contains(name),
        });
        for name in &gone {
            self.lookups.note(asker.0.job, name, false);
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
        let missing = names.iter().filter(|name| !self.published.has(asker.0.job, name));
        let missing = missing.collect::<BTreeSet<_>>().len();
        match until_ns {
            Some(until_ns) if missing > 0 => {
                if !self.note_waiting(asker.0, bytes) {
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
            let space = self.space_of(published.step).map_or(0, str::len);
            Some(name.len() + published.value.bytes.len() + space + EACH)
        };
        names.iter().filter_map(found).sum()
    }

    fn answer_lookup(&mut self, asker: Asker, names: &[ByteBuf], out: &mut Out) {
        if self.found_bytes(asker.0.job, names) > FOUND_BYTES_MAX {
            return refuse(asker, Refused::NoRoom, out);
        }
        let mut found = Vec::new();
        for name in names {
            let job = asker.0.job;
            let Some(published) = self.published.get(job, name) else { continue };
            let space = self.space_of(published.step).map(String::from).unwrap_or_default();
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

    /// The steps of these members, the members in one order: those of all steps name the same.
    fn steps_of(&self, step: StepKey, members: &mut Vec<Members>) -> Result<Vec<StepKey>, Refused> {
        if members.len() > self.of_job(step.job).count() {
            return Err(Refused::Invalid);
        }
        let named = self.of_job(step.job).map(|(step, it)| (&*it.space.name, (*step, it)));
        let named: BTreeMap<&str, (StepKey, &Served)> = named.collect();
        let mut steps = Vec::new();
        for of_step in &mut *members {
            let (other, served) = *named.get(&*of_step.space).ok_or(Refused::NotFound)?;
            let [node] = &served.space.nodes[..] else { return Err(Refused::NotSupported) };
            of_step.ranks.sort_unstable();
            of_step.ranks.dedup();
            let is_all = of_step.ranks.iter().copied().eq(0..node.tasks);
            if is_all || of_step.ranks.contains(&ALL_RANKS) {
                of_step.ranks = [ALL_RANKS].into();
            }
            steps.push(other);
        }
        members.sort_unstable();
        let count = steps.len();
        steps.sort_unstable();
        steps.dedup();
        match steps.contains(&step) && steps.len() == count {
            true => Ok(steps),
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
        let steps = match self.steps_of(asker.0, &mut members) {
            Ok(steps) => steps,
            Err(why) => return refuse(asker, why, out),
        };
        // As it is kept: in one order.
        let bytes = meeting_bytes(&members, &data);
        if !self.note_waiting(asker.0, bytes) {
            return refuse(asker, Refused::NoRoom, out);
        }
        let is_it = |it: &Gathering| {
            (it.job, it.meeting) == (asker.0.job, meeting)
                && it.members == members
                && it.came.iter().all(|(came, _)| came.0 != asker.0)
        };
        let at = self.meetings.iter().position(is_it).unwrap_or_else(|| {
            let (job, came) = (asker.0.job, Vec::new());
            self.meetings.push(Gathering { job, meeting, members, steps, came });
            self.meetings.len() - 1
        });
        let Some(gathering) = self.meetings.get_mut(at) else { return };
        gathering.came.push((asker, data));
        if gathering.came.len() < gathering.steps.len() {
            return;
        }
        let gathering = self.meetings.remove(at);
        for (asker, data) in &gathering.came {
            subtract(&mut self.waiting, asker.0, meeting_bytes(&gathering.members, data));
        }
        let all: Vec<u8> = gathering.came.iter().flat_map(|(_, it)| it.iter().copied()).collect();
        for (asker, _) in gathering.came {
            match meeting {
                Meeting::Fence if all.len() > MODEX_BYTES_MAX => {
                    refuse(asker, Refused::NoRoom, out);
                }
                Meeting::Fence => answer(asker, Answer::Data(all.clone().into()), out),
                Meeting::Connect | Meeting::Disconnect => answer(asker, Answer::Done, out),
            }
        }
    }

    fn fetch(&mut self, asker: Asker, space: &str, rank: u32, out: &mut Out) {
        let found = self.named(asker.0.job, space);
        // The library would wait for ever for a rank that its server does not serve.
        let Some((owner, _)) = found.filter(|(_, served)| serves(&served.space, rank)) else {
            return refuse(asker, Refused::NotFound, out);
        };
        let mut number = self.fetches_so_far;
        while self.fetches.contains_key(&number) {
            number = number.wrapping_add(1);
        }
        self.fetches_so_far = number.wrapping_add(1);
        self.fetches.insert(number, Fetch { asker, owner });
        out.push((owner, ToPmix::Fetch { number, rank }));
    }

    /// A PMIx server has answered [`ToPmix::Fetch`]. What was not asked of it is dropped.
    pub fn fetched(&mut self, step: StepKey, number: u32, data: Option<ByteBuf>, out: &mut Out) {
        if self.fetches.get(&number).is_none_or(|fetch| fetch.owner != step) {
            return;
        }
        let Some(fetch) = self.fetches.remove(&number) else { return };
        match data {
            Some(data) => answer(fetch.asker, Answer::Data(data), out),
            None => refuse(fetch.asker, Refused::NotFound, out),
        }
    }

    /// A spawn was accepted: it is answered when the PMIx server of the new step is ready.
    pub fn await_child(&mut self, asker: Asker, child: StepKey, out: &mut Out) {
        match self.space_of(child).map(String::from) {
            Some(space) => answer(asker, Answer::Started(space), out),
            None => self.spawns.push(Spawning { asker, child }),
        }
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
            subtract(&mut self.waiting, late.asker.0, late.bytes);
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
    }
}

#[cfg(test)]
mod tests;
