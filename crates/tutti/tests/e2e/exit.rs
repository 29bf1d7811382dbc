//! Exit codes and messages of jobs that end badly, of `run` and of `submit` alike.

use crate::harness::{Instance, eventually, needs_root, player};
use std::fs;
use std::os::unix::fs::PermissionsExt;

#[test]
fn the_exit_code_is_the_highest_of_the_ranks() {
    let instance = Instance::new().up();
    let run = |script: &str| instance.tutti(&["run", "-n", "3", "sh", "-c", script]);
    run("exit 0").expect(0);
    run("exit $((TUTTI_RANK * 7))").expect(14).says("rank 2 ended with exit status 14");
    run("exit $((7 - TUTTI_RANK))").expect(7).says("rank 0 ended with exit status 7");
    run("kill -SEGV $$").expect(139).says("SIGSEGV");
    run("[ $TUTTI_RANK = 1 ] && kill -USR1 $$; exec sleep $NAP")
        .expect(138)
        .says("rank 1 was ended by SIGUSR1");
    instance.expect_no_nappers();
}

/// Signals that have no name: any program may end itself by one. The keeper must go on, with a
/// group for each task or a minder.
#[test]
fn a_task_may_be_ended_by_a_real_time_signal() {
    for begin in [Instance::new, Instance::of_nobody] {
        let instance = begin().up();
        let run = |script: &str| instance.tutti(&["run", "sh", "-c", script]);
        run("kill -64 $$").expect(192).says("ended by signal 64");
        run("sh -c 'kill -40 $$'; exit 3").expect(3);
        run("setsid sh -c 'kill -34 $$' & exit 4").expect(4);
        let sleeps = instance.submit(&["-o", "/dev/null", "sh", "-c", "exec sleep $NAP"]);
        eventually("it sleeps", || (!instance.nappers().is_empty()).then_some(()));
        instance.tutti(&["signal", "35", &sleeps.to_string()]).expect(0);
        instance.tutti(&["wait", &sleeps.to_string()]).expect(163);
        instance.expect_no_nappers();
    }
}

#[test]
fn an_exit_status_of_a_program_that_is_one_of_tuttis_codes_is_named_as_its_own() {
    let instance = Instance::new().up();
    let own = |code: i32| format!("rank 0 ended with exit status {code}, given by its program");
    for code in [119, 121, 124, 127, 137, 192] {
        let line = format!("exit {code}");
        instance.tutti(&["run", "sh", "-c", &line]).expect(code).says(&own(code));
    }
    for code in [118, 193] {
        let done = instance.tutti(&["run", "sh", "-c", &format!("exit {code}")]).expect(code);
        assert_eq!(done.err, "");
    }
    let ends = instance.submit(&["sh", "-c", "exit 124"]).to_string();
    instance.tutti(&["wait", &ends]).expect(124).says(&own(124));
    // What Tutti says it says as before, and nothing beside it.
    let limit = instance.tutti(&["run", "-t", "50ms", "sleep", "30"]).expect(124);
    assert!(limit.err.contains("[T041]") && !limit.err.contains("given by"), "{}", limit.err);
    let missing = instance.tutti(&["run", "./missing"]).expect(127);
    assert!(missing.err.contains("[T004]") && !missing.err.contains("given by"), "{}", missing.err);
    let signal = instance.tutti(&["run", "--keep-going", "sh", "-c", "kill -USR1 $$"]);
    signal.expect(138).says("rank 0 was ended by SIGUSR1");
}

#[test]
fn wait_and_ps_name_the_rank_that_decided() {
    let instance = Instance::new().up();
    let submit = |tasks: &str, script: &str| instance.submit(&["-n", tasks, "sh", "-c", script]);
    let dies = submit("3", "[ $TUTTI_RANK = 1 ] && kill -USR1 $$; exec sleep $NAP");
    let says = "rank 1 was ended by SIGUSR1";
    instance.tutti(&["wait", &dies.to_string()]).expect(138).says(says);
    let shown = instance.tutti(&["ps", &dies.to_string()]).expect(0).text();
    assert!(shown.contains(&format!("exit 138: a task failed: {says}")), "{shown}");
    let ends = submit("3", "exit $((TUTTI_RANK * 7))").to_string();
    instance.tutti(&["wait", &ends]).expect(14).says("rank 2 ended with exit status 14");
    // Of one task the exit code says it all.
    let alone = submit("1", "exit 3").to_string();
    let done = instance.tutti(&["wait", &alone]).expect(3);
    assert_eq!(done.err, "");
    instance.expect_no_nappers();
}

