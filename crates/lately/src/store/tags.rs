//! Tags: eight bits of the hash for each slot, eight slots to a word. They show which slots may hold a key.
//!
//! A tag is compared with a whole word at once, by Mycroft's test for a zero byte (Warren, Hacker's Delight,
//! 6-1). It may also report the byte above an equal one, so the caller compares the keys.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// The slots of a word.
pub(super) const GROUP: usize = 8;

/// A search ends at a slot that was never used, and continues at one whose key was removed. Both are free.
const EMPTY: u8 = 0;
const REMOVED: u8 = 1;
/// A byte without a slot. Higher values are tags of keys.
const NO_SLOT: u8 = 2;
const LOW_BITS: u64 = 0x0101_0101_0101_0101;
const HIGH_BITS: u64 = LOW_BITS << 7;

/// Tags that change under a lock, and may be read without it. What is read then is a guess.
#[derive(Clone, Debug)]
pub(super) struct Tags(Arc<[AtomicU64]>);

impl Tags {
    /// Tags for `slots` empty slots. The last word may have bytes without a slot.
    pub(super) fn new(slots: usize) -> Tags {
        let tags = Tags((0..slots.div_ceil(GROUP)).map(|_| AtomicU64::new(0)).collect());
        (slots..tags.groups() * GROUP).for_each(|slot| tags.set(slot, NO_SLOT));
        tags
    }

    /// The number of words.
    #[inline]
    pub(super) fn groups(&self) -> usize {
        self.0.len()
    }

    pub(super) fn is_same(&self, other: &Tags) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    #[cfg(test)]
    pub(super) fn holders(&self) -> usize {
        Arc::strong_count(&self.0)
    }

    /// The word where a search starts: the low half of the hash, as a fraction of the number of words
    /// (Lemire, Fast Random Integer Generation in an Interval, 2019). That number need not be a power of two,
    /// and words are in the order of the hashes.
    #[inline]
    pub(super) fn home(&self, hash: u64) -> usize {
        fraction(self.groups(), hash)
    }

    /// The address of that word.
    #[inline]
    pub(super) fn address(&self, hash: u64) -> Option<*const AtomicU64> {
        self.0.get(self.home(hash)).map(std::ptr::from_ref)
    }

    /// The first slot with this hash for which `is_it` is true.
    #[inline]
    pub(super) fn find(&self, hash: u64, mut is_it: impl FnMut(usize) -> bool) -> Option<usize> {
        let mut group = self.home(hash);
        for _ in 0..self.groups() {
            let word = self.0[group].load(Relaxed);
            let mut equal = bytes_equal(word, tag_of(hash));
            while equal != 0 {
                let slot = group * GROUP + first_of(equal);
                if is_it(slot) {
                    return Some(slot);
                }
                equal &= equal - 1;
            }
            if bytes_equal(word, EMPTY) != 0 {
                return None;
            }
            group += 1;
            if group == self.groups() {
                group = 0;
            }
        }
        None
    }

    /// The first slot of a word with this hash.
    #[inline]
    pub(super) fn first_in(&self, group: usize, hash: u64) -> Option<usize> {
        let equal = bytes_equal(self.0.get(group)?.load(Relaxed), tag_of(hash));
        (equal != 0).then(|| first_of(equal))
    }

    /// The slot that a new value with this hash most likely takes.
    #[inline]
    pub(super) fn free_near(&self, hash: u64) -> Option<usize> {
        let group = self.home(hash);
        let free = free_for(hash, self.0.get(group)?.load(Relaxed));
        Some(free.map_or((group + 1) * GROUP, |free| group * GROUP + free))
    }

    /// Takes a free slot for a hash, in the first word that has one. Returns it, and whether it was never
    /// used before. There must be a free slot.
    pub(super) fn take(&self, hash: u64) -> (usize, bool) {
        let home = self.home(hash);
        for group in (home..self.groups()).chain(0..home) {
            let word = self.0[group].load(Relaxed);
            if let Some(free) = free_for(hash, word) {
                let slot = group * GROUP + free;
                self.set(slot, tag_of(hash));
                return (slot, byte_of(word, free) == u64::from(EMPTY));
            }
        }
        unreachable!("the slots in use are fewer than all")
    }

    /// Frees a slot. Returns true if the slot counts as never used, because no search has to continue behind
    /// it. In a word that was once full no slot ever does: values of that word may be in the next one.
    pub(super) fn free(&self, slot: usize) -> bool {
        let ends = self.ends_searches(slot / GROUP);
        self.set(slot, if ends { EMPTY } else { REMOVED });
        ends
    }

    /// Whether a search ends at this word.
    pub(super) fn ends_searches(&self, group: usize) -> bool {
        bytes_equal(self.0[group].load(Relaxed), EMPTY) != 0
    }

