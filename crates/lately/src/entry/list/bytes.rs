//! The bytes of a list: a header, the origin of its times, and the moments.

use super::super::moment::Moment;
use crate::limits::MAX_MOMENTS;
use crate::number::Number;

pub(super) const SIX_BYTES: u64 = (1 << 48) - 1;

/// In the third word: the bits of the newest moment's length, a number of sixteen at most; the bits of how many moments
/// there are, less one; and whether they are kept.
const LEN_BITS: u64 = 0x1f << LEN_SHIFT;
const LEN_SHIFT: u32 = 48;
const COUNT_BITS: u64 = 0x1ff << COUNT_SHIFT;
const COUNT_SHIFT: u32 = 53;
const KEEPS_MOMENTS: u64 = 1 << 63;
/// The count of a list that is full.
const FULL_BITS: u64 = (MAX_MOMENTS as u64 - 1) << COUNT_SHIFT;

/// What is known of the moments.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Header {
    /// All hits.
    pub(super) total: u64,
    /// Where the moments end.
    pub(super) end: usize,
    /// How many.
    pub(super) count: usize,
    /// Bytes of the newest moment.
    pub(super) newest_len: usize,
    /// Whether the moments matter to who decides: then they do not become a ring.
    pub(super) keeps_moments: bool,
    pub(super) cursor: Cursor,
}

/// Where the cursor is, and what is before it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Cursor {
    pub(super) offset: usize,
    /// Hits of the moments before it.
    pub(super) passed: u64,
    /// Time of the moment before it, the origin if there is none.
    pub(super) passed_ms: i64,
    /// From there to the moment at the cursor; as far as can be if that is further, or there is none.
    pub(super) gap_ms: u32,
}

/// Where the first moment counts from: a time before it, in six bytes.
const ORIGIN: usize = 28;

/// Where the moments start: each a gap, then its hits if they are more than one.
pub(super) const ITEMS: usize = ORIGIN + 6;

impl Header {
    #[inline]
    pub(super) fn read(bytes: &[u8]) -> Header {
        let bytes: &[u8; ORIGIN] = bytes.first_chunk().expect("a list begins with its header");
        let word = |at: usize| u64::from_le_bytes(*bytes[at..].first_chunk().expect("inside the header"));
        let (total, passed, passed_ms) = (word(0), word(8), word(16));
        Header {
            total: total & SIX_BYTES,
            end: (total >> 48) as usize,
            count: ((passed_ms & COUNT_BITS) >> COUNT_SHIFT) as usize + 1,
            newest_len: ((passed_ms & LEN_BITS) >> LEN_SHIFT) as usize,
            keeps_moments: passed_ms & KEEPS_MOMENTS != 0,
            cursor: Cursor {
                offset: (passed >> 48) as usize,
                passed: passed & SIX_BYTES,
                passed_ms: time_of(passed_ms & SIX_BYTES),
                gap_ms: (word(20) >> 32) as u32,
            },
        }
    }

    #[inline]
    pub(super) fn write(self, bytes: &mut [u8]) {
        let bytes: &mut [u8; ORIGIN] = bytes.first_chunk_mut().expect("a list begins with its header");
        let Cursor { offset, passed, passed_ms, gap_ms } = self.cursor;
        // Six bytes and two each.
        let lens = self.newest_len | (self.count - 1) << (COUNT_SHIFT - LEN_SHIFT);
        let pairs = [(self.total, self.end), (passed, offset), (word_of(passed_ms), lens)];
        for ((six, two), room) in pairs.into_iter().zip(bytes.chunks_exact_mut(8)) {
            room.copy_from_slice(&(six | (two as u64) << 48).to_le_bytes());
        }
        bytes[24..].copy_from_slice(&gap_ms.to_le_bytes());
        bytes[23] |= u8::from(self.keeps_moments) << 7;
    }
}

