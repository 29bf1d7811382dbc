//! The Slurm face: the names of Slurm's commands, against real instances.

use crate::harness::{Done, Instance, Running, eventually, status_of};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs;

/// An instance with the face's names in its directory of work.
pub(crate) fn faced() -> Instance {
    let instance = Instance::new().up();
    instance.tutti(&["slurm", "link", "face"]).expect(0);
    instance
}

/// A command of the face.
fn start(instance: &Instance, words: &[&str]) -> Running {
    let command = instance.command(&[]);
    let mut face = std::process::Command::new(instance.work.join("face").join(words[0]));
    face.args(&words[1..]).current_dir(&instance.work).stdin(std::process::Stdio::null());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => face.env(name, value),
            None => face.env_remove(name),
        };
    }
    Running::start(face)
}

#[track_caller]
pub(crate) fn slurm(instance: &Instance, words: &[&str]) -> Done {
    start(instance, words).wait()
}

#[test]
fn what_slurm_refuses_is_refused_and_what_it_lists_is_listed() {
    let instance = faced();
    let wrong = slurm(&instance, &["sinfo", "-t", "blah"]).expect(1);
    wrong.says("Bad state string: \"blah\"").says("valid states: alloc,");
    let idle = slurm(&instance, &["sinfo", "-h", "-t", "idle,mix,alloc", "-o", "%D"]).expect(0);
    assert!(!idle.text().is_empty());
    assert_eq!(
        slurm(&instance, &["sinfo", "-T"]).expect(0).text(),
        "No reservations in the system\n"
    );
    let other = "'x' can't be reached now, or it is an invalid entry for --cluster.";
    let script = ["--parsable", "--wrap", "true", "-o", "/dev/null"];
    for words in [
        &["squeue", "-M", "x"][..],
        &["sinfo", "-M", "x"],
        &["sacct", "-M", "x"],
        &["scancel", "-M", "x", "1"],
        &["scontrol", "-M", "x", "show", "config"],
        &[&["sbatch", "-M", "x"], &script[..]].concat(),
        &["srun", "-M", "x", "true"],
    ] {
        slurm(&instance, words).expect(1).says(other);
    }
    let name = slurm(&instance, &["sacctmgr", "-n", "-P", "list", "clusters"]).expect(0).text();
    let name = name.split('|').next().unwrap().trim().to_owned();
    let submitted = slurm(&instance, &[&["sbatch", "-M", &name], &script[..]].concat()).expect(0);
    assert_eq!(submitted.text(), format!("1;{name}\n"));
    let listed = slurm(&instance, &["squeue", "-M", &name]).expect(0).text();
    assert!(listed.starts_with(&format!("CLUSTER: {name}\n")), "{listed}");
    instance.tutti(&["wait", "1"]).expect(0);
    slurm(&instance, &["srun", "--mpi=nosuch", "true"])
        .expect(1)
        .says("Invalid MPI type 'nosuch', --mpi=list for acceptable types");
    for mpi in ["--mpi=none", "--mpi=pmi2", "--mpi=pmix_v4"] {
        slurm(&instance, &["srun", mpi, "-n", "1", "true"]).expect(0);
    }
    let today = slurm(&instance, &["sacct", "-X", "-n", "-S", "01/01/20", "-o", "jobid"]).expect(0);
    assert!(today.text().contains('1'), "{today:?}");
    slurm(&instance, &["sacct", "-S", "13/45"]).expect(1).says("Invalid time specification");
    for words in [
        &["srun", "-n", "1", "true", ":", "-n", "2", "true"][..],
        &["salloc", "-n", "1", ":", "-n", "2", "true"],
        &["sbatch", "-n", "1", ":", "-n", "2", "job.sh"],
    ] {
        slurm(&instance, words).expect(1).says("heterogeneous jobs (':') are not available");
    }
    slurm(&instance, &["scontrol", "update", "PartitionName=production", "State=DOWN"])
        .expect(1)
        .says("a partition is a queue or a class here");
}

