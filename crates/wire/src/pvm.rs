//! PVM's messages, as a task and the daemon of its host exchange them.
//!
//! `tutti pvm` is a task of the virtual machine that the daemons (`pvmd`) know as their resource
//! manager. A connection carries *fragments*: a header with the receiver, the sender and a length,
//! and then bytes. The first fragment of a message begins with its tag, context and wait number.
//! Fragments of several senders may be mixed. What is packed in a message is XDR: integers of 4
//! bytes, and texts with their length.
//!
//! Any task may send any bytes. They cost that message, and memory within the maxima below, but not
//! the connection: it carries the messages of all tasks. A message that is too long comes out
//! without its values, so that its sender has an answer.

mod heard;

pub use heard::{Added, Exec, Heard, HostToStart, Notify, Spawn, Start};

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::fmt;
use serde_bytes::ByteBuf;

/// The bit of a number that means the daemon of a host, and not one of its tasks.
pub const DAEMON: u32 = 0x8000_0000;

/// The bits of a task's number that name its host.
pub const HOST_BITS: u32 = 0x3ffc_0000;

/// The bits of a number that name a task of its host.
pub const LOCAL_BITS: u32 = 0x0003_ffff;

/// The version of the protocol between tasks and daemons that PVM 3.4 has.
pub const TASK_PROTOCOL: i32 = 1318;

/// The context of messages to the task's daemon.
pub const CONTEXT_DAEMON: u32 = 0x7_fffe;

/// The context of messages between tasks about their own connections.
pub const CONTEXT_TASKS: u32 = 0x7_ffff;

/// Tags of messages, by the names that PVM has for them.
pub mod tag {
    #![allow(missing_docs, reason = "they are explained at the values that they carry")]
    pub const TM_CONNECT: u32 = 0x8001_0001;
    pub const TM_CONN2: u32 = 0x8001_0002;
    pub const TM_DELHOST: u32 = 0x8001_0005;
    pub const TM_SCHED: u32 = 0x8001_0011;
    pub const TM_TASKER: u32 = 0x8001_0012;
    pub const TM_HOSTER: u32 = 0x8001_0013;
    pub const TC_CONREQ: u32 = 0x8003_0001;
    pub const TC_CONACK: u32 = 0x8003_0002;
    pub const SM_SPAWN: u32 = 0x8004_0001;
    pub const SM_EXEC: u32 = 0x8004_0002;
    pub const SM_EXECACK: u32 = 0x8004_0003;
    pub const SM_TASK: u32 = 0x8004_0004;
    pub const SM_CONFIG: u32 = 0x8004_0005;
    pub const SM_ADDHOST: u32 = 0x8004_0006;
    pub const SM_DELHOST: u32 = 0x8004_0007;
    pub const SM_ADD: u32 = 0x8004_0008;
    pub const SM_ADDACK: u32 = 0x8004_0009;
    pub const SM_NOTIFY: u32 = 0x8004_000a;
    pub const SM_TASKX: u32 = 0x8004_000b;
    pub const SM_HOSTX: u32 = 0x8004_000c;
    pub const SM_SCHED: u32 = 0x8004_000e;
    pub const SM_STHOST: u32 = 0x8004_000f;
    pub const SM_STHOSTACK: u32 = 0x8004_0010;
    pub const SM_STTASK: u32 = 0x8004_0011;
}

/// Error codes that `libpvm3` returns to programs.
pub mod error {
    #![allow(missing_docs, reason = "PVM's manual explains them")]
    pub const BAD_PARAM: i32 = -2;
    pub const NO_HOST: i32 = -6;
    pub const DENIED: i32 = -8;
    pub const BAD_MSG: i32 = -12;
    pub const HOST_FAIL: i32 = -22;
    pub const OUT_OF_RES: i32 = -27;
    pub const DUP_HOST: i32 = -28;
    pub const ALREADY: i32 = -30;
}

/// Maximum length of a fragment. Tasks may set theirs to 1 MiB.
pub const FRAGMENT_BYTES_MAX: usize = (1 << 20) + 64;

/// Maximum length of a message: arguments and environment of a spawn.
pub const MESSAGE_BYTES_MAX: usize = 4 << 20;

/// Maximum length of all messages together of which the end has not come.
pub const UNFINISHED_BYTES_MAX: usize = 16 << 20;

/// Maximum number of messages of which the end has not come. Each has another sender.
pub const UNFINISHED_MAX: usize = 16 << 10;

/// Length of a fragment as it is sent. All daemons pass on as much in one datagram.
const FRAGMENT_BYTES: usize = 4000;

const FRAGMENT_HEADER: usize = 16;
const MESSAGE_HEADER: usize = 32;
const FIRST: u8 = 1;
const LAST: u8 = 2;

/// What packed values begin with that are XDR.
const XDR: u32 = 0x1000_0000;

