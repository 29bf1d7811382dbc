//! One request to the instance, and its answer.

use crate::connect;
use crate::patience::await_answer;
use anyhow::Context;
use std::io::ErrorKind;
use std::time::{Duration, Instant};
use tutti_node::codes::{coded, is_away};
use tutti_node::link::{Link, LinkError};
use tutti_types::{JobId, NodeId};
use tutti_wire::code::Code;
use tutti_wire::local::{Reply, Request};
use tutti_wire::report::{JobReport, NodeReport};

/// Sends one request to the instance and gives its reply; a failure that it reports is an error. If
/// the controller goes away before it answers, the next one is asked, unless the first may have
/// done what was asked.
pub fn ask(request: &Request) -> anyhow::Result<Reply> {
    let again = if request.only_asks() { Again::Unanswered } else { Again::Unread };
    ask_again(request, again)
}

/// As [`ask`], of a controller that may also be out of reach for a while: the one after it knows
/// what is asked about.
pub fn ask_until_answered(request: &Request) -> anyhow::Result<Reply> {
    ask_again(request, Again::OutOfReach)
}

/// When a request is sent again, since the controller has gone away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Again {
    /// If it was not read.
    Unread,
    /// If it was not answered.
    Unanswered,
    /// The same, also while no controller can be reached.
    OutOfReach,
}

impl Again {
    /// Whether the request is sent again after this reply.
    fn after_failure(self, code: Code) -> bool {
        match self {
            Self::Unread => false,
            Self::Unanswered => code == Code::ControllerAway,
            // So says the head while its controller is being started again, and an agent that can't
            // reach the head.
            Self::OutOfReach => is_away(code),
        }
    }

    /// Whether it is sent again after the connection broke off.
    fn after(self, error: &LinkError) -> bool {
        match error {
            // The kernel says so where something was not read.
            LinkError::Io(error)
                if matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe) =>
            {
                true
            }
            LinkError::Io(_) | LinkError::Closed => self != Self::Unread,
            LinkError::Decode(_) | LinkError::TooLong(_) => false,
        }
    }
}

fn ask_again(request: &Request, again: Again) -> anyhow::Result<Reply> {
    const PATIENCE: Duration = Duration::from_secs(20);
    const PAUSE: Duration = Duration::from_millis(10);
    let mut away_since: Option<Instant> = None;
    loop {
        let mut why = None;
        match connect() {
            // To connect takes patience of its own while the supervisor starts the controller
            // again.
            Err(error) if away_since.is_none() || again != Again::OutOfReach => {
                return Err(error);
            }
            Err(_) => {}
            Ok(mut link) => {
                let asked = Instant::now();
                link.send(request);
                await_answer(&mut link)?;
                let answer = link.call();
                // One that was there for so long has gone away anew.
                away_since = away_since.filter(|_| asked.elapsed() < PATIENCE);
                match answer {
                    Ok(Reply::Failed { reason, code }) if again.after_failure(code) => {
                        why = Some(coded(code, reason));
                    }
                    Ok(Reply::Failed { reason, code }) => return Err(coded(code, reason)),
                    Ok(reply) => return Ok(reply),
                    Err(error) if again.after(&error) => {}
                    Err(error) => return Err(error).context("the controller went away"),
                }
            }
        }
        if away_since.get_or_insert_with(Instant::now).elapsed() >= PATIENCE {
            let reason = "the controller went away and did not come back";
            return Err(why.unwrap_or_else(|| coded(Code::ControllerAway, reason)));
        }
        std::thread::sleep(PAUSE);
    }
}

/// Asks one question after the other, over one connection where that stays.
#[derive(Default)]
pub struct Asker {
    link: Option<Link>,
    /// A question that was sent ahead.
    ahead: Option<Request>,
}

impl Asker {
    /// As [`ask`]. If the question was sent ahead, only its answer is waited for.
    ///
    /// # Errors
    /// As those of [`ask`].
    pub fn ask(&mut self, request: &Request) -> anyhow::Result<Reply> {
        self.ask_and_ahead(request, |_| None)
    }

    /// The same. From the bytes of the answer `next` may make the question that follows: the
    /// instance works on that while the answer is read. It must be one that changes nothing.
    ///
    /// # Errors
    /// As those of [`ask`].
    pub fn ask_and_ahead(
        &mut self,
        request: &Request,
        next: impl FnOnce(&[u8]) -> Option<Request>,
    ) -> anyhow::Result<Reply> {
        let is_sent = self.has_asked(request);
        match is_sent {
            true => self.ahead = None,
            false => self.forget(),
        }
        if self.link.is_none() {
            self.link = Some(connect()?);
        }
        let mut ahead = None;
        let answer = self.link.as_mut().and_then(|link| {
            if !is_sent {
                link.send(request);
            }
            let send = |answer: &[u8]| {
                ahead = next(answer);
                ahead.clone()
            };
            await_answer(link).ok()?;
            link.call_and_send(send).ok()
        });
        self.ahead = ahead;
        match answer {
            Some(Reply::Failed { code, reason }) if !Again::Unanswered.after_failure(code) => {
                self.forget();
                Err(coded(code, reason))
            }
            Some(Reply::Failed { .. }) | None => {
                (self.link, self.ahead) = (None, None);
                ask(request)
            }
            Some(reply) => Ok(reply),
        }
    }

