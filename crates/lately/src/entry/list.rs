//! A sorted list of moments on the heap: the form of a key with more hits than fit beside it and at
//! most [`MAX_MOMENTS`] distinct milliseconds.
//!
//! One allocation holds a header and the moments as bytes. A cursor in the header stands at the first
//! moment of the window that was asked for last, with the hits before it: so hits and reads of the
//! default window look at no more than what has left the window since.

use thin_vec::ThinVec;

use super::moment::{Moment, Number, PackedTime};
use crate::allocation::{allocated, filled};
use crate::limits::MAX_MOMENTS;

/// What `ThinVec` keeps before the bytes: its length and capacity.
pub(super) const THIN_HEADER_BYTES: usize = 2 * size_of::<usize>();
/// Totals have six bytes.
pub(super) const MAX_TOTAL: u64 = SIX_BYTES;
const SIX_BYTES: u64 = (1 << 48) - 1;

/// What is known of a list without a look at the heap.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Head {
    newest: PackedTime,
    /// Moments less one: 256 fit. Wrapped where there is none.
    count_less_one: u8,
}

/// A list.
#[derive(Clone, Copy)]
pub(super) struct List<'a> {
    pub(super) head: &'a Head,
    pub(super) bytes: &'a [u8],
}

/// A list that changes. Its bytes are all in use or zero, up to the capacity.
pub(super) struct ListMut<'a> {
    pub(super) head: &'a mut Head,
    pub(super) bytes: &'a mut ThinVec<u8>,
}

/// The fields at the start of the bytes, by where they are; six bytes each but the last two.
mod field {
    /// All hits.
    pub(super) const TOTAL: usize = 0;
    /// Hits of the moments before the cursor.
    pub(super) const PASSED: usize = 6;
    /// Time of the moment before the cursor, the origin if there is none; a millisecond later, as time
    /// starts at 0.
    pub(super) const PASSED_MS: usize = 12;
    /// What the gap of the first moment counts from: a time before it; a millisecond later.
    pub(super) const ORIGIN_MS: usize = 18;
    /// Where the cursor is.
    pub(super) const CURSOR: usize = 24;
    /// Where the newest moment starts.
    pub(super) const LAST: usize = 26;
}

/// Bytes of the fields.
pub(super) const HEADER_BYTES: usize = ITEMS;

/// Where the moments start: each a gap, then its hits if they are more than one. A zero ends them, as
/// the end of the bytes does.
const ITEMS: usize = 28;

/// The time from one moment to the next, and in the two lowest bits whether hits follow and whether it
/// counts seconds. Hits from logs and of senders that keep time are whole seconds apart, and so take a
/// byte or two.
#[derive(Clone, Copy)]
struct Gap(u64);

const SECOND_MS: u64 = 1_000;

impl Gap {
    #[inline]
    fn new(ms: i64, has_hits: bool) -> Gap {
        let ms = ms.cast_unsigned();
        let number = if ms.is_multiple_of(SECOND_MS) { (ms / SECOND_MS) << 2 | 2 } else { ms << 2 };
        Gap(number | u64::from(has_hits))
    }

    #[inline]
    fn ms(self) -> i64 {
        let unit_ms = if self.0 & 2 == 0 { 1 } else { SECOND_MS };
        ((self.0 >> 2) * unit_ms).cast_signed()
    }

    #[inline]
    fn has_hits(self) -> bool {
        self.0 & 1 == 1
    }
}

/// Bytes of moments a list has room for when it begins, beside [`LEAST_MORE`].
const FIRST_ITEMS: usize = 12;
/// Bytes more a list makes room for at least when it grows: a short one will go on growing.
const LEAST_MORE: usize = 24;

/// Where the cursor is, and what is before it.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Cursor {
    offset: usize,
    passed: u64,
    passed_ms: i64,
}

#[inline]
fn six(bytes: &[u8], at: usize) -> u64 {
    word(bytes, at) & SIX_BYTES
}

