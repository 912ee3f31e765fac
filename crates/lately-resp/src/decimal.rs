//! Integers as lines: a marker, decimal digits, a line end. Replies are made of them: of a decision more is
//! spent on its five integers than on its count, when they are written digit by digit.

use itoa::Buffer;

/// The largest number that is written at once, in a word.
const MAX_WORD: u64 = 99_999_999;

/// Bytes of a line with a sign and a word of digits, rounded up.
const LINE_BYTES: usize = 16;

/// Appends a line.
#[inline]
pub(crate) fn push_line(out: &mut Vec<u8>, marker: u8, value: i64) {
    push_lines(out, marker, [value]);
}

/// The line of a number below a thousand, and its length.
#[inline(always)]
fn small_line(marker: u8, value: i64) -> Option<(u64, usize)> {
    let line = *SMALL.get(usize::try_from(value).ok()?)?;
    Some((line << 8 | u64::from(marker), (line >> SMALL_LEN_SHIFT) as usize))
}

/// Lines of small numbers behind their marker, the first digit in the lowest byte; in the highest the length with it.
static SMALL: [u64; 1_000] = small_lines();
const SMALL_LEN_SHIFT: u32 = 56;

const fn small_lines() -> [u64; 1_000] {
    let mut lines = [0; 1_000];
    let mut value = 0;
    while value < lines.len() {
        let (mut line, mut len, mut left) = (u64::from_le_bytes(*b"\r\n\0\0\0\0\0\0"), 3, value);
        loop {
            line = line << 8 | (b'0' as usize + left % 10) as u64;
            len += 1;
            left /= 10;
            if left == 0 {
                break;
            }
        }
        lines[value] = line | len << SMALL_LEN_SHIFT;
        value += 1;
    }
    lines
}

/// Appends a line that says how many bytes or replies follow.
#[inline]
pub(crate) fn push_len(out: &mut Vec<u8>, marker: u8, len: usize) {
    push_line(out, marker, i64::try_from(len).expect("what is in memory can be counted"));
}

/// Appends a line for each of several values.
#[inline]
pub(crate) fn push_lines<const N: usize>(out: &mut Vec<u8>, marker: u8, values: [i64; N]) {
    let start = out.len();
    // They are made where they are to be: what was just written in pieces is slow to copy.
    out.extend_from_slice([[0; LINE_BYTES]; N].as_flattened());
    let room = &mut out[start..];
    let mut end = 0;
    for &value in &values {
        let line: &mut [u8; LINE_BYTES] = room[end..].first_chunk_mut().expect("there is room for each");
        if let Some((small, len)) = small_line(marker, value) {
            line[..8].copy_from_slice(&small.to_le_bytes());
            end += len;
        } else if value.unsigned_abs() <= MAX_WORD {
            end += write_line(line, marker, value);
        } else {
            out.truncate(start);
            return values.iter().for_each(|&value| push_long(out, marker, value));
        }
    }
    out.truncate(start + end);
}

/// Writes a line of a number of eight digits at most; gives its length.
#[inline(always)]
fn write_line(line: &mut [u8; LINE_BYTES], marker: u8, value: i64) -> usize {
    let digits = eight_digits(value.unsigned_abs());
    // Zeros that lead; the last digit stays.
    let zeros = (digits | LAST_DIGIT).trailing_zeros() as usize / 8;
    let word = (digits | ASCII_ZEROS) >> (8 * zeros);
    line[..2].copy_from_slice(&[marker, b'-']);
    let start = if value < 0 { 2 } else { 1 };
    let end = start + 8 - zeros;
    line[start..start + 8].copy_from_slice(&word.to_le_bytes());
    line[end..end + 2].copy_from_slice(b"\r\n");
    end + 2
}

#[cold]
fn push_long(out: &mut Vec<u8>, marker: u8, value: i64) {
    out.push(marker);
    out.extend_from_slice(Buffer::new().format(value).as_bytes());
    out.extend_from_slice(b"\r\n");
}

const ASCII_ZEROS: u64 = 0x3030_3030_3030_3030;
const LAST_DIGIT: u64 = 1 << 56;

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
        let numbers = (0..19).flat_map(near).chain([0, i64::MAX]);
        for value in numbers.flat_map(|value| [value, -value]).chain([i64::MIN]) {
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
        fn any_numbers_are_written(values: [i64; 3], bits in 0..64_u32) {
            let values = values.map(|value| value >> bits);
            let mut out = b"before".to_vec();
            push_lines(&mut out, b':', values);
            let [a, b, c] = values;
            proptest::prop_assert_eq!(out, format!("before:{a}\r\n:{b}\r\n:{c}\r\n").into_bytes());
        }
    }
}
