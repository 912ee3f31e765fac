//! The generic cell rate algorithm, in its virtual-scheduling form (ITU-T I.371, annex A): hits are evenly
//! spaced, and a burst of them may come early.
//!
//! The only state of a key is its theoretical arrival time: when all that it was granted would be used up at
//! an even pace. Time has units of 2^-64 ms. The interval between hits is rounded down to that, so that
//! decisions in whole milliseconds are the same as with exact fractions, for every rate that a millisecond
//! clock can distinguish.

use crate::limit::{Decision, Retry, remaining_of};
use crate::limits::MAX_BURST_MS;
use crate::time::{Span, Timestamp};

/// A rate with a burst, for the generic cell rate algorithm.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rate {
    /// The most hits at once: the burst plus one.
    limit: u64,
    /// The time between hits, never 0: whole milliseconds, and the rest in ticks.
    interval: (u64, u64),
}

impl Rate {
    /// A rate of `count` hits per `period`, spread evenly, with `burst` hits more at once. `None` for a rate of zero, and
    /// for a burst that takes longer than [`MAX_BURST_MS`] at that rate.
    #[must_use]
    pub fn new(burst: u64, count: u64, period: Span) -> Option<Rate> {
        Rate::of_limit(burst.saturating_add(1), count, period)
    }

    /// A rate of `count` hits per `period`, with at most `limit` hits at once: the burst and one more. With a limit of 0
    /// every request is denied. `None` as for [`Rate::new`].
    #[must_use]
    pub fn of_limit(limit: u64, count: u64, period: Span) -> Option<Rate> {
        // For the highest count, a period is at least a tick for each hit.
        let period_ms = period.as_millis().unsigned_abs();
        let (millis, rest) = (period_ms.checked_div(count)?, period_ms % count);
        // Most intervals are whole milliseconds.
        let below = if rest == 0 { 0 } else { (u128::from(rest) << TICK_BITS) / u128::from(count) };
        let interval = whole((millis, 0)) | below;
        let burst_ticks = interval.checked_mul(u128::from(limit)).filter(|_| interval > 0)?;
        (burst_ticks <= ticks(MAX_BURST_MS)).then_some(Rate { limit, interval: parts(interval) })
    }

    /// The most hits at once: the burst and one more.
    #[must_use]
    pub fn limit(self) -> u64 {
        self.limit
    }

    /// The time that the burst takes at the rate, in whole milliseconds, rounded down. A key whose arrival time is further
    /// ahead has used up its burst.
    pub(crate) fn burst_ms(self) -> u64 {
        let burst = self.time_of(self.limit.saturating_sub(1)) >> TICK_BITS;
        u64::try_from(burst).unwrap_or(u64::MAX)
    }

    fn interval(self) -> u128 {
        whole(self.interval)
    }

    /// The number of hits that take this long, rounded up.
    fn hits_in(self, ticks: u128) -> u128 {
        let (millis, below) = self.interval;
        if below == 0 && millis > 0 {
            // The interval is whole milliseconds: no 128-bit division is needed.
            let whole_ms = ticks.div_ceil(1 << TICK_BITS);
            return u64::try_from(whole_ms)
                .map_or_else(|_| whole_ms.div_ceil(u128::from(millis)), |ms| ms.div_ceil(millis).into());
        }
        ticks.div_ceil(self.interval())
    }

    /// The time that `hits` hits take.
    fn time_of(self, hits: u64) -> u128 {
        self.interval().saturating_mul(u128::from(hits))
    }
}

/// A request that a rate decides.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Throttle<'a> {
    /// The key.
    pub key: &'a [u8],
    /// The rate.
    pub rate: Rate,
    /// Hits that the request takes. 0 only asks. A negative number gives room back; hits that were counted stay counted.
    pub quantity: i64,
}

/// The theoretical arrival time of a key: when its allowed hits will be used up at the rate. It is in the past when
/// nothing is used.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub struct Arrival(u128);

impl Arrival {
    /// The time as whole milliseconds since the epoch, and a rest in units of 2^-64 ms.
    #[must_use]
    pub fn to_parts(self) -> (u64, u64) {
        parts(self.0)
    }

    /// The time from the result of [`Arrival::to_parts`].
    #[must_use]
    pub fn from_parts(millis: u64, ticks: u64) -> Arrival {
        Arrival(whole((millis, ticks)))
    }

    /// The time as a short number of whole milliseconds. `None` when it has a rest or is longer.
    #[inline]
    pub(crate) fn to_bytes(self) -> Option<[u8; 6]> {
        let (millis, ticks) = self.to_parts();
        let [a, b, c, d, e, f, 0, 0] = millis.to_le_bytes() else { return None };
        (ticks == 0).then_some([a, b, c, d, e, f])
    }

    /// The time from the result of [`Arrival::to_bytes`].
    #[inline]
    pub(crate) fn from_bytes([a, b, c, d, e, f]: [u8; 6]) -> Arrival {
        Arrival::from_parts(u64::from_le_bytes([a, b, c, d, e, f, 0, 0]), 0)
    }

