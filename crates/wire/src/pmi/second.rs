//! Messages of PMI-2: `cmd=NAME;key=value;...;`, with `;;` for a semicolon in a value. Six digits
//! stand before each, its length.
//!
//! A client begins as one of PMI-1 does, by a line with `pmi_version=2`. From then on both sides
//! send such messages. An answer has the name of the question with `-response`, and `rc=0` or the
//! reason in `errmsg`. It repeats the `thrid` of the question, by which clients find the thread
//! that waits.

use super::line::{LENGTH_BYTES, PmiError, needed, number};
use super::server::Effect;
use crate::units::shown;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// Bytes of the longest name of a command or of a thread; clients use a pointer for a thread.
const WORD_BYTES_MAX: usize = 64;

/// A message of a client.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Message {
    /// What it asks for, and for which thread.
    pub(super) question: Question,
    /// The other fields, in their order. Some are repeated.
    pub(super) fields: Vec<(Vec<u8>, Vec<u8>)>,
}

/// What an answer must name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Question {
    /// The command.
    pub(super) command: String,
    /// The thread that waits, as the client calls it.
    thread: Option<Vec<u8>>,
}

impl Message {
    /// Reads a message, without its length.
    ///
    /// # Errors
    /// If it does not begin with the name of a command, or names a thread by a long name.
    pub(super) fn read(bytes: &[u8]) -> Result<Self, PmiError> {
        let mut fields = fields(bytes);
        if fields.first().is_none_or(|(key, _)| key != b"cmd") {
            return Err(PmiError::NotACommand);
        }
        let command = fields.remove(0).1;
        let is_named = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        if command.is_empty() || command.len() > WORD_BYTES_MAX || !command.iter().all(is_named) {
            let command = shown(&String::from_utf8_lossy(&command));
            return Err(PmiError::UnknownCommand { command });
        }
        let command = String::from_utf8_lossy(&command).into_owned();
        let thread =
            fields.iter().find(|(key, _)| key == b"thrid").map(|(_, thread)| thread.clone());
        if thread.as_ref().is_some_and(|thread| thread.len() > WORD_BYTES_MAX) {
            return Err(PmiError::LineTooLong);
        }
        Ok(Self { question: Question { command, thread }, fields })
    }

    /// The first field of this name.
    pub(super) fn get(&self, name: &str) -> Option<&[u8]> {
        let found = self.fields.iter().find(|(key, _)| key == name.as_bytes());
        found.map(|(_, value)| &value[..])
    }

    /// The same, of a command that needs it.
    pub(super) fn needed(
        &self,
        command: &'static str,
        field: &'static str,
    ) -> Result<&[u8], PmiError> {
        needed(command, field, self.get(field))
    }

    /// A number, if the field is there.
    pub(super) fn number(
        &self,
        command: &'static str,
        field: &'static str,
    ) -> Result<Option<i32>, PmiError> {
        self.get(field).map(|text| number(command, field, Some(text))).transpose()
    }
}

/// Cuts a message into its fields. What has no `=` is left out.
fn fields(bytes: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut fields = Vec::new();
    let mut rest = bytes;
    while let Some(equals) = rest.iter().position(|byte| matches!(byte, b'=' | b';')) {
        let (key, behind) = (&rest[..equals], &rest[equals + 1..]);
        if rest[equals] == b';' {
            rest = behind;
            continue;
        }
        let mut value = Vec::new();
        let mut at = 0;
        while let Some(&byte) = behind.get(at) {
            if byte == b';' {
                if behind.get(at + 1) != Some(&b';') {
                    break;
                }
                at += 1;
            }
            value.push(byte);
            at += 1;
        }
        fields.push((key.to_vec(), value));
        rest = behind.get(at + 1..).unwrap_or_default();
    }
    fields
}

/// An answer that is being written.
pub(super) struct Response(Vec<u8>);

