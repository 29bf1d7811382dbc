//! What the tasks print, on its way to the user: plain, labelled with ranks, or into files.
//!
//! Lines of different ranks are never cut into each other: of each rank and stream only whole lines
//! are written, and what lacks its end is kept until the end comes. A job of one task has no other
//! to be mixed with, so its output is passed on as it comes.
//!
//! A progress bar writes its line again and again, each time with a carriage return instead of an
//! end. So what ends in a carriage return is written too, when nothing has followed for a moment.

use super::output::OutputLine;
use super::panes::Panes;
use anyhow::Context;
use nix::errno::Errno;
use std::collections::{BTreeMap, VecDeque};
use std::ffi::OsString;
use std::fs::File;
use std::io::{ErrorKind, IsTerminal, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::time::{Duration, Instant};
use tutti_linux::stdio::was_closed;
use tutti_types::{JobId, Rank, StepId};
use tutti_wire::attach::Stream;
use tutti_wire::pattern::{PatternValues, expand, names_rank};

/// A line that is longer is written in pieces of this many bytes.
const LINE_MAX: usize = 1 << 20;

/// All lines together that lack their ends. Above that, lines are written in pieces.
const PARTIAL_BYTES_MAX: usize = 64 << 20;

/// How long what ends in a carriage return waits for the rest of its line.
const RETURN_WAIT: Duration = Duration::from_millis(100);

/// How long a full disk is waited for before a file is tried again.
const FULL_WAIT: Duration = Duration::from_millis(500);

/// The rank that may have a terminal.
const OF_TERMINAL: Rank = Rank(0);

/// How the rank of output is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Label {
    /// Not at all.
    #[default]
    Off,
    /// Each line begins with it: `3: text`.
    Lines,
    /// A line with it, `3:`, comes before lines of another rank than the last one.
    Blocks,
    /// Each line is an object of JSON.
    Json,
}

impl Label {
    /// That of a word of `--label`.
    ///
    /// # Errors
    /// If it is none.
    pub fn parse(word: &str) -> Result<Self, String> {
        match word {
            "line" => Ok(Self::Lines),
            "block" => Ok(Self::Blocks),
            "json" => Ok(Self::Json),
            other => Err(format!("{other:?} is none of: line, block, json")),
        }
    }

    /// Whether ranks are shown.
    #[must_use]
    pub fn is_on(self) -> bool {
        self != Self::Off
    }
}

/// How output is shown.
#[derive(Clone, Debug, Default)]
pub struct OutputOptions {
    /// How ranks are named.
    pub label: Label,
    /// Bytes are passed on as they come, lines or not.
    pub raw: bool,
    /// The pattern of files that standard output goes to.
    pub output: Option<std::ffi::OsString>,
    /// The pattern of files that standard error goes to.
    pub error: Option<std::ffi::OsString>,
    /// Rank 0 has a terminal: its output is shown as it comes.
    pub terminal: bool,
}

/// Why output can't be written on.
#[derive(Debug)]
pub(super) enum OutputError {
    /// It has no reader any more.
    ReaderGone,
    /// Anything else, as told to the user.
    Failed(anyhow::Error),
}

/// Writes the output of all ranks.
pub(super) struct Output {
    options: OutputOptions,
    whole_lines: bool,
    width: usize,
    partial: Partial,
    /// Where the last line written lacks its end, since its writer had no more to say. It gets one
    /// when another goes on there.
    unended: BTreeMap<Option<std::ffi::OsString>, (Rank, Stream)>,
    /// The ranks of the latest blocks: of each stream, and of both where they go to one place.
    blocks: BTreeMap<(Option<std::ffi::OsString>, Option<Stream>), Rank>,
    files: BTreeMap<Vec<u8>, File>,
    job: JobId,
    /// Its number in the names of files.
    step: u32,
    name: String,
    /// Looked up when the first file is opened: most jobs have none, and every launch would pay.
    here: Option<Here>,
    /// Whether a full disk is waited for.
    waits_for_room: bool,
    /// Bytes written into files so far.
    written: u64,
    /// The panes that show it instead.
    pub(super) panes: Option<Box<Panes>>,
}

