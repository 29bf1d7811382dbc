//! The file system under the journal: full, read-only, lost; and the journal as a loss of power
//! leaves it.

use crate::harness::{Instance, eventually, needs_root, processes, status_of, within};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// A file system of its own, as long as this lives.
pub(crate) struct Mount(PathBuf);

impl Mount {
    pub(crate) fn tmpfs(at: &Path, options: &str) -> Self {
        needs_root("a mount");
        fs::create_dir_all(at).unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", options, "tmpfs"]).arg(at);
        assert!(mount.status().unwrap().success());
        Self(at.to_owned())
    }

    /// A process that is seen to have ended may still have a thread that closes its files.
    fn make_read_only(&self) {
        eventually("nobody who writes there", || self.remount("remount,ro").then_some(()));
    }

    fn make_writable(&self) {
        assert!(self.remount("remount,rw"));
    }

    fn remount(&self, how: &str) -> bool {
        let remount = Command::new("mount").args(["-o", how]).arg(&self.0).status();
        remount.unwrap().success()
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // Lazily: a process that still has a file open there is ended by the test's own end.
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
        let _ = fs::remove_dir(&self.0);
    }
}

/// Takes all the room there is.
fn fill(directory: &Path) -> PathBuf {
    let path = directory.join("filler");
    let mut file = fs::File::create(&path).unwrap();
    for size in [64 << 10, 4096, 1] {
        while file.write_all(&vec![0; size]).is_ok() {}
    }
    path
}

#[test]
fn on_a_full_disk_no_job_is_accepted_and_those_that_run_go_on() {
    let instance = Instance::new();
    let mount = Mount::tmpfs(&instance.dir, "size=2m,mode=700");
    instance.tutti(&["up"]).expect(0);
    instance.tutti(&["params", "quantum=20ms"]).expect(0);
    let line = "echo up; while [ ! -e go ]; do sleep 0.01; done; exit 6";
    let jobs = [0, 1].map(|_| instance.start(&["run", "-n", "2", "sh", "-c", line]));
    jobs.iter().for_each(|job| job.wait_for("up\nup\n"));
    let queued =
        instance.submit(&["--class", "standby", "-n", "2", "-o", "/dev/null", "sleep", "100"]);
    instance.tutti(&["suspend", &queued.to_string()]).expect(0);
    let filler = fill(&instance.dir);
    // What is there yet is used up first.
    within(Duration::from_secs(20), "a refusal", || {
        let done = instance.tutti(&["submit", "-o", "/dev/null", "true"]);
        (done.code != 0).then(|| done.says("[T050]").says("make room"))
    });
    // Nothing is said to be done that the next controller would not know of.
    instance.tutti(&["params", "quantum=77ms"]).expect(1).says("nothing is set").says("[T050]");
    assert!(!instance.tutti(&["params"]).expect(0).text().contains("77ms"));
    let cancel = ["cancel", "--now", &queued.to_string()];
    instance.tutti(&cancel).expect(1).says("it is done, but only until").says("[T050]");
    let last = instance.switches().last().unwrap().due;
    eventually("turns", || (instance.switches().last()?.due > last).then_some(()));
    fs::write(instance.work.join("go"), "").unwrap();
    for job in jobs {
        job.wait().expect(6);
    }
    instance.tutti(&["run", "true"]).expect(125).says("[T050]");
    fs::remove_file(filler).unwrap();
    instance.tutti(&["params", "quantum=77ms"]).expect(0);
    eventually("room", || (instance.tutti(&["run", "true"]).code == 0).then_some(()));
    let report = instance.tutti(&["replay", "--json"]).expect(0).json();
    assert_eq!(report["agrees"], true, "{report}");
    instance.tutti(&["down"]).expect(0);
    drop(mount);
}

#[test]
fn an_instance_does_not_start_on_a_read_only_file_system() {
    let instance = Instance::new();
    let mount = Mount::tmpfs(&instance.dir, "size=2m,mode=700");
    mount.make_read_only();
    instance.tutti(&["up"]).expect(1).says("ead-only file system").says("[T0");
    instance.tutti(&["run", "true"]).expect(125).says("ead-only file system").says("[T0");
    drop(mount);
}

