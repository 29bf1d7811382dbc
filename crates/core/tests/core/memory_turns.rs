//! Jobs that do not fit into memory beside each other have it in turns.

use crate::cluster::{Cluster, job, params};
use crate::scenarios::why;
use proptest::prelude::*;
use tutti_core::{Action, Event, Forecast, Place, SubmitOptions, WaitReason};
use tutti_types::{ClusterTime, JobId, JobSpec, Nanos, NodeId, UserId};

const S: u64 = 1_000_000_000;

/// Two processors with 1000 bytes of memory, and so much swap space.
fn cluster(space_bytes: u64) -> Cluster {
    let mut c = Cluster::new(params(&[("rows", 4)]));
    c.join(0, 2);
    c.event(Event::NodeSwap { node: NodeId(0), space_bytes });
    c
}

/// Two tasks of a user with so many bytes together.
fn asks(user: u32, bytes: u64) -> JobSpec {
    JobSpec { owner: UserId(user), memory_per_task_bytes: Some(bytes / 2), ..job(2) }
}

fn submit(c: &mut Cluster, user: u32, bytes: u64) -> JobId {
    let options = SubmitOptions { swap: true, ..SubmitOptions::default() };
    c.submits(|request| Event::submit(request, asks(user, bytes), options)).unwrap()
}

fn place(c: &Cluster, job: JobId) -> Place {
    c.core.job(job, ClusterTime(c.now)).unwrap().place
}

/// Whether a job has turns by the latest timetable.
fn has_turns(c: &Cluster, job: JobId) -> bool {
    let slots = c.core.timetable(NodeId(0)).unwrap().slots;
    slots.iter().flat_map(|slot| &slot.candidates).any(|it| it.launch.job == job)
}

/// Time passes, and what is ordered of nodes is done at once: all memory leaves.
fn live(c: &mut Cluster, nanos: u64) {
    let until = c.now + nanos;
    while c.now < until {
        let step = (until - c.now).min(S / 20);
        c.advance(step);
        c.arrive();
        (0..4).for_each(|_| c.answer_swap(0, 0));
        c.arrive();
    }
}

fn orders_out(c: &Cluster) -> usize {
    c.log.iter().filter(|it| matches!(it, Action::Swap { out: true, .. })).count()
}

#[test]
fn a_job_whose_memory_does_not_fit_gets_a_turn_in_memory() {
    let mut c = cluster(10_000);
    let first = submit(&mut c, 1, 600);
    let second = submit(&mut c, 1, 600);
    assert_eq!(why(&c, second), Some(WaitReason::Memory));
    c.advance_ms(999);
    assert_eq!(place(&c, first), Place::Home, "a slice is ten frames at least");
    c.advance_ms(1);
    c.arrive();
    assert_eq!(place(&c, first), Place::Aside);
    assert_eq!(why(&c, second), Some(WaitReason::MemoryLeaves { job: first }));
    c.answer_swap(0, 0);
    assert_eq!(why(&c, second), None);
    assert!(has_turns(&c, second) && !has_turns(&c, first));
    c.advance_ms(1000);
    c.arrive();
    c.answer_swap(0, 0);
    c.arrive();
    c.answer_swap(0, 0);
    assert!(has_turns(&c, first) && !has_turns(&c, second));
    // Alone, a job stays.
    c.finish(second);
    live(&mut c, 10 * S);
    assert!(has_turns(&c, first));
}

#[test]
fn both_jobs_must_be_such_as_may_leave_and_swap_space_must_suffice() {
    for (asked, space) in [([true, false], 10_000), ([false, true], 10_000), ([true, true], 199)] {
        let mut c = cluster(space);
        let jobs = asked.map(|asked| match asked {
            true => submit(&mut c, 1, 600),
            false => c.submit(asks(1, 600)),
        });
        live(&mut c, 10 * S);
        assert_eq!(why(&c, jobs[1]), Some(WaitReason::Memory), "{asked:?} {space}");
        assert!(has_turns(&c, jobs[0]));
    }
}

