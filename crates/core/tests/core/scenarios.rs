//! What users and administrators see, told as little stories.

use crate::cluster::{Cluster, job, node_spec, params, shared};
use std::fmt::Write;
use tutti_core::{Action, Event, JobState, Part, WaitReason};
use tutti_types::{
    ClassName, ClusterTime, EndReason, IfAbsent, JobId, JobSpec, Nanos, NodeId, OnBadExit, Rank,
    Refusal, TaskStatus,
};

/// The matrix as text: a line a row, in the order of age.
pub(crate) fn matrix(cluster: &Cluster) -> String {
    let mut text = String::new();
    for row in cluster.core.rows() {
        let length = row.length.map_or("-".to_owned(), |length| length.to_string());
        write!(text, "{} {length}:", row.id).unwrap();
        for cell in row.cells {
            let (open, close) = if cell.guest { ("(", ")") } else { ("", "") };
            write!(text, " {open}{}@{}/{}{close}", cell.job, cell.node, cell.processors).unwrap();
        }
        text.push('\n');
    }
    text
}

pub(crate) fn why(cluster: &Cluster, job: JobId) -> Option<WaitReason> {
    match cluster.core.job(job, ClusterTime(cluster.now))?.state {
        JobState::Queued { why, .. } => Some(why),
        JobState::Running { .. } | JobState::Ending { .. } => None,
    }
}

fn service_ms(cluster: &Cluster, job: JobId) -> u64 {
    cluster.core.job(job, ClusterTime(cluster.now)).unwrap().service.0 / 1_000_000
}

fn set_params(cluster: &mut Cluster, values: &[(&str, u64)]) {
    cluster.event(Event::SetParams { params: params(values) });
}

fn set_class(cluster: &mut Cluster, name: &str, share: u32, empty: IfAbsent) {
    let class = ClassName::new(name);
    let spec = shared(share, empty);
    cluster.event(Event::SetClass { class, spec });
}

fn in_class(name: &str, spec: JobSpec) -> JobSpec {
    JobSpec { class: ClassName::new(name), ..spec }
}

fn kills(cluster: &Cluster, job: JobId) -> usize {
    let is_kill = |action: &&Action| matches!(action, Action::Kill { job: of, .. } if *of == job);
    cluster.log.iter().filter(is_kill).count()
}

fn terms(cluster: &Cluster, job: JobId) -> usize {
    let is_term =
        |action: &&Action| matches!(action, Action::Terminate { job: of, .. } if *of == job);
    cluster.log.iter().filter(is_term).count()
}

#[test]
fn jobs_run_beside_each_other_then_in_turns_then_queue() {
    let mut c = Cluster::with_nodes(&[2, 2]);
    set_params(&mut c, &[("rows", 2)]);
    c.submit(job(2));
    c.submit(job(1));
    c.submit(job(4));
    let fourth = c.submit(job(2));
    let fifth = c.submit(job(1));
    assert_eq!(matrix(&c), "1 100ms: 1@0/0-1 2@1/0\n2 100ms: 3@0/0-1 3@1/0-1\n");
    assert_eq!(why(&c, fourth), Some(WaitReason::Rows { limit: 2 }));
    assert_eq!(why(&c, fifth), Some(WaitReason::Behind(fourth)), "first come, first served");
    set_params(&mut c, &[("rows", 3)]);
    // The fourth gets the processors that are least loaded over all rows.
    assert_eq!(
        matrix(&c),
        "1 100ms: 1@0/0-1 2@1/0 5@1/1\n2 100ms: 3@0/0-1 3@1/0-1\n3 100ms: 4@1/0-1 (1@0/0-1)\n"
    );
}

#[test]
fn two_jobs_that_want_everything_take_turns() {
    let mut c = Cluster::with_nodes(&[2, 2]);
    let (a, b) = (c.submit(job(4)), c.submit(job(4)));
    c.advance_ms(1_000);
    assert_eq!((service_ms(&c, a), service_ms(&c, b)), (500, 500));
    let sent = c.log.len();
    c.advance_ms(60_000);
    assert_eq!(c.log.len(), sent, "no message at a switch");
    assert_eq!(c.finish(a).service, Nanos::from_millis(30_500));
    c.advance_ms(1_000);
    assert_eq!(service_ms(&c, b), 31_500, "alone, it runs all the time");
}

