//! The policy `classes`, rule by rule. Each test says a rule of the LLNL paper in our own words (or
//! marks it as ours, where the paper leaves it open), and plays a scene worked out by hand.
//!
//! Times are those of the default classes: interactive jobs wait for nothing, production jobs half
//! an hour; both are let alone for ten seconds a processor, standby jobs for three.

use crate::cluster::{Cluster, job, params};
use tutti_core::{Event, JobState, Place, WaitReason};
use tutti_types::param::UNBOUNDED;
use tutti_types::{
    Amount, ClassName, ClusterTime, JobId, JobSpec, NodeId, ProcessorSet, Refusal, ResourceName,
    ResourceSpec, ResourceWish, UserId,
};

const MINUTE: u64 = 60;

/// A machine under the policy.
struct Scene {
    c: Cluster,
}

impl Scene {
    /// Nodes of so many processors.
    fn new(widths: &[u32]) -> Self {
        let mut c = Cluster::new(params(&[("policy", 2)]));
        for (node, &width) in (0..).zip(widths) {
            c.join(node, width);
        }
        Self { c }
    }

    fn submit(&mut self, class: &str, processors: u32) -> JobId {
        self.ask(class, job(processors))
    }

    fn ask(&mut self, class: &str, spec: JobSpec) -> JobId {
        self.c.submit(JobSpec { class: ClassName::new(class), ..spec })
    }

    fn after_s(&mut self, seconds: u64) {
        self.c.advance_ms(seconds * 1000);
    }

    /// A job that leaves has left, one that comes is back.
    fn arrive(&mut self) {
        self.c.arrive();
    }

    fn rule(&mut self, class: &str, rule: &str, value: u64) {
        let class = ClassName::new(class);
        let spec = self.c.core.classes()[&class].with(rule, value).unwrap();
        self.c.event(Event::SetClass { class, spec });
    }

    fn limit(&mut self, name: &str, value: u64) {
        let mut params = self.c.core.params().clone();
        params.set(name, value).unwrap();
        self.c.event(Event::SetParams { params });
    }

    /// Where a job is: `0:4-7`, `waits`, `leaves`, `aside`, `comes`, or `gone`.
    fn at(&self, job: JobId) -> String {
        let Some(view) = self.c.core.job(job, ClusterTime(self.c.now)) else {
            return "gone".into();
        };
        if matches!(view.state, JobState::Queued { .. }) {
            return "waits".into();
        }
        match view.place {
            Place::Home => {
                let places = view.placements.iter();
                let places: Vec<String> =
                    places.map(|it| format!("{}:{}", it.node, it.processors)).collect();
                places.join(" ")
            }
            Place::Leaving => "leaves".into(),
            Place::Aside => "aside".into(),
            Place::Coming => "comes".into(),
        }
    }

    fn check(&self, expected: &[(JobId, &str)]) {
        for &(job, place) in expected {
            assert_eq!(self.at(job), place, "job {job} after {} s", self.c.now / 1_000_000_000);
        }
    }

    fn why(&self, job: JobId) -> String {
        let view = self.c.core.job(job, ClusterTime(self.c.now)).unwrap();
        match view.state {
            JobState::Queued { why, .. } => why.to_string(),
            JobState::Running { .. } | JobState::Ending { .. } => {
                view.why_aside.map_or(String::new(), |why| why.to_string())
            }
        }
    }
}

// ------------------------------------------------------------------------------- which job is a candidate

/// A job that has waited for its class's maximum is a candidate, and not before.
#[test]
fn who_waited_long_enough_has_others_set_aside() {
    let mut s = Scene::new(&[4]);
    let idle = s.submit("standby", 4);
    let long = s.submit("production", 4);
    s.check(&[(idle, "0:0-3"), (long, "waits")]);
    s.after_s(30 * MINUTE - 1);
    s.check(&[(idle, "0:0-3")]);
    assert_eq!(
        s.why(long),
        "too few processors are free; if they stay so, others are preempted in 1s"
    );
    s.after_s(1);
    s.check(&[(idle, "leaves"), (long, "waits")]);
    s.arrive();
    s.check(&[(idle, "aside"), (long, "0:0-3")]);
    assert_eq!(s.why(idle), "too few processors are free");
    s.c.finish(long);
    s.arrive();
    s.check(&[(idle, "0:0-3")]);
}

