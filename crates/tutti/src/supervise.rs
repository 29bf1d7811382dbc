//! The supervisor: starts the keeper, the controller and the agent of an instance, starts again
//! whichever of them fails, and ends when the controller has ended in good order.

mod found;
mod fresh;
mod process;
mod successor;
mod upgrade;

pub(crate) use fresh::{SetAside, set_aside};
pub(crate) use successor::what_it_speaks;
pub(crate) use upgrade::{Resumed, resume};

use anyhow::Context;
use nix::fcntl::{Flock, FlockArg, OFlag};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::resource::{Resource, getrlimit};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::stat::{Mode, umask};
use process::{Ended, Process};
use std::fs::{File, OpenOptions, Permissions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::parent_id;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use tracing::{info, warn};
use tutti_client::output::print;
use tutti_client::patience::require_answer;
use tutti_client::{READY, RUNNING};
use tutti_linux::disposition::is_ignored;
use tutti_node::codes::{code_of, coded};
use tutti_node::executable::own_program;
use tutti_node::exit::Exit;
use tutti_node::instance::Instance;
use tutti_node::link::Link;
use tutti_node::membership::{Membership, Place};
use tutti_node::platform::groups::Hierarchy;
use tutti_node::presence::has_keeper;
use tutti_node::released;
use tutti_node::service;
use tutti_node::shared_images::SharedImages;
use tutti_node::state_dir;
use tutti_node::{limits, log};
use tutti_types::{Nanos, NodeId};
use tutti_wire::code::Code;
use tutti_wire::local::{Reply, Request};

/// How long a daemon must have run for its failure not to count as part of a series.
const STEADY: Duration = Duration::from_secs(10);

/// How long jobs may take to be rolled out when the supervisor is asked to end, such as 10m.
const ROLL_OUT: &str = "TUTTI_ROLL_OUT";

/// How long the controller may take to end the jobs and the other daemons, and these to end by
/// themselves then.
const PATIENCE: Duration = Duration::from_secs(20);

/// How long daemons may take that were each told to end: more than the keeper waits for what it has
/// killed.
const LAST_PATIENCE: Duration = Duration::from_secs(7);

/// Failures in a row after which the supervisor waits before another start.
const FAILURES_AT_ONCE: u32 = 3;

fn lock(instance: &Instance) -> anyhow::Result<Option<Flock<File>>> {
    let path = instance.lock_file();
    let directory = instance.open()?;
    let directory = directory.with_context(|| format!("{} is gone", path.display()))?;
    loop {
        let file = directory
            .file(&path, OFlag::O_RDWR | OFlag::O_CREAT)
            .with_context(|| format!("cannot open {}", path.display()))?;
        // A user that can open it can lock it, and keep the instance from starting.
        file.set_permissions(Permissions::from_mode(0o600))
            .with_context(|| format!("cannot close {} to others", path.display()))?;
        let mut lock = match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => lock,
            Err((_, nix::errno::Errno::EWOULDBLOCK)) => return Ok(None),
            Err((_, error)) => {
                return Err(error).with_context(|| format!("cannot lock {}", path.display()));
            }
        };
        if directory.has(&lock, &path) {
            lock.set_len(0)?;
            writeln!(lock, "{}", std::process::id())?;
            return Ok(Some(lock));
        }
    }
}

/// Supervises in the foreground until the instance ends.
///
/// # Errors
/// If it can't be started, or another one runs.
pub(crate) fn foreground(instance: &Instance) -> anyhow::Result<Exit> {
    become_independent()?;
    instance.prepare()?;
    let Some(lock) = lock(instance)? else {
        anyhow::bail!("an instance runs in {} already", instance.directory().display());
    };
    log::begin();
    if let Err(error) = enter_unit(instance, true) {
        warn!("{error:#}");
    }
    let mut supervisor = Supervisor::start(instance, lock, None)?;
    supervisor.wait_until_up()?;
    info!("the instance in {} is up", instance.directory().display());
    service::say_ready();
    supervisor.serve()
}

