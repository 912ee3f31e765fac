//! Integers as lines: a marker, decimal digits, a line end. Replies consist of them. Written digit by digit,
//! the five integers of a decision would cost more than the decision itself.

use itoa::Buffer;

/// Bytes of a line in the table, rounded up.
const LINE_BYTES: usize = 16;

/// Appends a line.
#[inline]
pub(crate) fn push_line(out: &mut Vec<u8>, marker: u8, value: i64) {
    let start = out.len();
    out.extend_from_slice(&[0; LINE_BYTES]);
    let line = out[start..].first_chunk_mut().expect("it was just added");
    let len = write_line(line, marker, value);
    if len < TOO_LONG {
        out.truncate(start + len);
    } else {
        out.truncate(start);
        push_long(out, marker, value);
    }
}

/// The line of a small number, and its length.
#[inline(always)]
fn small_line(marker: u8, value: i64) -> Option<(u64, usize)> {
    let line = *SMALL.get(usize::try_from(small_index(value)).ok()?)?;
    Some((line ^ u64::from(marker ^ b':'), (line >> SMALL_LEN_SHIFT) as usize))
}

/// The lines of small numbers as integers: the marker in the lowest byte, the length in the highest. The size
/// is a power of two.
static SMALL: [u64; 1_024] = small_lines();
const SMALL_LEN_SHIFT: u32 = 56;

/// The index of a number in the table; past its end if it is not there. -1, which stands for "never", is the
/// first.
#[inline(always)]
fn small_index(value: i64) -> u64 {
    value.wrapping_add(1).cast_unsigned()
}

const fn small_lines() -> [u64; 1_024] {
    let mut lines = [u64::from_le_bytes(*b":-1\r\n\0\0\x05"); 1_024];
    let mut value = 0;
    while value < lines.len() - 1 {
        let (mut line, mut len, mut left) = (u64::from_le_bytes(*b"\r\n\0\0\0\0\0\0"), 3, value);
        loop {
            line = line << 8 | (b'0' as usize + left % 10) as u64;
            len += 1;
            left /= 10;
            if left == 0 {
                break;
            }
        }
        lines[value + 1] = line << 8 | b':' as u64 | len << SMALL_LEN_SHIFT;
        value += 1;
    }
    lines
}

/// Appends a line with the number of bytes or replies that follow.
#[inline]
pub(crate) fn push_len(out: &mut Vec<u8>, marker: u8, len: usize) {
    push_line(out, marker, i64::try_from(len).expect("what is in memory can be counted"));
}

/// Appends the head of an array of five, and a line for each of the values. Constants at the call cost
/// nothing.
#[inline(always)]
pub(crate) fn push_five(out: &mut Vec<u8>, values: [i64; 5]) {
    let start = out.len();
    // Encode in place: copying bytes that were just written in pieces is slow.
    out.extend_from_slice(&FIVE);
    let room = out[start..].first_chunk_mut::<{ FIVE.len() }>().expect("it was just added");
    let (mut end, [first @ .., next_to_last, last]) = (0, values);
    let times = [next_to_last, last];
    // One branch instead of three, which is almost always taken the same way. The last two are mostly times.
    if first.iter().fold(0, |all, &value| all | small_index(value)) < SMALL.len() as u64 {
        for value in first {
            let index = usize::try_from(small_index(value) % SMALL.len() as u64).expect("below 1,024");
            let line = SMALL[index];
            line_at(room, end)[..8].copy_from_slice(&line.to_le_bytes());
            end += (line >> SMALL_LEN_SHIFT) as usize;
        }
    } else {
        for value in first {
            end += write_line(line_at(room, end), b':', value);
        }
    }
    for value in times {
        end += write_line(line_at(room, end), b':', value);
    }
    if end < TOO_LONG {
        out.truncate(start + FIVE_LINE.len() + end);
    } else {
        out.truncate(start + FIVE_LINE.len());
        values.iter().for_each(|&value| push_long(out, b':', value));
    }
}

/// The room for the next of five lines, after lines that end at `end`.
#[inline(always)]
fn line_at(room: &mut [u8; FIVE.len()], end: usize) -> &mut [u8; LINE_BYTES] {
    let line = room[FIVE_LINE.len() + (end & MOST_OF_FOUR)..].first_chunk_mut();
    line.expect("there is room for each")
}

