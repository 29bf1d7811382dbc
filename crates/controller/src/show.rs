//! One job by its number: what `tutti show` and `tutti logs` ask for.

use super::driver::Driver;
use super::error::Problem;
use super::events::event_nodes;
use super::jobs::{Ended, Entry};
use super::node_queries::OutputPlace;
use super::report::{self, comes_back, first_word, state_word};
use super::requests::Forbidden;
use tutti_core::PlacementView;
use tutti_journal::{Details, EndedJob};
use tutti_node::codes::code_of;
use tutti_node::output_files::{Stream, files_of};
use tutti_node::platform::time::wall_ms;
use tutti_types::{JobId, JobSpec, NodeId};
use tutti_wire::code::Code;
use tutti_wire::frame::encoded_len;
use tutti_wire::history::Ending;
use tutti_wire::launch::{LaunchSpec, cut};
use tutti_wire::limits::{NAME_BYTES_MAX, SHOWN_LIST_BYTES_MAX, SHOWN_NODES_MAX, STORED_NODES_MAX};
use tutti_wire::local::Reply;
use tutti_wire::output::{OutputFile, OutputFrom};
use tutti_wire::report::JobReport;
use tutti_wire::show::{Asked, JobDetails, NodeShare, ShowReport, StateLog, shown_command};
use tutti_wire::tree::Question;

/// Nanoseconds of a millisecond.
const MS: u64 = 1_000_000;

/// What is kept of a live job for `tutti show` alone.
#[derive(Default)]
pub(super) struct Shown {
    /// What it asked for.
    asked: Asked,
    /// Its nodes, since its latest start.
    nodes: Vec<NodeShare>,
    /// How many nodes are left out behind those.
    nodes_left_out: u32,
    /// Its states, as far as this controller knows.
    states: StateLog,
}

impl Shown {
    /// It is in line again: its former nodes are not its nodes any more.
    pub(super) fn begin_anew(&mut self) {
        self.nodes = Vec::new();
        self.nodes_left_out = 0;
        if !self.states.is_latest("checkpointed") {
            self.states.note("queued", wall_ms());
        }
    }

    /// How many nodes it asked for, if it named a number.
    pub(super) const fn asked_nodes(&self) -> Option<u32> {
        self.asked.nodes
    }

    /// It is in another state, for which there is another event.
    pub(super) fn note(&mut self, state: &'static str) {
        self.states.note(state, wall_ms());
    }

    /// It is asked to end, or killed; whether it was not before.
    fn note_ending(&mut self) -> bool {
        self.states.note("ending", wall_ms())
    }
}

impl Driver {
    /// What is kept of a job that is accepted now.
    pub(super) fn shown_of(&self, job: JobId, spec: &JobSpec, accepted_ms: u64) -> Shown {
        let names = |nodes: &mut dyn Iterator<Item = NodeId>| {
            // More names than fit are cut off.
            let some = nodes.take(SHOWN_LIST_BYTES_MAX).map(|node| self.node_name(node));
            cut(some.collect::<Vec<_>>().join(","), SHOWN_LIST_BYTES_MAX)
        };
        let wish = &spec.nodes;
        let asked = Asked {
            processors_per_task: spec.processors_per_task,
            memory_per_task_bytes: spec.memory_per_task_bytes,
            deadline_ms: spec.deadline.map(|deadline| deadline.0 / MS),
            grace_ms: spec.grace.0 / MS,
            nodes: wish.count,
            only: wish.among.as_ref().map(|among| names(&mut among.iter().copied())),
            exclude: (!wish.except.is_empty()).then(|| names(&mut wish.except.iter().copied())),
            spread: wish.spread,
            exclusive: wish.exclusive,
            on_bad_exit: spec.on_bad_exit,
            on_node_loss: spec.on_node_loss,
            no_requeue: self.core.runs_once(job),
        };
        let mut shown = Shown { asked, ..Shown::default() };
        shown.states.note("queued", accepted_ms);
        shown
    }

