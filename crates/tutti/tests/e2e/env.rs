//! What a task finds when it starts.

use crate::harness::{
    Instance, NOBODY, Running, eventually, needs_root, own_processors, status_of,
};
use nix::sys::signal::Signal;
use std::collections::BTreeMap;
use std::fs;

fn variables(text: &str) -> BTreeMap<String, String> {
    let pairs = text.lines().filter_map(|line| line.split_once('='));
    pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

#[test]
fn a_task_finds_its_place_in_its_environment() {
    let instance = Instance::new().up();
    instance.tutti(&["params", "quantum=50ms"]).expect(0);
    instance.tutti(&["run", "-n", "2", "-o", "env-%r", "env"]).expect(0);
    let found = variables(&fs::read_to_string(instance.work.join("env-1")).unwrap());
    let node = nix::unistd::gethostname().unwrap().into_string().unwrap();
    for (name, value) in [
        ("TUTTI_JOB", "1"),
        ("TUTTI_RANK", "1"),
        ("TUTTI_SIZE", "2"),
        ("TUTTI_LOCAL_RANK", "1"),
        ("TUTTI_LOCAL_SIZE", "2"),
        ("TUTTI_NODE_RANK", "0"),
        ("TUTTI_NODES", "1"),
        ("TUTTI_NODELIST", &node),
        ("TUTTI_CLASS", "interactive"),
        ("TUTTI_QUANTUM", "50ms"),
        ("RANK", "1"),
        ("LOCAL_RANK", "1"),
        ("WORLD_SIZE", "2"),
        ("LOCAL_WORLD_SIZE", "2"),
        ("MASTER_ADDR", "127.0.0.1"),
        ("OMP_NUM_THREADS", "1"),
    ] {
        assert_eq!(found.get(name).map(String::as_str), Some(value), "{name}");
    }
    assert!(found["MASTER_PORT"].parse::<u16>().is_ok());
    assert_eq!(found["PYTHONUNBUFFERED"], "1");
    // A single task divides its processors itself.
    let print = "echo ${OMP_NUM_THREADS-unset} $TUTTI_PROCESSORS_PER_TASK";
    let done = instance.tutti(&["run", "-c", "2", "sh", "-c", print]).expect(0);
    assert_eq!(done.text(), "unset 2\n");
}

#[test]
fn the_users_environment_comes_along_but_not_that_of_an_outer_job() {
    let instance = Instance::new().up();
    let mut command = instance.command(&["run", "env"]);
    command.env("OWN", "an own = value").env("OMP_NUM_THREADS", "7").env("TUTTI_RANK", "99");
    command.env("PMI_PORT", "nowhere").env("EMPTY", "").env("MASTER_ADDR", "10.0.0.9");
    let found = variables(&Running::start(command).wait().expect(0).text());
    assert_eq!(found["OWN"], "an own = value");
    assert_eq!(found["OMP_NUM_THREADS"], "7");
    assert_eq!(found["TUTTI_RANK"], "0");
    assert_eq!(found["MASTER_ADDR"], "10.0.0.9");
    assert_eq!(found["EMPTY"], "");
    assert!(!found.contains_key("PMI_PORT"));
    // A verb in a job speaks to the same instance.
    let tutti = env!("CARGO_BIN_EXE_tutti");
    let inner = |options: &[&str]| {
        let words = [&["run", tutti, "run"], options, &["sh", "-c", "echo $TUTTI_JOB"]].concat();
        instance.tutti(&words).expect(0).text()
    };
    assert_eq!(inner(&[]), "2\n", "a step of the second job");
    assert_eq!(inner(&["--outside"]), "4\n");
}

#[test]
fn each_task_is_bound_to_processors_of_its_own() {
    let instance = Instance::new().up();
    let own = own_processors();
    let (processors, first, last) = (own.len(), own[0], own[own.len() - 1]);
    let all = match last - first {
        1 => format!("{first}-{last}"),
        _ => format!("{first},{last}"),
    };
    let line = "echo $(grep Cpus_allowed_list: /proc/self/status) $TUTTI_PROCESSORS";
    let allowed = |args: &[&str]| {
        let args = [&["run"], args, &["sh", "-c", line]].concat();
        let text = instance.tutti(&args).expect(0).text();
        let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
        let found: Vec<String> = words.chunks(3).map(|chunk| chunk[1].clone()).collect();
        for chunk in words.chunks(3) {
            assert_eq!(chunk[1], chunk[2], "it is told other processors than it has");
        }
        found
    };
    let mut each = allowed(&["-n", "2"]);
    each.sort();
    each.dedup();
    assert_eq!(each.len(), 2, "both on the same processor");
    assert_eq!(allowed(&["-c", "2"]), [&*all]);
    let mut dealt = allowed(&["-n", &(processors * 2).to_string()]);
    dealt.sort();
    dealt.dedup();
    assert_eq!(dealt.len(), processors, "two on each");
    for shared in allowed(&["-n", &(processors * 2 + 1).to_string()]) {
        assert_eq!(shared, all);
    }
}

#[test]
fn directory_mask_and_limits_are_those_of_the_user() {
    let instance = Instance::new().up();
    let line = "umask 0137; ulimit -n 321; ulimit -c 0; cd /usr; \
        tutti run sh -c 'umask; ulimit -n; ulimit -c; pwd'";
    assert_eq!(instance.shell(line).expect(0).text(), "0137\n321\n0\n/usr\n");
}

#[test]
fn supplementary_groups_come_along() {
    needs_root("other groups");
    let instance = Instance::new().up();
    let line = "setpriv --groups 0,4,1234 tutti run id -G";
    let mut groups: Vec<u32> = instance
        .shell(line)
        .expect(0)
        .text()
        .split_whitespace()
        .map(|g| g.parse().unwrap())
        .collect();
    groups.sort_unstable();
    assert_eq!(groups, [0, 4, 1234]);
}

#[test]
fn a_task_is_born_with_default_signals_and_three_descriptors() {
    let instance = Instance::new().up();
    let line = "trap '' USR1 PIPE; exec 7</etc/passwd; tutti run sh -c 'grep -E \"Sig(Blk|Ign)\" /proc/self/status; ls /proc/$$/fd'";
    let text = instance.shell(line).expect(0).text();
    let words: Vec<&str> = text.split_whitespace().collect();
    assert_eq!(&words[..4], &["SigBlk:", "0000000000000000", "SigIgn:", "0000000000000000"]);
    // Standard input, output, errors, and the connection to the PMI server.
    assert_eq!(&words[4..], &["0", "1", "2", "3"], "{text}");
}

#[test]
fn on_a_system_instance_each_users_job_is_that_users_alone() {
    let instance = Instance::of_the_system().up();
    let program = instance.share(std::path::Path::new(env!("CARGO_BIN_EXE_tutti")));
    let as_user = |args: &[&str]| {
        // The same verbs through a copy that every user may run.
        let mut command = std::process::Command::new("setpriv");
        let id = NOBODY.to_string();
        command
            .args(["--reuid", &id, "--regid", &id, "--clear-groups", "--"])
            .arg(&program)
            .args(args);
        for (name, value) in instance.command(&[]).get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command.current_dir(&instance.work).stdin(std::process::Stdio::null());
        Running::start(command)
    };
    let done =
        as_user(&["run", "sh", "-c", "id -u; id -g; id -G; touch made-by-user"]).wait().expect(0);
    assert_eq!(done.text(), "65534\n65534\n65534\n");
    let roots = instance.submit(&["-o", "/dev/null", "sleep", &instance.nap]);
    instance.wait_for_state(roots, "running");
    let roots = roots.to_string();
    for verb in ["cancel", "suspend", "resume", "requeue", "wait"] {
        let done = as_user(&[verb, &roots]).wait();
        assert_ne!(done.code, 0, "{verb}");
        done.says("only its owner");
    }
    as_user(&["signal", "KILL", &roots]).wait().expect(1).says("only its owner");
    as_user(&["params", "quantum=10ms"]).wait().expect(1).says("only root");
    as_user(&["down"]).wait().expect(1).says("only root");
    let theirs = as_user(&["run", "sh", "-c", "echo up; exec sleep $NAP"]);
    theirs.wait_for("up");
    eventually("a process of the user", || {
        let theirs = |pid| status_of(pid, "Uid").is_some_and(|uid| uid.starts_with("65534"));
        instance.nappers().into_iter().any(theirs).then_some(())
    });
    let job = instance
        .jobs()
        .into_iter()
        .find(|job| job["user"] == "nobody" && job["state"] == "running");
    let job = job.unwrap()["job"].to_string();
    instance.tutti(&["cancel", &job]).expect(0);
    theirs.wait().expect(143);
    // A script of theirs runs as them as well.
    let script = instance.work.join("script");
    std::fs::write(&script, "#!/bin/sh\n#TUTTI -o script-out\nid -u\n").unwrap();
    let done = as_user(&["submit", "--parsable", "./script"]).wait().expect(0);
    as_user(&["wait", done.text().trim()]).wait().expect(0);
    assert_eq!(fs::read_to_string(instance.work.join("script-out")).unwrap(), "65534\n");
    // What they may not write is seen with their rights, not with the instance's.
    as_user(&["submit", "-o", "/root/out", "true"]).wait().expect(1).says("Permission denied");
    let down = instance.tutti(&["down"]).expect(0).text();
    let log = fs::read_to_string(instance.dir.join("log")).unwrap_or_default();
    assert!(!instance.dir.exists() || down.contains("is kept in"), "{down}{log}");
    assert!(!instance.dir.join("lock").exists());
    let _ = std::fs::remove_dir_all(&instance.dir);
}

/// It has connections of its own beside, also one for signals.
#[test]
fn a_low_limit_on_descriptors_is_the_tasks_and_not_the_front_ends() {
    let instance = Instance::new().up();
    let line = "ulimit -Sn 5; exec tutti run sh -c 'ulimit -Sn; exec sleep 1000'";
    let running = Running::start(instance.shell_command(line));
    running.wait_for("5\n");
    running.signal(Signal::SIGTERM);
    running.wait().expect(143);
}

/// A verb from a shell that has done something before.
fn from_shell(instance: &Instance, before: &str, args: &[&str]) -> Running {
    let verb = instance.command(args);
    let mut command = std::process::Command::new("sh");
    command.args(["-c", &format!("{before} \"$0\" \"$@\"")]).arg(verb.get_program());
    command.args(verb.get_args()).current_dir(&instance.work).stdin(std::process::Stdio::null());
    for (name, value) in verb.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    Running::start(command)
}

const LOW: &str = "ulimit -c 0; ulimit -t 1000; umask 0777; exec nice -n 7";

#[test]
fn each_job_has_the_mask_and_the_nice_value_of_its_own_shell_and_not_of_the_first_one() {
    needs_root("a lower nice value");
    let instance = Instance::new();
    let shown = |before| {
        let verb = from_shell(&instance, before, &["run", "sh", "-c", "ulimit -t; umask; nice"]);
        verb.wait().expect(0).text()
    };
    assert_eq!(shown(LOW), "1000\n0777\n7\n");
    assert_eq!(shown("ulimit -t 500; umask 027;"), "500\n0027\n0\n");
}

#[test]
fn an_instance_that_cannot_give_higher_limits_gives_what_it_has_and_says_so() {
    let instance = Instance::of_nobody();
    from_shell(&instance, LOW, &["run", "true"]).wait().expect(0);
    let run =
        |before: &str, line: &str| from_shell(&instance, before, &["run", "sh", "-c", line]).wait();
    let done = run("umask 027;", "ulimit -t; umask").expect(0);
    assert_eq!(done.text(), "1000\n0027\n");
    let niced = "the job has nice value 7 and not 0";
    assert!(done.err.contains(niced) && done.err.contains("[T073]"), "{}", done.err);
    assert_eq!(done.err.lines().count(), 1, "{}", done.err);
    from_shell(&instance, "", &["submit", "-o", "/dev/null", "true"]).wait().expect(0).says(niced);
    let done = run("exec nice -n 9", "nice").expect(0);
    assert_eq!((done.text().as_str(), done.err.as_str()), ("9\n", ""));
    run("", "exit 3").expect(3).says("its limits were lower than yours (ulimit -t");
    let done = run("ulimit -t 500; ulimit -c 0;", "exit 3").expect(3);
    assert!(!done.err.contains("limits"), "{}", done.err);
}

#[test]
fn an_instance_without_descriptors_for_a_task_does_not_start() {
    let instance = Instance::of_nobody();
    let done = from_shell(&instance, "ulimit -n 20; exec", &["run", "true"]).wait();
    done.expect(125).says("this shell allows 20 open files");
}
