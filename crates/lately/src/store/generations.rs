//! Generations of keys, by place, where they are not the first.
//!
//! Nobody needs them before a key is forgotten. After that every new key has one: eight bytes a key,
//! in chunks as the slots are.

use super::slab::CHUNK;
use crate::allocation::allocated;
use crate::delta::Generation;

/// Generations by place.
#[derive(Debug, Default)]
pub(super) struct Generations {
    chunks: Vec<Option<Box<[Generation; CHUNK]>>>,
}

impl Generations {
    /// The generation of the key at `place`: the first, unless another was set.
    pub(super) fn get(&self, place: u32) -> Generation {
        let place = place as usize;
        let chunk = self.chunks.get(place / CHUNK).and_then(Option::as_deref);
        chunk.map_or_else(Generation::default, |chunk| chunk[place % CHUNK])
    }

    /// Sets the generation of the key at `place`.
    pub(super) fn set(&mut self, place: u32, generation: Generation) {
        if self.get(place) == generation {
            return;
        }
        let place = place as usize;
        if self.chunks.len() <= place / CHUNK {
            self.chunks.resize_with(place / CHUNK + 1, || None);
        }
        self.chunks[place / CHUNK].get_or_insert_with(Box::default)[place % CHUNK] = generation;
    }

    /// What the generation of the key at `place` costs: its part of a chunk, when it has one.
    pub(super) fn bytes_at(&self, place: u32) -> usize {
        const BYTES: usize = allocated(CHUNK * size_of::<Generation>()).div_ceil(CHUNK);
        if self.get(place) == Generation::default() { 0 } else { BYTES }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_is_there_when_it_is_needed() {
        let mut generations = Generations::default();
        generations.set(1_000, Generation(0));
        assert!(generations.chunks.is_empty());
        generations.set(40, Generation(3));
        generations.set(41, Generation(4));
        assert_eq!([39, 40, 41, 1_000].map(|place| generations.get(place).0), [0, 3, 4, 0]);
        assert_eq!([39, 40].map(|place| generations.bytes_at(place)), [0, 9]);
        generations.set(40, Generation(0));
        assert_eq!((generations.get(40), generations.bytes_at(40)), (Generation(0), 0));
    }
}
