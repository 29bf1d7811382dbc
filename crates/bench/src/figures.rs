//! The table of figures: what was measured, what it must reach, and whether it does.

use serde::Serialize;
use tutti_client::output::{Align, Table, print_json, print_table};

/// One line of the table.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Figure {
    /// What.
    pub(super) what: String,
    /// What came out, with its unit.
    pub(super) measured: String,
    /// What it must reach; empty if it is only reported.
    pub(super) must_reach: String,
    /// Whether it does; nothing where it could not be measured or is only reported.
    pub(super) reached: Option<bool>,
}

impl Figure {
    /// A figure with a goal.
    pub(super) fn goal(what: &str, measured: String, must_reach: &str, reached: bool) -> Self {
        let must_reach = must_reach.into();
        Self { what: what.into(), measured, must_reach, reached: Some(reached) }
    }

    /// A figure that is only reported.
    pub(super) fn shown(what: &str, measured: String) -> Self {
        Self { what: what.into(), measured, must_reach: String::new(), reached: None }
    }

    /// A goal that can't be measured here.
    pub(super) fn missing(what: &str, why: &str, must_reach: &str) -> Self {
        let must_reach = must_reach.into();
        Self { what: what.into(), measured: why.into(), must_reach, reached: None }
    }

    const fn verdict(&self) -> &'static str {
        match self.reached {
            Some(true) => "yes",
            Some(false) => "NO",
            None => "-",
        }
    }
}

/// Prints the figures, as a table or as JSON.
///
/// # Errors
/// If standard output can't be written.
pub(super) fn show(figures: &[Figure], json: bool) -> anyhow::Result<()> {
    if json {
        return print_json(figures);
    }
    let mut table = Table::new(&[
        ("WHAT", Align::Left),
        ("MEASURED", Align::Left),
        ("MUST REACH", Align::Left),
        ("REACHED", Align::Left),
    ]);
    for figure in figures {
        table.row([
            figure.what.clone(),
            figure.measured.clone(),
            figure.must_reach.clone(),
            figure.verdict().into(),
        ]);
    }
    print_table(&table)
}
