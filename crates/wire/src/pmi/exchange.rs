//! What the nodes of a job tell each other at a barrier: the values that their tasks have stored
//! before it.
//!
//! It travels in parts of moderate length, each complete in itself, numbered from 0 in each
//! direction and for each sender. A receiver that misses one drops the rest and gets all of them
//! again. A node that sends for several nodes may send fewer and longer sequences: the values of
//! all of them are one set.

use super::Barrier;
use crate::limits::EXCHANGE_PART_BYTES;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Deref;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_bytes::ByteBuf;
use tutti_types::LaunchId;

/// A part of what nodes have stored before a barrier; or of the answer, which has that of all of
/// them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exchange {
    /// Of which job, and which launch of it.
    pub launch: LaunchId,
    /// Which barrier.
    pub barrier: Barrier,
    /// Its place among the parts, from 0.
    pub number: u32,
    /// Whether it is the last one.
    pub is_last: bool,
    /// What the values of all its parts take, as [`Values::bytes`] counts: known before all have
    /// come.
    pub bytes: usize,
    /// Keys and values.
    pub values: Values,
}

impl Exchange {
    /// A part of a sequence: that at this place, of all parts and what they take. A sequence
    /// without values has a single, empty part.
    #[must_use]
    pub fn of_parts(
        launch: LaunchId,
        barrier: &Barrier,
        (parts, bytes): (&[Values], usize),
        place: usize,
    ) -> Self {
        Self {
            launch,
            barrier: barrier.clone(),
            number: u32::try_from(place).unwrap_or(u32::MAX),
            is_last: place + 1 >= parts.len(),
            bytes,
            values: parts.get(place).cloned().unwrap_or_default(),
        }
    }
}

/// Keys with their values. To copy it costs nothing: inner agents and the controller pass the same
/// one on to many.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Values(Arc<Vec<(ByteBuf, ByteBuf)>>);

impl Values {
    /// What they take, about, as everywhere where they are counted.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.0.iter().map(|(key, value)| super::server::entry_bytes(key, value)).sum()
    }
}

impl From<Vec<(ByteBuf, ByteBuf)>> for Values {
    fn from(values: Vec<(ByteBuf, ByteBuf)>) -> Self {
        Self(Arc::new(values))
    }
}

impl Deref for Values {
    type Target = [(ByteBuf, ByteBuf)];

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl Serialize for Values {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.as_slice().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Values {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Vec::deserialize(deserializer).map(Self::from)
    }
}

/// The same values in as few parts as their length allows.
#[must_use]
pub fn packed(parts: Vec<Values>) -> Vec<Values> {
    let mut packed: Vec<Values> = Vec::new();
    let mut has = usize::MAX;
    for part in parts.into_iter().filter(|part| !part.is_empty()) {
        let bytes = part.bytes();
        match packed.last_mut() {
            Some(last) if has.saturating_add(bytes) <= EXCHANGE_PART_BYTES => {
                has += bytes;
                Arc::make_mut(&mut last.0).extend_from_slice(&part);
            }
            _ => {
                has = bytes;
                packed.push(part);
            }
        }
    }
    packed
}

/// The parts of one sender, as they come.
#[derive(Clone, Debug, Default)]
pub struct Collected {
    parts: Vec<Values>,
    /// The number of the next one.
    expected: u32,
    is_whole: bool,
    bytes: usize,
    announced: usize,
}

impl Collected {
    /// Takes in a part. One that does not follow the one before is dropped; the first one begins
    /// anew.
    pub fn take_in(&mut self, part: Exchange) {
        if self.is_whole {
            return;
        }
        if part.number == 0 {
            *self = Self { announced: part.bytes, ..Self::default() };
        }
        if part.number == self.expected {
            self.expected = self.expected.saturating_add(1);
            self.bytes += part.values.bytes();
            self.is_whole = part.is_last;
            self.parts.push(part.values);
        }
    }

    /// Whether all parts have come.
    #[must_use]
    pub const fn is_whole(&self) -> bool {
        self.is_whole
    }

    /// What they take together: what has come, or what is announced if that is more.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes.max(self.announced)
    }

    /// The values.
    #[must_use]
    pub fn into_parts(self) -> Vec<Values> {
        self.parts
    }
}
