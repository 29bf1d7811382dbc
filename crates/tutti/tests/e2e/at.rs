//! Changes at times (`tutti at`).
//!
//! Times have minutes. So that no test waits for one, the daemons have a time zone in which the
//! next minute begins soon.

use crate::harness::{Done, Instance, NOBODY, Running, eventually};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::fs;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// An instance in a time zone of its own.
struct Zoned {
    instance: Instance,
    zone: String,
    /// When the next minute begins, since 1970.
    moment: Duration,
}

fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap()
}

impl Zoned {
    /// With so many seconds until the next minute begins.
    fn up(seconds: u64) -> Self {
        let zoned = Self::of(Instance::new(), now() + Duration::from_secs(seconds));
        zoned.tutti(&["up"]).expect(0);
        zoned
    }

    /// With a minute that begins at this second.
    fn of(instance: Instance, moment: Duration) -> Self {
        let moment = Duration::from_secs(moment.as_secs());
        let ahead = (60 - moment.as_secs() % 60) % 60;
        Self { instance, zone: format!("TST-00:00:{ahead:02}"), moment }
    }

    fn tutti(&self, words: &[&str]) -> Done {
        let mut command = self.instance.command(words);
        command.env("TZ", &self.zone);
        Running::start(command).wait()
    }

    /// The hour at which the next minute begins.
    fn hour(&self) -> String {
        let ahead: u64 = self.zone[10..].parse().unwrap();
        let minute = (self.moment.as_secs() + ahead) / 60 % (24 * 60);
        format!("{:02}:{:02}", minute / 60, minute % 60)
    }

    fn name(&self) -> String {
        let nodes = self.tutti(&["nodes", "--json"]).expect(0).json();
        nodes[0]["name"].as_str().unwrap().to_owned()
    }

    fn state(&self) -> String {
        let nodes = self.tutti(&["nodes", "--json"]).expect(0).json();
        nodes[0]["state"].as_str().unwrap().to_owned()
    }

    fn changes(&self) -> Vec<Value> {
        let changes = self.tutti(&["at", "--json"]).expect(0).json();
        changes.as_array().unwrap().clone()
    }

    fn job(&self, job: u64) -> Value {
        self.tutti(&["ps", "--json", &job.to_string()]).expect(0).json()[0].clone()
    }

    fn submit(&self, options: &[&str]) -> u64 {
        let words = [&["submit", "--parsable", "-o", "/dev/null"], options, &["sleep", "300"]];
        self.tutti(&words.concat()).expect(0).text().trim().parse().unwrap()
    }
}

#[test]
fn a_node_goes_out_at_its_time_and_what_would_last_longer_does_not_start() {
    let zoned = Zoned::up(20);
    let (name, hour) = (zoned.name(), zoned.hour());
    let runs = zoned.submit(&["-n", "1"]);
    eventually("the start", || (zoned.job(runs)["state"] == "running").then_some(()));
    let made = zoned.tutti(&["at", &hour, "nodes", &name, "out"]).expect(0).text();
    assert!(made.contains(&format!("change 1 is new: {hour} nodes {name} out")), "{made}");
    let waits = zoned.submit(&["-t", "1h"]);
    let endless = zoned.submit(&[]);
    for (job, says) in [(waits, "before the time limit"), (endless, "a time limit (-t) that")] {
        let job = zoned.job(job);
        let reason = job["reason"].as_str().unwrap();
        assert_eq!((&job["state"], &job["wait"]), (&"queued".into(), &"out-of-service".into()));
        let goes = format!("{name} goes out of service at ");
        assert!(reason.contains(&goes) && reason.contains(says), "{reason}");
    }
    let short = ["run", "-t", "1s", "--grace", "1s", "true"];
    zoned.tutti(&short).expect(0);
    eventually("its time", || (zoned.state() == "drained").then_some(()));
    assert!(now() >= zoned.moment);
    assert_eq!(zoned.job(runs)["state"], "running", "as after `tutti nodes drain`");
    let change = &zoned.changes()[0];
    assert_eq!(change["last_ms"], u64::try_from(zoned.moment.as_millis()).unwrap());
    assert_eq!(change["failed"], Value::Null);
    let next_ms = u64::try_from(zoned.moment.as_millis()).unwrap() + 86_400_000;
    assert_eq!(change["next_ms"], next_ms, "each day");
    // By hand it is back before its time, and takes what ends before the next.
    zoned.tutti(&["nodes", "resume", &name]).expect(0);
    eventually("a start", || (zoned.job(waits)["state"] == "running").then_some(()));
    assert_eq!(zoned.job(endless)["state"], "queued");
    zoned.tutti(&["at", "remove", "1"]).expect(0);
    eventually("a start", || (zoned.job(endless)["state"] == "running").then_some(()));
    assert_eq!(zoned.tutti(&["at"]).expect(0).text(), "nothing changes at any time\n");
}

