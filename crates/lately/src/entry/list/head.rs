//! What is known of a list without a look at it, so that its parts can be fetched together.

use super::super::moment::PackedTime;
use super::bytes::{Header, ITEMS};
use super::{MOST_MOMENTS, THIN_HEADER_BYTES};
use crate::machine::prefetch;

/// What is known of a list without a look at the heap.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Head {
    newest: PackedTime,
    /// Where the moments end, in whole [`TAIL_BYTES`]; and [`FAR`].
    tail: u8,
}

const TAIL_BYTES: usize = 32;
/// Set when the cursor is further than [`NEAR_BYTES`] behind the start: then what is there is fetched neither with the
/// header nor, most likely, with where the moments end.
const FAR: u8 = 1 << 7;
const NEAR_BYTES: usize = 2 * TAIL_BYTES;
// The longest moment has a gap of seven bytes and hits of eight.
const _: () = assert!((ITEMS + MOST_MOMENTS * 15) / TAIL_BYTES < FAR as usize);

impl Head {
    /// Of a list whose newest moment is at a time.
    #[inline]
    pub(super) fn new(newest_ms: i64, header: &Header) -> Head {
        let far = if header.cursor.offset > NEAR_BYTES { FAR } else { 0 };
        Head { tail: far, ..Head::default() }.moved(newest_ms, header.end)
    }

    /// With another newest moment, where its moments end then, and the cursor where it was.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "the longest list is not that long")]
    pub(super) fn moved(self, newest_ms: i64, end: usize) -> Head {
        Head { newest: PackedTime::pack(newest_ms), tail: (end / TAIL_BYTES) as u8 | self.tail & FAR }
    }

    /// Where the moments end, in steps of [`TAIL_BYTES`].
    #[inline]
    pub(in crate::entry) fn tail_steps(self) -> usize {
        (self.tail & !FAR).into()
    }

    /// Whether what is at the cursor is to be fetched, too.
    #[inline]
    pub(super) fn is_far(self) -> bool {
        self.tail & FAR != 0
    }

    #[inline]
    pub(in crate::entry) fn newest_ms(self) -> i64 {
        self.newest.get()
    }
}

/// Has a list fetched: its header, and where its moments end, so many [`TAIL_BYTES`] behind its start.
#[inline]
pub(in crate::entry) fn prefetch_list(start: *const u8, tail_steps: usize) {
    prefetch(start.wrapping_sub(THIN_HEADER_BYTES));
    let tail = tail_steps * TAIL_BYTES;
    for offset in [ITEMS - 1, tail, tail + TAIL_BYTES] {
        prefetch(start.wrapping_add(offset));
    }
}
