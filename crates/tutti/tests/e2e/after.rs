//! Jobs that start after others.

use crate::harness::Instance;
use crate::recovery::kill_daemon;
use crate::slurm::{faced, slurm};
use std::fs;

/// Submits a job, and says its number.
fn submit(instance: &Instance, options: &[&str], line: &str) -> String {
    let words = [&["submit", "--parsable", "-o", "out-%j"], options, &["sh", "-c", line]].concat();
    instance.tutti(&words).expect(0).text().trim().to_owned()
}

fn release(instance: &Instance, file: &str) {
    fs::write(instance.work.join(file), "").unwrap();
}

const WAITS: &str = "while [ ! -e go ]; do sleep 0.05; done; echo first > a; exit $(cat status)";

fn out(instance: &Instance, job: &str) -> String {
    fs::read_to_string(instance.work.join(format!("out-{job}"))).unwrap()
}

#[test]
fn a_chain_of_jobs_goes_on_though_the_controller_is_killed() {
    let instance = Instance::alone().up();
    release(&instance, "status");
    let first = submit(&instance, &["--name", "prep"], WAITS);
    let second = submit(&instance, &["--after", "prep"], "cat a");
    let third = submit(&instance, &["--after", &format!("{second}:any")], "echo third");
    let fails = submit(&instance, &["--after", &format!("{first}:notok")], "true");
    let line = instance.tutti(&["ps", &second]).expect(0).text();
    assert!(line.contains(&format!("starts when job {first} has ended well")), "{line}");
    kill_daemon(&instance, "controller");
    release(&instance, "go");
    instance.tutti(&["wait", &second, &third]).expect(0);
    assert_eq!(
        (out(&instance, &second), out(&instance, &third)),
        ("first\n".into(), "third\n".into())
    );
    instance.tutti(&["wait", &fails]).expect(120).says("did not end as it asks");
    let history = instance.tutti(&["history", "--json", &fails]).expect(0).json();
    assert_eq!(history["ending"], "never-started");
}

#[test]
fn a_job_after_one_that_has_ended_starts_at_once_or_is_declined() {
    let instance = Instance::new().up();
    let bad = submit(&instance, &[], "exit 3");
    instance.tutti(&["wait", &bad]).expect(3);
    let after = |what: &str| format!("--after={bad}:{what}");
    let done = instance.tutti(&["submit", &after("ok"), "true"]).expect(120);
    done.says(&format!("job {bad} has ended (exit code 3)"));
    let clean = submit(&instance, &[&after("notok")], "echo clean");
    instance.tutti(&["wait", &clean]).expect(0);
    // One that is to stay does, as it would if the other had ended later.
    let kept = submit(&instance, &[&after("ok"), "--if-never", "keep"], "true");
    let script = format!("#!/bin/sh\n#SBATCH -d afterok:{bad} -o /dev/null\ntrue\n");
    instance.script("job.sh", &script);
    let batch = instance.tutti(&["batch", "--parsable", "job.sh"]).expect(0).text();
    for job in [kept.as_str(), batch.trim()] {
        let line = instance.tutti(&["ps", job]).expect(0).text();
        assert!(line.contains(&format!("never: job {bad} did not end as it asks")), "{line}");
    }
    kill_daemon(&instance, "controller");
    instance.tutti(&["cancel", &kept, batch.trim()]).expect(0);
    instance.tutti(&["submit", "--after", "99", "true"]).expect(120).says("no job 99 is known");
    instance.tutti(&["submit", "--after", "noname", "true"]).expect(1).says("no job named");
    instance.tutti(&["submit", "--after", "1:soon", "true"]).expect(2).says("none of: ok, notok");
    instance.tutti(&["submit", "--after", "1", "--deadline", "1h", "-t", "1m", "true"]).expect(2);
}

#[test]
fn a_job_that_can_never_start_ends_or_is_kept() {
    let instance = Instance::new().up();
    fs::write(instance.work.join("status"), "7").unwrap();
    let first = submit(&instance, &[], WAITS);
    let ends = submit(&instance, &["--after", &first], "true");
    let keeps = submit(&instance, &["--after", &first, "--if-never", "keep"], "true");
    let either = submit(&instance, &["--after", &format!("{first}|{keeps}:start")], "true");
    release(&instance, "go");
    instance.tutti(&["wait", &first]).expect(7);
    instance.tutti(&["wait", &ends]).expect(120);
    let line = instance.tutti(&["ps", &keeps]).expect(0).text();
    assert!(line.contains(&format!("never: job {first} did not end as it asks")), "{line}");
    instance.tutti(&["cancel", &keeps]).expect(0);
    instance.tutti(&["wait", &either]).expect(0);
}

#[test]
fn a_singleton_waits_for_jobs_of_its_name_and_scripts_for_sbatch_can_ask_too() {
    let instance = Instance::new().up();
    release(&instance, "status");
    let first = submit(&instance, &["--name", "one"], WAITS);
    let next = submit(&instance, &["--name", "one", "--singleton"], "cat a");
    let text = format!("#!/bin/sh\n#SBATCH -d afterok:{first}:{next} -o out-%j\necho both\n");
    instance.script("job.sh", &text);
    let both = instance.tutti(&["batch", "--parsable", "job.sh"]).expect(0).text();
    release(&instance, "go");
    instance.tutti(&["wait", both.trim()]).expect(0);
    assert_eq!(
        (out(&instance, &next), out(&instance, both.trim())),
        ("first\n".into(), "both\n".into())
    );
}

#[test]
fn a_job_starts_so_long_after_another_by_the_name_of_slurm_too() {
    let instance = faced();
    let nap = ["sbatch", "--parsable", "-o", "/dev/null", "--wrap", "sleep $NAP"];
    slurm(&instance, &nap).expect(0);
    instance.wait_for_state(1, "running");
    let after = ["sbatch", "-d", "after:1+5", "-o", "/dev/null", "--wrap", "true"];
    slurm(&instance, &after).expect(0);
    let words = ["squeue", "-h", "-j", "2", "-o", "%t %r %E"];
    let shown = slurm(&instance, &words).expect(0).text();
    assert_eq!(shown, "PD Dependency after:1+5(unfulfilled)\n");
    let job = instance.tutti(&["show", "--json", "2"]).expect(0).json();
    assert_eq!(job[0]["details"]["after"], serde_json::json!(["1:start+300s"]), "{job}");
    // It is counted from the start of a job that has ended, too.
    instance.tutti(&["submit", "-o", "/dev/null", "--after", "1:start+1s", "true"]).expect(0);
    instance.tutti(&["wait", "3"]).expect(0);
    instance.tutti(&["cancel", "1"]).expect(0);
    instance.tutti(&["wait", "1"]);
    instance.tutti(&["submit", "--after", "1:start+1h", "true"]).expect(0);
    assert_eq!(instance.wait_for_state(4, "queued")["wait"], "begin");
    kill_daemon(&instance, "controller");
    assert_eq!(instance.wait_for_state(2, "queued")["wait"], "after");
    for wrong in ["1:start+", "1:start+x", "1:ok+5m"] {
        assert_ne!(instance.tutti(&["submit", "--after", wrong, "true"]).code, 0, "{wrong}");
    }
    instance.tutti(&["cancel", "2", "4"]).expect(0);
    instance.expect_no_nappers();
}
