//! Says so when others use the machine: what is measured beside a compilation is the compilation.

use std::time::Duration;

/// How long is looked.
const LOOK: Duration = Duration::from_millis(500);

/// The part of the processors' time, in percent, that others may use unnoticed.
const USED_MAX: u64 = 10;

/// Warns on standard error if the machine is not idle.
pub fn warn(verb: &str) {
    let Some(before) = read() else { return };
    std::thread::sleep(LOOK);
    let Some(used) = read().and_then(|after| used_percent(before, after)) else { return };
    if used > USED_MAX {
        say!(
            "{verb}: others use {used} % of the processors: expect rough figures, and the ratios to be \
             of more use than the times"
        );
    }
}

/// Clock ticks of all processors since boot: used, idle.
fn read() -> Option<(u64, u64)> {
    parse(&std::fs::read_to_string("/proc/stat").ok()?)
}

fn parse(stat: &str) -> Option<(u64, u64)> {
    let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let ticks: Vec<u64> = line.split_whitespace().map_while(|word| word.parse().ok()).collect();
    // user nice system idle iowait irq softirq steal, then guest time, which is in user already
    let idle = ticks.get(3)? + ticks.get(4)?;
    Some((ticks.iter().take(8).sum::<u64>() - idle, idle))
}

fn used_percent(before: (u64, u64), after: (u64, u64)) -> Option<u64> {
    let used = after.0.saturating_sub(before.0);
    let all = used + after.1.saturating_sub(before.1);
    (100 * used).checked_div(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_use() {
        let before = parse("cpu  100 0 50 800 50 0 0 0 7 7\ncpu0 1 2 3\n").unwrap();
        assert_eq!(before, (150, 850));
        assert_eq!(used_percent(before, (175, 925)), Some(25));
        assert_eq!(used_percent(before, before), None);
        assert_eq!(parse("cpu0 1 2 3"), None);
    }
}
