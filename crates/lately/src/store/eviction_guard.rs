//! Eviction guards. If a key with a used-up limit were evicted, the limit would allow more. So decisions, also those
//! of `PEEK`, note on the key which limit is nearly used up. Eviction then reads the key's hits: a key whose limit is
//! used up at that moment stays, whoever counted the hits.

use crate::gcra::{Arrival, Rate};
use crate::time::{Span, Timestamp};

/// What protects a key from eviction.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct EvictionGuard {
    /// The limit of a window that was half used or more.
    pub limit: Option<LimitGuard>,
    /// The rate that was half used or more.
    pub rate: Option<RateGuard>,
}

/// The limit of a window that a key has half used. After several such limits it is as strict as all of them: it has
/// the lowest `max` and the longest window.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LimitGuard {
    max: u64,
    window: Span,
}

/// Protection because of a rate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RateGuard {
    /// The least of the bursts of these rates, in milliseconds at their pace. It is used up when the key's arrival time is
    /// further ahead.
    Burst {
        /// The milliseconds.
        ms: u64,
    },
    /// Protection until a time. It is read from older files, and no longer written.
    Until {
        /// The end.
        until: Timestamp,
        /// Whether the limit was used up: such a key is never evicted. Others are evicted last.
        is_full: bool,
    },
}

/// How well a key is protected.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Protection {
    /// Not at all.
    Nothing,
    /// A limit is half used: the key is evicted after all others.
    Near,
    /// A limit is used up, or the key is locked out: the key is never evicted.
    Held,
}

/// An optional guard of a limit in eight bytes.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct PackedLimitGuard(u64);

/// An optional guard of a rate in eight bytes. Those with a time have, in the lowest bit, whether it is full.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct PackedRateGuard(u64);

/// Whether nothing would be gained by a guard: the limit is mostly unused.
#[inline]
fn is_mostly_unused((left, max): (u64, u64)) -> bool {
    left > max / 2 || left >= max
}

impl EvictionGuard {
    pub(crate) fn is_none(self) -> bool {
        self == EvictionGuard::default()
    }

    /// The guard without what has ended.
    pub(super) fn in_force(self, now: Timestamp) -> EvictionGuard {
        let is_over = |rate: &RateGuard| matches!(*rate, RateGuard::Until { until, .. } if until <= now);
        EvictionGuard { rate: self.rate.filter(|rate| !is_over(rate)), ..self }
    }

    /// Both guards in one.
    pub(super) fn with(self, other: EvictionGuard) -> EvictionGuard {
        let limit = match (self.limit, other.limit) {
            (Some(one), Some(other)) => Some(one.with(other)),
            (one, other) => one.or(other),
        };
        let rate = match (self.rate, other.rate) {
            (Some(one), Some(other)) => Some(one.with(other)),
            (one, other) => one.or(other),
        };
        EvictionGuard { limit, rate }
    }

    /// The guard as numbers. A guard of a limit is followed by that of a rate, which may be 0. A guard of a rate may
    /// come alone, as all did before there were guards of limits.
    pub(crate) fn to_numbers(self) -> (u64, Option<u64>) {
        let rate = PackedRateGuard::new(self.rate).0;
        match PackedLimitGuard::new(self.limit).0 {
            0 => (rate, None),
            limit => (limit, Some(rate)),
        }
    }

    /// The inverse of [`EvictionGuard::to_numbers`]. `next` returns the next number.
    pub(crate) fn from_numbers(mut next: impl FnMut() -> Option<u64>) -> Option<EvictionGuard> {
        let mut rate = next()?;
        let mut limit = 0;
        if rate >= LIMIT {
            (limit, rate) = (rate, next()?);
        }
        let guard = EvictionGuard {
            limit: PackedLimitGuard(limit).get(),
            rate: PackedRateGuard::checked(rate)?.get(),
        };
        let is_valid = guard.limit.is_some() == (limit != 0) && !guard.is_none();
        is_valid.then_some(guard)
    }
}

