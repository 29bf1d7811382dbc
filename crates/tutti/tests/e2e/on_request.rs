//! What a job has other daemons start: `atd`, `cron`, its user's service manager. That is theirs
//! and not the task's: it goes on when the job has ended. But no process is moved out of a task at
//! its request.
//!
//! All of them are the test's own, in a place apart: with a spool, a `/run` and crontabs that are
//! not the machine's, on which nothing changes.

use crate::harness::{Instance, NOBODY, Running, eventually, group_of, needs_root, status_of};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// Executes its arguments where `spool` of the directory of the work is where `at` and `crontab`
/// write, and the one is always given.
const APART: &str = "mount --bind spool /var/spool/cron && mount --bind /dev/null /etc/at.deny && \
    exec \"$@\"";

/// As the daemons need it besides: without those of the machine, but as if it had been started by
/// systemd.
const DAEMON: &str = "mount -t tmpfs none /run && mkdir -p /run/systemd/system && \
    mount --bind /dev/null /etc/crontab && mount -t tmpfs none /etc/cron.d && ";

/// What the job does. Its own sleep is the one with 0, those of the daemons are 1 to 3, and the one
/// to be moved is 4.
const REQUESTS: &str = "\
    echo \"exec sleep ${NAP}1\" | at now && \
    echo \"@reboot exec sleep ${NAP}2\" | crontab - && \
    systemd-run --user --quiet sleep ${NAP}3 && \
    echo asked || exit 9; \
    systemd-run --user --quiet --scope sleep ${NAP}4 || echo not moved & \
    exec sleep ${NAP}0";

/// A daemon that is ended when dropped.
struct Daemon(Child);

impl Drop for Daemon {
    fn drop(&mut self) {
        // `systemd` ends its own on this signal.
        let _ = kill(Pid::from_raw(self.0.id().cast_signed()), Signal::SIGTERM);
        let _ = self.0.wait();
    }
}

struct Scene {
    instance: Instance,
    daemons: Vec<Daemon>,
}

impl Scene {
    /// With the instance and the user's service manager, but nothing yet that reads the spool.
    fn new(instance: Instance) -> Self {
        needs_root("a mount");
        let mut copy = Command::new("cp");
        copy.args(["-a", "/var/spool/cron", "spool"]).current_dir(&instance.work);
        assert!(copy.status().unwrap().success(), "there is no spool; run tests/install-deps");
        let mut scene = Self { instance, daemons: Vec::new() };
        let up = scene.instance.command(&["up"]);
        Running::start(scene.apart(APART, &up)).wait().expect(0);
        scene.start_manager();
        scene
    }

