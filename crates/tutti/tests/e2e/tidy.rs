//! Rules about the source that no compiler checks.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

mod house;
mod prose;

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
fn what_may_be_unsafe_is_in_two_crates() {
    let word = ["un", "safe"].concat();
    let is_code = |line: &str| {
        let code = line.split("//").next().unwrap_or("");
        code.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).any(|w| w == word)
    };
    // That of the function with which the program begins.
    let name = format!("#[{word}(no_mangle)]");
    let is_name = |line: &str| line.trim() == name;
    let safe = [
        "types",
        "core",
        "wire",
        "node",
        "controller",
        "agent",
        "keeper",
        "client",
        "pvm",
        "notifier",
        "faultsim",
        "bench",
        "web",
        "tutti",
    ];
    for crate_name in safe {
        let files = sources(&format!("crates/{crate_name}"));
        let found = places(&files, |line| is_code(line) && !is_name(line));
        assert!(found.is_empty(), "{found:#?}");
        let names = places(&files, is_name);
        assert_eq!(names.len(), usize::from(crate_name == "tutti"), "{names:#?}");
    }
    for crate_name in safe {
        let how = if ["types", "core", "wire"].contains(&crate_name) { "forbid" } else { "deny" };
        let is_program = ["tutti", "faultsim", "bench"].contains(&crate_name);
        let top = format!("{crate_name}/src/{}.rs", if is_program { "main" } else { "lib" });
        let text = fs::read_to_string(root().join("crates").join(&top)).unwrap();
        let wanted = format!("#![{how}(unsafe_code)]");
        assert!(text.contains(&wanted), "{top} does not {how} it");
    }
}

#[test]
fn the_core_and_the_wire_stay_pure() {
    for crate_name in ["types", "core", "wire"] {
        let lib = root().join("crates").join(crate_name).join("src/lib.rs");
        let text = fs::read_to_string(lib).unwrap();
        // Its tests may.
        let is_pure = text.lines().any(|line| line == "#![cfg_attr(not(test), no_std)]");
        assert!(is_pure, "{crate_name} may do I/O");
        let manifest = root().join("crates").join(crate_name).join("Cargo.toml");
        let manifest = fs::read_to_string(manifest).unwrap();
        for other in ["tutti-linux", "libc", "nix"] {
            assert!(!manifest.contains(other), "{crate_name} depends on {other}");
        }
    }
    let manifest = fs::read_to_string(root().join("crates/linux/Cargo.toml")).unwrap();
    assert!(!manifest.contains("\ntutti-"), "it knows no other crate of ours");
}

/// Crates that give the core events, play them again, or look at what it has made of them. All
/// others know its words only, which are in `types`.
const DRIVERS: [&str; 8] =
    ["bench", "controller", "experiments", "faultsim", "journal", "policy", "sim", "tutti"];

/// What of the verbs does so, and the test that makes a journal as another release could have
/// written it.
const DRIVERS_WITHIN: [&str; 4] = [
    "crates/experiments/src/replay/",
    "crates/experiments/src/sim/parts.rs",
    "crates/experiments/src/sim/program.rs",
    "crates/tutti/tests/e2e/recovery.rs",
];

#[test]
fn only_drivers_see_inside_the_core() {
    let name = ["tutti", "core"].join("_");
    let mut users = BTreeSet::new();
    for (file, text) in sources("crates") {
        let path = Path::new(&file).strip_prefix(root()).unwrap().to_str().unwrap();
        if path.starts_with("crates/core/") || !text.contains(&name) {
            continue;
        }
        let within = DRIVERS_WITHIN.iter().any(|driver| path.starts_with(driver));
        let is_of_verbs =
            ["crates/tutti/", "crates/experiments/"].iter().any(|it| path.starts_with(it));
        assert!(within || !is_of_verbs, "{path} looks into the core");
        users.extend(path.split('/').nth(1).map(str::to_owned));
    }
    assert_eq!(users.iter().collect::<Vec<_>>(), DRIVERS);
}

#[test]
fn no_line_is_longer_than_the_formatter_allows_text_to_be() {
    let found = places(&sources("crates"), |line| line.chars().count() > 160);
    assert!(found.is_empty(), "{found:#?}");
}

/// The files and directories of the repository below a directory, by their paths in it.
fn walk_repository(below: &Path, found: &mut Vec<String>) {
    for entry in fs::read_dir(below).unwrap().flatten() {
        let path = entry.path();
        if [".git", "target"].map(Path::new).into_iter().any(|left_out| path.ends_with(left_out)) {
            continue;
        }
        found.push(path.strip_prefix(root()).unwrap().display().to_string());
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            walk_repository(&path, found);
        }
    }
}

/// What a document has between backticks and in blocks of code, word by word, and where its links
/// lead here.
fn words_of(document: &str) -> Vec<String> {
    let (mut words, mut prose, mut is_code) = (Vec::new(), String::new(), false);
    for line in document.lines() {
        if line.starts_with("```") {
            is_code = !is_code;
        } else if is_code {
            words.extend(line.split_whitespace().map(str::to_owned));
        } else {
            prose.push_str(line);
            prose.push('\n');
        }
    }
    let quoted = prose.split('`').skip(1).step_by(2).flat_map(str::split_whitespace);
    words.extend(quoted.map(str::to_owned));
    let links = prose.split("](").skip(1).filter_map(|rest| rest.split([')', '#']).next());
    words.extend(links.filter(|link| !link.contains("://")).map(str::to_owned));
    // `{a,b}.rs` are two.
    let each = |word: String| -> Vec<String> {
        let parts = word.split_once('{').and_then(|(before, rest)| {
            let (list, after) = rest.split_once('}')?;
            Some(list.split(',').map(|part| format!("{before}{part}{after}")).collect())
        });
        parts.unwrap_or_else(|| vec![word])
    };
    words.into_iter().flat_map(each).collect()
}

