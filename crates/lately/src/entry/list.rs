//! A sorted list of moments on the heap: the form of a key with more hits than fit beside it and at
//! most [`MAX_MOMENTS`] distinct milliseconds.
//!
//! One allocation holds a header and the moments as bytes. A cursor in the header stands at the first
//! moment of the window that was asked for last, with the hits before it: so hits and reads of the
//! default window look at no more than what has left the window since.

use thin_vec::ThinVec;

use super::moment::{Item, Moment, PackedTime, Reader};
use crate::allocation::{allocated, filled};
use crate::limits::MAX_MOMENTS;

/// What `ThinVec` keeps before the bytes: its length and capacity.
const THIN_HEADER_BYTES: usize = 2 * size_of::<usize>();
/// Totals have six bytes.
pub(super) const MAX_TOTAL: u64 = (1 << 48) - 1;

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

/// A list that changes.
pub(super) struct ListMut<'a> {
    pub(super) head: &'a mut Head,
    pub(super) bytes: &'a mut ThinVec<u8>,
}

/// The start of a list's bytes.
#[derive(Clone, Copy)]
struct Header {
    total: u64,
    /// Hits of the moments before the cursor.
    passed: u64,
    /// Time of the moment before the cursor; before the first moment the origin.
    passed_ms: i64,
    cursor: usize,
    /// What the gap of the first moment counts from, at least a millisecond before it.
    origin_ms: i64,
    /// Where the newest moment starts.
    last: usize,
}

/// Bytes of a header.
const ITEMS: usize = 28;

impl Header {
    const EMPTY: Header =
        Header { total: 0, passed: 0, passed_ms: 0, cursor: ITEMS, origin_ms: 0, last: ITEMS };

    #[inline]
    fn read(bytes: &[u8]) -> Header {
        let Some(bytes) = bytes.first_chunk::<ITEMS>() else { return Header::EMPTY };
        let word = |at: usize| {
            let mut word = [0; 8];
            word[..6].copy_from_slice(&bytes[at..at + 6]);
            i64::from_le_bytes(word)
        };
        let short = |at: usize| usize::from(u16::from_le_bytes([bytes[at], bytes[at + 1]]));
        Header {
            total: word(0).cast_unsigned(),
            passed: word(6).cast_unsigned(),
            // Times before the first are kept a millisecond later: time starts at 0.
            passed_ms: word(12) - 1,
            origin_ms: word(18) - 1,
            cursor: short(24),
            last: short(26),
        }
    }

    #[inline]
    fn write(self, bytes: &mut [u8]) {
        let bytes = bytes.first_chunk_mut::<ITEMS>().expect("a list with moments has a header");
        let mut put = |at: usize, word: i64| bytes[at..at + 6].copy_from_slice(&word.to_le_bytes()[..6]);
        put(0, self.total.cast_signed());
        put(6, self.passed.cast_signed());
        put(12, self.passed_ms + 1);
        put(18, self.origin_ms + 1);
        let short = |place: usize| u16::try_from(place).expect("256 moments fit 4 KiB").to_le_bytes();
        bytes[24..26].copy_from_slice(&short(self.cursor));
        bytes[26..28].copy_from_slice(&short(self.last));
    }
}

impl<'a> List<'a> {
    pub(super) fn is_empty(self) -> bool {
        self.bytes.len() <= ITEMS
    }

    pub(super) fn len(self) -> usize {
        if self.is_empty() { 0 } else { usize::from(self.head.count_less_one) + 1 }
    }

    pub(super) fn newest_ms(self) -> i64 {
        self.head.newest_ms()
    }

    pub(super) fn total(self) -> u64 {
        Header::read(self.bytes).total
    }

    /// The moments, oldest first.
    pub(super) fn moments(self) -> Reader<'a> {
        let offset = ITEMS.min(self.bytes.len());
        Reader { bytes: self.bytes, offset, before_ms: Header::read(self.bytes).origin_ms }
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
        let until = if to_ms > self.newest_ms() { header.total } else { self.before(&header, to_ms).passed };
        until - self.before(&header, from_ms).passed
    }

    /// The header with its cursor at the first moment from `from_ms` on.
    #[inline]
    fn before(self, header: &Header, from_ms: i64) -> Header {
        let Header { mut passed, mut passed_ms, mut cursor, origin_ms, .. } = *header;
        if from_ms <= passed_ms {
            (passed, passed_ms, cursor) = (0, origin_ms, ITEMS);
        }
        let mut reader = Reader { bytes: self.bytes, offset: cursor, before_ms: passed_ms };
        while let Some(moment) = reader.next()
            && moment.at_ms < from_ms
        {
            passed += moment.hits;
            (passed_ms, cursor) = (moment.at_ms, reader.offset);
        }
        Header { passed, passed_ms, cursor, ..*header }
    }

    /// Panics when the moments are out of order or a total is wrong.
    pub(super) fn check_consistency(self) {
        let header = Header::read(self.bytes);
        let moments: Vec<Moment> = self.moments().collect();
        assert!(moments.is_sorted_by(|a, b| a.at_ms < b.at_ms), "moments are out of order");
        assert_eq!(moments.len(), self.len(), "the count of moments");
        assert!(moments.len() <= MAX_MOMENTS && moments.iter().all(|moment| moment.hits > 0));
        assert_eq!(header.total, moments.iter().map(|moment| moment.hits).sum(), "the total");
        if let Some(newest) = moments.last() {
            assert_eq!(newest.at_ms, self.newest_ms(), "the newest moment");
            let passed = moments.iter().filter(|moment| moment.at_ms <= header.passed_ms);
            assert_eq!(header.passed, passed.map(|moment| moment.hits).sum(), "the hits before the cursor");
        }
    }
}

