//! A script: how a cluster begins, and what happens then; and its text.

use super::cluster::{Cluster, params};
use super::step::{KEEPS_ROWS, Step, class_name, user_name};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use tutti_core::policy::POLICIES;

/// How a cluster begins.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Start {
    /// The processors of nodes 0, 1, ...
    pub nodes: Vec<u32>,
    /// Parameters that are not at their defaults.
    pub params: BTreeMap<String, u64>,
}

/// What happens, step by step.
///
/// Its text has a line for the beginning and one for each step, as JSON; lines that begin with `#`
/// are passed over.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Script {
    /// How it begins.
    pub start: Start,
    /// What happens.
    pub steps: Vec<Step>,
}

/// A line that is no step.
#[derive(Debug, thiserror::Error)]
pub enum ScriptError {
    /// Nothing at all.
    #[error("it is empty; a script begins with a line such as {{\"nodes\":[2,4],\"params\":{{}}}}")]
    Empty,
    /// A line that can't be read.
    #[error("line {line} is no step of a script")]
    Line {
        /// Which.
        line: usize,
        /// Why.
        source: serde_json::Error,
    },
    /// A parameter that can't be.
    #[error("line {line} sets what can't be set")]
    Param {
        /// Which.
        line: usize,
        /// Why.
        source: tutti_types::ParamError,
    },
}

impl Script {
    /// The cluster, before the first step.
    pub(super) fn begin(&self) -> Cluster {
        let values: Vec<(&str, u64)> =
            self.start.params.iter().map(|(name, &value)| (name.as_str(), value)).collect();
        let mut cluster = Cluster::new(params(&values));
        for (node, &width) in (0..).zip(&self.start.nodes) {
            cluster.join(node, width);
        }
        cluster
    }

    /// How long a row may wait for its turn at most, in nanoseconds, where that can be said: while
    /// only users do things, and rows have one length: jobs are of one user, and of no class that
    /// keeps rows.
    pub(super) fn longest_wait(&self) -> Option<u64> {
        let users = self.steps.iter().all(|step| !step.changes_turns() && step.is_even());
        let params = self.begin().core.params().clone();
        // Under `dhc`, each level of the tree over these nodes may have as many rows.
        let widest = self.start.nodes.iter().copied().max().unwrap_or(1).next_power_of_two();
        let nodes = self.start.nodes.len().next_power_of_two();
        let levels = match POLICIES.get(params.policy())?.name {
            "gang" => 1,
            "dhc" => u64::from(widest.ilog2() + nodes.ilog2() + 1),
            _ => return None,
        };
        let rows = levels * u64::from(params.rows().max(1));
        (users && params.lead().0 == 0).then(|| (rows - 1) * params.quantum().0)
    }
}

impl Step {
    /// Whether it makes no row longer than others, or beyond the number of rows.
    fn is_even(&self) -> bool {
        match self {
            Self::Submit(spec)
            | Self::SubmitTo(_, spec)
            | Self::SubmitHeld(spec, _)
            | Self::SubmitBatch(spec)
            | Self::SubmitLater(spec, _)
            | Self::SubmitSwapping(spec)
            | Self::SubmitWarned(spec, ..)
            | Self::SubmitSaver(spec, ..)
            | Self::SubmitImage(spec, _)
            | Self::SubmitAfter(spec, ..) => {
                spec.owner == user_name(0) && spec.class != class_name(KEEPS_ROWS)
            }
            // Changes are put off for those that vacate.
            Self::JobClass(..) | Self::AfterUse(..) | Self::SubmitVacating(..) => false,
            _ => true,
        }
    }

