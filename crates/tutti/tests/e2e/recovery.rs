//! What goes on, and what ends in good order, when a part is killed or stands still.

use crate::harness::{Instance, NOBODY, Running, eventually, player, status_of, within};
use crate::sim::slices_of;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tutti_core::{Action, Core, Event};
use tutti_journal::Journal;
use tutti_types::{ClusterTime, Params, default_classes};

pub(crate) fn send(pid: i32, signal: Signal) {
    kill(Pid::from_raw(pid), signal).unwrap();
}

/// Kills a daemon and waits for the next.
pub(crate) fn kill_daemon(instance: &Instance, role: &str) {
    let old = instance.daemon(role);
    send(old, Signal::SIGKILL);
    eventually(&format!("another {role}"), || instance.daemon_now(role).filter(|&new| new != old));
}

#[test]
fn jobs_take_turns_and_end_right_though_the_agent_is_killed() {
    let instance = Instance::alone().up();
    instance.tutti(&["params", "quantum=20ms"]).expect(0);
    let player = player().display().to_string();
    let line =
        format!("while [ ! -e stop ]; do :; done; {player} lines 3000; exit $((TUTTI_RANK + 4))");
    let jobs: Vec<_> =
        (0..2).map(|_| instance.start(&["run", "-n", "2", "sh", "-c", &line])).collect();
    eventually("two rows", || instance.jobs().iter().any(|job| job["rows"] == 2).then_some(()));
    for _ in 0..3 {
        kill_daemon(&instance, "agent");
        // The new one switches.
        within(Duration::from_secs(20), "switches of the new agent", || {
            let done = instance.tutti(&["switches", "--json"]);
            (done.code == 0 && done.text().matches("due_ns").count() > 3).then_some(())
        });
    }
    std::fs::write(instance.work.join("stop"), "").unwrap();
    for job in jobs {
        let done = job.wait().expect(5);
        assert_eq!(done.text().lines().count(), 6000, "output is lost");
    }
    instance.tutti(&["run", "-n", "2", "true"]).expect(0);
}

#[test]
fn a_job_that_ends_while_there_is_no_agent_is_reported_by_the_next() {
    let instance = Instance::new().up();
    for round in 0..3 {
        let line = "echo up; cat; exit 6";
        let running = instance.start_typing(&["run", "-n", "2", "-i", "all", "sh", "-c", line]);
        running.wait_for("up\nup\n");
        send(instance.daemon("agent"), Signal::SIGKILL);
        let done = running.wait().expect(6);
        assert_eq!(done.text(), "up\nup\n", "round {round}");
    }
}

#[test]
fn a_job_that_is_launched_while_there_is_no_agent_runs_when_there_is_one() {
    let instance = Instance::new().up();
    for _ in 0..5 {
        send(instance.daemon("agent"), Signal::SIGKILL);
        let done = instance.tutti(&["run", "-n", "2", "echo", "there"]).expect(0);
        assert_eq!(done.text(), "there\nthere\n");
    }
}

#[test]
fn jobs_and_their_front_ends_outlive_the_controller() {
    let instance = Instance::new().up();
    instance.tutti(&["params", "quantum=20ms", "rows=3"]).expect(0);
    instance.tutti(&["params", "--class", "nightly", "share=7%"]).expect(0);
    let line = "echo up; cat; exit 6";
    let front = instance.start_typing(&["run", "-n", "2", "-i", "all", "sh", "-c", line]);
    front.wait_for("up\nup\n");
    let running = instance.submit(&["-n", "2", "-o", "/dev/null", "sh", "-c", "sleep $NAP"]);
    instance.wait_for_state(running, "running");
    let third = instance.submit(&["-n", "2", "-o", "/dev/null", "sh", "-c", "sleep $NAP"]);
    let queued = instance.submit(&["-n", "2", "-o", "queued-%j", "sh", "-c", "pwd; exit 9"]);
    instance.wait_for_state(queued, "queued");
    let waiting = instance.start(&["wait", &queued.to_string()]);
    let nappers =
        eventually("all of them", || Some(instance.nappers()).filter(|nappers| nappers.len() == 4));
    for _ in 0..3 {
        kill_daemon(&instance, "controller");
        within(Duration::from_secs(20), "the same jobs", || {
            let states: Vec<(u64, String)> = instance
                .jobs()
                .iter()
                .map(|job| (job["job"].as_u64().unwrap(), job["state"].as_str().unwrap().into()))
                .collect();
            let expected =
                [(1, "running"), (running, "running"), (third, "running"), (queued, "queued")];
            states.iter().map(|(job, state)| (*job, state.as_str())).eq(expected).then_some(())
        });
    }
    assert_eq!(instance.nappers(), nappers, "a task was ended or started again");
    let params = instance.tutti(&["params"]).expect(0).text();
    assert!(params.contains("20ms"), "{params}");
    let class = instance.tutti(&["params", "--class", "nightly"]).expect(0).text();
    assert!(class.contains("7%"), "{class}");
    // The front end gets its output and exit code, the one in line its turn.
    let done = front.wait().expect(6);
    assert_eq!(done.text(), "up\nup\n");
    waiting.wait().expect(9);
    let history = instance.tutti(&["history", &queued.to_string()]).expect(0).text();
    kill_daemon(&instance, "controller");
    eventually("the history", || {
        let again = instance.tutti(&["history", &queued.to_string()]);
        (again.code == 0).then(|| assert_eq!(again.text().lines().nth(1), history.lines().nth(1)))
    });
    for job in [running, third] {
        instance.tutti(&["cancel", "--now", &job.to_string()]).expect(0);
        instance.tutti(&["wait", &job.to_string()]).expect(137);
    }
    instance.expect_no_nappers();
}

