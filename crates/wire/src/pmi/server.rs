//! The server of one job on one node: what its tasks have stored, and which tasks wait for which.
//!
//! A job on several nodes has a server on each. They meet only at barriers. When the last task of a
//! node has entered one ([`Effect::BarrierComplete`]), the server sends the values that its tasks
//! have stored since, in parts ([`Server::next_part`]). When all nodes have done so, each server
//! gets the values of all of them, in parts too ([`Server::hear`]), and the last part opens the
//! barrier. On one node there is no other server, and the barrier opens at once.
//!
//! All that tasks can make grow here is counted ([`Server::bytes`]) and has one limit,
//! [`STORE_BYTES_MAX`]. Beyond it the job is to be ended ([`Effect::Full`]).

mod exchanges;
mod fences;
mod second;

use super::line::{Command, PmiError, parse_line};
use super::names::{NameError, Names};
use super::spawn::{Collected, Spawning};
use super::{
    BARRIERS_PER_TASK_MAX, KEY_BYTES_MAX, SPACE_NAME_BYTES_MAX, SPACES_MAX, STORE_BYTES_MAX,
    VALUE_BYTES_MAX,
};
use crate::spawn::Spawned;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Bound::{Excluded, Included, Unbounded};
use exchanges::Sent;
use second::{Asked, Second};
use serde::{Deserialize, Serialize};
use tutti_types::{JobId, Rank, UserId};

/// What a server must know of its job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerSpec {
    /// Which job, for the names that it publishes.
    pub job: JobId,
    /// Its owner, likewise.
    pub user: UserId,
    /// Tasks of the whole job.
    pub size: u32,
    /// The ranks of this node's tasks. A task's place in here is its number in all calls.
    pub ranks: Vec<Rank>,
    /// The name of the job's key space: no blanks, and one that no other job on the node has.
    pub space_name: String,
    /// Which ranks share a node (see [`super::process_mapping`]), if that can be said.
    pub process_mapping: Option<String>,
    /// What the tasks find besides, with names that begin with `PMI_`: a file with the hardware's
    /// description as `PMI_hwloc_xmlfile` saves each of them the time to make it.
    pub attributes: Vec<(String, String)>,
    /// How many tasks there could be, with those that these may spawn.
    pub universe: u32,
    /// What these tasks are, if others have spawned them.
    pub spawned: Option<Spawned>,
}

/// What a server asks its keeper to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Send a line, its end included, to a task.
    Reply {
        /// To which.
        task: usize,
        /// The whole line.
        line: Vec<u8>,
    },
    /// A task wants the whole job ended. It gets no answer, and need not end by itself.
    Abort {
        /// Which.
        task: usize,
        /// The status that it wants for the job.
        code: i32,
        /// Why, in one line; may be empty.
        message: String,
    },
    /// A task needs no more of the server; what it does from now on is its own affair.
    Finalized {
        /// Which.
        task: usize,
    },
    /// All tasks of this node have entered a barrier in which other nodes take part.
    BarrierComplete {
        /// Which.
        barrier: Barrier,
    },
    /// The job stores more than [`STORE_BYTES_MAX`]: it is to be ended. Comes once.
    Full {
        /// The task that stored the last of it; the first one if another node's values did.
        task: usize,
    },
    /// A task wants more tasks started, and waits for [`Server::answer_spawn`].
    Spawn {
        /// Which.
        task: usize,
        /// What.
        spawned: Spawned,
    },
    /// A task does not keep to the protocol: close its connection.
    Close {
        /// Which.
        task: usize,
        /// Why.
        error: PmiError,
    },
}

/// One of the barriers that a job's tasks can wait in at the same time.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Barrier {
    /// The ranks that take part.
    pub group: BarrierGroup,
    /// Tells the barriers of one group apart.
    pub tag: u32,
    /// How often the same one has opened before: what is said once more of an earlier one, by a
    /// node that was out of reach, does not count for the next.
    pub round: u32,
}

