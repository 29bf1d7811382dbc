//! What the tasks of a job are, as it travels from the front end to the keeper.
//!
//! Text from the user's system is bytes, not `String`: file names, arguments and the environment
//! need not be UTF-8.

use crate::pattern::{names_node, names_rank};
use crate::spawn::Spawned;
use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;
use tutti_types::{
    ClusterTime, ControlMethod, Device, Grant, JobId, LaunchId, Nanos, NodeId, ProcessorSet, Rank,
    SharedImage, StepId, TaskPlacement,
};

/// The program of a job, and what its tasks find when they start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaunchSpec {
    /// What `tutti ps` calls the job.
    pub name: String,
    /// The program and its arguments; the program is searched for in the `PATH` of `environment`.
    pub argv: Vec<ByteBuf>,
    /// The text of a script to run instead of `argv[0]`, if that is what was submitted.
    pub script: Option<ByteBuf>,
    /// `NAME=value`, of the user.
    pub environment: Vec<ByteBuf>,
    /// The directory to start in.
    pub directory: ByteBuf,
    /// The file mode creation mask.
    pub umask: u32,
    /// Resource limits: the kernel's number of the resource, the soft and the hard limit.
    pub rlimits: Vec<(u32, u64, u64)>,
    /// Where input comes from and output goes.
    pub stdio: Stdio,
    /// The most processes that a task may have at once, where the machine can enforce it.
    pub processes_max: Option<u64>,
    /// Processes that run already and are to be the task, with all that descend from them, instead of
    /// a program; then `stdio` is [`Stdio::Kept`], and there is one task.
    pub adopt: Vec<AdoptedProcess>,
    /// The nice value, -20 to 19.
    pub nice: i32,
    /// Whether its tasks find their place in Slurm's words, too.
    pub slurm: bool,
    /// What a shell runs instead of the program where the job resumes; `None`: the same program.
    pub resume: Option<ByteBuf>,
    /// How long before the end of each slot its processes may be asked to vacate; `None`: never.
    pub vacate: Option<Nanos>,
}

/// A process that runs already, named for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AdoptedProcess {
    /// Its number.
    pub pid: i32,
    /// When it began, in clock ticks since boot.
    pub start_time: u64,
}

impl LaunchSpec {
    /// What a run is to start that resumes from what an earlier one has saved.
    #[must_use]
    pub fn resumed(mut self) -> Self {
        if let Some(command) = self.resume.take() {
            let shell = [&b"/bin/sh"[..], b"-c"].map(|word| ByteBuf::from(word.to_vec()));
            self.argv = shell.into_iter().chain([command]).collect();
            self.script = None;
        }
        self
    }

    /// How much memory it takes, roughly: what its owner made long, and something for each piece.
    #[must_use]
    pub fn bytes(&self) -> usize {
        const EACH: usize = 32;
        let all = |texts: &[ByteBuf]| texts.iter().map(|text| text.len() + EACH).sum::<usize>();
        let script = self.script.as_ref().map_or(0, |script| script.len());
        let resume = self.resume.as_ref().map_or(0, |command| command.len());
        self.name.len()
            + all(&self.argv)
            + script
            + resume
            + all(&self.environment)
            + self.rlimits.len() * EACH
            + self.adopt.len() * EACH
            + self.paths().map(<[u8]>::len).sum::<usize>()
    }

    /// The directory, and the names of files for input and output as they were given.
    pub fn paths(&self) -> impl Iterator<Item = &[u8]> {
        let files = match &self.stdio {
            Stdio::FrontEnd { .. } | Stdio::Kept => [None; 3],
            Stdio::Files { input, output, error, .. } => {
                [input.as_ref(), Some(output), error.as_ref()]
            }
        };
        let files = files.into_iter().flatten().map(|name| &name[..]);
        core::iter::once(&self.directory[..]).chain(files)
    }
}

