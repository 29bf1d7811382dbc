//! The writer of a job: a process of its user that writes the files which several tasks share.
//!
//! Tasks that share a file write into pipes, as tasks of `tutti run` do. The writer attaches to the
//! keepers of all nodes whose output belongs into the file ([`Written`]), and writes whole lines.
//! It is a process of its own for three reasons: it opens files with its user's rights, a file
//! system that does not answer stops no other job, and it outlives an upgrade of the keeper.
//!
//! A job is cleared only when its writer has written everything. If the writer fails, the tasks
//! find their output closed, as with a program that reads a pipe and ends.

use super::context::Context;
use super::helper::{Helper, Kind, Start};
use super::job::{Job, Phase};
use super::outlet::Outlet;
use super::program::Refusal;
use super::start::Source;
use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use tutti_linux::inherited::Inherited;
use tutti_linux::reap::End;
use tutti_node::platform::time::monotonic_ns;
use tutti_types::StepKey;
use tutti_wire::attach::{FromFrontEnd, ToFrontEnd};
use tutti_wire::handover::HandedWriter;
use tutti_wire::keeper::FromKeeper;
use tutti_wire::launch::{Stdio, Written, cut};
use tutti_wire::limits::TASK_DETAIL_BYTES_MAX;
use tutti_wire::writer::WriterOrder;

/// How long the writer of a job that was killed may take for each piece before it counts as stuck.
const STUCK_NS: u64 = if cfg!(test) { 500_000_000 } else { 10_000_000_000 };

/// The writer of a job on this node.
#[derive(Debug)]
pub(super) struct Writer {
    /// Its process. Its connection is the helper's until it attaches: then it is the job's front
    /// end.
    helper: Helper,
    /// When it counts as stuck. Set when the job is killed.
    stuck_at_ns: Option<u64>,
    /// Whether it has written something since `stuck_at_ns` was set.
    has_written: bool,
    /// Whether it only tells other nodes that the one before it was killed.
    gives_up: bool,
}

impl Writer {
    /// What another program must know to go on with it.
    pub(super) fn hand_over(&self) -> HandedWriter {
        HandedWriter {
            helper: self.helper.hand_over(),
            stuck_at_ns: self.stuck_at_ns,
            has_written: self.has_written,
            gives_up: self.gives_up,
        }
    }

    /// Goes on with one of another program.
    ///
    /// # Errors
    /// If a descriptor of it was not left.
    pub(super) fn take_over(
        handed: HandedWriter,
        job: StepKey,
        context: &mut Context,
        inherited: &mut Inherited,
    ) -> io::Result<Self> {
        Ok(Self {
            helper: Helper::take_over(handed.helper, (Kind::Writer, job), context, inherited)?,
            stuck_at_ns: handed.stuck_at_ns,
            has_written: handed.has_written,
            gives_up: handed.gives_up,
        })
    }
}

/// The files that tasks share, of which a writer on this node or on another writes all.
#[derive(Default)]
pub(super) struct OutputFiles {
    /// The process that writes them, if that is to be on this node.
    writer: Option<Writer>,
    /// Until when the writer on another node may attach.
    until_ns: Option<u64>,
    /// Why they are not written, or not any more.
    failure: Option<String>,
    /// What of the job's output is not in them.
    lost: String,
}

impl OutputFiles {
    /// Those of a job that another program has had: its writer, and until when one may attach.
    pub(super) fn of_before(
        (writer, until_ns): (Option<Writer>, Option<u64>),
        failure: Option<String>,
        lost: String,
    ) -> Self {
        Self { writer, until_ns, failure, lost }
    }

    pub(super) const fn writer(&self) -> Option<&Writer> {
        self.writer.as_ref()
    }

    /// Until when the writer on another node may attach.
    pub(super) const fn until_ns(&self) -> Option<u64> {
        self.until_ns
    }

    /// From now on a writer on another node has time until then to attach.
    pub(super) const fn await_writer(&mut self, until_ns: u64) {
        self.until_ns = Some(until_ns);
    }

    /// Why they are not written, or not any more.
    pub(super) fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    /// What of the job's output is not in them.
    pub(super) fn lost(&self) -> &str {
        &self.lost
    }

    /// Whether all that the job's tasks have written is in them, as far as it will ever be.
    pub(super) fn are_written(&self) -> bool {
        self.writer.as_ref().is_none_or(|writer| !writer.helper.is_there())
    }

    /// The writer has written something.
    pub(super) const fn note_progress(&mut self) {
        if let Some(writer) = &mut self.writer {
            writer.has_written = true;
        }
    }

