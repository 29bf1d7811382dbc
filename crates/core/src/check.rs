//! The invariants: what must hold of the core after every event, as functions over its state.
//!
//! The numbers in the names of the rules are those of the design's list of what must always hold.
//! Tests and the simulator call [`check`] after each event; nothing in the core relies on it. Here are
//! the rules; the functions are in a file each for who is where, who runs when, and who waits for what.

mod places;
mod turns;
mod waiting;

use crate::controller::Core;
use crate::deadline;
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
    /// Every resident job that is not set aside has one home row, and its processors exist.
    OneHome,
    /// Who is set aside is noted as such; nobody is under a policy that sets nobody aside.
    Aside,
    /// Who has a wish about its nodes has them as wished.
    Wish,
    /// Whatever node is drained or out of reach takes nobody new, and none else.
    Drained,
    /// The counts by which processors are found agree with who has them.
    FreeProcessors,
    /// No home could move to another row where it should be, and no job could be a guest where it isn't.
    Compact,
    /// 3: who runs in a slot is the same for all nodes of a gang.
    GangWhole,
    /// Every node has the same frame, and no suspended job is in it.
    SameFrame,
    /// 7: each class gets its share of the frame, and no slot is too short.
    Shares,
    /// Memory promised on a node is that of the jobs on it, and no more than it has.
    Memory,
    /// Every resident job has an account that counts the slots it runs in.
    Accounts,
    /// 5: every job is either resident or in exactly one place of the queue, and nobody waits for
    /// nothing.
    Queue,
    /// 7: who has a reservation is not moved back by later jobs, while jobs end by their limits.
    Reservations,
    /// A place is kept for whoever goes on on other processors.
    Migration,
    /// Under the policy `classes`: nobody waits who could have processors, who is to be set aside is, and
    /// what is reserved may be.
    ByClass,
    /// Whose allowance is spent, his jobs count as standby, and nobody else's for that reason.
    Bank,
    /// Whatever is due for a job is noted.
    Deadlines,
    /// 7: who was promised to be done by a deadline has time enough until then, which is nobody
    /// else's; and no processor idles that somebody could use.
    Promises,
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
    violations
}

pub(crate) type Report<'a> = dyn FnMut(Rule, String) + 'a;
