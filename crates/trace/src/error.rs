//! What can be wrong with a trace. Every message names file and line, and says what to do.

use crate::job::{FIELDS, Field};
use crate::limits::{HEADER_BYTES_MAX, LINE_BYTES_MAX, SHOWN_BYTES_MAX};
use std::fmt;
use std::io;

/// Why a trace can't be read, or not any further.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// The file can't be opened.
    #[error("cannot open {file}")]
    Open {
        /// Its name.
        file: String,
        /// What the system answered.
        source: io::Error,
    },
    /// The file can't be read any further.
    #[error("cannot read {file} beyond line {line}")]
    Read {
        /// Its name.
        file: String,
        /// The last line that was read whole; 0 if none was.
        line: u64,
        /// What the system answered.
        source: io::Error,
    },
    /// The compressed file ends before its text does.
    #[error("{file} is cut off: its gzip data end after line {line}; get the whole file again")]
    CutOff {
        /// Its name.
        file: String,
        /// The last line that was read whole; 0 if none was.
        line: u64,
    },
    /// The compressed file is not what was packed.
    #[error("{file} is damaged: its gzip data are wrong after line {line}; get the file again")]
    Damaged {
        /// Its name.
        file: String,
        /// The last line that was read whole; 0 if none was.
        line: u64,
        /// What is wrong.
        source: io::Error,
    },
    /// The file is packed in another way than gzip.
    #[error("{file} is packed with {packer}, and only gzip is read; unpack it first: {command}")]
    OtherPacker {
        /// Its name.
        file: String,
        /// What packed it.
        packer: &'static str,
        /// What unpacks it.
        command: &'static str,
    },
    /// The comments before the first job are too long.
    #[error(
        "{file}: more than {HEADER_BYTES_MAX} bytes of comments before the first job; this seems to \
         be no trace, or take some of them out"
    )]
    HeaderTooLong {
        /// Its name.
        file: String,
    },
    /// A line is wrong.
    #[error("{file}, line {line}: {problem}; correct the line, or read the file leniently")]
    Line {
        /// The file's name.
        file: String,
        /// The line, counted from 1.
        line: u64,
        /// What is wrong with it.
        problem: LineProblem,
    },
    /// A job comes before the one above it.
    #[error(
        "{file}, line {line}: submitted at {submit_s} s, before the job above ({before_s} s); sort \
         the file by field 2, or have it read sorted"
    )]
    OutOfOrder {
        /// The file's name.
        file: String,
        /// The line, counted from 1.
        line: u64,
        /// When the job was submitted, in whole seconds.
        submit_s: u64,
        /// When the job before it was, in whole seconds.
        before_s: u64,
    },
}

/// What is wrong with one line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LineProblem {
    /// It is too long to be one.
    #[error("longer than {LINE_BYTES_MAX} bytes; a job is a line of {FIELDS} numbers")]
    TooLong,
    /// It does not have 18 fields.
    #[error("{found} fields instead of {FIELDS} (a field that is not known is -1)")]
    Fields {
        /// How many it has.
        found: usize,
    },
    /// A field is no number.
    #[error("{field} is '{text}', not a number such as 12 or 12.5")]
    NotANumber {
        /// The field.
        field: Field,
        /// What stands there.
        text: String,
    },
    /// A field that counts something has a fraction.
    #[error("{field} is '{text}', but must be a whole number")]
    NotWhole {
        /// The field.
        field: Field,
        /// What stands there.
        text: String,
    },
    /// A field is negative, and not the -1 that stands for "not known".
    #[error("{field} is '{text}'; the only negative number is -1, for not known")]
    Negative {
        /// The field.
        field: Field,
        /// What stands there.
        text: String,
    },
    /// A number is more than can be counted.
    #[error("{field} is '{text}', which is too much")]
    TooLarge {
        /// The field.
        field: Field,
        /// What stands there.
        text: String,
    },
    /// The job has no number.
    #[error("the job has no number (field 1 is -1)")]
    NoNumber,
    /// Field 11 has a number without a meaning.
    #[error("field 11 (status) is '{text}', but must be 0 to 5, or -1")]
    UnknownStatus {
        /// What stands there.
        text: String,
    },
    /// The line has the same job number as the one above, and is no burst.
    #[error("job {number} again (only bursts, with status 2, 3 or 4, repeat the number)")]
    Repeated {
        /// The job's number.
        number: u64,
    },
    /// A burst of a rolled job does not follow the job's own line.
    #[error(
        "a burst of job {number} without the line that sums the job up (a reader of bursts can \
         take it)"
    )]
    BurstAlone {
        /// The job's number.
        number: u64,
    },
}

