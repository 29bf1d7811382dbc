//! Nodes that are cut off, in both directions or in one, hang, or lose power: nothing is lost while
//! they may come back, and nothing runs twice when they don't.

use crate::cluster::Bed;
use crate::harness::{Running, eventually, within};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tutti_testbed::{Node, Testbed};

/// To find out that a node is gone, to wait for its lease and to start its jobs elsewhere takes a
/// while.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// What happens to a node.
type Fault = fn(&Testbed, &Node) -> anyhow::Result<()>;

/// The lines that the tasks of a job have written: each when, where and by which process.
pub(crate) struct Ticks(PathBuf);

/// From its first line to its last, in nanoseconds: what a process wrote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Life {
    pub(crate) host: String,
    pub(crate) rank: u32,
    pub(crate) first: u64,
    pub(crate) last: u64,
}

impl Ticks {
    /// The program of a job that writes them to a file of this name, until there is a file
    /// `NAME.stop`.
    pub(crate) fn program(name: &str) -> String {
        format!(
            "while ! test -e {name}.stop; do \
             echo $(date +%s%N) $(hostname) $$ $TUTTI_RANK >> {name}; sleep 0.02; done"
        )
    }

    pub(crate) fn of(bed: &Bed, name: &str) -> Self {
        Self(bed.audit.work.join(name))
    }

    /// By process.
    pub(crate) fn lives(&self) -> BTreeMap<i32, Life> {
        let mut lives: BTreeMap<i32, Life> = BTreeMap::new();
        for line in std::fs::read_to_string(&self.0).unwrap_or_default().lines() {
            let words: Vec<&str> = line.split(' ').collect();
            let [at, host, pid, rank] = words[..] else { continue };
            let (at, rank) = (at.parse().unwrap(), rank.parse().unwrap());
            let new = || Life { host: host.to_owned(), rank, first: at, last: at };
            let life = lives.entry(pid.parse().unwrap()).or_insert_with(new);
            life.last = life.last.max(at);
        }
        lives
    }

    /// When there was a line since then, in order.
    fn moments(&self, since: u64) -> Vec<u64> {
        let text = std::fs::read_to_string(&self.0).unwrap_or_default();
        let of_line = |line: &str| line.split(' ').next()?.parse().ok();
        let mut moments: Vec<u64> = text.lines().filter_map(of_line).collect();
        moments.retain(|&at| at > since);
        moments.sort_unstable();
        moments
    }

    /// Any user that wrote on that node.
    pub(crate) fn on(&self, host: &str) -> Vec<(i32, Life)> {
        self.lives().into_iter().filter(|(_, life)| life.host == host).collect()
    }

    /// Has its job end.
    pub(crate) fn stop(&self) {
        std::fs::write(self.0.with_extension("stop"), "").unwrap();
    }

    /// Of one launch, by the number of processes that each has.
    #[track_caller]
    fn never_two_launches_at_once(&self, tasks: usize) {
        let mut lives: Vec<Life> = self.lives().into_values().collect();
        lives.sort_by_key(|life| life.first);
        assert_eq!(lives.len(), 2 * tasks, "{lives:#?}");
        let (earlier, later) = lives.split_at(tasks);
        let over = earlier.iter().map(|life| life.last).max().unwrap();
        let begun = later.iter().map(|life| life.first).min().unwrap();
        assert!(over < begun, "two launches ran at once: {lives:#?}");
    }
}

fn now_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    u64::try_from(since.as_nanos()).unwrap()
}

/// Hands a job in at the head.
pub(crate) fn submit(bed: &Bed, options: &[&str], program: &str) -> String {
    let options = [&["submit", "--parsable", "-o", "/dev/null"], options].concat();
    let done = bed.tutti(1, &[&options[..], &["sh", "-c", program]].concat());
    done.expect(0).text().trim().to_owned()
}

pub(crate) fn job(bed: &Bed, job: &str) -> Value {
    bed.tutti(1, &["ps", "--json", job]).expect(0).json()[0].clone()
}

#[track_caller]
pub(crate) fn wait_for_state(bed: &Bed, node: &str, state: &str) {
    within(LONG, &format!("{node} is {state}"), || {
        (bed.states().get(node)? == state).then_some(())
    });
}

/// Whether a process is there.
pub(crate) fn lives(pid: i32) -> bool {
    kill(Pid::from_raw(pid), None).is_ok()
}

