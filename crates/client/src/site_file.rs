//! A site's settings as a TOML file: read with the line of each setting, and printed in that form.
//!
//! ```toml
//! [params]
//! quantum = "100ms"
//! [class.vip]
//! users = ["ada", "@staff"]
//! [during."mon-fri 08:00-18:00".params]
//! rows = 2
//! [queue.short]
//! user_jobs = 2
//! [queue.short.during."22:00-06:00"]
//! user_jobs = 8
//! [bank]
//! ada = "100h/month"
//! [at]
//! "mon-fri 08:00" = ["params interactive.rows=3", "nodes set:lab out"]
//! ```

use crate::ask::{ask, unexpected};
use crate::connect_or_start;
use crate::output::print;
use anyhow::Context;
use clap::Args;
use std::fmt::Write as _;
use std::io::Read;
use toml::de::{DeInteger, DeTable, DeValue};
use tutti_node::codes::coded;
use tutti_node::instance::Instance;
use tutti_types::{ClassName, QueueName};
use tutti_wire::code::Code;
use tutti_wire::local::{Reply, Request, Section, Setting};
use tutti_wire::report::{
    BankReport, ClassReport, ParamReport, PeriodReport, QueueReport, QueueSetting, TimedReport,
};

/// The largest file that is read, in bytes: far more than all settings take.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// What of a file a verb is for; it leaves the rest to the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Queues.
    Queues,
    /// Parameters, classes and hours.
    Params,
    /// Allowances of processor time.
    Bank,
    /// Changes at times.
    At,
}

impl Part {
    /// Its sets that are built in, by name.
    const fn presets(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Queues => &[("llnl-t3d", include_str!("presets/llnl-t3d-queues.toml"))],
            Self::Params => &[("llnl-t3d-day", include_str!("presets/llnl-t3d-day.toml"))],
            Self::Bank | Self::At => &[],
        }
    }

    /// What `--dry-run` of its verb needs beside it.
    const fn needed_by_dry_run(self) -> &'static str {
        match self {
            Self::Queues => "--file, --preset, --remove or settings such as user_jobs=2",
            Self::Params => "--file, --preset or settings such as quantum=50ms",
            Self::Bank => "--file or settings such as ada=100h",
            Self::At => "--file, remove or a change such as 'mon 08:00' params rows=3",
        }
    }
}

/// Options of the verbs that set what a file has, or print it in that form.
#[derive(Args, Debug)]
pub struct FileOptions {
    /// Set what a TOML file (- for standard input) has for this verb: all of it or nothing
    #[arg(long, value_name = "FILE")]
    file: Option<String>,

    /// Print what is set in the form that --file reads
    #[arg(long, conflicts_with_all = ["json", "dry_run"])]
    pub toml: bool,

    /// Only print what would change
    #[arg(long)]
    pub dry_run: bool,
}

impl FileOptions {
    /// Sets what a file, a preset or else the command line asks for, or only finds what that would
    /// change: a line for each change. `None` if nothing is to be set.
    ///
    /// # Errors
    /// Names what is wrong; nothing is changed then.
    pub fn run(
        &self,
        part: Part,
        preset: Option<&str>,
        typed: Vec<Setting>,
    ) -> anyhow::Result<Option<Vec<String>>> {
        let source = match (&self.file, preset) {
            (Some(path), _) => Some(Source::read(path)?),
            (None, Some(name)) => Some(Source::preset(name, part.presets())?),
            (None, None) => None,
        };
        if source.is_none() && typed.is_empty() {
            if self.dry_run {
                let reason = format!("--dry-run goes with {}", part.needed_by_dry_run());
                return Err(coded(Code::CannotUnderstand, reason));
            }
            return Ok(None);
        }
        if Instance::locate() == Instance::to_start() {
            connect_or_start()?;
        }
        let lines = match source {
            Some(source) => source.apply(part, self.dry_run),
            None => configure(typed, self.dry_run, None),
        };
        lines.map(Some)
    }
}

/// Prints what was changed, or would be.
pub fn say_changes(lines: &[String]) -> anyhow::Result<()> {
    match lines.is_empty() {
        true => print("nothing changes\n"),
        false => print(&lines.iter().map(|line| format!("{line}\n")).collect::<String>()),
    }
}

/// A file, or a set of settings that is built in.
pub struct Source {
    /// Its name, for messages.
    pub name: String,
    text: String,
}

