//! The history as a trace, so that it can be simulated.

use anyhow::Context;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use tutti_trace::{Header, Job, Status, Writer};
use tutti_wire::history::{EndedReport, Ending};
use tutti_wire::report::NodeReport;

/// Queues of these numbers are known by custom: 0 is interactive.
const INTERACTIVE: &str = "interactive";

/// Writes these jobs, in the order in which they were accepted, as those of a machine of these
/// nodes.
///
/// # Errors
/// If the file can't be written.
pub(super) fn write(path: &Path, jobs: &[EndedReport], nodes: &[NodeReport]) -> anyhow::Result<()> {
    let failed = || format!("cannot write {}", path.display());
    let file = File::create(path).with_context(failed)?;
    write_to(BufWriter::new(file), jobs, nodes).with_context(failed)
}

fn write_to(out: impl Write, jobs: &[EndedReport], nodes: &[NodeReport]) -> std::io::Result<()> {
    let mut jobs: Vec<&EndedReport> = jobs.iter().collect();
    jobs.sort_by_key(|ended| (ended.accepted_ms, ended.job.job));
    let start_ms = jobs.first().map_or(0, |first| first.accepted_ms);
    let mut queues = Numbers::default();
    queues.by_name.insert(INTERACTIVE.into(), 0);
    let (mut users, mut groups, mut programs) =
        (Numbers::default(), Numbers::default(), Numbers::default());
    let records: Vec<Job> = jobs
        .iter()
        .map(|ended| Job {
            user: Some(users.of(&ended.uid.to_string()) + 1),
            group: Some(groups.of(&ended.gid.to_string()) + 1),
            executable: Some(programs.of(&ended.job.name) + 1),
            queue: Some(queues.of(&ended.job.class)),
            ..record(ended, start_ms)
        })
        .collect();
    let mut header = header(nodes, &records, start_ms);
    for (name, number) in &queues.by_name {
        header.add("Queue", &format!("{number} {name}"));
    }
    let mut writer = Writer::new(out, &header)?;
    for record in &records {
        writer.write(record)?;
    }
    writer.finish().map(drop)
}

/// Names by the order in which they come.
#[derive(Default)]
struct Numbers {
    by_name: BTreeMap<String, u64>,
}

impl Numbers {
    fn of(&mut self, name: &str) -> u64 {
        let next = self.by_name.len() as u64;
        *self.by_name.entry(name.into()).or_insert(next)
    }
}

/// What a job's line says beside its owner and what it was.
fn record(ended: &EndedReport, start_ms: u64) -> Job {
    let (job, usage) = (&ended.job, ended.job.usage.unwrap_or_default());
    let cpu_us = (usage.user_us + usage.system_us) / u64::from(job.processors.max(1));
    let memory_kb = usage.memory_peak_bytes / 1024;
    Job {
        number: job.job.0,
        submit_ns: Some((ended.accepted_ms - start_ms) * NS_PER_MS),
        wait_ns: Some(job.waited_ms * NS_PER_MS),
        // As long as it would have taken alone: a simulation adds the turns of others again.
        run_ns: Some(job.service_ms * NS_PER_MS),
        allocated_processors: Some(job.processors),
        cpu_ns: usage.cpu_whole.then_some(cpu_us * 1000),
        used_memory_kb: usage.memory_whole.then_some(memory_kb),
        requested_processors: Some(job.processors),
        requested_ns: ended.time_limit.map(|limit| limit.0),
        status: Some(match ended.ending {
            Ending::Completed => Status::Completed,
            Ending::Cancelled | Ending::NeverStarted => Status::Cancelled,
            Ending::Failed
            | Ending::TimedOut
            | Ending::OutOfMemory
            | Ending::Abandoned
            | Ending::Lost
            | Ending::ShutDown => Status::Failed,
        }),
        ..Job::default()
    }
}

const NS_PER_MS: u64 = 1_000_000;

fn header(nodes: &[NodeReport], records: &[Job], start_ms: u64) -> Header {
    let count = records.len().to_string();
    let start_s = (start_ms / 1000).to_string();
    let processors = nodes.iter().map(|node| u64::from(node.processors)).sum::<u64>();
    // There may have been more nodes when these jobs ran.
    let widest = records.iter().filter_map(|job| job.allocated_processors).max().unwrap_or(0);
    let processors = processors.max(u64::from(widest));
    Header::of(&[
        ("Version", "2.2"),
        ("MaxNodes", &nodes.len().max(1).to_string()),
        ("MaxProcs", &processors.to_string()),
        ("MaxJobs", &count),
        ("MaxRecords", &count),
        ("Preemption", "Yes"),
        ("UnixStartTime", &start_s),
        ("Note", NOTE),
    ])
}

const NOTE: &str = "\
Written by tutti history. Run times are what jobs' turns gave them, without those of others.
Processor time is the mean of a job's processors; memory is the most that one task had at once.
Queues are classes; users, groups and programs are numbered as they come.";
