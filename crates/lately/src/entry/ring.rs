//! A ring of panes over the exact span, with a running total: the form of a hot key. A hit, or a read of the
//! default window, touches only the panes that time has passed. From time to time a few dozen of the oldest
//! panes are moved out together.

use std::ops::{Range, RangeInclusive};

use super::cells::Cells;
use crate::panes::Pane;
use crate::settings::Settings;
use crate::time::Timestamp;

/// The newest panes of a hot key.
#[derive(Clone, Debug)]
pub(super) struct Ring {
    /// The hits of the panes up to `head`, cyclically. There are more cells than panes of the exact span, so
    /// that many panes can leave at once: they go to other memory.
    cells: Cells,
    /// The number of the newest pane in the ring, and its cell.
    head: i64,
    head_cell: u32,
    /// The number of panes in the ring. The other cells are 0.
    len: u32,
    /// The default window in panes; 0 if it is longer than the exact span.
    window: u32,
    /// All hits in the ring.
    total: u64,
    /// The hits of the default window that ends at `head`, if `window` is not 0.
    window_total: u64,
}

/// One extra cell for this many panes of the exact span.
const PANES_PER_EXTRA_CELL: u32 = 8;

/// The panes of the exact span, and one more for its cut edge.
fn least_panes(settings: &Settings) -> u32 {
    u32::try_from(settings.panes_in(settings.exact()) + 1).expect("bounded by limits")
}

/// The cells of a ring.
fn cells_of(settings: &Settings) -> u32 {
    let len = least_panes(settings);
    len + len / PANES_PER_EXTRA_CELL
}

impl Ring {
    /// The memory of a ring with hits in `filled` successive panes, up to `most` in each.
    pub(super) fn bytes_for(settings: &Settings, filled: i64, most: u64) -> usize {
        let cells = cells_of(settings);
        Cells::bytes_for(cells, u32::try_from(filled).unwrap_or(cells).min(cells), most)
    }

    /// The start of a ring that ends with the pane of `now`.
    pub(super) fn start_at(settings: &Settings, now: Timestamp) -> i64 {
        let first = settings.pane_of(now.as_millis()) - i64::from(least_panes(settings)) + 1;
        first * settings.resolution().as_millis()
    }

    /// An empty ring that ends with the pane of `now`.
    pub(super) fn new(settings: &Settings, now: Timestamp) -> Ring {
        let len = least_panes(settings);
        let window = u32::try_from(settings.panes_in(settings.window())).ok().filter(|&panes| panes < len);
        Ring {
            cells: Cells::new(cells_of(settings)),
            head: settings.pane_of(now.as_millis()),
            head_cell: len - 1,
            len,
            window: window.unwrap_or(0),
            total: 0,
            window_total: 0,
        }
    }

    /// The oldest pane of the ring.
    fn first(&self) -> i64 {
        self.head - i64::from(self.len) + 1
    }

    /// The start of the ring.
    pub(super) fn start_ms(&self, settings: &Settings) -> i64 {
        self.first() * settings.resolution().as_millis()
    }

    /// The cell of a pane in the ring.
    fn cell(&self, pane: i64) -> u32 {
        let back = u32::try_from(self.head - pane).expect("no pane is newer than the head");
        if back <= self.head_cell { self.head_cell - back } else { self.head_cell + self.cells.len() - back }
    }

    /// The pane of a cell.
    fn pane(&self, cell: u32) -> i64 {
        let back = (self.head_cell + self.cells.len() - cell) % self.cells.len();
        self.head - i64::from(back)
    }

    /// The panes with hits, oldest first.
    pub(super) fn panes(&self, settings: &Settings) -> impl Iterator<Item = Pane> {
        let width_ms = settings.resolution().as_millis();
        let ranges = self.ranges(self.first()..=self.head).into_iter();
        ranges.flat_map(|cells| self.filled(cells)).map(move |(cell, hits)| Pane {
            start_ms: self.pane(cell) * width_ms,
            width_ms,
            hits,
        })
    }

