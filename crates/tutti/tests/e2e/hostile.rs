//! What users do to each other, and to the daemons, on purpose or by mistake: too much of anything.
//! It may cost the attacker a connection or a job, and no other user anything.

use crate::cluster::Bed;
use crate::harness::{
    Instance, NOBODY, Running, copy_program, eventually, needs_root, player, status_of,
};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_bytes::ByteBuf;
use std::fs::{self, Permissions, set_permissions};
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tutti_types::{ClassName, FirstStep, JobId, Nanos, OnBadExit};
use tutti_wire::frame::{FrameBuffer, decode, encode};
use tutti_wire::launch::{InputTo, LaunchSpec, OpenMode, Stdio as TaskStdio};
use tutti_wire::limits::{FRAME_BYTES_MAX, JOB_REQUEST_BYTES_MAX};
use tutti_wire::local::{JobRequest, Reply, Request, SubmitKey};
use tutti_wire::{Hello, Role};

/// Another user than the one that misbehaves.
const SOMEBODY: u32 = 1234;

/// A client that keeps to the protocol, and to nothing else.
struct Client {
    stream: UnixStream,
    input: FrameBuffer,
}

impl Client {
    fn connect(instance: &Instance) -> Self {
        Self::connect_to(&instance.dir.join("controller.sock"))
    }

    fn connect_to(socket: &Path) -> Self {
        let mut stream = UnixStream::connect(socket).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        stream.set_write_timeout(Some(Duration::from_secs(2))).unwrap();
        stream.write_all(&Hello { role: Role::Client }.to_frame()).unwrap();
        let mut client = Self { stream, input: FrameBuffer::new() };
        client.frame(|_| ()).unwrap();
        client
    }

    /// Sends bytes; whether they were all taken.
    fn write(&mut self, bytes: &[u8]) -> bool {
        self.stream.write_all(bytes).is_ok()
    }

    /// The next frame; nothing if the connection is closed.
    fn frame<T>(&mut self, read: impl Fn(&[u8]) -> T) -> Option<T> {
        loop {
            if let Some(payload) = self.input.next_frame().unwrap() {
                return Some(read(payload));
            }
            let mut piece = vec![0; 64 << 10];
            match self.stream.read(&mut piece) {
                Ok(count @ 1..) => self.input.extend(&piece[..count]),
                _ => return None,
            }
        }
    }

    fn ask(&mut self, request: &Request) -> Option<Reply> {
        let mut frame = Vec::new();
        encode(request, &mut frame).unwrap();
        self.write(&frame);
        self.frame(|payload| decode(payload).unwrap())
    }
}

fn send(pid: i32, signal: Signal) {
    kill(Pid::from_raw(pid), signal).unwrap();
}

fn request() -> JobRequest {
    JobRequest {
        queue: None,
        names_class: true,
        class: ClassName::new("interactive"),
        tasks: 1,
        processors_per_task: None,
        memory_per_task_bytes: None,
        time_limit: None,
        deadline: None,
        grace: Nanos::from_millis(100),
        weights: None,
        nodes: tutti_wire::local::NodesRequest::default(),
        on_bad_exit: OnBadExit::default(),
        on_node_loss: tutti_types::OnNodeLoss::default(),
        no_requeue: false,
        within: None,
        hold: false,
        after: None,
        singleton: false,
        begin_ms: None,
        warning: None,
        checkpoint: None,
        policy_args: Vec::new(),
        swap: false,
        array: None,
        notify: None,
        first: FirstStep::EachSlot,
        resources: Vec::new(),
        launch: LaunchSpec {
            name: "x".into(),
            argv: vec![ByteBuf::from("/bin/true")],
            script: None,
            environment: Vec::new(),
            directory: ByteBuf::from("/"),
            umask: 0o022,
            rlimits: Vec::new(),
            stdio: TaskStdio::Files {
                input: None,
                output: ByteBuf::from("/dev/null"),
                error: None,
                mode: OpenMode::default(),
            },
            processes_max: None,
            adopt: Vec::new(),
            nice: 0,
            slurm: false,
            resume: None,
            vacate: None,
        },
    }
}

