//! Client machines: users submit there, look and cancel, and no task runs there.

use crate::cluster::Bed;
use crate::harness::{Done, NOBODY, Running, eventually, within};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use std::fs::{self, Permissions, set_permissions};
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Another user that the machine knows: `bin`.
const UNNAMED: u32 = 2;

/// The number of the client machine in a test bed.
const DESK: usize = 3;

/// A cluster of two nodes, whose head trusts root of its members, and a client machine of a user.
fn bed_with_desk() -> Bed {
    let bed = Bed::of(3, &[0]);
    let address = bed.node(1).address();
    bed.tutti(1, &["up", "--listen", &address, "--name", "n1", "--trust-root"]).expect(0);
    let token = bed.tutti(1, &["invite", "--parsable"]).expect(0).text();
    bed.tutti(2, &["join", &address, token.trim(), "--name", "n2"]).expect(0);
    let token = invite(&bed, "nobody");
    let joined = bed.tutti(DESK, &["join", "--client", &address, &token, "--name", "desk"]);
    let joined = joined.expect(0).text();
    assert!(joined.contains("desk is a client machine of cluster tutti"), "{joined}");
    open(&bed);
    bed
}

fn invite(bed: &Bed, users: &str) -> String {
    let done = bed.tutti(1, &["invite", "--client", "--users", users, "--parsable"]).expect(0);
    done.text().trim().to_owned()
}

/// Users of the client machine reach its agent from now on.
fn open(bed: &Bed) {
    let directory = bed.node(DESK).directory();
    set_permissions(directory, Permissions::from_mode(0o755)).unwrap();
    for socket in ["controller.sock", "gate.sock"] {
        set_permissions(directory.join(socket), Permissions::from_mode(0o666)).unwrap();
    }
}

fn command_as(bed: &Bed, uid: u32, args: &[&str]) -> Command {
    let mut command = bed.node(DESK).command("setpriv");
    command.args([&format!("--reuid={uid}"), "--regid=65534", "--clear-groups"]);
    command.arg(&bed.audit.program).args(args).current_dir("/");
    command.env("PATH", "/usr/local/bin:/usr/bin:/bin");
    command
}

fn start_as(bed: &Bed, uid: u32, args: &[&str]) -> Running {
    Running::start(command_as(bed, uid, args))
}

fn ask(bed: &Bed, args: &[&str]) -> Done {
    start_as(bed, NOBODY, args).wait()
}

fn clients(bed: &Bed) -> Value {
    bed.tutti(1, &["nodes", "clients", "--json"]).expect(0).json()
}

fn state_of_desk(bed: &Bed) -> Option<String> {
    clients(bed).as_array()?.iter().find(|it| it["name"] == "desk")?["state"]
        .as_str()
        .map(str::to_owned)
}

#[test]
fn users_of_a_client_machine_run_and_submit_there_and_no_task_runs_there() {
    let bed = bed_with_desk();
    assert_eq!(
        (bed.node(DESK).daemon("keeper"), bed.node(DESK).daemon("controller")),
        (None, None)
    );
    assert!(bed.node(DESK).daemon("agent").is_some());
    let desk = bed.node(DESK).address();
    let ip = desk.rsplit_once(':').map_or(&*desk, |(ip, _)| ip);
    let known = json!([{ "name": "desk", "state": "up", "address": ip, "users": ["nobody"] }]);
    assert_eq!(clients(&bed), known);
    let schema = crate::schemas::schema("verbs.schema.json");
    crate::show::check(&schema, &schema["$defs"]["nodes clients"], &known, "nodes clients");
    assert_eq!(bed.states().into_keys().collect::<Vec<_>>(), ["n1", "n2"]);
    let shown = bed.tutti(1, &["nodes"]).expect(0).text();
    assert!(shown.contains("CLIENT  STATE") && shown.contains("desk    up"), "{shown}");
    let processors = bed.states().len() * std::thread::available_parallelism().unwrap().get();
    let tasks = processors.to_string();
    let hosts = ask(&bed, &["run", "-n", &tasks, "--", "hostname"]).expect(0).sorted();
    assert!(hosts.iter().all(|host| host == "n1" || host == "n2"), "{hosts:?}");
    assert!(hosts.contains(&"n2".to_owned()), "{hosts:?}");
    // A task runs as the user, with the groups that the head knows.
    let id = ask(&bed, &["run", "-w", "n2", "--", "id", "-u"]).expect(0).text();
    assert_eq!(id.trim(), NOBODY.to_string());
    // Input, output and the exit code pass.
    let mut command =
        command_as(&bed, NOBODY, &["run", "--", "sh", "-c", "wc -l; echo bad >&2; exit 7"]);
    command.stdin(Stdio::piped());
    let mut counting = Running::start(command);
    counting.type_in("a line\n".repeat(50_000).as_bytes());
    let counted = counting.wait().expect(7).says("bad");
    assert_eq!(counted.text().trim(), "50000");
    // So do signals.
    let caught = "trap 'echo caught; exit 0' INT; echo ready; while :; do sleep 0.05; done";
    let interrupted = start_as(&bed, NOBODY, &["run", "-w", "n2", "--", "sh", "-c", caught]);
    interrupted.wait_for("ready");
    interrupted.signal(Signal::SIGINT);
    interrupted.wait_for("caught");
    drop(interrupted.wait());
    // A job in the background: its program is the one of the nodes.
    let line =
        ["submit", "--parsable", "-w", "n2", "-o", "/dev/null", "--", "sleep", &bed.audit.nap];
    let job = ask(&bed, &line).expect(0).text().trim().to_owned();
    eventually("it runs", || {
        ask(&bed, &["ps", &job]).expect(0).text().contains("running").then_some(())
    });
    ask(&bed, &["cancel", "--now", &job]).expect(0);
    ask(&bed, &["wait", &job]).expect(137);
    ask(&bed, &["submit", "-o", "/dev/null", "/no/such/program"]).expect(0);
}