#[test]
fn a_node_that_is_cut_off_for_a_while_goes_on_and_nothing_is_lost() {
    let bed = Bed::up_with(3, &[0, 1000], &["lease=25s"]);
    let id = submit(&bed, &["-N", "2", "--nodes", "n[2-3]"], &Ticks::program("ticks"));
    let ticks = Ticks::of(&bed, "ticks");
    eventually("both ranks run", || (ticks.lives().len() == 2).then_some(()));
    // A link that flaps.
    for _ in 0..5 {
        bed.bed().cut(bed.node(3)).unwrap();
        std::thread::sleep(Duration::from_millis(200));
        bed.bed().heal(bed.node(3)).unwrap();
        std::thread::sleep(Duration::from_millis(200));
    }
    bed.bed().cut(bed.node(3)).unwrap();
    wait_for_state(&bed, "n3", "unreachable");
    let missed = now_ns();
    // What can only run there waits for it, and no other job is put there.
    let there = submit(&bed, &["--nodes", "n3"], "true");
    let wide = submit(&bed, &["-N", "3"], "true");
    bed.tutti(1, &["run", "-n", "4", "--", "true"]).expect(0);
    eventually("it runs there all the same", || {
        ticks.on("n3").iter().any(|(_, life)| life.last > missed).then_some(())
    });
    for waits in [&there, &wide] {
        assert_eq!(job(&bed, waits)["state"], "queued");
    }
    bed.bed().heal(bed.node(3)).unwrap();
    wait_for_state(&bed, "n3", "up");
    for done in [&there, &wide] {
        bed.tutti(1, &["wait", done]).expect(0);
    }
    let back = now_ns();
    eventually("it still runs there", || {
        ticks.on("n3").iter().any(|(_, life)| life.last > back).then_some(())
    });
    ticks.stop();
    bed.tutti(1, &["wait", &id]).expect(0);
    assert_eq!(ticks.lives().len(), 2, "by the same two processes from beginning to end");
}

#[test]
fn a_node_that_is_cut_off_goes_on_with_its_turns() {
    let bed = Bed::up_with(2, &[0, 1000], &["lease=25s", "quantum=100ms"]);
    let files = ["one", "other"];
    let jobs =
        files.map(|file| submit(&bed, &["--exclusive", "--nodes", "n2"], &Ticks::program(file)));
    let ticks = files.map(|file| Ticks::of(&bed, file));
    eventually("both run", || ticks.iter().all(|it| it.lives().len() == 1).then_some(()));
    bed.bed().cut(bed.node(2)).unwrap();
    wait_for_state(&bed, "n2", "unreachable");
    let missed = now_ns();
    // The job of each line, as they follow each other, until there were ten turns; a turn has five
    // lines at most.
    let (changes, lines) = eventually("ten turns without the head", || {
        let [one, other] = [0, 1].map(|which| ticks[which].moments(missed));
        let both = one.into_iter().map(|at| (at, 0)).chain(other.into_iter().map(|at| (at, 1)));
        let mut both: Vec<(u64, u32)> = both.collect();
        both.sort_unstable();
        let changes = both.windows(2).filter(|two| two[0].1 != two[1].1).count();
        (changes >= 10).then_some((changes, both.len()))
    });
    assert!(lines > 2 * changes, "both at once: {changes} changes in {lines} lines");
    assert_eq!(bed.states()["n2"], "unreachable");
    bed.bed().heal(bed.node(2)).unwrap();
    wait_for_state(&bed, "n2", "up");
    for (job, ticks) in jobs.iter().zip(&ticks) {
        ticks.stop();
        bed.tutti(1, &["wait", job]).expect(0);
        assert_eq!(ticks.lives().len(), 1);
    }
}

#[test]
#[ignore = "takes long: `tests/long e2e` runs it"]
fn a_user_of_a_node_that_is_cut_off_is_told_which_head_is_out_of_reach() {
    let bed = Bed::up(2, &[0, 1000]);
    let head = bed.node(1).address();
    let log = || std::fs::read_to_string(bed.node(2).directory().join("log")).unwrap_or_default();
    bed.bed().cut(bed.node(2)).unwrap();
    within(LONG, "n2 knows that it is alone", || {
        log().contains("lost the controller").then_some(())
    });
    // A request that fits no socket is no reason to go away before the answer is read.
    let much = "x".repeat(100_000);
    for args in [&["ps"][..], &["nodes"], &["cancel", "1"], &["submit", "echo", &much]] {
        let told = bed.tutti(2, args);
        assert_ne!(told.code, 0, "{args:?}");
        let told = told.says("node n2 cannot reach the head of cluster").says(&head);
        assert!(told.err.trim_end().ends_with("[T062]"), "{}", told.err);
    }
    let waits = bed.start(2, &["run", "-N", "2", "hostname"]);
    bed.bed().heal(bed.node(2)).unwrap();
    assert_eq!(waits.wait_within(LONG).expect(0).sorted(), ["n1", "n2"]);
    bed.tutti(2, &["ps"]).expect(0);
}

