//! `tutti params`.

use super::{all_jobs, ask_of_the_past};
use clap::Args;
use serde::{Serialize, Serializer};
use std::collections::BTreeMap;
use tutti_client::ask::{ask, unexpected};
use tutti_client::connect_or_start;
use tutti_client::output::{Align, Table, counted, print, print_json, print_table};
use tutti_client::site_file::{self, FileOptions, Part, say_changes};
use tutti_node::codes::coded;
use tutti_node::exit::Exit;
use tutti_node::instance::Instance;
use tutti_types::ClassName;
use tutti_types::limits::SHARE_WHOLE;
use tutti_wire::code::Code;
use tutti_wire::local::{Reply, Request, Section, Setting};
use tutti_wire::parameter::share;
use tutti_wire::report::{ClassReport, ParamReport, PeriodReport};

const EXAMPLES: &str = "\
Examples:
  tutti params                           all values
  tutti params quantum=20ms rows=4       change two, while jobs run
  tutti params --class standby share=10% a rule of a class
  tutti params --during 'mon-fri 08:00-18:00' policy=gang
                                         other values in working hours
  tutti params --class vip users=ada,@staff
                                         only these may use the class
  tutti params --file site.toml --dry-run
                                         what a file would change";

#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
#[command(group = clap::ArgGroup::new("source").args(["file", "toml", "preset"])
    .conflicts_with_all(["what", "settings", "forget"]))]
#[command(group = clap::ArgGroup::new("what").args(["during", "class"]).multiple(true))]
pub(crate) struct ParamsArgs {
    /// Show, change or define a class, by rules such as share=25% or priority=4; without rules,
    /// shows what each means
    #[arg(long, value_name = "NAME")]
    class: Option<String>,

    /// Set values for some hours of the week, such as "mon-fri 08:00-18:00" (days or hours may be
    /// omitted); of overlapping hours, the last set count
    #[arg(long, value_name = "HOURS")]
    during: Option<String>,

    /// Delete the values of --during, or the class of --class once no job belongs to it
    #[arg(long, requires = "what", conflicts_with = "settings")]
    forget: bool,

    #[command(flatten)]
    site: FileOptions,

    /// Set values that are built in: llnl-t3d-day, those of a published T3D by day
    #[arg(long, value_name = "SET")]
    preset: Option<String>,

    /// As JSON
    #[arg(long)]
    json: bool,

    /// Values to set, such as quantum=50ms, or to show, such as quantum [default: show all]
    #[arg(value_name = "NAME[=VALUE]")]
    settings: Vec<String>,
}

#[derive(Serialize)]
struct All {
    params: Vec<ParamReport>,
    #[serde(serialize_with = "by_name")]
    classes: Vec<ClassReport>,
    periods: Vec<PeriodReport>,
}

/// Each class as an object of its rules.
fn by_name<S: Serializer>(classes: &[ClassReport], serializer: S) -> Result<S::Ok, S::Error> {
    let class = |class: &ClassReport| -> BTreeMap<String, String> {
        let rules = class.rules.iter().map(|rule| (rule.name.clone(), rule.value.clone()));
        rules.chain([("name".into(), class.name.clone())]).collect()
    };
    serializer.collect_seq(classes.iter().map(class))
}

/// What a file or a preset asks for, if there is one; or all values as a file.
fn execute_file(args: &ParamsArgs) -> anyhow::Result<Option<Exit>> {
    if args.site.toml {
        let all = All::from(ask_of_the_past(&Request::StandingParams)?)?;
        print(&site_file::params(&all.params, &all.classes, &all.periods))?;
        return Ok(Some(Exit::OK));
    }
    let typed = if args.site.dry_run { typed(args) } else { Vec::new() };
    let Some(changes) = args.site.run(Part::Params, args.preset.as_deref(), typed)? else {
        return Ok(None);
    };
    say_changes(&changes)?;
    Ok(Some(Exit::OK))
}

/// The settings of the command line; none if one of them only names what is to be shown.
fn typed(args: &ParamsArgs) -> Vec<Setting> {
    let section = || match &args.class {
        Some(class) => Section::Class(ClassName::new(class)),
        None => Section::Params,
    };
    let setting = |text: &String| {
        let (name, value) = text.split_once('=')?;
        let (name, value) = (name.trim().into(), value.trim().into());
        Some(Setting { line: 0, section: section(), during: args.during.clone(), name, value })
    };
    args.settings.iter().map(setting).collect::<Option<_>>().unwrap_or_default()
}

