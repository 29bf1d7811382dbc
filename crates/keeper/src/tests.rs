//! The keeper as its agent and its front ends see it: a real process, real tasks.

use super::fixture::{
    Membership, Peer, Scene, Told, be_a_keeper, bytes, hear_out, launch, shell, wait_for,
};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_bytes::ByteBuf;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::time::Duration;
use tutti_types::{JobId, LaunchId, NodeId, Rank, StepKey, TaskStatus};
use tutti_wire::attach::{FromFrontEnd, Stream, ToFrontEnd};
use tutti_wire::branch::Vouch;
use tutti_wire::frame::encode;
use tutti_wire::handover::ToHolder;
use tutti_wire::keeper::{FromKeeper, ToKeeper};
use tutti_wire::launch::{InputTo, Launch, OpenMode, Stdio, Usage};
use tutti_wire::limits::PROTOCOL_VERSION;
use tutti_wire::{Hello, Role};

mod mpi;
mod pipes;
mod terminal;
mod viewers;

/// Not a test: what the others start as their keeper. Does nothing unless it is told to.
#[test]
fn the_keeper_itself() {
    be_a_keeper();
}

/// Not a test: what a keeper of other tests starts as its writer. Does nothing unless it is told
/// to.
#[test]
fn the_writer_itself() {
    if std::env::var_os("TUTTI_TEST_WRITER").is_some() {
        let result = tutti_client::write();
        std::process::exit(result.map_or(1, |exit| exit.code().into()));
    }
}

fn with_input(mut launch: Launch, input: InputTo) -> Launch {
    launch.spec.stdio = Stdio::FrontEnd { input };
    launch
}

fn to_files(mut launch: Launch, directory: &std::path::Path, output: &str) -> Launch {
    launch.spec.directory = bytes(directory.to_str().unwrap());
    launch.spec.stdio =
        Stdio::Files { input: None, output: bytes(output), error: None, mode: OpenMode::default() };
    launch
}

fn alive(pid: i32) -> bool {
    tutti_linux::proc::ProcessStat::read(pid).is_ok_and(|stat| !stat.has_ended())
}

/// Runs the same in groups and below minders.
fn in_both(check: impl Fn(&mut Scene)) {
    for membership in [Membership::Groups, Membership::Minders] {
        check(&mut Scene::new(membership));
    }
}

#[test]
fn output_and_status_of_each_rank_come_back() {
    in_both(|scene| {
        let told = scene.run(&shell(1, 3, "echo out $TUTTI_RANK; echo err >&2; exit $RANK"));
        for rank in 0..3 {
            assert_eq!(told.stdout(rank), format!("out {rank}\n"));
            assert_eq!(told.output[&(rank, Stream::Error)], b"err\n");
            assert_eq!(told.status(rank), TaskStatus::Exited(u8::try_from(rank).unwrap()));
        }
    });
}

#[test]
fn a_signal_that_ended_a_task_is_named() {
    in_both(|scene| {
        let told = scene.run(&shell(1, 1, "kill -SEGV $$"));
        assert_eq!(told.status(0), TaskStatus::Signaled(11));
    });
}

#[test]
fn what_cannot_be_started_says_why() {
    in_both(|scene| {
        let locked = scene.directory.join("locked");
        std::fs::write(&locked, "x").unwrap();
        let locked = locked.to_str().unwrap().to_owned();
        let mut job = 0;
        let mut check = |change: &dyn Fn(&mut Launch), status: TaskStatus, detail: &str| {
            job += 1;
            let mut launch = launch(job, 1, &["no-such-program"]);
            change(&mut launch);
            let told = match launch.spec.stdio {
                Stdio::FrontEnd { .. } | Stdio::Kept => scene.run(&launch),
                Stdio::Files { .. } => scene.submit(&launch),
            };
            assert_eq!(told.reported[&0], (status, detail.to_owned()));
        };
        let absent = TaskStatus::NotFound;
        let refused = TaskStatus::NotExecutable;
        check(&|_| (), absent, "no such program: no-such-program (searched for in PATH)");
        check(&|l| l.spec.argv = vec![bytes("/no/such")], absent, "no such program: /no/such");
        check(&|l| l.spec.argv = vec![], absent, "no such program:  (searched for in PATH)");
        let why = format!("cannot execute '{locked}': Permission denied");
        check(&|l| l.spec.argv = vec![bytes(&locked)], refused, &why);
        check(&|l| l.spec.directory = bytes("/no/dir"), refused, "no such directory: /no/dir");
        let why = format!("cannot enter directory '{locked}': Not a directory");
        check(&|l| l.spec.directory = bytes(&locked), refused, &why);
        let why = "an argument has a zero byte in it";
        check(&|l| l.spec.argv = vec![bytes("true"), bytes("a\0b")], refused, why);
        let why = "the script's interpreter does not exist: /no/shell";
        check(&|l| l.spec.script = Some(bytes("#!/no/shell\n")), refused, why);
        let files = |input: Option<&str>, output: &str, error: Option<&str>| Stdio::Files {
            input: input.map(bytes),
            output: bytes(output),
            error: error.map(bytes),
            mode: OpenMode::default(),
        };
        let why = "cannot open output file '/no/dir/x-0': No such file or directory";
        check(&|l| l.spec.stdio = files(None, "/no/dir/x-%r", None), refused, why);
        check(&|l| l.spec.stdio = files(None, "/dev/null", Some("/no/dir/x-0")), refused, why);
        let why = "cannot open input file '/no/x': No such file or directory";
        check(&|l| l.spec.stdio = files(Some("/no/x"), "/dev/null", None), refused, why);
        check(
            &|l| l.spec.rlimits = vec![(99, 1, 1)],
            refused,
            "cannot set the resource limits: Invalid argument",
        );
    });
}

