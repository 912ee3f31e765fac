//! Coarse panes: hits from elsewhere in panes that the class would not have. They come from a checkpoint, a
//! dump or another node, of a class with wider panes, or of a clock that was ahead.
//!
//! The position of the hits in such a pane is unknown. So these panes stay as they are, separate from the
//! others, until they leave the retention. A window that cuts such a pane includes all of its hits in
//! `upper`, none in `lower`, and its share by time in `estimate`. A limit counts all of them until the pane
//! has left.

use std::ops::Range;

use crate::allocation::allocated;
use crate::count::Count;
use crate::panes::{Pane, Panes};
use crate::settings::Settings;
use crate::time::{Span, Timestamp};

/// Panes that are wider than their age allows, or further in the future than hits may be.
#[derive(Clone, Debug)]
pub(super) struct Coarse {
    panes: Panes,
    /// No hit is later than this. For hits, the newest pane ends here.
    latest_ms: i64,
    /// When the hits were looked at. Hardly any of them is later: only those of a clock that is ahead. For other nodes' hits, of which more
    /// may come into their panes, that is before `latest_ms`.
    seen_ms: i64,
    /// The first time at which a pane fits: its age allows its width, or the clock has reached it.
    fits_from_ms: i64,
    /// No pane is narrower.
    narrowest_ms: i64,
}

/// Which coarse panes of an entry have been fitted: those that fit by some time.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Fitted {
    /// The end of the last pane that fits; 0 if none does. Moments before it are in panes, too.
    pub(super) end_ms: i64,
    /// Whether the newest pane fits.
    has_newest: bool,
}

/// The hits before an edge.
#[derive(Clone, Copy)]
struct Before {
    /// The hits of panes that end at the edge or earlier.
    whole: u64,
    /// The pane that contains the edge.
    cut: Option<Pane>,
    /// The hits of this pane before the edge, if they are spread evenly.
    share: u64,
}

impl Coarse {
    /// Panes in any order, with no hit after `latest_ms`. `None` if there are no panes.
    pub(super) fn new(panes: Vec<Pane>, latest_ms: i64, settings: &Settings) -> Option<Coarse> {
        Coarse::of(Panes::from_any(panes), latest_ms, settings)
    }

    fn of(panes: Panes, latest_ms: i64, settings: &Settings) -> Option<Coarse> {
        let latest_ms = latest_ms.max(panes.newest()?.start_ms);
        let (fits_from_ms, narrowest_ms) = (i64::MAX, i64::MAX);
        let mut coarse = Coarse { panes, latest_ms, seen_ms: latest_ms, fits_from_ms, narrowest_ms };
        coarse.find_least(settings);
        Some(coarse)
    }

    /// The same, of hits that were looked at then.
    pub(super) fn seen_at(self, seen_ms: i64) -> Coarse {
        Coarse { seen_ms: seen_ms.min(self.latest_ms), ..self }
    }

    /// Finds out when the first pane fits, and how wide the narrowest is.
    fn find_least(&mut self, settings: &Settings) {
        let panes = self.panes.iter().map(|pane| (fits_from_ms(pane, settings), pane.width_ms));
        let least =
            panes.fold((i64::MAX, i64::MAX), |least, pane| (least.0.min(pane.0), least.1.min(pane.1)));
        (self.fits_from_ms, self.narrowest_ms) = least;
    }

    /// Removes the hits with these ranks, counted from the oldest, and returns them.
    pub(super) fn take(&mut self, ranks: Range<u64>, settings: &Settings) -> Option<Coarse> {
        let taken = Coarse::of(self.panes.take(ranks), self.latest_ms, settings)?.seen_at(self.seen_ms);
        if taken.fits_from_ms <= self.fits_from_ms {
            self.find_least(settings);
        }
        Some(taken)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.panes.is_empty()
    }

    /// The panes that have been fitted by a time.
    pub(super) fn fitted_by(&self, now: Timestamp, settings: &Settings) -> Fitted {
        if !self.has_fitting(now) {
            return Fitted::default();
        }
        let fits = |pane: &Pane| fits_from_ms(*pane, settings) <= now.as_millis();
        // No pane fits that starts at this edge or later: it is too new for the narrowest width, or too far in the future. Wider
        // panes fit later, so the search begins there and does not go far.
        let edge_ms = match settings.ladder().age_of_ms(self.narrowest_ms).unwrap_or(0) {
            0 => now.as_millis() + settings.max_skew().as_millis() + 1,
            age_ms => now.as_millis() - age_ms,
        };
        let last = self.panes.newest_first(edge_ms).find(fits);
        Fitted {
            end_ms: last.map_or(0, Pane::end_ms),
            has_newest: last.is_some() && last == self.panes.newest(),
        }
    }

    /// Whether a pane fits by now. If so, the key's hits must be fitted again.
    pub(super) fn has_fitting(&self, now: Timestamp) -> bool {
        now.as_millis() >= self.fits_from_ms
    }

    /// No hit is later than this.
    pub(super) fn latest_ms(&self) -> i64 {
        self.latest_ms
    }

