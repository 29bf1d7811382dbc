//! Passes the user's signals on to the job.
//!
//! A thread of its own waits for them and speaks to the controller over a connection of its own, so
//! a signal gets through even while the output stands still because it is not read.

use super::connect::connect;
use anyhow::Context;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::time::TimeSpec;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;
use tutti_linux::disposition::is_ignored;
use tutti_node::platform::time::monotonic_ns;
use tutti_types::{JobId, Nanos, Rank, StepId, StepKey};
use tutti_wire::local::{Reply, Request};
use tutti_wire::report::Target;
use tutti_wire::units::format_duration_short;

/// The job that signals go to; zero until it is accepted.
#[derive(Clone, Debug, Default)]
pub(super) struct SignalTarget {
    job: Arc<AtomicU64>,
    /// Which step of it.
    step: Arc<AtomicU32>,
    /// It has not begun, as far as is known here.
    waits: Arc<AtomicBool>,
    /// It was asked to end.
    ending: Arc<AtomicBool>,
    last: Arc<AtomicU8>,
}

impl SignalTarget {
    /// From now on signals go to this step.
    pub(super) fn set(&self, key: StepKey) {
        self.step.store(key.step.0, Ordering::SeqCst);
        self.job.store(key.job.0, Ordering::SeqCst);
    }

    fn key(&self) -> StepKey {
        let job = JobId(self.job.load(Ordering::SeqCst));
        StepKey { job, step: StepId(self.step.load(Ordering::SeqCst)) }
    }

    /// Whether the job waits in the queue: there is no task to pass a signal on to.
    pub(super) fn set_waiting(&self, waits: bool) {
        self.waits.store(waits, Ordering::SeqCst);
    }

    /// The job was asked to end: a signal that would ask for that kills it.
    pub(super) fn set_ending(&self) {
        self.ending.store(true, Ordering::SeqCst);
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
        // What is ignored at the start stays so, as `nohup tutti run` and a shell that starts
        // `tutti run &` want it.
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

/// Starts to pass signals on. A job that ignores SIGINT is asked to end after `grace`.
///
/// # Errors
/// If the thread can't be started, or no descriptor is left.
pub(super) fn pass_on_signals(grace: Nanos) -> anyhow::Result<SignalTarget> {
    let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
    let signals = SignalFd::with_flags(&passed_on(), flags)?;
    let target = SignalTarget::default();
    let for_thread = target.clone();
    let thread = std::thread::Builder::new().name("signals".into()).stack_size(128 << 10);
    let begun = thread.spawn(move || {
        let mut ladder = Ladder { interrupts: 0, due_ns: None, grace };
        loop {
            match next_signal(&signals, ladder.due_ns) {
                Some(signal) => on_signal(&for_thread, signal, &mut ladder),
                None => ladder.on_grace_over(&for_thread),
            }
        }
    });
    begun.context(
        "tutti run cannot start a thread of its own; `ulimit -u` says how many processes and threads a user may \
         have at once",
    )?;
    Ok(target)
}

/// How far an interrupted job is on the way to its end.
struct Ladder {
    /// Steps so far: SIGINT passed on, asked to end, killed.
    interrupts: u32,
    /// When a job that was sent SIGINT is asked to end, by the monotonic clock.
    due_ns: Option<u64>,
    /// How long it may take to end of SIGINT.
    grace: Nanos,
}

impl Ladder {
    /// The job has ignored SIGINT.
    fn on_grace_over(&mut self, target: &SignalTarget) {
        self.due_ns = None;
        if self.interrupts == 1 {
            self.interrupts = 2;
            let job = target.key();
            let grace = format_duration_short(self.grace);
            say!(
                "tutti: job {job} did not end of SIGINT within {grace}: ending it; SIGINT kills it"
            );
            send(&cancel(job, false));
        }
    }
}

/// The next signal; nothing if `due_ns` of the monotonic clock comes before it.
fn next_signal(signals: &SignalFd, due_ns: Option<u64>) -> Option<Signal> {
    loop {
        if let Ok(Some(info)) = signals.read_signal() {
            let number = i32::try_from(info.ssi_signo).ok();
            if let Some(signal) = number.and_then(|number| Signal::try_from(number).ok()) {
                return Some(signal);
            }
        }
        let left_ns = due_ns.map(|due_ns| due_ns.saturating_sub(monotonic_ns()));
        if left_ns == Some(0) {
            return None;
        }
        let left = left_ns.map(|left_ns| TimeSpec::from(Duration::from_nanos(left_ns)));
        // Interrupted or not: the next round looks.
        let _ = ppoll(&mut [PollFd::new(signals.as_fd(), PollFlags::POLLIN)], left, None);
    }
}

/// What a signal means: INT is passed on the first time; asked again, or when the job's grace is
/// over, it ends the job, and again, at once. A job that waits is taken out of the queue. TERM and
/// HUP end the job. What else is caught is passed on.
fn on_signal(target: &SignalTarget, signal: Signal, ladder: &mut Ladder) {
    let number = signal as u8;
    target.last.store(number, Ordering::SeqCst);
    let job = target.key();
    if job.job.0 == 0 {
        // Nothing was accepted yet: the controller ends what it may still accept, since its front
        // end is gone.
        std::process::exit(128 + i32::from(number));
    }
    let pass = match job.step {
        StepId::FIRST => Request::Signal {
            target: Target { job: job.job, rank: None::<Rank>, pid: None },
            signal: number,
            every_process: false,
        },
        _ => Request::SignalStep { key: job, signal: number },
    };
    let request = match signal {
        Signal::SIGINT => {
            if target.ending.load(Ordering::SeqCst) {
                ladder.interrupts = ladder.interrupts.max(2);
            }
            ladder.interrupts += 1;
            ladder.due_ns = None;
            match ladder.interrupts {
                1 if target.waits.load(Ordering::SeqCst) => {
                    say!("tutti: job {job} is taken out of the queue");
                    cancel(job, false)
                }
                1 => {
                    let grace = format_duration_short(ladder.grace);
                    say!(
                        "tutti: sent SIGINT to job {job}; it is ended after {grace}, or by SIGINT once more"
                    );
                    ladder.due_ns = Some(monotonic_ns().saturating_add(ladder.grace.0));
                    pass
                }
                2 => {
                    say!("tutti: ending job {job}; once more kills it");
                    cancel(job, false)
                }
                _ => cancel(job, true),
            }
        }
        Signal::SIGTERM | Signal::SIGHUP => cancel(job, false),
        _ => pass,
    };
    send(&request);
}

/// The request to end a job, or a further step of one.
pub(super) fn cancel(key: StepKey, at_once: bool) -> Request {
    match key.step {
        StepId::FIRST => Request::Cancel { target: key.job.into(), at_once },
        _ => Request::CancelStep { key, at_once },
    }
}

fn send(request: &Request) {
    if let Ok(mut link) = connect() {
        link.send(request);
        // A job that is gone meanwhile needs no signal.
        let _ = link.call::<Reply>();
    }
}
