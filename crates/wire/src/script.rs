//! Job scripts: the `#TUTTI` and `#SBATCH` lines at their head.
//!
//! Only comments before the first command count, as for `sbatch`. A line gives words, quoted as in
//! a shell but with nothing expanded. The words are options of `tutti submit`, and that verb's own
//! parser reads them: a script and a command line can't differ. Words of `#SBATCH` lines are
//! translated first (`sbatch`), so [`Directive::words`] has our spellings only.
//!
//! Nothing is dropped silently. An option that can't change what runs is noted; any other that
//! can't be translated is a problem. All problems of a script are reported at once.

mod sbatch;

pub use sbatch::{Value as SbatchValue, options as sbatch_options, slurm_limit};

use crate::limits::SCRIPT_BYTES_MAX;
use crate::pattern::PatternError;
use crate::units::UnitError;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

/// The option lines of a script, read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Script {
    /// Lines that hold options, in their order.
    pub directives: Vec<Directive>,
    /// What has no effect, in the order of the lines.
    pub notes: Vec<Note>,
    /// What is wrong, in the order of the lines; at most [`PROBLEMS_MAX`].
    pub problems: Vec<Problem>,
}

/// The options of one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Directive {
    /// Number of the line, from 1.
    pub line: u32,
    /// Options and their values, as typed on a command line.
    pub words: Vec<String>,
}

/// Something in a script that has no effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// Number of the line, from 1.
    pub line: u32,
    /// What has no effect.
    pub about: NoteAbout,
}

/// What has no effect in a script.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoteAbout {
    /// An option of `sbatch` that can't change what runs.
    #[error("{option}")]
    Option {
        /// The option.
        option: String,
    },
    /// An option line below the first command.
    #[error("an option line below the first command")]
    Below,
    /// An option line that does not begin at the left margin.
    #[error("an indented option line is a comment")]
    Indented,
}

/// Something wrong in a script.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {problem}")]
pub struct Problem {
    /// Number of the line, from 1.
    pub line: u32,
    /// What is wrong with it.
    pub problem: LineProblem,
}

/// Maximum number of problems that are kept for one script; so many notes are kept, too.
pub const PROBLEMS_MAX: usize = 100;

/// Why a file can't be read as a script.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScriptError {
    /// The script is too long.
    #[error("a script of {bytes} bytes is too long; at most {limit} are accepted")]
    TooLong {
        /// Its length.
        bytes: usize,
        /// Maximum length.
        limit: usize,
    },
    /// A UTF-8 byte order mark comes before the `#!`, and the kernel does not see the `#!`.
    #[error("a byte order mark precedes the first line; save the file as UTF-8 without one")]
    ByteOrderMark,
    /// The file is UTF-16.
    #[error("the file is UTF-16 text; save it as UTF-8")]
    Utf16,
    /// Option lines, but no interpreter.
    #[error(
        "line {line} holds options, but the first line is no '#!' line; begin with '#!/bin/sh'"
    )]
    NoInterpreter {
        /// Number of the first option line, from 1.
        line: u32,
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
    /// The line is not UTF-8.
    #[error("not UTF-8 text")]
    NotUtf8,
    /// The line has a zero byte, which nothing that is given to a process can have.
    #[error("has a zero byte in it")]
    ZeroByte,
    /// The line ends as on Windows; shells reject that.
    #[error("ends in a carriage return; save the script with Unix line ends (dos2unix)")]
    CarriageReturn,
    /// A word is neither an option nor the value of one.
    #[error("'{word}' is no option; the program and its arguments belong below the option lines")]
    NotAnOption {
        /// The word.
        word: String,
    },
    /// An option that `sbatch` does not have either.
    #[error("sbatch has no option {option}{hint}")]
    NoSuchOption {
        /// The option.
        option: String,
        /// What may be meant, or nothing.
        hint: String,
    },
    /// An option of `sbatch` without counterpart.
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
    /// An invalid value.
    #[error("{option}: {reason}")]
    BadUnit {
        /// The option.
        option: String,
        /// Why.
        reason: UnitError,
    },
    /// A value that `sbatch` accepts and that has no counterpart.
    #[error("{option}={value} can't be had here; {hint}")]
    BadValue {
        /// The option.
        option: String,
        /// The value.
        value: String,
        /// What can.
        hint: &'static str,
    },
    /// An invalid name of a file.
    #[error("{option}: {reason}")]
    BadPattern {
        /// The option.
        option: String,
        /// Why.
        reason: PatternError,
    },
}

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Whether a file is a script, by its first bytes.
#[must_use]
pub fn is_script(first_bytes: &[u8]) -> bool {
    first_bytes.starts_with(b"#!")
}

