//! What is slow in a cluster, or stands still for a while: a way, a reader, all daemons of a node.

use crate::cluster::Bed;
use crate::clusters::switch_together;
use crate::harness::{eventually, player, status_of, within};
use crate::switch::{overlap, stretches_of};
use nix::sys::signal::Signal;
use serde_json::Value;
use std::io::Read;
use std::process::Stdio;
use std::time::{Duration, Instant};
use tutti_testbed::Testbed;

/// In each direction.
const SLOW: Duration = Duration::from_millis(40);

/// To find out that a node is gone, or back, takes a while.
const LONG: Duration = Duration::from_secs(60);

/// How long a connection takes: a way there and back, at least.
fn connecting(bed: &Bed, from: usize, to: usize) -> Duration {
    let begun = Instant::now();
    drop(bed.node(from).dial(&bed.node(to).address()).unwrap());
    begun.elapsed()
}

#[test]
fn a_way_that_becomes_slow_costs_no_job_and_what_comes_late_is_counted() {
    let bed = Bed::up(3, &[0, 1000]);
    bed.tutti(1, &["params", "quantum=200ms", "rows=8"]).expect(0);
    let submit = || {
        let job = ["submit", "--parsable", "-N", "3", "-o", "/dev/null", "--exclusive", "--"];
        let job = bed.tutti(1, &[&job[..], &["sleep", &bed.audit.nap]].concat()).expect(0).text();
        job.trim().to_owned()
    };
    let mut jobs = vec![submit(), submit()];
    switch_together(&bed, 3);
    let far = bed.node(3);
    let agents = [1, 2, 3].map(|number| bed.node(number).daemon("agent"));
    bed.bed().delay(far, SLOW).unwrap();
    for (from, to) in [(1, 3), (3, 2)] {
        let took = connecting(&bed, from, to);
        assert!(took >= 2 * SLOW, "n{from} to n{to}: {took:?}");
    }
    // A change is to activate at once, and comes to n3 when that is over.
    let before = bed.late_timetables(far);
    jobs.push(submit());
    eventually("it comes late", || (bed.late_timetables(far) > before).then_some(()));
    switch_together(&bed, 3);
    // One that is told ahead comes in time.
    bed.tutti(1, &["params", "lead=2s"]).expect(0);
    let before = bed.late_timetables(far);
    jobs.push(submit());
    eventually("all run", || {
        let jobs = bed.tutti(1, &["ps", "--json"]).expect(0).json();
        jobs.as_array()?.iter().all(|job| job["state"] == "running").then_some(())
    });
    assert_eq!(bed.late_timetables(far), before);
    bed.tutti(1, &["params", "lead=0s"]).expect(0);
    // Output in bulk comes through whole, in both directions.
    let print = "head -c 400000 /dev/zero | tr '\\0' x";
    for number in [1, 3] {
        let done = bed.tutti(number, &["run", "-N", "3", "--", "sh", "-c", print]).expect(0);
        let written = done.out.iter().filter(|&&byte| byte == b'x').count();
        assert_eq!(written, 3 * 400_000, "at n{number}");
    }
    // Another process may ask for it, as `testbed delay` does.
    bed.bed().take_orders().unwrap();
    let guest = Testbed::open(bed.bed().directory(), &bed.audit.program).unwrap();
    guest.delay(guest.node("n3").unwrap(), Duration::ZERO).unwrap();
    eventually("it is quick again", || (connecting(&bed, 1, 3) < SLOW).then_some(()));
    guest.delay(guest.node("n2").unwrap(), SLOW).unwrap();
    assert!(connecting(&bed, 2, 1) >= 2 * SLOW);
    guest.heal(guest.node("n2").unwrap()).unwrap();
    eventually("it is quick again", || (connecting(&bed, 2, 1) < SLOW).then_some(()));
    drop(guest);
    assert_eq!([1, 2, 3].map(|number| bed.node(number).daemon("agent")), agents);
    let jobs: Vec<&str> = jobs.iter().map(String::as_str).collect();
    bed.tutti(3, &[&["cancel", "--now"], &jobs[..]].concat()).expect(0);
}

