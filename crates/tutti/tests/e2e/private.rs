//! What a private instance in its usual place keeps when it ends.

use crate::harness::{
    Done, Instance, NOBODY, Running, command_line, eventually, processes, status_of,
};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::PathBuf;

/// The usual place of an ordinary user's instance, in a directory of the test's own.
struct Place {
    instance: Instance,
    lasting: PathBuf,
}

impl Place {
    fn new() -> Self {
        let instance = Instance::of_nobody();
        let lasting = instance.work.join("lasting");
        fs::create_dir(&lasting).unwrap();
        chown(&lasting, Some(NOBODY), Some(NOBODY)).unwrap();
        Self { instance, lasting }
    }

    /// Runs a script of the user's; `$TUTTI` is the program.
    fn script(&self, script: &str) -> Done {
        let user = NOBODY.to_string();
        let mut words = vec!["setpriv", "--reuid", &user, "--regid", &user, "--clear-groups"];
        words.extend(["sh", "-c", script]);
        let mut command = self.instance.command_in(&self.lasting, &words);
        command.env_remove("TMPDIR").env("PATH", "/usr/local/bin:/usr/bin:/bin");
        Running::start(command).wait()
    }

    /// Other instances of this machine may have left something.
    fn expect_no_leftover(&self) {
        let found = self.script("\"$TUTTI\" doctor --leftovers").text();
        assert!(!found.contains(&format!("instance /var/tmp/tutti-{NOBODY}")), "{found}");
    }

    fn directory(&self) -> PathBuf {
        self.lasting.join(format!("tutti-{NOBODY}"))
    }

    fn files(&self) -> Vec<String> {
        let files = fs::read_dir(self.directory()).unwrap().flatten();
        let mut files: Vec<_> =
            files.map(|file| file.file_name().to_string_lossy().into_owned()).collect();
        files.sort();
        files
    }

    /// The daemons of the user.
    fn daemons(&self) -> Vec<i32> {
        let program = self.instance.program.to_str().unwrap();
        let is_one = |pid: &i32| {
            let uid = status_of(*pid, "Uid").unwrap_or_default();
            let words = command_line(*pid);
            let role = words.get(1).map(String::as_str);
            uid.starts_with(&NOBODY.to_string())
                && words.first().is_some_and(|word| word == program)
                && matches!(role, Some("up" | "keeper" | "controller" | "agent"))
        };
        processes().into_iter().filter(is_one).collect()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        for pid in self.daemons() {
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
    }
}

fn numbers(jobs: &Value) -> Vec<u64> {
    let jobs = jobs.as_array().unwrap().iter();
    jobs.map(|job| job["job"].as_u64().unwrap()).collect()
}

#[test]
fn history_and_parameters_stay_when_a_private_instance_ends() {
    let place = Place::new();
    place.script("\"$TUTTI\" run sh -c 'exit 3'").expect(3);
    place.script("\"$TUTTI\" params quantum=50ms && \"$TUTTI\" down").expect(0);
    assert_eq!(place.daemons(), [0; 0], "nothing runs");
    let mode = |path: PathBuf| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(place.directory()), 0o700);
    assert_eq!(mode(place.directory().join("journal.db")), 0o600);

    // Read from the journal.
    let jobs = place.script("\"$TUTTI\" history --json").expect(0).json();
    assert_eq!(numbers(&jobs), [1]);
    assert_eq!(jobs[0]["exit_code"], 3);
    assert_eq!(numbers(&place.script("\"$TUTTI\" ps -a --json").expect(0).json()), [1]);
    assert_eq!(place.script("\"$TUTTI\" history --json 1").expect(0).json()["job"]["job"], 1);
    place.script("\"$TUTTI\" wait 1").expect(3);
    place.script("\"$TUTTI\" wait 1-5").expect(3);
    place.script("\"$TUTTI\" wait 2").says("there is no job 2").says("[T021]");
    place.script("\"$TUTTI\" ps").says("[T010]");
    let quantum = place.script("\"$TUTTI\" params quantum").expect(0).text();
    assert!(quantum.contains("50ms"), "{quantum}");
    assert_eq!(place.daemons(), [0; 0], "reading starts nothing");

    // What is kept is no leftover; the next instance goes on with it.
    place.expect_no_leftover();
    place.script("\"$TUTTI\" run true").expect(0);
    let jobs = place.script("\"$TUTTI\" history --json").expect(0).json();
    assert_eq!(numbers(&jobs), [1, 2]);
    let quantum = place.script("\"$TUTTI\" params quantum").expect(0).text();
    assert!(quantum.contains("50ms"), "{quantum}");
}

