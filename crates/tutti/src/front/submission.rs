//! Handing a job in, once, whatever becomes of the controller meanwhile.

use super::connect_or_start;
use crate::codes::coded;
use crate::link::LinkError;
use anyhow::{Context, anyhow};
use std::fs::File;
use std::io::Read;
use std::time::{Duration, Instant};
use tutti_wire::code::Code;
use tutti_wire::local::{JobRequest, Reply, Request, SubmitKey};

/// For how long it is asked again whether the job is accepted.
const PATIENCE: Duration = Duration::from_secs(20);

/// How long the next controller is waited for before it is asked.
const PAUSE: Duration = Duration::from_millis(20);

/// A key that no other job has.
///
/// # Errors
/// If the system has no random numbers.
pub(crate) fn new_key() -> anyhow::Result<SubmitKey> {
    let mut key = [0; 16];
    let read = File::open("/dev/urandom").and_then(|mut random| random.read_exact(&mut key));
    read.context("cannot read random numbers from /dev/urandom")?;
    Ok(SubmitKey(key))
}

/// Asks for a job without a front end until there is an answer. A controller that has accepted it before it
/// ended is followed by one that knows its key.
///
/// # Errors
/// If no instance can be had, or none answers in time.
pub(crate) fn submit(request: JobRequest) -> anyhow::Result<Reply> {
    let request = Request::Submit(request, new_key()?);
    let mut away_since: Option<Instant> = None;
    loop {
        let error = match connect_or_start() {
            Err(error) if away_since.is_none() => return Err(error),
            Err(error) => error,
            Ok(mut link) => {
                link.send(&request);
                match link.call() {
                    // The head says so while its controller is being started again.
                    Ok(Reply::Failed { reason, code: Code::ControllerAway }) => anyhow!(reason),
                    Ok(reply) => return Ok(reply),
                    Err(error @ (LinkError::Closed | LinkError::Io(_))) => error.into(),
                    Err(error) => return Err(error.into()),
                }
            }
        };
        if away_since.get_or_insert_with(Instant::now).elapsed() >= PATIENCE {
            let reason = format!(
                "the controller went away before it answered, and did not come back ({error:#}); see with \
                 `tutti ps` whether the job is there"
            );
            return Err(coded(Code::ControllerAway, reason));
        }
        std::thread::sleep(PAUSE);
    }
}