/// Supervises in the background. The process that was started says `ready` or `running` on its
/// standard output, or what went wrong, and ends; the supervisor goes on in a session of its own.
///
/// # Errors
/// If it can't be started.
pub(crate) fn daemon(instance: &Instance, end_with: Option<u32>) -> anyhow::Result<Exit> {
    let result = end_with.map_or(Ok(()), end_with_parent).and_then(|()| become_daemon(instance));
    if let Err(error) = &result {
        let code = match code_of(error) {
            Code::Other | Code::System => Code::NotStarted,
            code => code,
        };
        // The reader may be gone; the error is told by the exit code too.
        let _ = print(&format!("{}\n", code.mark(&format!("{error:#}"))));
    }
    result
}

/// With fewer open files an instance could hold no task.
const DESCRIPTORS_LEAST: u64 = 128;

/// What the shell that starts an instance has set for itself is nothing to the instance.
fn become_independent() -> anyhow::Result<()> {
    limits::raise();
    let (_, files) = getrlimit(Resource::RLIMIT_NOFILE)?;
    if files < DESCRIPTORS_LEAST && !nix::unistd::geteuid().is_root() {
        let reason = format!(
            "this shell allows {files} open files (`ulimit -Hn`), and an instance needs {DESCRIPTORS_LEAST}: start \
             it from another shell"
        );
        return Err(coded(Code::NotStarted, reason));
    }
    umask(Mode::from_bits_truncate(0o022));
    tutti_linux::oom_score::protect_daemon();
    // Only root may go back.
    if tutti_linux::rt::nice() > 0 {
        let _ = tutti_linux::rt::set_nice(0);
    }
    Ok(())
}

/// Brings this process to where its daemons belong: see [`service::enter`].
fn enter_unit(instance: &Instance, is_service: bool) -> anyhow::Result<Option<String>> {
    let keeper = found::keeper(instance).map(|keeper| keeper.pid());
    let name = instance.directory().display().to_string();
    service::enter(&name, is_service, keeper, Some(&instance.cgroup_name()))
}

/// Has the kernel ask for the end of this process when its parent ends, in whatever way.
fn end_with_parent(parent: u32) -> anyhow::Result<()> {
    set_pdeathsig(Signal::SIGTERM).context("cannot hear of the end of the parent process")?;
    anyhow::ensure!(parent_id() == parent, "process {parent}, with which it ends, has ended");
    Ok(())
}

fn become_daemon(instance: &Instance) -> anyhow::Result<Exit> {
    become_independent()?;
    let Some(lock) = lock_unless_up(instance)? else {
        print(&format!("{RUNNING}\n"))?;
        return Ok(Exit::OK);
    };
    keep_former_logs(instance);
    let log = OpenOptions::new().create(true).append(true).open(instance.log_file())?;
    nix::unistd::setsid().context("cannot leave the session")?;
    let unit = enter_unit(instance, false);
    let begins = log.metadata().map_or(0, |log| log.len());
    let mut supervisor = Supervisor::start(instance, lock, Some(log.try_clone()?))?;
    if let Err(error) = supervisor.wait_until_up() {
        let said = said_since(instance, begins);
        if supervisor.is_first() {
            supervisor.kill_all();
            clean_up(instance);
        }
        return Err(if said.is_empty() { error } else { coded(Code::NotStarted, said) });
    }
    // A process that waits for this pipe to close must not wait for the supervisor's end.
    let name = unit.as_ref().ok().cloned().flatten().unwrap_or_default();
    let refused = unit.as_ref().err().map_or_else(String::new, |why| format!("\n{why:#}"));
    // The process that has started it may be gone. Then it goes on all the same, or ends in order.
    let _ = print(&format!("{}{refused}\n", format!("{READY} {name}").trim_end()));
    let null = OpenOptions::new().read(true).write(true).open("/dev/null")?;
    nix::unistd::dup2_stdout(&null)?;
    nix::unistd::dup2_stderr(&log)?;
    log::begin();
    if let Err(error) = unit {
        warn!("{error:#}");
    }
    supervisor.serve()
}

