//! Processors over time: which job has which, and when it is its turn.
//!
//! If turns are long enough to be seen, they are drawn as they are. If not, there is a strip for
//! each slot, as in the matrix: a job that stands in several strips at one time runs in several
//! slots.

mod trace;

pub use trace::{TraceError, TraceNames};

use super::look::{FAINT, INK, Look, colour, ink_on, tick, unit_of};
use super::{Drawn, Picture, PictureError};
use crate::jobs::Finished;
use crate::machine::Machine;
use crate::observer::{Observer, Start};
use plotters::chart::ChartBuilder;
use plotters::coord::Shift;
use plotters::element::{Rectangle, Text};
use plotters::prelude::{DrawingArea, DrawingBackend};
use plotters::style::text_anchor::HPos;
use plotters::style::{Color, WHITE};
use std::collections::BTreeMap;
use std::io;
use std::rc::Rc;
use tutti_core::frame::Frame;
use tutti_core::{Core, JobState};
use tutti_types::{ClusterTime, JobId, RowId};

/// Observer that records which job ran where and when, for a picture or a trace.
///
/// It records a bounded number of stretches of time: what is drawn or written of more is an error.
#[derive(Debug, Default)]
pub struct Gantt {
    /// Processors of each node, or of the widest one.
    processors_per_node: u32,
    nodes: u32,
    spells_max: usize,
    begin: Option<ClusterTime>,
    end: ClusterTime,
    frame: Rc<Frame>,
    /// The strip of each row, of those that live.
    strips: BTreeMap<RowId, usize>,
    strips_most: usize,
    residents: BTreeMap<JobId, Resident>,
    spells: Vec<Spell>,
    is_too_much: bool,
}

/// A job that has processors.
#[derive(Debug)]
struct Resident {
    number: u64,
    sequence: usize,
    bands: Rc<[Band]>,
    rows: Vec<RowId>,
    since: ClusterTime,
}

/// Processors of a node, without a gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Band {
    node: u32,
    first: u32,
    count: u32,
}

/// A time in which a job's turns come alike.
#[derive(Debug)]
struct Spell {
    number: u64,
    sequence: usize,
    bands: Rc<[Band]>,
    frame: Rc<Frame>,
    rows: Vec<RowId>,
    strips: Vec<usize>,
    from: ClusterTime,
    to: ClusterTime,
    /// What ended it, in a word.
    end: &'static str,
}

/// What ends a turn.
const STOPPED: &str = "stopped";
const ENDED: &str = "ended";
const RUNS: &str = "runs";

/// Stretches of time that a picture can show, and a trace can hold.
const SPELLS_MAX: usize = 60_000;
const SPELLS_OF_TRACE_MAX: usize = 250_000;
const STRIPS_MAX: usize = 12;
/// A turn that is narrower can't be seen, in pixels.
const TURN_MIN: f64 = 3.0;
const WIDTH: u32 = 1_000;
/// Between the axis and the right edge, about.
const PLOT_WIDTH: u32 = 900;

impl Gantt {
    /// For a picture of a machine.
    #[must_use]
    pub fn new(machine: Machine) -> Self {
        Self {
            processors_per_node: machine.processors_per_node(),
            nodes: machine.nodes(),
            spells_max: SPELLS_MAX,
            ..Self::default()
        }
    }

    /// For a trace, see [`Gantt::trace`].
    #[must_use]
    pub fn for_trace() -> Self {
        Self { spells_max: SPELLS_OF_TRACE_MAX, ..Self::default() }
    }

    /// Records that the core gave processors to a job; `number` is its number for people.
    pub fn begin_job(&mut self, id: JobId, number: u64, at: ClusterTime, core: &Core) {
        self.begin.get_or_insert(at);
        let resident = Resident {
            number,
            sequence: usize::try_from(id.0).unwrap_or(0),
            bands: bands_of(core, id, at).into(),
            rows: Vec::new(),
            since: at,
        };
        self.residents.insert(id, resident);
    }

    /// Records the end of a job.
    pub fn end_job(&mut self, id: JobId, at: ClusterTime) {
        self.end = self.end.max(at);
        if let Some(resident) = self.residents.remove(&id) {
            self.close(&resident, at, ENDED);
        }
    }