#[test]
fn each_job_that_was_accepted_runs_once_however_often_the_controller_is_killed() {
    let instance = Instance::new().up();
    let line = "echo >> ran-$TUTTI_JOB.$TUTTI_RANK; sleep 0.05; exit 4";
    let mut accepted = Vec::new();
    for _ in 0..3 {
        // Some come before it, some meet it and are told that it went away, one comes to the next.
        let submitting: Vec<_> = (0..8)
            .map(|number| {
                if number == 4 {
                    send(instance.daemon("controller"), Signal::SIGKILL);
                }
                let submit =
                    ["submit", "--parsable", "-n", "2", "-o", "/dev/null", "sh", "-c", line];
                instance.start(&submit)
            })
            .collect();
        for submit in submitting {
            let done = submit.wait();
            if done.code == 0 {
                accepted.push(done.text().trim().to_owned());
            }
        }
        eventually("the next controller", || instance.daemon_now("controller"));
        accepted
            .push(instance.submit(&["-n", "2", "-o", "/dev/null", "sh", "-c", line]).to_string());
    }
    for job in &accepted {
        instance.tutti(&["wait", job]).expect(4);
        for rank in 0..2 {
            let ran = std::fs::read_to_string(instance.work.join(format!("ran-{job}.{rank}")));
            assert_eq!(ran.unwrap(), "\n", "rank {rank} of job {job}");
        }
    }
}

#[test]
fn a_journal_taken_under_load_replays_as_it_was() {
    let instance = Instance::new().up();
    // So many that states are compared, too: one is written every thousand entries.
    let jobs: Vec<u64> = (0..280)
        .map(|number| {
            if number == 140 {
                kill_daemon(&instance, "controller");
            }
            instance.submit(&["-n", "2", "-o", "/dev/null", "true"])
        })
        .collect();
    instance.tutti(&["params", "quantum=30ms"]).expect(0);
    let jobs: Vec<String> = jobs.iter().map(u64::to_string).collect();
    let wait = [&["wait"], &jobs.iter().map(String::as_str).collect::<Vec<_>>()[..]].concat();
    instance.tutti(&wait).expect(0);
    let report = instance.tutti(&["replay", "--json"]).expect(0).json();
    assert!(report["agrees"] == true && report["states_compared"].as_u64() > Some(0), "{report}");
    let copy = instance.work.join("copy.db");
    let list = instance.tutti(&["replay", "--until", "20", "--list"]).expect(0).text();
    assert!(list.contains("20 entries from 1 on") && list.contains("\n20 at "), "{list}");
    assert!(!list.contains("\n21 at "), "{list}");
    for said in [": request 1: user 0, production, 2 tasks", "job 1 starts; control=freeze"] {
        assert!(list.contains(said), "{said}: {list}");
    }
    for (content, why) in
        [("", "too short"), ("somebody's thesis, in a file", "begins with something else")]
    {
        std::fs::write(&copy, content).unwrap();
        let refused = instance.tutti(&["replay", "copy.db"]).expect(1);
        refused.says("copy.db is no journal of Tutti's").says(why).says("T002");
    }
    instance.tutti(&["replay", "nowhere"]).expect(1).says("there is no such file");
    instance.tutti(&["replay", "/"]).expect(1).says("it is a directory");
}

#[test]
fn each_start_of_the_systems_instance_has_a_log_of_its_own() {
    let instance = Instance::of_the_system();
    let log = |name: &str| fs::read_to_string(instance.dir.join(name)).unwrap_or_default();
    for _ in 0..5 {
        instance.tutti(&["up"]).expect(0);
        kill_daemon(&instance, "controller");
        assert_eq!(log("log").matches("[T071]").count(), 1, "of this start alone: {}", log("log"));
        instance.tutti(&["down"]).expect(0);
    }
    let kept = ["log", "log.1", "log.2", "log.3"].map(log);
    assert!(kept.iter().all(|text| text.contains("starting it again")), "{kept:?}");
    assert_eq!(log("log.4"), "", "not for ever");
}

#[test]
fn a_journal_of_a_release_that_decided_otherwise_is_told_by_its_replay() {
    let instance = Instance::new();
    let path = instance.work.join("other.db");
    let mut core = Core::new(Params::default(), default_classes());
    let (mut journal, _) = Journal::open(&path, || core.clone()).unwrap();
    for (at, actions) in [(1, vec![]), (2, vec![Action::WakeAt { at: ClusterTime(3) }])] {
        core.apply(ClusterTime(at), &Event::Tick, &mut Vec::new());
        journal.note(ClusterTime(at), &Event::Tick, &actions, &core);
    }
    journal.store(&core);
    let said = instance.tutti(&["replay", "other.db"]).expect(1).text();
    assert!(said.contains("differs: the actions at entry 2"), "{said}");
    let report = instance.tutti(&["replay", "--json", "other.db"]).expect(1).json();
    assert!(report["agrees"] == false && report["differs_at"] == 2, "{report}");
    instance.tutti(&["replay", "--until", "1", "other.db"]).expect(0);
}

