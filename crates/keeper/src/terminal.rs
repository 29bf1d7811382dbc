//! The terminal of rank 0, if its front end wants one (`--pty`).
//!
//! The keeper makes a pseudo terminal when the task starts. The task has the slave as its standard
//! streams, and as the terminal of its session. The master takes the place of the pipes: output is
//! read from it, and input written to it, with their bounds. So a handover passes it on with them.
//!
//! When the front end is gone, the master is closed: then the kernel sends SIGHUP to the session,
//! as when a connection with a terminal breaks. Viewers see the output, and `tutti attach -i 0`
//! types.

use super::context::{Context, chain};
use super::job::Job;
use super::start::Source;
use super::stdio::{InPipe, OutPipe};
use super::watch::Watch;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::rc::Rc;
use std::sync::LazyLock;
use tutti_linux::inherited::Inherited;
use tutti_linux::pty::{self, Pty};
use tutti_node::workers::{Bounds, Workers};
use tutti_types::Rank;
use tutti_wire::attach::{Stream, TerminalSize};
use tutti_wire::handover::Fd;

/// Threads that close terminals, for those of one user and in all.
const BOUNDS: Bounds = Bounds { of_user: 2, all: 32 };

/// A task's terminal, with the end of it that the task's pipes have too.
///
/// The kernel may have what closes the last descriptor of an end wait for processes that use the
/// terminal, for seconds. So a thread does that, and this is to outlive the pipes.
pub(super) struct Terminal {
    /// `None`: a thread has them.
    ends: Option<Pty>,
    /// The user of the task.
    user: u32,
}

impl Terminal {
    const fn new(ends: Pty, user: u32) -> Self {
        Self { ends: Some(ends), user }
    }

    /// What another program must know to go on with it.
    pub(super) fn hand_over(&self) -> Option<(Fd, Fd)> {
        self.ends.as_ref().map(|ends| (ends.slave.as_raw_fd(), ends.master.as_raw_fd()))
    }

    /// Goes on with one of another program.
    pub(super) fn take_over(
        (slave, master): (Fd, Fd),
        user: u32,
        inherited: &mut Inherited,
    ) -> io::Result<Self> {
        let (slave, master) = (inherited.take(slave)?, inherited.take(master)?);
        Ok(Self::new(Pty { master, slave }, user))
    }

    /// The end that the task has, once more; `None`: it has hung up.
    pub(super) fn slave(&self) -> Option<io::Result<OwnedFd>> {
        self.ends.as_ref().map(|ends| ends.slave.try_clone())
    }

    /// It has hung up, perhaps: then its size is of no use.
    fn resize(&self, size: TerminalSize) {
        if let Some(ends) = &self.ends {
            let _ = pty::set_size(ends.master.as_fd(), (size.rows, size.columns));
        }
    }

    /// The character that is the end of input. The terminal itself would be asked in turn with the
    /// processes that use it; its other end knows as well.
    fn end_of_input(&self) -> Option<u8> {
        pty::end_of_input(self.ends.as_ref()?.master.as_fd())
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        static WORKERS: LazyLock<Workers> = LazyLock::new(|| Workers::new(BOUNDS));
        if let Some(ends) = self.ends.take() {
            WORKERS.start(self.user, Box::new(move || drop(ends)));
        }
    }
}

/// The rank that has the terminal.
const RANK: Rank = Rank(0);

impl Job {
    /// A front end attaches: what it says of a terminal counts until the tasks start.
    pub(super) fn note_terminal(&mut self, terminal: Option<TerminalSize>) {
        match terminal {
            Some(size) if self.terminal.is_some() => self.resize(size),
            Some(_) if !self.life.has_started() => self.terminal = terminal,
            Some(_) | None => {}
        }
    }

    /// The front end's terminal has this size.
    pub(super) fn resize(&mut self, size: TerminalSize) {
        if self.terminal.is_none() {
            return;
        }
        self.terminal = Some(size);
        for terminal in self.tasks.iter().filter_map(|task| task.terminal.as_ref()) {
            terminal.resize(size);
        }
    }

    /// The size of the terminal that a task is to have, if it is to have one.
    pub(super) fn terminal_of(&self, index: usize) -> Option<TerminalSize> {
        self.terminal.filter(|_| self.tasks[index].rank == RANK)
    }

    /// Makes the terminal of a task.
    pub(super) fn terminal_streams(
        &mut self,
        index: usize,
        size: TerminalSize,
        context: &mut Context,
    ) -> io::Result<[Source; 3]> {
        let job = self.key();
        let owner = (context.launching.uid == 0).then_some(self.launch.credentials.uid);
        let pty = Pty::open((size.rows, size.columns), owner);
        let pty = pty.map_err(|error| io::Error::other(chain(&error)))?;
        let [input, output, error] = [(), (), ()].map(|()| pty.slave.try_clone());
        let streams = [Source::Pipe(input?), Source::Pipe(output?), Source::Pipe(error?)];
        let task = &mut self.tasks[index];
        let [typed, shown] = [(), ()].map(|()| pty.master.try_clone().map(File::from));
        task.input = Some(InPipe::new(typed?, Watch::Input(job, index)));
        let watch = Watch::Output(job, index, Stream::Output);
        task.output = Some(OutPipe::new(shown?, watch, &mut context.watches)?);
        task.terminal = Some(Terminal::new(pty, self.launch.credentials.uid));
        Ok(streams)
    }

    /// What a piece of input is to a task: the end of input is a character to a terminal, which
    /// stays open. A line that lacks its end takes two of them.
    pub(super) fn typed(&self, index: usize, data: &Rc<Vec<u8>>) -> Rc<Vec<u8>> {
        let task = &self.tasks[index];
        let (Some(terminal), true) = (&task.terminal, data.is_empty()) else {
            return Rc::clone(data);
        };
        let is_in_line = task.input.as_ref().is_some_and(InPipe::is_in_line);
        let end = terminal.end_of_input();
        let count = if is_in_line { 2 } else { 1 };
        Rc::new(end.map_or_else(Vec::new, |end| vec![end; count]))
    }

    /// The front end is gone, or the task: its terminal hangs up, so that its session gets SIGHUP.
    pub(super) fn hang_up(&mut self, index: usize, context: &mut Context) {
        // It is closed after its pipes.
        if let Some(_terminal) = self.tasks[index].terminal.take() {
            self.drop_stream(index, Stream::Output, context);
            if let Some(input) = self.tasks[index].input.take() {
                input.close(&mut context.watches);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn a_terminal_that_is_let_go_of_tells_its_end_of_input_and_hangs_up() {
        let ends = Pty::open((24, 80), None).unwrap();
        let mut task = File::from(ends.slave.try_clone().unwrap());
        let terminal = Terminal::new(ends, 12_345);
        assert_eq!(terminal.end_of_input(), Some(4));
        terminal.resize(TerminalSize { rows: 5, columns: 7 });
        assert_eq!(pty::size(task.as_fd()).unwrap(), (5, 7));
        drop(terminal);
        // This waits until a thread has closed the other end.
        assert_eq!(task.read(&mut [0]).unwrap_or(0), 0);
    }
}
