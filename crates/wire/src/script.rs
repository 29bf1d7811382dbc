//! Job scripts: the `#TUTTI` lines at their head, and `#SBATCH` lines as far as they mean the same.
//!
//! As for `sbatch`, only the comments before the first command count. A line gives words, quoted as
//! in a shell but with nothing expanded; the words are options of `tutti submit` as they would be
//! typed, and the verb's own parser reads them, so that a script and a command line can't differ.
//! Words of `#SBATCH` lines are translated first: [`Directive::words`] has our spellings only.
//! What can't be translated is an error: an option that is silently dropped is worse.

use crate::limits::SCRIPT_BYTES_MAX;
use crate::pattern::{self, PatternError};
use crate::units::{UnitError, parse_bytes, parse_count, parse_duration, shown};
use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;

/// What a script says about its job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Script {
    /// Its option lines, in their order.
    pub directives: Vec<Directive>,
}

/// The options of one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Directive {
    /// The line, counted from 1.
    pub line: u32,
    /// Options and their values, as they would be typed.
    pub words: Vec<String>,
}

/// Why a script can't be taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScriptError {
    /// The whole script is too long.
    #[error("a script of {bytes} bytes is too long; at most {limit} are accepted")]
    TooLong {
        /// Its length.
        bytes: usize,
        /// The most.
        limit: usize,
    },
    /// An option line is wrong.
    #[error("line {line}: {problem}")]
    Line {
        /// The line, counted from 1.
        line: u32,
        /// What is wrong with it.
        problem: LineProblem,
    },
}

/// What is wrong with a line of a script.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LineProblem {
    /// A quote is opened and not closed on the same line.
    #[error("unclosed quote")]
    UnclosedQuote,
    /// A backslash ends the line.
    #[error("a backslash at the end; an option line can't go on in the next one")]
    TrailingBackslash,
    /// The line is no UTF-8.
    #[error("not UTF-8 text")]
    NotUtf8,
    /// The line ends as on Windows, which no shell accepts.
    #[error("ends in a carriage return; save the script with Unix line ends (dos2unix)")]
    CarriageReturn,
    /// A word is neither an option nor the value of one.
    #[error("'{word}' is no option; the program and its arguments belong below the option lines")]
    NotAnOption {
        /// The word.
        word: String,
    },
    /// An option of `sbatch` that has no meaning here.
    #[error("tutti has nothing for sbatch's {option}; {hint}")]
    UnknownOption {
        /// The option.
        option: String,
        /// What to do.
        hint: &'static str,
    },
    /// An option that needs a value has none.
    #[error("{option} needs a value")]
    NoValue {
        /// The option.
        option: String,
    },
    /// A value is wrong.
    #[error("{option}: {reason}")]
    BadUnit {
        /// The option.
        option: String,
        /// Why.
        reason: UnitError,
    },
    /// A value is right for `sbatch` and can't be had here.
    #[error("{option}={value} can't be had here; {hint}")]
    BadValue {
        /// The option.
        option: String,
        /// The value.
        value: String,
        /// What can.
        hint: &'static str,
    },
    /// A name of a file is wrong.
    #[error("{option}: {reason}")]
    BadPattern {
        /// The option.
        option: String,
        /// Why.
        reason: PatternError,
    },
}

/// Whether a file is a script, by its first bytes.
#[must_use]
pub fn is_script(first_bytes: &[u8]) -> bool {
    first_bytes.starts_with(b"#!")
}

/// Reads the option lines of a script.
///
/// # Errors
/// If the script is too long or an option line is wrong; the first such line is named.
pub fn parse(text: &[u8]) -> Result<Script, ScriptError> {
    if text.len() > SCRIPT_BYTES_MAX {
        return Err(ScriptError::TooLong { bytes: text.len(), limit: SCRIPT_BYTES_MAX });
    }
    let mut script = Script::default();
    let mut memory = SlurmMemory::default();
    for (line, text) in (1u32..).zip(text.split(|byte| *byte == b'\n')) {
        let is_blank = text.iter().all(u8::is_ascii_whitespace);
        if !is_blank && !text.starts_with(b"#") {
            break;
        }
        let words = line_words(text, line, &mut memory)
            .map_err(|problem| ScriptError::Line { line, problem })?;
        if !words.is_empty() {
            script.directives.push(Directive { line, words });
        }
    }
    if let Some(directive) = memory.directive()? {
        // At its place among the lines: of two that ask for the same, the later one holds.
        let place = script.directives.partition_point(|other| other.line <= directive.line);
        script.directives.insert(place, directive);
    }
    Ok(script)
}