#[test]
fn slices_are_so_long_that_moving_costs_a_tenth_of_them() {
    let mut c = cluster(10_000);
    submit(&mut c, 1, 600);
    let second = submit(&mut c, 1, 600);
    c.advance_ms(1000);
    c.arrive();
    // 600 bytes left in three seconds.
    c.answer_swap_after(0, 0, Some(Nanos(3 * S)));
    assert!(has_turns(&c, second));
    c.advance_ms(59_900);
    assert_eq!(place(&c, second), Place::Home);
    c.advance_ms(200);
    c.arrive();
    assert_eq!(place(&c, second), Place::Aside, "six seconds of moving are a tenth of a minute");
}

#[test]
fn the_time_of_a_job_that_is_out_goes_to_the_one_that_stands_in_for_it() {
    let mut c = cluster(10_000);
    let beside = c.submit(asks(1, 200));
    let first = submit(&mut c, 2, 600);
    let lengths = |c: &Cluster| {
        let of = |job: &JobId| {
            let row = c.core.job(*job, ClusterTime(c.now)).and_then(|view| view.row);
            let rows = c.core.rows().find(|view| Some(view.id) == row);
            rows.and_then(|row| row.length).map(|it| it.0)
        };
        [beside, first].iter().filter_map(of).collect::<Vec<_>>()
    };
    let even = lengths(&c);
    assert_eq!(even[0], even[1]);
    let second = submit(&mut c, 3, 600);
    live(&mut c, 3 * S);
    assert!(has_turns(&c, second) && place(&c, first) == Place::Aside);
    let slots = c.core.frame().slots.clone();
    let all: u64 = slots.iter().map(|slot| slot.length.0).sum();
    let row = c.core.job(second, ClusterTime(c.now)).unwrap().row;
    let own: u64 = slots.iter().filter(|it| Some(it.row) == row).map(|slot| slot.length.0).sum();
    assert_eq!(own * 3, all * 2, "its own third, and that of the job that is out");
}

#[test]
fn a_forecast_counts_on_turns_in_memory() {
    let mut c = cluster(10_000);
    submit(&mut c, 1, 600);
    let options = SubmitOptions { swap: true, ..SubmitOptions::default() };
    let spec = JobSpec { time_limit: Some(Nanos(S)), ..asks(1, 600) };
    let second = c.submits(|request| Event::submit(request, spec, options)).unwrap();
    let mut forecast = Forecast::of_line(&c.core, ClusterTime(c.now));
    while forecast.step() {}
    let foreseen = forecast.jobs(second).next().unwrap().1;
    let starts = foreseen.starts.expect("it starts without the end of the first");
    assert!(starts <= ClusterTime(c.now + 3 * S / 2), "{starts:?}");
    live(&mut c, 3 * S / 2);
    assert_eq!(why(&c, second), None);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    /// Of jobs that fill the memory each, all have the same time, and none more memory than there
    /// is (see the checks of the cluster).
    #[test]
    fn jobs_that_take_turns_in_memory_have_the_same_time(
        sizes in prop::collection::vec(51u64..=100, 2..=4),
        small in any::<bool>(),
    ) {
        let mut c = cluster(100_000);
        let beside = small.then(|| c.submit(asks(9, 0)));
        let each = (1..).zip(&sizes);
        let jobs: Vec<JobId> = each.map(|(user, size)| submit(&mut c, user, size * 10)).collect();
        live(&mut c, 120 * S);
        let service = |job: &JobId| c.service.get(job).copied().unwrap_or(0);
        let all: Vec<u64> = jobs.iter().map(service).collect();
        let (least, most) = (all.iter().min().unwrap(), all.iter().max().unwrap());
        // They are one slice of ten frames apart at most, and what began late has that to catch up.
        let rows = jobs.len() as u64 + u64::from(small);
        prop_assert!(most - least <= 2 * rows * S, "{all:?}");
        if let Some(beside) = beside {
            let own = service(&beside);
            let whole = own + all.iter().sum::<u64>();
            let share = own * (jobs.len() as u64 + 1);
            prop_assert!(share.abs_diff(whole) <= whole / 5, "{own} of {whole}, {}", jobs.len());
        }
        prop_assert!(orders_out(&c) >= jobs.len());
    }
}
