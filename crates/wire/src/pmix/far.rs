//! What the keepers of a job's nodes say to each other, so that steps meet over nodes.
//!
//! The keeper of the job's first node has the [`Hub`](super::Hub). The others pass on what their
//! PMIx servers ask for ([`Said`]), and get what these are to hear. What is said goes in
//! [`Piece`]s through agents and the controller, which keep nothing of it: any piece may be lost.
//! So each pair of keepers has a channel. It numbers bytes, sends again what is not known to have
//! come, and takes in what comes in order.
//!
//! A channel draws a number for its life. Another number at the other end means that what was said
//! before is lost there: then all that waits is given up.

use super::{Ask, PMIX_FRAME_BYTES_MAX, Part, PmixSpace, ToPmix};
use crate::frame::{decode, encode};
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;
use tutti_types::{JobId, LaunchId, NodeId, StepId, UserId};

/// Maximum length of a piece.
const PIECE_BYTES: usize = 16 << 10;

/// What of a channel may be on its way. It is little, since orders of other jobs go the same way.
const WINDOW_BYTES: u64 = 2 * PIECE_BYTES as u64;

/// When pieces are sent again that are not known to have come: at first, and at most.
const AGAIN_NS: u64 = 1_000_000_000;
const AGAIN_MOST_NS: u64 = 8_000_000_000;

/// How often a channel says something in any case: the controller answers if the other end is gone.
const SIGN_NS: u64 = 10_000_000_000;

/// Maximum length of what is said at once: a message for a PMIx server, and what is around it.
const SAID_BYTES_MAX: usize = PMIX_FRAME_BYTES_MAX + 1024;

/// Maximum length of what waits in a channel, and in all channels of a job. With more, the other
/// end counts as gone.
const CHANNEL_BYTES_MAX: usize = 8 << 20;
const JOB_BYTES_MAX: usize = 32 << 20;

/// Maximum number of words that wait for the launch of a step, and for how many steps.
const HELD_WORDS_MAX: usize = 64;
const HELD_STEPS_MAX: usize = 64;

/// The other end of a channel: the keeper of that node, for a launch of that job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Peer {
    /// The job.
    pub job: JobId,
    /// Which launch of it.
    pub number: u32,
    /// The node.
    pub node: NodeId,
}

/// What a keeper says to another one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Said {
    /// A step is served on the sender's node.
    Join {
        /// The step.
        launch: LaunchId,
        /// Its user.
        user: UserId,
        /// The step, as PMIx servers know it.
        space: PmixSpace,
    },
    /// It is not any more.
    Leave {
        /// The step.
        launch: LaunchId,
    },
    /// A task of the sender's node asks for something. A spawn is not for here.
    Ask {
        /// Its step.
        launch: LaunchId,
        /// The number of the request.
        number: u32,
        /// Its rank.
        rank: u32,
        /// What it asks for.
        ask: Ask,
    },
    /// The answer to [`ToPmix::Fetch`].
    Fetched {
        /// The step.
        launch: LaunchId,
        /// The number of the request.
        number: u32,
        /// What the task has said of itself.
        data: Option<ByteBuf>,
    },
    /// A spawn was accepted, and is answered when the new step is served.
    AwaitChild {
        /// The step that has asked.
        launch: LaunchId,
        /// The number of the request.
        number: u32,
        /// The new step.
        child: StepId,
    },
    /// The tasks of a spawned step will never begin, if they have not.
    FailChild {
        /// The spawned step.
        child: StepId,
    },
    /// All tasks of a spawned step on the sender's node have ended without a word to an MPI server.
    Silent {
        /// The spawned step.
        child: StepId,
        /// The step that has spawned it, and the rank.
        parent: (StepId, u32),
        /// How many tasks these are, and how many the step has.
        tasks: (u32, u32),
        /// The exit status of one that failed.
        code: u8,
    },
    /// So have all tasks of a spawned step. A task of the receiver's node waits for them.
    AllSilent {
        /// The spawned step.
        child: StepId,
        /// The step that has spawned it, and the rank.
        parent: (StepId, u32),
        /// The exit status of one that failed.
        code: u8,
    },
    /// For a PMIx server of the receiver's node.
    Word {
        /// The step that it serves.
        launch: LaunchId,
        /// The message.
        message: ToPmix,
    },
}

