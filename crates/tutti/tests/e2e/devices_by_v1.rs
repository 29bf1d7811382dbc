//! Devices where the kernel takes no program for groups: the controller `devices` of v1 closes
//! them.

use crate::devices::{listed, stand_in, tries, with_two};
use crate::devices_in_turns::{attempts, end, handovers, two_that_try, with_one_in};
use crate::harness::{Instance, NOBODY, eventually};
use crate::old_kernels::up_without;
use crate::recovery::kill_daemon;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Where the controller is mounted, if it is.
fn mount() -> Option<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    mounts.lines().find_map(|line| {
        let mut words = line.split(' ').skip(1);
        let (path, kind, options) = (words.next()?, words.next()?, words.next()?);
        let is_it = kind == "cgroup" && options.split(',').any(|option| option == "devices");
        is_it.then(|| path.into())
    })
}

/// An instance of the system. The kernel refuses its daemons the call `bpf`. `None` where the
/// controller is not mounted, and nothing is to be seen.
fn without_bpf() -> Option<Instance> {
    if mount().is_none() {
        eprintln!("NO CONTROLLER devices OF V1 HERE: this test sees nothing");
        return None;
    }
    Some(up_without(Instance::of_the_system(), "bpf"))
}

/// The groups of the controller that the instance has: that of itself, and those of its jobs.
fn groups(instance: &Instance) -> Vec<String> {
    let name = crate::audit::cgroup_name(&instance.dir, instance.user.unwrap_or(0));
    let mut found = Vec::new();
    collect(&mount().unwrap(), &name, &mut found);
    found
}

fn collect(group: &Path, name: &str, found: &mut Vec<String>) {
    for entry in fs::read_dir(group).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            let text = path.display().to_string();
            found.extend(text.find(name).map(|at| text[at + name.len()..].to_owned()));
            collect(&path, name, found);
        }
    }
}

#[test]
fn without_programs_a_job_opens_its_own_devices_and_no_others() {
    let Some(instance) = without_bpf() else { return };
    let doctor = instance.tutti(&["doctor", "-v"]).expect(0).text();
    assert!(doctor.contains("by the controller devices of cgroup v1"), "{doctor}");
    assert_eq!(tries(&instance, None, &[], &["/dev/zero"]), ["opened"]);
    assert_eq!(groups(&instance), Vec::<String>::new(), "without devices nothing is made");
    let (node, files) = with_two(&instance);
    let [zero, full] = [0, 1].map(|index: usize| files[index].to_str().unwrap());
    for user in [None, Some(NOBODY)] {
        let without = tries(&instance, user, &[], &[zero, full, "/dev/full", "/dev/null"]);
        assert_eq!(without, ["closed", "closed", "closed", "opened"]);
        assert_eq!(tries(&instance, user, &["--gpus", "1"], &[zero, full]), ["opened", "closed"]);
    }
    // What is there already is closed to a device that is named later, and what it starts, too.
    let late = stand_in(&instance, "loop", (10, 237)).display().to_string();
    let line = format!(
        "sleep $NAP & echo began; until test -e named; do sleep 0.05; done; \
         (: < {late}) || echo refused; setsid sh -c '(: < {late}) || echo refused'"
    );
    let job = instance.start(&["run", "--gpus", "1", "sh", "-c", &line]);
    job.wait_for("began");
    kill_daemon(&instance, "agent");
    let named = ["nodes", "device", &node, &format!("disk:0={late}")];
    eventually("it is named", || (instance.tutti(&named).code == 0).then_some(()));
    fs::write(instance.work.join("named"), "").unwrap();
    assert_eq!(job.wait().expect(0).text().matches("refused").count(), 2);
    // A step that starts now is in the same group.
    let nap = instance.submit(&["--gpus", "1", "sh", "-c", "sleep $NAP"]);
    instance.wait_for_state(nap, "running");
    let line = format!("(: < {zero}) && echo opened; (: < {full}) || echo closed");
    let said = instance.tutti(&["exec", &nap.to_string(), "sh", "-c", &line]).expect(0).text();
    assert!(said.contains("opened\n") && said.contains("closed\n"), "{said}");
    assert!(groups(&instance).len() > 1, "{:?}", groups(&instance));
    instance.tutti(&["cancel", "--now", &nap.to_string()]).expect(0);
    eventually("the groups of jobs are removed", || (groups(&instance) == [""]).then_some(()));
    instance.tutti(&["down"]).expect(0);
    assert_eq!(groups(&instance), Vec::<String>::new());
}

#[test]
fn without_programs_a_device_opens_and_closes_with_the_turns_of_its_jobs() {
    let Some(instance) = without_bpf() else { return };
    let (instance, file) = with_one_in(instance, &["quantum=100ms", "share_devices=all"]);
    instance.tutti(&["params", "--class", "interactive", "control=signal"]).expect(0);
    let jobs = two_that_try(&instance, &file);
    assert_eq!(listed(&instance)[0]["jobs"], json!([1, 2]));
    let began = Instant::now();
    let run_on = |duration: Duration| {
        let until = Instant::now() + duration;
        while Instant::now() < until {
            for (_, pid) in &jobs {
                // Another process continues what the agent has stopped.
                kill(Pid::from_raw(*pid), Signal::SIGCONT).unwrap();
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    run_on(Duration::from_millis(1500));
    kill_daemon(&instance, "agent");
    let again = attempts(&instance, "1").len();
    run_on(Duration::from_millis(1500));
    let most = usize::try_from(began.elapsed().as_millis() / 100).unwrap() + 2;
    for name in ["1", "2"] {
        let all = attempts(&instance, name);
        let (open, closed): (Vec<_>, Vec<_>) = all.into_iter().partition(|it| it.2);
        assert!(open.len() > 50 && closed.len() > 50, "{} {}", open.len(), closed.len());
    }
    let late = attempts(&instance, "1").split_off(again);
    assert!(late.iter().any(|it| it.2) && late.iter().any(|it| !it.2), "another agent does it");
    let found = handovers(&instance);
    assert!((8..=most).contains(&found), "{found} of at most {most}");
    let nodes = instance.tutti(&["switches", "--json"]).expect(0).json();
    let costs = nodes[0][1].as_array().unwrap().iter().map(|it| it["devices_ns"].as_u64().unwrap());
    let highest = costs.max().unwrap();
    assert!(highest > 0, "switches hand it over");
    end(jobs);
}
