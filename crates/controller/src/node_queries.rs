//! Questions to agents, on behalf of clients that get one reply when all have answered.

use super::driver::Driver;
use super::report::{self, PAGE_BYTES, PAGE_ITEMS};
use super::upgrade::{answer_of_ended, failure};
use std::collections::{BTreeMap, BTreeSet};
use tutti_types::{ClusterTime, JobId, Nanos, NodeId};
use tutti_wire::frame::encoded_len;
use tutti_wire::launch::Usage;
use tutti_wire::local::Reply;
use tutti_wire::report::AgentStatus;
use tutti_wire::tree::{Answer, Fares, Question, ToAgent};

/// How long `tutti nodes` waits for what nodes say of themselves: it is asked most of all when one
/// of them hangs.
const FARES_PATIENCE: Nanos = Nanos::from_millis(500);

/// What a record of a switch takes, about.
const SWITCH_RECORD_BYTES: usize = 64;

/// Nodes that are asked for their processes at the same time.
const NODES_WITH_PROCESSES: usize = 8;

/// Questions to agents that wait for their answers.
#[derive(Default)]
pub(super) struct Questions {
    next: u64,
    open: BTreeMap<u64, Open>,
}

/// Where the page of a list begins that a client asks for.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Page {
    /// With which job, of a list of jobs.
    job: JobId,
    /// With which node, of a list of nodes or of what is on them.
    node: NodeId,
    /// Where the next page begins, if others follow.
    next: Option<NodeId>,
}

impl Page {
    /// One of jobs.
    pub(super) fn of_jobs(job: JobId) -> Self {
        Self { job, ..Self::default() }
    }

    /// One of nodes, or of what is on them.
    pub(super) fn of_nodes(node: NodeId) -> Self {
        Self { node, ..Self::default() }
    }
}

struct Open {
    client: u64,
    question: Question,
    /// Nodes that have not answered.
    missing: BTreeSet<NodeId>,
    answers: Vec<(NodeId, Answer)>,
    /// Where the page begins that is asked for, and where the next one.
    page: Page,
    /// When a node that has not answered is left out.
    until: ClusterTime,
}

impl Questions {
    /// Whether this client waits for an answer.
    pub(super) fn is_open_for(&self, client: u64) -> bool {
        self.open.values().any(|open| open.client == client)
    }

    /// How many wait that are asked on behalf of these clients.
    pub(super) fn open_for(&self, is_meant: impl Fn(u64) -> bool) -> usize {
        self.open.values().filter(|open| is_meant(open.client)).count()
    }

    /// When the first is answered with what there is.
    pub(super) fn due(&self) -> ClusterTime {
        self.open.values().map(|open| open.until).min().unwrap_or(ClusterTime::NEVER)
    }
}

impl Driver {
    /// Asks these nodes, on behalf of a client that gets one reply when all have answered.
    pub(super) fn ask(&mut self, client: u64, nodes: &[NodeId], question: &Question) {
        self.ask_for_page(client, nodes, question, Page::default());
    }

    /// The same, for a page of a list. Where a page is of nodes, only as many are asked as may be
    /// on it.
    pub(super) fn ask_for_page(
        &mut self,
        client: u64,
        nodes: &[NodeId],
        question: &Question,
        page: Page,
    ) {
        let mut nodes: Vec<NodeId> = nodes.iter().copied().filter(|it| *it >= page.node).collect();
        nodes.sort_unstable();
        let page = Page { next: nodes.get(nodes_asked(question)).copied(), ..page };
        nodes.truncate(nodes_asked(question));
        let query = self.pending.questions.next;
        self.pending.questions.next += 1;
        let (missing, answers) = (BTreeSet::new(), Vec::new());
        let until = match question {
            Question::Fares => self.now() + FARES_PATIENCE,
            _ => ClusterTime::NEVER,
        };
        let mut open = Open { client, question: question.clone(), missing, answers, page, until };
        for node in nodes {
            if self.nodes.get(&node).is_some_and(|entry| entry.agent.is_some()) {
                open.missing.insert(node);
            } else {
                let name = self.node_name(node);
                open.answers.push((node, Answer::Failed(format!("node {name} has no agent now"))));
            }
        }
        let asked = open.missing.iter().copied().collect();
        self.tell_nodes(asked, ToAgent::Ask { query, question: question.clone() });
        self.pending.questions.open.insert(query, open);
        self.close_answered();
    }

    pub(super) fn on_answer(&mut self, query: u64, node: NodeId, answer: Answer) {
        if let Some(open) = self.pending.questions.open.get_mut(&query)
            && open.missing.remove(&node)
        {
            open.answers.push((node, answer));
        }
        self.close_answered();
    }

