//! What jobs and instances leave behind: nothing, or what `tutti doctor --leftovers` finds.

use crate::harness::{Instance, eventually, needs_root};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// To be held by a test that removes what is left: meanwhile no other test takes that from it.
pub(crate) fn removes() -> MutexGuard<'static, ()> {
    static REMOVAL: Mutex<()> = Mutex::new(());
    REMOVAL.lock().unwrap_or_else(PoisonError::into_inner)
}

#[test]
fn each_job_has_a_directory_for_temporary_files_that_goes_with_it() {
    let instance = Instance::new().up();
    let line = "stat -c '%a %u' $TMPDIR; touch $TMPDIR/a; mkdir $TMPDIR/b; echo $TMPDIR; \
        tutti run --outside sh -c 'echo $TMPDIR'";
    let line = format!("PATH={}:$PATH; {line}", instance.program.parent().unwrap().display());
    let mut command = instance.command(&["run", "sh", "-c", &line]);
    command.env_remove("TMPDIR");
    let done = crate::harness::Running::start(command).wait().expect(0);
    let lines: Vec<String> = done.text().lines().map(str::to_owned).collect();
    assert_eq!(lines[0], "700 0");
    assert_ne!(lines[1], lines[2], "a job within the job has the same");
    assert!(!Path::new(&lines[1]).exists() && !Path::new(&lines[2]).exists());
    let mut command = instance.command(&["run", "sh", "-c", "echo $TMPDIR"]);
    command.env("TMPDIR", &instance.work);
    let done = crate::harness::Running::start(command).wait().expect(0);
    assert_eq!(done.text().trim(), instance.work.to_str().unwrap(), "who has one keeps it");
    assert!(instance.work.exists());
}

#[test]
fn the_directory_is_the_users_alone() {
    let instance = Instance::of_the_system().up();
    let args = ["run", "sh", "-c", "stat -c '%a %u' $TMPDIR; touch $TMPDIR/a; echo $TMPDIR"];
    let mut command = instance.command_as(Some(crate::harness::NOBODY), &args);
    command.env_remove("TMPDIR");
    let done = crate::harness::Running::start(command).wait().expect(0);
    let text = done.text();
    let (mode, path) = text.trim().split_once('\n').unwrap();
    assert_eq!(mode, "700 65534");
    assert!(!Path::new(path).exists());
}

/// Makes 6,000 directories within each other.
const NEST: &str = "cd $TMPDIR; some=$(printf 'd/%.0s' $(seq 100)); for i in $(seq 60); do \
    mkdir -p $some || exit 9; cd -P $some 2>/dev/null; done";

#[test]
fn however_deep_a_job_nests_directories_the_keeper_goes_on() {
    let instance = Instance::of_the_system().up();
    let keeper = instance.daemon("keeper");
    let other = instance.start(&["run", "sh", "-c", "echo up; exec sleep $NAP"]);
    other.wait_for("up");
    let nest = format!("echo $TMPDIR; {NEST}");
    let mut command =
        instance.command_as(Some(crate::harness::NOBODY), &["run", "sh", "-c", &nest]);
    command.env_remove("TMPDIR");
    let done = crate::harness::Running::start(command).wait().expect(0);
    let said = done.text();
    let directory = said.trim();
    eventually("it is removed", || (!Path::new(directory).exists()).then_some(()));
    assert_eq!(instance.daemon("keeper"), keeper);
    let jobs = instance.tutti(&["ps", "--json"]).expect(0).json();
    assert_eq!(jobs.as_array().map(Vec::len), Some(1), "{jobs}");
    other.signal(Signal::SIGINT);
    other.wait();
}

