//! Several clusters on the same machines, one with a slow way in it, and one that goes by the
//! system's clock.

use crate::cluster::{Bed, common_switches, switches};
use crate::harness::{Done, Running, eventually};
use nix::sys::signal::Signal;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Another cluster on the nodes of a test bed.
struct Other<'a> {
    bed: &'a Bed,
    nodes: usize,
}

impl Other<'_> {
    fn tutti(&self, number: usize, args: &[&str]) -> Done {
        let mut command = self.bed.node(number).tutti(args);
        let directory = self.bed.bed().directory().join(format!("other-{number}"));
        command.env("TUTTI_DIR", directory).env("TUTTI_CLUSTER", "other");
        command.current_dir(&self.bed.audit.work);
        Running::start(command).wait()
    }
}

impl Drop for Other<'_> {
    fn drop(&mut self) {
        for number in (1..=self.nodes).rev() {
            self.tutti(number, &["down"]);
        }
    }
}

#[test]
fn two_clusters_on_the_same_machines_do_not_disturb_each_other() {
    let bed = Bed::up(2, &[0]);
    let job = ["submit", "--parsable", "-N", "2", "-o", "/dev/null", "--", "sleep", &bed.audit.nap];
    let first = bed.tutti(1, &job).expect(0).text().trim().to_owned();
    let state = || bed.tutti(1, &["ps", "--json", &first]).expect(0).json()[0]["state"].clone();
    eventually("it runs", || (state() == "running").then_some(()));
    let agents = [1, 2].map(|number| bed.node(number).daemon("agent"));
    let other = Other { bed: &bed, nodes: 2 };
    other.tutti(1, &["up", "--listen", "10.77.0.1:7716"]).expect(1).says("name another address");
    // At the next port, which the invitation says.
    let said = other.tutti(1, &["up", "--listen", "10.77.0.1", "--trust-root"]).expect(0).text();
    assert!(said.contains("    TUTTI_CLUSTER=other tutti join 10.77.0.1:7717 tutti1-"), "{said}");
    let words: Vec<&str> =
        said.lines().find(|line| line.contains("tutti join")).unwrap().split(' ').collect();
    let token = words.last().unwrap();
    let joined = other.tutti(2, &["join", "10.77.0.1:7717", token]).expect(0).text();
    assert!(joined.contains("n2 is a node of cluster other"), "{joined}");
    // While it runs it stays what it is, and its invitations are good.
    let moved = other.tutti(1, &["up", "--listen", "10.77.0.1:7999", "--trust-root"]).expect(1);
    moved.says("end it first with `tutti down`").says("[T060]");
    other.tutti(1, &["up", "--listen", "10.77.0.1"]).expect(1).says("end it first");
    let said = other.tutti(1, &["up", "--listen", "10.77.0.1", "--trust-root"]).expect(0).text();
    assert!(said.contains("was up already"), "{said}");
    let invited = other.tutti(1, &["invite"]).expect(0).text();
    assert!(invited.contains("tutti join 10.77.0.1:7717 "), "{invited}");
    // Up again, it is where it was.
    other.tutti(1, &["down"]).expect(0);
    let said = other.tutti(1, &["up", "--listen", "10.77.0.1", "--trust-root"]).expect(0).text();
    assert!(said.contains("tutti join 10.77.0.1:7717 "), "{said}");
    other.tutti(2, &["up"]).expect(0);
    eventually("both are there", || {
        let Value::Array(nodes) = other.tutti(1, &["nodes", "--json"]).expect(0).json() else {
            panic!("no list of nodes")
        };
        (nodes.iter().filter(|node| node["state"] == "up").count() == 2).then_some(())
    });
    let done = other.tutti(2, &["run", "-N", "2", "--", "hostname"]).expect(0);
    assert_eq!(done.sorted(), ["n1", "n2"]);
    let done = bed.tutti(2, &["run", "-N", "2", "--", "hostname"]).expect(0);
    assert_eq!(done.sorted(), ["n1", "n2"]);
    // Jobs of the one are none of the other's.
    let Value::Array(jobs) = other.tutti(1, &["ps", "--json"]).expect(0).json() else {
        panic!("no list of jobs")
    };
    assert!(jobs.is_empty(), "{jobs:?}");
    other.tutti(1, &["cancel", &first]).expect(1);
    drop(other);
    assert_eq!(state(), "running");
    assert_eq!([1, 2].map(|number| bed.node(number).daemon("agent")), agents, "an agent ended");
    bed.tutti(2, &["run", "-N", "2", "true"]).expect(0);
    bed.tutti(1, &["cancel", "--now", &first]).expect(0);
}

