//! The bytes of a list: a header, the origin of its times, and the moments.

use super::super::moment::Moment;
use super::MOST_MOMENTS;
use crate::limits::MAX_MOMENTS;
use crate::number::{Number, first_word};

pub(super) const SIX_BYTES: u64 = (1 << 48) - 1;

/// The third word has a time and the length of the newest moment (at most sixteen), the number of moments
/// less one, and whether the moments must be kept.
const LEN_BITS: u64 = 0x1f << LEN_SHIFT;
const LEN_SHIFT: u32 = 48;
const COUNT_BITS: u64 = 0x3ff << COUNT_SHIFT;
const COUNT_SHIFT: u32 = 53;
const KEEPS_MOMENTS: u64 = 1 << 63;
const _: () = assert!((MOST_MOMENTS as u64 - 1) << COUNT_SHIFT <= COUNT_BITS);
/// The count of a list that may be full.
const FULL_BITS: u64 = (MAX_MOMENTS as u64 - 1) << COUNT_SHIFT;

/// A summary of the moments.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Header {
    /// The sum of all hits.
    pub(super) total: u64,
    /// The end of the moments.
    pub(super) end: usize,
    /// The number of moments.
    pub(super) count: usize,
    /// The bytes of the newest moment.
    pub(super) newest_len: usize,
    /// Whether limits need the exact moments. If so, they are not turned into a ring.
    pub(super) keeps_moments: bool,
    pub(super) cursor: Cursor,
}

/// The place of the cursor, and the state before it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Cursor {
    pub(super) offset: usize,
    /// The hits of the moments before it.
    pub(super) passed: u64,
    /// The time of the moment before it; the origin if there is none.
    pub(super) passed_ms: i64,
    /// The gap from there to the moment at the cursor; the largest value if the gap is larger, or there is
    /// none.
    pub(super) gap_ms: u32,
}

/// The origin: a time before the first moment, in six bytes.
const ORIGIN: usize = 28;

/// The start of the moments. Each is a gap, then its hits if they are more than one.
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
        // Six bytes, and two bytes for each.
        let lens = self.newest_len | (self.count - 1) << (COUNT_SHIFT - LEN_SHIFT);
        let pairs = [(self.total, self.end), (passed, offset), (word_of(passed_ms), lens)];
        for ((six, two), room) in pairs.into_iter().zip(bytes.chunks_exact_mut(8)) {
            room.copy_from_slice(&(six | (two as u64) << 48).to_le_bytes());
        }
        bytes[24..].copy_from_slice(&gap_ms.to_le_bytes());
        bytes[23] |= u8::from(self.keeps_moments) << 7;
    }
}

/// The place of the cursor, if there is a list.
#[inline]
pub(super) fn cursor_offset(bytes: &[u8]) -> Option<usize> {
    let &[low, high] = bytes.get(14..)?.first_chunk()?;
    Some(u16::from_le_bytes([low, high]).into())
}

