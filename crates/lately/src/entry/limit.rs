//! The hits that count against a limit, to the millisecond.
//!
//! A hit counts until it is as old as the window. Of a hit in a pane or in the ring only the pane is known.
//! It counts until the last millisecond of the grid cell that its pane may have been merged into by then. A
//! hit in a coarse pane counts until the last millisecond of that pane. So a merge never changes a decision,
//! and no limit counts too few hits.

use super::Entry;
use super::coarse::{Coarse, Fitted};
use super::list::{List, ListMut};
use super::moment::Moment;
use crate::frame::Frame;
use crate::settings::Settings;
use crate::time::{Span, Timestamp};

/// The window of a limit: all milliseconds later than `at` - `window`, including those after `at`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LimitWindow {
    at_ms: i64,
    window_ms: i64,
    /// Its first millisecond, and the age of that.
    from_ms: i64,
    age_ms: i64,
}

impl LimitWindow {
    /// The window of length `window` that ends at `at`, as seen from `now`.
    pub(crate) fn ending_at(at: Timestamp, window: Span, now: Timestamp) -> LimitWindow {
        let (at_ms, window_ms) = (at.as_millis(), window.as_millis());
        let from_ms = at_ms - window_ms + 1;
        LimitWindow { at_ms, window_ms, from_ms, age_ms: now.as_millis() - from_ms }
    }

    /// Its first millisecond.
    pub(crate) fn first_ms(self) -> i64 {
        self.from_ms
    }

    /// Its end, if that is before the time from which it is seen.
    pub(crate) fn past_ms(self) -> Option<i64> {
        Some(self.at_ms).filter(|at_ms| *at_ms < self.from_ms + self.age_ms)
    }

    /// The window of a frame that was made for a limit.
    fn of(frame: &Frame) -> Option<LimitWindow> {
        let window = Span::from_millis(frame.to_ms - frame.from_ms)?;
        Some(LimitWindow::ending_at(frame.now, window, frame.now))
    }

    /// The width of the grid cells at its far edge.
    fn grid_ms(self, settings: &Settings) -> i64 {
        settings.ladder().edge_grid_ms(self.age_ms, settings.exact())
    }

    /// The start of the grid cell at its far edge.
    fn cell_ms(self, settings: &Settings) -> i64 {
        let grid_ms = self.grid_ms(settings);
        self.from_ms.div_euclid(grid_ms) * grid_ms
    }

    /// The time from which a hit at `at_ms` does not count.
    fn moment_leaves_ms(self, at_ms: i64) -> i64 {
        at_ms + self.window_ms
    }

    /// The time from which the hits of a pane do not count. The pane ends at `end_ms`; its hits are before
    /// the end of its grid cell, and before `moments_ms`.
    fn pane_leaves_ms(self, end_ms: i64, moments_ms: i64, grid_ms: i64) -> i64 {
        let cell_end_ms = (end_ms - 1).div_euclid(grid_ms) * grid_ms + grid_ms;
        cell_end_ms.min(moments_ms) - 1 + self.window_ms
    }

    /// The same window later.
    pub(super) fn later_by(self, passed_ms: i64) -> LimitWindow {
        LimitWindow { at_ms: self.at_ms + passed_ms, from_ms: self.from_ms + passed_ms, ..self }
    }

    /// The time from which it is seen.
    pub(super) fn now(self) -> Timestamp {
        Timestamp::from_millis(self.from_ms + self.age_ms).unwrap_or(Timestamp::MAX)
    }

    /// The time from the end of the window until `ms`. `None` if that is over.
    fn until(self, ms: i64) -> Option<Span> {
        Span::from_millis(ms - self.at_ms)
    }
}

impl Entry {
    /// Whether the exact times of the newest hits are kept, or are not needed yet.
    #[inline]
    pub(crate) fn keeps_moments(&self) -> bool {
        match self {
            Entry::Inline(_) => true,
            Entry::List { head, bytes } => List { head, bytes }.keeps_moments(),
            Entry::Large { .. } => false,
        }
    }

    /// From now on the exact times of the newest hits are kept, however many there are: limits need them.
    pub(crate) fn keep_moments(&mut self, settings: &Settings, now: Timestamp) {
        match self {
            // Inline hits are exact. The setting is made when they become a list.
            Entry::Inline(_) => {}
            Entry::List { head, bytes } => ListMut { head, bytes }.keep_moments(),
            Entry::Large { large, .. } => large.keep_moments(settings, now),
        }
    }

