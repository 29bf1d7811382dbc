//! `tutti replay --what-if`: how jobs fared, and how they would have with other parameters.

use super::turns::Turns;
use super::world::{Fate, Known, Otherwise, Was, World};
use crate::setting_word::{SettingWord, parse};
use crate::timed::{Beginning, changes};
use crate::turns::TurnsFile;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use tutti_client::output::{Align, Table, counted, print, print_json, print_table};
use tutti_client::site_file::{Part, Source};
use tutti_controller::Site;
use tutti_core::{Core, Event};
use tutti_journal::{Entry, Past};
use tutti_node::calendar::local_week;
use tutti_node::codes::coded;
use tutti_node::exit::Exit;
use tutti_sim::ChangeAtTimes;
use tutti_types::{
    ClusterTime, JobId, Nanos, NodeId, NodeSetName, Params, Settings, default_classes,
};
use tutti_wire::code::Code;
use tutti_wire::host_list::{HostItem, parse_host_list};
use tutti_wire::local::{Section, Setting};
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
    /// Why something could not be set at some time, as many milliseconds after the first entry.
    #[serde(skip_serializing_if = "Option::is_none")]
    refused: Option<(u64, String)>,
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
    (words, site, at): (&[String], &[String], &[String]),
    until: Option<u64>,
    (timeline, json): (Option<TurnsFile>, bool),
) -> anyhow::Result<Exit> {
    let mut otherwise = otherwise(words, site)?;
    let past = Past::read(path, || Core::new(Params::default(), default_classes()))?;
    let wanted =
        past.entries.into_iter().filter(|(number, _)| until.is_none_or(|it| *number <= it));
    let entries: Vec<Entry> = wanted.map(|(_, entry)| entry).collect();
    check_names(&otherwise.settings, &past.core, &entries)?;
    otherwise.timed = timed((at, path), &past.core, &entries)?;
    let was = Was::of(&past.core, &entries);
    let mut world = World::new(&past.core, &was, &otherwise);
    world.turns = timeline.is_some().then(|| Turns::of(&past.core));
    world.live(&entries);
    if let (Some(file), Some(turns)) = (timeline, world.turns.take()) {
        turns.write(file)?;
    }
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
        what_if: words.iter().chain(site).chain(at).cloned().collect(),
        from_stored_state: past.from_stored,
        entries: entries.len(),
        compared: both.len(),
        refused: world.refused.take().map(|(at, reason)| (ms(at.since(begin)), reason)),
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

/// What words and files of sites set otherwise, checked against a new core.
fn otherwise(words: &[String], files: &[String]) -> anyhow::Result<Otherwise> {
    let mut otherwise = Otherwise::default();
    let bad = |reason: String| coded(Code::BadValue, reason);
    for path in files {
        let file = Source::read(path)?;
        otherwise.settings.extend(file.settings(Part::Params)?);
        otherwise.settings.extend(file.settings(Part::Queues)?);
    }
    for word in words {
        match parse(word).map_err(|error| bad(error.to_string()))? {
            SettingWord::Site(setting) => otherwise.settings.push(setting),
            SettingWord::Other(other) => otherwise.events.push(other.event()),
        }
    }
    let (params, classes) = (Params::default(), default_classes());
    let mut site = Site::new(Settings::new(params, classes));
    for setting in &otherwise.settings {
        site.set(setting, &|_| Ok(())).map_err(|reason| match setting.line {
            0 => bad(reason),
            line => bad(format!("line {line}: {reason}")),
        })?;
    }
    Ok(otherwise)
}

/// The length of a week.
const WEEK: Nanos = Nanos::from_secs(7 * 24 * 3600);

/// How much of the week had passed at the last entry, if the files of a journal were written then.
fn week_by_files(path: &Path) -> Option<Nanos> {
    let wal = PathBuf::from(format!("{}-wal", path.display()));
    let written = |path: &Path| path.metadata().ok()?.modified().ok();
    let written = [written(path), written(&wal)].into_iter().flatten().max()?;
    let age = u64::try_from(written.elapsed().unwrap_or_default().as_nanos()).ok()?;
    Some(Nanos((local_week().0 + WEEK.0 - age % WEEK.0) % WEEK.0))
}

/// Changes at times. By which hour the journal begins, it says itself, or the time of its files.
fn timed(
    (texts, path): (&[String], &Path),
    start: &Core,
    entries: &[Entry],
) -> anyhow::Result<Vec<ChangeAtTimes>> {
    let begin = entries.first().map_or_else(|| start.now(), |entry| entry.at);
    let beginning = || {
        let told = entries.iter().find_map(|entry| match entry.event {
            // Counted back to the beginning.
            Event::Calendar { week } => Some(week.0 + WEEK.0 - entry.at.since(begin).0 % WEEK.0),
            _ => None,
        });
        let long = entries.last().map_or(Nanos::ZERO, |last| last.at.since(begin));
        let by_files = || Some(week_by_files(path)?.0 + WEEK.0 - long.0 % WEEK.0);
        let week = start.week(begin).map(|week| week.0).or(told).or_else(by_files);
        let week = week.ok_or_else(|| {
            let reason = "the journal does not say which hour it was".to_owned();
            coded(Code::BadValue, reason)
        })?;
        Ok(Beginning::in_week(Nanos(week % WEEK.0)))
    };
    let mut nodes: BTreeMap<String, NodeId> =
        start.nodes().map(|node| (node.spec.name.clone(), node.id)).collect();
    let mut sets = start.node_sets().clone();
    for Entry { event, .. } in entries {
        match event {
            Event::NodeJoined { node, spec } => drop(nodes.insert(spec.name.clone(), *node)),
            Event::SetNodeSet { name, nodes } => drop(sets.insert(name.clone(), nodes.clone())),
            _ => {}
        }
    }
    let named = |list: &str| {
        let mut found = BTreeSet::new();
        for item in parse_host_list(list).map_err(|error| error.to_string())? {
            match item {
                HostItem::Set(name) => {
                    let set = sets.get(&NodeSetName::new(&name));
                    let set =
                        set.ok_or_else(|| format!("the journal has no set of nodes {name}"))?;
                    found.extend(set.iter().copied());
                }
                HostItem::Names(names) => {
                    for name in names {
                        let node = nodes.get(&name);
                        let node = node.ok_or_else(|| format!("the journal has no node {name}"))?;
                        found.insert(*node);
                    }
                }
            }
        }
        Ok(found)
    };
    let changes = changes(texts, (start.settings(), &named), beginning);
    let changes = changes.map_err(|error| coded(Code::BadValue, error.to_string()))?;
    // They count from nothing there.
    Ok(changes.into_iter().map(|it| it.later_by(begin.since(ClusterTime(0)))).collect())
}

/// Whether the journal has the classes and queues that words name: else they change nothing.
fn check_names(settings: &[Setting], start: &Core, entries: &[Entry]) -> anyhow::Result<()> {
    let mut site = Site::of(start);
    for Entry { event, .. } in entries {
        // What was removed was there.
        if !matches!(event, Event::SetQueue { spec: None, .. }) {
            site.note(event);
        }
    }
    // A file may have more of them.
    for Setting { section, line, .. } in settings {
        let (what, name, known): (_, _, Vec<String>) = match section {
            Section::Class(class) if *line == 0 && !site.settings.classes.contains_key(class) => {
                let known = site.settings.classes.keys().map(ToString::to_string);
                ("class", class.to_string(), known.collect())
            }
            Section::Queue(queue) if *line == 0 && !site.queues.contains_key(queue) => {
                let known = site.queues.keys().map(ToString::to_string);
                ("queue", queue.to_string(), known.collect())
            }
            Section::Params
            | Section::Class(_)
            | Section::Queue(_)
            | Section::Bank
            | Section::At => {
                continue;
            }
        };
        let instead = match known.is_empty() {
            true => "it has none".to_owned(),
            false => format!("it has {}", known.join(", ")),
        };
        let reason = format!("the journal has no {what} {name}; {instead}");
        return Err(coded(Code::BadValue, reason));
    }
    Ok(())
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
    if let Some((at, reason)) = &report.refused {
        let at = shown(Some(*at));
        text.push_str(&format!(
            "from {at} on not all of it holds, with the settings of then: {reason}\n"
        ));
    }
    if report.from_stored_state {
        text.push_str("begun from the state stored before: earlier entries are not kept\n");
    }
    print(&text)
}
