//! No message is longer than a frame: each kind with the most that may be in it.
//!
//! One message of each kind is made from its type, and then grown. The matches that grow them name all kinds, so a new
//! kind does not compile before its most is said here.

use super::layout::Layouts;
use proptest::prelude::{ProptestConfig, any, proptest};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_bytes::ByteBuf;
use tutti_types::limits::{
    CLASS_JOBS_MAX, DEVICE_FILES_MAX, DEVICE_PATH_BYTES_MAX, DEVICES_PER_NODE_MAX,
    POLICY_CANDIDATES_MAX, POLICY_PATH_BYTES_MAX, PROCESSORS_PER_NODE_MAX,
    SUBSTITUTES_PER_SLOT_MAX,
};
use tutti_types::{
    Candidate, ClassName, ClassPart, ClusterTime, Device, DeviceId, IfAbsent, JobId, LaunchId,
    Maker, Nanos, NodeId, ProcessorSet, Rank, ResourceName, RowId, Slot, StepId, TaskPlacement,
    TaskStatus, Timetable,
};
use tutti_wire::attach::{FromFrontEnd, ToFrontEnd};
use tutti_wire::branch::{
    ClientMachine, Contact, FromBranch, Order, Origin, Part, Passed, Recipients, Report, ToBranch,
    batches, split_shares,
};
use tutti_wire::frame::{encode, encoded_len, pack};
use tutti_wire::keeper::{FromKeeper, HeldJob, StoppedPart, ToKeeper};
use tutti_wire::launch::{JobNode, Launch, Share, Usage};
use tutti_wire::limits::{
    BATCH_BYTES_MAX, BATCH_MAX, DEPTH_MAX, EXCHANGE_PART_BYTES, FRAME_BYTES_MAX,
    FRONT_END_FRAME_BYTES_MAX, HELD_JOBS_MAX, HOST_NAME_BYTES_MAX, ITEM_BYTES_MAX,
    JOB_REQUEST_BYTES_MAX, NEWCOMER_FRAME_BYTES_MAX, ORIGINS_MAX, OUTPUT_PIECE_BYTES,
    PMI_LINE_BYTES_MAX, STDIO_CHUNK_BYTES, SUSPENDED_PARTS_MAX, SUSPENDED_PROCESSES_MAX,
    SWITCH_RECORD_JOBS_MAX, SWITCH_RECORDS_MAX, TASK_DETAIL_BYTES_MAX, TASKS_PER_NODE_MAX,
    TIMETABLE_REPORT_MAX, TUNNEL_CHUNK_BYTES, UNREACHABLE_MAX,
};
use tutti_wire::output::OutputPiece;
use tutti_wire::pmi::Exchange;
use tutti_wire::pmix::Piece;
use tutti_wire::report::{
    CandidateReport, CandidateState, SwitchRecord, TaskReport, TimetableReport, TimetableSlotReport,
};
use tutti_wire::tree::{
    Answer, FromAgent, PolicyNews, PolicyPart, PolicyReport, Question, TimetableParts, ToAgent,
    timetable_orders,
};

/// Nodes of an instance: as many as the core takes.
const NODES: usize = 1 << 20;

/// A path, or a text with one in it.
const PATH_BYTES: usize = 4096;

/// What a message, an error, or a certificate may be: more than any of them is.
const TEXT_BYTES: usize = 32 << 10;

const LAUNCH: LaunchId =
    LaunchId { job: JobId(u64::MAX), number: u32::MAX, step: StepId(u32::MAX) };
const TASKS: usize = TASKS_PER_NODE_MAX as usize;

fn bytes(count: usize) -> ByteBuf {
    vec![b'x'; count].into()
}

fn text(count: usize) -> String {
    "x".repeat(count)
}

fn nodes(count: usize) -> Vec<NodeId> {
    vec![NodeId(u32::MAX); count]
}

/// One message of each kind.
fn kinds<M: DeserializeOwned>() -> Vec<M> {
    Layouts::default().add::<M>()
}

