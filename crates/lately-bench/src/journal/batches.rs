//! What is written: batches of hits as one turn of an event loop reads them, and whether what comes back is they.

/// Bytes of a hit: a key of sixteen, and eight for its weight and time.
const HIT_BYTES: usize = 24;
/// Hits of a batch.
const HITS: usize = 64;
/// Bytes of a batch.
pub(super) const BATCH_BYTES: usize = HITS * HIT_BYTES;
/// Batches that are rendered; then they come again, under other numbers.
const RENDERED: usize = 256;

type Batch = [u8; BATCH_BYTES];

/// The batches, by their number.
pub(super) struct Batches {
    rendered: Vec<Batch>,
    /// What the last call gave.
    current: Box<Batch>,
}

impl Batches {
    pub(super) fn new() -> Batches {
        let mut state = 1_u64;
        let mut next = || {
            // Knuth's multiplier; the high bits are well mixed.
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            state.to_be_bytes()[0]
        };
        let rendered = (0..RENDERED).map(|_| std::array::from_fn(|_| next())).collect();
        Batches { rendered, current: Box::new([0; BATCH_BYTES]) }
    }

    /// The batch of this number: no two are the same.
    pub(super) fn batch(&mut self, number: u64) -> &[u8] {
        self.current.copy_from_slice(&self.rendered[place(number)]);
        self.current[..size_of::<u64>()].copy_from_slice(&number.to_be_bytes());
        self.current.as_slice()
    }

    /// Whether this is the batch of that number, to the last byte.
    pub(super) fn is(&self, number: u64, bytes: &[u8]) -> bool {
        let rest = self.rendered[place(number)].get(size_of::<u64>()..);
        let parts = bytes.split_at_checked(size_of::<u64>());
        parts.is_some_and(|(begin, end)| begin == number.to_be_bytes() && Some(end) == rest)
    }
}

fn place(number: u64) -> usize {
    usize::try_from(number % RENDERED as u64).expect("less than the number of batches that are rendered")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_is_itself_and_no_other() {
        let mut batches = Batches::new();
        let later = RENDERED as u64 + 3;
        let mut bytes = batches.batch(later).to_vec();
        assert!(batches.is(later, &bytes) && bytes.len() == BATCH_BYTES);
        assert!(!batches.is(3, &bytes) && !batches.is(later, &bytes[..BATCH_BYTES - 1]));
        assert!(!batches.is(later, &[]));
        bytes[BATCH_BYTES / 2] ^= 1;
        assert!(!batches.is(later, &bytes));
    }
}
