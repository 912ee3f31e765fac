//! The hits of a whole log by key: in a window, at the peak, and in total.
//!
//! Time is cut into panes: of a second if the window is whole seconds, or else of the widest rung of the ladder
//! ([`lately::RUNGS_MS`]) that divides the window. The window that ends at t has the hits with 0 ≤ pane(t) −
//! pane(hit) < window / pane. Lines may come in any order: all panes of a key are kept until the end, so every number
//! is exact.

use std::cmp::{Ordering, Reverse};

use lately::{RUNGS_MS, Span, Timestamp};

use crate::by_key::{Batch, ByKey};
use crate::ranking::Ranking;

/// Counts hits. [`TallyBuilder::build`] answers.
#[derive(Clone, Debug)]
pub struct TallyBuilder {
    tally: Tally,
    batch: Batch,
}

/// The hits of a log, counted.
#[derive(Clone, Debug)]
pub struct Tally {
    pane_ms: i64,
    window_panes: i64,
    newest: Option<Timestamp>,
    /// The newest time before `newest`.
    next_newest: Option<Timestamp>,
    hits: ByKey,
}

/// The numbers of one key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Row {
    /// The key.
    pub key: Vec<u8>,
    /// Hits in the requested window.
    pub hits: u64,
    /// The most hits in any window of that length.
    pub peak: u64,
    /// The start of the pane in which the earliest such window ends. The pane has a hit.
    pub peak_at: Timestamp,
    /// All hits.
    pub total: u64,
}

/// The numbers of one key, before its name is looked up.
struct Figures {
    key: u32,
    hits: u64,
    peak: u64,
    peak_pane: i64,
    total: u64,
}

impl TallyBuilder {
    /// Counts one hit. Panics past four billion distinct keys.
    pub fn hit(&mut self, key: &[u8], at: Timestamp) {
        let TallyBuilder { tally, batch } = self;
        match tally.newest {
            Some(newest) if at <= newest => {
                if at < newest && tally.next_newest.is_none_or(|next| at > next) {
                    tally.next_newest = Some(at);
                }
            }
            before => (tally.newest, tally.next_newest) = (Some(at), before),
        }
        batch.push(key, at.as_millis() / tally.pane_ms);
        if batch.is_full() {
            tally.hits.hit_all(batch);
        }
    }

    /// All hits so far.
    #[must_use]
    pub fn build(mut self) -> Tally {
        self.tally.hits.hit_all(&mut self.batch);
        self.tally
    }
}

impl Tally {
    /// Counts for windows of this length.
    #[must_use]
    pub fn builder(window: Span) -> TallyBuilder {
        let window_ms = window.as_millis();
        let pane_ms = if window_ms % 1_000 == 0 {
            1_000
        } else {
            // The narrowest rung, a millisecond, divides every span.
            RUNGS_MS.into_iter().rev().find(|rung| window_ms % rung == 0).unwrap_or(1)
        };
        let tally = Tally {
            pane_ms,
            window_panes: window_ms / pane_ms,
            newest: None,
            next_newest: None,
            hits: ByKey::default(),
        };
        TallyBuilder { tally, batch: Batch::default() }
    }

    /// Time of the newest hit.
    #[must_use]
    pub fn newest(&self) -> Option<Timestamp> {
        self.newest
    }

    /// The distance between the newest hit and the next older time, if it exceeds the window. A window that ends at
    /// the newest hit then has no other hits.
    #[must_use]
    pub fn gap(&self) -> Option<Span> {
        let gap_ms = self.newest?.as_millis() - self.next_newest?.as_millis();
        Span::from_millis(gap_ms).filter(|_| gap_ms > self.window_panes * self.pane_ms)
    }

    /// Distinct keys.
    #[must_use]
    pub fn keys(&self) -> usize {
        self.hits.len()
    }

    /// Width of the panes that hits are counted in.
    #[must_use]
    pub fn pane(&self) -> Span {
        Span::from_millis(self.pane_ms).expect("a pane is a rung")
    }

    /// The panes of a key that have hits, by their starts, oldest first.
    #[must_use]
    pub fn panes(&self, key: &[u8]) -> Vec<(Timestamp, u64)> {
        let mut panes = Vec::new();
        if let Some(key) = self.hits.number(key) {
            self.hits.runs(key).sorted_into(&mut panes);
        }
        panes.into_iter().map(|(pane, hits)| (self.start(pane), hits)).collect()
    }

