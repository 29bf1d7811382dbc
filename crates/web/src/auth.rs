//! Which requests are accepted: the token of the address that `tutti web` prints, sessions, and the
//! names that a browser may use.
//!
//! The token is good for one use. It begins a session, whose secret is a cookie. Cookies do not
//! know ports: a browser sends them to every server of the same name. So the page has a path that
//! cannot be guessed, and the cookie is for that path alone.

use crate::limits::SESSIONS_MAX;
use crate::source::Failure;
use axum::http::header::{self, HeaderMap};
use data_encoding::HEXLOWER;
use ring::digest::{Digest, SHA256};
use ring::rand::{SecureRandom, SystemRandom};
use std::collections::VecDeque;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::sync::{Mutex, PoisonError};
use subtle::ConstantTimeEq;
use tutti_wire::code::Code;

/// The name of the cookie.
pub(crate) const COOKIE: &str = "tutti";

/// Secrets of one server.
#[derive(Debug)]
pub struct Gate {
    path: String,
    state: Mutex<State>,
    metrics: Option<MetricsToken>,
}

#[derive(Debug)]
struct State {
    token: String,
    /// Oldest first.
    sessions: VecDeque<String>,
}

/// A secret that cannot be guessed.
fn secret() -> Result<String, Failure> {
    let mut bytes = [0; 20];
    SystemRandom::new()
        .fill(&mut bytes)
        .map_err(|_| Failure::new(Code::System, "the kernel gave no random bytes"))?;
    Ok(HEXLOWER.encode(&bytes))
}

fn same(one: &str, other: &str) -> bool {
    one.as_bytes().ct_eq(other.as_bytes()).into()
}

/// What a scraper sends to read `/metrics`, and nothing else. Its digest is kept: a comparison
/// takes the same time for every token, of every length.
#[derive(Debug)]
pub struct MetricsToken(Digest);

impl MetricsToken {
    /// Fewest and most characters of a token.
    pub const LENGTHS: RangeInclusive<usize> = 20..=1024;

    /// That of a file, without the space at its end.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn new(text: &str) -> Result<Self, Failure> {
        let token = text.trim_end_matches([' ', '\t', '\r', '\n']);
        let wrong = match token.bytes().all(|byte| byte.is_ascii_graphic()) {
            false => "it has other characters than visible ones of ASCII",
            true if token.len() < *Self::LENGTHS.start() => "it has fewer than 20 characters",
            true if token.len() > *Self::LENGTHS.end() => "it has more than 1024 characters",
            true => return Ok(Self(digest(token.as_bytes()))),
        };
        Err(Failure::new(Code::BadValue, wrong))
    }

    fn is(&self, given: &[u8]) -> bool {
        self.0.as_ref().ct_eq(digest(given).as_ref()).into()
    }
}

fn digest(bytes: &[u8]) -> Digest {
    ring::digest::digest(&SHA256, bytes)
}

/// What follows `Bearer` in a value of `Authorization`.
fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, rest) = value.split_at_checked(BEARER.len())?;
    scheme.eq_ignore_ascii_case(BEARER).then(|| rest.trim_ascii())
}

const BEARER: &[u8] = b"Bearer ";

impl Gate {
    /// One with a token that was not used.
    ///
    /// # Errors
    /// If the kernel gives no random bytes.
    pub fn new() -> Result<Self, Failure> {
        let mut path = secret()?;
        path.truncate(16);
        let state = State { token: secret()?, sessions: VecDeque::new() };
        Ok(Self { path: format!("/{path}"), state: Mutex::new(state), metrics: None })
    }

    /// The same gate, where this token opens `/metrics`.
    #[must_use]
    pub fn with_metrics_token(self, token: MetricsToken) -> Self {
        Self { metrics: Some(token), ..self }
    }

