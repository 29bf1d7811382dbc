//! Going over to another executable while jobs run: `tutti upgrade`.
//!
//! The owner of the instance names the executable at a socket of the supervisor's own, in words
//! that stay what they are from release to release: `upgrade PATH`, and one line comes back,
//! `done ...` or `refused ...`. Then:
//!
//! 1. The executable is asked what it understands
//!    (`tutti keeper --can-take-over FORM --reads-journal FORM`). If it can't be executed, or does
//!    not understand what would be handed over, nothing happens. So it is while the journal lacks
//!    what was done since it could not be written: only the controller that runs knows that.
//! 2. The keeper upgrades to it, with all that it holds (see `keeper/src/driver/handover.rs`). If
//!    it can't, nothing has happened.
//! 3. The supervisor executes it too, in the same process: it keeps its number, its lock and its
//!    children.
//! 4. The controller is killed and started anew, then the agent: both are made to be, and learn
//!    what they must know from the journal, and from the keeper.

use super::process::Process;
use super::successor::what_it_speaks;
use super::{Daemon, NOTIFIER, ROLES, Supervisor, ask_for_nodes, is_member};
use anyhow::{Context, bail, ensure};
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::execv;
use serde_bytes::ByteBuf;
use std::ffi::{CString, OsStr};
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tracing::{info, warn};
use tutti_client::output::counted;
use tutti_linux::cgroup::Unit;
use tutti_linux::inherited::{Inherited, keep_all_open};
use tutti_linux::peer::{peer_credentials, peer_process};
use tutti_linux::pidfd::has_ended;
use tutti_node::exit::Exit;
use tutti_node::instance::{Instance, may_run_instance};
use tutti_node::link::Link;
use tutti_node::membership::Place;
use tutti_wire::Role;
use tutti_wire::code::Code;
use tutti_wire::handover::{FromHolder, ToHolder};
use tutti_wire::local::Reply;

/// How long a keeper may take to upgrade.
const KEEPER_WITHIN: Duration = Duration::from_secs(30);

/// How long a daemon may take that was started anew.
const DAEMON_WITHIN: Duration = Duration::from_secs(20);

/// A client says at once what it wants.
const ORDER_WITHIN: Duration = Duration::from_secs(1);

/// The longest order: a path.
const ORDER_BYTES_MAX: u64 = 8 << 10;

/// What the supervisor left that executed this program.
#[derive(Clone, Debug)]
pub(crate) struct Resumed {
    /// Its daemons, with the numbers of their processes.
    pub(crate) daemons: Vec<(String, i32)>,
    /// Descriptors: the lock, the log if there is one, and the asker.
    pub(crate) lock: i32,
    pub(crate) log: Option<i32>,
    pub(crate) asker: i32,
    /// How many jobs the keeper has taken over.
    pub(crate) jobs: u32,
}

/// Goes on as the supervisor that executed this program.
///
/// # Errors
/// If what it left can't be taken up.
pub(crate) fn resume(instance: &Instance, left: &Resumed) -> anyhow::Result<Exit> {
    tutti_node::log::begin();
    let mut inherited = Inherited::take_all().context("cannot see what was left open")?;
    let lock = File::from(inherited.take(left.lock).context("no lock was left")?);
    let lock = Flock::lock(lock, FlockArg::LockExclusiveNonblock).map_err(|(_, error)| error)?;
    let log = left.log.map(|fd| inherited.take(fd)).transpose()?.map(File::from);
    let asker = UnixStream::from(inherited.take(left.asker)?);
    drop(inherited);
    // The supervisor before may have been in the group of its unit itself.
    if let Err(error) = Unit::own().map_or(Ok(()), |unit| unit.settle()) {
        warn!("{error}");
    }
    let mut supervisor = Supervisor::over(instance, lock, log)?;
    for (role, pid) in &left.daemons {
        let role = ROLES.into_iter().chain([NOTIFIER]).find(|known| known == role);
        let role = role.context("the supervisor before had a daemon that is not known")?;
        supervisor.daemons.push(Daemon::new(role, Some(Process::resume(*pid))));
    }
    let text = match supervisor.start_anew() {
        Ok(()) => {
            format!("done tutti {}, {}", env!("CARGO_PKG_VERSION"), counted(left.jobs, "job"))
        }
        Err(error) => {
            let reason = format!(
                "supervisor and keeper were upgraded, with {}; then: {error:#}",
                counted(left.jobs, "job")
            );
            warn!(code = %Code::NotUpgraded, "{reason}");
            format!("refused {reason}")
        }
    };
    answer(&asker, &text);
    drop(asker);
    supervisor.serve()
}

fn answer(mut asker: &UnixStream, text: &str) {
    // The asker may be gone.
    let _ = asker.write_all(format!("{}\n", text.replace('\n', "; ")).as_bytes());
}