/// Jobs on two nodes of which one is lost, as each asked; then it comes back.
fn lose_and_return(bed: &Bed, name: &str, fault: Fault) {
    let on = |file: &str| format!("{name}-{file}");
    let options = |nodes, how| ["-N", "2", "--nodes", nodes, "--on-node-loss", how];
    let again = submit(bed, &options("n[2-4]", "requeue"), &Ticks::program(&on("again")));
    let told =
        format!("trap 'echo > {}; exit 0' USR1; {}", on("heard"), Ticks::program(&on("told")));
    let told = submit(bed, &options("n[2-3]", "notify=USR1"), &told);
    let killed = submit(bed, &options("n[2-3]", "kill"), &Ticks::program(&on("killed")));
    let other = submit(bed, &["-N", "2", "--nodes", "n[1-2]"], &Ticks::program(&on("other")));
    let ticks = ["again", "told", "killed", "other"].map(|file| Ticks::of(bed, &on(file)));
    eventually("all run", || ticks.iter().all(|ticks| ticks.lives().len() == 2).then_some(()));
    let before = ticks[0].on("n3");
    assert_eq!(before.len(), 1, "one of its tasks is on n3");
    fault(bed.bed(), bed.node(3)).unwrap();
    wait_for_state(bed, "n3", "unreachable");
    wait_for_state(bed, "n3", "lost");
    bed.tutti(1, &["wait", &killed]).expect(121).says("node n3 was lost");
    bed.tutti(1, &["wait", &told]).expect(121);
    assert!(bed.audit.work.join(on("heard")).exists());
    within(LONG, "it runs elsewhere", || (ticks[0].lives().len() == 4).then_some(()));
    let lost = now_ns();
    bed.bed().heal(bed.node(3)).unwrap();
    wait_for_state(bed, "n3", "up");
    // What was left there has ended without another turn.
    for (pid, life) in ticks[..3].iter().flat_map(|ticks| ticks.on("n3")) {
        eventually("it is gone", || (!lives(pid)).then_some(()));
        assert!(life.last < lost, "{name}: {life:?}");
    }
    ticks[0].never_two_launches_at_once(2);
    assert_eq!(job(bed, &again)["state"], "running");
    ticks[0].stop();
    ticks[3].stop();
    for done in [&again, &other] {
        bed.tutti(1, &["wait", done]).expect(0);
    }
    assert_eq!(ticks[3].lives().len(), 2, "those who had nothing there were left alone");
    bed.tutti(1, &["run", "-N", "4", "--", "true"]).expect(0);
}

#[test]
fn tasks_are_told_of_a_node_that_starts_anew_within_its_lease_and_of_a_keeper_that_ends() {
    let bed = Bed::up_with(3, &[0, 1000], &["lease=10m"]);
    let power: Fault = |bed, node| {
        bed.kill(node)?;
        bed.heal(node)?;
        anyhow::ensure!(node.tutti(&["up"]).status()?.success(), "the node does not come back");
        Ok(())
    };
    let keeper: Fault = |_, node| node.signal("keeper", Signal::SIGKILL);
    for (name, fault) in [("keeper", keeper), ("power", power)] {
        let told = format!("trap 'echo $(hostname) >> {name}.heard; exit 0' USR1");
        let program = format!("{told}; {}", Ticks::program(name));
        let options = ["-N", "3", "--on-node-loss", "notify=USR1"];
        let id = submit(&bed, &options, &program);
        let ticks = Ticks::of(&bed, name);
        eventually("all tasks run", || (ticks.lives().len() == 3).then_some(()));
        fault(bed.bed(), bed.node(3)).unwrap();
        bed.start(1, &["wait", &id]).wait_within(LONG).expect(121);
        let heard = std::fs::read_to_string(bed.audit.work.join(format!("{name}.heard"))).unwrap();
        let mut heard: Vec<&str> = heard.lines().collect();
        heard.sort_unstable();
        assert_eq!(heard, ["n1", "n2"], "{name}");
        wait_for_state(&bed, "n3", "up");
    }
}

