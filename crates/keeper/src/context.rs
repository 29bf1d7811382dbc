//! What the jobs of a keeper share: the poller, reports to be sent, the processes to be reaped.

use super::KeeperOptions;
use super::emptied::Emptied;
use super::helper::Kind;
use super::pmix::{Asked, Silent};
use super::scratch::Scratches;
use super::watch::Watches;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::error::Error;
use std::io;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use tutti_linux::ipc_namespace::Maker;
use tutti_linux::random::random_u32;
use tutti_node::platform::hardware;
use tutti_node::platform::processes::Nursery;
use tutti_node::platform::time::monotonic_ns;
use tutti_node::released;
use tutti_node::shared_images::SharedImages;
use tutti_types::{JobId, StepKey};
use tutti_wire::keeper::FromKeeper;
use tutti_wire::limits::TASKS_PER_NODE_MAX;
use tutti_wire::pmi::Names;
use tutti_wire::pmix::{Far, Hub, Out, Peer};
use tutti_wire::usage::CarriedBytes;

/// Processes that the keeper reaps: roots and minders, helpers, adopted ones.
pub(super) struct Children {
    /// Which task a process is the root, or minder, of.
    pub(super) roots: HashMap<i32, (StepKey, usize)>,
    /// Of which job a process is a helper.
    pub(super) helpers: HashMap<i32, (Kind, StepKey)>,
    /// Processes with which adopted tasks began, while any of their task's live.
    pub(super) adopted: BTreeSet<i32>,
}

/// What MPI programs have stored and published.
pub(super) struct Mpi {
    /// Names that MPI programs published.
    pub(super) names: Names,
    /// What the PMI servers of each user's jobs keep, in bytes.
    pub(super) pmi_bytes: BTreeMap<u32, usize>,
    /// Jobs of which something is to be sent of barriers, in turn.
    pub(super) exchanging: VecDeque<StepKey>,
    /// What the steps of each job ask of each other by PMIx.
    pub(super) hub: Hub,
    /// The keepers of other nodes that serve the same jobs.
    pub(super) far: Far,
    /// What no other keeper has: lives of channels are made of it.
    pub(super) seed: u64,
    /// Keepers that are too far behind.
    pub(super) lost: Vec<Peer>,
    /// What tasks have asked for by PMIx in this round.
    pub(super) asked: Vec<Asked>,
    /// What PMIx servers are to hear at the end of this round.
    pub(super) to_pmix: Out,
    /// Spawned tasks that have ended in this round without a word to an MPI server.
    pub(super) silent: Vec<Silent>,
    /// The tasks, or the PMIx servers where there is no task, of which more was read than one round
    /// takes in: what is left comes with the next, at once.
    pub(super) unheard: BTreeSet<(StepKey, Option<usize>)>,
}

/// What the start of a task needs: rights, limits, directories, namespaces.
pub(super) struct Launching {
    /// The state directory of the instance.
    pub(super) directory: PathBuf,
    pub(super) spool: PathBuf,
    /// Where the images of jobs' processes are.
    pub(super) images: PathBuf,
    /// The directory of images that other nodes share.
    pub(super) shared_images: Option<SharedImages>,
    /// The cgroup subtree of the instance, if it has one.
    pub(super) cgroup_root: Option<PathBuf>,
    /// Where tasks are while their programs do not run yet.
    pub(super) nursery: Nursery,
    /// Directories for temporary files.
    pub(super) scratches: Scratches,
    /// Where the queues and semaphores of jobs are.
    pub(super) namespaces: Maker,
    /// Whether the one that was made ahead is used up.
    pub(super) namespace_wanted: bool,
    /// Whether tasks can be started as other users.
    pub(super) uid: u32,
    /// The most that tasks may get of each resource, by the kernel's numbers. `None` where we may
    /// give any.
    pub(super) hard_limits: Option<Vec<u64>>,
    /// The limit on descriptors that we were started with; ours is higher now.
    pub(super) descriptors: (u64, u64),
    pub(super) room: Room,
}

/// Handed to whatever a job does.
pub(super) struct Context {
    pub(super) watches: Watches,
    /// Reports for the agent, in order; sent at the end of each round of the loop.
    pub(super) reports: Vec<FromKeeper>,
    /// Jobs to look after at the end of the round: something may have to be written, or the job
    /// may be over.
    pub(super) touched: BTreeSet<StepKey>,
    /// Processes that the keeper reaps: roots and minders, helpers, adopted ones.
    pub(super) children: Children,
    /// When to look again at a task of which something was left, or that was killed.
    pub(super) endings: BTreeMap<(StepKey, usize), u64>,
    /// Groups of tasks that have ended, to be removed when there is nothing else to do.
    pub(super) emptied: Emptied,
    /// When to look how far threads are with what they do for a job.
    pub(super) beside: BTreeMap<StepKey, u64>,
    /// What MPI programs have stored and published.
    pub(super) mpi: Mpi,
    /// Room for output that is not wanted.
    pub(super) scratch: Vec<u8>,
    /// What the start of a task needs: rights, limits, directories, namespaces.
    pub(super) launching: Launching,
    /// Whether much was freed that the allocator does not give back by itself.
    pub(super) is_heap_loose: bool,
    /// Standard input and output that was carried so far.
    pub(super) carried: CarriedBytes,
    pub(super) agent_connected: bool,
    /// Jobs up to this number are released: see [`tutti_node::released`].
    pub(super) released: JobId,
}

/// What the limit on descriptors leaves for what. A part is kept for connections, so that front
/// ends and the agent get in however many tasks there are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    descriptors: u64,
}

