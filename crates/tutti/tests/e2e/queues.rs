//! Queues: limits, access, and files with a site's settings.

use crate::harness::{Instance, NOBODY, Running};
use serde_json::Value;
use std::fs;

fn queue(instance: &Instance, name: &str) -> Value {
    instance.tutti(&["queue", name, "--json"]).expect(0).json()[0].clone()
}

#[test]
fn a_user_has_as_many_jobs_running_as_the_queue_allows() {
    let instance = Instance::new().up();
    let made = instance.tutti(&["queue", "short", "user_jobs=1", "default_time=1h"]).expect(0);
    assert!(made.text().contains("queue short is new"), "{}", made.text());
    let submit = |options: &[&str]| {
        instance.submit(&[&["-o", "/dev/null"], options, &["sleep", &instance.nap]].concat())
    };
    let first = submit(&["-q", "short"]);
    instance.wait_for_state(first, "running");
    let second = submit(&["-q", "short"]);
    let free = submit(&[]);
    instance.wait_for_state(free, "running");
    let held = instance.wait_for_state(second, "queued");
    let reason = held["reason"].as_str().unwrap();
    assert!(reason.contains("queue short") && reason.contains("user_jobs=1"), "{reason}");
    assert_eq!(held["queue"], "short");
    assert_eq!(held["time_limit_ms"], 3_600_000, "the default of the queue");
    let shown = queue(&instance, "short");
    assert_eq!((&shown["running"], &shown["waiting"]), (&1.into(), &1.into()), "{shown}");
    instance.tutti(&["queue", "short", "--remove"]).expect(1).says("has 2 job(s)");
    instance.tutti(&["cancel", "--now", &first.to_string()]).expect(0);
    instance.wait_for_state(second, "running");
    instance.tutti(&["run", "-q", "shrt", "true"]).expect(120).says("the queues are short");
    instance.tutti(&["queue", "short", "job_time=30m"]).expect(1).says("default_time=1h");
    instance.tutti(&["queue", "short", "jobs=0"]).expect(1).says("no job could ever run");
    instance.tutti(&["queue", "short", "colour=red"]).expect(1).says("user_jobs");
    instance.tutti(&["queue", "short", "default_class=nosuch"]).expect(1).says("the classes are");
}

#[test]
fn a_script_for_slurm_names_a_queue_by_its_partition() {
    let instance = Instance::new().up();
    let script = "#!/bin/sh\n#SBATCH -p debug\ntrue\n";
    fs::write(instance.work.join("job"), script).unwrap();
    let submit = || instance.tutti(&["submit", "-o", "/dev/null", "./job"]);
    submit().expect(0).says("there is no queue: --partition=debug");
    instance.tutti(&["queue", "short", "user_jobs=4"]).expect(0);
    submit().expect(120).says("there is no queue debug; the queues are short");
    instance.tutti(&["queue", "debug", "user_jobs=4"]).expect(0);
    submit().expect(0);
    assert_eq!(instance.job(2)["queue"], "debug");
}

#[test]
fn only_listed_users_may_use_a_queue_or_a_class() {
    let instance = Instance::of_the_system().up();
    let run = |words: &[&str]| {
        let words = [&["run"], words, &["true"]].concat();
        Running::start(instance.command_as(Some(NOBODY), &words)).wait()
    };
    instance.tutti(&["queue", "all", "user_jobs=4"]).expect(0);
    instance.tutti(&["queue", "staff", "users=1234,@1234"]).expect(0);
    run(&["-q", "all"]).expect(0);
    run(&["-q", "staff"]).expect(120).says("may use are all").says("[T039]");
    instance.tutti(&["run", "-q", "staff", "true"]).expect(0);
    instance.tutti(&["queue", "staff", "users=nosuchuser"]).expect(1).says("no user nosuchuser");
    instance.tutti(&["params", "--class", "benchmark", "users=1234"]).expect(0);
    let shown = instance.tutti(&["params", "--class", "benchmark"]).expect(0).text();
    assert!(shown.contains("1234"), "{shown}");
    run(&["--class", "benchmark"]).expect(120).says("may use are interactive, production, standby");
    instance.tutti(&["run", "--class", "benchmark", "true"]).expect(0);
    instance.tutti(&["queue", "fast", "default_class=benchmark"]).expect(0);
    run(&["-q", "fast"]).expect(120).says("may not use class benchmark");
    instance.tutti(&["params", "--class", "benchmark", "users=all"]).expect(0);
    run(&["--class", "benchmark"]).expect(0);
    let words = ["queue", "all", "user_jobs=9"];
    let own = Running::start(instance.command_as(Some(NOBODY), &words)).wait();
    own.expect(1).says("only root");
}