#[test]
fn what_was_missed_happens_once_and_in_order_when_the_instance_is_back() {
    let zoned = Zoned::up(15);
    let (name, hour) = (zoned.name(), zoned.hour());
    let held = zoned.submit(&["--hold"]);
    zoned.tutti(&["at", &hour, "nodes", &name, "out"]).expect(0);
    zoned.tutti(&["at", &hour, "nodes", &name, "in"]).expect(0);
    zoned.tutti(&["at", &hour, "params", "rows=3", "production.wait=7m"]).expect(0);
    zoned.tutti(&["at", &hour, "release", &held.to_string()]).expect(0);
    let supervisor = fs::read_to_string(zoned.instance.dir.join("lock")).unwrap();
    let supervisor = Pid::from_raw(supervisor.trim().parse().unwrap());
    kill(supervisor, Signal::SIGSTOP).unwrap();
    kill(Pid::from_raw(zoned.instance.daemon("controller")), Signal::SIGKILL).unwrap();
    eventually("the time", || (now() > zoned.moment + Duration::from_millis(1100)).then_some(()));
    kill(supervisor, Signal::SIGCONT).unwrap();
    let rows = || zoned.tutti(&["params", "rows"]).text().contains('3').then_some(());
    eventually("the change", rows);
    eventually("the node: out came before in", || (zoned.state() == "up").then_some(()));
    let wait = zoned.tutti(&["params", "--class", "production"]).expect(0).text();
    assert!(wait.contains("7m"), "{wait}");
    assert_ne!(zoned.job(held)["wait"], "held");
    let changes = zoned.changes();
    let moment_ms = u64::try_from(zoned.moment.as_millis()).unwrap();
    assert!(changes.iter().all(|change| change["last_ms"] == moment_ms), "{changes:?}");
    // They are not done again.
    zoned.tutti(&["params", "rows=5"]).expect(0);
    kill(Pid::from_raw(zoned.instance.daemon("controller")), Signal::SIGKILL).unwrap();
    let rows = || zoned.tutti(&["params", "rows"]).text().contains('5').then_some(());
    eventually("what was set", rows);
    let list = zoned.tutti(&["replay", "--list"]).expect(0).text();
    assert_eq!(list.matches("changes happen: 1, 2, 3, 4").count(), 1, "{list}");
}

#[test]
fn a_replay_shows_what_a_change_would_have_done_to_a_journal_that_knows_no_hours() {
    let instance = Instance::new().up();
    let nodes = instance.tutti(&["nodes", "--json"]).expect(0).json();
    let all = nodes[0]["processors"].to_string();
    let submit = |lasts: &str| {
        let words = ["submit", "--parsable", "-o", "/dev/null", "-n", &all, "sleep", lasts];
        instance.tutti(&words).expect(0).text().trim().to_owned()
    };
    let first = submit("10");
    let between = now() + Duration::from_secs(3);
    eventually("six seconds", || (now() > between + Duration::from_secs(3)).then_some(()));
    let second = submit("0.1");
    for job in [second, first] {
        instance.tutti(&["wait", &job]).expect(0);
    }
    // It is read at once: when its files were written is when it ended.
    let zoned = Zoned::of(instance, between);
    let change = format!("{} params rows=1", zoned.hour());
    let jobs = zoned.tutti(&["replay", "--json", "--at", &change]).expect(0).json()["jobs"].clone();
    let waits = |which: &str| jobs[1][which]["wait_ms"].as_u64().unwrap();
    assert!(waits("was") < 1000 && waits("would_be") > 2000, "{jobs}");
}

