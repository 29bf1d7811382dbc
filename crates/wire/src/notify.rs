//! Notifications about jobs: what a job asks for, and the checks of it.
//!
//! A user names commands, addresses and URLs, and a process delivers later what is accepted here.
//! So everything is checked at submission: by the front end for a good message, and by the
//! controller for safety.

use crate::limits::{NOTIFY_KEY_BYTES_MAX, NOTIFY_TEXT_BYTES_MAX, NOTIFY_WAYS_MAX};
use crate::units::shown;
use alloc::string::String;
use alloc::vec::Vec;
use core::str::FromStr;
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

/// What a job asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notify {
    /// At which moments.
    pub on: NotifyOn,
    /// In which ways; none: by mail to the owner.
    pub ways: Vec<NotifyWay>,
    /// The key that signs webhooks; `None`: they are not signed.
    pub key: Option<ByteBuf>,
}

/// The moments at which a user is notified.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotifyOn {
    /// When the job starts for the first time.
    pub start: bool,
    /// When it has ended, well or not.
    pub end: bool,
    /// When it has ended and did not complete with exit code 0.
    pub fail: bool,
}

/// One of these moments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NotifyMoment {
    /// The job started.
    Start,
    /// It completed.
    End,
    /// It ended otherwise.
    Fail,
}

/// A way in which a user is notified.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NotifyWay {
    /// A line for `sh -c`, run as the job's user.
    Command(String),
    /// Mail to this address.
    Mail(String),
    /// An HTTP POST to this URL.
    Webhook(String),
}

/// Why a notification is not accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotifyError {
    /// A moment that there is not.
    #[error("{word:?} is none of: start, end, fail, all, none")]
    NoMoment {
        /// The word.
        word: String,
    },
    /// An empty or unprintable text.
    #[error("the {what} is empty or has a control character in it")]
    NoText {
        /// Of what.
        what: &'static str,
    },
    /// An address that no mail program should get.
    #[error(
        "invalid mail address {address:?}; give a name, or name@host with letters, digits and . _ + - \
         in both"
    )]
    NoAddress {
        /// The address.
        address: String,
    },
    /// A URL that is not accepted.
    #[error("invalid webhook {url:?}: {why}; give one such as https://host.example:8443/path")]
    NoUrl {
        /// The URL.
        url: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// Too much of it.
    #[error(
        "the commands, addresses and URLs of a notification are {ways} with {bytes} bytes; at most {} \
         with {} bytes are possible: put what is long into a script",
        NOTIFY_WAYS_MAX,
        NOTIFY_TEXT_BYTES_MAX
    )]
    TooMuch {
        /// How many.
        ways: usize,
        /// Their bytes.
        bytes: usize,
    },
    /// A key that signs nothing well.
    #[error(
        "the key for webhooks has {bytes} bytes; it may have {NOTIFY_KEY_BYTES_MIN} to {}",
        NOTIFY_KEY_BYTES_MAX
    )]
    BadKey {
        /// Its bytes.
        bytes: usize,
    },
}

/// The shortest key that signs webhooks: shorter ones can be guessed.
pub const NOTIFY_KEY_BYTES_MIN: usize = 16;

impl NotifyOn {
    /// Whether there is any moment.
    #[must_use]
    pub const fn any(self) -> bool {
        self.start || self.end || self.fail
    }

    /// The moment of an end, if its user is notified of it.
    #[must_use]
    pub const fn of_end(self, is_well: bool) -> Option<NotifyMoment> {
        match is_well {
            true if self.end => Some(NotifyMoment::End),
            false if self.end || self.fail => Some(NotifyMoment::Fail),
            _ => None,
        }
    }
}

impl FromStr for NotifyOn {
    type Err = NotifyError;

    fn from_str(text: &str) -> Result<Self, NotifyError> {
        let mut on = Self::default();
        for word in text.split(',') {
            match word.trim() {
                "start" => on.start = true,
                "end" => on.end = true,
                "fail" => on.fail = true,
                "all" => on = Self { start: true, end: true, fail: true },
                "none" => {}
                other => return Err(NotifyError::NoMoment { word: shown(other) }),
            }
        }
        Ok(on)
    }
}

impl NotifyMoment {
    /// Its word.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::End => "end",
            Self::Fail => "fail",
        }
    }
}

impl NotifyWay {
    /// The command, address or URL.
    #[must_use]
    pub fn text(&self) -> &str {
        match self {
            Self::Command(text) | Self::Mail(text) | Self::Webhook(text) => text,
        }
    }