fn assert_fits<M: Serialize + std::fmt::Debug>(message: &M, most: usize) {
    let mut frame = Vec::new();
    let kind: String = format!("{message:?}").chars().take(60).collect();
    encode(message, &mut frame).unwrap_or_else(|error| panic!("{kind}: {error}"));
    assert!(frame.len() - 4 <= most, "{kind}: {} bytes, more than {most}", frame.len() - 4);
    assert_eq!(frame.len() - 4, encoded_len(message), "{kind}");
}

fn usage() -> Usage {
    let mut usage = Usage::unknown();
    (usage.user_us, usage.system_us, usage.switches) = (u64::MAX, u64::MAX, u64::MAX);
    (usage.memory_peak_bytes, usage.read_bytes) = (u64::MAX, u64::MAX);
    (usage.written_bytes, usage.processes) = (u64::MAX, Some(u64::MAX));
    usage.processes_peak = Some(u64::MAX);
    usage
}

fn exchange(exchange: Exchange) -> Exchange {
    let each = bytes(PMI_LINE_BYTES_MAX / 2);
    let count = EXCHANGE_PART_BYTES / each.len() + 1;
    Exchange { launch: LAUNCH, values: vec![(each.clone(), each); count].into(), ..exchange }
}

fn piece() -> Piece {
    let data = bytes(Piece::BYTES_MAX);
    Piece { life: u64::MAX, of: u64::MAX, at: u64::MAX, data, taken: u64::MAX }
}

/// Everything of a launch but what each node has of its own.
fn launch(launch: Launch) -> Launch {
    let mut launch = launch;
    launch.spec.environment = vec![bytes(JOB_REQUEST_BYTES_MAX - (64 << 10))];
    launch.credentials.groups = vec![u32::MAX; 32];
    launch.nodes.clear();
    launch
}

/// The share of a node with the most tasks, each on the highest of many processors.
fn share(tasks: usize) -> Share {
    let processors: ProcessorSet = [8191].into_iter().collect();
    let task = TaskPlacement { rank: Rank(u32::MAX), processors };
    let devices = devices(4);
    let closed = vec![text(DEVICE_PATH_BYTES_MAX); DEVICE_FILES_MAX * DEVICES_PER_NODE_MAX];
    Share {
        tasks: vec![task; tasks],
        node_rank: u32::MAX,
        held: None,
        devices,
        closed,
        in_turns: true,
        is_closed: true,
        is_bound: true,
    }
}

/// So many devices, each as long as it may be.
fn devices(count: usize) -> Vec<Device> {
    let id = DeviceId { name: ResourceName::new(&"g".repeat(31)).unwrap(), number: 1023 };
    let device = Device {
        id,
        files: vec![text(DEVICE_PATH_BYTES_MAX); DEVICE_FILES_MAX],
        maker: Some(Maker::Nvidia),
        pci: Some(text(32)),
        numa: Some(u32::MAX),
        near: (0..PROCESSORS_PER_NODE_MAX).collect(),
    };
    vec![device; count]
}

fn question(question: Question) -> Question {
    match question {
        Question::Upgrade { .. } => Question::Upgrade { program: bytes(PATH_BYTES) },
        Question::Runs { .. } => Question::Runs { program: bytes(PATH_BYTES) },
        Question::Output { from, .. } => {
            Question::Output { path: bytes(PATH_BYTES), uid: u32::MAX, from }
        }
        Question::Devices { .. } => {
            let count = DEVICES_PER_NODE_MAX;
            Question::Devices { devices: devices(count), others: devices(count) }
        }
        fixed @ (Question::Switches { .. }
        | Question::Status
        | Question::Timetable
        | Question::SignOfLife { .. }
        | Question::SuspendPart(_)
        | Question::ResumePart(_)
        | Question::Usages
        | Question::Fares
        | Question::Processes(_)
        | Question::EndPart { .. }
        | Question::SignalPart { .. }) => fixed,
    }
}

/// A slot with a job for each processor of the widest node, and as many substitutes as there may be.
fn slot() -> Slot {
    let candidate = Candidate {
        launch: LAUNCH,
        processors: (0..PROCESSORS_PER_NODE_MAX).collect(),
        if_absent: IfAbsent::Down,
    };
    let most = PROCESSORS_PER_NODE_MAX as usize + SUBSTITUTES_PER_SLOT_MAX;
    let (row, length) = (RowId(u64::MAX), Nanos(u64::MAX));
    Slot { row, length, candidates: vec![candidate; most], local: u32::MAX }
}

