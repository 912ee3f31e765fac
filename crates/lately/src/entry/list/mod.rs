//! A sorted list of moments on the heap: the form of a key with too many hits for the entry itself, and at
//! most [`MAX_MOMENTS`] distinct milliseconds and a few more. If limits need the list, all those of the last second.
//!
//! One allocation holds a header and the moments as bytes. A cursor in the header points to the first moment
//! of the last window that was read, and has the number of hits before it and its time. So hits and reads of
//! the default window read only the header and the moments that have left the window since.

mod buffer;
mod bytes;
mod head;
mod items;

use std::ops::Range;

use super::fetched::Fetched;
use super::moment::Moment;
use crate::limits::MAX_MOMENTS;
use crate::machine::prefetch;
use crate::number::Number;
use crate::panes::common;

pub(crate) use buffer::Buffer;
use bytes::{Cursor, Header, ITEMS, SIX_BYTES, add_one, cursor_offset, origin_ms, put, set_origin};
pub(super) use bytes::{Gap, Reader};
pub(crate) use head::Head;
pub(super) use head::prefetch_list;
pub(crate) use items::FEW;
pub(super) use items::{Items, list_of, list_of_any, list_of_few, read_items};

/// The number of moments that leave a full list together, if they are dense. They move to other memory.
const LEAVE_TOGETHER: usize = 8;
/// The longest list whose moments are not all of one second. After moments have left and one was added, [`MAX_MOMENTS`] remain.
const MANY_MOMENTS: usize = MAX_MOMENTS + LEAVE_TOGETHER - 1;
/// The longest list.
pub(super) const MOST_MOMENTS: usize = 1_024;
/// A list that limits need may have all moments of this time, so that a limit of a second is exact at any rate.
const SECOND_MS: i64 = 1_000;
/// They leave together once they reach this much further back.
const LEAVE_TOGETHER_MS: i64 = 20;
// With the newest of those that are older than a second.
const _: () = assert!((SECOND_MS + LEAVE_TOGETHER_MS).cast_unsigned() < MOST_MOMENTS as u64);
/// Totals are stored in six bytes.
pub(super) const MAX_TOTAL: u64 = SIX_BYTES;

/// A list.
#[derive(Clone, Copy)]
pub(super) struct List<'a> {
    pub(super) head: &'a Head,
    pub(super) bytes: &'a [u8],
}

/// A list for changes.
pub(super) struct ListMut<'a> {
    pub(super) head: &'a mut Head,
    pub(super) bytes: &'a mut Buffer,
}

/// The bytes for moments in a new list, besides what each growth adds.
const FIRST_ITEMS: usize = 12;

/// Moments with a smaller average gap than `DENSE_GAP_MS` are dense. Moments at least `SPARSE_GAP_MS` apart are
/// sparse.
const DENSE_GAP_MS: i64 = 10_000;
const SPARSE_GAP_MS: i64 = 600_000;

/// Moments further apart than this leave a full list one by one, because room for more would stay unused for long.
const LONE_GAP_MS: i64 = 30_000;

/// The bytes by which a list of `len` bytes grows, by the average gap of its moments. If they are dense, more will
/// follow soon, and growing costs as much as several hits. If they are sparse, extra room stays unused for long.
fn more_room(len: usize, gap_ms: Option<i64>) -> usize {
    match gap_ms {
        Some(..DENSE_GAP_MS) => (len / 8).max(40),
        None | Some(..SPARSE_GAP_MS) => (len / 8).max(24),
        Some(_) => 0,
    }
}

impl<'a> List<'a> {
    pub(super) fn is_empty(self) -> bool {
        self.bytes.is_empty()
    }

    pub(super) fn len(self) -> usize {
        if self.is_empty() { 0 } else { Header::read(self.bytes).count }
    }

    pub(super) fn newest_ms(self) -> i64 {
        self.head.newest_ms()
    }

    /// The average gap of the moments, if there are any.
    fn gap_ms(self) -> Option<i64> {
        let count = i64::try_from(self.len()).ok().filter(|&count| count > 0)?;
        Some((self.newest_ms() - origin_ms(self.bytes)) / count)
    }

    /// Whether there is no room for a moment at this time.
    #[inline]
    pub(super) fn is_full_for(self, at_ms: i64) -> bool {
        let len = self.len();
        len >= MAX_MOMENTS && len >= self.most() && !(self.keeps_moments() && self.is_of_a_second(at_ms))
    }