#[inline]
fn put_six(bytes: &mut [u8], at: usize, value: u64) {
    bytes[at..at + 6].copy_from_slice(&value.to_le_bytes()[..6]);
}

#[inline]
fn two(bytes: &[u8], at: usize) -> usize {
    usize::from(u16::from_le_bytes([bytes[at], bytes[at + 1]]))
}

#[inline]
fn put_two(bytes: &mut [u8], at: usize, place: usize) {
    let place = u16::try_from(place).expect("256 moments fit 4 KiB");
    bytes[at..at + 2].copy_from_slice(&place.to_le_bytes());
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
pub(super) struct Reader<'a> {
    bytes: &'a [u8],
    /// Where the next moment starts.
    offset: usize,
    /// Time of the moment before it.
    before_ms: i64,
}

impl Iterator for Reader<'_> {
    type Item = Moment;

    #[inline]
    fn next(&mut self) -> Option<Moment> {
        let (gap, len) = Number::read(word(self.bytes, self.offset));
        if gap == 0 {
            return None;
        }
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

impl<'a> List<'a> {
    pub(super) fn is_empty(self) -> bool {
        self.bytes.is_empty()
    }

    pub(super) fn len(self) -> usize {
        if self.is_empty() { 0 } else { usize::from(self.head.count_less_one) + 1 }
    }

    pub(super) fn newest_ms(self) -> i64 {
        self.head.newest_ms()
    }

    pub(super) fn total(self) -> u64 {
        if self.is_empty() { 0 } else { six(self.bytes, field::TOTAL) }
    }

    fn origin_ms(self) -> i64 {
        six(self.bytes, field::ORIGIN_MS).cast_signed() - 1
    }

    fn cursor(self) -> Cursor {
        Cursor {
            offset: two(self.bytes, field::CURSOR),
            passed: six(self.bytes, field::PASSED),
            passed_ms: six(self.bytes, field::PASSED_MS).cast_signed() - 1,
        }
    }

    fn read(self, offset: usize, before_ms: i64) -> Reader<'a> {
        Reader { bytes: self.bytes, offset, before_ms }
    }

    /// The moments, oldest first.
    pub(super) fn moments(self) -> Reader<'a> {
        if self.is_empty() { self.read(0, 0) } else { self.read(ITEMS, self.origin_ms()) }
    }

    pub(super) fn oldest_ms(self) -> Option<i64> {
        self.moments().next().map(|moment| moment.at_ms)
    }

    pub(super) fn contains(self, at_ms: i64) -> bool {
        at_ms == self.newest_ms() && !self.is_empty()
            || at_ms < self.newest_ms() && self.moments().any(|moment| moment.at_ms == at_ms)
    }

    /// Hits from `from_ms` on and before `to_ms`.
    #[inline]
    pub(super) fn sum(self, from_ms: i64, to_ms: i64) -> u64 {
        if from_ms >= to_ms || self.is_empty() {
            return 0;
        }
        let until = if to_ms > self.newest_ms() { self.total() } else { self.seek(to_ms).passed };
        until - self.seek(from_ms).passed
    }

    /// The first moment from `from_ms` on, found from the cursor if that is not past it.
    #[inline]
    fn seek(self, from_ms: i64) -> Cursor {
        let mut cursor = self.cursor();
        if from_ms <= cursor.passed_ms {
            cursor = Cursor { offset: ITEMS, passed: 0, passed_ms: self.origin_ms() };
        }
        let mut reader = self.read(cursor.offset, cursor.passed_ms);
        while let Some(moment) = reader.next()
            && moment.at_ms < from_ms
        {
            let passed = cursor.passed + moment.hits;
            cursor = Cursor { offset: reader.offset, passed, passed_ms: moment.at_ms };
        }
        cursor
    }

    /// Where the moments end.
    #[inline]
    fn end(self) -> usize {
        let mut newest = self.read(two(self.bytes, field::LAST), 0);
        newest.next();
        newest.offset
    }

    /// Panics when the moments are out of order or a total is wrong.
    pub(super) fn check_consistency(self) {
        let moments: Vec<Moment> = self.moments().collect();
        assert!(moments.is_sorted_by(|a, b| a.at_ms < b.at_ms), "moments are out of order");
        assert_eq!(moments.len(), self.len(), "the count of moments");
        assert!(moments.len() <= MAX_MOMENTS && moments.iter().all(|moment| moment.hits > 0));
        assert_eq!(self.total(), moments.iter().map(|moment| moment.hits).sum(), "the total");
        let Some(newest) = moments.last() else { return };
        assert_eq!(newest.at_ms, self.newest_ms(), "the newest moment");
        let cursor = self.cursor();
        let passed = moments.iter().filter(|moment| moment.at_ms <= cursor.passed_ms);
        assert_eq!(cursor.passed, passed.map(|moment| moment.hits).sum(), "the hits before the cursor");
        assert!(self.bytes[self.end()..].iter().all(|&byte| byte == 0), "bytes behind the newest");
    }
}