#[test]
fn rows_unite_when_a_job_ends() {
    let mut c = Cluster::with_nodes(&[2, 2]);
    let first = c.submit(job(2));
    c.submit(job(3));
    c.submit(job(2));
    assert_eq!(matrix(&c), "1 100ms: 1@0/0-1 3@1/0-1\n2 100ms: 2@0/0 2@1/0-1\n");
    c.finish(first);
    assert_eq!(matrix(&c), "1 100ms: 3@1/0-1\n2 100ms: 2@0/0 2@1/0-1\n");
    c.finish(JobId(3));
    assert_eq!(matrix(&c), "2 100ms: 2@0/0 2@1/0-1\n");
}

#[test]
fn idle_columns_go_to_alternates() {
    let mut c = Cluster::with_nodes(&[2]);
    let small = c.submit(job(1));
    let large = c.submit(job(2));
    let other = c.submit(job(1));
    assert_eq!(matrix(&c), "1 100ms: 1@0/0 3@0/1\n2 100ms: 2@0/0-1\n");
    c.event(Event::Suspend { job: large });
    assert_eq!(matrix(&c), "1 100ms: 1@0/0 3@0/1\n2 -: 2@0/0-1\n");
    c.advance_ms(200);
    assert_eq!(service_ms(&c, large), 0, "its turn had not come yet");
    c.event(Event::Resume { job: large });
    c.event(Event::Suspend { job: other });
    c.advance_ms(400);
    assert_eq!((service_ms(&c, small), service_ms(&c, other)), (400, 200));
    assert_eq!(service_ms(&c, large), 200);
}

#[test]
fn what_a_job_gets_is_foretold_by_the_clocks_of_its_rows() {
    let mut c = Cluster::with_nodes(&[2, 2]);
    let jobs = [c.submit(job(1)), c.submit(job(4)), c.submit(job(3)), c.submit(job(2))];
    for (step, need_ms) in [30, 170, 430, 1000, 50, 3].into_iter().enumerate() {
        let followed = jobs[step % jobs.len()];
        let (rows, before) = (c.core.runs_in(followed).to_vec(), c.core.service(followed));
        assert!(!rows.is_empty() && rows.len() < c.core.rows().count());
        let clock = c.core.clock(&rows);
        let at = c.core.reaches(&rows, Nanos::from_millis(need_ms));
        c.advance(at.0 - c.now - 1);
        assert_eq!(service_ms(&c, followed), before.0 / 1_000_000 + need_ms - 1);
        c.advance(1);
        c.event(Event::Tick);
        assert_eq!(c.core.service(followed).0, before.0 + need_ms * 1_000_000);
        assert_eq!(c.core.clock(&rows).0, clock.0 + need_ms * 1_000_000);
        assert!(c.core.moved().jobs.is_empty() && !c.core.moved().frame);
    }
    assert_eq!(c.core.reaches(&[], Nanos(1)), ClusterTime::NEVER);
}

#[test]
fn an_end_told_at_once_is_the_end_told_task_by_task() {
    for (rule, status) in [
        (OnBadExit::Kill, TaskStatus::Exited(3)),
        (OnBadExit::Kill, TaskStatus::Exited(0)),
        (OnBadExit::KillOnSignal, TaskStatus::Signaled(11)),
        (OnBadExit::Continue, TaskStatus::Signaled(9)),
        (OnBadExit::Continue, TaskStatus::Lost),
    ] {
        let outcome = |tell: fn(&mut Cluster, JobId, TaskStatus)| {
            let mut c = Cluster::with_nodes(&[2, 2]);
            let id = c.submit(JobSpec { on_bad_exit: rule, ..job(4) });
            c.end_task(id, 1, TaskStatus::Exited(1));
            tell(&mut c, id, status);
            c.outcomes[&id]
        };
        let one_by_one = outcome(|c, id, status| {
            c.end_tasks(id, status);
            c.clear(id);
        });
        let in_two = outcome(|c, id, status| {
            c.held.get_mut(&id).unwrap().tasks.clear();
            c.event(Event::TasksEnded { job: id, ranks: vec![], status });
            c.event(Event::JobCleared { job: id, nodes: vec![] });
        });
        assert_eq!(outcome(Cluster::end_job), one_by_one, "{rule:?} {status:?}");
        assert_eq!(in_two, one_by_one, "{rule:?} {status:?}");
    }
}

