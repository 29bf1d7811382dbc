//! Connections in memory: what has come at each end, and the watchers.

use crate::link::{Interest, Ready};
use crate::simulated::machine::Ear;
use std::collections::VecDeque;
use std::io::{self, ErrorKind};

/// What an end takes before it is read, as the kernel's do; below a quarter of it there is room
/// again.
const ROOM_BYTES: usize = 208 << 10;

/// One end in memory.
#[derive(Debug, Default)]
struct End {
    other: usize,
    is_open: bool,
    /// How many hold it besides.
    holders: usize,
    /// What has come, of which so much was read.
    bytes: Vec<u8>,
    read: usize,
    /// Whether nothing more comes, and nothing more can be sent.
    gets_no_more: bool,
    sends_no_more: bool,
    /// Whether the other end was closed before it had read everything, which is told once.
    is_reset: bool,
    watch: Option<Watch>,
}

/// The watcher of an end.
#[derive(Clone, Copy, Debug)]
struct Watch {
    poller: usize,
    token: u64,
    interest: Interest,
    /// Whether the poller has it among those that may be ready.
    is_listed: bool,
}

/// What a poller watches in memory.
#[derive(Debug, Default)]
struct Watched {
    /// Ends that may be ready.
    listed: VecDeque<usize>,
    /// The machine of the poller.
    ear: Option<(usize, Ear)>,
    /// Whether it is among those that may have something.
    is_loud: bool,
    /// Whether it watches something of the kernel's that is ready.
    has_more: bool,
}

/// All connections in memory of this thread.
#[derive(Debug, Default)]
pub(super) struct Streams {
    ends: Vec<End>,
    free: Vec<usize>,
    /// Ends and pollers by the numbers of their descriptors.
    by_descriptor: Vec<Option<usize>>,
    pollers: Vec<Watched>,
    loud: Vec<usize>,
    /// Room of messages that have got where they were sent, for others.
    spare: Vec<Vec<u8>>,
}

/// So much of it is kept.
const SPARE_MAX: usize = 64;

/// What of a connection concerns its watcher.
#[derive(Clone, Copy, PartialEq, Eq)]
enum News {
    Arrived,
    Room,
    Closed,
}

impl End {
    const fn unread(&self) -> usize {
        self.bytes.len() - self.read
    }

    /// What is ready of it for a watcher with this interest: whether reading does not wait.
    fn ready(&self, watch: &Watch, other: &Self) -> Option<Ready> {
        let broken = self.is_reset || (self.gets_no_more && self.sends_no_more);
        let read = watch.interest.read && (self.unread() > 0 || self.gets_no_more);
        let write = watch.interest.write && other.has_room();
        (broken || read || write).then_some(Ready { token: watch.token, read: broken || read })
    }

    /// Whether it is worth writing to it.
    const fn has_room(&self) -> bool {
        self.unread() <= ROOM_BYTES / 4
    }

    /// What a reader hears if there is nothing.
    fn why_nothing(&mut self) -> io::Result<usize> {
        if std::mem::take(&mut self.is_reset) {
            return Err(ErrorKind::ConnectionReset.into());
        }
        if self.gets_no_more { Ok(0) } else { Err(ErrorKind::WouldBlock.into()) }
    }
}

impl Streams {
    /// Two ends, named by these descriptors.
    pub(super) fn pair(&mut self, descriptors: [usize; 2]) -> [usize; 2] {
        let ends = descriptors.map(|fd| {
            let end = self.free.pop().unwrap_or_else(|| {
                self.ends.push(End::default());
                self.ends.len() - 1
            });
            if self.by_descriptor.len() <= fd {
                self.by_descriptor.resize(fd + 1, None);
            }
            self.by_descriptor[fd] = Some(end);
            end
        });
        for (end, other) in [(ends[0], ends[1]), (ends[1], ends[0])] {
            self.ends[end] = End { other, is_open: true, ..End::default() };
        }
        ends
    }

    /// What is known of a poller.
    fn poller(&mut self, poller: usize) -> &mut Watched {
        if self.pollers.len() <= poller {
            self.pollers.resize_with(poller + 1, Watched::default);
        }
        &mut self.pollers[poller]
    }

    fn ready(&self, end: usize) -> Option<Ready> {
        let end = &self.ends[end];
        end.ready(end.watch.as_ref()?, &self.ends[end.other])
    }

    /// The end that has this descriptor.
    pub(super) fn end(&self, fd: usize) -> Option<usize> {
        self.by_descriptor.get(fd).copied().flatten()
    }

    // ------------------------------------------------------------------ watchers

    /// From now on it is heard when a poller has something.
    pub(super) fn listen(&mut self, poller: usize, ear: (usize, Ear)) {
        self.poller(poller).ear = Some(ear);
    }

    /// A poller has something of the kernel's.
    pub(super) fn note_more(&mut self, poller: usize) {
        self.poller(poller).has_more = true;
    }

    /// Watches an end, or watches it for something else.
    pub(super) fn watch(&mut self, end: usize, (poller, token, interest): (usize, u64, Interest)) {
        let is_listed = self.ends[end].watch.is_some_and(|watch| watch.is_listed);
        self.ends[end].watch = Some(Watch { poller, token, interest, is_listed });
        if self.ready(end).is_some() {
            self.list(end);
        }
    }

    /// Watches it no more.
    pub(super) fn unwatch(&mut self, end: usize) {
        if let Some(Watch { poller, is_listed: true, .. }) = self.ends[end].watch.take() {
            self.pollers[poller].listed.retain(|listed| *listed != end);
        }
    }