/// A message to a task or a daemon.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Message {
    /// The sender, or the receiver of a message to send.
    pub peer: u32,
    /// What it is about.
    pub tag: u32,
    /// The context of the sender. An answer has that of its request.
    pub context: u32,
    /// The number by which the sender finds the request of an answer.
    pub wait: u32,
    /// Whether the values are packed as XDR. All that are sent are.
    pub is_xdr: bool,
    /// The packed values.
    pub body: Vec<u8>,
}

impl Message {
    /// A message to send, which is no answer.
    #[must_use]
    pub fn new(to: u32, tag: u32, body: Pack) -> Self {
        Self { peer: to, tag, is_xdr: true, body: body.bytes, ..Self::default() }
    }

    /// The answer to this message.
    #[must_use]
    pub fn answer(&self, body: Pack) -> Self {
        let Self { peer, tag, context, wait, .. } = *self;
        Self { peer, tag, context, wait, is_xdr: true, body: body.bytes }
    }

    /// Appends its fragments, as they are sent by task `from`.
    pub fn write(&self, from: u32, out: &mut Vec<u8>) {
        let mut pieces = self.body.chunks(FRAGMENT_BYTES).peekable();
        let mut flags = FIRST;
        loop {
            let piece = pieces.next().unwrap_or_default();
            if pieces.peek().is_none() {
                flags |= LAST;
            }
            let header = if flags & FIRST == 0 { 0 } else { MESSAGE_HEADER };
            let length = u32::try_from(header + piece.len()).unwrap_or(u32::MAX);
            for word in [self.peer, from, length, u32::from(flags) << 24] {
                out.extend_from_slice(&word.to_be_bytes());
            }
            if flags & FIRST != 0 {
                for word in [XDR, self.tag, self.context, 0, self.wait, 0, 0, 0] {
                    out.extend_from_slice(&word.to_be_bytes());
                }
            }
            out.extend_from_slice(piece);
            if flags & LAST != 0 {
                return;
            }
            flags = 0;
        }
    }
}

/// A message of which the end has not come.
#[derive(Debug)]
struct Unfinished {
    message: Message,
    /// Whether its values were too long, and are left out.
    is_cut: bool,
}

/// Bytes that come in from a daemon, put together to messages.
#[derive(Debug, Default)]
pub struct Incoming {
    bytes: Vec<u8>,
    at: usize,
    /// What is left of a fragment that is too long.
    skipped: usize,
    unfinished: BTreeMap<u32, Unfinished>,
    unfinished_bytes: usize,
}

impl Incoming {
    /// Takes bytes in. [`Self::next`] is called until there is no more before the next bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.drain(..self.at);
        self.at = 0;
        self.bytes.extend_from_slice(bytes);
    }

    /// The bytes that were not read yet. A message of which a part was read is lost.
    #[must_use]
    pub fn into_bytes(mut self) -> Vec<u8> {
        self.bytes.drain(..self.at);
        self.bytes
    }

    /// The next whole message. A fragment that is too long, or has no beginning, is left out. A
    /// message that is too long has no values, and can't be read.
    #[allow(clippy::should_implement_trait, reason = "more may come after there was none")]
    pub fn next(&mut self) -> Option<Message> {
        loop {
            let waiting = self.bytes.get(self.at..).unwrap_or_default();
            let skipped = self.skipped.min(waiting.len());
            self.skipped -= skipped;
            self.at += skipped;
            let waiting = &waiting[skipped..];
            let header = waiting.first_chunk::<FRAGMENT_HEADER>()?;
            let [from, length] = [word(header, 4), word(header, 8)];
            let flags = header[12];
            let length = usize::try_from(length).unwrap_or(usize::MAX);
            if length > FRAGMENT_BYTES_MAX {
                self.forget(from);
                self.at += FRAGMENT_HEADER;
                self.skipped = length;
                continue;
            }
            let data = waiting.get(FRAGMENT_HEADER..FRAGMENT_HEADER + length)?;
            let data = data.to_vec();
            self.at += FRAGMENT_HEADER + length;
            if let Some(message) = self.take(from, flags, &data) {
                return Some(message);
            }
        }
    }

    fn take(&mut self, from: u32, flags: u8, data: &[u8]) -> Option<Message> {
        let data = if flags & FIRST == 0 {
            data
        } else {
            self.forget(from);
            let (header, rest) = data.split_first_chunk::<MESSAGE_HEADER>()?;
            if self.unfinished.len() >= UNFINISHED_MAX {
                return None;
            }
            let begun = Message {
                peer: from,
                tag: word(header, 4),
                context: word(header, 8),
                wait: word(header, 16),
                is_xdr: word(header, 0) == XDR,
                body: Vec::new(),
            };
            self.unfinished.insert(from, Unfinished { message: begun, is_cut: false });
            rest
        };
        let Unfinished { message, is_cut } = self.unfinished.get_mut(&from)?;
        *is_cut |= message.body.len() + data.len() > MESSAGE_BYTES_MAX
            || self.unfinished_bytes + data.len() > UNFINISHED_BYTES_MAX;
        if *is_cut {
            self.unfinished_bytes -= message.body.len();
            message.body = Vec::new();
            message.is_xdr = false;
        } else {
            message.body.extend_from_slice(data);
            self.unfinished_bytes += data.len();
        }
        (flags & LAST != 0).then(|| self.forget(from)).flatten()
    }

    fn forget(&mut self, from: u32) -> Option<Message> {
        let Unfinished { message, .. } = self.unfinished.remove(&from)?;
        self.unfinished_bytes -= message.body.len();
        Some(message)
    }
}

