//! What fails while processes are saved or restored: CRIU, daemons, and directories of images.

use crate::audit::cgroup_name;
use crate::checkpoint_image::{
    checkpoint_of, counter, expect_all_numbers, goes_on, has_no_image, images, read, touch, up,
    up_with,
};
use crate::harness::{Instance, Running, command_line, eventually, group_of, processes, status_of};
use crate::recovery::{kill_daemon, send};
use nix::sys::signal::Signal;
use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// Two processes that count, each with memory that it looks at in the end.
const HOLDER: &str = "\
#!/usr/bin/env python3
import hashlib, os, sys, time
memory = bytearray(os.urandom(1 << 20) * 160)
look = lambda: hashlib.md5(memory).hexdigest()
first = look()
child = os.fork()
count = 0
with open('out' if child else 'child', 'w', buffering=1) as out:
    while not os.path.exists('stop'):
        count += 1
        out.write(f'{count}\\n')
        time.sleep(0.02)
    if look() != first:
        out.write('other memory\\n')
if child:
    sys.exit(5 if os.waitpid(child, 0)[1] == 0 else 9)
";

/// The processes of CRIU that do this for a job of the instance, without the one that becomes CRIU.
fn criu(instance: &Instance, what: &str) -> Vec<i32> {
    let own = cgroup_name(&instance.dir, instance.user.unwrap_or(0));
    let is_it = |pid: &i32| {
        let words = command_line(*pid);
        words.iter().any(|word| word == what)
            && words.iter().any(|word| word == "--images-dir")
            && words.first().is_some_and(|word| !word.ends_with("tutti"))
            && group_of(*pid).contains(&own)
    };
    processes().into_iter().filter(is_it).collect()
}

/// Kills the process of CRIU that is above the others.
fn kill_criu(instance: &Instance, what: &str) {
    let all = criu(instance, what);
    let parent = |pid: i32| status_of(pid, "PPid").and_then(|it| it.parse::<i32>().ok());
    let is_first = |&&pid: &&i32| parent(pid).is_none_or(|parent| !all.contains(&parent));
    let first = all.iter().find(is_first).unwrap_or_else(|| panic!("it has ended: {all:?}"));
    send(*first, Signal::SIGKILL);
}

/// How much of the memory of processes is in an image that is being made, in bytes.
fn saved_bytes(new: &Path) -> u64 {
    let pages = fs::read_dir(new).into_iter().flatten().flatten();
    let pages = pages.filter(|it| it.file_name().to_string_lossy().starts_with("pages-"));
    pages.flat_map(|it| it.metadata()).map(|it| it.len()).sum()
}

fn ends_whole(instance: &Instance, names: &[&str]) {
    for name in names {
        goes_on(instance, name);
    }
    touch(instance, "stop");
    instance.tutti(&["wait", "1"]).expect(5);
    names.iter().for_each(|name| expect_all_numbers(&read(instance, name)));
}

#[test]
fn criu_that_is_killed_half_way_costs_a_try_and_nothing_of_the_job() {
    let instance = Instance::new();
    up(&instance);
    instance.script("holder.py", HOLDER);
    instance.submit(&["--checkpoint", "-o", "/dev/null", "./holder.py"]);
    let both = ["out", "child"];
    both.iter().for_each(|name| goes_on(&instance, name));
    let kept = images(&instance, 1).join("kept");
    for _ in 0..2 {
        let asked = instance.start(&["checkpoint", "--hold", "1"]);
        let part = || (saved_bytes(&kept.join("new")) > 8 << 20).then_some(());
        eventually("a part of the image", part);
        kill_criu(&instance, "dump");
        let done = asked.wait().expect(1);
        done.says(
            "job 1 could not be saved, and goes on: CRIU was ended by signal 9, and may have \
             damaged its processes [T089]",
        );
        assert!(!kept.join("new").exists(), "what was written is removed");
        both.iter().for_each(|name| goes_on(&instance, name));
    }
    // With an earlier image, no process goes on that may be damaged.
    let saved = || (checkpoint_of(&instance, 1)["last"] == "saved").then_some(());
    instance.tutti(&["checkpoint", "--keep-running", "1"]).expect(0);
    eventually("an image", saved);
    both.iter().for_each(|name| goes_on(&instance, name));
    let asked = instance.start(&["checkpoint", "--hold", "1"]);
    eventually("a part of the image", || (saved_bytes(&kept.join("new")) > 8 << 20).then_some(()));
    kill_criu(&instance, "dump");
    let done = asked.wait().expect(1);
    done.says("job 1 could not be saved: CRIU was ended by signal 9; its processes may be damaged");
    assert_eq!(instance.job(1)["wait"], "held");
    assert_eq!(checkpoint_of(&instance, 1)["last"], "damaged");
    instance.tutti(&["release", "1"]).expect(0);
    both.iter().for_each(|name| goes_on(&instance, name));
    instance.tutti(&["checkpoint", "--hold", "1"]).expect(0);
    instance.tutti(&["release", "1"]).expect(0);
    eventually("processes that are restored", || {
        (criu(&instance, "restore").len() > 1).then_some(())
    });
    kill_criu(&instance, "restore");
    eventually("it is held", || (instance.job(1)["wait"] == "held").then_some(()));
    let checkpoint = checkpoint_of(&instance, 1);
    assert_eq!(checkpoint["last"], "not-restored");
    assert_eq!(checkpoint["why"], "CRIU was ended by signal 9");
    eventually("no process is left", || criu(&instance, "restore").is_empty().then_some(()));
    instance.tutti(&["release", "1"]).expect(0);
    ends_whole(&instance, &both);
}