impl Barrier {
    /// Whether the other is a round of the same.
    #[must_use]
    pub fn is_like(&self, other: &Self) -> bool {
        (&self.group, self.tag) == (&other.group, other.tag)
    }
}

/// The ranks that take part in a barrier.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum BarrierGroup {
    /// All tasks of the job.
    World,
    /// The tasks of each node among themselves.
    Node,
    /// Some ranks.
    Ranks(BTreeSet<Rank>),
}

/// How far a task is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum TaskState {
    /// It has not said a word. If none of several tasks ever does, they are no MPI program, or one
    /// of a library that expects another interface and runs them as so many jobs of one.
    #[default]
    Silent,
    /// It has begun.
    Begun,
    /// It has said that it is done.
    Finalized,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Task {
    state: TaskState,
    /// Whether it has given a command.
    has_spoken: bool,
    /// Barriers that it waits in.
    waiting: u32,
    /// The tasks that it wants started.
    spawning: Spawning,
    /// What it waits for, if it speaks PMI-2.
    second: Option<Asked>,
    /// The index that it has asked for last with [`Command::GetByIndex`], and the key there.
    cursor: Option<(u32, Vec<u8>)>,
}

/// The server of one job on one node. Written as it is for a keeper that takes another's place: a
/// change of it is one of [`crate::handover::FORM`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Server {
    job: JobId,
    user: UserId,
    size: u32,
    ranks: Vec<Rank>,
    space_name: Vec<u8>,
    /// What the job finds without having put it.
    attributes: BTreeMap<Vec<u8>, Vec<u8>>,
    tasks: Vec<Task>,
    spaces: BTreeMap<Vec<u8>, BTreeMap<Vec<u8>, Vec<u8>>>,
    spaces_created: u64,
    /// What all that is counted takes; see [`Server::bytes`].
    bytes: usize,
    /// Whether [`Effect::Full`] has come.
    is_full: bool,
    /// Keys that were put since the last barrier and that the other nodes do not have.
    fresh: BTreeSet<Vec<u8>>,
    /// Barriers that this node has completed, the latest of each group and tag.
    sent: BTreeMap<Barrier, Sent>,
    /// The local tasks that wait.
    barriers: BTreeMap<Barrier, BTreeSet<usize>>,
    /// How often the barriers of each group and tag have opened.
    rounds: BTreeMap<(BarrierGroup, u32), u32>,
    /// How many tasks there could be.
    universe: u32,
    /// How many tasks run each of the programs that were spawned together, in the order of their
    /// ranks.
    programs: Vec<u32>,
    /// What tasks that speak PMI-2 have for each other.
    second: Second,
}

impl Server {
    /// A server of tasks that have not begun.
    #[must_use]
    pub fn new(spec: ServerSpec) -> Self {
        let mut attributes: BTreeMap<Vec<u8>, Vec<u8>> = spec
            .attributes
            .into_iter()
            .map(|(key, value)| (key.into_bytes(), value.into_bytes()))
            .collect();
        if let Some(mapping) = spec.process_mapping {
            attributes.insert(b"PMI_process_mapping".to_vec(), mapping.into_bytes());
        }
        let space_name = spec.space_name.into_bytes();
        let spawned = spec.spawned.unwrap_or_default();
        let preput =
            spawned.preput.into_iter().map(|(key, value)| (key.into_vec(), value.into_vec()));
        let preput: BTreeMap<Vec<u8>, Vec<u8>> = preput.collect();
        let bytes = preput.iter().map(|(key, value)| entry_bytes(key, value)).sum();
        Self {
            job: spec.job,
            user: spec.user,
            size: spec.size,
            tasks: vec![Task::default(); spec.ranks.len()],
            ranks: spec.ranks,
            attributes,
            spaces: BTreeMap::from([(space_name.clone(), preput)]),
            space_name,
            spaces_created: 0,
            bytes,
            is_full: false,
            fresh: BTreeSet::new(),
            sent: BTreeMap::new(),
            barriers: BTreeMap::new(),
            rounds: BTreeMap::new(),
            universe: spec.universe.max(spec.size),
            programs: spawned.programs.iter().map(|program| program.tasks).collect(),
            second: Second::default(),
        }
    }

