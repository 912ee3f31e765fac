//! Where each key's slot is: an open-addressing table of places by hash.
//!
//! A bucket is four bytes: eight bits of the hash and the place. A look-up touches one cache line of
//! buckets and, with a wrong guess in 256, one slot that is not the key's. Linear probing (Knuth, The
//! Art of Computer Programming 3, 6.4, algorithm L); a removed bucket is marked, and marks go when
//! the table is built anew.

use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

/// The most places a table holds: three bytes, less two values that mean something else.
pub(super) const MAX_PLACES: u32 = (1 << PLACE_BITS) - 2;

const PLACE_BITS: u32 = 24;
const PLACE_MASK: u32 = (1 << PLACE_BITS) - 1;
/// A bucket that was never used ends a probe; one whose key is gone does not.
const EMPTY: u32 = 0;
const REMOVED: u32 = PLACE_MASK;
const MIN_BUCKETS: usize = 8;

/// Buckets that are changed under a lock and may be looked at without it: what is seen then is a
/// guess. Each holds a place plus one.
pub(super) type Buckets = Arc<[AtomicU32]>;

/// A table of places. It does not know the keys: who asks compares them.
#[derive(Debug)]
pub(super) struct Index {
    buckets: Buckets,
    len: u32,
    /// Buckets that are not empty: places and marks.
    used: u32,
}

impl Default for Index {
    fn default() -> Index {
        Index { buckets: Arc::new([]), len: 0, used: 0 }
    }
}

impl Index {
    pub(super) fn len(&self) -> usize {
        self.len as usize
    }

    #[cfg(test)]
    fn bytes(&self) -> usize {
        self.buckets.len() * size_of::<u32>()
    }

    /// The place with this hash for which `is_it` holds.
    pub(super) fn find(&self, hash: u64, is_it: impl FnMut(u32) -> bool) -> Option<u32> {
        find_in(&self.buckets, hash, is_it)
    }

    /// The buckets, for guesses.
    pub(super) fn buckets(&self) -> &Buckets {
        &self.buckets
    }

    fn at(&self, bucket: usize) -> u32 {
        self.buckets[bucket].load(Relaxed)
    }

    fn set(&self, bucket: usize, value: u32) {
        // All changes are made under the shard's lock; a look without it may see any of them.
        self.buckets[bucket].store(value, Relaxed);
    }

    /// Places the table takes before it is built anew.
    pub(super) fn capacity(&self) -> usize {
        capacity(self.buckets.len())
    }

    /// Whether there is room for one more; if not, `rebuild` before `insert`.
    pub(super) fn has_room(&self) -> bool {
        (self.used as usize) < capacity(self.buckets.len())
    }

    /// Adds a place that is not in the table.
    pub(super) fn insert(&mut self, hash: u64, place: u32) {
        assert!(self.has_room() && place < MAX_PLACES);
        let free = probe(self.buckets.len(), hash).find(|&bucket| {
            let value = self.at(bucket);
            value == EMPTY || value & PLACE_MASK == REMOVED
        });
        let bucket = free.expect("there is room");
        self.used += u32::from(self.at(bucket) == EMPTY);
        self.len += 1;
        self.set(bucket, tag_of(hash) << PLACE_BITS | (place + 1));
    }

    /// Takes out a place that is in the table.
    pub(super) fn remove(&mut self, hash: u64, place: u32) {
        let value = tag_of(hash) << PLACE_BITS | (place + 1);
        let found = probe(self.buckets.len(), hash).find(|&bucket| self.at(bucket) == value);
        let bucket = found.expect("the place is in the table");
        let next = if bucket + 1 < self.buckets.len() { bucket + 1 } else { 0 };
        // Before an empty bucket no probe needs the mark.
        if self.at(next) == EMPTY {
            self.set(bucket, EMPTY);
            self.used -= 1;
        } else {
            self.set(bucket, REMOVED);
        }
        self.len -= 1;
    }

    /// Builds the table anew with room for more than there is, from all hashes and places.
    pub(super) fn rebuild(&mut self, all: impl Iterator<Item = (u64, u32)>) {
        // An eighth of the room is left at least, so that building is rare.
        let fits = |buckets: usize| self.len() < capacity(buckets) - capacity(buckets) / 8;
        let mut buckets = MIN_BUCKETS;
        while !fits(buckets) {
            // Four steps to twice as many: a table is never much too large.
            buckets += (1 << buckets.ilog2()) / 4;
        }
        *self = Index { buckets: (0..buckets).map(|_| AtomicU32::new(EMPTY)).collect(), len: 0, used: 0 };
        all.for_each(|(hash, place)| self.insert(hash, place));
    }
}

