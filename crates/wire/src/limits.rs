//! Every maximum of the wire, with its reason.

use tutti_types::limits::{PROCESSORS_PER_NODE_MAX, SUBSTITUTES_PER_SLOT_MAX};

/// The version of the messages; peers of another version are refused with both versions named.
pub const PROTOCOL_VERSION: u16 = 15;

/// Version of what carries messages between machines: TLS, frames, and the greeting that says which
/// [`PROTOCOL_VERSION`] a side speaks. Machines that differ in this one can't even tell each other
/// so.
pub const TRANSPORT_VERSION: u16 = 1;

/// A control frame: a job's arguments and environment (at most 2 MiB each for the kernel to accept
/// them), a script, or the list of many jobs.
pub const FRAME_BYTES_MAX: usize = 16 << 20;

/// A request for a job, as it is sent and as it is launched: half a frame, since a launch has a
/// place for each of its tasks besides.
pub const JOB_REQUEST_BYTES_MAX: usize = 8 << 20;

/// Tasks of one job on one node: their places fit into the other half of a frame, also where each
/// place names a processor among thousands.
pub const TASKS_PER_NODE_MAX: u32 = 50_000;

/// Moments of changes at times, in one answer: as many as one would read.
pub const TIMED_COMING_MAX: usize = 1000;

/// A list of machines from which users may submit jobs, in bytes: longer ones are sets' or
/// netgroups' affair.
pub const ORIGINS_BYTES_MAX: usize = 4096;

/// The name of a job or of a class, in bytes: lists of thousands of jobs fit into a frame.
pub const NAME_BYTES_MAX: usize = 255;

/// The path of a directory or file that a job names, in bytes: the kernel takes no longer one.
pub const PATH_BYTES_MAX: usize = 4095;

/// What is said of one task beyond its status: a path or two, and why.
pub const TASK_DETAIL_BYTES_MAX: usize = 1 << 10;

/// What is said of a whole job beyond its outcome: that of some of its tasks.
pub const JOB_DETAIL_BYTES_MAX: usize = 4 << 10;

/// Jobs that an agent adopts: it joins with the numbers of all, in one message. More are not held,
/// unless no controller ever takes note of their ends.
pub const HELD_JOBS_MAX: usize = 50_000;

/// What is said of all jobs that an agent adopts: beyond that, numbers alone.
pub const HELD_DETAILS_BYTES_MAX: usize = 4 << 20;

/// Jobs that have ended, in one answer: older ones are left out.
pub const ENDED_JOBS_BYTES_MAX: usize = 8 << 20;

/// What the processors of nodes were used for, in one answer: intervals are added until they have
/// so many bytes. One interval always fits.
pub const USAGE_BYTES_MAX: usize = 1 << 20;

/// What a front end sends at once: a line of tagged input.
pub const FRONT_END_FRAME_BYTES_MAX: usize = 2 << 20;

/// The first message of a connection to a keeper: the longest is a writer's report that it can't
/// write.
pub const NEWCOMER_FRAME_BYTES_MAX: usize = TASK_DETAIL_BYTES_MAX + 256;

/// What a machine may send that is not known yet: a token and a request for a certificate.
pub const STRANGER_FRAME_BYTES_MAX: usize = 8 << 10;

/// One piece of a task's output or input. Large enough that the cost of a frame vanishes, small
/// enough that ranks take turns on a connection.
pub const STDIO_CHUNK_BYTES: usize = 256 << 10;

/// One piece of a stream through the control tree: what may be before an order on a connection.
pub const TUNNEL_CHUNK_BYTES: usize = 32 << 10;

/// What of a stream may be on its way in one direction: enough for the delay of a few levels of the
/// tree at the speed of the network, and what each agent on the way may have to hold of it.
pub const TUNNEL_WINDOW_BYTES: usize = 1 << 20;

/// What either end of a stream between nodes keeps of what it has sent, in case that did not
/// arrive: more than can be under way, which is a window and what sockets and agents hold at both
/// ends.
pub const KEPT_BYTES_MAX: usize = 4 << 20;

/// A piece of an output file on another node. A reader has one under way on each connection. It is
/// before reports of nodes on the way: the shortest with which files are read at half the speed of
/// a job's output.
pub const OUTPUT_PIECE_BYTES: usize = 256 << 10;

