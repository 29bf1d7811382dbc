//! A controller that does a round when it is told to: for simulations, which have it beside all the others in
//! one thread.

use super::ahead::Former;
use super::driver::{Driver, blank_core};
use crate::instance::Instance;
use crate::link::{Poller, Ready};
use crate::outside::ways::Stream;
use std::path::{Path, PathBuf};
use tutti_core::{ClusterTime, Core, JobId, Outcome};
use tutti_journal::{Journal, Store};

/// See the head of the file.
pub(crate) struct Stepped {
    driver: Driver,
    ready: Vec<Ready>,
    taken_over: Option<u64>,
    /// Whether it has stored anything itself.
    has_stored: bool,
}

impl Stepped {
    /// One that takes over what is stored; `former` is what is known of the one before, if the machine was not
    /// started since.
    ///
    /// # Errors
    /// If that can't be read.
    pub(crate) fn start(store: Box<dyn Store>, former: Option<Former>) -> anyhow::Result<Self> {
        let opened = Journal::by_hand(store, Path::new("the journal"), blank_core)?;
        let taken_over = opened.1.core.as_ref().map(Core::digest);
        let instance = Instance::at(PathBuf::from("/run/tutti-world"));
        let driver = Driver::over(instance, None, opened, former, 0)?;
        Ok(Self { driver, ready: Vec::new(), taken_over, has_stored: false })
    }

    /// The digest of the state that it took over, if there was one.
    pub(crate) fn taken_over(&self) -> Option<u64> {
        self.taken_over
    }

    /// What the next one is to know of this one.
    pub(crate) fn as_former(&self) -> Former {
        self.driver.as_former()
    }

    /// Whether a controller after it would know all that it knows.
    pub(crate) fn has_stored_all(&self) -> bool {
        self.has_stored && self.driver.memory.journal.failure().is_none()
    }

    /// Somebody has connected.
    ///
    /// # Errors
    /// If the kernel does not say who.
    pub(crate) fn take_in(&mut self, stream: Stream) -> std::io::Result<()> {
        self.driver.take_in(stream)
    }

    /// Whether anything has come that it has not taken in.
    pub(crate) fn look(&mut self) -> bool {
        self.driver.poller.look(&mut self.ready).is_ok() && !self.ready.is_empty()
    }

    /// Readable when something has come.
    pub(crate) fn poller(&self) -> &Poller {
        &self.driver.poller
    }

    /// Does a round; with what [`Self::look`] has found.
    pub(crate) fn round(&mut self) {
        let ready = std::mem::take(&mut self.ready);
        self.driver.round(&ready);
        self.has_stored = true;
        self.ready = ready;
        self.ready.clear();
    }

    /// When it has something to do, by its machine's clock.
    pub(crate) fn due_ns(&self) -> Option<u64> {
        let due = self.driver.deadline();
        (due != ClusterTime::NEVER).then(|| due.0.saturating_sub(self.driver.clock_ahead.0))
    }

    /// What is stored reaches the disk; whether anybody waited for that.
    pub(crate) fn bring_to_disk(&mut self) -> bool {
        self.driver.memory.journal.bring_to_disk()
    }

    /// The state of all decisions.
    pub(crate) fn core(&self) -> &Core {
        &self.driver.core
    }

    /// Cluster time, as it has it.
    pub(crate) fn now(&self) -> ClusterTime {
        self.driver.now()
    }

    /// Jobs that have not ended.
    pub(crate) fn jobs(&self) -> Vec<JobId> {
        self.driver.jobs.keys().copied().collect()
    }

    /// How a job ended, if it is known to have.
    pub(crate) fn ended(&self, job: JobId) -> Option<Outcome> {
        self.driver.ended.get(job).map(|ended| ended.outcome)
    }
}