#[test]
fn a_file_is_applied_whole_or_not_at_all() {
    let instance = Instance::new().up();
    let file = |text: &str| fs::write(instance.work.join("site.toml"), text).unwrap();
    let apply = |verb: &str, more: &[&str]| {
        instance.tutti(&[&[verb, "--file", "site.toml"], more].concat())
    };
    file("[queue.a]\nuser_jobs = 2\n\n[queue.b]\njobs = \"many\"\n");
    apply("queue", &[]).expect(1).says("site.toml:5: jobs is a number");
    assert_eq!(instance.tutti(&["queue", "--json"]).expect(0).json(), serde_json::json!([]));
    let text = "[queue.a]\nuser_jobs = 2\nusers = [\"nobody\"]\nmemory = \"4G\"\n\n\
                [queue.a.during.\"mon-fri 08:00-18:00\"]\nuser_jobs = 1\n\n[queue.b]\n\
                job_time = \"1h\"\n";
    file(text);
    let said = apply("queue", &["--dry-run"]).expect(0).text();
    assert!(said.contains("queue a is new"), "{said}");
    assert_eq!(instance.tutti(&["queue", "--json"]).expect(0).json(), serde_json::json!([]));
    apply("queue", &[]).expect(0);
    let printed = instance.tutti(&["queue", "--toml"]).expect(0).text();
    file(&printed);
    assert_eq!(apply("queue", &[]).expect(0).text(), "nothing changes\n", "{printed}");
    assert_eq!(instance.tutti(&["queue", "--toml"]).expect(0).text(), printed);
    // What the file leaves out is as in a new queue; other queues stay.
    file("[queue.a]\nuser_jobs = 3\n");
    apply("queue", &[]).expect(0);
    let settings = queue(&instance, "a")["settings"].as_array().unwrap().len();
    assert_eq!((settings, &queue(&instance, "b")["name"]), (1, &"b".into()));
}

#[test]
fn parameters_go_to_a_file_and_back() {
    let instance = Instance::new().up();
    instance.tutti(&["params", "--during", "sat,sun", "rows=2"]).expect(0);
    instance.tutti(&["params", "--class", "production", "users=nobody", "share=10%"]).expect(0);
    let printed = instance.tutti(&["params", "--toml"]).expect(0).text();
    fs::write(instance.work.join("site.toml"), &printed).unwrap();
    let apply = || instance.tutti(&["params", "--file", "site.toml"]);
    assert_eq!(apply().expect(0).text(), "nothing changes\n", "{printed}");
    let wrong = printed.replace("quantum = \"100ms\"", "quantum = \"1ms\"");
    fs::write(instance.work.join("site.toml"), wrong.replace("rows = 4", "rows = 3")).unwrap();
    apply().expect(1).says("site.toml:2: quantum can't be 1ms");
    assert_eq!(instance.tutti(&["params", "--toml"]).expect(0).text(), printed);
    instance.tutti(&["queue", "--preset", "llnl-t3d"]).expect(0);
    instance.tutti(&["params", "--preset", "llnl-t3d-day"]).expect(0);
    assert!(instance.tutti(&["params", "policy"]).expect(0).text().contains("classes"));
    let queues = instance.tutti(&["queue", "--json"]).expect(0).json();
    assert_eq!(queues.as_array().unwrap().len(), 7);
    instance.tutti(&["queue", "--preset", "nosuch"]).expect(1).says("llnl-t3d");
}