/// How many logs of earlier starts are kept.
const LOGS_KEPT: u32 = 3;

fn former_log(instance: &Instance, number: u32) -> PathBuf {
    instance.log_file().with_extension(number.to_string())
}

/// Each start has a log of its own: `log.1` is that of the one before, and so on.
fn keep_former_logs(instance: &Instance) {
    if std::fs::metadata(instance.log_file()).map_or(0, |log| log.len()) == 0 {
        return;
    }
    for number in (1..LOGS_KEPT).rev() {
        let _ = std::fs::rename(former_log(instance, number), former_log(instance, number + 1));
    }
    let _ = std::fs::rename(instance.log_file(), former_log(instance, 1));
}

/// What the daemons have said since the log had this length, in bytes; what one said again and
/// again, once.
fn said_since(instance: &Instance, begins: u64) -> String {
    let text = std::fs::read(instance.log_file()).unwrap_or_default();
    let begins = usize::try_from(begins).unwrap_or(usize::MAX).min(text.len());
    let said = String::from_utf8_lossy(&text[begins..]);
    let mut lines: Vec<&str> = said.trim().lines().map(log::text_of).collect();
    lines.dedup();
    lines.join("\n")
}

/// The lock of an instance, or none once another supervisor has it up. One that has the lock may
/// just be ending: then the lock is free soon.
fn lock_unless_up(instance: &Instance) -> anyhow::Result<Option<Flock<File>>> {
    let mut found = None;
    wait_while(instance, || {
        instance.prepare()?;
        found = lock(instance)?;
        Ok(found.is_some())
    })?;
    Ok(found)
}

/// How long an instance may take to come up.
const UP_WITHIN: Duration = Duration::from_secs(20);

