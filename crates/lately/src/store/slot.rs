//! A key and what is kept of it in 40 bytes.

use std::num::NonZeroU8;

use super::context::Hit;
use super::record::{Fetched, Record};
use super::slab::Slab;
use crate::class::ClassId;
use crate::entry::Whereabouts;
use crate::error::HitError;
use crate::frame::Frame;
use crate::settings::Settings;

/// The longest key a slot holds itself.
const INLINE_BYTES: usize = 22;
/// The length of a key that is kept elsewhere.
const LONG: NonZeroU8 = NonZeroU8::MAX;
/// Bytes of a long key's slot that say where the key is.
const PLACE_BYTES: usize = size_of::<u32>();

/// Where a slot of a shorter key has room to say where the list of one that is watched is.
const HINT_AT: usize = INLINE_BYTES - Whereabouts::BYTES;

/// Keys too long for a slot.
pub(super) type LongKeys = Slab<Box<[u8]>>;

/// A key, what class it has, and what is kept of it.
#[derive(Debug)]
pub(super) struct Slot {
    /// Length of the key, or [`LONG`]. Never 0: that is how a free slot is told.
    len: NonZeroU8,
    bytes: [u8; INLINE_BYTES],
    pub(super) class: ClassId,
    pub(super) record: Record,
}

impl Slot {
    /// A slot for a key, which is not empty.
    pub(super) fn new(key: &[u8], class: ClassId, long_keys: &mut LongKeys) -> Slot {
        let mut bytes = [0; INLINE_BYTES];
        let short = u8::try_from(key.len()).ok().filter(|&len| usize::from(len) <= INLINE_BYTES);
        let len = short.and_then(NonZeroU8::new).unwrap_or(LONG);
        if len == LONG {
            bytes[..PLACE_BYTES].copy_from_slice(&long_keys.insert(key.into()).to_le_bytes());
        } else {
            bytes[..key.len()].copy_from_slice(key);
        }
        Slot { len, bytes, class, record: Record::default() }
    }

    /// The key.
    pub(super) fn key<'a>(&'a self, long_keys: &'a LongKeys) -> &'a [u8] {
        match self.long_place() {
            Some(place) => long_keys.get(place).expect("a long key is kept as long as its slot"),
            None => &self.bytes[..usize::from(self.len.get())],
        }
    }

    /// Whether this is the slot of a key.
    #[inline]
    pub(super) fn is(&self, key: &[u8], long_keys: &LongKeys) -> bool {
        if self.len == LONG {
            return self.key(long_keys) == key;
        }
        usize::from(self.len.get()) == key.len() && begins_with(&self.bytes, key)
    }

    /// Has what is on the heap fetched.
    #[inline]
    pub(super) fn prefetch(&self) -> Fetched {
        match self.record.prefetch() {
            Fetched::First if self.hint().is_some_and(Whereabouts::prefetch) => Fetched::All,
            fetched => fetched,
        }
    }

    fn hint(&self) -> Option<Whereabouts> {
        let hint = self.bytes.last_chunk().filter(|_| usize::from(self.len.get()) <= HINT_AT)?;
        Some(Whereabouts::from_bytes(*hint))
    }

    /// Takes note of where the list of a key that is watched is, if there is room for that: the next who comes need not
    /// wait for what points there.
    #[inline]
    pub(super) fn note_list(&mut self, list: Whereabouts) {
        if self.hint().is_some_and(|hint| hint != list) {
            self.bytes[HINT_AT..].copy_from_slice(&list.to_bytes());
        }
    }

    /// Counts hits whose time was checked; gives those of the default window that ends with them.
    /// What that takes on the heap is added to `bytes`.
    #[inline]
    pub(super) fn count(
        &mut self,
        hit: &Hit<'_>,
        frame: &Frame,
        settings: &Settings,
        bytes: &mut usize,
    ) -> Result<u64, HitError> {
        let entry = self.record.hits_mut();
        let before = entry.heap_bytes();
        let counted = match hit.at {
            None if hit.weight > 0 => entry.hit_now(hit.weight, frame, settings),
            None => Ok(entry.count_now(frame, settings)),
            Some(at) => entry.add(at, hit.weight, settings, frame.now).map(|()| {
                // Long ago, the estimate is a share of a cell; these hits are in the window for certain.
                entry.count(at, settings.window(), settings, frame.now).estimate.max(hit.weight)
            }),
        };
        *bytes = *bytes + entry.heap_bytes() - before;
        counted
    }

    /// Where the key is kept, when it is too long for the slot.
    pub(super) fn long_place(&self) -> Option<u32> {
        let [a, b, c, d, ..] = self.bytes;
        (self.len == LONG).then(|| u32::from_le_bytes([a, b, c, d]))
    }
}

/// Whether `bytes` begin with `key`. A comparison of slices is a call; this is two loads or three.
#[inline]
fn begins_with(bytes: &[u8; INLINE_BYTES], key: &[u8]) -> bool {
    let Some(start) = bytes.get(..key.len()) else { return false };
    if key.len() >= 8 {
        return start.first_chunk::<8>() == key.first_chunk()
            && start.last_chunk::<8>() == key.last_chunk()
            && (key.len() <= 16 || start[8..].first_chunk::<8>() == key[8..].first_chunk());
    }
    start.iter().eq(key)
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
            let mut slot = Slot::new(&key, classes.of(&key), &mut long_keys);
            slot.note_list(Whereabouts::from_bytes([7; Whereabouts::BYTES]));
            assert_eq!(slot.hint().is_some_and(Whereabouts::prefetch), len <= 16);
            assert_eq!(slot.key(&long_keys), key);
            assert!(slot.is(&key, &long_keys));
            let mut other = key.clone();
            other[len - 1] = b'x';
            for other in [&other, &key[1..], &[&key[..], b"k"].concat()] {
                assert!(!slot.is(other, &long_keys), "{len}");
            }
        }
    }
}
