//! How one word holds which pane a slot stands for and its hits, so that no hit is counted for a pane
//! that the slot has left.
//!
//! From the top: the **turn**, how often the ring has gone round before the pane (the slot's index
//! says the rest of the pane's number); the **seal**, a bit; the count. Turns have room for all of
//! time, so no two panes look alike. The count may rise to half of what its bits hold: the other half
//! is room for additions of threads that have not yet seen that they came too late.

use crate::limits::{MAX_SHARED_THREADS, MAX_TOTAL};

/// Where the parts of a word lie.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    slot_bits: u32,
    count_bits: u32,
    most: u64,
    light: u64,
}

impl Layout {
    /// For `2^slot_bits` slots, `2^stripe_bits` rings of them, and panes up to `last_pane`. The kept
    /// total of all slots fits [`MAX_TOTAL`].
    pub(super) fn new(slot_bits: u32, stripe_bits: u32, last_pane: u64) -> Layout {
        let turn_bits = u64::BITS - (last_pane >> slot_bits).leading_zeros();
        let total_bits = u64::BITS - MAX_TOTAL.leading_zeros();
        let count_bits = (u64::BITS - 1 - turn_bits).min(total_bits - slot_bits - stripe_bits);
        let most = 1 << (count_bits - 1);
        Layout { slot_bits, count_bits, most, light: (most / 2 / MAX_SHARED_THREADS).max(1) }
    }

    /// The most hits a slot counts.
    pub(super) fn most(&self) -> u64 {
        self.most
    }

    pub(super) fn slots(&self) -> u64 {
        1 << self.slot_bits
    }

    /// Which slot of a ring is the pane's.
    #[inline]
    pub(super) fn slot_of(&self, pane: u64) -> u64 {
        pane & (self.slots() - 1)
    }

    pub(super) fn turn_of(&self, pane: u64) -> u64 {
        pane >> self.slot_bits
    }

    /// The slot of `pane` with `count` hits, not sealed.
    pub(super) fn open(&self, pane: u64, count: u64) -> u64 {
        self.turn_of(pane) << (self.count_bits + 1) | count
    }

    /// The slot of `pane` without hits, sealed.
    pub(super) fn sealed_empty(&self, pane: u64) -> u64 {
        self.open(pane, self.seal())
    }

    /// The seal's bit.
    pub(super) fn seal(&self) -> u64 {
        1 << self.count_bits
    }

    pub(super) fn turn(&self, word: u64) -> u64 {
        word >> (self.count_bits + 1)
    }

    pub(super) fn is_sealed(&self, word: u64) -> bool {
        word & self.seal() != 0
    }

    pub(super) fn count(&self, word: u64) -> u64 {
        word & (self.seal() - 1)
    }

    /// Hits of `pane` in a word of its slot.
    pub(super) fn count_of(&self, pane: u64, word: u64) -> u64 {
        if self.turn(word) == self.turn_of(pane) { self.count(word) } else { 0 }
    }

    /// Whether the word is that of `pane`, not sealed.
    #[inline]
    pub(super) fn is_open_for(&self, pane: u64, word: u64) -> bool {
        word >> self.count_bits == self.turn_of(pane) << 1
    }

    /// Whether `weight` may be added without looking at what other threads add meanwhile: the slot is
    /// not half full, and all threads together could not fill the other half.
    #[inline]
    pub(super) fn has_room(&self, word: u64, weight: u64) -> bool {
        weight <= self.light && self.count(word) <= self.most / 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Panes of 1 ms and of 1 s up to the end of the year 9999.
    const LAST_PANES: [u64; 2] = [253_402_300_799_999, 253_402_300_799];

    #[test]
    fn the_parts_come_back_and_do_not_touch() {
        for (slot_bits, stripe_bits, last_pane) in
            [(8, 0, LAST_PANES[0]), (9, 1, LAST_PANES[1]), (21, 8, LAST_PANES[0]), (9, 0, 2_932_896)]
        {
            let layout = Layout::new(slot_bits, stripe_bits, last_pane);
            for pane in [0, 1, 1 << slot_bits, last_pane] {
                for count in [0, 1, layout.most(), 2 * layout.most() - 1] {
                    let open = layout.open(pane, count);
                    let sealed = open | layout.seal();
                    assert_eq!((layout.count_of(pane, open), layout.count_of(pane, sealed)), (count, count));
                    assert_eq!(layout.count_of(pane + layout.slots(), open), 0);
                    assert!(layout.is_open_for(pane, open) && !layout.is_open_for(pane, sealed));
                    assert!(!layout.is_open_for(pane + layout.slots(), open));
                    assert!(layout.is_sealed(sealed) && !layout.is_sealed(open));
                }
                assert_eq!(layout.sealed_empty(pane), layout.open(pane, 0) | layout.seal());
            }
        }
    }

    #[test]
    fn all_slots_full_fit_the_largest_total() {
        for (slot_bits, stripe_bits) in [(8, 0), (9, 1), (21, 8)] {
            for last_pane in LAST_PANES {
                let layout = Layout::new(slot_bits, stripe_bits, last_pane);
                let slots = u128::from(layout.slots()) << stripe_bits;
                assert!(slots * u128::from(2 * layout.most() - 1) <= u128::from(MAX_TOTAL));
            }
        }
    }

    #[test]
    fn a_second_holds_billions_and_a_millisecond_millions() {
        assert_eq!(Layout::new(9, 0, LAST_PANES[1]).most(), 1 << 33);
        assert_eq!(Layout::new(9, 0, LAST_PANES[0]).most(), 1 << 23);
    }

    #[test]
    fn what_is_added_unseen_cannot_reach_the_bound() {
        for last_pane in LAST_PANES {
            let layout = Layout::new(8, 0, last_pane);
            let full = layout.open(7, layout.most() / 2);
            assert!(layout.has_room(full, 1) && !layout.has_room(full + 1, 1));
            let light = (1..=layout.most()).take_while(|&weight| layout.has_room(full, weight)).last();
            let light = light.expect("a hit is light");
            assert!(layout.count(full) + light * MAX_SHARED_THREADS <= layout.most());
        }
    }
}
