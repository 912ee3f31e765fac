//! A few moments in fifteen bytes, beside the key: the form of most keys.
//!
//! The time of the newest moment in six bytes, then numbers: its hits; then for each older moment the
//! gap to the newer one and a bit that says whether it has more than one hit, then its hits if it
//! has. A zero ends them, as the end of the bytes does. Adding to the newest, or a newer one, shifts
//! the rest and reads none of it.

use super::moment::{Moment, Number};

const BYTES: usize = 15;
const TIME_BITS: usize = 48;
const TIME_MASK: u128 = (1 << TIME_BITS) - 1;
/// Bytes of the numbers.
const NUMBERS: usize = BYTES - TIME_BITS / 8;
/// More hits than this in a moment are kept elsewhere, so that totals need no look.
const MAX_HITS: u64 = u32::MAX as u64;
/// The most hits that fit.
pub(super) const MAX_TOTAL: u64 = MAX_HITS * NUMBERS as u64;

/// A few moments.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Inline([u8; BYTES]);

/// The moments, newest first.
#[derive(Clone, Copy)]
pub(super) struct Moments {
    numbers: u128,
    at_ms: i64,
    /// Of the next moment; 0 when there is none.
    hits: u64,
}

impl Inline {
    #[inline]
    fn word(self) -> u128 {
        let mut bytes = [0; 16];
        bytes[..BYTES].copy_from_slice(&self.0);
        u128::from_le_bytes(bytes)
    }

    #[inline]
    fn set(&mut self, newest_ms: i64, numbers: u128) {
        let word = numbers << TIME_BITS | u128::from(newest_ms.cast_unsigned());
        self.0.copy_from_slice(&word.to_le_bytes()[..BYTES]);
    }

    /// The moments, newest first.
    #[inline]
    pub(super) fn moments(&self) -> Moments {
        let word = self.word();
        let numbers = word >> TIME_BITS;
        let (hits, len) = Number::read(low(numbers));
        let at_ms = low(word & TIME_MASK).cast_signed();
        Moments { numbers: numbers >> (8 * len), at_ms, hits }
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

    pub(super) fn is_empty(&self) -> bool {
        self.0[TIME_BITS / 8] == 0
    }

    /// The time of the newest moment; 0 when there is none.
    #[inline]
    pub(super) fn newest_ms(&self) -> i64 {
        low(self.word() & TIME_MASK).cast_signed()
    }

    pub(super) fn total(&self) -> u64 {
        self.moments().map(|moment| moment.hits).sum()
    }

    /// Hits from `from_ms` on and before `to_ms`.
    #[inline]
    pub(super) fn sum(&self, from_ms: i64, to_ms: i64) -> u64 {
        let until = self.moments().take_while(|moment| moment.at_ms >= from_ms);
        until.filter(|moment| moment.at_ms < to_ms).map(|moment| moment.hits).sum()
    }

    /// Adds hits; false, and nothing changes, when they do not fit.
    #[inline]
    pub(super) fn add(&mut self, moment: Moment) -> bool {
        let held = self.moments();
        let Moment { at_ms, hits } = moment;
        if hits > MAX_HITS {
            return false;
        }
        if at_ms == held.at_ms || held.hits == 0 {
            let all = held.hits + hits;
            return all <= MAX_HITS && self.put(at_ms, all, held.numbers);
        }
        if at_ms < held.at_ms {
            return self.insert(moment);
        }
        let gap_ms = (at_ms - held.at_ms).cast_unsigned();
        let mut numbers = held.numbers;
        if held.hits > 1 {
            numbers = before(numbers, Number::new(held.hits));
        }
        let gap = Number::new(gap_ms << 1 | u64::from(held.hits > 1));
        // The newest hits take a byte at least: what does not leave it would be shifted out.
        numbers >> (8 * (NUMBERS - 1 - gap.len)) == 0 && self.put(at_ms, hits, before(numbers, gap))
    }

    /// Writes the newest moment before other numbers, when they fit.
    #[inline]
    fn put(&mut self, newest_ms: i64, hits: u64, numbers: u128) -> bool {
        let hits = Number::new(hits);
        let fits = numbers >> (8 * (NUMBERS - hits.len)) == 0;
        if fits {
            self.set(newest_ms, before(numbers, hits));
        }
        fits
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
        let mut kept = Inline::default();
        for moment in self.oldest_first().filter(|moment| moment.at_ms >= from_ms) {
            assert!(kept.add(moment), "fewer moments take fewer bytes");
        }
        *self = kept;
    }
}

impl Iterator for Moments {
    type Item = Moment;

    #[inline]
    fn next(&mut self) -> Option<Moment> {
        if self.hits == 0 {
            return None;
        }
        let moment = Moment { at_ms: self.at_ms, hits: self.hits };
        let (gap, len) = Number::read(low(self.numbers));
        self.numbers >>= 8 * len;
        self.at_ms -= (gap >> 1).cast_signed();
        self.hits = u64::from(gap > 0);
        if gap & 1 == 1 {
            let (hits, len) = Number::read(low(self.numbers));
            self.numbers >>= 8 * len;
            self.hits = hits;
        }
        Some(moment)
    }
}

/// Numbers with one more before them.
#[inline]
fn before(numbers: u128, number: Number) -> u128 {
    numbers << (8 * number.len) | u128::from(number.word)
}

#[inline]
fn low(word: u128) -> u64 {
    #[expect(clippy::cast_possible_truncation, reason = "the low bits are what is wanted")]
    let low = word as u64;
    low
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(inline: &Inline) -> Vec<(i64, u64)> {
        inline.oldest_first().map(|moment| (moment.at_ms, moment.hits)).collect()
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