/// The beginning of a text, at most so many bytes of it, with a mark where it was cut.
#[must_use]
pub fn cut(mut text: String, bytes_max: usize) -> String {
    const MARK: &str = " ...";
    if text.len() > bytes_max {
        let most = bytes_max.saturating_sub(MARK.len());
        let end = (0..=most).rev().find(|&end| text.is_char_boundary(end)).unwrap_or(0);
        text.truncate(end);
        text.push_str(MARK);
    }
    text
}

/// Where the input of tasks comes from and their output goes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stdio {
    /// A front end attaches; no task starts before it has.
    FrontEnd {
        /// Which ranks get input.
        input: InputTo,
    },
    /// Files, opened by the tasks themselves as their user, by patterns (see [`crate::pattern`])
    /// relative to the directory of the job.
    Files {
        /// Standard input; `None`: empty.
        input: Option<ByteBuf>,
        /// Standard output.
        output: ByteBuf,
        /// Standard error; `None`: the same as standard output.
        error: Option<ByteBuf>,
        /// What happens to files that exist.
        mode: OpenMode,
    },
    /// What adopted processes have already.
    Kept,
}

/// What happens to an output file that exists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum OpenMode {
    /// The first launch of the job empties it; a launch after a requeue appends.
    #[default]
    TruncateOnce,
    /// Every launch appends.
    Append,
    /// Every launch empties it.
    Truncate,
}

impl OpenMode {
    /// Whether this launch of a job empties its files.
    #[must_use]
    pub const fn truncates(self, launch: LaunchId) -> bool {
        match self {
            Self::TruncateOnce => launch.number == 0,
            Self::Append => false,
            Self::Truncate => true,
        }
    }
}

/// Which ranks a piece of input goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum InputTo {
    /// None: every task finds its standard input empty.
    Nobody,
    /// All tasks get the same.
    All,
    /// One task; the others find theirs empty.
    Rank(u32),
    /// Each piece names its rank.
    Tagged,
}

/// The user that the tasks run as, as the kernel told the controller (never as the client said).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Credentials {
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Supplementary groups.
    pub groups: Vec<u32>,
}

/// A node of a job, as its tasks know it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobNode {
    /// Its number in the cluster.
    pub node: NodeId,
    /// Its name.
    pub name: String,
    /// Where other nodes reach it: an address of the network; empty if there are none.
    pub address: String,
    /// How many of the tasks it has; those with the lower ranks are on the nodes before.
    pub tasks: u32,
    /// How many slots of the job it has.
    pub slots: u32,
}

/// One node's part of a job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Share {
    /// The tasks, by rank.
    pub tasks: Vec<TaskPlacement>,
    /// The node's place among the nodes of the job.
    pub node_rank: u32,
    /// All processors that the job has there, if they are held until they are released, whatever
    /// its tasks do. Otherwise the job ends there with its tasks.
    pub held: Option<ProcessorSet>,
    /// The devices that the job has there.
    pub devices: Vec<Device>,
    /// Whether it may have them in turns with other jobs: they are closed to it while it does not
    /// run.
    pub in_turns: bool,
    /// The files of the node's other devices.
    pub closed: Vec<String>,
    /// Whether the job can't open these. The agent says so to its keeper.
    pub is_closed: bool,
    /// Whether its group holds it to processors. The agent says so to its keeper.
    pub is_bound: bool,
}

