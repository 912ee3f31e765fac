//! A few moments in the fifteen bytes of the entry: the form of most keys.
//!
//! Six bytes have the time of the newest moment, one byte the encoding, and eight bytes the rest. *Plain*:
//! each moment has one hit. The seventh byte is the number of moments. Four bytes have the time from the
//! oldest to the newest moment, and four the gaps of the moments between them, the newest first, as numbers.
//! So a new hit, in a window that includes the oldest moment, costs the same for any number of moments.
//! *Mixed*: numbers. The first is the hits of the newest moment. For each older moment follow the gap to the
//! newer one, with a bit for "more than one hit", and then its hits if that bit is set. A zero or the last
//! byte ends the numbers.

use super::moment::Moment;
use crate::number::Number;

const BYTES: usize = 15;
const TIME_BITS: usize = 48;
const TIME_MASK: u64 = (1 << TIME_BITS) - 1;
/// The bytes after the first seven.
const REST: usize = BYTES - TIME_BITS / 8 - 1;
/// The bits of one half of them.
const HALF_BITS: usize = 4 * REST;
const HALF_MASK: u64 = (1 << HALF_BITS) - 1;
/// The seventh byte of mixed moments.
const MIXED: u8 = 1 << 7;
/// A moment with more hits than this is stored in another form, so that a total never exceeds its bound.
const MAX_HITS: u64 = u32::MAX as u64;
/// The most moments that fit: each takes at least a byte.
pub(super) const MAX_MOMENTS: usize = REST;
/// The most hits that fit.
pub(super) const MAX_TOTAL: u64 = MAX_HITS * MAX_MOMENTS as u64;

/// A few moments.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Inline([u8; BYTES]);

/// The moments, newest first, with room for one more than fits.
#[derive(Default, Debug)]
pub(super) struct Held {
    list: [Moment; MAX_MOMENTS + 1],
    len: usize,
}

impl Inline {
    /// The first eight bytes and the last eight. They overlap in one byte.
    #[inline]
    fn halves(&self) -> (u64, u64) {
        let half = |bytes: Option<&[u8; 8]>| u64::from_le_bytes(*bytes.expect("there are fifteen bytes"));
        (half(self.0.first_chunk()), half(self.0.last_chunk()))
    }

    /// The seventh byte.
    #[inline]
    fn head(&self) -> u8 {
        self.0[BYTES - REST - 1]
    }

    #[inline(never)]
    fn held(&self) -> Held {
        let mut held = Held::default();
        let head = self.head();
        if head == MIXED {
            self.mixed().for_each(|moment| held.push(moment));
            return held;
        }
        let (mut at_ms, mut gaps) = (self.newest_ms(), self.halves().1 >> HALF_BITS);
        for number in 0..head {
            if number > 0 {
                at_ms -= Number::take_word(&mut gaps).cast_signed();
            }
            let is_oldest = number + 1 == head;
            held.push(Moment { at_ms: if is_oldest { self.oldest_ms() } else { at_ms }, hits: 1 });
        }
        held
    }

    /// Mixed moments, newest first.
    #[inline]
    fn mixed(&self) -> Mixed {
        let mut numbers = self.halves().1;
        let hits = Number::take_word(&mut numbers);
        Mixed { at_ms: self.newest_ms(), hits, numbers }
    }

    /// The moments, oldest first.
    pub(super) fn oldest_first(&self) -> impl Iterator<Item = Moment> + Clone + use<> {
        self.held().oldest_first()
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.head() == 0
    }

    /// The time of the newest moment; 0 when there is none.
    #[inline]
    pub(super) fn newest_ms(&self) -> i64 {
        (self.halves().0 & TIME_MASK).cast_signed()
    }

    /// The time of the oldest plain moment.
    #[inline]
    fn oldest_ms(&self) -> i64 {
        self.newest_ms() - (self.halves().1 & HALF_MASK).cast_signed()
    }

