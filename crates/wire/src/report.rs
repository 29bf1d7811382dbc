//! The structs behind every table and every `--json`. Users rely on the names and units of these
//! fields: they change only with a release note.

use crate::code::Code;
use crate::history::Ending;
use crate::launch::Usage;
use crate::metrics::Histogram;
use crate::tree::Alive;
use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};
use tutti_types::{Figures, JobId, Maker, Rank};

/// A job, as `tutti ps` shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobReport {
    /// Its number.
    pub job: JobId,
    /// Its name.
    pub name: String,
    /// The owner's name, or number where it has none.
    pub user: String,
    /// Its class.
    pub class: String,
    /// The class that it had before its owner's allowance was spent; nothing otherwise.
    pub former_class: Option<String>,
    /// `queued`, `running`, `suspended`, `ending` or `ended`; `swapped` once the memory of a
    /// suspended or preempted job has left; `preempted` while another job has its
    /// processors, with `preempting` before that and `resuming` after it; `checkpointing` while it
    /// is asked to save its state and end, and `checkpointed` in line after that.
    pub state: String,
    /// Why it waits, or how it ended; empty otherwise.
    pub reason: String,
    /// The code of how it ended, if that was not by itself.
    pub code: Option<Code>,
    /// What there is to know beyond the reason, in lines: which rank could not be started and why,
    /// which used too much memory, which decided the exit code; mostly empty.
    pub detail: String,
    /// Parts of it that a user has suspended: `7.0`, `7.0/1234`.
    pub suspended: Vec<String>,
    /// How many tasks it starts with.
    pub tasks: u32,
    /// How many processors: as many as it asked for, once it has some as many as these.
    pub processors: u32,
    /// Where it runs: `node:processors`, one for each node.
    pub placement: Vec<String>,
    /// The row of the matrix, counted from 1; nothing unless it is in the matrix.
    pub row: Option<u32>,
    /// How many rows the matrix has: with more than one, jobs take turns.
    pub rows: u32,
    /// The part of the time that its turns give it, in percent; nothing unless it is running.
    pub share_percent: Option<u32>,
    /// Seconds since it was accepted.
    pub age_s: u64,
    /// Milliseconds that its turns gave it.
    pub service_ms: u64,
    /// Milliseconds between its acceptance and its start.
    pub waited_ms: u64,
    /// Milliseconds since its start in which it was suspended: others had their turns, or a user
    /// suspended it, or it was preempted.
    pub suspended_ms: u64,
    /// What it used; nothing while it runs, unless that was asked for (`ps -l`).
    pub usage: Option<Usage>,
    /// Seconds until it must be done, if it named a deadline; negative when that has passed.
    pub deadline_s: Option<i64>,
    /// For how many seconds its deadline has been at risk; nothing while it is kept.
    pub at_risk_s: Option<u64>,
    /// Seconds until it is expected to be done, if no other comes and each runs as long as it may;
    /// nothing where it is unknown, and unless the policy is `deadline`.
    pub ends_s: Option<u64>,
    /// Milliseconds of processor time, once it has ended.
    pub cpu_ms: Option<u64>,
    /// The exit code, once it has ended.
    pub exit_code: Option<u8>,
    /// Whether no front end stands for it: `tutti submit` made it.
    pub submitted: bool,
    /// Its time limit, in milliseconds; `null` if it has none.
    pub time_limit_ms: Option<u64>,
    /// What is left of that: the limit less the time that its turns gave it, in milliseconds.
    pub time_left_ms: Option<u64>,
    /// The queue that it is in, if any.
    pub queue: Option<String>,
    /// Counted resources: with the numbers that it has (`licence=0,3`), or what it asked for while it
    /// has none (`licence:2`); nothing once it has ended.
    pub resources: Vec<String>,
    /// Its place in line, counted from 1; `null` unless it is in line.
    pub position: Option<u64>,
    /// The job just before it in line.
    pub behind: Option<JobId>,
    /// What it starts with: `tasks`, one in each slot; or `batch`, a script that runs once. `null`
    /// of a job that ended under an earlier release.
    pub first: Option<String>,
    /// How many slots it asked for, each with room for one task; `null` likewise.
    pub slots: Option<u32>,
    /// How many nodes it asked for; `null` of one that named no number, and likewise.
    pub nodes_asked: Option<u32>,
    /// Why it waits, in one word; `null` of one that does not.
    pub wait: Option<String>,
    /// What of its memory has left, on all nodes, in bytes; `null`: nothing is moved of it.
    pub swapped_bytes: Option<u64>,
    /// How many of its processors are lent to other jobs, since no task has them; `None`: none are.
    pub lent_processors: Option<u64>,
    /// The array that it is, or is an element of; `null` of a single job.
    pub array: Option<ArrayReport>,
}

