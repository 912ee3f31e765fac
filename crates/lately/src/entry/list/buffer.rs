//! The memory of a list.

use std::iter::repeat_n;
use std::ops::{Deref, DerefMut};

use thin_vec::ThinVec;

use crate::allocation::{allocated, filled};

/// What an allocation of a list is a multiple of, besides its [`HEADER_BYTES`].
const WORD_BYTES: usize = 8;
/// The bytes that `ThinVec` stores before its content: length and capacity.
pub(super) const HEADER_BYTES: usize = 2 * size_of::<usize>();

/// Bytes on the heap, all of them initialized. They grow by words, which takes an eighth of the steps that
/// single bytes take.
#[derive(Clone, Debug, Default)]
pub(crate) struct Buffer(ThinVec<[u8; WORD_BYTES]>);

impl Buffer {
    pub(in crate::entry) const fn new() -> Buffer {
        Buffer(ThinVec::new())
    }

    /// Grows to `len` bytes and those that the allocator gives anyway. The new bytes are zero.
    pub(super) fn grow(&mut self, len: usize) {
        let words = (filled(HEADER_BYTES + len) - HEADER_BYTES) / WORD_BYTES;
        let more = words - self.0.len();
        self.0.reserve_exact(more);
        // `resize` would check the capacity for each word.
        self.0.extend(repeat_n([0; WORD_BYTES], more));
    }

    /// The bytes of the heap that the allocator takes for it.
    pub(in crate::entry) fn heap_bytes(&self) -> usize {
        match self.0.capacity() {
            0 => 0,
            words => allocated(HEADER_BYTES + words * WORD_BYTES),
        }
    }
}

impl Deref for Buffer {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        self.0.as_flattened()
    }
}

impl DerefMut for Buffer {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        self.0.as_flattened_mut()
    }
}
