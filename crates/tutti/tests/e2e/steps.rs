//! Steps: what `tutti run` starts inside a job.

use crate::cluster::Bed;
use crate::harness::{Instance, eventually, own_processors};
use crate::recovery::kill_daemon;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs;

/// Submits a batch job of two slots with this script, in which `$T` is the program.
pub(crate) fn batch(instance: &Instance, name: &str, text: &str) -> u64 {
    let program = instance.program.display();
    instance.script(name, &format!("#!/bin/sh\nT={program}\n{text}\n"));
    let done = instance.tutti(&["batch", "--parsable", "-n", "2", "-o", "out-%j", name]).expect(0);
    done.text().trim().parse().unwrap()
}

fn output(instance: &Instance, job: u64) -> String {
    fs::read_to_string(instance.work.join(format!("out-{job}"))).unwrap_or_default()
}

fn sorted(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines
}

#[test]
fn a_run_inside_a_job_is_a_step_with_ranks_and_an_exit_status_of_its_own() {
    let instance = Instance::new().up();
    let text = "$T run -n 2 sh -c 'echo $TUTTI_JOB.$TUTTI_STEP.$TUTTI_RANK of $TUTTI_SIZE'\n\
                $T run sh -c 'exit 7'; echo rc $?\n\
                echo typed | $T run -i 0 cat\n\
                $T run -n 3 true; echo rc $?\n\
                exit 3";
    let job = batch(&instance, "job.sh", text);
    instance.tutti(&["wait", &job.to_string()]).expect(3);
    let said = output(&instance, job);
    for line in ["1.1.0 of 2", "1.1.1 of 2", "rc 7", "typed", "rc 120"] {
        assert!(said.lines().any(|it| it == line), "{line}: {said}");
    }
    let why = "job 1 has 2 processors on 1 node, room for 2 tasks, and the step asks for 3";
    assert!(said.contains(why), "{said}");
    assert_eq!(instance.jobs().len(), 1, "a step is no job");
}

#[test]
fn steps_in_the_background_run_at_once_as_far_as_there_are_processors() {
    let instance = Instance::new().up();
    let text = "for i in 1 2 3; do\n\
                $T run sh -c \"touch at-$i; while [ ! -e stop ]; do sleep 0.05; done\" &\n\
                done; wait; echo over";
    let job = batch(&instance, "job.sh", text).to_string();
    let steps = || {
        let shown = instance.tutti(&["show", "--json", &job]).expect(0).json();
        let states = shown[0]["steps"].as_array().unwrap().iter();
        let mut states: Vec<String> =
            states.map(|step| step["state"].as_str().unwrap().to_owned()).collect();
        states.sort_unstable();
        states
    };
    eventually("three steps", || (steps() == ["running", "running", "waiting"]).then_some(()));
    let text = instance.tutti(&["show", &job]).expect(0).text();
    assert!(text.contains("3: sh, 1 task, waiting"), "{text}");
    fs::write(instance.work.join("stop"), "").unwrap();
    instance.tutti(&["wait", &job]).expect(0);
    assert_eq!(output(&instance, 1), "over\n");
    assert!(instance.work.join("at-3").exists());
}

#[test]
fn the_end_of_the_script_ends_its_steps() {
    let instance = Instance::new().up();
    let job = batch(&instance, "job.sh", "$T run sleep $NAP & sleep 0.1; $T run true; exit 0");
    instance.tutti(&["wait", &job.to_string()]).expect(0);
    instance.expect_no_nappers();
    let job = batch(&instance, "long.sh", "$T run sleep $NAP; exit 0");
    eventually("the step", || (instance.nappers().len() == 1).then_some(()));
    instance.tutti(&["cancel", &job.to_string()]).expect(0);
    instance.tutti(&["wait", &job.to_string()]);
    instance.expect_no_nappers();
}

#[test]
fn a_front_end_that_dies_ends_its_step_alone() {
    let instance = Instance::new().up();
    instance.tutti(&["params", "front_end_grace=100ms"]).expect(0);
    let text = "$T run sleep $NAP & echo $! > front; wait\n\
                while [ ! -e stop ]; do sleep 0.05; done; exit 4";
    let job = batch(&instance, "job.sh", text);
    eventually("the step", || (instance.nappers().len() == 1).then_some(()));
    let front: i32 =
        fs::read_to_string(instance.work.join("front")).unwrap().trim().parse().unwrap();
    kill(Pid::from_raw(front), Signal::SIGKILL).unwrap();
    eventually("its end", || instance.nappers().is_empty().then_some(()));
    assert_eq!(instance.job(job)["state"], "running");
    fs::write(instance.work.join("stop"), "").unwrap();
    instance.tutti(&["wait", &job.to_string()]).expect(4);
}

