//! Every code of a message, provoked; and the page that lists them.

use crate::harness::{Done, Instance, NOBODY, PATIENCE, Running, eventually, player};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::net::Shutdown;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use tutti_journal::SqliteStore;

/// Codes that only the unit tests of `src/codes.rs` provoke, since it takes a million jobs or an
/// old kernel.
const ELSEWHERE: [&str; 3] = ["T033", "T035", "T047"];

/// Codes that it takes a cluster for that is cut in two (`partition.rs`), a file system that does
/// not answer (`stuck.rs`), a kernel that lacks a call (`old_kernels.rs`), a program that does not
/// vacate (`vacate.rs`), a server (`notify.rs`), or CRIU (`checkpoint_image.rs`).
const NOT_HERE: [&str; 7] = ["T063", "T072", "T074", "T076", "T088", "T089", "T090"];

fn codes(list: &Value) -> BTreeSet<String> {
    let list = list.as_array().unwrap().iter();
    list.map(|entry| entry["code"].as_str().unwrap().to_owned()).collect()
}

/// What was provoked, and what carries its code.
#[derive(Default)]
struct Provoked(BTreeSet<String>);

impl Provoked {
    #[track_caller]
    fn said(&mut self, code: &str, done: &Done) {
        let mark = format!("[{code}]\n");
        assert!(format!("{}\n", done.err).contains(&mark), "no {mark:?} in: {}", done.err);
        assert_ne!(done.code, 0, "{}", done.err);
        self.0.insert(code.into());
    }

    #[track_caller]
    fn noted(&mut self, code: &str, job: &Value) {
        assert_eq!(job["code"], code, "{job}");
        self.0.insert(code.into());
    }
}

#[test]
fn each_code_is_carried_by_a_message() {
    let instance = Instance::of_the_system();
    let place = instance.work.join("tmp");
    fs::create_dir(&place).unwrap();
    let mut up = instance.command(&["up"]);
    up.env("TMPDIR", &place);
    crate::harness::Running::start(up).wait().expect(0);
    let all = codes(&instance.tutti(&["explain", "--json"]).expect(0).json());
    let mut provoked = Provoked::default();
    requests(&instance, &mut provoked);
    jobs(&instance, &mut provoked);
    declined(&instance, &mut provoked);
    ends(&instance, &mut provoked);
    instances(&instance, &mut provoked);
    logged(&instance, &mut provoked);
    last(&instance, &mut provoked);
    provoked.0.extend(ELSEWHERE.into_iter().chain(NOT_HERE).map(String::from));
    assert_eq!(provoked.0, all, "a code without a message, or a message without a code");
}

/// What is wrong before anything is asked, or with what is asked.
fn requests(instance: &Instance, provoked: &mut Provoked) {
    provoked.said("T001", &instance.tutti(&["runn"]));
    provoked.said("T029", &instance.tutti(&["wait", "--all"]));
    provoked.said("T002", &instance.tutti(&["params", "quantum=7"]));
    instance.script("bad.sh", "#!/bin/sh\n#TUTTI --tusks 3\ntrue\n");
    provoked.said("T003", &instance.tutti(&["submit", "./bad.sh"]));
    provoked.said("T004", &instance.tutti(&["submit", "nosuch"]));
    crate::mpi::like_open_mpi(instance);
    let line = "TUTTI_LIBPMIX=/no/such tutti submit -n 2 ./direct";
    provoked.said("T007", &instance.shell(line));
    provoked.said("T004", &instance.tutti(&["run", "nosuch"]).expect(127));
    fs::write(instance.work.join("plain"), "text").unwrap();
    provoked.said("T005", &instance.tutti(&["submit", "./plain"]));
    provoked.said("T005", &instance.tutti(&["run", "./plain"]).expect(126));
    provoked.said("T006", &instance.tutti(&["submit", "-i", "nosuch", "true"]));
    provoked.said("T070", &instance.tutti(&["history", "--swf", "no/such/file"]));
    provoked.said("T099", &instance.tutti(&["sim"]).says("nothing to simulate"));
    provoked.said("T001", &instance.tutti(&["ps", "3.0"]).says("3.0 is a part of one"));
    provoked.said("T060", &instance.tutti(&["leave"]));
    provoked.said("T002", &instance.tutti(&["explain", "T000"]).says("nearest is T001"));
}

