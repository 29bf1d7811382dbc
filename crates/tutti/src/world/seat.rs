//! Where a daemon of a machine sits: it may be there or not, stopped or slow, and wakes up when something
//! comes or its time is.

use crate::{agent, controller, keeper};

/// Any of the daemons.
#[expect(clippy::large_enum_variant, reason = "each is there once")]
pub(super) enum Any {
    Controller(controller::Stepped),
    Agent(agent::Stepped),
    Keeper(keeper::Stepped),
}

/// See the head of the file.
#[derive(Default)]
pub(super) struct Seat {
    pub(super) daemon: Option<Any>,
    /// How often one has sat here.
    pub(super) life: u64,
    /// When it is to wake up, in the world's time.
    pub(super) wake_ns: Option<u64>,
    /// It does nothing before that: somebody has stopped it.
    pub(super) stopped_until_ns: u64,
    /// When it wants to do something by itself, in the world's time.
    pub(super) due_ns: Option<u64>,
}

impl Any {
    pub(super) fn look(&mut self) -> bool {
        match self {
            Self::Controller(controller) => controller.look(),
            Self::Agent(agent) => agent.look(),
            Self::Keeper(keeper) => keeper.look(),
        }
    }

    /// False if it has ended.
    pub(super) fn round(&mut self) -> bool {
        match self {
            Self::Controller(controller) => {
                controller.round();
                true
            }
            Self::Agent(agent) => agent.round(),
            Self::Keeper(keeper) => keeper.round(),
        }
    }

    pub(super) fn due_ns(&self) -> Option<u64> {
        match self {
            Self::Controller(controller) => controller.due_ns(),
            Self::Agent(agent) => agent.due_ns(),
            Self::Keeper(keeper) => keeper.due_ns(),
        }
    }
}