    /// Whether it is after `now`: the key is limited until then.
    pub(crate) fn is_after(self, now: Timestamp) -> bool {
        self.0 > ticks(now.as_millis())
    }

    /// The time, rounded up to a millisecond.
    pub(crate) fn rounded_up(self) -> Timestamp {
        let millis = i64::try_from(self.0.div_ceil(1 << TICK_BITS)).ok();
        millis.and_then(Timestamp::from_millis).unwrap_or(Timestamp::MAX)
    }
}

const TICK_BITS: u32 = 64;

fn ticks(millis: i64) -> u128 {
    u128::from(millis.unsigned_abs()) << TICK_BITS
}

/// Whole milliseconds, and the rest in ticks.
#[expect(clippy::cast_possible_truncation, reason = "the two halves")]
fn parts(ticks: u128) -> (u64, u64) {
    ((ticks >> TICK_BITS) as u64, ticks as u64)
}

fn whole((millis, ticks): (u64, u64)) -> u128 {
    u128::from(millis) << TICK_BITS | u128::from(ticks)
}

/// A span of this many ticks, rounded up to a millisecond. `None` for 0.
fn span(ticks: u128) -> Option<Span> {
    span_of(u64::try_from(ticks.div_ceil(1 << TICK_BITS)).unwrap_or(u64::MAX))
}

/// A span of this many milliseconds. `None` for 0.
fn span_of(millis: u64) -> Option<Span> {
    let millis = i64::try_from(millis).unwrap_or(i64::MAX);
    if millis > Span::MAX.as_millis() { Some(Span::MAX) } else { Span::from_millis(millis) }
}

/// Decides a request for `quantity` hits. Returns the arrival time after it, too.
#[inline]
pub(crate) fn decide(rate: Rate, arrival: Arrival, quantity: i64, now: Timestamp) -> (Decision, Arrival) {
    let allowed = if quantity == 1 { allow_one(rate, arrival, now) } else { None };
    allowed.unwrap_or_else(|| decide_any(rate, arrival, quantity, now))
}

/// Decides a request for one hit like [`decide`], if it is allowed and all times are whole milliseconds, as most are.
#[inline]
pub(crate) fn allow_one(rate: Rate, arrival: Arrival, now: Timestamp) -> Option<(Decision, Arrival)> {
    let ((interval_ms, 0), (arrival_ms, 0)) = (rate.interval, arrival.to_parts()) else { return None };
    let now_ms = now.as_millis().unsigned_abs();
    let used_ms = arrival_ms.saturating_sub(now_ms);
    let used_ms = used_ms.saturating_add(interval_ms);
    // The product is at most MAX_BURST_MS.
    if used_ms > rate.limit * interval_ms {
        return None;
    }
    let decision = Decision {
        max: rate.limit(),
        remaining: remaining_of(rate.limit().saturating_sub(used_ms.div_ceil(interval_ms))),
        retry: Retry::Now,
        reset_after: span_of(used_ms),
    };
    Some((decision, Arrival::from_parts(now_ms + used_ms, 0)))
}

