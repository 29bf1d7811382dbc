//! The vacate protocol: asks processes of jobs to give up what they hold before their slot ends.
//!
//! A thread of its own does all of it. The first job that may register starts it
//! (`LaunchSpec::vacate`), so other jobs cost nothing. Three threads meet:
//!
//! - The *switch thread* says of jobs with registered processes when they run and when they leave
//!   ([`Heralds`]). It does so after a switch, by a channel, and waits for nothing.
//! - The *vacate thread* has the socket and its connections ([`server`]). It asks by the clock and
//!   counts the answers. Nothing waits for it: a job that does not answer is suspended on time.
//! - The *main thread* says which jobs there are, and passes on which did not answer.
//!
//! The lines are in [`tutti_wire::vacate`].

mod notices;
mod server;

pub(super) use notices::Turn;

use super::beside::Teller;
use super::clock::ClusterClock;
use super::driver::Agent;
use super::job::Job;
use super::subtree_control::Name;
use super::switch::Watcher;
use super::waker::Bell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tracing::warn;
use tutti_node::log::PROVOKED;
use tutti_node::platform::time::monotonic_ns;
use tutti_types::{JobId, LaunchId, Nanos};
use tutti_wire::code::Code;
use tutti_wire::report::NoticeCounts;
use tutti_wire::tree::FromAgent;

/// What the switch thread says of a job whose processes get notice.
#[derive(Clone, Copy, Debug)]
pub(super) struct News {
    pub(super) job: JobId,
    /// The launch number of the job that is on this node.
    pub(super) number: u32,
    pub(super) turn: Turn,
}

/// Where the switch thread leaves its news.
#[derive(Clone, Debug)]
pub(super) struct Herald {
    news: Sender<News>,
    bell: Bell,
}

impl Herald {
    /// Passes on all news at once.
    pub(super) fn tell(&self, all: impl IntoIterator<Item = News>) {
        let mut any = false;
        for news in all {
            any = true;
            // The thread ends with the agent.
            let _ = self.news.send(news);
        }
        if any {
            self.bell.ring();
        }
    }
}

/// The switch thread's side: the jobs that are watched, and what was reported last of each.
#[derive(Debug, Default)]
pub(super) struct Heralds {
    herald: Option<Herald>,
    reported: BTreeMap<JobId, Option<Turn>>,
}

impl Heralds {
    /// Whether no job is watched.
    pub(super) fn is_empty(&self) -> bool {
        self.reported.is_empty()
    }

    pub(super) fn watch(&mut self, job: JobId, herald: Option<Herald>) {
        match herald {
            Some(herald) => {
                self.herald = Some(herald);
                self.reported.insert(job, None);
            }
            None => drop(self.reported.remove(&job)),
        }
    }

    /// Says what has changed; `turn` gives the launch number of a job that is here, and its turn.
    pub(super) fn tell(&mut self, mut turn: impl FnMut(JobId) -> Option<(u32, Turn)>) {
        let Some(herald) = &self.herald else { return };
        let news = self.reported.iter_mut().filter_map(|(&job, reported)| {
            let (number, turn) = turn(job)?;
            (reported.replace(turn) != Some(turn)).then_some(News { job, number, turn })
        });
        herald.tell(news);
    }
}

/// A job whose processes may register.
#[derive(Debug)]
struct Known {
    launch: LaunchId,
    lead: Nanos,
    /// Its cgroup; without one its processes are those below `minders`.
    group: Option<PathBuf>,
    minders: BTreeSet<Name>,
    /// Whether others may have its devices in turns with it, so that it should give them up.
    shares_devices: bool,
    /// Since when it is known, by the monotonic clock.
    since_ns: u64,
    /// Whether the main thread knows that it was not ready once.
    is_named: bool,
}

/// What main thread and vacate thread share. Neither holds it for long.
#[derive(Debug, Default)]
struct Shared {
    known: BTreeMap<JobId, Known>,
    counts: NoticeCounts,
}

fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The main thread's end.
#[derive(Debug)]
pub(super) struct Vacate {
    shared: Arc<Mutex<Shared>>,
    bell: Bell,
    socket: PathBuf,
}

impl Vacate {
    /// Starts the thread, which takes connections at `socket`; `for_all`: of all users.
    fn start(
        socket: &Path,
        for_all: bool,
        watcher: Watcher,
        clock: ClusterClock,
        teller: Teller,
    ) -> anyhow::Result<Self> {
        let bell = Bell::new()?;
        let shared = Arc::<Mutex<Shared>>::default();
        let parts = (Arc::clone(&shared), bell.clone());
        let mut server = server::Server::new(socket, for_all, parts, (watcher, clock, teller))?;
        std::thread::Builder::new()
            .name("vacate".into())
            .stack_size(256 << 10)
            .spawn(move || server.run())?;
        Ok(Self { shared, bell, socket: socket.to_owned() })
    }

    /// What was counted so far.
    pub(super) fn counts(&self) -> NoticeCounts {
        lock(&self.shared).counts
    }

    fn remove(&self, job: JobId) {
        if lock(&self.shared).known.remove(&job).is_some() {
            self.bell.ring();
        }
    }

    /// Leaves nothing behind.
    pub(super) fn close(&self) {
        let _ = std::fs::remove_file(&self.socket);
    }
}

impl Agent {
    /// From now on processes of a job may register, if it was submitted so.
    pub(super) fn allow_notices(
        &mut self,
        job: &Job,
        (lead, shares_devices): (Option<Nanos>, bool),
    ) {
        let Some(lead) = lead else { return };
        let known = Known {
            launch: job.launch,
            lead,
            group: job.group.as_ref().map(|group| group.path().to_owned()),
            minders: job.minders.values().copied().collect(),
            shares_devices,
            since_ns: monotonic_ns(),
            is_named: false,
        };
        if self.processes.vacate.is_none() {
            let (socket, for_all) = (&self.options.vacate, !self.options.private);
            let (watcher, clock) = (self.switch.watcher(), self.tree.clock().clone());
            let teller = self.processes.beside.teller();
            match Vacate::start(socket, for_all, watcher, clock, teller) {
                Ok(vacate) => self.processes.vacate = Some(vacate),
                Err(error) => {
                    let code = Code::GoesWithout;
                    return warn!(%code, "no job can be asked to vacate: {error:#}");
                }
            }
        }
        if let Some(vacate) = &self.processes.vacate {
            lock(&vacate.shared).known.insert(job.launch.job, known);
            vacate.bell.ring();
        }
    }

    /// A task of a job without a cgroup has begun: what is below its minder may register, too.
    pub(super) fn allow_notices_below(&self, job: JobId, minder: Name) {
        let Some(vacate) = &self.processes.vacate else { return };
        if let Some(known) = lock(&vacate.shared).known.get_mut(&job) {
            known.minders.insert(minder);
        }
    }

    /// A job is gone.
    pub(super) fn end_notices(&self, job: JobId) {
        if let Some(vacate) = &self.processes.vacate {
            vacate.remove(job);
        }
    }

    /// A job was suspended though processes of it had not answered, for the first time here; or
    /// none has ever registered (`None`).
    fn on_not_vacated(&mut self, launch: LaunchId, pid: Option<i32>) {
        let node = self.options.node.clone();
        let Some(job) = self.launched(launch) else { return };
        let what = match pid {
            Some(pid) => format!("process {pid} on {node} was not ready when its turn ended"),
            None => format!("no process on {node} has registered to give up its devices"),
        };
        warn!(target: PROVOKED, code = %Code::NotVacated, "job {launch}: {what}");
        job.findings.note_not_vacated(&what);
        self.tell_controller(FromAgent::NotVacated { launch, what });
    }
}
