//! A site's own policy as a program: live, simulated, and when it fails.

use crate::cluster::Bed;
use crate::harness::{Instance, NOBODY, Running, command_line, eventually, processes, status_of};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

fn python() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../python")
}

/// A policy that does what jobs ask for by their parameters.
const ASKED: &str = r#"#!/usr/bin/env python3
import policy
import subprocess

class Asked(policy.Policy):
    places = True

    def decide(self):
        for job in self.line:
            what = job.args.get("what", "wait")
            if what == "go":
                self.start(job)
            elif what == "place":
                node = next(iter(self.nodes.values()))
                self.start(job, "new" if self.new_row else 1, [(node.number, node.processors[:1])])
            elif what == "no":
                self.decline(job, "not on a " + job.args["day"])
            elif what == "fork":
                subprocess.Popen(["sleep", job.args["nap"]], start_new_session=True)
                self.start(job)
            elif what == "raise":
                raise ValueError("a fault of the policy")
            elif what == "twice":
                order = {"order": "start", "job": job.number}
                self._orders += [order, order, {"order": "start", "job": 999}]

    def on_refused(self, job, reason):
        with open("refused", "a") as file:
            print(job, reason, file=file)

policy.run(Asked())
"#;

/// An instance of the system's with that policy in charge.
fn with_policy() -> Instance {
    let instance = Instance::of_the_system().up();
    let library = fs::read_to_string(python().join("tutti/policy.py")).unwrap();
    instance.script("policy.py", &library);
    let refused = instance.work.join("refused");
    let text = ASKED.replace("\"refused\"", &format!("{:?}", refused.display().to_string()));
    instance.script("asked.py", &text);
    instance.tutti(&["params", "policy=./asked.py"]).expect(0);
    wait_for_answers(&instance);
    instance
}

fn wait_for_answers(instance: &Instance) {
    eventually("the program answers", || {
        let params = instance.tutti(&["params", "--json"]).expect(0).text();
        params.contains("now it answers").then_some(())
    });
}

/// The process of the instance's program: other tests have one of the same name.
fn program(instance: &Instance, name: &str) -> i32 {
    let path = instance.work.join(name).display().to_string();
    eventually("the program runs", || {
        processes().into_iter().find(|pid| command_line(*pid).contains(&path))
    })
}

const OUT: [&str; 2] = ["-o", "/dev/null"];

fn submit(instance: &Instance, arg: &str) -> u64 {
    instance.submit(&[OUT[0], OUT[1], "--policy-arg", arg, "sleep", &instance.nap])
}

#[test]
fn a_live_program_starts_and_declines_jobs_and_its_orders_are_replayed() {
    let instance = with_policy();
    let pid = program(&instance, "asked.py");
    let uid = NOBODY.to_string();
    let uids = status_of(pid, "Uid").unwrap();
    assert!(uids.split_whitespace().all(|it| it == uid), "{uids}");
    // A job that the policy does not start waits, whatever is free.
    let waits = submit(&instance, "what=wait");
    let goes = submit(&instance, "what=go");
    let placed = submit(&instance, "what=place");
    instance.wait_for_state(goes, "running");
    instance.wait_for_state(placed, "running");
    let job = instance.job(waits);
    assert_eq!(job["state"], "queued");
    assert_eq!(job["reason"], "the site's policy program has not started it");
    let words = ["run", "--policy-arg", "what=no", "--policy-arg", "day=Sunday", "true"];
    instance.tutti(&words).expect(120).says("the site's policy declined it: not on a Sunday");
    // What is ordered twice, or about no job, is done once, and the program hears of it.
    let twice = submit(&instance, "what=twice");
    instance.wait_for_state(twice, "running");
    let refused = instance.work.join("refused");
    eventually("the refusals come back", || {
        let text = fs::read_to_string(&refused).unwrap_or_default();
        (text.contains(&format!("job {twice} is not in line"))
            && text.contains("999 job 999 is not in line"))
        .then_some(())
    });
    for word in ["urgency", "=7", "a b=7"] {
        instance.tutti(&["run", "--policy-arg", word, "true"]).expect(2);
    }
    // Without the program the built-in policy goes on, and it says so once.
    kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap();
    instance.wait_for_state(waits, "running");
    wait_for_answers(&instance);
    assert_eq!(instance.log().matches("the built-in policy goes on").count(), 1);
    for job in [waits, goes, placed, twice] {
        instance.tutti(&["cancel", "--now", &job.to_string()]).expect(0);
        instance.tutti(&["wait", &job.to_string()]).expect(137);
    }
    instance.tutti(&["params", "policy=gang"]).expect(0);
    fs::remove_file(instance.work.join("asked.py")).unwrap();
    // The journal is replayed to the same state without the program.
    instance.tutti(&["replay"]).expect(0);
    let replayed = instance.tutti(&["replay", "--list"]).expect(0);
    let text = replayed.text();
    assert!(text.contains(&format!("the policy program orders: job {goes} is to start")), "{text}");
}

