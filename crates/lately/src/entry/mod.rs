//! The hits of one key, in a form that depends on how many there are.
//!
//! A key with few hits stores some moments in the entry itself, a key with more a list of moments on the
//! heap, and a hot key a ring over the exact span, with panes before it. All forms give the same answers;
//! they differ in size and speed. Only this file knows that there are several.

mod blob;
mod cells;
mod coarse;
mod fetched;
mod fit;
mod inline;
mod large;
mod limit;
mod list;
mod list_hint;
mod moment;
mod removal;
mod ring;

use crate::count::Count;
use crate::error::HitError;
use crate::frame::Frame;
use crate::limits::MAX_TOTAL;
use crate::machine::prefetch_all;
use crate::settings::Settings;
use crate::time::{Span, Timestamp};
use crate::window::Window;

use coarse::Coarse;
pub(crate) use fetched::Fetched;
use inline::Inline;
use large::{Large, Rings};
pub(crate) use limit::{LimitWindow, until_at_most_of};
pub(crate) use list::FEW;
use list::{Buffer, Head, List, ListMut, list_of_few};
pub(crate) use list_hint::ListHint;
pub(crate) use moment::Moment;
use moment::PackedTime;
pub(crate) use removal::GivenBack;

/// The hits of one key: 16 bytes, and heap memory.
#[derive(Clone, Debug)]
pub(crate) enum Entry {
    /// A few moments.
    Inline(Inline),
    /// Up to [`list::MOST_MOMENTS`] moments.
    List { head: Head, bytes: Buffer },
    /// More than that. The time of the newest hit is stored here, so that an expired key is recognized
    /// without reading the heap.
    Large { newest: PackedTime, large: Box<Large> },
}

impl Default for Entry {
    fn default() -> Entry {
        Entry::Inline(Inline::default())
    }
}

impl Entry {
    /// An entry without hits.
    pub(crate) fn new() -> Entry {
        Entry::default()
    }

    /// An entry with hits at a few times, oldest first: at most [`FEW`], but too many to be inline.
    pub(crate) fn of_few(hits: impl Iterator<Item = (Timestamp, u64)>) -> Entry {
        Entry::list_of(hits.map(|(at, hits)| Moment { at_ms: at.as_millis(), hits }))
    }

    /// A list of a few moments, oldest first.
    fn list_of(moments: impl Iterator<Item = Moment>) -> Entry {
        let (head, bytes) = list_of_few(moments);
        Entry::List { head, bytes }
    }

    /// The time of the newest hit; the epoch before any.
    pub(crate) fn newest(&self) -> Timestamp {
        Timestamp::from_millis(self.newest_ms()).unwrap_or(Timestamp::MIN)
    }

