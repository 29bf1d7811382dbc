//! The instance as the server asks it: through the controller's socket, with the user's own rights.
//! Its JSON is what the verbs print.

use super::super::logs::{Shown, open_all};
use super::super::show::ask_to_show;
use super::super::switches::{row_of, rows_of};
use super::super::{all_jobs, history, params, report, show, when};
use super::submission;
use serde::Serialize;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use tutti_client::ask::{ask, pages_of_nodes, unexpected};
use tutti_client::events::{EventStream, json_line};
use tutti_client::metrics::{Figures, open_metrics};
use tutti_client::output::without_orders;
use tutti_linux::clock::monotonic_ns;
use tutti_node::codes::{code_of, coded};
use tutti_node::output_files::Stream;
use tutti_node::platform::time::wall_ms;
use tutti_types::{ClassName, JobId, NodeId};
use tutti_web::{
    Action, Answer, EventLine, EventLines, Events, Failure, HistoryQuery, Output, OutputQuery,
    ReportQuery, Source, Submission, UsageQuery,
};
use tutti_wire::code::Code;
use tutti_wire::event::EventQuery;
use tutti_wire::history::EndedQuery;
use tutti_wire::local::{Reply, Request};
use tutti_wire::report::{JobReport, NodeReport, SwitchRecord, Target};

/// Switches of a node that are looked at for the turns of rows.
const SWITCHES: u32 = 24;

/// How often the agent here is asked how far cluster time is ahead of its clock.
const CLOCK_FRESH: Duration = Duration::from_secs(30);

/// See the module.
#[derive(Default)]
pub(super) struct Instance {
    /// When it was asked, and by how much cluster time was ahead of this machine's clock.
    clock: Mutex<Option<(Instant, Option<i64>)>>,
}

fn failure(error: anyhow::Error) -> Failure {
    Failure::new(code_of(&error), format!("{error:#}"))
}

fn text(json: anyhow::Result<String>) -> Answer<String> {
    json.map(|json| without_orders(&json)).map_err(failure)
}

impl Source for Instance {
    fn jobs(&self, ended: bool, user: Option<&str>) -> Answer<String> {
        let jobs = || {
            let mut jobs = all_jobs(ended, |from| Request::Jobs { ended, from })?;
            jobs.retain(|job| ended || job.exit_code.is_none());
            jobs.retain(|job| user.is_none_or(|user| user == job.user));
            Ok(serde_json::to_string(&jobs)?)
        };
        text(jobs())
    }

    fn job(&self, job: u64) -> Answer<String> {
        text(show::json_of(JobId(job)))
    }

    fn nodes(&self) -> Answer<String> {
        let nodes = || {
            let nodes = pages_of_nodes(|from| ask(&Request::NodesClosely { from }))?;
            Ok(serde_json::to_string(&nodes)?)
        };
        text(nodes())
    }

    fn matrix(&self) -> Answer<String> {
        text(self.matrix_json())
    }

    fn params(&self) -> Answer<String> {
        text(params::json_of_all())
    }

    fn history(&self, query: &HistoryQuery) -> Answer<String> {
        let ended = EndedQuery {
            user: query.user.clone(),
            since_ms: query.since_ms,
            until_ms: query.until_ms,
            ..EndedQuery::default()
        };
        text(history::json_of(ended, query.last))
    }

    fn starts(&self) -> Answer<String> {
        text(when::json_of_line())
    }

    fn metrics(&self) -> Answer<String> {
        Figures::ask().map(|figures| open_metrics(&figures)).map_err(failure)
    }

    fn past(&self, after: u64) -> Answer<Box<dyn Events>> {
        let stream = EventStream::new(query_behind(Some(after), false));
        Ok(Box::new(InstanceEvents { stream, first: None }))
    }

    fn follow(&self, after: Option<u64>) -> Answer<Box<dyn Events>> {
        // From the first page on nothing is missed, whichever controller answers.
        let mut now = EventStream::new(query_behind(after, false));
        let first = lines(now.next_page()).map_err(failure)?;
        let stream = EventStream::new(query_behind(Some(first.until), true));
        Ok(Box::new(InstanceEvents { stream, first: Some(first) }))
    }

    fn output(&self, job: u64, query: OutputQuery) -> Answer<Box<dyn Output>> {
        let output = || -> anyhow::Result<JobOutput> {
            let report = ask_to_show(JobId(job), false)?;
            let stream = if query.error { Stream::Error } else { Stream::Output };
            let mut shown = open_all(&report, stream, query.rank, query.lines)?;
            let first = shown.next_piece()?;
            if let (Some(why_not), true) = (shown.missing(), report.ended_ms.is_some()) {
                return Err(coded(Code::NoOutput, why_not));
            }
            Ok(JobOutput { job: JobId(job), shown, first })
        };
        Ok(Box::new(output().map_err(failure)?))
    }

    fn report(&self, query: &ReportQuery) -> Answer<String> {
        text(report::json_of(&query.by, query.since_ms, query.until_ms))
    }

    fn usage(&self, query: &UsageQuery) -> Answer<String> {
        let UsageQuery { by, since_ms, until_ms, node } = query;
        text(history::usage_json_of(by, *since_ms, *until_ms, node.clone()))
    }

    fn submit(&self, submission: &Submission) -> Answer<u64> {
        submission::submit(submission)
    }

