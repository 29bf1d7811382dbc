use super::*;
use crate::attach::TerminalSize;
use crate::keeper::StoppedPart;
use crate::launch::{Credentials, InputTo, JobNode, LaunchSpec, Share, Stdio};
use crate::pmi::ServerSpec;
use crate::pmix::{Ask, Far, Part, Peer, PmixNode, PmixSpace, Said, Session, ToPmix, Value};
use alloc::format;
use alloc::vec;
use proptest::prelude::*;
use tutti_types::digest::Digest;
use tutti_types::{
    ClusterTime, ControlMethod, JobId, LaunchId, Nanos, NodeId, ProcessorSet, StepId,
    TaskPlacement, UserId,
};

fn bytes(text: &str) -> ByteBuf {
    ByteBuf::from(text.as_bytes())
}

fn launch() -> Launch {
    Launch {
        job: JobId(7),
        number: 1,
        step: StepId::FIRST,
        began: ClusterTime(1_000_000_007),
        control: ControlMethod::Freeze,
        own_ipc: true,
        credentials: Credentials { uid: 1000, gid: 100, groups: vec![100, 4] },
        size: 4,
        share: Share {
            tasks: vec![TaskPlacement { rank: Rank(0), processors: ProcessorSet::first(2) }],
            node_rank: 0,
            held: None,
            devices: Vec::new(),
            closed: Vec::new(),
            in_turns: false,
            is_closed: false,
            is_bound: false,
        },
        nodes: vec![JobNode {
            node: NodeId(0),
            name: "a1".into(),
            address: "10.0.0.1".into(),
            tasks: 4,
            slots: 4,
        }],
        class: "interactive".into(),
        resources: Vec::new(),
        quantum: Nanos::from_millis(100),
        processors_per_task: 1,
        memory_per_task_bytes: Some(1 << 30),
        spec: LaunchSpec {
            name: "test".into(),
            argv: vec![bytes("cat"), bytes("-u")],
            script: None,
            environment: vec![bytes("PATH=/bin")],
            directory: bytes("/tmp"),
            umask: 0o022,
            rlimits: vec![(7, 1024, 4096)],
            stdio: Stdio::FrontEnd { input: InputTo::All },
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
}

/// A server that has been told something of each kind.
fn pmi() -> (HandedPmi, Names) {
    let mut names = Names::new();
    let mut server = Server::new(ServerSpec {
        job: JobId(7),
        user: UserId(1000),
        size: 4,
        ranks: vec![Rank(0), Rank(1)],
        space_name: "kvs_7".into(),
        process_mapping: Some("(vector,(0,1,2))".into()),
        attributes: Vec::new(),
        universe: 8,
        spawned: None,
    });
    let mut out = Vec::new();
    for line in
        ["cmd=init pmi_version=1 pmi_subversion=1", "cmd=put key=a value=b", "cmd=barrier_in"]
    {
        server.handle(0, line.as_bytes(), &mut names, &mut out);
    }
    server.handle(1, b"cmd=barrier_in", &mut names, &mut out);
    names.publish(UserId(1000), JobId(7), b"ocean", b"port 1").unwrap();
    let link = HandedPmiLink { fd: 9, lines: bytes("cmd=ge"), unsent: bytes("cmd=x\n") };
    (HandedPmi { server, connections: vec![Some(link), None] }, names)
}

fn link(fd: Fd) -> HeldLink {
    HeldLink {
        fd,
        greeted: Some(Role::FrontEnd),
        input: bytes("in"),
        output: bytes("out"),
        taken: 300,
    }
}

fn outlet() -> HeldOutlet {
    let kept = HeldKept { bytes: bytes("sent"), before: 1 << 33, uncounted: 12 };
    HeldOutlet { unsent: bytes("unsent"), pipes: vec![(2, 11)], kept: Some(kept) }
}

fn task(rank: u32, phase: HandedPhase) -> HandedTask {
    let pipe = |fd, reader| HandedOutPipe { fd, want: 8192, reader, is_parked: fd % 2 == 0 };
    HandedTask {
        rank: Rank(rank),
        has_group: true,
        phase,
        output: Some(pipe(20, HandedReader::Us)),
        error: Some(pipe(21, HandedReader::FrontEnd)),
        input: Some(HandedInPipe {
            fd: 22,
            pending: bytes("typed"),
            ended: true,
            is_in_line: true,
        }),
        files: vec![bytes("/tmp/out")],
        aborted: Some((3, "why".into())),
        usage: Usage::unknown(),
        delivered: false,
        terminal: Some((23, 24)),
    }
}

/// One in each phase.
fn tasks() -> Vec<HandedTask> {
    let minder = HandedMinder {
        fd: 30,
        root: Some(71),
        status: Some(256),
        silent: true,
        early: vec![2],
        told: Some(1 << 24),
        goes_on: Some(1),
    };
    let running = HandedPhase::Running { pid: 70, report: 31, minder: Some(minder) };
    let adopted = vec![
        HandedProcess { pid: 72, fd: 32, ended: None },
        HandedProcess { pid: 73, fd: 33, ended: Some(Some(9)) },
    ];
    let (status, detail) = (TaskStatus::Signaled(9), "why");
    vec![
        task(0, running),
        task(1, HandedPhase::Waiting),
        task(2, HandedPhase::Adopted(adopted)),
        task(3, HandedPhase::Ending { status, detail: detail.into(), naps: 4 }),
        task(4, HandedPhase::Ended { status, detail: detail.into() }),
    ]
}

fn pmix() -> HandedPmix {
    HandedPmix {
        helper: HandedHelper {
            pid: Some(77),
            report: 21,
            link: None,
            group: Some((bytes("/sys/fs/cgroup/pmix-7-1-0"), 1 << 27)),
        },
        session: Session::new(1, true),
        until_ns: Some(9),
        is_awaited: true,
        parts: 2,
        fence: Some(1),
    }
}

fn program() -> HandedProgram {
    HandedProgram {
        argv: vec![bytes("cat")],
        candidates: vec![bytes("/bin/cat")],
        environment: vec![bytes("A=b")],
        directory: bytes("/tmp"),
        rlimits: vec![(7, 1, 2)],
        identity: Some((1000, 100, vec![4])),
        others: vec![HandedCommand {
            from: 2,
            argv: vec![bytes("other")],
            candidates: vec![bytes("/bin/other")],
            directory: bytes("/tmp"),
        }],
    }
}

fn spawner() -> HandedSpawner {
    HandedSpawner {
        helper: HandedHelper { pid: Some(77), report: 25, link: None, group: None },
        number: 3,
        task: 1,
        is_answered: true,
        asked: Some(7),
        child: Some(StepId(2)),
    }
}

/// Something of everything.
fn sample() -> Handover {
    let (pmi, names) = pmi();
    let target = "7.0".parse().unwrap();
    let job = HandedJob {
        launch: launch(),
        cgroup_path: Some(bytes("/sys/fs/cgroup/tutti/job-7")),
        has_group: true,
        program: Ok(program()),
        tasks: tasks(),
        front: Some(HeldFront {
            link: Some(link(12)),
            outlet: outlet(),
            heard: 5,
            away_until_ns: Some(6),
            is_done: false,
        }),
        parked: vec![(0, Stream::Error)],
        pmi: Some(pmi),
        writer: Some(HandedWriter {
            helper: HandedHelper { pid: Some(74), report: 34, link: Some(link(35)), group: None },
            stuck_at_ns: Some(5),
            has_written: true,
            gives_up: false,
        }),
        writer_until_ns: Some(6),
        output_failure: Some("disk".into()),
        lost: "lines".into(),
        started: true,
        killed: false,
        undelivered: 4,
        stopped: vec![StoppedPart { target, processes: vec![(70, 12345)] }],
        usage: Usage::default(),
        cleared: Some(Usage::default()),
        forgotten: false,
        shared: vec![bytes("/dev/shm/x")],
        scratch: Some(bytes("/tmp/tutti-0-job-7")),
        ipc: Some(34),
        began: (1_800_000_000, 5),
        pmix: Some(pmix()),
        pmix_scratch: Some(bytes("/tmp/tutti-0-job-7.1")),
        terminal: Some(TerminalSize { rows: 21, columns: 91 }),
        spawners: vec![spawner()],
    };
    let newcomer = HeldNewcomer {
        link: link(13),
        uid: 1000,
        outlet: Some(outlet()),
        waits: Some(StepKey::first(JobId(8))),
        received: Some(9),
        until_ns: 10,
        terminal: Some(TerminalSize { rows: 24, columns: 80 }),
    };
    Handover {
        protocol: 4,
        incarnation: 99,
        descriptors: (1024, 4096),
        listener: 3,
        newcomers: vec![newcomer],
        asker: Some(link(14)),
        agent: Some(link(15)),
        jobs: vec![job],
        lease_until_ns: Some(77),
        names,
        hub: hub(),
        far: far(),
        endings: vec![(5, StepKey::first(JobId(7)), 3)],
        spares: HeldSpares { kept: vec![(bytes("/tmp/t-job-none.1"), (0, 0))], numbers: 1 },
    }
}

/// A step that has published a name and waits for others.
fn hub() -> Hub {
    let part = Part { launch: LaunchId::first(JobId(7)), node: NodeId(1) };
    let node = PmixNode { node: NodeId(1), name: "n1".into(), tasks: 2 };
    let space = PmixSpace {
        name: "space".into(),
        nodes: vec![node],
        node: 0,
        universe: 4,
        programs: vec![2],
        parent: Some(("other".into(), 1)),
    };
    let (mut hub, mut out) = (Hub::default(), Vec::new());
    hub.add(part, UserId(1000), space, &mut out);
    let value = Value { kind: 3, bytes: bytes("port") };
    let names = vec![(bytes("name"), value)];
    hub.ask((part, 1), (0, 0), Ask::Publish { names, once: false }, &mut out);
    let names = vec![bytes("absent")];
    hub.ask((part, 2), (0, 0), Ask::Lookup { names, wait_s: Some(5) }, &mut out);
    hub.await_child((part, 3), StepId(2), &mut out);
    hub
}

/// A step that has been left with a word for it, and one whose end is said to another keeper.
fn far() -> Far {
    let (launch, mut far) = (LaunchId::first(JobId(7)), Far::default());
    far.be(NodeId(1));
    far.join(launch);
    far.hold(launch, ToPmix::Gone { space: "space".into() });
    let peer = Peer { job: JobId(7), number: 0, node: NodeId(2) };
    far.say(peer, &Said::Leave { launch }, (1, 2));
    far
}

/// If this fails, what is handed over has changed, be it by a type of another module that it contains: then count
/// [`FORM`] up and put the new figures here. A keeper of the former form and this program must know of each other that
/// they do not understand each other.
#[test]
fn the_form_changes_with_its_number_only() {
    let bytes = sample().encode().unwrap();
    let hash = Digest::of(&bytes);
    assert_eq!((FORM, bytes.len(), format!("{hash:016x}").as_str()), (6, 1249, "516ce9e14ef303e2"));
}

#[test]
fn what_is_read_is_what_was_written_and_nothing_else_is_read() {
    let bytes = sample().encode().unwrap();
    let again = Handover::decode(&bytes).unwrap();
    assert_eq!(format!("{again:?}"), format!("{:?}", sample()));
    let error = |bytes: &[u8]| Handover::decode(bytes).unwrap_err();
    assert_eq!(error(b"TUTTI"), HandoverError::NotAHandover);
    assert_eq!(error(b"#!/bin/sh and more"), HandoverError::NotAHandover);
    let mut other = bytes.clone();
    other[8] = 9;
    assert_eq!(error(&other), HandoverError::OtherForm { theirs: 9 });
    assert_eq!(error(&other).to_string(), "it is of form 9, this program understands form 6");
    let short = &bytes[..bytes.len() - 1];
    assert_eq!(error(short), HandoverError::Broken { bytes: short.len() });
    assert_eq!(
        error(&[&bytes[..], b"x"].concat()),
        HandoverError::Broken { bytes: bytes.len() + 1 }
    );
}

proptest! {
    #[test]
    fn any_bytes_give_a_value_or_an_error(noise in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = Handover::decode(&[&MAGIC[..], &FORM.to_le_bytes(), &noise].concat());
    }

    #[test]
    fn what_is_damaged_gives_a_value_or_an_error(at in any::<prop::sample::Index>(), to in any::<u8>()) {
        let mut bytes = sample().encode().unwrap();
        let at = at.index(bytes.len());
        bytes[at] = to;
        let _ = Handover::decode(&bytes);
    }
}
