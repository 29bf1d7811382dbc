//! A timeline as PNG, drawn as the pictures of simulations are.

use super::lanes::{hue, lanes_of, lightness, tick, ticks};
use super::{EndOfSlice, Slice, Timeline};
use anyhow::Context;
use tutti_client::output::plain;
use tutti_sim::picture::{LaneBar, Lanes, png};

/// The picture.
///
/// # Errors
/// If there is too much to be seen, or it can't be drawn.
pub(super) fn picture(timeline: &Timeline) -> anyhow::Result<Vec<u8>> {
    let lanes = lanes_of(timeline)?;
    let bar = |slice: &Slice| {
        let lane = lanes.binary_search(&(slice.node, slice.processor)).ok()?;
        Some(LaneBar {
            lane: u32::try_from(lane).ok()?,
            from: part(timeline, slice.begin_ns.max(timeline.begin_ns)),
            to: part(timeline, slice.end_ns),
            label: slice.job.to_string(),
            colour: (
                as_float(hue(slice.job.0)) / 360.0,
                0.6,
                as_float(lightness(slice.job.0)) / 100.0,
            ),
            is_marked: slice.end == EndOfSlice::RanOn,
        })
    };
    let name =
        |(node, processor): &(usize, u32)| plain(&format!("{}:{processor}", timeline.nodes[*node]));
    let moment = |after_ns| (part(timeline, timeline.begin_ns + after_ns), tick(after_ns));
    let picture = Lanes {
        names: lanes.iter().map(name).collect(),
        ticks: ticks(timeline).map(moment).collect(),
        bars: timeline.slices.iter().filter_map(bar).collect(),
    };
    png(&picture).context("cannot draw the timeline")
}

/// Where a moment is between the begin and the end, from 0 to 1.
fn part(timeline: &Timeline, at_ns: u64) -> f64 {
    let span = (timeline.end_ns - timeline.begin_ns).max(1);
    as_float(at_ns.saturating_sub(timeline.begin_ns)) / as_float(span)
}

#[expect(clippy::cast_precision_loss, reason = "a place in a picture")]
fn as_float(value: u64) -> f64 {
    value as f64
}
