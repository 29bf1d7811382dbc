//! For tests: launches, a keeper in a process of its own, and an agent and front ends that speak
//! with it.

use super::KeeperOptions;
use nix::sys::signal::{SigSet, Signal};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_bytes::ByteBuf;
use std::collections::{BTreeMap, VecDeque};
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio as ProcessStdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use tutti_linux::cgroup::{Cgroup, Hierarchy};
use tutti_linux::scm_rights;
use tutti_node::simulated::groups::OLD_KERNEL as OLD_KERNEL_FILE;
use tutti_types::{
    ClusterTime, ControlMethod, JobId, Nanos, NodeId, ProcessorSet, Rank, StepId, StepKey,
    TaskPlacement, TaskStatus,
};
use tutti_wire::attach::{FromFrontEnd, Stream, ToFrontEnd};
use tutti_wire::frame::{decode, encode};
use tutti_wire::keeper::{FromKeeper, HeldJob, ToKeeper};
use tutti_wire::launch::{Credentials, InputTo, JobNode, Launch, LaunchSpec, Share, Stdio, Usage};
use tutti_wire::{FrameBuffer, Hello, Role};

/// How long anything may take here before the test has failed.
const PATIENCE: Duration = Duration::from_secs(20);

/// Says to a test process that it is a keeper, and where.
const ROLE_VARIABLE: &str = "TUTTI_TEST_KEEPER";

/// In the directory of a test's keeper: while it is there, no look beside the loop ends.
const HOLD_LOOKS: &str = "hold-looks";
/// The same for removals.
const HOLD_REMOVALS: &str = "hold-removals";
/// The same: while it is there, no group can be killed at once, as on kernels before 5.14.
const OLD_KERNEL: &str = "old-kernel";

/// Whether this is a test's keeper, and its test has made a file there.
fn is_wanted(file: &str) -> bool {
    let directory = std::env::var_os(ROLE_VARIABLE).map(PathBuf::from);
    directory.is_some_and(|directory| directory.join(file).exists())
}

