//! The hits of a key whose class changes, and which answers about them are acceptable.
//!
//! A change of class has no single right answer: the implementation decides how a class with narrow panes
//! reads hits that are known to wide panes. But the true hits are known, and so is the largest error of an
//! answer. Each hit is stored with its millisecond, the widest pane that may hold it, and whether an earlier
//! class may have dropped it.

use crate::model_settings::{ModelSettings, RUNGS_MS};

/// The hits of one key, as they happened.
#[derive(Clone, Default, Debug)]
pub struct Truth {
    hits: Vec<TrueHit>,
    /// Whether hits were rolled back. A limit may then deny for longer than necessary.
    was_taken_back: bool,
}

#[derive(Clone, Copy, Debug)]
struct TrueHit {
    at_ms: i64,
    count: u64,
    /// The widest pane that may hold it, by the previous classes.
    widest_ms: i64,
    /// Whether no previous class may have dropped it.
    is_certain: bool,
}

/// Bounds for the hits in a window.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TrueHits {
    /// Certain hits in the window, more than a pane away from its edges. A lower bound includes all of them.
    pub inner: u64,
    /// Certain hits in the window. An upper bound includes all of them.
    pub certain: u64,
    /// Hits in the window. A lower bound is not higher.
    pub all: u64,
    /// Hits in the window, or at most a pane away from it. An upper bound is not higher.
    pub outer: u64,
    /// Whether the window is within the retention. Only then is there an upper bound.
    pub is_known: bool,
}

impl Truth {
    /// No hits.
    #[must_use]
    pub fn new() -> Truth {
        Truth::default()
    }

    /// Whether `class` refuses a hit at `at_ms`: `None` if not; `Some(true)` if the hit is too late,
    /// `Some(false)` if it is too early.
    #[must_use]
    pub fn refusal(class: &ModelSettings, at_ms: i64, now_ms: i64) -> Option<bool> {
        if at_ms < oldest_ms(class, now_ms) {
            return Some(true);
        }
        (at_ms > now_ms + class.max_skew_ms).then_some(false)
    }

    /// Records hits that were counted.
    pub fn add(&mut self, at_ms: i64, count: u64, class: &ModelSettings) {
        if count == 0 {
            return;
        }
        // The next hit may fall in the pane of an earlier one.
        let is_near = |hit: &&TrueHit| (hit.at_ms - at_ms).abs() < hit.widest_ms;
        let neighbours_ms = self.hits.iter().filter(is_near).map(|hit| hit.widest_ms).max().unwrap_or(0);
        let widest_ms = neighbours_ms.max(class.resolution_ms);
        self.hits.push(TrueHit { at_ms, count, widest_ms, is_certain: true });
    }

    /// Records that `class` is replaced by another class, or by the same one after a restart.
    pub fn leave(&mut self, class: &ModelSettings, now_ms: i64, is_same: bool) {
        // A limit reads hits of one pane more than the retention. A restart keeps them.
        let slack_ms = if is_same { class.resolution_ms } else { 0 };
        let kept_ms = oldest_ms(class, now_ms) - slack_ms;
        let widths = Widths::new(class);
        for hit in &mut self.hits {
            hit.widest_ms = hit.widest_in(&widths, now_ms);
            hit.is_certain &= hit.at_ms >= kept_ms;
        }
    }

    /// Records that hits which could not be committed were rolled back.
    pub fn roll_back(&mut self) {
        self.was_taken_back = true;
    }

    /// Whether a limit may only deny because of hits that exist.
    #[must_use]
    pub fn is_denied_by_hits_only(&self) -> bool {
        !self.was_taken_back
    }

    /// Adds hits that may or may not exist. The hits before become uncertain, too.
    pub fn blur(&mut self, other: &Truth) {
        self.hits.extend_from_slice(&other.hits);
        self.hits.iter_mut().for_each(|hit| hit.is_certain = false);
        self.was_taken_back |= other.was_taken_back;
    }

    /// Whether there is a hit that `class` certainly keeps.
    #[must_use]
    pub fn is_surely_kept(&self, class: &ModelSettings, now_ms: i64) -> bool {
        let oldest_ms = oldest_ms(class, now_ms);
        self.hits.iter().any(|hit| hit.is_certain && hit.at_ms >= oldest_ms)
    }