    #[inline]
    pub(super) fn total(&self) -> u64 {
        if self.head() == MIXED { sum(self.mixed(), |_| true) } else { self.head().into() }
    }

    /// Hits from `from_ms` on and before `to_ms`.
    #[inline]
    pub(super) fn sum(&self, from_ms: i64, to_ms: i64) -> u64 {
        let is_in = |at_ms| (from_ms..to_ms).contains(&at_ms);
        if self.head() == MIXED {
            sum(self.mixed(), is_in)
        } else if from_ms <= self.oldest_ms() && self.newest_ms() < to_ms {
            self.head().into()
        } else {
            sum(self.held().moments().iter().copied(), is_in)
        }
    }

    /// Adds hits. False if they do not fit; nothing changes then.
    pub(super) fn add(&mut self, moment: Moment) -> bool {
        self.add_or_give(moment).is_none()
    }

    /// Adds hits. If they do not fit, nothing changes, and all moments including them are returned.
    pub(super) fn add_or_give(&mut self, moment: Moment) -> Option<Held> {
        if moment.hits == 1 && self.is_empty() {
            self.write(moment.at_ms, 1, 0);
            return None;
        }
        let mut held = self.held();
        held.add(moment);
        match Inline::of(held.moments()) {
            Some(inline) => *self = inline,
            None => return Some(held),
        }
        None
    }

    /// Adds hits that are the newest, and returns the hits from `from_ms` on. `None`, and no change, if more
    /// work is needed. Most hits are counted here. Only the last branch depends on the number of moments or
    /// the length of a number.
    #[inline(always)]
    pub(super) fn hit(&mut self, at_ms: i64, weight: u64, from_ms: i64) -> Option<u64> {
        let (first, last) = self.halves();
        let head = first >> TIME_BITS & 0xff;
        let newest_ms = (first & TIME_MASK).cast_signed();
        let gap_ms = at_ms - newest_ms;
        let is_plain = (1..MIXED.into()).contains(&head);
        if !is_plain || gap_ms <= 0 || weight != 1 {
            return self.hit_mixed(at_ms, weight, from_ms);
        }
        let (span, gaps) = (last & HALF_MASK, last >> HALF_BITS);
        let gap = Number::new(gap_ms.cast_unsigned());
        // The second moment is the oldest, with none between. A number of more than four bytes does not fit
        // anyway.
        let gaps = if head == 1 { 0 } else { gaps << ((8 * gap.len) & 63) | gap.word };
        let longer = span + gap_ms.cast_unsigned();
        if (gaps | longer) > HALF_MASK {
            return None;
        }
        self.write(at_ms, head + 1, gaps << HALF_BITS | longer);
        let oldest_ms = newest_ms - span.cast_signed();
        Some(if from_ms <= oldest_ms { head + 1 } else { self.sum(from_ms, i64::MAX) })
    }

    /// Like `hit`, for mixed moments.
    #[cold]
    fn hit_mixed(&mut self, at_ms: i64, weight: u64, from_ms: i64) -> Option<u64> {
        let Mixed { at_ms: newest_ms, hits, numbers } = self.mixed();
        let gap_ms = at_ms - newest_ms;
        if self.head() != MIXED || gap_ms < 0 || weight > MAX_HITS - hits {
            return None;
        }
        let (hits, numbers) =
            if gap_ms == 0 { (hits + weight, numbers) } else { (weight, with_older(numbers, gap_ms, hits)?) };
        self.write(at_ms, MIXED.into(), Number::new(hits).before(numbers)?);
        Some(sum(self.mixed(), |at_ms| from_ms <= at_ms))
    }

    /// An entry of these moments, newest first. `None` if they do not fit.
    fn of(moments: &[Moment]) -> Option<Inline> {
        let Some(newest) = moments.first() else { return Some(Inline::default()) };
        let (head, rest) = match plain(moments) {
            Some(rest) => (moments.len() as u64, rest),
            None => (MIXED.into(), mixed(moments)?),
        };
        let mut inline = Inline::default();
        inline.write(newest.at_ms, head, rest);
        Some(inline)
    }