/// What jobs and nodes are not.
fn jobs(instance: &Instance, provoked: &mut Provoked) {
    let ended = instance.submit(&["-o", "/dev/null", "true"]).to_string();
    instance.tutti(&["wait", &ended]).expect(0);
    let runs = instance.submit(&["-o", "/dev/null", "sh", "-c", "exec sleep $NAP"]);
    instance.wait_for_state(runs, "running");
    let runs = runs.to_string();
    let theirs = instance.command_as(Some(NOBODY), &["cancel", &runs]);
    provoked.said("T020", &Running::start(theirs).wait());
    provoked.said("T021", &instance.tutti(&["cancel", "999"]));
    provoked.said("T022", &instance.tutti(&["suspend", &ended]));
    provoked.said("T023", &instance.tutti(&["history", &runs]));
    provoked.said("T080", &instance.tutti(&["release", &runs]));
    provoked.said("T081", &instance.tutti(&["run", "--resource", "nosuch", "true"]));
    provoked.said("T024", &instance.tutti(&["suspend", &format!("{runs}.9")]));
    let name = "x".repeat(256);
    provoked.said("T025", &instance.tutti(&["submit", "-J", &name, "true"]));
    let never = format!("{ended}:notok");
    provoked.said("T087", &instance.tutti(&["submit", "--after", &never, "true"]));
    provoked.said("T086", &instance.tutti(&["events", "--since", "999999"]));
    provoked.said("T055", &instance.tutti(&["logs", &ended]).expect(1));
    provoked.said("T026", &instance.tutti(&["run", "--on-node-loss", "requeue", "true"]));
    provoked.said("T027", &instance.tutti(&["adopt", "1"]));
    let nodes = instance.tutti(&["nodes", "--json"]).expect(0).json();
    let node = nodes[0]["name"].as_str().unwrap().to_owned();
    provoked.said("T028", &instance.tutti(&["nodes", "remove", &node]));
    provoked.said("T015", &instance.tutti(&["upgrade", "/bin/true"]));
    instance.tutti(&["cancel", &runs]).expect(0);
}

fn declined(instance: &Instance, provoked: &mut Provoked) {
    instance.tutti(&["queue", "tiny", "job_processors=1"]).expect(0);
    for (code, words) in [
        ("T030", &["run", "-c", "4000", "true"][..]),
        ("T031", &["run", "-m", "900T", "true"]),
        ("T032", &["run", "--nodes", "nosuch", "true"]),
        ("T034", &["run", "--class", "nosuch", "true"]),
        ("T078", &["run", "-q", "nosuch", "true"]),
        ("T079", &["run", "-q", "tiny", "-c", "2", "true"]),
        ("T037", &["run", "--time", "1m", "--deadline", "1h", "true"]),
    ] {
        provoked.said(code, &instance.tutti(words).expect(120));
    }
    instance.tutti(&["params", "policy=deadline"]).expect(0);
    let late = ["run", "--time", "1h", "--deadline", "1m", "true"];
    provoked.said("T036", &instance.tutti(&late).expect(120));
    instance.tutti(&["params", "policy=space"]).expect(0);
    let all = crate::harness::own_processors().len().to_string();
    let line = format!("exec {} run --outside true", instance.program.display());
    let nested = ["run", "-n", &all, "--kill-on-bad-exit", "sh", "-c", &line];
    provoked.said("T008", &instance.tutti(&nested).expect(120));
    instance.tutti(&["params", "policy=gang"]).expect(0);
    instance.tutti(&["access", "1234=anywhere"]).expect(0);
    let other = Running::start(instance.command_as(Some(NOBODY), &["run", "true"])).wait();
    provoked.said("T039", &other.expect(120));
    instance.tutti(&["access", "1234=none"]).expect(0);
}

