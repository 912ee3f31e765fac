//! Slots in chunks of a fixed size: growing copies nothing, and a place keeps its slot.

/// Slots of a chunk, but for the first few, which are shorter: a slab with few values is small.
pub(super) const CHUNK: usize = 32;
/// Slots of the short chunks, and how many slots there are before chunks of the next length begin.
const FIRST: usize = 2;
const FIRST_END: usize = 4;
const SECOND: usize = 4;
const SECOND_END: usize = 16;
const THIRD: usize = 8;
const THIRD_END: usize = 64;
/// Chunks before those of the second length, the third, and the full one.
const SECOND_FROM: usize = FIRST_END / FIRST;
const THIRD_FROM: usize = SECOND_FROM + (SECOND_END - FIRST_END) / SECOND;
const FULL_FROM: usize = THIRD_FROM + (THIRD_END - SECOND_END) / THIRD;

/// The chunk of a place, and where in it the place is.
#[inline]
pub(super) fn locate(place: u32) -> (usize, usize) {
    let place = place as usize;
    if place >= THIRD_END {
        ((place - THIRD_END) / CHUNK + FULL_FROM, place % CHUNK)
    } else if place >= SECOND_END {
        ((place - SECOND_END) / THIRD + THIRD_FROM, place % THIRD)
    } else if place >= FIRST_END {
        ((place - FIRST_END) / SECOND + SECOND_FROM, place % SECOND)
    } else {
        (place / FIRST, place % FIRST)
    }
}

/// Places of a chunk that starts at a place.
fn chunk_len(start: u32) -> usize {
    match start as usize {
        ..FIRST_END => FIRST,
        ..SECOND_END => SECOND,
        ..THIRD_END => THIRD,
        _ => CHUNK,
    }
}

/// Values by place. A place is free again once its value is taken.
#[derive(Debug)]
pub(super) struct Slab<T> {
    chunks: Vec<Box<[Option<T>]>>,
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
        let (chunk, within) = locate(place);
        self.chunks.get(chunk)?[within].as_ref()
    }

    pub(super) fn get_mut(&mut self, place: u32) -> Option<&mut T> {
        let (chunk, within) = locate(place);
        self.chunks.get_mut(chunk)?[within].as_mut()
    }

    /// Where the chunks are.
    pub(super) fn chunks(&self) -> &[Box<[Option<T>]>] {
        &self.chunks
    }

    /// Puts a value into a free place.
    pub(super) fn insert(&mut self, value: T) -> u32 {
        let place = self.free.pop().unwrap_or_else(|| {
            let (chunk, _) = locate(self.end);
            if chunk == self.chunks.len() {
                self.chunks.push((0..chunk_len(self.end)).map(|_| None).collect());
            }
            self.end += 1;
            self.end - 1
        });
        let (chunk, within) = locate(place);
        self.chunks[chunk][within] = Some(value);
        place
    }

    /// Takes the value out of a place and frees it.
    pub(super) fn take(&mut self, place: u32) -> Option<T> {
        let (chunk, within) = locate(place);
        let value = self.chunks.get_mut(chunk)?[within].take()?;
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
    fn chunks_cover_all_places_once() {
        let mut place = 0;
        for chunk in 0..20 {
            for within in 0..chunk_len(place) {
                assert_eq!(locate(place + u32::try_from(within).expect("few")), (chunk, within));
            }
            place += u32::try_from(chunk_len(place)).expect("few");
        }
        assert_eq!(place, 64 + 9 * 32);
    }

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
