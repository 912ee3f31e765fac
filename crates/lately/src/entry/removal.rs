//! Removes hits from an entry, in the form that it has: nothing else is copied or written again.
//!
//! An entry has up to three parts: coarse panes, panes, and the recent hits. In each part hits are in order of time. So
//! what is removed of a part is a range of ranks, counted from its oldest hit.

use std::array;
use std::cmp::Reverse;
use std::ops::Range;

use super::coarse::Coarse;
use super::inline::Inline;
use super::large::{Large, Parts};
use super::limit::LimitWindow;
use super::list::List;
use super::moment::{Moment, PackedTime};
use super::{Entry, ListMut};
use crate::panes::{Pane, Panes};
use crate::settings::Settings;
use crate::time::Timestamp;

/// Hits that were removed from an entry.
pub(crate) struct GivenBack {
    pub(crate) entry: Entry,
    pub(crate) hits: u64,
}

/// The parts of an entry: coarse panes, panes, recent hits.
const PARTS: usize = 3;

/// Panes of each part, in order. A moment is a pane of a millisecond.
type OfParts<'a> = [Box<dyn Iterator<Item = Pane> + 'a>; PARTS];

impl Entry {
    /// The hits that are certainly in the window of a limit. Those of a pane that begins before the window may be older. The
    /// entry must keep moments.
    pub(crate) fn certain_hits(&self, window: LimitWindow, settings: &Settings) -> u64 {
        let first_ms = window.first_ms();
        let coarse = self.coarse().map_or(0, |coarse| coarse.panes().sum(first_ms, i64::MAX));
        self.sum(first_ms, i64::MAX, settings) + coarse
    }

    /// Removes hits that are certainly in the window of a limit, the newest first: at most `hits`. Returns them.
    pub(crate) fn give_back(
        &mut self,
        window: LimitWindow,
        hits: u64,
        settings: &Settings,
        now: Timestamp,
    ) -> Option<GivenBack> {
        let first_ms = window.first_ms();
        self.take_newest(|pane| pane.start_ms >= first_ms, hits, settings, now)
    }

    /// The newest hits that are certainly between the start of the window of a limit and a time: at most `hits`. As ranges for
    /// [`Entry::take_back`] in this order, with the hits of each. The entry must keep moments. Where it has coarse panes, which overlap
    /// others, only moments are among them.
    pub(crate) fn newest_until(
        &self,
        window: LimitWindow,
        last_ms: i64,
        hits: u64,
    ) -> Vec<((i64, i64), u64)> {
        let (first_ms, is_later) = (window.first_ms(), |pane: &Pane| pane.end_ms() - 1 > last_ms);
        let parts = self.newest_first().into_iter().skip(if self.coarse().is_some() { PARTS - 1 } else { 1 });
        let mut panes: Vec<Pane> = parts
            .flat_map(|panes| panes.skip_while(is_later).take_while(|pane| pane.start_ms >= first_ms))
            .collect();
        panes.sort_by_key(|pane| Reverse(pane.start_ms));
        let mut left = hits;
        let taken = panes.into_iter().map_while(|pane| {
            let taken = pane.hits.min(left);
            left -= taken;
            (taken > 0).then_some(((pane.start_ms, pane.end_ms() - 1), taken))
        });
        let mut ranges: Vec<_> = taken.collect();
        // All but the oldest are whole. If no other pane is between them, they are one range.
        if let [whole @ .., oldest] = &ranges[..]
            && let (Some(((first_ms, _), _)), Some(((_, last_ms), _))) = (whole.last(), whole.first())
        {
            let (from_ms, until_ms, sum) = (*first_ms, *last_ms, whole.iter().map(|(_, hits)| hits).sum());
            let is_of_them = |pane: &Pane| pane.end_ms() - 1 <= until_ms || pane.start_ms <= from_ms;
            let between = self.ending_after(from_ms).map(|panes| panes.take_while(is_of_them));
            if between.into_iter().flatten().map(|pane| pane.hits).sum::<u64>() == sum {
                ranges = vec![((from_ms, until_ms), sum), *oldest];
            }
        }
        ranges
    }