/// Rejects a file that was meant as a script with options, and would run without them: one whose
/// `#!` the kernel does not see, or that has option lines and no `#!`. `first_bytes` may be a part.
///
/// # Errors
/// What is wrong with the file.
pub fn check_start(first_bytes: &[u8]) -> Result<(), ScriptError> {
    if is_script(first_bytes) {
        return Ok(());
    }
    if let Some(text) = first_bytes.strip_prefix(BYTE_ORDER_MARK)
        && text.starts_with(b"#")
    {
        return Err(ScriptError::ByteOrderMark);
    }
    if first_bytes.starts_with(b"\xff\xfe#\0") || first_bytes.starts_with(b"\xfe\xff\0#") {
        return Err(ScriptError::Utf16);
    }
    match lines(first_bytes).find(|(_, text)| directive_of(text).is_some()) {
        Some((line, _)) => Err(ScriptError::NoInterpreter { line }),
        None => Ok(()),
    }
}

/// The lines before the first command, with their numbers: comments and blank lines. `sbatch` takes
/// an indented `#` for a comment as well.
fn lines(text: &[u8]) -> impl Iterator<Item = (u32, &[u8])> {
    let all = (1u32..).zip(text.split(|byte| *byte == b'\n'));
    all.take_while(|(_, text)| {
        let text = text.trim_ascii_start();
        text.is_empty() || text.starts_with(b"#")
    })
}

/// What the lines of a script come to, while they are read.
#[derive(Default)]
struct Reading {
    script: Script,
    memory: sbatch::Memory,
    mail: sbatch::Mail,
}

impl Reading {
    fn problem(&mut self, line: u32, problem: LineProblem) {
        if self.script.problems.len() < PROBLEMS_MAX {
            self.script.problems.push(Problem { line, problem });
        }
    }

    fn note(&mut self, line: u32, about: NoteAbout) {
        if self.script.notes.len() < PROBLEMS_MAX {
            self.script.notes.push(Note { line, about });
        }
    }

    fn line(&mut self, line: u32, text: &[u8]) {
        let Some((dialect, options)) = directive_of(text) else {
            if directive_of(text.trim_ascii_start()).is_some() {
                self.note(line, NoteAbout::Indented);
            }
            return;
        };
        let words = core::str::from_utf8(options)
            .map_err(|_| LineProblem::NotUtf8)
            .and_then(|options| split_words(options.trim_end_matches('\r')));
        let words = match (words, dialect) {
            (Err(problem), _) => return self.problem(line, problem),
            (Ok(words), Dialect::Tutti) => {
                self.memory.note_tutti(&words);
                words
            }
            (Ok(words), Dialect::Slurm) => sbatch::translate(&words, line, self),
        };
        if !words.is_empty() {
            self.script.directives.push(Directive { line, words });
        }
    }

    /// What was read, with the memory that all lines together ask for.
    fn finished(mut self) -> Script {
        if let Some(directive) = self.mail.directive() {
            let directives = &mut self.script.directives;
            let place = directives.partition_point(|other| other.line <= directive.line);
            directives.insert(place, directive);
        }
        match self.memory.directive() {
            Ok(Some(directive)) => {
                // At its place among the lines: of two that ask for the same, the later one holds.
                let directives = &mut self.script.directives;
                let place = directives.partition_point(|other| other.line <= directive.line);
                directives.insert(place, directive);
            }
            Ok(None) => (),
            Err(Problem { line, problem }) => self.problem(line, problem),
        }
        self.script.problems.sort_by_key(|problem| problem.line);
        self.script
    }
}