#[test]
fn what_a_job_moves_into_its_directory_of_another_users_stays_and_is_told() {
    let _turn = removes();
    let instance = Instance::of_the_system().up();
    let share = instance.work.join("share");
    let theirs = share.join("theirs");
    fs::create_dir_all(theirs.join("within")).unwrap();
    fs::write(theirs.join("within/kept"), "").unwrap();
    for (path, mode) in [(&share, 0o777), (&theirs, 0o777), (&theirs.join("within"), 0o755)] {
        std::os::unix::fs::chown(path, Some(lonely() + 1), None).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }
    fs::set_permissions(&instance.work, fs::Permissions::from_mode(0o755)).unwrap();
    let own = "mkdir $TMPDIR/own; touch $TMPDIR/own/a; chmod 500 $TMPDIR/own; ";
    let line = format!("{own} mv {} $TMPDIR && echo $TMPDIR", theirs.display());
    let mut command = instance.command_as(Some(lonely()), &["run", "sh", "-c", &line]);
    // On the same file system, so that nothing is copied; the keeper's is there, too.
    command.env_remove("TMPDIR");
    let said = crate::harness::Running::start(command).wait().expect(0).text();
    let directory = Path::new(said.trim()).to_path_buf();
    eventually("it is put aside", || (!directory.exists()).then_some(()));
    let name = directory.file_name().unwrap().to_string_lossy().replace("-job-", "-left-");
    let is_it = |entry: &fs::DirEntry| entry.file_name().to_string_lossy().starts_with(&name);
    let mut entries = fs::read_dir(directory.parent().unwrap()).unwrap().flatten();
    let aside = entries.find(is_it).unwrap().path();
    let told = instance.tutti(&["doctor", "--leftovers", "--remove"]).expect(1).text();
    let found: Vec<_> = fs::read_dir(&aside).unwrap().flatten().collect();
    let is_kept = found.len() == 1 && found[0].path().join("within/kept").exists();
    fs::remove_dir_all(&aside).unwrap();
    assert!(is_kept, "{found:?}");
    let line = format!("directory {}: what a job of user {} has left", aside.display(), lonely());
    assert!(told.contains(&line), "{told}");
    let log = fs::read_to_string(instance.dir.join("log")).unwrap();
    assert!(log.contains("\"within\" in it: Permission denied"), "{log}");
}

fn segments() -> Vec<String> {
    let text = fs::read_to_string("/proc/sysvipc/shm").unwrap();
    text.lines().skip(1).filter_map(|l| l.split_whitespace().nth(1).map(str::to_owned)).collect()
}

/// The number in what `ipcmk` says.
fn made(text: &str) -> String {
    text.lines().find_map(|line| line.rsplit(' ').next()).unwrap().trim().to_owned()
}

#[test]
fn shared_memory_that_a_job_made_goes_with_it_and_no_other_does() {
    let instance = Instance::new().up();
    // With that of the node, as tasks have it where root does not start them.
    instance.tutti(&["params", "--class", "interactive", "ipc=node"]).expect(0);
    let others = Command::new("ipcmk").args(["-M", "4096"]).output().unwrap();
    let others = made(&String::from_utf8_lossy(&others.stdout));
    let done = instance.tutti(&["run", "sh", "-c", "ipcmk -M 8192; sleep 0.1"]).expect(0);
    let of_job = made(&done.text());
    let left = segments();
    let shown = instance.tutti(&["doctor", "--leftovers"]).text();
    assert!(Command::new("ipcrm").args(["-m", &others]).status().unwrap().success());
    assert!(!left.contains(&of_job), "{of_job} is left");
    assert!(left.contains(&others), "{others} was another's");
    assert!(shown.contains(&format!("memory {others}: ")), "{shown}");
}

/// Whether the keeper of an instance holds that namespace open.
fn holds_namespace(instance: &Instance, name: &str) -> bool {
    let fds = fs::read_dir(format!("/proc/{}/fd", instance.daemon("keeper"))).unwrap();
    let mut links = fds.flatten().filter_map(|fd| fs::read_link(fd.path()).ok());
    links.any(|link| link.to_string_lossy() == name)
}

