//! Numbers that are written and read without a branch.
//!
//! A number takes one to eight bytes: its three lowest bits say how many, less one. So it is read with
//! one load (the idea of PrefixVarint; here with three bits, for times and counts).

/// A number as bytes, the first lowest, and how many they are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Number {
    pub(crate) word: u64,
    pub(crate) len: usize,
}

impl Number {
    /// Numbers have 61 bits.
    pub(crate) const MAX: u64 = (1 << 61) - 1;

    /// The byte that is the number one; its multiples are the other numbers of a byte.
    pub(crate) const ONE_BYTE: u8 = 1 << 3;
    /// The largest number of a byte.
    pub(crate) const MAX_BYTE: u8 = u8::MAX / Number::ONE_BYTE;

    #[inline]
    pub(crate) fn new(value: u64) -> Number {
        debug_assert!(value <= Number::MAX, "{value} is no such number");
        let len = (74 - (value | 1).leading_zeros() as usize) / 8;
        Number { word: value << 3 | (len as u64 - 1), len }
    }

    /// The number that a word starts with.
    #[inline]
    pub(crate) fn read(word: u64) -> (u64, usize) {
        const MASKS: [u64; 8] =
            [0xff, 0xffff, 0xff_ffff, u32::MAX as u64, (1 << 40) - 1, (1 << 48) - 1, (1 << 56) - 1, u64::MAX];
        let len = (word & 7) as usize;
        ((word & MASKS[len]) >> 3, len + 1)
    }

    /// Takes a number off the front of a word of them. Zeros end them.
    #[inline]
    pub(crate) fn take_word(numbers: &mut u64) -> u64 {
        let (value, len) = Number::read(*numbers);
        // In two steps: a number of eight bytes takes all there is.
        *numbers = *numbers >> (8 * (len - 1)) >> 8;
        value
    }

    /// A word of numbers with this one before them; `None` when they do not fit.
    #[inline]
    pub(crate) fn before(self, numbers: u64) -> Option<u64> {
        let bits = 8 * self.len;
        (numbers.leading_zeros() as usize >= bits).then(|| numbers << (bits - 8) << 8 | self.word)
    }

    /// Takes a number off the front of bytes from anywhere; `None` when they do not begin with one.
    #[inline]
    pub(crate) fn take(bytes: &mut &[u8]) -> Option<u64> {
        let (value, len) = Number::read(first_word(bytes));
        *bytes = bytes.get(len..)?;
        Some(value)
    }
}

/// The first eight bytes, zeros past the end.
#[inline]
pub(crate) fn first_word(bytes: &[u8]) -> u64 {
    match bytes.first_chunk() {
        Some(word) => u64::from_le_bytes(*word),
        None => {
            let mut word = [0; 8];
            word[..bytes.len()].copy_from_slice(bytes);
            u64::from_le_bytes(word)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back_in_the_bytes_they_need() {
        let powers = (0..61).map(|bit| 1_u64 << bit);
        for value in powers.flat_map(|power| [power - 1, power, power + 1]).chain([Number::MAX]) {
            let Number { word, len } = Number::new(value);
            let bits = 64 - value.leading_zeros() as usize;
            assert_eq!(len, (bits + 3).div_ceil(8), "{value}");
            assert!(len == 8 || word >> (8 * len) == 0, "{value}");
            // What follows does not matter.
            let noise = if len == 8 { 0 } else { u64::MAX << (8 * len) };
            assert_eq!(Number::read(word | noise), (value, len));
        }
        for value in [0, 1, 31, 32, 1 << 40, Number::MAX] {
            let Number { word, len } = Number::new(value);
            let bytes = [&word.to_le_bytes()[..len], &[7; 9]].concat();
            for end in 0..bytes.len() {
                let mut rest = &bytes[..end];
                assert_eq!(Number::take(&mut rest), (end >= len).then_some(value));
                assert!(end < len || rest == &bytes[len..end]);
            }
        }
        assert_ne!(Number::new(1).word & 0xff, 0, "a first byte of zero is no number but 0");
    }
}
