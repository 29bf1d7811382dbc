//! `tutti sim`: workloads in, figures and files out; no instance is needed.

use crate::harness::Instance;
use serde_json::Value;
use std::fs;
use std::path::Path;

/// A cut of a real log.
fn kth() -> String {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../trace/tests/data");
    data.join("kth-sp2-1996-2-cut.swf").display().to_string()
}

/// A file in the place of this test alone.
fn file(instance: &Instance, name: &str) -> String {
    instance.work.join(name).display().to_string()
}

/// One with a text in it.
fn file_of(instance: &Instance, name: &str, text: &str) -> String {
    let file = file(instance, name);
    fs::write(&file, text).unwrap();
    file
}

#[test]
fn a_log_is_simulated_alike_each_time() {
    let instance = Instance::new();
    let (csv, swf) = (file(&instance, "jobs.csv"), file(&instance, "out.swf"));
    let mut args = vec!["sim", "--clean", "--policy", "space:fcfs", "--by", "size"];
    args.extend(["--jobs-csv", &csv, "--swf", &swf]);
    let trace = kth();
    args.push(&trace);
    let first = instance.tutti(&args).expect(0).says("left out by the filter: no run time");
    let (jobs, log) = (fs::read_to_string(&csv).unwrap(), fs::read_to_string(&swf).unwrap());
    assert!(first.text().contains("100 processors, space:fcfs"), "{}", first.text());
    assert_eq!(jobs.lines().next(), Some("job,submit,start,end,processors"));
    assert_eq!(jobs.lines().nth(1), Some("1,0,0,97225,56"));
    assert_eq!(jobs.lines().count(), 351);
    assert!(log.contains("; Acknowledge: Lars Malinowsky"), "the header stays");
    assert_eq!(instance.tutti(&args).expect(0).out, first.out);
    assert_eq!((fs::read_to_string(&csv).unwrap(), fs::read_to_string(&swf).unwrap()), (jobs, log));
    // What was simulated without turns is itself a workload, with the same run times.
    let again = ["sim", "--json", "--policy", "space:fcfs", &swf];
    let again = instance.tutti(&again).expect(0).json();
    assert_eq!(again[0]["jobs"], 350);
    assert!(!instance.dir.exists(), "no instance was started");
}

/// A file of the benchmarks' documentation.
fn document(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../docs/benchmarks")
        .join(name)
        .display()
        .to_string()
}

#[test]
fn placements_are_compared_on_hosts_of_several_kinds() {
    let instance = Instance::new();
    let (job, hosts) = (document("grm/monte-carlo.swf"), document("grm/hosts.txt"));
    let mut args = vec!["sim", "compare", &job, "--hosts", &hosts, "--bag", "--json"];
    args.extend(["--weights", "double=3,int=1", "--policy", "space,placement=round-robin"]);
    args.extend(["--policy", "space,placement=spare-cycles"]);
    args.extend(["--policy", "space,placement=low-load", "--policy", "space,placement=high-load"]);
    let reports = instance.tutti(&args).expect(0).json();
    let time = |index: usize| reports[index]["response_s"]["mean"].as_f64().unwrap();
    assert!((0..3).all(|index| time(index) > time(index + 1)), "{reports}");
    let text = fs::read_to_string(document("experiments.md")).unwrap();
    for (index, placement) in
        ["round-robin", "spare-cycles", "low-load", "high-load"].iter().enumerate()
    {
        let line = text.lines().find(|it| it.starts_with(&format!("| `{placement}` |"))).unwrap();
        let told = line.replace(',', "");
        assert!(told.contains(&format!("{:.1}", time(index))), "{line}: {}", time(index));
    }
    let wrong = file_of(&instance, "hosts.txt", "fast 1 64 1 1 1 1\n");
    args[4] = &wrong;
    instance.tutti(&args).expect(1).says("line 1: 7 columns instead of 8");
}