#[test]
fn a_run_that_is_not_restored_says_so_and_one_without_a_cgroup_is_refused() {
    if !nix::unistd::geteuid().is_root() {
        return;
    }
    in_both(|scene| {
        let has_groups = scene.group(9).is_some();
        for resumes in [0, 1] {
            let launch = launch(u64::from(resumes) + 1, 1, &["true"]);
            let mut launch = to_files(launch, &scene.directory, "/dev/null");
            (launch.saves_image, launch.resumes) = (true, resumes);
            let told = scene.submit(&launch);
            let (status, detail) = &told.reported[&0];
            if resumes > 0 {
                // Its saver, the executable of these tests, ends without a word.
                assert_eq!(*status, TaskStatus::NotRestored, "{detail}");
            } else if !has_groups {
                assert_eq!(*status, TaskStatus::NotExecutable, "{detail}");
            }
            assert!(has_groups || detail.contains("only where jobs have cgroups"), "{detail}");
        }
    });
}

#[test]
fn input_goes_to_whom_it_is_for() {
    in_both(|scene| {
        let cat = |job, input| with_input(launch(job, 3, &["cat"]), input);
        let end = &b""[..];
        let heard = |told: &Told| (0..3).map(|rank| told.stdout(rank)).collect::<Vec<_>>();
        let told = scene.run_with_input(&cat(1, InputTo::All), &[(None, b"one\n"), (None, end)]);
        assert_eq!(heard(&told), ["one\n", "one\n", "one\n"]);
        let told =
            scene.run_with_input(&cat(2, InputTo::Rank(1)), &[(None, b"two\n"), (None, end)]);
        assert_eq!(heard(&told), ["", "two\n", ""]);
        let tagged = [(Some(2), &b"c"[..]), (Some(0), b"a"), (Some(9), b"?"), (None, end)];
        let told = scene.run_with_input(&cat(3, InputTo::Tagged), &tagged);
        assert_eq!(heard(&told), ["a", "", "c"]);
        let told = scene.run(&cat(4, InputTo::Nobody));
        assert_eq!(heard(&told), ["", "", ""]);
    });
}

#[test]
fn more_input_than_any_buffer_holds_arrives_whole() {
    let mut scene = Scene::new(Membership::Groups);
    let job = with_input(shell(1, 2, "sleep 0.2; cksum"), InputTo::All);
    let piece = vec![b'x'; 200_000];
    let mut input = vec![(None, &piece[..]); 40];
    input.push((None, b""));
    let told = scene.run_with_input(&job, &input);
    let expected = told.stdout(0);
    assert!(expected.contains(" 8000000"), "{expected}");
    assert_eq!(told.stdout(1), expected);
}

#[test]
fn a_task_that_does_not_read_its_input_ends_as_it_would() {
    let mut scene = Scene::new(Membership::Groups);
    let piece = vec![b'x'; 100_000];
    let input = vec![(None, &piece[..]); 10];
    let job = with_input(shell(1, 1, "exec <&-; echo done"), InputTo::All);
    let told = scene.run_with_input(&job, &input);
    assert_eq!(told.stdout(0), "done\n");
}

/// 20 MB from two ranks, with a reader that is slower than they are, and another job beside it.
#[test]
fn a_slow_reader_gets_everything_and_holds_up_nobody_else() {
    in_both(|scene| {
        let text = "head -c 20000000 /dev/zero | tr '\\0' \"$TUTTI_RANK\"";
        scene.start(&shell(1, 2, text));
        let mut slow = scene.attached(1);
        std::thread::sleep(Duration::from_millis(100));
        scene.start(&shell(2, 1, "echo quick"));
        let told = hear_out(&mut scene.attached(2));
        assert_eq!(told.stdout(0), "quick\n");
        let told = hear_out(&mut slow);
        for (rank, letter) in [(0, b'0'), (1, b'1')] {
            let output = &told.output[&(rank, Stream::Output)];
            assert_eq!(output.len(), 20_000_000);
            assert!(output.iter().all(|&byte| byte == letter));
        }
    });
}