/// Everything that a node needs to start its tasks of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Launch {
    /// Which job.
    pub job: JobId,
    /// Which launch of it ([`LaunchId::number`]).
    pub number: u32,
    /// Which step of the job.
    pub step: StepId,
    /// When the job began, by the cluster's clock. No other job of this number began then, be it of
    /// another instance, nor did an earlier launch of this one.
    pub began: ClusterTime,
    /// How its processes are suspended and resumed.
    pub control: ControlMethod,
    /// Whether it has System V IPC and POSIX message queues of its own, where that is possible.
    pub own_ipc: bool,
    /// The user that it runs as.
    pub credentials: Credentials,
    /// Tasks of the whole job.
    pub size: u32,
    /// What of it is this node's.
    pub share: Share,
    /// All nodes of the job, in the order of their ranks.
    pub nodes: Vec<JobNode>,
    /// The class, for the environment.
    pub class: String,
    /// The numbers of counted resources, for the environment.
    pub resources: Vec<Grant>,
    /// The quantum at launch, for the environment.
    pub quantum: Nanos,
    /// Processors for each task, for the environment.
    pub processors_per_task: u32,
    /// Memory that each task may use.
    pub memory_per_task_bytes: Option<u64>,
    /// What to run.
    pub spec: LaunchSpec,
    /// The task of the job's first step whose place and environment the only task of this step has.
    pub beside: Option<Rank>,
    /// What the tasks run, in place of the program of `spec`, if tasks of the job have spawned
    /// them.
    pub spawned: Option<Spawned>,
    /// Whether its tasks join those of a job that runs, in place of lost ones: its node appends to
    /// files that tasks share, and needs no writer of another node.
    pub joins: bool,
    /// How many earlier runs of the job were asked to save their state: then it resumes.
    pub resumes: u32,
    /// Whether its processes can be saved to an image; with `resumes`, they are restored from one.
    pub saves_image: bool,
    /// Where images of its processes are, if in a directory that nodes share.
    pub shared_image: Option<SharedImage>,
    /// Whether the only task of this step serves the job's other tasks. It is a program of ours, in
    /// a group beside that of the job. So it is not suspended with the job.
    pub serves: bool,
    /// The node whose keeper answers what steps of the job ask of each other by PMIx; `None` where
    /// all of the job is on one node.
    pub hub: Option<NodeId>,
}

impl Launch {
    /// Which launch it is.
    #[must_use]
    pub const fn id(&self) -> LaunchId {
        LaunchId { job: self.job, number: self.number, step: self.step }
    }

    /// Whether several tasks share this output file, so that one writer has to keep their lines whole.
    /// `/dev/null` has no lines.
    fn is_shared(&self, pattern: &[u8]) -> bool {
        self.size > 1 && pattern != NULL_DEVICE && !names_rank(pattern)
    }

    /// Which streams of the tasks go to a writer, and which nodes have one. The tasks open all
    /// other files themselves.
    #[must_use]
    pub fn written(&self) -> Written {
        let Stdio::Files { output, error, .. } = &self.spec.stdio else { return Written::NONE };
        let own_error = error.as_ref().filter(|error| *error != output);
        let output = Some(output).filter(|pattern| self.is_shared(pattern));
        let error = own_error.filter(|pattern| self.is_shared(pattern));
        let by_node = [output, error].into_iter().flatten().all(|pattern| names_node(pattern));
        let one_writer = !by_node && self.nodes.len() > 1 && !self.joins;
        Written {
            output: output.is_some(),
            error: error.is_some(),
            is_far: one_writer && self.share.node_rank != 0,
            serves_others: one_writer && self.share.node_rank == 0,
        }
    }
}

/// The output file without content.
pub const NULL_DEVICE: &[u8] = b"/dev/null";

/// What of a job's output goes to a writer, as one node of the job sees it. A writer gathers the
/// output of tasks that share a file, and writes it line by line.
///
/// If a shared file has no `%N` in its name, the first node of the job writes for all nodes.
/// Otherwise each node writes for itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// Standard output does.
    pub output: bool,
    /// Standard error does, apart from standard output.
    pub error: bool,
    /// The writer is on the first node of the job, and this is another one.
    pub is_far: bool,
    /// The writer is here, and writes for the other nodes too.
    pub serves_others: bool,
}

impl Written {
    const NONE: Self = Self { output: false, error: false, is_far: false, serves_others: false };

    /// Whether anything goes to a writer.
    #[must_use]
    pub const fn any(self) -> bool {
        self.output || self.error
    }

    /// Whether this node has a writer.
    #[must_use]
    pub const fn is_here(self) -> bool {
        self.any() && !self.is_far
    }
}

