//! Job arrays: each element runs once, never more at once than the limit says.

use crate::cluster::{Cluster, job};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use tutti_core::{Core, ElementOrder, ElementState, Event, HeldBy, SubmitOptions};
use tutti_types::{
    After, AfterJobs, AfterWhat, ArraySpec, EndReason, JobId, Positions, QueueLimits, QueueName,
    QueueRefusal, QueueSpec, Refusal, TaskStatus,
};

fn array_with(cluster: &mut Cluster, text: &str, options: SubmitOptions) -> Option<JobId> {
    let array: ArraySpec = text.parse().unwrap();
    let spec = job(1);
    cluster.submits(|request| Event::SubmitArray { request, spec, options, array })
}

fn array(cluster: &mut Cluster, text: &str) -> JobId {
    array_with(cluster, text, SubmitOptions::default()).expect("accepted")
}

fn started(cluster: &Cluster, array: JobId) -> Vec<JobId> {
    let view = cluster.core.array(array);
    view.map_or_else(Vec::new, |view| view.started.iter().copied().collect())
}

/// Ends what runs of an array until nothing does.
fn run_out(cluster: &mut Cluster, array: JobId) {
    while let Some(&first) = started(cluster, array).first() {
        cluster.end_tasks(first, TaskStatus::Exited(0));
        cluster.clear(first);
        cluster.advance_ms(1);
    }
}

#[test]
fn waiting_elements_are_no_jobs_and_few_are_in_line() {
    let mut cluster = Cluster::with_nodes(&[2]);
    let array = array(&mut cluster, "0-99999");
    let view = cluster.core.array(array).unwrap();
    assert!(view.queued.len() <= 32, "{} in line", view.queued.len());
    assert!(!view.started.is_empty());
    let made = view.queued.len() + view.started.len();
    assert_eq!(cluster.core.job_count(), made, "the others cost no record");
    assert_eq!(view.unmade() as usize + made, 100_000);
    let (first, last) = {
        let state = view.states();
        (state(0), state(99_999))
    };
    assert!(matches!(first, ElementState::Job(_)), "{first:?}");
    assert_eq!(last, ElementState::Waiting);
    cluster.cancel(array, true);
    assert!(cluster.core.array(array).is_some(), "elements that run have not ended yet");
    cluster.drain();
    assert!(cluster.core.array(array).is_none());
    assert_eq!(cluster.outcomes[&array].reason, EndReason::Cancelled);
}

#[test]
fn a_limit_counts_elements_in_line_and_elements_that_run() {
    let mut cluster = Cluster::with_nodes(&[8]);
    let array = array(&mut cluster, "1-9:2%2");
    let mut indices = BTreeSet::new();
    for _ in 0..5 {
        let runs = started(&cluster, array);
        assert!(runs.len() <= 2, "{runs:?}");
        let first = runs[0];
        indices.insert(cluster.core.element_of(first).unwrap());
        cluster.end_tasks(first, TaskStatus::Exited(0));
        cluster.clear(first);
    }
    assert_eq!(indices.len(), 5, "each once");
    assert!(cluster.outcomes[&array].ended_well());
}

#[test]
fn an_array_starts_after_another_as_a_whole() {
    let mut cluster = Cluster::with_nodes(&[1]);
    let first = array(&mut cluster, "0-2");
    let options = |what| SubmitOptions {
        after: Some(AfterJobs { jobs: vec![After { job: first, what }], ..AfterJobs::default() }),
        ..SubmitOptions::default()
    };
    let second = array_with(&mut cluster, "0-1", options(AfterWhat::Ok)).unwrap();
    let never = array_with(&mut cluster, "0-1", options(AfterWhat::NotOk)).unwrap();
    assert!(started(&cluster, second).is_empty());
    assert!(cluster.core.why_array_waits(second).is_some());
    run_out(&mut cluster, first);
    assert_eq!(cluster.outcomes[&never].reason, EndReason::NeverAfter(first));
    run_out(&mut cluster, second);
    assert!(cluster.outcomes[&second].ended_well());
}

#[test]
fn held_elements_wait_for_the_one_that_holds_them() {
    let mut cluster = Cluster::with_nodes(&[4]);
    let options = SubmitOptions { hold: Some(HeldBy::Owner), ..SubmitOptions::default() };
    let array = array_with(&mut cluster, "0-9", options).unwrap();
    assert!(cluster.elements.is_empty());
    let some = |first: u32, last: u32| Positions::of((first..=last).collect());
    let mut order = |positions, order| {
        cluster.event(Event::Elements { array, positions, order });
        let view = cluster.core.array(array).unwrap();
        (view.held.count(), view.held_by_administrator.count())
    };
    let by = HeldBy::Administrator;
    assert_eq!(order(some(0, 3), ElementOrder::Hold { by }), (6, 4));
    let by = HeldBy::Owner;
    assert_eq!(order(some(2, 4), ElementOrder::Release { by }), (5, 4), "not an administrator's");
    cluster.event(Event::Release { job: array, by: HeldBy::Administrator });
    assert_eq!(cluster.elements.len(), 10, "room for four, and all are in line");
}

