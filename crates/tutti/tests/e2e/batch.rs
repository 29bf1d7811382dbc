//! Batch jobs: a script that runs once, with processors for many tasks.

use crate::cluster::Bed;
use crate::harness::{Instance, eventually};
use crate::recovery::kill_daemon;
use nix::sys::signal::Signal;
use std::fs;
use std::os::unix::fs::symlink;

fn read(instance: &Instance, name: &str) -> String {
    fs::read_to_string(instance.work.join(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
}

#[test]
fn a_batch_script_runs_once_and_its_job_has_all_processors_that_it_asked_for() {
    let instance = Instance::new().up();
    let text = "#!/bin/sh\n#SBATCH -n 2 -J prepare\n#TUTTI -o out-%j\n\
                echo $1 $TUTTI_RANK of $TUTTI_SIZE, $TUTTI_SLOTS slots on $TUTTI_NODES: $TUTTI_NODE_SLOTS\n\
                echo $TUTTI_SCRIPT; nproc; exit 5\n";
    instance.script("job.sh", text);
    let done = instance.tutti(&["batch", "job.sh", "arg"]).expect(0);
    assert_eq!(done.text(), "job 1 is submitted\nits output goes to out-1\n");
    instance.tutti(&["wait", "1"]).expect(5);
    let path = instance.work.join("job.sh");
    let expected = format!("arg 0 of 1, 2 slots on 1: 2\n{}\n2\n", path.display());
    assert_eq!(read(&instance, "out-1"), expected);
    let job = instance.job(1);
    let known = (&job["first"], &job["slots"], &job["tasks"], &job["name"], &job["class"]);
    let wanted = (&"batch".into(), &2.into(), &1.into(), &"prepare".into(), &"production".into());
    assert_eq!(known, wanted);
    // A typed option comes before one of the script.
    instance.tutti(&["batch", "-n", "1", "job.sh"]).expect(0);
    instance.tutti(&["wait", "2"]).expect(5);
    assert!(read(&instance, "out-2").contains("1 slots on 1: 1"));
    // A later controller reads it from the journal.
    kill_daemon(&instance, "controller");
    let job = &instance.tutti(&["show", "--json", "1"]).expect(0).json()[0];
    assert_eq!((&job["first"], &job["slots"]), (&"batch".into(), &2.into()));
    let shown = instance.tutti(&["show", "1"]).expect(0).text();
    assert!(shown.contains("a batch script with room for 2 tasks"), "{shown}");
}

#[test]
fn a_script_that_submits_itself_keeps_its_path_and_its_name() {
    let instance = Instance::new().up();
    let again = "[ -e again ] || { touch again; tutti batch \"$0\"; }\n";
    let text = format!("#!/bin/sh\n#TUTTI -o out-%j\necho $TUTTI_SCRIPT; {again}");
    instance.script("job.sh", &text);
    instance.shell("tutti batch --wait job.sh").expect(0);
    instance.tutti(&["wait", "2"]).expect(0);
    let path = format!("{}\n", instance.work.join("job.sh").display());
    assert_eq!(read(&instance, "out-2"), path);
    assert_eq!(instance.job(2)["name"], "job.sh");
}

#[test]
fn a_batch_script_comes_from_standard_input_or_is_a_line() {
    let instance = Instance::new().up();
    let line = "printf '#!/bin/sh\\n#TUTTI -n 2\\necho $TUTTI_SLOTS\\n' | tutti batch -o in -";
    instance.shell(line).expect(0);
    instance.tutti(&["batch", "-n", "2", "-o", "wrapped", "--wrap", "echo a && echo b"]).expect(0);
    instance.tutti(&["wait", "1", "2"]).expect(0);
    assert_eq!(read(&instance, "in"), "2\n");
    let srun = instance.tutti(&["batch", "-o", "none", "--wrap", "srun -n 2 true"]).expect(0);
    srun.says("line 2 of the script runs srun");
    assert_eq!(read(&instance, "wrapped"), "a\nb\n");
}

#[test]
fn what_is_no_batch_script_is_refused_with_what_to_do() {
    let instance = Instance::new();
    fs::write(instance.work.join("plain"), "echo\n").unwrap();
    fs::create_dir(instance.work.join("dir")).unwrap();
    symlink("nowhere", instance.work.join("dangling")).unwrap();
    instance.script("odd", "#!/bin/sh\n#TUTTI --nonsense\n#TUTTI -n 0\n");
    for (script, says) in [
        ("plain", "plain is no script: its first line must name an interpreter"),
        ("dir", "cannot read the script dir: it is no file"),
        ("nothing", "cannot read the script nothing: No such file"),
        ("dangling", "cannot read the script dangling: No such file"),
        ("odd", "line 3"),
    ] {
        instance.tutti(&["batch", script]).expect(1).says(says);
    }
    instance.tutti(&["batch", "--wrap", " "]).expect(1).says("--wrap needs a command");
    instance.tutti(&["batch"]).expect(2);
}

/// A job on two nodes, whose script waits for a file.
#[test]
fn wrong_option_lines_are_left_out_if_that_is_asked_for() {
    let instance = Instance::new().up();
    let text = "#!/bin/sh\n#SBATCH --bogus=1 -n 2\n#TUTTI --nonsense 3 -o out\n#SBATCH -t never\n\
                echo $TUTTI_SLOTS slots\n";
    instance.script("job.sh", text);
    let strict = instance.tutti(&["batch", "job.sh"]).expect(1);
    assert!(strict.err.contains("--bogus") && strict.err.contains("line 4"), "{}", strict.err);
    let done = instance.tutti(&["batch", "--lenient", "--wait", "job.sh"]).expect(0);
    for left_out in ["left out", "line 2", "--bogus", "line 3", "--nonsense", "line 4", "never"] {
        assert!(done.err.contains(left_out), "{left_out}: {}", done.err);
    }
    assert_eq!(read(&instance, "out"), "2 slots\n");
}

fn held_on_two_nodes(bed: &Bed) -> String {
    let line = "while [ ! -e stop ]; do sleep 0.05; done; echo $TUTTI_NODELIST; exit 3";
    let submit = ["batch", "--parsable", "-n", "2", "-N", "2", "-o", "out", "--wrap", line];
    let job = bed.tutti(1, &submit).expect(0).text().trim().to_owned();
    eventually_running(bed, &job);
    job
}

fn eventually_running(bed: &Bed, job: &str) {
    eventually("the job runs", || {
        let done = bed.tutti(1, &["show", "--json", job]);
        (done.code == 0 && done.json()[0]["state"] == "running").then_some(())
    });
}

fn kill_part(bed: &Bed, number: usize, role: &str) {
    let node = bed.node(number);
    let old = node.daemon(role);
    node.signal(role, Signal::SIGKILL).unwrap();
    eventually(&format!("another {role}"), || node.daemon(role).filter(|&it| Some(it) != old));
}

#[test]
fn a_node_without_a_task_is_held_though_daemons_are_killed() {
    let bed = Bed::up(2, &[]);
    let job = held_on_two_nodes(&bed);
    for (number, role) in [(2, "agent"), (1, "controller"), (1, "agent")] {
        kill_part(&bed, number, role);
    }
    eventually_running(&bed, &job);
    let shown = bed.tutti(1, &["show", &job]).expect(0).text();
    assert!(shown.contains("room for 2 tasks"), "{shown}");
    fs::write(bed.audit.work.join("stop"), "").unwrap();
    bed.tutti(1, &["wait", &job]).expect(3);
    assert_eq!(fs::read_to_string(bed.audit.work.join("out")).unwrap(), "n1,n2\n");
    bed.tutti(1, &["run", "-n", "2", "-N", "2", "true"]).expect(0);
}

#[test]
fn the_end_of_the_keeper_of_a_node_without_a_task_ends_the_job() {
    let bed = Bed::up(2, &[]);
    let job = held_on_two_nodes(&bed);
    kill_part(&bed, 2, "keeper");
    bed.tutti(1, &["wait", &job]).expect(121);
}

#[test]
fn a_batch_job_outlives_daemons_on_one_machine() {
    let instance = Instance::alone().up();
    let line = "while [ ! -e stop ]; do sleep 0.05; done; exit 4";
    let submit = ["batch", "-n", "2", "-o", "/dev/null", "--wrap", line];
    instance.tutti(&submit).expect(0);
    instance.wait_for_state(1, "running");
    kill_daemon(&instance, "controller");
    kill_daemon(&instance, "agent");
    eventually("the job again", || {
        let jobs = instance.jobs();
        jobs.iter().any(|job| job["job"] == 1 && job["state"] == "running").then_some(())
    });
    fs::write(instance.work.join("stop"), "").unwrap();
    instance.tutti(&["wait", "1"]).expect(4);
}
