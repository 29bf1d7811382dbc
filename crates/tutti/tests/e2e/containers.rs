//! Containers as Docker, Podman and Kubernetes set them up, made by hand of namespaces: few
//! capabilities, no `/sys` but perhaps cgroups, `/proc/sys` read-only, a small `/dev/shm`, `clone3`
//! forbidden, and a first process that never reaps.

use crate::harness::{Done, Instance, NOBODY, Running};
use crate::old_kernels::library;
use std::process::Command;

/// What `docker run` leaves to root.
const CAPABILITIES: &str = "-all,+chown,+dac_override,+fowner,+fsetid,+kill,+setgid,+setuid,+setpcap,\
                            +net_bind_service,+net_raw,+sys_chroot,+mknod,+audit_write,+setfcap";

/// Mounts, then what is to be done, beside a first process that waits for nothing.
const ENTER: &str = r#"
set -e
mount --make-rprivate /
mount -t proc proc /proc
mount -t tmpfs -o size=16m none /run
mount -t tmpfs -o size=64k none /dev/shm
mount -t tmpfs none /var/tmp
mount -t tmpfs none /sys
mkdir -p /sys/fs/cgroup
case $CGROUPS in
  read-only) mount -t cgroup2 none /sys/fs/cgroup; mount -o remount,bind,ro /sys/fs/cgroup ;;
  writable) mount -t cgroup2 none /sys/fs/cgroup ;;
esac
mount --bind /proc/sys /proc/sys
mount -o remount,bind,ro /proc/sys
set +e
(setpriv --bounding-set="$CAPABILITIES" --inh-caps=-all sh -c "$INSIDE"; echo "ended $?"; kill -TERM $$) &
exec perl -e '$SIG{TERM} = sub { exit 0 }; sleep 1 while 1'
"#;

/// What a user does: tasks side by side, turns of two jobs, a job that is cancelled with what it
/// left behind.
const INSIDE: &str = r#"
tutti run -n 4 sh -c 'echo "rank $TUTTI_RANK"'; echo "ran $?"
line='sleep "$NAP" & (setsid sleep "$NAP" &) & while :; do :; done'
one=$(tutti submit --parsable -n 2 -o /dev/null sh -c "$line")
two=$(tutti submit --parsable -n 2 -o /dev/null sh -c "$line")
for tried in $(seq 300); do
  tutti ps --json > jobs
  test "$(grep -cE '"service_ms": *[1-9][0-9]+' jobs)" -ge 2 && echo turns && break
  sleep 0.1
done
tutti cancel --now $one $two; tutti wait $one $two; echo "cancelled $?"
echo "left $(ps -eo stat,args | grep -v '^Z' | grep -c "[s]leep $NAP")"
tutti doctor -v
tutti down; echo "down $?"
daemons() { ps -eo stat,comm | grep -v '^Z' | grep -cE ' (tutti|supervisor|keeper|controller|agent)$'; }
for tried in $(seq 100); do test "$(daemons)" = 0 && break; sleep 0.1; done
echo "daemons $(daemons)"
"#;

/// A container with these cgroups; `user`: rootless, that user is its root.
fn run_in_container(instance: &Instance, cgroups: &str, user: Option<u32>) -> Done {
    let mut command = match user {
        Some(user) => {
            let mut command = Command::new("setpriv");
            let user = user.to_string();
            command.args(["--reuid", &user, "--regid", &user, "--clear-groups"]);
            command.args(["unshare", "--user", "--map-root-user"]);
            command
        }
        None => Command::new("unshare"),
    };
    let namespaces = ["--pid", "--fork", "--kill-child", "--mount", "--cgroup", "--ipc"];
    command.args(namespaces).args(["sh", "-c", ENTER]).current_dir(&instance.work);
    let bin = instance.program.parent().unwrap().display();
    command.env("PATH", format!("{bin}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"));
    command.env("CAPABILITIES", CAPABILITIES).env("INSIDE", INSIDE).env("CGROUPS", cgroups);
    command.env("LD_PRELOAD", instance.share(&library())).env("OLD_KERNEL", "clone3");
    command.env_remove("TUTTI_DIR").env_remove("TUTTI_CLUSTER").env_remove("COLUMNS");
    command.env("NAP", &instance.nap);
    Running::start(command).wait()
}

#[track_caller]
fn expect_all_works(done: &Done) -> String {
    let text = done.text();
    let ran = ["rank 0\n", "rank 1\n", "rank 2\n", "rank 3\n", "ran 0\n", "turns\n"];
    let ended = ["cancelled 137\n", "left 0\n", "down 0\n", "daemons 0\n", "ended 0\n"];
    for said in ran.into_iter().chain(ended) {
        assert!(text.contains(said), "no {said:?} in:\n{text}\n{}", done.err);
    }
    text
}

#[test]
fn jobs_run_in_a_container_with_the_usual_read_only_cgroups() {
    let instance = Instance::alone();
    let text = expect_all_works(&run_in_container(&instance, "read-only", None));
    assert!(text.contains("no cgroup can be written"), "{text}");
    assert!(text.contains("in a container"), "{text}");
    assert!(text.contains("docs/admin/containers.md"), "{text}");
}

#[test]
fn jobs_are_frozen_in_a_container_with_writable_cgroups() {
    let instance = Instance::alone();
    let text = expect_all_works(&run_in_container(&instance, "writable", None));
    assert!(text.contains("tasks have cgroups, and are frozen"), "{text}");
    assert!(text.contains("tasks move into their cgroups before they run"), "{text}");
}

#[test]
fn jobs_run_in_a_container_without_any_cgroup() {
    let instance = Instance::alone();
    expect_all_works(&run_in_container(&instance, "none", None));
}

#[test]
fn jobs_run_in_a_rootless_container_whose_root_is_a_user() {
    let instance = Instance::of_nobody();
    expect_all_works(&run_in_container(&instance, "none", Some(NOBODY)));
}
