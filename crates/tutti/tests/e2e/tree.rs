//! A control tree of several levels: seven nodes, of which each has at most two children.

use crate::cluster::Bed;
use crate::clusters::switch_together;
use crate::harness::{Running, compile, eventually, within};
use crate::partition::{COUNTS, check_counts};
use nix::sys::signal::Signal;
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

const NODES: usize = 7;

/// To find out that a node is gone, and to wait for its lease, takes a while.
const LONG: Duration = Duration::from_secs(60);

/// Parent and depth of each node that is connected, by its name.
fn places(bed: &Bed) -> BTreeMap<String, (String, u64)> {
    let Value::Array(nodes) = bed.tutti(1, &["nodes", "--json"]).expect(0).json() else {
        panic!("no list of nodes")
    };
    let place = |node: &Value| {
        let parent = node["parent"].as_str()?.to_owned();
        Some((node["name"].as_str()?.to_owned(), (parent, node["depth"].as_u64()?)))
    };
    nodes.iter().filter(|node| node["state"] == "up").filter_map(place).collect()
}

/// The number of a node.
fn number(name: &str) -> usize {
    name.trim_start_matches('n').parse().unwrap()
}

fn up() -> Bed {
    let bed = Bed::up_with(NODES, &[0, 3600, -900, 5, 86_400], &["fan_out=2"]);
    eventually("all nodes", || (places(&bed).len() == NODES).then_some(()));
    bed
}

/// A node between the root and others, and a leaf below it.
fn inner_and_leaf(bed: &Bed) -> (usize, usize) {
    let places = places(bed);
    let (leaf, (inner, _)) = places.iter().find(|(_, (_, depth))| *depth == 2).unwrap();
    (number(inner), number(leaf))
}

/// All nodes are there, and every one is below the root by as many connections as it says.
fn whole(bed: &Bed) {
    eventually("all nodes are back", || {
        let places = places(bed);
        let sound = places.values().all(|(parent, depth)| match depth {
            0 => parent.is_empty(),
            depth => places.get(parent).is_some_and(|(_, above)| above + 1 == *depth),
        });
        (places.len() == NODES && sound).then_some(())
    });
}

