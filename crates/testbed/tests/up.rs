//! `testbed` clears away what it has made, also at SIGTERM. As root; the program on its nodes is a
//! stand-in, since nothing is asked of it.
#![allow(clippy::unwrap_used, reason = "a test that can't go on has failed")]

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs;
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Makes what is to be executed. Not by this process: what another thread starts meanwhile would
/// have it open for writing for a moment, and no process could execute it.
fn shell(line: &str, paths: &[&Path]) {
    assert!(Command::new("sh").args(["-c", line]).args(paths).status().unwrap().success());
}

fn write_script(path: &Path, script: &str) {
    let line = "printf '#!/bin/sh\\n%s\\n' \"$1\" > \"$0\" && chmod 755 \"$0\"";
    shell(line, &[path, script.as_ref()]);
}

/// A test bed that runs in a directory of its own.
struct Up {
    process: Child,
    directory: PathBuf,
}

impl Up {
    /// With this script for a program, and this command on the first of two nodes.
    fn start(name: &str, script: &str, command: &str) -> Self {
        Self::with(name, script, &["up", "2"], &["--", "sh", "-c", command])
    }

    /// With this script for a program, and these words before and after it.
    fn with(name: &str, script: &str, before: &[&str], after: &[&str]) -> Self {
        let directory = std::env::temp_dir().join(format!("testbed-{}-{name}", std::process::id()));
        fs::create_dir(&directory).unwrap();
        let program = directory.join("tutti");
        write_script(&program, script);
        let mut up = Command::new(env!("CARGO_BIN_EXE_testbed"));
        up.args(before).arg("--program").arg(program).args(after);
        up.env("TMPDIR", &directory).stdout(Stdio::piped()).stderr(Stdio::piped());
        Self { process: up.spawn().unwrap(), directory }
    }

    /// What this command on the first of such nodes has to say.
    fn told(name: &str, script: &str, before: &[&str], command: &str) -> String {
        let mut up = Self::with(name, script, before, &["--", "sh", "-c", command]);
        let mut told = String::new();
        up.process.stdout.take().unwrap().read_to_string(&mut told).unwrap();
        let (status, said) = up.end();
        assert!(status.success(), "{status}: {said}");
        told
    }

    fn tell(&self, signal: Signal) {
        kill(Pid::from_raw(self.process.id().cast_signed()), signal).unwrap();
    }

