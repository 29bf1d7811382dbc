//! What the pictures of `tutti top` are made from: asked of the controller, look by look.

use anyhow::Context;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Instant;
use tutti_client::ask::unexpected;
use tutti_client::connect;
use tutti_node::link::Link;
use tutti_node::platform::time::wall_ms;
use tutti_types::{JobId, NodeId};
use tutti_wire::event::EventQuery;
use tutti_wire::local::{Reply, Request};
use tutti_wire::report::{JobReport, NodeReport, ParamReport, SwitchRecord, Target, TaskReport};

/// What was seen in one look.
#[derive(Clone, Debug)]
pub(super) struct Sample {
    pub(super) at: Instant,
    pub(super) wall_ms: u64,
    pub(super) params: Vec<ParamReport>,
    pub(super) nodes: Vec<NodeReport>,
    /// Those that have not ended, by number.
    pub(super) jobs: Vec<JobReport>,
    /// The processes that were asked for.
    pub(super) tasks: Vec<TaskReport>,
    /// The latest switch of each node, if nodes are looked at closely.
    pub(super) switches: Vec<(String, Vec<SwitchRecord>)>,
    /// Whether they are: with their load.
    pub(super) is_close: bool,
    /// Why something of it is missing.
    pub(super) remark: Option<String>,
}

impl Sample {
    pub(super) fn blank(is_close: bool) -> Self {
        let (at, wall_ms) = (Instant::now(), wall_ms());
        let (params, nodes, jobs, tasks) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let (switches, remark) = (Vec::new(), None);
        Self { at, wall_ms, params, nodes, jobs, tasks, switches, is_close, remark }
    }

    /// What is to be asked next for what lacks, if anything does.
    fn take(&mut self, reply: Reply) -> anyhow::Result<Option<Request>> {
        let mut more = None;
        match reply {
            Reply::Params { params, .. } => self.params = params,
            Reply::Nodes { nodes, next } => {
                self.nodes.extend(nodes);
                more = next.map(|from| nodes_from(from, self.is_close));
            }
            Reply::Jobs { jobs, next } => {
                self.jobs.extend(jobs.into_iter().filter(|job| job.exit_code.is_none()));
                more = next.map(|from| Request::JobsWithUsage { from });
                // Usage is as of this moment.
                (self.at, self.wall_ms) = (Instant::now(), wall_ms());
            }
            Reply::Tasks { target, tasks, next } => {
                self.tasks.extend(tasks);
                more = next.map(|from| Request::Processes { target, from });
            }
            Reply::Switches { nodes, next } => {
                self.switches.extend(nodes);
                more = next.map(latest_switch);
            }
            // A job that ends is no reason to show nothing of the others.
            Reply::Failed { reason, code } => self.remark = Some(code.mark(&reason)),
            _ => return unexpected(),
        }
        Ok(more)
    }
}

fn nodes_from(from: NodeId, is_close: bool) -> Request {
    if is_close { Request::NodesClosely { from } } else { Request::Nodes { from } }
}

const fn latest_switch(from: NodeId) -> Request {
    Request::Switches { count: 1, from }
}

/// What came of a turn.
pub(super) enum Look {
    /// Nothing has happened since the last look.
    Same,
    /// A new one.
    New(Sample),
}

/// What is under way.
enum Asking {
    /// Whether anything has happened.
    Events,
    /// A look that is not complete, and how many answers it lacks.
    Look(Sample, usize),
}

/// See the module.
pub(super) struct Feed {
    link: Option<Link>,
    requests: Vec<Request>,
    asking: Option<Asking>,
    /// The number of the latest event when the last look was asked for.
    last: Option<u64>,
    /// Whether nodes are looked at closely.
    is_close: bool,
}

impl Feed {
    /// One that also asks for the processes of these.
    ///
    /// # Errors
    /// If there is no instance.
    pub(super) fn new(targets: &[Target]) -> anyhow::Result<Self> {
        Ok(Self::on(connect()?, targets))
    }

    fn on(link: Link, targets: &[Target]) -> Self {
        let processes =
            targets.iter().map(|&target| Request::Processes { target, from: NodeId(0) });
        let nodes = Request::Nodes { from: NodeId(0) };
        let always = [Request::Params, nodes, Request::JobsWithUsage { from: JobId(0) }];
        let requests = always.into_iter().chain(processes).collect();
        Self { link: Some(link), requests, asking: None, last: None, is_close: false }
    }

    /// From the next look on, nodes have their load and latest switch, or not any more: each agent
    /// is asked for it.
    pub(super) fn look_closely(&mut self, is_close: bool) {
        if self.is_close == is_close {
            return;
        }
        self.is_close = is_close;
        self.requests.retain(|it| !matches!(it, Request::Switches { .. }));
        let is_nodes =
            |it: &&mut Request| matches!(it, Request::Nodes { .. } | Request::NodesClosely { .. });
        if let Some(nodes) = self.requests.iter_mut().find(is_nodes) {
            *nodes = nodes_from(NodeId(0), is_close);
        }
        self.requests.extend(is_close.then_some(latest_switch(NodeId(0))));
    }

    /// A look, waited for.
    ///
    /// # Errors
    /// If there is no answer.
    pub(super) fn look(&mut self) -> anyhow::Result<Sample> {
        let mut sample = Sample::blank(self.is_close);
        for request in &self.requests {
            let link = self.link.as_mut().context("there is no connection")?;
            let mut request = Some(request.clone());
            while let Some(asked) = request {
                link.send(&asked);
                request = sample.take(link.call().context("the controller went away")?)?;
            }
        }
        Ok(sample)
    }

