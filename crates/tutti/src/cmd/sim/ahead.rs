//! Reading ahead: while a trace is simulated, a thread of its own unpacks and reads what comes next.
//!
//! The thread does nothing else, and what it hands on comes in the order of the file, so a
//! simulation is the same as if it read by itself. It begins when the first job is asked for, and
//! is never further ahead than a few batches.

use super::source::Line;
use std::io::BufRead;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::vec;
use tutti_trace::{Reader, Tally, Tolerated, TraceError};

/// So many jobs are handed on together.
const BATCH_JOBS: usize = 512;
/// So many batches may wait to be taken.
const BATCHES_MAX: usize = 4;

/// How a trace ended.
pub(super) struct End {
    /// What keeps its rest from being read, if anything does.
    pub(super) error: Option<TraceError>,
    /// What a lenient reader mended or skipped.
    pub(super) tolerated: Tally<Tolerated>,
}

/// Some jobs in their order, and the end if they are the last.
type Batch = (Vec<Line>, Option<End>);

/// The jobs of a trace, read by another thread.
pub(super) struct Ahead<R: BufRead> {
    /// Until the first job is asked for.
    reader: Option<Reader<R>>,
    batches: Option<Receiver<Batch>>,
    lines: vec::IntoIter<Line>,
    end: Option<End>,
}

impl<R: BufRead + Send + 'static> Ahead<R> {
    pub(super) fn new(reader: Reader<R>) -> Self {
        Self { reader: Some(reader), batches: None, lines: Vec::new().into_iter(), end: None }
    }

    /// The next job; after the last one, once, how the trace ended.
    pub(super) fn next(&mut self) -> Option<Result<Line, End>> {
        if let Some(reader) = self.reader.take() {
            let (sender, batches) = sync_channel(BATCHES_MAX);
            thread::spawn(move || read(reader, &sender));
            self.batches = Some(batches);
        }
        loop {
            if let Some(line) = self.lines.next() {
                return Some(Ok(line));
            }
            if let Some(end) = self.end.take() {
                return Some(Err(end));
            }
            let (lines, end) = self.batches.as_ref()?.recv().ok()?;
            (self.lines, self.end) = (lines.into_iter(), end);
        }
    }
}

/// Reads to the end, or until nobody takes what is read.
fn read<R: BufRead>(mut reader: Reader<R>, batches: &SyncSender<Batch>) {
    loop {
        let mut lines = Vec::with_capacity(BATCH_JOBS);
        let mut end = None;
        while lines.len() < BATCH_JOBS && end.is_none() {
            match reader.next() {
                Some(Ok(record)) => lines.push(Line { record, line: reader.line() }),
                last => {
                    let error = last.and_then(Result::err);
                    end = Some(End { error, tolerated: reader.tolerated().clone() });
                }
            }
        }
        let is_over = end.is_some();
        if batches.send((lines, end)).is_err() || is_over {
            return;
        }
    }
}
