//! What a limit said when it denied a hit.

use crate::limit::{Decision, Retry};
use crate::time::{Span, Timestamp};

/// What a limit said when it denied a hit: it says so again until that time, if no hits are counted meanwhile. The default
/// is said of nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Denial {
    pub(super) max: u64,
    pub(super) window: Span,
    /// When it would be allowed, and when all would be left.
    pub(super) until: Timestamp,
    pub(super) none_from: Timestamp,
}

impl Default for Denial {
    fn default() -> Denial {
        Denial { max: 0, window: Span::MIN, until: Timestamp::MIN, none_from: Timestamp::MIN }
    }
}

impl Denial {
    /// What the limit says of a hit now, if it is the same limit and still denies one.
    #[inline]
    pub(super) fn again(&self, max: u64, window: Span, now: Timestamp) -> Option<Decision> {
        let left = |time: Timestamp| Span::from_millis(time.as_millis() - now.as_millis());
        let wait = left(self.until).filter(|_| self.max == max && self.window == window)?;
        Some(Decision { max, remaining: 0, retry: Retry::After(wait), reset_after: left(self.none_from) })
    }
}