    /// Waits until the command has made this file.
    fn wait_for(&self, file: &str) {
        let patience = Instant::now() + Duration::from_secs(60);
        while !self.directory.join(file).exists() {
            assert!(Instant::now() < patience, "there is no {file}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// How it ended and what it said, once nothing is left of its nodes.
    fn end(mut self) -> (ExitStatus, String) {
        let mut said = String::new();
        self.process.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        let status = self.process.wait().unwrap();
        let bed = format!("tb-{}", self.process.id());
        assert!(!self.directory.join(&bed).exists(), "{bed} is left: {said}");
        let left = fs::read_dir("/run/netns").unwrap().flatten();
        let left = left.filter(|it| it.file_name().to_string_lossy().starts_with(&bed));
        assert_eq!(left.count(), 0, "namespaces of {bed} are left: {said}");
        fs::remove_dir_all(&self.directory).unwrap();
        (status, said)
    }
}

#[test]
fn a_test_bed_ends_with_its_command_or_when_it_is_told_to() {
    let (status, _) = Up::start("own", "", "exit 7").end();
    assert_eq!(status.code(), Some(7));
    for signal in [Signal::SIGTERM, Signal::SIGHUP] {
        // An interactive shell ignores SIGTERM.
        let line = "trap '' TERM; touch $TMPDIR/began; exec sleep 600";
        let up = Up::start(signal.as_str(), "", line);
        up.wait_for("began");
        // An interrupt is the command's.
        up.tell(Signal::SIGINT);
        up.tell(signal);
        let (status, said) = up.end();
        assert_eq!((status.code(), status.signal()), (Some(128 + signal as i32), None), "{said}");
    }
}

#[test]
fn a_test_bed_that_is_told_to_end_while_it_is_made_is_cleared_away() {
    // Each verb is a child of the test bed's process.
    let up = Up::start("made", "test $1 != up || kill -TERM $PPID", "touch $TMPDIR/began");
    let (status, said) = up.end();
    assert!(!status.success() && said.contains("ended "), "{status}: {said}");
}

#[test]
fn bare_nodes_are_there_and_nothing_was_started_on_them() {
    let testbed = env!("CARGO_BIN_EXE_testbed");
    let line = format!("echo $TMPDIR/asked*; hostname; {testbed} on n2 hostname");
    let script = "touch $TMPDIR/asked-$1";
    let told = Up::told("bare", script, &["up", "2", "--bare"], &line);
    assert!(told.ends_with("/asked*\nn1\nn2\n"), "{told}");
    // It would be seen if it were.
    let told = Up::told("made-up", script, &["up", "2"], &line);
    assert!(told.contains("/asked-up"), "{told}");
}

#[test]
fn a_node_keeps_its_clock_whoever_runs_something_there() {
    let testbed = env!("CARGO_BIN_EXE_testbed");
    let clock = "cut -d. -f1 /proc/uptime";
    let line = format!("{clock}; for node in n1 n2 n3; do {testbed} on $node {clock}; done");
    let told = Up::told("clocks", "", &["up", "3", "--bare", "--clocks", "5000,90000"], &line);
    let times: Vec<u64> = told.lines().map(|line| line.parse().unwrap()).collect();
    let ahead: Vec<u64> = times.iter().map(|time| (time - times[0]) / 1000).collect();
    assert_eq!(ahead, [0, 0, 5, 90], "{told}");
}

/// A `testbed` where this build of cargo's would have put it, which is asked for the host name of a
/// bare node.
struct Built {
    directory: PathBuf,
    testbed: PathBuf,
}

impl Built {
    fn as_profile(name: &str, profile: &str) -> Self {
        let directory = std::env::temp_dir().join(format!("testbed-{}-{name}", std::process::id()));
        let place = directory.join("target").join(profile);
        fs::create_dir_all(&place).unwrap();
        let testbed = place.join("testbed");
        shell("cp \"$0\" \"$1\"", &[env!("CARGO_BIN_EXE_testbed").as_ref(), &testbed]);
        Self { directory, testbed }
    }

    /// How it ends and what it says, started by this script in the place of cargo.
    fn ask(&self, cargo: Option<&str>) -> (Option<i32>, String) {
        let mut testbed = Command::new(&self.testbed);
        testbed.args(["up", "1", "--bare", "--", "hostname"]).env("TMPDIR", &self.directory);
        testbed.env_remove("CARGO");
        if let Some(script) = cargo {
            let path = self.directory.join("cargo");
            write_script(&path, script);
            testbed.env("CARGO", path);
        }
        let output = testbed.output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8(said).unwrap())
    }
}

impl Drop for Built {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}

#[test]
fn where_cargo_has_built_the_test_bed_alone_the_program_is_built_as_it_was() {
    for (directory, profile) in [("debug", "dev"), ("release", "release")] {
        let built = Built::as_profile(&format!("cargo-{directory}"), directory);
        let (code, said) = built.ask(None);
        assert_eq!(code, Some(1), "{said}");
        assert!(said.contains("build it with `cargo build -p tutti`"), "{said}");
        let (code, said) = built.ask(Some("exit 3"));
        assert_eq!(code, Some(1), "{said}");
        assert!(said.contains("tutti could not be built"), "{said}");
        let program = built.testbed.with_file_name("tutti");
        let cargo = format!("test -e Cargo.lock && echo $@ && touch {}", program.display());
        let (code, said) = built.ask(Some(&cargo));
        let target = built.directory.join("target");
        let asked =
            format!("build --package tutti --profile {profile} --target-dir {}", target.display());
        assert_eq!((code, said), (Some(0), format!("{asked}\nn1\n")));
    }
}

#[test]
fn a_benchmark_that_is_told_to_end_clears_its_cluster_away() {
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        let script = "test $1 != run || { echo $$ > $TMPDIR/runs; mv $TMPDIR/runs $TMPDIR/began; exec sleep 600; }";
        let name = format!("bench-{signal}");
        let bench = Up::with(&name, script, &["bench", "launch", "--nodes", "2"], &[]);
        bench.wait_for("began");
        let runs = fs::read_to_string(bench.directory.join("began")).unwrap();
        bench.tell(signal);
        let (status, said) = bench.end();
        assert_eq!(status.code(), Some(1), "{status}: {said}");
        assert!(said.contains("ended "), "{said}");
        let (patience, pid) =
            (Instant::now() + Duration::from_secs(60), Pid::from_raw(runs.trim().parse().unwrap()));
        while kill(pid, None).is_ok() {
            assert!(Instant::now() < patience, "what it ran is left");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}
