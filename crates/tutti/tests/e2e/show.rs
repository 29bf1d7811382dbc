//! One job by its number: `tutti show`, `tutti logs`, and jobs that are named in words.

use crate::harness::{Instance, Running, eventually};
use crate::recovery::kill_daemon;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

fn shown(instance: &Instance, job: &str) -> Value {
    instance.tutti(&["show", job, "--json"]).expect(0).json()[0].clone()
}

fn states(shown: &Value) -> Vec<String> {
    let states = shown["details"]["states"].as_array().unwrap();
    states.iter().map(|change| change["state"].as_str().unwrap().to_owned()).collect()
}

/// By `--all` and `--user`: those that have not ended.
fn all_jobs_of_a_user_are_shown(instance: &Instance, job: u64) {
    let done = instance.submit(&["-o", "/dev/null", "true"]);
    instance.tutti(&["wait", &done.to_string()]).expect(0);
    let held = instance.submit(&["--hold", "-o", "/dev/null", "true"]);
    let jobs = |words: &[&str]| {
        let shown = instance.tutti(&[&["show", "--json"], words].concat()).expect(0).json();
        shown.as_array().unwrap().iter().map(|it| it["job"].as_u64().unwrap()).collect::<Vec<_>>()
    };
    let owner = shown(instance, &job.to_string())["user"].as_str().unwrap().to_owned();
    assert_eq!(jobs(&["--all"]), [job, held]);
    assert_eq!(jobs(&["-u", &owner]), [job, held]);
    let none: [u64; 0] = [];
    assert_eq!(jobs(&["--user", "65534"]), none);
    instance.tutti(&["show", "--user", "no-such-user"]).expect(1).says("there is no user");
    instance.tutti(&["show", "--all", "7"]).expect(2).says("--all can't go with JOB");
    instance.tutti(&["cancel", "--now", &held.to_string()]).expect(0);
}

#[test]
fn the_next_controller_knows_the_names_of_nodes_before_they_have_joined_it() {
    let instance = Instance::new().up();
    let job = instance.submit(&["-o", "/dev/null", "sleep", &instance.nap]);
    instance.wait_for_state(job, "running");
    let name = || shown(&instance, &job.to_string())["details"]["nodes"][0]["node"].clone();
    let before = name();
    assert!(!before.as_str().unwrap().starts_with("node-"), "{before}");
    kill_daemon(&instance, "controller");
    assert_eq!(name(), before);
    instance.tutti(&["cancel", &job.to_string()]).expect(0);
    eventually("its end", || shown(&instance, &job.to_string())["ended_ms"].as_u64());
    assert_eq!(name(), before);
}

#[test]
fn show_has_what_a_live_job_is_and_keeps_it_when_it_has_ended() {
    let instance = Instance::new().up();
    let words = ["-J", "solver", "-n", "2", "-t", "1h", "-m", "1M", "-o", "out-%j"];
    let job = instance.submit(&[&words[..], &["sleep", &instance.nap]].concat());
    instance.wait_for_state(job, "running");
    instance.tutti(&["suspend", "solver"]).expect(0);
    instance.wait_for_state(job, "suspended");
    instance.tutti(&["resume", "last"]).expect(0);
    let live = shown(&instance, &job.to_string());
    let details = &live["details"];
    assert_eq!(details["command"], serde_json::json!(["sleep", instance.nap]));
    assert_eq!(details["directory"], instance.work.to_str().unwrap());
    assert_eq!(details["output"], instance.work.join(format!("out-{job}")).to_str().unwrap());
    assert_eq!(
        (&details["memory_per_task_bytes"], &live["time_limit_ms"]),
        (&(1 << 20).into(), &3_600_000.into())
    );
    assert_eq!(details["nodes"][0]["tasks"], 2);
    assert_eq!(states(&live), ["queued", "running", "suspended", "running"]);
    assert!(live["started_ms"].as_u64() >= live["accepted_ms"].as_u64(), "{live}");
    assert_eq!((&live["environment"], &live["ended_ms"]), (&Value::Null, &Value::Null));
    let text = instance.tutti(&["show", "last", "--env"]).expect(0).text();
    for what in [
        "class production",
        "asked      2 tasks, 1.0M of memory each",
        "env        PATH=",
        "limit      1h",
    ] {
        assert!(text.contains(what), "{what}: {text}");
    }
    all_jobs_of_a_user_are_shown(&instance, job);
    instance.tutti(&["cancel", "--now", "solver"]).expect(0);
    instance.tutti(&["wait", &job.to_string()]).expect(137);
    assert_eq!(instance.tutti(&["show", "--all", "--json"]).expect(0).json(), Value::Array(vec![]));
    instance.tutti(&["show", "--all"]).expect(0).says("no job that has not ended");
    let ended = shown(&instance, "solver");
    assert_eq!(ended["ending"], "cancelled");
    assert_eq!(states(&ended), ["queued", "running", "suspended", "running", "ending", "ended"]);
    for field in ["command", "directory", "output", "nodes"] {
        assert_eq!(ended["details"][field], live["details"][field], "{field}");
    }
    instance.tutti(&["show", "--env", &job.to_string()]).expect(1).says("kept until it ends");
    instance.tutti(&["show", "99"]).expect(1).says("there is no job 99").says("[T021]");
}

