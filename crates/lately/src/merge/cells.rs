//! What is known of one key: the tallies of all origins in all cells, as bytes. Most take one or two.
//!
//! The tallies of an origin in the cells of some levels follow each other, by width and start. Before them are the id of the levels,
//! the number of the origin, and how many tallies follow. A tally has one of two forms, by its first number:
//! - even: the cell follows the one before, and nothing is deleted; the number is twice its hits.
//! - odd: bit 1 says that the width is another one, bit 2 that hits are deleted. The other bits are the gap in cells, or the rung of
//!   the other width; then the number of the cell since the epoch follows. Then come the counted hits, and the deleted ones if
//!   there are any.

use std::collections::BTreeMap;
use std::mem;

use crate::allocation::allocated;
use crate::ladder::RUNGS_MS;
use crate::leb128;
use crate::panes::Pane;
use crate::time::Timestamp;
use crate::window::Window;

use super::{Cell, LevelSets, Levels, LevelsId, Tally};

/// An origin, as a number that [`super::Watermarks`] gave it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct OriginId(pub(super) u32);

/// What an origin has in a cell of these levels.
pub(crate) type OfCell = (LevelsId, Cell, OriginId, Tally);

/// Tallies by levels, origin, width and start.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub(crate) struct Cells {
    bytes: Box<[u8]>,
}

/// In odd numbers: the width is another one; hits are deleted.
const OTHER_WIDTH: u64 = 1;
const HAS_DELETED: u64 = 2;

/// What tallies are sorted by.
fn place(&(levels, cell, origin, _): &OfCell) -> (LevelsId, OriginId, i64, i64) {
    (levels, origin, cell.width_ms, cell.start_ms)
}

impl FromIterator<OfCell> for Cells {
    /// Tallies of one origin in one cell are merged.
    fn from_iter<I: IntoIterator<Item = OfCell>>(tallies: I) -> Cells {
        let mut tallies: Vec<OfCell> = tallies.into_iter().collect();
        tallies.sort_by_key(place);
        tallies.dedup_by(|next, held| {
            let is_same = place(next) == place(held);
            if is_same {
                held.3.merge(next.3);
            }
            is_same
        });
        let mut bytes = Vec::new();
        for group in tallies.chunk_by(|one, next| (one.0, one.2) == (next.0, next.2)) {
            let (levels, _, origin, _) = group[0];
            bytes.extend_from_slice(&levels.number().to_le_bytes());
            leb128::push(&mut bytes, origin.0.into());
            leb128::push(&mut bytes, group.len() as u64);
            let mut before = Cell { start_ms: 0, width_ms: 0 };
            for &(_, cell, _, tally) in group {
                write(&mut bytes, cell, tally, mem::replace(&mut before, cell));
            }
        }
        Cells { bytes: bytes.into_boxed_slice() }
    }
}

/// Appends a tally whose cell comes after another one of its group.
fn write(out: &mut Vec<u8>, cell: Cell, tally: Tally, before: Cell) {
    let is_other_width = cell.width_ms != before.width_ms;
    if !is_other_width && cell.start_ms == before.end_ms() && tally.deleted == 0 {
        return leb128::push(out, tally.counted << 1);
    }
    let rung = || RUNGS_MS.iter().position(|&width_ms| width_ms == cell.width_ms);
    let (number, flag) = match is_other_width {
        true => (rung().expect("widths are rungs of the ladder") as u64, OTHER_WIDTH),
        false => (((cell.start_ms - before.end_ms()) / cell.width_ms).cast_unsigned(), 0),
    };
    let has_deleted = if tally.deleted > 0 { HAS_DELETED } else { 0 };
    leb128::push(out, (number << 2 | has_deleted | flag) << 1 | 1);
    if is_other_width {
        leb128::push(out, (cell.start_ms / cell.width_ms).cast_unsigned());
    }
    leb128::push(out, tally.counted);
    if tally.deleted > 0 {
        leb128::push(out, tally.deleted);
    }
}

/// An iterator over the tallies.
struct Reader<'c> {
    bytes: &'c [u8],
    offset: usize,
    levels: LevelsId,
    origin: OriginId,
    /// The tallies of this origin that follow.
    left: u64,
    before: Cell,
}

impl Reader<'_> {
    fn number(&mut self) -> u64 {
        let (number, offset) = leb128::decode(self.bytes, self.offset);
        self.offset = offset;
        number
    }

    fn begin_group(&mut self) {
        let (levels, _) = self.bytes[self.offset..].split_first_chunk().expect("levels have four bytes");
        self.levels = LevelsId::new(u32::from_le_bytes(*levels));
        self.offset += levels.len();
        self.origin = OriginId(u32::try_from(self.number()).expect("it was one"));
        self.left = self.number();
        self.before = Cell { start_ms: 0, width_ms: 0 };
    }
}

