//! How time is divided among users, and the room that quick jobs find.

use crate::harness::{Instance, NOBODY, Running, within};
use std::time::{Duration, Instant};

#[test]
fn a_quick_run_of_another_user_waits_for_no_job_to_end() {
    let instance = Instance::of_the_system_alone().up();
    // More than four rows of two processors hold: eight run and others are in line, all without
    // end.
    let jobs: Vec<u64> = (0..14).map(|_| instance.submit_spinner(1)).collect();
    instance.wait_for_state(jobs[7], "running");
    assert_eq!(instance.job(jobs[13])["state"], "queued");
    let begin = Instant::now();
    let run = ["run", "echo", "quick"];
    let done = Running::start(instance.command_as(Some(NOBODY), &run)).wait();
    assert_eq!(done.expect(0).text(), "quick\n");
    let took = begin.elapsed();
    assert!(took < Duration::from_secs(20), "{took:?}");
    assert_eq!(instance.job(jobs[13])["state"], "queued");
    for job in jobs {
        instance.tutti(&["cancel", "--now", &job.to_string()]).expect(0);
    }
}

#[test]
fn two_users_have_about_equal_turns_whatever_each_runs() {
    let instance = Instance::of_the_system_alone().up();
    instance.tutti(&["params", "rows=8", "quantum=20ms"]).expect(0);
    let many: Vec<u64> = (0..5).map(|_| instance.submit_spinner(2)).collect();
    let line =
        ["submit", "--parsable", "-n", "2", "-o", "/dev/null", "sh", "-c", "while :; do :; done"];
    let one = Running::start(instance.command_as(Some(NOBODY), &line)).wait().expect(0).text();
    let one: u64 = one.trim().parse().unwrap();
    instance.wait_for_state(one, "running");
    instance.wait_for_state(many[4], "running");
    let service = |job: u64| instance.job(job)["service_ms"].as_u64().unwrap();
    let all = || many.iter().map(|&job| service(job)).sum::<u64>();
    let (before, before_all) = (service(one), all());
    let (theirs, others) = within(Duration::from_secs(60), "some turns", || {
        let turns = (service(one) - before, all() - before_all);
        (turns.0 + turns.1 > 6_000).then_some(turns)
    });
    let percent = theirs * 100 / (theirs + others);
    assert!((35..=65).contains(&percent), "{theirs} ms and {others} ms");
    for job in many.into_iter().chain([one]) {
        instance.tutti(&["cancel", "--now", &job.to_string()]).expect(0);
    }
}

/// A job of two ranks, of which rank 0 ends when a file is there.
fn submit_wide(instance: &Instance, file: &std::path::Path) -> u64 {
    let file = file.display();
    let line = format!(
        "[ $TUTTI_RANK = 0 ] || while :; do :; done; until [ -e {file} ]; do sleep 0.05; done"
    );
    instance.submit(&["-n", "2", "-o", "/dev/null", "sh", "-c", &line])
}

#[test]
fn a_job_in_line_starts_where_a_rank_has_ended() {
    let instance = Instance::of_the_system_alone().up();
    instance.tutti(&["params", "rows=1"]).expect(0);
    let file = instance.dir.join("end-of-rank-0");
    let wide = submit_wide(&instance, &file);
    instance.wait_for_state(wide, "running");
    let small = instance.submit(&["-o", "/dev/null", "sh", "-c", "while :; do :; done"]);
    instance.wait_for_state(small, "queued");
    let had = instance.job(wide)["placement"][0].as_str().unwrap().to_owned();
    std::fs::write(&file, "").unwrap();
    let started = instance.wait_for_state(small, "running");
    let job = instance.job(wide);
    assert_eq!(job["state"], "running");
    assert_eq!(job["reason"], "gave up 1 processor of ended tasks");
    assert_ne!(job["placement"][0].as_str().unwrap(), had, "{started}");
    assert_ne!(job["placement"][0], started["placement"][0], "they share no processor");
    let before = instance.job(small)["service_ms"].as_u64().unwrap();
    std::thread::sleep(Duration::from_secs(1));
    let after = instance.job(small)["service_ms"].as_u64().unwrap();
    assert!(after > before + 500, "it runs: {before} ms, then {after} ms");
    for job in [wide, small] {
        instance.tutti(&["cancel", "--now", &job.to_string()]).expect(0);
    }
}

#[test]
fn jobs_in_turns_both_run_all_the_time_once_they_need_other_processors() {
    let instance = Instance::of_the_system_alone().up();
    instance.tutti(&["params", "rows=2", "quantum=20ms"]).expect(0);
    let files = ["one", "other"].map(|name| instance.dir.join(name));
    let first = submit_wide(&instance, &files[0]);
    let line = format!(
        "[ $TUTTI_RANK = 1 ] || while :; do :; done; until [ -e {} ]; do sleep 0.05; done",
        files[1].display()
    );
    let second = instance.submit(&["-n", "2", "-o", "/dev/null", "sh", "-c", &line]);
    instance.wait_for_state(first, "running");
    instance.wait_for_state(second, "running");
    for file in &files {
        std::fs::write(file, "").unwrap();
    }
    let freed = |job: u64| instance.job(job)["reason"] == "gave up 1 processor of ended tasks";
    within(Duration::from_secs(30), "both ranks end", || {
        (freed(first) && freed(second)).then_some(())
    });
    let service = |job: u64| instance.job(job)["service_ms"].as_u64().unwrap();
    let before = (service(first), service(second), Instant::now());
    std::thread::sleep(Duration::from_secs(2));
    let ran = (service(first) - before.0) + (service(second) - before.1);
    let passed = u64::try_from(before.2.elapsed().as_millis()).unwrap();
    // In turns, both together would have as much as passed.
    assert!(ran > passed * 3 / 2, "{ran} of {passed} ms");
    for job in [first, second] {
        instance.tutti(&["cancel", "--now", &job.to_string()]).expect(0);
    }
}