/// Waits until the instance is up, or a check says that there is nothing to wait for. Up means: a
/// job can be submitted. So there must be a controller, and a node with it.
fn wait_while(
    instance: &Instance,
    mut is_vain: impl FnMut() -> anyhow::Result<bool>,
) -> anyhow::Result<()> {
    let patience = Instant::now() + UP_WITHIN;
    loop {
        if is_vain()? {
            return Ok(());
        }
        match has_node(instance) {
            Ok(true) => return Ok(()),
            // What is there answers nothing.
            Err(error) if code_of(&error) == Code::ControllerAway => return Err(error),
            Ok(false) | Err(_) => {}
        }
        anyhow::ensure!(
            Instant::now() < patience,
            "it did not come up within {} s; see {}",
            UP_WITHIN.as_secs(),
            instance.log_file().display()
        );
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn has_node(instance: &Instance) -> anyhow::Result<bool> {
    match ask_for_nodes(instance)? {
        Reply::Nodes { nodes, .. } => {
            let own = membership_of_member(instance)?;
            if own.as_ref().is_some_and(|membership| membership.is_client) {
                return Ok(true);
            }
            // Of a member, its own: the others are there without it.
            let own = own.map(|membership| membership.name);
            let is_meant = |name: &str| own.as_deref().is_none_or(|own| own == name);
            // One that is drained has its agent all the same.
            let is_there = |state: &str| matches!(state, "up" | "drained");
            Ok(nodes.iter().any(|node| is_there(&node.state) && is_meant(&node.name)))
        }
        // This machine's agent says so, which has not joined.
        Reply::Failed { code: Code::OutOfReach, .. } => Ok(false),
        // Whatever it is that the head does not let us know, it is the head that says so.
        Reply::Failed { .. } => is_member(instance),
        _ => Ok(false),
    }
}

fn ask_for_nodes(instance: &Instance) -> anyhow::Result<Reply> {
    let mut link = Link::new(UnixStream::connect(instance.controller_socket())?)?;
    link.greet(tutti_wire::Role::Client);
    let (mut all, mut from) = (Vec::new(), NodeId(0));
    loop {
        link.send(&Request::Nodes { from });
        require_answer(&mut link, Duration::from_secs(10))?;
        match link.call()? {
            Reply::Nodes { nodes, next } => {
                all.extend(nodes);
                match next.filter(|next| *next > from) {
                    Some(next) => from = next,
                    None => return Ok(Reply::Nodes { nodes: all, next: None }),
                }
            }
            other => return Ok(other),
        }
    }
}

/// The daemons, in the order of their start.
const ROLES: [&str; 3] = ["keeper", "controller", "agent"];

/// The process that delivers notifications: it is started when the first job asks for one.
const NOTIFIER: &str = "notifier";

/// Those of a machine whose controller is on another.
const ROLES_OF_MEMBER: [&str; 2] = ["keeper", "agent"];

/// That of a client machine, which runs no task.
const ROLES_OF_CLIENT: [&str; 1] = ["agent"];

/// The daemons of this machine, in the order of their start.
fn roles_of(instance: &Instance) -> anyhow::Result<&'static [&'static str]> {
    Ok(match membership_of_member(instance)? {
        Some(membership) if membership.is_client => &ROLES_OF_CLIENT,
        Some(_) => &ROLES_OF_MEMBER,
        None => &ROLES,
    })
}

fn is_member(instance: &Instance) -> anyhow::Result<bool> {
    Ok(membership_of_member(instance)?.is_some())
}

fn membership_of_member(instance: &Instance) -> anyhow::Result<Option<Membership>> {
    Ok(Place::of(instance).membership()?.filter(|membership| !membership.head.is_empty()))
}

struct Daemon {
    role: &'static str,
    child: Option<Process>,
    started: Instant,
    failures: u32,
    start_at: Option<Instant>,
}

impl Daemon {
    fn new(role: &'static str, child: Option<Process>) -> Self {
        Self { role, child, started: Instant::now(), failures: 0, start_at: None }
    }
}

struct Supervisor<'a> {
    instance: &'a Instance,
    /// Says that the instance lives, for as long as this does.
    lock: Flock<File>,
    log: Option<File>,
    signals: SignalFd,
    /// Where it is told to upgrade to another executable.
    orders: UnixListener,
    daemons: Vec<Daemon>,
    ending: Option<Instant>,
    /// Where the controller was asked to end the instance. It may take nothing any more from a
    /// client that has hung up.
    asked: Option<Link>,
    /// Whether each daemon was told to end.
    has_told_all: bool,
    /// Whether it ended because it was told to.
    ended_well: bool,
    /// Whether the keeper was left to the next supervisor, with its jobs.
    has_left: bool,
    /// Whether jobs are rolled out before the end: daemons that fail meanwhile are started again.
    rolls_out: bool,
}

impl<'a> Supervisor<'a> {
    fn start(instance: &'a Instance, lock: Flock<File>, log: Option<File>) -> anyhow::Result<Self> {
        refuse_beside_one_without_directory(instance)?;
        refuse_journal_in_use(instance)?;
        note_shared_images(instance)?;
        let mut supervisor = Self::over(instance, lock, log)?;
        found::end(instance, NOTIFIER)?;
        for &role in roles_of(instance)? {
            let mut daemon = Daemon::new(role, None);
            if role == "keeper" {
                daemon.child = found::keeper(instance);
            } else {
                found::end(instance, role)?;
            }
            match &daemon.child {
                Some(keeper) => info!(
                    "the keeper, process {}, lives, and its jobs go on: it is kept",
                    keeper.pid()
                ),
                None => Self::launch(instance, supervisor.log.as_ref(), &mut daemon)?,
            }
            supervisor.daemons.push(daemon);
        }
        Ok(supervisor)
    }

    /// Whether everything here began with this supervisor.
    fn is_first(&self) -> bool {
        self.daemons.iter().filter_map(|daemon| daemon.child.as_ref()).all(Process::is_child)
    }

