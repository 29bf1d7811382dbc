//! Traces in, through the filter, and out.

#![expect(clippy::unwrap_used, reason = "a test that can't go on fails")]

mod bad_input;
mod files;
mod models;
mod random;
mod rolled;

use tutti_trace::{Job, ReadOptions, Reader, TraceError};

/// Reads a whole text as the file "t".
fn read(text: &[u8], options: ReadOptions) -> Result<Vec<Job>, TraceError> {
    Reader::new("t", text, options)?.collect()
}

/// The message of what is wrong with a text.
fn message(text: &[u8], options: ReadOptions) -> String {
    read(text, options).expect_err("it must be refused").to_string()
}

/// A line of a job: its number, submit time in seconds, run time in seconds, and status.
fn line(number: u64, submit_s: i64, run_s: i64, status: i64) -> String {
    format!("{number} {submit_s} -1 {run_s} 4 -1 -1 4 60 -1 {status} 1 1 -1 -1 -1 -1 -1\n")
}

/// `text` as gzip packs it.
fn gzip(text: &[u8]) -> Vec<u8> {
    use std::io::Write;
    let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    packer.write_all(text).unwrap();
    packer.finish().unwrap()
}