/// What a job used, or a task alone. What is `whole` the kernel has counted over all processes, strays
/// and short-lived ones included; otherwise it is what is known: of processes that were waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Processor time in user mode, in microseconds.
    #[serde(rename = "cpu_user_us")]
    pub user_us: u64,
    /// Processor time in the kernel, in microseconds.
    #[serde(rename = "cpu_system_us")]
    pub system_us: u64,
    /// Whether that is all of it.
    pub cpu_whole: bool,
    /// The most memory that any one task had at once, in bytes; where it is not whole, any one process.
    pub memory_peak_bytes: u64,
    /// Whether that is of whole tasks.
    pub memory_whole: bool,
    /// Read from devices, in bytes.
    pub read_bytes: u64,
    /// Written to devices, in bytes.
    pub written_bytes: u64,
    /// Whether that is all of it.
    pub io_whole: bool,
    /// Processes that there were; nothing where they were not counted.
    pub processes: Option<u64>,
    /// The most that any one task had at once, likewise.
    pub processes_peak: Option<u64>,
    /// Whether these are all; they are at least so many where the kernel does not tell a node of each.
    pub processes_whole: bool,
    /// How often it was suspended or resumed because its turn was over or had come, as counted by the
    /// agent that saw its end: one that was started in between has counted from then on.
    pub switches: u64,
}

impl Default for Usage {
    /// Nothing was used, and that is certain.
    fn default() -> Self {
        Self {
            user_us: 0,
            system_us: 0,
            cpu_whole: true,
            memory_peak_bytes: 0,
            memory_whole: true,
            read_bytes: 0,
            written_bytes: 0,
            io_whole: true,
            processes: Some(0),
            processes_peak: Some(0),
            processes_whole: true,
            switches: 0,
        }
    }
}

impl Usage {
    /// Nothing is known of it.
    #[must_use]
    pub fn unknown() -> Self {
        let whole = Self::default();
        Self {
            cpu_whole: false,
            memory_whole: false,
            io_whole: false,
            processes: None,
            processes_peak: None,
            processes_whole: false,
            ..whole
        }
    }

    /// Takes in what another task used, or the same job on another node: adds up what was used, and
    /// keeps the larger of the peaks.
    pub fn add(&mut self, other: &Self) {
        self.user_us = self.user_us.saturating_add(other.user_us);
        self.system_us = self.system_us.saturating_add(other.system_us);
        self.cpu_whole &= other.cpu_whole;
        self.memory_peak_bytes = self.memory_peak_bytes.max(other.memory_peak_bytes);
        self.memory_whole &= other.memory_whole;
        self.read_bytes = self.read_bytes.saturating_add(other.read_bytes);
        self.written_bytes = self.written_bytes.saturating_add(other.written_bytes);
        self.io_whole &= other.io_whole;
        // Tasks of which nothing is known still have had theirs.
        let both = self.processes.zip(other.processes);
        let sum = both.map(|(one, other)| one.saturating_add(other));
        self.processes = sum.or(self.processes).or(other.processes);
        self.processes_peak = self.processes_peak.max(other.processes_peak);
        self.processes_whole &= other.processes_whole;
        self.switches = self.switches.max(other.switches);
    }
}

#[cfg(test)]
mod tests {
    use super::{
        Credentials, JobNode, Launch, LaunchSpec, OpenMode, Share, Stdio, Usage, Written, cut,
    };
    use alloc::vec::Vec;
    use serde_bytes::ByteBuf;
    use tutti_types::{ClusterTime, ControlMethod, JobId, LaunchId, Nanos, NodeId, StepId};