#[test]
fn who_does_not_read_holds_up_his_own_job_alone() {
    let bed = Bed::up_with(4, &[0, 1000], &["fan_out=2"]);
    let print = "seq 2000000; echo > done.$TUTTI_RANK";
    let mut command = bed.node(1).tutti(&["run", "-N", "4", "--", "sh", "-c", print]);
    command.current_dir(&bed.audit.work).stdout(Stdio::piped());
    let mut stalled = command.spawn().unwrap();
    let written = || {
        let is_done = |rank: &u32| bed.audit.work.join(format!("done.{rank}")).exists();
        (0..4).filter(is_done).count()
    };
    // All of it fits nowhere, so a writer waits for its reader.
    let end = Instant::now() + Duration::from_secs(6);
    while Instant::now() < end {
        // Over the same connections, longer than any agent waits for a silent one.
        for number in [1, 4] {
            let done = bed.tutti(number, &["run", "-N", "4", "--", "hostname"]).expect(0);
            assert_eq!(done.sorted(), ["n1", "n2", "n3", "n4"]);
        }
    }
    assert!(bed.states().values().all(|state| state == "up"), "{:?}", bed.states());
    let other = bed.tutti(1, &["run", "-N", "4", "--", "seq", "300000"]).expect(0);
    assert_eq!(other.text().lines().count(), 1_200_000);
    assert!(written() < 4, "nobody waited");
    let mut text = String::new();
    stalled.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    assert!(stalled.wait().unwrap().success());
    assert_eq!(text.lines().count(), 8_000_000);
    assert_eq!(written(), 4);
}

#[test]
#[ignore = "takes long: `tests/long e2e` runs it"]
fn a_node_whose_daemons_stand_still_for_a_while_loses_nothing() {
    let bed = Bed::up_with(3, &[0, 1000], &["lease=30s", "quantum=50ms"]);
    let count = "i=0; while [ $i -lt 300 ]; do echo $TUTTI_RANK $i; i=$((i+1)); sleep 0.02; done";
    let other = ["submit", "--parsable", "-N", "3", "-o", "/dev/null", "--exclusive", "--"];
    let other = bed.tutti(1, &[&other[..], &["sleep", &bed.audit.nap]].concat()).expect(0).text();
    let counting = bed.start(2, &["run", "-N", "3", "--exclusive", "--", "sh", "-c", count]);
    eventually("all count", || (counting.out().lines().count() > 30).then_some(()));
    bed.node(3).freeze(true);
    // A user that asks for the nodes is not kept waiting by one of them.
    let nodes = bed.tutti(1, &["nodes", "--json"]).expect(0).json();
    assert_eq!(
        [&nodes[1]["branch_jobs"], &nodes[2]["branch_jobs"]],
        [&Value::from(2), &Value::Null]
    );
    // What a job has used is known of all its nodes, or it is said that it is not.
    let are_known = || {
        let jobs = bed.tutti(1, &["ps", "--long", "--json"]).expect(0).json();
        jobs.as_array().unwrap().iter().all(|job| job["usage"]["cpu_whole"] == true)
    };
    within(LONG, "it is missed", || (bed.states()["n3"] == "unreachable").then_some(()));
    assert!(!are_known(), "a node says nothing");
    bed.node(3).freeze(false);
    within(LONG, "it is back", || (bed.states()["n3"] == "up").then_some(()));
    assert!(are_known(), "all nodes say something");
    let done = counting.wait_within(LONG).expect(0);
    let mut next = [0_u32; 3];
    for line in done.text().lines() {
        let (rank, number) = line.split_once(' ').unwrap();
        let rank: usize = rank.parse().unwrap();
        assert_eq!(number.parse(), Ok(next[rank]), "rank {rank}");
        next[rank] += 1;
    }
    assert_eq!(next, [300; 3]);
    bed.tutti(1, &["cancel", "--now", other.trim()]).expect(0);
    bed.tutti(3, &["run", "-N", "3", "true"]).expect(0);
}

