//! Any bytes as a trace.
//!
//! The first byte says how to read. What is read is written, and whole jobs must read back the
//! same.

use tutti_trace::{Clean, Job, Order, ReadOptions, Reader, RolledJobs, Tolerance, Writer};

/// See the file.
pub fn swf(input: &[u8]) {
    let Some((&how, text)) = input.split_first() else { return };
    let options = ReadOptions {
        tolerance: if how & 1 == 0 { Tolerance::Strict } else { Tolerance::Lenient },
        rolled: if how & 2 == 0 { RolledJobs::Summary } else { RolledJobs::Bursts },
        order: if how & 4 == 0 { Order::AsFiled } else { Order::Sorted },
    };
    let Ok(reader) = Reader::new("fuzz", text, options) else { return };
    let header = reader.header().clone();
    let machine = header.machine_processors().unwrap_or(64);
    let _ = (header.directives(), header.queues(), header.partitions(), header.preemption());

    let jobs: Vec<Job> = reader.map_while(Result::ok).collect();
    for job in Clean::new(jobs.iter().cloned().map(Ok::<_, ()>), machine) {
        let job = job.expect("none of them is an error");
        assert!(job.run_ns() > 0 && job.run_ns() <= job.estimate_ns());
        assert!(job.processors() > 0 && job.processors() <= machine);
    }

    let mut writer = Writer::new(Vec::new(), &header).expect("memory can be written");
    jobs.iter().for_each(|job| writer.write(job).expect("memory can be written"));
    let text = writer.finish().expect("memory can be written");
    // Nor do jobs stand in the order that a strict reader wants, if this one was lenient.
    let lenient = ReadOptions { tolerance: Tolerance::Lenient, ..ReadOptions::default() };
    let again = Reader::new("fuzz", text.as_slice(), lenient).expect("it was just written");
    let again: Vec<Job> = again.map(|job| job.expect("it was just written")).collect();
    if !jobs.iter().any(Job::is_burst) {
        assert_eq!(again, jobs);
    }
}
