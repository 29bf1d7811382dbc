//! Jobs come and end while gangs take turns on several nodes: what each node made of the changes,
//! by its own record.

use crate::cluster::Bed;
use crate::harness::eventually;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// What a machine that is busy with other things can do to a try: it says nothing then, and another
/// is made, with turns twice as long.
const TRIES: u32 = 5;

/// A turn of the first try, in milliseconds.
const TURN_MS: u64 = 50;

/// A turn of a try, in milliseconds and in nanoseconds.
fn turn_of(tried: u32) -> (u64, u64) {
    let ms = TURN_MS << (tried - 1);
    (ms, ms * 1_000_000)
}

/// From when to when a job ran, by when that was due.
type Turns = Vec<(u64, u64)>;

/// The jobs that a switch names.
fn jobs(record: &Value, which: &str) -> BTreeSet<u64> {
    record[which].as_array().unwrap().iter().map(|job| job.as_u64().unwrap()).collect()
}

/// The turns that each job had on a node, those that are over. Checks that no two jobs had the node
/// at once: all are jobs with the node to themselves.
fn turns(records: &[Value]) -> BTreeMap<u64, Turns> {
    let (mut running, mut turns) = (BTreeMap::new(), BTreeMap::<u64, Turns>::new());
    for (index, record) in records.iter().enumerate() {
        let due = record["due_ns"].as_u64().unwrap();
        for job in jobs(record, "left") {
            // A job that begins in its turn is not switched to.
            if let Some(since) = running.remove(&job) {
                turns.entry(job).or_default().push((since, due));
            }
        }
        let came = jobs(record, "came");
        // A job that has not left has ended in its turn: nothing more is heard of it.
        let later = |job: u64| {
            let named =
                |it: &Value| ["left", "came"].iter().any(|which| jobs(it, which).contains(&job));
            records[index + 1..].iter().any(named)
        };
        running.retain(|&job, _| came.is_empty() || later(job));
        running.extend(came.into_iter().map(|job| (job, due)));
        assert!(running.len() <= 1, "{running:?} have the node at once: {record}");
    }
    turns
}

/// The records of each node.
pub(crate) fn records(bed: &Bed) -> BTreeMap<String, Vec<Value>> {
    serde_json::from_value::<Vec<(String, Vec<Value>)>>(
        bed.tutti(2, &["switches", "-n", "3000", "--json"]).expect(0).json(),
    )
    .expect("a list of switches for each node")
    .into_iter()
    .collect()
}

/// The turns of each job on each node.
fn all_turns(bed: &Bed) -> BTreeMap<String, BTreeMap<u64, Turns>> {
    records(bed).into_iter().map(|(node, records)| (node, turns(&records))).collect()
}

/// What each node was late with so far: timetables, and switches by a whole turn. The kernel may
/// take as long to stop and resume what a switch is about, where others use its groups.
fn late(bed: &Bed, turn: u64) -> (u64, usize) {
    let nodes = bed.bed().nodes().iter();
    let timetables = nodes.map(|node| bed.late_timetables(node)).sum();
    let is_late = |record: &&Value| {
        let at = |moment: &str| record[moment].as_u64().unwrap();
        let moments = ["began_ns", "stopped_ns", "resumed_ns"];
        moments.iter().any(|moment| at(moment) > at("due_ns") + turn)
    };
    let switches = records(bed).values().flatten().filter(is_late).count();
    (timetables, switches)
}

/// The longest that a job stood still between two of its turns.
fn longest_wait(turns: &Turns) -> u64 {
    turns.windows(2).map(|pair| pair[1].0 - pair[0].1).max().unwrap()
}

/// The longest that one of these jobs had a node while another of them had another.
fn apart(nodes: &BTreeMap<String, BTreeMap<u64, Turns>>, stays: [u64; 3]) -> u64 {
    let of = |job: u64| nodes.values().flat_map(move |turns| turns[&job].iter());
    let common = |a: &(u64, u64), b: &(u64, u64)| a.1.min(b.1).saturating_sub(a.0.max(b.0));
    let together = |one: u64, other: u64| {
        of(one).flat_map(move |a| of(other).map(move |b| common(a, b))).max()
    };
    let [a, b, c] = stays;
    [together(a, b), together(a, c), together(b, c)].into_iter().flatten().max().unwrap()
}