#[test]
fn queues_and_semaphores_are_the_jobs_own_and_go_with_it() {
    let instance = Instance::of_the_system().up();
    let nodes = |kind: &str| fs::read_to_string(format!("/proc/sysvipc/{kind}")).unwrap();
    let before = ["msg", "sem", "shm"].map(nodes);
    // Rank 0 makes one of each for all, and a file says that they are there.
    let gate = instance.work.join("gate");
    let line = format!(
        "if [ $TUTTI_RANK = 0 ]; then ipcmk -Q -p 666; ipcmk -S 2 -p 666; ipcmk -M 4096 -p 666; touch {gate}; fi; \
         until [ -e {gate} ]; do sleep 0.01; done; wc -l < /proc/sysvipc/msg; wc -l < /proc/sysvipc/sem; \
         readlink /proc/self/ns/ipc; sleep $NAP",
        gate = gate.display()
    );
    fs::set_permissions(&instance.work, fs::Permissions::from_mode(0o777)).unwrap();
    let nobody = Some(crate::harness::NOBODY);
    let args = ["run", "-n", "2", "--label", "sh", "-c", &line];
    let run = crate::harness::Running::start(instance.command_as(nobody, &args));
    eventually("both sleep", || (instance.nappers().len() == 2).then_some(()));
    assert_eq!(["msg", "sem", "shm"].map(nodes), before, "the node's own are as they were");
    let said = |rank: u32| -> Vec<String> {
        let out = run.out();
        let of_rank = out.lines().filter_map(|line| line.strip_prefix(&format!("{rank}: ")));
        of_rank.map(str::to_owned).collect::<Vec<_>>().into_iter().rev().take(3).collect()
    };
    let is_all = |lines: &Vec<String>| lines.first().is_some_and(|last| last.starts_with("ipc:"));
    let first = eventually("rank 0 to speak", || Some(said(0)).filter(is_all));
    let second = eventually("rank 1 to speak", || Some(said(1)).filter(is_all));
    assert_eq!(first, second, "ranks share them");
    assert_eq!(first[1..], ["2", "2"], "a title and one line of each");
    let own = fs::read_link("/proc/self/ns/ipc").unwrap();
    assert_ne!(first[0], own.to_string_lossy());
    assert!(holds_namespace(&instance, &first[0]));
    let args = ["run", "sh", "-c", "readlink /proc/self/ns/ipc; wc -l < /proc/sysvipc/msg"];
    let other = crate::harness::Running::start(instance.command_as(nobody, &args)).wait().expect(0);
    assert_eq!(other.text().lines().nth(1), Some("1"), "another job of the user sees none");
    instance.tutti(&["cancel", "--now", "1"]).expect(0);
    run.wait();
    eventually("the namespace to go", || (!holds_namespace(&instance, &first[0])).then_some(()));
    instance.tutti(&["params", "--class", "interactive", "ipc=node"]).expect(0);
    let shared =
        crate::harness::Running::start(instance.command_as(nobody, &args)).wait().expect(0);
    assert_eq!(shared.text().lines().next(), own.to_str());
}

/// Queues and semaphores that a job of an ordinary user with the IPC of the node has made, as the
/// audit shows them after its end; they are removed then.
struct LeftIpc {
    queue: String,
    set: String,
    shown: String,
}

/// A user of which the machine has no other process.
fn lonely() -> u32 {
    60_000 + std::process::id() % 5_000
}

impl LeftIpc {
    /// The POSIX queue, whose name this is, stays if the job does not take it with it.
    fn by_job(instance: &Instance, posix: &str) -> Self {
        let player = instance.share(&crate::harness::player()).display().to_string();
        let args = ["run", "sh", "-c", &format!("{player} leave-ipc {posix}; sleep 0.1")];
        let run = crate::harness::Running::start(instance.command_as(Some(lonely()), &args));
        let done = run.wait().expect(0).text();
        let (queue, set) = done.trim().split_once(' ').unwrap();
        let shown = instance.tutti(&["doctor", "--leftovers"]).text();
        // What is gone already is no matter.
        let _ = Command::new("ipcrm").args(["-q", queue]).output();
        let _ = Command::new("ipcrm").args(["-s", set]).output();
        Self { queue: queue.into(), set: set.into(), shown }
    }

    fn shows(&self, kind: &str, name: &str) -> bool {
        self.shown.contains(&format!("{kind} {name}: "))
    }
}

/// What POSIX shared memory and a semaphore of that name are called.
fn shared_files(name: &str) -> [String; 2] {
    let name = name.trim_start_matches('/');
    [format!("/dev/shm/{name}"), format!("/dev/shm/sem.{name}")]
}