    /// Takes in one line of a task, and appends what must be done to `out`.
    pub fn handle(&mut self, task: usize, line: &[u8], names: &mut Names, out: &mut Vec<Effect>) {
        if task >= self.tasks.len() {
            out.push(Effect::Close { task, error: PmiError::NoSuchTask { task } });
            return;
        }
        // A program of PMI-1 may follow one of PMI-2.
        if self.tasks[task].second.is_some() && !line.starts_with(b"cmd=init ") {
            return self.handle_second(task, line, names, out);
        }
        match parse_line(line) {
            Ok(command) => {
                self.tasks[task].has_spoken = true;
                self.answer(task, command, names, out);
            }
            Err(error) => out.push(Effect::Close { task, error }),
        }
    }

    /// How far a task is; silent if there is no such task.
    #[must_use]
    pub fn state(&self, task: usize) -> TaskState {
        self.tasks.get(task).map_or(TaskState::Silent, |task| task.state)
    }

    /// Whether a task has given a command.
    #[must_use]
    pub fn has_spoken(&self, task: usize) -> bool {
        self.tasks.get(task).is_some_and(|task| task.has_spoken)
    }

    /// What the job makes this server keep, about: values, and what is remembered of barriers. At
    /// most [`STORE_BYTES_MAX`].
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    fn answer(
        &mut self,
        task: usize,
        command: Command<'_>,
        names: &mut Names,
        out: &mut Vec<Effect>,
    ) {
        let answer = match command {
            Command::Init { version, .. } => self.init(task, version),
            Command::GetMaxes => Answer::done("maxes")
                .number("kvsname_max", SPACE_NAME_BYTES_MAX)
                .number("keylen_max", KEY_BYTES_MAX)
                .number("vallen_max", VALUE_BYTES_MAX),
            Command::GetAppnum => Answer::done("appnum").number("appnum", self.program_of(task)),
            Command::GetUniverseSize => Answer::done("universe_size").number("size", self.universe),
            Command::GetMyKvsname => Answer::done("my_kvsname").text("kvsname", &self.space_name),
            Command::Put { space, key, value } => self.put(task, (space, key, value), out),
            Command::Get { space, key } => self.get(space, key),
            Command::GetByIndex { space, index } => self.get_by_index(task, space, index),
            Command::CreateKvs => self.create_space(),
            Command::DestroyKvs { space } => self.destroy_space(space),
            Command::PublishName { service, port } => self.publish(names, service, port),
            Command::LookupName { service } => match names.lookup(self.user, service) {
                Some(port) => Answer::ok("lookup_result").text("port", port),
                None => Answer::not_ok("lookup_result", "service_not_found"),
            },
            Command::UnpublishName { service } => match names.unpublish(self.user, service) {
                true => Answer::ok("unpublish_result"),
                false => Answer::not_ok("unpublish_result", "service_not_found"),
            },
            Command::Finalize => {
                self.tasks[task].state = TaskState::Finalized;
                out.push(Answer::done("finalize_ack").to(task));
                out.push(Effect::Finalized { task });
                return;
            }
            Command::Abort { code, message } => {
                let message = crate::units::shown(&String::from_utf8_lossy(message));
                out.push(Effect::Abort { task, code, message });
                return;
            }
            Command::BarrierIn { group } => return self.enter(task, group, out),
            Command::Spawn { lines, last } => return self.spawn(task, (lines, last), out),
            // Its process was not started as a task; a task has no need of it.
            Command::SingletonInit => Answer::done("singinit_info").text("versionok", b"no"),
        };
        out.push(answer.to(task));
    }