#[test]
fn a_shorter_lease_counts_as_soon_as_the_node_has_confirmed_it() {
    let bed = Bed::up_with(3, &[0, 1000], &["lease=1h"]);
    let stays = submit(&bed, &["--nodes", "n2"], &Ticks::program("stays"));
    let gone = submit(&bed, &["--nodes", "n3"], &Ticks::program("gone"));
    let ticks = ["stays", "gone"].map(|name| Ticks::of(&bed, name));
    eventually("both run", || ticks.iter().all(|it| it.lives().len() == 1).then_some(()));
    bed.tutti(1, &["params", "lease=4s"]).expect(0);
    // It goes by that since the next time that it asks what time it is.
    std::thread::sleep(Duration::from_secs(5));
    bed.bed().cut(bed.node(3)).unwrap();
    let cut = Instant::now();
    bed.start(1, &["wait", &gone]).wait_within(LONG).expect(121).says("node n3 was lost");
    // A lease and what it takes to notice; with a loaded machine it is a few seconds more.
    let took = cut.elapsed();
    assert!(took < Duration::from_secs(15), "it was lost only after {took:?}");
    bed.bed().heal(bed.node(3)).unwrap();
    wait_for_state(&bed, "n3", "up");
    ticks[0].stop();
    bed.tutti(1, &["wait", &stays]).expect(0);
}

#[test]
fn a_node_that_is_cut_off_for_too_long_runs_nothing_beside_what_is_begun_again() {
    let bed = Bed::up_with(4, &[0, 1000], &["lease=2s", "quantum=50ms", "rows=8"]);
    lose_and_return(&bed, "cut", Testbed::cut);
}

#[test]
#[ignore = "takes long: `tests/long e2e` runs it"]
fn so_it_is_when_it_is_not_heard_any_more_or_does_not_hear() {
    let bed = Bed::up_with(4, &[0, 1000], &["lease=2s", "quantum=50ms", "rows=8"]);
    lose_and_return(&bed, "mute", Testbed::mute);
    lose_and_return(&bed, "deaf", Testbed::deafen);
}

#[test]
#[ignore = "takes long: `tests/long e2e` runs it"]
fn an_agent_that_stands_still_through_its_lease_lets_nothing_run() {
    let bed = Bed::up_with(4, &[0, 1000], &["lease=2s"]);
    let again = ["-N", "2", "--nodes", "n[2-4]", "--on-node-loss", "requeue"];
    let again = submit(&bed, &again, &Ticks::program("again"));
    let ticks = Ticks::of(&bed, "again");
    eventually("both ranks run", || (ticks.lives().len() == 2).then_some(()));
    let before = ticks.on("n3");
    let agent = bed.node(3).daemon("agent").unwrap();
    bed.node(3).signal("agent", Signal::SIGSTOP).unwrap();
    wait_for_state(&bed, "n3", "lost");
    within(LONG, "it runs elsewhere", || (ticks.lives().len() == 4).then_some(()));
    assert!(lives(before[0].0), "its process there is suspended, and not gone");
    let log = std::fs::read_to_string(bed.node(3).directory().join("log")).unwrap();
    let line = log.lines().find(|line| line.contains("has not said that tasks may go on"));
    assert!(line.is_some_and(|line| line.ends_with(" [T063]")), "{log}");
    bed.node(3).signal("agent", Signal::SIGCONT).unwrap();
    wait_for_state(&bed, "n3", "up");
    eventually("it is gone", || (!lives(before[0].0)).then_some(()));
    assert_eq!(bed.node(3).daemon("agent"), Some(agent), "the same agent as before");
    ticks.never_two_launches_at_once(2);
    ticks.stop();
    bed.tutti(1, &["wait", &again]).expect(0);
}

#[test]
fn a_node_that_loses_power_is_missed_and_comes_back() {
    let bed = Bed::up_with(4, &[0, 1000], &["lease=2s"]);
    let again = ["-N", "2", "--nodes", "n[2-4]", "--on-node-loss", "requeue"];
    let again = submit(&bed, &again, &Ticks::program("again"));
    let other = submit(&bed, &["-N", "2", "--nodes", "n[1-2]"], &Ticks::program("other"));
    let ticks = ["again", "other"].map(|name| Ticks::of(&bed, name));
    eventually("all run", || ticks.iter().all(|it| it.lives().len() == 2).then_some(()));
    bed.bed().kill(bed.node(3)).unwrap();
    wait_for_state(&bed, "n3", "lost");
    within(LONG, "it runs elsewhere", || (ticks[0].lives().len() == 4).then_some(()));
    bed.bed().heal(bed.node(3)).unwrap();
    bed.tutti(3, &["up"]).expect(0);
    wait_for_state(&bed, "n3", "up");
    bed.tutti(1, &["run", "-N", "4", "--", "true"]).expect(0);
    ticks.iter().for_each(Ticks::stop);
    for done in [&again, &other] {
        bed.tutti(1, &["wait", done]).expect(0);
    }
    ticks[0].never_two_launches_at_once(2);
    assert_eq!(ticks[1].lives().len(), 2, "who had nothing there was left alone");
}