/// What a job has to do with an array.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArrayReport {
    /// The number of the array.
    pub job: JobId,
    /// The index of the element; `null` of the array itself.
    pub index: Option<u32>,
    /// Of the array itself: its elements.
    pub elements: Option<ElementsReport>,
}

/// The elements of an array.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ElementsReport {
    /// Their indices and the limit, as they would be written again; perhaps cut.
    pub spec: String,
    /// How many there are.
    pub count: u32,
    /// How many may be in line or run at once; `null`: any number.
    pub limit: Option<u32>,
    /// The indices of those that are not in line yet; perhaps cut. `null`: none.
    pub waiting: Option<String>,
    /// How many these are.
    pub unmade: u32,
    /// How many of these are held.
    pub held: u32,
    /// How many are in line.
    pub queued: u32,
    /// How many run, or have their turns.
    pub running: u32,
    /// How many ended well.
    pub ok: u32,
    /// How many ended otherwise by themselves.
    pub failed: u32,
    /// How many were cancelled.
    pub cancelled: u32,
    /// Once all have ended, the numbers that they had as jobs: the first position, its number, and
    /// how many follow one another.
    pub numbers: Vec<(u32, u64, u32)>,
    /// Once all have ended, those that ended well: the first position of each run, and how many.
    /// `null` before that, and where they are too many runs.
    pub well: Option<Vec<(u32, u32)>>,
}

/// The word before the elements that ended well.
const WELL: &str = "well";

impl ArrayReport {
    /// As words, in which it is stored.
    #[must_use]
    pub fn to_words(&self) -> Vec<String> {
        let mut words = alloc::vec![alloc::format!("{}", self.job)];
        if let Some(index) = self.index {
            words.push(alloc::format!("{index}"));
        }
        let Some(elements) = &self.elements else { return words };
        let ElementsReport { spec, ok, failed, cancelled, numbers, well, .. } = elements;
        words.extend([String::new(), spec.clone()]);
        words.extend([ok, failed, cancelled].map(|count| alloc::format!("{count}")));
        let run =
            |(position, job, count): &(u32, u64, u32)| alloc::format!("{position}:{job}:{count}");
        words.extend(numbers.iter().map(run));
        if let Some(well) = well {
            words.push(WELL.into());
            words.extend(well.iter().map(|(first, count)| alloc::format!("{first}+{count}")));
        }
        words
    }

    /// From such words; `None`: they are none.
    #[must_use]
    pub fn of_words(words: &[String]) -> Option<Self> {
        let job = JobId(words.first()?.parse().ok()?);
        let [index, rest @ ..] = &words[1..] else { return None };
        if !index.is_empty() {
            return Some(Self { job, index: Some(index.parse().ok()?), elements: None });
        }
        let [spec, ok, failed, cancelled, numbers @ ..] = rest else { return None };
        let run = |word: &String| {
            let (position, rest) = word.split_once(':')?;
            let (job, count) = rest.split_once(':')?;
            Some((position.parse().ok()?, job.parse().ok()?, count.parse().ok()?))
        };
        let (numbers, well) = match numbers.iter().position(|word| word == WELL) {
            Some(at) => (&numbers[..at], Some(&numbers[at + 1..])),
            None => (numbers, None),
        };
        let well_run = |word: &String| {
            let (first, count) = word.split_once('+')?;
            Some((first.parse().ok()?, count.parse().ok()?))
        };
        let well = well.map(|words| words.iter().map(well_run).collect::<Option<_>>());
        let array: tutti_types::ArraySpec = spec.parse().ok()?;
        let elements = ElementsReport {
            spec: spec.clone(),
            count: array.indices.count(),
            limit: array.limit,
            ok: ok.parse().ok()?,
            failed: failed.parse().ok()?,
            cancelled: cancelled.parse().ok()?,
            numbers: numbers.iter().map(run).collect::<Option<_>>()?,
            well: match well {
                Some(well) => Some(well?),
                None => None,
            },
            ..ElementsReport::default()
        };
        Some(Self { job, index: None, elements: Some(elements) })
    }
}

