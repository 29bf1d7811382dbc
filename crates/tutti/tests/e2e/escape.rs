//! Processes that try to get away from their task.

use crate::harness::{Instance, NOBODY, Running, eventually, player, within};
use std::time::Duration;

#[test]
fn daemons_end_with_their_task() {
    let instance = Instance::new().up();
    let player = player().display().to_string();
    let daemon = format!("{player} daemon $NAP");
    let ways = [
        ("nohup", "nohup sleep $NAP >/dev/null 2>&1 & true".to_owned()),
        ("a session of its own", "setsid sleep $NAP & true".to_owned()),
        ("two forks, without its environment", daemon.clone()),
        ("two forks in two forks", format!("setsid sh -c '{daemon} & {daemon}' & sleep 0.1")),
        ("held pipes", "sleep $NAP & sleep $NAP & true".to_owned()),
        (
            "another user",
            "setsid setpriv --reuid 65534 --clear-groups sleep $NAP & sleep 0.05".to_owned(),
        ),
        ("a stopped child", "sleep $NAP & kill -STOP $!".to_owned()),
    ];
    for (what, line) in ways {
        let done = instance.tutti(&["run", "-n", "2", "sh", "-c", &line]);
        assert_eq!(done.code, 0, "{what}: {}", done.err);
        assert!(done.took < Duration::from_secs(5), "{what}: took {:?}", done.took);
        assert!(instance.nappers().is_empty(), "{what}: left over");
    }
}

#[test]
fn daemons_of_a_cancelled_job_end_too() {
    let instance = Instance::new().up();
    let player = player().display().to_string();
    let line = format!("{player} daemon $NAP; echo up; exec sleep $NAP");
    let job = instance.submit(&["-n", "2", "-o", "out-%r", "sh", "-c", &line]);
    eventually("four sleeps", || (instance.nappers().len() == 4).then_some(()));
    instance.tutti(&["cancel", &job.to_string()]).expect(0);
    instance.tutti(&["wait", &job.to_string()]).expect(143);
    instance.expect_no_nappers();
}

#[test]
fn a_suspended_daemon_is_suspended_with_its_job() {
    let instance = Instance::new().up();
    let player = player().display().to_string();
    let line = format!("{player} daemon $NAP; echo up; exec sleep $NAP");
    let running = instance.start(&["run", "sh", "-c", &line]);
    running.wait_for("up");
    let daemon = eventually("a daemon, which has no environment", || {
        let environment = |pid| std::fs::read(format!("/proc/{pid}/environ"));
        instance.nappers().into_iter().find(|&pid| environment(pid).is_ok_and(|e| e.is_empty()))
    });
    instance.tutti(&["suspend", "1"]).expect(0);
    instance.wait_for_state(1, "suspended");
    eventually("a frozen daemon", || {
        let groups = std::fs::read_to_string(format!("/proc/{daemon}/cgroup")).unwrap();
        let group = groups.lines().find_map(|line| line.strip_prefix("0::")).unwrap();
        let events = ["/sys/fs/cgroup/unified", "/sys/fs/cgroup"].iter().find_map(|mount| {
            std::fs::read_to_string(format!("{mount}{group}/cgroup.events")).ok()
        });
        events.unwrap().contains("frozen 1").then_some(())
    });
    instance.tutti(&["cancel", "--now", "1"]).expect(0);
    running.wait().expect(137);
    instance.expect_no_nappers();
}

#[test]
fn a_fork_bomb_stays_below_its_limit_and_is_ended() {
    let instance = Instance::alone().up();
    let doctor = instance.tutti(&["doctor", "-v"]).text();
    assert!(
        doctor.contains("--max-processes is enforced by the kernel"),
        "this machine enforces no limit of processes; the test needs the pids controller:\n{doctor}"
    );
    let player = player().display().to_string();
    let bomb = instance.submit(&["--max-processes", "300", "-o", "/dev/null", &player, "bomb"]);
    instance.wait_for_state(bomb, "running");
    let count = || {
        let is_bomb =
            |pid: &i32| crate::harness::command_line(*pid).last().is_some_and(|w| w == "bomb");
        crate::harness::processes().iter().filter(|pid| is_bomb(pid)).count()
    };
    eventually("a bomb at its limit", || (count() == 300).then_some(()));
    // The machine can still be used.
    instance.tutti(&["run", "-n", "2", "true"]).expect(0);
    assert!(count() <= 300, "{} processes", count());
    instance.tutti(&["cancel", "--now", &bomb.to_string()]).expect(0);
    let reached = "reached its limit of 300 processes (--max-processes)";
    instance.tutti(&["wait", &bomb.to_string()]).expect(137).says(reached);
    assert_eq!(count(), 0);
    for verb in [&["ps", "--all"][..], &["history", &bomb.to_string()]] {
        let text = instance.tutti(verb).expect(0).text();
        assert!(text.contains(reached), "{verb:?}: {text}");
    }
}