/// The place with this hash for which `is_it` holds.
#[inline]
fn find_in(buckets: &[AtomicU32], hash: u64, mut is_it: impl FnMut(u32) -> bool) -> Option<u32> {
    let tag = tag_of(hash);
    let (before, from) = buckets.split_at_checked(home_of(buckets.len(), hash))?;
    for part in [from, before] {
        for bucket in part {
            let value = bucket.load(Relaxed);
            // That of an empty bucket wraps, that of a removed one is past the last.
            let place = (value & PLACE_MASK).wrapping_sub(1);
            if value >> PLACE_BITS == tag && place < MAX_PLACES && is_it(place) {
                return Some(place);
            }
            if value == EMPTY {
                return None;
            }
        }
    }
    None
}

/// The first place whose tag fits, its key not compared: a good guess for a prefetch.
#[inline]
pub(super) fn guess(buckets: &[AtomicU32], hash: u64) -> Option<u32> {
    find_in(buckets, hash, |_| true)
}

/// The bucket where a search for a hash begins.
#[inline]
pub(super) fn home(buckets: &[AtomicU32], hash: u64) -> Option<&AtomicU32> {
    buckets.get(home_of(buckets.len(), hash))
}

/// The low half of a hash, taken for a fraction of `len` (Lemire, Fast Random Integer Generation in an
/// Interval, 2019): tables need not be powers of two.
#[inline]
fn home_of(len: usize, hash: u64) -> usize {
    ((hash & 0xffff_ffff) as usize * len) >> 32
}

/// The buckets where a hash may be, in order.
#[inline]
fn probe(len: usize, hash: u64) -> impl Iterator<Item = usize> {
    let home = home_of(len, hash);
    (home..len).chain(0..home)
}

/// Used buckets a table takes before it is built anew: 13 of 16.
fn capacity(buckets: usize) -> usize {
    buckets * 13 / 16
}

/// The top bits of the hash: the low ones say where the bucket is.
fn tag_of(hash: u64) -> u32 {
    (hash >> 56) as u32
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    fn insert(index: &mut Index, known: &mut HashMap<u32, u64>, hash: u64, place: u32) {
        known.insert(place, hash);
        if index.has_room() {
            index.insert(hash, place);
        } else {
            index.insert_after_rebuild(known, hash, place);
        }
    }

    impl Index {
        fn insert_after_rebuild(&mut self, known: &HashMap<u32, u64>, hash: u64, place: u32) {
            self.rebuild(
                known.iter().filter(|&(&other, _)| other != place).map(|(&place, &hash)| (hash, place)),
            );
            self.insert(hash, place);
        }
    }

    proptest! {
        #[test]
        fn it_finds_what_is_in_it(steps in prop::collection::vec((any::<bool>(), 0_u32..300, 0_u64..64), 0..2_000)) {
            let mut index = Index::default();
            let mut known = HashMap::new();
            for (add, place, hash) in steps {
                // Few hashes, many places: long probes, equal tags.
                let hash = hash << 54 | hash;
                match known.get(&place).copied() {
                    None if add => insert(&mut index, &mut known, hash, place),
                    Some(hash) if !add => {
                        index.remove(hash, place);
                        known.remove(&place);
                    }
                    _ => {}
                }
                prop_assert_eq!(index.len(), known.len());
            }
            for place in 0..300 {
                let hash = known.get(&place).copied();
                for candidate in 0_u64..64 {
                    let candidate = candidate << 54 | candidate;
                    let is_it = |other| other == place && hash == Some(candidate);
                    let found = index.find(candidate, is_it);
                    prop_assert_eq!(found.is_some(), hash == Some(candidate));
                }
            }
        }
    }

    #[test]
    fn marks_do_not_pile_up() {
        let mut index = Index::default();
        index.rebuild(std::iter::empty());
        for place in 0..100_000_u32 {
            let hash = u64::from(place).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            if !index.has_room() {
                index.rebuild(std::iter::empty());
            }
            index.insert(hash, place % 100);
            index.remove(hash, place % 100);
        }
        assert!(index.bytes() <= 64);
    }
}