    /// All hits, including expired ones that were not dropped yet.
    pub(crate) fn total(&self) -> u64 {
        match self {
            Entry::Inline(inline) => inline.total(),
            Entry::List { head, bytes } => List { head, bytes }.total(),
            Entry::Large { large, .. } => large.total(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        matches!(self, Entry::Inline(inline) if inline.is_empty())
    }

    /// Whether all hits are in the entry itself.
    #[inline(always)]
    pub(crate) fn is_inline(&self) -> bool {
        matches!(self, Entry::Inline(_))
    }

    /// Whether there is at most one hit, as far as the entry shows without reading the heap.
    pub(crate) fn is_single(&self) -> bool {
        matches!(self, Entry::Inline(inline) if inline.total() <= 1)
    }

    /// The time of the newest hit in milliseconds; 0 before any.
    #[inline]
    pub(crate) fn newest_ms(&self) -> i64 {
        match self {
            Entry::Inline(inline) => inline.newest_ms(),
            Entry::List { head, .. } => head.newest_ms(),
            Entry::Large { newest, .. } => newest.get(),
        }
    }

    /// Whether all hits are before `oldest_ms`, the edge of the retention.
    #[inline]
    pub(crate) fn expired(&self, oldest_ms: i64) -> bool {
        self.newest_ms() < oldest_ms || self.is_empty()
    }

    /// Counts `weight` hits at `at`. The caller has checked `at` against the retention and the clock. `now`
    /// must not be earlier than in any call before.
    ///
    /// # Errors
    /// [`HitError::Overflow`] if the total would exceed [`MAX_TOTAL`]; nothing changes.
    pub(crate) fn add(
        &mut self,
        at: Timestamp,
        weight: u64,
        settings: &Settings,
        now: Timestamp,
    ) -> Result<(), HitError> {
        self.add_moment(Moment { at_ms: at.as_millis(), hits: weight }, Rings::Faster, settings, now)
    }

    /// Counts hits like [`Entry::add`], with rings of this size at most.
    fn add_moment(
        &mut self,
        moment: Moment,
        rings: Rings,
        settings: &Settings,
        now: Timestamp,
    ) -> Result<(), HitError> {
        if moment.hits == 0 {
            return Ok(());
        }
        self.make_room(moment.hits, settings, now)?;
        if let Entry::Inline(inline) = self {
            match inline.add_or_give(moment) {
                None => return Ok(()),
                Some(held) if held.total() <= list::MAX_TOTAL => {
                    *self = Entry::list_of(held.oldest_first());
                    return Ok(());
                }
                Some(_) => {}
            }
        }
        self.add_to_heap(moment, rings, settings, now);
        Ok(())
    }

    /// Makes sure that `weight` more hits can be counted. Drops expired hits if that is needed for it.
    ///
    /// # Errors
    /// [`HitError::Overflow`] if they cannot be counted.
    #[inline]
    pub(crate) fn make_room(
        &mut self,
        weight: u64,
        settings: &Settings,
        now: Timestamp,
    ) -> Result<(), HitError> {
        if !self.has_room(weight) {
            self.merge(settings, now);
            if !self.has_room(weight) {
                return Err(HitError::Overflow { total: self.total(), weight });
            }
        }
        Ok(())
    }

    /// Whether `weight` more hits can be counted.
    #[inline]
    pub(crate) fn has_room(&self, weight: u64) -> bool {
        if matches!(self, Entry::Inline(_)) {
            return weight <= MAX_TOTAL - inline::MAX_TOTAL || self.has_room_for(weight);
        }
        self.has_room_for(weight)
    }

    fn has_room_for(&self, weight: u64) -> bool {
        self.total().checked_add(weight).is_some_and(|total| total <= MAX_TOTAL)
    }

    /// Adds hits on the heap, after moving inline hits there.
    fn add_to_heap(&mut self, moment: Moment, rings: Rings, settings: &Settings, now: Timestamp) {
        if let Entry::Inline(inline) = self {
            *self = Entry::list_of(inline.oldest_first());
        }
        if let Entry::List { head, bytes } = self {
            let mut list = ListMut { head, bytes };
            if list.has_room(moment.at_ms, moment.hits) {
                return list.add(moment);
            }
            let newest = PackedTime::pack(head.newest_ms());
            let large = Large::from_list(*head, std::mem::take(bytes));
            *self = Entry::Large { newest, large: Box::new(large) };
        }
        if let Entry::Large { newest, large } = self {
            *newest = PackedTime::pack(newest.get().max(moment.at_ms));
            large.add(moment, rings, settings, now);
        }
    }

    /// The hits in the window of length `span` that ends with the pane of `at`, as seen from `now`.
    pub(crate) fn count(&self, at: Timestamp, span: Span, settings: &Settings, now: Timestamp) -> Count {
        self.count_window(&Window::ending_at(at, span, settings, now), settings)
    }

    /// The hits in the default window that ends with the pane of `at`. Moves the cursor of a list there: the
    /// next hit is likely to be later.
    pub(crate) fn count_at(&mut self, at: Timestamp, settings: &Settings, now: Timestamp) -> Count {
        let window = Window::ending_at(at, settings.window(), settings, now);
        match self {
            Entry::Inline(_) => {}
            Entry::List { head, bytes } => ListMut { head, bytes }.advance(window.first_ms()),
            Entry::Large { large, .. } => large.advance_list(window.first_ms()),
        }
        self.count_window(&window, settings)
    }

    /// The hits in a window.
    pub(crate) fn count_window(&self, window: &Window, settings: &Settings) -> Count {
        let count = match window.exact_range_ms() {
            Some((from_ms, to_ms)) => window.exact_count(self.exact_sum(from_ms, to_ms, settings)),
            None => window.count(|from_ms, to_ms| self.sum(from_ms, to_ms, settings)),
        };
        self.with_coarse(count, window)
    }

    /// Adds the hits in coarse panes, if there are any, to the count of the others in the window.
    pub(crate) fn with_coarse(&self, count: Count, window: &Window) -> Count {
        let Some(coarse) = self.coarse() else { return count };
        let (far_ms, near_ms) = window.edges_ms();
        coarse.add_to(count, far_ms, near_ms)
    }

    fn coarse(&self) -> Option<&Coarse> {
        match self {
            Entry::Large { large, .. } => large.coarse(),
            Entry::Inline(_) | Entry::List { .. } => None,
        }
    }

    /// The fast path: counts hits of now if the key has not expired and its hits are inline or in a list.
    /// Otherwise returns `None` and changes nothing. Returns the hits of the frame's window, and the growth
    /// of the heap in bytes.
    #[inline(always)]
    pub(crate) fn fast_hit(&mut self, weight: u64, frame: &Frame) -> Option<(u64, usize)> {
        if weight == 0 || !frame.is_exact || self.newest_ms() < frame.oldest_ms {
            return None;
        }
        let now_ms = frame.now.as_millis();
        match self {
            Entry::Inline(inline) => Some((inline.hit(now_ms, weight, frame.from_ms)?, 0)),
            Entry::List { head, bytes } => {
                let moment = Moment { at_ms: now_ms, hits: weight };
                if let Some(hits) = (ListMut { head, bytes }).add_in_place(moment, frame.from_ms) {
                    return Some((hits, 0));
                }
                // The bound of a list is lower than that of an entry.
                let before = bytes.heap_bytes();
                let hits = (ListMut { head, bytes }).add_and_sum(moment, frame.from_ms)?;
                Some((hits, bytes.heap_bytes() - before))
            }
            Entry::Large { .. } => None,
        }
    }

    /// Counts `weight` hits of now. Returns the hits of the default window that ends now.
    ///
    /// # Errors
    /// [`HitError::Overflow`] if the total would exceed [`MAX_TOTAL`]; nothing changes.
    pub(crate) fn hit_now(
        &mut self,
        weight: u64,
        frame: &Frame,
        settings: &Settings,
    ) -> Result<u64, HitError> {
        if let Some((hits, _)) = self.fast_hit(weight, frame) {
            return Ok(hits);
        }
        if let Some(hits) = self.hit_in_ring(weight, frame, settings) {
            return Ok(hits);
        }
        self.add(frame.now, weight, settings, frame.now)?;
        Ok(self.count_now(frame, settings))
    }

    /// Counts hits of now if the newest hits are in a ring, and there is room. Otherwise returns `None` and
    /// changes nothing.
    fn hit_in_ring(&mut self, weight: u64, frame: &Frame, settings: &Settings) -> Option<u64> {
        if weight == 0 || !frame.is_exact || !self.has_room(weight) {
            return None;
        }
        let Entry::Large { newest, large } = self else { return None };
        let hits = large.hit_now(weight, frame.now, settings)?;
        *newest = PackedTime::pack(newest.get().max(frame.now.as_millis()));
        Some(hits)
    }

    /// The hits of the default window that ends now. Advances the cursor or the running total, so that the
    /// reads until the next hit scan nothing.
    #[inline]
    pub(crate) fn count_now(&mut self, frame: &Frame, settings: &Settings) -> u64 {
        self.advance(frame.from_ms, settings, frame.now);
        if !frame.is_exact || self.coarse().is_some() {
            return self.count(frame.now, settings.window(), settings, frame.now).estimate;
        }
        self.exact_sum(frame.from_ms, frame.to_ms, settings)
    }

    /// The hits between two borders, from the running total if that covers the range.
    #[inline]
    fn exact_sum(&self, from_ms: i64, to_ms: i64, settings: &Settings) -> u64 {
        match self {
            Entry::Large { large, .. } => large.exact_sum(from_ms, to_ms, settings),
            entry => entry.sum(from_ms, to_ms, settings),
        }
    }

    /// The hits between two borders of cells, without those in coarse panes.
    pub(crate) fn sum(&self, from_ms: i64, to_ms: i64, settings: &Settings) -> u64 {
        if from_ms >= to_ms {
            return 0;
        }
        match self {
            Entry::Inline(inline) => inline.sum(from_ms, to_ms),
            Entry::List { head, bytes } => List { head, bytes }.sum(from_ms, to_ms),
            Entry::Large { large, .. } => large.sum(from_ms, to_ms, settings),
        }
    }

    /// Advances the cursor or the running total to the default window from `from_ms` to `now`, so that the
    /// reads until the next hit scan nothing.
    pub(crate) fn advance(&mut self, from_ms: i64, settings: &Settings, now: Timestamp) {
        match self {
            Entry::Inline(_) => {}
            Entry::List { head, bytes } => ListMut { head, bytes }.advance(from_ms),
            Entry::Large { large, .. } => large.advance(from_ms, settings, now),
        }
    }

    /// Drops expired hits and merges old panes. A key with fewer hits changes to a smaller form. No answer
    /// from `now` on changes.
    pub(crate) fn merge(&mut self, settings: &Settings, now: Timestamp) {
        let horizon_ms = settings.horizon_ms(now);
        match self {
            Entry::Inline(inline) => inline.drop_before(horizon_ms),
            Entry::List { head, bytes } => ListMut { head, bytes }.drop_before(horizon_ms),
            Entry::Large { large, .. } => large.merge(settings, now),
        }
        self.shrink();
    }

    /// Changes to a smaller form, if the hits fit in it.
    fn shrink(&mut self) {
        if let Entry::Large { large, .. } = self
            && let Some((head, bytes)) = large.take_list()
        {
            *self = Entry::List { head, bytes };
        }
        if let Entry::List { head, bytes } = self {
            let list = List { head, bytes };
            let mut inline = Inline::default();
            let are_few = list.len() <= inline::MAX_MOMENTS;
            if are_few && list.moments().all(|moment| inline.add(moment)) {
                *self = Entry::Inline(inline);
            }
        }
    }

    /// Prefetches heap memory: at level 0 what the entry points to, at each further level what the level
    /// before points to, which must have arrived.
    #[inline]
    pub(crate) fn prefetch(&self, level: usize) -> Fetched {
        match (self, level) {
            (Entry::Inline(_), _) => Fetched::Nothing,
            (Entry::List { head, bytes }, _) => List { head, bytes }.prefetch(level),
            (Entry::Large { large, .. }, 0) => {
                prefetch_all(&raw const **large);
                Fetched::First
            }
            (Entry::Large { large, .. }, _) => large.prefetch(level - 1),
        }
    }

    /// Bytes on the heap.
    pub(crate) fn heap_bytes(&self) -> usize {
        match self {
            Entry::Inline(_) => 0,
            Entry::List { bytes, .. } => bytes.heap_bytes(),
            Entry::Large { large, .. } => large.heap_bytes(),
        }
    }

    /// Verifies the invariants of the entry.
    ///
    /// # Panics
    /// If one does not hold, which is a bug of this crate.
    pub(crate) fn check_consistency(&self, settings: &Settings, now: Timestamp) {
        match self {
            Entry::Inline(inline) => {
                let times: Vec<i64> = inline.oldest_first().map(|moment| moment.at_ms).collect();
                assert!(times.is_sorted_by(|a, b| a < b), "moments are out of order");
            }
            Entry::List { head, bytes } => List { head, bytes }.check_consistency(),
            Entry::Large { large, .. } => large.check_consistency(settings, now),
        }
        assert!(self.total() <= MAX_TOTAL, "total {}", self.total());
    }
}

#[cfg(test)]
mod tests;