/// Orders or reports that travel in one message.
pub const BATCH_MAX: usize = 256;

/// Nodes that one report is of, where several say the same.
pub const ORIGINS_MAX: usize = 4096;

/// Bytes of a list in one message; a longer item travels alone.
pub const BATCH_BYTES_MAX: usize = 1 << 20;

/// Bytes of a candidate in a slot of a timetable: which launch, and a word for each 64 processors
/// of the widest node.
pub const CANDIDATE_BYTES_MAX: usize = 32 + PROCESSORS_PER_NODE_MAX as usize / 64 * 10;

/// The longest order, report, or part of a job that travels in a list: a frame without what is
/// around the list. That of a launch is also what an agent adds for its keeper, which is the path
/// of a group.
pub const ITEM_BYTES_MAX: usize = FRAME_BYTES_MAX - (64 << 10);

/// Places where an agent has looked for a parent in vain, as it tells the next: those of a few
/// seconds.
pub const UNREACHABLE_MAX: usize = 8;

/// Levels of the control tree: with two children each, more than there are nodes for.
pub const DEPTH_MAX: usize = 32;

/// A job script.
pub const SCRIPT_BYTES_MAX: usize = 4 << 20;

/// One line of a PMI connection; MPICH's own limit is 1,024 bytes a value and 256 a key.
pub const PMI_LINE_BYTES_MAX: usize = 64 << 10;

/// Programs, arguments and values that one spawn of an MPI program may name (`MPI_Comm_spawn`).
pub const SPAWN_BYTES_MAX: usize = 256 << 10;
/// Programs that are started together by one spawn.
pub const SPAWN_PROGRAMS_MAX: usize = 64;
/// Spawns of one step on one node whose tasks have not ended. Each has a process that passes their
/// output on.
pub const SPAWNS_PER_STEP_MAX: usize = 64;

/// Processes that one job adopts; all that descends from them comes with them.
pub const ADOPTED_MAX: usize = 1_000;

/// Processes that one answer tells of, and what it says of the command of each.
pub const PROCESSES_REPORTED_MAX: usize = 20_000;
/// See [`PROCESSES_REPORTED_MAX`].
pub const COMMAND_BYTES_MAX: usize = 500;

/// Processes of a job that are suspended by themselves, each with all below it: they are named
/// wherever the job is shown.
pub const SUSPENDED_PARTS_MAX: usize = 256;

/// Processes that parts of jobs, suspended by themselves, have together on a node, each counted
/// once for each part that it is in: a keeper tells a new agent of all of them in one message.
pub const SUSPENDED_PROCESSES_MAX: usize = 500_000;

/// What the nodes of a job may send each other before one barrier, all together: what the server of
/// each node has room for ([`crate::pmi::STORE_BYTES_MAX`]). It travels in parts.
pub const EXCHANGE_BYTES_MAX: usize = crate::pmi::STORE_BYTES_MAX;

/// What the PMI servers of all jobs of one user may keep on a node: eight jobs that need all that
/// one may have.
pub const EXCHANGE_USER_BYTES_MAX: usize = 8 * EXCHANGE_BYTES_MAX;

/// A part of it ends with the value that comes to this length; a single value is shorter than
/// [`PMI_LINE_BYTES_MAX`].
pub const EXCHANGE_PART_BYTES: usize = 64 << 10;

/// Candidates, and processors of all of them together, that the report of a timetable names.
pub const TIMETABLE_REPORT_MAX: usize = 65_536;

/// Switch records that one answer carries.
pub const SWITCH_RECORDS_MAX: usize = 65_536;

/// Jobs that all of these records together name.
pub const SWITCH_RECORD_JOBS_MAX: usize = 1 << 20;

/// What `tutti show` has of a command, in bytes.
pub const SHOWN_COMMAND_BYTES_MAX: usize = 4 << 10;

/// The latest changes of a job's state that are kept.
pub const STATE_CHANGES_MAX: usize = 64;

/// Nodes of a job that an event lists: events are stored.
pub const EVENT_NODES_MAX: usize = 256;

/// The texts of those nodes together, in bytes: about; those of one more may be in it.
pub const EVENT_NODES_BYTES_MAX: usize = 4 << 10;

