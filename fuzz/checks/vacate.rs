//! Any bytes as what a process says to the agent of its node before its turn ends.
//!
//! Whatever the pieces that they come in, they are the same lines, up to the first that is none.

use tutti_wire::vacate::{BadLine, FromProcess, Lines};

fn lines_of<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> Vec<Result<FromProcess, BadLine>> {
    let (mut lines, mut found) = (Lines::default(), Vec::new());
    for piece in pieces {
        lines.push(piece);
        while let Some(line) = lines.take() {
            found.push(line);
            if line.is_err() {
                return found;
            }
        }
    }
    found
}

/// See the file.
pub fn vacate(input: &[u8]) {
    let whole = lines_of([input].into_iter());
    assert!(whole.len() <= input.iter().filter(|byte| **byte == b'\n').count() + 1);
    for size in [1, 7, 256] {
        assert_eq!(lines_of(input.chunks(size)), whole, "{size}");
    }
}