impl JobReport {
    /// Whether it waits in line.
    #[must_use]
    pub fn is_in_line(&self) -> bool {
        matches!(self.state.as_str(), "queued" | "checkpointed")
    }

    /// The job as users name it: `7`, or `7_3` of an element.
    #[must_use]
    pub fn shown_id(&self) -> String {
        match &self.array {
            Some(ArrayReport { job, index: Some(index), .. }) => alloc::format!("{job}_{index}"),
            Some(ArrayReport { .. }) | None => alloc::format!("{}", self.job),
        }
    }

    /// Whether it is an array itself, and no element.
    #[must_use]
    pub fn is_whole_array(&self) -> bool {
        self.array.as_ref().is_some_and(|array| array.index.is_none())
    }

    /// Whether a job, or the array that it is of, has this number.
    #[must_use]
    pub fn is_or_is_of(&self, job: JobId) -> bool {
        self.job == job || self.array.as_ref().is_some_and(|array| array.job == job)
    }
}

/// A change at a time, as `tutti at` shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimedReport {
    /// Its number.
    pub number: u32,
    /// When it happens, such as `mon-fri 08:00`.
    pub when: String,
    /// What happens, such as `nodes n1 out`.
    pub change: String,
    /// Its next moment, in milliseconds since 1970; `null`: there is none.
    pub next_ms: Option<u64>,
    /// The same, by the clocks of the controller's machine.
    pub next: Option<String>,
    /// Its latest moment, in milliseconds since 1970; `null`: there was none.
    pub last_ms: Option<u64>,
    /// The same, by the clocks of the controller's machine.
    pub last: Option<String>,
    /// Why nothing was changed then; `null`: it was.
    pub failed: Option<String>,
}

/// A moment at which something changes, as `tutti at --next` shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimedMoment {
    /// When, in milliseconds since 1970.
    pub unix_ms: u64,
    /// The same, by the clocks of the controller's machine.
    pub at: String,
    /// The number of the change.
    pub number: u32,
    /// What happens.
    pub change: String,
}

/// A queue, as `tutti queue` shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueReport {
    /// Its name.
    pub name: String,
    /// Jobs that run.
    pub running: u64,
    /// Jobs that wait.
    pub waiting: u64,
    /// Processors that jobs in it have, or that are kept for those next in line.
    pub processors: u64,
    /// Limits that hold at this hour, by name and value.
    pub limits: Vec<QueueSetting>,
    /// All that is set, as it would be set again.
    pub settings: Vec<QueueSetting>,
}

/// One setting of a queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueSetting {
    /// The hours in which it holds; `null`: always.
    pub during: Option<String>,
    /// Its name.
    pub name: String,
    /// Its value with its unit.
    pub value: String,
}

impl JobReport {
    /// About how many bytes it takes in an answer, once it has ended.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let texts = [&self.name, &self.user, &self.class, &self.reason, &self.detail];
        let elements = self.array.as_ref().and_then(|array| array.elements.as_ref());
        let numbers =
            elements.map_or(0, |elements| elements.numbers.len() * 16 + elements.spec.len());
        200 + numbers + texts.iter().map(|text| text.len()).sum::<usize>()
    }
}

/// A job that has ended, as `tutti history JOB` shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistoryReport {
    /// The whole job.
    pub job: JobReport,
    /// How it ended.
    pub ending: Ending,
    /// Seconds since its end.
    pub ended_s: u64,
    /// When it was accepted, in milliseconds since 1970.
    pub accepted_ms: u64,
    /// When it had ended, likewise.
    pub ended_ms: u64,
    /// Its tasks by rank; none where there were too many to be remembered.
    pub tasks: Vec<TaskHistory>,
}

/// A task that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskHistory {
    /// Which one.
    pub rank: Rank,
    /// Its part of the exit code.
    pub exit_code: u8,
    /// What it used.
    pub usage: Usage,
}

/// A task with its processes, as `tutti ps --tree` shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskReport {
    /// Its job.
    pub job: JobId,
    /// Which task.
    pub rank: Rank,
    /// The node that it is on.
    pub node: String,
    /// Its processes: each before those below it.
    pub processes: Vec<ProcessReport>,
    /// Processes that are not listed, for want of room.
    pub left_out: u64,
}

