//! The model: the answers by definition. A log of all hits, read by adding them up.
//!
//! The code is naive, and shares nothing with the code that it checks. A read rounds its edges down to panes
//! of the resolution. An edge older than the exact span is also rounded down to a grid that widens with its
//! age, and hits in the cell around the edge count by their share of time.

use std::collections::{BTreeMap, BTreeSet};

use crate::model_settings::{ModelSettings, RUNGS_MS, ceil, floor};

/// All hits of all keys, and the latest time seen: time never goes back.
#[derive(Clone, Debug)]
pub struct ExactLog {
    settings: ModelSettings,
    now_ms: i64,
    /// (millisecond, count), in the order of arrival. A key without hits is not in the map.
    hits: BTreeMap<u8, Vec<(i64, u64)>>,
    /// The ids of counted hits, of keys with hits.
    ids: BTreeMap<u8, Vec<CountedId>>,
    /// The members of counted hits, of keys with hits, each with the time of a hit.
    members: BTreeMap<u8, Vec<(u8, i64)>>,
}

/// The id of counted hits.
#[derive(Clone, Copy, Debug)]
struct CountedId {
    id: u8,
    at_ms: i64,
    /// It is forgotten then.
    until_ms: i128,
}

/// The answer to a read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ModelCount {
    /// Between the bounds, by the share of time of the cells at the edges.
    pub estimate: u64,
    /// Hits surely in the window.
    pub lower: u64,
    /// Hits possibly in the window; `None` when the window reaches past the retention.
    pub upper: Option<u64>,
    /// Width of the grid at the far edge.
    pub cell_ms: i64,
}

/// The result of a hit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HitOutcome {
    /// Counted: the estimate for the default window that ends at the hit, including this hit.
    Hits(u64),
    /// Refused: older than the retention.
    Late,
    /// Refused: further ahead than the skew allowed.
    Future,
    /// Refused: the total of the key would exceed `i64::MAX`.
    Overflow,
    /// Refused: it has an id, and the settings have no span for ids.
    NoDedupe,
    /// Refused: it has a member, and the settings count none.
    NoMembers,
}

impl ExactLog {
    /// An empty log.
    ///
    /// # Panics
    /// If the resolution is not one of [`RUNGS_MS`].
    #[must_use]
    pub fn new(settings: ModelSettings) -> ExactLog {
        let resolution_ms = settings.resolution_ms;
        assert!(
            RUNGS_MS.contains(&resolution_ms),
            "a resolution is a rung of the ladder, not {resolution_ms} ms"
        );
        // `i64::MIN` is not a special value: `max` replaces it.
        let (hits, ids, members) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        ExactLog { settings, now_ms: i64::MIN, hits, ids, members }
    }

    /// Counts `count` hits of `key` at `at_ms`, unless refused.
    pub fn hit(&mut self, key: u8, at_ms: i64, count: u64, now_ms: i64) -> HitOutcome {
        let now = self.see(now_ms);
        let at = i128::from(at_ms);
        if at < self.settings.retention_edge(now) {
            return HitOutcome::Late;
        }
        if at > now + i128::from(self.settings.max_skew_ms) {
            return HitOutcome::Future;
        }
        if i128::from(self.kept_total(key, now_ms)) + i128::from(count) > i128::from(i64::MAX) {
            return HitOutcome::Overflow;
        }
        if count > 0 {
            self.hits.entry(key).or_default().push((at_ms, count));
        }
        // These hits are in the window, even if the estimate takes only a share of their cell.
        HitOutcome::Hits(self.read(key, at_ms, self.settings.window_ms, now_ms).estimate.max(count))
    }

