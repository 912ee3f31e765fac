//! Fits hits from elsewhere to the grid of the class: from a checkpoint, a dump, another node or another
//! generation of the key.
//!
//! They come in pieces of time of any width, in any order, and pieces may overlap. All other code relies on
//! panes that are sorted, disjoint, at least as wide as the resolution, and at most as wide as their age
//! allows. So a piece that is too narrow is widened to its pane. A piece that is too wide, or further in the
//! future than hits may be, is kept separately as [`Coarse`].

use super::Entry;
use super::coarse::{Coarse, fits_from_ms};
use super::large::{Large, Parts, Rings};
use super::moment::{Moment, PackedTime};
use crate::limits::MAX_TOTAL;
use crate::panes::{Pane, Panes};
use crate::settings::Settings;
use crate::time::Timestamp;

/// The hits of a piece of time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Piece {
    /// Hits of a known millisecond.
    Moment(Moment),
    /// Hits of a pane.
    Pane { pane: Pane, source: Source },
}

/// The origin of a pane.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Source {
    /// Among the old hits of the same entry: before all of its moments.
    Old,
    /// In a ring: the key was hot.
    Ring,
    /// Anywhere: the order of its hits and the moments is unknown.
    Elsewhere,
    /// Among the coarse panes.
    Coarse,
}

/// The hits of an entry as pieces.
#[derive(Default)]
pub(super) struct Pieces {
    pub(super) list: Vec<Piece>,
    /// The time of the newest hit, if it is known; with `is_by_pane`, the start of its pane.
    pub(super) newest_ms: Option<i64>,
    pub(super) is_by_pane: bool,
    /// The time of the newest hit in coarse panes, if it is known.
    pub(super) coarse_ms: Option<i64>,
    /// When the hits were looked at, if others may have counted more since.
    pub(super) seen_ms: Option<i64>,
}

impl Pieces {
    /// Whether there are hits.
    pub(super) fn has_hits(&self) -> bool {
        self.list.iter().any(|piece| piece.hits() > 0)
    }
}

impl Piece {
    pub(super) fn hits(&self) -> u64 {
        match self {
            Piece::Moment(moment) => moment.hits,
            Piece::Pane { pane, .. } => pane.hits,
        }
    }

    pub(super) fn hits_mut(&mut self) -> &mut u64 {
        match self {
            Piece::Moment(moment) => &mut moment.hits,
            Piece::Pane { pane, .. } => &mut pane.hits,
        }
    }

    /// The millisecond after its last one.
    fn end_ms(&self) -> i64 {
        match self {
            Piece::Moment(moment) => moment.at_ms + 1,
            Piece::Pane { pane, .. } => pane.end_ms(),
        }
    }
}

/// Pieces, sorted by where they are stored.
#[derive(Default)]
struct Fitted {
    moments: Vec<Moment>,
    panes: Vec<Pane>,
    coarse: Vec<Pane>,
    is_ring: bool,
    /// The end of the last pane whose hits may be later than the first moment.
    mixed_end_ms: i64,
    /// Whether a pane is coarse that was not before.
    is_demoted: bool,
}

impl Fitted {
    fn add(&mut self, piece: Piece, settings: &Settings, now: Timestamp) {
        let (now_ms, resolution_ms) = (now.as_millis(), settings.resolution().as_millis());
        let (pane, source) = match piece {
            Piece::Moment(moment) => return self.moments.push(moment),
            Piece::Pane { pane, source } => (pane, source),
        };
        let pane = if pane.width_ms < resolution_ms { widened(pane, resolution_ms) } else { pane };
        if now_ms < fits_from_ms(pane, settings) {
            self.is_demoted |= source != Source::Coarse;
            self.coarse.push(pane);
        } else {
            self.is_ring |= source == Source::Ring && pane.width_ms == resolution_ms;
            if source != Source::Old {
                self.mixed_end_ms = self.mixed_end_ms.max(pane.end_ms());
            }
            self.panes.push(pane);
        }
    }
}

/// From this number of panes of the resolution on, they become a ring.
const RING_FROM: usize = 32;