#[test]
fn a_task_lends_its_processor_to_the_step_that_it_waits_for() {
    let instance = Instance::new().up();
    instance.tutti(&["params", "policy=space"]).expect(0);
    let all = own_processors().len().to_string();
    let program = instance.program.display();
    let line = format!("[ $TUTTI_RANK = 0 ] || exit 0; {program} run -n {all} echo inner");
    let done = instance.tutti(&["run", "-n", &all, "sh", "-c", &line]).expect(0);
    assert_eq!(done.text(), "inner\n".repeat(own_processors().len()));
}

#[test]
fn steps_and_their_front_ends_outlive_controller_and_agent() {
    let instance = Instance::alone().up();
    let line = "echo up; while [ ! -e stop ]; do sleep 0.05; done; echo over; exit 6";
    let text = format!("$T run -n 2 sh -c '{line}'; echo rc $?; $T run echo another");
    let job = batch(&instance, "job.sh", &text);
    eventually("the step", || (output(&instance, job).matches("up\n").count() == 2).then_some(()));
    for role in ["controller", "agent", "controller"] {
        kill_daemon(&instance, role);
    }
    fs::write(instance.work.join("stop"), "").unwrap();
    instance.tutti(&["wait", &job.to_string()]).expect(0);
    let said = output(&instance, job);
    assert_eq!(sorted(&said), ["another", "over", "over", "rc 6", "up", "up"], "{said}");
}

#[test]
fn a_keeper_that_is_killed_takes_the_steps_of_its_jobs_along() {
    let instance = Instance::alone().up();
    let job = batch(&instance, "job.sh", "$T run sleep $NAP");
    eventually("the step", || (instance.nappers().len() == 1).then_some(()));
    kill_daemon(&instance, "keeper");
    instance.tutti(&["wait", &job.to_string()]).expect(121);
    instance.expect_no_nappers();
}

#[test]
fn a_step_runs_on_all_nodes_of_its_job() {
    let bed = Bed::up(2, &[]);
    let program = bed.audit.program.display();
    let line = format!(
        "{program} run -n 2 -N 2 -l hostname; {program} run sh -c 'echo $TUTTI_NODELIST'; \
         {program} run -n 2 sh -c 'kill -9 $$'; echo rc $?; \
         {program} run -w n2 sh -c 'echo on $(hostname)'; {program} run -w n1,n2 true 2>&1 || true"
    );
    let submit = ["batch", "--parsable", "-n", "2", "-N", "2", "-o", "out", "--wrap", &line];
    let job = bed.tutti(1, &submit).expect(0).text().trim().to_owned();
    bed.tutti(1, &["wait", &job]).expect(0);
    let said = fs::read_to_string(bed.audit.work.join("out")).unwrap();
    for line in ["0: n1", "1: n2", "n1", "rc 137", "on n2"] {
        assert!(said.lines().any(|it| it == line), "{line}: {said}");
    }
    assert!(said.contains("inside job 1, name one of its nodes"), "{said}");
}

#[test]
fn options_of_jobs_are_refused_inside_of_one_and_taken_outside() {
    let instance = Instance::new().up();
    let text = "$T run -t 1h true; echo rc $?; $T run --outside -t 1h echo own\n\
                $T run --overlap echo shared";
    let job = batch(&instance, "job.sh", text);
    instance.tutti(&["wait", &job.to_string()]).expect(0);
    let said = output(&instance, job);
    assert!(said.contains("-t is for a job, and this `tutti run` is inside job 1"), "{said}");
    assert!(said.contains("own\n") && said.contains("shared\n"), "{said}");
    instance.tutti(&["run", "--overlap", "true"]).expect(125).says("inside a job");
}

#[test]
fn a_step_that_asks_for_more_memory_than_its_job_has_is_declined() {
    let instance = Instance::new().up();
    let line = format!("{0} run -m 2G true; echo rc $?; {0} run true", instance.program.display());
    let submit = ["batch", "--parsable", "-n", "2", "-m", "64M", "-o", "out-1", "--wrap", &line];
    instance.tutti(&submit).expect(0);
    instance.tutti(&["wait", "1"]).expect(0);
    let said = output(&instance, 1);
    assert!(said.contains("rc 120") && said.contains("of memory on a node"), "{said}");
}