fn order(order: ToAgent) -> ToAgent {
    match order {
        ToAgent::Welcome { node, clock_ahead_ns, settings, .. } => {
            let known = vec![LAUNCH; HELD_JOBS_MAX];
            ToAgent::Welcome { node, clock_ahead_ns, settings, known }
        }
        ToAgent::Refused { .. } => ToAgent::Refused { reason: text(TEXT_BYTES) },
        ToAgent::KeepImages { .. } => {
            let shared = vec![(JobId(u64::MAX), u64::MAX); 100_000];
            ToAgent::KeepImages { jobs: vec![JobId(u64::MAX); 100_000], shared }
        }
        ToAgent::SignalRoots { signal, .. } => ToAgent::SignalRoots { launch: LAUNCH, signal },
        ToAgent::Piece { peer, .. } => ToAgent::Piece { peer, piece: Some(piece()) },
        ToAgent::RanksFailed { .. } => {
            ToAgent::RanksFailed { launch: LAUNCH, ranks: vec![Rank(u32::MAX); TASKS] }
        }
        ToAgent::Signal { signal, .. } => {
            ToAgent::Signal { launch: LAUNCH, ranks: vec![Rank(u32::MAX); TASKS], signal }
        }
        ToAgent::Ask { query, question: asked } => {
            ToAgent::Ask { query, question: question(asked) }
        }
        ToAgent::Timetable(_) => {
            ToAgent::Timetable(Timetable { slots: vec![slot()], ..Timetable::default() })
        }
        ToAgent::TimetablePart { version, .. } => {
            ToAgent::TimetablePart { version, slots: vec![slot()] }
        }
        ToAgent::PolicyPart(_) => ToAgent::PolicyPart(Some(PolicyPart {
            path: text(POLICY_PATH_BYTES_MAX),
            user: Some(text(TEXT_BYTES)),
            limit: Nanos(u64::MAX),
            memory_bytes: Some(u64::MAX),
            processes: u64::MAX,
        })),
        ToAgent::PolicyNews(_) => ToAgent::PolicyNews(PolicyNews::Refused {
            round: u64::MAX,
            index: u32::MAX,
            reason: text(TEXT_BYTES),
        }),
        // With its shares: see below.
        fixed @ (ToAgent::Launch { .. }
        | ToAgent::Settings(_)
        | ToAgent::Terminate { .. }
        | ToAgent::Swap { .. }
        | ToAgent::Kill { .. }
        | ToAgent::Forget { .. }
        | ToAgent::Stop
        | ToAgent::Measure
        | ToAgent::MeasureNetwork { .. }
        | ToAgent::Leave) => fixed,
    }
}

fn answer(answer: Answer) -> Answer {
    match answer {
        Answer::Switches(_) => {
            let jobs = vec![JobId(u64::MAX); SWITCH_RECORD_JOBS_MAX / SWITCH_RECORDS_MAX];
            let record = SwitchRecord {
                due_ns: u64::MAX,
                began_ns: u64::MAX,
                stopped_ns: u64::MAX,
                devices_ns: u64::MAX,
                resumed_ns: u64::MAX,
                left: jobs,
                yields: Vec::new(),
                came: Vec::new(),
                running: Vec::new(),
                stragglers: u32::MAX,
            };
            Answer::Switches(vec![record; SWITCH_RECORDS_MAX])
        }
        Answer::Status(mut status) => {
            status.container = text(TEXT_BYTES);
            Answer::Status(status)
        }
        Answer::Timetable(_) => {
            let candidate = CandidateReport {
                job: JobId(u64::MAX),
                processors: vec![8191],
                runs: true,
                state: CandidateState::Running,
                hold: true,
            };
            let (row, length_ns) = (Some(u64::MAX), u64::MAX);
            let candidates = vec![candidate];
            let slot = TimetableSlotReport { row, length_ns, candidates };
            let slots = vec![slot; TIMETABLE_REPORT_MAX];
            let node = text(HOST_NAME_BYTES_MAX);
            Answer::Timetable(Box::new(TimetableReport { node, slots, ..Default::default() }))
        }
        Answer::Usages(_) => Answer::Usages(vec![(JobId(u64::MAX), usage()); HELD_JOBS_MAX]),
        // More than a frame holds.
        Answer::Tasks(_) => {
            let (node, processes) = (text(HOST_NAME_BYTES_MAX), Vec::new());
            let (job, rank, left_out) = (JobId(u64::MAX), Rank(u32::MAX), u64::MAX);
            Answer::Tasks(vec![TaskReport { job, rank, node, processes, left_out }; 2 * TASKS])
        }
        Answer::Output(_) => {
            let (at, length) = (u64::MAX, u64::MAX);
            Answer::Output(OutputPiece { at, length, data: bytes(OUTPUT_PIECE_BYTES) })
        }
        Answer::Devices(_) => Answer::Devices(devices(DEVICES_PER_NODE_MAX)),
        Answer::Failed(_) => Answer::Failed(text(TEXT_BYTES)),
        fixed @ (Answer::Fares(_) | Answer::Alive(_) | Answer::Done) => fixed,
    }
}