/// A job that is gone at its limit.
fn limited(tasks: u32, ms: u64) -> JobSpec {
    let time_limit = Some(Nanos::from_millis(ms));
    JobSpec { time_limit, grace: Nanos::ZERO, ..job(tasks) }
}

#[test]
fn who_waits_is_told_for_what_and_how_long() {
    let mut c = Cluster::with_nodes(&[4]);
    let choose = |c: &mut Cluster, policy| {
        let mut params = c.core.params().clone();
        params.choose("policy", policy).unwrap();
        c.event(Event::SetParams { params });
    };
    choose(&mut c, "space:easy");
    c.submit(limited(3, 90_000));
    let first = c.submit(limited(2, 90_000));
    let second = c.submit(limited(1, 90_001));
    let endless = c.submit(job(3));
    c.advance_ms(500);
    let says = |c: &Cluster, job| why(c, job).map(|why| why.to_string()).unwrap_or_default();
    assert_eq!(says(&c, first), "starts within 1m30s");
    assert_eq!(says(&c, second), "", "it leaves enough");
    assert_eq!(
        says(&c, endless),
        "would delay job 2, which starts within 1m30s; a time limit (-t) could let it by"
    );
    choose(&mut c, "space:conservative");
    assert_eq!(says(&c, first), "starts within 1m30s");
    assert_eq!(says(&c, endless), "starts within 3m00s");
    choose(&mut c, "space:fcfs");
    assert_eq!(says(&c, first), "too few processors are free");
    assert_eq!(says(&c, endless), "behind job 2");
    choose(&mut c, "gang");
    assert_eq!((why(&c, first), why(&c, endless)), (None, None));
}

#[test]
fn with_rows_a_job_is_let_by_where_it_delays_nobody() {
    let mut c = Cluster::with_nodes(&[4]);
    let mut params = params(&[("rows", 2)]);
    params.choose("discipline", "easy").unwrap();
    c.event(Event::SetParams { params });
    c.submit(limited(3, 1000));
    c.submit(limited(3, 5000));
    let head = c.submit(limited(4, 1000));
    // The first row is free at the latest when 1000 ms of it have passed, at 1900 ms.
    assert_eq!(why(&c, head), Some(WaitReason::Reserved { within: Nanos::from_millis(1900) }));
    // It would last longer there; beside the second job it delays none.
    let long = c.submit(limited(1, 1001));
    assert_eq!(matrix(&c), "1 100ms: 1@0/0-2\n2 100ms: 2@0/0-1,3 4@0/2\n");
    let short = c.submit(limited(1, 1000));
    assert_eq!((why(&c, long), why(&c, short)), (None, None));
    let none = c.submit(limited(1, 10));
    assert!(matches!(why(&c, none), Some(WaitReason::Delays { .. })));
    c.advance_ms(1900);
    c.finish(JobId(1));
    c.finish(short);
    assert_eq!(why(&c, head), None);
}

#[test]
fn a_task_gets_its_processors_together_on_one_node() {
    let mut c = Cluster::with_nodes(&[3, 5]);
    let spec = JobSpec { processors_per_task: Some(2), ..job(3) };
    c.submit(spec);
    let shown = |part: &Part| -> String {
        let tasks = part.placements();
        tasks.iter().map(|t| format!("{}:{}:{} ", part.node, t.rank, t.processors)).collect()
    };
    let launched: Vec<String> = c.core.parts(JobId(1)).iter().map(shown).collect();
    assert_eq!(launched, ["0:0:0-1 ", "1:1:0-1 1:2:2-3 "]);
}

#[test]
fn more_tasks_than_processors_share_them_all() {
    let mut c = Cluster::with_nodes(&[2, 4]);
    let spec = JobSpec { processors_per_task: None, ..job(10) };
    let id = c.submit(spec);
    let view = c.core.job(id, ClusterTime(c.now)).unwrap();
    let parts = view.placements.iter().map(|p| (p.node.0, p.first_rank.0, p.tasks));
    // 10 tasks in the proportion 2 to 4: 3.33 and 6.67.
    assert_eq!(parts.collect::<Vec<_>>(), [(0, 0, 3), (1, 3, 7)]);
    let tasks = c.core.parts(id)[1].placements();
    assert!(tasks.iter().all(|task| task.processors.to_string() == "0-3"));
}