#[test]
fn a_client_machine_has_no_rights_but_those_of_its_users() {
    let bed = bed_with_desk();
    // Its root is nothing there, though the head trusts root of nodes.
    let orders =
        [&["nodes", "drain", "n2"][..], &["params", "quantum=1s"], &["nodes", "remove", "n2"]];
    let others = [(&["ps"][..], 1), (&["run", "id"], 125)];
    for (args, code) in orders.into_iter().map(|args| (args, 1)).chain(others) {
        let refused = bed.tutti(DESK, args).expect(code);
        refused.says("root of client machine desk is not root").says("[T020]");
    }
    bed.tutti(DESK, &["invite"]).expect(1).says("at the head");
    for (args, code) in [(&["ps"][..], 1), (&["run", "id"], 125)] {
        let refused = start_as(&bed, UNNAMED, args).wait().expect(code);
        refused.says("may not speak for user 2").says("[T020]");
    }
    // The administrator gives it other users, and takes them away.
    let set = |users: &str| bed.tutti(1, &["nodes", "clients", "desk", "--users", users]);
    let told = set("nobody,bin").expect(0).text();
    assert!(told.contains("client machine desk speaks for nobody, bin from now on"), "{told}");
    start_as(&bed, UNNAMED, &["ps"]).wait().expect(0);
    set("root").expect(1).says("never root");
    set("nobody").expect(0);
    start_as(&bed, UNNAMED, &["ps"]).wait().expect(1).says("may not speak for user 2");
    let strange = ["nodes", "clients", "n2", "--users", "nobody"];
    bed.tutti(1, &strange).expect(1).says("there is no client machine n2");
    bed.tutti(2, &["nodes", "clients", "desk", "--users", "bin"]).expect(1).says("at the head");
    bed.tutti(1, &["nodes", "clients", "desk"]).expect(2).says("--users");
    // Its users are ordinary ones.
    let job =
        bed.tutti(1, &["submit", "--parsable", "-o", "/dev/null", "--", "sleep", &bed.audit.nap]);
    let job = job.expect(0).text().trim().to_owned();
    for args in [&["cancel", &job][..], &["nodes", "drain", "n2"], &["params", "quantum=1s"]] {
        ask(&bed, args).expect(1).says("only");
    }
    ask(&bed, &["attach", &job]).expect(125).says("belongs to root");
    bed.tutti(1, &["cancel", "--now", &job]).expect(0);
    assert_eq!(bed.states()["n2"], "up");
}

#[test]
fn output_of_jobs_is_followed_from_a_client_machine() {
    let bed = bed_with_desk();
    let words = "echo one; until test -e \"$0\"; do sleep 0.05; done; echo two";
    let (flag, file) = (bed.audit.work.join("flag"), bed.audit.work.join("out"));
    set_permissions(&bed.audit.work, Permissions::from_mode(0o777)).unwrap();
    let (flag, file) = (flag.to_str().unwrap(), file.to_str().unwrap());
    // Here the machines have the same files.
    let line = ["submit", "--parsable", "-w", "n2", "-o", file, "--", "sh", "-c", words, flag];
    let job = ask(&bed, &line).expect(0).text().trim().to_owned();
    let logs = start_as(&bed, NOBODY, &["logs", "-f", &job]);
    logs.wait_for("one");
    let running = start_as(&bed, NOBODY, &["run", "-w", "n2", "--", "sh", "-c", words, flag]);
    running.wait_for("one");
    let number: u64 = job.parse().unwrap();
    let viewer = start_as(&bed, NOBODY, &["attach", &(number + 1).to_string()]);
    viewer.wait_for_err("attached");
    fs::write(flag, "").unwrap();
    viewer.wait_for("two");
    assert_eq!(viewer.wait().expect(0).text().lines().last(), Some("two"));
    for all in [logs, running] {
        assert_eq!(all.wait().expect(0).text(), "one\ntwo\n");
    }
    ask(&bed, &["top", "-n", "1"]).expect(0);
}

