//! What `tutti top` shows of a look, as lines of text.

use super::desk::Desk;
use super::feed::Sample;
use super::letters::Letters;
use super::matrix;
use super::screen::{Line, Style};
use super::short;
use crate::cmd::{list, tree};
use std::collections::BTreeMap;
use std::time::Instant;
use tutti_client::output::colours::of_state;
use tutti_client::output::{Align, Table, counted};
use tutti_node::calendar::local_clock;
use tutti_types::{JobId, Nanos};
use tutti_wire::report::{JobReport, NodeReport};
use tutti_wire::units::{format_duration_short, format_seconds};

/// How much room there is; nothing: any.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    pub(super) width: Option<usize>,
    pub(super) height: Option<usize>,
}

/// Where lines may be as long as they like, the matrix is so wide at most.
const MATRIX_WIDTH: usize = 120;

/// On a screen with fewer lines, none is left empty.
pub(super) const LOW: usize = 12;

/// What is remembered from one look to the next.
#[derive(Debug, Default)]
pub(super) struct View {
    letters: Letters,
    seen: Option<Instant>,
    /// Processor time of each job at the last look, in microseconds.
    cpu_us: BTreeMap<JobId, u64>,
    /// What it used since the look before, in percent of a processor.
    rates: BTreeMap<JobId, u64>,
    /// How many jobs are above the first that is shown.
    above: usize,
    /// Whether jobs have short columns.
    is_short: bool,
}

impl View {
    /// With short columns of jobs, or the usual ones.
    pub(super) fn new(is_short: bool) -> Self {
        Self { is_short, ..Self::default() }
    }

    /// The picture of a look as text; of the jobs only those of a user, if one is named.
    pub(super) fn texts(&mut self, sample: &Sample, user: Option<&str>, room: Room) -> Vec<String> {
        let mut desk = Desk::default();
        let jobs = self.arrange(sample, user, &mut desk);
        self.lines(sample, &jobs, &desk, room).into_iter().map(Line::into_text).collect()
    }

