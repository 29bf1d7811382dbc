//! Jobs that their owners queue again: `tutti requeue`, `scontrol requeue`.

use crate::harness::{Instance, eventually};
use crate::recovery::kill_daemon;
use crate::slurm::{faced, slurm};
use std::fs;

fn read(instance: &Instance, name: &str) -> String {
    fs::read_to_string(instance.work.join(name)).unwrap_or_default()
}

/// A script that says which run it is, and runs until there is a file `stop`.
fn script(instance: &Instance) {
    instance.script(
        "again.sh",
        "#!/bin/bash\n#SBATCH -n 1 -o out\n\
         echo run $TUTTI_RESTARTS ${SLURM_RESTART_COUNT-none}\n\
         while [ ! -e stop ]; do sleep 0.05; done; exit 3\n",
    );
}

#[test]
fn a_job_that_runs_is_queued_again_under_its_number() {
    let instance = Instance::alone().up();
    script(&instance);
    instance.tutti(&["batch", "again.sh"]).expect(0);
    eventually("it runs", || (read(&instance, "out") == "run 0 none\n").then_some(()));
    instance.tutti(&["requeue", "1"]).expect(0);
    let two = "run 0 none\nrun 1 1\n";
    eventually("it runs again", || (read(&instance, "out") == two).then_some(()));
    instance.tutti(&["requeue", "--hold", "1"]).expect(0);
    let job = instance.wait_for_state(1, "queued");
    assert_eq!(job["wait"], "held", "{job}");
    instance.tutti(&["requeue", "1"]).expect(1).says("job 1 waits in line already");
    // What is known of it outlives the controller.
    kill_daemon(&instance, "controller");
    assert_eq!(instance.wait_for_state(1, "queued")["wait"], "held");
    instance.tutti(&["release", "1"]).expect(0);
    let three = format!("{two}run 2 2\n");
    eventually("it runs again", || (read(&instance, "out") == three).then_some(()));
    fs::write(instance.work.join("stop"), "").unwrap();
    instance.tutti(&["wait", "1"]).expect(3);
    instance.tutti(&["requeue", "1"]).expect(1);
    let shown = instance.tutti(&["show", "--json", "1"]).expect(0).json();
    assert_eq!(shown[0]["details"]["requeues"], 2, "{shown}");
}

#[test]
fn what_has_a_front_end_is_not_queued_again_and_what_is_cancelled_ends() {
    let instance = Instance::new().up();
    let run = instance.start(&["run", "sleep", &instance.nap]);
    let runs = || instance.jobs().iter().any(|job| job["state"] == "running");
    eventually("it runs", || runs().then_some(()));
    let done = instance.tutti(&["requeue", "1"]);
    assert_ne!(done.code, 0);
    done.says("job 1 can't be queued again: its front end waits for its end");
    instance.tutti(&["cancel", "1"]).expect(0);
    run.wait();
    // It takes its time to end, and is cancelled meanwhile.
    let slow = "trap '' TERM; echo up; while [ ! -e stop ]; do sleep 0.05; done";
    instance.tutti(&["batch", "-o", "out", "--wrap", slow]).expect(0);
    eventually("it runs", || (read(&instance, "out") == "up\n").then_some(()));
    instance.tutti(&["requeue", "2"]).expect(0);
    instance.tutti(&["cancel", "2"]).expect(0);
    fs::write(instance.work.join("stop"), "").unwrap();
    instance.tutti(&["wait", "2"]);
    let ended = instance.tutti(&["history", "--json", "2"]).expect(0).json();
    assert_eq!(ended["ending"], "cancelled", "{ended}");
    assert_eq!(read(&instance, "out"), "up\n", "it ran once");
}

#[test]
fn a_step_has_its_own_job_queued_again_by_the_name_of_slurm() {
    let instance = faced();
    instance.script(
        "again.sh",
        "#!/bin/bash\n#SBATCH -n 2 -o out -a 4\n\
         [ ${SLURM_RESTART_COUNT-0} = 2 ] && { echo done; exit 0; }\n\
         srun -n 1 sh -c 'trap \"\" TERM; echo run ${SLURM_RESTART_COUNT-0}\n\
         scontrol requeue ${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID'; sleep 60\n",
    );
    slurm(&instance, &["sbatch", "again.sh"]).expect(0);
    instance.tutti(&["wait", "1"]).expect(0);
    let said = read(&instance, "out");
    let mut lines = said.lines().filter(|line| !line.contains("tutti: "));
    assert_eq!(lines.by_ref().collect::<Vec<_>>(), ["run 0", "run 1", "done"], "{said}");
    slurm(&instance, &["sbatch", "-o", "/dev/null", "--wrap", "sleep $NAP"]).expect(0);
    let job = instance.jobs().last().unwrap()["job"].as_u64().unwrap();
    eventually("it runs", || (!instance.nappers().is_empty()).then_some(()));
    let number = job.to_string();
    slurm(&instance, &["scontrol", "requeuehold", &number]).expect(0);
    let shown = ["squeue", "-h", "-j", &number, "-O", "State:.10,Reason:.12,RestartCnt:.3"];
    let wanted = "PENDING JobHeldUser  1";
    eventually("it is held", || (slurm(&instance, &shown).text().trim() == wanted).then_some(()));
    slurm(&instance, &["scancel", &number]).expect(0);
    instance.expect_no_nappers();
}

#[test]
fn an_element_of_an_array_is_queued_again_alone_and_an_array_as_far_as_it_runs() {
    let instance = Instance::new().up();
    let line = "echo $TUTTI_ARRAY_INDEX $TUTTI_RESTARTS >> said; sleep $NAP";
    instance.tutti(&["batch", "-a", "0-1", "-o", "/dev/null", "--wrap", line]).expect(0);
    let said = || {
        let text = read(&instance, "said");
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    eventually("both run", || (said() == ["0 0", "1 0"]).then_some(()));
    instance.tutti(&["requeue", "1_1"]).expect(0);
    eventually("one again", || (said() == ["0 0", "1 0", "1 1"]).then_some(()));
    instance.tutti(&["requeue", "1"]).expect(0);
    eventually("all again", || (said() == ["0 0", "0 1", "1 0", "1 1", "1 2"]).then_some(()));
    instance.tutti(&["cancel", "1"]).expect(0);
    instance.tutti(&["wait", "1"]).expect(143);
    instance.tutti(&["requeue", "1"]).expect(1);
    instance.expect_no_nappers();
}

#[test]
fn a_job_that_must_not_be_queued_again_stays_what_it_is() {
    let instance = faced();
    slurm(&instance, &["sbatch", "--no-requeue", "-o", "/dev/null", "--wrap", "sleep $NAP"])
        .expect(0);
    instance.wait_for_state(1, "running");
    instance.tutti(&["requeue", "1"]).expect(1).says("it was submitted with --no-requeue");
    let words = "Requested operation is presently disabled for job 1";
    slurm(&instance, &["scontrol", "requeue", "1"]).expect(1).says(words);
    let shown = instance.tutti(&["show", "--json", "1"]).expect(0).json();
    assert_eq!(shown[0]["details"]["no_requeue"], true, "{shown}");
    let both = ["submit", "--no-requeue", "--on-node-loss", "requeue", "true"];
    let refused = instance.tutti(&both);
    assert_ne!(refused.code, 0);
    refused.says("--no-requeue excludes --on-node-loss requeue");
    instance.tutti(&["cancel", "1"]).expect(0);
    instance.tutti(&["wait", "1"]);
    instance.expect_no_nappers();
}
