//! The keys of the keyed contenders, made before anything is timed.

use std::cell::Cell;
use std::fmt::Write;
use std::ops::Range;

/// Bytes of a key: `key:` and twelve digits.
pub(crate) const KEY_BYTES: usize = 16;

/// A key, for all contenders that take bytes.
pub(crate) type Key = [u8; KEY_BYTES];

/// Keys in random order, so that walking along them accesses memory at random.
pub(crate) struct Keys {
    text: String,
    ids: Vec<u32>,
}

impl Keys {
    /// The keys `key:000000000000` to `count`, shuffled in the same order each time.
    pub(crate) fn shuffled(count: u32) -> Keys {
        let mut ids: Vec<u32> = (0..count).collect();
        let mut random = Random::new();
        for last in (1..ids.len()).rev() {
            ids.swap(last, random.below(last + 1));
        }
        let mut text = String::with_capacity(ids.len() * KEY_BYTES);
        for id in &ids {
            write!(text, "key:{id:012}").expect("a string takes what is written");
        }
        Keys { text, ids }
    }

    pub(crate) fn len(&self) -> usize {
        self.ids.len()
    }

    /// The keys as bytes.
    pub(crate) fn bytes(&self) -> &[Key] {
        self.text.as_bytes().as_chunks().0
    }

    /// The key at `place`, as text.
    pub(crate) fn text(&self, place: usize) -> &str {
        &self.text[place * KEY_BYTES..(place + 1) * KEY_BYTES]
    }

    /// All places in another order, for filling: so the memory is not in the order of a walk along the keys.
    pub(crate) fn fill_order(&self) -> impl Iterator<Item = usize> + use<> {
        // A prime that divides no number of keys, so its multiples visit every place.
        const STEP: usize = 7_368_787;
        let keys = self.len();
        (0..keys).map(move |index| index * STEP % keys)
    }

    /// The number in the key at `place`.
    pub(crate) fn id(&self, place: usize) -> u32 {
        self.ids[place]
    }
}

/// A walk along the keys in strides. A key comes again only after all others.
pub(crate) struct Walk {
    next: Cell<usize>,
    keys: usize,
}

impl Walk {
    pub(crate) fn new(keys: usize) -> Walk {
        Walk { next: Cell::new(0), keys }
    }

    /// The next `count` places. If fewer are left of this pass, they are skipped.
    pub(crate) fn stride(&self, count: usize) -> Range<usize> {
        let count = count.min(self.keys);
        let start = if self.next.get() + count > self.keys { 0 } else { self.next.get() };
        self.next.set(start + count);
        start..start + count
    }
}

/// Random numbers, the same each time: the high bits of a linear congruential generator.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new() -> Random {
        Random(0x9E37_79B9_7F4A_7C15)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 32
    }

    /// A number below `bound`, which is at most 2^32.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        let scaled = (self.next() * bound as u64) >> 32;
        usize::try_from(scaled).expect("below a usize")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_occurs_once_in_random_order() {
        let keys = Keys::shuffled(1_000);
        assert_eq!(keys.len(), 1_000);
        assert_eq!(keys.text(3).as_bytes(), keys.bytes()[3]);
        assert_eq!(keys.text(3), format!("key:{:012}", keys.id(3)));
        let mut places: Vec<usize> = keys.fill_order().collect();
        assert!(!places.is_sorted());
        places.sort_unstable();
        assert!(places.into_iter().eq(0..1_000));
        let mut ids: Vec<u32> = (0..1_000).map(|place| keys.id(place)).collect();
        assert!(!ids.is_sorted());
        ids.sort_unstable();
        assert!(ids.into_iter().eq(0..1_000));
    }

    #[test]
    fn strides_repeat_no_key_within_a_pass() {
        let walk = Walk::new(10);
        let strides: Vec<_> = (0..4).map(|_| walk.stride(4)).collect();
        assert_eq!(strides, [0..4, 4..8, 0..4, 4..8]);
        assert_eq!(walk.stride(100), 0..10);
    }

    #[test]
    fn random_numbers_stay_below_their_bound() {
        let mut random = Random::new();
        let numbers: Vec<usize> = (0..1_000).map(|_| random.below(7)).collect();
        assert!((0..7).all(|number| numbers.contains(&number)));
        assert!(numbers.iter().all(|&number| number < 7));
    }
}