    /// One that supervises nothing yet.
    fn over(instance: &'a Instance, lock: Flock<File>, log: Option<File>) -> anyhow::Result<Self> {
        let mut set = SigSet::empty();
        for signal in [Signal::SIGCHLD, Signal::SIGTERM, service::STOP] {
            set.add(signal);
        }
        // What is ignored at the start stays so: `nohup tutti up --foreground &`.
        for signal in [Signal::SIGINT, Signal::SIGHUP] {
            if !is_ignored(signal as i32) {
                set.add(signal);
            }
        }
        set.thread_block()?;
        let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
        Ok(Self {
            instance,
            lock,
            log,
            signals: SignalFd::with_flags(&set, flags)?,
            orders: state_dir::listen(&instance.supervisor_socket(), false)?,
            daemons: Vec::new(),
            ending: None,
            asked: None,
            has_told_all: false,
            ended_well: false,
            has_left: false,
            rolls_out: false,
        })
    }

    /// Starts a daemon. A controller that follows one which has failed goes on with what that was
    /// about.
    fn launch(instance: &Instance, log: Option<&File>, daemon: &mut Daemon) -> anyhow::Result<()> {
        use std::os::unix::process::CommandExt;
        let mut command = Command::new(own_program()?);
        command
            .arg(daemon.role)
            .arg("--directory")
            .arg(instance.directory())
            .current_dir("/")
            .stdin(Stdio::null())
            .process_group(0);
        if daemon.role == "controller" && daemon.failures > 0 {
            command.arg("--successor");
        }
        if daemon.role == NOTIFIER {
            // It is a client of this instance, and of no other.
            command.env("TUTTI_DIR", instance.directory()).env_remove("TUTTI_CLUSTER");
        }
        if let Some(log) = log {
            command.stdout(log.try_clone()?).stderr(log.try_clone()?);
        }
        daemon.started = Instant::now();
        daemon.start_at = None;
        let started = Process::start(&mut command);
        daemon.child = Some(started.with_context(|| format!("cannot start the {}", daemon.role))?);
        Ok(())
    }

    /// A daemon that can't begin is not started again: what is wrong must be mended first.
    fn wait_until_up(&mut self) -> anyhow::Result<()> {
        let (instance, daemons) = (self.instance, &mut self.daemons);
        wait_while(instance, || {
            for daemon in daemons.iter_mut() {
                if let Some(child) = &daemon.child
                    && let Some(status) = child.try_wait()
                {
                    let reason = format!("the {} ended ({status})", daemon.role);
                    return Err(coded(Code::NotStarted, reason));
                }
            }
            Ok(false)
        })
    }

    fn serve(&mut self) -> anyhow::Result<Exit> {
        while self.daemons.iter().any(|daemon| daemon.child.is_some() || daemon.start_at.is_some())
        {
            self.wait()?;
            self.take_orders();
            self.take_signals();
            self.reap();
            self.start_due();
            if self.ending.is_some_and(|patience| Instant::now() >= patience) {
                match self.has_told_all {
                    false => self.tell_all("it takes too long"),
                    true => self.kill_all(),
                }
            }
        }
        if self.has_left || !self.has_its_directory() {
            return Ok(Exit::OK);
        }
        if self.ended_well && !self.instance.keeps_journal() {
            self.instance.remove_journal();
        }
        clean_up(self.instance);
        Ok(Exit::OK)
    }

    /// Where it was removed, another instance may have begun there meanwhile.
    fn has_its_directory(&self) -> bool {
        let directory = self.instance.open();
        matches!(directory, Ok(Some(it)) if it.has(&self.lock, &self.instance.lock_file()))
    }

    fn wait(&self) -> anyhow::Result<()> {
        use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
        use std::os::fd::AsFd;
        let due = self.daemons.iter().filter_map(|daemon| daemon.start_at).chain(self.ending).min();
        let timeout = match due {
            Some(at) => {
                let left = at.saturating_duration_since(Instant::now()) + Duration::from_millis(1);
                PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX)
            }
            None => PollTimeout::NONE,
        };
        let of = |fd| PollFd::new(fd, PollFlags::POLLIN);
        let mut watched = vec![of(self.signals.as_fd()), of(self.orders.as_fd())];
        let processes = self.daemons.iter().filter_map(|daemon| daemon.child.as_ref());
        watched.extend(processes.filter_map(Process::watched).map(of));
        match poll(&mut watched, timeout) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn take_signals(&mut self) {
        while let Ok(Some(signal)) = self.signals.read_signal() {
            let ends = [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, service::STOP]
                .iter()
                .any(|s| *s as u32 == signal.ssi_signo);
            if ends && self.ending.is_none() {
                self.ask_for_the_end();
            }
        }
    }