/// Adds a hit to a list: a moment `gap_ms` after the newest, or to the newest if that is 0. Returns the hits
/// from `from_ms` on, and the end of the moments. `None`, and no change, if there is no room, the cursor has
/// to move, or a number is long. The effect is that of reading, changing and writing the header, but only the
/// necessary words are read and written.
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
        let gap = Gap::number(gap_ms, false);
        if newest & COUNT_BITS >= FULL_BITS || end + gap.len > bytes.len() {
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

/// Writes a number. There must be room for it.
#[inline(always)]
pub(super) fn put(bytes: &mut [u8], offset: usize, number: Number) {
    if let Some(room) = bytes.get_mut(offset..offset + 8) {
        // The bytes behind the number do not matter. Reading them first would wait for memory.
        room.copy_from_slice(&number.word.to_le_bytes());
        return;
    }
    let past = offset + 8 - bytes.len();
    let at = offset - past;
    let room = &mut bytes[at..at + 8];
    let held = u64::from_le_bytes(*room.first_chunk().expect("eight bytes"));
    // Keep the bytes before the number.
    let kept = held & !(u64::MAX << (8 * past));
    room.copy_from_slice(&(kept | number.word << (8 * past)).to_le_bytes());
}

/// Adds a hit to the moment in these bytes, whose last byte is free. Returns by how many bytes the moment
/// grows.
#[inline]
fn raise_one(newest: &mut [u8]) -> Option<usize> {
    let (first, free) = (*newest.first()?, newest.len() - 1);
    let kind = first & 7;
    if u64::from(kind) >= PLAIN {
        return None;
    }
    let gap_len = GAP_LENS[usize::from(kind)];
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

/// The bit of the first byte of a gap for `has_hits`.
const HAS_HITS: u8 = Number::ONE_BYTE;

/// The origin of the first moment.
pub(super) fn origin_ms(bytes: &[u8]) -> i64 {
    time_of(word(bytes, ORIGIN) & SIX_BYTES)
}

pub(super) fn set_origin(bytes: &mut [u8], ms: i64) {
    bytes[ORIGIN..ITEMS].copy_from_slice(&word_of(ms).to_le_bytes()[..ITEMS - ORIGIN]);
}

/// A time in six bytes, plus one: the origin may be a millisecond before the epoch.
#[inline]
fn word_of(ms: i64) -> u64 {
    (ms + 1).cast_unsigned()
}

#[inline]
fn time_of(word: u64) -> i64 {
    word.cast_signed() - 1
}

impl Cursor {
    /// Whether the moment at the cursor is certainly the first one from `from_ms` on.
    #[inline]
    pub(super) fn is_at(self, from_ms: i64) -> bool {
        let from_ms = from_ms - self.passed_ms;
        from_ms <= i64::from(self.gap_ms) && (from_ms > 0 || self.passed == 0)
    }

    /// The cursor with the next moment at `at_ms`.
    #[inline]
    pub(super) fn before(self, at_ms: i64) -> Cursor {
        let gap_ms = u32::try_from(at_ms - self.passed_ms).unwrap_or(u32::MAX);
        Cursor { gap_ms, ..self }
    }
}

/// The time from one moment to the next, and whether a number of hits follows.
///
/// It is encoded as a number of its own. The three lowest bits are its length. For most lengths the next two
/// bits say whether hits follow, and whether the gap is in seconds: hits from logs and from regular senders
/// are whole seconds apart, and so take a byte or two. A gap of about an hour takes three bytes, without
/// following hits: the extra values of the length bits are part of its milliseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::entry) struct Gap {
    pub(super) ms: i64,
    pub(super) has_hits: bool,
}

const SECOND_MS: u64 = 1_000;

/// The bytes of a gap, by its three lowest bits.
const GAP_LENS: [usize; 8] = [1, 2, 3, 4, LONG_LEN, PLAIN_LEN, PLAIN_LEN, PLAIN_LEN];
/// The length bits of the longest gap, of seven bytes, and, from `PLAIN` on, of a gap of three bytes without
/// hits.
const LONG: u64 = 4;
const LONG_LEN: usize = 7;
const PLAIN: u64 = 5;
const PLAIN_LEN: usize = 3;
/// The range of such a gap.
const PLAIN_BITS: u64 = 8 * PLAIN_LEN as u64 - 3;
const PLAIN_END_MS: u64 = (8 - PLAIN) << PLAIN_BITS;

impl Gap {
    /// The encoded gap.
    #[inline]
    pub(super) fn number(ms: i64, has_hits: bool) -> Number {
        let ms = ms.cast_unsigned();
        let is_seconds = ms.is_multiple_of(SECOND_MS);
        let unit = if is_seconds { (ms / SECOND_MS) << 2 | 2 } else { ms << 2 };
        let number = Number::new(unit | u64::from(has_hits));
        if number.len <= PLAIN_LEN { number } else { Gap::long(number, ms, is_seconds || has_hits) }
    }

    /// The encoded gap, if the short encoding has more than three bytes.
    #[cold]
    fn long(number: Number, ms: u64, is_flagged: bool) -> Number {
        if !is_flagged && ms < PLAIN_END_MS {
            let kind = PLAIN + (ms >> PLAIN_BITS);
            return Number { word: (ms % (1 << PLAIN_BITS)) << 3 | kind, len: PLAIN_LEN };
        }
        if number.len == PLAIN_LEN + 1 {
            number
        } else {
            Number { word: number.word & !7 | LONG, len: LONG_LEN }
        }
    }

    /// Decodes the gap at the start of a word. Returns it and its length in bytes.
    #[inline]
    pub(super) fn read(word: u64) -> (Gap, usize) {
        let kind = word & 7;
        let len = GAP_LENS[kind as usize];
        let rest = (word & (u64::MAX >> (64 - 8 * len))) >> 3;
        let gap = match kind {
            PLAIN.. => Gap { ms: ((kind - PLAIN) << PLAIN_BITS | rest).cast_signed(), has_hits: false },
            _ => Gap::flagged(rest),
        };
        (gap, len)
    }

    /// Decodes a number with both flags.
    #[inline]
    fn flagged(number: u64) -> Gap {
        let unit_ms = if number & 2 == 0 { 1 } else { SECOND_MS };
        Gap { ms: ((number >> 2) * unit_ms).cast_signed(), has_hits: number & 1 == 1 }
    }

    /// Decodes a gap from the front of untrusted bytes. `None` if they do not start with one.
    pub(in crate::entry) fn take(bytes: &mut &[u8]) -> Option<Gap> {
        let (gap, len) = Gap::read(first_word(bytes));
        *bytes = bytes.get(len..)?;
        Some(gap)
    }

    /// Decodes a gap of the old format: a number of any length, with both flags.
    pub(in crate::entry) fn take_number(bytes: &mut &[u8]) -> Option<Gap> {
        // No valid time has more bits.
        Number::take(bytes).filter(|number| number >> (8 * LONG_LEN - 3) == 0).map(Gap::flagged)
    }
}

/// Eight bytes at `at`, padded with zeros.
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

/// An iterator over moments, oldest first.
#[derive(Clone, Copy)]
pub(in crate::entry) struct Reader<'a> {
    pub(super) bytes: &'a [u8],
    /// The start of the next moment, and the end of all.
    pub(super) offset: usize,
    pub(super) end: usize,
    /// The time of the moment before it.
    pub(super) before_ms: i64,
}

