//! Traces out.

use crate::header::Header;
use crate::job::{Job, Status};
use crate::number::NS_PER_SECOND;
use std::io::{self, Write};

/// Writes a trace: the header's lines as they are, then a line for each job. What it writes, the
/// reader reads back to the same jobs.
pub struct Writer<W: Write> {
    out: W,
    /// Used again for each line.
    line: Vec<u8>,
}

impl<W: Write> Writer<W> {
    /// Writes the header. `out` gets many small writes, and should be buffered.
    ///
    /// # Errors
    /// If `out` can't be written.
    pub fn new(mut out: W, header: &Header) -> io::Result<Self> {
        for line in header.lines() {
            out.write_all(line)?;
            out.write_all(b"\n")?;
        }
        Ok(Writer { out, line: Vec::new() })
    }

    /// Writes one job.
    ///
    /// # Errors
    /// If `out` can't be written.
    pub fn write(&mut self, job: &Job) -> io::Result<()> {
        self.line.clear();
        self.count(Some(job.number))?;
        self.time(job.submit_ns)?;
        self.time(job.wait_ns)?;
        self.time(job.run_ns)?;
        self.count(job.allocated_processors.map(u64::from))?;
        self.time(job.cpu_ns)?;
        self.count(job.used_memory_kb)?;
        self.count(job.requested_processors.map(u64::from))?;
        self.time(job.requested_ns)?;
        self.count(job.requested_memory_kb)?;
        self.count(job.status.map(Status::code))?;
        self.count(job.user)?;
        self.count(job.group)?;
        self.count(job.executable)?;
        self.count(job.queue)?;
        self.count(job.partition)?;
        self.count(job.preceding_job)?;
        self.time(job.think_ns)?;
        // Every field has put a blank behind itself.
        self.line.pop();
        self.line.push(b'\n');
        self.out.write_all(&self.line)
    }

    /// Flushes, and gives back what was written to.
    ///
    /// # Errors
    /// If `out` can't be written.
    pub fn finish(mut self) -> io::Result<W> {
        self.out.flush()?;
        Ok(self.out)
    }

    fn count(&mut self, count: Option<u64>) -> io::Result<()> {
        match count {
            Some(count) => write!(self.line, "{count} "),
            None => write!(self.line, "-1 "),
        }
    }

    /// Seconds, with as much of a fraction as there is.
    fn time(&mut self, ns: Option<u64>) -> io::Result<()> {
        let Some(ns) = ns else { return self.count(None) };
        let (whole, rest) = (ns / NS_PER_SECOND, ns % NS_PER_SECOND);
        if rest == 0 {
            return self.count(Some(whole));
        }
        write!(self.line, "{whole}.{rest:09}")?;
        while self.line.last() == Some(&b'0') {
            self.line.pop();
        }
        self.line.push(b' ');
        Ok(())
    }
}