    /// All changes are made under the shard's lock. A reader without it may see any of them.
    fn set(&self, slot: usize, tag: u8) {
        let word = &self.0[slot / GROUP];
        let shift = 8 * (slot % GROUP);
        let others = word.load(Relaxed) & !(0xff << shift);
        word.store(others | u64::from(tag) << shift, Relaxed);
    }
}

/// The low half of a hash, as a fraction of `of`.
#[inline]
pub(super) fn fraction(of: usize, hash: u64) -> usize {
    ((low_half(hash) * of as u64) >> 32) as usize
}

/// The half of a hash that determines where a search starts.
#[inline]
pub(super) fn low_half(hash: u64) -> u64 {
    hash & 0xffff_ffff
}

/// The tag of a hash: its top bits, because the low half determines the word.
#[inline]
fn tag_of(hash: u64) -> u8 {
    ((hash >> 56) as u8).max(NO_SLOT + 1)
}

/// The seat of a hash, by the bits below the tag: its preferred slot in a word. Most values are in their
/// seat, so it can be prefetched without reading the tags.
#[inline]
pub(super) fn seat_in_word(hash: u64) -> usize {
    (hash >> 53) as usize % GROUP
}

/// A free byte of a word for a hash: its seat, or the next free one, cyclically.
#[inline]
fn free_for(hash: u64, word: u64) -> Option<usize> {
    let seat = seat_in_word(hash);
    let from_seat = word >> (8 * seat) | word << ((64 - 8 * seat) % 64);
    let free = bytes_equal(from_seat & !LOW_BITS, 0);
    (free != 0).then(|| (seat + first_of(free)) % GROUP)
}

#[inline]
fn byte_of(word: u64, index: usize) -> u64 {
    word >> (8 * index) & 0xff
}

/// The high bits of the bytes of `word` that equal `byte`, and possibly of bytes above an equal one.
#[inline]
fn bytes_equal(word: u64, byte: u8) -> u64 {
    let differing = word ^ (LOW_BITS * u64::from(byte));
    differing.wrapping_sub(LOW_BITS) & !differing & HIGH_BITS
}

/// The index of the lowest byte of a result of `bytes_equal`, which is always equal.
#[inline]
fn first_of(equal: u64) -> usize {
    equal.trailing_zeros() as usize / 8
}

#[cfg(test)]
mod tests {
    use std::hash::BuildHasher;

    use foldhash::fast::FixedState;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn equal_bytes_are_found(bytes in any::<[u8; 8]>(), byte in any::<u8>()) {
            let found = bytes_equal(u64::from_le_bytes(bytes), byte);
            for (index, other) in bytes.iter().enumerate() {
                prop_assert!(*other != byte || found & 0x80 << (8 * index) != 0);
            }
            let first = bytes.iter().position(|other| *other == byte);
            prop_assert_eq!((found != 0).then(|| first_of(found)), first);
        }
    }

    #[test]
    fn the_last_word_has_only_its_own_slots() {
        let tags = Tags::new(11);
        let mut taken: Vec<_> = (0..11).map(|hash| tags.take(hash << 56)).collect();
        taken.sort_unstable();
        assert_eq!(taken, (0..11).map(|slot| (slot, true)).collect::<Vec<_>>());
        assert!(!tags.ends_searches(0) && !tags.ends_searches(1));
        assert!(!tags.free(3), "searches go on past a full word");
        assert_eq!(tags.take(7 << 56), (3, false));
    }

    #[test]
    fn a_hash_takes_its_seat_or_the_next_free_one() {
        let of = |seat: u64, tag: u64| tag << 56 | seat << 53;
        let tags = Tags::new(8);
        for (hash, slot) in [(of(6, 9), 6), (of(6, 7), 7), (of(7, 7), 0), (of(7, 3), 1), (of(5, 3), 5)] {
            assert_eq!((tags.free_near(hash), tags.take(hash)), (Some(slot), (slot, true)));
            assert_eq!(tags.find(hash, |found| found == slot), Some(slot));
        }
        assert_eq!([of(5, 9), of(7, 200)].map(seat_in_word), [5, 7]);
        assert!(tags.free(6), "it was never full");
        assert_eq!(tags.take(of(5, 2)), (6, true));
    }

    #[test]
    fn most_hashes_are_in_their_seats() {
        // Four fifths of the slots are used.
        let tags = Tags::new(8_000);
        let hashes = (0..6_400_u64).map(|key| FixedState::with_seed(7).hash_one(key));
        let has_its_seat = |&hash: &u64| tags.take(hash).0 == tags.home(hash) * GROUP + seat_in_word(hash);
        let in_seats = hashes.filter(has_its_seat).count();
        assert!(in_seats > 3_600, "{in_seats}");
    }
}
