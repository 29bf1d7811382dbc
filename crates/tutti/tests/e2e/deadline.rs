//! Deadlines: a declined job is told one that will do, and an accepted one is done in time.

use crate::harness::Instance;
use std::time::{Duration, Instant};

/// An instance that keeps deadlines, with jobs that ask for all of its processors.
fn instance() -> (Instance, String) {
    let instance = Instance::new().up();
    instance.tutti(&["params", "policy=deadline", "deadline_slack=2s"]).expect(0);
    let nodes = instance.tutti(&["nodes", "--json"]).expect(0).json();
    let all = nodes[0]["processors"].to_string();
    (instance, all)
}

/// The deadline that a refusal names.
fn named(refusal: &str) -> String {
    let (_, named) = refusal.split_once("--deadline ").expect("it names a deadline");
    named.split_whitespace().next().expect("a time").trim_end_matches(['.', '\n']).to_owned()
}

#[test]
fn a_declined_job_is_told_a_deadline_that_is_accepted() {
    let (instance, all) = instance();
    let asks = |deadline: &str| -> Vec<String> {
        ["submit", "-n", &all, "-t", "10m", "-d", deadline, "sleep", "600"]
            .map(str::to_owned)
            .to_vec()
    };
    let submit = |deadline: &str| {
        let words = asks(deadline);
        instance.tutti(&words.iter().map(String::as_str).collect::<Vec<_>>())
    };
    submit("15m").expect(0);
    let refusal = submit("15m").expect(120);
    let other = named(&refusal.err);
    submit(&other).expect(0);
    let jobs = instance.jobs();
    assert_eq!(jobs.len(), 2);
    for job in &jobs {
        let left = job["deadline_s"].as_i64().expect("a deadline");
        let ends = job["ends_s"].as_i64().expect("an end is foretold");
        assert!(ends <= left && job["at_risk_s"].is_null(), "{job}");
    }
    let shown = instance.tutti(&["ps"]).expect(0).text();
    assert!(shown.contains("DUE") && shown.contains("starts "), "{shown}");
    // More has no time, and what has no deadline waits its turn.
    submit("20m").expect(120).says("can't be guaranteed to end");
    instance.tutti(&["submit", "-n", &all, "true"]).expect(0);
    instance.tutti(&["params", "policy=gang"]).expect(0);
    submit("2h").expect(120).says("policy=deadline");
    instance.tutti(&["cancel", "--now", "1"]).expect(0);
}

#[test]
fn accepted_deadlines_are_kept_while_others_come() {
    let (instance, all) = instance();
    let began = Instant::now();
    let deadline = Duration::from_secs(120);
    let script = "for i in 1 2 3 4 5 6; do sleep 0.2; done";
    let words = ["submit", "-n", &all, "-t", "40s", "-d", "120s", "sh", "-c", script];
    let first = instance.tutti(&words).expect(0);
    let mut later = 0;
    // Shorter and tighter ones: each goes first, and none can take what the first needs.
    for _ in 0..40 {
        let words = ["submit", "-n", &all, "-t", "8s", "-d", "36s", "sleep", "0.3"];
        later += usize::from(instance.tutti(&words).code == 0);
    }
    assert!(later > 0, "{}", first.text());
    for job in 1..=later + 1 {
        instance.tutti(&["wait", &job.to_string()]).expect(0);
    }
    assert!(began.elapsed() < deadline, "late: {:?}", began.elapsed());
}
