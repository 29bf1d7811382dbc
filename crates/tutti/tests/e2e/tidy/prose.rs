//! The rules of CONTRIBUTING.md for prose: banned words, length of sentences and lines.
//!
//! A page of [`PAGES`] has no banned word, no long sentence and no long line. Comments of the code
//! are older than the rules: `tests/prose-counts.txt` has, for each crate, how many banned words
//! and how many long lines its comments have. Both only fall.

use std::fmt::Write as _;
use std::fs;

use super::{root, sources, walk_repository, words_of};

/// Pages under the rules, by file or by directory.
#[rustfmt::skip]
const PAGES: &[&str] = &[
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "README.md",
    "SECURITY.md",
    "docs/admin",
    "docs/benchmarks",
    "docs/decisions",
    "docs/guide",
    "docs/internals",
    "docs/reference/events.md",
    "docs/reference/glossary.md",
    "docs/reference/json.md",
    "docs/reference/metrics.md",
];

/// Words that stand for a person where the subject is a process, a job or a program.
const BANNED_WORDS: [&str; 9] =
    ["who", "whoever", "whom", "nobody", "somebody", "everybody", "he", "his", "him"];

/// Phrases that have a word of the field. Plain text, lower case.
const BANNED_PHRASES: [&str; 15] = [
    "hand in",
    "hands in",
    "handed in",
    "handing in",
    "mend",
    "mends",
    "mended",
    "set aside",
    "sets aside",
    "go over to",
    "goes over to",
    "be told",
    "is told",
    "are told",
    "those who",
];

/// Maximum words of a sentence.
const SENTENCE_MAX: usize = 25;
/// Maximum mean of a page's sentences, in words.
const MEAN_MAX: usize = 14;
/// Maximum columns of a line. Rows of tables can't be broken and have no limit.
const COLUMNS_MAX: usize = 100;
/// How far a crate's count may fall before its line of the table must follow.
const COUNT_SLACK: usize = 25;

/// The banned words and phrases of a text, in its order, with repetitions.
pub(crate) fn banned(text: &str) -> Vec<&'static str> {
    let lower = text.to_lowercase();
    let words: Vec<&str> = lower
        .split(|c: char| !(c.is_alphanumeric() || c == '_' || c == '\''))
        .filter(|word| !word.is_empty())
        .collect();
    let mut found = Vec::new();
    for start in 0..words.len() {
        found.extend(BANNED_WORDS.into_iter().filter(|banned| words[start] == *banned));
        found.extend(BANNED_PHRASES.into_iter().filter(|phrase| {
            let mut rest = words[start..].iter();
            phrase.split(' ').all(|part| rest.next() == Some(&part))
        }));
    }
    found
}

/// One sentence of a page: where its paragraph begins, and its text without markup.
struct Sentence {
    line: usize,
    text: String,
}

impl Sentence {
    fn words(&self) -> usize {
        self.text.split_whitespace().filter(|w| w.contains(char::is_alphanumeric)).count()
    }
}

/// The text of a line of Markdown: a piece of code counts as one word, a link as its text.
fn plain(line: &str) -> String {
    let mut text = String::new();
    for (number, piece) in line.split('`').enumerate() {
        text.push_str(if number % 2 == 0 { piece } else { "code" });
    }
    while let Some(middle) = text.find("](") {
        let Some(end) = text[middle..].find(')') else { break };
        text.replace_range(middle..=middle + end, "");
    }
    text.replace(['[', '*'], "")
}

/// The sentences of a page. Blocks of code, tables and headings have none.
fn sentences(page: &str) -> Vec<Sentence> {
    let (mut blocks, mut is_code, mut is_open) = (Vec::<(usize, String)>::new(), false, false);
    for (number, line) in page.lines().enumerate() {
        let text = line.trim();
        if text.starts_with("```") {
            is_code = !is_code;
        }
        let is_prose = !is_code && !text.is_empty() && !text.starts_with(['|', '#', '`', '!', '<']);
        let is_prose = is_prose || (!is_code && text.starts_with('`') && !text.starts_with("```"));
        let item = text.split_once(' ').filter(|(mark, _)| {
            ["-", "*", "+"].contains(mark)
                || mark.strip_suffix('.').is_some_and(|n| n.parse::<u32>().is_ok())
        });
        if !is_prose {
            is_open = false;
        } else if let (true, None) = (is_open, item) {
            let (_, block) = blocks.last_mut().expect("an open block");
            *block += " ";
            *block += text;
        } else {
            blocks.push((number + 1, item.map_or(text, |(_, rest)| rest).to_owned()));
            is_open = true;
        }
    }
    let mut found = Vec::new();
    for (line, block) in blocks {
        let mut text = String::new();
        for word in plain(&block).split_whitespace() {
            text += word;
            text += " ";
            if word.trim_end_matches([')', '"', '\'']).ends_with(['.', '!', '?', ':']) {
                found.push(Sentence { line, text: std::mem::take(&mut text) });
            }
        }
        if !text.is_empty() {
            found.push(Sentence { line, text });
        }
    }
    found
}