impl Entry {
    /// An entry with the hits of disjoint panes that others have counted by now.
    pub(crate) fn of_panes(panes: Vec<Pane>, settings: &Settings, now: Timestamp) -> Entry {
        let finest_ms = settings.resolution().as_millis();
        let is_ring = panes.iter().filter(|pane| pane.width_ms == finest_ms).count() >= RING_FROM;
        let source = if is_ring { Source::Ring } else { Source::Elsewhere };
        let list = panes.into_iter().map(|pane| Piece::Pane { pane, source }).collect();
        let seen_ms = Some(now.as_millis());
        Entry::of_pieces(Pieces { list, seen_ms, ..Pieces::default() }, settings, now)
    }

    /// Where the hits are: the first and one past the last millisecond of a piece of time, and the hits in it. In no order.
    pub(crate) fn spans_ms(&self, settings: &Settings) -> impl Iterator<Item = (i64, i64, u64)> {
        let pieces = self.pieces(settings).list.into_iter();
        pieces.filter(|piece| piece.hits() > 0).map(|piece| match piece {
            Piece::Moment(moment) => (moment.at_ms, moment.at_ms + 1, moment.hits),
            Piece::Pane { pane, .. } => (pane.start_ms, pane.end_ms(), pane.hits),
        })
    }

    /// An entry with the hits of these pieces.
    pub(super) fn of_pieces(pieces: Pieces, settings: &Settings, now: Timestamp) -> Entry {
        let Pieces { mut list, newest_ms, is_by_pane, coarse_ms, seen_ms } = pieces;
        keep_newest(&mut list, MAX_TOTAL);
        let mut fitted = Fitted::default();
        let with_hits = list.into_iter().filter(|piece| piece.hits() > 0);
        with_hits.for_each(|piece| fitted.add(piece, settings, now));
        let Fitted { mut moments, panes, coarse, is_ring, mixed_end_ms, is_demoted } = fitted;
        moments.sort_unstable_by_key(|moment| moment.at_ms);
        moments.dedup_by(|moment, before| {
            let is_same = moment.at_ms == before.at_ms;
            before.hits += if is_same { moment.hits } else { 0 };
            is_same
        });
        if panes.is_empty() && coarse.is_empty() {
            return Entry::of_moments(moments.into_iter(), settings, now);
        }
        let last_ms = |panes: &[Pane]| panes.iter().map(|pane| pane.end_ms() - 1).max();
        // A pane wider than those of the class does not give the time of the newest hit.
        let newest_ms = newest_ms.filter(|_| !(is_by_pane && is_demoted)).or_else(|| {
            let last_pane_ms = last_ms(&panes).max(last_ms(&coarse));
            let last_ms = last_pane_ms.max(moments.last().map(|moment| moment.at_ms));
            // Those that have only panes were counted at the time of the clock.
            last_ms.map(|last_ms| if is_by_pane { last_ms.min(now.as_millis()) } else { last_ms })
        });
        let newest_ms = newest_ms.unwrap_or(0).clamp(0, Timestamp::MAX.as_millis());
        let coarse_ms = coarse_ms.filter(|_| !is_demoted).unwrap_or(newest_ms);
        let (panes, coarse) = (Panes::from_any(panes), Coarse::new(coarse, coarse_ms, settings));
        let coarse = coarse.map(|coarse| coarse.seen_at(seen_ms.unwrap_or(i64::MAX)));
        let parts = Parts { panes, coarse, moments, is_ring, mixed_end_ms };
        let large = Large::of_parts(parts, settings, now);
        Entry::Large { newest: PackedTime::pack(newest_ms), large: Box::new(large) }
    }

    /// An entry with the hits of these moments.
    pub(super) fn of_moments(
        moments: impl Iterator<Item = Moment>,
        settings: &Settings,
        now: Timestamp,
    ) -> Entry {
        let mut entry = Entry::new();
        for moment in moments {
            entry.add_moment(moment, Rings::Smaller, settings, now).expect("the total was looked at");
        }
        entry
    }
}

