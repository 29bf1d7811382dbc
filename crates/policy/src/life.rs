//! When a program is started, and when again after it has failed.

use tutti_types::{ClusterTime, Nanos};

/// The pause before a program that failed is started again; doubled each time.
const PAUSE: Nanos = Nanos::from_secs(1);
const PAUSE_MAX: Nanos = Nanos::from_secs(60);

/// A program that has answered for so long has failed for another reason than before.
const GOOD_AFTER: Nanos = Nanos::from_secs(60);

/// What becomes of a program just now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum State {
    /// None runs, and none is to.
    #[default]
    Off,
    /// It was started, and has yet to answer.
    Starting,
    /// It answers, since this time.
    Up(ClusterTime),
    /// It failed, and is started again at this time.
    Down(ClusterTime),
}

/// A program over all its starts.
#[derive(Clone, Copy, Debug, Default)]
pub struct Life {
    state: State,
    /// How often it failed in a row.
    failures: u32,
    /// Whether the log has said so.
    has_said: bool,
}

impl Life {
    /// What becomes of it just now.
    #[must_use]
    pub const fn state(&self) -> State {
        self.state
    }

    /// Whether it answers.
    #[must_use]
    pub const fn is_up(&self) -> bool {
        matches!(self.state, State::Up(_))
    }

    /// Whether it is to be started, if one is wanted.
    #[must_use]
    pub fn is_to_start(&self, now: ClusterTime) -> bool {
        match self.state {
            State::Off => true,
            State::Down(until) => until <= now,
            State::Starting | State::Up(_) => false,
        }
    }

    /// It is started.
    pub const fn starts(&mut self) {
        self.state = State::Starting;
    }

    /// It has answered the first line.
    pub const fn began(&mut self, now: ClusterTime) {
        self.state = State::Up(now);
    }

    /// It has answered a round. Gives whether the log is to say that it does again.
    pub fn answered(&mut self, now: ClusterTime) -> bool {
        let State::Up(since) = self.state else { return false };
        let is_good = now.since(since) > GOOD_AFTER;
        if is_good || !self.has_said {
            self.failures = 0;
        }
        is_good && std::mem::take(&mut self.has_said)
    }

    /// It has failed. Gives whether the log is to say so: it does once.
    pub fn failed(&mut self, now: ClusterTime) -> bool {
        let pause = Nanos(PAUSE.0 << self.failures.min(6)).min(PAUSE_MAX);
        self.failures = self.failures.saturating_add(1);
        self.state = State::Down(now + pause);
        !std::mem::replace(&mut self.has_said, true)
    }

    /// In words.
    #[must_use]
    pub const fn words(&self) -> &'static str {
        match self.state {
            State::Off => "does not run",
            State::Starting => "is starting",
            State::Up(_) => "answers",
            State::Down(_) => "has failed, and is started again",
        }
    }
}