#[test]
fn a_daemon_ends_with_its_task() {
    in_both(|scene| {
        let text = "setsid sh -c 'echo $$ > pid; exec sleep 1000' & \
                    while ! test -s pid; do sleep 0.01; done";
        let mut job = shell(1, 1, text);
        job.spec.directory = bytes(scene.directory.to_str().unwrap());
        let told = scene.run(&job);
        assert_eq!(told.status(0), TaskStatus::Exited(0));
        let pid = std::fs::read_to_string(scene.directory.join("pid")).unwrap();
        assert!(!alive(pid.trim().parse().unwrap()), "the daemon outlived its task");
    });
}

#[test]
fn a_killed_job_ends_whole() {
    in_both(|scene| {
        scene.start(&shell(1, 2, "trap '' TERM INT; echo up; sleep 1000 & wait; sleep 1000"));
        ends_whole_when_killed(scene);
    });
}

/// Job 1 has two tasks, and each says something when it can be killed.
fn ends_whole_when_killed(scene: &mut Scene) {
    let mut front = scene.attached(1);
    for _ in 0..2 {
        assert!(matches!(front.next(), Some(ToFrontEnd::Output { .. })));
    }
    scene.agent.send(&ToKeeper::Kill { launch: LaunchId::first(JobId(1)) });
    let mut told = hear_out(&mut front);
    scene.reports(1, &mut told);
    assert_eq!([told.status(0), told.status(1)], [TaskStatus::Signaled(9); 2]);
}

#[test]
fn a_look_that_never_ends_holds_up_neither_the_kill_nor_other_jobs() {
    in_both(|scene| {
        scene.start(&shell(1, 2, "trap 'echo told' TERM; echo up; while :; do sleep 0.01; done"));
        let mut front = scene.attached(1);
        for _ in 0..2 {
            assert!(matches!(front.next(), Some(ToFrontEnd::Output { .. })));
        }
        scene.hold_looks();
        let launch = LaunchId::first(JobId(1));
        scene.agent.send(&ToKeeper::Signal { launch, ranks: Vec::new(), signal: 15 });
        for _ in 0..2 {
            assert!(matches!(front.next(), Some(ToFrontEnd::Output { .. })), "it is not signalled");
        }
        scene.agent.send(&ToKeeper::Signal { launch, ranks: Vec::new(), signal: 15 });
        assert_eq!(scene.run(&shell(2, 1, "echo beside")).stdout(0), "beside\n");
        scene.agent.send(&ToKeeper::Kill { launch });
        let mut told = hear_out(&mut front);
        scene.reports(1, &mut told);
        assert_eq!([told.status(0), told.status(1)], [TaskStatus::Signaled(9); 2]);
    });
}

#[test]
fn a_job_is_killed_where_the_kernel_kills_no_group_at_once() {
    let mut scene = Scene::new(Membership::Groups);
    scene.is_on_an_old_kernel();
    scene.start(&shell(1, 2, "trap '' TERM INT; echo up; while :; do sleep 0.01; done"));
    ends_whole_when_killed(&mut scene);
}

#[test]
fn a_directory_that_takes_long_to_remove_holds_up_no_end() {
    in_both(|scene| {
        scene.hold_removals(true);
        let told = scene.run(&shell(1, 1, "echo x > $TMPDIR/file; echo $TMPDIR"));
        let directory = std::path::PathBuf::from(told.stdout(0).trim());
        let is_left = || directory.join("file").exists();
        assert!(is_left(), "{}", directory.display());
        scene.hold_removals(false);
        wait_for("its removal", || (!is_left()).then_some(()));
    });
}

#[test]
fn a_job_is_killed_before_its_front_end_came() {
    let mut scene = Scene::new(Membership::Groups);
    scene.start(&shell(1, 2, "true"));
    scene.agent.send(&ToKeeper::Kill { launch: LaunchId::first(JobId(1)) });
    let mut told = Told::default();
    scene.reports(1, &mut told);
    assert_eq!(told.status(1), TaskStatus::Signaled(9));
    // One that was never here: the asker gets its answer all the same.
    scene.agent.send(&ToKeeper::Kill { launch: LaunchId::first(JobId(77)) });
    let cleared =
        FromKeeper::Cleared { launch: LaunchId::first(JobId(77)), usage: Usage::default() };
    assert_eq!(scene.agent.next(), Some(cleared));
}

/// Out of its turn: no client may wait for what can't run, and it can be ended all the same.
#[test]
fn a_job_that_is_born_frozen_holds_up_nobody() {
    let mut scene = Scene::new(Membership::Groups);
    for (job, killed) in [(1, false), (2, true)] {
        let group = scene.group(job).unwrap();
        group.request_freeze().unwrap();
        scene.start(&shell(job, 2, "echo thawed"));
        let mut front = scene.attached(job);
        wait_for("two frozen processes", || (group.processes().unwrap().len() == 2).then_some(()));
        scene.start(&shell(job + 10, 1, "echo beside"));
        assert_eq!(hear_out(&mut scene.attached(job + 10)).stdout(0), "beside\n");
        if killed {
            scene.agent.send(&ToKeeper::Kill { launch: LaunchId::first(JobId(job)) });
            assert_eq!(hear_out(&mut front).ends[&1].0, TaskStatus::Signaled(9));
        } else {
            group.request_thaw().unwrap();
            assert_eq!(hear_out(&mut front).stdout(1), "thawed\n");
        }
    }
}

