//! Converts times to pane numbers without a division, which would be a large part of the cost of a hit.

use crate::time::{Span, Timestamp};

/// Times are below 2^48 ms, which is after the end of the year 9999.
const TIME_BITS: u32 = 48;
const _: () = assert!(Timestamp::MAX.as_millis() < 1 << TIME_BITS);

/// Numbers the panes of one width.
#[derive(Clone, Copy, Debug)]
pub(super) struct PanesOfTime {
    /// 2^(48 + shift) / width, rounded up. The product with a time is too large by less than width / 2^shift,
    /// which is at most one, of 2^48 parts of a pane. That never reaches the next pane.
    reciprocal: u64,
    shift: u32,
    width_ms: u64,
}

impl PanesOfTime {
    pub(super) fn new(width: Span) -> PanesOfTime {
        let width_ms = width.as_millis().unsigned_abs();
        let shift = width_ms.next_power_of_two().trailing_zeros();
        let reciprocal = (1_u128 << (TIME_BITS + shift)).div_ceil(u128::from(width_ms));
        let reciprocal =
            u64::try_from(reciprocal).expect("at most 2^49: the width is more than half of 2^shift");
        PanesOfTime { reciprocal, shift, width_ms }
    }

    /// The number of the pane that holds `at`.
    #[inline]
    pub(super) fn pane_of(&self, at: Timestamp) -> u64 {
        let scaled = at.as_millis().cast_unsigned() << (u64::BITS - TIME_BITS);
        let product = u128::from(scaled) * u128::from(self.reciprocal);
        let high = (product >> u64::BITS) as u64;
        high >> self.shift
    }

    /// The width of a pane.
    #[inline]
    pub(super) fn width_ms(&self) -> u64 {
        self.width_ms
    }

    /// `span` in panes, rounded up.
    pub(super) fn panes_in(&self, span: Span) -> u64 {
        span.as_millis().unsigned_abs().div_ceil(self.width_ms)
    }

    /// The start of `pane`; the latest time for panes past it.
    pub(super) fn start_of(&self, pane: u64) -> Timestamp {
        let start_ms = pane.checked_mul(self.width_ms).and_then(|ms| i64::try_from(ms).ok());
        start_ms.and_then(Timestamp::from_millis).unwrap_or(Timestamp::MAX)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::ladder::RUNGS_MS;

    fn check(time_ms: i64) {
        let at = Timestamp::from_millis(time_ms).expect("a time");
        for width_ms in RUNGS_MS {
            let panes = PanesOfTime::new(Span::from_millis(width_ms).expect("a rung"));
            assert_eq!(panes.pane_of(at), (time_ms / width_ms).unsigned_abs(), "{time_ms} by {width_ms}");
        }
    }

    #[test]
    fn panes_at_both_sides_of_borders() {
        let last = Timestamp::MAX.as_millis();
        for width_ms in RUNGS_MS {
            for border in [0, 1, 1_000, last / width_ms / 2, last / width_ms].map(|pane| pane * width_ms) {
                for time_ms in [border - 1, border, border + 1] {
                    check(time_ms.clamp(0, last));
                }
            }
        }
    }

    proptest! {
        #[test]
        fn panes_are_quotients(time_ms in 0..=Timestamp::MAX.as_millis()) {
            check(time_ms);
        }
    }

    #[test]
    fn starts_and_lengths() {
        let panes = PanesOfTime::new(crate::seconds(10));
        assert_eq!(panes.panes_in(crate::milliseconds(1)), 1);
        assert_eq!(panes.panes_in(crate::seconds(300)), 30);
        assert_eq!(panes.panes_in(crate::milliseconds(300_001)), 31);
        assert_eq!(panes.start_of(3).as_millis(), 30_000);
        assert_eq!(panes.start_of(u64::MAX), Timestamp::MAX);
    }
}
