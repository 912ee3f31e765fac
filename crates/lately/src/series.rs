//! Hits step by step over a window, for plotting.

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
        let hits_from = |from_ms: i64| {
            let Some(entry) = entry else { return 0 };
            let window = Window::between(from_ms, end_ms, settings, now);
            window.count(|from, to| entry.sum(from, to, settings)).estimate
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