    /// Whether a request without a session may read `/metrics`.
    pub(crate) fn opens_metrics(&self, headers: &HeaderMap) -> bool {
        let Some(token) = &self.metrics else { return false };
        let mut given = headers.get_all(header::AUTHORIZATION).into_iter();
        let (Some(one), None) = (given.next(), given.next()) else { return false };
        bearer(one.as_bytes()).is_some_and(|given| token.is(given))
    }

    /// The path of the page, without a slash at its end.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The token that is good now.
    #[must_use]
    pub fn token(&self) -> String {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).token.clone()
    }

    /// Takes a token: the secret of a new session. Another token is good from now on.
    pub(crate) fn redeem(&self, token: &str) -> Option<String> {
        let (next, session) = (secret().ok()?, secret().ok()?);
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if !same(&state.token, token) {
            return None;
        }
        state.token = next;
        if state.sessions.len() == SESSIONS_MAX {
            state.sessions.pop_front();
        }
        state.sessions.push_back(session.clone());
        Some(session)
    }

    /// Whether a request belongs to a session.
    pub(crate) fn knows(&self, headers: &HeaderMap) -> bool {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let cookies = headers.get_all(header::COOKIE).into_iter();
        let mut given = cookies
            .filter_map(|line| line.to_str().ok())
            .flat_map(|line| line.split(';'))
            .filter_map(|cookie| cookie.trim().split_once('='))
            .filter(|(name, _)| *name == COOKIE);
        given.any(|(_, secret)| state.sessions.iter().any(|session| same(session, secret)))
    }
}