#[test]
fn the_jobs_of_one_cluster_are_foreign_to_another() {
    let bed = Bed::up(1, &[0]);
    let other = Other { bed: &bed, nodes: 1 };
    other.tutti(1, &["up", "--listen", "10.77.0.1", "--trust-root"]).expect(0);
    // It gets its processor, whatever else runs on this machine; also where the kernel shares it
    // out by session.
    let line = "(echo -20 > /proc/$$/autogroup) 2> /dev/null; while :; do :; done";
    let spin = ["--", "setsid", "-w", "nice", "-n", "-20", "sh", "-c", line];
    let spin = [&["submit", "--parsable", "-n", "1", "-o", "/dev/null"], &spin[..]].concat();
    let job = bed.tutti(1, &spin).expect(0).text().trim().to_owned();
    let foreign = |done: Done| done.expect(0).json()[0]["external_load_milli"].as_u64();
    // What others run here is foreign to both; the job to one of them.
    eventually("it is foreign to the other alone", || {
        let own = foreign(bed.tutti(1, &["nodes", "--json"]))?;
        let others = foreign(other.tutti(1, &["nodes", "--json"]))?;
        (others >= own + 300).then_some(())
    });
    let table = other.tutti(1, &["nodes"]).expect(0).text();
    assert!(table.contains("EXTERNAL"), "{table}");
    assert_eq!(other.tutti(1, &["nodes", "--json"]).expect(0).json()[0]["jobs"], 0);
    bed.tutti(1, &["cancel", "--now", &job]).expect(0);
}

#[test]
fn over_a_slow_way_jobs_start_and_switch_as_they_are_to() {
    let bed = Bed::up_slow(3, Duration::from_millis(20), &[]);
    let errors = || {
        let nodes = bed.tutti(1, &["nodes", "--json"]).expect(0).json();
        [1, 2].map(|node| Duration::from_nanos(nodes[node]["clock_error_ns"].as_u64().unwrap()))
    };
    // Half of the time that question and answer take; the others know better.
    let [near, far] = errors();
    assert!(
        far >= Duration::from_millis(20) && near < Duration::from_millis(20),
        "{near:?} {far:?}"
    );
    let short = bed.tutti(1, &["params", "quantum=40ms"]).expect(1);
    short.says("too short for nodes to switch together").says("the clock of n3 may be off by");
    bed.tutti(1, &["params", "quantum=200ms"]).expect(0);
    // Classes make slots shorter than that: by their number, and by what the others' share leaves.
    let class = |rules: &[&str]| bed.tutti(1, &[&["params", "--class", "standby"], rules].concat());
    let short = class(&["slots=5"]).expect(1);
    short.says("slots of 20ms, as class standby could have").says("the clock of n3 may be off by");
    class(&["slots=5", "slot_min=200ms"]).expect(0);
    class(&["slots=1", "slot_min=2ms", "share=90%"])
        .expect(1)
        .says("slots of 10ms, as class benchmark");
    class(&["slots=1", "slot_min=2ms"]).expect(0);
    for number in [1, 3] {
        let done = bed.tutti(number, &["run", "-N", "3", "--", "hostname"]).expect(0);
        assert_eq!(done.sorted(), ["n1", "n2", "n3"]);
    }
    for _ in 0..2 {
        let job = ["submit", "-n", "6", "-o", "/dev/null", "--", "sleep", &bed.audit.nap];
        bed.tutti(1, &job).expect(0);
    }
    switch_together(&bed, 3);
    bed.tutti(3, &["cancel", "--now", "3", "4"]).expect(0);
}

/// What `tutti doctor` finds of the clocks: how that is meant, what it says, and what to do.
fn clocks(bed: &Bed) -> Option<[String; 3]> {
    let findings = bed.tutti(1, &["doctor", "--json"]).json();
    let finding =
        findings["findings"].as_array()?.iter().find(|it| it["topic"] == "clocks")?.clone();
    let words = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    Some([&finding["verdict"], &finding["text"], &finding["fixes"][0]["steps"]].map(words))
}

#[test]
fn clocks_that_are_too_bad_for_the_slots_are_told_of_whether_nodes_come_with_them_or_they_get_so() {
    let bed = Bed::up_slow(3, Duration::from_millis(20), &["quantum=40ms"]);
    let [verdict, text, mut mend] = clocks(&bed).unwrap();
    assert_eq!(verdict, "fair", "{text}");
    assert!(text.contains("the clock of n3 may be off by 2"), "{text}");
    assert!(text.contains("slots may be as short as half the quantum, 20ms"), "{text}");
    // What it says is done as it is said, and again where the clock has got worse meanwhile.
    let text = eventually("it is enough", || {
        let word = mend.split([' ', ',']).find(|word| word.starts_with("quantum="));
        bed.tutti(1, &["params", word.expect("what to do")]).expect(0);
        let [verdict, text, next] = clocks(&bed)?;
        mend = next;
        (verdict == "good").then_some(text)
    });
    assert!(text.contains("are long enough"), "{text}");
    // An agent that is new knows the way as it is now alone.
    bed.bed().delay(bed.node(2), Duration::from_millis(80)).unwrap();
    bed.node(2).signal("agent", Signal::SIGKILL).unwrap();
    let text = eventually("it is not enough any more", || {
        let [verdict, text, _] = clocks(&bed)?;
        (verdict == "fair").then_some(text)
    });
    assert!(text.contains("the clock of n2 may be off by"), "{text}");
}

