//! The counter for one thing, without a key or a clock: time is what the hits and the reader say.

use crate::count::Count;
use crate::entry::Entry;
use crate::error::HitError;
use crate::settings::Settings;
use crate::time::{Span, Timestamp};

/// Counts hits and tells how many came in the past five minutes, or in any window.
///
/// Times are seconds and may come in any order. The clock is the newest hit or the time asked about,
/// whichever is later. Hits stay known for 1,000,000,000 s; windows up to six minutes are exact,
/// wider ones to 1 % of the window at their far edge ([`HitCounter::count`] gives the bounds).
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
}

impl HitCounter {
    /// A counter with panes of 1 s, a default window of 5 min and everything kept for 10^9 s.
    #[must_use]
    pub fn new() -> HitCounter {
        let settings = Settings::builder().retain(Span::MAX).build();
        HitCounter::with_settings(settings.expect("the longest retention is a valid one"))
    }

    /// A counter with other settings. Their `max_skew` has no meaning without a clock.
    #[must_use]
    pub fn with_settings(settings: Settings) -> HitCounter {
        HitCounter { entry: Entry::new(), settings }
    }

    /// Counts a hit at `second`; false when it is older than what is kept or no time at all.
    pub fn hit(&mut self, second: u64) -> bool {
        Timestamp::from_seconds(second).is_some_and(|at| self.add(at, 1).is_ok())
    }

    /// Counts `weight` hits at `at`.
    ///
    /// # Errors
    /// [`HitError::Late`] when the hit is older than what is kept, [`HitError::Overflow`] when the
    /// kept total would pass [`crate::limits::MAX_TOTAL`]. Nothing changes then.
    pub fn add(&mut self, at: Timestamp, weight: u64) -> Result<(), HitError> {
        let now = self.now_at(at);
        let oldest = self.settings.oldest(now);
        if at < oldest {
            return Err(HitError::Late { at, oldest });
        }
        self.entry.add(at, weight, &self.settings, now)
    }

    /// Hits in the default window, five minutes, ending at `second`.
    #[must_use]
    pub fn hits(&self, second: u64) -> u64 {
        let at = Timestamp::from_seconds(second).unwrap_or(Timestamp::MAX);
        self.count(self.settings.window(), at).estimate
    }

    /// Hits in the past `window` seconds, ending at the newest hit; 0 before any hit. A window below
    /// 1 s or above 10^9 s is taken for the nearest that is in range.
    #[must_use]
    pub fn load(&self, window: u64) -> u64 {
        self.count(window_of(window), self.entry.newest()).estimate
    }

    /// [`HitCounter::load`] divided by `window`: hits per second.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a rate is a fraction")]
    pub fn rate(&self, window: u64) -> f64 {
        self.load(window) as f64 / window_of(window).as_seconds_f64()
    }

    /// Hits in the window of length `window` that ends with the pane of `at`.
    #[must_use]
    pub fn count(&self, window: Span, at: Timestamp) -> Count {
        self.entry.count(at, window, &self.settings, self.now_at(at))
    }

    /// The time of the newest hit, if there was one.
    #[must_use]
    pub fn newest(&self) -> Option<Timestamp> {
        (!self.entry.is_empty()).then(|| self.entry.newest())
    }

    fn now_at(&self, at: Timestamp) -> Timestamp {
        self.entry.newest().max(at)
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
    fn what_cannot_be_counted_is_refused() {
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
    }
}
