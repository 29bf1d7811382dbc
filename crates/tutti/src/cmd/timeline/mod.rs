//! `tutti timeline`: what really ran on which processor, as switch threads recorded it.
//!
//! Events say when a job began and ended, and which processors it had; records of switches say
//! when it was stopped and resumed there. All times are cluster time.

mod chrome;
mod lanes;
mod png;
mod svg;

use super::job_range::{Several, targets_of, whole_jobs};
use anyhow::Context;
use clap::Args;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use tutti_client::ask::{all_pages, ask, unexpected};
use tutti_client::events::EventStream;
use tutti_client::output::print_bytes;
use tutti_node::codes::coded;
use tutti_node::exit::Exit;
use tutti_node::platform::time::wall_ms;
use tutti_types::{JobId, Nanos, NodeId};
use tutti_wire::code::Code;
use tutti_wire::event::{EventNode, EventQuery, EventRecord, What};
use tutti_wire::limits::SWITCH_RECORDS_MAX;
use tutti_wire::local::{Reply, Request};
use tutti_wire::report::SwitchRecord;

const EXAMPLES: &str = "\
Examples:
  tutti timeline -o t.json             open it in ui.perfetto.dev
  tutti timeline 7 -o job7.json        job 7 alone
  tutti timeline --since 10s -o t.svg  the last ten seconds as a picture
  tutti timeline --since 10s -o t.png  as a PNG, for slides and mail

Each node is a process and each processor a thread of the trace; switches have a thread \
of their own. A node keeps its latest 65,536 switches. You see turns of your own jobs; \
administrators see all.";

/// Times in which a job ran on one processor: more are not written.
const SLICES_MAX: usize = 1_000_000;

/// Endings of the names of files, each with its form.
const ENDINGS: [(&str, Form); 4] =
    [("svg", Form::Svg), ("png", Form::Png), ("json", Form::Trace), ("trace", Form::Trace)];

/// What is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// JSON that Perfetto and Chrome read.
    Trace,
    Svg,
    Png,
}

#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct TimelineArgs {
    /// Only this node; may be given several times
    #[arg(short = 'w', long = "node", value_name = "NODE")]
    nodes: Vec<String>,

    /// Only what ran within this time until now, such as 10s or 5m
    #[arg(short, long, value_name = "TIME", value_parser = tutti_client::duration)]
    since: Option<Nanos>,

    /// Write to this file (- for standard output): a picture if its name ends in .svg or .png, a
    /// trace if in .json, in .trace or without an ending
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// A picture (SVG) instead of a trace
    #[arg(long)]
    svg: bool,

    /// Only these jobs: numbers, ranges, names of your jobs, or `last`
    #[arg(value_name = "JOB", value_parser = whole_jobs)]
    jobs: Vec<Several>,
}

/// What ran where.
#[derive(Debug, Default)]
struct Timeline {
    /// The names of nodes.
    nodes: Vec<String>,
    /// The names of jobs.
    names: BTreeMap<JobId, String>,
    slices: Vec<Slice>,
    switches: Vec<(usize, SwitchRecord)>,
    /// The span of all, in cluster time.
    begin_ns: u64,
    end_ns: u64,
    /// Its end by people's clocks, in milliseconds since 1970.
    end_ms: u64,
}

/// A time in which a job ran on a processor.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Slice {
    node: usize,
    processor: u32,
    job: JobId,
    begin_ns: u64,
    end_ns: u64,
    end: EndOfSlice,
}

/// What ended such a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EndOfSlice {
    /// It was stopped.
    Stopped,
    /// It was asked to stop and went on: the end is when the switch no longer waited.
    RanOn,
    /// Its tasks there ended.
    Ended,
    /// It still runs.
    Open,
}

impl EndOfSlice {
    const fn word(self) -> &'static str {
        match self {
            Self::Stopped => "stopped",
            Self::RanOn => "ran on",
            Self::Ended => "ended",
            Self::Open => "runs",
        }
    }
}

/// The tasks of a job on one node, from their start on.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Part {
    job: JobId,
    node: String,
    processors: Vec<u32>,
    ranks: BTreeSet<u32>,
    begin_ns: u64,
    end_ns: Option<u64>,
}

