//! A ring of panes over the exact span with a running total, older hits in a list: the form of a hot
//! key. A hit and a read of the default window touch no more than the panes that time has passed.

use std::ops::RangeInclusive;

use crate::panes::{Pane, Panes};
use crate::settings::Settings;
use crate::time::Timestamp;

/// The form of a hot key.
#[derive(Clone, Debug)]
pub(crate) struct Dense {
    /// Hits of pane `n` in slot `n` modulo the length, for as many panes up to `head`.
    ring: Box<[u64]>,
    /// The newest pane of the ring, by number.
    head: i64,
    /// All hits in the ring.
    ring_total: u64,
    /// Hits of the default window ending at `head`; 0 when that window is longer than the ring.
    window_total: u64,
    /// Hits before the ring.
    older: Panes,
}

impl Dense {
    /// An empty ring up to the pane of `now`, before it the panes of `older` that the ring does not
    /// reach. The rest of `older` goes into the ring.
    pub(crate) fn new(mut older: Panes, settings: &Settings, now: Timestamp) -> Dense {
        let len = usize::try_from(settings.panes_in(settings.exact()) + 1).expect("bounded by limits");
        let head = settings.pane_of(now.as_millis());
        let ring = vec![0; len].into_boxed_slice();
        let mut dense = Dense { ring, head, ring_total: 0, window_total: 0, older: Panes::default() };
        let young = older.split_off(dense.first() * settings.resolution().as_millis());
        dense.older = older;
        for pane in young {
            dense.add(pane.start_ms, pane.hits, settings, now);
        }
        dense
    }

    fn len(&self) -> i64 {
        i64::try_from(self.ring.len()).expect("bounded by limits")
    }

    /// The oldest pane of the ring.
    fn first(&self) -> i64 {
        self.head - self.len() + 1
    }

    fn slot(&self, pane: i64) -> usize {
        usize::try_from(pane.rem_euclid(self.len())).expect("a remainder is smaller than the length")
    }

    /// Hits in panes of the ring.
    fn ring_sum(&self, panes: RangeInclusive<i64>) -> u64 {
        panes.map(|pane| self.ring[self.slot(pane)]).sum()
    }

    /// Length of the default window in panes, when the ring holds all of it.
    fn window_panes(&self, settings: &Settings) -> Option<i64> {
        let panes = settings.panes_in(settings.window());
        (panes < self.len()).then_some(panes)
    }

    pub(crate) fn add(&mut self, at_ms: i64, hits: u64, settings: &Settings, now: Timestamp) {
        let pane = settings.pane_of(at_ms);
        if pane < self.first() {
            self.older.add(at_ms, hits, settings, now);
            return;
        }
        self.advance(pane, settings, now);
        let slot = self.slot(pane);
        self.ring[slot] += hits;
        self.ring_total += hits;
        if self.window_panes(settings).is_some_and(|panes| pane > self.head - panes) {
            self.window_total += hits;
        }
    }

    /// Moves the ring on until `pane` is in it. Panes that fall off go to the older list.
    pub(crate) fn advance(&mut self, pane: i64, settings: &Settings, now: Timestamp) {
        if pane <= self.head {
            return;
        }
        if let Some(panes) = self.window_panes(settings) {
            self.window_total -= self.ring_sum(self.head - panes + 1..=(pane - panes).min(self.head));
        }
        let resolution_ms = settings.resolution().as_millis();
        for old in self.first()..=(pane - self.len()).min(self.head) {
            let slot = self.slot(old);
            let hits = std::mem::take(&mut self.ring[slot]);
            if hits > 0 {
                self.ring_total -= hits;
                self.older.add(old * resolution_ms, hits, settings, now);
            }
        }
        self.head = pane;
    }

    pub(crate) fn total(&self) -> u64 {
        self.older.total() + self.ring_total
    }

    /// Whether all hits are older than the ring: then the key is hot no more.
    pub(crate) fn is_quiet(&self) -> bool {
        self.ring_total == 0
    }

    /// The hits before the ring.
    pub(crate) fn take_older(&mut self) -> Panes {
        std::mem::take(&mut self.older)
    }

    /// Hits between two pane borders.
    pub(crate) fn sum(&self, from_ms: i64, to_ms: i64, settings: &Settings) -> u64 {
        let from = settings.pane_of(from_ms).max(self.first());
        let to = (settings.pane_of(to_ms) - 1).min(self.head);
        self.ring_sum(from..=to) + self.older.sum(from_ms, to_ms)
    }

    /// As `sum`, by the running total where the range is the default window near the head.
    pub(crate) fn exact_sum(&self, from_ms: i64, to_ms: i64, settings: &Settings) -> u64 {
        let (from, to) = (settings.pane_of(from_ms), settings.pane_of(to_ms) - 1);
        let moved = to - self.head;
        let Some(panes) = self
            .window_panes(settings)
            .filter(|&panes| to - from + 1 == panes && moved.abs() < panes && from >= self.first())
        else {
            return self.sum(from_ms, to_ms, settings);
        };
        if moved >= 0 {
            self.window_total - self.ring_sum(self.head - panes + 1..=to - panes)
        } else {
            self.window_total + self.ring_sum(from..=self.head - panes) - self.ring_sum(to + 1..=self.head)
        }
    }

    pub(crate) fn merge(&mut self, settings: &Settings, now: Timestamp) {
        self.advance(settings.pane_of(now.as_millis()), settings, now);
        self.older.merge(settings, now);
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        self.older.heap_bytes() + self.ring.len() * size_of::<u64>()
    }

    /// Panics when a total is not the sum of its panes.
    pub(crate) fn check_consistency(&self, settings: &Settings, now: Timestamp) {
        self.older.check_consistency(settings, now);
        // The ring starts with the pane that the exact span cuts through, so that an older pane may
        // reach into it by one; hits in either are counted once.
        let resolution_ms = settings.resolution().as_millis();
        let first_ms = (self.first() + 1) * resolution_ms;
        let older_end_ms = self.older.iter().next_back().map_or(i64::MIN, Pane::end_ms);
        assert!(older_end_ms <= first_ms, "a pane that ends at {older_end_ms} reaches into the ring");
        assert_eq!(self.ring_total, self.ring_sum(self.first()..=self.head), "the ring's total");
        if let Some(panes) = self.window_panes(settings) {
            let window = self.ring_sum(self.head - panes + 1..=self.head);
            assert_eq!(self.window_total, window, "the running total of the default window");
        }
    }
}