#[test]
fn what_a_failed_task_means_for_the_others_can_be_chosen() {
    let instance = Instance::new().up();
    let script =
        "if [ $TUTTI_RANK = 0 ]; then exit 3; fi; echo rank 1 stays; sleep 0.3; echo rank 1 ends";
    let run = |options: &[&str], script: &str| {
        let args = [&["run", "-n", "2"], options, &["sh", "-c", script]].concat();
        instance.tutti(&args)
    };
    let done = run(&[], script).expect(3);
    assert!(done.text().contains("rank 1 ends"), "a status alone does not end the others");
    let slow = "if [ $TUTTI_RANK = 0 ]; then exit 3; fi; exec sleep $NAP";
    run(&["--kill-on-bad-exit", "--grace", "300ms"], slow).expect(3).says("rank 0");
    let dies = "if [ $TUTTI_RANK = 0 ]; then kill -9 $$; fi; sleep 0.3; echo rank 1 ends";
    let done = run(&["--keep-going"], dies).expect(137);
    assert!(done.text().contains("rank 1 ends"));
    instance.tutti(&["run", "--keep-going", "--kill-on-bad-exit", "true"]).expect(2);
}

#[test]
fn a_program_that_is_missing_or_not_executable_is_named() {
    let instance = Instance::new().up();
    fs::write(instance.work.join("plain"), "no program").unwrap();
    instance.script("lost", "#!/no/such/interpreter\n");
    let run = |program: &str| instance.tutti(&["run", "-n", "2", program]);
    run("no-such-program")
        .expect(127)
        .says("no such program: no-such-program (searched for in PATH)");
    run("./no-such-program").expect(127).says("no such program: ./no-such-program");
    run("./plain").expect(126).says("cannot execute './plain': Permission denied");
    run("/tmp").expect(126).says("cannot execute '/tmp'");
    run("./lost").expect(126).says("interpreter");
}

#[test]
fn what_a_task_does_not_find_ends_its_job_with_the_reason() {
    let instance = Instance::new().up();
    let wait = |job: u64| instance.tutti(&["wait", &job.to_string()]);
    // The letters keep `submit` from looking.
    wait(instance.submit(&["-o", "/no/%j/x", "true"])).expect(126).says("/no/1/x");
    wait(instance.submit(&["-i", "no-such-%j", "cat"])).expect(126).says("no-such-2");
    let run = ["run", "-D", "/no/such/dir", "true"];
    instance.tutti(&run).expect(126).says("no such directory: /no/such/dir");
}

#[test]
fn a_job_that_can_never_fit_is_declined_at_once_with_what_would() {
    let instance = Instance::new().up();
    let processors = std::thread::available_parallelism().unwrap().get();
    let more = (processors + 1).to_string();
    for zero in [["-n", "0"], ["-c", "0"]] {
        instance.tutti(&[&["run"], &zero[..], &["true"]].concat()).expect(2).says("least is 1");
    }
    instance.tutti(&["run", "-m", "5", "true"]).expect(2).says("perhaps 5M or 5G is meant");
    instance.tutti(&["run", "-n", "2", "-i", "2", "true"]).expect(2).says("ranks 0 to 1");
    for verb in ["run", "submit"] {
        let declines = |options: &[&str], says: &str| {
            let args = [&[verb][..], options, &["true"]].concat();
            instance.tutti(&args).expect(120).says("declined: ").says(says);
        };
        declines(&["-c", &more], &format!("ask for at most -c {processors}"));
        declines(&["-n", &more, "-c", "1"], &format!("ask for at most {processors}"));
        declines(&["-m", "900T"], "at most");
        declines(&["--class", "none-such"], "benchmark, interactive, production, standby");
        declines(&["-t", "0s"], "at least 1ms");
    }
    assert!(instance.jobs().is_empty(), "what is declined is no job");
}

#[test]
fn a_job_is_ended_at_its_time_limit() {
    let instance = Instance::new().up();
    let limits = ["run", "-n", "2", "-t", "300ms", "--grace", "200ms"];
    let args = [&limits[..], &["sh", "-c", "trap '' TERM; while :; do sleep 0.05; done"]].concat();
    instance.tutti(&args).expect(124).says("timed out");
    let job = instance.submit(&["-t", "200ms", "-o", "/dev/null", "sh", "-c", "exec sleep $NAP"]);
    instance.tutti(&["wait", &job.to_string()]).expect(124);
    assert!(instance.job(job)["reason"].as_str().unwrap().contains("timed out"));
    instance.expect_no_nappers();
}

#[test]
fn a_task_that_uses_more_memory_than_it_may_is_killed_with_the_reason() {
    let instance = Instance::new().up();
    let doctor = instance.tutti(&["doctor", "-v"]);
    assert!(
        doctor.text().contains("-m is enforced by the kernel"),
        "this machine enforces no memory limit; the test needs the memory controller:\n{}",
        doctor.text()
    );
    let hog = player().display().to_string();
    instance.tutti(&["run", "-m", "200M", &hog, "hog", "60"]).expect(0);
    instance.tutti(&["run", "-m", "50M", &hog, "hog", "400"]).expect(123).says("memory");
    // A child that is killed for it is the task's doing as well.
    let line = format!("{hog} hog 400");
    instance.tutti(&["run", "-m", "50M", "sh", "-c", &format!("{line}; exit $?")]).expect(123);
    // It is reported also if the task's root exits with 0.
    let killed = "a process was killed: more memory was used than the 50M that --memory gives";
    let minds_not = ["run", "-m", "50M", "sh", "-c", &format!("{line}; exit 0")];
    instance.tutti(&minds_not).expect(0).says(killed);
    let done = instance.tutti(&["ps", "--all"]).expect(0).text();
    assert!(done.contains(killed), "{done}");
}