#[test]
#[ignore = "takes long: `tests/long e2e` runs it"]
fn a_controller_that_takes_over_waits_for_the_lease_of_a_node_that_is_cut_off() {
    let bed = Bed::up_with(4, &[0, 1000], &["lease=4s"]);
    let again = ["-N", "2", "--nodes", "n[2-4]", "--on-node-loss", "requeue"];
    let again = submit(&bed, &again, &Ticks::program("again"));
    let ticks = Ticks::of(&bed, "again");
    eventually("both ranks run", || (ticks.lives().len() == 2).then_some(()));
    for cut in [true, false] {
        if cut {
            bed.bed().cut(bed.node(3)).unwrap();
        }
        let controller = bed.node(1).daemon("controller").unwrap();
        bed.node(1).signal("controller", Signal::SIGKILL).unwrap();
        eventually("another controller", || {
            bed.node(1).daemon("controller").filter(|&new| new != controller)
        });
    }
    let waiting: Running = bed.start(2, &["wait", &again]);
    wait_for_state(&bed, "n3", "lost");
    within(LONG, "it runs elsewhere", || (ticks.lives().len() == 4).then_some(()));
    bed.bed().heal(bed.node(3)).unwrap();
    wait_for_state(&bed, "n3", "up");
    ticks.never_two_launches_at_once(2);
    ticks.stop();
    waiting.wait().expect(0);
}

#[test]
#[ignore = "takes long: `tests/long e2e` runs it"]
fn a_node_that_is_taken_out_runs_nothing_beside_what_is_begun_again() {
    let bed = Bed::up_with(6, &[0, 1000], &["lease=3s"]);
    // In reach; in reach by the word of its kernel, while its agent stands still; and out of reach.
    for (number, name) in [(2, "sound"), (3, "still"), (4, "cut")] {
        let nodes = format!("n[{number}-6]");
        let again = ["-N", "2", "--nodes", &nodes, "--on-node-loss", "requeue"];
        let id = submit(&bed, &again, &Ticks::program(name));
        let (ticks, node) = (Ticks::of(&bed, name), bed.node(number));
        let host = node.name();
        eventually("both ranks run", || (ticks.lives().len() == 2).then_some(()));
        assert_eq!(ticks.on(host).len(), 1, "one of its tasks is on {host}");
        match name {
            "still" => node.signal("agent", Signal::SIGSTOP).unwrap(),
            "cut" => bed.bed().cut(node).unwrap(),
            _ => {}
        }
        bed.tutti(1, &["nodes", "remove", host]).expect(1).says("has jobs");
        let removing = bed.start(1, &["nodes", "remove", host, "--now"]).wait_within(LONG);
        removing.expect(0);
        assert!(!bed.states().contains_key(host), "{:?}", bed.states());
        within(LONG, "it runs elsewhere", || (ticks.lives().len() == 4).then_some(()));
        ticks.never_two_launches_at_once(2);
        match name {
            "still" => node.signal("agent", Signal::SIGCONT).unwrap(),
            "cut" => bed.bed().heal(node).unwrap(),
            _ => {}
        }
        if name == "cut" {
            let log = || std::fs::read_to_string(node.directory().join("log")).unwrap_or_default();
            within(LONG, "it is told", || log().contains("was removed from").then_some(()));
            bed.tutti(number, &["down"]).expect(0);
        }
        // The others were told to go.
        eventually("it has ended", || node.daemon("agent").is_none().then_some(()));
        ticks.stop();
        bed.tutti(1, &["wait", &id]).expect(0);
    }
}

/// What ranks print for some seconds, each line with its number; and how that is found whole.
pub(crate) const COUNTS: &str = "i=0; while [ $i -lt 400 ]; do echo $TUTTI_RANK $i $(printf '%04000d' 0); \
                      i=$((i+1)); sleep 0.01; done";