    /// A client may begin again after it has finalized: MPICH's sessions do, and so does the next
    /// program of a script.
    fn init(&mut self, task: usize, version: u32) -> Answer {
        let answer = match version {
            1 => {
                self.leave_barriers(task);
                self.tasks[task].state = TaskState::Begun;
                Answer::done("response_to_init")
            }
            2 => return self.begin_second(task),
            _ => Answer::refused("response_to_init", "only_versions_1_and_2_are_spoken"),
        };
        answer.number("pmi_version", 1u32).number("pmi_subversion", 2u32)
    }

    fn put(
        &mut self,
        task: usize,
        (space, key, value): (Option<&[u8]>, &[u8], &[u8]),
        out: &mut Vec<Effect>,
    ) -> Answer {
        let is_own = space.is_none_or(|space| space == self.space_name);
        let stored = match is_own {
            true => self.put_own(key, value),
            false => self.store(space, key, value, false),
        };
        match stored {
            Ok(()) => Answer::done("put_result"),
            Err(Unstored::Full) => {
                self.fill(task, out);
                Answer::refused("put_result", "no_room_for_more_keys")
            }
            Err(Unstored::Refused(reason)) => Answer::refused("put_result", reason),
        }
    }

    /// Stores a value in the job's own key space, for the other nodes too.
    fn put_own(&mut self, key: &[u8], value: &[u8]) -> Result<(), Unstored> {
        if key.starts_with(b"PMI_") {
            return Err(Unstored::Refused("keys_with_PMI__are_reserved"));
        }
        self.store(None, key, value, self.ranks.len() < self.size as usize)
    }

    /// Stores a value; a key that is put again, as by a program that begins anew, gets the new one.
    /// Keys longer than the limit that clients learn are taken as well: hydra does, and a line
    /// bounds them.
    fn store(
        &mut self,
        space: Option<&[u8]>,
        key: &[u8],
        value: &[u8],
        is_fresh: bool,
    ) -> Result<(), Unstored> {
        if key.is_empty() {
            return Err(Unstored::Refused("key_is_empty"));
        }
        let name = space.unwrap_or(&self.space_name);
        let entries = self.spaces.get_mut(name).ok_or(Unstored::Refused("kvsname_not_found"))?;
        let freed = entries.get(key).map_or(0, |old| entry_bytes(key, old));
        let is_fresh = is_fresh && !self.fresh.contains(key);
        let noted = if is_fresh { key_bytes(key) } else { 0 };
        let bytes = self.bytes - freed + entry_bytes(key, value) + noted;
        if bytes > STORE_BYTES_MAX {
            return Err(Unstored::Full);
        }
        self.bytes = bytes;
        entries.insert(key.to_vec(), value.to_vec());
        if is_fresh {
            self.fresh.insert(key.to_vec());
        }
        Ok(())
    }

    /// There is no room for what a task asks for. Said once: what comes before the job has ended
    /// says no more.
    fn fill(&mut self, task: usize, out: &mut Vec<Effect>) {
        if !core::mem::replace(&mut self.is_full, true) {
            out.push(Effect::Full { task });
        }
    }

    fn get(&self, space: Option<&[u8]>, key: &[u8]) -> Answer {
        if let Some(value) = self.attributes.get(key) {
            return Answer::done("get_result").text("value", value);
        }
        if let Some(ranks) = self.local_ranks(key) {
            return Answer::done("get_result").text("value", ranks.as_bytes());
        }
        let Some(entries) = self.spaces.get(space.unwrap_or(&self.space_name)) else {
            return Answer::refused("get_result", "kvsname_not_found");
        };
        match entries.get(key) {
            Some(value) => Answer::done("get_result").text("value", value),
            // Clients of 1.1 read `value` without looking whether it is there.
            None => Answer::refused("get_result", "key_not_found").text("value", b"unknown"),
        }
    }

