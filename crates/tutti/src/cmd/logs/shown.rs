//! The output files of a job as they are read: here, or by the node that has them.

use super::lines::Lines;
use std::fs::File;
use std::io::{ErrorKind, Write};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use anyhow::Context;
use nix::sys::statfs::{FUSE_SUPER_MAGIC, FsType, NFS_SUPER_MAGIC, fstatfs};
use tutti_client::ask::{Asker, unexpected};
use tutti_client::output::OutputLine;
use tutti_node::codes::{code_of, coded, is_away};
use tutti_node::exit::Exit;
use tutti_node::output_files::{LogFile, Owner, Stream, begin_of_last, open};
use tutti_types::{JobId, Outcome, Rank};
use tutti_wire::code::Code;
use tutti_wire::limits::OUTPUT_PIECE_BYTES;
use tutti_wire::local::{Reply, Request};
use tutti_wire::output::{OutputFile, OutputFrom, OutputPiece};
use tutti_wire::report::JobReport;

/// How often files are looked at while a job runs.
const PAUSE: Duration = Duration::from_millis(200);

/// The longest pause between two looks at a file elsewhere to which nothing is written.
const PAUSE_ELSEWHERE_MAX: Duration = Duration::from_secs(2);

/// Connections over which a file elsewhere is read. Each has one piece of it under way: with one
/// connection, each piece would take the way through the control tree and back by itself.
const ASKERS: usize = 4;

/// What one read takes.
const PIECE_BYTES: usize = 256 << 10;

/// How a job ended.
pub(super) type End = anyhow::Result<(JobReport, Outcome)>;

/// The files that are printed.
pub(in super::super) struct Shown {
    files: Vec<Reading>,
    from: From,
    /// The file that was printed last.
    latest: Option<usize>,
    has_failed: bool,
    /// What was read last.
    buffer: Vec<u8>,
    /// What was read and not printed yet, where lines are printed as JSON.
    lines: Option<Lines>,
}

/// The job with the files, and how they are reached.
struct From {
    job: JobId,
    is_error: bool,
    owner: Option<Owner>,
    askers: [Asker; ASKERS],
}

impl From {
    /// Wants no pieces any more that were asked for ahead.
    fn forget(&mut self) {
        self.askers.iter_mut().for_each(Asker::forget);
    }
}

/// A file, and how far it was printed.
struct Reading {
    of: LogFile,
    source: Source,
    at: u64,
    /// How many lines are printed of what is there already.
    lines: Option<u64>,
}

/// Where a file is read.
enum Source {
    /// Nowhere yet.
    Unknown,
    Here(File),
    /// By the node that has it.
    Elsewhere(Elsewhere),
}

/// A file that the node reads on which the job wrote it.
#[derive(Default)]
struct Elsewhere {
    /// Why it could not be read, if the latest look failed.
    why_not: Option<String>,
    /// When it is looked at again, unless that is soon.
    next: Option<Instant>,
    pause: Duration,
}

impl Elsewhere {
    /// Waits longer each time that nothing is found.
    fn found(&mut self, something: bool) {
        self.pause = (self.pause * 2).clamp(PAUSE, PAUSE_ELSEWHERE_MAX);
        self.next = Some(Instant::now() + self.pause);
        if something {
            (self.pause, self.next) = (Duration::ZERO, None);
        }
    }
}

impl Shown {
    /// Of `rights`: how many of the last lines are printed, and the owner with whose rights.
    pub(super) fn new(
        job: JobId,
        stream: Stream,
        files: Vec<LogFile>,
        (lines, owner): (Option<u64>, Option<Owner>),
    ) -> Self {
        let reading = |of| Reading { of, source: Source::Unknown, at: 0, lines };
        Self {
            files: files.into_iter().map(reading).collect(),
            from: From {
                job,
                is_error: stream == Stream::Error,
                owner,
                askers: Default::default(),
            },
            latest: None,
            has_failed: false,
            buffer: Vec::new(),
            lines: None,
        }
    }

    /// The same, with each line printed as an object of JSON.
    pub(super) fn into_json(self) -> Self {
        Self { lines: Some(Lines::default()), ..self }
    }

    /// Prints what is there, and reports files that are not.
    pub(super) fn print_all(&mut self) -> anyhow::Result<()> {
        self.hurry();
        for index in 0..self.files.len() {
            self.print_new(index)?;
            self.end_line(index)?;
            if let Some(why_not) = self.files[index].why_not() {
                self.has_failed = true;
                say!([NoOutput] "tutti: {why_not}");
            }
        }
        Ok(())
    }

    /// Prints what is there and what comes, until the job has ended; gives how.
    pub(super) fn follow(&mut self, end: &Receiver<End>) -> End {
        loop {
            for index in 0..self.files.len() {
                self.print_new(index)?;
            }
            match end.recv_timeout(PAUSE) {
                Ok(ended) => {
                    // All was written before the end was reported.
                    self.print_all()?;
                    return ended;
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(coded(Code::System, "the thread that waits for the job is gone"));
                }
            }
        }
    }

