//! Names of output files: a pattern with `%` letters, filled in for a task.
//!
//! `%A` array, `%a` index in it, `%j` job, `%r` or `%t` rank, `%x` name of the job, `%N` node, `%u`
//! user, `%s` step, `%%` a percent sign.
//! Numbers can be padded with zeros: `%4r` is `0007`. They are the letters of `sbatch`, as far as
//! they mean something here.
//!
//! A pattern is its user's own path and may lead anywhere that they may write. What is filled in is
//! not: a job's name such as `../../x` must not lead out of the directory that the pattern names.
//! So it never adds a separator or a `..` to the path.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use tutti_types::{JobId, Rank};

/// The most digits that a number is padded to, as for `sbatch`.
const PADDING_MAX: usize = 10;

/// The longest path that the kernel takes, its final zero byte not counted.
const PATH_BYTES_MAX: usize = 4095;

/// What the letters of a pattern stand for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PatternValues<'a> {
    /// `%j`.
    pub job: JobId,
    /// `%r` and `%t`.
    pub rank: Rank,
    /// `%x`.
    pub name: &'a str,
    /// `%N`.
    pub node: &'a str,
    /// `%u`.
    pub user: &'a str,
    /// `%s`: the number of the step in its job.
    pub step: u32,
}

/// Why a pattern gives no file name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    /// A letter that stands for nothing.
    #[error(
        "'%{letter}' in a file name is unknown; known are %j job, %A array, %a index, %r or %t rank, %x name, \
         %N node, %u user, %s step, %% a percent sign, and numbers padded as in %4r"
    )]
    UnknownLetter {
        /// The letter.
        letter: char,
    },
    /// The pattern ends after a `%` or in its number.
    #[error("a file name ends in '%' without a letter; write %% for a percent sign")]
    NoLetter,
    /// A number before a letter that stands for a text.
    #[error("'%{letter}' in a file name stands for a text, which can't be padded to a length")]
    PaddedText {
        /// The letter.
        letter: char,
    },
    /// A number is to be padded to too many digits.
    #[error("a number in a file name can be padded to at most {PADDING_MAX} digits")]
    PaddingTooLong,
    /// Nothing is left to name a file.
    #[error("a file name is empty")]
    Empty,
    /// There is a zero byte in it, which no file name can have.
    #[error("a file name has a zero byte in it")]
    ZeroByte,
    /// The path is longer than the kernel accepts.
    #[error("a file name is longer than {PATH_BYTES_MAX} bytes")]
    TooLong,
}

/// Fills in a pattern.
///
/// # Errors
/// If the pattern is wrong, or the result can be no file name.
pub fn expand(pattern: &[u8], values: &PatternValues<'_>) -> Result<Vec<u8>, PatternError> {
    let mut path = Vec::with_capacity(pattern.len() + 16);
    for piece in Pieces(pattern) {
        match piece? {
            Piece::Text(text) => path.extend_from_slice(text),
            // Of an element, these are filled in before.
            Piece::Index { digits } => append_number(&mut path, NO_INDEX, digits),
            Piece::Array { digits } | Piece::Job { digits } => {
                append_number(&mut path, values.job.0, digits)
            }
            Piece::Rank { digits } => append_number(&mut path, values.rank.0.into(), digits),
            Piece::Step { digits } => append_number(&mut path, values.step.into(), digits),
            Piece::Name => append_text(&mut path, values.name),
            Piece::Node => append_text(&mut path, values.node),
            Piece::User => append_text(&mut path, values.user),
        }
        if path.len() > PATH_BYTES_MAX {
            return Err(PatternError::TooLong);
        }
    }
    match path {
        path if path.is_empty() => Err(PatternError::Empty),
        path if path.contains(&0) => Err(PatternError::ZeroByte),
        path => Ok(path),
    }
}

/// What `%a` is of a job that is of no array, as for `sbatch`.
const NO_INDEX: u64 = 4_294_967_294;

/// Fills in the number of an array and the index of an element; the rest stays a pattern. A pattern
/// that is wrong stays as it is.
#[must_use]
pub fn fill_in_element(pattern: &[u8], array: JobId, index: u32) -> Vec<u8> {
    let mut filled = Vec::with_capacity(pattern.len() + 8);
    let mut pieces = Pieces(pattern);
    loop {
        let before = pieces.0;
        let Some(piece) = pieces.next() else { return filled };
        match piece {
            Ok(Piece::Array { digits }) => append_number(&mut filled, array.0, digits),
            Ok(Piece::Index { digits }) => append_number(&mut filled, index.into(), digits),
            Ok(
                Piece::Text(_)
                | Piece::Job { .. }
                | Piece::Rank { .. }
                | Piece::Step { .. }
                | Piece::Name
                | Piece::Node
                | Piece::User,
            ) => filled.extend_from_slice(&before[..before.len() - pieces.0.len()]),
            Err(_) => return pattern.to_vec(),
        }
    }
}