    /// The panes.
    pub(super) fn panes(&self) -> &Panes {
        &self.panes
    }

    pub(super) fn total(&self) -> u64 {
        self.panes.total()
    }

    pub(super) fn heap_bytes(&self) -> usize {
        allocated(size_of::<Coarse>()) + self.panes.heap_bytes()
    }

    /// Without panes that end at `horizon_ms` or before. `None` if none is left.
    pub(super) fn without_those_before(&self, horizon_ms: i64, settings: &Settings) -> Option<Coarse> {
        let kept = self.panes.iter().filter(|pane| pane.end_ms() > horizon_ms);
        let kept = Coarse::new(kept.collect(), self.latest_ms, settings)?;
        Some(kept.seen_at(self.seen_ms))
    }

    /// Whether a pane ends at `horizon_ms` or before.
    pub(super) fn begins_before(&self, horizon_ms: i64) -> bool {
        self.panes.iter().next().is_some_and(|pane| pane.end_ms() <= horizon_ms)
    }

    /// The millisecond after the last one in which a hit of the pane may be.
    fn end_ms(&self, pane: Pane) -> i64 {
        pane.end_ms().min(self.latest_ms + 1)
    }

    /// The same of most hits: those that were over when they were looked at.
    fn seen_end_ms(&self, pane: Pane) -> i64 {
        let end_ms = self.end_ms(pane);
        // A clock that is ahead has counted it.
        let is_ahead = self.seen_ms < pane.start_ms;
        if is_ahead { end_ms } else { end_ms.min(self.seen_ms + 1) }
    }

    /// The hits before an edge. `end_ms` says where a pane ends: one that ends later than the edge contains it. Its share before the edge is
    /// always that of hits that were over when they were looked at.
    fn before(&self, edge_ms: i64, end_ms: impl Fn(Pane) -> i64) -> Before {
        let (started, last) = self.panes.started_before(edge_ms);
        let Some(pane) = last.filter(|&pane| end_ms(pane) > edge_ms) else {
            return Before { whole: started, cut: None, share: 0 };
        };
        let width_ms = i128::from(self.seen_end_ms(pane) - pane.start_ms);
        let numerator = i128::from(pane.hits) * i128::from(edge_ms - pane.start_ms);
        let share = u64::try_from((2 * numerator + width_ms) / (2 * width_ms)).unwrap_or(pane.hits);
        Before { whole: started - pane.hits, cut: Some(pane), share: share.min(pane.hits) }
    }

    /// Adds the hits between two edges to the count of the other hits there.
    pub(super) fn add_to(&self, count: Count, far_ms: i64, near_ms: i64) -> Count {
        if far_ms >= near_ms {
            return count;
        }
        let [far, near] = [far_ms, near_ms].map(|edge_ms| self.before(edge_ms, |pane| self.end_ms(pane)));
        let hits = |pane: Option<Pane>| pane.map_or(0, |pane| pane.hits);
        let upper = near.whole + hits(near.cut) - far.whole;
        let lower = (near.whole - far.whole).saturating_sub(hits(far.cut));
        // A window that ends later than the hits were looked at has nearly all of them.
        let near = self.before(near_ms, |pane| self.seen_end_ms(pane));
        let estimate = near.whole + near.share - far.whole - far.share;
        let cell = far.cut.and_then(|pane| Span::from_millis(pane.width_ms));
        Count {
            estimate: count.estimate + estimate,
            lower: count.lower + lower,
            upper: count.upper.map(|others| others + upper),
            cell: cell.map_or(count.cell, |cell| cell.max(count.cell)),
        }
    }

    /// The hits that may be at `from_ms` or later.
    pub(super) fn from(&self, from_ms: i64) -> u64 {
        self.total() - self.before(from_ms, |pane| self.end_ms(pane)).whole
    }

    /// The hits of fitted panes in the cell at the far edge of a window: the cell starts at `cell_ms`, the window at `from_ms`. They
    /// have no hit in the window, but the whole cell counts. A pane in the cell is not wider than it, so it fits by then.
    pub(super) fn fitted_from(&self, (cell_ms, from_ms): (i64, i64), fitted: Fitted) -> u64 {
        let before = self.before(from_ms, |pane| self.end_ms(pane));
        let hits = before.whole.saturating_sub(self.panes.started_before(cell_ms).0);
        // The newest pane may have no hit in the rest of its time. Then it fits later than its hits have left.
        let is_not_fitted = |newest: &Pane| {
            !fitted.has_newest && cell_ms <= newest.start_ms && self.end_ms(*newest) <= from_ms
        };
        hits - self.panes.newest().filter(is_not_fitted).map_or(0, |newest| newest.hits)
    }

    /// Panics unless the panes are sorted and disjoint.
    pub(super) fn check_consistency(&self) {
        assert!(!self.panes.is_empty(), "no panes are kept as coarse");
        self.panes.check_order();
    }
}