#[inline(never)]
fn decide_any(rate: Rate, arrival: Arrival, quantity: i64, now: Timestamp) -> (Decision, Arrival) {
    let max = rate.limit();
    let now = ticks(now.as_millis());
    let used = arrival.0.saturating_sub(now);
    let asked = rate.time_of(quantity.unsigned_abs());
    let (retry, used) = if quantity < 0 {
        (Retry::Now, used.saturating_sub(asked))
    } else {
        match max.checked_sub(quantity.unsigned_abs()).map(|room| rate.time_of(room)) {
            None => (Retry::Never, used),
            Some(room) if used <= room => (Retry::Now, used.saturating_add(asked)),
            Some(room) => (span(used - room).map_or(Retry::Now, Retry::After), used),
        }
    };
    let used_hits = u64::try_from(rate.hits_in(used)).unwrap_or(u64::MAX);
    let remaining = remaining_of(max.saturating_sub(used_hits));
    let decision = Decision { max, remaining, retry, reset_after: span(used) };
    let after = if decision.is_allowed() { Arrival(now.saturating_add(used)) } else { arrival };
    (decision, after)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::seconds;

    /// The algorithm in whole numbers: times are in milliseconds times `count`, so that the interval `period
    /// / count` is whole.
    struct Exact {
        count: i128,
        arrival: i128,
    }

    impl Exact {
        /// Whether it is allowed, the remaining hits, the milliseconds until it would be allowed (-1: never),
        /// and the milliseconds until nothing is used.
        fn ask(
            &mut self,
            (burst, period_ms): (i128, i128),
            quantity: i128,
            now_ms: i128,
        ) -> (bool, i128, i128, i128) {
            let (limit, now) = (burst + 1, now_ms * self.count);
            let arrival = self.arrival.max(now);
            let next = (arrival + quantity * period_ms).max(now);
            let early = next - limit * period_ms - now;
            let rounded_up = |scaled: i128| -(-scaled).div_euclid(self.count);
            let (is_allowed, used) =
                if early <= 0 || quantity < 0 { (true, next - now) } else { (false, arrival - now) };
            if is_allowed {
                self.arrival = next;
            }
            let left = (limit * period_ms - used).div_euclid(period_ms).max(0);
            let retry_ms = match is_allowed {
                true => 0,
                false if quantity > limit => -1,
                false => rounded_up(early),
            };
            (is_allowed, left, retry_ms, rounded_up(used))
        }
    }

    proptest::proptest! {
        #[test]
        fn decisions_match_exact_fractions(
            burst in proptest::prop_oneof![0..4_u64, 0..5_000_u64],
            count in proptest::prop_oneof![1..8_u64, 900..1_100_u64, 999_990..3_000_000_u64],
            period_s in 1..90_u64,
            steps in proptest::collection::vec((-3..12_i64, 0..4_u8, 0..2_000_i64), 1..80),
        ) {
            let rate = Rate::new(burst, count, seconds(period_s)).expect("a rate");
            let mut exact = Exact { count: i128::from(count), arrival: 0 };
            let (mut arrival, mut now_ms) = (Arrival::default(), 1_700_000_000_000);
            for (quantity, pace, gap_ms) in steps {
                now_ms += if pace == 0 { gap_ms } else { gap_ms % 3 };
                let quantity = if pace == 3 { quantity * burst.cast_signed().max(1) / 5 } else { quantity };
                let now = Timestamp::from_millis(now_ms).expect("a time");
                let (decision, after) = decide(rate, arrival, quantity, now);
                arrival = after;
                let retry_ms = match decision.retry {
                    Retry::Now => 0,
                    Retry::Never => -1,
                    Retry::After(wait) => i128::from(wait.as_millis()),
                };
                let reset_ms = decision.reset_after.map_or(0, |wait| i128::from(wait.as_millis()));
                let got = (decision.is_allowed(), i128::from(decision.remaining), retry_ms, reset_ms);
                let limits = (i128::from(burst), i128::from(period_s) * 1_000);
                proptest::prop_assert_eq!(got, exact.ask(limits, i128::from(quantity), i128::from(now_ms)));
            }
        }
    }

    #[test]
    fn rates_past_a_million_a_second_are_kept() {
        let rate = Rate::new(0, 4_000_000, seconds(1)).expect("a rate");
        let at = |ms: i64| Timestamp::from_millis(1_700_000_000_000 + ms).expect("a time");
        // The fastest rate of a millisecond clock: one hit each millisecond. And 4,000 at once.
        let (first, arrival) = decide(rate, Arrival::default(), 1, at(0));
        let (second, _) = decide(rate, arrival, 1, at(0));
        assert!(first.is_allowed() && !second.is_allowed());
        let burst = Rate::new(3_999, 4_000_000, seconds(1)).expect("a rate");
        let (mut arrival, mut allowed) = (Arrival::default(), 0);
        for ask in 0..50_000 {
            let (decision, after) = decide(burst, arrival, 1, at(i64::from(ask / 5_000)));
            arrival = after;
            allowed += u32::from(decision.is_allowed());
        }
        assert_eq!(allowed, 40_000);
    }

    #[test]
    fn a_limit_of_zero_allows_nothing() {
        let none = Rate::of_limit(0, 1, seconds(1)).expect("a rate");
        let now = Timestamp::from_millis(1_700_000_000_000).expect("a time");
        let used = decide(Rate::new(4, 1, seconds(1)).expect("a rate"), Arrival::default(), 3, now).1;
        for (arrival, quantity, retry, reset_ms) in [
            (Arrival::default(), 1, Retry::Never, 0),
            (Arrival::default(), 0, Retry::Now, 0),
            (used, 1, Retry::Never, 3_000),
            (used, 0, Retry::After(seconds(3)), 3_000),
            (used, -1, Retry::Now, 2_000),
        ] {
            let (decision, _) = decide(none, arrival, quantity, now);
            assert_eq!((decision.max, decision.remaining, decision.retry), (0, 0, retry), "{quantity}");
            assert_eq!(decision.reset_after.map_or(0, Span::as_millis), reset_ms, "{quantity}");
        }
    }

    #[test]
    fn the_largest_numbers_stay_in_bounds() {
        let most = i64::MAX.unsigned_abs();
        let (first, last) = (Timestamp::MIN, Timestamp::MAX);
        for (burst, count) in [(most, 1), (most, most), (0, most), (0, 1)] {
            let Some(rate) = Rate::new(burst, count, Span::MAX) else {
                assert_eq!((burst, count), (most, 1), "this rate takes longer than the range of time");
                continue;
            };
            for quantity in [0, 1, i64::MAX, i64::MIN] {
                for now in [first, last] {
                    let (decision, after) = decide(rate, Arrival::default(), quantity, now);
                    assert_eq!(decision.max, burst + 1);
                    assert!(decision.remaining >= 0 && decision.left() <= decision.max, "{decision:?}");
                    decide(rate, after, quantity, now);
                }
            }
        }
        assert_eq!(Rate::new(0, 0, Span::MIN), None);
        let parts = Arrival(u128::MAX - 7).to_parts();
        assert_eq!(Arrival::from_parts(parts.0, parts.1), Arrival(u128::MAX - 7));
    }
}
