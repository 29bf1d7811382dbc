//! `tutti exec`: a command beside a task of a running job.

use crate::cluster::Bed;
use crate::harness::{Instance, NOBODY, eventually};
use crate::recovery::kill_daemon;
use crate::slurm::{faced, slurm};
use nix::sys::signal::Signal;
use std::process::Stdio;

/// Submits a job that waits to be ended, and gives its number when it runs.
fn sleeper(instance: &Instance, options: &[&str]) -> String {
    let nap = ["sh", "-c", "cd /; export SEEN=1; exec sleep $NAP"];
    let job = instance.submit(&[options, &["-o", "/dev/null"], &nap].concat());
    instance.wait_for_state(job, "running");
    job.to_string()
}

#[test]
fn a_command_has_the_place_of_a_rank_and_an_exit_status_of_its_own() {
    let instance = Instance::new().up();
    let job = sleeper(&instance, &["-n", "2", "-J", "solver"]);
    let line = "echo $TUTTI_JOB.$TUTTI_RANK of $TUTTI_SIZE, step $TUTTI_STEP, alone $PMI_SIZE; pwd; \
                grep ^Cpus_allowed_list /proc/self/status; exit 7";
    let work = instance.work.canonicalize().unwrap();
    for (number, target, rank) in [(1, "1", 0), (2, "1.1", 1), (3, "solver", 0), (4, "last", 0)] {
        let text = instance.tutti(&["exec", target, "sh", "-c", line]).expect(7).text();
        let root = ["exec", target, "sh", "-c", "echo $TUTTI_PROCESSORS"];
        let processors = instance.tutti(&root).expect(0).text();
        let first = format!("1.{rank} of 2, step {}, alone 1", 2 * number - 1);
        let expected = format!("{first}\n{}\nCpus_allowed_list:\t{processors}", work.display());
        assert_eq!(text, expected, "{target}");
    }
    let mut command = instance.command(&["exec", &job, "cat"]);
    command.stdin(Stdio::piped());
    let mut typed = crate::harness::Running::start(command);
    typed.type_in(b"typed\n");
    typed.close_input();
    assert_eq!(typed.wait().expect(0).text(), "typed\n");
    let words = ["exec", "--env", "A=b", "--env", "NAP", "-D", "/usr", "1", "sh", "-c"];
    let text = instance.tutti(&[&words[..], &["echo $A $NAP; pwd"]].concat()).expect(0).text();
    assert_eq!(text, format!("b {}\n/usr\n", instance.nap));
    instance.tutti(&["exec", "1", "/no/such"]).expect(127).says("no such program: /no/such");
    assert_eq!(instance.jobs().len(), 1, "a command is no job");
    let shown = instance.tutti(&["show", "1"]).expect(0).text();
    assert!(shown.contains(": cat, 1 task, ended, exit 0"), "{shown}");
}

#[test]
fn a_command_is_in_the_group_of_the_job_and_ends_with_it() {
    let instance = Instance::new().up();
    let job = sleeper(&instance, &[]);
    let inner = instance.start(&["exec", &job, "sh", "-c", "cat /proc/self/cgroup; sleep $NAP"]);
    inner.wait_for("job-1");
    eventually("its sleep", || (instance.nappers().len() == 2).then_some(()));
    // It has the job's turns.
    instance.tutti(&["suspend", &job]).expect(0);
    let pid = instance.nappers()[1];
    let is_frozen = || {
        let group = crate::harness::group_of(pid);
        group.contains("job-1").then_some(())
    };
    eventually("its group", is_frozen);
    let why = "job 1 is suspended, and what is started in it would not run";
    instance.tutti(&["exec", &job, "true"]).expect(125).says(why).says("[T080]");
    instance.tutti(&["resume", &job]).expect(0);
    instance.tutti(&["cancel", &job]).expect(0);
    inner.wait().expect(143);
    instance.expect_no_nappers();
}

