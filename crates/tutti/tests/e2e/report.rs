//! `tutti report`: what users, groups and classes got.

use crate::harness::{Instance, eventually};
use serde_json::Value;

#[test]
fn report_adds_up_jobs_that_have_ended() {
    let instance = Instance::new().up();
    instance.tutti(&["run", "true"]).expect(0);
    instance.tutti(&["run", "-n", "2", "sh", "-c", "exit 3"]).expect(3);
    instance.tutti(&["run", "--class", "benchmark", "sleep", "0.2"]).expect(0);
    let report = instance.tutti(&["report", "--json"]).expect(0).json();
    let rows = report["rows"].as_array().unwrap();
    assert_eq!((rows.len(), &rows[0]["jobs"], &rows[0]["failed"]), (1, &3.into(), &1.into()));
    assert!(rows[0]["granted_ms"].as_u64().unwrap() >= 200, "{report}");
    assert!(rows[0]["use_percent"].as_f64().unwrap() <= 100.0, "{report}");
    assert_eq!(report["total"]["jobs"], 3);
    let report = instance.tutti(&["report", "--by", "class", "--json"]).expect(0).json();
    let mut classes: Vec<_> =
        report["rows"].as_array().unwrap().iter().map(|row| row["name"].clone()).collect();
    classes.sort_by_key(ToString::to_string);
    assert_eq!(classes, ["benchmark", "interactive"]);
    let csv = instance.tutti(&["report", "--by", "group", "--csv"]).expect(0).text();
    let lines: Vec<&str> = csv.lines().collect();
    assert!(lines.len() == 2 && lines[1].contains(",3,1,0,"), "{csv}");
    let table = instance.tutti(&["report", "--since", "1h"]).expect(0).says("jobs that ended from");
    assert!(table.text().starts_with("USER") && table.text().contains("total"), "{}", table.text());
    // A time without jobs has none, and one that ends before it begins is rejected.
    let empty = instance.tutti(&["report", "--json", "--until", "2001-01-01"]).expect(0).json();
    assert_eq!(empty["rows"], serde_json::json!([]));
    let wrong = ["report", "--since", "2026-01-02", "--until", "2026-01-01"];
    instance.tutti(&wrong).expect(1).says("give an earlier --since");
}

/// Waits until an interval was measured in which jobs had some of the processors.
pub(crate) fn wait_for_usage(instance: &Instance) {
    eventually("a measured interval", || {
        let rows = instance.tutti(&["history", "--usage", "--json"]).expect(0).json();
        let has_jobs = |row: &Value| row["jobs_ms"].as_u64().is_some_and(|it| it > 0);
        rows.as_array().unwrap().iter().any(has_jobs).then_some(())
    });
}

fn usage(instance: &Instance, by: &str) -> Vec<Value> {
    let rows = instance.tutti(&["history", "--usage", "--by", by, "--json"]).expect(0).json();
    rows.as_array().unwrap().clone()
}

#[test]
fn what_processors_were_used_for_is_measured_by_interval_and_forgotten() {
    let instance = Instance::new().up();
    instance.tutti(&["history", "--usage"]).expect(0).says("nothing was measured");
    instance.tutti(&["params", "usage_interval=1s"]).expect(0);
    instance.submit_spinner(1);
    wait_for_usage(&instance);
    let node = instance.tutti(&["nodes", "--json"]).expect(0).json()[0].clone();
    let measured = usage(&instance, "node");
    assert_eq!((measured.len(), &measured[0]["node"]), (1, &node["name"]));
    for row in &measured {
        let of = |field: &str| row[field].as_u64().unwrap();
        assert!(of("jobs_ms") > 0 && of("jobs_ms") <= of("busy_ms"), "{row}");
        // Ticks are coarse.
        assert!(of("busy_ms") <= of("processor_ms") * 11 / 10, "{row}");
        assert_eq!(row["processors"], node["processors"], "{row}");
    }
    // What passes the keeper on its way to a front end is counted.
    instance.tutti(&["run", "-n", "2", "echo", "carried"]).expect(0);
    let output = || usage(&instance, "node")[0]["output_bytes"].as_u64().unwrap();
    eventually("what was carried", || (output() >= 16).then_some(()));
    eventually("several intervals", || (usage(&instance, "interval").len() > 2).then_some(()));
    let other = instance.tutti(&["history", "--usage", "--node", "nonesuch"]).expect(0);
    other.says("of node nonesuch");
    instance.tutti(&["history", "--usage", "-u", "root"]).expect(2).says("can't go with --user");
    // What is too old goes, and nothing is measured any more.
    let first = usage(&instance, "interval")[0]["since_ms"].clone();
    instance.tutti(&["params", "keep_usage=2s"]).expect(0);
    eventually("the first is gone", || {
        usage(&instance, "interval").iter().all(|row| row["since_ms"] != first).then_some(())
    });
    instance.tutti(&["params", "keep_usage=1h"]).expect(0);
    eventually("another", || (usage(&instance, "interval").len() > 1).then_some(()));
}