/// A piece of what one keeper says to another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Piece {
    /// The life of the sender's channel.
    pub life: u64,
    /// The life of the receiver's channel, as far as known; 0 otherwise.
    pub of: u64,
    /// The place of the bytes among all that the sender has said.
    pub at: u64,
    /// The bytes.
    pub data: ByteBuf,
    /// How many bytes have come of the receiver's.
    pub taken: u64,
}

impl Piece {
    /// Maximum length of its bytes.
    pub const BYTES_MAX: usize = PIECE_BYTES;
}

/// One end of the way between two keepers.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Channel {
    life: u64,
    /// The life of the other end; 0 until it has said something.
    other: u64,
    /// What is not known to have come, and the place of its first byte.
    waiting: VecDeque<u8>,
    base: u64,
    /// The place up to which it was sent.
    sent: u64,
    /// When it is sent again, and how long after that it is once more.
    again_ns: Option<u64>,
    pause_ns: u64,
    /// How many bytes have come, and those of them that make no whole message yet.
    came: u64,
    rest: Vec<u8>,
    /// Whether the other end is to hear how many have come.
    owes: bool,
    /// When it says something in any case.
    sign_ns: u64,
}

/// What a channel makes of a piece.
#[derive(Debug, Default)]
pub struct Came {
    /// What the other end has said, in order.
    pub said: Vec<Said>,
    /// Whether all that was said before is lost. It comes before what is in `said`.
    pub is_anew: bool,
}

impl Channel {
    const fn new(life: u64, now_ns: u64) -> Self {
        Self {
            life,
            other: 0,
            waiting: VecDeque::new(),
            base: 0,
            sent: 0,
            again_ns: None,
            pause_ns: AGAIN_NS,
            came: 0,
            rest: Vec::new(),
            owes: false,
            sign_ns: now_ns + SIGN_NS,
        }
    }

    fn end(&self) -> u64 {
        self.base + self.waiting.len() as u64
    }

    /// Takes note of what has come at the other end.
    fn take_note(&mut self, taken: u64, now_ns: u64) {
        if taken <= self.base || taken > self.end() {
            return;
        }
        let count = usize::try_from(taken - self.base).unwrap_or(usize::MAX);
        self.waiting.drain(..count.min(self.waiting.len()));
        self.base = taken;
        self.sent = self.sent.max(taken);
        self.pause_ns = AGAIN_NS;
        self.again_ns = (!self.waiting.is_empty()).then_some(now_ns + AGAIN_NS);
    }

    /// Takes in bytes, as far as they are the next ones. The messages that are whole now; an error
    /// if there is one that no keeper sends.
    fn take_in(&mut self, at: u64, data: &[u8]) -> Result<Vec<Said>, ()> {
        self.owes |= !data.is_empty();
        let known = self.came.checked_sub(at).and_then(|known| usize::try_from(known).ok());
        let Some(fresh) = known.and_then(|known| data.get(known..)) else { return Ok(Vec::new()) };
        self.came += fresh.len() as u64;
        self.rest.extend_from_slice(fresh);
        let (mut said, mut begin) = (Vec::new(), 0);
        while let Some((head, after)) = self.rest[begin..].split_first_chunk::<4>() {
            let length = u32::from_le_bytes(*head) as usize;
            if length > SAID_BYTES_MAX {
                return Err(());
            }
            let Some(message) = after.get(..length) else { break };
            said.push(decode(message).map_err(|_| ())?);
            begin += 4 + length;
        }
        self.rest.drain(..begin);
        Ok(said)
    }

    /// The next piece that is to go.
    fn next(&mut self, now_ns: u64) -> Option<Piece> {
        let may_send = self.sent < self.end() && self.sent - self.base < WINDOW_BYTES;
        if !may_send && !self.owes {
            return None;
        }
        let first = usize::try_from(self.sent - self.base).unwrap_or(usize::MAX);
        let most = if may_send { PIECE_BYTES } else { 0 };
        let last = self.waiting.len().min(first.saturating_add(most));
        let data: Vec<u8> = self.waiting.range(first.min(last)..last).copied().collect();
        let at = self.sent;
        self.sent += data.len() as u64;
        if may_send && self.again_ns.is_none() {
            self.again_ns = Some(now_ns + self.pause_ns);
        }
        self.owes = false;
        self.sign_ns = now_ns + SIGN_NS;
        Some(Piece { life: self.life, of: self.other, at, data: data.into(), taken: self.came })
    }

