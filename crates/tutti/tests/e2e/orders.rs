//! Orders about jobs in line: hold, release, another class or place.

use crate::harness::{Instance, NOBODY, Running, eventually};
use crate::recovery::kill_daemon;

#[test]
fn a_held_job_begins_when_it_is_released() {
    let instance = Instance::new().up();
    let held = instance.submit(&["--hold", "-o", "/dev/null", "sleep", &instance.nap]);
    let job = instance.job(held);
    assert_eq!(job["state"], "queued");
    assert_eq!(job["reason"], "held; `tutti release` puts it in line");
    // A script may say so, and a later controller knows it.
    instance.script("job.sh", "#!/bin/sh\n#SBATCH -H\ntrue\n");
    let script = instance.submit(&["-o", "/dev/null", "job.sh"]);
    crate::recovery::kill_daemon(&instance, "controller");
    for job in [held, script] {
        assert_eq!(instance.job(job)["state"], "queued");
        instance.tutti(&["release", &job.to_string()]).expect(0);
    }
    instance.wait_for_state(held, "running");
    instance.tutti(&["wait", &script.to_string()]).expect(0);
    let (held, script) = (held.to_string(), script.to_string());
    let refused = instance.tutti(&["hold", &held]).expect(1);
    refused.says(&format!("job {held} has begun")).says("[T080]");
    instance.tutti(&["release", &held]).expect(1).says("is not held").says("[T080]");
    instance.tutti(&["hold", &script]).expect(1).says("has ended").says("[T022]");
    instance.tutti(&["hold", "999"]).expect(1).says("[T021]");
    let both = ["submit", "--hold", "-t", "1m", "-d", "1h", "true"];
    instance.tutti(&both).expect(2).says("--hold");
    instance.tutti(&["cancel", "--now", &held]).expect(0);
    instance.tutti(&["wait", &held]).expect(137);
}

#[test]
fn held_jobs_and_elements_are_cancelled_and_no_others() {
    let instance = Instance::new().up();
    let submit = |words: &[&str]| {
        let nap: &str = &instance.nap;
        instance.submit(&[&["-o", "/dev/null"], words, &["sleep", nap]].concat())
    };
    let (held, queued) = (submit(&["--hold"]), submit(&["--begin", "now+23hours"]));
    let runs = submit(&[]);
    let array = submit(&["--array", "1-3", "--begin", "now+23hours"]);
    instance.tutti(&["hold", &format!("{array}_[2-3]")]).expect(0);
    let done = instance.tutti(&["cancel", "--me", "--state", "held"]).expect(0);
    // The elements have come into line, so they are jobs.
    done.says("3 jobs").says("what is held of 1 array");
    instance.tutti(&["wait", &held.to_string()]).expect(143);
    instance.wait_for_state(runs, "running");
    assert_eq!(instance.job(queued)["state"], "queued");
    let elements = &instance.job(array)["array"]["elements"];
    assert_eq!((&elements["cancelled"], &elements["held"]), (&2.into(), &0.into()), "{elements}");
    instance.tutti(&["cancel", "--all", "--now"]).expect(0);
}

#[test]
fn an_owner_can_hold_and_reclass_own_jobs_and_an_administrator_all() {
    let instance = Instance::of_the_system().up();
    let as_owner = |words: &[&str]| Running::start(instance.command_as(Some(NOBODY), words)).wait();
    let submit = ["submit", "--parsable", "--hold", "-o", "/dev/null", "sleep", &instance.nap];
    let job = as_owner(&submit).expect(0).text().trim().to_owned();
    let number: u64 = job.parse().unwrap();
    as_owner(&["release", &job]).expect(0);
    instance.wait_for_state(number, "running");
    as_owner(&["class", &job, "standby"]).expect(0);
    assert_eq!(instance.job(number)["class"], "standby");
    as_owner(&["class", &job, "nosuch"]).expect(1).says("there is no class nosuch").says("[T034]");
    instance.tutti(&["class", &job, "benchmark"]).expect(0);
    assert_eq!(instance.job(number)["class"], "benchmark");
    // What an administrator holds, only an administrator can release.
    let waits = as_owner(&submit).expect(0).text().trim().to_owned();
    instance.tutti(&["hold", &waits]).expect(0);
    let refused = as_owner(&["release", &waits]).expect(1);
    refused.says("only an administrator can release it").says("[T020]");
    let shown = instance.job(waits.parse().unwrap())["reason"].to_string();
    assert!(shown.contains("held by an administrator"), "{shown}");
    instance.tutti(&["release", &waits]).expect(0);
    instance.wait_for_state(waits.parse().unwrap(), "running");
    // Others may do nothing of it.
    let own = instance.submit(&["--hold", "-o", "/dev/null", "true"]).to_string();
    for words in [&["hold", &own][..], &["release", &own], &["class", &own, "standby"]] {
        as_owner(words).expect(1).says("belongs to").says("[T020]");
    }
    for job in [&job, &waits, &own] {
        instance.tutti(&["cancel", "--now", job]).expect(0);
    }
}

