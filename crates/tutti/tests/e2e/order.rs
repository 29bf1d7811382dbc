//! Which job is next: users in turn, and their weights.

use crate::harness::{Instance, NOBODY, Running, own_name};

#[test]
fn weights_are_listed_set_and_taken_back() {
    let instance = Instance::new().up();
    let weight = |words: &[&str]| instance.tutti(&[&["weight"], words].concat());
    assert_eq!(weight(&["--json"]).expect(0).json(), serde_json::json!([]));
    let own = own_name();
    weight(&[&format!("{own}=2"), "@0=1000"]).expect(0);
    let listed = weight(&["--json"]).expect(0).json();
    assert_eq!(listed[0], serde_json::json!({ "account": own, "weight": 2 }));
    assert_eq!(listed[1]["weight"], 1000);
    for wrong in ["0", "1001", "-1", "1.5", "much", ""] {
        weight(&[&format!("{own}={wrong}")]).expect(1).says("from 1 to 1000, or none");
    }
    weight(&["no-such-user=2"]).expect(1).says("there is no user no-such-user");
    weight(&["@no-such-group=2"]).expect(1).says("there is no group no-such-group");
    weight(&[&format!("{own}=3"), "@0=0"]).expect(1);
    weight(&[&own]).expect(1).says("ACCOUNT=WEIGHT");
    assert_eq!(weight(&["--json"]).expect(0).json(), listed, "nothing of a wrong list is set");
    weight(&[&format!("{own}=none"), "@0=none"]).expect(0);
    assert_eq!(weight(&["--json"]).expect(0).json(), serde_json::json!([]));
}

/// One user floods the line; the job of another is the next to start.
#[test]
fn a_flood_of_jobs_of_one_user_does_not_keep_another_waiting() {
    let instance = Instance::of_the_system().up();
    instance.tutti(&["params", "policy=space"]).expect(0);
    let work = ["--exclusive", "-o", "/dev/null", "sleep", &instance.nap];
    let submit = || instance.submit(&work);
    let running = submit();
    instance.wait_for_state(running, "running");
    let flood: Vec<u64> = (0..4).map(|_| submit()).collect();
    let args = [&["submit", "--parsable"][..], &work].concat();
    let other = Running::start(instance.command_as(Some(NOBODY), &args)).wait().expect(0);
    let other: u64 = other.text().trim().parse().unwrap();
    let place = |job| instance.job(job)["position"].clone();
    assert_eq!((place(other), place(flood[0]), place(flood[3])), (1.into(), 2.into(), 5.into()));
    let behind = instance.job(flood[0]);
    assert_eq!(behind["behind"], other);
    let why = format!("2nd in line, behind job {other}; its user has used more lately");
    assert_eq!(behind["reason"], why);
    assert!(instance.tutti(&["ps"]).expect(0).text().contains(&why));
    let cancel = |job: u64| instance.tutti(&["cancel", "--now", &job.to_string()]).expect(0);
    cancel(running);
    instance.wait_for_state(other, "running");
    assert_eq!(instance.job(flood[0])["state"], "queued");
    // By arrival, which takes effect at once.
    instance.tutti(&["params", "order=arrival"]).expect(0);
    assert_eq!(instance.job(flood[1])["reason"], format!("2nd in line, behind job {}", flood[0]));
    for job in flood.into_iter().chain([other]) {
        cancel(job);
    }
}
