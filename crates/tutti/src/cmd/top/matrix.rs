//! The matrix as a picture: rows of letters.

use super::letters::Letters;
use std::collections::BTreeMap;
use tutti_client::output::colours::{Mark, Paint};
use tutti_types::JobId;
use tutti_wire::report::{JobReport, NodeReport};

/// What a job has on a node, and in which row.
struct Seat {
    job: JobId,
    /// From 0.
    row: usize,
    processors: Vec<u32>,
}

/// What no job has.
const IDLE: char = '.';

/// Between the places of nodes.
const GAP: &str = "  ";

/// Nodes are drawn processor by processor as long as that takes no more lines of nodes.
const BANDS_MAX: usize = 4;

/// The rows of the matrix, each with a place for each processor of each node, or for each node if
/// that would be too wide. At most so many lines; the last one says what is left out.
pub(super) fn draw(
    nodes: &[NodeReport],
    jobs: &[JobReport],
    letters: &Letters,
    (width, height): (usize, usize),
) -> Vec<String> {
    let rows = jobs.iter().map(|job| job.rows as usize).max().unwrap_or(0).max(1);
    let titles = titles(rows, jobs);
    let margin = titles.first().map_or(0, |title| title.chars().count()) + GAP.len();
    let room = width.saturating_sub(margin).max(1);
    let seats = seats(jobs);
    let blocks: Vec<Block> = nodes
        .iter()
        .map(|node| Block::of_processors(node, seats.get(node.name.as_str()), rows, letters))
        .collect();
    let mut bands = bands(&blocks, room);
    let small: Vec<Block>;
    if bands.len() > BANDS_MAX || bands.len() * (rows + 1) > height {
        small = nodes
            .iter()
            .map(|node| Block::of_node(seats.get(node.name.as_str()), rows, letters))
            .collect();
        bands = self::bands(&small, room);
    }
    let mut lines = Vec::new();
    let mut left = nodes.len();
    for band in bands {
        let with_names = usize::from(band.iter().any(|block| !block.name.is_empty()));
        if !lines.is_empty() && lines.len() + rows + with_names + 1 > height {
            lines.push(format!("{:margin$}({left} more nodes are not shown)", ""));
            break;
        }
        left -= band.len();
        if with_names > 0 {
            lines
                .push(line(" ".repeat(margin), band.iter().map(|block| block.padded(&block.name))));
        }
        for (row, title) in titles.iter().enumerate() {
            let cells = band.iter().map(|block| block.padded(&block.rows[row]));
            lines.push(line(format!("{title}{GAP}"), cells));
        }
    }
    lines
}

/// Where the places of a row begin, in characters of its line.
pub(super) fn margin(jobs: &[JobReport]) -> usize {
    let rows = jobs.iter().map(|job| job.rows).max().unwrap_or(0).max(1);
    title(rows as usize, rows as usize, None).chars().count() + GAP.len()
}

/// The colours of a line of the matrix: idle places are dim, those of the chosen job stand out.
pub(super) fn marks_of(text: &str, from: usize, chosen: Option<char>) -> Vec<Mark> {
    let mut marks: Vec<Mark> = Vec::new();
    if !text.starts_with("row ") {
        return marks;
    }
    for (at, c) in text.chars().enumerate().skip(from) {
        let paint = match c {
            IDLE => Paint::Dim,
            c if Some(c) == chosen => Paint::Chosen,
            _ => continue,
        };
        match marks.last_mut() {
            Some(last) if last.paint == paint && last.from + last.count == at => last.count += 1,
            _ => marks.push(Mark { from: at, count: 1, paint }),
        }
    }
    marks
}

/// The number of a row, and its part of the time in percent.
fn title(row: usize, rows: usize, share: Option<u32>) -> String {
    let share = share.map_or("-".into(), |share| format!("{share} %"));
    format!("row {row}/{rows} {share:>6}")
}

fn line(mut begin: String, cells: impl Iterator<Item = String>) -> String {
    begin.extend(cells);
    begin.truncate(begin.trim_end().len());
    begin
}

/// The number of each row with its part of the time, all of one length.
fn titles(rows: usize, jobs: &[JobReport]) -> Vec<String> {
    let share = |row: usize| {
        let here = |job: &&JobReport| job.row.is_some_and(|it| it as usize == row + 1);
        jobs.iter().filter(here).find_map(|job| job.share_percent)
    };
    let titles: Vec<String> = (0..rows).map(|row| title(row + 1, rows, share(row))).collect();
    let longest = titles.iter().map(|title| title.chars().count()).max().unwrap_or(0);
    titles.into_iter().map(|title| format!("{title:<longest$}")).collect()
}

/// Which job is where, by the node.
fn seats(jobs: &[JobReport]) -> BTreeMap<&str, Vec<Seat>> {
    let mut seats: BTreeMap<&str, Vec<Seat>> = BTreeMap::new();
    for job in jobs {
        let Some(row) = job.row.and_then(|row| (row as usize).checked_sub(1)) else { continue };
        for place in &job.placement {
            if let Some((node, list)) = place.rsplit_once(':') {
                let processors = processors(list);
                seats.entry(node).or_default().push(Seat { job: job.job, row, processors });
            }
        }
    }
    seats
}

/// The numbers of a list such as `0-3,8`; what is no number is left out.
fn processors(list: &str) -> Vec<u32> {
    let numbers = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.parse::<u32>().ok()?..=last.parse().ok()?)
    };
    list.split(',').filter_map(numbers).flatten().collect()
}

/// What a node looks like.
struct Block {
    name: String,
    rows: Vec<String>,
    width: usize,
}