    /// Ends the recording: at the horizon, or at the last end.
    ///
    /// # Errors
    /// If there was too much.
    fn finish(&mut self) -> Result<(), PictureError> {
        for job in std::mem::take(&mut self.residents).into_values() {
            self.close(&job, self.end, RUNS);
        }
        if self.is_too_much {
            let what = format!("more than {} stretches of time", self.spells_max);
            return Err(PictureError::TooMuch { what });
        }
        Ok(())
    }

    /// The picture of what was seen, up to the horizon or the last end.
    ///
    /// # Errors
    /// If there was too much.
    pub fn picture(mut self, title: &str) -> Result<GanttPicture, PictureError> {
        self.finish()?;
        if self.strips_most > STRIPS_MAX {
            let what = format!("{} slots", self.strips_most);
            return Err(PictureError::TooMuch { what });
        }
        Ok(GanttPicture { title: title.to_owned(), gantt: self })
    }

    fn close(&mut self, job: &Resident, at: ClusterTime, end: &'static str) {
        if at <= job.since || job.rows.is_empty() {
            return;
        }
        if self.spells.len() >= self.spells_max {
            self.is_too_much = true;
            return;
        }
        let strips = job.rows.iter().filter_map(|row| self.strips.get(row).copied()).collect();
        self.spells.push(Spell {
            number: job.number,
            sequence: job.sequence,
            bands: Rc::clone(&job.bands),
            frame: Rc::clone(&self.frame),
            rows: job.rows.clone(),
            strips,
            from: job.since,
            to: at,
            end,
        });
    }

    /// Gives each row a strip, the first that is free.
    fn assign_strips(&mut self) {
        let slots = &self.frame.slots;
        self.strips.retain(|row, _| slots.iter().any(|slot| slot.row == *row));
        for slot in slots {
            if !self.strips.contains_key(&slot.row) {
                let is_free = |strip: &usize| self.strips.values().all(|taken| taken != strip);
                let strip = (0..).find(is_free).unwrap_or_default();
                self.strips.insert(slot.row, strip);
                self.strips_most = self.strips_most.max(strip + 1);
            }
        }
    }
}

impl Observer for Gantt {
    fn submitted(&mut self, _: u64, job: &crate::Job) -> io::Result<()> {
        self.begin.get_or_insert(job.submit);
        Ok(())
    }

    fn started(&mut self, start: Start<'_>) -> io::Result<()> {
        self.begin_job(start.id, start.job.number, start.at, start.core);
        Ok(())
    }

    fn decided(&mut self, at: ClusterTime, core: &Core) {
        self.end = self.end.max(at);
        let frame = core.frame_in_effect();
        let reframed = *self.frame != *frame;
        // A frame takes effect without an event: the first one that follows shows it.
        let changed = if reframed { at.min(frame.activates) } else { at };
        let mut residents = std::mem::take(&mut self.residents);
        for (&id, job) in &mut residents {
            let is_same = core.runs_in(id) == job.rows;
            if reframed || !is_same {
                let changed = changed.max(job.since);
                self.close(job, changed, if is_over(core, id, at) { ENDED } else { STOPPED });
                job.since = changed;
                if !is_same {
                    // It may have come back on other processors.
                    let bands = bands_of(core, id, at);
                    if *bands != *job.bands {
                        job.bands = bands.into();
                    }
                }
                job.rows.clear();
                job.rows.extend(core.runs_in(id));
            }
        }
        self.residents = residents;
        if reframed {
            self.frame = Rc::new(core.frame_in_effect().clone());
            self.assign_strips();
        }
    }

    fn passed(&mut self, passed: &crate::Passed) {
        self.end = self.end.max(passed.to);
    }

    fn ended(&mut self, id: JobId, job: &Finished) -> io::Result<()> {
        self.end_job(id, job.end);
        Ok(())
    }
}

/// Whether nothing of a job goes on: its tasks have ended, or are being ended.
fn is_over(core: &Core, id: JobId, at: ClusterTime) -> bool {
    core.runs_in(id).is_empty()
        && core.job(id, at).is_none_or(|view| {
            let is_running = matches!(view.state, JobState::Running { .. });
            !is_running || view.ended.len() >= view.spec.tasks as usize
        })
}