    /// Writes the time, the seventh byte, and the rest.
    #[inline]
    fn write(&mut self, at_ms: i64, head: u64, rest: u64) {
        let first = at_ms.cast_unsigned() | head << TIME_BITS | rest << (TIME_BITS + 8);
        self.0[BYTES - 8..].copy_from_slice(&rest.to_le_bytes());
        self.0[..8].copy_from_slice(&first.to_le_bytes());
    }

    /// Drops moments before `from_ms`.
    pub(super) fn drop_before(&mut self, from_ms: i64) {
        if self.head() != MIXED && from_ms <= self.oldest_ms() {
            return;
        }
        let held = self.held();
        let kept = held.moments().partition_point(|moment| moment.at_ms >= from_ms);
        *self = Inline::of(&held.moments()[..kept]).expect("fewer moments take fewer bytes");
    }
}

impl Held {
    fn moments(&self) -> &[Moment] {
        &self.list[..self.len]
    }

    pub(super) fn oldest_first(self) -> impl Iterator<Item = Moment> + Clone {
        self.list.into_iter().take(self.len).rev()
    }

    pub(super) fn total(&self) -> u64 {
        self.moments().iter().map(|moment| moment.hits).sum()
    }

    fn push(&mut self, moment: Moment) {
        self.list[self.len] = moment;
        self.len += 1;
    }

    /// Adds hits at the place of their time.
    fn add(&mut self, moment: Moment) {
        let place = self.moments().partition_point(|held| held.at_ms > moment.at_ms);
        if self.moments().get(place).is_some_and(|held| held.at_ms == moment.at_ms) {
            self.list[place].hits += moment.hits;
            return;
        }
        self.push(moment);
        self.list[place..self.len].rotate_right(1);
    }
}

/// An iterator over mixed moments, newest first: the next moment, with 0 hits at the end, and the numbers
/// behind it.
struct Mixed {
    at_ms: i64,
    hits: u64,
    numbers: u64,
}

impl Iterator for Mixed {
    type Item = Moment;

    #[inline]
    fn next(&mut self) -> Option<Moment> {
        let Mixed { at_ms, hits, .. } = *self;
        if self.numbers == 0 {
            self.hits = 0;
        } else {
            let gap = Number::take_word(&mut self.numbers);
            self.at_ms -= (gap >> 1).cast_signed();
            self.hits = if gap & 1 == 1 { Number::take_word(&mut self.numbers) } else { 1 };
        }
        (hits > 0).then_some(Moment { at_ms, hits })
    }
}

/// The hits of the moments whose time is accepted by `is_in`.
#[inline]
fn sum(moments: impl Iterator<Item = Moment>, is_in: impl Fn(i64) -> bool) -> u64 {
    moments.filter(|moment| is_in(moment.at_ms)).map(|moment| moment.hits).sum()
}

/// The last eight bytes of plain moments. `None` if these cannot be plain.
fn plain(moments: &[Moment]) -> Option<u64> {
    let (newest, oldest) = (moments.first()?, moments.last()?);
    let span = u32::try_from(newest.at_ms - oldest.at_ms).ok()?;
    if moments.iter().any(|moment| moment.hits != 1) {
        return None;
    }
    let mut gaps = 0;
    for pair in moments[..moments.len() - 1].windows(2).rev() {
        gaps = Number::new((pair[0].at_ms - pair[1].at_ms).cast_unsigned()).before(gaps)?;
    }
    (gaps <= HALF_MASK).then(|| gaps << HALF_BITS | u64::from(span))
}

/// The last eight bytes of mixed moments. `None` if they do not fit.
fn mixed(moments: &[Moment]) -> Option<u64> {
    let newest = moments.first()?;
    if moments.iter().any(|moment| moment.hits > MAX_HITS) {
        return None;
    }
    let mut numbers = 0;
    for pair in moments.windows(2).rev() {
        numbers = with_older(numbers, pair[0].at_ms - pair[1].at_ms, pair[1].hits)?;
    }
    Number::new(newest.hits).before(numbers)
}