impl Source {
    /// Reads a file; `-` is standard input.
    ///
    /// # Errors
    /// If it can't be read, or is too long.
    pub fn read(path: &str) -> anyhow::Result<Self> {
        let mut text = String::new();
        let unreadable = || format!("cannot read {path}");
        let mut from: Box<dyn Read> = match path {
            "-" => Box::new(std::io::stdin()),
            path => Box::new(std::fs::File::open(path).with_context(unreadable)?),
        };
        from.by_ref()
            .take(FILE_BYTES_MAX + 1)
            .read_to_string(&mut text)
            .with_context(unreadable)?;
        if text.len() as u64 > FILE_BYTES_MAX {
            let reason = format!("{path} is longer than {} KiB", FILE_BYTES_MAX >> 10);
            return Err(coded(Code::BadValue, reason));
        }
        Ok(Self { name: path.into(), text })
    }

    /// A text that was read already.
    #[must_use]
    pub fn from_text(name: &str, text: &str) -> Self {
        Self { name: name.into(), text: text.into() }
    }

    /// A set that is built in.
    ///
    /// # Errors
    /// If there is none of that name.
    pub fn preset(name: &str, known: &[(&str, &str)]) -> anyhow::Result<Self> {
        let found = known.iter().find(|(preset, _)| *preset == name);
        let Some((_, text)) = found else {
            let names: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
            let reason = format!("there is no preset {name:?}; there is {}", names.join(", "));
            return Err(coded(Code::BadValue, reason));
        };
        Ok(Self { name: format!("preset {name}"), text: (*text).into() })
    }

    /// The settings of a part, in the order of their lines.
    ///
    /// # Errors
    /// Names the line that can't be read, and what could stand there.
    pub fn settings(&self, part: Part) -> anyhow::Result<Vec<Setting>> {
        let at = |line: u32, reason: &str| {
            coded(Code::BadValue, format!("{}:{line}: {reason}", self.name))
        };
        let parsed = DeTable::parse(&self.text).map_err(|error| {
            let line = error.span().map_or(1, |span| line_of(&self.text, span.start));
            at(line, error.message())
        })?;
        let mut reading = Reading { text: &self.text, part, settings: Vec::new() };
        reading.file(parsed.get_ref()).map_err(|(line, reason)| at(line, &reason))?;
        reading.settings.sort_by_key(|setting| setting.line);
        Ok(reading.settings)
    }

    /// Applies them, or says what would change.
    ///
    /// # Errors
    /// Names the line that is wrong; nothing is changed then.
    fn apply(&self, part: Part, dry_run: bool) -> anyhow::Result<Vec<String>> {
        let settings = self.settings(part)?;
        if settings.is_empty() {
            let sections = match part {
                Part::Queues => "[queue.NAME]",
                Part::Bank => "[bank]",
                Part::At => "[at]",
                Part::Params => "[params], [class.NAME] or [during.\"HOURS\".params]",
            };
            let reason = format!("{} sets nothing: it has no {sections}", self.name);
            return Err(coded(Code::BadValue, reason));
        }
        configure(settings, dry_run, Some(&self.name))
    }
}

/// Sends settings to the controller; what was changed, or would be.
///
/// # Errors
/// What is wrong, behind the name of the file and the line.
fn configure(
    settings: Vec<Setting>,
    dry_run: bool,
    file: Option<&str>,
) -> anyhow::Result<Vec<String>> {
    match ask(&Request::Configure { settings, dry_run }) {
        Ok(Reply::Configured { changes }) => Ok(changes),
        Ok(_) => unexpected(),
        Err(error) => {
            let Some(file) = file else { return Err(error) };
            let (code, text) = (tutti_node::codes::code_of(&error), format!("{error:#}"));
            let has_line = text.starts_with(|first: char| first.is_ascii_digit());
            let between = if has_line { "" } else { " " };
            Err(coded(code, format!("{file}:{between}{text}")))
        }
    }
}

fn line_of(text: &str, offset: usize) -> u32 {
    let before = text.as_bytes().iter().take(offset).filter(|&&byte| byte == b'\n').count();
    u32::try_from(before + 1).unwrap_or(u32::MAX)
}

type Wrong = (u32, String);

struct Reading<'a> {
    text: &'a str,
    part: Part,
    settings: Vec<Setting>,
}

/// One table of a file.
struct Place {
    section: Section,
    during: Option<String>,
}