/// As the controller decided, one job after the other; with turns, beside each other.
fn the_timeline_of_a_replay_has_its_jobs(instance: &Instance, jobs: &[u64]) {
    let file = instance.work.join("replay.json").display().to_string();
    let turns = |words: &[&str]| {
        instance.tutti(&[&["replay", "--timeline", &file], words].concat()).expect(0);
        let (slices, nodes) = slices_of(&file);
        assert_eq!(nodes.len(), 1, "{nodes:?}");
        let on_first = slices.into_iter().filter(|it| it.1 == 0 && jobs.contains(&it.2));
        on_first.map(|it| (it.2, it.5)).collect::<Vec<_>>()
    };
    let each = jobs.iter().map(|job| (*job, "ended".to_owned())).collect::<Vec<_>>();
    assert_eq!(turns(&[]), each);
    let otherwise = turns(&["--what-if", "policy=gang", "quantum=50ms"]);
    assert!(otherwise.len() > 2 * jobs.len(), "{otherwise:?}");
}

#[test]
fn a_replay_says_how_jobs_would_have_fared_with_other_parameters() {
    let instance = Instance::new().up();
    instance.tutti(&["params", "policy=space:fcfs"]).expect(0);
    let all = std::thread::available_parallelism().unwrap().to_string();
    let jobs: Vec<u64> =
        (0..3).map(|_| instance.submit(&["-n", &all, "-o", "/dev/null", "sleep", "0.3"])).collect();
    let endless = instance.submit_spinner(1);
    instance.tutti(&["wait", &jobs[2].to_string()]).expect(0);
    instance.wait_for_state(endless, "running");
    let never = instance.submit(&["-n", &all, "-o", "/dev/null", "true"]);
    std::thread::sleep(Duration::from_millis(300));
    instance.tutti(&["cancel", "--now", &never.to_string()]).expect(0);
    instance.tutti(&["cancel", "--now", &endless.to_string()]).expect(0);
    instance.tutti(&["wait", &endless.to_string()]).expect(137);
    the_timeline_of_a_replay_has_its_jobs(&instance, &jobs);
    let what_if = |settings: &[&str]| {
        let words = [&["replay", "--json", "--what-if"], settings].concat();
        instance.tutti(&words).expect(0).json()
    };
    let times = |report: &Value, job: usize, world: &str, what: &str| {
        report["jobs"][job][world][what].as_u64().unwrap()
    };
    // With the same parameters all is as it was, but for how fast nodes do what they are told.
    let same = what_if(&["policy=space:fcfs"]);
    assert_eq!(same["compared"], 5, "{same}");
    for job in 0..5 {
        for what in ["wait_ms", "response_ms", "end_ms"] {
            let (was, would) =
                (times(&same, job, "was", what), times(&same, job, "would_be", what));
            assert!(was.abs_diff(would) <= was / 20 + 20, "{what} of job {job}: {same}");
        }
    }
    // A job that never began has waited all the same.
    let wait = times(&same, 4, "was", "wait_ms");
    assert!(wait >= 300 && wait == times(&same, 4, "was", "response_ms"), "{same}");
    // In turns none waits, and each gets what it had.
    let turns = what_if(&["policy=gang", "quantum=10ms"]);
    for job in 0..3 {
        assert_eq!(times(&turns, job, "would_be", "wait_ms"), 0, "{turns}");
        let service = |world| times(&turns, job, world, "service_ms");
        assert!(service("was").abs_diff(service("would_be")) <= 2, "{turns}");
        assert!(times(&turns, job, "would_be", "suspended_ms") > 300, "{turns}");
    }
    // A cancelled job is cancelled at the same moment.
    let ended = |world| times(&turns, 3, world, "end_ms");
    assert!(ended("was").abs_diff(ended("would_be")) < 50, "{turns}");
    instance.tutti(&["replay", "--what-if", "polcy=gang"]).expect(1).says("did you mean policy?");
}

#[test]
fn a_replay_takes_other_queues_classes_and_weights() {
    let instance = Instance::new().up();
    instance.tutti(&["params", "policy=space:easy"]).expect(0);
    instance.tutti(&["queue", "short", "jobs=1"]).expect(0);
    let submit = || instance.submit(&["-q", "short", "-o", "/dev/null", "sleep", "0.4"]);
    let (first, second) = (submit(), submit());
    for job in [first, second] {
        instance.tutti(&["wait", &job.to_string()]).expect(0);
    }
    let what_if = |settings: &[&str]| {
        let words = [&["replay", "--json"], settings].concat();
        instance.tutti(&words).expect(0).json()
    };
    let waits = |report: &Value, world: &str| report["jobs"][1][world]["wait_ms"].as_u64().unwrap();
    // A lower limit, a weight and a resource change nothing for the second; two at once do.
    let words =
        ["weight.7=3", "resource.licence=2", "class.production.priority=3", "queue.short.jobs=1"];
    let same = what_if(&[&["--what-if"], &words[..]].concat());
    assert!(waits(&same, "was") >= 300 && waits(&same, "would_be") >= 300, "{same}");
    let both = what_if(&["--what-if", "queue.short.jobs=2"]);
    assert!(waits(&both, "was") >= 300 && waits(&both, "would_be") == 0, "{both}");
    let site = instance.work.join("site.toml");
    std::fs::write(&site, "[queue.short]\nuser_jobs = 3\n").unwrap();
    let site = site.display().to_string();
    assert_eq!(waits(&what_if(&["--site", &site]), "would_be"), 0);
    for (word, says) in [
        ("queue.shrt.jobs=2", "the journal has no queue shrt; it has short"),
        ("class.fast.priority=2", "the journal has no class fast"),
        ("queue.short.jobs=many", "jobs is a number"),
        ("weight.7=0", "from 1 to 1000"),
        ("rows", "write NAME=VALUE"),
    ] {
        instance.tutti(&["replay", "--what-if", word]).expect(1).says(says);
    }
}

