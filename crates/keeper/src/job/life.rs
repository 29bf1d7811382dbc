//! How far a job is in its life on this node, and what it has used.

use tutti_wire::launch::Usage;

/// See the head of the file. Each step is taken once, and never back.
#[derive(Default)]
pub(crate) struct Life {
    pub(super) started: bool,
    pub(super) killed: bool,
    /// The agent has taken note of its end.
    pub(super) forgotten: bool,
    pub(super) usage: Usage,
    /// What it has used, once nothing of it is left.
    pub(super) cleared: Option<Usage>,
}

impl Life {
    /// Whether its tasks were started, or never will be.
    pub(crate) const fn has_started(&self) -> bool {
        self.started
    }

    /// Its tasks start, or never will. Whether that is new.
    pub(crate) const fn start(&mut self) -> bool {
        !std::mem::replace(&mut self.started, true)
    }

    pub(crate) const fn is_killed(&self) -> bool {
        self.killed
    }

    pub(crate) const fn kill(&mut self) {
        self.killed = true;
    }

    /// Whether the agent has taken note of its end.
    pub(crate) const fn is_forgotten(&self) -> bool {
        self.forgotten
    }

    pub(crate) const fn forget(&mut self) {
        self.forgotten = true;
    }

    /// Whether nothing of it is left.
    pub(crate) const fn is_cleared(&self) -> bool {
        self.cleared.is_some()
    }

    /// What it has used, if nothing of it is left.
    pub(crate) const fn cleared(&self) -> Option<Usage> {
        self.cleared
    }

    /// Nothing of it is left. Gives what it has used.
    pub(super) const fn clear(&mut self) -> Usage {
        self.cleared = Some(self.usage);
        self.usage
    }

    /// Counts what a task has used.
    pub(super) fn add(&mut self, usage: &Usage) {
        self.usage.add(usage);
    }

    /// Counts what a helper has used. What is whole of its tasks stays so, and its peak is not a
    /// task's.
    pub(super) const fn add_helper(&mut self, usage: &Usage) {
        self.usage.user_us = self.usage.user_us.saturating_add(usage.user_us);
        self.usage.system_us = self.usage.system_us.saturating_add(usage.system_us);
    }

    /// What all of it has read and written, also tasks that have no such count of their own.
    pub(super) const fn count_io(&mut self, (read, written): (u64, u64), is_whole: bool) {
        self.usage.read_bytes = read;
        self.usage.written_bytes = written;
        self.usage.io_whole = is_whole;
    }
}
