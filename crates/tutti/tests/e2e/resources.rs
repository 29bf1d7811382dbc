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
fn only_administrators_set_resources() {
    let instance = Instance::of_the_system().up();
    let own = instance.command_as(Some(NOBODY), &["resource", "licence=2"]);
    Running::start(own).wait().expect(1).says("only root").says("[T020]");
}
