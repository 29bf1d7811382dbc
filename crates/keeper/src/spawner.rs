//! Spawners: processes of the job's user that serve `MPI_Comm_spawn`.
//!
//! A task asks its PMI server for further tasks. The keeper starts a spawner, which asks the
//! controller for a step as `tutti run` inside the job does, and is the front end of that step
//! ([`tutti_wire::spawn`]). What the step writes goes where the output of the task goes that asked
//! for it. So the end of that task's output waits for the spawner.
//!
//! A spawner is no process of the job's group: a switch stops the step, and not its output. It ends
//! with its step. When the job was killed, it has a moment for the last of the output.

use super::context::Context;
use super::helper::{Helper, Kind, Start};
use super::job::Job;
use super::pmix;
use super::program::{Refusal, without_zero_byte};
use super::start::Source;
use nix::libc;
use serde_bytes::ByteBuf;
use std::collections::BTreeSet;
use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use tutti_linux::inherited::Inherited;
use tutti_linux::reap::End;
use tutti_node::platform::time::monotonic_ns;
use tutti_types::{Rank, StepId, StepKey};
use tutti_wire::attach::Stream;
use tutti_wire::handover::HandedSpawner;
use tutti_wire::launch::{Credentials, InputTo, LaunchSpec, Stdio, Usage, cut};
use tutti_wire::limits::{NAME_BYTES_MAX, SPAWNS_PER_STEP_MAX};
use tutti_wire::pmix::Refused;
use tutti_wire::spawn::{SpawnAnswer, SpawnOrder, Spawned};

/// How long spawners have for the output of a job that was killed.
const LAST_OUTPUT_NS: u64 = 5_000_000_000;

/// A spawner.
#[derive(Debug)]
pub(super) struct Spawner {
    helper: Helper,
    /// Tells it from the others of its job.
    number: u32,
    /// The place of the task that has asked for it.
    task: usize,
    is_answered: bool,
    /// The number of the request, where the task has asked by PMIx.
    asked: Option<u32>,
    /// The step that it has started.
    child: Option<StepId>,
}

impl Spawner {
    /// What another program must know to go on with it.
    fn hand_over(&self) -> HandedSpawner {
        HandedSpawner {
            helper: self.helper.hand_over(),
            number: self.number,
            task: u32::try_from(self.task).unwrap_or(u32::MAX),
            is_answered: self.is_answered,
            asked: self.asked,
            child: self.child,
        }
    }

    /// Goes on with one of another program.
    ///
    /// # Errors
    /// If a descriptor of it was not left.
    fn take_over(
        handed: HandedSpawner,
        job: StepKey,
        context: &mut Context,
        inherited: &mut Inherited,
    ) -> io::Result<Self> {
        let HandedSpawner { helper, number, task, is_answered, asked, child } = handed;
        let kind = Kind::Spawner(number);
        let helper = Helper::take_over(helper, (kind, job), context, inherited)?;
        Ok(Self { helper, number, task: task as usize, is_answered, asked, child })
    }
}

/// What serves the tasks that the tasks of a job have spawned.
#[derive(Default)]
pub(super) struct Spawners {
    all: Vec<Spawner>,
    /// When they are killed.
    until_ns: Option<u64>,
}

impl Spawners {
    pub(super) const fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    fn next_number(&self) -> u32 {
        self.all.iter().map(|it| it.number + 1).max().unwrap_or(0)
    }

    /// The job was killed, and nothing is left of its tasks: they have some time to end.
    pub(super) fn hurry(&mut self) {
        self.until_ns = Some(monotonic_ns() + LAST_OUTPUT_NS);
    }

    /// When they are killed, if they are to be.
    pub(super) fn due_ns(&self) -> Option<u64> {
        self.until_ns.filter(|_| !self.all.is_empty())
    }

    /// Kills those that do not end.
    pub(super) fn look(&mut self, now_ns: u64) {
        if self.due_ns().is_some_and(|at_ns| at_ns <= now_ns) {
            self.until_ns = None;
            self.all.iter().for_each(|spawner| spawner.helper.kill());
        }
    }

    /// Nothing is to be known of the job any more.
    pub(super) fn drop_all(&mut self, context: &mut Context) {
        for mut spawner in self.all.drain(..) {
            spawner.helper.drop_link(context);
            spawner.helper.kill();
        }
    }

