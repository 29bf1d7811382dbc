//! What a user does to a job while it runs: suspend, resume, signal, parameters.

use crate::harness::{Instance, eventually, player, status_of};

/// A job that counts in a file, so that it can be seen going on.
fn counter(instance: &Instance, ranks: &str) -> u64 {
    let line = "i=0; while :; do i=$((i+1)); echo $i > count-$TUTTI_RANK.new; \
        mv count-$TUTTI_RANK.new count-$TUTTI_RANK; sleep 0.01; done";
    let job = instance.submit(&["-n", ranks, "-o", "/dev/null", "sh", "-c", line]);
    instance.wait_for_state(job, "running");
    job
}

fn count(instance: &Instance, rank: u32) -> u64 {
    let text = std::fs::read_to_string(instance.work.join(format!("count-{rank}")));
    text.ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0)
}

fn expect_progress(instance: &Instance, rank: u32) {
    let begin = count(instance, rank);
    eventually(&format!("progress of rank {rank}"), || {
        (count(instance, rank) > begin + 5).then_some(())
    });
}

/// No progress while another rank, or time measured by this very process, goes on for long enough
/// for dozens of steps.
fn expect_standstill(instance: &Instance, rank: u32) {
    let begin = count(instance, rank);
    let mut looks = 0;
    eventually("a quarter of a second", || {
        looks += 1;
        (looks > 80).then_some(())
    });
    assert!(count(instance, rank) <= begin + 1, "rank {rank} goes on");
}

#[test]
fn a_suspended_job_stands_still_until_it_is_resumed() {
    let instance = Instance::new().up();
    let job = counter(&instance, "2");
    expect_progress(&instance, 0);
    instance.tutti(&["suspend", &job.to_string()]).expect(0);
    let shown = instance.wait_for_state(job, "suspended");
    assert!(shown["share_percent"].is_null(), "{shown}");
    expect_standstill(&instance, 0);
    expect_standstill(&instance, 1);
    instance.tutti(&["resume", &job.to_string()]).expect(0);
    instance.wait_for_state(job, "running");
    expect_progress(&instance, 0);
    expect_progress(&instance, 1);
    instance.tutti(&["suspend", &job.to_string()]).expect(0);
    // A suspended job can be ended: it gets its turns back to do so.
    instance.tutti(&["cancel", &job.to_string()]).expect(0);
    instance.tutti(&["wait", &job.to_string()]).expect(143);
}

#[test]
fn one_task_can_be_suspended_while_the_others_go_on() {
    let instance = Instance::new().up();
    let job = counter(&instance, "2");
    expect_progress(&instance, 0);
    expect_progress(&instance, 1);
    instance.tutti(&["suspend", &format!("{job}.1")]).expect(0);
    expect_standstill(&instance, 1);
    expect_progress(&instance, 0);
    let part = format!("{job}.1");
    assert_eq!(instance.job(job)["suspended"], serde_json::json!([part]));
    let shown = instance.tutti(&["ps"]).expect(0).text();
    assert!(shown.contains(&format!("({part} suspended)")), "{shown}");
    // It stays so when its whole job was suspended and resumed.
    instance.tutti(&["suspend", &job.to_string()]).expect(0);
    instance.wait_for_state(job, "suspended");
    instance.tutti(&["resume", &job.to_string()]).expect(0);
    expect_progress(&instance, 0);
    expect_standstill(&instance, 1);
    instance.tutti(&["resume", &format!("{job}.1")]).expect(0);
    expect_progress(&instance, 1);
    assert_eq!(instance.job(job)["suspended"], serde_json::json!([]));
    let no_rank = format!("job {job} has no rank 9; its ranks are 0 to 1");
    for verb in [&["suspend"][..], &["resume"], &["signal", "TERM"], &["signal", "--all", "TERM"]] {
        let target = format!("{job}.9");
        instance.tutti(&[verb, &[&target]].concat()).expect(1).says(&no_rank);
    }
    instance.tutti(&["cancel", &job.to_string()]).expect(0);
    instance.tutti(&["wait", &job.to_string()]).expect(143);
    for verb in [&["cancel"][..], &["suspend"], &["resume"], &["signal", "TERM"]] {
        let done = instance.tutti(&[verb, &[&job.to_string()]].concat()).expect(1);
        done.says(&format!("job {job} has ended (exit 143, "));
    }
}