/// Whether there is a POSIX queue of that name; not any more then.
fn remove_posix(instance: &Instance, name: &str) -> bool {
    needs_root("a mount");
    let place = instance.work.join("queues");
    fs::create_dir_all(&place).unwrap();
    let script = format!(
        "mount -t mqueue none {place} || exit 9; rm {place}{name} 2>/dev/null",
        place = place.display()
    );
    let done = Command::new("unshare").args(["--mount", "sh", "-c", &script]).status().unwrap();
    assert_ne!(done.code(), Some(9), "queues can be seen");
    done.success()
}

#[test]
fn queues_and_semaphores_of_the_node_go_with_the_job_that_alone_has_used_them() {
    let instance = Instance::of_the_system_alone().up();
    instance.tutti(&["params", "--class", "interactive", "ipc=node"]).expect(0);
    let posix = format!("/{}", instance.nap);
    let left = LeftIpc::by_job(&instance, &posix);
    let posix_stayed = remove_posix(&instance, &posix);
    assert!(!left.shows("queue", &left.queue), "{}", left.shown);
    assert!(!left.shows("semaphores", &left.set), "{}", left.shown);
    assert!(!posix_stayed && !left.shows("queue", &posix), "{}", left.shown);
    assert!(!shared_files(&posix).iter().any(|file| Path::new(file).exists()), "{}", left.shown);
}

#[test]
fn while_their_user_has_other_processes_they_are_only_shown() {
    let instance = Instance::of_the_system_alone().up();
    instance.tutti(&["params", "--class", "interactive", "ipc=node"]).expect(0);
    let mut other = Command::new("sleep");
    let mut other = other.arg("1000").uid(lonely()).gid(lonely()).spawn().unwrap();
    let [first, second] = [1, 2].map(|number| format!("/{}-{number}", instance.nap));
    let left = LeftIpc::by_job(&instance, &first);
    other.kill().unwrap();
    other.wait().unwrap();
    // A job whose user has no other process here takes no queue with it that was there before.
    let later = LeftIpc::by_job(&instance, &second);
    let stayed = [&first, &second].map(|name| remove_posix(&instance, name));
    assert!(left.shows("queue", &left.queue), "{}", left.shown);
    assert!(left.shows("semaphores", &left.set), "{}", left.shown);
    assert!(left.shows("queue", &first) && later.shows("queue", &first), "{}", later.shown);
    assert_eq!(stayed, [true, false]);
    let [memory, semaphore] = shared_files(&first);
    for file in [&memory, &semaphore] {
        fs::remove_file(file).unwrap();
    }
    assert!(shared_files(&second).iter().all(|file| !Path::new(file).exists()));
    assert!(left.shows("semaphores", &semaphore), "{}", left.shown);
    let told = later.shown.lines().find(|line| line.contains(&memory)).unwrap();
    let whose = format!("memory {memory}: 4.8K of user {}, made ", lonely());
    assert!(told.starts_with(&whose) && told.contains("open and mapped nowhere"), "{told}");
    let told = left.shown.lines().find(|line| line.starts_with("semaphores")).unwrap();
    let whose = format!("3 semaphores of user {}", lonely());
    assert!(told.contains(&whose) && told.contains("has ended"), "{told}");
}

#[test]
fn who_holds_a_device_open_ends_with_the_job() {
    for instance in [Instance::of_the_system_alone, Instance::of_nobody] {
        let instance = instance().up();
        let player = instance.share(&crate::harness::player()).display().to_string();
        let line = format!("{player} hold-terminal && echo held; exec sleep $NAP");
        let args = ["run", "sh", "-c", &line];
        let nobody = Some(crate::harness::NOBODY);
        let run = crate::harness::Running::start(instance.command_as(nobody, &args));
        run.wait_for("held");
        let out = run.out();
        let terminal = Path::new(out.lines().next().unwrap());
        assert!(terminal.exists(), "{out}");
        instance.tutti(&["cancel", "--now", "1"]).expect(0);
        run.wait().expect(137);
        // The device goes with the last process that has it open.
        assert!(!terminal.exists(), "{out}");
    }
}

