//! The pipes between the keeper and its tasks: one for each rank and stream.
//!
//! Reading never runs ahead of the front end: a pipe that can't be read because its front end is
//! behind is *parked*, taken out of the poller altogether (a level-triggered poller would go on
//! telling of it), and read again in turn with the others when there is room.
//!
//! A front end that gets output in bulk asks for the pipe itself. We keep our end of it: so a task
//! does not notice when its front end goes, and we read again then.

use super::outlet::{Pumped, READ_BYTES_FIRST, READ_BYTES_MOST};
use super::watch::{Token, Watch, Watches};
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::unistd::pipe2;
use serde_bytes::ByteBuf;
use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::rc::Rc;
use tracing::warn;
use tutti_linux::inherited::Inherited;
use tutti_node::link::Interest;
use tutti_wire::code::Code;
use tutti_wire::handover::{HandedInPipe, HandedOutPipe, HandedReader};

/// A pipe of a task that says more than a little is made so large, where the kernel permits it, so
/// that a task need not wait for the keeper at every page.
const PIPE_BYTES: i32 = 1 << 20;

/// Input that waits for one task; above it nothing more is taken from the front end.
pub(super) const INPUT_BYTES_MAX: usize = 256 << 10;

/// A new pipe: our end, which never waits, and the task's.
pub(super) struct PipeEnds {
    pub(super) ours: File,
    pub(super) theirs: OwnedFd,
}

/// A pipe that the task writes to.
pub(super) fn output_pipe() -> io::Result<PipeEnds> {
    let (read, write) = pipe2(OFlag::O_CLOEXEC)?;
    fcntl(&read, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
    Ok(PipeEnds { ours: read.into(), theirs: write })
}

/// A pipe that the task reads from.
pub(super) fn input_pipe() -> io::Result<PipeEnds> {
    let (read, write) = pipe2(OFlag::O_CLOEXEC)?;
    fcntl(&write, FcntlArg::F_SETFL(OFlag::O_NONBLOCK | OFlag::O_WRONLY))?;
    Ok(PipeEnds { ours: write.into(), theirs: read })
}

/// The reader of what a task writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reader {
    /// The keeper.
    Us,
    /// None: the pipe is on its way to the front end.
    Nobody,
    /// The front end.
    FrontEnd,
}

/// Our end of what a task writes to.
#[derive(Debug)]
pub(super) struct OutPipe {
    file: File,
    watch: Watch,
    /// `None`: parked.
    token: Option<Token>,
    /// How much the next read asks for.
    want: usize,
    reader: Reader,
}

impl OutPipe {
    pub(super) fn new(file: File, watch: Watch, watches: &mut Watches) -> io::Result<Self> {
        let token = Some(watches.add(&file, watch, Interest::READ)?);
        Ok(Self { file, watch, token, want: READ_BYTES_FIRST, reader: Reader::Us })
    }

    /// What another program must know to go on with it.
    pub(super) fn hand_over(&self) -> HandedOutPipe {
        HandedOutPipe {
            fd: self.file.as_raw_fd(),
            want: u32::try_from(self.want).unwrap_or(u32::MAX),
            reader: match self.reader {
                Reader::Us => HandedReader::Us,
                Reader::Nobody => HandedReader::Nobody,
                Reader::FrontEnd => HandedReader::FrontEnd,
            },
            is_parked: self.token.is_none(),
        }
    }

    /// Goes on with one of another program.
    pub(super) fn take_over(
        handed: &HandedOutPipe,
        watch: Watch,
        watches: &mut Watches,
        inherited: &mut Inherited,
    ) -> io::Result<Self> {
        let mut pipe = Self::new(inherited.take(handed.fd)?.into(), watch, watches)?;
        pipe.want = (handed.want as usize).clamp(READ_BYTES_FIRST, READ_BYTES_MOST);
        pipe.reader = match handed.reader {
            HandedReader::Us => Reader::Us,
            HandedReader::Nobody => Reader::Nobody,
            HandedReader::FrontEnd => Reader::FrontEnd,
        };
        if handed.is_parked {
            pipe.park(watches);
        }
        Ok(pipe)
    }

    pub(super) const fn file(&self) -> &File {
        &self.file
    }

    pub(super) const fn want(&self) -> usize {
        self.want
    }

    pub(super) const fn reader(&self) -> Reader {
        self.reader
    }

