//! A ring of panes over the exact span with a running total: the form of a hot key. A hit and a read
//! of the default window touch no more than the panes that time has passed.

use std::ops::RangeInclusive;

use super::cells::Cells;
use crate::panes::{Pane, Panes};
use crate::settings::Settings;
use crate::time::Timestamp;

/// The newest panes of a hot key.
#[derive(Clone, Debug)]
pub(super) struct Ring {
    /// Hits of as many panes up to `head`, going round.
    cells: Cells,
    /// The newest pane of the ring, by number, and its cell.
    head: i64,
    head_cell: usize,
    /// All hits in the ring.
    total: u64,
    /// Hits of the default window ending at `head`; 0 when that window is longer than the ring.
    window_total: u64,
}

impl Ring {
    /// An empty ring up to the pane of `now`. Panes of `older` that it reaches go into it.
    pub(super) fn new(older: &mut Panes, settings: &Settings, now: Timestamp) -> Ring {
        let len = usize::try_from(settings.panes_in(settings.exact()) + 1).expect("bounded by limits");
        let head = settings.pane_of(now.as_millis());
        let cells = Cells::new(len);
        let mut ring = Ring { cells, head, head_cell: len - 1, total: 0, window_total: 0 };
        for Pane { start_ms, hits, .. } in older.split_off(ring.first() * settings.resolution().as_millis()) {
            ring.add(start_ms, hits, older, settings, now);
        }
        ring
    }

    fn len(&self) -> i64 {
        i64::try_from(self.cells.len()).expect("bounded by limits")
    }

    /// The oldest pane of the ring.
    fn first(&self) -> i64 {
        self.head - self.len() + 1
    }

    /// The cell of a pane that is in the ring.
    fn cell(&self, pane: i64) -> usize {
        let back = usize::try_from(self.head - pane).expect("no pane is newer than the head");
        if back <= self.head_cell { self.head_cell - back } else { self.head_cell + self.cells.len() - back }
    }

    /// The panes that have hits, oldest first.
    pub(super) fn panes(&self, settings: &Settings) -> impl Iterator<Item = Pane> {
        let width_ms = settings.resolution().as_millis();
        (self.first()..=self.head)
            .map(move |pane| Pane {
                start_ms: pane * width_ms,
                width_ms,
                hits: self.cells.get(self.cell(pane)),
            })
            .filter(|pane| pane.hits > 0)
    }

    /// Hits in panes of the ring.
    fn ring_sum(&self, panes: RangeInclusive<i64>) -> u64 {
        panes.map(|pane| self.cells.get(self.cell(pane))).sum()
    }

    /// Length of the default window in panes, when the ring holds all of it.
    fn window_panes(&self, settings: &Settings) -> Option<i64> {
        let panes = settings.panes_in(settings.window());
        (panes < self.len()).then_some(panes)
    }

    /// Adds hits, moving the ring on to reach them; those before it go to `older`.
    pub(super) fn add(
        &mut self,
        at_ms: i64,
        hits: u64,
        older: &mut Panes,
        settings: &Settings,
        now: Timestamp,
    ) {
        self.advance(settings.pane_of(at_ms), older, settings, now);
        if !self.add_recent(at_ms, hits, settings) {
            older.add(at_ms, hits, settings, now);
        }
    }

    /// Adds hits at a time that the ring does not end before; false when it begins after it.
    pub(super) fn add_recent(&mut self, at_ms: i64, hits: u64, settings: &Settings) -> bool {
        let pane = settings.pane_of(at_ms);
        if pane < self.first() {
            return false;
        }
        self.cells.add(self.cell(pane), hits);
        self.total += hits;
        if self.window_panes(settings).is_some_and(|panes| pane > self.head - panes) {
            self.window_total += hits;
        }
        true
    }

    /// Whether a time lies after the ring.
    pub(super) fn ends_before(&self, at_ms: i64, settings: &Settings) -> bool {
        settings.pane_of(at_ms) > self.head
    }

    /// Moves the ring on until `pane` is in it. Panes that fall off go to `older`.
    pub(super) fn advance(&mut self, pane: i64, older: &mut Panes, settings: &Settings, now: Timestamp) {
        if pane <= self.head {
            return;
        }
        if let Some(panes) = self.window_panes(settings) {
            self.window_total -= self.ring_sum(self.head - panes + 1..=(pane - panes).min(self.head));
        }
        let resolution_ms = settings.resolution().as_millis();
        for old in self.first()..=(pane - self.len()).min(self.head) {
            let hits = self.cells.take(self.cell(old));
            if hits > 0 {
                self.total -= hits;
                older.add(old * resolution_ms, hits, settings, now);
            }
        }
        let passed = (pane - self.head).rem_euclid(self.len());
        let cell = self.head_cell + usize::try_from(passed).expect("less than the length");
        self.head_cell = if cell < self.cells.len() { cell } else { cell - self.cells.len() };
        self.head = pane;
    }

    pub(super) fn total(&self) -> u64 {
        self.total
    }

    /// Hits in the ring between two pane borders.
    pub(super) fn sum(&self, from_ms: i64, to_ms: i64, settings: &Settings) -> u64 {
        let from = settings.pane_of(from_ms).max(self.first());
        let to = (settings.pane_of(to_ms) - 1).min(self.head);
        if to - from < self.len() / 2 {
            return self.ring_sum(from..=to);
        }
        // Most of the ring: the rest is quicker to add up, and a wide window leaves none.
        self.total - self.ring_sum(self.first()..=from - 1) - self.ring_sum(to + 1..=self.head)
    }

    /// As `sum`, by the running total, where the range is the default window near the head.
    pub(super) fn window_sum(&self, from_ms: i64, to_ms: i64, settings: &Settings) -> Option<u64> {
        let (from, to) = (settings.pane_of(from_ms), settings.pane_of(to_ms) - 1);
        let panes = self.window_panes(settings)?;
        let moved = to - self.head;
        if to - from + 1 != panes || moved.abs() >= panes || from < self.first() {
            return None;
        }
        Some(if moved >= 0 {
            self.window_total - self.ring_sum(self.head - panes + 1..=to - panes)
        } else {
            self.window_total + self.ring_sum(from..=self.head - panes) - self.ring_sum(to + 1..=self.head)
        })
    }

    /// Stores the hits of a pane in as few bits as they need now.
    pub(super) fn narrow(&mut self) {
        self.cells.narrow();
    }

    pub(super) fn heap_bytes(&self) -> usize {
        self.cells.heap_bytes()
    }

    /// Panics when a total is not the sum of its panes.
    pub(super) fn check_consistency(&self, older: Option<&Panes>, settings: &Settings) {
        // The ring starts with the pane that the exact span cuts through, so that an older pane may
        // reach into it by one; hits in either are counted once.
        let first_ms = (self.first() + 1) * settings.resolution().as_millis();
        let older_end_ms = older.and_then(Panes::end_ms).unwrap_or(i64::MIN);
        assert!(older_end_ms <= first_ms, "a pane that ends at {older_end_ms} reaches into the ring");
        assert_eq!(self.total, self.ring_sum(self.first()..=self.head), "the ring's total");
        if let Some(panes) = self.window_panes(settings) {
            let window = self.ring_sum(self.head - panes + 1..=self.head);
            assert_eq!(self.window_total, window, "the running total of the default window");
        }
    }
}
