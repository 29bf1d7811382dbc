//! `tutti attach`: seeing a running job beside its front end.

use crate::harness::{Instance, NOBODY, Running, eventually};
use crate::recovery::kill_daemon;
use nix::sys::signal::Signal;
use std::fs;

/// A job that copies the lines of a file which grows; ends when it has read `end`.
const TALK: &str = "tail -n +1 -f talk 2>/dev/null | while read line; do \
                    [ \"$line\" = end ] && exit 4; echo \"$TUTTI_RANK $line\"; done";

fn say(instance: &Instance, line: &str) {
    use std::io::Write;
    let path = instance.work.join("talk");
    let mut file = fs::File::options().append(true).create(true).open(path).unwrap();
    writeln!(file, "{line}").unwrap();
}

#[test]
fn several_see_a_job_from_now_on_and_one_that_detaches_ends_nothing() {
    let instance = Instance::new().up();
    say(&instance, "early");
    let front = instance.start(&["run", "-J", "talk", "-n", "2", "bash", "-c", TALK]);
    front.wait_for("1 early\n");
    front.wait_for("0 early\n");
    let attach = |args: &[&str]| {
        let viewer = instance.start(&[&["attach"], args, &["talk"]].concat());
        viewer.wait_for_err("attached to job");
        viewer
    };
    let (all, one, labelled) = (attach(&[]), attach(&["-r", "1"]), attach(&["-l"]));
    let json = attach(&["-l=json"]);
    // Each keeper has taken them in once something comes.
    let mut number = 0;
    eventually("that all see it", || {
        number += 1;
        say(&instance, &format!("line{number}"));
        let has = |viewer: &Running, text: &str| viewer.out().contains(text);
        let all = has(&all, "0 line") && has(&one, "1 line") && has(&labelled, "0: 0 line");
        (all && has(&json, "0 line")).then_some(())
    });
    assert!(!all.out().contains("early"));
    one.signal(Signal::SIGQUIT);
    let done = one.wait().expect(0).says("detached");
    assert!(!done.text().contains("0 line"), "{}", done.text());
    // A controller that goes away changes nothing.
    kill_daemon(&instance, "controller");
    say(&instance, "late");
    for viewer in [&all, &labelled, &front] {
        viewer.wait_for("1 late\n");
    }
    json.wait_for(r#""rank":1,"ranks":1,"error":false,"line":"1 late"}"#);
    let second = attach(&["-r", "0"]);
    say(&instance, "end");
    for viewer in [all, labelled, second, front] {
        viewer.wait().expect(4);
    }
    for line in json.wait().expect(4).text().lines() {
        crate::schemas::check_named("logs", &serde_json::from_str(line).unwrap());
    }
    instance.tutti(&["attach", "talk"]).expect(125).says("you have no job named");
}

#[test]
fn a_viewer_gives_input_beside_the_front_end() {
    let instance = Instance::new().up();
    let front = instance.start_typing(&["run", "-J", "cat", "-n", "2", "-i", "all", "cat"]);
    eventually("the job", || (!instance.jobs().is_empty()).then_some(()));
    instance.wait_for_state(1, "running");
    let mut viewer = instance.start_typing(&["attach", "-l", "-i", "1", "cat"]);
    viewer.wait_for_err("attached to job");
    viewer.type_in(b"for one\n");
    viewer.wait_for("1: for one\n");
    front.wait_for("for one\n");
    // The end of what it types is not the end of the tasks' input.
    viewer.close_input();
    let mut front = front;
    front.type_in(b"for all\n");
    viewer.wait_for("0: for all\n");
    viewer.wait_for("1: for all\n");
    assert!(!viewer.out().contains("0: for one"));
    front.close_input();
    front.wait().expect(0);
    viewer.wait().expect(0);
}

#[test]
fn a_viewer_sees_bulk_that_the_front_end_read_itself_and_delays_nothing() {
    let instance = Instance::new().up();
    let line =
        "while [ ! -e stop ]; do head -c 1000000 /dev/zero | tr '\\0' x; echo; done; echo over";
    let front = instance.start(&["run", "-J", "bulk", "sh", "-c", line]);
    eventually("much output", || (front.out().len() > 20_000_000).then_some(()));
    let slow = instance.start(&["attach", "bulk"]);
    slow.wait_for_err("attached to job");
    eventually("bulk", || (slow.out().len() > 1_000_000).then_some(()));
    slow.signal(Signal::SIGSTOP);
    let before = front.out().len();
    eventually("more for the front end", || {
        (front.out().len() > before + 20_000_000).then_some(())
    });
    fs::write(instance.work.join("stop"), "").unwrap();
    let done = front.wait().expect(0);
    assert!(done.text().ends_with("\nover\n"));
    // Nothing is lost on the way to the front end, though the reader of the pipe changed.
    let whole = |line: &str| line.len() == 1_000_000 && line.bytes().all(|byte| byte == b'x');
    let text = done.text();
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[..lines.len() - 1].iter().all(|line| whole(line)));
    slow.signal(Signal::SIGCONT);
    slow.wait().expect(0);
}

#[test]
fn attach_follows_files_and_is_for_the_owner() {
    let instance = Instance::of_the_system().up();
    say(&instance, "early");
    let job = instance.submit(&["-J", "filed", "-o", "out", "bash", "-c", TALK]).to_string();
    eventually("its first line", || {
        fs::read_to_string(instance.work.join("out")).ok().filter(|text| text.contains("early"))
    });
    let viewer = instance.start(&["attach", &job]);
    let mut number = 0;
    eventually("that it sees the file", || {
        number += 1;
        say(&instance, &format!("line{number}"));
        viewer.out().contains("line").then_some(())
    });
    assert!(!viewer.out().contains("early"));
    instance.tutti(&["attach", "-i", "all", &job]).expect(125).says("read no input");
    let other = |args: &[&str]| Running::start(instance.command_as(Some(NOBODY), args)).wait();
    other(&["attach", &job]).expect(125).says("belongs to").says("[T020]");
    say(&instance, "end");
    viewer.wait().expect(4);
    let front = instance.start(&["run", "sleep", &instance.nap]);
    let front_job = eventually("the job of the front end", || {
        let jobs = instance.jobs();
        jobs.iter().find(|job| job["state"] == "running").map(|job| job["job"].to_string())
    });
    other(&["attach", &front_job]).expect(125).says("[T020]");
    instance.tutti(&["cancel", "--now", &front_job]).expect(0);
    front.wait().expect(137);
}
