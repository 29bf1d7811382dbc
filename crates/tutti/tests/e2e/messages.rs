//! What verbs say: about slips, about settings without effect, before they end jobs.

use crate::harness::{Done, Instance, Running};
use std::path::{Path, PathBuf};

#[test]
fn settings_without_effect_under_the_policy_say_so() {
    let instance = Instance::new().up();
    let says = |args: &[&str]| {
        let done = instance.tutti(args).expect(0);
        format!("{}{}", done.text(), done.err)
    };
    let idle = "jobs has no effect under policy=gang; it counts under policy=classes";
    let limit = &["params", "--class", "production", "jobs=2"][..];
    assert!(says(limit).contains(idle));
    assert!(!says(&["params", "--class", "production", "jobs=none"]).contains("no effect"));
    assert!(says(&["params", "deadline_slack=7s"]).contains("counts under policy=deadline"));
    assert!(!says(&["params", "quantum=50ms"]).contains("no effect"));
    let spent = "under policy=gang jobs count as standby once an allowance is spent";
    assert!(says(&["bank", "root=100h"]).contains(spent));
    assert!(!says(&["bank", "root=none"]).contains(spent));
    instance.tutti(&["params", "policy=classes"]).expect(0);
    assert!(!says(limit).contains("no effect"));
    assert!(!says(&["bank", "root=100h"]).contains("under policy"));
}

/// An instance with one job that runs and one that waits for it.
fn with_two_jobs() -> Instance {
    let instance = Instance::new().up();
    instance.tutti(&["params", "rows=1"]).expect(0);
    let first = instance.submit_spinner(2);
    instance.wait_for_state(first, "running");
    let second = instance.submit_spinner(2);
    instance.wait_for_state(second, "queued");
    instance
}

#[test]
fn down_counts_the_jobs_that_it_ends() {
    let instance = with_two_jobs();
    let down = instance.tutti(&["down"]).expect(0).text();
    assert!(down.contains("is down; ended with it: 1 running job and 1 queued job"), "{down}");
}

#[test]
fn down_asks_on_a_terminal_before_it_ends_jobs() {
    let instance = with_two_jobs();
    let on_terminal = |answer: &str, words: &str| {
        let line = format!("(sleep 1; echo {answer}) | script -qec 'tutti {words}' /dev/null");
        instance.shell(&line).text()
    };
    let said = on_terminal("n", "down");
    assert!(said.contains("this ends 1 running job and 1 queued job; go on? [y/N]"), "{said}");
    assert!(said.contains("nothing was ended"), "{said}");
    assert_eq!(instance.job(1)["state"], "running");
    let said = on_terminal("n", "down --yes");
    assert!(!said.contains("go on?") && said.contains("is down"), "{said}");
}

#[test]
fn private_instance_that_verbs_do_not_find_is_named() {
    let instance = Instance::of_the_system();
    let name = instance.dir.file_name().unwrap().to_str().unwrap();
    let place = Path::new("/var/tmp").join(name.replacen("tutti-", "tutti-0-", 1));
    let note = format!("a private instance of yours runs as well, in {}", place.display());
    let private = Private(&instance, place);
    private.shell("tutti up").expect(0);
    instance.tutti(&["up"]).expect(0).says(&note);
    instance.tutti(&["ps"]).expect(0).says(&note).says("TUTTI_DIR=");
    private.shell("tutti down").expect(0);
    assert_eq!(instance.tutti(&["ps"]).expect(0).err, "");
}

/// A private instance beside another, until this is dropped.
struct Private<'a>(&'a Instance, PathBuf);

impl Private<'_> {
    fn shell(&self, line: &str) -> Done {
        self.0.shell(&format!("export TUTTI_DIR={}; {line}", self.1.display()))
    }
}

impl Drop for Private<'_> {
    fn drop(&mut self) {
        drop(self.shell("tutti down; rm -rf \"$TUTTI_DIR\""));
    }
}

#[test]
fn cancel_counts_only_what_it_was_allowed_to_cancel() {
    let instance = Instance::of_the_system().up();
    let job = instance.submit_spinner(1);
    instance.wait_for_state(job, "running");
    let mut command = instance.command_as(Some(65534), &["cancel", "--user", "root"]);
    command.current_dir("/");
    let done = Running::start(command).wait().expect(1).says("tutti: 0 jobs to end");
    assert!(done.err.contains(&format!("job {job} ")), "{}", done.err);
    instance.tutti(&["cancel", "--now", "--user", "root"]).expect(0).says("tutti: 1 job to end");
}

#[test]
fn every_verb_has_the_version_of_the_program() {
    let instance = Instance::new();
    let version = instance.tutti(&["--version"]).expect(0).text();
    assert!(version.starts_with("tutti "), "{version}");
    for verb in ["run", "submit", "ps"] {
        assert_eq!(instance.tutti(&[verb, "--version"]).expect(0).text(), version);
    }
}
