//! Jobs that save their state by themselves, with real processes: `tutti checkpoint`, requests now
//! and then, and preemption that saves state.

use crate::harness::{Instance, eventually};
use crate::recovery::kill_daemon;
use serde_json::Value;
use std::fs;

fn read(instance: &Instance, name: &str) -> String {
    fs::read_to_string(instance.work.join(name)).unwrap_or_default()
}

/// Counts, from what an earlier run has saved. Asked by USR1, it saves the count and ends; where
/// there is a file `deaf`, it does not.
pub(crate) fn counter(instance: &Instance) {
    instance.script(
        "count.sh",
        "#!/bin/bash\n#TUTTI -n 1 -o out --checkpoint-signal B:USR1 --checkpoint-grace 20s\n\
         count=$(cat saved 2>/dev/null || echo 0)\n\
         trap '[ -e deaf ] || { echo $count > saved; exit 0; }' USR1\n\
         echo from $count restarts $TUTTI_RESTARTS resumes ${TUTTI_RESUMES-none}\n\
         while [ ! -e stop ]; do count=$((count + 1)); echo $count > now; sleep 0.02; done\n\
         exit 3\n",
    );
}

/// The events about checkpoints, by their words, with what they say.
fn events(instance: &Instance) -> Vec<String> {
    let printed = instance.tutti(&["events"]).expect(0).text();
    let all = printed.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let meant = all.filter(|it| it["event"].as_str().unwrap().starts_with("job_checkpoint"));
    let words = meant.map(|it| match it["why"].as_str() {
        Some(why) => format!("{} {why}", it["event"].as_str().unwrap()),
        None => it["event"].as_str().unwrap().to_owned(),
    });
    words.collect()
}

fn last(instance: &Instance, job: u64) -> Value {
    let shown = instance.tutti(&["show", "--json", &job.to_string()]).expect(0).json();
    shown[0]["details"]["checkpoint"]["last"].clone()
}

#[test]
fn a_job_saves_its_state_and_its_next_run_goes_on_from_there() {
    let instance = Instance::alone().up();
    counter(&instance);
    instance.tutti(&["batch", "count.sh"]).expect(0);
    let first = "from 0 restarts 0 resumes none\n";
    eventually("it counts", || (read(&instance, "now").len() > 1).then_some(()));
    assert_eq!(read(&instance, "out"), first);
    let done = instance.tutti(&["checkpoint", "--hold", "1"]).expect(0);
    done.says("job 1 has saved its state, and is queued again");
    let job = instance.wait_for_state(1, "checkpointed");
    assert_eq!(job["wait"], "held", "{job}");
    let saved = read(&instance, "saved").trim().to_owned();
    assert_ne!(saved, "0");
    // What is known of it outlives the controller.
    kill_daemon(&instance, "controller");
    assert_eq!(instance.wait_for_state(1, "checkpointed")["wait"], "held");
    instance.tutti(&["checkpoint", "1"]).expect(1).says("job 1 waits in line");
    instance.tutti(&["release", "1"]).expect(0);
    let both = format!("{first}from {saved} restarts 1 resumes 1\n");
    eventually("it runs again", || (read(&instance, "out") == both).then_some(()));
    assert_eq!(last(&instance, 1), "saved");
    fs::write(instance.work.join("stop"), "").unwrap();
    instance.tutti(&["wait", "1"]).expect(3);
    assert_eq!(events(&instance), ["job_checkpointing", "job_checkpointed"]);
    let shown = instance.tutti(&["show", "--json", "1"]).expect(0).json();
    let states = shown[0]["details"]["states"].as_array().unwrap();
    let states: Vec<_> = states.iter().map(|it| it["state"].as_str().unwrap()).collect();
    let around: Vec<_> = states.windows(3).filter(|it| it[1] == "checkpointed").collect();
    assert!(!around.is_empty(), "{states:?}");
}