/// A process of a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessReport {
    /// Its number.
    pub pid: i32,
    /// Its parent or, when that has ended, its nearest living ancestor; nothing if it is at the top.
    pub parent: Option<i32>,
    /// `running`, `sleeping`, `waiting` (in the kernel), `stopped`, `suspended` (by its user) or
    /// `frozen` (with its job, or its task).
    pub state: String,
    /// Processor time of it alone, in milliseconds.
    pub cpu_ms: u64,
    /// Memory that it has in the machine, in bytes.
    pub memory_bytes: u64,
    /// Its program and arguments.
    pub command: String,
}

/// A device of a node, as `tutti nodes device` shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceReport {
    /// Its name and number, such as `gpu:0`.
    pub device: String,
    /// Its files.
    pub files: Vec<String>,
    /// Its maker, if it is known to be a GPU: `amd`, `intel` or `nvidia`.
    pub maker: Option<Maker>,
    /// Its address on the PCI bus, if that is known.
    pub pci_address: Option<String>,
    /// Its NUMA node, if that is known.
    pub numa_node: Option<u32>,
    /// `found` by the node's agent, or `named` by an administrator.
    pub origin: String,
    /// The jobs that have it, by number: several have it in turns.
    pub jobs: Vec<JobId>,
}

/// A node, as `tutti nodes` shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeReport {
    /// Its name.
    pub name: String,
    /// `up`, `drained` (up, and takes no new jobs), `unreachable`, `lost`, or `down` (taken out of service).
    pub state: String,
    /// Why it takes no new jobs, as an administrator said, perhaps nothing; `null` if it takes some, or
    /// will when it is up.
    pub drained: Option<String>,
    /// The sets that it is in.
    pub sets: Vec<String>,
    /// What it was found to have, as jobs ask for it by `--constraint`.
    pub features: Vec<String>,
    /// The node through which its agent is connected; empty at the root of the control tree, `null`
    /// while it is not connected.
    pub parent: Option<String>,
    /// How many connections are between it and the root.
    pub depth: Option<u16>,
    /// How far off cluster time may be there, in nanoseconds.
    pub clock_error_ns: Option<u64>,
    /// By how much cluster time, as it goes by it, is ahead of its machine's monotonic clock, in nanoseconds; `null` if it
    /// does not answer.
    pub clock_ahead_ns: Option<i64>,
    /// Timetables that came there after they should have been active, since its agent started; `null` if it does not
    /// answer.
    pub late_timetables: Option<u64>,
    /// How many processors it has for tasks.
    pub processors: u32,
    /// How many of them some job has been given.
    pub processors_used: u32,
    /// Memory for tasks, in bytes.
    pub memory_bytes: u64,
    /// Memory allocated to resident jobs, in bytes.
    pub memory_allocated_bytes: u64,
    /// Jobs with tasks there.
    pub jobs: u32,
    /// What it was measured to do; nothing until it was measured.
    pub figures: Option<Figures>,
    /// What its network was measured to do: the best of its links; nothing until one was measured.
    pub network: Option<NetworkReport>,
    /// Its load averages over one, five and fifteen minutes, in thousandths; `null` if it does not answer.
    pub load_averages_milli: Option<[u32; 3]>,
    /// Its memory that can be had without swapping, in bytes; `null` if it does not answer.
    pub memory_free_bytes: Option<u64>,
    /// All processes on it, of any user; `null` if it does not answer.
    pub processes: Option<u32>,
    /// How many of its processors, in thousandths, whatever is none of the cluster's jobs had on average since that was
    /// last looked at, for a second at least: users' own programs, daemons, the jobs of other clusters. `null` where
    /// that is unknown, and of a node that does not answer.
    pub external_load_milli: Option<u32>,
    /// Processors with external load, ascending: jobs get them last, under `policy=classes` not at all.
    pub external_load: Vec<u32>,
    /// Nodes that are connected through it; `null` if it does not answer.
    pub branch_nodes: Option<u32>,
    /// Jobs with tasks there or on nodes that are connected through it, as it knows from what passes; `null` if it does
    /// not answer.
    pub branch_jobs: Option<u32>,
    /// Its devices, by name and number.
    pub devices: Vec<DeviceReport>,
    /// How the memory of jobs is swapped out there; `null` if it does not answer.
    pub swap: Option<NodeSwap>,
}

