//! `tutti-bench`, as `tutti bench` starts it: what it measures and what it refuses. How long
//! anything takes is not tested.

use crate::audit::cgroups_named;
use crate::harness::{Instance, PATIENCE, Running, eventually, needs_root};
use nix::sys::signal::Signal;
use serde_json::Value;
use std::path::PathBuf;

const QUICK: [&str; 6] = ["bench", "switch", "--quick", "--method", "freeze", "--processes"];

#[test]
#[ignore = "takes long: `tests/long e2e` runs it"]
fn switches_are_measured_beside_the_bare_cost_of_the_same_writes() {
    let instance = Instance::alone();
    let args = [&QUICK[..], &["3", "--json"]].concat();
    let report = instance.tutti(&args).expect(0).json();
    let rows = report["rows"].as_array().unwrap();
    let kinds: Vec<&Value> = rows.iter().map(|row| &row["kind"]).collect();
    assert_eq!(kinds, ["busy", "idle"]);
    for row in rows {
        assert_eq!((&row["processes"], &row["stragglers"]), (&3.into(), &0.into()), "{row}");
        assert!(row["bare_us"].as_u64() > Some(0) && row["switches"].as_u64() >= Some(3), "{row}");
        // That a switch took no time at all would mean that none was made.
        assert!(row["made"]["median_us"].as_u64() > Some(0), "{row}");
    }
    assert!(report["bare_missing"].is_null() && report["gaps"]["gaps"].as_u64() > Some(0));
}

/// As soon as there are groups, and when both have processes.
#[test]
fn a_measurement_that_is_terminated_leaves_no_group() {
    needs_root("a cgroup outside of a unit");
    let instance = Instance::alone();
    let args = ["bench", "switch", "--method", "freeze", "--processes", "100", "--kind", "idle"];
    for wants_members in [false, true] {
        let running = instance.start(&args);
        let name = format!("tutti-bench-{}", running.pid());
        let is_there = |group: &PathBuf| {
            let members = std::fs::read_to_string(group.join("b/cgroup.procs"));
            !wants_members || members.is_ok_and(|members| !members.is_empty())
        };
        eventually("groups of the bare cost", || {
            cgroups_named(&name).iter().any(is_there).then_some(())
        });
        running.signal(Signal::SIGTERM);
        running.wait().expect(128 + Signal::SIGTERM as i32);
        assert_eq!(cgroups_named(&name), Vec::<PathBuf>::new());
    }
}

#[test]
#[ignore = "takes long: `tests/long e2e` runs it"]
fn the_fixed_set_of_the_t3d_runs_under_three_schedulers() {
    let instance = Instance::alone();
    let running = instance.start(&["bench", "t3d", "--quick", "--json"]);
    let report = running.wait_within(PATIENCE * 10).expect(0).json();
    let rows = report["rows"].as_array().unwrap();
    let names: Vec<&Value> = rows.iter().map(|row| &row["scheduler"]).collect();
    assert_eq!(names, ["queue limits", "swapping", "classes"]);
    let work_s = report["work_s"].as_f64().unwrap();
    for row in rows {
        // Tasks nap: no schedule is shorter than the work, whatever the machine does.
        for what in ["batch_alone_s", "batch_s"] {
            assert!(row[what].as_f64().unwrap() > 0.9 * work_s, "{what}: {row}");
        }
        let response = row["interactive_response_s"].as_f64().unwrap();
        assert!(response > 0.0 && response < row["interactive_s"].as_f64().unwrap(), "{row}");
    }
}

#[test]
#[ignore = "takes long: `tests/long e2e` runs it"]
fn the_instance_of_a_measurement_ends_with_it_also_when_it_is_killed() {
    let instance = Instance::alone();
    let running = instance.start(&["bench", "t3d", "--quick"]);
    let directory = std::env::temp_dir().join(format!("tutti-t3d-{}", running.pid()));
    let name = directory.to_str().unwrap();
    let daemons = || {
        let lines = std::fs::read_dir("/proc").unwrap().flatten();
        let lines = lines.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
        lines.filter(|line| String::from_utf8_lossy(line).contains(name)).count()
    };
    eventually("its daemons", || (daemons() >= 3).then_some(()));
    running.signal(Signal::SIGKILL);
    running.wait().expect(137);
    eventually("their end", || (daemons() == 0 && !directory.exists()).then_some(()));
}

#[test]
#[ignore = "takes long: `tests/long e2e` runs it"]
fn the_page_and_top_with_hollow_nodes_are_measured() {
    needs_root("a head that trusts its members");
    let instance = Instance::alone();
    let args = ["bench", "faces", "--quick", "--json", "--part", "page,top"];
    let sizes = ["--jobs", "20", "--nodes", "4"];
    let running = instance.start(&[&args[..], &sizes].concat());
    let report = running.wait_within(PATIENCE * 5).expect(0).json();
    let figures = report.as_array().unwrap();
    let of = |what: &str| figures.iter().find(|figure| figure["what"] == what).unwrap();
    assert_eq!(of("page, first load")["reached"], true, "{report}");
    assert_eq!(of("page, first load: requests, one for each file")["measured"], "12");
    let drawn = of("top, 20 jobs, 4 nodes: redrawn after a key");
    assert!(drawn["measured"].as_str().unwrap().starts_with("median "), "{drawn}");
}