pub(crate) fn execute(args: &TimelineArgs) -> anyhow::Result<Exit> {
    let output = args.output.as_deref().filter(|path| *path != Path::new("-"));
    let form = form_of(output, args.svg)?;
    let targets = targets_of(&args.jobs, true)?;
    let jobs: BTreeSet<JobId> = targets.into_iter().map(|target| target.job).collect();
    let events = all_events()?;
    // Before the records, so that a switch in between is not taken for one that is missing.
    let made = switches_made()?;
    let switches =
        all_pages(NodeId(0), |from| match ask(&Request::Switches { count: u32::MAX, from })? {
            Reply::Switches { nodes, next } => Ok((nodes, next)),
            _ => unexpected(),
        })?;
    let mut timeline = Timeline::of(&events, kept_of(switches, &made, &events), wall_ms());
    for node in &args.nodes {
        if !timeline.nodes.contains(node) {
            let reason = format!("no node {node} has run anything; see `tutti nodes`");
            return Err(coded(Code::NoSuchNodes, reason));
        }
    }
    timeline.choose(&jobs, &args.nodes, args.since);
    if timeline.slices.is_empty() {
        let reason = "nothing has run there and then, as far as is known; see `tutti events` and `tutti switches`";
        return Err(coded(Code::NoPart, reason));
    }
    if timeline.slices.len() > SLICES_MAX {
        let reason = format!(
            "{} turns are too many; at most {SLICES_MAX} are written: choose with --since, --node or jobs",
            timeline.slices.len()
        );
        return Err(coded(Code::TooMuchAsked, reason));
    }
    let bytes = match form {
        Form::Svg => svg::picture(&timeline)?.into_bytes(),
        Form::Png => png::picture(&timeline)?,
        Form::Trace => chrome::trace(&timeline).into_bytes(),
    };
    match output {
        None => print_bytes(&bytes)?,
        Some(path) => std::fs::write(path, bytes)
            .with_context(|| format!("cannot write {}", path.display()))?,
    }
    Ok(Exit::OK)
}

/// The form that the name of a file asks for, or `--svg`.
fn form_of(output: Option<&Path>, svg: bool) -> anyhow::Result<Form> {
    let ending = output.and_then(Path::extension).map(std::ffi::OsStr::to_string_lossy);
    let form = match &ending {
        None if svg => Form::Svg,
        None => Form::Trace,
        Some(ending) => {
            let known = ENDINGS.iter().find(|(known, _)| ending.eq_ignore_ascii_case(known));
            let Some((_, form)) = known else {
                let reason = format!(
                    "a timeline is a picture as .svg or .png, or a trace as .json, and not \
                     .{ending}; a browser or rsvg-convert makes others of an .svg"
                );
                return Err(coded(Code::CannotUnderstand, reason));
            };
            *form
        }
    };
    if svg && form != Form::Svg {
        let reason = "--svg writes a file that ends in .svg; leave --svg out, or name such a file";
        return Err(coded(Code::CannotUnderstand, reason));
    }
    Ok(form)
}

/// The switches of a node that it has kept, oldest first.
#[derive(Debug, Default)]
struct Kept {
    records: Vec<SwitchRecord>,
    /// Until when records may be missing before the first of these, in cluster time.
    missing_ns: u64,
}

impl Kept {
    /// From when on all switches are known that a part had which began then.
    fn known_ns(&self, begin_ns: u64) -> u64 {
        let first = self.records.first().map_or(u64::MAX, |record| record.resumed_ns);
        if begin_ns < self.missing_ns { begin_ns.max(first) } else { begin_ns }
    }
}

/// How many switches each node has made since its agent began.
fn switches_made() -> anyhow::Result<BTreeMap<String, u64>> {
    let Reply::Status(status) = ask(&Request::Status)? else { return unexpected() };
    Ok(status.agents.into_iter().map(|agent| (agent.node, agent.switches)).collect())
}

/// What each node has kept, and until when something may be missing.
///
/// An agent forgets the oldest records when there are too many, and all when it is started anew.
/// The first shows in their number, the second as a node that did not answer for some time.
fn kept_of(
    switches: Vec<(String, Vec<SwitchRecord>)>,
    made: &BTreeMap<String, u64>,
    events: &[EventRecord],
) -> BTreeMap<String, Kept> {
    let mut all: BTreeMap<String, Kept> = BTreeMap::new();
    for record in events {
        if let What::NodeJoined { node, .. }
        | What::NodeUnreachable { node }
        | What::NodeBack { node }
        | What::NodeLost { node } = &record.event.what
        {
            all.entry(node.clone()).or_default().missing_ns = record.event.cluster_ns;
        }
    }
    for (node, records) in switches {
        let count = records.len();
        let is_full =
            count >= SWITCH_RECORDS_MAX || made.get(&node).is_some_and(|made| *made > count as u64);
        let kept = all.entry(node).or_default();
        if let Some(first) = records.first().filter(|_| is_full) {
            kept.missing_ns = kept.missing_ns.max(first.began_ns);
        }
        kept.records = records;
    }
    all
}