#[test]
fn what_can_never_fit_is_declined_with_what_would() {
    let mut c = Cluster::new(params(&[]));
    let refused = |c: &mut Cluster, spec: JobSpec| {
        assert_eq!(c.try_submit(spec), None);
        c.refusals.pop().unwrap()
    };
    assert_eq!(refused(&mut c, job(1)), Refusal::NoNodes);
    c.join(0, 4);
    c.join(1, 2);
    assert_eq!(refused(&mut c, job(0)), Refusal::NothingAsked);
    let wide = |each, tasks| JobSpec { processors_per_task: Some(each), ..job(tasks) };
    assert_eq!(refused(&mut c, wide(0, 1)), Refusal::NothingAsked);
    assert_eq!(refused(&mut c, wide(5, 1)), Refusal::TaskTooWide { asked: 5, available: 4 });
    assert_eq!(refused(&mut c, job(7)), Refusal::TooManyProcessors { asked: 7, available: 6 });
    // Tasks of 3 processors: only one fits on the node of 4, none on that of 2.
    assert_eq!(refused(&mut c, wide(3, 2)), Refusal::TooManyProcessors { asked: 6, available: 3 });
    let fat = JobSpec { memory_per_task_bytes: Some(600), ..job(4) };
    // The nodes have 1000 bytes each: two tasks a node.
    assert_eq!(
        refused(&mut c, fat.clone()),
        Refusal::TooMuchMemory { asked_bytes: 600, available_bytes: 500 }
    );
    assert!(c.try_submit(JobSpec { memory_per_task_bytes: Some(500), ..fat }).is_some());
    let known = refused(&mut c, in_class("fast", job(1))).to_string();
    assert!(known.contains("benchmark, interactive, production, standby"), "{known}");
    let hurried = JobSpec { time_limit: Some(Nanos(0)), ..job(1) };
    assert!(matches!(refused(&mut c, hurried), Refusal::NoTime { .. }));
    c.event(Event::ShutDown);
    assert_eq!(refused(&mut c, job(1)), Refusal::ShuttingDown);
}

#[test]
fn memory_is_admitted_over_all_rows() {
    let mut c = Cluster::with_nodes(&[2]);
    let spec = |bytes| JobSpec { memory_per_task_bytes: Some(bytes), ..job(2) };
    let first = c.submit(spec(300));
    let second = c.submit(spec(300));
    let third = c.submit(job(2));
    assert_eq!(why(&c, second), Some(WaitReason::Memory));
    assert_eq!(why(&c, third), Some(WaitReason::Behind(second)));
    c.event(Event::Suspend { job: first });
    assert_eq!(why(&c, second), Some(WaitReason::Memory), "a suspended job keeps its memory");
    c.finish(first);
    assert_eq!((why(&c, second), why(&c, third)), (None, None));
}

#[test]
fn a_job_that_does_not_fit_what_is_left_of_the_machine_blocks_nobody() {
    let mut c = Cluster::with_nodes(&[2, 2]);
    let running = c.submit(job(4));
    c.event(Event::SetParams { params: params(&[("rows", 1)]) });
    let large = c.submit(job(4));
    c.lose(1);
    c.deliver_kills();
    assert_eq!(c.outcomes[&running].reason, EndReason::NodeLost(NodeId(1)));
    assert_eq!(why(&c, large), Some(WaitReason::Nodes));
    let small = c.submit(job(1));
    assert_eq!(why(&c, small), None);
    c.finish(small);
    c.join(1, 2);
    assert_eq!(why(&c, large), None);
}

#[test]
fn a_queued_job_is_cancelled_without_ever_running() {
    let mut c = Cluster::with_nodes(&[1]);
    c.event(Event::SetParams { params: params(&[("rows", 1)]) });
    c.submit(job(1));
    let (gentle, at_once) = (c.submit(job(1)), c.submit(job(1)));
    c.cancel(at_once, true);
    c.cancel(gentle, false);
    assert_eq!((c.outcomes[&gentle].exit_code, c.outcomes[&at_once].exit_code), (143, 137));
    assert!(!c.held.contains_key(&gentle));
}