impl LimitGuard {
    /// A guard of a limit. A `max` that does not fit is rounded down, which protects more.
    #[inline]
    pub(crate) fn new(max: u64, window: Span) -> LimitGuard {
        let spare_bits = (u64::BITS - max.leading_zeros()).saturating_sub(MANTISSA_BITS);
        LimitGuard { max: max >> spare_bits << spare_bits, window }
    }

    /// The new guard of a key that has `left` of `max` hits left in a window. Keys get one when half of the limit is
    /// used. `None` if the known guard is sufficient.
    #[inline]
    pub(super) fn next(
        known: Option<LimitGuard>,
        (left, max): (u64, u64),
        window: Span,
    ) -> Option<LimitGuard> {
        if is_mostly_unused((left, max)) {
            return None;
        }
        let wanted = LimitGuard::new(max, window);
        let next = known.map_or(wanted, |known| known.with(wanted));
        (known != Some(next)).then_some(next)
    }

    #[inline]
    fn with(self, other: LimitGuard) -> LimitGuard {
        LimitGuard { max: self.max.min(other.max), window: self.window.max(other.window) }
    }

    /// The window whose hits count.
    pub(super) fn window(self) -> Span {
        self.window
    }

    /// How well it protects a key that has used so much of it.
    pub(super) fn protection(self, used: u64) -> Protection {
        match self.max.saturating_sub(used) {
            0 => Protection::Held,
            left if is_mostly_unused((left, self.max)) => Protection::Nothing,
            _ => Protection::Near,
        }
    }
}

impl RateGuard {
    /// The new guard of a key that has `left` of `max` hits left by this rate. Keys get one when half of the burst is used.
    /// `None` if the known guard is sufficient.
    #[inline]
    pub(super) fn next(
        known: Option<RateGuard>,
        left_of_max: (u64, u64),
        rate: Rate,
        now: Timestamp,
    ) -> Option<RateGuard> {
        if is_mostly_unused(left_of_max) {
            return None;
        }
        let wanted = RateGuard::Burst { ms: rate.burst_ms().min(LONGEST_BURST_MS) };
        let known = EvictionGuard { limit: None, rate: known }.in_force(now).rate;
        let next = known.map_or(wanted, |known| known.with(wanted));
        (known != Some(next)).then_some(next)
    }

    fn with(self, other: RateGuard) -> RateGuard {
        match (self, other) {
            (RateGuard::Burst { ms: one }, RateGuard::Burst { ms: other }) => {
                RateGuard::Burst { ms: one.min(other) }
            }
            (
                RateGuard::Until { until: one, is_full: is_one },
                RateGuard::Until { until: other, is_full: is_other },
            ) => RateGuard::Until { until: one.max(other), is_full: is_one || is_other },
            // The key is held until that time. A later decision adds the burst.
            (full @ RateGuard::Until { is_full: true, .. }, _)
            | (_, full @ RateGuard::Until { is_full: true, .. }) => full,
            (burst @ RateGuard::Burst { .. }, _) | (_, burst) => burst,
        }
    }

    /// How well it protects a key with this arrival time.
    pub(super) fn protection(self, arrival: Arrival, now: Timestamp) -> Protection {
        match self {
            RateGuard::Burst { ms } => {
                let ahead_ms = arrival.rounded_up().as_millis() - now.as_millis();
                match u64::try_from(ahead_ms) {
                    Err(_) | Ok(0) => Protection::Nothing,
                    Ok(ahead_ms) if ahead_ms > ms => Protection::Held,
                    Ok(_) => Protection::Near,
                }
            }
            RateGuard::Until { until, .. } if until <= now => Protection::Nothing,
            RateGuard::Until { is_full: true, .. } => Protection::Held,
            RateGuard::Until { .. } => Protection::Near,
        }
    }
}

