//! What pictures of a timeline have in common: their lanes, axis and colours.

use super::Timeline;
use std::collections::BTreeSet;
use tutti_node::codes::coded;
use tutti_types::Nanos;
use tutti_wire::code::Code;
use tutti_wire::units::format_duration_short;

/// Turns and lanes that a picture can show.
const TURNS_MAX: usize = 50_000;
const LANES_MAX: usize = 1_000;

/// Spaces between the moments of the axis.
const TICKS: u64 = 8;

/// The node and processor of each lane.
///
/// # Errors
/// If there is too much to be seen.
pub(super) fn lanes_of(timeline: &Timeline) -> anyhow::Result<Vec<(usize, u32)>> {
    let lanes: BTreeSet<(usize, u32)> =
        timeline.slices.iter().map(|slice| (slice.node, slice.processor)).collect();
    if timeline.slices.len() > TURNS_MAX || lanes.len() > LANES_MAX {
        let reason = format!(
            "a picture shows at most {TURNS_MAX} turns on {LANES_MAX} processors, and these are {} on {}: choose with \
             --since, --node or jobs, or write a trace",
            timeline.slices.len(),
            lanes.len()
        );
        return Err(coded(Code::TooMuchAsked, reason));
    }
    Ok(lanes.into_iter().collect())
}

/// The moments of the axis, in nanoseconds after the begin.
pub(super) fn ticks(timeline: &Timeline) -> impl Iterator<Item = u64> {
    let step = (timeline.end_ns - timeline.begin_ns) / TICKS;
    (0..=TICKS).map(move |tick| step * tick)
}

/// The name of a moment of the axis.
pub(super) fn tick(after_ns: u64) -> String {
    format_duration_short(Nanos(after_ns))
}

/// The hue of a job, in degrees: neighbours in number are far apart.
pub(super) const fn hue(job: u64) -> u64 {
    job.wrapping_mul(137) % 360
}

/// The lightness of a job, in percent.
pub(super) const fn lightness(job: u64) -> u64 {
    45 + job % 3 * 10
}
