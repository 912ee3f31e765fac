//! Numbers that are encoded and decoded without a branch.
//!
//! A number takes one to eight bytes. Its three lowest bits are its length less one, so it is decoded with
//! one load (the idea of PrefixVarint; here with three bits, for times and counts).

/// An encoded number: its bytes, lowest first, and their number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Number {
    pub(crate) word: u64,
    pub(crate) len: usize,
}

impl Number {
    /// Numbers have at most 61 bits.
    pub(crate) const MAX: u64 = (1 << 61) - 1;

    /// The encoded number one. Its multiples are the other one-byte numbers.
    pub(crate) const ONE_BYTE: u8 = 1 << 3;
    /// The largest one-byte number.
    pub(crate) const MAX_BYTE: u8 = u8::MAX / Number::ONE_BYTE;

    #[inline]
    pub(crate) fn new(value: u64) -> Number {
        debug_assert!(value <= Number::MAX, "{value} is no such number");
        let len = (74 - (value | 1).leading_zeros() as usize) / 8;
        Number { word: value << 3 | (len as u64 - 1), len }
    }

    /// Decodes the number at the start of a word. Returns it and its length in bytes.
    #[inline]
    pub(crate) fn read(word: u64) -> (u64, usize) {
        const MASKS: [u64; 8] =
            [0xff, 0xffff, 0xff_ffff, u32::MAX as u64, (1 << 40) - 1, (1 << 48) - 1, (1 << 56) - 1, u64::MAX];
        let len = (word & 7) as usize;
        ((word & MASKS[len]) >> 3, len + 1)
    }

    /// Decodes a number from the front of a word of numbers. Zeros end the numbers.
    #[inline]
    pub(crate) fn take_word(numbers: &mut u64) -> u64 {
        let (value, len) = Number::read(*numbers);
        // Two shifts, because a number of eight bytes takes the whole word.
        *numbers = *numbers >> (8 * (len - 1)) >> 8;
        value
    }

    /// Puts this number in front of a word of numbers. `None` if they do not fit.
    #[inline]
    pub(crate) fn before(self, numbers: u64) -> Option<u64> {
        let bits = 8 * self.len;
        (numbers.leading_zeros() as usize >= bits).then(|| numbers << (bits - 8) << 8 | self.word)
    }

    /// Decodes a number from the front of untrusted bytes. `None` if they do not start with one.
    #[inline]
    pub(crate) fn take(bytes: &mut &[u8]) -> Option<u64> {
        let (value, len) = Number::read(first_word(bytes));
        *bytes = bytes.get(len..)?;
        Some(value)
    }
}

/// The first eight bytes, padded with zeros.
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
    fn numbers_round_trip_in_the_bytes_they_need() {
        let powers = (0..61).map(|bit| 1_u64 << bit);
        for value in powers.flat_map(|power| [power - 1, power, power + 1]).chain([Number::MAX]) {
            let Number { word, len } = Number::new(value);
            let bits = 64 - value.leading_zeros() as usize;
            assert_eq!(len, (bits + 3).div_ceil(8), "{value}");
            assert!(len == 8 || word >> (8 * len) == 0, "{value}");
            // The bytes behind it do not matter.
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
        assert_ne!(Number::new(1).word & 0xff, 0, "only 0 has a first byte of zero");
    }
}
