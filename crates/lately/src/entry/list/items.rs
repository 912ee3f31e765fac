//! The moments of a list outside of one: bytes that a checkpoint has.

use thin_vec::ThinVec;

use super::super::inline::MAX_MOMENTS as MAX_FEW;
use super::super::moment::Moment;
use super::bytes::{Cursor, Gap, Header, ITEMS, set_origin};
use super::{Head, ListMut};
use crate::limits::{MAX_MOMENTS, MAX_TOTAL};
use crate::number::Number;
use crate::time::Timestamp;

/// Room for the moments of an entry that needs no list.
const ROOM: usize = 64;

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
    pub(in crate::entry) fn push(&mut self, moment: Moment, before_ms: i64) {
        let several = moment.hits > 1;
        self.number(Gap::new(moment.at_ms - before_ms, several).0);
        if several {
            self.number(moment.hits);
        }
    }

    fn number(&mut self, value: u64) {
        let Number { word, len } = Number::new(value);
        self.bytes[self.len..self.len + 8].copy_from_slice(&word.to_le_bytes());
        self.len += len;
    }

    pub(in crate::entry) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// The moments in bytes from anywhere; `None` when they are no moments of one list.
pub(in crate::entry) fn read_items(mut items: &[u8], origin_ms: i64) -> Option<Vec<Moment>> {
    let mut moments = Vec::with_capacity(items.len().min(MAX_MOMENTS));
    let (mut before_ms, mut total) = (origin_ms, 0_u64);
    while !items.is_empty() {
        let gap = Gap(Number::take(&mut items)?);
        let hits = if gap.has_hits() { Number::take(&mut items)? } else { 1 };
        let at_ms = before_ms.checked_add(gap.checked_ms()?)?;
        total = total.checked_add(hits).filter(|&total| total <= MAX_TOTAL)?;
        let is_new = at_ms > before_ms && at_ms <= Timestamp::MAX.as_millis();
        if !is_new || hits == 0 || total > super::MAX_TOTAL || moments.len() == MAX_MOMENTS {
            return None;
        }
        moments.push(Moment { at_ms, hits });
        before_ms = at_ms;
    }
    (!moments.is_empty()).then_some(moments)
}

/// A list of as many moments as an entry holds itself, oldest first, or of none.
pub(in crate::entry) fn list_of_few(moments: impl Iterator<Item = Moment>) -> (Head, ThinVec<u8>) {
    let (mut few, mut len, mut items) = ([Moment::default(); MAX_FEW], 0, Items::default());
    for moment in moments {
        let before_ms = if len == 0 { moment.at_ms - 1 } else { few[len - 1].at_ms };
        items.push(moment, before_ms);
        few[len] = moment;
        len += 1;
    }
    if len == 0 {
        return (Head::default(), ThinVec::new());
    }
    list_of(items.bytes(), few[0].at_ms - 1, &few[..len])
}

/// A list of moments that were read from these bytes.
pub(in crate::entry) fn list_of(items: &[u8], origin_ms: i64, moments: &[Moment]) -> (Head, ThinVec<u8>) {
    let (mut bytes, end, count) = (ThinVec::new(), ITEMS + items.len(), moments.len());
    ListMut { head: &mut Head::default(), bytes: &mut bytes }.reserve(end);
    bytes[ITEMS..end].copy_from_slice(items);
    set_origin(&mut bytes, origin_ms);
    let (first, newest) = (moments[0], moments[moments.len() - 1]);
    let before_ms = moments.len().checked_sub(2).map_or(origin_ms, |index| moments[index].at_ms);
    let mut last = Items::default();
    last.push(newest, before_ms);
    let cursor = Cursor { offset: ITEMS, passed: 0, passed_ms: origin_ms, gap_ms: u32::MAX };
    let total = moments.iter().map(|moment| moment.hits).sum();
    let cursor = cursor.before(first.at_ms);
    let newest_len = last.bytes().len();
    Header { total, end, count, newest_len, keeps_moments: false, cursor }.write(&mut bytes);
    (Head::new(newest.at_ms, end), bytes)
}
