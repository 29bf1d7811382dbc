//! Gates before devices of a group.

use crate::support::{Launch, Subtree, c_string, eventually};
use std::fs;
use std::time::Instant;
use tutti_linux::device_control;

/// `/dev/zero` and `/dev/full`.
const ZERO: (u32, u32) = (1, 5);
const FULL: (u32, u32) = (1, 7);

/// Opens both files again and again, and writes for each whether it could.
fn tries(said: &std::path::Path) -> String {
    let said = said.display();
    format!(
        "while :; do z=0; f=0; (: < /dev/zero) 2>/dev/null && z=1; \
         (: < /dev/full) 2>/dev/null && f=1; echo $z$f > {said}.new; mv {said}.new {said}; \
         echo x >> {said}.times; done"
    )
}

#[test]
fn a_gate_opens_and_closes_the_own_devices_of_a_group_without_a_system_call() {
    device_control::check().unwrap();
    let subtree = Subtree::new("gate");
    let group = subtree.group("g");
    let said = std::env::temp_dir().join(format!("tutti-gate-{}", std::process::id()));
    let gate = group.close_devices_by_gate(&[FULL], &[ZERO]).unwrap();
    assert!(group.closes_devices() && !gate.is_open());
    let _shell = Launch::sh(&tries(&said)).start(Some(&group));
    let sees = |expected: &str| {
        let times = || fs::read_to_string(said.with_extension("times")).map_or(0, |it| it.len());
        let before = times();
        // One round may have begun before.
        eventually("a whole round", || times() >= before + 6);
        assert_eq!(fs::read_to_string(&said).unwrap().trim(), expected);
    };
    sees("00");
    gate.set(true);
    sees("10");
    // Another process finds the same word, also when this one is gone.
    let again = group.device_gate().unwrap().unwrap();
    assert!(again.is_open());
    drop(gate);
    sees("10");
    again.set(false);
    sees("00");
    assert!(subtree.group("without").device_gate().unwrap().is_none());
    let began = Instant::now();
    for round in 0..1_000_000_u32 {
        again.set(round % 2 == 0);
    }
    eprintln!("a flip: {:?}", began.elapsed() / 1_000_000);
    for name in ["", "new", "times"] {
        let _ = fs::remove_file(said.with_extension(name));
    }
}

#[test]
fn a_program_without_devices_of_others_is_taken_by_the_kernel() {
    device_control::check().unwrap();
    let subtree = Subtree::new("gates");
    subtree.group("plain").close_devices(&[]).unwrap();
    let group = subtree.group("own");
    let gate = group.close_devices_by_gate(&[], &[ZERO, FULL]).unwrap();
    gate.set(true);
    assert!(group.device_gate().unwrap().unwrap().is_open());
    subtree.group("none").close_devices_by_gate(&[], &[]).unwrap();
}

#[test]
fn a_gate_of_v1_opens_and_closes_the_own_devices_of_a_group() {
    let subtree = Subtree::new("gate-v1");
    let group = subtree.group("g");
    if let Err(error) = group.check_devices_in_v1() {
        eprintln!("the v1 controller devices can't be used: {error}");
        return;
    }
    let said = std::env::temp_dir().join(format!("tutti-gate-v1-{}", std::process::id()));
    let gate = group.close_devices_in_v1_by_gate(&[FULL], &[ZERO]).unwrap();
    assert!(group.closes_devices() && !gate.is_open());
    let mut shell = Launch::sh(&tries(&said));
    shell.companions = group.companions().iter().map(|it| c_string(it.to_str().unwrap())).collect();
    let _shell = shell.start(Some(&group));
    let sees = |expected: &str| {
        let times = || fs::read_to_string(said.with_extension("times")).map_or(0, |it| it.len());
        let before = times();
        eventually("a whole round", || times() >= before + 6);
        assert_eq!(fs::read_to_string(&said).unwrap().trim(), expected);
    };
    sees("00");
    gate.set(true);
    sees("10");
    // Another process has the gate by the group, and sets it anew.
    let again = group.device_gate().unwrap().unwrap();
    drop(gate);
    again.set(false);
    sees("00");
    again.set(true);
    sees("10");
    // New devices are closed to processes that are there already.
    let late = subtree.group("late");
    let said_late = said.with_extension("late");
    let _other = Launch::sh(&tries(&said_late)).start(Some(&late));
    eventually("it opens both", || fs::read_to_string(&said_late).is_ok_and(|it| it == "11\n"));
    late.close_devices_in_v1(&[ZERO]).unwrap();
    eventually("one is closed", || fs::read_to_string(&said_late).is_ok_and(|it| it == "01\n"));
    let began = Instant::now();
    for round in 0..10_000_u32 {
        again.set(round % 2 == 0);
    }
    eprintln!("a flip: {:?}", began.elapsed() / 10_000);
    for name in ["", "new", "times", "late"] {
        let _ = fs::remove_file(said.with_extension(name));
    }
}