/// Waits until so many nodes have made ten switches more at the same moments.
#[track_caller]
pub(crate) fn switch_together(bed: &Bed, count: usize) {
    let known = switches(bed).into_values().flatten().map(|record| record.0).max().unwrap_or(0);
    eventually("ten switches together", || {
        let common = common_switches(bed, count)?;
        (common.into_iter().filter(|record| record.0 > known).count() >= 10).then_some(())
    });
}

#[test]
#[ignore = "takes long: `tests/long e2e` runs it"]
fn where_the_systems_clocks_are_kept_nodes_may_go_by_them() {
    // Monotonic clocks that differ by hours.
    let bed = Bed::of(3, &[0, 9000, 3600]);
    let kept = |number: usize| bed.audit.work.join(format!("ntp-{number}"));
    let keep = |number: usize, error_us: u64, is_kept: u8| {
        std::fs::write(kept(number), format!("{error_us} {is_kept}")).unwrap();
    };
    let wall = bed.audit.work.join("wall");
    std::fs::write(&wall, "0").unwrap();
    let start = |number: usize, args: &[&str]| -> Done {
        let mut command = bed.node(number).tutti(args);
        command.env("LD_PRELOAD", shifted_clock()).env("NTP", kept(number));
        if number == 2 {
            command.env("WALL", &wall);
        }
        Running::start(command).wait()
    };
    let address = bed.node(1).address();
    let join = |number: usize| {
        let token = bed.tutti(1, &["invite", "--parsable"]).expect(0).text();
        start(number, &["join", &address, token.trim(), "--name", bed.node(number).name()])
    };
    let error = |node: usize| {
        let nodes = bed.tutti(1, &["nodes", "--json"]).expect(0).json();
        nodes[node]["clock_error_ns"].as_u64().unwrap()
    };
    (1..=3).for_each(|number| keep(number, 700, 0));
    start(1, &["up", "--listen", &address, "--name", "n1", "--trust-root"]).expect(0);
    let refused = bed.tutti(1, &["params", "clock=system"]).expect(1);
    refused.says("no program keeps the system's clock");
    keep(1, 700, 1);
    keep(2, 500, 1);
    bed.tutti(1, &["params", "clock=system", "quantum=50ms"]).expect(0);
    join(2).expect(0);
    // The two bounds, and what reading the clocks took: far more than measuring on this network
    // gives.
    eventually("the bound of both", || (1_200_000..1_400_000).contains(&error(1)).then_some(()));
    bed.tutti(1, &["params", "quantum=3ms"]).expect(1).says("may be off by 1.2");
    for _ in 0..2 {
        let job = ["submit", "-N", "2", "-n", "4", "-o", "/dev/null", "--", "sleep"];
        bed.tutti(1, &[&job[..], &[&bed.audit.nap]].concat()).expect(0);
    }
    switch_together(&bed, 2);
    // Nothing keeps it: members go on by what is measured, and new ones are refused.
    keep(2, 500, 0);
    eventually("it is measured", || (error(1) < 1_200_000).then_some(()));
    let said = |text: &str| {
        let log = bed.node(2).directory().join("log");
        std::fs::read_to_string(log).unwrap_or_default().matches(text).count()
    };
    let instead = "the time is measured over the network instead";
    eventually("it says so", || (said(instead) > 0).then_some(()));
    switch_together(&bed, 2);
    keep(2, 500, 1);
    eventually("it goes by it again", || (error(1) >= 1_200_000).then_some(()));
    // One that is kept, and wrong: put forward, and back.
    for (step, times) in [("2", 1), ("-2", 2)] {
        std::fs::write(&wall, step).unwrap();
        let off = "the system's clock is off by";
        eventually("it is not believed", || (said(off) == times).then_some(()));
        eventually("it is measured", || (error(1) < 1_200_000).then_some(()));
        switch_together(&bed, 2);
        std::fs::write(&wall, "0").unwrap();
        eventually("it is gone by again", || (error(1) >= 1_200_000).then_some(()));
    }
    join(3).expect(1).says("no program keeps the system's clock").says("chronyc tracking");
    assert!(!bed.states().contains_key("n3"));
    bed.tutti(1, &["params", "clock=own"]).expect(0);
    start(3, &["up"]).expect(0);
    bed.tutti(1, &["run", "-N", "3", "true"]).expect(0);
    bed.tutti(1, &["cancel", "--now", "1", "2"]).expect(0);
}

/// See `wall.c`.
pub(crate) fn shifted_clock() -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/e2e/wall.c");
    let built = Path::new(env!("CARGO_TARGET_TMPDIR")).join("wall.so");
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-O2", "-o"]).args([&built, &source]).arg("-ldl");
    assert!(compiler.status().unwrap().success(), "run tests/install-deps");
    built
}