#[test]
fn a_file_has_all_changes_and_what_is_wrong_is_said() {
    let instance = Instance::new().up();
    let at = |words: &[&str]| instance.tutti(&[&["at"], words].concat());
    let file = instance.work.join("site.toml");
    let text = "[queue.night]\njobs = 4\n[at]\n\
                \"mon-fri 08:00\" = [\"params production.wait=1h rows=3\", \
                \"release queue:night\"]\n\"2099-12-24 18:00\" = \"release class:standby\"\n\
                \"2001-01-01 00:00\" = \"params rows=1\"\n";
    fs::write(&file, text).unwrap();
    let path = file.to_str().unwrap();
    at(&["--file", path]).expect(1).says("site.toml:4: there is no queue night");
    instance.tutti(&["queue", "--file", path]).expect(0);
    let would = at(&["--file", path, "--dry-run"]).expect(0).text();
    assert_eq!(would.lines().count(), 3, "a day that has passed is left out: {would}");
    assert!(at(&["--json"]).expect(0).json().as_array().unwrap().is_empty());
    at(&["--file", path]).expect(0);
    at(&["--file", path]).expect(0);
    let before = at(&["--json"]).expect(0).json();
    let numbers = before.as_array().unwrap().iter().map(|it| it["number"].as_u64().unwrap());
    assert_eq!(numbers.collect::<Vec<_>>(), [1, 2, 3], "the same file changes nothing");
    let toml = at(&["--toml"]).expect(0).text();
    fs::write(&file, &toml).unwrap();
    assert_eq!(at(&["--file", path]).expect(0).text(), "nothing changes\n", "{toml}");
    let next = at(&["--next", "7d"]).expect(0).text();
    assert_eq!(next.matches("release queue:night").count(), 5, "{next}");
    let moments = at(&["--next", "7d", "--json"]).expect(0).json();
    assert_eq!(moments[0]["number"], 1);
    assert_eq!(moments[1]["number"], 2);
    fs::write(&file, "[at]\n\"mon 08:00\" = \"params rows=2\"\n").unwrap();
    let twice = "[at]\n\"mon 08:00\" = \"params rows=2\"\n\"mon 8:00\" = \"params rows=2\"\n";
    let other = instance.work.join("twice.toml");
    fs::write(&other, twice).unwrap();
    let of_it = at(&["--file", other.to_str().unwrap()]).expect(1);
    of_it.says("twice.toml:3: mon 08:00 params rows=2 is set twice");
    let changed = at(&["--file", path]).expect(0).text();
    assert!(changed.contains("change 3 is removed") && changed.contains("change 4 is new"));
    let other = Running::start(instance.command_as(Some(NOBODY), &["at", "remove", "4"])).wait();
    other.expect(1);
    for (words, says) in [
        (&["mon 08:00", "params", "rows"][..], "write NAME=VALUE"),
        (&["mon 08:00", "params", "nosuch=1"], "nosuch"),
        (&["mon 08:00", "params", "rows=3", "rows=4"], "rows is set twice"),
        (&["mon 08:00", "params", "rows=2"], "change 4 is the same"),
        (&["mon 08:00", "params", "gone.share=1%"], "there is no class gone"),
        (&["mon 08:00", "nodes", "nowhere", "out"], "there is no node nowhere"),
        (&["mon 08:00", "nodes", "set:no", "out"], "there is no set no"),
        (&["mon 08:00", "release", "77"], "there is no job 77"),
        (&["mon 08:00", "release", "x"], "write numbers, queue:NAME or class:NAME"),
        (&["2001-01-01 00:00", "params", "rows=3"], "has passed"),
        (&["someday 08:00", "params", "rows=3"], "is no time"),
        (&["remove", "9"], "there is no change 9"),
        (&["params", "rows=3"], "write a time"),
        (&["mon 08:00"], "write a time"),
        (&["--next", "soon"], "--next"),
    ] {
        at(words).expect(1).says(says);
    }
    assert_eq!(at(&["--json"]).expect(0).json().as_array().unwrap().len(), 1);
}