    /// The end may be ready: its watcher looks.
    fn list(&mut self, end: usize) {
        let Some(watch) = &mut self.ends[end].watch else { return };
        if std::mem::replace(&mut watch.is_listed, true) {
            return;
        }
        let poller = watch.poller;
        let watched = self.poller(poller);
        watched.listed.push_back(end);
        if !std::mem::replace(&mut watched.is_loud, true) {
            self.loud.push(poller);
        }
    }

    /// Something has happened at an end.
    fn tell(&mut self, end: usize, news: News) {
        let Some(watch) = &self.ends[end].watch else { return };
        let concerns = match news {
            News::Arrived => watch.interest.read,
            News::Room => watch.interest.write,
            News::Closed => true,
        };
        if concerns {
            self.list(end);
        }
    }

    /// Adds what is ready of what a poller watches; whether the kernel is to be asked, too.
    pub(super) fn look(&mut self, poller: usize, ready: &mut Vec<Ready>) -> bool {
        for _ in 0..self.poller(poller).listed.len() {
            let Some(end) = self.pollers[poller].listed.pop_front() else { break };
            match self.ready(end) {
                // It is told again until it is not ready any more.
                Some(event) => {
                    ready.push(event);
                    self.pollers[poller].listed.push_back(end);
                }
                None => self.unlist(end),
            }
        }
        let watched = &mut self.pollers[poller];
        watched.ear.is_none() || std::mem::take(&mut watched.has_more)
    }

    fn unlist(&mut self, end: usize) {
        if let Some(watch) = &mut self.ends[end].watch {
            watch.is_listed = false;
        }
    }

    /// The machines with pollers that have something.
    pub(super) fn heard(&mut self, heard: &mut Vec<(usize, Ear)>) {
        let mut loud = std::mem::take(&mut self.loud);
        loud.retain(|&poller| {
            while let Some(&end) = self.pollers[poller].listed.front() {
                if self.ready(end).is_some() {
                    heard.extend(self.pollers[poller].ear);
                    return true;
                }
                self.pollers[poller].listed.pop_front();
                self.unlist(end);
            }
            self.pollers[poller].is_loud = false;
            false
        });
        self.loud = loud;
    }

    // ------------------------------------------------------------------ reading and writing

    /// As from a socket that does not wait.
    pub(super) fn read(&mut self, number: usize, room: &mut [u8]) -> io::Result<usize> {
        let end = &mut self.ends[number];
        let count = end.unread().min(room.len());
        if count == 0 {
            return end.why_nothing();
        }
        room[..count].copy_from_slice(&end.bytes[end.read..end.read + count]);
        end.read += count;
        if end.unread() == 0 {
            end.bytes.clear();
            end.read = 0;
        }
        self.tell_of_room(number);
        Ok(count)
    }

    /// All that has come, at most so much, without copying it where that is all.
    pub(super) fn read_at_most(&mut self, number: usize, most: usize) -> io::Result<Vec<u8>> {
        let end = &mut self.ends[number];
        if end.read == 0 && (1..=most).contains(&end.bytes.len()) {
            let room = self.spare.pop().unwrap_or_default();
            let bytes = std::mem::replace(&mut end.bytes, room);
            self.tell_of_room(number);
            return Ok(bytes);
        }
        let mut bytes = vec![0; end.unread().min(most)];
        let count = self.read(number, &mut bytes)?;
        bytes.truncate(count);
        Ok(bytes)
    }

    /// These are not needed bytes any more.
    pub(super) fn give_back(&mut self, mut bytes: Vec<u8>) {
        if self.spare.len() < SPARE_MAX {
            bytes.clear();
            self.spare.push(bytes);
        }
    }

    fn tell_of_room(&mut self, number: usize) {
        let end = &self.ends[number];
        if end.has_room() && self.ends[end.other].is_open {
            self.tell(end.other, News::Room);
        }
    }

    /// As to one.
    pub(super) fn write(&mut self, number: usize, data: &[u8]) -> io::Result<usize> {
        if self.ends[number].sends_no_more {
            return Err(ErrorKind::BrokenPipe.into());
        }
        let number = self.ends[number].other;
        let other = &mut self.ends[number];
        let count = data.len().min(ROOM_BYTES.saturating_sub(other.unread()));
        if count == 0 && !data.is_empty() {
            return Err(ErrorKind::WouldBlock.into());
        }
        if count > 0 {
            other.bytes.extend_from_slice(&data[..count]);
            self.tell(number, News::Arrived);
        }
        Ok(count)
    }

    /// Nothing more is written here.
    pub(super) fn end_writing(&mut self, end: usize) {
        self.ends[end].sends_no_more = true;
        let other = self.ends[end].other;
        if self.ends[other].is_open {
            self.ends[other].gets_no_more = true;
            self.tell(other, News::Closed);
        }
    }

    /// One more holds the end of this descriptor.
    pub(super) fn hold(&mut self, fd: usize) -> Option<usize> {
        let end = self.end(fd)?;
        self.ends[end].holders += 1;
        Some(end)
    }

    /// One that holds the end lets go of it.
    pub(super) fn close(&mut self, number: usize, fd: usize) {
        if let Some(named) = self.by_descriptor.get_mut(fd).filter(|it| **it == Some(number)) {
            *named = None;
        }
        if let Some(others) = self.ends[number].holders.checked_sub(1) {
            self.ends[number].holders = others;
            return;
        }
        self.unwatch(number);
        let end = &mut self.ends[number];
        end.is_open = false;
        let (other, has_unread) = (end.other, end.unread() > 0);
        (end.bytes, end.read) = (Vec::new(), 0);
        if !self.ends[other].is_open {
            self.free.extend([number, other]);
            return;
        }
        let other_end = &mut self.ends[other];
        (other_end.gets_no_more, other_end.sends_no_more) = (true, true);
        other_end.is_reset |= has_unread;
        self.tell(other, News::Closed);
    }
}