fn wait_while(file: &str) {
    while is_wanted(file) {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Waits, in a test's keeper, for as long as its test wants looks to take.
pub(super) fn wait_while_looks_are_held() {
    wait_while(HOLD_LOOKS);
}

/// Waits, in a test's keeper, for as long as its test wants removals to take.
pub(super) fn wait_while_removals_are_held() {
    wait_while(HOLD_REMOVALS);
}

pub(super) fn bytes(text: &str) -> ByteBuf {
    ByteBuf::from(text.as_bytes().to_vec())
}

/// A node of a job, with so many of its tasks.
pub(super) fn node(name: &str, tasks: u32) -> JobNode {
    JobNode { node: NodeId(0), name: name.into(), address: String::new(), tasks, slots: tasks }
}

/// A job of so many tasks on one node, with a front end and no input.
pub(super) fn launch(job: u64, tasks: u32, argv: &[&str]) -> Launch {
    Launch {
        job: JobId(job),
        number: 0,
        step: StepId::FIRST,
        began: ClusterTime(7),
        control: ControlMethod::Freeze,
        own_ipc: true,
        credentials: Credentials {
            uid: nix::unistd::geteuid().as_raw(),
            gid: nix::unistd::getegid().as_raw(),
            groups: vec![nix::unistd::getegid().as_raw()],
        },
        size: tasks,
        share: Share {
            tasks: (0..tasks)
                .map(|rank| TaskPlacement { rank: Rank(rank), processors: ProcessorSet::first(1) })
                .collect(),
            node_rank: 0,
            held: None,
            devices: Vec::new(),
            closed: Vec::new(),
            in_turns: false,
            is_closed: false,
            is_bound: false,
        },
        nodes: vec![node("here", tasks)],
        class: "interactive".into(),
        resources: Vec::new(),
        quantum: Nanos::from_millis(100),
        processors_per_task: 1,
        memory_per_task_bytes: None,
        spec: LaunchSpec {
            name: "test".into(),
            argv: argv.iter().map(|word| bytes(word)).collect(),
            script: None,
            environment: vec![bytes("PATH=/usr/local/bin:/usr/bin:/bin")],
            directory: bytes("/tmp"),
            umask: 0o022,
            rlimits: Vec::new(),
            stdio: Stdio::FrontEnd { input: InputTo::Nobody },
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

/// As above, a shell that runs this text.
pub(super) fn shell(job: u64, tasks: u32, text: &str) -> Launch {
    launch(job, tasks, &["/bin/sh", "-c", text])
}

/// A framed connection that waits.
pub(super) struct Peer {
    pub(super) stream: UnixStream,
    input: FrameBuffer,
    /// What came with the messages.
    pub(super) descriptors: VecDeque<Option<OwnedFd>>,
}

impl Peer {
    pub(super) fn connect(socket: &Path, role: Role) -> Self {
        let mut stream = UnixStream::connect(socket).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(&Hello { role }.to_frame()).unwrap();
        Self::over(stream)
    }

    /// One that has greeted.
    pub(super) fn over(stream: UnixStream) -> Self {
        Self { stream, input: FrameBuffer::new(), descriptors: VecDeque::new() }
    }

    pub(super) fn send<M: Serialize>(&mut self, message: &M) {
        let mut frame = Vec::new();
        encode(message, &mut frame).unwrap();
        self.stream.write_all(&frame).unwrap();
    }

    fn frame<T>(&mut self, read: impl Fn(&[u8]) -> T) -> Option<T> {
        loop {
            if let Some(payload) = self.input.next_frame().unwrap() {
                return Some(read(payload));
            }
            let mut chunk = vec![0; 1 << 18];
            let read = scm_rights::receive(&self.stream, &mut chunk, &mut self.descriptors);
            match read.expect("the keeper says nothing") {
                0 => return None,
                count => self.input.extend(&chunk[..count]),
            }
        }
    }

    pub(super) fn greeting(&mut self) {
        let hello = self.frame(|payload| Hello::decode(payload).unwrap());
        assert_eq!(hello.map(|hello| hello.role), Some(Role::Server));
    }

    /// `None`: the keeper closed the connection.
    pub(super) fn next<M: DeserializeOwned>(&mut self) -> Option<M> {
        self.frame(|payload| decode(payload).unwrap())
    }
}

/// Whether tasks get cgroups or minders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Membership {
    Groups,
    Minders,
}

/// A keeper in a process of its own, and its agent: us.
pub(super) struct Scene {
    pub(super) directory: PathBuf,
    hierarchy: Option<Hierarchy>,
    process: Child,
    pub(super) agent: Peer,
    pub(super) incarnation: u64,
}

/// What became of a job.
#[derive(Debug, Default)]
pub(super) struct Told {
    pub(super) output: BTreeMap<(u32, Stream), Vec<u8>>,
    /// What the front end heard of ends, by rank.
    pub(super) ends: BTreeMap<u32, (TaskStatus, String)>,
    /// What the agent heard.
    pub(super) reported: BTreeMap<u32, (TaskStatus, String)>,
    pub(super) usage: Usage,
    /// What of the output is not in its files.
    pub(super) lost: String,
}

impl Told {
    pub(super) fn stdout(&self, rank: u32) -> String {
        let output = self.output.get(&(rank, Stream::Output)).cloned().unwrap_or_default();
        String::from_utf8(output).unwrap()
    }

    pub(super) fn status(&self, rank: u32) -> TaskStatus {
        self.reported[&rank].0
    }
}

/// The body of the test that is a keeper when it is told to be one.
pub(super) fn be_a_keeper() {
    let Some(directory) = std::env::var_os(ROLE_VARIABLE).map(PathBuf::from) else { return };
    let cgroup_root = std::fs::read_link(directory.join("cgroup")).ok();
    let _ = OLD_KERNEL_FILE.set(directory.join(OLD_KERNEL));
    let result = super::main(KeeperOptions {
        socket: directory.join("socket"),
        instance_uid: nix::unistd::geteuid().as_raw(),
        spool: directory.join("spool"),
        images: directory.join("images"),
        shared_images: None,
        scratch: directory.join("scratch"),
        cgroup_root,
        released: directory.join("released"),
    });
    std::process::exit(i32::from(result.is_err()));
}

impl Scene {
    pub(super) fn new(membership: Membership) -> Self {
        Self::begin(membership, None)
    }

    /// One whose keeper may have so many descriptors.
    pub(super) fn with_descriptors(most: u32) -> Self {
        Self::begin(Membership::Groups, Some(most))
    }

    fn begin(membership: Membership, descriptors: Option<u32>) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("tutti-test-keeper-{}-{number}", std::process::id());
        let directory = std::env::temp_dir().join(&name);
        std::fs::create_dir(&directory).unwrap();
        let hierarchy = (membership == Membership::Groups).then(|| {
            Hierarchy::find(&name).expect("this test needs a place where cgroups can be made")
        });
        if let Some(hierarchy) = &hierarchy {
            std::os::unix::fs::symlink(hierarchy.path(), directory.join("cgroup")).unwrap();
        }
        let (process, agent, incarnation) = start(&directory, descriptors);
        Self { directory, hierarchy, process, agent, incarnation }
    }

    pub(super) fn socket(&self) -> PathBuf {
        self.directory.join("socket")
    }

    pub(super) fn keeper_pid(&self) -> i32 {
        self.process.id().cast_signed()
    }

    /// Kills the keeper as a crash would, and starts another.
    pub(super) fn crash(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
        (self.process, self.agent, self.incarnation) = start(&self.directory, None);
    }

    /// Waits until the keeper has exited by itself; whether it succeeded.
    pub(super) fn exits(&mut self) -> bool {
        let status = wait_for("the keeper to exit", || self.process.try_wait().unwrap());
        status.success()
    }

    /// Connects as a new agent; what the keeper holds.
    pub(super) fn reconnect(&mut self) -> Vec<HeldJob> {
        let (agent, _, held) = connect_agent(&self.socket());
        self.agent = agent;
        held
    }

    /// Looks beside the keeper's loop take for ever from now on.
    pub(super) fn hold_looks(&self) {
        std::fs::write(self.directory.join(HOLD_LOOKS), "").unwrap();
    }

    /// Removals beside the keeper's loop take for ever from now on, or end.
    pub(super) fn hold_removals(&self, hold: bool) {
        let file = self.directory.join(HOLD_REMOVALS);
        if hold { std::fs::write(file, "") } else { std::fs::remove_file(file) }.unwrap();
    }

    /// No group can be killed at once from now on.
    pub(super) fn is_on_an_old_kernel(&self) {
        std::fs::write(self.directory.join(OLD_KERNEL), "").unwrap();
    }

    pub(super) fn group(&self, job: u64) -> Option<Cgroup> {
        self.hierarchy.as_ref().map(|h| h.create(&format!("job-{job}")).unwrap())
    }

    pub(super) fn start(&mut self, launch: &Launch) {
        let group = self.group(launch.job.0);
        let cgroup = group.map(|group| ByteBuf::from(group.path().as_os_str().as_bytes().to_vec()));
        self.agent.send(&ToKeeper::Launch { launch: launch.clone(), cgroup });
    }

    /// A front end that has asked for the job and heard nothing yet.
    pub(super) fn front(&self, job: u64) -> Peer {
        let mut front = Peer::connect(&self.socket(), Role::FrontEnd);
        front.send(&FromFrontEnd::Attach {
            key: StepKey::first(JobId(job)),
            received: None,
            terminal: None,
        });
        front.greeting();
        front
    }

    pub(super) fn attached(&self, job: u64) -> Peer {
        let mut front = self.front(job);
        assert_eq!(front.next(), Some(ToFrontEnd::Attached { heard: 0 }));
        front
    }

    /// Hears what the agent is told until the job is cleared, and then tidies up as an agent does.
    pub(super) fn reports(&mut self, job: u64, told: &mut Told) {
        let launch = loop {
            match self.agent.next::<FromKeeper>().expect("the keeper left its agent") {
                FromKeeper::TaskStarted { .. } => {}
                FromKeeper::OutputLost { what, .. } => told.lost = what,
                FromKeeper::TaskEnded { launch, rank, status, detail, .. }
                    if launch.job.0 == job =>
                {
                    assert!(told.reported.insert(rank.0, (status, detail)).is_none());
                }
                FromKeeper::Cleared { launch, usage } if launch.job.0 == job => {
                    told.usage = usage;
                    break launch;
                }
                other => panic!("unexpected: {other:?}"),
            }
        };
        self.check_nothing_left(job);
        self.agent.send(&ToKeeper::Forget { launch });
    }

    fn check_nothing_left(&self, job: u64) {
        if let Some(group) = self.group(job) {
            assert_eq!(group.processes().unwrap(), Vec::<i32>::new());
            assert!(group.remove().unwrap(), "the job's group is empty");
        }
        assert!(!self.directory.join(format!("spool/job-{job}")).exists());
    }

    /// Runs a job from launch to end with a front end that reads everything.
    pub(super) fn run(&mut self, launch: &Launch) -> Told {
        self.run_with_input(launch, &[])
    }

    pub(super) fn run_with_input(
        &mut self,
        launch: &Launch,
        input: &[(Option<u32>, &[u8])],
    ) -> Told {
        self.start(launch);
        let job = launch.job.0;
        let mut front = self.attached(job);
        for (rank, data) in input {
            let data = ByteBuf::from(data.to_vec());
            front.send(&FromFrontEnd::Input { rank: rank.map(Rank), data });
        }
        let mut told = hear_out(&mut front);
        self.reports(job, &mut told);
        assert_eq!(told.ends, told.reported);
        told
    }

    /// Runs a job without a front end.
    pub(super) fn submit(&mut self, launch: &Launch) -> Told {
        self.start(launch);
        let mut told = Told::default();
        self.reports(launch.job.0, &mut told);
        told
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        // Politely first: below minders, only the keeper finds what it started.
        let pid = nix::unistd::Pid::from_raw(self.keeper_pid());
        let _ = nix::sys::signal::kill(pid, Signal::SIGTERM);
        let begin = Instant::now();
        while begin.elapsed() < PATIENCE && matches!(self.process.try_wait(), Ok(None)) {
            std::thread::sleep(Duration::from_millis(1));
        }
        let _ = self.process.kill();
        let _ = self.process.wait();
        if let Some(hierarchy) = &self.hierarchy {
            let _ = hierarchy.remove();
        }
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// Hears a front end's messages until the job is finished.
pub(super) fn hear_out(front: &mut Peer) -> Told {
    let mut told = Told::default();
    let mut open = BTreeMap::new();
    loop {
        match front.next::<ToFrontEnd>().expect("the keeper left its front end") {
            ToFrontEnd::Output { rank, stream, data } => {
                assert_ne!(open.get(&(rank, stream)), Some(&false), "output after its end");
                open.insert((rank, stream), !data.is_empty());
                told.output.entry((rank.0, stream)).or_default().extend_from_slice(&data);
            }
            ToFrontEnd::TaskEnded { rank, status, detail } => {
                for stream in [Stream::Output, Stream::Error] {
                    assert_ne!(open.get(&(rank, stream)), Some(&true), "a stream has no end");
                }
                assert!(told.ends.insert(rank.0, (status, detail)).is_none());
            }
            ToFrontEnd::Finished => return told,
            other => panic!("unexpected: {other:?}"),
        }
    }
}

pub(super) fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let begin = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(begin.elapsed() < PATIENCE, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn start(directory: &Path, descriptors: Option<u32>) -> (Child, Peer, u64) {
    // Blocked before there is a second thread: a signal that some thread doesn't block would not
    // wait for the keeper to read it. A new process inherits the mask.
    let mut mask = SigSet::empty();
    for signal in [Signal::SIGCHLD, Signal::SIGTERM, Signal::SIGINT] {
        mask.add(signal);
    }
    let before = mask.thread_swap_mask(nix::sys::signal::SigmaskHow::SIG_BLOCK).unwrap();
    let limit = descriptors.map_or(String::new(), |most| format!("ulimit -n {most}; "));
    let process = Command::new("/bin/sh")
        .args(["-c", &format!("{limit}exec \"$0\" \"$@\"")])
        .arg(std::env::current_exe().unwrap())
        .args(["tests::the_keeper_itself", "--exact", "--nocapture", "--quiet"])
        .env(ROLE_VARIABLE, directory)
        .stdin(ProcessStdio::null())
        .stdout(ProcessStdio::null())
        .spawn()
        .unwrap();
    before.thread_set_mask().unwrap();
    let socket = directory.join("socket");
    wait_for("the keeper's socket", || UnixStream::connect(&socket).ok());
    let (agent, incarnation, held) = connect_agent(&socket);
    assert_eq!(held, []);
    (process, agent, incarnation)
}

fn connect_agent(socket: &Path) -> (Peer, u64, Vec<HeldJob>) {
    let mut agent = Peer::connect(socket, Role::Agent);
    agent.greeting();
    let mut held: Vec<HeldJob> = Vec::new();
    loop {
        match agent.next() {
            Some(FromKeeper::Held(parts)) => {
                for part in parts {
                    let next = match held.last_mut() {
                        Some(job) => job.take_in(part),
                        None => Some(part),
                    };
                    held.extend(next);
                }
            }
            Some(FromKeeper::Welcome { incarnation, .. }) => return (agent, incarnation, held),
            other => panic!("unexpected: {other:?}"),
        }
    }
}
