//! `--plot`: pictures of one run or several.

use super::run::Report;
use anyhow::bail;
use std::path::{Path, PathBuf};
use tutti_sim::picture::{Bar, Bars, Gantt, Load, Panel, Utilisation, Waits, check, save};
use tutti_sim::{Machine, Observer, Sketch, Summary};

/// The pictures that are wanted.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Plots {
    utilisation: Option<PathBuf>,
    waits: Option<PathBuf>,
    gantt: Option<PathBuf>,
    compare: Option<PathBuf>,
}

/// What was seen of one run.
pub(super) struct Seen {
    load: Option<Load>,
    gantt: Option<Gantt>,
    waits: Sketch,
}

impl Plots {
    /// Reads `WHAT=FILE`, before any work is put in.
    ///
    /// # Errors
    /// If a picture or the ending of a file is unknown.
    pub(super) fn parse(words: &[String], runs: usize) -> anyhow::Result<Self> {
        let mut plots = Self::default();
        for word in words {
            let (what, file) = word.split_once('=').unwrap_or((word, ""));
            let place = match what {
                "utilisation" => &mut plots.utilisation,
                "waits" => &mut plots.waits,
                "gantt" => &mut plots.gantt,
                "compare" => &mut plots.compare,
                _ => bail!(
                    "there is no picture {what:?}; there are utilisation, waits, gantt, compare"
                ),
            };
            if file.is_empty() {
                bail!("{what} needs a file; write --plot {what}=FILE.png or FILE.svg");
            }
            check(Path::new(file))?;
            *place = Some(PathBuf::from(file));
        }
        if plots.gantt.is_some() && runs > 1 {
            bail!("gantt shows one run, and there are {runs}; give one trace and one policy");
        }
        if plots.compare.is_some() && runs < 2 {
            bail!("compare shows several runs; give several policies: tutti sim compare");
        }
        Ok(plots)
    }

    /// The observers for them.
    pub(super) fn watch(&self, machine: Machine) -> Seen {
        Seen {
            load: self.utilisation.is_some().then(|| Load::new(machine.processors())),
            gantt: self.gantt.is_some().then(|| Gantt::new(machine)),
            waits: Sketch::default(),
        }
    }

    /// Draws and writes them.
    ///
    /// # Errors
    /// If there is too much to draw, or a file can't be written.
    pub(super) fn draw(&self, reports: &[Report], seen: Vec<Seen>) -> anyhow::Result<()> {
        let same_workload = reports.iter().all(|report| report.workload == reports[0].workload);
        let name = |report: &Report| {
            let name = if same_workload { &report.policy } else { &report.workload };
            name.clone()
        };
        let mut utilisation = Utilisation::default();
        let mut waits = Waits::default();
        for (report, seen) in reports.iter().zip(seen) {
            if let Some(load) = seen.load {
                utilisation.add(&name(report), load);
            }
            waits.add(&name(report), &seen.waits);
            if let (Some(path), Some(gantt)) = (&self.gantt, seen.gantt) {
                let title = format!("{}, {}", report.workload, report.policy);
                save(&gantt.picture(&title)?, path)?;
            }
        }
        if let Some(path) = &self.utilisation {
            save(&utilisation, path)?;
        }
        if let Some(path) = &self.waits {
            save(&waits, path)?;
        }
        if let Some(path) = &self.compare {
            let title = match same_workload {
                true => reports[0].workload.clone(),
                false => reports[0].policy.clone(),
            };
            save(&bars(title, reports.iter().map(name).collect(), reports), path)?;
        }
        Ok(())
    }
}

impl Seen {
    /// The observers while it runs.
    pub(super) fn observer(&mut self) -> impl Observer + '_ {
        (self.load.as_mut(), self.gantt.as_mut())
    }

    /// Takes in what the figures know.
    pub(super) fn finish(&mut self, summary: &Summary) {
        self.waits = summary.waits().clone();
    }
}

fn bars(title: String, names: Vec<String>, reports: &[Report]) -> Bars {
    let panel = |title: &str, kind, of: fn(&Report) -> f64| Panel {
        title: title.to_owned(),
        kind,
        values: reports.iter().map(of).collect(),
    };
    let panels = vec![
        panel("Mean wait", Bar::Seconds, |report| report.wait_s.mean),
        panel("Mean response", Bar::Seconds, |report| report.response_s.mean),
        panel("Mean bounded slowdown", Bar::Number, |report| report.slowdown.mean),
        panel("95 % of jobs: bounded slowdown at most", Bar::Number, |report| report.slowdown.p95),
        panel("Utilisation", Bar::Share, |report| report.utilisation),
        panel("Loss of capacity", Bar::Share, |report| report.loss_of_capacity),
    ];
    Bars { title, names, panels }
}

#[cfg(test)]
mod tests {
    use super::Plots;

    #[test]
    fn pictures_are_named_with_a_file() {
        let parse = |word: &str, runs| {
            Plots::parse(&[word.to_owned()], runs).map_err(|error| error.to_string())
        };
        assert!(parse("waits=a.svg", 1).is_ok_and(|plots| plots.waits.is_some()));
        assert!(parse("utilisation=a.PNG", 3).is_ok());
        assert!(parse("compare=a.png", 2).is_ok());
        for (word, runs, says) in [
            ("pie=a.svg", 1, "there is no picture \"pie\""),
            ("waits", 1, "waits needs a file"),
            ("waits=a.jpg", 1, "a.jpg: a picture's file ends in .svg or .png"),
            ("gantt=a.svg", 2, "gantt shows one run, and there are 2"),
            ("compare=a.svg", 1, "compare shows several runs"),
        ] {
            let said = parse(word, runs).unwrap_err();
            assert!(said.starts_with(says), "{said}");
        }
    }
}