#[test]
fn a_cancelled_job_gets_a_signal_then_is_killed_when_its_grace_is_over() {
    let mut c = Cluster::with_nodes(&[2, 2]);
    let id = c.submit(JobSpec { grace: Nanos::from_secs(1), ..job(4) });
    c.event(Event::Suspend { job: id });
    c.cancel(id, false);
    assert_eq!((terms(&c, id), kills(&c, id)), (2, 0));
    assert!(!c.core.job(id, ClusterTime(c.now)).unwrap().suspended, "else it couldn't heed it");
    c.cancel(id, false);
    c.advance_ms(999);
    assert_eq!((terms(&c, id), kills(&c, id)), (2, 0));
    c.end_task(id, 0, TaskStatus::Signaled(15));
    c.advance_ms(1);
    assert_eq!(kills(&c, id), 2);
    c.deliver_kills();
    assert_eq!(c.outcomes[&id].reason, EndReason::Cancelled);
    assert_eq!(c.outcomes[&id].exit_code, 143);
}

#[test]
fn a_second_cancel_can_kill_at_once() {
    let mut c = Cluster::with_nodes(&[2]);
    let id = c.submit(JobSpec { grace: Nanos::from_secs(1000), ..job(2) });
    c.cancel(id, false);
    c.cancel(id, true);
    c.cancel(id, true);
    assert_eq!(kills(&c, id), 1);
    c.deliver_kills();
    assert_eq!(c.outcomes[&id].exit_code, 137);
}

#[test]
fn the_job_ends_only_when_every_node_is_clear() {
    let mut c = Cluster::with_nodes(&[1, 1]);
    let id = c.submit(job(2));
    c.end_tasks(id, TaskStatus::Exited(0));
    c.advance_ms(50);
    c.event(Event::JobCleared { job: id, nodes: vec![NodeId(0)] });
    assert!(c.outcomes.is_empty());
    c.held.get_mut(&id).unwrap().tasks.clear();
    c.event(Event::JobCleared { job: id, nodes: vec![NodeId(1)] });
    assert_eq!(c.outcomes[&id].service, Nanos::ZERO, "without tasks nothing ran");
    assert_eq!(c.outcomes[&id].reason, EndReason::Completed);
}

#[test]
fn a_bad_exit_ends_the_job_with_its_status() {
    let mut c = Cluster::with_nodes(&[2, 2]);
    let id = c.submit(JobSpec { on_bad_exit: OnBadExit::Kill, ..job(4) });
    c.end_task(id, 2, TaskStatus::Exited(3));
    assert_eq!(kills(&c, id), 2);
    c.deliver_kills();
    assert_eq!(c.outcomes[&id].reason, EndReason::TaskFailed);
    assert_eq!(c.outcomes[&id].exit_code, 3, "not 137, of which its fellows died");
}

#[test]
fn a_job_out_of_memory_says_so() {
    let mut c = Cluster::with_nodes(&[2]);
    let id = c.submit(job(2));
    c.end_task(id, 1, TaskStatus::OutOfMemory);
    c.deliver_kills();
    c.clear(id);
    assert_eq!(c.outcomes[&id].reason, EndReason::OutOfMemory);
    assert_eq!(c.outcomes[&id].exit_code, 123);
}

#[test]
fn a_limit_counts_only_the_time_of_the_jobs_turns() {
    let mut c = Cluster::with_nodes(&[2]);
    let limited = JobSpec {
        time_limit: Some(Nanos::from_millis(250)),
        grace: Nanos::from_millis(30),
        ..job(2)
    };
    let id = c.submit(limited);
    c.submit(job(2));
    // Turns: 0 to 100, 200 to 300, 400 to 500 ms; the limit is reached at 450.
    c.advance_ms(449);
    assert_eq!(terms(&c, id), 0);
    c.advance_ms(1);
    assert_eq!((terms(&c, id), kills(&c, id)), (1, 0));
    c.advance_ms(30);
    assert_eq!(kills(&c, id), 1);
    c.deliver_kills();
    assert_eq!(c.outcomes[&id].reason, EndReason::TimedOut);
    assert_eq!(c.outcomes[&id].exit_code, 124);
    assert_eq!(c.outcomes[&id].service, Nanos::from_millis(280));
}

