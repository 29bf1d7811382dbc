//! Instances of one machine see each other's jobs as external load.

use crate::cluster::Bed;
use crate::harness::{Instance, eventually, group_of, own_processors, stands};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::fs;

/// The processor of a job with one task.
fn processor_of(instance: &Instance, job: u64) -> u64 {
    let job = instance.wait_for_state(job, "running");
    let place = job["placement"][0].as_str().unwrap();
    place.rsplit(':').next().unwrap().parse().unwrap()
}

/// The processors with external load that an instance knows of.
fn external(instance: &Instance) -> Vec<u64> {
    let nodes = instance.tutti(&["nodes", "--json"]).expect(0).json();
    nodes[0]["external_load"].as_array().unwrap().iter().map(|it| it.as_u64().unwrap()).collect()
}

fn cancel(instance: &Instance, job: u64) {
    instance.tutti(&["cancel", "--now", &job.to_string()]).expect(0);
    instance.wait_for_state(job, "ended");
}

#[test]
fn jobs_of_two_instances_get_processors_of_their_own() {
    assert!(own_processors().len() > 1, "THIS TEST NEEDS TWO PROCESSORS");
    let private = Instance::alone().up();
    let idle = Instance::of_the_system().up();
    let first = private.submit_spinner(1);
    let taken = processor_of(&private, first);
    // An instance without jobs learns of it when that job starts.
    eventually("the idle instance knows", || external(&idle).contains(&taken).then_some(()));
    // While jobs of other tests have the other processor, it gets any.
    eventually("a processor of its own", || {
        let beside = idle.submit_spinner(1);
        let is_apart = processor_of(&idle, beside) != taken;
        cancel(&idle, beside);
        is_apart.then_some(())
    });
    drop(idle);
    // An instance that starts for a job knows before that job is placed.
    let fresh = Instance::new();
    let second = fresh.submit_spinner(1);
    let other = processor_of(&fresh, second);
    assert_ne!(taken, other);
    let table = fresh.tutti(&["nodes"]).expect(0).text();
    assert!(table.contains(&format!("({taken})")), "{table}");
    // A gang that needs all processors runs beside external load.
    fresh.tutti(&["run", "-n", "2", "true"]).expect(0);
    cancel(&private, first);
    cancel(&fresh, second);
    private.tutti(&["params", "foreign=0%"]).expect(0);
    eventually("nothing is reported", || external(&private).is_empty().then_some(()));
}

