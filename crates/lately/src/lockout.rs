//! Lockouts: after a denial, every request of the key is denied for a time. Each further lockout of a key may last longer.

use std::str::FromStr;

use crate::error::LockoutError;
use crate::time::{Span, Timestamp, days};

/// The longest lockout if none is named, unless the first one is longer.
const DEFAULT_LONGEST: Span = days(1);

/// How long a denied key is locked out, and how further lockouts of the key grow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lockout {
    first: Span,
    factor: Factor,
    longest: Span,
}

/// The factor from one lockout of a key to the next: a number from 1 on.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Factor(f64);

// A factor is never NaN.
impl Eq for Factor {}

/// The last lockout of a key, from which the next one grows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PastLockout {
    /// How long it lasted.
    pub length: Span,
    /// When it is forgotten.
    pub forgotten_at: Timestamp,
}

/// A lockout that starts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StartedLockout {
    /// Its end.
    pub until: Timestamp,
    /// What the next one grows from. `None` if lockouts do not grow.
    pub past: Option<PastLockout>,
}

impl Lockout {
    /// Lockouts that all have this length.
    #[must_use]
    pub const fn of(length: Span) -> Lockout {
        Lockout { first: length, factor: Factor::ONE, longest: length }
    }

    /// Lockouts of which each is `factor` times as long as the one before it, up to `longest`. The default is a day, or
    /// `first` if that is longer.
    ///
    /// A key starts again with `first` once it was not locked out for as long as `longest`: the greatest one of its lockouts, if that has
    /// changed.
    ///
    /// # Errors
    /// `longest` is shorter than `first`.
    pub fn growing(first: Span, factor: Factor, longest: Option<Span>) -> Result<Lockout, LockoutError> {
        let longest = longest.unwrap_or(first.max(DEFAULT_LONGEST));
        if longest < first {
            return Err(LockoutError::Longest { first, longest });
        }
        Ok(Lockout { first, factor, longest })
    }

    /// The length of the first lockout of a key.
    #[must_use]
    pub const fn first(&self) -> Span {
        self.first
    }

    /// The factor from one lockout to the next.
    #[must_use]
    pub const fn factor(&self) -> Factor {
        self.factor
    }

    /// The longest lockout.
    #[must_use]
    pub const fn longest(&self) -> Span {
        self.longest
    }

    /// The lockout of a key that is denied at `at`, after the last one.
    #[must_use]
    pub fn start(&self, at: Timestamp, past: Option<PastLockout>) -> StartedLockout {
        if self.factor == Factor::ONE {
            return StartedLockout { until: at.saturating_add(self.first), past: None };
        }
        let past = past.filter(|past| past.forgotten_at > at);
        let length = past.map_or(self.first, |past| self.after(past.length));
        let until = at.saturating_add(length);
        let forgotten_at = until.saturating_add(self.longest);
        // A store keeps what is remembered the longest. So the growth is remembered as long as before, if `longest` is shorter now.
        let forgotten_at = past.map_or(forgotten_at, |past| forgotten_at.max(past.forgotten_at));
        StartedLockout { until, past: Some(PastLockout { length, forgotten_at }) }
    }

    /// The length of the lockout after one of this length, in whole milliseconds.
    fn after(&self, length: Span) -> Span {
        let longest_ms = self.longest.as_millis();
        let next_ms = length.as_millis() as f64 * self.factor.0;
        if next_ms >= longest_ms as f64 {
            return self.longest;
        }
        #[expect(clippy::cast_possible_truncation, reason = "it is below the longest span")]
        let next = Span::from_millis(next_ms as i64);
        next.unwrap_or(Span::MAX).max(self.first)
    }
}

impl PastLockout {
    /// The length and the end, in milliseconds.
    pub(crate) fn to_numbers(self) -> (u64, u64) {
        let [length_ms, forgotten_ms] = [self.length.as_millis(), self.forgotten_at.as_millis()];
        (length_ms.cast_unsigned(), forgotten_ms.cast_unsigned())
    }

    /// The inverse of [`PastLockout::to_numbers`].
    pub(crate) fn from_numbers((length_ms, forgotten_ms): (u64, u64)) -> Option<PastLockout> {
        Some(PastLockout {
            length: Span::from_millis(i64::try_from(length_ms).ok()?)?,
            forgotten_at: Timestamp::from_millis(i64::try_from(forgotten_ms).ok()?)?,
        })
    }
}

