//! A summary of a list that is stored in the entry, so that the parts of the list can be prefetched together.

use super::super::moment::PackedTime;
use super::buffer::HEADER_BYTES;
use super::bytes::{Header, ITEMS};
use crate::machine::prefetch;

/// A summary of a list.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Head {
    newest: PackedTime,
    /// The end of the moments in whole [`TAIL_BYTES`], and the flag [`FAR`].
    tail: u8,
}

const TAIL_BYTES: usize = 32;
/// Set if the cursor is more than [`NEAR_BYTES`] behind the start. Its bytes are then prefetched neither with
/// the header nor, most likely, with the end.
const FAR: u8 = 1 << 7;
const NEAR_BYTES: usize = 2 * TAIL_BYTES;
/// The end of a longer list is not prefetched.
const MOST_STEPS: usize = FAR as usize - 1;

impl Head {
    /// The summary of a list whose newest moment is at this time.
    #[inline]
    pub(super) fn new(newest_ms: i64, header: &Header) -> Head {
        let far = if header.cursor.offset > NEAR_BYTES { FAR } else { 0 };
        Head { tail: far, ..Head::default() }.moved(newest_ms, header.end)
    }

    /// A summary with another newest moment and end, and the same cursor.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "it is bounded")]
    pub(super) fn moved(self, newest_ms: i64, end: usize) -> Head {
        Head {
            newest: PackedTime::pack(newest_ms),
            tail: (end / TAIL_BYTES).min(MOST_STEPS) as u8 | self.tail & FAR,
        }
    }

    /// The end of the moments, in steps of [`TAIL_BYTES`].
    #[inline]
    pub(in crate::entry) fn tail_steps(self) -> usize {
        (self.tail & !FAR).into()
    }

    /// Whether the bytes at the cursor must be prefetched, too.
    #[inline]
    pub(super) fn is_far(self) -> bool {
        self.tail & FAR != 0
    }

    #[inline]
    pub(in crate::entry) fn newest_ms(self) -> i64 {
        self.newest.get()
    }
}

/// Prefetches a list: its header, and the end of its moments, `tail_steps` [`TAIL_BYTES`] behind its start.
#[inline]
pub(in crate::entry) fn prefetch_list(start: *const u8, tail_steps: usize) {
    prefetch(start.wrapping_sub(HEADER_BYTES));
    let tail = tail_steps * TAIL_BYTES;
    for offset in [ITEMS - 1, tail, tail + TAIL_BYTES] {
        prefetch(start.wrapping_add(offset));
    }
}