#[test]
fn accounts_that_no_job_has_cancel_none() {
    let instance = faced();
    let nap = ["sbatch", "--parsable", "-o", "/dev/null", "--wrap", "sleep $NAP"];
    slurm(&instance, &nap).expect(0);
    instance.wait_for_state(1, "running");
    let account = slurm(&instance, &["squeue", "-h", "-o", "%a"]).expect(0).text();
    for words in [["-A", "nosuch"], ["-q", "nosuch"], ["-R", "nosuch"]] {
        slurm(&instance, &[&["scancel"], &words[..]].concat()).expect(0);
    }
    assert_eq!(instance.job(1)["state"], "running");
    slurm(&instance, &["scancel", "-A", account.trim()]).expect(0);
    instance.tutti(&["wait", "1"]);
    assert_eq!(instance.job(1)["state"], "ended");
}

#[test]
fn a_script_of_slurm_is_submitted_listed_and_accounted() {
    let instance = faced();
    instance.script(
        "job.sh",
        "#!/bin/bash\n#SBATCH -J solver --ntasks=2\n#SBATCH --time=5\n#SBATCH --output=%x-%j.txt\n\
         #SBATCH --account=none --mail-type=NONE\n\
         echo $1 $SLURM_JOB_ID $SLURM_NTASKS $SLURM_JOB_NAME $SLURM_PROCID $SLURM_SUBMIT_DIR\n\
         which srun; while [ ! -e stop ]; do sleep 0.05; done; exit 3\n",
    );
    let done = slurm(&instance, &["sbatch", "job.sh", "arg"]).expect(0);
    assert_eq!(done.text(), "Submitted batch job 1\n", "and nothing else");
    // It is there before sbatch has ended.
    let listed =
        slurm(&instance, &["squeue", "-h", "-j", "1", "-o", "%i|%j|%P|%l|%D|%C"]).expect(0);
    assert_eq!(listed.text(), "1|solver|production|5:00|1|2\n");
    let known = slurm(&instance, &["sacct", "-X", "-n", "-P", "-j", "1", "-o", "jobid,jobname"]);
    assert_eq!(known.expect(0).text(), "1|solver\n");
    eventually("the job runs", || {
        let state = slurm(&instance, &["squeue", "--noheader", "--job", "1", "--format=%t"]);
        (state.text() == "R\n").then_some(())
    });
    let table = slurm(&instance, &["squeue"]).expect(0).text();
    let columns = ["JOBID", "PARTITION", "NAME", "USER", "ST", "TIME", "NODES", "NODELIST(REASON)"];
    let heading: Vec<&str> = table.lines().next().unwrap().split_whitespace().collect();
    assert_eq!(heading, columns);
    let shown = slurm(&instance, &["scontrol", "show", "job", "-o", "1"]).expect(0).text();
    for says in ["JobId=1 JobName=solver", "JobState=RUNNING", "NumTasks=2", "BatchFlag=1"] {
        assert!(shown.contains(says), "no {says} in: {shown}");
    }
    fs::write(instance.work.join("stop"), "").unwrap();
    instance.tutti(&["wait", "1"]).expect(3);
    let text = fs::read_to_string(instance.work.join("solver-1.txt")).unwrap();
    let (work, face) = (instance.work.display(), instance.work.join("face/srun"));
    assert_eq!(text, format!("arg 1 2 solver 0 {work}\n{}\n", face.display()));
    let rows = slurm(&instance, &["sacct", "--parsable2", "-j", "1", "-o", "JobID,State,ExitCode"]);
    let expected = "JobID|State|ExitCode\n1|FAILED|3:0\n1.batch|FAILED|3:0\n";
    assert_eq!(rows.expect(0).text(), expected);
    let states = slurm(&instance, &["squeue", "-h", "-t", "all", "-o", "%i %T"]).expect(0);
    assert_eq!(states.text(), "1 FAILED\n");
    assert_eq!(slurm(&instance, &["squeue", "-h"]).expect(0).text(), "");
}