/// All events that are kept.
fn all_events() -> anyhow::Result<Vec<EventRecord>> {
    let mut stream = EventStream::new(EventQuery { after: Some(0), ..EventQuery::default() });
    let (mut events, mut last) = (Vec::new(), None);
    loop {
        let page = stream.next_page()?;
        events.extend(page.events);
        if page.until >= *last.get_or_insert(page.last) {
            return Ok(events);
        }
    }
}

/// The numbers of a text such as `0-3,7`.
fn numbers(text: &str) -> Vec<u32> {
    let range = |part: &str| -> Option<std::ops::RangeInclusive<u32>> {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.parse().ok()?..=last.parse().ok()?)
    };
    text.split(',').filter_map(range).flatten().collect()
}

/// The parts of jobs, from what was told of them.
fn parts_of(events: &[EventRecord]) -> Vec<Part> {
    let mut parts: Vec<Part> = Vec::new();
    let mut open: BTreeMap<JobId, Vec<usize>> = BTreeMap::new();
    for record in events {
        let (at, Some(of)) = (record.event.cluster_ns, &record.event.job) else { continue };
        let live = open.entry(of.job).or_default();
        let mut end = |parts: &mut Vec<Part>, ends: &dyn Fn(&mut Part) -> bool| {
            live.retain(|&index| {
                let has_ended = ends(&mut parts[index]);
                if has_ended {
                    parts[index].end_ns = Some(at);
                }
                !has_ended
            });
        };
        match &record.event.what {
            What::JobStarted { nodes, .. } => {
                end(&mut parts, &|_| true);
                for EventNode { node, ranks, processors, .. } in nodes {
                    live.push(parts.len());
                    parts.push(Part {
                        job: of.job,
                        node: node.clone(),
                        processors: numbers(processors),
                        ranks: numbers(ranks).into_iter().collect(),
                        begin_ns: at,
                        end_ns: None,
                    });
                }
            }
            What::TasksEnded { ranks, .. } => {
                let ended = numbers(ranks);
                end(&mut parts, &|part| {
                    part.ranks.retain(|rank| !ended.contains(rank));
                    part.ranks.is_empty()
                });
            }
            What::JobRanksRespawned { node, ranks, processors, .. } => {
                live.push(parts.len());
                parts.push(Part {
                    job: of.job,
                    node: node.clone(),
                    processors: numbers(processors),
                    ranks: numbers(ranks).into_iter().collect(),
                    begin_ns: at,
                    end_ns: None,
                });
            }
            What::JobNodeLost { node } => end(&mut parts, &|part| part.node == *node),
            What::JobRequeued { .. } | What::JobEnded { .. } => end(&mut parts, &|_| true),
            _ => {}
        }
    }
    parts
}

/// The times in which a part ran, from the switches of its node; none where they are not known.
fn turns_of(part: &Part, kept: &Kept, now_ns: u64) -> Vec<(u64, u64, EndOfSlice)> {
    let until = part.end_ns.unwrap_or(now_ns);
    let from = kept.known_ns(part.begin_ns);
    let is_about = |record: &&SwitchRecord| {
        let within = record.began_ns >= part.begin_ns && record.began_ns <= until;
        within && (record.left.contains(&part.job) || record.came.contains(&part.job))
    };
    let mut about = kept.records.iter().filter(is_about).peekable();
    // A job that is started in its turn runs at once, without a switch.
    let waits = match about.peek() {
        Some(first) => first.came.contains(&part.job),
        None => from > part.begin_ns,
    };
    let mut running = (!waits).then_some(from);
    let mut turns = Vec::new();
    for record in about {
        if record.came.contains(&part.job) {
            running.get_or_insert(record.resumed_ns);
        } else if let Some(begin) = running.take() {
            let end = match record.running.contains(&part.job) {
                true => EndOfSlice::RanOn,
                false => EndOfSlice::Stopped,
            };
            turns.extend((begin < record.stopped_ns).then_some((begin, record.stopped_ns, end)));
        }
    }
    if let Some(begin) = running.filter(|begin| *begin < until) {
        let end = if part.end_ns.is_some() { EndOfSlice::Ended } else { EndOfSlice::Open };
        turns.push((begin, until, end));
    }
    turns
}

