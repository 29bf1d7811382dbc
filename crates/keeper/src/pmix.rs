//! The PMIx server of a job: a process of its user that serves Open MPI's tasks.
//!
//! It is started where the launch says so, by `TUTTI_PMIX=1` in the environment: `tutti run` and
//! `submit` set that where the program needs Open MPI's library. All others have none, and their
//! launch is as if there were no such thing. Tasks begin when the server is ready, since its
//! address must be in their environment.
//!
//! It is no process of the job's group, so that a switch does not stop it: it is a child of the
//! keeper, ends before the job is reported as ended, and its use counts as the job's. Nothing that
//! it says is taken as given ([`tutti_wire::pmix`]).

mod far;
mod handover;
mod requests;

use requests::UNREAD_BYTES_MAX;
pub(super) use requests::{Asked, Silent, refuse};

use super::context::{Context, chain};
use super::environment::value_of;
use super::helper::{Helper, Kind, Start};
use super::job::{Job, Phase, Task};
use super::pmi::Abort;
use super::program::{Refusal, without_zero_byte};
use super::start::Source;
use serde_bytes::ByteBuf;
use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use tracing::{debug, warn};
use tutti_linux::random::random_u32;
use tutti_linux::reap::End;
use tutti_node::layout;
use tutti_node::platform::groups::{Cgroup, Hierarchy};
use tutti_node::platform::time::monotonic_ns;
use tutti_types::{ProcessorSet, Rank, StepId};
use tutti_wire::code::Code;
use tutti_wire::launch::{Credentials, Launch, Usage};
use tutti_wire::pmi::TaskState;
use tutti_wire::pmix::{
    FAILED_AT_ONCE, FENCE_PART_BYTES, FromPmix, Heard, PmixOrder, Session, ToPmix, is_space,
};

/// How long a PMIx server may take to be ready: a library may hang.
const READY_NS: u64 = if cfg!(test) { 2_000_000_000 } else { 20_000_000_000 };

/// Longest text of the user's for the server, and the most of them.
const TEXT_BYTES_MAX: usize = 4 << 10;
const TEXTS_MAX: usize = 64;

/// Memory of a server beside that for tasks, and for each task of the step and of this node.
const MEMORY_BYTES: u64 = 192 << 20;
const MEMORY_BYTES_PER_TASK: u64 = 64 << 10;
const MEMORY_BYTES_PER_TASK_HERE: u64 = 128 << 10;

/// How many messages of a server are taken in before others have their turn.
const HEARD_AT_ONCE: usize = 32;

/// Maximum number of threads of a server: the library starts a few.
const THREADS_MAX: u64 = 32;

/// The processor time of a server, in processors. It is never suspended: what its user has it
/// compute is taken from other jobs.
const PROCESSORS_MAX: u32 = 1;

/// Variables of the user that the library reads.
const READ_BY_LIBRARY: [&[u8]; 2] = [b"PMIX_MCA_", b"PMIX_PREFIX="];

/// Variables that tasks find where the user has not set them. Open MPI 4 would look for its own
/// daemon, or take Slurm's variables for those of a batch script. MPICH 5 would take PMIx, which it
/// does not speak.
pub(super) const DEFAULTS: [(&str, &str); 2] =
    [("OMPI_MCA_schizo", "^orte,slurm"), ("MPIR_CVAR_PMI_VERSION", "1")];

/// The PMIx server of a job on this node.
#[derive(Debug)]
pub(super) struct Pmix {
    /// Its process.
    helper: Helper,
    session: Session,
    /// When it counts as stuck, until it is ready.
    until_ns: Option<u64>,
    /// Whether the start of the tasks waits for it.
    is_awaited: bool,
    /// How many parts of the next fence it has sent.
    parts: u32,
    /// The fence that waits for other nodes.
    fence: Option<u32>,
    /// The length of the answer to the fence before, which it may have to read yet.
    fence_bytes: usize,
}

