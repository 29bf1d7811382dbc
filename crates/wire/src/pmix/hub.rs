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
};
use super::{PmixSpace, ToPmix};
use alloc::collections::BTreeMap;
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

/// The PMIx servers of a node's jobs, and what they have asked for.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Hub {
    steps: BTreeMap<StepKey, Served>,
    names: BTreeMap<(JobId, ByteBuf), Name>,
    lookups: Vec<Lookup>,
    meetings: Vec<Gathering>,
    fetches: BTreeMap<u32, Fetch>,
    fetches_so_far: u32,
    spawns: Vec<Spawning>,
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
    bytes: usize,
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
        self.names.retain(|_, name| name.step != step);
        self.lookups.retain(|it| it.asker.0 != step);
        self.spawns.retain(|it| it.asker.0 != step);
        self.meetings.retain(|it| {
            let is_over = it.steps.contains(&step);
            if is_over {
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
            Ask::Publish { names, once } => {
                match self.publish(asker.0, rank, names, once) {
                    Ok(()) => answer(asker, Answer::Done, out),
                    Err(why) => refuse(asker, why, out),
                }
                self.look_up_again(asker.0.job, out);
            }
            Ask::Lookup { names, wait_s } => {
                let until_ns = wait_s.map(|wait_s| {
                    let wait_s = if wait_s == 0 { WAIT_S_MAX } else { wait_s.min(WAIT_S_MAX) };
                    now_ns.saturating_add(u64::from(wait_s) * 1_000_000_000)
                });
                self.look_up(asker, names, (until_ns, bytes), out);
            }
            Ask::Unpublish { names } => self.unpublish(asker, rank, &names, out),
            Ask::Meet { meeting, members, data } => {
                self.meet(asker, (meeting, members), (data, bytes), out);
            }
            Ask::Modex { space, rank } => self.fetch(asker, &space, rank, out),
            Ask::Spawn { .. } => refuse(asker, Refused::NotSupported, out),
        }
    }

    fn of_job(&self, job: JobId) -> impl Iterator<Item = (&StepKey, &Served)> {
        self.steps.iter().filter(move |(step, _)| step.job == job)
    }

    /// The step of a job that has this name space.
    fn named(&self, job: JobId, space: &str) -> Option<(StepKey, &Served)> {
        let mut of_job = self.of_job(job);
        of_job.find(|(_, it)| it.space.name == space).map(|(step, served)| (*step, served))
    }

    /// What waits for a step, in bytes.
    fn waiting_bytes(&self, step: StepKey) -> usize {
        let lookups = self.lookups.iter().filter(|it| it.asker.0 == step).map(|it| it.bytes);
        let is_its = |it: &&Gathering| it.came.iter().any(|(asker, _)| asker.0 == step);
        let meetings = self.meetings.iter().filter(is_its).map(|it| it.bytes);
        lookups.chain(meetings).sum()
    }

    fn publish(
        &mut self,
        step: StepKey,
        rank: u32,
        names: Vec<(ByteBuf, Value)>,
        once: bool,
    ) -> Result<(), Refused> {
        let job = step.job;
        let user = self.steps.get(&step).map(|served| served.user).ok_or(Refused::Ended)?;
        let mut given: Vec<&ByteBuf> = names.iter().map(|(name, _)| name).collect();
        given.sort_unstable();
        given.dedup();
        let is_taken = |name: &&ByteBuf| self.names.contains_key(&(job, (*name).clone()));
        if given.len() < names.len() || given.iter().any(is_taken) {
            return Err(Refused::Taken);
        }
        let size = |name: &ByteBuf, value: &Value| name.len() + value.bytes.len();
        let is_users = |name: &Name| self.steps.get(&name.step).is_some_and(|it| it.user == user);
        let of_user = self.names.iter().filter(|(_, it)| is_users(it));
        let of_user: usize = of_user.map(|((_, name), it)| size(name, &it.value)).sum();
        let more: usize = names.iter().map(|(name, value)| size(name, value)).sum();
        let of_job = self.names.keys().filter(|(of, _)| *of == job).count();
        if of_job + names.len() > NAMES_PER_JOB_MAX || of_user + more > NAMES_USER_BYTES_MAX {
            return Err(Refused::NoRoom);
        }
        for (name, value) in names {
            self.names.insert((job, name), Name { step, rank, value, once });
        }
        Ok(())
    }

    fn unpublish(&mut self, asker: Asker, rank: u32, names: &[ByteBuf], out: &mut Out) {
        let before = self.names.len();
        self.names.retain(|(job, name), it| {
            let is_meant = match names {
                [] => it.rank == rank,
                names => names.contains(name),
            };
            *job != asker.0.job || it.step != asker.0 || !is_meant
        });
        match names.is_empty() || self.names.len() < before {
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
        let is_there = |name: &ByteBuf| self.names.contains_key(&(asker.0.job, name.clone()));
        match until_ns {
            Some(until_ns) if !names.iter().all(is_there) => {
                if self.waiting_bytes(asker.0) + bytes > WAITING_BYTES_MAX {
                    return refuse(asker, Refused::NoRoom, out);
                }
                self.lookups.push(Lookup { asker, names, bytes, until_ns });
            }
            _ => self.answer_lookup(asker, &names, out),
        }
    }

    /// What the answer to a lookup takes, in bytes.
    fn found_bytes(&self, job: JobId, names: &[ByteBuf]) -> usize {
        let found = |name: &ByteBuf| {
            let published = self.names.get(&(job, name.clone()))?;
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
            let key = (asker.0.job, name.clone());
            let Some(published) = self.names.get(&key) else { continue };
            let space = self.space_of(published.step).map(String::from).unwrap_or_default();
            let (value, rank) = (published.value.clone(), published.rank);
            found.push(Found { name: name.clone(), value, space, rank });
            if published.once {
                self.names.remove(&key);
            }
        }
        match found.is_empty() {
            true => refuse(asker, Refused::NotFound, out),
            false => answer(asker, Answer::Found(found), out),
        }
    }

    /// Answers the lookups of a job that wait for names which are there now.
    fn look_up_again(&mut self, job: JobId, out: &mut Out) {
        let (mut at, mut left) = (0, FOUND_AT_ONCE_BYTES_MAX);
        while let Some(lookup) = self.lookups.get(at) {
            let is_there = |name: &ByteBuf| self.names.contains_key(&(job, name.clone()));
            if lookup.asker.0.job == job && lookup.names.iter().all(is_there) {
                let Lookup { asker, names, .. } = self.lookups.remove(at);
                match left.checked_sub(self.found_bytes(job, &names)) {
                    Some(rest) => {
                        left = rest;
                        self.answer_lookup(asker, &names, out);
                    }
                    None => refuse(asker, Refused::NoRoom, out),
                }
            } else {
                at += 1;
            }
        }
    }

    /// The steps of these members, the members in one order: those of all steps name the same.
    fn steps_of(&self, step: StepKey, members: &mut Vec<Members>) -> Result<Vec<StepKey>, Refused> {
        if members.len() > self.of_job(step.job).count() {
            return Err(Refused::Invalid);
        }
        let mut steps = Vec::new();
        for of_step in &mut *members {
            let found = self.named(step.job, &of_step.space);
            let (other, served) = found.ok_or(Refused::NotFound)?;
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
        (data, bytes): (ByteBuf, usize),
        out: &mut Out,
    ) {
        let steps = match self.steps_of(asker.0, &mut members) {
            Ok(steps) => steps,
            Err(why) => return refuse(asker, why, out),
        };
        if self.waiting_bytes(asker.0) + bytes > WAITING_BYTES_MAX {
            return refuse(asker, Refused::NoRoom, out);
        }
        let is_it = |it: &Gathering| {
            (it.job, it.meeting) == (asker.0.job, meeting)
                && it.members == members
                && it.came.iter().all(|(came, _)| came.0 != asker.0)
        };
        let at = self.meetings.iter().position(is_it).unwrap_or_else(|| {
            let (job, came) = (asker.0.job, Vec::new());
            self.meetings.push(Gathering { job, meeting, members, steps, came, bytes: 0 });
            self.meetings.len() - 1
        });
        let Some(gathering) = self.meetings.get_mut(at) else { return };
        gathering.came.push((asker, data));
        gathering.bytes += bytes;
        if gathering.came.len() < gathering.steps.len() {
            return;
        }
        let gathering = self.meetings.remove(at);
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
        self.lookups.iter().map(|it| it.until_ns).min()
    }

    /// Refuses what has waited too long.
    pub fn look(&mut self, now_ns: u64, out: &mut Out) {
        self.lookups.retain(|it| {
            if it.until_ns <= now_ns {
                refuse(it.asker, Refused::Late, out);
            }
            it.until_ns > now_ns
        });
    }

    /// Whether nothing is known or waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
            && self.names.is_empty()
            && self.lookups.is_empty()
            && self.meetings.is_empty()
            && self.fetches.is_empty()
            && self.spawns.is_empty()
    }
}

#[cfg(test)]
mod tests;