fn report(report: FromAgent) -> FromAgent {
    match report {
        FromAgent::Join(mut join) => {
            join.held = vec![LAUNCH; HELD_JOBS_MAX];
            join.attach = bytes(PATH_BYTES);
            join.devices = devices(DEVICES_PER_NODE_MAX);
            FromAgent::Join(join)
        }
        FromAgent::TaskEnded { status, .. } => FromAgent::TaskEnded {
            launch: LAUNCH,
            rank: Rank(u32::MAX),
            status,
            detail: text(TASK_DETAIL_BYTES_MAX),
            usage: usage(),
        },
        FromAgent::GoesOn { .. } => {
            let failure = Some(text(TASK_DETAIL_BYTES_MAX));
            FromAgent::GoesOn { launch: LAUNCH, failure, ends: true }
        }
        FromAgent::Piece { peer, .. } => FromAgent::Piece { peer, piece: piece() },
        FromAgent::OutputLost { .. } => {
            FromAgent::OutputLost { launch: LAUNCH, what: text(TASK_DETAIL_BYTES_MAX) }
        }
        FromAgent::NotVacated { .. } => {
            FromAgent::NotVacated { launch: LAUNCH, what: text(TASK_DETAIL_BYTES_MAX) }
        }
        FromAgent::Answer { query, answer: said } => {
            FromAgent::Answer { query, answer: answer(said) }
        }
        FromAgent::Policy(_) => FromAgent::Policy(PolicyReport::Arrange {
            round: u64::MAX,
            index: u32::MAX,
            row: Some(RowId(u64::MAX)),
            candidates: vec![(JobId(u64::MAX), IfAbsent::Down); POLICY_CANDIDATES_MAX],
        }),
        fixed @ (FromAgent::TaskStarted { .. }
        | FromAgent::Cleared { .. }
        | FromAgent::Leaving
        | FromAgent::Load(_)
        | FromAgent::Used(_)
        | FromAgent::Foreign(_)
        | FromAgent::Memory(_)
        | FromAgent::Keeper(_)
        | FromAgent::Measured(_)
        | FromAgent::NetworkMeasured(_)
        | FromAgent::HasImage { .. }
        | FromAgent::Lease(_)
        | FromAgent::Swapped { .. }) => fixed,
    }
    .bounded()
}

fn stream(part: Part) -> Part {
    match part {
        Part::Open(mut vouch) => {
            vouch.groups = vec![u32::MAX; 1 << 16];
            Part::Open(vouch)
        }
        Part::Bytes(_) => Part::Bytes(bytes(TUNNEL_CHUNK_BYTES)),
        fixed @ (Part::Taken(_) | Part::End(_)) => fixed,
    }
}

fn contact() -> Contact {
    Contact { name: text(HOST_NAME_BYTES_MAX), address: text(HOST_NAME_BYTES_MAX + 8) }
}