impl Reading<'_> {
    fn each<'t, 'i>(
        &self,
        table: &'t DeTable<'i>,
    ) -> impl Iterator<Item = (u32, String, &'t DeValue<'i>)> + use<'_, 't, 'i> {
        let text = self.text;
        table.iter().map(move |(key, value)| {
            (line_of(text, key.span().start), key.get_ref().to_string(), value.get_ref())
        })
    }

    fn file(&mut self, table: &DeTable<'_>) -> Result<(), Wrong> {
        let sections: Vec<_> = self.each(table).collect();
        for (line, name, value) in sections {
            let inner = table_of(line, &name, value)?;
            match (&*name, self.part) {
                ("queue", Part::Queues) => self.queues(inner)?,
                ("bank", Part::Bank) => {
                    let place = Place { section: Section::Bank, during: None };
                    self.values(inner, &place)?;
                }
                ("at", Part::At) => self.changes(line, inner)?,
                ("params", Part::Params) => self.values(inner, &Place::params(None))?,
                ("class", Part::Params) => self.classes(inner, None)?,
                ("during", Part::Params) => self.hours(inner)?,
                ("queue" | "params" | "class" | "during" | "bank" | "at", _) => {}
                _ => {
                    let known = "[params], [class.NAME], [during.\"HOURS\".params], [queue.NAME], [bank], [at]";
                    return Err((line, format!("there is no section {name:?}; there are {known}")));
                }
            }
        }
        Ok(())
    }

    fn queues(&mut self, table: &DeTable<'_>) -> Result<(), Wrong> {
        let queues: Vec<_> = self.each(table).collect();
        for (line, name, value) in queues {
            let inner = table_of(line, &name, value)?;
            let section = Section::Queue(QueueName::new(&name));
            let place = Place { section: section.clone(), during: None };
            // What the file does not name is as in a new queue.
            self.settings.push(Setting {
                line,
                section: section.clone(),
                during: None,
                name: String::new(),
                value: "new".into(),
            });
            let entries: Vec<_> = self.each(inner).collect();
            for (line, name, value) in entries {
                if name != "during" {
                    self.value((line, name), value, &place)?;
                    continue;
                }
                let hours: Vec<_> = self.each(table_of(line, &name, value)?).collect();
                for (line, period, value) in hours {
                    let limits = table_of(line, &period, value)?;
                    let place = Place { section: section.clone(), during: Some(period) };
                    self.values(limits, &place)?;
                }
            }
        }
        Ok(())
    }

    fn classes(&mut self, table: &DeTable<'_>, during: Option<&str>) -> Result<(), Wrong> {
        let classes: Vec<_> = self.each(table).collect();
        for (line, name, value) in classes {
            let rules = table_of(line, &name, value)?;
            let section = Section::Class(ClassName::new(&name));
            let place = Place { section: section.clone(), during: during.map(str::to_owned) };
            if during.is_none() {
                let (name, value) = (String::new(), String::new());
                self.settings.push(Setting { line, section, during: None, name, value });
            }
            self.values(rules, &place)?;
        }
        Ok(())
    }

    fn hours(&mut self, table: &DeTable<'_>) -> Result<(), Wrong> {
        let periods: Vec<_> = self.each(table).collect();
        for (line, period, value) in periods {
            let parts: Vec<_> = self.each(table_of(line, &period, value)?).collect();
            for (line, name, value) in parts {
                let inner = table_of(line, &name, value)?;
                match &*name {
                    "params" => self.values(inner, &Place::params(Some(&period)))?,
                    "class" => self.classes(inner, Some(&period))?,
                    _ => {
                        let reason = format!("{name:?} can't be by hours; params and class can");
                        return Err((line, reason));
                    }
                }
            }
        }
        Ok(())
    }

    /// Changes at times: none but these are to be.
    fn changes(&mut self, line: u32, table: &DeTable<'_>) -> Result<(), Wrong> {
        let setting = |line, name: &str, value: &str| Setting {
            line,
            section: Section::At,
            during: None,
            name: name.into(),
            value: value.into(),
        };
        self.settings.push(setting(line, "", "new"));
        let times: Vec<_> = self.each(table).collect();
        for (line, when, value) in times {
            let changes: Option<Vec<&str>> = match value {
                DeValue::String(change) => Some(vec![&**change]),
                DeValue::Array(items) => items.iter().map(|it| it.get_ref().as_str()).collect(),
                _ => None,
            };
            let wrong = "a time needs a text such as \"nodes n1 out\", or a list of such texts";
            let changes = changes.ok_or_else(|| (line, wrong.into()))?;
            self.settings.extend(changes.into_iter().map(|change| setting(line, &when, change)));
        }
        Ok(())
    }

    fn values(&mut self, table: &DeTable<'_>, place: &Place) -> Result<(), Wrong> {
        let values: Vec<_> = self.each(table).collect();
        for (line, name, value) in values {
            self.value((line, name), value, place)?;
        }
        Ok(())
    }

    fn value(
        &mut self,
        (line, name): (u32, String),
        value: &DeValue<'_>,
        place: &Place,
    ) -> Result<(), Wrong> {
        let value = match value {
            DeValue::String(text) => text.to_string(),
            DeValue::Integer(number) => decimal(number).ok_or_else(|| {
                (line, format!("{name} has a number that is too large: {number}"))
            })?,
            DeValue::Array(items) => {
                let texts = items.iter().map(|item| item.get_ref().as_str());
                let texts: Option<Vec<&str>> = texts.collect();
                let texts = texts.filter(|texts| !texts.is_empty());
                let wrong = || (line, format!("{name} needs texts, such as [\"ada\", \"@staff\"]"));
                texts.ok_or_else(wrong)?.join(",")
            }
            other => {
                let kind = other.type_str();
                return Err((line, format!("{name} needs a number or a text, not a {kind}")));
            }
        };
        let (section, during) = (place.section.clone(), place.during.clone());
        self.settings.push(Setting { line, section, during, name, value });
        Ok(())
    }
}