impl Head {
    /// The bytes of the list when each moment takes one.
    #[inline]
    pub(super) fn least_bytes(self) -> usize {
        ITEMS + usize::from(self.count_less_one)
    }

    #[inline]
    pub(super) fn newest_ms(self) -> i64 {
        self.newest.get()
    }
}

impl ListMut<'_> {
    #[inline]
    pub(super) fn shared(&self) -> List<'_> {
        List { head: self.head, bytes: self.bytes }
    }

    /// Whether hits at `at_ms` find a place: a moment more, or one that is there.
    #[inline]
    pub(super) fn has_room(&self, at_ms: i64, hits: u64) -> bool {
        let list = self.shared();
        list.total() + hits <= MAX_TOTAL && (list.len() < MAX_MOMENTS || list.contains(at_ms))
    }

    /// Adds hits; there is room for them.
    #[inline]
    pub(super) fn add(&mut self, moment: Moment) {
        let newest_ms = self.head.newest_ms();
        if self.bytes.is_empty() {
            self.start(moment);
        } else if moment.at_ms > newest_ms {
            self.append(moment, newest_ms, self.shared().end());
        } else if moment.at_ms == newest_ms {
            self.raise_newest(moment.hits);
        } else {
            self.insert(moment);
        }
    }

    /// Adds hits that are not before the newest, and gives those from `from_ms` on, of a window that ends
    /// behind them; `None`, and nothing changes, when it is not as simple as that.
    #[inline]
    pub(super) fn add_and_sum(&mut self, moment: Moment, from_ms: i64) -> Option<u64> {
        let list = self.shared();
        let newest_ms = list.newest_ms();
        let has_room = moment.at_ms == newest_ms || (moment.at_ms > newest_ms && list.len() < MAX_MOMENTS);
        if list.is_empty() || !has_room || moment.hits > MAX_TOTAL - list.total() {
            return None;
        }
        self.add(moment);
        self.advance(from_ms);
        let list = self.shared();
        let cursor = list.cursor();
        let passed = if cursor.passed_ms < from_ms { cursor.passed } else { list.seek(from_ms).passed };
        Some(list.total() - passed)
    }

    fn start(&mut self, moment: Moment) {
        self.reserve(ITEMS + FIRST_ITEMS);
        let origin_ms = moment.at_ms - 1;
        // A millisecond later: the time of the moment itself.
        put_six(self.bytes, field::ORIGIN_MS, moment.at_ms.cast_unsigned());
        self.set_cursor(Cursor { offset: ITEMS, passed: 0, passed_ms: origin_ms });
        // Wraps to 0 as the moment is appended: one.
        self.head.count_less_one = u8::MAX;
        self.append(moment, origin_ms, ITEMS);
    }

    #[inline]
    fn append(&mut self, moment: Moment, before_ms: i64, end: usize) {
        self.write(end, moment, before_ms);
        let total = six(self.bytes, field::TOTAL) + moment.hits;
        put_six(self.bytes, field::TOTAL, total);
        put_two(self.bytes, field::LAST, end);
        self.head.newest = PackedTime::pack(moment.at_ms);
        self.head.count_less_one = self.head.count_less_one.wrapping_add(1);
    }

    fn raise_newest(&mut self, hits: u64) {
        let last = two(self.bytes, field::LAST);
        let newest_ms = self.head.newest_ms();
        // The gap stays: read from time 0 it is the time that is read.
        let newest = self.shared().read(last, 0).next().expect("the newest moment is there");
        self.write(last, Moment { at_ms: newest_ms, hits: newest.hits + hits }, newest_ms - newest.at_ms);
        let total = six(self.bytes, field::TOTAL) + hits;
        put_six(self.bytes, field::TOTAL, total);
        let cursor = self.shared().cursor();
        if cursor.offset > last {
            // The cursor has passed the newest: its hits are before the cursor too.
            let offset = self.shared().end();
            self.set_cursor(Cursor { offset, passed: cursor.passed + hits, ..cursor });
        }
    }

    /// Writes a moment at `offset`: at the end, or over the newest.
    #[inline]
    fn write(&mut self, offset: usize, moment: Moment, before_ms: i64) {
        let several = moment.hits > 1;
        let gap = Number::new(Gap::new(moment.at_ms - before_ms, several).0);
        self.reserve(offset + gap.len);
        self.put(offset, gap);
        if several {
            let hits = Number::new(moment.hits);
            self.reserve(offset + gap.len + hits.len);
            self.put(offset + gap.len, hits);
        }
    }

    #[inline]
    fn put(&mut self, offset: usize, number: Number) {
        let bytes = number.word.to_le_bytes();
        if let Some(room) = self.bytes.get_mut(offset..offset + 8) {
            // Behind the newest all is zero, or to be written next.
            room.copy_from_slice(&bytes);
        } else {
            self.bytes[offset..offset + number.len].copy_from_slice(&bytes[..number.len]);
        }
    }

    fn set_cursor(&mut self, cursor: Cursor) {
        put_six(self.bytes, field::PASSED, cursor.passed);
        put_six(self.bytes, field::PASSED_MS, (cursor.passed_ms + 1).cast_unsigned());
        put_two(self.bytes, field::CURSOR, cursor.offset);
    }

    /// Makes room for `len` bytes in all.
    #[inline]
    fn reserve(&mut self, len: usize) {
        if len > self.bytes.len() {
            self.grow(len);
        }
    }

    /// Makes room for `len` bytes and an eighth more, at least [`LEAST_MORE`], or for as many moments as there may yet be, up to
    /// what the allocator gives anyway.
    #[cold]
    fn grow(&mut self, len: usize) {
        let count = self.shared().len();
        let each = len.saturating_sub(ITEMS).div_ceil(count.max(1));
        let more = (len / 8).max(LEAST_MORE).min((MAX_MOMENTS - count) * each);
        let len = filled(THIN_HEADER_BYTES + len + more) - THIN_HEADER_BYTES;
        self.bytes.reserve_exact(len - self.bytes.len());
        self.bytes.resize(len, 0);
    }

    /// Adds hits earlier than the newest.
    #[cold]
    fn insert(&mut self, moment: Moment) {
        let mut moments: Vec<Moment> = self.shared().moments().collect();
        match moments.binary_search_by_key(&moment.at_ms, |held| held.at_ms) {
            Ok(place) => moments[place].hits += moment.hits,
            Err(place) => moments.insert(place, moment),
        }
        self.rebuild(moments.into_iter());
    }

    /// Builds the list anew, in the memory it needs.
    pub(super) fn rebuild(&mut self, moments: impl Iterator<Item = Moment>) {
        *self.bytes = ThinVec::new();
        *self.head = Head::default();
        for moment in moments {
            self.add(moment);
        }
    }

    /// Takes out the oldest moment.
    pub(super) fn pop_oldest(&mut self) -> Option<Moment> {
        let mut reader = self.shared().moments();
        let oldest = reader.next()?;
        let first_end = reader.offset;
        if self.shared().len() == 1 {
            *self.bytes = ThinVec::new();
            return Some(oldest);
        }
        let len = first_end - ITEMS;
        let (end, cursor) = (self.shared().end(), self.shared().cursor());
        let (last, total) = (two(self.bytes, field::LAST), six(self.bytes, field::TOTAL));
        self.bytes.copy_within(first_end..end, ITEMS);
        self.bytes[end - len..end].fill(0);
        put_six(self.bytes, field::ORIGIN_MS, (oldest.at_ms + 1).cast_unsigned());
        put_six(self.bytes, field::TOTAL, total - oldest.hits);
        put_two(self.bytes, field::LAST, last - len);
        self.set_cursor(if cursor.offset > ITEMS {
            Cursor { offset: cursor.offset - len, passed: cursor.passed - oldest.hits, ..cursor }
        } else {
            Cursor { passed_ms: oldest.at_ms, ..cursor }
        });
        self.head.count_less_one -= 1;
        Some(oldest)
    }

    /// Moves the cursor to the first moment from `from_ms` on, unless it is past it.
    #[inline]
    pub(super) fn advance(&mut self, from_ms: i64) {
        let list = self.shared();
        if list.is_empty() {
            return;
        }
        let cursor = list.cursor();
        if from_ms > cursor.passed_ms {
            let moved = list.seek(from_ms);
            if moved != cursor {
                self.set_cursor(moved);
            }
        }
    }

    /// Drops moments before `from_ms`.
    pub(super) fn drop_before(&mut self, from_ms: i64) {
        if self.shared().oldest_ms().is_some_and(|oldest_ms| oldest_ms < from_ms) {
            let kept: Vec<Moment> = self.shared().moments().filter(|held| held.at_ms >= from_ms).collect();
            self.rebuild(kept.into_iter());
        }
    }
}

