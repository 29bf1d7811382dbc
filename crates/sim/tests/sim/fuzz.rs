//! Random lives of a cluster, a few of them; `TUTTI_SCRIPTS=N` asks for more.

use std::fs;
use std::ops::Range;
use std::path::Path;
use tutti_sim::fuzz::{Script, Step, Who, play, shrink};
use tutti_types::{Amount, Per, ResourceName, ResourceWish};

/// The value of the parameter `policy` that stands for `dhc`.
const DHC: u64 = 5;

fn seeds() -> Range<u64> {
    let asked = std::env::var("TUTTI_SCRIPTS").ok().and_then(|count| count.parse().ok());
    0..asked.unwrap_or(200)
}

fn try_seeds(who: Who, steps: usize) {
    try_seeds_with(who, steps, |_| Vec::new());
}

/// With parameters that a seed begins with besides.
fn try_seeds_with(who: Who, steps: usize, params: impl Fn(u64) -> Vec<(&'static str, u64)>) {
    try_scripts(|seed| {
        let mut script = Script::random(seed, steps, who);
        let params = params(seed).into_iter().map(|(name, value)| (name.to_owned(), value));
        script.start.params.extend(params);
        script
    });
}

fn try_scripts(script: impl Fn(u64) -> Script) {
    for seed in seeds() {
        if let Some((script, failure)) = shrink(&script(seed)) {
            panic!("seed {seed}: {}\n{script}", failure.what);
        }
    }
}

#[test]
fn whatever_happens() {
    try_seeds(Who::Everybody, 150);
}

/// Whatever a policy outside orders, nothing is placed twice and no promise is broken.
#[test]
fn whatever_a_policy_outside_orders() {
    try_seeds_with(Who::Everybody, 150, |seed| {
        vec![("policy", 4), ("discipline", seed % 4), ("rows", 1 + seed / 4 % 3)]
    });
}

/// A job that goes on elsewhere gets there, and rows never become more by it.
#[test]
fn wherever_jobs_go() {
    try_seeds_with(Who::Users, 120, |seed| vec![("migration", 1), ("packing", seed % 3)]);
}

#[test]
fn however_jobs_are_placed() {
    try_seeds_with(Who::Users, 80, |seed| vec![("placement", seed % 5), ("packing", seed / 5 % 3)]);
}

/// However jobs come and go, a row waits no longer than the turns of all others.
#[test]
fn nobody_starves() {
    try_scripts(|seed| {
        let mut script = Script::random(seed, 150, Who::Users);
        for step in &mut script.steps {
            // Where changes are put off for such a job, a row may wait longer.
            if let Step::SubmitVacating(spec, _) = step {
                *step = Step::Submit(spec.clone());
            }
        }
        script
    });
}

/// Controllers of blocks know what is true, and a row of any level has its turn in each round.
#[test]
fn whatever_happens_to_blocks() {
    let dhc = |seed| vec![("policy", DHC), ("rows", 1 + seed % 3), ("migration", seed / 3 % 2)];
    try_seeds_with(Who::Everybody, 120, dhc);
    try_seeds_with(Who::Users, 120, dhc);
}

/// Most jobs want a device, and vacate.
fn wants_device(step: &mut Step) {
    let Step::Submit(spec) = step else { return };
    if spec.tasks % 4 == 0 {
        return;
    }
    let name = ResourceName::new("gpu").unwrap();
    let amount = Amount::OnNodes { count: 1, per: Per::Job, vacates: false };
    spec.resources = vec![ResourceWish { name, amount }];
    *step = Step::SubmitVacating(spec.clone(), 1_000_000);
}

/// Jobs that have a device in turns are in no slot together.
#[test]
fn whichever_jobs_have_devices_in_turns() {
    try_scripts(|seed| {
        let who = if seed % 2 == 0 { Who::Users } else { Who::Everybody };
        let mut script = Script::random(seed, 120, who);
        let params = [("share_devices", seed / 2 % 2), ("rows", 2 + seed / 4 % 3)];
        let params = params.map(|(name, value)| (name.to_owned(), value));
        script.start.params.extend(params);
        for step in &mut script.steps {
            wants_device(step);
        }
        script.steps.splice(..0, (0..3).map(|node| Step::Devices(node, 2)));
        script
    });
}

/// Most jobs may be swapped out and have so much memory that few fit beside each other.
fn takes_turns_in_memory(step: &mut Step) {
    let Step::Submit(spec) = step else { return };
    if spec.tasks % 4 == 0 {
        return;
    }
    spec.memory_per_task_bytes = Some(260 + 40 * u64::from(spec.tasks));
    spec.deadline = None;
    *step = Step::SubmitSwapping(spec.clone());
}

/// Jobs that do not fit into memory beside each other have it in turns.
#[test]
fn whichever_jobs_take_turns_in_memory() {
    try_scripts(|seed| {
        let who = if seed % 2 == 0 { Who::Users } else { Who::Everybody };
        let mut script = Script::random(seed, 150, who);
        let params = [("policy", 0), ("rows", 2 + seed / 4 % 3), ("swap", seed / 2 % 2)];
        let params = params.map(|(name, value)| (name.to_owned(), value));
        script.start.params.extend(params);
        let mut steps: Vec<Step> = (0..3).map(|node| Step::Join(node, 2 + node)).collect();
        for mut step in script.steps {
            takes_turns_in_memory(&mut step);
            let passes = matches!(step, Step::Pass(_));
            steps.push(step);
            // Nodes move memory, and then say so.
            if passes {
                steps.extend([Step::Arrive(0), Step::Swapped(0, seed % 3 * 10), Step::Arrive(0)]);
            }
        }
        script.steps = steps;
        script
    });
}

/// Scripts that failed once.
#[test]
fn what_was_mended_stays_mended() {
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scripts");
    let mut failed = Vec::new();
    for file in fs::read_dir(scripts).unwrap() {
        let path = file.unwrap().path();
        let script: Script = fs::read_to_string(&path).unwrap().parse().unwrap();
        if let Err(failure) = play(&script) {
            failed.push(format!("{}: {}", path.display(), failure.what));
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}
