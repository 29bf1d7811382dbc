//! Output files as JSON: an object for each line, in a line of its own.

use std::collections::BTreeMap;
use std::io::{self, Write};
use tutti_client::output::OutputLine;

/// A line that is longer becomes several.
const LINE_BYTES_MAX: usize = 1 << 20;

/// The line of each file that was begun: its end was not read yet.
#[derive(Default)]
pub(super) struct Lines(BTreeMap<usize, Vec<u8>>);

impl Lines {
    /// Prints the whole lines of the next piece of a file.
    pub(super) fn print(
        &mut self,
        out: &mut impl Write,
        (file, of): (usize, &OutputLine),
        piece: &[u8],
    ) -> io::Result<()> {
        let begun = self.0.entry(file).or_default();
        begun.extend_from_slice(piece);
        let end = match begun.iter().rposition(|&byte| byte == b'\n') {
            Some(newline) => newline + 1,
            None if begun.len() >= LINE_BYTES_MAX => begun.len(),
            None => return Ok(()),
        };
        let rest = begun.split_off(end);
        let whole = std::mem::replace(begun, rest);
        whole
            .split_inclusive(|&byte| byte == b'\n')
            .try_for_each(|line| out.write_all(of.with(line).as_bytes()))
    }

    /// Prints the last line of a file, though its end has not come.
    pub(super) fn end(
        &mut self,
        out: &mut impl Write,
        (file, of): (usize, &OutputLine),
    ) -> io::Result<()> {
        match self.0.remove(&file) {
            Some(begun) if !begun.is_empty() => out.write_all(of.with(&begun).as_bytes()),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tutti_types::{JobId, Rank};

    #[test]
    fn lines_of_pieces_are_whole_and_the_last_one_needs_no_end() {
        let of = OutputLine::of(JobId(7), Rank(0), false).of_ranks(2);
        let (mut lines, mut out) = (Lines::default(), Vec::new());
        for piece in ["one\ntw", "o", "\n\nthr"] {
            lines.print(&mut out, (0, &of), piece.as_bytes()).unwrap();
        }
        lines.print(&mut out, (1, &of), b"other\n").unwrap();
        lines.end(&mut out, (0, &of)).unwrap();
        lines.end(&mut out, (0, &of)).unwrap();
        let wanted: String = ["one", "two", "", "other", "thr"]
            .iter()
            .map(|line| of.with(line.as_bytes()))
            .collect();
        assert_eq!(String::from_utf8(out).unwrap(), wanted);
    }

    #[test]
    fn a_line_without_an_end_takes_no_more_memory_than_it_may() {
        let of = OutputLine::of(JobId(7), Rank(0), false);
        let (mut lines, mut out) = (Lines::default(), Vec::new());
        for _ in 0..3 {
            lines.print(&mut out, (0, &of), &vec![b'x'; LINE_BYTES_MAX - 1]).unwrap();
            assert!(lines.0[&0].len() < 2 * LINE_BYTES_MAX);
        }
        assert!(out.len() > LINE_BYTES_MAX);
    }
}
