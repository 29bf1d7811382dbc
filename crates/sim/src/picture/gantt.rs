//! Processors over time: which job has which, and when it is its turn.
//!
//! If turns are long enough to be seen, they are drawn as they are. If not, there is a strip for
//! each slot, as in the matrix: a job that stands in several strips at one time runs in several
//! slots.

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
use tutti_core::Core;
use tutti_core::frame::Frame;
use tutti_types::{ClusterTime, JobId, RowId};

/// Looks on and keeps which job ran where and when, up to a number that a picture can show.
#[derive(Debug)]
pub struct Gantt {
    machine: Machine,
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

/// Processors without a gap.
#[derive(Clone, Copy, Debug)]
struct Band {
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
}

const SPELLS_MAX: usize = 60_000;
const STRIPS_MAX: usize = 12;
/// A turn that is narrower can't be seen, in pixels.
const TURN_MIN: f64 = 3.0;
const WIDTH: u32 = 1_000;
/// Between the axis and the right edge, about.
const PLOT_WIDTH: u32 = 900;

impl Gantt {
    /// For a machine.
    #[must_use]
    pub fn new(machine: Machine) -> Self {
        Self {
            machine,
            begin: None,
            end: ClusterTime::default(),
            frame: Rc::default(),
            strips: BTreeMap::new(),
            strips_most: 0,
            residents: BTreeMap::new(),
            spells: Vec::new(),
            is_too_much: false,
        }
    }

    /// The picture of what was seen, up to the horizon or the last end.
    ///
    /// # Errors
    /// If there was too much.
    pub fn picture(mut self, title: &str) -> Result<GanttPicture, PictureError> {
        for job in std::mem::take(&mut self.residents).into_values() {
            self.close(&job, self.end);
        }
        if self.is_too_much {
            let what = format!("more than {SPELLS_MAX} stretches of time");
            return Err(PictureError::TooMuch { what });
        }
        if self.strips_most > STRIPS_MAX {
            let what = format!("{} slots", self.strips_most);
            return Err(PictureError::TooMuch { what });
        }
        Ok(GanttPicture { title: title.to_owned(), gantt: self })
    }

    fn close(&mut self, job: &Resident, at: ClusterTime) {
        if at <= job.since || job.rows.is_empty() {
            return;
        }
        if self.spells.len() >= SPELLS_MAX {
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
        let mut bands: Vec<Band> = Vec::new();
        let placements = start.core.job(start.id, start.at).map(|view| view.placements);
        for placement in placements.into_iter().flatten() {
            let base = placement.node.0 * self.machine.processors_per_node();
            for processor in placement.processors.iter().map(|processor| base + processor) {
                match bands.last_mut() {
                    Some(band) if band.first + band.count == processor => band.count += 1,
                    _ => bands.push(Band { first: processor, count: 1 }),
                }
            }
        }
        let resident = Resident {
            number: start.job.number,
            sequence: usize::try_from(start.id.0).unwrap_or(0),
            bands: bands.into(),
            rows: Vec::new(),
            since: start.at,
        };
        self.residents.insert(start.id, resident);
        Ok(())
    }

    fn decided(&mut self, at: ClusterTime, core: &Core) {
        self.end = self.end.max(at);
        let reframed = *self.frame != *core.frame_in_effect();
        let mut residents = std::mem::take(&mut self.residents);
        for (&id, job) in &mut residents {
            let is_same = core.runs_in(id) == job.rows;
            if reframed || !is_same {
                self.close(job, at);
                job.since = at;
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
        if let Some(resident) = self.residents.remove(&id) {
            self.close(&resident, job.end);
        }
        Ok(())
    }
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

    /// The times in a spell at which it is the job's turn, in ns.
    fn turns(spell: &Spell) -> Vec<(u64, u64)> {
        let runs = |row: RowId| spell.rows.contains(&row);
        let slots = &spell.frame.slots;
        if slots.iter().all(|slot| runs(slot.row)) {
            return [(spell.from.0, spell.to.0)].into();
        }
        let mut turns = Vec::new();
        let Some((first, begins)) = spell.frame.turn(spell.from) else { return turns };
        let mut at = begins.0;
        for slot in slots.iter().cycle().skip(first) {
            if at >= spell.to.0 {
                break;
            }
            let end = at.saturating_add(slot.length.0);
            if runs(slot.row) {
                turns.push((at.max(spell.from.0), end.min(spell.to.0)));
            }
            at = end;
        }
        turns
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
        let machine = self.gantt.machine;
        // Nodes that are less wide than others leave a gap.
        let processors = machine.nodes() * machine.processors_per_node();
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
            let turns = match shows_turns {
                true => Self::turns(spell),
                false => [(spell.from.0, spell.to.0)].into(),
            };
            for (from, to) in turns {
                for band in spell.bands.iter() {
                    let low = f64::from(band.first);
                    let high = f64::from(band.first + band.count);
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
            let Some(band) = spell.bands.iter().max_by_key(|band| band.count) else { continue };
            let turn = match self.shows_turns() {
                true => Self::turns(spell).into_iter().max_by_key(|(from, to)| to - from),
                false => Some((spell.from.0, spell.to.0)),
            };
            let Some((from, to)) = turn else { continue };
            let text = spell.number.to_string();
            let corner = |ns, processor: u32| plot.map_coordinate(&(at(ns), f64::from(processor)));
            let (low, high) = (corner(from, band.first), corner(to, band.first + band.count));
            let width = i32::try_from(text.len()).unwrap_or(9) * look.at(8);
            let fits = high.0 - low.0 > width && low.1 - high.1 > look.at(14);
            if fits && labelled.insert(spell.number) {
                let middle = (
                    f64::midpoint(at(from), at(to)),
                    f64::from(band.first) + f64::from(band.count) / 2.0,
                );
                let ink = ink_on(colour(spell.sequence));
                let style = look.text(11, HPos::Center).color(&ink);
                plot.draw(&Text::new(text, middle, style)).or_draw_error()?;
            }
        }
        Ok(())
    }
}
