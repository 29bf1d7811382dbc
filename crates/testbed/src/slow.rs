//! A slow way to a node: what goes over it is late by a fixed time, in both directions, and in order.
//!
//! The kernel may have no means for that (`netem`), so connections are made to a stand-in for the one that
//! they are meant for, on the same machine, which passes everything on.

use crate::Node;
use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How much is taken at once.
const PIECE_BYTES: usize = 64 << 10;

/// How often what waits is looked at: later than that, nothing goes on.
const GRAIN: Duration = Duration::from_millis(1);

/// A way that stands as long as this.
#[derive(Debug)]
pub struct SlowWay {
    address: String,
    ends: Arc<AtomicBool>,
    listener: Option<JoinHandle<()>>,
}

impl SlowWay {
    /// A way to where this node's agent listens, that takes so long in each direction.
    ///
    /// # Errors
    /// If nothing can listen there.
    pub fn to(node: &Node, late: Duration) -> io::Result<Self> {
        let listener = node.listen_beside()?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?.to_string();
        let ends = Arc::new(AtomicBool::new(false));
        let (ended, node) = (Arc::clone(&ends), node.clone());
        let listener = thread::spawn(move || {
            while !ended.load(Ordering::Relaxed) {
                match listener.accept() {
                    Ok((near, _)) => {
                        if let Ok(far) = node.dial(&node.address()) {
                            let _ = connect(near, far, late, &ended);
                        }
                    }
                    Err(_) => thread::sleep(GRAIN),
                }
            }
        });
        Ok(Self { address, ends, listener: Some(listener) })
    }

    /// Where it begins.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.address
    }
}

impl Drop for SlowWay {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        if let Some(listener) = self.listener.take() {
            let _ = listener.join();
        }
    }
}

/// Connects two ends by a thread for each direction; they end with the connection, or with the way.
fn connect(
    near: TcpStream,
    far: TcpStream,
    late: Duration,
    ends: &Arc<AtomicBool>,
) -> io::Result<()> {
    let pairs = [(near.try_clone()?, far.try_clone()?), (far, near)];
    for (from, to) in pairs {
        from.set_nonblocking(false)?;
        from.set_read_timeout(Some(GRAIN))?;
        to.set_nodelay(true)?;
        let ends = Arc::clone(ends);
        thread::spawn(move || {
            let whole = pass(&from, &to, late, &ends);
            // The other direction ends by itself, unless this one broke.
            let _ = to.shutdown(if whole.is_ok() { Shutdown::Write } else { Shutdown::Both });
        });
    }
    Ok(())
}

fn pass(
    mut from: &TcpStream,
    mut to: &TcpStream,
    late: Duration,
    ends: &AtomicBool,
) -> io::Result<()> {
    let mut waiting: VecDeque<(Instant, Vec<u8>)> = VecDeque::new();
    let mut piece = vec![0; PIECE_BYTES];
    let mut has_ended = false;
    while !(has_ended && waiting.is_empty()) {
        if ends.load(Ordering::Relaxed) {
            return Err(ErrorKind::ConnectionAborted.into());
        }
        if has_ended {
            thread::sleep(GRAIN);
        }
        match from.read(&mut piece) {
            Ok(0) => has_ended = true,
            Ok(count) => waiting.push_back((Instant::now() + late, piece[..count].to_vec())),
            Err(error) if is_nothing_new(&error) => {}
            Err(error) => return Err(error),
        }
        while waiting.front().is_some_and(|(due, _)| *due <= Instant::now()) {
            if let Some((_, piece)) = waiting.pop_front() {
                to.write_all(&piece)?;
            }
        }
    }
    Ok(())
}

fn is_nothing_new(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}
