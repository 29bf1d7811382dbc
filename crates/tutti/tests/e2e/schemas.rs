//! What verbs print with `--json` is as docs/reference/verbs.schema.json has it.

use crate::harness::Instance;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

fn page(name: &str) -> String {
    let pages = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference");
    fs::read_to_string(pages.join(name)).unwrap()
}

/// A file of schemas, such as `verbs.schema.json`.
pub(crate) fn schema(name: &str) -> Value {
    serde_json::from_str(&page(name)).unwrap()
}

/// Checks a value against a schema of `verbs.schema.json`.
#[track_caller]
pub(crate) fn check_named(name: &str, value: &Value) {
    let schema = schema("verbs.schema.json");
    crate::show::check(&schema, &schema["$defs"][name], value, name);
}

/// The lines of verbs that print JSON by `--json`, as their help has it.
fn verbs_with_json() -> BTreeSet<String> {
    let (mut verbs, mut verb) = (BTreeSet::new(), String::new());
    for line in page("verbs.md").lines() {
        if let Some(title) = line.strip_prefix('#') {
            verb = title.trim_start_matches('#').trim().trim_start_matches("tutti ").to_owned();
        } else if line.trim_start().starts_with("--json") {
            verbs.insert(verb.clone());
        }
    }
    verbs
}

/// What other tests check: `ps`, `history` and `show` against `jobs.schema.json`; what needs a
/// cluster; what is no verb.
const BY_OTHERS: [&str; 6] = ["ps", "history", "show", "nodes clients", "matrix", "notification"];

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
        &["at", "mon 08:00", "params", "rows=3"],
        &["params", "--during", "mon-fri 08:00-18:00", "quantum=50ms"],
        &["params", "quantum=20ms", "usage_interval=1s"],
    ] {
        instance.tutti(settings).expect(0);
    }
    let node = instance.tutti(&["nodes", "--json"]).expect(0).json()[0]["name"].clone();
    let node = node.as_str().unwrap().to_owned();
    instance.tutti(&["nodes", "set", &format!("all={node}")]).expect(0);
    instance.tutti(&["nodes", "device", &node, "gpu:0=/dev/full"]).expect(0);
    instance.tutti(&["nodes", "resource", &node, "scratch=2"]).expect(0);
    instance.tutti(&["bench", "node", "--quick"]).expect(0);
    instance.tutti(&["run", "true"]).expect(0);
    for job in [instance.submit_spinner(2), instance.submit_spinner(2)] {
        instance.wait_for_state(job, "running");
    }
    let written = instance.submit(&["-J", "written", "-o", "written", "echo", "line"]);
    instance.tutti(&["wait", &written.to_string()]).expect(0);
    instance.tutti(&["submit", "-w", &node, "--hold", "-t", "1m", "true"]).expect(0);
    (instance, node)
}

#[test]
fn json_of_verbs_validates_against_its_schema() {
    let schema = schema("verbs.schema.json");
    let (instance, node) = busy();
    crate::report::wait_for_usage(&instance);
    crate::harness::eventually("a switch", || (instance.switches().len() > 2).then_some(()));
    let script = instance.work.join("script");
    fs::write(&script, "#!/bin/sh\ntrue\n").unwrap();
    let script = script.to_str().unwrap();
    let cases: &[(&str, &[&str])] = &[
        ("access", &["access"]),
        ("bank", &["bank"]),
        ("weight", &["weight"]),
        ("queue", &["queue"]),
        ("at", &["at"]),
        ("at --next", &["at", "--next", "7d"]),
        ("resource", &["resource"]),
        ("nodes", &["nodes"]),
        ("nodes features", &["nodes", "features"]),
        ("nodes set", &["nodes", "set"]),
        ("nodes device", &["nodes", "device"]),
        ("nodes resource", &["nodes", "resource"]),
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
        ("sim", &["sim", "compare", "--generate", "poisson", "--jobs", "50", "--policy", "gang"]),
        ("run --when", &["submit", "--when", "-t", "1m", "true"]),
        ("run --when", &["batch", "--when", "-t", "1m", script]),
        ("logs", &["logs", "written"]),
        ("top", &["top", "-n", "1", "2"]),
        ("replay", &["replay"]),
        ("replay --what-if", &["replay", "--what-if", "policy=space:easy", "rows=2"]),
    ];
    for (name, args) in cases {
        let verb = args.iter().position(|it| ["true", script].contains(it)).unwrap_or(args.len());
        let args = [&args[..verb], &["--json"], &args[verb..]].concat();
        check(&instance, &schema, name, &args);
    }
    // `sim t3d` prints weeks of one published machine; its own test reads them.
    let begins = |words: &[&str], verb: &str| {
        let verb: Vec<&str> = verb.split(' ').collect();
        words.get(..verb.len()) == Some(&verb[..])
    };
    for verb in verbs_with_json().iter().filter(|verb| *verb != "sim t3d") {
        let is_tried = cases.iter().any(|(_, args)| begins(args, verb));
        assert!(is_tried || BY_OTHERS.contains(&verb.as_str()), "{verb} --json has no case");
    }
    // What the file has beyond these are parts of them.
    let tried: BTreeSet<&str> = cases.iter().map(|(name, _)| *name).collect();
    let text = schema.to_string();
    for name in schema["$defs"].as_object().unwrap().keys() {
        let is_part = text.contains(&format!("\"#/$defs/{name}\""));
        assert!(
            is_part || tried.contains(name.as_str()) || BY_OTHERS.contains(&name.as_str()),
            "{name} is not tried"
        );
    }
    instance.tutti(&["cancel", "--now", "1-9"]);
}
