//! Frames: the units of a file. A frame is a number and a payload, with checksums for both.
//!
//! | byte | what |
//! |---|---|
//! | 0–3 | length of the payload |
//! | 4–11 | the frame's number, higher than that of the one before |
//! | 12–19 | how far the file was synced when the frame was written |
//! | 20–23 | checksum of the payload |
//! | 24–27 | checksum of bytes 0 to 23 |
//! | 28– | the payload |
//!
//! Numbers are little-endian, checksums are CRC-32 (ISO 3309). A head with a correct checksum has a reliable
//! length, and can be found behind damage. It then shows whether the damaged bytes had been synced, or may
//! just not have been written.

use lately::DeltaFormat;

use crate::limits::MAX_FRAME_BYTES;

/// Bytes before the payload.
pub(crate) const HEAD_BYTES: usize = 28;
/// The bytes of the head that its checksum covers.
const CHECKED_BYTES: usize = HEAD_BYTES - 4;

/// The first bytes of a file: its kind, and the version of its format.
pub(crate) const MAGIC_BYTES: usize = 8;
pub(crate) const VERSION: u8 = 3;
/// The oldest version that can be read. Version 2 changed the encoding of moments, which is recognizable by
/// itself. Version 3 changed deltas (a byte for their kind) and parts (a time).
pub(crate) const OLDEST_VERSION: u8 = 1;

/// The encoding of deltas in a file of this version.
pub(crate) fn delta_format(version: u8) -> DeltaFormat {
    if version < 3 { DeltaFormat::Old } else { DeltaFormat::Current }
}

/// The kind of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Log,
    Checkpoint,
    Dump,
}

impl Kind {
    pub(crate) fn magic(self) -> [u8; MAGIC_BYTES] {
        let kind = match self {
            Kind::Log => b'L',
            Kind::Checkpoint => b'C',
            Kind::Dump => b'D',
        };
        let [l, a, t, e, t2, y] = *b"lately";
        [l, a, t, e, t2, y, kind, VERSION]
    }

    /// The version in the first bytes of a file of this kind. `None` if it is another kind.
    pub(crate) fn version_of(self, first: &[u8]) -> Option<u8> {
        let (&version, name) = first.split_last()?;
        (name == &self.magic()[..MAGIC_BYTES - 1]).then_some(version)
    }
}

/// The head of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Head {
    pub(crate) len: usize,
    pub(crate) number: u64,
    pub(crate) synced: u64,
    checksum: u32,
}

impl Head {
    /// Decodes a head from the front of `bytes`. `None` if its checksum is wrong.
    pub(crate) fn read(bytes: &[u8]) -> Option<Head> {
        let head: &[u8; HEAD_BYTES] = bytes.first_chunk()?;
        let word = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        if crc32fast::hash(&head[..CHECKED_BYTES]) != word(CHECKED_BYTES) {
            return None;
        }
        let long = |at: usize| u64::from(word(at)) | u64::from(word(at + 4)) << 32;
        let len = usize::try_from(word(0)).ok().filter(|&len| len <= MAX_FRAME_BYTES)?;
        Some(Head { len, number: long(4), synced: long(12), checksum: word(20) })
    }

    /// Whether the payload has the right length and checksum.
    pub(crate) fn fits(&self, payload: &[u8]) -> bool {
        payload.len() == self.len && crc32fast::hash(payload) == self.checksum
    }
}

/// Appends a frame. `write` appends its payload.
pub(crate) fn append(out: &mut Vec<u8>, number: u64, synced: u64, write: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&[0; HEAD_BYTES]);
    write(out);
    let (head, payload) = out[start..].split_at_mut(HEAD_BYTES);
    let len = u32::try_from(payload.len()).expect("a frame is bounded");
    head[..4].copy_from_slice(&len.to_le_bytes());
    head[4..12].copy_from_slice(&number.to_le_bytes());
    head[12..20].copy_from_slice(&synced.to_le_bytes());
    head[20..24].copy_from_slice(&crc32fast::hash(payload).to_le_bytes());
    let checksum = crc32fast::hash(&head[..CHECKED_BYTES]);
    head[CHECKED_BYTES..].copy_from_slice(&checksum.to_le_bytes());
}

/// Decodes a number from the front of a payload.
pub(crate) fn take_u64(payload: &mut &[u8]) -> Option<u64> {
    let (first, rest) = payload.split_first_chunk()?;
    *payload = rest;
    Some(u64::from_le_bytes(*first))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_round_trips_and_a_flipped_bit_is_found() {
        let mut bytes = b"before".to_vec();
        let start = bytes.len();
        append(&mut bytes, 1 << 40, 77, |payload| payload.extend_from_slice(b"payload"));
        let frame = &bytes[start..];
        let read = |bytes: &[u8]| {
            let head = Head::read(bytes)?;
            let payload = bytes.get(HEAD_BYTES..HEAD_BYTES + head.len)?;
            head.fits(payload).then(|| (head.number, head.synced, payload.to_vec()))
        };
        assert_eq!(read(frame), Some((1 << 40, 77, b"payload".to_vec())));
        for bit in 0..frame.len() * 8 {
            let mut flipped = frame.to_vec();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(read(&flipped), None, "bit {bit}");
        }
        for len in 0..frame.len() {
            assert_eq!(read(&frame[..len]), None);
        }
    }
}
