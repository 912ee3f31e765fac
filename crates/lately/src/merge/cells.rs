//! What is known of one key: the tallies of all origins in all cells.

use std::collections::BTreeMap;

use crate::panes::Pane;
use crate::time::Timestamp;
use crate::window::Window;

use super::{Cell, Level, Levels, Tally};

/// An origin, as a number that [`super::Watermarks`] gave it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct OriginId(pub(super) u32);

/// Tallies by width, start and origin.
#[derive(Clone, Default, Debug)]
pub(crate) struct Cells {
    tallies: BTreeMap<(i64, i64, OriginId), Tally>,
}

/// What a tally takes: its part of a node, which is at least half full.
const TALLY_BYTES: usize = 2 * size_of::<((i64, i64, OriginId), Tally)>();

impl Cells {
    pub(crate) fn is_empty(&self) -> bool {
        self.tallies.is_empty()
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        self.tallies.len() * TALLY_BYTES
    }

    /// Merges a tally. True if that changed the one that was there.
    pub(crate) fn merge(&mut self, cell: Cell, origin: OriginId, tally: Tally) -> bool {
        self.tallies.entry((cell.width_ms, cell.start_ms, origin)).or_default().merge(tally)
    }

    /// All tallies.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Cell, OriginId, Tally)> + '_ {
        self.tallies
            .iter()
            .map(|(&(width_ms, start_ms, origin), &tally)| (Cell { start_ms, width_ms }, origin, tally))
    }

    /// The hits of all origins in each cell that is read at `now`. No time is in two cells.
    pub(crate) fn panes(&self, levels: &Levels, now: Timestamp) -> Vec<Pane> {
        let mut panes: Vec<Pane> = Vec::new();
        for (level, start_ms, end_ms) in levels.ranges_ms(now) {
            let width_ms = level.width_ms;
            let range = (width_ms, start_ms, OriginId(0))..(width_ms, end_ms, OriginId(0));
            for (&(_, start_ms, _), tally) in self.tallies.range(range) {
                let hits = tally.hits();
                if hits == 0 {
                    continue;
                }
                match panes.last_mut().filter(|pane| (pane.start_ms, pane.width_ms) == (start_ms, width_ms)) {
                    Some(pane) => pane.hits = pane.hits.saturating_add(hits),
                    None => panes.push(Pane { start_ms, width_ms, hits }),
                }
            }
        }
        panes
    }

    /// The hits in each cell that is read at `now` and that a window needs, by origin.
    pub(crate) fn panes_by_origin(
        &self,
        levels: &Levels,
        window: &Window,
        now: Timestamp,
    ) -> BTreeMap<OriginId, Vec<Pane>> {
        let mut panes: BTreeMap<OriginId, Vec<Pane>> = BTreeMap::new();
        let (first_ms, (_, last_ms)) = (window.first_ms(), window.near_cell_ms());
        for (Level { width_ms, .. }, start_ms, end_ms) in levels.ranges_ms(now) {
            let range = start_ms.max(first_ms - width_ms + 1)..end_ms.min(last_ms);
            if range.is_empty() {
                continue;
            }
            let range = (width_ms, range.start, OriginId(0))..(width_ms, range.end, OriginId(0));
            for (&(_, start_ms, origin), tally) in self.tallies.range(range) {
                if tally.hits() > 0 {
                    panes.entry(origin).or_default().push(Pane { start_ms, width_ms, hits: tally.hits() });
                }
            }
        }
        panes
    }

    /// Marks everything that is known as deleted. Returns the marks.
    pub(crate) fn delete(&mut self) -> Vec<(Cell, OriginId, Tally)> {
        for tally in self.tallies.values_mut() {
            tally.deleted = tally.deleted.max(tally.counted);
        }
        self.iter().collect()
    }

    /// Drops the cells that are read no more at `now`, nor later.
    pub(crate) fn expire(&mut self, levels: &Levels, now: Timestamp) {
        let ranges: Vec<_> = levels.ranges_ms(now).collect();
        self.tallies.retain(|&(width_ms, start_ms, _), _| {
            let range = ranges.iter().find(|(level, ..)| level.width_ms == width_ms);
            range.is_some_and(|&(level, from_ms, _)| {
                // No coarser level takes over from the last one: its hits leave the retention.
                let kept_ms = now.as_millis() - level.until_age_ms - 2 * width_ms;
                from_ms <= start_ms && (from_ms > i64::MIN || kept_ms <= start_ms)
            })
        });
    }
}
