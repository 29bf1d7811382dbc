//! What verbs print with `--json` is as docs/reference/verbs.schema.json has it.

use crate::harness::Instance;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

fn schema() -> Value {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/verbs.schema.json");
    serde_json::from_str(&fs::read_to_string(page).unwrap()).unwrap()
}

/// Runs a verb and checks what it prints against the schema of that name.
fn check(instance: &Instance, schema: &Value, name: &str, args: &[&str]) {
    let done = instance.tutti(args);
    let json = done.json();
    let empty = json.as_array().is_some_and(Vec::is_empty);
    assert!(!empty || name == "doctor --leftovers", "{name}: nothing to look at");
    crate::show::check(schema, &schema["$defs"][name], &json, name);
}

/// An instance in which each list has something, with a job that runs, one that waits, and one
/// that has ended.
fn busy() -> (Instance, String) {
    let instance = Instance::new().up();
    for settings in [
        &["access", "all=anywhere"][..],
        &["bank", "@root=10h"],
        &["weight", "root=2"],
        &["queue", "short", "user_jobs=2"],
        &["resource", "licence=2"],
        &["params", "--during", "mon-fri 08:00-18:00", "quantum=50ms"],
        &["params", "quantum=20ms", "usage_interval=1s"],
    ] {
        instance.tutti(settings).expect(0);
    }
    let node = instance.tutti(&["nodes", "--json"]).expect(0).json()[0]["name"].clone();
    let node = node.as_str().unwrap().to_owned();
    instance.tutti(&["nodes", "set", &format!("all={node}")]).expect(0);
    instance.tutti(&["bench", "node", "--quick"]).expect(0);
    instance.tutti(&["run", "true"]).expect(0);
    for job in [instance.submit_spinner(2), instance.submit_spinner(2)] {
        instance.wait_for_state(job, "running");
    }
    instance.tutti(&["submit", "-w", &node, "--hold", "-t", "1m", "true"]).expect(0);
    (instance, node)
}

#[test]
fn json_of_verbs_validates_against_its_schema() {
    let schema = schema();
    let (instance, node) = busy();
    crate::report::wait_for_usage(&instance);
    crate::harness::eventually("a switch", || (instance.switches().len() > 2).then_some(()));
    let cases: &[(&str, &[&str])] = &[
        ("access", &["access"]),
        ("bank", &["bank"]),
        ("weight", &["weight"]),
        ("queue", &["queue"]),
        ("resource", &["resource"]),
        ("nodes", &["nodes"]),
        ("nodes set", &["nodes", "set"]),
        ("nodes --timetable", &["nodes", "--timetable", &node]),
        ("switches", &["switches"]),
        ("ps --tree", &["ps", "--tree", "2"]),
        ("ps --start", &["ps", "--start"]),
        ("run --when", &["run", "--when", "-t", "1m", "true"]),
        ("params", &["params"]),
        ("explain", &["explain"]),
        ("doctor", &["doctor"]),
        ("doctor --cluster", &["doctor", "--cluster"]),
        ("doctor --leftovers", &["doctor", "--leftovers"]),
        ("report", &["report"]),
        ("history --usage", &["history", "--usage"]),
        ("bench node", &["bench", "node", "--quick"]),
        ("sim", &["sim", "--generate", "poisson", "--jobs", "50"]),
    ];
    for (name, args) in cases {
        let verb = args.iter().position(|it| *it == "true").unwrap_or(args.len());
        let args = [&args[..verb], &["--json"], &args[verb..]].concat();
        check(&instance, &schema, name, &args);
    }
    // What the file has beyond these are parts of them.
    let tried: BTreeSet<&str> = cases.iter().map(|(name, _)| *name).collect();
    let text = schema.to_string();
    for name in schema["$defs"].as_object().unwrap().keys() {
        let is_part = text.contains(&format!("\"#/$defs/{name}\""));
        assert!(is_part || tried.contains(name.as_str()), "{name} is not tried");
    }
    instance.tutti(&["cancel", "--now", "1-9"]);
}