/// Whether the tasks of a launch are to find a PMIx server.
pub(super) fn is_wanted(launch: &Launch) -> bool {
    // A task that is alone may spawn others, or meet those of other steps.
    (launch.size > 1 || value_of(launch, "TUTTI_PMIX_SPACE").is_some())
        && !launch.share.tasks.is_empty()
        && launch.spec.adopt.is_empty()
        && value_of(launch, "TUTTI_PMIX") == Some(b"1")
}

/// The name space of a step. Any user of the machine that knows it may pose as a task.
fn space_of(launch: &Launch) -> Result<String, Refusal> {
    let random = match value_of(launch, "TUTTI_PMIX_SPACE").filter(|text| is_space(text)) {
        Some(text) => String::from_utf8_lossy(text).into_owned(),
        None if launch.nodes.len() > 1 => {
            let reason = "no name space for PMIx came with the job: submit it by `tutti run`";
            return Err(Refusal::new(Code::OpenMpi.mark(reason)));
        }
        None => (0..4)
            .map(|_| random_u32().map(|number| format!("{number:08x}")))
            .collect::<io::Result<_>>()
            .map_err(|error| Refusal::io("no random name space", &error))?,
    };
    Ok(format!("tutti-{}-{}-{}-{random}", launch.job, launch.number, launch.step))
}

/// The name space of the step that has spawned this one, whose environment it has.
fn inherited_space(launch: &Launch, parent: StepId) -> Option<String> {
    let random = value_of(launch, "TUTTI_PMIX_SPACE").filter(|text| is_space(text))?;
    let random = String::from_utf8_lossy(random);
    Some(format!("tutti-{}-{}-{parent}-{random}", launch.job, launch.number))
}

impl Job {
    /// Starts the PMIx server, if tasks are to find one.
    pub(super) fn start_pmix(&mut self, context: &mut Context) {
        if self.life.has_started()
            || self.life.is_killed()
            || self.program.is_err()
            || !is_wanted(&self.launch)
        {
            return;
        }
        context.mpi.far.be(self.part().node);
        match self.spawn_pmix(context) {
            Ok(pmix) => {
                self.pmix = Some(pmix);
                self.hear_held(context);
            }
            Err(refusal) => self.program = Err(refusal),
        }
    }

    fn spawn_pmix(&self, context: &mut Context) -> Result<Pmix, Refusal> {
        let identity = self.user_of_helper(context)?;
        let order = ToPmix::Order(self.pmix_order(identity, context)?);
        let tasks = self.launch.share.tasks.iter();
        let mut processors = ProcessorSet::new();
        tasks.for_each(|task| processors.union_with(&task.processors));
        let processors: Vec<u32> = processors.iter().collect();
        let start = Start {
            kind: Kind::Pmix,
            argv: &[CString::from(c"tutti"), CString::from(c"pmix-server")],
            environment: &[],
            umask: 0o077,
            processors: &processors,
            group: self.make_group_of_pmix(&processors, context),
            streams: Source::NONE,
        };
        Ok(Pmix {
            helper: Helper::start(start, &order, self.key(), context)?,
            session: Session::new(self.tasks.len(), self.launch.nodes.len() > 1),
            until_ns: Some(monotonic_ns() + READY_NS),
            is_awaited: false,
            parts: 0,
            fence: None,
            fence_bytes: 0,
        })
    }

