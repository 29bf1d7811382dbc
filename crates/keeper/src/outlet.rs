//! What waits to be written to a front end: frames, in order, in one buffer.
//!
//! Output of tasks is read straight into that buffer, behind a header whose length is known before
//! that of the data ([`OutputHeader`]). So the keeper copies no byte of it, but for viewers: each
//! has an outlet of its own, and gets a copy.
//!
//! What goes to a front end on another node is kept for a while when it is sent: the way there may
//! break, and what was under way is sent again.
//!
//! A pipe that the front end is to read itself goes with the frame that says so, behind all that
//! was read from it before.

mod handover;

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsFd;
use tutti_linux::scm_rights;
use tutti_types::Rank;
use tutti_wire::attach::{OutputHeader, Stream, ToFrontEnd};
use tutti_wire::frame::encode;
use tutti_wire::limits::{KEPT_BYTES_MAX, STDIO_CHUNK_BYTES};
use tutti_wire::{Hello, Role};

/// Above this many unsent bytes nothing more is read from the tasks.
pub(super) const UNSENT_BYTES_HIGH: usize = 1 << 20;

/// Below this many unsent bytes reading begins again.
pub(super) const UNSENT_BYTES_LOW: usize = 256 << 10;

/// The first read of a stream. Most tasks say little: a small buffer costs them no page faults.
pub(super) const READ_BYTES_FIRST: usize = 8 << 10;

/// The most that one read takes. Stays in a processor's own cache between read and write.
pub(super) const READ_BYTES_MOST: usize = 128 << 10;

const _: () = assert!(READ_BYTES_MOST <= STDIO_CHUNK_BYTES);
const _: () = assert!(STDIO_CHUNK_BYTES <= OutputHeader::DATA_BYTES_MAX);

/// What one attempt to read a stream gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pumped {
    /// As much as was asked for; there may be more.
    Full,
    /// Less than that.
    Part,
    /// Nothing, for now.
    Dry,
    /// The stream has ended.
    End,
}

/// Reads once from a stream of a task, whatever it is to be done with.
pub(super) fn read_once(mut source: impl Read, room: &mut [u8]) -> (usize, Pumped) {
    loop {
        return match source.read(room) {
            Ok(0) => (0, Pumped::End),
            Ok(count) => (count, if count == room.len() { Pumped::Full } else { Pumped::Part }),
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) if error.kind() == ErrorKind::WouldBlock => (0, Pumped::Dry),
            // Reading a pipe does not fail otherwise; if it does, there is nothing more to get.
            Err(_) => (0, Pumped::End),
        };
    }
}

/// The unsent frames of one front end.
#[derive(Debug)]
pub(super) struct Outlet {
    /// Unsent is what lies between `begin` and `end`; the rest is room.
    bytes: Vec<u8>,
    begin: usize,
    end: usize,
    /// Pipes to be passed on, each with the place of its frame.
    pipes: VecDeque<(usize, File)>,
    kept: Option<Kept>,
}

/// The latest of what was sent.
#[derive(Debug, Default)]
struct Kept {
    bytes: VecDeque<u8>,
    /// How many bytes were sent before those.
    before: u64,
    /// What of the unsent comes before all that counts: greetings.
    uncounted: usize,
}

impl Kept {
    fn note(&mut self, mut sent: &[u8]) {
        let skipped = self.uncounted.min(sent.len());
        self.uncounted -= skipped;
        sent = &sent[skipped..];
        self.bytes.extend(sent);
        let surplus = self.bytes.len().saturating_sub(KEPT_BYTES_MAX);
        self.bytes.drain(..surplus);
        self.before += surplus as u64;
    }

    /// What was sent behind so many bytes, if all of it is there.
    fn behind(&self, received: u64) -> Option<Vec<u8>> {
        let skip = usize::try_from(received.checked_sub(self.before)?).ok()?;
        (skip <= self.bytes.len()).then(|| self.bytes.iter().skip(skip).copied().collect())
    }
}

impl Outlet {
    /// An outlet whose first frame is our greeting.
    pub(super) fn new() -> Self {
        let mut outlet = Self::greeted();
        outlet.extend(&Hello { role: Role::Server }.to_frame());
        outlet
    }

    /// An outlet to a peer that was greeted already.
    pub(super) const fn greeted() -> Self {
        Self { bytes: Vec::new(), begin: 0, end: 0, pipes: VecDeque::new(), kept: None }
    }

    /// How many bytes the front end has not taken yet.
    pub(super) fn unsent(&self) -> usize {
        self.end - self.begin
    }

    /// From here on, what is sent is kept for a while, and counted.
    pub(super) fn keep(&mut self) {
        self.kept = Some(Kept { uncounted: self.unsent(), ..Kept::default() });
    }

    /// Whether what is sent is kept.
    pub(super) const fn is_kept(&self) -> bool {
        self.kept.is_some()
    }

