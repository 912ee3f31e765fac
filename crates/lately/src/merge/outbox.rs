//! The outbox of a node: what it has counted under one origin, as absolute counts, and which of it others were not told.
//!
//! A hit changes one cell of the finest level at once. The wider cells are brought up to date a few seconds later, for all
//! hits of a key together.

use std::collections::{HashMap, VecDeque};

use foldhash::quality::RandomState;

use crate::allocation::allocated;
use crate::settings::Settings;
use crate::time::Timestamp;

use super::{Cell, Changes, KeyChanges, Levels, LevelsId, Origin, Tally};

/// How long a cell is held after its end, in milliseconds. Later hits for it are not taken.
pub(super) const CELL_HELD_MS: i64 = 15_000;

/// How long after a hit the wider cells are brought up to date, in milliseconds.
pub(super) const ROLL_UP_MS: i64 = 5_000;

/// The levels of the default class, which all keys here have.
fn levels() -> LevelsId {
    Settings::default().levels().id()
}

/// What one origin has counted lately.
///
/// A cell stays for [`CELL_HELD_MS`] after its end, so that late hits are added to it. After that the count is no longer
/// known here. Hits for it must be counted under another origin, or by [`Outbox::top_up`].
#[derive(Debug)]
pub(super) struct Outbox {
    origin: Origin,
    keys: HashMap<Box<[u8]>, KeyCells, RandomState>,
    /// Keys with counts that are in no message yet.
    changed: VecDeque<Box<[u8]>>,
    /// Keys whose wider cells lack hits, and when they are to be brought up to date.
    behind: VecDeque<(Timestamp, Box<[u8]>)>,
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

/// The cells of a key.
#[derive(Default, Debug)]
struct KeyCells {
    cells: Vec<Open>,
    /// Whether it is among the changed keys, and among those that are behind.
    is_changed: bool,
    is_behind: bool,
    /// The width of the finest cells.
    finest_ms: i64,
}

/// A cell with its tally.
#[derive(Clone, Copy, Debug)]
struct Open {
    cell: Cell,
    tally: Tally,
    /// Of a cell of the finest level: hits that the wider cells have, too.
    rolled_up: u64,
    /// The number of the last message that had it, 0 for none.
    sent_in: u64,
    /// Whether it has changed since.
    is_changed: bool,
}

/// Why hits were not taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum NotTaken {
    /// They are for a cell whose count is no longer known.
    TooOld,
    /// No cell of the key is held, and there is no room for more keys.
    NoRoom,
}

/// What a key takes beside its cells: its place in the map, which is at least half full, and its name, there and in the lists.
fn key_bytes(key: &[u8]) -> usize {
    2 * size_of::<(Box<[u8]>, KeyCells)>()
        + 3 * allocated(key.len())
        + 2 * size_of::<(Timestamp, Box<[u8]>)>()
}

impl KeyCells {
    /// Adds hits to a cell, and returns it.
    fn add(&mut self, cell: Cell, hits: u64) -> &mut Open {
        let index = self.cells.iter().rposition(|open| open.cell == cell).unwrap_or_else(|| {
            let tally = Tally::default();
            self.cells.push(Open { cell, tally, rolled_up: 0, sent_in: 0, is_changed: true });
            self.cells.len() - 1
        });
        let open = &mut self.cells[index];
        open.tally.counted += hits;
        open.is_changed = true;
        open
    }

    fn holds(&self, cell: Cell) -> bool {
        self.cells.iter().any(|open| open.cell == cell)
    }

    /// Brings the wider cells up to date. True if any has changed.
    fn roll_up(&mut self, levels: &Levels) -> bool {
        let [finest, wider @ ..] = levels.as_slice() else { return false };
        let mut has_changed = false;
        for index in 0..self.cells.len() {
            let Open { cell, tally, rolled_up, .. } = self.cells[index];
            let more = tally.counted - rolled_up;
            if cell.width_ms == finest.width_ms && more > 0 {
                self.cells[index].rolled_up = tally.counted;
                wider.iter().for_each(|level| _ = self.add(Cell::of(cell.start_ms, level.width_ms), more));
                has_changed |= !wider.is_empty();
            }
        }
        has_changed
    }