/// Adds a hit to a list: a moment so long after the newest, or to the newest if that is 0. Gives the hits from
/// `from_ms` on, and where the moments end; `None`, and nothing changes, when there is no room left, the cursor has to move
/// or a number is long. It does as reading, changing and writing the header would, of which it takes the words it
/// needs.
#[inline]
pub(super) fn add_one(bytes: &mut [u8], gap_ms: i64, from_ms: i64) -> Option<(u64, usize)> {
    let header: &[u8; ORIGIN] = bytes.first_chunk()?;
    let word = |at: usize| u64::from_le_bytes(*header[at..].first_chunk().expect("inside the header"));
    let (total, passed, newest) = (word(0), word(8), word(16));
    let (end, offset) = ((total >> 48) as usize, (passed >> 48) as usize);
    let cursor = Cursor {
        offset,
        passed: passed & SIX_BYTES,
        passed_ms: time_of(newest & SIX_BYTES),
        gap_ms: (word(20) >> 32) as u32,
    };
    let hits = (total & SIX_BYTES) + 1;
    if offset == end || !cursor.is_at(from_ms) || hits > SIX_BYTES {
        return None;
    }
    let (more, newest) = if gap_ms > 0 {
        let gap = Number::new(Gap::new(gap_ms, false).0);
        if newest & COUNT_BITS == FULL_BITS || end + gap.len > bytes.len() {
            return None;
        }
        put(bytes, end, gap);
        (gap.len, (newest & !LEN_BITS | (gap.len as u64) << LEN_SHIFT) + (1 << COUNT_SHIFT))
    } else {
        let newest_len = ((newest & LEN_BITS) >> LEN_SHIFT) as usize;
        let more = raise_one(bytes.get_mut(end - newest_len..=end)?)?;
        (more, newest + ((more as u64) << LEN_SHIFT))
    };
    bytes[..8].copy_from_slice(&(total + ((more as u64) << 48) + 1).to_le_bytes());
    bytes[16..24].copy_from_slice(&newest.to_le_bytes());
    Some((hits - cursor.passed, end + more))
}

/// Writes a number, for which there is room.
#[inline]
pub(super) fn put(bytes: &mut [u8], offset: usize, number: Number) {
    if let Some(room) = bytes.get_mut(offset..offset + 8) {
        // What is behind the number does not matter: to look what is there would be to wait for it.
        room.copy_from_slice(&number.word.to_le_bytes());
        return;
    }
    let past = offset + 8 - bytes.len();
    let at = offset - past;
    let room = &mut bytes[at..at + 8];
    let held = u64::from_le_bytes(*room.first_chunk().expect("eight bytes"));
    // What is before the number stays.
    let kept = held & !(u64::MAX << (8 * past));
    room.copy_from_slice(&(kept | number.word << (8 * past)).to_le_bytes());
}

/// Adds a hit to the moment in these bytes, of which the last is free; gives the bytes more that takes.
#[inline]
fn raise_one(newest: &mut [u8]) -> Option<usize> {
    let (first, free) = (*newest.first()?, newest.len() - 1);
    let gap_len = usize::from(first & 7) + 1;
    if first & HAS_HITS == 0 {
        newest[0] |= HAS_HITS;
        newest[free] = 2 * Number::ONE_BYTE;
        return Some(1);
    }
    let is_byte = free == gap_len + 1 && newest[gap_len] < Number::MAX_BYTE * Number::ONE_BYTE;
    is_byte.then(|| {
        newest[gap_len] += Number::ONE_BYTE;
        0
    })
}

/// The lowest bit of a gap, in the first byte of its number.
const HAS_HITS: u8 = Number::ONE_BYTE;

/// What the first moment counts from.
pub(super) fn origin_ms(bytes: &[u8]) -> i64 {
    time_of(word(bytes, ORIGIN) & SIX_BYTES)
}

