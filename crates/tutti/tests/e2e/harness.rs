//! Instances for tests, verbs with a deadline, waiting for a state, and the audit.
//!
//! Nothing here sleeps for a fixed time: whatever is waited for is looked for again and again until
//! a deadline, and the failure says what was missing.

use crate::audit;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::cell::Cell;
use std::collections::BTreeSet;
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{
    Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard,
};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long a verb or a state may take. Far more than a loaded machine needs.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// How long a process that is not needed any more may take to end by itself.
const PATIENCE_OF_DROP: Duration = Duration::from_secs(5);

/// When a wait of this length is over. On a machine that is known to be slow, as under emulation,
/// it is so many times as long.
fn deadline_in(limit: Duration) -> Instant {
    static SLOWNESS: OnceLock<u32> = OnceLock::new();
    let said = || std::env::var("TUTTI_TEST_SLOWNESS").ok()?.parse::<u32>().ok();
    Instant::now() + limit * (*SLOWNESS.get_or_init(|| said().unwrap_or(1)))
}

/// The user that tests without privileges run as.
pub(crate) const NOBODY: u32 = 65534;

static INSTANCES: AtomicU32 = AtomicU32::new(0);
static SYSTEMS: AtomicU32 = AtomicU32::new(0);

/// The number of the next instance or bed. The tests may themselves run in the background or under
/// `nohup`, which ignore these signals: what they start is to react to them.
pub(crate) fn next_of(numbers: &AtomicU32) -> u32 {
    for signal in [Signal::SIGHUP, Signal::SIGINT, Signal::SIGQUIT] {
        tutti_linux::disposition::stop_ignoring(signal as i32);
    }
    numbers.fetch_add(1, Ordering::SeqCst)
}

/// Tests that measure time hold it alone, all others together.
static STAGE: RwLock<()> = RwLock::new(());

/// Tests with an instance of the user without privileges hold it one after the other.
static USER: Mutex<()> = Mutex::new(());

/// The tests that hold the stage alone, by name. `tests/run` has them run when all others have
/// ended: otherwise each would wait for those that run, and have those that come wait for it.
pub(crate) const ALONE: &str = include_str!("alone.txt");

enum Hold {
    Shared(#[allow(dead_code, reason = "held, not read")] RwLockReadGuard<'static, ()>),
    OfUser(
        #[allow(dead_code, reason = "held, not read")] RwLockReadGuard<'static, ()>,
        #[allow(dead_code, reason = "held, not read")] MutexGuard<'static, ()>,
    ),
    Alone(#[allow(dead_code, reason = "held, not read")] RwLockWriteGuard<'static, ()>),
    /// By another instance of the same test: to ask once more could wait for a test that waits to
    /// have it alone.
    Already,
}

thread_local! {
    /// Whether an instance of this test holds the stage.
    static HOLDS: Cell<bool> = const { Cell::new(false) };
}

impl Hold {
    fn shared() -> Self {
        match HOLDS.replace(true) {
            true => Self::Already,
            false => Self::Shared(STAGE.read().unwrap_or_else(PoisonError::into_inner)),
        }
    }

    fn of_user() -> Self {
        assert!(!HOLDS.replace(true), "an instance of the user comes first in a test");
        let user = USER.lock().unwrap_or_else(PoisonError::into_inner);
        Self::OfUser(STAGE.read().unwrap_or_else(PoisonError::into_inner), user)
    }

    fn alone() -> Self {
        assert!(!HOLDS.replace(true), "what is to be alone comes first in a test");
        let thread = std::thread::current();
        // Where one thread runs all tests, it has no name of a test.
        if let Some(name) = thread.name().filter(|name| name.contains("::")) {
            let is_listed = ALONE.lines().any(|listed| listed == name);
            assert!(is_listed, "add {name} to crates/tutti/tests/e2e/alone.txt");
        }
        Self::Alone(STAGE.write().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if !matches!(self, Self::Already) {
            HOLDS.set(false);
        }
    }
}

/// The name of the tests' user.
pub(crate) fn own_name() -> String {
    nix::unistd::User::from_uid(nix::unistd::geteuid()).unwrap().expect("a user with a name").name
}

/// Ends the test unless root runs it. `tests/vm/suite` lists tests that end this way by name, apart
/// from failures.
pub(crate) fn needs_root(why: &str) {
    assert!(nix::unistd::geteuid().is_root(), "not run: needs root: {why}");
}

/// Looks again and again until there is something, and fails with `what` if it does not come.
#[track_caller]
pub(crate) fn eventually<T>(what: &str, look: impl FnMut() -> Option<T>) -> T {
    within(PATIENCE, what, look)
}

/// As [`eventually`], with a deadline of its own.
#[track_caller]
pub(crate) fn within<T>(limit: Duration, what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = deadline_in(limit);
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "not within {limit:?}: {what}");
        std::thread::sleep(Duration::from_millis(3));
    }
}

/// How a verb ended.
#[derive(Debug)]
pub(crate) struct Done {
    /// Its exit status, or 128 and the signal, as a shell has it.
    pub(crate) code: i32,
    pub(crate) out: Vec<u8>,
    pub(crate) err: String,
    pub(crate) took: Duration,
}

impl Done {
    /// Standard output as text.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.out).into_owned()
    }