    fn cells_bytes(&self) -> usize {
        self.cells.capacity() * size_of::<Open>()
    }
}

impl Outbox {
    /// The outbox of an origin that has counted nothing yet.
    #[must_use]
    pub(super) fn new(origin: Origin) -> Outbox {
        Outbox {
            origin,
            keys: HashMap::default(),
            changed: VecDeque::new(),
            behind: VecDeque::new(),
            sequence: 0,
            acknowledged: 0,
            dropped: 0,
            dropped_end_ms: i64::MIN,
            bytes: 0,
        }
    }

    /// Who counts.
    #[must_use]
    pub(super) fn origin(&self) -> &Origin {
        &self.origin
    }

    /// Counts hits of a key at a time. A key that is not held is taken only if there is room.
    ///
    /// # Errors
    /// [`NotTaken`] says why they are not counted. Nothing changes then.
    pub(super) fn hit(
        &mut self,
        key: &[u8],
        (at, hits): (Timestamp, u64),
        levels: &Levels,
        has_room: bool,
        now: Timestamp,
    ) -> Result<(), NotTaken> {
        let mut cells = levels.cells_of(at, now);
        let Some(first) = cells.next() else { return Ok(()) };
        let finest_ms = levels.as_slice()[0].width_ms;
        let held = self.keys.get_mut(key);
        // The others end later.
        if first.end_ms() <= self.dropped_end_ms {
            let is_lost = |cell: Cell| {
                cell.end_ms() <= self.dropped_end_ms && !held.as_ref().is_some_and(|held| held.holds(cell))
            };
            if levels.cells_of(at, now).any(is_lost) {
                return Err(NotTaken::TooOld);
            }
        }
        let held = match held {
            Some(held) => held,
            None if has_room => {
                self.bytes += key_bytes(key);
                self.keys.entry(key.into()).or_default()
            }
            None => return Err(NotTaken::NoRoom),
        };
        let before = held.cells_bytes();
        held.finest_ms = finest_ms;
        held.add(first, hits);
        if first.width_ms == finest_ms && levels.as_slice().len() > 1 {
            // The others follow from the finest.
            if !std::mem::replace(&mut held.is_behind, true) {
                let due = Timestamp::from_millis(now.as_millis() + ROLL_UP_MS).unwrap_or(Timestamp::MAX);
                self.behind.push_back((due, key.into()));
            }
        } else {
            cells.for_each(|cell| _ = held.add(cell, hits));
        }
        if !std::mem::replace(&mut held.is_changed, true) {
            self.changed.push_back(key.into());
        }
        self.bytes += held.cells_bytes() - before;
        Ok(())
    }

    /// Changes the cells of a key, if it is held. `change` returns whether there is something to send.
    fn change(&mut self, key: &[u8], change: impl FnOnce(&mut KeyCells) -> bool) {
        let Some(held) = self.keys.get_mut(key) else { return };
        let before = held.cells_bytes();
        if change(held) && !std::mem::replace(&mut held.is_changed, true) {
            self.changed.push_back(key.into());
        }
        self.bytes += held.cells_bytes() - before;
    }

    /// Drops the wider cells of keys that were not hit lately and whose messages have arrived, though they have not ended. What is
    /// counted in them from then on is missing in the messages: it must be found when they have ended, see [`Outbox::top_up`].
    pub(super) fn release_idle(&mut self) {
        let (acknowledged, mut bytes) = (self.acknowledged, 0);
        self.keys.retain(|key, held| {
            let is_wider = |open: &Open| {
                open.cell.width_ms > held.finest_ms && !open.is_changed && open.sent_in <= acknowledged
            };
            let is_kept = held.is_changed || held.is_behind || !held.cells.iter().all(is_wider);
            bytes += if is_kept { key_bytes(key) + held.cells_bytes() } else { 0 };
            is_kept
        });
        self.bytes = bytes;
        if self.keys.capacity() > 4 * self.keys.len() {
            self.keys.shrink_to_fit();
        }
    }

