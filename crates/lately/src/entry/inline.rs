//! A few moments in fifteen bytes, beside the key: the form of most keys.
//!
//! The time of the newest moment in six bytes, then numbers: its hits; then for each older moment the
//! gap to the newer one and a bit that says whether it has more than one hit, then its hits if it
//! has. A zero ends them, as the end of the bytes does. Adding to the newest, or a newer one, shifts
//! the rest and reads none of it.

use super::moment::Moment;
use crate::number::Number;

const BYTES: usize = 15;
const TIME_BITS: usize = 48;
const TIME_MASK: u64 = (1 << TIME_BITS) - 1;
/// Bytes of the numbers.
const NUMBERS: usize = BYTES - TIME_BITS / 8;
/// More hits than this in a moment are kept elsewhere, so that totals need no look.
const MAX_HITS: u64 = u32::MAX as u64;
/// The most hits in a number of one byte.
const MAX_BYTE_HITS: u64 = Number::MAX_BYTE as u64;
/// The most hits that fit.
pub(super) const MAX_TOTAL: u64 = MAX_HITS * NUMBERS as u64;

/// A few moments.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Inline([u8; BYTES]);

/// The moments, newest first: the next one, and the numbers of those after it.
#[derive(Clone, Copy, Default)]
pub(super) struct Moments {
    at_ms: i64,
    /// 0 when there is none.
    hits: u64,
    rest: u64,
}

impl Inline {
    /// The first eight bytes and the last: they share one.
    #[inline]
    fn halves(&self) -> (u64, u64) {
        let half = |bytes: Option<&[u8; 8]>| u64::from_le_bytes(*bytes.expect("there are fifteen bytes"));
        (half(self.0.first_chunk()), half(self.0.last_chunk()))
    }

    /// The moments, newest first.
    #[inline]
    pub(super) fn moments(&self) -> Moments {
        let (first, last) = self.halves();
        // The first number takes a byte at least, so what follows it fits a word.
        let (hits, len) = Number::read(first >> TIME_BITS & 0xff | last << 8);
        let rest = last >> (8 * (len - 1));
        Moments { at_ms: (first & TIME_MASK).cast_signed(), hits, rest }
    }

    /// The moments, oldest first.
    pub(super) fn oldest_first(&self) -> impl Iterator<Item = Moment> + use<> {
        let mut list = [Moment::default(); NUMBERS];
        let mut len = 0;
        for moment in self.moments() {
            list[len] = moment;
            len += 1;
        }
        list[..len].reverse();
        list.into_iter().take(len)
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.0[BYTES - NUMBERS] == 0
    }

    /// The time of the newest moment; 0 when there is none.
    #[inline]
    pub(super) fn newest_ms(&self) -> i64 {
        (self.halves().0 & TIME_MASK).cast_signed()
    }

    pub(super) fn total(&self) -> u64 {
        self.moments().map(|moment| moment.hits).sum()
    }

    /// Hits from `from_ms` on and before `to_ms`.
    #[inline]
    pub(super) fn sum(&self, from_ms: i64, to_ms: i64) -> u64 {
        self.moments().sum_between(from_ms, to_ms)
    }

    /// Adds hits; false, and nothing changes, when they do not fit.
    #[inline]
    pub(super) fn add(&mut self, moment: Moment) -> bool {
        let held = self.moments();
        if moment.at_ms < held.at_ms && held.hits > 0 {
            return self.insert(moment);
        }
        held.with(moment).is_some_and(|moments| self.set(moments))
    }

    /// Adds hits that are the newest, and gives those from `from_ms` on; `None`, and nothing changes, when
    /// it takes more work. This is what most hits are: no branch but the last depends on how many bytes
    /// a number has.
    #[inline(always)]
    pub(super) fn hit(&mut self, at_ms: i64, weight: u64, from_ms: i64) -> Option<u64> {
        let (first, last) = self.halves();
        let newest = first >> TIME_BITS & 0xff;
        let gap_ms = at_ms - (first & TIME_MASK).cast_signed();
        if newest == 0 || gap_ms < 0 || weight > MAX_BYTE_HITS {
            return None;
        }
        let (hits, rest) = if gap_ms == 0 {
            let is_byte = newest & 7 == 0 && (newest >> 3) + weight <= MAX_BYTE_HITS;
            is_byte.then_some(((newest >> 3) + weight, last))?
        } else {
            let is_one = newest == u64::from(Number::ONE_BYTE);
            let (number, lost) = if is_one { (last, 0) } else { (last << 8 | newest, last >> 56) };
            let gap = Number::new(gap_ms.cast_unsigned() << 1 | u64::from(!is_one));
            (weight, before(number, gap).filter(|_| lost == 0)?)
        };
        self.write(at_ms, hits << 3, rest);
        Some(Moments { at_ms, hits, rest }.sum_from(from_ms))
    }

