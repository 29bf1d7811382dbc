//! `tutti nodes --timetable` and `tutti doctor --cluster`: what agents follow, what is alive.

use crate::cluster::Bed;
use crate::harness::{Instance, eventually};
use nix::sys::signal::Signal;
use serde_json::Value;
use std::collections::BTreeSet;

/// The node that a private instance has.
fn node(instance: &Instance) -> String {
    instance.tutti(&["nodes", "--json"]).expect(0).json()[0]["name"].as_str().unwrap().to_owned()
}

#[test]
fn a_timetable_has_the_jobs_of_each_slot_and_which_of_them_runs() {
    let instance = Instance::new().up();
    let node = node(&instance);
    let timetable = || instance.tutti(&["nodes", "--timetable", &node, "--json"]).expect(0).json();
    assert_eq!(timetable()["slots"], Value::Array(Vec::new()));
    // Long enough that the answer and the states in it are of one slot.
    instance.tutti(&["params", "quantum=30s"]).expect(0);
    let jobs = [instance.submit_spinner(2), instance.submit_spinner(2)];
    for job in jobs {
        instance.wait_for_state(job, "running");
    }
    let both = eventually("two slots, and one job in each that runs", || {
        let both = timetable();
        let slots = both["slots"].as_array()?.clone();
        let runs = |slot: &Value| {
            let candidates = slot["candidates"].as_array().unwrap();
            candidates.iter().find(|it| it["runs"] == true).cloned()
        };
        let first: Option<Vec<Value>> = slots.iter().map(runs).collect();
        (slots.len() == 2).then_some((both, first?))
    });
    let (report, first) = both;
    let in_force = usize::try_from(report["slot"].as_u64().unwrap()).unwrap();
    let named: BTreeSet<u64> = first.iter().map(|it| it["job"].as_u64().unwrap()).collect();
    assert_eq!(named, BTreeSet::from(jobs), "{report}");
    assert_eq!(first[in_force]["state"], "running", "{report}");
    assert_eq!(first[1 - in_force]["state"], "stopped", "{report}");
    assert_eq!(first[0]["processors"], serde_json::json!([0, 1]), "{report}");
    assert_eq!(report["slots"][0]["row"], 1, "{report}");
    assert!(report["ends_ns"].as_u64() > report["now_ns"].as_u64(), "{report}");
    let shown = instance.tutti(&["nodes", "--timetable", &node]).expect(0).text();
    assert!(shown.contains("2 slots") && shown.contains("stopped"), "{shown}");
    // What ended is absent, at once or out of the list.
    instance.tutti(&["cancel", "--now", &jobs[0].to_string()]).expect(0);
    eventually("one slot, without a switch", || {
        let slots = timetable()["slots"].as_array()?.len();
        (slots == 1).then_some(())
    });
}

#[test]
fn only_a_node_that_exists_has_a_timetable() {
    let instance = Instance::new().up();
    let refused = instance.tutti(&["nodes", "--timetable", "nowhere"]).expect(1);
    assert!(refused.err.contains("nowhere"), "{}", refused.err);
}

#[test]
fn a_daemon_that_stands_still_is_named() {
    let bed = Bed::up(2, &[0]);
    let asked = || bed.tutti(1, &["doctor", "--cluster", "--json"]);
    let silent = || -> BTreeSet<(String, String)> {
        let signs = asked().json();
        let silent = signs.as_array().unwrap().iter().filter(|sign| sign["alive"] == false);
        let text = |sign: &Value, key: &str| sign[key].as_str().unwrap().to_owned();
        silent.map(|sign| (text(sign, "node"), text(sign, "daemon"))).collect()
    };
    assert_eq!(asked().expect(0).json().as_array().unwrap().len(), 1 + 2 * 4);
    let second = bed.states().into_keys().next_back().unwrap();
    for daemon in ["keeper", "agent"] {
        bed.node(2).signal(daemon, Signal::SIGSTOP).unwrap();
        let found = silent();
        bed.node(2).signal(daemon, Signal::SIGCONT).unwrap();
        assert_eq!(found, BTreeSet::from([(second.clone(), daemon.to_owned())]));
        eventually("all live again", || silent().is_empty().then_some(()));
    }
    let shown = bed.tutti(2, &["doctor", "--cluster"]).expect(0).text();
    assert!(shown.contains("All 9 daemons live."), "{shown}");
}
