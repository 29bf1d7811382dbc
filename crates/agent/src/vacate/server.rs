//! The socket of the vacate protocol and its connections.
//!
//! The kernel says which process connects, and its cgroup, or its ancestors, say which job it is
//! of: nothing that a process says is believed. What a user can make grow is bounded:
//!
//! - *Connections:* [`OF_JOB_MAX`] of a job, [`ALL_MAX`] in all but a quarter of the agent's
//!   descriptors, and a user has at most as many as are free. So none keeps all others out.
//! - *Processor time:* a few connections are taken at once, then a pause follows. A connection that
//!   says more than its [`LINES_SPARE`] allow, or what is no line, is closed.
//! - *Memory:* a line, and what the kernel keeps for a reader that does not read; then the
//!   connection is closed.

use super::notices::{Change, Notices};
use super::{Herald, Known, News, Shared, lock};
use crate::beside::Teller;
use crate::clock::ClusterClock;
use crate::driver::Agent;
use crate::switch::Watcher;
use crate::waker::Bell;
use nix::sys::resource::{Resource, getrlimit};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use tracing::warn;
use tutti_linux::peer::{peer_credentials, peer_process};
use tutti_linux::pidfd::has_ended;
use tutti_linux::proc::ProcessStat;
use tutti_node::layout;
use tutti_node::link::{Interest, Poller, Ready};
use tutti_node::platform::time::monotonic_ns;
use tutti_node::state_dir;
use tutti_types::{ClusterTime, JobId, LaunchId, Nanos};
use tutti_wire::code::Code;
use tutti_wire::metrics::VACATE_BOUNDS_NS;
use tutti_wire::vacate::{FromProcess, Lines, ToProcess, VERSION};

/// Connections of one job, and of all together.
const OF_JOB_MAX: usize = 1024;
const ALL_MAX: usize = 4096;

/// Connections that are taken at once, and the pause that follows.
const ACCEPTS_AT_ONCE: usize = 32;
const ACCEPT_PAUSE_NS: u64 = 10_000_000;

/// How long the programs of a job with devices in turns may take until one of them registers.
const REGISTERS_WITHIN_NS: u64 = 10_000_000_000;

/// Lines that a connection may send before the first notice, or between two.
const LINES_SPARE: u32 = 8;

/// What is read of a connection at once, in bytes.
const READ_BYTES: usize = 256;

/// How many ancestors of a process are looked at.
const ANCESTORS_MAX: usize = 64;

const BELL: u64 = 0;
const LISTENER: u64 = 1;
const FIRST_PEER: u64 = 2;

/// A connected process of a job.
struct Peer {
    stream: UnixStream,
    pid: i32,
    uid: u32,
    job: JobId,
    is_registered: bool,
    lines: Lines,
    /// Lines that it may still send.
    spare: u32,
}

/// A job with connections, or with devices that it should give up.
struct Member {
    launch: LaunchId,
    notices: Notices,
    peers: BTreeSet<u64>,
    /// Registered processes that have not answered the latest notice.
    waiting: BTreeSet<u64>,
    /// When that was sent, by the monotonic clock.
    asked_ns: u64,
}

impl Member {
    fn new(launch: LaunchId, lead: Nanos) -> Self {
        let notices = Notices::new(lead);
        Self { launch, notices, peers: BTreeSet::new(), waiting: BTreeSet::new(), asked_ns: 0 }
    }
}

pub(super) struct Server {
    poller: Poller,
    listener: UnixListener,
    accepts_again_ns: Option<u64>,
    shared: Arc<Mutex<Shared>>,
    bell: Bell,
    herald: Herald,
    news: Receiver<News>,
    watcher: Watcher,
    clock: ClusterClock,
    teller: Teller,
    members: BTreeMap<JobId, Member>,
    peers: BTreeMap<u64, Peer>,
    /// How many there may be.
    peers_max: usize,
    next_token: u64,
}

impl Server {
    pub(super) fn new(
        socket: &Path,
        for_all: bool,
        (shared, bell): (Arc<Mutex<Shared>>, Bell),
        (watcher, clock, teller): (Watcher, ClusterClock, Teller),
    ) -> anyhow::Result<Self> {
        let listener = state_dir::listen(socket, for_all)?;
        let poller = Poller::new()?;
        poller.add(&bell, BELL, Interest::READ)?;
        poller.add(&listener, LISTENER, Interest::READ)?;
        let (sender, news) = channel();
        let (descriptors, _) = getrlimit(Resource::RLIMIT_NOFILE)?;
        Ok(Self {
            poller,
            listener,
            accepts_again_ns: None,
            shared,
            herald: Herald { news: sender, bell: bell.clone() },
            bell,
            news,
            watcher,
            clock,
            teller,
            members: BTreeMap::new(),
            peers: BTreeMap::new(),
            peers_max: usize::try_from(descriptors / 4).unwrap_or(ALL_MAX).min(ALL_MAX),
            next_token: FIRST_PEER,
        })
    }