pub(super) fn set_origin(bytes: &mut [u8], ms: i64) {
    bytes[ORIGIN..ITEMS].copy_from_slice(&word_of(ms).to_le_bytes()[..ITEMS - ORIGIN]);
}

/// A time as six bytes: a millisecond later, as that before the first may be one before time starts.
#[inline]
fn word_of(ms: i64) -> u64 {
    (ms + 1).cast_unsigned()
}

#[inline]
fn time_of(word: u64) -> i64 {
    word.cast_signed() - 1
}

impl Cursor {
    /// Whether the first moment from `from_ms` on is the one at the cursor, as far as is known here.
    #[inline]
    pub(super) fn is_at(self, from_ms: i64) -> bool {
        let from_ms = from_ms - self.passed_ms;
        from_ms <= i64::from(self.gap_ms) && (from_ms > 0 || self.passed == 0)
    }

    /// With the next moment at a time.
    #[inline]
    pub(super) fn before(self, at_ms: i64) -> Cursor {
        let gap_ms = u32::try_from(at_ms - self.passed_ms).unwrap_or(u32::MAX);
        Cursor { gap_ms, ..self }
    }
}

/// The time from one moment to the next, and in the two lowest bits whether hits follow and whether it
/// counts seconds. Hits from logs and of senders that keep time are whole seconds apart, and so take a
/// byte or two.
#[derive(Clone, Copy)]
pub(super) struct Gap(pub(super) u64);

const SECOND_MS: u64 = 1_000;

impl Gap {
    #[inline]
    pub(super) fn new(ms: i64, has_hits: bool) -> Gap {
        let ms = ms.cast_unsigned();
        let number = if ms.is_multiple_of(SECOND_MS) { (ms / SECOND_MS) << 2 | 2 } else { ms << 2 };
        Gap(number | u64::from(has_hits))
    }

    #[inline]
    pub(super) fn ms(self) -> i64 {
        let unit_ms = if self.0 & 2 == 0 { 1 } else { SECOND_MS };
        ((self.0 >> 2) * unit_ms).cast_signed()
    }

    /// As `ms`, of a number from anywhere.
    pub(super) fn checked_ms(self) -> Option<i64> {
        let unit_ms = if self.0 & 2 == 0 { 1 } else { SECOND_MS };
        i64::try_from((self.0 >> 2).checked_mul(unit_ms)?).ok()
    }

    #[inline]
    pub(super) fn has_hits(self) -> bool {
        self.0 & 1 == 1
    }
}

/// Eight bytes at `at`, zeros past the end.
#[inline]
fn word(bytes: &[u8], at: usize) -> u64 {
    if let Some(word) = bytes.get(at..).and_then(|rest| rest.first_chunk()) {
        return u64::from_le_bytes(*word);
    }
    let missing = at + 8 - bytes.len();
    match bytes.last_chunk() {
        Some(word) if missing < 8 => u64::from_le_bytes(*word) >> (8 * missing),
        _ => 0,
    }
}

/// Reads moments, oldest first.
#[derive(Clone, Copy)]
pub(in crate::entry) struct Reader<'a> {
    pub(super) bytes: &'a [u8],
    /// Where the next moment starts, and where they end.
    pub(super) offset: usize,
    pub(super) end: usize,
    /// Time of the moment before it.
    pub(super) before_ms: i64,
}

impl Iterator for Reader<'_> {
    type Item = Moment;

    #[inline]
    fn next(&mut self) -> Option<Moment> {
        if self.offset >= self.end {
            return None;
        }
        let (gap, len) = Number::read(word(self.bytes, self.offset));
        self.offset += len;
        let gap = Gap(gap);
        self.before_ms += gap.ms();
        let mut hits = 1;
        if gap.has_hits() {
            let (several, len) = Number::read(word(self.bytes, self.offset));
            (hits, self.offset) = (several, self.offset + len);
        }
        Some(Moment { at_ms: self.before_ms, hits })
    }
}
