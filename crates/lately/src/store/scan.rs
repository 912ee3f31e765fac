//! Walking over all keys, a page at a time.

use super::Store;
use super::tags::GROUP;
use crate::class::Pattern;
use crate::limits::MAX_SCAN_SLOTS;
use crate::time::Timestamp;

/// A position in a walk over all keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cursor(u64);

/// Bits of a cursor for the place in a shard: half a hash in a walk, a slot index in a sweep.
const PLACE_BITS: u32 = 32;

impl Cursor {
    /// The start of a walk, and the cursor of the last page.
    pub const START: Cursor = Cursor(0);

    /// The cursor with a number from [`Cursor::number`]. Any other number is a valid cursor, too: it ends the walk or
    /// continues at some place.
    #[must_use]
    pub fn from_number(number: u64) -> Cursor {
        Cursor(number)
    }

    /// The cursor as a number: 0 is the start, and after the last page the end.
    #[must_use]
    pub fn number(self) -> u64 {
        self.0
    }

    pub(super) fn at(shard: usize, place: u32) -> Cursor {
        Cursor(((shard as u64) << PLACE_BITS) | u64::from(place))
    }

    /// The shard and the place.
    pub(super) fn split(self) -> (usize, u32) {
        let shard = usize::try_from(self.0 >> PLACE_BITS).unwrap_or(usize::MAX);
        #[expect(clippy::cast_possible_truncation, reason = "the low half")]
        let place = self.0 as u32;
        (shard, place)
    }
}

/// A page of a walk.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ScanPage {
    /// Keys, in no order.
    pub keys: Vec<Box<[u8]>>,
    /// The cursor of the next page; [`Cursor::START`] after the last page.
    pub next: Cursor,
    /// The cost of matching, in comparisons with a byte of the pattern. For each key it is at most the product of the
    /// lengths of key and pattern.
    pub work: u64,
}

impl Store {
    /// The keys from `cursor` on that match `pattern`, in about `count` slots, and at most [`MAX_SCAN_SLOTS`].
    ///
    /// A key that exists from the first page to the last is returned exactly once, whatever happens to other keys. A key
    /// that is added or removed meanwhile may be returned or not.
    #[must_use]
    pub fn scan(&self, cursor: Cursor, pattern: Option<&Pattern>, count: usize, now: Timestamp) -> ScanPage {
        let (mut keys, mut work) = (Vec::new(), 0);
        let (mut index, mut from) = cursor.split();
        let mut left = count.clamp(1, MAX_SCAN_SLOTS);
        while index < self.shards.len() {
            let mut shard = self.lock(index, now);
            let next = shard.walk(from, left, &self.classes, |key| {
                if pattern.is_none_or(|pattern| pattern.matches_for(key, &mut work)) {
                    keys.push(key.into());
                }
            });
            if let Some(from) = next {
                return ScanPage { keys, next: Cursor::at(index, from), work };
            }
            left = left.saturating_sub(shard.places() as usize);
            (index, from) = (index + 1, 0);
            // The next word of tags may have more slots than are left.
            let is_full = left == 0 || (left < GROUP && left < count);
            if is_full && index < self.shards.len() {
                return ScanPage { keys, next: Cursor::at(index, 0), work };
            }
        }
        ScanPage { keys, next: Cursor::START, work }
    }
}