    pub(super) fn run(&mut self) {
        let mut ready: Vec<Ready> = Vec::new();
        loop {
            if let Err(error) = self.poller.wait(self.due_ns(), &mut ready) {
                return warn!(code = %Code::System, "no job is asked to vacate any more: {error}");
            }
            for event in &ready {
                match event.token {
                    BELL => self.on_bell(),
                    LISTENER => self.accept(),
                    token => self.on_peer(token),
                }
            }
            self.on_time();
        }
    }

    fn due_ns(&self) -> Option<u64> {
        let notices = self.members.values().filter_map(|it| it.notices.due());
        let first = notices.min().map(|at| self.clock.own_ns(at));
        first.into_iter().chain(self.accepts_again_ns).min()
    }

    fn on_time(&mut self) {
        let now = self.clock.now();
        let is_due = |member: &Member| member.notices.due().is_some_and(|at| at <= now);
        let due: Vec<JobId> =
            self.members.iter().filter(|(_, it)| is_due(it)).map(|(&job, _)| job).collect();
        due.into_iter().for_each(|job| self.ask(job, now));
        if self.accepts_again_ns.is_some_and(|at| at <= monotonic_ns()) {
            self.accepts_again_ns = None;
            // It is watched: only how can't be refused.
            let _ = self.poller.modify(&self.listener, LISTENER, Interest::READ);
        }
    }

    // ------------------------------------------------------------------ notices

    fn ask(&mut self, job: JobId, now: ClusterTime) {
        let Some(member) = self.members.get_mut(&job) else { return };
        let Some((number, until)) = member.notices.ask(now) else {
            // Too late for this one. The switch thread says what comes next.
            member.notices.take(super::Turn::Stands);
            return;
        };
        let until_ns = self.clock.own_ns(until);
        let registered = |token: &&u64| self.peers.get(token).is_some_and(|it| it.is_registered);
        member.waiting = member.peers.iter().filter(registered).copied().collect();
        member.asked_ns = monotonic_ns();
        let asked = member.waiting.clone();
        lock(&self.shared).counts.given += u64::from(!asked.is_empty());
        for token in asked {
            if let Some(peer) = self.peers.get_mut(&token) {
                peer.spare = LINES_SPARE;
            }
            self.send(token, &ToProcess::Vacate { number, until_ns });
        }
    }

    fn on_bell(&mut self) {
        self.bell.clear();
        self.drop_ended();
        self.watch_those_with_devices();
        while let Ok(news) = self.news.try_recv() {
            self.on_news(news);
        }
    }

    fn on_news(&mut self, news: News) {
        let member = self.members.get_mut(&news.job);
        let Some(member) = member.filter(|it| it.launch.number == news.number) else { return };
        match member.notices.take(news.turn) {
            Some(Change::Left(_)) => self.on_left(news.job),
            Some(Change::Resume(number)) => {
                member.waiting.clear();
                let peers: Vec<u64> = member.peers.iter().copied().collect();
                for token in peers {
                    if self.peers.get(&token).is_some_and(|it| it.is_registered) {
                        self.send(token, &ToProcess::Resume { number });
                    }
                }
            }
            None => {}
        }
    }

    /// A job that was asked is suspended; the first time that processes of it were not ready, one
    /// is named.
    fn on_left(&mut self, job: JobId) {
        let Some(member) = self.members.get(&job) else { return };
        let launch = member.launch;
        if !member.peers.iter().any(|token| self.peers[token].is_registered) {
            return self.on_left_unasked(launch);
        }
        let Some(late) = member.waiting.first() else { return };
        let pid = self.peers.get(late).map_or(0, |it| it.pid);
        let is_named = {
            let mut shared = lock(&self.shared);
            shared.counts.missed += 1;
            let known = shared.known.get_mut(&job).filter(|known| known.launch == launch);
            known.is_none_or(|known| std::mem::replace(&mut known.is_named, true))
        };
        if !is_named {
            self.tell_not_vacated(launch, Some(pid));
        }
    }

    /// A job is suspended, and none of its processes has registered: its programs may keep open
    /// what another job has now. That is said once, when they had time enough.
    fn on_left_unasked(&self, launch: LaunchId) {
        let is_to_say = {
            let mut shared = lock(&self.shared);
            let known = shared.known.get_mut(&launch.job).filter(|known| {
                let has_had_time = monotonic_ns() >= known.since_ns + REGISTERS_WITHIN_NS;
                known.launch == launch && known.shares_devices && has_had_time
            });
            known.is_some_and(|known| !std::mem::replace(&mut known.is_named, true))
        };
        if is_to_say {
            self.tell_not_vacated(launch, None);
        }
    }