/// What a node's network was measured to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetworkReport {
    /// Bandwidth, in MB a second.
    pub bandwidth_mb_s: u32,
    /// Latency of one way, in microseconds.
    pub latency_us: u32,
    /// The link that the node measured itself; `null` if others measured those to it.
    pub link: Option<LinkReport>,
}

/// What a link between two nodes was measured to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkReport {
    /// The other node.
    pub to: String,
    /// Bandwidth, in MB a second.
    pub bandwidth_mb_s: u32,
    /// Latency of one way, in microseconds.
    pub latency_us: u32,
}

/// How a node swaps out the memory of jobs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeSwap {
    /// By what: `memory.reclaim`, `memory.limit_in_bytes`, `process_madvise` or `none`.
    pub by: SwapMeans,
    /// Its swap space, in bytes; without any, only pages of files leave.
    pub total_bytes: u64,
    /// What of that is free, in bytes.
    pub free_bytes: u64,
}

/// By what memory is moved out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum SwapMeans {
    /// `memory.reclaim` of a cgroup of v2.
    #[serde(rename = "memory.reclaim")]
    Reclaim,
    /// The limit of a cgroup of v1, which is lowered for that.
    #[serde(rename = "memory.limit_in_bytes")]
    Limit,
    /// Advice to the kernel for each mapping.
    #[serde(rename = "process_madvise")]
    Advice,
    /// Nothing.
    #[default]
    #[serde(rename = "none")]
    None,
}

/// A client machine: users submit there, and no task runs there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientReport {
    /// Its name.
    pub name: String,
    /// `up` while it is connected, or `away`.
    pub state: String,
    /// The address from which it is connected; `null` while it is not.
    pub address: Option<String>,
    /// The users that it may speak for: names, or numbers of users without one; `null` for all
    /// ordinary users.
    pub users: Option<Vec<String>>,
}

/// A parameter, as `tutti params` shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ParamReport {
    /// Its name.
    pub name: String,
    /// Its value with its unit.
    pub value: String,
    /// Its default with its unit.
    pub default: String,
    /// The values that are allowed.
    pub range: String,
    /// What it does.
    pub help: String,
}

/// A class, as `tutti params` shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClassReport {
    /// Its name.
    pub name: String,
    /// Its rules.
    pub rules: Vec<ParamReport>,
}

/// Hours of the week in which something is otherwise, as `tutti params` shows them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeriodReport {
    /// Which hours.
    pub period: String,
    /// Whether it is one of them now.
    pub now: bool,
    /// What is otherwise: parameters as `quantum=5s`, rules of classes as `interactive share=40%`.
    pub settings: Vec<String>,
}

/// A user or group with an allowance of processor time, as `tutti bank` shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BankReport {
    /// The user's name, or the group's behind an `@`; a number where there is no name.
    pub account: String,
    /// What may be used in all, in seconds of one processor.
    pub allowance_s: u64,
    /// What was used of it.
    pub used_s: u64,
    /// What is left.
    pub left_s: u64,
    /// `day`, `week` or `month`, if use counts from nothing again with each; `null`: never.
    pub period: Option<String>,
}

/// A user or group with a weight, as `tutti weight` shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WeightReport {
    /// The user's name, or the group's behind an `@`; a number where there is no name.
    pub account: String,
    /// How much more of the machine its users may use than others.
    pub weight: u32,
}

/// A counted resource, as `tutti resource` shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResourceReport {
    /// Its name.
    pub resource: String,
    /// How many there are.
    pub count: u32,
    /// How many of them jobs have.
    pub in_use: u32,
    /// How many jobs may have each of them at a time.
    pub jobs_each: u32,
    /// Whether a preempted job gives them back.
    pub lent: bool,
    /// Jobs that have some of it.
    pub jobs: u32,
    /// Queued jobs that ask for it.
    pub queued: u32,
}

/// The users that may submit jobs, and from where, as `tutti access` shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccessReport {
    /// A user's name, a group's behind an `@`, or `all`; a number where there is no name.
    pub user: String,
    /// A list of nodes and sets of nodes, or `anywhere`.
    pub from: String,
}

