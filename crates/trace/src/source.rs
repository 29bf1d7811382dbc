//! Where the text of a trace comes from: plain or gzip, told apart by the first bytes, and cut into
//! lines of bounded length.

use crate::error::TraceError;
use crate::limits::LINE_BYTES_MAX;
use flate2::bufread::MultiGzDecoder;
use std::io::{self, BufRead, BufReader, Chain, Cursor, ErrorKind, Read};

/// The bytes that were looked at, and the rest.
type Whole<R> = Chain<Cursor<Vec<u8>>, R>;

/// A plain or unpacked text.
enum Text<R: BufRead> {
    Plain(Whole<R>),
    Gzip(Box<BufReader<MultiGzDecoder<Whole<R>>>>),
}

/// Lines of a text, one at a time, in a buffer that is used again.
pub(crate) struct Lines<R: BufRead> {
    file: String,
    text: Text<R>,
    line: Vec<u8>,
    is_too_long: bool,
    number: u64,
    /// The line was given back, and comes next again.
    is_held: bool,
}

/// Unpacked text is handed on in pieces of this size.
const UNPACKED_BYTES: usize = 64 << 10;

/// What packers other than gzip begin their files with, and how to unpack those.
const OTHER_PACKERS: [(&[u8], &str, &str); 5] = [
    (b"\xfd7zXZ\0", "xz", "xz -dk"),
    (b"BZh", "bzip2", "bzip2 -dk"),
    (b"\x28\xb5\x2f\xfd", "zstd", "zstd -dk"),
    (b"PK\x03\x04", "zip", "unzip"),
    (b"\x1f\x9d", "compress", "uncompress -k"),
];
const GZIP: &[u8] = b"\x1f\x8b";
const PACKER_BYTES_MAX: u64 = 6;
/// Some editors put it before the text.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

impl<R: BufRead> Lines<R> {
    /// Begins at the first line. `file` is the name for messages.
    pub(crate) fn new(file: &str, mut input: R) -> Result<Self, TraceError> {
        let file = file.to_owned();
        let mut first = Vec::new();
        if let Err(source) = input.by_ref().take(PACKER_BYTES_MAX).read_to_end(&mut first) {
            return Err(TraceError::Read { file, line: 0, source });
        }
        for (begin, packer, command) in OTHER_PACKERS {
            if first.starts_with(begin) {
                return Err(TraceError::OtherPacker { file, packer, command });
            }
        }
        let is_gzip = first.starts_with(GZIP);
        let whole = Cursor::new(first).chain(input);
        let text = if is_gzip {
            let unpacked = MultiGzDecoder::new(whole);
            Text::Gzip(Box::new(BufReader::with_capacity(UNPACKED_BYTES, unpacked)))
        } else {
            Text::Plain(whole)
        };
        Ok(Lines { file, text, line: Vec::new(), is_too_long: false, number: 0, is_held: false })
    }

    /// Goes to the next line; false at the end of the text.
    pub(crate) fn advance(&mut self) -> Result<bool, TraceError> {
        if std::mem::take(&mut self.is_held) {
            return Ok(true);
        }
        let (line, is_too_long) = (&mut self.line, &mut self.is_too_long);
        let read = match &mut self.text {
            Text::Plain(text) => next_line(text, line, is_too_long),
            Text::Gzip(text) => next_line(text, line, is_too_long),
        };
        let is_line = read.map_err(|source| self.read_error(source))?;
        if is_line {
            self.number += 1;
            if self.number == 1 && self.line.starts_with(BYTE_ORDER_MARK) {
                self.line.drain(..BYTE_ORDER_MARK.len());
            }
        }
        Ok(is_line)
    }

    /// Gives the line back: the next `advance` stays at it.
    pub(crate) fn hold(&mut self) {
        self.is_held = true;
    }

    /// The line, without its end; the beginning of it if it is too long.
    pub(crate) fn line(&self) -> &[u8] {
        &self.line
    }

    /// Whether the line has more than [`LINE_BYTES_MAX`] bytes.
    pub(crate) fn is_too_long(&self) -> bool {
        self.is_too_long
    }

    /// The line's number, counted from 1.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// The file's name.
    pub(crate) fn file(&self) -> &str {
        &self.file
    }

    fn read_error(&self, source: io::Error) -> TraceError {
        let (file, line) = (self.file.clone(), self.number);
        match (&self.text, source.kind()) {
            (Text::Gzip(_), ErrorKind::UnexpectedEof) => TraceError::CutOff { file, line },
            (Text::Gzip(_), ErrorKind::InvalidInput | ErrorKind::InvalidData) => {
                TraceError::Damaged { file, line, source }
            }
            _ => TraceError::Read { file, line, source },
        }
    }
}

/// Reads the next line to `line`; false at the end of the text. What is beyond
/// [`LINE_BYTES_MAX`] is left for the next call to skip: after an error it is not read.
fn next_line(
    text: &mut impl BufRead,
    line: &mut Vec<u8>,
    is_too_long: &mut bool,
) -> io::Result<bool> {
    if std::mem::take(is_too_long) {
        read_to_line_end(text, |_| true)?;
    }
    line.clear();
    read_to_line_end(text, |piece| {
        let kept = piece.len().min(LINE_BYTES_MAX - line.len());
        line.extend_from_slice(&piece[..kept]);
        *is_too_long = kept < piece.len();
        !*is_too_long
    })
}

/// Hands on a line in pieces, without its end, for as long as `take` wants more; false if the text
/// is at its end.
fn read_to_line_end(
    text: &mut impl BufRead,
    mut take: impl FnMut(&[u8]) -> bool,
) -> io::Result<bool> {
    let mut is_begun = false;
    loop {
        let available = match text.fill_buf() {
            Ok(available) => available,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        if available.is_empty() {
            return Ok(is_begun);
        }
        is_begun = true;
        let end = memchr::memchr(b'\n', available);
        let piece = &available[..end.unwrap_or(available.len())];
        if !take(piece) {
            return Ok(true);
        }
        let used = piece.len() + usize::from(end.is_some());
        text.consume(used);
        if end.is_some() {
            return Ok(true);
        }
    }
}
