//! Time by class, user and row, and rows that a class keeps.

use crate::cluster::{Cluster, job, params};
use crate::scenarios::{matrix, why};
use tutti_core::{Event, WaitReason};
use tutti_types::class::{ClassSpec, default_classes};
use tutti_types::{ClassName, JobId, JobSpec, Nanos, UserId};

fn of(user: u32, class: &str, tasks: u32) -> JobSpec {
    JobSpec { owner: UserId(user), class: ClassName::new(class), ..job(tasks) }
}

/// A node of two processors, where four jobs of a user take turns, and more are in line.
fn busy(queued: u64) -> Cluster {
    let mut c = Cluster::with_nodes(&[2]);
    for _ in 0..4 + queued {
        c.submit(of(1, "production", 2));
    }
    c
}

fn row_of(c: &Cluster, job: JobId) -> Option<u64> {
    c.core.job(job, tutti_types::ClusterTime(c.now)).and_then(|view| view.row).map(|row| row.0)
}

fn keep_rows(c: &mut Cluster, class: &str, rows: u64) {
    let class = ClassName::new(class);
    let spec = default_classes()[&class].with("rows", rows).unwrap();
    c.event(Event::SetClass { class, spec });
}

fn rows_in_turn(c: &Cluster) -> Vec<u64> {
    c.core.frame().slots.iter().map(|slot| slot.row.0).collect()
}

#[test]
fn users_have_equal_parts_of_the_time_whatever_they_run() {
    let mut c = Cluster::with_nodes(&[2]);
    c.event(Event::SetParams { params: params(&[("rows", 8)]) });
    let first = c.submit(of(1, "production", 2));
    assert_eq!(matrix(&c), "1 100ms: 1@0/0-1\n");
    for _ in 0..2 {
        c.submit(of(1, "production", 2));
    }
    let other = c.submit(of(2, "production", 2));
    let lengths = |c: &Cluster| {
        let rows = c.core.rows();
        rows.map(|row| row.length.unwrap().0 / 100_000).collect::<Vec<_>>()
    };
    assert_eq!(lengths(&c), [666, 666, 666, 2000]);
    assert_eq!(rows_in_turn(&c).iter().filter(|&&row| row == 4).count(), 2, "in two slots");
    // One of them comes beside a job of the other: its row has that part, too.
    c.finish(other);
    assert_eq!(lengths(&c), [1000, 1000, 1000]);
    c.finish(first);
    assert_eq!(lengths(&c), [1000, 1000]);
}

/// Where the only task of a job is.
fn processor_of(c: &Cluster, job: JobId) -> String {
    c.core.parts(job)[0].processors.to_string()
}

#[test]
fn among_processors_with_as_many_jobs_the_one_that_is_free_first_is_taken() {
    let limited = |seconds| JobSpec { time_limit: Some(Nanos::from_secs(seconds)), ..job(1) };
    let placed = |order: u64| {
        let mut c = Cluster::with_nodes(&[3]);
        c.event(Event::SetParams { params: params(&[("order", order), ("migration", 0)]) });
        c.submit(limited(1000));
        c.submit(job(1));
        c.submit(limited(100));
        let next = c.submit(job(1));
        processor_of(&c, next)
    };
    // By arrival, the first one is.
    assert_eq!((placed(0), placed(1)), ("2".into(), "0".into()));
    // What the jobs have had is taken off.
    let mut c = Cluster::with_nodes(&[2]);
    c.event(Event::SetParams { params: params(&[("migration", 0)]) });
    let (first, second) = (c.submit(limited(10)), c.submit(limited(8)));
    c.advance_ms(5_000);
    c.finish(second);
    let second = c.submit(limited(8));
    assert_eq!((processor_of(&c, first), processor_of(&c, second)), ("0".into(), "1".into()));
    let next = c.submit(job(1));
    assert_eq!(processor_of(&c, next), "0", "5 s are left there, and 8 s on the other");
}

#[test]
fn jobs_of_a_class_share_processors_with_each_other_rather_than_with_others() {
    let mut c = Cluster::with_nodes(&[2]);
    c.submit(of(1, "production", 1));
    let standby = JobSpec { time_limit: Some(Nanos::from_secs(90_000)), ..of(1, "standby", 1) };
    c.submit(standby);
    let [standby, other] = ["standby", "production"].map(|class| c.submit(of(1, class, 1)));
    assert_eq!((processor_of(&c, standby), processor_of(&c, other)), ("1".into(), "0".into()));
}

#[test]
fn among_nodes_that_are_as_loaded_the_one_that_is_free_first_is_taken() {
    let mut c = Cluster::with_nodes(&[1, 1, 1]);
    let limited = |seconds| JobSpec { time_limit: Some(Nanos::from_secs(seconds)), ..job(1) };
    for seconds in [300, 200, 100] {
        c.submit(limited(seconds));
    }
    let next = c.submit(job(1));
    assert_eq!(c.core.parts(next)[0].node.0, 2);
}