#[test]
fn an_option_that_does_not_exist_is_refused_before_anything_starts() {
    let instance = Instance::new();
    instance.tutti(&["run", "--no-such-option", "true"]).expect(2).says("--no-such-option");
    instance.tutti(&["run"]).expect(2).says("COMMAND");
    instance.tutti(&["run", "-n", "many", "true"]).expect(2).says("many");
    instance.tutti(&["run", "-m", "much", "true"]).expect(2).says("much");
    instance.tutti(&["run", "-t", "soon", "true"]).expect(2).says("soon");
    instance.tutti(&["run", "-i", "some", "true"]).expect(2).says("none, all, tagged");
    instance.tutti(&["no-such-verb"]).expect(2);
    assert!(!instance.dir.exists());
}

#[test]
fn a_directory_that_is_missing_or_is_none_is_named() {
    let instance = Instance::new().up();
    instance
        .tutti(&["run", "-D", "/no/such", "true"])
        .expect(126)
        .says("no such directory: /no/such");
    instance.tutti(&["run", "-D", "/etc/passwd", "true"]).expect(126).says("/etc/passwd");
    fs::create_dir(instance.work.join("below")).unwrap();
    let done = instance.tutti(&["run", "-D", "below", "pwd"]).expect(0);
    assert_eq!(done.text().trim(), instance.work.join("below").display().to_string());
}

#[test]
fn a_directory_that_has_gone_or_may_not_be_entered_is_named() {
    let instance = Instance::new().up();
    instance.shell("mkdir gone; cd gone; rmdir ../gone; tutti run true").expect(125).says("-D");
    let other = Instance::of_nobody_after(instance);
    let locked = other.work.join("locked");
    fs::create_dir(&locked).unwrap();
    fs::set_permissions(&locked, fs::Permissions::from_mode(0o700)).unwrap();
    other.tutti(&["run", "-D", "locked", "true"]).expect(126).says("locked': Permission denied");
}

#[test]
fn an_output_file_on_a_full_disk_ends_the_job_with_the_reason() {
    let instance = Instance::new().up();
    let endless = "while :; do echo 0123456789; done";
    let run =
        instance.tutti(&["run", "-n", "2", "-o", "/dev/full", "sh", "-c", endless]).expect(119);
    run.says("cannot write the output file /dev/full: No space left on device");
    // A job whose tasks write by themselves is told that by the kernel.
    let job = instance.submit(&["-o", "/dev/full", "sh", "-c", "echo x || exit 9"]);
    instance.tutti(&["wait", &job.to_string()]).expect(9);
}

#[test]
fn a_submitted_job_on_a_full_file_system_says_that_output_may_be_cut() {
    let instance = Instance::new();
    needs_root("a mount");
    // The daemons live in the mount namespace of the shell, and end in it.
    let line = "mkdir small && mount -t tmpfs -o size=64k none small && \
        job=$(tutti submit --parsable -o small/out sh -c \
            'head -c 200000 /dev/zero; exit 0') && tutti wait $job; echo $?; tutti down";
    let done = instance.shell(&format!("unshare --mount sh -c '{}'", line.replace('\'', "'\\''")));
    done.expect(0).says("full: output may be cut");
}

#[test]
fn standard_streams_that_are_closed_or_full_are_no_trouble() {
    let instance = Instance::new().up();
    let done = instance.shell("tutti run -n 2 sh -c 'cat; echo read' <&-").expect(0);
    assert_eq!(done.text(), "read\nread\n");
    let done = instance.shell("tutti run sh -c 'cat; echo read' </dev/null").expect(0);
    assert_eq!(done.text(), "read\n");
    instance
        .shell("tutti run echo x >/dev/full")
        .expect(119)
        .says("cannot write to standard output");
    instance.shell("tutti run sh -c 'exit 5' >&-").expect(5);
    instance.shell("tutti run sh -c 'exit 5' >&- 2>&- <&-").expect(5);
}

#[test]
fn a_cancelled_job_ends_by_the_signal_that_ended_it() {
    let instance = Instance::new().up();
    let running = instance.start(&["run", "-n", "2", "sh", "-c", "echo up; exec sleep $NAP"]);
    running.wait_for("up\nup\n");
    instance.tutti(&["cancel", "1"]).expect(0);
    running.wait().expect(143).says("cancelled");
    let stubborn = "trap '' TERM; echo up; while :; do sleep 0.05; done";
    let running = instance.start(&["run", "--grace", "300ms", "sh", "-c", stubborn]);
    running.wait_for("up");
    instance.tutti(&["cancel", "2"]).expect(0);
    running.wait().expect(137).says("cancelled");
    let running = instance.start(&["run", "--grace", "1h", "sh", "-c", stubborn]);
    running.wait_for("up");
    instance.tutti(&["cancel", "--now", "3"]).expect(0);
    running.wait().expect(137).says("cancelled");
    instance.tutti(&["cancel", "3"]).expect(1).says("job 3 has ended (exit 137");
    eventually("no job", || instance.tutti(&["ps"]).text().lines().nth(1).is_none().then_some(()));
}
