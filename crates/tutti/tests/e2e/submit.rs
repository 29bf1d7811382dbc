//! Jobs without a front end: files, scripts, the queue.

use crate::harness::{Instance, Running, copy_program, eventually};
use std::fs;
use std::path::Path;

fn read(instance: &Instance, name: &str) -> String {
    fs::read_to_string(instance.work.join(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
}

fn finish(instance: &Instance, job: u64, code: i32) {
    instance.tutti(&["wait", &job.to_string()]).expect(code);
}

#[test]
fn a_submitted_command_writes_to_its_file_and_wait_gives_its_exit_code() {
    let instance = Instance::new();
    let done = instance.tutti(&["submit", "-n", "2", "sh", "-c", "echo $TUTTI_RANK; exit 5"]);
    let done = done.expect(0).says("started a private instance");
    assert_eq!(done.text(), "job 1 is submitted\nits output goes to tutti-1.out\n");
    finish(&instance, 1, 5);
    // It can be waited for when it has long ended.
    finish(&instance, 1, 5);
    let mut lines: Vec<String> =
        read(&instance, "tutti-1.out").lines().map(str::to_owned).collect();
    lines.sort();
    assert_eq!(lines, ["0", "1"]);
    let shown = instance.job(1);
    assert_eq!((&shown["state"], &shown["exit_code"]), (&"ended".into(), &5.into()));
    instance.tutti(&["wait", "99"]).expect(125).says("there is no job 99");
}

#[test]
fn a_script_that_starts_tasks_itself_is_told_so_when_it_is_submitted() {
    let instance = Instance::new().up();
    instance.script("job", "#!/bin/sh\n#TUTTI -n 3 -o /dev/null\n./srun ./solver\n");
    let once = "line 3 of ./job runs srun, once for each of 3 tasks: leave srun out, or submit";
    let done = instance.tutti(&["submit", "./job"]).expect(0).says(once).says("tutti batch");
    assert!(done.text().starts_with("job 1 is submitted"), "{}", done.text());
    let done = instance.tutti(&["submit", "-n", "1", "./job"]).expect(0);
    assert_eq!(done.err, "");
    for job in ["1", "2"] {
        instance.tutti(&["wait", job]).expect(127);
    }
}

#[test]
fn a_script_with_lines_for_sbatch_runs_once_and_finds_slurms_words() {
    let instance = Instance::new().up();
    instance.script(
        "job",
        "#!/bin/sh\n#SBATCH -n 2 -o log.%j\n\
         echo prepare $SLURM_JOB_ID of $SLURM_NTASKS; scontrol show hostnames n[1-2]\n\
         srun -l sh -c 'echo solve'; echo rest\n",
    );
    let done = instance.tutti(&["submit", "./job"]).expect(0);
    assert_eq!(done.err, "");
    instance.tutti(&["wait", "1"]).expect(0);
    let said = read(&instance, "log.1");
    let mut lines: Vec<&str> = said.lines().collect();
    lines[3..5].sort_unstable();
    assert_eq!(lines, ["prepare 1 of 2", "n1", "n2", "0: solve", "1: solve", "rest"]);
    instance.tutti(&["submit", "-n", "2", "-o", "line", "--wrap", "echo a | tr a b"]).expect(0);
    instance.tutti(&["wait", "2"]).expect(0);
    assert_eq!(read(&instance, "line"), "b\n");
}

#[test]
fn what_cannot_start_is_seen_when_it_is_submitted() {
    let instance = Instance::new();
    fs::write(instance.work.join("plain"), "x").unwrap();
    for (line, says) in [
        ("no-such-program", "no such program: no-such-program (searched for in PATH)"),
        ("./no-such", "no such program: ./no-such"),
        ("./plain", "'./plain' may not be executed"),
        ("plain", "the file here is ./plain"),
        (".//", "is a directory"),
        ("-o no/dir/out true", "no/dir' for the output file"),
        ("-o . true", "is a directory"),
        ("-e no/err-%r true", "for the output file"),
        ("-i no-such true", "cannot read the input file"),
        ("-D no-such true", "cannot start in"),
    ] {
        let words: Vec<&str> = ["submit"].into_iter().chain(line.split(' ')).collect();
        instance.tutti(&words).expect(1).says(says);
    }
    assert!(!instance.dir.exists(), "for what can't start no instance is started");
    // What can't be known yet is left to the tasks.
    instance.tutti(&["submit", "-o", "%j/out", "true"]).expect(0);
    instance.tutti(&["wait", "1"]).expect(126).says("cannot open output file");
    let shown = instance.tutti(&["ps", "1"]).expect(0).text();
    assert!(shown.contains("exit 126: a task failed: cannot open output file"), "{shown}");
}

#[test]
fn a_program_that_went_missing_is_told_in_the_file_and_in_the_listing() {
    let instance = Instance::new().up();
    instance.tutti(&["params", "rows=1"]).expect(0);
    let first = instance.submit_spinner(2);
    instance.wait_for_state(first, "running");
    copy_program(Path::new("/bin/true"), &instance.work.join("gone"));
    let job = instance.submit(&["-n", "2", "-o", "out", "./gone"]);
    let alone = instance.submit(&["-o", "alone", "./gone"]);
    fs::remove_file(instance.work.join("gone")).unwrap();
    instance.tutti(&["cancel", "--now", &first.to_string()]).expect(0);
    finish(&instance, job, 127);
    finish(&instance, alone, 127);
    let why = "cannot execute './gone': No such file or directory";
    // The failure of one ends the other, perhaps before it has failed too.
    let written = read(&instance, "out");
    let is_expected = |line: &str| (0..2).any(|r| line == format!("tutti: rank {r}: {why}"));
    assert!(!written.is_empty() && written.lines().all(is_expected), "{written}");
    assert_eq!(read(&instance, "alone"), format!("tutti: {why}\n"));
    assert_eq!(instance.job(alone)["detail"], "no such program: ./gone");
}

/// Writes a script that its test submits, and expects what is wrong with it; nothing is accepted.
#[track_caller]
fn rejected(instance: &Instance, bytes: &[u8], says: &[&str]) {
    fs::write(instance.work.join("job"), bytes).unwrap();
    let mut done = instance.tutti(&["submit", "./job"]).expect(1);
    for what in says {
        done = done.says(what);
    }
    assert_eq!(done.text(), "");
}

#[test]
fn script_whose_options_would_be_ignored_is_rejected() {
    let instance = Instance::new();
    rejected(&instance, b"#SBATCH -n 2\necho\n", &["line 1 holds options", "#!/bin/sh", "T003"]);
    rejected(&instance, b"# a remark\n#TUTTI -n 2\necho\n", &["line 2 holds options"]);
    rejected(&instance, b"\xef\xbb\xbf#!/bin/sh\n#SBATCH -n 2\n", &["byte order mark"]);
    let dos = "line 1: ends in a carriage return; save the script with Unix line ends";
    rejected(&instance, b"#!/bin/sh\r\necho hi\r\n", &[dos]);
    rejected(&instance, b"#!/bin/sh\n\n  # a remark\n#SBATCH --bogus\n", &["line 4", "--bogus"]);
    assert!(!instance.dir.exists(), "no instance is started for a script that is rejected");
    fs::write(instance.work.join("job"), "#!/bin/sh\r\necho hi\r\n").unwrap();
    instance.tutti(&["run", "./job"]).expect(125).says(dos);
}

#[test]
fn script_without_its_interpreter_is_rejected() {
    let instance = Instance::new();
    let missing = "line 1 of ./job names an interpreter that is not here: /opt/none/zsh";
    rejected(&instance, b"#!/opt/none/zsh\n#TUTTI -n 1\n", &[missing, "T005"]);
    rejected(&instance, b"#!/bin/\n", &["an interpreter that is not here: /bin/"]);
    let of_env = "line 1 of ./job: /usr/bin/env finds no program no-such-program in PATH";
    rejected(&instance, b"#!/usr/bin/env no-such-program\n", &[of_env]);
    rejected(&instance, b"#!/usr/bin/env -S A=b no-such-program -u\n", &[of_env]);
    // A program that is found in PATH may be a script, too.
    let bin = instance.work.join("bin");
    fs::create_dir(&bin).unwrap();
    instance.script("bin/tool", "#!/opt/none/zsh\n");
    let done = instance.shell("PATH=$PWD/bin:$PATH tutti submit tool").expect(1);
    done.says("bin/tool names an interpreter that is not here: /opt/none/zsh");
    for fine in ["#!/bin/sh\n", "#!/usr/bin/env sh\n", "#! /usr/bin/env -S A=b sh -e\n"] {
        instance.script("job", fine);
        instance.tutti(&["submit", "-o", "/dev/null", "./job"]).expect(0);
    }
}

#[test]
fn all_problems_of_a_script_are_named_at_once() {
    let instance = Instance::new();
    let text = "#!/bin/sh\n\
        #SBATCH --gres=tape:1 --wckey=ALL\n\
        #TUTTI --tasks x -t 30 -c 1\n\
        #TUTTI --no-such-option -n 2\n\
        echo\n";
    rejected(
        &instance,
        text.as_bytes(),
        &[
            "./job: 4 problems",
            "line 2: tutti has nothing for sbatch's --gres",
            "line 3: --tasks: 'x' is no count",
            "line 3: --time: '30' has no unit; write 30s for seconds or 30m for minutes",
            "line 4: submit has no option --no-such-option",
        ],
    );
}

#[test]
fn options_of_a_script_without_effect_are_noted() {
    let instance = Instance::new().up();
    instance.script(
        "job",
        "#!/bin/sh\n\
         #SBATCH --wckey ALL -A lab -o /dev/null\n\
         #SBATCH --partition=debug\n\
         true\n\
         #SBATCH -n 7\n",
    );
    let noted = "./job: no effect here, ignored: --wckey (line 2), -A (line 2); \
                 line 5: an option line below the first command, and has no effect";
    instance.tutti(&["submit", "./job"]).expect(0).says(noted);
    let done = instance.tutti(&["submit", "--parsable", "./job"]).expect(0);
    assert_eq!((done.text().as_str(), done.err.as_str()), ("2\n", ""));
    finish(&instance, 2, 0);
}

#[test]
fn time_limit_needs_a_unit_and_is_shown() {
    let instance = Instance::new().up();
    let why = "--time: '30' has no unit; write 30s for seconds or 30m for minutes";
    instance.tutti(&["run", "-t", "30", "true"]).expect(2).says(why);
    instance.tutti(&["submit", "-t", "30", "true"]).expect(2).says(why);
    assert!(!instance.tutti(&["ps"]).expect(0).text().contains("LIMIT"));
    instance.script("job", "#!/bin/sh\n#SBATCH -t 30 -o /dev/null\nsleep 1000\n");
    let job = instance.submit(&["./job"]);
    instance.wait_for_state(job, "running");
    let shown = instance.job(job);
    assert_eq!(shown["time_limit_ms"], 1_800_000);
    let left = shown["time_left_ms"].as_u64().unwrap();
    assert!((1_000_000..=1_800_000).contains(&left), "{left} ms of half an hour are left");
    for table in [&["ps"][..], &["ps", "-l"], &["top", "--batch", "-n", "1"]] {
        let text = instance.tutti(table).expect(0).text();
        assert!(text.contains("LIMIT") && text.contains("LEFT"), "{text}");
        assert!(text.contains("30m00s"), "{text}");
    }
    instance.tutti(&["cancel", "--now", &job.to_string()]).expect(0);
    instance.tutti(&["wait", &job.to_string()]);
    let text = instance.tutti(&["history"]).expect(0).text();
    assert!(text.contains("LIMIT") && text.contains("30m00s"), "{text}");
    let text = instance.tutti(&["history", "--json"]).expect(0).text();
    assert!(text.contains("\"time_limit_ms\": 1800000"), "{text}");
}

#[test]
fn files_are_emptied_or_appended_to() {
    let instance = Instance::new().up();
    fs::write(instance.work.join("out"), "before\n").unwrap();
    let line = "echo $TUTTI_RANK";
    let job = instance.submit(&["-n", "4", "-o", "out", "--append", "sh", "-c", line]);
    finish(&instance, job, 0);
    assert_eq!(read(&instance, "out").lines().count(), 5);
    let job = instance.submit(&["-n", "4", "-o", "out", "sh", "-c", line]);
    finish(&instance, job, 0);
    assert_eq!(read(&instance, "out").lines().count(), 4, "emptied once, not by each rank");
    let job = instance.submit(&[
        "-n",
        "2",
        "-o",
        "%x-%j-%r-%N-%u-%%",
        "-e",
        "err-%r",
        "-J",
        "n",
        "sh",
        "-c",
        "echo o; echo e >&2",
    ]);
    finish(&instance, job, 0);
    let node = nix::unistd::gethostname().unwrap().into_string().unwrap();
    let user = std::env::var("USER").unwrap_or_else(|_| "0".into());
    assert_eq!(read(&instance, &format!("n-{job}-1-{node}-{user}-%")), "o\n");
    assert_eq!(read(&instance, "err-0"), "e\n");
}

#[test]
fn a_script_may_carry_its_options() {
    let instance = Instance::new().up();
    instance.script(
        "job",
        "#!/bin/sh\n\
         # a comment\n\
         #TUTTI -n 2 --output 'run-%j-%r.txt'\n\
         #TUTTI --name from-script\n\
         echo $TUTTI_RANK of $TUTTI_SIZE: \"$@\" in $(basename \"$PWD\")\n\
         #TUTTI -n 7\n",
    );
    let job = instance.submit(&["./job", "an argument"]);
    finish(&instance, job, 0);
    let place = instance.work.file_name().unwrap().to_str().unwrap();
    assert_eq!(read(&instance, "run-1-1.txt"), format!("1 of 2: an argument in {place}\n"));
    assert_eq!(instance.job(job)["name"], "from-script");
    // What is typed goes before what is written.
    let job = instance.submit(&["-n", "1", "-J", "typed", "./job"]);
    finish(&instance, job, 0);
    assert!(read(&instance, "run-2-0.txt").starts_with("0 of 1: "));
    assert_eq!(instance.job(job)["name"], "typed");
}

#[test]
fn options_that_need_each_other_may_stand_in_lines_of_their_own() {
    let instance = Instance::new().up();
    instance.tutti(&["params", "policy=deadline"]).expect(0);
    instance.script("job", "#!/bin/sh\n#TUTTI -o /dev/null\n#TUTTI -d 1h\n#TUTTI -t 2m\ntrue\n");
    finish(&instance, instance.submit(&["./job"]), 0);
    instance.script("job", "#!/bin/sh\n#TUTTI -o /dev/null -d 1h\ntrue\n");
    finish(&instance, instance.submit(&["-t", "2m", "./job"]), 0);
    instance.tutti(&["submit", "./job"]).expect(1).says("./job: submit needs --time");
}

#[test]
fn a_script_runs_as_it_was_when_it_was_submitted() {
    let instance = Instance::new().up();
    instance.tutti(&["params", "rows=1"]).expect(0);
    let first = instance.submit_spinner(2);
    instance.wait_for_state(first, "running");
    instance.script("job", "#!/bin/sh\n#TUTTI -n 2 -o out-%r\necho as submitted\n");
    let job = instance.submit(&["./job"]);
    instance.script("job", "#!/bin/sh\necho changed\n");
    instance.tutti(&["cancel", "--now", &first.to_string()]).expect(0);
    finish(&instance, job, 0);
    assert_eq!(read(&instance, "out-0"), "as submitted\n");
    let spool = fs::read_dir(instance.dir.join("jobs")).unwrap().count();
    assert_eq!(spool, 0, "its copy is left over");
}

#[test]
fn a_bad_line_of_a_script_is_named_by_its_number() {
    let instance = Instance::new().up();
    for (line, says) in [
        ("#TUTTI --no-such-option", "--no-such-option"),
        ("#TUTTI -n many", "many"),
        ("#TUTTI --time soon", "soon"),
        ("#TUTTI --name 'not closed", "quot"),
        ("#TUTTI surplus", "surplus"),
    ] {
        instance.script("job", &format!("#!/bin/sh\n\n#TUTTI -n 1\n{line}\ntrue\n"));
        let done = instance.tutti(&["submit", "./job"]).expect(1).says("./job: line 4");
        assert!(done.err.contains(says), "no {says:?} in {}", done.err);
    }
    assert!(instance.jobs().is_empty());
}

#[test]
fn a_job_for_which_there_is_no_room_waits_and_says_why() {
    let instance = Instance::new().up();
    instance.tutti(&["params", "rows=1"]).expect(0);
    let first = instance.submit_spinner(2);
    instance.wait_for_state(first, "running");
    let said = instance.tutti(&["submit", "-n", "2", "-o", "/dev/null", "true"]).expect(0);
    assert!(said.text().contains("and queued: too few processors are free"), "{}", said.text());
    let queued = instance.job(2);
    assert_eq!(queued["state"], "queued", "{queued}");
    assert!(queued["reason"].as_str().unwrap().contains("processors are free"), "{queued}");
    assert!(queued["row"].is_null());
    // More rows make room at once.
    instance.tutti(&["params", "rows=2"]).expect(0);
    finish(&instance, 2, 0);
    instance.tutti(&["cancel", "--now", "1"]).expect(0);
}

#[test]
fn jobs_that_wait_start_in_the_order_in_which_they_came() {
    let instance = Instance::new().up();
    instance.tutti(&["params", "rows=1"]).expect(0);
    let first = instance.submit_spinner(2);
    instance.wait_for_state(first, "running");
    let line = "echo $TUTTI_JOB >> order";
    let jobs: Vec<u64> = (0..6)
        .map(|index| {
            // Small ones do not overtake large ones.
            let tasks = if index % 2 == 0 { "2" } else { "1" };
            let line = format!("[ $TUTTI_RANK = 0 ] && {line}; sleep 0.05");
            instance.submit(&["-n", tasks, "-o", "/dev/null", "sh", "-c", &line])
        })
        .collect();
    instance.tutti(&["cancel", "--now", &first.to_string()]).expect(0);
    for &job in &jobs {
        instance.tutti(&["wait", &job.to_string()]).expect(0);
    }
    let order: Vec<u64> =
        read(&instance, "order").lines().map(|line| line.parse().unwrap()).collect();
    let mut large: Vec<u64> = order.clone();
    large.retain(|job| jobs.iter().position(|j| j == job).unwrap() % 2 == 0);
    let mut sorted = large.clone();
    sorted.sort_unstable();
    assert_eq!(large, sorted, "{order:?}");
    assert_eq!(order.len(), 6);
}

#[test]
fn memory_is_allocated_once() {
    let instance = Instance::new().up();
    let nodes = instance.tutti(&["nodes", "--json"]).expect(0).json();
    let all = nodes[0]["memory_bytes"].as_u64().unwrap() >> 20;
    let most = format!("{}M", all * 6 / 10);
    let sleep = ["-o", "/dev/null", "sh", "-c", "exec sleep $NAP"];
    let first = instance.submit(&[&["-m", &most][..], &sleep].concat());
    instance.wait_for_state(first, "running");
    let second = instance.submit(&[&["-m", &most][..], &sleep].concat());
    let queued = instance.wait_for_state(second, "queued");
    assert!(queued["reason"].as_str().unwrap().contains("memory"), "{queued}");
    let nodes = instance.tutti(&["nodes", "--json"]).expect(0).json();
    assert_eq!(nodes[0]["memory_allocated_bytes"].as_u64().unwrap() >> 20, all * 6 / 10);
    instance.tutti(&["cancel", &first.to_string()]).expect(0);
    instance.wait_for_state(second, "running");
    instance.tutti(&["cancel", &second.to_string()]).expect(0);
}

#[test]
fn many_small_jobs_all_run() {
    let instance = Instance::new().up();
    let line = "for i in $(seq 100); do tutti submit --parsable -o /dev/null sh -c 'echo x >> all' >/dev/null || exit 1; done";
    instance.shell(line).expect(0);
    eventually("the end of a hundred jobs", || {
        let ended = instance.jobs().iter().filter(|job| job["state"] == "ended").count();
        (ended == 100).then_some(())
    });
    assert_eq!(read(&instance, "all").len(), 200);
}

/// Output files have the numbers of their jobs. A user that logs out and in again, or asks from
/// elsewhere, finds the instance of before, and the one after it writes over nothing.
#[test]
fn a_users_own_instance_outlives_his_session_and_numbers_go_on_in_the_next() {
    let instance = Instance::new();
    let lasting = instance.work.join("lasting");
    fs::create_dir(&lasting).unwrap();
    let script = "set -e
        for session in 1 2; do
            mkdir session; export XDG_RUNTIME_DIR=$PWD/session
            \"$TUTTI\" submit --parsable -- echo session $session 2> /dev/null
            rmdir session; unset XDG_RUNTIME_DIR
        done
        \"$TUTTI\" wait 1 2
        \"$TUTTI\" down > /dev/null
        \"$TUTTI\" submit --parsable -- echo the next one 2> /dev/null
        \"$TUTTI\" wait 3
        \"$TUTTI\" down > /dev/null";
    let mut command = instance.command_in(&lasting, &["sh", "-c", script]);
    command.env_remove("TMPDIR");
    assert_eq!(Running::start(command).wait().expect(0).text(), "1\n2\n3\n");
    for (file, text) in [("1", "session 1"), ("2", "session 2"), ("3", "the next one")] {
        assert_eq!(read(&instance, &format!("tutti-{file}.out")).trim_end(), text);
    }
    let left = fs::read_dir(lasting.join("tutti-0")).unwrap().flatten();
    let mut left: Vec<String> =
        left.map(|entry| entry.file_name().into_string().unwrap()).collect();
    left.retain(|name| !name.starts_with("journal.db"));
    assert_eq!(left, ["jobs-made"]);
}

#[test]
fn submit_waits_for_the_end_of_the_job_if_it_is_asked_to() {
    let instance = Instance::new().up();
    let wait = |words: &[&str]| instance.tutti(&[&["submit", "--wait"], words].concat());
    let done = wait(&["-o", "/dev/null", "sh", "-c", "exit 7"]).expect(7);
    assert!(done.text().starts_with("job 1 is submitted"), "{}", done.text());
    let done = wait(&["--parsable", "-o", "/dev/null", "true"]).expect(0);
    assert_eq!(done.text(), "2\n");
    let line = "exit $((TUTTI_ARRAY_INDEX + 1))";
    wait(&["-a", "0-2", "-o", "/dev/null", "sh", "-c", line]).expect(3);
    instance.tutti(&["batch", "--wait", "-o", "/dev/null", "--wrap", "exit 5"]).expect(5);
    instance.script("ends.sh", "#!/bin/sh\n#TUTTI -n 1\nexit 6\n");
    for verb in ["batch", "submit"] {
        instance.tutti(&[verb, "--wait", "-o", "/dev/null", "ends.sh"]).expect(6);
        instance.tutti(&[verb, "--wait", "--", "ends.sh"]).expect(6);
    }
    let both = wait(&["--when", "true"]);
    assert_ne!(both.code, 0, "nothing is submitted that could be waited for");
}

#[test]
fn jobs_are_cancelled_by_their_state() {
    let instance = Instance::new().up();
    let nap = ["-o", "/dev/null", "sleep", &instance.nap];
    let runs = instance.submit(&nap);
    instance.wait_for_state(runs, "running");
    let held = instance.submit(&[&["--hold"], &nap[..]].concat());
    let array = instance.submit(&[&["--hold", "-a", "0-3"], &nap[..]].concat());
    // A state that none of those named is in ends none.
    instance.tutti(&["cancel", "--state", "queued", &runs.to_string()]).expect(0);
    instance.tutti(&["cancel", "--state", "running", &held.to_string()]).expect(0);
    instance.tutti(&["cancel", "--state", "queued", &format!("{array}_[0-1]")]).expect(0);
    let left = || -> Vec<u64> {
        let jobs = instance.jobs();
        let live = jobs.iter().filter(|job| job["state"] != "ended");
        live.map(|job| job["job"].as_u64().unwrap()).collect()
    };
    assert_eq!(left(), [runs, held, array]);
    let shown = instance.tutti(&["ps", "--json", &array.to_string()]).expect(0).json();
    assert_eq!(shown[0]["array"]["elements"]["cancelled"], 2, "{shown}");
    instance.tutti(&["cancel", "--state", "pending", "--me"]).expect(0).says("and what waits of");
    eventually("only what runs", || (left() == [runs]).then_some(()));
    let done = instance.tutti(&["cancel", "--state", "queued", &format!("{runs}.0")]);
    done.expect(1).says("--state is about whole jobs");
    instance.tutti(&["cancel", "--state", "running", "--me"]).expect(0).says("1 job to end");
    instance.tutti(&["wait", &runs.to_string()]).expect(143);
    instance.expect_no_nappers();
}
