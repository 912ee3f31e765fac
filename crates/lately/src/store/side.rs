//! What few keys have, by place: a generation that is not the first, a limit in force.
//!
//! Nobody needs generations before a key is forgotten. After that every new key has one: eight bytes a
//! place, in chunks.

use std::collections::HashMap;

use crate::allocation::allocated;
use crate::delta::Generation;
use crate::time::Timestamp;

/// Generations of a chunk.
const CHUNK: usize = 32;

/// What few keys have.
#[derive(Debug, Default)]
pub(super) struct Side {
    generations: Vec<Option<Box<[Generation; CHUNK]>>>,
    limited_until: HashMap<u32, Timestamp>,
}

impl Side {
    /// The generation of the key at `place`: the first, unless another was set.
    pub(super) fn generation(&self, place: u32) -> Generation {
        let place = place as usize;
        let chunk = self.generations.get(place / CHUNK).and_then(Option::as_deref);
        chunk.map_or_else(Generation::default, |chunk| chunk[place % CHUNK])
    }

    /// Sets the generation of the key at `place`.
    pub(super) fn set_generation(&mut self, place: u32, generation: Generation) {
        if self.generation(place) == generation {
            return;
        }
        let place = place as usize;
        if self.generations.len() <= place / CHUNK {
            self.generations.resize_with(place / CHUNK + 1, || None);
        }
        self.generations[place / CHUNK].get_or_insert_with(Box::default)[place % CHUNK] = generation;
    }

    /// What the generation of the key at `place` costs: its part of a chunk, when it has one.
    pub(super) fn bytes_at(&self, place: u32) -> usize {
        // As for slots, four fifths of the places are used.
        const BYTES: usize = allocated(CHUNK * size_of::<Generation>()).div_ceil(CHUNK) * 5 / 4;
        if self.generation(place) == Generation::default() { 0 } else { BYTES }
    }

    /// Until when the key at `place` is limited, if it ever was.
    pub(super) fn limited_until(&self, place: u32) -> Option<Timestamp> {
        self.limited_until.get(&place).copied()
    }

    /// Limits the key at `place` until `until`, or as long as was asked for before; gives which.
    pub(super) fn limit_until(&mut self, place: u32, until: Timestamp) {
        let limited = self.limited_until.entry(place).or_insert(until);
        *limited = until.max(*limited);
    }

    /// Forgets the key at `place`.
    pub(super) fn remove(&mut self, place: u32) {
        self.limited_until.remove(&place);
        self.set_generation(place, Generation::default());
    }

    /// Takes over what the key that was at `from` in another table, and is at `to` now, has there.
    pub(super) fn take_over(&mut self, to: u32, before: &Side, from: u32) {
        self.set_generation(to, before.generation(from));
        if let Some(until) = before.limited_until(from) {
            self.limited_until.insert(to, until);
        }
    }

    /// Whether no key has anything here.
    pub(super) fn is_empty(&self) -> bool {
        self.generations.is_empty() && self.limited_until.is_empty()
    }

    /// Places that have a limit, in force or not.
    pub(super) fn limited(&self) -> impl Iterator<Item = u32> {
        self.limited_until.keys().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_is_there_when_it_is_needed() {
        let mut side = Side::default();
        side.set_generation(1_000, Generation(0));
        assert!(side.generations.is_empty());
        side.set_generation(40, Generation(3));
        side.set_generation(41, Generation(4));
        assert_eq!([39, 40, 41, 1_000].map(|place| side.generation(place).0), [0, 3, 4, 0]);
        assert_eq!([39, 40].map(|place| side.bytes_at(place)), [0, 11]);
        side.remove(40);
        assert_eq!((side.generation(40), side.bytes_at(40)), (Generation(0), 0));
    }

    #[test]
    fn what_a_key_has_goes_with_it() {
        let until = Timestamp::from_millis(7).expect("a time");
        let mut before = Side::default();
        before.set_generation(3, Generation(9));
        before.limit_until(4, until);
        before.limit_until(4, Timestamp::MIN);
        let mut after = Side::default();
        for place in 0..8 {
            after.take_over(100 - place, &before, place);
        }
        assert_eq!((after.generation(97), after.limited_until(97)), (Generation(9), None));
        assert_eq!((after.generation(96), after.limited_until(96)), (Generation(0), Some(until)));
        assert_eq!(after.limited().collect::<Vec<_>>(), [96]);
    }
}
