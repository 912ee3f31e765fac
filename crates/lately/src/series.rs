//! Hits step by step over a window, for plotting.

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
    /// Where the step starts: a multiple of its length.
    pub start: Timestamp,
    /// Hits in the step that are in the window.
    pub hits: u64,
}

/// A question for a series.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Query {
    pub(crate) window: Span,
    pub(crate) step: Span,
    pub(crate) at: Timestamp,
}

impl Query {
    /// The points, oldest first; of zeros where there is no entry.
    ///
    /// Old panes may be wider than a step: then each point is a difference of two estimates, kept
    /// from falling below zero, and the points still add up to the count of the window.
    pub(crate) fn points(
        &self,
        entry: Option<&Entry>,
        settings: &Settings,
        now: Timestamp,
    ) -> Result<Vec<Point>, QueryError> {
        let Query { window, step, at } = *self;
        let resolution = settings.resolution();
        let (step_ms, resolution_ms) = (step.as_millis(), resolution.as_millis());
        if step_ms % resolution_ms != 0 {
            return Err(QueryError::Step { step, resolution });
        }
        let end_ms = (settings.pane_of(at.as_millis()) + 1) * resolution_ms;
        // Time starts at 0: a window that reaches further back has nothing to show there.
        let start_ms = (end_ms - settings.panes_in(window) * resolution_ms).max(0);
        let first = start_ms.div_euclid(step_ms);
        let points = ceil_div(end_ms, step_ms) - first;
        if points > MAX_SERIES_POINTS {
            return Err(QueryError::Points { points });
        }
        // Each point asks for the hits up to the end of the series: those of the point before, less a step.
        let known: Cell<Option<(i64, u64)>> = Cell::new(None);
        let hits_from = |from_ms: i64| {
            let Some(entry) = entry else { return 0 };
            let window = Window::between(from_ms, end_ms, settings, now);
            let sum = |from, to| {
                let known_hits = known.get().filter(|(known_from, _)| to == end_ms && *known_from <= from);
                let hits = match known_hits {
                    Some((known_from, hits)) => hits - entry.sum(known_from, from, settings),
                    None => entry.sum(from, to, settings),
                };
                if to == end_ms {
                    known.set(Some((from, hits)));
                }
                hits
            };
            entry.with_coarse(window.count(sum), &window).estimate
        };
        let mut left = hits_from(start_ms);
        let series = (first..first + points).map(|step| {
            let next_ms = ((step + 1) * step_ms).min(end_ms);
            let after = if next_ms >= end_ms { 0 } else { hits_from(next_ms).min(left) };
            let hits = left - after;
            left = after;
            Point { start: Timestamp::from_millis(step * step_ms).unwrap_or(Timestamp::MAX), hits }
        });
        Ok(series.collect())
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
        /// Whatever form the entry has, and wherever the series lies.
        #[test]
        fn a_point_is_the_hits_from_its_start_less_those_from_its_end(
            gaps_ms in prop::collection::vec(prop_oneof![0..50_i64, 0..5_000_i64, 0..4_000_000_i64], 1..600),
            (window, step) in prop_oneof![
                Just((minutes(5), seconds(1))),
                Just((minutes(7), seconds(10))),
                Just((hours(3), minutes(5))),
                Just((days(1), hours(1))),
                Just((days(7), hours(6))),
            ],
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
            let query = Query { window, step, at: at(now_ms - ago_ms) };
            let points = query.points(Some(&entry), &settings, now).expect("few points");
            let end_ms = (settings.pane_of(query.at.as_millis()) + 1) * 1_000;
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