impl Timeline {
    fn of(events: &[EventRecord], switches: BTreeMap<String, Kept>, now_ms: u64) -> Self {
        let last = events.last().map(|record| (record.event.cluster_ns, record.event.at_ms));
        let (last_ns, last_ms) = last.unwrap_or_default();
        let now_ns = last_ns + now_ms.saturating_sub(last_ms) * 1_000_000;
        let parts = parts_of(events);
        let mut timeline = Self { end_ns: now_ns, end_ms: now_ms, ..Self::default() };
        let names: BTreeSet<String> =
            switches.keys().cloned().chain(parts.iter().map(|part| part.node.clone())).collect();
        timeline.nodes = names.into_iter().collect();
        for of in events.iter().filter_map(|record| record.event.job.as_ref()) {
            timeline.names.entry(of.job).or_insert_with(|| of.name.clone());
        }
        let nothing = Kept::default();
        for part in &parts {
            let Ok(node) = timeline.nodes.binary_search(&part.node) else { continue };
            let kept = switches.get(&part.node).unwrap_or(&nothing);
            for (begin_ns, end_ns, end) in turns_of(part, kept, now_ns) {
                let job = part.job;
                let slice =
                    |&processor: &u32| Slice { node, processor, job, begin_ns, end_ns, end };
                timeline.slices.extend(part.processors.iter().map(slice));
            }
        }
        for (node, kept) in switches {
            let Ok(node) = timeline.nodes.binary_search(&node) else { continue };
            timeline.switches.extend(kept.records.into_iter().map(|record| (node, record)));
        }
        timeline.slices.sort_by_key(|it| (it.node, it.processor, it.begin_ns));
        timeline
    }

    /// Leaves what is wanted, and finds its span.
    fn choose(&mut self, jobs: &BTreeSet<JobId>, nodes: &[String], since: Option<Nanos>) {
        let from_ns = since.map_or(0, |since| self.end_ns.saturating_sub(since.0));
        let names = &self.nodes;
        let of_node = |node: usize| nodes.is_empty() || nodes.contains(&names[node]);
        let of_jobs = |job: &JobId| jobs.is_empty() || jobs.contains(job);
        self.slices.retain(|it| of_node(it.node) && of_jobs(&it.job) && it.end_ns > from_ns);
        self.switches.retain(|(node, record)| {
            let mut named = record.left.iter().chain(&record.came);
            of_node(*node) && record.resumed_ns > from_ns && named.any(of_jobs)
        });
        let begin = self.slices.iter().map(|it| it.begin_ns).min().unwrap_or(self.end_ns);
        self.begin_ns = begin.max(from_ns);
        let end = self.slices.iter().map(|it| it.end_ns).max().unwrap_or(self.end_ns);
        let cut_ms = self.end_ns.saturating_sub(end) / 1_000_000;
        (self.end_ns, self.end_ms) = (end, self.end_ms.saturating_sub(cut_ms));
    }

