//! `#SBATCH` lines: options of `sbatch` and their values, translated into those of `tutti submit`.
//!
//! The table has every option that `sbatch` documents. So a line can be read on behind an option
//! without counterpart, and all of a script's problems are found at once. Long options may be cut
//! short as far as they stay unique.

use super::{Directive, LineProblem, NoteAbout, Problem, Reading, pair};
use crate::notify::NotifyWay;
use crate::pattern;
use crate::units::{UnitError, parse_bytes, parse_count, shown};
use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;

/// An option of `sbatch`.
struct SlurmOption {
    long: &'static str,
    short: Option<char>,
    value: Value,
    meaning: Meaning,
}

/// Whether an option of `sbatch` has a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value {
    /// It has none.
    Never,
    /// It may have one, only behind `=` or the letter, as `getopt_long` reads it.
    Optional,
    /// It has one, which may be the next word.
    Always,
}

/// What becomes of an option of `sbatch`.
#[derive(Clone, Copy)]
enum Meaning {
    /// Ours of this name, with the same value.
    Same(&'static str),
    /// Ours of this name; the value is a count, which memory may depend on.
    Count(&'static str, fn(&mut Memory, u32)),
    /// Ours of this name; the value is the name of a file with `%` letters.
    File(&'static str),
    /// A limit of time.
    Time,
    /// Memory, which depends on other lines.
    Memory(fn(&mut Memory, u64)),
    /// Ours of this name, without a value.
    Flag(&'static str),
    /// `append` or `truncate`.
    OpenMode,
    /// Jobs that it starts after.
    Dependency,
    /// Whether it ends when it can never start.
    EndIfNever,
    /// When mail is sent.
    MailType,
    /// The address, if any is sent.
    MailUser,
    /// Only this value, which is the case here anyway.
    Only { value: &'static str, hint: &'static str },
    /// The case here anyway.
    Always,
    /// Can't change what runs: noted.
    NoEffect,
    /// No counterpart; the text says what to do.
    Refused(&'static str),
}

use Meaning::{File, Flag, NoEffect, Only, OpenMode, Refused, Same, Time};
use Value::{Always, Never, Optional};

const NO_HINT: &str = "take the option away, or use a #TUTTI line (see 'tutti submit --help')";
const TYPED: &str = "it belongs on a command line";

const fn option(
    long: &'static str,
    short: Option<char>,
    value: Value,
    meaning: Meaning,
) -> SlurmOption {
    SlurmOption { long, short, value, meaning }
}

/// An option that can't change what runs.
const fn noted(long: &'static str, short: Option<char>, value: Value) -> SlurmOption {
    option(long, short, value, NoEffect)
}

/// An option without counterpart.
const fn none(long: &'static str, value: Value) -> SlurmOption {
    option(long, None, value, Refused(NO_HINT))
}

const OPTIONS: &[SlurmOption] = &[
    // Those with a counterpart.
    option("ntasks", Some('n'), Always, Meaning::Count("-n", |memory, n| memory.tasks = Some(n))),
    option("cpus-per-task", Some('c'), Always, Meaning::Count("-c", |m, n| m.processors = n)),
    option("time", Some('t'), Always, Time),
    option("job-name", Some('J'), Always, Same("--name")),
    option("partition", Some('p'), Always, Same("--partition")),
    option("chdir", Some('D'), Always, Same("--directory")),
    option("output", Some('o'), Always, File("--output")),
    option("error", Some('e'), Always, File("--error")),
    option("input", Some('i'), Always, File("--input")),
    option("open-mode", None, Always, OpenMode),
    option("mem", None, Always, Meaning::Memory(|memory, bytes| memory.for_all = Some(bytes))),
    option("mem-per-cpu", None, Always, Meaning::Memory(|m, bytes| m.for_each = Some(bytes))),
    option("nodes", Some('N'), Always, Meaning::Count("-N", |memory, n| memory.nodes = Some(n))),
    option("ntasks-per-node", None, Always, PER_NODE),
    option("tasks-per-node", None, Always, PER_NODE),
    option("nodelist", Some('w'), Always, Same("--nodes")),
    option("constraint", Some('C'), Always, Same("--constraint")),
    option("exclude", Some('x'), Always, Same("--exclude")),
    option("exclusive", None, Optional, Flag("--exclusive")),
    option("spread-job", None, Never, Flag("--spread")),
    option("begin", Some('b'), Always, Same("--begin")),
    option("array", Some('a'), Always, Same("--array")),
    option("dependency", Some('d'), Always, Meaning::Dependency),
    option("kill-on-invalid-dep", None, Always, Meaning::EndIfNever),
    option("signal", None, Always, Same("--signal")),
    option("hold", Some('H'), Never, Flag("--hold")),
    option("mail-type", None, Always, Meaning::MailType),
    option("mail-user", None, Always, Meaning::MailUser),
    option("requeue", None, Never, Flag("--on-node-loss=requeue")),
    option("no-kill", Some('k'), Optional, Flag("--on-node-loss=notify")),
    option(
        "export",
        None,
        Always,
        Only { value: "ALL", hint: "a job gets the whole environment; use env in the script" },
    ),
    option("no-requeue", None, Never, Flag("--no-requeue")),
    option("propagate", None, Optional, Meaning::Always),
    option("oversubscribe", Some('s'), Optional, Meaning::Always),
    option("share", None, Optional, Meaning::Always),
    // Those that can't change what runs.
    noted("account", Some('A'), Always),
    noted("acctg-freq", None, Always),
    noted("comment", None, Always),
    noted("contiguous", None, Never),
    noted("cores-per-socket", None, Always),
    noted("cpu-freq", None, Always),
    noted("delay-boot", None, Always),
    noted("distribution", Some('m'), Always),
    noted("extra", None, Always),
    noted("extra-node-info", Some('B'), Always),
    noted("get-user-env", None, Optional),
    noted("hint", None, Always),
    noted("ignore-pbs", None, Never),
    noted("mcs-label", None, Always),
    noted("mem-bind", None, Always),
    noted("nice", None, Optional),
    noted("ntasks-per-core", None, Always),
    noted("ntasks-per-socket", None, Always),
    noted("parsable", None, Never),
    noted("power", None, Always),
    noted("prefer", None, Always),
    noted("priority", None, Always),
    noted("profile", None, Always),
    noted("qos", Some('q'), Always),
    noted("quiet", Some('Q'), Never),
    noted("sockets-per-node", None, Always),
    noted("switches", None, Always),
    noted("threads-per-core", None, Always),
    noted("time-min", None, Always),
    noted("use-min-nodes", None, Never),
    noted("verbose", Some('v'), Never),
    noted("wait-all-nodes", None, Always),
    noted("wckey", None, Always),
    // Those without counterpart.
    option("clusters", Some('M'), Always, Refused("submit the script on that cluster")),
    option("core-spec", Some('S'), Always, Refused(NO_HINT)),
    option("gpus", Some('G'), Always, Refused(NO_HINT)),
    option("help", Some('h'), Never, Refused(TYPED)),
    option("licenses", Some('L'), Always, Refused(NO_HINT)),
    option("nodefile", Some('F'), Always, Refused("name the nodes with '#TUTTI --nodes LIST'")),
    option("overcommit", Some('O'), Never, Refused("leave -c out: then tasks share processors")),
    option("test-only", None, Never, Refused(TYPED)),
    option("usage", None, Never, Refused(TYPED)),
    option("version", Some('V'), Never, Refused(TYPED)),
    option("wait", Some('W'), Never, Refused("write --wait on the command line")),
    option("wrap", None, Always, Refused(TYPED)),
    none("batch", Always),
    none("bb", Always),
    none("bbf", Always),
    none("cluster-constraint", Always),
    none("container", Always),
    none("container-id", Always),
    none("cpus-per-gpu", Always),
    none("deadline", Always),
    none("export-file", Always),
    none("gid", Always),
    none("gpu-bind", Always),
    none("gpu-freq", Always),
    none("gpus-per-node", Always),
    none("gpus-per-socket", Always),
    none("gpus-per-task", Always),
    none("gres", Always),
    none("gres-flags", Always),
    none("mem-per-gpu", Always),
    none("mincpus", Always),
    none("network", Always),
    none("ntasks-per-gpu", Always),
    none("reboot", Never),
    none("reservation", Always),
    none("resv-ports", Optional),
    none("segment", Always),
    none("stepmgr", Never),
    none("thread-spec", Always),
    none("tmp", Always),
    none("tres-bind", Always),
    none("tres-per-task", Always),
    none("uid", Always),
];

const PER_NODE: Meaning =
    Meaning::Count("--tasks-per-node", |memory, n| memory.tasks_per_node = Some(n));

/// The options that `sbatch` documents: each by its long name, its letter, and whether it has a
/// value.
pub fn options() -> impl Iterator<Item = (&'static str, Option<char>, Value)> {
    OPTIONS.iter().map(|option| (option.long, option.short, option.value))
}

/// Translates the words of a `#SBATCH` line. Notes and problems go to `reading`.
pub(super) fn translate(words: &[String], line: u32, reading: &mut Reading) -> Vec<String> {
    let mut ours = Vec::new();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let (name, known, given) = match find_option(word) {
            Ok(found) => found,
            Err(problem) => {
                reading.problem(line, problem);
                continue;
            }
        };
        let value = match (known.value, given) {
            (Always, None) => match words.next() {
                Some(value) => Some(value.as_str()),
                None => {
                    reading.problem(line, LineProblem::NoValue { option: name });
                    continue;
                }
            },
            (_, given) => given,
        };
        match translate_one(known, name, value, line, reading) {
            Ok(more) => ours.extend(more),
            Err(problem) => reading.problem(line, problem),
        }
    }
    ours
}

/// An option as it is shown, its entry, and its value within the same word.
type Found<'a> = (String, &'static SlurmOption, Option<&'a str>);

fn find_option(word: &str) -> Result<Found<'_>, LineProblem> {
    if let Some(long) = word.strip_prefix("--").filter(|long| !long.is_empty()) {
        let (long, value) = match long.split_once('=') {
            Some((long, value)) => (long, Some(value)),
            None => (long, None),
        };
        return find_long(long).map(|known| (format!("--{}", known.long), known, value));
    }
    let mut chars = word.strip_prefix('-').unwrap_or_default().chars();
    let Some(letter) = chars.next().filter(|letter| *letter != '-') else {
        return Err(LineProblem::NotAnOption { word: shown(word) });
    };
    let value = Some(chars.as_str()).filter(|value| !value.is_empty());
    match OPTIONS.iter().find(|option| option.short == Some(letter)) {
        Some(known) => Ok((format!("-{letter}"), known, value)),
        None => Err(no_such(format!("-{letter}"), String::new())),
    }
}

fn no_such(option: String, hint: String) -> LineProblem {
    LineProblem::NoSuchOption { option: shown(&option), hint }
}

/// The option of that name, or the one that it can only be the beginning of.
fn find_long(name: &str) -> Result<&'static SlurmOption, LineProblem> {
    if let Some(known) = OPTIONS.iter().find(|option| option.long == name) {
        return Ok(known);
    }
    let mut begun = OPTIONS.iter().filter(|option| option.long.starts_with(name));
    let option = format!("--{name}");
    match (begun.next(), begun.next()) {
        (Some(known), None) => Ok(known),
        (Some(one), Some(other)) => {
            Err(no_such(option, format!("; --{} or --{}?", one.long, other.long)))
        }
        (None, _) => Err(no_such(option, String::new())),
    }
}

fn translate_one(
    known: &SlurmOption,
    option: String,
    value: Option<&str>,
    line: u32,
    reading: &mut Reading,
) -> Result<Vec<String>, LineProblem> {
    let bad_unit = |option, reason| LineProblem::BadUnit { option, reason };
    if let (Flag(_), Some(value)) = (known.meaning, value) {
        let (value, hint) = (shown(value), "write it without a value");
        return Err(LineProblem::BadValue { option, value, hint });
    }
    let value = value.unwrap_or_default();
    let bad_value = |option, hint| Err(LineProblem::BadValue { option, value: shown(value), hint });
    match known.meaning {
        Flag(ours) => Ok(vec![ours.into()]),
        Same(ours) => Ok(pair(ours, value.to_owned())),
        Meaning::Count(ours, note) => match parse_count(value) {
            Ok(0) => Err(bad_unit(option, UnitError::NotACount { text: shown(value) })),
            Ok(count) => {
                note(&mut reading.memory, count);
                Ok(pair(ours, value.to_owned()))
            }
            Err(reason) => Err(bad_unit(option, reason)),
        },
        File(ours) => {
            let file = file_pattern(value);
            match pattern::check(file.as_bytes()) {
                Ok(()) => Ok(pair(ours, file)),
                Err(reason) => Err(LineProblem::BadPattern { option, reason }),
            }
        }
        Time => time_limit(value).map_err(|reason| bad_unit(option, reason)),
        Meaning::Memory(note) => {
            let bytes = slurm_bytes(value).map_err(|reason| bad_unit(option.clone(), reason))?;
            if bytes == 0 {
                let hint = "name the memory that a task needs with '#TUTTI --memory SIZE'";
                return bad_value(option, hint);
            }
            note(&mut reading.memory, bytes);
            reading.memory.line = line;
            Ok(Vec::new())
        }
        Meaning::Dependency => match dependency(value) {
            Some(words) => Ok(words),
            None => bad_value(option, DEPENDENCY),
        },
        Meaning::MailType | Meaning::MailUser => reading
            .mail
            .take(matches!(known.meaning, Meaning::MailType), value, line)
            .map_or_else(|hint| bad_value(option, hint), |()| Ok(Vec::new())),
        Meaning::EndIfNever => match value {
            "yes" => Ok(vec!["--if-never=end".into()]),
            "no" => Ok(vec!["--if-never=keep".into()]),
            _ => bad_value(option, "use yes or no"),
        },
        OpenMode => match value {
            "append" | "truncate" => Ok(vec![format!("--open-mode={value}")]),
            _ => bad_value(option, "use append or truncate"),
        },
        Only { value: only, .. } if value == only => Ok(Vec::new()),
        Only { hint, .. } => bad_value(option, hint),
        Meaning::Always => Ok(Vec::new()),
        NoEffect => {
            reading.note(line, NoteAbout::Option { option });
            Ok(Vec::new())
        }
        Refused(hint) => Err(LineProblem::UnknownOption { option, hint }),
    }
}

const MAIL_TYPES: &str = "use NONE, BEGIN, END, FAIL or ALL, with commas between them";

/// When mail is sent, in the words of `--notify`. Types of what does not happen here count for
/// nothing.
fn mail_type(value: &str) -> Option<String> {
    const OTHERS: [&str; 9] = [
        "REQUEUE",
        "INVALID_DEPEND",
        "STAGE_OUT",
        "TIME_LIMIT",
        "TIME_LIMIT_90",
        "TIME_LIMIT_80",
        "TIME_LIMIT_50",
        "ARRAY_TASKS",
        "NONE",
    ];
    let mut words = Vec::new();
    for part in value.split(',') {
        match part.trim().to_ascii_uppercase().as_str() {
            "BEGIN" => words.push("start"),
            "END" => words.push("end"),
            "FAIL" => words.push("fail"),
            "ALL" => words.push("all"),
            other if OTHERS.contains(&other) => {}
            _ => return None,
        }
    }
    Some(if words.is_empty() { "none".into() } else { words.join(",") })
}

/// When mail is sent, and to which address: without a type, none is.
#[derive(Debug, Default)]
pub(super) struct Mail {
    line: u32,
    on: Option<String>,
    to: Option<String>,
}

impl Mail {
    /// Takes up a type, or an address.
    ///
    /// # Errors
    /// A hint, if it is none.
    fn take(&mut self, is_type: bool, value: &str, line: u32) -> Result<(), &'static str> {
        if is_type {
            (self.on, self.line) = (Some(mail_type(value).ok_or(MAIL_TYPES)?), line);
            return Ok(());
        }
        let address = NotifyWay::Mail(value.to_owned());
        address.check().map_err(|_| "use a name or name@host")?;
        self.to = Some(value.to_owned());
        Ok(())
    }

    /// The options that it comes to, on the line of the type.
    pub(super) fn directive(&self) -> Option<Directive> {
        let on = self.on.as_ref()?;
        let mut words = pair("--notify", on.clone());
        if let Some(to) = self.to.as_ref().filter(|_| on != "none") {
            words.extend(pair("--notify-mail", to.clone()));
        }
        Some(Directive { line: self.line, words })
    }
}

const DEPENDENCY: &str = "use afterok, afternotok, afterany, aftercorr or after, each with :JOB, after:JOB+MINUTES, or singleton, with commas between \
                          them if all are needed and ? if one is enough";

/// A number, which may be zero.
fn count(text: &str) -> Option<u32> {
    let is_plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if is_plain { text.parse().ok() } else { None }
}

/// The jobs that a job starts after, as `sbatch` reads them. Other than here, a job that can never
/// start stays.
fn dependency(value: &str) -> Option<Vec<String>> {
    let one = value.contains('?');
    if one && value.contains(',') {
        return None;
    }
    let between = if one { "|" } else { "," };
    let (mut jobs, mut words) = (Vec::new(), Vec::new());
    for part in value.split([',', '?']) {
        let mut fields = part.split(':');
        let what = match fields.next()? {
            "afterok" => "ok",
            "afternotok" => "notok",
            "afterany" => "any",
            "after" => "start",
            "aftercorr" => "each",
            "singleton" if part == "singleton" && !one => {
                words.push("--singleton".to_owned());
                continue;
            }
            _ => return None,
        };
        let before = jobs.len();
        for job in fields {
            // Five minutes after its start: 7+5.
            let (job, minutes) = match job.split_once('+') {
                Some((job, minutes)) if what == "start" => (job, format!("+{}m", count(minutes)?)),
                Some(_) => return None,
                None => (job, String::new()),
            };
            // A job, or an element of an array: 7_3.
            for number in job.splitn(2, '_') {
                parse_count(number).ok()?;
            }
            jobs.push(format!("{job}:{what}{minutes}"));
        }
        if jobs.len() == before {
            return None;
        }
    }
    if !jobs.is_empty() {
        words.extend(pair("--after", jobs.join(between)));
        words.push("--if-never=keep".into());
    }
    Some(words)
}

/// The name of a file with the letters of Tutti: `%J` is the number of the job, and `%s` the step,
/// which is the script.
fn file_pattern(value: &str) -> String {
    let mut file = String::new();
    let mut rest = value;
    while let Some(at) = rest.find('%') {
        let (text, behind) = rest.split_at(at);
        file.push_str(text);
        let letter = behind[1..].chars().find(|c| !c.is_ascii_digit());
        let end = 1 + behind[1..].chars().take_while(char::is_ascii_digit).count();
        match letter {
            Some('J') => file.push_str(&format!("{}j", &behind[..end])),
            Some('s') => file.push_str("batch"),
            Some(other) => file.push_str(&format!("{}{other}", &behind[..end])),
            None => file.push_str(&behind[..end]),
        }
        rest = &behind[end + letter.map_or(0, char::len_utf8)..];
    }
    file.push_str(rest);
    file
}

/// A limit as `sbatch` reads it: minutes, `M:S`, `H:M:S`, `D-H`, `D-H:M` or `D-H:M:S`, each number
/// of any size. Zero and `UNLIMITED` are no limit.
fn time_limit(value: &str) -> Result<Vec<String>, UnitError> {
    let seconds = slurm_limit(value)?;
    Ok(seconds.map_or(Vec::new(), |seconds| pair("--time", format!("{seconds}s"))))
}

/// A limit in Slurm's words, in seconds; `None`: there is none.
///
/// # Errors
/// If it is no time, or longer than a job can run.
pub fn slurm_limit(value: &str) -> Result<Option<u64>, UnitError> {
    if value.eq_ignore_ascii_case("unlimited") || value.eq_ignore_ascii_case("infinite") {
        return Ok(None);
    }
    match seconds_of(value) {
        Some(0) => Ok(None),
        // More than ten thousand years would not fit into what the option takes.
        Some(seconds) if seconds < 1 << 34 => Ok(Some(seconds)),
        Some(_) => Err(UnitError::TooLarge { text: shown(value), most: "500 years" }),
        None => Err(UnitError::NotASlurmTime { text: shown(value) }),
    }
}

fn seconds_of(value: &str) -> Option<u64> {
    let number = |text: &str| {
        let is_plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        if is_plain { text.parse::<u32>().ok().map(u64::from) } else { None }
    };
    let (days, clock) = match value.split_once('-') {
        Some((days, clock)) => (Some(number(days)?), clock),
        None => (None, value),
    };
    let mut parts = [0; 3];
    let mut count = 0;
    for part in clock.split(':') {
        *parts.get_mut(count)? = number(part)?;
        count += 1;
    }
    let (hours, minutes, seconds) = match (days, count) {
        (Some(_), _) | (None, 3) => (parts[0], parts[1], parts[2]),
        (None, 2) => (0, parts[0], parts[1]),
        (None, _) => (0, parts[0], 0),
    };
    // Each is below 2^32: no sum overflows.
    Some(days.unwrap_or(0) * 86_400 + hours * 3_600 + minutes * 60 + seconds)
}

/// `sbatch` counts a plain number in megabytes.
fn slurm_bytes(value: &str) -> Result<u64, UnitError> {
    let plain = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
    if plain { parse_bytes(&format!("{value}M")) } else { parse_bytes(value) }
}

/// Slurm asks for memory by node or by processor, Tutti by task. One becomes the other when all
/// lines are known: `--mem` is divided by the tasks on a node (all on one, unless the script says
/// how many nodes or how many tasks on each), `--mem-per-cpu` multiplied by the processors of a
/// task.
#[derive(Debug)]
pub(super) struct Memory {
    line: u32,
    tasks: Option<u32>,
    nodes: Option<u32>,
    tasks_per_node: Option<u32>,
    processors: u32,
    for_all: Option<u64>,
    for_each: Option<u64>,
}

impl Default for Memory {
    fn default() -> Self {
        let (tasks, nodes, tasks_per_node) = (None, None, None);
        let (line, processors, for_all, for_each) = (0, 1, None, None);
        Self { line, tasks, nodes, tasks_per_node, processors, for_all, for_each }
    }
}

impl Memory {
    /// A script may mix both dialects, with the counts in a `#TUTTI` line. Only what is written
    /// plainly is seen; the verb's parser complains about what is wrong.
    pub(super) fn note_tutti(&mut self, words: &[String]) {
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
    pub(super) fn directive(&self) -> Result<Option<Directive>, Problem> {
        let line = self.line;
        let failed = |problem| Problem { line, problem };
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
