//! `tutti replay --what-if`: how jobs fared, and how they would have with other parameters.

use super::world::{Fate, Known, Was, World};
use serde::Serialize;
use std::path::Path;
use tutti_client::output::{Align, Table, counted, print, print_json, print_table};
use tutti_core::Core;
use tutti_journal::{Entry, Past};
use tutti_node::codes::coded;
use tutti_node::exit::Exit;
use tutti_types::{ClusterTime, JobId, Nanos, Params, default_classes};
use tutti_wire::code::Code;
use tutti_wire::parameter::set_param;
use tutti_wire::units::format_duration_short;

const COLUMNS_HELP: &str = "\
in each pair the first is as it was, the second as it would have been; WAITED to its start, or to its end if it
had none, RESPONSE from its acceptance to its end, SUSPENDED since its start while it was not its turn, END since
the first entry of the journal\n";

/// Times of a job, in milliseconds; nothing where it did not come so far.
#[derive(Serialize)]
struct Times {
    wait_ms: Option<u64>,
    response_ms: Option<u64>,
    suspended_ms: Option<u64>,
    service_ms: u64,
    /// Since the first entry.
    end_ms: Option<u64>,
}

#[derive(Serialize)]
struct Job {
    job: JobId,
    uid: u32,
    class: String,
    tasks: u32,
    was: Times,
    /// Nothing: it would have been declined.
    would_be: Option<Times>,
}

/// Of jobs that ended in both worlds.
#[derive(Serialize)]
struct Summary {
    mean_wait_ms: u64,
    max_wait_ms: u64,
    mean_response_ms: u64,
    mean_suspended_ms: u64,
    /// The last end.
    makespan_ms: u64,
}

#[derive(Serialize)]
struct Report {
    journal: String,
    what_if: Vec<String>,
    from_stored_state: bool,
    entries: usize,
    /// Jobs that ended in both worlds.
    compared: usize,
    /// Jobs that would have been declined.
    declined: usize,
    was: Summary,
    would_be: Summary,
    jobs: Vec<Job>,
}

/// Compares the journal with what would have been.
///
/// # Errors
/// If a parameter can't be set so, or the journal can't be read.
pub(super) fn execute(
    path: &Path,
    settings: &[String],
    until: Option<u64>,
    json: bool,
) -> anyhow::Result<Exit> {
    let settings =
        settings.iter().map(|setting| checked(setting)).collect::<Result<Vec<_>, _>>()?;
    let overrides = |params: &mut Params| {
        for (name, value) in &settings {
            // It could be set above.
            let _ = set_param(params, name, value);
        }
    };
    let past = Past::read(path, || Core::new(Params::default(), default_classes()))?;
    let wanted =
        past.entries.into_iter().filter(|(number, _)| until.is_none_or(|it| *number <= it));
    let entries: Vec<Entry> = wanted.map(|(_, entry)| entry).collect();
    let was = Was::of(&past.core, &entries);
    let mut world = World::new(&past.core, &was, &overrides);
    world.live(&entries);
    let begin = entries.first().map_or_else(|| past.core.now(), |entry| entry.at);
    let jobs: Vec<Job> = was
        .jobs
        .iter()
        .map(|(job, known)| compared(*job, known, world.fates.get(job), begin))
        .collect();
    let both: Vec<(&Times, &Times)> = jobs
        .iter()
        .filter_map(|job| Some((&job.was, job.would_be.as_ref()?)))
        .filter(|(was, would)| was.end_ms.is_some() && would.end_ms.is_some())
        .collect();
    let report = Report {
        journal: path.display().to_string(),
        what_if: settings.iter().map(|(name, value)| format!("{name}={value}")).collect(),
        from_stored_state: past.from_stored,
        entries: entries.len(),
        compared: both.len(),
        declined: jobs.iter().filter(|job| job.would_be.is_none()).count(),
        was: summary(both.iter().map(|(was, _)| *was)),
        would_be: summary(both.iter().map(|(_, would)| *would)),
        jobs,
    };
    if json {
        print_json(&report)?;
    } else {
        say(&report)?;
    }
    Ok(Exit::OK)
}

