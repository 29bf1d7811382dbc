//! The system's instance where systemd runs the machine: with something in its place that notes
//! what it is told, and starts what a unit says; and the unit under a real service manager, which
//! is the test's own.

use crate::harness::{Done, Instance, Running, copy_program, eventually};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs;
use std::os::unix::net::UnixDatagram;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// What stands for `systemctl`. It starts and ends the main process of a unit.
const SYSTEMCTL: &str = r#"#!/bin/sh
if [ "$*" = --version ]; then echo 'systemd 252 (252.39-1)'; exit 0; fi
echo "$*" >> calls
unit=/etc/systemd/system/$3
case "$*" in
"enable --now "*)
    directory=$(sed -n 's/^Environment="\(.*\)"$/\1/p' "$unit")
    program=$(sed -n 's/^ExecStart="\(.*\)" up --foreground$/\1/p' "$unit")
    env "$directory" NOTIFY_SOCKET="$PWD/notify" \
        setsid "$program" up --foreground < /dev/null > messages 2>&1 &
    echo $! > main
    while ! grep -q 'is up' messages; do kill -0 $! || exit 1; sleep 0.01; done ;;
"disable --now "*)
    kill -TERM $(cat main) 2> /dev/null
    while kill -0 $(cat main) 2> /dev/null; do sleep 0.01; done ;;
esac
exit 0
"#;

/// What is done on the machine, below a `/run` and an `/etc` as systemd has them.
const SCRIPT: &str = r#"set -e
mkdir -p /run/systemd /etc/systemd
mount -t tmpfs none /run/systemd
mount -t tmpfs none /etc/systemd
mkdir -p /run/systemd/system /etc/systemd/system
PATH=$PWD/bin:$PATH
tutti up
tutti up
unit=/etc/systemd/system/tutti-$TUTTI_CLUSTER.service
cp $unit unit
if command -v systemd-analyze > /dev/null; then systemd-analyze verify $unit > verified 2>&1; fi
tutti run echo it runs
tutti down
tutti down
ls /etc/systemd/system
"#;

/// Has `tutti up` and the rest done with what stands for `systemctl`; its unit is in the file
/// `unit` then.
fn up_and_down(instance: &Instance) -> Done {
    let bin = instance.work.join("bin");
    fs::create_dir(&bin).unwrap();
    instance.script("bin/systemctl", SYSTEMCTL);
    copy_program(&instance.program, &bin.join("tutti"));
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-c", SCRIPT]);
    let template = instance.command(&[]);
    command.envs(template.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command.env_remove("TUTTI_DIR").current_dir(&instance.work).stdin(Stdio::null());
    Running::start(command).wait().expect(0)
}

#[test]
fn systemd_starts_and_ends_the_instance_of_the_system() {
    let instance = Instance::of_the_system();
    let notified = UnixDatagram::bind(instance.work.join("notify")).unwrap();
    notified.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let done = up_and_down(&instance);
    let file = |name: &str| fs::read_to_string(instance.work.join(name)).unwrap_or_default();
    let unit = format!("{}.service", instance.dir.file_name().unwrap().to_str().unwrap());
    let said = done.text();
    for text in [
        "systemd starts it with the machine; what it has to say: `journalctl -u tutti-",
        "was up already",
        "it runs",
        "is down",
        &unit,
    ] {
        assert!(said.contains(text), "no {text:?} in: {said}");
    }
    // The second `up` and the second `down` find it as it is to be.
    let calls = file("calls");
    let calls: Vec<&str> = calls.lines().collect();
    let (enable, disable) = (format!("enable --now {unit}"), format!("disable --now {unit}"));
    assert_eq!(calls, ["daemon-reload", &enable, &disable, &disable]);
    let mut heard = [0; 100];
    let length = notified.recv(&mut heard).unwrap();
    assert_eq!(&heard[..length], b"READY=1\n");
    let text = file("unit");
    for line in ["Type=notify", "Delegate=yes", "KillMode=process", "WantedBy=multi-user.target"] {
        assert!(text.lines().any(|known| known == line), "no {line} in {text}");
    }
    assert!(text.contains("\" make-startable\n") && !text.contains("DelegateSubgroup"), "{text}");
    assert_eq!(file("verified"), "", "what systemd says of the unit");
    assert!(file("messages").contains("is up"), "messages go where systemd takes them");
    eventually("it has ended", || (!instance.dir.join("lock").exists()).then_some(()));
}

/// Executes its arguments as on a machine that systemd has started, in the cgroup of the first.
const AS_STARTED: &str = "mkdir -p /run/systemd && mount -t tmpfs none /run/systemd && \
    mkdir /run/systemd/system && echo $$ > \"$0/cgroup.procs\" && exec \"$@\"";

/// A service manager of root's, which ends with this.
struct Manager<'a> {
    instance: &'a Instance,
    process: Child,
}