    fn due_ns(&self) -> u64 {
        self.again_ns.unwrap_or(u64::MAX).min(self.sign_ns)
    }

    fn look(&mut self, now_ns: u64) {
        if self.again_ns.is_some_and(|at_ns| at_ns <= now_ns) {
            self.sent = self.base;
            self.pause_ns = (2 * self.pause_ns).min(AGAIN_MOST_NS);
            self.again_ns = None;
        }
        self.owes |= self.sign_ns <= now_ns;
    }
}

/// The channels of a keeper, and what it knows of steps whose hub is elsewhere.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Far {
    channels: BTreeMap<Peer, Channel>,
    /// Channels with something to send.
    busy: BTreeSet<Peer>,
    /// The steps of this node that a hub elsewhere knows.
    joined: BTreeSet<LaunchId>,
    /// What PMIx servers are to hear whose steps have not come here yet.
    held: BTreeMap<LaunchId, Vec<ToPmix>>,
    lives: u64,
    /// Length of what waits in the channels of each job.
    waiting: BTreeMap<JobId, usize>,
    /// This node.
    own: Option<NodeId>,
}

impl Far {
    fn life(&mut self, seed: u64) -> u64 {
        self.lives += 1;
        // Never 0, and another one for each channel and each keeper.
        (seed ^ self.lives.wrapping_mul(0x9e37_79b9_7f4a_7c15)) | 1
    }

    /// Which node this is.
    #[must_use]
    pub const fn own(&self) -> Option<NodeId> {
        self.own
    }

    /// Takes note which node this is.
    pub const fn be(&mut self, node: NodeId) {
        self.own = Some(node);
    }

    /// Whether anything was said to, or by, this keeper.
    #[must_use]
    pub fn knows(&self, peer: Peer) -> bool {
        self.channels.contains_key(&peer)
    }

    /// Whether another keeper takes far less than it asks for.
    #[must_use]
    pub fn is_behind(&self, peer: Peer) -> bool {
        let waiting = self.channels.get(&peer).map_or(0, |it| it.waiting.len());
        let of_job = self.waiting.get(&peer.job).copied().unwrap_or(0);
        waiting > CHANNEL_BYTES_MAX / 2 || of_job > JOB_BYTES_MAX / 2
    }

