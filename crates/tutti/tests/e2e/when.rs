//! When jobs start: `run --when`, `submit --when`, `ps --start`.

use crate::harness::Instance;
use serde_json::Value;

/// Submits a job that takes both processors until it is ended, or has reached its limit.
fn whole(instance: &Instance, limit: &[&str]) -> u64 {
    let rest = ["-n", "2", "-o", "/dev/null", "sh", "-c", "while :; do :; done"];
    instance.submit(&[limit, &rest].concat())
}

/// Whether a length in milliseconds is this one, or up to a minute less.
#[track_caller]
fn about(value: &Value, minutes: u64) {
    let is_near = value.as_u64().is_some_and(|ms| ms.abs_diff(minutes * 60_000) <= 60_000);
    assert!(is_near, "{value} is not about {minutes} minutes");
}

#[test]
fn start_is_foretold_by_the_limits_of_jobs_before_it() {
    let instance = Instance::new();
    instance.tutti(&["run", "--when", "true"]).expect(125).says("no instance");
    let instance = instance.up();
    instance.tutti(&["params", "policy=space", "discipline=fcfs"]).expect(0);
    let at_once = instance.tutti(&["run", "--when", "-t", "1h", "true"]).expect(0);
    assert!(at_once.text().starts_with("starts at once, ends by "), "{}", at_once.text());
    let first = whole(&instance, &["-t", "60m"]);
    instance.wait_for_state(first, "running");
    let when = ["--when", "-n", "2", "-t", "30m"];
    for verb in ["run", "submit"] {
        let text = |more: &[&str]| instance.tutti(&[&[verb], &when[..], more, &["true"]].concat());
        let line = text(&[]).expect(0).says("if each job runs to its time limit").text();
        assert!(line.starts_with("starts about ") && line.contains(" (in "), "{line}");
        assert!(line.contains("; rests on the limit of job 1"), "{line}");
        let report = text(&["--json"]).expect(0).json();
        assert_eq!((&report["policy"], &report["discipline"]), (&"space".into(), &"fcfs".into()));
        let start = &report["jobs"][0];
        assert_eq!((&start["job"], &start["rests_on"]), (&Value::Null, &serde_json::json!([1])));
        about(&start["starts_in_ms"], 60);
        about(&start["ends_in_ms"], 90);
    }
    assert_eq!(instance.jobs().len(), 1, "nothing was submitted");
    let second = whole(&instance, &["-t", "30m"]);
    let third = whole(&instance, &[]);
    let line = instance.tutti(&["ps", "--start"]).expect(0).text();
    assert!(line.contains("the limit of job 1") && line.contains("it has no time limit"), "{line}");
    let report = instance.tutti(&["ps", "--start", "--json"]).expect(0).json();
    let jobs = report["jobs"].as_array().unwrap();
    let numbers: Vec<_> = jobs.iter().map(|start| start["job"].clone()).collect();
    assert_eq!(numbers, [Value::from(second), Value::from(third)]);
    about(&jobs[1]["starts_in_ms"], 90);
    let own = second.to_string();
    let one = instance.tutti(&["ps", "--start", "--json", &own]).expect(0).json();
    assert_eq!(one["jobs"].as_array().unwrap().len(), 1);
    let shown = instance.tutti(&["show", &first.to_string(), &own]).expect(0).text();
    assert!(
        shown.contains("  expected   starts about ") && shown.contains("limit of job 1"),
        "{shown}"
    );
    assert_eq!(shown.matches("expected").count(), 1, "of the job in line alone: {shown}");
    let shown = instance.tutti(&["show", "--json", &first.to_string(), &own]).expect(0).json();
    assert_eq!(shown[0]["expected"], Value::Null);
    about(&shown[1]["expected"]["starts_in_ms"], 60);
    // Behind a job without a limit, nothing is known.
    let line = instance.tutti(&["submit", "--when", "-t", "1m", "true"]).expect(0).text();
    assert_eq!(line, format!("start unknown: job {third} has no time limit\n"));
    instance.tutti(&["submit", "--when", "-c", "4096", "true"]).expect(120).says("declined");
    instance.tutti(&["cancel", "--now", "--all"]).expect(0);
}