    /// The lines of standard output, sorted: ranks come in any order.
    pub(crate) fn sorted(&self) -> Vec<String> {
        let mut lines: Vec<String> = self.text().lines().map(str::to_owned).collect();
        lines.sort();
        lines
    }

    /// Fails unless it ended with this exit status.
    #[track_caller]
    pub(crate) fn expect(self, code: i32) -> Self {
        assert_eq!(self.code, code, "out: {}\nerr: {}", self.text(), self.err);
        self
    }

    /// Fails unless standard error has this text in it.
    #[track_caller]
    pub(crate) fn says(self, text: &str) -> Self {
        assert!(self.err.contains(text), "no {text:?} in: {}", self.err);
        self
    }

    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.out).unwrap_or_else(|e| panic!("{e}: {}", self.text()))
    }
}

/// A verb that runs; killed when dropped.
pub(crate) struct Running {
    child: Child,
    what: String,
    began: Instant,
    input: Option<ChildStdin>,
    out: Arc<Mutex<Vec<u8>>>,
    err: Arc<Mutex<Vec<u8>>>,
    readers: Vec<JoinHandle<()>>,
}

impl Running {
    #[track_caller]
    pub(crate) fn start(mut command: Command) -> Self {
        let what = format!("{command:?}");
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|e| panic!("{what}: {e}"));
        let (out, err) = (Arc::default(), Arc::default());
        let readers = vec![
            collect(child.stdout.take().unwrap(), &out),
            collect(child.stderr.take().unwrap(), &err),
        ];
        let input = child.stdin.take();
        if let Some(input) = &input {
            fcntl(input, FcntlArg::F_SETFL(OFlag::O_NONBLOCK | OFlag::O_WRONLY)).unwrap();
        }
        Self { input, child, what, began: Instant::now(), out, err, readers }
    }

    pub(crate) fn pid(&self) -> i32 {
        self.child.id().cast_signed()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.pid()), signal).unwrap();
    }

    /// What came on standard output so far.
    pub(crate) fn out(&self) -> String {
        String::from_utf8_lossy(&self.out.lock().unwrap()).into_owned()
    }

    /// What came on standard error so far.
    pub(crate) fn err(&self) -> String {
        String::from_utf8_lossy(&self.err.lock().unwrap()).into_owned()
    }

    /// Waits until standard error has this text in it.
    #[track_caller]
    pub(crate) fn wait_for_err(&self, text: &str) {
        let said = || self.err().contains(text).then_some(());
        eventually(&format!("{text:?} from {}", self.what), said);
    }

    /// Waits until standard output has this text in it.
    #[track_caller]
    pub(crate) fn wait_for(&self, text: &str) {
        let deadline = deadline_in(PATIENCE);
        while !self.out().contains(text) {
            assert!(
                Instant::now() < deadline,
                "no {text:?} from {}\nout: {}\nerr: {}",
                self.what,
                self.out(),
                self.err()
            );
            std::thread::sleep(Duration::from_millis(3));
        }
    }

    #[track_caller]
    pub(crate) fn type_in(&mut self, text: &[u8]) {
        self.try_type_in(text).unwrap();
    }

    /// The same, to a process that may read no more.
    #[track_caller]
    pub(crate) fn try_type_in(&mut self, mut text: &[u8]) -> std::io::Result<()> {
        let mut deadline = deadline_in(PATIENCE);
        while !text.is_empty() {
            match self.input.as_mut().unwrap().write(text) {
                Ok(count) => {
                    text = &text[count..];
                    deadline = deadline_in(PATIENCE);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    let (what, left) = (&self.what, text.len());
                    assert!(
                        Instant::now() < deadline,
                        "{what} reads none of the last {left} bytes"
                    );
                    std::thread::sleep(Duration::from_millis(1));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    pub(crate) fn close_input(&mut self) {
        self.input = None;
    }

    #[track_caller]
    pub(crate) fn wait(self) -> Done {
        self.wait_within(PATIENCE)
    }

    #[track_caller]
    pub(crate) fn wait_within(mut self, limit: Duration) -> Done {
        self.input = None;
        let deadline = deadline_in(limit);
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(
                Instant::now() < deadline,
                "not ended within {limit:?}: {}\nout: {}\nerr: {}",
                self.what,
                self.out().chars().take(4000).collect::<String>(),
                self.err()
            );
            std::thread::sleep(Duration::from_millis(1));
        };
        let took = self.began.elapsed();
        for reader in self.readers.drain(..) {
            // A process that holds the pipe open after the verb has ended is a failure of its own.
            within(PATIENCE, "the end of its output, which somebody holds open", || {
                reader.is_finished().then_some(())
            });
        }
        let code = status.code().or_else(|| status.signal().map(|s| 128 + s)).unwrap();
        let out = std::mem::take(&mut *self.out.lock().unwrap());
        Done { code, out, err: self.err(), took }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !matches!(self.child.try_wait(), Ok(None)) {
            return;
        }
        // One that has an instance of its own ends that, unless it is stopped or hangs.
        let _ = kill(Pid::from_raw(self.pid()), Signal::SIGTERM);
        let deadline = Instant::now() + PATIENCE_OF_DROP;
        while matches!(self.child.try_wait(), Ok(None)) {
            if Instant::now() >= deadline {
                let _ = self.child.kill();
                let _ = self.child.wait();
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

fn collect(mut from: impl Read + Send + 'static, into: &Arc<Mutex<Vec<u8>>>) -> JoinHandle<()> {
    let into = Arc::clone(into);
    std::thread::spawn(move || {
        let mut piece = vec![0; 64 << 10];
        while let Ok(count @ 1..) = from.read(&mut piece) {
            into.lock().unwrap().extend_from_slice(&piece[..count]);
        }
    })
}

/// An instance of a test's own, with a directory to work in. It is ended and audited when dropped.
pub(crate) struct Instance {
    /// Its state directory.
    pub(crate) dir: PathBuf,
    /// Where verbs are started.
    pub(crate) work: PathBuf,
    /// A length of sleep that only processes of this test use: finds those that hide.
    pub(crate) nap: String,
    /// Keeps it apart from others, for a system instance.
    cluster: Option<String>,
    pub(crate) user: Option<u32>,
    /// A cgroup that is the user's, in which all verbs are started.
    subtree: Option<PathBuf>,
    /// The program under test.
    pub(crate) program: PathBuf,
    before: BTreeSet<PathBuf>,
    _hold: Hold,
}

impl Instance {
    /// An instance that runs beside those of other tests. It is not started.
    pub(crate) fn new() -> Self {
        Self::make(Hold::shared(), None, None)
    }

    /// An instance that has the machine to itself, for tests that measure.
    pub(crate) fn alone() -> Self {
        Self::make(Hold::alone(), None, None)
    }

    /// An instance of a user without privileges.
    pub(crate) fn of_nobody() -> Self {
        Self::make(Hold::of_user(), Some(NOBODY), None)
    }

    /// The same with a cgroup of the user's own, as service managers hand them over.
    pub(crate) fn of_nobody_with_groups() -> Self {
        let mut instance = Self::of_nobody();
        instance.subtree = Some(instance.subtree_of_nobody());
        instance
    }

    /// A cgroup that is the unprivileged user's, made if it is not there; it goes with this.
    pub(crate) fn subtree_of_nobody(&self) -> PathBuf {
        let subtree = self.subtree_path();
        if !subtree.exists() {
            fs::create_dir(&subtree).unwrap();
            let files = ["", "cgroup.procs", "cgroup.subtree_control", "cgroup.threads"];
            for file in files.map(|file| subtree.join(file)) {
                std::os::unix::fs::chown(file, Some(NOBODY), Some(NOBODY)).unwrap();
            }
        }
        subtree
    }

    fn subtree_path(&self) -> PathBuf {
        let top = ["/sys/fs/cgroup/unified", "/sys/fs/cgroup"].map(Path::new);
        let top = top.into_iter().find(|top| top.join("cgroup.procs").exists()).unwrap();
        let name = self.work.file_name().unwrap().to_str().unwrap();
        top.join(name.replace("te2e", "of-nobody"))
    }

    /// An instance of a user without privileges, once this one has ended.
    pub(crate) fn of_nobody_after(ended: Self) -> Self {
        drop(ended);
        Self::of_nobody()
    }

    /// The system's instance, for all users, kept apart by a cluster name.
    pub(crate) fn of_the_system() -> Self {
        let hold = Hold::shared();
        let number = SYSTEMS.fetch_add(1, Ordering::SeqCst);
        let name = format!("test{}-{number}", std::process::id());
        Self::make(hold, None, Some(name))
    }

    /// The same with the machine to itself.
    pub(crate) fn of_the_system_alone() -> Self {
        let hold = Hold::alone();
        let number = SYSTEMS.fetch_add(1, Ordering::SeqCst);
        let name = format!("test{}-{number}", std::process::id());
        Self::make(hold, None, Some(name))
    }

    fn make(hold: Hold, user: Option<u32>, cluster: Option<String>) -> Self {
        if user.is_some() || cluster.is_some() {
            needs_root("an instance of another user or of the system");
        }
        let number = next_of(&INSTANCES);
        bind_to_two_processors(number as usize);
        let name = format!("te2e-{}-{number}", std::process::id());
        let work = std::env::temp_dir().join(format!("{name}w"));
        fs::create_dir(&work).unwrap();
        fs::set_permissions(&work, fs::Permissions::from_mode(0o777)).unwrap();
        let program = PathBuf::from(env!("CARGO_BIN_EXE_tutti"));
        let mut instance = Self {
            dir: match &cluster {
                Some(cluster) => Path::new("/run").join(format!("tutti-{cluster}")),
                None => std::env::temp_dir().join(name),
            },
            nap: format!("86400.{:05}{number:03}", std::process::id() % 100_000),
            work,
            cluster,
            user,
            subtree: None,
            program,
            before: audit::shared_files(),
            _hold: hold,
        };
        if user.is_some() {
            // Its own place may be where only root gets.
            instance.program = instance.share(&instance.program.clone());
        }
        instance
    }

    /// A copy of a program that every user may run.
    pub(crate) fn share(&self, program: &Path) -> PathBuf {
        let copy = self.work.join(program.file_name().unwrap());
        copy_program(program, &copy);
        fs::set_permissions(&copy, fs::Permissions::from_mode(0o755)).unwrap();
        copy
    }

    /// A script in the directory of the work that every user may run.
    pub(crate) fn script(&self, name: &str, text: &str) {
        let mut shell = Command::new("sh");
        shell.args(["-c", "cat > \"$0\" && chmod 755 \"$0\""]).arg(self.work.join(name));
        let mut shell = shell.stdin(Stdio::piped()).spawn().unwrap();
        shell.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        assert!(shell.wait().unwrap().success());
    }

    /// Started already.
    #[track_caller]
    pub(crate) fn up(self) -> Self {
        self.tutti(&["up"]).expect(0);
        self
    }

    /// A verb as a command that can be changed before it starts.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        self.command_as(self.user, args)
    }

    /// The same as another user.
    pub(crate) fn command_as(&self, user: Option<u32>, args: &[&str]) -> Command {
        let mut command = match user {
            None => Command::new(&self.program),
            Some(user) => {
                needs_root("a process of another user");
                let mut command = self.starter();
                let user = user.to_string();
                command.args(["--reuid", &user, "--regid", &user, "--clear-groups", "--"]);
                command.arg(&self.program);
                command
            }
        };
        command.args(args).current_dir(&self.work).stdin(Stdio::null());
        match &self.cluster {
            Some(cluster) => command.env("TUTTI_CLUSTER", cluster).env_remove("TUTTI_DIR"),
            None => command.env("TUTTI_DIR", &self.dir).env_remove("TUTTI_CLUSTER"),
        };
        // Tables are as wide as it says.
        for name in ["COLUMNS", "NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE"] {
            command.env_remove(name);
        }
        if user.is_some() {
            // Root's own may have places that others can't look into.
            command.env("PATH", "/usr/local/bin:/usr/bin:/bin");
        }
        command.env("NAP", &self.nap);
        // Where links with the names of Slurm's commands are made.
        command.env("XDG_DATA_HOME", self.work.join("data"));
        command
    }

    /// A command that takes this directory for the one in which users' own instances are.
    pub(crate) fn command_in(&self, lasting: &Path, words: &[&str]) -> Command {
        needs_root("a mount");
        let mut command = Command::new("unshare");
        let enter = "mount --bind \"$0\" /var/tmp && exec \"$@\"";
        command.args(["--mount", "--propagation", "private", "sh", "-c", enter]);
        command.arg(lasting).args(words).current_dir(&self.work).stdin(Stdio::null());
        command.env_remove("TUTTI_DIR").env_remove("TUTTI_CLUSTER").env_remove("COLUMNS");
        command.env("TMPDIR", lasting).env("TUTTI", &self.program).env("NAP", &self.nap);
        command
    }

    /// What becomes another user, in the subtree if there is one.
    fn starter(&self) -> Command {
        let Some(subtree) = &self.subtree else { return Command::new("setpriv") };
        let mut shell = Command::new("sh");
        let enter = "echo $$ > \"$0\" && exec setpriv \"$@\"";
        shell.args(["-c", enter]).arg(subtree.join("cgroup.procs"));
        shell
    }

    #[track_caller]
    pub(crate) fn start(&self, args: &[&str]) -> Running {
        Running::start(self.command(args))
    }

    /// Starts a verb whose standard input the test types.
    #[track_caller]
    pub(crate) fn start_typing(&self, args: &[&str]) -> Running {
        let mut command = self.command(args);
        command.stdin(Stdio::piped());
        Running::start(command)
    }

    #[track_caller]
    pub(crate) fn tutti(&self, args: &[&str]) -> Done {
        self.start(args).wait()
    }

    /// A verb of a shell line, with `tutti` in its PATH.
    #[track_caller]
    pub(crate) fn shell(&self, line: &str) -> Done {
        Running::start(self.shell_command(line)).wait()
    }

    /// The same as a command.
    pub(crate) fn shell_command(&self, line: &str) -> Command {
        let command = self.command(&[]);
        let mut shell = Command::new("sh");
        shell.args(["-c", line]).current_dir(&self.work).stdin(Stdio::null());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => shell.env(name, value),
                None => shell.env_remove(name),
            };
        }
        let path = std::env::var("PATH").unwrap_or_default();
        let bin = self.program.parent().unwrap().display();
        shell.env("PATH", format!("{bin}:{path}"));
        shell
    }

    /// Submits a job and gives its number.
    #[track_caller]
    pub(crate) fn submit(&self, args: &[&str]) -> u64 {
        let args: Vec<&str> = ["submit", "--parsable"].iter().chain(args).copied().collect();
        let done = self.tutti(&args).expect(0);
        done.text().trim().parse().unwrap()
    }

    /// Submits a job of so many tasks that use every processor they get until they are ended.
    #[track_caller]
    pub(crate) fn submit_spinner(&self, tasks: u32) -> u64 {
        let tasks = tasks.to_string();
        self.submit(&["-n", &tasks, "-o", "/dev/null", "sh", "-c", "while :; do :; done"])
    }

    /// All jobs, also those that ended.
    #[track_caller]
    pub(crate) fn jobs(&self) -> Vec<Value> {
        match self.tutti(&["ps", "--all", "--json"]).expect(0).json() {
            Value::Array(jobs) => jobs,
            other => panic!("no list: {other}"),
        }
    }

    #[track_caller]
    pub(crate) fn job(&self, job: u64) -> Value {
        let found = self.jobs().into_iter().find(|entry| entry["job"] == job);
        found.unwrap_or_else(|| panic!("no job {job}"))
    }

    #[track_caller]
    pub(crate) fn wait_for_state(&self, job: u64, state: &str) -> Value {
        let deadline = deadline_in(PATIENCE);
        loop {
            let found = self.job(job);
            if found["state"] == state {
                return found;
            }
            assert!(Instant::now() < deadline, "job {job} is not {state}: {found}");
            std::thread::sleep(Duration::from_millis(3));
        }
    }

    /// The latest switches, oldest first.
    #[track_caller]
    pub(crate) fn switches(&self) -> Vec<Switch> {
        let nodes = self.tutti(&["switches", "-n", "60000", "--json"]).expect(0).json();
        let mut all = Vec::new();
        for node in nodes.as_array().unwrap() {
            all.extend(node[1].as_array().unwrap().iter().map(Switch::from_json));
        }
        all
    }

    /// What the daemons have said so far.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.dir.join("log")).unwrap_or_default()
    }

    /// The number of a daemon's process.
    #[track_caller]
    pub(crate) fn daemon(&self, role: &str) -> i32 {
        eventually(&format!("a {role}"), || self.daemon_now(role))
    }

    pub(crate) fn daemon_now(&self, role: &str) -> Option<i32> {
        let dir = self.dir.to_str().unwrap();
        let is_it = |words: &[String]| {
            words.get(1).is_some_and(|word| word == role)
                && words.iter().any(|word| word == "--directory")
                && words.iter().any(|word| word == dir)
        };
        // Children of it are called the same until their programs run.
        let begins = |pid: &i32| {
            let parent = status_of(*pid, "PPid").and_then(|parent| parent.parse().ok());
            is_it(&command_line(*pid)) && !parent.is_some_and(|it| is_it(&command_line(it)))
        };
        processes().into_iter().find(begins)
    }

    /// Processes that run the test's own sleep.
    pub(crate) fn nappers(&self) -> Vec<i32> {
        let naps = |pid: &i32| command_line(*pid).iter().any(|word| word.contains(&self.nap));
        processes().into_iter().filter(naps).collect()
    }

    /// Fails if a process that runs the test's own sleep does not go away at once.
    #[track_caller]
    pub(crate) fn expect_no_nappers(&self) {
        let found = self.nappers();
        assert!(
            found.is_empty(),
            "left over: {:?}",
            found.iter().map(|&p| describe(p)).collect::<Vec<_>>()
        );
    }

    /// The owner of the instance.
    fn owner(&self) -> u32 {
        self.user.unwrap_or_else(|| nix::unistd::geteuid().as_raw())
    }

    /// What is left of the instance.
    pub(crate) fn leftovers(&self) -> Vec<String> {
        let mut left = audit::traces_of(&self.dir, self.owner(), &self.nap);
        let dir = self.dir.display();
        if self.cluster.is_none() && self.dir.exists() {
            let entries = fs::read_dir(&self.dir).into_iter().flatten().flatten();
            let names: Vec<_> = entries.map(|entry| entry.file_name()).collect();
            left.push(format!("directory {dir} with {names:?}"));
        }
        let appeared = audit::shared_files();
        left.extend(
            appeared.difference(&self.before).map(|file| format!("file {}", file.display())),
        );
        left
    }

    /// What the product's own audit says is left of the instance.
    pub(crate) fn told_leftovers(&self) -> Vec<String> {
        let dir = self.dir.to_string_lossy().into_owned();
        let group = audit::cgroup_name(&self.dir, self.owner());
        let done =
            Running::start(self.command_as(None, &["doctor", "--leftovers", "--json"])).wait();
        let told = done.json().as_array().unwrap().clone();
        let is_ours = |text: &str| [&dir, &group, &self.nap].iter().any(|it| text.contains(*it));
        told.iter().map(Value::to_string).filter(|text| is_ours(text)).collect()
    }

    /// Ends the instance; what it says is of interest where it fails.
    fn end(&self) -> Option<Done> {
        if !self.dir.join("controller.sock").exists() && self.daemon_now("keeper").is_none() {
            return None;
        }
        let mut command = self.command(&["down"]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        Some(Running::start(command).wait())
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // The failure is known; what is left must only not disturb the other tests.
            let log = fs::read_to_string(self.dir.join("log")).unwrap_or_default();
            eprintln!("---- log of {} ----\n{log}----", self.dir.display());
            clear_away(self);
            return;
        }
        if let Some(done) = self.end() {
            assert_eq!(done.code, 0, "down: {}{}", done.text(), done.err);
        }
        let mut left = self.leftovers();
        let deadline = Instant::now() + Duration::from_secs(3);
        while !left.is_empty() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(10));
            left = self.leftovers();
        }
        left.extend(self.told_leftovers());
        clear_away(self);
        assert!(left.is_empty(), "left over after the end: {left:#?}");
    }
}

