//! `tutti nodes --timetable NODE`: the slots of a node, as its agent has them.

use tutti_client::ask::{ask, unexpected};
use tutti_client::output::terminal_width;
use tutti_client::output::{Align, Table, counted, fold, print, print_json, print_table};
use tutti_node::exit::Exit;
use tutti_types::{Nanos, ProcessorSet};
use tutti_wire::local::{Reply, Request};
use tutti_wire::report::{CandidateReport, CandidateState, TimetableReport};
use tutti_wire::units::format_duration_short;

/// What the columns mean, for people.
const COLUMNS: &str = "\
> marks the slot that the node is in, * the jobs that run in a slot as things are. NOW is what a \
job's processes may do at this moment. IF ABSENT is what becomes of a job's processors in the slot \
when it has no process: `hold` leaves them idle, `down` offers them to the jobs below it.";

/// The same for the classes.
const CLASSES: &str = "\
PART is the part of the node's time that a class has at least, and HAD what it had since its jobs \
came. What absent jobs leave goes first to the class that has had the least for its part.";

pub(super) fn execute(node: String, json: bool) -> anyhow::Result<Exit> {
    let Reply::Timetable(report) = ask(&Request::Timetable { node })? else { return unexpected() };
    if json {
        print_json(&report)?;
        return Ok(Exit::OK);
    }
    print(&format!("{}\n", head(&report)))?;
    if report.slots.is_empty() {
        return Ok(Exit::OK);
    }
    print_table(&table(&report))?;
    if report.left_out > 0 {
        let left_out = counted(report.left_out, "candidate");
        print(&format!("{left_out} left out\n"))?;
    }
    if !report.classes.is_empty() {
        print("\n")?;
        print_table(&classes(&report))?;
    }
    if let Some(width) = terminal_width() {
        print(&format!("\n{}\n", fold(COLUMNS, width).join("\n")))?;
        if !report.classes.is_empty() {
            print(&format!("{}\n", fold(CLASSES, width).join("\n")))?;
        }
    }
    Ok(Exit::OK)
}

/// What is true of the whole timetable, in a line.
fn head(report: &TimetableReport) -> String {
    let TimetableReport { node, version, now_ns, .. } = report;
    let frame: u64 = report.slots.iter().map(|slot| slot.length_ns).sum();
    let short = |ns: u64| format_duration_short(Nanos(ns));
    let mut text = match report.slots.len() {
        0 => format!("node {node}: the timetable has no slot; no job runs here"),
        1 => format!("node {node}: timetable {version}, one slot, so there is no switch"),
        slots => {
            let left = report.ends_ns.unwrap_or(*now_ns).saturating_sub(*now_ns);
            format!(
                "node {node}: timetable {version}, {slots} slots, frame {}, next switch in {}",
                short(frame),
                short(left)
            )
        }
    };
    if let Some(at) = report.next_activates_ns {
        let until = short(at.saturating_sub(*now_ns));
        text.push_str(&format!("; replaced in {until}"));
    }
    if !report.lease_holds {
        text.push_str("; the node has no lease now, so no job runs");
    }
    text
}

fn table(report: &TimetableReport) -> Table {
    let mut table = Table::new(&[
        ("SLOT", Align::Right),
        ("ROW", Align::Right),
        ("LENGTH", Align::Right),
        ("JOB", Align::Right),
        ("PROCESSORS", Align::Left),
        ("NOW", Align::Left),
        ("IF ABSENT", Align::Left),
    ]);
    for (index, slot) in report.slots.iter().enumerate() {
        let in_force = report.slot.is_some_and(|it| it as usize == index);
        let number = format!("{}{}", if in_force { ">" } else { "" }, index + 1);
        let row = slot.row.map_or_else(|| "-".into(), |row| row.to_string());
        let length = format_duration_short(Nanos(slot.length_ns));
        let mut first = [number, row, length];
        if slot.candidates.is_empty() {
            let [slot, row, length] = first;
            table.row([slot, row, length, "-".into(), "".into(), "".into(), "".into()]);
            continue;
        }
        for candidate in &slot.candidates {
            let [slot, row, length] = std::mem::take(&mut first);
            let [job, processors, now, absent] = cells(candidate);
            table.row([slot, row, length, job, processors, now, absent]);
        }
    }
    table
}

fn classes(report: &TimetableReport) -> Table {
    let mut table =
        Table::new(&[("CLASS", Align::Left), ("PART", Align::Right), ("HAD", Align::Right)]);
    for it in &report.classes {
        let name = it.class.clone().unwrap_or_else(|| "without a share".into());
        let part = format!("{}.{} %", it.part_milli / 10, it.part_milli % 10);
        table.row([name, part, format_duration_short(Nanos(it.had_ns))]);
    }
    table
}

fn cells(candidate: &CandidateReport) -> [String; 4] {
    let processors: ProcessorSet = candidate.processors.iter().copied().collect();
    let now = match candidate.state {
        CandidateState::Absent => "absent",
        CandidateState::Stopped => "stopped",
        CandidateState::Background => "background",
        CandidateState::Running => "running",
    };
    let runs = if candidate.runs { "*" } else { "" };
    let absent = if candidate.hold { "hold" } else { "down" };
    [format!("{runs}{}", candidate.job), processors.to_string(), now.into(), absent.into()]
}

#[cfg(test)]
mod tests {
    use super::{CandidateReport, CandidateState, TimetableReport, cells, head};
    use tutti_types::JobId;
    use tutti_wire::report::TimetableSlotReport;

    #[test]
    fn the_head_names_the_next_switch_and_what_keeps_jobs_from_running() {
        let slot =
            TimetableSlotReport { row: Some(1), length_ns: 100_000_000, candidates: Vec::new() };
        let mut report = TimetableReport {
            node: "a1".into(),
            version: 7,
            lease_holds: true,
            ..TimetableReport::default()
        };
        assert_eq!(head(&report), "node a1: the timetable has no slot; no job runs here");
        report.slots = vec![slot.clone()];
        assert_eq!(head(&report), "node a1: timetable 7, one slot, so there is no switch");
        report.slots.push(slot);
        (report.now_ns, report.ends_ns) = (1_000_000_000, Some(1_060_000_000));
        let two = "node a1: timetable 7, 2 slots, frame 200ms, next switch in 60ms";
        assert_eq!(head(&report), two);
        report.lease_holds = false;
        assert_eq!(head(&report), format!("{two}; the node has no lease now, so no job runs"));
    }

    #[test]
    fn a_job_that_runs_in_the_slot_is_marked() {
        let (job, processors) = (JobId(7), vec![0, 1, 2, 5]);
        let (runs, state, hold) = (true, CandidateState::Stopped, true);
        let candidate = CandidateReport { job, processors, runs, state, hold };
        assert_eq!(cells(&candidate), ["*7", "0-2,5", "stopped", "hold"]);
    }
}