pub(crate) fn execute(args: ParamsArgs) -> anyhow::Result<Exit> {
    if let Some(exit) = execute_file(&args)? {
        return Ok(exit);
    }
    let (mut settings, mut wanted) = (Vec::new(), Vec::new());
    for setting in &args.settings {
        match setting.split_once('=') {
            Some((name, value)) => settings.push((name.trim().into(), value_of(name, value)?)),
            None => wanted.push(setting.as_str()),
        }
    }
    if let (Some(name), false) = (wanted.first(), settings.is_empty()) {
        let reason = format!("{name:?} sets nothing; write NAME=VALUE, such as quantum=50ms");
        return Err(coded(Code::BadValue, reason));
    }
    let is_set = args.forget || !settings.is_empty();
    if is_set && Instance::locate() == Instance::to_start() {
        // Only a controller writes the journal. A private instance keeps what is set when it ends.
        connect_or_start()?;
    }
    let before = known()?;
    if args.forget {
        return forget(&args);
    }
    if settings.is_empty() {
        show(before.of(&wanted, args.class.as_deref())?, &args)?;
        return Ok(Exit::OK);
    }
    let names: Vec<String> = settings.iter().flat_map(names_of).collect();
    let class = args.class.as_deref();
    let request = match (&args.during, class.map(ClassName::new)) {
        (Some(period), class) => Request::SetPeriod { period: period.clone(), class, settings },
        (None, Some(class)) => Request::SetClass { class, settings },
        (None, None) => Request::SetParams { settings },
    };
    let after = All::from(ask(&request)?)?;
    if args.during.is_some() && !args.json {
        print_table(&periods_table(&after.periods))?;
    } else if args.json {
        print_json(&after)?;
    } else {
        print(&changes(class, &names, &before, &after))?;
        print(&without_effect(class, &names, &after))?;
        if class.is_none() && names.iter().any(|name| name == "policy") {
            print(without_program(&after))?;
            say_who_takes_turns(&after)?;
        }
    }
    Ok(Exit::OK)
}

/// A value as the controller gets it: the path of a policy program is made absolute.
fn value_of(name: &str, value: &str) -> anyhow::Result<String> {
    let value = value.trim();
    let names_file = value.contains('/') && names_program(name.trim());
    if !names_file {
        return Ok(value.into());
    }
    let path = std::path::absolute(value)
        .map_err(|error| coded(Code::BadValue, format!("policy program {value}: {error}")))?;
    let path = path.components().collect::<std::path::PathBuf>();
    let text = path.to_str().map(str::to_owned);
    text.ok_or_else(|| coded(Code::BadValue, "the path of a policy program is text of UTF-8"))
}

fn names_program(name: &str) -> bool {
    matches!(name, "policy" | "policy_program" | "policy_node" | "policy-node")
}

/// Of what was set, what counts only under other policies than that in force; a line for each.
fn without_effect(class: Option<&str>, names: &[String], after: &All) -> String {
    let policy = after.value(None, "policy").unwrap_or_default();
    let line = |name: &String| {
        after.param(class, name).filter(|param| param.value != param.default)?;
        let policies = tutti_types::params::policies_of(name)?;
        let wanted = policies.join(" or ");
        (!policies.contains(&policy.as_str())).then(|| {
            format!("{name} has no effect under policy={policy}; it counts under policy={wanted}\n")
        })
    };
    let lines: String = names.iter().filter_map(line).collect();
    lines + share_without_effect(class, names, after)
}

/// The same of a share where no job takes turns: it counts once time is held for the class.
fn share_without_effect(class: Option<&str>, names: &[String], after: &All) -> &'static str {
    let is = |class, name, value: &str| after.value(class, name).is_some_and(|it| it == value);
    let sets = |name: &str| names.iter().any(|it| it == name);
    let one_row = is(None, "policy", "gang") && is(None, "rows", "1");
    let takes_turns = !(one_row || is(None, "policy", "space") || is(None, "policy", "classes"));
    let counts = takes_turns || is(class, "share", "0%") || is(class, "empty", "hold");
    if class.is_none() || counts || !(sets("share") || sets("empty")) {
        return "";
    }
    "share has no effect where jobs take no turns; it counts under policy=gang with rows from 2 on, \
     or with empty=hold\n"
}

/// What is said where a policy program is to decide, and none is named.
fn without_program(after: &All) -> &'static str {
    let is = |name, value: &str| after.value(None, name).is_some_and(|it| it == value);
    if is("policy", "external") && is("policy_program", "none") {
        "there is no policy program: the built-in policy decides until policy=/PATH names one\n"
    } else {
        ""
    }
}

