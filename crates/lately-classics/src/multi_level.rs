//! Three rings of ever wider buckets: 300 of 1 s, 48 of 30 min, 14 of 12 h. A week in 362 slots.
//!
//! The textbook version compares the start of a bucket with the start of the window. So it drops the bucket
//! in which the window starts: up to 12 hours of hits, and all of a window shorter than a bucket. Here the
//! edge bucket counts completely. The answer never misses a kept hit, and has too many by at most the hits of
//! one bucket less a second at each edge ([`MultiLevel::counted`] returns these seconds).

use std::ops::RangeInclusive;

use crate::counter::{Counter, window_seconds};
use crate::ring::Ring;

/// (buckets, seconds of each) of each level, finest first.
const LEVELS: [(usize, i64); 3] = [(300, 1), (48, 1_800), (14, 43_200)];

/// Keeps counts of seconds for 5 minutes, of half hours for a day, of half days for a week.
///
/// A read uses the finest level that reaches back to the start of its window, or else the coarsest. Windows
/// that start in the 300 s up to the newest hit are exact. The sum of all counts must stay below `u64::MAX`;
/// beyond it an answer may be too low.
#[derive(Clone, Debug)]
pub struct MultiLevel {
    levels: [Level; LEVELS.len()],
}

#[derive(Clone, Debug)]
struct Level {
    width_s: i64,
    /// A ring by the numbers of buckets instead of seconds.
    buckets: Ring,
}

impl Level {
    fn first_kept_s(&self) -> Option<i64> {
        self.buckets.first_kept().map(|bucket| bucket.saturating_mul(self.width_s))
    }

    fn sum(&self, seconds: &RangeInclusive<i64>) -> u64 {
        let bucket = |second: i64| second.div_euclid(self.width_s);
        self.buckets.sum(&(bucket(*seconds.start())..=bucket(*seconds.end())))
    }

    /// `seconds` widened to whole buckets.
    fn widened(&self, seconds: &RangeInclusive<i64>) -> RangeInclusive<i64> {
        let (start, end) = (*seconds.start(), *seconds.end());
        let after_end = self.width_s - 1 - end.rem_euclid(self.width_s);
        start.saturating_sub(start.rem_euclid(self.width_s))..=end.saturating_add(after_end)
    }
}

impl MultiLevel {
    /// An empty counter.
    #[must_use]
    pub fn new() -> MultiLevel {
        let levels = LEVELS.map(|(slots, width_s)| Level { width_s, buckets: Ring::new(slots) });
        MultiLevel { levels }
    }

    /// The seconds whose hits `load(window_s, at_s)` counts, if they are kept. `None` if there are none. They
    /// contain the window. They start less than a bucket before it. They end with it, or less than a bucket
    /// after it if it ends before the start of the finest level.
    #[must_use]
    pub fn counted(&self, window_s: i64, at_s: i64) -> Option<RangeInclusive<i64>> {
        let window = window_seconds(window_s, at_s)?;
        let widened = self.level_for(&window)?.widened(&window);
        let end = if self.has_seconds_after(at_s) { at_s } else { *widened.end() };
        Some(*widened.start()..=end)
    }

    /// The first second of the level that answers `load(window_s, at_s)`. This read counts no hits before it.
    #[must_use]
    pub fn first_kept(&self, window_s: i64, at_s: i64) -> Option<i64> {
        self.level_for(&window_seconds(window_s, at_s)?)?.first_kept_s()
    }

    fn level_for(&self, window: &RangeInclusive<i64>) -> Option<&Level> {
        self.newest()?;
        let reaches = |level: &&Level| level.first_kept_s().is_some_and(|first| first <= *window.start());
        self.levels.iter().find(reaches).or(self.levels.last())
    }

    /// Whether the finest level has all hits after `at_s`, so that they can be subtracted.
    fn has_seconds_after(&self, at_s: i64) -> bool {
        self.levels[0].first_kept_s().is_some_and(|first| first <= at_s.saturating_add(1))
    }
}

impl Default for MultiLevel {
    fn default() -> MultiLevel {
        MultiLevel::new()
    }
}

impl Counter for MultiLevel {
    fn hit(&mut self, second: i64, count: u64) -> bool {
        let mut kept = false;
        for level in &mut self.levels {
            kept |= level.buckets.hit(second.div_euclid(level.width_s), count);
        }
        kept
    }