#[test]
fn where_the_journal_can_not_be_written_any_more_jobs_run_on_until_it_can() {
    let instance = Instance::of_the_system();
    let cluster = instance.dir.file_name().unwrap();
    let mount = Mount::tmpfs(&Path::new("/var/lib").join(cluster), "size=20m,mode=755");
    let instance = instance.up();
    let line = "echo up; while [ ! -e go ]; do sleep 0.01; done; exit 6";
    let job = instance.start(&["run", "-n", "2", "sh", "-c", line]);
    job.wait_for("up\nup\n");
    // A file system can't be made read-only while a process has a file open to write.
    let controller = instance.daemon("controller");
    let supervisor: i32 = status_of(controller, "PPid").unwrap().parse().unwrap();
    kill(Pid::from_raw(supervisor), Signal::SIGSTOP).unwrap();
    kill(Pid::from_raw(controller), Signal::SIGKILL).unwrap();
    eventually("its end", || status_of(controller, "State")?.starts_with('Z').then_some(()));
    mount.make_read_only();
    kill(Pid::from_raw(supervisor), Signal::SIGCONT).unwrap();
    within(Duration::from_secs(30), "word of why", || {
        let done = instance.tutti(&["ps"]);
        done.err.contains("can't begin").then(|| done.expect(1).says("[T050]"))
    });
    fs::write(instance.work.join("go"), "").unwrap();
    mount.make_writable();
    job.wait().expect(6);
    instance.tutti(&["run", "true"]).expect(0);
    instance.tutti(&["down"]).expect(0);
    drop(mount);
}

#[test]
fn a_journal_that_is_lost_is_noticed_and_jobs_that_run_go_on() {
    let instance = Instance::new().up();
    let line = "echo up; while [ ! -e go ]; do sleep 0.01; done; exit 6";
    let job = instance.start(&["run", "-n", "2", "sh", "-c", line]);
    job.wait_for("up\nup\n");
    for name in ["journal.db", "journal.db-wal", "journal.db-shm"] {
        let _ = fs::remove_file(instance.dir.join(name));
    }
    instance.tutti(&["submit", "-o", "/dev/null", "true"]).expect(1).says("journal").says("[T050]");
    fs::write(instance.work.join("go"), "").unwrap();
    job.wait().expect(6);
    // The next controller begins anew, with what is there of it.
    let controller = instance.daemon("controller");
    kill(Pid::from_raw(controller), Signal::SIGKILL).unwrap();
    eventually("a job", || {
        let done = instance.tutti(&["submit", "-o", "/dev/null", "true"]);
        (done.code == 0).then_some(())
    });
}

/// The controller ends without bringing more to disk, and no other daemon waits for it.
#[test]
fn an_instance_that_lost_its_journal_is_taken_down_at_once() {
    let instance = Instance::new().up();
    let job = instance.submit(&["-o", "/dev/null", "sh", "-c", "exec sleep $NAP"]);
    instance.wait_for_state(job, "running");
    for name in ["journal.db", "journal.db-wal", "journal.db-shm"] {
        let _ = fs::remove_file(instance.dir.join(name));
    }
    let down = instance.tutti(&["down"]).expect(0);
    assert!(down.took < Duration::from_secs(10), "it took {:?}", down.took);
    instance.expect_no_nappers();
}

#[test]
fn an_instance_whose_directory_is_lost_goes_on_and_no_other_begins_beside_it() {
    let instance = Instance::new().up();
    let line = "echo up; while [ ! -e go ]; do sleep 0.01; done; exit 6";
    let job = instance.start(&["run", "-n", "2", "sh", "-c", line]);
    job.wait_for("up\nup\n");
    let supervisor: i32 = status_of(instance.daemon("keeper"), "PPid").unwrap().parse().unwrap();
    fs::remove_dir_all(&instance.dir).unwrap();
    let told = format!("kill {supervisor}");
    for verb in [&["run", "true"][..], &["submit", "true"], &["up"]] {
        let done = instance.tutti(verb);
        assert_ne!(done.code, 0);
        done.says("was removed while its instance runs").says(&told).says("[T014]");
    }
    fs::write(instance.work.join("go"), "").unwrap();
    job.wait().expect(6);
    kill(Pid::from_raw(supervisor), Signal::SIGTERM).unwrap();
    // The supervisor can't reach its controller, which has some seconds to end by itself.
    within(Duration::from_secs(40), "another", || {
        (instance.tutti(&["run", "true"]).code == 0).then_some(())
    });
}

