//! Keys that are too long for a slot, in chunks: a log that is compacted.
//!
//! If each key had an allocation of its own, removed keys would leave holes that no longer key fits in. After
//! a flood of long keys the process would keep twice the memory that the store accounts for. A chunk has the
//! size of a page of slots, so the allocator can reuse the memory of one for the other. New keys are
//! appended. When a tenth of the bytes belongs to removed keys, the chunk with the most of them is freed, and
//! its live keys are appended again (Rosenblum and Ousterhout, The Design and Implementation of a
//! Log-Structured File System, 1991, section 3).

use super::slot::Slot;
use super::table::PAGE;
use crate::allocation::allocated;

/// The size of a chunk in bytes.
const CHUNK: usize = PAGE * size_of::<Option<Slot>>();

/// At most this fraction of the bytes belongs to removed keys: a tenth.
const WASTE: usize = 10;

/// The bytes before each key: its hash and its length.
const HEAD: usize = size_of::<u64>() + size_of::<u16>();

/// The location of a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Location {
    chunk: u32,
    offset: u16,
    len: u16,
}

/// The keys of a shard that are too long for their slots.
#[derive(Debug, Default)]
pub(super) struct LongKeys {
    chunks: Vec<Chunk>,
    /// Empty chunks that can be reused, and the number of chunks in use.
    free: Vec<u32>,
    used: usize,
    /// The chunk that keys are appended to.
    last: Option<u32>,
    /// The bytes of live keys, and of removed ones, with their heads.
    live: usize,
    gone: usize,
    /// The bytes of all chunks.
    bytes: usize,
}

#[derive(Debug, Default)]
struct Chunk {
    bytes: Vec<u8>,
    gone: usize,
}

/// A chunk that was taken out. Its keys must be inserted again.
#[derive(Debug)]
pub(super) struct Evacuated {
    chunk: u32,
    bytes: Vec<u8>,
}

impl Location {
    pub(super) const BYTES: usize = 8;

    pub(super) fn to_bytes(self) -> [u8; Location::BYTES] {
        let ([a, b, c, d], [e, f], [g, h]) =
            (self.chunk.to_le_bytes(), self.offset.to_le_bytes(), self.len.to_le_bytes());
        [a, b, c, d, e, f, g, h]
    }

    pub(super) fn from_bytes([a, b, c, d, e, f, g, h]: [u8; Location::BYTES]) -> Location {
        Location {
            chunk: u32::from_le_bytes([a, b, c, d]),
            offset: u16::from_le_bytes([e, f]),
            len: u16::from_le_bytes([g, h]),
        }
    }

    /// The bytes of a chunk that the key takes.
    fn taken(self) -> usize {
        HEAD + usize::from(self.len)
    }
}

impl LongKeys {
    /// The key at a location.
    #[inline]
    pub(super) fn get(&self, location: Location) -> &[u8] {
        let start = usize::from(location.offset);
        &self.chunks[location.chunk as usize].bytes[start..start + usize::from(location.len)]
    }

    /// Adds a key, of at most [`MAX_KEY_BYTES`](crate::limits::MAX_KEY_BYTES).
    pub(super) fn insert(&mut self, hash: u64, key: &[u8]) -> Location {
        let taken = HEAD + key.len();
        let index = match self.last {
            Some(last) if self.chunks[last as usize].bytes.len() + taken <= CHUNK => last,
            _ => self.begin(),
        };
        let is_only = self.used == 1;
        let bytes = &mut self.chunks[index as usize].bytes;
        if bytes.capacity() - bytes.len() < taken {
            // With few keys, the chunk has at most twice the size that they need.
            let capacity =
                if is_only { (2 * bytes.len()).max(taken + bytes.len()).min(CHUNK) } else { CHUNK };
            self.bytes -= allocated(bytes.capacity());
            bytes.reserve_exact(capacity - bytes.len());
            self.bytes += allocated(bytes.capacity());
        }
        let len = u16::try_from(key.len()).expect("a key is not that long");
        bytes.extend_from_slice(&hash.to_le_bytes());
        bytes.extend_from_slice(&len.to_le_bytes());
        let offset = u16::try_from(bytes.len()).expect("a chunk is not that long");
        bytes.extend_from_slice(key);
        self.live += taken;
        Location { chunk: index, offset, len }
    }

    /// Starts another chunk.
    fn begin(&mut self) -> u32 {
        let index = self.free.pop().unwrap_or_else(|| {
            self.chunks.push(Chunk::default());
            u32::try_from(self.chunks.len() - 1).expect("a shard has fewer")
        });
        self.last = Some(index);
        self.used += 1;
        index
    }

    /// Removes a key. Call [`LongKeys::evacuate`] afterwards.
    pub(super) fn take(&mut self, location: Location) -> Box<[u8]> {
        let key = self.get(location).into();
        self.live -= location.taken();
        self.gone += location.taken();
        self.chunks[location.chunk as usize].gone += location.taken();
        key
    }

    /// Takes out the chunk with the most removed bytes, if there are too many of them overall.
    pub(super) fn evacuate(&mut self) -> Option<Evacuated> {
        if self.gone <= self.live / WASTE {
            return None;
        }
        let (index, chunk) = self.chunks.iter_mut().enumerate().max_by_key(|(_, chunk)| chunk.gone)?;
        let Chunk { bytes, gone } = std::mem::take(chunk);
        let chunk = u32::try_from(index).expect("a shard has fewer");
        self.gone -= gone;
        self.live -= bytes.len() - gone;
        self.bytes -= allocated(bytes.capacity());
        self.last = self.last.filter(|&last| last != chunk);
        self.used -= 1;
        Some(Evacuated { chunk, bytes })
    }

