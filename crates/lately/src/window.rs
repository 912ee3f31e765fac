//! A window of time on the grid of panes, and the answer for it.
//!
//! An answer is a function of the hits, the end of the window, its length and the clock. It does not depend
//! on when panes were merged: edges are snapped to a grid that every allowed pane respects.
//! `docs/internals/design.md` has the definitions and the proof.

use crate::count::Count;
use crate::settings::Settings;
use crate::time::{Span, Timestamp};

impl Settings {
    /// Whether the hits before a time are known apart from those after it, as seen from `now`: it is a border of panes, no merged pane
    /// may cross it, and it is not older than the retention. Once it is not, it never is again.
    #[must_use]
    pub fn keeps_apart(&self, at: Timestamp, now: Timestamp) -> bool {
        let at_ms = at.as_millis();
        at_ms % self.resolution().as_millis() == 0
            && at_ms >= self.retention_edge_ms(now)
            && Edge::new(at_ms, self, now).is_on_grid()
    }
}

/// A window. Its edges are on pane borders.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Window {
    far: Edge,
    near: Edge,
    /// Whether the whole window is within the retention.
    known: bool,
}

/// An edge of a window: a border of panes of the resolution, and the grid cell that contains it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Edge {
    at_ms: i64,
    grid_ms: i64,
    /// The edge rounded down to the grid.
    floor_ms: i64,
}

impl Edge {
    fn new(at_ms: i64, settings: &Settings, now: Timestamp) -> Edge {
        let now_ms = now.as_millis();
        if now_ms - at_ms <= settings.exact().as_millis() {
            return Edge { at_ms, grid_ms: settings.resolution().as_millis(), floor_ms: at_ms };
        }
        let (floor_ms, grid_ms) = settings.ladder().cell(at_ms, now_ms);
        Edge { at_ms, grid_ms, floor_ms }
    }

    fn ceil_ms(self) -> i64 {
        if self.is_on_grid() { self.at_ms } else { self.floor_ms + self.grid_ms }
    }

    fn is_on_grid(self) -> bool {
        self.floor_ms == self.at_ms
    }
}

impl Window {
    /// The window of length `span` that ends with the pane of `at`, as seen from `now`.
    pub(crate) fn ending_at(at: Timestamp, span: Span, settings: &Settings, now: Timestamp) -> Window {
        let resolution_ms = settings.resolution().as_millis();
        let end_pane = settings.pane_of(at.as_millis()) + 1;
        let far_ms = (end_pane - settings.panes_in(span)) * resolution_ms;
        Window::between(far_ms, end_pane * resolution_ms, settings, now)
    }

    /// The window between two borders of panes of the resolution, as seen from `now`.
    pub(crate) fn between(far_ms: i64, near_ms: i64, settings: &Settings, now: Timestamp) -> Window {
        let oldest_ms = settings.retention_edge_ms(now);
        Window {
            far: Edge::new(far_ms.max(oldest_ms), settings, now),
            near: Edge::new(near_ms, settings, now),
            known: far_ms >= oldest_ms,
        }
    }

    /// The first millisecond, and one past the last, if both edges are on the grid.
    pub(crate) fn exact_range_ms(&self) -> Option<(i64, i64)> {
        let exact = self.far.is_on_grid() && self.near.is_on_grid();
        (exact && self.far.at_ms < self.near.at_ms).then_some((self.far.at_ms, self.near.at_ms))
    }

    /// The first millisecond that is kept, and one past the last.
    pub(crate) fn edges_ms(&self) -> (i64, i64) {
        (self.far.at_ms, self.near.at_ms)
    }

    /// Whether the whole window is within the retention.
    pub(crate) fn is_known(&self) -> bool {
        self.known
    }

    /// The cell that contains the end of the window. If the end is on the grid, the end twice.
    pub(crate) fn near_cell_ms(&self) -> (i64, i64) {
        (self.near.floor_ms, self.near.ceil_ms())
    }

    /// The start of the first hits that the answer may depend on.
    pub(crate) fn first_ms(&self) -> i64 {
        self.far.floor_ms
    }

    /// The answer, if `exact_range_ms` has `hits`.
    pub(crate) fn exact_count(&self, hits: u64) -> Count {
        Count { estimate: hits, lower: hits, upper: self.known.then_some(hits), cell: self.cell() }
    }

