//! Slots in chunks of a fixed size: growing copies nothing, and a place keeps its slot.

/// Slots of a chunk.
pub(super) const CHUNK: usize = 32;

/// Values by place. A place is free again once its value is taken.
#[derive(Debug)]
pub(super) struct Slab<T> {
    chunks: Vec<Box<[Option<T>; CHUNK]>>,
    /// Places used so far, those free again included.
    end: u32,
    free: Vec<u32>,
}

impl<T> Default for Slab<T> {
    fn default() -> Slab<T> {
        Slab { chunks: Vec::new(), end: 0, free: Vec::new() }
    }
}

impl<T> Slab<T> {
    /// One past the last place ever used.
    pub(super) fn end(&self) -> u32 {
        self.end
    }

    pub(super) fn get(&self, place: u32) -> Option<&T> {
        let place = place as usize;
        self.chunks.get(place / CHUNK)?[place % CHUNK].as_ref()
    }

    pub(super) fn get_mut(&mut self, place: u32) -> Option<&mut T> {
        let place = place as usize;
        self.chunks.get_mut(place / CHUNK)?[place % CHUNK].as_mut()
    }

    /// Where the chunks are.
    pub(super) fn chunks(&self) -> &[Box<[Option<T>; CHUNK]>] {
        &self.chunks
    }

    /// Puts a value into a free place.
    pub(super) fn insert(&mut self, value: T) -> u32 {
        let place = self.free.pop().unwrap_or_else(|| {
            if self.end as usize == self.chunks.len() * CHUNK {
                self.chunks.push(Box::new([const { None }; CHUNK]));
            }
            self.end += 1;
            self.end - 1
        });
        self.chunks[place as usize / CHUNK][place as usize % CHUNK] = Some(value);
        place
    }

    /// Takes the value out of a place and frees it.
    pub(super) fn take(&mut self, place: u32) -> Option<T> {
        let index = place as usize;
        let value = self.chunks.get_mut(index / CHUNK)?[index % CHUNK].take()?;
        self.free.push(place);
        Some(value)
    }

    /// Values and their places, in the order of the memory.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        let slots = self.chunks.iter().flat_map(|chunk| chunk.iter());
        (0..).zip(slots).filter_map(|(place, slot)| slot.as_ref().map(|value| (place, value)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_used_again() {
        let mut slab = Slab::default();
        let places: Vec<u32> = (0..40).map(|n| slab.insert(n)).collect();
        assert_eq!(places, (0..40).collect::<Vec<_>>());
        assert_eq!((slab.take(7), slab.take(7), slab.get(7)), (Some(7), None, None));
        assert_eq!(slab.insert(100), 7);
        assert_eq!((slab.get(7), slab.end()), (Some(&100), 40));
        assert_eq!(slab.iter().count(), 40);
        assert!(slab.get(1_000).is_none() && slab.take(1_000).is_none());
    }
}
