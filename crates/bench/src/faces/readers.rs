//! Readers of the server's stream of events: one that notes how late each event comes, and many
//! that only take what comes.

use super::super::contend::micros;
use super::http::Web;
use anyhow::Context;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::io::{BufRead, Read};
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How often a thread sees whether it is to end.
const LOOK_MS: u8 = 50;

/// Readers in one thread, until they are dropped.
pub(super) struct Readers {
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Readers {
    /// Opens so many.
    ///
    /// # Errors
    /// If the server refuses one.
    pub(super) fn open(web: &Web, count: usize) -> anyhow::Result<Self> {
        let open = || {
            let stream = web.events()?.into_inner();
            stream.set_nonblocking(true)?;
            Ok(stream)
        };
        let streams = (0..count).map(|_| open()).collect::<anyhow::Result<Vec<TcpStream>>>()?;
        let ends = Arc::<AtomicBool>::default();
        let until = Arc::clone(&ends);
        let thread = std::thread::spawn(move || drain(streams, &until));
        Ok(Self { ends, thread: Some(thread) })
    }
}

impl Drop for Readers {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn drain(mut streams: Vec<TcpStream>, ends: &AtomicBool) {
    let mut room = vec![0; 64 << 10];
    while !ends.load(Ordering::Relaxed) {
        let mut fds: Vec<PollFd> =
            streams.iter().map(|stream| PollFd::new(stream.as_fd(), PollFlags::POLLIN)).collect();
        if poll(&mut fds, PollTimeout::from(LOOK_MS)).is_err() {
            continue;
        }
        let ready: Vec<bool> = fds.iter().map(|fd| fd.any().unwrap_or(false)).collect();
        for (stream, _) in streams.iter_mut().zip(ready).filter(|(_, is_ready)| *is_ready) {
            while matches!(stream.read(&mut room), Ok(1..)) {}
        }
    }
}

/// A reader that notes how late events come.
pub(super) struct Watch {
    ends: Arc<AtomicBool>,
    thread: JoinHandle<Vec<u64>>,
}

impl Watch {
    /// Begins.
    ///
    /// # Errors
    /// If the server refuses.
    pub(super) fn open(web: &Web) -> anyhow::Result<Self> {
        let mut events = web.events()?;
        events.get_mut().set_read_timeout(Some(Duration::from_millis(LOOK_MS.into())))?;
        let ends = Arc::<AtomicBool>::default();
        let until = Arc::clone(&ends);
        let thread = std::thread::spawn(move || {
            let (mut late_us, mut line) = (Vec::new(), Vec::new());
            while !until.load(Ordering::Relaxed) {
                // After a timeout, the line has what came of it so far.
                if !matches!(events.read_until(b'\n', &mut line), Ok(1..)) {
                    continue;
                }
                late_us.extend(lateness_us(&line, now_us()));
                line.clear();
            }
            late_us
        });
        Ok(Self { ends, thread })
    }

    /// How late each event came, in microseconds, sorted.
    ///
    /// # Errors
    /// If the thread panicked.
    pub(super) fn end(self) -> anyhow::Result<Vec<u64>> {
        self.ends.store(true, Ordering::Relaxed);
        let mut late_us = self.thread.join().ok().context("the reader of events panicked")?;
        late_us.sort_unstable();
        Ok(late_us)
    }
}

/// Microseconds since 1970.
fn now_us() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, micros)
}

/// How much later than its time an event came, if the line is one. Its time is in whole
/// milliseconds, rounded down: what comes out is up to 1 ms too much.
fn lateness_us(line: &[u8], now_us: u64) -> Option<u64> {
    let text = std::str::from_utf8(line).ok()?;
    let digits = text.split_once("\"at_ms\":")?.1;
    let end = digits.find(|it: char| !it.is_ascii_digit())?;
    let at_ms: u64 = digits[..end].parse().ok()?;
    Some(now_us.saturating_sub(at_ms * 1000))
}
