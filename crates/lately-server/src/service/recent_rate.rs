//! The hits of the last minutes, second by second: what a chart of the total rate begins with.

use std::collections::VecDeque;

use lately::Timestamp;

use crate::limits::HISTORY_SECONDS;

/// What was counted and denied until some second began, the newest last.
#[derive(Default, Debug)]
pub(crate) struct RecentRate {
    marks: VecDeque<(i64, Totals)>,
}

/// Hits since the start, by weight.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct Totals {
    pub(crate) hits: u64,
    pub(crate) denied: u64,
}

/// Hits of each second, oldest first.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub(crate) struct PerSecond {
    /// The Unix second at which the newest one ended.
    pub(crate) end: i64,
    pub(crate) hits: Vec<u64>,
    pub(crate) denied: Vec<u64>,
}

impl RecentRate {
    /// Notes the totals, if a second has begun since the last mark. Seconds that were missed share what was counted in them.
    pub(crate) fn note(&mut self, now: Timestamp, totals: Totals) {
        let second = now.as_millis().div_euclid(1_000);
        let Some(&(last, before)) = self.marks.back() else {
            return self.marks.push_back((second, totals));
        };
        let passed = u64::try_from(second - last).unwrap_or(0);
        let first = passed.saturating_sub(HISTORY_SECONDS as u64) + 1;
        for number in first..=passed {
            let part = |before: u64, now: u64| {
                let more = u128::from(now.saturating_sub(before)) * u128::from(number) / u128::from(passed);
                before.saturating_add(u64::try_from(more).unwrap_or(u64::MAX))
            };
            let totals =
                Totals { hits: part(before.hits, totals.hits), denied: part(before.denied, totals.denied) };
            if self.marks.len() > HISTORY_SECONDS {
                self.marks.pop_front();
            }
            self.marks.push_back((last.saturating_add_unsigned(number), totals));
        }
    }

    /// The newest seconds, at most this many.
    pub(crate) fn newest(&self, seconds: usize) -> PerSecond {
        let marks = self.marks.range(self.marks.len().saturating_sub(seconds + 1)..);
        let pairs = || marks.clone().zip(marks.clone().skip(1));
        PerSecond {
            end: self.marks.back().map_or(0, |(second, _)| *second),
            hits: pairs().map(|((_, one), (_, next))| next.hits.saturating_sub(one.hits)).collect(),
            denied: pairs().map(|((_, one), (_, next))| next.denied.saturating_sub(one.denied)).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(recent: &mut RecentRate, ms: i64, hits: u64) {
        let now = Timestamp::from_millis(ms).expect("in range");
        recent.note(now, Totals { hits, denied: hits / 10 });
    }

    #[test]
    fn a_second_has_what_was_counted_in_it() {
        let mut recent = RecentRate::default();
        assert_eq!(recent.newest(9), PerSecond::default());
        for (ms, hits) in [(10_000, 0), (10_900, 50), (11_050, 60), (12_010, 60), (13_000, 90)] {
            note(&mut recent, ms, hits);
        }
        let PerSecond { end, hits, denied } = recent.newest(9);
        assert_eq!((end, hits, denied), (13, vec![60, 0, 30], vec![6, 0, 3]));
        assert_eq!(recent.newest(1).hits, [30]);
    }

    #[test]
    fn seconds_that_were_missed_share_their_hits() {
        let mut recent = RecentRate::default();
        note(&mut recent, 1_000, 0);
        note(&mut recent, 5_000, 10);
        assert_eq!(recent.newest(9).hits, [2, 3, 2, 3]);
    }

    #[test]
    fn the_oldest_seconds_are_dropped() {
        let mut recent = RecentRate::default();
        for second in 0..2 * HISTORY_SECONDS as u64 {
            note(&mut recent, 1_000 * i64::try_from(second).expect("small"), second);
        }
        assert_eq!(recent.newest(usize::MAX - 1).hits, [1; HISTORY_SECONDS]);
        // A long stall, as of a machine that was suspended.
        note(&mut recent, i64::from(u32::MAX) * 1_000, 599 + 3 * HISTORY_SECONDS as u64);
        let PerSecond { end, hits, .. } = recent.newest(usize::MAX - 1);
        assert_eq!((end, hits.len()), (i64::from(u32::MAX), HISTORY_SECONDS));
    }
}