/// A setting that parameters can have.
fn checked(setting: &str) -> anyhow::Result<(String, String)> {
    let Some((name, value)) = setting.split_once('=') else {
        let reason =
            format!("{setting:?} sets nothing; write NAME=VALUE, such as policy=space:easy");
        return Err(coded(Code::BadValue, reason));
    };
    set_param(&mut Params::default(), name, value)
        .map_err(|reason| coded(Code::BadValue, reason))?;
    Ok((name.into(), value.into()))
}

fn compared(job: JobId, known: &Known, would: Option<&Fate>, begin: ClusterTime) -> Job {
    Job {
        job,
        uid: known.owner,
        class: known.class.clone(),
        tasks: known.tasks,
        was: times(&known.was, begin),
        would_be: would.map(|fate| times(fate, begin)),
    }
}

fn times(fate: &Fate, begin: ClusterTime) -> Times {
    Times {
        wait_ms: fate.wait().map(ms),
        response_ms: fate.response().map(ms),
        suspended_ms: fate.suspended().map(ms),
        service_ms: ms(fate.service),
        end_ms: fate.ended.map(|ended| ms(ended.since(begin))),
    }
}

const fn ms(length: Nanos) -> u64 {
    length.0 / 1_000_000
}

fn summary<'a>(times: impl Iterator<Item = &'a Times> + Clone) -> Summary {
    let all = |of: fn(&Times) -> Option<u64>| times.clone().filter_map(of);
    let mean = |of: fn(&Times) -> Option<u64>| {
        let (sum, count) = all(of).fold((0, 0), |(sum, count), ms| (sum + ms, count + 1));
        sum.checked_div(count).unwrap_or(0)
    };
    Summary {
        mean_wait_ms: mean(|times| times.wait_ms),
        max_wait_ms: all(|times| times.wait_ms).max().unwrap_or(0),
        mean_response_ms: mean(|times| times.response_ms),
        mean_suspended_ms: mean(|times| times.suspended_ms),
        makespan_ms: all(|times| times.end_ms).max().unwrap_or(0),
    }
}

fn shown(ms: Option<u64>) -> String {
    ms.map_or("-".into(), |ms| format_duration_short(Nanos::from_millis(ms)))
}

fn say(report: &Report) -> anyhow::Result<()> {
    let mut table = Table::new(&[
        ("JOB", Align::Right),
        ("CLASS", Align::Left),
        ("TASKS", Align::Right),
        ("WAITED", Align::Right),
        ("WOULD", Align::Right),
        ("RESPONSE", Align::Right),
        ("WOULD", Align::Right),
        ("SUSPENDED", Align::Right),
        ("WOULD", Align::Right),
        ("END", Align::Right),
        ("WOULD", Align::Right),
    ]);
    for job in &report.jobs {
        let would = job.would_be.as_ref();
        let mut row = vec![job.job.to_string(), job.class.clone(), job.tasks.to_string()];
        let columns: [fn(&Times) -> Option<u64>; 4] = [
            |times| times.wait_ms,
            |times| times.response_ms,
            |times| times.suspended_ms,
            |times| times.end_ms,
        ];
        for of in columns {
            row.push(shown(of(&job.was)));
            row.push(would.map_or("declined".into(), |would| shown(of(would))));
        }
        table.row(row);
    }
    print_table(&table)?;
    print(COLUMNS_HELP)?;
    let (was, would) = (&report.was, &report.would_be);
    let pair = |was: u64, would: u64| format!("{} -> {}", shown(Some(was)), shown(Some(would)));
    let mut text = format!(
        "\nwith {}: {} that ended in both; mean wait {}, longest wait {}, mean response {}, mean time \
         suspended {}, last end {}\n",
        report.what_if.join(" "),
        counted(report.compared as u64, "job"),
        pair(was.mean_wait_ms, would.mean_wait_ms),
        pair(was.max_wait_ms, would.max_wait_ms),
        pair(was.mean_response_ms, would.mean_response_ms),
        pair(was.mean_suspended_ms, would.mean_suspended_ms),
        pair(was.makespan_ms, would.makespan_ms),
    );
    if report.declined > 0 {
        text.push_str(&format!("{} would have been declined\n", report.declined));
    }
    if report.from_stored_state {
        text.push_str("begun from the state stored before: earlier entries are not kept\n");
    }
    print(&text)
}