/// Its controller is started again and again: a verb says why, and `down` ends it.
#[test]
fn an_instance_whose_journal_is_damaged_says_so_and_can_be_taken_down() {
    let instance = Instance::new().up();
    let job = instance.submit(&["-o", "/dev/null", "sh", "-c", "exec sleep $NAP"]);
    instance.wait_for_state(job, "running");
    for name in ["journal.db-wal", "journal.db-shm"] {
        let _ = fs::remove_file(instance.dir.join(name));
    }
    fs::write(instance.dir.join("journal.db"), "somebody's thesis".repeat(400)).unwrap();
    kill(Pid::from_raw(instance.daemon("controller")), Signal::SIGKILL).unwrap();
    // Before that it would be told that the one it has asked went away.
    let socket = instance.dir.join("controller.sock");
    eventually("silence", || UnixStream::connect(&socket).is_err().then_some(()));
    let done = instance.tutti(&["ps"]).expect(1).says("can't begin").says("[T051]");
    assert!(!done.err.contains("nobody starts"), "{}", done.err);
    let down = instance.tutti(&["down"]).expect(0).text();
    assert!(down.contains("its controller could not begin"), "{down}");
    instance.expect_no_nappers();
    // It is left as it was, to be looked at.
    let kept = fs::read_to_string(instance.dir.join("journal.db")).unwrap();
    assert!(kept.starts_with("somebody's thesis"));
    fs::remove_dir_all(&instance.dir).unwrap();
}

/// The journal as it is on disk at this moment, as the one of an instance that is not started.
fn copied(from: &Instance) -> Instance {
    let copy = Instance::new();
    fs::create_dir(&copy.dir).unwrap();
    fs::set_permissions(&copy.dir, fs::Permissions::from_mode(0o700)).unwrap();
    for name in ["journal.db", "journal.db-wal"] {
        fs::copy(from.dir.join(name), copy.dir.join(name)).unwrap();
    }
    copy
}

/// Ends all of it at once, as a loss of power does.
fn end_at_once(instance: &Instance) {
    let dir = instance.dir.to_str().unwrap();
    let variable = format!("TUTTI_DIR={dir}");
    for pid in processes() {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        if environment.split(|&b| b == 0).any(|entry| entry == variable.as_bytes()) {
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
    }
    eventually("their end", || {
        let roles = ["controller", "agent", "keeper"];
        roles.iter().all(|role| instance.daemon_now(role).is_none()).then_some(())
    });
}

#[test]
fn what_was_accepted_before_a_loss_of_power_is_known_after_it() {
    let instance = Instance::new().up();
    instance.tutti(&["params", "rows=1"]).expect(0);
    let first = instance.submit(&["-n", "2", "-o", "/dev/null", "sh", "-c", "exec sleep $NAP"]);
    instance.wait_for_state(first, "running");
    let ends = AtomicBool::new(false);
    let (accepted, copies) = std::thread::scope(|scope| {
        let submitting = scope.spawn(|| {
            let mut accepted = 1;
            while !ends.load(Ordering::SeqCst) {
                accepted = instance.submit(&["-n", "2", "-o", "/dev/null", "true"]);
            }
            accepted
        });
        let copies = [(); 4].map(|()| {
            // A job of which that was said by now must be there.
            let known = instance.jobs().iter().filter_map(|job| job["job"].as_u64()).max().unwrap();
            eventually("others", || {
                (instance.jobs().iter().filter_map(|job| job["job"].as_u64()).max()? > known + 3)
                    .then_some(())
            });
            (known, copied(&instance))
        });
        ends.store(true, Ordering::SeqCst);
        (submitting.join().unwrap(), copies)
    });
    let last = copied(&instance);
    end_at_once(&instance);
    // The machine itself comes back with what is on its disk.
    instance.tutti(&["up"]).expect(0);
    instance.tutti(&["wait", &first.to_string()]).expect(121).says("[T040]");
    for (known, copy) in copies.into_iter().chain([(accepted, last)]) {
        copy.tutti(&["replay"]).expect(0);
        copy.tutti(&["up"]).expect(0);
        // What ran is reported as lost; what waited runs.
        for job in [first, known, known / 2 + 1] {
            let code = copy.tutti(&["wait", &job.to_string()]).code;
            assert!(code == 0 || (job == first && code == 121), "job {job}: exit {code}");
        }
        let known_now = copy.jobs().iter().filter_map(|job| job["job"].as_u64()).max().unwrap();
        assert!(known_now >= known, "{known_now} of {known}");
        eventually("the end of all jobs", || {
            copy.jobs().iter().all(|job| job["state"] == "ended").then_some(())
        });
    }
}