/// A job that takes all processors, and those that wait behind it.
fn line_of(instance: &Instance, waiting: usize) -> (u64, Vec<u64>) {
    let submit = || {
        let rest = ["--exclusive", "-t", "1h", "-o", "/dev/null", "sleep", &instance.nap];
        instance.submit(&rest)
    };
    let runs = submit();
    instance.wait_for_state(runs, "running");
    (runs, (0..waiting).map(|_| submit()).collect())
}

#[test]
fn a_moved_job_starts_next_and_keeps_its_place_over_a_restart() {
    let instance = Instance::new().up();
    instance.tutti(&["params", "policy=space", "discipline=fcfs"]).expect(0);
    let (runs, jobs) = line_of(&instance, 4);
    let number = |place: usize| jobs[place].to_string();
    let places = || jobs.iter().map(|&job| instance.job(job)["position"].as_u64().unwrap());
    instance.tutti(&["move", &number(3), "--before", &number(1)]).expect(0);
    assert_eq!(places().collect::<Vec<_>>(), [1, 3, 4, 2]);
    instance.tutti(&["move", &number(2), "--first"]).expect(0);
    crate::recovery::kill_daemon(&instance, "controller");
    eventually("the node is back", || instance.job(jobs[0])["position"].as_u64());
    assert_eq!(places().collect::<Vec<_>>(), [2, 4, 1, 3]);
    let words = instance.tutti(&["replay", "--list"]).expect(0).text();
    assert!(words.contains(&format!("moves job {} before all others", number(2))), "{words}");
    // What is wrong is said, and changes nothing.
    let own = runs.to_string();
    instance.tutti(&["move", &own, "--first"]).expect(1).says("has begun or ended").says("[T080]");
    let refused = instance.tutti(&["move", &number(0), "--before", &number(0)]).expect(1);
    refused.says("can't stand before itself").says("[T026]");
    instance.tutti(&["move", "999", "--first"]).expect(1).says("[T021]");
    instance.tutti(&["move", &number(0)]).expect(2).says("--first");
    instance.tutti(&["move", &number(0), "--first", "--before", &number(1)]).expect(2);
    assert_eq!(places().collect::<Vec<_>>(), [2, 4, 1, 3]);
    instance.tutti(&["cancel", "--now", &own]).expect(0);
    instance.wait_for_state(jobs[2], "running");
    instance.tutti(&["cancel", "--now", "--all"]).expect(0);
}