#[test]
fn access_may_name_a_client_machine_by_its_name_or_address() {
    let bed = bed_with_desk();
    let submit = || ask(&bed, &["submit", "-o", "/dev/null", "true"]);
    let desk = bed.node(DESK).address();
    let ip = desk.rsplit_once(':').map_or(&*desk, |(ip, _)| ip);
    bed.tutti(1, &["access", "nobody=n1,n2"]).expect(0);
    submit().expect(120).says(&format!("not from desk ({ip})")).says("[T039]");
    bed.tutti(1, &["access", "nobody=n1,desk"]).expect(0);
    submit().expect(0);
    bed.tutti(1, &["access", "nobody=127.0.0.1"]).expect(0);
    submit().expect(120);
    bed.tutti(1, &["access", &format!("nobody={ip}/32")]).expect(0);
    submit().expect(0);
    bed.tutti(1, &["access", "nobody=dusk"]).expect(1).says("no node dusk");
}

#[test]
fn a_token_of_one_kind_lets_no_machine_of_the_other_kind_join() {
    let bed = Bed::of(2, &[0]);
    let address = bed.node(1).address();
    bed.tutti(1, &["up", "--listen", &address, "--name", "n1"]).expect(0);
    for (args, says) in [
        (&["--client"][..], "--users"),
        (&["--users", "nobody"], "--client"),
        (&["--client", "--users", "nobody", "--admin"], "can't go with"),
    ] {
        bed.tutti(1, &[&["invite"], args].concat()).expect(2).says(says);
    }
    bed.tutti(1, &["invite", "--client", "--users", "root"]).expect(1).says("never root");
    bed.tutti(1, &["invite", "--client", "--users", "none.such"])
        .expect(1)
        .says("no user none.such");
    let told = bed.tutti(1, &["invite", "--client", "--users", "nobody"]).expect(0).text();
    assert!(told.contains("tutti join --client "), "{told}");
    let token = invite(&bed, "nobody");
    bed.tutti(2, &["join", &address, &token]).expect(1).says("tutti join --client");
    let of_node = bed.tutti(1, &["invite", "--parsable"]).expect(0).text();
    let join = |token: &str| bed.tutti(2, &["join", "--client", &address, token, "--name", "desk"]);
    join(of_node.trim()).expect(1).says("tutti invite --client");
    // Neither is spent by that.
    join(&token).expect(0);
    let again = join(&token).expect(0).text();
    assert!(again.contains("desk is a client machine of cluster tutti already"), "{again}");
    bed.tutti(2, &["down"]).expect(0);
    let left = bed.tutti(2, &["leave"]).expect(0).text();
    assert!(left.contains("tutti nodes remove desk"), "{left}");
    bed.tutti(2, &["join", &address, of_node.trim(), "--name", "n2"]).expect(0);
}

#[test]
fn a_client_machine_that_would_be_a_node_is_refused() {
    let bed = bed_with_desk();
    bed.tutti(DESK, &["down"]).expect(0);
    let member = bed.node(DESK).directory().join("cluster/member.json");
    let mut forged: Value = serde_json::from_slice(&fs::read(&member).unwrap()).unwrap();
    assert_eq!(forged["is_client"], true);
    forged["is_client"] = false.into();
    fs::write(&member, forged.to_string()).unwrap();
    let node = bed.start(DESK, &["up", "--foreground"]);
    node.wait_for_err("its certificate is that of a client machine, which runs no task");
    assert_eq!(bed.states().into_keys().collect::<Vec<_>>(), ["n1", "n2"]);
    node.signal(Signal::SIGTERM);
    drop(node.wait());
    // As what it is, it is welcome.
    forged["is_client"] = true.into();
    fs::write(&member, forged.to_string()).unwrap();
    let up = bed.tutti(DESK, &["up"]).expect(0).text();
    assert!(up.contains("desk, a client machine of cluster tutti, is up"), "{up}");
    open(&bed);
    ask(&bed, &["run", "true"]).expect(0);
}