#[test]
fn a_process_with_all_below_it_can_be_suspended() {
    let instance = Instance::new().up();
    let line = "sh -c 'sleep $NAP; true' & echo child $!; sleep $NAP; wait";
    let running = instance.start(&["run", "sh", "-c", line]);
    running.wait_for("child ");
    let child: i32 = running.out().trim().strip_prefix("child ").unwrap().parse().unwrap();
    eventually("both sleeps", || (instance.nappers().len() == 2).then_some(()));
    let state = |pid: i32| status_of(pid, "State").unwrap_or_default();
    let below: Vec<i32> = instance
        .nappers()
        .into_iter()
        .filter(|&pid| status_of(pid, "PPid") == Some(child.to_string()))
        .collect();
    assert_eq!(below.len(), 1);
    let target = format!("1.0/{child}");
    instance.tutti(&["suspend", &target]).expect(0);
    assert!(state(child).starts_with('T') && state(below[0]).starts_with('T'));
    let stopped =
        || instance.nappers().into_iter().filter(|&pid| state(pid).starts_with('T')).count();
    assert_eq!(stopped(), 1, "the other is stopped too");
    instance.tutti(&["resume", &target]).expect(0);
    assert_eq!(stopped(), 0);
    instance.tutti(&["signal", "TERM", &target]).expect(0);
    eventually("the end of the subtree", || (instance.nappers().len() == 1).then_some(()));
    let me = std::process::id().to_string();
    instance.tutti(&["suspend", &format!("1.0/{me}")]).expect(1).says("does not belong to");
    instance.tutti(&["cancel", "--now", "1"]).expect(0);
    running.wait().expect(137);
}

/// What a parent that asks for every change of its child's state is told while its job is suspended
/// and resumed ten times.
fn changes_seen(class: &str) -> Vec<String> {
    let instance = Instance::new().up();
    instance.tutti(&["params", "--class", "polite", "control=signal"]).expect(0);
    let player = player().display().to_string();
    let running = instance.start(&["run", "--class", class, &player, "watch-child", &instance.nap]);
    running.wait_for("child ");
    for _ in 0..10 {
        instance.tutti(&["suspend", "1"]).expect(0);
        instance.wait_for_state(1, "suspended");
        instance.tutti(&["resume", "1"]).expect(0);
        instance.wait_for_state(1, "running");
    }
    let child = running.out().lines().next().unwrap().strip_prefix("child ").unwrap().to_owned();
    instance.tutti(&["signal", "TERM", &format!("1.0/{child}")]).expect(0);
    let out = running.wait().expect(0).text();
    out.lines().skip(1).map(str::to_owned).collect()
}

#[test]
fn a_parent_does_not_see_that_its_child_was_suspended() {
    assert_eq!(changes_seen("interactive"), ["ended"]);
}

#[test]
fn nor_by_signals_that_it_was_stopped() {
    // The parent that asks for it is told that a child goes on, but never that one has stopped.
    let mut seen = changes_seen("polite");
    assert_eq!(seen.pop().as_deref(), Some("ended"));
    assert!(seen.iter().all(|change| change == "continued"), "{seen:?}");
}

#[test]
fn signals_reach_a_job_a_task_or_every_process() {
    let instance = Instance::new().up();
    let line = "trap 'echo $TUTTI_RANK usr1' USR1; echo up; while :; do sleep 0.02; done";
    let running = instance.start(&["run", "-n", "2", "sh", "-c", line]);
    running.wait_for("up\nup\n");
    instance.tutti(&["signal", "USR1", "1.1"]).expect(0);
    running.wait_for("1 usr1");
    assert!(!running.out().contains("0 usr1"));
    instance.tutti(&["signal", "sigusr1", "1"]).expect(0);
    running.wait_for("0 usr1");
    instance.tutti(&["signal", "NOPE", "1"]).expect(2).says("no signal");
    instance.tutti(&["signal", "--all", "KILL", "1"]).expect(0);
    running.wait().expect(137);
}

#[test]
fn a_signal_finds_a_process_in_another_session_only_if_all_are_meant() {
    let instance = Instance::new().up();
    let line = "setsid sh -c 'trap \"echo far\" USR1; echo ready; while :; do sleep 0.02; done' & \
        trap 'echo near' USR1; while :; do wait; done";
    let running = instance.start(&["run", "sh", "-c", line]);
    running.wait_for("ready");
    instance.tutti(&["signal", "USR1", "1"]).expect(0);
    running.wait_for("near");
    assert!(!running.out().contains("far"));
    instance.tutti(&["cancel", "--now", "1"]).expect(0);
    running.wait().expect(137);
}