    /// The same of a job that an earlier controller accepted, and perhaps started.
    pub(super) fn shown_again(&self, job: JobId, entry: &Entry) -> Shown {
        let Some(view) = self.core.job(job, self.now()) else { return Shown::default() };
        let mut shown = self.shown_of(job, view.spec, entry.times.accepted_ms);
        if let Some(started) = entry.times.started {
            shown.states.note("running", entry.times.moment_ms(started));
        }
        shown.states.note(lasting(state_word(&view)), wall_ms());
        self.note_nodes(job, &mut shown, &view.placements);
        shown
    }

    /// A job was launched here.
    pub(super) fn note_launched(&mut self, job: JobId) {
        self.note_places(job);
        let Some(entry) = self.jobs.remove(&job) else { return };
        let (nodes, left_out) = event_nodes(&entry.shown.nodes);
        let left_out = left_out.saturating_add(entry.shown.nodes_left_out);
        self.jobs.insert(job, entry);
        self.job_started(job, nodes, left_out);
    }

    /// Keeps for readers where a job is, and in which state.
    pub(super) fn note_places(&mut self, job: JobId) {
        let Some(mut entry) = self.jobs.remove(&job) else { return };
        if let Some(view) = self.core.job(job, self.now()) {
            entry.shown.states.note(lasting(state_word(&view)), wall_ms());
            self.note_nodes(job, &mut entry.shown, &view.placements);
        }
        self.jobs.insert(job, entry);
    }

    fn note_nodes(&self, job: JobId, shown: &mut Shown, placements: &[PlacementView]) {
        let devices_of = |node| {
            let ids = self.core.devices_of(job, node);
            ids.iter().map(ToString::to_string).collect()
        };
        let share = |placed: &PlacementView| NodeShare {
            node: self.node_name(placed.node),
            processors: placed.processors.to_string(),
            tasks: placed.tasks,
            devices: devices_of(placed.node),
        };
        shown.nodes = placements.iter().take(SHOWN_NODES_MAX).map(share).collect();
        shown.nodes_left_out = left_out(placements.len(), SHOWN_NODES_MAX);
    }

    /// A job is asked to end on a node, or killed there.
    pub(super) fn note_ending(&mut self, job: JobId) {
        if let Some(entry) = self.jobs.get_mut(&job)
            && entry.shown.note_ending()
        {
            self.job_state(job, "ending");
        }
    }

    /// Something happened that may have changed a job's state.
    pub(super) fn note_state(&mut self, job: JobId) {
        let view = self.core.job(job, self.now()).filter(|view| !comes_back(view));
        let state = view.map(|view| lasting(state_word(&view)));
        if let (Some(state), Some(entry)) = (state, self.jobs.get_mut(&job))
            && entry.shown.states.note(state, wall_ms())
        {
            self.job_state(job, state);
        }
    }

    pub(super) fn on_show(&mut self, token: u64, uid: u32, job: JobId, environment: bool) {
        let shown = match self.entry(job).is_some() {
            true => self.show_live(uid, job, environment),
            false => self.show_ended(uid, job, environment),
        };
        match shown {
            Ok(report) => self.reply(token, &Reply::Show(Box::new(report))),
            Err(problem) => self.fail(token, problem),
        }
    }

    /// A page of the jobs that have not ended, from this one on.
    pub(super) fn on_show_all(&mut self, token: u64, uid: u32, from: JobId) {
        let all = report::live_from(self, from);
        let shown = all.filter_map(|report| self.show_reported(uid, report, false).ok());
        let (jobs, left_out) = report::first_page(shown, encoded_len);
        let next = left_out.map(|it| it.job.job);
        self.reply(token, &Reply::ShownJobs { jobs, next });
    }

    fn show_live(&self, uid: u32, job: JobId, environment: bool) -> Result<ShowReport, Problem> {
        let report = report::live(self, job).ok_or(Forbidden::NoJob(job))?;
        self.show_reported(uid, report, environment)
    }

