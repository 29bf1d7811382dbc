//! Output of spawned tasks that another task collects (`pvm_catchout`).
//!
//! The front end of a step prints an object for each line (`--label=json`). Each becomes a message
//! to the task that collects. When the front end has ended, that task hears the end of each output.

use super::manager::{Batch, output};
use super::steps::LINE_OF_OUTPUT_MAX;
use anyhow::Context;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use serde::Deserialize;
use std::io::{ErrorKind, PipeReader, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::process::{Command, Stdio};
use tutti_wire::pvm::Message;

/// How much is read before others are served.
const READ_BYTES: usize = 64 << 10;

/// The output of one step.
#[derive(Debug)]
pub(super) struct Collected {
    from: PipeReader,
    text: Vec<u8>,
    /// Whether the rest of a line that is too long is left out.
    skips: bool,
    to: [u32; 3],
    /// By rank.
    tasks: Vec<u32>,
    is_open: bool,
}

/// What is used of a line of the front end.
#[derive(Deserialize)]
struct Line {
    rank: usize,
    line: String,
}

impl Collected {
    /// Has a front end print the output of a batch here.
    ///
    /// # Errors
    /// If there can be no pipe.
    pub(super) fn of(front: &mut Command, to: [u32; 3], batch: &Batch) -> anyhow::Result<Self> {
        let (from, into) = std::io::pipe().context("cannot collect output")?;
        fcntl(&from, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        front.stdout(Stdio::from(into.try_clone()?)).stderr(Stdio::from(into));
        let tasks = batch.tasks.iter().map(|&(task, _)| task).collect();
        Ok(Self { from, text: Vec::new(), skips: false, to, tasks, is_open: true })
    }

    /// Whether more may come.
    pub(super) const fn is_open(&self) -> bool {
        self.is_open
    }

    /// What the task hears that collects.
    pub(super) fn read(&mut self) -> Vec<Message> {
        let mut found = Vec::new();
        let mut room = vec![0; READ_BYTES];
        match self.from.read(&mut room) {
            Ok(0) => {
                self.is_open = false;
                found.extend(self.tasks.iter().map(|&task| output(self.to, task, None)));
            }
            Ok(count) => self.text.extend_from_slice(&room[..count]),
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(_) => self.is_open = false,
        }
        while let Some(end) = self.text.iter().position(|&byte| byte == b'\n') {
            let line: Vec<u8> = self.text.drain(..=end).collect();
            if !std::mem::take(&mut self.skips) {
                found.extend(self.message(&line));
            }
        }
        if self.text.len() > LINE_OF_OUTPUT_MAX {
            self.text.clear();
            self.skips = true;
        }
        found
    }

    /// The message of a line. What the front end itself has to say goes to the terminal.
    fn message(&self, line: &[u8]) -> Option<Message> {
        let Ok(Line { rank, mut line }) = serde_json::from_slice(line) else {
            say!("{}", String::from_utf8_lossy(line).trim_end());
            return None;
        };
        line.push('\n');
        Some(output(self.to, *self.tasks.get(rank)?, Some(line.as_bytes())))
    }
}

impl AsFd for Collected {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.from.as_fd()
    }
}