/// A class with a wait of `never` takes what is free and preempts none.
#[test]
fn standby_jobs_only_absorb_what_is_free() {
    let mut s = Scene::new(&[4]);
    let first = s.submit("standby", 3);
    let second = s.submit("standby", 2);
    s.after_s(100 * 60 * MINUTE);
    s.check(&[(first, "0:0-2"), (second, "waits")]);
    assert_eq!(
        s.why(second),
        "too few processors are free, and jobs of its class never preempt others; \
         a job with fewer tasks or of another class (--class) could start sooner"
    );
}

/// Narrow jobs come without end, and each is let by while it fits; a wide one waits no longer than
/// its class's maximum, and the do-not-disturb time of those that are in its way then.
#[test]
fn a_wide_job_waits_no_longer_than_its_class_may_however_many_narrow_ones_come() {
    let mut s = Scene::new(&[4]);
    for _ in 0..4 {
        s.submit("production", 1);
    }
    let wide = s.submit("production", 4);
    let mut running: Vec<JobId> = (1..=4).map(JobId).collect();
    for _ in 0..30 * MINUTE / 15 {
        running.push(s.submit("production", 1));
        s.after_s(15);
        s.c.finish(running.remove(0));
        assert_eq!(s.at(wide), "waits", "the next narrow one takes what came free");
    }
    s.after_s(10);
    s.arrive();
    assert_eq!(s.at(wide), "0:0-3");
}

/// Candidates are sorted by priority, and within a priority by how long they have waited.
#[test]
fn the_highest_priority_goes_first_then_the_longest_wait() {
    let mut s = Scene::new(&[4]);
    let idle = s.submit("standby", 4);
    s.after_s(12);
    let (early, late) = (s.submit("production", 4), s.submit("production", 4));
    s.after_s(30 * MINUTE - 1);
    // The standby job leaves when the next second is over; by then another is more important.
    s.rule("standby", "do_not_disturb", 100 * MINUTE * 1_000_000_000);
    s.after_s(1);
    assert!(s.why(early).starts_with("starts within"), "{}", s.why(early));
    assert_eq!(
        s.why(late),
        format!("too few processors are free, and job {early} preempts others first")
    );
    let quick = s.submit("interactive", 4);
    assert!(s.why(quick).starts_with("starts within"), "{}", s.why(quick));
    s.rule("standby", "do_not_disturb", 0);
    s.arrive();
    s.check(&[(idle, "aside"), (quick, "0:0-3"), (early, "waits"), (late, "waits")]);
    s.c.finish(quick);
    s.check(&[(early, "0:0-3"), (late, "waits")]);
    s.c.finish(early);
    s.check(&[(late, "0:0-3")]);
}

/// Ours, from "preference is given to higher classes and larger jobs": of those that have waited
/// equally long, the larger comes first.
#[test]
fn of_equals_the_larger_comes_first() {
    let mut s = Scene::new(&[8]);
    let all = s.submit("benchmark", 8);
    let (small, large) = (s.submit("production", 2), s.submit("production", 8));
    s.c.finish(all);
    s.check(&[(large, "0:0-7"), (small, "waits")]);
}

/// A candidate beyond the job limit is none.
#[test]
fn the_job_limit_drops_a_candidate() {
    let mut s = Scene::new(&[4]);
    let idle = s.submit("standby", 4);
    s.limit("job_limit", 3);
    let wide = s.submit("interactive", 4);
    s.after_s(13);
    s.check(&[(idle, "0:0-3"), (wide, "waits")]);
    assert_eq!(s.why(wide), "a job may have at most 3 processors now (job_limit)");
    s.limit("job_limit", UNBOUNDED);
    s.check(&[(idle, "leaves")]);
}