    /// The jobs of a look that are listed, in their order.
    pub(super) fn arrange<'a>(
        &mut self,
        sample: &'a Sample,
        user: Option<&str>,
        desk: &mut Desk,
    ) -> Vec<&'a JobReport> {
        self.take_in(sample);
        let is_wanted = |job: &&JobReport| user.is_none_or(|user| user == job.user);
        desk.arrange(sample.jobs.iter().filter(is_wanted), &self.rates)
    }

    /// The picture of a look with these jobs of it.
    pub(super) fn lines(
        &mut self,
        sample: &Sample,
        jobs: &[&JobReport],
        desk: &Desk,
        room: Room,
    ) -> Vec<Line> {
        let width = room.width.unwrap_or(MATRIX_WIDTH);
        let mut lines: Vec<Line> = head(sample).into_iter().map(Line::from).collect();
        let gap = room.height.is_none_or(|height| height >= LOW).then(Line::default);
        lines.extend(gap.clone());
        // On a screen, jobs have half of it at least.
        let matrix_height = room
            .height
            .map_or(usize::MAX, |height| (height / 2).saturating_sub(lines.len()).max(1));
        let size = (width, matrix_height);
        let matrix = matrix::draw(&sample.nodes, &sample.jobs, &self.letters, size);
        let chosen = desk.chosen().map(|job| self.letters.get(job));
        let from = matrix::margin(&sample.jobs);
        lines.extend(cut(matrix, matrix_height).into_iter().map(|text| {
            let marks = matrix::marks_of(&text, from, chosen);
            Line::from(text).with(marks)
        }));
        lines.extend(gap);
        let processes = processes(sample, room.width);
        let left = room.height.map(|height| {
            let left = height.saturating_sub(lines.len());
            left.saturating_sub(processes.len()).max(left / 2)
        });
        lines.extend(self.jobs(jobs, desk, room.width, left));
        lines.extend(processes.into_iter().map(Line::from));
        lines
    }

    fn take_in(&mut self, sample: &Sample) {
        if self.seen == Some(sample.at) {
            return;
        }
        let passed = self.seen.map(|seen| sample.at.saturating_duration_since(seen));
        self.seen = Some(sample.at);
        // Of one of which a node has told nothing this time, the next look would have all at once.
        let whole = |job: &JobReport| job.usage.filter(|usage| usage.cpu_whole);
        let used = |job: &JobReport| whole(job).map(|usage| usage.user_us + usage.system_us);
        let now: BTreeMap<JobId, u64> =
            sample.jobs.iter().filter_map(|job| Some((job.job, used(job)?))).collect();
        let passed_us = passed.map_or(0, |passed| passed.as_micros()).max(1);
        let rate = |(job, us): (&JobId, &u64)| {
            let since = us.saturating_sub(*self.cpu_us.get(job)?);
            let percent = u128::from(since) * 100 / passed_us;
            Some((*job, u64::try_from(percent).unwrap_or(u64::MAX)))
        };
        self.rates = now.iter().filter_map(rate).collect();
        self.cpu_us = now;
        let placed = sample.jobs.iter().filter(|job| !job.placement.is_empty());
        self.letters.update(placed.map(|job| job.job));
    }

    /// The jobs as a table, in so many lines; the chosen one is among them.
    fn jobs(
        &mut self,
        jobs: &[&JobReport],
        desk: &Desk,
        width: Option<usize>,
        height: Option<usize>,
    ) -> Vec<Line> {
        let shown = height.map_or(jobs.len(), |height| height.saturating_sub(1)).max(1);
        let chosen = desk.chosen().and_then(|job| jobs.iter().position(|it| it.job == job));
        if let Some(chosen) = chosen {
            self.above = self.above.clamp((chosen + 1).saturating_sub(shown), chosen);
        }
        self.above = self.above.min(jobs.len().saturating_sub(shown));
        let below: usize = height.map_or(usize::MAX, |_| shown);
        let table = self.table(jobs.iter().skip(self.above).take(below).copied(), desk);
        // On a screen, a line is a job.
        let table = if height.is_some() { table.in_single_lines() } else { table };
        let style = |number: usize| match number.checked_sub(1).map(|row| row + self.above) {
            None => Style::Title,
            row if row == chosen => Style::Inverse,
            Some(_) => Style::Plain,
        };
        let lines = table.lines_within(width).into_iter().enumerate();
        let lines =
            lines.map(|(number, line)| Line::new(line.text, style(number)).with(line.marks));
        lines.take(height.unwrap_or(usize::MAX)).collect()
    }

    fn table<'a>(&self, jobs: impl Iterator<Item = &'a JobReport> + Clone, desk: &Desk) -> Table {
        if self.is_short {
            return short::table(jobs, &self.letters, |job| desk.is_marked(job.job));
        }
        let is_limited = list::has_limits(jobs.clone());
        let mut columns = vec![
            ("", Align::Left),
            ("JOB", Align::Right),
            ("NAME", Align::Left),
            ("USER", Align::Left),
            ("CLASS", Align::Left),
            ("TASKS", Align::Right),
            ("STATE", Align::Left),
            ("TURN", Align::Left),
            ("CPU", Align::Right),
            ("AGE", Align::Right),
            ("SERVICE", Align::Right),
        ];
        if is_limited {
            columns.extend(list::LIMIT_COLUMNS);
        }
        columns.push(("WHERE", Align::Left));
        let spare = &["CLASS", "SERVICE", "TASKS", "LIMIT", "AGE", "USER", "LEFT", "WHERE"];
        let mut table = Table::new(&columns).can_spare(spare).painted(&[("STATE", of_state)]);
        for job in jobs {
            let mut letter = match job.placement.is_empty() {
                true => String::new(),
                false => self.letters.get(job.job).to_string(),
            };
            if desk.is_marked(job.job) {
                letter.push('*');
            }
            let mut row = vec![
                letter,
                job.job.to_string(),
                job.name.clone(),
                job.user.clone(),
                list::class(job),
                job.tasks.to_string(),
                job.state.clone(),
                list::turn(job),
                self.rates.get(&job.job).map_or("-".into(), |percent| format!("{percent} %")),
                format_seconds(job.age_s),
                format_duration_short(Nanos::from_millis(job.service_ms)),
            ];
            if is_limited {
                row.extend(list::limit_cells(job));
            }
            row.push(list::whereabouts(job));
            table.row(row);
        }
        table
    }
}

/// As many lines as there is room for; the last one says what is left out.
fn cut(mut lines: Vec<String>, most: usize) -> Vec<String> {
    let left_out = lines.len().saturating_sub(most);
    if left_out > 0 {
        lines.truncate(most.saturating_sub(1));
        lines.push(format!("({} of the matrix not shown)", counted(left_out as u64 + 1, "line")));
    }
    lines
}

