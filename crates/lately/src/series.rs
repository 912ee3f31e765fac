//! Series: the hits in each step of a window, for plotting.

use std::cell::Cell;

use crate::entry::Entry;
use crate::error::QueryError;
use crate::limits::MAX_SERIES_POINTS;
use crate::settings::Settings;
use crate::time::{Span, Timestamp, ceil_div};
use crate::window::Window;

/// One step of a series.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Point {
    /// The start of the step, a multiple of its length.
    pub start: Timestamp,
    /// Hits that are both in the step and in the window.
    pub hits: u64,
}

/// The hits between two borders.
#[derive(Clone, Copy)]
struct Known {
    from_ms: i64,
    to_ms: i64,
    hits: u64,
}

/// The progress of a series that [`Store::read_series`](crate::Store::read_series) reads in parts.
///
/// Each part has the hits of the moment at which it is read.
#[derive(Clone, Debug)]
pub struct SeriesReader {
    step_ms: i64,
    /// The first millisecond of the window, and one past its last.
    start_ms: i64,
    end_ms: i64,
    /// The next point and one past the last, in steps.
    next: i64,
    end: i64,
}

impl SeriesReader {
    /// The series of a window that ends at `at`, of which nothing has been read.
    pub(crate) fn new(
        window: Span,
        step: Span,
        at: Timestamp,
        settings: &Settings,
    ) -> Result<SeriesReader, QueryError> {
        let resolution = settings.resolution();
        let (step_ms, resolution_ms) = (step.as_millis(), resolution.as_millis());
        if step_ms % resolution_ms != 0 {
            return Err(QueryError::Step { step, resolution });
        }
        let end_ms = (settings.pane_of(at.as_millis()) + 1) * resolution_ms;
        // Time starts at 0: a window that reaches further back shows nothing there.
        let start_ms = (end_ms - settings.panes_in(window) * resolution_ms).max(0);
        let (next, end) = (start_ms.div_euclid(step_ms), ceil_div(end_ms, step_ms));
        let points = end - next;
        if points > MAX_SERIES_POINTS {
            return Err(QueryError::Points { points });
        }
        Ok(SeriesReader { step_ms, start_ms, end_ms, next, end })
    }

    /// The number of points that are left.
    #[must_use]
    pub fn left(&self) -> usize {
        usize::try_from(self.end - self.next).unwrap_or(usize::MAX)
    }

    /// The next points, oldest first, at most `most`. Without an entry they are zeros.
    ///
    /// Old panes may be wider than a step. A point is then the difference of two estimates, and at least
    /// zero. Points that are read together add up to the count of their time.
    /// from falling below zero. Points that are read at once add up to the count of their time.
    pub(crate) fn read(
        &mut self,
        most: usize,
        entry: Option<&Entry>,
        settings: &Settings,
        now: Timestamp,
    ) -> Vec<Point> {
        let SeriesReader { step_ms, start_ms, end_ms, next: first, .. } = *self;
        let points = i64::try_from(most).unwrap_or(i64::MAX).min(self.end - first);
        self.next += points;
        // Each point needs the hits up to the end of the series, up to its far edge, and in the cell of the
        // point's own edge. The last values are cached, because the next point differs by little or nothing.
        let known: [Cell<Option<Known>>; 3] = Default::default();
        let hits_from = |from_ms: i64| {
            let Some(entry) = entry else { return 0 };
            let window = Window::between(from_ms, end_ms, settings, now);
            let (near_floor_ms, near_ceil_ms) = window.near_cell_ms();
            let sum = |from_ms, to_ms| {
                if from_ms >= to_ms {
                    return 0;
                }
                let known = match to_ms {
                    _ if to_ms == near_floor_ms => &known[0],
                    _ if to_ms == near_ceil_ms => &known[1],
                    _ => &known[2],
                };
                let hits = match known.get().filter(|known| known.to_ms == to_ms && known.from_ms <= from_ms)
                {
                    Some(known) => known.hits - entry.sum(known.from_ms, from_ms, settings),
                    None => entry.sum(from_ms, to_ms, settings),
                };
                known.set(Some(Known { from_ms, to_ms, hits }));
                hits
            };
            entry.with_coarse(window.count(sum), &window).estimate
        };
        let mut left = hits_from((first * step_ms).max(start_ms));
        let series = (first..first + points).map(|step| {
            let next_ms = ((step + 1) * step_ms).min(end_ms);
            let after = if next_ms >= end_ms { 0 } else { hits_from(next_ms).min(left) };
            let hits = left - after;
            left = after;
            Point { start: Timestamp::from_millis(step * step_ms).unwrap_or(Timestamp::MAX), hits }
        });
        series.collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::time::{days, hours, minutes, seconds};

    const START_MS: i64 = 1_700_000_000_000;

    fn at(ms: i64) -> Timestamp {
        Timestamp::from_millis(START_MS + ms).expect("a time")
    }

    proptest! {
        /// Holds for each form of the entry, and for any place of the series.
        #[test]
        fn a_point_is_the_difference_of_the_counts_at_its_edges(
            gaps_ms in prop::collection::vec(prop_oneof![0..50_i64, 0..5_000_i64, 0..4_000_000_i64], 1..600),
            (window, step) in prop_oneof![
                Just((minutes(5), seconds(1))),
                Just((minutes(7), seconds(10))),
                Just((hours(3), minutes(5))),
                Just((days(1), hours(1))),
                Just((days(7), hours(6))),
            ],
            most in prop_oneof![1..10_usize, Just(usize::MAX)],
            ago_ms in prop_oneof![Just(0_i64), 0..400_000_i64, 0..100_000_000_i64],
        ) {
            let settings = Settings::default();
            let mut entry = Entry::new();
            let mut now_ms = 0;
            for gap_ms in gaps_ms {
                now_ms += gap_ms;
                entry.add(at(now_ms), 1, &settings, at(now_ms)).expect("counted");
            }
            let now = at(now_ms);
            let until = at(now_ms - ago_ms);
            let mut reader = SeriesReader::new(window, step, until, &settings).expect("few points");
            let mut points = Vec::new();
            while reader.left() > 0 {
                points.extend(reader.read(most, Some(&entry), &settings, now));
            }
            let end_ms = (settings.pane_of(until.as_millis()) + 1) * 1_000;
            let start_ms = end_ms - window.as_millis();
            let hits_from = |from_ms: i64| {
                let window = Window::between(from_ms.max(start_ms), end_ms, &settings, now);
                window.count(|from, to| entry.sum(from, to, &settings)).estimate
            };
            let mut left = hits_from(start_ms);
            for Point { start, hits } in points {
                let next_ms = start.as_millis() + step.as_millis();
                let after = if next_ms < end_ms { hits_from(next_ms).min(left) } else { 0 };
                prop_assert_eq!(hits, left - after);
                left = after;
            }
            prop_assert_eq!(left, 0);
        }
    }
}