/// One that no other request has.
fn new_key() -> SubmitKey {
    static KEYS: AtomicU64 = AtomicU64::new(0);
    let mut key = [0; 16];
    key[..8].copy_from_slice(&KEYS.fetch_add(1, Ordering::SeqCst).to_le_bytes());
    SubmitKey(key)
}

fn with_name(name: String) -> Request {
    let mut request = request();
    request.launch.name = name;
    Request::Submit(request, new_key())
}

/// Others are served, and no daemon has ended.
#[track_caller]
fn expect_served(instance: &Instance, daemons: [i32; 3]) {
    let command = instance.command_as(Some(SOMEBODY), &["run", "-n", "2", "echo", "served"]);
    let done = Running::start(command).wait().expect(0);
    assert_eq!(done.text(), "served\nserved\n");
    assert!(done.took < Duration::from_secs(5), "took {:?}", done.took);
    assert_eq!(daemons_of(instance), daemons, "a daemon has ended");
}

fn daemons_of(instance: &Instance) -> [i32; 3] {
    ["controller", "agent", "keeper"].map(|role| instance.daemon(role))
}

/// Its own place may be where only root gets.
fn shared_system() -> Instance {
    let mut instance = Instance::of_the_system();
    instance.program = instance.share(&instance.program.clone());
    instance.up()
}

#[test]
fn no_request_is_so_long_that_it_ends_a_daemon() {
    let instance = shared_system();
    let daemons = daemons_of(&instance);
    for bytes in [JOB_REQUEST_BYTES_MAX - 300, JOB_REQUEST_BYTES_MAX, FRAME_BYTES_MAX - 300] {
        let mut request = request();
        request.launch.environment = vec![ByteBuf::from(vec![b'x'; bytes])];
        let _ = Client::connect(&instance).ask(&Request::Submit(request, new_key()));
        expect_served(&instance, daemons);
    }
    for name in ["n".repeat(1 << 20), "n".repeat(256)] {
        match Client::connect(&instance).ask(&with_name(name)) {
            Some(Reply::Failed { reason, .. }) => assert!(reason.contains("-J"), "{reason}"),
            other => panic!("{other:?}"),
        }
    }
    let mut client = Client::connect(&instance);
    for _ in 0..100 {
        let reply = client.ask(&with_name("n".repeat(255)));
        assert!(matches!(reply, Some(Reply::Accepted { .. })), "{reply:?}");
    }
    assert!(matches!(
        client.ask(&Request::Jobs { ended: true, from: JobId(0) }),
        Some(Reply::Jobs { .. })
    ));
    expect_served(&instance, daemons);
}

#[test]
fn a_connection_is_the_front_end_of_one_job() {
    let instance = Instance::new().up();
    let mut client = Client::connect(&instance);
    let mut run = request();
    run.launch.stdio = TaskStdio::FrontEnd { input: InputTo::Nobody };
    let first = client.ask(&Request::Run(run.clone()));
    assert!(matches!(first, Some(Reply::Accepted { .. })), "{first:?}");
    let starting = client.frame(|payload| decode::<Reply>(payload).unwrap());
    assert!(matches!(starting, Some(Reply::Starting { .. })), "{starting:?}");
    let second = client.ask(&Request::Run(run));
    assert!(matches!(second, Some(Reply::Failed { .. })), "{second:?}");
    instance.tutti(&["cancel", "--now", "1"]).expect(0);
}

#[test]
fn idle_connections_of_one_user_keep_nobody_out() {
    let instance = shared_system();
    let daemons = daemons_of(&instance);
    let player = instance.share(&player());
    for socket in ["controller.sock", "keeper.sock"] {
        let socket: PathBuf = instance.dir.join(socket);
        let user = NOBODY.to_string();
        let mut command = Command::new("setpriv");
        command.args(["--reuid", &user, "--regid", &user, "--clear-groups", "--"]);
        command.arg(&player).arg("idle").arg(&socket).arg("5000").stdin(Stdio::piped());
        let mut crowd = Running::start(command);
        crowd.wait_for("open\n");
        expect_served(&instance, daemons);
        crowd.close_input();
        crowd.wait().expect(0);
    }
}