#[test]
fn only_an_administrator_names_the_program() {
    let instance = Instance::of_the_system().up();
    instance.script("asked.py", ASKED);
    let set = ["params", "policy=./asked.py"];
    let refused = Running::start(instance.command_as(Some(NOBODY), &set)).wait().expect(1);
    refused.says("only root").says("[T020]");
    instance.tutti(&["params", "policy=./nosuch.py"]).expect(1).says("nosuch.py");
    instance.tutti(&["params", "policy_user=root"]).expect(1).says("name that first");
    let words = ["params", "policy=./asked.py", "policy_user=nosuch"];
    instance.tutti(&words).expect(1).says("there is no user nosuch");
    instance.tutti(&["params", "rows=3", "rows=4"]).expect(1).says("rows is set twice");
    let policy = instance.tutti(&["params", "policy"]).expect(0).text();
    assert!(policy.contains("gang"), "{policy}");
    let alone = instance.tutti(&["params", "policy=external"]).expect(0).text();
    assert!(alone.contains("there is no policy program"), "{alone}");
}

#[test]
fn what_a_program_has_started_ends_with_it() {
    let instance = with_policy();
    let nap = format!("{}7", instance.nap);
    let words = ["--policy-arg", "what=fork", "--policy-arg", &format!("nap={nap}"), "true"];
    let job = instance.submit(&[&OUT[..], &words].concat());
    instance.tutti(&["wait", &job.to_string()]).expect(0);
    let left = || processes().into_iter().any(|pid| command_line(pid) == ["sleep", &nap]);
    assert!(left(), "it runs beside the program");
    kill(Pid::from_raw(program(&instance, "asked.py")), Signal::SIGKILL).unwrap();
    eventually("nothing is left of it", || (!left()).then_some(()));
}

#[test]
fn a_stopped_program_is_late_and_no_request_waits_for_it() {
    let instance = with_policy();
    let pid = program(&instance, "asked.py");
    kill(Pid::from_raw(pid), Signal::SIGSTOP).unwrap();
    let job = submit(&instance, "what=wait");
    let begun = Instant::now();
    while instance.job(job)["state"] == "queued" {
        let asked = Instant::now();
        instance.tutti(&["ps"]).expect(0);
        assert!(asked.elapsed() < Duration::from_secs(3), "a request waited for the program");
        assert!(begun.elapsed() < Duration::from_secs(20), "the built-in policy does not go on");
    }
    let log = instance.log();
    assert!(log.contains("it has not answered within 1s; the built-in policy goes on"), "{log}");
    eventually("it is killed", || (!processes().contains(&pid)).then_some(()));
    instance.tutti(&["cancel", "--now", &job.to_string()]).expect(0);
}

#[test]
fn a_job_with_which_the_program_fails_is_left_to_the_built_in_policy() {
    let instance = with_policy();
    // It fails the program each time, so the program is never in charge for long with it.
    let bad = submit(&instance, "what=raise");
    instance.wait_for_state(bad, "running");
    wait_for_answers(&instance);
    assert!(instance.log().contains("ValueError: a fault of the policy"), "{}", instance.log());
    let waits = submit(&instance, "what=wait");
    let goes = submit(&instance, "what=go");
    instance.wait_for_state(goes, "running");
    assert_eq!(instance.job(waits)["state"], "queued");
    for job in [bad, waits, goes] {
        instance.tutti(&["cancel", "--now", &job.to_string()]).expect(0);
    }
}

