//! Which process descends from which, as `tutti ps --tree` shows it.

use crate::harness::{
    Instance, NOBODY, Running, eventually, needs_root, player, stands, status_of,
};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

/// The processes of a job's only task.
fn tree(instance: &Instance, target: &str) -> Vec<Value> {
    let tasks = instance.tutti(&["ps", "--tree", "--json", target]).expect(0).json();
    let tasks = tasks.as_array().unwrap();
    assert_eq!(tasks.len(), 1, "{tasks:?}");
    tasks[0]["processes"].as_array().unwrap().clone()
}

/// What a process is: the last word of its command.
fn named<'a>(processes: &'a [Value], end: &str) -> Option<&'a Value> {
    processes.iter().find(|it| it["command"].as_str().unwrap().ends_with(end))
}

/// A shell below which another shell has made an orphan: a sleep whose parents have ended.
const ORPHANS: &str = "sh -c 'sh -c \"sleep $NAP & true\"; echo up; read x; :'; read y; :";

#[test]
fn trees_are_those_of_jobs_that_are_named() {
    let instance = Instance::new().up();
    instance.tutti(&["ps", "--tree"]).expect(1).says("`tutti ps` lists the jobs");
}

#[test]
fn orphans_are_shown_below_their_nearest_living_ancestor() {
    let instance = Instance::new().up();
    let mut running = instance.start_typing(&["run", "sh", "-c", ORPHANS]);
    running.wait_for("up");
    let processes = tree(&instance, "1");
    let (root, inner) = (&processes[0], &processes[1]);
    let sleep = named(&processes, &instance.nap).unwrap();
    assert!(root["parent"].is_null() && inner["parent"] == root["pid"], "{processes:?}");
    assert_eq!(sleep["parent"], inner["pid"], "{processes:?}");
    let sleeper = i32::try_from(sleep["pid"].as_i64().unwrap()).unwrap();
    assert_ne!(status_of(sleeper, "PPid"), Some(inner["pid"].to_string()), "no orphan");
    let drawn = instance.tutti(&["ps", "--tree", "1"]).expect(0).text();
    assert!(drawn.starts_with("1.0 on "), "{drawn}");
    assert!(drawn.contains(&format!("   \u{2514}\u{2500} sleep {}", instance.nap)), "{drawn}");
    // A part of it: from the inner shell on.
    let part = tree(&instance, &format!("1.0/{}", inner["pid"]));
    assert_eq!(part.len(), 2, "{part:?}");
    // When that ends, it goes to the one above.
    running.type_in(b"\n");
    eventually("a sleep below the root", || {
        let processes = tree(&instance, "1");
        (processes.len() == 2 && processes[1]["parent"] == processes[0]["pid"]).then_some(())
    });
    running.type_in(b"\n");
    running.wait().expect(0);
    instance.tutti(&["ps", "--tree", "1"]).expect(1).says("job 1 has ended");
}

#[test]
fn or_at_the_top_if_that_is_wanted() {
    let instance = Instance::new().up();
    instance.tutti(&["params", "orphans=task"]).expect(0);
    let mut running = instance.start_typing(&["run", "sh", "-c", ORPHANS]);
    running.wait_for("up");
    let processes = tree(&instance, "1.0");
    assert!(named(&processes, &instance.nap).unwrap()["parent"].is_null(), "{processes:?}");
    running.type_in(b"\n\n");
    running.wait().expect(0);
}

#[test]
fn the_tree_of_an_earlier_agent_is_known_to_the_next() {
    let instance = Instance::new().up();
    let mut running = instance.start_typing(&["run", "sh", "-c", ORPHANS]);
    running.wait_for("up");
    let agent = instance.daemon("agent");
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(agent), nix::sys::signal::Signal::SIGKILL)
        .unwrap();
    let processes = eventually("an agent that knows the tree", || {
        let done = instance.tutti(&["ps", "--tree", "--json", "1"]);
        let tasks = (done.code == 0).then(|| done.json())?;
        tasks[0]["processes"].as_array().filter(|all| all.len() == 3).cloned()
    });
    // What made the sleep is not known any more; that it descends from the root is certain.
    let sleep = named(&processes, &instance.nap).unwrap();
    assert_eq!(sleep["parent"], processes[0]["pid"], "{processes:?}");
    running.type_in(b"\n\n");
    running.wait().expect(0);
}

#[test]
fn the_processes_of_others_are_not_shown() {
    let instance = Instance::of_the_system().up();
    let job = instance.submit(&["-o", "/dev/null", "sleep", &instance.nap]);
    instance.wait_for_state(job, "running");
    eventually("a sleep", || (instance.nappers().len() == 1).then_some(()));
    let job = job.to_string();
    let others = instance.command_as(Some(NOBODY), &["ps", "--tree", &job]);
    let done = Running::start(others).wait();
    done.expect(1).says("only its owner, or root, may do that");
    for wrong in [&["ps", "--tree", "99"][..], &["ps", "--tree"], &["ps", &format!("{job}.0")]] {
        assert_ne!(instance.tutti(wrong).code, 0, "{wrong:?}");
    }
    instance.tutti(&["ps", "--tree", &format!("{job}.0/1")]).expect(1).says("does not belong to");
    instance.tutti(&["cancel", "--now", &job]).expect(0);
}

#[test]
fn a_frozen_job_is_shown_as_frozen() {
    let instance = Instance::new().up();
    let running = instance.start(&["run", "-n", "2", "sh", "-c", "echo up; exec sleep $NAP"]);
    running.wait_for("up\nup\n");
    instance.tutti(&["suspend", "1"]).expect(0);
    eventually("two frozen tasks", || {
        let tasks = instance.tutti(&["ps", "--tree", "--json", "1"]).expect(0).json();
        let frozen = |task: &Value| task["processes"][0]["state"] == "frozen";
        let tasks = tasks.as_array().unwrap();
        (tasks.len() == 2 && tasks.iter().all(frozen)).then_some(())
    });
    instance.tutti(&["cancel", "--now", "1"]).expect(0);
    running.wait().expect(137);
}