/// When it was, and how things are in all.
pub(super) fn head(sample: &Sample) -> Vec<String> {
    let of_nodes = |state: &str| sample.nodes.iter().filter(|node| node.state == state).count();
    let mut nodes = format!("{} up", counted(of_nodes("up") as u64, "node"));
    for state in ["drained", "unreachable", "lost", "down"] {
        if of_nodes(state) > 0 {
            nodes.push_str(&format!(", {} {state}", of_nodes(state)));
        }
    }
    let sum = |of: fn(&NodeReport) -> u32| {
        sample
            .nodes
            .iter()
            .filter(|node| !matches!(&*node.state, "lost" | "down"))
            .map(|node| u64::from(of(node)))
            .sum::<u64>()
    };
    let used = sum(|node| node.processors_used);
    let all = counted(sum(|node| node.processors), "processor");
    let mut states: BTreeMap<(bool, &str), u64> = BTreeMap::new();
    for job in &sample.jobs {
        // Those that run first.
        *states.entry((job.state != "running", job.state.as_str())).or_default() += 1;
    }
    let jobs: Vec<String> =
        states.iter().map(|((_, state), count)| format!("{count} {state}")).collect();
    let jobs = if jobs.is_empty() { "none".into() } else { jobs.join(", ") };
    let param = |name: &str| {
        let found = sample.params.iter().find(|param| param.name == name);
        found.map_or("?", |param| param.value.as_str())
    };
    vec![
        format!("{}  {nodes}; {used} of {all} in use", local_clock(sample.wall_ms)),
        format!("jobs: {jobs}; policy {}, quantum {}", param("policy"), param("quantum")),
    ]
}

