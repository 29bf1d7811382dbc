//! Which users may submit jobs, and from which machines.

use crate::cluster::Bed;
use crate::harness::{Done, Instance, NOBODY, Running, eventually};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs::{self, Permissions, set_permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

/// Another user.
const SOMEBODY: u32 = 1234;

#[test]
fn only_who_is_listed_may_hand_in_jobs_and_root() {
    let instance = Instance::of_the_system().up();
    let run_as = |uid| Running::start(instance.command_as(Some(uid), &["run", "true"])).wait();
    let access = |settings: &[&str]| instance.tutti(&[&["access"], settings].concat());
    let said = access(&[]).expect(0).text();
    assert!(said.contains("all users may submit jobs"), "{said}");
    run_as(NOBODY).expect(0);
    let first = access(&["1234=anywhere"]).expect(0);
    let list = first.says("from now on only these users may submit jobs").text();
    assert!(list.contains("1234") && list.contains("anywhere"), "{list}");
    run_as(SOMEBODY).expect(0);
    run_as(NOBODY).expect(120).says("nobody may not submit jobs here").says("[T039]");
    let submit = ["submit", "-o", "/dev/null", "true"];
    let submit = Running::start(instance.command_as(Some(NOBODY), &submit)).wait();
    submit.expect(120).says("[T039]");
    instance.tutti(&["run", "true"]).expect(0);
    // What was set outlives the controller.
    let controller = instance.daemon("controller");
    kill(Pid::from_raw(controller), Signal::SIGKILL).unwrap();
    eventually("another", || instance.daemon_now("controller").filter(|&new| new != controller));
    run_as(NOBODY).expect(120).says("[T039]");
    // By the user's group; the groups of a user count, too.
    access(&["@65534=anywhere"]).expect(0);
    run_as(NOBODY).expect(0);
    let in_group = ["setpriv", "--reuid=1235", "--regid=1235", "--groups=65534"];
    let mut command = instance.command(&["run", "true"]);
    let line: Vec<String> = std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    command = {
        let mut other = std::process::Command::new(in_group[0]);
        other.args(&in_group[1..]).args(&line).current_dir(&instance.work);
        other.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
        other
    };
    Running::start(command).wait().expect(0);
    run_as(1235).expect(120);
    // Whatever is wrong changes nothing.
    let list = access(&["--json"]).expect(0).json();
    access(&["1235=anywhere", "nosuchuser=anywhere"]).expect(1).says("there is no user nosuchuser");
    access(&["1235=nowhere"]).expect(1).says("there is no node nowhere").says("[T032]");
    access(&["1235"]).expect(1).says("write USER=MACHINES");
    access(&["1235=none"]).expect(1).says("1235 is not on the list");
    access(&["1235=anywhere", "1235=none"]).expect(1).says("1235 is named twice");
    let own = Running::start(instance.command_as(Some(NOBODY), &["access", "65534=anywhere"]));
    own.wait().expect(1).says("only root").says("[T020]");
    assert_eq!(access(&["--json"]).expect(0).json(), list);
    // An empty list is none.
    access(&["1234=none", "@65534=none"]).expect(0);
    run_as(1235).expect(0);
}

#[test]
fn the_doctor_tells_of_the_instance_that_has_the_users_jobs() {
    let instance = Instance::of_the_system().up();
    let doctor = |uid| Running::start(instance.command_as(uid, &["doctor", "-v"])).wait().expect(0);
    // Both have the same jobs' groups: of this user's own rights nothing is said.
    for uid in [Some(NOBODY), None] {
        let told = doctor(uid).text();
        assert!(told.starts_with("all is well: jobs are tracked"), "{told}");
        assert!(told.contains("no process can leave its task"), "{told}");
        assert!(!told.contains("sudo tutti up"), "{told}");
    }
}

#[test]
fn a_list_may_say_from_which_machines() {
    let bed = Bed::up(3, &[0]);
    (1..=3).for_each(|number| bed.open_to_all(number));
    let ask = |number: usize, args: &[&str]| -> Done {
        let mut command = bed.node(number).command("setpriv");
        command.args(["--reuid=1234", "--regid=1234", "--clear-groups"]).arg(&bed.audit.program);
        command.args(args).current_dir(&bed.audit.work);
        Running::start(command).wait()
    };
    let submit = |number: usize| ask(number, &["submit", "-o", "/dev/null", "true"]);
    for verb in [&["invite"][..], &["down"], &["join", "--ssh", "a[1-8]"], &["upgrade", "--all"]] {
        ask(1, verb).expect(1).says("only root, or the owner of the instance").says("[T020]");
    }
    bed.tutti(1, &["nodes", "set", "login=n2"]).expect(0);
    bed.tutti(1, &["access", "1234=set:login"]).expect(0);
    submit(2).expect(0);
    submit(3).expect(120).says("1234 may submit jobs from set:login, not from n3").says("[T039]");
    submit(1).expect(120).says("not from n1");
    // More than one rule, and a set that has others now.
    bed.tutti(1, &["access", "all=n1"]).expect(0);
    bed.tutti(1, &["nodes", "set", "login=n3"]).expect(0);
    submit(2).expect(120).says("from n1,set:login, not from n2");
    submit(1).expect(0);
    submit(3).expect(0);
    bed.tutti(2, &["run", "true"]).expect(0);
}

/// A copy of `/etc` in which machines have other names, and netgroups are in a file.
fn etc_with(directory: &Path, hosts: &str, netgroups: &str) {
    let copied = Command::new("cp").args(["-a", "/etc"]).arg(directory).status().unwrap();
    assert!(copied.success());
    let etc = directory.join("etc");
    for (file, text) in [
        ("hosts", hosts),
        ("netgroup", netgroups),
        ("nsswitch.conf", "passwd: files\ngroup: files\nhosts: files\nnetgroup: files\n"),
    ] {
        fs::write(etc.join(file), text).unwrap();
    }
}

#[test]
fn a_list_may_have_addresses_host_names_and_netgroups() {
    let bed = Bed::of(3, &[0]);
    let ip = |number: usize| {
        let address = bed.node(number).address();
        address.split_once(':').map_or(address.clone(), |(ip, _)| ip.to_owned())
    };
    let hosts = format!("127.0.0.1 localhost\n{} n2.lab\n{} n3.other.example\n", ip(2), ip(3));
    etc_with(&bed.audit.work, &hosts, "far (n3.other.example,,)\nnone (elsewhere,,)\n");
    let mut up = bed.node(1).command("unshare");
    up.args(["-m", "sh", "-c", "mount --bind \"$0\" /etc && exec \"$@\""]);
    up.arg(bed.audit.work.join("etc")).arg(&bed.audit.program);
    up.args(["up", "--listen", &bed.node(1).address(), "--name", "n1"]);
    Running::start(up).wait().expect(0);
    for (number, name) in [(2, "n2"), (3, "n3")] {
        let token = bed.tutti(1, &["invite", "--parsable"]).expect(0).text();
        let head = bed.node(1).address();
        bed.tutti(number, &["join", &head, token.trim(), "--name", name]).expect(0);
    }
    (1..=3).for_each(|number| bed.open_to_all(number));
    let submit = |number: usize| -> Done {
        let mut command = bed.node(number).command("setpriv");
        command.args(["--reuid=1234", "--regid=1234", "--clear-groups"]).arg(&bed.audit.program);
        command.args(["submit", "-o", "/dev/null", "true"]).current_dir(&bed.audit.work);
        Running::start(command).wait()
    };
    let set = |list: &str| bed.tutti(1, &["access", &format!("1234={list}")]).expect(0);
    // It is asked for when the list is set, beside the loop.
    let known = |number: usize| {
        eventually("its host name", || {
            (!submit(number).err.contains("is being looked up")).then_some(())
        });
    };
    set(&format!("{}/32", ip(2)));
    submit(2).expect(0);
    submit(3).expect(120).says(&format!("not from n3 ({})", ip(3))).says("[T039]");
    submit(1).expect(120);
    set("*.lab,127.0.0.1");
    known(2);
    known(3);
    submit(2).expect(0);
    submit(3).expect(120).says("may submit jobs from *.lab,127.0.0.1, not from n3");
    submit(1).expect(0);
    set("@far");
    known(3);
    submit(3).expect(0);
    submit(2).expect(120);
    set("@none,n3");
    submit(3).expect(0);
    known(2);
    submit(2).expect(120);
    for (list, says) in [
        ("10.0.0.0/33", "no mask"),
        ("10.0.0.1/8", "write 10.0.0.0/8"),
        ("*.l b", "no host name"),
        ("@", "no netgroup"),
        ("nowhere", "there is no node nowhere"),
    ] {
        bed.tutti(1, &["access", &format!("1234={list}")]).expect(1).says(says);
    }
}

/// A verb of a user on a node, in these groups.
fn in_groups(bed: &Bed, node: usize, (uid, gid, groups): (u32, u32, &str), args: &[&str]) -> Done {
    let mut command = bed.node(node).command("setpriv");
    let user = [format!("--reuid={uid}"), format!("--regid={gid}"), format!("--groups={groups}")];
    command
        .args(user)
        .arg(&bed.audit.program)
        .args(args)
        .current_dir(&bed.audit.work)
        .env("PATH", "/usr/local/bin:/usr/bin:/bin");
    Running::start(command).wait()
}

#[test]
fn a_machine_whose_root_is_not_trusted_cannot_make_up_groups() {
    let bed = Bed::of(3, &[0]);
    let address = bed.node(1).address();
    bed.tutti(1, &["up", "--listen", &address, "--name", "n1"]).expect(0);
    for (number, name, invite) in [(2, "n2", &[][..]), (3, "n3", &["--admin"][..])] {
        let token = bed.tutti(1, &[&["invite", "--parsable"], invite].concat()).expect(0).text();
        bed.tutti(number, &["join", &address, token.trim(), "--name", name]).expect(0);
    }
    for number in 1..=3 {
        let directory = bed.node(number).directory();
        set_permissions(directory, Permissions::from_mode(0o755)).unwrap();
        for socket in ["controller.sock", "keeper.sock", "gate.sock"] {
            let socket = directory.join(socket);
            if socket.exists() {
                set_permissions(socket, Permissions::from_mode(0o666)).unwrap();
            }
        }
    }
    let job = ["run", "sh", "-c", "id -G"];
    let groups = |node, who| in_groups(&bed, node, who, &job).expect(0).text();
    // A user that the head does not know has no groups, and none of the system's.
    assert_eq!(groups(2, (SOMEBODY, 1234, "0,6")), "1234\n");
    in_groups(&bed, 2, (SOMEBODY, 0, "1234"), &job)
        .expect(125)
        .says("the head knows no user 1234")
        .says("[T020]");
    // A user that it knows is in the groups that the head has.
    assert_eq!(groups(2, (NOBODY, 0, "0,6")), "65534\n");
    bed.tutti(1, &["access", "@6=anywhere"]).expect(0);
    in_groups(&bed, 2, (SOMEBODY, 1234, "6"), &job).expect(120).says("[T039]");
    // Where root is trusted, it has all that already.
    assert_eq!(groups(3, (SOMEBODY, 1234, "6")), "1234 6\n");
}