#[test]
fn held_elements_make_room_in_line_for_others() {
    let mut cluster = Cluster::with_nodes(&[1]);
    let array = array(&mut cluster, "0-99");
    let positions = Positions::of((0..=31).collect());
    let order = ElementOrder::Hold { by: HeldBy::Owner };
    cluster.event(Event::Elements { array, positions, order });
    let in_line = |cluster: &Cluster| {
        let view = cluster.core.array(array).unwrap();
        view.queued.iter().filter(|&&job| cluster.core.held_by(job).is_none()).count()
    };
    assert_eq!(in_line(&cluster), 32, "those behind the held ones");
    cluster.event(Event::Hold { job: array, by: HeldBy::Owner });
    assert_eq!(in_line(&cluster), 0);
    let positions = Positions::of([90].into());
    let order = ElementOrder::Release { by: HeldBy::Owner };
    cluster.event(Event::Elements { array, positions, order });
    assert_eq!(in_line(&cluster), 1, "the one that is released");
    run_out(&mut cluster, array);
    assert!(cluster.elements.contains_key(&(array, 90)), "it has come into line");
    assert_eq!(in_line(&cluster), 0, "and has run");
}

#[test]
fn elements_count_as_waiting_jobs_of_their_queue() {
    let mut cluster = Cluster::with_nodes(&[1]);
    let name = QueueName::new("short");
    let mut limits = QueueLimits::default();
    limits.set("user_waiting", 10).unwrap();
    let spec = QueueSpec { limits, ..QueueSpec::default() };
    cluster.event(Event::SetQueue { name: name.clone(), spec: Some(spec) });
    let options = SubmitOptions { queue: Some(name), ..SubmitOptions::default() };
    assert!(array_with(&mut cluster, "0-10", options.clone()).is_none());
    let refusal = cluster.refusals.pop();
    assert!(matches!(refusal, Some(Refusal::Queue(QueueRefusal::Full { .. }))), "{refusal:?}");
    let array = array_with(&mut cluster, "0-9", options.clone()).unwrap();
    // Those that run do not wait.
    let room = started(&cluster, array).len();
    assert!(room > 0);
    assert!(array_with(&mut cluster, &format!("0-{room}"), options.clone()).is_none());
    assert!(array_with(&mut cluster, &format!("1-{room}"), options).is_some());
}

#[derive(Clone, Debug)]
enum Act {
    End(usize, u8),
    Cancel(u32, u32, bool),
    Hold(u32, u32, bool),
    Release(u32, u32, bool),
    Kills,
    Restart,
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        6 => (any::<usize>(), 0u8..3).prop_map(|(which, code)| Act::End(which, code)),
        1 => (0u32..40, 0u32..4, any::<bool>()).prop_map(|(a, n, it)| Act::Cancel(a, a + n, it)),
        1 => (0u32..40, 0u32..9, any::<bool>()).prop_map(|(a, n, it)| Act::Hold(a, a + n, it)),
        2 => (0u32..40, 0u32..9, any::<bool>()).prop_map(|(a, n, it)| Act::Release(a, a + n, it)),
        2 => Just(Act::Kills),
        1 => Just(Act::Restart),
    ]
}

/// A core as the next controller reads it.
fn restored(core: &Core) -> Core {
    let bytes = postcard::to_allocvec(core).unwrap();
    postcard::from_bytes(&bytes).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn each_element_runs_once_and_never_more_than_the_limit_at_once(
        count in 1u32..40,
        limit in prop::option::of(1u32..6),
        width in 1u32..5,
        acts in prop::collection::vec(act(), 0..80),
    ) {
        let mut cluster = Cluster::with_nodes(&[width]);
        let limited = limit.map_or(String::new(), |limit| format!("%{limit}"));
        let array = array(&mut cluster, &format!("0-{}{limited}", count - 1));
        let by = |it| if it { HeldBy::Owner } else { HeldBy::Administrator };
        let some = |first, last| Positions::of((first..=last).collect());
        let mut runs: BTreeMap<u32, JobId> = BTreeMap::new();
        for act in acts {
            let reason = EndReason::Cancelled;
            let (positions, order) = match act {
                Act::End(which, code) => {
                    let running = started(&cluster, array);
                    if let Some(&job) = running.get(which % running.len().max(1)) {
                        cluster.end_tasks(job, TaskStatus::Exited(code));
                        cluster.clear(job);
                    }
                    continue;
                }
                Act::Kills => {
                    cluster.advance_ms(1500);
                    cluster.deliver_kills();
                    continue;
                }
                Act::Restart => {
                    cluster.core = restored(&cluster.core);
                    continue;
                }
                Act::Cancel(first, last, at_once) => {
                    (some(first, last), ElementOrder::Cancel { reason, at_once })
                }
                Act::Hold(first, last, it) => (some(first, last), ElementOrder::Hold { by: by(it) }),
                Act::Release(first, last, it) => {
                    (some(first, last), ElementOrder::Release { by: by(it) })
                }
            };
            cluster.event(Event::Elements { array, positions, order });
            let now = started(&cluster, array);
            prop_assert!(limit.is_none_or(|limit| now.len() <= limit as usize));
            for job in now {
                let (_, position) = cluster.core.element_of(job).unwrap();
                prop_assert_eq!(*runs.entry(position).or_insert(job), job, "twice");
            }
        }
        for job in cluster.accepted.clone().into_iter().chain([array]) {
            cluster.event(Event::Release { job, by: HeldBy::Administrator });
        }
        for _ in 0..200 {
            cluster.advance_ms(1500);
            cluster.deliver_kills();
            run_out(&mut cluster, array);
        }
        prop_assert!(cluster.core.array(array).is_none(), "it has ended");
        let made = cluster.elements.len();
        prop_assert!(made <= count as usize);
        let cancelled = count as usize - made;
        prop_assert!(cancelled == 0 || !cluster.outcomes[&array].ended_well());
    }
}