/// Reads the option lines of a script.
///
/// # Errors
/// If the script is too long. What is wrong with its lines is in [`Script::problems`].
pub fn parse(text: &[u8]) -> Result<Script, ScriptError> {
    if text.len() > SCRIPT_BYTES_MAX {
        return Err(ScriptError::TooLong { bytes: text.len(), limit: SCRIPT_BYTES_MAX });
    }
    let mut reading = Reading::default();
    let mut head = 0;
    for (line, text) in lines(text) {
        reading.line(line, text);
        head = line;
    }
    if let Some(line) = carriage_return(text, head) {
        reading.problem(line, LineProblem::CarriageReturn);
    }
    let mut script = reading.finished();
    if let Some(line) = option_line_below(text, head) {
        let about = NoteAbout::Below;
        script.notes.extend((script.notes.len() < PROBLEMS_MAX).then_some(Note { line, about }));
    }
    Ok(script)
}

/// The first of the lines up to the first command that ends in a carriage return. The first
/// command's own line counts: a shell would take the carriage return for a part of it.
fn carriage_return(text: &[u8], head: u32) -> Option<u32> {
    let mut lines = (1u32..).zip(text.split(|byte| *byte == b'\n')).take(head as usize + 1);
    lines.find(|(_, text)| text.ends_with(b"\r")).map(|(line, _)| line)
}

/// An option line of a script, with its words as they are written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OptionLine {
    /// Number of the line, from 1.
    pub line: u32,
    /// Whether it is an `#SBATCH` line; otherwise it is a `#TUTTI` line.
    pub is_sbatch: bool,
    /// Its words.
    pub words: Vec<String>,
}

/// The option lines of a script, not translated.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OptionLines {
    /// The lines, in their order.
    pub lines: Vec<OptionLine>,
    /// What is wrong with them; at most [`PROBLEMS_MAX`].
    pub problems: Vec<Problem>,
    /// The first option line below the first command: it counts for nothing.
    pub below: Option<u32>,
}

/// Reads the option lines of a script, and does not translate them.
///
/// # Errors
/// If the script is too long.
pub fn option_lines(text: &[u8]) -> Result<OptionLines, ScriptError> {
    if text.len() > SCRIPT_BYTES_MAX {
        return Err(ScriptError::TooLong { bytes: text.len(), limit: SCRIPT_BYTES_MAX });
    }
    let (mut found, mut head) = (OptionLines::default(), 0);
    for (line, text) in lines(text) {
        head = line;
        let Some((dialect, options)) = directive_of(text) else { continue };
        let words = core::str::from_utf8(options)
            .map_err(|_| LineProblem::NotUtf8)
            .and_then(|options| split_words(options.trim_end_matches('\r')));
        match words {
            Ok(words) => {
                let is_sbatch = dialect == Dialect::Slurm;
                found.lines.push(OptionLine { line, is_sbatch, words });
            }
            Err(problem) if found.problems.len() < PROBLEMS_MAX => {
                found.problems.push(Problem { line, problem });
            }
            Err(_) => {}
        }
    }
    if let Some(line) = carriage_return(text, head) {
        found.problems.push(Problem { line, problem: LineProblem::CarriageReturn });
    }
    found.below = option_line_below(text, head);
    Ok(found)
}

/// Translates options of `sbatch` that were read already: each with a number that takes the place
/// of a line's in notes and problems, its long name, and its value.
pub fn from_sbatch<'a>(
    options: impl IntoIterator<Item = (u32, &'a str, Option<&'a str>)>,
) -> Script {
    let mut reading = Reading::default();
    for (line, long, value) in options {
        let word = value.map_or(format!("--{long}"), |value| format!("--{long}={value}"));
        let words = sbatch::translate(&[word], line, &mut reading);
        if !words.is_empty() {
            reading.script.directives.push(Directive { line, words });
        }
    }
    reading.finished()
}