// ------------------------------------------------------------------------ assignments and their cost

/// The fewer processors the jobs in the way have, the better.
#[test]
fn it_is_cheaper_to_move_few_processors() {
    let mut s = Scene::new(&[8]);
    let (wide, narrow) = (s.submit("standby", 6), s.submit("standby", 2));
    s.after_s(60);
    let quick = s.submit("interactive", 2);
    s.check(&[(wide, "0:0-5"), (narrow, "leaves"), (quick, "waits")]);
    s.arrive();
    s.check(&[(quick, "0:6-7")]);
}

/// The lower their priority, the better.
#[test]
fn it_is_cheaper_to_move_low_priorities() {
    let mut s = Scene::new(&[8]);
    let (long, idle) = (s.submit("production", 4), s.submit("standby", 4));
    s.after_s(60);
    let quick = s.submit("interactive", 4);
    s.check(&[(long, "0:0-3"), (idle, "leaves")]);
    s.arrive();
    s.check(&[(quick, "0:4-7")]);
}

/// The less is left of their do-not-disturb time, the better.
#[test]
fn it_is_cheaper_to_move_who_has_had_his_time() {
    let mut s = Scene::new(&[8]);
    let block = s.submit("benchmark", 4);
    let old = s.submit("production", 4);
    s.after_s(30);
    s.c.finish(block);
    let fresh = s.submit("production", 4);
    s.check(&[(fresh, "0:0-3"), (old, "0:4-7")]);
    let quick = s.submit("interactive", 4);
    // The old one keeps its processors for ten more seconds, the fresh one for forty.
    s.after_s(10);
    s.check(&[(old, "leaves"), (fresh, "0:0-3")]);
    s.arrive();
    s.check(&[(quick, "0:4-7")]);
}

/// Ours: what is weighed is processors x (1 + priority) x (a minute + what is left), so two
/// processors of a production job, 2 x 3 x 60 s, are cheaper than four of a standby job, 4 x 2 x 60
/// s.
#[test]
fn the_three_are_multiplied() {
    let mut s = Scene::new(&[6]);
    let (idle, long) = (s.submit("standby", 4), s.submit("production", 2));
    s.after_s(60);
    let quick = s.submit("interactive", 2);
    s.check(&[(idle, "0:0-3"), (long, "leaves")]);
    s.arrive();
    s.check(&[(quick, "0:4-5")]);
}

/// In no case is a job of a higher class set aside, or a benchmark.
#[test]
fn nobody_has_a_higher_class_or_a_benchmark_set_aside() {
    let mut s = Scene::new(&[4]);
    let quick = s.submit("interactive", 2);
    let bench = s.submit("benchmark", 2);
    let (long, hasty) = (s.submit("production", 2), s.submit("interactive", 3));
    s.after_s(60 * MINUTE);
    s.check(&[(quick, "0:0-1"), (bench, "0:2-3"), (long, "waits"), (hasty, "waits")]);
    let why = "too few processors are free, and the jobs that have them may not be preempted for it; \
               a job with fewer tasks or of a more important class could start sooner";
    assert_eq!((s.why(long).as_str(), s.why(hasty).as_str()), (why, why));
    // An equal one is: the first interactive job has had its 20 s.
    let equal = s.submit("interactive", 2);
    s.check(&[(quick, "leaves"), (bench, "0:2-3"), (equal, "waits")]);
}

/// The first candidate for which there is a possible assignment gets the reservation: one for which
/// there is none does not hold up those after it.
#[test]
fn a_candidate_without_a_possible_assignment_is_deferred() {
    let mut s = Scene::new(&[4]);
    let (bench, idle) = (s.submit("benchmark", 1), s.submit("standby", 3));
    s.after_s(10);
    let (wide, narrow) = (s.submit("interactive", 4), s.submit("interactive", 3));
    s.check(&[(bench, "0:0"), (idle, "leaves"), (wide, "waits")]);
    s.arrive();
    s.check(&[(narrow, "0:1-3"), (wide, "waits")]);
}