#[test]
fn limits_on_memory_and_processes_hold() {
    let mut scene = Scene::new(Membership::Groups);
    let mut job = launch(1, 1, &["tail", "/dev/zero"]);
    job.memory_per_task_bytes = Some(32 << 20);
    let told = scene.run(&job);
    assert_eq!(told.status(0), TaskStatus::OutOfMemory, "this test needs a memory controller");
    for (job, most, reached) in
        [(2, 50, "reached its limit of 50 processes (--max-processes)"), (3, 90, "")]
    {
        let mut job = shell(job, 1, "for i in $(seq 70); do sleep 1000 & done; exit 5");
        job.spec.processes_max = Some(most);
        let (status, detail) = &scene.run(&job).ends[&0];
        assert_eq!(detail, reached);
        assert_eq!(*status == TaskStatus::Exited(5), reached.is_empty(), "{status:?}");
    }
}

/// Orders may come before the process that they are about is anything yet.
#[test]
fn orders_in_the_moment_of_the_start_are_not_lost() {
    in_both(|scene| {
        let directory = scene.directory.clone();
        for job in (1..40).step_by(2) {
            let sleep = |job| to_files(launch(job, 2, &["sleep", "1000"]), &directory, "out");
            let mut told = [Told::default(), Told::default()];
            scene.start(&sleep(job));
            scene.agent.send(&ToKeeper::Kill { launch: LaunchId::first(JobId(job)) });
            scene.reports(job, &mut told[0]);
            scene.start(&sleep(job + 1));
            let order = ToKeeper::Signal {
                launch: LaunchId::first(JobId(job + 1)),
                ranks: vec![],
                signal: 15,
            };
            scene.agent.send(&order);
            scene.reports(job + 1, &mut told[1]);
            assert_eq!(told[0].status(1), TaskStatus::Signaled(9));
            assert_eq!(told[1].status(1), TaskStatus::Signaled(15));
        }
    });
}

#[test]
fn signals_reach_the_ranks_that_are_meant() {
    in_both(|scene| {
        let text = "trap 'exit 7' USR1; echo up; while :; do sleep 0.01; done";
        scene.start(&shell(1, 2, text));
        let mut front = scene.attached(1);
        for _ in 0..2 {
            assert!(matches!(front.next(), Some(ToFrontEnd::Output { .. })));
        }
        let signal = u8::try_from(nix::libc::SIGUSR1).unwrap();
        scene.agent.send(&ToKeeper::Signal {
            launch: LaunchId::first(JobId(1)),
            ranks: vec![Rank(1)],
            signal,
        });
        loop {
            if let Some(ToFrontEnd::TaskEnded { rank, status, .. }) = front.next() {
                assert_eq!((rank, status), (Rank(1), TaskStatus::Exited(7)));
                break;
            }
        }
        scene.agent.send(&ToKeeper::Signal {
            launch: LaunchId::first(JobId(1)),
            ranks: vec![],
            signal: 15,
        });
        let mut told = hear_out(&mut front);
        scene.reports(1, &mut told);
        assert_eq!(told.status(0), TaskStatus::Signaled(15));
    });
}

#[test]
fn a_front_end_that_vanishes_takes_the_output_along_but_not_the_job() {
    let mut scene = Scene::new(Membership::Groups);
    let text = "echo up; head -c 5000000 /dev/zero; echo survived > survived";
    let mut job = shell(1, 1, text);
    job.spec.directory = bytes(scene.directory.to_str().unwrap());
    scene.start(&job);
    let mut front = scene.attached(1);
    assert!(matches!(front.next(), Some(ToFrontEnd::Output { .. })));
    drop(front);
    let mut told = Told::default();
    scene.reports(1, &mut told);
    assert_eq!(told.status(0), TaskStatus::Exited(0));
    assert!(scene.directory.join("survived").exists());
}

#[test]
fn a_stalled_front_end_keeps_nobody_from_hearing_that_the_job_ended() {
    let mut scene = Scene::new(Membership::Groups);
    scene.start(&shell(1, 1, "head -c 900000 /dev/zero"));
    let mut stalled = scene.attached(1);
    let mut told = Told::default();
    scene.reports(1, &mut told);
    assert_eq!(told.status(0), TaskStatus::Exited(0));
    // Told to forget by now; what was written is there all the same.
    let told = hear_out(&mut stalled);
    assert_eq!(told.output[&(0, Stream::Output)].len(), 900_000);
}

