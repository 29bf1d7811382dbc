//! `--at` of `tutti sim` and `tutti replay`: changes at times, as `tutti at` takes them.

use anyhow::{anyhow, bail};
use std::collections::BTreeSet;
use tutti_node::timed::moments_in;
use tutti_sim::ChangeAtTimes;
use tutti_types::{
    ClassName, ClusterTime, NamedNodes, Nanos, NodeId, Overrides, Settings, TimedChange, When,
};
use tutti_wire::parameter::{override_param, override_rule};
use tutti_wire::units::parse_duration;

/// Maximum number of moments of one change: ten years of days.
const MOMENTS_MAX: usize = 3660;

/// What may stand behind a time.
const CHANGES: &str = "write TIME params NAME=VALUE, TIME nodes LIST out, or TIME nodes LIST \
     in, such as \"fri 18:00 nodes node[0-3] out\"";

/// Finds the nodes of a list.
pub(crate) type Named<'a> = &'a dyn Fn(&str) -> Result<BTreeSet<NodeId>, String>;

/// A Monday at midnight, in seconds since 1970: for workloads that know no date.
const A_MONDAY_S: u64 = 1_704_067_200;

/// When a workload begins, by people's clocks.
#[derive(Clone, Debug)]
pub(crate) struct Beginning {
    /// In seconds since 1970.
    pub(crate) unix_s: u64,
    /// The time zone.
    pub(crate) zone: String,
    /// Whether the date is the workload's, and not only the day of the week.
    pub(crate) has_date: bool,
}

impl Beginning {
    /// At some time of a week since Monday 00:00.
    pub(crate) fn in_week(week: Nanos) -> Self {
        let unix_s = A_MONDAY_S + week.0 / Nanos::from_secs(1).0;
        Self { unix_s, zone: "UTC".into(), has_date: false }
    }
}

