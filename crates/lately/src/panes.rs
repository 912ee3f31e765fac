//! A sorted list of disjoint panes, the form in which old hits are kept.

use crate::ladder::RUNGS_MS;
use crate::limits::MAX_MOMENTS;
use crate::settings::Settings;
use crate::time::Timestamp;

/// A slice of time and the hits in it. Its start is a multiple of its width.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Pane {
    pub(crate) start_ms: i64,
    pub(crate) width_ms: i64,
    pub(crate) hits: u64,
}

impl Pane {
    pub(crate) fn end_ms(self) -> i64 {
        self.start_ms + self.width_ms
    }
}

/// Panes, oldest first, of any widths of the ladder, none overlapping another.
#[derive(Clone, Default, Debug)]
pub(crate) struct Panes {
    list: Vec<Pane>,
    /// All hits in the list.
    total: u64,
    /// Length of the list after the last merge.
    merged_len: usize,
}

/// Below this length merging is not worth a pass.
const MERGE_FROM: usize = 32;

impl Panes {
    pub(crate) fn total(&self) -> u64 {
        self.total
    }

    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = Pane> + '_ {
        self.list.iter().copied()
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        self.list.capacity() * size_of::<Pane>()
    }

    /// Adds `hits` at `time_ms`: to the pane that covers it, else to a new one of the resolution.
    pub(crate) fn add(&mut self, time_ms: i64, hits: u64, settings: &Settings, now: Timestamp) {
        self.total += hits;
        // Hits that age out of a finer form arrive in order, so the end is the place to look first.
        let after = match self.list.last() {
            Some(last) if last.start_ms > time_ms => {
                self.list.partition_point(|pane| pane.start_ms <= time_ms)
            }
            _ => self.list.len(),
        };
        if let Some(before) = after.checked_sub(1).map(|index| &mut self.list[index])
            && time_ms < before.end_ms()
        {
            before.hits += hits;
            return;
        }
        let width_ms = settings.resolution().as_millis();
        let start_ms = settings.pane_of(time_ms) * width_ms;
        self.list.insert(after, Pane { start_ms, width_ms, hits });
        let most = merge_threshold(settings);
        if self.list.len() >= (2 * self.merged_len).clamp(MERGE_FROM, most) {
            self.merge(settings, now);
        }
    }

    /// Takes out the panes that start at `from_ms` or later.
    pub(crate) fn split_off(&mut self, from_ms: i64) -> Vec<Pane> {
        let split = self.list.split_off(self.list.partition_point(|pane| pane.start_ms < from_ms));
        self.total -= split.iter().map(|pane| pane.hits).sum::<u64>();
        split
    }

    /// Hits between two pane borders.
    pub(crate) fn sum(&self, from_ms: i64, to_ms: i64) -> u64 {
        let first = self.list.partition_point(|pane| pane.start_ms < from_ms);
        self.list[first..].iter().take_while(|pane| pane.start_ms < to_ms).map(|pane| pane.hits).sum()
    }

    /// Drops what no answer can show any more and joins neighbours as far as their age allows.
    pub(crate) fn merge(&mut self, settings: &Settings, now: Timestamp) {
        let horizon_ms = settings.horizon_ms(now);
        let expired = self.list.partition_point(|pane| pane.end_ms() <= horizon_ms);
        self.total -= self.list.drain(..expired).map(|pane| pane.hits).sum::<u64>();
        self.list.dedup_by(|newer, older| {
            let Some(joined) = join(*older, *newer, settings, now) else { return false };
            *older = joined;
            true
        });
        self.merged_len = self.list.len();
        self.list.shrink_to(self.merged_len + self.merged_len / 4);
    }

    /// Panics unless the panes are sorted, disjoint, aligned, not empty, and as narrow as their age
    /// demands.
    pub(crate) fn check_consistency(&self, settings: &Settings, now: Timestamp) {
        for pane in &self.list {
            let Pane { start_ms, width_ms, hits } = *pane;
            assert!(hits > 0, "an empty pane at {start_ms}");
            assert!(start_ms.rem_euclid(width_ms) == 0, "a pane of {width_ms} ms at {start_ms}");
            let widest = settings.ladder().pane_width_ms(now.as_millis() - pane.end_ms());
            assert!(width_ms <= widest, "a pane of {width_ms} ms at {start_ms} may have {widest} at {now}");
        }
        for pair in self.list.windows(2) {
            let (end_ms, start_ms) = (pair[0].end_ms(), pair[1].start_ms);
            assert!(end_ms <= start_ms, "panes overlap: {end_ms} > {start_ms}");
        }
        assert_eq!(self.total, self.list.iter().map(|pane| pane.hits).sum(), "the total of the panes");
        assert!(self.list.len() <= merge_threshold(settings), "{} panes", self.list.len());
    }
}

/// The widest pane that may hold both at `now`, if any.
fn join(older: Pane, newer: Pane, settings: &Settings, now: Timestamp) -> Option<Pane> {
    let narrowest_ms = older.width_ms.max(newer.width_ms);
    let widths = RUNGS_MS.into_iter().rev().take_while(|&width_ms| width_ms >= narrowest_ms);
    let mut joined = widths.map(|width_ms| {
        let start_ms = older.start_ms.div_euclid(width_ms) * width_ms;
        Pane { start_ms, width_ms, hits: older.hits + newer.hits }
    });
    // A wider pane ends later and so is younger: each width is checked against its own age.
    joined.find(|pane| {
        let allowed_ms = settings.ladder().pane_width_ms(now.as_millis() - pane.end_ms());
        newer.start_ms < pane.end_ms() && pane.width_ms <= allowed_ms
    })
}

/// The most panes a list holds: a quarter more than merging can leave, so that merging is rare.
pub(crate) fn merge_threshold(settings: &Settings) -> usize {
    let bound = settings.pane_bound();
    bound + bound / 4 + MAX_MOMENTS
}
