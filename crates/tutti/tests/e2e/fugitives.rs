//! An ordinary user's processes that try every way out of their task: each stays in it, stands
//! still when it is suspended, and ends with it.

use crate::harness::{
    Instance, NOBODY, Running, eventually, fugitive, group_of, needs_root, processes, stands,
    status_of,
};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

/// What a way needs besides.
enum Need {
    Nothing,
    /// The program itself, to execute.
    Program,
    /// The same as root's, with the bit that lets anybody run it as root.
    SetUid,
    /// A directory.
    Directory,
    /// A process of the user's outside of any job.
    Outsider,
}

const WAYS: [(&str, Need); 14] = [
    ("setsid", Need::Nothing),
    ("setpgid", Need::Nothing),
    ("double-fork", Need::Nothing),
    ("daemon", Need::Nothing),
    ("clone-parent", Need::Nothing),
    ("vfork", Need::Program),
    ("subreaper", Need::Nothing),
    ("namespaces", Need::Nothing),
    ("cgroup-procs", Need::Nothing),
    ("cgroup-namespace", Need::Directory),
    ("ptrace", Need::Outsider),
    ("wake", Need::Nothing),
    ("relay", Need::Nothing),
    ("setuid", Need::SetUid),
];

struct Scene {
    instance: Instance,
    program: PathBuf,
    outsider: std::process::Child,
}

impl Scene {
    fn new(instance: Instance) -> Self {
        needs_root("a process of another user");
        let program = instance.share(&fugitive());
        let mut outsider = Command::new("sleep");
        let outsider = outsider.arg("1000").uid(NOBODY).gid(NOBODY).spawn().unwrap();
        Self { instance, program, outsider }
    }

    /// As the user without privileges.
    fn tutti(&self, args: &[&str]) -> crate::harness::Done {
        Running::start(self.instance.command_as(Some(NOBODY), args)).wait()
    }

    fn argument(&self, need: &Need) -> String {
        match need {
            Need::Nothing => String::new(),
            Need::Program => self.program.display().to_string(),
            Need::SetUid => {
                let copy = self.instance.work.join("of-root");
                fs::copy(&self.program, &copy).unwrap();
                fs::set_permissions(&copy, fs::Permissions::from_mode(0o4755)).unwrap();
                copy.display().to_string()
            }
            Need::Directory => {
                let path = self.instance.work.join("mount");
                fs::create_dir_all(&path).unwrap();
                fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).unwrap();
                path.display().to_string()
            }
            Need::Outsider => self.outsider.id().to_string(),
        }
    }

    /// Submits a job that tries it, and waits until it has; it must not have moved.
    fn submit(&self, way: &str, need: &Need) -> u64 {
        let (job, told) = self.submit_whatever(way, need);
        assert_eq!(told, "moved 0\n", "{way}: it has moved itself to another cgroup");
        job
    }

    /// The same, with what it says of how often it has moved.
    fn submit_whatever(&self, way: &str, need: &Need) -> (u64, String) {
        let out = self.instance.work.join(format!("out-{way}"));
        let (program, more) = (self.program.display().to_string(), self.argument(need));
        let out_name = out.display().to_string();
        let nap = &self.instance.nap;
        let args = ["submit", "--parsable", "-o", &out_name, &program, way, nap, &more];
        let job = self.tutti(&args).expect(0).text().trim().parse().unwrap();
        let told = eventually(&format!("{way}: an attempt"), || {
            fs::read_to_string(&out).ok().filter(|text| text.contains("moved"))
        });
        eventually(&format!("{way}: a sleep"), || self.sleeps().first().copied());
        (job, told)
    }

    /// The sleeps of the fugitives.
    fn sleeps(&self) -> Vec<i32> {
        let sleeps = |pid: &i32| status_of(*pid, "Name").is_some_and(|name| name == "sleep");
        self.instance.nappers().into_iter().filter(sleeps).collect()
    }

    /// All that runs the program, and the sleeps.
    fn fugitives(&self) -> Vec<i32> {
        let mut all = self.sleeps();
        all.extend(processes().into_iter().filter(|&pid| {
            let name = status_of(pid, "Name").unwrap_or_default();
            let ended = status_of(pid, "State").is_none_or(|state| state.starts_with('Z'));
            (name == "fugitive" || name == "of-root") && !ended
        }));
        all
    }

    fn suspend(&self, way: &str, job: u64) {
        self.tutti(&["suspend", &job.to_string()]).expect(0);
        eventually(&format!("{way}: all to stand still"), || {
            let all = self.fugitives();
            (!all.is_empty() && all.into_iter().all(stands)).then_some(())
        });
    }

    fn end(&self, way: &str, job: u64) {
        self.tutti(&["cancel", "--now", &job.to_string()]).expect(0);
        self.tutti(&["wait", &job.to_string()]).expect(137);
        assert!(self.fugitives().is_empty(), "{way}: somebody got away");
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        let _ = self.outsider.kill();
        let _ = self.outsider.wait();
    }
}