#[test]
fn orders_of_the_line_are_compared_on_a_trace_and_a_model() {
    let instance = Instance::alone();
    let data = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../trace/tests/data");
    let trace = data.join("kth-sp2-1996-2-cut.swf").display().to_string();
    let args = ["bench", "order", "--jobs", "150", "--json", &trace];
    let report = instance.tutti(&args).expect(0).json();
    let workloads = report["workloads"].as_array().unwrap();
    assert_eq!(workloads.len(), 2, "{report}");
    for workload in workloads {
        let rows = workload["rows"].as_array().unwrap();
        assert_eq!((rows.len(), &workload["jobs"]), (7, &150.into()));
        let mean = |name: &str| {
            let row = rows.iter().find(|row| row["scheduler"] == name).unwrap();
            row["wait_s"]["mean"].as_f64().unwrap()
        };
        // Jobs that pass the first shorten waits; turns shorten them more.
        assert!(mean("EASY") <= mean("FCFS"), "{workload}");
        assert!(mean("turns, users in turn (default)") <= mean("EASY"), "{workload}");
    }
    instance.tutti(&["bench", "order", "/nowhere.swf"]).expect(1).says("/nowhere.swf");
}

#[test]
fn without_a_compiler_what_it_needs_one_for_is_left_out_and_that_is_said() {
    let instance = Instance::alone();
    let mut command = instance.command(&[&QUICK[..], &["3", "--kind", "idle"]].concat());
    command.env("PATH", "/nowhere");
    let done = Running::start(command).wait().expect(0);
    let text = done.text();
    assert!(text.contains("No BARE cost of the same writes: there is no C compiler"), "{text}");
    assert!(text.contains("idle"), "{text}");
}

#[test]
fn more_busy_processes_than_the_machine_can_bear_are_refused() {
    let instance = Instance::new();
    let processors = std::thread::available_parallelism().unwrap().get();
    let many = (500 * processors + 1).to_string();
    let done = instance.tutti(&[&QUICK[..], &[&many, "--kind", "busy"]].concat()).expect(1);
    done.says("processes that are idle may be more");
    let hidden = ["bench", "processes", &many, "busy"];
    instance.tutti(&hidden).expect(1).says("processes that are idle may be more");
    let none = [&QUICK[..], &["0"]].concat();
    instance.tutti(&none).expect(1).says("--processes: 1 to ");
}

/// Starts a benchmark that must succeed, and gives its JSON.
fn measured(instance: &Instance, args: &[&str]) -> Value {
    let args = [&["bench", "--quick", "--json"], args].concat();
    instance.start(&args).wait_within(PATIENCE * 4).expect(0).json()
}

/// The value that each row of a table has under this name.
fn column<'a>(table: &'a Value, name: &str) -> Vec<&'a Value> {
    table.as_array().unwrap().iter().map(|row| &row[name]).collect()
}

#[test]
fn launches_are_measured_in_rounds_beside_plain_ones_and_hydras() {
    let report = measured(&Instance::new(), &["launch"]);
    for (what, contenders, rounds) in [
        ("one", &["plain fork, exec, wait", "tutti run", "mpiexec.hydra"][..], 5),
        ("eight", &["plain fork, exec, wait", "tutti run", "mpiexec.hydra"], 5),
        ("init", &["tutti run", "mpiexec.hydra"], 15),
    ] {
        assert_eq!(column(&report[what], "what"), contenders, "{what}");
        for times in column(&report[what], "rounds_us") {
            let times = times.as_array().unwrap();
            assert!(times.len() == rounds && times.iter().all(|time| time.as_u64() > Some(0)));
        }
    }
    for rate in ["run_per_s", "submit_per_s"] {
        assert!(report[rate].as_f64() > Some(0.0), "{rate}: {report}");
    }
}

#[test]
fn output_is_measured_plain_and_labelled_beside_hydras() {
    let report = measured(&Instance::new(), &["stdio"]);
    let plain = ["tutti run", "mpiexec.hydra", "no starter, lines mixed"];
    assert_eq!(column(&report["plain"], "what"), plain);
    assert_eq!(column(&report["labelled"], "what"), plain[..2]);
    for what in ["plain", "labelled"] {
        let rates = column(&report[what], "mb_per_s");
        assert!(rates.iter().all(|rate| rate.as_u64() > Some(0)), "{report}");
    }
}