/// How jobs end otherwise than by themselves.
fn ends(instance: &Instance, provoked: &mut Provoked) {
    let sleeper = ["sh", "-c", "echo up; exec sleep $NAP"];
    let run = |options: &[&str]| instance.start(&[&["run"], options, &sleeper[..]].concat());
    provoked.said("T041", &run(&["--time", "100ms"]).wait().expect(124));
    let hog = player().display().to_string();
    let hog = instance.tutti(&["run", "-m", "50M", &hog, "hog", "400"]).expect(123);
    provoked.said("T042", &hog);
    let flood = instance.start(&["run", &crate::pmi::program(), "flood"]);
    provoked.said("T048", &flood.wait_within(PATIENCE * 3).expect(1));
    let waits = ["run", "-n", "2", "--grace", "0s", &crate::pmi::program(), "leave", "3"];
    provoked.said("T049", &instance.tutti(&waits).expect(3));
    instance.tutti(&["params", "front_end_grace=0s"]).expect(0);
    let killed = run(&["-J", "killed"]);
    killed.wait_for("up");
    killed.signal(Signal::SIGKILL);
    killed.wait().expect(137);
    let is_killed = |job: &Value| job["name"] == "killed" && job["state"] == "ended";
    let job = eventually("its end", || instance.jobs().into_iter().find(is_killed));
    provoked.noted("T044", &job);
    let cancelled = run(&["-J", "cancelled"]);
    cancelled.wait_for("up");
    let is_ours = |job: &Value| job["name"] == "cancelled";
    let job = instance.jobs().into_iter().find(is_ours).unwrap()["job"].to_string();
    instance.tutti(&["cancel", &job]).expect(0);
    provoked.said("T045", &cancelled.wait().expect(143));
    let full = instance.shell("tutti run echo much > /dev/full");
    provoked.said("T046", &full);
    let lost = run(&[]);
    lost.wait_for("up");
    let keeper = instance.daemon("keeper");
    kill(Pid::from_raw(keeper), Signal::SIGKILL).unwrap();
    provoked.said("T040", &lost.wait().expect(121).says("lost its tasks"));
    eventually("another keeper", || instance.daemon_now("keeper").filter(|&new| new != keeper));
}

/// A state directory of its own, for an instance that does not come up.
fn directory(instance: &Instance, name: &str) -> PathBuf {
    let path = instance.work.join(name);
    fs::create_dir(&path).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
    path
}

fn at(instance: &Instance, directory: &Path, user: Option<u32>, words: &[&str]) -> Done {
    let mut command = instance.command_as(user, words);
    command.env("TUTTI_DIR", directory).env_remove("TUTTI_CLUSTER");
    Running::start(command).wait()
}

/// Instances that are not there, not ours, or have a journal that is none.
fn instances(instance: &Instance, provoked: &mut Provoked) {
    let none = directory(instance, "none");
    provoked.said("T010", &at(instance, &none, None, &["ps"]));
    provoked.said("T061", &at(instance, &none, None, &["join", "127.0.0.1:9", "nonsense"]));
    let ours = directory(instance, "ours");
    fs::set_permissions(&instance.work, fs::Permissions::from_mode(0o777)).unwrap();
    let program = instance.share(&instance.program);
    let mut theirs = instance.command_as(Some(NOBODY), &[]);
    theirs.env("TUTTI_DIR", &ours).env_remove("TUTTI_CLUSTER");
    let mut words: Vec<_> = theirs.get_args().map(ToOwned::to_owned).collect();
    let place = words.iter().position(|word| *word == *instance.program.as_os_str()).unwrap();
    words[place] = program.into();
    let mut command = std::process::Command::new("setpriv");
    command.args(words).arg("ps").env("TUTTI_DIR", &ours).env_remove("TUTTI_CLUSTER");
    provoked.said("T013", &Running::start(command).wait());
    let newer = [&[8, 0, 0, 0][..], b"TUTTI", &999_u16.to_le_bytes(), &[4]].concat();
    let versions = format!("version 999, this is version {}", tutti_wire::limits::PROTOCOL_VERSION);
    for (code, answer, says) in [
        ("T011", Vec::new(), ""),
        ("T012", b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(), ""),
        ("T012", newer, versions.as_str()),
    ] {
        let place = directory(instance, &format!("{code}{}", answer.len()));
        let listener = UnixListener::bind(place.join("controller.sock")).unwrap();
        let served = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            if answer.is_empty() {
                // A request that was read may have been carried out: it is not repeated.
                stream.set_read_timeout(Some(std::time::Duration::from_millis(500))).unwrap();
                let _ = std::io::copy(&mut stream, &mut std::io::sink());
                return;
            }
            let _ = stream.write_all(&answer);
            let _ = stream.shutdown(Shutdown::Write);
            let _ = std::io::copy(&mut stream, &mut std::io::sink());
        });
        let verb = if code == "T011" { &["cancel", "1"][..] } else { &["ps"] };
        provoked.said(code, &at(instance, &place, None, verb).says(says));
        served.join().unwrap();
    }
    provoked.said("T014", &at(instance, Path::new("/proc/nosuch"), None, &["up"]));
    let unusable = directory(instance, "unusable");
    fs::create_dir(unusable.join("journal.db")).unwrap();
    provoked.said("T050", &at(instance, &unusable, None, &["up"]));
    let damaged = directory(instance, "damaged");
    fs::write(damaged.join("journal.db"), "somebody's thesis".repeat(400)).unwrap();
    provoked.said("T051", &at(instance, &damaged, None, &["up"]));
    let newer = directory(instance, "newer").join("journal.db");
    drop(SqliteStore::open(&newer).unwrap());
    let mut bytes = fs::read(&newer).unwrap();
    // Where SQLite keeps the number of the form.
    bytes[60..64].copy_from_slice(&999_u32.to_be_bytes());
    fs::write(&newer, bytes).unwrap();
    provoked.said("T052", &instance.tutti(&["replay", newer.to_str().unwrap()]));
}

