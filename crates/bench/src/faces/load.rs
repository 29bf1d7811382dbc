//! Many short jobs: what makes events.

use super::super::options;
use anyhow::{Context, bail};
use serde_bytes::ByteBuf;
use std::ffi::OsString;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tutti_client::scratch::ScratchInstance;
use tutti_node::link::Link;
use tutti_types::JobId;
use tutti_wire::launch::{OpenMode, Stdio};
use tutti_wire::local::{JobRequest, Reply, Request};

/// Jobs that are submitted before the first of them is waited for.
const TOGETHER: usize = 64;

/// A job without output.
///
/// # Errors
/// If the request can't be made.
pub(super) fn quiet_job(argv: &[OsString]) -> anyhow::Result<JobRequest> {
    let null = || ByteBuf::from(&b"/dev/null"[..]);
    let stdio = Stdio::Files { input: None, output: null(), error: None, mode: OpenMode::Append };
    tutti_client::job_request(&options(1, None)?, "production", argv, None, stdio)
}

/// Submits a job so many times over one connection.
///
/// # Errors
/// If one is not accepted.
pub(super) fn submit(
    link: &mut Link,
    request: &JobRequest,
    count: usize,
) -> anyhow::Result<Vec<JobId>> {
    let (mut jobs, mut sent) = (Vec::new(), 0);
    while jobs.len() < count {
        while sent < count.min(jobs.len() + TOGETHER) {
            link.send(&Request::Submit(request.clone(), tutti_client::new_key()?));
            sent += 1;
        }
        match link.call().context("the controller went away")? {
            Reply::Accepted { job, .. } => jobs.push(job),
            Reply::Failed { reason, .. } | Reply::Declined { reason, .. } => bail!("{reason}"),
            _ => return tutti_client::ask::unexpected(),
        }
    }
    Ok(jobs)
}

/// Short jobs, one after the other, until this is dropped.
pub(super) struct ShortJobs {
    ends: Arc<AtomicBool>,
    done: Arc<AtomicU64>,
    thread: Option<JoinHandle<anyhow::Result<()>>>,
}

impl ShortJobs {
    /// Begins: as many jobs as the machine does, or a small group every so often.
    ///
    /// # Errors
    /// If there is no instance.
    pub(super) fn start(own: &ScratchInstance, every: Option<Duration>) -> anyhow::Result<Self> {
        let mut link = own.connect()?;
        let request = quiet_job(&["/bin/true".into()])?;
        let (ends, done) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
        let (until, count) = (Arc::clone(&ends), Arc::clone(&done));
        let thread = std::thread::spawn(move || {
            let together = if every.is_some() { 1 } else { TOGETHER };
            while !until.load(Ordering::Relaxed) {
                let jobs = submit(&mut link, &request, together)?;
                jobs.iter().for_each(|&job| link.send(&Request::Wait { job }));
                for _ in &jobs {
                    let _: Reply = link.call()?;
                    count.fetch_add(1, Ordering::Relaxed);
                }
                every.into_iter().for_each(std::thread::sleep);
            }
            Ok(())
        });
        Ok(Self { ends, done, thread: Some(thread) })
    }

    /// How many have ended so far, and when that was.
    pub(super) fn done(&self) -> (u64, Instant) {
        (self.done.load(Ordering::Relaxed), Instant::now())
    }

    /// Ends them.
    ///
    /// # Errors
    /// If a job was not accepted.
    pub(super) fn end(mut self) -> anyhow::Result<()> {
        self.ends.store(true, Ordering::Relaxed);
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(result)) => result,
            _ => bail!("the thread that submits jobs panicked"),
        }
    }
}

impl Drop for ShortJobs {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}