    /// What it is, in a word.
    #[must_use]
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Command(_) => "command",
            Self::Mail(_) => "mail",
            Self::Webhook(_) => "webhook",
        }
    }

    /// Whether it can be delivered.
    ///
    /// # Errors
    /// If it can't.
    pub fn check(&self) -> Result<(), NotifyError> {
        match self {
            Self::Command(line) => {
                let is_bad = |c: char| c.is_control() && c != '\n' && c != '\t';
                match line.trim().is_empty() || line.contains(is_bad) {
                    true => Err(NotifyError::NoText { what: "command" }),
                    false => Ok(()),
                }
            }
            Self::Mail(address) => check_address(address),
            Self::Webhook(url) => HookUrl::parse(url).map(|_| ()),
        }
    }
}

impl Notify {
    /// Whether all of it can be delivered.
    ///
    /// # Errors
    /// If it can't.
    pub fn check(&self) -> Result<(), NotifyError> {
        let (ways, bytes) = (self.ways.len(), self.bytes_of_ways());
        if ways > NOTIFY_WAYS_MAX || bytes > NOTIFY_TEXT_BYTES_MAX {
            return Err(NotifyError::TooMuch { ways, bytes });
        }
        if let Some(key) = &self.key
            && !(NOTIFY_KEY_BYTES_MIN..=NOTIFY_KEY_BYTES_MAX).contains(&key.len())
        {
            return Err(NotifyError::BadKey { bytes: key.len() });
        }
        self.ways.iter().try_for_each(NotifyWay::check)
    }

    fn bytes_of_ways(&self) -> usize {
        self.ways.iter().map(|way| way.text().len()).sum()
    }

    /// How much memory it takes, roughly.
    #[must_use]
    pub fn bytes(&self) -> usize {
        const EACH: usize = 32;
        let key = self.key.as_ref().map_or(0, |key| key.len());
        size_of::<Self>() + self.bytes_of_ways() + key + self.ways.len() * EACH
    }
}

/// A name of this machine's mail, or name@host. Nothing that a mail program takes for an option or
/// for several addresses.
fn check_address(address: &str) -> Result<(), NotifyError> {
    const BYTES_MAX: usize = 254;
    let (name, host) = match address.split_once('@') {
        Some((name, host)) => (name, Some(host)),
        None => (address, None),
    };
    let is_word = |text: &str, more: &str| {
        let mut bytes = text.bytes();
        bytes.next().is_some_and(|first| first.is_ascii_alphanumeric() || first == b'_')
            && bytes.all(|byte| byte.is_ascii_alphanumeric() || more.as_bytes().contains(&byte))
    };
    let is_good = address.len() <= BYTES_MAX
        && is_word(name, "._+-")
        && host.is_none_or(|host| is_word(host, ".-") && !host.ends_with(['.', '-']));
    match is_good {
        true => Ok(()),
        false => Err(NotifyError::NoAddress { address: shown(address) }),
    }
}

/// A URL for webhooks, in its parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HookUrl<'a> {
    /// Whether it is https.
    pub is_tls: bool,
    /// The host, without the brackets of an IPv6 address.
    pub host: &'a str,
    /// The host and, if it was given, the port, as the `Host` header has them.
    pub authority: &'a str,
    /// The port.
    pub port: u16,
    /// The path with the query, from `/` on; may be empty.
    pub path: &'a str,
}

impl<'a> HookUrl<'a> {
    /// Takes a URL apart.
    ///
    /// # Errors
    /// If it is none that a webhook may have.
    pub fn parse(url: &'a str) -> Result<Self, NotifyError> {
        let bad = |why| Err(NotifyError::NoUrl { url: shown(url), why });
        if !url.bytes().all(|byte| byte.is_ascii_graphic()) {
            return bad("it has a character other than printable ASCII; escape such as %20");
        }
        let (is_tls, rest) = match (url.strip_prefix("https://"), url.strip_prefix("http://")) {
            (Some(rest), _) => (true, rest),
            (_, Some(rest)) => (false, rest),
            _ => return bad("it begins with neither https:// nor http://"),
        };
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        if path.contains('#') || path.starts_with('?') {
            return bad("it has a fragment, or a query without a path");
        }
        if authority.contains('@') {
            return bad("it has a user name or password; sign the message with --notify-key");
        }
        let (host, port) = match authority.strip_prefix('[') {
            Some(rest) => match rest.split_once(']') {
                Some((host, port)) => (host, port),
                None => return bad("its address has no closing bracket"),
            },
            None => authority.split_at(authority.find(':').unwrap_or(authority.len())),
        };
        let is_v6 = authority.starts_with('[');
        let is_of_host = |byte: u8| match is_v6 {
            true => byte.is_ascii_hexdigit() || byte == b':' || byte == b'.',
            false => byte.is_ascii_alphanumeric() || b".-_".contains(&byte),
        };
        if host.is_empty() || !host.bytes().all(is_of_host) {
            return bad("it has no valid host");
        }
        let port = match port.strip_prefix(':') {
            None if port.is_empty() => Some(if is_tls { 443 } else { 80 }),
            Some(digits) if digits.bytes().all(|it| it.is_ascii_digit()) => digits.parse().ok(),
            _ => None,
        };
        let Some(port) = port.filter(|port| *port > 0) else { return bad("its port is invalid") };
        Ok(Self { is_tls, host, authority, port, path })
    }
}