#[test]
fn policies_are_compared() {
    let instance = Instance::new();
    let trace = kth();
    let mut args = vec!["sim", "compare", &trace, "--clean", "--policy", "space:fcfs"];
    args.extend(["--policy", "gang,rows=3,quantum=60s"]);
    let text = instance.tutti(&args).expect(0).text();
    assert!(text.contains("space:fcfs ") && text.contains("gang,rows=3,quantum=60s "), "{text}");
    args.push("--json");
    let reports = instance.tutti(&args).expect(0).json();
    let mean = |index: usize| reports[index]["wait_s"]["mean"].as_f64().unwrap();
    assert!(mean(0) > mean(1), "turns shorten the wait: {reports}");
    assert_eq!(reports[0]["switches"], 0);
    let pictures = ["compare", "waits", "utilisation"].map(|what| {
        let picture = file(&instance, &format!("{what}.svg"));
        (format!("{what}={picture}"), picture)
    });
    pictures.iter().for_each(|(plot, _)| args.extend(["--plot", plot]));
    instance.tutti(&args).expect(0);
    for (_, picture) in &pictures {
        assert!(fs::read_to_string(picture).unwrap().contains("gang,rows=3,quantum=60s"));
    }
    assert_ne!(reports[1]["preemptions"], 0);
}

/// A slice of a trace: node, processor, job, begin and end in seconds, and its end in a word.
type Slice = (u64, u64, u64, u64, u64, String);

/// The slices of a trace for Perfetto, and the names of its processes.
pub(crate) fn slices_of(path: &str) -> (Vec<Slice>, Vec<String>) {
    let trace: Value = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let number = |value: &Value| value.as_u64().unwrap();
    let seconds = |value: f64| format!("{:.0}", value / 1e6).parse::<u64>().unwrap();
    let slice = |event: &Value| {
        let (begin, length) = (event["ts"].as_f64().unwrap(), event["dur"].as_f64().unwrap());
        let end = event["args"]["end"].as_str().unwrap().to_owned();
        let place = (number(&event["pid"]) - 1, number(&event["tid"]) - 1);
        let job = number(&event["args"]["job"]);
        (place.0, place.1, job, seconds(begin), seconds(begin + length), end)
    };
    let is_slice = |event: &&Value| event["ph"] == "X";
    let slices = events.iter().filter(is_slice).map(slice).collect();
    let processes = events.iter().filter(|event| event["name"] == "process_name");
    let names = processes.map(|event| event["args"]["name"].as_str().unwrap().to_owned());
    (slices, names.collect())
}

