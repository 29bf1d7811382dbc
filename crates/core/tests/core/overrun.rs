//! Jobs that go on beyond their time limits, in what is otherwise idle.

use crate::cluster::{Cluster, job, params};
use tutti_core::{Event, JobState, Place, SubmitOptions, SwapCourse, WaitReason};
use tutti_types::{
    ClassName, ClusterTime, JobId, JobSpec, Nanos, NoRespawn, OnNodeLoss, TaskStatus,
};

fn cluster(values: &[(&str, u64)], policy: &str) -> Cluster {
    let mut params = params(&[&[("quantum", 100_000_000)], values].concat());
    params.choose("policy", policy).unwrap();
    let mut c = Cluster::new(params);
    c.join(0, 2);
    let name = ClassName::new("production");
    let spec = c.core.classes()[&name].with("overrun", 1).unwrap();
    c.event(Event::SetClass { class: name, spec });
    c
}

fn limited(processors: u32, ms: u64) -> JobSpec {
    let (time_limit, grace) = (Some(Nanos::from_millis(ms)), Nanos::ZERO);
    JobSpec { class: ClassName::new("production"), time_limit, grace, ..job(processors) }
}

fn served_ms(c: &Cluster, job: JobId) -> u64 {
    c.core.job(job, ClusterTime(c.now)).unwrap().service.0 / 1_000_000
}

fn place(c: &Cluster, job: JobId) -> Option<Place> {
    let view = c.core.job(job, ClusterTime(c.now))?;
    matches!(view.state, JobState::Running { .. }).then_some(view.place)
}

#[test]
fn a_job_over_its_limit_goes_on_as_standby_only_where_its_class_says_so() {
    for policy in ["gang", "space", "classes"] {
        let mut c = cluster(&[], policy);
        let goes_on = c.submit(limited(1, 500));
        let spec = JobSpec { class: ClassName::new("interactive"), ..limited(1, 500) };
        let ends = c.submit(spec);
        c.advance_ms(700);
        assert_eq!(place(&c, ends), None, "{policy}: it is to end");
        assert_eq!(place(&c, goes_on), Some(Place::Home), "{policy}");
        let view = c.core.job(goes_on, ClusterTime(c.now)).unwrap();
        assert_eq!(&*view.spec.class.0, "standby", "{policy}");
        assert!(c.core.is_overrun(goes_on));
        // No class that its owner gives it counts.
        c.event(Event::SetJobClass { job: goes_on, class: ClassName::new("benchmark") });
        let view = c.core.job(goes_on, ClusterTime(c.now)).unwrap();
        assert_eq!(&*view.spec.class.0, "standby", "{policy}");
        c.end_job(goes_on, TaskStatus::Exited(0));
        c.drain();
    }
}

#[test]
fn it_has_no_turn_while_others_use_all_processors() {
    let mut c = cluster(&[("rows", 4)], "gang");
    let over = c.submit(limited(2, 300));
    c.advance_ms(400);
    assert!(c.core.is_overrun(over));
    c.advance_ms(1000);
    assert_eq!(served_ms(&c, over), 1400, "alone, it has all turns");
    let other = c.submit(job(2));
    c.advance_ms(2000);
    let before = served_ms(&c, over);
    c.advance_ms(3000);
    assert_eq!(served_ms(&c, over), before, "the other uses both processors");
    c.end_task(other, 0, TaskStatus::Exited(0));
    c.end_job(other, TaskStatus::Exited(0));
    c.advance_ms(1000);
    assert!(served_ms(&c, over) > before, "both are idle again");
    c.drain();
}

#[test]
fn it_runs_on_processors_that_others_leave_idle() {
    let mut c = cluster(&[("rows", 4)], "gang");
    let over = c.submit(limited(1, 300));
    let wide = c.submit(job(2));
    c.advance_ms(1000);
    assert!(c.core.is_overrun(over));
    c.finish(wide);
    let narrow = c.submit(job(1));
    let before = served_ms(&c, over);
    c.advance_ms(1000);
    assert_eq!(served_ms(&c, over), before + 1000, "beside the other");
    assert!(served_ms(&c, narrow) >= 990);
    c.drain();
}

#[test]
fn it_is_preempted_for_the_first_in_line_and_comes_back_when_none_waits() {
    for discipline in ["fcfs", "easy", "sjbf", "conservative"] {
        let mut c = cluster(&[], "space");
        let mut params = c.core.params().clone();
        params.choose("discipline", discipline).unwrap();
        c.event(Event::SetParams { params });
        let over = c.submit(limited(2, 300));
        c.advance_ms(400);
        let next = c.submit(limited(2, 60_000));
        c.arrive();
        assert_eq!(place(&c, next), Some(Place::Home), "{discipline}");
        let last = c.submit(limited(2, 60_000));
        assert_eq!(place(&c, over), Some(Place::Aside), "{discipline}");
        let view = c.core.job(over, ClusterTime(c.now)).unwrap();
        assert_eq!(view.why_aside, Some(WaitReason::Overrun));
        c.finish(next);
        assert_eq!(place(&c, last), Some(Place::Home), "{discipline}");
        c.finish(last);
        c.arrive();
        assert_eq!(place(&c, over), Some(Place::Home), "{discipline}: none waits");
        c.end_job(over, TaskStatus::Exited(0));
        c.drain();
    }
}

