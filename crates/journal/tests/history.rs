//! Jobs that have ended: found page by page, and forgotten.
#![allow(clippy::unwrap_used, reason = "a test that can't go on has failed")]

use std::path::Path;
use tutti_core::Core;
use tutti_journal::{Details, EndedJob, EndedSpan, Journal, ListedJob};
use tutti_types::{ClusterTime, EndReason, JobId, Nanos, Outcome, Params, default_classes};
use tutti_wire::launch::{InputTo, OpenMode, Stdio};
use tutti_wire::report::JobReport;
use tutti_wire::show::{Asked, CheckpointReport, JobDetails, NodeShare, StateChange, StepReport};

fn open(path: &Path) -> Journal {
    Journal::open(path, blank).unwrap().0
}

fn blank() -> Core {
    Core::new(Params::default(), default_classes())
}

fn ended(job: u64, uid: u32, ended_ms: u64, detail: &str) -> EndedJob {
    let reason = EndReason::Completed;
    EndedJob {
        report: JobReport {
            job: JobId(job),
            name: "true".into(),
            user: uid.to_string(),
            class: "production".into(),
            former_class: None,
            resources: Vec::new(),
            state: "ended".into(),
            reason: reason.to_string(),
            code: None,
            detail: detail.into(),
            suspended: Vec::new(),
            tasks: 1,
            processors: 1,
            placement: Vec::new(),
            row: None,
            rows: 0,
            share_percent: None,
            age_s: 0,
            service_ms: 1,
            waited_ms: 1,
            suspended_ms: 0,
            usage: None,
            deadline_s: None,
            at_risk_s: None,
            ends_s: None,
            cpu_ms: Some(1),
            exit_code: Some(0),
            submitted: true,
            time_limit_ms: None,
            time_left_ms: None,
            queue: None,
            position: None,
            wait: None,
            array: None,
            behind: None,
            swapped_bytes: None,
            lent_processors: None,
            first: None,
            slots: None,
            nodes_asked: None,
        },
        uid,
        gid: uid,
        key: None,
        time_limit: None,
        outcome: Outcome { reason, exit_code: 0, service: Nanos::from_millis(1) },
        accepted: ClusterTime(0),
        at: ClusterTime(1),
        accepted_ms: 0,
        ended_ms,
        tasks: Vec::new(),
    }
}

/// Jobs 1 to 60 of two users, three of which end in each millisecond.
fn sixty(journal: &mut Journal) {
    for job in 1..=60_u64 {
        let uid = if job % 2 == 0 { 1000 } else { 1001 };
        journal.note_end(&ended(job, uid, 100 + job / 3, ""), None);
    }
    journal.store(&blank());
}

fn details() -> Details {
    let bytes = |text: &str| text.as_bytes().to_vec().into();
    let job = JobDetails {
        command: vec!["solver".into(), "-x".into()],
        command_left_out: 1,
        script_bytes: Some(100),
        directory: bytes("/home/ada"),
        stdio: Stdio::Files {
            input: None,
            output: bytes("out-%r"),
            error: None,
            mode: OpenMode::Append,
        },
        user_in_names: "ada".into(),
        processes_max: None,
        checkpoint: None,
        nice: -3,
        asked: Asked { only: Some("a,b".into()), ..Asked::default() },
        nodes: vec![NodeShare {
            node: "a".into(),
            processors: "0-1".into(),
            tasks: 2,
            devices: Vec::new(),
        }],
        nodes_left_out: 0,
        requeues: 2,
        after: Vec::new(),
        after_one: false,
        states: vec![StateChange { state: "queued".into(), at_ms: 7 }],
        states_left_out: 0,
        queue: Some("short".into()),
        first: "batch".into(),
        slots: 4,
    };
    let step = StepReport {
        step: 1,
        name: "solve".into(),
        tasks: 2,
        state: "ended".into(),
        reason: "a task failed".into(),
        exit_code: Some(3),
        placement: Vec::new(),
        cpu_ms: 40,
        elapsed_ms: Some(50),
    };
    Details { job, steps: vec![step] }
}

#[test]
fn details_of_a_job_are_kept_behind_its_row_and_lists_have_its_queue_and_slots() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("journal.db");
    let mut journal = open(&path);
    journal.note_end(&ended(1, 1000, 100, ""), Some(&details()));
    journal.note_end(&ended(2, 1000, 101, ""), None);
    journal.store(&blank());
    drop(journal);
    let mut journal = open(&path);
    let listed = journal.ended(&EndedSpan::default(), 9).unwrap();
    assert_eq!(numbers(&listed), [2, 1]);
    let queues: Vec<Option<&str>> = listed.iter().map(|it| it.report.queue.as_deref()).collect();
    assert_eq!(queues, [None, Some("short")]);
    let begun = |it: &EndedJob| (it.report.first.clone(), it.report.slots);
    let batch = (Some("batch".to_owned()), Some(4));
    assert_eq!(listed.iter().map(begun).collect::<Vec<_>>(), [(None, None), batch]);
    let mut found = |job| {
        let (ended, details) = journal.ended_details(JobId(job)).unwrap()?;
        Some((ended.report.job.0, details))
    };
    assert_eq!([1, 2, 3].map(&mut found), [Some((1, Some(details()))), Some((2, None)), None,]);
}