#[test]
fn one_user_does_not_fill_the_gate_to_other_nodes() {
    let bed = Bed::up(2, &[0]);
    let gate = bed.node(2).directory().join("gate.sock");
    // As in an instance for all users.
    set_permissions(bed.node(2).directory(), Permissions::from_mode(0o755)).unwrap();
    set_permissions(&gate, Permissions::from_mode(0o666)).unwrap();
    let agent = bed.node(2).daemon("agent").unwrap();
    let open = || fs::read_dir(format!("/proc/{agent}/fd")).unwrap().count();
    let before = open();
    let player = bed.audit.share(&player());
    let user = NOBODY.to_string();
    let mut command = Command::new("setpriv");
    command.args(["--reuid", &user, "--regid", &user, "--clear-groups", "--"]);
    command.arg(&player).arg("idle").arg(&gate).arg("600").stdin(Stdio::piped());
    let mut crowd = Running::start(command);
    crowd.wait_for("open\n");
    bed.tutti(2, &["run", "-N", "2", "true"]).expect(0);
    assert!(open() < before + 200, "{} are open, and {before} were", open());
    // A client that says nothing is closed.
    eventually("they are gone", || (open() < before + 10).then_some(()));
    crowd.close_input();
    crowd.wait().expect(0);
    assert_eq!(bed.node(2).daemon("agent"), Some(agent));
}

#[test]
fn an_agent_without_descriptors_waits_for_some() {
    let bed = Bed::up(2, &[0]);
    let agent = bed.node(2).daemon("agent").unwrap();
    let limit = |most: &str| {
        let limit = ["--pid", &agent.to_string(), &format!("--nofile={most}:")].map(str::to_owned);
        assert!(Command::new("prlimit").args(limit).status().unwrap().success());
    };
    // It keeps those that it has.
    limit("3");
    let gate = bed.node(2).directory().join("gate.sock");
    let waiting: Vec<_> = (0..9).map(|_| UnixStream::connect(&gate).unwrap()).collect();
    let log = bed.node(2).directory().join("log");
    let said = || fs::read_to_string(&log).unwrap().matches("cannot take a connection").count();
    eventually("it says so", || (said() > 0).then_some(()));
    limit("1024");
    drop(waiting);
    bed.tutti(2, &["run", "-N", "2", "true"]).expect(0);
}

#[test]
fn who_asks_without_end_waits_for_himself() {
    let instance = shared_system();
    let daemons = daemons_of(&instance);
    for request in [Request::Jobs { ended: true, from: JobId(0) }, Request::Status, Request::Params]
    {
        let mut client = Client::connect(&instance);
        let mut frames = Vec::new();
        for _ in 0..100_000 {
            encode(&request, &mut frames).unwrap();
        }
        client.write(&frames);
        expect_served(&instance, daemons);
        // And what was taken is answered, in order.
        for _ in 0..1000 {
            let reply: Reply = client.frame(|payload| decode(payload).unwrap()).unwrap();
            match (&request, &reply) {
                (Request::Jobs { .. }, Reply::Jobs { .. })
                | (Request::Status, Reply::Status(_))
                | (Request::Params, Reply::Params { .. }) => {}
                _ => panic!("{reply:?}"),
            }
        }
    }
}