/// The lines that lack their ends.
#[derive(Debug, Default)]
struct Partial {
    lines: BTreeMap<(Rank, Stream), Line>,
    bytes: usize,
    /// When to write what ends in a carriage return, in order of time. A line may be gone by then.
    due: VecDeque<(Instant, (Rank, Stream))>,
}

#[derive(Debug, Default)]
struct Line {
    bytes: Vec<u8>,
    /// Behind its last carriage return, and when that is due.
    returned: Option<(usize, Instant)>,
}

impl Partial {
    fn take(&mut self, of: (Rank, Stream)) -> Vec<u8> {
        let bytes = self.lines.remove(&of).unwrap_or_default().bytes;
        self.bytes -= bytes.len();
        bytes
    }

    fn put(&mut self, of: (Rank, Stream), bytes: Vec<u8>) {
        self.bytes += bytes.len();
        let returned = bytes.iter().rposition(|&byte| byte == b'\r').map(|at| {
            let due = Instant::now() + RETURN_WAIT;
            self.due.push_back((due, of));
            (at + 1, due)
        });
        self.lines.insert(of, Line { bytes, returned });
    }

    /// The next piece that ends in a carriage return and has waited long enough.
    fn next_returned(&mut self, now: Instant) -> Option<((Rank, Stream), Vec<u8>)> {
        while let Some(&(due, of)) = self.due.front()
            && due <= now
        {
            self.due.pop_front();
            let Some(line) = self.lines.get_mut(&of) else { continue };
            if let Some((end, _)) = line.returned.take_if(|(_, due)| *due <= now) {
                let rest = line.bytes.split_off(end);
                let piece = std::mem::replace(&mut line.bytes, rest);
                self.bytes -= piece.len();
                return Some((of, piece));
            }
        }
        None
    }
}

/// Files of a front end lie where it runs, and are its user's.
struct Here {
    node: String,
    user: String,
}

impl Here {
    fn look_up() -> Self {
        let node = nix::unistd::gethostname().unwrap_or_default();
        let user = nix::unistd::User::from_uid(nix::unistd::getuid());
        Self {
            node: node.to_string_lossy().into_owned(),
            user: user.ok().flatten().map_or_else(String::new, |user| user.name),
        }
    }
}

impl Output {
    pub(super) fn new(options: OutputOptions, size: u32, job: JobId, name: String) -> Self {
        Self {
            whole_lines: !options.raw && (size > 1 || options.label.is_on()),
            width: size.saturating_sub(1).to_string().len(),
            options,
            partial: Partial::default(),
            unended: BTreeMap::new(),
            blocks: BTreeMap::new(),
            files: BTreeMap::new(),
            job,
            step: StepId::FIRST.0,
            name,
            here: None,
            waits_for_room: false,
            written: 0,
            panes: None,
        }
    }

    /// Output of the step that has this number in the names of files.
    pub(super) fn of_step(self, step: u32) -> Self {
        Self { step, ..self }
    }

    /// Output that is shown in panes.
    pub(super) fn in_panes(self, panes: Option<Panes>) -> Self {
        Self { panes: panes.map(Box::new), ..self }
    }

    /// Output of a job with tasks that share these files, which are open and named by their paths.
    /// A full disk is waited for.
    pub(super) fn into_files(
        [output, error]: [Option<(Vec<u8>, File)>; 2],
        size: u32,
        job: JobId,
    ) -> Self {
        let pattern = |file: &Option<(Vec<u8>, File)>| {
            let path = &file.as_ref()?.0;
            let literal = path.split(|&byte| byte == b'%').collect::<Vec<_>>().join(&b"%%"[..]);
            Some(OsString::from_vec(literal))
        };
        let (output_pattern, error_pattern) = (pattern(&output), pattern(&error));
        let options = OutputOptions {
            output: output_pattern,
            error: error_pattern,
            ..OutputOptions::default()
        };
        let mut all = Self::new(options, size, job, String::new());
        all.files.extend(output.into_iter().chain(error));
        all.here = Some(Here { node: String::new(), user: String::new() });
        all.waits_for_room = true;
        all
    }

