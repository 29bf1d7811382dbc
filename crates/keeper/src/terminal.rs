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
use std::os::fd::AsFd;
use std::rc::Rc;
use tutti_linux::pty::{self, Pty};
use tutti_types::Rank;
use tutti_wire::attach::{Stream, TerminalSize};

/// The rank that has the terminal.
const RANK: Rank = Rank(0);

impl Job {
    /// A front end attaches: what it says of a terminal counts until the tasks start.
    pub(super) fn note_terminal(&mut self, terminal: Option<TerminalSize>) {
        match terminal {
            Some(size) if self.terminal.is_some() => self.resize(size),
            Some(_) if !self.started => self.terminal = terminal,
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
            // It has hung up, perhaps: then its size is of no use.
            let _ = pty::set_size(terminal.as_fd(), (size.rows, size.columns));
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
        let master = File::from(pty.master);
        let [input, output, error] = [(), (), ()].map(|()| pty.slave.try_clone());
        let streams = [Source::Pipe(input?), Source::Pipe(output?), Source::Pipe(error?)];
        let task = &mut self.tasks[index];
        task.input = Some(InPipe::new(master.try_clone()?, Watch::Input(job, index)));
        let watch = Watch::Output(job, index, Stream::Output);
        task.output = Some(OutPipe::new(master, watch, &mut context.watches)?);
        task.terminal = Some(pty.slave);
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
        let end = pty::end_of_input(terminal.as_fd());
        let count = if is_in_line { 2 } else { 1 };
        Rc::new(end.map_or_else(Vec::new, |end| vec![end; count]))
    }

    /// The front end is gone: its terminals hang up, so that their sessions get SIGHUP.
    pub(super) fn hang_up(&mut self, index: usize, context: &mut Context) {
        if self.tasks[index].terminal.take().is_some() {
            self.drop_stream(index, Stream::Output, context);
            if let Some(input) = self.tasks[index].input.take() {
                input.close(&mut context.watches);
            }
        }
    }
}