#[track_caller]
pub(crate) fn check_counts(text: &str, ranks: usize) {
    let mut next = vec![0_u32; ranks];
    for line in text.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let (rank, number): (usize, u32) = (words[0].parse().unwrap(), words[1].parse().unwrap());
        assert_eq!(words[2].len(), 4000, "a line was cut");
        assert_eq!(number, next[rank], "rank {rank}: lines lost, doubled or out of order");
        next[rank] += 1;
    }
    assert_eq!(next, vec![400; ranks]);
}

#[test]
#[ignore = "takes long: `tests/long e2e` runs it"]
fn no_output_is_lost_or_doubled_when_the_way_to_it_breaks() {
    let bed = Bed::up_with(3, &[0, 1000], &["lease=25s"]);
    // Of the node that is far, of the front end's own, and agents that end on the way.
    for (number, fault) in [(3, "cut"), (2, "cut"), (3, "agent"), (1, "agent"), (2, "agent")] {
        let talking = bed.start(2, &["run", "-n", "6", "--", "sh", "-c", COUNTS]);
        eventually("all print", || (talking.out().lines().count() > 100).then_some(()));
        if fault == "cut" {
            bed.bed().cut(bed.node(number)).unwrap();
            wait_for_state_at(&bed, if number == 2 { 1 } else { 2 }, number, "unreachable");
            bed.bed().heal(bed.node(number)).unwrap();
        } else {
            bed.node(number).signal(fault, Signal::SIGKILL).unwrap();
        }
        let done = talking.wait_within(LONG).expect(0);
        check_counts(&done.text(), 6);
    }
}

/// As [`wait_for_state`], asked on another node than the head.
#[track_caller]
fn wait_for_state_at(bed: &Bed, asked: usize, number: usize, state: &str) {
    within(LONG, &format!("n{number} is {state}"), || {
        let nodes = bed.tutti(asked, &["nodes", "--json"]).expect(0).json();
        (nodes[number - 1]["state"] == state).then_some(())
    });
}

#[test]
fn a_node_that_has_done_with_its_tasks_holds_up_nobodys_input() {
    let bed = Bed::up_with(2, &[0, 1000], &[]);
    let bytes = vec![b'x'; 8 << 20];
    // The first rank reads nothing until it ends, and what was meant for it is more than any queue
    // on the way.
    let count = "if [ $TUTTI_RANK = 0 ]; then sleep 1; else wc -c; fi";
    for from in [1, 2] {
        let args = ["run", "-N", "2", "-n", "2", "-i", "all", "--", "sh", "-c", count];
        let mut command = bed.node(from).tutti(&args);
        command.stdin(Stdio::piped());
        let mut counting = Running::start(command);
        counting.type_in(&bytes);
        let said = counting.wait_within(LONG).expect(0);
        assert_eq!(said.text().trim(), bytes.len().to_string());
    }
}

#[test]
fn no_input_is_lost_or_doubled_when_the_way_to_it_breaks() {
    let bed = Bed::up_with(3, &[0, 1000], &["lease=25s"]);
    let count = "if [ $TUTTI_RANK = 4 ]; then sleep 1; cksum; fi";
    let mut command = bed.node(2).tutti(&["run", "-n", "6", "-i", "4", "--", "sh", "-c", count]);
    command.stdin(Stdio::piped());
    let mut counting = Running::start(command);
    let lines: String = (0..60_000).map(|number| format!("line {number} of many\n")).collect();
    let (first, last) = lines.split_at(lines.len() / 2);
    counting.type_in(first.as_bytes());
    bed.node(3).signal("agent", Signal::SIGKILL).unwrap();
    counting.type_in(last.as_bytes());
    let said = counting.wait_within(LONG).expect(0);
    let mut expected = Command::new("cksum");
    expected.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut expected = expected.spawn().unwrap();
    expected.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
    let expected = expected.wait_with_output().unwrap();
    assert_eq!(said.text(), String::from_utf8_lossy(&expected.stdout));
}

#[test]
fn a_job_ends_when_its_front_end_on_another_node_is_killed() {
    let bed = Bed::up(2, &[0]);
    let front = bed.start(2, &["run", "-n", "4", "--", "sleep", &bed.audit.nap]);
    eventually("it runs", || {
        bed.tutti(1, &["ps"]).expect(0).text().contains("running").then_some(())
    });
    // The verb is below what makes it a process of the node.
    front.signal(Signal::SIGKILL);
    eventually("it has ended", || {
        let jobs = bed.tutti(1, &["ps", "--json"]).expect(0).json();
        jobs.as_array().is_some_and(Vec::is_empty).then_some(())
    });
}
