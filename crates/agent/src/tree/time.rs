//! The time as it goes down the tree: by the clocks' own word, or, with `clock=system`, by the
//! system's.

use super::{Heard, Tree};
use crate::clock::{Correction, DRIFT_PPB_MAX};
use crate::system_clock::{self, Untrusted};
use std::mem::discriminant;
use tracing::info;
use tutti_node::platform::time::monotonic_ns;
use tutti_types::{ClockSource, Nanos};
use tutti_wire::branch::{ClockReply, SystemTime};

impl Tree {
    /// The parent says what time it is.
    pub(super) fn on_clock(&mut self, reply: &ClockReply) {
        if let Some(measured) = self.time.estimator.answered(reply, monotonic_ns())
            && let Some(correction) = self.by_system(reply, measured)
        {
            self.on_time_told(correction);
            self.lease.hear(reply);
            self.pass_lease_on();
        }
    }

    /// What is gone by: what was measured, or the system's clock, where it is to be and can be. An
    /// agent that joins anew with a clock that can't be gone by is not taken; one that has joined
    /// goes on with what was measured.
    fn by_system(&mut self, reply: &ClockReply, measured: Correction) -> Option<Correction> {
        let Some(theirs) = reply.system else {
            self.time.system = None;
            return Some(measured);
        };
        let error = self.time.estimator.error(monotonic_ns()).unwrap_or(Nanos(u64::MAX));
        match system_clock::there(&theirs, (measured, error)) {
            Ok(known) => {
                self.time.untrusted = None;
                self.time.system = Some((theirs, Some(known)));
                Some(known.correction)
            }
            Err(why) if self.above.awaits_time => {
                self.lose_parent(&why.to_string());
                None
            }
            Err(why) => {
                self.say_untrusted(why);
                self.time.system = Some((theirs, None));
                Some(measured)
            }
        }
    }

    /// What those below are told of the system's clock.
    pub(super) fn system_time(&mut self) -> Option<SystemTime> {
        if !self.options.is_root() {
            return self.time.system.map(|(theirs, _)| theirs);
        }
        if self.time.source == ClockSource::Own {
            return None;
        }
        match system_clock::here(self.time.clock.correction()) {
            Ok(time) => {
                self.time.untrusted = None;
                Some(time)
            }
            Err(why) => {
                self.say_untrusted(why);
                None
            }
        }
    }

    /// Says it once.
    fn say_untrusted(&mut self, why: Untrusted) {
        let said = self.time.untrusted.replace(why);
        if said.is_none_or(|said| discriminant(&said) != discriminant(&why)) {
            info!("{why}; the time is measured over the network instead");
        }
    }

    fn on_time_told(&mut self, correction: Correction) {
        if self.time.clock.correct(correction) {
            self.heard.push(Heard::ClockStepped);
        }
        if std::mem::take(&mut self.above.awaits_time) {
            self.heard.push(Heard::Taken);
        }
        self.tell_time();
        let (told, error) = (self.time.told_error.0, self.time_error(monotonic_ns()));
        if let Some((node, error)) = self.routes.own().zip(error)
            && (error.0 > told.saturating_mul(2) || error.0 < told / 2)
        {
            self.time.told_error = error;
            self.branch.upward.times(vec![(node, error)]);
        }
    }

    /// Which cluster time is known here.
    pub(crate) fn era(&self) -> u64 {
        if self.options.is_root() { self.time.era } else { self.time.estimator.era() }
    }

    /// How far off cluster time may be here; `None` before the first answer of a parent. True of
    /// the cluster time that this node knows ([`Self::era`]). The controller's machine may have
    /// been started anew since the last answer, with another time: that is bounded by the lease,
    /// since no job runs here once it is over.
    pub(super) fn time_error(&self, now_ns: u64) -> Option<Nanos> {
        if self.options.is_root() {
            return Some(Nanos::ZERO);
        }
        match &self.time.system {
            Some((_, Some(known))) => {
                Some(system_clock::error_now(known, now_ns, DRIFT_PPB_MAX.unsigned_abs()))
            }
            _ => self.time.estimator.error(now_ns),
        }
    }

    /// The same, for an agent outside the tree.
    #[cfg(feature = "simulation")]
    pub(crate) fn known_error(&self) -> Option<Nanos> {
        self.time_error(monotonic_ns())
    }

    /// By how much cluster time is ahead of the monotonic clock here.
    pub(crate) fn ahead_ns(&self) -> i64 {
        self.time.clock.ahead_ns()
    }
}