#[test]
fn a_parameter_that_is_wrong_changes_nothing_and_says_what_is_right() {
    let instance = Instance::new().up();
    instance.tutti(&["params", "quantum=1ms"]).expect(1).says("it may be 2ms to 1d");
    instance.tutti(&["params", "rows=0"]).expect(1).says("it may be 1 to 1024");
    instance.tutti(&["params", "quantm=5ms"]).expect(1).says("quantum");
    instance.tutti(&["params", "quantum", "rows=2"]).expect(1).says("NAME=VALUE");
    instance.tutti(&["params", "quantum=fast"]).expect(1);
    instance.tutti(&["params", "quantum=5ms", "rows=0"]).expect(1);
    instance.tutti(&["params", "--class", "x", "share=200%"]).expect(1).says("200%");
    instance
        .tutti(&["params", "--class", "x", "colour=red"])
        .expect(1)
        .says("share, empty, control");
    instance
        .tutti(&["params", "policy=spice"])
        .expect(1)
        .says("gang, space, classes, deadline, external or dhc");
    instance.tutti(&["params", "policy=space:best"]).expect(1).says("sjbf");
    instance.tutti(&["params", "policy=space:easy"]).expect(0);
    assert!(instance.tutti(&["params", "discipline"]).expect(0).text().contains("easy"));
    let all = instance.tutti(&["params", "--json"]).expect(0).json();
    let quantum = all["params"].as_array().unwrap().iter().find(|p| p["name"] == "quantum");
    assert_eq!(quantum.unwrap()["value"], "100ms", "one of two settings was taken");
}

#[test]
fn a_class_that_was_a_slip_is_told_as_new_and_can_be_taken_back() {
    let instance = Instance::new().up();
    let params = |words: &[&str]| instance.tutti(&[&["params"], words].concat());
    let made = params(&["--class", "interactiv", "share=10%"]).expect(0).text();
    assert!(made.contains("interactiv: new") && made.contains("--forget"), "{made}");
    let job =
        instance.submit(&["--class", "interactiv", "-o", "/dev/null", "sleep", &instance.nap]);
    params(&["--class", "interactiv", "--forget"]).expect(1).says("class interactiv has 1 job");
    instance.tutti(&["cancel", "--now", &job.to_string()]).expect(0);
    instance.tutti(&["wait", &job.to_string()]).expect(137);
    params(&["--class", "interactiv", "--forget"]).expect(0);
    assert!(!params(&[]).expect(0).text().contains("interactiv "));
    params(&["--class", "interactive", "--forget"]).expect(1).says("from the start");
    params(&["--forget"]).expect(2);
    params(&["--forget", "--class", "standby", "--during", "mon"]).expect(1).says("not with both");
}

#[test]
fn many_jobs_are_cancelled_and_waited_for_at_once() {
    let instance = Instance::new().up();
    let submit = || instance.submit(&["-o", "/dev/null", "sleep", &instance.nap]);
    let jobs: Vec<u64> = (0..5).map(|_| submit()).collect();
    assert_eq!(jobs, [1, 2, 3, 4, 5]);
    let left = || -> Vec<u64> {
        let jobs = instance.tutti(&["ps", "--json"]).expect(0).json();
        jobs.as_array().unwrap().iter().map(|job| job["job"].as_u64().unwrap()).collect()
    };
    instance.tutti(&["suspend", "2-3"]).expect(0);
    assert!(instance.job(2)["state"] == "suspended" && instance.job(3)["state"] == "suspended");
    instance.tutti(&["cancel", "--now", "2-4"]).expect(0);
    // It is as long as a range of which some have ended.
    instance.tutti(&["wait", "2-4"]).expect(137).says("job 3 ended: cancelled");
    assert_eq!(left(), [1, 5]);
    instance.tutti(&["cancel", "2-4"]).expect(1).says("no job that has not ended from 2 to 4");
    instance.tutti(&["cancel", "--all", "1"]).expect(2);
    instance.tutti(&["cancel"]).expect(2);
    instance.tutti(&["cancel", "--user", "nobody"]).expect(0).says("0 jobs to end");
    assert_eq!(left(), [1, 5]);
    instance.tutti(&["cancel", "--now", "--all"]).expect(0).says("2 jobs to end");
    instance.tutti(&["wait", "1", "5"]).expect(137);
    assert!(left().is_empty());
}

#[test]
fn who_takes_turns_goes_on_when_the_policy_has_none_and_that_is_said() {
    let instance = Instance::new().up();
    let jobs = [instance.submit_spinner(2), instance.submit_spinner(2)];
    jobs.iter().for_each(|&job| drop(instance.wait_for_state(job, "running")));
    let said = instance.tutti(&["params", "policy=space"]).expect(0).text();
    assert!(said.contains("taking turns as before, until they end: 2 jobs"), "{said}");
    instance.tutti(&["cancel", "--now", "2"]).expect(0);
    instance.tutti(&["wait", "2"]).expect(137);
    let said = instance.tutti(&["params", "policy=space:easy"]).expect(0).text();
    assert!(!said.contains("turns"), "{said}");
    instance.tutti(&["cancel", "--now", "--all"]).expect(0);
}

