//! Passes the user's signals on to the job.
//!
//! A thread of its own waits for them and speaks to the controller over a connection of its own, so
//! a signal gets through even while the output stands still because nobody reads it.

use super::start::connect;
use anyhow::Context;
use nix::sys::signal::{SigSet, Signal};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use tutti_core::{JobId, Rank};
use tutti_linux::disposition::is_ignored;
use tutti_wire::local::{Reply, Request};
use tutti_wire::report::Target;

/// The job that signals go to; zero until it is accepted.
#[derive(Clone, Debug, Default)]
pub(super) struct SignalTarget {
    job: Arc<AtomicU64>,
    /// It has not begun, as far as is known here.
    waits: Arc<AtomicBool>,
    last: Arc<AtomicU8>,
}

impl SignalTarget {
    /// From now on signals go to this job.
    pub(super) fn set(&self, job: JobId) {
        self.job.store(job.0, Ordering::SeqCst);
    }

    /// Whether the job waits in the queue: there is nobody to whom a signal could be passed on.
    pub(super) fn set_waiting(&self, waits: bool) {
        self.waits.store(waits, Ordering::SeqCst);
    }

    /// The last signal that arrived, for an exit without a job.
    pub(super) fn last(&self) -> u8 {
        self.last.load(Ordering::SeqCst)
    }
}

fn passed_on() -> SigSet {
    let mut set = SigSet::empty();
    for signal in [
        Signal::SIGINT,
        Signal::SIGTERM,
        Signal::SIGHUP,
        Signal::SIGQUIT,
        Signal::SIGUSR1,
        Signal::SIGUSR2,
    ] {
        // What is ignored at the start stays so, as `nohup tutti run` and a shell that starts `tutti run &`
        // want it.
        if !is_ignored(signal as i32) {
            set.add(signal);
        }
    }
    set
}

/// Keeps signals waiting until [`pass_on_signals`]. To be called before any other thread exists.
///
/// # Errors
/// If the kernel refuses, which it has no reason to.
pub(super) fn hold_signals() -> std::io::Result<()> {
    Ok(passed_on().thread_block()?)
}

/// Starts to pass signals on.
///
/// # Errors
/// If the thread can't be started.
pub(super) fn pass_on_signals() -> anyhow::Result<SignalTarget> {
    let set = passed_on();
    let target = SignalTarget::default();
    let for_thread = target.clone();
    let thread = std::thread::Builder::new().name("signals".into()).stack_size(128 << 10);
    let begun = thread.spawn(move || {
        let mut interrupts = 0;
        while let Ok(signal) = set.wait() {
            on_signal(&for_thread, signal, &mut interrupts);
        }
    });
    begun.context(
        "tutti run cannot start a thread of its own; `ulimit -u` says how many processes and threads a user may \
         have at once",
    )?;
    Ok(target)
}

/// What a signal means: INT is passed on the first time; asked again it ends the job, and again, at
/// once. A job that waits is taken out of the queue. TERM and HUP end the job. What else is caught is passed on.
fn on_signal(target: &SignalTarget, signal: Signal, interrupts: &mut u32) {
    let number = signal as u8;
    target.last.store(number, Ordering::SeqCst);
    let job = target.job.load(Ordering::SeqCst);
    if job == 0 {
        // Nothing was accepted yet: the controller ends what it may still accept, since its front
        // end is gone.
        std::process::exit(128 + i32::from(number));
    }
    let id = JobId(job);
    let pass = Request::Signal {
        target: Target { job: id, rank: None::<Rank>, pid: None },
        signal: number,
        every_process: false,
    };
    let request = match signal {
        Signal::SIGINT => {
            *interrupts += 1;
            match *interrupts {
                1 if target.waits.load(Ordering::SeqCst) => {
                    say!("tutti: job {job} is taken out of the queue");
                    Request::Cancel { target: id.into(), at_once: false }
                }
                1 => {
                    say!("tutti: sent SIGINT to job {job}; once more ends it");
                    pass
                }
                2 => {
                    say!("tutti: ending job {job}; once more kills it");
                    Request::Cancel { target: id.into(), at_once: false }
                }
                _ => Request::Cancel { target: id.into(), at_once: true },
            }
        }
        Signal::SIGTERM | Signal::SIGHUP => Request::Cancel { target: id.into(), at_once: false },
        _ => pass,
    };
    if let Ok(mut link) = connect() {
        link.send(&request);
        // A job that is gone meanwhile needs no signal.
        let _ = link.call::<Reply>();
    }
}