/// Policies without turns leave jobs that have begun to take theirs.
fn say_who_takes_turns(after: &All) -> anyhow::Result<()> {
    if after.value(None, "policy").is_none_or(|policy| policy == "gang") {
        return Ok(());
    }
    let jobs = all_jobs(false, |from| Request::Jobs { ended: false, from })?;
    let in_turns = jobs.iter().filter(|job| job.rows > 1 && job.share_percent.is_some()).count();
    if in_turns > 0 {
        let who = counted(in_turns as u64, "job");
        print(&format!("taking turns as before, until they end: {who} (`tutti ps`)\n"))?;
    }
    Ok(())
}

/// What `tutti params --json` prints.
#[cfg(feature = "web")]
pub(super) fn json_of_all() -> anyhow::Result<String> {
    Ok(serde_json::to_string(&known()?)?)
}

fn known() -> anyhow::Result<All> {
    All::from(ask_of_the_past(&Request::Params)?)
}

fn forget(args: &ParamsArgs) -> anyhow::Result<Exit> {
    let (request, done) = match (&args.during, &args.class) {
        (Some(period), None) => (
            Request::ForgetPeriod { period: period.clone() },
            format!("nothing is otherwise {period} any more\n"),
        ),
        (None, Some(class)) => (
            Request::ForgetClass { class: ClassName::new(class) },
            format!("there is no class {class} any more\n"),
        ),
        (Some(_), Some(_)) | (None, None) => {
            let reason = "--forget goes with --during or with --class, and not with both";
            return Err(coded(Code::CannotUnderstand, reason));
        }
    };
    let after = All::from(ask(&request)?)?;
    match args.json {
        true => print_json(&after)?,
        false => print(&done)?,
    }
    Ok(Exit::OK)
}

impl All {
    /// Only these parameters, or rules of this class; all if none is named.
    fn of(mut self, names: &[&str], class: Option<&str>) -> anyhow::Result<Self> {
        let tables = match class {
            Some(_) => self.classes.iter_mut().map(|class| &mut class.rules).collect(),
            None => vec![&mut self.params],
        };
        for table in tables.into_iter().filter(|_| !names.is_empty()) {
            let is_known = |name: &str| table.iter().any(|it| it.name == name);
            if let Some(unknown) = names.iter().find(|name| !is_known(name)) {
                let known: Vec<&str> = table.iter().map(|it| it.name.as_str()).collect();
                // Two that look like a name and its value.
                let instead = match names {
                    [name, value] if is_known(name) => {
                        format!("to set {name} write {name}={value}")
                    }
                    _ => format!("there are {}", known.join(", ")),
                };
                return Err(coded(Code::BadValue, format!("there is no {unknown:?}; {instead}")));
            }
            table.retain(|it| names.contains(&it.name.as_str()));
        }
        Ok(self)
    }
}

/// All of them, or one class; of some parameters, nothing else.
fn show(all: All, args: &ParamsArgs) -> anyhow::Result<()> {
    let mut classes = all.classes.clone();
    if let Some(name) = &args.class {
        classes.retain(|class| class.name == *name);
        if classes.is_empty() {
            let names: Vec<&str> = all.classes.iter().map(|class| class.name.as_str()).collect();
            let reason = format!(
                "there is no class {name}; the classes are {} (share=10% after the name would define it)",
                names.join(", ")
            );
            return Err(coded(Code::NoClass, reason));
        }
    }
    match (args.json, &args.class) {
        (true, None) => print_json(&all),
        (true, Some(_)) => {
            let (params, periods) = (Vec::new(), all.periods);
            print_json(&All { params, classes, periods })
        }
        (false, Some(_)) => print_table(&params_table("RULE", &classes[0].rules)),
        (false, None) if !args.settings.is_empty() => {
            print_table(&params_table("PARAMETER", &all.params))
        }
        (false, None) => {
            print_table(&params_table("PARAMETER", &all.params))?;
            print("\n")?;
            print_table(&classes_table(&classes))?;
            if all.periods.is_empty() {
                return Ok(());
            }
            print("\n")?;
            print_table(&periods_table(&all.periods))
        }
    }
}

/// The parameters that a setting sets: `policy=/PATH` names a program, too.
fn names_of((name, value): &(String, String)) -> Vec<String> {
    let is_program = name == "policy" && value.contains('/');
    let also = is_program.then(|| "policy_program".to_owned());
    [Some(name.clone()), also].into_iter().flatten().collect()
}

