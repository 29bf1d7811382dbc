//! Measures what the node can do, while no job is there. Its network is the tree's to measure:
//! [`super::tree`].
//!
//! A process of its own does that, `tutti measure`, since it uses a processor for about a second.
//! It is killed as soon as a job comes, and then reports nothing: a measurement never runs beside a
//! job. The controller asks, and asks again where it hears nothing.

use super::driver::Agent;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use std::io::{ErrorKind, Read};
use std::process::{Child, Command, Stdio};
use tracing::{debug, warn};
use tutti_node::link::{Interest, Poller};
use tutti_types::{Figures, Nanos};
use tutti_wire::code::Code;
use tutti_wire::tree::FromAgent;

/// The pipe of the process that measures can be read.
pub(super) const MEASURED: u64 = 11;

/// The longest that it prints, in bytes: four numbers.
const TEXT_BYTES_MAX: usize = 64;

/// A process that measures.
pub(super) struct Measuring {
    child: Child,
    text: Vec<u8>,
    /// Whether it was killed, since a job came.
    is_killed: bool,
}

impl Measuring {
    /// What has come of its output: true at its end.
    fn read(&mut self) -> bool {
        let Some(pipe) = &mut self.child.stdout else { return true };
        let mut room = [0; TEXT_BYTES_MAX];
        loop {
            match pipe.read(&mut room) {
                Ok(0) => return true,
                Ok(count) if self.text.len() + count > TEXT_BYTES_MAX => return true,
                Ok(count) => self.text.extend_from_slice(&room[..count]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return error.kind() != ErrorKind::WouldBlock,
            }
        }
    }

    fn kill(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        self.is_killed = true;
    }
}

impl Drop for Measuring {
    fn drop(&mut self) {
        self.kill();
        let _ = self.child.wait();
    }
}

impl Agent {
    /// Begins to measure, if no job is here.
    pub(super) fn measure(&mut self) {
        let Some(program) = &self.options.program else { return };
        let has_jobs = self.jobs.values().any(|job| !job.tasks.are_cleared());
        if has_jobs || self.processes.measuring.is_some() || self.service.stopping {
            return;
        }
        let mut command = Command::new(program);
        command.arg("measure").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        match begin(&mut command, &self.poller) {
            Ok(child) => {
                let measuring = Measuring { child, text: Vec::new(), is_killed: false };
                self.processes.measuring = Some(measuring);
            }
            Err(error) => {
                warn!(code = %Code::GoesWithout, "cannot measure what the node can do: {error}");
            }
        }
    }

    /// Measures the connection to the parent in so long, if no job is here.
    pub(super) fn measure_network(&mut self, after: Nanos) {
        let has_jobs = self.jobs.values().any(|job| !job.tasks.are_cleared());
        if !has_jobs && self.processes.measuring.is_none() && !self.service.stopping {
            self.tree.probe_parent(after);
        }
    }

    /// A job comes: what measures ends at once, and is reaped at the end of its pipe.
    pub(super) fn end_measuring(&mut self) {
        self.tree.end_probe();
        if let Some(measuring) = &mut self.processes.measuring {
            debug!("a job comes; no longer measuring");
            measuring.kill();
        }
    }

    /// The process that measures has printed something, or has ended.
    pub(super) fn on_measured(&mut self) {
        let Some(measuring) = &mut self.processes.measuring else { return };
        if !measuring.read() {
            return;
        }
        if let Some(pipe) = &measuring.child.stdout {
            self.poller.remove(pipe);
        }
        let figures = figures_of(&measuring.text).filter(|_| !measuring.is_killed);
        self.processes.measuring = None;
        if let Some(figures) = figures {
            self.tell_controller(FromAgent::Measured(figures));
        }
    }
}

fn begin(command: &mut Command, poller: &Poller) -> std::io::Result<Child> {
    let mut child = command.spawn()?;
    let watched =
        child.stdout.as_ref().ok_or_else(|| ErrorKind::BrokenPipe.into()).and_then(|pipe| {
            fcntl(pipe, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
            poller.add(pipe, MEASURED, Interest::READ)
        });
    if watched.is_err() {
        let _ = child.kill();
        let _ = child.wait();
    }
    watched.map(|()| child)
}

/// The four figures of a line, in the order of [`Figures`].
fn figures_of(text: &[u8]) -> Option<Figures> {
    let mut numbers = str::from_utf8(text).ok()?.split_ascii_whitespace().map(str::parse);
    let mut next = || numbers.next()?.ok();
    let figures = Figures { int: next()?, float: next()?, double: next()?, memory: next()? };
    numbers.next().is_none().then_some(figures)
}

#[cfg(test)]
mod tests {
    use super::figures_of;
    use tutti_types::Figures;

    #[test]
    fn figures_are_four_numbers_and_nothing_else() {
        let figures = Figures { int: 1, float: 2, double: 3, memory: 4 };
        assert_eq!(figures_of(b"1 2 3 4\n"), Some(figures));
        for wrong in [&b""[..], b"1 2 3", b"1 2 3 4 5", b"1 2 3 x", b"1 2 3 -4", b"1 2 3 \xff"] {
            assert_eq!(figures_of(wrong), None);
        }
    }
}
