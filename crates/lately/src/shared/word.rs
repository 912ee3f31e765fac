//! The word of a slot: the number of its pane and its hits together, so that no hit is counted for a pane
//! that has left the slot.
//!
//! From the top: the **round**, which is the number of rounds of the ring before the pane (the slot's index is
//! the rest of the pane's number); the **seal**, one bit; the count. Rounds cover all times, so no two panes
//! have the same word. The count may reach half of what its bits hold. The other half is reserved for
//! additions of threads that do not know yet that they are late.

use crate::limits::{MAX_SHARED_THREADS, MAX_TOTAL};

/// The layout of a word. What each hit needs is stored as masks, not as numbers of bits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    slot_mask: u64,
    /// The shift from the round's place in a pane's number to its place in a word.
    lift: u32,
    seal: u64,
    most: u64,
    light: u64,
}

/// The content of a slot, for a reader of one pane.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Seen {
    /// An older pane, or nothing yet.
    Older,
    /// The pane, and its hits.
    Open(u64),
    /// The pane, sealed, and its hits.
    Sealed(u64),
    /// A newer pane.
    Newer,
}

impl Layout {
    /// The layout for `2^slot_bits` slots, `2^ring_bits` rings, and panes up to `last_pane`. The total of all
    /// slots is at most [`MAX_TOTAL`].
    pub(super) fn new(slot_bits: u32, ring_bits: u32, last_pane: u64) -> Layout {
        let round_bits = u64::BITS - (last_pane >> slot_bits).leading_zeros();
        let total_bits = u64::BITS - MAX_TOTAL.leading_zeros();
        let count_bits = (u64::BITS - 1 - round_bits).min(total_bits - slot_bits - ring_bits);
        let most = 1 << (count_bits - 1);
        Layout {
            slot_mask: (1 << slot_bits) - 1,
            lift: count_bits + 1 - slot_bits,
            seal: 1 << count_bits,
            most,
            light: (most / 2 / MAX_SHARED_THREADS).max(1),
        }
    }

    /// The most hits a slot counts.
    pub(super) fn most(&self) -> u64 {
        self.most
    }

    /// The bit of the seal.
    pub(super) fn seal(&self) -> u64 {
        self.seal
    }

    /// The slot of a pane in its ring.
    #[inline]
    pub(super) fn slot_of(&self, pane: u64) -> u64 {
        pane & self.slot_mask
    }

    /// The word of `pane` without hits, not sealed.
    #[inline]
    pub(super) fn empty(&self, pane: u64) -> u64 {
        (pane & !self.slot_mask) << self.lift
    }

    /// The content of `word`, for a reader of the pane whose empty word is `empty`.
    #[inline]
    pub(super) fn look(&self, empty: u64, word: u64) -> Seen {
        if word < empty {
            return Seen::Older;
        }
        match word - empty {
            hits if hits < self.seal => Seen::Open(hits),
            hits if hits < 2 * self.seal => Seen::Sealed(hits - self.seal),
            _ => Seen::Newer,
        }
    }

    /// The hits of the pane whose empty word is `empty`.
    #[inline]
    pub(super) fn hits(&self, empty: u64, word: u64) -> u64 {
        let hits = word.wrapping_sub(empty);
        if hits < 2 * self.seal { hits & (self.seal - 1) } else { 0 }
    }

    /// Whether the word has this pane and is not sealed.
    #[inline]
    pub(super) fn is_open(&self, empty: u64, word: u64) -> bool {
        word.wrapping_sub(empty) < self.seal
    }

    /// Whether the word has this pane, is not sealed, and `weight` may be added without a check of what other
    /// threads add meanwhile: the slot is less than half full, and all threads together cannot fill the other
    /// half.
    #[inline]
    pub(super) fn takes(&self, empty: u64, word: u64, weight: u64) -> bool {
        word.wrapping_sub(empty) <= self.most / 2 && weight <= self.light
    }

    /// Whether two words have the same pane.
    pub(super) fn is_same_pane(&self, word: u64, other: u64) -> bool {
        word ^ other < 2 * self.seal
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Panes of 1 ms and of 1 s up to the end of the year 9999.
    const LAST_PANES: [u64; 2] = [253_402_300_799_999, 253_402_300_799];

    #[test]
    fn pane_and_count_round_trip_without_overlap() {
        for (slot_bits, ring_bits, last_pane) in
            [(8, 0, LAST_PANES[0]), (9, 1, LAST_PANES[1]), (21, 9, LAST_PANES[0]), (9, 0, 2_932_896)]
        {
            let layout = Layout::new(slot_bits, ring_bits, last_pane);
            let round = 1 << slot_bits;
            for pane in [0, 1, round, last_pane - round, last_pane] {
                let empty = layout.empty(pane);
                for hits in [0, 1, layout.most(), 2 * layout.most() - 1] {
                    let (open, sealed) = (empty + hits, (empty + hits) | layout.seal());
                    assert_eq!(layout.look(empty, open), Seen::Open(hits));
                    assert_eq!(layout.look(empty, sealed), Seen::Sealed(hits));
                    assert_eq!((layout.hits(empty, open), layout.hits(empty, sealed)), (hits, hits));
                    assert!(layout.is_open(empty, open) && !layout.is_open(empty, sealed));
                    assert!(layout.is_same_pane(open, sealed));
                    let other = if pane < round { pane + round } else { pane - round };
                    let seen = if other > pane { Seen::Older } else { Seen::Newer };
                    let other = layout.empty(other);
                    for word in [open, sealed] {
                        assert_eq!((layout.look(other, word), layout.hits(other, word)), (seen, 0));
                        assert!(!layout.is_open(other, word) && !layout.takes(other, word, 1));
                        assert!(!layout.is_same_pane(other, word));
                    }
                }
            }
        }
    }

    #[test]
    fn all_slots_full_fit_the_largest_total() {
        for (slot_bits, ring_bits) in [(8, 0), (9, 1), (21, 9)] {
            for last_pane in LAST_PANES {
                let layout = Layout::new(slot_bits, ring_bits, last_pane);
                let slots = 1_u128 << (slot_bits + ring_bits);
                assert!(slots * u128::from(2 * layout.most() - 1) <= u128::from(MAX_TOTAL));
            }
        }
    }

    #[test]
    fn a_second_holds_billions_and_a_millisecond_millions() {
        assert_eq!(Layout::new(9, 0, LAST_PANES[1]).most(), 1 << 33);
        assert_eq!(Layout::new(9, 0, LAST_PANES[0]).most(), 1 << 23);
        assert_eq!(Layout::new(8, 0, LAST_PANES[0]).most(), 1 << 22);
    }

    #[test]
    fn concurrent_light_hits_stay_below_the_bound() {
        for last_pane in LAST_PANES {
            let layout = Layout::new(8, 0, last_pane);
            let empty = layout.empty(7);
            let half = empty + layout.most() / 2;
            assert!(layout.takes(empty, half, 1) && !layout.takes(empty, half + 1, 1));
            assert!(!layout.takes(empty, empty | layout.seal(), 1), "sealed");
            let light = (1..=layout.most()).take_while(|&weight| layout.takes(empty, half, weight)).last();
            let light = light.expect("a hit is light");
            assert!(half - empty + light * MAX_SHARED_THREADS <= layout.most());
        }
    }
}
