//! The memory that the keys of a shard account for.

use std::mem;

use super::super::slot::Slot;
use super::super::table::PAGE;
use super::{Shard, SideTables};
use crate::allocation::allocated;

/// The cost of a slot, without a long name and hits on the heap: its part of a page and a byte of tags, at
/// four fifths occupancy.
const SLOT_BYTES: usize = (allocated(PAGE * size_of::<Option<Slot>>()) + PAGE).div_ceil(PAGE) * 5 / 4;

impl SideTables {
    /// The memory of the side tables, in bytes.
    pub(super) fn held_bytes(&self) -> usize {
        self.long_keys.bytes() + self.places.bytes() + self.ids.bytes() + self.sources.bytes()
    }
}

impl Shard {
    /// The memory of the key at `place`, in bytes.
    pub(super) fn slot_bytes(&self, place: u32) -> usize {
        let Some(slot) = self.slots.get(place) else { return 0 };
        SLOT_BYTES + slot.state.heap_bytes()
    }

    /// Updates the account of the side tables. Where values move one by one, the next page move does it.
    pub(in crate::store) fn account_side_tables(&mut self) {
        let held = self.side.held_bytes();
        self.bytes = self.bytes + held - mem::replace(&mut self.side.bytes, held);
    }

    /// Compacts the chunks of long keys if removed keys left many gaps.
    pub(super) fn compact_long_keys(&mut self) {
        while let Some(chunk) = self.side.long_keys.evacuate() {
            for (hash, key, location) in chunk.keys() {
                let SideTables { long_keys, places, .. } = &mut *self.side;
                let moved = |from, to| places.moved(from, to);
                let found = self.slots.find(hash, |slot| slot.location() == Some(location), moved);
                if let Some(slot) = found.and_then(|place| self.slots.get_mut(place)) {
                    slot.set_location(long_keys.insert(hash, key));
                }
            }
            self.side.long_keys.evacuated(&chunk);
        }
    }
}
