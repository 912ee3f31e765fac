//! The moments of a list as bytes, as a checkpoint stores them.

use std::iter::once;
use std::mem;

use super::super::moment::Moment;
use super::bytes::{Cursor, Gap, Header, ITEMS, set_origin};
use super::{Buffer, Head, ListMut, MOST_MOMENTS};
use crate::limits::MAX_TOTAL;
use crate::number::Number;
use crate::time::Timestamp;

/// More moments than fit inline.
pub(crate) const FEW: usize = 11;
/// The bytes of that many moments: each has at most two numbers.
const ROOM: usize = FEW * 16;

/// A few moments as bytes.
pub(in crate::entry) struct Items {
    bytes: [u8; ROOM],
    len: usize,
}

impl Default for Items {
    fn default() -> Items {
        Items { bytes: [0; ROOM], len: 0 }
    }
}

impl Items {
    /// Encodes at most [`FEW`] moments, oldest first. Returns the origin of their times as well. `None` if
    /// there are none.
    pub(in crate::entry) fn of(moments: impl Iterator<Item = Moment>) -> Option<(i64, Items)> {
        let (mut items, mut moments) = (Items::default(), moments.peekable());
        let origin_ms = moments.peek()?.at_ms - 1;
        let mut before_ms = origin_ms;
        for moment in moments {
            items.push(moment, before_ms);
            before_ms = moment.at_ms;
        }
        Some((origin_ms, items))
    }

    pub(in crate::entry) fn push(&mut self, moment: Moment, before_ms: i64) {
        let several = moment.hits > 1;
        self.number(Gap::number(moment.at_ms - before_ms, several));
        if several {
            self.number(Number::new(moment.hits));
        }
    }

    fn number(&mut self, Number { word, len }: Number) {
        self.bytes[self.len..self.len + 8].copy_from_slice(&word.to_le_bytes());
        self.len += len;
    }

    pub(in crate::entry) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// Decodes moments from untrusted bytes; `take` decodes a gap. `None` if they are not valid moments of one
/// list.
pub(in crate::entry) fn read_items(
    mut items: &[u8],
    origin_ms: i64,
    take: impl Fn(&mut &[u8]) -> Option<Gap>,
) -> Option<Vec<Moment>> {
    let mut moments = Vec::with_capacity(items.len().min(MOST_MOMENTS));
    let (mut before_ms, mut total) = (origin_ms, 0_u64);
    while !items.is_empty() {
        let gap = take(&mut items)?;
        let hits = if gap.has_hits { Number::take(&mut items)? } else { 1 };
        let at_ms = before_ms.checked_add(gap.ms)?;
        total = total.checked_add(hits).filter(|&total| total <= MAX_TOTAL)?;
        let is_new = at_ms > before_ms && at_ms <= Timestamp::MAX.as_millis();
        if !is_new || hits == 0 || total > super::MAX_TOTAL || moments.len() == MOST_MOMENTS {
            return None;
        }
        moments.push(Moment { at_ms, hits });
        before_ms = at_ms;
    }
    (!moments.is_empty()).then_some(moments)
}

/// A list of at most [`FEW`] moments, oldest first.
pub(in crate::entry) fn list_of_few(mut moments: impl Iterator<Item = Moment>) -> (Head, Buffer) {
    let Some(first) = moments.next() else { return (Head::default(), Buffer::new()) };
    let mut known = Known::of(first);
    let moments = once(first).chain(moments.inspect(|&moment| known.add(moment)));
    let (origin_ms, items) = Items::of(moments).expect("there is one");
    list_of_known(items.bytes(), origin_ms, &known)
}

/// A list of moments, oldest first, at most [`MOST_MOMENTS`].
pub(in crate::entry) fn list_of_any(moments: impl Iterator<Item = Moment>) -> (Head, Buffer) {
    let (mut head, mut bytes) = (Head::default(), Buffer::new());
    ListMut { head: &mut head, bytes: &mut bytes }.rebuild(moments);
    (head, bytes)
}

/// A list of moments, oldest first and at least one, that were decoded from these bytes.
pub(in crate::entry) fn list_of(
    items: &[u8],
    origin_ms: i64,
    mut moments: impl Iterator<Item = Moment>,
) -> (Head, Buffer) {
    let mut known = Known::of(moments.next().expect("there is one"));
    moments.for_each(|moment| known.add(moment));
    list_of_known(items, origin_ms, &known)
}

/// A summary of moments, for a list's header.
struct Known {
    first: Moment,
    newest: Moment,
    /// The moment before the newest.
    before: Option<Moment>,
    total: u64,
    count: usize,
}

impl Known {
    fn of(first: Moment) -> Known {
        Known { first, newest: first, before: None, total: first.hits, count: 1 }
    }

    fn add(&mut self, newest: Moment) {
        self.before = Some(mem::replace(&mut self.newest, newest));
        self.total += newest.hits;
        self.count += 1;
    }
}

/// A list of moments that are encoded in these bytes.
fn list_of_known(items: &[u8], origin_ms: i64, known: &Known) -> (Head, Buffer) {
    let (mut bytes, end) = (Buffer::new(), ITEMS + items.len());
    ListMut { head: &mut Head::default(), bytes: &mut bytes }.reserve(end);
    bytes[ITEMS..end].copy_from_slice(items);
    set_origin(&mut bytes, origin_ms);
    let &Known { first, newest, before, total, count } = known;
    let mut last = Items::default();
    last.push(newest, before.map_or(origin_ms, |before| before.at_ms));
    let newest_len = last.len;
    let cursor = Cursor { offset: ITEMS, passed: 0, passed_ms: origin_ms, gap_ms: u32::MAX };
    let cursor = cursor.before(first.at_ms);
    let header = Header { total, end, count, newest_len, keeps_moments: false, cursor };
    header.write(&mut bytes);
    (Head::new(newest.at_ms, &header), bytes)
}