    /// The most moments that the list should have, if they are not of one second.
    fn most(self) -> usize {
        match self.gap_ms() {
            Some(..LONE_GAP_MS) => MANY_MOMENTS,
            _ => MAX_MOMENTS,
        }
    }

    /// Whether all moments but the oldest one, and this one, are of about one second.
    fn is_of_a_second(self, at_ms: i64) -> bool {
        let second = self.moments().nth(1).map_or(at_ms, |moment| moment.at_ms);
        self.newest_ms().max(at_ms) - second.min(at_ms) < SECOND_MS + LEAVE_TOGETHER_MS
    }

    /// Whether limits need the exact moments.
    pub(super) fn keeps_moments(self) -> bool {
        !self.is_empty() && Header::read(self.bytes).keeps_moments
    }

    pub(super) fn total(self) -> u64 {
        if self.is_empty() { 0 } else { Header::read(self.bytes).total }
    }

    /// A cursor at the first moment, before it was read.
    fn start(self) -> Cursor {
        Cursor { offset: ITEMS, passed: 0, passed_ms: origin_ms(self.bytes), gap_ms: 0 }
    }

    /// The moments, oldest first.
    pub(super) fn moments(self) -> Reader<'a> {
        if self.is_empty() {
            return Reader { bytes: self.bytes, offset: 0, end: 0, before_ms: 0 };
        }
        self.read(self.start(), Header::read(self.bytes).end)
    }

    /// The moments from `from_ms` on, oldest first.
    pub(super) fn moments_from(self, from_ms: i64) -> Reader<'a> {
        if self.is_empty() {
            return self.moments();
        }
        let header = Header::read(self.bytes);
        self.read(self.seek(from_ms, &header), header.end)
    }

    fn read(self, from: Cursor, end: usize) -> Reader<'a> {
        Reader { bytes: self.bytes, offset: from.offset, end, before_ms: from.passed_ms }
    }

    /// The moments as bytes, and the origin of their times.
    pub(super) fn items(self) -> Option<(i64, &'a [u8])> {
        if self.is_empty() {
            return None;
        }
        Some((origin_ms(self.bytes), &self.bytes[ITEMS..Header::read(self.bytes).end]))
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
        let header = Header::read(self.bytes);
        let until = if to_ms > self.newest_ms() { header.total } else { self.seek(to_ms, &header).passed };
        until - self.seek(from_ms, &header).passed
    }

    /// The first moment from `from_ms` on. Searches from the cursor, if that is not past it.
    #[inline]
    fn seek(self, from_ms: i64, header: &Header) -> Cursor {
        if header.cursor.is_at(from_ms) { header.cursor } else { self.search(from_ms, header) }
    }

    #[inline(never)]
    fn search(self, from_ms: i64, header: &Header) -> Cursor {
        let is_ahead = from_ms > header.cursor.passed_ms;
        let mut cursor = if is_ahead { header.cursor } else { self.start() };
        let mut reader = self.read(cursor, header.end);
        loop {
            match reader.next() {
                Some(Moment { at_ms, hits }) if at_ms < from_ms => {
                    let passed = cursor.passed + hits;
                    cursor = Cursor { offset: reader.offset, passed, passed_ms: at_ms, gap_ms: u32::MAX };
                }
                Some(Moment { at_ms, .. }) => return cursor.before(at_ms),
                None => return Cursor { gap_ms: u32::MAX, ..cursor },
            }
        }
    }

    /// See [`super::Entry::prefetch`].
    #[inline]
    pub(super) fn prefetch(self, level: usize) -> Fetched {
        if level == 0 {
            prefetch_list(self.bytes.as_ptr(), self.head.tail_steps());
            return if self.head.is_far() { Fetched::First } else { Fetched::All };
        }
        if let Some(offset) = cursor_offset(self.bytes) {
            prefetch(self.bytes.as_ptr().wrapping_add(offset));
        }
        Fetched::All
    }

    /// Panics if the moments are out of order or a total is wrong.
    pub(super) fn check_consistency(self) {
        let moments: Vec<Moment> = self.moments().collect();
        assert!(moments.is_sorted_by(|a, b| a.at_ms < b.at_ms), "moments are out of order");
        assert_eq!(moments.len(), self.len(), "the count of moments");
        assert!(moments.len() <= MOST_MOMENTS && moments.iter().all(|moment| moment.hits > 0));
        assert_eq!(self.total(), moments.iter().map(|moment| moment.hits).sum(), "the total");
        let Some(newest) = moments.last() else { return };
        assert_eq!(newest.at_ms, self.newest_ms(), "the newest moment");
        let header = Header::read(self.bytes);
        assert_eq!(*self.head, Head::new(newest.at_ms, &header), "what is known without a look");
        let mut newest =
            Reader { offset: header.end - header.newest_len, ..self.read(self.start(), header.end) };
        assert!(newest.next().is_some() && newest.offset == header.end, "the bytes of the newest");
        assert_eq!(header.cursor, self.search(header.cursor.passed_ms + 1, &header), "the cursor");
        let passed = moments.iter().filter(|moment| moment.at_ms <= header.cursor.passed_ms);
        assert_eq!(header.cursor.passed, passed.map(|moment| moment.hits).sum(), "the hits before it");
    }
}

