//! What is known of one key: the tallies of all origins in all cells.

use std::collections::BTreeMap;

use crate::panes::Pane;
use crate::time::Timestamp;
use crate::window::Window;

use super::{Cell, LevelSets, LevelsId, Tally};

/// An origin, as a number that [`super::Watermarks`] gave it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct OriginId(pub(super) u32);

/// Tallies by levels, width, start and origin.
#[derive(Clone, Default, Debug)]
pub(crate) struct Cells {
    tallies: BTreeMap<(LevelsId, i64, i64, OriginId), Tally>,
}

/// What a tally takes: its part of a node, which is at least half full.
const TALLY_BYTES: usize = 2 * size_of::<((LevelsId, i64, i64, OriginId), Tally)>();

impl Cells {
    pub(crate) fn is_empty(&self) -> bool {
        self.tallies.is_empty()
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        self.tallies.len() * TALLY_BYTES
    }

    /// Merges a tally. True if that changed the one that was there.
    pub(crate) fn merge(&mut self, levels: LevelsId, cell: Cell, origin: OriginId, tally: Tally) -> bool {
        self.tallies.entry((levels, cell.width_ms, cell.start_ms, origin)).or_default().merge(tally)
    }

    /// All tallies.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (LevelsId, Cell, OriginId, Tally)> + '_ {
        self.tallies.iter().map(|(&(levels, width_ms, start_ms, origin), &tally)| {
            (levels, Cell { start_ms, width_ms }, origin, tally)
        })
    }

    /// The hits in each cell that is read at `now` and that has some of the time between two others, by levels, width, start and
    /// origin. No time of an origin is in two cells.
    ///
    /// Hits that came late into a pane of a store are sent in one of its cells. The panes of another class may be wider than those of the reader,
    /// so its cells are read as the widest panes that it may have there.
    fn read<'c>(
        &'c self,
        sets: &'c LevelSets<'_>,
        now: Timestamp,
        (first_ms, last_ms): (i64, i64),
    ) -> impl Iterator<Item = (OriginId, Pane)> + 'c {
        let own = sets.own().id();
        sets.all().flat_map(move |levels| {
            let id = levels.id();
            let pane_ms = move |at_ms: i64| match id == own || at_ms == i64::MIN || at_ms == i64::MAX {
                true => (at_ms, at_ms),
                false => levels.widest_pane_ms(at_ms, now),
            };
            let (first_ms, last_ms) = (pane_ms(first_ms).0, pane_ms(last_ms).1);
            let ranges = levels.ranges_ms(now).map(move |(level, start_ms, end_ms)| {
                let width_ms = level.width_ms;
                let start_ms = start_ms.max(first_ms.saturating_sub(width_ms - 1));
                let cell = |start_ms| (id, width_ms, start_ms, OriginId(0));
                cell(start_ms)..cell(end_ms.min(last_ms).max(start_ms))
            });
            let tallies = ranges.flat_map(|range| self.tallies.range(range));
            tallies.filter(|(_, tally)| tally.hits() > 0).map(
                move |(&(_, width_ms, start_ms, origin), tally)| {
                    let end_ms = start_ms + width_ms;
                    let start_ms = pane_ms(start_ms).0.min(start_ms);
                    let width_ms = pane_ms(end_ms - 1).1.max(end_ms) - start_ms;
                    (origin, Pane { start_ms, width_ms, hits: tally.hits() })
                },
            )
        })
    }

    /// The hits of all origins in each cell that is read at `now`. Panes of origins with other levels may lie inside of each other.
    pub(crate) fn panes(&self, sets: &LevelSets<'_>, now: Timestamp) -> Vec<Pane> {
        let mut panes: Vec<Pane> = Vec::new();
        for (_, pane) in self.read(sets, now, (i64::MIN, i64::MAX)) {
            let is_same = |last: &&mut Pane| (last.start_ms, last.width_ms) == (pane.start_ms, pane.width_ms);
            match panes.last_mut().filter(is_same) {
                Some(last) => last.hits = last.hits.saturating_add(pane.hits),
                None => panes.push(pane),
            }
        }
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

    /// Marks everything that is known as deleted. Returns the marks.
    pub(crate) fn delete(&mut self) -> Vec<(LevelsId, Cell, OriginId, Tally)> {
        for tally in self.tallies.values_mut() {
            tally.deleted = tally.deleted.max(tally.counted);
        }
        self.iter().collect()
    }

    /// Drops the cells that are read no more at `now`, nor later.
    pub(crate) fn expire(&mut self, sets: &LevelSets<'_>, now: Timestamp) {
        self.tallies.retain(|&(levels, width_ms, start_ms, _), _| {
            sets.of(levels).is_some_and(|levels| levels.is_kept(Cell { start_ms, width_ms }, now))
        });
    }
}
