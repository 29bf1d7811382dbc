//! The system's instance where systemd runs the machine: with something in its place that notes what it
//! is told, and starts what a unit says.

use crate::harness::{Instance, Running, copy_program, eventually};
use std::os::unix::net::UnixDatagram;
use std::process::{Command, Stdio};
use std::time::Duration;

/// What stands for `systemctl`. It starts and ends the main process of a unit.
const SYSTEMCTL: &str = r#"#!/bin/sh
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

#[test]
fn systemd_starts_and_ends_the_instance_of_the_system() {
    let instance = Instance::of_the_system();
    let bin = instance.work.join("bin");
    std::fs::create_dir(&bin).unwrap();
    instance.script("bin/systemctl", SYSTEMCTL);
    copy_program(&instance.program, &bin.join("tutti"));
    let notified = UnixDatagram::bind(instance.work.join("notify")).unwrap();
    notified.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-c", SCRIPT]);
    let template = instance.command(&[]);
    command.envs(template.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command.env_remove("TUTTI_DIR").current_dir(&instance.work).stdin(Stdio::null());
    let done = Running::start(command).wait().expect(0);
    let file = |name: &str| std::fs::read_to_string(instance.work.join(name)).unwrap_or_default();
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
    for line in ["Type=notify", "Delegate=yes", "KillMode=mixed", "WantedBy=multi-user.target"] {
        assert!(text.lines().any(|known| known == line), "no {line} in {text}");
    }
    assert_eq!(file("verified"), "", "what systemd says of the unit");
    assert!(file("messages").contains("is up"), "messages go where systemd takes them");
    eventually("it has ended", || (!instance.dir.join("lock").exists()).then_some(()));
}
