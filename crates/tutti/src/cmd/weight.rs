//! `tutti weight`.

use clap::Args;
use tutti_client::ask::{ask, unexpected};
use tutti_client::output::{Align, Table, print_json, print_table};
use tutti_node::codes::coded;
use tutti_node::exit::Exit;
use tutti_wire::code::Code;
use tutti_wire::local::{Reply, Request};
use tutti_wire::report::WeightReport;

/// What the figures mean.
const HELP: &str = "\
Examples:
  tutti weight                 all weights that were set
  tutti weight ada=2           ada may use twice as much as others
  tutti weight @staff=3        each user of the group three times as much
  tutti weight ada=none        back to the weight of the group, or 1

The weight of a user counts before that of the group. While users compete, \
their use counts divided by their weights.";

#[derive(Args, Debug)]
#[command(after_help = HELP)]
pub(crate) struct WeightArgs {
    /// As JSON
    #[arg(long)]
    json: bool,

    /// Weight of a user (ada=2) or of each user of a group (@staff=3): 1 to 1000, or none
    /// [default: show all]
    #[arg(value_name = "ACCOUNT=WEIGHT")]
    settings: Vec<String>,
}

pub(crate) fn execute(args: &WeightArgs) -> anyhow::Result<Exit> {
    let mut settings = Vec::new();
    for setting in &args.settings {
        let Some((account, weight)) = setting.split_once('=') else {
            let error = format!("{setting:?} sets nothing; write ACCOUNT=WEIGHT, such as ada=2");
            return Err(coded(Code::BadValue, error));
        };
        settings.push((account.trim().into(), weight.trim().into()));
    }
    let request = match settings.is_empty() {
        true => Request::Weights,
        false => Request::SetWeights { settings },
    };
    let Reply::Weights(weights) = ask(&request)? else { return unexpected() };
    match args.json {
        true => print_json(&weights)?,
        false => print_table(&table(&weights))?,
    }
    Ok(Exit::OK)
}

fn table(weights: &[WeightReport]) -> Table {
    let mut table = Table::new(&[("ACCOUNT", Align::Left), ("WEIGHT", Align::Right)]);
    for WeightReport { account, weight } in weights {
        table.row([account.clone(), weight.to_string()]);
    }
    table
}