    /// Goes on where a former outlet's front end has got to; whether what it lacks is there.
    pub(super) fn go_on(&mut self, former: &Self, received: u64) -> bool {
        let Some(kept) = &former.kept else { return false };
        let Some(sent) = kept.behind(received) else { return false };
        let uncounted = self.unsent();
        self.extend(&sent);
        self.extend(&former.bytes[former.begin + kept.uncounted..former.end]);
        self.kept = Some(Kept { bytes: VecDeque::new(), before: received, uncounted });
        true
    }

    /// Queues a pipe for the front end to read.
    pub(super) fn send_pipe(&mut self, rank: Rank, stream: Stream, pipe: File) {
        let frame = self.end - self.begin;
        self.send(&ToFrontEnd::Pipe { rank, stream });
        self.pipes.push_back((self.begin + frame, pipe));
    }

    /// Queues a message.
    pub(super) fn send(&mut self, message: &ToFrontEnd) {
        let mut frame = Vec::new();
        // What is said of a task is cut long before that; the rest is a few numbers.
        if encode(message, &mut frame).is_ok() {
            self.extend(&frame);
        }
    }

    /// Reads at most `want` bytes from a stream of a task and queues them; says how many.
    pub(super) fn pump(
        &mut self,
        rank: Rank,
        stream: Stream,
        source: impl Read,
        want: usize,
    ) -> (usize, Pumped) {
        let want = want.min(READ_BYTES_MOST);
        self.make_room(OutputHeader::BYTES_MAX + want);
        let mut header = OutputHeader::new(rank, stream);
        let data = self.end + header.len();
        let (count, pumped) = read_once(source, &mut self.bytes[data..data + want]);
        if count > 0 {
            self.bytes[self.end..data].copy_from_slice(header.finish(count));
            self.end = data + count;
        }
        (count, pumped)
    }

    /// The last bytes that were queued.
    pub(super) fn latest(&self, count: usize) -> &[u8] {
        &self.bytes[self.end - count..self.end]
    }

    /// Queues a piece of output that was read elsewhere; it is not empty.
    pub(super) fn output(&mut self, rank: Rank, stream: Stream, data: &[u8]) {
        let mut header = OutputHeader::new(rank, stream);
        self.make_room(OutputHeader::BYTES_MAX + data.len());
        self.extend(header.finish(data.len()));
        self.extend(data);
    }

    /// Queues the end of a stream.
    pub(super) fn end_of_stream(&mut self, rank: Rank, stream: Stream) {
        self.send(&ToFrontEnd::Output { rank, stream, data: Default::default() });
    }