    /// Records that all keys of the chunk were inserted again.
    pub(super) fn evacuated(&mut self, chunk: &Evacuated) {
        self.free.push(chunk.chunk);
        if self.live == 0 {
            *self = LongKeys::default();
        }
    }

    /// The memory of all keys, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
            + allocated(self.chunks.capacity() * size_of::<Chunk>())
            + allocated(self.free.capacity() * size_of::<u32>())
    }

    /// Verifies the sums. `live` is the expected number of live bytes.
    ///
    /// # Panics
    /// If a sum is wrong.
    pub(super) fn check_consistency(&self, live: usize) {
        assert_eq!(self.live, live, "long keys are there as long as their slots");
        let held: usize = self.chunks.iter().map(|chunk| chunk.bytes.len()).sum();
        assert_eq!(held, self.live + self.gone, "all bytes are of keys");
        assert_eq!(self.gone, self.chunks.iter().map(|chunk| chunk.gone).sum::<usize>());
        let bytes: usize = self.chunks.iter().map(|chunk| allocated(chunk.bytes.capacity())).sum();
        assert_eq!(self.bytes, bytes, "chunks are accounted for");
        assert!(self.gone <= self.live / WASTE, "keys that went take little");
    }

    /// What a key adds to `live`.
    pub(super) fn live_bytes(location: Location) -> usize {
        location.taken()
    }
}

impl Evacuated {
    /// The keys of the chunk, with their hashes and their old locations. Removed keys are included.
    pub(super) fn keys(&self) -> impl Iterator<Item = (u64, &[u8], Location)> {
        let mut offset = 0;
        std::iter::from_fn(move || {
            let (hash, rest) = self.bytes.get(offset..)?.split_first_chunk()?;
            let (&len, rest) = rest.split_first_chunk()?;
            let (hash, len) = (u64::from_le_bytes(*hash), u16::from_le_bytes(len));
            let key = rest.get(..usize::from(len))?;
            let at = u16::try_from(offset + HEAD).expect("a chunk is not that long");
            offset += HEAD + key.len();
            Some((hash, key, Location { chunk: self.chunk, offset: at, len }))
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    /// Long keys and their locations, as slots have them.
    #[derive(Default)]
    struct Keys {
        long_keys: LongKeys,
        locations: HashMap<u64, (Location, Vec<u8>)>,
    }

    impl Keys {
        fn insert(&mut self, number: u64, len: usize) {
            let key = number.to_le_bytes().repeat(len.div_ceil(8))[..len].to_vec();
            let location = self.long_keys.insert(number, &key);
            self.locations.insert(number, (location, key));
        }

        fn take(&mut self, number: u64) {
            let Some((location, key)) = self.locations.remove(&number) else { return };
            assert_eq!(*self.long_keys.take(location), key);
            while let Some(chunk) = self.long_keys.evacuate() {
                for (hash, key, location) in chunk.keys() {
                    if let Some(known) = self.locations.get_mut(&hash).filter(|known| known.0 == location) {
                        known.0 = self.long_keys.insert(hash, key);
                    }
                }
                self.long_keys.evacuated(&chunk);
            }
        }

        fn check(&self) {
            let live = |(location, _): &(Location, Vec<u8>)| LongKeys::live_bytes(*location);
            self.long_keys.check_consistency(self.locations.values().map(live).sum());
            for (location, key) in self.locations.values() {
                assert_eq!(self.long_keys.get(*location), key);
            }
        }
    }

    proptest! {
        #[test]
        fn long_keys_stay_intact_while_others_come_and_go(
            steps in prop::collection::vec((0..200_u64, prop_oneof![23..60_usize, 23..1_025_usize]), 1..600),
        ) {
            let mut keys = Keys::default();
            for (number, len) in steps {
                if keys.locations.contains_key(&number) {
                    keys.take(number);
                } else {
                    keys.insert(number, len);
                }
                keys.check();
            }
        }
    }

    /// Symptom: after a flood of long keys the process had twice the memory that was accounted for. Cause:
    /// removed keys left holes of their size. Fix: keys are in chunks, which are compacted.
    #[test]
    fn removed_keys_take_no_memory() {
        let mut keys = Keys::default();
        (0..1_000).for_each(|number| keys.insert(number, 1_000));
        let full = keys.long_keys.bytes();
        assert!((1_010_000..1_100_000).contains(&full), "{full}");
        (0..1_000).filter(|number| number % 4 > 0).for_each(|number| keys.take(number));
        keys.check();
        let quarter = keys.long_keys.bytes();
        assert!(quarter < full / 4 * 6 / 5, "{quarter} of {full}");
        (0..1_000).for_each(|number| keys.take(number));
        assert_eq!(keys.long_keys.bytes(), 0);
    }

    #[test]
    fn a_few_keys_take_little_spare_memory() {
        let mut keys = Keys::default();
        let most = |count: usize| 2 * 110 * count + 200;
        for (number, count) in (0..8).zip(1..) {
            keys.insert(number, 100);
            assert!(keys.long_keys.bytes() <= most(count), "{count}: {}", keys.long_keys.bytes());
        }
        // The same after other keys are removed.
        for number in 8..1_000 {
            keys.insert(number, 100);
            keys.take(number - 8);
            assert!(keys.long_keys.bytes() <= most(9), "{number}: {}", keys.long_keys.bytes());
        }
    }
}