    /// What to wait for while an answer is under way.
    pub(super) fn awaited(&self) -> Option<BorrowedFd<'_>> {
        let link = self.link.as_ref().filter(|_| self.asking.is_some())?;
        Some(link.as_fd())
    }

    /// Takes in what has come, and asks anew if that is due. A look that is not `whole` asks for
    /// jobs and nodes only if anything has happened: thousands of them cost much.
    ///
    /// # Errors
    /// If the controller is away; the next turn tries again.
    pub(super) fn turn(&mut self, is_due: bool, is_whole: bool) -> anyhow::Result<Option<Look>> {
        let taken = self.take(is_due, is_whole);
        if taken.is_err() {
            // Another controller may number events otherwise.
            (self.link, self.asking, self.last) = (None, None, None);
        }
        taken
    }

    fn take(&mut self, is_due: bool, is_whole: bool) -> anyhow::Result<Option<Look>> {
        if self.asking.is_none() {
            if is_due {
                self.ask(is_whole || self.last.is_none())?;
            }
            return Ok(None);
        }
        let Some(link) = &mut self.link else { return Ok(None) };
        let received = link.receive();
        while let Some(reply) = self.link.as_mut().map_or(Ok(None), Link::next::<Reply>)? {
            if let Some(look) = self.on_reply(reply)? {
                return Ok(Some(look));
            }
        }
        if let Some(link) = &mut self.link {
            link.flush()?;
        }
        received.context("the controller went away")?;
        Ok(None)
    }

    fn ask(&mut self, is_whole: bool) -> anyhow::Result<()> {
        let link = match &mut self.link {
            Some(link) => link,
            none => none.insert(connect()?),
        };
        // Of no event, only the number of the latest. Asked first: what happens meanwhile counts.
        link.send(&Request::Events(EventQuery::default()));
        self.asking = Some(Asking::Events);
        if is_whole {
            self.requests.iter().for_each(|request| link.send(request));
            self.asking = Some(Asking::Look(Sample::blank(self.is_close), self.requests.len() + 1));
        }
        Ok(link.flush()?)
    }

    fn on_reply(&mut self, reply: Reply) -> anyhow::Result<Option<Look>> {
        match (&mut self.asking, reply) {
            (Some(Asking::Events), Reply::Events { last, .. }) if self.last == Some(last) => {
                self.asking = None;
                return Ok(Some(Look::Same));
            }
            (Some(Asking::Events), Reply::Events { .. }) => self.ask(true)?,
            (Some(Asking::Look(_, lacks)), Reply::Events { last, .. }) => {
                self.last = Some(last);
                *lacks -= 1;
            }
            (Some(Asking::Look(sample, lacks)), reply) => {
                match (sample.take(reply)?, &mut self.link) {
                    (Some(request), Some(link)) => link.send(&request),
                    _ => *lacks -= 1,
                }
            }
            _ => return unexpected(),
        }
        if !matches!(self.asking, Some(Asking::Look(_, 0))) {
            return Ok(None);
        }
        Ok(match self.asking.take() {
            Some(Asking::Look(sample, _)) => Some(Look::New(sample)),
            _ => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;
    use tutti_wire::frame::Role;

    fn link(stream: UnixStream) -> Link {
        let mut link = Link::new(stream).unwrap();
        link.greet(Role::Client);
        link
    }

    /// What was asked at the other end.
    fn asked(controller: &mut Link) -> Vec<Request> {
        let _ = controller.receive();
        std::iter::from_fn(|| controller.next().unwrap()).collect()
    }

    fn answer(controller: &mut Link, last: u64, whole: bool) {
        controller.send(&Reply::Events { events: Vec::new(), first: 0, until: last, last });
        if whole {
            controller.send(&Reply::Params {
                params: Vec::new(),
                classes: Vec::new(),
                periods: Vec::new(),
            });
            controller.send(&Reply::Nodes { nodes: Vec::new(), next: None });
            controller.send(&Reply::Jobs { jobs: Vec::new(), next: None });
        }
        controller.flush().unwrap();
    }

    #[test]
    fn jobs_are_asked_for_when_anything_has_happened_or_a_whole_look_is_due() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let (mut feed, mut controller) = (Feed::on(link(ours), &[]), link(theirs));
        let mut look = |is_whole, last, asks: usize| {
            assert!(feed.turn(true, is_whole).unwrap().is_none());
            let seen = asked(&mut controller);
            assert_eq!(seen.len(), asks, "{seen:?}");
            answer(&mut controller, last, asks == 4);
            let look = feed.turn(false, false).unwrap();
            if asks == 4 || look.is_some() {
                return matches!(look, Some(Look::New(_)));
            }
            // Something has happened, so the rest is asked for now.
            let seen = asked(&mut controller);
            assert_eq!(seen.len(), 4, "{seen:?}");
            answer(&mut controller, last, true);
            matches!(feed.turn(false, false).unwrap(), Some(Look::New(_)))
        };
        assert!(look(false, 7, 4), "the first look is whole");
        assert!(!look(false, 7, 1), "nothing has happened");
        assert!(look(false, 8, 1), "an event");
        assert!(!look(false, 8, 1), "nothing since");
        assert!(look(true, 8, 4), "it is due");
    }
}