impl Supervisor<'_> {
    pub(super) fn take_orders(&mut self) {
        while let Ok((stream, _)) = self.orders.accept() {
            let program = match read_order(&stream) {
                Ok(Order::Notifier) => {
                    self.start_notifier();
                    continue;
                }
                Ok(Order::Leave) => {
                    self.leave(&stream);
                    continue;
                }
                Ok(Order::Upgrade(program)) => Ok(program),
                Err(error) => Err(error),
            };
            let result = program.and_then(|program| self.upgrade(&stream, &program));
            let Err(error) = result;
            let reason = format!("{error:#}");
            warn!(code = %Code::NotUpgraded, "no upgrade: {reason}");
            answer(&stream, &format!("refused {reason}"));
        }
    }

    /// Ends all daemons but the keeper, which holds the jobs. The next supervisor finds it as after
    /// a failure of this one.
    fn leave(&mut self, asker: &UnixStream) {
        if self.ending.is_some() {
            return answer(asker, "refused the instance is ending");
        }
        if is_member(self.instance).unwrap_or(true) {
            return answer(asker, "refused only a machine with the controller can leave its jobs");
        }
        for daemon in &mut self.daemons {
            daemon.start_at = None;
            if let Some(process) = daemon.child.take().filter(|_| daemon.role != "keeper") {
                process.end();
            }
        }
        self.has_left = true;
        info!("the instance is down; the keeper stays, and its jobs go on");
        answer(asker, "done left");
    }

    /// Starts the process that delivers notifications, unless there is one.
    fn start_notifier(&mut self) {
        if self.ending.is_some() || self.daemons.iter().any(|daemon| daemon.role == NOTIFIER) {
            return;
        }
        let mut daemon = Daemon::new(NOTIFIER, None);
        if let Err(error) = Self::launch(self.instance, self.log.as_ref(), &mut daemon) {
            warn!(code = %Code::System, "the {NOTIFIER} can't be started: {error:#}; trying again");
            daemon.start_at = Some(Instant::now() + Duration::from_secs(1));
        }
        self.daemons.push(daemon);
    }

    /// Returns only if it can't be done.
    fn upgrade(
        &mut self,
        asker: &UnixStream,
        program: &Path,
    ) -> anyhow::Result<std::convert::Infallible> {
        ensure!(self.ending.is_none(), "the instance is ending");
        self.reap();
        for daemon in &self.daemons {
            let reason = "is being started again; try once more when it is there";
            ensure!(daemon.child.is_some(), "the {} {reason}", daemon.role);
        }
        ensure!(
            !self.instance.clock_gap_file().exists(),
            "the journal can't be written and lacks what was done since, which the controller that runs alone \
             knows; `tutti doctor` and the log say why, try again when it is written"
        );
        let protocol = what_it_speaks(program, self.instance.directory())?;
        let has_keeper = self.daemons.iter().any(|daemon| daemon.role == "keeper");
        // A client machine has none.
        if !has_keeper {
            return self.execute(asker, program, 0);
        }
        let jobs = tell_keeper(self.instance, program, protocol)?;
        let with = counted(jobs, "job");
        info!("the keeper was upgraded to {} with {with}", program.display());
        self.execute(asker, program, jobs).context(
            "the keeper is upgraded, but not the supervisor; what ran goes on, and the upgrade can be \
             tried again",
        )
    }

    fn execute(
        &self,
        asker: &UnixStream,
        program: &Path,
        jobs: u32,
    ) -> anyhow::Result<std::convert::Infallible> {
        let pid = |daemon: &Daemon| Some((daemon.role, daemon.child.as_ref()?.pid()));
        let daemons = self.daemons.iter().filter_map(pid);
        let daemons: Vec<String> = daemons.map(|(role, pid)| format!("{role}={pid}")).collect();
        let mut words = vec![
            b"tutti".to_vec(),
            b"supervise".to_vec(),
            b"--directory".to_vec(),
            self.instance.directory().as_os_str().as_bytes().to_vec(),
        ];
        let numbers = [
            ("--lock", Some(self.lock.as_raw_fd().to_string())),
            ("--log", self.log.as_ref().map(|log| log.as_raw_fd().to_string())),
            ("--asker", Some(asker.as_raw_fd().to_string())),
            ("--jobs", Some(jobs.to_string())),
            ("--daemons", Some(daemons.join(","))),
        ];
        for (name, value) in numbers {
            words.extend(
                value.into_iter().flat_map(|it| [name.as_bytes().to_vec(), it.into_bytes()]),
            );
        }
        let words: Vec<CString> = words.into_iter().map(CString::new).collect::<Result<_, _>>()?;
        let program = CString::new(program.as_os_str().as_bytes())?;
        keep_all_open(true)?;
        let executed = execv(&program, &words);
        keep_all_open(false)?;
        Ok(executed?)
    }

    /// The controller and the agent, by the new executable. Whatever else happens meanwhile is
    /// dealt with.
    fn start_anew(&mut self) -> anyhow::Result<()> {
        if !is_member(self.instance)? {
            self.replace("controller")?;
            self.wait_until("the controller", |instance| ask_for_nodes(instance).is_ok())?;
        }
        self.replace(NOTIFIER)?;
        self.replace("agent")?;
        // When it answers for the second time, it knows at least that the former agent is gone.
        let is_there = |instance: &Instance| has_agent(instance).unwrap_or(false);
        self.wait_until("the agent", |instance| is_there(instance) && is_there(instance))
    }

    fn replace(&mut self, role: &str) -> anyhow::Result<()> {
        let Some(daemon) = self.daemons.iter_mut().find(|daemon| daemon.role == role) else {
            return Ok(());
        };
        if let Some(process) = daemon.child.take() {
            process.end();
        }
        let launched = Self::launch(self.instance, self.log.as_ref(), daemon);
        if launched.is_err() {
            // The one before is gone.
            daemon.start_at = Some(Instant::now());
        }
        launched
    }

    fn wait_until(
        &mut self,
        what: &str,
        is_there: impl Fn(&Instance) -> bool,
    ) -> anyhow::Result<()> {
        let patience = Instant::now() + DAEMON_WITHIN;
        while !is_there(self.instance) {
            self.take_signals();
            self.reap();
            self.start_due();
            ensure!(self.ending.is_none(), "the instance is ending");
            let seconds = DAEMON_WITHIN.as_secs();
            ensure!(Instant::now() < patience, "{what} was not there within {seconds} s");
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }
}

