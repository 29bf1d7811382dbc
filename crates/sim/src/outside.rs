//! A policy that is no part of the core: what the simulator asks of it.

use tutti_core::{Core, Event};
use tutti_types::ClusterTime;

/// A policy outside of the core, under `policy=external`.
pub trait Outside {
    /// The core has taken in an event.
    fn note(&mut self, core: &Core, event: &Event);

    /// When it wants to be asked next; a moment that has come: at once.
    fn due(&self, now: ClusterTime) -> ClusterTime;

    /// Asks it, and waits for its answer.
    ///
    /// # Errors
    /// Why it gives none; the simulation ends with that.
    fn ask(&mut self, core: &Core, now: ClusterTime) -> Result<(), String>;

    /// The next event that follows from its answer.
    fn next(&mut self, core: &Core, now: ClusterTime) -> Option<Event>;
}
