//! What a diagnosis consists of.

use serde::Serialize;
use tutti_client::output::counted;

/// How a finding is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Verdict {
    /// As good as it can be.
    Good,
    /// Jobs run as they should; something beyond that is missing.
    Minor,
    /// Works, with a loss that the text names.
    Fair,
    /// Does not work.
    Bad,
}

/// The account that can improve something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum By {
    /// The user that asks.
    You,
    /// An administrator.
    Root,
}

/// How something is improved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Fix {
    pub(super) by: By,
    /// What it gives, to be read after "you can" or "root can".
    pub(super) gives: String,
    /// Commands, or what else to do, in lines.
    pub(super) steps: String,
}

impl Fix {
    pub(super) fn you(gives: impl Into<String>, steps: impl Into<String>) -> Self {
        Self { by: By::You, gives: gives.into(), steps: steps.into() }
    }

    pub(super) fn root(gives: impl Into<String>, steps: impl Into<String>) -> Self {
        Self { by: By::Root, gives: gives.into(), steps: steps.into() }
    }
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    pub(super) verdict: Verdict,
    pub(super) topic: &'static str,
    /// The nodes that it is about; none where there is one node only.
    pub(super) nodes: Vec<String>,
    /// In one line.
    pub(super) text: String,
    /// What more there is to know; mostly for `-v`.
    pub(super) detail: String,
    /// What jobs have to do without, to be read after "without".
    #[serde(skip)]
    pub(super) loss: String,
    /// Whether it follows from another finding, or is the same on each machine: left out of the
    /// short form.
    #[serde(skip)]
    pub(super) implied: bool,
    pub(super) fixes: Vec<Fix>,
}

impl Finding {
    pub(super) fn new(verdict: Verdict, topic: &'static str, text: impl Into<String>) -> Self {
        Self {
            verdict,
            topic,
            nodes: Vec::new(),
            text: text.into(),
            detail: String::new(),
            loss: String::new(),
            implied: false,
            fixes: Vec::new(),
        }
    }

    pub(super) fn good(topic: &'static str, text: impl Into<String>) -> Self {
        Self::new(Verdict::Good, topic, text)
    }

    pub(super) fn bad(topic: &'static str, text: impl Into<String>) -> Self {
        Self::new(Verdict::Bad, topic, text)
    }

    /// Something without which jobs run all the same.
    pub(super) fn minor(topic: &'static str, text: impl Into<String>) -> Self {
        Self::new(Verdict::Minor, topic, text)
    }

    /// A loss, as the first line names it and as its own line does.
    pub(super) fn fair(topic: &'static str, loss: &str, text: impl Into<String>) -> Self {
        Self { loss: loss.into(), ..Self::new(Verdict::Fair, topic, text) }
    }

    pub(super) fn detail(mut self, detail: impl Into<String>) -> Self {
        self.detail = detail.into();
        self
    }

    pub(super) const fn implied(mut self, implied: bool) -> Self {
        self.implied = implied;
        self
    }

    pub(super) fn fix(mut self, fix: impl IntoIterator<Item = Fix>) -> Self {
        self.fixes.extend(fix);
        self
    }

    /// What the user reads as the name of the topic.
    pub(super) fn label(&self) -> &'static str {
        match self.topic {
            "tracking" => "tracking and freezing",
            "memory" => "memory limits",
            "processes" => "process limits",
            "affinity" => "CPU binding",
            "cpu" => "CPU weights",
            "accounts" => "accounting",
            "births" => "process events",
            "priority" => "real-time switches",
            "ipc" => "IPC clean-up",
            other => other,
        }
    }
}

/// All findings, and what they come to.
#[derive(Debug, Serialize)]
pub(super) struct Diagnosis {
    /// The worst of the findings.
    pub(super) verdict: Verdict,
    /// In one line: that all is well, or what is lost.
    pub(super) summary: String,
    pub(super) findings: Vec<Finding>,
}

impl Diagnosis {
    /// `is_running`: whether the findings are about an instance that runs, rather than one that
    /// would.
    pub(super) fn of(findings: Vec<Finding>, is_running: bool) -> Self {
        let findings = merged(findings);
        let verdict = findings.iter().map(|it| it.verdict).max().unwrap_or(Verdict::Good);
        Self { verdict, summary: summary(verdict, &findings, is_running), findings }
    }
}

