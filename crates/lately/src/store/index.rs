//! Where each key's slot is: an open-addressing table of places by hash.
//!
//! A bucket is four bytes: eight bits of the hash and the place. A look-up touches one cache line of
//! buckets and, with a wrong guess in 256, one slot that is not the key's. Linear probing (Knuth, The
//! Art of Computer Programming 3, 6.4, algorithm L); a removed bucket is marked, and marks go with the
//! table.
//!
//! A table that is full gives way to a larger one. The places move there some at a time, in their
//! order, so that no operation waits for all of them; meanwhile a search looks into both. What stays
//! behind in the old table does no harm: it names places that are in the new one as well, or free.

use std::ops::Range;
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
/// Places that move in one operation: some microseconds.
const MOVED_AT_ONCE: u32 = 64;

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
    /// The table before, while places move.
    old: Option<Box<Old>>,
}

/// A table that gives way to a larger one.
#[derive(Debug)]
struct Old {
    buckets: Buckets,
    /// Places before this one have moved.
    moved: u32,
    /// How many have not, of those in use.
    left: u32,
}

impl Default for Index {
    fn default() -> Index {
        Index { buckets: Arc::new([]), len: 0, used: 0, old: None }
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
    pub(super) fn find(&self, hash: u64, mut is_it: impl FnMut(u32) -> bool) -> Option<u32> {
        let found = find_in(&self.buckets, hash, &mut is_it);
        found.or_else(|| self.old.as_ref().and_then(|old| find_in(&old.buckets, hash, &mut is_it)))
    }

    /// The first place whose tag fits, its key not compared: a good guess. `None` is certain.
    #[inline]
    pub(super) fn guess(&self, hash: u64) -> Option<u32> {
        guess(&self.buckets, hash).or_else(|| self.old.as_ref().and_then(|old| guess(&old.buckets, hash)))
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

    /// Places the table takes before it gives way.
    pub(super) fn capacity(&self) -> usize {
        capacity(self.buckets.len())
    }

    /// Whether there is room for one more; if not, `grow` before `insert`.
    pub(super) fn has_room(&self) -> bool {
        let left = self.old.as_ref().map_or(0, |old| old.left);
        ((self.used + left) as usize) < self.capacity()
    }

    /// Adds a place that is not in the table.
    pub(super) fn insert(&mut self, hash: u64, place: u32) {
        assert!(self.has_room() && place < MAX_PLACES);
        self.len += 1;
        self.put(hash, place);
    }

    fn put(&mut self, hash: u64, place: u32) {
        let free = probe(self.buckets.len(), hash).find(|&bucket| {
            let value = self.at(bucket);
            value == EMPTY || value & PLACE_MASK == REMOVED
        });
        let bucket = free.expect("there is room");
        self.used += u32::from(self.at(bucket) == EMPTY);
        self.set(bucket, value_of(hash, place));
    }

    /// The bucket of a place, if it is in the table; the old one is not looked at.
    fn bucket_of(&self, hash: u64, place: u32) -> Option<usize> {
        let value = value_of(hash, place);
        let mut used = probe(self.buckets.len(), hash).take_while(|&bucket| self.at(bucket) != EMPTY);
        used.find(|&bucket| self.at(bucket) == value)
    }

    /// Takes out a place that is in the table.
    pub(super) fn remove(&mut self, hash: u64, place: u32) {
        self.len -= 1;
        let Some(bucket) = self.bucket_of(hash, place) else {
            let old = self.old.as_mut().expect("the place is in the table or has yet to move");
            old.left -= 1;
            return;
        };
        let next = if bucket + 1 < self.buckets.len() { bucket + 1 } else { 0 };
        // Before an empty bucket no probe needs the mark.
        if self.at(next) == EMPTY {
            self.set(bucket, EMPTY);
            self.used -= 1;
        } else {
            self.set(bucket, REMOVED);
        }
    }

    /// Begins a table with room for more than there is: an eighth to three eighths more, as `hash`, that
    /// of any key, decides. So tables that fill alike do not grow all at once. All places are to move there.
    pub(super) fn grow(&mut self, hash: u64) {
        assert!(!self.is_moving(), "one table after the other");
        let eighth = self.len() / 8;
        let places = self.len() + eighth + fraction(2 * eighth, hash) + 1;
        let buckets = (places * 16).div_ceil(13).max(MIN_BUCKETS);
        let buckets = (0..buckets).map(|_| AtomicU32::new(EMPTY)).collect();
        let buckets = std::mem::replace(&mut self.buckets, buckets);
        self.old = Some(Box::new(Old { buckets, moved: 0, left: self.len }));
        self.used = 0;
    }

    /// Whether places have yet to move.
    #[inline]
    pub(super) fn is_moving(&self) -> bool {
        self.old.is_some()
    }

    /// The next places to move, of all that there are.
    pub(super) fn next_to_move(&self, places: u32) -> Range<u32> {
        let from = self.old.as_ref().map_or(places, |old| old.moved);
        from..places.min(from + MOVED_AT_ONCE)
    }

    /// Moves a place that is in use, unless it is there already: it may have been used anew meanwhile.
    pub(super) fn move_in(&mut self, hash: u64, place: u32) {
        if self.bucket_of(hash, place).is_none() {
            self.put(hash, place);
            self.old.as_mut().expect("places move").left -= 1;
        }
    }

    /// Says that all in use of the places before `moved` have moved, of all that there are.
    pub(super) fn have_moved(&mut self, moved: u32, places: u32) {
        match &mut self.old {
            Some(old) if moved < places => old.moved = moved,
            Some(old) => {
                assert_eq!(old.left, 0, "places are left behind");
                self.old = None;
            }
            None => {}
        }
    }
}

/// What a bucket holds for a place.
fn value_of(hash: u64, place: u32) -> u32 {
    tag_of(hash) << PLACE_BITS | (place + 1)
}

/// The place with this hash for which `is_it` holds.
#[inline]
fn find_in(buckets: &[AtomicU32], hash: u64, mut is_it: impl FnMut(u32) -> bool) -> Option<u32> {
    let tag = tag_of(hash);
    let (before, from) = buckets.split_at_checked(home_of(buckets.len(), hash))?;
    for part in [from, before] {
        for bucket in part {
            let value = bucket.load(Relaxed);
            if value >> PLACE_BITS == tag {
                // That of an empty bucket wraps, that of a removed one is past the last.
                let place = (value & PLACE_MASK).wrapping_sub(1);
                if place < MAX_PLACES && is_it(place) {
                    return Some(place);
                }
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
    fraction(len, hash)
}

#[inline]
fn fraction(of: usize, hash: u64) -> usize {
    ((hash & 0xffff_ffff) as usize * of) >> 32
}

/// The buckets where a hash may be, in order.
#[inline]
fn probe(len: usize, hash: u64) -> impl Iterator<Item = usize> {
    let home = home_of(len, hash);
    (home..len).chain(0..home)
}

/// Used buckets a table takes before it gives way: 13 of 16.
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

    const PLACES: u32 = 600;

    fn insert(index: &mut Index, known: &mut HashMap<u32, u64>, hash: u64, place: u32) {
        if !index.has_room() {
            while index.is_moving() {
                move_some(index, known);
            }
            index.grow(hash);
        }
        index.insert(hash, place);
        known.insert(place, hash);
    }

    fn move_some(index: &mut Index, known: &HashMap<u32, u64>) {
        let places = index.next_to_move(PLACES);
        let moved = places.end;
        for (place, hash) in places.filter_map(|place| Some((place, *known.get(&place)?))) {
            index.move_in(hash, place);
        }
        index.have_moved(moved, PLACES);
    }

    proptest! {
        #[test]
        fn it_finds_what_is_in_it(steps in prop::collection::vec((0..8, 0..PLACES, 0_u64..64), 0..2_000)) {
            let mut index = Index::default();
            let mut known = HashMap::new();
            for (step, place, hash) in steps {
                // One step in eight moves places too, if they are to move: so inserts and removals meet
                // tables at every stage.
                if step == 7 && index.is_moving() {
                    move_some(&mut index, &known);
                }
                let add = step < 5;
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
            for place in 0..PLACES {
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
        for place in 0..100_000_u32 {
            let hash = u64::from(place).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            if !index.has_room() {
                index.grow(hash);
                index.have_moved(100, 100);
            }
            index.insert(hash, place % 100);
            index.remove(hash, place % 100);
        }
        assert!(index.bytes() <= 64);
    }
}
