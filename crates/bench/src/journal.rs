//! `tutti-bench journal`: what it costs that nothing is lost.

use super::figures::Figure;
use super::idle::kilobytes;
use super::scratch::Scratch;
use super::{Bench, options, processors, progress};
use anyhow::bail;
use std::path::Path;
use std::time::{Duration, Instant};
use tutti_client::scratch::{ScratchInstance, percentile};
use tutti_core::{Core, Event};
use tutti_journal::{EndedJob, EndedSpan, Job, Journal, Segment, cut, replay};
use tutti_types::{
    ClassName, ClusterTime, GroupId, JobId, JobSpec, Nanos, NodeId, NodeSpec, NodeWish, OnBadExit,
    OnNodeLoss, Outcome, Params, RequestId, TaskStatus, UserId, default_classes,
};
use tutti_wire::launch::{Credentials, OpenMode, Stdio};
use tutti_wire::local::{JobRequest, Reply, Request};
use tutti_wire::report::JobReport;

const CLIENTS: u32 = 16;

pub(super) fn measure(bench: &Bench) -> anyhow::Result<Vec<Figure>> {
    let mut figures = Vec::new();
    progress("journal: submits that are on disk, sixteen clients");
    let (rate, alone) = durable_submits(if bench.quick { 50 } else { 500 })?;
    let what = format!("submits that are on disk, {CLIENTS} clients");
    figures.push(Figure::goal(&what, format!("{rate:.0}/s"), "2,000/s", rate >= 2000.0));
    figures.push(Figure::shown("one submit, on disk (the disk's own part)", alone));
    let queued = if bench.quick { 10_000 } else { 100_000 };
    progress("journal: memory of a controller with many jobs in line");
    let megabytes = memory_of_queued(queued)?;
    let what = format!("memory of the controller, {queued} jobs in line");
    figures.push(Figure::goal(&what, format!("{megabytes} MB"), "300 MB", megabytes < 300));
    progress("journal: a controller's return");
    let (ended, queued) = if bench.quick { (10_000, 1_000) } else { (100_000, 10_000) };
    let took = restart(ended, queued)?;
    figures.push(Figure::goal(
        &format!("restart, {ended} jobs in history, {queued} queued"),
        format!("{:.2} s", took.as_secs_f64()),
        "2 s",
        took < Duration::from_secs(2),
    ));
    progress("journal: replay");
    let rate = replayed(if bench.quick { 20_000 } else { 200_000 })?;
    let measured = format!("{rate:.0} events/s");
    figures.push(Figure::goal("replay", measured, "200,000 events/s", rate >= 200_000.0));
    Ok(figures)
}

/// How many a second, and how long one takes alone with how long the disk takes for as much.
fn durable_submits(each: u32) -> anyhow::Result<(f64, String)> {
    let (own, blocker) = occupied()?;
    let request = request()?;
    let mut alone: Vec<u64> = Vec::new();
    for _ in 0..50 {
        let begun = Instant::now();
        submit(&own, 1, |_| request.clone())?;
        alone.push(u64::try_from(begun.elapsed().as_micros())?);
    }
    let begun = Instant::now();
    by_all_clients(|_| submit(&own, each, |_| request.clone()))?;
    let rate = f64::from(CLIENTS * each) / begun.elapsed().as_secs_f64();
    let disk = disk_alone(own.directory())?;
    alone.sort_unstable();
    let _ = own.ask(&Request::Cancel { target: blocker.into(), at_once: true })?;
    own.end()?;
    let median = percentile(&alone, 50);
    Ok((rate, format!("{:.2} ms ({:.2} ms)", ms(median), ms(disk))))
}

/// An instance in which one job has the machine, and others stand in line: what is measured is that they are kept.
fn occupied() -> anyhow::Result<(ScratchInstance, JobId)> {
    let own = ScratchInstance::start("bench")?;
    own.set("policy", "space")?;
    let blocker = own.submit(&options(processors(), None)?, &["sleep".into(), "1000".into()])?;
    Ok((own, blocker))
}

fn request() -> anyhow::Result<JobRequest> {
    let null = || serde_bytes::ByteBuf::from(&b"/dev/null"[..]);
    let stdio = Stdio::Files { input: None, output: null(), error: None, mode: OpenMode::Append };
    let (job, argv) = (options(1, None)?, ["/bin/true".into()]);
    tutti_client::job_request(&job, "production", &argv, None, stdio)
}

fn by_all_clients(act: impl Fn(u32) -> anyhow::Result<()> + Sync) -> anyhow::Result<()> {
    let act = &act;
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS).map(|client| scope.spawn(move || act(client))).collect();
        clients.into_iter().try_for_each(|client| match client.join() {
            Ok(result) => result,
            Err(_) => bail!("a client failed"),
        })
    })
}