#[test]
fn a_job_that_does_not_answer_goes_on_unless_it_is_forced() {
    let instance = Instance::new().up();
    counter(&instance);
    fs::write(instance.work.join("deaf"), "").unwrap();
    instance.tutti(&["batch", "--checkpoint-grace", "300ms", "count.sh"]).expect(0);
    eventually("it counts", || (read(&instance, "now").len() > 1).then_some(()));
    let done = instance.tutti(&["checkpoint", "1"]).expect(1);
    done.says("job 1 did not end within its grace, and goes on as it was; --force ends it");
    assert_eq!(instance.job(1)["state"], "running");
    assert_eq!(last(&instance, 1), "unanswered");
    let done = instance.tutti(&["checkpoint", "--force", "1"]).expect(0);
    done.says("job 1 did not end within its grace: it was ended, and is queued again");
    let again = "restarts 1 resumes 1\n";
    eventually("it runs again", || read(&instance, "out").ends_with(again).then_some(()));
    assert_eq!(last(&instance, 1), "forced");
    let expected = [
        "job_checkpointing",
        "job_checkpoint_failed unanswered",
        "job_checkpointing",
        "job_checkpoint_failed forced",
    ];
    assert_eq!(events(&instance), expected);
    instance.tutti(&["cancel", "--now", "1"]).expect(0);
}

#[test]
fn a_program_without_a_handler_is_queued_again_and_that_is_said() {
    let instance = Instance::new().up();
    let nap = instance.nap.clone();
    let words = ["--checkpoint-signal", "USR1", "-o", "/dev/null", "sleep", &nap];
    let job = instance.submit(&words);
    eventually("it runs", || (!instance.nappers().is_empty()).then_some(()));
    let done = instance.tutti(&["checkpoint", &job.to_string()]).expect(1);
    done.says("died of the signal, so nothing was saved");
    instance.wait_for_state(job, "running");
    assert_eq!(last(&instance, job), "died");
    instance.tutti(&["cancel", &job.to_string()]).expect(0);
    eventually("all end", || instance.nappers().is_empty().then_some(()));
}

#[test]
fn a_resume_command_runs_in_place_of_the_job_and_steps_get_the_signal() {
    let instance = Instance::new().up();
    // Each rank saves its state by itself, one later than the other.
    let solve = "trap 'sleep 0.$TUTTI_RANK; echo $TUTTI_RANK >> saved; exit 85' USR1; \
                 echo up >> ready; while :; do sleep 0.02; done";
    instance.script(
        "steps.sh",
        &format!(
            "#!/bin/bash\n#TUTTI -n 2 -o out --checkpoint-signal USR1 --checkpoint-exit 85\n\
             #TUTTI --resume-command 'echo resumed $TUTTI_RESUMES; sort saved; exit 7'\n\
             echo begins; {program} run --kill-on-bad-exit -n 2 sh -c \"{solve}\"\n\
             code=$?; exit $code\n",
            program = instance.program.display(),
            solve = solve.replace('$', "\\$"),
        ),
    );
    instance.tutti(&["batch", "steps.sh"]).expect(0);
    eventually("both run", || (read(&instance, "ready") == "up\nup\n").then_some(()));
    instance.tutti(&["checkpoint", "1"]).expect(0).says("job 1 has saved its state");
    instance.tutti(&["wait", "1"]).expect(7);
    let out = read(&instance, "out");
    assert!(out.starts_with("begins\n") && out.ends_with("resumed 1\n0\n1\n"), "{out}");
}