impl Iterator for Reader<'_> {
    type Item = OfCell;

    fn next(&mut self) -> Option<OfCell> {
        if self.left == 0 {
            if self.offset == self.bytes.len() {
                return None;
            }
            self.begin_group();
        }
        self.left -= 1;
        let Cell { width_ms, .. } = self.before;
        let first = self.number();
        let (cell, tally) = if first & 1 == 0 {
            let cell = Cell { start_ms: self.before.end_ms(), width_ms };
            (cell, Tally { counted: first >> 1, deleted: 0 })
        } else {
            let (number, flags) = (first >> 3, first >> 1 & 3);
            let cell = if flags & OTHER_WIDTH == 0 {
                Cell { start_ms: self.before.end_ms() + number.cast_signed() * width_ms, width_ms }
            } else {
                let width_ms = RUNGS_MS[usize::try_from(number).expect("there are few")];
                Cell { start_ms: self.number().cast_signed() * width_ms, width_ms }
            };
            let counted = self.number();
            let deleted = if flags & HAS_DELETED == 0 { 0 } else { self.number() };
            (cell, Tally { counted, deleted })
        };
        self.before = cell;
        Some((self.levels, cell, self.origin, tally))
    }
}

/// Times of which cells of one width are read.
struct Range<'s> {
    levels: LevelsId,
    width_ms: i64,
    start_ms: i64,
    end_ms: i64,
    /// The levels of another class.
    of_others: Option<&'s Levels>,
}

impl Range<'_> {
    fn has(&self, levels: LevelsId, cell: Cell) -> bool {
        (self.levels, self.width_ms) == (levels, cell.width_ms)
            && (self.start_ms..self.end_ms).contains(&cell.start_ms)
    }
}

