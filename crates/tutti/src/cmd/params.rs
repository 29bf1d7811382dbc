//! `tutti params`.

use super::{ask, unexpected};
use crate::exit::Exit;
use crate::output::{Align, Table, print, print_json};
use anyhow::bail;
use clap::Args;
use serde::Serialize;
use tutti_core::ClassName;
use tutti_wire::local::{Reply, Request};
use tutti_wire::report::{ClassReport, ParamReport};

#[derive(Args, Debug)]
pub(crate) struct ParamsArgs {
    /// Change a class instead of the instance's own parameters, or define one: share (such as 25%),
    /// empty (hold or down), control (freeze or signal)
    #[arg(long, value_name = "NAME")]
    class: Option<String>,

    /// As JSON
    #[arg(long)]
    json: bool,

    /// What to change, such as quantum=50ms
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
    let changes = !settings.is_empty();
    let request = match args.class {
        Some(class) if changes => Request::SetClass { class: ClassName::new(&class), settings },
        None if changes => Request::SetParams { settings },
        Some(_) | None => Request::Params,
    };
    let Reply::Params { params, classes } = ask(&request)? else { return unexpected() };
    if args.json {
        print_json(&All { params, classes })?;
    } else if changes {
        // Only what was touched: the rest is one word away.
        print(&shown(&params, &classes, &args.settings))?;
    } else {
        print(&params_table(&params).render())?;
        print("\n")?;
        print(&classes_table(&classes).render())?;
    }
    Ok(Exit::OK)
}

fn shown(params: &[ParamReport], classes: &[ClassReport], settings: &[String]) -> String {
    let named = |name: &str| settings.iter().any(|s| s.split('=').next() == Some(name));
    let touched: Vec<ParamReport> = params.iter().filter(|p| named(&p.name)).cloned().collect();
    if touched.is_empty() {
        classes_table(classes).render()
    } else {
        params_table(&touched).render()
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
