//! Viewers of a job: `tutti attach` sees its output beside the front end, from now on.
//!
//! A viewer never holds up the job. What it does not read in time is left out, and it learns how
//! much. Only the front end decides when tasks wait. Viewers do not outlive an upgrade of the
//! keeper: they attach again.

use super::context::Context;
use super::front::end_of;
use super::job::{Job, Task};
use super::outlet::{Outlet, UNSENT_BYTES_HIGH};
use super::stdio::Reader;
use super::watch::{Event, Token, Watch, Watches};
use std::rc::Rc;
use tutti_node::link::{Interest, Link};
use tutti_types::Rank;
use tutti_wire::attach::{FromFrontEnd, Stream, ToFrontEnd};
use tutti_wire::launch::Stdio;
use tutti_wire::limits::TASKS_PER_NODE_MAX;

/// Viewers of one job at once on one node.
const VIEWERS_MAX: usize = 16;

/// Viewers of one user at once on one node, of all jobs together.
pub(super) const VIEWERS_OF_USER_MAX: usize = 64;

/// The most that a viewer may leave unread: output, and ends of tasks behind it. Beyond that it is
/// disconnected.
const VIEWER_UNSENT_BYTES_MAX: usize = 2 * UNSENT_BYTES_HIGH;

/// The most that the end of a task takes: frame length, variant, rank, status, no text.
const END_BYTES_MAX: usize = 4 + 1 + 5 + 2 + 1;

// A new viewer gets the ends of all tasks at once.
const _: () = assert!(TASKS_PER_NODE_MAX as usize * END_BYTES_MAX < UNSENT_BYTES_HIGH);

/// A connection that sees the output of a job.
pub(super) struct Viewer {
    /// Its number among the connections of the keeper.
    number: u64,
    /// The user at its other end.
    uid: u32,
    link: Link,
    token: Token,
    outlet: Outlet,
    interest: Interest,
    /// How much was left out since it last took something.
    skipped: u64,
}

impl Viewer {
    /// A task has ended, and perhaps it was the last one.
    fn show_end(&mut self, end: &ToFrontEnd, is_last: bool) {
        self.show_skipped();
        self.outlet.send(end);
        if is_last {
            self.outlet.send(&ToFrontEnd::Finished);
        }
    }

    /// How much was left out up to here.
    fn show_skipped(&mut self) {
        if self.skipped > 0 {
            let bytes = std::mem::take(&mut self.skipped);
            self.outlet.send(&ToFrontEnd::Skipped { bytes });
        }
    }
}

/// Shows viewers a piece of output. One that leaves too much unread misses it.
pub(super) fn show(viewers: &mut [Viewer], rank: Rank, stream: Stream, data: &[u8]) {
    for viewer in viewers {
        if viewer.outlet.unsent() + data.len() > UNSENT_BYTES_HIGH {
            viewer.skipped += data.len() as u64;
            continue;
        }
        viewer.show_skipped();
        viewer.outlet.output(rank, stream, data);
    }
}

/// Shows viewers that a task has ended. One that leaves too much unread is dropped.
fn show_end(viewers: &mut Vec<Viewer>, end: &ToFrontEnd, is_last: bool, watches: &mut Watches) {
    viewers.retain_mut(|viewer| {
        viewer.show_end(end, is_last);
        let is_kept = viewer.outlet.unsent() <= VIEWER_UNSENT_BYTES_MAX;
        if !is_kept {
            watches.remove(&viewer.link, viewer.token);
        }
        is_kept
    });
}

/// What a viewer hears of a task that has ended: not why, which may be long.
fn bare_end_of(task: &Task) -> ToFrontEnd {
    match end_of(task) {
        ToFrontEnd::TaskEnded { rank, status, .. } => {
            ToFrontEnd::TaskEnded { rank, status, detail: String::new() }
        }
        other => other,
    }
}

impl Job {
    /// How many of its viewers are connections of that user.
    pub(super) fn viewers_of(&self, uid: u32) -> usize {
        self.readers.viewers.iter().filter(|viewer| viewer.uid == uid).count()
    }

