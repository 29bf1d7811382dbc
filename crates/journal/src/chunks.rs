//! Job launches in the journal: content-addressed chunks, of which equal ones are stored once.
//!
//! Most jobs of a user have the same environment, but for a variable or two, and often the same
//! script. So a launch is cut into chunks, and a job's row has references to them. Where a chunk
//! ends depends on the bytes before that place alone (content-defined chunking), so that a change
//! of some bytes changes the chunks around it and no others. Equal chunks of one user are stored
//! once. Chunks of different users are never shared: each counts against its owner.
//!
//! How long chunks are goes with the length of what is cut: as its square root, so that a launch of
//! megabytes has some hundred chunks, and one of kilobytes differs from another by some hundred
//! bytes.

use crate::entry::encode;
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;
use std::ops::RangeInclusive;
use tutti_wire::launch::LaunchSpec;

/// The number of a chunk in the journal; none is given twice while the chunk is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ChunkId(pub u64);

/// A part of a launch, as a job's row has it. All parts together are the encoded launch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Segment {
    /// Too short to be worth sharing.
    Own(ByteBuf),
    /// A chunk that jobs of the same user may share.
    Shared(ChunkId),
}

/// A part of a launch before it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// Whether it is long enough to be a chunk.
    pub is_shared: bool,
}

/// A shorter part stays in the job's row: a chunk of its own would take as much beside itself, in
/// bytes.
const CHUNK_BYTES_MIN: usize = 128;

/// Chunks have at least two to the power of this many bytes, and twice as many on average.
const MEAN_BITS: RangeInclusive<u32> = 7..=12;

/// Cuts a launch into pieces.
#[must_use]
pub fn cut(launch: &LaunchSpec) -> Vec<Piece> {
    #[rustfmt::skip]
    let LaunchSpec {
        name, argv, script, environment, directory, umask, rlimits, stdio, processes_max, adopt, nice,
        slurm, resume, vacate,
    } = launch;
    // What differs from job to job stands apart from what seldom does.
    let groups = [
        encode(&(name, argv)),
        encode(script),
        encode(environment),
        encode(&(
            directory,
            umask,
            rlimits,
            stdio,
            processes_max,
            adopt,
            nice,
            slurm,
            resume,
            vacate,
        )),
    ];
    let mut pieces: Vec<Piece> = Vec::new();
    for group in groups {
        for part in Parts::of(&group) {
            let is_shared = part.len() >= CHUNK_BYTES_MIN;
            match pieces.last_mut().filter(|last| !last.is_shared && !is_shared) {
                Some(last) => last.bytes.extend_from_slice(part),
                None => pieces.push(Piece { bytes: part.to_vec(), is_shared }),
            }
        }
    }
    pieces
}

/// Puts a launch together again.
///
/// # Errors
/// If the parts are not those of a launch.
pub fn join<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> Result<LaunchSpec, postcard::Error> {
    let whole = parts.into_iter().collect::<Vec<&[u8]>>().concat();
    match postcard::take_from_bytes(&whole)? {
        (launch, []) => Ok(launch),
        _ => Err(postcard::Error::DeserializeBadEncoding),
    }
}

/// The parts of a text, cut where its content says so.
struct Parts<'a> {
    rest: &'a [u8],
    /// Parts have at least this many bytes, and on average twice as many.
    least: usize,
    /// Of the hash where one ends, these bits are zero.
    mask: u64,
}

impl<'a> Parts<'a> {
    fn of(text: &'a [u8]) -> Self {
        let bits = (text.len().max(1).ilog2() / 2 + 2).clamp(*MEAN_BITS.start(), *MEAN_BITS.end());
        Self { rest: text, least: 1 << bits, mask: !(u64::MAX >> bits) }
    }

    /// Where the first part of what is left ends.
    fn end(&self) -> usize {
        let most = self.rest.len().min(self.least * 8);
        let mut hash = 0_u64;
        for (index, &byte) in self.rest[..most].iter().enumerate().skip(self.least - WINDOW) {
            hash = (hash << 1).wrapping_add(GEAR[usize::from(byte)]);
            if index >= self.least && hash & self.mask == 0 {
                return index + 1;
            }
        }
        most
    }
}

