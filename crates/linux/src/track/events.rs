//! The kernel's process events: a word on every birth and end, from the netlink connector
//! (CN_PROC).
//!
//! To be had with CAP_NET_ADMIN, in the machine's first network and process namespaces; proved by
//! the kernel's answer to the subscription, since elsewhere it just keeps silent. What is not
//! needed is dropped in the kernel, by a filter on the socket: what happens to threads, and all but
//! births and ends. The rest waits in the socket's buffer until it is drained, in batches: read one
//! by one, an event costs 48 us, most of it for being woken. A buffer that ran over is reported,
//! once.

use super::netlink::Netlink;
use crate::{Error, Result, clock};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

/// What happened to a process. Times are nanoseconds since boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessEvent {
    /// A process was made by another.
    Forked {
        /// Its maker; with `CLONE_PARENT`, the parent of that one.
        parent: i32,
        /// The new process.
        child: i32,
        /// When.
        at_ns: u64,
    },
    /// A process has ended.
    Exited(Exit),
}

/// The end of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exit {
    /// Which one.
    pub pid: i32,
    /// Its wait status.
    pub status: i32,
    /// When, nanoseconds since boot.
    pub at_ns: u64,
}

impl ProcessEvent {
    /// When it happened, nanoseconds since boot.
    #[must_use]
    pub const fn at_ns(&self) -> u64 {
        match self {
            Self::Forked { at_ns, .. } | Self::Exited(Exit { at_ns, .. }) => *at_ns,
        }
    }
}

/// Whether all that happened was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Drained {
    /// It was.
    All,
    /// Some of it was lost: list the processes anew.
    Lost,
}

/// The group of the connector that process events go to.
const CN_IDX_PROC: u32 = 1;
const CN_VAL_PROC: u32 = 1;
const LISTEN: u32 = 1;
const IGNORE: u32 = 2;

const WHAT_ACK: u32 = 0;
const WHAT_FORK: u32 = 1;
const WHAT_EXIT: u32 = 0x8000_0000;

/// Where things stand in a message: behind the headers of netlink and connector.
const AT_WHAT: usize = 36;
const AT_TIME: usize = 44;
const AT_DATA: usize = 52;

/// How long the kernel may take to answer. It answers before it returns, if at all.
const ANSWER: Duration = Duration::from_millis(200);

const MESSAGE_BYTES: usize = 128;

/// A subscription. Nothing of it blocks.
#[derive(Debug)]
pub struct ProcessEvents(Netlink<MESSAGE_BYTES>);

impl ProcessEvents {
    /// Begins to listen. What happens from now on waits to be drained, where there is room for it:
    /// an event takes about 0.8 KiB of the buffer.
    ///
    /// # Errors
    /// If this process may not, or is in a namespace where the kernel tells nothing.
    pub fn subscribe(buffer_bytes: i32) -> Result<Self> {
        let mut events = Self(Netlink::open(libc::NETLINK_CONNECTOR)?);
        events.filter()?;
        events.0.bind(CN_IDX_PROC)?;
        events.0.set_buffer(buffer_bytes);
        events.order(LISTEN)?;
        events.wait_for_answer()?;
        Ok(events)
    }

    /// Lets through the kernel's answer, and births and ends of processes, whose number is that of
    /// their first thread.
    fn filter(&self) -> Result<()> {
        const LOAD: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
        const IF_EQUAL: u32 = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
        const IF_EQUAL_X: u32 = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_X;
        const TO_X: u32 = libc::BPF_MISC | libc::BPF_TAX;
        const GO: u32 = libc::BPF_JMP | libc::BPF_JA;
        const RETURN: u32 = libc::BPF_RET | libc::BPF_K;
        let step = |code: u32, jt, jf, k: u32| {
            let code = u16::try_from(code).expect("the codes of classic BPF are short");
            libc::sock_filter { code, jt, jf, k }
        };
        let load = |offset: usize| step(LOAD, 0, 0, u32::try_from(offset).unwrap_or(u32::MAX));
        // Words are loaded in the order of the network. Jumps count from the step behind.
        let mut program = [
            load(AT_WHAT),
            step(IF_EQUAL, 10, 0, WHAT_ACK.to_be()),
            step(IF_EQUAL, 5, 0, WHAT_EXIT.to_be()),
            step(IF_EQUAL, 0, 9, WHAT_FORK.to_be()),
            load(AT_DATA + 8),
            step(TO_X, 0, 0, 0),
            load(AT_DATA + 12),
            step(GO, 0, 0, 3),
            load(AT_DATA),
            step(TO_X, 0, 0, 0),
            load(AT_DATA + 4),
            step(IF_EQUAL_X, 0, 1, 0),
            step(RETURN, 0, 0, u32::MAX),
            step(RETURN, 0, 0, 0),
        ];
        let len = u16::try_from(program.len()).expect("a short program");
        self.0.set_option(
            libc::SO_ATTACH_FILTER,
            &libc::sock_fprog { len, filter: program.as_mut_ptr() },
        )
    }

