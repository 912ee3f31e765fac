//! Which keys have hits that were not sent to other nodes, and the counts to send.
//!
//! A hit sets a mark at the place of its key, and nothing else. To send, a visitor goes from shard to shard and takes the
//! marks. What is sent are absolute counts of the key's hits in cells of time (see [`crate::merge`]), made from the hits
//! themselves. So what waits to be sent takes a byte for each key, however long it waits.

use std::mem;

use crate::allocation::allocated;
use crate::entry::Entry;
use crate::limits::{SENT_LATE_MS, SENT_WITHIN_MS};
use crate::merge::{Cell, Level, LevelsId};
use crate::settings::Settings;
use crate::time::Timestamp;

/// The key has hits in cells since the last visit.
pub(super) const NOW: u8 = 1;
/// It has hits that are late by at most [`SENT_LATE_MS`].
pub(super) const LATE: u8 = 2;
/// It has hits that are later than that.
pub(super) const OLD: u8 = 4;
/// Its wider cells have changed.
pub(super) const WIDE: u8 = 8;
/// The same, and one of the hits was late.
pub(super) const WIDE_LATE: u8 = 16 | WIDE;
/// Any of the first three.
pub(super) const FINEST: u8 = NOW | LATE | OLD;

/// The marks of a shard.
#[derive(Debug)]
pub(super) struct Unsent {
    marks: Vec<u8>,
    /// The marks of slots that have not moved yet.
    before: Vec<u8>,
    /// The number of keys of which the finest cells are to be sent.
    pub(super) marked: usize,
    pub(super) since: Since,
    /// Hits before this are late: it is when the last visit began.
    pub(super) late_before_ms: i64,
    /// A visit that is under way.
    pub(super) visit: Option<Visit>,
}

/// Hits before these times were sent, except those of keys with a mark for late ones.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Since {
    pub(super) finest_ms: i64,
    pub(super) wider_ms: i64,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Visit {
    pub(super) begun_ms: i64,
    /// Whether wider cells are sent, too.
    pub(super) has_wider: bool,
    /// The place where it goes on.
    pub(super) next: u32,
}

/// A visit to the keys of a part: [`Store::take_unsent`](super::Store::take_unsent).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Taken {
    /// How many keys were visited.
    pub keys: usize,
    /// Whether all keys of the part were visited.
    pub is_done: bool,
    /// To undo it.
    pub(super) since: Since,
}

/// A key with hits that were not sent.
#[derive(Debug)]
pub struct UnsentKey<'k> {
    /// The key.
    pub key: &'k [u8],
    /// The levels that the cells are of.
    pub levels: LevelsId,
    /// The hits of this store in cells that have changed.
    pub cells: Vec<(Cell, u64)>,
    /// Whether older cells may have changed, too.
    pub has_older: bool,
}

impl Unsent {
    pub(super) fn new(places: u32, now: Timestamp) -> Unsent {
        let now_ms = now.as_millis();
        Unsent {
            marks: vec![0; places as usize],
            before: Vec::new(),
            marked: 0,
            since: Since { finest_ms: now_ms, wider_ms: now_ms },
            late_before_ms: now_ms,
            visit: None,
        }
    }

    /// Marks a key with a hit of `at`; `None` is now.
    #[inline]
    pub(super) fn note(&mut self, place: u32, at: Option<Timestamp>, now: Timestamp) {
        let mark = match at {
            Some(at) if at.as_millis() < self.late_before_ms => {
                if now.as_millis() - at.as_millis() <= SENT_LATE_MS { LATE | WIDE_LATE } else { OLD | WIDE }
            }
            _ => NOW | WIDE,
        };
        self.mark(place, mark);
    }

    #[inline]
    pub(super) fn mark(&mut self, place: u32, mark: u8) {
        let held = &mut self.marks[place as usize];
        self.marked += usize::from(*held & FINEST == 0);
        *held |= mark;
    }

    /// Removes these marks from a place, and returns all that it had.
    pub(super) fn take(&mut self, place: u32, marks: u8) -> u8 {
        let held = &mut self.marks[place as usize];
        let had = *held;
        self.marked -= usize::from(had & FINEST != 0);
        *held &= !marks;
        had
    }

    pub(super) fn clear(&mut self, places: u32) {
        (self.marks, self.before) = (vec![0; places as usize], Vec::new());
        (self.marked, self.visit) = (0, None);
    }

    pub(super) fn resize(&mut self, places: u32, is_moving: bool) {
        let marks = mem::replace(&mut self.marks, vec![0; places as usize]);
        self.before = if is_moving { marks } else { Vec::new() };
        // What was visited may be at a place that is yet to come, and the other way round.
        if let Some(visit) = &mut self.visit {
            visit.next = 0;
        }
    }