    /// The answer. `sum` returns the hits between two pane borders.
    pub(crate) fn count(&self, sum: impl Fn(i64, i64) -> u64) -> Count {
        if self.near.at_ms <= self.far.at_ms {
            return self.exact_count(0);
        }
        if let Some((from_ms, to_ms)) = self.exact_range_ms() {
            return self.exact_count(sum(from_ms, to_ms));
        }
        let (far, near) = (self.far, self.near);
        let far_cell = sum(far.floor_ms, far.ceil_ms());
        let near_cell = sum(near.floor_ms, near.ceil_ms());
        let whole = sum(far.floor_ms, near.floor_ms);
        // If both edges are in one cell, there is no cell between them.
        let lower = if far.ceil_ms() <= near.floor_ms { whole - far_cell } else { 0 };
        let upper = whole + near_cell;
        // Hits before the near edge minus hits before the far edge, with each cell spread evenly over its
        // time. The older edge has the wider grid, and rungs nest, so the far grid is the common denominator.
        let denominator = i128::from(far.grid_ms);
        let near_share = i128::from(near_cell)
            * i128::from(near.at_ms - near.floor_ms)
            * i128::from(far.grid_ms / near.grid_ms);
        let far_share = i128::from(far_cell) * i128::from(far.at_ms - far.floor_ms);
        let numerator = i128::from(whole) * denominator + near_share - far_share;
        let rounded = (2 * numerator + denominator).div_euclid(2 * denominator);
        let estimate = u64::try_from(rounded.max(0)).unwrap_or(u64::MAX).clamp(lower, upper);
        Count { estimate, lower, upper: self.known.then_some(upper), cell: self.cell() }
    }

    fn cell(&self) -> Span {
        Span::from_millis(self.far.grid_ms).unwrap_or(Span::MIN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millis(millis).expect("a time")
    }

    /// One hit in each second from 0 on, so a sum equals the length of its range.
    fn each_second(from_ms: i64, to_ms: i64) -> u64 {
        u64::try_from((to_ms.max(0) - from_ms.max(0)).max(0) / 1_000).expect("not negative")
    }

    #[test]
    fn edges_outside_the_exact_span_are_snapped() {
        let settings = Settings::default();
        let check = |at_s: i64, window: &str, now_s: i64, expected: (u64, u64, Option<u64>, &str)| {
            let span = window.parse().expect("a window");
            let window = Window::ending_at(at(at_s * 1_000), span, &settings, at(now_s * 1_000));
            let count = window.count(each_second);
            let (estimate, lower, upper, cell) = expected;
            let cell = cell.parse().expect("a cell");
            assert_eq!(count, Count { estimate, lower, upper, cell }, "{span} at {at_s} from {now_s}");
        };
        let now = 1_000_007;
        check(now, "5m", now, (300, 300, Some(300), "1s"));
        // The far edge, 999,648, is 359 s old: exact. A second more and it is 360 s old: exact too.
        check(now, "6m", now, (360, 360, Some(360), "1s"));
        // 361 s: the cell of 2 s around the edge 999,646 would end 359 s ago.
        check(now, "362", now, (362, 362, Some(362), "1s"));
        // 362 s: the edge 999,645 lies in the cell [999,644, 999,646).
        check(now, "363", now, (363, 362, Some(364), "2s"));
        // An hour back the grid is 30 s; the edge 996,408 lies in [996,390, 996,420).
        check(now, "1h", now, (3_600, 3_588, Some(3_618), "30s"));
        // Read an hour in the past over 10 minutes: both edges are snapped.
        check(now - 3_600, "10m", now, (600, 570, Some(630), "30s"));
        // Both edges in one cell, [996,390, 996,420).
        check(now - 3_600, "1s", now, (1, 0, Some(30), "30s"));
        // Older than the retention: nothing known.
        check(300_000, "1h", now, (0, 0, None, "1h"));
    }

    #[test]
    fn a_window_wider_than_the_retention_has_no_upper_bound() {
        let settings = Settings::default();
        let now = at(1_000_007_000);
        let week = Window::ending_at(now, settings.retain(), &settings, now).count(each_second);
        let more = Window::ending_at(now, Span::MAX, &settings, now).count(each_second);
        assert_eq!(more, Count { upper: None, ..week });
        assert!(week.upper.is_some());
    }
}
