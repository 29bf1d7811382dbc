//! What the user types, on its way to the tasks.

use serde_bytes::ByteBuf;
use std::collections::BTreeMap;
use tutti_types::Rank;
use tutti_wire::attach::FromFrontEnd;
use tutti_wire::launch::InputTo;

/// What `--input` accepts.
///
/// # Errors
/// If it is none of these.
pub fn parse_input(text: &str) -> Result<InputTo, String> {
    match text {
        "none" => Ok(InputTo::Nobody),
        "all" => Ok(InputTo::All),
        "tagged" => Ok(InputTo::Tagged),
        rank => rank.parse().map(InputTo::Rank).map_err(|_| {
            format!("{text:?} is none of: none, all, tagged, or the number of a rank")
        }),
    }
}

/// A line that is longer is sent on in pieces, each to the rank of its beginning.
const LINE_MAX: usize = 1 << 20;

/// Turns pieces of standard input into messages.
#[derive(Debug)]
pub(super) struct Input {
    to: InputTo,
    size: u32,
    partial: Vec<u8>,
    line: u64,
    /// Ranks that have ended, and whether that was said of them.
    ended: BTreeMap<u32, bool>,
}

impl Input {
    pub(super) fn new(to: InputTo, size: u32) -> Self {
        Self { to, size, partial: Vec::new(), line: 0, ended: BTreeMap::new() }
    }

    /// Whether anybody wants input.
    pub(super) fn wanted(&self) -> bool {
        self.to != InputTo::Nobody
    }

    /// A task has ended: it reads nothing more.
    pub(super) fn on_task_ended(&mut self, rank: Rank) {
        if self.to != InputTo::Nobody {
            self.ended.entry(rank.0).or_insert(false);
        }
    }

    /// Complains, once for each rank, of input that is for one that has ended.
    fn note_end_of(&mut self, rank: u32, wrong: &mut Vec<String>) {
        if let Some(is_said) = self.ended.get_mut(&rank)
            && !std::mem::replace(is_said, true)
        {
            wrong.push(format!("rank {rank} has ended; input for it is dropped"));
        }
    }

    /// What a piece of input means; empty is its end. Complaints go to `wrong`.
    pub(super) fn take(&mut self, data: &[u8], wrong: &mut Vec<String>) -> Vec<FromFrontEnd> {
        match self.to {
            InputTo::Nobody => Vec::new(),
            InputTo::All => vec![message(None, data)],
            InputTo::Rank(rank) => {
                if !data.is_empty() {
                    self.note_end_of(rank, wrong);
                }
                vec![message(Some(rank), data)]
            }
            InputTo::Tagged => self.take_tagged(data, wrong),
        }
    }

    fn take_tagged(&mut self, data: &[u8], wrong: &mut Vec<String>) -> Vec<FromFrontEnd> {
        self.partial.extend_from_slice(data);
        let mut messages = Vec::new();
        let mut begin = 0;
        while let Some(length) = memchr::memchr(b'\n', &self.partial[begin..]) {
            let end = begin + length + 1;
            self.line += 1;
            let line = self.partial[begin..end].to_vec();
            messages.extend(self.tagged_line(&line, wrong));
            begin = end;
        }
        self.partial.drain(..begin);
        let ended = data.is_empty();
        if (ended && !self.partial.is_empty()) || self.partial.len() > LINE_MAX {
            self.line += 1;
            let rest = std::mem::take(&mut self.partial);
            messages.extend(self.tagged_line(&rest, wrong));
        }
        if ended {
            messages.push(message(None, b""));
        }
        messages
    }

    fn tagged_line(&mut self, line: &[u8], wrong: &mut Vec<String>) -> Option<FromFrontEnd> {
        let parsed = memchr::memchr(b':', line).and_then(|colon| {
            let rank: u32 = std::str::from_utf8(&line[..colon]).ok()?.trim().parse().ok()?;
            let text = &line[colon + 1..];
            (rank < self.size).then_some((rank, text.strip_prefix(b" ").unwrap_or(text)))
        });
        if let Some((rank, _)) = parsed {
            self.note_end_of(rank, wrong);
        } else {
            wrong.push(format!(
                "line {} of the input has no rank; write RANK: TEXT with a rank below {}",
                self.line, self.size
            ));
        }
        parsed.map(|(rank, text)| message(Some(rank), text))
    }
}

fn message(rank: Option<u32>, data: &[u8]) -> FromFrontEnd {
    FromFrontEnd::Input { rank: rank.map(Rank), data: ByteBuf::from(data) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tagged_line_goes_to_the_rank_it_names() {
        let mut input = Input::new(InputTo::Tagged, 2);
        let mut wrong = Vec::new();
        let mut got = input.take(b"1: hello\n0:wor", &mut wrong);
        got.extend(input.take(b"ld\n2: nobody\nnonsense\n", &mut wrong));
        got.extend(input.take(b"", &mut wrong));
        let expected =
            vec![message(Some(1), b"hello\n"), message(Some(0), b"world\n"), message(None, b"")];
        assert_eq!(got, expected);
        assert_eq!(wrong.len(), 2);
        assert!(wrong[1].starts_with("line 4 "), "{wrong:?}");
    }

    #[test]
    fn input_for_a_rank_that_has_ended_is_reported_once() {
        let mut wrong = Vec::new();
        for (to, text) in [(InputTo::Tagged, &b"1: a\n1: b\n0: c\n"[..]), (InputTo::Rank(1), b"x")]
        {
            let mut input = Input::new(to, 2);
            input.take(text, &mut wrong);
            assert_eq!(wrong, Vec::<String>::new());
            input.on_task_ended(Rank(1));
            input.take(text, &mut wrong);
            input.take(text, &mut wrong);
            assert_eq!(std::mem::take(&mut wrong), ["rank 1 has ended; input for it is dropped"]);
        }
    }

    #[test]
    fn the_last_line_needs_no_end() {
        let mut input = Input::new(InputTo::Tagged, 1);
        input.take(b"0: x", &mut Vec::new());
        let got = input.take(b"", &mut Vec::new());
        assert_eq!(got, vec![message(Some(0), b"x"), message(None, b"")]);
    }
}