    /// Removes hits again that were in a window that begins at `from_ms`, the newest first: at most `hits`. Panes that begin before it
    /// come last. There are none, unless panes are wider now. Returns the hits.
    pub(crate) fn give_back_from(
        &mut self,
        from_ms: i64,
        hits: u64,
        settings: &Settings,
        now: Timestamp,
    ) -> Option<GivenBack> {
        self.take_newest(|pane| pane.end_ms() > from_ms, hits, settings, now)
    }

    /// Removes hits of the panes that begin last, at most `hits`. Returns them. A ring is turned into panes.
    fn take_newest(
        &mut self,
        is_of_them: impl Fn(&Pane) -> bool,
        hits: u64,
        settings: &Settings,
        now: Timestamp,
    ) -> Option<GivenBack> {
        self.keep_moments(settings, now);
        let parts = self.newest_first().map(|panes| panes.take_while(&is_of_them));
        // By start: a coarse pane may end after moments whose time is known, and have older hits.
        let key = |part, pane: &Pane| (-pane.start_ms, PARTS - part);
        let taken = shares(parts, hits, key);
        let totals = self.ended_by(i64::MAX);
        self.take(array::from_fn(|part| totals[part] - taken[part]..totals[part]), settings, now)
    }

    /// Removes hits of panes that end between two times or cover the first, the oldest first: at most `hits`. Such a pane may
    /// lose all of its hits, also those before and after the two times. Returns them. A ring is turned into panes.
    pub(crate) fn take_back(
        &mut self,
        (from_ms, last_ms): (i64, i64),
        hits: u64,
        settings: &Settings,
        now: Timestamp,
    ) -> Option<GivenBack> {
        self.keep_moments(settings, now);
        let is_of_them = |pane: &Pane| pane.end_ms() - 1 <= last_ms || pane.start_ms <= from_ms;
        let parts = self.ending_after(from_ms).map(|panes| panes.take_while(is_of_them));
        // Of two that end at once, the narrower one: its hits are known better.
        let taken = shares(parts, hits, |part, pane| (pane.end_ms(), -pane.start_ms, part));
        let before = self.ended_by(from_ms);
        self.take(array::from_fn(|part| before[part]..before[part] + taken[part]), settings, now)
    }

    /// Subtracts hits that were counted at `at` from the pane that covers it, as far as it has them. Returns how many it does
    /// not have.
    pub(crate) fn subtract(&mut self, at: Timestamp, hits: u64, settings: &Settings, now: Timestamp) -> u64 {
        let at_ms = at.as_millis();
        if let Entry::Large { large, .. } = self {
            let taken = large.subtract_from_ring(at_ms, hits, settings);
            if taken > 0 {
                self.shrink();
                return hits - taken;
            }
        }
        // Hits are never added to coarse panes.
        let covering =
            self.ending_after(at_ms).map(|mut panes| panes.next().filter(|pane| pane.start_ms <= at_ms));
        let Some(part) = covering.iter().rposition(Option::is_some) else { return hits };
        let taken = covering[part].map_or(0, |pane| pane.hits.min(hits));
        let before = self.ended_by(at_ms)[part];
        let ranks = array::from_fn(|other| if other == part { before..before + taken } else { 0..0 });
        self.take(ranks, settings, now);
        hits - taken
    }

    /// Removes the hits with these ranks. Returns them.
    fn take(&mut self, ranks: [Range<u64>; PARTS], settings: &Settings, now: Timestamp) -> Option<GivenBack> {
        let hits = ranks.iter().map(|of_part| of_part.end - of_part.start).sum();
        if hits == 0 {
            return None;
        }
        let (latest_ms, newest) = (self.newest_ms(), self.newest_pane());
        let taken = match self {
            Entry::Inline(inline) => {
                let mut moments = Entry::list_of(inline.oldest_first());
                let given = moments.take(ranks, settings, now);
                *self = moments;
                return given;
            }
            Entry::List { head, bytes } => {
                Parts { moments: ListMut { head, bytes }.take(&ranks[PARTS - 1]), ..Parts::default() }
            }
            Entry::Large { large, .. } => large.take(ranks, settings),
        };
        // While hits of the newest pane are left, the time of the newest hit stays. It may be before the end of the pane.
        let end_ms = |pane: Option<Pane>| pane.map(Pane::end_ms);
        let left_ms = end_ms(self.newest_pane());
        if let (Entry::Large { newest: kept, .. }, Some(left_ms)) = (&mut *self, left_ms)
            && newest.is_some_and(|newest| newest.end_ms() != left_ms)
        {
            *kept = PackedTime::pack(left_ms - 1);
        }
        self.shrink();
        let entry = if taken.panes.is_empty() && taken.coarse.is_none() {
            Entry::of_moments(taken.moments.into_iter(), settings, now)
        } else {
            let large = Large::of_parts(taken, settings, now);
            Entry::Large { newest: PackedTime::pack(latest_ms), large: Box::new(large) }
        };
        Some(GivenBack { entry, hits })
    }

