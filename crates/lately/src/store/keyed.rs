//! A key with its hits as bytes: what the parts of a checkpoint and of a dump are made of.

use crate::delta::Generation;
use crate::error::Malformed;
use crate::limits::MAX_KEY_BYTES;
use crate::time::Timestamp;
use crate::varint;

/// A key and all that is kept of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Keyed<'a> {
    pub(super) key: &'a [u8],
    pub(super) generation: Generation,
    pub(super) limited_until: Option<Timestamp>,
    /// What `Entry::write` gave.
    pub(super) entry: &'a [u8],
}

// The first byte: what a key has that few have.
const GENERATION: u8 = 1;
const LIMITED: u8 = 2;

impl<'a> Keyed<'a> {
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        let has_generation = self.generation != Generation::default();
        let limited = if self.limited_until.is_some() { LIMITED } else { 0 };
        out.push(limited | u8::from(has_generation));
        varint::push(out, self.key.len() as u64);
        out.extend_from_slice(self.key);
        if has_generation {
            varint::push(out, self.generation.0);
        }
        if let Some(until) = self.limited_until {
            varint::push(out, until.as_millis().cast_unsigned());
        }
        varint::push(out, self.entry.len() as u64);
        out.extend_from_slice(self.entry);
    }

    /// Takes one off the front of bytes.
    pub(super) fn take(bytes: &mut &'a [u8]) -> Result<Keyed<'a>, Malformed> {
        Keyed::read(bytes).ok_or(Malformed::Entry)
    }

    fn read(bytes: &mut &'a [u8]) -> Option<Keyed<'a>> {
        let first = *bytes.split_off_first()?;
        let mut run = |most: usize| {
            let len = usize::try_from(varint::take(bytes)?).ok().filter(|&len| len <= most)?;
            bytes.split_off(..len)
        };
        let key = run(MAX_KEY_BYTES).filter(|key| !key.is_empty())?;
        let generation = Generation::new(if first & GENERATION == 0 { 0 } else { varint::take(bytes)? })?;
        if generation > Generation::MAX {
            return None;
        }
        let limited_until = if first & LIMITED == 0 {
            None
        } else {
            Some(Timestamp::from_millis(i64::try_from(varint::take(bytes)?).ok()?)?)
        };
        let len = usize::try_from(varint::take(bytes)?).ok()?;
        let entry = bytes.split_off(..len)?;
        (first <= GENERATION | LIMITED).then_some(Keyed { key, generation, limited_until, entry })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_come_back() {
        let until = Timestamp::from_millis(1_700_000_000_123);
        let long = [7; MAX_KEY_BYTES];
        let all = [
            Keyed { key: b"k", generation: Generation(0), limited_until: None, entry: b"" },
            Keyed { key: &long, generation: Generation::MAX, limited_until: until, entry: &long },
            Keyed { key: b"k", generation: Generation(1), limited_until: None, entry: b"entry" },
            Keyed { key: b"k", generation: Generation(0), limited_until: until, entry: b"entry" },
        ];
        let mut bytes = Vec::new();
        all.iter().for_each(|keyed| keyed.write(&mut bytes));
        let mut rest = &bytes[..];
        for keyed in all {
            assert_eq!(Keyed::take(&mut rest), Ok(keyed));
        }
        assert!(rest.is_empty());
    }

    #[test]
    fn what_is_no_key_is_refused() {
        let keyed = Keyed { key: b"key", generation: Generation(9), limited_until: None, entry: b"entry" };
        let mut bytes = Vec::new();
        keyed.write(&mut bytes);
        for len in 0..bytes.len() {
            assert_eq!(Keyed::take(&mut &bytes[..len]), Err(Malformed::Entry), "{len}");
        }
        for bytes in [&[0, 0, 0][..], &[4, 1, b'k', 0], &[0, 0x81, 8]] {
            assert_eq!(Keyed::take(&mut { bytes }), Err(Malformed::Entry), "{bytes:?}");
        }
    }
}
