//! The command line itself: help, JSON, tables, messages.

use crate::harness::{Instance, Running, eventually, own_name};
use serde_json::Value;

/// All verbs, as `tutti --help` lists them.
fn verbs(help: &str) -> Vec<&str> {
    // A heading for each task, and below it a verb in each line.
    let lines = help.lines().filter_map(|line| line.strip_prefix("  "));
    lines.filter_map(|line| line.split(' ').next()).collect()
}

#[test]
fn every_verb_has_help_and_examples() {
    let instance = Instance::new();
    let all = instance.tutti(&["--help"]).expect(0).text();
    let verbs = verbs(&all);
    assert!(verbs.len() >= 28 && verbs.contains(&"access"), "{verbs:?}");
    for verb in verbs {
        let help = instance.tutti(&[verb, "--help"]).expect(0).text();
        assert!(help.contains("Usage: tutti ") && help.contains("\nExamples:\n"), "{verb}: {help}");
    }
    for hidden in ["controller", "agent", "keeper", "work"] {
        assert!(!all.contains(&format!("\n  {hidden} ")), "{hidden} is for the supervisor only");
    }
    let run = instance.tutti(&["run", "--help"]).expect(0).text();
    for code in ["119", "120", "121", "122", "123", "124", "125", "126", "127", "128+N"] {
        assert!(run.contains(code), "exit code {code} is not explained");
    }
    let version = instance.tutti(&["--version"]).expect(0).text();
    assert_eq!(version, format!("tutti {}\n", env!("CARGO_PKG_VERSION")));
    assert!(!instance.dir.exists());
}

#[test]
fn a_cluster_whose_name_is_none_is_not_taken_for_another() {
    let instance = Instance::new();
    let with = |cluster: &str, args: &[&str]| {
        let mut command = instance.command(args);
        command.env("TUTTI_CLUSTER", cluster).env_remove("TUTTI_DIR");
        Running::start(command).wait()
    };
    let long = "x".repeat(41);
    for cluster in ["lab/x", "..", "-x", "a b", "lab\n", &long] {
        for (args, code) in [(&["ps"][..], 1), (&["wait", "1"], 125), (&["doctor"], 1)] {
            let done = with(cluster, args).expect(code);
            let done = done.says("invalid name of a cluster").says("letters, digits");
            assert!(done.err.trim_end().ends_with("[T002]"), "{}", done.err);
        }
    }
    // The longest is no more than the paths of sockets can have; there is none of that name.
    let none = with(&long[..40], &["ps"]).expect(1).says("no instance");
    assert!(none.err.contains(&long[..40]), "{}", none.err);
}

/// The keys that each entry of a listing has.
#[track_caller]
fn check_keys(entries: &Value, keys: &[&str]) {
    let entries = entries.as_array().expect("a list");
    assert!(!entries.is_empty(), "nothing to look at");
    let mut keys = keys.to_vec();
    keys.sort_unstable();
    for entry in entries {
        let mut found: Vec<&str> = entry.as_object().unwrap().keys().map(String::as_str).collect();
        found.sort_unstable();
        assert_eq!(found, keys);
    }
}

/// The rules of a class, as JSON names them.
const CLASS_RULES: [&str; 18] = [
    "users",
    "share",
    "empty",
    "control",
    "priority",
    "wait",
    "do_not_disturb",
    "processors",
    "ipc",
    "jobs",
    "jobs_per_user",
    "slots",
    "slot_min",
    "regularity",
    "rows",
    "overrun",
    "memory",
    "after",
];

/// What `tutti nodes --json` has of each node.
const NODE_KEYS: [&str; 26] = [
    "name",
    "state",
    "drained",
    "sets",
    "processors",
    "processors_used",
    "memory_bytes",
    "memory_allocated_bytes",
    "jobs",
    "figures",
    "network",
    "load_averages_milli",
    "memory_free_bytes",
    "processes",
    "parent",
    "depth",
    "clock_error_ns",
    "clock_ahead_ns",
    "late_timetables",
    "external_load_milli",
    "features",
    "external_load",
    "branch_nodes",
    "branch_jobs",
    "devices",
    "swap",
];