/// Whether each element of an array gets a file of its own by this pattern.
#[must_use]
pub fn names_element(pattern: &[u8]) -> bool {
    let is_own = |piece| matches!(piece, Ok(Piece::Index { .. } | Piece::Job { .. }));
    check(pattern).is_ok() && Pieces(pattern).any(is_own)
}

/// Whether a pattern is right in itself, before there is a job to fill it in for.
///
/// # Errors
/// What is wrong with it.
pub fn check(pattern: &[u8]) -> Result<(), PatternError> {
    if pattern.is_empty() {
        return Err(PatternError::Empty);
    }
    if pattern.contains(&0) {
        return Err(PatternError::ZeroByte);
    }
    Pieces(pattern).try_for_each(|piece| piece.map(|_| ()))
}

/// Whether each rank gets a file of its own by this pattern. False for a pattern that is wrong.
#[must_use]
pub fn names_rank(pattern: &[u8]) -> bool {
    check(pattern).is_ok() && Pieces(pattern).any(|piece| matches!(piece, Ok(Piece::Rank { .. })))
}

/// Whether each node gets a file of its own by this pattern. False for a pattern that is wrong.
#[must_use]
pub fn names_node(pattern: &[u8]) -> bool {
    check(pattern).is_ok() && Pieces(pattern).any(|piece| matches!(piece, Ok(Piece::Node)))
}

/// A part of a pattern.
enum Piece<'a> {
    Text(&'a [u8]),
    Job { digits: usize },
    Array { digits: usize },
    Index { digits: usize },
    Rank { digits: usize },
    Step { digits: usize },
    Name,
    Node,
    User,
}

/// The parts of what is left of a pattern.
struct Pieces<'a>(&'a [u8]);

impl<'a> Iterator for Pieces<'a> {
    type Item = Result<Piece<'a>, PatternError>;

    fn next(&mut self) -> Option<Self::Item> {
        let rest = self.0;
        let text_end = rest.iter().position(|byte| *byte == b'%').unwrap_or(rest.len());
        if text_end > 0 {
            let (text, behind) = rest.split_at(text_end);
            self.0 = behind;
            return Some(Ok(Piece::Text(text)));
        }
        let behind = rest.strip_prefix(b"%")?;
        let (piece, behind) = match letter(behind) {
            Ok(found) => found,
            // Nothing can be made of the rest.
            Err(error) => {
                self.0 = &[];
                return Some(Err(error));
            }
        };
        self.0 = behind;
        Some(Ok(piece))
    }
}

/// Reads what follows a `%`.
fn letter(text: &[u8]) -> Result<(Piece<'_>, &[u8]), PatternError> {
    let number_end = text.iter().position(|byte| !byte.is_ascii_digit());
    let (number, rest) = text.split_at(number_end.ok_or(PatternError::NoLetter)?);
    let (&letter, behind) = rest.split_first().ok_or(PatternError::NoLetter)?;
    let digits = number.iter().fold(0usize, |sum, digit| {
        sum.saturating_mul(10).saturating_add(usize::from(digit - b'0'))
    });
    if digits > PADDING_MAX {
        return Err(PatternError::PaddingTooLong);
    }
    let piece = match letter {
        b'j' => Piece::Job { digits },
        b'A' => Piece::Array { digits },
        b'a' => Piece::Index { digits },
        b'r' | b't' => Piece::Rank { digits },
        b's' => Piece::Step { digits },
        b'x' => Piece::Name,
        b'N' => Piece::Node,
        b'u' => Piece::User,
        b'%' => Piece::Text(b"%"),
        _ => return Err(PatternError::UnknownLetter { letter: first_char(rest) }),
    };
    let padded_text =
        !number.is_empty() && !matches!(letter, b'j' | b'r' | b't' | b'A' | b'a' | b's');
    if padded_text {
        return Err(PatternError::PaddedText { letter: char::from(letter) });
    }
    Ok((piece, behind))
}

/// The first character for a message, which may be of several bytes, or none at all.
fn first_char(text: &[u8]) -> char {
    let head = &text[..text.len().min(4)];
    let first = head.utf8_chunks().next().and_then(|chunk| chunk.valid().chars().next());
    match first {
        Some(c) if !c.is_control() => c,
        _ => char::REPLACEMENT_CHARACTER,
    }
}

fn append_number(path: &mut Vec<u8>, number: u64, digits: usize) {
    path.extend_from_slice(format!("{number:0digits$}").as_bytes());
}

