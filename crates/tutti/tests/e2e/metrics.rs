//! `tutti metrics` and `tutti timeline`: figures and pictures of what ran.

use crate::cluster::Bed;
use crate::harness::{Instance, eventually};
use crate::recovery::kill_daemon;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// The series of OpenMetrics text by name and labels; fails where the text breaks the format.
fn series(text: &str) -> BTreeMap<String, f64> {
    let mut families: BTreeMap<&str, &str> = BTreeMap::new();
    let mut found = BTreeMap::new();
    assert!(text.ends_with("\n# EOF\n"), "{text}");
    let mut family = "";
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            assert!(families.insert(name, kind).is_none(), "{name} twice");
            family = name;
            continue;
        }
        if let Some(rest) = line.strip_prefix("# UNIT ") {
            let (name, unit) = rest.split_once(' ').unwrap();
            assert!(name == family && name.ends_with(unit), "{line}");
            continue;
        }
        if line.starts_with('#') {
            assert!(line == "# EOF" || line.starts_with(&format!("# HELP {family} ")), "{line}");
            continue;
        }
        let (key, value) = line.rsplit_once(' ').unwrap();
        let name = key.split('{').next().unwrap();
        let suffix = name.strip_prefix(family).unwrap_or_else(|| panic!("{line} in {family}"));
        let suffixes: &[&str] = match families[family] {
            "gauge" => &[""],
            "counter" => &["_total"],
            "histogram" => &["_bucket", "_count", "_sum"],
            // The text format that node_exporter reads knows no others of OpenMetrics.
            other => panic!("{other}"),
        };
        assert!(suffixes.contains(&suffix), "{line}");
        let is_new = found.insert(key.to_owned(), value.parse().expect(line)).is_none();
        assert!(is_new, "{line} twice");
    }
    found
}

#[test]
fn metrics_are_open_metrics_and_count_what_happened() {
    let instance = Instance::new().up();
    let now = || series(&instance.tutti(&["metrics"]).expect(0).text());
    let before = now();
    assert_eq!(before["tutti_jobs_submitted_total"], 0.0);
    instance.tutti(&["run", "true"]).expect(0);
    instance.tutti(&["run", "sh", "-c", "exit 3"]).expect(3);
    let spinner = instance.submit_spinner(2);
    instance.wait_for_state(spinner, "running");
    let other = instance.submit_spinner(2);
    instance.wait_for_state(other, "running");
    let seen = eventually("some switches", || {
        let seen = now();
        let switches = seen.iter().find(|(key, _)| key.starts_with("tutti_switches_total"));
        (*switches.unwrap().1 > 3.0).then_some(seen)
    });
    assert_eq!(seen["tutti_jobs_submitted_total"], 4.0);
    assert_eq!(seen["tutti_jobs_started_total"], 4.0);
    assert_eq!(seen["tutti_jobs_ended_total{ending=\"completed\"}"], 1.0);
    assert_eq!(seen["tutti_jobs_ended_total{ending=\"failed\"}"], 1.0);
    let running = "tutti_jobs{class=\"production\",state=\"running\"}";
    assert_eq!(seen[running], 2.0);
    assert_eq!(seen["tutti_queue_wait_seconds_count"], 4.0);
    assert_eq!(seen["tutti_queue_wait_seconds_bucket{le=\"+Inf\"}"], 4.0);
    assert!(seen["tutti_launch_seconds_count"] >= 2.0);
    assert_eq!(seen["tutti_slot_used_ratio{row=\"1\"}"], 1.0);
    assert!(seen["tutti_journal_bytes"] > 1000.0 && seen["tutti_events_total"] > 10.0);
    let of_node = |name: &str| {
        let found = seen.iter().find(|(key, _)| key.starts_with(&format!("{name}{{node=")));
        *found.unwrap_or_else(|| panic!("no {name}")).1
    };
    assert_eq!((of_node("tutti_node_processors"), of_node("tutti_node_jobs")), (2.0, 2.0));
    assert_eq!(of_node("tutti_switch_seconds_count"), of_node("tutti_switches_total"));
    let pressure = "tutti_node_cpu_pressure_seconds_total";
    if fs::read_to_string("/proc/pressure/cpu").is_ok() {
        assert!(of_node(pressure) > 0.0);
    } else {
        assert!(!seen.keys().any(|key| key.starts_with(pressure)));
    }
    // A file is replaced at once, and nothing else is left beside it.
    let place = instance.work.join("metrics");
    fs::create_dir(&place).unwrap();
    let file = place.join("tutti.prom");
    instance.tutti(&["metrics", "--once", "-o", file.to_str().unwrap()]).expect(0);
    assert!(series(&fs::read_to_string(&file).unwrap()).len() > 40);
    assert_eq!(fs::read_dir(&place).unwrap().count(), 1);
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/metrics.md");
    let page = fs::read_to_string(page).unwrap();
    for key in seen.keys() {
        let name = key.split('{').next().unwrap();
        let name = ["_bucket", "_count", "_sum"]
            .iter()
            .find_map(|it| name.strip_suffix(it))
            .unwrap_or(name);
        assert!(page.contains(&format!("| `{name}` |")), "metrics.md has no {name}");
    }
    instance.tutti(&["cancel", "--now", "1-9"]);
}