    fn tell_not_vacated(&self, launch: LaunchId, pid: Option<i32>) {
        self.teller.tell(Box::new(move |agent: &mut Agent| agent.on_not_vacated(launch, pid)));
    }

    fn on_ready(&mut self, token: u64, job: JobId, number: u64) {
        let Some(member) = self.members.get_mut(&job) else { return };
        // One that is late, early or of another notice counts for nothing.
        let is_open = member.notices.open().is_some_and(|(open, _)| open == number);
        if is_open && member.waiting.remove(&token) && member.waiting.is_empty() {
            let took_ns = monotonic_ns().saturating_sub(member.asked_ns);
            lock(&self.shared).counts.times.add(took_ns, &VACATE_BOUNDS_NS);
        }
    }

    // ------------------------------------------------------------------ connections

    fn accept(&mut self) {
        let mut count = 0;
        while count < ACCEPTS_AT_ONCE {
            count += 1;
            match self.listener.accept() {
                Ok((stream, _)) => self.take(stream),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // Also where there is no descriptor for it.
                Err(_) => break,
            }
        }
        let _ = self.poller.modify(&self.listener, LISTENER, Interest::NONE);
        self.accepts_again_ns = Some(monotonic_ns() + ACCEPT_PAUSE_NS);
    }

    fn take(&mut self, stream: UnixStream) {
        if stream.set_nonblocking(true).is_err() {
            return;
        }
        let refuse = |text: String| {
            let line = ToProcess::Error { text }.to_string();
            // A new connection has room for it.
            let _ = (&stream).write(line.as_bytes());
        };
        let Some((pid, uid, job)) = self.peer_of(&stream) else {
            return refuse(
                "this process is in no job that was submitted with --vacate; see tutti run --help"
                    .into(),
            );
        };
        let of_job = self.members.get(&job).map_or(0, |member| member.peers.len());
        if of_job >= OF_JOB_MAX {
            return refuse(format!("job {job} has {of_job} connections; close some first"));
        }
        let of_user = self.peers.values().filter(|peer| peer.uid == uid).count();
        if of_user >= self.peers_max.saturating_sub(self.peers.len()) {
            return refuse(format!("user {uid} has {of_user} connections; close some first"));
        }
        let token = self.next_token;
        self.next_token += 1;
        if self.poller.add(&stream, token, Interest::READ).is_err() {
            return;
        }
        let Some((launch, lead)) = self.launch_of(job) else { return };
        let member = self.members.entry(job).or_insert_with(|| Member::new(launch, lead));
        member.peers.insert(token);
        let (lines, spare) = (Lines::default(), LINES_SPARE);
        let peer = Peer { stream, pid, uid, job, is_registered: false, lines, spare };
        self.peers.insert(token, peer);
        self.on_peer(token);
    }

    fn launch_of(&self, job: JobId) -> Option<(LaunchId, Nanos)> {
        lock(&self.shared).known.get(&job).map(|known| (known.launch, known.lead))
    }

    /// The process at the other end, its user, and the job that it is of.
    fn peer_of(&self, stream: &UnixStream) -> Option<(i32, u32, JobId)> {
        let peer = peer_credentials(stream).ok()?;
        let process = peer_process(stream).ok()?;
        let job = job_of(&lock(&self.shared).known, peer.pid)?;
        // If it lives, its number was its own until now.
        (!has_ended(process.as_fd())).then_some((peer.pid, peer.uid, job))
    }

    fn on_peer(&mut self, token: u64) {
        let Some(peer) = self.peers.get_mut(&token) else { return };
        let mut bytes = [0; READ_BYTES];
        match peer.stream.read(&mut bytes) {
            Ok(0) => return self.close(token),
            Ok(count) => peer.lines.push(&bytes[..count]),
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(_) => return self.close(token),
        }
        while let Some(peer) = self.peers.get_mut(&token)
            && let Some(line) = peer.lines.take()
        {
            let Some(spare) = peer.spare.checked_sub(1) else {
                return self.refuse(token, "too many lines since the latest notice".into());
            };
            peer.spare = spare;
            let (job, is_registered) = (peer.job, peer.is_registered);
            match line {
                Err(error) => return self.refuse(token, error.to_string()),
                Ok(FromProcess::Register { version }) if version != VERSION => {
                    let text = format!("this agent speaks version {VERSION} of the protocol");
                    return self.refuse(token, text);
                }
                Ok(FromProcess::Register { .. }) if !is_registered => self.register(token, job),
                Ok(FromProcess::Register { .. }) => {}
                Ok(FromProcess::Ready { number }) if is_registered => {
                    self.on_ready(token, job, number);
                }
                Ok(FromProcess::Ready { .. }) => {
                    return self.refuse(token, "write `register 1` first".into());
                }
            }
        }
    }