#[test]
fn json_has_the_documented_keys() {
    let instance = Instance::new().up();
    instance.tutti(&["params", "quantum=5ms"]).expect(0);
    let jobs = [instance.submit_spinner(2), instance.submit_spinner(2)];
    for job in jobs {
        instance.wait_for_state(job, "running");
    }
    crate::harness::eventually("a switch", || (instance.switches().len() > 2).then_some(()));
    let json = |args: &[&str]| instance.tutti(args).expect(0).json();
    check_keys(
        &json(&["ps", "--json"]),
        &[
            "job",
            "array",
            "name",
            "user",
            "class",
            "former_class",
            "state",
            "reason",
            "code",
            "detail",
            "suspended",
            "tasks",
            "processors",
            "placement",
            "row",
            "rows",
            "share_percent",
            "age_s",
            "service_ms",
            "waited_ms",
            "suspended_ms",
            "usage",
            "deadline_s",
            "at_risk_s",
            "ends_s",
            "cpu_ms",
            "exit_code",
            "submitted",
            "time_limit_ms",
            "time_left_ms",
            "queue",
            "resources",
            "position",
            "wait",
            "swapped_bytes",
            "lent_processors",
            "behind",
            "first",
            "slots",
            "nodes_asked",
        ],
    );
    check_keys(&json(&["nodes", "--json"]), &NODE_KEYS);
    let params = json(&["params", "--json"]);
    check_keys(&params["params"], &["name", "value", "default", "range", "help"]);
    check_keys(&params["classes"], &[&["name"][..], &CLASS_RULES].concat());
    let switches = json(&["switches", "--json"]);
    let times = ["due_ns", "began_ns", "stopped_ns", "resumed_ns", "devices_ns", "spread_ns"];
    let keys = [&times[..], &["left", "yields", "came", "running", "stragglers"]].concat();
    check_keys(&switches[0][1], &keys);
    let doctor = json(&["doctor", "--json"]);
    check_keys(&Value::from(vec![doctor.clone()]), &["verdict", "summary", "findings"]);
    let keys = ["verdict", "topic", "nodes", "text", "detail", "fixes"];
    check_keys(&doctor["findings"], &keys);
    for job in jobs {
        instance.tutti(&["cancel", "--now", &job.to_string()]).expect(0);
    }
}

#[test]
fn a_node_can_be_measured_and_says_how_busy_it_is() {
    let instance = Instance::new().up();
    let node = || instance.tutti(&["nodes", "--json"]).expect(0).json()[0].clone();
    let fares = node();
    assert_eq!(fares["figures"], Value::Null);
    assert_eq!(fares["load_averages_milli"].as_array().map(Vec::len), Some(3), "{fares}");
    let (free, all) = (fares["memory_free_bytes"].as_u64(), fares["memory_bytes"].as_u64());
    assert!(free > Some(0) && free < all, "{fares}");
    assert!(fares["processes"].as_u64() > Some(3), "{fares}");
    instance.tutti(&["bench", "--quick", "node"]).expect(0);
    for figure in ["int", "float", "double", "memory"] {
        assert!(node()["figures"][figure].as_u64().unwrap() > 0, "{figure}");
    }
    let weights = ["run", "--weights", "int=1,double=3", "--policy-arg", "urgency=7", "true"];
    let said = instance.tutti(&weights).expect(0);
    let said = said.says("--weights has no effect with placement=packed");
    said.says("--policy-arg has no effect with policy=gang");
    instance.tutti(&["params", "placement=low-load"]).expect(0);
    let said = instance.tutti(&["run", "--weights", "int=1,double=3", "true"]).expect(0);
    assert!(!said.err.contains("no effect"), "{}", said.err);
    instance.tutti(&["run", "-n", "2", "true"]).expect(120).says("ask for at most 1");
    let wrong = ["run", "--weights", "speed=1", "true"];
    instance.tutti(&wrong).expect(2).says("there are int, float, double, memory");
}