impl Iterator for Reader<'_> {
    type Item = Moment;

    #[inline]
    fn next(&mut self) -> Option<Moment> {
        if self.offset >= self.end {
            return None;
        }
        let (gap, len) = Gap::read(word(self.bytes, self.offset));
        self.offset += len;
        self.before_ms += gap.ms;
        let mut hits = 1;
        if gap.has_hits {
            let (several, len) = Number::read(word(self.bytes, self.offset));
            (hits, self.offset) = (several, self.offset + len);
        }
        Some(Moment { at_ms: self.before_ms, hits })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_round_trip_in_the_bytes_they_need() {
        let powers = (0..48).map(|bit| 1_i64 << bit);
        let plain_end_ms = PLAIN_END_MS.cast_signed();
        let bounds = [1_000, 524_287_000, 524_288_000, plain_end_ms, plain_end_ms / 3, 2 * plain_end_ms / 3];
        for ms in powers.chain(bounds).flat_map(|ms| [ms - 1, ms, ms + 1]) {
            for has_hits in [false, true] {
                let Number { word, len } = Gap::number(ms, has_hits);
                let (value, is_seconds) = if ms % 1_000 == 0 { (ms / 1_000, true) } else { (ms, false) };
                let bits = 5 + 64 - value.leading_zeros() as usize;
                let expected = match bits.div_ceil(8) {
                    4.. if !is_seconds && !has_hits && ms < plain_end_ms => 3,
                    5.. => 7,
                    few => few,
                };
                assert_eq!(len, expected, "{ms} {has_hits}");
                assert_eq!(word >> (8 * len), 0, "{ms} {has_hits}");
                let gap = Gap { ms, has_hits };
                // The bytes behind it do not matter.
                assert_eq!(Gap::read(word | u64::MAX << (8 * len)), (gap, len));
                let bytes = word.to_le_bytes();
                for end in 0..=len {
                    assert_eq!(Gap::take(&mut &bytes[..end]), (end == len).then_some(gap));
                }
            }
        }
    }

    #[test]
    fn any_bytes_are_a_valid_gap() {
        for first in 0..=u8::MAX {
            for rest in [0, u64::MAX] {
                let (gap, len) = Gap::read(rest << 8 | u64::from(first));
                assert!(gap.ms >= 0 && (1..=7).contains(&len), "{gap:?}");
            }
        }
    }
}
