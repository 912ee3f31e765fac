//! Integers as lines: a marker, decimal digits, a line end. Replies are made of them: of a decision more is
//! spent on its five integers than on its count, when they are written digit by digit.

use itoa::Buffer;

/// The largest number that is written at once, in a word.
const MAX_WORD: u64 = 99_999_999;

/// Bytes of a line with a word of digits, rounded up.
const LINE_BYTES: usize = 16;

/// Appends a line.
#[inline]
pub(crate) fn push_line(out: &mut Vec<u8>, marker: u8, value: i64) {
    match u64::try_from(value) {
        Ok(value) if value <= MAX_WORD => push_word(out, marker, value),
        _ => push_long(out, marker, value),
    }
}

/// A line of eight digits at most. It is made where it is to be: what was just written in pieces is slow to copy.
#[inline]
fn push_word(out: &mut Vec<u8>, marker: u8, value: u64) {
    let digits = eight_digits(value);
    // Zeros that lead; of 0 the last one stays.
    let zeros = (digits.trailing_zeros() as usize / 8).min(7);
    let (word, len) = ((digits | ASCII_ZEROS) >> (8 * zeros), 8 - zeros);
    let start = out.len();
    out.extend_from_slice(&[0; LINE_BYTES]);
    let line = &mut out[start..];
    line[0] = marker;
    line[1..9].copy_from_slice(&word.to_le_bytes());
    line[1 + len..3 + len].copy_from_slice(b"\r\n");
    out.truncate(start + len + 3);
}

#[cold]
fn push_long(out: &mut Vec<u8>, marker: u8, value: i64) {
    out.push(marker);
    out.extend_from_slice(Buffer::new().format(value).as_bytes());
    out.extend_from_slice(b"\r\n");
}

const ASCII_ZEROS: u64 = 0x3030_3030_3030_3030;

/// The eight digits of a number up to [`MAX_WORD`], the first in the lowest byte: it is cut into halves, these into
/// quarters and so on, all parts of a cut at once (after P. Khuong, "How to print integers really fast").
#[inline]
fn eight_digits(value: u64) -> u64 {
    const HUNDREDTH: u64 = 10_486; // of 2^20, rounded up
    const TENTH: u64 = 103; // of 2^10, rounded up
    let halves = (value / 10_000) | ((value % 10_000) << 32);
    let upper = ((halves * HUNDREDTH) >> 20) & 0x0000_007f_0000_007f;
    let quarters = upper | ((halves - 100 * upper) << 16);
    let tens = ((quarters * TENTH) >> 10) & 0x000f_000f_000f_000f;
    tens | ((quarters - 10 * tens) << 8)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(value: i64) -> String {
        let mut out = b"before".to_vec();
        push_line(&mut out, b':', value);
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn numbers_of_every_length_are_written() {
        let near = |power: u32| (-2..3).map(move |more| 10_i64.pow(power) + more);
        let numbers = (0..19).flat_map(near).chain([0, -1, i64::MIN, i64::MAX]);
        for value in numbers {
            assert_eq!(line(value), format!("before:{value}\r\n"));
        }
    }

    #[test]
    fn each_four_digits_are_those_of_the_number() {
        for value in 0..10_000 {
            assert_eq!(line(value), format!("before:{value}\r\n"));
            let upper = value * 10_000 + (9_999 - value);
            assert_eq!(line(upper), format!("before:{upper}\r\n"));
        }
    }

    proptest::proptest! {
        #[test]
        fn any_number_is_written(value in proptest::num::i64::ANY, bits in 0..64_u32) {
            let value = value >> bits;
            proptest::prop_assert_eq!(line(value), format!("before:{value}\r\n"));
        }
    }
}