    /// Its own group, beside that of its job. Without groups it has none, and only its limits as a
    /// process.
    fn make_group_of_pmix(&self, processors: &[u32], context: &Context) -> Option<(Cgroup, u64)> {
        let root =
            context.launching.cgroup_root.as_ref().filter(|_| self.cgroup.get().is_some())?;
        let name = layout::group_of_pmix(self.launch.id());
        let warn = |error: &dyn std::error::Error| {
            let job = self.key();
            warn!(code = %Code::GoesWithout, "the PMIx server of job {job}: {}", chain(error));
        };
        let made = Hierarchy::open(root)
            .map_err(|error| warn(&error))
            .and_then(|hierarchy| hierarchy.create(&name).map_err(|error| warn(&error)));
        let group = made.ok()?;
        let memory_bytes = self.memory_of_pmix();
        let limited = [
            group.set_memory_limit(memory_bytes).map(drop),
            group.set_process_limit(THREADS_MAX).map(drop),
            group.set_processor_quota(PROCESSORS_MAX),
            match processors {
                [] => Ok(()),
                some => group.set_processors(some).map(drop),
            },
        ];
        // A machine without a controller has the server's limits as a process.
        for error in limited.into_iter().filter_map(Result::err) {
            debug!("the PMIx server of job {}: {}", self.key(), chain(&error));
        }
        Some((group, memory_bytes))
    }

    /// The memory that the server may have.
    fn memory_of_pmix(&self) -> u64 {
        let here = u64::try_from(self.tasks.len()).unwrap_or(u64::MAX);
        let of_all = u64::from(self.launch.size).saturating_mul(MEMORY_BYTES_PER_TASK);
        let of_these = here.saturating_mul(MEMORY_BYTES_PER_TASK_HERE);
        MEMORY_BYTES.saturating_add(of_all).saturating_add(of_these)
    }

    fn pmix_order(
        &self,
        identity: Option<Credentials>,
        context: &Context,
    ) -> Result<PmixOrder, Refusal> {
        let launch = &self.launch;
        let directory = self.traces.directory_of_pmix().ok_or_else(|| {
            Refusal::new("the job has no directory for the files of a PMIx server".into())
        })?;
        let own = value_of(launch, "TUTTI_LIBPMIX").filter(|path| path.len() <= TEXT_BYTES_MAX);
        let libraries = own.into_iter().chain([&b"libpmix.so.2"[..]]);
        let is_read = |variable: &&ByteBuf| {
            variable.len() <= TEXT_BYTES_MAX
                && READ_BY_LIBRARY.iter().any(|start| variable.starts_with(start))
        };
        let environment = launch.spec.environment.iter().filter(is_read).take(TEXTS_MAX);
        Ok(PmixOrder {
            space: self.pmix_space(context)?,
            libraries: libraries.map(ByteBuf::from).collect(),
            directory: ByteBuf::from(directory.as_os_str().as_bytes()),
            identity,
            environment: environment.cloned().collect(),
            memory_bytes: self.memory_of_pmix(),
        })
    }

    /// Whether tasks must not begin yet. They will, when the server is ready.
    pub(super) fn awaits_pmix(&mut self) -> bool {
        // Tasks without a program, because there will be no server, end with the reason.
        if self.program.is_err() {
            return false;
        }
        let Some(pmix) = self.pmix.as_mut().filter(|pmix| !pmix.session.is_ready()) else {
            return false;
        };
        pmix.is_awaited = true;
        true
    }

    /// What a task finds beside its other variables.
    pub(super) fn pmix_environment(&self, index: usize) -> Vec<CString> {
        let Some(pmix) = &self.pmix else { return Vec::new() };
        let own = pmix.session.environment(index).iter();
        // Those with a zero byte were refused.
        own.filter_map(|variable| without_zero_byte("", variable).ok()).collect()
    }

    /// How far a task is with its PMIx server.
    pub(super) fn pmix_state(&self, index: usize) -> TaskState {
        self.pmix.as_ref().map_or(TaskState::Silent, |pmix| pmix.session.state(index))
    }

    /// The server has said something, or takes more.
    pub(super) fn on_pmix(&mut self, context: &mut Context) {
        self.hear_pmix(HEARD_AT_ONCE, context);
    }