#[test]
fn promises_that_a_move_breaks_are_named_to_the_administrator_and_the_owner() {
    let instance = Instance::of_the_system().up();
    let line = ["params", "policy=space", "discipline=conservative", "order=arrival"];
    instance.tutti(&line).expect(0);
    let (runs, jobs) = line_of(&instance, 1);
    let front = ["run", "--exclusive", "-t", "1h", "sleep", &instance.nap];
    let front = Running::start(instance.command_as(Some(NOBODY), &front));
    eventually("the job of the front end waits", || (instance.jobs().len() == 3).then_some(()));
    let promised = instance.jobs()[2]["job"].as_u64().unwrap();
    let last = instance.submit(&["--exclusive", "-t", "1h", "-o", "/dev/null", "true"]);
    let moved = last.to_string();
    // Only an administrator may.
    let as_owner = ["move", &promised.to_string(), "--first"];
    let refused = Running::start(instance.command_as(Some(NOBODY), &as_owner)).wait().expect(1);
    refused.says("only root, or the owner of the instance").says("[T020]");
    let says = |words: &[&str], what: &str| {
        let named = format!("job {promised} of nobody was promised a start within");
        instance.tutti(words).expect(0).says(&named).says(what);
    };
    let before = promised.to_string();
    says(&["move", &moved, "--before", &before, "--dry-run"], "the move would break that, and");
    assert_eq!(instance.job(last)["position"], 3, "nothing was moved");
    says(&["move", &moved, "--before", &before], "the move has broken that, and");
    // One that breaks nothing more names nothing.
    let again = instance.tutti(&["move", &moved, "--before", &before]).expect(0);
    assert_eq!(again.err, "");
    assert_eq!(instance.job(last)["position"], 2);
    let reason = instance.job(promised)["reason"].to_string();
    assert!(
        reason.contains(&format!("fell to job {last}, which an administrator moved")),
        "{reason}"
    );
    let query = ["events", "--job", &before, "-o", "job_promise_broken"];
    let event = instance.tutti(&query).expect(0).json();
    assert_eq!((&event["by"], &event["user"]), (&last.into(), &"nobody".into()));
    instance.tutti(&["cancel", "--now", &runs.to_string(), &jobs[0].to_string(), &moved]).expect(0);
    instance.wait_for_state(promised, "running");
    assert_eq!(instance.job(promised)["reason"], "");
    instance.tutti(&["cancel", "--now", &before]).expect(0);
    front.wait().expect(137).says(&format!("fell to job {last}, which an administrator moved"));
}

#[test]
fn promises_that_a_longer_limit_breaks_are_named_to_the_administrator() {
    let instance = Instance::of_the_system().up();
    let line = ["params", "policy=space", "discipline=conservative", "order=arrival"];
    instance.tutti(&line).expect(0);
    let nap = ["--exclusive", "-t", "1h", "-o", "/dev/null", "sleep", &instance.nap];
    let runs = instance.submit(&nap).to_string();
    let words = [&["submit", "--parsable"][..], &nap].concat();
    let waits = Running::start(instance.command_as(Some(NOBODY), &words)).wait().expect(0);
    let promised = waits.text().trim().to_owned();
    instance.wait_for_state(promised.parse().unwrap(), "queued");
    let named = format!("job {promised} of nobody was promised a start within");
    let longer = instance.tutti(&["limit", &runs, "+1h"]).expect(0);
    longer.says(&named).says("the new limit has broken that, and a start within");
    // One that breaks nothing names nothing.
    assert_eq!(instance.tutti(&["limit", &runs, "-1h"]).expect(0).err, "");
    instance.tutti(&["cancel", "--now", "--all"]).expect(0);
}

