//! The interface of all classics.

use std::ops::RangeInclusive;

/// The window of [`Counter::hits`]: five minutes.
pub(crate) const DEFAULT_WINDOW_S: i64 = 300;

/// A sliding-window counter of hits, in whole seconds.
///
/// A hit at second `h` counts in `load(w, t)` if `0 <= t - h < w`. Hits may come in any order, and reads may
/// be at any time. A counter with a span of `s` seconds keeps the hits of the `s` seconds that end at its
/// newest hit. A read that reaches further back counts only these. Sums are at most `u64::MAX`.
pub trait Counter {
    /// Counts `count` hits at `second`. `false`: the counter does not hold that second, and nothing changed.
    /// A count of 0 changes nothing either.
    fn hit(&mut self, second: i64, count: u64) -> bool;

    /// Hits in the `window_s` seconds that end with second `at_s`. A window below 1 holds none.
    fn load(&mut self, window_s: i64, at_s: i64) -> u64;

    /// The second of the newest hit; `None` before any.
    fn newest(&self) -> Option<i64>;

    /// Hits in the five minutes that end with second `at_s`.
    fn hits(&mut self, at_s: i64) -> u64 {
        self.load(DEFAULT_WINDOW_S, at_s)
    }

    /// Hits in the window that ends at the newest hit; 0 before any.
    fn load_latest(&mut self, window_s: i64) -> u64 {
        match self.newest() {
            Some(newest) => self.load(window_s, newest),
            None => 0,
        }
    }

    /// Hits per second in the window that ends at the newest hit.
    fn rate(&mut self, window_s: i64) -> f64 {
        if window_s < 1 {
            return 0.0;
        }
        self.load_latest(window_s) as f64 / window_s as f64
    }
}

/// The seconds of a window. `None` if it has none.
pub(crate) fn window_seconds(window_s: i64, at_s: i64) -> Option<RangeInclusive<i64>> {
    (window_s >= 1).then(|| at_s.saturating_sub(window_s - 1)..=at_s)
}

/// The first second of the `span_s` seconds that end at `newest`.
pub(crate) fn first_kept(newest: i64, span_s: i64) -> i64 {
    newest.saturating_sub(span_s - 1)
}

/// Adds up counts, at most `u64::MAX`.
pub(crate) fn saturating_sum(counts: impl Iterator<Item = u64>) -> u64 {
    counts.fold(0, u64::saturating_add)
}

/// Adds up the counts of the seconds of a window that are among the `span_s` kept ones.
pub(crate) fn sum_kept(
    window: &RangeInclusive<i64>,
    newest: i64,
    span_s: i64,
    count_at: impl Fn(i64) -> u64,
) -> u64 {
    let first = first_kept(newest, span_s).max(*window.start());
    saturating_sum((first..=newest.min(*window.end())).map(count_at))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ExactQueue;

    #[test]
    fn windows_at_the_ends_of_time() {
        assert_eq!(window_seconds(0, 5), None);
        assert_eq!(window_seconds(-1, 5), None);
        assert_eq!(window_seconds(1, 5), Some(5..=5));
        assert_eq!(window_seconds(i64::MAX, -2), Some(i64::MIN..=-2));
        assert_eq!(window_seconds(i64::MAX, -3), Some(i64::MIN..=-3));
        assert_eq!(first_kept(i64::MIN + 1, 300), i64::MIN);
    }

    #[test]
    fn a_rate_without_a_window_is_zero() {
        let mut counter = ExactQueue::new();
        assert!(counter.hit(1, 1));
        assert_eq!(counter.rate(0), 0.0);
        assert_eq!(counter.rate(-1), 0.0);
        assert_eq!(counter.rate(2), 0.5);
    }
}