/// The first option line below the head of a script. None behind a here-document: it may be the
/// text of another script.
fn option_line_below(text: &[u8], head: u32) -> Option<u32> {
    let below = (1u32..).zip(text.split(|byte| *byte == b'\n')).skip(head as usize);
    below
        .take_while(|(_, text)| !text.windows(2).any(|two| two == b"<<"))
        .find(|(_, text)| directive_of(text).is_some())
        .map(|(line, _)| line)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Dialect {
    Tutti,
    Slurm,
}

/// The kind of an option line, and what follows the keyword. `##TUTTI`, `# TUTTI` and `#TUTTIx` are
/// plain comments: the first is how an option line is switched off.
fn directive_of(text: &[u8]) -> Option<(Dialect, &[u8])> {
    let (dialect, rest) = match text.strip_prefix(b"#TUTTI") {
        Some(rest) => (Dialect::Tutti, rest),
        None => (Dialect::Slurm, text.strip_prefix(b"#SBATCH")?),
    };
    match rest.first() {
        None | Some(b' ' | b'\t' | b'\r' | b'-') => Some((dialect, rest)),
        Some(_) => None,
    }
}

/// The interpreter that a `#!` line names, and its one argument, as the kernel reads them.
#[must_use]
pub fn interpreter(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let line = text.strip_prefix(b"#!")?.split(|&byte| byte == b'\n').next()?.trim_ascii();
    let end = line.iter().position(u8::is_ascii_whitespace).unwrap_or(line.len());
    (end > 0).then(|| (&line[..end], line[end..].trim_ascii()))
}

/// Splits as a shell does: `'...'` is literal, `"..."` has the escapes `\"`, `\\`, `\$` and
/// `` \` ``, a backslash elsewhere takes the next character literally, a word that begins with `#`
/// ends the line. `$` means nothing.
///
/// # Errors
/// If a quote is not closed, or a backslash ends the line.
pub fn split_words(text: &str) -> Result<Vec<String>, LineProblem> {
    if text.contains('\0') {
        return Err(LineProblem::ZeroByte);
    }
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

/// With `=` for a long option, so that a value which begins with `-` stays one.
fn pair(option: &str, value: String) -> Vec<String> {
    if option.starts_with("--") {
        vec![format!("{option}={value}")]
    } else {
        vec![option.into(), value]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The lines with their words, or the problems; then the notes.
    fn check(script: &str, expected: &str) {
        let read = parse(script.as_bytes()).unwrap();
        let mut shown: Vec<String> = read
            .directives
            .iter()
            .map(|directive| format!("{}: {}\n", directive.line, directive.words.join("|")))
            .collect();
        if !read.problems.is_empty() {
            shown = read.problems.iter().map(|problem| format!("{problem}\n")).collect();
        }
        shown.extend(read.notes.iter().map(|note| format!("note {}: {}\n", note.line, note.about)));
        assert_eq!(shown.concat(), expected, "{script}");
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
             10: --error|e#1\n\
             note 12: an option line below the first command\n",
        );
        check("", "");
        check("#TUTTI --append", "1: --append\n");
        check("#TUTTI--append", "1: --append\n");
        check("echo\n#TUTTI --append", "note 2: an option line below the first command\n");
        check("cat > job <<END\n#TUTTI --append\nEND\n", "");
    }

    #[test]
    fn indented_comment_does_not_end_the_option_lines() {
        check(
            "#!/bin/sh\n\
             #SBATCH -J first\n\
             \x20 # a remark\n\
             \t#SBATCH -n 4\n\
             #SBATCH -o out --bogus\n\
             echo\n",
            "line 5: sbatch has no option --bogus\nnote 4: an indented option line is a comment\n",
        );
    }

    #[test]
    fn all_problems_of_a_script_are_found_at_once() {
        check(
            "#!/bin/sh\n\
             #SBATCH --licenses=a -n x --signal=USR2@60 -c 2\n\
             #SBATCH 'x\n\
             #SBATCH --mem=1G --gres=gpu:1 -t soon\n\
             #SBATCH --mem-per-cpu=1G --nod=2 --mem-=2\n",
            "line 2: tutti has nothing for sbatch's --licenses; take the option away, or use a #TUTTI \
             line (see 'tutti submit --help')\n\
             line 2: -n: 'x' is no count; accepted is a whole number such as 4\n\
             line 3: unclosed quote\n\
             line 4: tutti has nothing for sbatch's --gres; take the option away, or use a #TUTTI \
             line (see 'tutti submit --help')\n\
             line 4: -t: 'soon' is no time limit; sbatch accepts minutes, M:S, H:M:S, D-H, D-H:M and \
             D-H:M:S\n\
             line 5: sbatch has no option --nod; --nodes or --nodelist?\n\
             line 5: sbatch has no option --mem-; --mem-per-cpu or --mem-bind?\n\
             line 5: --mem=... can't be had here; it excludes --mem-per-cpu; keep one of them\n",
        );
        let many = "#SBATCH -n x\n".repeat(2 * PROBLEMS_MAX);
        assert_eq!(parse(many.as_bytes()).unwrap().problems.len(), PROBLEMS_MAX);
    }

    #[test]
    fn options_that_cannot_change_what_runs_are_noted() {
        check(
            "#!/bin/sh\n\
             #SBATCH --wckey=x -A lab\n\
             #SBATCH -p debug --qos=high --comment='a word' -n 2 --nice --no-requeue\n",
            "3: --partition=debug|-n|2|--no-requeue\n\
             note 2: --wckey\nnote 2: -A\n\
             note 3: --qos\nnote 3: --comment\nnote 3: --nice\n",
        );
        let many = "#SBATCH -A x\n".repeat(2 * PROBLEMS_MAX);
        assert_eq!(parse(many.as_bytes()).unwrap().notes.len(), PROBLEMS_MAX);
    }

    #[test]
    fn mail_needs_a_type_and_its_address_may_be_on_another_line() {
        check(
            "#SBATCH --mail-user=ada@host\n#SBATCH -n 2\n#SBATCH --mail-type=BEGIN,FAIL,REQUEUE\n",
            "2: -n|2\n3: --notify=start,fail|--notify-mail=ada@host\n",
        );
        check("#SBATCH --mail-user=ada", "");
        check("#SBATCH --mail-type=NONE --mail-user=ada", "1: --notify=none\n");
        let bad = "line 1: --mail-user='-t' can't be had here";
        assert!(
            parse(b"#!/bin/sh\n#SBATCH --mail-user=-t --mail-type=X\n").unwrap().problems.len()
                == 2,
            "{bad}"
        );
    }

    #[test]
    fn long_options_of_sbatch_may_be_cut_short() {
        check("#SBATCH --job=x --cpus-per-t 2 --part=a", "1: --name=x|-c|2|--partition=a\n");
        check("#SBATCH --mem=2G", "1: --memory=2147483648\n");
    }

    #[test]
    fn files_whose_options_would_not_be_seen_are_rejected() {
        let why = |bytes: &[u8]| check_start(bytes).map_err(|error| error.to_string());
        assert_eq!(why(b"#!/bin/sh\n#SBATCH -n 2\n"), Ok(()));
        assert_eq!(why(b"\x7fELF\0\n#SBATCH -n 2\n"), Ok(()));
        assert_eq!(why(b"# a remark\necho\n#SBATCH -n 2\n"), Ok(()));
        assert_eq!(why(b""), Ok(()));
        let says = |bytes: &[u8], what: &str| {
            let reason = why(bytes).unwrap_err();
            assert!(reason.contains(what), "{reason}");
        };
        says(b"# a remark\n\n#SBATCH -n 2\necho\n", "line 3 holds options");
        says(b"#TUTTI -n 2\n", "line 1 holds options");
        says(b"\xef\xbb\xbf#!/bin/sh\n", "byte order mark");
        says(b"\xff\xfe#\0!\0", "UTF-16");
        says(b"\xfe\xff\0#\0!", "UTF-16");
    }

    #[test]
    fn first_line_names_the_interpreter() {
        let check = |text: &str, expected: Option<(&str, &str)>| {
            let expected = expected.map(|(a, b)| (a.as_bytes(), b.as_bytes()));
            assert_eq!(interpreter(text.as_bytes()), expected, "{text:?}");
        };
        check("#!/bin/bash\necho", Some(("/bin/bash", "")));
        check("#! /usr/bin/env  -S python3 -u \n", Some(("/usr/bin/env", "-S python3 -u")));
        check("echo hello", None);
        check("#!\n", None);
        check("", None);
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
        let dos = "ends in a carriage return; save the script with Unix line ends (dos2unix)\n";
        check("#!/bin/sh\r\n#TUTTI -n 4\r\n", &format!("line 1: {dos}"));
        check("#!/bin/sh\n#TUTTI -n 4\r\necho\n", &format!("line 2: {dos}"));
        check("#!/bin/sh\n\necho\r\n", &format!("line 3: {dos}"));
        check("#!/bin/sh\necho\nprintf 'a\r\n'\n", "");
        let not_utf8 = Problem { line: 1, problem: LineProblem::NotUtf8 };
        assert_eq!(parse(b"#TUTTI \xff").unwrap().problems, [not_utf8]);
        for line in ["#TUTTI -J a\0b", "#SBATCH -J 'a\0'", "#SBATCH -n 1 # \0"] {
            check(&format!("#!/bin/sh\n{line}\n"), "line 2: has a zero byte in it\n");
        }
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
             3: --time=5400s|--name=name\n\
             4: --output=out-%4j-%t.txt|--error=e %x|--input=in\n\
             5: --open-mode=append|--directory=/data|-N|1\n\
             6: --memory=1048576000\n",
        );
        for (time, seconds) in [
            ("30", 1_800),
            ("1-12:00:00", 129_600),
            ("2-0", 172_800),
            ("1-12:30", 131_400),
            ("10:00", 600),
            ("100:00:00", 360_000),
            ("00:00:60", 60),
            ("10-100:00:00", 1_224_000),
            ("0-00:04:00", 240),
        ] {
            check(&format!("#SBATCH -t {time}"), &format!("1: --time={seconds}s\n"));
        }
        for none in ["0", "UNLIMITED", "infinite"] {
            check(&format!("#SBATCH -t {none}"), "");
        }
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
    fn jobs_before_may_be_elements_of_arrays() {
        check("#SBATCH -d afterok:7_0:8", "1: --after=7_0:ok,8:ok|--if-never=keep\n");
        let delayed = "1: --after=7:start+5m,8:start|--if-never=keep\n";
        check("#SBATCH -d after:7+5:8", delayed);
    }

    #[test]
    fn files_of_slurm_have_the_letters_of_tutti() {
        check("#SBATCH -o %x-%A_%a-%J-%4A%%a.out", "1: --output=%x-%A_%a-%j-%4A%%a.out\n");
        check("#SBATCH -o %j.%s", "1: --output=%j.batch\n");
    }

    #[test]
    fn options_are_translated_without_a_script_and_lines_are_read_without_translation() {
        let read = from_sbatch([(7, "mem", Some("4G")), (8, "ntasks", Some("2"))]);
        let words: Vec<_> = read.directives.iter().map(|it| (it.line, it.words.concat())).collect();
        let expected = [(7, "--memory=2147483648"), (8, "-n2")];
        assert_eq!(words, expected.map(|(line, words)| (line, String::from(words))));
        let text = b"#!/bin/sh\n#SBATCH -n 2 # two\n#TUTTI -c 1\n#SBATCH 'x\ntrue\n#SBATCH -n 3\n";
        let read = option_lines(text).unwrap();
        let found: Vec<_> = read.lines.iter().map(|it| (it.line, it.is_sbatch)).collect();
        assert_eq!((found, read.below), (vec![(2, true), (3, false)], Some(6)));
        assert_eq!(read.problems.len(), 1);
    }

    #[test]
    fn what_slurm_means_and_tutti_lacks_is_named() {
        check(
            "#SBATCH -o slurm-%b.out",
            "line 1: -o: '%b' in a file name is unknown; known are %j job, %A array, %a index, %r or %t rank, %x name, \
             %N node, %u user, %s step, %% a percent sign, and numbers padded as in %4r\n",
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