/// 400 processes that fork whenever one may are ended while another job prints a line every 50 ms.
#[test]
#[ignore = "takes long: `tests/long e2e` runs it"]
fn a_fork_bomb_of_another_user_is_cancelled_without_a_standstill_of_other_jobs() {
    const LINE_EVERY: &str = "while :; do echo $(date +%s%N); sleep 0.05; done";
    let instance = Instance::of_the_system_alone().up();
    let player = instance.share(&player()).display().to_string();
    let other = instance.start(&["run", "-n", "1", "bash", "-c", LINE_EVERY]);
    let bomb = ["submit", "--parsable", "--max-processes", "400", "-o", "/dev/null"];
    let bomb = [&bomb[..], &[&player, "bomb"]].concat();
    let bomb = Running::start(instance.command_as(Some(NOBODY), &bomb)).wait().expect(0).text();
    let count = || {
        let is_bomb =
            |pid: &i32| crate::harness::command_line(*pid).last().is_some_and(|w| w == "bomb");
        crate::harness::processes().iter().filter(|pid| is_bomb(pid)).count()
    };
    within(Duration::from_secs(60), "a bomb at its limit", || (count() == 400).then_some(()));
    let lines = || other.out().lines().count();
    let before = lines();
    eventually("the other goes on beside it", || (lines() > before + 3).then_some(()));
    let begin = lines() - 1;
    let cancel = ["cancel", "--now", bomb.trim()];
    instance.start(&cancel).wait_within(Duration::from_secs(60)).expect(0);
    instance.start(&["wait", bomb.trim()]).wait_within(Duration::from_secs(60)).expect(137);
    assert_eq!(count(), 0, "all of the bomb is gone");
    let ended = lines();
    eventually("the other goes on", || (lines() > ended + 3).then_some(()));
    let out = other.out();
    let times: Vec<u64> = out.lines().filter_map(|line| line.parse().ok()).skip(begin).collect();
    let longest = times.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap();
    let longest = Duration::from_nanos(longest);
    println!("the longest standstill: {longest:?}");
    assert!(longest < Duration::from_secs(5), "no line for {longest:?}");
    instance.tutti(&["cancel", "--now", "1"]).expect(0);
    other.wait().expect(137);
}

#[test]
fn who_reaches_a_limit_of_processes_ends_as_it_will_and_its_owner_is_told_why() {
    let instance = Instance::new().up();
    let player = player().display().to_string();
    let line = format!("exec 2>/dev/null; [ $TUTTI_RANK = 0 ] || {player} many 50; exit $?");
    let limited = ["run", "-n", "2", "--max-processes", "20", "sh", "-c", &line];
    let done = instance.tutti(&limited).expect(1);
    assert_eq!(done.err, "tutti: rank 1: reached its limit of 20 processes (--max-processes)\n");
    let within = ["run", "--max-processes", "20", "sh", "-c", "sleep 0 & wait; exit 3"];
    assert_eq!(instance.tutti(&within).expect(3).err, "");
}

#[test]
fn a_task_that_ends_by_itself_takes_what_it_forked_along() {
    let instance = Instance::new().up();
    let player = player().display().to_string();
    let line = format!("{player} many 500 & sleep 0.3; exit 6");
    let done = instance.tutti(&["run", "sh", "-c", &line]).expect(6);
    assert!(done.took < Duration::from_secs(10));
    let left = crate::harness::processes().into_iter().any(|pid| {
        crate::harness::command_line(pid).get(1..) == Some(&["many".into(), "500".into()])
    });
    assert!(!left);
}
