//! A value for each place, in chunks. A chunk exists if one of its values is not the default.

use crate::allocation::allocated;

/// The values of a chunk.
const CHUNK: usize = 32;

/// Values by place.
#[derive(Debug, Default)]
pub(super) struct Chunks<T> {
    /// Empty if all values are the default.
    chunks: Vec<Chunk<T>>,
    /// The number of places. The last chunk has no values beyond it.
    places: usize,
    /// The bytes of the chunks that exist.
    values_bytes: usize,
}

/// The values of a few places. Absent if all are the default.
#[derive(Debug)]
enum Chunk<T> {
    /// All values fit in a byte, as most do.
    Small(Box<[u8]>),
    All(Box<[T]>),
}

impl<T: Copy + Default + From<u8> + TryInto<u8>> Chunk<T> {
    fn get(&self, index: usize) -> Option<T> {
        match self {
            Chunk::Small(values) => values.get(index).map(|&value| T::from(value)),
            Chunk::All(values) => values.get(index).copied(),
        }
    }

    /// Sets one of `len` values.
    fn set(&mut self, index: usize, value: T, len: usize) {
        if let Chunk::Small(values) = self {
            if values.is_empty() {
                *values = vec![0; len].into();
            }
            match value.try_into() {
                Ok(value) => return values[index] = value,
                Err(_) => *self = Chunk::All(values.iter().map(|&value| T::from(value)).collect()),
            }
        }
        if let Chunk::All(values) = self {
            values[index] = value;
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Chunk::Small(values) => allocated(values.len()),
            Chunk::All(values) => allocated(size_of_val(&**values)),
        }
    }
}

impl<T: Copy + Default + PartialEq + From<u8> + TryInto<u8>> Chunks<T> {
    /// Values for `places` places.
    pub(super) fn new(places: u32) -> Chunks<T> {
        Chunks { chunks: Vec::new(), places: places as usize, values_bytes: 0 }
    }

    /// The value of a place. The default if none was set.
    #[inline]
    pub(super) fn get(&self, place: u32) -> T {
        let place = place as usize;
        self.chunks.get(place / CHUNK).and_then(|chunk| chunk.get(place % CHUNK)).unwrap_or_default()
    }

    /// Sets the value of a place.
    pub(super) fn set(&mut self, place: u32, value: T) {
        if self.get(place) == value {
            return;
        }
        let place = place as usize;
        if self.chunks.is_empty() {
            self.chunks.reserve_exact(self.places.div_ceil(CHUNK));
            self.chunks.resize_with(self.places.div_ceil(CHUNK), || Chunk::Small(Box::default()));
        }
        let chunk = &mut self.chunks[place / CHUNK];
        self.values_bytes -= chunk.bytes();
        chunk.set(place % CHUNK, value, CHUNK.min(self.places - place / CHUNK * CHUNK));
        self.values_bytes += chunk.bytes();
    }

    /// The bytes of all chunks.
    pub(super) fn bytes(&self) -> usize {
        self.values_bytes + allocated(self.chunks.capacity() * size_of::<Chunk<T>>())
    }

    /// Whether no place was ever set to another value than the default.
    pub(super) fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_is_allocated_on_its_first_value() {
        let mut values = Chunks::<u64>::new(70);
        values.set(69, 0);
        assert!(values.is_empty() && values.bytes() == 0);
        values.set(40, 3);
        values.set(41, 4);
        assert_eq!([39, 40, 41, 69, 70].map(|place| values.get(place)), [0, 3, 4, 0, 0]);
        // Three chunks, of which one exists.
        assert_eq!(values.bytes(), allocated(3 * 24) + allocated(32));
        values.set(40, 0);
        assert_eq!(values.get(40), 0);
        // The last chunk has six places.
        values.set(69, 255);
        assert_eq!(values.bytes(), allocated(3 * 24) + allocated(32) + allocated(6));
        // A value above 255 widens its whole chunk.
        values.set(42, 256);
        values.set(43, 7);
        assert_eq!([39, 40, 41, 42, 43, 69].map(|place| values.get(place)), [0, 0, 4, 256, 7, 255]);
        assert_eq!(values.bytes(), allocated(3 * 24) + allocated(32 * 8) + allocated(6));
    }
}