    /// `pmiPrivateLocalRanks_R`: the ranks on the node of rank R, which old clients ask for instead
    /// of the mapping. Known only for the ranks of this node, and no others ask.
    fn local_ranks(&self, key: &[u8]) -> Option<String> {
        let rank = key.strip_prefix(b"pmiPrivateLocalRanks_")?;
        let rank = core::str::from_utf8(rank).ok()?.parse().ok()?;
        if !self.ranks.contains(&Rank(rank)) {
            return None;
        }
        let ranks: Vec<String> = self.ranks.iter().map(ToString::to_string).collect();
        Some(ranks.join(",")).filter(|text| text.len() <= VALUE_BYTES_MAX)
    }

    /// Clients ask for one index after the other, from 0 on. The place of each task is kept, and so
    /// every answer takes the same time. To count up to another index would take as long as there
    /// are keys: there is none.
    fn get_by_index(&mut self, task: usize, space: Option<&[u8]>, index: u32) -> Answer {
        const RESPONSE: &str = "getbyidx_results";
        let cursor = self.tasks[task].cursor.take();
        let Some(entries) = self.spaces.get(space.unwrap_or(&self.space_name)) else {
            return Answer::new(RESPONSE, -1).text("reason", b"kvsname_not_found");
        };
        let from = match cursor {
            _ if index == 0 => Some(Unbounded),
            Some((at, key)) if index == at => Some(Included(key)),
            Some((at, key)) if at.checked_add(1) == Some(index) => Some(Excluded(key)),
            _ => None,
        };
        let found = from.and_then(|from| entries.range((from, Unbounded)).next());
        match found {
            Some((key, value)) => {
                self.tasks[task].cursor = Some((index, key.clone()));
                Answer::new(RESPONSE, 0)
                    .number("nextidx", u64::from(index) + 1)
                    .text("key", key)
                    .text("val", value)
            }
            None => Answer::new(RESPONSE, -2).text("reason", b"no_more_keyvals"),
        }
    }

    fn create_space(&mut self) -> Answer {
        if self.spaces.len() > SPACES_MAX {
            return Answer::refused("newkvs", "too_many_kvs");
        }
        self.spaces_created += 1;
        let mut name = self.space_name.clone();
        name.extend_from_slice(format!("_{}", self.spaces_created).as_bytes());
        let answer = Answer::done("newkvs").text("kvsname", &name);
        self.spaces.insert(name, BTreeMap::new());
        answer
    }

    fn destroy_space(&mut self, name: &[u8]) -> Answer {
        if name == self.space_name {
            return Answer::refused("kvs_destroyed", "the_job_needs_it");
        }
        match self.spaces.remove(name) {
            Some(entries) => {
                let freed: usize = entries.iter().map(|(key, value)| entry_bytes(key, value)).sum();
                self.bytes -= freed;
                Answer::done("kvs_destroyed")
            }
            None => Answer::refused("kvs_destroyed", "kvsname_not_found"),
        }
    }

    fn publish(&self, names: &mut Names, service: &[u8], port: &[u8]) -> Answer {
        const RESPONSE: &str = "publish_result";
        match names.publish(self.user, self.job, service, port) {
            Ok(()) => Answer::ok(RESPONSE),
            Err(NameError::Taken) => Answer::not_ok(RESPONSE, "key_already_present"),
            Err(NameError::TooLong) => Answer::not_ok(RESPONSE, "name_is_too_long"),
            Err(NameError::TooMany) => Answer::not_ok(RESPONSE, "too_many_names"),
        }
    }

    /// The number of the program that a task runs, of those that were spawned together.
    fn program_of(&self, task: usize) -> usize {
        let mut end = 0_u32;
        let rank = self.ranks.get(task).map_or(0, |rank| rank.0);
        let holds = |tasks: &u32| {
            end = end.saturating_add(*tasks);
            rank < end
        };
        self.programs.iter().position(holds).unwrap_or(0)
    }