/// A program that speaks PMI itself: rank 1 enters a barrier at once, rank 0 when it may; each then
/// says what the other has stored.
const MEETS: &str = "
say() { echo \"cmd=$*\" >&$PMI_FD; read -r answer <&$PMI_FD; }
say init pmi_version=1 pmi_subversion=1
say put key=k$TUTTI_RANK value=v$TUTTI_RANK
echo > in.$TUTTI_RANK
while [ $TUTTI_RANK = 0 ] && ! [ -e go ]; do sleep 0.02; done
say barrier_in
echo > out.$TUTTI_RANK
say get key=k$((1 - TUTTI_RANK))
echo $answer
say finalize
";

#[test]
fn a_barrier_that_one_node_has_not_heard_is_open_opens_though_the_controller_ends_meanwhile() {
    let bed = Bed::up_with(3, &[0, 1000], &["lease=60s"]);
    let job = ["submit", "--parsable", "-N", "2", "--nodes", "n[2-3]", "-o", "said", "--"];
    let job = bed.tutti(1, &[&job[..], &["bash", "-c", MEETS]].concat()).expect(0).text();
    let is_there = |name: &str| bed.audit.work.join(name).exists();
    eventually("rank 1 enters", || (is_there("in.0") && is_there("in.1")).then_some(()));
    std::thread::sleep(Duration::from_millis(500));
    bed.bed().cut(bed.node(3)).unwrap();
    std::fs::write(bed.audit.work.join("go"), "").unwrap();
    eventually("rank 0 has left it", || is_there("out.0").then_some(()));
    let log = || std::fs::read_to_string(bed.node(3).directory().join("log")).unwrap_or_default();
    within(LONG, "n3 knows that it is alone", || {
        log().contains("lost the controller").then_some(())
    });
    within(LONG, "n3 is missed", || (bed.states()["n3"] == "unreachable").then_some(()));
    assert!(!is_there("out.1"), "it was to be cut off by then");
    let controller = bed.node(1).daemon("controller").unwrap();
    bed.node(1).signal("controller", Signal::SIGKILL).unwrap();
    let next = || bed.node(1).daemon("controller").filter(|&new| new != controller);
    eventually("another controller", next);
    bed.bed().heal(bed.node(3)).unwrap();
    bed.start(2, &["wait", job.trim()]).wait_within(LONG).expect(0);
    let said = std::fs::read_to_string(bed.audit.work.join("said")).unwrap();
    assert!(said.contains("value=v0") && said.contains("value=v1"), "{said}");
}

/// Fifteen lists on each node stay unread, after most of a page has been printed.
#[test]
#[ignore = "takes long: `tests/long e2e` runs it"]
fn lists_that_jobs_on_four_nodes_do_not_read_keep_no_other_job_from_its_start() {
    const HELD: &str = "1500";
    let bed = Bed::up(4, &[0, 1000]);
    let name = "n".repeat(255);
    let held =
        ["submit", "--hold", "--array", HELD, "--name", &name, "-o", "/dev/null", "--", "true"];
    bed.tutti(1, &held).expect(0);
    let program = bed.audit.program.display().to_string();
    let unread = format!(
        "for i in $(seq 15); do {program} ps --all --json | {{ read -r line; sleep 40; }} & done; \
         wait"
    );
    let readers = bed.start(2, &["run", "-N", "4", "-n", "4", "sh", "-c", &unread]);
    std::thread::sleep(Duration::from_secs(5));
    let run = ["run", "-N", "4", "-n", "4", "echo", "works"];
    for node in [1, 3] {
        let done = bed.start(node, &run).wait_within(Duration::from_secs(20)).expect(0);
        assert_eq!(done.text().matches("works").count(), 4);
    }
    let controller = bed.node(1).daemon("controller").unwrap();
    let resident = status_of(controller, "VmRSS").unwrap();
    let kib: u64 = resident.trim_end_matches("kB").trim().parse().unwrap();
    assert!(kib < 300 << 10, "the controller has {kib} KiB");
    readers.wait_within(LONG * 2).expect(0);
}

/// Those of the first job ask for real-time priority.
#[test]
fn ranks_with_real_time_priority_on_four_nodes_have_their_turns_and_no_more() {
    let bed = Bed::up_with(4, &[0, 1000], &["quantum=200ms", "rows=8"]);
    let player = player().display().to_string();
    // Ends by itself, whatever becomes of this test.
    let real_time = ["chrt", "--fifo", "50", "timeout", "30", &player, "ticks", "1000"];
    // Real-time tasks leave daemons little time: both jobs are there before one has any.
    let begin = ["sh", "-c", "until [ -e go ]; do sleep 0.02; done; exec \"$@\"", "sh"];
    let submit = |program: &[&str]| -> u64 {
        let job = ["submit", "--parsable", "-N", "4", "--exclusive", "-o", "t-%j-%r", "--"];
        let job = [&job[..], &begin, program].concat();
        bed.tutti(1, &job).expect(0).text().trim().parse().unwrap()
    };
    let jobs = [submit(&real_time), submit(&real_time[5..])];
    switch_together(&bed, 4);
    std::fs::write(bed.audit.work.join("go"), "").unwrap();
    for job in jobs {
        bed.start(1, &["wait", &job.to_string()]).wait_within(LONG * 2).expect(0);
    }
    for rank in 0..4 {
        let [real_time, other] = jobs.map(|job| stretches_of(&bed.audit, job, rank));
        assert_eq!(overlap(&real_time, &other), 0, "rank {rank}: they ran at the same time");
        let later = other.iter().filter(|it| real_time.iter().any(|its| its.1 < it.0)).count();
        let earlier = other.iter().filter(|it| real_time.iter().any(|its| its.0 > it.1)).count();
        assert!(earlier > 0 && later > 0, "rank {rank}: one ran when the other had ended");
    }
}