/// Ours: an assignment is possible only within the limits of class and large jobs, counted without
/// those that are in the way.
#[test]
fn a_reservation_that_limits_would_defeat_is_not_made() {
    let mut s = Scene::new(&[6]);
    s.rule("interactive", "processors", 2);
    let (quick, idle) = (s.submit("interactive", 2), s.submit("standby", 4));
    s.after_s(20);
    let second = s.submit("interactive", 2);
    // In the place of the first one it is within the limit; beside it, it is not.
    s.check(&[(quick, "leaves"), (idle, "0:2-5")]);
    s.arrive();
    s.check(&[(second, "0:0-1"), (quick, "aside")]);
    assert_eq!(s.why(quick), "its class may have at most 2 processors now");
}

// ---------------------------------------------------------------------------- one bumper at a time

/// While one job has a reservation, the next of the same priority waits for it to be loaded; only
/// one of a higher priority takes its place.
#[test]
fn there_is_one_bumper_and_only_a_higher_class_replaces_it() {
    let mut s = Scene::new(&[8]);
    let (first, second) = (s.submit("standby", 4), s.submit("standby", 4));
    s.rule("production", "wait", 0);
    let (long, other) = (s.submit("production", 4), s.submit("production", 4));
    assert_eq!(s.why(long), "starts within 12s");
    assert_eq!(
        s.why(other),
        format!("too few processors are free, and job {long} preempts others first")
    );
    s.after_s(5);
    let quick = s.submit("interactive", 8);
    assert_eq!(s.why(quick), "starts within 7s");
    assert_eq!(
        s.why(long),
        format!("too few processors are free, and job {quick} preempts others first")
    );
    s.after_s(7);
    s.check(&[(first, "leaves"), (second, "leaves")]);
    s.arrive();
    s.check(&[(quick, "0:0-7"), (long, "waits"), (other, "waits")]);
    s.c.finish(quick);
    s.check(&[(long, "0:0-3"), (other, "0:4-7"), (first, "aside"), (second, "aside")]);
}

/// No job loses its processors before its do-not-disturb time is over, so many seconds for each of
/// them; those reserved are taken as the times of their jobs run out, and stay empty till the
/// bumper has all.
#[test]
fn reserved_processors_are_taken_as_times_run_out() {
    let mut s = Scene::new(&[6]);
    let (short, long) = (s.submit("standby", 2), s.submit("standby", 4));
    let quick = s.submit("interactive", 6);
    s.after_s(5);
    s.check(&[(short, "0:0-1"), (long, "0:2-5")]);
    s.after_s(1);
    s.check(&[(short, "leaves"), (long, "0:2-5")]);
    s.arrive();
    let more = s.submit("standby", 2);
    s.check(&[(short, "aside"), (more, "waits"), (quick, "waits")]);
    s.after_s(5);
    s.check(&[(long, "0:2-5"), (more, "waits")]);
    s.after_s(1);
    s.check(&[(long, "leaves")]);
    s.arrive();
    s.check(&[(quick, "0:0-5")]);
}

/// The bumper is loaded on any processors that are unassigned, if that comes earlier; what was
/// reserved then goes to others.
#[test]
fn the_bumper_takes_what_comes_free_first() {
    let mut s = Scene::new(&[8]);
    let (bench, idle) = (s.submit("benchmark", 4), s.submit("standby", 4));
    let quick = s.submit("interactive", 4);
    assert_eq!(s.why(quick), "starts within 12s");
    s.after_s(5);
    s.c.finish(bench);
    s.check(&[(quick, "0:0-3"), (idle, "0:4-7")]);
    s.after_s(60);
    s.check(&[(idle, "0:4-7")]);
}

