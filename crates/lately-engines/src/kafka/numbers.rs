//! Reads whole numbers as `crate::numbers` appends them. Each has one form, so that a record of a number is always the same.

/// Bytes that are not read yet. `None` for what no such call has written.
pub(super) struct Reader<'b>(&'b [u8]);

impl<'b> Reader<'b> {
    pub(super) fn new(bytes: &'b [u8]) -> Reader<'b> {
        Reader(bytes)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn byte(&mut self) -> Option<u8> {
        let (&first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(first)
    }

    /// Eight bytes, the high one first.
    pub(super) fn word(&mut self) -> Option<u64> {
        let (word, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u64::from_be_bytes(*word))
    }

    pub(super) fn number(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..u64::BITS).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if shift > 0 && byte == 0 || bits << shift >> shift != bits {
                return None;
            }
            number |= bits << shift;
            if byte & 0x80 == 0 {
                return Some(number);
            }
        }
        None
    }

    pub(super) fn signed(&mut self) -> Option<i64> {
        let number = self.number()?;
        Some((number >> 1).cast_signed() ^ -(number & 1).cast_signed())
    }

    pub(super) fn bytes(&mut self) -> Option<&'b [u8]> {
        let length = usize::try_from(self.number()?).ok()?;
        let (bytes, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(bytes)
    }

    pub(super) fn text(&mut self) -> Option<&'b str> {
        std::str::from_utf8(self.bytes()?).ok()
    }

    pub(super) fn rest(self) -> &'b [u8] {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use crate::numbers::{put, put_bytes, put_signed};

    use super::*;

    #[test]
    fn numbers_are_read_as_they_were_written() {
        let mut bytes = Vec::new();
        let numbers = [0, 1, 127, 128, 300, u64::from(u32::MAX), u64::MAX];
        let signed = [0, 1, -1, 64, -65, i64::MAX, i64::MIN];
        numbers.iter().for_each(|number| put(&mut bytes, *number));
        signed.iter().for_each(|number| put_signed(&mut bytes, *number));
        put_bytes(&mut bytes, b"text");
        let mut reader = Reader::new(&bytes);
        numbers.iter().for_each(|number| assert_eq!(reader.number(), Some(*number)));
        signed.iter().for_each(|number| assert_eq!(reader.signed(), Some(*number)));
        assert_eq!(reader.text(), Some("text"));
        assert!(reader.is_empty() && reader.byte().is_none());
    }

    #[test]
    fn each_number_has_one_form() {
        for bytes in
            [&[0x80][..], &[0x80, 0], &[0xff; 10], &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2]]
        {
            assert_eq!(Reader::new(bytes).number(), None, "{bytes:?}");
        }
        assert_eq!(Reader::new(&[5, 1, 2]).bytes(), None);
    }
}
