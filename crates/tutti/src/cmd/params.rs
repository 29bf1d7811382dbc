//! `tutti params`.

use super::{ask, unexpected};
use crate::exit::Exit;
use crate::output::{Align, Table, print, print_json, print_table};
use anyhow::bail;
use clap::Args;
use serde::Serialize;
use tutti_core::ClassName;
use tutti_wire::local::{Reply, Request};
use tutti_wire::report::{ClassReport, ParamReport};

#[derive(Args, Debug)]
pub(crate) struct ParamsArgs {
    /// Show, change or define a class instead: share=25% (its least part of the time), empty=hold or
    /// down (whether its time stays idle or goes to others while it has no job), control=freeze or
    /// signal (how its jobs are suspended)
    #[arg(long, value_name = "NAME")]
    class: Option<String>,

    /// As JSON
    #[arg(long)]
    json: bool,

    /// What to change, such as quantum=50ms; without any, all are shown
    #[arg(value_name = "NAME=VALUE")]
    settings: Vec<String>,
}

#[derive(Serialize)]
struct All {
    params: Vec<ParamReport>,
    classes: Vec<ClassReport>,
}

pub(crate) fn execute(args: ParamsArgs) -> anyhow::Result<Exit> {
    let mut settings = Vec::new();
    for setting in &args.settings {
        match setting.split_once('=') {
            Some((name, value)) => settings.push((name.trim().into(), value.trim().into())),
            None => bail!("{setting:?} sets nothing; write NAME=VALUE, such as quantum=50ms"),
        }
    }
    let before = known()?;
    if settings.is_empty() {
        show(&before, &args)?;
        return Ok(Exit::OK);
    }
    let names: Vec<String> = settings.iter().map(|(name, _): &(String, _)| name.clone()).collect();
    let class = args.class.as_deref();
    let request = match class {
        Some(class) => Request::SetClass { class: ClassName::new(class), settings },
        None => Request::SetParams { settings },
    };
    let Reply::Params { params, classes } = ask(&request)? else { return unexpected() };
    let after = All { params, classes };
    if args.json {
        print_json(&after)?;
    } else {
        print(&changes(class, &names, &before, &after))?;
    }
    Ok(Exit::OK)
}

fn known() -> anyhow::Result<All> {
    match ask(&Request::Params)? {
        Reply::Params { params, classes } => Ok(All { params, classes }),
        _ => unexpected(),
    }
}

/// All of them, or one class.
fn show(all: &All, args: &ParamsArgs) -> anyhow::Result<()> {
    let mut classes = all.classes.clone();
    if let Some(name) = &args.class {
        classes.retain(|class| class.name == *name);
        if classes.is_empty() {
            let names: Vec<&str> = all.classes.iter().map(|class| class.name.as_str()).collect();
            bail!(
                "there is no class {name}; the classes are {} (share=10% after the name would \
                 define it)",
                names.join(", ")
            );
        }
    }
    match (args.json, &args.class) {
        (true, None) => print_json(all),
        (true, Some(_)) => print_json(&All { params: Vec::new(), classes }),
        (false, Some(_)) => print_table(&classes_table(&classes)),
        (false, None) => {
            print_table(&params_table(&all.params))?;
            print("\n")?;
            print_table(&classes_table(&classes))
        }
    }
}

/// What was set, each with what it was before.
fn changes(class: Option<&str>, names: &[String], before: &All, after: &All) -> String {
    let mut text = String::new();
    let subject = class.map_or(String::new(), |class| format!("class {class}: "));
    let is_new = |class| !before.classes.iter().any(|old| old.name == class);
    if class.is_some_and(is_new) {
        text.push_str(&format!("{subject}new\n"));
    }
    for name in names {
        let (old, new) = (before.value(class, name), after.value(class, name));
        let new = new.unwrap_or_default();
        let line = match old {
            Some(old) if old == new => format!("{subject}{name} is {new}, as before\n"),
            Some(old) => format!("{subject}{name} was {old} and is {new} now\n"),
            None => format!("{subject}{name} is {new}\n"),
        };
        text.push_str(&line);
    }
    text
}

impl All {
    /// The value of a parameter, or of a rule of a class.
    fn value(&self, class: Option<&str>, name: &str) -> Option<String> {
        let Some(class) = class else {
            return self.params.iter().find(|p| p.name == name).map(|p| p.value.clone());
        };
        let class = self.classes.iter().find(|known| known.name == class)?;
        match name {
            "share" => Some(class.share.clone()),
            "empty" => Some(class.empty.clone()),
            "control" => Some(class.control.clone()),
            _ => None,
        }
    }
}

fn params_table(params: &[ParamReport]) -> Table {
    let mut table = Table::new(&[
        ("PARAMETER", Align::Left),
        ("VALUE", Align::Right),
        ("DEFAULT", Align::Right),
        ("RANGE", Align::Left),
        ("MEANING", Align::Left),
    ]);
    for param in params {
        table.row([
            param.name.clone(),
            param.value.clone(),
            param.default.clone(),
            param.range.clone(),
            param.help.clone(),
        ]);
    }
    table
}

fn classes_table(classes: &[ClassReport]) -> Table {
    let mut table = Table::new(&[
        ("CLASS", Align::Left),
        ("SHARE", Align::Right),
        ("EMPTY", Align::Left),
        ("CONTROL", Align::Left),
    ]);
    for class in classes {
        table.row([
            class.name.clone(),
            class.share.clone(),
            class.empty.clone(),
            class.control.clone(),
        ]);
    }
    table
}
