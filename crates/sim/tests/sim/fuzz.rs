//! Random lives of a cluster, a few of them; `TUTTI_SCRIPTS=N` asks for more.

use std::ops::Range;
use tutti_sim::fuzz::{Script, Who, shrink};

fn seeds() -> Range<u64> {
    let asked = std::env::var("TUTTI_SCRIPTS").ok().and_then(|count| count.parse().ok());
    0..asked.unwrap_or(150)
}

fn play(who: Who, steps: usize) {
    for seed in seeds() {
        if let Some((script, failure)) = shrink(&Script::random(seed, steps, who)) {
            panic!("seed {seed}: {}\n{script}", failure.what);
        }
    }
}

#[test]
fn whatever_happens() {
    play(Who::Everybody, 80);
}

/// However jobs come and go, a row waits no longer than the turns of all others.
#[test]
fn nobody_starves() {
    play(Who::Users, 100);
}