#[test]
fn a_journal_that_is_damaged_or_can_not_be_written_is_said_to_be() {
    let instance = Instance::new();
    std::fs::create_dir(&instance.dir).unwrap();
    std::fs::set_permissions(&instance.dir, std::os::unix::fs::PermissionsExt::from_mode(0o700))
        .unwrap();
    let journal = instance.dir.join("journal.db");
    std::fs::write(&journal, "somebody's thesis".repeat(400)).unwrap();
    instance.tutti(&["up"]).expect(1).says("journal.db is damaged").says("move the file away");
    assert!(std::fs::read_to_string(&journal).unwrap().starts_with("somebody's thesis"));
    std::fs::remove_file(&journal).unwrap();
    instance.tutti(&["run", "echo", "works"]).expect(0);
}

/// Makes one byte in the middle of a file another, or what it was.
fn flip(path: &std::path::Path, at: u64) {
    use std::os::unix::fs::FileExt;
    let file = fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 0x40], at).unwrap();
}

#[test]
fn a_damaged_log_of_the_journal_stops_the_controller_and_no_job() {
    let instance = Instance::new().up();
    instance.tutti(&["params", "rows=1"]).expect(0);
    let running = instance.submit(&["-n", "2", "-o", "/dev/null", "sh", "-c", "exec sleep $NAP"]);
    instance.wait_for_state(running, "running");
    for _ in 0..5 {
        instance.submit(&["-n", "2", "-o", "/dev/null", "true"]);
    }
    let jobs = instance.jobs();
    let nappers = eventually("both", || Some(instance.nappers()).filter(|found| found.len() == 2));
    let log = instance.dir.join("journal.db-wal");
    for at in [20, fs::metadata(&log).unwrap().len() / 2] {
        let said = instance.log().len();
        flip(&log, at);
        send(instance.daemon("controller"), Signal::SIGKILL);
        within(Duration::from_secs(20), "a word on it", || {
            instance.log()[said..].contains("[T051]").then_some(())
        });
        let replayed = instance.tutti(&["replay"]).expect(1);
        let told = replayed.text() + &replayed.err;
        assert!(told.contains("damaged: "), "{told}");
        assert_eq!(instance.nappers(), nappers);
        // As it was, it is as good as ever.
        flip(&log, at);
        within(Duration::from_secs(30), "the same jobs", || {
            let done = instance.tutti(&["ps", "--json"]);
            (done.code == 0 && instance.jobs().len() == jobs.len()).then_some(())
        });
        assert_eq!(instance.nappers(), nappers);
    }
    instance.tutti(&["cancel", "--all"]).expect(0);
    let next = instance.submit(&["-o", "/dev/null", "true"]);
    assert_eq!(next, running + 6);
}

#[test]
fn an_older_copy_of_the_journal_is_refused_and_numbers_go_on_after_one_that_is_gone() {
    let instance = Instance::new().up();
    let names = ["journal.db", "journal.db-wal", "journal.db-shm"];
    let files = |suffix: &str| names.map(|name| instance.dir.join(format!("{name}{suffix}")));
    instance.submit(&["-o", "/dev/null", "true"]);
    for (file, copy) in files("").iter().zip(files(".old")) {
        fs::copy(file, copy).unwrap();
    }
    let [.., last] = [(); 3].map(|()| instance.submit(&["-o", "/dev/null", "true"]));
    instance.tutti(&["wait", &last.to_string()]).expect(0);
    for (file, copy) in files("").iter().zip(files(".old")) {
        fs::rename(copy, file).unwrap();
    }
    send(instance.daemon("controller"), Signal::SIGKILL);
    within(Duration::from_secs(20), "a word on it", || {
        instance.log().contains("an older copy").then_some(())
    });
    files("").iter().for_each(|file| fs::remove_file(file).unwrap());
    let next = within(Duration::from_secs(30), "a job", || {
        let done = instance.tutti(&["submit", "--parsable", "-o", "/dev/null", "true"]);
        done.text().trim().parse::<u64>().ok()
    });
    assert!(next > last + 900, "{next}");
    assert!(instance.log().contains("was made anew"), "{}", instance.log());
}