impl Entry {
    /// Counts hits that were counted before, when older ones had expired by a shorter retention or narrower
    /// panes. If the total would exceed its bound, the oldest hits are dropped.
    pub(crate) fn add_again(&mut self, at: Timestamp, hits: u64, settings: &Settings, now: Timestamp) {
        let again = |hits| Moment { at_ms: at.as_millis(), hits };
        if self.add_moment(again(hits), Rings::Smaller, settings, now).is_ok() {
            return;
        }
        let mut pieces = self.pieces(settings);
        keep_newest(&mut pieces.list, MAX_TOTAL.saturating_sub(hits));
        *self = if pieces.has_hits() { Entry::of_pieces(pieces, settings, now) } else { Entry::new() };
        // More hits than the bound were never counted.
        let _ = self.add_moment(again(hits.min(MAX_TOTAL)), Rings::Smaller, settings, now);
    }

    /// Fits the hits again, if there are coarse ones that fit by now. Afterwards answers are the same as
    /// after a restart.
    #[inline]
    pub(crate) fn fit_again(&mut self, settings: &Settings, now: Timestamp) {
        if self.is_to_fit_again(now) {
            *self = Entry::of_pieces(self.pieces(settings), settings, now);
        }
    }

    /// Whether there are coarse hits that fit by now.
    #[inline]
    pub(crate) fn is_to_fit_again(&self, now: Timestamp) -> bool {
        matches!(self, Entry::Large { large, .. } if large.has_coarse())
            && self.coarse().is_some_and(|coarse| coarse.has_fitting(now))
    }
}

/// Drops the oldest hits of pieces that have more than `most` in all.
fn keep_newest(list: &mut [Piece], most: u64) {
    let total: u128 = list.iter().map(|piece| u128::from(piece.hits())).sum();
    let mut excess = total.saturating_sub(most.into());
    if excess == 0 {
        return;
    }
    list.sort_by_key(Piece::end_ms);
    for piece in list {
        let hits = piece.hits_mut();
        let dropped = u64::try_from(excess).unwrap_or(u64::MAX).min(*hits);
        *hits -= dropped;
        excess -= u128::from(dropped);
    }
}

