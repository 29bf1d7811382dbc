//! What the user types, on its way to the tasks.

use serde_bytes::ByteBuf;
use tutti_core::Rank;
use tutti_wire::attach::FromFrontEnd;
use tutti_wire::launch::InputTo;

/// What `--input` accepts.
///
/// # Errors
/// If it is none of these.
pub(crate) fn parse_input(text: &str) -> Result<InputTo, String> {
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
}

impl Input {
    pub(super) fn new(to: InputTo, size: u32) -> Self {
        Self { to, size, partial: Vec::new(), line: 0 }
    }

    /// Whether anybody wants input.
    pub(super) fn wanted(&self) -> bool {
        self.to != InputTo::Nobody
    }

    /// What a piece of input means; empty is its end. Complaints go to `wrong`.
    pub(super) fn take(&mut self, data: &[u8], wrong: &mut Vec<String>) -> Vec<FromFrontEnd> {
        match self.to {
            InputTo::Nobody => Vec::new(),
            InputTo::All => vec![message(None, data)],
            InputTo::Rank(rank) => vec![message(Some(rank), data)],
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
            messages.extend(self.tagged_line(&self.partial[begin..end], wrong));
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

    fn tagged_line(&self, line: &[u8], wrong: &mut Vec<String>) -> Option<FromFrontEnd> {
        let parsed = memchr::memchr(b':', line).and_then(|colon| {
            let rank: u32 = std::str::from_utf8(&line[..colon]).ok()?.trim().parse().ok()?;
            let text = &line[colon + 1..];
            (rank < self.size).then(|| message(Some(rank), text.strip_prefix(b" ").unwrap_or(text)))
        });
        if parsed.is_none() {
            wrong.push(format!(
                "line {} of the input names no rank; write RANK: TEXT with a rank below {}",
                self.line, self.size
            ));
        }
        parsed
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
    fn the_last_line_needs_no_end() {
        let mut input = Input::new(InputTo::Tagged, 1);
        input.take(b"0: x", &mut Vec::new());
        let got = input.take(b"", &mut Vec::new());
        assert_eq!(got, vec![message(Some(0), b"x"), message(None, b"")]);
    }
}
