//! Frames: a length of four bytes, least significant first, then that many bytes of one message.
//!
//! A message is a Rust value in the postcard format. The first frame of a connection, in each
//! direction, is a [`Hello`] whose layout never changes, so that parts of different versions can at
//! least tell each other so.

use crate::limits::{FRAME_BYTES_MAX, PROTOCOL_VERSION};
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// Why bytes are not a message. The connection that they came from is closed; nothing else happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// A frame announces more bytes than any may have.
    #[error("a frame of {bytes} bytes was announced; at most {limit} are allowed")]
    FrameTooLong {
        /// What was announced.
        bytes: usize,
        /// The most.
        limit: usize,
    },
    /// The bytes of a frame are no message of the expected kind.
    #[error("a frame of {bytes} bytes holds no {expected} message")]
    NotAMessage {
        /// The frame's length.
        bytes: usize,
        /// What was expected.
        expected: &'static str,
    },
    /// The first frame is not the greeting of any version of Tutti.
    #[error("the peer does not speak Tutti's protocol")]
    NotTutti,
    /// The peer's version is another one.
    #[error(
        "the peer speaks protocol version {theirs}, this is version {ours}; use the release of tutti \
         that the instance is of, or end the instance with that release's `tutti down`"
    )]
    OtherVersion {
        /// The peer's.
        theirs: u16,
        /// Ours.
        ours: u16,
    },
}

const MAGIC: [u8; 5] = *b"TUTTI";

/// The kind of the opener of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[repr(u8)]
pub enum Role {
    /// A user's verb; speaks [`crate::local`] with a controller.
    Client = 1,
    /// An agent; speaks [`crate::tree`] with a controller, [`crate::keeper`] with a keeper.
    Agent = 2,
    /// A front end that wants a job's output; speaks [`crate::attach`] with a keeper.
    FrontEnd = 3,
    /// The side that was connected to.
    Server = 4,
    /// A daemon of the cluster that speaks for a user on another node; a
    /// [`crate::branch::Vouch`] follows, and then that user's own greeting.
    Proxy = 5,
    /// A user that wants to be connected with a daemon of another node; a
    /// [`crate::branch::Through`] follows, and then the user's messages to that daemon.
    Gate = 6,
    /// A machine that wants to become one of the cluster; speaks [`crate::join`].
    Newcomer = 7,
    /// The supervisor, which upgrades a keeper to another executable; speaks [`crate::handover`].
    Supervisor = 8,
}

/// The first frame of a connection: `TUTTI`, the version (two bytes), the role (one byte).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The sender.
    pub role: Role,
}

impl Hello {
    /// The length of its payload, in every version.
    pub const BYTES: usize = 8;

    /// The whole frame, length included.
    #[must_use]
    pub fn to_frame(self) -> [u8; 12] {
        let mut frame = [0; 12];
        frame[0] = 8;
        frame[4..9].copy_from_slice(&MAGIC);
        frame[9..11].copy_from_slice(&PROTOCOL_VERSION.to_le_bytes());
        frame[11] = self.role as u8;
        frame
    }

    /// Reads the payload of a first frame.
    ///
    /// # Errors
    /// If it is no greeting, or one of another version.
    pub fn decode(payload: &[u8]) -> Result<Self, DecodeError> {
        let [m0, m1, m2, m3, m4, v0, v1, role, ..] = *payload else {
            return Err(DecodeError::NotTutti);
        };
        if [m0, m1, m2, m3, m4] != MAGIC {
            return Err(DecodeError::NotTutti);
        }
        let theirs = u16::from_le_bytes([v0, v1]);
        if theirs != PROTOCOL_VERSION {
            return Err(DecodeError::OtherVersion { theirs, ours: PROTOCOL_VERSION });
        }
        let role = match role {
            1 => Role::Client,
            2 => Role::Agent,
            3 => Role::FrontEnd,
            4 => Role::Server,
            5 => Role::Proxy,
            6 => Role::Gate,
            7 => Role::Newcomer,
            8 => Role::Supervisor,
            _ => return Err(DecodeError::NotTutti),
        };
        Ok(Self { role })
    }
}

/// A message that no frame holds. Nothing of it was kept.
///
/// Lists are split by [`pack`], and what is in them is bounded where it arises. What is too long
/// all the same must end no connection: its peer would come back, and the same would be sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a message of {bytes} bytes was to be sent; at most {FRAME_BYTES_MAX} are possible")]
pub struct TooLong {
    /// The message's length.
    pub bytes: usize,
}

/// Appends a message as a frame to `out`.
///
/// # Errors
/// If the message exceeds [`FRAME_BYTES_MAX`]; then `out` is as it was.
pub fn encode<M: Serialize>(message: &M, out: &mut Vec<u8>) -> Result<(), TooLong> {
    let begin = out.len();
    out.extend_from_slice(&[0; 4]);
    let encoded = postcard::to_extend(message, core::mem::take(out));
    *out = encoded.expect("a Vec takes any number of bytes and our messages have no failing parts");
    let length = out.len() - begin - 4;
    if length > FRAME_BYTES_MAX {
        out.truncate(begin);
        return Err(TooLong { bytes: length });
    }
    let prefix = u32::try_from(length).expect("the limit of a frame fits").to_le_bytes();
    out[begin..begin + 4].copy_from_slice(&prefix);
    Ok(())
}

