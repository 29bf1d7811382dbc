//! `srun --multi-prog`: a program for each task, as a file has it.
//!
//! A line of the file names tasks, then a program and its arguments: `0-2,5 ./solver --rank %t`.
//! `%t` is the number of the task, `%o` its place among the tasks of the line, both from 0. `*`
//! stands for all tasks that no other line names. Every task runs one shell, which replaces itself
//! by the program of its task.

use std::fmt::Write;
use tutti_wire::units::shown;

/// The largest file: as a script, it is an argument of the shell.
pub(super) const BYTES_MAX: u64 = 64 << 10;

/// A line of the file.
#[derive(Debug, PartialEq, Eq)]
struct Entry {
    /// The first and last task of each range; none: all that no other line names.
    ranges: Vec<(u32, u32)>,
    words: Vec<String>,
}

/// What a task runs: a script of a shell that becomes the program of its task.
///
/// # Errors
/// A line that can't be understood, or a task that two lines name, or none of those below `tasks`.
pub(super) fn script_of(text: &str, tasks: Option<u32>) -> Result<String, String> {
    let entries = entries_of(text)?;
    check(&entries, tasks)?;
    let mut script = String::from("r=$TUTTI_RANK\n");
    let (others, named): (Vec<&Entry>, Vec<&Entry>) =
        entries.iter().partition(|entry| entry.ranges.is_empty());
    for entry in named {
        let mut before = 0u32;
        for &(first, last) in &entry.ranges {
            let _ = writeln!(
                script,
                "if [ \"$r\" -ge {first} ] && [ \"$r\" -le {last} ]; then o=$((r - {first} + {before})); \
                 exec {}; fi",
                quoted(&entry.words)
            );
            before = before.saturating_add(last - first + 1);
        }
    }
    match others.first() {
        Some(entry) => {
            let _ = writeln!(script, "o=$r; exec {}", quoted(&entry.words));
        }
        None => script.push_str("echo \"srun: no program for task $r\" >&2; exit 1\n"),
    }
    Ok(script)
}

fn check(entries: &[Entry], tasks: Option<u32>) -> Result<(), String> {
    let mut all: Vec<(u32, u32)> = entries.iter().flat_map(|it| it.ranges.clone()).collect();
    all.sort_unstable();
    let rests = entries.iter().filter(|entry| entry.ranges.is_empty()).count();
    if rests > 1 {
        return Err("two lines begin with *; one names the tasks that are left".into());
    }
    let mut next = 0u32;
    let mut missing = None;
    for &(first, last) in &all {
        if first < next {
            return Err(format!("two lines name task {first}; a task has one program"));
        }
        if first > next && missing.is_none() {
            missing = Some(next);
        }
        next = last.saturating_add(1);
    }
    let missing = missing.or(Some(next)).filter(|_| rests == 0);
    match (missing, tasks) {
        (Some(task), Some(tasks)) if task < tasks => {
            Err(format!("no line names task {task}; add one, or a line with * for all others"))
        }
        _ => Ok(()),
    }
}

fn entries_of(text: &str) -> Result<Vec<Entry>, String> {
    let joined = text.replace("\\\n", " ");
    let mut entries = Vec::new();
    for line in joined.lines() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let wrong = |why: &str| format!("line \"{}\": {why}", shown(line));
        let mut words = words_of(line).ok_or_else(|| wrong("a quote has no end"))?;
        let ranks = words.remove(0);
        if words.is_empty() {
            return Err(wrong("no program is behind the tasks"));
        }
        let ranges = match ranks.as_str() {
            "*" => Vec::new(),
            list => ranges_of(list).ok_or_else(|| wrong("write tasks as 0, 0-3, 0,2-4 or *"))?,
        };
        entries.push(Entry { ranges, words });
    }
    match entries.is_empty() {
        true => Err("no line names tasks and a program, such as: 0-3 ./solver".into()),
        false => Ok(entries),
    }
}

fn ranges_of(list: &str) -> Option<Vec<(u32, u32)>> {
    let range = |item: &str| {
        let (first, last) = item.split_once('-').unwrap_or((item, item));
        let (first, last) = (first.parse().ok()?, last.parse().ok()?);
        (first <= last).then_some((first, last))
    };
    list.split(',').map(range).collect()
}

/// The words of a line: quotes keep blanks, and a backslash the character behind it. `None`: a
/// quote has no end.
fn words_of(line: &str) -> Option<Vec<String>> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    let mut chars = line.chars();
    while let Some(c) = chars.next() {
        match (quote, c) {
            (Some(end), c) if c == end => quote = None,
            (None, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, c) if c.is_whitespace() => words.extend(word.take()),
            (None | Some('"'), '\\') => word.get_or_insert_default().push(chars.next()?),
            (_, c) => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    quote.is_none().then_some(words)
}

/// Words for a shell, with the numbers of the task in place of `%t` and `%o`.
fn quoted(words: &[String]) -> String {
    let one = |word: &String| {
        let text = format!("'{}'", word.replace('\'', "'\\''"));
        text.replace("%t", "'\"$r\"'").replace("%o", "'\"$o\"'")
    };
    words.iter().map(one).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::{entries_of, script_of, words_of};

    #[test]
    fn words_are_split_as_a_shell_splits_them() {
        let words = |line: &str| words_of(line).map(|it| it.join("|"));
        assert_eq!(words("0-2  ./a 'b c' \"d'e\" f\\ g ''").unwrap(), "0-2|./a|b c|d'e|f g|");
        assert_eq!(words("0 'a"), None);
        assert_eq!(words("0 a\\"), None);
    }

    #[test]
    fn each_task_has_one_program() {
        assert!(script_of("0-2 a\n3 b", Some(4)).is_ok());
        assert!(script_of("0-2 a\n* b", Some(40)).is_ok());
        for (text, says) in [
            ("", "no line names tasks"),
            ("# only\n\n", "no line names tasks"),
            ("0", "no program"),
            ("x a", "write tasks as"),
            ("3-1 a", "write tasks as"),
            ("0-2 a\n2 b", "two lines name task 2"),
            ("* a\n* b", "two lines begin with *"),
            ("0 a\n2 b", "no line names task 1"),
            ("0-1 a", "no line names task 2"),
            ("0 'a", "a quote has no end"),
        ] {
            let error = script_of(text, Some(3)).unwrap_err();
            assert!(error.contains(says), "{text:?}: {error}");
        }
        assert_eq!(entries_of("0 a \\\n b").unwrap()[0].words, ["a", "b"]);
    }
}