#[test]
fn jobs_are_named_in_words_where_they_are_unique_and_the_callers() {
    let instance = Instance::new().up();
    let nap =
        |name: &str| instance.submit(&["-J", name, "-o", "/dev/null", "sleep", &instance.nap]);
    instance.tutti(&["show", "last"]).expect(1).says("you have no job");
    let (first, second, other) = (nap("twin"), nap("twin"), nap("other"));
    let twins = instance.tutti(&["suspend", "twin"]).expect(1);
    twins.says("2 jobs of yours are named \"twin\"").says(&format!("{first}, {second}"));
    instance.tutti(&["cancel", "none"]).expect(1).says("you have no job named \"none\"");
    assert_eq!(shown(&instance, "last")["job"], other);
    instance.tutti(&["cancel", "--now", &first.to_string(), "other"]).expect(0);
    instance.tutti(&["wait", "other", &first.to_string()]).expect(137);
    // One that lives comes before those that have ended.
    assert_eq!(shown(&instance, "twin")["job"], second);
    instance.tutti(&["cancel", "other"]).expect(1).says("that has not ended");
    // The latest is the latest, though it has ended.
    instance.tutti(&["cancel", "last"]).expect(1).says(&format!("job {other} has ended"));
    let listed = instance.tutti(&["ps", "--json", "twin"]).expect(0).json();
    assert_eq!((listed.as_array().unwrap().len(), &listed[0]["job"]), (1, &second.into()));
    let history = instance.tutti(&["history", "--json", "other"]).expect(0).json();
    assert_eq!(history["job"]["job"], other);
    // Jobs may share a name to be cancelled by it.
    let third = nap("twin");
    instance.tutti(&["cancel", "--now", "twin"]).expect(0);
    instance.tutti(&["wait", &second.to_string(), &third.to_string()]).expect(137);
}

#[test]
fn logs_follow_a_job_from_its_queue_to_its_end_and_exit_with_its_code() {
    let instance = Instance::new().up();
    instance.tutti(&["params", "rows=1"]).expect(0);
    let first = instance.submit_spinner(2);
    instance.wait_for_state(first, "running");
    fs::write(instance.work.join("out"), "of an earlier job\n").unwrap();
    let line = "echo begun; while [ ! -e go ]; do sleep 0.05; done; echo done; exit 3";
    let job =
        instance.submit(&["-J", "late", "-n", "2", "-o", "out", "sh", "-c", line]).to_string();
    instance.tutti(&["logs", &job]).expect(1).says("has no output yet").says("[T055]");
    let following = instance.start(&["logs", "-f", "late"]);
    eventually("that it waits", || following.err().contains("waiting for").then_some(()));
    instance.tutti(&["cancel", "--now", &first.to_string()]).expect(0);
    following.wait_for("begun\nbegun\n");
    let so_far = instance.tutti(&["logs", "last"]).expect(0).text();
    assert_eq!(so_far, "begun\nbegun\n");
    fs::write(instance.work.join("go"), "").unwrap();
    let done = following.wait().expect(3);
    assert_eq!(done.text(), "begun\nbegun\ndone\ndone\n");
    assert_eq!(instance.tutti(&["logs", "-n", "1", &job]).expect(0).text(), "done\n");
    assert_eq!(instance.tutti(&["logs", "-f", "-n", "0", &job]).expect(3).text(), "");
    instance.tutti(&["logs", "--rank", "1", &job]).expect(0).says("has lines of other ranks");
    instance.tutti(&["logs", "--rank", "2", &job]).expect(1).says("has no rank 2");
    fs::remove_file(instance.work.join("out")).unwrap();
    instance.tutti(&["logs", &job]).expect(1).says("there is no file").says("[T055]");
}