#[test]
fn listings_of_nothing_are_empty_not_wrong() {
    let instance = Instance::new().up();
    assert_eq!(instance.tutti(&["ps"]).expect(0).text().lines().count(), 1, "the heading alone");
    assert_eq!(instance.tutti(&["ps", "--json"]).expect(0).text().trim(), "[]");
    let switches = instance.tutti(&["switches", "--json"]).expect(0).json();
    assert!(switches.as_array().unwrap().iter().all(|node| node[1] == Value::Array(Vec::new())));
    instance.tutti(&["switches"]).expect(0);
}

#[test]
fn a_listing_shows_what_was_asked_for() {
    let instance = Instance::new().up();
    instance.tutti(&["run", "-J", "a-name", "true"]).expect(0);
    let job = instance.submit(&["-o", "/dev/null", "sleep", &instance.nap]);
    instance.wait_for_state(job, "running");
    let lines = |args: &[&str]| instance.tutti(args).expect(0).text().lines().count();
    assert_eq!((lines(&["ps"]), lines(&["ps", "--all"]), lines(&["ps", "1"])), (2, 3, 2));
    assert_eq!((lines(&["ps", "-u", &own_name()]), lines(&["ps", "-u", "nobody"])), (2, 1));
    assert!(instance.tutti(&["ps", "1"]).text().contains("exit 0: completed"));
    let later = instance.submit(&["-o", "/dev/null", "sh", "-c", "exit 3"]);
    instance.tutti(&["wait", &later.to_string()]).expect(3);
    let failed = instance.tutti(&["ps", &later.to_string()]).expect(0).text();
    assert!(failed.contains("exit 3") && !failed.contains("completed"), "{failed}");
    let numbers: Vec<Value> = instance.jobs().iter().map(|shown| shown["job"].clone()).collect();
    assert_eq!(numbers, [1, job, later], "those that ended stand among those that have not");
    // What goes to no terminal is as wide as it likes, unless its width is set.
    let widest = |columns: Option<&str>| {
        let mut command = instance.command(&["ps", "--all"]);
        columns.map(|columns| command.env("COLUMNS", columns));
        let text = Running::start(command).wait().expect(0).text();
        text.lines().map(|line| line.chars().count()).max().unwrap()
    };
    assert!(widest(Some("50")) <= 50 && widest(None) > 60 && widest(Some("x")) > 60);
    // Of ranges, those that are there.
    assert_eq!(
        (lines(&["ps", "1-2"]), lines(&["ps", "2-9", "1"]), lines(&["ps", "3-3"])),
        (3, 4, 2)
    );
    assert_eq!((lines(&["history", "1-9"]), lines(&["history", "3", "1"])), (3, 3));
    let swf = instance.work.join("one.swf");
    instance.tutti(&["history", "1", "--swf", swf.to_str().unwrap()]).expect(0).says("wrote 1 job");
    let history = instance.tutti(&["history", "2-3", "--json"]).expect(0).json();
    assert_eq!((history.as_array().unwrap().len(), &history[0]["job"]), (1, &Value::from(3)));
    for verb in ["ps", "history"] {
        let none = instance.tutti(&[verb, "1", "4-9"]).expect(1);
        none.says("there is no job from 4 to 9").says("[T021]");
    }
    for verb in ["ps", "history", "wait", "cancel"] {
        instance.tutti(&[verb, "1,2"]).expect(2).says("write several as words of their own");
    }
    instance.tutti(&["cancel", &job.to_string()]).expect(0);
    instance.tutti(&["run", "-np", "4", "true"]).expect(2).says("there is no -np; write -n N");
    instance.tutti(&["submit", "-J", " ", "true"]).expect(2).says("the name is empty");
}

