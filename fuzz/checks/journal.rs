//! Any bytes as a journal's records.
//!
//! They are read one by one as everything that is stored, and together as a journal that was left
//! so by a disk: that opens without what is not whole, or says that it is damaged.

use postcard::{from_bytes, to_allocvec};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt::Debug;
use std::path::Path;
use tutti_core::Core;
use tutti_journal::{
    Append, EndedJob, EndedSize, EndedSpan, Entry, Job, Journal, JournalError, Keeper, Loaded,
    Number, Published, Row, Store, Sync, Used, cut, join,
};
use tutti_types::{JobId, Params, default_classes};
use tutti_wire::event::Event;

/// See the file. Records are their length in two bytes, their seal in four, and themselves.
pub fn journal(input: &[u8]) {
    let mut rows = Vec::new();
    let mut rest = input;
    while let Some((head, tail)) = rest.split_at_checked(6) {
        let length = usize::from(u16::from_le_bytes([head[0], head[1]])).min(tail.len());
        let seal = u32::from_le_bytes([head[2], head[3], head[4], head[5]]);
        let (body, tail) = tail.split_at(length);
        again::<Entry>(body);
        again::<Job>(body);
        again::<Keeper>(body);
        again::<EndedJob>(body);
        again::<Event>(body);
        let _ = from_bytes::<Core>(body);
        if let Ok(launch) = join([body]) {
            let pieces = cut(&launch);
            let again = join(pieces.iter().map(|piece| &piece.bytes[..]));
            assert_eq!(again.expect("it was just cut"), launch);
        }
        rows.push(Row { number: rows.len() as Number + 1, body: body.to_vec(), seal });
        rest = tail;
    }
    let blank = || Core::new(Params::default(), default_classes());
    let store = Torn(Loaded { rows, ..Loaded::default() });
    let opened = Journal::with(Box::new(store), Path::new("torn"), blank);
    assert!(!matches!(opened, Err(JournalError::Storage { .. })));
}

/// What can be read is written, and then reads the same.
fn again<T: Serialize + DeserializeOwned + PartialEq + Debug>(body: &[u8]) {
    if let Ok(value) = from_bytes::<T>(body) {
        let written = to_allocvec(&value).expect("it was read");
        assert_eq!(from_bytes::<T>(&written).expect("it was just written"), value);
    }
}

/// A store that has what the disk left, and takes nothing.
struct Torn(Loaded);

struct Nowhere;

impl Sync for Nowhere {
    fn sync(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Store for Torn {
    fn load(&mut self) -> Result<Loaded, JournalError> {
        Ok(self.0.clone())
    }

    fn load_all(&mut self) -> Result<Loaded, JournalError> {
        self.load()
    }

    fn append(&mut self, _: &Append) -> Result<(), JournalError> {
        Ok(())
    }

    fn cut_back(&mut self, from: Number) -> Result<(), JournalError> {
        self.0.rows.retain(|row| row.number < from);
        Ok(())
    }

    fn forget_ended(&mut self, _: u64, _: u64) -> Result<EndedSize, JournalError> {
        Ok(EndedSize::default())
    }

    fn ended_size(&mut self) -> Result<EndedSize, JournalError> {
        Ok(EndedSize::default())
    }

    fn ended(&mut self, _: &EndedSpan, _: usize) -> Result<Vec<Vec<u8>>, JournalError> {
        Ok(Vec::new())
    }

    fn ended_job(&mut self, _: JobId) -> Result<Option<Vec<u8>>, JournalError> {
        Ok(None)
    }

    fn published_size(&mut self) -> Result<(Number, u64, u64), JournalError> {
        Ok((0, 0, 0))
    }

    fn published_lengths(&mut self, _: u64) -> Result<Vec<u64>, JournalError> {
        Ok(Vec::new())
    }

    fn published_first(&mut self) -> Result<Option<Number>, JournalError> {
        Ok(None)
    }

    fn published(&mut self, _: Number, _: usize) -> Result<Vec<Published>, JournalError> {
        Ok(Vec::new())
    }

    fn used(&mut self, _: u64, _: u64, _: usize) -> Result<Vec<Used>, JournalError> {
        Ok(Vec::new())
    }

    fn forget_used(&mut self, _: u64, _: u64) -> Result<(), JournalError> {
        Ok(())
    }

    fn syncer(&mut self) -> Result<Box<dyn Sync>, JournalError> {
        Ok(Box::new(Nowhere))
    }
}