/// The processors that the test may use.
pub(crate) fn own_processors() -> Vec<usize> {
    let allowed = sched_getaffinity(Pid::from_raw(0)).unwrap();
    (0..CpuSet::count()).filter(|&number| allowed.is_set(number) == Ok(true)).collect()
}

/// Leaves the test, and with it all that it starts from now on, two of its processors: two tasks of
/// one processor each are a whole machine in many tests. Others have other ones, as far as there
/// are some.
fn bind_to_two_processors(turn: usize) {
    let own = own_processors();
    assert!(own.len() >= 2, "these tests need two processors, and may use {own:?} only");
    if own.len() > 2 {
        let pairs: Vec<&[usize]> = own.chunks_exact(2).collect();
        let mut two = CpuSet::new();
        for &number in pairs[turn % pairs.len()] {
            two.set(number).unwrap();
        }
        sched_setaffinity(Pid::from_raw(0), &two).unwrap();
    }
}

/// Ends by force whatever there is of an instance.
fn clear_away(instance: &Instance) {
    audit::end_by_force(&instance.dir, instance.owner(), &instance.nap);
    let _ = fs::remove_dir_all(&instance.dir);
    let _ = fs::remove_dir_all(&instance.work);
    if let Some(cluster) = &instance.cluster {
        // The journal of a system's instance outlives it, and the name comes again with the
        // process's number.
        let _ = fs::remove_dir_all(format!("/var/lib/tutti-{cluster}"));
    }
    let subtree = instance.subtree_path();
    if subtree.exists() {
        audit::end_group(&subtree);
    }
}

