//! Jobs whose processes are saved to an image by CRIU and restored from it (`--checkpoint`).
//!
//! The CRIU of these tests is a script. It fails, stands still, crashes, or says that it is done,
//! where there is a file `broken`, `slow`, `crash` or `empty`, fails late and once where there is
//! one `late`, and waits until there is none `wait`; otherwise it is the real one that
//! `tests/install-deps --criu` has unpacked, after a while where there is a file `tardy`.

use crate::harness::{Done, Instance, NOBODY, Running, eventually, processes};
use crate::recovery::{kill_daemon, send};
use nix::sys::signal::Signal;
use serde_json::Value;
use std::fs;
use std::io::Write;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

pub(crate) fn read(instance: &Instance, name: &str) -> String {
    fs::read_to_string(instance.work.join(name)).unwrap_or_default()
}

pub(crate) fn touch(instance: &Instance, name: &str) {
    fs::write(instance.work.join(name), "").unwrap();
}

/// Starts the instance with the CRIU of these tests.
pub(crate) fn up(instance: &Instance) {
    up_with(instance, None);
}

/// The same, with a directory for images that nodes share.
pub(crate) fn up_with(instance: &Instance, shared: Option<&Path>) {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    let criu = target.join("criu/criu");
    let (shown, work) = (criu.display(), instance.work.display());
    let how = "run tests/install-deps --criu DIRECTORY";
    assert!(criu.exists(), "there is no {shown}: {how}");
    instance.script(
        "criu",
        &format!(
            "#!/bin/sh\n[ ! -e {work}/crash ] || kill -11 $$\n[ ! -e {work}/empty ] || exit 0\n\
             [ ! -e {work}/broken ] || {{ echo criu is broken >&2; exit 1; }}\n\
             [ ! -e {work}/slow ] || exec sleep $(cat {work}/slow)\n\
             [ ! -e {work}/late ] || {{ touch {work}/begun; sleep 2; rm {work}/late; exit 1; }}\n\
             while [ -e {work}/wait ]; do touch {work}/begun; sleep 0.05; done\n\
             [ ! -e {work}/tardy ] || sleep 2\nexec {shown} \"$@\"\n"
        ),
    );
    let mut command = instance.command(&["up"]);
    command.env("TUTTI_CRIU", instance.work.join("criu")).env_remove("TUTTI_IMAGES");
    if let Some(shared) = shared {
        keep_names(&instance.work);
        command.env("TUTTI_IMAGES", shared);
    }
    Running::start(command).wait().expect(0);
}

/// What is in a directory can be exchanged by its owner alone.
pub(crate) fn keep_names(directory: &Path) {
    fs::set_permissions(directory, fs::Permissions::from_mode(0o1777)).unwrap();
}

/// Counts until there is a file `stop`.
pub(crate) fn counter(instance: &Instance) {
    instance.script(
        "count.sh",
        "#!/bin/bash\necho mine > $TMPDIR/own; exec 5< $TMPDIR/own; cd $TMPDIR\n\
         stop=$OLDPWD/stop; count=0\n\
         while [ ! -e $stop ]; do count=$((count + 1)); echo $count; sleep 0.02; done\n\
         read -u 5 own; echo $own; exit 5\n",
    );
}

/// How many lines there are.
pub(crate) fn lines(instance: &Instance, name: &str) -> usize {
    read(instance, name).lines().count()
}