fn word(bytes: &[u8], at: usize) -> u32 {
    let four = bytes.get(at..).and_then(<[u8]>::first_chunk);
    four.map_or(0, |four| u32::from_be_bytes(*four))
}

/// Values that are packed.
#[derive(Clone, Debug, Default)]
pub struct Pack {
    bytes: Vec<u8>,
}

impl Pack {
    /// With an integer.
    #[must_use]
    pub fn int(mut self, value: i32) -> Self {
        self.bytes.extend_from_slice(&value.to_be_bytes());
        self
    }

    /// With a number that has no sign, such as that of a task.
    #[must_use]
    pub fn number(mut self, value: u32) -> Self {
        self.bytes.extend_from_slice(&value.to_be_bytes());
        self
    }

    /// With how many follow.
    #[must_use]
    pub fn count(self, count: usize) -> Self {
        self.number(u32::try_from(count).unwrap_or(u32::MAX))
    }

    /// With a text, up to its first NUL.
    #[must_use]
    pub fn text(self, text: &[u8]) -> Self {
        let text = text.split(|&byte| byte == 0).next().unwrap_or_default();
        let mut with = self.count(text.len() + 1);
        with.bytes.extend_from_slice(text);
        with.bytes.push(0);
        with.bytes.resize(with.bytes.len().next_multiple_of(4), 0);
        with
    }

    /// With their number, and these bytes.
    #[must_use]
    pub fn bytes(self, bytes: &[u8]) -> Self {
        let mut with = self.count(bytes.len());
        with.bytes.extend_from_slice(bytes);
        with.bytes.resize(with.bytes.len().next_multiple_of(4), 0);
        with
    }

    /// With a count and as many texts.
    #[must_use]
    pub fn texts(self, texts: &[ByteBuf]) -> Self {
        texts.iter().fold(self.count(texts.len()), |pack, text| pack.text(text))
    }
}

/// A message has other values than its tag promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a message of PVM can't be read")
    }
}

impl core::error::Error for Malformed {}

/// Values that are read in their order.
#[derive(Clone, Copy, Debug)]
pub struct Unpack<'a> {
    rest: &'a [u8],
}

impl<'a> Unpack<'a> {
    /// The values of a message.
    ///
    /// # Errors
    /// If they are not packed as XDR.
    pub fn new(message: &'a Message) -> Result<Self, Malformed> {
        message.is_xdr.then_some(Self { rest: &message.body }).ok_or(Malformed)
    }

    /// Whether all was read.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// An integer.
    ///
    /// # Errors
    /// If nothing is left.
    pub fn int(&mut self) -> Result<i32, Malformed> {
        let (four, rest) = self.rest.split_first_chunk().ok_or(Malformed)?;
        self.rest = rest;
        Ok(i32::from_be_bytes(*four))
    }

    /// A number without a sign.
    ///
    /// # Errors
    /// If nothing is left.
    pub fn number(&mut self) -> Result<u32, Malformed> {
        Ok(self.int()?.cast_unsigned())
    }

    /// A text, without the NUL at its end.
    ///
    /// # Errors
    /// If it is longer than what is left, or has no end.
    pub fn text(&mut self) -> Result<ByteBuf, Malformed> {
        let length = usize::try_from(self.int()?).map_err(|_| Malformed)?;
        let text = self.rest.get(..length).ok_or(Malformed)?;
        // The last one of a message may have no padding.
        let padded = length.next_multiple_of(4).min(self.rest.len());
        self.rest = &self.rest[padded..];
        let end = text.iter().position(|&byte| byte == 0).ok_or(Malformed)?;
        Ok(ByteBuf::from(&text[..end]))
    }

    /// A count, and as many texts.
    ///
    /// # Errors
    /// If there are fewer.
    pub fn texts(&mut self) -> Result<Vec<ByteBuf>, Malformed> {
        let count = self.int()?;
        (0..count).map(|_| self.text()).collect()
    }

    /// As many numbers.
    ///
    /// # Errors
    /// If there are fewer.
    pub fn numbers(&mut self, count: i32) -> Result<Vec<u32>, Malformed> {
        (0..count).map(|_| self.number()).collect()
    }
}

#[cfg(test)]
mod tests;