/// Three jobs that stay, and others that come and end beside them, four rows at most; the three.
fn come_and_go(bed: &Bed, turn_ms: u64, lead_ms: u64) -> [u64; 3] {
    let (quantum, lead) = (format!("quantum={turn_ms}ms"), format!("lead={lead_ms}ms"));
    bed.tutti(1, &["params", &quantum, "rows=8", &lead]).expect(0);
    let all = ["-N", "3", "--exclusive"];
    let stays = [(); 3].map(|()| {
        let job =
            [&["submit", "--parsable", "-o", "/dev/null"][..], &all, &["sleep", &bed.audit.nap]];
        bed.tutti(1, &job.concat()).expect(0).text().trim().parse().unwrap()
    });
    let switched = || {
        let nodes = all_turns(bed);
        let has_turns = |turns: &BTreeMap<u64, Turns>| {
            stays.iter().all(|job| turns.get(job).is_some_and(|turns| turns.len() >= 4))
        };
        (nodes.len() == 3 && nodes.values().all(has_turns)).then_some(())
    };
    eventually("they take turns everywhere", switched);
    // The first turn of an interactive job would come before its time.
    let run = ["run", "--class", "production"];
    for from in [1, 2, 3, 1] {
        bed.tutti(from, &[&run[..], &all, &["sleep", "0.2"]].concat()).expect(0);
    }
    stays
}

fn end(bed: &Bed, jobs: [u64; 3]) {
    let jobs = jobs.map(|job| job.to_string());
    let jobs = jobs.iter().map(String::as_str);
    bed.tutti(1, &["cancel", "--now"].into_iter().chain(jobs).collect::<Vec<_>>()).expect(0);
}

/// Whether one of these jobs stood still somewhere for longer; says which.
fn waited_longer(
    nodes: &BTreeMap<String, BTreeMap<u64, Turns>>,
    stays: [u64; 3],
    most: u64,
) -> Option<String> {
    nodes.iter().find_map(|(node, turns)| {
        let longer = |job: &u64| longest_wait(&turns[job]) > most;
        let job = stays.into_iter().find(longer)?;
        Some(format!(
            "{job} stood still on {node} for {} ns: {turns:?}",
            longest_wait(&turns[&job])
        ))
    })
}

#[test]
fn jobs_that_come_and_end_cost_no_node_a_turn_and_no_two_jobs_one() {
    let bed = Bed::up(3, &[9000, 0, 3600]);
    // Told so far ahead, a change is in effect at the same moment everywhere: that of an end, which
    // happens in the last turn of a frame, in the middle of a turn. A job has a turn in each frame
    // of four, so it waits for three.
    for tried in 1.. {
        let (turn_ms, turn) = turn_of(tried);
        let before = late(&bed, turn);
        let stays = come_and_go(&bed, turn_ms, 22 * turn_ms);
        let nodes = all_turns(&bed);
        let wrong = waited_longer(&nodes, stays, 3 * turn).or_else(|| {
            (apart(&nodes, stays) > 0).then(|| format!("two jobs run at the same time: {nodes:?}"))
        });
        let in_time = late(&bed, turn) == before;
        end(&bed, stays);
        match wrong {
            Some(wrong) => {
                let late = if in_time { "in time" } else { "late each time" };
                assert!(!in_time && tried < TRIES, "try {tried}, {late}: {wrong}");
            }
            None => break,
        }
    }
    // As it is by default, each node changes over when it hears of it, and no message says when
    // that is: no turn is lost for that, either, if it is not a turn later.
    for tried in 1.. {
        let (turn_ms, turn) = turn_of(tried);
        let stays = come_and_go(&bed, turn_ms, 0);
        let wrong = waited_longer(&all_turns(&bed), stays, 4 * turn);
        end(&bed, stays);
        match wrong {
            Some(wrong) => assert!(tried < TRIES, "{wrong}"),
            None => break,
        }
    }
}