/// More lines come.
pub(crate) fn goes_on(instance: &Instance, name: &str) {
    let before = lines(instance, name);
    let until = std::time::Instant::now() + std::time::Duration::from_secs(15);
    while lines(instance, name) <= before + 5 {
        if std::time::Instant::now() > until {
            let shown = instance.tutti(&["show", "1"]).text();
            panic!("it does not go on: {shown}");
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

/// The file has the numbers from 1 on, each once, and no others.
pub(crate) fn expect_all_numbers(text: &str) {
    let expected: String = (1..=text.lines().count()).map(|it| format!("{it}\n")).collect();
    assert_eq!(text, expected);
}

pub(crate) fn checkpoint_of(instance: &Instance, job: u64) -> Value {
    let shown = instance.tutti(&["show", "--json", &job.to_string()]).expect(0).json();
    shown[0]["details"]["checkpoint"].clone()
}

/// Where the images of a private instance are.
pub(crate) fn images(instance: &Instance, job: u64) -> PathBuf {
    instance.dir.join(format!("images/job-{job}"))
}

pub(crate) fn has_no_image(directory: &Path) {
    eventually("its image is removed", || (!directory.exists()).then_some(()));
}

#[test]
fn a_users_program_goes_on_from_its_image_with_its_files_and_exit_code() {
    let instance = Instance::of_the_system();
    up(&instance);
    counter(&instance);
    let as_user =
        |args: &[&str]| -> Done { Running::start(instance.command_as(Some(NOBODY), args)).wait() };
    as_user(&["submit", "--checkpoint", "-o", "out", "./count.sh"]).expect(0);
    goes_on(&instance, "out");
    let done = as_user(&["checkpoint", "--hold", "1"]).expect(0);
    done.says("job 1 has saved its state, and is queued again");
    assert_eq!(instance.wait_for_state(1, "checkpointed")["wait"], "held");
    let cluster = instance.dir.file_name().unwrap().to_str().unwrap();
    let image = Path::new("/var/lib").join(cluster).join("images/job-1");
    let mode = |path: PathBuf| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(image.join("kept")), mode(image.join("kept/image"))), (0o700, 0o700));
    // All of it outlives the daemons.
    kill_daemon(&instance, "keeper");
    eventually("jobs run again", || (as_user(&["run", "true"]).code == 0).then_some(()));
    kill_daemon(&instance, "controller");
    eventually("it is held", || (instance.job(1)["wait"] == "held").then_some(()));
    as_user(&["release", "1"]).expect(0);
    goes_on(&instance, "out");
    instance.wait_for_state(1, "running");
    let checkpoint = checkpoint_of(&instance, 1);
    assert_eq!((&checkpoint["resumes"], &checkpoint["last"]), (&1.into(), &"saved".into()));
    // Once more, from a run that was restored.
    as_user(&["checkpoint", "1"]).expect(0);
    goes_on(&instance, "out");
    instance.wait_for_state(1, "running");
    touch(&instance, "stop");
    as_user(&["wait", "1"]).expect(5);
    let out = read(&instance, "out");
    expect_all_numbers(out.strip_suffix("mine\n").expect(&out));
    has_no_image(&image);
}

#[test]
fn a_tree_of_processes_keeps_its_pipe_its_orphan_and_its_signals() {
    let instance = Instance::new();
    up(&instance);
    instance.script(
        "tree.sh",
        "#!/bin/bash\n(trap '' USR1; sleep $NAP &)\ntrap 'touch caught' USR1\n\
         count() { trap '' USR1; n=0; while [ ! -e stop ]; do n=$((n + 1)); echo $n; sleep 0.02; done; }\n\
         count | { trap '' USR1; while read n; do echo $n >> piped; done; } &\n\
         until wait; do :; done; while [ ! -e stop ]; do wait; done\n",
    );
    let job = instance.submit(&["--checkpoint", "-o", "/dev/null", "./tree.sh"]).to_string();
    goes_on(&instance, "piped");
    let before = instance.nappers();
    assert_eq!(before.len(), 1);
    instance.tutti(&["checkpoint", "--hold", &job]).expect(0);
    instance.expect_no_nappers();
    let saved = read(&instance, "piped");
    instance.tutti(&["release", &job]).expect(0);
    goes_on(&instance, "piped");
    assert!(read(&instance, "piped").starts_with(&saved));
    assert_eq!(instance.nappers().len(), 1, "what had lost its parent is back");
    instance.tutti(&["signal", "USR1", &job]).expect(0);
    eventually("it gets a signal", || instance.work.join("caught").exists().then_some(()));
    // What is suspended is saved, and is suspended again.
    instance.tutti(&["suspend", &job]).expect(0);
    instance.wait_for_state(1, "suspended");
    instance.tutti(&["checkpoint", &job]).expect(0);
    assert_eq!(instance.wait_for_state(1, "checkpointed")["wait"], "suspended");
    instance.tutti(&["resume", &job]).expect(0);
    goes_on(&instance, "piped");
    instance.tutti(&["cancel", "--now", &job]).expect(0);
    eventually("all end", || instance.nappers().is_empty().then_some(()));
    expect_all_numbers(&read(&instance, "piped"));
    has_no_image(&images(&instance, 1));
}

#[test]
fn an_image_that_finds_less_room_than_was_expected_is_given_up_and_its_job_goes_on() {
    let instance = Instance::new();
    let room = instance.dir.join("images");
    fs::create_dir_all(&room).unwrap();
    fs::set_permissions(&instance.dir, fs::Permissions::from_mode(0o755)).unwrap();
    let mount = crate::disk::Mount::tmpfs(&room, "size=64m,mode=711");
    up(&instance);
    counter(&instance);
    instance.submit(&["--checkpoint", "-o", "out", "./count.sh"]);
    goes_on(&instance, "out");
    touch(&instance, "tardy");
    let asked = instance.start(&["checkpoint", "1"]);
    let new = images(&instance, 1).join("kept/new");
    eventually("an image is begun", || new.exists().then_some(()));
    let filler = room.join("filler");
    // Less is free than 5 %.
    fs::write(&filler, vec![0; 62 << 20]).unwrap();
    let done = asked.wait().expect(1);
    done.says("job 1 could not be saved, and goes on: the image is larger than was expected");
    fs::remove_file(filler).unwrap();
    fs::remove_file(instance.work.join("tardy")).unwrap();
    goes_on(&instance, "out");
    instance.tutti(&["checkpoint", "1"]).expect(0);
    goes_on(&instance, "out");
    instance.tutti(&["cancel", "--now", "1"]).expect(0);
    has_no_image(&images(&instance, 1));
    drop(mount);
}

#[test]
fn a_job_that_cannot_be_saved_goes_on() {
    let instance = Instance::new();
    // No room for an image.
    let room = instance.dir.join("images");
    fs::create_dir_all(&room).unwrap();
    fs::set_permissions(&instance.dir, fs::Permissions::from_mode(0o755)).unwrap();
    let mounts = |words: &[&str]| {
        assert!(Command::new(words[0]).args(&words[1..]).status().unwrap().success())
    };
    mounts(&["mount", "-t", "tmpfs", "-o", "size=17m,mode=711", "none", room.to_str().unwrap()]);
    up(&instance);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    instance.script(
        "connected.sh",
        &format!(
            "#!/bin/bash\n[ ! $1 ] || exec 7<>/dev/tcp/127.0.0.1/{port}\nn=0\n\
             big=$(head -c 3000000 /dev/zero | tr '\\0' x)\n\
             while :; do n=$((n + 1)); echo $n; sleep 0.02; done\n"
        ),
    );
    instance.submit(&["--checkpoint", "-o", "out", "./connected.sh"]);
    goes_on(&instance, "out");
    let done = instance.tutti(&["checkpoint", "1"]).expect(1);
    done.says("job 1 could not be saved, and goes on: the image takes up to");
    goes_on(&instance, "out");
    instance.tutti(&["cancel", "--now", "1"]).expect(0);
    eventually("it is gone", || fs::read_dir(&room).unwrap().next().is_none().then_some(()));
    mounts(&["umount", room.to_str().unwrap()]);
    // A connection with a process that is not saved.
    instance.submit(&["--checkpoint", "-o", "out", "./connected.sh", "yes"]);
    goes_on(&instance, "out");
    let done = instance.tutti(&["checkpoint", "2"]).expect(1);
    done.says("job 2 could not be saved, and goes on: CRIU: ");
    // CRIU says that it is done, and has written nothing.
    touch(&instance, "empty");
    let done = instance.tutti(&["checkpoint", "2"]).expect(1);
    done.says("job 2 could not be saved, and goes on: CRIU has made no image: there is no inv");
    goes_on(&instance, "out");
    fs::remove_file(instance.work.join("empty")).unwrap();
    // No CRIU.
    touch(&instance, "broken");
    let done = instance.tutti(&["checkpoint", "2"]).expect(1);
    done.says("job 2 could not be saved, and goes on: criu is broken [T089]");
    goes_on(&instance, "out");
    // CRIU crashes.
    touch(&instance, "crash");
    let done = instance.tutti(&["checkpoint", "2"]).expect(1);
    done.says("job 2 could not be saved, and goes on: CRIU was ended by signal 11 [T089]");
    goes_on(&instance, "out");
    fs::remove_file(instance.work.join("crash")).unwrap();
    instance.tutti(&["checkpoint", "2"]).expect(1).says("criu is broken [T089]");
    assert_eq!(instance.job(2)["state"], "running");
    assert_eq!(checkpoint_of(&instance, 2)["last"], "not-saved");
    assert_eq!(checkpoint_of(&instance, 2)["why"], "criu is broken");
    instance.tutti(&["cancel", "--now", "2"]).expect(0);
    expect_all_numbers(&read(&instance, "out"));
}

#[test]
fn a_damaged_image_holds_its_job_until_it_is_whole_or_dropped() {
    let instance = Instance::new();
    up(&instance);
    counter(&instance);
    instance.submit(&["--checkpoint", "-o", "out", "./count.sh"]);
    goes_on(&instance, "out");
    instance.tutti(&["checkpoint", "--hold", "1"]).expect(0);
    let image = images(&instance, 1).join("kept/image/pstree.img");
    let whole = fs::read(&image).unwrap();
    let held = || {
        eventually("it is not restored", || {
            (checkpoint_of(&instance, 1)["last"] == "not-restored").then_some(())
        });
        assert_eq!(instance.wait_for_state(1, "queued")["wait"], "held");
    };
    let refused = |expected: &str| {
        instance.tutti(&["release", "1"]).expect(0);
        eventually("the reason", || {
            let why = checkpoint_of(&instance, 1)["why"].to_string();
            why.contains(expected).then_some(())
        });
        held();
    };
    fs::write(&image, &whole[..whole.len() / 2]).unwrap();
    refused("the image is damaged: pstree.img has ");
    assert!(instance.tutti(&["show", "1"]).expect(0).text().contains("[T090]"));
    // A bit of the memory is another one.
    let pages = image.with_file_name("pages-1.img");
    let memory = fs::read(&pages).unwrap();
    let mut other = memory.clone();
    other[memory.len() / 2] ^= 1;
    fs::write(&image, &whole).unwrap();
    fs::write(&pages, &other).unwrap();
    refused("the image is damaged: pages-1.img is not as it was written");
    fs::write(&pages, &memory).unwrap();
    // CRIU would wait for a reader of its output for ever.
    let [out, aside] = ["out", "aside"].map(|name| instance.work.join(name));
    fs::rename(&out, &aside).unwrap();
    nix::unistd::mkfifo(&out, nix::sys::stat::Mode::S_IRWXU).unwrap();
    refused("out' is no file any more");
    fs::rename(&aside, &out).unwrap();
    // CRIU crashes while it restores.
    touch(&instance, "crash");
    instance.tutti(&["release", "1"]).expect(0);
    eventually("it crashes", || {
        let why = checkpoint_of(&instance, 1)["why"].to_string();
        why.contains("CRIU was ended by signal 11").then_some(())
    });
    held();
    fs::remove_file(instance.work.join("crash")).unwrap();
    // Whole again, nothing is lost.
    instance.tutti(&["release", "1"]).expect(0);
    goes_on(&instance, "out");
    expect_all_numbers(&read(&instance, "out"));
    // Its image is dropped.
    instance.tutti(&["checkpoint", "--hold", "1"]).expect(0);
    fs::remove_file(&image).unwrap();
    instance.tutti(&["release", "1"]).expect(0);
    held();
    let before = lines(&instance, "out");
    instance.tutti(&["requeue", "--from-start", "1"]).expect(0);
    goes_on(&instance, "out");
    let out = read(&instance, "out");
    assert_eq!(out.lines().nth(before), Some("1"), "it starts anew");
    instance.tutti(&["cancel", "--now", "1"]).expect(0);
    has_no_image(&images(&instance, 1));
}

#[test]
fn a_keeper_that_is_killed_while_it_saves_loses_no_more_than_another() {
    let instance = Instance::new();
    up(&instance);
    counter(&instance);
    let words = ["--checkpoint", "--on-node-loss", "requeue", "-o", "out", "./count.sh"];
    instance.submit(&words);
    goes_on(&instance, "out");
    fs::write(instance.work.join("slow"), &instance.nap).unwrap();
    let asked = instance.start(&["checkpoint", "--hold", "1"]);
    eventually("it is being saved", || (!instance.nappers().is_empty()).then_some(()));
    kill_daemon(&instance, "keeper");
    fs::remove_file(instance.work.join("slow")).unwrap();
    instance.expect_no_nappers();
    asked.wait().expect(1).says("it is not known whether job 1 has saved its state");
    // It was not saved, and what was asked holds.
    eventually("it is held", || (instance.job(1)["wait"] == "held").then_some(()));
    instance.tutti(&["release", "1"]).expect(0);
    eventually("it starts again", || {
        read(&instance, "out").lines().skip(1).any(|line| line == "1").then_some(())
    });
    instance.wait_for_state(1, "running");
    instance.tutti(&["checkpoint", "--hold", "1"]).expect(0);
    instance.tutti(&["cancel", "1"]).expect(0);
    has_no_image(&images(&instance, 1));
    let own = |pid: &i32| crate::harness::command_line(*pid).join(" ").contains("count.sh");
    let work = instance.work.display().to_string();
    let left = processes().into_iter().filter(own);
    let here = left.filter(|pid| {
        fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|it| it.starts_with(&work))
    });
    assert_eq!(here.collect::<Vec<i32>>(), Vec::<i32>::new());
}

