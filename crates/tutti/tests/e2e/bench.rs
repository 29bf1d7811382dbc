//! `tutti bench switch`: what it measures and what it refuses. How long anything takes is not tested.

use crate::harness::{Instance, Running};
use serde_json::Value;

const QUICK: [&str; 6] = ["bench", "switch", "--quick", "--method", "freeze", "--processes"];

#[test]
fn switches_are_measured_beside_the_bare_cost_of_the_same_writes() {
    let instance = Instance::alone();
    let args = [&QUICK[..], &["3", "--json"]].concat();
    let report = instance.tutti(&args).expect(0).json();
    let rows = report["rows"].as_array().unwrap();
    let kinds: Vec<&Value> = rows.iter().map(|row| &row["kind"]).collect();
    assert_eq!(kinds, ["busy", "idle"]);
    for row in rows {
        assert_eq!((&row["processes"], &row["stragglers"]), (&3.into(), &0.into()), "{row}");
        assert!(row["bare_us"].as_u64() > Some(0) && row["switches"].as_u64() >= Some(3), "{row}");
        // That a switch took no time at all would mean that none was made.
        assert!(row["made"]["median_us"].as_u64() > Some(0), "{row}");
    }
    assert!(report["bare_missing"].is_null() && report["gaps"]["gaps"].as_u64() > Some(0));
}

#[test]
fn without_a_compiler_what_it_needs_one_for_is_left_out_and_that_is_said() {
    let instance = Instance::alone();
    let mut command = instance.command(&[&QUICK[..], &["3", "--kind", "idle"]].concat());
    command.env("PATH", "/nowhere");
    let done = Running::start(command).wait().expect(0);
    let text = done.text();
    assert!(text.contains("No BARE cost of the same writes: there is no C compiler"), "{text}");
    assert!(text.contains("idle"), "{text}");
}

#[test]
fn more_busy_processes_than_the_machine_can_bear_are_refused() {
    let instance = Instance::new();
    let processors = std::thread::available_parallelism().unwrap().get();
    let many = (500 * processors + 1).to_string();
    let done = instance.tutti(&[&QUICK[..], &[&many, "--kind", "busy"]].concat()).expect(1);
    done.says("processes that are idle may be more");
    let hidden = ["bench", "processes", &many, "busy"];
    instance.tutti(&hidden).expect(1).says("processes that are idle may be more");
    let none = [&QUICK[..], &["0"]].concat();
    instance.tutti(&none).expect(1).says("--processes: 1 to ");
}
