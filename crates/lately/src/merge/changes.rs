//! What one node tells the others: absolute counts of cells, and marks of what is deleted.

use super::{LevelsId, Origin};

/// A piece of time. Its start is a multiple of its width.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Cell {
    /// Its first millisecond.
    pub start_ms: i64,
    /// Its width in milliseconds.
    pub width_ms: i64,
}

impl Cell {
    /// The cell of a width that has a millisecond.
    #[must_use]
    pub fn of(at_ms: i64, width_ms: i64) -> Cell {
        Cell { start_ms: at_ms.div_euclid(width_ms) * width_ms, width_ms }
    }

    /// One past its last millisecond.
    #[must_use]
    pub fn end_ms(self) -> i64 {
        self.start_ms + self.width_ms
    }
}

/// What an origin has counted in a cell, and how much of it is deleted. Both only grow.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Tally {
    /// Hits that were counted.
    pub counted: u64,
    /// Hits that are deleted. It may be known before the hits are: then it is more than `counted`.
    pub deleted: u64,
}

impl Tally {
    /// The hits that are there.
    #[must_use]
    pub fn hits(self) -> u64 {
        self.counted.saturating_sub(self.deleted)
    }

    /// Takes the greater of both numbers. True if one was greater.
    pub fn merge(&mut self, other: Tally) -> bool {
        let merged =
            Tally { counted: self.counted.max(other.counted), deleted: self.deleted.max(other.deleted) };
        let has_changed = *self != merged;
        *self = merged;
        has_changed
    }
}

/// A message of one node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Changes {
    /// Who sends it.
    pub origin: Origin,
    /// The message has everything that changed at the sender after this number,
    pub after: u64,
    /// up to this one.
    pub until: u64,
    /// What changed, by key.
    pub keys: Vec<KeyChanges>,
}

/// What changed of a key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeyChanges {
    /// The key.
    pub key: Box<[u8]>,
    /// The levels that its cells are of.
    pub levels: LevelsId,
    /// Whose cell, which, and what is known of it. `None` is the sender.
    pub cells: Vec<(Option<Origin>, Cell, Tally)>,
}