#[test]
fn all_jobs_can_be_waited_for() {
    let instance = Instance::new().up();
    instance.tutti(&["wait", "--all"]).expect(125).says("no job to wait for").says("[T029]");
    let own = own_name();
    for words in [&["wait", "--all"][..], &["wait", "--user", &own]] {
        // It counts whether it ends while it is waited for, or before.
        let job = instance.submit(&["-o", "/dev/null", "sleep", &instance.nap]);
        let waiting = instance.start(words);
        instance.tutti(&["cancel", "--now", &job.to_string()]).expect(0);
        let ended = format!("job {job} ended: cancelled");
        waiting.wait().expect(137).says(&ended);
        instance.tutti(words).expect(137).says(&ended);
    }
    // What had a front end was reported by that.
    instance.tutti(&["run", "sh", "-c", "exit 140"]).expect(140);
    instance.tutti(&["wait", "--all"]).expect(137);
    instance.tutti(&["wait", "--all", "1"]).expect(2);
    instance.tutti(&["wait", "--user", "no-such-user"]).expect(125).says("there is no user");
}

#[test]
fn a_broken_pipe_is_no_error() {
    let instance = Instance::new().up();
    for line in [
        "tutti ps | head -n 0",
        "tutti params | head -n 1",
        "tutti --help | head -n 1",
        "tutti run --help | head -n 0",
        "tutti demo --length 1ms | head -n 0",
    ] {
        for _ in 0..5 {
            let done = instance.shell(line).expect(0);
            assert_eq!(done.err, "", "{line}");
        }
    }
}

#[test]
fn a_message_that_nobody_can_read_ends_nothing() {
    let instance = Instance::new().up();
    for to in ["2>/dev/full", "2>&-"] {
        instance.shell(&format!("tutti run -n 2 no-such-program {to}")).expect(127);
        instance.shell(&format!("tutti cancel 99 {to}")).expect(1);
    }
    instance.shell("tutti ps >/dev/full").expect(1).says("No space left");
}

/// A job may be named anything, as may its program: a user that asks for it, root too, sees no more
/// than that.
#[test]
fn what_users_name_gives_no_terminal_orders() {
    let instance = Instance::new().up();
    let name = "a\u{1b}[31m\u{9b}2J\u{7f}\u{202e}b";
    let is_harmless = |text: &str| !text.contains(['\u{1b}', '\u{9b}', '\u{7f}', '\u{202e}']);
    let none = instance.tutti(&["submit", &format!("/{name}")]).expect(1);
    assert!(none.err.contains("/a?[31m?2J??b") && is_harmless(&none.err), "{:?}", none.err);
    instance.submit(&["-J", name, "-o", "/dev/null", "true"]);
    instance.tutti(&["wait", "1"]).expect(0);
    let lasts = instance.submit(&["-J", name, "-o", "/dev/null", "sleep", &instance.nap]);
    instance.wait_for_state(lasts, "running");
    let verbs: [&[&str]; 7] = [
        &["ps", "--all"],
        &["ps", "--all", "--json"],
        &["history"],
        &["history", "--json"],
        &["history", "1"],
        &["history", "--json", "1"],
        &["top", "--json", "-n", "1"],
    ];
    for verb in verbs {
        let text = instance.tutti(verb).expect(0).text();
        assert!(text.contains("[31m") && is_harmless(&text), "{verb:?}: {text:?}");
    }
    let told = instance.tutti(&["history", "--json"]).expect(0).json();
    assert_eq!(told[0]["name"], name);
}

#[test]
fn a_job_that_does_not_exist_is_named() {
    let instance = Instance::new().up();
    for verb in ["cancel", "suspend", "resume"] {
        instance.tutti(&[verb, "99"]).expect(1).says("there is no job 99");
    }
    instance.tutti(&["signal", "TERM", "99"]).expect(1).says("there is no job 99");
    instance.tutti(&["signal", "FOO", "99"]).expect(2).says("\"FOO\" is no signal").says("[T001]");
    instance.tutti(&["wait", "99"]).expect(125).says("there is no job 99");
    instance.tutti(&["ps", "99"]).expect(1).says("there is no job 99");
    instance.tutti(&["suspend", "nonsense"]).expect(1).says("you have no job named");
    instance.tutti(&["suspend", "1.x"]).expect(2).says("JOB.RANK/PID");
    // Those that exist are dealt with all the same.
    let job = instance.submit(&["-o", "/dev/null", "sleep", &instance.nap]);
    instance.wait_for_state(job, "running");
    instance.tutti(&["cancel", "99", &job.to_string()]).expect(1).says("there is no job 99");
    instance.tutti(&["wait", &job.to_string()]).expect(143);
}

