//! A slow way to a node: whatever it sends, and whatever is sent to it, is late by a fixed time,
//! and in order.
//!
//! The kernel may have no means for that (`netem`). So the node's port is taken off the switch, and
//! a thread carries frames between it and a port that stands for it there:
//!
//! ```text
//!   the node's eth0 ---veth--- port3   thread   late3 ---veth--- back3, on the bridge
//! ```
//!
//! Connections that are there stay, and it counts for every kind of traffic.

use crate::checksum;
use crate::node::in_namespace;
use crate::{Node, in_switch, ip};
use anyhow::Context;
use nix::errno::Errno;
use nix::ifaddrs::getifaddrs;
use nix::libc::PACKET_OUTGOING;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::socket::{
    AddressFamily, LinkAddr, MsgFlags, SockFlag, SockProtocol, SockType, bind, recvfrom, send,
    setsockopt, socket, sockopt::RcvBufForce,
};
use nix::sys::time::TimeSpec;
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// More than a frame has: the ports send none in bulk while there is a slow way.
const FRAME_BYTES_MAX: usize = 4096;

/// What the kernel keeps for the thread while others have the processors.
const BUFFER_BYTES: usize = 32 << 20;

/// As many frames as may be on their way in one direction; those beyond are lost, as on any full
/// line.
const UNDERWAY_MAX: usize = 100_000;

/// As many packets in one piece as a port sends by default.
const PIECES_USUAL: &str = "65535";

/// A way that is slow until this is dropped.
#[derive(Debug)]
pub(crate) struct SlowWay {
    switch: String,
    node: Node,
    carrier: Option<Carrier>,
}

/// The thread that carries frames; it ends when its bell is closed.
#[derive(Debug)]
struct Carrier {
    bell: UnixStream,
    thread: JoinHandle<()>,
}

impl SlowWay {
    /// Makes the way to a node slow: by so much in each direction.
    ///
    /// # Errors
    /// If `ip` does not do it, or frames can't be had.
    pub(crate) fn to(switch: &str, node: &Node, late: Duration) -> anyhow::Result<Self> {
        let mut way = Self { switch: switch.to_owned(), node: node.clone(), carrier: None };
        let (near, far, back) = (node.port(), way.far(), way.back());
        in_switch(switch, &["link", "add", &far, "type", "veth", "peer", "name", &back])?;
        // Frames that are longer than the line takes would not come through the thread.
        in_pieces(switch, &back, "1")?;
        in_pieces(node.namespace(), "eth0", "1")?;
        in_switch(switch, &["link", "set", &back, "master", "br0", "up"])?;
        in_switch(switch, &["link", "set", &far, "up"])?;
        let ends = in_namespace(switch, || Ok([frames_of(near)?, frames_of(&far)?]));
        let ends = ends.context("cannot have the frames of a port")?;
        in_switch(switch, &["link", "set", near, "nomaster"])?;
        way.carrier = Some(Carrier::start(ends, late)?);
        Ok(way)
    }

    fn far(&self) -> String {
        self.node.port().replace("port", "late")
    }

    fn back(&self) -> String {
        self.node.port().replace("port", "back")
    }
}

impl Drop for SlowWay {
    fn drop(&mut self) {
        if let Some(carrier) = self.carrier.take() {
            // What is under way arrives.
            drop(carrier.bell);
            let _ = carrier.thread.join();
        }
        let _ = in_switch(&self.switch, &["link", "del", &self.far()]);
        let _ = in_pieces(self.node.namespace(), "eth0", PIECES_USUAL);
        let _ = in_switch(&self.switch, &["link", "set", self.node.port(), "master", "br0"]);
    }
}

/// How many packets in one piece a port may send.
fn in_pieces(namespace: &str, port: &str, count: &str) -> anyhow::Result<()> {
    ip(&["-n", namespace, "link", "set", "dev", port, "gso_max_segs", count])
}