/// What breaks the rules in a page, one line each.
pub(crate) fn problems(name: &str, page: &str) -> Vec<String> {
    let mut found = Vec::new();
    let (mut is_code, mut is_output) = (false, false);
    for (number, line) in page.lines().enumerate() {
        is_code ^= line.trim().starts_with("```");
        // What a command prints is shown as it is.
        is_output = is_code && (is_output || line.trim() == "```text");
        let is_breakable = !line.trim().starts_with('|') && line.trim().contains(' ');
        if is_breakable && !is_output && line.chars().count() > COLUMNS_MAX {
            found.push(format!("{name}:{}: longer than {COLUMNS_MAX} columns", number + 1));
        }
        if !is_code {
            let words = banned(line);
            found.extend(words.iter().map(|word| format!("{name}:{}: \"{word}\"", number + 1)));
        }
    }
    let sentences = sentences(page);
    let words: usize = sentences.iter().map(Sentence::words).sum();
    for sentence in &sentences {
        if sentence.words() > SENTENCE_MAX {
            let (line, count) = (sentence.line, sentence.words());
            let begin: String = sentence.text.chars().take(50).collect();
            found.push(format!("{name}:{line}: a sentence of {count} words: {begin}..."));
        }
    }
    if words > MEAN_MAX * sentences.len() {
        let (whole, tenth) = (words / sentences.len(), words * 10 / sentences.len() % 10);
        found.push(format!("{name}: sentences have {whole}.{tenth} words on average"));
    }
    found
}

/// All Markdown pages at a path of the repository, by their path in it, with their text.
pub(crate) fn pages(path: &str) -> Vec<(String, String)> {
    let whole = root().join(path);
    if whole.is_file() {
        return vec![(path.to_owned(), fs::read_to_string(whole).unwrap())];
    }
    let mut found = Vec::new();
    for entry in fs::read_dir(&whole).unwrap_or_else(|_| panic!("there is no {path}")).flatten() {
        let inner = format!("{path}/{}", entry.file_name().to_str().unwrap());
        if entry.path().is_dir() || inner.ends_with(".md") {
            found.extend(pages(&inner));
        }
    }
    found.sort();
    found
}

#[test]
fn pages_follow_the_rules_for_prose() {
    let of_pages = PAGES.iter().flat_map(|path| pages(path));
    let found: Vec<String> = of_pages.flat_map(|(name, text)| problems(&name, &text)).collect();
    assert!(found.is_empty(), "CONTRIBUTING.md has the rules for prose; against them:\n{found:#?}");
}

/// The pages that are made from help texts and tables of the code.
const MADE_PAGES: &str = "docs/reference";

#[test]
fn what_users_are_shown_has_no_banned_word() {
    let mut found = Vec::new();
    for (name, text) in pages(MADE_PAGES) {
        for (number, line) in (1..).zip(text.lines()) {
            found.extend(banned(line).iter().map(|word| format!("{name}:{number}: \"{word}\"")));
        }
    }
    assert!(found.is_empty(), "change the help or the table that they are made from: {found:#?}");
}

/// The text of a source file's literals, without what they fill in, up to its module of tests.
fn literals(source: &str) -> Vec<String> {
    let product = source.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let code: String = product
        .lines()
        .map(|line| if line.trim_start().starts_with("//") { "" } else { line })
        .collect::<Vec<_>>()
        .join("\n")
        .replace("\\\"", "'")
        .replace("'\"'", "' '");
    let texts = code.split('"').skip(1).step_by(2);
    // What `{...}` fills in is a name of the code.
    let plain = |text: &str| {
        let mut pieces = text.split('{');
        let first = pieces.next().unwrap_or_default().to_owned();
        pieces.fold(first, |all, piece| all + piece.split_once('}').map_or("", |(_, rest)| rest))
    };
    texts.map(plain).collect()
}

/// Words of the list that are something else in a literal: a name that the system has.
const NAMES_IN_LITERALS: [&str; 1] = ["nobody"];

#[test]
fn messages_have_no_banned_word() {
    let mut found = Vec::new();
    for (name, source) in sources("crates") {
        let is_product = name.contains("/src/") && !name.contains("/tests");
        for text in literals(&source).into_iter().filter(|_| is_product) {
            let is_name = |word: &str| NAMES_IN_LITERALS.contains(&word) && text.trim() == word;
            for word in banned(&text).into_iter().filter(|word| !is_name(word)) {
                found.push(format!("{name}: \"{word}\" in: {}", text.trim()));
            }
        }
    }
    assert!(found.is_empty(), "CONTRIBUTING.md has the rules for messages: {found:#?}");
}