#[test]
fn halves_of_messages_are_kept_within_limits() {
    let instance = Instance::new().up();
    let controller = instance.daemon("controller");
    let mut half = u32::try_from(JOB_REQUEST_BYTES_MAX).unwrap().to_le_bytes().to_vec();
    half.resize(JOB_REQUEST_BYTES_MAX - 10, b'x');
    let clients: Vec<Client> = (0..40)
        .map(|_| {
            let mut client = Client::connect(&instance);
            client.write(&half);
            client
        })
        .collect();
    instance.tutti(&["run", "true"]).expect(0);
    let used = status_of(controller, "VmRSS").unwrap();
    let kib: u64 = used.split(' ').next().unwrap().parse().unwrap();
    assert!(kib < 150 << 10, "{used} for {} halves", clients.len());
    assert_eq!(instance.daemon("controller"), controller);
}

/// What a process has in memory, in MiB.
fn resident_mib(pid: i32) -> u64 {
    let used = status_of(pid, "VmRSS").unwrap();
    used.split(' ').next().unwrap().parse::<u64>().unwrap() >> 10
}

#[test]
fn answers_that_are_not_read_do_not_fill_the_controller() {
    const JOBS: usize = 2000;
    let instance = shared_system();
    let daemons = daemons_of(&instance);
    instance.tutti(&["params", "policy=space"]).expect(0);
    let processors = std::thread::available_parallelism().unwrap().to_string();
    instance.tutti(&["submit", "-o", "/dev/null", "-n", &processors, "sleep", "1000"]).expect(0);
    let mut client = Client::connect(&instance);
    let mut request = request();
    request.class = ClassName::new("production");
    request.launch.name = "n".repeat(255);
    for _ in 1..JOBS {
        let reply = client.ask(&Request::Submit(request.clone(), new_key()));
        assert!(matches!(reply, Some(Reply::Accepted { .. })), "{reply:?}");
    }
    let mut frames = Vec::new();
    for _ in 0..8 {
        encode(&Request::Jobs { ended: true, from: JobId(0) }, &mut frames).unwrap();
    }
    let unread: Vec<Client> = (0..300)
        .map(|_| {
            let mut client = Client::connect(&instance);
            client.write(&frames);
            client
        })
        .collect();
    let controller = daemons[0];
    // Others do not wait for any of that.
    let other = Running::start(instance.command_as(Some(SOMEBODY), &["ps"])).wait().expect(0);
    assert!(other.took < Duration::from_secs(4), "took {:?}", other.took);
    // One that reads is answered page by page, before those that have not been answered and as soon as
    // some that don't read have lost their connections. All that is asked for here would take 1.2 GB.
    let (mut seen, mut from) = (0, Some(JobId(0)));
    let mut client = Client::connect(&instance);
    while let Some(first) = from {
        let Some(Reply::Jobs { jobs, next }) =
            client.ask(&Request::Jobs { ended: true, from: first })
        else {
            panic!("no page from {first}")
        };
        assert!(jobs.len() <= 1000 && jobs[0].job >= first, "{} from {first}", jobs.len());
        (seen, from) = (seen + jobs.len(), next);
        assert!(resident_mib(controller) < 200, "{} MiB", resident_mib(controller));
    }
    assert_eq!(seen, JOBS);
    let listed = instance.tutti(&["ps", "--json"]).expect(0).text();
    assert_eq!(listed.matches("\"job\"").count(), JOBS);
    let mut ended = unread.into_iter().filter(|client| client.stream.peer_addr().is_ok());
    assert!(
        ended.any(|mut client| (0..8).any(|_| client.frame(|_| ()).is_none())),
        "none is cut off"
    );
    assert_eq!(daemons_of(&instance), daemons, "a daemon has ended");
}

/// All requests are there before the controller sees any of them.
#[test]
fn requests_of_one_user_leave_time_for_others() {
    const ASKING: usize = 300;
    let instance = shared_system();
    instance.tutti(&["params", "policy=space"]).expect(0);
    let mut client = Client::connect(&instance);
    let mut request = request();
    request.hold = true;
    request.launch.name = "n".repeat(255);
    for _ in 0..100 {
        let reply = client.ask(&Request::Submit(request.clone(), new_key()));
        assert!(matches!(reply, Some(Reply::Accepted { .. })), "{reply:?}");
    }
    // On a busy machine all may have been answered before it is seen that the other user was. Where
    // that one waits for all of them, that is so each time.
    let passes = (0..10).any(|_| answered_before_another(&instance, ASKING) < ASKING);
    assert!(passes, "the other user waited for all of them");
}