    /// A part of a spawn: the client waits for an answer after the last one.
    fn spawn(&mut self, task: usize, (lines, last): (&[u8], bool), out: &mut Vec<Effect>) {
        let mut asked = match core::mem::take(&mut self.tasks[task].spawning) {
            Spawning::None => Collected::default(),
            Spawning::Collecting(asked) => asked,
            Spawning::Waiting => {
                self.tasks[task].spawning = Spawning::Waiting;
                if last {
                    out.push(Answer::refused(SPAWN_RESULT, "another_spawn_is_under_way").to(task));
                }
                return;
            }
        };
        self.bytes -= asked.bytes();
        if let Err(error) = asked.add(lines) {
            out.push(Effect::Close { task, error });
            return;
        }
        if !last {
            if self.bytes + asked.bytes() > STORE_BYTES_MAX {
                asked.refuse("no_room_for_its_arguments");
            }
            self.bytes += asked.bytes();
            self.tasks[task].spawning = Spawning::Collecting(asked);
            return;
        }
        match asked.finish() {
            Ok(spawned) => {
                self.tasks[task].spawning = Spawning::Waiting;
                out.push(Effect::Spawn { task, spawned });
            }
            Err(reason) => out.push(Answer::refused(SPAWN_RESULT, &reason).to(task)),
        }
    }

    /// Answers a task's [`Effect::Spawn`]; `refused`: why nothing is started. Clients take an
    /// answer without error codes as one for all tasks.
    pub fn answer_spawn(&mut self, task: usize, refused: Option<&str>, out: &mut Vec<Effect>) {
        let Some(asks) = self.tasks.get_mut(task) else { return };
        if !matches!(asks.spawning, Spawning::Waiting) {
            // Its program has ended meanwhile.
            return;
        }
        asks.spawning = Spawning::None;
        let answer = self.spawn_answer(task, refused);
        out.push(answer);
    }

    /// A task enters a barrier, and waits until it opens.
    fn enter(&mut self, task: usize, group: Option<&[u8]>, out: &mut Vec<Effect>) {
        if self.tasks[task].waiting >= BARRIERS_PER_TASK_MAX {
            out.push(Effect::Close { task, error: PmiError::TooManyBarriers });
            return;
        }
        let Some(barrier) = self.barrier(group) else {
            out.push(Answer::refused("barrier_out", "bad_group").to(task));
            return;
        };
        let (here, everywhere) = self.members(&barrier.group);
        let is_member = match &barrier.group {
            BarrierGroup::World | BarrierGroup::Node => true,
            BarrierGroup::Ranks(ranks) => ranks.contains(&self.ranks[task]),
        };
        if !self.knows(&barrier) {
            self.fill(task, out);
            return;
        }
        let inside = self.barriers.entry(barrier.clone()).or_default();
        if !is_member || !inside.insert(task) {
            let reason = if is_member { "already_in_this_barrier" } else { "not_in_this_group" };
            if inside.is_empty() {
                self.barriers.remove(&barrier);
            }
            let answer = self.barrier_answer(task, barrier.tag, Some(reason));
            out.push(answer);
            return;
        }
        self.tasks[task].waiting += 1;
        if inside.len() < here {
            return;
        }
        if here == everywhere {
            self.open(&barrier, out);
        } else {
            self.complete(barrier.clone());
            out.push(Effect::BarrierComplete { barrier });
        }
    }

    /// A program begins. One before it may have ended while it waited, or in the midst of a spawn.
    fn leave_barriers(&mut self, task: usize) {
        let before = core::mem::take(&mut self.tasks[task]);
        if let Spawning::Collecting(asked) = before.spawning {
            self.bytes -= asked.bytes();
        }
        for inside in self.barriers.values_mut() {
            inside.remove(&task);
        }
        self.barriers.retain(|_, inside| !inside.is_empty());
        self.bytes -= self.second.forget(task);
    }

