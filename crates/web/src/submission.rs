//! A job that is submitted over HTTP: the body of `POST /v1/jobs`.

use crate::source::{Answer, Failure};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use tutti_wire::code::Code;

/// A job as it is asked for. Its options are those of `tutti submit`, as text.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Submission {
    /// A program and its arguments, started once for each task.
    pub command: Option<Vec<String>>,
    /// A line of a shell that runs once.
    pub line: Option<String>,
    /// The text of a batch script that runs once.
    pub script: Option<String>,
    /// Number of tasks.
    pub tasks: Option<u32>,
    /// Processors of each task.
    pub processors: Option<u32>,
    /// Memory of each task, such as `4G`.
    pub memory: Option<String>,
    /// Time limit, such as `30m`.
    pub time: Option<String>,
    /// Name of the job.
    pub name: Option<String>,
    /// Class.
    pub class: Option<String>,
    /// Queue.
    pub queue: Option<String>,
    /// Jobs that must have ended first, such as `7` or `7:any`.
    pub after: Option<String>,
    /// Begin no earlier than then.
    pub begin: Option<String>,
    /// Working directory; that of the server otherwise.
    pub directory: Option<String>,
    /// File for standard output.
    pub output: Option<String>,
    /// File for standard error.
    pub error: Option<String>,
    /// Variables besides those of the server.
    pub environment: BTreeMap<String, String>,
    /// Further options of `tutti submit`, word by word.
    pub options: Vec<String>,
}

/// What is started of a submission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work<'a> {
    /// A program and its arguments.
    Command(&'a [String]),
    /// A line of a shell.
    Line(&'a str),
    /// The text of a script.
    Script(&'a str),
}

impl Submission {
    /// Reads a body.
    pub(crate) fn read(body: &[u8]) -> Answer<Self> {
        let wrong = |text: String| Failure::new(Code::CannotUnderstand, text);
        let read: Self = serde_json::from_slice(body).map_err(|error| {
            wrong(format!("the body is no job: {error}; /openapi.json has its fields"))
        })?;
        read.work().map(|_| ()).ok_or_else(|| {
            wrong("give one of command, line and script, and not an empty one".into())
        })?;
        Ok(read)
    }

    /// What is to be started; `None` unless it is one thing.
    #[must_use]
    pub fn work(&self) -> Option<Work<'_>> {
        match (&self.command, &self.line, &self.script) {
            (Some(command), None, None) if !command.is_empty() => Some(Work::Command(command)),
            (None, Some(line), None) if !line.trim().is_empty() => Some(Work::Line(line)),
            (None, None, Some(script)) if !script.is_empty() => Some(Work::Script(script)),
            _ => None,
        }
    }

    /// The options as words of `tutti submit`. Each has its value in the same word, so that no
    /// value is taken for an option.
    #[must_use]
    pub fn words(&self) -> Vec<String> {
        let number = |value: Option<u32>| value.map(|it| it.to_string());
        let all = [
            ("tasks", number(self.tasks)),
            ("processors", number(self.processors)),
            ("memory", self.memory.clone()),
            ("time", self.time.clone()),
            ("name", self.name.clone()),
            ("class", self.class.clone()),
            ("queue", self.queue.clone()),
            ("after", self.after.clone()),
            ("begin", self.begin.clone()),
            ("output", self.output.clone()),
            ("error", self.error.clone()),
        ];
        let given =
            all.into_iter().filter_map(|(name, value)| Some(format!("--{name}={}", value?)));
        given.chain(self.options.iter().cloned()).collect()
    }
}

/// The schema of the body.
pub(crate) fn schema() -> Value {
    let text = |help: &str| json!({ "type": "string", "description": help });
    let list =
        |help: &str| json!({ "type": "array", "items": { "type": "string" }, "description": help });
    let count = |help: &str| json!({ "type": "integer", "minimum": 1, "description": help });
    json!({
        "type": "object",
        "description": "A job; one of command, line and script. Options are those of tutti submit.",
        "additionalProperties": false,
        "properties": {
            "command": list("Program and arguments, started once for each task."),
            "line": text("A line of a shell that runs once."),
            "script": text("The text of a batch script that runs once."),
            "tasks": count("Number of tasks."),
            "processors": count("Processors of each task."),
            "memory": text("Memory of each task, such as 4G."),
            "time": text("Time limit, such as 30m."),
            "name": text("Name of the job."),
            "class": text("Class."),
            "queue": text("Queue."),
            "after": text("Jobs that must have ended first, such as 7 or 7:any."),
            "begin": text("Begin no earlier than then, such as 20:00."),
            "directory": text("Working directory; that of tutti web otherwise."),
            "output": text("File for standard output, such as out/%j-%r."),
            "error": text("File for standard error."),
            "environment": {
                "type": "object", "additionalProperties": { "type": "string" },
                "description": "Variables besides those of tutti web.",
            },
            "options": list("Further options of tutti submit, word by word."),
        },
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that can't go on has failed")]
    use super::*;

    #[test]
    fn each_field_of_the_schema_is_read() {
        for (name, field) in schema()["properties"].as_object().unwrap() {
            let value = match field["type"].as_str().unwrap() {
                "string" => json!("x"),
                "integer" => json!(2),
                "array" => json!(["x"]),
                _ => json!({ "NAME": "value" }),
            };
            let body = json!({ name: value });
            serde_json::from_value::<Submission>(body).unwrap();
        }
    }

    #[test]
    fn a_submission_is_one_thing_with_options() {
        let body = br#"{"command":["a","-n"],"tasks":2,"name":"-x","options":["--exclusive"]}"#;
        let read = Submission::read(body).unwrap();
        assert_eq!(read.words(), ["--tasks=2", "--name=-x", "--exclusive"]);
        assert_eq!(read.work(), Some(Work::Command(&["a".to_owned(), "-n".to_owned()])));
        for wrong in [
            &b"{}"[..],
            b"[]",
            b"",
            b"{\"command\":[]}",
            b"{\"line\":\" \"}",
            b"{\"line\":\"a\",\"script\":\"b\"}",
            b"{\"line\":\"a\",\"user\":\"root\"}",
            b"{\"line\":\"a\",\"tasks\":-1}",
        ] {
            assert_eq!(Submission::read(wrong).unwrap_err().code, Code::CannotUnderstand);
        }
    }
}
