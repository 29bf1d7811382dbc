//! Questions to agents, on behalf of clients that get one reply when all have answered.

use super::driver::Driver;
use super::report::{self, PAGE_BYTES, PAGE_ITEMS};
use super::upgrade::{answer_of_ended, failure};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use tutti_types::{ClusterTime, JobId, Nanos, NodeId};
use tutti_wire::frame::encoded_len;
use tutti_wire::launch::Usage;
use tutti_wire::local::Reply;
use tutti_wire::output::OutputFile;
use tutti_wire::report::{AgentStatus, NodeLife, TimetableReport};
use tutti_wire::tree::{Answer, Fares, Question, ToAgent};

/// How long `tutti nodes` waits for what nodes say of themselves: it is asked most of all when one
/// of them hangs.
const FARES_PATIENCE: Nanos = Nanos::from_millis(500);

/// How long nodes have for a sign of life, and for their status: what the others say is wanted most
/// of all when one of them hangs.
const LIFE_PATIENCE: Nanos = Nanos::from_secs(2);

/// How long a node has to read a piece of a file: its file system may hang.
const OUTPUT_PATIENCE: Nanos = Nanos::from_secs(10);

/// What a record of a switch takes, about.
const SWITCH_RECORD_BYTES: usize = 64;

/// Nodes that are asked for their processes at the same time.
const NODES_WITH_PROCESSES: usize = 8;

/// Questions to agents that wait for their answers.
#[derive(Default)]
pub(super) struct Questions {
    next: u64,
    open: BTreeMap<u64, Open>,
    /// Output files of ended jobs that readers read just now, the latest last: each piece is a
    /// question, and the journal need not be asked for each.
    read: VecDeque<EndedOutput>,
}

/// Output files of ended jobs that are kept in mind.
const ENDED_OUTPUTS_MAX: usize = 64;

/// An output file of an ended job. Job, owner and path do not change any more.
struct EndedOutput {
    /// Which user reads it.
    reader: u32,
    file: OutputFile,
    found: OutputPlace,
}

/// Where an output file is read.
#[derive(Clone)]
pub(super) struct OutputPlace {
    /// The name of the node that has it.
    pub(super) node: String,
    /// The owner of the job.
    pub(super) owner: u32,
    /// Its path there.
    pub(super) path: Vec<u8>,
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
    /// Whether it is about that job alone, node by node.
    is_of_one: bool,
}

impl Page {
    /// One of jobs.
    pub(super) fn of_jobs(job: JobId) -> Self {
        Self { job, ..Self::default() }
    }

    /// What there is of one job, node by node.
    pub(super) fn of_one_job(job: JobId) -> Self {
        Self { job, is_of_one: true, ..Self::default() }
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
    /// When nodes were asked, and how long each of them took to answer.
    asked: ClusterTime,
    took: BTreeMap<NodeId, Nanos>,
    /// Where the page begins that is asked for, and where the next one.
    page: Page,
    /// When a node that has not answered is left out.
    until: ClusterTime,
}

impl Questions {
    /// Where a file of an ended job is, if this user has read it lately.
    pub(super) fn ended_output(&self, reader: u32, file: OutputFile) -> Option<OutputPlace> {
        let is_it = |known: &&EndedOutput| known.reader == reader && known.file == file;
        self.read.iter().find(is_it).map(|known| known.found.clone())
    }