    /// A job that has not ended, of which this is what tables show.
    fn show_reported(
        &self,
        uid: u32,
        report: JobReport,
        environment: bool,
    ) -> Result<ShowReport, Problem> {
        let job = report.job;
        let entry = self.entry(job).ok_or(Forbidden::NoJob(job))?;
        let is_theirs = may_see(uid, entry.owner.uid(), &report, environment)?;
        let launch = entry.terms.whole_launch().filter(|_| is_theirs);
        Ok(ShowReport {
            job: report,
            accepted_ms: entry.times.accepted_ms,
            started_ms: entry.times.started.map(|started| entry.times.moment_ms(started)),
            ended_ms: None,
            ending: None,
            details: launch.as_ref().map(|launch| {
                let (after, after_one) = self.core.waits_after(job).unwrap_or_default();
                let word = |it: &tutti_types::After| format!("{}:{}", it.job, it.what);
                let after = after.iter().map(word).collect();
                Box::new(JobDetails { after, after_one, ..details_of(entry, launch) })
            }),
            environment: launch.filter(|_| environment).map(|launch| launch.environment),
            steps: if is_theirs { self.steps_of(job) } else { Vec::new() },
            front_end: entry.clients.front().map(|token| self.machine_of(token)),
            processors_in_use: self.processors_in_use(job),
            shares_devices_with: self.core.shares_devices_with(job),
        })
    }

    /// How many processors a job has at present.
    fn processors_in_use(&self, job: JobId) -> u32 {
        let Some(view) = self.core.job(job, self.now()) else { return 0 };
        match state_word(&view) {
            "running" | "ending" | "checkpointing" => {
                view.placements.iter().map(|placed| placed.processors.count()).sum()
            }
            _ => 0,
        }
    }

    /// A piece of an output file, which the node that has it reads.
    pub(super) fn on_read_output(
        &mut self,
        token: u64,
        uid: u32,
        file: OutputFile,
        from: OutputFrom,
    ) {
        let place = match self.pending.questions.ended_output(uid, file) {
            Some(known) => Ok(known),
            None => self.output_place(uid, file),
        };
        let OutputPlace { node, owner, path } = match place {
            Ok(place) => place,
            Err(problem) => return self.fail(token, problem),
        };
        let Some(node) = self.core.nodes().find(|it| it.spec.name == node).map(|it| it.id) else {
            let reason = format!("node {node} is not in the cluster");
            return self.fail(token, Problem::new(Code::NoOutput, reason));
        };
        self.ask(token, &[node], &Question::Output { path: path.into(), uid: owner, from });
    }

    /// The node that has an output file, the user with whose rights it is read, and its path.
    fn output_place(&mut self, uid: u32, file: OutputFile) -> Result<OutputPlace, Problem> {
        let OutputFile { job, rank, error } = file;
        let live = self.entry(job).map(|entry| entry.owner.uid());
        let (owner, shown) = match live {
            Some(owner) => (owner, self.show_live(uid, job, false)?),
            None => self.show_ended_with_owner(uid, job, false)?,
        };
        let Some(details) = &shown.details else {
            return Err(Forbidden::NotYours(job, shown.job.user).into());
        };
        let stream = if error { Stream::Error } else { Stream::Output };
        let files = files_of(&shown.job, details, stream, Some(rank.0))
            .map_err(|error| Problem::new(code_of(&error), format!("{error:#}")))?;
        let Some(found) = files.into_iter().next() else {
            let reason = format!("the node of rank {rank} of job {job} is not known");
            return Err(Problem::new(Code::NoOutput, reason));
        };
        let path = found.path.into_os_string().into_encoded_bytes();
        let place = OutputPlace { node: found.node, owner, path };
        if live.is_none() {
            self.pending.questions.note_ended_output(uid, file, place.clone());
        }
        Ok(place)
    }

    fn show_ended(
        &mut self,
        uid: u32,
        job: JobId,
        environment: bool,
    ) -> Result<ShowReport, Problem> {
        self.show_ended_with_owner(uid, job, environment).map(|(_, report)| report)
    }

    fn show_ended_with_owner(
        &mut self,
        uid: u32,
        job: JobId,
        environment: bool,
    ) -> Result<(u32, ShowReport), Problem> {
        // Its end may not be stored yet.
        self.store();
        let found = self.memory.journal.ended_details(job);
        self.say_left_out();
        if let Some((ended, details)) = found? {
            return Ok((ended.uid, ended_report(uid, ended, details, environment)?));
        }
        // It could not be stored.
        let ended = self.ends.ended.get(job).ok_or(Forbidden::NoJob(job))?;
        may_see(uid, ended.uid, &ended.report, environment)?;
        Ok((ended.uid, report_of(ended, None)))
    }
}