    /// The pane that ends last. `None` if the recent hits are in a ring.
    fn newest_pane(&self) -> Option<Pane> {
        if matches!(self, Entry::Large { large, .. } if large.list().is_none()) {
            return None;
        }
        let newest = self.newest_first().into_iter().filter_map(|mut panes| panes.next());
        newest.max_by_key(|pane| pane.end_ms())
    }

    /// The hits of each part, newest first.
    fn newest_first(&self) -> OfParts<'_> {
        let [coarse, older] =
            self.panes().map(|panes| panes.into_iter().flat_map(|panes| panes.newest_first(i64::MAX)));
        let recent: Vec<Pane> = self.moments_from(0).collect();
        [Box::new(coarse), Box::new(older), Box::new(recent.into_iter().rev())]
    }

    /// The hits of each part in panes that end after a time, oldest first.
    fn ending_after<'a>(&'a self, edge_ms: i64) -> OfParts<'a> {
        let later = move |panes: &'a Panes| panes.ending_after(edge_ms);
        let [coarse, older] = self.panes().map(|panes| panes.into_iter().flat_map(later));
        [Box::new(coarse), Box::new(older), Box::new(self.moments_from(edge_ms))]
    }

    /// The hits of each part in panes that end by a time.
    fn ended_by(&self, edge_ms: i64) -> [u64; PARTS] {
        let [coarse, older] = self.panes().map(|panes| panes.map_or(0, |panes| panes.ended_by(edge_ms)));
        let recent = match self {
            Entry::Inline(inline) => inline.sum(0, edge_ms),
            Entry::List { head, bytes } => List { head, bytes }.sum(0, edge_ms),
            Entry::Large { large, .. } => large.list().map_or(0, |list| list.sum(0, edge_ms)),
        };
        [coarse, older, recent]
    }

    /// The coarse panes, and the panes before the recent hits.
    fn panes(&self) -> [Option<&Panes>; 2] {
        match self {
            Entry::Inline(_) | Entry::List { .. } => [None; 2],
            Entry::Large { large, .. } => [large.coarse().map(Coarse::panes), large.older_panes()],
        }
    }

    /// The recent hits from a time on, if they are moments.
    fn moments_from(&self, from_ms: i64) -> impl Iterator<Item = Pane> + '_ {
        let (inline, list) = match self {
            Entry::Inline(inline) => (Some(inline), None),
            Entry::List { head, bytes } => (None, Some(List { head, bytes })),
            Entry::Large { large, .. } => (None, large.list()),
        };
        let inline = inline.into_iter().flat_map(Inline::oldest_first);
        let moments = inline.filter(move |moment| moment.at_ms >= from_ms);
        let moments = moments.chain(list.into_iter().flat_map(move |list| list.moments_from(from_ms)));
        moments.map(|Moment { at_ms, hits }| Pane { start_ms: at_ms, width_ms: 1, hits })
    }
}

/// How many of `hits` each part loses, when they are taken from the panes of all parts in the order of `key`. The panes of
/// each part are in this order.
fn shares<K: Ord>(
    parts: [impl Iterator<Item = Pane>; PARTS],
    hits: u64,
    key: impl Fn(usize, &Pane) -> K,
) -> [u64; PARTS] {
    let (mut parts, mut taken, mut left) = (parts.map(Iterator::peekable), [0; PARTS], hits);
    while left > 0 {
        let heads =
            parts.iter_mut().enumerate().filter_map(|(part, panes)| Some((key(part, panes.peek()?), part)));
        let Some((_, part)) = heads.min() else { break };
        let of_pane = parts[part].next().map_or(0, |pane| pane.hits.min(left));
        taken[part] += of_pane;
        left -= of_pane;
    }
    taken
}