    /// How many bytes were written into files.
    pub(super) const fn written(&self) -> u64 {
        self.written
    }

    /// Gives the files back, for the caller to close.
    pub(super) fn into_open_files(self) -> impl Iterator<Item = (Vec<u8>, File)> {
        self.files.into_iter()
    }

    /// How long until something is to be written though nothing comes.
    pub(super) fn due_in(&self) -> Option<Duration> {
        if let Some(panes) = &self.panes {
            return panes.due_in();
        }
        let (due, _) = self.partial.due.front()?;
        Some(due.saturating_duration_since(Instant::now()))
    }

    /// Writes what ends in a carriage return and has waited long enough.
    pub(super) fn write_due(&mut self) -> Result<(), OutputError> {
        if let Some(panes) = &mut self.panes {
            let picture = panes.picture();
            return write_all(Stream::Output, picture.as_bytes());
        }
        if self.partial.due.is_empty() {
            return Ok(());
        }
        let now = Instant::now();
        while let Some(((rank, stream), piece)) = self.partial.next_returned(now) {
            self.emit(rank, stream, &piece)?;
        }
        Ok(())
    }

    /// Takes in a piece of output; empty is the end of the stream.
    pub(super) fn take(
        &mut self,
        rank: Rank,
        stream: Stream,
        data: &[u8],
    ) -> Result<(), OutputError> {
        if let Some(panes) = &mut self.panes {
            panes.feed(rank, stream, data);
            return Ok(());
        }
        let is_terminals = self.options.terminal && rank == OF_TERMINAL;
        if is_terminals || !self.needs_whole_lines(stream) {
            return self.emit(rank, stream, data);
        }
        let mut partial = self.partial.take((rank, stream));
        if data.is_empty() {
            if partial.is_empty() {
                return Ok(());
            }
            if self.options.label.is_on() {
                partial.push(b'\n');
            }
            self.emit(rank, stream, &partial)?;
            if !self.options.label.is_on() && !self.has_own_file(stream) {
                self.unended.insert(self.pattern(stream).cloned(), (rank, stream));
            }
            return Ok(());
        }
        let Some(end) = last_newline(data).map(|newline| newline + 1) else {
            partial.extend_from_slice(data);
            if partial.len() >= LINE_MAX || self.partial.bytes + partial.len() > PARTIAL_BYTES_MAX {
                return self.emit(rank, stream, &partial);
            }
            self.partial.put((rank, stream), partial);
            return Ok(());
        };
        let (whole, rest) = data.split_at(end);
        if partial.is_empty() {
            self.emit(rank, stream, whole)?;
        } else {
            partial.extend_from_slice(whole);
            self.emit(rank, stream, &partial)?;
        }
        if !rest.is_empty() {
            self.partial.put((rank, stream), rest.to_vec());
        }
        Ok(())
    }

    /// Writes what still lacks its end: nothing more will come.
    pub(super) fn finish(&mut self) -> Result<(), OutputError> {
        let open: Vec<(Rank, Stream)> = self.partial.lines.keys().copied().collect();
        for (rank, stream) in open {
            self.take(rank, stream, b"")?;
        }
        Ok(())
    }

    /// Whether the stream goes to our own one just as it is, so that the kernel may move it there.
    pub(super) fn takes_pages(&self, stream: Stream) -> bool {
        !self.options.label.is_on()
            && !self.options.terminal
            && self.panes.is_none()
            && self.pattern(stream).is_none()
            && !self.unended.contains_key(&None)
            && !was_closed(1)
    }

    /// Writes the line whose end is about to follow.
    pub(super) fn write_partial(&mut self, rank: Rank, stream: Stream) -> Result<(), OutputError> {
        match self.partial.take((rank, stream)) {
            partial if partial.is_empty() => Ok(()),
            partial => self.emit(rank, stream, &partial),
        }
    }

    /// A file that one rank alone writes to gets the bytes as they come.
    pub(super) fn needs_whole_lines(&self, stream: Stream) -> bool {
        self.whole_lines && (self.options.label.is_on() || !self.has_own_file(stream))
    }