    /// Another end of the pipe, for the front end to read. It shares nothing with ours: a process
    /// that can have the kernel wait at one end could have us wait at the other.
    pub(super) fn open_again(&self) -> io::Result<File> {
        OpenOptions::new()
            .read(true)
            .custom_flags(OFlag::O_NONBLOCK.bits())
            .open(format!("/proc/self/fd/{}", self.file.as_raw_fd()))
    }

    /// The end that the task has, once more.
    pub(super) fn open_to_write(&self) -> io::Result<OwnedFd> {
        let path = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        Ok(OpenOptions::new().write(true).open(path)?.into())
    }

    /// Leaves the reading to another.
    pub(super) fn leave_to(&mut self, reader: Reader, watches: &mut Watches) {
        self.park(watches);
        self.reader = reader;
    }

    /// Takes the reading back, if another had it.
    pub(super) fn take_back(&mut self, watches: &mut Watches) {
        if self.reader != Reader::Us {
            self.reader = Reader::Us;
            self.watch(watches);
        }
    }

    /// Learns from a read: a task that fills a small buffer gets a larger one, and a larger pipe.
    pub(super) fn learn(&mut self, pumped: Pumped) {
        if pumped == Pumped::Full && self.want < READ_BYTES_MOST {
            self.want = READ_BYTES_MOST;
            // Refused above the user's share of memory for pipes; then it stays small.
            let _ = fcntl(&self.file, FcntlArg::F_SETPIPE_SZ(PIPE_BYTES));
        }
    }

    /// Takes it out of the poller; says whether it was in.
    pub(super) fn park(&mut self, watches: &mut Watches) -> bool {
        let Some(token) = self.token.take() else { return false };
        watches.remove(&self.file, token);
        true
    }

    /// Puts it back into the poller.
    pub(super) fn watch(&mut self, watches: &mut Watches) {
        if self.token.is_none() {
            match watches.add(&self.file, self.watch, Interest::READ) {
                Ok(token) => self.token = Some(token),
                Err(error) => warn!(code = %Code::System, "lost sight of a task's output: {error}"),
            }
        }
    }

    pub(super) fn close(mut self, watches: &mut Watches) {
        self.park(watches);
    }
}

/// How a task's input stands after an attempt to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InputState {
    /// Nothing waits.
    Idle,
    /// The task does not read as fast as input comes.
    Waiting,
    /// The end was delivered, or the task reads no more.
    Closed,
}

/// Our end of what a task reads from, and the input that waits for it.
#[derive(Debug)]
pub(super) struct InPipe {
    file: File,
    watch: Watch,
    token: Option<Token>,
    pending: VecDeque<Rc<Vec<u8>>>,
    /// How much of the first pending piece was written.
    written: usize,
    bytes: usize,
    ended: bool,
    /// Whether the last byte that was queued is no end of a line.
    is_in_line: bool,
}

impl InPipe {
    pub(super) const fn new(file: File, watch: Watch) -> Self {
        Self {
            file,
            watch,
            token: None,
            pending: VecDeque::new(),
            written: 0,
            bytes: 0,
            ended: false,
            is_in_line: false,
        }
    }

    /// What another program must know to go on with it.
    pub(super) fn hand_over(&self) -> HandedInPipe {
        let mut pending = Vec::with_capacity(self.bytes);
        let mut skip = self.written;
        for piece in &self.pending {
            pending.extend_from_slice(&piece[skip..]);
            skip = 0;
        }
        let pending = ByteBuf::from(pending);
        HandedInPipe {
            fd: self.file.as_raw_fd(),
            pending,
            ended: self.ended,
            is_in_line: self.is_in_line,
        }
    }

    /// Goes on with one of another program.
    pub(super) fn take_over(
        handed: HandedInPipe,
        watch: Watch,
        inherited: &mut Inherited,
    ) -> io::Result<Self> {
        let mut pipe = Self::new(inherited.take(handed.fd)?.into(), watch);
        if !handed.pending.is_empty() {
            pipe.push(&Rc::new(handed.pending.into_vec()));
        }
        pipe.ended = handed.ended;
        pipe.is_in_line = handed.is_in_line;
        Ok(pipe)
    }

    /// Whether what was queued last lacks the end of its line.
    pub(super) const fn is_in_line(&self) -> bool {
        self.is_in_line
    }

    /// How many bytes wait for the task.
    pub(super) const fn pending_bytes(&self) -> usize {
        self.bytes
    }

