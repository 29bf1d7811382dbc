//! State directories that another user has made first, with anything in them: root neither
//! writes, ends nor removes anything because of it, nor is held up.

use crate::harness::{Done, Instance, NOBODY, Running, needs_root};
use nix::fcntl::{Flock, FlockArg};
use nix::sys::socket::{Backlog, listen};
use nix::sys::stat::Mode;
use nix::unistd::{chown, mkfifo};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

const KEPT: &str = "must be kept\n";

/// A directory of another user's, beside a file of root's that the user would like to be written.
struct Trap {
    instance: Instance,
    directory: PathBuf,
    victim: PathBuf,
}

impl Trap {
    /// One of this name; the directories for instances and temporary files are in it.
    fn new(name: &str) -> Self {
        let instance = Instance::new();
        let victim = instance.work.join("victim");
        fs::write(&victim, KEPT).unwrap();
        fs::set_permissions(&victim, fs::Permissions::from_mode(0o640)).unwrap();
        let directory = instance.work.join("tmp").join(name);
        fs::create_dir_all(&directory).unwrap();
        Self { instance, directory, victim }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// Hands all that is in it to the other user.
    fn set(&self) {
        needs_root("files of another user");
        let user = NOBODY.to_string();
        let mut chown = Command::new("chown");
        assert!(chown.args(["-hR", &user]).arg(&self.directory).status().unwrap().success());
    }

    /// A verb of root's that comes upon it by itself.
    #[track_caller]
    fn come_upon(&self, args: &[&str]) -> Done {
        let program = self.instance.program.to_string_lossy();
        let words = [&[&*program], args].concat();
        let mut command = self.instance.command_in(self.directory.parent().unwrap(), &words);
        command.env("TUTTI_CLUSTER", "trap");
        Running::start(command).wait()
    }

    /// A verb of root's in it.
    #[track_caller]
    fn enter(&self, args: &[&str]) -> Done {
        let mut command = self.instance.command(args);
        command.env("TUTTI_DIR", &self.directory);
        Running::start(command).wait()
    }

    #[track_caller]
    fn expect_untouched(&self) {
        assert_eq!(fs::read_to_string(&self.victim).unwrap(), KEPT);
        assert_eq!(fs::metadata(&self.victim).unwrap().mode() & 0o777, 0o640);
    }
}

#[track_caller]
fn expect_refused(done: Done) {
    assert_ne!(done.code, 0, "{}", done.text());
    done.says("belongs to user 65534");
}

#[test]
fn what_another_user_calls_an_instance_is_not_cleared_away() {
    let _turn = crate::leftovers::removes();
    let trap = Trap::new("tutti-evil");
    File::create(trap.at("controller.sock")).unwrap();
    symlink(&trap.victim, trap.at("lock")).unwrap();
    trap.set();
    let done = trap.come_upon(&["doctor", "--leftovers", "--remove"]);
    trap.expect_untouched();
    assert!(!done.text().contains("tutti-evil"), "{}", done.text());
    assert!(trap.at("controller.sock").exists());
}

#[test]
fn an_instance_of_anothers_own_is_said_to_be_that() {
    let instance = Instance::new().up();
    let ask = |user: u32, args: &[&str]| {
        let mut command = instance.command_as(Some(user), args);
        command.env("TUTTI_DIR", &instance.dir);
        Running::start(command).wait()
    };
    let verbs = [&["ps"][..], &["submit", "-o", "/dev/null", "true"], &["run", "true"]];
    for args in verbs.into_iter().chain([&["up"][..], &["down"]]) {
        let done = ask(NOBODY, args).says("belongs to user 0 (root), not to you");
        let done = done.says("; unset TUTTI_DIR, or set it to").says("[T013]");
        assert!(done.code != 0 && !done.err.contains("remove"), "{}", done.err);
    }
    let doctor = ask(NOBODY, &["doctor"]).expect(1).text();
    assert!(doctor.contains("belongs to user 0 (root), not to you"), "{doctor}");
    assert!(!doctor.contains("tutti run starts one") && !doctor.contains("tutti down"), "{doctor}");
    drop(instance);
    // Root is told the owner.
    let trap = Trap::new("tutti-0-trap");
    trap.set();
    let done =
        trap.enter(&["ps"]).expect(1).says("belongs to user 65534 (nobody), not to root; act as");
    done.says("; unset TUTTI_DIR, or");
    trap.come_upon(&["ps"]).expect(1).says("; have it removed, or set TUTTI_DIR");
}

#[test]
fn a_link_to_an_instance_is_none() {
    let _turn = crate::leftovers::removes();
    let trap = Trap::new("tutti-link");
    let real = trap.instance.work.join("real");
    fs::create_dir(&real).unwrap();
    File::create(real.join("lock")).unwrap();
    fs::remove_dir(&trap.directory).unwrap();
    symlink(&real, &trap.directory).unwrap();
    let done = trap.come_upon(&["doctor", "--leftovers", "--remove"]);
    assert!(!done.text().contains("tutti-link"), "{}", done.text());
    assert!(real.join("lock").exists());
    trap.enter(&["down"]).expect(1).says("is not a directory that only you can write");
    assert!(real.join("lock").exists());
}

#[test]
fn a_lock_in_an_own_directory_is_no_link() {
    let trap = Trap::new("tutti-0-trap");
    fs::set_permissions(&trap.directory, fs::Permissions::from_mode(0o700)).unwrap();
    symlink(&trap.victim, trap.at("lock")).unwrap();
    trap.enter(&["down"]);
    trap.expect_untouched();
    trap.enter(&["up"]).says("cannot open");
    trap.expect_untouched();
}

#[test]
fn down_locks_nothing_that_another_user_has_a_link_to() {
    let trap = Trap::new("tutti-0-trap");
    symlink(&trap.victim, trap.at("lock")).unwrap();
    trap.set();
    let done = trap.come_upon(&["down"]);
    trap.expect_untouched();
    expect_refused(done);
}

#[test]
fn down_ends_nothing_that_another_user_names() {
    let trap = Trap::new("tutti-0-trap");
    let mut bystander: Child = Command::new("sleep").arg(&trap.instance.nap).spawn().unwrap();
    fs::write(trap.at("lock"), format!("{}\n", bystander.id())).unwrap();
    fs::create_dir(trap.at("cluster")).unwrap();
    let member = r#"{"cluster":"c","name":"n","listen":null,"address":null,"head":["h:1"],"trusts_root":false}"#;
    fs::write(trap.at("cluster").join("member.json"), member).unwrap();
    trap.set();
    let lock = File::open(trap.at("lock")).unwrap();
    let _lock = Flock::lock(lock, FlockArg::LockExclusiveNonblock).unwrap();
    let done = trap.come_upon(&["down"]);
    let ended = bystander.try_wait().unwrap();
    let _ = bystander.kill();
    bystander.wait().unwrap();
    assert!(ended.is_none(), "{ended:?}");
    expect_refused(done);
}

#[test]
fn what_root_knows_of_its_cluster_is_not_written_where_another_user_has_links() {
    let trap = Trap::new("tutti-0-trap");
    fs::set_permissions(&trap.directory, fs::Permissions::from_mode(0o700)).unwrap();
    trap.enter(&["up", "--listen", "127.0.0.1"]).expect(0);
    trap.enter(&["down"]).expect(0);
    for name in ["register.json.new", "member.json.new"] {
        symlink(&trap.victim, trap.at("cluster").join(name)).unwrap();
    }
    trap.set();
    let ssh = ["join", "--ssh", "n1", "--no-copy", "--ssh-with", "false"];
    for args in [&["invite"][..], &["up", "--listen", "127.0.0.1"], &ssh, &["leave"]] {
        let done = trap.enter(args);
        trap.expect_untouched();
        expect_refused(done);
    }
    // One that is root's own, with the same links in it.
    let mut chown = Command::new("chown");
    assert!(chown.args(["-hR", "0"]).arg(&trap.directory).status().unwrap().success());
    trap.enter(&["invite"]).expect(0);
    trap.expect_untouched();
    trap.enter(&["leave"]).expect(0);
}

#[test]
fn pipes_of_another_user_hold_nobody_up() {
    let trap = Trap::new("tutti-0-trap");
    File::create(trap.at("controller.sock")).unwrap();
    mkfifo(&trap.at("lock"), Mode::S_IRWXU).unwrap();
    fs::create_dir(trap.at("cluster")).unwrap();
    mkfifo(&trap.at("cluster").join("member.json"), Mode::S_IRWXU).unwrap();
    trap.set();
    trap.come_upon(&["doctor", "--leftovers"]);
    for args in [&["down"][..], &["ps"], &["invite"]] {
        expect_refused(trap.enter(args));
    }
    // Nor one in a directory of one's own.
    for path in [trap.directory.clone(), trap.at("cluster")] {
        chown(&path, Some(0.into()), None).unwrap();
    }
    fs::set_permissions(&trap.directory, fs::Permissions::from_mode(0o700)).unwrap();
    trap.enter(&["invite"]).expect(1).says("is no file");
}

/// A socket that takes no connection, nor refuses it: one waits already, and no more may.
fn full(path: &Path) -> (UnixListener, UnixStream) {
    let listener = UnixListener::bind(path).unwrap();
    listen(&listener, Backlog::new(0).unwrap()).unwrap();
    let waiting = UnixStream::connect(path).unwrap();
    (listener, waiting)
}

#[test]
fn sockets_of_another_user_hold_nobody_up() {
    let trap = Trap::new("tutti-0-trap");
    let _full = full(&trap.at("controller.sock"));
    trap.set();
    trap.come_upon(&["doctor", "--leftovers"]);
    trap.come_upon(&["doctor"]);
    for args in [&["down"][..], &["ps"], &["run", "true"], &["up"]] {
        expect_refused(trap.enter(args));
    }
}

#[test]
fn nobody_is_told_to_upgrade_by_root_but_roots_own() {
    let trap = Trap::new("tutti-0-trap");
    let listener = UnixListener::bind(trap.at("supervisor.sock")).unwrap();
    trap.set();
    let liar = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut asked = [0; 7];
        let heard = stream.read(&mut asked).unwrap();
        let _ = stream.write_all(b"done it is me\n");
        heard
    });
    let done = trap.enter(&["upgrade"]);
    // The liar's end, if nothing has come.
    let _ = UnixStream::connect(trap.at("supervisor.sock"));
    assert_eq!(liar.join().unwrap(), 0, "it was asked");
    expect_refused(done);
}