/// Bytes a list takes.
pub(super) fn heap_bytes(bytes: &ThinVec<u8>) -> usize {
    match bytes.capacity() {
        0 => 0,
        capacity => allocated(THIN_HEADER_BYTES + capacity),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A list of hits this long apart.
    fn list(gaps_ms: &[i64]) -> (Head, ThinVec<u8>, Vec<Moment>) {
        let (mut head, mut bytes) = (Head::default(), ThinVec::new());
        let mut at_ms = 1_700_000_000_123;
        let mut moments = Vec::new();
        for (index, gap_ms) in (1..).zip(gaps_ms) {
            at_ms += gap_ms;
            moments.push(Moment { at_ms, hits: index });
            ListMut { head: &mut head, bytes: &mut bytes }.add(Moment { at_ms, hits: index });
        }
        (head, bytes, moments)
    }

    #[test]
    fn whole_seconds_take_a_byte_or_two() {
        for (gap_ms, len) in [
            (1, 1),
            (7, 1),
            (8, 2),
            (999, 2),
            (1_000, 1),
            (1_001, 2),
            (7_000, 1),
            (8_000, 2),
            (2_047_000, 2),
            (86_400_000, 3),
            (86_400_001, 4),
        ] {
            let (head, bytes, moments) = list(&[1, gap_ms, 1]);
            let list = List { head: &head, bytes: &bytes };
            list.check_consistency();
            assert_eq!(list.moments().collect::<Vec<_>>(), moments);
            // Beside the middle gap: two gaps and two counts of a byte each.
            assert_eq!(list.end() - ITEMS, len + 4, "{gap_ms}");
        }
    }

    #[test]
    fn a_list_that_is_nearly_full_makes_room_for_no_more_than_may_come() {
        let (head, bytes, _) = list(&[60_000; MAX_MOMENTS]);
        let list = List { head: &head, bytes: &bytes };
        assert_eq!(list.len(), MAX_MOMENTS);
        assert!(bytes.len() < list.end() + 32, "{} of {} bytes", list.end(), bytes.len());
    }
}