#[test]
fn a_new_agent_hears_what_the_old_one_missed() {
    let mut scene = Scene::new(Membership::Groups);
    scene.start(&shell(1, 2, "test $RANK = 0 || sleep 1000"));
    let mut front = scene.attached(1);
    scene.agent = Peer::connect(&scene.socket(), Role::Client);
    while !matches!(front.next(), Some(ToFrontEnd::TaskEnded { .. })) {}
    let held = scene.reconnect();
    assert_eq!(held.len(), 1);
    let (rank, status, detail, _) = held[0].ended[0].clone();
    assert_eq!((rank, status, detail.as_str()), (Rank(0), TaskStatus::Exited(0), ""));
    let [(Rank(1), root)] = held[0].roots[..] else { panic!("{held:?}") };
    assert!(alive(root));
    assert!(held[0].cgroup.is_some() && held[0].cleared.is_none());
    scene.agent.send(&ToKeeper::Kill { launch: LaunchId::first(JobId(1)) });
    let report = scene.agent.next();
    let Some(FromKeeper::TaskEnded { rank: Rank(1), status, usage, .. }) = report else {
        panic!("{report:?}")
    };
    assert_eq!(status, TaskStatus::Signaled(9));
    assert!(usage.cpu_whole, "{usage:?}");
    assert!(matches!(scene.agent.next(), Some(FromKeeper::Cleared { .. })));
    // Another one still hears of it, until it is told to forget.
    let held = scene.reconnect();
    assert_eq!(held[0].ended.len(), 2);
    assert!(held[0].cleared.is_some());
    scene.agent.send(&ToKeeper::Forget { launch: LaunchId::first(JobId(1)) });
    assert_eq!(scene.reconnect(), []);
}

#[test]
fn the_end_of_a_task_that_is_through_waits_for_others_but_not_for_long() {
    let mut scene = Scene::new(Membership::Groups);
    scene.start(&shell(1, 3, "case $RANK in 0) ;; 1) sleep 0.1; exit 3;; *) sleep 1000;; esac"));
    let _front = scene.attached(1);
    let mut ended = Vec::new();
    while ended.len() < 2 {
        match scene.agent.next() {
            Some(FromKeeper::TaskStarted { .. }) => {}
            Some(FromKeeper::TaskEnded { rank, status, .. }) => ended.push((rank.0, status)),
            other => panic!("unexpected: {other:?}"),
        }
    }
    assert_eq!(ended, [(0, TaskStatus::Exited(0)), (1, TaskStatus::Exited(3))]);
    scene.agent.send(&ToKeeper::Kill { launch: LaunchId::first(JobId(1)) });
    scene.reports(1, &mut Told::default());
}

#[test]
fn what_has_happened_is_told_before_another_executable_goes_on() {
    let mut scene = Scene::new(Membership::Groups);
    let text = "test $RANK = 0 || exec sleep 1000; while ! test -e go; do sleep 0.01; done";
    let mut job = shell(1, 2, text);
    job.spec.directory = bytes(scene.directory.to_str().unwrap());
    scene.start(&job);
    let _front = scene.attached(1);
    let roots = [(); 2].map(|()| match scene.agent.next() {
        Some(FromKeeper::TaskStarted { root, .. }) => root,
        other => panic!("unexpected: {other:?}"),
    });
    // Both in the same round: a task is through, whose end could wait; and a client wants another
    // keeper.
    let keeper = Pid::from_raw(scene.keeper_pid());
    kill(keeper, Signal::SIGSTOP).unwrap();
    std::fs::write(scene.directory.join("go"), "").unwrap();
    wait_for("the end of a task", || (!alive(roots[0])).then_some(()));
    let mut supervisor = Peer::connect(&scene.socket(), Role::Supervisor);
    let program = bytes("/bin/true");
    supervisor.send(&ToHolder::Upgrade { program, protocol: PROTOCOL_VERSION });
    kill(keeper, Signal::SIGCONT).unwrap();
    let told = scene.agent.next();
    let Some(FromKeeper::TaskEnded { rank: Rank(0), status, .. }) = told else {
        panic!("{told:?}")
    };
    assert_eq!(status, TaskStatus::Exited(0));
    assert_eq!(scene.agent.next::<FromKeeper>(), None);
    // What goes on here is no keeper. The next one ends what is left.
    scene.crash();
}

#[test]
fn what_is_said_of_an_earlier_launch_is_nothing_to_the_one_that_is_here() {
    let mut scene = Scene::new(Membership::Groups);
    let latest = Launch { number: 1, ..launch(1, 1, &["sleep", "1000"]) };
    scene.start(&latest);
    let _front = scene.attached(1);
    let started = scene.agent.next();
    let Some(FromKeeper::TaskStarted { launch, root, .. }) = started else { panic!("{started:?}") };
    assert_eq!(launch, latest.id());
    let earlier = LaunchId::first(JobId(1));
    scene.agent.send(&ToKeeper::Signal { launch: earlier, ranks: vec![], signal: 9 });
    scene.agent.send(&ToKeeper::Forget { launch: earlier });
    scene.agent.send(&ToKeeper::Kill { launch: earlier });
    let cleared = FromKeeper::Cleared { launch: earlier, usage: Usage::default() };
    assert_eq!(scene.agent.next(), Some(cleared));
    let held = scene.reconnect();
    assert_eq!((held[0].launch, held[0].roots.clone()), (latest.id(), vec![(Rank(0), root)]));
    assert!(alive(root));
    scene.agent.send(&ToKeeper::Kill { launch: latest.id() });
    scene.reports(1, &mut Told::default());
}

