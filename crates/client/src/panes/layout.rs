//! Where panes are: a grid as even as it gets, and pages where there are too many.

/// A pane is at least so wide and so high, its title included.
const WIDTH_MIN: usize = 24;
const HEIGHT_MIN: usize = 4;

/// Programs write lines of this length: more width is worth nothing.
const WIDTH_USEFUL: usize = 80;

/// The place of a pane: its title is its first line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) x: usize,
    pub(super) y: usize,
    pub(super) width: usize,
    pub(super) height: usize,
}

/// The places of one page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Layout {
    /// How many panes are on a page; on the last one there may be fewer.
    pub(super) on_page: usize,
    /// How many pages there are.
    pub(super) pages: usize,
    columns: usize,
}

impl Layout {
    /// Each of so many panes on a page of its own.
    pub(super) fn alone(panes: usize) -> Self {
        Self { on_page: 1, pages: panes.max(1), columns: 1 }
    }

    /// For so many panes in a room of this width and height.
    pub(super) fn of(panes: usize, width: usize, height: usize) -> Self {
        let panes = panes.max(1);
        let columns_max = ((width + 1) / (WIDTH_MIN + 1)).max(1);
        let rows_max = (height / HEIGHT_MIN).max(1);
        let pages = panes.div_ceil(columns_max * rows_max);
        let on_page = panes.div_ceil(pages);
        let worth = |columns: &usize| {
            let rows = on_page.div_ceil(*columns);
            let width = (width + 1) / columns - 1;
            let lines = (height / rows).saturating_sub(1);
            // Width counts a little more than height: a broken line is harder to read.
            let width = width.min(WIDTH_USEFUL) as u128;
            (width.pow(5) * (lines as u128).pow(4), usize::MAX - columns)
        };
        let fits = |columns: &usize| on_page.div_ceil(*columns) <= rows_max;
        let columns = (1..=columns_max.min(on_page)).filter(fits).max_by_key(worth).unwrap_or(1);
        Self { on_page, pages, columns }
    }

    /// Where the `count` panes of a page are.
    pub(super) fn places(&self, count: usize, width: usize, height: usize) -> Vec<Place> {
        let count = count.max(1);
        let rows = count.div_ceil(self.columns.max(1));
        let mut places = Vec::with_capacity(count);
        for row in 0..rows {
            let first = places.len();
            // The last row may have fewer, which are wider then.
            let in_row = (count - first).min(self.columns.max(1));
            let (y, end) = (row * height / rows, (row + 1) * height / rows);
            for column in 0..in_row {
                // Between two there is a line.
                let at = |column: usize| column * (width + 1) / in_row;
                let (x, next) = (at(column), at(column + 1));
                places.push(Place { x, y, width: next - x - 1, height: end - y });
            }
        }
        places
    }

    /// The pane of the page beside or above pane `from` of it, and whether there is one.
    pub(super) fn neighbour(&self, from: usize, count: usize, step: Step) -> Option<usize> {
        let columns = self.columns.max(1);
        match step {
            Step::Left => (!from.is_multiple_of(columns)).then(|| from - 1),
            Step::Right => Some(from + 1).filter(|to| !to.is_multiple_of(columns) && *to < count),
            Step::Up => from.checked_sub(columns),
            Step::Down => {
                let is_above_last = from / columns + 1 < count.div_ceil(columns);
                is_above_last.then(|| (from + columns).min(count - 1))
            }
        }
    }
}

/// A step from pane to pane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Left,
    Right,
    Up,
    Down,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panes_of_usual_terminals_are_even() {
        let shape = |panes, width, height| {
            let layout = Layout::of(panes, width, height);
            (layout.columns, layout.on_page, layout.pages)
        };
        assert_eq!(shape(1, 80, 23), (1, 1, 1));
        assert_eq!(shape(2, 80, 23), (1, 2, 1));
        assert_eq!(shape(4, 80, 23), (2, 4, 1));
        assert_eq!(shape(4, 120, 39), (2, 4, 1));
        assert_eq!(shape(2, 200, 50), (2, 2, 1));
        assert_eq!(shape(9, 120, 39), (3, 9, 1));
        assert_eq!(shape(16, 80, 23), (2, 8, 2));
        assert_eq!(shape(1000, 80, 23).2, 67);
        assert_eq!(shape(3, 1, 1), (1, 1, 3));
    }

    #[test]
    fn places_fill_the_room_and_do_not_overlap() {
        for (panes, width, height) in [(1, 80, 23), (3, 80, 23), (7, 121, 40), (15, 80, 23)] {
            let layout = Layout::of(panes, width, height);
            let places = layout.places(layout.on_page, width, height);
            assert_eq!(places.len(), layout.on_page);
            let mut taken = vec![false; width * height];
            for place in &places {
                assert!(place.width >= WIDTH_MIN && place.height >= HEIGHT_MIN, "{place:?}");
                for y in place.y..place.y + place.height {
                    for x in place.x..place.x + place.width {
                        assert!(!std::mem::replace(&mut taken[y * width + x], true), "{place:?}");
                    }
                }
            }
            let lines = places.iter().filter(|it| it.x > 0).map(|it| it.height).sum::<usize>();
            assert_eq!(taken.iter().filter(|it| !**it).count(), lines, "lines between columns");
        }
    }

    #[test]
    fn steps_go_to_the_pane_that_is_there() {
        // Three columns: 0 1 2, 3 4 5, 6.
        let layout = Layout { on_page: 7, pages: 1, columns: 3 };
        let go = |from, step| layout.neighbour(from, 7, step);
        assert_eq!(
            [go(0, Step::Left), go(1, Step::Left), go(3, Step::Left)],
            [None, Some(0), None]
        );
        assert_eq!([go(2, Step::Right), go(5, Step::Right), go(6, Step::Right)], [None; 3]);
        assert_eq!([go(0, Step::Up), go(5, Step::Up)], [None, Some(2)]);
        assert_eq!(
            [go(1, Step::Down), go(5, Step::Down), go(6, Step::Down)],
            [Some(4), Some(6), None]
        );
    }
}