    pub(super) fn moved(&mut self, from: u32, to: u32) {
        self.marks[to as usize] = mem::take(&mut self.before[from as usize]);
    }

    pub(super) fn end_move(&mut self) {
        self.before = Vec::new();
    }

    pub(super) fn has_moved(&self) -> bool {
        self.before.is_empty()
    }

    /// The address of the marks, for prefetching.
    pub(super) fn marks_at(&self) -> usize {
        self.marks.as_ptr().addr()
    }

    pub(super) fn bytes(&self) -> usize {
        allocated(self.marks.capacity()) + allocated(self.before.capacity())
    }

    pub(super) fn check_consistency(&self) {
        let marked = self.marks.iter().filter(|marks| **marks & FINEST != 0).count();
        assert_eq!(marked, self.marked, "marks are counted");
    }

    /// The next place with one of these marks.
    pub(super) fn next_marked(&self, from: u32, marks: u8) -> Option<u32> {
        let from = from as usize;
        let found = self.marks.get(from..)?.iter().position(|held| held & marks != 0)?;
        u32::try_from(from + found).ok()
    }
}

/// Which cells of a key are to be sent.
pub(super) struct Times {
    pub(super) since: Since,
    pub(super) marks: u8,
    pub(super) now: Timestamp,
}

impl Times {
    /// The counts in these cells, and whether older ones may have changed, too.
    pub(super) fn cells(&self, hits: &Entry, settings: &Settings) -> (Vec<(Cell, u64)>, bool) {
        let levels = settings.levels().as_slice();
        let Some((finest, wider)) = levels.split_first() else { return (Vec::new(), false) };
        // Panes that are older may be wider than cells. Panes younger than the age at which a level takes over are not wider than its cells.
        let fine_ms = settings.ladder().finest_until_ms() - finest.width_ms;
        let oldest_ms = |held_ms: i64| self.now.as_millis() - SENT_WITHIN_MS.min(held_ms);
        let oldest_of = |level: &Level| oldest_ms(fine_ms.max(level.from_age_ms));
        let oldest_ms = oldest_ms(fine_ms);
        // The hit came after the last visit, and was late by no more than this.
        let late_ms = |mark: u8| if self.marks & mark == mark { SENT_LATE_MS } else { 0 };
        let wanted_ms = self.since.finest_ms - late_ms(LATE);
        let mut has_older = self.marks & OLD != 0 || wanted_ms < oldest_ms;
        // A key of which only the wider cells are left.
        let first_ms = if self.marks & FINEST != 0 { wanted_ms.max(oldest_ms) } else { i64::MAX };
        let finest_ms = if first_ms == i64::MAX { first_ms } else { finest.cell_of_ms(first_ms).start_ms };
        let wider = if self.marks & WIDE != 0 { wider } else { &[] };
        let wider_ms = self.since.wider_ms - late_ms(WIDE_LATE);
        // The same of the wider cells.
        has_older |= wider.iter().any(|level| wider_ms < oldest_of(level));
        let mut counts = Counts::default();
        for (start_ms, end_ms, hits) in hits.spans_ms(settings) {
            if start_ms >= finest_ms {
                let cell = finest.cell_of_ms(start_ms);
                if end_ms <= cell.end_ms() {
                    counts.add(cell, hits);
                } else {
                    has_older = true;
                }
            }
            for level in wider {
                let cell = level.cell_of_ms(start_ms);
                if end_ms > cell.end_ms() {
                    // Some of the hits may be in one cell, some in the next.
                    counts.leave_out(cell);
                    counts.leave_out(level.cell_of_ms(end_ms - 1));
                } else if cell.end_ms() > wider_ms.max(oldest_of(level)) {
                    counts.add(cell, hits);
                }
            }
        }
        (counts.list, has_older)
    }
}

/// Hits by cell.
#[derive(Default)]
struct Counts {
    list: Vec<(Cell, u64)>,
    /// Cells of which not all hits are known.
    left_out: Vec<Cell>,
}

impl Counts {
    fn add(&mut self, cell: Cell, hits: u64) {
        if self.left_out.contains(&cell) {
            return;
        }
        match self.list.iter_mut().rev().find(|(held, _)| *held == cell) {
            Some((_, sum)) => *sum += hits,
            None => self.list.push((cell, hits)),
        }
    }

    fn leave_out(&mut self, cell: Cell) {
        if !self.left_out.contains(&cell) {
            self.left_out.push(cell);
            self.list.retain(|(held, _)| *held != cell);
        }
    }
}