/// How many of so many requests have been answered when that of another user has, which came last.
fn answered_before_another(instance: &Instance, asking: usize) -> usize {
    let mut asking: Vec<Client> = (0..asking).map(|_| Client::connect(instance)).collect();
    let controller = instance.daemon("controller");
    send(controller, Signal::SIGSTOP);
    let mut frame = Vec::new();
    encode(&Request::Jobs { ended: true, from: JobId(0) }, &mut frame).unwrap();
    assert!(asking.iter_mut().all(|client| client.write(&frame)));
    let other = Running::start(instance.command_as(Some(SOMEBODY), &["ps"]));
    let waits = || {
        let open =
            fs::read_dir(format!("/proc/{}/fd", other.pid())).into_iter().flatten().flatten();
        let is_socket = |path: PathBuf| path.to_string_lossy().starts_with("socket:");
        open.filter_map(|fd| fs::read_link(fd.path()).ok()).any(is_socket).then_some(())
    };
    eventually("another user asks, too", waits);
    std::thread::sleep(Duration::from_millis(200));
    send(controller, Signal::SIGCONT);
    other.wait().expect(0);
    let is_answered = |client: &&Client| {
        let mut readable = [PollFd::new(client.stream.as_fd(), PollFlags::POLLIN)];
        poll(&mut readable, PollTimeout::ZERO).unwrap() == 1
    };
    let answered = asking.iter().filter(is_answered).count();
    for client in &mut asking {
        assert!(client.frame(|_| ()).is_some(), "each is answered");
    }
    answered
}

#[test]
#[ignore = "takes long: `tests/long e2e` runs it"]
fn an_environment_of_many_jobs_is_kept_once_in_memory_and_in_the_journal() {
    let instance = Instance::of_the_system().up();
    instance.tutti(&["params", "policy=space"]).expect(0);
    let processors = std::thread::available_parallelism().unwrap().to_string();
    instance.tutti(&["submit", "-o", "/dev/null", "-n", &processors, "sleep", "1000"]).expect(0);
    let mut text = String::new();
    let mut state = 1_u64;
    while text.len() < 100_000 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        text.push_str(&state.to_string());
    }
    let mut request = request();
    request.class = ClassName::new("production");
    for number in 0..17 {
        let variable = format!("V{number}={}", &text[number * 1_000..]);
        request.launch.environment.push(ByteBuf::from(variable));
    }
    let mut client = Client::connect(&instance);
    for number in 0..150 {
        let mut request = request.clone();
        request.launch.environment.insert(number % 18, ByteBuf::from(format!("N={number}")));
        let reply = client.ask(&Request::Submit(request, new_key()));
        assert!(matches!(reply, Some(Reply::Accepted { .. })), "{reply:?}");
    }
    let journal = Path::new("/var/lib").join(instance.dir.file_name().unwrap());
    let stored = || {
        let files = fs::read_dir(&journal).unwrap().map(|file| file.unwrap().metadata().unwrap());
        files.map(|file| file.len()).sum::<u64>() >> 20
    };
    // All together are 250 MiB.
    assert!(stored() < 60, "the journal has {} MiB", stored());
    let first = instance.daemon("controller");
    assert!(resident_mib(first) < 100, "{} MiB", resident_mib(first));
    send(first, Signal::SIGKILL);
    let next = eventually("another controller", || {
        instance.daemon_now("controller").filter(|&next| next != first)
    });
    assert_eq!(instance.jobs().len(), 151);
    assert!(resident_mib(next) < 100, "{} MiB", resident_mib(next));
    // What the next one launches is what was submitted.
    instance.tutti(&["cancel", "--now", "1"]).expect(0);
    instance.tutti(&["wait", "151"]).expect(0);
}