#[test]
fn a_job_gets_another_time_limit_while_it_runs() {
    let instance = Instance::of_the_system().up();
    let as_owner = |words: &[&str]| Running::start(instance.command_as(Some(NOBODY), words)).wait();
    let submit = ["submit", "--parsable", "-t", "1h", "-o", "/dev/null", "sleep", &instance.nap];
    let job = as_owner(&submit).expect(0).text().trim().to_owned();
    let number: u64 = job.parse().unwrap();
    instance.wait_for_state(number, "running");
    let limit = |instance: &Instance| instance.job(number)["time_limit_ms"].as_u64();
    // The owner may have less, and only administrators more.
    as_owner(&["limit", &job, "-10m"]).expect(0);
    assert_eq!(limit(&instance), Some(50 * 60_000));
    for longer in ["+1m", "2h", "none"] {
        as_owner(&["limit", &job, longer]).expect(1).says("for administrators").says("[T020]");
    }
    instance.tutti(&["limit", &job, "+70m"]).expect(0);
    assert_eq!(limit(&instance), Some(2 * 3_600_000));
    instance.tutti(&["limit", &job, "none"]).expect(0);
    assert_eq!(limit(&instance), None);
    as_owner(&["limit", &job, "+1m"]).expect(1).says("has no time limit").says("[T");
    for (wrong, says) in [("30", "no unit"), ("soon", "[T"), ("", "[T")] {
        as_owner(&["limit", &job, wrong]).expect(2).says(says);
    }
    as_owner(&["limit", &job, "1ns"]).expect(1).says("has run");
    as_owner(&["limit", &job, "90m"]).expect(0);
    // It is what the next controller knows.
    kill_daemon(&instance, "controller");
    eventually("the limit outlives the controller", || {
        (limit(&instance) == Some(90 * 60_000)).then_some(())
    });
    let events = instance.tutti(&["events", "--job", &job]).expect(0).text();
    assert!(events.contains(r#""event":"job_limit_changed""#), "{events}");
    assert!(events.contains(r#""time_limit_ms":5400000"#), "{events}");
    let service = instance.job(number)["service_ms"].as_u64().unwrap();
    as_owner(&["limit", &job, &format!("{}ms", service + 1500)]).expect(0);
    instance.tutti(&["wait", &job]).expect(124);
    instance.expect_no_nappers();
}

#[test]
fn a_job_becomes_of_the_class_that_a_rule_by_use_names() {
    let instance = Instance::new().up();
    let class =
        |of: &str, rule: &str| instance.tutti(&["params", "--class", of, &format!("after={rule}")]);
    class("interactive", "500ms:production").expect(0);
    class("production", "1h:standby").expect(0);
    let circle = class("standby", "2h:interactive").expect(1);
    circle.says("jobs would go round: standby -> interactive -> production -> standby");
    class("standby", "2h:nosuch").expect(1).says("there is no class nosuch");
    for wrong in ["2h", "2h:", "0s:standby", "soon:standby"] {
        class("benchmark", wrong).expect(1).says("[T");
    }
    let busy = ["-o", "/dev/null", "--class", "interactive", "sh", "-c", "while :; do :; done"];
    let job = instance.submit(&busy);
    eventually("the job has used enough", || {
        (instance.job(job)["class"] == "production").then_some(())
    });
    instance.tutti(&["cancel", "--now", &job.to_string()]).expect(0);
    instance.tutti(&["wait", &job.to_string()]).expect(137);
    let history = instance.tutti(&["history", "--json", &job.to_string()]).expect(0).json();
    assert_eq!(history["job"]["class"], "production");
    let events = instance.tutti(&["events", "--job", &job.to_string()]).expect(0).text();
    let of_class = |line: &&str| line.contains("\"event\":\"job_class_changed\"");
    let changes: Vec<&str> = events.lines().filter(of_class).collect();
    assert!(changes.len() == 1 && changes[0].contains("\"class\":\"production\""), "{events}");
    class("production", "none").expect(0);
    let file = instance.tutti(&["params", "--toml"]).expect(0).text();
    assert!(file.contains("after = \"500ms:production\""), "{file}");
}

#[test]
fn a_debugged_job_is_of_class_benchmark_and_a_niced_one_of_class_standby_if_a_site_says_so() {
    let instance = Instance::new().up();
    let class = |words: &[&str]| {
        let job = instance.submit(&[words, &["--hold", "-o", "/dev/null", "true"]].concat());
        instance.job(job)["class"].as_str().unwrap().to_owned()
    };
    assert_eq!(class(&["--debug"]), "benchmark");
    instance.tutti(&["submit", "--debug", "--class", "standby", "true"]).expect(2);
    let niced = || {
        let mut command =
            instance.command(&["submit", "--parsable", "--hold", "-o", "/dev/null", "true"]);
        let program = command.get_program().to_owned();
        let args: Vec<_> = command.get_args().map(ToOwned::to_owned).collect();
        let mut nice = std::process::Command::new("nice");
        nice.args(["-n", "1"])
            .arg(program)
            .args(args)
            .envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
        command = nice;
        let job = Running::start(command).wait().expect(0).text().trim().parse().unwrap();
        instance.job(job)["class"].as_str().unwrap().to_owned()
    };
    assert_eq!(niced(), "production");
    instance.tutti(&["params", "niced=standby"]).expect(0);
    assert_eq!(niced(), "standby");
    assert_eq!(class(&["--class", "production"]), "production");
    instance.tutti(&["cancel", "--now", "--all"]).expect(0);
}