#[test]
fn timeline_of_a_simulation_has_the_turns_of_each_processor() {
    let instance = Instance::new();
    // Two jobs on all four processors, for 100 s each; a third comes later, on one.
    let jobs = "1 0 -1 100 4 -1 -1 4 -1 -1 1 1 1 -1 -1 -1 -1 -1\n\
                2 0 -1 100 4 -1 -1 4 -1 -1 1 1 1 -1 -1 -1 -1 -1\n\
                3 300 -1 50 1 -1 -1 1 -1 -1 1 1 1 -1 -1 -1 -1 -1\n";
    let trace = file_of(&instance, "trace.swf", jobs);
    let out = file(&instance, "t.json");
    let machine = ["--nodes", "2", "--processors-per-node", "2"];
    let mut args = [&["sim", trace.as_str()], &machine[..]].concat();
    args.extend(["--policy", "gang,quantum=30s", "--timeline", &out]);
    instance.tutti(&args).expect(0);
    let (slices, nodes) = slices_of(&out);
    assert_eq!(nodes, ["node0", "node1"]);
    let of = |node, processor| {
        let of_processor = move |it: &&Slice| (it.0, it.1) == (node, processor);
        slices.iter().filter(of_processor).cloned().collect::<Vec<_>>()
    };
    let on_first = of(0, 0);
    let turns: Vec<_> = on_first.iter().map(|it| (it.2, it.3, it.4, it.5.as_str())).collect();
    let both = [
        (1, 0, 30, "stopped"),
        (2, 30, 60, "stopped"),
        (1, 60, 90, "stopped"),
        (2, 90, 120, "stopped"),
        (1, 120, 150, "stopped"),
        (2, 150, 180, "stopped"),
        (1, 180, 190, "ended"),
        (2, 190, 200, "ended"),
    ];
    assert_eq!(turns[..8], both);
    assert_eq!(turns[8..], [(3, 300, 350, "ended")]);
    for (node, processor) in [(0, 1), (1, 0), (1, 1)] {
        let turns = of(node, processor);
        let turns: Vec<_> = turns.iter().map(|it| (it.2, it.3, it.4, it.5.as_str())).collect();
        assert_eq!(turns, both, "{node}:{processor}");
    }
    args.extend(["--horizon", "100s"]);
    instance.tutti(&args).expect(0);
    assert!(slices_of(&out).0.iter().any(|it| it.4 == 100 && it.5 == "runs"));
    for name in ["t.svg", "t.txt"] {
        let words = [&["sim", trace.as_str(), "--timeline", name], &machine[..]].concat();
        let refused = instance.tutti(&words).expect(1);
        refused.says(".json, and not .").says("--plot gantt=FILE");
    }
    let endless = file_of(&instance, "endless.swf", &jobs.replace(" 100 4", " 100000000 4"));
    let short = ["sim", endless.as_str(), "--policy", "gang,quantum=1s", "--timeline", &out];
    instance
        .tutti(&[&short, &machine[..]].concat())
        .expect(1)
        .says("more than 1000000 turns")
        .says("--horizon");
}

#[test]
fn models_make_workloads_from_a_seed() {
    let instance = Instance::new();
    let report = |args: &[&str]| {
        let args = [&["sim", "--json", "--jobs", "200"], args].concat();
        instance.tutti(&args).expect(0).json()[0].clone()
    };
    let poisson = "poisson:load=0.5,service=hyper,mean=1m,scv=9,size=1-8,estimates=2";
    for model in ["lublin", "lublin:types=batch", "t3d", "t3d-users:production=3", poisson] {
        let of = |seed: &str| report(&["--generate", model, "--seed", seed]);
        let figures: Value = of("1");
        assert_eq!(figures["jobs"], 200, "{model}");
        assert_eq!(figures, of("1"), "{model}");
        assert_ne!(figures, of("2"), "{model}");
    }
    let loaded = |load: &str| {
        let figures = report(&["--generate", "lublin", "--policy", "space:fcfs", "--load", load]);
        figures["makespan_s"].as_f64().unwrap()
    };
    assert!(loaded("0.1") > 1.9 * loaded("0.2"));
}

#[test]
fn what_is_wrong_with_a_trace_is_named_or_passed_over() {
    let instance = Instance::new();
    let good = "1 0 -1 30 4 -1 -1 4 60 -1 1 1 1 -1 -1 -1 -1 -1\n";
    let tail = "4 -1 -1 4 60 -1 1 1 1 -1 -1 -1 -1 -1\n";
    for (name, bad, says) in [
        ("letters", format!("2 5 -1 x {tail}"), "field 4 (run time) is 'x', not a number"),
        ("negative", format!("2 5 -1 -9 {tail}"), "the only negative number is -1"),
        ("untold", format!("2 5 -1 -1 {tail}"), "it has no run time (field 4)"),
        ("fields", "2 5\n".to_owned(), "2 fields instead of 18"),
        ("wide", good.replace("1 0 -1 30 4 -1 -1 4", "2 0 -1 30 5 -1 -1 5"), "--nodes"),
        ("order", format!("2 9 -1 5 {tail}3 5 -1 5 {tail}"), "--sort"),
        ("long", "1 ".repeat(1 << 20) + "\n", "longer than 65536 bytes"),
    ] {
        let trace = file_of(&instance, name, &format!("; MaxProcs: 4\n{good}{bad}"));
        let line = if name == "order" { "line 4" } else { "line 3" };
        instance.tutti(&["sim", &trace]).expect(1).says(&trace).says(line).says(says);
        let lenient = instance.tutti(&["sim", &trace, "--lenient", "--json"]).expect(0);
        let passed_over = &lenient.json()[0]["passed_over"];
        assert!(passed_over.as_array().is_some_and(|lines| !lines.is_empty()), "{name}");
    }
    let unknown = file_of(&instance, "size", good);
    instance.tutti(&["sim", &unknown]).expect(1).says("--nodes");
    let done = instance.tutti(&["sim", &unknown, "--nodes", "2", "--processors-per-node", "2"]);
    assert!(done.expect(0).text().contains("4 processors (2 nodes of 2)"));
    instance.tutti(&["sim"]).expect(1).says("--generate lublin");
    instance.tutti(&["sim", "--generate", "lublim"]).expect(1).says("there are lublin");
    let unknown = ["sim", "--generate", "t3d", "--policy", "spade"];
    instance.tutti(&unknown).expect(1).says("gang, space, classes, deadline, external or dhc");
    let cost = ["sim", "--generate", "t3d", "--switch-cost", "1s"];
    instance.tutti(&cost).expect(1).says("leaves nothing of a quantum");
}

