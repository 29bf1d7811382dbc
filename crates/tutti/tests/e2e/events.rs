//! `tutti events`: what happens, numbered, in order, to readers that may see it.

use crate::harness::{Done, Instance, NOBODY, Running, eventually, own_name};
use crate::recovery::kill_daemon;
use nix::sys::signal::Signal;
use serde_json::Value;
use std::fs;
use std::path::Path;

/// Lines of JSON.
fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).expect(line)).collect()
}

fn events(instance: &Instance, args: &[&str]) -> Vec<Value> {
    lines(&instance.tutti(&[&["events"], args].concat()).expect(0).text())
}

fn number(event: &Value) -> u64 {
    event["number"].as_u64().unwrap()
}

fn words(events: &[Value]) -> Vec<&str> {
    events.iter().map(|event| event["event"].as_str().unwrap()).collect()
}

/// The latest event of this word.
fn latest<'a>(events: &'a [Value], word: &str) -> &'a Value {
    let found = events.iter().rev().find(|event| event["event"] == word);
    found.unwrap_or_else(|| panic!("no {word} in {:?}", words(events)))
}

fn code_of_gone(done: Done) -> Done {
    done.expect(1).says("[T086]")
}

#[test]
fn events_are_complete_and_in_order_over_a_killed_controller() {
    let instance = Instance::new().up();
    let following = instance.start(&["events", "-f", "--since", "0"]);
    following.wait_for("controller_started");
    let first = instance.submit(&["-n", "2", "-o", "/dev/null", "true"]).to_string();
    instance.tutti(&["wait", &first]).expect(0);
    let nap = instance.submit(&["-J", "nap", "-o", "/dev/null", "sleep", &instance.nap]);
    instance.wait_for_state(nap, "running");
    let before = events(&instance, &[]);
    kill_daemon(&instance, "controller");
    instance.tutti(&["suspend", "nap"]).expect(0);
    kill_daemon(&instance, "controller");
    instance.tutti(&["resume", "nap"]).expect(0);
    instance.tutti(&["params", "rows=3"]).expect(0);
    instance.tutti(&["cancel", "--now", "nap"]).expect(0);
    instance.tutti(&["wait", &nap.to_string()]).expect(137);
    let all = events(&instance, &[]);
    assert_eq!(all[..before.len()], before, "numbers stay");
    assert!(all.windows(2).all(|pair| number(&pair[0]) < number(&pair[1])));
    assert!(all.windows(2).all(|pair| pair[0]["entry"].as_u64() <= pair[1]["entry"].as_u64()));
    let of_first = events(&instance, &["--job", &first]);
    // Tasks that end together are one event, if both ends come together.
    let mut words_of_first = words(&of_first);
    words_of_first.dedup();
    assert_eq!(words_of_first, ["job_submitted", "job_started", "tasks_ended", "job_ended"]);
    assert_eq!(of_first[1]["nodes"][0]["ranks"], "0-1");
    let of_nap = events(&instance, &["-j", "nap"]);
    let wanted = ["job_submitted", "job_started", "job_suspended", "job_resumed", "job_ending"];
    assert_eq!(words(&of_nap)[..5], wanted);
    assert_eq!(words(&of_nap)[5..], ["tasks_ended", "job_ended"]);
    assert_eq!((&of_nap[5]["signal"], &of_nap[6]["ending"]), (&9.into(), &"cancelled".into()));
    assert_eq!(latest(&all, "setting_changed")["values"], serde_json::json!(["rows=3"]));
    let started = words(&all).iter().filter(|word| **word == "controller_started").count();
    assert_eq!(started, 3);
    // A reader that goes on by number gets the rest, and one that followed has got the same.
    let middle = number(&all[all.len() / 2]);
    assert_eq!(events(&instance, &["--since", &middle.to_string()]), all[all.len() / 2 + 1..]);
    eventually("the follower's last event", || {
        (following.out().lines().count() >= all.len()).then_some(())
    });
    assert_eq!(lines(&following.out()), all);
    following.signal(Signal::SIGINT);
    following.wait();
}

