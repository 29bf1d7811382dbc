//! Orders about jobs in line: hold, release, another class.

use crate::harness::{Instance, NOBODY, Running};

#[test]
fn a_held_job_begins_when_it_is_released() {
    let instance = Instance::new().up();
    let held = instance.submit(&["--hold", "-o", "/dev/null", "sleep", &instance.nap]);
    let job = instance.job(held);
    assert_eq!(job["state"], "queued");
    assert_eq!(job["reason"], "held by its owner; `tutti release` puts it in line");
    // A script may say so, and a later controller knows it.
    instance.script("job.sh", "#!/bin/sh\n#SBATCH -H\ntrue\n");
    let script = instance.submit(&["-o", "/dev/null", "job.sh"]);
    crate::recovery::kill_daemon(&instance, "controller");
    for job in [held, script] {
        assert_eq!(instance.job(job)["state"], "queued");
        instance.tutti(&["release", &job.to_string()]).expect(0);
    }
    instance.wait_for_state(held, "running");
    instance.tutti(&["wait", &script.to_string()]).expect(0);
    let (held, script) = (held.to_string(), script.to_string());
    let refused = instance.tutti(&["hold", &held]).expect(1);
    refused.says(&format!("job {held} has begun")).says("[T080]");
    instance.tutti(&["release", &held]).expect(1).says("is not held").says("[T080]");
    instance.tutti(&["hold", &script]).expect(1).says("has ended").says("[T022]");
    instance.tutti(&["hold", "999"]).expect(1).says("[T021]");
    let both = ["submit", "--hold", "-t", "1m", "-d", "1h", "true"];
    instance.tutti(&both).expect(2).says("--hold");
    instance.tutti(&["cancel", "--now", &held]).expect(0);
    instance.tutti(&["wait", &held]).expect(137);
}

#[test]
fn an_owner_can_hold_and_reclass_own_jobs_and_an_administrator_all() {
    let instance = Instance::of_the_system().up();
    let as_owner = |words: &[&str]| Running::start(instance.command_as(Some(NOBODY), words)).wait();
    let submit = ["submit", "--parsable", "--hold", "-o", "/dev/null", "sleep", &instance.nap];
    let job = as_owner(&submit).expect(0).text().trim().to_owned();
    let number: u64 = job.parse().unwrap();
    as_owner(&["release", &job]).expect(0);
    instance.wait_for_state(number, "running");
    as_owner(&["class", &job, "standby"]).expect(0);
    assert_eq!(instance.job(number)["class"], "standby");
    as_owner(&["class", &job, "nosuch"]).expect(1).says("there is no class nosuch").says("[T034]");
    instance.tutti(&["class", &job, "benchmark"]).expect(0);
    assert_eq!(instance.job(number)["class"], "benchmark");
    // What an administrator holds, only an administrator can release.
    let waits = as_owner(&submit).expect(0).text().trim().to_owned();
    instance.tutti(&["hold", &waits]).expect(0);
    let refused = as_owner(&["release", &waits]).expect(1);
    refused.says("only an administrator can release it").says("[T020]");
    let shown = instance.job(waits.parse().unwrap())["reason"].to_string();
    assert!(shown.contains("held by an administrator"), "{shown}");
    instance.tutti(&["release", &waits]).expect(0);
    instance.wait_for_state(waits.parse().unwrap(), "running");
    // Others may do nothing of it.
    let own = instance.submit(&["--hold", "-o", "/dev/null", "true"]).to_string();
    for words in [&["hold", &own][..], &["release", &own], &["class", &own, "standby"]] {
        as_owner(words).expect(1).says("belongs to").says("[T020]");
    }
    for job in [&job, &waits, &own] {
        instance.tutti(&["cancel", "--now", job]).expect(0);
    }
}
