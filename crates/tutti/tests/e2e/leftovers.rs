//! What jobs and instances leave behind: nothing, or what `tutti doctor --leftovers` finds.

use crate::harness::{Instance, eventually};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Command;

#[test]
fn each_job_has_a_directory_for_temporary_files_that_goes_with_it() {
    let instance = Instance::new().up();
    let line = "stat -c '%a %u' $TMPDIR; touch $TMPDIR/a; mkdir $TMPDIR/b; echo $TMPDIR; \
        tutti run sh -c 'echo $TMPDIR'";
    let line = format!("PATH={}:$PATH; {line}", instance.program.parent().unwrap().display());
    let mut command = instance.command(&["run", "sh", "-c", &line]);
    command.env_remove("TMPDIR");
    let done = crate::harness::Running::start(command).wait().expect(0);
    let lines: Vec<String> = done.text().lines().map(str::to_owned).collect();
    assert_eq!(lines[0], "700 0");
    assert_ne!(lines[1], lines[2], "a job within the job has the same");
    assert!(!Path::new(&lines[1]).exists() && !Path::new(&lines[2]).exists());
    let mut command = instance.command(&["run", "sh", "-c", "echo $TMPDIR"]);
    command.env("TMPDIR", &instance.work);
    let done = crate::harness::Running::start(command).wait().expect(0);
    assert_eq!(done.text().trim(), instance.work.to_str().unwrap(), "who has one keeps it");
    assert!(instance.work.exists());
}

#[test]
fn the_directory_is_the_users_alone() {
    let instance = Instance::of_the_system().up();
    let args = ["run", "sh", "-c", "stat -c '%a %u' $TMPDIR; touch $TMPDIR/a; echo $TMPDIR"];
    let mut command = instance.command_as(Some(crate::harness::NOBODY), &args);
    command.env_remove("TMPDIR");
    let done = crate::harness::Running::start(command).wait().expect(0);
    let text = done.text();
    let (mode, path) = text.trim().split_once('\n').unwrap();
    assert_eq!(mode, "700 65534");
    assert!(!Path::new(path).exists());
}

fn segments() -> Vec<String> {
    let text = fs::read_to_string("/proc/sysvipc/shm").unwrap();
    text.lines().skip(1).filter_map(|l| l.split_whitespace().nth(1).map(str::to_owned)).collect()
}

/// The number in what `ipcmk` says.
fn made(text: &str) -> String {
    text.lines().find_map(|line| line.rsplit(' ').next()).unwrap().trim().to_owned()
}

#[test]
fn shared_memory_that_a_job_made_goes_with_it_and_no_other_does() {
    let instance = Instance::new().up();
    let others = Command::new("ipcmk").args(["-M", "4096"]).output().unwrap();
    let others = made(&String::from_utf8_lossy(&others.stdout));
    let done = instance.tutti(&["run", "sh", "-c", "ipcmk -M 8192; sleep 0.1"]).expect(0);
    let of_job = made(&done.text());
    let left = segments();
    let shown = instance.tutti(&["doctor", "--leftovers"]).text();
    assert!(Command::new("ipcrm").args(["-m", &others]).status().unwrap().success());
    assert!(!left.contains(&of_job), "{of_job} is left");
    assert!(left.contains(&others), "{others} was another's");
    assert!(shown.contains(&format!("memory {others}: ")), "{shown}");
}

#[test]
fn what_is_left_of_an_instance_is_found_and_removed() {
    let instance = Instance::new().up();
    let line = "touch $TMPDIR/a; exec sleep $NAP";
    let mut command = instance.command(&["submit", "-o", "/dev/null", "sh", "-c", line]);
    command.env_remove("TMPDIR");
    crate::harness::Running::start(command).wait().expect(0);
    eventually("a sleep", || (instance.nappers().len() == 1).then_some(()));
    assert!(instance.told_leftovers().is_empty(), "it lives");
    let agent = instance.daemon("agent");
    let text = fs::read_to_string(format!("/proc/{agent}/stat")).unwrap();
    let supervisor = text.rsplit(')').next().unwrap().split_whitespace().nth(1).unwrap();
    let daemons = ["agent", "controller", "keeper"].map(|role| instance.daemon(role));
    kill(Pid::from_raw(supervisor.parse().unwrap()), Signal::SIGKILL).unwrap();
    for daemon in daemons {
        kill(Pid::from_raw(daemon), Signal::SIGKILL).unwrap();
    }
    eventually("the end of the daemons", || {
        daemons.iter().all(|pid| crate::harness::command_line(*pid).is_empty()).then_some(())
    });
    let told = instance.told_leftovers();
    for kind in ["instance", "cgroup", "directory"] {
        let kind = format!("\"kind\":\"{kind}\"");
        assert!(told.iter().any(|text| text.contains(&kind)), "no {kind} in {told:#?}");
    }
    // Others' tests may have left something for a moment: only ours is of interest.
    let done = instance.tutti(&["doctor", "--leftovers", "--remove"]);
    assert!(done.text().contains("with 1 processes; removed"), "{}", done.text());
    assert!(instance.told_leftovers().is_empty(), "{:#?}", instance.told_leftovers());
    instance.expect_no_nappers();
}

#[test]
fn the_directories_of_other_users_are_left_alone() {
    let instance = Instance::of_nobody();
    let path = std::env::temp_dir().join(format!("tutti-0-{:08x}-job-1", std::process::id()));
    fs::create_dir(&path).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    let done = instance.tutti(&["doctor", "--leftovers", "--remove"]);
    let exists = fs::metadata(&path).is_ok_and(|found| found.uid() == 0);
    fs::remove_dir(&path).unwrap();
    assert!(exists, "{}", done.text());
    assert!(done.text().contains(&path.display().to_string()), "{}", done.text());
}
