//! Signals before time limits.

use crate::cluster::{Cluster, job, params};
use tutti_core::{Action, Event, StepAction, SubmitOptions};
use tutti_types::{ClusterTime, FirstStep, JobId, JobSpec, Nanos, RequestId, StepSpec, Warning};

const SECOND: u64 = 1_000_000_000;

/// Two rows of slots of 10 ms on two processors.
fn cluster() -> Cluster {
    let mut c = Cluster::new(params(&[("rows", 2), ("quantum", 10_000_000)]));
    c.join(0, 2);
    c
}

/// A job with a limit of ten seconds that gets signal 12 so long before.
fn submit(c: &mut Cluster, first: FirstStep, before: u64, only_shell: bool) -> JobId {
    let spec = JobSpec { time_limit: Some(Nanos::from_secs(10)), ..job(2) };
    let warning = Some(Warning { signal: 12, before: Nanos::from_secs(before), only_shell });
    let options = SubmitOptions { first, warning, ..SubmitOptions::default() };
    c.submits(|request| Event::submit(request, spec, options)).unwrap()
}

/// Goes on until the core asks to be woken for a signal, and gives the signals that it sends.
fn signals_within(c: &mut Cluster, nanos: u64) -> Vec<Action> {
    let (until, mut found) = (ClusterTime(c.now + nanos), Vec::new());
    let mut core = c.core.clone();
    loop {
        let at = core.wake_at();
        if at > until {
            break;
        }
        let mut actions = Vec::new();
        core.apply(at, &Event::Tick, &mut actions);
        let is_signal = |it: &Action| {
            matches!(
                it,
                Action::Signal { .. }
                    | Action::SignalRoots { .. }
                    | Action::Step(StepAction::Signal { .. })
            )
        };
        found.extend(actions.into_iter().filter(is_signal));
    }
    c.advance(nanos);
    found
}

#[test]
fn the_signal_comes_once_and_is_counted_in_turns_as_the_limit_is() {
    let mut c = cluster();
    let warned = submit(&mut c, FirstStep::EachSlot, 4, false);
    let other = c.submit(job(2));
    // It has every second slot: half of the time.
    assert_eq!(signals_within(&mut c, 11 * SECOND), []);
    let found = signals_within(&mut c, 2 * SECOND);
    assert!(matches!(found[..], [Action::Signal { job, signal: 12, .. }] if job == warned));
    assert_eq!(signals_within(&mut c, 5 * SECOND), []);
    c.finish(other);
    c.drain();
}

#[test]
fn in_a_batch_job_it_goes_to_the_steps_or_to_the_shell_alone() {
    for only_shell in [false, true] {
        let mut c = cluster();
        let batch = submit(&mut c, FirstStep::Once, 4, only_shell);
        let spec = StepSpec {
            tasks: 1,
            processors_per_task: Some(1),
            overlap: false,
            nodes: None,
            grace: Nanos::from_secs(1),
            on_bad_exit: Default::default(),
            lender: None,
            beside: None,
            spawned_by: None,
            on_node: None,
        };
        let request = RequestId(77);
        c.event(Event::SubmitStep { request, job: batch, key: [1; 16], spec });
        let found = signals_within(&mut c, 7 * SECOND);
        match only_shell {
            true => assert!(
                matches!(found[..], [Action::SignalRoots { job, .. }] if job == batch),
                "{found:?}"
            ),
            false => assert!(
                matches!(found[..], [Action::Step(StepAction::Signal { key, .. })] if key.job == batch),
                "{found:?}"
            ),
        }
        c.drain();
    }
}

#[test]
fn a_signal_longer_before_than_the_limit_comes_when_the_tasks_are_there() {
    let mut c = cluster();
    let warned = submit(&mut c, FirstStep::EachSlot, 60, false);
    assert_eq!(signals_within(&mut c, SECOND / 2), []);
    let found = signals_within(&mut c, SECOND);
    assert!(matches!(found[..], [Action::Signal { job, signal: 12, .. }] if job == warned));
    c.drain();
}

#[test]
fn without_a_limit_and_after_its_end_a_job_gets_none() {
    let mut c = cluster();
    let warning = Some(Warning { signal: 12, before: Nanos::from_secs(1), only_shell: false });
    let options = SubmitOptions { warning, ..SubmitOptions::default() };
    c.submits(|request| Event::submit(request, job(1), options)).unwrap();
    let ending = submit(&mut c, FirstStep::EachSlot, 4, false);
    c.cancel(ending, false);
    assert_eq!(signals_within(&mut c, 30 * SECOND), []);
    c.drain();
}
