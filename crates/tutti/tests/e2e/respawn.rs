//! Lost ranks that are started again (`--on-node-loss respawn`).

use crate::cluster::Bed;
use crate::harness::{Instance, eventually, within};
use crate::partition::{LONG, Life, Ticks, job, lives, submit, wait_for_state};
use nix::sys::signal::Signal;
use serde_json::Value;

/// What `tutti events` has of a job, by the word of the event.
fn events(bed: &Bed, job: &str, word: &str) -> Vec<Value> {
    let done = bed.tutti(1, &["events", "--job", job]).expect(0);
    let text = done.text();
    let all = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    all.filter(|event| event["event"] == word).collect()
}

/// The lives of a rank, the earliest first.
fn lives_of(ticks: &Ticks, rank: u32) -> Vec<Life> {
    let all = ticks.lives().into_values();
    let mut lives: Vec<Life> = all.filter(|life| life.rank == rank).collect();
    lives.sort_by_key(|life| life.first);
    lives
}

/// No rank ran twice at once.
#[track_caller]
fn never_twice_at_once(ticks: &Ticks, ranks: u32) {
    for rank in 0..ranks {
        for pair in lives_of(ticks, rank).windows(2) {
            assert!(pair[0].last < pair[1].first, "rank {rank} ran twice at once: {pair:?}");
        }
    }
}

/// A job with two ranks, which writes down that it got a signal.
fn program(name: &str) -> String {
    format!("trap 'echo $TUTTI_RANK >> {name}.heard' USR1; {}", Ticks::program(name))
}

fn heard(bed: &Bed, name: &str) -> Vec<String> {
    let text = std::fs::read_to_string(bed.audit.work.join(format!("{name}.heard")));
    text.unwrap_or_default().lines().map(str::to_owned).collect()
}

#[test]
fn a_lost_rank_starts_again_on_another_node_and_the_others_are_told() {
    let bed = Bed::up_with(4, &[0, 1000], &["lease=2s"]);
    let options = ["submit", "--parsable", "-o", "out", "-N", "2", "--nodes", "n[2-4]"];
    let program = format!("echo rank $TUTTI_RANK; {}", program("ticks"));
    let words = ["--on-node-loss", "respawn=60s,USR1", "sh", "-c", &program];
    let id = bed.tutti(1, &[&options[..], &words].concat()).expect(0).text().trim().to_owned();
    let ticks = Ticks::of(&bed, "ticks");
    eventually("both ranks run", || (ticks.lives().len() == 2).then_some(()));
    let (lost, rank) = ticks.on("n3").first().map(|(pid, life)| (*pid, life.rank)).unwrap();
    let (stays, _) = ticks.on("n2")[0].clone();
    bed.bed().cut(bed.node(3)).unwrap();
    wait_for_state(&bed, "n3", "lost");
    within(LONG, "the rank runs elsewhere", || (ticks.lives().len() == 3).then_some(()));
    let again = lives_of(&ticks, rank).pop().unwrap();
    assert_eq!(again.host, "n4");
    assert!(lives(stays), "the other one goes on");
    within(LONG, "the other one gets the signal", || {
        (!heard(&bed, "ticks").is_empty()).then_some(())
    });
    assert!(heard(&bed, "ticks").iter().all(|heard| *heard != rank.to_string()));
    let shown = bed.tutti(1, &["show", &id]).expect(0);
    assert!(shown.text().contains("node n3 was lost, started again on n4"), "{}", shown.text());
    assert_eq!(events(&bed, &id, "job_ranks_lost")[0]["node"], "n3");
    let respawned = &events(&bed, &id, "job_ranks_respawned")[0];
    assert_eq!((&respawned["node"], &respawned["from"]), (&"n4".into(), &"n3".into()));
    assert_eq!((&respawned["ranks"], &respawned["launch"]), (&rank.to_string().into(), &1.into()));
    // What comes back with its node is ended there, without another turn.
    bed.bed().heal(bed.node(3)).unwrap();
    wait_for_state(&bed, "n3", "up");
    eventually("the lost one is gone", || (!lives(lost)).then_some(()));
    never_twice_at_once(&ticks, 2);
    ticks.stop();
    bed.tutti(1, &["wait", &id]).expect(0);
    let out = std::fs::read_to_string(bed.audit.work.join("out")).unwrap();
    // Beside these lines the shell says that the signal ended its `sleep`.
    let lines = out.lines().filter(|line| line.starts_with("rank ")).count();
    assert_eq!(lines, 3, "the output of all is in its file: {out}");
    bed.tutti(1, &["run", "-N", "4", "--", "true"]).expect(0);
}