    /// Keeps in mind where a file of an ended job is.
    pub(super) fn note_ended_output(&mut self, reader: u32, file: OutputFile, found: OutputPlace) {
        if self.read.len() == ENDED_OUTPUTS_MAX {
            self.read.pop_front();
        }
        self.read.push_back(EndedOutput { reader, file, found });
    }

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
            Question::SignOfLife { .. }
            | Question::Status
            | Question::Timetable
            | Question::Devices { .. } => self.now() + LIFE_PATIENCE,
            Question::Output { .. } => self.now() + OUTPUT_PATIENCE,
            _ => ClusterTime::NEVER,
        };
        let (asked, took, question) = (self.now(), BTreeMap::new(), question.clone());
        let mut open = Open { client, question, missing, answers, asked, took, page, until };
        for node in nodes {
            if self.cluster.nodes.get(&node).is_some_and(|entry| entry.agent.is_some()) {
                open.missing.insert(node);
            } else {
                let name = self.node_name(node);
                open.answers.push((node, Answer::Failed(format!("node {name} has no agent now"))));
            }
        }
        let asked = open.missing.iter().copied().collect();
        self.tell_nodes(asked, ToAgent::Ask { query, question: open.question.clone() });
        self.pending.questions.open.insert(query, open);
        self.close_answered();
    }

    pub(super) fn on_answer(&mut self, query: u64, node: NodeId, answer: Answer) {
        let now = self.now();
        if let Some(open) = self.pending.questions.open.get_mut(&query)
            && open.missing.remove(&node)
        {
            open.took.insert(node, now.since(open.asked));
            open.answers.push((node, answer));
        }
        self.close_answered();
    }

    pub(super) fn answer_for_lost(&mut self, node: NodeId) {
        let name = self.node_name(node);
        for open in self.pending.questions.open.values_mut() {
            if open.missing.remove(&node) {
                open.answers.push((node, answer_of_ended(&open.question, &name)));
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
                    Question::Usages if open.page.is_of_one => {
                        self.usage_by_node(open.answers, open.page.job)
                    }
                    Question::Usages => self.jobs_with(open.answers, open.page.job),
                    Question::Fares => self.nodes_with(open.answers, open.page.node),
                    Question::SignOfLife { .. } => self.signs_of_life(&open),
                    Question::Devices { .. } => self.name_devices(&open.question, open.answers),
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
        let mut silent: BTreeSet<NodeId> = self.cluster.nodes.keys().copied().collect();
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

    /// What one job has used on each node that answers.
    fn usage_by_node(&self, answers: Vec<(NodeId, Answer)>, job: JobId) -> Reply {
        let used = |(node, answer)| {
            let Answer::Usages(of_node) = answer else { return None };
            let (_, usage) = of_node.into_iter().find(|(id, _)| *id == job)?;
            Some((self.node_name(node), usage))
        };
        Reply::UsageByNode { nodes: answers.into_iter().filter_map(used).collect() }
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

    /// What has answered of the nodes of a page, and what has not.
    fn signs_of_life(&self, open: &Open) -> Reply {
        let answers: BTreeMap<NodeId, &Answer> =
            open.answers.iter().map(|(node, answer)| (*node, answer)).collect();
        let last = open.page.next.unwrap_or(NodeId(u32::MAX));
        let of_page = self.cluster.nodes.keys().filter(|it| **it >= open.page.node && **it < last);
        let life = |&id: &NodeId| {
            let took = open.took.get(&id).map(|it| it.0);
            let (answered_ns, alive, not_asked) = match answers.get(&id) {
                Some(Answer::Alive(alive)) => (took, Some(*alive), String::new()),
                Some(Answer::Failed(reason)) => (took, None, reason.clone()),
                _ => (None, None, String::new()),
            };
            NodeLife { node: self.node_name(id), answered_ns, alive, not_asked }
        };
        Reply::SignsOfLife { nodes: of_page.map(life).collect(), next: open.page.next }
    }

    /// A timetable whose rows are counted as those of jobs are.
    fn with_rows_of_matrix(&self, mut report: Box<TimetableReport>) -> Box<TimetableReport> {
        let rows = self.core.rows().filter(|row| row.length.is_some());
        let rows: BTreeMap<u64, u64> = rows.map(|row| row.id.0).zip(1..).collect();
        for slot in &mut report.slots {
            slot.row = slot.row.and_then(|id| rows.get(&id).copied());
        }
        report
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
                Answer::Timetable(report) => {
                    return Reply::Timetable(self.with_rows_of_matrix(report));
                }
                Answer::Output(piece) => return Reply::Output(piece),
                Answer::Done
                | Answer::Usages(_)
                | Answer::Fares(_)
                | Answer::Devices(_)
                | Answer::Alive(_) => {}
                // Lost meanwhile, as nodes without an agent are left out.
                Answer::Failed(_) if *question == Question::Status => {}
                Answer::Failed(reason) => return failure(question, reason).failed(),
            }
        }
        match question {
            Question::Processes(target) => Reply::Tasks { target: *target, tasks, next },
            Question::Switches { .. } => Reply::Switches { nodes: switches, next },
            Question::Status => Reply::Status(report::status(self, statuses)),
            Question::Timetable => {
                failure(question, "the node's agent does not answer; see `tutti nodes`".into())
                    .failed()
            }
            Question::Output { .. } => {
                failure(question, "the node's file system does not answer".into()).failed()
            }
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
        Question::Fares | Question::SignOfLife { .. } => PAGE_ITEMS,
        Question::Status
        | Question::Timetable
        | Question::SuspendPart(_)
        | Question::ResumePart(_)
        | Question::Usages
        | Question::EndPart { .. }
        | Question::SignalPart { .. }
        | Question::Upgrade { .. }
        | Question::Devices { .. }
        | Question::Output { .. }
        | Question::Runs { .. } => usize::MAX,
    }
}