    /// What another program must know to go on with them.
    pub(super) fn hand_over(&self) -> Vec<HandedSpawner> {
        self.all.iter().map(Spawner::hand_over).collect()
    }

    /// Goes on with those of another program.
    ///
    /// # Errors
    /// If a descriptor of them was not left.
    pub(super) fn take_over(
        handed: Vec<HandedSpawner>,
        job: StepKey,
        context: &mut Context,
        inherited: &mut Inherited,
    ) -> io::Result<Self> {
        let take = |spawner| Spawner::take_over(spawner, job, context, inherited);
        let all = handed.into_iter().map(take).collect::<io::Result<_>>()?;
        Ok(Self { all, until_ns: None })
    }
}

impl Job {
    /// A task wants more tasks started, with these variables beside its own. `asked`: the number of
    /// its request, if it asks by PMIx.
    pub(super) fn spawn_tasks(
        &mut self,
        task: usize,
        what: (Spawned, Vec<ByteBuf>),
        asked: Option<u32>,
        context: &mut Context,
    ) {
        let made = match self.objection_to_spawn() {
            Some(reason) => Err(reason),
            None => self.start_spawner((task, asked), what, context).map_err(|it| it.detail),
        };
        match made {
            Ok(spawner) => self.spawners.all.push(spawner),
            Err(reason) => self.refuse_spawn((task, asked), &reason, context),
        }
    }

    /// The step and the rank that tasks which this one spawns have as their parent.
    pub(super) fn parent_of(&self, task: usize) -> Option<(StepId, Rank)> {
        self.tasks.get(task).map(|task| (self.launch.step, task.rank))
    }

    fn refuse_spawn(
        &mut self,
        (task, asked): (usize, Option<u32>),
        reason: &str,
        context: &mut Context,
    ) {
        match asked {
            Some(number) => pmix::refuse((self.part(), number), Refused::NoRoom, context),
            None => self.answer_spawn(task, Some(reason), context),
        }
    }

    fn objection_to_spawn(&self) -> Option<String> {
        if self.life.is_killed() {
            return Some("the job is ending".into());
        }
        (self.spawners.all.len() >= SPAWNS_PER_STEP_MAX)
            .then(|| format!("at most {SPAWNS_PER_STEP_MAX} spawns of a step run at a time"))
    }

    fn start_spawner(
        &self,
        (task, asked): (usize, Option<u32>),
        (spawned, environment): (Spawned, Vec<ByteBuf>),
        context: &mut Context,
    ) -> Result<Spawner, Refusal> {
        let identity = self.user_of_helper(context)?;
        let order = self.spawn_order(spawned, environment, identity);
        let number = self.spawners.next_number();
        let streams = self.streams_of_spawner(task)?;
        let directory = context.launching.directory.as_os_str().as_bytes();
        let directory = [b"TUTTI_DIR=", directory].concat();
        let start = Start {
            kind: Kind::Spawner(number),
            argv: &[CString::from(c"tutti"), CString::from(c"spawner")],
            environment: &[without_zero_byte("the state directory", &directory)?],
            umask: self.launch.spec.umask & 0o777,
            processors: &[],
            group: None,
            streams,
        };
        let helper = Helper::start(start, &order, self.key(), context)?;
        Ok(Spawner { helper, number, task, is_answered: false, asked, child: None })
    }

    fn spawn_order(
        &self,
        spawned: Spawned,
        environment: Vec<ByteBuf>,
        identity: Option<Credentials>,
    ) -> SpawnOrder {
        let launch = &self.launch;
        let first = spawned.programs.first().and_then(|program| program.argv.first());
        let path = first.map_or(&b""[..], |path| path);
        let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        let name_of = |variable: &ByteBuf| {
            let end = variable.iter().position(|byte| *byte == b'=').unwrap_or(variable.len());
            variable[..end].to_vec()
        };
        let own: BTreeSet<Vec<u8>> = environment.iter().map(name_of).collect();
        let inherited = launch.spec.environment.iter().filter(|it| !own.contains(&name_of(it)));
        SpawnOrder {
            job: launch.job,
            step: launch.step,
            identity,
            launch: LaunchSpec {
                environment: inherited.cloned().chain(environment).collect(),
                name: cut(String::from_utf8_lossy(name).into_owned(), NAME_BYTES_MAX),
                argv: Vec::new(),
                script: None,
                stdio: Stdio::FrontEnd { input: InputTo::Nobody },
                adopt: Vec::new(),
                ..launch.spec.clone()
            },
            spawned,
            may_wait: !self.spawners.is_empty(),
        }
    }