fn to_branch(message: ToBranch) -> ToBranch {
    match message {
        ToBranch::Orders(orders) => ToBranch::Orders(orders),
        ToBranch::Exchanged(passed) => {
            let exchange = exchange(passed.exchange);
            ToBranch::Exchanged(Passed { nodes: nodes(NODES), exchange })
        }
        ToBranch::Tunnel(mut tunnelled) => {
            tunnelled.part = stream(tunnelled.part);
            ToBranch::Tunnel(tunnelled)
        }
        ToBranch::Taken { .. } => ToBranch::Taken { above: vec![contact(); DEPTH_MAX] },
        ToBranch::JoinAgain { .. } => ToBranch::JoinAgain { above: vec![contact(); DEPTH_MAX] },
        ToBranch::Elsewhere(_) => ToBranch::Elsewhere(contact()),
        ToBranch::Gone(_) => ToBranch::Gone(nodes(NODES)),
        ToBranch::Renewed { name, .. } => {
            ToBranch::Renewed { name, certificate: bytes(TEXT_BYTES) }
        }
        ToBranch::Refused { .. } => ToBranch::Refused { reason: text(TEXT_BYTES) },
        fixed @ (ToBranch::Clock(_)
        | ToBranch::Probed { .. }
        | ToBranch::Leaving
        | ToBranch::Removed { .. }
        | ToBranch::Client { .. }) => fixed,
    }
}

fn from_branch(message: FromBranch) -> FromBranch {
    match message {
        FromBranch::Here { name, address, .. } => {
            let unreachable = vec![text(HOST_NAME_BYTES_MAX + 8); UNREACHABLE_MAX];
            FromBranch::Here { name, address, unreachable }
        }
        FromBranch::Reports(reports) => FromBranch::Reports(reports),
        FromBranch::Exchange(passed) => {
            let exchange = exchange(passed.exchange);
            FromBranch::Exchange(Passed { nodes: nodes(NODES), exchange })
        }
        FromBranch::Gone(_) => FromBranch::Gone(nodes(BATCH_BYTES_MAX / 5)),
        FromBranch::Times(_) => {
            let time = (NodeId(u32::MAX), Nanos(u64::MAX));
            FromBranch::Times(vec![time; BATCH_BYTES_MAX / 15])
        }
        FromBranch::Tunnel(mut tunnelled) => {
            tunnelled.part = stream(tunnelled.part);
            FromBranch::Tunnel(tunnelled)
        }
        FromBranch::Renew { name, shown, current, .. } => {
            FromBranch::Renew { name, request: bytes(TEXT_BYTES), shown, current }
        }
        FromBranch::Client(client) => FromBranch::Client(ClientMachine {
            name: text(HOST_NAME_BYTES_MAX),
            address: text(HOST_NAME_BYTES_MAX),
            ..client
        }),
        FromBranch::Probe { number, is_last, .. } => {
            FromBranch::Probe { number, is_last, data: bytes(TUNNEL_CHUNK_BYTES) }
        }
        fixed @ FromBranch::Clock { .. } => fixed,
    }
}

fn stopped(parts: usize, processes: usize) -> Vec<StoppedPart> {
    let target = LAUNCH.job.into();
    let processes = vec![(i32::MAX, u64::MAX >> 1); processes / parts];
    vec![StoppedPart { target, processes }; parts]
}

fn to_keeper(message: ToKeeper) -> ToKeeper {
    match message {
        ToKeeper::KeepImages { .. } => {
            let shared = vec![(JobId(u64::MAX), u64::MAX); 100_000];
            ToKeeper::KeepImages { jobs: vec![JobId(u64::MAX); 100_000], shared }
        }
        ToKeeper::SignalRoots { signal, .. } => ToKeeper::SignalRoots { launch: LAUNCH, signal },
        ToKeeper::Piece { peer, .. } => ToKeeper::Piece { peer, piece: Some(piece()) },
        ToKeeper::RanksFailed { .. } => {
            ToKeeper::RanksFailed { launch: LAUNCH, ranks: vec![Rank(u32::MAX); TASKS] }
        }
        ToKeeper::Signal { signal, .. } => {
            ToKeeper::Signal { launch: LAUNCH, ranks: vec![Rank(u32::MAX); TASKS], signal }
        }
        ToKeeper::Stopped { .. } => {
            let parts = stopped(SUSPENDED_PARTS_MAX, SUSPENDED_PROCESSES_MAX);
            ToKeeper::Stopped { launch: LAUNCH, parts }
        }
        ToKeeper::Exchanged(part) => ToKeeper::Exchanged(exchange(part)),
        // A launch that an order has held, and a path: see below.
        fixed @ (ToKeeper::Launch { .. }
        | ToKeeper::Kill { .. }
        | ToKeeper::Forget { .. }
        | ToKeeper::SignOfLife
        | ToKeeper::AskCarried
        | ToKeeper::SendExchanges { .. }
        | ToKeeper::Lease { .. }
        | ToKeeper::Release { .. }
        | ToKeeper::Stop) => fixed,
    }
}

