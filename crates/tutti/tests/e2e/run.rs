//! `tutti run` from a bare machine, and the life of an instance.

use crate::harness::{Instance, PATIENCE, Running, within};
use std::time::Duration;

#[test]
fn the_first_run_starts_an_instance_and_says_so_once() {
    let instance = Instance::new();
    let first = instance.tutti(&["run", "-n", "4", "sh", "-c", "echo $TUTTI_RANK of $TUTTI_SIZE"]);
    let first = first.expect(0).says("started a private instance");
    assert_eq!(first.sorted(), ["0 of 4", "1 of 4", "2 of 4", "3 of 4"]);
    assert_eq!(first.err.lines().count(), 1, "{}", first.err);
    let second = instance.tutti(&["run", "echo", "hello"]).expect(0);
    assert_eq!((second.text().as_str(), second.err.as_str()), ("hello\n", ""));
}

#[test]
fn a_job_that_leaves_a_session_of_its_own_behind_ends_at_once_with_nothing_left() {
    let instance = Instance::new().up();
    let line = "echo $TUTTI_RANK; setsid sleep $NAP &";
    let done = instance.tutti(&["run", "-n", "4", "--label", "--", "sh", "-c", line]).expect(0);
    assert_eq!(done.sorted(), ["0: 0", "1: 1", "2: 2", "3: 3"]);
    assert!(done.took < Duration::from_secs(5), "took {:?}", done.took);
    instance.expect_no_nappers();
}

#[test]
fn output_in_blocks_names_a_rank_once_before_its_lines() {
    let instance = Instance::new().up();
    let line = "case $TUTTI_RANK in 0) echo a; echo b; touch went;; \
                1) while [ ! -e went ]; do sleep 0.02; done; sleep 0.2; echo c; echo d >&2;; esac";
    let done = instance.tutti(&["run", "-n", "2", "--label=block", "sh", "-c", line]).expect(0);
    assert_eq!((done.text().as_str(), done.err.as_str()), ("0:\na\nb\n1:\nc\n", "1:\nd\n"));
    instance.tutti(&["run", "--label=often", "true"]).expect(2).says("none of: line, block");
    let done = instance.tutti(&["run", "-n", "2", "-l", "echo", "x"]).expect(0);
    assert_eq!(done.sorted(), ["0: x", "1: x"]);
}

#[test]
fn more_tasks_than_processors_share_them() {
    let instance = Instance::new().up();
    let done = instance.tutti(&["run", "-n", "16", "sh", "-c", "echo $TUTTI_RANK"]).expect(0);
    assert_eq!(done.text().lines().count(), 16);
}

#[test]
fn two_first_runs_at_the_same_time_share_one_instance() {
    for _ in 0..5 {
        let instance = Instance::new();
        let runs: Vec<Running> =
            (0..4).map(|_| instance.start(&["run", "sh", "-c", "echo $TUTTI_JOB"])).collect();
        let done: Vec<_> = runs.into_iter().map(|run| run.wait().expect(0)).collect();
        let mut jobs: Vec<String> = done.iter().map(|done| done.text()).collect();
        jobs.sort();
        assert_eq!(jobs, ["1\n", "2\n", "3\n", "4\n"], "they have jobs of several instances");
        let started = done.iter().filter(|done| done.err.contains("started")).count();
        assert_eq!(started, 1, "{done:?}");
    }
}

#[test]
fn an_instance_is_started_though_the_executable_was_replaced() {
    let instance = Instance::new();
    let copy = instance.share(&instance.program);
    // As when another machine, with the same file system, brings the executable there at that
    // moment.
    let line = format!(
        "exec 9< {0}; rm {0}; echo 'exit 99' > {0}; chmod 755 {0}; exec /proc/self/fd/9 run echo up",
        copy.display()
    );
    let done = instance.shell(&line).expect(0);
    assert_eq!(done.text(), "up\n");
}

#[test]
fn an_instance_holds_nothing_of_the_shell_that_it_is_started_from() {
    let instance = Instance::new();
    // A lock, and a pipe whose reader waits until nothing writes to it any more.
    let line =
        "exec 8> lock; flock 8; tutti run true 9>&1 | cat; exec 8>&-; flock --nonblock lock true";
    instance.shell(line).expect(0);
    instance.daemon("keeper");
}

#[test]
fn an_idle_instance_ends_by_itself() {
    let instance = Instance::new().up();
    instance.tutti(&["params", "idle_exit=1s"]).expect(0);
    // A job keeps it up however long it takes.
    instance.tutti(&["run", "sleep", "1.5"]).expect(0);
    within(PATIENCE, "the end of the idle instance", || {
        instance.leftovers().is_empty().then_some(())
    });
}

#[test]
fn an_instance_goes_down_with_its_jobs() {
    let instance = Instance::new().up();
    // As of a controller that was killed while it wrote that.
    std::fs::write(instance.dir.join("clock.next"), "half").unwrap();
    let running = instance.start(&["run", "-n", "2", "sh", "-c", "echo up; exec sleep $NAP"]);
    running.wait_for("up\nup\n");
    let waiting = instance.submit(&["-n", "2", "-o", "/dev/null", "sh", "-c", "exec sleep $NAP"]);
    instance.wait_for_state(waiting, "running");
    instance.tutti(&["down"]).expect(0);
    running.wait().expect(122).says("shut down");
    instance.expect_no_nappers();
    // What is down can be told so again.
    let again = instance.tutti(&["down"]).expect(0);
    assert!(again.text().contains("no instance runs"), "{}", again.text());
}

#[test]
fn an_instance_in_the_foreground_ends_with_sigterm() {
    let instance = Instance::new();
    let foreground = instance.start(&["up", "--foreground"]);
    within(PATIENCE, "an instance that is up", || foreground.err().contains("is up").then_some(()));
    instance.tutti(&["run", "true"]).expect(0);
    instance.tutti(&["up", "--foreground"]).expect(1).says("runs in");
    foreground.signal(nix::sys::signal::Signal::SIGTERM);
    foreground.wait().expect(0);
    assert_eq!(instance.leftovers(), Vec::<String>::new());
}

#[test]
fn a_signal_that_was_ignored_at_the_start_does_not_end_the_job() {
    use nix::sys::signal::Signal;
    let instance = Instance::new().up();
    for (number, name, signal) in
        [(0, "HUP", Signal::SIGHUP), (1, "INT", Signal::SIGINT), (2, "QUIT", Signal::SIGQUIT)]
    {
        let wait = format!("echo up; while ! test -e go-{number}; do sleep 0.02; done; echo done");
        let line = format!("trap '' {name}; exec tutti run sh -c '{wait}'");
        let running = Running::start(instance.shell_command(&line));
        running.wait_for("up\n");
        running.signal(signal);
        // One that is passed on arrives before this.
        instance.tutti(&["run", "true"]).expect(0);
        std::fs::write(instance.work.join(format!("go-{number}")), "").unwrap();
        assert_eq!(running.wait().expect(0).text(), "up\ndone\n", "{name}");
    }
}

#[test]
fn a_state_directory_that_others_can_write_is_not_used() {
    use std::os::unix::fs::PermissionsExt;
    let instance = Instance::new();
    std::fs::create_dir(&instance.dir).unwrap();
    std::fs::set_permissions(&instance.dir, std::fs::Permissions::from_mode(0o777)).unwrap();
    instance.tutti(&["run", "true"]).expect(125).says("TUTTI_DIR");
    std::fs::remove_dir(&instance.dir).unwrap();
}