#[test]
fn logs_print_each_ranks_file_and_standard_error() {
    let instance = Instance::new().up();
    let line = "echo out $TUTTI_RANK; echo err $TUTTI_RANK >&2";
    let words = ["-n", "2", "-o", "o-%j-%r", "-e", "e-%j", "sh", "-c", line];
    let job = instance.submit(&words).to_string();
    instance.tutti(&["wait", &job]).expect(0);
    let logs =
        |args: &[&str]| instance.tutti(&[&["logs"], args, &[&job]].concat()).expect(0).text();
    assert_eq!(logs(&["--rank", "1"]), "out 1\n");
    let path = |rank: u32| instance.work.join(format!("o-{job}-{rank}")).display().to_string();
    assert_eq!(logs(&[]), format!("==> {} <==\nout 0\n\n==> {} <==\nout 1\n", path(0), path(1)));
    let errors = logs(&["--err"]);
    let mut errors: Vec<&str> = errors.lines().collect();
    errors.sort_unstable();
    assert_eq!(errors, ["err 0", "err 1"]);
    let line = |rank: u32, ranks: u32, error: bool, line: &str| {
        format!(r#"{{"job":{job},"rank":{rank},"ranks":{ranks},"error":{error},"line":"{line}"}}"#)
    };
    let json = |args: &[&str]| -> Vec<String> {
        let mut lines: Vec<String> = logs(args).lines().map(str::to_owned).collect();
        lines.sort_unstable();
        lines
    };
    assert_eq!(json(&["--json"]), [line(0, 1, false, "out 0"), line(1, 1, false, "out 1")]);
    assert_eq!(json(&["--json", "--err"]), [line(0, 2, true, "err 0"), line(0, 2, true, "err 1")]);
    // What is no file has no end.
    fs::remove_file(instance.work.join(format!("o-{job}-1"))).unwrap();
    nix::unistd::mkfifo(&instance.work.join(format!("o-{job}-1")), nix::sys::stat::Mode::S_IRUSR)
        .unwrap();
    instance.tutti(&["logs", "--rank", "1", &job]).expect(1).says("it is no regular file");
    instance.tutti(&["run", "true"]).expect(0);
    instance.tutti(&["logs", "last"]).expect(1).says("has no output file").says("[T055]");
}

#[test]
fn another_user_sees_what_ps_shows_and_no_output() {
    let instance = Instance::of_the_system().up();
    let job = instance.submit(&["-J", "mine", "-o", "out", "sleep", &instance.nap]).to_string();
    instance.wait_for_state(job.parse().unwrap(), "running");
    let other = |args: &[&str]| Running::start(instance.command_as(Some(65534), args)).wait();
    for _ in 0..2 {
        let seen = other(&["show", &job, "--json"]).expect(0).json()[0].clone();
        assert_eq!((&seen["name"], &seen["details"]), (&"mine".into(), &Value::Null));
        let text = other(&["show", &job]).expect(0).text();
        assert!(!text.contains(&instance.nap), "{text}");
        other(&["show", "--env", &job]).expect(1).says("belongs to").says("[T020]");
        other(&["logs", &job]).expect(1).says("belongs to").says("[T020]");
        other(&["show", "mine"]).expect(1).says("you have no job");
        // The same when it has ended.
        instance.tutti(&["cancel", "--now", &job]);
        instance.tutti(&["wait", &job]).expect(137);
    }
    // The journal has it, too, when no controller runs.
    instance.tutti(&["down"]).expect(0);
    let kept = shown(&instance, &job);
    assert_eq!(kept["details"]["command"], serde_json::json!(["sleep", instance.nap]));
    assert_eq!(instance.tutti(&["logs", &job]).expect(0).text(), "");
}

#[test]
fn root_reads_output_with_the_rights_of_the_jobs_owner() {
    let instance = Instance::of_the_system().up();
    let place = instance.work.join("theirs");
    fs::create_dir(&place).unwrap();
    std::os::unix::fs::chown(&place, Some(65534), Some(65534)).unwrap();
    let out = place.join("out");
    let output = out.to_str().unwrap();
    let words = ["submit", "--parsable", "-o", output, "sh", "-c", "umask 077; echo theirs"];
    let done = Running::start(instance.command_as(Some(65534), &words)).wait().expect(0);
    let job = done.text().trim().to_owned();
    instance.tutti(&["wait", &job]).expect(0);
    assert_eq!(instance.tutti(&["logs", &job]).expect(0).text(), "theirs\n");
    // Its owner leads the name elsewhere.
    let secret = instance.work.join("secret");
    fs::write(&secret, "of root\n").unwrap();
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
    fs::remove_file(&out).unwrap();
    std::os::unix::fs::symlink(&secret, &out).unwrap();
    let refused = instance.tutti(&["logs", &job]).expect(1).says("Permission denied");
    assert_eq!(refused.text(), "");
}

#[test]
fn a_live_job_shows_its_front_end_its_processors_and_what_each_node_gave_it() {
    let instance = Instance::new().up();
    let line = "while [ ! -e stop ]; do :; done";
    let front = instance.start(&["run", "-J", "front", "-n", "2", "sh", "-c", line]);
    let job = crate::harness::eventually("the job", || {
        instance.jobs().iter().find(|it| it["state"] == "running")?["job"].as_u64()
    });
    let node = instance.tutti(&["nodes", "--json"]).expect(0).json()[0]["name"].clone();
    let used = || {
        let live = shown(&instance, "front");
        assert_eq!((&live["front_end"], &live["used_on"][0]["node"]), (&node, &node), "{live}");
        live["used_on"][0]["cpu_ms"].as_u64().filter(|ms| *ms > 0)
    };
    crate::harness::eventually("processor time of the node", used);
    assert_eq!(shown(&instance, "front")["processors_in_use"], 2);
    let text = instance.tutti(&["show", "front"]).expect(0).text();
    assert!(text.contains("in use     2 processors"), "{text}");
    instance.tutti(&["suspend", "front"]).expect(0);
    instance.wait_for_state(job, "suspended");
    assert_eq!(shown(&instance, "front")["processors_in_use"], 0);
    instance.tutti(&["resume", "front"]).expect(0);
    fs::write(instance.work.join("stop"), "").unwrap();
    front.wait().expect(0);
    let ended = shown(&instance, &job.to_string());
    assert_eq!((&ended["front_end"], &ended["used_on"]), (&Value::Null, &serde_json::json!([])));
}

#[test]
fn a_name_with_line_ends_shows_as_one_line() {
    let instance = Instance::new().up();
    let name = "solver\n  state      ended, exit 0";
    let job = instance.submit(&["--hold", "-J", name, "-o", "/dev/null", "true"]).to_string();
    let is_forged = |line: &str| line.starts_with("  state      ended");
    let check = |verb: &str| {
        let text = instance.tutti(&[verb, &job]).expect(0).text();
        assert!(text.starts_with(&format!("job {job} (solver?  state ")), "{text}");
        assert!(!text.lines().any(is_forged), "{text}");
    };
    check("show");
    instance.tutti(&["cancel", &job]).expect(0);
    instance.tutti(&["wait", &job]).expect(143);
    check("history");
}

/// Checks a value against the part of JSON schema that the page uses.
pub(crate) fn check(root: &Value, schema: &Value, value: &Value, at: &str) {
    if let Some(place) = schema["$ref"].as_str() {
        let (file, place) = place.split_once('#').unwrap();
        if !file.is_empty() {
            let root = crate::schemas::schema(file);
            return check(&root, root.pointer(place).unwrap(), value, at);
        }
        return check(root, root.pointer(place).unwrap(), value, at);
    }
    if let Some(all) = schema["anyOf"].as_array() {
        let is_null = |schema: &&Value| schema["type"] == "null";
        let chosen = all.iter().find(|schema| is_null(schema) == value.is_null());
        return check(root, chosen.expect(at), value, at);
    }
    if let Some(all) = schema["enum"].as_array() {
        return assert!(all.contains(value), "{at}: {value}");
    }
    let found = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    let of_type = |wanted: &Value| wanted == found;
    let types = schema["type"].as_array();
    let fits = types.map_or_else(|| of_type(&schema["type"]), |types| types.iter().any(of_type));
    assert!(fits, "{at}: {value} is none of {}", schema["type"]);
    for (index, item) in value.as_array().into_iter().flatten().enumerate() {
        let of_item = schema["prefixItems"].get(index).unwrap_or(&schema["items"]);
        check(root, of_item, item, &format!("{at}[{index}]"));
    }
    let Some(fields) = value.as_object() else { return };
    if schema["additionalProperties"].is_object() {
        for (name, value) in fields {
            check(root, &schema["additionalProperties"], value, &format!("{at}.{name}"));
        }
        return;
    }
    assert_eq!(schema["additionalProperties"], false);
    for name in schema["required"].as_array().unwrap() {
        assert!(fields.contains_key(name.as_str().unwrap()), "{at} has no {name}");
    }
    for (name, value) in fields {
        let schema = schema["properties"].get(name);
        let schema = schema.unwrap_or_else(|| panic!("{at}: the schema has no {name:?}"));
        check(root, schema, value, &format!("{at}.{name}"));
    }
}

#[test]
fn json_of_jobs_validates_against_its_schema() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/jobs.schema.json");
    let schema: Value = serde_json::from_str(&fs::read_to_string(page).unwrap()).unwrap();
    let instance = Instance::new().up();
    instance.tutti(&["run", "-t", "1h", "true"]).expect(0);
    instance.tutti(&["run", "sh", "-c", "exit 3"]).expect(3);
    let job = instance.submit_spinner(1);
    instance.wait_for_state(job, "running");
    for (verb, args) in [
        ("ps", &["ps", "-al", "--json"][..]),
        ("history", &["history", "--json"]),
        ("show", &["show", "1-9", "--json"]),
        ("show", &["show", "last", "--env", "--json"]),
    ] {
        let json = instance.tutti(args).expect(0).json();
        assert!(!json.as_array().unwrap().is_empty());
        check(&schema, &schema["$defs"][verb], &json, verb);
    }
    instance.tutti(&["cancel", "--now", "last"]).expect(0);
}
