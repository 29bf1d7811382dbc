//! What a job used, in words and in columns.

use tutti_types::Nanos;
use tutti_wire::launch::Usage;
use tutti_wire::report::JobReport;
use tutti_wire::units::{format_bytes, format_duration_short};

/// What is not the whole is at least so much.
fn least(whole: bool, text: String) -> String {
    if whole { text } else { format!(">={text}") }
}

fn micros(us: u64) -> String {
    format_duration_short(Nanos(us.saturating_mul(1000)))
}

fn millis(ms: u64) -> String {
    format_duration_short(Nanos::from_millis(ms))
}

fn count(whole: bool, number: Option<u64>) -> String {
    match number {
        // That there was none is nothing to know.
        None | Some(0) if !whole => "?".into(),
        number => least(whole, number.unwrap_or(0).to_string()),
    }
}

/// The columns of [`cells`].
pub const COLUMNS: [&str; 8] =
    ["CPU", "SYS", "MEMORY", "READ", "WRITTEN", "PROCS", "PEAK", "SWITCHES"];

/// What the columns mean.
pub const COLUMNS_HELP: &str = "  WAITED     time between acceptance and start
  RAN        time that the job's turns gave it
  SUSPENDED  time after the start in which other jobs had their turns
  LIMIT      time limit, LEFT: what is left of it; if any job has one
  CPU        processor time of all processes, SYS: the part in the kernel
  MEMORY     peak of one task; ? without a memory cgroup (see tutti doctor), if
             the task never had more than the daemon that started it
  READ       bytes read from devices, WRITTEN: written to them
  PROCS      number of processes, PEAK: the most at once in one task
  SWITCHES   how often turns suspended or resumed the job
  >=         before a value that is known of some processes only
  ?          an unknown value";

/// What was used, for a table.
pub fn cells(usage: Option<&Usage>) -> [String; 8] {
    let Some(usage) = usage else { return std::array::from_fn(|_| "-".into()) };
    [
        least(usage.cpu_whole, micros(usage.user_us.saturating_add(usage.system_us))),
        least(usage.cpu_whole, micros(usage.system_us)),
        match (usage.memory_whole, usage.memory_peak_bytes) {
            (false, 0) => "?".into(),
            (whole, bytes) => least(whole, format_bytes(bytes)),
        },
        least(usage.io_whole, format_bytes(usage.read_bytes)),
        least(usage.io_whole, format_bytes(usage.written_bytes)),
        count(usage.processes_whole, usage.processes),
        count(usage.processes_whole, usage.processes_peak),
        usage.switches.to_string(),
    ]
}

/// How long a job waited, ran and was suspended.
pub fn times(job: &JobReport) -> [String; 3] {
    [millis(job.waited_ms), millis(job.service_ms), millis(job.suspended_ms)]
}

/// All of it in one line.
pub fn summary(job: &JobReport) -> String {
    let [waited, ran, suspended] = times(job);
    let [cpu, system, memory, read, written, processes, _, switches] = cells(job.usage.as_ref());
    format!(
        "job {0}: {cpu} of processor time ({system} in the kernel), {memory} of memory, {read} read, {written} written, \
         {processes} {1}, {switches} {2}; waited {waited}, ran {ran}, suspended {suspended}",
        job.job,
        if processes == "1" { "process" } else { "processes" },
        if switches == "1" { "switch" } else { "switches" },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_is_not_shown_as_nothing() {
        let usage = Usage { user_us: 1_500_000, read_bytes: 1 << 20, ..Usage::unknown() };
        let expected = [">=1.5s", ">=0s", "?", ">=1.0M", ">=0", "?", "?", "0"];
        assert_eq!(cells(Some(&usage)), expected);
        let usage = Usage { processes: Some(7), ..Usage::default() };
        assert_eq!(cells(Some(&usage))[..6], ["0s", "0s", "0", "0", "0", "7"]);
        let usage = Usage { processes_whole: false, ..usage };
        assert_eq!(cells(Some(&usage))[5..7], [">=7", "?"]);
        assert_eq!(cells(None)[0], "-");
    }
}