/// A bumper whose user cancels or suspends it needs no reservation any more.
#[test]
fn a_reservation_goes_with_its_job() {
    for cancel in [true, false] {
        let mut s = Scene::new(&[4]);
        let idle = s.submit("standby", 4);
        let quick = s.submit("interactive", 4);
        match cancel {
            true => s.c.cancel(quick, true),
            false => s.c.event(Event::Suspend { job: quick }),
        }
        s.after_s(60);
        s.check(&[(idle, "0:0-3")]);
    }
}

/// Since leaving takes time, everything is decided again when processors are really free.
#[test]
fn all_is_decided_again_when_processors_are_really_free() {
    let mut s = Scene::new(&[8]);
    let (bench, idle) = (s.submit("benchmark", 4), s.submit("standby", 4));
    s.after_s(12);
    let quick = s.submit("interactive", 4);
    s.check(&[(idle, "leaves")]);
    s.c.finish(bench);
    s.check(&[(quick, "0:0-3"), (idle, "leaves")]);
    s.c.arrive_one(0);
    s.check(&[(idle, "comes")]);
    s.arrive();
    s.check(&[(idle, "0:4-7")]);
}

/// After its do-not-disturb time a job may be preempted by any other: jobs of one class share the
/// machine in turns of that length, each waiting for its class's wait.
#[test]
fn jobs_of_a_class_take_turns() {
    let mut s = Scene::new(&[4]);
    let (a, b) = (s.submit("production", 4), s.submit("production", 4));
    s.after_s(30 * MINUTE);
    s.check(&[(a, "leaves")]);
    s.arrive();
    s.check(&[(a, "aside"), (b, "0:0-3")]);
    s.after_s(30 * MINUTE - 1);
    s.check(&[(b, "0:0-3")]);
    s.after_s(1);
    s.arrive();
    s.check(&[(a, "0:0-3"), (b, "aside")]);
}

/// A job's time starts anew each time it gets processors.
#[test]
fn who_is_back_is_let_alone_again() {
    let mut s = Scene::new(&[4]);
    let idle = s.submit("standby", 4);
    s.after_s(12);
    let quick = s.submit("interactive", 4);
    s.arrive();
    s.after_s(100);
    s.c.finish(quick);
    s.after_s(100);
    s.check(&[(idle, "comes")]);
    s.arrive();
    let again = s.submit("interactive", 4);
    s.after_s(11);
    s.check(&[(idle, "0:0-3"), (again, "waits")]);
    s.after_s(1);
    s.check(&[(idle, "leaves")]);
}

// ------------------------------------------------------------------------------------------ loading

/// All others are loaded in the order of priority and waiting; one that fits is loaded though one
/// before it does not.
#[test]
fn others_are_loaded_by_priority_and_waiting() {
    let mut s = Scene::new(&[8]);
    s.rule("interactive", "wait", UNBOUNDED);
    let block = s.submit("benchmark", 8);
    let idle = s.submit("standby", 2);
    s.after_s(1);
    let (long, wide) = (s.submit("production", 4), s.submit("production", 7));
    s.after_s(1);
    let quick = s.submit("interactive", 2);
    s.c.finish(block);
    // Of the two production jobs the larger comes first, and does not fit beside the interactive
    // one.
    s.check(&[(quick, "0:0-1"), (wide, "waits"), (long, "0:2-5"), (idle, "0:6-7")]);
}