/// One switch, as `tutti switches --json` has it.
#[derive(Clone, Debug)]
pub(crate) struct Switch {
    pub(crate) due: u64,
    pub(crate) began: u64,
    pub(crate) stopped: u64,
    pub(crate) resumed: u64,
    pub(crate) left: Vec<u64>,
    pub(crate) yields: Vec<u64>,
    pub(crate) came: Vec<u64>,
    pub(crate) running: Vec<u64>,
    pub(crate) stragglers: u64,
}

impl Switch {
    fn from_json(value: &Value) -> Self {
        let number = |name: &str| value[name].as_u64().unwrap();
        let jobs = |name: &str| {
            value[name].as_array().unwrap().iter().map(|job| job.as_u64().unwrap()).collect()
        };
        Self {
            due: number("due_ns"),
            began: number("began_ns"),
            stopped: number("stopped_ns"),
            resumed: number("resumed_ns"),
            left: jobs("left"),
            yields: jobs("yields"),
            came: jobs("came"),
            running: jobs("running"),
            stragglers: number("stragglers"),
        }
    }
}

/// The small C programs of the tests.
pub(crate) fn player() -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT
        .get_or_init(|| {
            let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/e2e/player.c");
            compile("cc", &source, "player")
        })
        .clone()
}

/// Compiles a C program, and says what to install if it can't.
pub(crate) fn compile(compiler: &str, source: &Path, name: &str) -> PathBuf {
    compile_with(&[], compiler, source, name)
}