    /// Counts hits with an id, unless refused. They change nothing if hits of `key` with the same id are known whose time
    /// differs by less than the span.
    ///
    /// An id is known until the span has passed since its hits happened and since they came, and while its key exists.
    pub fn hit_once(&mut self, key: u8, at_ms: i64, count: u64, id: u8, now_ms: i64) -> HitOutcome {
        let now = self.see(now_ms);
        let Some(span_ms) = self.settings.dedupe_ms else { return HitOutcome::NoDedupe };
        let is_same =
            |known: &CountedId| known.id == id && known.at_ms.abs_diff(at_ms) < span_ms.unsigned_abs();
        let count = if self.ids.get(&key).is_some_and(|ids| ids.iter().any(is_same)) { 0 } else { count };
        let outcome = self.hit(key, at_ms, count, now_ms);
        if let HitOutcome::Hits(_) = outcome
            && count > 0
        {
            let until_ms = now.max(at_ms.into()) + i128::from(span_ms);
            self.ids.entry(key).or_default().push(CountedId { id, at_ms, until_ms });
        }
        outcome
    }

    /// Counts hits with a member, unless refused.
    pub fn hit_member(&mut self, key: u8, at_ms: i64, count: u64, member: u8, now_ms: i64) -> HitOutcome {
        self.see(now_ms);
        if !self.settings.unique {
            return HitOutcome::NoMembers;
        }
        let outcome = self.hit(key, at_ms, count, now_ms);
        if let HitOutcome::Hits(_) = outcome
            && count > 0
        {
            self.members.entry(key).or_default().push((member, at_ms));
        }
        outcome
    }

    /// The distinct members of `key` in the window of `window_ms` that ends now, and whether all of it is within the
    /// retention. A hit that is ahead of the clock is in every window. `None`: the settings count no members.
    pub fn unique(&mut self, key: u8, window_ms: i64, now_ms: i64) -> Option<(u64, bool)> {
        let now = self.see(now_ms);
        let settings = &self.settings;
        let asked_far =
            (settings.pane(now) - settings.panes_in(window_ms) + 1) * i128::from(settings.resolution_ms);
        let far = asked_far.max(settings.retention_edge(now));
        let hits = self.members.get(&key).into_iter().flatten().filter(|hit| i128::from(hit.1) >= far);
        let members: BTreeSet<u8> = hits.map(|hit| hit.0).collect();
        settings.unique.then_some((members.len() as u64, asked_far == far))
    }

    /// The hits of `key` in the window of `window_ms` that ends at `at_ms`. A negative time counts as 0.
    pub fn read(&mut self, key: u8, at_ms: i64, window_ms: i64, now_ms: i64) -> ModelCount {
        let now = self.see(now_ms);
        let settings = &self.settings;
        let resolution = i128::from(settings.resolution_ms);
        let last_pane = settings.pane(i128::from(at_ms.max(0)));
        let near = (last_pane + 1) * resolution;
        let asked_far = (last_pane - settings.panes_in(window_ms) + 1) * resolution;
        let far = asked_far.max(settings.retention_edge(now));
        let known = asked_far == far;
        let (far_grid, near_grid) = (settings.grid(far, now), settings.grid(near, now));

        let (estimate, lower, upper) = if near <= far {
            (0, 0, 0)
        } else {
            let lower = self.hits_in(key, ceil(far, far_grid), floor(near, near_grid));
            let upper = self.hits_in(key, floor(far, far_grid), ceil(near, near_grid));
            // Both sums are numerators over the far grid, which is a multiple of the near one.
            let until_near = self.hits_before(key, near, near_grid) * (far_grid / near_grid);
            let between = until_near - self.hits_before(key, far, far_grid);
            let half_up = (2 * between + far_grid).div_euclid(2 * far_grid);
            (half_up.clamp(lower, upper), lower, upper)
        };
        ModelCount {
            estimate: to_count(estimate),
            lower: to_count(lower),
            upper: known.then(|| to_count(upper)),
            cell_ms: i64::try_from(far_grid).expect("a rung"),
        }
    }

    /// Drops all hits of `key`.
    pub fn forget(&mut self, key: u8, now_ms: i64) {
        self.see(now_ms);
        self.hits.remove(&key);
        self.ids.remove(&key);
        self.members.remove(&key);
    }