#[test]
fn a_front_end_that_does_not_come_back_takes_its_job_along() {
    let instance = Instance::new().up();
    // It is waited for as long as a node may be out of reach.
    instance.tutti(&["params", "lease=2s"]).expect(0);
    let front = instance.start(&["run", "-n", "2", "sh", "-c", "echo up; sleep $NAP"]);
    front.wait_for("up\nup\n");
    let controller = instance.daemon("controller");
    send(controller, Signal::SIGSTOP);
    send(front.pid(), Signal::SIGKILL);
    send(controller, Signal::SIGKILL);
    within(Duration::from_secs(60), "the end of the job", || {
        instance.nappers().is_empty().then_some(())
    });
}

#[test]
fn a_run_that_meets_a_controller_just_killed_asks_the_next_one() {
    let instance = Instance::new().up();
    // The fourth failure in a row would be waited for.
    for _ in 0..3 {
        send(instance.daemon("controller"), Signal::SIGKILL);
        let done = instance.tutti(&["run", "echo", "there"]).expect(0);
        assert_eq!(done.text(), "there\n");
    }
    assert!(instance.daemon_now("keeper").is_some());
}

#[test]
fn jobs_of_a_killed_keeper_are_reported_lost_and_a_new_run_works() {
    let instance = Instance::new().up();
    let front = instance.start(&["run", "-n", "2", "sh", "-c", "echo up; sleep $NAP"]);
    front.wait_for("up\nup\n");
    let other = instance.submit(&["-n", "2", "-o", "/dev/null", "sh", "-c", "sleep $NAP"]);
    instance.wait_for_state(other, "running");
    kill_daemon(&instance, "keeper");
    front.wait().expect(121).says("keeper");
    instance.tutti(&["wait", &other.to_string()]).expect(121);
    instance.expect_no_nappers();
    let done = instance.tutti(&["run", "-n", "2", "echo", "again"]).expect(0);
    assert_eq!(done.text(), "again\nagain\n");
}

#[test]
fn switches_go_on_while_the_controller_stands_still() {
    let instance = Instance::alone().up();
    instance.tutti(&["params", "quantum=20ms"]).expect(0);
    let jobs = [instance.submit_spinner(2), instance.submit_spinner(2)];
    for job in jobs {
        instance.wait_for_state(job, "running");
    }
    let controller = instance.daemon("controller");
    let last = eventually("a switch", || instance.switches().last().map(|s| s.resumed));
    send(controller, Signal::SIGSTOP);
    let mut looks = 0;
    within(Duration::from_secs(10), "two seconds", || {
        looks += 1;
        (looks > 600).then_some(())
    });
    send(controller, Signal::SIGCONT);
    let switches = instance.switches();
    let meanwhile = switches.iter().filter(|s| s.due > last && s.due < last + 1_800_000_000);
    let dues: Vec<u64> = meanwhile.map(|s| s.due).collect();
    assert!(dues.len() > 10, "{} switches in 1.8 s of turns of 20 ms", dues.len());
    let longest = dues.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap();
    assert!(longest < 300_000_000, "no switch for {longest} ns");
    for job in jobs {
        instance.tutti(&["cancel", "--now", &job.to_string()]).expect(0);
    }
}

#[test]
fn an_instance_whose_every_daemon_is_killed_at_once_recovers() {
    let instance = Instance::new().up();
    instance.submit(&["-n", "2", "-o", "/dev/null", "sh", "-c", "sleep $NAP"]);
    eventually("a job", || (instance.nappers().len() >= 2).then_some(()));
    let daemons: Vec<i32> = ["agent", "keeper", "controller"].map(|r| instance.daemon(r)).to_vec();
    for daemon in daemons {
        send(daemon, Signal::SIGKILL);
    }
    within(Duration::from_secs(20), "the end of the job", || {
        instance.nappers().is_empty().then_some(())
    });
    within(Duration::from_secs(20), "a run that works", || {
        (instance.tutti(&["run", "-n", "2", "true"]).code == 0).then_some(())
    });
}

#[test]
fn an_instance_that_lost_its_supervisor_is_taken_over_or_refused_with_the_reason() {
    let instance = Instance::new().up();
    let keeper = instance.daemon("keeper");
    let supervisor = crate::harness::status_of(keeper, "PPid").unwrap().parse().unwrap();
    send(supervisor, Signal::SIGKILL);
    let done = instance.tutti(&["run", "echo", "works"]);
    assert_eq!((done.code, done.text().as_str()), (0, "works\n"), "{}", done.err);
    instance.tutti(&["down"]).expect(0);
    within(Duration::from_secs(10), "nothing left", || {
        instance.leftovers().is_empty().then_some(())
    });
}

/// Kills the supervisor, and the others that are named at the same time; gives the keeper's number.
fn orphan(instance: &Instance, others: &[&str]) -> i32 {
    let keeper = instance.daemon("keeper");
    let supervisor: i32 = status_of(keeper, "PPid").unwrap().parse().unwrap();
    let others: Vec<i32> = others.iter().map(|role| instance.daemon(role)).collect();
    send(supervisor, Signal::SIGSTOP);
    others.iter().for_each(|&pid| send(pid, Signal::SIGKILL));
    send(supervisor, Signal::SIGKILL);
    eventually("the supervisor's end", || {
        (status_of(keeper, "PPid")? != supervisor.to_string()).then_some(())
    });
    // One that is killed takes connections until it has ended.
    eventually("the end of the others", || {
        // Of a process that is a zombie other threads may still be there, and with them its
        // sockets.
        let threads = |pid| fs::read_dir(format!("/proc/{pid}/task")).map_or(0, Iterator::count);
        let is_zombie = |pid| status_of(pid, "State").is_none_or(|state| state.starts_with('Z'));
        let has_ended = |pid| is_zombie(pid) && threads(pid) <= 1;
        others.iter().all(|&pid| has_ended(pid)).then_some(())
    });
    keeper
}

