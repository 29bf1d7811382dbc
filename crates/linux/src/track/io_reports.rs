//! What each thread has read and written, reported by the kernel when it ends (taskstats).
//!
//! This takes `CAP_NET_ADMIN`, the machine's first process and user namespaces, and Linux 5.19,
//! from which on a report names the process of its thread. In another network namespace the kernel
//! accepts the subscription and reports nothing: process events ([`super::events`]) fail there, so
//! only a process that has these should subscribe.
//!
//! The kernel reports before it says that the process has ended, and before the process leaves its
//! group.

use super::events::Drained;
use super::netlink::Netlink;
use crate::{Error, Result};
use std::fs;
use std::io;
use std::path::Path;

/// What a thread has read from devices and written to them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IoReport {
    /// Its process.
    pub process: i32,
    /// Bytes read, in whole KiB.
    pub read_bytes: u64,
    /// Bytes written, likewise.
    pub written_bytes: u64,
}

/// A report is some 600 bytes long, and that of a process's last thread twice that.
const MESSAGE_BYTES: usize = 2048;

/// The headers of netlink and of generic netlink.
const HEADER_BYTES: usize = 20;
const REQUEST: u16 = 1;
const ACKNOWLEDGE: u16 = 4;
const NLMSG_ERROR: u16 = 2;
/// The upper bits of a type of attribute are flags.
const TYPE_MASK: u16 = 0x3fff;

/// The family that knows the numbers of others.
const FAMILIES: u16 = 16;
const GET_FAMILY: u8 = 3;
const FAMILY_ID: u16 = 1;
const FAMILY_NAME: u16 = 2;

const GET: u8 = 1;
const REGISTER: u16 = 3;
const OF_THREAD: u16 = 1;
const AGGREGATE: u16 = 4;
const STATS: u16 = 3;

/// Where things stand in `struct taskstats`.
const AT_READ: usize = 248;
const AT_WRITTEN: usize = 256;
const AT_PROCESS: usize = 368;

/// The processors that the machine may ever have.
const POSSIBLE: &str = "/sys/devices/system/cpu/possible";

/// A subscription. Nothing of it blocks.
#[derive(Debug)]
pub struct IoReports(Netlink<MESSAGE_BYTES>);

impl IoReports {
    /// Begins to listen. A report takes about 1.3 KiB of the buffer until it is drained.
    ///
    /// # Errors
    /// If this process may not, or the kernel is too old.
    pub fn subscribe(buffer_bytes: i32) -> Result<Self> {
        let mut socket = Netlink::open(libc::NETLINK_GENERIC)?;
        socket.bind(0)?;
        socket.set_buffer(buffer_bytes);
        socket.send(&message(FAMILIES, GET_FAMILY, FAMILY_NAME, b"TASKSTATS\0", REQUEST))?;
        let number = |answer: &[u8]| {
            let id = attribute(answer.get(HEADER_BYTES..)?, FAMILY_ID)?;
            Some(u16::from_ne_bytes(id.try_into().ok()?))
        };
        let family = answer(&mut socket, number)?;
        // The kernel says no more of others' threads than of this one.
        let own = std::process::id().to_ne_bytes();
        socket.send(&message(family, GET, OF_THREAD, &own, REQUEST))?;
        answer(&mut socket, parse)?;
        let path = Path::new(POSSIBLE);
        let mut processors = fs::read(path).map_err(Error::file("read", path))?;
        processors.truncate(processors.trim_ascii_end().len());
        processors.push(0);
        let register = message(family, GET, REGISTER, &processors, REQUEST | ACKNOWLEDGE);
        socket.send(&register)?;
        answer(&mut socket, |_| Some(()))?;
        Ok(Self(socket))
    }

    /// Takes what has been reported, at most `most` reports.
    pub fn drain(&mut self, most: usize, reports: &mut Vec<IoReport>) -> Drained {
        match self.0.drain(most, |message| reports.extend(parse(message))) {
            true => Drained::All,
            false => Drained::Lost,
        }
    }
}