#[test]
fn some_hours_have_parameters_of_their_own() {
    let instance = Instance::new().up();
    let params = |words: &[&str]| instance.tutti(&[&["params"], words].concat());
    let rows = || {
        let json = params(&["--json"]).expect(0).json();
        let all = json["params"].as_array().unwrap().clone();
        all.iter().find(|param| param["name"] == "rows").unwrap()["value"].clone()
    };
    let shown = params(&["--during", "mon-sun", "rows=9"]).expect(0).text();
    assert!(shown.lines().any(|line| line.starts_with("mon-sun  yes  rows=9")), "{shown}");
    assert_eq!(rows(), "9");
    let shown = params(&["rows=7"]).expect(0).text();
    assert_eq!(shown, "rows stays 9 during mon-sun; at other hours, what you set holds\n");
    params(&["--during", "mon-sun", "--class", "standby", "share=5%"]).expect(0);
    let json = params(&["--json"]).expect(0).json();
    check_keys(&json["periods"], &["period", "now", "settings"]);
    assert_eq!(json["periods"][0]["settings"], serde_json::json!(["rows=9", "standby share=5%"]));
    params(&["--during", "mon-sun", "--forget"]).expect(0);
    assert_eq!(rows(), "7");
    let wrong = params(&["--during", "mon-fry", "rows=9"]).expect(1).err;
    assert!(wrong.contains("days are mon, tue"), "{wrong}");
    let wrong = params(&["--during", "mon", "rows=0"]).expect(1).err;
    assert!(wrong.contains("1 to 1024"), "{wrong}");
}

#[test]
fn a_change_is_shown_with_what_was_before() {
    let instance = Instance::new().up();
    let set = |words: &[&str]| instance.tutti(&[&["params"], words].concat());
    assert_eq!(
        set(&["quantum=50ms", "rows=4"]).expect(0).text(),
        "quantum was 100ms and is 50ms now\nrows is 4, as before\n"
    );
    set(&["quantum=5"]).expect(1).says("quantum=5 has no unit; write 5ms or 5s");
    set(&["idle_exit=0"]).expect(0);
    let none = set(&["--class", "none-such"]).expect(1);
    none.says("benchmark, interactive, production, standby").says("[T034]");
    let rules = set(&["--class", "standby"]).expect(0).text();
    assert_eq!(rules.lines().filter(|line| !line.starts_with(' ')).count(), 19, "{rules}");
    let text = set(&["--class", "mine", "share=70%"]).expect(0).text();
    let slip = "if that is a slip, `tutti params --class mine --forget` removes it";
    assert_eq!(text, format!("class mine: new; {slip}\nclass mine: share is 70%\n"));
    set(&["--class", "standby", "share=40%"]).expect(1).says("at most 30%");
    for name in ["\u{1b}[31m", "", "a b", "+a", &"a".repeat(300)] {
        set(&["--class", name, "share=1%"]).expect(1).says("can't be a name");
    }
    set(&["--during", "sat,sun", "--class", "mine", "share=30%"]).expect(0);
    let class = "class benchmark: the other classes have 30%";
    set(&["--class", "benchmark", "share=30%"]).expect(0);
    set(&["--during", "sat,sun", "--class", "benchmark", "share=71%"]).expect(1).says(class);
}

