//! The instance that has this user's jobs: whether it runs, and how it fares.

use super::finding::{Finding, Fix};
use std::os::unix::fs::MetadataExt;
use tutti_client::ask::{ask, unexpected};
use tutti_client::output::counted;
use tutti_node::codes::code_of;
use tutti_node::instance::Instance;
use tutti_node::presence::{has_keeper, is_supervised};
use tutti_types::Nanos;
use tutti_wire::code::Code;
use tutti_wire::local::{Reply, Request};
use tutti_wire::report::{AgentStatus, ClocksReport, SlotReport, StatusReport};
use tutti_wire::units::{format_duration_short, format_seconds};

/// What came of asking the instance.
pub(super) struct Asked {
    /// What it answered.
    pub(super) status: Option<StatusReport>,
    pub(super) findings: Vec<Finding>,
    /// Whether there is one, also if it did not answer.
    pub(super) is_running: bool,
}

impl Asked {
    fn nothing(finding: Finding, is_running: bool) -> Self {
        Self { status: None, findings: vec![finding], is_running }
    }
}

/// Asks the instance that a verb of this user means.
pub(super) fn ask_it() -> Asked {
    let instance = Instance::locate();
    let answers = instance.answers();
    // Others may ask a controller of root's.
    let checked = if answers { instance.open().map(drop) } else { instance.check_owner() };
    if let Err(error) = checked {
        return Asked::nothing(Finding::bad("instance", format!("{error:#}")), true);
    }
    if !answers {
        return match has_keeper(&instance) {
            true => Asked::nothing(without_controller(&instance), true),
            false => Asked::nothing(none_runs(&instance), false),
        };
    }
    let mut asked = match status() {
        Ok(status) => {
            let findings = describe(&status);
            Asked { status: Some(status), findings, is_running: true }
        }
        // It is there, and well.
        Err(error) if code_of(&error) == Code::NotAllowed => {
            let finding =
                Finding::fair("instance", "what its controller knows", format!("{error:#}"));
            let fix = Fix::you("ask as another user", "tutti doctor");
            Asked::nothing(finding.fix([fix]), true)
        }
        // The reason says what to do about a daemon that does not answer; its jobs run.
        Err(error) if code_of(&error) == Code::ControllerAway => {
            Asked::nothing(Finding::bad("instance", format!("{error:#}")), true)
        }
        Err(error) => {
            let fix = Fix::you("start it anew", "tutti down; tutti up");
            Asked::nothing(Finding::bad("instance", format!("{error:#}")).fix([fix]), true)
        }
    };
    asked.findings.extend(unsupervised(&instance));
    asked.findings.extend(beside(&instance));
    asked
}

fn without_controller(instance: &Instance) -> Finding {
    let directory = instance.directory().display();
    Finding::bad("instance", format!("the one in {directory} has no controller; its jobs run"))
        .fix([Fix::you("go on with its jobs", "tutti up"), Fix::you("end its jobs", "tutti down")])
}

fn none_runs(instance: &Instance) -> Finding {
    let Some((place, jobs)) = Instance::with_jobs_left() else {
        let text = "none runs; `tutti run` and `tutti up` start one";
        let directory = instance.directory().display();
        return Finding::good("instance", text).detail(format!("in {directory}"));
    };
    let (directory, up) = (place.directory().display(), place.up_command());
    let text = format!("none runs; one in {directory} has left {}", counted(jobs, "job"));
    let fix = Fix::you("run what waited, and see how the rest ended", up);
    Finding::fair("instance", "an instance for the jobs that were left", text).fix([fix])
}

fn unsupervised(instance: &Instance) -> Option<Finding> {
    let owner = std::fs::metadata(instance.directory()).ok()?.uid();
    // Others can't see which process holds the lock.
    let is_ours = owner == nix::unistd::geteuid().as_raw();
    if !is_ours || is_supervised(instance) {
        return None;
    }
    let text = "the supervisor has ended: no daemon is started again if it fails";
    let fix = Fix::you("start its supervisor", "tutti up");
    Some(Finding::fair("instance", "a supervisor", text).fix([fix]))
}

fn beside(instance: &Instance) -> Option<Finding> {
    let other = instance.beside()?;
    let kind = if other.private { "private" } else { "system" };
    let directory = other.directory().display();
    let text =
        format!("a {kind} instance runs too, in {directory}: jobs of the two slow each other down");
    let fix = Fix::you("end the other instance", format!("TUTTI_DIR={directory} tutti down"));
    Some(Finding::fair("instance", "CPUs of its own (another instance runs)", text).fix([fix]))
}

fn status() -> anyhow::Result<StatusReport> {
    match ask(&Request::Status)? {
        Reply::Status(status) => Ok(status),
        _ => unexpected(),
    }
}

fn describe(status: &StatusReport) -> Vec<Finding> {
    let kind = if status.private { "private" } else { "of the system" };
    let turns = match status.rows {
        0 | 1 => String::new(),
        rows => format!(" in {rows} turns"),
    };
    let text = format!(
        "{kind}, up {}: {}{turns}, {} queued",
        format_seconds(status.uptime_s),
        counted(status.resident, "job"),
        status.queued
    );
    let detail = format!("in {}, Tutti {}", status.directory, status.version);
    let mut findings = vec![Finding::good("instance", text).detail(detail)];
    let several = status.agents.len() > 1;
    findings.extend(status.agents.iter().map(|agent| switches(agent, several)));
    findings.extend(status.clocks.as_ref().map(describe_clocks));
    findings
}

