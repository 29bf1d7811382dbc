//! `tutti web`: the page and the HTTP interface of one user.
//!
//! The server is a client of an instance, as every verb is. It acts with the rights of the user
//! that started it, and the controller checks them. It knows the instance only through [`Source`];
//! an async runtime is in this crate alone.
#![deny(unsafe_code)]
#![allow(
    rustdoc::private_intra_doc_links,
    reason = "its documentation is built with private items"
)]
#![warn(clippy::print_stdout, clippy::print_stderr)]

mod answer;
mod app;
mod auth;
mod events;
mod files;
mod limits;
mod listen;
mod openapi;
mod output;
mod routes;
mod source;
mod submission;

pub use auth::{Gate, MetricsToken};
pub use listen::{Listening, Place};
pub use source::{
    Action, Answer, EventLine, EventLines, Events, Failure, HistoryQuery, Output, OutputQuery,
    ReportQuery, Source, UsageQuery,
};
pub use submission::{Submission, Work};

use answer::{answer, failed, failed_with, with_headers};
use app::App;
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Query, RawPathParams, Request, State};
use axum::http::header::{self, HeaderValue};
use axum::http::{HeaderMap, Method, Response, StatusCode};
use axum::middleware::{Next, from_fn_with_state};
use axum::routing::{MethodFilter, get, on};
use events::Hub;
use limits::{BODY_BYTES_MAX, REQUEST_TIME, SUBMISSION_BYTES_MAX, THREADS};
use routes::METRICS;
use routes::{Call, ROUTES, Route};
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::time::timeout;
use tutti_wire::code::Code;

/// A server that is ready.
pub struct Server {
    /// Where it listens.
    pub listening: Listening,
    /// Its secrets.
    pub gate: Arc<Gate>,
    /// The instance.
    pub source: Arc<dyn Source>,
    /// Called when a token was used, and another one is good.
    pub on_session: Box<dyn Fn() + Send + Sync>,
}

impl Server {
    /// Serves requests for ever.
    ///
    /// # Errors
    /// If the system has no room for its threads.
    pub fn serve(self) -> Result<(), Failure> {
        let failed = |error: std::io::Error| Failure::new(Code::System, error);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(THREADS)
            .build()
            .map_err(failed)?;
        let hub = Arc::new(Hub::new());
        let (read, source) = (Arc::clone(&hub), Arc::clone(&self.source));
        std::thread::Builder::new()
            .name("web-events".into())
            .spawn(move || read.read(&*source))
            .map_err(failed)?;
        let is_unix = self.listening.is_unix();
        let app = App::new(self.source, self.gate, hub, is_unix, self.on_session);
        runtime.block_on(self.listening.serve(router(Arc::new(app))))
    }
}

/// All requests that are answered. Those of the interface are there with and without the path of
/// the page before them.
fn router(app: Arc<App>) -> Router {
    let mut interface = Router::new();
    for route in ROUTES {
        let filter = MethodFilter::try_from(route.method.clone()).unwrap_or(MethodFilter::GET);
        let handle = move |app, params, query, headers, body| {
            handle(route, app, params, query, headers, body)
        };
        interface = interface.route(route.path, on(filter, handle));
    }
    let path = app.gate.path().to_owned();
    let mut page = Router::new();
    for file in files::FILES {
        let serve = move |headers: HeaderMap| async move { files::file(file, &headers) };
        page = page.route(&format!("{path}/{}", file.path), get(serve));
    }
    Router::new()
        .nest(&path, interface.clone())
        .merge(interface)
        .merge(page)
        .fallback(no_such_path)
        .method_not_allowed_fallback(no_such_method)
        .layer(from_fn_with_state(Arc::clone(&app), guard))
        .with_state(app)
}

async fn no_such_path() -> Response<Body> {
    let text = "there is no such path; /openapi.json lists those that there are";
    failed_with(StatusCode::NOT_FOUND, &Failure::new(Code::CannotUnderstand, text))
}

async fn no_such_method() -> Response<Body> {
    let text = "this path takes no such request; /openapi.json lists what it takes";
    failed_with(StatusCode::METHOD_NOT_ALLOWED, &Failure::new(Code::CannotUnderstand, text))
}