#[test]
fn what_is_left_of_an_instance_is_found_and_removed() {
    let _turn = removes();
    let instance = Instance::new().up();
    let line = "touch $TMPDIR/a; exec sleep $NAP";
    let mut command = instance.command(&["submit", "-o", "/dev/null", "sh", "-c", line]);
    command.env_remove("TMPDIR");
    crate::harness::Running::start(command).wait().expect(0);
    eventually("a sleep", || (instance.nappers().len() == 1).then_some(()));
    assert!(instance.told_leftovers().is_empty(), "it lives");
    let agent = instance.daemon("agent");
    let text = fs::read_to_string(format!("/proc/{agent}/stat")).unwrap();
    let supervisor = text.rsplit(')').next().unwrap().split_whitespace().nth(1).unwrap();
    let [agent, controller, keeper] =
        ["agent", "controller", "keeper"].map(|role| instance.daemon(role));
    // The supervisor first: it would start the others again.
    let daemons = [supervisor.parse().unwrap(), agent, controller, keeper];
    for daemon in daemons {
        kill(Pid::from_raw(daemon), Signal::SIGKILL).unwrap();
    }
    eventually("the end of the daemons", || {
        daemons.iter().all(|pid| crate::harness::command_line(*pid).is_empty()).then_some(())
    });
    let told = instance.told_leftovers();
    for kind in ["instance", "cgroup", "directory"] {
        let kind = format!("\"kind\":\"{kind}\"");
        assert!(told.iter().any(|text| text.contains(&kind)), "no {kind} in {told:#?}");
    }
    // A user that looks for the job is told what became of it.
    for verb in [&["ps"][..], &["wait", "1"]] {
        let left = instance.tutti(verb).says("the one before has left 1 job: `tutti up` runs what");
        assert_ne!(left.code, 0);
    }
    let doctor = instance.tutti(&["doctor"]).expect(0).text();
    assert!(doctor.contains("has left 1 job"), "{doctor}");
    // Others' tests may have left something for a moment: only ours is of interest.
    let done = instance.tutti(&["doctor", "--leftovers", "--remove"]);
    assert!(done.text().contains("with 1 process; removed"), "{}", done.text());
    let line = format!("instance {}: its daemons were gone; removed", instance.dir.display());
    assert!(done.text().contains(&line), "{}", done.text());
    assert!(instance.told_leftovers().is_empty(), "{:#?}", instance.told_leftovers());
    instance.expect_no_nappers();
    instance.tutti(&["ps"]).expect(1).says("start one by themselves");
}

#[test]
fn the_directories_of_other_users_are_left_alone() {
    let _turn = removes();
    let instance = Instance::of_nobody();
    let path = std::env::temp_dir().join(format!("tutti-0-{:08x}-job-1", std::process::id()));
    fs::create_dir(&path).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    let done = instance.tutti(&["doctor", "--leftovers", "--remove"]);
    let exists = fs::metadata(&path).is_ok_and(|found| found.uid() == 0);
    fs::remove_dir(&path).unwrap();
    assert!(exists, "{}", done.text());
    assert!(done.text().contains(&path.display().to_string()), "{}", done.text());
}

#[test]
fn root_removes_what_is_left_of_its_own_instances_whosever_their_jobs_were() {
    let _turn = removes();
    let instance = Instance::new();
    needs_root("files of another user");
    let place = instance.work.join("tmp");
    let hash = format!("{:08x}", std::process::id());
    let [of_root, of_nobody] = [0, crate::harness::NOBODY].map(|owner| {
        let path = place.join(format!("tutti-{owner}-{hash}-job-1"));
        fs::create_dir_all(&path).unwrap();
        std::os::unix::fs::chown(&path, Some(crate::harness::NOBODY), None).unwrap();
        path
    });
    // What is in it may lead elsewhere.
    let elsewhere = instance.work.join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    fs::write(elsewhere.join("kept"), "").unwrap();
    std::os::unix::fs::symlink(&elsewhere, of_root.join("link")).unwrap();
    let mut command = instance.command(&["doctor", "--leftovers", "--remove"]);
    command.env("TMPDIR", &place);
    let said = crate::harness::Running::start(command).wait().text();
    assert!(!of_root.exists() && elsewhere.join("kept").exists(), "{said}");
    assert!(of_nobody.exists(), "{said}");
    let told = said.lines().find(|line| line.contains(of_nobody.to_str().unwrap())).unwrap();
    assert!(told.ends_with("; user 65534 can remove it"), "{told}");
}
