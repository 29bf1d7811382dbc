//! Viewers of a job: `tutti attach` sees its output beside the front end, from now on.
//!
//! A viewer never holds up the job. What it does not read in time is left out, and it learns how
//! much. Only the front end decides when tasks wait. Viewers do not outlive an upgrade of the
//! keeper: they attach again.

use super::context::Context;
use super::front::end_of;
use super::job::Job;
use super::outlet::{Outlet, UNSENT_BYTES_HIGH};
use super::stdio::Reader;
use super::watch::{Event, Token, Watch};
use std::rc::Rc;
use tutti_node::link::{Interest, Link};
use tutti_types::Rank;
use tutti_wire::attach::{FromFrontEnd, Stream, ToFrontEnd};
use tutti_wire::launch::Stdio;

/// Viewers of one job at once on one node.
const VIEWERS_MAX: usize = 16;

/// A connection that sees the output of a job.
pub(super) struct Viewer {
    /// Its number among the connections of the keeper.
    number: u64,
    link: Link,
    token: Token,
    outlet: Outlet,
    interest: Interest,
    /// How much was left out since it last took something.
    skipped: u64,
}

impl Job {
    /// Why there can't be another viewer, if so.
    pub(super) fn objection_to_viewer(&self) -> Option<&'static str> {
        if !matches!(self.launch.spec.stdio, Stdio::FrontEnd { .. }) {
            return Some("the job writes its output to files; `tutti logs -f` prints them");
        }
        (self.viewers.len() >= VIEWERS_MAX)
            .then_some("too many viewers are attached to the job; end one of them with Ctrl-\\")
    }

    /// Another viewer is here.
    pub(super) fn view(
        &mut self,
        number: u64,
        (link, token): (Link, Token),
        mut outlet: Outlet,
        context: &mut Context,
    ) {
        outlet.send(&ToFrontEnd::Attached { heard: 0 });
        for task in self.tasks.iter().filter(|task| task.delivered) {
            outlet.send(&end_of(task));
        }
        if self.undelivered == 0 {
            outlet.send(&ToFrontEnd::Finished);
        }
        context.watches.rename(token, Watch::Viewer(self.launch.job, number));
        let interest = Interest::NONE;
        self.viewers.push(Viewer { number, link, token, outlet, interest, skipped: 0 });
        self.want_pipes_back();
        context.touched.insert(self.launch.job);
        self.take_viewer_input(number, context);
    }

    /// What the front end reads itself is to come from us again, so that viewers see it.
    fn want_pipes_back(&mut self) {
        let Some(front) = &mut self.front else { return };
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

    /// Shows a piece of output to all viewers; empty: the end of a stream.
    pub(super) fn show(&mut self, rank: Rank, stream: Stream, data: &[u8]) {
        for viewer in &mut self.viewers {
            if viewer.outlet.unsent() + data.len() > UNSENT_BYTES_HIGH {
                viewer.skipped += data.len() as u64;
                continue;
            }
            if viewer.skipped > 0 {
                let bytes = std::mem::take(&mut viewer.skipped);
                viewer.outlet.send(&ToFrontEnd::Skipped { bytes });
            }
            let data = data.to_vec().into();
            viewer.outlet.send(&ToFrontEnd::Output { rank, stream, data });
        }
    }

    /// A task has ended, and all that it wrote was shown.
    pub(super) fn show_end(&mut self, index: usize) {
        for viewer in &mut self.viewers {
            if viewer.skipped > 0 {
                let bytes = std::mem::take(&mut viewer.skipped);
                viewer.outlet.send(&ToFrontEnd::Skipped { bytes });
            }
            viewer.outlet.send(&end_of(&self.tasks[index]));
            if self.undelivered == 0 {
                viewer.outlet.send(&ToFrontEnd::Finished);
            }
        }
    }

    /// Something happened on the connection of a viewer.
    pub(super) fn on_viewer(&mut self, number: u64, event: Event, context: &mut Context) {
        context.touched.insert(self.launch.job);
        let Some(viewer) = self.viewers.iter_mut().find(|it| it.number == number) else { return };
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
            && let Some(viewer) = self.viewers.iter_mut().find(|it| it.number == number)
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
        if let Some(at) = self.viewers.iter().position(|it| it.number == number) {
            let viewer = self.viewers.remove(at);
            context.watches.remove(&viewer.link, viewer.token);
        }
    }

    /// Once a round: writes what waits for viewers.
    pub(super) fn settle_viewers(&mut self, context: &mut Context) {
        if self.viewers.is_empty() {
            return;
        }
        let numbers: Vec<u64> = self.viewers.iter().map(|it| it.number).collect();
        numbers.iter().for_each(|number| self.take_viewer_input(*number, context));
        let read = !self.is_input_blocked();
        let mut gone = Vec::new();
        for viewer in &mut self.viewers {
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
        while let Some(viewer) = self.viewers.pop() {
            context.watches.remove(&viewer.link, viewer.token);
        }
    }
}