    /// Whether a task waits in a barrier of all tasks, or of all of this node.
    #[must_use]
    pub fn waits_for_all(&self, task: usize) -> bool {
        let is_of_all = |group: &BarrierGroup| !matches!(group, BarrierGroup::Ranks(_));
        let mut of_all = self.barriers.iter().filter(|(barrier, _)| is_of_all(&barrier.group));
        of_all.any(|(_, inside)| inside.contains(&task))
    }

    /// Lets the tasks go on, with an error, that wait in barriers which will never open: a task
    /// that takes part has ended, as `has_ended` says, and had not entered. One that ended between
    /// `init` and `finalize` is reported otherwise.
    pub fn give_up_barriers(&mut self, has_ended: impl Fn(usize) -> bool, out: &mut Vec<Effect>) {
        if self.barriers.is_empty() && !self.second.is_waited_for() {
            return;
        }
        let is_away =
            |task: &usize| has_ended(*task) && self.tasks[*task].state != TaskState::Begun;
        let away: BTreeSet<usize> = (0..self.tasks.len()).filter(is_away).collect();
        let takes_part = |task: &usize, group: &BarrierGroup| match group {
            BarrierGroup::World | BarrierGroup::Node => true,
            BarrierGroup::Ranks(ranks) => ranks.contains(&self.ranks[*task]),
        };
        let is_stuck = |(barrier, inside): &(&Barrier, &BTreeSet<usize>)| {
            away.iter().any(|task| takes_part(task, &barrier.group) && !inside.contains(task))
        };
        let stuck = self.barriers.iter().filter(is_stuck).map(|(barrier, _)| barrier.clone());
        for barrier in stuck.collect::<Vec<Barrier>>() {
            for task in self.barriers.remove(&barrier).unwrap_or_default() {
                self.tasks[task].waiting = self.tasks[task].waiting.saturating_sub(1);
                let reason = "a_rank_that_takes_part_has_ended";
                let answer = self.barrier_answer(task, barrier.tag, Some(reason));
                out.push(answer);
            }
        }
        self.give_up_waits(|task| away.contains(&task), out);
    }

    /// Remembers a group with its tag when it is used first; whether there is room for it.
    fn knows(&mut self, barrier: &Barrier) -> bool {
        let key = (barrier.group.clone(), barrier.tag);
        if self.rounds.contains_key(&key) {
            return true;
        }
        let bytes = self.bytes + barrier.group.bytes();
        if bytes > STORE_BYTES_MAX {
            return false;
        }
        self.bytes = bytes;
        self.rounds.insert(key, 0);
        true
    }

    /// Lets the tasks go on that wait, in the order of their numbers.
    fn open(&mut self, barrier: &Barrier, out: &mut Vec<Effect>) {
        // Also where those that waited have begun anew: others count this round.
        let inside = self.barriers.remove(barrier).unwrap_or_default();
        *self.rounds.entry((barrier.group.clone(), barrier.tag)).or_default() = barrier.round + 1;
        for task in inside {
            self.tasks[task].waiting = self.tasks[task].waiting.saturating_sub(1);
            let answer = self.barrier_answer(task, barrier.tag, None);
            out.push(answer);
        }
    }

    /// How many tasks take part in a barrier: those of this node, and all.
    fn members(&self, group: &BarrierGroup) -> (usize, usize) {
        match group {
            BarrierGroup::World => (self.ranks.len(), self.size as usize),
            BarrierGroup::Node => (self.ranks.len(), self.ranks.len()),
            BarrierGroup::Ranks(ranks) => {
                (self.ranks.iter().filter(|rank| ranks.contains(*rank)).count(), ranks.len())
            }
        }
    }

