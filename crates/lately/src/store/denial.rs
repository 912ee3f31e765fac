//! What a limit said when it denied a hit.

use crate::limit::{Decision, Retry};
use crate::time::{Span, Timestamp};

/// What a limit said when it denied a hit: it says so again until that time, if no hits are counted meanwhile. The default
/// is said of nothing.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(super) struct Denial {
    /// When it would be allowed.
    pub(super) until: Timestamp,
    /// From then on, until all would be left.
    none_after_ms: u32,
    window_ms: u32,
    max: u32,
}

impl Denial {
    /// What a limit of `max` said: a hit would be allowed at `until`, and all would be left at `none_from`. `None` if
    /// one of them is too large to be kept.
    pub(super) fn new(max: u64, window: Span, until: Timestamp, none_from: Timestamp) -> Option<Denial> {
        Some(Denial {
            until,
            none_after_ms: u32::try_from(none_from.as_millis() - until.as_millis()).ok()?,
            window_ms: u32::try_from(window.as_millis()).ok()?,
            max: u32::try_from(max).ok()?,
        })
    }

    /// What the limit says of a hit now, if it is the same limit and still denies one.
    #[inline]
    pub(super) fn again(&self, max: u64, window: Span, now: Timestamp) -> Option<Decision> {
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
    fn it_is_said_again_until_it_is_over() {
        let denial = Denial::new(3, seconds(5), at(7_000), at(9_000)).expect("small");
        let says = |ms: i64| denial.again(3, seconds(5), at(ms)).map(|said| (said.retry, said.reset_after));
        let wait = |ms| Span::from_millis(ms).expect("a span");
        assert_eq!(says(4_000), Some((Retry::After(wait(3_000)), Some(wait(5_000)))));
        assert_eq!(says(6_999), Some((Retry::After(wait(1)), Some(wait(2_001)))));
        assert_eq!(says(7_000), None);
        assert_eq!(denial.again(2, seconds(5), at(4_000)), None);
        assert_eq!(denial.again(3, seconds(4), at(4_000)), None);
        assert_eq!(Denial::default().again(0, Span::MIN, at(0)), None);
    }

    #[test]
    fn what_is_too_large_is_not_kept() {
        let most = u64::from(u32::MAX);
        assert!(Denial::new(most, days(49), at(1), at(1)).is_some());
        assert!(Denial::new(most + 1, days(49), at(1), at(1)).is_none());
        assert!(Denial::new(most, days(50), at(1), at(1)).is_none());
        assert!(Denial::new(most, days(49), at(1), at(1 + i64::from(u32::MAX) + 1)).is_none());
        assert!(Denial::new(most, days(49), at(2), at(1)).is_none());
    }
}