    /// The controller ends the jobs first; if there is none to ask, all are told to end.
    fn ask_for_the_end(&mut self) {
        let roll_out = roll_out_asked();
        self.rolls_out = roll_out.is_some() && self.has_controller();
        let patience = Duration::from_nanos(roll_out.map_or(0, |patience| patience.0));
        self.ending = Some(Instant::now() + PATIENCE + patience);
        if !self.has_controller() {
            // It tells the keeper, once the controller knows.
            return self.terminate(&["agent"]);
        }
        self.asked = self.ask_controller(roll_out).ok();
        // Where there is none, its journal may be damaged, and is left to be looked at.
        self.ended_well = self.asked.is_some();
        if self.asked.is_none() {
            self.tell_all("there is no controller to ask");
        }
    }

    fn ask_controller(&self, roll_out: Option<Nanos>) -> anyhow::Result<Link> {
        let mut link = Link::new(UnixStream::connect(self.instance.controller_socket())?)?;
        link.greet(tutti_wire::Role::Client);
        link.send(&Request::Down { roll_out });
        link.flush()?;
        Ok(link)
    }

    /// Whatever is killed has no time to clear away what it holds: each is told first.
    fn tell_all(&mut self, why: &str) {
        warn!(code = %Code::PartEnded, "{why}: each daemon gets SIGTERM");
        (self.has_told_all, self.rolls_out) = (true, false);
        self.ending = Some(Instant::now() + LAST_PATIENCE);
        self.terminate(&ROLES);
        self.terminate(&[NOTIFIER]);
    }

    fn terminate(&self, roles: &[&str]) {
        for daemon in self.daemons.iter().filter(|daemon| roles.contains(&daemon.role)) {
            if let Some(child) = &daemon.child {
                child.signal(Signal::SIGTERM);
            }
        }
    }

    fn kill_all(&mut self) {
        self.ending = Some(Instant::now() + Duration::from_secs(5));
        for child in self.daemons.iter().filter_map(|daemon| daemon.child.as_ref()) {
            child.signal(Signal::SIGKILL);
        }
    }

    fn reap(&mut self) {
        for index in 0..self.daemons.len() {
            let daemon = &mut self.daemons[index];
            let Some(status) = daemon.child.as_ref().and_then(Process::try_wait) else { continue };
            daemon.child = None;
            let role = daemon.role;
            if status.is_success() && self.decides(index) {
                self.on_orderly_end();
            } else if (self.ending.is_none() || self.rolls_out)
                && (!status.is_success() || role == NOTIFIER)
            {
                // One that ends well was told to, by a controller that is ending itself.
                self.on_failure(index, status);
            } else if self.decides(index) && !self.has_told_all {
                // The process that was to end the others is gone.
                let role = self.daemons[index].role;
                self.tell_all(&format!(
                    "the {role} ended ({status}) while it was to end the instance"
                ));
            }
        }
    }

    /// Whether this machine is the head.
    fn has_controller(&self) -> bool {
        self.daemons.iter().any(|daemon| daemon.role == "controller")
    }

    /// Whether the end of this daemon is that of the instance.
    fn decides(&self, index: usize) -> bool {
        let decider = if self.has_controller() { "controller" } else { "agent" };
        self.daemons[index].role == decider
    }

    /// The controller has ended the jobs and told the agent to stop, which told the keeper.
    fn on_orderly_end(&mut self) {
        (self.ended_well, self.rolls_out) = (true, false);
        self.ending.get_or_insert_with(|| Instant::now() + Duration::from_secs(5));
        for daemon in &mut self.daemons {
            daemon.start_at = None;
        }
        self.terminate(&["agent", "keeper", NOTIFIER]);
    }

