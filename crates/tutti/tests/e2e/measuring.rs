//! Nodes of a cluster are measured while they are idle, without a command.

use crate::cluster::Bed;
use crate::harness::{Instance, command_line, eventually, processes, status_of};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::time::{Duration, Instant};

/// The processes that measure for an agent.
fn measuring(agents: &[i32]) -> Vec<i32> {
    let is_one = |pid: &i32| {
        let parent = status_of(*pid, "PPid:").and_then(|it| it.parse().ok());
        command_line(*pid).get(1).is_some_and(|word| word == "measure")
            && parent.is_some_and(|parent: i32| agents.contains(&parent))
    };
    processes().into_iter().filter(is_one).collect()
}

/// The process that measures next.
fn next_measuring(agents: &[i32]) -> i32 {
    let begun = Instant::now();
    loop {
        if let Some(&pid) = measuring(agents).first() {
            return pid;
        }
        assert!(begun.elapsed() < Duration::from_secs(30), "no node is measured");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn figures(bed: &Bed) -> Vec<Value> {
    let nodes = bed.tutti(1, &["nodes", "--json"]).expect(0).json();
    nodes.as_array().unwrap().iter().map(|node| node["figures"].clone()).collect()
}

#[test]
fn idle_nodes_are_measured_and_a_job_ends_the_measurement() {
    let bed = Bed::up(2, &[0]);
    assert_eq!(figures(&bed), [Value::Null, Value::Null]);
    let agents = [1, 2].map(|number| bed.node(number).daemon("agent").unwrap());
    bed.tutti(1, &["params", "measure_after=1s"]).expect(0);
    // It would never end by itself.
    let first = next_measuring(&agents);
    kill(Pid::from_raw(first), Signal::SIGSTOP).unwrap();
    bed.tutti(1, &["run", "-N", "2", "true"]).expect(0);
    eventually("its end", || (!measuring(&agents).contains(&first)).then_some(()));
    // The other may have been measured before the job came.
    let is_null = |figures: &Value| *figures == Value::Null;
    assert!(figures(&bed).iter().any(is_null));
    eventually("the other measurements", || (!figures(&bed).iter().any(is_null)).then_some(()));
    for of_node in figures(&bed) {
        for figure in ["int", "float", "double", "memory"] {
            assert!(of_node[figure].as_u64().unwrap() > 10, "{of_node}");
        }
    }
}

#[test]
fn a_lone_node_and_nodes_that_are_not_to_be_are_not_measured() {
    let alone = Instance::new().up();
    alone.tutti(&["params", "measure_after=1s"]).expect(0);
    let bed = Bed::up(2, &[0]);
    bed.tutti(1, &["params", "measure_after=0"]).expect(0);
    let agent = |number: usize| bed.node(number).daemon("agent").unwrap();
    let agents = [alone.daemon("agent"), agent(1), agent(2)];
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(4) {
        assert_eq!(measuring(&agents), [0; 0]);
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(figures(&bed), [Value::Null, Value::Null]);
}

#[test]
fn the_network_of_idle_nodes_is_measured_and_chosen_by() {
    let bed = Bed::up(2, &[0]);
    bed.tutti(1, &["params", "measure_after=1s", "placement=low-load"]).expect(0);
    let networks = || -> Vec<Value> {
        let nodes = bed.tutti(1, &["nodes", "--json"]).expect(0).json();
        nodes.as_array().unwrap().iter().map(|node| node["network"].clone()).collect()
    };
    assert!(networks().iter().all(Value::is_null), "the nodes have just joined");
    let measured =
        eventually("the network's figures", || Some(networks()).filter(|it| !it[1].is_null()));
    // The head has those of the link to it, and has measured none itself.
    assert_eq!(measured[0]["link"], Value::Null);
    let head = bed.tutti(1, &["nodes", "--json"]).expect(0).json()[0]["name"].clone();
    assert_eq!(measured[1]["link"]["to"], head);
    for of_node in &measured {
        assert!((1..200_000).contains(&of_node["bandwidth_mb_s"].as_u64().unwrap()), "{of_node}");
        assert!((1..1_000_000).contains(&of_node["latency_us"].as_u64().unwrap()), "{of_node}");
    }
    let name = bed.tutti(1, &["nodes", "--json"]).expect(0).json()[1]["name"].clone();
    let of_one = bed.tutti(1, &["nodes", name.as_str().unwrap()]).expect(0).text();
    assert!(of_one.contains(" MB/s, ") && of_one.contains(" us, to "), "{of_one}");
    bed.tutti(1, &["nodes", "nonesuch"]).expect(1);
    for weights in ["network=2", "network=2,latency=1,double=3"] {
        bed.tutti(1, &["run", "--weights", weights, "true"]).expect(0);
    }
    let refused = bed.tutti(1, &["run", "--weights", "net=2", "true"]).expect(2);
    refused.says("network, latency");
}

#[test]
fn a_job_that_weighs_the_network_has_the_node_with_the_better_one() {
    let bed = Bed::up(3, &[0]);
    // Without the weight it would have the first.
    bed.bed().delay(bed.node(2), Duration::from_millis(5)).unwrap();
    bed.tutti(1, &["params", "measure_after=1s", "placement=low-load"]).expect(0);
    let nodes = || bed.tutti(1, &["nodes", "--json"]).expect(0).json().as_array().unwrap().clone();
    let measured = eventually("the network's figures", || {
        let links: Vec<Value> = nodes().iter().map(|it| it["network"].clone()).collect();
        Some(links).filter(|it| it[1..].iter().all(|it| !it["link"].is_null()))
    });
    let figure = |node: usize, name: &str| measured[node][name].as_u64().unwrap();
    assert!(figure(1, "latency_us") >= 5000, "{measured:?}");
    assert!(figure(2, "latency_us") < 5000, "{measured:?}");
    assert!(figure(1, "bandwidth_mb_s") < figure(2, "bandwidth_mb_s"), "{measured:?}");
    bed.bed().heal(bed.node(2)).unwrap();
    bed.tutti(1, &["params", "measure_after=0"]).expect(0);
    let host = |weights: &str| {
        let run = ["run", "-n", "1", "-w", "n[2-3]", "--weights", weights, "hostname"];
        bed.tutti(1, &run).expect(0).text()
    };
    assert_eq!(host("network=2"), "n3\n");
    assert_eq!(host("latency=2"), "n3\n");
    // All its nodes, if it wants as many.
    let run = ["run", "-N", "2", "-n", "2", "-w", "n[2-3]", "--weights", "network=2", "hostname"];
    bed.tutti(1, &run).expect(0);
}