#[test]
#[ignore = "takes long: `tests/long e2e` runs it"]
fn scripts_of_one_user_take_no_more_than_their_limit_and_equal_ones_count_once() {
    let instance = shared_system();
    instance.tutti(&["params", "policy=space"]).expect(0);
    let processors = std::thread::available_parallelism().unwrap().to_string();
    instance.tutti(&["submit", "-o", "/dev/null", "-n", &processors, "sleep", "1000"]).expect(0);
    let line = r#"
        directory=$(mktemp -d); cd "$directory"; trap 'rm -r "$directory"' EXIT
        number=0
        while [ $number -lt 100 ]; do
            number=$((number + 1))
            { echo '#!/bin/sh'; head -c 2800000 /dev/urandom | base64 | sed 's/^/#/'; } > "$number"
            "$0" submit -o /dev/null "$number" || break
        done
        echo "refused: $number"
        "$0" submit -o /dev/null 1 && "$0" submit -o /dev/null 2 && echo "once more"
        "$0" cancel --now 5 6 && "$0" submit -o /dev/null "$number" && echo "room again""#;
    let user = SOMEBODY.to_string();
    let mut command = Command::new("setpriv");
    command.args(["--reuid", &user, "--regid", &user, "--clear-groups", "sh", "-c", line]);
    command.arg(&instance.program).stdin(Stdio::null()).env("TUTTI_DIR", &instance.dir);
    let done = Running::start(command).wait_within(Duration::from_secs(120));
    let out = done.text();
    let refused = done.err.lines().find(|line| line.contains("[T")).unwrap_or_default();
    assert!(refused.contains("scripts of your jobs would take 2"), "{out} {}", done.err);
    let number = out.lines().find_map(|line| line.strip_prefix("refused: ")).unwrap();
    let number: u64 = number.parse().unwrap();
    assert!((55..75).contains(&number), "after {number}");
    assert!(out.contains("once more") && out.contains("room again"), "{out} {}", done.err);
    let controller = instance.daemon("controller");
    assert!(resident_mib(controller) < 400, "{} MiB", resident_mib(controller));
    instance.tutti(&["cancel", "--now", "--user", &user]).expect(0);
    eventually("its memory is given back", || (resident_mib(controller) < 100).then_some(()));
}

#[test]
fn nobody_is_taken_in_by_an_instance_of_another_user() {
    let instance = Instance::new();
    needs_root("files of another user");
    std::fs::create_dir(&instance.dir).unwrap();
    nix::unistd::chown(&instance.dir, Some(NOBODY.into()), None).unwrap();
    let player = instance.share(&player());
    let user = NOBODY.to_string();
    let mut command = Command::new("setpriv");
    command.args(["--reuid", &user, "--regid", &user, "--clear-groups", "--"]);
    let socket = instance.dir.join("controller.sock");
    command.arg(&player).arg("listen").arg(&socket).stdin(Stdio::piped());
    let trap = Running::start(command);
    trap.wait_for("listening\n");
    for args in [&["run", "true"][..], &["submit", "true"], &["ps"], &["down"]] {
        let done = instance.tutti(args);
        assert!(done.code != 0, "{args:?}");
        done.says("belongs to user");
    }
    let heard = trap.wait().expect(0).text();
    assert_eq!(heard, "listening\n", "it was told something");
    std::fs::remove_dir_all(&instance.dir).unwrap();
}