#[test]
fn the_keeper_removes_the_groups_of_a_job_when_there_is_no_agent() {
    let mut scene = Scene::new(Membership::Groups);
    scene.start(&with_input(shell(1, 1, "read line"), InputTo::All));
    let path = scene.group(1).unwrap().path().to_owned();
    let mut front = scene.attached(1);
    scene.agent = Peer::connect(&scene.socket(), Role::Client);
    front.send(&FromFrontEnd::Input { rank: None, data: bytes("go on\n") });
    wait_for("the group to go", || (!path.exists()).then_some(()));
}

#[test]
fn a_keeper_that_crashed_leaves_no_process() {
    let mut scene = Scene::new(Membership::Groups);
    scene.start(&shell(1, 1, "echo up; trap '' PIPE HUP; while :; do sleep 1; done"));
    let mut front = scene.attached(1);
    assert!(matches!(front.next(), Some(ToFrontEnd::Output { .. })));
    let group = scene.group(1).unwrap();
    let before = scene.incarnation;
    assert!(!group.processes().unwrap().is_empty());
    scene.crash();
    assert_ne!(scene.incarnation, before);
    assert!(!group.path().exists());
}

#[test]
fn it_stops_when_told_and_leaves_nothing() {
    for by_signal in [false, true] {
        let mut scene = Scene::new(Membership::Groups);
        scene.start(&shell(1, 1, "echo $$; trap '' TERM; while :; do sleep 1; done"));
        let mut front = scene.attached(1);
        let Some(ToFrontEnd::Output { data, .. }) = front.next() else { panic!() };
        let pid: i32 = std::str::from_utf8(&data).unwrap().trim().parse().unwrap();
        if by_signal {
            let keeper = nix::unistd::Pid::from_raw(scene.keeper_pid());
            nix::sys::signal::kill(keeper, nix::sys::signal::Signal::SIGTERM).unwrap();
        } else {
            scene.agent.send(&ToKeeper::Stop);
        }
        let told = hear_out(&mut front);
        assert_eq!(told.ends[&0].0, TaskStatus::Signaled(9));
        assert!(scene.exits());
        assert!(!alive(pid) && !scene.socket().exists());
    }
}

#[test]
fn scripts_run_and_vanish() {
    in_both(|scene| {
        for (job, text, expected) in [
            (1, "#!/bin/sh\necho \"$0 $1\"", "a"),
            (2, "echo $1 with no line", "a with no line"),
            (3, "#!/bin/cat\nline", "line"),
        ] {
            let mut launch = launch(job, 1, &["ignored", "a"]);
            launch.spec.script = Some(bytes(text));
            let told = scene.run(&launch);
            assert!(told.stdout(0).contains(expected), "{told:?}");
        }
    });
}

#[test]
fn output_goes_to_files_by_pattern() {
    in_both(|scene| {
        let directory = scene.directory.clone();
        let read = |name: &str| std::fs::read_to_string(directory.join(name)).unwrap_or_default();
        let text = "echo out $RANK; echo err >&2";
        scene.submit(&to_files(shell(5, 2, text), &directory, "f-%j-%2r"));
        assert_eq!(read("f-5-00") + &read("f-5-01"), "out 0\nerr\nout 1\nerr\n");
        // One file for all: emptied once, nothing lost.
        std::fs::write(directory.join("all"), "old\n".repeat(1000)).unwrap();
        let job = to_files(shell(6, 8, "echo $RANK"), &directory, "all");
        scene.submit(&job);
        let mut lines: Vec<String> = read("all").lines().map(str::to_owned).collect();
        lines.sort();
        assert_eq!(lines.join(""), "01234567");
        let mut job = job;
        job.job = JobId(7);
        if let Stdio::Files { mode, input, .. } = &mut job.spec.stdio {
            *mode = OpenMode::Append;
            *input = Some(bytes("f-5-00"));
        }
        job.spec.argv = vec![bytes("cat")];
        scene.submit(&job);
        assert_eq!(read("all").lines().count(), 8 + 16);
    });
}

#[test]
fn a_full_disk_is_named() {
    let mut scene = Scene::new(Membership::Groups);
    let disk = scene.directory.join("disk");
    std::fs::create_dir(&disk).unwrap();
    let mount = |args: &[&str]| {
        let status = std::process::Command::new(args[0]).args(&args[1..]).status().unwrap();
        assert!(status.success(), "this test needs the right to mount: {args:?}");
    };
    mount(&["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", disk.to_str().unwrap()]);
    let told = scene.submit(&to_files(shell(1, 1, "head -c 100000 /dev/zero"), &disk, "out"));
    mount(&["umount", disk.to_str().unwrap()]);
    let expected =
        format!("the file system of '{}/out' is full: output may be cut", disk.to_str().unwrap());
    assert_eq!(told.reported[&0], (TaskStatus::Exited(1), expected));
}

/// A small file system of its own, in the scene's directory.
struct SmallDisk(std::path::PathBuf);

impl SmallDisk {
    fn mount(scene: &Scene, options: &str) -> Self {
        let disk = Self(scene.directory.join("disk"));
        std::fs::create_dir(&disk.0).unwrap();
        disk.run(&["mount", "-t", "tmpfs", "-o", options, "tmpfs"]);
        disk
    }