    /// The first `top` keys, or all of them, sorted by hits in the window that ends at `at` (default: the newest
    /// hit), then by peak, then by total (most first), then by key bytes. Peak and total are over the whole log
    /// whatever `at` is.
    #[must_use]
    pub fn rows(&self, at: Option<Timestamp>, top: Option<usize>) -> Vec<Row> {
        let Some(at) = at.or(self.newest) else { return Vec::new() };
        let end_pane = at.as_millis() / self.pane_ms;
        let mut panes = Vec::new();
        let mut ranking = Ranking::new(top, |a, b| self.order(a, b));
        for (key, runs) in self.hits.iter() {
            runs.sorted_into(&mut panes);
            ranking.push(self.figures(key, &panes, end_pane));
        }
        ranking.into_best().iter().map(|figures| self.row(figures)).collect()
    }

    /// The numbers of a key from its panes with hits, oldest first.
    fn figures(&self, key: u32, panes: &[(i64, u64)], end_pane: i64) -> Figures {
        let mut figures = Figures { key, hits: 0, peak: 0, peak_pane: 0, total: 0 };
        let (mut oldest, mut in_window) = (0, 0);
        for &(pane, hits) in panes {
            in_window += hits;
            while pane - panes[oldest].0 >= self.window_panes {
                in_window -= panes[oldest].1;
                oldest += 1;
            }
            if in_window > figures.peak {
                (figures.peak, figures.peak_pane) = (in_window, pane);
            }
            if (0..self.window_panes).contains(&(end_pane - pane)) {
                figures.hits += hits;
            }
            figures.total += hits;
        }
        figures
    }

    /// Most hits first, then peak, then total, then key bytes.
    fn order(&self, a: &Figures, b: &Figures) -> Ordering {
        let numbers = |of: &Figures| Reverse((of.hits, of.peak, of.total));
        numbers(a).cmp(&numbers(b)).then_with(|| self.hits.key(a.key).cmp(self.hits.key(b.key)))
    }

    fn row(&self, figures: &Figures) -> Row {
        Row {
            key: self.hits.key(figures.key).to_vec(),
            hits: figures.hits,
            peak: figures.peak,
            peak_at: self.start(figures.peak_pane),
            total: figures.total,
        }
    }

