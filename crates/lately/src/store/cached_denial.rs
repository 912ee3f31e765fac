//! A cached denial: the answer of a limit until a known time, without reading the hits.

use crate::limit::{Decision, Retry};
use crate::time::{Span, Timestamp};

/// The denial of one limit. It is valid until `until`, if no hits are counted before. The default matches no
/// limit.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(super) struct CachedDenial {
    /// The time at which a hit would be allowed.
    pub(super) until: Timestamp,
    /// The time from `until` to when no hit counts in the window.
    none_after_ms: u32,
    window_ms: u32,
    max: u32,
}

impl CachedDenial {
    /// The denial of a limit of `max`. It allows a hit at `until`, and at `none_from` no hit counts in the
    /// window. `None` if a value is too large to store.
    pub(super) fn new(
        max: u64,
        window: Span,
        until: Timestamp,
        none_from: Timestamp,
    ) -> Option<CachedDenial> {
        Some(CachedDenial {
            until,
            none_after_ms: u32::try_from(none_from.as_millis() - until.as_millis()).ok()?,
            window_ms: u32::try_from(window.as_millis()).ok()?,
            max: u32::try_from(max).ok()?,
        })
    }

    /// The denial to cache after a denied request for one hit of now. `None` if the request can never be
    /// allowed.
    pub(super) fn of(decision: &Decision, window: Span, now: Timestamp) -> Option<CachedDenial> {
        let Retry::After(wait) = decision.retry else { return None };
        let none_from = now.saturating_add(decision.reset_after?);
        CachedDenial::new(decision.max, window, now.saturating_add(wait), none_from)
    }

    /// The decision about a hit of now, if the limit is the same and the denial is still valid.
    #[inline]
    pub(super) fn repeat(&self, max: u64, window: Span, now: Timestamp) -> Option<Decision> {
        let left_ms = self.until.as_millis() - now.as_millis();
        let wait = Span::from_millis(left_ms)?;
        if u64::from(self.max) != max || i64::from(self.window_ms) != window.as_millis() {
            return None;
        }
        let reset_after = Span::from_millis(left_ms + i64::from(self.none_after_ms));
        Some(Decision { max, remaining: 0, retry: Retry::After(wait), reset_after })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::{days, seconds};

    fn at(ms: i64) -> Timestamp {
        Timestamp::from_millis(ms).expect("a time")
    }

    #[test]
    fn a_denial_is_repeated_until_it_ends() {
        let denial = CachedDenial::new(3, seconds(5), at(7_000), at(9_000)).expect("small");
        let repeated = |ms: i64| denial.repeat(3, seconds(5), at(ms)).map(|it| (it.retry, it.reset_after));
        let wait = |ms| Span::from_millis(ms).expect("a span");
        assert_eq!(repeated(4_000), Some((Retry::After(wait(3_000)), Some(wait(5_000)))));
        assert_eq!(repeated(6_999), Some((Retry::After(wait(1)), Some(wait(2_001)))));
        assert_eq!(repeated(7_000), None);
        assert_eq!(denial.repeat(2, seconds(5), at(4_000)), None);
        assert_eq!(denial.repeat(3, seconds(4), at(4_000)), None);
        assert_eq!(CachedDenial::default().repeat(0, Span::MIN, at(0)), None);
    }

    #[test]
    fn large_values_are_not_cached() {
        let most = u64::from(u32::MAX);
        assert!(CachedDenial::new(most, days(49), at(1), at(1)).is_some());
        assert!(CachedDenial::new(most + 1, days(49), at(1), at(1)).is_none());
        assert!(CachedDenial::new(most, days(50), at(1), at(1)).is_none());
        assert!(CachedDenial::new(most, days(49), at(1), at(1 + i64::from(u32::MAX) + 1)).is_none());
        assert!(CachedDenial::new(most, days(49), at(2), at(1)).is_none());
    }
}
