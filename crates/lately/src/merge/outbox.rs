//! The outbox of a node: what it has counted under one origin, as absolute counts, and which of it others were not told.

use std::collections::HashMap;

use crate::allocation::allocated;
use crate::limits::CELL_HELD_MS;
use crate::time::Timestamp;

use super::changes::cells_of;
use super::{Cell, Changes, KeyChanges, Levels, Origin, Tally};

/// What one origin has counted lately.
///
/// A cell stays for [`CELL_HELD_MS`] after its end, so that late hits are added to it. After that the count is no longer
/// known here, and hits for it must be counted under another origin.
#[derive(Debug)]
pub struct Outbox {
    origin: Origin,
    keys: HashMap<Box<[u8]>, Vec<Open>>,
    /// The number of the last message.
    sequence: u64,
    /// All messages up to this number have arrived.
    acknowledged: u64,
    /// Messages up to this number cannot be made again: a cell that was in one of them is gone.
    dropped: u64,
    /// No cell that ends later was dropped.
    dropped_end_ms: i64,
    /// Bytes of the keys and their cells.
    bytes: usize,
}

/// A cell with its tally.
#[derive(Clone, Copy, Debug)]
struct Open {
    cell: Cell,
    tally: Tally,
    /// The number of the message that has this tally.
    changed: u64,
}

/// The hit is for a cell whose count is no longer known. It must be counted under another origin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TooOld;

/// What a key takes beside its cells: its place in the map, which is at least half full, and its name.
fn key_bytes(key: &[u8]) -> usize {
    2 * size_of::<(Box<[u8]>, Vec<Open>)>() + allocated(key.len())
}

impl Outbox {
    /// The outbox of an origin that has counted nothing yet.
    #[must_use]
    pub fn new(origin: Origin) -> Outbox {
        Outbox {
            origin,
            keys: HashMap::new(),
            sequence: 0,
            acknowledged: 0,
            dropped: 0,
            dropped_end_ms: i64::MIN,
            bytes: 0,
        }
    }

    /// Who counts.
    #[must_use]
    pub fn origin(&self) -> &Origin {
        &self.origin
    }

    /// Counts hits of a key at a time.
    ///
    /// # Errors
    /// [`TooOld`] when they cannot be counted under this origin. Nothing changes then.
    pub fn hit(
        &mut self,
        key: &[u8],
        (at, hits): (Timestamp, u64),
        levels: &Levels,
        now: Timestamp,
    ) -> Result<(), TooOld> {
        let from = levels.ranges_ms(now).map(|(_, from_ms, _)| from_ms);
        let read = cells_of(levels, at).zip(from).filter(|(cell, from_ms)| from_ms <= &cell.start_ms);
        let read: Vec<Cell> = read.map(|(cell, _)| cell).collect();
        let dropped_end_ms = self.dropped_end_ms;
        let held = self.keys.get(key).map_or(&[][..], Vec::as_slice);
        let is_held = |cell: Cell| held.iter().any(|open| open.cell == cell);
        if read.iter().any(|&cell| cell.end_ms() <= dropped_end_ms && !is_held(cell)) {
            return Err(TooOld);
        }
        let changed = self.sequence + 1;
        let held = match self.keys.get_mut(key) {
            Some(held) => held,
            None => {
                self.bytes += key_bytes(key);
                self.keys.entry(key.into()).or_default()
            }
        };
        let before = held.capacity();
        for cell in read {
            match held.iter_mut().rev().find(|open| open.cell == cell) {
                Some(open) => {
                    open.tally.counted += hits;
                    open.changed = changed;
                }
                None => held.push(Open { cell, tally: Tally { counted: hits, deleted: 0 }, changed }),
            }
        }
        self.bytes += (held.capacity() - before) * size_of::<Open>();
        Ok(())
    }

    /// Whether the count of a cell is known here.
    #[must_use]
    pub fn holds(&self, key: &[u8], cell: Cell) -> bool {
        self.keys.get(key).is_some_and(|held| held.iter().any(|open| open.cell == cell))
    }

    /// Marks all hits of a key that are held as deleted.
    pub fn delete(&mut self, key: &[u8]) {
        let changed = self.sequence + 1;
        for open in self.keys.get_mut(key).into_iter().flatten() {
            if open.tally.deleted < open.tally.counted {
                open.tally.deleted = open.tally.counted;
                open.changed = changed;
            }
        }
    }

    /// The next message: what changed since the last one. `None` when nothing did.
    pub fn take(&mut self) -> Option<Changes> {
        let changes = self.changed_after(self.sequence);
        (!changes.keys.is_empty()).then(|| {
            self.sequence += 1;
            Changes { until: self.sequence, ..changes }
        })
    }

    /// A message with everything that the messages after this number had. `None` when some of that is gone.
    #[must_use]
    pub fn since(&self, after: u64) -> Option<Changes> {
        (after >= self.dropped).then(|| self.changed_after(after))
    }

    /// A message with everything that is not known to have arrived.
    #[must_use]
    pub fn unconfirmed(&self) -> Changes {
        self.changed_after(self.acknowledged)
    }

    fn changed_after(&self, after: u64) -> Changes {
        let keys = self.keys.iter().filter_map(|(key, held)| {
            let changed = held.iter().filter(|open| open.changed > after);
            let cells: Vec<_> = changed.map(|open| (None, open.cell, open.tally)).collect();
            (!cells.is_empty()).then(|| KeyChanges { key: key.clone(), cells })
        });
        let keys = keys.collect();
        Changes { origin: self.origin.clone(), after, until: self.sequence, keys }
    }

    /// All messages up to this number have arrived wherever they had to.
    pub fn acknowledge(&mut self, until: u64) {
        self.acknowledged = self.acknowledged.max(until);
    }

    /// Nothing is known to have arrived: where the messages went, something may have been lost.
    pub fn unacknowledge(&mut self) {
        self.acknowledged = 0;
    }

    /// Drops cells that ended long ago and whose messages have arrived.
    pub fn tidy(&mut self, now: Timestamp) {
        let acknowledged = self.acknowledged;
        let over_ms = now.as_millis() - CELL_HELD_MS;
        let (mut dropped, mut dropped_end_ms) = (self.dropped, self.dropped_end_ms);
        let mut bytes = 0;
        self.keys.retain(|key, held| {
            held.retain(|open| {
                let is_over = open.cell.end_ms() <= over_ms && open.changed <= acknowledged;
                if is_over {
                    dropped = dropped.max(open.changed);
                    dropped_end_ms = dropped_end_ms.max(open.cell.end_ms());
                }
                !is_over
            });
            if held.capacity() > 2 * held.len() {
                held.shrink_to_fit();
            }
            bytes += if held.is_empty() { 0 } else { key_bytes(key) + held.capacity() * size_of::<Open>() };
            !held.is_empty()
        });
        (self.dropped, self.dropped_end_ms, self.bytes) = (dropped, dropped_end_ms, bytes);
    }

    /// Memory of what is held, in bytes.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.bytes
    }

    /// The number of cells that are held.
    #[must_use]
    pub fn len(&self) -> usize {
        self.keys.values().map(Vec::len).sum()
    }

    /// Whether no cell is held.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }
}
