//! What the pictures of `tutti top` are made from: asked of the controller, look by look.

use anyhow::Context;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Instant;
use tutti_client::ask::unexpected;
use tutti_client::connect;
use tutti_node::link::Link;
use tutti_node::platform::time::wall_ms;
use tutti_types::{JobId, NodeId};
use tutti_wire::local::{Reply, Request};
use tutti_wire::report::{JobReport, NodeReport, ParamReport, Target, TaskReport};

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
    /// Why something of it is missing.
    pub(super) remark: Option<String>,
}

impl Sample {
    fn blank() -> Self {
        let (at, wall_ms) = (Instant::now(), wall_ms());
        let (params, nodes, jobs, tasks) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Self { at, wall_ms, params, nodes, jobs, tasks, remark: None }
    }

    /// What is to be asked next for what lacks, if anything does.
    fn take(&mut self, reply: Reply) -> anyhow::Result<Option<Request>> {
        let mut more = None;
        match reply {
            Reply::Params { params, .. } => self.params = params,
            Reply::Nodes { nodes, next } => {
                self.nodes.extend(nodes);
                more = next.map(|from| Request::Nodes { from });
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
            // A job that ends is no reason to show nothing of the others.
            Reply::Failed { reason, code } => self.remark = Some(code.mark(&reason)),
            _ => return unexpected(),
        }
        Ok(more)
    }
}

/// See the module.
pub(super) struct Feed {
    link: Option<Link>,
    requests: Vec<Request>,
    /// A look that is not complete, and how many answers it lacks.
    begun: Option<(Sample, usize)>,
}

impl Feed {
    /// One that also asks for the processes of these.
    ///
    /// # Errors
    /// If there is no instance.
    pub(super) fn new(targets: &[Target]) -> anyhow::Result<Self> {
        let processes =
            targets.iter().map(|&target| Request::Processes { target, from: NodeId(0) });
        let nodes = Request::Nodes { from: NodeId(0) };
        let always = [Request::Params, nodes, Request::JobsWithUsage { from: JobId(0) }];
        let requests = always.into_iter().chain(processes).collect();
        Ok(Self { link: Some(connect()?), requests, begun: None })
    }

    /// A look, waited for.
    ///
    /// # Errors
    /// If there is no answer.
    pub(super) fn look(&mut self) -> anyhow::Result<Sample> {
        let mut sample = Sample::blank();
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
        let link = self.link.as_ref().filter(|_| self.begun.is_some())?;
        Some(link.as_fd())
    }

    /// Takes in what has come, and asks anew if a look is due; a look if one is complete.
    ///
    /// # Errors
    /// If the controller is away; the next turn tries again.
    pub(super) fn turn(&mut self, is_due: bool) -> anyhow::Result<Option<Sample>> {
        let taken = self.take(is_due);
        if taken.is_err() {
            (self.link, self.begun) = (None, None);
        }
        taken
    }

    fn take(&mut self, is_due: bool) -> anyhow::Result<Option<Sample>> {
        if self.begun.is_none() && is_due {
            let link = match &mut self.link {
                Some(link) => link,
                none => none.insert(connect()?),
            };
            self.requests.iter().for_each(|request| link.send(request));
            link.flush()?;
            self.begun = Some((Sample::blank(), self.requests.len()));
            return Ok(None);
        }
        let (Some((sample, lacks)), Some(link)) = (&mut self.begun, &mut self.link) else {
            return Ok(None);
        };
        let received = link.receive();
        while *lacks > 0 {
            let Some(reply) = link.next::<Reply>()? else { break };
            match sample.take(reply)? {
                Some(request) => link.send(&request),
                None => *lacks -= 1,
            }
        }
        link.flush()?;
        if *lacks > 0 {
            received.context("the controller went away")?;
            return Ok(None);
        }
        Ok(self.begun.take().map(|(sample, _)| sample))
    }
}