/// What was set, each with what it was before.
fn changes(class: Option<&str>, names: &[String], before: &All, after: &All) -> String {
    let mut text = String::new();
    let subject = class.map_or(String::new(), |class| format!("class {class}: "));
    let is_new = |class| !before.classes.iter().any(|old| old.name == class);
    if class.is_some_and(is_new) {
        text.push_str(&format!(
            "{subject}new; if that is a slip, `tutti params --class {} --forget` removes it\n",
            class.unwrap_or_default()
        ));
    }
    for name in names {
        let (old, new) = (before.value(class, name), after.value(class, name));
        let new = new.unwrap_or_default();
        let line = match (old, after.overrider(class, name)) {
            (_, Some(period)) => {
                format!(
                    "{subject}{name} stays {new} during {period}; at other hours, what you set holds\n"
                )
            }
            (Some(old), None) if old == new => format!("{subject}{name} is {new}, as before\n"),
            (Some(old), None) => format!("{subject}{name} was {old} and is {new} now\n"),
            (None, None) => format!("{subject}{name} is {new}\n"),
        };
        text.push_str(&line);
    }
    if class.is_some() && names.iter().any(|name| name == "share") {
        text.push_str(&after.without_time());
    }
    text
}

impl All {
    fn from(reply: Reply) -> anyhow::Result<Self> {
        match reply {
            Reply::Params { params, classes, periods } => Ok(Self { params, classes, periods }),
            _ => unexpected(),
        }
    }

    /// The hours that decide now what a parameter, or a rule of a class, is.
    fn overrider(&self, class: Option<&str>, name: &str) -> Option<&str> {
        let subject = class.map_or(String::new(), |class| format!("{class} "));
        let setting = format!("{subject}{name}=");
        let sets =
            |period: &&PeriodReport| period.settings.iter().any(|it| it.starts_with(&setting));
        self.periods
            .iter()
            .rev()
            .filter(|period| period.now)
            .find(sets)
            .map(|it| it.period.as_str())
    }

    /// The value of a parameter, or of a rule of a class.
    fn value(&self, class: Option<&str>, name: &str) -> Option<String> {
        self.param(class, name).map(|param| param.value.clone())
    }

    /// What becomes of classes without a share, if the others have all of the time.
    fn without_time(&self) -> String {
        let share_of = |class: &ClassReport| {
            let value = self.value(Some(&class.name), "share");
            value.and_then(|value| share(&value)).unwrap_or(0)
        };
        if self.classes.iter().map(share_of).sum::<u64>() < u64::from(SHARE_WHOLE) {
            return String::new();
        }
        let without = self.classes.iter().filter(|class| share_of(class) == 0);
        let names: Vec<&str> = without.map(|class| class.name.as_str()).collect();
        match names.is_empty() {
            true => String::new(),
            false => format!(
                "the shares are all of the time now: jobs of {} run only while no job of a class with \
                 a share does\n",
                names.join(", ")
            ),
        }
    }

    fn param(&self, class: Option<&str>, name: &str) -> Option<&ParamReport> {
        let params = match class {
            None => &self.params,
            Some(class) => &self.classes.iter().find(|known| known.name == class)?.rules,
        };
        params.iter().find(|param| param.name == name)
    }
}

fn params_table(title: &str, params: &[ParamReport]) -> Table {
    let mut table = Table::new(&[
        (title, Align::Left),
        ("VALUE", Align::Right),
        ("DEFAULT", Align::Right),
        ("RANGE", Align::Left),
    ]);
    for param in params {
        let ParamReport { name, value, default, range, help } = param;
        table.row([name, value, default, range].map(Clone::clone));
        table.note(help);
    }
    table
}

fn periods_table(periods: &[PeriodReport]) -> Table {
    let mut table =
        Table::new(&[("HOURS", Align::Left), ("NOW", Align::Left), ("OTHERWISE", Align::Left)]);
    for period in periods {
        let now = if period.now { "yes" } else { "no" };
        table.row([period.period.clone(), now.into(), period.settings.join(", ")]);
    }
    table
}

fn classes_table(classes: &[ClassReport]) -> Table {
    let rules = classes.first().map_or(&[][..], |class| &class.rules);
    let titles: Vec<String> = rules.iter().map(|rule| rule.name.to_uppercase()).collect();
    let mut columns = vec![("CLASS", Align::Left)];
    columns.extend(titles.iter().map(|title| (title.as_str(), Align::Right)));
    let mut table = Table::new(&columns);
    for class in classes {
        let values = class.rules.iter().map(|rule| rule.value.clone());
        table.row([class.name.clone()].into_iter().chain(values));
    }
    table
}