/// What the child of the next test does: a front end would not ask for it.
#[test]
fn asks_for_real_time_priority() {
    let Ok(socket) = std::env::var("TEST_SOCKET") else { return };
    let mut request = request();
    request.launch.rlimits = vec![(nix::libc::RLIMIT_RTPRIO, 99, 99)];
    match Client::connect_to(socket.as_ref()).ask(&Request::Submit(request, new_key())) {
        Some(Reply::Failed { reason, .. }) => {
            assert!(reason.contains("resource limit"), "{reason}")
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn nobody_gets_higher_resource_limits_than_his_own() {
    let instance = shared_system();
    let test = instance.share(&std::env::current_exe().unwrap());
    let user = NOBODY.to_string();
    let mut command = Command::new("setpriv");
    command.args(["--reuid", &user, "--regid", &user, "--clear-groups", "--"]);
    command.arg(&test).args(["--exact", "hostile::asks_for_real_time_priority"]);
    command.env("TEST_SOCKET", instance.dir.join("controller.sock"));
    Running::start(command).wait().expect(0);
    // Those that the user has the user gets, also where they are higher than those of the daemons.
    let line = "ulimit -Hn; tutti run sh -c 'ulimit -Hn'";
    let lines = instance.shell(line).expect(0).text();
    let mut lines = lines.lines();
    assert_eq!(lines.next(), lines.next());
}

#[test]
fn nobody_can_lock_the_instance_of_another() {
    use std::os::unix::fs::PermissionsExt;
    let instance = Instance::of_the_system().up();
    let mode = std::fs::metadata(instance.dir.join("lock")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn a_user_waits_for_the_systems_instance_instead_of_starting_one_beside_it() {
    let instance = shared_system();
    let controller = instance.daemon("controller");
    let supervisor: i32 = status_of(controller, "PPid").unwrap().parse().unwrap();
    // For as long as it stands still there is no other controller.
    send(supervisor, Signal::SIGSTOP);
    send(controller, Signal::SIGKILL);
    let socket = instance.dir.join("controller.sock");
    eventually("silence", || UnixStream::connect(&socket).is_err().then_some(()));
    let command = instance.command_as(Some(SOMEBODY), &["run", "echo", "here"]);
    let (running, began) = (Running::start(command), Instant::now());
    let goes_its_own_way = || !running.err().is_empty();
    eventually("some time", || {
        (goes_its_own_way() || began.elapsed() > Duration::from_millis(500)).then_some(())
    });
    send(supervisor, Signal::SIGCONT);
    let done = running.wait().expect(0);
    assert_eq!((done.text().as_str(), done.err.as_str()), ("here\n", ""));
}

#[test]
fn an_instance_whose_program_was_replaced_goes_on() {
    let mut instance = Instance::new();
    instance.program = instance.share(&instance.program.clone());
    let instance = instance.up();
    // As an upgrade does it, here to a program that is none.
    let kept = instance.work.join("kept");
    copy_program(&instance.program, &kept);
    std::fs::remove_file(&instance.program).unwrap();
    copy_program(Path::new("/bin/false"), &instance.program);
    let agent = instance.daemon("agent");
    send(agent, Signal::SIGKILL);
    eventually("another agent", || instance.daemon_now("agent").filter(|&new| new != agent));
    std::fs::rename(kept, &instance.program).unwrap();
    instance.tutti(&["run", "true"]).expect(0);
}

#[test]
fn more_tasks_than_a_keeper_can_hold_are_declined_with_the_number_that_it_can() {
    let instance = Instance::new().up();
    for tasks in ["60000", "16000000"] {
        let done = instance.tutti(&["run", "-n", tasks, "true"]).expect(120);
        assert!(done.took < Duration::from_secs(2), "{:?}", done.took);
        done.says("ask for at most -n ");
    }
    instance.tutti(&["run", "-n", "200", "true"]).expect(0);
}

/// The log of a keeper has room for lines that users' programs provoke, but not for all of them.
#[test]
fn bad_lines_of_many_tasks_to_their_pmi_server_do_not_fill_the_log() {
    let instance = Instance::new().up();
    let line = "echo mischief >&$PMI_FD; read -r answer <&$PMI_FD; echo $TUTTI_RANK is over";
    let run = ["run", "-n", "60", "bash", "-c", line];
    let done = instance.start(&run).wait_within(Duration::from_secs(120)).expect(0);
    assert_eq!(done.text().matches(" is over").count(), 60);
    let log = instance.log();
    let lines = log.lines().filter(|line| line.contains("task at ")).count();
    assert!((1..=20).contains(&lines), "{lines} lines:\n{log}");
}