/// The answer of the kernel, which it gives before `send` returns.
fn answer<T>(socket: &mut Netlink<MESSAGE_BYTES>, read: impl Fn(&[u8]) -> Option<T>) -> Result<T> {
    let refused = |errno| {
        let source = io::Error::from_raw_os_error(errno);
        Error::Call { call: "subscribing to reports of I/O", source }
    };
    let errno = |error: io::Error| refused(error.raw_os_error().unwrap_or(libc::EIO));
    let answers = socket.receive().map_err(errno)?;
    for answer in answers {
        let kind = answer.get(4..6).and_then(|it| Some(u16::from_ne_bytes(it.try_into().ok()?)));
        let status = || Some(i32::from_ne_bytes(answer.get(16..20)?.try_into().ok()?));
        match (kind, status()) {
            (Some(NLMSG_ERROR), Some(status)) if status != 0 => return Err(refused(-status)),
            _ => {
                if let Some(found) = read(answer) {
                    return Ok(found);
                }
            }
        }
    }
    // What was answered lacks what is needed: an old kernel.
    Err(refused(libc::EOPNOTSUPP))
}

/// A message of generic netlink with one attribute.
fn message(family: u16, command: u8, attribute: u16, value: &[u8], flags: u16) -> Vec<u8> {
    let length = |bytes: usize| u16::try_from(bytes).expect("messages of ours are short");
    let mut message = vec![0; HEADER_BYTES];
    message[4..6].copy_from_slice(&family.to_ne_bytes());
    message[6..8].copy_from_slice(&flags.to_ne_bytes());
    message[16] = command;
    message[17] = 1;
    message.extend(length(4 + value.len()).to_ne_bytes());
    message.extend(attribute.to_ne_bytes());
    message.extend(value);
    message.resize(message.len().next_multiple_of(4), 0);
    let all = u32::from(length(message.len()));
    message[..4].copy_from_slice(&all.to_ne_bytes());
    message
}

/// The value of the first attribute of a kind.
fn attribute(mut attributes: &[u8], wanted: u16) -> Option<&[u8]> {
    loop {
        let header: [u8; 4] = attributes.get(..4)?.try_into().ok()?;
        let length = usize::from(u16::from_ne_bytes([header[0], header[1]]));
        let value = attributes.get(4..length)?;
        if u16::from_ne_bytes([header[2], header[3]]) & TYPE_MASK == wanted {
            return Some(value);
        }
        attributes = attributes.get(length.next_multiple_of(4)..)?;
    }
}

fn parse(message: &[u8]) -> Option<IoReport> {
    let length = u32::from_ne_bytes(message.get(..4)?.try_into().ok()?);
    let message = message.get(HEADER_BYTES..usize::try_from(length).ok()?)?;
    let stats = attribute(attribute(message, AGGREGATE)?, STATS)?;
    let long = |at: usize| Some(u64::from_ne_bytes(stats.get(at..at + 8)?.try_into().ok()?));
    let process = stats.get(AT_PROCESS..AT_PROCESS + 4)?.try_into().ok()?;
    Some(IoReport {
        process: i32::from_ne_bytes(process),
        read_bytes: long(AT_READ)?,
        written_bytes: long(AT_WRITTEN)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Vec<u8> {
        let mut stats = vec![0; 416];
        stats[AT_READ..AT_READ + 8].copy_from_slice(&4096_u64.to_ne_bytes());
        stats[AT_WRITTEN..AT_WRITTEN + 8].copy_from_slice(&8192_u64.to_ne_bytes());
        stats[AT_PROCESS..AT_PROCESS + 4].copy_from_slice(&77_i32.to_ne_bytes());
        let of_thread = &message(0, 0, OF_THREAD, &[9, 0, 0, 0], 0)[HEADER_BYTES..];
        let stats = &message(0, 0, STATS, &stats, 0)[HEADER_BYTES..];
        message(31, 2, AGGREGATE, &[of_thread, stats].concat(), 0)
    }

    #[test]
    fn a_report_names_the_process_and_what_it_read_and_wrote() {
        let whole = report();
        let expected = IoReport { process: 77, read_bytes: 4096, written_bytes: 8192 };
        assert_eq!(parse(&whole), Some(expected));
        for end in 0..whole.len() {
            assert_eq!(parse(&whole[..end]), None);
        }
    }

    #[test]
    fn attributes_that_say_they_are_empty_are_no_endless_loop() {
        assert_eq!(attribute(&[0; 64], 1), None);
        assert_eq!(attribute(&[4, 0, 2, 0, 4, 0, 3, 0], 1), None);
        assert_eq!(attribute(&[4, 0, 2, 0, 5, 0, 1, 0, 7], 1), Some(&[7][..]));
    }

    #[test]
    fn a_report_of_an_old_kernel_is_none() {
        let stats = &message(0, 0, STATS, &[0; 350], 0)[HEADER_BYTES..];
        assert_eq!(parse(&message(31, 2, AGGREGATE, stats, 0)), None);
    }
}