#[test]
fn jobs_are_ended_by_number_and_name_and_an_unknown_one_is_an_error() {
    let instance = faced();
    let nap = ["sbatch", "--parsable", "-o", "/dev/null", "-J", "nap", "--wrap", "sleep $NAP"];
    for number in 1..=3 {
        assert_eq!(slurm(&instance, &nap).expect(0).text(), format!("{number}\n"));
    }
    slurm(&instance, &["scancel", "-v", "1"]).expect(0).says("Terminating job 1");
    instance.tutti(&["wait", "1"]);
    let state = slurm(&instance, &["sacct", "-n", "-X", "-P", "-j", "1", "-o", "state"]).expect(0);
    assert!(state.text().starts_with("CANCELLED by "), "{}", state.text());
    slurm(&instance, &["scancel", "--me", "--name=nap"]).expect(0);
    instance.tutti(&["wait", "2", "3"]);
    slurm(&instance, &["scancel", "1"]).expect(0);
    slurm(&instance, &["scancel", "99"]).expect(1).says("Invalid job id specified");
    slurm(&instance, &["squeue", "-j", "99"]).expect(1).says("Invalid job id specified");
    slurm(&instance, &["squeue", "-j", "98,99"]).expect(0);
    slurm(&instance, &["sacct", "-j", "99"]).expect(0);
}

#[test]
fn jobs_of_a_controller_that_is_gone_are_not_taken_for_ended() {
    let instance = faced();
    let none = slurm(&instance, &["squeue", "-h"]).expect(0);
    assert_eq!(none.text(), "");
    instance.script("nap.sh", &format!("#!/bin/sh\nexec sleep {}\n", instance.nap));
    slurm(&instance, &["sbatch", "nap.sh"]).expect(0);
    instance.wait_for_state(1, "running");
    let supervisor = status_of(instance.daemon("keeper"), "PPid").unwrap().parse().unwrap();
    let controller = instance.daemon("controller");
    for pid in [supervisor, controller] {
        kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap();
    }
    eventually("the controller is gone", || {
        instance.daemon_now("controller").is_none().then_some(())
    });
    for words in [&["squeue", "-h"][..], &["scontrol", "show", "job", "1"], &["scancel", "1"]] {
        slurm(&instance, words).expect(1).says("its jobs run");
    }
    slurm(&instance, &["squeue", "-j", "1"]).expect(1).says("Unable to contact slurm controller");
    instance.tutti(&["up"]).expect(0);
    let back = slurm(&instance, &["squeue", "-h", "-o", "%i %t"]).expect(0).text();
    assert_eq!(back, "1 R\n");
    slurm(&instance, &["scancel", "1"]).expect(0);
}

