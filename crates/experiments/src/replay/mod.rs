//! `tutti replay`: a controller's journal, played again by the core that wrote it, or by one with other
//! parameters.

mod turns;
mod what_if;
mod words;
mod world;

use crate::turns::TurnsFile;
use anyhow::Context;
use clap::Args;
use serde::Serialize;
use std::io::{BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;
use turns::Turns;
use tutti_client::output::counted;
use tutti_core::{Action, Core};
use tutti_journal::{Difference, Entry, Past, replay};
use tutti_node::codes::coded;
use tutti_node::exit::Exit;
use tutti_node::instance::Instance;
use tutti_types::{Params, default_classes};
use tutti_wire::code::Code;
use tutti_wire::units::format_seconds;

const EXAMPLES: &str = "\
Examples:
  tutti replay                      check the journal of the running instance
  tutti replay --list               show each entry and the actions it caused
  tutti replay --what-if policy=space:easy quantum=1s
  tutti replay --what-if class.interactive.rows=0 weight.ada=3
  tutti replay --at 'mon-fri 08:00 params rows=2' --at 'fri 18:00 nodes n1 out'
  tutti replay --timeline t.json    what was decided, for ui.perfetto.dev";

/// What `tutti replay` can be told.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct ReplayArgs {
    /// Journal to read; it may be in use [default: the instance's own]
    journal: Option<PathBuf>,

    /// Stop after this entry
    #[arg(long, value_name = "ENTRY")]
    until: Option<u64>,

    /// Show each entry: number, time, event and actions
    #[arg(long)]
    list: bool,

    /// Compare with other settings, such as policy=space:easy rows=2; also class.NAME.RULE,
    /// queue.NAME.LIMIT, weight.USER, bank.USER, resource.NAME (all =VALUE)
    #[arg(long, value_name = "NAME=VALUE", num_args = 1.., conflicts_with = "list")]
    what_if: Vec<String>,

    /// Compare with changes at times of the week, as `tutti at` makes them, such as "mon-fri 08:00
    /// params rows=2" or "fri 18:00 nodes n1 out ahead=2h"
    #[arg(long, value_name = "TIME CHANGE", conflicts_with = "list")]
    at: Vec<String>,

    /// Compare with the settings of a site's file, as `tutti params --file` prints them
    #[arg(long, value_name = "FILE", conflicts_with = "list")]
    site: Vec<String>,

    /// Write which job had its turn when on which processor, as a trace for Perfetto (.json): as
    /// the controller decided, or as it would have decided with other settings
    #[arg(long, value_name = "FILE", conflicts_with = "list")]
    timeline: Option<PathBuf>,

    /// As JSON
    #[arg(long, conflicts_with = "list")]
    json: bool,
}

/// As JSON.
#[derive(Serialize)]
struct Report {
    journal: String,
    entries: u64,
    first: Option<u64>,
    from_stored_state: bool,
    states_compared: u64,
    agrees: bool,
    differs_at: Option<u64>,
    torn_from: Option<u64>,
    damage: Option<String>,
    entries_per_second: u64,
}

