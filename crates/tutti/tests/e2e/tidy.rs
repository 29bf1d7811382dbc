//! Rules about the source that no compiler checks.

use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// All Rust files below, with their text.
fn sources(below: &str) -> Vec<(String, String)> {
    fn walk(path: &Path, found: &mut Vec<(String, String)>) {
        for entry in fs::read_dir(path).unwrap().flatten() {
            let path = entry.path();
            if path.is_dir() {
                walk(&path, found);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push((path.display().to_string(), fs::read_to_string(&path).unwrap()));
            }
        }
    }
    let mut found = Vec::new();
    walk(&root().join(below), &mut found);
    assert!(!found.is_empty(), "{below} has no source");
    found
}

/// Where a text stands, as `file:line`.
fn places(files: &[(String, String)], wanted: impl Fn(&str) -> bool) -> Vec<String> {
    let mut places = Vec::new();
    for (name, text) in files {
        let lines = text.lines().enumerate().filter(|(_, line)| wanted(line));
        places
            .extend(lines.map(|(number, line)| format!("{name}:{}: {}", number + 1, line.trim())));
    }
    places
}

#[test]
fn nothing_is_left_to_do_later() {
    let marks = [
        ["FIX", "ME"].concat(),
        ["TO", "DO"].concat(),
        ["XX", "X"].concat(),
        ["HA", "CK"].concat(),
    ];
    let is_word = |line: &str, mark: &str| {
        line.split(|c: char| !c.is_ascii_alphanumeric()).any(|word| word == mark)
    };
    let found = places(&sources("crates"), |line| marks.iter().any(|mark| is_word(line, mark)));
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn what_may_be_unsafe_is_in_one_crate() {
    let word = ["un", "safe"].concat();
    let is_code = |line: &str| {
        let code = line.split("//").next().unwrap_or("");
        code.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).any(|w| w == word)
    };
    // That of the function with which the program begins.
    let name = format!("#[{word}(no_mangle)]");
    let is_name = |line: &str| line.trim() == name;
    for crate_name in ["core", "wire", "tutti"] {
        let files = sources(&format!("crates/{crate_name}"));
        let found = places(&files, |line| is_code(line) && !is_name(line));
        assert!(found.is_empty(), "{found:#?}");
        let names = places(&files, is_name);
        assert_eq!(names.len(), usize::from(crate_name == "tutti"), "{names:#?}");
    }
    let tops = [("core/src/lib.rs", "forbid"), ("wire/src/lib.rs", "forbid")];
    for (top, how) in tops.into_iter().chain([("tutti/src/main.rs", "deny")]) {
        let text = fs::read_to_string(root().join("crates").join(top)).unwrap();
        let wanted = format!("#![{how}(unsafe_code)]");
        assert!(text.contains(&wanted), "{top} does not {how} it");
    }
}

#[test]
fn roles_meet_over_the_wire_alone() {
    let roles = ["keeper", "agent", "controller"];
    for role in roles {
        let files = sources(&format!("crates/tutti/src/{role}"));
        for other in roles.iter().filter(|other| **other != role) {
            let (inside, above) = (format!("crate::{other}"), format!("super::super::{other}"));
            let found = places(&files, |line| line.contains(&inside) || line.contains(&above));
            assert!(found.is_empty(), "{role} knows {other}: {found:#?}");
        }
        for front in ["crate::front", "crate::cmd", "crate::output"] {
            let found = places(&files, |line| line.contains(front));
            assert!(found.is_empty(), "{role} knows {front}: {found:#?}");
        }
    }
    let front = sources("crates/tutti/src/front");
    for role in roles {
        let found = places(&front, |line| line.contains(&format!("crate::{role}")));
        assert!(found.is_empty(), "front knows {role}: {found:#?}");
    }
}

#[test]
fn the_core_and_the_wire_stay_pure() {
    for crate_name in ["core", "wire"] {
        let lib = root().join("crates").join(crate_name).join("src/lib.rs");
        let text = fs::read_to_string(lib).unwrap();
        assert!(text.contains("no_std"), "{crate_name} may do I/O");
        let manifest = root().join("crates").join(crate_name).join("Cargo.toml");
        let manifest = fs::read_to_string(manifest).unwrap();
        for other in ["tutti-linux", "libc", "nix"] {
            assert!(!manifest.contains(other), "{crate_name} depends on {other}");
        }
    }
    let manifest = fs::read_to_string(root().join("crates/linux/Cargo.toml")).unwrap();
    assert!(!manifest.contains("tutti-core") && !manifest.contains("tutti-wire"));
}

#[test]
fn no_line_is_longer_than_the_formatter_allows_text_to_be() {
    let found = places(&sources("crates"), |line| line.chars().count() > 160);
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn every_file_that_the_readme_and_the_map_name_exists() {
    let map = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let words = map.split('`').skip(1).step_by(2);
    let files = words.filter(|word| word.ends_with(".rs") && !word.contains(['{', '*', ' ']));
    let known = sources("crates");
    for file in files {
        let end = format!("/{file}");
        assert!(known.iter().any(|(name, _)| name.ends_with(&end)), "the map names {file}");
    }
}