/// The status in the first line of a webhook's answer; `None` if the answer is not HTTP/1.
#[must_use]
pub fn answer_status(answer: &[u8]) -> Option<u16> {
    let line = answer.split(|byte| *byte == b'\n').next()?;
    let line = core::str::from_utf8(line).ok()?.strip_prefix("HTTP/1.")?;
    line.split_ascii_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::borrow::ToOwned;
    use alloc::string::ToString;
    use alloc::vec;

    #[test]
    fn moments_are_words_with_commas() {
        let on = |text: &str| text.parse::<NotifyOn>().map(|on| (on.start, on.end, on.fail));
        assert_eq!(on("end,fail"), Ok((false, true, true)));
        assert_eq!((on("all"), on("none")), (Ok((true, true, true)), Ok((false, false, false))));
        assert!(on("end,often").unwrap_err().to_string().contains("\"often\""));
        let end = NotifyOn { end: true, ..NotifyOn::default() };
        let fail = NotifyOn { fail: true, ..NotifyOn::default() };
        assert_eq!(end.of_end(true), Some(NotifyMoment::End));
        assert_eq!((end.of_end(false), fail.of_end(true)), (Some(NotifyMoment::Fail), None));
    }

    #[test]
    fn a_url_is_taken_apart() {
        let parse = |url| HookUrl::parse(url).map(|it| (it.is_tls, it.host, it.port, it.path));
        assert_eq!(parse("http://a.example/x?y=1"), Ok((false, "a.example", 80, "/x?y=1")));
        assert_eq!(parse("https://a:8443"), Ok((true, "a", 8443, "")));
        assert_eq!(parse("https://[::1]:9/h"), Ok((true, "::1", 9, "/h")));
    }

    #[test]
    fn the_status_of_an_answer_is_in_its_first_line() {
        assert_eq!(answer_status(b"HTTP/1.1 204 No Content\r\n\r\n"), Some(204));
        for answer in [&b""[..], b"SSH-2.0-x\r\n", b"HTTP/1.1\r\n", b"HTTP/1.1 x\r\n", b"\xff\n"] {
            assert_eq!(answer_status(answer), None);
        }
    }

    #[test]
    fn hostile_urls_addresses_and_commands_are_refused() {
        for url in [
            "",
            "file:///etc/passwd",
            "http://",
            "http:///x",
            "http://a b/",
            "http://u:p@a/",
            "http://a/\r\nX: y",
            "http://a:0/",
            "http://a:99999/",
            "http://a:x/",
            "http://[::1/",
            "http://[::g]/",
            "http://a/#x",
            "http://a?x",
            "gopher://a/",
            "http://a\u{e9}/",
            "http://a:+80/",
        ] {
            assert!(NotifyWay::Webhook(url.to_owned()).check().is_err(), "{url:?}");
        }
        for address in [
            "", "-t", "-oQ/tmp", "a b", "a@b c", "a@", "@b", "a@b@c", "a,b", "a\n", "|sh", "a@-b",
            "a;b", "a@b.", "\"a\"@b", "<a@b>", "/etc/x",
        ] {
            assert!(NotifyWay::Mail(address.to_owned()).check().is_err(), "{address:?}");
        }
        for address in ["ada", "ada.b+x@host.example", "_svc@h"] {
            assert_eq!(NotifyWay::Mail(address.to_owned()).check(), Ok(()));
        }
        assert!(NotifyWay::Command(" ".to_owned()).check().is_err());
        assert!(NotifyWay::Command("a\u{1b}[2J".to_owned()).check().is_err());
        let long = NotifyWay::Command("x".repeat(NOTIFY_TEXT_BYTES_MAX + 1));
        let notify = Notify { ways: vec![long], ..Notify::default() };
        assert!(matches!(notify.check(), Err(NotifyError::TooMuch { .. })));
        let key = Some(ByteBuf::from(&b"short"[..]));
        let notify = Notify { key, ..Notify::default() };
        assert_eq!(notify.check(), Err(NotifyError::BadKey { bytes: 5 }));
    }
}