/// A job that a keeper holds, of which most tasks have ended.
fn held(job: HeldJob) -> HeldJob {
    let ended = (Rank(u32::MAX), TaskStatus::Exited(1), text(TASK_DETAIL_BYTES_MAX), usage());
    HeldJob {
        launch: LAUNCH,
        cgroup: Some(bytes(PATH_BYTES)),
        roots: vec![(Rank(u32::MAX), i32::MAX); TASKS],
        adopted: vec![(i32::MAX, u64::MAX); 1000],
        ended: vec![ended; TASKS / 2],
        // One part may have all processes.
        stopped: stopped(1, SUSPENDED_PROCESSES_MAX),
        cleared: Some(usage()),
        ..job
    }
}

fn from_keeper(message: FromKeeper) -> FromKeeper {
    match message {
        FromKeeper::TaskEnded { status, .. } => FromKeeper::TaskEnded {
            launch: LAUNCH,
            rank: Rank(u32::MAX),
            status,
            detail: text(TASK_DETAIL_BYTES_MAX),
            usage: usage(),
        },
        FromKeeper::Piece { peer, .. } => FromKeeper::Piece { peer, piece: piece() },
        FromKeeper::OutputLost { .. } => {
            FromKeeper::OutputLost { launch: LAUNCH, what: text(TASK_DETAIL_BYTES_MAX) }
        }
        FromKeeper::GoesOn { .. } => {
            let failure = Some(text(TASK_DETAIL_BYTES_MAX));
            FromKeeper::GoesOn { launch: LAUNCH, failure, ends: true }
        }
        FromKeeper::Exchange(part) => FromKeeper::Exchange(exchange(part)),
        // In parts: see below.
        fixed @ (FromKeeper::Held(_)
        | FromKeeper::Welcome { .. }
        | FromKeeper::TaskStarted { .. }
        | FromKeeper::Cleared { .. }
        | FromKeeper::Alive
        | FromKeeper::Carried(_)
        | FromKeeper::Lapsed) => fixed,
    }
}

fn to_front_end(message: ToFrontEnd) -> ToFrontEnd {
    match message {
        ToFrontEnd::Refused { .. } => ToFrontEnd::Refused { reason: text(TEXT_BYTES) },
        ToFrontEnd::Output { rank, stream, .. } => {
            ToFrontEnd::Output { rank, stream, data: bytes(STDIO_CHUNK_BYTES) }
        }
        ToFrontEnd::TaskEnded { rank, status, .. } => {
            ToFrontEnd::TaskEnded { rank, status, detail: text(TASK_DETAIL_BYTES_MAX) }
        }
        fixed @ (ToFrontEnd::Attached { .. }
        | ToFrontEnd::Finished
        | ToFrontEnd::Pipe { .. }
        | ToFrontEnd::ReturnPipe { .. }
        | ToFrontEnd::Skipped { .. }
        | ToFrontEnd::Killed) => fixed,
    }
}

fn from_front_end(message: FromFrontEnd) -> (FromFrontEnd, usize) {
    match message {
        FromFrontEnd::Input { rank, .. } => {
            let data = bytes(STDIO_CHUNK_BYTES);
            (FromFrontEnd::Input { rank, data }, FRONT_END_FRAME_BYTES_MAX)
        }
        FromFrontEnd::GiveUp { .. } => {
            let reason = text(TASK_DETAIL_BYTES_MAX);
            (FromFrontEnd::GiveUp { job: LAUNCH.job, reason }, NEWCOMER_FRAME_BYTES_MAX)
        }
        FromFrontEnd::OutputLost { .. } => {
            let what = text(TEXT_BYTES);
            (FromFrontEnd::OutputLost { what }, FRONT_END_FRAME_BYTES_MAX)
        }
        fixed @ (FromFrontEnd::Attach { .. }
        | FromFrontEnd::Watch { .. }
        | FromFrontEnd::WantPipe { .. }
        | FromFrontEnd::PipeTaken { .. }
        | FromFrontEnd::PipeLost { .. }
        | FromFrontEnd::Done
        | FromFrontEnd::Resize { .. }
        | FromFrontEnd::Progress) => (fixed, NEWCOMER_FRAME_BYTES_MAX),
    }
}