/// Whether nodes know the time well enough to switch together.
fn describe_clocks(clocks: &ClocksReport) -> Finding {
    let shown = |ns| format_duration_short(Nanos(ns));
    let ClocksReport { ref node, error_ns, least_ns, too_far, ref shortest } = *clocks;
    let worst = format!("the clock of {node} may be off by {}", shown(error_ns));
    let Some(SlotReport { length_ns, class, quantum_ns }) = shortest else {
        return Finding::good("clocks", format!("{worst}, no other by more; no jobs take turns"));
    };
    let (length, least, quantum) = (shown(*length_ns), shown(least_ns), shown(*quantum_ns));
    if too_far == 0 {
        let text =
            format!("{worst}, no other by more; slots of {length}, the shortest, are long enough");
        return Finding::good("clocks", text);
    }
    let others = match too_far - 1 {
        0 => String::new(),
        others => format!(" (and that of {} by too much, too)", counted(others, "other node")),
    };
    // Users with several rows have slots of half a quantum, whatever the rules of classes.
    let halves = quantum_ns.div_ceil((*length_ns).max(1));
    let longer = shown(least_ns.saturating_mul(halves));
    let by_quantum = format!("tutti params quantum={longer}    # or more, at all hours");
    let (slots, steps) = match halves {
        0 | 1 => (format!("the quantum, {quantum}"), by_quantum),
        2 => (format!("half the quantum, {length}"), by_quantum),
        _ => (
            format!("{length}, those of class {class} with a quantum of {quantum}"),
            format!("tutti params --class {class} slot_min={least}    # or a longer quantum"),
        ),
    };
    let text = format!(
        "{worst}{others}, and slots may be as short as {slots}: these do not begin together on all nodes"
    );
    let system = "# or, where chrony or PTP keep the machines' clocks: tutti params clock=system";
    let fix = Fix::root("have nodes switch together", format!("{steps}\n{system}"));
    Finding::fair("clocks", "switches that begin together", text).fix([fix])
}

fn switches(agent: &AgentStatus, several: bool) -> Finding {
    let AgentStatus { switches, stragglers, late_timetables, .. } = *agent;
    let mut text = format!("{switches} switches");
    if stragglers > 0 {
        text.push_str(&format!("; in {stragglers} of them a process did not stop in time"));
    }
    if late_timetables > 0 {
        text.push_str(&format!("; {} arrived late", counted(late_timetables, "timetable")));
    }
    let mut finding = match (stragglers, late_timetables) {
        (0, 0) => Finding::good("switches", format!("{text}, all in time")),
        (_, 0) => {
            let fix = Fix::you("see when each switch was due and done", "tutti switches");
            Finding::minor("switches", text).fix([fix])
        }
        _ => {
            let steps = "tutti params lead=20ms    # jobs begin that much later";
            let fix = Fix::root("have timetables sent earlier", steps);
            Finding::minor("switches", text).fix([fix])
        }
    };
    finding.nodes.extend(several.then(|| agent.node.clone()));
    finding
}

#[cfg(test)]
mod tests {
    use super::super::finding::Verdict;
    use super::*;

    #[test]
    fn a_clock_that_is_too_bad_for_the_shortest_slot_is_told_with_what_to_do() {
        let clocks = |too_far, slot: Option<(u64, u64)>| ClocksReport {
            node: "n3".into(),
            error_ns: 22_000_000,
            least_ns: 88_000_000,
            too_far,
            shortest: slot.map(|(length_ms, quantum_ms)| SlotReport {
                length_ns: length_ms * 1_000_000,
                class: "standby".into(),
                quantum_ns: quantum_ms * 1_000_000,
            }),
        };
        let told = |too_far, slot, texts: &[&str], mend: &str| {
            let finding = describe_clocks(&clocks(too_far, slot));
            let verdict = if too_far == 0 { Verdict::Good } else { Verdict::Fair };
            assert_eq!((finding.verdict, finding.topic), (verdict, "clocks"));
            for said in [&["the clock of n3 may be off by 22ms"], texts].concat() {
                assert!(finding.text.contains(said), "{said}: {}", finding.text);
            }
            let steps = finding.fixes.first().map_or("", |fix| &fix.steps);
            assert_eq!(steps.lines().next().unwrap_or_default(), mend);
        };
        told(0, None, &["no jobs take turns"], "");
        told(0, Some((100, 100)), &["slots of 100ms, the shortest, are long enough"], "");
        let mend = "tutti params quantum=88ms    # or more, at all hours";
        told(1, Some((40, 40)), &["as short as the quantum, 40ms"], mend);
        let mend = "tutti params quantum=176ms    # or more, at all hours";
        told(1, Some((20, 40)), &["as short as half the quantum, 20ms"], mend);
        let texts = ["of 2 other nodes by too much", "as short as 4.0ms, those of class standby"];
        let mend = "tutti params --class standby slot_min=88ms    # or a longer quantum";
        told(3, Some((4, 200)), &texts, mend);
    }
}
