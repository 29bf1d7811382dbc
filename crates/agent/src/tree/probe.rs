//! Bandwidth and latency of the connection to the parent, measured while no job is here.
//!
//! First come empty messages, each answered at once: half of the shortest round trip is the
//! latency. Then come rounds of data, each twice as long as the one before, until one takes long
//! enough to say something or [`ROUND_CHUNKS_MAX`] is reached. The parent answers the last message
//! of a round. The best round counts: whatever else is on the network can only make one slower.
//!
//! All goes over the connection that is there, so both figures are what the agents get through it:
//! encrypted, by one thread on each side. A round is no longer than twice what went in [`LONG_NS`],
//! so an order waits about that long at most behind it.

use super::Tree;
use tutti_node::platform::processes::are_simulated;
use tutti_node::platform::time::monotonic_ns;
use tutti_types::{Nanos, NetworkFigures};
use tutti_wire::branch::FromBranch;
use tutti_wire::limits::TUNNEL_CHUNK_BYTES;
use tutti_wire::tree::FromAgent;

/// How many empty messages there are.
const PINGS: u32 = 8;

/// The first round of data, and the longest, in pieces of [`TUNNEL_CHUNK_BYTES`]: 64 KiB and 2 MiB.
const ROUND_CHUNKS_MIN: u32 = 2;
const ROUND_CHUNKS_MAX: u32 = 64;

/// The longest round here. A simulated network has no bandwidth that is worth so many bytes.
fn longest_round() -> u32 {
    if are_simulated() { ROUND_CHUNKS_MIN } else { ROUND_CHUNKS_MAX }
}

/// A round that takes so long, and so many round trips, is the last.
const LONG_NS: u64 = 20_000_000;
const LONG_ROUND_TRIPS: u64 = 4;

/// All of it may take so long. A measurement that takes longer is given up.
const PATIENCE_NS: u64 = 2_000_000_000;

/// A measurement that is to begin, or has begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Probe {
    /// It begins at this moment of the monotonic clock.
    From(u64),
    /// It runs.
    Running(Rounds),
}

/// How far a measurement has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rounds {
    began_ns: u64,
    /// The number of the latest round, from 0 on.
    number: u32,
    sent_ns: u64,
    /// How many pieces it has; 0: it is an empty message.
    chunks: u32,
    /// The shortest round trip of empty messages.
    round_trip_ns: u64,
    /// The best rate, in bytes a second.
    best: u64,
}

impl Rounds {
    const fn new(now_ns: u64) -> Self {
        let (number, chunks, round_trip_ns, best) = (0, 0, u64::MAX, 0);
        Self { began_ns: now_ns, number, sent_ns: now_ns, chunks, round_trip_ns, best }
    }

    /// The answer to a round has come: gives the figures, if that was the last.
    fn answered(&mut self, now_ns: u64) -> Option<NetworkFigures> {
        let took_ns = now_ns.saturating_sub(self.sent_ns).max(1);
        if self.chunks == 0 {
            self.round_trip_ns = self.round_trip_ns.min(took_ns);
        } else {
            let bytes = u64::from(self.chunks) * TUNNEL_CHUNK_BYTES as u64;
            self.best = self.best.max(bytes * 1_000_000_000 / took_ns);
            let long_ns = LONG_NS.max(LONG_ROUND_TRIPS.saturating_mul(self.round_trip_ns));
            if took_ns >= long_ns || self.chunks >= longest_round() {
                return Some(self.figures());
            }
        }
        self.number += 1;
        self.sent_ns = now_ns;
        if self.number >= PINGS {
            self.chunks = (self.chunks * 2).max(ROUND_CHUNKS_MIN);
        }
        None
    }

    /// What was found, each at least 1.
    fn figures(&self) -> NetworkFigures {
        let whole = |value: u64| u32::try_from(value).unwrap_or(u32::MAX).max(1);
        NetworkFigures {
            bandwidth_mb_s: whole(self.best / 1_000_000),
            latency_us: whole((self.round_trip_ns / 2).div_ceil(1000)),
        }
    }

    /// The messages of the latest round.
    fn messages(&self) -> impl Iterator<Item = FromBranch> + use<> {
        let (number, count) = (self.number, self.chunks.max(1));
        let bytes = if self.chunks == 0 { 0 } else { TUNNEL_CHUNK_BYTES };
        (1..=count).map(move |it| FromBranch::Probe {
            number,
            is_last: it == count,
            data: vec![0; bytes].into(),
        })
    }
}

