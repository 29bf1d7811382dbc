//! How large the rooms of the house may be: structs of daemons, crates, the first pages.

use super::{root, sources};
use std::collections::BTreeMap;
use std::fs;

/// Fields of a struct of a daemon. A larger one is made of parts that own their state.
const FIELDS_MAX: usize = 15;

/// The part of the code's lines that a crate may hold, in percent.
const CRATE_PERCENT_MAX: usize = 15;

/// Pages that are read first, with their lines at most.
const FIRST_PAGES: [(&str, usize); 2] = [("README.md", 120), ("ARCHITECTURE.md", 150)];

/// Each struct of a source with how many named fields it has.
fn structs(text: &str) -> Vec<(String, usize)> {
    let indent = |line: &str| line.len() - line.trim_start().len();
    let is_field = |line: &str| {
        let line = line.trim_start();
        let line = line.strip_prefix("pub").map_or(line, |rest| match rest.strip_prefix('(') {
            Some(within) => within.split_once(')').map_or(rest, |(_, rest)| rest),
            None => rest,
        });
        let name = line.split(": ").next().unwrap_or("").trim();
        line.contains(": ") && name.chars().all(|c| c.is_alphanumeric() || "_#".contains(c))
    };
    let (mut found, mut open): (_, Option<(String, usize, usize)>) = (Vec::new(), None);
    for line in text.lines() {
        if let Some((name, at, fields)) = &mut open {
            if line.trim() == "}" && indent(line) == *at {
                found.push((std::mem::take(name), *fields));
                open = None;
            } else if indent(line) == *at + 4 && is_field(line) {
                *fields += 1;
            }
            continue;
        }
        let mut words = line.split_whitespace().skip_while(|word| word.starts_with("pub"));
        if words.next() == Some("struct") && line.ends_with('{') {
            let name = words.next().unwrap_or_default().to_owned();
            open = Some((name, indent(line), 0));
        }
    }
    found
}

/// The lines of code of a source, without comments and the tests at its end.
fn code_lines(text: &str) -> usize {
    let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or(text);
    let is_code = |line: &&str| !line.is_empty() && !line.starts_with("//");
    code.lines().map(str::trim).filter(is_code).count()
}

fn is_test(path: &str) -> bool {
    path.ends_with("tests.rs") || path.contains("/tests/") || path.contains("/simulated/")
}

#[test]
fn structs_of_daemons_are_made_of_parts() {
    let mut large = Vec::new();
    for daemon in ["controller", "agent", "keeper", "node"] {
        for (path, text) in sources(&format!("crates/{daemon}/src")) {
            let of_file = structs(&text).into_iter().filter(|(_, fields)| *fields > FIELDS_MAX);
            let of_file = of_file.filter(|_| !is_test(&path));
            large.extend(of_file.map(|(name, fields)| format!("{path}: {name} has {fields}")));
        }
    }
    assert!(large.is_empty(), "more than {FIELDS_MAX} fields: {large:#?}");
}

#[test]
fn the_count_of_fields_sees_fields_alone() {
    let text = concat!(
        "pub(super) struct A {\n    /// B: c\n    pub(crate) b: u8,\n",
        "    r#c: Vec<D>,\n    pub d: E,\n}\n",
        "struct F(u8);\nimpl A {\n    fn g(&self) {}\n}\n",
    );
    assert_eq!(structs(text), [("A".to_owned(), 3)]);
}

#[test]
fn no_crate_holds_too_much_of_the_code() {
    let mut lines: BTreeMap<String, usize> = BTreeMap::new();
    for (path, text) in sources("crates").iter().filter(|(path, _)| !is_test(path)) {
        let inner = path.split("/crates/").last().unwrap_or_default();
        let name = inner.split('/').next().unwrap_or_default();
        *lines.entry(name.to_owned()).or_default() += code_lines(text);
    }
    let all: usize = lines.values().sum();
    lines.retain(|_, lines| *lines * 100 > all * CRATE_PERCENT_MAX);
    assert!(lines.is_empty(), "more than {CRATE_PERCENT_MAX} % of {all} lines: {lines:?}");
}

#[test]
fn the_state_of_the_core_imports_no_decision() {
    for (path, text) in sources("crates/core/src/state") {
        let decides = text.lines().find(|line| {
            line.split("crate::").skip(1).any(|place| !place.starts_with("state"))
                && !line.trim_start().starts_with("//")
        });
        assert_eq!(decides, None, "{path}");
    }
}

#[test]
fn the_first_pages_are_short() {
    for (page, most) in FIRST_PAGES {
        let lines = fs::read_to_string(root().join(page)).unwrap().lines().count();
        assert!(lines <= most, "{page} has {lines} lines; at most {most}");
    }
}