#[test]
fn alerts_for_prometheus_are_about_figures_that_there_are() {
    let rules = include_str!("../../../../docs/admin/prometheus/rules.yml");
    let page = include_str!("../../../../docs/reference/metrics.md");
    let monitoring = include_str!("../../../../docs/admin/monitoring.md");
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let words: Vec<&str> =
        rules.split(|c| !is_word(c)).filter(|it| it.starts_with("tutti_")).collect();
    assert!(words.len() > 3, "{words:?}");
    for word in words {
        let figure = word.strip_suffix("_bucket").unwrap_or(word);
        assert!(page.contains(&format!("| `{figure}` |")), "{word} is no figure");
    }
    for alert in rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")) {
        assert!(monitoring.contains(&format!("| `{alert}` |")), "{alert} is not on the page");
    }
}

#[test]
fn the_board_for_grafana_shows_series_that_there_are() {
    let board = include_str!("../../../../docs/admin/grafana/tutti.json");
    let board: Value = serde_json::from_str(board).unwrap();
    let instance = Instance::new().up();
    instance.tutti(&["run", "-n", "2", "true"]).expect(0);
    let nap = instance.submit(&["-o", "/dev/null", "sleep", &instance.nap]);
    instance.wait_for_state(nap, "running");
    let text = instance.tutti(&["metrics"]).expect(0).text();
    instance.tutti(&["cancel", "--now", &nap.to_string()]).expect(0);
    let names: Vec<&str> = text.lines().filter_map(|line| line.split(['{', ' ']).next()).collect();
    let panels = board["panels"].as_array().unwrap();
    assert!(panels.len() > 10);
    for target in panels.iter().flat_map(|panel| panel["targets"].as_array().unwrap()) {
        let query = target["expr"].as_str().unwrap();
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let words = query.split(|c| !is_word(c)).filter(|word| word.starts_with("tutti_"));
        let words: Vec<&str> = words.collect();
        assert!(!words.is_empty(), "{query}");
        for word in words {
            // Not every kernel counts pressure, and one node overlaps with no other.
            let may_miss = word == OVERLAP
                || word.contains("_pressure_") && !Path::new("/proc/pressure/cpu").exists();
            assert!(
                may_miss || names.contains(&word),
                "{word} of {query} is no series of: {names:?}"
            );
        }
    }
}

const OVERLAP: &str = "tutti_switch_overlap_seconds";

#[test]
fn overlap_of_switches_is_measured_where_jobs_take_turns_on_several_nodes() {
    let bed = Bed::up_with_processors(2, 1);
    bed.tutti(1, &["params", "quantum=20ms"]).expect(0);
    let now = || series(&bed.tutti(1, &["metrics"]).expect(0).text());
    let stat = |name: &str| format!("{OVERLAP}{{stat=\"{name}\"}}");
    assert!(!now().contains_key(&stat("max")), "no job has switched");
    for _ in 0..2 {
        let line = ["submit", "-n", "2", "-o", "/dev/null", "sleep", &bed.audit.nap];
        bed.tutti(1, &line).expect(0);
    }
    let seen = eventually("switches of both nodes", || {
        let seen = now();
        seen.contains_key(&stat("max")).then_some(seen)
    });
    let [median, p99, max] = ["median", "p99", "max"].map(|name| seen[&stat(name)]);
    assert!(median > 0.0 && median <= p99 && p99 <= max && max < 60.0, "{median} {p99} {max}");
    bed.tutti(1, &["cancel", "--now", "--all"]).expect(0);
}

