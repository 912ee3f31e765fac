//! The newest denied hits of a key: a number for each of a few panes. A client that repeats denied requests
//! is counted here, so that the entry of all denied hits, which is elsewhere in memory, stays untouched.

use crate::entry::{Entry, FEW};
use crate::settings::Settings;
use crate::time::Timestamp;

/// The most panes.
const PANES: usize = FEW;

/// Hits by pane, oldest first.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct RecentDenials {
    /// The start of the newest pane.
    newest_ms: i64,
    /// The width of the panes; 0 if there are none.
    pane_ms: u32,
    /// The number of panes in use.
    used: u8,
    /// The distance of each pane from the one before it, in panes.
    behind: [u8; PANES],
    /// The hits of each pane. Never 0 in a pane in use.
    hits: [u16; PANES],
}

impl RecentDenials {
    /// One pane of the resolution, which starts at `start`. `None` if it has too many hits.
    pub(super) fn new(start: Timestamp, hits: u64, settings: &Settings) -> Option<RecentDenials> {
        let pane_ms = u32::try_from(settings.resolution().as_millis()).ok()?;
        let hits = u16::try_from(hits).ok().filter(|&hits| hits > 0)?;
        let mut recent =
            RecentDenials { newest_ms: start.as_millis(), pane_ms, used: 1, ..RecentDenials::default() };
        recent.hits[0] = hits;
        Some(recent)
    }

    /// The pane of a time, or the next pane in which it would be; and the distance from the newest pane.
    #[inline]
    fn pane(&self, at: Timestamp) -> Option<(usize, u8)> {
        let (used, pane_ms) = (usize::from(self.used), i64::from(self.pane_ms));
        let gap_ms = at.as_millis() - self.newest_ms;
        // The most frequent case: the newest pane.
        if (0..pane_ms).contains(&gap_ms) {
            return Some((used - 1, 0));
        }
        if gap_ms >= 0 {
            let more = u8::try_from(gap_ms.checked_div(pane_ms)?).ok()?;
            return (used < PANES).then_some((used, more));
        }
        let starts = self.starts_back().zip((0..used).rev());
        let held = starts.map(|(start_ms, pane)| (at.as_millis() - start_ms, pane)).find(|held| held.0 >= 0);
        held.filter(|held| held.0 < pane_ms).map(|(_, pane)| (pane, 0))
    }

    /// Counts hits in the pane of `at`. Returns false and changes nothing if that pane is not here, or would
    /// have too many hits.
    #[inline]
    pub(super) fn add(&mut self, at: Timestamp, hits: u64) -> bool {
        let Some((index, more)) = self.pane(at) else { return false };
        let sum = u16::try_from(hits).ok().and_then(|hits| self.hits[index].checked_add(hits));
        let Some(sum) = sum.filter(|&sum| sum > 0) else { return false };
        self.hits[index] = sum;
        if more > 0 {
            self.behind[index] = more;
            self.newest_ms += i64::from(more) * i64::from(self.pane_ms);
            self.used += 1;
        }
        true
    }

    /// Whether the pane of `at` is here.
    #[inline]
    pub(super) fn reaches(&self, at: Timestamp) -> bool {
        self.pane(at).is_some()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.used == 0
    }

    /// The starts of the panes, newest first.
    fn starts_back(&self) -> impl Iterator<Item = i64> {
        let behind = self.behind[..usize::from(self.used)].iter().rev();
        behind.scan(self.newest_ms, |next_ms, &more| {
            let start_ms = *next_ms;
            *next_ms -= i64::from(more) * i64::from(self.pane_ms);
            Some(start_ms)
        })
    }

    /// The panes, oldest first: start and hits.
    fn panes(&self) -> impl Iterator<Item = (Timestamp, u64)> + Clone {
        let oldest_ms = self.starts_back().last().unwrap_or_default();
        let numbered = self.behind.iter().zip(&self.hits).take(usize::from(self.used));
        numbered.scan(oldest_ms, |start_ms, (&more, &hits)| {
            *start_ms += i64::from(more) * i64::from(self.pane_ms);
            let start = Timestamp::from_millis(*start_ms).expect("it was given as a time");
            Some((start, hits.into()))
        })
    }