    pub(super) fn exit(&self) -> anyhow::Result<Exit> {
        Ok(if self.has_failed { Exit::FAILED } else { Exit::OK })
    }

    /// Looks at all files now, since nothing is written to them any more.
    pub(in super::super) fn hurry(&mut self) {
        self.from.forget();
        for file in &mut self.files {
            if let Source::Elsewhere(elsewhere) = &mut file.source {
                elsewhere.next = None;
            }
        }
    }

    /// What has come since the last piece, at most so much at a time; nothing if nothing has.
    pub(in super::super) fn next_piece(&mut self) -> anyhow::Result<Option<Vec<u8>>> {
        let count = self.files.len();
        // The file of the last piece first: its lines stay together.
        let first = self.latest.unwrap_or(0);
        for index in (first..count).chain(0..first) {
            if self.files[index].read(&mut self.from, &mut self.buffer)?.is_none() {
                continue;
            }
            let mut piece = self.head_of(index).into_bytes();
            self.latest = Some(index);
            piece.extend_from_slice(&self.buffer);
            return Ok(Some(piece));
        }
        Ok(None)
    }

    /// Why the first file is not shown, if none is.
    pub(in super::super) fn missing(&self) -> Option<String> {
        let mut why_not = self.files.iter().map(Reading::why_not);
        why_not.clone().all(|it| it.is_some()).then(|| why_not.next().flatten()).flatten()
    }

    /// The line with the name of its file before a piece.
    fn head_of(&self, index: usize) -> String {
        if self.files.len() == 1 || self.latest == Some(index) {
            return String::new();
        }
        let gap = if self.latest.is_some() { "\n" } else { "" };
        format!("{gap}==> {} <==\n", self.files[index].of.path.display())
    }

    /// Prints what has come to a file since it was looked at.
    fn print_new(&mut self, index: usize) -> anyhow::Result<()> {
        let mut out = std::io::stdout().lock();
        let mut until = None;
        // The length of the file is to be that of now.
        self.from.forget();
        // What comes meanwhile is printed in the next round, so that each file has its turn.
        while until.is_none_or(|until| self.files[index].at < until) {
            let behind = self.files[index].at;
            let Some(length) = self.files[index].read(&mut self.from, &mut self.buffer)? else {
                break;
            };
            until.get_or_insert(length);
            let line = self.line_of(index);
            if let Some(lines) = &mut self.lines {
                if self.files[index].at != behind + self.buffer.len() as u64 {
                    // It was begun before another launch emptied the file.
                    lines.end(&mut out, (index, &line))?;
                }
                lines.print(&mut out, (index, &line), &self.buffer)?;
                continue;
            }
            out.write_all(self.head_of(index).as_bytes())?;
            self.latest = Some(index);
            out.write_all(&self.buffer)?;
        }
        out.flush()?;
        Ok(())
    }

    /// Prints the last line of a file as JSON, though its end has not come.
    fn end_line(&mut self, index: usize) -> anyhow::Result<()> {
        let line = self.line_of(index);
        if let Some(lines) = &mut self.lines {
            let mut out = std::io::stdout().lock();
            lines.end(&mut out, (index, &line))?;
            out.flush()?;
        }
        Ok(())
    }

    fn line_of(&self, index: usize) -> OutputLine {
        let (first, ranks) = self.files[index].of.writers;
        OutputLine::of(self.from.job, Rank(first), self.from.is_error).of_ranks(ranks)
    }
}

impl Reading {
    /// Reads what has come since the last time, into `buffer`; the length of the file. `None`:
    /// nothing has.
    fn read(&mut self, from: &mut From, buffer: &mut Vec<u8>) -> anyhow::Result<Option<u64>> {
        buffer.clear();
        if matches!(self.source, Source::Unknown) {
            self.find(from)?;
        }
        let length = match &mut self.source {
            Source::Unknown => return Ok(None),
            Source::Here(_) => self.read_here(buffer)?,
            Source::Elsewhere(Elsewhere { next, .. })
                if next.is_some_and(|next| next > Instant::now()) =>
            {
                return Ok(None);
            }
            Source::Elsewhere(_) => self.read_elsewhere(from, buffer)?,
        };
        self.at += buffer.len() as u64;
        Ok((!buffer.is_empty()).then_some(length))
    }

    /// Finds out where the file is read. One that is not there yet may come.
    fn find(&mut self, from: &mut From) -> anyhow::Result<()> {
        let opened = open(&self.of.path, from.owner.as_ref());
        if self.of.node.is_empty() || is_here(&self.of.node) {
            return match opened {
                Ok(file) => {
                    self.source = Source::Here(file);
                    Ok(())
                }
                Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
                Err(error) => Err(error).with_context(|| failed(&self.of.path)),
            };
        }
        self.source = match opened {
            Ok(file) if is_shared(&file) => Source::Here(file),
            Ok(file) => match self.ask(from, OutputFrom::At(0)) {
                Ok(_) => Source::Elsewhere(Elsewhere::default()),
                Err(error) => {
                    say!(
                        "tutti: the job writes {} on node {}; the file of this name here may be \
                         another one ({error:#})",
                        self.of.path.display(),
                        self.of.node
                    );
                    Source::Here(file)
                }
            },
            Err(_) => Source::Elsewhere(Elsewhere::default()),
        };
        Ok(())
    }

