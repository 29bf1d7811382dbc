//! Files of a run: every job in the order of submission, and the turns of jobs.

use super::making::Shared;
use super::options::Outputs;
use crate::turns::{NodeNames, TurnsFile};
use anyhow::Context;
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use tutti_sim::picture::Gantt;
use tutti_sim::{Finished, Host, InOrder, Job, Observer};
use tutti_trace::{Header, Job as Record, Writer};

/// The files of one run.
pub(super) struct Files {
    in_order: Option<InOrder<Writers>>,
    records: Option<Shared<VecDeque<Record>>>,
    names: String,
    turns: Option<(TurnsFile, Gantt)>,
}

/// Drops the records of jobs that the core declined: there is nothing to tell of them.
struct Declined(Shared<VecDeque<Record>>);

/// The writer of a job.
type Writers = Box<dyn FnMut(&Finished) -> io::Result<()>>;

const NS_PER_S: u64 = 1_000_000_000;

impl Files {
    /// Begins the files that are wanted. `records` are the jobs as they came, in their order.
    ///
    /// # Errors
    /// If one can't be made.
    pub(super) fn create(
        outputs: &Outputs,
        header: &Header,
        policy: &str,
        records: Option<Shared<VecDeque<Record>>>,
    ) -> anyhow::Result<Self> {
        let mut writers: Vec<Writers> = Vec::new();
        let mut names = Vec::new();
        if let Some(path) = &outputs.jobs_csv {
            writers.push(csv(path)?);
            names.push(path.display().to_string());
        }
        if let (Some(path), Some(records)) = (&outputs.swf, records.clone()) {
            writers.push(swf(path, header, policy, records)?);
            names.push(path.display().to_string());
        }
        let write: Writers = Box::new(move |job| writers.iter_mut().try_for_each(|it| it(job)));
        let in_order = (!names.is_empty()).then(|| InOrder::new(write));
        let turns = outputs.timeline.as_deref().map(TurnsFile::create).transpose()?;
        let turns = turns.map(|file| (file, Gantt::for_trace()));
        Ok(Self { in_order, records, names: names.join(", "), turns })
    }

    /// The thread that tells the files of jobs.
    pub(super) fn observer(&mut self) -> impl Observer + '_ {
        let turns = self.turns.as_mut().map(|(_, turns)| turns);
        ((self.in_order.as_mut(), self.records.clone().map(Declined)), turns)
    }

    /// Writes the rest; `hosts` have the names of nodes.
    ///
    /// # Errors
    /// If it can't be written, or there are too many turns.
    pub(super) fn finish(self, hosts: &[Host]) -> anyhow::Result<()> {
        if let Some((file, turns)) = self.turns {
            let names = (0..).zip(hosts).map(|(node, host)| (node, host.name.clone()));
            file.write(turns, &NodeNames(names.collect()))?;
        }
        let Some(mut in_order) = self.in_order else { return Ok(()) };
        in_order.finish().with_context(|| format!("cannot write {}", self.names))
    }
}

impl Observer for Declined {
    fn declined(&mut self, job: &Job) {
        let _ = taken(&self.0, job);
    }
}

/// The record of a job, which is one of the first: jobs that wait for others come later than they
/// stand in the workload, and none comes earlier.
fn taken(records: &Shared<VecDeque<Record>>, job: &Job) -> Option<Record> {
    let mut records = records.borrow_mut();
    let place = records.iter().position(|record| record.number == job.number)?;
    records.remove(place)
}

fn create(path: &Path) -> anyhow::Result<BufWriter<File>> {
    let file = File::create(path).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(BufWriter::with_capacity(256 << 10, file))
}

fn csv(path: &Path) -> anyhow::Result<Writers> {
    let mut out = create(path)?;
    writeln!(out, "job,submit,start,end,processors")?;
    Ok(Box::new(move |finished| {
        write!(out, "{}", finished.job.number)?;
        for time in [finished.job.submit, finished.start, finished.end] {
            out.write_all(b",")?;
            seconds(&mut out, time.0)?;
        }
        writeln!(out, ",{}", finished.job.processors)
    }))
}

/// Seconds, with as much of a fraction as there is.
fn seconds(out: &mut impl Write, ns: u64) -> io::Result<()> {
    let (whole, rest) = (ns / NS_PER_S, ns % NS_PER_S);
    if rest == 0 {
        return write!(out, "{whole}");
    }
    let fraction = format!("{rest:09}");
    write!(out, "{whole}.{}", fraction.trim_end_matches('0'))
}

/// A log as the simulated machine would have written it: the jobs as they came, with the wait and
/// the wall clock time that they had.
fn swf(
    path: &Path,
    header: &Header,
    policy: &str,
    records: Shared<VecDeque<Record>>,
) -> anyhow::Result<Writers> {
    let mut header = header.clone();
    header.add("Note", &format!("waits and run times are those of a simulation under {policy}"));
    let mut out = Writer::new(create(path)?, &header)?;
    Ok(Box::new(move |finished| {
        let Some(mut record) = taken(&records, &finished.job) else { return Ok(()) };
        record.submit_ns = Some(finished.job.submit.0);
        record.wait_ns = Some(finished.wait().0);
        record.run_ns = Some(finished.end.since(finished.start).0);
        record.allocated_processors = Some(finished.job.processors);
        out.write(&record)
    }))
}

#[cfg(test)]
mod tests {
    use super::seconds;

    #[test]
    fn seconds_have_the_fraction_that_they_need() {
        let text = |ns| {
            let mut out = Vec::new();
            seconds(&mut out, ns).unwrap();
            String::from_utf8(out).unwrap()
        };
        assert_eq!(text(0), "0");
        assert_eq!(text(12_000_000_000), "12");
        assert_eq!(text(1_500_000_000), "1.5");
        assert_eq!(text(1), "0.000000001");
    }
}