#[test]
fn without_cgroups_the_tree_is_known_too() {
    let instance = Instance::of_nobody().up();
    let player = instance.share(&player()).display().to_string();
    // What forks before the agent has heard of the task is found by a scan, which doesn't know what
    // the dead descended from.
    let line = format!("sleep 0.5; {player} daemon $NAP; echo up; exec sleep $NAP");
    let running = instance.start(&["run", "sh", "-c", &line]);
    running.wait_for("up");
    eventually("two sleeps", || (instance.nappers().len() == 2).then_some(()));
    let processes = tree(&instance, "1");
    assert_eq!(processes.len(), 2, "{processes:?}");
    assert!(processes[0]["parent"].is_null(), "{processes:?}");
    assert_eq!(processes[1]["parent"], processes[0]["pid"], "{processes:?}");
    instance.tutti(&["cancel", "--now", "1"]).expect(0);
    running.wait().expect(137);
}

#[test]
fn doctor_reports_what_the_instance_has_and_not_what_its_own_shell_has() {
    let instance = Instance::new();
    needs_root("network namespaces");
    // In another network namespace the kernel reports no process.
    let asked = || instance.shell("unshare --net tutti doctor").expect(0).text();
    let unreported = "the kernel does not report processes";
    let before = asked();
    assert!(before.contains("none runs") && before.contains(unreported), "{before}");
    instance.tutti(&["up"]).expect(0);
    let doctor = asked();
    assert!(doctor.starts_with("all is well: jobs are tracked"), "{doctor}");
    assert!(!doctor.contains(unreported), "{doctor}");
}

#[test]
fn without_process_events_proc_is_read() {
    let instance = Instance::new();
    needs_root("network namespaces");
    // In another network namespace the kernel reports no process.
    instance.shell("unshare --net tutti up").expect(0);
    let doctor = instance.tutti(&["doctor"]).expect(0).text();
    assert!(doctor.contains("the kernel does not report processes"), "{doctor}");
    let mut running = instance.start_typing(&["run", "sh", "-c", ORPHANS]);
    running.wait_for("up");
    let processes = tree(&instance, "1");
    assert_eq!(processes.len(), 3, "{processes:?}");
    // Its parents were gone before anybody looked; that it descends from the root is certain.
    let sleep = named(&processes, &instance.nap).unwrap();
    assert_eq!(sleep["parent"], processes[0]["pid"], "{processes:?}");
    running.type_in(b"\n\n");
    running.wait().expect(0);
}

/// Children of the keeper that have ended and are not reaped.
fn zombies_of(keeper: i32) -> usize {
    let stats = tutti_linux::proc::all().into_iter();
    let stats = stats.filter_map(|pid| tutti_linux::proc::ProcessStat::read(pid).ok());
    stats.filter(|stat| stat.ppid == keeper && stat.has_ended()).count()
}

#[test]
fn all_orphans_are_reaped_however_many_have_ended_at_once() {
    let instance = Instance::new().up();
    let line = "echo up; while [ ! -e go ]; do sleep 0.01; done; i=0; \
        while [ $i -lt 280 ]; do (sleep 0 &); i=$((i + 1)); done; : > done; exec sleep $NAP";
    let running = instance.start(&["run", "sh", "-c", line]);
    running.wait_for("up\n");
    let keeper = instance.daemon("keeper");
    kill(Pid::from_raw(keeper), Signal::SIGSTOP).unwrap();
    instance.script("go", "");
    let done = instance.work.join("done");
    eventually("orphans that have ended", || {
        (done.exists() && zombies_of(keeper) >= 280).then_some(())
    });
    kill(Pid::from_raw(keeper), Signal::SIGCONT).unwrap();
    eventually("all to be reaped", || (zombies_of(keeper) == 0).then_some(()));
    instance.tutti(&["cancel", "--now", "1"]).expect(0);
    running.wait().expect(137);
}

/// The script of the introduction of the process-tracking paper: a shell that starts collaborating
/// scripts, connected by pipes, each of which executes programs.
#[test]
fn a_task_of_shells_and_pipes_runs_is_switched_and_ends_whole() {
    let instance = Instance::new().up();
    instance.tutti(&["params", "quantum=20ms"]).expect(0);
    let processors = std::thread::available_parallelism().unwrap().to_string();
    let line = "yes | head -c 100000 | wc -c; \
        (sh -c 'sleep $NAP; :' | sh -c 'cat; :') & (sleep $NAP | (sleep $NAP; cat)) & echo up; wait";
    let running = instance.start(&["run", "-c", &processors, "sh", "-c", line]);
    running.wait_for("100000\nup\n");
    eventually("three sleeps", || (instance.nappers().len() == 3).then_some(()));
    let other = instance.submit(&["-c", &processors, "-o", "/dev/null", "sleep", "1000"]);
    eventually("ten turns", || (instance.switches().len() > 20).then_some(()));
    instance.tutti(&["cancel", "--now", &other.to_string()]).expect(0);
    let processes = tree(&instance, "1");
    assert!(processes.len() >= 8, "{processes:#?}");
    instance.tutti(&["suspend", "1"]).expect(0);
    eventually("all to stand still", || {
        let pids = processes.iter().map(|it| i32::try_from(it["pid"].as_i64().unwrap()).unwrap());
        pids.into_iter().all(stands).then_some(())
    });
    instance.tutti(&["cancel", "1"]).expect(0);
    running.wait().expect(143);
    instance.expect_no_nappers();
}