/// The bit of a packed guard that says that it is one of a limit. Those of rates are lower numbers.
const LIMIT: u64 = 1 << 60;
/// A longer burst is cut to this, which protects more. Arrival times are rounded down to the last time there is.
const LONGEST_BURST_MS: u64 = Timestamp::MAX.as_millis().cast_unsigned() / 2;
/// The bit of a packed guard of a rate that says that it is a burst. Times are lower numbers.
const BURST: u64 = 1 << 59;
/// A packed guard of a limit has its window in milliseconds, the exponent of its `max`, and the mantissa.
const WINDOW_BITS: u32 = 40;
const EXPONENT_BITS: u32 = 6;
const MANTISSA_BITS: u32 = u64::BITS - 4 - WINDOW_BITS - EXPONENT_BITS;
const _: () = assert!(Span::MAX.as_millis() < 1 << WINDOW_BITS);

impl PackedLimitGuard {
    #[inline]
    fn new(guard: Option<LimitGuard>) -> PackedLimitGuard {
        PackedLimitGuard(guard.map_or(0, |LimitGuard { max, window }| {
            let exponent = (u64::BITS - max.leading_zeros()).saturating_sub(MANTISSA_BITS);
            let max = u64::from(exponent) << MANTISSA_BITS | max >> exponent;
            LIMIT | window.as_millis().cast_unsigned() << (EXPONENT_BITS + MANTISSA_BITS) | max
        }))
    }

    #[inline]
    pub(super) fn get(self) -> Option<LimitGuard> {
        let window_ms = (self.0 & (LIMIT - 1)) >> (EXPONENT_BITS + MANTISSA_BITS);
        let mantissa = self.0 & ((1 << MANTISSA_BITS) - 1);
        let exponent = self.0 >> MANTISSA_BITS & ((1 << EXPONENT_BITS) - 1);
        let max = mantissa << exponent;
        // A larger exponent is of no number that fits.
        let is_number = exponent <= u64::from(u64::BITS - MANTISSA_BITS);
        let window = Span::from_millis(window_ms.cast_signed())?;
        (self.0 & LIMIT != 0 && is_number).then_some(LimitGuard { max, window })
    }

    #[inline]
    pub(super) fn set(&mut self, guard: Option<LimitGuard>) {
        *self = PackedLimitGuard::new(guard);
    }
}

impl PackedRateGuard {
    #[inline]
    fn new(guard: Option<RateGuard>) -> PackedRateGuard {
        PackedRateGuard(match guard {
            None => 0,
            Some(RateGuard::Burst { ms }) => BURST | ms,
            Some(RateGuard::Until { until, is_full }) => {
                (until.as_millis().cast_unsigned() << 1 | u64::from(is_full)).max(1)
            }
        })
    }

    /// A number from outside. `None` if it is no guard.
    fn checked(number: u64) -> Option<PackedRateGuard> {
        let packed = PackedRateGuard(number);
        let is_guard = number < LIMIT && packed.get().is_some();
        (number == 0 || is_guard).then_some(packed)
    }

    #[inline]
    pub(super) fn get(self) -> Option<RateGuard> {
        if self.0 & BURST != 0 {
            return Some(RateGuard::Burst { ms: self.0 & (BURST - 1) });
        }
        let until = Timestamp::from_millis((self.0 >> 1).cast_signed())?;
        (self.0 != 0).then_some(RateGuard::Until { until, is_full: self.0 & 1 == 1 })
    }

