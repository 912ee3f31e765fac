//! A sorted list: the newest moments to the millisecond, older hits in panes.

use super::moment::Moment;
use crate::limits::MAX_MOMENTS;
use crate::panes::{Pane, Panes};
use crate::settings::Settings;
use crate::time::Timestamp;

/// The form of a key with more than a few moments that is not hot.
#[derive(Clone, Default, Debug)]
pub(crate) struct List {
    /// Hits older than the moments, or in the pane of the oldest.
    older: Panes,
    /// The newest distinct milliseconds, at most [`MAX_MOMENTS`], in order.
    moments: Vec<Moment>,
    /// All hits of the moments.
    moments_total: u64,
}

impl List {
    pub(crate) fn from_moment(moment: Option<Moment>) -> List {
        let moments_total = moment.map_or(0, |moment| moment.hits);
        List { older: Panes::default(), moments: moment.into_iter().collect(), moments_total }
    }

    pub(crate) fn from_panes(older: Panes) -> List {
        List { older, ..List::default() }
    }

    pub(crate) fn total(&self) -> u64 {
        self.older.total() + self.moments_total
    }

    /// Takes the list apart: panes, then moments.
    pub(crate) fn take_parts(&mut self) -> (Panes, Vec<Moment>) {
        (std::mem::take(&mut self.older), std::mem::take(&mut self.moments))
    }

    /// Whether a hit at `at_ms` needs a moment more than there is room for, and even the oldest is
    /// still inside the exact span: then a ring is smaller and faster.
    pub(crate) fn is_crowded(&self, at_ms: i64, settings: &Settings, now: Timestamp) -> bool {
        let exact_from_ms = now.as_millis() - settings.exact().as_millis();
        self.moments.len() == MAX_MOMENTS
            && self.moments[0].at_ms >= exact_from_ms
            && self.moments.binary_search_by_key(&at_ms, |moment| moment.at_ms).is_err()
    }

    pub(crate) fn add(&mut self, at_ms: i64, hits: u64, settings: &Settings, now: Timestamp) {
        if at_ms < self.moments_from_ms() {
            self.older.add(at_ms, hits, settings, now);
            return;
        }
        self.moments_total += hits;
        match self.moments.binary_search_by_key(&at_ms, |moment| moment.at_ms) {
            Ok(place) => self.moments[place].hits += hits,
            Err(place) => self.moments.insert(place, Moment { at_ms, hits }),
        }
        if self.moments.len() > MAX_MOMENTS {
            let oldest = self.moments.remove(0);
            self.moments_total -= oldest.hits;
            self.older.add(oldest.at_ms, oldest.hits, settings, now);
        }
    }

    /// Hits before this time belong into panes: hits that lie there already are newer.
    fn moments_from_ms(&self) -> i64 {
        let panes_end_ms = self.older.iter().next_back().map_or(i64::MIN, Pane::end_ms);
        match self.moments.first() {
            Some(first) => first.at_ms.min(panes_end_ms),
            None => panes_end_ms,
        }
    }

    pub(crate) fn sum(&self, from_ms: i64, to_ms: i64) -> u64 {
        let first = self.moments.partition_point(|moment| moment.at_ms < from_ms);
        let moments = self.moments[first..].iter().take_while(|moment| moment.at_ms < to_ms);
        self.older.sum(from_ms, to_ms) + moments.map(|moment| moment.hits).sum::<u64>()
    }

    pub(crate) fn merge(&mut self, settings: &Settings, now: Timestamp) {
        let horizon_ms = settings.horizon_ms(now);
        let expired = self.moments.partition_point(|moment| moment.at_ms < horizon_ms);
        self.moments_total -= self.moments.drain(..expired).map(|moment| moment.hits).sum::<u64>();
        self.older.merge(settings, now);
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        self.older.heap_bytes() + self.moments.capacity() * size_of::<Moment>()
    }

    /// Panics when the list is out of order or a total is wrong.
    pub(crate) fn check_consistency(&self, settings: &Settings, now: Timestamp) {
        self.older.check_consistency(settings, now);
        assert!(self.moments.is_sorted_by(|a, b| a.at_ms < b.at_ms), "moments are out of order");
        assert!(self.moments.len() <= MAX_MOMENTS, "{} moments", self.moments.len());
        let held = self.moments.iter().map(|moment| moment.hits).sum();
        assert_eq!(self.moments_total, held, "the total of the moments");
    }
}
