//! `tutti demo`, for root on a terminal and for an ordinary user without one.

use crate::audit::traces_of;
use crate::harness::{Instance, NOBODY, PATIENCE, eventually};
use crate::top::Watched;
use std::collections::BTreeSet;

/// Long enough for many turns of both jobs.
const SHORT: [&str; 5] = ["demo", "--length", "1s", "--quantum", "50ms"];

/// Nothing is left of the instance of the demo that had this number.
fn expect_nothing_left(pid: u32, user: u32, nap: &str) {
    let dir = std::env::temp_dir().join(format!("tutti-demo-{pid}"));
    // Its supervisor may still be on the last steps of its way out.
    eventually("nothing left of it", || traces_of(&dir, user, nap).is_empty().then_some(()));
    assert!(!dir.exists(), "left: {}", dir.display());
}

/// What a demo has said by its end: both jobs had about half of the time, in many turns.
fn check_figures(text: &str) {
    let share = |name: &str| -> f64 {
        let row =
            text.lines().map(str::trim).find(|line| line.starts_with(name) && line.ends_with(" %"));
        let row = row.unwrap_or_else(|| panic!("no row of {name} in:\n{text}"));
        row.split_whitespace().rev().nth(1).unwrap().parse().unwrap()
    };
    let shares = ["first", "second"].map(share);
    assert!(shares.iter().all(|share| (30.0..=70.0).contains(share)), "{shares:?} in:\n{text}");
    assert!(shares.iter().sum::<f64>() < 100.5, "{shares:?} in:\n{text}");
    let switched = text.split_once("They were switched ").unwrap().1;
    let count: usize = switched.split_whitespace().next().unwrap().parse().unwrap();
    assert!(count >= 10, "{count} switches in:\n{text}");
}

#[test]
fn turns_are_drawn_on_a_terminal_as_they_come() {
    let instance = Instance::alone();
    let mut demo = Watched::of(instance.command(&SHORT));
    let pid = demo.pid();
    demo.expect_code(0);
    eventually("its last line", || demo.text().contains("left nothing behind").then_some(()));
    expect_nothing_left(pid, 0, &instance.nap);
    let text = demo.text();
    check_figures(&text);
    // Each picture of the two jobs' time is drawn over the one before.
    let pictures = || text.split("\x1b[2A").skip(1);
    let seen: BTreeSet<&str> = pictures().collect();
    assert!(seen.len() > 3, "{} pictures: {text:?}", seen.len());
    let last = pictures().last().unwrap();
    let cells = |name: &str| -> Vec<char> {
        let row = last.lines().find(|line| line.trim().starts_with(name));
        row.and_then(|row| row.split('|').nth(1)).unwrap().chars().collect()
    };
    let (first, second) = (cells("first"), cells("second"));
    assert!(first.contains(&'█') && second.contains(&'█'), "{last}");
    assert!(!first.iter().zip(&second).any(|both| both == (&'█', &'█')), "both at once: {last}");
}

#[test]
fn an_ordinary_user_sees_it_too() {
    let instance = Instance::of_nobody();
    let demo = instance.start(&SHORT);
    let pid = demo.pid().unsigned_abs();
    let done = demo.wait_within(PATIENCE * 4).expect(0);
    expect_nothing_left(pid, NOBODY, &instance.nap);
    let text = done.text();
    check_figures(&text);
    assert!(!text.contains('\x1b') && text.contains("left nothing behind"), "{text}");
}