    fn on_failure(&mut self, index: usize, status: Ended) {
        let daemon = &mut self.daemons[index];
        let lived = daemon.started.elapsed();
        daemon.failures = if lived > STEADY { 1 } else { daemon.failures + 1 };
        let wait = pause_after(daemon.failures);
        warn!(code = %Code::PartEnded, "the {} ended ({status}); starting it again", daemon.role);
        daemon.start_at = Some(Instant::now() + wait);
    }

    /// One that can't be started now may be able to later, when others have ended: jobs run on
    /// meanwhile.
    fn start_due(&mut self) {
        let is_ending = self.ending.is_some();
        for daemon in &mut self.daemons {
            if daemon.start_at.is_some_and(|at| at <= Instant::now())
                && let Err(error) = Self::launch(self.instance, self.log.as_ref(), daemon)
            {
                daemon.failures = (daemon.failures + 1).max(FAILURES_AT_ONCE + 1);
                let wait = pause_after(daemon.failures);
                warn!(code = %Code::System, "the {} can't be started: {error:#}; trying again", daemon.role);
                daemon.start_at = (!is_ending).then(|| Instant::now() + wait);
            }
        }
    }
}

/// Has the daemons know the directory of images that nodes share, if the environment names one.
fn note_shared_images(instance: &Instance) -> anyhow::Result<()> {
    let file = instance.shared_images_file();
    let shared = SharedImages::of_environment().map_err(|error| {
        let reason = format!("{error:#}");
        coded(Code::NotStarted, reason)
    })?;
    let directory = instance.open()?.with_context(|| format!("{} is gone", file.display()))?;
    match shared {
        Some(shared) => directory
            .write(&file, &shared.to_bytes())
            .with_context(|| format!("cannot write {}", file.display())),
        None => {
            directory.remove(&file);
            Ok(())
        }
    }
}

/// How long the unit's stop may take to roll jobs out, if the environment says so.
fn roll_out_asked() -> Option<Nanos> {
    let text = std::env::var(ROLL_OUT).ok().filter(|text| !text.is_empty())?;
    match tutti_wire::units::parse_duration(&text) {
        Ok(patience) => Some(patience),
        Err(error) => {
            warn!(code = %Code::BadValue, "{ROLL_OUT}={text}: {error}; jobs are ended at once");
            None
        }
    }
}

/// How long a daemon that failed so often is not started again.
fn pause_after(failures: u32) -> Duration {
    match failures {
        0..=FAILURES_AT_ONCE => Duration::ZERO,
        more => Duration::from_millis(100 << more.min(6)),
    }
}

impl Drop for Supervisor<'_> {
    /// After a failure: daemons without a supervisor must not stay. One that was there before holds
    /// tasks.
    fn drop(&mut self) {
        for child in self.daemons.iter().filter_map(|daemon| daemon.child.as_ref()) {
            if child.is_child() {
                child.signal(Signal::SIGKILL);
            }
        }
    }
}

/// An instance that has the same journal, and so the same cgroups, but another state directory, as
/// in another mount namespace: a keeper here would end its jobs, as those that an earlier keeper
/// has left.
fn refuse_journal_in_use(instance: &Instance) -> anyhow::Result<()> {
    let is_ours = || tutti_node::pidlock::holder(instance, "controller").ok().flatten().is_some();
    // One that is about to be gone is not meant.
    let patience = Instant::now() + Duration::from_secs(1);
    loop {
        match tutti_journal::in_use(&instance.journal_path()) {
            Some(error) if !is_ours() && Instant::now() > patience => return Err(error.into()),
            Some(_) if !is_ours() => std::thread::sleep(Duration::from_millis(10)),
            _ => return Ok(()),
        }
    }
}