/// Whether the controller knows of an agent of this machine.
fn has_agent(instance: &Instance) -> anyhow::Result<bool> {
    let membership = Place::of(instance).membership()?;
    let is_client = membership.as_ref().is_some_and(|here| here.is_client);
    let is_ours = |name: &str| membership.as_ref().is_none_or(|here| here.name == name);
    Ok(match ask_for_nodes(instance)? {
        Reply::Nodes { nodes, .. } => {
            is_client || nodes.iter().any(|it| is_ours(&it.name) && it.depth.is_some())
        }
        Reply::Failed { code: Code::OutOfReach, .. } => false,
        // The head does not let us know, but it is there.
        Reply::Failed { .. } => is_member(instance)?,
        _ => false,
    })
}

/// An order that comes to the socket of the supervisor.
enum Order {
    /// To upgrade to this executable.
    Upgrade(PathBuf),
    /// To start the process that delivers notifications.
    Notifier,
    /// To end, and leave the keeper with the jobs.
    Leave,
}

fn read_order(stream: &UnixStream) -> anyhow::Result<Order> {
    let uid = peer_credentials(stream)?.uid;
    let is_ours = may_run_instance(uid, nix::unistd::geteuid().as_raw());
    ensure!(is_ours, "user {uid} may not upgrade the instance");
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(ORDER_WITHIN))?;
    stream.set_write_timeout(Some(ORDER_WITHIN))?;
    let mut line = Vec::new();
    BufReader::new(stream.take(ORDER_BYTES_MAX)).read_until(b'\n', &mut line)?;
    if line == b"notifier\n" {
        return Ok(Order::Notifier);
    }
    if line == b"leave\n" {
        return Ok(Order::Leave);
    }
    let path = line.strip_prefix(b"upgrade ").and_then(|rest| rest.strip_suffix(b"\n"));
    let path = PathBuf::from(OsStr::from_bytes(path.context("that is no order")?));
    ensure!(path.is_absolute(), "{} is not a path from the root", path.display());
    Ok(Order::Upgrade(path))
}

/// Has the keeper upgrade; how many jobs it took along.
fn tell_keeper(instance: &Instance, program: &Path, protocol: u16) -> anyhow::Result<u32> {
    let stream = UnixStream::connect(instance.keeper_socket()).context("the keeper is away")?;
    let keeper = peer_process(&stream).context("the keeper is away")?;
    let mut link = Link::new(stream)?;
    link.greet(Role::Supervisor);
    let program = ByteBuf::from(program.as_os_str().as_bytes());
    link.send(&ToHolder::Upgrade { program, protocol });
    link.flush().context("the keeper is away")?;
    match answer_of_keeper(&mut link, keeper.as_fd())? {
        FromHolder::Done { jobs } => Ok(jobs),
        FromHolder::Refused { reason } => bail!("{reason}"),
    }
}

/// Waits for the keeper's answer, or its end: the connection may outlive it, since its children
/// have it too until their programs run.
fn answer_of_keeper(link: &mut Link, keeper: BorrowedFd) -> anyhow::Result<FromHolder> {
    let patience = Instant::now() + KEEPER_WITHIN;
    loop {
        // Looked at first: what it has said before its end is there then.
        let has_ended = has_ended(keeper);
        let received = link.receive();
        let answer = link.next().context("the keeper answered what is not understood")?;
        if let Some(answer) = answer {
            return Ok(answer);
        }
        received.context("the keeper ended during its upgrade")?;
        ensure!(!has_ended, "the keeper ended during its upgrade");
        let left = patience.saturating_duration_since(Instant::now());
        ensure!(
            !left.is_zero(),
            "the keeper was not upgraded within {} s",
            KEEPER_WITHIN.as_secs()
        );
        let left = PollTimeout::try_from(left + Duration::from_millis(1))?;
        let mut either = [link.as_fd(), keeper].map(|fd| PollFd::new(fd, PollFlags::POLLIN));
        match poll(&mut either, left) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}