    /// Writes as far as the front end takes it, without waiting.
    ///
    /// # Errors
    /// If the front end is gone.
    pub(super) fn flush<S: AsFd>(&mut self, mut to: &S) -> io::Result<()>
    where
        for<'a> &'a S: Write,
    {
        while self.begin < self.end {
            let result = match self.pipes.front() {
                Some((at, pipe)) if *at == self.begin => scm_rights::send(
                    to,
                    &self.bytes[self.begin..self.end_of_piece(1)],
                    pipe.as_fd(),
                )
                .inspect(|_| drop(self.pipes.pop_front())),
                _ => to.write(&self.bytes[self.begin..self.end_of_piece(0)]),
            };
            match result {
                Ok(count) => {
                    if let Some(kept) = &mut self.kept {
                        kept.note(&self.bytes[self.begin..self.begin + count]);
                    }
                    self.begin += count;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.begin = 0;
        self.end = 0;
        Ok(())
    }

    /// Up to where bytes go out together: each pipe begins another piece. `skip` leaves out the
    /// pipe that this piece begins with.
    fn end_of_piece(&self, skip: usize) -> usize {
        self.pipes.get(skip).map_or(self.end, |(at, _)| *at)
    }

    fn extend(&mut self, frame: &[u8]) {
        self.make_room(frame.len());
        self.bytes[self.end..self.end + frame.len()].copy_from_slice(frame);
        self.end += frame.len();
    }

    fn make_room(&mut self, count: usize) {
        if self.bytes.len() - self.end >= count {
            return;
        }
        self.bytes.copy_within(self.begin..self.end, 0);
        self.end -= self.begin;
        for (at, _) in &mut self.pipes {
            *at -= self.begin;
        }
        self.begin = 0;
        if self.bytes.len() - self.end < count {
            self.bytes.resize((self.end + count).max(self.bytes.len() * 2).max(512), 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_bytes::ByteBuf;
    use std::os::unix::net::UnixStream;
    use tutti_wire::FrameBuffer;
    use tutti_wire::frame::decode;

    fn messages(bytes: &[u8]) -> Vec<ToFrontEnd> {
        let mut buffer = FrameBuffer::new();
        buffer.extend(bytes);
        let hello = Hello::decode(buffer.next_frame().unwrap().unwrap()).unwrap();
        assert_eq!(hello.role, Role::Server);
        let mut found = Vec::new();
        while let Some(frame) = buffer.next_frame().unwrap() {
            found.push(decode(frame).unwrap());
        }
        assert_eq!(buffer.pending(), 0);
        found
    }

    #[test]
    fn what_was_pumped_decodes_to_the_same() {
        for (rank, stream, bytes) in [
            (0, Stream::Output, 1),
            (127, Stream::Error, 127),
            (128, Stream::Output, 128),
            (300, Stream::Output, 16_383),
            (70_000, Stream::Error, 32_768),
            (u32::MAX, Stream::Output, 40_000),
        ] {
            let rank = Rank(rank);
            let data: Vec<u8> = (0..bytes).map(|i| u8::try_from(i % 253).unwrap()).collect();
            let mut outlet = Outlet::new();
            let (count, pumped) = outlet.pump(rank, stream, &data[..], 32_768);
            assert_eq!(count, bytes.min(32_768));
            assert_eq!(pumped == Pumped::Full, count == 32_768);
            outlet.output(rank, stream, &data);
            outlet.end_of_stream(rank, stream);
            let piece = |data: &[u8]| ToFrontEnd::Output {
                rank,
                stream,
                data: ByteBuf::from(data.to_vec()),
            };
            let found = messages(&outlet.bytes[outlet.begin..outlet.end]);
            assert_eq!(found, [piece(&data[..count]), piece(&data), piece(&[])]);
        }
    }

    /// Everything that a front end takes in, over as many connections as it likes.
    #[test]
    fn what_was_under_way_when_the_way_broke_is_sent_again() {
        let mut outlet = Outlet::new();
        outlet.send(&ToFrontEnd::Attached { heard: 0 });
        outlet.keep();
        let mut expected = Vec::new();
        let (mut taken, mut received) = (Vec::new(), 0_u64);
        for round in 0..6_u32 {
            for piece in 0..40_u32 {
                let data = vec![u8::try_from(round * 40 + piece).unwrap(); 3000 + piece as usize];
                outlet.pump(Rank(piece), Stream::Output, &data[..], READ_BYTES_MOST);
                expected.push(ToFrontEnd::Output {
                    rank: Rank(piece),
                    stream: Stream::Output,
                    data: ByteBuf::from(data),
                });
            }
            let (ours, mut theirs) = UnixStream::pair().unwrap();
            ours.set_nonblocking(true).unwrap();
            outlet.flush(&ours).unwrap();
            drop(ours);
            let mut bytes = Vec::new();
            theirs.read_to_end(&mut bytes).unwrap();
            // It has taken in some of what came, by whole messages, when the way breaks.
            let mut buffer = FrameBuffer::new();
            buffer.extend(&bytes);
            let whole =
                buffer.next_frame().unwrap().is_some() && buffer.next_frame().unwrap().is_some();
            assert!(whole, "greeting and answer");
            for _ in 0..7 * round {
                let Some(frame) = buffer.next_frame().unwrap() else { break };
                received += 4 + frame.len() as u64;
                taken.push(decode::<ToFrontEnd>(frame).unwrap());
            }
            let mut next = Outlet::new();
            next.send(&ToFrontEnd::Attached { heard: 0 });
            assert!(next.go_on(&outlet, received));
            outlet = next;
        }
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let reader = std::thread::spawn(move || {
            let mut bytes = Vec::new();
            theirs.read_to_end(&mut bytes).unwrap();
            bytes
        });
        outlet.flush(&ours).unwrap();
        drop(ours);
        taken.extend(messages(&reader.join().unwrap()).split_off(1));
        assert_eq!(taken, expected);
        // More than can be under way is not kept, and a reader that has got ahead of it is not
        // ours.
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let reader = std::thread::spawn(move || std::io::copy(&mut theirs, &mut std::io::sink()));
        for _ in 0..40 {
            outlet.pump(Rank(0), Stream::Output, &vec![0; READ_BYTES_MOST][..], READ_BYTES_MOST);
            outlet.flush(&ours).unwrap();
        }
        drop(ours);
        reader.join().unwrap().unwrap();
        assert!(!Outlet::new().go_on(&outlet, received));
        assert!(!Outlet::new().go_on(&outlet, u64::MAX));
    }

    #[test]
    fn unsent_bytes_survive_a_full_socket_and_growth() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        let mut outlet = Outlet::new();
        let data: Vec<u8> = (0..READ_BYTES_MOST).map(|i| u8::try_from(i % 251).unwrap()).collect();
        let mut received = Vec::new();
        let mut stalled = 0;
        for _ in 0..40 {
            outlet.pump(Rank(3), Stream::Output, &data[..], READ_BYTES_MOST);
            outlet.flush(&ours).unwrap();
            if outlet.unsent() > UNSENT_BYTES_HIGH {
                stalled += 1;
                let mut some = vec![0; 3 << 19];
                let count = theirs.read(&mut some).unwrap();
                received.extend_from_slice(&some[..count]);
            }
        }
        assert!(stalled > 0, "the socket never filled");
        let reader = std::thread::spawn(move || {
            theirs.read_to_end(&mut received).unwrap();
            received
        });
        ours.set_nonblocking(false).unwrap();
        outlet.flush(&ours).unwrap();
        drop(ours);
        let found = messages(&reader.join().unwrap());
        assert_eq!(found.len(), 40);
        assert!(found.iter().all(|message| matches!(
            message,
            ToFrontEnd::Output { rank: Rank(3), data: piece, .. } if **piece == data
        )));
    }
}