    fn read_here(&mut self, buffer: &mut Vec<u8>) -> anyhow::Result<u64> {
        let Source::Here(file) = &self.source else { return Ok(0) };
        let why = || failed(&self.of.path);
        let length = file.metadata().with_context(why)?.len();
        if length < self.at {
            // Another launch of the job emptied it.
            self.at = 0;
        }
        if let Some(lines) = self.lines.take() {
            self.at = begin_of_last(file, lines).with_context(why)?;
        }
        let left = usize::try_from(length.saturating_sub(self.at)).unwrap_or(PIECE_BYTES);
        buffer.resize(left.min(PIECE_BYTES), 0);
        let count = loop {
            match file.read_at(buffer, self.at) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                read => break read.with_context(why)?,
            }
        };
        buffer.truncate(count);
        Ok(length)
    }

    /// A file that can't be read is looked for again: the node may be back, or the file be made.
    fn read_elsewhere(&mut self, from: &mut From, buffer: &mut Vec<u8>) -> anyhow::Result<u64> {
        let wanted = self.lines.map_or(OutputFrom::At(self.at), OutputFrom::LastLines);
        let read = self.ask(from, wanted);
        let Source::Elsewhere(elsewhere) = &mut self.source else { return Ok(0) };
        let OutputPiece { at, length, data } = match read {
            Ok(piece) => piece,
            Err(error) if may_come(code_of(&error)) => {
                elsewhere.found(false);
                elsewhere.why_not = Some(format!("{error:#}"));
                return Ok(0);
            }
            Err(error) => return Err(error),
        };
        elsewhere.found(!data.is_empty());
        elsewhere.why_not = None;
        (self.at, self.lines) = (at, None);
        buffer.extend_from_slice(&data);
        self.ask_ahead(from, at + data.len() as u64..length);
        Ok(length)
    }

    /// Asks for the pieces of the rest of the file, as many as may be under way: they come while
    /// others are printed.
    fn ask_ahead(&self, from: &mut From, rest: Range<u64>) {
        for at in rest.step_by(OUTPUT_PIECE_BYTES).take(ASKERS) {
            let request = self.request(from, OutputFrom::At(at));
            if from.askers.iter().any(|asker| asker.has_asked(&request)) {
                continue;
            }
            if let Some(asker) = from.askers.iter_mut().find(|asker| asker.is_free()) {
                asker.ask_ahead(request);
            }
        }
    }

    /// Asks the node that has the file.
    fn ask(&self, from: &mut From, begin: OutputFrom) -> anyhow::Result<OutputPiece> {
        let request = self.request(from, begin);
        let asked = from.askers.iter().position(|asker| asker.has_asked(&request));
        if asked.is_none() {
            from.forget();
        }
        match from.askers[asked.unwrap_or(0)].ask(&request)? {
            Reply::Output(piece) => Ok(piece),
            _ => unexpected(),
        }
    }

    const fn request(&self, from: &From, begin: OutputFrom) -> Request {
        let rank = Rank(self.of.writers.0);
        let file = OutputFile { job: from.job, rank, error: from.is_error };
        Request::ReadOutput { file, from: begin }
    }

    /// Why nothing of it is shown, if so.
    fn why_not(&self) -> Option<String> {
        let LogFile { path, node, .. } = &self.of;
        match &self.source {
            Source::Here(_) | Source::Elsewhere(Elsewhere { why_not: None, .. }) => None,
            Source::Elsewhere(Elsewhere { why_not: Some(why_not), .. }) => {
                Some(format!("node {node} wrote {}: {why_not}", path.display()))
            }
            Source::Unknown if node.is_empty() => {
                Some(format!("there is no file {}", path.display()))
            }
            Source::Unknown => Some(format!("there is no file {} on this machine", path.display())),
        }
    }
}

/// Whether a file that could not be read may be read later.
fn may_come(code: Code) -> bool {
    matches!(code, Code::NoOutput | Code::NoInstance) || is_away(code)
}

fn failed(path: &Path) -> String {
    format!("cannot read the output file {}", path.display())
}

/// Whether a node is this machine.
fn is_here(node: &str) -> bool {
    nix::unistd::gethostname().is_ok_and(|name| name.to_string_lossy() == node)
}

/// Whether a file is on a file system that other machines may have, too.
fn is_shared(file: &File) -> bool {
    const OF_NETWORKS: [FsType; 7] = [
        NFS_SUPER_MAGIC,
        FsType(0x0102_1997), // 9p
        FUSE_SUPER_MAGIC,
        FsType(0x0bd0_0bd0), // Lustre
        FsType(0x0047_5047), // GPFS
        FsType(0x1983_0326), // BeeGFS
        FsType(0x00c3_6400), // Ceph
    ];
    fstatfs(file).is_ok_and(|found| OF_NETWORKS.contains(&found.filesystem_type()))
}
