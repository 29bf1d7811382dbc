//! A command that is run for each event, and how far that has come.

use crate::cmd::replace_file::replace_file;
use anyhow::Context;
use std::ffi::OsString;
use std::io::{ErrorKind, Write};
use std::path::Path;
use std::process::{Child, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use tutti_node::codes::coded;
use tutti_wire::code::Code;
use tutti_wire::event::EventRecord;

/// How often a command is tried, with this pause after the first and twice as long after the next.
const TRIES: u32 = 3;
const PAUSE: Duration = Duration::from_secs(1);

/// How long one try may take.
const TIME_MAX: Duration = Duration::from_secs(60);

/// How often it is looked whether a command has ended.
const LOOK: Duration = Duration::from_millis(5);

/// A command line for the shell.
pub(super) struct Command {
    line: OsString,
}

impl Command {
    pub(super) const fn new(line: OsString) -> Self {
        Self { line }
    }

    /// Runs it for an event. A failure is reported, and the next event follows.
    pub(super) fn call(&self, json: &str, word: &str, record: &EventRecord) {
        let mut pause = PAUSE;
        for tried in 1..=TRIES {
            match self.run(json, word, record) {
                Ok(status) if status.success() => return,
                Ok(status) => self.say(record, &format!("ended with {status}"), tried),
                Err(error) => self.say(record, &error.to_string(), tried),
            }
            if tried < TRIES {
                std::thread::sleep(pause);
                pause *= 2;
            }
        }
    }

    fn say(&self, record: &EventRecord, why: &str, tried: u32) {
        let next = if tried < TRIES { "it is tried again" } else { "the event is skipped" };
        let line = self.line.to_string_lossy();
        say!("tutti: `{line}` for event {} failed: {why}; {next}", record.number);
    }

    fn run(&self, json: &str, word: &str, record: &EventRecord) -> std::io::Result<ExitStatus> {
        let mut command = std::process::Command::new("/bin/sh");
        command.arg("-c").arg(&self.line).stdin(Stdio::piped());
        command.env("TUTTI_EVENT", word).env("TUTTI_EVENT_NUMBER", record.number.to_string());
        match &record.event.job {
            Some(of) => command.env("TUTTI_EVENT_JOB", of.job.to_string()),
            None => command.env_remove("TUTTI_EVENT_JOB"),
        };
        let mut child = command.spawn()?;
        if let Some(mut input) = child.stdin.take() {
            match writeln!(input, "{json}") {
                // It may read nothing. A line fits into the pipe otherwise.
                Err(error) if error.kind() != ErrorKind::BrokenPipe => return Err(error),
                _ => {}
            }
        }
        wait(&mut child)
    }
}

/// Waits for a command, and ends one that takes too long.
fn wait(child: &mut Child) -> std::io::Result<ExitStatus> {
    let begun = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if begun.elapsed() > TIME_MAX {
            child.kill()?;
            return child.wait();
        }
        std::thread::sleep(LOOK);
    }
}

/// The number in a file; `None` if there is no file.
pub(super) fn read_place(path: &Path) -> anyhow::Result<Option<u64>> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error).context(format!("cannot read {}", path.display())),
    };
    text.trim().parse().map(Some).map_err(|_| {
        let reason =
            format!("{} has no number of an event; delete it to begin anew", path.display());
        coded(Code::CannotUnderstand, reason)
    })
}

/// Writes the number to the file, which is replaced at once.
pub(super) fn write_place(path: &Path, number: u64) -> anyhow::Result<()> {
    replace_file(path, &format!("{number}\n"))
}