impl Tree {
    /// Has the connection to the parent measured in so long.
    pub(crate) fn probe_parent(&mut self, after: Nanos) {
        if !self.options.is_root() && self.probe.is_none() {
            self.probe = Some(Probe::From(monotonic_ns().saturating_add(after.0)));
        }
    }

    /// A job comes, or the parent is gone: nothing more is sent, and nothing reported.
    pub(crate) fn end_probe(&mut self) {
        self.probe = None;
    }

    /// When [`Self::look_at_probe`] has something to do.
    pub(super) fn probe_due_ns(&self) -> Option<u64> {
        self.probe.map(|probe| match probe {
            Probe::From(at_ns) => at_ns,
            Probe::Running(rounds) => rounds.began_ns + PATIENCE_NS,
        })
    }

    /// Begins what is due, and gives up what takes too long.
    pub(super) fn look_at_probe(&mut self, now_ns: u64) {
        if self.probe_due_ns().is_none_or(|due_ns| due_ns > now_ns) {
            return;
        }
        match self.probe {
            Some(Probe::From(_)) => self.send_round(Rounds::new(now_ns)),
            Some(Probe::Running(_)) | None => self.probe = None,
        }
    }

    /// The parent has read a round to its end.
    pub(super) fn on_probed(&mut self, number: u32) {
        let Some(Probe::Running(mut rounds)) = self.probe.filter(|_| self.above.up.is_some())
        else {
            return;
        };
        // An answer to a measurement that was given up may still come.
        if rounds.number != number {
            return;
        }
        match rounds.answered(monotonic_ns()) {
            None => self.send_round(rounds),
            Some(figures) => {
                self.probe = None;
                self.report(FromAgent::NetworkMeasured(figures));
            }
        }
    }

    fn send_round(&mut self, rounds: Rounds) {
        let Some(up) = self.above.up.as_mut().filter(|up| !up.neighbour.is_busy()) else {
            // What users send is measured no better, and would wait.
            return self.end_probe();
        };
        rounds.messages().for_each(|message| up.neighbour.send(&message));
        self.probe = Some(Probe::Running(rounds));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The figures of a connection of so many bytes a second and that round trip, and how many
    /// bytes and how long that took.
    fn measured(rate: u64, round_trip_ns: u64) -> (NetworkFigures, usize, u64) {
        let (mut now_ns, mut sent) = (1_000, 0);
        let mut rounds = Rounds::new(now_ns);
        loop {
            let bytes: usize = rounds
                .messages()
                .map(|message| match message {
                    FromBranch::Probe { data, .. } => data.len(),
                    _ => unreachable!(),
                })
                .sum();
            sent += bytes;
            now_ns += round_trip_ns + bytes as u64 * 1_000_000_000 / rate;
            if let Some(figures) = rounds.answered(now_ns) {
                return (figures, sent, now_ns);
            }
        }
    }

    #[test]
    fn fast_and_slow_connections_are_measured_at_bounded_cost() {
        for (rate_mb, round_trip_us, least_mb) in
            [(10_000, 40, 5_000), (1_000, 100, 900), (125, 200, 110), (12, 200, 11), (1, 500, 1)]
        {
            let (figures, sent, took_ns) = measured(rate_mb * 1_000_000, round_trip_us * 1000);
            assert_eq!(u64::from(figures.latency_us), round_trip_us / 2);
            let found = u64::from(figures.bandwidth_mb_s);
            assert!((least_mb..=rate_mb).contains(&found), "{found} of {rate_mb} MB/s");
            assert!(sent <= 4 << 20, "{sent} bytes at {rate_mb} MB/s");
            assert!(took_ns < 200_000_000, "{took_ns} ns at {rate_mb} MB/s");
        }
        let (far, ..) = measured(100_000_000, 20_000_000);
        assert!((50..=100).contains(&far.bandwidth_mb_s), "{far:?}");
        assert_eq!(far.latency_us, 10_000);
    }

    #[test]
    fn a_clock_that_stands_still_divides_by_nothing() {
        let mut rounds = Rounds::new(5);
        while rounds.answered(5).is_none() {}
        assert_eq!(rounds.figures().latency_us, 1);
    }
}
