//! Random lives of a cluster: whatever users, administrators, tasks and failures can do to the
//! core, from a seed, with everything checked after every event.
//!
//! A [`Script`] is what happens, step by step. [`Script::random`] makes one; [`play`] plays it in a
//! pretended [`Cluster`], twice, since the same events must give the same actions, also from a core
//! that was stored and read in between, and ends everything, since nothing must be left;
//! [`shrink()`] makes one that fails as short as it can. Scripts are text, a line a step, so that
//! one that failed can be kept and played again.
//!
//! Parameters and rules of classes are set by their tables: what is added there is tried here
//! without more ado. A new event needs a [`Step`], a line in the table of `random.rs`, and what it
//! does in `step.rs`.

mod cluster;
mod images;
mod random;
mod script;
mod shrink;
mod step;
mod swaps;

pub use cluster::{Cluster, Held, job, node_spec, params, shared};
pub use random::Who;
pub use script::{Script, ScriptError, Start};
pub use shrink::shrink;
pub use step::Step;

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;
use tutti_core::Core;

/// Why a script failed: what was wrong, and after how many steps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The steps that were played, with the one that failed; all of them if it was the end that
    /// did.
    pub steps: usize,
    /// What was wrong.
    pub what: String,
}

/// Plays a script to its end.
///
/// # Errors
/// If anything is wrong at any time.
pub fn play(script: &Script) -> Result<(), Failure> {
    let played = Cell::new(0_usize);
    quietly(|| {
        let mut first = script.begin();
        let mut second = script.begin();
        for step in &script.steps {
            played.set(played.get() + 1);
            step.take(&mut first);
            step.take(&mut second);
            if played.get().is_multiple_of(STORED_EVERY) {
                second.core = stored_and_read(&second.core);
            }
            assert_eq!(first.log, second.log, "the same events gave other actions");
            first.log.clear();
            second.log.clear();
        }
        let digests = (first.core.digest(), second.core.digest());
        assert_eq!(digests.0, digests.1, "the same events led to another state");
        if let Some(longest) = script.longest_wait() {
            // The time of a job that is out for another's turn in memory goes to another row.
            let longest = longest + first.swapped_out() * first.core.params().quantum().0;
            assert!(first.longest_wait <= longest, "a row waited {} ns", first.longest_wait);
        }
        first.drain();
    })
    .map_err(|what| Failure { steps: played.get(), what })
}

/// After so many steps the second core is stored and read again: one that a controller takes over
/// must go on as the one that was never away.
const STORED_EVERY: usize = 7;

fn stored_and_read(core: &Core) -> Core {
    let stored = postcard::to_allocvec(core).expect("all of a core can be written");
    postcard::from_bytes(&stored).expect("all of a core can be read")
}

thread_local! {
    static QUIET: Cell<bool> = const { Cell::new(false) };
}

/// Says what a panic said, instead of letting it through.
fn quietly(work: impl FnOnce()) -> Result<(), String> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let usual = take_hook();
        set_hook(Box::new(move |panic| {
            if !QUIET.get() {
                usual(panic);
            }
        }));
    });
    QUIET.set(true);
    let result = catch_unwind(AssertUnwindSafe(work));
    QUIET.set(false);
    result.map_err(|panic| said(&*panic))
}

fn said(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("it panicked").to_owned()
}
