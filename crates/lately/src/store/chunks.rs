//! A value for each place, kept in chunks where some place has one that is not the usual.

use crate::allocation::allocated;

/// Values of a chunk.
const CHUNK: usize = 32;

/// Values by place.
#[derive(Debug, Default)]
pub(super) struct Chunks<T> {
    chunks: Vec<Option<Box<[T; CHUNK]>>>,
}

impl<T: Copy + Default + PartialEq> Chunks<T> {
    /// What a value costs that is not the usual: its part of a chunk. As for slots, four fifths of the places are
    /// used.
    const BYTES: usize = allocated(CHUNK * size_of::<T>()).div_ceil(CHUNK) * 5 / 4;

    /// The value of a place: the usual, unless another was set.
    #[inline]
    pub(super) fn get(&self, place: u32) -> T {
        let place = place as usize;
        let chunk = self.chunks.get(place / CHUNK).and_then(Option::as_deref);
        chunk.map_or_else(T::default, |chunk| chunk[place % CHUNK])
    }

    /// Sets the value of a place.
    pub(super) fn set(&mut self, place: u32, value: T) {
        if self.get(place) == value {
            return;
        }
        let place = place as usize;
        if self.chunks.len() <= place / CHUNK {
            self.chunks.resize_with(place / CHUNK + 1, || None);
        }
        let chunk = self.chunks[place / CHUNK].get_or_insert_with(|| Box::new([T::default(); CHUNK]));
        chunk[place % CHUNK] = value;
    }

    /// What the value of a place costs: nothing when it is the usual.
    pub(super) fn bytes_at(&self, place: u32) -> usize {
        if self.get(place) == T::default() { 0 } else { Self::BYTES }
    }

    /// Whether no place ever had another value than the usual.
    pub(super) fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_is_there_when_it_is_needed() {
        let mut values = Chunks::<u64>::default();
        values.set(1_000, 0);
        assert!(values.is_empty());
        values.set(40, 3);
        values.set(41, 4);
        assert_eq!([39, 40, 41, 1_000].map(|place| values.get(place)), [0, 3, 4, 0]);
        assert_eq!([39, 40].map(|place| values.bytes_at(place)), [0, 11]);
        values.set(40, 0);
        assert_eq!((values.get(40), values.bytes_at(40)), (0, 0));
    }
}