    fn has_own_file(&self, stream: Stream) -> bool {
        self.pattern(stream).is_some_and(|pattern| names_rank(pattern.as_bytes()))
    }

    fn pattern(&self, stream: Stream) -> Option<&std::ffi::OsString> {
        match stream {
            Stream::Output => self.options.output.as_ref(),
            // As with a shell's 2>&1: errors go with the output unless they have a place of their
            // own.
            Stream::Error => self.options.error.as_ref().or(self.options.output.as_ref()),
        }
    }

    /// Writes to where the stream goes, labelled if that is wanted.
    fn emit(&mut self, rank: Rank, stream: Stream, data: &[u8]) -> Result<(), OutputError> {
        if !self.unended.is_empty()
            && !data.is_empty()
            && let Some((rank, stream)) = self.unended.remove(&self.pattern(stream).cloned())
        {
            self.write(rank, stream, b"\n")?;
        }
        let labelled = match self.options.label {
            _ if data.is_empty() => return self.write(rank, stream, data),
            Label::Off => return self.write(rank, stream, data),
            Label::Lines => self.labelled(rank, data),
            Label::Blocks => self.in_block(rank, stream, data),
            Label::Json => self.in_json(rank, stream, data),
        };
        self.write(rank, stream, &labelled)
    }

    /// Lines of a rank, behind a line with its number unless the last ones there are of it too.
    fn in_block(&mut self, rank: Rank, stream: Stream, lines: &[u8]) -> Vec<u8> {
        let place = self.pattern(stream).cloned();
        // Both streams may go to one terminal, or each to a file of its own.
        let keys = [(place.clone(), Some(stream)), (place, None)];
        let is_same = keys.map(|key| self.blocks.insert(key, rank) == Some(rank));
        let mut block = match is_same {
            [true, true] => Vec::new(),
            _ => format!("{}:\n", rank.0).into_bytes(),
        };
        block.extend_from_slice(lines);
        block
    }

    fn in_json(&self, rank: Rank, stream: Stream, lines: &[u8]) -> Vec<u8> {
        let of = OutputLine::of(self.job, rank, stream == Stream::Error);
        let lines = lines.split_inclusive(|&byte| byte == b'\n');
        lines.flat_map(|line| of.with(line).into_bytes()).collect()
    }

    fn labelled(&self, rank: Rank, lines: &[u8]) -> Vec<u8> {
        let label = format!("{:>width$}: ", rank.0, width = self.width);
        let mut labelled = Vec::with_capacity(lines.len() + lines.len() / 4);
        for line in lines.split_inclusive(|&byte| byte == b'\n') {
            labelled.extend_from_slice(label.as_bytes());
            labelled.extend_from_slice(line);
        }
        labelled
    }

    fn write(&mut self, rank: Rank, stream: Stream, data: &[u8]) -> Result<(), OutputError> {
        let Some(pattern) = self.pattern(stream).cloned() else {
            if self.options.terminal && rank != OF_TERMINAL && is_raw_terminal(stream) {
                return write_all(stream, &with_returns(data));
            }
            return write_all(stream, data);
        };
        self.write_file(rank, pattern.as_bytes(), data).map_err(OutputError::Failed)
    }

    fn write_file(&mut self, rank: Rank, pattern: &[u8], data: &[u8]) -> anyhow::Result<()> {
        let here = self.here.get_or_insert_with(Here::look_up);
        let values = PatternValues {
            job: self.job,
            rank,
            name: &self.name,
            node: &here.node,
            user: &here.user,
            step: self.step,
        };
        let path = expand(pattern, &values)?;
        let shown = String::from_utf8_lossy(&path).into_owned();
        let file = match self.files.entry(path) {
            std::collections::btree_map::Entry::Occupied(known) => known.into_mut(),
            std::collections::btree_map::Entry::Vacant(new) => {
                let path = std::path::Path::new(std::ffi::OsStr::from_bytes(new.key())).to_owned();
                let file = File::create(path)
                    .with_context(|| format!("cannot write the output file {shown}"))?;
                new.insert(file)
            }
        };
        write_whole(file, data, self.waits_for_room, &mut self.written)
            .with_context(|| format!("cannot write the output file {shown}"))
    }
}