/// A job limit, one for all large jobs together, and one for the class are checked first.
#[test]
fn limits_come_first() {
    let mut s = Scene::new(&[16]);
    s.limit("large_job", 4);
    s.limit("large_limit", 8);
    s.limit("job_limit", 6);
    s.rule("benchmark", "processors", 3);
    let (a, b) = (s.submit("production", 4), s.submit("production", 4));
    let (third, small) = (s.submit("production", 4), s.submit("production", 3));
    let huge = s.submit("production", 7);
    let (x, y) = (s.submit("benchmark", 2), s.submit("benchmark", 2));
    s.check(&[(a, "0:0-3"), (b, "0:4-7"), (third, "waits"), (small, "0:8-10"), (huge, "waits")]);
    s.check(&[(x, "0:11-12"), (y, "waits")]);
    assert_eq!(s.why(third), "large jobs may have at most 8 processors now (large_limit)");
    assert_eq!(s.why(huge), "a job may have at most 6 processors now (job_limit)");
    assert_eq!(s.why(y), "its class may have at most 3 processors now");
    s.c.finish(a);
    s.check(&[(third, "0:0-3")]);
    s.rule("benchmark", "processors", 4);
    s.check(&[(y, "0:13-14")]);
}

/// Ours, for queues as the batch system had them: how many jobs may run at all, and how many of one
/// user.
#[test]
fn jobs_are_limited_by_number_too() {
    let mut s = Scene::new(&[8]);
    s.rule("production", "jobs", 3);
    s.rule("production", "jobs_per_user", 2);
    let (a, b, c) =
        (s.submit("production", 1), s.submit("production", 1), s.submit("production", 1));
    assert_eq!(s.why(c), "its user may have at most 2 jobs of the class at a time now");
    let theirs = |user| JobSpec { owner: UserId(user), ..job(1) };
    let (d, e) = (s.ask("production", theirs(1)), s.ask("production", theirs(2)));
    s.check(&[(a, "0:0"), (b, "0:1"), (c, "waits"), (d, "0:2"), (e, "waits")]);
    assert_eq!(s.why(e), "its class may have at most 3 jobs at a time now");
    s.c.finish(b);
    s.check(&[(c, "0:1"), (e, "waits")]);
    s.rule("production", "jobs", 1);
    assert_eq!(s.why(e), "its class may have at most 1 job at a time now");
}

/// A job gets the lowest processors, closest to node 0.
#[test]
fn the_position_closest_to_node_0_counts() {
    let mut s = Scene::new(&[4, 4]);
    let (a, b, c) =
        (s.submit("production", 3), s.submit("production", 2), s.submit("production", 1));
    s.check(&[(a, "0:0-2"), (b, "0:3 1:0"), (c, "1:1")]);
    s.c.finish(a);
    let d = s.submit("production", 4);
    s.check(&[(d, "0:0-2 1:2")]);
}

/// With packing by buddies, a job gets a block that begins at a multiple of its size.
#[test]
fn blocks_are_aligned_where_packing_says_so() {
    let mut s = Scene::new(&[8]);
    s.limit("packing", 2);
    let (a, b) = (s.submit("standby", 1), s.submit("standby", 3));
    s.check(&[(a, "0:0"), (b, "0:4-6")]);
    s.after_s(9);
    let quick = s.submit("interactive", 4);
    // Either block has a job in it; the first one's is smaller.
    s.check(&[(a, "leaves"), (b, "0:4-6")]);
    s.arrive();
    s.check(&[(quick, "0:0-3"), (a, "aside")]);
    let more = s.submit("production", 2);
    s.check(&[(more, "waits")]);
    s.c.finish(b);
    s.check(&[(more, "0:4-5")]);
}

/// Tasks of several processors keep theirs together on a node.
#[test]
fn the_processors_of_a_task_are_on_one_node() {
    let mut s = Scene::new(&[3, 4]);
    let pair = s.ask("production", JobSpec { processors_per_task: Some(2), ..job(3) });
    s.check(&[(pair, "0:0-1 1:0-3")]);
    let shared = s.ask("interactive", JobSpec { processors_per_task: None, ..job(20) });
    s.after_s(60);
    s.arrive();
    s.check(&[(pair, "aside"), (shared, "0:0-2 1:0-3")]);
}

fn on_circuit(number: Option<u32>, processors: u32) -> JobSpec {
    let name = ResourceName::new("barrier").unwrap();
    let amount = number.map_or(Amount::One, Amount::Number);
    JobSpec { resources: vec![ResourceWish { name, amount }], ..job(processors) }
}