    /// When the writer counts as stuck, if it may.
    pub(super) fn stuck_at_ns(&self) -> Option<u64> {
        self.writer.as_ref().filter(|writer| writer.helper.is_there())?.stuck_at_ns
    }

    /// The job was killed: the writer has some time for each next piece. Whether that is new.
    fn hurry(&mut self) -> bool {
        match &mut self.writer {
            Some(writer) if writer.helper.is_there() && writer.stuck_at_ns.is_none() => {
                writer.stuck_at_ns = Some(monotonic_ns() + STUCK_NS);
                writer.has_written = false;
                true
            }
            _ => false,
        }
    }
}

impl Job {
    /// Starts the writer, if this node has one. Tasks begin when it attaches.
    pub(super) fn start_writer(&mut self, context: &mut Context) {
        let written = self.launch.written();
        if !written.is_here() {
            return;
        }
        match self.spawn_writer(written, None, context) {
            Ok(writer) => self.output_files.writer = Some(writer),
            Err(refusal) => self.fail_output(refusal.detail, context),
        }
    }

    fn spawn_writer(
        &mut self,
        written: Written,
        gives_up: Option<String>,
        context: &mut Context,
    ) -> Result<Writer, Refusal> {
        let identity = self.user_of_helper(context)?;
        let order = WriterOrder { identity, gives_up, ..self.writer_order(written)? };
        let (argv, environment) = words(&context.launching.directory)?;
        let start = Start {
            kind: Kind::Writer,
            argv: &argv,
            environment: &environment,
            umask: self.launch.spec.umask & 0o777,
            processors: &[],
            group: None,
            streams: Source::NONE,
        };
        Ok(Writer {
            helper: Helper::start(start, &order, self.key(), context)?,
            stuck_at_ns: None,
            has_written: false,
            gives_up: order.gives_up.is_some(),
        })
    }

    fn writer_order(&self, written: Written) -> Result<WriterOrder, Refusal> {
        let launch = &self.launch;
        let Stdio::Files { output, error, mode, .. } = &launch.spec.stdio else {
            return Err(Refusal::new("the job has no output files".into()));
        };
        let file = |is_written: bool, pattern: Option<&serde_bytes::ByteBuf>| {
            let pattern = pattern.filter(|_| is_written);
            pattern.map(|pattern| self.file_name(0, pattern).map(Into::into)).transpose()
        };
        let others = launch.nodes.iter().map(|node| node.node).enumerate();
        let others = others.filter(|(rank, _)| *rank != launch.share.node_rank as usize);
        Ok(WriterOrder {
            job: launch.job,
            size: launch.size,
            output: file(written.output, Some(output))?,
            error: file(written.error, error.as_ref())?,
            identity: None,
            truncates: mode.truncates(launch.id()) && !launch.joins,
            closed: super::devices::closed_files(&launch.share),
            nodes: match written.serves_others {
                true => others.map(|(_, node)| node).collect(),
                false => Vec::new(),
            },
            gives_up: None,
        })
    }

    /// The writer has said something before it attached, or takes more.
    pub(super) fn on_writer(&mut self, context: &mut Context) {
        let Some(Writer { helper, .. }) = &mut self.output_files.writer else { return };
        helper.settle(context);
        let Some(link) = helper.link() else { return };
        let received = link.receive();
        match link.next::<FromFrontEnd>() {
            Ok(Some(FromFrontEnd::Attach { .. })) => {
                if let Some((link, token)) = helper.take_link() {
                    self.attach(link, token, (Outlet::greeted(), None), context);
                    self.tell_writer_of_kill();
                }
            }
            Ok(Some(FromFrontEnd::GiveUp { reason, .. })) => self.fail_output(reason, context),
            Ok(Some(_)) | Err(_) => helper.drop_link(context),
            // Its end says why.
            Ok(None) if received.is_err() => helper.drop_link(context),
            Ok(None) => {}
        }
    }

    /// The files can't be written, or not any more. Tasks that have not begun end with the reason.
    /// Those that run find their output closed.
    pub(super) fn fail_output(&mut self, reason: String, context: &mut Context) {
        let reason = cut(reason, TASK_DETAIL_BYTES_MAX);
        if let Some(writer) = &mut self.output_files.writer {
            writer.helper.drop_link(context);
        }
        if self.output_files.failure.is_none() {
            if self.life.has_started() {
                self.lose_output(reason.clone(), context);
            }
            self.output_files.failure = Some(reason.clone());
        }
        self.close_output(context);
        if self.life.start() {
            for index in 0..self.tasks.len() {
                if matches!(self.tasks[index].phase, Phase::Waiting) {
                    self.refuse(index, Refusal::new(reason.clone()), context);
                }
            }
            self.clear_if_empty(context);
        }
    }