    /// The cells of a range that have hits, and these.
    fn filled(&self, cells: Range<u32>) -> impl Iterator<Item = (u32, u64)> {
        let mut next = cells.start;
        std::iter::from_fn(move || {
            loop {
                let cell = self.cells.next_filled(next);
                if cell >= cells.end {
                    return None;
                }
                next = cell + 1;
                let hits = self.cells.get(cell);
                if hits > 0 {
                    return Some((cell, hits));
                }
            }
        })
    }

    /// The hits in panes of the ring.
    fn ring_sum(&self, panes: RangeInclusive<i64>) -> u64 {
        self.ranges(panes).into_iter().map(|cells| self.cells.sum(cells)).sum()
    }

    /// The cells of panes in the ring, in the order of the panes.
    fn ranges(&self, panes: RangeInclusive<i64>) -> [Range<u32>; 2] {
        if panes.is_empty() {
            return [0..0, 0..0];
        }
        let (first, last) = (self.cell(*panes.start()), self.cell(*panes.end()));
        if first <= last { [first..last + 1, 0..0] } else { [first..self.cells.len(), 0..last + 1] }
    }

    /// The pane in which the hits of the ring from `from_ms` on, summed from the oldest, reach `hits`, which
    /// is at least one. `None` if there are fewer.
    pub(super) fn reach(&self, from_ms: i64, hits: u64, settings: &Settings) -> Option<Pane> {
        let width_ms = settings.resolution().as_millis();
        let from = settings.pane_of(from_ms).max(self.first());
        let mut left = hits;
        for cells in self.ranges(from..=self.head) {
            match self.cells.reach(cells, left) {
                Ok(cell) => {
                    let start_ms = self.pane(cell) * width_ms;
                    return Some(Pane { start_ms, width_ms, hits: self.cells.get(cell) });
                }
                Err(fewer) => left = fewer,
            }
        }
        None
    }

    /// The default window in panes, if the ring covers it.
    fn window_panes(&self) -> Option<i64> {
        (self.window > 0).then_some(i64::from(self.window))
    }

    /// Adds hits at a time that is not after the ring. False if it is before the ring.
    pub(super) fn add(&mut self, at_ms: i64, hits: u64, settings: &Settings) -> bool {
        let pane = settings.pane_of(at_ms);
        if pane < self.first() {
            return false;
        }
        self.cells.add(self.cell(pane), hits);
        self.total += hits;
        if self.window_panes().is_some_and(|panes| pane > self.head - panes) {
            self.window_total += hits;
        }
        true
    }

    /// Removes hits of the pane of a time, as far as it has them. Returns how many.
    pub(super) fn subtract(&mut self, at_ms: i64, hits: u64, settings: &Settings) -> u64 {
        let pane = settings.pane_of(at_ms);
        if !(self.first()..=self.head).contains(&pane) {
            return 0;
        }
        let taken = self.cells.take(self.cell(pane), hits);
        self.total -= taken;
        if self.window_panes().is_some_and(|panes| pane > self.head - panes) {
            self.window_total -= taken;
        }
        taken
    }

    /// Adds hits to the newest pane. Returns the hits of the default window that ends with it. If the ring
    /// does not cover that window, nothing is added.
    #[inline]
    pub(super) fn add_newest(&mut self, hits: u64) -> Option<u64> {
        self.window_panes()?;
        self.cells.add(self.head_cell, hits);
        self.total += hits;
        self.window_total += hits;
        Some(self.window_total)
    }

    /// Whether a time is in the newest pane.
    #[inline]
    pub(super) fn ends_with(&self, at_ms: i64, settings: &Settings) -> bool {
        settings.pane_of(at_ms) == self.head
    }

    /// Whether a time is after the ring.
    #[inline]
    pub(super) fn ends_before(&self, at_ms: i64, settings: &Settings) -> bool {
        settings.pane_of(at_ms) > self.head
    }

