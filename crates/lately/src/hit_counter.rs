//! A counter for one thing, without a key or a clock: the caller passes the time of each hit and read.

use std::ops::Range;

use crate::count::Count;
use crate::entry::{Entry, Moment};
use crate::error::HitError;
use crate::limits::MAX_TOTAL;
use crate::settings::Settings;
use crate::time::{Span, Timestamp};
use crate::window::Window;

/// Counts hits of one thing in one thread, over five minutes or any other window.
///
/// Times are seconds and may come in any order. The clock is the newest hit or the end of the window that is read,
/// whichever is later. Hits are kept for 1,000,000,000 s. Windows up to six minutes are exact, wider ones to 1 % of the
/// window at their far edge; [`HitCounter::count`] returns the bounds.
///
/// ```
/// let mut counter = lately::HitCounter::new();
/// for second in [1, 2, 3] {
///     counter.hit(second);
/// }
/// assert_eq!(counter.hits(4), 3);
/// counter.hit(300);
/// assert_eq!(counter.hits(300), 4);
/// assert_eq!(counter.hits(301), 3);
/// ```
#[derive(Clone, Debug)]
pub struct HitCounter {
    entry: Entry,
    settings: Settings,
    /// The hits of one millisecond that are not in the entry yet. Most hits are added here.
    pending: Moment,
    /// The most that the pending hits may become.
    most: u64,
    /// The pane of the pending hits.
    pane_ms: Range<i64>,
    /// The hits in the entry for the default window that ends with that pane, if that is exact.
    window_hits: Option<u64>,
}

/// No pending hits. No hit has this time.
const NOTHING: Moment = Moment { at_ms: -1, hits: 0 };

impl HitCounter {
    /// A counter with panes of 1 s, a default window of 5 min and a retention of 10^9 s.
    #[must_use]
    pub fn new() -> HitCounter {
        let settings = Settings::builder().retain(Span::MAX).build();
        HitCounter::with_settings(settings.expect("the longest retention is a valid one"))
    }

    /// A counter with these settings. `max_skew` has no effect without a clock.
    #[must_use]
    pub fn with_settings(settings: Settings) -> HitCounter {
        HitCounter {
            entry: Entry::new(),
            settings,
            pending: NOTHING,
            most: 0,
            pane_ms: 0..0,
            window_hits: None,
        }
    }

    /// Counts a hit at `second`. False when that is before the retention, or no valid time.
    pub fn hit(&mut self, second: u64) -> bool {
        Timestamp::from_seconds(second).is_some_and(|at| self.add(at, 1).is_ok())
    }

    /// Counts `weight` hits at `at`.
    ///
    /// # Errors
    /// [`HitError::Late`] when `at` is before the retention, [`HitError::Overflow`] when the counter would have more than
    /// [`crate::limits::MAX_TOTAL`] hits. Nothing changes then.
    #[inline]
    pub fn add(&mut self, at: Timestamp, weight: u64) -> Result<(), HitError> {
        if at.as_millis() == self.pending.at_ms && weight <= self.most - self.pending.hits {
            self.pending.hits += weight;
            return Ok(());
        }
        self.add_elsewhere(at, weight)
    }

    /// Counts hits at another time than the pending ones, which are moved to the entry first.
    fn add_elsewhere(&mut self, at: Timestamp, weight: u64) -> Result<(), HitError> {
        let now = self.now_at(at);
        let oldest = self.settings.oldest(now);
        if at < oldest {
            return Err(HitError::Late { at, oldest });
        }
        if weight == 0 {
            return Ok(());
        }
        self.settle(now);
        let at_ms = at.as_millis();
        let left = MAX_TOTAL.checked_sub(self.entry.total()).filter(|&left| weight <= left);
        let Some(most) = left.filter(|_| at >= now) else {
            // Late hits, or too many hits unless expired ones are dropped.
            self.window_hits = None;
            return self.entry.add(at, weight, &self.settings, now);
        };
        (self.pending, self.most) = (Moment { at_ms, hits: weight }, most);
        if !self.pane_ms.contains(&at_ms) || self.window_hits.is_none() {
            let resolution_ms = self.settings.resolution().as_millis();
            let start_ms = self.settings.pane_of(at_ms) * resolution_ms;
            self.pane_ms = start_ms..start_ms + resolution_ms;
            self.count_window(at, now);
        }
        Ok(())
    }

    /// Moves the pending hits to the entry.
    fn settle(&mut self, now: Timestamp) {
        let Moment { at_ms, hits } = std::mem::replace(&mut self.pending, NOTHING);
        self.most = 0;
        if hits > 0 {
            let at = Timestamp::from_millis(at_ms).unwrap_or(Timestamp::MIN);
            let added = self.entry.add(at, hits, &self.settings, now);
            debug_assert!(added.is_ok(), "there was room when they were counted");
            // They are in the pane that the window ends with.
            self.window_hits = self.window_hits.map(|window_hits| window_hits + hits);
        }
    }