/// A socket for all frames that come in at a port, and that sends frames out there.
fn frames_of(port: &str) -> io::Result<OwnedFd> {
    let mut found = getifaddrs()?.filter(|it| it.interface_name == port);
    let address = found.find_map(|it| it.address?.as_link_addr().copied());
    let address = address.ok_or_else(|| io::Error::other(format!("there is no port {port}")))?;
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let frames = socket(AddressFamily::Packet, SockType::Raw, flags, SockProtocol::EthAll)?;
    bind(frames.as_raw_fd(), &address)?;
    setsockopt(&frames, RcvBufForce, &BUFFER_BYTES)?;
    // Until it was bound it had those of all ports.
    let mut frame = [0; FRAME_BYTES_MAX];
    while next_frame(&frames, &mut frame).is_some() {}
    Ok(frames)
}

/// Takes the next frame that came in; nothing if there is none, or the port is down.
fn next_frame(frames: &OwnedFd, frame: &mut [u8]) -> Option<usize> {
    loop {
        match recvfrom::<LinkAddr>(frames.as_raw_fd(), frame) {
            // Those that the machine itself sends out there are seen, too.
            Ok((_, Some(from))) if from.pkttype() == PACKET_OUTGOING => {}
            Ok((length, _)) => return Some(length),
            Err(Errno::EINTR) => {}
            Err(_) => return None,
        }
    }
}

impl Carrier {
    fn start(ends: [OwnedFd; 2], late: Duration) -> anyhow::Result<Self> {
        let (bell, ring) = UnixStream::pair().context("cannot make a pair of sockets")?;
        let thread = thread::Builder::new().name("slow way".into());
        let thread = thread.spawn(move || carry(&ends, late, &ring)).context("cannot carry")?;
        Ok(Self { bell, thread })
    }
}

/// Carries frames from each end to the other until the bell is closed.
fn carry(ends: &[OwnedFd; 2], late: Duration, ring: &UnixStream) {
    let mut underway: [VecDeque<(Instant, Vec<u8>)>; 2] = [VecDeque::new(), VecDeque::new()];
    let mut frame = [0; FRAME_BYTES_MAX];
    while !rings(ends, ring, underway.iter().filter_map(|way| Some(way.front()?.0)).min()) {
        for (from, way) in ends.iter().zip(&mut underway) {
            while let Some(length) = next_frame(from, &mut frame) {
                if way.len() < UNDERWAY_MAX {
                    checksum::complete(&mut frame[..length]);
                    way.push_back((Instant::now() + late, frame[..length].to_vec()));
                }
            }
        }
        let now = Instant::now();
        deliver(ends, &mut underway, |due| due <= now);
    }
    deliver(ends, &mut underway, |_| true);
}

/// Sends the first frames of each direction out at the other end.
fn deliver(
    ends: &[OwnedFd; 2],
    underway: &mut [VecDeque<(Instant, Vec<u8>)>; 2],
    is_due: impl Fn(Instant) -> bool,
) {
    for (to, way) in ends.iter().rev().zip(underway) {
        while way.front().is_some_and(|(due, _)| is_due(*due)) {
            if let Some((_, frame)) = way.pop_front() {
                // A port that is down, or full, loses it, as a cable would.
                let _ = send(to.as_raw_fd(), &frame, MsgFlags::empty());
            }
        }
    }
}

/// Waits for a frame, and for this moment at most; whether the bell was closed.
fn rings(ends: &[OwnedFd; 2], ring: &UnixStream, until: Option<Instant>) -> bool {
    let polled = |fd| PollFd::new(fd, PollFlags::POLLIN);
    let mut polled = [polled(ends[0].as_fd()), polled(ends[1].as_fd()), polled(ring.as_fd())];
    let patience = until.map(|until| until.saturating_duration_since(Instant::now()));
    let _ = ppoll(&mut polled, patience.map(TimeSpec::from_duration), None);
    polled[2].any() == Some(true)
}
