//! Deadlines: an accepted job is done in time, and the figures say so.

use crate::scenario::{job, settings};
use std::convert::Infallible;
use tutti_sim::{Job, Progress, Settings, Summary, run};
use tutti_types::{ClassName, ClassSpec, Nanos};

const S: u64 = 1_000_000_000;

fn deadline(processors: u32, shares: &[(&str, u64)]) -> Settings {
    let mut settings = settings(processors, "deadline");
    settings.params.set("deadline_slack", 0).unwrap();
    for &(class, share) in shares {
        let spec = ClassSpec::default().with("share", share).unwrap();
        // Slots of one row several times in a frame.
        let spec = spec.with("slots", if class == "interactive" { 3 } else { 1 }).unwrap();
        settings.class_rules.insert(ClassName::new(class), spec);
    }
    settings
}

fn simulate(settings: &Settings, jobs: &[Job]) -> Summary {
    let mut summary = Summary::new(settings.machine.processors(), None);
    let jobs = jobs.iter().copied().map(Ok::<Job, Infallible>);
    run(settings, jobs, &mut summary).unwrap();
    summary
}

fn due(job: Job, deadline: u64) -> Job {
    Job { deadline: Some(Nanos(deadline)), ..job }
}

#[test]
fn who_can_not_be_done_in_time_is_declined_and_all_others_are_done_in_time() {
    let jobs = [
        due(job(0, 10 * S, 2), 20 * S),
        due(job(S, 5 * S, 2), 5 * S),
        due(job(2 * S, 6 * S, 1), 6 * S),
        // No job is left without hope: the first needs its processors from 10 on only.
        due(job(6 * S, 4 * S, 2), 4 * S),
        job(7 * S, 3 * S, 1),
    ];
    let summary = simulate(&deadline(2, &[]), &jobs);
    assert_eq!((summary.submitted(), summary.declined()), (4, 1));
    assert_eq!(summary.in_time_and_late(), (3, 0));
    // Of 22 s with 2 processors, the last has one for 3 s alone.
    assert!((summary.makespan_s() - 22.0).abs() < 1e-9, "{}", summary.makespan_s());
}

/// Jobs of many sizes that come faster than they can be done.
fn many() -> Vec<Job> {
    let mut seed = 7u64;
    let mut random = move |range: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 16) % range
    };
    let mut submit = 0;
    let make = |_| {
        submit += random(9 * S);
        let need = S / 10 + random(20 * S);
        let estimate = Nanos(need + random(2 * need));
        let width = u32::try_from(1 + random(8)).unwrap();
        let class = u16::try_from(random(4)).unwrap();
        let deadline = estimate.0 + random(6 * estimate.0);
        let plain = Job { estimate, class, ..job(submit, need, width) };
        if random(5) == 0 { plain } else { due(plain, deadline) }
    };
    (0..400).map(make).collect()
}

#[test]
fn rows_with_several_slots_get_on_by_arithmetic_as_slot_by_slot() {
    let jobs = many();
    let mut settings = deadline(8, &[("interactive", 3000), ("production", 5000)]);
    settings.params.choose("policy", "gang").unwrap();
    settings.params.set("quantum", 50_000_000).unwrap();
    settings.switch_cost = Nanos(1_000_000);
    let jobs: Vec<Job> = jobs.into_iter().map(|job| Job { deadline: None, ..job }).collect();
    let summary = simulate(&settings, &jobs);
    settings.progress = Progress::BySlot;
    let slowly = simulate(&settings, &jobs);
    assert_eq!(slowly.results(), summary.results());
    assert_eq!(slowly.switches(), summary.switches());
}

#[test]
fn nobody_is_late_whatever_the_shares() {
    let jobs = many();
    for shares in [&[][..], &[("interactive", 3000), ("production", 5000)][..]] {
        let mut settings = deadline(8, shares);
        settings.params.set("quantum", 50_000_000).unwrap();
        let summary = simulate(&settings, &jobs);
        let (in_time, late) = summary.in_time_and_late();
        assert_eq!(late, 0);
        assert!(in_time > 100 && summary.declined() > 20, "{in_time} {}", summary.declined());
        settings.progress = Progress::BySlot;
        let slowly = simulate(&settings, &jobs);
        assert_eq!(slowly.results(), summary.results());
        assert_eq!(slowly.in_time_and_late(), (in_time, 0));
    }
}