    /// The hits that count in the window of a limit that ends now. From now on the exact times of the newest
    /// hits are kept. `None` if there are no hits.
    #[inline]
    pub(crate) fn used_now(&mut self, frame: &Frame, settings: &Settings) -> Option<u64> {
        match self {
            Entry::Inline(_) | Entry::List { .. } => self.used_in_list(frame),
            Entry::Large { large, .. } if large.has_coarse() => None,
            Entry::Large { large, .. } => {
                let from_ms = frame.from_ms;
                let moments = large.sum_and_keep(from_ms)?;
                if large.moments_from_ms() <= from_ms {
                    return Some(moments);
                }
                let cell_ms = LimitWindow::of(frame)?.cell_ms(settings);
                Some(moments + large.pane_sum(cell_ms, settings))
            }
        }
    }

    /// The same for a key whose hits are all exact.
    #[inline]
    pub(crate) fn used_in_list(&mut self, frame: &Frame) -> Option<u64> {
        match self {
            Entry::Inline(inline) => Some(inline.sum(frame.from_ms, i64::MAX)),
            Entry::List { head, bytes } => ListMut { head, bytes }.sum_and_keep(frame.from_ms),
            Entry::Large { .. } => None,
        }
    }

    /// Counts hits of now in a key with panes. Returns the time until no hit counts in the window of a limit
    /// that ends now. `None`, and no change, if there are no panes. The hits of the window must have been
    /// read just before.
    pub(crate) fn hit_large(&mut self, weight: u64, frame: &Frame, settings: &Settings) -> Option<Span> {
        let Entry::Large { newest, .. } = self else { return None };
        if newest.get() < frame.oldest_ms {
            return None;
        }
        let window = LimitWindow::of(frame)?;
        self.add(frame.now, weight, settings, frame.now).ok()?;
        self.until_none(window, settings)
    }

    /// The hits that count in a window.
    pub(crate) fn used(&self, window: LimitWindow, settings: &Settings) -> u64 {
        let from_ms = window.from_ms;
        match self {
            Entry::Inline(inline) => inline.sum(from_ms, i64::MAX),
            Entry::List { head, bytes } => List { head, bytes }.sum(from_ms, i64::MAX),
            Entry::Large { large, .. } => {
                let moments = large.list().map_or(0, |list| list.sum(from_ms, i64::MAX));
                let has_panes = large.moments_from_ms() > from_ms;
                let panes = if has_panes { large.pane_sum(window.cell_ms(settings), settings) } else { 0 };
                moments + panes + large.coarse().map_or(0, |coarse| coarse.from(from_ms))
            }
        }
    }

    /// The time until no hit of a window counts. `None` if none counts now.
    pub(crate) fn until_none(&self, window: LimitWindow, settings: &Settings) -> Option<Span> {
        if self.is_empty() {
            return None;
        }
        if self.coarse().is_some() {
            return self.until_at_most(0, self.used(window, settings), window, settings);
        }
        let last_pane = match self {
            Entry::Large { large, .. } if large.list().is_none_or(List::is_empty) => {
                let last = large.reach(0, large.pane_sum(0, settings), settings);
                let grid_ms = window.grid_ms(settings);
                last.map(|pane| window.pane_leaves_ms(pane.end_ms(), large.moments_from_ms(), grid_ms))
            }
            _ => None,
        };
        // The newest hits leave last, because panes end before the moments start.
        let leaves_ms = last_pane.unwrap_or_else(|| window.moment_leaves_ms(self.newest_ms()));
        window.until(leaves_ms)
    }

    /// The time until at most `most` hits of a window count, of which `used` count now. `None` if that is so
    /// already.
    pub(crate) fn until_at_most(
        &self,
        most: u64,
        used: u64,
        window: LimitWindow,
        settings: &Settings,
    ) -> Option<Span> {
        if used <= most {
            return None;
        }
        match self.coarse() {
            Some(_) => until_at_most_of([self], most, window, settings),
            None => self.until_as_kept(most, used, window, settings),
        }
    }

    /// How far coarse panes have been fitted by a time.
    fn fitted_by(&self, now: Timestamp, settings: &Settings) -> Fitted {
        self.coarse().map_or_else(Fitted::default, |coarse| coarse.fitted_by(now, settings))
    }