    fn load(&mut self, window_s: i64, at_s: i64) -> u64 {
        let Some(window) = window_seconds(window_s, at_s) else { return 0 };
        let Some(level) = self.level_for(&window) else { return 0 };
        let whole = level.sum(&window);
        let bucket_end = *level.widened(&window).end();
        if at_s < bucket_end && self.has_seconds_after(at_s) {
            return whole.saturating_sub(self.levels[0].sum(&(at_s + 1..=bucket_end)));
        }
        whole
    }

    fn newest(&self) -> Option<i64> {
        self.levels[0].buckets.newest()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ExactQueue;
    use crate::testing::{Step, check_examples, for_each_step};

    /// The textbook cutoff, on buckets of half an hour.
    fn textbook(hits: &[i64], window_s: i64, at_s: i64) -> usize {
        let bucket_start = |hit: i64| hit.div_euclid(1_800) * 1_800;
        hits.iter().filter(|&&hit| bucket_start(hit) > at_s - window_s).count()
    }

    #[test]
    fn the_edge_bucket_is_not_dropped() {
        let hits = [1_000, 5_000];
        let mut ours = MultiLevel::new();
        for hit in hits {
            assert!(ours.hit(hit, 1));
        }
        assert_eq!(textbook(&hits, 4_500, 5_000), 1);
        assert_eq!(ours.load(4_500, 5_000), 2);
        assert_eq!(textbook(&hits, 600, 5_000), 0, "all of a window shorter than a bucket");
        assert_eq!(ours.load(600, 5_000), 1);
        assert_eq!(ours.load(3_700, 5_000), 2, "the price: up to a bucket too many");
    }

    #[test]
    fn a_wide_read_sees_no_hit_after_its_time() {
        let mut ours = MultiLevel::new();
        assert!(ours.hit(10_000, 1) && ours.hit(10_005, 2));
        assert_eq!((ours.load(3_600, 10_002), ours.load(3_600, 10_005)), (1, 3));
        assert!(ours.hit(10_400, 4));
        let counted = ours.counted(3_600, 10_002);
        assert_eq!(counted, Some(5_400..=10_799), "no longer in the finest level: whole buckets");
        assert_eq!(ours.load(3_600, 10_002), 7);
    }

    #[test]
    fn a_late_hit_is_kept_by_the_levels_that_reach_it() {
        let mut ours = MultiLevel::new();
        assert!(ours.hit(1_000_000, 1));
        assert!(ours.hit(999_000, 1) && ours.hit(500_000, 1));
        assert!(!ours.hit(100_000, 1), "older than a week");
        assert_eq!((ours.load(300, 1_000_000), ours.load(3_600, 1_000_000)), (1, 2));
        assert_eq!(ours.load(604_800, 1_000_000), 3);
    }

    #[test]
    fn examples() {
        check_examples(MultiLevel::new);
    }

    #[test]
    fn counts_the_hits_of_the_seconds_it_names() {
        for_each_step(MultiLevel::new, |ours, exact: &mut ExactQueue, step| {
            let Step::Read { window_s, at_s } = *step else { return };
            let load = ours.load(window_s, at_s);
            let Some(first_kept) = ours.first_kept(window_s, at_s) else {
                assert_eq!(load, 0);
                return;
            };
            let Some(counted) = ours.counted(window_s, at_s) else {
                assert_eq!(load, 0);
                return;
            };
            let window = window_seconds(window_s, at_s).expect("a window");
            let before = window.start().saturating_sub(*counted.start());
            let after = counted.end().saturating_sub(at_s);
            let width = LEVELS.map(|level| level.1).into_iter().find(|&width| before.max(after) < width);
            assert!(before >= 0 && after >= 0 && width.is_some(), "{step:?}: {counted:?}");
            let first = i128::from(first_kept.max(*counted.start()));
            let seconds = i128::from(*counted.end()) - first + 1;
            let expected = exact.load(i64::try_from(seconds.max(0)).unwrap_or(i64::MAX), *counted.end());
            assert_eq!(load, expected, "{step:?}: {counted:?} kept from {first_kept}");
            if window.start() >= &first_kept {
                assert!(load >= exact.load(window_s, at_s), "{step:?}");
            }
        });
    }
}
