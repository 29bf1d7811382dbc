//! The interface: one table, by which requests are routed and `/openapi.json` is made.

use crate::answer::{answer, failed, json};
use crate::app::App;
use crate::source::{Action, Answer, Failure, HistoryQuery, OutputQuery, ReportQuery, UsageQuery};
use crate::submission::Submission;
use crate::{events, openapi, output};
use axum::body::{Body, Bytes};
use axum::http::header::HeaderMap;
use axum::http::{Method, Response, StatusCode};
use futures_core::Stream;
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::sync::mpsc;
use tutti_wire::code::Code;

/// Jobs of the history that one answer has at most, and without a wish.
const HISTORY_MAX: usize = 1000;
const HISTORY_DEFAULT: usize = 200;

/// Lines of output from which a reader begins at most.
const LINES_MAX: u64 = 1_000_000;

/// A request of the interface.
pub(crate) struct Call {
    pub(crate) app: Arc<App>,
    /// The job in its path.
    pub(crate) job: u64,
    pub(crate) query: BTreeMap<String, String>,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

/// What answers a request.
type Handler = fn(Call) -> Pin<Box<dyn Future<Output = Answer<Response<Body>>> + Send>>;

/// A parameter of a request.
pub(crate) struct Param {
    /// Its name.
    pub(crate) name: &'static str,
    /// Its type in JSON schema.
    pub(crate) kind: &'static str,
    /// What it means.
    pub(crate) help: &'static str,
}

/// What an answer consists of.
pub(crate) enum Shape {
    /// JSON of a schema of `jobs.schema.json`, or of an element of one.
    Schema(&'static str),
    /// An element of one.
    Element(&'static str),
    /// JSON of a schema of `verbs.schema.json`: what that verb prints.
    Verb(&'static str),
    /// Another type.
    Other(&'static str),
}

/// One request that the interface takes.
pub(crate) struct Route {
    /// `GET` or `POST`.
    pub(crate) method: Method,
    /// Its path; `{id}` is the number of a job.
    pub(crate) path: &'static str,
    /// What it does.
    pub(crate) help: &'static str,
    /// The parameters that it takes.
    pub(crate) params: &'static [Param],
    /// The schema of the body that it takes.
    pub(crate) body: Option<&'static str>,
    /// What its answer is.
    pub(crate) shape: Shape,
    /// What answers it.
    pub(crate) handler: Handler,
}

const USER: Param = Param { name: "user", kind: "string", help: "Only jobs of this user." };

macro_rules! handler {
    ($function:path) => {
        |call| Box::pin($function(call))
    };
}

/// The path of the figures for monitoring.
pub(crate) const METRICS: &str = "/metrics";

/// All requests of the interface.
pub(crate) static ROUTES: &[Route] = &[
    Route {
        method: Method::GET,
        path: "/v1/jobs",
        help: "Jobs, as `tutti ps --json` prints them.",
        params: &[
            Param { name: "ended", kind: "boolean", help: "Also jobs that have ended." },
            USER,
        ],
        body: None,
        shape: Shape::Schema("ps"),
        handler: handler!(jobs),
    },
    Route {
        method: Method::POST,
        path: "/v1/jobs",
        help: "Submits a job, by the schema `submission`. The answer has its number.",
        params: &[],
        body: Some("submission"),
        shape: Shape::Schema("accepted"),
        handler: handler!(submit),
    },
    Route {
        method: Method::GET,
        path: "/v1/jobs/{id}",
        help: "One job, live or ended, as an element of what `tutti show --json` prints.",
        params: &[],
        body: None,
        shape: Shape::Element("show"),
        handler: handler!(job),
    },
    Route {
        method: Method::GET,
        path: "/v1/jobs/{id}/output",
        help: "What a submitted job wrote, as `tutti logs` prints it. Only for the owner of the job.",
        params: &[
            Param { name: "rank", kind: "integer", help: "Only the file of this rank." },
            Param { name: "error", kind: "boolean", help: "Standard error." },
            Param {
                name: "lines",
                kind: "integer",
                help: "Only the last lines, at most this number.",
            },
            Param { name: "follow", kind: "boolean", help: "Go on until the job has ended." },
        ],
        body: None,
        shape: Shape::Other("text/plain"),
        handler: handler!(job_output),
    },
    Route {
        method: Method::POST,
        path: "/v1/jobs/{id}/cancel",
        help: "Ends a job: SIGTERM, then SIGKILL after its grace.",
        params: &[Param { name: "now", kind: "boolean", help: "Kill at once." }],
        body: None,
        shape: Shape::Schema("accepted"),
        handler: handler!(cancel),
    },
    Route {
        method: Method::POST,
        path: "/v1/jobs/{id}/suspend",
        help: "Suspends a job: it gets no turns until it is resumed.",
        params: &[],
        body: None,
        shape: Shape::Schema("accepted"),
        handler: handler!(suspend),
    },
    Route {
        method: Method::POST,
        path: "/v1/jobs/{id}/resume",
        help: "Resumes a suspended job.",
        params: &[],
        body: None,
        shape: Shape::Schema("accepted"),
        handler: handler!(resume),
    },
    Route {
        method: Method::POST,
        path: "/v1/jobs/{id}/hold",
        help: "Keeps a waiting job out of the line.",
        params: &[],
        body: None,
        shape: Shape::Schema("accepted"),
        handler: handler!(hold),
    },
    Route {
        method: Method::POST,
        path: "/v1/jobs/{id}/release",
        help: "Puts a held job into the line again.",
        params: &[],
        body: None,
        shape: Shape::Schema("accepted"),
        handler: handler!(release),
    },
    Route {
        method: Method::POST,
        path: "/v1/jobs/{id}/class",
        help: "Gives a job another class.",
        params: &[Param { name: "name", kind: "string", help: "The class." }],
        body: None,
        shape: Shape::Schema("accepted"),
        handler: handler!(class),
    },
    Route {
        method: Method::GET,
        path: "/v1/nodes",
        help: "Nodes, as `tutti nodes --json` prints them.",
        params: &[],
        body: None,
        shape: Shape::Verb("nodes"),
        handler: handler!(nodes),
    },
    Route {
        method: Method::GET,
        path: "/v1/matrix",
        help: "Nodes, jobs, and which rows had their turns lately.",
        params: &[],
        body: None,
        shape: Shape::Verb("matrix"),
        handler: handler!(matrix),
    },
    Route {
        method: Method::GET,
        path: "/v1/params",
        help: "Parameters and classes, as `tutti params --json` prints them.",
        params: &[],
        body: None,
        shape: Shape::Verb("params"),
        handler: handler!(params),
    },
    Route {
        method: Method::GET,
        path: "/v1/history",
        help: "Ended jobs, as `tutti history --json` prints them.",
        params: &[
            USER,
            Param {
                name: "since_ms",
                kind: "integer",
                help: "Ended at this time or later, in ms since 1970.",
            },
            Param { name: "until_ms", kind: "integer", help: "Ended before this time." },
            Param {
                name: "last",
                kind: "integer",
                help: "The latest, at most this number: 200, or up to 1000.",
            },
        ],
        body: None,
        shape: Shape::Schema("history"),
        handler: handler!(history),
    },
    Route {
        method: Method::GET,
        path: "/v1/report",
        help: "What users, groups, classes or queues got, as `tutti report --json` prints it.",
        params: &[
            Param { name: "by", kind: "string", help: "user, group, class or queue." },
            Param { name: "since_ms", kind: "integer", help: "As for the history." },
            Param { name: "until_ms", kind: "integer", help: "As for the history." },
        ],
        body: None,
        shape: Shape::Verb("report"),
        handler: handler!(report),
    },
    Route {
        method: Method::GET,
        path: "/v1/usage",
        help: "What nodes' processors were used for, as `tutti history --usage --json` prints it.",
        params: &[
            Param { name: "by", kind: "string", help: "interval, hour, day or node." },
            Param {
                name: "since_ms",
                kind: "integer",
                help: "From this time on, in ms since 1970; a day ago otherwise.",
            },
            Param { name: "until_ms", kind: "integer", help: "Before this time." },
            Param { name: "node", kind: "string", help: "Only this node." },
        ],
        body: None,
        shape: Shape::Verb("history --usage"),
        handler: handler!(usage),
    },
    Route {
        method: Method::GET,
        path: "/v1/starts",
        help: "When waiting jobs will start, as `tutti ps --start --json` prints it.",
        params: &[],
        body: None,
        shape: Shape::Verb("ps --start"),
        handler: handler!(starts),
    },
    Route {
        method: Method::GET,
        path: "/v1/events",
        help: "Events as server-sent events. Each has its number as `id`, by which a reader resumes.",
        params: &[Param {
            name: "after",
            kind: "integer",
            help: "Events behind this number, as Last-Event-ID.",
        }],
        body: None,
        shape: Shape::Other("text/event-stream"),
        handler: handler!(event_stream),
    },
    Route {
        method: Method::GET,
        path: METRICS,
        help: "Figures for monitoring, as `tutti metrics` prints them.",
        params: &[],
        body: None,
        shape: Shape::Other("application/openmetrics-text; version=1.0.0; charset=utf-8"),
        handler: handler!(metrics),
    },
    Route {
        method: Method::GET,
        path: "/openapi.json",
        help: "This interface as OpenAPI 3.1.",
        params: &[],
        body: None,
        shape: Shape::Other("application/json"),
        handler: handler!(description),
    },
];

impl Route {
    /// Refuses parameters that the request does not take.
    fn check(&self, call: &Call) -> Answer<()> {
        let unknown = call.query.keys().find(|name| self.params.iter().all(|it| it.name != **name));
        let Some(unknown) = unknown else { return Ok(()) };
        let known: Vec<&str> = self.params.iter().map(|param| param.name).collect();
        let known = if known.is_empty() { "none".into() } else { known.join(", ") };
        let text = format!("there is no parameter {unknown:?} here; accepted: {known}");
        Err(Failure::new(Code::CannotUnderstand, text))
    }

    /// Answers a request.
    pub(crate) async fn answer(&self, call: Call) -> Response<Body> {
        let answer = match self.check(&call) {
            Ok(()) => (self.handler)(call).await,
            Err(failure) => Err(failure),
        };
        answer.unwrap_or_else(|failure| failed(&failure))
    }
}

impl Call {
    fn number<T: std::str::FromStr>(&self, name: &str) -> Answer<Option<T>> {
        let Some(text) = self.query.get(name) else { return Ok(None) };
        text.parse().map(Some).map_err(|_| {
            Failure::new(Code::BadValue, format!("{name} is {text:?}, and must be a number"))
        })
    }

    fn is_set(&self, name: &str) -> Answer<bool> {
        match self.query.get(name).map(String::as_str) {
            None | Some("false" | "0") => Ok(false),
            Some("true" | "1" | "") => Ok(true),
            Some(other) => {
                let text = format!("{name} is {other:?}, and must be true or false");
                Err(Failure::new(Code::BadValue, text))
            }
        }
    }
}

async fn jobs(call: Call) -> Answer<Response<Body>> {
    let (ended, user) = (call.is_set("ended")?, call.query.get("user").cloned());
    let key = format!("jobs {ended} {user:?}");
    call.app.fresh(key, move |source| source.jobs(ended, user.as_deref())).await.map(json)
}

async fn job(call: Call) -> Answer<Response<Body>> {
    let job = call.job;
    call.app.ask(move |source| source.job(job)).await.map(json)
}

async fn job_output(call: Call) -> Answer<Response<Body>> {
    let lines = call.number("lines")?;
    if lines.is_some_and(|lines| lines > LINES_MAX) {
        let text = format!("lines is more than {LINES_MAX}; leave it out for all");
        return Err(Failure::new(Code::BadValue, text));
    }
    let query = OutputQuery { rank: call.number("rank")?, error: call.is_set("error")?, lines };
    let follow = call.is_set("follow")?;
    let pieces = output::stream(Arc::clone(&call.app), call.job, query, follow).await?;
    Ok(streamed("text/plain; charset=utf-8", pieces))
}

async fn submit(call: Call) -> Answer<Response<Body>> {
    let kind = call.headers.get("content-type").and_then(|it| it.to_str().ok()).unwrap_or_default();
    if kind.split(';').next().map(str::trim) != Some("application/json") {
        let text = "a job is submitted as JSON: set Content-Type to application/json";
        return Err(Failure::new(Code::CannotUnderstand, text));
    }
    let submission = Submission::read(&call.body)?;
    let job = call.app.ask(move |source| source.submit(&submission)).await?;
    Ok(accepted(job))
}

/// An order about a job was accepted.
fn accepted(job: u64) -> Response<Body> {
    json(format!("{{\"job\":{job}}}"))
}

async fn act(call: Call, action: Action) -> Answer<Response<Body>> {
    let job = call.job;
    call.app.ask(move |source| source.act(job, action)).await?;
    Ok(accepted(job))
}

async fn hold(call: Call) -> Answer<Response<Body>> {
    act(call, Action::Hold).await
}

async fn release(call: Call) -> Answer<Response<Body>> {
    act(call, Action::Release).await
}

async fn class(call: Call) -> Answer<Response<Body>> {
    let name = call.query.get("name").cloned().filter(|name| !name.is_empty());
    let lacks = || Failure::new(Code::BadValue, "name is missing: ?name=CLASS");
    let name = name.ok_or_else(lacks)?;
    act(call, Action::Class(name)).await
}

async fn cancel(call: Call) -> Answer<Response<Body>> {
    let at_once = call.is_set("now")?;
    act(call, Action::Cancel { at_once }).await
}

async fn suspend(call: Call) -> Answer<Response<Body>> {
    act(call, Action::Suspend).await
}

async fn resume(call: Call) -> Answer<Response<Body>> {
    act(call, Action::Resume).await
}

async fn nodes(call: Call) -> Answer<Response<Body>> {
    call.app.fresh("nodes".into(), |source| source.nodes()).await.map(json)
}

async fn matrix(call: Call) -> Answer<Response<Body>> {
    call.app.fresh("matrix".into(), |source| source.matrix()).await.map(json)
}

async fn params(call: Call) -> Answer<Response<Body>> {
    call.app.fresh("params".into(), |source| source.params()).await.map(json)
}

async fn history(call: Call) -> Answer<Response<Body>> {
    let query = HistoryQuery {
        user: call.query.get("user").cloned(),
        since_ms: call.number("since_ms")?,
        until_ms: call.number("until_ms")?,
        last: call.number("last")?.unwrap_or(HISTORY_DEFAULT),
    };
    if query.last > HISTORY_MAX {
        let text = format!("last is more than {HISTORY_MAX}; page by until_ms");
        return Err(Failure::new(Code::BadValue, text));
    }
    let key = format!("history {query:?}");
    call.app.fresh(key, move |source| source.history(&query)).await.map(json)
}

async fn report(call: Call) -> Answer<Response<Body>> {
    let query = ReportQuery {
        by: call.query.get("by").cloned().unwrap_or_else(|| "user".into()),
        since_ms: call.number("since_ms")?,
        until_ms: call.number("until_ms")?,
    };
    let key = format!("report {query:?}");
    call.app.fresh(key, move |source| source.report(&query)).await.map(json)
}

async fn usage(call: Call) -> Answer<Response<Body>> {
    let query = UsageQuery {
        by: call.query.get("by").cloned().unwrap_or_else(|| "hour".into()),
        since_ms: call.number("since_ms")?,
        until_ms: call.number("until_ms")?,
        node: call.query.get("node").cloned(),
    };
    let key = format!("usage {query:?}");
    call.app.fresh(key, move |source| source.usage(&query)).await.map(json)
}

async fn starts(call: Call) -> Answer<Response<Body>> {
    call.app.fresh("starts".into(), |source| source.starts()).await.map(json)
}

async fn metrics(call: Call) -> Answer<Response<Body>> {
    let text = call.app.fresh("metrics".into(), |source| source.metrics()).await?;
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    Ok(answer(StatusCode::OK, kind, text))
}

async fn description(_: Call) -> Answer<Response<Body>> {
    Ok(json(openapi::description()))
}

async fn event_stream(call: Call) -> Answer<Response<Body>> {
    let resumed = call.headers.get("last-event-id").and_then(|it| it.to_str().ok());
    let after = match resumed {
        None => call.number("after")?,
        Some(text) => Some(text.parse().map_err(|_| {
            Failure::new(Code::BadValue, "Last-Event-ID must be the number of an event")
        })?),
    };
    let pieces = events::stream(Arc::clone(&call.app), after).await?;
    Ok(streamed("text/event-stream", pieces))
}

/// An answer that is sent as it comes.
fn streamed(kind: &'static str, pieces: mpsc::Receiver<Piece>) -> Response<Body> {
    answer(StatusCode::OK, kind, Body::from_stream(Pieces(pieces)))
}

/// Some bytes of a stream; or that it failed, and the connection with it, so that its end does not
/// look like that of a whole one.
pub(crate) type Piece = std::io::Result<Bytes>;

struct Pieces(mpsc::Receiver<Piece>);

impl Stream for Pieces {
    type Item = Piece;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_recv(context)
    }
}