#[test]
fn the_prose_check_finds_what_it_is_for() {
    let source =
        "// \"who\"\nlet who = \"nobody {who} \\\"told\\\"\";\n#[cfg(test)]\nmod tests {\"he\"}";
    assert_eq!(literals(source), ["nobody  'told'"]);
    assert_eq!(
        banned("Nobody is told whose; the whole. He hands in"),
        ["nobody", "is told", "he", "hands in"]
    );
    let page = "# A title with no end\n\nOne `two three` [four](a/b.md). Five\nsix?\n\n\
                - seven\n- eight nine\n\n| who | no sentence |\n\n```sh\nnobody # code\n```\n";
    let counts: Vec<usize> = sentences(page).iter().map(Sentence::words).collect();
    assert_eq!(counts, [3, 2, 1, 2]);
    assert_eq!(problems("page", page), ["page:9: \"who\""]);
    let long = ["word"; SENTENCE_MAX + 1].join(" ");
    assert_eq!(problems("page", &long).len(), 3, "line, sentence and mean");
}

/// Whether a word of a page for contributors is a path in the repository, or the end of one.
fn is_path(word: &str) -> bool {
    let tops = ["crates", "docs", "tests", "fuzz", "core", "wire", "linux", "tutti", "sim"];
    let tops = tops.into_iter().chain(["trace", "secure", "journal", "testbed"]);
    [".rs", ".md", ".txt"].iter().any(|ending| word.ends_with(ending) && word.len() > 4)
        || word.split_once('/').is_some_and(|(top, _)| tops.into_iter().any(|it| it == top))
}

#[test]
fn pages_for_contributors_name_files_that_exist() {
    let mut known = Vec::new();
    walk_repository(&root(), &mut known);
    let mut missing = Vec::new();
    for (name, text) in
        ["ARCHITECTURE.md", "CONTRIBUTING.md", "docs/internals"].into_iter().flat_map(pages)
    {
        // The rule is about names in prose and tables; blocks of code have made-up ones.
        let mut is_code = false;
        let prose = text.lines().filter(|line| {
            let is_fence = line.starts_with("```");
            is_code ^= is_fence;
            !is_code && !is_fence
        });
        let words = words_of(&prose.collect::<Vec<_>>().join("\n"));
        let words = words.iter().map(|word| word.trim_end_matches('/'));
        for word in words.filter(|word| is_path(word) && !word.starts_with("../")) {
            let end = format!("/{word}");
            if !known.iter().any(|path| path == word || path.ends_with(&end)) {
                missing.push(format!("{name} names {word}"));
            }
        }
    }
    assert!(missing.is_empty(), "{missing:#?}");
}

/// What of a text's comments is against the rules: banned words, and lines that are too long.
fn count_in_comments<'a>(lines: impl Iterator<Item = &'a str>) -> [usize; 2] {
    let (mut comments, mut long) = (Vec::new(), 0);
    for line in lines {
        let code = line.trim_start();
        if code.starts_with("//") {
            long += usize::from(line.chars().count() > COLUMNS_MAX && code.contains(' '));
            comments.push(code);
        } else if let Some(at) = line.find(" // ") {
            // A comment behind code; `://` is an address.
            comments.push(&line[at..]);
        }
    }
    [banned(&comments.join("\n")).len(), long]
}

#[test]
fn comments_are_counted_by_words_and_lines() {
    let long = format!("    // {}", "word ".repeat(20));
    let text = ["let who = 1; // whom", "//! nobody", long.as_str(), "\"// who\""];
    assert_eq!(count_in_comments(text.into_iter()), [2, 1]);
}

#[test]
fn banned_words_and_long_lines_in_comments_only_become_fewer() {
    let path = root().join("tests/prose-counts.txt");
    let table = fs::read_to_string(&path).unwrap_or_default();
    let mut crates: Vec<String> = fs::read_dir(root().join("crates"))
        .unwrap()
        .flatten()
        .filter(|entry| entry.path().join("Cargo.toml").exists())
        .map(|entry| entry.file_name().into_string().unwrap())
        .collect();
    crates.sort();
    let (mut found, mut current) = (String::new(), String::new());
    for name in &crates {
        let files = sources(&format!("crates/{name}"));
        let now = count_in_comments(files.iter().flat_map(|(_, text)| text.lines()));
        writeln!(current, "{name} {} {}", now[0], now[1]).unwrap();
        let mut lines = table.lines().map(|line| line.split(' ').collect::<Vec<_>>());
        let line = lines.find(|line| line[0] == name).unwrap_or_else(|| vec![name, "0", "0"]);
        for (column, what) in ["banned words", "lines longer than 100 columns"].iter().enumerate() {
            let before: usize = line[column + 1].parse().expect("a line is: CRATE WORDS LINES");
            let now = now[column];
            if now > before {
                writeln!(found, "{name}: {now} {what} in comments, {before} before: change yours")
                    .unwrap();
            } else if now + COUNT_SLACK < before {
                writeln!(
                    found,
                    "{name}: {now} {what} in comments, {before} before: well done; \
                     TUTTI_WRITE_COUNTS=1 cargo test -p tutti --test e2e tidy"
                )
                .unwrap();
            }
        }
    }
    if std::env::var_os("TUTTI_WRITE_COUNTS").is_some() {
        fs::write(&path, current).unwrap();
    } else {
        assert!(
            found.is_empty(),
            "CONTRIBUTING.md has the words; tests/prose-counts.txt:\n{found}"
        );
    }
}
