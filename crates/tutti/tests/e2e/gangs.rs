//! Gangs in real time. What nodes record is in cluster time, as each takes it to be: it looks right
//! whatever they take it to be. Here tasks say when they ran, by the one clock of people that all
//! nodes of a test bed have.

use crate::cluster::Bed;
use crate::frames::records;
use crate::harness::eventually;
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

/// What a machine that is busy with other things can do to a try: the nodes say that they were late
/// then, and another is made, with turns twice as long.
const TRIES: u32 = 4;

/// A turn of the first try, in milliseconds.
const TURN_MS: u64 = 100;

/// How many turns of each job are looked at.
const TURNS: usize = 12;

/// Says what time it is, again and again, in microseconds.
const STAMPS: &str = "exec 3<> <(:) > stamps.$TUTTI_JOB.$TUTTI_NODE_RANK; \
                      while :; do echo ${EPOCHREALTIME/[.,]/}; read -t 0.002 -u 3; done";

const NODES: usize = 3;

/// From when to when a task ran, in microseconds.
type Runs = Vec<(u64, u64)>;

/// The runs of a task that began after that, between which it said nothing for so long, without the
/// last, which may not be over.
fn runs(bed: &Bed, job: &str, node: usize, (since_us, pause_us): (u64, u64)) -> Runs {
    let file = bed.audit.work.join(format!("stamps.{job}.{node}"));
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    let mut runs = Runs::new();
    for stamp in whole.lines().map(|line| line.parse().unwrap()) {
        match runs.last_mut() {
            Some((_, end)) if stamp < *end + pause_us => *end = stamp,
            _ => runs.push((stamp, stamp)),
        }
    }
    runs.pop();
    runs.retain(|&(begin, _)| begin > since_us);
    runs
}

/// What tasks say now.
fn now_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    since.as_micros().try_into().unwrap()
}

/// The runs of each job on each node since then, once there are enough of each.
fn all_runs(
    bed: &Bed,
    jobs: &[String; 2],
    (since_us, pause_us): (u64, u64),
    enough: usize,
) -> BTreeMap<(usize, usize), Runs> {
    eventually("they take turns everywhere", || {
        let tasks = (0..2).flat_map(|job| (0..NODES).map(move |node| (job, node)));
        let of = |task: (usize, usize)| runs(bed, &jobs[task.0], task.1, (since_us, pause_us));
        let all: BTreeMap<_, _> = tasks.map(|task| (task, of(task))).collect();
        all.values().all(|runs| runs.len() >= enough).then_some(all)
    })
}

/// For how long others ran in one of these runs, in the middle one by that.
fn overlap(these: &Runs, others: &Runs) -> u64 {
    let common = |a: &(u64, u64), b: &(u64, u64)| a.1.min(b.1).saturating_sub(a.0.max(b.0));
    let with_all = |run| others.iter().map(|other| common(run, other)).sum();
    let mut overlaps: Vec<u64> = these.iter().map(with_all).collect();
    overlaps.sort_unstable();
    overlaps[overlaps.len() / 2]
}

/// Two jobs with all nodes to themselves, in turns.
fn begin(bed: &Bed, turn_ms: u64) -> [String; 2] {
    bed.tutti(1, &["params", &format!("quantum={turn_ms}ms")]).expect(0);
    let nodes = NODES.to_string();
    let job = ["submit", "--parsable", "-N", &nodes, "--exclusive", "-o", "/dev/null", "--"];
    let job = [&job[..], &["bash", "-c", STAMPS]].concat();
    [(); 2].map(|()| bed.tutti(1, &job).expect(0).text().trim().to_owned())
}

/// What nodes were late with: timetables, and switches by so much.
fn late(bed: &Bed, by_ns: u64) -> (u64, usize) {
    let timetables = bed.bed().nodes().iter().map(|node| bed.late_timetables(node)).sum();
    let time = |record: &Value, which: &str| record[which].as_u64().unwrap();
    let is_late = |record: &&Value| time(record, "resumed_ns") > time(record, "due_ns") + by_ns;
    (timetables, records(bed).values().flatten().filter(is_late).count())
}