#[test]
fn nodes_join_below_each_other_and_run_as_if_they_did_not() {
    let bed = up();
    let places = places(&bed);
    let at = |depth: u64| places.values().filter(|(_, of_node)| *of_node == depth).count();
    assert_eq!((at(0), at(1), at(2)), (1, 2, 4), "{places:?}");
    for (_, (parent, _)) in places.iter().filter(|(_, (_, depth))| *depth > 0) {
        let children = places.values().filter(|(of, _)| of == parent).count();
        assert_eq!(children, 2, "{places:?}");
    }
    let (_, leaf) = inner_and_leaf(&bed);
    let hosts: Vec<String> = (0..14).map(|rank| format!("{rank:>2}: n{}", rank / 2 + 1)).collect();
    for number in [1, leaf] {
        let done = bed.tutti(number, &["run", "-n", "14", "--label", "--", "hostname"]).expect(0);
        assert_eq!(done.sorted(), hosts, "from n{number}");
    }
    let mut command = bed.node(leaf).tutti(&["run", "-n", "14", "-i", "13", "--", "wc", "-l"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut counting = command.spawn().unwrap();
    counting.stdin.take().unwrap().write_all("a line\n".repeat(50_000).as_bytes()).unwrap();
    let said = String::from_utf8(counting.wait_with_output().unwrap().stdout).unwrap();
    assert_eq!(said.lines().filter(|line| *line == "50000").count(), 1, "{said}");
    // Signals, and how a rank far away ended.
    let script = "trap 'exit 9' USR1; echo ready; while :; do sleep 0.05; done";
    let trapped = bed.start(leaf, &["run", "-n", "14", "--", "sh", "-c", script]);
    eventually("all are ready", || (trapped.out().lines().count() == 14).then_some(()));
    let job = latest_job(&bed);
    check_branches(&bed, 1);
    bed.tutti(1, &["signal", "USR1", &job]).expect(0);
    trapped.wait().expect(9);
    check_branches(&bed, 0);
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/mpi");
    let ring = compile("mpicc.mpich", &sources.join("ring.c"), "ring-tree");
    let ring = ring.display().to_string();
    let done = bed.tutti(leaf, &["run", "-n", "14", &ring, "20"]).expect(0);
    assert!(done.text().contains("14 ranks, 20 rounds, ok"), "{}", done.text());
}

/// Every node knows how many are below it, and that these have parts of so many jobs: all jobs are
/// on all nodes.
#[track_caller]
fn check_branches(bed: &Bed, jobs: u64) {
    let places = places(bed);
    let parents = |name: &str| {
        let next = |at: &String| Some(places[at].0.clone()).filter(|parent| !parent.is_empty());
        std::iter::successors(next(&name.to_owned()), next).collect::<Vec<_>>()
    };
    let below = |name: &str| {
        let is_below = |other: &&String| parents(other).iter().any(|parent| parent == name);
        places.keys().filter(is_below).count() as u64
    };
    let Value::Array(nodes) = bed.tutti(1, &["nodes", "--json"]).expect(0).json() else { panic!() };
    for node in &nodes {
        let nodes = below(node["name"].as_str().unwrap());
        let told = (node["branch_nodes"].as_u64(), node["branch_jobs"].as_u64());
        assert_eq!(told, (Some(nodes), Some(jobs)), "{node}");
    }
    let table = bed.tutti(1, &["nodes"]).expect(0).text();
    let counted = if jobs == 1 { "1 job" } else { "0 jobs" };
    assert_eq!(table.matches(&format!("2 nodes, {counted}")).count(), 2, "{table}");
}

fn latest_job(bed: &Bed) -> String {
    let Value::Array(jobs) = bed.tutti(1, &["ps", "--json"]).expect(0).json() else { panic!() };
    jobs.iter().map(|job| job["job"].as_u64().unwrap()).max().unwrap().to_string()
}

fn kill_agent(bed: &Bed, number: usize) {
    let node = bed.node(number);
    let agent = node.daemon("agent").unwrap();
    node.signal("agent", Signal::SIGKILL).unwrap();
    eventually("another agent", || node.daemon("agent").filter(|&new| new != agent));
}

#[test]
fn inner_agents_and_leaves_that_end_cost_no_job() {
    let bed = up();
    bed.tutti(1, &["params", "quantum=50ms"]).expect(0);
    // Two jobs that take turns on all nodes while agents end, until they are told to end.
    let line = "until [ -e end ]; do sleep 0.2; done";
    let submit = ["submit", "--parsable", "-n", "14", "-o", "/dev/null", "--", "sh", "-c", line];
    let jobs = [(); 2].map(|()| bed.tutti(1, &submit).expect(0).text().trim().to_owned());
    switch_together(&bed, NODES);
    for _ in 0..2 {
        let (inner, leaf) = inner_and_leaf(&bed);
        for number in [inner, leaf] {
            kill_agent(&bed, number);
            whole(&bed);
            switch_together(&bed, NODES);
        }
    }
    std::fs::write(bed.audit.work.join("end"), "").unwrap();
    for job in jobs {
        bed.tutti(1, &["wait", &job]).expect(0);
    }
    let done = bed.tutti(1, &["run", "-n", "14", "--", "hostname"]).expect(0);
    assert_eq!(done.sorted().len(), 14);
}

#[test]
fn launches_while_agents_end_all_happen_once() {
    let bed = up();
    let directory = bed.audit.work.join("ran");
    std::fs::create_dir(&directory).unwrap();
    let script = format!("echo x >> {}/$TUTTI_JOB.$TUTTI_RANK", directory.display());
    let submit = ["submit", "--parsable", "-n", "14", "-o", "/dev/null", "--", "sh", "-c", &script];
    let mut jobs = Vec::new();
    // An agent with others below it, one with none, the root's, and the one that decides.
    let (inner, leaf) = inner_and_leaf(&bed);
    for (number, part) in [(inner, "agent"), (leaf, "agent"), (1, "agent"), (1, "controller")] {
        for count in 0..3 {
            jobs.push(bed.tutti(1, &submit).expect(0).text().trim().to_owned());
            if count == 1 {
                bed.node(number).signal(part, Signal::SIGKILL).unwrap();
            }
        }
    }
    for job in &jobs {
        bed.tutti(1, &["wait", job]).expect(0);
        for rank in 0..14 {
            let ran = std::fs::read_to_string(directory.join(format!("{job}.{rank}")));
            assert_eq!(ran.unwrap_or_default(), "x\n", "rank {rank} of job {job}");
        }
    }
    whole(&bed);
}

/// What is lost of a launch that is on its way down is what was to run on that node.
#[test]
#[ignore = "takes long: `tests/long e2e` runs it"]
fn an_inner_node_that_is_lost_during_a_launch_costs_its_own_jobs_alone() {
    let bed = Bed::up_with(NODES, &[0], &["fan_out=2", "lease=2s"]);
    eventually("all nodes", || (places(&bed).len() == NODES).then_some(()));
    for delay_ms in [0, 5, 12] {
        let (inner, leaf) = inner_and_leaf(&bed);
        let name = format!("n{inner}");
        let stop = format!("stop-{delay_ms}");
        let until = format!("while ! test -e {stop}; do sleep 0.02; done");
        let nodes = format!("n1,n{leaf}");
        let submit = |args: &[&str], line: &str| {
            let common = ["submit", "--parsable", "-o", "/dev/null"];
            let args = [&common, args, &["--", "sh", "-c", line]].concat();
            bed.tutti(1, &args).expect(0).text().trim().to_owned()
        };
        let aside = submit(&["-N", "2", "--nodes", &nodes], &until);
        let whole_tree = bed.start(leaf, &["run", "-N", "7", "--", "sh", "-c", &until]);
        // It fits on the nodes that are left.
        let again = submit(&["-N", "6", "--on-node-loss", "requeue"], &until);
        std::thread::sleep(Duration::from_millis(delay_ms));
        bed.bed().kill(bed.node(inner)).unwrap();
        whole_tree.wait_within(LONG).expect(121).says("[T040]");
        within(LONG, "a tree without it", || {
            let places = places(&bed);
            let is_left = places.values().all(|(parent, _)| *parent != name);
            (places.len() == NODES - 1 && is_left).then_some(())
        });
        std::fs::write(bed.audit.work.join(&stop), "").unwrap();
        for job in [aside, again] {
            bed.start(1, &["wait", &job]).wait_within(LONG).expect(0);
        }
        bed.bed().heal(bed.node(inner)).unwrap();
        bed.tutti(inner, &["up"]).expect(0);
        whole(&bed);
    }
    bed.tutti(1, &["run", "-N", "7", "--", "true"]).expect(0);
}

#[test]
fn mpi_programs_find_each_other_though_agents_end_meanwhile() {
    let bed = up();
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/mpi");
    let ring = compile("mpicc.mpich", &sources.join("ring.c"), "ring-faults").display().to_string();
    let submit = ["submit", "--parsable", "-N", "7", "-o", "/dev/null", "--", &ring, "20"];
    let (inner, leaf) = inner_and_leaf(&bed);
    for (victim, part) in
        [(inner, "agent"), (leaf, "agent"), (1, "controller"), (1, "agent"), (inner, "agent")]
    {
        // Two, so that one of them is at a barrier when it happens.
        let jobs = [(); 2].map(|()| bed.tutti(1, &submit).expect(0).text().trim().to_owned());
        bed.node(victim).signal(part, Signal::SIGKILL).unwrap();
        for job in jobs {
            bed.tutti(1, &["wait", &job]).expect(0);
        }
        whole(&bed);
    }
}

#[test]
fn barriers_of_a_job_wait_for_no_node_on_which_it_has_slots_alone() {
    let bed = up();
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/mpi");
    let ring = compile("mpicc.mpich", &sources.join("ring.c"), "ring-slots").display().to_string();
    bed.tutti(1, &["run", "-n", "3", "--max-tasks", "14", "--", &ring, "20"]).expect(0);
    whole(&bed);
}

#[test]
fn output_through_agents_that_end_is_whole() {
    let bed = up();
    let (inner, leaf) = inner_and_leaf(&bed);
    let print = "i=0; while [ $i -lt 2000 ]; do echo $TUTTI_RANK $i $(printf '%0900d' 0); \
                 i=$((i+1)); done";
    for victim in [inner, leaf] {
        let talking: Running = bed.start(1, &["run", "-n", "14", "--", "sh", "-c", print]);
        eventually("all talk", || (talking.out().lines().count() > 1000).then_some(()));
        kill_agent(&bed, victim);
        let done = talking.wait().expect(0);
        let mut next = [0_u32; 14];
        for line in done.text().lines() {
            let words: Vec<&str> = line.split(' ').collect();
            let (rank, number): (usize, u32) =
                (words[0].parse().unwrap(), words[1].parse().unwrap());
            assert_eq!(number, next[rank], "rank {rank}: lines lost without a word");
            next[rank] += 1;
        }
        assert_eq!(next, [2000; 14]);
        whole(&bed);
    }
}

#[test]
fn a_frozen_inner_agent_is_left_by_those_below_it() {
    let bed = up();
    let (inner, _) = inner_and_leaf(&bed);
    let name = format!("n{inner}");
    bed.node(inner).signal("agent", Signal::SIGSTOP).unwrap();
    eventually("its children are elsewhere", || {
        places(&bed).values().all(|(parent, _)| *parent != name).then_some(())
    });
    bed.node(inner).signal("agent", Signal::SIGCONT).unwrap();
    whole(&bed);
    bed.tutti(1, &["run", "-n", "14", "true"]).expect(0);
}

#[test]
fn an_inner_node_whose_link_flaps_or_that_nobody_hears_costs_no_job_and_no_output() {
    let bed = Bed::up_with(NODES, &[0, 3600], &["fan_out=2", "lease=60s"]);
    eventually("all nodes", || (places(&bed).len() == NODES).then_some(()));
    let (inner, leaf) = inner_and_leaf(&bed);
    let (node, name) = (bed.node(inner), format!("n{inner}"));
    let talking = bed.start(leaf, &["run", "-N", "7", "--", "sh", "-c", COUNTS]);
    eventually("all talk", || (talking.out().lines().count() > 70).then_some(()));
    for _ in 0..4 {
        bed.bed().cut(node).unwrap();
        std::thread::sleep(Duration::from_millis(300));
        bed.bed().heal(node).unwrap();
        std::thread::sleep(Duration::from_millis(300));
    }
    // It hears those below, and they don't hear it.
    bed.bed().mute(node).unwrap();
    within(LONG, "its children are elsewhere", || {
        places(&bed).values().all(|(parent, _)| *parent != name).then_some(())
    });
    bed.bed().heal(node).unwrap();
    check_counts(&talking.wait_within(LONG).expect(0).text(), 7);
    within(LONG, "it is back", || (places(&bed).len() == NODES).then_some(()));
    whole(&bed);
    bed.tutti(leaf, &["run", "-N", "7", "true"]).expect(0);
}

#[test]
fn an_inner_node_that_is_taken_down_takes_nobody_along() {
    let bed = up();
    let (inner, leaf) = inner_and_leaf(&bed);
    let job = ["submit", "--parsable", "-n", "2", "-o", "/dev/null", "-w"];
    let name = format!("n{leaf}");
    let job = bed.tutti(1, &[&job[..], &[&name, "--", "sleep", "2"]].concat()).expect(0).text();
    bed.tutti(inner, &["down"]).expect(0);
    eventually("six nodes", || (places(&bed).len() == NODES - 1).then_some(()));
    bed.tutti(1, &["wait", job.trim()]).expect(0);
    bed.tutti(inner, &["up"]).expect(0);
    whole(&bed);
    bed.tutti(leaf, &["run", "-n", "14", "true"]).expect(0);
}

#[test]
fn a_head_that_does_not_trust_root_of_the_others_has_all_of_them_itself() {
    let bed = Bed::of(4, &[0]);
    let address = bed.node(1).address();
    bed.tutti(1, &["up", "--listen", &address, "--name", "n1"]).expect(0);
    bed.tutti(1, &["params", "fan_out=2"]).expect(0);
    for number in 2..=4 {
        bed.bed().join(bed.node(number)).unwrap();
    }
    eventually("all nodes", || (places(&bed).len() == 4).then_some(()));
    assert!(places(&bed).values().all(|(_, depth)| *depth <= 1));
}

#[test]
fn who_can_not_be_reached_has_no_children() {
    let bed = Bed::of(4, &[0]);
    let address = bed.node(1).address();
    bed.tutti(1, &["up", "--listen", &address, "--name", "n1", "--trust-root"]).expect(0);
    bed.tutti(1, &["params", "fan_out=2"]).expect(0);
    for number in 2..=4 {
        let token = bed.tutti(1, &["invite", "--parsable"]).expect(0).text();
        let name = format!("n{number}");
        let join = ["join", &address, token.trim(), "--name", &name, "--listen", "none"];
        bed.tutti(number, &join).expect(0);
    }
    eventually("all nodes", || (places(&bed).len() == 4).then_some(()));
    assert!(places(&bed).values().all(|(_, depth)| *depth <= 1));
    bed.tutti(4, &["run", "-n", "8", "true"]).expect(0);
}