#[test]
fn a_job_that_gets_no_time_since_others_have_all_of_it_says_so() {
    let instance = Instance::new().up();
    let set = |class: &str, share: &str| {
        instance.tutti(&["params", "--class", class, share]).expect(0).text()
    };
    set("mine", "share=60%");
    let all = set("other", "share=40%");
    assert!(all.contains("jobs of benchmark, interactive, production, standby run only"), "{all}");
    let spin = ["-n", "2", "-o", "/dev/null", "--class", "mine", "sh", "-c", "while :; do :; done"];
    let busy = instance.submit(&spin).to_string();
    let waits = instance.submit(&["-n", "2", "-o", "/dev/null", "true"]);
    eventually("the reason is shown", || {
        let reason = instance.job(waits)["reason"].as_str().unwrap().to_owned();
        reason.contains("its class has no share").then_some(())
    });
    instance.tutti(&["cancel", "--now", &busy]).expect(0);
    instance.tutti(&["wait", &waits.to_string()]).expect(0);
}

#[test]
fn run_says_that_it_does_not_heed_the_options_of_a_script() {
    let instance = Instance::new().up();
    instance.script("job", "#!/bin/sh\n#TUTTI -n 2\necho it ran\n");
    let done =
        instance.tutti(&["run", "./job"]).expect(0).says("#TUTTI and #SBATCH lines of ./job");
    assert_eq!(done.text(), "it ran\n");
    instance.script("job", "#!/bin/sh\necho it ran\n");
    assert_eq!(instance.tutti(&["run", "./job"]).expect(0).err, "");
}

#[test]
fn verbs_without_an_instance_say_how_to_start_one() {
    let instance = Instance::new();
    for verb in [&["ps"][..], &["nodes"], &["params"], &["switches"], &["cancel", "1"]] {
        let done = instance.tutti(verb).expect(1).says("tutti up");
        assert!(!done.err.contains("os error"), "{}", done.err);
        assert!(done.err.contains(instance.dir.to_str().unwrap()), "{}", done.err);
    }
    instance.tutti(&["wait", "1"]).expect(125).says("tutti up");
    assert!(instance.tutti(&["doctor"]).text().contains("none runs"));
    assert!(instance.tutti(&["down"]).expect(0).text().contains("no instance runs"));
}

#[test]
fn parameters_and_rules_are_shown_by_name() {
    let instance = Instance::new().up();
    let shown = instance.tutti(&["params", "quantum", "rows"]).expect(0).text();
    assert!(shown.contains("\n    The length of a slot"), "{shown}");
    assert!(shown.lines().all(|line| line.len() <= 110), "{shown}");
    let lines: Vec<&str> = shown.lines().filter(|line| !line.starts_with(' ')).collect();
    let names = |line: &&str| line.split_whitespace().next().unwrap_or_default().to_owned();
    let mut found: Vec<String> = lines.iter().map(names).collect();
    found.retain(|name| ["quantum", "rows", "lead", "class"].contains(&name.as_str()));
    assert_eq!(found, ["quantum", "rows"], "{shown}");
    let shown = instance.tutti(&["params", "quantum", "--json"]).expect(0).json();
    assert_eq!(shown["params"].as_array().unwrap().len(), 1, "{shown}");
    let shown = instance.tutti(&["params", "--class", "production", "share"]).expect(0).text();
    assert!(shown.contains("share") && !shown.contains("priority"), "{shown}");
    let wrong = |words: &[&str]| instance.tutti(&[&["params"], words].concat()).expect(1);
    wrong(&["quantm"]).says("there is no \"quantm\"; there are quantum, rows,").says("[T002]");
    wrong(&["quantum", "5ms"]).says("there is no \"5ms\"; to set quantum write quantum=5ms");
    wrong(&["quantum", "rows", "ledd"]).says("there is no \"ledd\"; there are quantum, rows,");
    wrong(&["quantm", "rows"]).says("there is no \"quantm\"; there are quantum, rows,");
    instance.tutti(&["params", "quantum", "rows=2"]).expect(1).says("sets nothing").says("[T002]");
    instance.tutti(&["params", "lead=banana"]).expect(1).says("lead: ");
}
