//! Eviction guards. If a key with a used-up limit were evicted, the limit would allow more. So decisions, also those
//! of `PEEK`, note on the key which limit is nearly used up. Eviction then reads the key's hits: a key whose limit is
//! used up at that moment stays, whoever counted the hits.

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
pub struct RateGuard {
    /// The end of the protection: the burst is over by then.
    pub until: Timestamp,
    /// Whether the burst was used up: such a key is never evicted. Others are evicted last.
    pub is_full: bool,
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

/// An optional guard of a rate in eight bytes: the time, and in the lowest bit whether it is full.
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
        EvictionGuard { rate: self.rate.filter(|rate| rate.until > now), ..self }
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
    /// The new guard of a key that has `left` of `max` hits left, until `burst_ends` from now. Keys get one when half
    /// of the burst is used. `None` if the known guard is sufficient. A guard lasts a quarter longer than needed, so
    /// that it changes once in that time, or when the burst is used up, and not with each request.
    #[inline]
    pub(super) fn next(
        known: Option<RateGuard>,
        left_of_max: (u64, u64),
        burst_ends: Span,
        now: Timestamp,
    ) -> Option<RateGuard> {
        if is_mostly_unused(left_of_max) {
            return None;
        }
        let needed = now.saturating_add(burst_ends);
        let known = known.filter(|known| known.until > now);
        let is_full = left_of_max.0 == 0;
        let is_sufficient = known.is_some_and(|known| known.until >= needed && (known.is_full || !is_full));
        let extra = Span::from_millis(burst_ends.as_millis() / 4).unwrap_or(Span::MIN);
        let wanted = RateGuard { until: needed.saturating_add(extra), is_full };
        (!is_sufficient).then(|| known.map_or(wanted, |known| known.with(wanted)))
    }

    fn with(self, other: RateGuard) -> RateGuard {
        RateGuard { until: self.until.max(other.until), is_full: self.is_full || other.is_full }
    }

    /// How well it protects a key.
    pub(super) fn protection(self, now: Timestamp) -> Protection {
        match self {
            RateGuard { until, .. } if until <= now => Protection::Nothing,
            RateGuard { is_full: true, .. } => Protection::Held,
            _ => Protection::Near,
        }
    }
}

/// The bit of a packed guard that says that it is one of a limit. Those of rates are lower numbers.
const LIMIT: u64 = 1 << 60;
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
        PackedRateGuard(guard.map_or(0, |RateGuard { until, is_full }| {
            (until.as_millis().cast_unsigned() << 1 | u64::from(is_full)).max(1)
        }))
    }

    /// A number from outside. `None` if it is no guard.
    fn checked(number: u64) -> Option<PackedRateGuard> {
        let packed = PackedRateGuard(number);
        (number == 0 || packed.get().is_some()).then_some(packed)
    }

    #[inline]
    pub(super) fn get(self) -> Option<RateGuard> {
        let until = Timestamp::from_millis((self.0 >> 1).cast_signed())?;
        (self.0 != 0).then_some(RateGuard { until, is_full: self.0 & 1 == 1 })
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
        let rates = [Timestamp::MIN, Timestamp::MAX]
            .into_iter()
            .flat_map(|until| [false, true].map(|is_full| RateGuard { until, is_full }));
        for limit in limits.map(Some).chain([None]) {
            for rate in rates.clone().map(Some).chain([None]) {
                let guard = EvictionGuard { limit, rate };
                let numbers = numbers(guard);
                assert!(numbers.iter().all(|&number| number <= Number::MAX), "{guard:?}");
                if guard.is_none() || rate.is_some_and(|rate| rate.until == Timestamp::MIN) {
                    continue;
                }
                assert_eq!(read(&numbers), Some(guard));
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
        for numbers in [&[][..], &[0], &[LIMIT], &[LIMIT, 0], &[LIMIT | 1, 0], &[u64::MAX, 0], &[1 << 59]] {
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
    fn a_used_up_burst_stays_protected() {
        let at = |seconds| Timestamp::from_seconds(seconds).expect("a time");
        let full = RateGuard::next(None, (0, 1), seconds(8), at(100));
        assert_eq!(full, Some(RateGuard { until: at(110), is_full: true }));
        let longer = RateGuard::next(full, (50, 100), seconds(80), at(105));
        assert_eq!(longer, Some(RateGuard { until: at(205), is_full: true }));
        let later = RateGuard::next(full, (50, 100), seconds(80), at(110));
        assert_eq!(later, Some(RateGuard { until: at(210), is_full: false }));
    }
}