#[test]
fn a_slow_reader_delays_no_other_and_hears_what_is_not_kept() {
    let instance = Instance::new().up();
    instance.tutti(&["params", "events_kept=100"]).expect(0);
    // From the first on: the job may have ended before it asks.
    let slow = instance.start(&["events", "-f", "--since", "0"]);
    let done = instance.submit(&["-o", "/dev/null", "true"]).to_string();
    slow.wait_for("job_ended");
    slow.signal(Signal::SIGSTOP);
    let begin = number(latest(&events(&instance, &[]), "job_ended"));
    let others = instance.start(&["events", "-f", "--since", "0"]);
    others.wait_for(&format!("\"job_ended\",\"job\":{done},"));
    for _ in 0..40 {
        let last = instance.submit(&["-o", "/dev/null", "true"]);
        others.wait_for(&format!("\"job_ended\",\"job\":{last},"));
    }
    instance.tutti(&["wait", "--all"]);
    let kept = eventually("that some are forgotten", || {
        instance.submit(&["-o", "/dev/null", "true"]);
        let kept = events(&instance, &[]);
        (number(&kept[0]) > begin + 1).then_some(kept)
    });
    assert!(kept.len() <= 130, "{} are kept", kept.len());
    // Nothing more happens then, so nothing more is forgotten.
    instance.tutti(&["wait", "--all"]);
    slow.signal(Signal::SIGCONT);
    code_of_gone(slow.wait()).says("are not kept any more");
    let gone = code_of_gone(instance.tutti(&["events", "--since", &begin.to_string()]));
    let first = number(&events(&instance, &[])[0]);
    assert!(gone.err.contains(&format!("--since {}`", first - 1)), "{}", gone.err);
    let rest = events(&instance, &["--since", &(first - 1).to_string()]);
    assert_eq!(number(&rest[0]), first);
    code_of_gone(instance.tutti(&["events", "-f", "--since", "99999"])).says("no event 99999");
    others.signal(Signal::SIGINT);
    others.wait();
}

#[test]
fn a_user_sees_events_of_own_jobs_alone_also_from_inside_a_job() {
    let instance = Instance::of_the_system().up();
    let ours = instance.submit(&["-J", "ours", "-o", "/dev/null", "true"]).to_string();
    instance.tutti(&["wait", &ours]).expect(0);
    let as_other = |args: &[&str]| {
        Running::start(instance.command_as(Some(NOBODY), args)).wait().expect(0).text()
    };
    let program = instance.program.display().to_string();
    // Within the job, its own events: where its ranks are.
    let line = format!("{program} events --job $TUTTI_JOB");
    let inside = lines(&as_other(&["run", "-n", "1", "sh", "-c", &line]));
    assert_eq!(words(&inside)[..2], ["job_submitted", "job_started"]);
    assert_eq!(inside[1]["nodes"][0]["ranks"], "0");
    let seen = lines(&as_other(&["events"]));
    let theirs: Vec<&Value> = seen.iter().filter(|event| event.get("job").is_some()).collect();
    assert!(theirs.len() >= 4 && theirs.iter().all(|event| event["uid"] == NOBODY), "{theirs:?}");
    assert!(seen.iter().any(|event| event["event"] == "node_joined"));
    let foreign = Running::start(instance.command_as(Some(NOBODY), &["events", "-j", &ours]));
    foreign.wait().expect(1).says("[T020]");
    // An administrator sees both, and can choose.
    let all = events(&instance, &[]);
    assert!(all.len() > seen.len());
    let nosuch = instance.tutti(&["events", "-f", "--user", "no-such-user"]);
    nosuch.expect(1).says("there is no user no-such-user");
    let own = events(&instance, &["--user", &own_name()]);
    assert!(
        !own.is_empty() && own.iter().all(|event| event["job"] == ours.parse::<u64>().unwrap())
    );
    instance.tutti(&["events", "--job", "999"]).expect(1).says("[T021]");
}