#[test]
fn tasks_that_wait_for_one_that_left_mpi_have_the_grace_in_their_own_turns() {
    let mut c = Cluster::with_nodes(&[2]);
    let grace = Nanos::from_millis(150);
    let waits = c.submit(JobSpec { grace, ..job(2) });
    let limited = JobSpec { time_limit: Some(Nanos::from_millis(20)), grace, ..job(2) };
    let other = c.submit(job(2));
    c.end_task(waits, 0, TaskStatus::Unfinalized(0));
    // Turns: 0 to 100, 200 to 300 ms: the grace is over at 250.
    c.advance_ms(249);
    assert_eq!((terms(&c, waits), kills(&c, waits)), (0, 0));
    c.advance_ms(1);
    assert_eq!((terms(&c, waits), kills(&c, waits)), (0, 1));
    c.deliver_kills();
    let outcome = c.outcomes[&waits];
    assert_eq!((outcome.reason, outcome.exit_code), (EndReason::TaskFailed, 1));
    assert_eq!(kills(&c, other), 0);
    // Its own limit is a limit still.
    c.end_job(other, TaskStatus::Exited(0));
    let limited = c.submit(limited);
    c.end_task(limited, 0, TaskStatus::Unfinalized(0));
    c.advance_ms(20);
    assert_eq!((terms(&c, limited), kills(&c, limited)), (1, 0));
}

#[test]
fn tasks_that_end_by_themselves_after_one_left_mpi_are_not_touched() {
    let mut c = Cluster::with_nodes(&[2]);
    let well = c.submit(job(2));
    c.end_task(well, 0, TaskStatus::Unfinalized(0));
    c.end_task(well, 1, TaskStatus::Unfinalized(0));
    c.clear(well);
    let outcome = c.outcomes[&well];
    assert_eq!((outcome.reason, outcome.exit_code), (EndReason::Completed, 0));
    // A user that wants the others to go on in any case gets that.
    let kept = c.submit(JobSpec { on_bad_exit: OnBadExit::Continue, ..job(2) });
    c.end_task(kept, 0, TaskStatus::Unfinalized(0));
    c.advance_ms(100_000);
    assert_eq!((kills(&c, well), kills(&c, kept)), (0, 0));
    assert!(!c.outcomes.contains_key(&kept));
}

#[test]
fn a_front_end_that_is_lost_while_tasks_wait_in_vain_ends_the_job_sooner() {
    let mut c = Cluster::with_nodes(&[2]);
    let grace = Nanos::from_millis(60_000);
    let job = c.submit(JobSpec { attached: true, grace, ..job(2) });
    c.end_task(job, 0, TaskStatus::Unfinalized(3));
    c.event(Event::FrontEndLost { job });
    c.advance_ms(1_999);
    assert_eq!(kills(&c, job), 0);
    c.advance_ms(1);
    assert_eq!(kills(&c, job), 1);
    c.deliver_kills();
    assert_eq!(c.outcomes[&job].reason, EndReason::FrontEndLost);
}

#[test]
fn a_job_outlives_its_front_end_by_a_grace() {
    let mut c = Cluster::with_nodes(&[2]);
    let attached = c.submit(JobSpec { attached: true, ..job(1) });
    let detached = c.submit(job(1));
    for job in [attached, detached] {
        c.event(Event::FrontEndLost { job });
    }
    c.advance_ms(1_999);
    assert_eq!(kills(&c, attached), 0);
    c.advance_ms(1);
    assert_eq!((kills(&c, attached), kills(&c, detached)), (1, 0));
    c.deliver_kills();
    assert_eq!(c.outcomes[&attached].reason, EndReason::FrontEndLost);
    assert_eq!(c.outcomes[&attached].exit_code, 137);
}

#[test]
fn a_lost_node_ends_its_jobs_whole_and_others_go_on() {
    let mut c = Cluster::with_nodes(&[2, 2, 2]);
    let wide = c.submit(job(4));
    let other = c.submit(job(2));
    c.lose(0);
    assert_eq!(kills(&c, wide), 1, "on the node that is left");
    let (ranks, status) = (vec![Rank(0)], TaskStatus::Exited(0));
    c.event(Event::TasksEnded { job: wide, ranks, status });
    c.event(Event::JobCleared { job: wide, nodes: vec![NodeId(0)] });
    c.deliver_kills();
    assert_eq!(c.outcomes[&wide].reason, EndReason::NodeLost(NodeId(0)));
    assert_eq!(c.outcomes[&wide].exit_code, 121);
    c.advance_ms(100);
    assert_eq!(service_ms(&c, other), 100);
    c.join(0, 2);
    let again = c.submit(job(4));
    assert_eq!(why(&c, again), None);
}

