//! The seeds of the fuzz targets, and what comes of changing them a little, through what the
//! targets check.
//!
//! A toolchain that can fuzz goes on from here: `tests/fuzz`. What it finds is added to the seeds.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that can't go on has failed")]
// These files belong to the fuzz targets, which are no part of the workspace.
#![allow(
    missing_docs,
    unreachable_pub,
    reason = "what the fuzz targets check is written as a library"
)]

#[path = "../../../fuzz/checks/branch.rs"]
mod branch;
#[path = "../../../fuzz/checks/config.rs"]
mod config;
#[path = "../../../fuzz/checks/elf.rs"]
mod elf;
#[path = "../../../fuzz/checks/join.rs"]
mod join;
#[path = "../../../fuzz/checks/journal.rs"]
mod journal;
#[path = "../../../fuzz/checks/messages.rs"]
mod messages;
#[path = "../../../fuzz/checks/notify.rs"]
mod notify;
#[path = "../../../fuzz/checks/pmi.rs"]
mod pmi;
#[path = "../../../fuzz/checks/pmix.rs"]
mod pmix;
#[path = "../../../fuzz/checks/policy.rs"]
mod policy;
#[path = "../../../fuzz/checks/pvm.rs"]
mod pvm;
#[path = "../../../fuzz/checks/request.rs"]
mod request;
#[path = "../../../fuzz/checks/site.rs"]
mod site;
#[path = "../../../fuzz/checks/swf.rs"]
mod swf;
#[path = "../../../fuzz/checks/token.rs"]
mod token;
#[path = "../../../fuzz/checks/vacate.rs"]
mod vacate;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

type Check = fn(&[u8]);

const CHECKS: [(&str, Check); 16] = [
    ("branch", branch::branch),
    ("config", config::config),
    ("elf", elf::elf),
    ("join", join::join),
    ("journal", journal::journal),
    ("messages", messages::messages),
    ("notify", notify::notify),
    ("pmi", pmi::pmi),
    ("pmix", pmix::pmix),
    ("policy", policy::policy),
    ("pvm", pvm::pvm),
    ("request", request::request),
    ("site", site::site),
    ("swf", swf::swf),
    ("token", token::token),
    ("vacate", vacate::vacate),
];

/// Variants of each seed; more take longer and find no more than a fuzzer does.
const VARIANTS: u64 = 300;

fn seeds_of(target: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let place = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds").join(target);
    let mut seeds: Vec<_> = std::fs::read_dir(&place)
        .unwrap_or_else(|error| panic!("{}: {error}", place.display()))
        .map(|entry| entry.unwrap().path())
        .map(|path| (path.clone(), std::fs::read(path).unwrap()))
        .collect();
    seeds.sort();
    seeds
}

/// Numbers that are the same in each run.
struct Scattered(u64);

impl Scattered {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        usize::try_from(self.0 >> 33).unwrap() % limit.max(1)
    }
}

/// A few bytes changed, taken out or put in, or the rest cut off.
fn changed(seed: &[u8], random: &mut Scattered) -> Vec<u8> {
    let mut bytes = seed.to_vec();
    for _ in 0..=random.below(4) {
        let at = random.below(bytes.len());
        match random.below(5) {
            0 => bytes.truncate(at),
            1 if !bytes.is_empty() => drop(bytes.remove(at)),
            2 => bytes.insert(at, u8::try_from(random.below(256)).unwrap()),
            3 if !bytes.is_empty() => bytes[at] = [0, 1, 0x7f, 0x80, 0xff][random.below(5)],
            _ if !bytes.is_empty() => bytes[at] ^= 1 << random.below(8),
            _ => {}
        }
    }
    bytes
}

#[test]
fn seeds_and_what_is_near_them_pass_the_checks() {
    for (target, check) in CHECKS {
        let seeds = seeds_of(target);
        assert!(!seeds.is_empty(), "{target} has no seeds");
        let mut random = Scattered(7);
        for (path, seed) in seeds {
            check(&seed);
            for variant in 0..VARIANTS {
                let bytes = changed(&seed, &mut random);
                let passed = catch_unwind(AssertUnwindSafe(|| check(&bytes)));
                assert!(passed.is_ok(), "variant {variant} of {}: {bytes:?}", path.display());
            }
        }
    }
}

#[test]
fn every_target_has_a_place_here() {
    let targets = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/fuzz_targets");
    let mut targets: Vec<String> = std::fs::read_dir(targets)
        .unwrap()
        .map(|entry| entry.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned())
        .collect();
    targets.sort();
    assert_eq!(targets, CHECKS.map(|(target, _)| target));
}

#[test]
fn the_seed_of_a_request_is_granted_and_no_other_is() {
    for (path, seed) in seeds_of("request") {
        let is_request = path.file_name().is_some_and(|name| name == "request");
        assert_eq!(request::is_signed(&seed), is_request, "{}", path.display());
    }
}
