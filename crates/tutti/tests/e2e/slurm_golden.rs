//! The Slurm face beside Slurm itself: the same commands, field by field.
//!
//! `slurm_golden/scenario.sh` has the commands, and `slurm_golden/outputs.txt` what Debian's Slurm
//! printed for them (`tests/slurm-golden/record`). What is different is a list of differences, each
//! with a name; those on purpose stand in `slurm_golden/differences.txt` with their reason.

use crate::by_hand::type_in_within;
use crate::cluster::Bed;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::time::Duration;

/// How long all of the commands may take.
const PATIENCE: Duration = Duration::from_secs(150);

/// What a command printed, and how it ended.
#[derive(Debug, Default, PartialEq, Eq)]
struct Printed {
    command: String,
    output: Vec<String>,
    errors: Vec<String>,
    code: String,
}

/// The commands of a recording by their labels.
fn recorded(text: &str) -> BTreeMap<String, Printed> {
    let mut all = BTreeMap::new();
    for block in text.split("\n# ").skip(1) {
        let mut lines = block.lines();
        let label = lines.next().unwrap().to_owned();
        let mut printed = Printed::default();
        for line in lines {
            let inner = |line: &str| line[1..].strip_suffix(&line[..1]).map(str::to_owned);
            match line.chars().next() {
                Some('$') => printed.command = line[1..].trim().to_owned(),
                Some('|') => printed.output.extend(inner(line)),
                Some('!') => printed.errors.extend(inner(line)),
                Some('=') => printed.code = line[1..].trim().to_owned(),
                _ => {}
            }
        }
        assert!(all.insert(label.clone(), printed).is_none(), "{label} stands there twice");
    }
    all
}

/// The fields of an output: of `NAME=VALUE` words and lines, each value by its name; of any other
/// line, the line itself by its number.
fn fields(lines: &[String], of: &str) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for (number, line) in (1..).zip(lines) {
        let words: Vec<&str> = line.split_whitespace().collect();
        if words.is_empty() {
            continue;
        }
        let is_pair = |word: &&str| {
            let name = word.split_once('=').map(|(name, _)| name).unwrap_or_default();
            name.starts_with(|c: char| c.is_ascii_alphabetic())
                && name.chars().all(|c| c.is_ascii_alphanumeric() || "_:/[]".contains(c))
        };
        if words.iter().all(is_pair) {
            for (name, value) in words.iter().filter_map(|word| word.split_once('=')) {
                found.insert(name.to_owned(), value.to_owned());
            }
        } else {
            found.insert(format!("{of}{number}"), line.clone());
        }
    }
    found
}

/// Differences of a command by their names, with what Slurm prints and what Tutti does.
fn differences(slurm: &Printed, ours: &Printed) -> BTreeMap<String, (String, String)> {
    let mut found = BTreeMap::new();
    if slurm.code != ours.code {
        found.insert("exit".to_owned(), (slurm.code.clone(), ours.code.clone()));
    }
    for (theirs, ours, of) in
        [(&slurm.output, &ours.output, "line"), (&slurm.errors, &ours.errors, "error")]
    {
        let (theirs, ours) = (fields(theirs, of), fields(ours, of));
        let names: BTreeSet<&String> = theirs.keys().chain(ours.keys()).collect();
        for name in names {
            let of =
                |all: &BTreeMap<String, String>| all.get(name).cloned().unwrap_or("(none)".into());
            if theirs.get(name) != ours.get(name) {
                found.insert(name.clone(), (of(&theirs), of(&ours)));
            }
        }
    }
    found
}

/// The differences on purpose: labels and names of fields, where `*` stands for any of them.
struct OnPurpose(Vec<(String, String)>);

impl OnPurpose {
    fn read(text: &str) -> Self {
        let mut all = Vec::new();
        for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let (names, reason) = line.split_once(": ").unwrap_or_else(|| panic!("{line}"));
            assert!(!reason.trim().is_empty(), "a reason is missing: {line}");
            let mut words = names.split_whitespace();
            let label = words.next().unwrap();
            all.extend(words.map(|field| (label.to_owned(), field.to_owned())));
        }
        Self(all)
    }

    /// The places of those that a difference is one of.
    fn of(&self, label: &str, field: &str) -> Vec<usize> {
        let matches = |pattern: &str, text: &str| match pattern.strip_suffix('*') {
            Some(start) => text.starts_with(start),
            None => text == pattern,
        };
        let is_one =
            |(_, it): &(usize, &(String, String))| matches(&it.0, label) && matches(&it.1, field);
        self.0.iter().enumerate().filter(is_one).map(|(at, _)| at).collect()
    }
}

/// What differs without being on purpose, and what is on purpose without differing.
fn compared(slurm: &str, ours: &str, on_purpose: &str) -> String {
    let (slurm, ours) = (recorded(slurm), recorded(ours));
    let on_purpose = OnPurpose::read(on_purpose);
    let mut used = BTreeSet::new();
    let mut wrong = String::new();
    let none = Printed::default();
    for (label, theirs) in &slurm {
        for (field, (slurm, tutti)) in differences(theirs, ours.get(label).unwrap_or(&none)) {
            let places = on_purpose.of(label, &field);
            if places.is_empty() {
                let _ = writeln!(
                    wrong,
                    "{label} {field}  ({})\n    slurm {slurm}\n    tutti {tutti}",
                    theirs.command
                );
            }
            used.extend(places);
        }
    }
    for (at, (label, field)) in on_purpose.0.iter().enumerate().filter(|(at, _)| !used.contains(at))
    {
        let _ = writeln!(wrong, "{label} {field} does not differ (entry {})", at + 1);
    }
    wrong
}

#[test]
#[ignore = "takes long: `tests/long e2e` runs it"]
fn commands_print_what_slurm_prints() {
    let bed = Bed::up_with_processors(2, 2);
    let scenario = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/e2e/slurm_golden/scenario.sh");
    let line =
        format!("mkdir here; cd here; eval \"$(tutti slurm env)\"; sh {scenario} >../outputs");
    type_in_within(&bed, 1, &line, PATIENCE).expect(0);
    let ours = std::fs::read_to_string(bed.audit.work.join("outputs")).unwrap();
    if let Some(path) = std::env::var_os("TUTTI_WRITE_OUTPUTS") {
        std::fs::write(path, &ours).unwrap();
    }
    let slurm = include_str!("slurm_golden/outputs.txt");
    let on_purpose = include_str!("slurm_golden/differences.txt");
    let wrong = compared(slurm, &ours, on_purpose);
    assert!(wrong.is_empty(), "\n{wrong}");
}

#[test]
fn differences_are_found_and_those_on_purpose_have_a_reason() {
    let slurm = "\n# a\n$ show a\n|State=UP Nodes=2|\n!a: error!\n= 1\n\n# b\n$ b\n|one|\n= 0\n";
    let ours = "\n# a\n$ show a\n|Nodes=3 State=UP|\n!a: other!\n= 1\n\n# b\n$ b\n|two|\n= 0\n";
    let wrong = compared(slurm, ours, "a Nodes: more of them\n");
    assert_eq!(
        wrong,
        "a error1  (show a)\n    slurm a: error\n    tutti a: other\n\
         b line1  (b)\n    slurm one\n    tutti two\n"
    );
    assert_eq!(
        compared(slurm, slurm, "b line*: it was once\n"),
        "b line* does not differ (entry 1)\n"
    );
    assert_eq!(compared(slurm, ours, "a error1 Nodes: x\nb *: y\n"), "");
}