/// Two jobs that take turns, so that one of them is suspended, and a third with a front end.
#[test]
fn former_jobs_are_external_load_after_a_fresh_start() {
    let instance = Instance::new().up();
    let nap = instance.nap.clone();
    let computes = format!("while :; do :; done; : {nap}");
    for _ in 0..2 {
        let job = instance.submit(&["-n", "2", "-o", "/dev/null", "sh", "-c", &computes]);
        instance.wait_for_state(job, "running");
    }
    let front = instance.start(&["run", "sh", "-c", &format!("echo begun; exec sleep {nap}")]);
    front.wait_for("begun");
    // The shells of the first two, and the program of the third.
    let former = eventually("all run their programs", || {
        let all = instance.nappers().into_iter().filter(|&pid| pid != front.pid());
        Some(all.collect::<Vec<i32>>()).filter(|all| all.len() == 5)
    });
    let refused = instance.tutti(&["up", "--fresh"]);
    assert!(refused.err.contains("tutti down --leave-jobs"), "{}", refused.err);
    instance.tutti(&["down", "--leave-jobs"]).expect(0);
    let begun = instance.tutti(&["up", "--fresh"]).expect(0).text();
    assert!(begun.contains("former-1.db; jobs up to 3 are released"), "{begun}");
    assert_eq!(front.wait().expect(125).err.matches("job 3 is released").count(), 1);
    assert!(instance.jobs().is_empty());
    instance.tutti(&["cancel", "1"]).says("job 1 is released");
    // All go on, in no turns any more, and their processors have external load.
    eventually("none is suspended", || former.iter().all(|&pid| !stands(pid)).then_some(()));
    assert!(former.iter().all(|pid| instance.nappers().contains(pid)));
    eventually("external load", || (external(&instance).len() == 2).then_some(()));
    assert_eq!(instance.submit(&["-o", "/dev/null", "true"]), 4, "a number was used twice");
    instance.wait_for_state(4, "ended");
    // So it is when the keeper fails.
    let groups: Vec<String> = former.iter().map(|&pid| group_of(pid)).collect();
    let keeper = instance.daemon("keeper");
    kill(Pid::from_raw(keeper), Signal::SIGKILL).unwrap();
    eventually("another keeper", || instance.daemon_now("keeper").filter(|&it| it != keeper));
    eventually("jobs run again", || (instance.tutti(&["run", "true"]).code == 0).then_some(()));
    let left = instance.nappers();
    assert!(former.iter().filter(|pid| left.contains(pid)).count() >= 4, "{groups:?}");
    assert!(left.iter().all(|&pid| !stands(pid)));
    instance.tutti(&["down"]).expect(0);
    assert_eq!(instance.nappers(), left, "the end of the instance is none of theirs");
    assert!(instance.dir.join("released").exists());
    for pid in left {
        kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap();
    }
    eventually("they have ended", || instance.nappers().is_empty().then_some(()));
    for suffix in ["", "-shm", "-wal"] {
        let _ = fs::remove_file(instance.dir.join(format!("former-1.db{suffix}")));
    }
    // The next instance there removes what was theirs.
    instance.tutti(&["run", "true"]).expect(0);
}

/// Two jobs over both nodes that take turns. One node has no agent when the head begins anew.
#[test]
fn a_fresh_start_of_a_cluster_releases_jobs_on_all_of_its_nodes() {
    let bed = Bed::up(2, &[0]);
    let naps = bed.audit.nap.clone();
    let computes = format!("while :; do :; done; : {naps}");
    for _ in 0..2 {
        let job = ["submit", "-n", "4", "-o", "/dev/null", "sh", "-c", &computes];
        bed.tutti(1, &job).expect(0);
    }
    let former = eventually("all tasks run", || {
        Some(bed.audit.nappers()).filter(|all: &Vec<i32>| all.len() == 8)
    });
    bed.tutti(1, &["down", "--leave-jobs"]).expect(0);
    kill(Pid::from_raw(bed.node(2).daemon("agent").unwrap()), Signal::SIGKILL).unwrap();
    let begun = bed.tutti(1, &["up", "--fresh"]).expect(0).text();
    assert!(begun.contains("jobs up to 2 are released"), "{begun}");
    eventually("both nodes are up", || {
        (bed.states().into_values().collect::<Vec<_>>() == ["up", "up"]).then_some(())
    });
    eventually("none is suspended", || former.iter().all(|&pid| !stands(pid)).then_some(()));
    assert_eq!(bed.audit.nappers(), former);
    eventually("external load on both", || {
        let nodes = bed.tutti(1, &["nodes", "--json"]).expect(0).json();
        let is_loaded = |node: &Value| node["external_load"].as_array().unwrap().len() == 2;
        nodes.as_array()?.iter().all(is_loaded).then_some(())
    });
    // Jobs of the new state run beside them, on both, and their numbers go on.
    let done = bed.tutti(2, &["run", "-n", "4", "sh", "-c", "echo $TUTTI_JOB $(hostname)"]);
    assert_eq!(done.expect(0).sorted(), ["3 n1", "3 n1", "3 n2", "3 n2"]);
    bed.tutti(2, &["cancel", "1"]).says("job 1 is released");
    for pid in former {
        kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap();
    }
    // The audit of the bed finds what is left of them.
    eventually("they have ended", || bed.audit.nappers().is_empty().then_some(()));
}