#[test]
fn an_agent_that_returns_gets_its_timetable_and_what_it_missed() {
    let mut c = Cluster::with_nodes(&[2]);
    let id = c.submit(job(2));
    c.cancel(id, true);
    let before = c.log.len();
    c.join(0, 2);
    let again = &c.log[before..];
    assert!(
        again.iter().any(|a| matches!(a, Action::Timetable { .. } | Action::Timetables { .. }))
    );
    assert!(again.iter().any(|a| matches!(a, Action::Kill { .. })));
    assert!(!again.iter().any(|a| matches!(a, Action::Launch { .. } | Action::Ended { .. })));
}

#[test]
fn a_shut_down_ends_all() {
    let mut c = Cluster::with_nodes(&[1]);
    c.event(Event::SetParams { params: params(&[("rows", 1)]) });
    let (running, queued) = (c.submit(job(1)), c.submit(job(1)));
    c.event(Event::ShutDown);
    assert_eq!(c.outcomes[&queued].exit_code, 122);
    assert_eq!((terms(&c, running), kills(&c, running)), (1, 0));
    c.advance_ms(1_000);
    c.deliver_kills();
    assert_eq!(c.outcomes[&running].reason, EndReason::ShutDown);
}

#[test]
fn a_class_with_a_share_gets_it_and_pushes_it_down_when_absent() {
    let mut c = Cluster::with_nodes(&[1]);
    set_class(&mut c, "interactive", 6000, IfAbsent::Down);
    let quick = c.submit(in_class("interactive", job(1)));
    c.submit(job(1));
    // 60 % of 200 ms, and what that leaves.
    assert_eq!(matrix(&c), "1 120ms: 1@0/0\n2 80ms: 2@0/0\n");
    c.submit(in_class("standby", job(1)));
    c.finish(quick);
    assert_eq!(matrix(&c), "2 100ms: 2@0/0\n3 100ms: 3@0/0\n");
}

#[test]
fn a_class_that_holds_its_time_keeps_an_empty_slot() {
    let mut c = Cluster::with_nodes(&[1]);
    set_class(&mut c, "benchmark", 2500, IfAbsent::Hold);
    assert_eq!(c.core.frame().slots, [], "nobody there to hold it against");
    let id = c.submit(job(1));
    // 25 % of 200 ms is held.
    assert_eq!(matrix(&c), "1 150ms: 1@0/0\n2 50ms:\n");
    c.advance_ms(1_000);
    assert_eq!(service_ms(&c, id), 750);
    let quiet = c.submit(in_class("benchmark", job(1)));
    assert_eq!(matrix(&c), "1 150ms: 1@0/0\n3 50ms: 2@0/0\n");
    c.end_tasks(quiet, TaskStatus::Exited(0));
    c.advance_ms(400);
    assert_eq!(service_ms(&c, id), 1_050, "its empty time is held until it is cleared, too");
    c.clear(quiet);
    c.finish(id);
    assert_eq!(c.core.frame().slots, []);
}

#[test]
fn a_changed_quantum_takes_effect_at_once_and_loses_no_slot() {
    let mut c = Cluster::with_nodes(&[1]);
    let (a, b) = (c.submit(job(1)), c.submit(job(1)));
    c.advance_ms(130);
    set_params(&mut c, &[("quantum", 20_000_000)]);
    c.advance_ms(20);
    // The second had 30 ms of its turn, more than a whole turn now: the first is next.
    assert_eq!((service_ms(&c, a), service_ms(&c, b)), (120, 30));
    c.advance_ms(40);
    assert_eq!((service_ms(&c, a), service_ms(&c, b)), (140, 50));
}

#[test]
fn signals_go_to_the_nodes_of_the_ranks_that_are_left() {
    let mut c = Cluster::with_nodes(&[2, 2]);
    let id = c.submit(job(4));
    c.end_task(id, 1, TaskStatus::Exited(0));
    let before = c.log.len();
    c.event(Event::Signal { job: id, ranks: vec![Rank(1), Rank(3), Rank(9)], signal: 10 });
    let (job, node) = (id, NodeId(1));
    let expected = Action::Signal { job, node, ranks: vec![Rank(3)], signal: 10 };
    assert_eq!(c.log[before..], [expected]);
    c.event(Event::Signal { job: id, ranks: vec![], signal: 10 });
    assert_eq!(c.log.len(), before + 3);
}