#[test]
fn a_job_with_an_image_is_rolled_out_and_in() {
    let instance = Instance::of_the_system_alone();
    up(&instance);
    counter(&instance);
    instance.submit(&["--checkpoint", "-o", "out", "./count.sh"]);
    goes_on(&instance, "out");
    let done = instance.tutti(&["down", "--roll-out", "--grace", "20s"]).expect(0);
    assert!(done.text().contains("1 job rolled out"), "{}", done.text());
    let before = lines(&instance, "out");
    up(&instance);
    eventually("it goes on", || (lines(&instance, "out") > before + 5).then_some(()));
    expect_all_numbers(&read(&instance, "out"));
    instance.tutti(&["cancel", "--now", "1"]).expect(0);
}

#[test]
fn an_instance_that_dies_while_jobs_are_rolled_out_is_no_success() {
    let instance = Instance::of_the_system_alone();
    up(&instance);
    counter(&instance);
    instance.submit(&["--checkpoint", "-o", "out", "./count.sh"]);
    goes_on(&instance, "out");
    touch(&instance, "wait");
    let down = instance.start(&["down", "--yes", "--roll-out", "--grace", "20s"]);
    eventually("it is being saved", || instance.work.join("begun").exists().then_some(()));
    // At once: one that is left would have others start the rest again.
    let mut daemons = vec![crate::upgrade::supervisor(&instance)];
    daemons.extend(["controller", "agent", "keeper"].map(|role| instance.daemon(role)));
    daemons.into_iter().for_each(|daemon| send(daemon, Signal::SIGKILL));
    let done = down.wait().expect(1);
    done.says("died before its jobs were rolled out, and what became of them is not known");
    fs::remove_file(instance.work.join("wait")).unwrap();
    // It is said once: then there is none.
    let again = instance.tutti(&["down", "--yes", "--roll-out"]).expect(0);
    assert!(again.text().contains("no instance runs"), "{}", again.text());
    up(&instance);
    instance.tutti(&["run", "true"]).expect(0);
}