    fn order(&self, order: u32) -> Result<()> {
        const BYTES: usize = 40;
        let mut message = [0_u8; BYTES];
        let mut put = |at: usize, value: u32| {
            message[at..at + 4].copy_from_slice(&value.to_ne_bytes());
        };
        put(0, u32::try_from(BYTES).expect("40"));
        put(16, CN_IDX_PROC);
        put(20, CN_VAL_PROC);
        put(36, order);
        let done = u16::try_from(libc::NLMSG_DONE).expect("a small number");
        message[4..6].copy_from_slice(&done.to_ne_bytes());
        message[32..34].copy_from_slice(&4_u16.to_ne_bytes());
        self.0.send(&message)
    }

    fn wait_for_answer(&mut self) -> Result<()> {
        let refused = |errno| {
            let source = io::Error::from_raw_os_error(errno);
            Error::Call { call: "subscribing to process events", source }
        };
        let end = clock::monotonic_ns() + u64::try_from(ANSWER.as_nanos()).unwrap_or(0);
        while clock::monotonic_ns() < end {
            let told = self.0.receive().unwrap_or(&[]);
            let answer = told.iter().find(|m| word(*m, AT_WHAT) == Some(WHAT_ACK));
            match answer.and_then(|message| word(message, AT_DATA)) {
                Some(0) => return Ok(()),
                Some(errno) => return Err(refused(errno.cast_signed())),
                None => clock::nap(Duration::from_millis(1)),
            }
        }
        // In another process namespace the kernel says nothing at all.
        Err(refused(libc::ETIMEDOUT))
    }

    /// Takes what has been told, at most `most` events, oldest first.
    pub fn drain(&mut self, most: usize, events: &mut Vec<ProcessEvent>) -> Drained {
        let ahead_ns = boot_ahead_ns();
        match self.0.drain(most, |message| events.extend(parse(message, ahead_ns))) {
            true => Drained::All,
            false => Drained::Lost,
        }
    }
}

impl AsFd for ProcessEvents {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Drop for ProcessEvents {
    fn drop(&mut self) {
        // Older kernels go on making events for a listener that only closes its socket.
        let _ = self.order(IGNORE);
    }
}

fn word(message: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(message.get(at..at + 4)?.try_into().ok()?))
}

fn parse(message: &[u8], ahead_ns: u64) -> Option<ProcessEvent> {
    let number = |at: usize| word(message, AT_DATA + at).map(u32::cast_signed);
    let time = message.get(AT_TIME..AT_TIME + 8)?.try_into().ok()?;
    let at_ns = u64::from_ne_bytes(time).saturating_add(ahead_ns);
    match word(message, AT_WHAT)? {
        WHAT_FORK => Some(ProcessEvent::Forked { parent: number(4)?, child: number(12)?, at_ns }),
        WHAT_EXIT => {
            Some(ProcessEvent::Exited(Exit { pid: number(4)?, status: number(8)?, at_ns }))
        }
        _ => None,
    }
}

/// Nanoseconds since boot, the time that the machine slept included.
#[must_use]
pub fn boot_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is a valid timespec to write to; the call keeps no pointer.
    let result = unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &raw mut now) };
    assert_eq!(result, 0, "every Linux has CLOCK_BOOTTIME");
    now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs()
}

/// Events have the monotonic time, `/proc` that since boot.
fn boot_ahead_ns() -> u64 {
    boot_ns().saturating_sub(clock::monotonic_ns())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(what: u32, numbers: &[u32]) -> Vec<u8> {
        let mut bytes = vec![0; AT_DATA];
        bytes[AT_WHAT..AT_WHAT + 4].copy_from_slice(&what.to_ne_bytes());
        bytes[AT_TIME..].copy_from_slice(&1000_u64.to_ne_bytes());
        bytes.extend(numbers.iter().flat_map(|number| number.to_ne_bytes()));
        bytes
    }

    #[test]
    fn births_and_ends_are_read() {
        let fork = ProcessEvent::Forked { parent: 7, child: 9, at_ns: 1005 };
        assert_eq!(parse(&message(WHAT_FORK, &[6, 7, 9, 9]), 5), Some(fork));
        let exit = ProcessEvent::Exited(Exit { pid: 9, status: 256, at_ns: 1000 });
        assert_eq!(parse(&message(WHAT_EXIT, &[9, 9, 256, 17]), 0), Some(exit));
        assert_eq!(parse(&message(2, &[9, 9]), 0), None);
        let whole = message(WHAT_FORK, &[6, 7, 9, 9]);
        for end in 0..whole.len() {
            assert_eq!(parse(&whole[..end], 0), None);
        }
    }
}
