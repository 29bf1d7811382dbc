//! What a user is notified with: the same facts as JSON, for commands and webhooks, and as mail.

use serde::{Deserialize, Serialize};
use tutti_client::output::without_orders;
use tutti_types::JobId;
use tutti_wire::event::{JobOf, Notification};
use tutti_wire::history::Ending;
use tutti_wire::units::format_duration_short;

/// The version of the JSON: raised when a field means something else.
const MESSAGE_VERSION: u32 = 1;

/// The facts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Message {
    pub(super) version: u32,
    /// The number of the event: a receiver drops what it has had already.
    pub(super) number: u64,
    pub(super) at_ms: u64,
    /// `start`, `end` or `fail`.
    pub(super) notification: String,
    pub(super) job: JobId,
    pub(super) name: String,
    pub(super) user: String,
    pub(super) uid: u32,
    /// The names of its nodes, where it started.
    #[serde(skip_serializing_if = "String::is_empty", default)]
    pub(super) nodes: String,
    /// How it ended, where it did.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(super) ending: Option<Ending>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(super) exit_code: Option<u8>,
    #[serde(skip_serializing_if = "String::is_empty", default)]
    pub(super) reason: String,
    pub(super) waited_ms: u64,
    pub(super) service_ms: u64,
}

impl Message {
    pub(super) fn new(number: u64, at_ms: u64, of: &JobOf, it: &Notification) -> Self {
        Self {
            version: MESSAGE_VERSION,
            number,
            at_ms,
            notification: it.on.word().into(),
            job: of.job,
            name: of.name.clone(),
            user: of.user.clone(),
            uid: of.uid,
            nodes: it.nodes.clone(),
            ending: it.ending,
            exit_code: it.exit_code,
            reason: it.reason.clone(),
            waited_ms: it.waited_ms,
            service_ms: it.service_ms,
        }
    }

    pub(super) fn of(&self) -> JobOf {
        let (name, user) = (self.name.clone(), self.user.clone());
        JobOf { job: self.job, name, user, uid: self.uid }
    }

    /// A line of JSON, without a line end.
    pub(super) fn json(&self) -> String {
        without_orders(&serde_json::to_string(self).unwrap_or_default())
    }

    fn subject(&self) -> String {
        let what = match (self.notification.as_str(), self.exit_code) {
            ("start", _) => "started".into(),
            ("end", _) | (_, None) => "completed".into(),
            (_, Some(code)) => format!("failed, exit code {code}"),
        };
        format!("Tutti job {} ({}) {what}", self.job, self.name)
    }

    /// A whole mail to this address.
    pub(super) fn mail(&self, address: &str) -> String {
        let ms = |ms: u64| format_duration_short(tutti_types::Nanos(ms.saturating_mul(1_000_000)));
        let mut body = format!("{}\n\nuser: {}\n", self.subject(), self.user);
        if !self.nodes.is_empty() {
            body.push_str(&format!("nodes: {}\n", self.nodes));
        }
        // An end by itself has no other reason than its exit code.
        if !self.reason.is_empty() && self.reason != "completed" {
            body.push_str(&format!("reason: {}\n", self.reason));
        }
        body.push_str(&format!("waited: {}\n", ms(self.waited_ms)));
        if self.exit_code.is_some() {
            body.push_str(&format!("ran: {}\n", ms(self.service_ms)));
        }
        body.push_str(&format!("\n`tutti show {}` shows more.\n", self.job));
        format!(
            "To: {address}\nSubject: {}\nAuto-Submitted: auto-generated\nX-Tutti-Job: {}\n\
             MIME-Version: 1.0\nContent-Type: text/plain; charset=utf-8\n\
             Content-Transfer-Encoding: 8bit\n\n{}",
            header(&self.subject()),
            self.job,
            printable(&body)
        )
    }
}

/// Without anything that a terminal or a mail program would obey.
fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() && c != '\n' { '?' } else { c }).collect()
}

/// One line for a header: a job's name must not begin another one, nor be anything but ASCII.
fn header(text: &str) -> String {
    let shown = |c: char| if c.is_ascii_graphic() || c == ' ' { c } else { '?' };
    text.chars().map(shown).take(200).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(name: &str) -> Message {
        Message {
            version: 1,
            number: 9,
            at_ms: 1,
            notification: "fail".into(),
            job: JobId(7),
            name: name.into(),
            user: "ada".into(),
            uid: 1,
            nodes: String::new(),
            ending: Some(Ending::Failed),
            exit_code: Some(3),
            reason: "a task\u{1b}[2J failed".into(),
            waited_ms: 0,
            service_ms: 1000,
        }
    }

    #[test]
    fn a_name_of_a_job_adds_no_header() {
        let mail = message("x\r\nBcc: all@host\u{e9}").mail("ada@host");
        let (headers, body) = mail.split_once("\n\n").unwrap();
        assert!(!headers.contains("\nBcc") && !mail.contains('\r') && !body.contains('\u{1b}'));
        assert!(headers.contains("Subject: Tutti job 7 (x??Bcc: all@host?) failed, exit code 3"));
        assert!(headers.is_ascii());
    }

    #[test]
    fn json_has_what_there_is_and_is_read_again() {
        let json = message("a").json();
        assert!(json.contains(r#""notification":"fail","job":7"#) && !json.contains("nodes"));
        assert_eq!(serde_json::from_str::<Message>(&json).unwrap(), message("a"));
    }
}
