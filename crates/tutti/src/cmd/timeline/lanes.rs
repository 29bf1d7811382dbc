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

/// The most spaces between the moments of the axis.
const SPACES_MAX: u64 = 10;

const SECOND: u64 = 1_000_000_000;

/// Times between two moments of the axis from a second on, in seconds.
const LONG_STEPS: [u64; 18] = [
    1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 14_400, 21_600, 43_200,
    86_400,
];

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

/// The moments of the axis, in nanoseconds after the begin: round ones.
pub(super) fn ticks(timeline: &Timeline) -> impl Iterator<Item = u64> {
    let span = timeline.end_ns - timeline.begin_ns;
    let step = step_of(span);
    (0..=span / step).map(move |tick| step * tick)
}

/// The time between two moments of the axis: the shortest round one with few enough of them.
fn step_of(span_ns: u64) -> u64 {
    let short = (0..9).flat_map(|power| [1, 2, 5].map(|digit| digit * 10_u64.pow(power)));
    let mut steps = short.chain(LONG_STEPS.map(|seconds| seconds * SECOND));
    let days = |span_ns: u64| (span_ns / (SPACES_MAX * 86_400 * SECOND) + 1) * 86_400 * SECOND;
    steps.find(|step| span_ns / step <= SPACES_MAX).unwrap_or_else(|| days(span_ns))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_of_the_axis_are_round_and_few() {
        let ms = 1_000_000;
        let cases = [
            (0, 1),
            (3 * SECOND, 500 * ms),
            (2_568 * ms, 500 * ms),
            (11 * ms, 2 * ms),
            (100 * SECOND, 10 * SECOND),
            (1_000 * SECOND, 120 * SECOND),
            (864_000 * SECOND, 86_400 * SECOND),
            (30 * 86_400 * SECOND, 4 * 86_400 * SECOND),
        ];
        for (span, step) in cases {
            assert_eq!(step_of(span), step, "{span}");
        }
        for span in (0..63).map(|power| 1_u64 << power) {
            assert!(span / step_of(span) <= SPACES_MAX, "{span}");
        }
    }
}
