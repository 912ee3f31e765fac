//! Values by place, in chunks: growing copies at most one chunk, and a value keeps its place.

/// Values of a full chunk.
const CHUNK: usize = 128;
/// Values the last chunk grows by, once it has that many; before, it doubles.
const STEP: usize = 32;

/// Values by place. A place is free again once its value is taken.
#[derive(Debug)]
pub(super) struct Slab<T> {
    chunks: Vec<Vec<Option<T>>>,
    /// Places that are free again.
    free: Vec<u32>,
}

impl<T> Default for Slab<T> {
    fn default() -> Slab<T> {
        Slab { chunks: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slab<T> {
    /// One past the last place ever used.
    fn end(&self) -> u32 {
        let last = self.chunks.last().map_or(CHUNK, Vec::len);
        u32::try_from(self.chunks.len() * CHUNK + last - CHUNK).expect("a shard has fewer")
    }

    #[inline]
    pub(super) fn get(&self, place: u32) -> Option<&T> {
        let (chunk, within) = locate(place);
        self.chunks.get(chunk)?.get(within)?.as_ref()
    }

    /// Puts a value into a free place.
    pub(super) fn insert(&mut self, value: T) -> u32 {
        if let Some(place) = self.free.pop() {
            let (chunk, within) = locate(place);
            self.chunks[chunk][within] = Some(value);
            return place;
        }
        let place = self.end();
        let (chunk, within) = locate(place);
        if within == 0 {
            self.chunks.push(Vec::new());
        }
        let step = if chunk == 0 { within.clamp(2, STEP) } else { STEP };
        let chunk = &mut self.chunks[chunk];
        if chunk.len() == chunk.capacity() {
            chunk.reserve_exact(step);
        }
        chunk.push(Some(value));
        place
    }

    /// Takes the value out of a place and frees it.
    pub(super) fn take(&mut self, place: u32) -> Option<T> {
        let (chunk, within) = locate(place);
        let value = self.chunks.get_mut(chunk)?.get_mut(within)?.take()?;
        self.free.push(place);
        Some(value)
    }
}

/// The chunk of a place, and where in it the place is.
fn locate(place: u32) -> (usize, usize) {
    let place = place as usize;
    (place / CHUNK, place % CHUNK)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_grows_by_steps_and_never_past_its_end() {
        let mut slab = Slab::default();
        let mut capacities = Vec::new();
        for n in 0..2 * CHUNK {
            slab.insert(n);
            capacities.push(slab.chunks[n / CHUNK].capacity());
        }
        let steps = [2, 4, 8, 16, 32, 64, 96, 128, 32, 64, 96, 128];
        capacities.dedup();
        assert_eq!(capacities, steps);
        assert_eq!(slab.chunks.len(), 2);
    }

    #[test]
    fn places_are_used_again() {
        let mut slab = Slab::default();
        let places: Vec<u32> = (0..40).map(|n| slab.insert(n)).collect();
        assert_eq!(places, (0..40).collect::<Vec<_>>());
        assert_eq!((slab.take(7), slab.take(7), slab.get(7)), (Some(7), None, None));
        assert_eq!(slab.insert(100), 7);
        assert_eq!((slab.get(7), slab.end()), (Some(&100), 40));
        assert!(slab.get(1_000).is_none() && slab.take(1_000).is_none());
    }
}