    #[inline]
    pub(super) fn set(&mut self, guard: Option<RateGuard>) {
        *self = PackedRateGuard::new(guard);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::number::Number;
    use crate::time::seconds;

    fn numbers(guard: EvictionGuard) -> Vec<u64> {
        let (first, second) = guard.to_numbers();
        [first].into_iter().chain(second).collect()
    }

    fn read(numbers: &[u64]) -> Option<EvictionGuard> {
        let mut numbers = numbers.iter().copied();
        EvictionGuard::from_numbers(|| numbers.next())
    }

    #[test]
    fn guards_round_trip() {
        let limits = [0, 1, 5, (1 << MANTISSA_BITS) - 1, 1 << MANTISSA_BITS, u64::MAX]
            .into_iter()
            .flat_map(|max| [Span::MIN, seconds(60), Span::MAX].map(|window| LimitGuard::new(max, window)));
        let rates = [Timestamp::from_millis(1), Some(Timestamp::MAX)]
            .into_iter()
            .flatten()
            .flat_map(|until| [false, true].map(|is_full| RateGuard::Until { until, is_full }))
            .chain([0, 7, LONGEST_BURST_MS].map(|ms| RateGuard::Burst { ms }));
        for limit in limits.map(Some).chain([None]) {
            for rate in rates.clone().map(Some).chain([None]) {
                let guard = EvictionGuard { limit, rate };
                let numbers = numbers(guard);
                assert!(numbers.iter().all(|&number| number <= Number::MAX), "{guard:?}");
                assert_eq!(read(&numbers), Some(guard).filter(|guard| !guard.is_none()));
            }
        }
    }

    #[test]
    fn a_max_that_does_not_fit_is_rounded_down() {
        for max in [100_000, 1 << 40 | 1, u64::MAX] {
            let rounded = LimitGuard::new(max, seconds(1)).max;
            assert!(rounded <= max && max - rounded <= max >> (MANTISSA_BITS - 1), "{max}");
        }
        assert_eq!(LimitGuard::new((1 << MANTISSA_BITS) - 1, seconds(1)).max, (1 << MANTISSA_BITS) - 1);
    }

    #[test]
    fn what_is_no_guard_is_refused() {
        for numbers in [&[][..], &[0], &[LIMIT], &[LIMIT, 0], &[LIMIT | 1, 0], &[u64::MAX, 0], &[1 << 58]] {
            assert_eq!(read(numbers), None, "{numbers:?}");
        }
    }

    #[test]
    fn a_guard_is_as_strict_as_all_its_limits() {
        let (minute, day) = (seconds(60), crate::time::days(1));
        assert_eq!(LimitGuard::next(None, (3, 5), minute), None);
        let guard = LimitGuard::next(None, (2, 5), minute);
        assert_eq!(guard, Some(LimitGuard { max: 5, window: minute }));
        assert_eq!(LimitGuard::next(guard, (0, 5), minute), None);
        let both = LimitGuard::next(guard, (50, 100), day);
        assert_eq!(both, Some(LimitGuard { max: 5, window: day }));
        assert_eq!(LimitGuard::next(both, (0, 5), minute), None);
    }

    #[test]
    fn a_used_up_burst_is_held_until_it_is_not() {
        let at = |seconds| Timestamp::from_seconds(seconds).expect("a time");
        let arrival = |seconds: u64| Arrival::from_parts(1_000 * seconds, 0);
        let rate = |burst, period| crate::gcra::Rate::new(burst, 1, seconds(period)).expect("a rate");
        assert_eq!(RateGuard::next(None, (3, 4), rate(3, 10), at(0)), None);
        let guard = RateGuard::next(None, (2, 4), rate(3, 10), at(0)).expect("half is used");
        assert_eq!(guard, RateGuard::Burst { ms: 30_000 });
        // Four hits were admitted at 100 s: the next one is at 110 s.
        let of = |now| guard.protection(arrival(140), at(now));
        assert_eq!([100, 109, 110, 139, 140].map(of), {
            use Protection::{Held, Near, Nothing};
            [Held, Held, Near, Near, Nothing]
        });
        // A rate with a larger burst is not used up, but the other is.
        let both = RateGuard::next(Some(guard), (500, 1_000), rate(999, 10), at(0));
        assert_eq!(both, None);
        let old = RateGuard::Until { until: at(50), is_full: true };
        assert_eq!(RateGuard::next(Some(old), (2, 4), rate(3, 10), at(49)), None);
        assert_eq!(RateGuard::next(Some(old), (2, 4), rate(3, 10), at(50)), Some(guard));
    }
}
