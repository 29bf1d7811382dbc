//! Why jobs wait, in words: the core's reason, and the nodes that take no new jobs now.

use super::driver::Driver;
use std::cell::OnceCell;
use tutti_core::{InLine, WaitReason, leaves_before};
use tutti_node::calendar::local_moment;
use tutti_types::param::Shown;
use tutti_types::{JobId, JobSpec, NodeId, QueueName};
use tutti_wire::launch::cut;

/// The most nodes that a reason names.
const NAMED_MAX: usize = 3;

/// The most of the reason for which a node is drained that is repeated, in bytes.
const DRAINED_BYTES_MAX: usize = 60;

/// Says why jobs wait; looks for the nodes only if a job waits for some.
pub(super) struct Waits<'a> {
    driver: &'a Driver,
    closed: OnceCell<Vec<(NodeId, String)>>,
}

impl<'a> Waits<'a> {
    pub(super) const fn new(driver: &'a Driver) -> Self {
        Self { driver, closed: OnceCell::new() }
    }

    /// Where a job stands in line, if it does.
    pub(super) fn place(&self, job: JobId) -> Option<InLine> {
        let line = self.driver.decision.line.get_or_init(|| self.driver.core.line().collect());
        line.get(&job).copied()
    }

    /// Why a job waits, with its place in line where that is the reason.
    pub(super) fn say_in_line(
        &self,
        (job, spec, queue): (JobId, &JobSpec, Option<&QueueName>),
        why: &WaitReason,
        place: Option<InLine>,
    ) -> String {
        match (why, place) {
            (WaitReason::Behind(_), Some(InLine { position, before: Some(before), yields })) => {
                let more = if yields { "; its user has used more lately" } else { "" };
                format!("{position}{} in line, behind job {before}{more}", suffix(position))
            }
            _ => self.say((job, spec, queue), why),
        }
    }

    /// Why a job with this wish waits.
    pub(super) fn say(
        &self,
        (job, spec, queue): (JobId, &JobSpec, Option<&QueueName>),
        why: &WaitReason,
    ) -> String {
        if let (Some(queue), WaitReason::Queue { limit, most }) = (queue, why) {
            let most = Shown(limit.param(), *most);
            return format!("as much of queue {queue} runs as may: {limit}={most} (`tutti queue`)");
        }
        if let WaitReason::Begin { unix_ms } = why {
            return format!("it begins at {}", local_moment(*unix_ms));
        }
        if let WaitReason::Leaves { node, unix_ms, limited } = why {
            let (node, at) = (self.driver.node_name(*node), local_moment(*unix_ms));
            return format!("{node} goes out of service at {at}{}", leaves_before(*limited));
        }
        if *why == WaitReason::KeptMemory {
            return self.say_keepers(spec);
        }
        if *why != WaitReason::Nodes {
            return why.to_string();
        }
        if let Some(words) = self.say_image(job, spec) {
            return words;
        }
        let closed = self.closed.get_or_init(|| closed_nodes(self.driver));
        let closed = closed.iter().filter(|(node, _)| spec.nodes.allows(*node));
        let words: Vec<&str> = closed.map(|(_, words)| words.as_str()).collect();
        if words.is_empty() {
            return why.to_string();
        }
        let named = words[..words.len().min(NAMED_MAX)].join(", ");
        let more = match words.len().saturating_sub(NAMED_MAX) {
            0 => String::new(),
            more => format!(", and {more} more (see `tutti nodes`)"),
        };
        format!("too few nodes take jobs now: {named}{more}")
    }

    /// That a job waits for the nodes that can read its image, if it has one.
    fn say_image(&self, job: JobId, spec: &JobSpec) -> Option<String> {
        let core = &self.driver.core;
        let node = core.image_of(job)?;
        let name = self.driver.node_name(node);
        let others = spec.nodes.among.as_ref().map_or(0, |among| among.len().saturating_sub(1));
        let which = match (core.shared_image(job), others) {
            (None, _) => format!("its image is on {name}, and nodes share no directory of images"),
            (Some(_), 0) => format!("its image is that of {name}, and no other node can read it"),
            (Some(_), 1) => format!("its image is that of {name}, and one other node can read it"),
            (Some(_), _) => format!("its image is that of {name}, and {others} others can read it"),
        };
        let closed = self.closed.get_or_init(|| closed_nodes(self.driver));
        let closed = closed.iter().filter(|(id, _)| spec.nodes.allows(*id));
        let mut words: Vec<&str> = closed.map(|(_, words)| words.as_str()).collect();
        let is_up = core.nodes().any(|view| view.id == node && view.up);
        let down = format!("{name} is down");
        if !is_up && !core.nodes().any(|view| view.up && spec.nodes.allows(view.id)) {
            words.push(&down);
        }
        let named = words[..words.len().min(NAMED_MAX)].join(", ");
        Some(if named.is_empty() { which } else { format!("{which}: {named}") })
    }

    /// Which classes keep the memory that a job waits for.
    fn say_keepers(&self, spec: &JobSpec) -> String {
        let keepers = self.driver.core.keep_memory_from(spec);
        let keepers = keepers.map(|(class, kept)| format!("{kept} for class {class}"));
        let keepers: Vec<String> = keepers.take(NAMED_MAX).collect();
        format!("waits for memory: of each node is kept {}", keepers.join(", "))
    }
}

/// What makes a number an ordinal.
const fn suffix(number: u64) -> &'static str {
    match (number % 100, number % 10) {
        (11..=13, _) => "th",
        (_, 1) => "st",
        (_, 2) => "nd",
        (_, 3) => "rd",
        _ => "th",
    }
}

/// The nodes that are up and take no new jobs now, each with the reason.
fn closed_nodes(driver: &Driver) -> Vec<(NodeId, String)> {
    let closed = driver.core.nodes().filter(|view| view.up).filter_map(|view| {
        let name = &view.spec.name;
        let words = match view.drained {
            _ if view.away => format!("{name} is unreachable"),
            Some("") => format!("{name} is drained"),
            Some(reason) => {
                format!("{name} is drained ({})", cut(reason.to_owned(), DRAINED_BYTES_MAX))
            }
            None => return None,
        };
        Some((view.id, words))
    });
    closed.collect()
}

#[cfg(test)]
mod tests {
    use super::suffix;

    #[test]
    fn ordinals_are_english() {
        let said = |number: u64| format!("{number}{}", suffix(number));
        let all = [1, 2, 3, 4, 11, 12, 13, 21, 102, 111, 123].map(said).join(" ");
        assert_eq!(all, "1st 2nd 3rd 4th 11th 12th 13th 21st 102nd 111th 123rd");
    }
}