#[test]
fn every_file_that_the_readme_and_the_map_name_exists() {
    let document = "`a/{b,c}.rs` and [d](e/f.md#g), [h](https://i)\n```sh\nj/k # l\n```\n`m n/`";
    let words = ["j/k", "#", "l", "a/b.rs", "a/c.rs", "m", "n/", "e/f.md"];
    assert_eq!(words_of(document), words);

    let mut known = Vec::new();
    walk_repository(&root(), &mut known);
    let read = |document: &str| words_of(&fs::read_to_string(root().join(document)).unwrap());
    // Others are files of users.
    let tops = ["crates", "docs", "tests", "fuzz", ".ci"];
    let is_ours = |word: &String| {
        word.ends_with(".md") || word.split_once('/').is_some_and(|(top, _)| tops.contains(&top))
    };
    let of_readme: Vec<String> = read("README.md").into_iter().filter(is_ours).collect();
    for word in of_readme {
        assert!(known.contains(&word), "README.md names {word}");
    }
    // In the map paths are short: a file may be named by the end of its path.
    let of_map =
        read("ARCHITECTURE.md").into_iter().map(|word| word.trim_end_matches('/').to_owned());
    let of_map: Vec<String> = of_map
        .filter(|word| word.contains(['/', '.']) && word.contains(char::is_alphanumeric))
        .collect();
    assert!(of_map.len() > 40, "{of_map:?}");
    for word in of_map {
        let end = format!("/{word}");
        let is_it = |path: &String| *path == word || path.ends_with(&end);
        assert!(known.iter().any(is_it), "the map names {word}");
    }
}

/// The text without blocks of code and what stands between backticks, line by line.
fn prose_of(page: &str) -> Vec<String> {
    let mut is_code = false;
    let line = |line: &str| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        match is_code || is_fence {
            true => String::new(),
            false => line.split('`').step_by(2).collect::<Vec<_>>().join("`"),
        }
    };
    page.lines().map(line).collect()
}

/// How GitHub names a heading in links.
fn anchor_of(heading: &str) -> String {
    let kept = |c: &char| c.is_alphanumeric() || " -_".contains(*c);
    heading.trim().to_lowercase().chars().filter(kept).collect::<String>().replace(' ', "-")
}

/// What a page links to in the repository: each file, and the heading in it.
fn links_of(page: &str) -> Vec<(String, Option<String>)> {
    let prose = prose_of(page).join("\n");
    let targets = prose.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let ours = targets.filter(|target| !target.contains("://"));
    let parts = ours.map(|target| match target.split_once('#') {
        Some((file, heading)) => (file.to_owned(), Some(heading.to_owned())),
        None => (target.to_owned(), None),
    });
    parts.collect()
}

#[test]
fn tidy_links_between_pages_lead_somewhere() {
    let page = "[a](b.md#c) `[d](e)` [f](https://g)\n```\n[h](i)\n```\n";
    assert_eq!(links_of(page), [("b.md".to_owned(), Some("c".to_owned()))]);

    let mut known = Vec::new();
    walk_repository(&root(), &mut known);
    let mut found = Vec::new();
    for path in known.iter().filter(|path| path.ends_with(".md")) {
        let file = root().join(path);
        for (target, heading) in links_of(&fs::read_to_string(&file).unwrap()) {
            let there = if target.is_empty() { file.clone() } else { file.with_file_name(&target) };
            let Some(heading) = heading.filter(|_| there.extension().is_some_and(|it| it == "md"))
            else {
                found.extend((!there.exists()).then(|| format!("{path}: {target}")));
                continue;
            };
            let text = fs::read_to_string(&there).unwrap_or_default();
            let headings = text.lines().filter(|line| line.starts_with('#'));
            let anchors = headings.map(|line| anchor_of(line.trim_start_matches('#')));
            let is_there = anchors.into_iter().any(|anchor| anchor == heading);
            found.extend((!is_there).then(|| format!("{path}: {target}#{heading}")));
        }
    }
    assert!(found.is_empty(), "{found:#?}");
}

/// `tests/run` leaves these out and runs them later: a name of no test would hide that one is run
/// beside others.
#[test]
fn the_list_of_tests_that_run_alone_names_tests() {
    let program = std::env::current_exe().unwrap();
    let listed = Command::new(program).arg("--list").output().unwrap();
    let tests = String::from_utf8(listed.stdout).unwrap();
    let tests: BTreeSet<&str> =
        tests.lines().filter_map(|line| line.strip_suffix(": test")).collect();
    let alone: Vec<&str> = crate::harness::ALONE.lines().collect();
    let unknown: Vec<&&str> = alone.iter().filter(|name| !tests.contains(*name)).collect();
    assert!(unknown.is_empty(), "no test has these names: {unknown:?}");
    assert!(alone.is_sorted(), "crates/tutti/tests/e2e/alone.txt is not sorted");
}