impl Place {
    fn params(during: Option<&str>) -> Self {
        Self { section: Section::Params, during: during.map(str::to_owned) }
    }
}

fn table_of<'t, 'i>(
    line: u32,
    name: &str,
    value: &'t DeValue<'i>,
) -> Result<&'t DeTable<'i>, Wrong> {
    value
        .as_table()
        .ok_or_else(|| (line, format!("{name} needs a section of its own: [{name}...]")))
}

/// Changes at times, as a file has them.
#[must_use]
pub fn changes_at(changes: &[TimedReport]) -> String {
    let mut times: Vec<(&str, Vec<&str>)> = Vec::new();
    for change in changes.iter().filter(|change| change.next.is_some()) {
        match times.iter_mut().find(|(when, _)| *when == change.when) {
            Some((_, of_time)) => of_time.push(&change.change),
            None => times.push((&change.when, vec![&change.change])),
        }
    }
    let mut file = String::from("[at]\n");
    for (when, changes) in times {
        let _ = writeln!(file, "{} = [", text(when));
        for change in changes {
            let _ = writeln!(file, "    {},", text(change));
        }
        file.push_str("]\n");
    }
    file
}

/// A number as the controller reads it; TOML also has hexadecimal, octal and binary ones. `None`:
/// one of those is above 64 bits.
fn decimal(number: &DeInteger<'_>) -> Option<String> {
    let digits = number.as_str().replace('_', "");
    match number.radix() {
        10 => Some(digits),
        radix => u64::from_str_radix(&digits, radix).ok().map(|value| value.to_string()),
    }
}

/// A name, in quotes where it needs some.
fn key(name: &str) -> String {
    let bare = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    match !name.is_empty() && name.chars().all(bare) {
        true => name.into(),
        false => text(name),
    }
}

fn text(value: &str) -> String {
    toml::Value::String(value.into()).to_string()
}

fn line(name: &str, value: &str) -> String {
    let shown = match name {
        "users" if value != "all" => {
            let names: Vec<String> = value.split(',').map(text).collect();
            format!("[{}]", names.join(", "))
        }
        // TOML has no numbers such as 007, and none above 63 bits.
        _ if value.parse::<i64>().is_ok_and(|it| it >= 0 && it.to_string() == value) => {
            value.into()
        }
        _ => text(value),
    };
    format!("{} = {shown}\n", key(name))
}

/// Allowances as a file that sets them again.
pub fn bank(accounts: &[BankReport]) -> String {
    let mut file = String::from("[bank]\n");
    for BankReport { account, allowance_s, period, .. } in accounts {
        let period = period.as_ref().map_or(String::new(), |period| format!("/{period}"));
        let allowance = tutti_types::Nanos::from_secs(*allowance_s);
        file.push_str(&line(account, &format!("{allowance}{period}")));
    }
    file
}