impl<'a> Iterator for Parts<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        if self.rest.is_empty() {
            return None;
        }
        let (part, rest) = self.rest.split_at(self.end());
        self.rest = rest;
        Some(part)
    }
}

/// So many bytes before a place decide whether a part ends there.
const WINDOW: usize = 64;

/// A random number for each byte (splitmix64). Stored chunks were cut by these: with others they
/// would not be found again.
const GEAR: [u64; 256] = {
    let mut gear = [0; 256];
    let mut state = 0_u64;
    let mut index = 0;
    while index < gear.len() {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = state;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        gear[index] = bits ^ (bits >> 31);
        index += 1;
    }
    gear
};

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use tutti_wire::launch::{OpenMode, Stdio};

    fn launch(variables: impl Iterator<Item = String>) -> LaunchSpec {
        let bytes = |text: &str| text.as_bytes().to_vec().into();
        LaunchSpec {
            name: "job".into(),
            argv: vec![bytes("true")],
            script: None,
            environment: variables.map(|text| bytes(&text)).collect(),
            directory: bytes("/"),
            umask: 0o022,
            rlimits: vec![(7, 1, u64::MAX)],
            stdio: Stdio::Files {
                input: None,
                output: bytes("out"),
                error: None,
                mode: OpenMode::Append,
            },
            processes_max: None,
            adopt: Vec::new(),
            nice: 0,
            slurm: false,
            resume: None,
            vacate: None,
        }
    }

    /// As long as this; each is another one.
    fn variable(number: usize, bytes: usize) -> String {
        let mut text = format!("V{number}=");
        let mut state = number as u64 + 1;
        while text.len() < bytes {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            text.push(char::from(b'a' + u8::try_from(state >> 60).unwrap()));
        }
        text
    }

    #[test]
    fn pieces_together_are_the_launch_whatever_its_length() {
        for variables in [0, 1, 3, 40, 3_000] {
            let mut launch = launch((0..variables).map(|number| variable(number, 90)));
            for script in [None, Some(vec![b'#'; variables * 100])] {
                launch.script = script.map(Into::into);
                let pieces = cut(&launch);
                let whole: Vec<u8> = pieces.iter().flat_map(|piece| piece.bytes.clone()).collect();
                assert_eq!(whole, encode(&launch));
                assert_eq!(join(pieces.iter().map(|piece| &piece.bytes[..])).unwrap(), launch);
                assert!(join(pieces.iter().skip(1).map(|piece| &piece.bytes[..])).is_err());
                assert!(pieces.len() < 700, "{}", pieces.len());
            }
        }
    }

    /// Bytes of one that are not in chunks of the other.
    fn unlike(one: &LaunchSpec, other: &LaunchSpec) -> usize {
        let known: HashSet<Vec<u8>> = cut(other)
            .into_iter()
            .filter(|piece| piece.is_shared)
            .map(|piece| piece.bytes)
            .collect();
        let other = cut(one).into_iter().filter(|piece| !known.contains(&piece.bytes));
        other.map(|piece| piece.bytes.len()).sum()
    }

    #[test]
    fn launches_that_differ_in_a_variable_differ_in_few_chunks() {
        for (variables, bytes, most) in
            [(40, 90, 1_500), (17_000, 100, 70_000), (17, 100_000, 70_000)]
        {
            let one = launch((0..variables).map(|number| variable(number, bytes)));
            assert!(unlike(&one, &one) < 2 * CHUNK_BYTES_MIN, "what is alike is shared");
            for at in [0, variables / 2, variables] {
                let mut other = one.clone();
                other.environment.insert(at, b"INPUT=another one".to_vec().into());
                let unlike = unlike(&other, &one);
                assert!(unlike < most, "{unlike} bytes of {variables} variables at {at}");
                other.argv.push(b"--fast".to_vec().into());
                other.script = Some(b"#!/bin/sh\n".to_vec().into());
                assert!(self::unlike(&other, &one) < most + 200);
            }
        }
    }
}