/// Reads changes; when the workload begins is asked only if there are any.
///
/// # Errors
/// What is wrong, and what would be right.
pub(crate) fn changes(
    texts: &[String],
    (settings, nodes): (&Settings, Named<'_>),
    beginning: impl FnOnce() -> anyhow::Result<Beginning>,
) -> anyhow::Result<Vec<ChangeAtTimes>> {
    if texts.is_empty() {
        return Ok(Vec::new());
    }
    let beginning = beginning()?;
    let of = |text: &String| {
        change(text, (settings, nodes), &beginning)
            .map_err(|error| anyhow!("--at {text:?}: {error}"))
    };
    texts.iter().map(of).collect()
}

fn change(
    text: &str,
    (settings, nodes): (&Settings, Named<'_>),
    beginning: &Beginning,
) -> anyhow::Result<ChangeAtTimes> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let is_verb = |word: &&str| ["params", "nodes", "release"].contains(word);
    let Some(at) = words.iter().position(is_verb).filter(|&at| at > 0) else {
        bail!(CHANGES);
    };
    let when: When = words[..at].join(" ").parse()?;
    if matches!(when, When::Once { .. }) && !beginning.has_date {
        bail!("the workload has no date, only days of the week; name a day such as fri");
    }
    let change = match words[at..] {
        ["params", ref values @ ..] if !values.is_empty() => set(values)?,
        ["nodes", list, "out", ref rest @ ..] => {
            let ahead = match rest {
                [] => None,
                [one] => Some(ahead_of(one)?),
                _ => bail!(CHANGES),
            };
            TimedChange::Out { nodes: named(list, nodes)?, ahead }
        }
        ["nodes", list, "in"] => TimedChange::In { nodes: named(list, nodes)? },
        ["release", ..] => bail!("jobs can't be released here; {CHANGES}"),
        _ => bail!(CHANGES),
    };
    let began_ms = beginning.unix_s.saturating_mul(1000);
    // The moment at which the workload begins is one of them.
    let after_ms = began_ms.saturating_sub(1);
    let moments = moments_in(when, after_ms, &beginning.zone)
        .ok_or_else(|| anyhow!("the time zone {} is not known on this machine", beginning.zone))?;
    let at = |unix_ms: u64| {
        let since = Nanos::from_millis(unix_ms.saturating_sub(began_ms));
        (ClusterTime(0) + since, unix_ms)
    };
    let moments = moments.take(MOMENTS_MAX).map(at);
    ChangeAtTimes::new((when, change), moments, settings).map_err(|reason| anyhow!(reason))
}

fn set(values: &[&str]) -> anyhow::Result<TimedChange> {
    let mut overrides = Overrides::default();
    for word in values {
        let Some((name, value)) = word.split_once('=') else {
            bail!("{word:?} sets nothing; write NAME=VALUE or CLASS.RULE=VALUE");
        };
        match name.rsplit_once('.') {
            None => override_param(&mut overrides, name, value),
            Some((class, rule)) => {
                override_rule(&mut overrides, &ClassName::new(class), rule, value)
            }
        }
        .map_err(|reason| anyhow!(reason))?;
    }
    Ok(TimedChange::Set(overrides))
}

fn named(list: &str, nodes: Named<'_>) -> anyhow::Result<NamedNodes> {
    let found = nodes(list).map_err(|reason| anyhow!(reason))?;
    Ok(NamedNodes { list: list.into(), nodes: found, sets: [].into() })
}

fn ahead_of(word: &str) -> anyhow::Result<Nanos> {
    let Some(length) = word.strip_prefix("ahead=") else {
        bail!("{word:?} is nothing that `out` can have; write ahead=TIME, such as ahead=2d");
    };
    parse_duration(length).map_err(|error| anyhow!("ahead: {error}"))
}

#[cfg(test)]
mod tests {
    use super::{Beginning, changes};
    use crate::sim::nodes::Nodes;
    use tutti_sim::Machine;
    use tutti_types::{ClusterTime, Nanos, Params, Settings, default_classes};

    fn read(text: &str, has_date: bool) -> Result<Vec<ClusterTime>, String> {
        let nodes = Nodes::of(Machine::new(4, 1).unwrap(), &[]);
        let settings = Settings::new(Params::default(), default_classes());
        // A Monday.
        let beginning = Beginning { unix_s: 1_704_067_200, zone: "UTC".into(), has_date };
        let read =
            changes(&[text.to_owned()], (&settings, &|list| nodes.named(list)), || Ok(beginning));
        let read = read.map_err(|error| error.to_string())?;
        Ok(read[0].moments().collect())
    }

    #[test]
    fn moments_count_from_the_beginning_of_the_workload() {
        const DAY: Nanos = Nanos::from_secs(24 * 3600);
        let begin = ClusterTime(0);
        let out = read("00:00 nodes node[0-1] out ahead=1h", false).unwrap();
        assert_eq!(out[..3], [begin, begin + DAY, begin + Nanos(2 * DAY.0)]);
        let weekly = read("tue 00:00 params rows=3", false).unwrap();
        assert_eq!(weekly[..2], [begin + DAY, begin + Nanos(8 * DAY.0)]);
        assert_eq!(read("2024-01-02 00:00 nodes node0 in", true).unwrap(), [begin + DAY]);
    }

    #[test]
    fn what_is_no_change_of_a_simulation_is_refused_with_the_reason() {
        for (text, reason) in [
            ("fri", "nodes LIST out"),
            ("nodes node0 out", "nodes LIST out"),
            ("fri 18:00 nodes node9 out", "there is no node node9"),
            ("fri 18:00 nodes node0 out soon", "ahead=TIME"),
            ("fri 18:00 params rows=many", "rows"),
            ("fri 18:00 release 7", "jobs can't be released here"),
            ("2024-01-05 18:00 nodes node0 out", "the workload has no date"),
            ("noon nodes node0 out", "--at"),
        ] {
            let said = read(text, false).unwrap_err();
            assert!(said.contains(reason), "{text}: {said}");
        }
        assert!(read("2023-01-05 18:00 nodes node0 out", true).unwrap_err().contains("before"));
    }
}