/// The pane of this width that contains a narrower one.
fn widened(pane: Pane, width_ms: i64) -> Pane {
    Pane { start_ms: pane.start_ms.div_euclid(width_ms) * width_ms, width_ms, hits: pane.hits }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::entry::{GivenBack, LimitWindow, until_at_most_of};
    use crate::time::{Span, hours, milliseconds, minutes, seconds};

    const START_MS: i64 = 1_700_000_000_000;

    fn at(ms: i64) -> Timestamp {
        Timestamp::from_millis(START_MS + ms).expect("a time")
    }

    fn classes() -> Vec<Settings> {
        let of = |resolution, precision| {
            Settings::builder().resolution(resolution).precision(precision).build().expect("valid")
        };
        let mut classes = vec![Settings::to_carry()];
        for resolution in [milliseconds(1), milliseconds(10), seconds(1), seconds(10), minutes(1), hours(6)] {
            classes.extend([0.001, 0.01, 0.5].map(|precision| of(resolution, precision)));
        }
        classes.push(Settings::builder().exact(hours(2)).build().expect("valid"));
        for max_skew in [milliseconds(1), milliseconds(1_500), minutes(1), hours(1)] {
            classes.push(Settings::builder().max_skew(max_skew).build().expect("valid"));
        }
        classes.push(Settings::builder().resolution(seconds(30)).window(minutes(30)).build().expect("valid"));
        classes
    }

    /// A step of a test.
    #[derive(Clone, Debug)]
    enum Step {
        Hits { gap_ms: i64, ago_ms: i64, weight: u64, times: u32 },
        Class(usize),
        Tidy,
        KeepMoments,
    }

    fn step() -> impl Strategy<Value = Step> {
        let gap = prop_oneof![0_i64..40, 0_i64..3_000, 0_i64..90_000, 0_i64..3_000_000];
        let ago =
            prop_oneof![3 => Just(0_i64), 1 => 0_i64..5_000, 1 => 0_i64..4_000_000, 1 => -90_000_i64..0];
        let times = prop_oneof![3 => Just(1_u32), 1 => 1_u32..400];
        let hits = (gap, ago, 1_u64..5, times).prop_map(|(gap_ms, ago_ms, weight, times)| Step::Hits {
            gap_ms,
            ago_ms,
            weight,
            times,
        });
        let class = (0..classes().len()).prop_map(Step::Class);
        prop_oneof![6 => hits, 3 => class, 1 => Just(Step::Tidy), 1 => Just(Step::KeepMoments)]
    }

    /// How long ago hits are removed, and how many.
    fn removal() -> impl Strategy<Value = (i64, u64)> {
        let ago_ms = prop_oneof![Just(0_i64), 0_i64..5_000, 0_i64..2_000_000, 0_i64..50_000_000];
        (ago_ms, prop_oneof![1_u64..10, 1_u64..600])
    }

    /// Compares an entry with an exact log of its hits.
    fn check(
        entry: &Entry,
        log: &[(i64, u64)],
        settings: &Settings,
        now_ms: i64,
    ) -> Result<(), TestCaseError> {
        entry.check_consistency(settings, at(now_ms));
        prop_assert_eq!(entry.total(), log.iter().map(|hit| hit.1).sum::<u64>(), "the total");
        let pane = |ms: i64| settings.pane_of(START_MS + ms);
        let mut last = [0; 3];
        for window_s in [1, 7, 60, 300, 361, 900, 1_003, 3_600, 20_000, 86_400, 400_000] {
            let window = Span::from_seconds(window_s).expect("a span");
            for back_ms in [0, 1_500, 600_000] {
                let end_ms = now_ms - back_ms;
                let count = entry.count(at(end_ms), window, settings, at(now_ms));
                let panes = settings.panes_in(window);
                let is_in = |hit: &&(i64, u64)| (0..panes).contains(&(pane(end_ms) - pane(hit.0)));
                let truth: u64 = log.iter().filter(is_in).map(|hit| hit.1).sum();
                let upper = count.upper.unwrap_or(u64::MAX);
                prop_assert!(
                    count.lower <= truth && truth <= upper && (count.lower..=upper).contains(&count.estimate),
                    "{truth} in {window} that ends {back_ms} ms ago: {count:?}"
                );
                if back_ms == 0 {
                    let numbers = [count.estimate, count.lower, upper];
                    prop_assert!(
                        (0..3).all(|n| last[n] <= numbers[n]),
                        "{window}: {numbers:?} after {last:?}"
                    );
                    last = numbers;
                }
            }
            check_waits(entry, window, settings, now_ms)?;
            let limit = LimitWindow::ending_at(at(now_ms), window, at(now_ms));
            let later: u64 =
                log.iter().filter(|hit| hit.0 > now_ms - window.as_millis()).map(|hit| hit.1).sum();
            let used = entry.used(limit, settings);
            prop_assert!(used >= later, "{used} of {later} count in a limit of {window}");
        }
        Ok(())
    }

    /// The wait of a limit, by the definition: fits the hits that fit by the first time with room, until there is room then.
    fn until_by_fitting(
        entries: &mut [Entry],
        most: u64,
        window: LimitWindow,
        settings: &Settings,
    ) -> Option<Span> {
        let mut passed_ms = 0;
        loop {
            let used = |passed_ms| -> u64 {
                entries.iter().map(|entry| entry.used(window.later_by(passed_ms), settings)).sum()
            };
            if used(passed_ms) <= most {
                return Span::from_millis(passed_ms).filter(|_| passed_ms > 0);
            }
            let mut enough_ms = 1_000_000_000_000;
            while passed_ms + 1 < enough_ms {
                let middle_ms = passed_ms + (enough_ms - passed_ms) / 2;
                *(if used(middle_ms) <= most { &mut enough_ms } else { &mut passed_ms }) = middle_ms;
            }
            passed_ms = enough_ms;
            let then = window.later_by(passed_ms).now();
            entries.iter_mut().for_each(|entry| entry.fit_again(settings, then));
        }
    }

    /// Removes hits from pieces of time: first of those that end first, or of those that begin last.
    fn remove(
        spans: &mut [(i64, i64, u64)],
        is_of_them: impl Fn(i64, i64) -> bool,
        hits: u64,
        is_newest_first: bool,
    ) -> u64 {
        spans.sort_by_key(|span| if is_newest_first { (span.0, -span.1) } else { (span.1, -span.0) });
        let mut left = hits;
        let take = |span: &mut (i64, i64, u64)| {
            let taken = if is_of_them(span.0, span.1) { left.min(span.2) } else { 0 };
            (left, span.2) = (left - taken, span.2 - taken);
        };
        if is_newest_first {
            spans.iter_mut().rev().for_each(take);
        } else {
            spans.iter_mut().for_each(take);
        }
        hits - left
    }

    /// The hits that are removed are those of the pieces, in order, and no other piece changes.
    fn check_removals(
        entry: &Entry,
        (back_ms, hits): (i64, u64),
        settings: &Settings,
        now_ms: i64,
    ) -> Result<(), TestCaseError> {
        let mut entry = entry.clone();
        let now = at(now_ms);
        let spans = |entry: &Entry| -> Vec<_> { entry.spans_ms(settings).collect() };
        let with_hits = |mut spans: Vec<(i64, i64, u64)>| {
            spans.retain(|span| span.2 > 0);
            spans.sort_unstable();
            spans
        };
        let at_ms = START_MS + now_ms - back_ms;
        let time = Timestamp::from_millis(at_ms).expect("a time");
        let mut left = spans(&entry);
        let covering = left.iter_mut().rev().find(|span| (span.0..span.1).contains(&at_ms));
        let taken = covering.map_or(0, |span| {
            let taken = hits.min(span.2);
            span.2 -= taken;
            taken
        });
        let mut subtracted = entry.clone();
        prop_assert_eq!(subtracted.subtract(time, hits, settings, now), hits - taken);
        prop_assert_eq!(with_hits(spans(&subtracted)), with_hits(left));
        entry.keep_moments(settings, now);
        let window = LimitWindow::ending_at(now, Span::from_millis(back_ms + 1).expect("a span"), now);
        let certain: u64 = spans(&entry).iter().filter(|span| span.0 >= at_ms).map(|span| span.2).sum();
        prop_assert_eq!(entry.certain_hits(window, settings), certain);
        type Take<'a> = &'a dyn Fn(&mut Entry) -> Option<GivenBack>;
        type IsOfThem<'a> = &'a dyn Fn(i64, i64) -> bool;
        let last_ms = at_ms + back_ms / 2;
        let ways: [(Take<'_>, IsOfThem<'_>, bool); 3] = [
            (&|entry| entry.give_back(window, hits, settings, now), &|start_ms, _| start_ms >= at_ms, true),
            (&|entry| entry.give_back_from(at_ms, hits, settings, now), &|_, end_ms| end_ms > at_ms, true),
            (
                &|entry| entry.take_back((at_ms, last_ms), hits, settings, now),
                &|start_ms, end_ms| {
                    (at_ms..=last_ms).contains(&(end_ms - 1)) || (start_ms..end_ms).contains(&at_ms)
                },
                false,
            ),
        ];
        let past = LimitWindow::ending_at(
            Timestamp::from_millis(last_ms).expect("a time"),
            Span::from_millis(last_ms - at_ms + 1).expect("a span"),
            now,
        );
        let is_in_past = |start_ms, end_ms| start_ms >= at_ms && end_ms - 1 <= last_ms;
        let (mut rest, mut left) = (entry.clone(), spans(&entry));
        let before = with_hits(left.clone());
        let most = remove(&mut left, is_in_past, hits, true);
        let ranges = entry.newest_until(past, last_ms, hits);
        let taken: u64 = ranges.iter().map(|(_, hits)| hits).sum();
        for (range, hits) in &ranges {
            let given = rest.take_back(*range, *hits, settings, now);
            prop_assert_eq!(given.map_or(0, |given| given.hits), *hits);
        }
        let after = with_hits(spans(&rest));
        if entry.coarse().is_none() {
            prop_assert_eq!((taken, after), (most, with_hits(left)));
        } else {
            prop_assert!(taken <= most);
            let changed = before.iter().filter(|span| !after.contains(span));
            prop_assert!(
                changed.clone().all(|span| is_in_past(span.0, span.1)),
                "{:?} to {:?}",
                before,
                after
            );
        }
        for (take, is_of_them, is_newest_first) in ways {
            let mut rest = entry.clone();
            // A copy has other buffers than those that are accounted for.
            rest.merge(settings, now);
            let (newest_ms, mut left) = (rest.newest_ms(), spans(&rest));
            let taken = remove(&mut left, is_of_them, hits, is_newest_first);
            let given = take(&mut rest);
            prop_assert_eq!(given.as_ref().map_or(0, |given| given.hits), taken);
            prop_assert_eq!(given.as_ref().map_or(0, |given| given.entry.total()), taken);
            rest.check_consistency(settings, now);
            let end_ms = left.iter().map(|span| span.1).max();
            // A pane of another form may end at the same time.
            let ends_as_before = left.iter().any(|span| Some(span.1) == end_ms && span.2 > 0);
            let left = with_hits(left);
            prop_assert_eq!(with_hits(spans(&rest)), left.clone());
            let last_ms = left.iter().map(|span| span.1 - 1).max().unwrap_or(0);
            prop_assert_eq!(rest.newest_ms(), if ends_as_before { newest_ms } else { last_ms });
            // Put back, all hits are there again.
            if let Some(given) = given {
                rest.absorb(given.entry, settings, now);
            }
            rest.check_consistency(settings, now);
            prop_assert_eq!(rest.total(), entry.total());
        }
        Ok(())
    }

    /// The wait that a limit returns ends at the first time with room, whatever the form of the hits is by
    /// then.
    fn check_waits(
        entry: &Entry,
        window: Span,
        settings: &Settings,
        now_ms: i64,
    ) -> Result<(), TestCaseError> {
        let mut entry = entry.clone();
        entry.fit_again(settings, at(now_ms));
        let used_at = |at: Timestamp, is_tidied: bool| {
            let mut entry = entry.clone();
            entry.fit_again(settings, at);
            if is_tidied {
                entry.merge(settings, at);
            }
            entry.used(LimitWindow::ending_at(at, window, at), settings)
        };
        let limit = LimitWindow::ending_at(at(now_ms), window, at(now_ms));
        let used = entry.used(limit, settings);
        for most in [0, used / 2, used.saturating_sub(1)] {
            let until = entry.until_at_most(most, used, limit, settings);
            prop_assert_eq!(until.is_some(), used > most);
            prop_assert_eq!(until, until_by_fitting(&mut [entry.clone()], most, limit, settings));
            if used > most {
                let both = until_at_most_of([&entry, &entry], most, limit, settings);
                prop_assert_eq!(
                    both,
                    until_by_fitting(&mut [entry.clone(), entry.clone()], most, limit, settings)
                );
            }
            if most == 0 {
                prop_assert_eq!(
                    entry.until_none(limit, settings),
                    until,
                    "until none of {} in {}",
                    used,
                    window
                );
            }
            let Some(until) = until else { continue };
            let then = at(now_ms).saturating_add(until);
            for is_tidied in [false, true] {
                let left = used_at(then, is_tidied);
                prop_assert!(left <= most, "{left} of {used} in {window} are left after {until}, of {most}");
                let left = used_at(at(then.as_millis() - START_MS - 1), is_tidied);
                prop_assert!(left > most, "{left} of {used} in {window} are left before {until}, of {most}");
            }
        }
        Ok(())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(256))]
        /// The class of a key changes, by a restart or a dump, while hits continue, some of them late.
        #[test]
        fn hits_that_change_class_stay_within_their_bounds(
            steps in prop::collection::vec(step(), 1..40),
            removals in prop::collection::vec(removal(), 8),
        ) {
            let classes = classes();
            let (mut entry, mut log, mut now_ms) = (Entry::new(), Vec::new(), 50_000_000_i64);
            let mut settings = &classes[8];
            for step in steps {
                match step {
                    Step::Hits { gap_ms, ago_ms, weight, times } => {
                        let ago_ms = ago_ms.max(-settings.max_skew().as_millis());
                        for _ in 0..times {
                            now_ms += gap_ms / i64::from(times);
                            entry.add(at(now_ms - ago_ms), weight, settings, at(now_ms)).expect("counted");
                            log.push((now_ms - ago_ms, weight));
                        }
                    }
                    Step::Class(class) => {
                        let mut bytes = Vec::new();
                        entry.write(settings, &mut bytes);
                        settings = &classes[class];
                        entry = Entry::read(&bytes, settings, at(now_ms)).expect("it was written so");
                    }
                    Step::Tidy => entry.merge(settings, at(now_ms)),
                    Step::KeepMoments => entry.keep_moments(settings, at(now_ms)),
                }
                check(&entry, &log, settings, now_ms)?;
            }
            removals.iter().try_for_each(|&removal| check_removals(&entry, removal, settings, now_ms))?;
        }
    }
}