#[test]
fn a_list_without_details_is_the_full_one_but_for_these() {
    let bytes = |text: &str| Some(text.as_bytes().to_vec().into());
    let files = |input, error| Stdio::Files {
        input,
        output: b"out".to_vec().into(),
        error,
        mode: OpenMode::Truncate,
    };
    let checkpoint = CheckpointReport {
        signal: 10,
        only_shell: true,
        grace_ms: 5,
        exit_code: Some(3),
        every_ms: Some(7),
        resumes: 1,
        last: Some("saved".into()),
        why: None,
    };
    let ways = [
        Stdio::FrontEnd { input: InputTo::All },
        files(bytes("in"), bytes("error")),
        files(None, None),
        Stdio::Kept,
    ];
    let place = tempfile::tempdir().unwrap();
    let mut journal = open(&place.path().join("journal.db"));
    for (number, stdio) in ways.into_iter().enumerate() {
        let mut kept = details();
        kept.job.stdio = stdio;
        kept.job.checkpoint = (number % 2 == 0).then(|| checkpoint.clone());
        kept.job.after = vec!["7:ok".into(); number];
        journal.note_end(&ended(number as u64 + 1, 1000, 100, ""), Some(&kept));
    }
    journal.note_end(&ended(9, 1000, 100, ""), None);
    journal.store(&blank());
    let mut list = |in_full| journal.ended_list(&EndedSpan::default(), 9, in_full).unwrap();
    let (full, short) = (list(true), list(false));
    assert_eq!(full.iter().filter(|it| it.details.is_some()).count(), 4);
    let without: Vec<ListedJob> =
        full.into_iter().map(|it| ListedJob { details: None, ..it }).collect();
    assert_eq!(short, without);
    assert!(short.iter().any(|it| !it.nodes.is_empty() && !it.steps.is_empty()));
}

fn numbers(jobs: &[EndedJob]) -> Vec<u64> {
    jobs.iter().map(|ended| ended.report.job.0).collect()
}

#[test]
fn pages_hold_each_job_once_and_none_but_those_asked_for() {
    let place = tempfile::tempdir().unwrap();
    let mut journal = open(&place.path().join("journal.db"));
    sixty(&mut journal);
    for (uid, since_ms, until_ms) in
        [(None, None, None), (Some(1000), None, None), (Some(1001), Some(105), Some(112))]
    {
        let mut within = EndedSpan { uid, since_ms, until_ms, after: None };
        let mut found = Vec::new();
        loop {
            let page = journal.ended(&within, 7).unwrap();
            found.extend(numbers(&page));
            assert!(found.len() <= 60, "a page comes again: {found:?}");
            let Some(last) = page.last() else { break };
            within.after = Some((last.ended_ms, last.report.job));
        }
        let expected: Vec<u64> = (1..=60)
            .rev()
            .filter(|job| uid.is_none_or(|uid| (uid == 1000) == (job % 2 == 0)))
            .filter(|job| since_ms.is_none_or(|since| 100 + job / 3 >= since))
            .filter(|job| until_ms.is_none_or(|until| 100 + job / 3 < until))
            .collect();
        assert_eq!(found, expected);
    }
}

#[test]
fn what_is_too_old_is_forgotten_and_counted_right_by_the_next_controller() {
    let place = tempfile::tempdir().unwrap();
    let mut journal = open(&place.path().join("journal.db"));
    sixty(&mut journal);
    assert_eq!(journal.ended_size().jobs, 60);
    assert!(!journal.forget_ended(110, u64::MAX).unwrap());
    let left = numbers(&journal.ended(&EndedSpan::default(), 100).unwrap());
    assert_eq!(left, (30..=60).rev().collect::<Vec<u64>>());
    assert!(journal.ended_job(JobId(29)).unwrap().is_none());
    let size = journal.ended_size();
    drop(journal);
    assert_eq!(open(&place.path().join("journal.db")).ended_size(), size);
    assert_eq!(size.jobs, 31);
}

#[test]
fn the_earliest_are_forgotten_while_there_is_too_much() {
    let place = tempfile::tempdir().unwrap();
    let mut journal = open(&place.path().join("journal.db"));
    // One that is large among small ones must not keep the rest from being enough.
    for job in 1..=2_500_u64 {
        let detail = if job == 2_000 { "x".repeat(50_000) } else { String::new() };
        journal.note_end(&ended(job, 1000, job, &detail), None);
    }
    journal.store(&blank());
    let bytes_max = 60_000;
    let mut rounds = 1;
    while journal.forget_ended(0, bytes_max).unwrap() {
        rounds += 1;
    }
    assert!(rounds < 40, "{rounds}");
    let size = journal.ended_size();
    assert!(size.bytes <= bytes_max && size.jobs > 50, "{size:?}");
    let left = numbers(&journal.ended(&EndedSpan::default(), 5_000).unwrap());
    let earliest = 2_501 - size.jobs;
    assert_eq!(left, (earliest..=2_500).rev().collect::<Vec<u64>>());
}