    /// Advances the ring to `pane`. Calls `leave` with the start and the hits of each pane that leaves it.
    pub(super) fn advance(&mut self, pane: i64, settings: &Settings, mut leave: impl FnMut(i64, u64)) {
        if pane <= self.head {
            return;
        }
        if let Some(panes) = self.window_panes() {
            self.window_total -= self.ring_sum(self.head - panes + 1..=(pane - panes).min(self.head));
        }
        let passed = pane - self.head;
        let cells = i64::from(self.cells.len());
        let mut len = i64::from(self.len) + passed;
        if len > cells {
            len = least_panes(settings).into();
            for cells in self.ranges(self.first()..=(pane - len).min(self.head)) {
                let mut cell = self.cells.next_filled(cells.start);
                while cell < cells.end {
                    let hits = self.cells.take(cell, u64::MAX);
                    if hits > 0 {
                        self.total -= hits;
                        leave(self.pane(cell) * settings.resolution().as_millis(), hits);
                    }
                    cell = self.cells.next_filled(cell + 1);
                }
            }
        }
        let head_cell = (i64::from(self.head_cell) + passed).rem_euclid(cells);
        let small = |number: i64| u32::try_from(number).expect("at most as many as cells");
        (self.head, self.head_cell, self.len) = (pane, small(head_cell), small(len));
    }

    /// Prefetches the cells that a hit of now reads, and the start of the default window.
    #[inline]
    pub(super) fn prefetch(&self) {
        self.cells.prefetch(self.head_cell);
        let next = self.head_cell + 1;
        self.cells.prefetch(if next < self.cells.len() { next } else { 0 });
        if let Some(panes) = self.window_panes() {
            self.cells.prefetch(self.cell(self.head - panes + 1));
        }
    }

    pub(super) fn total(&self) -> u64 {
        self.total
    }

    /// The hits in the ring between two pane borders.
    pub(super) fn sum(&self, from_ms: i64, to_ms: i64, settings: &Settings) -> u64 {
        let from = settings.pane_of(from_ms).max(self.first());
        let to = (settings.pane_of(to_ms) - 1).min(self.head);
        if to - from < i64::from(self.len) / 2 {
            return self.ring_sum(from..=to);
        }
        // The range is most of the ring: subtract the rest, which is faster. A wide window leaves no rest.
        self.total - self.ring_sum(self.first()..=from - 1) - self.ring_sum(to + 1..=self.head)
    }

    /// The hits of the default window near the head, from the running total.
    pub(super) fn window_sum(&self, from_ms: i64, to_ms: i64, settings: &Settings) -> Option<u64> {
        let (from, to) = (settings.pane_of(from_ms), settings.pane_of(to_ms) - 1);
        let panes = self.window_panes()?;
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

    /// Shrinks the cells to the bits that they need now.
    pub(super) fn narrow(&mut self) {
        self.cells.narrow();
    }

    pub(super) fn heap_bytes(&self) -> usize {
        self.cells.heap_bytes()
    }

    /// Panics if a total is not the sum of its panes.
    pub(super) fn check_consistency(&self, older_end_ms: Option<i64>, settings: &Settings, now: Timestamp) {
        let least = least_panes(settings);
        assert!((least..=self.cells.len()).contains(&self.len), "{} panes", self.len);
        // The exact span ends within a pane, so an older pane may reach one pane into it. Hits in either are
        // counted once.
        let newest = self.head.max(settings.pane_of(now.as_millis()));
        let exact_ms = (newest - i64::from(least) + 2) * settings.resolution().as_millis();
        let older_end_ms = older_end_ms.unwrap_or(i64::MIN);
        assert!(older_end_ms <= exact_ms, "a pane that ends at {older_end_ms} reaches into the exact span");
        self.cells.check_consistency();
        let cells: u64 = (0..self.cells.len()).map(|cell| self.cells.get(cell)).sum();
        assert_eq!(self.total, self.ring_sum(self.first()..=self.head), "the ring's total");
        assert_eq!(self.total, cells, "a cell without a pane has hits");
        if let Some(panes) = self.window_panes() {
            let window = self.ring_sum(self.head - panes + 1..=self.head);
            assert_eq!(self.window_total, window, "the running total of the default window");
        }
    }
}
