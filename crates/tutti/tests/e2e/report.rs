//! `tutti report`: what users, groups and classes got.

use crate::harness::Instance;

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
