//! Counted resources: what a job gets, what it finds in its environment, and when it waits.

use crate::harness::{Instance, NOBODY, Running};

#[test]
fn a_job_finds_its_numbers_and_another_waits_until_they_are_free() {
    let instance = Instance::new().up();
    let listed = |words: &[&str]| {
        instance.tutti(&[&["resource", "--json"], words].concat()).expect(0).json()
    };
    assert_eq!(listed(&[]), serde_json::json!([]));
    let two = listed(&["licence=2", "scanner=1"]);
    assert_eq!((&two[0]["resource"], &two[0]["count"]), (&"licence".into(), &2.into()));
    let line = "echo got $TUTTI_RESOURCE_LICENCE; sleep $NAP";
    let holds = instance.start(&["run", "--resource", "licence:2", "sh", "-c", line]);
    holds.wait_for("got 0,1");
    let show = "echo $TUTTI_RESOURCE_LICENCE > number";
    let waits = instance.submit(&["--resource", "licence", "-o", "/dev/null", "sh", "-c", show]);
    let job = instance.job(waits);
    assert_eq!(
        (&job["state"], &job["resources"]),
        (&"queued".into(), &serde_json::json!(["licence"]))
    );
    assert!(job["reason"].as_str().unwrap().contains("resource licence"), "{job}");
    assert_eq!(instance.job(1)["resources"], serde_json::json!(["licence=0,1"]));
    let in_use = listed(&[]);
    assert_eq!((&in_use[0]["in_use"], &in_use[0]["queued"]), (&2.into(), &1.into()));
    assert!(instance.tutti(&["resource"]).expect(0).text().contains("keeps it"));
    assert!(instance.tutti(&["ps"]).expect(0).text().contains("[licence=0,1]"));
    // What was set, and what jobs have, outlives the controller.
    crate::recovery::kill_daemon(&instance, "controller");
    assert_eq!(listed(&[]), in_use);
    // A lower count ends nothing.
    listed(&["licence=1"]);
    assert_eq!(instance.job(1)["state"], "running");
    instance.tutti(&["cancel", "--now", "1"]).expect(0);
    holds.wait().expect(137);
    instance.tutti(&["wait", &waits.to_string()]).expect(0);
    let number = std::fs::read_to_string(instance.work.join("number")).unwrap();
    assert_eq!(number.trim(), "0");
    // What can never be met is declined with what would be.
    let run = |wish: &str| instance.tutti(&["run", "--resource", wish, "true"]);
    run("licence:2").expect(120).says("ask for at most licence:1").says("[T081]");
    run("licence@1").expect(120).says("has no number 1; ask for one of 0 to 0");
    run("gpu").expect(120).says("there is no resource gpu").says("[T081]");
    run("licence:x").expect(2).says("write NAME, NAME:COUNT or NAME@NUMBER");
    listed(&["licence=none", "scanner=none"]);
    assert_eq!(listed(&[]), serde_json::json!([]));
    let wrong = |setting: &str| instance.tutti(&["resource", setting]).expect(1);
    wrong("licence").says("write NAME=COUNT");
    wrong("licence=2000").says("use none, or 0 to 1024");
    wrong("Licence=2").says("invalid name of a resource");
}

#[test]
fn a_job_gets_what_its_node_counts_and_another_waits() {
    let instance = Instance::new().up();
    let listed = |words: &[&str]| {
        instance.tutti(&[&["nodes", "resource", "--json"], words].concat()).expect(0).json()
    };
    let node = listed(&[]).as_object().unwrap().keys().next().unwrap().clone();
    let of_node = |listed: serde_json::Value| listed[&node].clone();
    let two = of_node(listed(&[&node, "scratch=2,tape=1"]));
    assert_eq!((&two["scratch"]["count"], &two["tape"]["count"]), (&2.into(), &1.into()));
    let line = "echo got $TUTTI_RESOURCE_SCRATCH with ${TUTTI_DEVICES-nothing}; sleep $NAP";
    let holds = instance.start(&["run", "--resource", "scratch:2", "sh", "-c", line]);
    holds.wait_for("got 0,1 with nothing");
    let waits = instance.submit(&["--resource", "scratch:1/node", "-o", "/dev/null", "true"]);
    let job = instance.job(waits);
    assert_eq!(job["state"], "queued", "{job}");
    assert!(job["reason"].as_str().unwrap().contains("what nodes have of scratch"), "{job}");
    let used = of_node(listed(&[]));
    assert_eq!(
        (&used["scratch"]["in_use"], &used["scratch"]["jobs"]),
        (&2.into(), &serde_json::json!([1]))
    );
    assert!(instance.tutti(&["nodes"]).expect(0).text().contains("scratch:2/2 tape:0/1"));
    assert!(instance.tutti(&["ps"]).expect(0).text().contains("[scratch=0,1]"));
    crate::recovery::kill_daemon(&instance, "controller");
    assert_eq!(of_node(listed(&[])), used);
    // A lower count ends nothing.
    listed(&[&node, "scratch=1"]);
    assert_eq!(instance.job(1)["state"], "running");
    instance.tutti(&["cancel", "--now", "1"]).expect(0);
    holds.wait().expect(137);
    instance.tutti(&["wait", &waits.to_string()]).expect(0);
    // What can never be, and what contradicts what is.
    let run = |wish: &str| instance.tutti(&["run", "--resource", wish, "true"]);
    run("scratch:2").expect(120).says("ask for at most scratch:1");
    run("scratch@0").expect(120).says("there is no resource scratch");
    run("floppy").expect(120).says("`tutti nodes resource`");
    instance.tutti(&["resource", "licence=1"]).expect(0);
    let wrong =
        |words: &[&str]| instance.tutti(&[&["nodes", "resource"], words].concat()).expect(1);
    wrong(&[&node, "licence=1"]).says("resource of the whole cluster");
    wrong(&[&node, "scratch"]).says("write NAME=COUNT");
    wrong(&[&node, "scratch=129"]).says("at most 128");
    wrong(&["elsewhere", "scratch=1"]).says("no node elsewhere");
    wrong(&["scratch=1"]).says("name the nodes before");
    instance.tutti(&["resource", "tape=1"]).expect(1).says("resource of nodes");
    let device = ["nodes", "device", &node, "tape:0=/dev/full"];
    instance.tutti(&device).expect(1).says("tape=none");
    assert!(listed(&[&node, "scratch=none,tape=none"])[&node].as_object().unwrap().is_empty());
}

#[test]
fn only_administrators_set_resources() {
    let instance = Instance::of_the_system().up();
    let node = ["nodes", "resource", "a", "scratch=2"];
    let own = instance.command_as(Some(NOBODY), &node);
    Running::start(own).wait().expect(1).says("only root").says("[T020]");
    let own = instance.command_as(Some(NOBODY), &["resource", "licence=2"]);
    Running::start(own).wait().expect(1).says("only root").says("[T020]");
}
