//! Which descriptor stands for what. A token names a place and how often the place was used, so an
//! event that was collected before its descriptor went away is dropped instead of reaching one that
//! came after.

use std::io;
use std::os::fd::AsFd;
use tracing::warn;
use tutti_node::link::{Interest, Poller, Ready};
use tutti_types::StepKey;
use tutti_wire::attach::Stream;
use tutti_wire::code::Code;

/// What a watched descriptor is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Watch {
    /// The socket that others connect to.
    Listener,
    /// SIGCHLD, SIGTERM, SIGINT.
    Signals,
    /// A connection whose purpose is not known yet.
    Newcomer(u64),
    /// The agent.
    Agent,
    /// The front end of a job.
    Front(StepKey),
    /// The writer of a job, which has not attached.
    Writer(StepKey),
    /// What a task writes.
    Output(StepKey, usize, Stream),
    /// What a task reads.
    Input(StepKey, usize),
    /// A task's PMI connection.
    Pmi(StepKey, usize),
    /// Whether a process that a task began with has ended.
    Adopted(StepKey, usize),
    /// What a task's minder says.
    Minder(StepKey, usize),
    /// A viewer of a job, by its number.
    Viewer(StepKey, u64),
    /// The PMIx server of a job.
    Pmix(StepKey),
    /// A spawner of a job, by its number.
    Spawner(StepKey, u32),
}

/// Names a watched descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Token(u64);

/// Something that happened: there is something to read, or room to write.
#[derive(Clone, Copy, Debug)]
pub(super) struct Event {
    token: Token,
    /// Reading will not wait.
    pub(super) read: bool,
}

#[derive(Debug, Default)]
struct Slot {
    used: u32,
    watch: Option<Watch>,
}

/// All watched descriptors.
#[derive(Debug)]
pub(super) struct Watches {
    poller: Poller,
    slots: Vec<Slot>,
    free: Vec<u32>,
    ready: Vec<Ready>,
}

impl Watches {
    pub(super) fn new() -> io::Result<Self> {
        let poller = Poller::new()?;
        Ok(Self { poller, slots: Vec::new(), free: Vec::new(), ready: Vec::new() })
    }

    pub(super) fn add(
        &mut self,
        fd: impl AsFd,
        watch: Watch,
        interest: Interest,
    ) -> io::Result<Token> {
        let token = self.take(watch);
        if let Err(error) = self.poller.add(fd, token.0, interest) {
            self.release(token);
            return Err(error);
        }
        Ok(token)
    }

    pub(super) fn modify(&self, fd: impl AsFd, token: Token, interest: Interest) {
        if let Err(error) = self.poller.modify(fd, token.0, interest) {
            warn!(code = %Code::System, "cannot watch a descriptor: {error}");
        }
    }

    /// Watches it no more; to be called before the descriptor is closed.
    pub(super) fn remove(&mut self, fd: impl AsFd, token: Token) {
        self.poller.remove(fd);
        self.release(token);
    }

    /// Gives a watched descriptor another meaning.
    pub(super) fn rename(&mut self, token: Token, watch: Watch) {
        if let Some(slot) = self.slots.get_mut(index(token))
            && slot.used == uses(token)
        {
            slot.watch = Some(watch);
        }
    }

    /// What an event is about; `None` if that has gone since.
    pub(super) fn what(&self, event: Event) -> Option<Watch> {
        let slot = self.slots.get(index(event.token))?;
        if slot.used == uses(event.token) { slot.watch } else { None }
    }

    /// Waits until something happens or the monotonic clock reaches `deadline_ns`.
    pub(super) fn wait(
        &mut self,
        deadline_ns: Option<u64>,
        events: &mut Vec<Event>,
    ) -> io::Result<()> {
        self.poller.wait(deadline_ns, &mut self.ready)?;
        self.tell(events);
        Ok(())
    }

    #[cfg(feature = "simulation")]
    pub(super) const fn poller(&self) -> &Poller {
        &self.poller
    }

    /// What has happened, without waiting.
    #[cfg(feature = "simulation")]
    pub(super) fn look(&mut self, events: &mut Vec<Event>) -> io::Result<()> {
        self.poller.look(&mut self.ready)?;
        self.tell(events);
        Ok(())
    }

    fn tell(&self, events: &mut Vec<Event>) {
        events.clear();
        events.extend(
            self.ready.iter().map(|ready| Event { token: Token(ready.token), read: ready.read }),
        );
    }

    fn take(&mut self, watch: Watch) -> Token {
        let place = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            u32::try_from(self.slots.len() - 1).expect("descriptors are counted in 31 bits")
        });
        let slot = &mut self.slots[place as usize];
        slot.watch = Some(watch);
        Token(u64::from(slot.used) << 32 | u64::from(place))
    }

    fn release(&mut self, token: Token) {
        if let Some(slot) = self.slots.get_mut(index(token))
            && slot.used == uses(token)
        {
            slot.watch = None;
            // The highest number is left out: with it a token could be the poller's own.
            slot.used = (slot.used + 1) % u32::MAX;
            self.free.extend(u32::try_from(index(token)));
        }
    }
}

const fn index(token: Token) -> usize {
    (token.0 & 0xffff_ffff) as usize
}

const fn uses(token: Token) -> u32 {
    (token.0 >> 32) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn an_event_of_a_descriptor_that_went_away_reaches_nobody() {
        let mut watches = Watches::new().unwrap();
        let (one, mut far) = std::os::unix::net::UnixStream::pair().unwrap();
        let token = watches.add(&one, Watch::Agent, Interest::READ).unwrap();
        far.write_all(b"x").unwrap();
        let mut events = Vec::new();
        watches.wait(None, &mut events).unwrap();
        assert_eq!(watches.what(events[0]), Some(Watch::Agent));
        watches.remove(&one, token);
        assert_eq!(watches.what(events[0]), None);
        let (other, _far) = std::os::unix::net::UnixStream::pair().unwrap();
        watches.add(&other, Watch::Signals, Interest::READ).unwrap();
        assert_eq!(watches.what(events[0]), None, "the place is used by another one now");
    }
}
