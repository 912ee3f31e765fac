//! LEB128: whole numbers in as few bytes as they need. Seven bits per byte, the low ones first; the top bit
//! is set if more bytes follow (DWARF Debugging Information Format 4, 7.6).

/// The most bytes a number takes.
pub(crate) const MAX_BYTES: usize = 10;

/// A number, encoded.
#[derive(Clone, Copy)]
pub(crate) struct Encoded {
    bytes: [u8; MAX_BYTES],
    len: u8,
}

impl Encoded {
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

/// Encodes a number.
#[inline]
pub(crate) fn encode(mut value: u64) -> Encoded {
    let mut bytes = [0; MAX_BYTES];
    let mut len = 0;
    while value >= 0x80 {
        bytes[len] = low_byte(value) | 0x80;
        value >>= 7;
        len += 1;
    }
    bytes[len] = low_byte(value);
    #[expect(clippy::cast_possible_truncation, reason = "at most 9")]
    let len = len as u8 + 1;
    Encoded { bytes, len }
}

/// Decodes the number at `offset`, and returns the offset behind it. Bytes that [`encode`] did not write
/// decode to some number. Panics past the end.
#[inline]
pub(crate) fn decode(bytes: &[u8], offset: usize) -> (u64, usize) {
    let first = bytes[offset];
    if first < 0x80 {
        return (u64::from(first), offset + 1);
    }
    let mut value = u64::from(first & 0x7f);
    let mut shift = 7;
    let mut at = offset + 1;
    loop {
        let byte = bytes[at];
        value |= u64::from(byte & 0x7f) << (shift & 63);
        at += 1;
        shift += 7;
        if byte < 0x80 {
            return (value, at);
        }
    }
}

/// Appends a number.
#[inline]
pub(crate) fn push(out: &mut Vec<u8>, value: u64) {
    if value < 0x80 {
        out.push(low_byte(value));
    } else {
        out.extend_from_slice(encode(value).as_bytes());
    }
}

/// Decodes a number from the front of untrusted bytes. `None` if they do not start with one.
#[inline]
pub(crate) fn take(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..).step_by(7) {
        let byte = *bytes.split_off_first()?;
        if shift == 63 && byte > 1 {
            return None;
        }
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

#[expect(clippy::cast_possible_truncation, reason = "the low bits are what is wanted")]
fn low_byte(value: u64) -> u8 {
    value as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_round_trip() {
        let powers = (0..64).map(|bit| 1_u64 << bit);
        for value in powers.flat_map(|power| [power - 1, power, power + 1]).chain([u64::MAX]) {
            let encoded = encode(value);
            let mut bytes = encoded.as_bytes().to_vec();
            let len = bytes.len();
            assert_eq!(len, (64 - value.leading_zeros() as usize).div_ceil(7).max(1), "{value}");
            bytes.insert(0, 0xff);
            bytes.push(7);
            assert_eq!(decode(&bytes, 1), (value, len + 1));
            let mut rest = &bytes[1..];
            assert_eq!((take(&mut rest), rest), (Some(value), &[7][..]));
            for cut in 1..=len {
                assert_eq!(take(&mut &bytes[1..cut]), None);
            }
        }
    }

    #[test]
    fn invalid_varints_are_refused() {
        for bytes in [&[][..], &[0xff; 10], &[0xff; 20], &[0x80; 9]] {
            assert_eq!(take(&mut { bytes }), None, "{bytes:?}");
        }
    }
}