    /// The hits that count in a window, once these coarse panes have been fitted. Fitted panes, and the moments before their end,
    /// count until their cell has left: longer than before, never shorter.
    fn used_when(&self, fitted: Fitted, window: LimitWindow, settings: &Settings) -> u64 {
        let (Entry::Large { large, .. }, Some(coarse)) = (self, self.coarse()) else {
            return self.used(window, settings);
        };
        let (from_ms, cell_ms) = (window.from_ms, window.cell_ms(settings));
        let sum = |from_ms, to_ms| large.list().map_or(0, |list| list.sum(from_ms, to_ms));
        let in_window = sum(from_ms.max(fitted.end_ms), i64::MAX) + coarse.from(from_ms);
        let mut later = large.list().into_iter().flat_map(|list| list.moments_from(fitted.end_ms));
        if later.next().is_some_and(|first| first.at_ms <= from_ms) {
            // The window starts among moments, so no pane reaches into it.
            return in_window;
        }
        let panes = large.pane_sum(cell_ms, settings) + coarse.fitted_from((cell_ms, from_ms), fitted);
        in_window + panes + sum(cell_ms, fitted.end_ms)
    }

    /// Like `until_at_most`, if there are no coarse hits and `used` is above `most`.
    fn until_as_kept(&self, most: u64, used: u64, window: LimitWindow, settings: &Settings) -> Option<Span> {
        let moment_leaves = |moment: Moment| (window.moment_leaves_ms(moment.at_ms), moment.hits);
        let is_counted = |&(leaves_ms, _): &(i64, u64)| leaves_ms > window.at_ms;
        let enough_of = |mut left: u64| {
            move |(_, hits): &(i64, u64)| {
                left = left.saturating_sub(*hits);
                left <= most
            }
        };
        let last = match self {
            Entry::Inline(inline) => {
                inline.oldest_first().map(moment_leaves).filter(is_counted).find(enough_of(used))
            }
            Entry::List { head, bytes } => {
                let moments = List { head, bytes }.moments_from(window.from_ms);
                moments.map(moment_leaves).filter(is_counted).find(enough_of(used))
            }
            Entry::Large { large, .. } => {
                let (moments_ms, grid_ms) = (large.moments_from_ms(), window.grid_ms(settings));
                let cell_ms = window.cell_ms(settings);
                let has_panes = moments_ms > window.from_ms;
                let panes = if has_panes { large.pane_sum(cell_ms, settings) } else { 0 };
                if used - most <= panes {
                    // The oldest hits leave first, because panes end before the moments start.
                    let pane = large.reach(cell_ms, used - most, settings);
                    pane.map(|pane| (window.pane_leaves_ms(pane.end_ms(), moments_ms, grid_ms), 0))
                } else {
                    let moments = large.list().into_iter().flat_map(|list| list.moments_from(window.from_ms));
                    moments.map(moment_leaves).filter(is_counted).find(enough_of(used - panes))
                }
            }
        };
        last.and_then(|(leaves_ms, _)| window.until(leaves_ms))
    }
}

/// The time until at most `most` hits of a window count, of all these entries together. `None` if that is so already.
///
/// As time passes, fewer hits count, until a coarse pane fits: from then on its whole cell counts. So the time is first searched
/// with the panes that have been fitted, then again with those that fit by the time that was found, until that is enough.
pub(crate) fn until_at_most_of<const N: usize>(
    entries: [&Entry; N],
    most: u64,
    window: LimitWindow,
    settings: &Settings,
) -> Option<Span> {
    let used = |fitted: [Fitted; N], passed_ms: i64| {
        let used = entries
            .iter()
            .zip(fitted)
            .map(|(entry, fitted)| entry.used_when(fitted, window.later_by(passed_ms), settings));
        used.fold(0, u64::saturating_add)
    };
    let latest_ms =
        entries.iter().map(|entry| entry.newest_ms().max(entry.coarse().map_or(0, Coarse::latest_ms))).max();
    // All hits have left by then, also those of the grid cell around the latest.
    let end_ms = latest_ms? + window.grid_ms(settings) + window.window_ms + 1 - window.at_ms;
    let mut fitted = [Fitted::default(); N];
    let mut passed_ms = 0;
    while passed_ms < end_ms && used(fitted, passed_ms) > most {
        let mut enough_ms = end_ms;
        while passed_ms + 1 < enough_ms {
            let middle_ms = passed_ms + (enough_ms - passed_ms) / 2;
            let is_enough = used(fitted, middle_ms) <= most;
            *(if is_enough { &mut enough_ms } else { &mut passed_ms }) = middle_ms;
        }
        passed_ms = enough_ms;
        let then = window.later_by(passed_ms).now();
        fitted = entries.map(|entry| entry.fitted_by(then, settings));
    }
    Span::from_millis(passed_ms)
}