    /// A job's number and name.
    fn label(&self, job: JobId) -> String {
        match self.names.get(&job) {
            Some(name) => format!("{job} {name}"),
            None => job.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tutti_wire::event::{EndOfTask, Event, JobOf};

    fn event(number: u64, cluster_ns: u64, what: What) -> EventRecord {
        let job = JobOf { job: JobId(7), name: "a".into(), user: "ada".into(), uid: 1 };
        let event = Event { at_ms: cluster_ns / 1_000_000, cluster_ns, job: Some(job), what };
        EventRecord { number, entry: number, event }
    }

    fn started(cluster_ns: u64) -> EventRecord {
        let node = |node: &str, ranks: &str| EventNode {
            node: node.into(),
            ranks: ranks.into(),
            processors: "0-1".into(),
            devices: Vec::new(),
        };
        let nodes = vec![node("n1", "0-1"), node("n2", "2-3")];
        event(1, cluster_ns, What::JobStarted { launch: 0, nodes, nodes_left_out: 0 })
    }

    fn ended(number: u64, cluster_ns: u64, ranks: &str) -> EventRecord {
        let (ranks, status) = (ranks.into(), EndOfTask::Exited);
        event(number, cluster_ns, What::TasksEnded { ranks, status, exit_code: 0, signal: None })
    }

    fn switch(began_ns: u64, left: &[u64], came: &[u64], running: &[u64]) -> SwitchRecord {
        let jobs = |jobs: &[u64]| jobs.iter().copied().map(JobId).collect();
        SwitchRecord {
            due_ns: began_ns,
            began_ns,
            stopped_ns: began_ns + 10,
            devices_ns: 0,
            resumed_ns: began_ns + 20,
            left: jobs(left),
            yields: Vec::new(),
            came: jobs(came),
            running: jobs(running),
            stragglers: 0,
        }
    }

    fn turns(timeline: &Timeline, node: usize) -> Vec<(u64, u64, EndOfSlice)> {
        let of = timeline.slices.iter().filter(|it| it.node == node && it.processor == 1);
        of.map(|it| (it.begin_ns, it.end_ns, it.end)).collect()
    }

    #[test]
    fn turns_lie_between_the_switches_that_resume_and_stop_a_job() {
        let events = [started(1000), ended(2, 5000, "0-1"), ended(3, 7000, "2-3")];
        let n1 = vec![
            switch(500, &[7], &[], &[]),
            switch(2000, &[7], &[8], &[]),
            switch(3000, &[8], &[7], &[]),
            switch(4000, &[7], &[8], &[7]),
            switch(4500, &[8], &[7], &[]),
        ];
        let n2 = vec![switch(6000, &[], &[7], &[])];
        let switches = vec![("n1".into(), n1), ("n2".into(), n2)];
        let kept = kept_of(switches, &BTreeMap::new(), &events);
        let mut timeline = Timeline::of(&events, kept, 0);
        use EndOfSlice::{Ended, RanOn, Stopped};
        let wanted = [(1000, 2010, Stopped), (3020, 4010, RanOn), (4520, 5000, Ended)];
        assert_eq!(turns(&timeline, 0), wanted);
        // There it waited for its first turn.
        assert_eq!(turns(&timeline, 1), [(6020, 7000, Ended)]);
        assert_eq!(timeline.slices.len(), 2 * 4);
        timeline.choose(&BTreeSet::new(), &["n2".into()], None);
        assert_eq!((timeline.begin_ns, timeline.end_ns), (6020, 7000));
    }

    #[test]
    fn nothing_is_drawn_of_a_time_whose_records_may_be_missing() {
        use EndOfSlice::{Open, Stopped};
        let node_event = |cluster_ns, what| {
            let mut record = event(2, cluster_ns, what);
            record.event.job = None;
            record
        };
        let lost = |cluster_ns| node_event(cluster_ns, What::NodeUnreachable { node: "n1".into() });
        let kept = || vec![switch(3000, &[8], &[9], &[]), switch(4000, &[7], &[8], &[])];
        let turns = |events: &[EventRecord], records: Vec<SwitchRecord>, made: u64| {
            let made = BTreeMap::from([("n1".to_owned(), made)]);
            let kept = kept_of(vec![("n1".into(), records)], &made, events);
            let timeline = Timeline::of(events, kept, 1);
            turns(&timeline, 0)
        };
        // All switches that the node made are there, or one less.
        assert_eq!(turns(&[started(1000)], kept(), 2), [(1000, 4010, Stopped)]);
        assert_eq!(turns(&[started(1000)], kept(), 3), [(3020, 4010, Stopped)]);
        assert_eq!(turns(&[started(3500)], kept(), 3), [(3500, 4010, Stopped)]);
        // The agent was started anew while the job was there, or before.
        assert_eq!(turns(&[started(1000), lost(2000)], kept(), 2), [(3020, 4010, Stopped)]);
        assert_eq!(turns(&[lost(500), started(1000)], kept(), 2), [(1000, 4010, Stopped)]);
        assert_eq!(turns(&[started(1000), lost(2000)], Vec::new(), 0), []);
        assert_eq!(turns(&[lost(500), started(1000)], Vec::new(), 0), [(1000, 1_001_000, Open)]);
    }

    #[test]
    fn ending_of_a_name_chooses_the_form() {
        let form =
            |name: &str, svg| form_of(Some(Path::new(name)), svg).map_err(|it| it.to_string());
        for (name, wanted) in [
            ("t.svg", Form::Svg),
            ("a.b/t.PNG", Form::Png),
            ("t.json", Form::Trace),
            ("t.trace", Form::Trace),
            ("/dev/stdout", Form::Trace),
        ] {
            assert_eq!(form(name, false), Ok(wanted), "{name}");
        }
        assert_eq!(form_of(None, true).unwrap(), Form::Svg);
        assert_eq!(form("t", true), Ok(Form::Svg));
        assert!(form("t.jpg", false).unwrap_err().contains("and not .jpg"));
        assert!(form("t.png", true).unwrap_err().contains("--svg writes"));
    }

    #[test]
    fn a_job_without_a_switch_runs_from_its_start_to_now() {
        let mut timeline = Timeline::of(&[started(1_000_000)], BTreeMap::new(), 3);
        assert_eq!(turns(&timeline, 0), [(1_000_000, 3_000_000, EndOfSlice::Open)]);
        timeline.choose(&BTreeSet::from([JobId(8)]), &[], None);
        assert!(timeline.slices.is_empty());
        assert_eq!(numbers("0-2,5"), [0, 1, 2, 5]);
        assert!(numbers("").is_empty());
    }
}