#[test]
fn a_job_is_asked_now_and_then_to_save_its_state_and_go_on() {
    let instance = Instance::new().up();
    let line = "trap 'echo saved >> saves' USR1; echo up > up; \
                while [ ! -e stop ]; do sleep 0.02; done";
    let words = ["--checkpoint-signal", "USR1", "--checkpoint-every", "1s", "-o", "/dev/null"];
    let job = instance.submit(&[&words[..], &["bash", "-c", line]].concat());
    eventually("it runs", || (!read(&instance, "up").is_empty()).then_some(()));
    let number = job.to_string();
    instance.tutti(&["checkpoint", "--keep-running", &number]).expect(0);
    eventually("three times", || (read(&instance, "saves").lines().count() >= 3).then_some(()));
    assert_eq!(instance.job(job)["state"], "running");
    fs::write(instance.work.join("stop"), "").unwrap();
    instance.tutti(&["wait", &number]).expect(0);
}

#[test]
fn a_preempted_job_saves_its_state_first_if_the_site_says_so() {
    let instance = Instance::alone().up();
    instance.tutti(&["params", "policy=classes", "foreign=0%", "preemption=checkpoint"]).expect(0);
    counter(&instance);
    instance.tutti(&["batch", "-n", "2", "--class", "standby", "count.sh"]).expect(0);
    eventually("it counts", || (read(&instance, "now").len() > 1).then_some(()));
    instance.tutti(&["params", "--class", "standby", "do_not_disturb=0"]).expect(0);
    let quick = ["-n", "2", "--class", "interactive", "-o", "/dev/null", "sleep", &instance.nap];
    let quick = instance.submit(&quick);
    instance.wait_for_state(quick, "running");
    instance.wait_for_state(1, "checkpointed");
    instance.tutti(&["cancel", "--now", &quick.to_string()]).expect(0);
    let again = "restarts 1 resumes 1\n";
    eventually("it runs again", || read(&instance, "out").ends_with(again).then_some(()));
    instance.tutti(&["cancel", "--now", "1"]).expect(0);
}

#[test]
fn what_can_not_save_its_state_is_refused_with_what_to_do() {
    let instance = Instance::new().up();
    let plain = instance.submit(&["-o", "/dev/null", "sleep", &instance.nap]);
    let refused = instance.tutti(&["checkpoint", &plain.to_string()]).expect(1);
    refused.says("it was submitted without --checkpoint and --checkpoint-signal; `tutti requeue");
    let words = ["run", "--checkpoint-signal", "USR1", "sleep", &instance.nap];
    let run = instance.start(&words);
    let front = plain + 1;
    eventually("it is known", || (instance.jobs().len() == 2).then_some(()));
    instance.wait_for_state(front, "running");
    let front = front.to_string();
    instance.tutti(&["checkpoint", &front]).expect(1).says("its front end waits for its end");
    instance.tutti(&["checkpoint", "99"]).expect(1).says("there is no job 99");
    let script = ["batch", "-o", "out", "--checkpoint-signal", "USR1", "--wrap"];
    instance.tutti(&[&script[..], &["echo up; sleep $NAP"]].concat()).expect(0);
    eventually("the script runs", || (read(&instance, "out") == "up\n").then_some(()));
    let batch = instance.jobs().last().unwrap()["job"].to_string();
    let refused = instance.tutti(&["checkpoint", &batch]).expect(1);
    refused.says("submit it with --checkpoint-signal B:USR1");
    for (words, says) in [
        (&["--checkpoint-signal", "NOPE"][..], "is no signal"),
        (&["--checkpoint-signal", "C:USR1"], "write USR1, or B:USR1"),
        (&["--checkpoint-exit", "85"], "--checkpoint-signal"),
        (&["--checkpoint-signal", "USR1", "--checkpoint-exit", "0"], "0"),
        (&["--checkpoint-signal", "USR1", "--checkpoint-every", "10ms"], "the least is 1s"),
    ] {
        let done = instance.tutti(&[&["submit"], words, &["true"]].concat());
        assert_ne!(done.code, 0, "{words:?}");
        done.says(says);
    }
    for job in [plain.to_string(), front, batch] {
        instance.tutti(&["cancel", "--now", &job]).expect(0);
    }
    run.wait();
    eventually("all end", || instance.nappers().is_empty().then_some(()));
}