#[test]
fn a_command_is_run_for_each_event_and_goes_on_where_it_was() {
    let instance = Instance::new().up();
    let script = "#!/bin/sh\nread line\n[ -e ok-$TUTTI_EVENT_JOB ] || { touch ok-$TUTTI_EVENT_JOB; exit 1; }\n\
                  echo \"$TUTTI_EVENT $TUTTI_EVENT_JOB $line\" >> calls\n";
    instance.script("notify.sh", script);
    let words = ["events", "-f", "-o", "job_ended", "-e", "./notify.sh", "--place", "place"];
    let following = instance.start(&words);
    eventually("its place", || instance.work.join("place").exists().then_some(()));
    let job = instance.submit(&["-o", "/dev/null", "true"]);
    let calls = || fs::read_to_string(instance.work.join("calls")).unwrap_or_default();
    // The first try fails, and the second does not.
    eventually("a call", || calls().starts_with(&format!("job_ended {job} {{")).then_some(()));
    following.wait_for_err("it is tried again");
    following.signal(Signal::SIGINT);
    following.wait();
    // What happens while it is away is not missed.
    let second = instance.submit(&["-o", "/dev/null", "true"]);
    instance.tutti(&["wait", &second.to_string()]).expect(0);
    let following = instance.start(&words);
    eventually("the call that was missed", || {
        calls().contains(&format!("job_ended {second} {{")).then_some(())
    });
    following.signal(Signal::SIGINT);
    following.wait();
    // One that was handled when the reader ended may be handled once more.
    let (calls, mut once) = (calls(), calls().lines().map(str::to_owned).collect::<Vec<_>>());
    once.dedup();
    assert_eq!(once.len(), 2, "{calls}");
    fs::write(instance.work.join("place"), "x").unwrap();
    instance.tutti(&words).expect(1).says("has no number of an event");
    instance.tutti(&["events", "-o", "job_end"]).expect(2).says("job_ended");
}

#[test]
fn events_validate_against_their_schema() {
    let page =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/events.schema.json");
    let schema: Value = serde_json::from_str(&fs::read_to_string(page).unwrap()).unwrap();
    let reference = page_text();
    let instance = Instance::new().up();
    let node = instance.tutti(&["nodes", "--json"]).expect(0).json()[0]["name"].clone();
    let node = node.as_str().unwrap();
    instance.tutti(&["nodes", "drain", node, "--reason", "disk"]).expect(0);
    let held = instance.submit(&["--hold", "-o", "/dev/null", "sh", "-c", "exit 3"]).to_string();
    instance.tutti(&["release", &held]).expect(0);
    instance.tutti(&["hold", &held]).expect(0);
    instance.tutti(&["class", &held, "interactive"]).expect(0);
    instance.tutti(&["nodes", "resume", node]).expect(0);
    instance.tutti(&["release", &held]).expect(0);
    instance.tutti(&["wait", &held]).expect(3);
    instance.tutti(&["weight", "root=2"]).expect(0);
    let all = events(&instance, &[]);
    let mut seen: Vec<&str> = words(&all);
    seen.sort_unstable();
    seen.dedup();
    for word in ["node_drained", "node_resumed", "job_held", "job_released", "job_class_changed"] {
        assert!(seen.contains(&word), "{seen:?}");
    }
    let schemas = schema["$defs"].as_object().unwrap();
    let words: Vec<&String> = schemas.keys().collect();
    assert_eq!(words, tutti_client::events::EVENT_WORDS);
    for event in &all {
        let word = event["event"].as_str().unwrap();
        let of_event = schemas.get(word).unwrap_or_else(|| panic!("no schema of {word}"));
        crate::show::check(&schema, of_event, event, word);
    }
    for word in schemas.keys() {
        assert!(reference.contains(&format!("| `{word}` |")), "events.md does not list {word}");
    }
}

fn page_text() -> String {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/events.md");
    fs::read_to_string(page).unwrap()
}
