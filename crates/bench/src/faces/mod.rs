//! `tutti-bench faces`: what people look at. The page of `tutti web` and its stream of events,
//! `tutti top`, and `tutti logs -f`.

mod http;
mod load;
mod logs;
mod page;
mod readers;
mod top;
mod web;

use super::Bench;
use super::figures::Figure;
use clap::{Args, ValueEnum};

#[derive(Args, Debug)]
pub(super) struct FacesArgs {
    /// Only these
    #[arg(long, value_enum, value_delimiter = ',')]
    part: Vec<Part>,

    /// Jobs that `top` shows
    #[arg(long, default_value_t = 10_000)]
    jobs: usize,

    /// Nodes that `top` shows: agents that have nothing but their places in the control tree
    #[arg(long, default_value_t = 1_000)]
    nodes: usize,
}

/// A part of the benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// The first load of the page.
    Page,
    /// Memory of the server, readers of its events, and what the controller notices of them.
    Web,
    /// `tutti top`.
    Top,
    /// `tutti logs -f`.
    Logs,
}

/// Measures all parts, or those that are asked for.
///
/// # Errors
/// If something could not be measured.
pub(super) fn measure(bench: &Bench, args: &FacesArgs) -> anyhow::Result<Vec<Figure>> {
    let is_wanted = |part| args.part.is_empty() || args.part.contains(&part);
    let mut figures = Vec::new();
    if is_wanted(Part::Page) {
        figures.extend(page::measure(bench)?);
    }
    if is_wanted(Part::Web) {
        figures.extend(web::measure(bench)?);
    }
    if is_wanted(Part::Top) {
        figures.extend(top::measure(bench, args.nodes, args.jobs)?);
    }
    if is_wanted(Part::Logs) {
        figures.extend(logs::measure(bench)?);
    }
    Ok(figures)
}