    /// Times of hits.
    pub fn times_ms(&self) -> impl ExactSizeIterator<Item = i64> + '_ {
        self.hits.iter().map(|hit| hit.at_ms)
    }

    /// Hits in the window of `window_ms` that ends with the pane of `at_ms`.
    #[must_use]
    pub fn window(&self, at_ms: i64, window_ms: i64, class: &ModelSettings, now_ms: i64) -> TrueHits {
        let resolution_ms = class.resolution_ms;
        let last_pane = at_ms.div_euclid(resolution_ms);
        let near_ms = (last_pane + 1) * resolution_ms;
        let panes = narrow(class.panes_in(window_ms));
        let (asked_ms, oldest_ms) = ((last_pane + 1 - panes) * resolution_ms, oldest_ms(class, now_ms));
        let far_ms = asked_ms.max(oldest_ms);
        let is_known = asked_ms == far_ms;
        if near_ms <= far_ms {
            return TrueHits { is_known, ..TrueHits::default() };
        }
        let widths = Widths::new(class);
        let [far_cell_ms, near_cell_ms] = [far_ms, near_ms].map(|edge_ms| widths.widest_ms(now_ms - edge_ms));
        let mut hits = TrueHits { is_known, ..TrueHits::default() };
        for hit in &self.hits {
            let widest_ms = hit.widest_in(&widths, now_ms);
            let reach_ms = [widest_ms + far_cell_ms, widest_ms + near_cell_ms];
            hits.take(hit, [far_ms, near_ms], reach_ms);
        }
        hits
    }

    /// The hits that count in the window of a limit: all those later than `at_ms - window_ms`, including
    /// those after `at_ms`.
    #[must_use]
    pub fn used(&self, at_ms: i64, window_ms: i64, class: &ModelSettings, now_ms: i64) -> TrueHits {
        let from_ms = at_ms - window_ms + 1;
        let widths = Widths::new(class);
        let cell_ms = widths.widest_ms(now_ms - from_ms);
        let mut hits = TrueHits { is_known: true, ..TrueHits::default() };
        for hit in &self.hits {
            let reach_ms = hit.widest_in(&widths, now_ms) + cell_ms;
            hits.take(hit, [from_ms, i64::MAX], [reach_ms, 0]);
        }
        hits
    }
}

impl TrueHit {
    /// The widest pane that may hold it, now also in `class`.
    fn widest_in(&self, widths: &Widths, now_ms: i64) -> i64 {
        self.widest_ms.max(widths.widest_ms(now_ms - self.at_ms))
    }
}

impl TrueHits {
    /// Adds a hit to the counts that it belongs to. `reach_ms` is the distance from each edge up to which a
    /// pane with the hit may contain the edge.
    fn take(&mut self, hit: &TrueHit, [from_ms, to_ms]: [i64; 2], reach_ms: [i64; 2]) {
        let TrueHit { at_ms, count, is_certain, .. } = *hit;
        let [far_ms, near_ms] = reach_ms;
        let is_in = |from_ms: i64, to_ms: i64| (from_ms..to_ms).contains(&at_ms);
        let add = |sum: &mut u64, is_counted: bool| *sum += if is_counted { count } else { 0 };
        add(&mut self.inner, is_certain && is_in(from_ms + far_ms, to_ms.saturating_sub(near_ms)));
        add(&mut self.certain, is_certain && is_in(from_ms, to_ms));
        add(&mut self.all, is_in(from_ms, to_ms));
        add(&mut self.outer, is_in(from_ms - far_ms, to_ms.saturating_add(near_ms)));
    }
}

fn narrow(ms: i128) -> i64 {
    i64::try_from(ms).expect("times and spans are far below it")
}

fn oldest_ms(class: &ModelSettings, now_ms: i64) -> i64 {
    narrow(class.retention_edge(now_ms.into()))
}

/// The widths of a class above its resolution, and the lowest age of each.
struct Widths {
    resolution_ms: i64,
    wider_ms: Vec<(i64, i64)>,
}

impl Widths {
    fn new(class: &ModelSettings) -> Widths {
        let resolution_ms = class.resolution_ms;
        let wider = RUNGS_MS.into_iter().filter(|&rung_ms| rung_ms > resolution_ms);
        // A pane is at most a share of the age of its newer end, which is younger than each of its hits.
        let least_age_ms = |rung_ms: i64| {
            let least_ms = i128::from(rung_ms) * 1_000_000 / i128::from(class.precision_millionths);
            narrow(least_ms).max(class.exact_ms)
        };
        Widths { resolution_ms, wider_ms: wider.map(|rung_ms| (least_age_ms(rung_ms), rung_ms)).collect() }
    }