    /// The start of the newest pane, if there is one.
    pub(super) fn newest(&self) -> Option<Timestamp> {
        Timestamp::from_millis(self.newest_ms).filter(|_| self.used > 0)
    }

    /// Adds all hits to an entry, up to its bound.
    pub(super) fn add_to(&self, entry: &mut Entry, settings: &Settings, now: Timestamp) {
        // Most likely more than fits inline: build the list at once.
        if entry.is_empty() && self.used > 4 {
            *entry = Entry::of_few(self.panes());
            return;
        }
        for (start, hits) in self.panes() {
            let _ = entry.add(start, hits, settings, now);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::time::milliseconds;

    fn at(ms: i64) -> Timestamp {
        Timestamp::from_millis(ms).expect("a time")
    }

    fn held(recent: &RecentDenials, settings: &Settings) -> Vec<(i64, u64)> {
        let mut entry = Entry::new();
        recent.add_to(&mut entry, settings, at(20_000));
        let step = settings.resolution().as_millis();
        let starts = (0..20_000 / step).map(|pane| pane * step);
        starts.map(|ms| (ms, entry.sum(ms, ms + step, settings))).filter(|&(_, hits)| hits > 0).collect()
    }

    /// Each denied request reads these 48 bytes.
    #[test]
    fn recent_denials_take_less_than_a_cache_line() {
        assert_eq!(size_of::<RecentDenials>(), 48);
    }

    #[test]
    fn eleven_panes_have_a_count_each() {
        let settings = Settings::builder().resolution(milliseconds(500)).build().expect("valid");
        let mut recent = RecentDenials::new(at(1_000), 2, &settings).expect("few");
        let steps = [
            (1_000, true),
            (999, false),
            (3_000, true),
            // Between two panes.
            (2_500, false),
            (3_000, true),
            (1_499, true),
            (4_000, true),
            (4_500, true),
            (8_000, true),
            (8_600, true),
            (10_000, true),
            (10_500, true),
            (11_000, true),
            (14_000, true),
            (19_999, true),
            // All eleven panes are in use.
            (20_000, false),
            (8_000, true),
        ];
        for (ms, is_there) in steps {
            assert_eq!(recent.reaches(at(ms)), is_there, "{ms}");
            assert_eq!(recent.add(at(ms), 3), is_there, "{ms}");
        }
        let all = [
            (1_000, 8),
            (3_000, 6),
            (4_000, 3),
            (4_500, 3),
            (8_000, 6),
            (8_500, 3),
            (10_000, 3),
            (10_500, 3),
            (11_000, 3),
            (14_000, 3),
            (19_500, 3),
        ];
        assert_eq!(held(&recent, &settings), all);
        assert_eq!(recent.newest(), Some(at(19_500)));
    }

    #[test]
    fn many_panes_are_added_at_once() {
        let days = Settings::builder().resolution(crate::time::days(1)).build().expect("valid");
        let day_ms = days.resolution().as_millis();
        for used in 1..=11 {
            let mut recent = RecentDenials::new(at(0), u16::MAX.into(), &days).expect("few");
            (1..used).for_each(|pane| assert!(recent.add(at(255 * pane * day_ms), u16::MAX.into())));
            let (mut entry, mut others) = (Entry::new(), Entry::new());
            recent.add_to(&mut entry, &days, Timestamp::MAX);
            others.add(at(1), 1, &days, Timestamp::MAX).expect("counted");
            recent.add_to(&mut others, &days, Timestamp::MAX);
            for pane in 0..=used {
                let sum = |entry: &Entry| entry.sum(0, 255 * pane * day_ms + 1, &days);
                let hits = u64::from(u16::MAX) * (pane + 1).min(used).cast_unsigned();
                assert_eq!((sum(&entry), sum(&others)), (hits, hits + u64::from(pane > 0)));
            }
            entry.check_consistency(&days, Timestamp::MAX);
        }
    }

    #[test]
    fn panes_far_ahead_of_the_others_are_refused() {
        let settings = Settings::default();
        let mut recent = RecentDenials::new(at(1_000), 2, &settings).expect("few");
        let last = 1_000 + 1_000 * i64::from(u8::MAX);
        assert!(!recent.add(at(last + 1_000), 1) && !recent.add(at(i64::from(u32::MAX) + 1_001), 1));
        assert!(recent.add(at(last), 1));
        assert_eq!(recent.newest(), Some(at(last)));
    }

    proptest! {
        /// A hit is accepted in a pane that is in use, and in the next of the eleven.
        #[test]
        fn recent_denials_hold_every_accepted_hit(
            first in 300_u64..310,
            hits in prop::collection::vec((0_u64..640, 0_u64..40_000, 0..5), 1..40),
        ) {
            let settings = Settings::builder().resolution(milliseconds(500)).build().expect("valid");
            let start_of = |pane: u64| at(i64::try_from(pane * 500).expect("small"));
            let mut recent = RecentDenials::new(start_of(first), 1, &settings).expect("few");
            let mut expected = BTreeMap::from([(first, 1)]);
            for (pane, hits, way) in hits {
                let (&newest, _) = expected.last_key_value().expect("there is one");
                let pane = match way {
                    0 => pane,
                    // The furthest pane behind the newest that is accepted, or just beyond it.
                    1 => newest + 254 + pane % 3,
                    _ => newest + pane % 3,
                };
                let held = expected.get(&pane).copied();
                let is_next = pane > newest && pane - newest <= 255 && expected.len() < PANES;
                let has_place = held.is_some() || is_next;
                let sum = held.unwrap_or(0) + hits;
                let is_taken = has_place && (1..=u64::from(u16::MAX)).contains(&sum) && hits <= u64::from(u16::MAX);
                let time = at(start_of(pane).as_millis() + i64::try_from(hits % 500).expect("small"));
                prop_assert_eq!((recent.reaches(time), recent.add(time, hits)), (has_place, is_taken));
                if is_taken {
                    expected.insert(pane, sum);
                }
            }
            let panes: Vec<(Timestamp, u64)> = recent.panes().collect();
            let expected: Vec<(Timestamp, u64)> =
                expected.into_iter().map(|(pane, hits)| (start_of(pane), hits)).collect();
            prop_assert_eq!(recent.newest(), expected.last().map(|pane| pane.0));
            prop_assert_eq!(panes, expected);
        }
    }

    #[test]
    fn recent_denials_do_not_wrap() {
        let settings = Settings::default();
        let most = u64::from(u16::MAX);
        let mut recent = RecentDenials::new(at(1_000), most - 1, &settings).expect("few");
        assert!(recent.add(at(1_000), 1) && !recent.add(at(1_000), 1) && !recent.add(at(2_000), most + 1));
        assert_eq!(held(&recent, &settings), [(1_000, most)]);
        assert!(RecentDenials::new(at(0), most + 1, &settings).is_none());
    }

    #[test]
    fn empty_recent_denials_take_no_hit() {
        let mut recent = RecentDenials::default();
        assert!(recent.is_empty() && !recent.reaches(at(0)) && !recent.add(at(0), 1));
        assert_eq!((recent.newest(), held(&recent, &Settings::default())), (None, vec![]));
        assert!(RecentDenials::new(at(0), 0, &Settings::default()).is_none());
        let days = Settings::builder().resolution(crate::time::days(1)).build().expect("valid");
        let last = RecentDenials::new(Timestamp::MAX, 1, &days).expect("few");
        assert!(!last.is_empty() && last.newest() == Some(Timestamp::MAX));
        last.add_to(&mut Entry::new(), &days, Timestamp::MAX);
    }
}