#[test]
fn jobs_that_cannot_have_an_image_are_declined() {
    let instance = Instance::new();
    up(&instance);
    let declined = |words: &[&str], why: &str| {
        let done = instance.tutti(words);
        assert_ne!(done.code, 0, "{words:?}");
        done.says(why);
    };
    declined(&["run", "--checkpoint", "true"], "hand it in with `tutti submit`");
    declined(&["submit", "--checkpoint", "-n", "2", "true"], "jobs of one task (-n 1)");
    let both = ["submit", "--checkpoint", "--checkpoint-signal", "USR1", "true"];
    declined(&both, "--checkpoint can't go with --checkpoint-signal");
    for signal in ["KILL", "B:STOP", "9"] {
        let words = ["submit", "--checkpoint-signal", signal, "true"];
        declined(&words, &format!("no program hears of the signal {signal:?}"));
    }
    counter(&instance);
    instance.submit(&["--checkpoint", "-o", "out", "./count.sh"]);
    goes_on(&instance, "out");
    declined(&["requeue", "--from-start", "2"], "2");
    instance.tutti(&["cancel", "--now", "1"]).expect(0);
}

#[test]
fn a_preempted_job_is_saved_and_restored_if_the_site_says_so() {
    let instance = Instance::alone();
    up(&instance);
    instance.tutti(&["params", "policy=classes", "foreign=0%", "preemption=checkpoint"]).expect(0);
    counter(&instance);
    instance.submit(&["--checkpoint", "--class", "standby", "-o", "out", "./count.sh"]);
    goes_on(&instance, "out");
    instance.tutti(&["params", "--class", "standby", "do_not_disturb=0"]).expect(0);
    let all = instance.tutti(&["nodes", "--json"]).expect(0).json()[0]["processors"].to_string();
    let quick = ["-n", &all, "--class", "interactive", "-o", "/dev/null", "sleep", &instance.nap];
    let quick = instance.submit(&quick);
    instance.wait_for_state(quick, "running");
    instance.wait_for_state(1, "checkpointed");
    let before = lines(&instance, "out");
    assert_eq!(checkpoint_of(&instance, 1)["last"], "saved");
    assert!(images(&instance, 1).join("kept/image").exists());
    instance.tutti(&["cancel", "--now", &quick.to_string()]).expect(0);
    goes_on(&instance, "out");
    touch(&instance, "stop");
    instance.tutti(&["wait", "1"]).expect(5);
    let out = read(&instance, "out");
    let numbers = out.strip_suffix("mine\n").expect(&out);
    expect_all_numbers(numbers);
    assert!(numbers.lines().count() > before);
}