/// How many variables an environment has, and how long each is: of the size of a login shell's with some modules.
const VARIABLES: usize = 40;
const VARIABLE_BYTES: usize = 80;

/// How many MB of memory the controller has that keeps so many jobs in line. Each has an environment of some 3 KiB, in
/// which one variable is unlike that of any other job, as where a loop hands in a job for each value of a parameter.
fn memory_of_queued(queued: u32) -> anyhow::Result<u64> {
    let (own, _) = occupied()?;
    let mut request = request()?;
    let variable = |number| format!("VARIABLE_{number}={}", "x".repeat(VARIABLE_BYTES));
    request.launch.environment =
        (1..VARIABLES).map(|number| variable(number).into_bytes().into()).collect();
    by_all_clients(|client| {
        submit(&own, queued / CLIENTS, |number| {
            let mut request = request.clone();
            let parameter = format!("PARAMETER={client}.{number}");
            request.launch.environment.push(parameter.into_bytes().into());
            request
        })
    })?;
    let Reply::Status(status) = own.ask(&Request::Status)? else {
        return tutti_client::ask::unexpected();
    };
    let memory_kb = kilobytes(status.pid, "Rss:")?;
    own.end()?;
    Ok(memory_kb / 1000)
}

#[expect(clippy::cast_precision_loss, reason = "to be read by people")]
fn ms(us: u64) -> f64 {
    us as f64 / 1000.0
}

/// So many jobs over one connection, each as it is asked for by its number.
fn submit(
    own: &ScratchInstance,
    count: u32,
    request: impl Fn(u32) -> JobRequest,
) -> anyhow::Result<()> {
    let mut link = own.connect()?;
    for number in 0..count {
        link.send(&Request::Submit(request(number), tutti_client::new_key()?));
        match link.call()? {
            Reply::Accepted { .. } => {}
            Reply::Failed { reason, .. } | Reply::Declined { reason, .. } => bail!("{reason}"),
            _ => return tutti_client::ask::unexpected(),
        }
    }
    Ok(())
}

/// What it takes to append to a file there and to have it on disk, in microseconds: the median.
fn disk_alone(directory: &Path) -> anyhow::Result<u64> {
    use std::io::Write;
    let path = directory.join("disk");
    let mut file = std::fs::File::create(&path)?;
    let mut times = Vec::new();
    for _ in 0..50 {
        file.write_all(&[0; 4096])?;
        let begun = Instant::now();
        file.sync_data()?;
        times.push(u64::try_from(begun.elapsed().as_micros())?);
    }
    std::fs::remove_file(&path)?;
    times.sort_unstable();
    Ok(percentile(&times, 50))
}

fn blank() -> Core {
    Core::new(Params::default(), default_classes())
}

/// A controller without anybody to speak with.
struct Lonely {
    core: Core,
    journal: Journal,
    at: ClusterTime,
    actions: Vec<tutti_core::Action>,
}

impl Lonely {
    fn at(path: &Path) -> anyhow::Result<Self> {
        let (journal, _) = Journal::open(path, blank)?;
        let mut lonely = Self { core: blank(), journal, at: ClusterTime(0), actions: Vec::new() };
        for node in 0..64 {
            let name = format!("n{node}");
            let spec = NodeSpec { name, processors: (0..8).collect(), memory_bytes: 1 << 36 };
            lonely.apply(&Event::NodeJoined { node: NodeId(node), spec });
        }
        Ok(lonely)
    }

    fn apply(&mut self, event: &Event) {
        self.at = self.at + Nanos::from_millis(1);
        self.actions.clear();
        self.core.apply(self.at, event, &mut self.actions);
        self.journal.note(self.at, event, &self.actions, &self.core);
    }

    fn submit(&mut self, number: u64, tasks: u32) {
        let request = RequestId(number);
        self.apply(&Event::Submit { request, spec: spec(tasks) });
    }
}

fn spec(tasks: u32) -> JobSpec {
    JobSpec {
        owner: UserId(1000),
        group: GroupId(1000),
        class: ClassName::new("production"),
        tasks,
        processors_per_task: None,
        memory_per_task_bytes: None,
        time_limit: None,
        deadline: None,
        grace: Nanos::from_secs(30),
        attached: false,
        movable: false,
        weights: None,
        nodes: NodeWish::default(),
        resources: Vec::new(),
        on_bad_exit: OnBadExit::default(),
        on_node_loss: OnNodeLoss::default(),
    }
}