impl Head {
    pub(super) fn newest_ms(self) -> i64 {
        self.newest.get()
    }
}

impl<'a> ListMut<'a> {
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
            self.append(moment, newest_ms);
        } else if moment.at_ms == newest_ms {
            self.raise_newest(moment.hits);
        } else {
            self.insert(moment);
        }
    }

    fn start(&mut self, moment: Moment) {
        self.reserve(ITEMS);
        self.bytes.extend_from_slice(&[0; ITEMS]);
        let origin_ms = moment.at_ms - 1;
        Header { origin_ms, passed_ms: origin_ms, ..Header::EMPTY }.write(self.bytes);
        // Wraps to 0 as the moment is appended: one.
        self.head.count_less_one = u8::MAX;
        self.append(moment, origin_ms);
    }

    #[inline]
    fn append(&mut self, moment: Moment, before_ms: i64) {
        let mut header = Header::read(self.bytes);
        header.total += moment.hits;
        header.last = self.bytes.len();
        header.write(self.bytes);
        self.push(&Item::new(moment, before_ms));
        self.head.newest = PackedTime::pack(moment.at_ms);
        self.head.count_less_one = self.head.count_less_one.wrapping_add(1);
    }

    fn raise_newest(&mut self, hits: u64) {
        let mut header = Header::read(self.bytes);
        let newest_ms = self.head.newest_ms();
        // The gap stays; the moment before is as far before the newest as it says.
        let read = Reader { bytes: self.bytes, offset: header.last, before_ms: 0 };
        let newest = { read }.next().expect("the newest moment is there");
        let before_ms = newest_ms - newest.at_ms;
        // Had the cursor passed the newest, its hits are before the cursor too.
        if header.cursor > header.last {
            header.passed += hits;
        }
        header.total += hits;
        let passed_all = header.cursor > header.last;
        self.bytes.truncate(header.last);
        self.push(&Item::new(Moment { at_ms: newest_ms, hits: newest.hits + hits }, before_ms));
        if passed_all {
            header.cursor = self.bytes.len();
        }
        header.write(self.bytes);
    }

    fn push(&mut self, item: &Item) {
        let (gap, hits) = item.pieces();
        self.reserve(gap.len() + hits.len());
        self.bytes.extend_from_slice(gap);
        self.bytes.extend_from_slice(hits);
    }

    /// Makes room for `more` bytes, and for a sixteenth more, up to what the allocator gives anyway.
    fn reserve(&mut self, more: usize) {
        let len = self.bytes.len();
        if len + more > self.bytes.capacity() {
            let wanted = filled(THIN_HEADER_BYTES + len + more + len / 16) - THIN_HEADER_BYTES;
            self.bytes.reserve_exact(wanted - len);
        }
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
        let end = reader.offset;
        if self.shared().len() == 1 {
            *self.bytes = ThinVec::new();
            return Some(oldest);
        }
        let len = end - ITEMS;
        let mut header = Header::read(self.bytes);
        self.bytes.drain(ITEMS..end);
        header.total -= oldest.hits;
        header.origin_ms = oldest.at_ms;
        header.last -= len;
        if header.cursor > ITEMS {
            header.cursor -= len;
            header.passed -= oldest.hits;
        } else {
            header.passed_ms = oldest.at_ms;
        }
        header.write(self.bytes);
        self.head.count_less_one -= 1;
        Some(oldest)
    }

    /// Moves the cursor to the first moment from `from_ms` on, unless it is past it.
    #[inline]
    pub(super) fn advance(&mut self, from_ms: i64) {
        if self.bytes.is_empty() {
            return;
        }
        let header = Header::read(self.bytes);
        if from_ms > header.passed_ms {
            let moved = self.shared().before(&header, from_ms);
            if moved.cursor != header.cursor {
                moved.write(self.bytes);
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