    /// Counts the default window that ends with the pane of `at`. No hit is later.
    fn count_window(&mut self, at: Timestamp, now: Timestamp) {
        let window = Window::ending_at(at, self.settings.window(), &self.settings, now);
        self.window_hits = window.exact_range_ms().map(|(from_ms, _)| {
            self.entry.advance(from_ms, &self.settings, now);
            self.entry.count_window(&window, &self.settings).estimate
        });
    }

    /// The hits in the default window, five minutes, that ends at `second`.
    #[must_use]
    pub fn hits(&self, second: u64) -> u64 {
        let at = Timestamp::from_seconds(second).unwrap_or(Timestamp::MAX);
        match self.window_hits {
            Some(hits) if self.pane_ms.contains(&at.as_millis()) => hits + self.pending.hits,
            _ => self.count(self.settings.window(), at).estimate,
        }
    }

    /// The hits in the window of `window` seconds that ends at the newest hit; 0 before the first hit. `window` is clamped
    /// to 1 s to 10^9 s.
    #[must_use]
    pub fn load(&self, window: u64) -> u64 {
        self.count(window_of(window), self.newest_hit()).estimate
    }

    /// Hits per second: [`HitCounter::load`] divided by `window`.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a rate is a fraction")]
    pub fn rate(&self, window: u64) -> f64 {
        self.load(window) as f64 / window_of(window).as_seconds_f64()
    }

    /// The hits in the window of length `window` that ends with the pane of `at`, with their bounds.
    #[must_use]
    pub fn count(&self, window: Span, at: Timestamp) -> Count {
        let window = Window::ending_at(at, window, &self.settings, self.now_at(at));
        let Moment { at_ms, hits } = self.pending;
        if hits == 0 {
            return self.entry.count_window(&window, &self.settings);
        }
        window.count(|from_ms, to_ms| {
            let pending = if (from_ms..to_ms).contains(&at_ms) { hits } else { 0 };
            self.entry.sum(from_ms, to_ms, &self.settings) + pending
        })
    }

    /// The time of the newest hit, if there was one.
    #[must_use]
    pub fn newest(&self) -> Option<Timestamp> {
        (self.pending.hits > 0 || !self.entry.is_empty()).then(|| self.newest_hit())
    }

    fn newest_hit(&self) -> Timestamp {
        self.entry.newest().max(Timestamp::from_millis(self.pending.at_ms).unwrap_or(Timestamp::MIN))
    }

    fn now_at(&self, at: Timestamp) -> Timestamp {
        self.newest_hit().max(at)
    }
}

impl Default for HitCounter {
    fn default() -> HitCounter {
        HitCounter::new()
    }
}

fn window_of(window_s: u64) -> Span {
    Span::from_seconds(window_s.max(1)).unwrap_or(Span::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hits_of_the_past_five_minutes() {
        let mut counter = HitCounter::new();
        for second in [1, 2, 3] {
            counter.hit(second);
        }
        assert_eq!(counter.hits(4), 3);
        counter.hit(300);
        assert_eq!(counter.hits(300), 4);
        assert_eq!(counter.hits(301), 3);
        assert_eq!(counter.hits(2), 2, "a hit does not count before it happened");
        assert_eq!(counter.hits(0), 0);
    }

    #[test]
    fn load_and_rate_end_at_the_newest_hit() {
        let mut counter = HitCounter::new();
        assert_eq!((counter.load(300), counter.rate(300)), (0, 0.0));
        for second in [1, 2, 2, 3, 150, 301] {
            counter.hit(second);
        }
        assert_eq!(counter.load(300), 5);
        assert_eq!(counter.load(200), 2);
        assert_eq!(counter.rate(300), 5.0 / 300.0);
        assert_eq!(counter.load(1_000_000_000), 6);
        assert_eq!(counter.load(1), 1);
    }

    #[test]
    fn late_and_excessive_hits_are_refused() {
        let mut counter = HitCounter::new();
        assert!(counter.hit(3_000_000_000));
        assert!(!counter.hit(2_000_000_000), "older than what is kept");
        assert!(counter.hit(2_000_000_001));
        assert!(!counter.hit(u64::MAX));
        let newest = counter.newest().expect("there was a hit");
        assert_eq!(counter.count(Span::MAX, newest).lower, 1);
        let seconds_ago = Timestamp::from_seconds(2_999_999_990).expect("a time");
        assert!(counter.add(seconds_ago, u64::MAX).is_err());
        assert_eq!(counter.hits(3_000_000_000), 1);
        let mut counter = HitCounter::new();
        assert!(counter.hit(3_000_000_000) && counter.hit(2_999_999_999));
        assert!(counter.add(Timestamp::MIN, 0).is_err(), "no hits at the start of time are late too");
    }
}