/// The time from which a pane fits: its age allows its width, and it is not too far in the future.
pub(super) fn fits_from_ms(pane: Pane, settings: &Settings) -> i64 {
    let age_ms = settings.ladder().age_of_ms(pane.width_ms).unwrap_or(i64::MAX);
    let allowed_ms = if age_ms == 0 { 0 } else { pane.end_ms().saturating_add(age_ms) };
    allowed_ms.max(pane.start_ms - settings.max_skew().as_millis())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::{milliseconds, minutes, seconds};

    fn pane(start_ms: i64, width_ms: i64, hits: u64) -> Pane {
        Pane { start_ms, width_ms, hits }
    }

    fn count(estimate: u64, lower: u64, upper: u64, cell: Span) -> Count {
        Count { estimate, lower, upper: Some(upper), cell }
    }

    #[test]
    fn a_partly_covered_pane_counts_in_proportion() {
        // The newest hit is at 24,999 ms, so the pane from 20 s on is 5 s long.
        let panes = vec![pane(20_000, 10_000, 50), pane(0, 10_000, 100)];
        let settings = Settings::default();
        let coarse = Coarse::new(panes, 24_999, &settings).expect("two panes");
        let none = count(0, 0, 0, seconds(1));
        let check = |far_ms, near_ms, expected| {
            assert_eq!(coarse.add_to(none, far_ms, near_ms), expected, "{far_ms} to {near_ms}");
        };
        check(0, 25_000, count(150, 150, 150, seconds(1)));
        check(0, 10_000, count(100, 100, 100, seconds(1)));
        check(2_500, 25_000, count(125, 50, 150, seconds(10)));
        check(2_500, 5_000, count(25, 0, 100, seconds(10)));
        check(2_500, 21_000, count(85, 0, 150, seconds(10)));
        check(10_000, 20_000, none);
        check(24_000, 30_000, count(10, 0, 50, seconds(10)));
        check(25_000, 30_000, none);
        assert_eq!([0, 9_999, 10_000, 24_999, 25_000].map(|ms| coarse.from(ms)), [150, 150, 50, 50, 0]);
    }

    #[test]
    fn hits_that_others_have_counted_are_hardly_later_than_now() {
        // At 13,999 ms, 40 hits are known of a pane that others still count in.
        let settings = Settings::default();
        let coarse = Coarse::new(vec![pane(10_000, 10_000, 40)], 19_999, &settings).expect("a pane");
        let coarse = coarse.seen_at(13_999);
        let none = count(0, 0, 0, seconds(1));
        let check = |far_ms, near_ms, expected| {
            assert_eq!(coarse.add_to(none, far_ms, near_ms), expected, "{far_ms} to {near_ms}");
        };
        // A clock that is ahead may have counted some of them.
        check(0, 14_000, count(40, 0, 40, seconds(1)));
        check(0, 16_000, count(40, 0, 40, seconds(1)));
        check(0, 12_000, count(20, 0, 40, seconds(1)));
        check(12_000, 14_000, count(20, 0, 40, seconds(10)));
        // More may have come since.
        check(16_000, 18_000, count(0, 0, 40, seconds(10)));
        check(20_000, 30_000, none);
        // All of them come from a clock that is ahead.
        let ahead = coarse.seen_at(9_000);
        assert_eq!(ahead.add_to(none, 0, 14_000), count(16, 0, 40, seconds(1)));
        assert_eq!(ahead.add_to(none, 0, 20_000), count(40, 40, 40, seconds(1)));
    }

    #[test]
    fn overlapping_panes_are_merged() {
        let panes =
            vec![pane(5_000, 1_000, 1), pane(0, 10_000, 2), pane(9_000, 1_000, 4), pane(10_000, 500, 8)];
        let settings = Settings::builder().resolution(milliseconds(500)).build().expect("valid");
        let coarse = Coarse::new(panes, 60_000, &settings).expect("panes");
        assert_eq!(coarse.panes().iter().collect::<Vec<_>>(), [pane(0, 10_000, 7), pane(10_000, 500, 8)]);
        coarse.check_consistency();
        let rest = coarse.without_those_before(10_000, &settings).expect("one is left");
        assert_eq!((rest.total(), rest.without_those_before(10_500, &settings).is_none()), (8, true));
    }

    #[test]
    fn a_pane_fits_once_the_ladder_allows_its_width() {
        let settings = Settings::default();
        let check = |start_s: i64, width_s: i64, expected_s: i64| {
            let pane = pane(start_s * 1_000, width_s * 1_000, 1);
            let from_ms = fits_from_ms(pane, &settings);
            assert_eq!(from_ms, expected_s * 1_000, "{pane:?}");
            let age_ms = from_ms - pane.end_ms();
            if width_s > 1 {
                assert!(settings.ladder().pane_width_ms(age_ms) >= pane.width_ms);
                assert!(settings.ladder().pane_width_ms(age_ms - 1) < pane.width_ms);
            }
        };
        // A width of 10 s is 1 % of 1,000 s; 2 s fits from the end of the exact span on; 1 s at once.
        check(500, 10, 1_510);
        check(500, 2, 502 + 360);
        check(500, 1, 490);
        assert_eq!(settings.exact(), minutes(6));
    }
}