    fn run(&self, words: &[&str]) {
        let status =
            std::process::Command::new(words[0]).args(&words[1..]).arg(&self.0).status().unwrap();
        assert!(status.success(), "this test needs the right to mount: {words:?}");
    }

    fn is_full(&self) -> bool {
        nix::sys::statvfs::statvfs(&self.0).unwrap().blocks_available() == 0
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        self.run(&["umount", "--lazy"]);
    }
}

/// Two tasks that share a file and write 100,000 bytes each, in lines of 100.
fn two_that_share(job: u64, disk: &SmallDisk) -> Launch {
    let print = "head -c 99000 /dev/zero | tr '\\0' $RANK | fold -w 99; echo";
    to_files(shell(job, 2, print), &disk.0, "out")
}

#[test]
fn a_full_disk_holds_up_the_job_that_writes_there_and_no_other() {
    let mut scene = Scene::new(Membership::Groups);
    let disk = SmallDisk::mount(&scene, "size=64k");
    scene.start(&two_that_share(1, &disk));
    wait_for("the disk is full", || disk.is_full().then_some(()));
    let mut front = {
        scene.start(&shell(2, 1, "echo fine"));
        scene.attached(2)
    };
    assert_eq!(hear_out(&mut front).stdout(0), "fine\n");
    let mut told = Told::default();
    // What the agent hears of the other job comes first.
    loop {
        if let Some(FromKeeper::Cleared { launch, .. }) = scene.agent.next() {
            assert_eq!(launch.job, JobId(2));
            break;
        }
    }
    disk.run(&["mount", "-o", "remount,size=1m"]);
    scene.reports(1, &mut told);
    assert_eq!(told.lost, "");
    let text = std::fs::read_to_string(disk.0.join("out")).unwrap();
    let lines = |rank: &str| text.lines().filter(|line| *line == rank.repeat(99)).count();
    assert_eq!((lines("0"), lines("1"), text.lines().count()), (1000, 1000, 2000));
}

#[test]
fn a_job_that_is_killed_does_not_wait_for_a_full_disk() {
    let mut scene = Scene::new(Membership::Groups);
    let disk = SmallDisk::mount(&scene, "size=64k");
    scene.start(&two_that_share(1, &disk));
    wait_for("the disk is full", || disk.is_full().then_some(()));
    scene.agent.send(&ToKeeper::Kill { launch: LaunchId::first(JobId(1)) });
    let mut told = Told::default();
    scene.reports(1, &mut told);
    assert_eq!(told.lost, "the output files took nothing more after the job was killed");
}

#[test]
fn a_front_end_may_come_first() {
    let mut scene = Scene::new(Membership::Groups);
    let mut front = scene.front(1);
    scene.start(&with_input(launch(1, 1, &["cat"]), InputTo::All));
    assert_eq!(front.next(), Some(ToFrontEnd::Attached { heard: 0 }));
    front.send(&FromFrontEnd::Input { rank: None, data: bytes("early\n") });
    front.send(&FromFrontEnd::Input { rank: None, data: ByteBuf::new() });
    assert_eq!(hear_out(&mut front).stdout(0), "early\n");
}

#[test]
fn whoever_may_not_attach_is_told() {
    let mut scene = Scene::new(Membership::Groups);
    let refused = |front: &mut Peer| match front.next() {
        Some(ToFrontEnd::Refused { reason }) => {
            assert_eq!(front.next::<ToFrontEnd>(), None);
            reason
        }
        other => panic!("unexpected: {other:?}"),
    };
    scene.start(&shell(1, 1, "sleep 1000"));
    let mut first = scene.attached(1);
    assert_eq!(refused(&mut scene.front(1)), "another front end is attached to the job");
    let directory = scene.directory.clone();
    scene.start(&to_files(shell(2, 1, "sleep 1000"), &directory, "out"));
    assert_eq!(refused(&mut scene.front(2)), "the job writes its output to files");
    // One that comes again after the first has gone hears the end.
    scene.agent.send(&ToKeeper::Kill { launch: LaunchId::first(JobId(1)) });
    hear_out(&mut first);
    drop(first);
    let told = wait_for("the first one to be missed", || {
        let mut front = scene.front(1);
        match front.next() {
            Some(ToFrontEnd::Attached { .. }) => Some(hear_out(&mut front)),
            _ => None,
        }
    });
    assert_eq!(told.ends[&0].0, TaskStatus::Signaled(9));
}