/// Queues as a file that makes them again.
pub fn queues(queues: &[QueueReport]) -> String {
    let mut file = String::new();
    for queue in queues {
        let name = key(&queue.name);
        let between = if file.is_empty() { "" } else { "\n" };
        let _ = writeln!(file, "{between}[queue.{name}]");
        let mut hours: Option<&String> = None;
        for QueueSetting { during, name: setting, value } in &queue.settings {
            if let Some(period) = during.as_ref().filter(|period| hours != Some(*period)) {
                let _ = writeln!(file, "\n[queue.{name}.during.{}]", text(period));
                hours = Some(period);
            }
            file.push_str(&line(setting, value));
        }
    }
    file
}

/// Parameters, classes and hours as a file that sets them again.
pub fn params(params: &[ParamReport], classes: &[ClassReport], periods: &[PeriodReport]) -> String {
    let mut file = String::from("[params]\n");
    // The program is set by its path alone: a file may be for another machine.
    let of_program = ["policy_program", "policy_user", "policy_node"];
    let is_of_file = |param: &&ParamReport| !of_program.contains(&&*param.name);
    for param in params.iter().filter(is_of_file) {
        file.push_str(&line(&param.name, &param.value));
    }
    for class in classes {
        let _ = writeln!(file, "\n[class.{}]", key(&class.name));
        for rule in &class.rules {
            file.push_str(&line(&rule.name, &rule.value));
        }
    }
    for period in periods {
        let hours = text(&period.period);
        let mut last = None;
        for setting in &period.settings {
            let (class, setting) = match setting.split_once(' ') {
                Some((class, rule)) => (Some(class), rule),
                None => (None, setting.as_str()),
            };
            if last != Some(class) {
                let _ = match class {
                    None => writeln!(file, "\n[during.{hours}.params]"),
                    Some(class) => writeln!(file, "\n[during.{hours}.class.{}]", key(class)),
                };
                last = Some(class);
            }
            let (name, value) = setting.split_once('=').unwrap_or((setting, ""));
            file.push_str(&line(name, value));
        }
    }
    file
}

#[cfg(test)]
mod tests {
    use super::{Part, Source};

    fn source(text: &str) -> Source {
        Source::from_text("site.toml", text)
    }

    #[test]
    fn each_setting_has_its_line() {
        let text = "[params]\nrows = 2\n\n[queue.short]\nuser_jobs = 1_0\nusers = [\"ada\", \"@b\"]\n\
                    [queue.short.during.\"22:00-06:00\"]\njobs = \"none\"\n";
        let settings = source(text).settings(Part::Queues).unwrap();
        let shown: Vec<(u32, &str, &str, bool)> = settings
            .iter()
            .map(|it| (it.line, &*it.name, &*it.value, it.during.is_some()))
            .collect();
        let expected = [
            (4, "", "new", false),
            (5, "user_jobs", "10", false),
            (6, "users", "ada,@b", false),
            (8, "jobs", "none", true),
        ];
        assert_eq!(shown, expected);
        assert_eq!(source(text).settings(Part::Params).unwrap().len(), 1);
    }

    #[test]
    fn numbers_of_other_bases_are_read_by_their_value() {
        let text = "[params]\nrows = 0x1_0\nuser_jobs = 0o17\njobs = 0b101\nmax = 1_000\n";
        let settings = source(text).settings(Part::Params).unwrap();
        let values: Vec<&str> = settings.iter().map(|it| &*it.value).collect();
        assert_eq!(values, ["16", "15", "5", "1000"]);
        let large = source("[params]\nrows = 0x1ffffffffffffffff\n").settings(Part::Params);
        assert!(large.unwrap_err().to_string().contains("too large"));
        assert_eq!(super::line("jobs", "007"), "jobs = \"007\"\n");
    }

    #[test]
    fn what_is_wrong_is_named_by_its_line() {
        let says = |text: &str| source(text).settings(Part::Queues).unwrap_err().to_string();
        assert!(says("[queue.a]\njobs = \n").starts_with("site.toml:2: "));
        assert!(says("[queue.a]\n\njobs = true\n").starts_with("site.toml:3: jobs needs a number"));
        assert!(says("[quue.a]\n").starts_with("site.toml:1: there is no section"));
        assert!(says("[queue]\na = 1\n").starts_with("site.toml:2: a needs a section"));
    }

    #[test]
    fn presets_can_be_read() {
        for (name, text) in Part::Queues.presets() {
            assert!(source(text).settings(Part::Queues).unwrap().len() > 7, "{name}");
        }
        for (name, text) in Part::Params.presets() {
            assert!(source(text).settings(Part::Params).unwrap().len() > 7, "{name}");
        }
    }
}
