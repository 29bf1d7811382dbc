//! One request to the instance, and its answer.

use crate::connect;
use anyhow::Context;
use std::time::{Duration, Instant};
use tutti_node::codes::{coded, is_away};
use tutti_node::link::LinkError;
use tutti_types::JobId;
use tutti_wire::code::Code;
use tutti_wire::local::{Reply, Request};
use tutti_wire::report::JobReport;

/// Sends one request to the instance and gives its reply; a failure that it reports is an error.
pub fn ask(request: &Request) -> anyhow::Result<Reply> {
    let mut link = connect()?;
    link.send(request);
    match link.call().context("the controller went away")? {
        Reply::Failed { reason, code } => Err(coded(code, reason)),
        reply => Ok(reply),
    }
}

/// As [`ask`], and once more when the controller goes away before it has answered: the one after it knows
/// what is asked about.
pub fn ask_until_answered(request: &Request) -> anyhow::Result<Reply> {
    const PATIENCE: Duration = Duration::from_secs(20);
    const PAUSE: Duration = Duration::from_millis(10);
    let mut away_since: Option<Instant> = None;
    loop {
        let mut why = None;
        let connected = connect();
        let is_away = match connected {
            Err(error) => away_since.is_none().then_some(error),
            Ok(mut link) => {
                let asked = Instant::now();
                link.send(request);
                let answer = link.call();
                // One that was there for so long has gone away anew.
                away_since = away_since.filter(|_| asked.elapsed() < PATIENCE);
                match answer {
                    // So says the head while its controller is being started again, and an agent that can't
                    // reach the head.
                    Ok(Reply::Failed { reason, code }) if is_away(code) => {
                        why = Some(coded(code, reason));
                        None
                    }
                    Ok(Reply::Failed { reason, code }) => return Err(coded(code, reason)),
                    Ok(reply) => return Ok(reply),
                    Err(LinkError::Closed | LinkError::Io(_)) => None,
                    Err(error) => return Err(error.into()),
                }
            }
        };
        if let Some(error) = is_away {
            return Err(error);
        }
        if away_since.get_or_insert_with(Instant::now).elapsed() >= PATIENCE {
            let reason = "the controller went away and did not come back";
            return Err(why.unwrap_or_else(|| coded(Code::ControllerAway, reason)));
        }
        std::thread::sleep(PAUSE);
    }
}

/// The jobs of all pages, given what answers for the one that begins with a job.
pub fn pages_of_jobs(
    mut page: impl FnMut(JobId) -> anyhow::Result<Reply>,
) -> anyhow::Result<Vec<JobReport>> {
    let (mut all, mut from) = (Vec::new(), Some(JobId(0)));
    while let Some(first) = from {
        let Reply::Jobs { jobs, next } = page(first)? else {
            return unexpected();
        };
        all.extend(jobs);
        // A page that begins no later would be asked for again and again.
        from = next.filter(|next| *next > first);
    }
    Ok(all)
}

/// A reply of a kind that does not answer the request: only a broken controller sends one.
pub fn unexpected<T>() -> anyhow::Result<T> {
    let reason = "the controller answered something else; is it of another release?";
    Err(coded(Code::OtherRelease, reason))
}