    /// What the node of this rank sees of a job of two nodes with two tasks each.
    fn written(node_rank: u32, output: &str, error: Option<&str>) -> Written {
        let node = |number| JobNode {
            node: NodeId(number),
            name: "n".into(),
            address: "a".into(),
            tasks: 2,
            slots: 2,
        };
        let bytes = |text: &str| ByteBuf::from(text.as_bytes());
        Launch {
            job: JobId(1),
            number: 0,
            step: StepId::FIRST,
            began: ClusterTime::default(),
            control: ControlMethod::Freeze,
            own_ipc: false,
            credentials: Credentials { uid: 0, gid: 0, groups: Vec::new() },
            size: 4,
            share: Share { node_rank, ..Share::default() },
            nodes: [0, 1].map(node).to_vec(),
            class: "c".into(),
            resources: Vec::new(),
            quantum: Nanos::from_millis(100),
            processors_per_task: 1,
            memory_per_task_bytes: None,
            spec: LaunchSpec {
                name: "n".into(),
                argv: Vec::new(),
                script: None,
                environment: Vec::new(),
                directory: bytes("/"),
                umask: 0,
                rlimits: Vec::new(),
                stdio: Stdio::Files {
                    input: None,
                    output: bytes(output),
                    error: error.map(bytes),
                    mode: OpenMode::default(),
                },
                processes_max: None,
                adopt: Vec::new(),
                nice: 0,
                slurm: false,
                resume: None,
                vacate: None,
            },
            beside: None,
            spawned: None,
            joins: false,
            resumes: 0,
            saves_image: false,
            shared_image: None,
            serves: false,
            hub: None,
        }
        .written()
    }

    #[test]
    fn a_file_of_several_tasks_has_one_writer() {
        let streams = |it: Written| (it.output, it.error);
        for (output, error, shared) in [
            ("o", None, (true, false)),
            ("o", Some("o"), (true, false)),
            ("o", Some("e"), (true, true)),
            ("o%r", Some("e"), (false, true)),
            ("o%r", None, (false, false)),
            ("/dev/null", Some("e%t"), (false, false)),
            ("/dev/null", Some("o%N"), (false, true)),
        ] {
            assert_eq!(streams(written(0, output, error)), shared, "{output} {error:?}");
        }
        // The first node writes for both, unless each has files of its own.
        for (output, error, of_all) in
            [("o", None, true), ("o%N", Some("e"), true), ("o%N", None, false)]
        {
            let (first, second) = (written(0, output, error), written(1, output, error));
            assert!(first.is_here());
            assert_eq!(
                (first.serves_others, second.is_far, second.is_here()),
                (of_all, of_all, !of_all)
            );
        }
        assert!(!written(0, "o%r", None).is_here());
    }

    #[test]
    fn files_are_emptied_as_their_mode_says() {
        let launch = |number| LaunchId { number, ..LaunchId::first(JobId(1)) };
        for (mode, first, again) in [
            (OpenMode::TruncateOnce, true, false),
            (OpenMode::Append, false, false),
            (OpenMode::Truncate, true, true),
        ] {
            assert_eq!((mode.truncates(launch(0)), mode.truncates(launch(2))), (first, again));
        }
        // Stored jobs of earlier versions say whether to append.
        assert_eq!(postcard::from_bytes::<OpenMode>(&[0]), Ok(OpenMode::TruncateOnce));
        assert_eq!(postcard::from_bytes::<OpenMode>(&[1]), Ok(OpenMode::Append));
    }

    #[test]
    fn a_sum_with_something_unknown_is_not_whole() {
        let one = Usage { user_us: 5, memory_peak_bytes: 9, ..Usage::default() };
        let mut sum = one;
        sum.add(&Usage { user_us: 2, memory_peak_bytes: 3, processes: Some(4), ..one });
        assert_eq!((sum.user_us, sum.memory_peak_bytes, sum.processes), (7, 9, Some(4)));
        assert!(sum.cpu_whole && sum.memory_whole && sum.io_whole && sum.processes_whole);
        sum.add(&Usage::unknown());
        assert!(!sum.cpu_whole && !sum.memory_whole && !sum.io_whole && !sum.processes_whole);
        assert_eq!((sum.user_us, sum.processes), (7, Some(4)));
        let mut sum = Usage::unknown();
        sum.add(&Usage::unknown());
        assert_eq!((sum.processes, sum.processes_peak), (None, None));
    }

    #[test]
    fn a_text_is_cut_between_letters() {
        assert_eq!(cut("short".into(), 5), "short");
        assert_eq!(cut("\u{e9}".repeat(6), 9), "\u{e9}\u{e9} ...");
    }
}