/// What a task takes: a pipe for each stream, its PMI connection, the report of its start, what its
/// minder says, and its groups.
const DESCRIPTORS_PER_TASK: u64 = 9;

/// Connections whose purpose is not known yet, or whose job has not come.
const NEWCOMERS_MAX: u64 = 4096;

impl Room {
    fn kept(self) -> u64 {
        (self.descriptors / 8).clamp(32, 2 * NEWCOMERS_MAX)
    }

    /// How many tasks can be held at once.
    pub(super) fn tasks_max(self) -> u32 {
        let room = self.descriptors.saturating_sub(self.kept()) / DESCRIPTORS_PER_TASK;
        u32::try_from(room).map_or(TASKS_PER_NODE_MAX, |room| room.min(TASKS_PER_NODE_MAX))
    }

    /// How many connections may wait at once.
    pub(super) fn newcomers_max(self) -> usize {
        usize::try_from(NEWCOMERS_MAX.min(self.kept() / 2)).unwrap_or(usize::MAX)
    }

    /// Whether a task, or a viewer, may have this descriptor. The kernel gives the lowest free
    /// number, so all below it are in use.
    ///
    /// # Errors
    /// `EMFILE` if what is left is for others.
    pub(super) fn check(self, fd: &impl AsRawFd) -> io::Result<()> {
        let most = self.descriptors.saturating_sub(self.kept());
        match u64::try_from(fd.as_raw_fd()) {
            Ok(number) if number < most => Ok(()),
            _ => Err(io::Error::from_raw_os_error(nix::libc::EMFILE)),
        }
    }
}

impl Context {
    /// The most that a task may get of a resource.
    pub(super) fn limit_most(&self, resource: i32) -> u64 {
        let limits = self.launching.hard_limits.as_ref();
        let of_it = usize::try_from(resource).ok().and_then(|it| limits?.get(it).copied());
        of_it.unwrap_or(u64::MAX)
    }

    pub(super) fn new(options: &KeeperOptions) -> io::Result<Self> {
        let descriptors = raise_descriptor_limit()?;
        Ok(Self {
            launching: Launching {
                room: Room { descriptors: descriptors.1 },
                directory: options.directory().to_owned(),
                spool: options.spool.clone(),
                images: options.images.clone(),
                shared_images: options.shared_images.clone(),
                cgroup_root: options.cgroup_root.clone(),
                nursery: Nursery::of_daemon(),
                scratches: Scratches::new(options.scratch.clone()),
                namespaces: Maker::new(),
                namespace_wanted: false,
                uid: nix::unistd::geteuid().as_raw(),
                hard_limits: own_hard_limits(),
                descriptors,
            },
            watches: Watches::new()?,
            reports: Vec::new(),
            touched: BTreeSet::new(),
            children: Children {
                roots: HashMap::new(),
                helpers: HashMap::new(),
                adopted: BTreeSet::new(),
            },
            endings: BTreeMap::new(),
            emptied: Emptied::default(),
            beside: BTreeMap::new(),
            mpi: Mpi {
                names: Names::new(),
                pmi_bytes: BTreeMap::new(),
                exchanging: VecDeque::new(),
                hub: Hub::default(),
                far: Far::default(),
                seed: seed(),
                lost: Vec::new(),
                asked: Vec::new(),
                to_pmix: Out::new(),
                silent: Vec::new(),
                unheard: BTreeSet::new(),
            },
            scratch: vec![0; 64 << 10],
            is_heap_loose: false,
            carried: CarriedBytes::default(),
            agent_connected: false,
            released: released::read(&options.released),
        })
    }
}

impl Context {
    /// Something of a job is to be sent of barriers.
    pub(super) fn note_exchange(&mut self, job: StepKey) {
        if !self.mpi.exchanging.contains(&job) {
            self.mpi.exchanging.push_back(job);
        }
    }
}

fn seed() -> u64 {
    let halves = random_u32().and_then(|high| Ok((high, random_u32()?)));
    // Unlike those of other keepers, if less so.
    let clock = || monotonic_ns() ^ u64::from(std::process::id()).rotate_left(40);
    halves.map_or_else(|_| clock(), |(high, low)| u64::from(high) << 32 | u64::from(low))
}

/// The hard limits of this process, unless it may give more than it has: that needs a capability,
/// which root in a container may lack.
fn own_hard_limits() -> Option<Vec<u64>> {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    let may_raise = |resource| {
        let Ok((soft, hard)) = getrlimit(resource) else { return false };
        let is_raised = hard < u64::MAX && setrlimit(resource, soft, hard + 1).is_ok();
        is_raised && setrlimit(resource, soft, hard).is_ok()
    };
    let some = [Resource::RLIMIT_CORE, Resource::RLIMIT_CPU, Resource::RLIMIT_MEMLOCK];
    let others = [Resource::RLIMIT_NPROC, Resource::RLIMIT_DATA, Resource::RLIMIT_STACK];
    if some.into_iter().chain(others).any(may_raise) {
        return None;
    }
    let uid = nix::unistd::geteuid().as_raw();
    hardware::hard_limits(std::process::id().cast_signed(), uid).ok()
}

/// Each task takes some six descriptors of ours, and the usual limit is 1,024. Returns the limits
/// of before, which tasks get unless their user has others.
fn raise_descriptor_limit() -> io::Result<(u64, u64)> {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard)?;
    Ok((soft, hard))
}

/// An error with its causes, in one line.
pub(super) fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}