/// By the freezer and by signals.
const CONTROLS: [&str; 2] = ["control=freeze", "control=signal"];

/// An instance whose jobs are suspended so, and a job of these shell commands that has said `child`
/// and a number.
fn with_child(control: &str, line: &str) -> (Instance, crate::harness::Running, i32) {
    let instance = Instance::new().up();
    instance.tutti(&["params", "--class", "interactive", control]).expect(0);
    let running = instance.start(&["run", "sh", "-c", line]);
    running.wait_for("child ");
    let child = eventually("its number", || {
        running.out().lines().next()?.strip_prefix("child ")?.parse().ok()
    });
    (instance, running, child)
}

#[test]
fn what_a_job_has_stopped_itself_stays_stopped() {
    let line = "sleep $NAP & kill -STOP $!; echo child $!; while :; do sleep 0.02; done";
    for control in CONTROLS {
        let (instance, running, child) = with_child(control, line);
        let is_stopped = || status_of(child, "State").unwrap_or_default().starts_with('T');
        let root: i32 = status_of(child, "PPid").unwrap().parse().unwrap();
        for target in ["1".to_owned(), format!("1.0/{root}"), "1.0".to_owned(), "1".to_owned()] {
            instance.tutti(&["suspend", &target]).expect(0);
            if target == "1" {
                instance.wait_for_state(1, "suspended");
            }
            instance.tutti(&["resume", &target]).expect(0);
            instance.wait_for_state(1, "running");
            eventually("the root", || {
                (!status_of(root, "State").unwrap_or_default().starts_with('T')).then_some(())
            });
            assert!(is_stopped(), "{control}: {target} was resumed, and {child} goes on");
        }
        instance.tutti(&["cancel", "--now", "1"]).expect(0);
        running.wait().expect(137);
    }
}

#[test]
fn what_a_user_stops_out_of_turn_stays_stopped_until_the_user_continues_it() {
    // One that makes no processes: a shell that waits for the start of one is in state D.
    let line = "sleep $NAP & echo child $!; while :; do sleep 0.02; done";
    for control in CONTROLS {
        let (instance, running, child) = with_child(control, line);
        let state = || status_of(child, "State").unwrap_or_default();
        for is_part in [false, true] {
            let part = format!("1.0/{child}");
            let part = if is_part { ["--all", &part].to_vec() } else { ["1"].to_vec() };
            let signal = |name: &str| instance.tutti(&[&["signal", name], &part[..]].concat());
            instance.tutti(&["suspend", "1"]).expect(0);
            instance.wait_for_state(1, "suspended");
            signal("STOP").expect(0);
            instance.tutti(&["resume", "1"]).expect(0);
            instance.wait_for_state(1, "running");
            eventually("it is stopped", || state().starts_with('T').then_some(()));
            // Through another turn, too.
            for _ in 0..2 {
                instance.tutti(&["suspend", "1"]).expect(0);
                instance.wait_for_state(1, "suspended");
                instance.tutti(&["resume", "1"]).expect(0);
                instance.wait_for_state(1, "running");
            }
            let beside = instance.tutti(&["run", "echo", "done"]).expect(0).text();
            assert!(state().starts_with('T'), "{control}: it goes on, {beside}");
            signal("CONT").expect(0);
            eventually("it goes on", || (!state().starts_with('T')).then_some(()));
        }
        instance.tutti(&["cancel", "--now", "1"]).expect(0);
        running.wait().expect(137);
    }
}

#[test]
fn a_stopped_job_that_is_to_end_acts_on_the_signal() {
    let line = "trap 'echo cleaned; exit 0' TERM; echo child $$; while :; do sleep 0.02; done";
    for control in CONTROLS {
        let ways: [&dyn Fn(i32) -> Vec<String>; 4] = [
            &|_| ["signal", "STOP", "1"].map(str::to_owned).into(),
            &|_| ["suspend", "1.0"].map(str::to_owned).into(),
            &|root| vec!["suspend".to_owned(), format!("1.0/{root}")],
            &|_| ["suspend", "1"].map(str::to_owned).into(),
        ];
        for way in ways {
            let (instance, running, root) = with_child(control, line);
            let order = way(root);
            let order: Vec<&str> = order.iter().map(String::as_str).collect();
            instance.tutti(&order).expect(0);
            instance.tutti(&["cancel", "1"]).expect(0);
            let out = running.wait().text();
            assert!(out.contains("cleaned"), "{control}, {order:?}: {out}");
        }
    }
}
