//! The switch thread without a thread: the simulation says when it wakes up.

use super::{Order, Switch, Thread};
use crate::clock::ClusterClock;
use crate::lease::Lease;
use crate::waker::Bell;
use std::cell::{Cell, RefCell};
use std::sync::mpsc::channel;
use tutti_types::JobId;
use tutti_wire::tree::Settings;

/// See the head of the file.
pub(super) struct Stepped {
    thread: RefCell<Thread>,
    rung: Cell<bool>,
    wake_ns: Cell<u64>,
}

impl std::fmt::Debug for Stepped {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stepped").field("rung", &self.rung).finish_non_exhaustive()
    }
}

impl Stepped {
    pub(super) fn ring(&self) {
        self.rung.set(true);
    }

    /// Does what it was told: a caller waits for that. What follows from it comes with the next
    /// step.
    pub(super) fn hear(&self) {
        self.thread.borrow_mut().hear();
    }
}

impl Switch {
    /// One whose thread only does something in [`Self::step`], or when a caller waits for it.
    pub(crate) fn stepped(
        settings: Settings,
        clock: ClusterClock,
        lease: Lease,
    ) -> std::io::Result<Self> {
        let bell = Bell::new()?;
        let (orders, inbox) = channel::<Order>();
        let parts = (clock, lease);
        let thread = Thread::new(inbox, bell.clone(), settings, parts, "simulated".into());
        let stepped = Stepped {
            thread: RefCell::new(thread),
            rung: Cell::new(true),
            wake_ns: Cell::new(u64::MAX),
        };
        Ok(Self { orders, bell, unheard: false, stepped: Some(stepped) })
    }

    /// When the thread wakes up, by its machine's clock; at once if it was woken.
    pub(crate) fn wake_ns(&self) -> u64 {
        let stepped = self.stepped.as_ref();
        stepped.map_or(u64::MAX, |it| if it.rung.get() { 0 } else { it.wake_ns.get() })
    }

    /// The thread wakes up, does what is due, and sleeps again.
    pub(crate) fn step(&self) {
        let Some(stepped) = &self.stepped else { return };
        stepped.rung.set(false);
        let mut thread = stepped.thread.borrow_mut();
        thread.hear();
        stepped.wake_ns.set(thread.look());
    }

    /// The jobs that are to run, by the timetable that is in effect and the lease.
    pub(crate) fn named(&self) -> Vec<JobId> {
        let thread = self.stepped.as_ref().map(|stepped| stepped.thread.borrow());
        thread.map_or_else(Vec::new, |thread| thread.running_at(thread.moments.latest()))
    }
}