impl<'a> Manager<'a> {
    /// One that has this unit.
    fn with(unit: &str, text: &str, instance: &'a Instance) -> Self {
        let units = instance.work.join("systemd/user");
        fs::create_dir_all(&units).unwrap();
        fs::write(units.join(unit), text).unwrap();
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", "private", "sh", "-c", AS_STARTED]);
        command.arg(instance.subtree_of_nobody()).args(["/lib/systemd/systemd", "--user"]);
        command.env("XDG_RUNTIME_DIR", &instance.work).env("HOME", &instance.work);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let process = command.spawn().unwrap();
        let socket = instance.work.join("systemd/private");
        eventually("a service manager (see tests/install-deps)", || socket.exists().then_some(()));
        let manager = Self { instance, process };
        eventually("the service manager answers", || {
            (manager.systemctl(&["list-units"]).code == 0).then_some(())
        });
        manager
    }

    fn systemctl(&self, args: &[&str]) -> Done {
        let mut command = Command::new("systemctl");
        command.arg("--user").args(args).env("XDG_RUNTIME_DIR", &self.instance.work);
        command.env_remove("DBUS_SESSION_BUS_ADDRESS");
        Running::start(command).wait()
    }
}

impl Drop for Manager<'_> {
    fn drop(&mut self) {
        let _ = kill(Pid::from_raw(self.process.id().cast_signed()), Signal::SIGTERM);
        let until = Instant::now() + Duration::from_secs(10);
        while Instant::now() < until && !matches!(self.process.try_wait(), Ok(Some(_))) {
            std::thread::sleep(Duration::from_millis(5));
        }
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn jobs_go_on_when_systemd_has_to_start_the_supervisor_again() {
    let instance = Instance::of_the_system();
    up_and_down(&instance);
    let text = fs::read_to_string(instance.work.join("unit")).unwrap();
    let manager = Manager::with("tutti.service", &text, &instance);
    manager.systemctl(&["start", "tutti"]).expect(0);
    let main = || -> Option<i32> {
        let shown = manager.systemctl(&["show", "-p", "MainPID", "--value", "tutti"]);
        shown.text().trim().parse().ok().filter(|&pid| pid > 0)
    };
    let supervisor = main().unwrap();
    let job = instance.submit(&["-o", "/dev/null", "sleep", &instance.nap]);
    instance.wait_for_state(job, "running");
    let keeper = instance.daemon("keeper");
    let task = eventually("its task", || Some(instance.nappers()).filter(|task| !task.is_empty()));
    kill(Pid::from_raw(supervisor), Signal::SIGKILL).unwrap();
    eventually("another supervisor", || main().filter(|&new| new != supervisor));
    manager.systemctl(&["start", "tutti"]).expect(0);
    assert_eq!((instance.daemon("keeper"), instance.nappers()), (keeper, task));
    instance.tutti(&["run", "true"]).expect(0);
    manager.systemctl(&["stop", "tutti"]).expect(0);
    assert!(instance.nappers().is_empty() && main().is_none());
}
