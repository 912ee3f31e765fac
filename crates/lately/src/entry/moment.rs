//! Hits of one millisecond, and the numbers a run of them is written in.
//!
//! A number takes one to eight bytes: its three lowest bits say how many, less one. So it is read with
//! one load and no branch (the idea of PrefixVarint; here with three bits, for times and counts).

/// Hits of one millisecond.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Moment {
    pub(crate) at_ms: i64,
    pub(crate) hits: u64,
}

/// A number as bytes, the first lowest, and how many they are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Number {
    pub(super) word: u64,
    pub(super) len: usize,
}

impl Number {
    /// Numbers have 61 bits.
    pub(super) const MAX: u64 = (1 << 61) - 1;

    /// The byte that is the number one; its multiples are the other numbers of a byte.
    pub(super) const ONE_BYTE: u8 = 1 << 3;
    /// The largest number of a byte.
    pub(super) const MAX_BYTE: u8 = u8::MAX / Number::ONE_BYTE;

    #[inline]
    pub(super) fn new(value: u64) -> Number {
        debug_assert!(value <= Number::MAX, "{value} is no such number");
        let len = (74 - (value | 1).leading_zeros() as usize) / 8;
        Number { word: value << 3 | (len as u64 - 1), len }
    }

    /// The number that a word starts with.
    #[inline]
    pub(super) fn read(word: u64) -> (u64, usize) {
        const MASKS: [u64; 8] =
            [0xff, 0xffff, 0xff_ffff, u32::MAX as u64, (1 << 40) - 1, (1 << 48) - 1, (1 << 56) - 1, u64::MAX];
        let len = (word & 7) as usize;
        ((word & MASKS[len]) >> 3, len + 1)
    }
}

/// A time in six bytes: all times to the year 9999 fit.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct PackedTime([u8; 6]);

impl PackedTime {
    #[inline]
    pub(super) fn pack(at_ms: i64) -> PackedTime {
        let [a, b, c, d, e, f, g, h] = at_ms.to_le_bytes();
        debug_assert!(g == 0 && h == 0, "{at_ms} is no time");
        PackedTime([a, b, c, d, e, f])
    }

    #[inline]
    pub(super) fn get(self) -> i64 {
        let [a, b, c, d, e, f] = self.0;
        i64::from_le_bytes([a, b, c, d, e, f, 0, 0])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Timestamp;

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
        assert_ne!(Number::new(1).word & 0xff, 0, "a first byte of zero is no number but 0");
    }

    #[test]
    fn every_time_packs() {
        for at_ms in [0, 1, 1_700_000_000_123, Timestamp::MAX.as_millis()] {
            assert_eq!(PackedTime::pack(at_ms).get(), at_ms);
        }
    }
}