const FIVE_LINE: &[u8; 4] = b"*5\r\n";
/// The first four lines end below this, which is a mask. The fifth has room behind.
const MOST_OF_FOUR: usize = 63;
const FIVE: [u8; FIVE_LINE.len() + MOST_OF_FOUR + 1 + LINE_BYTES] = {
    let mut room = [0; FIVE_LINE.len() + MOST_OF_FOUR + 1 + LINE_BYTES];
    room.split_at_mut(FIVE_LINE.len()).0.copy_from_slice(FIVE_LINE);
    room
};
/// The length for a number that was not written.
const TOO_LONG: usize = 1 << 16;

/// Writes the line of a number below 1,000,000,000, or of -1. Returns its length, or [`TOO_LONG`] for other
/// numbers.
#[inline(always)]
fn write_line(line: &mut [u8; LINE_BYTES], marker: u8, value: i64) -> usize {
    let Some((small, len)) = small_line(marker, value) else {
        return write_by_threes(line, marker, value).unwrap_or(TOO_LONG);
    };
    line[..8].copy_from_slice(&small.to_le_bytes());
    len
}

/// Like `write_line`, for a number that is not in the table: three digits at a time.
#[inline(never)]
fn write_by_threes(line: &mut [u8; LINE_BYTES], marker: u8, value: i64) -> Option<usize> {
    let value = u32::try_from(value).ok().filter(|value| (1_000..1_000_000_000).contains(value))?;
    let (thousands, ones) = (value / 1_000, value % 1_000);
    let (millions, middle) = (thousands / 1_000, thousands % 1_000);
    if millions == 0 {
        let (first, len) = small_line(marker, thousands.into())?;
        line[..8].copy_from_slice(&first.to_le_bytes());
        return append_three(line, len, ones);
    }
    let (first, len) = small_line(marker, millions.into())?;
    line[..8].copy_from_slice(&first.to_le_bytes());
    let len = append_three(line, len, middle)?;
    append_three(line, len, ones)
}

/// Appends three digits to a line. Returns its length.
#[inline(always)]
fn append_three(line: &mut [u8; LINE_BYTES], len: usize, digits: u32) -> Option<usize> {
    let end: &mut [u8; 5] = line.get_mut(len - LINE_END.len()..)?.first_chunk_mut()?;
    end[..4].copy_from_slice(THREE_DIGITS.get(digits as usize)?);
    end[3..].copy_from_slice(LINE_END);
    Some(len + 3)
}

const LINE_END: &[u8; 2] = b"\r\n";

/// Three digits each, with leading zeros, and the first byte of a line end.
static THREE_DIGITS: [[u8; 4]; 1_000] = {
    let mut lines = [*b"000\r"; 1_000];
    let (mut value, mut digits) = (0, *b"000\r");
    while value < lines.len() {
        lines[value] = digits;
        value += 1;
        let mut place = 2;
        while digits[place] == b'9' && place > 0 {
            digits[place] = b'0';
            place -= 1;
        }
        digits[place] += 1;
    }
    lines
};

#[cold]
fn push_long(out: &mut Vec<u8>, marker: u8, value: i64) {
    out.push(marker);
    out.extend_from_slice(Buffer::new().format(value).as_bytes());
    out.extend_from_slice(b"\r\n");
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
    fn numbers_are_written_in_groups_of_three_digits() {
        for value in 0..1_000 {
            for value in [value, value * 1_000 + 999 - value, value * 1_001_001, 1_000_000_000 - value] {
                assert_eq!(line(value), format!("before:{value}\r\n"));
            }
        }
    }

    proptest::proptest! {
        #[test]
        fn any_numbers_are_written(values: [i64; 5], bits: [u32; 5]) {
            let values: [i64; 5] = std::array::from_fn(|index| values[index] >> (bits[index] % 64));
            let mut out = b"before".to_vec();
            push_five(&mut out, values);
            let [a, b, c, d, e] = values;
            let expected = format!("before*5\r\n:{a}\r\n:{b}\r\n:{c}\r\n:{d}\r\n:{e}\r\n");
            proptest::prop_assert_eq!(out, expected.into_bytes());
        }
    }
}