/// Whether a name of this machine is meant: `localhost`, or a loopback address.
fn is_loopback_name(host: &str) -> bool {
    if host.eq_ignore_ascii_case("localhost") {
        return true;
    }
    let bare = host.strip_prefix('[').and_then(|it| it.strip_suffix(']')).unwrap_or(host);
    bare.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// The name in `name:port`.
fn name_of(host: &str) -> &str {
    let port = host.rsplit_once(':').filter(|(name, port)| {
        port.bytes().all(|digit| digit.is_ascii_digit())
            && (!name.contains(':') || name.ends_with(']'))
    });
    port.map_or(host, |(name, _)| name)
}

/// Refuses requests that pages of others make a browser send: by a name of theirs that leads here
/// (DNS rebinding), or from their origin.
///
/// # Errors
/// Which header is wrong.
pub(crate) fn check_origin(headers: &HeaderMap, is_first: bool) -> Result<(), Failure> {
    let refused = |text: String| Err(Failure::new(Code::NotAllowed, text));
    let text = |name| {
        let mut all = headers.get_all(name).into_iter();
        match (all.next(), all.next()) {
            (None, _) => Ok(None),
            (Some(one), None) => one.to_str().map(Some).map_err(|_| ()),
            (Some(_), Some(_)) => Err(()),
        }
    };
    let Ok(Some(host)) = text(header::HOST) else {
        return refused("the request has no valid Host".into());
    };
    if !is_loopback_name(name_of(host)) {
        return refused(format!(
            "the request is for host {host:?}; this server answers as localhost and by loopback addresses alone"
        ));
    }
    match text(header::ORIGIN) {
        Ok(None) => {}
        Ok(Some(origin)) if origin == format!("http://{host}") => {}
        _ => return refused("the request comes from a page of another origin".into()),
    }
    // The address with the token is followed from a terminal, or a page that shows one.
    match text(header::HeaderName::from_static("sec-fetch-site")) {
        Ok(None | Some("same-origin" | "none")) => Ok(()),
        _ if is_first => Ok(()),
        _ => refused("the request comes from a page of another site".into()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that can't go on has failed")]
    use super::*;
    use axum::http::HeaderValue;

    fn headers(given: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in given {
            headers.append(*name, HeaderValue::from_str(value).unwrap());
        }
        headers
    }

    #[test]
    fn a_token_is_good_for_one_use_and_another_one_follows() {
        let gate = Gate::new().unwrap();
        let token = gate.token();
        assert_eq!(gate.redeem("x"), None);
        assert_eq!(gate.token(), token, "a wrong token changes nothing");
        let session = gate.redeem(&token).unwrap();
        assert_eq!(gate.redeem(&token), None);
        assert_ne!(gate.token(), token);
        assert!(gate.knows(&headers(&[("cookie", &format!("a=b; tutti={session}"))])));
        assert!(!gate.knows(&headers(&[("cookie", "tutti=")])));
        assert!(!gate.knows(&headers(&[("cookie", &format!("x={session}"))])));
    }

    #[test]
    fn a_bearer_token_opens_metrics_and_begins_no_session() {
        let token = "0123456789abcdef0123";
        let without = Gate::new().unwrap();
        let gate = Gate::new().unwrap();
        let gate = gate.with_metrics_token(MetricsToken::new(&format!("{token}\n")).unwrap());
        let given = |value: &str| headers(&[("authorization", value)]);
        let good = given(&format!("Bearer {token}"));
        assert!(gate.opens_metrics(&good) && !gate.knows(&good) && !without.opens_metrics(&good));
        assert!(gate.opens_metrics(&given(&format!("bearer  {token}"))));
        let wrong = ["", "Bearer", "Bearer ", token, "Basic x", "Bearer 0123456789abcdef012"];
        for value in wrong {
            assert!(!gate.opens_metrics(&given(value)), "{value:?}");
        }
        let text = format!("Bearer {token}");
        let twice = headers(&[("authorization", &text), ("authorization", &text)]);
        assert!(!gate.opens_metrics(&twice));
    }

    #[test]
    fn a_metrics_token_that_can_be_guessed_is_refused() {
        let wrong = |text: &str| MetricsToken::new(text).err().unwrap().text;
        assert!(wrong("").contains("fewer than 20") && wrong("secret\n").contains("fewer"));
        assert!(wrong("two words of twenty characters").contains("visible"));
        assert!(wrong(&"x".repeat(1025)).contains("more than 1024"));
    }

    #[test]
    fn the_oldest_session_ends_when_there_are_too_many() {
        let gate = Gate::new().unwrap();
        let sessions: Vec<String> =
            (0..=SESSIONS_MAX).map(|_| gate.redeem(&gate.token()).unwrap()).collect();
        let knows =
            |at: usize| gate.knows(&headers(&[("cookie", &format!("tutti={}", sessions[at]))]));
        assert_eq!((knows(0), knows(1), knows(SESSIONS_MAX)), (false, true, true));
    }

    #[test]
    fn only_loopback_names_and_the_own_origin_are_accepted() {
        let good =
            ["localhost", "localhost:8080", "127.0.0.1:1", "127.9.9.9", "[::1]:80", "LOCALHOST"];
        for host in good {
            assert!(check_origin(&headers(&[("host", host)]), false).is_ok(), "{host}");
        }
        let bad = [
            "evil.example",
            "localhost.evil.example:80",
            "127.0.0.1.nip.io",
            "10.0.0.1",
            "",
            "::1",
        ];
        for host in bad.iter().filter(|host| **host != "::1") {
            assert!(check_origin(&headers(&[("host", host)]), false).is_err(), "{host}");
        }
        assert!(check_origin(&headers(&[]), false).is_err());
        assert!(
            check_origin(&headers(&[("host", "localhost"), ("host", "localhost")]), false).is_err()
        );
        let with =
            |name, value| check_origin(&headers(&[("host", "localhost:8"), (name, value)]), false);
        assert!(with("origin", "http://localhost:8").is_ok());
        for origin in ["http://localhost:9", "https://localhost:8", "null", "http://evil.example"] {
            assert!(with("origin", origin).is_err(), "{origin}");
        }
        assert!(
            with("sec-fetch-site", "none").is_ok() && with("sec-fetch-site", "same-origin").is_ok()
        );
        assert!(with("sec-fetch-site", "same-site").is_err());
        let first = headers(&[("host", "localhost:8"), ("sec-fetch-site", "cross-site")]);
        assert!(check_origin(&first, true).is_ok() && check_origin(&first, false).is_err());
    }
}