fn circuits(s: &mut Scene, count: u32, jobs_each: u32) {
    let spec = ResourceSpec { count, jobs_each, lent: true };
    s.c.event(Event::SetResource { name: ResourceName::new("barrier").unwrap(), spec });
}

/// A circuit is assigned at loading, one after the other in a circle, or the one that is asked for.
#[test]
fn circuits_are_given_round_robin_or_as_asked() {
    let mut s = Scene::new(&[8]);
    circuits(&mut s, 3, 1);
    let number = |s: &Scene, job| {
        let view = s.c.core.job(job, ClusterTime(s.c.now)).unwrap();
        view.resources.first().map(|grant| grant.numbers[0])
    };
    let a = s.ask("production", on_circuit(None, 1));
    let b = s.ask("production", on_circuit(Some(2), 1));
    let c = s.ask("production", on_circuit(None, 1));
    assert_eq!([a, b, c].map(|job| number(&s, job)), [Some(0), Some(2), Some(1)]);
    let d = s.ask("production", on_circuit(None, 1));
    let e = s.ask("production", on_circuit(Some(0), 1));
    s.check(&[(d, "waits"), (e, "waits")]);
    assert_eq!(
        s.why(d),
        "other jobs have what it asks for of resource barrier (see `tutti resource`)"
    );
    s.c.finish(b);
    assert_eq!(number(&s, d), Some(2), "the next after the last");
    s.c.finish(c);
    s.check(&[(e, "waits")]);
    s.c.finish(a);
    assert_eq!(number(&s, e), Some(0));
}

/// Ours: a preempted job gives its circuit up with its processors.
#[test]
fn a_bumper_may_have_the_circuit_of_who_is_in_its_way() {
    let mut s = Scene::new(&[8]);
    circuits(&mut s, 1, 1);
    let idle = s.ask("standby", on_circuit(None, 4));
    s.after_s(60);
    let quick = s.ask("interactive", on_circuit(None, 4));
    // There are processors enough; the circuit is what it takes.
    s.check(&[(idle, "leaves")]);
    s.arrive();
    s.check(&[(quick, "0:0-3"), (idle, "aside")]);
    assert_eq!(
        s.why(idle),
        "other jobs have what it asks for of resource barrier (see `tutti resource`)"
    );
}

#[test]
fn a_circuit_that_does_not_exist_is_refused() {
    let mut s = Scene::new(&[8]);
    assert_eq!(s.c.try_submit(on_circuit(None, 1)), None);
    assert!(matches!(s.c.refusals.last(), Some(Refusal::NoResource { count: 0, .. })));
    circuits(&mut s, 4, 1);
    assert_eq!(s.c.try_submit(on_circuit(Some(4), 1)), None);
    let says = s.c.refusals.last().unwrap().to_string();
    assert_eq!(says, "resource barrier has no number 4; ask for one of 0 to 3");
}

/// What others use is left alone, as if a class of the highest priority had it.
#[test]
fn foreign_processors_are_left_alone() {
    let mut s = Scene::new(&[4]);
    let foreign = |s: &mut Scene, processors| {
        s.c.event(Event::Foreign { node: NodeId(0), processors });
    };
    foreign(&mut s, ProcessorSet::first(2));
    let (idle, quick) = (s.submit("standby", 2), s.submit("interactive", 3));
    s.check(&[(idle, "0:2-3"), (quick, "waits")]);
    s.after_s(60);
    s.check(&[(idle, "0:2-3")]);
    let why = "what is no job of the cluster keeps 2 processors busy, and too few are left (parameter foreign)";
    assert_eq!(s.why(quick), why);
    foreign(&mut s, ProcessorSet::first(1));
    s.arrive();
    s.check(&[(idle, "aside"), (quick, "0:1-3")]);
}

// ------------------------------------------------------------------------- where jobs come back, users