fn each(cluster: &mut Cluster, text: &str, job: JobId, stays: bool) -> Option<JobId> {
    let jobs = vec![After { job, what: AfterWhat::Each }];
    let after = Some(AfterJobs { jobs, one: false, stays });
    array_with(cluster, text, SubmitOptions { after, ..SubmitOptions::default() })
}

/// The indices of an array's elements that have started.
fn running(cluster: &Cluster, array: JobId) -> BTreeSet<u32> {
    let Some(view) = cluster.core.array(array) else { return BTreeSet::new() };
    let index = |job: &JobId| view.array.indices.at(cluster.core.element_of(*job)?.1);
    view.started.iter().filter_map(index).collect()
}

fn end_index(cluster: &mut Cluster, array: JobId, index: u32, code: u8) {
    let view = cluster.core.array(array).unwrap();
    let is_it = |job: &&JobId| {
        let (_, position) = cluster.core.element_of(**job).unwrap();
        view.array.indices.at(position) == Some(index)
    };
    let job = *view.started.iter().find(is_it).expect("runs");
    cluster.end_tasks(job, TaskStatus::Exited(code));
    cluster.clear(job);
    cluster.advance_ms(1);
}

#[test]
fn each_element_starts_after_the_one_of_its_index() {
    for stays in [false, true] {
        let mut c = Cluster::with_nodes(&[8]);
        let first = array(&mut c, "1-4");
        let second = each(&mut c, "2-4", first, stays).expect("accepted");
        assert_eq!(running(&c, second), BTreeSet::new());
        assert!(c.core.why_array_waits(second).is_some(), "it says what it waits for");
        end_index(&mut c, first, 3, 0);
        assert_eq!(running(&c, second), [3].into());
        // What fails ends the one of its index alone, or keeps it for ever.
        end_index(&mut c, first, 2, 1);
        end_index(&mut c, first, 4, 0);
        assert_eq!(running(&c, second), [3, 4].into());
        let view = c.core.array(second).unwrap();
        assert_eq!((view.ends.cancelled, view.unmade()), if stays { (0, 1) } else { (1, 0) });
        end_index(&mut c, first, 1, 0);
        assert!(c.core.array(first).is_none());
        end_index(&mut c, second, 3, 0);
        end_index(&mut c, second, 4, 0);
        assert_eq!(c.core.array(second).is_some(), stays);
        if stays {
            c.cancel(second, false);
        } else {
            assert_eq!(c.outcomes[&second].reason, EndReason::NeverAfter(first));
        }
        assert!(c.core.array(second).is_none());
        c.drain();
    }
}

#[test]
fn elements_that_ended_before_a_pair_was_made_count_too() {
    let mut c = Cluster::with_nodes(&[8]);
    let first = array(&mut c, "1-4");
    end_index(&mut c, first, 1, 0);
    end_index(&mut c, first, 2, 7);
    let second = each(&mut c, "1-4", first, false).expect("accepted");
    assert_eq!(running(&c, second), [1].into());
    assert_eq!(c.core.array(second).unwrap().ends.cancelled, 1);
    // An array that is cancelled ends what waits for its elements, through all that follow.
    let third = each(&mut c, "3,4", second, false).expect("accepted");
    c.cancel(first, true);
    c.deliver_kills();
    c.advance_ms(1);
    assert!(c.core.array(third).is_none(), "none of its elements could start");
    assert_eq!(c.outcomes[&third].reason, EndReason::NeverAfter(second));
    c.drain();
}

#[test]
fn only_arrays_that_have_all_indices_can_go_before() {
    let mut c = Cluster::with_nodes(&[8]);
    let first = array(&mut c, "1-4");
    let single = c.submit(job(1));
    for (text, job) in [("0-4", first), ("1-2", single)] {
        assert_eq!(each(&mut c, text, job, false), None);
        assert_eq!(c.refusals.last(), Some(&Refusal::AfterEach { job }));
    }
    let jobs = vec![After { job: first, what: AfterWhat::Each }];
    let after = Some(AfterJobs { jobs, ..AfterJobs::default() });
    let options = SubmitOptions { after, ..SubmitOptions::default() };
    c.submits(|request| Event::SubmitWith { request, spec: job(1), options });
    assert_eq!(c.refusals.last(), Some(&Refusal::AfterEach { job: first }));
    c.drain();
}