/// Appends a text as a part of one component of the path.
fn append_text(path: &mut Vec<u8>, text: &str) {
    let safe: String = match text {
        "." => "_".into(),
        ".." => "__".into(),
        _ => text.chars().map(|c| if c == '/' || c == '\0' { '_' } else { c }).collect(),
    };
    path.extend_from_slice(safe.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const VALUES: PatternValues<'_> = PatternValues {
        job: JobId(12),
        rank: Rank(7),
        name: "solver",
        node: "n1",
        user: "ann",
        step: 3,
    };

    fn expanded(pattern: &str) -> String {
        String::from_utf8(expand(pattern.as_bytes(), &VALUES).unwrap()).unwrap()
    }

    #[test]
    fn letters_are_filled_in() {
        for (pattern, path) in [
            ("out", "out"),
            ("out-%j-%r", "out-12-7"),
            ("%t", "7"),
            ("%4r.%6j", "0007.000012"),
            ("%0r", "7"),
            ("%j.%s-%2s", "12.3-03"),
            ("/data/%u/%x@%N", "/data/ann/solver@n1"),
            ("100%%", "100%"),
            ("%%r", "%r"),
            ("../%j", "../12"),
        ] {
            assert_eq!(expanded(pattern), path);
        }
        let bytes = expand(b"\xff%r", &VALUES).unwrap();
        assert_eq!(bytes, b"\xff7", "a file name need not be UTF-8");
    }

    #[test]
    fn wrong_patterns_say_what_is_known() {
        for (pattern, error) in [
            ("%b", PatternError::UnknownLetter { letter: 'b' }),
            ("%\u{e9}", PatternError::UnknownLetter { letter: '\u{e9}' }),
            ("%\n", PatternError::UnknownLetter { letter: char::REPLACEMENT_CHARACTER }),
            ("out%", PatternError::NoLetter),
            ("out%4", PatternError::NoLetter),
            ("%4x", PatternError::PaddedText { letter: 'x' }),
            ("%4%", PatternError::PaddedText { letter: '%' }),
            ("%11r", PatternError::PaddingTooLong),
            ("%99999999999999999999999r", PatternError::PaddingTooLong),
            ("", PatternError::Empty),
            ("a\0b", PatternError::ZeroByte),
        ] {
            assert_eq!(expand(pattern.as_bytes(), &VALUES), Err(error.clone()), "{pattern}");
            assert_eq!(check(pattern.as_bytes()), Err(error), "{pattern}");
        }
        let message = check(b"%b").unwrap_err().to_string();
        assert!(message.contains("'%b'") && message.contains("%N node"), "{message}");
    }

    #[test]
    fn the_letters_of_an_element_are_filled_in_first() {
        let filled = |pattern: &str| fill_in_element(pattern.as_bytes(), JobId(7), 3);
        assert_eq!(filled("%A_%a.%j-%4r%%a"), b"7_3.%j-%4r%%a");
        assert_eq!(filled("%4a/%x"), b"0003/%x");
        assert_eq!(filled("%a%"), b"%a%", "a wrong pattern stays");
        assert_eq!(expanded("%A_%a"), "12_4294967294", "of a single job, as for sbatch");
        assert!(names_element(b"%A_%a") && names_element(b"%j") && !names_element(b"%A"));
    }

    #[test]
    fn a_name_leads_nowhere() {
        for name in ["../../etc/passwd", "..", ".", "/etc", "a\0b", "a/../b"] {
            let path = expand(b"dir/%x", &PatternValues { name, ..VALUES }).unwrap();
            let path = String::from_utf8(path).unwrap();
            let component = path.strip_prefix("dir/").unwrap();
            assert!(!component.contains('/') && component != ".." && component != ".", "{path}");
        }
        let long = "x".repeat(5_000);
        let values = PatternValues { name: &long, ..VALUES };
        assert_eq!(expand(b"%x", &values), Err(PatternError::TooLong));
    }

    #[test]
    fn a_file_of_its_own() {
        for (pattern, own) in [
            ("a-%r", true),
            ("a-%3t", true),
            ("a", false),
            ("%%r", false),
            ("%j", false),
            ("%r%", false),
        ] {
            assert_eq!(names_rank(pattern.as_bytes()), own, "{pattern}");
        }
    }

    proptest! {
        #[test]
        fn any_pattern_expands_or_fails(
            pattern in proptest::collection::vec(any::<u8>(), 0..40),
            near in "[%0-9jrtxNus/.]{0,20}",
            name in "\\PC{0,20}",
        ) {
            let values = PatternValues { name: &name, ..VALUES };
            for pattern in [pattern.as_slice(), near.as_bytes()] {
                let _ = names_rank(pattern);
                if expand(pattern, &values).is_ok() {
                    prop_assert_eq!(check(pattern), Ok(()));
                }
            }
        }
    }
}