/// The length of a message, or of a part of one, when it is encoded.
#[must_use]
pub fn encoded_len<M: Serialize>(message: &M) -> usize {
    let size = postcard::ser_flavors::Size::default();
    // A length that is unknown counts as too long.
    postcard::serialize_with_flavor(message, size).unwrap_or(usize::MAX)
}

/// Puts items into lists that fit into frames, in their order.
///
/// A list has at most `count_max` items, and at most `bytes_max` bytes when it is encoded. An item
/// that is longer alone gets a list of its own.
#[must_use]
pub fn pack<T: Serialize>(items: Vec<T>, bytes_max: usize, count_max: usize) -> Vec<Vec<T>> {
    if items.len() <= 1 {
        // The usual case is not measured.
        return if items.is_empty() { Vec::new() } else { Vec::from([items]) };
    }
    pack_by(items, encoded_len, bytes_max, count_max)
}

/// As [`pack`], where an item counts as many bytes as `len` says.
pub(crate) fn pack_by<T>(
    items: Vec<T>,
    len: impl Fn(&T) -> usize,
    bytes_max: usize,
    count_max: usize,
) -> Vec<Vec<T>> {
    let mut lists: Vec<Vec<T>> = Vec::new();
    let mut bytes = 0_usize;
    for item in items {
        let more = len(&item);
        bytes = bytes.saturating_add(more);
        match lists.last_mut() {
            Some(list) if bytes <= bytes_max && list.len() < count_max => list.push(item),
            _ => {
                bytes = more;
                lists.push(Vec::from([item]));
            }
        }
    }
    lists
}

/// Reads one message from the payload of a frame; all of it must be used up.
///
/// # Errors
/// If the bytes are not exactly one such message.
pub fn decode<'a, M: Deserialize<'a>>(payload: &'a [u8]) -> Result<M, DecodeError> {
    match postcard::take_from_bytes(payload) {
        Ok((message, [])) => Ok(message),
        _ => Err(DecodeError::NotAMessage {
            bytes: payload.len(),
            expected: core::any::type_name::<M>().rsplit(':').next().unwrap_or("known"),
        }),
    }
}

/// Collects the bytes of a stream and hands out whole frames.
#[derive(Debug)]
pub struct FrameBuffer {
    /// What was read lies between `begin` and `end`; behind it is room for more.
    bytes: Vec<u8>,
    begin: usize,
    end: usize,
    limit: usize,
}

/// Room that an empty buffer keeps for what comes next.
const ROOM_KEPT_BYTES: usize = 2 << 20;

impl Default for FrameBuffer {
    fn default() -> Self {
        Self::new()
    }
}

impl FrameBuffer {
    /// An empty buffer.
    #[must_use]
    pub const fn new() -> Self {
        Self { bytes: Vec::new(), begin: 0, end: 0, limit: FRAME_BYTES_MAX }
    }

    /// From now on a frame of more than so many bytes is refused.
    pub const fn limit(&mut self, bytes: usize) {
        self.limit = bytes;
    }

    /// Whether the next call to [`Self::next_frame`] gives something, be it an error.
    #[must_use]
    pub fn has_frame(&self) -> bool {
        self.announced()
            .is_some_and(|length| length > self.limit || self.pending().saturating_sub(4) >= length)
    }

    /// Takes in what was read from the stream.
    pub fn extend(&mut self, bytes: &[u8]) {
        self.room(bytes.len())[..bytes.len()].copy_from_slice(bytes);
        self.filled(bytes.len());
    }

    /// Room for at least `wanted` more bytes of the stream; [`Self::filled`] says how many came.
    /// Reading straight into it saves a copy of everything.
    pub fn room(&mut self, wanted: usize) -> &mut [u8] {
        if self.begin == self.end {
            self.begin = 0;
            self.end = 0;
        } else if self.begin > self.bytes.len() / 2 {
            self.bytes.copy_within(self.begin..self.end, 0);
            self.end -= self.begin;
            self.begin = 0;
        }
        if self.bytes.len() < self.end + wanted {
            self.bytes.resize(self.end + wanted, 0);
        }
        &mut self.bytes[self.end..]
    }

    /// So many bytes were put into the room.
    ///
    /// # Panics
    /// If there was not so much room.
    pub fn filled(&mut self, count: usize) {
        assert!(self.end + count <= self.bytes.len(), "more was filled in than there was room for");
        self.end += count;
    }

    /// What was taken in and not handed out.
    #[must_use]
    pub fn rest(&self) -> &[u8] {
        &self.bytes[self.begin..self.end]
    }

    /// How many bytes wait for the rest of their frame.
    #[must_use]
    pub const fn pending(&self) -> usize {
        self.end - self.begin
    }

    /// The length that the next frame announces, if its prefix has arrived.
    #[must_use]
    pub fn announced(&self) -> Option<usize> {
        let prefix = self.bytes[self.begin..self.end].first_chunk::<4>()?;
        Some(u32::from_le_bytes(*prefix) as usize)
    }