    /// Why there can't be another viewer, if so.
    pub(super) fn objection_to_viewer(&self) -> Option<&'static str> {
        if !matches!(self.launch.spec.stdio, Stdio::FrontEnd { .. }) {
            return Some("the job writes its output to files; `tutti logs -f` prints them");
        }
        (self.readers.viewers.len() >= VIEWERS_MAX)
            .then_some("too many viewers are attached to the job; end one of them with Ctrl-\\")
    }

    /// Another viewer is here: a connection by its number, of that user.
    pub(super) fn view(
        &mut self,
        (number, uid): (u64, u32),
        (link, token): (Link, Token),
        mut outlet: Outlet,
        context: &mut Context,
    ) {
        outlet.send(&ToFrontEnd::Attached { heard: 0 });
        for task in self.tasks.iter().filter(|task| task.delivered) {
            outlet.send(&bare_end_of(task));
        }
        if self.readers.have_all() {
            outlet.send(&ToFrontEnd::Finished);
        }
        context.watches.rename(token, Watch::Viewer(self.key(), number));
        let interest = Interest::READ;
        self.readers.viewers.push(Viewer {
            number,
            uid,
            link,
            token,
            outlet,
            interest,
            skipped: 0,
        });
        self.want_pipes_back();
        context.touched.insert(self.key());
        self.take_viewer_input(number, context);
    }

    /// What the front end reads itself is to come from us again, so that viewers see it.
    fn want_pipes_back(&mut self) {
        let Some(front) = &mut self.readers.front else { return };
        for task in &mut self.tasks {
            let rank = task.rank;
            for stream in [Stream::Output, Stream::Error] {
                if let Some(pipe) = task.stream(stream)
                    && pipe.reader() != Reader::Us
                {
                    front.outlet.send(&ToFrontEnd::ReturnPipe { rank, stream });
                }
            }
        }
    }

    /// A stream of a task has ended, and all that came from it was shown.
    pub(super) fn show_end_of_stream(&mut self, rank: Rank, stream: Stream) {
        for viewer in &mut self.readers.viewers {
            if viewer.outlet.unsent() <= UNSENT_BYTES_HIGH {
                viewer.show_skipped();
                viewer.outlet.end_of_stream(rank, stream);
            }
        }
    }

    /// A task has ended, and all that it wrote was shown.
    pub(super) fn show_end(&mut self, index: usize, context: &mut Context) {
        if !self.readers.viewers.is_empty() {
            let end = bare_end_of(&self.tasks[index]);
            let is_last = self.readers.have_all();
            show_end(&mut self.readers.viewers, &end, is_last, &mut context.watches);
        }
    }

    /// Something happened on the connection of a viewer.
    pub(super) fn on_viewer(&mut self, number: u64, event: Event, context: &mut Context) {
        context.touched.insert(self.key());
        let Some(viewer) = self.readers.viewers.iter_mut().find(|it| it.number == number) else {
            return;
        };
        if event.read {
            let received = viewer.link.receive();
            self.take_viewer_input(number, context);
            if received.is_err() {
                self.drop_viewer(number, context);
            }
        }
    }

    /// Passes on the input that a viewer has sent, unless a task is too far behind.
    fn take_viewer_input(&mut self, number: u64, context: &mut Context) {
        while !self.is_input_blocked()
            && let Some(viewer) = self.readers.viewers.iter_mut().find(|it| it.number == number)
        {
            match viewer.link.next() {
                // The end of a viewer's input is not that of the tasks.
                Ok(Some(FromFrontEnd::Input { rank, data })) if !data.is_empty() => {
                    self.feed(rank, &Rc::new(data.into_vec()), context);
                }
                Ok(Some(FromFrontEnd::Input { .. })) => {}
                Ok(None) => return,
                Ok(Some(_)) | Err(_) => return self.drop_viewer(number, context),
            }
        }
    }

    fn drop_viewer(&mut self, number: u64, context: &mut Context) {
        if let Some(at) = self.readers.viewers.iter().position(|it| it.number == number) {
            let viewer = self.readers.viewers.remove(at);
            context.watches.remove(&viewer.link, viewer.token);
        }
    }

    /// Once a round: writes what waits for viewers.
    pub(super) fn settle_viewers(&mut self, context: &mut Context) {
        if self.readers.viewers.is_empty() {
            return;
        }
        let numbers: Vec<u64> = self.readers.viewers.iter().map(|it| it.number).collect();
        numbers.iter().for_each(|number| self.take_viewer_input(*number, context));
        let read = !self.is_input_blocked();
        let mut gone = Vec::new();
        for viewer in &mut self.readers.viewers {
            if viewer.outlet.flush(viewer.link.stream()).is_err() {
                gone.push(viewer.number);
                continue;
            }
            let interest = Interest { read, write: viewer.outlet.unsent() > 0 };
            if interest != viewer.interest {
                viewer.interest = interest;
                context.watches.modify(&viewer.link, viewer.token, interest);
            }
        }
        gone.into_iter().for_each(|number| self.drop_viewer(number, context));
    }

    /// The job is over: its viewers have got what they took by now.
    pub(super) fn drop_viewers(&mut self, context: &mut Context) {
        self.settle_viewers(context);
        while let Some(viewer) = self.readers.viewers.pop() {
            context.watches.remove(&viewer.link, viewer.token);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;
    use tutti_types::{JobId, StepKey, TaskStatus};

    fn end(rank: u32) -> ToFrontEnd {
        let (rank, status) = (Rank(rank), TaskStatus::Exited(255));
        ToFrontEnd::TaskEnded { rank, status, detail: String::new() }
    }

    /// One that reads nothing, and its other end.
    fn stalled(watches: &mut Watches) -> (Vec<Viewer>, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let link = Link::new(ours).unwrap();
        let interest = Interest::READ;
        let token =
            watches.add(&link, Watch::Viewer(StepKey::first(JobId(1)), 0), interest).unwrap();
        let outlet = Outlet::new();
        let viewer = Viewer { number: 0, uid: 0, link, token, outlet, interest, skipped: 0 };
        (vec![viewer], theirs)
    }

    #[test]
    fn the_ends_of_all_tasks_fit_behind_as_much_output_as_may_wait() {
        let mut watches = Watches::new().unwrap();
        let (mut viewers, _theirs) = stalled(&mut watches);
        let output = vec![0; UNSENT_BYTES_HIGH - 100];
        let data = serde_bytes::ByteBuf::from(output);
        let (rank, stream) = (Rank(0), Stream::Output);
        viewers[0].outlet.send(&ToFrontEnd::Output { rank, stream, data });
        for rank in 0..TASKS_PER_NODE_MAX {
            let before = viewers[0].outlet.unsent();
            show_end(&mut viewers, &end(u32::MAX - rank), false, &mut watches);
            assert!(viewers[0].outlet.unsent() - before <= END_BYTES_MAX);
        }
        assert_eq!(viewers.len(), 1);
    }

    #[test]
    fn a_viewer_that_leaves_more_unread_is_dropped() {
        let mut watches = Watches::new().unwrap();
        let (mut viewers, mut theirs) = stalled(&mut watches);
        let mut most = 0;
        // Output is left out before each end, and it is said how much.
        for rank in 0..10 * TASKS_PER_NODE_MAX {
            let Some(viewer) = viewers.first_mut() else { break };
            viewer.skipped = 1 << 40;
            most = most.max(viewer.outlet.unsent());
            show_end(&mut viewers, &end(rank), false, &mut watches);
        }
        assert!(viewers.is_empty() && most <= VIEWER_UNSENT_BYTES_MAX, "{most} bytes wait");
        assert!(most > UNSENT_BYTES_HIGH);
        assert_eq!(std::io::copy(&mut theirs, &mut std::io::sink()).unwrap(), 0, "its end");
    }
}