    /// Reads `WORLD:tag`, `NODE:tag`, `rank,rank,...:tag`; the tag may be absent, and without
    /// anything it is the world.
    fn barrier(&self, group: Option<&[u8]>) -> Option<Barrier> {
        let Some(text) = group else { return Some(self.this_round(BarrierGroup::World, 0)) };
        let text = core::str::from_utf8(text).ok()?;
        let (members, tag) = match text.split_once(':') {
            Some((members, tag)) => (members, tag.parse().ok()?),
            None => (text, 0),
        };
        let group = match members {
            "WORLD" => BarrierGroup::World,
            "NODE" => BarrierGroup::Node,
            _ => {
                let ranks: Option<BTreeSet<Rank>> = members
                    .split(',')
                    .map(|rank| rank.parse().ok().filter(|rank| *rank < self.size).map(Rank))
                    .collect();
                BarrierGroup::Ranks(ranks?)
            }
        };
        Some(self.this_round(group, tag))
    }

    fn this_round(&self, group: BarrierGroup, tag: u32) -> Barrier {
        let key = (group, tag);
        let round = self.rounds.get(&key).copied().unwrap_or(0);
        Barrier { group: key.0, tag, round }
    }
}

const SPAWN_RESULT: &str = "spawn_result";

/// Letters of the reason why nothing is spawned: a client's line has 1,024.
const SPAWN_REASON_MAX: usize = 256;

/// The reason as one word.
fn spawn_reason(reason: &str) -> String {
    let word = |letter: char| if letter.is_ascii_graphic() { letter } else { '_' };
    reason.chars().map(word).take(SPAWN_REASON_MAX).collect()
}

/// Why a value is not stored.
enum Unstored {
    /// There is no room for it.
    Full,
    /// It can't be, and the client gets the reason.
    Refused(&'static str),
}

/// What maps and allocations take beside the bytes of an entry, about, so that empty values are not
/// free.
const ENTRY_BYTES: usize = 128;

/// What an entry of a key space takes, about.
pub(super) const fn entry_bytes(key: &[u8], value: &[u8]) -> usize {
    key.len() + value.len() + ENTRY_BYTES
}

/// What a key takes that is remembered.
const fn key_bytes(key: &[u8]) -> usize {
    key.len() + ENTRY_BYTES / 2
}

impl BarrierGroup {
    /// What it takes to remember it, about: it stands in four places while its tasks wait.
    #[must_use]
    pub fn bytes(&self) -> usize {
        const RANK_BYTES: usize = 8;
        let ranks = match self {
            Self::World | Self::Node => 0,
            Self::Ranks(ranks) => ranks.len(),
        };
        4 * (ENTRY_BYTES + ranks * RANK_BYTES)
    }
}

/// A line that is being written.
struct Answer(Vec<u8>);

impl Answer {
    fn new(response: &str, rc: i32) -> Self {
        Self(format!("cmd={response} rc={rc}").into_bytes())
    }

    fn done(response: &str) -> Self {
        Self::new(response, 0)
    }

    /// No blanks in a reason: clients take it for one word.
    fn refused(response: &str, reason: &str) -> Self {
        Self::new(response, -1).text("msg", reason.as_bytes())
    }

    /// What concerns names is answered in two fields: clients of 1.1 look at `info`, newer at `rc`.
    fn ok(response: &str) -> Self {
        Self::done(response).text("info", b"ok")
    }

    fn not_ok(response: &str, reason: &str) -> Self {
        Self::refused(response, reason).text("info", reason.as_bytes())
    }

    fn text(mut self, name: &str, value: &[u8]) -> Self {
        self.0.push(b' ');
        self.0.extend_from_slice(name.as_bytes());
        self.0.push(b'=');
        self.0.extend_from_slice(value);
        self
    }

    fn number(self, name: &str, value: impl ToString) -> Self {
        self.text(name, value.to_string().as_bytes())
    }

    fn to(mut self, task: usize) -> Effect {
        self.0.push(b'\n');
        Effect::Reply { task, line: self.0 }
    }
}

#[cfg(test)]
mod tests;