/// The longest that the one job was running on a node while the other was on another, most of the
/// time.
fn apart(runs: &BTreeMap<(usize, usize), Runs>) -> (u64, String) {
    let pairs = runs.iter().flat_map(|(&(job, node), these)| {
        let others = runs.iter().filter(move |&(&of, _)| of.0 != job && of.1 != node);
        others.map(move |(of, others)| {
            let said = format!("the one on n{}, the other on n{}", node + 1, of.1 + 1);
            (overlap(these, others), said)
        })
    });
    pairs.max().unwrap()
}

#[test]
fn gangs_switch_at_the_same_instants_in_real_time() {
    let bed = Bed::up(NODES, &[9000, 0, 3600]);
    for tried in 1.. {
        let turn_ms = TURN_MS << (tried - 1);
        let (turn_us, most_us) = (turn_ms * 1000, turn_ms * 1000 / 8);
        let jobs = begin(&bed, turn_ms);
        // What nodes hear of jobs that begin is late, and no matter.
        all_runs(&bed, &jobs, (0, turn_us / 2), 2);
        let (before, since_us) = (late(&bed, most_us * 1000), now_us());
        let all = all_runs(&bed, &jobs, (since_us, turn_us / 2), TURNS);
        let (overlap_us, who) = apart(&all);
        let in_time = late(&bed, most_us * 1000) == before;
        bed.tutti(1, &["cancel", "--now", &jobs[0], &jobs[1]]).expect(0);
        if overlap_us <= most_us {
            break;
        }
        let wrong = format!("{overlap_us} us of {turn_us} both jobs ran: {who}");
        let late = if in_time { "in time" } else { "late each time" };
        assert!(!in_time && tried < TRIES, "try {tried}, {late}: {wrong}");
    }
    // How well each node says that it knows the time; it says so again when that is twice as far
    // off.
    let (told, off) = eventually("all say what they go by", || {
        let told = bed.tutti(1, &["nodes", "--json"]).expect(0).json();
        let off = bed.bed().clocks_off_ns(&told)?;
        Some((told, off))
    });
    for (node, off_ns) in off.into_iter().enumerate() {
        let said_ns = told[node]["clock_error_ns"].as_u64().unwrap();
        let off_ns = off_ns.unsigned_abs();
        assert!(off_ns <= 2 * said_ns, "n{}: {off_ns} ns off, {said_ns} said", node + 1);
    }
}

#[test]
fn switches_of_a_cluster_are_shown_with_how_far_apart_the_nodes_were() {
    let bed = Bed::up(NODES, &[0, 3600]);
    let jobs = begin(&bed, TURN_MS);
    eventually("switches that all made", || {
        let records = records(&bed);
        let spread = |node: &str| -> Option<BTreeMap<u64, u64>> {
            let spread =
                |record: &Value| Some((record["due_ns"].as_u64()?, record["spread_ns"].as_u64()?));
            Some(records.get(node)?.iter().filter_map(spread).collect())
        };
        let first = spread("n1")?;
        let resumed = |node: &str, due: u64| {
            let all = records.get(node)?;
            all.iter().find(|it| it["due_ns"] == due)?["resumed_ns"].as_u64()
        };
        let (&due, &said) = first.iter().next_back().filter(|_| first.len() >= 5)?;
        let at = ["n1", "n2", "n3"].map(|node| resumed(node, due).expect("a record of each"));
        assert_eq!(said, at.iter().max()? - at.iter().min()?);
        Some(())
    });
    let table = bed.tutti(1, &["switches"]).expect(0).text();
    let titles = table.lines().next().unwrap();
    let has = ["NODE", "DUE", "BEGAN", "STOPPED", "RESUMED", "SPREAD", "LEFT", "CAME"];
    assert_eq!(titles.split_whitespace().collect::<Vec<_>>(), has);
    bed.tutti(1, &["cancel", "--now", &jobs[0], &jobs[1]]).expect(0);
}
