//! The hits of a whole log, by key and pane. Every key and every pane is kept until the end, because lines come in any
//! order.

use std::hash::BuildHasher;

use foldhash::fast::RandomState;
use hashbrown::HashTable;

use crate::runs::Runs;

/// Hits in a batch.
const BATCH_HITS: usize = 64;

/// The keys, numbered from 0 in order of arrival, and the hits of each.
#[derive(Clone, Debug, Default)]
pub(crate) struct ByKey {
    hasher: RandomState,
    /// The numbers, by key.
    index: HashTable<u32>,
    names: Names,
    runs: Vec<Runs>,
}

#[derive(Clone, Debug, Default)]
struct Names {
    /// The bytes of all keys.
    bytes: Vec<u8>,
    /// The end of each key.
    ends: Vec<usize>,
}

/// Hits that are counted together. With many keys, a hit waits for memory several times. In a batch these waits
/// overlap.
#[derive(Clone, Debug, Default)]
pub(crate) struct Batch {
    keys: Names,
    panes: Vec<i64>,
    /// The bytes of their keys.
    numbers: Vec<u32>,
}

impl Batch {
    pub(crate) fn push(&mut self, key: &[u8], pane: i64) {
        self.keys.push(key);
        self.panes.push(pane);
    }

    pub(crate) fn is_full(&self) -> bool {
        self.panes.len() >= BATCH_HITS
    }
}

impl ByKey {
    /// Adds a hit of `key` in `pane`. Panics past four billion distinct keys.
    pub(crate) fn hit(&mut self, key: &[u8], pane: i64) {
        let number = self.number_or_new(key, pane);
        self.runs[number as usize].hit(pane);
    }

    /// Counts the hits of a batch, and empties it.
    pub(crate) fn hit_all(&mut self, batch: &mut Batch) {
        let Batch { keys, panes, numbers } = batch;
        numbers.extend((0..).zip(&*panes).map(|(at, pane)| self.number_or_new(keys.get(at), *pane)));
        for (number, pane) in numbers.iter().zip(&*panes) {
            self.runs[*number as usize].hit(*pane);
        }
        keys.bytes.clear();
        keys.ends.clear();
        panes.clear();
        numbers.clear();
    }

    /// The number of a key whose next hit is in `pane`.
    #[inline]
    fn number_or_new(&mut self, key: &[u8], pane: i64) -> u32 {
        let ByKey { hasher, index, names, runs } = self;
        let hash = hasher.hash_one(key);
        if let Some(&number) = index.find(hash, |&number| names.get(number) == key) {
            return number;
        }
        let number = u32::try_from(runs.len()).expect("fewer than 2^32 keys");
        names.push(key);
        runs.push(Runs::new(pane));
        index.insert_unique(hash, number, |&number| hasher.hash_one(names.get(number)));
        number
    }

    /// Distinct keys.
    pub(crate) fn len(&self) -> usize {
        self.runs.len()
    }

    /// The number of a key.
    pub(crate) fn number(&self, key: &[u8]) -> Option<u32> {
        let hash = self.hasher.hash_one(key);
        self.index.find(hash, |&number| self.names.get(number) == key).copied()
    }

    pub(crate) fn key(&self, number: u32) -> &[u8] {
        self.names.get(number)
    }

    /// The hits of the key with this number.
    pub(crate) fn runs(&self, number: u32) -> &Runs {
        &self.runs[number as usize]
    }

    /// The hits of each key, with its number.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &Runs)> {
        (0..).zip(&self.runs)
    }
}

impl Names {
    fn push(&mut self, key: &[u8]) {
        self.bytes.extend_from_slice(key);
        self.ends.push(self.bytes.len());
    }

    fn get(&self, number: u32) -> &[u8] {
        let number = number as usize;
        let from = number.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.bytes[from..self.ends[number]]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_differ_in_any_byte() {
        let (mut hits, mut batch) = (ByKey::default(), Batch::default());
        let keys: [&[u8]; 5] = [b"a", b"ab", b"", b"b", b"\xff\0"];
        for (pane, key) in (0..).zip(keys.repeat(3)) {
            if pane < 7 {
                batch.push(key, pane);
            } else {
                hits.hit_all(&mut batch);
                hits.hit(key, pane);
            }
        }
        assert_eq!(hits.len(), keys.len());
        for (number, key) in (0..).zip(keys) {
            assert_eq!(hits.key(number), key);
            assert_eq!(hits.number(key), Some(number));
        }
        assert_eq!(hits.number(b"abc"), None);
        let mut panes = Vec::new();
        for (number, runs) in hits.iter() {
            runs.sorted_into(&mut panes);
            let first = i64::from(number);
            assert_eq!(panes, [(first, 1), (first + 5, 1), (first + 10, 1)]);
        }
    }
}