    /// The start of a pane, which has a hit.
    fn start(&self, pane: i64) -> Timestamp {
        Timestamp::from_millis(pane * self.pane_ms).expect("a pane starts no later than its hits")
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use lately::{milliseconds, minutes, seconds};
    use proptest::prelude::*;

    use super::*;

    fn time(millis: i64) -> Timestamp {
        Timestamp::from_millis(millis).expect("in range")
    }

    /// Every pane with a hit tried as the end of a window, every hit looked at for each.
    fn naive(hits: &[(u8, i64)], window: Span, at_ms: Option<i64>) -> Vec<Row> {
        let pane_ms = (1..=1_000)
            .rev()
            .find(|width| RUNGS_MS.contains(width) && window.as_millis() % width == 0)
            .expect("1 ms divides everything");
        let at_ms = at_ms.or(hits.iter().map(|hit| hit.1).max()).unwrap_or(0);
        let mut by_key: BTreeMap<u8, Vec<i64>> = BTreeMap::new();
        hits.iter().for_each(|&(key, at)| by_key.entry(key).or_default().push(at / pane_ms * pane_ms));
        let mut rows: Vec<Row> = by_key
            .into_iter()
            .map(|(key, times)| {
                let ending = |end: i64| {
                    let inside = times.iter().filter(|&&at| at <= end && at > end - window.as_millis());
                    inside.count() as u64
                };
                let peak = times.iter().map(|&end| ending(end)).max().expect("not empty");
                let peak_at = times.iter().copied().filter(|&end| ending(end) == peak).min();
                Row {
                    key: vec![key],
                    hits: ending(at_ms / pane_ms * pane_ms),
                    peak,
                    peak_at: time(peak_at.expect("not empty")),
                    total: times.len() as u64,
                }
            })
            .collect();
        rows.sort_by_key(|row| (Reverse(row.hits), Reverse(row.peak), Reverse(row.total), row.key.clone()));
        rows
    }

    fn tally(hits: &[(u8, i64)], window: Span) -> Tally {
        let mut tally = Tally::builder(window);
        hits.iter().for_each(|&(key, at)| tally.hit(&[key], time(at)));
        tally.build()
    }

    #[test]
    fn the_window_and_the_earliest_peak() {
        let hits = [(b'a', 299_999), (b'a', 0), (b'a', 301_000), (b'a', 602_500), (b'b', 602_000)];
        let rows = tally(&hits, minutes(5)).rows(None, None);
        let a = Row { key: b"a".to_vec(), hits: 1, peak: 2, peak_at: time(299_000), total: 4 };
        let b = Row { key: b"b".to_vec(), hits: 1, peak: 1, peak_at: time(602_000), total: 1 };
        assert_eq!(rows, [a.clone(), b.clone()]);
        // 300 panes: second 0 is in the window ending in second 299 and out of that ending in 300.
        let earlier = |at| tally(&hits, minutes(5)).rows(Some(time(at)), None);
        assert_eq!(earlier(299_000), [Row { hits: 2, ..a.clone() }, Row { hits: 0, ..b.clone() }]);
        assert_eq!(earlier(300_999), [Row { hits: 1, ..a }, Row { hits: 0, ..b }]);
    }

    #[test]
    fn panes_follow_the_window() {
        let check = |window: Span, pane_ms: i64| {
            assert_eq!(Tally::builder(window).build().pane_ms, pane_ms, "{window}");
        };
        check(seconds(1), 1_000);
        check(minutes(60), 1_000);
        check(milliseconds(1_500), 500);
        check(milliseconds(250), 50);
        check(milliseconds(7), 1);
        let rows = tally(&[(1, 1_260), (1, 1_499), (1, 1_520)], milliseconds(250)).rows(None, None);
        assert_eq!((rows[0].hits, rows[0].peak, rows[0].peak_at), (2, 2, time(1_450)));
    }

    #[test]
    fn the_panes_of_a_key_have_its_hits() {
        let tally = tally(&[(1, 5_999), (2, 0), (1, 1_000), (1, 5_000)], minutes(5));
        assert_eq!(tally.pane(), seconds(1));
        assert_eq!(tally.panes(&[1]), [(time(1_000), 1), (time(5_000), 2)]);
        assert_eq!(tally.panes(&[2]), [(time(0), 1)]);
        assert_eq!(tally.panes(&[3]), []);
    }

    #[test]
    fn a_line_far_ahead_is_noticed() {
        let gap = |hits: &[(u8, i64)]| tally(hits, minutes(5)).gap().map(Span::as_millis);
        assert_eq!(gap(&[]), None);
        assert_eq!(gap(&[(1, 5)]), None);
        assert_eq!(gap(&[(1, 0), (1, 300_000)]), None);
        assert_eq!(gap(&[(1, 0), (1, 300_001)]), Some(300_001));
        assert_eq!(gap(&[(1, 900_000), (2, 0), (1, 900_000), (2, 100_000), (2, 7)]), Some(800_000));
    }

    #[test]
    fn an_empty_tally_has_no_rows() {
        assert_eq!(Tally::builder(minutes(5)).build().rows(None, Some(10)), []);
        assert_eq!(Tally::builder(minutes(5)).build().rows(Some(time(5)), None), []);
        assert_eq!(Tally::builder(minutes(5)).build().newest(), None);
    }

    #[test]
    fn the_top_is_the_start_of_all() {
        let mut tally = Tally::builder(minutes(5));
        for hit in 0..9_000_u32 {
            tally.hit(&(hit % 3_001).to_le_bytes(), time(i64::from(hit) * 17));
        }
        let tally = tally.build();
        let all = tally.rows(None, None);
        assert_eq!((all.len(), tally.keys()), (3_001, 3_001));
        for top in [0, 1, 10, 3_000, 3_001, 5_000, usize::MAX] {
            assert_eq!(tally.rows(None, Some(top)), all[..top.min(3_001)], "top {top}");
        }
    }

    proptest! {
        #[test]
        fn a_tally_equals_a_naive_count(
            hits in proptest::collection::vec((0..6_u8, 0..20_000_i64), 0..200),
            window_ms in prop_oneof![1..8_000_i64, (1..9_i64).prop_map(|s| s * 1_000)],
            at_ms in proptest::option::of(0..25_000_i64),
        ) {
            let window = Span::from_millis(window_ms).expect("in range");
            let rows = tally(&hits, window).rows(at_ms.map(time), None);
            prop_assert_eq!(rows, naive(&hits, window, at_ms));
        }
    }
}
