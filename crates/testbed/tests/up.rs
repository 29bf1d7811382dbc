//! `testbed` clears away what it has made, also when it is told to end. As root; the program on its nodes is a
//! stand-in, since nothing is asked of it.
#![allow(clippy::unwrap_used, reason = "a test that can't go on has failed")]

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs::{self, Permissions};
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

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
        fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&program, Permissions::from_mode(0o755)).unwrap();
        let mut up = Command::new(env!("CARGO_BIN_EXE_testbed"));
        up.args(before).arg("--program").arg(program).args(after);
        up.env("TMPDIR", &directory).stdout(Stdio::piped()).stderr(Stdio::piped());
        Self { process: up.spawn().unwrap(), directory }
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
        // A shell that is used by somebody takes no notice of SIGTERM.
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
    assert!(!status.success() && said.contains("told to end"), "{status}: {said}");
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
        assert!(said.contains("told to end"), "{said}");
        let (patience, pid) =
            (Instant::now() + Duration::from_secs(60), Pid::from_raw(runs.trim().parse().unwrap()));
        while kill(pid, None).is_ok() {
            assert!(Instant::now() < patience, "what it ran is left");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}