/// A node's timetable, as its agent follows it. Times are nanoseconds of cluster time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimetableReport {
    /// The node's name.
    pub node: String,
    /// When the agent answered.
    pub now_ns: u64,
    /// The version of the timetable in force; 0: none has come yet.
    pub version: u64,
    /// Whether the node's lease holds; without it no job runs.
    pub lease_holds: bool,
    /// The index of the slot in force, from 0; `null`: the timetable has no slot.
    pub slot: Option<u32>,
    /// When the turn of this slot began; `null` as `slot`.
    pub begins_ns: Option<u64>,
    /// When it ends; `null`: there is no other slot to switch to.
    pub ends_ns: Option<u64>,
    /// When the next timetable replaces this one; `null`: none has come.
    pub next_activates_ns: Option<u64>,
    /// The frame: one cycle of all slots.
    pub slots: Vec<TimetableSlotReport>,
    /// Candidates that the list has no room for.
    pub left_out: u64,
    /// What classes had here since their jobs came, while the node chooses by it which alternates
    /// come first (`policy=dhc`); else empty.
    pub classes: Vec<ClassServiceReport>,
}

/// What a class had of a node's time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClassServiceReport {
    /// Its name; `null`: all classes without a share, which count as one.
    pub class: Option<String>,
    /// Its part of the time against the others', in thousandths.
    pub part_milli: u32,
    /// Processor time in the turns of its jobs, in nanoseconds.
    pub had_ns: u64,
}

/// One slot of a node's timetable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimetableSlotReport {
    /// The row of the matrix that it comes from, from 1; `null`: the matrix has it no more.
    // An agent answers with the row's own number.
    pub row: Option<u64>,
    /// How long it lasts, in nanoseconds.
    pub length_ns: u64,
    /// The candidates, first come first: the jobs of the row, then alternates.
    pub candidates: Vec<CandidateReport>,
}

/// A job that may run in a slot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CandidateReport {
    /// The job.
    pub job: JobId,
    /// The processors of the node that it runs on.
    pub processors: Vec<u32>,
    /// Whether the job runs in this slot: it is present, and no candidate before it has its
    /// processors.
    pub runs: bool,
    /// What its processes may do now.
    pub state: CandidateState,
    /// Whether its processors are left idle when it is absent; else they are offered to the
    /// candidates below.
    pub hold: bool,
}

/// What the processes of a candidate may do at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CandidateState {
    /// It has no process on the node, or this launch of it has ended.
    Absent,
    /// It is suspended until its turn.
    Stopped,
    /// It runs where no other job would (control method `priority`).
    Background,
    /// It runs.
    Running,
}

/// One switch, as the switch thread of an agent recorded it. Times are nanoseconds of cluster time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SwitchRecord {
    /// When it was due.
    pub due_ns: u64,
    /// When it began.
    pub began_ns: u64,
    /// When the last process of what left had stopped, or when the wait for those in `running` was given up.
    pub stopped_ns: u64,
    /// When what came was running.
    pub resumed_ns: u64,
    /// How long it took between these two to close the devices that jobs have in turns to what
    /// left, and to open them to what came; 0 where none has any.
    #[serde(default)]
    pub devices_ns: u64,
    /// What was asked to stop, or makes way.
    pub left: Vec<JobId>,
    /// What of it makes way: it runs on with what others leave idle.
    #[serde(default)]
    pub yields: Vec<JobId>,
    /// What was resumed.
    pub came: Vec<JobId>,
    /// What of `left` had not stopped at the deadline: it may have run beside what came.
    #[serde(default)]
    pub running: Vec<JobId>,
    /// Number of jobs in `running`.
    pub stragglers: u32,
}

/// One switch of a node, as `tutti switches` shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SwitchReport {
    /// What the node recorded.
    #[serde(flatten)]
    pub record: SwitchRecord,
    /// From the first to the last node's start of the jobs that came, in nanoseconds, each by its own estimate of cluster
    /// time; `null` where they are on one node alone, or a node of theirs has no record of a switch due at that moment.
    pub spread_ns: Option<u64>,
}