#[test]
fn whatever_a_program_writes_jobs_start_and_requests_are_answered() {
    let instance = Instance::of_the_system().up();
    let greets = "#!/bin/sh\nread hello\necho '{\"protocol\":1}'\n";
    // The shell makes line ends of these.
    let says = |text: &str| format!("{greets}read l\nprintf '{text}'\n");
    let (twice, half) = (r#"{"round":1}\n{"round":1}\n"#, r#"{"round":1,"ord"#);
    let programs = [
        ("dies.sh", "#!/bin/sh\necho last words >&2\nexit 3\n".to_owned(), "it has ended"),
        ("half.sh", says(half), "it has ended"),
        ("garbage.sh", format!("{greets}while read l; do echo rubbish; done\n"), "not what"),
        ("waits.sh", says(r#"{"round":1,"until":{"free":-1}}\n"#), "not what"),
        ("twice.sh", says(twice) + "exec sleep 60\n", "without being asked"),
        ("flood.sh", format!("{greets}read l\nexec yes\n"), "without being asked"),
        (
            "huge.sh",
            format!("{greets}read l\nexec tr '\\0' x < /dev/zero\n"),
            "longer than 1024 KiB",
        ),
        ("shouts.sh", "#!/bin/sh\nyes >&2\n".to_owned(), "has not answered within 10s"),
        ("never.sh", format!("{greets}exec sleep 60\n"), "has not answered within 1s"),
        ("other.sh", says(r#"{"round":0}\n"#), "round 0"),
    ];
    for (name, text, says) in &programs {
        instance.script(name, text);
        instance.tutti(&["params", &format!("policy=./{name}")]).expect(0);
        let begun = Instant::now();
        instance.tutti(&["run", "-t", "1m", "true"]).expect(0);
        assert!(begun.elapsed() < Duration::from_secs(10), "{name} keeps jobs waiting");
        let is_why = |line: &str| line.contains(&format!("{name} failed: ")) && line.contains(says);
        eventually(name, || instance.log().lines().any(is_why).then_some(()));
    }
    assert!(instance.log().contains("last words"));
    // One that no user can execute is refused at once.
    let plain = instance.work.join("plain.sh");
    fs::write(&plain, greets).unwrap();
    instance.tutti(&["params", "policy=./plain.sh"]).expect(1).says("`chmod +x` lets it be");
    // One that its user can't execute says so to the administrator that named it.
    instance.script("closed.sh", greets);
    let closed = instance.work.join("closed.sh");
    fs::set_permissions(closed, fs::Permissions::from_mode(0o700)).unwrap();
    let named = instance.tutti(&["params", "policy=./closed.sh"]).expect(0).text();
    assert!(named.contains("policy_program was ") && named.contains("closed.sh now"), "{named}");
    eventually("it can't be executed", || {
        let shown = instance.tutti(&["params", "--json"]).expect(0).text();
        shown.contains("(can't be executed: Permission denied;").then_some(())
    });
    instance.tutti(&["params", "policy=gang"]).expect(0);
    let place = instance.work.display().to_string();
    let is_ours = |pid: &i32| command_line(*pid).iter().any(|word| word.starts_with(&place));
    eventually("no program is left", || processes().iter().all(|pid| !is_ours(pid)).then_some(()));
    // Each says so once, and what it wrote is cut.
    let log = instance.log();
    assert_eq!(log.matches("; the built-in policy goes on").count(), programs.len() + 1, "{log}");
    assert!(log.len() < 64 << 10, "{} bytes", log.len());
}

#[test]
fn a_program_that_is_too_large_is_ended_with_all_that_it_has_started() {
    let instance = Instance::of_the_system().up();
    let greets = "#!/bin/sh\nread hello\necho '{\"protocol\":1}'\n";
    let holds =
        |mib: u32| format!("python3 -c 'import time; x = b\"x\" * ({mib} << 20); time.sleep(600)'");
    let programs = [
        (
            "many.sh",
            "for i in $(seq 30); do sleep 600 & done; wait".to_owned(),
            "has more than 20 processes and threads (policy_processes)",
        ),
        (
            "large.sh",
            format!("for i in 1 2 3; do {} & done; wait", holds(40)),
            "have more than 96 MiB of memory (policy_memory)",
        ),
        ("one.sh", format!("exec {}", holds(400)), "MemoryError"),
    ];
    instance.tutti(&["params", "policy_memory=96M", "policy_processes=20", "policy_limit=1m"]);
    for (name, does, says) in programs {
        instance.script(name, &format!("{greets}{does}\n"));
        instance.tutti(&["params", &format!("policy=./{name}")]).expect(0);
        eventually(name, || instance.log().contains(says).then_some(()));
        instance.tutti(&["run", "-t", "1m", "true"]).expect(0);
        instance.tutti(&["params", "policy=gang"]).expect(0);
    }
    assert_eq!(instance.log().matches("; the built-in policy goes on").count(), 3);
    let is_left = |pid: &i32| command_line(*pid) == ["sleep", "600"] && is_nobodys(*pid);
    eventually("nothing is left", || processes().iter().all(|it| !is_left(it)).then_some(()));
    // Other limits hold at once, for a program that is started anew.
    instance.script("asks.sh", &format!("{greets}ulimit -d >&2; exit 3\n"));
    instance.tutti(&["params", "policy=./asks.sh", "policy_memory=64M"]).expect(0);
    eventually("the limit is said", || instance.log().contains("wrote: 65536").then_some(()));
    instance.tutti(&["params", "policy_memory=unlimited"]).expect(0);
    eventually("there is none", || instance.log().contains("wrote: unlimited").then_some(()));
    instance.tutti(&["params", "policy_memory=1M"]).expect(1).says("policy_memory");
    instance.tutti(&["params", "policy_processes=0"]).expect(1).says("policy_processes");
}

fn is_nobodys(pid: i32) -> bool {
    let uids = status_of(pid, "Uid").unwrap_or_default();
    uids.split_whitespace().all(|it| it == NOBODY.to_string())
}

/// A policy with a part on each node, which puts the job first that a user asks for.
const IN_PARTS: &str = r#"#!/usr/bin/env python3
import policy

class Host(policy.Policy):
    places = True

    def on_request(self, job):
        if job.args.get("first"):
            self.send(job.args["first"])

    def on_message(self, node, text):
        with open("said", "a") as file:
            print(node, text, file=file)

    def decide(self):
        node = next(iter(self.nodes.values()))
        for job in self.line:
            if not job.args:
                self.start(job, "new", [(node.number, node.processors[:1])])
                return

class OnNode(policy.NodePolicy):
    first = 0

    def on_message(self, text):
        if text == "die":
            raise ValueError("a fault of the part")
        self.first = int(text)
        self.send(f"{self.name} puts {text} first")

    def on_tasks_ended(self, job, count, ranks):
        self.send(f"{count} of {job} ended")

    def decide(self):
        for slot in self.slots:
            jobs = [it.job for it in slot.candidates]
            if self.first in jobs and jobs[0] != self.first:
                self.arrange(slot, [it for it in slot.candidates if it.job == self.first])

policy.run(Host(), OnNode())
"#;

/// Puts that policy into an instance's directory; gives where it writes what parts say.
fn put_in_parts(instance: &Instance) -> PathBuf {
    let library = fs::read_to_string(python().join("tutti/policy.py")).unwrap();
    instance.script("policy.py", &library);
    let said = instance.work.join("said");
    let text = IN_PARTS.replace("\"said\"", &format!("{:?}", said.display().to_string()));
    instance.script("parts.py", &text);
    said
}

#[test]
fn parts_on_all_nodes_of_a_cluster_hear_and_are_heard() {
    let bed = Bed::up(3, &[0]);
    let said = put_in_parts(&bed.audit);
    let path = bed.audit.work.join("parts.py").display().to_string();
    let (policy, part) = (format!("policy={path}"), format!("policy_node={path}"));
    bed.tutti(1, &["params", &policy, &part, "policy_user=root"]).expect(0);
    let params = || bed.tutti(1, &["params", "--json"]).expect(0).text();
    eventually("all parts answer", || params().contains("now 3 answer").then_some(()));
    eventually("so does the program", || params().contains("now it answers").then_some(()));
    let ask = ["submit", "--parsable", "--policy-arg", "first=7", OUT[0], OUT[1], "true"];
    let job = bed.tutti(2, &ask).expect(0).text();
    let says = |number: usize| format!(" n{number} puts 7 first");
    eventually("all have answered", || {
        let said = fs::read_to_string(&said).unwrap_or_default();
        (1..=3).all(|number| said.contains(&says(number))).then_some(())
    });
    bed.tutti(1, &["cancel", "--now", job.trim()]).expect(0);
    bed.tutti(1, &["params", "policy_node=none"]).expect(0);
    let is_part = |pid: &i32| command_line(*pid).contains(&path);
    let count = || processes().iter().filter(|pid| is_part(pid)).count();
    eventually("only the program at the controller is left", || (count() == 1).then_some(()));
    bed.tutti(1, &["params", "policy=gang"]).expect(0);
    eventually("no program is left", || (count() == 0).then_some(()));
}

#[test]
fn a_part_on_a_node_orders_its_timetable_until_it_fails() {
    let instance = Instance::of_the_system().up();
    let said = put_in_parts(&instance);
    instance.tutti(&["params", "policy_node=./parts.py"]).expect(1).says("name that first");
    let set = ["params", "policy=./parts.py", "policy_node=./parts.py", "quantum=100ms"];
    instance.tutti(&set).expect(0);
    let answers = || instance.tutti(&["params", "--json"]).expect(0).text();
    let wait_for_part =
        || eventually("the part answers", || answers().contains("now 1 answer").then_some(()));
    wait_for_part();
    // The part may answer before the program does.
    wait_for_answers(&instance);
    let path = instance.work.join("parts.py").display().to_string();
    let programs = || -> Vec<i32> {
        processes().into_iter().filter(|pid| command_line(*pid).contains(&path)).collect()
    };
    let uid = NOBODY.to_string();
    let uids = |pid: i32| status_of(pid, "Uid").unwrap_or_default();
    let is_no_ones = |pid: i32| uids(pid).split_whitespace().all(|it| it == uid);
    assert_eq!(programs().into_iter().filter(|pid| is_no_ones(*pid)).count(), 2);
    let jobs: Vec<u64> =
        (0..2).map(|_| instance.submit(&[OUT[0], OUT[1], "sleep", &instance.nap])).collect();
    for &job in &jobs {
        instance.wait_for_state(job, "running");
    }
    let node = instance.tutti(&["nodes", "--json"]).expect(0).json()[0]["name"].clone();
    let node = node.as_str().unwrap().to_owned();
    let first_of_slots = || -> Vec<u64> {
        let report = instance.tutti(&["nodes", "--timetable", &node, "--json"]).expect(0).json();
        let slots = report["slots"].as_array().unwrap().clone();
        slots.iter().filter_map(|it| it["candidates"][0]["job"].as_u64()).collect()
    };
    eventually("each has a slot", || (first_of_slots() == jobs).then_some(()));
    let first = |what: &str| submit(&instance, &format!("first={what}"));
    let mut asked = vec![first(&jobs[1].to_string())];
    eventually("one has both slots", || (first_of_slots() == [jobs[1]; 2]).then_some(()));
    let heard = |text: &str| {
        let what = format!("0 {text}");
        let said = || fs::read_to_string(&said).unwrap_or_default();
        eventually("the message comes", || said().contains(&what).then_some(()));
    };
    heard(&format!("{node} puts {} first", jobs[1]));
    // Without the part the built-in order holds, and the log says so once.
    asked.push(first("die"));
    eventually("each has a slot again", || (first_of_slots() == jobs).then_some(()));
    wait_for_part();
    let log = instance.log();
    assert_eq!(log.matches("; the built-in order holds").count(), 1, "{log}");
    assert!(log.contains("ValueError: a fault of the part"), "{log}");
    instance.tutti(&["cancel", "--now", &jobs[0].to_string()]).expect(0);
    heard(&format!("1 of {} ended", jobs[0]));
    for job in asked.iter().chain(&jobs[1..]) {
        instance.tutti(&["cancel", "--now", &job.to_string()]).expect(0);
    }
    instance.tutti(&["params", "policy=gang"]).expect(0);
    eventually("no program is left", || programs().is_empty().then_some(()));
    instance.tutti(&["replay"]).expect(0);
    let text = instance.tutti(&["replay", "--list"]).expect(0).text();
    assert!(text.contains(&format!("come the jobs {}", jobs[1])), "{text}");
}

fn example(name: &str) -> String {
    python().join("examples").join(name).display().to_string()
}

#[test]
fn the_examples_decide_live() {
    let instance = Instance::of_the_system().up();
    let run = |arguments: &[&str]| {
        let options = arguments.iter().flat_map(|it| ["--policy-arg", it]);
        let words: Vec<&str> = ["run"].into_iter().chain(options).chain(["true"]).collect();
        instance.tutti(&words)
    };
    for (name, part) in
        [("lottery.py", "none"), ("deadlines.py", "none"), ("shortest_here.py", "shortest_here.py")]
    {
        let part = if part == "none" { part.to_owned() } else { example(part) };
        let set = [format!("policy={}", example(name)), format!("policy_node={part}")];
        instance.tutti(&["params", &set[0], &set[1], "policy_user=root"]).expect(0);
        wait_for_answers(&instance);
        run(&["tickets=10"]).expect(0);
        if name == "deadlines.py" {
            run(&["deadline=60", "cpu=1"]).expect(0);
            run(&["deadline=1", "cpu=100"]).expect(120).says("a deadline would be missed by");
        }
    }
    let orders = instance.tutti(&["replay", "--list"]).expect(0).text();
    for job in [1, 2, 3, 5] {
        let order = format!("the policy program orders: job {job} is to start");
        assert!(orders.contains(&order), "{orders}");
    }
    assert!(!instance.log().contains("goes on"), "{}", instance.log());
}

#[test]
fn the_page_of_the_guide_leads_from_a_program_to_a_plot() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide/your-own-policy.md");
    let page = fs::read_to_string(page).unwrap();
    let program = page.split("```python\n").nth(1).unwrap().split("```").next().unwrap();
    let instance = Instance::new();
    let examples = instance.work.join("python/examples");
    fs::create_dir_all(&examples).unwrap();
    std::os::unix::fs::symlink(python().join("tutti"), instance.work.join("python/tutti")).unwrap();
    instance.script("python/examples/mine.py", program);
    let commands = page.replace("\\\n", " ");
    let commands: Vec<&str> = commands
        .lines()
        .filter(|line| line.starts_with("tutti sim") && line.contains("rows=1"))
        .collect();
    assert_eq!(commands.len(), 2, "{commands:?}");
    for command in commands {
        let words = command.replace("--jobs 5000", "--jobs 300");
        let words: Vec<&str> = words.split_whitespace().skip(1).collect();
        let done = instance.tutti(&words).expect(0).text();
        assert!(done.to_lowercase().contains("utilis"), "{done}");
    }
    let plot = fs::read_to_string(instance.work.join("waits.svg")).unwrap();
    assert!(plot.contains("mine.py") && plot.contains("space:easy"), "{plot}");
}

#[test]
fn the_examples_simulate_and_break_no_rule() {
    let instance = Instance::new();
    let model = ["--generate", "lublin", "--nodes", "16", "--jobs", "200", "--check", "--json"];
    let in_parts = format!("rows=4,policy-node={}", example("shortest_here.py"));
    for (name, settings, more) in [
        ("lottery.py", "rows=1", &[][..]),
        ("deadlines.py", "rows=1", &["--deadlines", "factor:4"]),
        ("shortest_here.py", &in_parts, &[]),
    ] {
        let policy = format!("{},{settings}", example(name));
        let words = [&["sim", "--policy", &policy][..], &model, more].concat();
        let first = instance.tutti(&words).expect(0);
        let report = first.json();
        assert_eq!(report[0]["submitted"], 200, "{name}: {report}");
        assert!(report[0]["jobs"].as_u64().unwrap() > 50, "{name}: {report}");
        assert!(report[0]["deadlines"]["late"].as_u64().is_none_or(|late| late == 0), "{report}");
        assert_eq!(instance.tutti(&words).expect(0).out, first.out, "{name} is the same again");
    }
    let wrong = ["sim", "--policy", "./nosuch.py", "--generate", "lublin", "--nodes", "4"];
    instance.tutti(&wrong).expect(1).says("nosuch.py");
    instance.script("dies.sh", "#!/bin/sh\necho what is this >&2\n");
    let dies = ["sim", "--policy", "./dies.sh", "--generate", "lublin", "--nodes", "4"];
    instance.tutti(&dies).expect(1).says("the policy program failed").says("what is this");
    assert!(!instance.dir.exists(), "no instance was started");
}
