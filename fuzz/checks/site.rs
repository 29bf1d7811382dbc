//! Any text as a site's TOML file.
//!
//! Each setting has its line, and what was read of queues reads the same when it is written as the
//! verbs print it.

use tutti_client::site_file::{Part, Source, queues};
use tutti_wire::local::{Section, Setting};
use tutti_wire::report::{QueueReport, QueueSetting};

/// A setting without its line.
type Plain = (String, Option<String>, String, String);

fn plain(settings: &[Setting]) -> Vec<Plain> {
    let mut plain: Vec<Plain> = settings
        .iter()
        .filter_map(|it| match &it.section {
            Section::Queue(queue) => {
                let (name, value) = (it.name.clone(), it.value.clone());
                Some((queue.to_string(), it.during.clone(), name, value))
            }
            _ => None,
        })
        .collect();
    plain.sort();
    plain
}

/// The queues of which these are the settings.
fn reports(settings: &[Plain]) -> Vec<QueueReport> {
    let mut reports: Vec<QueueReport> = Vec::new();
    for (queue, during, name, value) in settings {
        if reports.last().is_none_or(|report| report.name != *queue) {
            reports.push(QueueReport {
                name: queue.clone(),
                running: 0,
                waiting: 0,
                processors: 0,
                limits: Vec::new(),
                settings: Vec::new(),
            });
        }
        // That there is such a queue is a setting without a name.
        if let Some(report) = reports.last_mut().filter(|_| !name.is_empty() || value != "new") {
            let (during, name, value) = (during.clone(), name.clone(), value.clone());
            report.settings.push(QueueSetting { during, name, value });
        }
    }
    reports
}

/// See the file.
pub fn site(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    let lines = text.split('\n').count();
    for part in [Part::Params, Part::Bank, Part::Queues] {
        let source = Source::from_text("site.toml", text);
        let settings = match source.settings(part) {
            Ok(settings) => settings,
            Err(error) => {
                let error = error.to_string();
                let line = error.strip_prefix("site.toml:").and_then(|it| it.split_once(':'));
                let line = line.and_then(|(line, _)| line.parse::<usize>().ok());
                assert!(line.is_some_and(|line| (1..=lines).contains(&line)), "{error}");
                continue;
            }
        };
        assert!(settings.is_sorted_by_key(|setting| setting.line));
        assert!(settings.iter().all(|setting| (1..=lines).contains(&(setting.line as usize))));
        if part == Part::Queues {
            let known = plain(&settings);
            let written = queues(&reports(&known));
            let again = Source::from_text("again.toml", &written).settings(part);
            let again = again.unwrap_or_else(|error| panic!("{error:#}:\n{written}"));
            assert_eq!(plain(&again), known, "{written}");
        }
    }
}
