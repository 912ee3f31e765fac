//! What was denied to a key last: a number for each of a few panes. Who goes on asking in vain is counted here; the
//! entry with all that was denied, on other pages of memory, is left alone meanwhile.

use crate::entry::Entry;
use crate::settings::Settings;
use crate::time::Timestamp;

/// Panes with a number.
const PANES: usize = 6;

/// Hits in panes, oldest first.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Recent {
    start_ms: i64,
    /// 0 when there is nothing.
    pane_ms: u32,
    /// 0 of those that are not used.
    hits: [u32; PANES],
    /// How many panes each is behind the first.
    behind: [u16; PANES],
}

impl Recent {
    /// With hits in the pane of the resolution that starts then; `None` when they are too many.
    pub(super) fn new(start: Timestamp, hits: u64, settings: &Settings) -> Option<Recent> {
        let pane_ms = u32::try_from(settings.resolution().as_millis()).ok()?;
        let first = u32::try_from(hits).ok().filter(|&hits| hits > 0)?;
        let mut recent = Recent { start_ms: start.as_millis(), pane_ms, ..Recent::default() };
        recent.hits[0] = first;
        Some(recent)
    }

    /// The number for the pane that starts, or has a time, then, and how far that is behind the first, if it has one or
    /// may have the next.
    #[inline]
    fn pane(&self, at: Timestamp) -> Option<(usize, u16)> {
        let gap_ms = u32::try_from(at.as_millis() - self.start_ms).ok()?;
        let behind = u16::try_from(gap_ms.checked_div(self.pane_ms)?).ok()?;
        // Most are counted in the newest.
        let used = PANES - self.hits.iter().rev().take_while(|&&hits| hits == 0).count();
        let found = (0..used).rev().find(|&pane| self.behind[pane] <= behind)?;
        match found {
            found if self.behind[found] == behind => Some((found, behind)),
            found if found + 1 == used && used < PANES => Some((used, behind)),
            _ => None,
        }
    }

    /// Counts hits in the pane that starts then; false, and nothing changes, when it has no number, or they are too
    /// many.
    #[inline]
    pub(super) fn add(&mut self, start: Timestamp, hits: u64) -> bool {
        let Some((pane, behind)) = self.pane(start) else { return false };
        let sum = u32::try_from(hits).ok().and_then(|hits| self.hits[pane].checked_add(hits));
        let Some(sum) = sum.filter(|&sum| sum > 0) else { return false };
        (self.hits[pane], self.behind[pane]) = (sum, behind);
        true
    }

    /// Whether hits at a time are counted here.
    #[inline]
    pub(super) fn reaches(&self, at: Timestamp) -> bool {
        self.pane(at).is_some()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pane_ms == 0
    }

    /// Where a pane starts.
    fn start(&self, pane: usize) -> Option<Timestamp> {
        let gap_ms = u64::from(self.pane_ms) * u64::from(self.behind[pane]);
        Timestamp::from_millis(self.start_ms.checked_add_unsigned(gap_ms)?)
    }

    /// Where the newest pane with hits starts, if there is one.
    pub(super) fn newest(&self) -> Option<Timestamp> {
        self.hits.iter().rposition(|&hits| hits > 0).and_then(|pane| self.start(pane))
    }

    /// Adds all to an entry, until that has as many as can be counted.
    pub(super) fn add_to(&self, entry: &mut Entry, settings: &Settings, now: Timestamp) {
        for (pane, &hits) in self.hits.iter().enumerate().filter(|(_, hits)| **hits > 0) {
            if let Some(start) = self.start(pane) {
                let _ = entry.add(start, hits.into(), settings, now);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::milliseconds;

    fn at(ms: i64) -> Timestamp {
        Timestamp::from_millis(ms).expect("a time")
    }

    fn held(recent: &Recent, settings: &Settings) -> Vec<(i64, u64)> {
        let mut entry = Entry::new();
        recent.add_to(&mut entry, settings, at(9_000));
        let step = settings.resolution().as_millis();
        let starts = (0..9_000 / step).map(|pane| pane * step);
        starts.map(|ms| (ms, entry.sum(ms, ms + step, settings))).filter(|&(_, hits)| hits > 0).collect()
    }

    #[test]
    fn a_few_panes_have_a_number_each() {
        let settings = Settings::builder().resolution(milliseconds(500)).build().expect("valid");
        let mut recent = Recent::new(at(1_000), 2, &settings).expect("few");
        let steps = [
            (1_000, true),
            (999, false),
            (3_000, true),
            // Between two.
            (2_500, false),
            (3_000, true),
            (1_499, true),
            (4_000, true),
            (4_500, true),
            (8_000, true),
            (8_600, true),
            // There are six.
            (9_000, false),
            (8_000, true),
        ];
        for (ms, is_there) in steps {
            assert_eq!(recent.reaches(at(ms)), is_there, "{ms}");
            assert_eq!(recent.add(at(ms), 3), is_there, "{ms}");
        }
        let all = [(1_000, 8), (3_000, 6), (4_000, 3), (4_500, 3), (8_000, 6), (8_500, 3)];
        assert_eq!(held(&recent, &settings), all);
        assert_eq!(recent.newest(), Some(at(8_500)));
    }

    #[test]
    fn panes_far_behind_the_first_have_none() {
        let settings = Settings::default();
        let mut recent = Recent::new(at(1_000), 2, &settings).expect("few");
        let last = 1_000 + 1_000 * i64::from(u16::MAX);
        assert!(!recent.add(at(last + 1_000), 1) && !recent.add(at(i64::from(u32::MAX) + 1_001), 1));
        assert!(recent.add(at(last), 1));
        assert_eq!(recent.newest(), Some(at(last)));
    }

    #[test]
    fn numbers_do_not_wrap() {
        let settings = Settings::default();
        let most = u64::from(u32::MAX);
        let mut recent = Recent::new(at(1_000), most - 1, &settings).expect("few");
        assert!(recent.add(at(1_000), 1) && !recent.add(at(1_000), 1) && !recent.add(at(2_000), most + 1));
        assert_eq!(held(&recent, &settings), [(1_000, most)]);
        assert!(Recent::new(at(0), most + 1, &settings).is_none());
    }

    #[test]
    fn nothing_is_nowhere() {
        let mut recent = Recent::default();
        assert!(recent.is_empty() && !recent.reaches(at(0)) && !recent.add(at(0), 1));
        assert_eq!((recent.newest(), held(&recent, &Settings::default())), (None, vec![]));
        assert!(Recent::new(at(0), 0, &Settings::default()).is_none());
        let days = Settings::builder().resolution(crate::time::days(1)).build().expect("valid");
        let last = Recent::new(Timestamp::MAX, 1, &days).expect("few");
        assert!(!last.is_empty() && last.newest() == Some(Timestamp::MAX));
        last.add_to(&mut Entry::new(), &days, Timestamp::MAX);
    }
}