impl Response {
    /// The answer to a question that was carried out.
    pub(super) fn to(question: &Question) -> Self {
        Self::with(question, 0)
    }

    /// The answer to one that was not.
    pub(super) fn refused(question: &Question, reason: &str) -> Self {
        Self::with(question, -1).text("errmsg", reason.as_bytes())
    }

    fn with(question: &Question, rc: i32) -> Self {
        let begun = Self(format!("cmd={}-response;", question.command).into_bytes());
        let begun = match &question.thread {
            Some(thread) => begun.text("thrid", thread),
            None => begun,
        };
        begun.text("rc", rc.to_string().as_bytes())
    }

    pub(super) fn text(mut self, name: &str, value: &[u8]) -> Self {
        self.0.extend_from_slice(name.as_bytes());
        self.0.push(b'=');
        for &byte in value {
            if byte == b';' {
                self.0.push(b';');
            }
            self.0.push(byte);
        }
        self.0.push(b';');
        self
    }

    pub(super) fn number(self, name: &str, value: impl ToString) -> Self {
        self.text(name, value.to_string().as_bytes())
    }

    /// What was looked up.
    pub(super) fn found(self, value: Option<&[u8]>) -> Self {
        match value {
            Some(value) => self.text("found", b"TRUE").text("value", value),
            None => self.text("found", b"FALSE"),
        }
    }

    pub(super) fn send(self, task: usize) -> Effect {
        let mut line = format!("{:LENGTH_BYTES$}", self.0.len()).into_bytes();
        line.extend_from_slice(&self.0);
        Effect::Reply { task, line }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pmi::LineBuffer;
    use proptest::prelude::*;

    fn read(text: &str) -> Result<Message, PmiError> {
        Message::read(text.as_bytes())
    }

    #[test]
    fn messages_are_read() {
        let message = read("cmd=kvs-put;thrid=0x7f;key=a;value=1;;2=3;").unwrap();
        assert_eq!(message.question.command, "kvs-put");
        assert_eq!(message.question.thread.as_deref(), Some(&b"0x7f"[..]));
        assert_eq!(message.get("value"), Some(&b"1;2=3"[..]));
        assert_eq!(read("cmd=finalize").unwrap().fields, []);
        assert_eq!(read("cmd=abort;msg=;isworld=TRUE;").unwrap().get("msg"), Some(&b""[..]));
        assert_eq!(read("cmd=x;flag;a=b;").unwrap().get("a"), Some(&b"b"[..]));
    }

    #[test]
    fn what_is_no_message_is_refused() {
        assert_eq!(read(""), Err(PmiError::NotACommand));
        assert_eq!(read("key=a;cmd=x;"), Err(PmiError::NotACommand));
        assert!(matches!(read("cmd=;"), Err(PmiError::UnknownCommand { .. })));
        assert!(matches!(read("cmd=a b;"), Err(PmiError::UnknownCommand { .. })));
        let long = format!("cmd=x;thrid={};", "7".repeat(65));
        assert_eq!(read(&long), Err(PmiError::LineTooLong));
    }

    proptest! {
        #[test]
        fn a_value_comes_back_as_it_was(value in proptest::collection::vec(any::<u8>(), 0..40)) {
            let question = Question { command: "kvs-get".into(), thread: None };
            let Effect::Reply { line, .. } = Response::to(&question).found(Some(&value)).send(0) else {
                panic!()
            };
            let mut lines = LineBuffer::new();
            lines.extend(&line);
            let message = Message::read(lines.next_line().unwrap().unwrap()).unwrap();
            prop_assert_eq!(message.question.command, "kvs-get-response");
            // An empty value or one that ends in a semicolon is followed by the end of its field.
            prop_assert_eq!(message.fields.last().unwrap(), &(b"value".to_vec(), value));
        }

        #[test]
        fn no_bytes_do_harm(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            let _ = Message::read(&bytes);
        }
    }
}