#[test]
fn a_daemon_that_is_killed_while_a_job_is_restored_costs_no_image() {
    let instance = Instance::new();
    up(&instance);
    instance.script("holder.py", &HOLDER.replace("* 160", "* 2"));
    let words = ["--checkpoint", "--on-node-loss", "requeue", "-o", "/dev/null", "./holder.py"];
    instance.submit(&words);
    let both = ["out", "child"];
    both.iter().for_each(|name| goes_on(&instance, name));
    let begun = instance.work.join("begun");
    // The keeper last: that the job was queued again before does not count as a loss.
    for role in ["controller", "agent", "agent", "keeper"] {
        instance.tutti(&["checkpoint", "--hold", "1"]).expect(0);
        touch(&instance, "wait");
        instance.tutti(&["release", "1"]).expect(0);
        eventually("it is being restored", || begun.exists().then_some(()));
        kill_daemon(&instance, role);
        for file in ["wait", "begun"] {
            fs::remove_file(instance.work.join(file)).unwrap();
        }
        both.iter().for_each(|name| goes_on(&instance, name));
        instance.wait_for_state(1, "running");
    }
    ends_whole(&instance, &both);
}

#[test]
fn a_job_that_is_cancelled_while_it_is_saved_or_restored_leaves_nothing() {
    let instance = Instance::new();
    up(&instance);
    counter(&instance);
    let begun = instance.work.join("begun");
    for (job, restores) in [(1, false), (2, true)] {
        let id = job.to_string();
        instance.submit(&["--checkpoint", "-o", &format!("out-{id}"), "./count.sh"]);
        goes_on(&instance, &format!("out-{id}"));
        if restores {
            instance.tutti(&["checkpoint", "--hold", &id]).expect(0);
        }
        touch(&instance, "wait");
        let order = if restores { ["release", &id] } else { ["checkpoint", &id] };
        let asked = instance.start(&order);
        eventually("CRIU has begun", || begun.exists().then_some(()));
        instance.tutti(&["cancel", "--now", &id]).expect(0);
        asked.wait();
        instance.wait_for_state(job, "ended");
        has_no_image(&images(&instance, job));
        for file in ["wait", "begun"] {
            fs::remove_file(instance.work.join(file)).unwrap();
        }
    }
}

/// A directory for images that nodes share.
fn shared(instance: &Instance, name: &str) -> PathBuf {
    let path = instance.work.join(name);
    DirBuilder::new().mode(0o711).create(&path).unwrap();
    path
}

#[test]
fn a_job_whose_node_has_another_directory_of_images_since_is_held_and_keeps_its_own() {
    let instance = Instance::of_the_system_alone();
    let [own, other] = ["own", "other"].map(|name| shared(&instance, name));
    up_with(&instance, Some(&own));
    counter(&instance);
    instance.submit(&["--checkpoint", "-o", "out", "./count.sh"]);
    goes_on(&instance, "out");
    let rolled_out = || {
        let done = instance.tutti(&["down", "--roll-out", "--grace", "20s"]).expect(0);
        assert!(done.text().contains("rolled out"), "{}", done.text());
    };
    rolled_out();
    up_with(&instance, Some(&other));
    eventually("it is held", || (instance.job(1)["wait"] == "held").then_some(()));
    let why = checkpoint_of(&instance, 1)["why"].as_str().unwrap().to_owned();
    assert!(why.contains("this node has another one since its instance was started"), "{why}");
    instance.tutti(&["down", "--roll-out", "--grace", "20s"]).expect(0);
    up_with(&instance, Some(&own));
    instance.tutti(&["release", "1"]).expect(0);
    goes_on(&instance, "out");
    touch(&instance, "stop");
    instance.tutti(&["wait", "1"]).expect(5);
    let out = read(&instance, "out");
    expect_all_numbers(out.strip_suffix("mine\n").expect(&out));
}

#[test]
fn a_full_directory_of_images_is_the_reason_why_a_job_does_not_start_or_goes_on() {
    let instance = Instance::new();
    let path = instance.work.join("small");
    let mount = crate::disk::Mount::tmpfs(&path, "size=17m,mode=711,nr_inodes=12");
    up_with(&instance, Some(&path));
    counter(&instance);
    instance.submit(&["--checkpoint", "-o", "out", "./count.sh"]);
    goes_on(&instance, "out");
    let done = instance.tutti(&["checkpoint", "1"]).expect(1);
    done.says("job 1 could not be saved, and goes on: the image takes up to");
    goes_on(&instance, "out");
    // Not even a directory can be made.
    let mut number = 0;
    while fs::write(path.join(number.to_string()), "").is_ok() {
        number += 1;
    }
    let words = ["submit", "--checkpoint", "-o", "second", "./count.sh"];
    Running::start(instance.command(&words)).wait().expect(0);
    let ended = instance.wait_for_state(2, "ended");
    assert!(ended["detail"].to_string().contains("No space left"), "{ended}");
    goes_on(&instance, "out");
    instance.tutti(&["cancel", "--now", "1"]).expect(0);
    drop(mount);
}