/// Plays a journal again.
///
/// # Errors
/// If the journal can't be read, an entry of it does not do what it did, or a setting is wrong.
pub fn execute(args: &ReplayArgs) -> anyhow::Result<Exit> {
    let path = match &args.journal {
        Some(path) => path.clone(),
        None => own_journal()?,
    };
    let timeline = args.timeline.as_deref().map(TurnsFile::create).transpose()?;
    if !args.what_if.is_empty() || !args.site.is_empty() || !args.at.is_empty() {
        let words = (args.what_if.as_slice(), args.site.as_slice(), args.at.as_slice());
        return what_if::execute(&path, words, args.until, (timeline, args.json));
    }
    if let Some(file) = timeline {
        return write_timeline(&path, args.until, file);
    }
    let mut out = BufWriter::new(std::io::stdout().lock());
    let mut written = Ok(());
    let begun = Instant::now();
    let blank = || Core::new(Params::default(), default_classes());
    let result = replay(&path, args.until, blank, |number, entry, actions| {
        if args.list && written.is_ok() {
            written = list(&mut out, number, entry, actions);
        }
    })?;
    written.context("cannot write the list")?;
    let seconds = begun.elapsed().as_secs_f64();
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "a rate, to be read by people"
    )]
    let rate = (result.entries as f64 / seconds.max(1e-9)) as u64;
    let difference = result.difference;
    let report = Report {
        journal: path.display().to_string(),
        entries: result.entries,
        first: result.first,
        from_stored_state: result.from_stored,
        states_compared: result.states,
        agrees: difference.is_none(),
        differs_at: difference.map(|(number, _)| number),
        torn_from: result.torn,
        damage: result.damage,
        entries_per_second: rate,
    };
    if args.json {
        serde_json::to_writer(&mut out, &report)?;
        writeln!(out)?;
    } else {
        say(&mut out, &report, difference.map(|(_, what)| what))?;
    }
    out.flush()?;
    Ok(if report.agrees && report.damage.is_none() { Exit::OK } else { Exit::FAILED })
}

/// Writes which job had its turn when, by the decisions of the journal.
fn write_timeline(path: &Path, until: Option<u64>, file: TurnsFile) -> anyhow::Result<Exit> {
    let past = Past::read(path, || Core::new(Params::default(), default_classes()))?;
    let mut core = past.core;
    let mut turns = Turns::of(&core);
    let mut actions = Vec::new();
    for (_, entry) in
        past.entries.iter().take_while(|(number, _)| until.is_none_or(|until| *number <= until))
    {
        actions.clear();
        core.apply(entry.at, &entry.event, &mut actions);
        turns.note(&core, (entry.at, &entry.event), &actions, |job| job);
    }
    turns.write(file)?;
    Ok(Exit::OK)
}

/// The journal of the instance here.
fn own_journal() -> anyhow::Result<PathBuf> {
    let instance = Instance::locate();
    let path = instance.journal_path();
    if path.symlink_metadata().is_err_and(|error| error.kind() == ErrorKind::NotFound) {
        let reason = format!(
            "there is no journal {}: no instance runs here, or one of your own has ended and left none; a \
             copy of another can be named",
            path.display()
        );
        return Err(coded(Code::NoInstance, reason));
    }
    Ok(path)
}

fn say(
    out: &mut impl Write,
    report: &Report,
    difference: Option<Difference>,
) -> std::io::Result<()> {
    let Report { journal, entries_per_second: rate, .. } = report;
    let (entries, first) = (counted(report.entries, "entry"), report.first.unwrap_or(1));
    writeln!(out, "{journal}: {entries} from {first} on, {rate} a second")?;
    if report.from_stored_state {
        writeln!(out, "begun from the state stored before: earlier entries are not kept")?;
    }
    if let Some(torn) = report.torn_from {
        writeln!(out, "from {torn} on entries are not whole; the next controller cuts them off")?;
    }
    if let Some(damage) = &report.damage {
        writeln!(out, "damaged: {damage}; this is what can be read")?;
    }
    let (Some(what), Some(number)) = (difference, report.differs_at) else {
        let states = counted(report.states_compared, "state");
        return writeln!(
            out,
            "agrees: the actions of every entry, and {states}, are what they were"
        );
    };
    let what = match what {
        Difference::Actions => "actions",
        Difference::State => "state",
    };
    writeln!(
        out,
        "differs: the {what} at entry {number}; was the journal written by another release?"
    )
}

fn list(
    out: &mut impl Write,
    number: u64,
    entry: &Entry,
    actions: &[Action],
) -> std::io::Result<()> {
    let seconds = format_seconds(entry.at.0 / 1_000_000_000);
    writeln!(out, "{number} at {seconds}: {}", words::event(&entry.event))?;
    for action in actions {
        writeln!(out, "    {}", words::action(action, entry.at))?;
    }
    Ok(())
}
