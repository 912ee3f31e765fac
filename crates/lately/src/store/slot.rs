//! A key and its hits in 40 bytes.

use std::num::NonZeroU8;

use super::slab::Slab;
use crate::class::ClassId;
use crate::entry::Entry;

/// The longest key a slot holds itself.
const INLINE_BYTES: usize = 22;
/// The length of a key that is kept elsewhere.
const LONG: NonZeroU8 = NonZeroU8::MAX;
/// Bytes of a long key's slot that say where the rest is; what follows is how the key begins.
const PLACE_BYTES: usize = size_of::<u32>();

/// Keys too long for a slot.
pub(super) type LongKeys = Slab<Box<[u8]>>;

/// A key, what class it has, and its hits.
#[derive(Debug)]
pub(super) struct Slot {
    /// Length of the key, or [`LONG`]. Never 0: that is how a free slot is told.
    len: NonZeroU8,
    bytes: [u8; INLINE_BYTES],
    pub(super) class: ClassId,
    pub(super) entry: Entry,
}

/// A key as a slot has it, to be compared with slots.
pub(super) struct Name<'a> {
    key: &'a [u8],
    len: NonZeroU8,
    /// The key and zeros; of a long one its beginning, after the bytes that say where it is.
    bytes: [u8; INLINE_BYTES],
}

impl<'a> Name<'a> {
    #[inline]
    pub(super) fn new(key: &'a [u8]) -> Name<'a> {
        let mut bytes = [0; INLINE_BYTES];
        if key.len() <= INLINE_BYTES {
            bytes[..key.len()].copy_from_slice(key);
        } else {
            bytes[PLACE_BYTES..].copy_from_slice(&key[..INLINE_BYTES - PLACE_BYTES]);
        }
        let short = u8::try_from(key.len()).ok().filter(|&len| usize::from(len) <= INLINE_BYTES);
        // No key is empty; if one were, it would be that of no slot.
        let len = short.and_then(NonZeroU8::new).unwrap_or(LONG);
        Name { key, len, bytes }
    }
}

impl Slot {
    /// A slot for a key, which is not empty.
    pub(super) fn new(key: &[u8], class: ClassId, long_keys: &mut LongKeys) -> Slot {
        let Name { len, mut bytes, .. } = Name::new(key);
        if len == LONG {
            bytes[..PLACE_BYTES].copy_from_slice(&long_keys.insert(key.into()).to_le_bytes());
        }
        Slot { len, bytes, class, entry: Entry::new() }
    }

    /// The key.
    pub(super) fn key<'a>(&'a self, long_keys: &'a LongKeys) -> &'a [u8] {
        match self.long_place() {
            Some(place) => long_keys.get(place).expect("a long key is kept as long as its slot"),
            None => &self.bytes[..usize::from(self.len.get())],
        }
    }

    /// Whether this is the slot of a key. Looks elsewhere only when the beginnings agree.
    #[inline]
    pub(super) fn is(&self, name: &Name<'_>, long_keys: &LongKeys) -> bool {
        if self.len != name.len {
            return false;
        }
        if name.len != LONG {
            return self.bytes == name.bytes;
        }
        name.bytes[PLACE_BYTES..] == self.bytes[PLACE_BYTES..] && self.key(long_keys) == name.key
    }

    /// Where the key is kept, when it is too long for the slot.
    pub(super) fn long_place(&self) -> Option<u32> {
        let [a, b, c, d, ..] = self.bytes;
        (self.len == LONG).then(|| u32::from_le_bytes([a, b, c, d]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::class::Classes;
    use crate::limits::MAX_KEY_BYTES;
    use crate::settings::Settings;

    #[test]
    fn a_slot_has_forty_bytes_used_or_free() {
        assert_eq!((size_of::<Slot>(), size_of::<Option<Slot>>()), (40, 40));
    }

    #[test]
    fn keys_of_every_length_come_back() {
        let classes = Classes::new(Vec::new(), Settings::default()).expect("few");
        let mut long_keys = LongKeys::default();
        for len in 1..=MAX_KEY_BYTES {
            let key = vec![b'k'; len];
            let slot = Slot::new(&key, classes.of(&key), &mut long_keys);
            assert_eq!(slot.key(&long_keys), key);
            assert!(slot.is(&Name::new(&key), &long_keys));
            let mut other = key.clone();
            other[len - 1] = b'x';
            for other in [&other, &key[1..], &[&key[..], b"k"].concat()] {
                assert!(!slot.is(&Name::new(other), &long_keys), "{len}");
            }
        }
    }
}