#[test]
fn sbatch_waits_tests_only_and_names_all_problems() {
    let instance = faced();
    slurm(&instance, &["sbatch", "--wait", "-o", "/dev/null", "--wrap", "exit 7"]).expect(7);
    let tested =
        slurm(&instance, &["sbatch", "--test-only", "-n", "2", "-c", "1", "--wrap", "true"]);
    tested.expect(0).says("using 2 processors in partition production");
    instance
        .script("bad.sh", "#!/bin/sh\n#SBATCH --array=3-1\n#SBATCH -t soon\ntrue\n#SBATCH -n 2\n");
    let done = slurm(&instance, &["sbatch", "bad.sh"]).expect(1);
    assert_eq!(done.text(), "");
    let done = done.says("sbatch: error: line 2: ").says("sbatch: error: line 3: ");
    assert!(!done.err.contains("line 5"), "{}", done.err);
    let checked = instance.tutti(&["slurm", "check", "bad.sh"]).expect(1).text();
    assert!(checked.contains("line 5: option lines below"), "{checked}");
    instance.script("ours.sh", "#!/bin/sh\n#TUTTI --bogus\ntrue\n");
    let checked = instance.tutti(&["slurm", "check", "ours.sh"]).expect(1).text();
    assert!(checked.contains("error: line 2: batch has no option --bogus"), "{checked}");
    instance.script("zero.sh", "#!/bin/sh\ntrue\n\0\n");
    slurm(&instance, &["sbatch", "zero.sh"]).expect(1).says("line 3 has a zero byte");
    assert_eq!(instance.jobs().len(), 1, "nothing else was submitted");
    // A pipe of the shell is a script; a named one may have no other end.
    let line = "bash -c \"face/sbatch -W -o of-pipe \
                <(printf '#!/bin/sh\\necho \\$1 from a pipe\\n') text\"";
    instance.shell(line).expect(0);
    assert_eq!(fs::read_to_string(instance.work.join("of-pipe")).unwrap(), "text from a pipe\n");
    nix::unistd::mkfifo(&instance.work.join("named"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    slurm(&instance, &["sbatch", "named"]).expect(1).says("it is no file");
}

#[test]
fn nodes_partitions_and_lists_are_shown() {
    let instance = faced();
    let text = slurm(&instance, &["sinfo", "-h", "-o", "%P %a %l %D %t"]).expect(0).text();
    assert!(text.lines().any(|line| line.starts_with("production* up infinite 1 ")), "{text}");
    let node = slurm(&instance, &["scontrol", "show", "-o", "nodes"]).expect(0).text();
    assert!(node.starts_with("NodeName=") && node.lines().count() == 1, "{node}");
    let config = slurm(&instance, &["scontrol", "show", "config"]).expect(0).text();
    for name in ["ClusterName", "MaxArraySize", "MinJobAge", "SLURM_VERSION", "ProctrackType"] {
        assert!(config.contains(name), "no {name} in: {config}");
    }
    let names = slurm(&instance, &["scontrol", "show", "hostnames", "a[1-3]"]).expect(0);
    assert_eq!(names.text(), "a1\na2\na3\n");
    let list = slurm(&instance, &["scontrol", "show", "hostlist", "a1,a2,a3"]).expect(0);
    assert_eq!(list.text(), "a[1-3]\n");
    slurm(&instance, &["scontrol", "ping"]).expect(0);
    assert_eq!(slurm(&instance, &["srun", "--version"]).expect(0).text(), "slurm 24.11.5\n");
    for name in ["sbatch", "srun", "squeue", "sacct", "scancel", "scontrol", "sinfo"] {
        assert!(slurm(&instance, &[name, "--help"]).expect(0).text().contains(name));
    }
    for words in [["squeue", "--nosuch"], ["sinfo", "--nosuch"], ["sacct", "--nosuch"]] {
        slurm(&instance, &words).expect(1).says("unrecognized option '--nosuch'");
    }
}

#[test]
fn srun_runs_tasks_that_know_their_place() {
    let instance = faced();
    let line = "echo $SLURM_PROCID of $SLURM_NTASKS $SLURM_LOCALID";
    let done = slurm(&instance, &["srun", "-n", "2", "sh", "-c", line]).expect(0);
    assert_eq!(done.sorted(), ["0 of 2 0", "1 of 2 1"]);
    slurm(&instance, &["srun", "sh", "-c", "exit 4"]).expect(4);
    slurm(&instance, &["srun", "--bcast=x", "true"]).expect(1).says("--bcast is not available");
    // Without the face, and without --slurm, a job finds none of Slurm's variables.
    let plain = ["run", "sh", "-c", "echo ${SLURM_JOB_ID:-none}"];
    assert_eq!(instance.tutti(&plain).expect(0).text(), "none\n");
    let with = ["run", "--slurm", "sh", "-c", "echo ${SLURM_NTASKS:-none}"];
    assert_eq!(instance.tutti(&with).expect(0).text(), "1\n");
}

#[test]
fn a_job_out_of_its_turn_runs_and_one_that_a_user_suspended_does_not() {
    let instance = faced();
    let nap = ["sbatch", "-n", "2", "-o", "/dev/null", "--wrap", "sleep $NAP"];
    for _ in 0..2 {
        slurm(&instance, &nap).expect(0);
    }
    let states = || slurm(&instance, &["squeue", "-h", "-S", "i", "-o", "%t"]).expect(0).text();
    eventually("both run", || (states() == "R\nR\n").then_some(()));
    // One of them has no turn at any moment.
    for _ in 0..5 {
        assert_eq!(states(), "R\nR\n");
    }
    for (limit, shown) in [("TimeLimit=1:00:00", "01:00:00"), ("timelimit=+30", "01:30:00")] {
        slurm(&instance, &["scontrol", "update", "JobId=1", limit]).expect(0);
        let job = slurm(&instance, &["scontrol", "show", "job", "-o", "1"]).expect(0).text();
        assert!(job.contains(&format!("TimeLimit={shown}")), "{job}");
    }
    let wrong = slurm(&instance, &["scontrol", "update", "JobId=1", "TimeLimit=soon"]);
    wrong.expect(1).says("TimeLimit: ");
    slurm(&instance, &["scontrol", "suspend", "1"]).expect(0);
    eventually("one is suspended", || (states() == "S\nR\n").then_some(()));
    slurm(&instance, &["scontrol", "resume", "1"]).expect(0);
    eventually("both run again", || (states() == "R\nR\n").then_some(()));
    let held = ["sbatch", "--parsable", "-H", "-o", "/dev/null", "--wrap", "true"];
    assert_eq!(slurm(&instance, &held).expect(0).text(), "3\n");
    let waits = slurm(&instance, &["squeue", "-h", "-j", "3", "-o", "%T %r"]).expect(0);
    assert_eq!(waits.text(), "PENDING JobHeldUser\n");
    slurm(&instance, &["scontrol", "release", "3"]).expect(0);
    instance.tutti(&["wait", "3"]).expect(0);
    let after = ["sbatch", "-d", "afterok:1", "-o", "/dev/null", "--wrap", "true"];
    assert_eq!(slurm(&instance, &after).expect(0).text(), "Submitted batch job 4\n");
    let waits = slurm(&instance, &["squeue", "-h", "-j", "4", "-o", "%t %r"]).expect(0);
    assert_eq!(waits.text(), "PD Dependency\n");
    slurm(&instance, &["scancel", "--me"]).expect(0);
}

#[test]
fn srun_in_a_job_has_the_number_of_that_job() {
    let instance = faced();
    let line = "srun -o inner-%j sh -c 'echo $SLURM_JOB_ID $SLURM_PROCID'; scontrol show hostnames";
    slurm(&instance, &["sbatch", "--wait", "-o", "outer", "--wrap", line]).expect(0);
    assert_eq!(fs::read_to_string(instance.work.join("inner-1")).unwrap(), "1 0\n");
    let node = slurm(&instance, &["sinfo", "-h", "-o", "%n"]).expect(0).text();
    assert_eq!(fs::read_to_string(instance.work.join("outer")).unwrap(), node);
}

#[test]
fn srun_in_a_script_starts_steps_of_its_job() {
    let instance = faced();
    instance.script(
        "steps.sh",
        "#!/bin/bash\n#SBATCH -n 2 -o steps-%j\n\
         srun sh -c 'echo $SLURM_JOB_ID: $SLURM_PROCID of $SLURM_NTASKS' | sort\n\
         srun -n 1 --exclusive -t 1 --mem=0 sh -c 'touch a; while [ ! -e b ]; do sleep 0.05; done' &\n\
         srun -n 1 --exact sh -c 'touch b; while [ ! -e a ]; do sleep 0.05; done' &\n\
         wait; srun -n 1 -w nowhere true; srun -n 3 true; srun -n 2 sh -c 'exit 7'\n",
    );
    slurm(&instance, &["sbatch", "--wait", "steps.sh"]).expect(7);
    let said = fs::read_to_string(instance.work.join("steps-1")).unwrap();
    assert!(said.starts_with("1: 0 of 2\n1: 1 of 2\n"), "{said}");
    assert!(said.contains("the job has no node nowhere"), "{said}");
    let jobs = slurm(&instance, &["squeue", "-h", "-t", "all", "-o", "%i"]).expect(0).text();
    assert_eq!(jobs, "1\n", "no step is a job");
}

#[test]
fn lists_of_jobs_have_their_nodes_and_steps_and_what_they_run() {
    let instance = faced();
    let script = ["sbatch", "--wait", "-n", "2", "-o", "/dev/null", "--wrap", "srun -n 2 true"];
    slurm(&instance, &script).expect(0);
    slurm(&instance, &["sbatch", "-H", "-o", "/dev/null", "--wrap", "true"]).expect(0);
    slurm(&instance, &["scancel", "2"]).expect(0);
    let node = slurm(&instance, &["sinfo", "-h", "-o", "%n"]).expect(0).text();
    let node = node.trim();
    let listed = |words: &[&str]| slurm(&instance, words).expect(0).text();
    let all = listed(&["squeue", "-h", "-t", "all", "-S", "i", "-o", "%i %N %D"]);
    assert_eq!(all, format!("1 {node} 1\n2  1\n"));
    let rows = listed(&["sacct", "-n", "-P", "-S", "now-1hour", "-o", "jobid,nodelist,alloccpus"]);
    let expected = format!("1|{node}|2\n1.batch|{node}|2\n1.0||\n2|None assigned|1\n");
    assert_eq!(rows, expected);
    let on_node = ["sacct", "-n", "-X", "-P", "-S", "now-1hour", "-N", node, "-o", "jobid"];
    assert_eq!(listed(&on_node), "1\n", "an ended job is found by its node");
    // So many that they are not asked for one by one.
    let many = "for i in $(seq 101); do face/sbatch -Q -H -o /dev/null --wrap true; done";
    instance.shell(many).expect(0);
    let directories = listed(&["squeue", "-h", "-o", "%Z"]);
    let here = instance.work.display().to_string();
    assert_eq!(directories.lines().filter(|line| *line == here).count(), 101, "{directories}");
    slurm(&instance, &["scancel", "--me"]).expect(0);
}

#[test]
fn squeue_lists_elements_and_json_and_knows_the_one_account() {
    let instance = faced();
    let words = ["sbatch", "-H", "-a", "0-4%2", "-J", "many", "-o", "/dev/null", "--wrap", "true"];
    slurm(&instance, &words).expect(0);
    let listed = |more: &[&str]| {
        let words = [&["squeue", "-h", "-o", "%i %a %q"], more].concat();
        slurm(&instance, &words).expect(0).text()
    };
    assert_eq!(listed(&[]), "1_[0-4%2] tutti normal\n");
    let each = listed(&["-r"]);
    assert_eq!(each.lines().count(), 5, "{each}");
    assert!(each.starts_with("1_0 tutti normal\n1_1 "), "{each}");
    for (words, count) in [
        (["-A", "tutti"], 1),
        (["-A", "other"], 0),
        (["-q", "normal"], 1),
        (["-q", "long"], 0),
        (["-R", "monday"], 0),
    ] {
        assert_eq!(listed(&words).lines().count(), count, "{words:?}");
    }
    slurm(&instance, &["squeue", "-i", "0"]).expect(1).says("write seconds");
    slurm(&instance, &["squeue", "--yaml"]).expect(1).says("--json has the same fields");
    let repeats = start(&instance, &["squeue", "-i", "1", "-h", "-o", "%j"]);
    eventually("twice", || (repeats.out().matches("many").count() > 1).then_some(()));
    repeats.signal(Signal::SIGINT);
    repeats.wait();
    instance.script("j.sh", "#!/bin/sh\n#SBATCH -t 90 -o out-%j\nexec sleep $NAP\n");
    slurm(&instance, &["sbatch", "j.sh"]).expect(0);
    eventually("it runs", || (!instance.nappers().is_empty()).then_some(()));
    let json = slurm(&instance, &["squeue", "--json"]).expect(0).json();
    let of = |name: &str| {
        let jobs = json["jobs"].as_array().unwrap();
        jobs.iter().find(|job| job["name"] == name).cloned().unwrap()
    };
    let (array, job) = (of("many"), of("j.sh"));
    assert_eq!(array["job_state"][0], "PENDING");
    assert_eq!(array["state_reason"], "JobHeldUser");
    assert_eq!(array["array_task_string"], "0-4");
    assert_eq!(array["array_max_tasks"]["number"], 2);
    assert_eq!(job["job_state"][0], "RUNNING");
    assert_eq!(job["time_limit"]["number"], 90);
    assert_eq!(job["cpus"]["number"], 1);
    let output = job["standard_output"].as_str().unwrap();
    assert!(output.ends_with("/out-2"), "{job}");
    assert_eq!(json["errors"].as_array().unwrap().len(), 0);
    slurm(&instance, &["scancel", "--me"]).expect(0);
    eventually("it ends", || instance.nappers().is_empty().then_some(()));
}

#[test]
fn unknown_names_are_rejected_where_the_site_says_so() {
    let instance = faced();
    let words = ["-o", "/dev/null", "-A", "proj", "--wrap", "true"];
    let noted = slurm(&instance, &[&["sbatch"][..], &words].concat()).expect(0);
    noted.says("there are no accounts");
    instance.tutti(&["params", "slurm_strict=on"]).expect(0);
    let rejected = slurm(&instance, &[&["sbatch"][..], &words].concat()).expect(1);
    rejected.says("invalid account, the only one is tutti: proj");
    slurm(&instance, &["srun", "-p", "nowhere", "true"]).expect(1).says("invalid partition");
    slurm(&instance, &["srun", "-A", "tutti", "-q", "normal", "true"]).expect(0);
}

#[test]
fn mpiexec_starts_a_job_and_calls_another_one_inside_a_job() {
    let instance = Instance::new().up();
    let home = instance.work.display();
    let line = |line: &str| {
        let env = format!("unset XDG_DATA_HOME; export HOME={home} PATH=$PWD/other:$PATH");
        instance.shell(&format!("{env}; eval \"$(tutti slurm env --mpi)\"; {line}"))
    };
    let echo = "sh -c 'echo $TUTTI_RANK of $TUTTI_SIZE, $A'";
    let done = line(&format!("mpiexec -n 2 -env A 1 {echo}")).expect(0);
    assert_eq!(done.sorted(), ["0 of 2, 1", "1 of 2, 1"]);
    line("mpirun -nosuch true").expect(1).says("option -nosuch is not available");
    let inner = |words: &str| line(&format!("tutti run -n 1 sh -c '{words}'"));
    let alone = "PATH=$HOME/.local/share/tutti/mpi mpirun -n 1 /bin/echo step";
    assert_eq!(inner(alone).expect(0).text(), "step\n");
    // That of an MPI library knows how to start processes in a job.
    fs::create_dir(instance.work.join("other")).unwrap();
    instance.script("other/mpirun", "#!/bin/sh\necho other \"$@\"\n");
    assert_eq!(inner("mpirun -n 1 x").expect(0).text(), "other -n 1 x\n");
    // One that calls this one in turn does not do so for ever.
    let back = "#!/bin/sh\nexec $HOME/.local/share/tutti/mpi/mpirun \"$@\"\n";
    instance.script("other/mpirun", back);
    assert_eq!(inner("mpirun -n 1 /bin/echo step").expect(0).text(), "step\n");
}

#[test]
fn each_task_of_srun_runs_the_program_that_a_file_names_for_it() {
    let instance = faced();
    let of = |name: &str, text: &str| fs::write(instance.work.join(name), text).unwrap();
    of(
        "tasks",
        "# three kinds\n0 echo 'the first' %t\n1,3 echo \"it's %t\" \\\n %o\n* sh -c 'exit %t'\n",
    );
    let done = slurm(&instance, &["srun", "-n", "4", "--multi-prog", "tasks"]).expect(2);
    assert_eq!(done.sorted(), ["it's 1 0", "it's 3 1", "the first 0"]);
    assert_eq!(instance.job(1)["name"], "tasks");
    of("gap", "0 true\n");
    let done = slurm(&instance, &["srun", "-n", "2", "--multi-prog", "gap"]).expect(1);
    done.says("srun: error: --multi-prog gap: no line names task 1");
    slurm(&instance, &["srun", "--multi-prog", "none"]).expect(1).says("No such file");
    slurm(&instance, &["srun", "--multi-prog"]).expect(1);
    slurm(&instance, &["salloc", "--multi-prog"]).expect(1).says("is an option of srun");
    // In a script it is a step.
    instance.script("s.sh", "#!/bin/sh\n#SBATCH -n 2 -o out\nsrun --multi-prog both\n");
    of("both", "0-1 echo step $SLURM_STEP_ID %t\n");
    slurm(&instance, &["sbatch", "--wait", "s.sh"]).expect(0);
    let text = fs::read_to_string(instance.work.join("out")).unwrap();
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["step $SLURM_STEP_ID 0", "step $SLURM_STEP_ID 1"], "no shell reads it");
}