/// A task of another user, which runs as that user and asks for what is not its own.
#[test]
fn others_may_neither_have_a_jobs_output_nor_give_orders() {
    let mut scene = Scene::new(Membership::Groups);
    scene.start(&shell(1, 1, "sleep 1000"));
    let attach =
        FromFrontEnd::Attach { key: StepKey::first(JobId(1)), received: None, terminal: None };
    let watch = FromFrontEnd::Watch { job: JobId(1) };
    let first_frames =
        [(Role::FrontEnd, &attach), (Role::Agent, &attach), (Role::FrontEnd, &watch)];
    let first_frames = first_frames.map(|(role, message)| {
        let mut frames = Hello { role }.to_frame().to_vec();
        tutti_wire::frame::encode(message, &mut frames).unwrap();
        frames.iter().map(|byte| format!("{byte:02x}")).collect::<String>()
    });
    let ask = "socket(S, AF_UNIX, SOCK_STREAM, 0); connect(S, sockaddr_un($ARGV[0])) or die $!; \
               syswrite S, pack('H*', $ARGV[1]); while (sysread S, $b, 4096) { syswrite STDOUT, $b }";
    let socket = scene.socket();
    let mut told = Vec::new();
    for (job, frames) in (2..).zip(&first_frames) {
        let text = "id -u; id -G; exec perl -MSocket -e \"$1\" \"$2\" \"$3\"";
        let words = ["/bin/sh", "-c", text, "sh", ask, socket.to_str().unwrap(), frames];
        let mut launch = launch(job, 1, &words);
        launch.credentials.uid = 65_534;
        launch.credentials.gid = 65_533;
        launch.credentials.groups = vec![65_532];
        scene.start(&launch);
        let mut front = scene.attached(job);
        let mut one = hear_out(&mut front);
        while one.reported.is_empty() {
            if let Some(FromKeeper::TaskEnded { launch, rank, status, detail, .. }) =
                scene.agent.next()
                && launch.job.0 == job
            {
                one.reported.insert(rank.0, (status, detail));
            }
        }
        assert_eq!(one.status(0), TaskStatus::Exited(0), "{one:?}");
        told.push(one.output[&(0, Stream::Output)].clone());
    }
    for output in &told {
        assert!(output.starts_with(b"65534\n65533 65532\n"), "{told:?}");
    }
    let says = |told: &[u8], text: &str| String::from_utf8_lossy(told).contains(text);
    assert!(says(&told[0], "the job is not yours"));
    assert!(says(&told[2], "no such job is here"), "a viewer");
    assert_eq!(told[1].len(), b"65534\n65533 65532\n".len(), "no word to a false agent");
}

#[test]
fn malformed_bytes_cost_their_own_connection_only() {
    let mut scene = Scene::new(Membership::Groups);
    let hello = |role| Hello { role }.to_frame().to_vec();
    let junk = [
        b"GET / HTTP/1.1\r\n\r\n".to_vec(),
        vec![0xff; 64],
        [hello(Role::FrontEnd), vec![3, 0, 0, 0, 9, 9, 9]].concat(),
        [hello(Role::Agent), vec![2, 0, 0, 0, 0xff, 0xff]].concat(),
        hello(Role::Client),
        hello(Role::Server),
        hello(Role::FrontEnd)[..7].to_vec(),
    ];
    for bytes in junk {
        let mut stream = UnixStream::connect(scene.socket()).unwrap();
        stream.write_all(&bytes).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        // Closed by the keeper, whatever it said before.
        std::io::copy(&mut stream, &mut std::io::sink()).ok();
    }
    assert_eq!(scene.reconnect(), []);
    let told = scene.run(&shell(1, 1, "echo fine"));
    assert_eq!(told.stdout(0), "fine\n");
}

/// A connection on which root speaks for a user on another node.
fn proxy(scene: &Scene, uid: u32, role: Option<Role>) -> UnixStream {
    let (node, groups, hard_limits) = (NodeId(1), Vec::new(), Vec::new());
    let vouch = Vouch { node, uid, gid: uid, groups, pid: 1, hard_limits, is_trusted: false };
    let mut words = Hello { role: Role::Proxy }.to_frame().to_vec();
    encode(&vouch, &mut words).unwrap();
    words.extend(role.iter().flat_map(|&role| Hello { role }.to_frame()));
    let mut stream = UnixStream::connect(scene.socket()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.write_all(&words).unwrap();
    stream
}

#[test]
fn whoever_comes_from_other_nodes_keeps_nobody_out() {
    if !nix::unistd::geteuid().is_root() {
        return;
    }
    let scene = Scene::new(Membership::Groups);
    let most = 1024;
    let crowd: Vec<UnixStream> = (0..=most).map(|_| proxy(&scene, 65534, None)).collect();
    let mut last = crowd.last().unwrap();
    let heard = last.read(&mut [0]);
    let reset = matches!(&heard, Err(error) if error.kind() == ErrorKind::ConnectionReset);
    assert!(reset || matches!(heard, Ok(0)), "who is not turned away at once is told: {heard:?}");
    // Another is greeted as ever.
    let mut other = proxy(&scene, 65533, Some(Role::FrontEnd));
    other.read_exact(&mut [0]).unwrap();
}

#[test]
fn the_socket_is_open_to_those_whom_it_serves() {
    let scene = Scene::new(Membership::Groups);
    let mode = std::fs::metadata(scene.socket()).unwrap().permissions().mode() & 0o777;
    let expected = if nix::unistd::geteuid().is_root() { 0o666 } else { 0o600 };
    assert_eq!(mode, expected);
}