#[test]
fn elements_of_an_array_with_images_start_anew_together() {
    let instance = Instance::new();
    up(&instance);
    counter(&instance);
    let words = ["--array", "1-2", "--checkpoint", "-o", "out-%a", "./count.sh"];
    let array = instance.submit(&words).to_string();
    for name in ["out-1", "out-2"] {
        goes_on(&instance, name);
    }
    instance.tutti(&["checkpoint", "--hold", &array]).expect(0);
    instance.tutti(&["requeue", "--from-start", &array]).expect(0);
    for name in ["out-1", "out-2"] {
        goes_on(&instance, name);
        let text = read(&instance, name);
        assert_eq!(text.lines().filter(|line| *line == "1").count(), 2, "{name}:\n{text}");
    }
    instance.tutti(&["cancel", "--now", &array]).expect(0);
}

#[test]
fn a_job_that_goes_on_is_restored_from_its_latest_image() {
    let instance = Instance::new();
    up(&instance);
    counter(&instance);
    let words = ["--checkpoint", "--on-node-loss", "requeue", "-o", "out", "./count.sh"];
    instance.submit(&words);
    goes_on(&instance, "out");
    instance.tutti(&["checkpoint", "--keep-running", "1"]).expect(0);
    eventually("its image", || (checkpoint_of(&instance, 1)["last"] == "saved").then_some(()));
    goes_on(&instance, "out");
    instance.wait_for_state(1, "running");
    assert_eq!(checkpoint_of(&instance, 1)["resumes"], 1);
    kill_daemon(&instance, "keeper");
    instance.wait_for_state(1, "running");
    goes_on(&instance, "out");
    // Once more, and then by an order.
    instance.tutti(&["checkpoint", "--keep-running", "1"]).expect(0);
    eventually("another", || (checkpoint_of(&instance, 1)["resumes"] == 2).then_some(()));
    goes_on(&instance, "out");
    instance.tutti(&["requeue", "1"]).expect(0);
    instance.wait_for_state(1, "running");
    goes_on(&instance, "out");
    touch(&instance, "stop");
    instance.tutti(&["wait", "1"]).expect(5);
    let out = read(&instance, "out");
    expect_all_numbers(out.strip_suffix("mine\n").expect(&out));
    has_no_image(&images(&instance, 1));
}