/// A job may come back on other processors, if it is movable; otherwise it waits for its own.
#[test]
fn who_is_movable_comes_back_elsewhere() {
    for movable in [true, false] {
        let mut s = Scene::new(&[4, 4]);
        let bench = s.submit("benchmark", 4);
        s.rule("standby", "do_not_disturb", 0);
        let idle = s.ask("standby", JobSpec { movable, ..job(4) });
        let quick = s.submit("interactive", 4);
        s.arrive();
        s.check(&[(bench, "0:0-3"), (quick, "1:0-3"), (idle, "aside")]);
        s.c.finish(bench);
        s.arrive();
        s.check(&[(idle, if movable { "0:0-3" } else { "aside" })]);
        s.c.finish(quick);
        s.arrive();
        s.check(&[(idle, if movable { "0:0-3" } else { "1:0-3" })]);
        s.c.finish(idle);
        s.c.drain();
    }
}

/// Ours: a suspended job gives its processors up, whatever is left of its time.
#[test]
fn whom_its_user_suspends_makes_room() {
    let mut s = Scene::new(&[4]);
    let (first, second) = (s.submit("production", 4), s.submit("production", 4));
    s.c.event(Event::Suspend { job: first });
    s.arrive();
    s.check(&[(first, "aside"), (second, "0:0-3")]);
    s.c.finish(second);
    s.check(&[(first, "aside")]);
    s.c.event(Event::Resume { job: first });
    s.arrive();
    s.check(&[(first, "0:0-3")]);
}

/// Ours: a job that is asked to end while it is preempted comes before all others, so that it can.
#[test]
fn who_is_asked_to_end_comes_back_first() {
    let mut s = Scene::new(&[4]);
    let idle = s.submit("standby", 4);
    s.after_s(12);
    let quick = s.submit("interactive", 4);
    s.arrive();
    let next = s.submit("production", 4);
    s.c.cancel(idle, false);
    s.c.finish(quick);
    s.arrive();
    s.check(&[(idle, "0:0-3"), (next, "waits")]);
    s.c.finish(idle);
    s.check(&[(next, "0:0-3")]);
}

/// Under another policy all come back at once; under this one, rows that are left vanish.
#[test]
fn the_policy_may_change_at_any_moment() {
    let mut s = Scene::new(&[4]);
    let idle = s.submit("standby", 4);
    s.after_s(12);
    let quick = s.submit("interactive", 4);
    s.arrive();
    s.limit("policy", 0);
    s.arrive();
    s.check(&[(idle, "0:0-3"), (quick, "0:0-3")]);
    assert_eq!(s.c.core.rows().count(), 2, "they take turns");
    s.limit("policy", 2);
    let long = s.submit("production", 4);
    s.after_s(60 * MINUTE);
    s.arrive();
    s.check(&[(long, "waits"), (quick, "0:0-3"), (idle, "0:0-3")]);
    s.c.finish(quick);
    s.arrive();
    assert_eq!(s.c.core.rows().count(), 1);
    s.check(&[(long, "0:0-3"), (idle, "aside")]);
}

/// Ours: a job that was set aside keeps its memory, so no other job can have it by setting jobs
/// aside.
#[test]
fn a_job_that_lacks_memory_is_told_so_and_not_that_processors_are_few() {
    let memory = |bytes| JobSpec { memory_per_task_bytes: Some(bytes), ..job(2) };
    let mut s = Scene::new(&[4]);
    let has = s.ask("production", memory(400));
    s.after_s(MINUTE);
    for class in ["interactive", "standby"] {
        let waits = s.ask(class, memory(400));
        s.check(&[(has, "0:0-1"), (waits, "waits")]);
        assert_eq!(crate::scenarios::why(&s.c, waits), Some(WaitReason::Memory), "{class}");
    }
    s.c.finish(has);
    assert_eq!(s.c.core.jobs(ClusterTime(s.c.now)).count(), 2);
}