/// A second one would end the jobs of the first, whose groups have the same names.
fn refuse_beside_one_without_directory(instance: &Instance) -> anyhow::Result<()> {
    // One that only begins, or is about to be gone, is not meant.
    let patience = Instant::now() + Duration::from_secs(1);
    let daemon = loop {
        match found::without_directory(instance) {
            None => return Ok(()),
            Some(daemon) if Instant::now() > patience => break daemon,
            Some(_) => std::thread::sleep(Duration::from_millis(10)),
        }
    };
    if let Ok(Some(directory)) = instance.open() {
        directory.remove(&instance.log_file());
        directory.remove(&instance.lock_file());
        directory.remove_directory(&instance.spool());
        let _ = std::fs::remove_dir(instance.directory());
    }
    let end = match found::supervisor_of(daemon) {
        Some(supervisor) => format!("kill {supervisor}"),
        None => format!("kill -9 {daemon}"),
    };
    let directory = instance.directory().display();
    let reason = format!(
        "the directory {directory} was removed while its instance runs, which can't be reached now. Its jobs go on: \
         when they have ended, or to end them, end it with `{end}`, and try again"
    );
    Err(coded(Code::NotStarted, reason))
}

/// Clears away what a supervisor that was killed has left, with the journal of an instance that
/// keeps none; nothing if one lives, or the keeper. Whether processes of jobs were ended.
pub(crate) fn clean_up_for_dead(instance: &Instance) -> bool {
    if instance.lock_file().exists()
        && !has_keeper(instance)
        && let Ok(Some(_lock)) = lock(instance)
    {
        if !instance.keeps_journal() {
            instance.remove_journal();
        }
        let left = service::subtrees(&instance.cgroup_name());
        let had_processes = left.iter().any(|it| it.group().is_populated().unwrap_or(false));
        clean_up(instance);
        return had_processes;
    }
    false
}

/// Removes the journal of a private instance that has ended: jobs in line, history, parameters.
///
/// # Errors
/// If it runs, or is another user's.
pub(crate) fn forget(instance: &Instance) -> anyhow::Result<()> {
    if instance.open()?.is_none() {
        return Ok(());
    }
    let lock = lock(instance)?.filter(|_| !has_keeper(instance));
    let _lock = lock.context("the instance runs; `tutti down --forget` ends it and forgets")?;
    instance.remove_journal();
    clean_up(instance);
    Ok(())
}

/// Nothing stays but the logs of a system instance, if there is something in them.
fn clean_up(instance: &Instance) {
    let released = instance.released();
    let mut goes_on = false;
    for subtree in service::subtrees(&instance.cgroup_name()) {
        let subtree = Hierarchy::open(subtree.path());
        goes_on |= subtree.is_ok_and(|it| released::remove_others(&it, released));
    }
    let Ok(Some(directory)) = instance.open() else { return };
    if !instance.keeps_journal() && !goes_on {
        directory.remove(&instance.released_file());
    }
    let sockets = [
        instance.controller_socket(),
        instance.keeper_socket(),
        instance.gate_socket(),
        instance.vacate_socket(),
    ];
    directory.remove(&instance.shared_images_file());
    let of_controller = [instance.clock_file(), instance.clock_next_file(), instance.reach_file()];
    for file in sockets.into_iter().chain([instance.supervisor_socket()]) {
        directory.remove(&file);
        directory.remove(&state_dir::unborn(&file));
    }
    for file in of_controller {
        directory.remove(&file);
    }
    for role in ROLES.into_iter().chain([NOTIFIER]) {
        directory.remove(&instance.role_file(role));
    }
    directory.remove_directory(&instance.spool());
    if instance.private {
        directory.remove_directory(&instance.images());
    }
    let log = instance.log_file();
    if instance.private {
        (1..=LOGS_KEPT).for_each(|number| directory.remove(&former_log(instance, number)));
    }
    if instance.private || std::fs::metadata(&log).is_ok_and(|log| log.len() == 0) {
        directory.remove(&log);
    }
    directory.remove(&instance.lock_file());
    let _ = std::fs::remove_dir(instance.directory());
}