#[test]
fn a_launch_by_an_earlier_controller_is_not_timed_again() {
    let instance = Instance::new().up();
    let now = || series(&instance.tutti(&["metrics"]).expect(0).text());
    let spinner = instance.submit_spinner(1);
    instance.wait_for_state(spinner, "running");
    eventually("the first launch", || (now()["tutti_launch_seconds_count"] == 1.0).then_some(()));
    kill_daemon(&instance, "controller");
    assert_eq!(now()["tutti_launch_seconds_count"], 0.0);
    // The agent reports the spinner's task again before it can report one of this job.
    instance.tutti(&["run", "true"]).expect(0);
    assert_eq!(now()["tutti_launch_seconds_count"], 1.0);
    instance.tutti(&["cancel", "--now", &spinner.to_string()]).expect(0);
}

#[test]
fn a_timeline_has_the_turns_of_jobs_that_share_processors() {
    let instance = Instance::alone().up();
    instance.tutti(&["timeline"]).expect(1).says("nothing has run").says("[T024]");
    instance.tutti(&["timeline", "-o", "t.txt"]).expect(1).says("not .txt").says("[T");
    instance.tutti(&["timeline", "-o", "t.GIF"]).expect(1).says("as .svg or .png").says("not .GIF");
    instance.tutti(&["params", "quantum=100ms"]).expect(0);
    let jobs = [instance.submit_spinner(2), instance.submit_spinner(2)];
    jobs.iter().for_each(|job| drop(instance.wait_for_state(*job, "running")));
    eventually("some switches", || (instance.switches().len() > 8).then_some(()));
    instance.tutti(&["cancel", "--now", &jobs[0].to_string()]).expect(0);
    instance.tutti(&["wait", &jobs[0].to_string()]).expect(137);
    let file = instance.work.join("t.json");
    instance.tutti(&["timeline", "-o", file.to_str().unwrap()]).expect(0);
    let trace: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let of = |name: &'static str, value: Value| {
        events.iter().filter(move |event| event[name] == value).collect::<Vec<_>>()
    };
    assert_eq!(of("name", "process_name".into()).len(), 1);
    assert!(of("cat", "switch".into()).len() > 8);
    // On each processor, the turns follow each other without overlap, in two jobs' names.
    for processor in of("name", "thread_name".into()) {
        let tid = &processor["tid"];
        let turns = of("cat", "job".into());
        let mut turns: Vec<(f64, f64, u64)> = turns
            .iter()
            .filter(|event| event["tid"] == *tid && event["args"]["end"] != "ran on")
            .map(|event| {
                let begin = event["ts"].as_f64().unwrap();
                let end = begin + event["dur"].as_f64().unwrap();
                (begin, end, event["args"]["job"].as_u64().unwrap())
            })
            .collect();
        if tid == 0 {
            assert!(turns.is_empty());
            continue;
        }
        turns.sort_by(|one, other| one.0.total_cmp(&other.0));
        assert!(turns.len() >= 6, "{turns:?}");
        let overlaps = |pair: &[(f64, f64, u64)]| pair[1].0 + 0.01 < pair[0].1;
        // The end of a job is known by its report, which comes a little later.
        let between_turns = turns.windows(2).filter(|pair| overlaps(pair)).count();
        assert!(between_turns <= 1, "{turns:?}");
        assert!(jobs.iter().all(|job| turns.iter().any(|turn| turn.2 == *job)));
    }
    let one = instance.tutti(&["timeline", &jobs[1].to_string()]).expect(0).json();
    let others = one["traceEvents"].as_array().unwrap().iter();
    let mut others = others.filter(|event| event["cat"] == "job");
    assert!(others.all(|event| event["args"]["job"] == jobs[1]));
    let picture = instance.work.join("t.svg");
    instance.tutti(&["timeline", "--since", "1h", "-o", picture.to_str().unwrap()]).expect(0);
    let picture = fs::read_to_string(&picture).unwrap();
    assert!(picture.starts_with("<svg ") && picture.ends_with("</svg>\n"));
    assert!(picture.matches("<rect ").count() > 8 && picture.contains("stopped</title>"));
    let picture = instance.work.join("t.PNG");
    instance.tutti(&["timeline", "--since", "1h", "-o", picture.to_str().unwrap()]).expect(0);
    let picture = fs::read(&picture).unwrap();
    // Its head: the width is twice that of the SVG, the height that of a lane for each processor.
    assert!(picture.starts_with(b"\x89PNG\r\n\x1a\n"), "{:?}", &picture[..8]);
    let size = |at: usize| u32::from_be_bytes(picture[at..at + 4].try_into().unwrap());
    assert_eq!((size(16), size(20)), (2400, 2 * (34 + 2 * 16 + 10)));
    instance.tutti(&["timeline", "-w", "nowhere"]).expect(1).says("no node nowhere");
    instance.tutti(&["cancel", "--now", &jobs[1].to_string()]).expect(0);
}
