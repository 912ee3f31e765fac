//! Eviction guards: if a key were evicted, its limit would allow more. Decisions set the guard, also those of
//! `PEEK`. Hits without a limit mark it full.

use crate::time::{Span, Timestamp};

/// Protection of a key from eviction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EvictionGuard {
    /// The end of the protection: the hits that the limit counts have left its window by then.
    pub until: Timestamp,
    /// Whether the limit was used up: such a key is never evicted. Others are evicted last.
    pub is_full: bool,
}

/// An optional guard in eight bytes: the time, and in the lowest bit whether it is full.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct PackedGuard(u64);

impl EvictionGuard {
    /// The new guard of a key that has `left` of `max` hits left, for `window` at most. Keys get one when
    /// half of the limit is used. `None` if the known guard is sufficient. A guard lasts a quarter of the
    /// window longer than needed, so that it changes once in that time, or when the limit is used up, and not
    /// with each request.
    #[inline]
    pub(super) fn next(
        known: Option<EvictionGuard>,
        (left, max): (u64, u64),
        window: Span,
        now: Timestamp,
    ) -> Option<EvictionGuard> {
        // The limit is mostly unused: eviction would gain nothing.
        if left > max / 2 || left >= max {
            return None;
        }
        let needed = now.saturating_add(window);
        let is_full = left == 0;
        let is_known = known.is_some_and(|known| known.until >= needed && (known.is_full || !is_full));
        let extra = Span::from_millis(window.as_millis() / 4).unwrap_or(Span::MIN);
        (!is_known).then_some(EvictionGuard { until: needed.saturating_add(extra), is_full })
    }
}

impl EvictionGuard {
    /// The guard as a number, which is not 0.
    #[inline]
    pub(crate) fn to_number(self) -> u64 {
        (self.until.as_millis().cast_unsigned() << 1 | u64::from(self.is_full)).max(1)
    }

    /// The inverse of [`EvictionGuard::to_number`].
    #[inline]
    pub(crate) fn from_number(number: u64) -> Option<EvictionGuard> {
        let until = Timestamp::from_millis((number >> 1).cast_signed())?;
        (number != 0).then_some(EvictionGuard { until, is_full: number & 1 == 1 })
    }
}

impl PackedGuard {
    #[inline]
    pub(super) fn get(self) -> Option<EvictionGuard> {
        EvictionGuard::from_number(self.0)
    }

    #[inline]
    pub(super) fn set(&mut self, guard: Option<EvictionGuard>) {
        self.0 = guard.map_or(0, EvictionGuard::to_number);
    }
}
