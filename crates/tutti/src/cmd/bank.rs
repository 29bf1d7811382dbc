//! `tutti bank`.

use clap::Args;
use tutti_client::ask::{ask, unexpected};
use tutti_client::output::{Align, Table, print, print_json, print_table};
use tutti_client::site_file::{self, FileOptions, Part, say_changes};
use tutti_node::codes::coded;
use tutti_node::exit::Exit;
use tutti_types::Nanos;
use tutti_wire::code::Code;
use tutti_wire::local::{Reply, Request, Section, Setting};
use tutti_wire::report::BankReport;

/// What the figures mean.
const HELP: &str = "\
Examples:
  tutti bank                   all allowances, and what is left
  tutti bank ada=100h          a user may use 100 hours of processor time
  tutti bank @physics=+50h     50 hours more for a group
  tutti bank ada=none          no limit for a user
  tutti bank ada=100h/month    100 hours a month; also /day, /week
  tutti bank --toml            all allowances, as a file has them
  tutti bank --file site.toml  those in the section [bank] of that file
  tutti bank ada=1h --dry-run  only what that would change

An hour on four processors uses four hours. While an allowance is spent, the \
jobs of the user, or of the group, count as standby. What is left at the end of \
a period is not added to the next.";

#[derive(Args, Debug)]
#[command(after_help = HELP)]
#[command(group = clap::ArgGroup::new("how").args(["file", "toml"]).conflicts_with("settings"))]
pub(crate) struct BankArgs {
    /// As JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    site: FileOptions,

    /// Allowance of a user (ada=100h) or a group (@physics=2000h): a value, an addition (+10h), or
    /// none for no limit; for a period as 100h/month [default: show all]
    #[arg(value_name = "ACCOUNT=TIME")]
    settings: Vec<String>,
}

pub(crate) fn execute(args: &BankArgs) -> anyhow::Result<Exit> {
    let typed =
        args.settings.iter().map(|text| setting(text)).collect::<anyhow::Result<Vec<_>>>()?;
    let changes = args.site.run(Part::Bank, None, typed)?;
    if let Some(changes) = changes.filter(|_| args.site.dry_run || args.settings.is_empty()) {
        say_changes(&changes)?;
        return Ok(Exit::OK);
    }
    let Reply::Bank(accounts) = ask(&Request::Bank)? else { return unexpected() };
    if args.json {
        print_json(&accounts)?;
    } else if args.site.toml {
        print(&site_file::bank(&accounts))?;
    } else {
        print_table(&table(&accounts))?;
    }
    if args.settings.iter().any(|setting| !setting.ends_with("=none")) {
        say_what_it_changes()?;
    }
    Ok(Exit::OK)
}

/// An allowance as the command line has it.
fn setting(text: &str) -> anyhow::Result<Setting> {
    let Some((account, time)) = text.split_once('=') else {
        let reason = format!("{text:?} sets nothing; write ACCOUNT=TIME, such as ada=100h");
        return Err(coded(Code::BadValue, reason));
    };
    let (name, value) = (account.trim().into(), time.trim().into());
    Ok(Setting { line: 0, section: Section::Bank, during: None, name, value })
}

/// What becomes of jobs whose allowance is spent depends on the policy.
fn say_what_it_changes() -> anyhow::Result<()> {
    let Reply::Params { params, .. } = ask(&Request::Params)? else { return unexpected() };
    let policy = params.iter().find(|param| param.name == "policy");
    if let Some(policy) = policy.filter(|policy| policy.value != "classes") {
        say!(
            "tutti: under policy={} jobs count as standby once an allowance is spent, and that changes at most \
             their share of the time; under policy=classes they also give way to others",
            policy.value
        );
    }
    Ok(())
}

fn table(accounts: &[BankReport]) -> Table {
    let titles = ["ALLOWANCE", "USED", "LEFT"].map(|title| (title, Align::Right));
    let (first, last) = ([("ACCOUNT", Align::Left)], [("EACH", Align::Left)]);
    let mut table = Table::new(&[&first[..], &titles, &last].concat());
    for BankReport { account, allowance_s, used_s, left_s, period } in accounts {
        let times = [*allowance_s, *used_s, *left_s];
        let times = times.map(|seconds| Nanos::from_secs(seconds).to_string());
        let each = period.clone().unwrap_or_else(|| "-".into());
        table.row([account.clone()].into_iter().chain(times).chain([each]));
    }
    table
}