/// What a lenient reader met and passed over, for the counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Tolerated {
    /// Skipped: the line is too long.
    TooLong,
    /// Skipped: fewer than 18 fields.
    TooFewFields,
    /// Skipped: a field is no number.
    NotANumber,
    /// Skipped: a number that is too large.
    TooLarge,
    /// Skipped: a job without a number.
    NoNumber,
    /// Skipped: a burst that does not follow its job's own line.
    BurstAlone,
    /// Kept: fields beyond the 18th were ignored.
    TooManyFields,
    /// Kept: a fraction was cut off where only whole numbers make sense.
    NotWhole,
    /// Kept: a negative number was read as not known.
    Negative,
    /// Kept: a status without a meaning was read as not known.
    UnknownStatus,
    /// Kept: two jobs, one after the other, with the same number.
    Repeated,
    /// Kept, in its place: a job that was submitted before the one above it.
    OutOfOrder,
}

impl Tolerated {
    /// Whether the line was skipped; otherwise it was kept, corrected as the variant tells.
    #[must_use]
    pub fn is_skipped(self) -> bool {
        use Tolerated::*;
        match self {
            TooLong | TooFewFields | NotANumber | TooLarge | NoNumber | BurstAlone => true,
            TooManyFields | NotWhole | Negative | UnknownStatus | Repeated | OutOfOrder => false,
        }
    }
}

impl fmt::Display for Tolerated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Tolerated::TooLong => "line too long, skipped",
            Tolerated::TooFewFields => "fewer than 18 fields, skipped",
            Tolerated::NotANumber => "a field is no number, skipped",
            Tolerated::TooLarge => "a number is too large, skipped",
            Tolerated::NoNumber => "no job number, skipped",
            Tolerated::BurstAlone => "burst without its job, skipped",
            Tolerated::TooManyFields => "more than 18 fields, the rest ignored",
            Tolerated::NotWhole => "fraction of a count, cut off",
            Tolerated::Negative => "negative number, read as not known",
            Tolerated::UnknownStatus => "unknown status, read as not known",
            Tolerated::Repeated => "job number repeated, kept",
            Tolerated::OutOfOrder => "submitted before the job above, kept in place",
        })
    }
}

impl LineProblem {
    /// As what a lenient reader counts it.
    pub(crate) fn tolerated(&self) -> Tolerated {
        match self {
            LineProblem::TooLong => Tolerated::TooLong,
            LineProblem::Fields { found } if *found > FIELDS => Tolerated::TooManyFields,
            LineProblem::Fields { .. } => Tolerated::TooFewFields,
            LineProblem::NotANumber { .. } => Tolerated::NotANumber,
            LineProblem::NotWhole { .. } => Tolerated::NotWhole,
            LineProblem::Negative { .. } => Tolerated::Negative,
            LineProblem::TooLarge { .. } => Tolerated::TooLarge,
            LineProblem::NoNumber => Tolerated::NoNumber,
            LineProblem::UnknownStatus { .. } => Tolerated::UnknownStatus,
            LineProblem::Repeated { .. } => Tolerated::Repeated,
            LineProblem::BurstAlone { .. } => Tolerated::BurstAlone,
        }
    }
}

/// A word of a file as an error may show it: printable, and not endless.
pub(crate) fn shown(word: &[u8]) -> String {
    let cut = &word[..word.len().min(SHOWN_BYTES_MAX)];
    let mut text = cut.escape_ascii().to_string();
    if cut.len() < word.len() {
        text.push_str("...");
    }
    text
}
