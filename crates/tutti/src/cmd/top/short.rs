//! Jobs in short columns, with a letter for each state: the table of gangster, which showed the
//! jobs of the gang scheduler for the Cray T3D.

use super::letters::Letters;
use tutti_client::output::{Align, Table};
use tutti_wire::report::JobReport;

/// Letters of a class that are shown.
const CLASS_LETTERS: usize = 4;

/// The columns, in their order.
const COLUMNS: [(&str, Align); 9] = [
    ("CLAS", Align::Left),
    ("JOB-USER", Align::Left),
    ("NUMBER", Align::Right),
    ("COMMAND", Align::Left),
    ("#P", Align::Right),
    ("BASE", Align::Left),
    ("ROW", Align::Right),
    ("ST", Align::Left),
    ("H:MM", Align::Right),
];

/// The table of these jobs; `is_marked` tells whether a job is marked.
pub(super) fn table<'a>(
    jobs: impl Iterator<Item = &'a JobReport>,
    letters: &Letters,
    is_marked: impl Fn(&JobReport) -> bool,
) -> Table {
    let mut table = Table::new(&COLUMNS).can_spare(&["BASE", "COMMAND"]);
    for job in jobs {
        let letter = if job.placement.is_empty() { ' ' } else { letters.get(job.job) };
        let mark = if is_marked(job) { '*' } else { '-' };
        table.row(vec![
            job.class.chars().take(CLASS_LETTERS).collect(),
            format!("{letter} {mark} {}", job.user),
            job.job.to_string(),
            job.name.clone(),
            job.processors.to_string(),
            base(job),
            job.row.map_or("-".into(), |row| row.to_string()),
            state_letter(job).to_string(),
            hours_and_minutes(job.service_ms),
        ]);
    }
    table
}

/// The first node and processor.
fn base(job: &JobReport) -> String {
    let Some(place) = job.placement.first() else { return "-".into() };
    let Some((node, processors)) = place.rsplit_once(':') else { return place.clone() };
    let first = processors.split([',', '-']).next().unwrap_or_default();
    format!("{node}:{first}")
}

/// A letter for a state.
fn state_letter(job: &JobReport) -> char {
    match job.state.as_str() {
        "resuming" => 'i',
        "queued" | "checkpointed" => 'N',
        "preempting" => 'o',
        "preempted" => 'O',
        "running" if job.service_ms == 0 => 'W',
        "running" => 'R',
        "suspended" => 'S',
        "swapped" => 's',
        "ending" | "checkpointing" => 'E',
        _ => '?',
    }
}

/// Whole minutes of turns, in hours and minutes.
fn hours_and_minutes(ms: u64) -> String {
    let minutes = ms / 60_000;
    format!("{:02}:{:02}", minutes / 60, minutes % 60)
}

#[cfg(test)]
mod tests {
    use super::super::view::tests::job;
    use super::*;

    #[test]
    fn each_state_has_its_letter() {
        let letter = |state: &str, service_ms| {
            state_letter(&JobReport { state: state.into(), service_ms, ..job(1, 1, 1, &[]) })
        };
        for (state, wanted) in [
            ("resuming", 'i'),
            ("queued", 'N'),
            ("preempting", 'o'),
            ("preempted", 'O'),
            ("running", 'R'),
            ("suspended", 'S'),
            ("swapped", 's'),
            ("ending", 'E'),
        ] {
            assert_eq!(letter(state, 5), wanted, "{state}");
        }
        assert_eq!(letter("running", 0), 'W', "it waits for its first turn");
    }

    #[test]
    fn columns_are_short() {
        let mut letters = Letters::default();
        let running = JobReport { service_ms: 6_430_000, ..job(7, 2, 3, &["n1:4-7", "n2:0"]) };
        let waiting = JobReport { state: "queued".into(), row: None, ..job(8, 1, 1, &[]) };
        letters.update([running.job].into_iter());
        let table = table([&running, &waiting].into_iter(), &letters, |job| job.job.0 == 8);
        let lines: Vec<String> = table.render().lines().map(str::to_owned).collect();
        let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(words(&lines[0]), COLUMNS.map(|(title, _)| title));
        assert_eq!(
            words(&lines[1]),
            ["prod", "A", "-", "ada", "7", "name7", "2", "n1:4", "2", "R", "01:47"]
        );
        assert_eq!(
            words(&lines[2]),
            ["prod", "*", "ada", "8", "name8", "2", "-", "-", "N", "00:00"]
        );
    }
}