    /// The widest pane of a hit, or the widest cell of an edge, of this age.
    fn widest_ms(&self, age_ms: i64) -> i64 {
        let wider = self.wider_ms.iter().rfind(|(least_age_ms, _)| *least_age_ms <= age_ms);
        wider.map_or(self.resolution_ms, |&(_, rung_ms)| rung_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW_MS: i64 = 1_700_000_000_000;
    const HOUR_MS: i64 = 3_600_000;

    fn class(resolution_ms: i64, retain_ms: i64) -> ModelSettings {
        ModelSettings { resolution_ms, retain_ms, ..ModelSettings::default() }
    }

    fn counts(hits: TrueHits) -> [u64; 4] {
        [hits.inner, hits.certain, hits.all, hits.outer]
    }

    #[test]
    fn panes_widen_with_age() {
        let widths = Widths::new(&ModelSettings::default());
        let check = |age_s: i64, width_s: i64| {
            assert_eq!(widths.widest_ms(age_s * 1_000), width_s * 1_000, "age {age_s}");
        };
        for (age_s, width_s) in [(-5, 1), (359, 1), (360, 2), (999, 2), (1_000, 10), (604_800, 3_600)] {
            check(age_s, width_s);
        }
    }

    #[test]
    fn a_hit_is_known_to_its_pane() {
        let (fine, mut truth) = (class(1_000, 7 * 24 * HOUR_MS), Truth::new());
        truth.add(NOW_MS, 5, &fine);
        let window = |truth: &Truth, at_ms, ms| counts(truth.window(at_ms, ms, &fine, at_ms));
        assert_eq!(window(&truth, NOW_MS, 1_000), [0, 5, 5, 5]);
        assert_eq!(window(&truth, NOW_MS + 2_000, 10_000), [5, 5, 5, 5]);
        assert_eq!(window(&truth, NOW_MS + 2_000, 2_000), [0, 0, 0, 5], "not in it, but near");
        assert_eq!(window(&truth, NOW_MS + 9_000, 2_000), [0; 4]);
    }

    #[test]
    fn a_wide_pane_stays_wide_in_a_fine_class() {
        let (hours, fine, mut truth) =
            (class(HOUR_MS, 30 * HOUR_MS), class(1_000, 30 * HOUR_MS), Truth::new());
        truth.add(NOW_MS, 5, &hours);
        truth.leave(&hours, NOW_MS, false);
        let later_ms = NOW_MS + 60_000;
        assert_eq!(counts(truth.window(later_ms, 1_000, &fine, later_ms)), [0, 0, 0, 5]);
        assert_eq!(counts(truth.used(later_ms, 1_000, &fine, later_ms)), [0, 0, 0, 5]);
        // A close hit may fall into its pane. A distant one does not.
        truth.add(NOW_MS + 1_000, 2, &fine);
        truth.add(NOW_MS + 2 * HOUR_MS, 1, &fine);
        assert_eq!(truth.hits[1].widest_ms, HOUR_MS);
        assert_eq!(truth.hits[2].widest_ms, 1_000);
    }

    #[test]
    fn a_shorter_retention_leaves_doubt() {
        let (short, long, mut truth) = (class(1_000, HOUR_MS), class(1_000, 24 * HOUR_MS), Truth::new());
        truth.add(NOW_MS, 5, &short);
        let later_ms = NOW_MS + HOUR_MS;
        let mut restarted = truth.clone();
        restarted.leave(&short, later_ms, true);
        assert_eq!(counts(restarted.used(later_ms, 2 * HOUR_MS, &long, later_ms)), [5, 5, 5, 5]);
        truth.leave(&short, later_ms, false);
        let hits = truth.window(later_ms, 2 * HOUR_MS, &long, later_ms);
        assert_eq!((counts(hits), hits.is_known), ([0, 0, 5, 5], true));
        assert!(!truth.is_surely_kept(&long, later_ms));
        // Later hits are certain again, however old they are.
        truth.add(NOW_MS, 2, &long);
        assert_eq!(counts(truth.window(later_ms, 2 * HOUR_MS, &long, later_ms)), [2, 2, 7, 7]);
    }

    #[test]
    fn a_window_past_the_retention_is_not_known() {
        let (class, mut truth) = (class(1_000, HOUR_MS), Truth::new());
        truth.add(NOW_MS - HOUR_MS, 3, &class);
        truth.add(NOW_MS, 4, &class);
        let hits = truth.window(NOW_MS, HOUR_MS + 1, &class, NOW_MS);
        assert_eq!((hits.certain, hits.all, hits.is_known), (4, 4, false));
        assert!(truth.window(NOW_MS, HOUR_MS, &class, NOW_MS).is_known);
        assert_eq!(Truth::refusal(&class, NOW_MS - HOUR_MS, NOW_MS), Some(true));
        assert_eq!(Truth::refusal(&class, NOW_MS - HOUR_MS + 1_000, NOW_MS), None);
        assert_eq!(Truth::refusal(&class, NOW_MS + 10_001, NOW_MS), Some(false));
    }

    #[test]
    fn doubt_takes_no_hit_away() {
        let (class, mut one, mut other) = (ModelSettings::default(), Truth::new(), Truth::new());
        one.add(NOW_MS, 1, &class);
        other.add(NOW_MS, 2, &class);
        one.blur(&other);
        assert_eq!(counts(one.used(NOW_MS, 60_000, &class, NOW_MS)), [0, 0, 3, 3]);
    }
}