    /// Where the output of what a task spawns goes: where its own does.
    fn streams_of_spawner(&self, index: usize) -> Result<[Source; 3], Refusal> {
        let task = &self.tasks[index];
        if let Some(terminal) = &task.terminal {
            let end = || terminal.slave().map_or(Ok(Source::Null), |end| end.map(Source::Pipe));
            let failed = |error| Refusal::io("cannot share the terminal", &error);
            let ends = end().and_then(|output| Ok([Source::Null, output, end()?]));
            return ends.map_err(failed);
        }
        let end = |stream: Stream| {
            let pipe = match stream {
                Stream::Output => task.output.as_ref(),
                Stream::Error => task.error.as_ref(),
            };
            let failed = |error| Refusal::io("cannot share the output", &error);
            let end = pipe.map_or(Ok(Source::Null), |it| it.open_to_write().map(Source::Pipe));
            end.map_err(failed)
        };
        let written = self.launch.written();
        let Stdio::Files { output, error, .. } = &self.launch.spec.stdio else {
            return Ok([Source::Null, end(Stream::Output)?, end(Stream::Error)?]);
        };
        let file = |pattern: &[u8]| {
            let path = without_zero_byte("a file's name", &self.file_name(index, pattern)?)?;
            let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_APPEND;
            Ok(Source::File { path, flags })
        };
        let error = match error.as_ref().filter(|error| *error != output) {
            _ if written.error => end(Stream::Error)?,
            Some(error) => file(error)?,
            None => Source::Stdout,
        };
        let output = if written.output { end(Stream::Output)? } else { file(output)? };
        Ok([Source::Null, output, error])
    }

    /// A spawner has said what became of its order.
    pub(super) fn on_spawner(&mut self, number: u32, context: &mut Context) {
        let found = self.spawners.all.iter_mut().find(|spawner| spawner.number == number);
        let Some(spawner) = found else { return };
        spawner.helper.settle(context);
        let Some(link) = spawner.helper.link() else { return };
        let received = link.receive();
        let answer = match link.next::<SpawnAnswer>() {
            Ok(Some(SpawnAnswer::Started { step })) => Ok(step),
            Ok(Some(SpawnAnswer::Refused { reason })) => Err(reason),
            // Its end says why.
            Ok(None) if received.is_ok() => return,
            Ok(None) | Err(_) => return spawner.helper.drop_link(context),
        };
        spawner.helper.drop_link(context);
        if std::mem::replace(&mut spawner.is_answered, true) {
            return;
        }
        spawner.child = answer.as_ref().ok().copied();
        let (task, asked) = (spawner.task, spawner.asked);
        match (answer, asked) {
            (Err(reason), _) => self.refuse_spawn((task, asked), &reason, context),
            (Ok(_), None) => self.answer_spawn(task, None, context),
            (Ok(step), Some(number)) => self.await_child(number, step, context),
        }
    }

    /// A process was reaped that was started as a spawner of this job.
    pub(super) fn on_spawner_reaped(
        &mut self,
        pid: i32,
        (end, usage): (End, &Usage),
        context: &mut Context,
    ) {
        let spawners = &self.spawners.all;
        let Some(at) = spawners.iter().position(|spawner| spawner.helper.is_its(pid)) else {
            return;
        };
        // Its answer may have come just before.
        let number = spawners[at].number;
        self.on_spawner(number, context);
        let mut spawner = self.spawners.all.remove(at);
        spawner.helper.drop_link(context);
        let reason = spawner.helper.end(end);
        self.count_helper(usage);
        if !spawner.is_answered {
            self.refuse_spawn((spawner.task, spawner.asked), &reason, context);
        }
        // It ends with its step.
        if let Some(step) = spawner.child {
            self.fail_child(step, context);
        }
        self.deliver_end(spawner.task, context);
        context.touched.insert(self.key());
    }

    /// Whether what a task has spawned may still write to where it writes.
    pub(super) fn has_spawner(&self, task: usize) -> bool {
        self.spawners.all.iter().any(|spawner| spawner.task == task)
    }

    /// Nothing is left of the job's tasks. If they were killed, so is what they have spawned.
    pub(super) fn hurry_spawners(&mut self) {
        if self.life.is_killed() && !self.spawners.is_empty() {
            self.spawners.hurry();
        }
    }
}