/// What an agent can do and how it fares.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentStatus {
    /// The host name.
    pub node: String,
    /// The agent's process.
    pub pid: i32,
    /// The keeper's process.
    pub keeper_pid: i32,
    /// The user of the daemons.
    pub uid: u32,
    /// The kernel's release.
    pub kernel: String,
    /// The kind of container that the node is: `docker`, `podman`, `kubernetes`, `wsl`, `container`; empty: a machine.
    pub container: String,
    /// Whether systemd runs the node.
    pub systemd: bool,
    /// How many processors there are for jobs.
    pub cpus: u32,
    /// How much processor time a quota leaves to them, in thousandths of a processor; nothing without one.
    pub quota_milli: Option<u32>,
    /// Memory for jobs, in bytes.
    pub memory_bytes: u64,
    /// Which cgroups are mounted: `v2`, `hybrid` (both, controllers in v1), `v1` or `none`.
    pub layout: String,
    /// The cgroup subtree, or why there is none.
    pub cgroup: String,
    /// Whether jobs are frozen rather than signalled.
    pub freezer: bool,
    /// How a task gets into its cgroup: `clone3` or `moved`; `none` without one.
    pub births: String,
    /// How a cgroup is killed: `cgroup.kill` or `signals`.
    pub kills: String,
    /// Whether the kernel tells of births and ends of processes (`yes`), or why not.
    pub process_events: String,
    /// Whether the switch thread has real-time priority, or why not.
    pub realtime: String,
    /// How memory limits are enforced: `v2`, `v1` or `none`.
    pub memory_limit: String,
    /// How process limits are enforced: `v2`, `v1` or `none`.
    pub process_limit: String,
    /// How jobs are held to their processors: `v2`, `v1` or `none`.
    pub processors: String,
    /// How jobs are given more or less processor time than others: `v2`, `v1` or `none`.
    pub weight: String,
    /// GPUs that were found when it started.
    pub gpus: u32,
    /// By what devices of a job are closed to the others: `bpf`, `v1`, or `none`.
    pub device_control: String,
    /// How the memory of jobs is swapped out.
    pub swap: NodeSwap,
    /// Whether the kernel counts the memory of every job.
    pub memory_counted: bool,
    /// Whether the kernel counts what every job reads and writes.
    pub io_counted: bool,
    /// Whether each job has an IPC namespace of its own (`yes`), or why not.
    pub ipc: String,
    /// Whether the daemons, and the jobs with them, end when their user has no session any more.
    pub ends_at_logout: bool,
    /// Switches made since the agent started.
    pub switches: u64,
    /// Switches that went on without a straggler.
    pub stragglers: u64,
    /// Timetables that arrived after they should have been active.
    pub late_timetables: u64,
    /// How long switches took, in nanoseconds.
    pub switch_times: Histogram,
    /// By how much switches began too late, in nanoseconds.
    pub switch_delays: Histogram,
    /// How often jobs were asked to vacate, and how they answered.
    pub notices: NoticeCounts,
    /// Time in which some task of the machine waited for a processor, since it began, in
    /// microseconds; `None` if the kernel does not count it.
    pub cpu_pressure_us: Option<u64>,
}

/// Notices that an agent gave to jobs before their turns ended (`--vacate`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NoticeCounts {
    /// Notices that were given.
    pub given: u64,
    /// Notices after which processes were suspended that were not ready.
    pub missed: u64,
    /// How long it took until all processes of a job were ready, in nanoseconds.
    pub times: Histogram,
}

/// Whether a node has given a sign of life.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeLife {
    /// The node's name.
    pub node: String,
    /// How long its answer took to reach the controller, in nanoseconds; `null`: none came in time.
    pub answered_ns: Option<u64>,
    /// What it answered.
    pub alive: Option<Alive>,
    /// Why it was not asked; empty: it was.
    pub not_asked: String,
}

/// A controller, as `tutti doctor` shows it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatusReport {
    /// The release.
    pub version: String,
    /// The state directory.
    pub directory: String,
    /// The controller's process.
    pub pid: i32,
    /// Whether the instance is a user's own.
    pub private: bool,
    /// Seconds since its start.
    pub uptime_s: u64,
    /// Jobs queued.
    pub queued: u32,
    /// Jobs in the matrix.
    pub resident: u32,
    /// Rows of the matrix.
    pub rows: u32,
    /// Its agents.
    pub agents: Vec<AgentStatus>,
    /// How good the clocks are for how short slots; nothing where there is one node.
    pub clocks: Option<ClocksReport>,
}

/// How good the clocks of a cluster are, and how good they must be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClocksReport {
    /// The node that may be the furthest off cluster time.
    pub node: String,
    /// How far, in nanoseconds.
    pub error_ns: u64,
    /// How long slots must be for it to switch together with the others, in nanoseconds.
    pub least_ns: u64,
    /// How many nodes may be too far off for the shortest slot.
    pub too_far: u32,
    /// The shortest slot that the settings can give; nothing where no jobs take turns.
    pub shortest: Option<SlotReport>,
}