#[test]
fn the_longest_message_of_each_kind_fits_into_a_frame() {
    for message in kinds::<ToBranch>().into_iter().map(to_branch) {
        assert_fits(&message, FRAME_BYTES_MAX);
    }
    for message in kinds::<FromBranch>().into_iter().map(from_branch) {
        assert_fits(&message, FRAME_BYTES_MAX);
    }
    for message in kinds::<ToKeeper>().into_iter().map(to_keeper) {
        assert_fits(&message, FRAME_BYTES_MAX);
    }
    for message in kinds::<FromKeeper>().into_iter().map(from_keeper) {
        assert_fits(&message, FRAME_BYTES_MAX);
    }
    for message in kinds::<ToFrontEnd>().into_iter().map(to_front_end) {
        assert_fits(&message, FRAME_BYTES_MAX);
    }
    for (message, most) in kinds::<FromFrontEnd>().into_iter().map(from_front_end) {
        assert_fits(&message, most);
    }
}

#[test]
fn the_longest_orders_and_reports_fit_into_frames_however_many_there_are() {
    let orders = kinds::<ToAgent>().into_iter().map(order).flat_map(|order| {
        let to = Recipients::Nodes(nodes(NODES / 32));
        vec![Order { to, order }; 2]
    });
    for batch in batches(orders.collect()) {
        assert_fits(&ToBranch::Orders(batch), FRAME_BYTES_MAX);
    }
    let reports = kinds::<FromAgent>().into_iter().map(report).flat_map(|report| {
        let from = Origin::Nodes(nodes(ORIGINS_MAX));
        vec![Report { from, report }; 2]
    });
    for reports in pack(reports.collect(), BATCH_BYTES_MAX, BATCH_MAX) {
        assert_fits(&FromBranch::Reports(reports), FRAME_BYTES_MAX);
    }
}

/// A launch, from one that was made from its type.
fn a_launch() -> Launch {
    let launches = kinds::<ToAgent>().into_iter().filter_map(|order| match order {
        ToAgent::Launch { launch, .. } => Some(launch),
        _ => None,
    });
    launch(launches.into_iter().next().unwrap())
}

#[test]
fn a_job_with_many_tasks_on_many_nodes_is_launched_by_several_orders() {
    let launch = a_launch();
    let shares: Vec<_> = (0..70).map(|node| (NodeId(node), share(1000))).collect();
    let parts = split_shares(&launch, shares.clone()).unwrap();
    assert!(parts.len() > 1 && parts.len() < 5, "{}", parts.len());
    assert_eq!(parts.concat(), shares);
    for shares in parts {
        let to = Recipients::Nodes(shares.iter().map(|(node, _)| *node).collect());
        let order = ToAgent::Launch { launch: launch.clone(), shares };
        for batch in batches(vec![Order { to, order }]) {
            assert_fits(&ToBranch::Orders(batch), FRAME_BYTES_MAX);
        }
    }
}

#[test]
fn the_largest_share_goes_with_the_largest_request_and_on_to_the_keeper() {
    let shares = vec![(NodeId(0), share(TASKS))];
    let launch = a_launch();
    assert_eq!(split_shares(&launch, shares.clone()).unwrap(), [shares]);
    let (launch, cgroup) = (Launch { share: share(TASKS), ..launch }, Some(bytes(PATH_BYTES)));
    assert_fits(&ToKeeper::Launch { launch, cgroup }, FRAME_BYTES_MAX);
}