    /// Some output is not in the files.
    pub(super) fn lose_output(&mut self, what: String, context: &mut Context) {
        let what = cut(what, TASK_DETAIL_BYTES_MAX);
        let lost = &mut self.output_files.lost;
        if lost.is_empty() {
            lost.clone_from(&what);
            let launch = self.launch.id();
            context.reports.push(FromKeeper::OutputLost { launch, what });
        }
    }

    /// The process of the writer was reaped.
    pub(super) fn on_writer_reaped(&mut self, pid: i32, end: End, context: &mut Context) {
        let writer = self.output_files.writer.as_mut().filter(|writer| writer.helper.is_its(pid));
        let Some(writer) = writer else {
            // It was that of an earlier launch.
            return;
        };
        let is_killed = matches!(end, End::Signaled(_)) && !writer.gives_up;
        let early = !self.readers.have_all();
        let reason = writer.helper.end(end);
        let failure = (end != End::Exited(0)).then_some(reason);
        let failure = failure.or_else(|| {
            early.then(|| "the process that writes the output ended before the tasks".into())
        });
        match failure {
            Some(reason) => {
                self.fail_output(reason.clone(), context);
                if is_killed {
                    self.tell_others_of_failure(reason, context);
                }
            }
            None => writer.helper.drop_link(context),
        }
        self.clear_if_ended(context);
        context.touched.insert(self.key());
    }

    /// The writer can't tell the keepers of other nodes any more that nothing is written. Another
    /// one does, since they believe only the job's user; if it can't be started, they miss the
    /// first one after a while.
    fn tell_others_of_failure(&mut self, reason: String, context: &mut Context) {
        let written = self.launch.written();
        if !written.serves_others {
            return;
        }
        let reason = cut(reason, TASK_DETAIL_BYTES_MAX);
        if let Ok(writer) = self.spawn_writer(written, Some(reason), context) {
            self.output_files.writer = Some(writer);
        }
    }

    /// The job was killed: what its tasks have written is still written, unless that takes too
    /// long.
    pub(super) fn hurry_writer(&mut self) {
        if self.output_files.hurry() {
            self.tell_writer_of_kill();
        }
    }

    fn tell_writer_of_kill(&mut self) {
        if self.output_files.writer().is_some_and(|writer| writer.stuck_at_ns.is_some())
            && let Some(front) = &mut self.readers.front
        {
            front.outlet.send(&ToFrontEnd::Killed);
        }
    }

    /// A writer that writes nothing any more is ended, and not waited for: its file system may hold
    /// it.
    pub(super) fn look_at_writer(&mut self, now_ns: u64, context: &mut Context) {
        if self.output_files.stuck_at_ns().is_none_or(|at_ns| at_ns > now_ns) {
            return;
        }
        let Some(writer) = &mut self.output_files.writer else { return };
        if std::mem::take(&mut writer.has_written) {
            writer.stuck_at_ns = Some(now_ns + STUCK_NS);
            return;
        }
        writer.helper.give_up(context);
        let reason = "the output files took nothing more after the job was killed".to_owned();
        self.lose_output(reason.clone(), context);
        self.fail_output(reason, context);
        self.clear_if_ended(context);
        context.touched.insert(self.key());
    }
}

/// The words by which this program is executed as a writer, and its environment.
#[cfg(not(test))]
fn words(directory: &Path) -> Result<(Vec<CString>, Vec<CString>), Refusal> {
    let words = vec![CString::from(c"tutti"), CString::from(c"writer")];
    Ok((words, environment(directory)?))
}

/// Tests are their own writer, as they are their own keeper.
#[cfg(test)]
fn words(directory: &Path) -> Result<(Vec<CString>, Vec<CString>), Refusal> {
    let words = [c"tutti", c"tests::the_writer_itself", c"--exact", c"--nocapture"];
    let mut environment = environment(directory)?;
    environment.push(CString::from(c"TUTTI_TEST_WRITER=1"));
    Ok((words.map(CString::from).to_vec(), environment))
}

/// By which it finds the agent of this node.
fn environment(directory: &Path) -> Result<Vec<CString>, Refusal> {
    let variable = [b"TUTTI_DIR=", directory.as_os_str().as_bytes()].concat();
    Ok(vec![super::program::without_zero_byte("the state directory", &variable)?])
}