    /// Marks all hits of a key that are held as deleted.
    pub(super) fn delete(&mut self, key: &[u8], levels: &Levels) {
        self.change(key, |held| {
            held.roll_up(levels);
            for open in held.cells.iter_mut().filter(|open| open.tally.deleted < open.tally.counted) {
                open.tally.deleted = open.tally.counted;
                open.is_changed = true;
            }
            true
        });
    }

    /// Brings the wider cells of up to `most` keys up to date, of those whose time has come by `now`. `levels` gives the levels of
    /// a key.
    pub(super) fn roll_up<'l>(&mut self, now: Timestamp, most: usize, levels: impl Fn(&[u8]) -> &'l Levels) {
        for _ in 0..most {
            let Some((_, key)) = self.behind.pop_front_if(|(due, _)| *due <= now) else { return };
            self.change(&key, |held| {
                held.is_behind = false;
                held.roll_up(levels(&key))
            });
        }
    }

    /// The next message: what changed since the last one, of at most this number of keys. `None` when nothing did.
    pub(super) fn take(&mut self, most: usize) -> Option<Changes> {
        let sequence = self.sequence + 1;
        let mut keys = Vec::new();
        while keys.len() < most
            && let Some(key) = self.changed.pop_front()
        {
            let Some(held) = self.keys.get_mut(&key) else { continue };
            held.is_changed = false;
            let changed = held.cells.iter_mut().filter(|open| open.is_changed);
            let cells: Vec<_> = changed
                .map(|open| {
                    (open.sent_in, open.is_changed) = (sequence, false);
                    (None, open.cell, open.tally)
                })
                .collect();
            if !cells.is_empty() {
                keys.push(KeyChanges { key, levels: levels(), cells });
            }
        }
        if keys.is_empty() {
            return None;
        }
        self.sequence = sequence;
        Some(Changes { origin: self.origin.clone(), after: sequence - 1, until: sequence, keys })
    }

    /// A message with everything that the messages after this number had. `None` when some of that is gone.
    #[must_use]
    pub(super) fn since(&self, after: u64) -> Option<Changes> {
        let keys = self.keys.iter().filter_map(|(key, held)| {
            let sent = held.cells.iter().filter(|open| open.sent_in > after);
            let cells: Vec<_> = sent.map(|open| (None, open.cell, open.tally)).collect();
            (!cells.is_empty()).then(|| KeyChanges { key: key.clone(), levels: levels(), cells })
        });
        (after >= self.dropped).then(|| Changes {
            origin: self.origin.clone(),
            after,
            until: self.sequence,
            keys: keys.collect(),
        })
    }

    /// All messages up to this number have arrived wherever they had to.
    pub(super) fn acknowledge(&mut self, until: u64) {
        self.acknowledged = self.acknowledged.max(until);
    }

    /// Drops cells that ended long ago and whose messages have arrived.
    pub(super) fn tidy(&mut self, now: Timestamp) {
        let acknowledged = self.acknowledged;
        let over_ms = now.as_millis() - CELL_HELD_MS;
        let (mut dropped, mut dropped_end_ms) = (self.dropped, self.dropped_end_ms);
        let mut bytes = 0;
        self.keys.retain(|key, held| {
            let is_behind = held.is_behind;
            held.cells.retain(|open| {
                let has_arrived = !open.is_changed && open.sent_in <= acknowledged;
                let is_over = open.cell.end_ms() <= over_ms && has_arrived && !is_behind;
                if is_over {
                    dropped = dropped.max(open.sent_in);
                    dropped_end_ms = dropped_end_ms.max(open.cell.end_ms());
                }
                !is_over
            });
            if held.cells.capacity() > 2 * held.cells.len() {
                held.cells.shrink_to_fit();
            }
            let is_kept = !held.cells.is_empty() || held.is_changed;
            bytes += if is_kept { key_bytes(key) + held.cells_bytes() } else { 0 };
            is_kept
        });
        (self.dropped, self.dropped_end_ms, self.bytes) = (dropped, dropped_end_ms, bytes);
    }

    /// Memory of what is held, in bytes.
    #[must_use]
    pub(super) fn held_bytes(&self) -> usize {
        self.bytes
    }

    /// The number of cells that are held.
    #[must_use]
    pub(super) fn len(&self) -> usize {
        self.keys.values().map(|held| held.cells.len()).sum()
    }
}