    /// Queues a piece of input; an empty one is the end. What comes after the end is dropped.
    pub(super) fn push(&mut self, data: &Rc<Vec<u8>>) {
        if self.ended {
            return;
        }
        if data.is_empty() {
            self.ended = true;
        } else {
            self.bytes += data.len();
            self.is_in_line = data.last().is_some_and(|&last| last != b'\n');
            self.pending.push_back(Rc::clone(data));
        }
    }

    /// Writes as much as the task takes, and watches for room if that was not all.
    pub(super) fn write(&mut self, watches: &mut Watches) -> InputState {
        let state = self.write_pending();
        match (state, self.token) {
            (InputState::Waiting, None) => {
                match watches.add(&self.file, self.watch, Interest::WRITE) {
                    Ok(token) => self.token = Some(token),
                    Err(error) => {
                        warn!(code = %Code::System, "gave up a task's input: {error}");
                        return InputState::Closed;
                    }
                }
            }
            (InputState::Idle, Some(token)) => {
                watches.remove(&self.file, token);
                self.token = None;
            }
            _ => {}
        }
        state
    }

    pub(super) fn close(self, watches: &mut Watches) {
        if let Some(token) = self.token {
            watches.remove(&self.file, token);
        }
    }

    fn write_pending(&mut self) -> InputState {
        while let Some(piece) = self.pending.front() {
            match (&self.file).write(&piece[self.written..]) {
                Ok(count) => {
                    self.written += count;
                    self.bytes -= count;
                    if self.written == piece.len() {
                        self.written = 0;
                        self.pending.pop_front();
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return InputState::Waiting,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // The task closed its input: the one that feeds it need not know, as with a shell's
                // pipe.
                Err(_) => return InputState::Closed,
            }
        }
        if self.ended { InputState::Closed } else { InputState::Idle }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use tutti_types::{JobId, StepKey};

    fn pipe() -> (InPipe, File, Watches) {
        let ends = input_pipe().unwrap();
        let pipe = InPipe::new(ends.ours, Watch::Input(StepKey::first(JobId(1)), 0));
        (pipe, ends.theirs.into(), Watches::new().unwrap())
    }

    #[test]
    fn input_waits_for_a_slow_task_and_arrives_whole() {
        let (mut pipe, mut task, mut watches) = pipe();
        let piece = Rc::new(vec![7; 100_000]);
        pipe.push(&piece);
        pipe.push(&piece);
        pipe.push(&Rc::new(Vec::new()));
        assert_eq!(pipe.write(&mut watches), InputState::Waiting);
        assert!(pipe.token.is_some() && pipe.pending_bytes() < 200_000);
        let mut found = vec![0; 200_000];
        let mut total = 0;
        let mut state = InputState::Waiting;
        while total < found.len() {
            total += task.read(&mut found[total..]).unwrap();
            state = pipe.write(&mut watches);
        }
        assert_eq!(state, InputState::Closed);
        assert_eq!(pipe.pending_bytes(), 0);
        assert!(found.iter().all(|&byte| byte == 7));
        pipe.close(&mut watches);
        assert_eq!(task.read(&mut [0]).unwrap(), 0, "the end of input");
    }

    #[test]
    fn another_program_knows_that_the_last_line_lacks_its_end() {
        let (mut pipe, _task, mut watches) = pipe();
        pipe.push(&Rc::new(b"partial".to_vec()));
        assert_eq!(pipe.write(&mut watches), InputState::Idle);
        let handed = pipe.hand_over();
        assert!(handed.is_in_line && handed.pending.is_empty());
    }

    #[test]
    fn a_task_that_reads_no_more_is_no_error() {
        let (mut pipe, task, mut watches) = pipe();
        drop(task);
        pipe.push(&Rc::new(vec![1]));
        assert_eq!(pipe.write(&mut watches), InputState::Closed);
    }

    #[test]
    fn a_parked_pipe_is_silent_until_it_is_watched_again() {
        let mut watches = Watches::new().unwrap();
        let ends = output_pipe().unwrap();
        let watch = Watch::Output(StepKey::first(JobId(1)), 0, tutti_wire::attach::Stream::Output);
        let mut pipe = OutPipe::new(ends.ours, watch, &mut watches).unwrap();
        assert!(pipe.park(&mut watches));
        assert!(!pipe.park(&mut watches));
        // Even a hang-up, which a poller tells of unasked.
        drop(ends.theirs);
        let mut events = Vec::new();
        watches.wait(Some(1), &mut events).unwrap();
        assert!(events.is_empty());
        pipe.watch(&mut watches);
        watches.wait(None, &mut events).unwrap();
        assert_eq!(watches.what(events[0]), Some(watch));
    }
}