#[test]
fn a_rank_waits_for_its_node_through_another_controller() {
    let bed = Bed::up_with(3, &[0, 1000], &["lease=2s"]);
    let options = ["-N", "2", "--nodes", "n[2-3]", "--on-node-loss", "respawn=2m,USR1"];
    let id = submit(&bed, &options, &program("ticks"));
    let ticks = Ticks::of(&bed, "ticks");
    eventually("both ranks run", || (ticks.lives().len() == 2).then_some(()));
    let rank = ticks.on("n3")[0].1.rank;
    bed.bed().cut(bed.node(3)).unwrap();
    wait_for_state(&bed, "n3", "lost");
    let waits = format!("rank {rank} lost with node n3: waits for processors for up to");
    within(LONG, "it waits", || {
        bed.tutti(1, &["show", &id]).expect(0).text().contains(&waits).then_some(())
    });
    let controller = bed.node(1).daemon("controller").unwrap();
    bed.node(1).signal("controller", Signal::SIGKILL).unwrap();
    eventually("another controller", || {
        bed.node(1).daemon("controller").filter(|&new| new != controller)
    });
    within(LONG, "it still waits", || {
        let shown = bed.tutti(1, &["show", &id]);
        shown.text().contains(&waits).then_some(())
    });
    bed.bed().heal(bed.node(3)).unwrap();
    within(LONG, "it is back", || (ticks.lives().len() == 3).then_some(()));
    assert_eq!(lives_of(&ticks, rank).pop().unwrap().host, "n3");
    never_twice_at_once(&ticks, 2);
    ticks.stop();
    bed.tutti(1, &["wait", &id]).expect(0);
}

#[test]
fn when_the_time_is_over_the_other_choice_holds() {
    let bed = Bed::up_with(3, &[0, 1000], &["lease=2s"]);
    let how = ["respawn=1s", "respawn=1s:requeue", "respawn=1s,USR1:notify", "respawn=10m"];
    let names = ["killed", "again", "told", "cancelled"];
    let submit = |(how, name): (&str, &str)| {
        let options = ["-N", "2", "--nodes", "n[2-3]", "--on-node-loss", how];
        submit(&bed, &options, &program(name))
    };
    let ids: Vec<String> = how.into_iter().zip(names).map(submit).collect();
    let ticks = names.map(|name| Ticks::of(&bed, name));
    within(LONG, "all run", || ticks.iter().all(|it| it.lives().len() == 2).then_some(()));
    bed.bed().cut(bed.node(3)).unwrap();
    wait_for_state(&bed, "n3", "lost");
    bed.tutti(1, &["wait", &ids[0]]).expect(121).says("node n3 was lost");
    within(LONG, "one is queued again", || (job(&bed, &ids[1])["state"] == "queued").then_some(()));
    within(LONG, "the rank is given up", || {
        (!events(&bed, &ids[2], "job_ranks_given_up").is_empty()).then_some(())
    });
    assert_eq!(job(&bed, &ids[2])["state"], "running");
    within(LONG, "one waits", || {
        let shown = bed.tutti(1, &["show", &ids[3]]).expect(0);
        shown.text().contains("waits for processors").then_some(())
    });
    bed.tutti(1, &["cancel", "--now", &ids[3]]).expect(0);
    bed.tutti(1, &["wait", &ids[3]]).expect(137);
    bed.bed().heal(bed.node(3)).unwrap();
    within(LONG, "it begins again", || (ticks[1].lives().len() == 4).then_some(()));
    ticks.iter().for_each(Ticks::stop);
    bed.tutti(1, &["wait", &ids[1]]).expect(0);
    bed.tutti(1, &["wait", &ids[2]]).expect(121);
}

#[test]
fn ranks_that_a_keeper_lost_start_again_on_its_node() {
    let bed = Bed::up_with(3, &[0, 1000], &["lease=10m"]);
    let options = ["-N", "2", "--nodes", "n[2-3]", "--on-node-loss", "respawn"];
    let id = submit(&bed, &options, &program("ticks"));
    let ticks = Ticks::of(&bed, "ticks");
    eventually("both ranks run", || (ticks.lives().len() == 2).then_some(()));
    let rank = ticks.on("n3")[0].1.rank;
    for lives in 2..4 {
        bed.node(3).signal("keeper", Signal::SIGKILL).unwrap();
        within(LONG, "the rank is back", || (lives_of(&ticks, rank).len() == lives).then_some(()));
    }
    never_twice_at_once(&ticks, 2);
    assert_eq!(events(&bed, &id, "job_ranks_respawned").last().unwrap()["launch"], 2);
    ticks.stop();
    bed.tutti(1, &["wait", &id]).expect(0);
}

#[test]
fn only_a_submitted_job_can_have_lost_ranks_started_again() {
    let instance = Instance::new().up();
    let says = "only a job of `tutti submit`";
    instance.tutti(&["run", "--on-node-loss", "respawn", "true"]).expect(125).says(says);
    for (how, says) in [
        ("respawn=soon", "soon"),
        ("respawn:later", "is no choice for lost ranks"),
        ("respawn,NOSUCH", "is no signal"),
    ] {
        instance.tutti(&["submit", "--on-node-loss", how, "true"]).expect(2).says(says);
    }
    let how = ["--on-node-loss", "respawn=5m,USR1:notify", "-o", "/dev/null", "true"];
    let job = instance.submit(&how).to_string();
    instance.tutti(&["wait", &job]).expect(0);
    let shown = instance.tutti(&["show", &job]).expect(0);
    assert!(shown.text().contains("respawn=5m00s,10:notify"), "{}", shown.text());
}