#[test]
fn a_queued_job_that_is_suspended_lets_others_by() {
    let mut c = Cluster::with_nodes(&[1]);
    c.event(Event::SetParams { params: params(&[("rows", 1)]) });
    let (first, second, third) = (c.submit(job(1)), c.submit(job(1)), c.submit(job(1)));
    c.event(Event::Suspend { job: second });
    c.finish(first);
    assert_eq!((why(&c, second), why(&c, third)), (Some(WaitReason::Suspended), None));
    c.event(Event::Resume { job: second });
    c.finish(third);
    assert_eq!(why(&c, second), None);
}

#[test]
fn a_change_with_a_lead_activates_later_and_counts_from_then() {
    let mut c = Cluster::with_nodes(&[1]);
    c.event(Event::SetParams { params: params(&[("lead", 10_000_000)]) });
    let id = c.submit(job(1));
    c.advance_ms(10);
    assert_eq!(service_ms(&c, id), 0);
    c.event(Event::Tick);
    c.advance_ms(10);
    assert_eq!(service_ms(&c, id), 10);
}

#[test]
fn an_agent_that_finds_less_memory_than_before_costs_no_job() {
    let mut c = Cluster::with_nodes(&[2]);
    let id = c.submit(JobSpec { memory_per_task_bytes: Some(400), ..job(1) });
    c.event(Event::NodeJoined { node: NodeId(0), spec: node_spec(2, 100) });
    assert_eq!(why(&c, id), None);
    assert_eq!(c.core.nodes().next().unwrap().spec.memory_bytes, 400);
}

#[test]
fn the_end_of_time_is_survived() {
    let mut c = Cluster::with_nodes(&[2]);
    for limit in [None, Some(Nanos(u64::MAX)), Some(Nanos::from_secs(1))] {
        c.submit(JobSpec { time_limit: limit, grace: Nanos(u64::MAX), ..job(2) });
    }
    // The pretended nodes can't step through so many turns.
    for at in [u64::MAX / 2, u64::MAX - 1, u64::MAX] {
        for job in [JobId(1), JobId(2), JobId(3)] {
            for event in [Event::Suspend { job }, Event::Resume { job }, Event::Tick] {
                c.core.apply(ClusterTime(at), &event, &mut Vec::new());
            }
        }
    }
    let mut actions = Vec::new();
    for job in [JobId(1), JobId(2), JobId(3)] {
        let nodes = vec![NodeId(0)];
        c.core.apply(ClusterTime(5), &Event::JobCleared { job, nodes }, &mut actions);
    }
    assert_eq!(c.core.job_count(), 0);
}

#[test]
fn numbers_do_not_run_out_whatever_a_node_holds() {
    let mut c = Cluster::with_nodes(&[1]);
    c.event(Event::Held { job: JobId(41) });
    assert_eq!(c.submit(job(1)), JobId(42));
    c.event(Event::Held { job: JobId(u64::MAX) });
    let (first, second) = (c.submit(job(1)), c.submit(job(1)));
    assert!(first > JobId(42) && second > first);
    c.finish(second);
}

#[test]
fn time_does_not_run_backwards() {
    let mut c = Cluster::with_nodes(&[1]);
    let id = c.submit(job(1));
    c.advance_ms(100);
    c.event(Event::Tick);
    let mut actions = Vec::new();
    let spec = node_spec(1, 1);
    c.core.apply(ClusterTime(5), &Event::NodeJoined { node: NodeId(9), spec }, &mut actions);
    assert_eq!(service_ms(&c, id), 100);
}

#[test]
fn reservation_within_the_last_second_names_no_time() {
    use tutti_core::WaitReason;
    use tutti_types::Nanos;
    let says = |ms| WaitReason::Reserved { within: Nanos::from_millis(ms) }.to_string();
    assert_eq!(says(0), "starts next, as soon as its processors are free");
    assert_eq!(says(1_000), says(0));
    assert_eq!(says(1_001), "starts within 2s");
}