async fn handle(
    route: &'static Route,
    State(app): State<Arc<App>>,
    params: RawPathParams,
    query: Result<Query<Vec<(String, String)>>, axum::extract::rejection::QueryRejection>,
    headers: HeaderMap,
    body: Bytes,
) -> Response<Body> {
    let Ok(Query(query)) = query else {
        return failed(&Failure::new(Code::CannotUnderstand, "the query can't be understood"));
    };
    let mut job = 0;
    if let Some((_, text)) = params.iter().find(|(name, _)| *name == "id") {
        let Ok(number) = text.parse() else {
            let text = format!("{text:?} is no number of a job");
            return failed_with(StatusCode::NOT_FOUND, &Failure::new(Code::NoJob, text));
        };
        job = number;
    }
    let query = query.into_iter().collect::<BTreeMap<_, _>>();
    route.answer(Call { app, job, query, headers, body }).await
}

/// Lets requests of a session through, and begins one for the address that `tutti web` printed.
async fn guard(State(app): State<Arc<App>>, request: Request, next: Next) -> Response<Body> {
    with_headers(guarded(&app, request, next).await)
}

async fn guarded(app: &App, request: Request, next: Next) -> Response<Body> {
    let token = token_of(&request).filter(|_| !app.is_unix);
    // A socket, too: it may have been forwarded to a port.
    if let Err(failure) = auth::check_origin(request.headers(), token.is_some()) {
        return closing(failed(&failure));
    }
    if !app.is_unix {
        if let Some(token) = token {
            return begin(app, &token);
        }
        if !app.gate.knows(request.headers()) {
            return match request.headers().contains_key(header::AUTHORIZATION) {
                true => scrape(app, request, next).await,
                false => closing(files::no_session()),
            };
        }
    }
    if request.method() == Method::GET || request.method() == Method::HEAD {
        return next.run(request).await;
    }
    // Only a submission needs a body; another that is short is read, so that the connection can go
    // on.
    let is_submission = request.uri().path().ends_with("/v1/jobs");
    let most = if is_submission { SUBMISSION_BYTES_MAX } else { BODY_BYTES_MAX };
    let (parts, body) = request.into_parts();
    match timeout(REQUEST_TIME, axum::body::to_bytes(body, most)).await {
        Ok(Ok(body)) => next.run(Request::from_parts(parts, Body::from(body))).await,
        Ok(Err(_)) => {
            let text = format!("the body is longer than {most} bytes, which is the maximum here");
            failed_with(StatusCode::PAYLOAD_TOO_LARGE, &Failure::new(Code::TooMuchAsked, text))
        }
        Err(_) => {
            let text = "the body did not arrive in time";
            failed_with(StatusCode::REQUEST_TIMEOUT, &Failure::new(Code::CannotUnderstand, text))
        }
    }
}

/// Answers a scraper, which has a token in place of a session: it reads `/metrics` alone.
async fn scrape(app: &App, request: Request, next: Next) -> Response<Body> {
    let is_read = request.method() == Method::GET || request.method() == Method::HEAD;
    let is_metrics = request.uri().path() == METRICS && is_read;
    if is_metrics && app.gate.opens_metrics(request.headers()) {
        return next.run(request).await;
    }
    let text = "no such token, or not for this path; `tutti web --metrics-token-file` names the \
                file with the token, which is for GET /metrics alone";
    let failure = Failure::new(Code::NotAllowed, text);
    let mut response = closing(failed_with(StatusCode::UNAUTHORIZED, &failure));
    let scheme = HeaderValue::from_static("Bearer realm=\"tutti metrics\"");
    response.headers_mut().insert(header::WWW_AUTHENTICATE, scheme);
    response
}

/// The last answer of its connection: a stranger keeps no place that others need.
fn closing(mut response: Response<Body>) -> Response<Body> {
    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    response
}

/// The token of an address, if this is one with a token.
fn token_of(request: &Request) -> Option<String> {
    let is_address = request.uri().path() == "/" && request.method() == Method::GET;
    let query = request.uri().query().filter(|_| is_address)?;
    query.strip_prefix("token=").map(str::to_owned)
}

/// Begins a session.
fn begin(app: &App, token: &str) -> Response<Body> {
    let Some(session) = app.gate.redeem(token) else { return closing(files::no_session()) };
    (app.on_session)();
    let path = app.gate.path();
    let mut response = answer(StatusCode::OK, files::FORWARD_KIND, files::forward(path));
    let cookie = format!("{}={session}; Path={path}/; HttpOnly; SameSite=Strict", auth::COOKIE);
    if let Ok(cookie) = HeaderValue::from_str(&cookie) {
        response.headers_mut().insert(header::SET_COOKIE, cookie);
    }
    response
}