    /// A command of the instance's, to be executed by a script in a place apart.
    fn apart(&self, script: &str, command: &Command) -> Command {
        let mut apart = Command::new("unshare");
        apart.args(["--mount", "--propagation", "private", "sh", "-c", script, "sh"]);
        apart.arg(command.get_program()).args(command.get_args());
        apart.current_dir(&self.instance.work).stdin(Stdio::null());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => apart.env(name, value),
                None => apart.env_remove(name),
            };
        }
        apart
    }

    fn start_daemon(&mut self, command: &Command) {
        let mut command = self.apart(&format!("{DAEMON}{APART}"), command);
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        self.daemons.push(Daemon(child));
    }

    /// The directory in which the user's daemons have their sockets.
    fn runtime(&self) -> PathBuf {
        self.instance.work.join("runtime")
    }

    /// A service manager of the user's, in a cgroup of the user's.
    fn start_manager(&mut self) {
        let runtime = self.runtime();
        fs::create_dir(&runtime).unwrap();
        fs::set_permissions(&runtime, fs::Permissions::from_mode(0o700)).unwrap();
        chown(&runtime, Some(NOBODY), Some(NOBODY)).unwrap();
        let mut command = Command::new("sh");
        let enter = "echo $$ > \"$0\" && exec setpriv --reuid 65534 --regid 65534 --clear-groups \
            /lib/systemd/systemd --user";
        command.args(["-c", enter]).arg(self.instance.subtree_of_nobody().join("cgroup.procs"));
        command.env("XDG_RUNTIME_DIR", &runtime).env("HOME", &self.instance.work);
        self.start_daemon(&command);
        let socket = runtime.join("systemd/private");
        eventually("a service manager (see tests/install-deps)", || socket.exists().then_some(()));
    }

    /// As the user without privileges.
    fn command(&self, args: &[&str]) -> Command {
        let mut command = self.instance.command_as(Some(NOBODY), args);
        command.env("XDG_RUNTIME_DIR", self.runtime()).env("HOME", &self.instance.work);
        command.env_remove("DBUS_SESSION_BUS_ADDRESS");
        command
    }

    fn tutti(&self, args: &[&str]) -> crate::harness::Done {
        Running::start(self.command(args)).wait()
    }

    /// The sleep with that number, if it is there.
    fn sleep(&self, number: u32) -> Option<i32> {
        let name = format!("{}{number}", self.instance.nap);
        let is_it = |pid: &i32| {
            let words = crate::harness::command_line(*pid);
            words == ["sleep", &name] || words == ["/usr/bin/sleep", &name]
        };
        self.instance.nappers().into_iter().find(is_it)
    }

    /// A job asks for all, and the one that it has asked does it.
    fn ask(&mut self) -> Running {
        let run = Running::start(self.command(&["run", "sh", "-c", REQUESTS]));
        run.wait_for("asked");
        for (daemon, option) in [("/usr/sbin/atd", "-f"), ("/usr/sbin/cron", "-f")] {
            let mut command = Command::new(daemon);
            command.arg(option);
            self.start_daemon(&command);
        }
        for number in 0..=3 {
            eventually(&format!("sleep {number}"), || self.sleep(number));
        }
        run
    }

    /// Those of the daemons: none is the job's while it runs, nor is it ended with it.
    fn expect_others_to_live_on(&self, run: Running) {
        let others = [1, 2, 3].map(|number| self.sleep(number).unwrap());
        for pid in others {
            assert!(!group_of(pid).contains("/job-"), "{pid} is in {}", group_of(pid));
            assert_eq!(status_of(pid, "Uid").unwrap().split('\t').next(), Some("65534"));
        }
        let tree = self.tutti(&["ps", "--tree", "1"]).expect(0).text();
        let has = |number: u32| tree.contains(&format!("{}{number}", self.instance.nap));
        assert!(has(0) && ![1, 2, 3].map(has).contains(&true), "{tree}");
        self.tutti(&["cancel", "--now", "1"]).expect(0);
        run.wait().expect(137);
        assert_eq!([0, 4].map(|number| self.sleep(number)), [None, None]);
        assert_eq!([1, 2, 3].map(|number| self.sleep(number).unwrap()), others);
        let told = self.tutti(&["doctor", "--leftovers"]).text();
        // `at` hands on the environment; nothing tells those of the others from any process of the
        // user.
        let shown = others.map(|pid| {
            let line = told.lines().find(|line| line.starts_with(&format!("process {pid}: ")));
            line.is_some_and(|line| line.contains("started in job 1 and in none now"))
        });
        assert_eq!(shown, [true, false, false], "{told}");
        let doctor = self.tutti(&["doctor", "-v"]).text();
        assert!(doctor.contains("belongs to the daemon that starts it"), "{doctor}");
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        for pid in self.instance.nappers() {
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
        self.daemons.clear();
    }
}

#[test]
fn what_other_daemons_start_is_no_process_of_the_task() {
    let mut scene = Scene::new(Instance::of_the_system_alone());
    let run = scene.ask();
    // The service manager may not take any process out of a group of another's.
    run.wait_for("not moved");
    scene.expect_others_to_live_on(run);
}

#[test]
fn nor_in_an_instance_of_ones_own() {
    let mut scene = Scene::new(Instance::of_nobody());
    let run = scene.ask();
    run.wait_for("not moved");
    scene.expect_others_to_live_on(run);
}

#[test]
fn whom_a_service_manager_moves_is_brought_back() {
    let mut scene = Scene::new(Instance::of_nobody_with_groups());
    let run = scene.ask();
    eventually("who was moved to be back", || {
        let moved = scene.sleep(4)?;
        group_of(moved).contains("/job-1/step-0/rank-0").then_some(())
    });
    scene.expect_others_to_live_on(run);
}