#[test]
fn parameters_that_are_set_without_an_instance_start_one_and_stay() {
    let place = Place::new();
    let set = "\"$TUTTI\" params quantum=50ms && \"$TUTTI\" down && \"$TUTTI\" params quantum";
    let done = place.script(set).expect(0);
    assert!(done.text().contains("was 100ms and is 50ms now"), "{}", done.text());
    let shown = done.text();
    let row = shown.lines().find(|line| line.starts_with("quantum  ")).unwrap();
    assert!(row.contains("50ms"), "{shown}");
    assert_eq!(place.daemons(), [0; 0]);
}

#[test]
fn jobs_that_ended_too_long_ago_are_not_read_from_the_journal() {
    let place = Place::new();
    place.script("\"$TUTTI\" run true && \"$TUTTI\" down").expect(0);
    assert_eq!(numbers(&place.script("\"$TUTTI\" history --json").expect(0).json()), [1]);
    place.script("\"$TUTTI\" params keep_history=1s && \"$TUTTI\" run true").expect(0);
    place.script("\"$TUTTI\" down").expect(0);
    eventually("that the jobs are too old", || {
        let jobs = place.script("\"$TUTTI\" history --json").expect(0).json();
        jobs.as_array().unwrap().is_empty().then_some(())
    });
}

#[test]
fn what_processors_were_used_for_is_read_from_the_journal() {
    let place = Place::new();
    let measured = "\"$TUTTI\" params usage_interval=1s && \"$TUTTI\" run sleep 4";
    place.script(&format!("{measured} && \"$TUTTI\" down")).expect(0);
    let rows = place.script("\"$TUTTI\" history --usage --by node --json").expect(0).json();
    assert_eq!(rows.as_array().unwrap().len(), 1, "{rows}");
    assert_eq!(place.daemons(), [0; 0]);
}

#[test]
fn forgetting_leaves_only_the_number_of_the_last_job() {
    let place = Place::new();
    place.script("\"$TUTTI\" run true && \"$TUTTI\" down --forget").expect(0);
    assert_eq!(place.files(), ["jobs-made"]);
    place.script("\"$TUTTI\" history").says("no instance runs").says("[T010]");
    // Also of an instance that has ended before.
    place.script("\"$TUTTI\" run true && \"$TUTTI\" down").expect(0);
    assert!(place.files().contains(&"journal.db".into()), "{:?}", place.files());
    assert_eq!(numbers(&place.script("\"$TUTTI\" history --json").expect(0).json()), [2]);
    place.script("\"$TUTTI\" down --forget").expect(0);
    assert_eq!(place.files(), ["jobs-made"]);
}

/// All daemons are killed at once while a job runs.
#[test]
fn history_outlives_all_daemons_of_a_private_instance() {
    let place = Place::new();
    place.script("\"$TUTTI\" params quantum=50ms; \"$TUTTI\" run sh -c 'exit 3'").expect(3);
    let start = "\"$TUTTI\" submit -o /dev/null -- sleep \"$NAP\" && \"$TUTTI\" ps --json";
    place.script(start).expect(0);
    // Not those that end a task when its keeper ends.
    let all = place.daemons();
    let supervisor = |pid: &i32| command_line(*pid).get(1).is_some_and(|word| word == "up");
    let first = all.iter().copied().find(supervisor).unwrap().to_string();
    let of_first = |pid: &i32| status_of(*pid, "PPid").as_ref() == Some(&first);
    let (mut killed, _): (Vec<i32>, Vec<i32>) = all.iter().partition(|pid| of_first(pid));
    killed.insert(0, first.parse().unwrap());
    assert_eq!(killed.len(), 4, "{all:?}");
    for pid in killed {
        let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
    }
    eventually("the end of the daemons", || place.daemons().is_empty().then_some(()));
    eventually("the end of the task", || place.instance.nappers().is_empty().then_some(()));

    assert_eq!(numbers(&place.script("\"$TUTTI\" history --json").expect(0).json()), [1]);
    let waits = place.script("\"$TUTTI\" wait 2");
    waits.says("the one before has left 1 job").says("[T010]");
    place.script("\"$TUTTI\" run true").expect(0);
    let jobs = place.script("\"$TUTTI\" ps -a --json").expect(0).json();
    let known = numbers(&jobs);
    assert!(known.starts_with(&[1, 2]), "{jobs}");
    // Numbers that may have been given out before the fault stay unused.
    assert!(known.len() == 3 && known[2] >= 3, "{jobs}");
    assert_eq!(jobs[0]["exit_code"], 3, "{jobs}");
    let quantum = place.script("\"$TUTTI\" params quantum").expect(0).text();
    assert!(quantum.contains("50ms"), "{quantum}");
    place.script("\"$TUTTI\" cancel --now --all; \"$TUTTI\" down").expect(0);
    place.expect_no_leftover();
}
