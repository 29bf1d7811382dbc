//! Answers: JSON, errors with their codes, and the headers that all answers have.

use crate::source::Failure;
use axum::body::Body;
use axum::http::header::{self, HeaderName, HeaderValue};
use axum::http::{Response, StatusCode};
use serde::Serialize;
use tutti_wire::code::Code;

/// The type of answers in JSON.
pub(crate) const JSON: &str = "application/json";

/// Headers of all answers. The page may load nothing but its own files and run no other script.
const ALWAYS: [(HeaderName, &str); 7] = [
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::REFERRER_POLICY, "no-referrer"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    (HeaderName::from_static("x-robots-tag"), "noindex"),
];

/// An error as JSON: docs/guide/web.md has the fields.
#[derive(Serialize)]
struct ErrorBody<'a> {
    code: String,
    error: &'a str,
    explain: String,
}

/// An answer of this type.
pub(crate) fn answer(
    status: StatusCode,
    kind: &'static str,
    body: impl Into<Body>,
) -> Response<Body> {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// JSON.
pub(crate) fn json(text: impl Into<Body>) -> Response<Body> {
    answer(StatusCode::OK, JSON, text)
}

/// An error, with the status that fits its code.
pub(crate) fn failed(failure: &Failure) -> Response<Body> {
    failed_with(status_of(failure.code), failure)
}

/// An error, with this status.
pub(crate) fn failed_with(status: StatusCode, failure: &Failure) -> Response<Body> {
    answer(status, JSON, error_json(failure))
}

/// An error as JSON.
pub(crate) fn error_json(failure: &Failure) -> String {
    let code = failure.code.to_string();
    let explain = format!("tutti explain {code}");
    let body = ErrorBody { error: &failure.text, explain, code };
    serde_json::to_string(&body).unwrap_or_default()
}

/// Adds the headers that all answers have.
pub(crate) fn with_headers(mut response: Response<Body>) -> Response<Body> {
    for (name, value) in ALWAYS {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

/// The status of an error.
fn status_of(code: Code) -> StatusCode {
    match code {
        Code::CannotUnderstand | Code::BadValue | Code::Improper => StatusCode::BAD_REQUEST,
        Code::NotAllowed | Code::NoAccess | Code::OthersInstance => StatusCode::FORBIDDEN,
        Code::BadScript
        | Code::NoProgram
        | Code::NotExecutable
        | Code::BadFile
        | Code::OpenMpi
        | Code::TooLarge
        | Code::TooMuchMemory
        | Code::NoSuchNodes
        | Code::NoNodes
        | Code::NoClass
        | Code::TooManyJobs
        | Code::DeadlineTooSoon
        | Code::NoDeadlines
        | Code::NoQueue
        | Code::QueueLimit
        | Code::NoResource => StatusCode::UNPROCESSABLE_ENTITY,
        Code::NoJob | Code::NoPart | Code::NoOutput => StatusCode::NOT_FOUND,
        Code::JobEnded | Code::JobNotEnded | Code::NotInThatState => StatusCode::CONFLICT,
        Code::EventsGone => StatusCode::GONE,
        Code::TooMuchAsked => StatusCode::TOO_MANY_REQUESTS,
        Code::NoInstance | Code::ControllerAway | Code::OutOfReach | Code::ShuttingDown => {
            StatusCode::SERVICE_UNAVAILABLE
        }
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    }
}