#[test]
fn a_command_needs_a_job_of_ones_own_that_runs_and_has_the_rank() {
    let instance = Instance::of_the_system().up();
    let job = sleeper(&instance, &["-n", "2"]);
    let all = crate::harness::own_processors().len().to_string();
    instance.tutti(&["params", "policy=space"]).expect(0);
    instance.submit(&["-n", &all, "--hold", "true"]);
    let refused = |words: &[&str], code: &str| {
        instance.tutti(&[&["exec"], words, &["true"]].concat()).expect(125).says(code);
    };
    refused(&["1.2"], "job 1 has no rank 2 on any of its nodes");
    refused(&["1.2"], "[T024]");
    refused(&["2"], "job 2 has not begun");
    refused(&["2"], "[T080]");
    refused(&["77"], "[T021]");
    refused(&["1.0/4"], "[T001]");
    refused(&["1-2"], "[T001]");
    refused(&["none-such"], "[T021]");
    refused(&["--env", "=x", "1"], "[T002]");
    let mut of_other = instance.command_as(Some(NOBODY), &["exec", "1", "true"]);
    let said = crate::harness::Running::start({
        of_other.env("PATH", "/usr/bin:/bin");
        of_other
    });
    said.wait().expect(125).says("job 1 belongs to root").says("[T020]");
    instance.tutti(&["cancel", "2", &job]).expect(0);
    instance.tutti(&["wait", &job]);
    refused(&[&job], "[T022]");
}

#[test]
fn root_runs_commands_in_jobs_of_users_as_their_users() {
    let instance = Instance::of_the_system().up();
    let nap = ["submit", "--parsable", "-o", "/dev/null", "sleep", &instance.nap];
    let done = crate::harness::Running::start(instance.command_as(Some(NOBODY), &nap)).wait();
    let job = done.expect(0).text().trim().to_owned();
    instance.wait_for_state(job.parse().unwrap(), "running");
    let text = instance.tutti(&["exec", &job, "sh", "-c", "id -u; id -g; id -G"]).expect(0).text();
    assert_eq!(text, format!("{NOBODY}\n{NOBODY}\n{NOBODY}\n"));
}

#[test]
fn a_command_and_its_front_end_outlive_controller_and_agent_and_end_without_the_front_end() {
    let instance = Instance::alone().up();
    instance.tutti(&["params", "front_end_grace=100ms"]).expect(0);
    let job = sleeper(&instance, &[]);
    let line = "echo up; while [ ! -e stop ]; do sleep 0.05; done; echo $SHLVL over; exit 6";
    let inner = instance.start(&["exec", &job, "sh", "-c", line]);
    inner.wait_for("up\n");
    for role in ["controller", "agent", "controller"] {
        kill_daemon(&instance, role);
    }
    std::fs::write(instance.work.join("stop"), "").unwrap();
    assert!(inner.wait().expect(6).text().ends_with("over\n"));
    let inner = instance.start(&["exec", &job, "sleep", &instance.nap]);
    eventually("its sleep", || (instance.nappers().len() == 2).then_some(()));
    inner.signal(Signal::SIGKILL);
    eventually("its end", || (instance.nappers().len() == 1).then_some(()));
    assert_eq!(instance.job(1)["state"], "running");
}

#[test]
fn a_rank_picks_the_node() {
    let bed = Bed::up(2, &[]);
    let nap = &bed.audit.nap;
    let submit = ["submit", "--parsable", "-n", "2", "-N", "2", "-o", "/dev/null", "sleep", nap];
    let job = bed.tutti(1, &submit).expect(0).text().trim().to_owned();
    for (target, node) in [(format!("{job}.0"), "n1"), (format!("{job}.1"), "n2")] {
        let found = || {
            let done = bed.tutti(2, &["exec", &target, "hostname"]);
            (done.text() == format!("{node}\n")).then_some(())
        };
        eventually("the node", found);
    }
    bed.tutti(1, &["cancel", &job]).expect(0);
}

#[test]
fn srun_with_a_jobid_starts_a_command_beside_the_job() {
    let instance = faced();
    let words = ["sbatch", "--parsable", "-n", "2", "-o", "/dev/null", "--wrap", "sleep $NAP"];
    let job = slurm(&instance, &words).expect(0).text().trim().to_owned();
    instance.wait_for_state(job.parse().unwrap(), "running");
    let id = format!("--jobid={job}");
    let words = ["srun", &id, "--overlap", "sh", "-c", "echo $SLURM_JOB_ID $SLURM_NTASKS"];
    assert_eq!(slurm(&instance, &words).expect(0).text(), format!("{job} 2\n"));
    slurm(&instance, &["srun", &id, "-n", "2", "true"]).expect(1).says("one task");
    slurm(&instance, &["srun", &id, "-t", "5", "true"]).expect(1).says("--time=5: not available");
    slurm(&instance, &["srun", &id, "--output=x", "true"]).expect(1).says("--output=x: not");
    slurm(&instance, &["srun", &id, "--input=1", "true"]).expect(1).says("one task, 0");
    let words = ["srun", &id, "-N1", "-n1", "--input=none", "-D", "/usr", "sh", "-c", "pwd; cat"];
    assert_eq!(slurm(&instance, &words).expect(0).text(), "/usr\n");
    instance.tutti(&["cancel", &job]).expect(0);
}