/// The processors that a job has.
fn bands_of(core: &Core, id: JobId, at: ClusterTime) -> Vec<Band> {
    let mut bands: Vec<Band> = Vec::new();
    let placements = core.job(id, at).map(|view| view.placements);
    for placement in placements.into_iter().flatten() {
        let node = placement.node.0;
        for processor in placement.processors.iter() {
            match bands.last_mut() {
                Some(band) if band.node == node && band.first + band.count == processor => {
                    band.count += 1;
                }
                _ => bands.push(Band { node, first: processor, count: 1 }),
            }
        }
    }
    bands
}

/// Processors over time.
#[derive(Debug)]
pub struct GanttPicture {
    title: String,
    gantt: Gantt,
}

impl GanttPicture {
    fn span_s(&self) -> f64 {
        let begin = self.gantt.begin.unwrap_or_default();
        (self.gantt.end.since(begin).0 as f64 / 1e9).max(1.0)
    }

    /// Whether a turn is wide enough to be seen.
    fn shows_turns(&self) -> bool {
        let turns = self.gantt.spells.iter().filter(|spell| spell.frame.slots.len() > 1);
        let turns = turns.flat_map(|spell| &spell.frame.slots).map(|slot| slot.length.0);
        let shortest_s = turns.min().map_or(f64::INFINITY, |ns| ns as f64 / 1e9);
        shortest_s / self.span_s() * f64::from(PLOT_WIDTH) >= TURN_MIN
    }

    fn strips(&self) -> usize {
        if self.shows_turns() { 1 } else { self.gantt.strips_most.max(1) }
    }

    /// The processors of a spell as the rows of the picture: the first, and how many.
    fn heights(&self, spell: &Spell) -> Vec<(u32, u32)> {
        let mut heights: Vec<(u32, u32)> = Vec::new();
        for band in spell.bands.iter() {
            let first = band.node * self.gantt.processors_per_node + band.first;
            match heights.last_mut() {
                Some((former, count)) if *former + *count == first => *count += band.count,
                _ => heights.push((first, band.count)),
            }
        }
        heights
    }
}

impl Spell {
    /// The times at which it is the job's turn, in ns.
    fn turns(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let slots = &self.frame.slots;
        let runs = |row: RowId| self.rows.contains(&row);
        let (from, to) = (self.from.0, self.to.0);
        let is_always = slots.iter().all(|slot| runs(slot.row));
        let first = if is_always { None } else { self.frame.turn(self.from) };
        let (first, mut at) = first.map_or((0, to), |(first, begins)| (first, begins.0));
        let whole = is_always.then_some((from, to));
        let turns = slots.iter().cycle().skip(first).map_while(move |slot| {
            let begin = at;
            at = at.saturating_add(slot.length.0);
            (begin < to && begin < at).then_some((slot.row, begin.max(from), at.min(to)))
        });
        let own = turns.filter(move |(row, ..)| self.rows.contains(row));
        whole.into_iter().chain(own.map(|(_, begin, end)| (begin, end)))
    }
}

impl Picture for GanttPicture {
    fn size(&self) -> (u32, u32) {
        let strips = u32::try_from(self.strips()).unwrap_or(1);
        (WIDTH, if strips == 1 { 480 } else { 92 + strips * 150 })
    }

    fn draw<B: DrawingBackend>(
        &self,
        area: &DrawingArea<B, Shift>,
        scale: u32,
    ) -> Result<(), PictureError> {
        let look = Look { scale };
        let rest = look.head(area, &self.title, &[])?;
        let strips = self.strips();
        let (upper, _) = rest.split_vertically(rest.dim_in_pixel().1 - look.px(10));
        let foot = look.px(40);
        let each = (upper.dim_in_pixel().1 - foot) / u32::try_from(strips).unwrap_or(1);
        let mut left = upper;
        for strip in 0..strips {
            let is_last = strip + 1 == strips;
            if is_last {
                return self.strip(&left, look, strip, foot);
            }
            let (this, below) = left.split_vertically(each);
            self.strip(&this, look, strip, 0)?;
            left = below;
        }
        Ok(())
    }
}