    /// Whether it may change how many rows there are, or how long their slots are.
    #[expect(clippy::too_many_lines, reason = "one line for each kind of step")]
    const fn changes_turns(&self) -> bool {
        match self {
            Self::Drain(..)
            | Self::Remove(_)
            | Self::Miss(_)
            | Self::Lose(_)
            | Self::Forget(_)
            | Self::Join(..)
            | Self::Set(..)
            | Self::Rule(..)
            | Self::ForgetClass(_)
            | Self::Weight(..)
            | Self::JobClass(..)
            | Self::AfterUse(..)
            | Self::BankPeriod(..)
            | Self::Day(_)
            | Self::Charge(_)
            | Self::OrderStart(..)
            | Self::Order(..)
            | Self::Timed(..)
            | Self::TimedDue(..)
            | Self::MoveTimed(..)
            | Self::Bank(..) => true,
            Self::Pass(_)
            | Self::Submit(_)
            | Self::SubmitTo(..)
            | Self::Limit(..)
            | Self::ForgetQueue(_)
            | Self::EndTask(..)
            | Self::EndTasks(_)
            | Self::EndJob(..)
            | Self::Clear(_)
            | Self::DeliverKills
            | Self::Arrive(_)
            | Self::Cancel(..)
            | Self::Requeue(..)
            | Self::Suspend(_)
            | Self::Resume(_)
            | Self::SubmitHeld(..)
            | Self::SubmitBatch(_)
            | Self::SubmitAfter(..)
            | Self::SubmitVacating(..)
            | Self::SubmitSwapping(_)
            | Self::Swapped(..)
            | Self::Lend(..)
            | Self::SubmitLater(..)
            | Self::SubmitWarned(..)
            | Self::SubmitSaver(..)
            | Self::SubmitImage(..)
            | Self::Saver(..)
            | Self::Checkpoint(..)
            | Self::RollOut(_)
            | Self::RollIn
            | Self::MoveBegin(..)
            | Self::StartStep(..)
            | Self::EndStep(..)
            | Self::EndStepTask(..)
            | Self::CancelStep(..)
            | Self::StepFrontEndLost(_)
            | Self::SubmitArray(..)
            | Self::Elements(..)
            | Self::WholeArray(..)
            | Self::HoldJob(..)
            | Self::Release(..)
            | Self::JobLimit(..)
            | Self::MoveJob(..)
            | Self::Signal(..)
            | Self::FrontEndLost(_)
            | Self::Node(..)
            | Self::Foreign(..)
            | Self::Resource(..)
            | Self::Devices(..)
            | Self::Device(..)
            | Self::Hold(_)
            | Self::Nonsense(..) => false,
        }
    }
}

impl fmt::Display for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let line = |line: Result<String, _>| line.map_err(|_| fmt::Error);
        writeln!(f, "{}", line(serde_json::to_string(&self.start))?)?;
        self.steps.iter().try_for_each(|step| writeln!(f, "{}", line(serde_json::to_string(step))?))
    }
}

impl FromStr for Script {
    type Err = ScriptError;

    fn from_str(text: &str) -> Result<Self, ScriptError> {
        let lines = (1..).zip(text.lines().map(str::trim));
        let mut lines = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
        let (line, first) = lines.next().ok_or(ScriptError::Empty)?;
        let start: Start =
            serde_json::from_str(first).map_err(|source| ScriptError::Line { line, source })?;
        let mut params = tutti_types::Params::default();
        for (name, &value) in &start.params {
            params.set(name, value).map_err(|source| ScriptError::Param { line, source })?;
        }
        let step = |(line, text)| {
            serde_json::from_str(text).map_err(|source| ScriptError::Line { line, source })
        };
        Ok(Self { start, steps: lines.map(step).collect::<Result<_, _>>()? })
    }
}

/// A request as what of it is not as usual, so that a line stays short.
pub(super) mod asked {
    use crate::fuzz::job;
    use serde::de::Error as _;
    use serde::ser::Error as _;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use serde_json::{Map, Value};
    use tutti_types::JobSpec;

    fn usual() -> Result<Map<String, Value>, serde_json::Error> {
        serde_json::from_value(serde_json::to_value(job(1))?)
    }

    pub(crate) fn serialize<S: Serializer>(spec: &JobSpec, to: S) -> Result<S::Ok, S::Error> {
        let fields = || -> Result<Map<String, Value>, serde_json::Error> {
            let usual = usual()?;
            let mut fields: Map<String, Value> =
                serde_json::from_value(serde_json::to_value(spec)?)?;
            fields.retain(|name, value| usual.get(name) != Some(value));
            Ok(fields)
        };
        fields().map_err(S::Error::custom)?.serialize(to)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Box<JobSpec>, D::Error> {
        let told = Map::deserialize(from)?;
        let spec = || -> Result<JobSpec, serde_json::Error> {
            let mut fields = usual()?;
            fields.extend(told);
            serde_json::from_value(Value::Object(fields))
        };
        spec().map(Box::new).map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::Script;
    use crate::fuzz::Who;

    #[test]
    fn a_script_is_its_text() {
        for seed in 0..20 {
            let script = Script::random(seed, 60, Who::Everybody);
            assert_eq!(script.to_string().parse::<Script>().unwrap(), script);
        }
    }

    #[test]
    fn what_is_no_script_is_named() {
        let said = |text: &str| text.parse::<Script>().unwrap_err().to_string();
        assert!(said("# nothing\n").starts_with("it is empty"));
        assert_eq!(said("{\"nodes\":[1],\"params\":{}}\n\nfoo"), "line 3 is no step of a script");
        assert_eq!(
            said("{\"nodes\":[1],\"params\":{\"rows\":0}}"),
            "line 1 sets what can't be set"
        );
    }
}