    /// Whether `key` has a hit within the retention.
    pub fn exists(&mut self, key: u8, now_ms: i64) -> bool {
        let now = self.see(now_ms);
        let edge = self.settings.retention_edge(now);
        self.hits.get(&key).is_some_and(|hits| hits.iter().any(|hit| i128::from(hit.0) >= edge))
    }

    /// The hits of `key` that can still show in an answer: those from the horizon on.
    pub fn kept_total(&mut self, key: u8, now_ms: i64) -> u64 {
        let now = self.see(now_ms);
        let horizon = self.settings.horizon(now);
        to_count(self.hits_in(key, horizon, i128::MAX))
    }

    /// Sets the time, possibly to an earlier one: a mistake for the tests of the driver.
    #[cfg(test)]
    pub(crate) fn set_now(&mut self, now_ms: i64) {
        self.now_ms = now_ms;
    }

    /// The latest time seen, including `now_ms`. Removes keys whose newest hit left the retention a pane ago.
    /// Limits, whose windows start at any millisecond, need it until then.
    fn see(&mut self, now_ms: i64) -> i128 {
        self.now_ms = self.now_ms.max(now_ms);
        let now = i128::from(self.now_ms);
        let settings = &self.settings;
        self.hits.retain(|_, hits| {
            let newest = hits.iter().map(|hit| hit.0).max().expect("a key has hits");
            settings.pane(now) - settings.pane(newest.into()) <= settings.panes_in(settings.retain_ms)
        });
        let hits = &self.hits;
        self.ids.retain(|key, _| hits.contains_key(key));
        self.members.retain(|key, _| hits.contains_key(key));
        for ids in self.ids.values_mut() {
            ids.retain(|known| known.until_ms > now);
        }
        now
    }

    /// Hits of `key` in `from..to`.
    fn hits_in(&self, key: u8, from: i128, to: i128) -> i128 {
        let hits = self.hits.get(&key).into_iter().flatten();
        let inside = hits.filter(|hit| (from..to).contains(&i128::from(hit.0)));
        inside.map(|hit| i128::from(hit.1)).sum()
    }

    /// The hits of `key` before `edge`, times `grid`: all before the edge's cell, and of the cell the share
    /// before the edge.
    fn hits_before(&self, key: u8, edge: i128, grid: i128) -> i128 {
        let cell = floor(edge, grid);
        let before_cell = self.hits_in(key, i128::MIN, cell);
        before_cell * grid + self.hits_in(key, cell, cell + grid) * (edge - cell)
    }
}