#[test]
fn nobody_leaves_his_task_in_an_instance_of_the_system() {
    let scene = Scene::new(Instance::of_the_system_alone().up());
    for (way, need) in &WAYS {
        let job = scene.submit(way, need);
        for pid in scene.fugitives() {
            let group = group_of(pid);
            // One that has ended meanwhile is in no group of ours any more, and nowhere else.
            let lives = scene.fugitives().contains(&pid);
            let is_ours = group.contains(&format!("/job-{job}/step-0/rank-0"));
            assert!(is_ours || !lives, "{way}: {pid} is in {group}");
        }
        scene.suspend(way, job);
        scene.end(way, job);
    }
    assert_eq!(group_of(scene.outsider.id().cast_signed()).matches("/job-").count(), 0);
}

#[test]
fn a_process_of_a_job_takes_over_none_that_serve_it() {
    let scene = Scene::new(Instance::of_the_system_alone().up());
    // Those that start while it looks for them.
    let (job, said) = scene.submit_whatever("seize", &Need::Nothing);
    assert!(said.ends_with("\nmoved 0\n"), "it has got some: {said}");
    scene.end("seize", job);
    // One that is there as long as its job.
    let out = scene.instance.work.join("shared").display().to_string();
    let line = ["submit", "--parsable", "-n", "2", "-o", &out, "sleep", &scene.instance.nap];
    let job = scene.tutti(&line).expect(0).text().trim().to_owned();
    let writer = eventually("a process that writes the output", || {
        let is_writer = |pid: &i32| {
            let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            words == b"tutti\0writer\0"
                && status_of(*pid, "Uid").is_some_and(|ids| ids.starts_with(&NOBODY.to_string()))
        };
        processes().into_iter().find(is_writer)
    });
    // Where that user could trace it, this file would be that user's.
    let memory = fs::metadata(format!("/proc/{writer}/mem")).unwrap();
    assert_eq!(std::os::unix::fs::MetadataExt::uid(&memory), 0);
    scene.tutti(&["cancel", "--now", &job]).expect(0);
    scene.tutti(&["wait", &job]).expect(137);
}

#[test]
fn a_task_that_has_not_begun_shows_nothing_of_its_keeper() {
    let scene = Scene::new(Instance::of_the_system_alone().up());
    let fifo = scene.instance.work.join("fifo");
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::from_bits_truncate(0o666)).unwrap();
    fs::set_permissions(&fifo, fs::Permissions::from_mode(0o666)).unwrap();
    // The keeper removes what is this user's, before and after there are such tasks.
    let leaves = ["run", "sh", "-c", "echo x > $TMPDIR/file"];
    scene.tutti(&["run", "-m", "100M", "sh", "-c", "echo x > $TMPDIR/file"]).expect(0);
    let line = ["submit", "--parsable", "-o", &fifo.display().to_string(), "true"];
    let job = scene.tutti(&line).expect(0).text().trim().to_owned();
    let group = format!("/job-{job}/step-0/rank-0");
    let task = eventually("a task that waits for its output", || {
        let is_its = |pid: &i32| {
            let is_of_user = |ids: String| ids.starts_with(&NOBODY.to_string());
            group_of(*pid).contains(&group) && status_of(*pid, "Uid").is_some_and(is_of_user)
        };
        processes().into_iter().find(is_its)
    });
    for _ in 0..2 {
        let memory = fs::metadata(format!("/proc/{task}/mem")).unwrap();
        assert_eq!(std::os::unix::fs::MetadataExt::uid(&memory), 0, "{task}");
        scene.tutti(&leaves).expect(0);
    }
    drop(fs::File::open(&fifo));
    scene.tutti(&["wait", &job]).expect(0);
}