#[test]
fn a_launch_that_no_order_holds_is_refused_where_it_is_made() {
    let mut launch = a_launch();
    let (name, address) = (text(HOST_NAME_BYTES_MAX), String::new());
    launch.nodes = vec![JobNode { node: NodeId(0), name, address, tasks: 1, slots: 1 }; 40_000];
    let shares = vec![(NodeId(0), share(1)), (NodeId(1), share(1))];
    let refused = split_shares(&launch, shares).unwrap_err();
    assert!(refused.bytes > ITEM_BYTES_MAX, "{refused:?}");
}

#[test]
fn what_a_keeper_holds_comes_in_parts_and_is_whole_again() {
    let made = kinds::<FromKeeper>().into_iter().find_map(|message| match message {
        FromKeeper::Held(jobs) => jobs.into_iter().next(),
        _ => None,
    });
    let large = held(made.unwrap());
    let small =
        HeldJob { launch: LaunchId::first(JobId(1)), ..large.clone().into_parts().remove(0) };
    let jobs = [small.clone(), large, HeldJob { launch: LaunchId::first(JobId(2)), ..small }];
    let parts: Vec<HeldJob> = jobs.iter().cloned().flat_map(HeldJob::into_parts).collect();
    let mut whole: Vec<HeldJob> = Vec::new();
    for parts in pack(parts, BATCH_BYTES_MAX, BATCH_MAX) {
        assert_fits(&FromKeeper::Held(parts.clone()), FRAME_BYTES_MAX);
        for part in parts {
            let next = match whole.last_mut() {
                Some(job) => job.take_in(part),
                None => Some(part),
            };
            whole.extend(next);
        }
    }
    assert!(whole == jobs, "jobs are not what they were");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn packed_items_keep_their_order_and_no_list_has_too_much(
        lengths in proptest::collection::vec(any::<u16>(), 0..60),
        bytes_max in 1_usize..200_000,
        count_max in 1_usize..20,
    ) {
        let items: Vec<ByteBuf> = lengths.iter().map(|&length| bytes(usize::from(length))).collect();
        let lists = pack(items.clone(), bytes_max, count_max);
        for list in &lists {
            let length: usize = list.iter().map(encoded_len).sum();
            assert!(list.len() == 1 || (length <= bytes_max && list.len() <= count_max));
            assert!(!list.is_empty());
        }
        assert_eq!(lists.concat(), items);
    }
}

/// As many rows as there may be on a node of 64 processors, each in the most slots.
#[test]
fn a_timetable_of_any_length_arrives_whole() {
    let candidate = |job: u32| Candidate {
        launch: LaunchId {
            job: JobId(u64::MAX - u64::from(job)),
            number: u32::MAX,
            step: StepId(u32::MAX),
        },
        processors: [job % 64].into_iter().collect(),
        if_absent: IfAbsent::Down,
    };
    let slot = |number: u32| Slot {
        row: RowId((number % 1024).into()),
        length: Nanos(number.into()),
        candidates: (0..64).map(|job| candidate(job + number)).collect(),
        local: number,
    };
    for slots in [0, 1, 12, 13, 16 * 1024] {
        let slots: Vec<Slot> = (0..slots).map(slot).collect();
        let (version, activates) = (7, ClusterTime(5));
        let class = ClassPart {
            class: Some(ClassName::new("c")),
            part: 1,
            jobs: vec![JobId(u64::MAX); CLASS_JOBS_MAX],
        };
        let classes = vec![class];
        let timetable = Timetable { version, activates, epoch: ClusterTime(3), slots, classes };
        let orders = timetable_orders(timetable.clone());
        assert_eq!(orders.len() > 1, timetable.slots.len() > 1024);
        let mut parts = TimetableParts::default();
        // Of another, of which the rest did not come.
        parts.add(version - 1, vec![slot(1)]);
        let mut whole = None;
        for order in orders {
            assert!(whole.is_none(), "the last one ends it");
            assert_fits(&order, ITEM_BYTES_MAX);
            match order {
                ToAgent::TimetablePart { version, slots } => parts.add(version, slots),
                ToAgent::Timetable(last) => whole = Some(parts.complete(last)),
                other => panic!("{other:?}"),
            }
        }
        assert!(whole == Some(timetable), "it came otherwise than it was sent");
        assert_eq!(parts, TimetableParts::default());
    }
}
