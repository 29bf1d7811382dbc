//! Processors for a command that runs where it is typed (`tutti alloc`).

use crate::harness::{Instance, eventually};
use crate::slurm::{faced, slurm};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

#[test]
fn a_command_has_a_job_and_starts_steps_in_it() {
    let instance = Instance::new().up();
    let program = instance.program.display();
    let line = format!("{program} run -n 2 sh -c 'echo $TUTTI_JOB.$TUTTI_STEP'; exit 7");
    let done = instance.tutti(&["alloc", "-n", "2", "sh", "-c", &line]).expect(7);
    let done = done.says("tutti: job 1 has its processors");
    let mut lines: Vec<String> = done.text().lines().map(str::to_owned).collect();
    lines.sort();
    assert_eq!(lines, ["1.1", "1.1"]);
    let line = instance.tutti(&["history", "1"]).expect(0).text();
    assert!(line.contains("alloc"), "{line}");
    instance.tutti(&["alloc", "-n", "1000000", "true"]).expect(120);
    instance.tutti(&["alloc", "/no/such/program"]).expect(127).says("cannot run");
    eventually("all jobs end", || {
        (instance.tutti(&["ps", "--json"]).expect(0).text().trim() == "[]").then_some(())
    });
}

#[test]
fn a_killed_alloc_ends_its_job_and_an_ended_job_its_command() {
    let instance = faced();
    let nap = ["alloc", "sh", "-c", "echo $$; exec sleep $NAP"];
    let alloc = instance.start(&nap);
    let is_held = || {
        let jobs = instance.tutti(&["ps", "--json"]).expect(0).json();
        (jobs[0]["state"] == "running").then_some(())
    };
    eventually("the job runs", is_held);
    alloc.wait_for("\n");
    let command: i32 = alloc.out().trim().parse().unwrap();
    alloc.signal(Signal::SIGKILL);
    // Its command is not the job's: it goes on, as that of any killed shell.
    kill(Pid::from_raw(command), Signal::SIGKILL).unwrap();
    let is_empty =
        || (instance.tutti(&["ps", "--json"]).expect(0).text().trim() == "[]").then_some(());
    eventually("the job has ended", is_empty);
    let limited =
        ["alloc", "-t", "2s", "sh", "-c", "trap 'exit 9' HUP; while :; do sleep 0.1; done"];
    instance.tutti(&limited).expect(9).says("its command gets SIGHUP");
    // A program that does nothing about signals has none of them held.
    let limited = ["alloc", "-t", "2s", "sh", "-c", "exec sleep $NAP"];
    instance.tutti(&limited).expect(129).says("its command gets SIGHUP");
    let shell = ["alloc", "-t", "1h", "--signal", "B:USR1@5m", "true"];
    instance.tutti(&shell).expect(125).says("--signal B:... is for the shell of a batch script");
    let words = ["salloc", "-n", "2", "sh", "-c", "echo $SLURM_JOB_ID $SLURM_NTASKS"];
    assert_eq!(slurm(&instance, &words).expect(0).text(), "4 2\n");
}