/// Two users: one of 100 s at a time, and one that waits 20 s for its own result.
const LOOP: &str = "\
; MaxProcs: 1
1 0 -1 100 1 -1 -1 1 -1 -1 1 1 -1 -1 -1 -1 -1 -1
2 10 -1 30 1 -1 -1 1 -1 -1 1 2 -1 -1 -1 -1 -1 -1
3 40 -1 5 1 -1 -1 1 -1 -1 1 2 -1 -1 -1 -1 2 20
4 120 -1 7 1 -1 -1 1 -1 -1 1 1 -1 -1 -1 -1 1 20
";

#[test]
fn jobs_wait_for_those_that_they_name_if_asked_to() {
    let instance = Instance::new();
    let (trace, csv, swf) = (
        file_of(&instance, "loop.swf", LOOP),
        file(&instance, "jobs.csv"),
        file(&instance, "out.swf"),
    );
    let mut args = vec!["sim", &trace, "--policy", "space:fcfs", "--jobs-csv", &csv];
    instance.tutti(&args).expect(0);
    assert!(fs::read_to_string(&csv).unwrap().ends_with("3,40,130,135,1\n4,120,135,142,1\n"));
    args.extend(["--feedback", "--swf", &swf]);
    instance.tutti(&args).expect(0);
    // In the order in which they were handed in, with what they waited for.
    let jobs = fs::read_to_string(&csv).unwrap();
    assert!(jobs.ends_with("4,120,130,137,1\n3,150,150,155,1\n"), "{jobs}");
    let log = fs::read_to_string(&swf).unwrap();
    let lines = "4 120 10 7 1 -1 -1 1 -1 -1 1 1 -1 -1 -1 -1 1 20\n\
                 3 150 0 5 1 -1 -1 1 -1 -1 1 2 -1 -1 -1 -1 2 20\n";
    assert!(log.ends_with(lines), "{log}");
    let again = file(&instance, "again.csv");
    let again_args = ["sim", &swf, "--policy", "space:fcfs", "--feedback", "--jobs-csv", &again];
    instance.tutti(&again_args).expect(0);
    assert_eq!(fs::read_to_string(&again).unwrap(), jobs, "it is a workload of its own");
    args.extend(["--feedback-hours", "tue"]);
    instance.tutti(&args).expect(1).says("--begins");
    args.extend(["--begins", "mon 00:00"]);
    instance.tutti(&args).expect(0);
    let jobs = fs::read_to_string(&csv).unwrap();
    assert!(jobs.ends_with("4,120,130,137,1\n3,86400,86400,86405,1\n"), "{jobs}");
    let wrong = file_of(&instance, "wrong.swf", &LOOP.replace("-1 2 20", "-1 4 20"));
    let says = "line 4) is to come after job 4, which is not above it";
    instance.tutti(&["sim", &wrong, "--feedback"]).expect(1).says(says).says("--lenient");
    instance.tutti(&["sim", &wrong]).expect(0);
    let lenient = instance.tutti(&["sim", &wrong, "--feedback", "--lenient"]).expect(0);
    lenient.says("1 not held back");
}