#[test]
fn a_client_machine_stays_when_daemons_begin_anew_and_goes_when_it_is_removed() {
    let bed = bed_with_desk();
    let talking = start_as(
        &bed,
        NOBODY,
        &["run", "-w", "n2", "--", "sh", "-c", "echo begun; sleep 3; echo end"],
    );
    talking.wait_for("begun");
    bed.node(1).signal("controller", Signal::SIGKILL).unwrap();
    assert_eq!(talking.wait().expect(0).text(), "begun\nend\n");
    eventually("it is connected", || (state_of_desk(&bed)? == "up").then_some(()));
    for (number, role) in [(1, "agent"), (DESK, "agent")] {
        let node = bed.node(number);
        let agent = node.daemon(role).unwrap();
        node.signal(role, Signal::SIGKILL).unwrap();
        eventually("another agent", || node.daemon(role).filter(|&new| new != agent));
        eventually("it can be asked", || {
            open_again(&bed);
            (ask(&bed, &["run", "-w", "n2", "true"]).code == 0).then_some(())
        });
    }
    // A job that waits for its front end's machine ends when that is gone for good.
    let orphan = start_as(&bed, NOBODY, &["run", "-w", "n2", "--", "sleep", &bed.audit.nap]);
    eventually("it runs", || {
        bed.tutti(1, &["ps"]).expect(0).text().contains("running").then_some(())
    });
    bed.tutti(1, &["nodes", "remove", "desk"]).expect(0);
    within(Duration::from_secs(20), "the end of the job", || {
        (!bed.tutti(1, &["ps"]).expect(0).text().contains("running")).then_some(())
    });
    drop(orphan);
    assert_eq!(clients(&bed), json!([]));
    eventually("it is said why", || {
        let why = ask(&bed, &["ps"]).expect(1).says("client machine desk ").says("[T").err;
        why.contains("was removed from the cluster").then_some(())
    });
    bed.tutti(DESK, &["down"]).expect(0);
    bed.tutti(DESK, &["leave"]).expect(0);
    assert_eq!(bed.node(DESK).daemon("agent"), None);
}

/// The sockets of an agent that has begun anew.
fn open_again(bed: &Bed) {
    for socket in ["controller.sock", "gate.sock"] {
        let path = bed.node(DESK).directory().join(socket);
        let _ = set_permissions(path, Permissions::from_mode(0o666));
    }
}

#[test]
fn a_client_machine_that_is_cut_off_loses_its_front_ends_and_comes_back() {
    let bed = bed_with_desk();
    // A terminal passes.
    let size =
        ask(&bed, &["run", "--pty", "-w", "n2", "--", "sh", "-c", "test -t 1 && echo terminal"]);
    assert!(size.expect(0).text().contains("terminal"));
    let front = start_as(&bed, NOBODY, &["run", "-w", "n2", "--", "sleep", &bed.audit.nap]);
    let line =
        ["submit", "--parsable", "-o", "/dev/null", "-w", "n2", "--", "sleep", &bed.audit.nap];
    let kept = ask(&bed, &line).expect(0).text().trim().to_owned();
    let running = || {
        let jobs = bed.tutti(1, &["ps", "--json"]).expect(0).json();
        jobs.as_array().unwrap().iter().filter(|job| job["state"] == "running").count()
    };
    eventually("both run", || (running() == 2).then_some(()));
    bed.bed().cut(bed.node(DESK)).unwrap();
    within(Duration::from_secs(40), "the end of the one with a front end", || {
        (running() == 1).then_some(())
    });
    assert_eq!(state_of_desk(&bed).as_deref(), Some("away"));
    drop(front);
    bed.bed().heal(bed.node(DESK)).unwrap();
    within(Duration::from_secs(40), "it is back", || (state_of_desk(&bed)? == "up").then_some(()));
    ask(&bed, &["cancel", "--now", &kept]).expect(0);
    // An upgrade of its supervisor and agent.
    let agent = bed.node(DESK).daemon("agent").unwrap();
    let program = bed.audit.program.to_str().unwrap();
    bed.tutti(DESK, &["upgrade", program]).expect(0);
    assert_ne!(bed.node(DESK).daemon("agent"), Some(agent));
    open_again(&bed);
    ask(&bed, &["run", "-w", "n2", "true"]).expect(0);
}

#[test]
fn an_upgrade_of_all_machines_names_those_that_it_leaves_out() {
    let bed = bed_with_desk();
    let program = bed.audit.program.to_str().unwrap().to_owned();
    let done = bed.tutti(1, &["upgrade", "--all", &program]).expect(0).text();
    let last =
        format!("not upgraded, client machines: desk; run `tutti upgrade {program}` on each");
    assert_eq!(done.lines().last(), Some(last.as_str()), "{done}");
}