    /// Takes in so many messages at most. The last words of one that has ended are heard whole.
    pub(super) fn hear_pmix(&mut self, most: usize, context: &mut Context) {
        let Some(Pmix { helper, .. }) = &mut self.pmix else { return };
        // What is there already comes first: no more than that is kept.
        let has_more = helper.has_more() && most == HEARD_AT_ONCE;
        let Some(link) = helper.link() else { return };
        let received = if has_more { Ok(()) } else { link.receive() };
        let mut count = 0;
        while count < most {
            count += 1;
            let Some(Pmix { helper, session, .. }) = &mut self.pmix else { return };
            let Some(link) = helper.link() else { return };
            let heard = match link.next::<FromPmix>() {
                Ok(None) => break,
                Ok(Some(message)) => session.hear(message).map_err(|error| error.to_string()),
                Err(error) => Err(error.whole()),
            };
            match heard {
                Ok(heard) => {
                    self.on_heard(heard, context);
                    if self.life.is_killed() {
                        // Whatever else it says: each order to kill has its cost.
                        return self.drop_pmix_link(context);
                    }
                }
                Err(error) => {
                    return self
                        .fail_pmix(&format!("the PMIx server misbehaved: {error}"), context);
                }
            }
        }
        if let Some(pmix) = &mut self.pmix {
            pmix.helper.leave_more(count >= most);
        }
        if count >= most {
            context.mpi.unheard.insert((self.key(), None));
        }
        if received.is_err() && count < most {
            // Its end says why.
            return self.drop_pmix_link(context);
        }
        if let Some(abort) = self.waits_for_one_that_never_began() {
            self.abort(abort, context);
        }
        self.settle_pmix(context);
    }

    fn settle_pmix(&mut self, context: &Context) {
        if let Some(pmix) = &mut self.pmix {
            pmix.helper.settle(context);
        }
    }

    fn on_heard(&mut self, heard: Heard, context: &mut Context) {
        match heard {
            Heard::Nothing => {}
            Heard::Ready => {
                let Some(pmix) = &mut self.pmix else { return };
                pmix.until_ns = None;
                let failed = pmix.session.failed();
                self.send_failed(failed, context);
                self.enter_hub(context);
                let Some(pmix) = &mut self.pmix else { return };
                if std::mem::take(&mut pmix.is_awaited) && !self.life.is_killed() {
                    self.start(context);
                }
            }
            Heard::Failed(reason) => self.fail_pmix(&reason, context),
            Heard::Abort { task, code, message } => {
                self.abort(Abort { index: task, code, message }, context);
            }
            Heard::FencePart { is_last, data } => self.on_fence_part(is_last, &data, context),
            Heard::Ask { number, task, ask } => self.on_ask((number, task), ask, context),
            Heard::Fetched { number, data } => self.on_fetched(number, data, context),
        }
    }

    /// Ranks have failed that the others are to know of. Each is passed on once.
    pub(super) fn name_failed(&mut self, ranks: &[Rank], context: &Context) {
        let Some(pmix) = &mut self.pmix else { return };
        let new = pmix.session.fail(ranks.iter().map(|rank| rank.0));
        if pmix.session.is_ready() {
            self.send_failed(new, context);
        }
    }

    fn send_failed(&mut self, ranks: Vec<u32>, context: &Context) {
        let Some(pmix) = &mut self.pmix else { return };
        if let Some(link) = pmix.helper.link() {
            for ranks in ranks.chunks(FAILED_AT_ONCE) {
                link.send(&ToPmix::RanksFailed { ranks: ranks.to_vec() });
            }
        }
        self.settle_pmix(context);
    }

    /// A part of what this node says in a fence. It goes the way of a PMI barrier's values.
    fn on_fence_part(&mut self, is_last: bool, data: &[u8], context: &mut Context) {
        let node = self.launch.share.node_rank;
        let Some(pmix) = &mut self.pmix else { return };
        // A fence follows when the answer to the one before has been read: what waits to be written
        // can't grow. Answers to requests may wait, too.
        if pmix.helper.link().is_some_and(|link| link.unsent() > UNREAD_BYTES_MAX) {
            let reason = "the PMIx server misbehaved: it asks again before it has read the answer";
            return self.fail_pmix(reason, context);
        }
        let part = pmix.parts;
        pmix.parts = if is_last { 0 } else { part.saturating_add(1) };
        let Some(fence) = self.store_fence((node, part), data, is_last, context) else { return };
        if let Some(pmix) = &mut self.pmix {
            pmix.fence = Some(fence);
        }
    }

