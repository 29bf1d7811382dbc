//! How time is divided among users, and the room that quick jobs find.

use crate::harness::{Instance, NOBODY, Running, status_of, within};
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
fn a_quick_run_finds_the_memory_that_its_class_keeps() {
    let instance = Instance::of_the_system_alone().up();
    instance.tutti(&["params", "--class", "interactive", "memory=50%"]).expect(0);
    let wrong = instance.tutti(&["params", "--class", "standby", "memory=60%"]);
    wrong.expect(1).says("at most 50%");
    let nodes = instance.tutti(&["nodes", "--json"]).expect(0).json();
    let total = nodes[0]["memory_bytes"].as_u64().unwrap();
    let part = |percent: u64| format!("{}M", (total >> 20) * percent / 100);
    let submit = |memory: u64| instance.submit(&["-m", &part(memory), "sleep", "1000"]);
    let long = submit(40);
    instance.wait_for_state(long, "running");
    let waits = submit(20);
    let shown = instance.tutti(&["ps"]).expect(0).text();
    let why = "waits for memory: of each node is kept 50% for class interactive";
    assert!(shown.contains(why), "{shown}");
    let declined = instance.tutti(&["submit", "-m", &part(60), "sleep", "1000"]);
    declined.expect(120).says("ask for at most -m");
    let quick = instance.tutti(&["run", "-m", &part(20), "echo", "quick"]).expect(0);
    assert_eq!(quick.text(), "quick\n");
    assert_eq!(instance.job(waits)["state"], "queued");
    instance.tutti(&["params", "--class", "interactive", "memory=0"]).expect(0);
    instance.wait_for_state(waits, "running");
    for job in [long, waits] {
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

#[test]
fn a_job_that_takes_turns_goes_to_a_processor_that_comes_free() {
    let instance = Instance::of_the_system_alone().up();
    let processors = u32::try_from(tutti_linux::proc::online_processors().len()).unwrap();
    let busy = |name: &str| {
        let line = format!("echo $$ > {name}; while :; do :; done");
        instance.submit(&["-o", "/dev/null", "sh", "-c", &line])
    };
    let first = busy("first");
    let wide = instance.submit_spinner(processors - 1);
    instance.wait_for_state(wide, "running");
    let last = busy("last");
    instance.wait_for_state(last, "running");
    let place = |job: u64| instance.job(job)["placement"][0].as_str().unwrap().to_owned();
    let (of_first, of_last) = (place(first), place(last));
    assert_eq!(of_first, of_last, "these two take turns");
    let pid =
        |name: &str| std::fs::read_to_string(instance.work.join(name)).ok()?.trim().parse().ok();
    let mask = |name: &str| {
        let pid = within(Duration::from_secs(20), "a process", || pid(name));
        status_of(pid, "Cpus_allowed_list").unwrap()
    };
    assert_eq!(mask("first"), mask("last"));
    // One that is young does not move.
    std::thread::sleep(Duration::from_secs(2));
    instance.tutti(&["cancel", "--now", &wide.to_string()]).expect(0);
    within(Duration::from_secs(20), "another processor", || {
        let is_alone = |job: u64| instance.job(job)["rows"] == 1;
        (place(last) != of_last && is_alone(first) && is_alone(last)).then_some(())
    });
    assert_eq!(place(first), of_first, "one stays");
    within(Duration::from_secs(20), "other masks", || {
        (mask("first") != mask("last")).then_some(())
    });
    let service = |job: u64| instance.job(job)["service_ms"].as_u64().unwrap();
    let (begun, before) = (Instant::now(), service(first) + service(last));
    std::thread::sleep(Duration::from_secs(2));
    let got = service(first) + service(last) - before;
    let passed = u64::try_from(begun.elapsed().as_millis()).unwrap();
    assert!(got >= passed * 19 / 10 - 200, "{got} ms of turns in {passed} ms");
    for job in [first, last] {
        instance.tutti(&["cancel", "--now", &job.to_string()]).expect(0);
    }
}

#[test]
fn another_job_runs_on_what_a_rank_leaves_that_has_ended() {
    let instance = Instance::of_the_system_alone().up();
    instance.tutti(&["params", "policy=space"]).expect(0);
    let processors = tutti_linux::proc::online_processors();
    let (count, last) = (processors.len().to_string(), (processors.len() - 1).to_string());
    // All ranks spin until a file is there; then the last one ends, and the others spin on.
    let line = format!(
        "test $TUTTI_RANK != 0 || echo $$ > first; \
         while ! test -e end || test $TUTTI_RANK != {last}; do :; done"
    );
    let wide = instance.submit(&["-n", &count, "-o", "/dev/null", "sh", "-c", &line]);
    instance.wait_for_state(wide, "running");
    let narrow = instance.submit_spinner(1);
    assert_eq!(instance.job(narrow)["state"], "queued");
    let first = std::fs::read_to_string(instance.work.join("first")).unwrap();
    let mask = || status_of(first.trim().parse().unwrap(), "Cpus_allowed_list").unwrap();
    let before = mask();
    instance.script("end", "");
    let begun = instance.wait_for_state(narrow, "running");
    assert_eq!(instance.job(wide)["state"], "running");
    let place = |job: &serde_json::Value| job["placement"][0].as_str().unwrap().to_owned();
    let own = place(&begun);
    assert!(own.ends_with(&format!(":{}", processors.last().unwrap())), "{own}");
    assert_ne!(place(&instance.job(wide)), own);
    assert_eq!(instance.job(narrow)["rows"], 1, "neither takes turns with the other");
    assert_eq!(mask(), before, "the ranks that are left stay where they are");
    // Nor is the set of the rank that has ended in the way of the job's.
    assert!(!instance.log().contains("T073"), "{}", instance.log());
    for job in [wide, narrow] {
        instance.tutti(&["cancel", "--now", &job.to_string()]).expect(0);
    }
}
