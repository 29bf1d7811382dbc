//! The process-tracking paper's model of a suspension by signals, equation 9.

/// The processes that must get a processor before they stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stops {
    /// As the paper has it: only a process that runs when it is signalled. The others stop at once.
    WhoRuns,
    /// As Linux has it: all, since a signal is acted upon by the process itself.
    Everybody,
}

/// Milliseconds until `processes` that all want to run have been stopped one after the other, on
/// `processors`, with a clock tick of `tick_ms` and a look every `retry_ms`.
///
/// Each process is running when it is signalled with the probability of equation 3, and then takes
/// the retries of equation 7 to reach its next tick. Resuming counts for nothing.
pub(super) fn suspend_ms(
    processes: u32,
    (processors, tick_ms): (u32, f64),
    retry_ms: f64,
    stops: Stops,
) -> f64 {
    let others = f64::from(processors.saturating_sub(1));
    (1..=processes)
        .map(|k| {
            let (k, at_once) = (f64::from(k), f64::from(k.min(processors)));
            let waits = match stops {
                Stops::WhoRuns => (others / k).min(1.0),
                Stops::Everybody => 1.0,
            };
            let stops_ms = (2.0 * k - at_once) * tick_ms / (2.0 * at_once);
            waits * (stops_ms / retry_ms).ceil() * retry_ms
        })
        .sum()
}

#[cfg(test)]
mod tests {
    use super::{Stops, suspend_ms};

    #[test]
    fn it_is_the_papers_figure_5() {
        // Four processors and a tick of 10 ms; retry intervals of 1, 2, 5, 10, 20 and 50 ms.
        let expected = [
            (3, [15.0, 18.0, 15.0, 30.0, 60.0, 150.0]),
            (7, [34.1, 38.3, 36.2, 57.1, 105.6, 263.9]),
            (15, [83.8, 89.0, 87.9, 114.3, 172.4, 372.7]),
        ];
        for (processes, times) in expected {
            for (retry_ms, expected) in [1.0, 2.0, 5.0, 10.0, 20.0, 50.0].into_iter().zip(times) {
                let found = suspend_ms(processes, (4, 10.0), retry_ms, Stops::WhoRuns);
                assert!((found - expected).abs() < 0.1, "{processes}, {retry_ms}: {found}");
            }
        }
        let alone = |stops| suspend_ms(3, (1, 10.0), 1.0, stops);
        assert!(alone(Stops::WhoRuns).abs() < 1e-9, "one processor: nobody runs meanwhile");
        assert!((alone(Stops::Everybody) - (5.0 + 15.0 + 25.0)).abs() < 1e-9);
    }
}