/// How long it takes to have everything again.
fn restart(ended: u64, queued: u64) -> anyhow::Result<Duration> {
    let scratch = Scratch::new("bench-journal")?;
    let path = scratch.path("journal.db");
    let output = serde_bytes::ByteBuf::from(&b"out"[..]);
    let stdio = Stdio::Files { input: None, output, error: None, mode: OpenMode::Append };
    let (job, argv) = (options(1, None)?, ["/bin/true".into()]);
    let launch = tutti_client::job_request(&job, "production", &argv, None, stdio)?.launch;
    let mut controller = Lonely::at(&path)?;
    let name = launch.name.clone();
    let segments: Vec<Segment> = cut(&launch)
        .into_iter()
        .map(|piece| match piece.is_shared {
            true => Segment::Shared(controller.journal.note_chunk(&piece.bytes)),
            false => Segment::Own(piece.bytes.into()),
        })
        .collect();
    for number in 1..=queued + 8 {
        controller.submit(number, 512);
        controller.journal.note_job(&Job {
            key: None,
            job: JobId(number),
            credentials: Credentials { uid: 1000, gid: 1000, groups: Vec::new() },
            user: "ada".into(),
            name: name.clone(),
            launch: segments.clone(),
            accepted: controller.at,
            accepted_ms: 0,
            notify: None,
        });
    }
    for number in 0..ended {
        controller.journal.note_end(&ended_job(JobId(1_000_000 + number), number), None);
        if number % 1000 == 0 {
            controller.journal.store(&controller.core);
        }
    }
    controller.journal.store(&controller.core);
    drop(controller);
    let begun = Instant::now();
    let (mut journal, history) = Journal::open(&path, blank)?;
    let remembered = journal.ended(&EndedSpan::default(), 10_000)?.len();
    let took = begun.elapsed();
    if history.jobs.is_empty() || remembered == 0 {
        bail!("the journal has forgotten its jobs");
    }
    Ok(took)
}

fn ended_job(job: JobId, ended_ms: u64) -> EndedJob {
    let reason = tutti_types::EndReason::Completed;
    EndedJob {
        report: JobReport {
            job,
            name: "true".into(),
            user: "ada".into(),
            class: "production".into(),
            former_class: None,
            resources: Vec::new(),
            state: "ended".into(),
            reason: reason.to_string(),
            code: None,
            detail: String::new(),
            suspended: Vec::new(),
            tasks: 1,
            processors: 1,
            placement: Vec::new(),
            row: None,
            rows: 0,
            share_percent: None,
            age_s: 0,
            service_ms: 1,
            waited_ms: 1,
            suspended_ms: 0,
            usage: None,
            deadline_s: None,
            at_risk_s: None,
            ends_s: None,
            cpu_ms: Some(1),
            exit_code: Some(0),
            submitted: true,
            time_limit_ms: None,
            time_left_ms: None,
            queue: None,
            position: None,
            wait: None,
            array: None,
            behind: None,
            swapped_bytes: None,
            lent_processors: None,
            first: None,
            slots: None,
            nodes_asked: None,
        },
        uid: 1000,
        gid: 1000,
        key: None,
        time_limit: None,
        outcome: Outcome { reason, exit_code: 0, service: Nanos::from_millis(1) },
        accepted: ClusterTime(0),
        at: ClusterTime(1),
        accepted_ms: 0,
        ended_ms,
        tasks: Vec::new(),
    }
}

/// Jobs that come, run and end on 64 nodes; how many events a second are played again.
fn replayed(events: u64) -> anyhow::Result<f64> {
    let scratch = Scratch::new("bench-journal")?;
    let path = scratch.path("journal.db");
    let mut controller = Lonely::at(&path)?;
    for number in 1..=events / 3 {
        controller.submit(number, 1 + u32::try_from(number % 64)?);
        if let Some(job) = number.checked_sub(20).filter(|job| *job > 0).map(JobId) {
            let status = TaskStatus::Exited(0);
            controller.apply(&Event::TasksEnded { job, ranks: Vec::new(), status });
            controller.apply(&Event::JobCleared { job, nodes: Vec::new() });
        }
        if number % 1000 == 0 {
            controller.journal.store(&controller.core);
        }
    }
    controller.journal.store(&controller.core);
    drop(controller);
    let begun = Instant::now();
    let replay = replay(&path, None, blank, |_, _, _| {})?;
    let took = begun.elapsed();
    if let Some((number, _)) = replay.difference {
        bail!("the replay differs at entry {number}");
    }
    #[expect(clippy::cast_precision_loss, reason = "a rate, to be read by people")]
    Ok(replay.entries as f64 / took.as_secs_f64())
}