/// The same with options.
pub(crate) fn compile_with(options: &[&str], compiler: &str, source: &Path, name: &str) -> PathBuf {
    let built = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let mut command = Command::new(compiler);
    command.args(options).args(["-O2", "-o"]).arg(&built).arg(source).arg("-lm");
    let done = command.output();
    let done = done.unwrap_or_else(|e| panic!("{compiler}: {e}; run tests/install-deps"));
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{compiler} {}: {said}", source.display());
    built
}

/// All processes that have not ended.
pub(crate) fn processes() -> Vec<i32> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// Its program and arguments; nothing for a process that has ended.
pub(crate) fn command_line(pid: i32) -> Vec<String> {
    let bytes = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let words = bytes.split(|&b| b == 0).filter(|word| !word.is_empty());
    words.map(|word| String::from_utf8_lossy(word).into_owned()).collect()
}

/// A value of `/proc/PID/status`.
pub(crate) fn status_of(pid: i32, name: &str) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

/// The cgroup (of v2) that a process is in.
pub(crate) fn group_of(pid: i32) -> String {
    let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    groups.lines().find_map(|line| line.strip_prefix("0::")).unwrap_or("/").to_owned()
}

/// Whether a process can do nothing: it is frozen with its cgroup, or stopped.
pub(crate) fn stands(pid: i32) -> bool {
    let group = group_of(pid);
    let frozen = ["/sys/fs/cgroup/unified", "/sys/fs/cgroup"].iter().any(|mount| {
        let events = fs::read_to_string(format!("{mount}{group}/cgroup.events"));
        events.is_ok_and(|events| events.contains("frozen 1"))
    });
    frozen || status_of(pid, "State").is_some_and(|state| state.starts_with('T'))
}

/// The program that tries to leave its task.
pub(crate) fn fugitive() -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT
        .get_or_init(|| {
            let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/e2e/fugitive.c");
            compile("cc", &source, "fugitive")
        })
        .clone()
}

pub(crate) fn describe(pid: i32) -> String {
    let state = status_of(pid, "State").unwrap_or_default();
    format!("process {pid} ({state}): {}", command_line(pid).join(" "))
}

/// Copies a program that is to be run. The kernel runs nothing that anybody holds open for writing,
/// and what this process holds open is also held, for a moment, by every process that another test
/// starts; so another process must do the writing (of scripts too).
pub(crate) fn copy_program(from: &Path, to: &Path) {
    assert!(Command::new("cp").args([from, to]).status().unwrap().success());
}