    fn register(&mut self, token: u64, job: JobId) {
        let Some(peer) = self.peers.get_mut(&token) else { return };
        let Some(member) = self.members.get_mut(&job) else { return };
        peer.is_registered = true;
        let is_first = |it: &u64| *it == token || !self.peers[it].is_registered;
        if member.peers.iter().all(is_first) {
            self.watcher.watch(job, Some(self.herald.clone()));
        }
        let (lead, open) = (member.notices.lead(), member.notices.open());
        self.send(token, &ToProcess::Registered { job, lead });
        // It may hold something already. Whether it answers in time does not count.
        if let Some((number, until)) = open {
            let until_ns = self.clock.own_ns(until);
            self.send(token, &ToProcess::Vacate { number, until_ns });
        }
    }

    /// Sends a line; a connection that has no room for one has not read for long.
    fn send(&mut self, token: u64, line: &ToProcess) {
        let Some(peer) = self.peers.get_mut(&token) else { return };
        let line = line.to_string();
        if !matches!(peer.stream.write(line.as_bytes()), Ok(count) if count == line.len()) {
            self.close(token);
        }
    }

    fn refuse(&mut self, token: u64, text: String) {
        self.send(token, &ToProcess::Error { text });
        self.close(token);
    }

    fn close(&mut self, token: u64) {
        let Some(peer) = self.peers.remove(&token) else { return };
        let Some(member) = self.members.get_mut(&peer.job) else { return };
        member.peers.remove(&token);
        member.waiting.remove(&token);
        let shares_devices =
            lock(&self.shared).known.get(&peer.job).is_some_and(|known| known.shares_devices);
        if member.peers.is_empty() && !shares_devices {
            self.forget(peer.job);
        }
    }

    fn forget(&mut self, job: JobId) {
        if self.members.remove(&job).is_some() {
            self.watcher.watch(job, None);
        }
    }

    /// Jobs with devices that others may have in turns: whether or not they register, it is known
    /// when they lose a turn.
    fn watch_those_with_devices(&mut self) {
        let new: Vec<(LaunchId, Nanos)> = {
            let shared = lock(&self.shared);
            let with_devices = shared.known.values().filter(|known| known.shares_devices);
            let new = with_devices.filter(|known| !self.members.contains_key(&known.launch.job));
            new.map(|known| (known.launch, known.lead)).collect()
        };
        for (launch, lead) in new {
            self.members.insert(launch.job, Member::new(launch, lead));
            self.watcher.watch(launch.job, Some(self.herald.clone()));
        }
    }

    /// Closes connections of jobs that are gone, or here in another launch.
    fn drop_ended(&mut self) {
        let known = {
            let shared = lock(&self.shared);
            let launches = shared.known.iter().map(|(&job, known)| (job, known.launch));
            launches.collect::<BTreeMap<JobId, LaunchId>>()
        };
        let ended = self.members.iter().filter(|(job, it)| known.get(job) != Some(&it.launch));
        let ended: Vec<JobId> = ended.map(|(&job, _)| job).collect();
        for job in ended {
            let tokens = self.members.get(&job).map(|it| it.peers.clone()).unwrap_or_default();
            tokens.into_iter().for_each(|token| self.close(token));
            self.forget(job);
        }
    }
}

/// The job that a process belongs to, if processes of it may register.
fn job_of(known: &BTreeMap<JobId, Known>, pid: i32) -> Option<JobId> {
    let groups = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    let paths = groups.lines().filter_map(|line| line.splitn(3, ':').nth(2));
    if let Some(job) = paths.flat_map(|path| Path::new(path).ancestors()).find_map(|group| {
        let name = group.file_name()?.to_str().filter(|name| layout::is_of_a_job(name))?;
        // With the name of the instance's subtree before it.
        let path = group.strip_prefix("/").ok().filter(|it| it.components().count() > 1)?;
        let is_it = |it: &Known| it.group.as_ref().is_some_and(|own| own.ends_with(path));
        let (&job, _) =
            known.iter().find(|(job, it)| layout::group_of_job(job) == name && is_it(it))?;
        Some(job)
    }) {
        return Some(job);
    }
    let (mut at, without) = (pid, known.iter().filter(|(_, it)| !it.minders.is_empty()));
    let without: Vec<_> = without.collect();
    for _ in 0..ANCESTORS_MAX {
        if without.is_empty() {
            break;
        }
        let stat = ProcessStat::read(at).ok()?;
        let name = (at, stat.start_time);
        if let Some(&(&job, _)) = without.iter().find(|(_, it)| it.minders.contains(&name)) {
            return Some(job);
        }
        at = stat.ppid;
    }
    None
}