/// What is the same on several nodes is one finding.
fn merged(findings: Vec<Finding>) -> Vec<Finding> {
    let mut merged: Vec<Finding> = Vec::new();
    for mut finding in findings {
        let is_same = |it: &&mut Finding| {
            (it.topic, it.verdict, &it.text) == (finding.topic, finding.verdict, &finding.text)
                && !it.nodes.is_empty()
                && !finding.nodes.is_empty()
        };
        match merged.iter_mut().find(is_same) {
            Some(same) => same.nodes.append(&mut finding.nodes),
            None => merged.push(finding),
        }
    }
    merged
}

/// So many losses are named in the first line.
const LOSSES_NAMED: usize = 3;

fn summary(verdict: Verdict, findings: &[Finding], is_running: bool) -> String {
    let mut losses: Vec<&str> = Vec::new();
    for finding in findings.iter().filter(|it| it.verdict == Verdict::Fair) {
        if !losses.contains(&finding.loss.as_str()) {
            losses.push(&finding.loss);
        }
    }
    match verdict {
        Verdict::Bad => {
            let bad = findings.iter().find(|it| it.verdict == Verdict::Bad);
            let text = bad.map_or("", |it| it.text.as_str());
            format!("broken: {}", text.lines().next().unwrap_or_default())
        }
        Verdict::Fair => format!("jobs run, but without {}", listed(&losses)),
        _ if is_running => {
            "all is well: jobs are tracked, suspended and held to their limits".into()
        }
        _ => "all is well: an instance started here tracks, suspends and limits its jobs".into(),
    }
}

/// `a`, `a and b`, `a, b and c`, `a, b, c and 2 more`.
fn listed(names: &[&str]) -> String {
    let (named, more) = names.split_at(names.len().min(LOSSES_NAMED));
    match (named, more.len()) {
        ([], _) => String::new(),
        ([one], 0) => (*one).to_owned(),
        ([first @ .., last], 0) => format!("{} and {last}", first.join(", ")),
        (named, more) => format!("{} and {more} more", named.join(", ")),
    }
}

/// `n1`, `n1 and n2`, `12 nodes`.
pub(super) fn nodes_named(nodes: &[String]) -> String {
    if nodes.len() > LOSSES_NAMED + 1 {
        return counted(nodes.len() as u64, "node");
    }
    match nodes {
        [] => String::new(),
        [one] => one.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fair(topic: &'static str, loss: &str) -> Finding {
        Finding::fair(topic, loss, "text")
    }

    #[test]
    fn the_first_line_says_that_all_is_well_or_what_is_lost() {
        let said = |findings: Vec<Finding>| Diagnosis::of(findings, true).summary;
        let well = vec![Finding::good("memory", "it is"), Finding::minor("accounts", "not all")];
        assert!(said(well).starts_with("all is well: "));
        let one = vec![fair("memory", "memory limits"), Finding::good("ipc", "")];
        assert_eq!(said(one), "jobs run, but without memory limits");
        let five = ["a", "b", "c", "d", "e"].map(|loss| fair("memory", loss)).to_vec();
        assert_eq!(said(five), "jobs run, but without a, b, c and 2 more");
        let bad = vec![fair("memory", "a"), Finding::bad("instance", "it hangs\nmore")];
        assert_eq!(said(bad), "broken: it hangs");
    }

    #[test]
    fn what_is_the_same_on_several_nodes_is_said_once() {
        let on = |node: &str, text: &str| Finding {
            nodes: vec![node.into()],
            ..Finding::minor("accounts", text)
        };
        let found = Diagnosis::of(vec![on("n1", "a"), on("n2", "a"), on("n3", "b")], true).findings;
        let nodes: Vec<_> = found.iter().map(|it| nodes_named(&it.nodes)).collect();
        assert_eq!(nodes, ["n1 and n2", "n3"]);
        let many: Vec<String> = (0..9).map(|n| format!("n{n}")).collect();
        assert_eq!(nodes_named(&many), "9 nodes");
    }
}