#[test]
fn a_quick_job_starts_whatever_is_queued_and_its_turn_is_next() {
    let mut c = busy(50);
    let next = c.submit(of(1, "production", 2));
    c.advance_ms(130);
    assert_eq!(rows_in_turn(&c), [1, 2, 3, 4]);
    let quick = c.submit(of(2, "interactive", 1));
    assert_eq!((why(&c, quick), row_of(&c, quick)), (None, Some(5)));
    assert_eq!(rows_in_turn(&c)[..3], [2, 5, 3], "in the second slot, it is next");
    assert_eq!(why(&c, next), Some(WaitReason::Behind(JobId(54))));
    // The second one fits beside it.
    let second = c.submit(of(3, "interactive", 1));
    assert_eq!(row_of(&c, second), Some(5));
    // Each of these needs a row of its own.
    let third = c.submit(of(3, "interactive", 2));
    assert_eq!(row_of(&c, third), Some(6));
    let (fourth, fifth) = (c.submit(of(3, "interactive", 2)), c.submit(of(3, "interactive", 1)));
    let kept = WaitReason::KeptRows { limit: 4, kept: 2 };
    assert_eq!((why(&c, fourth), why(&c, fifth)), (Some(kept), Some(WaitReason::Behind(fourth))));
    assert_eq!(
        kept.to_string(),
        "all 4 rows are in use, and so are the 2 more that its class keeps"
    );
    c.finish(third);
    assert_eq!((row_of(&c, fourth), why(&c, fifth)), (Some(7), Some(kept)));
}

#[test]
fn jobs_of_other_classes_open_no_kept_row_and_are_only_guests_there() {
    let mut c = busy(0);
    let waits = c.submit(of(2, "production", 1));
    assert_eq!(why(&c, waits), Some(WaitReason::Rows { limit: 4 }));
    c.submit(of(2, "interactive", 1));
    assert_eq!(why(&c, waits), Some(WaitReason::Rows { limit: 4 }), "not beside the quick one");
    c.finish(JobId(1));
    assert_eq!(row_of(&c, waits), Some(6), "but in place of an ordinary row");
}

#[test]
fn a_kept_row_becomes_ordinary_when_there_is_room_and_no_job_waits() {
    let mut c = busy(0);
    let quick = c.submit(of(2, "interactive", 2));
    assert_eq!(row_of(&c, quick), Some(5));
    c.finish(JobId(2));
    // It is one of four now: two more of its class may come.
    let more: Vec<JobId> = (0..3).map(|_| c.submit(of(3, "interactive", 2))).collect();
    let rows: Vec<Option<u64>> = more.iter().map(|&job| row_of(&c, job)).collect();
    assert_eq!(rows, [Some(6), Some(7), None]);
    // A row in which its processors come free takes a quick job in, and the kept one goes.
    let mut c = Cluster::with_nodes(&[2]);
    let jobs: Vec<JobId> = (0..8).map(|_| c.submit(of(1, "production", 1))).collect();
    let quick = c.submit(of(2, "interactive", 1));
    assert_eq!(row_of(&c, quick), Some(5));
    c.finish(jobs[2]);
    assert_eq!(row_of(&c, quick), Some(4), "another one moved to the row that had room");
    assert_eq!(c.core.rows().count(), 4);
}

#[test]
fn no_class_keeps_rows_where_no_job_takes_turns() {
    for (name, value) in [("rows", 1), ("policy", 1)] {
        let mut c = Cluster::with_nodes(&[2]);
        c.event(Event::SetParams { params: params(&[(name, value)]) });
        c.submit(of(1, "production", 2));
        let quick = c.submit(of(2, "interactive", 1));
        assert_eq!(why(&c, quick), Some(WaitReason::Rows { limit: 1 }));
    }
    // Rows that were kept are ordinary ones of too many then.
    let mut c = busy(1);
    let quick = c.submit(of(2, "interactive", 2));
    c.event(Event::SetParams { params: params(&[("policy", 1)]) });
    assert_eq!(
        (row_of(&c, quick), why(&c, JobId(5))),
        (Some(5), Some(WaitReason::Rows { limit: 1 }))
    );
}

#[test]
fn a_class_keeps_as_many_rows_as_its_rule_says() {
    let mut c = busy(1);
    keep_rows(&mut c, "interactive", 0);
    let quick = c.submit(of(2, "interactive", 2));
    // It is the first in line, by the priority of its class.
    assert_eq!(why(&c, quick), Some(WaitReason::Rows { limit: 4 }));
    keep_rows(&mut c, "interactive", 1);
    assert_eq!(row_of(&c, quick), Some(5), "the rule holds for jobs in line, too");
    assert!(ClassSpec::default().with("rows", 17).is_err());
}

#[test]
fn quick_jobs_start_beside_jobs_that_wait_for_their_reservations() {
    for queue in 0..4 {
        let mut c = Cluster::with_nodes(&[2]);
        c.event(Event::SetParams { params: params(&[("discipline", queue)]) });
        let limited = |user, class: &str| JobSpec {
            time_limit: Some(tutti_types::Nanos::from_secs(5)),
            ..of(user, class, 2)
        };
        for _ in 0..9 {
            c.submit(limited(1, "production"));
        }
        let quick = c.submit(limited(2, "interactive"));
        assert_eq!((why(&c, quick), row_of(&c, quick)), (None, Some(5)), "queue {queue}");
        c.finish(JobId(3));
        c.finish(quick);
        let running = (1..=9).filter(|&job| row_of(&c, JobId(job)).is_some()).count();
        assert_eq!(running, 4, "queue {queue}");
    }
}