#[test]
fn a_supervisor_takes_in_what_one_before_it_has_left() {
    for killed in [&[][..], &["controller"], &["agent"], &["controller", "agent"]] {
        let instance = Instance::new().up();
        let line = "echo up; while [ ! -e go ]; do sleep 0.01; done; echo done; exit 4";
        let running = instance.start(&["run", "-n", "2", "sh", "-c", line]);
        running.wait_for("up\nup\n");
        let keeper = orphan(&instance, killed);
        if killed == ["controller", "agent"] {
            instance.tutti(&["ps"]).expect(1).says("its jobs run").says("[T010]");
            let left = instance.tutti(&["doctor", "--leftovers"]).text();
            assert!(!left.contains(instance.dir.to_str().unwrap()), "{left}");
        }
        if killed.is_empty() {
            let said = instance.tutti(&["doctor"]).text();
            assert!(said.contains("the supervisor has ended"), "{said}");
        }
        instance.tutti(&["up"]).expect(0);
        assert_eq!(instance.daemon("keeper"), keeper, "{killed:?}");
        // A daemon that ends now is started again: it is watched.
        for role in ["controller", "agent"] {
            let before = instance.daemon(role);
            send(before, Signal::SIGKILL);
            eventually("another", || instance.daemon_now(role).filter(|&now| now != before));
        }
        fs::write(instance.work.join("go"), "").unwrap();
        assert_eq!(running.wait().expect(4).sorted(), ["done", "done", "up", "up"], "{killed:?}");
        send(keeper, Signal::SIGKILL);
        within(Duration::from_secs(20), "a run that works", || {
            (instance.tutti(&["run", "-n", "2", "true"]).code == 0).then_some(())
        });
        assert!(!instance.log().contains("runs already"), "{}", instance.log());
        instance.tutti(&["down"]).expect(0);
        eventually("nothing left", || instance.leftovers().is_empty().then_some(()));
    }
}

#[test]
fn an_instance_that_lost_supervisor_and_controller_is_ended_whole() {
    let instance = Instance::new().up();
    let job = instance.submit(&["-n", "2", "-o", "/dev/null", "sh", "-c", "exec sleep $NAP"]);
    instance.wait_for_state(job, "running");
    eventually("tasks", || (instance.nappers().len() == 2).then_some(()));
    orphan(&instance, &["controller"]);
    instance.tutti(&["down"]).expect(0);
    instance.expect_no_nappers();
    eventually("nothing left", || instance.leftovers().is_empty().then_some(()));
}

#[test]
fn what_is_left_of_an_instance_without_supervisor_and_agent_ends() {
    what_is_left_ends_without("agent", ["controller", "keeper"]);
}

#[test]
fn what_is_left_of_an_instance_without_supervisor_and_keeper_ends() {
    what_is_left_ends_without("keeper", ["controller", "agent"]);
}

fn what_is_left_ends_without(killed: &str, left: [&str; 2]) {
    let instance = Instance::new().up();
    let daemons = left.map(|role| instance.daemon(role));
    let running = instance.start(&["run", "-n", "2", "sh", "-c", "echo up; exec sleep $NAP"]);
    running.wait_for("up\nup\n");
    let supervisor = status_of(daemons[0], "PPid").unwrap().parse().unwrap();
    send(supervisor, Signal::SIGKILL);
    eventually("the supervisor's end", || {
        (status_of(daemons[0], "PPid")? != supervisor.to_string()).then_some(())
    });
    send(instance.daemon(killed), Signal::SIGKILL);
    let waiting = instance.start(&["run", "true"]);
    running.wait().expect(121);
    let code = waiting.wait().code;
    assert!([121, 122, 120, 125].contains(&code), "{code}");
    eventually("the end of all that is left", || {
        let lives = |pid: &i32| status_of(*pid, "State").is_some_and(|s| !s.starts_with('Z'));
        (!daemons.iter().any(lives) && instance.nappers().is_empty()).then_some(())
    });
    // And another one is started by the first that needs it.
    instance.tutti(&["run", "echo", "new"]).expect(0).says("started a private instance");
}