    /// Passes on what all nodes have said in the fence that waits, once they all have.
    pub(super) fn answer_fence(&mut self, context: &mut Context) {
        let Some(fence) = self.pmix.as_ref().and_then(|pmix| pmix.fence) else { return };
        let Some(said) = self.take_fence(fence) else { return };
        let Some(pmix) = &mut self.pmix else { return };
        pmix.fence = None;
        pmix.session.end_fence();
        pmix.fence_bytes = said.iter().map(|said| said.len()).sum();
        if let Some(link) = pmix.helper.link() {
            for piece in said.iter().flat_map(|said| said.chunks(FENCE_PART_BYTES)) {
                link.send(&ToPmix::Fenced { is_last: false, data: ByteBuf::from(piece) });
            }
            link.send(&ToPmix::Fenced { is_last: true, data: ByteBuf::new() });
        }
        self.settle_pmix(context);
    }

    /// There is no service: tasks that have not begun end with the reason; otherwise the job does.
    fn fail_pmix(&mut self, reason: &str, context: &mut Context) {
        self.drop_pmix_link(context);
        let Some(pmix) = &mut self.pmix else { return };
        pmix.until_ns = None;
        let is_awaited = std::mem::take(&mut pmix.is_awaited);
        pmix.helper.kill();
        let reason = Code::OpenMpi.mark(reason);
        if self.life.has_started() {
            let lives =
                |task: &Task| !task.has_ended() && !matches!(task.phase, Phase::Ending { .. });
            if let Some(index) =
                self.tasks.iter().position(lives).filter(|_| !self.life.is_killed())
            {
                self.abort(Abort { index, code: 1, message: reason }, context);
            }
            return;
        }
        self.program = Err(Refusal::new(reason));
        if is_awaited {
            // Each ends with the reason.
            self.start(context);
        }
    }

    fn drop_pmix_link(&mut self, context: &mut Context) {
        self.leave_hub(context);
        if let Some(pmix) = &mut self.pmix {
            pmix.helper.drop_link(context);
        }
    }

    /// All tasks have ended: the server does. Whether it has.
    pub(super) fn end_pmix_server(&mut self, context: &mut Context) -> bool {
        self.drop_pmix_link(context);
        let Some(pmix) = &self.pmix else { return true };
        pmix.helper.kill();
        !pmix.helper.is_there()
    }

    /// A process was reaped that was started as a server of this job.
    pub(super) fn on_pmix_reaped(
        &mut self,
        pid: i32,
        end: End,
        usage: &Usage,
        context: &mut Context,
    ) {
        let Some(pmix) = self.pmix.as_mut().filter(|pmix| pmix.helper.is_its(pid)) else {
            // It was that of an earlier launch.
            return;
        };
        let reason = pmix.helper.end(end);
        self.count_helper(usage);
        // What it has said last may be a better reason.
        self.hear_pmix(usize::MAX, context);
        let has_failed = self.program.is_err() || self.life.is_killed();
        if !has_failed && !self.tasks.iter().all(Task::has_ended) {
            self.fail_pmix(&reason, context);
        }
        self.clear_if_ended(context);
        context.touched.insert(self.key());
    }

    /// When the server counts as stuck, if it may.
    pub(super) fn pmix_due_ns(&self) -> Option<u64> {
        self.pmix.as_ref()?.until_ns
    }

    /// A server that is not ready in time is ended, and the tasks with it.
    pub(super) fn look_at_pmix(&mut self, now_ns: u64, context: &mut Context) {
        if self.pmix_due_ns().is_some_and(|at_ns| at_ns <= now_ns) {
            self.fail_pmix("the PMIx server was not ready in time; the library hangs", context);
        }
    }
}
