//! `tutti metrics`: figures for monitoring.

use super::replace_file::replace_file;
use clap::Args;
use std::path::{Path, PathBuf};
use tutti_client::metrics::{Figures, open_metrics};
use tutti_client::output::print;
use tutti_node::exit::Exit;

const EXAMPLES: &str = "\
Examples:
  tutti metrics                          OpenMetrics text
  tutti metrics --once -o /var/lib/node_exporter/tutti.prom

With -o, the file is replaced at once, as the textfile collector of node_exporter needs \
it. docs/reference/metrics.md describes the figures.";

#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct MetricsArgs {
    /// Print the figures once and exit: what it does in any case
    #[arg(long)]
    once: bool,

    /// Write to this file instead of standard output (-)
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

pub(crate) fn execute(args: &MetricsArgs) -> anyhow::Result<Exit> {
    let _ = args.once;
    let text = open_metrics(&Figures::ask()?);
    match args.output.as_deref().filter(|path| *path != Path::new("-")) {
        None => print(&text)?,
        Some(path) => replace_file(path, &text)?,
    }
    Ok(Exit::OK)
}
