//! Numbers that follow each other in a few bytes, the first lowest. Zeros end them.

use crate::number::Number;

/// Numbers one after the other.
pub(super) struct Numbers<const N: usize> {
    pub(super) bytes: [u8; N],
    len: usize,
}

impl<const N: usize> Default for Numbers<N> {
    fn default() -> Self {
        Numbers { bytes: [0; N], len: 0 }
    }
}

impl<const N: usize> Numbers<N> {
    /// `None` when there is no room left.
    pub(super) fn push(&mut self, number: u64) -> Option<()> {
        let Number { word, len } = Number::new(number);
        let room = self.bytes[self.len..].get_mut(..len)?;
        room.copy_from_slice(&word.to_le_bytes()[..len]);
        self.len += len;
        Some(())
    }
}

/// Takes a number off the front.
#[inline]
pub(super) fn take_number(numbers: &mut u64) -> u64 {
    let (number, len) = Number::read(*numbers);
    // In two steps: a number of eight bytes takes all there is.
    *numbers = *numbers >> (8 * (len - 1)) >> 8;
    number
}

/// Numbers with one more before them, if they fit a word.
#[inline]
pub(super) fn before(numbers: u64, number: Number) -> Option<u64> {
    let bits = 8 * number.len;
    (numbers.leading_zeros() as usize >= bits).then(|| numbers << (bits - 8) << 8 | number.word)
}