    /// Whether something is to be sent.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        !self.busy.is_empty()
    }

    /// Says something to another keeper; whether there is room. `seed`: of this keeper alone.
    pub fn say(&mut self, peer: Peer, said: &Said, (seed, now_ns): (u64, u64)) -> bool {
        if !self.channels.contains_key(&peer) {
            let life = self.life(seed);
            self.channels.insert(peer, Channel::new(life, now_ns));
        }
        let Some(channel) = self.channels.get_mut(&peer) else { return false };
        let (mut frame, of_job) = (Vec::new(), self.waiting.entry(peer.job).or_default());
        let is_fit = encode(said, &mut frame).is_ok()
            && frame.len() - 4 <= SAID_BYTES_MAX
            && channel.waiting.len() + frame.len() <= CHANNEL_BYTES_MAX
            && *of_job + frame.len() <= JOB_BYTES_MAX;
        if is_fit {
            *of_job += frame.len();
            channel.waiting.extend(frame);
            self.busy.insert(peer);
        }
        is_fit
    }

    /// A piece has come of another keeper.
    pub fn take_in(&mut self, peer: Peer, piece: &Piece, (seed, now_ns): (u64, u64)) -> Came {
        if piece.data.len() > PIECE_BYTES {
            return Came::default();
        }
        let known = self.channels.get(&peer).map(|it| (it.life, it.other));
        let is_anew = known.is_some_and(|(_, other)| other != 0 && other != piece.life);
        if is_anew || known.is_none() {
            self.take_away(peer);
            // Its own life goes on: what it said before was for another life of the other end.
            let life = known.map_or_else(|| self.life(seed), |(life, _)| life);
            self.channels.insert(peer, Channel::new(life, now_ns));
        }
        let Some(channel) = self.channels.get_mut(&peer) else { return Came::default() };
        channel.other = piece.life;
        let mut came = Came { said: Vec::new(), is_anew };
        if piece.of != 0 && piece.of != channel.life {
            // It is for one that is gone: its sender must hear that.
            channel.owes = true;
        } else {
            if piece.of != 0 {
                let before = channel.waiting.len();
                channel.take_note(piece.taken, now_ns);
                let of_job = self.waiting.entry(peer.job).or_default();
                *of_job = of_job.saturating_sub(before - channel.waiting.len());
            }
            match channel.take_in(piece.at, &piece.data) {
                Ok(said) => came.said = said,
                Err(()) => {
                    self.forget(peer);
                    return Came { said: Vec::new(), is_anew: true };
                }
            }
        }
        self.busy.insert(peer);
        came
    }

    /// What waits in a channel counts no more.
    fn take_away(&mut self, peer: Peer) {
        let Some(channel) = self.channels.remove(&peer) else { return };
        self.busy.remove(&peer);
        if let Some(of_job) = self.waiting.get_mut(&peer.job) {
            *of_job = of_job.saturating_sub(channel.waiting.len());
        }
        let mut of_job = self.channels.range(Peer { number: 0, node: NodeId(0), ..peer }..);
        if of_job.next().is_none_or(|(other, _)| other.job != peer.job) {
            self.waiting.remove(&peer.job);
        }
    }

    /// The other end is gone for good.
    pub fn forget(&mut self, peer: Peer) {
        self.take_away(peer);
        self.held.retain(|launch, _| (launch.job, launch.number) != (peer.job, peer.number));
    }

    /// The next piece that is to go, and to which keeper.
    pub fn next(&mut self, now_ns: u64) -> Option<(Peer, Piece)> {
        while let Some(&peer) = self.busy.first() {
            match self.channels.get_mut(&peer).and_then(|it| it.next(now_ns)) {
                Some(piece) => return Some((peer, piece)),
                None => drop(self.busy.remove(&peer)),
            }
        }
        None
    }

    /// When [`Self::look`] has something to do, in monotonic time.
    #[must_use]
    pub fn due_ns(&self) -> Option<u64> {
        self.channels.values().map(Channel::due_ns).min()
    }

    /// Sends again what has not come.
    pub fn look(&mut self, now_ns: u64) {
        for (peer, channel) in &mut self.channels {
            if channel.due_ns() <= now_ns {
                channel.look(now_ns);
                self.busy.insert(*peer);
            }
        }
    }

    /// Takes note that a hub elsewhere is to know a step; whether it did not.
    pub fn join(&mut self, launch: LaunchId) -> bool {
        self.joined.insert(launch)
    }

    /// A hub elsewhere is to know a step no more; whether it did.
    pub fn leave(&mut self, launch: LaunchId) -> bool {
        self.held.remove(&launch);
        self.joined.remove(&launch)
    }

    /// Keeps a word for the PMIx server of a step that has not come here yet.
    pub fn hold(&mut self, launch: LaunchId, message: ToPmix) {
        if self.held.len() >= HELD_STEPS_MAX && !self.held.contains_key(&launch) {
            return;
        }
        let words = self.held.entry(launch).or_default();
        if words.len() < HELD_WORDS_MAX {
            words.push(message);
        }
    }

    /// What was kept for a step.
    pub fn take_held(&mut self, launch: LaunchId) -> Vec<ToPmix> {
        self.held.remove(&launch).unwrap_or_default()
    }

    /// Whether nothing is known or waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.channels.is_empty() && self.joined.is_empty() && self.held.is_empty()
    }
}

impl Part {
    /// The keeper of its node, for its job.
    #[must_use]
    pub const fn peer(&self) -> Peer {
        Peer { job: self.launch.job, number: self.launch.number, node: self.node }
    }
}

#[cfg(test)]
mod tests;