/// Appends a moment that is `gap_ms` older to the numbers of mixed moments.
#[inline]
fn with_older(numbers: u64, gap_ms: i64, hits: u64) -> Option<u64> {
    let is_several = hits > 1;
    let numbers = if is_several { Number::new(hits).before(numbers)? } else { numbers };
    Number::new(gap_ms.cast_unsigned() << 1 | u64::from(is_several)).before(numbers)
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
        fn the_fast_hit_agrees_with_add(
            hits in prop::collection::vec((0..40_i64, 0..3_u32, prop::sample::select(vec![1, 1, 1, 2, 9]), 0..3_i64), 1..12),
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
                        let stays = !before.is_empty() && (before.head() == MIXED) == (long.head() == MIXED);
                        prop_assert!(expected.is_none() || !stays);
                        inline = if expected.is_some() { long } else { Inline::default() };
                    }
                }
            }
        }
    }

    proptest! {
        #[test]
        fn an_inline_entry_holds_hits_in_any_order(
            hits in prop::collection::vec(
                (0..6_i64, prop::sample::select(vec![1, 900, 200_000, 90_000_000, 5_000_000_000]), 0..9_u64), 1..12,
            ),
        ) {
            let (mut inline, mut model) = (Inline::default(), std::collections::BTreeMap::new());
            for (steps, step_ms, weight) in hits {
                let (at_ms, hits) = (steps * step_ms, if weight > 6 { weight } else { 1 });
                let before = inline.0;
                if let Some(all) = inline.add_or_give(Moment { at_ms, hits }) {
                    prop_assert_eq!(inline.0, before);
                    let mut with = model.clone();
                    *with.entry(at_ms).or_insert(0) += hits;
                    prop_assert_eq!(all.total(), with.values().sum::<u64>());
                    let all: Vec<_> = all.oldest_first().map(|moment| (moment.at_ms, moment.hits)).collect();
                    prop_assert_eq!(all, with.into_iter().collect::<Vec<_>>());
                    inline.drop_before(step_ms);
                    model.retain(|&at_ms, _| at_ms >= step_ms);
                    continue;
                }
                *model.entry(at_ms).or_insert(0) += hits;
                prop_assert_eq!(held(&inline), model.clone().into_iter().collect::<Vec<_>>());
                prop_assert_eq!((inline.total(), Some(inline.newest_ms())), (model.values().sum(), model.keys().last().copied()));
                for (from_ms, to_ms) in [(0, at_ms), (at_ms, i64::MAX), (step_ms, 3 * step_ms)] {
                    let expected: u64 = model.iter().filter(|(at_ms, _)| (from_ms..to_ms).contains(at_ms)).map(|(_, hits)| hits).sum();
                    prop_assert_eq!(inline.sum(from_ms, to_ms), expected);
                }
            }
        }
    }

    #[test]
    fn a_few_moments_fit_in_any_order() {
        let mut inline = Inline::default();
        assert!(inline.is_empty() && inline.oldest_first().next().is_none());
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
    fn many_hits_of_adjacent_panes_fit() {
        let mut inline = Inline::default();
        for (at_ms, hits) in [(1_000, 1 << 31), (1_001, 1), (1_001, MAX_HITS - 1)] {
            assert!(inline.add(Moment { at_ms, hits }) || at_ms == 1_001);
        }
        let before = held(&inline);
        inline.drop_before(0);
        assert_eq!(held(&inline), before);
    }

    #[test]
    fn eight_hits_of_one_burst_fit() {
        let mut inline = Inline::default();
        let fitting = (0..20).take_while(|&step| inline.add(Moment { at_ms: 7_000 + step, hits: 1 }));
        assert_eq!(fitting.count(), 8);
        assert_eq!(inline.total(), 8);
    }
}
