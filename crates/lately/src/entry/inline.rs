//! A few moments in fifteen bytes, beside the key: the form of most keys.

use super::moment::{Item, Moment, PackedTime, Reader};

const BYTES: usize = 15;
/// Where the moments start, after the time of the oldest.
const ITEMS: usize = size_of::<PackedTime>();

/// Up to nine moments, oldest first: the time of the first in six bytes, then moments as bytes until
/// a zero or the end.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Inline([u8; BYTES]);

impl Inline {
    /// The moments, oldest first.
    #[inline]
    pub(super) fn moments(&self) -> Reader<'_> {
        let [a, b, c, d, e, f, ..] = self.0;
        let before_ms = i64::from_le_bytes([a, b, c, d, e, f, 0, 0]) - 1;
        Reader { bytes: &self.0, offset: ITEMS, before_ms }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0[ITEMS] == 0
    }

    pub(super) fn newest(&self) -> Option<Moment> {
        self.moments().last()
    }

    pub(super) fn total(&self) -> u64 {
        self.moments().map(|moment| moment.hits).sum()
    }

    /// Adds hits; false, and nothing changes, when they do not fit.
    #[inline]
    pub(super) fn add(&mut self, moment: Moment) -> bool {
        let mut end = self.moments();
        let mut last = None;
        loop {
            let start = (end.offset, end.before_ms);
            match end.next() {
                Some(held) => last = Some((start, held)),
                None => break,
            }
        }
        match last {
            None => {
                let first = Item::new(moment, moment.at_ms - 1);
                if !self.write(ITEMS, &first) {
                    return false;
                }
                self.0[..ITEMS].copy_from_slice(PackedTime::pack(moment.at_ms).bytes());
                true
            }
            Some((_, held)) if held.at_ms < moment.at_ms => {
                self.write(end.offset, &Item::new(moment, held.at_ms))
            }
            Some(((offset, before_ms), held)) if held.at_ms == moment.at_ms => {
                let hits = held.hits + moment.hits;
                self.write(offset, &Item::new(Moment { hits, ..moment }, before_ms))
            }
            Some(_) => self.insert(moment),
        }
    }

    /// Adds hits earlier than the newest.
    #[cold]
    fn insert(&mut self, moment: Moment) -> bool {
        let mut all = Inline::default();
        let earlier = self.moments().filter(|held| held.at_ms < moment.at_ms);
        let later = self.moments().filter(|held| held.at_ms >= moment.at_ms);
        let fits = earlier.chain([moment]).chain(later).all(|moment| all.add(moment));
        if fits {
            *self = all;
        }
        fits
    }

    /// Writes an item over what is at `offset`, which is the newest or the end. An item that
    /// replaces another is as long or longer.
    #[inline]
    fn write(&mut self, offset: usize, item: &Item) -> bool {
        let (gap, hits) = item.pieces();
        let (middle, end) = (offset + gap.len(), offset + gap.len() + hits.len());
        if end > BYTES {
            return false;
        }
        self.0[offset..middle].copy_from_slice(gap);
        self.0[middle..end].copy_from_slice(hits);
        true
    }

    /// Drops moments before `from_ms`.
    pub(super) fn drop_before(&mut self, from_ms: i64) {
        let mut kept = Inline::default();
        for moment in self.moments().filter(|moment| moment.at_ms >= from_ms) {
            assert!(kept.add(moment), "fewer moments take fewer bytes");
        }
        *self = kept;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(inline: &Inline) -> Vec<(i64, u64)> {
        inline.moments().map(|moment| (moment.at_ms, moment.hits)).collect()
    }

    #[test]
    fn a_few_moments_fit_in_any_order() {
        let mut inline = Inline::default();
        assert!(inline.is_empty() && inline.newest().is_none());
        for (at_ms, hits) in [(1_000, 1), (2_000, 1), (500, 1), (1_000, 2), (2_000, 1)] {
            assert!(inline.add(Moment { at_ms, hits }));
        }
        assert_eq!(held(&inline), [(500, 1), (1_000, 3), (2_000, 2)]);
        assert_eq!((inline.total(), inline.newest().map(|newest| newest.at_ms)), (6, Some(2_000)));
        assert!(!inline.add(Moment { at_ms: 100_000_000, hits: 1 }));
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
            assert!(inline.add(Moment { at_ms, hits: 1 << 48 }));
            assert_eq!(held(&inline), [(at_ms, 1 << 48)]);
        }
        assert!(!Inline::default().add(Moment { at_ms: 0, hits: 1 << 63 }));
    }

    #[test]
    fn nine_hits_of_one_burst_fit() {
        let mut inline = Inline::default();
        let fitting = (0..20).take_while(|&step| inline.add(Moment { at_ms: 7_000 + step, hits: 1 }));
        assert_eq!(fitting.count(), 9);
    }
}