impl Block {
    fn of_processors(
        node: &NodeReport,
        seats: Option<&Vec<Seat>>,
        rows: usize,
        letters: &Letters,
    ) -> Self {
        let seats = seats.map_or(&[][..], Vec::as_slice);
        let count = node.processors as usize;
        // Some nodes have numbers left out: then those that were seen come first.
        let mut seen: Vec<u32> = seats.iter().flat_map(|seat| seat.processors.clone()).collect();
        seen.sort_unstable();
        seen.dedup();
        let has_gaps = seen.last().is_some_and(|last| *last as usize >= count);
        let column = |processor: u32| match has_gaps {
            true => seen.binary_search(&processor).unwrap_or(usize::MAX),
            false => processor as usize,
        };
        let mut cells = vec![vec![IDLE; count]; rows];
        for seat in seats {
            for &processor in &seat.processors {
                if let Some(cell) =
                    cells.get_mut(seat.row).and_then(|row| row.get_mut(column(processor)))
                {
                    *cell = letters.get(seat.job);
                }
            }
        }
        let rows = cells.into_iter().map(|row| row.into_iter().collect()).collect();
        let name = if node.state == "up" { node.name.clone() } else { format!("{}!", node.name) };
        let width = count.max(name.chars().count()) + GAP.len();
        Self { name, rows, width }
    }

    /// In one place: the job that has most there.
    fn of_node(seats: Option<&Vec<Seat>>, rows: usize, letters: &Letters) -> Self {
        let seats = seats.map_or(&[][..], Vec::as_slice);
        let cell = |row: usize| {
            let here = seats.iter().filter(|seat| seat.row == row);
            let most = here.clone().max_by_key(|seat| seat.processors.len());
            let more = if here.count() > 1 { '+' } else { ' ' };
            [most.map_or(IDLE, |seat| letters.get(seat.job)), more].iter().collect()
        };
        Self { name: String::new(), rows: (0..rows).map(cell).collect(), width: 2 }
    }

    fn padded(&self, text: &str) -> String {
        format!("{text:<0$}", self.width)
    }
}

/// The nodes that fit beside each other, line by line.
fn bands(blocks: &[Block], room: usize) -> Vec<&[Block]> {
    let (mut bands, mut first, mut used) = (Vec::new(), 0, 0);
    for (index, block) in blocks.iter().enumerate() {
        if index > first && used + block.width.saturating_sub(GAP.len()) > room {
            bands.push(&blocks[first..index]);
            (first, used) = (index, 0);
        }
        used += block.width;
    }
    if first < blocks.len() {
        bands.push(&blocks[first..]);
    }
    bands
}

#[cfg(test)]
mod tests {
    use super::super::view::tests::{job, node};
    use super::*;

    fn letters(jobs: &[JobReport]) -> Letters {
        let mut letters = Letters::default();
        letters.update(jobs.iter().map(|job| job.job));
        letters
    }

    #[test]
    fn each_row_shows_who_has_which_processor() {
        let jobs =
            [job(3, 1, 2, &["n1:0-3", "n2:0"]), job(4, 2, 2, &["n1:2"]), job(7, 2, 2, &["n2:0-1"])];
        let nodes = [node("n1", 4, "up"), node("n2", 2, "lost")];
        let drawn = draw(&nodes, &jobs, &letters(&jobs), (60, 20));
        let expected =
            ["                n1    n2!", "row 1/2   50 %  AAAA  A.", "row 2/2   50 %  ..B.  CC"];
        assert_eq!(drawn, expected);
    }

    #[test]
    fn idle_places_are_dim_and_those_of_the_chosen_job_stand_out() {
        let jobs = [job(3, 1, 10, &["n1:0-1"]), job(4, 1, 10, &["n1:3"])];
        let drawn = draw(&[node("n1", 4, "up")], &jobs, &letters(&jobs), (60, 20));
        let marks = |line: &str| marks_of(line, margin(&jobs), Some('A'));
        let mark = |from, count, paint| Mark { from, count, paint };
        assert_eq!(drawn[1], "row 1/10   50 %   AA.B");
        let expected = [mark(18, 2, Paint::Chosen), mark(20, 1, Paint::Dim)];
        assert_eq!((marks(&drawn[0]), marks(&drawn[1])), (Vec::new(), expected.to_vec()));
    }

    #[test]
    fn processors_whose_numbers_have_gaps_are_shown_side_by_side() {
        let jobs = [job(3, 1, 1, &["n1:8,12"])];
        let drawn = draw(&[node("n1", 3, "up")], &jobs, &letters(&jobs), (60, 20));
        assert_eq!(drawn[1], "row 1/1   50 %  AA.");
    }

    #[test]
    fn of_many_nodes_each_has_one_place_and_what_does_not_fit_is_counted() {
        let names: Vec<String> = (0..100).map(|number| format!("n{number}")).collect();
        let nodes: Vec<NodeReport> = names.iter().map(|name| node(name, 64, "up")).collect();
        let jobs = [job(1, 1, 1, &["n0:0-9", "n1:0-3"]), job(2, 1, 1, &["n1:4-9"])];
        let drawn = draw(&nodes, &jobs, &letters(&jobs), (76, 10));
        assert!(drawn[0].starts_with("row 1/1   50 %  A B+. . ."), "{drawn:?}");
        assert_eq!(drawn.len(), 4);
        let few = draw(&nodes, &jobs, &letters(&jobs), (76, 3));
        assert_eq!(few.len(), 3);
        assert!(few[2].ends_with("(38 more nodes are not shown)"), "{few:?}");
        assert!(draw(&nodes, &jobs, &letters(&jobs), (0, 0)).len() > 1);
    }
}
