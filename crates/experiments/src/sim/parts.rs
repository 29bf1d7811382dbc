//! Parts of a policy program on nodes, in a simulation: a process for each node, asked as live.

use super::program::{Talk, start_here};
use std::collections::BTreeMap;
use tutti_core::{Core, Event, Order};
use tutti_linux::spawn::Nursery;
use tutti_policy::protocol::parse_greeting;
use tutti_policy::{Mode, NodeSession, Out, Session, Start, parse_node_answer};
use tutti_types::{ClusterTime, JobId, NodeId, Rank};

/// Nodes with a part: each has a process.
const PARTS_MAX: usize = 256;

struct Part {
    node: NodeId,
    talk: Talk,
    session: NodeSession,
}

/// The parts.
pub(super) struct Parts {
    start: Start,
    all: Vec<Part>,
    /// The ranks of jobs by node: first and count.
    ranks: BTreeMap<JobId, Vec<(NodeId, u32, u32)>>,
}

impl Parts {
    /// Parts that are started when the program is.
    ///
    /// # Errors
    /// If there is no such file.
    pub(super) fn new(path: &str) -> anyhow::Result<Self> {
        Ok(Self { start: start_here(path)?, all: Vec::new(), ranks: BTreeMap::new() })
    }

    /// Starts them.
    ///
    /// # Errors
    /// What a part says, or that there are too many.
    pub(super) fn begin(
        &mut self,
        core: &Core,
        now: ClusterTime,
        nursery: &mut Nursery,
    ) -> Result<(), String> {
        let count = core.nodes().count();
        if count > PARTS_MAX {
            return Err(format!(
                "parts of a policy are simulated on at most {PARTS_MAX} nodes, and there are \
                 {count}; take fewer nodes, or no policy-node"
            ));
        }
        for node in core.nodes() {
            let session = NodeSession::new(Mode::Simulation, node.id, &node.spec.name);
            let mut talk = Talk::new(self.start.clone());
            talk.begin(&session.hello(now), nursery, parse_greeting)?;
            self.all.push(Part { node: node.id, talk, session });
        }
        self.note_plans(core);
        Ok(())
    }

    fn note_plans(&mut self, core: &Core) {
        for part in &mut self.all {
            if let Some(timetable) = core.timetable(part.node) {
                part.session.note_timetable(&timetable);
            }
        }
    }

    /// The core has taken in an event.
    pub(super) fn note(&mut self, core: &Core, event: &Event) {
        if self.all.is_empty() {
            return;
        }
        for &job in core.homes_touched() {
            if let Some(home) = core.home(job) {
                let of = |part: &tutti_core::Part| (part.node, part.first, part.tasks);
                self.ranks.insert(job, home.parts.iter().map(of).collect());
            }
        }
        match event {
            Event::TasksEnded { job, ranks, .. } => self.note_ends(*job, |it| ranks.contains(&it)),
            Event::JobsEnded { jobs, .. } => {
                for &job in jobs {
                    self.note_ends(job, |_| true);
                    self.ranks.remove(&job);
                }
            }
            _ => {}
        }
        if core.moved().frame || !core.moved().jobs.is_empty() {
            self.note_plans(core);
        }
    }

    fn note_ends(&mut self, job: JobId, ended: impl Fn(Rank) -> bool) {
        for &(node, first, count) in self.ranks.get(&job).into_iter().flatten() {
            let part = self.all.iter_mut().find(|part| part.node == node);
            let ranks = (first..first.saturating_add(count)).map(Rank);
            let mut ranks = ranks.filter(|rank| ended(*rank)).peekable();
            if let (Some(part), true) = (part, ranks.peek().is_some()) {
                part.session.note_ends(job, ranks);
            }
        }
    }

    /// When one wants to be asked.
    pub(super) fn due(&self, now: ClusterTime) -> ClusterTime {
        self.all.iter().map(|part| part.session.due(now)).min().unwrap_or(ClusterTime::NEVER)
    }

    /// Asks those that have something to hear.
    ///
    /// # Errors
    /// What a part says.
    pub(super) fn ask(&mut self, now: ClusterTime) -> Result<(), String> {
        for part in self.all.iter_mut().filter(|part| part.session.due(now) <= now) {
            let line = part.session.line(now);
            let round = part.session.round();
            let answer = part.talk.exchange(&line, |line| parse_node_answer(line, round))?;
            part.session.take(answer);
        }
        Ok(())
    }

    /// The next event that follows from an answer. Messages pass both ways.
    pub(super) fn next(
        &mut self,
        host: &mut Session,
        core: &Core,
        now: ClusterTime,
    ) -> Option<Event> {
        for (node, text) in host.parts().take_out() {
            let is_for = |part: &&mut Part| node.is_none_or(|node| node == part.node);
            let to = self.all.iter_mut().filter(is_for);
            to.for_each(|part| part.session.take_in(text.clone()));
        }
        for part in &mut self.all {
            while let Some((index, out)) = part.session.next(now) {
                match out {
                    Out::Message(text) => host.parts().take_in(part.node, text),
                    Out::Arrange { row, candidates } => {
                        let order = Order::Arrange { node: part.node, row, candidates };
                        match host.parts().consider(core, now, order) {
                            Ok(event) => return Some(event),
                            Err(reason) => {
                                part.session.refuse(part.session.round(), index, reason);
                            }
                        }
                    }
                }
            }
        }
        None
    }
}