/// The words of one line, none if it holds no options.
fn line_words(
    text: &[u8],
    line: u32,
    memory: &mut SlurmMemory,
) -> Result<Vec<String>, LineProblem> {
    let Some((dialect, options)) = directive_of(text) else {
        return Ok(Vec::new());
    };
    if options.ends_with(b"\r") {
        return Err(LineProblem::CarriageReturn);
    }
    let words = split_words(core::str::from_utf8(options).map_err(|_| LineProblem::NotUtf8)?)?;
    match dialect {
        Dialect::Tutti => {
            memory.note_tutti(&words);
            Ok(words)
        }
        Dialect::Slurm => translate(&words, line, memory),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Dialect {
    Tutti,
    Slurm,
}

/// Which kind of option line it is, and what follows the keyword. `##TUTTI`, `# TUTTI` and
/// `#TUTTIx` are plain comments: the first is how one is switched off.
fn directive_of(text: &[u8]) -> Option<(Dialect, &[u8])> {
    let (dialect, rest) = match text.strip_prefix(b"#TUTTI") {
        Some(rest) => (Dialect::Tutti, rest),
        None => (Dialect::Slurm, text.strip_prefix(b"#SBATCH")?),
    };
    match rest.first() {
        None | Some(b' ' | b'\t' | b'\r') => Some((dialect, rest)),
        Some(_) => None,
    }
}

/// Splits as a shell does: `'...'` is literal, `"..."` has the escapes `\"`, `\\`, `\$` and
/// `` \` ``, a backslash elsewhere takes the next character literally, a word that begins with `#`
/// ends the line. `$` means nothing.
///
/// # Errors
/// If a quote is not closed, or a backslash ends the line.
pub fn split_words(text: &str) -> Result<Vec<String>, LineProblem> {
    let mut words = Vec::new();
    // `None` between words: '' is a word, nothing is not.
    let mut word: Option<String> = None;
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            ' ' | '\t' => words.extend(word.take()),
            '#' if word.is_none() => break,
            '\'' => single_quoted(&mut chars, word.get_or_insert_default())?,
            '"' => double_quoted(&mut chars, word.get_or_insert_default())?,
            '\\' => {
                let next = chars.next().ok_or(LineProblem::TrailingBackslash)?;
                word.get_or_insert_default().push(next);
            }
            _ => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    Ok(words)
}

fn single_quoted(chars: &mut core::str::Chars<'_>, word: &mut String) -> Result<(), LineProblem> {
    loop {
        match chars.next().ok_or(LineProblem::UnclosedQuote)? {
            '\'' => return Ok(()),
            c => word.push(c),
        }
    }
}

fn double_quoted(chars: &mut core::str::Chars<'_>, word: &mut String) -> Result<(), LineProblem> {
    loop {
        match chars.next().ok_or(LineProblem::UnclosedQuote)? {
            '"' => return Ok(()),
            '\\' => match chars.next().ok_or(LineProblem::UnclosedQuote)? {
                c @ ('"' | '\\' | '$' | '`') => word.push(c),
                c => word.extend(['\\', c]),
            },
            c => word.push(c),
        }
    }
}

/// An option of `sbatch` that has a counterpart.
struct SlurmOption {
    long: &'static str,
    short: Option<char>,
    meaning: Meaning,
}

/// What becomes of an option of `sbatch`.
#[derive(Clone, Copy)]
enum Meaning {
    /// Ours of this name, with the same value.
    Same(&'static str),
    /// Ours of this name; the value is a count, and memory may be reckoned from it.
    Count(&'static str, fn(&mut SlurmMemory, u32)),
    /// Ours of this name; the value is the name of a file with `%` letters.
    File(&'static str),
    /// A limit of time, in minutes if it is a plain number.
    Time,
    /// Memory, to be reckoned when all lines are read.
    Memory(fn(&mut SlurmMemory, u64)),
    /// Ours of this name; neither has a value.
    Flag(&'static str),
    /// `append` or `truncate`.
    OpenMode,
    /// Only the value that is the case here anyway.
    Only { value: &'static str, hint: &'static str },
}

const fn option(long: &'static str, short: Option<char>, meaning: Meaning) -> SlurmOption {
    SlurmOption { long, short, meaning }
}

const SLURM_OPTIONS: [SlurmOption; 21] = [
    option("ntasks", Some('n'), Meaning::Count("-n", |memory, n| memory.tasks = Some(n))),
    option("cpus-per-task", Some('c'), Meaning::Count("-c", |memory, n| memory.processors = n)),
    option("time", Some('t'), Meaning::Time),
    option("job-name", Some('J'), Meaning::Same("--name")),
    option("chdir", Some('D'), Meaning::Same("--directory")),
    option("output", Some('o'), Meaning::File("--output")),
    option("error", Some('e'), Meaning::File("--error")),
    option("input", Some('i'), Meaning::File("--input")),
    option("open-mode", None, Meaning::OpenMode),
    option("mem", None, Meaning::Memory(|memory, bytes| memory.for_all = Some(bytes))),
    option("mem-per-cpu", None, Meaning::Memory(|memory, bytes| memory.for_each = Some(bytes))),
    option("nodes", Some('N'), Meaning::Count("-N", |memory, n| memory.nodes = Some(n))),
    option(
        "ntasks-per-node",
        None,
        Meaning::Count("--tasks-per-node", |memory, n| memory.tasks_per_node = Some(n)),
    ),
    option("nodelist", Some('w'), Meaning::Same("--nodes")),
    option("exclude", Some('x'), Meaning::Same("--exclude")),
    option("exclusive", None, Meaning::Flag("--exclusive")),
    option("spread-job", None, Meaning::Flag("--spread")),
    option("requeue", None, Meaning::Flag("--on-node-loss=requeue")),
    option("no-kill", Some('k'), Meaning::Flag("--on-node-loss=notify")),
    option(
        "export",
        None,
        Meaning::Only {
            value: "ALL",
            hint: "a job gets the whole environment; use env in the script",
        },
    ),
    option(
        "nice",
        None,
        Meaning::Only { value: "0", hint: "choose a class with '#TUTTI --class NAME'" },
    ),
];

/// What to do about options that have no counterpart but for which there is something to say.
const HINTS: [(&str, &str); 5] = [
    ("--partition", "choose a class with '#TUTTI --class NAME'"),
    ("-p", "choose a class with '#TUTTI --class NAME'"),
    ("--qos", "choose a class with '#TUTTI --class NAME'"),
    ("--array", "submit the script once for each element"),
    ("-a", "submit the script once for each element"),
];
const NO_HINT: &str = "take the option away, or use a #TUTTI line (see 'tutti submit --help')";

/// Translates the words of a `#SBATCH` line.
fn translate(
    words: &[String],
    line: u32,
    memory: &mut SlurmMemory,
) -> Result<Vec<String>, LineProblem> {
    let mut ours = Vec::new();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let (name, known, value) = find_option(word)?;
        if let Meaning::Flag(flag) = known.meaning {
            if let Some(value) = value {
                let (value, hint) = (shown(value), "write it without a value");
                return Err(LineProblem::BadValue { option: name, value, hint });
            }
            ours.push(flag.into());
            continue;
        }
        let value = match value {
            Some(value) => value.to_owned(),
            None => words.next().cloned().ok_or(LineProblem::NoValue { option: name.clone() })?,
        };
        ours.extend(translate_one(known.meaning, name, value, line, memory)?);
    }
    Ok(ours)
}

/// The option that a word names, as to be shown, and the value within the same word.
fn find_option(word: &str) -> Result<(String, &'static SlurmOption, Option<&str>), LineProblem> {
    let (name, value, found) = if let Some(long) = word.strip_prefix("--") {
        let (long, value) = match long.split_once('=') {
            Some((long, value)) => (long, Some(value)),
            None => (long, None),
        };
        let found = SLURM_OPTIONS.iter().find(|option| option.long == long);
        (format!("--{long}"), value, found)
    } else {
        let mut chars = word.strip_prefix('-').unwrap_or_default().chars();
        let Some(letter) = chars.next() else {
            return Err(LineProblem::NotAnOption { word: shown(word) });
        };
        let value = Some(chars.as_str()).filter(|value| !value.is_empty());
        let found = SLURM_OPTIONS.iter().find(|option| option.short == Some(letter));
        (format!("-{letter}"), value, found)
    };
    match found {
        Some(found) => Ok((name, found, value)),
        None => {
            let hint =
                HINTS.iter().find(|(known, _)| *known == name).map_or(NO_HINT, |hint| hint.1);
            Err(LineProblem::UnknownOption { option: shown(&name), hint })
        }
    }
}

fn translate_one(
    meaning: Meaning,
    option: String,
    value: String,
    line: u32,
    memory: &mut SlurmMemory,
) -> Result<Vec<String>, LineProblem> {
    let bad_unit = |option, reason| LineProblem::BadUnit { option, reason };
    match meaning {
        Meaning::Flag(ours) => Ok(vec![ours.into()]),
        Meaning::Same(ours) => Ok(pair(ours, value)),
        Meaning::Count(ours, note) => match parse_count(&value) {
            Ok(count) => {
                note(memory, count);
                Ok(pair(ours, value))
            }
            Err(reason) => Err(bad_unit(option, reason)),
        },
        Meaning::File(ours) => match pattern::check(value.as_bytes()) {
            Ok(()) => Ok(pair(ours, value)),
            Err(reason) => Err(LineProblem::BadPattern { option, reason }),
        },
        Meaning::Time => time_limit(&value).map_err(|reason| bad_unit(option, reason)),
        Meaning::Memory(note) => {
            let bytes = slurm_bytes(&value).map_err(|reason| bad_unit(option.clone(), reason))?;
            if bytes == 0 {
                let hint = "name the memory that a task needs with '#TUTTI --memory SIZE'";
                return Err(LineProblem::BadValue { option, value: shown(&value), hint });
            }
            note(memory, bytes);
            memory.line = line;
            Ok(Vec::new())
        }
        Meaning::OpenMode => match value.as_str() {
            "append" => Ok(vec!["--append".into()]),
            "truncate" => Ok(Vec::new()),
            _ => {
                let hint = "use append or truncate";
                Err(LineProblem::BadValue { option, value: shown(&value), hint })
            }
        },
        Meaning::Only { value: only, .. } if value == only => Ok(Vec::new()),
        Meaning::Only { hint, .. } => {
            Err(LineProblem::BadValue { option, value: shown(&value), hint })
        }
    }
}

/// With `=` for a long option, so that a value which begins with `-` stays one.
fn pair(option: &str, value: String) -> Vec<String> {
    if option.starts_with("--") {
        vec![format!("{option}={value}")]
    } else {
        vec![option.into(), value]
    }
}

/// `sbatch` counts a plain number in minutes, and knows no letters for units. No limit is none.
fn time_limit(value: &str) -> Result<Vec<String>, UnitError> {
    if value.eq_ignore_ascii_case("unlimited") || value.eq_ignore_ascii_case("infinite") {
        return Ok(Vec::new());
    }
    let plain = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
    let ours = if plain { format!("{value}m") } else { value.to_owned() };
    match parse_duration(&ours)?.0 {
        0 => Ok(Vec::new()),
        _ => Ok(pair("--time", ours)),
    }
}

/// `sbatch` counts a plain number in megabytes.
fn slurm_bytes(value: &str) -> Result<u64, UnitError> {
    let plain = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
    if plain { parse_bytes(&format!("{value}M")) } else { parse_bytes(value) }
}

/// Slurm asks for memory by node or by processor, Tutti by task. One becomes the other when all
/// lines are known: `--mem` is divided by the tasks on a node (all on one, unless the script says how
/// many nodes or how many tasks on each), `--mem-per-cpu` multiplied by the processors of a task.
#[derive(Debug)]
struct SlurmMemory {
    line: u32,
    tasks: Option<u32>,
    nodes: Option<u32>,
    tasks_per_node: Option<u32>,
    processors: u32,
    for_all: Option<u64>,
    for_each: Option<u64>,
}

impl Default for SlurmMemory {
    fn default() -> Self {
        let (tasks, nodes, tasks_per_node) = (None, None, None);
        let (line, processors, for_all, for_each) = (0, 1, None, None);
        Self { line, tasks, nodes, tasks_per_node, processors, for_all, for_each }
    }
}

impl SlurmMemory {
    /// A script may mix both dialects, with the counts in a `#TUTTI` line. Only what is written
    /// plainly is seen; the verb's parser complains about what is wrong.
    fn note_tutti(&mut self, words: &[String]) {
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let (name, value) = match word.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None if word.len() > 2 && !word.starts_with("--") && word.is_char_boundary(2) => {
                    (&word[..2], Some(&word[2..]))
                }
                None => (word.as_str(), None),
            };
            let counts = ["-n", "--tasks", "-c", "--processors", "-N", "--node-count"];
            if !counts.contains(&name) && name != "--tasks-per-node" {
                continue;
            }
            let value = value.or_else(|| words.next().map(String::as_str));
            let Some(count) = value.and_then(|value| parse_count(value).ok()) else { continue };
            match name {
                "-n" | "--tasks" => self.tasks = Some(count),
                "-N" | "--node-count" => self.nodes = Some(count),
                "--tasks-per-node" => self.tasks_per_node = Some(count),
                _ => self.processors = count,
            }
        }
    }

    /// How many tasks share a node's memory at most.
    fn tasks_on_a_node(&self) -> u32 {
        let nodes = self.nodes.unwrap_or(1).max(1);
        let even = self.tasks.map(|tasks| tasks.div_ceil(nodes));
        match (even, self.tasks_per_node) {
            (Some(even), Some(each)) if self.nodes.is_some() => even.min(each),
            (_, Some(each)) => each,
            (even, None) => even.unwrap_or(1),
        }
    }

    /// The option that it comes to, on the line that asked for memory last.
    fn directive(&self) -> Result<Option<Directive>, ScriptError> {
        let line = self.line;
        let failed = |problem| ScriptError::Line { line, problem };
        let bytes = match (self.for_all, self.for_each) {
            (None, None) => return Ok(None),
            (Some(_), Some(_)) => {
                return Err(failed(LineProblem::BadValue {
                    option: "--mem".into(),
                    value: "...".into(),
                    hint: "it excludes --mem-per-cpu; keep one of them",
                }));
            }
            (Some(bytes), None) => bytes / u64::from(self.tasks_on_a_node().max(1)),
            (None, Some(bytes)) => bytes.saturating_mul(u64::from(self.processors.max(1))),
        };
        Ok(Some(Directive { line, words: pair("--memory", bytes.to_string()) }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The lines with their words, as text.
    fn check(script: &str, expected: &str) {
        let shown = match parse(script.as_bytes()) {
            Err(error) => format!("{error}\n"),
            Ok(script) => script
                .directives
                .iter()
                .map(|directive| format!("{}: {}\n", directive.line, directive.words.join("|")))
                .collect(),
        };
        assert_eq!(shown, expected, "{script}");
    }

    #[test]
    fn options_stand_before_the_first_command() {
        check(
            "#!/bin/bash\n\
             # a comment\n\
             #TUTTI -n 4 -c 2 --time 10m --memory 2G\n\
             \n\
             #TUTTI --class production --name 'two words' --output \"f-%j-%r\"\n\
             ##TUTTI --append\n\
             # TUTTI --append\n\
             #TUTTIX --append\n\
             #TUTTI # nothing but a comment\n\
             #TUTTI --error e#1 # a comment\n\
             set -e\n\
             #TUTTI --kill-on-bad-exit\n",
            "3: -n|4|-c|2|--time|10m|--memory|2G\n\
             5: --class|production|--name|two words|--output|f-%j-%r\n\
             10: --error|e#1\n",
        );
        check("", "");
        check("#TUTTI --append", "1: --append\n");
        check("echo\n#TUTTI --append", "");
    }

    #[test]
    fn words_are_quoted_as_in_a_shell() {
        check(
            "#TUTTI a\\ b 'c\\d' \"e\\\"f\\\\g\\h$i\" j''k '' --x='y z'\\''!'\n",
            "1: a b|c\\d|e\"f\\g\\h$i|jk||--x=y z'!\n",
        );
        check("#!/bin/sh\n\n#TUTTI --name 'x\n", "line 3: unclosed quote\n");
        check("#TUTTI --name \"x\\\"", "line 1: unclosed quote\n");
        check(
            "#TUTTI --name \\",
            "line 1: a backslash at the end; an option line can't go on in the next one\n",
        );
        check(
            "#!/bin/sh\r\n#TUTTI -n 4\r\n",
            "line 2: ends in a carriage return; save the script with Unix line ends (dos2unix)\n",
        );
        assert_eq!(
            parse(b"#TUTTI \xff"),
            Err(ScriptError::Line { line: 1, problem: LineProblem::NotUtf8 })
        );
    }

    #[test]
    fn slurms_lines_are_translated() {
        check(
            "#!/bin/sh\n\
             #SBATCH --ntasks=4 --cpus-per-task 2\n\
             #SBATCH -t 90 -Jname\n\
             #SBATCH -o out-%4j-%t.txt --error='e %x' -i in\n\
             #SBATCH --open-mode=append -D /data --nodes=1 --export=ALL\n\
             #SBATCH --mem-per-cpu=500\n",
            "2: -n|4|-c|2\n\
             3: --time=90m|--name=name\n\
             4: --output=out-%4j-%t.txt|--error=e %x|--input=in\n\
             5: --append|--directory=/data|-N|1\n\
             6: --memory=1048576000\n",
        );
        check("#SBATCH -t 1-12:00:00", "1: --time=1-12:00:00\n");
        check("#SBATCH -t 10:00", "1: --time=10:00\n");
        check("#SBATCH -t UNLIMITED", "");
        check("#SBATCH --mem=8G\n#SBATCH -n 4", "1: --memory=2147483648\n2: -n|4\n");
        check("#SBATCH --mem=8G\n#TUTTI -n4", "1: --memory=2147483648\n2: -n4\n");
        check("#SBATCH --mem=8G\n#TUTTI --tasks=2", "1: --memory=4294967296\n2: --tasks=2\n");
        check(
            "#SBATCH -N2 --ntasks-per-node=4 -w a[1-4] -x a3 --exclusive --spread-job --requeue\n",
            "1: -N|2|--tasks-per-node=4|--nodes=a[1-4]|--exclude=a3|--exclusive|--spread|\
             --on-node-loss=requeue\n",
        );
        check("#SBATCH --mem=8G -N 2 -n 8", "1: -N|2|-n|8\n1: --memory=2147483648\n");
        check(
            "#SBATCH --mem=8G --ntasks-per-node 2",
            "1: --tasks-per-node=2\n1: --memory=4294967296\n",
        );
    }

    #[test]
    fn what_slurm_means_and_tutti_lacks_is_named() {
        check(
            "#!/bin/sh\n#SBATCH -p debug",
            "line 2: tutti has nothing for sbatch's -p; choose a class with '#TUTTI --class \
             NAME'\n",
        );
        check(
            "#SBATCH --mail-type=ALL",
            "line 1: tutti has nothing for sbatch's --mail-type; take the option away, or use a \
             #TUTTI line (see 'tutti submit --help')\n",
        );
        check(
            "#SBATCH -o slurm-%A_%a.out",
            "line 1: -o: '%A' in a file name is unknown; known are %j job, %r or %t rank, %x name, \
             %N node, %u user, %% a percent sign, and numbers padded as in %4r\n",
        );
        check(
            "#SBATCH --nodes=2-4",
            "line 1: --nodes: '2-4' is no count; accepted is a whole number such as 4\n",
        );
        check(
            "#SBATCH --exclusive=user",
            "line 1: --exclusive=user can't be had here; write it without a value\n",
        );
        check("#SBATCH -n", "line 1: -n needs a value\n");
        check(
            "#SBATCH -n x",
            "line 1: -n: 'x' is no count; accepted is a whole number such as 4\n",
        );
        check(
            "#SBATCH ./prog",
            "line 1: './prog' is no option; the program and its arguments belong below the option \
             lines\n",
        );
        check(
            "#SBATCH --mem=0",
            "line 1: --mem=0 can't be had here; name the memory that a task needs with '#TUTTI \
             --memory SIZE'\n",
        );
        check(
            "#SBATCH --mem=1G\n#SBATCH --mem-per-cpu=1G",
            "line 2: --mem=... can't be had here; it excludes --mem-per-cpu; keep one of them\n",
        );
    }

    #[test]
    fn a_script_has_a_limit() {
        let long = vec![b'#'; SCRIPT_BYTES_MAX + 1];
        assert!(matches!(parse(&long), Err(ScriptError::TooLong { .. })));
        assert_eq!(parse(&long[1..]), Ok(Script::default()));
        assert!(is_script(b"#!/bin/sh\n") && !is_script(b"\x7fELF") && !is_script(b"#"));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(
            bytes in proptest::collection::vec(any::<u8>(), 0..200),
            lines in proptest::collection::vec(
                "#(TUTTI|SBATCH) [-a-zA-Z0-9=%'\"\\\\ :#\\PC]{0,30}", 0..5),
        ) {
            let _ = parse(&bytes);
            let _ = parse(lines.join("\n").as_bytes());
        }
    }
}