/// A job that has ended, as this user may see it.
pub(super) fn ended_report(
    uid: u32,
    ended: EndedJob,
    details: Option<Details>,
    environment: bool,
) -> Result<ShowReport, Problem> {
    let is_theirs = may_see(uid, ended.uid, &ended.report, environment)?;
    let mut report = report_of(&Ended::from(ended), details);
    if !is_theirs {
        report.details = None;
        report.steps.clear();
    }
    Ok(report)
}

fn report_of(ended: &Ended, details: Option<Details>) -> ShowReport {
    let (details, steps) = details.map(|it| (it.job, it.steps)).unzip();
    let has_started =
        details.as_ref().is_some_and(|details: &JobDetails| !details.nodes.is_empty());
    let age_s = wall_ms().saturating_sub(ended.accepted_ms) / 1000;
    ShowReport {
        job: JobReport { age_s, ..ended.report.clone() },
        accepted_ms: ended.accepted_ms,
        started_ms: has_started.then(|| ended.accepted_ms.saturating_add(ended.report.waited_ms)),
        ended_ms: Some(ended.ended_ms),
        ending: Some(Ending::of(ended.outcome)),
        details: details.map(Box::new),
        environment: None,
        steps: steps.unwrap_or_default(),
        front_end: None,
        processors_in_use: 0,
        shares_devices_with: Vec::new(),
    }
}

/// Whether a user may see more of a job than all users; its environment only on that condition.
fn may_see(uid: u32, owner: u32, report: &JobReport, environment: bool) -> Result<bool, Forbidden> {
    let is_theirs = uid == 0 || uid == owner;
    match environment && !is_theirs {
        true => Err(Forbidden::NotYours(report.job, report.user.clone())),
        false => Ok(is_theirs),
    }
}

fn details_of(entry: &Entry, launch: &LaunchSpec) -> JobDetails {
    let (command, command_left_out) = shown_command(launch);
    let (states, states_left_out) = entry.shown.states.shown();
    let is_user = |text: &&serde_bytes::ByteBuf| text.starts_with(b"USER=");
    let user = launch.environment.iter().find(is_user);
    let user = user.map(|text| String::from_utf8_lossy(&text[b"USER=".len()..]).into_owned());
    let user = user.map(|user| cut(user, NAME_BYTES_MAX));
    JobDetails {
        command,
        command_left_out,
        script_bytes: launch.script.as_ref().map(|script| script.len() as u64),
        directory: launch.directory.clone(),
        stdio: launch.stdio.clone(),
        user_in_names: user.unwrap_or_else(|| entry.owner.uid().to_string()),
        processes_max: launch.processes_max,
        nice: launch.nice,
        asked: entry.shown.asked.clone(),
        nodes: entry.shown.nodes.clone(),
        nodes_left_out: entry.shown.nodes_left_out,
        requeues: entry.requeues,
        after: Vec::new(),
        after_one: false,
        states,
        states_left_out,
        queue: entry.terms.queue.clone(),
        first: first_word(entry.terms.first).into(),
        slots: entry.terms.slots,
        checkpoint: entry.saving.report().cloned(),
    }
}

/// What is stored of a job that ends now.
pub(super) fn details_to_store(entry: &mut Entry) -> Option<Details> {
    entry.shown.states.note("ended", wall_ms());
    let mut job = details_of(entry, &entry.terms.whole_launch()?);
    job.nodes_left_out += left_out(job.nodes.len(), STORED_NODES_MAX);
    job.nodes.truncate(STORED_NODES_MAX);
    Some(Details { job, steps: entry.steps.take_ended().into() })
}

fn left_out(count: usize, most: usize) -> u32 {
    u32::try_from(count.saturating_sub(most)).unwrap_or(u32::MAX)
}

/// The state that this one leads to at once: a preempted job is suspended in place.
fn lasting(state: &'static str) -> &'static str {
    match state {
        "preempting" => "preempted",
        "resuming" => "running",
        other => other,
    }
}