#[test]
fn what_is_no_trace_is_not_asked_for_its_machine() {
    let instance = Instance::new();
    let none = "tells of a job; name a trace in the Standard Workload Format";
    for text in ["", "; a comment\n", "\n\n"] {
        let empty = file_of(&instance, "empty.swf", text);
        for options in [&[][..], &["--nodes", "4"], &["--lenient"], &["--clean"]] {
            let args = [&["sim", &empty], options].concat();
            instance.tutti(&args).expect(1).says(&empty).says(none);
        }
    }
    let letter = file_of(&instance, "letter.txt", "Dear Sir or Madam,\n");
    instance.tutti(&["sim", &letter]).expect(1).says("letter.txt, line 1: 4 fields instead of 18");
    instance.tutti(&["sim", &letter, "--lenient"]).expect(1).says(none);
}

/// Four jobs of ten seconds on a processor each, of two users: three of queue 3, one of queue 4.
const TRACE_WITH_QUEUES: &str = "\
; MaxProcs: 4
; Queue: 3 short
1 0 -1 10 1 -1 -1 1 20 -1 1 1 1 -1 3 1 -1 -1
2 0 -1 10 1 -1 -1 1 20 -1 1 1 1 -1 3 1 -1 -1
3 0 -1 10 1 -1 -1 1 20 -1 1 2 1 -1 3 1 -1 -1
4 0 -1 10 1 -1 -1 1 20 -1 1 1 2 -1 4 2 -1 -1
";

#[test]
fn queues_of_a_site_hold_in_simulations() {
    let instance = Instance::new();
    let trace = file_of(&instance, "queues.swf", TRACE_WITH_QUEUES);
    let site = "[params]\npolicy = \"space:easy\"\n[queue.short]\nuser_jobs = 1\n\
                users = [\"1\", \"2\"]\n[class.vip]\npriority = 9\n";
    let site = file_of(&instance, "site.toml", site);
    let csv = file(&instance, "jobs.csv");
    let starts = |options: &[&str]| {
        let fixed = ["sim", &trace, "--policy", "space:easy", "--jobs-csv", &csv];
        instance.tutti(&[&fixed[..], options].concat()).expect(0);
        let text = fs::read_to_string(&csv).unwrap();
        let column = |line: &str| line.split(',').nth(2).unwrap().to_owned();
        text.lines().skip(1).map(column).collect::<Vec<_>>()
    };
    assert_eq!(starts(&["--site", &site]), ["0", "0", "0", "0"], "no job is in a queue");
    let mapped = ["--site", &site, "--map", "queue=queue"];
    assert_eq!(starts(&mapped), ["0", "10", "0", "0"]);
    let all = ["--queue", "one:jobs=1", "--map", "partition:2=class:standby", "--map"];
    assert_eq!(starts(&[&all[..], &["all=queue:one"]].concat()), ["0", "10", "20", "30"]);
    let licences = ["--set", "resource.licence=2", "--job-resource", "production=licence"];
    assert_eq!(starts(&licences), ["0", "0", "10", "10"]);
    let words = ["--set", "queue.short.group_jobs=1", "--map", "queue:3=queue:short"];
    assert_eq!(starts(&words), ["0", "10", "20", "0"]);
    let none = ["sim", &trace, "--site", &site, "--map", "queue:9=queue:short"];
    let none = instance.tutti(&[&none[..], &["--map", "queue:3=queue:short"]].concat()).expect(0);
    assert_eq!(none.err.matches("--map ").count(), 1, "{}", none.err);
    none.says("--map queue:9=queue:short: no job fits it");
    for (options, says) in [
        (&["--map", "queue:3=queue:long"][..], "there is no queue long, and no other"),
        (&["--map", "queue:3"], "write FROM=TO"),
        (&["--queue", "short:jobs=0"], "no job could ever run"),
        (&["--set", "weight.1=0"], "from 1 to 1000"),
        (&["--job-resource", "licence", "--set", "resource.licence=0"], "licence"),
    ] {
        let command = [&["sim", trace.as_str()], options].concat();
        instance.tutti(&command).expect(1).says(says);
    }
    let wrong = file_of(&instance, "wrong.toml", "[queue.short]\n\njobs = \"x\"\n");
    instance.tutti(&["sim", &trace, "--site", &wrong]).expect(1).says("wrong.toml:3: jobs");
    // How alike the two users fare is among the figures.
    let shown = instance.tutti(&["sim", &trace, "--json"]).expect(0).json();
    assert_eq!(
        (&shown[0]["fairness"]["users"], &shown[0]["fairness"]["jain"]),
        (&2.into(), &1.0.into())
    );
}