    /// Holds these moments; false, and nothing changes, when they do not fit.
    #[inline]
    fn set(&mut self, Moments { at_ms, hits, rest }: Moments) -> bool {
        let hits = Number::new(hits);
        let (first, last) = (hits.word & 0xff, rest << (8 * (hits.len - 1)) | hits.word >> 8);
        if (rest.leading_zeros() as usize) < 8 * (hits.len - 1) {
            return false;
        }
        self.write(at_ms, first, last);
        true
    }

    /// Writes the time, the first byte of the numbers, and those after it.
    #[inline]
    fn write(&mut self, at_ms: i64, byte: u64, rest: u64) {
        let first = at_ms.cast_unsigned() | byte << TIME_BITS | rest << (TIME_BITS + 8);
        self.0[BYTES - 8..].copy_from_slice(&rest.to_le_bytes());
        self.0[..8].copy_from_slice(&first.to_le_bytes());
    }

    /// Adds hits earlier than the newest.
    #[cold]
    fn insert(&mut self, moment: Moment) -> bool {
        let mut all = Inline::default();
        let earlier = self.oldest_first().filter(|held| held.at_ms < moment.at_ms);
        let later = self.oldest_first().filter(|held| held.at_ms >= moment.at_ms);
        let fits = earlier.chain([moment]).chain(later).all(|moment| all.add(moment));
        if fits {
            *self = all;
        }
        fits
    }

    /// Drops moments before `from_ms`.
    pub(super) fn drop_before(&mut self, from_ms: i64) {
        if self.moments().all(|moment| moment.at_ms >= from_ms) {
            return;
        }
        let mut kept = Inline::default();
        for moment in self.oldest_first().filter(|moment| moment.at_ms >= from_ms) {
            assert!(kept.add(moment), "fewer moments take fewer bytes");
        }
        *self = kept;
    }
}

impl Moments {
    /// These with one more that is not before the newest; `None` when they do not fit.
    #[inline]
    fn with(self, Moment { at_ms, hits }: Moment) -> Option<Moments> {
        if at_ms == self.at_ms || self.hits == 0 {
            let hits = self.hits.checked_add(hits).filter(|&hits| hits <= MAX_HITS)?;
            return Some(Moments { at_ms, hits, rest: self.rest });
        }
        let has_hits = self.hits > 1;
        let rest = if has_hits { before(self.rest, Number::new(self.hits))? } else { self.rest };
        let gap_ms = (at_ms - self.at_ms).cast_unsigned();
        let rest = before(rest, Number::new(gap_ms << 1 | u64::from(has_hits)))?;
        (hits <= MAX_HITS).then_some(Moments { at_ms, hits, rest })
    }

    /// Hits from `from_ms` on, the newest among them: what each hit asks.
    #[inline(always)]
    fn sum_from(mut self, from_ms: i64) -> u64 {
        let mut sum = self.hits;
        if self.rest == 0 {
            return sum;
        }
        // To guess how many moments there are would take longer than to look for a second one in any case.
        loop {
            self.step();
            sum += if self.at_ms < from_ms { 0 } else { self.hits };
            if self.rest == 0 || self.at_ms < from_ms {
                return sum;
            }
        }
    }

    #[inline]
    fn sum_between(self, from_ms: i64, to_ms: i64) -> u64 {
        let mut sum = 0;
        for Moment { at_ms, hits } in self {
            if at_ms < from_ms {
                break;
            }
            sum += if at_ms < to_ms { hits } else { 0 };
        }
        sum
    }

    /// Goes on to the next moment; there are no hits behind the last.
    #[inline(always)]
    fn step(&mut self) {
        let gap = self.take_number();
        self.at_ms -= (gap >> 1).cast_signed();
        self.hits = u64::from(gap > 0);
        if gap & 1 == 1 {
            self.hits = self.take_number();
        }
    }

    /// Takes the first of the rest.
    #[inline]
    fn take_number(&mut self) -> u64 {
        let (number, len) = Number::read(self.rest);
        // In two steps: a number of eight bytes takes all there is.
        self.rest = self.rest >> (8 * (len - 1)) >> 8;
        number
    }
}

impl Iterator for Moments {
    type Item = Moment;