/// Writes all of it, as soon as the disk has room if that is to be waited for.
fn write_whole(
    mut file: &File,
    mut data: &[u8],
    waits_for_room: bool,
    written: &mut u64,
) -> std::io::Result<()> {
    while !data.is_empty() {
        match file.write(data) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(count) => {
                *written += count as u64;
                data = &data[count..];
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if waits_for_room && is_full(&error) => std::thread::sleep(FULL_WAIT),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn is_full(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded)
}

/// The last end of a line is near the end. `memchr` first asks the processor what it can do, which
/// on a virtual machine takes longer than all of this.
pub(super) fn last_newline(data: &[u8]) -> Option<usize> {
    data.iter().rposition(|&byte| byte == b'\n')
}

/// Whether a stream of ours is a terminal in raw mode.
fn is_raw_terminal(stream: Stream) -> bool {
    let is_terminal = match stream {
        Stream::Output => std::io::stdout().is_terminal(),
        Stream::Error => std::io::stderr().is_terminal(),
    };
    is_terminal && tutti_node::say::is_raw()
}

/// Lines as a terminal in raw mode needs them.
fn with_returns(lines: &[u8]) -> Vec<u8> {
    let lines = lines.split_inclusive(|&byte| byte == b'\n');
    let mut returned = Vec::new();
    for line in lines {
        match line.strip_suffix(b"\n") {
            Some(line) => returned.extend(line.iter().chain(b"\r\n")),
            None => returned.extend(line),
        }
    }
    returned
}

fn write_all(stream: Stream, mut data: &[u8]) -> Result<(), OutputError> {
    let (out, err) = (std::io::stdout(), std::io::stderr());
    let fd: BorrowedFd<'_> = match stream {
        Stream::Output => out.as_fd(),
        Stream::Error => err.as_fd(),
    };
    if stream == Stream::Output && !data.is_empty() && was_closed(1) {
        let error = anyhow::anyhow!("standard output is closed; use >/dev/null if none is wanted");
        return Err(OutputError::Failed(error));
    }
    while !data.is_empty() {
        match nix::unistd::write(fd, data) {
            Ok(count) => data = &data[count..],
            Err(error) => after_write_error(stream, fd, error)?,
        }
    }
    Ok(())
}

/// Waits if that is all that an error of our own output asks for.
pub(super) fn after_write_error(
    stream: Stream,
    fd: BorrowedFd<'_>,
    error: Errno,
) -> Result<(), OutputError> {
    let what = match (error, stream) {
        (Errno::EINTR, _) => return Ok(()),
        (Errno::EAGAIN, _) => {
            wait_for_room(fd);
            return Ok(());
        }
        (Errno::EPIPE, _) => return Err(OutputError::ReaderGone),
        (_, Stream::Output) => "cannot write to standard output",
        (_, Stream::Error) => "cannot write to standard error",
    };
    Err(OutputError::Failed(anyhow::Error::from(std::io::Error::from(error)).context(what)))
}

/// A process that shares our output made it non-blocking.
fn wait_for_room(fd: BorrowedFd<'_>) {
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
    let _ = poll(&mut [PollFd::new(fd, PollFlags::POLLOUT)], PollTimeout::NONE);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(options: OutputOptions, size: u32, pieces: &[(u32, &str)], expected: &str) {
        let name = format!("tutti-output-{}-{:?}", std::process::id(), std::thread::current().id());
        let file = std::env::temp_dir().join(name);
        let options = OutputOptions { output: Some(file.clone().into()), ..options };
        let mut output = Output::new(options, size, JobId(1), String::new());
        for (rank, text) in pieces {
            output.take(Rank(*rank), Stream::Output, text.as_bytes()).unwrap();
        }
        output.finish().unwrap();
        let got = std::fs::read_to_string(&file).unwrap();
        std::fs::remove_file(&file).unwrap();
        assert_eq!(got, expected);
    }

    #[test]
    fn lines_of_ranks_are_not_cut_into_each_other() {
        let pieces = [(0, "one "), (1, "two "), (0, "line\nrest"), (1, "lines\n")];
        check(OutputOptions::default(), 2, &pieces, "one line\ntwo lines\nrest");
    }

    #[test]
    fn a_last_line_gets_an_end_only_if_another_follows() {
        let pieces = [(0, "a"), (1, "b\nc"), (0, ""), (1, "d\n"), (1, "e"), (1, "")];
        check(OutputOptions::default(), 2, &pieces, "b\na\ncd\ne");
    }

    #[test]
    fn labels_are_as_wide_as_the_highest_rank() {
        let options = OutputOptions { label: Label::Lines, ..OutputOptions::default() };
        check(options, 11, &[(3, "a\nb"), (10, "c\n")], " 3: a\n10: c\n 3: b\n");
    }

    #[test]
    fn a_block_has_its_rank_once_and_then_its_lines() {
        let options = OutputOptions { label: Label::Blocks, ..OutputOptions::default() };
        let pieces = [(0, "a\nb\n"), (3, "x"), (1, "c\n"), (1, "d\n"), (3, "y\n"), (3, "z")];
        check(options, 12, &pieces, "0:\na\nb\n1:\nc\nd\n3:\nxy\nz\n");
    }

    #[test]
    fn each_line_is_an_object_of_json() {
        let options = OutputOptions { label: Label::Json, ..OutputOptions::default() };
        let line = |rank, text| {
            format!(
                "{{\"job\":1,\"rank\":{rank},\"ranks\":1,\"error\":false,\"line\":\"{text}\"}}\n"
            )
        };
        let wanted = [line(3, "a\\t\\\"b"), line(0, ""), line(3, "\\u009bc")].concat();
        check(options, 12, &[(3, "a\t\"b\n\u{9b}"), (0, "\n"), (3, "c")], &wanted);
    }

    #[test]
    fn a_progress_bar_is_shown_though_its_line_has_no_end() {
        let mut partial = Partial::default();
        let (one, other) = ((Rank(0), Stream::Output), (Rank(1), Stream::Output));
        partial.put(one, b"10%\r20%\r3".to_vec());
        partial.put(other, b"no return".to_vec());
        let now = Instant::now();
        assert_eq!(partial.next_returned(now), None, "the rest of the line may follow");
        assert_eq!(partial.next_returned(now + RETURN_WAIT), Some((one, b"10%\r20%\r".to_vec())));
        assert_eq!(partial.next_returned(now + RETURN_WAIT), None);
        assert_eq!(partial.take(one), b"3");
        // A line whose end has come meanwhile is not shown twice.
        partial.put(one, b"40%\r".to_vec());
        assert_eq!(partial.take(one), b"40%\r");
        assert_eq!(partial.next_returned(now + 2 * RETURN_WAIT), None);
        assert_eq!(partial.take(other), b"no return");
        assert_eq!(partial.bytes, 0);
    }

    #[test]
    fn lines_without_ends_take_no_more_memory_than_all_may() {
        let options =
            OutputOptions { output: Some("/dev/null".into()), ..OutputOptions::default() };
        let mut output = Output::new(options, 1000, JobId(1), String::new());
        let piece = vec![b'x'; LINE_MAX - 1];
        for rank in 0..100 {
            output.take(Rank(rank), Stream::Output, &piece).unwrap();
            assert!(output.partial.bytes <= PARTIAL_BYTES_MAX);
        }
        assert!(output.partial.bytes > PARTIAL_BYTES_MAX / 2);
    }

    #[test]
    fn the_rank_with_the_terminal_is_shown_as_it_comes_and_others_by_lines() {
        let options = OutputOptions { terminal: true, ..OutputOptions::default() };
        check(options, 2, &[(0, "$ "), (1, "x"), (0, "l"), (1, "y\n")], "$ lxy\n");
        assert_eq!(with_returns(b"a\n\nb"), b"a\r\n\r\nb");
    }

    #[test]
    fn raw_output_passes_as_it_comes() {
        let options = OutputOptions { raw: true, ..OutputOptions::default() };
        check(options, 2, &[(0, "a"), (1, "b"), (0, "c\n")], "abc\n");
    }
}