#[test]
fn the_comparisons_of_the_t3d_are_one_command() {
    let instance = Instance::new();
    let short = ["sim", "t3d", "--horizon", "504h"];
    let shown = instance.tutti(&short).expect(0).text();
    for line in ["utilisation, week 3", "28.6 %", "38.2 %", "batch: mean response", "batch alone"] {
        assert!(shown.contains(line), "{line}: {shown}");
    }
    let runs = instance.tutti(&[&short[..], &["--json"]].concat()).expect(0).json();
    let figure = |run: usize, name: &str| runs[run][name].as_f64().unwrap();
    assert_eq!(runs[1]["scheduler"], "swapping (stand-in for DJM)");
    // With preemption more gets done, most of all in working hours, and no more at weekends.
    for preemptive in [1, 2] {
        assert!(figure(preemptive, "utilisation") > 1.15 * figure(0, "utilisation"), "{runs}");
        assert!(figure(preemptive, "working_hours") > 1.3 * figure(0, "working_hours"), "{runs}");
        assert!(figure(0, "weekends") < 0.2 && figure(preemptive, "weekends") < 0.2, "{runs}");
        assert!(figure(preemptive, "preemptions") > 100.0);
    }
    assert_eq!(figure(0, "preemptions"), 0.0);
    let weeks = runs[0]["utilisation_by_week"].as_array().unwrap();
    assert_eq!(weeks.len(), 3);
    let done: f64 = weeks.iter().map(|week| week.as_f64().unwrap() * 168.0).sum();
    let makespan_h = figure(0, "makespan_s") / 3600.0;
    assert!(
        (done / makespan_h - figure(0, "utilisation")).abs() < 1e-6,
        "{done} in {makespan_h} h"
    );
    // Of the fixed set interactive jobs are done sooner, and batch jobs pay little for it.
    let [alone, together] = [[3, 4, 5], [6, 7, 8]];
    assert_eq!((&runs[3]["jobs"], &runs[6]["jobs"]), (&16.into(), &48.into()));
    let interactive = together.map(|run| figure(run, "interactive_done_s"));
    assert!(interactive[1..].iter().all(|it| *it < 0.9 * interactive[0]), "{interactive:?}");
    for runs in [alone, together] {
        let [before, others @ ..] = runs.map(|run| figure(run, "batch_done_s"));
        assert!(others.iter().all(|it| it / before < 1.15), "{before} {others:?}");
    }
    for (option, value, says) in [
        ("--generate", "t3d", "t3d-users:production=20"),
        ("--stretch", "0.5", "no arrivals to stretch"),
        ("--begins", "mon 08:00", "leave out --begins"),
        ("--by", "size", "leave out --by"),
    ] {
        instance.tutti(&["sim", "t3d", option, value]).expect(1).says(says);
    }
    instance.tutti(&["sim", "--generate", "t3d", "--as-class", "a=b"]).expect(1).says("no class a");
}