#[test]
fn nor_in_one_of_his_own_without_cgroups() {
    let scene = Scene::new(Instance::of_nobody().up());
    for (way, need) in &WAYS {
        // A process that has become root can't be signalled by an ordinary user's daemons:
        // `tutti doctor` says so.
        if *way == "setuid" {
            continue;
        }
        let job = scene.submit(way, need);
        // A process that changes all the time is caught by the end, which tries longer.
        if !["wake", "relay"].contains(way) {
            scene.suspend(way, job);
        }
        scene.end(way, job);
    }
    let doctor = scene.tutti(&["doctor"]).text();
    assert!(doctor.contains("becomes another user"), "{doctor}");
}

#[test]
fn who_leaves_a_cgroup_that_is_his_own_is_brought_back() {
    let scene = Scene::new(Instance::of_nobody_with_groups().up());
    let doctor = scene.tutti(&["doctor", "-v"]).text();
    assert!(doctor.contains("brought back within a second"), "{doctor}");
    for (way, need) in &WAYS {
        let (job, told) = scene.submit_whatever(way, need);
        // The subtree is the user's: nothing prevents moving about in it.
        assert_eq!(told != "moved 0\n", way.starts_with("cgroup"), "{way}: {told}");
        scene.suspend(way, job);
        scene.end(way, job);
    }
    // Also a process that is outside at the very moment at which its task ends.
    let (job, _) = scene.submit_whatever(WAYS[8].0, &WAYS[8].1);
    scene.end(WAYS[8].0, job);
}

/// Moves a process to the top of the hierarchy, as root or a login manager may.
fn move_away(pid: i32) {
    let tops = ["/sys/fs/cgroup/unified/cgroup.procs", "/sys/fs/cgroup/cgroup.procs"];
    let moved = tops.iter().any(|top| fs::write(top, pid.to_string()).is_ok());
    assert!(moved, "cannot move {pid}");
}

#[test]
fn a_process_that_root_moves_out_of_its_task_is_brought_back() {
    let instance = Instance::of_the_system_alone().up();
    let running = instance.start(&["run", "sh", "-c", "sleep $NAP & echo $$ $! up; wait"]);
    running.wait_for("up");
    let out = running.out();
    let pids: Vec<i32> = out.split(' ').filter_map(|word| word.parse().ok()).collect();
    for &pid in &pids {
        move_away(pid);
    }
    for &pid in &pids {
        eventually("it is back", || group_of(pid).contains("/job-1/step-0/rank-0").then_some(()));
        let said = format!("process {pid} of task 1.0 was outside of its cgroup; moved back");
        eventually("it is reported", || instance.log().contains(&said).then_some(()));
    }
    instance.tutti(&["cancel", "--now", "1"]).expect(0);
    running.wait().expect(137);
    assert!(instance.nappers().is_empty());
}

#[test]
fn what_root_has_moved_out_of_its_task_ends_with_it() {
    let instance = Instance::of_the_system_alone().up();
    for whole in [true, false] {
        let line = "sleep $NAP & echo $$ $! up; wait";
        let running = instance.start(&["run", "sh", "-c", line]);
        running.wait_for("up");
        let out = running.out();
        let pids: Vec<i32> = out.split(' ').filter_map(|word| word.parse().ok()).collect();
        // Its root too, or a child alone.
        pids.iter().skip(usize::from(!whole)).for_each(|&pid| move_away(pid));
        let job = if whole { "1" } else { "2" };
        instance.tutti(&["cancel", "--now", job]).expect(0);
        running.wait().expect(137);
        assert!(instance.nappers().is_empty(), "whole: {whole}");
    }
}

#[test]
fn nor_where_jobs_are_suspended_by_signals() {
    let scene = Scene::new(Instance::of_the_system_alone().up());
    scene.instance.tutti(&["params", "--class", "production", "control=signal"]).expect(0);
    scene.instance.tutti(&["params", "freeze_deadline=10s"]).expect(0);
    for (way, need) in &WAYS {
        let job = scene.submit(way, need);
        // A process that is sent SIGCONT by others of its job, again and again, is caught by the
        // end.
        if *way != "wake" {
            scene.suspend(way, job);
        }
        scene.end(way, job);
    }
}
