//! The bytes of a list: a header, the origin of its times, and the moments.

use super::super::moment::Moment;
use crate::limits::MAX_MOMENTS;
use crate::number::{Number, first_word};

pub(super) const SIX_BYTES: u64 = (1 << 48) - 1;

/// In the third word: the bits of the newest moment's length, a number of sixteen at most; the bits of how many moments
/// there are, less one; and whether they are kept.
const LEN_BITS: u64 = 0x1f << LEN_SHIFT;
const LEN_SHIFT: u32 = 48;
const COUNT_BITS: u64 = 0x1ff << COUNT_SHIFT;
const COUNT_SHIFT: u32 = 53;
const KEEPS_MOMENTS: u64 = 1 << 63;
/// The count of a list that may be full.
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

/// Where the cursor of a list is, if there is one.
#[inline]
pub(super) fn cursor_offset(bytes: &[u8]) -> Option<usize> {
    let &[low, high] = bytes.get(14..)?.first_chunk()?;
    Some(u16::from_le_bytes([low, high]).into())
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

/// Writes a number, for which there is room.
#[inline(always)]
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

/// The bit of a gap that says so, in its first byte.
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

/// The time from one moment to the next, and whether hits follow.
///
/// As bytes it is a number of its own. Its three lowest bits say how long it is. Of most lengths the next two say whether
/// hits follow and whether it counts seconds: hits from logs and of senders that keep time are whole seconds apart, and so
/// take a byte or two. A hit each hour or so takes three: no hits follow, and what such gaps have in the bits of the length
/// is a part of their milliseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::entry) struct Gap {
    pub(super) ms: i64,
    pub(super) has_hits: bool,
}

const SECOND_MS: u64 = 1_000;

/// Bytes of a gap by its three lowest bits.
const GAP_LENS: [usize; 8] = [1, 2, 3, 4, LONG_LEN, PLAIN_LEN, PLAIN_LEN, PLAIN_LEN];
/// What they are of a gap of seven bytes, the longest; and of one of three without hits, from here on.
const LONG: u64 = 4;
const LONG_LEN: usize = 7;
const PLAIN: u64 = 5;
const PLAIN_LEN: usize = 3;
/// What the other bits of such a gap hold.
const PLAIN_BITS: u64 = 8 * PLAIN_LEN as u64 - 3;
const PLAIN_END_MS: u64 = (8 - PLAIN) << PLAIN_BITS;

impl Gap {
    /// As bytes.
    #[inline]
    pub(super) fn number(ms: i64, has_hits: bool) -> Number {
        let ms = ms.cast_unsigned();
        let is_seconds = ms.is_multiple_of(SECOND_MS);
        let unit = if is_seconds { (ms / SECOND_MS) << 2 | 2 } else { ms << 2 };
        let number = Number::new(unit | u64::from(has_hits));
        if number.len <= PLAIN_LEN { number } else { Gap::long(number, ms, is_seconds || has_hits) }
    }

    /// As `number`, when what it would be otherwise has more than three bytes.
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

    /// The gap that a word starts with, and its bytes.
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

    /// That of a number with both flags, of at most as many bits as the longest gap has.
    #[inline]
    fn flagged(number: u64) -> Gap {
        let unit_ms = if number & 2 == 0 { 1 } else { SECOND_MS };
        Gap { ms: ((number >> 2) * unit_ms).cast_signed(), has_hits: number & 1 == 1 }
    }

    /// Takes a gap off the front of bytes from anywhere; `None` when they do not begin with one.
    pub(in crate::entry) fn take(bytes: &mut &[u8]) -> Option<Gap> {
        let (gap, len) = Gap::read(first_word(bytes));
        *bytes = bytes.get(len..)?;
        Some(gap)
    }

    /// As `take`, of a gap as it was written at first: a number of any length, with both bits.
    pub(in crate::entry) fn take_number(bytes: &mut &[u8]) -> Option<Gap> {
        // More bits than that are no time there is.
        Number::take(bytes).filter(|number| number >> (8 * LONG_LEN - 3) == 0).map(Gap::flagged)
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
    fn gaps_come_back_in_the_bytes_they_need() {
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
                // What follows does not matter.
                assert_eq!(Gap::read(word | u64::MAX << (8 * len)), (gap, len));
                let bytes = word.to_le_bytes();
                for end in 0..=len {
                    assert_eq!(Gap::take(&mut &bytes[..end]), (end == len).then_some(gap));
                }
            }
        }
    }

    #[test]
    fn a_gap_of_any_bytes_is_some_time() {
        for first in 0..=u8::MAX {
            for rest in [0, u64::MAX] {
                let (gap, len) = Gap::read(rest << 8 | u64::from(first));
                assert!(gap.ms >= 0 && (1..=7).contains(&len), "{gap:?}");
            }
        }
    }
}
