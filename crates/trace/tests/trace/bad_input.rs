//! Errors are reported with file, line and field, and cost neither memory nor a panic.

use crate::{gzip, line, message, read};
use std::io::{self, BufReader, Read};
use tutti_trace::{Order, ReadOptions, Reader, Tolerance, Tolerated, TraceError, limits, open};

const STRICT: ReadOptions = ReadOptions {
    tolerance: Tolerance::Strict,
    rolled: tutti_trace::RolledJobs::Summary,
    order: Order::AsFiled,
};
const LENIENT: ReadOptions = ReadOptions { tolerance: Tolerance::Lenient, ..STRICT };

/// The same byte, again and again, with the count of how many were taken.
struct Endless {
    byte: u8,
    left: u64,
}

impl Read for Endless {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = u64::min(buffer.len() as u64, self.left);
        self.left -= count;
        let count = usize::try_from(count).unwrap();
        buffer[..count].fill(self.byte);
        Ok(count)
    }
}

#[test]
fn a_wrong_line_is_named() {
    let text = ["; MaxProcs: 4\n", &line(1, 0, 5, 1), "2 x\n"].concat();
    assert_eq!(
        message(text.as_bytes(), STRICT),
        "t, line 3: 2 fields instead of 18 (a field that is not known is -1); correct the line, or \
         read the file leniently"
    );
    let mut reader = Reader::new("t", text.as_bytes(), STRICT).unwrap();
    assert!(reader.next().unwrap().is_ok());
    assert_eq!(reader.line(), 2);
    assert!(reader.next().unwrap().is_err());
    assert!(reader.next().is_none(), "nothing follows an error");
}

#[test]
fn a_lenient_reader_counts_what_it_skips() {
    let long = "1 ".repeat(limits::LINE_BYTES_MAX);
    let text = [&line(1, 0, 5, 1), "2 x\n", &long, "\n", &line(3, 9, 5, 1), &line(4, 8, 5, 1)];
    let text = text.concat();
    let mut reader = Reader::new("t", text.as_bytes(), LENIENT).unwrap();
    let numbers: Vec<u64> = reader.by_ref().map(|job| job.unwrap().number).collect();
    assert_eq!(numbers, [1, 3, 4]);
    let expected =
        [(Tolerated::TooLong, 1), (Tolerated::TooFewFields, 1), (Tolerated::OutOfOrder, 1)];
    assert_eq!(reader.tolerated().iter().collect::<Vec<_>>(), expected);
}

#[test]
fn jobs_out_of_order() {
    let text = [line(1, 0, 5, 1), line(2, 99, 5, 1), line(3, 77, 5, 1)].concat();
    assert_eq!(
        message(text.as_bytes(), STRICT),
        "t, line 3: submitted at 77 s, before the job above (99 s); sort the file by field 2, or \
         have it read sorted"
    );
    let sorted = read(text.as_bytes(), ReadOptions { order: Order::Sorted, ..STRICT }).unwrap();
    assert_eq!(sorted.iter().map(|job| job.number).collect::<Vec<_>>(), [1, 3, 2]);
}

#[test]
fn an_endless_line_is_refused_after_its_first_bytes() {
    for byte in [b'1', 0, b';'] {
        let mut endless = Endless { byte, left: 2 << 30 };
        let error = Reader::new("t", BufReader::new(&mut endless), STRICT)
            .and_then(|mut reader| reader.next().unwrap())
            .unwrap_err();
        let expected = if byte == b';' { "bytes of comments" } else { "t, line 1: longer than" };
        assert!(error.to_string().contains(expected), "{error}");
        assert!(endless.left > 1 << 30, "it was read on");
    }
}

#[test]
fn endless_comments_are_refused() {
    let text = "; nothing\n".repeat(limits::HEADER_BYTES_MAX / 10 + 1);
    let error = Reader::new("t", text.as_bytes(), LENIENT).map(|_| ()).unwrap_err();
    assert!(matches!(error, TraceError::HeaderTooLong { .. }), "{error}");
}

#[test]
fn a_gzip_file_that_is_cut_off_or_damaged() {
    let text: String = (0..2_000).map(|number| line(number, 7, 5, 1)).collect();
    let packed = gzip(text.as_bytes());
    let cut = message(&packed[..packed.len() / 2], STRICT);
    let lines: u64 =
        cut.split("after line ").nth(1).unwrap().split(';').next().unwrap().parse().unwrap();
    assert!((100..1_999).contains(&lines), "{cut}");
    assert_eq!(
        cut,
        format!("t is cut off: its gzip data end after line {lines}; get the whole file again")
    );
    let mut damaged = packed;
    let end = damaged.len() - 6;
    damaged[end] ^= 1;
    assert_eq!(
        message(&damaged, LENIENT),
        "t is damaged: its gzip data are wrong after line 2000; get the file again"
    );
}

#[test]
fn files_that_are_none() {
    assert_eq!(
        message(b"BZh91AY", STRICT),
        "t is packed with bzip2, and only gzip is read; unpack it first: bzip2 -dk"
    );
    let error = open("/nonexistent/log.swf".as_ref(), STRICT).map(|_| ()).unwrap_err();
    assert_eq!(error.to_string(), "cannot open /nonexistent/log.swf");
    let error = open("/".as_ref(), STRICT).map(|_| ()).unwrap_err();
    assert_eq!(error.to_string(), "cannot read / beyond line 0");
}
