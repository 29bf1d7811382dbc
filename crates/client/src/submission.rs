//! Handing a job in, once, whatever becomes of the controller meanwhile.

use super::connect::connect_or_start;
use super::patience::await_answer;
use anyhow::Context;
use std::fs::File;
use std::io::Read;
use std::time::{Duration, Instant};
use tutti_node::codes::{code_of, coded, is_away};
use tutti_node::link::Link;
use tutti_node::state_dir::NotOurs;
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
pub fn new_key() -> anyhow::Result<SubmitKey> {
    let mut key = [0; 16];
    let read = File::open("/dev/urandom").and_then(|mut random| random.read_exact(&mut key));
    read.context("cannot read random numbers from /dev/urandom")?;
    Ok(SubmitKey(key))
}

/// Asks for a job without a front end until there is an answer. A controller that has accepted it
/// before it ended is followed by one that knows its key.
///
/// # Errors
/// If no instance can be had, or none answers in time.
pub fn submit(request: JobRequest) -> anyhow::Result<Reply> {
    let request = Request::Submit(request, new_key()?);
    let ask = |mut controller: Link| {
        controller.send(&request);
        answer(&mut controller)
    };
    let first = connect_or_start().and_then(ask);
    until_answered(first, || connect_again().and_then(ask))
}

/// As [`connect_or_start`], for a client that was connected: a controller that is not there now may
/// be in a moment.
pub(super) fn connect_again() -> anyhow::Result<Link> {
    connect_or_start().map_err(|error| match error.is::<NotOurs>() {
        true => error,
        false => coded(Code::ControllerAway, format!("{error:#}")),
    })
}

/// The answer to a request for a job.
///
/// # Errors
/// If none comes; then [`until_answered`] may ask again.
pub(super) fn answer(controller: &mut Link) -> anyhow::Result<Reply> {
    await_answer(controller)?;
    match controller.call().context("the controller went away")? {
        // So says the head while its controller is being started again, and an agent that can't
        // reach the head.
        Reply::Failed { reason, code } if is_away(code) => Err(coded(code, reason)),
        reply => Ok(reply),
    }
}

/// Asks again while the controllers that are asked end before they answer: what the first came to,
/// then what others do.
///
/// # Errors
/// Any other than that the controller went away, and that one if it does not come back in time.
pub(super) fn until_answered<T>(
    first: anyhow::Result<T>,
    mut ask: impl FnMut() -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let (away_since, mut result) = (Instant::now(), first);
    while let Err(error) = &result
        && is_away(code_of(error))
    {
        if away_since.elapsed() >= PATIENCE {
            let reason = format!(
                "the controller went away before it answered, and did not come back ({error:#}); see with \
                 `tutti ps` whether the job is there"
            );
            return Err(coded(code_of(error), reason));
        }
        std::thread::sleep(PAUSE);
        result = ask();
    }
    result
}