#[test]
fn no_more_jobs_are_preempted_than_the_first_in_line_needs() {
    let mut c = cluster(&[], "space");
    let [first, latest] = [0; 2].map(|_| c.submit(limited(1, 300)));
    c.advance_ms(400);
    assert!(c.core.is_overrun(first) && c.core.is_overrun(latest));
    let next = c.submit(limited(1, 60_000));
    // While another one waits, none of them would come back.
    let _waits = c.submit(limited(2, 60_000));
    c.arrive();
    assert_eq!(place(&c, next), Some(Place::Home));
    assert_eq!(place(&c, first), Some(Place::Home), "another one makes room");
    assert_eq!(place(&c, latest), Some(Place::Aside));
    c.drain();
}

#[test]
fn a_job_that_is_queued_again_has_its_class_and_its_limit_anew() {
    let mut c = cluster(&[], "gang");
    c.join(1, 2);
    let spec = JobSpec { on_node_loss: OnNodeLoss::Requeue, ..limited(4, 300) };
    let job = c.submit(spec);
    c.advance_ms(400);
    assert!(c.core.is_overrun(job));
    c.lose(1);
    c.deliver_kills();
    c.join(1, 2);
    let view = c.core.job(job, ClusterTime(c.now)).unwrap();
    assert_eq!((view.requeues, &*view.spec.class.0), (1, "production"));
    assert!(!c.core.is_overrun(job));
    c.advance_ms(400);
    assert!(c.core.is_overrun(job), "it goes on beyond its limit again");
    c.drain();
}

#[test]
fn one_that_lost_its_node_while_it_yields_starts_again_only_when_none_waits() {
    let mut c = cluster(&[], "space");
    c.join(1, 3);
    let (wait, signal, otherwise) = (Nanos::from_secs(1000), None, NoRespawn::Kill);
    let on_node_loss = OnNodeLoss::Respawn { wait, signal, otherwise };
    let over = c.submit(JobSpec { on_node_loss, ..limited(1, 300) });
    assert_eq!(c.core.parts(over)[0].node.0, 0);
    c.advance_ms(400);
    assert!(c.core.is_overrun(over));
    let wide = c.submit(limited(5, 60_000));
    c.arrive();
    assert_eq!((place(&c, wide), place(&c, over)), (Some(Place::Home), Some(Place::Aside)));
    let [small, waits] = [0; 2].map(|_| c.submit(limited(2, 60_000)));
    c.lose(0);
    c.deliver_kills();
    c.arrive();
    assert_eq!((place(&c, wide), place(&c, small)), (None, Some(Place::Home)));
    assert_eq!(place(&c, waits), None, "one processor is free");
    assert_eq!(place(&c, over), Some(Place::Aside), "another one waits");
    c.finish(small);
    c.arrive();
    assert_eq!(place(&c, waits), Some(Place::Home));
    c.advance_ms(1);
    assert_eq!(place(&c, over), Some(Place::Home));
    assert_eq!(c.core.parts(over)[0].node.0, 1);
    c.end_job(over, TaskStatus::Exited(0));
    c.drain();
}

#[test]
fn jobs_end_at_their_limits_where_others_rest_on_that() {
    for deadline in [None, Some(Nanos::from_secs(5))] {
        let mut c = cluster(&[], "deadline");
        let job = c.submit(JobSpec { deadline, ..limited(1, 500) });
        c.advance_ms(700);
        assert!(!c.core.is_overrun(job));
        assert_eq!(place(&c, job), None, "it is to end");
        c.drain();
    }
}

/// A job whose memory may leave, and that goes on beyond its limit on both processors.
fn overrun_that_may_leave(c: &mut Cluster) -> JobId {
    let options = SubmitOptions { swap: true, ..SubmitOptions::default() };
    let grace = Nanos::from_secs(60);
    let spec = JobSpec { memory_per_task_bytes: Some(150), grace, ..limited(2, 300) };
    let over = c.submits(|request| Event::submit(request, spec, options)).unwrap();
    c.advance_ms(400);
    assert!(c.core.is_overrun(over));
    over
}

#[test]
fn it_is_preempted_though_the_memory_of_another_leaves() {
    let mut c = cluster(&[], "space");
    c.join(1, 2);
    let options = || SubmitOptions { swap: true, ..SubmitOptions::default() };
    let spec = JobSpec { memory_per_task_bytes: Some(150), ..limited(2, 60_000) };
    let asleep = c.submits(|request| Event::submit(request, spec.clone(), options())).unwrap();
    let over = overrun_that_may_leave(&mut c);
    c.event(Event::Suspend { job: asleep });
    let view = c.core.job(asleep, ClusterTime(c.now)).unwrap();
    assert!(view.swap.is_some_and(|it| it.is_under_way), "its node has not answered");
    let next = c.submit(limited(2, 60_000));
    c.arrive();
    assert_eq!((place(&c, over), place(&c, next)), (Some(Place::Aside), Some(Place::Home)));
    c.drain();
}

#[test]
fn one_that_is_kept_out_comes_back_to_end() {
    let mut c = cluster(&[], "space");
    let over = overrun_that_may_leave(&mut c);
    let next = c.submit(limited(2, 60_000));
    c.arrive();
    c.answer_swap(0, 0);
    c.finish(next);
    c.arrive();
    assert_eq!(place(&c, over), Some(Place::Aside), "moving its memory took some time");
    c.cancel(over, false);
    c.arrive();
    let view = c.core.job(over, ClusterTime(c.now)).unwrap();
    assert_eq!(view.place, Place::Home);
    assert_eq!(view.swap.map(|it| it.course), Some(SwapCourse::In));
    c.answer_swaps();
    c.drain();
}