#[test]
fn what_others_appended_to_a_file_of_a_job_is_kept_when_it_is_restored() {
    let instance = Instance::new();
    up(&instance);
    counter(&instance);
    instance.submit(&["--checkpoint", "-o", "out", "./count.sh"]);
    goes_on(&instance, "out");
    instance.tutti(&["checkpoint", "--keep-running", "1"]).expect(0);
    eventually("its image", || (checkpoint_of(&instance, 1)["resumes"] == 1).then_some(()));
    let mut out = fs::OpenOptions::new().append(true).open(instance.work.join("out")).unwrap();
    writeln!(out, "of another job").unwrap();
    goes_on(&instance, "out");
    instance.tutti(&["requeue", "1"]).expect(0);
    let kept = "out.after-checkpoint-1";
    eventually("it is cut", || (lines(&instance, kept) > 5).then_some(()));
    goes_on(&instance, "out");
    touch(&instance, "stop");
    instance.tutti(&["wait", "1"]).expect(5);
    let out = read(&instance, "out");
    expect_all_numbers(out.strip_suffix("mine\n").expect(&out));
    let cut = read(&instance, kept);
    assert!(cut.lines().any(|line| line == "of another job"), "{cut}");
}

#[test]
fn a_failure_to_save_and_go_on_answers_no_later_request_to_end() {
    let instance = Instance::new();
    up(&instance);
    counter(&instance);
    instance.submit(&["--checkpoint", "-o", "out", "./count.sh"]);
    goes_on(&instance, "out");
    touch(&instance, "late");
    instance.tutti(&["checkpoint", "--keep-running", "1"]).expect(0);
    let begun = instance.work.join("begun");
    eventually("it is being saved", || begun.exists().then_some(()));
    instance.tutti(&["checkpoint", "--force", "--hold", "1"]).expect(0);
    assert!(!instance.work.join("late").exists(), "the first request has failed by then");
    assert_eq!(instance.wait_for_state(1, "checkpointed")["wait"], "held");
    instance.tutti(&["release", "1"]).expect(0);
    goes_on(&instance, "out");
    touch(&instance, "stop");
    instance.tutti(&["wait", "1"]).expect(5);
    let out = read(&instance, "out");
    expect_all_numbers(out.strip_suffix("mine\n").expect(&out));
}

