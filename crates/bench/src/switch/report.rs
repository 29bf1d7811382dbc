//! What came out of `tutti-bench switch`, as text, JSON and lines of the table of figures.

use super::super::figures::{self, Figure};
use super::super::{grain, track};
use super::curves::Curves;
use super::gaps::Gaps;
use super::rows::{self, Missing, Row};
use anyhow::bail;
use serde::Serialize;
use tutti_client::output::{print, print_json};
use tutti_client::scratch::ScratchInstance;
use tutti_wire::local::{Reply, Request};

/// What came out.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    /// Whether the switch thread had real-time priority, or why not.
    realtime: String,
    /// Whether jobs could be frozen; if not, all was done by signals.
    pub(super) freezer: bool,
    /// Why the bare cost was not measured.
    bare_missing: Option<String>,
    pub(super) rows: Vec<Row>,
    /// What could not be measured.
    pub(super) missing: Vec<Missing>,
    pub(super) gaps: Option<Gaps>,
    pub(super) curves: Option<Curves>,
    pub(super) track: Option<track::Report>,
    /// Nothing within where there is no MPICH.
    pub(super) grain: Option<Option<grain::Report>>,
    /// The table of figures, where all was measured.
    figures: Vec<Figure>,
}

impl Report {
    /// Without anything measured yet.
    pub(super) fn of(own: &ScratchInstance) -> anyhow::Result<Self> {
        let Reply::Status(status) = own.ask(&Request::Status)? else {
            return tutti_client::ask::unexpected();
        };
        let Some(agent) = status.agents.first() else { bail!("the instance has no node") };
        Ok(Self {
            realtime: agent.realtime.clone(),
            freezer: agent.freezer,
            bare_missing: None,
            rows: Vec::new(),
            missing: Vec::new(),
            gaps: None,
            curves: None,
            track: None,
            grain: None,
            figures: Vec::new(),
        })
    }

    /// What there is, or nothing and the reason noted.
    pub(super) fn note_missing<T>(&mut self, found: anyhow::Result<T>) -> Option<T> {
        found.map_err(|error| self.bare_missing = Some(format!("{error:#}"))).ok()
    }

    /// Puts the table of figures below the rest.
    pub(super) fn add_figures(&mut self) {
        self.figures = self.figures();
    }

    /// For people, or for programs.
    pub(crate) fn show(&self, json: bool) -> anyhow::Result<()> {
        if json {
            return print_json(self);
        }
        let has_rows = !self.rows.is_empty() || !self.missing.is_empty();
        let rows = has_rows.then(|| self.rows_text());
        let curves = self.curves.as_ref().map(Curves::text);
        let parts: Vec<String> = rows.into_iter().chain(curves).collect();
        print(&parts.join("\n"))?;
        if self.figures.is_empty() {
            return Ok(());
        }
        print("\n")?;
        figures::show(&self.figures, false)
    }

    fn rows_text(&self) -> String {
        let missing: String = self.missing.iter().map(Missing::shown).collect();
        let freezer = if self.freezer { "" } else { "\nNo freezer: all of it by signals." };
        let bare = match &self.bare_missing {
            None => {
                "BARE: the same writes by a C program, median, and how many times that STOPPED and \
                     RESUMED are"
                    .to_owned()
            }
            Some(why) => format!("No BARE cost of the same writes: {why}"),
        };
        format!(
            "Two jobs of N processes each; median / 99 % in microseconds\nReal-time priority of the switch \
             thread: {}{freezer}\n{bare}\n\n{}{missing}{}",
            self.realtime,
            rows::text(&self.rows),
            self.gaps.as_ref().map_or_else(String::new, Gaps::text)
        )
    }

    /// The lines of the table of figures.
    pub(crate) fn figures(&self) -> Vec<Figure> {
        let has_all = self.freezer && self.realtime == "yes";
        let without = (!has_all).then_some("without freezer or real-time priority");
        let missing = self.bare_missing.as_deref();
        let mut figures: Vec<Figure> = self.rows.iter().map(|row| row.figure(without)).collect();
        figures.extend(self.missing.iter().map(Missing::figure));
        figures.extend(self.rows.iter().filter_map(|row| row.figure_over_bare(missing)));
        figures.extend(rows::growth(&self.rows));
        figures.extend(self.gaps.as_ref().map(Gaps::figure));
        figures.extend(self.curves.iter().flat_map(Curves::figures));
        figures.extend(self.track.iter().flat_map(track::Report::figures));
        figures.extend(self.grain.iter().flat_map(|report| grain::figures(report.as_ref())));
        figures
    }
}