    #[inline]
    fn next(&mut self) -> Option<Moment> {
        let Moments { at_ms, hits, .. } = *self;
        if hits == 0 {
            return None;
        }
        self.step();
        Some(Moment { at_ms, hits })
    }
}

/// Numbers with one more before them, if they fit a word.
#[inline]
fn before(numbers: u64, number: Number) -> Option<u64> {
    let bits = 8 * number.len;
    (numbers.leading_zeros() as usize >= bits).then(|| numbers << (bits - 8) << 8 | number.word)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn held(inline: &Inline) -> Vec<(i64, u64)> {
        inline.oldest_first().map(|moment| (moment.at_ms, moment.hits)).collect()
    }

    proptest! {
        #[test]
        fn the_short_way_agrees_with_the_long_one(
            hits in prop::collection::vec((0..40_i64, 0..3_u32, 1..20_u64, 0..3_i64), 1..12),
        ) {
            let (mut inline, mut at_ms) = (Inline::default(), 7);
            for (gap_ms, scale, weight, window) in hits {
                at_ms += gap_ms << (scale * 9);
                let from_ms = at_ms - (window << (window * 9));
                let before = inline;
                let mut long = inline;
                let expected = long.add(Moment { at_ms, hits: weight }).then(|| long.sum(from_ms, i64::MAX));
                match inline.hit(at_ms, weight, from_ms) {
                    Some(sum) => prop_assert_eq!((Some(sum), inline.0), (expected, long.0)),
                    None => {
                        prop_assert_eq!(inline.0, before.0);
                        let fits = expected.is_some() && !before.is_empty();
                        prop_assert!(!fits || before.moments().hits + weight > MAX_BYTE_HITS);
                        inline = if expected.is_some() { long } else { Inline::default() };
                    }
                }
            }
        }
    }

    #[test]
    fn a_few_moments_fit_in_any_order() {
        let mut inline = Inline::default();
        assert!(inline.is_empty() && inline.moments().next().is_none());
        for (at_ms, hits) in [(1_000, 1), (2_000, 1), (500, 1), (1_000, 2), (2_000, 1)] {
            assert!(inline.add(Moment { at_ms, hits }));
        }
        assert_eq!(held(&inline), [(500, 1), (1_000, 3), (2_000, 2)]);
        assert_eq!((inline.total(), inline.newest_ms()), (6, 2_000));
        assert_eq!(
            [(0, 501), (501, 2_000), (2_000, 9_000)].map(|(from, to)| inline.sum(from, to)),
            [1, 3, 2]
        );
        assert!(!inline.add(Moment { at_ms: 1_000_000_000, hits: 1 }));
        assert!(!inline.add(Moment { at_ms: 2_000, hits: 1 << 40 }));
        assert_eq!(held(&inline), [(500, 1), (1_000, 3), (2_000, 2)], "what does not fit changes nothing");
        inline.drop_before(1_000);
        assert_eq!(held(&inline), [(1_000, 3), (2_000, 2)]);
        inline.drop_before(3_000);
        assert!(inline.is_empty());
    }

    #[test]
    fn time_starts_at_zero_and_ends_in_the_year_9999() {
        for at_ms in [0, 253_402_300_799_999] {
            let mut inline = Inline::default();
            assert!(inline.add(Moment { at_ms, hits: MAX_HITS }));
            assert_eq!(held(&inline), [(at_ms, MAX_HITS)]);
            assert!(!inline.add(Moment { at_ms, hits: 1 }));
        }
        assert!(!Inline::default().add(Moment { at_ms: 0, hits: 1 << 63 }));
        let mut inline = Inline::default();
        assert!(inline.add(Moment { at_ms: 0, hits: 1 }));
        assert!(inline.add(Moment { at_ms: 253_402_300_799_999, hits: 1 }));
        assert_eq!(held(&inline), [(0, 1), (253_402_300_799_999, 1)]);
    }

    #[test]
    fn many_hits_of_neighbours_fit() {
        let mut inline = Inline::default();
        for (at_ms, hits) in [(1_000, 1 << 31), (1_001, 1), (1_001, MAX_HITS - 1)] {
            assert!(inline.add(Moment { at_ms, hits }) || at_ms == 1_001);
        }
        let before = held(&inline);
        inline.drop_before(0);
        assert_eq!(held(&inline), before);
    }

    #[test]
    fn nine_hits_of_one_burst_fit() {
        let mut inline = Inline::default();
        let fitting = (0..20).take_while(|&step| inline.add(Moment { at_ms: 7_000 + step, hits: 1 }));
        assert_eq!(fitting.count(), 9);
        assert_eq!(inline.total(), 9);
    }
}