#[test]
#[ignore = "takes long: `tests/long e2e` runs it"]
fn an_instance_whose_controller_does_not_end_it_leaves_nothing_either() {
    // One that is killed may be gone before the supervisor asks it.
    let killed = ["while it was to end", "there is no controller to ask"];
    for (fault, said) in [("killed", &killed[..]), ("stopped", &["takes too long"])] {
        let instance = Instance::new().up();
        let nap = ["-o", "/dev/null", "sh", "-c", "touch $TMPDIR/kept; exec sleep $NAP"];
        let job = instance.submit(&nap);
        instance.wait_for_state(job, "running");
        eventually("a task", || (instance.nappers().len() == 1).then_some(()));
        let (keeper, controller) = (instance.daemon("keeper"), instance.daemon("controller"));
        let supervisor: i32 = status_of(keeper, "PPid").unwrap().parse().unwrap();
        let log = fs::File::open(instance.dir.join("log")).unwrap();
        send(controller, Signal::SIGSTOP);
        send(supervisor, Signal::SIGTERM);
        if fault == "killed" {
            send(controller, Signal::SIGKILL);
        }
        within(Duration::from_secs(60), "the supervisor's end", || {
            let state = status_of(supervisor, "State");
            state.is_none_or(|state| state.starts_with('Z')).then_some(())
        });
        let log = std::io::read_to_string(log).unwrap();
        assert!(said.iter().any(|said| log.contains(said)), "{fault}: {log}");
        // What the job had in its directory for temporary files is gone, too: the end of the
        // instance looks for it.
        assert_eq!(instance.leftovers(), [""; 0], "{fault}: {log}");
        assert_eq!(instance.told_leftovers(), [""; 0], "{fault}: {log}");
    }
}

/// A number that is different each time it is asked for, and the same in each run.
fn scattered(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
    *state >> 33
}

#[test]
fn a_submit_that_meets_the_controllers_end_is_accepted_once() {
    const THREADS: usize = 4;
    const EACH: usize = 50;
    let instance = Instance::new().up();
    let accepted = AtomicUsize::new(0);
    let hand_in = |thread: usize| -> Vec<String> {
        let numbered = (0..EACH).map(|number| {
            let name = format!("job{thread}-{number}");
            let line = format!("echo >> ran-{name}");
            let submit =
                ["submit", "--parsable", "-J", &name, "-o", "/dev/null", "sh", "-c", &line];
            let done = instance.tutti(&submit).expect(0);
            accepted.fetch_add(1, Ordering::SeqCst);
            done.text().trim().to_owned()
        });
        numbered.collect()
    };
    let mut kills = 0;
    let mut jobs = std::thread::scope(|scope| {
        let threads: Vec<_> =
            (0..THREADS).map(|thread| scope.spawn(move || hand_in(thread))).collect();
        let (mut state, mut next) = (7, 3);
        while threads.iter().any(|thread| !thread.is_finished()) {
            if accepted.load(Ordering::SeqCst) < next {
                // Not by giving way again and again: Linux 6.18 may forget others then for as long
                // as that lasts.
                std::thread::sleep(Duration::from_micros(200));
                continue;
            }
            // Some instants lie within the next submits, whatever those are at.
            let until = Instant::now() + Duration::from_micros(scattered(&mut state) % 8_000);
            while Instant::now() < until {
                std::hint::spin_loop();
            }
            if let Some(controller) = instance.daemon_now("controller") {
                send(controller, Signal::SIGKILL);
                kills += 1;
            }
            // The supervisor lets those wait that fail one right after the other.
            next = accepted.load(Ordering::SeqCst) + 30;
        }
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect::<Vec<String>>()
    });
    assert!(kills >= 5, "only {kills} controllers were killed");
    let last = jobs.last().unwrap().clone();
    for job in &jobs {
        within(Duration::from_secs(60), "its end", || {
            (instance.tutti(&["wait", job]).code == 0).then_some(())
        });
    }
    jobs.sort();
    jobs.dedup();
    assert_eq!(jobs.len(), THREADS * EACH, "two submits were told the same job; the last {last}");
    let known = instance.tutti(&["history", "--json"]).expect(0).json();
    assert_eq!(known.as_array().unwrap().len(), THREADS * EACH, "a job was accepted twice");
    for thread in 0..THREADS {
        for number in 0..EACH {
            let ran = instance.work.join(format!("ran-job{thread}-{number}"));
            assert_eq!(std::fs::read_to_string(ran).unwrap(), "\n", "job{thread}-{number}");
        }
    }
}

#[test]
fn what_waits_stays_in_line_when_the_systems_instance_is_taken_down() {
    let instance = Instance::of_the_system().up();
    let all = std::thread::available_parallelism().unwrap().to_string();
    instance.tutti(&["params", "rows=1"]).expect(0);
    let runs = instance.submit(&["-n", &all, "-o", "/dev/null", "sh", "-c", "exec sleep $NAP"]);
    instance.wait_for_state(runs, "running");
    let waits = instance.submit(&["-n", &all, "-o", "/dev/null", "sh", "-c", "exit 7"]);
    let awaited = instance.start(&["run", "-n", &all, "true"]);
    instance.wait_for_state(waits, "queued");
    let done = instance.tutti(&["down"]).expect(0).text();
    assert!(done.contains("1 job queued; `tutti up` goes on"), "{done}");
    awaited.wait().expect(122);
    instance.tutti(&["up"]).expect(0);
    instance.tutti(&["wait", &waits.to_string()]).expect(7);
    let history = instance.tutti(&["history", &runs.to_string()]).expect(0).text();
    assert!(history.contains("shut down"), "{history}");
}

