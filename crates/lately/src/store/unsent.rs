//! Which keys have hits that were not sent to other nodes, and the counts to send.
//!
//! A hit sets a mark at the place of its key, and nothing else. To send, a visitor goes from shard to shard and takes the
//! marks. What is sent are absolute counts of the key's hits in cells of time (see [`crate::merge`]), made from the hits
//! themselves. So what waits to be sent takes a byte for each key, however long it waits.

use std::mem;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

use super::shard::Shard;
use super::{SHARDS, Store};
use crate::allocation::allocated;
use crate::class::Classes;
use crate::entry::Entry;
use crate::limits::{SENT_LATE_MS, SENT_WITHIN_MS, WIDE_CELLS_EVERY_MS};
use crate::merge::{Cell, LevelsId};
use crate::settings::Settings;
use crate::time::Timestamp;

/// The key has hits in cells since the last visit.
const NOW: u8 = 1;
/// It has hits that are late by at most [`SENT_LATE_MS`].
const LATE: u8 = 2;
/// It has hits that are later than that.
const OLD: u8 = 4;
/// Its wider cells have changed.
const WIDE: u8 = 8;
/// Any of the first three.
const FINEST: u8 = NOW | LATE | OLD;

/// The marks of a shard.
#[derive(Debug)]
pub(super) struct Unsent {
    marks: Vec<u8>,
    /// The marks of slots that have not moved yet.
    before: Vec<u8>,
    /// The number of keys of which the finest cells are to be sent.
    marked: usize,
    since: Since,
    /// Hits before this are late: it is when the last visit began.
    late_before_ms: i64,
    /// A visit that is under way.
    visit: Option<Visit>,
}

/// Hits before these times were sent, except those of keys with a mark for late ones.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Since {
    finest_ms: i64,
    wider_ms: i64,
}

#[derive(Clone, Copy, Debug)]
struct Visit {
    begun_ms: i64,
    /// Whether wider cells are sent, too.
    has_wider: bool,
    /// The place where it goes on.
    next: u32,
}