/// A slot that settings can give.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlotReport {
    /// How long it is, in nanoseconds.
    pub length_ns: u64,
    /// The class whose it is, or one of those.
    pub class: String,
    /// The quantum then, in nanoseconds.
    pub quantum_ns: u64,
}

/// A job, one task of it, or a process of a task with all below it: `7`, `7.0`, `7.0/1234`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Target {
    /// Which job.
    pub job: JobId,
    /// Which task, or all.
    pub rank: Option<Rank>,
    /// Which process of the task, or its root.
    pub pid: Option<i32>,
}

impl From<JobId> for Target {
    /// The whole job.
    fn from(job: JobId) -> Self {
        Self { job, rank: None, pid: None }
    }
}

impl core::fmt::Display for Target {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{}", self.job)?;
        if let Some(rank) = self.rank {
            write!(f, ".{rank}")?;
        }
        if let Some(pid) = self.pid {
            write!(f, "/{pid}")?;
        }
        Ok(())
    }
}

/// Why a text names no target.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid job {text:?}; write JOB, JOB.RANK or JOB.RANK/PID, such as 7, 7.0 or 7.0/1234")]
pub struct TargetError {
    /// What was given.
    pub text: String,
}

impl core::str::FromStr for Target {
    type Err = TargetError;

    fn from_str(text: &str) -> Result<Self, TargetError> {
        let parse = || {
            let (task, pid) = match text.split_once('/') {
                Some((task, pid)) => (task, Some(pid.parse().ok().filter(|&pid: &i32| pid > 0)?)),
                None => (text, None),
            };
            let (job, rank) = match task.split_once('.') {
                Some((job, rank)) => (job, Some(Rank(rank.parse().ok()?))),
                None => (task, None),
            };
            if pid.is_some() && rank.is_none() {
                return None;
            }
            Some(Self { job: JobId(job.parse().ok()?), rank, pid })
        };
        parse().ok_or_else(|| TargetError { text: text.into() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_a_job_a_task_or_a_process() {
        for text in ["7", "7.0", "7.0/1234"] {
            assert_eq!(text.parse::<Target>().unwrap().to_string(), text);
        }
        for text in ["", "x", "7.", "7/12", "7.0/", "7.0/-4", "7.0/x", "-1"] {
            assert!(text.parse::<Target>().is_err(), "{text:?}");
        }
    }
}

/// A forecast of when jobs start and end, as `tutti ps --start` and `tutti run --when` show it.
///
/// It holds if each job with a time limit runs until it reaches it, and nothing else happens: no
/// job is submitted, and nodes and parameters stay.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForecastReport {
    /// The policy in force.
    pub policy: String,
    /// The discipline: `fcfs`, `easy`, `sjbf` or `conservative`.
    pub discipline: String,
    /// Why the forecast ended before all was known; empty if it did not.
    pub cut_short: String,
    /// The jobs, by number.
    pub jobs: Vec<StartReport>,
}

/// When a job is expected to start and to end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartReport {
    /// Its number; `null` if it is only asked about.
    pub job: Option<JobId>,
    /// Its name.
    pub name: String,
    /// The owner's name, or number where it has none.
    pub user: String,
    /// Its class.
    pub class: String,
    /// How many tasks.
    pub tasks: u32,
    /// When it is expected to start, in milliseconds since 1970; `null`: unknown.
    pub starts_ms: Option<u64>,
    /// The same as milliseconds from now; 0: at once.
    pub starts_in_ms: Option<u64>,
    /// When it is expected to end at the latest, in milliseconds since 1970; `null`: unknown.
    pub ends_ms: Option<u64>,
    /// The same as milliseconds from now.
    pub ends_in_ms: Option<u64>,
    /// When it starts at the latest by the promise that it has, in milliseconds since 1970; `null`:
    /// it has none.
    pub promised_ms: Option<u64>,
    /// The jobs whose time limits its start rests on: the first few of them.
    pub rests_on: Vec<JobId>,
    /// How many there are in all.
    pub rests_on_count: u32,
    /// Why its start or end is unknown; empty if both are known.
    pub unknown: String,
    /// Why it waits now; empty if it does not.
    pub waits: String,
}