impl Cells {
    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        allocated(self.bytes.len())
    }

    /// Merges tallies. True if that changed those that were there.
    pub(crate) fn merge(&mut self, tallies: impl Iterator<Item = OfCell>) -> bool {
        let merged = self.iter().chain(tallies).collect();
        let before = mem::replace(self, merged);
        before != *self
    }

    /// All tallies.
    pub(crate) fn iter(&self) -> impl Iterator<Item = OfCell> + '_ {
        let (levels, origin) = (LevelsId::default(), OriginId(0));
        let before = Cell { start_ms: 0, width_ms: 0 };
        Reader { bytes: &self.bytes, offset: 0, levels, origin, left: 0, before }
    }

    /// The hits in each cell that is read at `now` and that has some of the time between two others. No time of an origin is in two cells.
    ///
    /// Hits that came late into a pane of a store are sent in one of its cells. The panes of another class may be wider than those of the reader,
    /// so its cells are read as the widest panes that it may have there.
    fn read(
        &self,
        sets: &LevelSets<'_>,
        now: Timestamp,
        (first_ms, last_ms): (i64, i64),
    ) -> impl Iterator<Item = (OriginId, Pane)> {
        let own = sets.own().id();
        let pane_ms = move |of_others: Option<&Levels>, at_ms: i64| match of_others {
            Some(levels) if at_ms != i64::MIN && at_ms != i64::MAX => levels.widest_pane_ms(at_ms, now),
            _ => (at_ms, at_ms),
        };
        let mut ranges = Vec::new();
        for levels in sets.all() {
            let of_others = Some(levels).filter(|levels| levels.id() != own);
            let (first_ms, last_ms) = (pane_ms(of_others, first_ms).0, pane_ms(of_others, last_ms).1);
            ranges.extend(levels.ranges_ms(now).map(|(level, start_ms, end_ms)| {
                let (levels, width_ms) = (levels.id(), level.width_ms);
                let start_ms = start_ms.max(first_ms.saturating_sub(width_ms - 1));
                Range { levels, width_ms, start_ms, end_ms: end_ms.min(last_ms), of_others }
            }));
        }
        self.iter().filter(|(.., tally)| tally.hits() > 0).filter_map(move |(levels, cell, origin, tally)| {
            let range = ranges.iter().find(|range| range.has(levels, cell))?;
            let (start_ms, end_ms) = (cell.start_ms, cell.end_ms());
            let start_ms = pane_ms(range.of_others, start_ms).0.min(start_ms);
            let width_ms = pane_ms(range.of_others, end_ms - 1).1.max(end_ms) - start_ms;
            Some((origin, Pane { start_ms, width_ms, hits: tally.hits() }))
        })
    }

    /// The hits of all origins in each cell that is read at `now`. Panes of origins with other levels may lie inside of each other.
    pub(crate) fn panes(&self, sets: &LevelSets<'_>, now: Timestamp) -> Vec<Pane> {
        let mut panes: Vec<Pane> = self.read(sets, now, (i64::MIN, i64::MAX)).map(|(_, pane)| pane).collect();
        panes.sort_unstable_by_key(|pane| (pane.width_ms, pane.start_ms));
        panes.dedup_by(|next, held| {
            let is_same = (next.start_ms, next.width_ms) == (held.start_ms, held.width_ms);
            if is_same {
                held.hits = held.hits.saturating_add(next.hits);
            }
            is_same
        });
        panes
    }

    /// The hits in each cell that is read at `now` and that a window needs, by origin.
    pub(crate) fn panes_by_origin(
        &self,
        sets: &LevelSets<'_>,
        window: &Window,
        now: Timestamp,
    ) -> BTreeMap<OriginId, Vec<Pane>> {
        let mut panes: BTreeMap<OriginId, Vec<Pane>> = BTreeMap::new();
        let (_, last_ms) = window.near_cell_ms();
        for (origin, pane) in self.read(sets, now, (window.first_ms(), last_ms)) {
            panes.entry(origin).or_default().push(pane);
        }
        panes
    }

    /// Marks everything that is known as deleted.
    pub(crate) fn delete(&mut self) {
        let marks = self.iter().map(|(levels, cell, origin, Tally { counted, deleted })| {
            (levels, cell, origin, Tally { counted, deleted: deleted.max(counted) })
        });
        *self = marks.collect();
    }

    /// Drops the cells that are read no more at `now`, nor later.
    pub(crate) fn expire(&mut self, sets: &LevelSets<'_>, now: Timestamp) {
        let is_kept =
            |&(levels, cell, ..): &OfCell| sets.of(levels).is_some_and(|levels| levels.is_kept(cell, now));
        if !self.iter().all(|known| is_kept(&known)) {
            *self = self.iter().filter(is_kept).collect();
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::limits::MAX_TOTAL;
    use crate::settings::Settings;

    fn tally() -> impl Strategy<Value = OfCell> {
        let counted = prop_oneof![4 => 0..100_u64, 1 => Just(MAX_TOTAL)];
        let deleted = prop_oneof![4 => Just(0), 1 => 0..100_u64, 1 => Just(MAX_TOTAL)];
        let number = prop_oneof![4 => 1_000..1_010_i64, 1 => 0..100_000_000_i64];
        let width_ms = prop_oneof![4 => Just(1_000), 1 => prop::sample::select(&RUNGS_MS)];
        let levels = prop_oneof![Just(0), Just(7), Just(u32::MAX)];
        let origin = prop_oneof![0..3_u32, Just(200)];
        (levels, width_ms, number, origin, counted, deleted).prop_map(
            |(levels, width_ms, number, origin, counted, deleted)| {
                let start_ms = number * width_ms;
                let tally = Tally { counted, deleted };
                (LevelsId::new(levels), Cell { start_ms, width_ms }, OriginId(origin), tally)
            },
        )
    }

    proptest! {
        #[test]
        fn tallies_as_bytes_are_those_that_were_merged(
            messages in prop::collection::vec(prop::collection::vec(tally(), 0..40), 0..6),
        ) {
            let (mut cells, mut model) = (Cells::default(), BTreeMap::new());
            for message in messages {
                let before = model.clone();
                for known in &message {
                    model.entry(place(known)).or_insert(Tally::default()).merge(known.3);
                }
                prop_assert_eq!(cells.merge(message.into_iter()), before != model);
                let held: Vec<_> = cells.iter().map(|known| (place(&known), known.3)).collect();
                prop_assert_eq!(held, model.clone().into_iter().collect::<Vec<_>>());
                prop_assert_eq!(cells.is_empty(), model.is_empty());
            }
            cells.delete();
            prop_assert!(cells.iter().all(|(.., tally)| tally.hits() == 0));
            prop_assert_eq!(cells.iter().count(), model.len());
        }
    }

    /// A hundred origins that count in each second of ten minutes.
    #[test]
    fn a_tally_of_each_of_a_hundred_origins_takes_a_byte_or_two() {
        let settings = Settings::default();
        let id = settings.levels().id();
        let known = |hits: u64| {
            (0..100).flat_map(move |origin| {
                let seconds = 1_700_000_000..1_700_000_600_i64;
                seconds.map(move |second| {
                    let cell = Cell { start_ms: second * 1_000, width_ms: 1_000 };
                    (id, cell, OriginId(origin), Tally { counted: hits, deleted: 0 })
                })
            })
        };
        for (hits, most_bytes) in [(63, 1), (8_000, 2), (1_000_000, 3)] {
            let cells: Cells = known(hits).collect();
            assert!(cells.heap_bytes() < 100 * (600 * most_bytes + 16), "{}", cells.heap_bytes());
        }
    }
}
