//! The licences of all crates that the workspace depends on, against `packaging/licences.allowed`.

use serde_json::Value;
use std::path::Path;
use std::process::Command;

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// Whether an expression such as `(MIT OR Apache-2.0) AND Unicode-3.0` can be met by these
/// licences.
fn is_allowed(expression: &str, allowed: &[&str]) -> bool {
    let text = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let words: Vec<&str> = text.split_whitespace().collect();
    let mut rest = words.as_slice();
    let verdict = either(&mut rest, allowed);
    verdict == Some(true) && rest.is_empty()
}

/// `None` if the expression is malformed.
fn either(rest: &mut &[&str], allowed: &[&str]) -> Option<bool> {
    let mut verdict = both(rest, allowed)?;
    while rest.first() == Some(&"OR") {
        *rest = &rest[1..];
        verdict |= both(rest, allowed)?;
    }
    Some(verdict)
}

fn both(rest: &mut &[&str], allowed: &[&str]) -> Option<bool> {
    let mut verdict = one(rest, allowed)?;
    while rest.first() == Some(&"AND") {
        *rest = &rest[1..];
        verdict &= one(rest, allowed)?;
    }
    Some(verdict)
}

fn one(rest: &mut &[&str], allowed: &[&str]) -> Option<bool> {
    let (first, after) = rest.split_first()?;
    *rest = after;
    if *first == "(" {
        let verdict = either(rest, allowed)?;
        let (close, after) = rest.split_first()?;
        *rest = after;
        return (*close == ")").then_some(verdict);
    }
    if rest.first() == Some(&"WITH") {
        // A licence with an exception is another one.
        *rest = rest.get(2..)?;
        return Some(false);
    }
    Some(allowed.contains(first))
}

#[test]
fn expressions_of_licences_are_evaluated() {
    let allowed = ["MIT", "Apache-2.0"];
    for good in [
        "MIT",
        "GPL-3.0-only OR MIT",
        "MIT/GPL-2.0",
        "(GPL-3.0-only OR MIT) AND Apache-2.0",
        "Apache-2.0 WITH LLVM-exception OR MIT",
    ] {
        assert!(is_allowed(good, &allowed), "{good}");
    }
    for bad in [
        "",
        "GPL-3.0-only",
        "MIT AND GPL-3.0-only",
        "(MIT",
        "MIT Apache-2.0",
        "Apache-2.0 WITH LLVM-exception",
        "MIT AND (GPL-2.0 OR GPL-3.0-only)",
    ] {
        assert!(!is_allowed(bad, &allowed), "{bad}");
    }
}

#[test]
fn the_licence_of_each_dependency_is_allowed() {
    let list = std::fs::read_to_string(root().join("packaging/licences.allowed")).unwrap();
    let allowed: Vec<&str> =
        list.lines().map(str::trim).filter(|it| !it.is_empty() && !it.starts_with('#')).collect();
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["metadata", "--locked", "--offline", "--format-version", "1", "--filter-platform"]);
    let made =
        cargo.arg(format!("{}-unknown-linux-gnu", std::env::consts::ARCH)).current_dir(root());
    let made = made.output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let metadata: Value = serde_json::from_slice(&made.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    assert!(packages.len() > 50, "{}", packages.len());
    let refused = packages.iter().filter_map(|package| {
        let licence = package["license"].as_str().unwrap_or_default();
        let name = package["name"].as_str().unwrap_or_default();
        (!is_allowed(licence, &allowed)).then(|| format!("{name}: {licence:?}"))
    });
    let refused: Vec<String> = refused.collect();
    assert!(refused.is_empty(), "not in packaging/licences.allowed: {refused:#?}");
}
