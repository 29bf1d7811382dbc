//! A timeline as a picture: a lane for each processor, a colour for each job.

use super::lanes::{hue, lanes_of, lightness, tick, ticks};
use super::{EndOfSlice, Timeline};
use std::fmt::Write as _;
use tutti_types::Nanos;
use tutti_wire::units::format_duration_short;

const WIDTH: u64 = 1200;
const LEFT: u64 = 150;
const RIGHT: u64 = 20;
const TOP: u64 = 34;
const LANE: u64 = 16;

/// The picture.
///
/// # Errors
/// If there is too much to be seen.
pub(super) fn picture(timeline: &Timeline) -> anyhow::Result<String> {
    let lanes = lanes_of(timeline)?;
    let height = TOP + lanes.len() as u64 * LANE + 10;
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" \
         viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" font-size=\"11\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n"
    );
    add_axis(&mut text, timeline, height);
    for (index, (node, processor)) in lanes.iter().enumerate() {
        let name = escaped(&format!("{}:{processor}", timeline.nodes[*node]));
        let y = TOP + index as u64 * LANE + 12;
        let _ =
            writeln!(text, "<text x=\"{}\" y=\"{y}\" text-anchor=\"end\">{name}</text>", LEFT - 6);
    }
    for slice in &timeline.slices {
        let Ok(lane) = lanes.binary_search(&(slice.node, slice.processor)) else { continue };
        let begin_ns = slice.begin_ns.max(timeline.begin_ns);
        let (begin, end) = (place(timeline, begin_ns), place(timeline, slice.end_ns));
        let y = TOP + lane as u64 * LANE + 2;
        let ran_on = match slice.end {
            EndOfSlice::RanOn => " stroke=\"#c00\"",
            EndOfSlice::Stopped | EndOfSlice::Ended | EndOfSlice::Open => "",
        };
        let length = format_duration_short(Nanos(slice.end_ns - begin_ns));
        let title =
            escaped(&format!("job {}, {length}, {}", timeline.label(slice.job), slice.end.word()));
        let _ = writeln!(
            text,
            "<rect x=\"{}\" y=\"{y}\" width=\"{}\" height=\"{}\" fill=\"{}\"{ran_on}><title>{title}</title></rect>",
            thousandths(begin),
            thousandths(end - begin),
            LANE - 4,
            colour(slice.job.0)
        );
    }
    text.push_str("</svg>\n");
    Ok(text)
}

fn add_axis(text: &mut String, timeline: &Timeline, height: u64) {
    for after in ticks(timeline) {
        let x = thousandths(place(timeline, timeline.begin_ns + after));
        let label = tick(after);
        let _ = writeln!(
            text,
            "<line x1=\"{x}\" x2=\"{x}\" y1=\"{}\" y2=\"{}\" stroke=\"#ddd\"/>\
             <text x=\"{x}\" y=\"{}\" text-anchor=\"middle\">{label}</text>",
            TOP - 6,
            height - 10,
            TOP - 12
        );
    }
}

/// Where a moment is, in thousandths of a pixel.
fn place(timeline: &Timeline, at_ns: u64) -> u64 {
    let span = u128::from((timeline.end_ns - timeline.begin_ns).max(1));
    let after = u128::from(at_ns.saturating_sub(timeline.begin_ns));
    let width = u128::from((WIDTH - LEFT - RIGHT) * 1000);
    LEFT * 1000 + u64::try_from(after * width / span).unwrap_or(u64::MAX / 2)
}

fn thousandths(value: u64) -> String {
    format!("{}.{:03}", value / 1000, value % 1000)
}

fn colour(job: u64) -> String {
    format!("hsl({},60%,{}%)", hue(job), lightness(job))
}

fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            c if tutti_node::say::is_order(c) => escaped.push('?'),
            c => escaped.push(c),
        }
    }
    escaped
}