/// The processes that were asked for.
fn processes(sample: &Sample, width: Option<usize>) -> Vec<String> {
    let mut lines = Vec::new();
    for task in &sample.tasks {
        lines.push(String::new());
        lines.push(tree::title(task));
        let table = tree::table(task);
        let text = width.map_or_else(|| table.render(), |width| table.render_within(width));
        lines.extend(text.lines().map(str::to_owned));
    }
    lines
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use tutti_client::keys::Press;
    use tutti_wire::launch::Usage;
    use tutti_wire::report::ParamReport;

    pub(in super::super) fn node(name: &str, processors: u32, state: &str) -> NodeReport {
        NodeReport {
            name: name.into(),
            state: state.into(),
            drained: None,
            sets: Vec::new(),
            parent: None,
            depth: None,
            clock_error_ns: None,
            clock_ahead_ns: None,
            late_timetables: None,
            processors,
            processors_used: processors / 2,
            memory_bytes: 0,
            memory_allocated_bytes: 0,
            jobs: 0,
            figures: None,
            network: None,
            features: Vec::new(),
            load_averages_milli: None,
            memory_free_bytes: None,
            processes: None,
            external_load_milli: None,
            external_load: Vec::new(),
            branch_nodes: None,
            branch_jobs: None,
            devices: Vec::new(),
            swap: None,
        }
    }

    pub(in super::super) fn job(number: u64, row: u32, rows: u32, places: &[&str]) -> JobReport {
        JobReport {
            job: JobId(number),
            name: format!("name{number}"),
            user: "ada".into(),
            class: "production".into(),
            former_class: None,
            resources: Vec::new(),
            state: "running".into(),
            reason: String::new(),
            code: None,
            detail: String::new(),
            suspended: Vec::new(),
            tasks: 2,
            processors: 2,
            placement: places.iter().map(|place| (*place).to_owned()).collect(),
            row: Some(row),
            rows,
            share_percent: Some(50),
            age_s: 4,
            service_ms: 2000,
            waited_ms: 0,
            suspended_ms: 0,
            usage: Some(Usage::default()),
            deadline_s: None,
            at_risk_s: None,
            ends_s: None,
            cpu_ms: None,
            exit_code: None,
            submitted: true,
            time_limit_ms: None,
            time_left_ms: None,
            queue: None,
            position: None,
            wait: None,
            array: None,
            behind: None,
            swapped_bytes: None,
            lent_processors: None,
            first: None,
            slots: None,
            nodes_asked: None,
        }
    }

    pub(in super::super) fn sample_of(jobs: Vec<JobReport>) -> Sample {
        sample(jobs, Instant::now())
    }

    fn sample(jobs: Vec<JobReport>, at: Instant) -> Sample {
        let param = |name: &str, value: &str| ParamReport {
            name: name.into(),
            value: value.into(),
            default: String::new(),
            range: String::new(),
            help: String::new(),
        };
        Sample {
            at,
            wall_ms: 0,
            params: vec![param("policy", "gang"), param("quantum", "100ms")],
            nodes: vec![node("n1", 2, "up"), node("n2", 2, "lost")],
            jobs,
            ..Sample::blank(false)
        }
    }

    #[test]
    fn each_field_of_the_json_is_documented() {
        let document = include_str!("../../../../../docs/reference/json.md");
        let shown = serde_json::to_value(job(1, 1, 1, &["n1:0"])).unwrap();
        let fields = shown.as_object().unwrap();
        let usage = fields["usage"].as_object().unwrap();
        for field in fields.keys().chain(usage.keys()) {
            assert!(
                document.contains(&format!("`{field}`")),
                "{field} is not in docs/reference/json.md"
            );
        }
    }

    #[test]
    fn processor_time_is_what_was_used_since_the_look_before() {
        let begin = Instant::now();
        let with_cpu = |us| {
            let usage = Usage { user_us: us, system_us: us, ..Usage::default() };
            vec![JobReport { usage: Some(usage), ..job(3, 1, 2, &["n1:0-1"]) }]
        };
        let (mut view, room) = (View::default(), Room { width: Some(100), height: Some(30) });
        let first = view.texts(&sample(with_cpu(5_000_000), begin), None, room);
        assert!(first[0].contains("1 node up, 1 lost; 1 of 2 processors in use"), "{first:#?}");
        assert!(first[1].contains("jobs: 1 running; policy gang, quantum 100ms"), "{first:#?}");
        let line = first.last().unwrap();
        assert!(line.starts_with("A    3  name3") && line.contains("  -  "), "{first:#?}");
        let later = begin + std::time::Duration::from_secs(2);
        let next = sample(with_cpu(6_500_000), later);
        for _ in 0..2 {
            // Painted once more, for another size, say: it is the same look.
            let lines = view.texts(&next, None, room);
            assert!(lines.last().unwrap().contains("150 %"), "{lines:#?}");
        }
    }

    #[test]
    fn no_rate_is_made_of_what_is_not_whole() {
        let begin = Instant::now();
        let look = |second, us, cpu_whole| {
            let usage = Usage { user_us: us, cpu_whole, ..Usage::default() };
            let jobs = vec![JobReport { usage: Some(usage), ..job(3, 1, 2, &["n1:0", "n2:0"]) }];
            sample(jobs, begin + std::time::Duration::from_secs(second))
        };
        let (mut view, room) = (View::default(), Room { width: Some(100), height: Some(30) });
        let mut shown = |second, us, cpu_whole| {
            let lines = view.texts(&look(second, us, cpu_whole), None, room);
            let line = lines.last().unwrap();
            line.split("50 %").nth(1).unwrap().split_whitespace().next().unwrap().to_owned()
        };
        let seen = [
            shown(0, 80_000_000, true),
            shown(1, 81_000_000, true),
            // A node says nothing for a moment.
            shown(2, 41_000_000, false),
            shown(3, 83_000_000, true),
            shown(4, 84_250_000, true),
        ];
        assert_eq!(seen, ["-", "100", "-", "-", "125"]);
    }

    #[test]
    fn a_low_screen_shows_jobs_too() {
        let jobs =
            (1..=6).zip([1, 1, 2, 2, 3, 3]).map(|(number, row)| job(number, row, 3, &["n1:0"]));
        let sample = sample(jobs.collect(), Instant::now());
        let shown = |height| {
            let room = Room { width: Some(100), height: Some(height) };
            let lines = View::default().texts(&sample, None, room);
            assert!(lines.len() <= height, "{lines:#?}");
            lines
        };
        assert!(shown(24)[3].contains("n1") && shown(24)[7].is_empty());
        let low = shown(8);
        assert!(low[2].starts_with("row 1/3") && low[3] == "(2 lines of the matrix not shown)");
        assert!(low[4].contains("WHERE") && low[7].contains("name3"), "{low:#?}");
        assert!(shown(5)[2].contains("3 lines of the matrix") && shown(5)[4].contains("name1"));
    }

    #[test]
    fn jobs_that_do_not_fit_are_scrolled_to_and_no_further() {
        let jobs = (1..=40).map(|number| job(number, 1, 1, &["n1:0"])).collect();
        let (sample, room) =
            (sample(jobs, Instant::now()), Room { width: Some(100), height: Some(24) });
        let (mut view, mut desk) = (View::default(), Desk::default());
        let first = view.texts(&sample, None, room);
        assert_eq!(first.len(), 24);
        assert!(first.last().unwrap().contains("name17"), "{first:#?}");
        let mut press = |key: Press| {
            let jobs = view.arrange(&sample, None, &mut desk);
            desk.press(key, &jobs, None);
            let lines = view.lines(&sample, &jobs, &desk, room);
            let chosen = lines.iter().find(|line| line.style == Style::Inverse).unwrap();
            (chosen.text.clone(), lines.last().unwrap().text.clone())
        };
        let shows = |(chosen, last): (String, String), wanted: [&str; 2]| {
            assert!(chosen.contains(wanted[0]) && last.contains(wanted[1]), "{chosen}\n{last}");
        };
        shows(press(Press::Down), ["name1 ", "name17"]);
        shows(press(Press::PageDown), ["name11", "name17"]);
        shows(press(Press::PageDown), ["name21", "name21"]);
        shows(press(Press::Up), ["name20", "name21"]);
        shows(press(Press::End), ["name40", "name40"]);
        shows(press(Press::Down), ["name40", "name40"]);
        shows(press(Press::Home), ["name1 ", "name17"]);
        assert_eq!(view.texts(&sample, Some("eve"), room).len(), first.len() - 17);
    }
}