/// The verbs of a user that may not open the lock of the system's instance.
#[test]
fn verbs_of_other_users_wait_for_the_next_controller_of_the_system() {
    let instance = Instance::of_the_system().up();
    let lock = fs::read_to_string(instance.dir.join("lock")).unwrap();
    let supervisor = Pid::from_raw(lock.trim().parse().unwrap());
    let start = |args: &[&str]| {
        let mut command = instance.command_as(Some(NOBODY), args);
        command.current_dir("/");
        Running::start(command)
    };
    let end_controller = || {
        kill(supervisor, Signal::SIGSTOP).unwrap();
        let controller = instance.daemon("controller");
        kill(Pid::from_raw(controller), Signal::SIGKILL).unwrap();
        eventually("it is gone", || status_of(controller, "State")?.starts_with('Z').then_some(()));
    };
    end_controller();
    let asking = [start(&["ps"]), start(&["run", "true"])];
    // Long enough to fail, if that is what they do.
    std::thread::sleep(Duration::from_millis(500));
    kill(supervisor, Signal::SIGCONT).unwrap();
    for verb in asking {
        verb.wait().expect(0);
    }
    // While none is started, they say what is so.
    end_controller();
    let told = start(&["ps"]).wait_within(Duration::from_secs(30)).expect(1);
    told.says("can't begin, and is tried again and again").says("[T010]");
    kill(supervisor, Signal::SIGKILL).unwrap();
    let told = start(&["run", "true"]).wait_within(Duration::from_secs(30));
    told.says("the system's instance in").says("have root start it again").says("[T010]");
    // Root has it start.
    let done = instance.tutti(&["run", "true"]).expect(0);
    done.says("started the system's instance in").says("again");
}

#[test]
fn a_second_instance_on_a_journal_ends_no_job_of_the_first() {
    let instance = Instance::of_the_system().up();
    let job = instance.submit(&["-o", "/dev/null", "sleep", &instance.nap]);
    instance.wait_for_state(job, "running");
    // It does not see the first one's directory, but has the same journal and the same cgroups.
    let up = instance.command(&["up"]);
    let mut words: Vec<_> = vec![up.get_program().to_owned()];
    words.extend(up.get_args().map(ToOwned::to_owned));
    let mut second = std::process::Command::new("unshare");
    second.args(["--mount", "sh", "-c", "mount -t tmpfs none /run && exec \"$@\"", "sh"]);
    second.args(words);
    for (name, value) in up.get_envs() {
        match value {
            Some(value) => second.env(name, value),
            None => second.env_remove(name),
        };
    }
    Running::start(second).wait().expect(1).says("is in use by another controller").says("[T050]");
    assert_eq!(instance.job(job)["state"], "running");
    instance.tutti(&["cancel", "--now", &job.to_string()]).expect(0);
    instance.tutti(&["wait", &job.to_string()]).expect(137);
}

#[test]
fn a_verb_whose_controller_is_killed_before_it_reads_asks_the_next() {
    let instance = Instance::new().up();
    for words in [&["ps"][..], &["nodes", "--json"], &["params", "rows=3"]] {
        let controller = instance.daemon("controller");
        send(controller, Signal::SIGSTOP);
        let verb = instance.start(words);
        // Time to connect and ask; if it takes longer, the verb finds no controller at first.
        std::thread::sleep(Duration::from_millis(300));
        send(controller, Signal::SIGKILL);
        let done = verb.wait().expect(0);
        assert!(!done.err.contains("T011"), "{words:?}: {}", done.err);
    }
    let params = instance.tutti(&["params"]).expect(0).text();
    let rows = params.lines().find(|line| line.starts_with("rows ")).unwrap_or_default();
    assert!(rows.split_whitespace().nth(1) == Some("3"), "{params}");
}

#[test]
fn the_next_instance_says_that_nodes_were_taken_down_with_the_one_before() {
    let instance = Instance::of_the_system().up();
    instance.tutti(&["run", "true"]).expect(0);
    instance.tutti(&["down"]).expect(0);
    instance.tutti(&["up"]).expect(0);
    instance.tutti(&["run", "true"]).expect(0);
    let log = instance.log();
    assert!(log.contains("was taken down") && !log.contains("was lost"), "{log}");
}

#[test]
fn a_controller_that_stands_still_is_named_and_does_not_keep_the_instance_up() {
    let instance = Instance::new().up();
    let job = instance.submit(&["-o", "/dev/null", "sleep", "600"]);
    let controller = instance.daemon("controller");
    send(controller, Signal::SIGSTOP);
    let waits = instance.start(&["ps"]);
    // Both look for what does not answer, and wait for none.
    let says = format!("kill -CONT {controller}");
    let looks = |words: &[&str]| {
        let shown = instance.tutti(&[&["doctor"], words].concat()).expect(1).text();
        shown.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let (whole, cluster) = (looks(&[]), looks(&["--cluster"]));
    assert!(whole.contains(&says), "{whole}");
    assert!(cluster.contains("SILENT") && cluster.contains(&says), "{cluster}");
    // What only waits says so, and has its answer when there is one.
    waits.wait_for_err(&says);
    send(controller, Signal::SIGCONT);
    assert!(waits.wait().expect(0).text().contains("sleep"));
    assert_eq!(instance.job(job)["state"], "running");
    // The end of an instance needs one that answers: another is started.
    send(instance.daemon("controller"), Signal::SIGSTOP);
    instance.tutti(&["down"]).expect(0).says("and is ended; another one starts");
    assert_eq!(instance.daemon_now("controller"), None);
}
