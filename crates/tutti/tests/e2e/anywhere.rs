//! Verbs at a machine that is not the head: its agent passes them on, and the answer is that of the
//! head.

use crate::cluster::Bed;
use crate::harness::{Running, eventually};
use nix::sys::signal::Signal;
use serde_json::Value;

/// The number of a node below another one.
const FAR: usize = 4;

/// What is set there holds everywhere.
fn settings(bed: &Bed) {
    let at = |args: &[&str]| bed.tutti(FAR, args);
    let same = |args: &[&str]| {
        let [near, far] = [1, FAR].map(|number| bed.tutti(number, args).expect(0).text());
        assert_eq!(near, far, "{args:?}");
        assert!(!far.is_empty(), "{args:?}");
    };
    at(&["params", "quantum=77ms"]).expect(0);
    at(&["params", "--class", "interactive", "share=33%"]).expect(0);
    at(&["bank", "0=9h"]).expect(0);
    at(&["weight", "0=3"]).expect(0);
    at(&["access", "0=anywhere"]).expect(0);
    at(&["nodes", "set", "far=n4"]).expect(0);
    at(&["nodes", "drain", "set:far", "--reason", "a test"]).expect(0);
    assert_eq!(bed.states()["n4"], "drained");
    for args in [
        &["params"][..],
        &["params", "--class", "interactive"],
        &["bank"],
        &["weight"],
        &["access"],
        &["nodes", "set"],
    ] {
        same(args);
    }
    at(&["nodes", "resume", "n4"]).expect(0);
    assert_eq!(bed.states()["n4"], "up");
}

#[test]
fn any_agent_serves_any_verb() {
    let bed = Bed::up_with(4, &[0, 1000], &["fan_out=2"]);
    let parent = eventually("it is below another", || {
        let nodes = bed.tutti(FAR, &["nodes", "--json"]).expect(0).json();
        let is_below = nodes[FAR - 1]["depth"] == 2;
        is_below.then(|| nodes[FAR - 1]["parent"].as_str().unwrap().to_owned())
    });
    let at = |args: &[&str]| bed.tutti(FAR, args);
    let state = |job: &str| at(&["ps", "--json", job]).expect(0).json()[0]["state"].clone();
    let nap = bed.audit.nap.as_str();
    let job = ["submit", "--parsable", "-N", "4", "-o", "/dev/null", "--", "sleep", nap];
    let job = at(&job).expect(0).text().trim().to_owned();
    eventually("it runs", || (state(&job) == "running").then_some(()));
    eventually("a process on each node", || {
        let tree = at(&["ps", "--tree", &job]).expect(0).text();
        (tree.matches(nap).count() == 4).then_some(())
    });
    at(&["ps", "-l", &job]).expect(0);
    at(&["suspend", &job]).expect(0);
    eventually("it is suspended", || (state(&job) == "suspended").then_some(()));
    at(&["resume", &job]).expect(0);
    eventually("it runs again", || (state(&job) == "running").then_some(()));
    // A part of it on the head, and one on the way there.
    at(&["suspend", &format!("{job}.0")]).expect(0);
    at(&["resume", &format!("{job}.0")]).expect(0);
    at(&["signal", "WINCH", &format!("{job}.1")]).expect(0);
    at(&["cancel", "--now", &job]).expect(0);
    at(&["wait", &job]).expect(137);
    let history = at(&["history", "--json", &job]).expect(0).json();
    assert_eq!(history["tasks"].as_array().map(Vec::len), Some(4), "{history}");
    // What runs there already becomes a job of the cluster's.
    let mut sleep = bed.node(FAR).command("sleep");
    sleep.arg(nap);
    let sleep = Running::start(sleep);
    let adopted = at(&["adopt", "--parsable", &sleep.pid().to_string()]).expect(0).text();
    let job = at(&["ps", "--json", adopted.trim()]).expect(0).json();
    assert_eq!(job[0]["placement"].to_string().matches("n4:").count(), 1, "{job}");
    at(&["cancel", "--now", adopted.trim()]).expect(0);
    sleep.wait().expect(137);
    at(&["wait", adopted.trim()]).expect(137);
    settings(&bed);
    let Value::Array(switches) = at(&["switches", "--json"]).expect(0).json() else {
        panic!("no list of switches")
    };
    assert_eq!(switches.len(), 4);
    let doctor = at(&["doctor"]).text();
    assert!(["n1", "n2", "n3", "n4"].iter().all(|node| doctor.contains(node)), "{doctor}");
    // One that it does not need to be heard.
    let other = if parent == "n2" { "n3" } else { "n2" };
    at(&["nodes", "remove", other, "--now"]).expect(0);
    assert!(!bed.states().contains_key(other));
    at(&["run", "-N", "3", "--", "true"]).expect(0);
    // What can be done at the head alone says so.
    for args in [&["invite"][..], &["upgrade", "--all"]] {
        at(args).expect(1).says("at the head");
    }
}

#[test]
fn root_of_a_machine_that_was_invited_as_admin_is_root_in_the_cluster() {
    let bed = Bed::of(3, &[0]);
    let address = bed.node(1).address();
    let up = ["up", "--listen", &address, "--name", "n1", "--certificates", "6s"];
    bed.tutti(1, &up).expect(0);
    let join = |number: usize, invite: &[&str]| {
        let token = bed.tutti(1, &[&["invite", "--parsable"], invite].concat()).expect(0).text();
        let name = format!("n{number}");
        bed.tutti(number, &["join", &address, token.trim(), "--name", &name]).expect(0);
    };
    join(2, &[]);
    join(3, &["--admin"]);
    bed.tutti(2, &["nodes", "drain", "n1"]).expect(1).says("is not root in the cluster");
    bed.tutti(3, &["nodes", "drain", "n2", "--reason", "a test"]).expect(0);
    assert_eq!(bed.states()["n2"], "drained");
    bed.tutti(3, &["nodes", "resume", "n2"]).expect(0);
    bed.tutti(3, &["params", "quantum=77ms"]).expect(0);
    let done = bed.tutti(3, &["run", "-N", "3", "--", "hostname"]).expect(0);
    assert_eq!(done.sorted(), ["n1", "n2", "n3"]);
    // It stays so with another certificate, and each is what it was. And a cluster does not end for
    // being idle.
    bed.tutti(3, &["params", "idle_exit=1s"]).expect(0);
    for (number, code) in [(2, 1), (3, 0)] {
        let file = bed.node(number).directory().join("cluster/credentials.pem");
        let certificate = || std::fs::read_to_string(&file).unwrap();
        let before = certificate();
        eventually("another certificate", || (certificate() != before).then_some(()));
        let agent = bed.node(number).daemon("agent").unwrap();
        bed.node(number).signal("agent", Signal::SIGKILL).unwrap();
        let next = || bed.node(number).daemon("agent").filter(|&new| new != agent);
        eventually("another agent", next);
        let name = format!("n{number}");
        eventually("it is back", || (bed.states()[&name] == "up").then_some(()));
        let told = eventually("it is heard", || {
            let told = bed.tutti(number, &["params", "quantum=78ms"]);
            (told.code == 0 || told.err.contains("is not root")).then_some(told)
        });
        told.expect(code);
    }
    // A machine that takes its name later is none unless invited so.
    bed.tutti(1, &["nodes", "remove", "n3", "--now"]).expect(0);
    let lock = bed.node(3).directory().join("lock");
    eventually("it has ended", || (!lock.exists()).then_some(()));
    bed.tutti(3, &["leave"]).expect(0);
    join(3, &[]);
    bed.tutti(3, &["params", "quantum=79ms"]).expect(1).says("is not root in the cluster");
}
