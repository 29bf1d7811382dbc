//! `tutti upgrade --all`: the machines of a cluster upgrade one after the other.

use crate::cluster::Bed;
use crate::harness::{PATIENCE, command_line, copy_program, processes, within};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

/// The same program at another place, which all nodes of the bed see.
fn another(bed: &Bed) -> PathBuf {
    let copy = bed.audit.work.join("release");
    copy_program(&bed.audit.program, &copy);
    std::fs::set_permissions(&copy, std::fs::Permissions::from_mode(0o755)).unwrap();
    copy
}

/// What the daemons of a node execute, each once.
fn executables(bed: &Bed, number: usize) -> Vec<PathBuf> {
    let directory = bed.node(number).directory().to_str().unwrap();
    let of_node = |pid: &i32| {
        let words = command_line(*pid);
        words.iter().any(|word| word == directory) && words.iter().any(|word| word == "--directory")
    };
    let daemons = processes().into_iter().filter(of_node);
    let mut found: Vec<PathBuf> =
        daemons.filter_map(|pid| std::fs::read_link(format!("/proc/{pid}/exe")).ok()).collect();
    found.sort();
    found.dedup();
    found
}

fn supervisor(bed: &Bed, number: usize) -> i32 {
    let lock = bed.node(number).directory().join("lock");
    std::fs::read_to_string(lock).unwrap().trim().parse().unwrap()
}

#[test]
fn all_machines_upgrade_and_jobs_run_on() {
    // A tree of two levels: the parents of others are replaced, too.
    let bed = Bed::up_with(4, &[0], &["fan_out=2"]);
    let line =
        "i=0; while [ $i -lt 300 ]; do echo $i; i=$((i+1)); sleep 0.005; done; exit $TUTTI_RANK";
    let runs = [1, 4].map(|from| bed.start(from, &["run", "-N", "4", "-n", "4", "sh", "-c", line]));
    for run in &runs {
        run.wait_for("\n9\n");
    }
    let to = another(&bed);
    let path = to.display().to_string();
    let said = bed.start(1, &["upgrade", "--all", &path]).wait_within(PATIENCE * 3).expect(0);
    let goes_on = |name: &str| format!("{name} is upgraded to {path}\n");
    let names: Vec<String> = (1..=4).map(|n| bed.node(n).name().to_owned()).collect();
    assert_eq!(said.text(), names.iter().map(|name| goes_on(name)).collect::<String>());
    let states = bed.states();
    assert!(states.values().all(|state| state == "up"), "{states:?}");
    for number in 1..=4 {
        assert_eq!(executables(&bed, number), std::slice::from_ref(&to), "node {number}");
    }
    let mut expected: Vec<String> = (0..300).flat_map(|n| [n; 4]).map(|n| n.to_string()).collect();
    expected.sort();
    for run in runs {
        assert_eq!(run.wait_within(PATIENCE * 2).expect(3).sorted(), expected);
    }
    bed.tutti(3, &["run", "-N", "4", "-n", "4", "true"]).expect(0);
    // Once more: there is nothing to do.
    let again = bed.tutti(1, &["upgrade", "--all", &path]).expect(0).text();
    assert_eq!(again.matches("runs already").count(), 4, "{again}");
    // And only the head can say so.
    bed.tutti(2, &["upgrade", "--all", &path]).expect(1).says("at the head").says("[T060]");
}

#[test]
fn it_stops_at_the_first_that_can_not() {
    let bed = Bed::up(4, &[0]);
    let to = another(&bed);
    let path = to.display().to_string();
    let names: Vec<&str> = (1..=4).map(|n| bed.node(n).name()).collect();
    let before = executables(&bed, 3);
    // Jobs run on on a machine whose supervisor was killed, but there is nothing to tell.
    kill(Pid::from_raw(supervisor(&bed, 3)), Signal::SIGKILL).unwrap();
    let done = bed.start(1, &["upgrade", "--all", &path]).wait_within(PATIENCE * 3).expect(1);
    let done = done.says(&format!("{} was not upgraded", names[2])).says("[T015]");
    let done = done.says(&format!("done: {}, {}; not tried: {}", names[0], names[1], names[3]));
    assert_eq!(done.text().lines().count(), 2, "{done:?}");
    for (number, is_on) in [(1, true), (2, true), (3, false), (4, false)] {
        let expected = if is_on { vec![to.clone()] } else { before.clone() };
        assert_eq!(executables(&bed, number), expected, "node {number}");
    }
    bed.tutti(2, &["run", "-N", "4", "-n", "4", "true"]).expect(0);
    // One that speaks otherwise would part the head from the rest.
    bed.audit.script("newer", "#!/bin/sh\necho protocol 999\n");
    let newer = bed.audit.work.join("newer").display().to_string();
    bed.tutti(1, &["upgrade", "--all", &newer]).expect(1).says("version 999").says("[T015]");
    bed.tutti(1, &["upgrade", "--all", "/bin/true"]).expect(1).says("is no tutti");
    // Nothing is begun that can't be brought to its end.
    bed.bed().cut(bed.node(4)).unwrap();
    within(PATIENCE * 2, "a node out of reach", || (bed.states()[names[3]] != "up").then_some(()));
    let done = bed.tutti(1, &["upgrade", "--all"]).expect(1).says("nothing was done");
    done.says(&format!("not in reach: {}", names[3])).says("[T015]");
    assert_eq!(executables(&bed, 1), [to]);
}