    fn act(&self, job: u64, action: Action) -> Answer<()> {
        let job = JobId(job);
        let target = Target::from(job);
        let request = match action {
            Action::Cancel { at_once } => Request::Cancel { target, at_once },
            Action::Suspend => Request::Suspend { target },
            Action::Resume => Request::Resume { target },
            Action::Hold => Request::Hold { job },
            Action::Release => Request::Release { job },
            Action::Class(name) => Request::SetJobClass { job, class: ClassName::new(&name) },
        };
        match ask(&request).map_err(failure)? {
            Reply::Done => Ok(()),
            _ => unexpected().map_err(failure),
        }
    }
}

const fn query_behind(after: Option<u64>, wait: bool) -> EventQuery {
    EventQuery { after, wait, jobs: Vec::new(), user: None, is_own: false }
}

/// A place in the stream of events.
struct InstanceEvents {
    stream: EventStream,
    /// A page that was read before.
    first: Option<EventLines>,
}

fn lines(page: anyhow::Result<tutti_client::events::EventPage>) -> anyhow::Result<EventLines> {
    let page = page?;
    let line = |record| -> anyhow::Result<EventLine> {
        let json = json_line(record)?;
        Ok(EventLine { number: record.number, json })
    };
    let events = page.events.iter().map(line).collect::<anyhow::Result<_>>()?;
    Ok(EventLines { events, until: page.until, last: page.last })
}

impl Events for InstanceEvents {
    fn next(&mut self) -> Answer<EventLines> {
        match self.first.take() {
            Some(page) => Ok(page),
            None => lines(self.stream.next_page()).map_err(failure),
        }
    }
}

/// The output of a job.
struct JobOutput {
    job: JobId,
    shown: Shown,
    /// A piece that was read before.
    first: Option<Vec<u8>>,
}

impl Output for JobOutput {
    fn next(&mut self) -> Answer<Option<Vec<u8>>> {
        match self.first.take() {
            Some(piece) => Ok(Some(piece)),
            None => self.shown.next_piece().map_err(failure),
        }
    }

    fn has_ended(&mut self) -> Answer<bool> {
        let report = ask_to_show(self.job, false).map_err(failure)?;
        let has_ended = report.ended_ms.is_some();
        if has_ended {
            self.shown.hurry();
        }
        Ok(has_ended)
    }
}

/// What `/v1/matrix` has; docs/reference/json.md describes it.
#[derive(Serialize)]
struct Matrix {
    time_ms: u64,
    nodes: Vec<NodeReport>,
    jobs: Vec<JobReport>,
    turns: Turns,
}

/// The latest turns of rows, on one node.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
struct Turns {
    node: Option<String>,
    /// Cluster time now; nothing where it is unknown.
    now_ns: Option<u64>,
    /// Oldest first.
    latest: Vec<Turn>,
}

/// When a row had its turn.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Turn {
    row: u32,
    began_ns: u64,
}

impl Instance {
    fn matrix_json(&self) -> anyhow::Result<String> {
        let nodes = pages_of_nodes(|from| ask(&Request::Nodes { from }))?;
        let mut jobs = all_jobs(false, |from| Request::Jobs { ended: false, from })?;
        jobs.retain(|job| job.exit_code.is_none());
        let mut turns = Turns::default();
        if jobs.iter().any(|job| job.rows > 1) {
            let request = Request::Switches { count: SWITCHES, from: NodeId(0) };
            let Reply::Switches { nodes, .. } = ask(&request)? else { return unexpected() };
            turns = turns_of(nodes, &jobs);
            turns.now_ns = self.cluster_ns();
        }
        Ok(serde_json::to_string(&Matrix { time_ms: wall_ms(), nodes, jobs, turns })?)
    }

    /// Cluster time, by the clock of the node that this machine is.
    fn cluster_ns(&self) -> Option<u64> {
        let mut clock = self.clock.lock().unwrap_or_else(PoisonError::into_inner);
        let (at, ahead) = clock.unwrap_or((Instant::now(), None));
        let ahead = match (clock.is_some() && at.elapsed() < CLOCK_FRESH, ahead) {
            (true, ahead) => ahead,
            (false, _) => {
                let ahead = clock_ahead();
                *clock = Some((Instant::now(), ahead));
                ahead
            }
        };
        monotonic_ns().checked_add_signed(ahead?)
    }
}

/// By how much cluster time is ahead of this machine's clock.
fn clock_ahead() -> Option<i64> {
    let here = nix::unistd::gethostname().ok()?;
    let nodes = pages_of_nodes(|from| ask(&Request::NodesClosely { from })).ok()?;
    nodes.into_iter().find(|node| *node.name == *here)?.clock_ahead_ns
}

/// The turns of rows as the node with the latest switch recorded them.
fn turns_of(nodes: Vec<(String, Vec<SwitchRecord>)>, jobs: &[JobReport]) -> Turns {
    let due = |(_, records): &(String, Vec<SwitchRecord>)| records.last().map(|it| it.due_ns);
    let Some((node, records)) = nodes.into_iter().max_by_key(due) else { return Turns::default() };
    let rows = rows_of(jobs);
    let turn = |record: &SwitchRecord| {
        let row = row_of(record, &rows)?;
        Some(Turn { row, began_ns: record.due_ns })
    };
    let latest = records.iter().filter_map(turn).collect();
    Turns { node: Some(node), now_ns: None, latest }
}
