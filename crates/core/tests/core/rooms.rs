//! Which folder of the core may use which.

use std::fs;
use std::path::Path;

/// What the code of a file names, without comments: every path that begins with `crate::`.
fn paths_of(source: &str) -> impl Iterator<Item = &str> {
    let code = source.lines().filter(|line| !line.trim_start().starts_with("//"));
    code.flat_map(|line| line.split("crate::").skip(1))
}

#[test]
fn state_imports_no_decision() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/state");
    let (mut files, mut found) = (0, Vec::new());
    for entry in fs::read_dir(folder).unwrap().flatten() {
        let source = fs::read_to_string(entry.path()).unwrap();
        files += 1;
        // `super::super` would leave the folder, too.
        let is_outside = |path: &&str| !path.starts_with("state::");
        let outside = paths_of(&source).filter(is_outside).map(str::to_owned);
        let name = entry.file_name();
        found.extend(outside.map(|path| format!("{name:?} uses crate::{path}")));
        if source.contains("super::super::") {
            found.push(format!("{name:?} uses super::super::"));
        }
    }
    assert!(files >= 5, "{files} files");
    assert!(found.is_empty(), "state/ holds data, decisions stand above it: {found:#?}");
}