impl GanttPicture {
    fn strip<B: DrawingBackend>(
        &self,
        area: &DrawingArea<B, Shift>,
        look: Look,
        strip: usize,
        foot: u32,
    ) -> Result<(), PictureError> {
        let span_s = self.span_s();
        let unit = unit_of(span_s);
        let begin_ns = self.gantt.begin.unwrap_or_default().0 as f64;
        // Nodes that are less wide than others leave a gap.
        let processors = self.gantt.nodes * self.gantt.processors_per_node;
        let many = self.strips() > 1;
        let mut chart = ChartBuilder::on(area)
            .margin_left(look.px(14))
            .margin_right(look.px(18))
            .margin_bottom(look.px(if foot == 0 { 12 } else { 0 }))
            .x_label_area_size(foot)
            .y_label_area_size(look.px(62))
            .build_cartesian_2d(0.0..span_s / unit.seconds, 0.0..f64::from(processors))
            .or_draw_error()?;
        let what = match many {
            true => format!("slot {}: processors", strip + 1),
            false => "processors".to_owned(),
        };
        chart
            .configure_mesh()
            .light_line_style(WHITE)
            .bold_line_style(FAINT)
            .axis_style(INK)
            .x_desc(format!("time since the first submission, {}", unit.name))
            .y_desc(what)
            .y_labels(if many { 4 } else { 8 })
            .x_label_formatter(&tick)
            .y_label_formatter(&tick)
            .y_label_offset(look.at(1))
            .label_style(look.axis())
            .axis_desc_style(look.axis())
            .draw()
            .or_draw_error()?;
        let at = |ns: u64| (ns as f64 - begin_ns) / 1e9 / unit.seconds;
        let shows_turns = self.shows_turns();
        let plot = chart.plotting_area();
        for spell in self.gantt.spells.iter().filter(|it| !many || it.strips.contains(&strip)) {
            let turns: Vec<(u64, u64)> = match shows_turns {
                true => spell.turns().collect(),
                false => [(spell.from.0, spell.to.0)].into(),
            };
            let heights = self.heights(spell);
            for (from, to) in turns {
                for &(first, count) in &heights {
                    let low = f64::from(first);
                    let high = f64::from(first + count);
                    let corners = [(at(from), low), (at(to), high)];
                    let style = colour(spell.sequence).mix(0.8).filled();
                    plot.draw(&Rectangle::new(corners, style)).or_draw_error()?;
                }
            }
        }
        self.numbers(plot, look, strip, at)
    }

    /// The numbers of jobs, where there is room for them.
    fn numbers<B: DrawingBackend>(
        &self,
        plot: &DrawingArea<B, super::look::Plane>,
        look: Look,
        strip: usize,
        at: impl Fn(u64) -> f64,
    ) -> Result<(), PictureError> {
        let many = self.strips() > 1;
        let mut labelled = std::collections::BTreeSet::new();
        for spell in self.gantt.spells.iter().filter(|it| !many || it.strips.contains(&strip)) {
            let heights = self.heights(spell);
            let Some(&(first, count)) = heights.iter().max_by_key(|it| it.1) else { continue };
            let turn = match self.shows_turns() {
                true => spell.turns().max_by_key(|(from, to)| to - from),
                false => Some((spell.from.0, spell.to.0)),
            };
            let Some((from, to)) = turn else { continue };
            let text = spell.number.to_string();
            let corner = |ns, processor: u32| plot.map_coordinate(&(at(ns), f64::from(processor)));
            let (low, high) = (corner(from, first), corner(to, first + count));
            let width = i32::try_from(text.len()).unwrap_or(9) * look.at(8);
            let fits = high.0 - low.0 > width && low.1 - high.1 > look.at(14);
            if fits && labelled.insert(spell.number) {
                let middle =
                    (f64::midpoint(at(from), at(to)), f64::from(first) + f64::from(count) / 2.0);
                let ink = ink_on(colour(spell.sequence));
                let style = look.text(11, HPos::Center).color(&ink);
                plot.draw(&Text::new(text, middle, style)).or_draw_error()?;
            }
        }
        Ok(())
    }
}
