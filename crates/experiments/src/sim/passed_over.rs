//! What of a workload is not simulated, and why.

use tutti_trace::{LeftOut, Tally, Tolerated};

/// What was not simulated, for one line each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct PassedOver {
    pub(super) left_out: Tally<LeftOut>,
    pub(super) cut_down: u64,
    pub(super) missing: u64,
    pub(super) too_wide: u64,
    pub(super) tolerated: Tally<Tolerated>,
    /// The last line of a file that ends too early.
    pub(super) cut_off: Option<u64>,
}

impl PassedOver {
    /// What was passed over, a line for each reason.
    pub(super) fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for (reason, count) in self.left_out.iter() {
            lines.push(format!("{count} left out by the filter: {reason}"));
        }
        if self.cut_down > 0 {
            lines.push(format!("{} cut down to their requested time", self.cut_down));
        }
        for (reason, count) in self.tolerated.iter() {
            lines.push(format!("{count} tolerated: {reason}"));
        }
        if let Some(line) = self.cut_off {
            lines.push(format!("1 tolerated: the file is cut off after line {line}"));
        }
        if self.missing > 0 {
            lines.push(format!("{} skipped: no submit time, run time or processors", self.missing));
        }
        if self.too_wide > 0 {
            lines.push(format!("{} skipped: wider than the machine", self.too_wide));
        }
        lines
    }
}