#[test]
fn an_idle_instance_is_measured_daemon_by_daemon() {
    let report = measured(&Instance::new(), &["idle"]);
    let daemons = &report["daemons"];
    assert_eq!(column(daemons, "name"), ["supervisor", "controller", "agent", "keeper"]);
    assert!(column(daemons, "rss_kb").iter().all(|size| size.as_u64() > Some(0)), "{report}");
    assert!(column(daemons, "wakeups_per_s").iter().all(|rate| rate.is_f64()), "{report}");
}

#[test]
fn messages_to_all_nodes_are_measured_in_a_tree_and_where_all_are_the_heads_own() {
    let instance = Instance::new();
    // More than a head that trusts them would keep for itself.
    let nodes = ["tree", "--nodes", "6,20"];
    for (shape, fan_out) in [(&["--fan-out", "2"][..], Value::from(2)), (&["--star"], Value::Null)]
    {
        let report = measured(&instance, &[&nodes[..], shape].concat());
        assert_eq!(column(&report, "nodes"), [6, 20]);
        assert_eq!(column(&report, "fan_out"), [&fan_out; 2]);
        let is_flat = column(&report, "depth").iter().all(|depth| **depth == 1);
        assert_eq!(is_flat, fan_out.is_null(), "{report}");
        for took in ["message_us", "head_cpu_us", "node_cpu_ns"] {
            assert!(column(&report, took).iter().all(|it| it.as_u64() > Some(0)), "{report}");
        }
    }
    let both = ["bench", "tree", "--star", "--fan-out", "2"];
    instance.tutti(&both).expect(2).says("--fan-out");
}

#[test]
#[ignore = "takes long: `tests/long e2e` runs it"]
fn turns_of_an_mpi_program_are_measured_at_levels() {
    let levels = ["--part", "levels", "--levels", "1,2"];
    let args = [&["overhead", "--program", "ring", "--turns", "100ms"], &levels[..]].concat();
    let report = measured(&Instance::new(), &args);
    assert_eq!(column(&report["levels"], "program"), ["ring", "ring"]);
    assert_eq!(column(&report["levels"], "level"), [1, 2]);
    assert!(column(&report["levels"], "ratio").iter().all(|ratio| ratio.as_f64() > Some(0.0)));
    assert_eq!(report["slices"].as_array().unwrap().len(), 0, "{report}");
}

#[test]
fn turns_of_a_command_of_the_users_own_are_measured_in_slices_and_at_levels() {
    let instance = Instance::new();
    let tasks = std::thread::available_parallelism().unwrap().get() + 1;
    let command = "sh -c 'echo \"$0, $TUTTI_SIZE\" >>runs' 'two words'";
    let sizes = ["--tasks", &tasks.to_string(), "--slices", "10ms", "--levels", "2"];
    let report = measured(&instance, &[&["overhead", "--program", command], &sizes[..]].concat());
    assert_eq!(column(&report["slices"], "slice"), ["10ms"]);
    assert_eq!(column(&report["levels"], "program"), [command, command]);
    assert_eq!(column(&report["levels"], "level"), [1, 2]);
    let runs = std::fs::read_to_string(instance.work.join("runs")).unwrap();
    // Two one after the other, two in turns, two one after the other; one, two at once, one.
    let expected = vec![format!("two words, {tasks}"); 10 * tasks];
    assert_eq!(runs.lines().collect::<Vec<_>>(), expected);
}

#[test]
fn a_command_of_which_one_run_fails_is_not_measured_and_that_is_said() {
    let instance = Instance::new();
    let overhead = ["bench", "--quick", "overhead", "--levels", "2", "--program"];
    let with = |part: &str, script: &str| {
        let command = format!("sh -c '{script}'");
        instance.tutti(&[&overhead[..], &[&command, "--part", part]].concat()).expect(1)
    };
    // The others of a rank that has failed might wait for it for ever.
    let for_ever = format!("[ $TUTTI_RANK = 0 ] && exit 3; sleep {}", instance.nap);
    with("slices", &for_ever).says("2 at once").says("failed with exit code 3");
    with("levels", &for_ever).says("1 at once").says("failed with exit code 3");
    // One is right, and then one of two is wrong.
    let second = "[ $TUTTI_RANK != 0 ] || mkdir once || exit 4";
    with("levels", second).says("2 at once").says("failed with exit code 4");
    let overhead = ["bench", "overhead", "--tasks", "0"];
    instance.tutti(&overhead).expect(1).says("would run beside each other");
    instance.tutti(&["bench", "overhead", "--program", "x 'y"]).expect(1).says("unclosed quote");
}

#[test]
fn where_the_benchmarks_are_not_installed_that_is_said_and_what_to_do() {
    let instance = Instance::alone();
    let alone = instance.share(&instance.program);
    let mut command = std::process::Command::new(alone);
    command.args(["bench", "launch"]).env("PATH", "/nowhere");
    Running::start(command).wait().expect(1).says("cargo build --profile dist -p tutti-bench");
}