    pub(super) fn answer_for_lost(&mut self, node: NodeId) {
        for open in self.pending.questions.open.values_mut() {
            if open.missing.remove(&node) {
                open.answers.push((node, answer_of_ended(&open.question)));
            }
        }
        self.close_answered();
    }

    /// Gives up the nodes that have had their time.
    pub(super) fn close_overdue(&mut self, now: ClusterTime) {
        for open in self.pending.questions.open.values_mut().filter(|open| open.until <= now) {
            open.missing.clear();
        }
        self.close_answered();
    }

    fn close_answered(&mut self) {
        let done: Vec<u64> = self
            .pending
            .questions
            .open
            .iter()
            .filter(|(_, open)| open.missing.is_empty())
            .map(|(&query, _)| query)
            .collect();
        for query in done {
            if let Some(mut open) = self.pending.questions.open.remove(&query) {
                open.answers.sort_by_key(|(node, _)| *node);
                let reply = match open.question {
                    Question::Usages => self.jobs_with(open.answers, open.page.job),
                    Question::Fares => self.nodes_with(open.answers, open.page.node),
                    _ => self.merge(&open.question, open.answers, open.page.next),
                };
                self.note_part(&open.question, reply == Reply::Done);
                self.reply(open.client, &reply);
            }
        }
    }

    /// What a node does not tell is left out, since it has no agent just now: what its jobs have
    /// used is more.
    fn jobs_with(&self, answers: Vec<(NodeId, Answer)>, from: JobId) -> Reply {
        let mut usages: BTreeMap<JobId, Usage> = BTreeMap::new();
        let mut silent: BTreeSet<NodeId> = self.nodes.keys().copied().collect();
        for (node, answer) in answers {
            let Answer::Usages(of_node) = answer else { continue };
            silent.remove(&node);
            for (job, usage) in of_node {
                usages.entry(job).or_default().add(&usage);
            }
        }
        let views = (!silent.is_empty()).then(|| self.core.jobs(self.now()));
        for view in views.into_iter().flatten() {
            if view.placements.iter().any(|placed| silent.contains(&placed.node)) {
                usages.entry(view.id).or_default().add(&Usage::unknown());
            }
        }
        report::jobs(self, true, from, &usages)
    }

    /// As above.
    fn nodes_with(&self, answers: Vec<(NodeId, Answer)>, from: NodeId) -> Reply {
        let fares = |(node, answer)| match answer {
            Answer::Fares(fares) => Some((node, fares)),
            _ => None,
        };
        let fares: BTreeMap<NodeId, Fares> = answers.into_iter().filter_map(fares).collect();
        report::nodes(self, &fares, from)
    }

    fn merge(
        &self,
        question: &Question,
        answers: Vec<(NodeId, Answer)>,
        mut next: Option<NodeId>,
    ) -> Reply {
        let (mut switches, mut tasks) = (Vec::new(), Vec::new());
        let mut statuses: Vec<AgentStatus> = Vec::new();
        let mut bytes = 0;
        for (node, answer) in answers {
            if matches!(answer, Answer::Switches(_) | Answer::Tasks(_)) {
                let more = encoded_len(&answer);
                if bytes > 0 && more > PAGE_BYTES.saturating_sub(bytes) {
                    next = Some(node);
                    break;
                }
                bytes = bytes.saturating_add(more);
            }
            match answer {
                Answer::Switches(records) => switches.push((self.node_name(node), records)),
                Answer::Status(status) => statuses.push(*status),
                Answer::Tasks(found) => tasks.extend(found),
                Answer::Done | Answer::Usages(_) | Answer::Fares(_) => {}
                Answer::Failed(reason) => return failure(question, reason).failed(),
            }
        }
        match question {
            Question::Processes(target) => Reply::Tasks { target: *target, tasks, next },
            Question::Switches { .. } => Reply::Switches { nodes: switches, next },
            _ if !statuses.is_empty() => Reply::Status(report::status(self, statuses)),
            _ => Reply::Done,
        }
    }
}

/// How many nodes are asked for one page: about as many as fit on it. What one of them answers fits
/// into a frame, but a user may make it long.
fn nodes_asked(question: &Question) -> usize {
    match question {
        Question::Switches { count } => {
            let records = usize::try_from(*count).unwrap_or(usize::MAX).max(1);
            (PAGE_BYTES / SWITCH_RECORD_BYTES / records).max(1)
        }
        Question::Processes(_) => NODES_WITH_PROCESSES,
        Question::Fares => PAGE_ITEMS,
        Question::Status
        | Question::SuspendPart(_)
        | Question::ResumePart(_)
        | Question::Usages
        | Question::EndPart { .. }
        | Question::SignalPart { .. }
        | Question::Upgrade { .. }
        | Question::Runs { .. } => usize::MAX,
    }
}
