//! The vacate protocol: lines of text between a process of a job and the agent of its node.
//!
//! A process registers once and is asked to vacate before each end of its job's slot:
//!
//! | from | line | meaning |
//! |---|---|---|
//! | process | `register 1` | the version of the protocol that the process speaks |
//! | agent | `registered JOB LEAD` | the job, and how long before the end it is asked, in ns |
//! | agent | `vacate N UNTIL` | notice N: the slot ends at UNTIL, by `CLOCK_MONOTONIC` in ns |
//! | process | `ready N` | the process has given up what it holds |
//! | agent | `resume N` | the job has its next slot, or keeps this one |
//! | agent | `error TEXT` | why the agent closes the connection |
//!
//! Each line ends with a newline. `docs/reference/vacate-protocol.md` is the page for users.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use tutti_types::{JobId, Nanos};

/// The version of the protocol.
pub const VERSION: u32 = 1;

/// Maximum length of a process's line, without its newline, in bytes.
pub const LINE_BYTES_MAX: usize = 64;

/// What a process says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FromProcess {
    /// Its job is to be asked to vacate.
    Register {
        /// The version of the protocol that the process speaks.
        version: u32,
    },
    /// The process has vacated.
    Ready {
        /// The notice that this answers.
        number: u64,
    },
}

/// What an agent says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToProcess {
    /// The process is registered, and its job runs.
    Registered {
        /// The job of the process, as the kernel knows it.
        job: JobId,
        /// How long before the end of a slot a notice comes, at most.
        lead: Nanos,
    },
    /// The slot of the job ends soon.
    Vacate {
        /// The number of the notice, higher for each.
        number: u64,
        /// When the slot ends, by the monotonic clock of the node.
        until_ns: u64,
    },
    /// The job has its next slot, or keeps the one that was to end.
    Resume {
        /// The notice that is over.
        number: u64,
    },
    /// The agent closes the connection.
    Error {
        /// Why, in one line.
        text: String,
    },
}

impl fmt::Display for ToProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Registered { job, lead } => writeln!(f, "registered {job} {}", lead.0),
            Self::Vacate { number, until_ns } => writeln!(f, "vacate {number} {until_ns}"),
            Self::Resume { number } => writeln!(f, "resume {number}"),
            Self::Error { text } => writeln!(f, "error {}", text.replace('\n', " ")),
        }
    }
}

/// A process sent a line that is none of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadLine {
    /// The line has no known form.
    #[error("write `register 1`, then `ready N` for each notice N")]
    Unknown,
    /// The line is longer than [`LINE_BYTES_MAX`].
    #[error("a line has at most {LINE_BYTES_MAX} bytes")]
    TooLong,
}

/// Reads one line, without its newline.
///
/// # Errors
/// If the line is none that a process says.
pub fn parse(line: &[u8]) -> Result<FromProcess, BadLine> {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let text = core::str::from_utf8(line).map_err(|_| BadLine::Unknown)?;
    let (word, number) = text.split_once(' ').ok_or(BadLine::Unknown)?;
    // `parse` accepts a sign.
    if !number.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(BadLine::Unknown);
    }
    let number: u64 = number.parse().map_err(|_| BadLine::Unknown)?;
    match word {
        "register" => u32::try_from(number)
            .map(|version| FromProcess::Register { version })
            .map_err(|_| BadLine::Unknown),
        "ready" => Ok(FromProcess::Ready { number }),
        _ => Err(BadLine::Unknown),
    }
}

/// The bytes of one connection, taken out line by line. Holds at most one line and what came with
/// it in the same read.
#[derive(Clone, Debug, Default)]
pub struct Lines {
    bytes: Vec<u8>,
}

impl Lines {
    /// Adds bytes as they were read.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Takes out the next line; `None`: it is not whole yet.
    pub fn take(&mut self) -> Option<Result<FromProcess, BadLine>> {
        match self.bytes.iter().position(|&byte| byte == b'\n') {
            Some(end) if end <= LINE_BYTES_MAX => {
                let line: Vec<u8> = self.bytes.drain(..=end).take(end).collect();
                Some(parse(&line))
            }
            None if self.bytes.len() <= LINE_BYTES_MAX => None,
            _ => Some(Err(BadLine::TooLong)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;
    use proptest::prelude::*;

    #[test]
    fn lines_of_a_process_are_read() {
        assert_eq!(parse(b"register 1"), Ok(FromProcess::Register { version: 1 }));
        assert_eq!(
            parse(b"ready 18446744073709551615"),
            Ok(FromProcess::Ready { number: u64::MAX })
        );
        assert_eq!(parse(b"ready 7\r"), Ok(FromProcess::Ready { number: 7 }));
        let bad: [&[u8]; 12] = [
            b"",
            b"ready",
            b"ready ",
            b"ready x",
            b"ready -1",
            b"ready +1",
            b"ready 1 2",
            b"ready 18446744073709551616",
            b"register 4294967296",
            b"READY 1",
            b"\xff 1",
            b"resume 1",
        ];
        for line in bad {
            assert_eq!(parse(line), Err(BadLine::Unknown), "{line:?}");
        }
    }

    #[test]
    fn lines_of_an_agent_have_one_form() {
        let vacate = ToProcess::Vacate { number: 3, until_ns: 5_000_000_007 };
        assert_eq!(vacate.to_string(), "vacate 3 5000000007\n");
        let registered = ToProcess::Registered { job: JobId(7), lead: Nanos(20_000_000) };
        assert_eq!(registered.to_string(), "registered 7 20000000\n");
        assert_eq!(ToProcess::Resume { number: 3 }.to_string(), "resume 3\n");
        let error = ToProcess::Error { text: "two\nlines".into() };
        assert_eq!(error.to_string(), "error two lines\n");
    }

    #[test]
    fn a_long_line_is_refused_with_or_without_its_end() {
        let mut lines = Lines::default();
        lines.push(&[b'x'; LINE_BYTES_MAX]);
        assert_eq!(lines.take(), None);
        lines.push(b"x");
        assert_eq!(lines.take(), Some(Err(BadLine::TooLong)));
        lines.push(b"\n");
        assert_eq!(lines.take(), Some(Err(BadLine::TooLong)));
    }

    proptest! {
        #[test]
        fn pieces_of_any_size_give_the_same_lines(
            numbers in prop::collection::vec(any::<u64>(), 1..20),
            size in 1_usize..30,
        ) {
            let text: String = numbers.iter().map(|it| alloc::format!("ready {it}\n")).collect();
            let (mut lines, mut found) = (Lines::default(), Vec::new());
            for piece in text.as_bytes().chunks(size) {
                lines.push(piece);
                while let Some(line) = lines.take() {
                    found.push(line);
                }
            }
            let expected: Vec<_> =
                numbers.iter().map(|&number| Ok(FromProcess::Ready { number })).collect();
            prop_assert_eq!(found, expected);
        }

        #[test]
        fn any_bytes_give_a_value_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut lines = Lines::default();
            lines.push(&bytes);
            for _ in 0..bytes.len() {
                match lines.take() {
                    Some(Ok(_)) => {}
                    Some(Err(_)) | None => break,
                }
            }
        }
    }
}