    /// The payload of the next whole frame, if it has arrived.
    ///
    /// # Errors
    /// If the next frame is longer than any may be; the stream can't be read on.
    pub fn next_frame(&mut self) -> Result<Option<&[u8]>, DecodeError> {
        if self.begin == self.end && self.bytes.capacity() > ROOM_KEPT_BYTES {
            // Many connections, each with room for its longest message, would be too much.
            (self.bytes, self.begin, self.end) = (Vec::new(), 0, 0);
        }
        let Some((prefix, rest)) = self.bytes[self.begin..self.end].split_first_chunk::<4>() else {
            return Ok(None);
        };
        let length = u32::from_le_bytes(*prefix) as usize;
        if length > self.limit {
            return Err(DecodeError::FrameTooLong { bytes: length, limit: self.limit });
        }
        if rest.len() < length {
            return Ok(None);
        }
        let begin = self.begin + 4;
        self.begin = begin + length;
        Ok(Some(&self.bytes[begin..begin + length]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_stream_cut_anywhere_gives_the_same_frames() {
        let mut stream = Vec::new();
        for n in [0u32, 1, 300, 70_000] {
            encode(&vec![7u8; n as usize], &mut stream).unwrap();
        }
        for step in [1, 3, 4096, stream.len()] {
            let mut buffer = FrameBuffer::new();
            let mut lengths = Vec::new();
            for piece in stream.chunks(step) {
                buffer.extend(piece);
                while let Some(frame) = buffer.next_frame().unwrap() {
                    lengths.push(decode::<Vec<u8>>(frame).unwrap().len());
                }
            }
            assert_eq!(lengths, [0, 1, 300, 70_000]);
            assert_eq!(buffer.pending(), 0);
        }
    }

    #[test]
    fn a_huge_frame_is_refused_before_it_is_stored() {
        let mut buffer = FrameBuffer::new();
        buffer.extend(&u32::MAX.to_le_bytes());
        assert!(matches!(buffer.next_frame(), Err(DecodeError::FrameTooLong { .. })));
    }

    #[test]
    fn a_message_that_is_too_long_leaves_no_trace() {
        let mut out = vec![1, 2, 3];
        let bytes = FRAME_BYTES_MAX + 1;
        let error = encode(&"x".repeat(bytes), &mut out).unwrap_err();
        assert!(error.bytes > bytes);
        assert_eq!(out, [1, 2, 3]);
    }

    #[test]
    fn room_that_a_long_frame_took_is_given_back() {
        let mut stream = Vec::new();
        encode(&vec![7u8; 3 << 20], &mut stream).unwrap();
        let mut buffer = FrameBuffer::new();
        buffer.extend(&stream);
        assert!(!buffer.has_frame() || buffer.next_frame().unwrap().is_some());
        assert_eq!(buffer.next_frame(), Ok(None));
        assert!(buffer.bytes.capacity() <= ROOM_KEPT_BYTES, "{}", buffer.bytes.capacity());
    }

    #[test]
    fn a_limit_of_its_own_holds_for_a_stream() {
        let mut buffer = FrameBuffer::new();
        buffer.limit(100);
        let mut stream = Vec::new();
        encode(&vec![7u8; 99], &mut stream).unwrap();
        encode(&vec![7u8; 100], &mut stream).unwrap();
        buffer.extend(&stream);
        assert!(buffer.next_frame().unwrap().is_some());
        let error = DecodeError::FrameTooLong { bytes: 101, limit: 100 };
        assert_eq!(buffer.next_frame(), Err(error));
    }

    #[test]
    fn another_version_is_named() {
        let mut frame = Hello { role: Role::Agent }.to_frame();
        assert_eq!(Hello::decode(&frame[4..]), Ok(Hello { role: Role::Agent }));
        frame[9] = 77;
        let error = Hello::decode(&frame[4..]).unwrap_err();
        assert_eq!(error, DecodeError::OtherVersion { theirs: 77, ours: PROTOCOL_VERSION });
    }

    #[test]
    fn left_over_bytes_are_no_message() {
        assert!(decode::<u8>(&[1, 2]).is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_decode_or_fail(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = Hello::decode(&bytes);
            let _ = decode::<crate::local::Request>(&bytes);
            let _ = decode::<crate::local::Reply>(&bytes);
            let _ = decode::<crate::tree::ToAgent>(&bytes);
            let _ = decode::<crate::tree::FromAgent>(&bytes);
            let _ = decode::<crate::keeper::ToKeeper>(&bytes);
            let _ = decode::<crate::keeper::FromKeeper>(&bytes);
            let _ = decode::<crate::attach::FromFrontEnd>(&bytes);
            let _ = decode::<crate::attach::ToFrontEnd>(&bytes);
            let _ = decode::<crate::branch::FromBranch>(&bytes);
            let _ = decode::<crate::branch::ToBranch>(&bytes);
            let _ = decode::<crate::join::Redeem>(&bytes);
            let _ = decode::<crate::join::Redeemed>(&bytes);
        }
    }
}