    /// Sends a question that [`Self::ask`] is called with later, unless another one was. It must be
    /// one that changes nothing.
    pub fn ask_ahead(&mut self, request: Request) {
        if self.link.is_none() {
            self.link = connect().ok();
        }
        if let (Some(link), None) = (&mut self.link, &self.ahead) {
            link.send(&request);
            // If that fails, so does waiting for the answer, and the question is asked again.
            let _ = link.flush();
            self.ahead = Some(request);
        }
    }

    /// Whether this question was sent ahead.
    #[must_use]
    pub fn has_asked(&self, request: &Request) -> bool {
        self.ahead.as_ref() == Some(request)
    }

    /// Whether no question was sent ahead.
    #[must_use]
    pub const fn is_free(&self) -> bool {
        self.ahead.is_none()
    }

    /// Wants no answer any more to what was sent ahead.
    pub fn forget(&mut self) {
        if self.ahead.take().is_some() {
            // It would come before the next answer.
            self.link = None;
        }
    }
}

/// Asks many questions over one connection, and gives each with its answer, in their order. A
/// failure that the instance reports is the error of that one answer. Where the controller goes
/// away, the others are asked one by one.
///
/// # Errors
/// If no instance can be reached, before anything is given; and what `visit` says.
pub fn ask_each(
    questions: &[Request],
    mut visit: impl FnMut(&Request, anyhow::Result<Reply>) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    /// Questions that are sent before the first of them is answered.
    const AHEAD: usize = 32;
    if questions.is_empty() {
        return Ok(());
    }
    let mut link = Some(connect()?);
    let mut unsent = questions.iter();
    for (count, question) in questions.iter().enumerate() {
        let answer = link.as_mut().and_then(|link| {
            let ahead = if count == 0 { AHEAD } else { 1 };
            unsent.by_ref().take(ahead).for_each(|question| link.send(question));
            await_answer(link).ok()?;
            link.call().ok()
        });
        let answer = match answer {
            Some(Reply::Failed { code, reason }) if !Again::Unanswered.after_failure(code) => {
                Err(coded(code, reason))
            }
            Some(Reply::Failed { .. }) | None => {
                link = None;
                ask(question)
            }
            Some(reply) => Ok(reply),
        };
        visit(question, answer)?;
    }
    Ok(())
}

/// The jobs of all pages, given what answers for the one that begins with a job.
pub fn pages_of_jobs(
    mut page: impl FnMut(JobId) -> anyhow::Result<Reply>,
) -> anyhow::Result<Vec<JobReport>> {
    all_pages(JobId(0), |from| jobs_of(page(from)?))
}

/// As [`pages_of_jobs`]; only one page is kept at a time.
pub fn each_page_of_jobs(
    mut page: impl FnMut(JobId) -> anyhow::Result<Reply>,
    visit: impl FnMut(Vec<JobReport>) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    each_page(JobId(0), |from| jobs_of(page(from)?), visit)
}

/// The jobs on a page, and where the next one begins.
///
/// # Errors
/// If the reply is of another kind.
pub fn jobs_of(reply: Reply) -> anyhow::Result<(Vec<JobReport>, Option<JobId>)> {
    match reply {
        Reply::Jobs { jobs, next } => Ok((jobs, next)),
        _ => unexpected(),
    }
}

/// The nodes of all pages, given what answers for the one that begins with a node.
pub fn pages_of_nodes(
    mut page: impl FnMut(NodeId) -> anyhow::Result<Reply>,
) -> anyhow::Result<Vec<NodeReport>> {
    all_pages(NodeId(0), |from| match page(from)? {
        Reply::Nodes { nodes, next } => Ok((nodes, next)),
        _ => unexpected(),
    })
}

/// The items of all pages of a list, given what has those from one on, and where the next page
/// begins.
pub fn all_pages<T, K: Copy + Ord>(
    first: K,
    page: impl FnMut(K) -> anyhow::Result<(Vec<T>, Option<K>)>,
) -> anyhow::Result<Vec<T>> {
    let mut all = Vec::new();
    each_page(first, page, |items| {
        all.extend(items);
        Ok(())
    })?;
    Ok(all)
}

fn each_page<T, K: Copy + Ord>(
    first: K,
    mut page: impl FnMut(K) -> anyhow::Result<(Vec<T>, Option<K>)>,
    mut visit: impl FnMut(Vec<T>) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let mut from = Some(first);
    while let Some(first) = from {
        let (items, next) = page(first)?;
        visit(items)?;
        // A page that begins no later would be asked for again and again.
        from = next.filter(|next| *next > first);
    }
    Ok(())
}

/// A reply of a kind that does not answer the request: only a broken controller sends one.
pub fn unexpected<T>() -> anyhow::Result<T> {
    let reason = "the controller answered something else; is it of another release?";
    Err(coded(Code::OtherRelease, reason))
}