impl ListMut<'_> {
    #[inline]
    pub(super) fn shared(&self) -> List<'_> {
        List { head: self.head, bytes: self.bytes }
    }

    /// Whether there is room for hits at `at_ms`: as another moment, or in an existing one.
    #[inline]
    pub(super) fn has_room(&self, at_ms: i64, hits: u64) -> bool {
        let list = self.shared();
        list.total() + hits <= MAX_TOTAL && (!list.is_full_for(at_ms) || list.contains(at_ms))
    }

    /// Adds hits. There must be room for them.
    #[inline]
    pub(super) fn add(&mut self, moment: Moment) {
        let newest_ms = self.head.newest_ms();
        if self.bytes.is_empty() {
            self.start(moment);
        } else if moment.at_ms < newest_ms {
            self.insert(moment);
        } else {
            let header = Header::read(self.bytes);
            let header = if moment.at_ms > newest_ms {
                self.append(moment, newest_ms, header)
            } else {
                self.raise_newest(moment.hits, header)
            };
            header.write(self.bytes);
        }
    }

    /// Like `add_and_sum`, for the most frequent case: a single hit, with room for it.
    #[inline(always)]
    pub(super) fn add_in_place(&mut self, moment: Moment, from_ms: i64) -> Option<u64> {
        let gap_ms = moment.at_ms - self.head.newest_ms();
        if moment.hits != 1 || gap_ms < 0 {
            return None;
        }
        let (hits, end) = add_one(self.bytes, gap_ms, from_ms)?;
        *self.head = self.head.moved(moment.at_ms, end);
        Some(hits)
    }

    /// Adds hits that are not before the newest. Returns the hits from `from_ms` on, for a window that ends
    /// behind them. `None`, and no change, if more work is needed.
    #[inline(never)]
    pub(super) fn add_and_sum(&mut self, moment: Moment, from_ms: i64) -> Option<u64> {
        let newest_ms = self.head.newest_ms();
        if self.bytes.is_empty() || moment.at_ms < newest_ms {
            return None;
        }
        let header = Header::read(self.bytes);
        let may_be_full = header.count >= MAX_MOMENTS && moment.at_ms > newest_ms;
        let is_full = may_be_full && self.shared().is_full_for(moment.at_ms);
        if is_full || moment.hits > MAX_TOTAL - header.total {
            return None;
        }
        if moment.at_ms > newest_ms {
            let header = self.append(moment, newest_ms, header);
            Some(self.settle(header, from_ms))
        } else {
            Some(self.raise_and_sum(moment.hits, header, from_ms))
        }
    }

    #[inline(never)]
    fn raise_and_sum(&mut self, hits: u64, header: Header, from_ms: i64) -> u64 {
        let header = self.raise_newest(hits, header);
        self.settle(header, from_ms)
    }

    /// The hits from `from_ms` on. Moves the cursor there, and keeps the exact moments from now on. `None` if
    /// there are no moments.
    #[inline]
    pub(super) fn sum_and_keep(&mut self, from_ms: i64) -> Option<u64> {
        if self.bytes.is_empty() {
            return None;
        }
        let header = Header::read(self.bytes);
        if header.keeps_moments && header.cursor.is_at(from_ms) {
            return Some(header.total - header.cursor.passed);
        }
        Some(self.settle(Header { keeps_moments: true, ..header }, from_ms))
    }

    /// Writes the header with its cursor moved to the first moment from `from_ms` on, unless it is past that.
    /// Returns the hits from there on.
    #[inline]
    fn settle(&mut self, mut header: Header, from_ms: i64) -> u64 {
        let first = self.shared().seek(from_ms, &header);
        if from_ms > header.cursor.passed_ms {
            header.cursor = first;
        }
        self.write_header(header);
        header.total - first.passed
    }

    /// Writes the header in the list and its summary in `head`.
    #[inline]
    fn write_header(&mut self, header: Header) {
        header.write(self.bytes);
        *self.head = Head::new(self.head.newest_ms(), &header);
    }

    fn start(&mut self, moment: Moment) {
        self.reserve(ITEMS + FIRST_ITEMS);
        let passed_ms = moment.at_ms - 1;
        set_origin(self.bytes, passed_ms);
        let cursor = Cursor { offset: ITEMS, passed: 0, passed_ms, gap_ms: 1 };
        let header = self.append(
            moment,
            passed_ms,
            Header { total: 0, end: ITEMS, count: 0, newest_len: 0, keeps_moments: false, cursor },
        );
        header.write(self.bytes);
    }

    /// Adds a moment at the end. Takes the old header and returns the new one, without writing it.
    #[inline(always)]
    fn append(&mut self, moment: Moment, before_ms: i64, header: Header) -> Header {
        let Header { total, end, count, keeps_moments, mut cursor, .. } = header;
        let newest_len = self.write(end, moment, before_ms);
        if cursor.offset == end {
            cursor = cursor.before(moment.at_ms);
        }
        let (total, end, count) = (total + moment.hits, end + newest_len, count + 1);
        let header = Header { total, end, count, newest_len, keeps_moments, cursor };
        *self.head = Head::new(moment.at_ms, &header);
        header
    }

    fn raise_newest(&mut self, hits: u64, header: Header) -> Header {
        let Header { total, end, count, newest_len, keeps_moments, mut cursor } = header;
        let last = end - newest_len;
        let newest_ms = self.head.newest_ms();
        // Read with time 0 before it, its time is its gap, which stays.
        let newest = Reader { bytes: self.bytes, offset: last, end, before_ms: 0 }.next();
        let newest = newest.expect("the newest moment is there");
        let raised = Moment { at_ms: newest_ms, hits: newest.hits + hits };
        let newest_len = self.write(last, raised, newest_ms - newest.at_ms);
        if cursor.offset == end {
            // The cursor is behind the newest moment, so the new hits are before the cursor, too.
            cursor = Cursor { offset: last + newest_len, passed: cursor.passed + hits, ..cursor };
        }
        let (total, end) = (total + hits, last + newest_len);
        let header = Header { total, end, count, newest_len, keeps_moments, cursor };
        *self.head = Head::new(newest_ms, &header);
        header
    }

    /// Writes a moment at `offset`: at the end, or over the newest one. Returns its length in bytes.
    #[inline]
    fn write(&mut self, offset: usize, moment: Moment, before_ms: i64) -> usize {
        let several = moment.hits > 1;
        let gap = Gap::number(moment.at_ms - before_ms, several);
        self.reserve(offset + gap.len);
        put(self.bytes, offset, gap);
        if !several {
            return gap.len;
        }
        let hits = Number::new(moment.hits);
        self.reserve(offset + gap.len + hits.len);
        put(self.bytes, offset + gap.len, hits);
        gap.len + hits.len
    }

    fn reserve(&mut self, len: usize) {
        if len > self.bytes.len() {
            self.grow(len);
        }
    }

    /// Grows to `len` bytes and some more, or to the longest that the list can become.
    #[cold]
    fn grow(&mut self, len: usize) {
        let list = self.shared();
        let count = list.len();
        let each = len.saturating_sub(ITEMS).div_ceil(count.max(1));
        let is_of_a_second = list.keeps_moments() && count >= MAX_MOMENTS;
        let most = if is_of_a_second { MOST_MOMENTS } else { list.most() };
        let more = more_room(len, list.gap_ms()).min(most.saturating_sub(count) * each);
        self.bytes.grow(len + more);
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

    /// Removes the hits with these ranks, counted from the oldest, and returns them.
    pub(super) fn take(&mut self, ranks: &Range<u64>) -> Vec<Moment> {
        let (mut kept, mut taken, mut before) = (Vec::new(), Vec::new(), 0);
        for Moment { at_ms, hits } in self.shared().moments() {
            let gone = common(before..before + hits, ranks);
            before += hits;
            let parts = [(&mut taken, gone), (&mut kept, hits - gone)];
            let with_hits = parts.into_iter().filter(|&(_, hits)| hits > 0);
            with_hits.for_each(|(part, hits)| part.push(Moment { at_ms, hits }));
        }
        self.rebuild(kept.into_iter());
        taken
    }

    /// Rebuilds the list with just the memory that it needs.
    pub(super) fn rebuild(&mut self, moments: impl Iterator<Item = Moment>) {
        let keeps_moments = self.shared().keeps_moments();
        *self.bytes = Buffer::new();
        *self.head = Head::default();
        for moment in moments {
            self.add(moment);
        }
        if keeps_moments {
            self.keep_moments();
        }
    }

    /// From now on the moments are not turned into a ring, because limits need them.
    pub(super) fn keep_moments(&mut self) {
        if !self.bytes.is_empty() {
            Header { keeps_moments: true, ..Header::read(self.bytes) }.write(self.bytes);
        }
    }

    /// Removes the oldest moments of a list that is full for a moment at this time, so that [`MAX_MOMENTS`] remain after that one
    /// is added. If limits need the list, those of the last second before it stay, and one more.
    pub(super) fn take_oldest(&mut self, at_ms: i64, mut leave: impl FnMut(Moment)) {
        let list = self.shared();
        let mut leaving = list.len() + 1 - MAX_MOMENTS;
        if list.keeps_moments() {
            let last_ms = list.newest_ms().max(at_ms) - SECOND_MS;
            let older = list.moments().take(leaving + 1).filter(|moment| moment.at_ms <= last_ms).count();
            leaving = leaving.min(older.saturating_sub(1)).max(1);
        }
        let mut reader = self.shared().moments();
        let (mut hits, mut passed_ms) = (0, 0);
        for moment in reader.by_ref().take(leaving) {
            hits += moment.hits;
            passed_ms = moment.at_ms;
            leave(moment);
        }
        let first_end = reader.offset;
        let oldest = reader.next().expect("more are left than leave");
        let len = first_end - ITEMS;
        let Header { total, end, count, newest_len, keeps_moments, cursor } = Header::read(self.bytes);
        self.bytes.copy_within(first_end..end, ITEMS);
        set_origin(self.bytes, passed_ms);
        let cursor = if cursor.offset > first_end {
            Cursor { offset: cursor.offset - len, passed: cursor.passed - hits, ..cursor }
        } else {
            Cursor { offset: ITEMS, passed: 0, passed_ms, gap_ms: 0 }.before(oldest.at_ms)
        };
        let (total, end, count) = (total - hits, end - len, count - leaving);
        let header = Header { total, end, count, newest_len, keeps_moments, cursor };
        self.write_header(header);
    }

    /// Moves the cursor to the first moment from `from_ms` on, unless it is past it.
    #[inline]
    pub(super) fn advance(&mut self, from_ms: i64) {
        if self.bytes.is_empty() {
            return;
        }
        let header = Header::read(self.bytes);
        if from_ms > header.cursor.passed_ms && !header.cursor.is_at(from_ms) {
            let cursor = self.shared().search(from_ms, &header);
            self.write_header(Header { cursor, ..header });
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A list of hits with these gaps.
    fn list(gaps_ms: &[i64]) -> (Head, Buffer, Vec<Moment>) {
        let (mut head, mut bytes) = (Head::default(), Buffer::new());
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
            (150_000_001, 7),
        ] {
            let (head, bytes, moments) = list(&[1, gap_ms, 1]);
            let list = List { head: &head, bytes: &bytes };
            list.check_consistency();
            assert_eq!(list.moments().collect::<Vec<_>>(), moments);
            // Around the middle gap: two gaps and two counts of one byte each.
            assert_eq!(Header::read(&bytes).end - ITEMS, len + 4, "{gap_ms}");
        }
    }

    #[test]
    fn a_nearly_full_list_allocates_no_spare_room() {
        for (gap_ms, most) in [(60_000, MAX_MOMENTS), (LONE_GAP_MS - 1, MANY_MOMENTS)] {
            let (head, bytes, _) = list(&vec![gap_ms; most]);
            let list = List { head: &head, bytes: &bytes };
            assert!(list.is_full_for(list.newest_ms() + 1));
            let end = Header::read(&bytes).end;
            assert!(bytes.len() < end + 32, "{end} of {} bytes", bytes.len());
        }
    }
}