/// A visit to the keys of a part: [`Store::take_unsent`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Taken {
    /// How many keys were visited.
    pub keys: usize,
    /// Whether all keys of the part were visited.
    pub is_done: bool,
    /// To undo it.
    since: Since,
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
    fn new(places: u32, now: Timestamp) -> Unsent {
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
    fn note(&mut self, place: u32, at: Option<Timestamp>, now: Timestamp) {
        let mark = match at {
            Some(at) if at.as_millis() < self.late_before_ms => {
                if now.as_millis() - at.as_millis() <= SENT_LATE_MS { LATE | WIDE } else { OLD | WIDE }
            }
            _ => NOW | WIDE,
        };
        self.mark(place, mark);
    }

    #[inline]
    fn mark(&mut self, place: u32, mark: u8) {
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

    fn check_consistency(&self) {
        let marked = self.marks.iter().filter(|marks| **marks & FINEST != 0).count();
        assert_eq!(marked, self.marked, "marks are counted");
    }

    /// The next place with one of these marks.
    fn next_marked(&self, from: u32, marks: u8) -> Option<u32> {
        let from = from as usize;
        let found = self.marks.get(from..)?.iter().position(|held| held & marks != 0)?;
        u32::try_from(from + found).ok()
    }
}

impl Shard {
    /// Marks a key with hits that are to be sent.
    #[inline]
    pub(super) fn note_unsent(&mut self, place: u32, at: Option<Timestamp>) {
        let now = self.now();
        if let Some(unsent) = self.places_mut().unsent_mut() {
            unsent.note(place, at, now);
        }
    }

    fn track_unsent(&mut self) {
        self.move_all();
        let unsent = Unsent::new(self.places(), self.now());
        self.places_mut().track_unsent(unsent);
        self.publish_again();
        self.account_side_tables();
    }

    fn unsent_keys(&self) -> usize {
        self.side_places().unsent().map_or(0, |unsent| unsent.marked)
    }

    fn take_unsent(
        &mut self,
        most: usize,
        with_wider: bool,
        classes: &Classes,
        mut visit: impl FnMut(UnsentKey<'_>),
    ) -> Option<Taken> {
        self.move_all();
        let now = self.now();
        let unsent = self.places_mut().unsent_mut()?;
        let since = unsent.since;
        let is_due = now.as_millis() - since.wider_ms >= WIDE_CELLS_EVERY_MS;
        let begun = Visit { begun_ms: now.as_millis(), has_wider: is_due || with_wider, next: 0 };
        let mut under_way = unsent.visit.unwrap_or(begun);
        if with_wider && !under_way.has_wider {
            under_way = Visit { has_wider: true, next: 0, ..under_way };
        }
        unsent.late_before_ms = under_way.begun_ms;
        let taken = if under_way.has_wider { FINEST | WIDE } else { FINEST };
        let mut keys = 0;
        while keys < most {
            let unsent = self.places_mut().unsent_mut()?;
            let Some(place) = unsent.next_marked(under_way.next, taken) else {
                unsent.since.finest_ms = under_way.begun_ms;
                if under_way.has_wider {
                    unsent.since.wider_ms = under_way.begun_ms;
                }
                unsent.visit = None;
                return Some(Taken { keys, is_done: true, since });
            };
            under_way.next = place + 1;
            let marks = unsent.take(place, taken) & taken;
            keys += 1;
            let (Some(key), Some(slot)) = (self.key_at(place), self.slot_at(place)) else { continue };
            let settings = classes.settings(slot.class);
            let times = Times { since, marks, now };
            let (cells, has_older) = times.cells(slot.state.hits(), settings);
            visit(UnsentKey { key, levels: settings.levels().id(), cells, has_older });
        }
        self.places_mut().unsent_mut()?.visit = Some(under_way);
        Some(Taken { keys, is_done: false, since })
    }

    /// Marks keys that were hit since a time.
    fn mark_unsent_since(&mut self, since_ms: i64) {
        self.move_all();
        let mut place = 0;
        while place < self.places() {
            if self.slot_at(place).is_some_and(|slot| slot.state.hits().newest_ms() >= since_ms) {
                self.put_back_unsent(place, false, Since { finest_ms: since_ms, wider_ms: since_ms });
            }
            place += 1;
        }
    }

    fn put_back_unsent(&mut self, place: u32, has_older: bool, since: Since) {
        if let Some(unsent) = self.places_mut().unsent_mut() {
            unsent.mark(place, NOW | LATE | WIDE | if has_older { OLD } else { 0 });
            unsent.since.finest_ms = unsent.since.finest_ms.min(since.finest_ms);
            unsent.since.wider_ms = unsent.since.wider_ms.min(since.wider_ms);
            // A visit that is under way comes to it once more.
            if let Some(visit) = &mut unsent.visit {
                visit.next = 0;
            }
        }
    }

    /// Marks a key whose hits may all be unsent.
    pub(super) fn mark_all_unsent(&mut self, key: &[u8], hash: u64) {
        if self.side_places().unsent().is_some()
            && let Some(place) = self.place_of(key, hash)
            && let Some(unsent) = self.places_mut().unsent_mut()
        {
            unsent.mark(place, OLD | LATE | WIDE);
        }
    }

    pub(super) fn check_unsent(&self) {
        if let Some(unsent) = self.side_places().unsent() {
            unsent.check_consistency();
        }
    }
}

/// Which cells of a key are to be sent.
struct Times {
    since: Since,
    marks: u8,
    now: Timestamp,
}

impl Times {
    /// The counts in these cells, and whether older ones may have changed, too.
    fn cells(&self, hits: &Entry, settings: &Settings) -> (Vec<(Cell, u64)>, bool) {
        let levels = settings.levels().as_slice();
        let Some((finest, wider)) = levels.split_first() else { return (Vec::new(), false) };
        // Panes that are older may be wider than cells.
        let exact_ms = settings.exact().as_millis() - finest.width_ms;
        let oldest_ms = self.now.as_millis() - SENT_WITHIN_MS.min(exact_ms);
        // The hit came after the last visit, and was late by no more than this.
        let late_ms = if self.marks & LATE != 0 { SENT_LATE_MS } else { 0 };
        let wanted_ms = self.since.finest_ms - late_ms;
        let mut has_older = self.marks & OLD != 0 || wanted_ms < oldest_ms;
        // A key of which only the wider cells are left.
        let first_ms = if self.marks & FINEST != 0 { wanted_ms.max(oldest_ms) } else { i64::MAX };
        let finest_ms = if first_ms == i64::MAX { first_ms } else { finest.cell_of_ms(first_ms).start_ms };
        let wider_ms = (self.since.wider_ms - SENT_LATE_MS).max(oldest_ms);
        let wider = if self.marks & WIDE != 0 { wider } else { &[] };
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
                } else if cell.end_ms() > wider_ms {
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

impl Store {
    /// From here on, keys with hits are marked until [`Store::take_unsent`] has visited them.
    pub fn track_unsent(&self, now: Timestamp) {
        (0..SHARDS).for_each(|index| self.lock(index, now).track_unsent());
        self.is_tracked.store(true, Relaxed);
    }

    /// The parts of the keys, for [`Store::take_unsent`].
    #[must_use]
    pub fn unsent_parts(&self) -> usize {
        SHARDS
    }

    /// Visits keys of a part that have hits since the last visit, at most this number. Gives the counts of the cells that have
    /// changed: always of the finest, of the wider ones every few seconds, or with `with_wider`.
    ///
    /// A count is of all hits that the store has in the cell. Cells of the same key may be given again later, with a greater
    /// count, or with the same.
    pub fn take_unsent(
        &self,
        part: usize,
        most: usize,
        with_wider: bool,
        now: Timestamp,
        visit: impl FnMut(UnsentKey<'_>),
    ) -> Taken {
        let mut shard = self.lock(part, now);
        let since = Since { finest_ms: i64::MAX, wider_ms: i64::MAX };
        let taken = shard.take_unsent(most, with_wider, &self.classes, visit);
        taken.unwrap_or(Taken { keys: 0, is_done: true, since })
    }

    /// Undoes a visit to a key whose counts were not sent.
    pub fn put_back_unsent(&self, key: &[u8], has_older: bool, taken: &Taken) {
        let hash = self.hash(key);
        let (mut shard, ..) = self.lock_for(hash, Timestamp::MIN, None);
        if let Some(place) = shard.place_of(key, hash) {
            shard.put_back_unsent(place, has_older, taken.since);
        }
    }

    /// Marks all keys that were hit since a time: what was sent of them may be lost.
    pub fn mark_unsent_since(&self, since: Timestamp) {
        (0..SHARDS).for_each(|part| self.lock(part, Timestamp::MIN).mark_unsent_since(since.as_millis()));
    }

    /// How often hits were taken out of the store, by a rollback or by [`Store::flush`]. Compare it before and after counts were read:
    /// while it stays, they are not greater than what has been committed since.
    pub fn decreases(&self) -> u64 {
        self.decreases.load(Acquire)
    }

    /// The number of keys with hits that were not taken.
    #[must_use]
    pub fn unsent_keys(&self) -> usize {
        (0..SHARDS).map(|index| self.lock(index, Timestamp::MIN).unsent_keys()).sum()
    }
}
