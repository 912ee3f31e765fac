//! Division by a known number, without a division instruction: each hit needs the pane of its time.

/// Divides times. A time is multiplied by the reciprocal, which has 64 bits and is rounded up (T. Granlund
/// and P. Montgomery, Division by Invariant Integers using Multiplication, 1994).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Divisor {
    /// 2^(64 + shift) over twice the divisor.
    reciprocal: u64,
    shift: u32,
}

/// More than any time in milliseconds.
const MAX_TIME: u64 = 1 << 48;
const MAX_DIVISOR: u64 = 1 << 32;

impl Divisor {
    /// # Panics
    /// If the number is not in 1 to 2^32. The width of a pane always is.
    pub(crate) fn new(divisor: i64) -> Divisor {
        let divisor = u64::try_from(divisor).ok().filter(|divisor| (1..=MAX_DIVISOR).contains(divisor));
        // Twice the number, so that it is not 1. It is above 2^shift and at most 2^(shift + 1), so the
        // reciprocal fits. The reciprocal is too large by less than 2^-64 of itself for each 2^63, and times
        // are far below that.
        let twice = 2 * divisor.expect("a width of panes");
        let shift = (twice - 1).ilog2();
        let reciprocal = (1_u128 << (64 + shift)).div_ceil(twice.into());
        Divisor { reciprocal: u64::try_from(reciprocal).expect("at most 2^64 over a little more"), shift }
    }

    /// A time divided by the divisor, rounded down.
    #[inline]
    pub(crate) fn quotient(self, time_ms: i64) -> i64 {
        debug_assert!((0..MAX_TIME.cast_signed()).contains(&time_ms), "{time_ms} is no time");
        let product = u128::from(2 * time_ms.cast_unsigned()) * u128::from(self.reciprocal);
        ((product >> 64) as u64 >> self.shift).cast_signed()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::ladder::RUNGS_MS;
    use crate::time::Timestamp;

    proptest! {
        #[test]
        fn quotients_equal_a_division(
            divisor in prop_oneof![prop::sample::select(&RUNGS_MS[..]), 1..=MAX_DIVISOR.cast_signed()],
            time in 0..MAX_TIME.cast_signed(),
            step in -2..3_i64,
        ) {
            let divisor = divisor.min(MAX_DIVISOR.cast_signed());
            let border = (time / divisor * divisor + step).clamp(0, MAX_TIME.cast_signed() - 1);
            for time in [time, border, 0, Timestamp::MAX.as_millis()] {
                prop_assert_eq!(Divisor::new(divisor).quotient(time), time / divisor, "{} / {}", time, divisor);
            }
        }
    }
}