/// What daemons say in their log.
fn logged(instance: &Instance, provoked: &mut Provoked) {
    let mut says = |code: &str, what: &str| {
        let line = eventually(&format!("{what:?} in the log"), || {
            instance.log().lines().find(|line| line.contains(what)).map(str::to_owned)
        });
        assert!(line.ends_with(&format!(" [{code}]")), "{line}");
        provoked.0.insert(code.into());
    };
    crate::recovery::kill_daemon(instance, "controller");
    says("T071", "the controller ended");
    says("T062", "lost the controller");
    let mut noise =
        std::os::unix::net::UnixStream::connect(instance.dir.join("keeper.sock")).unwrap();
    noise.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    says("T064", "dropped a connection");
    // No user can make a directory for temporary files.
    eventually("the next controller", || {
        Some(instance.tutti(&["run", "true"])).filter(|done| done.code == 0)
    });
    let (place, away) = (instance.work.join("tmp"), instance.work.join("away"));
    fs::rename(&place, &away).unwrap();
    let ran = instance.tutti(&["run", "sh", "-c", "echo $TMPDIR"]);
    fs::rename(&away, &place).unwrap();
    assert!(!ran.expect(0).text().contains("-job-"));
    says("T073", "has no TMPDIR of its own");
}

/// What is said while the instance ends.
fn last(instance: &Instance, provoked: &mut Provoked) {
    let line = "trap '' TERM; echo up; while :; do sleep 0.05; done";
    let stays = instance.start(&["run", "--grace", "3s", "sh", "-c", line]);
    stays.wait_for("up");
    let down = instance.start(&["down"]);
    let told = eventually("that it ends", || {
        Some(instance.tutti(&["submit", "true"])).filter(|done| done.code != 0)
    });
    provoked.said("T038", &told.expect(120));
    provoked.said("T043", &stays.wait().expect(122));
    down.wait().expect(0);
}

#[test]
fn the_page_of_codes_is_the_table() {
    let instance = Instance::new();
    let made = instance.tutti(&["explain", "--markdown"]).expect(0).text();
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/errors.md");
    let page = fs::read_to_string(page).unwrap();
    assert!(
        made == page,
        "docs/reference/errors.md is old: `tutti explain --markdown > docs/reference/errors.md`"
    );
}

#[test]
fn pages_that_are_made_from_code_are_current() {
    let instance = Instance::new();
    for name in ["verbs", "parameters", "exit-codes", "environment"] {
        let made = instance.tutti(&["reference", name]).expect(0).text();
        let page =
            Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../docs/reference/{name}.md"));
        let page = fs::read_to_string(page).unwrap();
        assert!(
            made == page,
            "docs/reference/{name}.md is old: `tutti reference {name} > docs/reference/{name}.md`"
        );
    }
}

#[test]
fn a_code_is_explained() {
    let instance = Instance::new();
    let told = instance.tutti(&["explain", "T021"]).expect(0).text();
    assert!(told.contains("There is no job") && told.contains("What you can do"), "{told}");
    let told = instance.tutti(&["explain", "--json", "t21"]).expect(0).json();
    assert_eq!(told["code"], "T021");
    let told = instance.tutti(&["explain", "T001", "2"]).expect(0).text();
    assert!(told.starts_with("T001: ") && told.contains("\n\nT002: "), "{told}");
    let told = instance.tutti(&["explain", "--json", "1", "2"]).expect(0).json();
    assert_eq!((&told[0]["code"], &told[1]["code"]), (&"T001".into(), &"T002".into()));
    instance.tutti(&["explain", "T001", "T000"]).expect(1).says("there is no code T000");
}