/// Totals, and so the sums of answers, are at most `i64::MAX`.
fn to_count(sum: i128) -> u64 {
    u64::try_from(sum).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::strategies;

    const NOW: i64 = 1_700_000_000_123;
    const MAX: u64 = i64::MAX.unsigned_abs();

    fn log(hits: &[(i64, u64)]) -> ExactLog {
        let mut log = ExactLog::new(ModelSettings::default());
        for &(at_ms, count) in hits {
            assert!(matches!(log.hit(0, at_ms, count, NOW), HitOutcome::Hits(_)));
        }
        log
    }

    fn count(estimate: u64, lower: u64, upper: u64, cell_ms: i64) -> ModelCount {
        ModelCount { estimate, lower, upper: Some(upper), cell_ms }
    }

    #[test]
    fn the_exact_span_counts_panes() {
        let mut log = log(&[(NOW, 1), (NOW - 123, 2), (NOW - 124, 4), (NOW + 876, 8), (NOW + 877, 16)]);
        assert_eq!(log.read(0, NOW, 1_000, NOW), count(11, 11, 11, 1_000));
        assert_eq!(log.read(0, NOW, 1, NOW), count(11, 11, 11, 1_000));
        assert_eq!(log.read(0, NOW, 1_001, NOW), count(15, 15, 15, 1_000));
        assert_eq!(log.read(0, NOW - 124, 1_000, NOW), count(4, 4, 4, 1_000));
        assert_eq!(log.read(0, NOW + 1_000, 1_000, NOW), count(16, 16, 16, 1_000));
        assert_eq!(log.read(1, NOW, 1_000, NOW), count(0, 0, 0, 1_000), "a key never hit");
    }

    #[test]
    fn an_old_far_edge_counts_by_its_share_of_time() {
        // A window of 1,007 s starts at …998_994_000, 1,006 s old: a grid of 10 s, 4 s into its cell.
        let start = 1_699_998_994_000;
        let mut log =
            log(&[(start - 4_001, 1_000), (start - 4_000, 5), (start + 5_999, 5), (start + 6_000, 7)]);
        assert_eq!(log.read(0, NOW, 1_007_000, NOW), count(13, 7, 17, 10_000));
        // Half a hit or more rounds up: 10 of 2 s, then 1 of 2 s.
        let mut log = self::log(&[(1_699_999_498_000, 1)]);
        assert_eq!(log.read(0, NOW, 502_000, NOW), count(1, 0, 1, 2_000), "half is rounded up");
    }

    #[test]
    fn an_old_near_edge_counts_by_its_share_of_time() {
        // Read 2,000 s ago over 10 s: both edges on the grid of 10 s, at 4 s of their cells.
        let at = 1_699_998_003_000;
        let mut log = log(&[(at - 3_000, 10), (at - 13_000, 100), (at + 7_000, 1_000)]);
        // 4/10 of 10 are before the near edge, 6/10 of 100 after the far one.
        assert_eq!(log.read(0, at, 10_000, NOW), count(64, 0, 110, 10_000));
        // Both edges in one cell, the far one on its border: 4 of 10 s.
        assert_eq!(log.read(0, at, 4_000, NOW), count(4, 0, 10, 10_000));
    }

    #[test]
    fn a_window_past_the_retention_has_no_upper_bound() {
        let edge = 1_699_395_201_000;
        let mut log = log(&[(NOW, 1), (edge, 2)]);
        let whole = ModelCount { upper: Some(3), ..log.read(0, NOW, i64::MAX, NOW) };
        assert_eq!(whole, log.read(0, NOW, 604_800_000, NOW));
        assert_eq!(log.read(0, NOW, 604_800_001, NOW).upper, None);
        let before = log.read(0, edge - 1, 1_000, NOW);
        assert_eq!(before, ModelCount { estimate: 0, lower: 0, upper: None, cell_ms: 3_600_000 });
        assert_eq!(log.read(0, NOW, 0, NOW), count(0, 0, 0, 1_000));
    }

    #[test]
    fn hits_out_of_time_are_refused() {
        let mut log = log(&[]);
        let mut check = |at_ms: i64, expected: HitOutcome| assert_eq!(log.hit(0, at_ms, 1, NOW), expected);
        // The first pane of a window of the retention that ends now.
        let oldest = NOW / 1_000 * 1_000 - 604_799_000;
        check(oldest - 1, HitOutcome::Late);
        check(NOW + 10_001, HitOutcome::Future);
        check(NOW + 10_000, HitOutcome::Hits(1));
        check(oldest, HitOutcome::Hits(1));
        assert_eq!(log.hit(0, oldest - 1, u64::MAX, NOW), HitOutcome::Late, "before overflow");
    }

    #[test]
    fn a_total_past_the_bound_is_refused() {
        let mut log = log(&[(NOW, MAX)]);
        assert_eq!(log.hit(0, NOW, 1, NOW), HitOutcome::Overflow);
        assert_eq!(log.hit(0, NOW, 0, NOW), HitOutcome::Hits(MAX));
        assert_eq!(log.hit(1, NOW, MAX + 1, NOW), HitOutcome::Overflow);
        assert!(!log.exists(1, NOW));
        let later = NOW + 604_800_000 - 1_000;
        assert_eq!(log.hit(0, later, 1, later), HitOutcome::Overflow, "still kept");
        let gone = NOW + 604_800_000 + 1_000;
        assert_eq!(log.hit(0, gone, 1, gone), HitOutcome::Hits(1));
        assert_eq!(log.kept_total(0, gone), 1);
    }

    #[test]
    fn an_id_counts_once_within_the_span() {
        let (dedupe_ms, exact_ms) = (Some(600_000), 10_000_000);
        let settings = ModelSettings { dedupe_ms, exact_ms, ..ModelSettings::default() };
        let mut log = ExactLog::new(settings);
        let mut check = |at_ms: i64, id: u8, now_ms: i64, expected: u64| {
            let outcome = log.hit_once(0, at_ms, 1, id, now_ms);
            assert_eq!(outcome, HitOutcome::Hits(expected), "id {id} at {at_ms}, now {now_ms}");
        };
        check(NOW, 0, NOW, 1);
        check(NOW, 0, NOW, 1);
        check(NOW, 1, NOW, 2);
        // The window of five minutes has neither, and the id is known for one millisecond more.
        check(NOW + 599_999, 0, NOW + 599_999, 0);
        check(NOW + 600_000, 0, NOW + 600_000, 1);
        // By the time of the hit: the span before, and in the middle between two.
        check(NOW + 1, 0, NOW + 600_000, 2);
        check(NOW - 1, 0, NOW + 600_000, 3);
        // Late hits are known until the span has passed since they came.
        check(NOW - 7_200_000, 2, NOW + 600_000, 1);
        check(NOW - 7_200_000, 2, NOW + 1_199_999, 1);
        check(NOW - 7_200_000, 2, NOW + 1_200_000, 2);
        let mut without = self::log(&[]);
        assert_eq!(without.hit_once(0, NOW, 1, 0, NOW), HitOutcome::NoDedupe);
    }

    #[test]
    fn refused_hits_and_hits_of_none_leave_no_id() {
        let mut log = ExactLog::new(ModelSettings { dedupe_ms: Some(600_000), ..ModelSettings::default() });
        assert_eq!(log.hit_once(0, NOW, 0, 0, NOW), HitOutcome::Hits(0));
        assert_eq!(log.hit_once(0, NOW + 10_001, 1, 0, NOW), HitOutcome::Future);
        assert_eq!(log.hit_once(0, NOW, MAX + 1, 0, NOW), HitOutcome::Overflow);
        assert_eq!(log.hit_once(0, NOW, 1, 0, NOW), HitOutcome::Hits(1));
        assert_eq!(log.hit_once(0, NOW, MAX + 1, 0, NOW), HitOutcome::Hits(1), "a repeated hit adds nothing");
        log.forget(0, NOW);
        assert_eq!(log.hit_once(0, NOW, 1, 0, NOW), HitOutcome::Hits(1));
    }

    #[test]
    fn time_never_goes_back() {
        let mut log = log(&[(NOW, 1)]);
        assert_eq!(log.hit(0, NOW + 10_001, 1, NOW - 1_000_000), HitOutcome::Future);
        assert_eq!(log.hit(0, NOW - 604_800_001, 1, NOW - 1_000_000), HitOutcome::Late);
        assert!(!log.exists(0, NOW + 604_800_000));
        assert!(!log.exists(0, NOW), "gone is gone");
    }

    #[test]
    fn keys_come_and_go() {
        let mut log = log(&[(NOW, 1), (NOW - 5_000, 1)]);
        assert_eq!(log.hit(1, NOW, 0, NOW), HitOutcome::Hits(0));
        assert!(!log.exists(1, NOW), "a count of 0 makes no key");
        let last = NOW - 123 + 604_800_000 - 1;
        assert!(log.exists(0, last));
        assert!(!log.clone().exists(0, last + 1), "the newest hit has left");
        log.forget(0, last);
        assert!(!log.exists(0, last));
        assert_eq!(log.read(0, NOW, 60_000, last).upper, None);
        assert_eq!(log.read(0, last, 60_000, last), count(0, 0, 0, 1_000));
    }

    #[test]
    fn the_ends_of_time_are_answered() {
        let extremes = [i64::MIN, -1, 0, 1, i64::MAX];
        let settings = ModelSettings { resolution_ms: 1, ..ModelSettings::default() };
        let mut log = ExactLog::new(settings);
        for (now, at) in extremes.into_iter().flat_map(|now| extremes.map(|at| (now, at))) {
            log.hit(0, at, MAX / 4, now);
            for window in extremes {
                let read = log.read(0, at, window, now);
                assert!(read.lower <= read.estimate && read.upper.is_none_or(|upper| read.estimate <= upper));
            }
        }
    }

    proptest! {
        /// Inside the exact span the definition is one line: 0 ≤ pane(t) − pane(h) < ceil(w / r).
        #[test]
        fn reads_of_the_exact_span_count_panes(
            hits in prop::collection::vec((0_i64..360_000, 1_u64..9), 0..50),
            back in 0_i64..300_000,
            window in 1_i64..60_000,
        ) {
            let hits: Vec<(i64, u64)> = hits.into_iter().map(|(ago, count)| (NOW - ago, count)).collect();
            let pane = |ms: i64| ms.div_euclid(1_000);
            let panes = (window + 999) / 1_000;
            let inside = |at: i64| (0..panes).contains(&(pane(NOW - back) - pane(at)));
            let expected = hits.iter().filter(|hit| inside(hit.0)).map(|hit| hit.1).sum();
            let read = log(&hits).read(0, NOW - back, window, NOW);
            prop_assert_eq!(read, count(expected, expected, expected, 1_000));
        }

        /// A wider window that ends at the same time never has fewer, by any of the three numbers.
        #[test]
        fn nested_windows_have_nested_answers(
            settings in strategies::settings(),
            hits in prop::collection::vec((0_i64..4_000_000, 1_u64..900), 1..40),
            back in prop_oneof![Just(0_i64), 0_i64..1_000_000],
            windows in prop::collection::vec(1_i64..4_000_000, 2..9),
        ) {
            let mut log = ExactLog::new(settings);
            log.see(NOW);
            log.hits.insert(0, hits.into_iter().map(|(ago, count)| (NOW - ago, count)).collect());
            let mut windows = windows;
            windows.sort_unstable();
            let reads: Vec<ModelCount> =
                windows.iter().map(|&window| log.read(0, NOW - back, window, NOW)).collect();
            for pair in reads.windows(2) {
                prop_assert!(
                    pair[0].estimate <= pair[1].estimate
                        && pair[0].lower <= pair[1].lower
                        && pair[0].upper.is_none_or(|upper| pair[1].upper.is_none_or(|wider| upper <= wider)),
                    "{pair:?}"
                );
            }
        }

        /// So hits before the horizon can be dropped: no bound ever counts them.
        #[test]
        fn no_answer_reaches_past_the_horizon(
            settings in strategies::settings(),
            now in 0..=crate::limits::MAX_TIME_MS,
            back in prop_oneof![Just(0_i64), -100_000_i64..1_000_000, any::<i64>()],
            window in prop_oneof![0_i64..2_000_000, 1_i64..=crate::limits::MAX_WINDOW_MS],
        ) {
            let horizon = i64::try_from(settings.horizon(now.into())).expect("a time");
            let mut log = ExactLog::new(settings);
            log.see(now);
            log.hits.insert(0, vec![(horizon - 1, 1_000_000), (horizon, 1), (now, 1)]);
            let read = log.read(0, now.saturating_sub(back), window, now);
            prop_assert!(read.estimate <= 2 && read.upper.unwrap_or(0) <= 2, "{read:?}");
            prop_assert_eq!(log.kept_total(0, now), 2);
        }
    }
}
