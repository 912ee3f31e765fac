//! What keeps a key from being evicted: it would be allowed more, were it forgotten.

use crate::time::{Span, Timestamp};

/// A key that would be allowed more if it were evicted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Guard {
    pub(super) until: Timestamp,
    /// Whether nothing was left: it never goes. Else it goes after others.
    pub(super) is_full: bool,
}

/// A guard, if there is one, in eight bytes: the time, and in the lowest bit whether nothing was left.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct PackedGuard(u64);

impl Guard {
    /// What is to be known of a key that has so much left of `max`, for `window` at most: with half of it gone the
    /// key goes after others, and with all of it never. `None` when what is known will do: that changes once a
    /// quarter of the window, or when it gets worse, not with each request.
    #[inline]
    pub(super) fn next(
        known: Option<Guard>,
        (left, max): (u64, u64),
        window: Span,
        now: Timestamp,
    ) -> Option<Guard> {
        // Who has used nothing has nothing to lose.
        if left > max / 2 || left >= max {
            return None;
        }
        let guard = Guard { until: now.saturating_add(window), is_full: left == 0 };
        let is_known = known.filter(|known| known.until > now).is_some_and(|known| {
            (known.is_full || !guard.is_full)
                && 4 * (guard.until.as_millis() - known.until.as_millis()) <= window.as_millis()
        });
        (!is_known).then_some(guard)
    }
}

impl PackedGuard {
    #[inline]
    pub(super) fn get(self) -> Option<Guard> {
        let until = Timestamp::from_millis((self.0 >> 1).cast_signed())?;
        (self.0 != 0).then_some(Guard { until, is_full: self.0 & 1 == 1 })
    }

    #[inline]
    pub(super) fn set(&mut self, guard: Option<Guard>) {
        let pack = |guard: Guard| guard.until.as_millis().cast_unsigned() << 1 | u64::from(guard.is_full);
        self.0 = guard.map_or(0, pack);
    }
}
