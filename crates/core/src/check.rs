//! The invariants: what must hold of the core after every event, as functions over its state.
//!
//! The numbers in the names of the rules are those of the design's list of what must always hold.
//! Tests and the simulator call [`check`] after each event; nothing in the core relies on it. Here are
//! the rules; the functions are in a file each for places, turns, and waiting.

mod levels;
mod places;
mod turns;
mod waiting;

use crate::apply::Core;
use crate::policy::deadline;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

/// Something that must hold and doesn't: a bug of the core.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which rule is broken.
    pub rule: Rule,
    /// Where and how.
    pub what: String,
}

/// The rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// 2: in a row, a processor is one job's.
    OneJobPerProcessor,
    /// Every resident job that is not preempted has one home row, and its processors exist.
    OneHome,
    /// A preempted job is noted as such; there is none under a policy that preempts none.
    Aside,
    /// A job with a wish about its nodes has them as wished.
    Wish,
    /// A node that is drained or out of reach takes no new job, and all others do.
    Drained,
    /// The counts by which processors are found agree with the jobs that have them.
    FreeProcessors,
    /// No home could move to another row where it should be, and no job could be a guest where it isn't.
    Compact,
    /// 3: the jobs that run in a slot are the same for all nodes of a gang.
    GangWhole,
    /// Every node has the same frame, and no suspended job is in it.
    SameFrame,
    /// 7: each class gets its share of the frame, and no slot is too short.
    Shares,
    /// Of a counted resource, jobs have no more than there is unless it was lowered, and each has
    /// what it asked for.
    Resources,
    /// 2: a device that several jobs have is of two of them in no slot, and all of them may have it
    /// in turns.
    Devices,
    /// Memory allocated on a node is that of the jobs on it, and no more than it has.
    Memory,
    /// Every resident job has an account that counts the slots it runs in.
    Accounts,
    /// 5: every job is either resident or in exactly one place of the queue, and none waits for
    /// nothing.
    Queue,
    /// In a row that a class keeps are jobs of that class. One that was given another class by
    /// request stays there.
    KeptRows,
    /// 5: what counts towards the limits of queues is what its jobs have; no job in line exceeds a
    /// limit, and none waits for a limit that has room.
    Limits,
    /// Each job in line has one place in it, by its class, its user's use, and its arrival; a job with a
    /// promise is the first.
    Line,
    /// 7: a job with a reservation is not moved back by later jobs, while jobs end by their limits.
    Reservations,
    /// A place is kept for a job that goes on on other processors.
    Migration,
    /// Under the policy `classes`: no job waits that could have processors, a job that is to be
    /// preempted is, and what is reserved may be.
    ByClass,
    /// The jobs of a spent allowance count as standby, and no others for that reason.
    Bank,
    /// Whatever is due for a job is noted.
    Deadlines,
    /// 7: a job that was promised to be done by a deadline has time enough until then, which no
    /// other has; and no processor idles that a job could use.
    Promises,
    /// Under the policy `dhc`: controllers of blocks know what is true of the matrix. No job is in
    /// a row of a lower level, and rounds go from the top level down.
    Levels,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.rule, self.what)
    }
}

/// All that is violated. Legal between two calls of [`Core::apply`].
#[must_use]
pub fn check(core: &Core) -> Vec<Violation> {
    let mut violations = Vec::new();
    let mut report = |rule, what| violations.push(Violation { rule, what });
    places::check(core, &mut report);
    turns::check(core, &mut report);
    waiting::check(core, &mut report);
    deadline::check(core, &mut report);
    levels::check(core, &mut report);
    violations
}

pub(crate) type Report<'a> = dyn FnMut(Rule, String) + 'a;