#[test]
fn a_job_that_names_no_queue_is_in_that_of_its_environment_or_the_default() {
    let instance = Instance::new().up();
    instance.tutti(&["queue", "short", "user_jobs=4", "default=yes"]).expect(0);
    let both = instance.tutti(&["queue", "long", "default=yes"]).expect(1);
    both.says("queues long and short can't both be the default");
    instance.tutti(&["queue", "long", "jobs=4", "default=perhaps"]).expect(1).says("yes or no");
    instance.tutti(&["queue", "long", "jobs=4"]).expect(0);
    instance.tutti(&["queue", "none", "jobs=4"]).expect(1).says("another name");
    let queue = |options: &[&str], named: Option<&str>| {
        let words = [&["submit", "--parsable", "-o", "/dev/null"], options, &["true"]].concat();
        let mut command = instance.command(&words);
        if let Some(name) = named {
            command.env("TUTTI_QUEUE", name);
        }
        let job = Running::start(command).wait().expect(0).text().trim().to_owned();
        instance.tutti(&["wait", &job]).expect(0);
        instance.job(job.parse().unwrap())["queue"].clone()
    };
    assert_eq!(queue(&[], None), "short");
    assert_eq!(queue(&[], Some("long")), "long");
    assert_eq!(queue(&["-q", "short"], Some("long")), "short");
    assert_eq!(queue(&["-q", "none"], Some("long")), Value::Null);
    assert_eq!(queue(&[], Some("none")), Value::Null);
    let file = instance.tutti(&["queue", "--toml"]).expect(0).text();
    assert!(file.contains("default = \"yes\""), "{file}");
    // A later controller knows the queue of a job that has ended.
    crate::recovery::kill_daemon(&instance, "controller");
    assert!(instance.tutti(&["history", "1"]).expect(0).text().contains(", queue short"));
    let report = instance.tutti(&["report", "--by", "queue", "--json"]).expect(0).json();
    let mut rows: Vec<(String, u64)> = report["rows"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| (row["name"].as_str().unwrap().to_owned(), row["jobs"].as_u64().unwrap()))
        .collect();
    rows.sort();
    assert_eq!(rows, [("-".into(), 2), ("long".into(), 1), ("short".into(), 2)]);
}

#[test]
fn allowances_of_a_file_are_set_together_and_renewed_by_period() {
    let instance = Instance::new().up();
    let own = crate::harness::own_name();
    let text = format!(
        "# site\n[queue.short]\njobs = 2\n[bank]\n{own} = \"100h/month\"\n\"@0\" = \"2h\"\n"
    );
    instance.script("site.toml", &text);
    let bank = |words: &[&str]| instance.tutti(&[&["bank"], words].concat());
    let typed = bank(&[&format!("{own}=1h"), "--dry-run"]).expect(0).text();
    assert!(typed.contains("1h"), "{typed}");
    assert_eq!(bank(&["--json"]).expect(0).json(), serde_json::json!([]));
    bank(&["--dry-run"]).expect(1).says("--dry-run goes with --file or settings");
    bank(&["--file", "site.toml", "x=1h"]).expect(2).says("--file can't go with");
    let dry = bank(&["--file", "site.toml", "--dry-run"]).expect(0).text();
    assert!(dry.contains("100h/month") || dry.contains("4d4h/month"), "{dry}");
    assert_eq!(bank(&["--json"]).expect(0).json(), serde_json::json!([]));
    bank(&["--file", "site.toml"]).expect(0);
    let listed = bank(&["--json"]).expect(0).json();
    let of = |place: usize, field: &str| listed[place][field].clone();
    assert_eq!((of(0, "allowance_s"), of(0, "period")), (360_000.into(), "month".into()));
    assert_eq!((of(1, "allowance_s"), of(1, "period")), (7200.into(), Value::Null));
    let printed = bank(&["--toml"]).expect(0).text();
    instance.script("again.toml", &printed);
    assert_eq!(bank(&["--file", "again.toml"]).expect(0).text(), "nothing changes\n");
    // One wrong line: nothing of the file is set.
    instance.script("wrong.toml", &format!("[bank]\n{own} = \"1h\"\n\"@0\" = \"2h/year\"\n"));
    bank(&["--file", "wrong.toml"]).expect(1).says("wrong.toml:3:").says("day, week or month");
    assert_eq!(bank(&["--json"]).expect(0).json(), listed);
    bank(&[&format!("{own}=+1h")]).expect(0);
    let more = bank(&["--json"]).expect(0).json();
    assert_eq!((&more[0]["allowance_s"], &more[0]["period"]), (&363_600.into(), &"month".into()));
    bank(&[&format!("{own}=none"), "@0=none"]).expect(0);
    assert_eq!(bank(&["--json"]).expect(0).json(), serde_json::json!([]));
}