/// Ranks of a job that one event is about.
pub const EVENT_RANKS_MAX: usize = 200;

/// Jobs that a reader of events may choose.
pub const EVENT_JOBS_MAX: usize = 1000;

/// The longest text in an event, such as why a job ended.
pub const EVENT_TEXT_BYTES_MAX: usize = 1 << 10;

/// Ways in which a job may notify its user.
pub const NOTIFY_WAYS_MAX: usize = 4;

/// Their commands, addresses and URLs together: each event of a notification has them.
pub const NOTIFY_TEXT_BYTES_MAX: usize = 1 << 10;

/// The key that signs a job's webhooks.
pub const NOTIFY_KEY_BYTES_MAX: usize = 128;

/// Nodes of a job that `tutti show` lists.
pub const SHOWN_NODES_MAX: usize = 4096;

/// The same of a job that has ended: they are stored.
pub const STORED_NODES_MAX: usize = 256;

/// A list of nodes that a job asked for, as `tutti show` has it, in bytes.
pub const SHOWN_LIST_BYTES_MAX: usize = 256;

/// A list of nodes as a user types it.
pub const HOST_LIST_BYTES_MAX: usize = 64 << 10;

/// Names that such a list stands for.
pub const HOST_LIST_NAMES_MAX: usize = 1 << 16;

/// A piece of a node's name: as long as a whole one can be (RFC 1035).
pub const HOST_NAME_BYTES_MAX: usize = 253;

// A part: what ends it, and a list of ranks, which came in a line.
const _: () = assert!(EXCHANGE_PART_BYTES + 2 * PMI_LINE_BYTES_MAX + (1 << 10) < FRAME_BYTES_MAX);
const _: () = assert!(STDIO_CHUNK_BYTES < FRAME_BYTES_MAX);
const _: () = assert!(BATCH_BYTES_MAX < ITEM_BYTES_MAX);
// A slot travels in one message: in a row each processor is one job's.
const _: () = assert!(
    (PROCESSORS_PER_NODE_MAX as usize + SUBSTITUTES_PER_SLOT_MAX + 1) * CANDIDATE_BYTES_MAX
        < ITEM_BYTES_MAX
);
// A report's nodes are beside it.
const _: () = assert!(ORIGINS_MAX * 5 + (1 << 10) < FRAME_BYTES_MAX - ITEM_BYTES_MAX);
const _: () = assert!(SCRIPT_BYTES_MAX + (2 << 20) < JOB_REQUEST_BYTES_MAX);
// A place: a rank, and a set of up to 128 words of which most are zero.
const _: () = assert!(JOB_REQUEST_BYTES_MAX + TASKS_PER_NODE_MAX as usize * 150 < ITEM_BYTES_MAX);
const _: () = assert!(SWITCH_RECORDS_MAX * 60 + SWITCH_RECORD_JOBS_MAX * 10 < ITEM_BYTES_MAX);
const _: () = assert!(TIMETABLE_REPORT_MAX * 40 < ITEM_BYTES_MAX);
const _: () = assert!(PROCESSES_REPORTED_MAX * (COMMAND_BYTES_MAX + 60) < ITEM_BYTES_MAX);
// A number, a start time, and what says which parts.
const _: () = assert!(SUSPENDED_PROCESSES_MAX * 15 + SUSPENDED_PARTS_MAX * 30 < ITEM_BYTES_MAX);
const _: () = assert!(FRAME_BYTES_MAX < u32::MAX as usize);

/// What the further steps of one job may be to run, in bytes.
pub const STEPS_BYTES_MAX: usize = 64 << 20;

/// What the further steps of all jobs of one user may be to run, in bytes.
pub const STEPS_USER_BYTES_MAX: usize = 256 << 20;

/// Further steps of a job that have ended and are shown.
pub const STEPS_SHOWN_MAX: usize = 100;

/// Runs of numbers that are kept of an array that has ended: by them its elements are found.
pub const ARRAY_NUMBERS_MAX: usize = 7000;

/// Elements of an array in one answer.
pub const ELEMENTS_FOUND_MAX: usize = 20_000;

/// As much of a list of indices as tables show, in bytes.
pub const SHOWN_INDICES_BYTES_MAX: usize = 120;
