//! What keeps a key from eviction: with its hits forgotten, a limit would allow it more. Decisions set it, `PEEK` among
//! them; hits that no limit was asked about fill it.

use crate::time::{Span, Timestamp};

/// Protection of a key from eviction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EvictionGuard {
    /// The end of the protection: the hits that the limit counts have left its window by then.
    pub until: Timestamp,
    /// Whether the limit was used up: such a key is never evicted. Others are evicted last.
    pub is_full: bool,
}

/// A guard, if there is one, in eight bytes: the time, and in the lowest bit whether it is full.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct PackedGuard(u64);

impl EvictionGuard {
    /// The guard of a key that has `left` of `max` for `window` at most: from half of it on. `None` when the known
    /// one will do. A guard lasts a quarter of the window longer than it has to, so it changes once in that time, or
    /// when nothing is left, not with each request.
    #[inline]
    pub(super) fn next(
        known: Option<EvictionGuard>,
        (left, max): (u64, u64),
        window: Span,
        now: Timestamp,
    ) -> Option<EvictionGuard> {
        // Who has used nothing has nothing to lose.
        if left > max / 2 || left >= max {
            return None;
        }
        let needed = now.saturating_add(window);
        let is_full = left == 0;
        let is_known = known.is_some_and(|known| known.until >= needed && (known.is_full || !is_full));
        let spare = Span::from_millis(window.as_millis() / 4).unwrap_or(Span::MIN);
        (!is_known).then_some(EvictionGuard { until: needed.saturating_add(spare), is_full })
    }
}

impl EvictionGuard {
    /// In one number, which is not 0.
    #[inline]
    pub(crate) fn to_number(self) -> u64 {
        (self.until.as_millis().cast_unsigned() << 1 | u64::from(self.is_full)).max(1)
    }

    /// The guard that [`EvictionGuard::to_number`] gave this number for.
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