impl From<Span> for Lockout {
    fn from(length: Span) -> Lockout {
        Lockout::of(length)
    }
}

impl Factor {
    /// Lockouts do not grow.
    pub const ONE: Factor = Factor(1.0);

    /// A factor. `None` if it is below 1 or not finite.
    #[must_use]
    pub fn new(factor: f64) -> Option<Factor> {
        (factor.is_finite() && factor >= 1.0).then_some(Factor(factor))
    }

    /// The number.
    #[must_use]
    pub const fn get(self) -> f64 {
        self.0
    }
}

impl FromStr for Factor {
    type Err = LockoutError;

    fn from_str(text: &str) -> Result<Factor, LockoutError> {
        // Rust also parses "infinity" and "+2".
        let is_number = text.starts_with(|first: char| first.is_ascii_digit());
        let factor = text.parse().ok().filter(|_| is_number).and_then(Factor::new);
        factor.ok_or_else(|| LockoutError::Factor { text: text.into() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::{milliseconds, minutes, seconds};

    /// The lengths of lockouts of which each begins when the one before it ends.
    fn lengths(lockout: Lockout, count: usize) -> Vec<i64> {
        let (mut at, mut past, mut found) = (Timestamp::MIN, None, Vec::new());
        for _ in 0..count {
            let started = lockout.start(at, past);
            found.push(started.until.as_millis() - at.as_millis());
            (at, past) = (started.until, started.past);
        }
        found
    }

    fn growing(first: Span, factor: &str, longest: Span) -> Lockout {
        Lockout::growing(first, factor.parse().expect("a factor"), Some(longest)).expect("it fits")
    }

    #[test]
    fn lockouts_grow_by_their_factor() {
        let check = |factor: &str, longest: Span, expected: &[i64]| {
            assert_eq!(lengths(growing(milliseconds(100), factor, longest), expected.len()), expected);
        };
        check("1", Span::MAX, &[100, 100, 100]);
        check("2", Span::MAX, &[100, 200, 400, 800]);
        check("1.5", Span::MAX, &[100, 150, 225, 337]);
        check("10", seconds(1), &[100, 1_000, 1_000]);
        check("2", milliseconds(100), &[100, 100]);
        check("1.001", Span::MAX, &[100, 100]);
        assert_eq!(lengths(Lockout::of(seconds(1)), 3), [1_000; 3]);
        assert_eq!(
            lengths(growing(milliseconds(1), "2", Span::MAX), 60).last(),
            Some(&Span::MAX.as_millis())
        );
    }

    #[test]
    fn the_growth_is_forgotten_after_the_longest_lockout() {
        let lockout = growing(seconds(10), "2", minutes(1));
        let first = lockout.start(Timestamp::MIN, None);
        let length = |at_ms: i64| {
            let at = Timestamp::from_millis(at_ms).expect("a time");
            lockout.start(at, first.past).until.as_millis() - at_ms
        };
        // It ended at 10 s.
        assert_eq!([length(10_000), length(69_999), length(70_000)], [20_000, 20_000, 10_000]);
    }

    #[test]
    fn a_lockout_is_never_shorter_than_the_first() {
        // The last lockout was of another limit of the key.
        let past = PastLockout { length: seconds(1), forgotten_at: Timestamp::MAX };
        let started = growing(minutes(1), "2", minutes(10)).start(Timestamp::MIN, Some(past));
        assert_eq!(started.until.as_millis(), 60_000);
    }

    #[test]
    fn the_longest_lockout_has_a_default() {
        let longest = |first| Lockout::growing(first, Factor::ONE, None).expect("it fits").longest();
        assert_eq!((longest(seconds(1)), longest(days(2))), (days(1), days(2)));
        let error = LockoutError::Longest { first: seconds(2), longest: seconds(1) };
        assert_eq!(Lockout::growing(seconds(2), Factor::ONE, Some(seconds(1))), Err(error));
    }

    #[test]
    fn factors_are_from_1_on() {
        for bad in ["", "0.5", "-2", "nan", "inf", "two", "+2", "1e999"] {
            assert_eq!(bad.parse::<Factor>(), Err(LockoutError::Factor { text: bad.into() }));
        }
    }
}