#[test]
fn an_image_is_known_though_a_daemon_ended_before_it_heard_of_it() {
    let instance = Instance::new();
    up(&instance);
    counter(&instance);
    for (job, role) in [(1, "controller"), (2, "agent")] {
        let (name, id) = (format!("out-{job}"), job.to_string());
        instance.submit(&["--checkpoint", "-o", &name, "./count.sh"]);
        goes_on(&instance, &name);
        let begun = instance.work.join("begun");
        touch(&instance, "wait");
        instance.tutti(&["checkpoint", "--keep-running", &id]).expect(0);
        eventually("it is being saved", || begun.exists().then_some(()));
        send(instance.daemon(role), Signal::SIGSTOP);
        fs::remove_file(instance.work.join("wait")).unwrap();
        let image = images(&instance, job).join("kept/image");
        eventually("its image", || image.exists().then_some(()));
        kill_daemon(&instance, role);
        eventually("it is known", || (checkpoint_of(&instance, job)["resumes"] == 1).then_some(()));
        goes_on(&instance, &name);
        instance.tutti(&["requeue", &id]).expect(0);
        eventually("it is restored", || {
            instance.work.join(format!("{name}.after-checkpoint-{job}")).exists().then_some(())
        });
        goes_on(&instance, &name);
        // Said again, it counts once.
        kill_daemon(&instance, role);
        instance.wait_for_state(job, "running");
        assert_eq!(checkpoint_of(&instance, job)["resumes"], 1);
        touch(&instance, "stop");
        instance.tutti(&["wait", &id]).expect(5);
        let out = read(&instance, &name);
        expect_all_numbers(out.strip_suffix("mine\n").expect(&out));
        for left in ["stop", "begun"] {
            fs::remove_file(instance.work.join(left)).unwrap();
        }
    }
}

#[test]
fn a_job_is_saved_now_and_then_and_goes_on_if_it_cannot_be() {
    let instance = Instance::new();
    up(&instance);
    counter(&instance);
    instance.submit(&["--checkpoint", "--checkpoint-every", "1s", "-o", "out", "./count.sh"]);
    let resumes = || checkpoint_of(&instance, 1)["resumes"].as_u64();
    eventually("two images", || (resumes() >= Some(2)).then_some(()));
    touch(&instance, "broken");
    eventually("a failure", || (checkpoint_of(&instance, 1)["last"] == "not-saved").then_some(()));
    goes_on(&instance, "out");
    let why = checkpoint_of(&instance, 1)["why"].as_str().unwrap().to_owned();
    assert!(why.contains("criu is broken"), "{why}");
    fs::remove_file(instance.work.join("broken")).unwrap();
    instance.tutti(&["checkpoint", "--hold", "1"]).expect(0);
    instance.tutti(&["release", "1"]).expect(0);
    goes_on(&instance, "out");
    touch(&instance, "stop");
    instance.tutti(&["wait", "1"]).expect(5);
    let out = read(&instance, "out");
    expect_all_numbers(out.strip_suffix("mine\n").expect(&out));
}
