//! The counters that threads share: rings of slots, and a total of the default window.
//!
//! Every thread may hit the **common ring** (`common_ring.rs`); an **own ring** is hit by one thread only
//! (`thread_rings.rs`). Their slots are the same: one word, which says which pane it is of and how many
//! hits that has. A read of the default window is the running total of the panes before the newest,
//! and the newest panes as they stand. Each kind of ring has its way to tell that the total holds no
//! more.

use crate::cache_line::CacheLine;
use crate::error::{HitError, SettingsError};
use crate::settings::Settings;
use crate::sync::{AtomicU64, Ordering};
use crate::time::{Span, Timestamp};

use super::panes_of_time::PanesOfTime;
use super::running_total::{Filling, Of, RunningTotal};
use super::thread_rings::Head;
use super::word::{Layout, Seen};

/// Slots on one line of the cache, or what is fetched with it. Few under loom, which follows each.
const SLOTS_PER_LINE: usize = if cfg!(loom) { 2 } else { 16 };
/// Rings are no shorter, so that counts have bits enough.
const LEAST_SLOTS: u64 = 256;
/// Which of the rings is common to all threads; the own ones follow.
pub(super) const COMMON: usize = 0;

/// How many panes the parts of a counter have, and how many own rings there are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) resolution: Span,
    pub(super) window: u64,
    pub(super) span: u64,
    pub(super) slots: u64,
    pub(super) thread_rings: usize,
}

impl Shape {
    /// Panes of `resolution`, exact over `window` and a fifth or a minute more, as of a class.
    pub(super) fn new(resolution: Span, window: Span, thread_rings: usize) -> Result<Shape, SettingsError> {
        let settings = Settings::builder().resolution(resolution).window(window).retain(Span::MAX).build()?;
        let panes = PanesOfTime::new(resolution);
        let span = panes.panes_in(settings.exact());
        let slots = span.next_power_of_two().max(LEAST_SLOTS);
        Ok(Shape { resolution, window: panes.panes_in(window), span, slots, thread_rings })
    }
}

/// Hits to be counted, and the pane of their time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hit {
    pub(super) pane: u64,
    pub(super) at: Timestamp,
    pub(super) weight: u64,
}

/// Rings of slots; the newest pane; the running total.
#[derive(Debug)]
pub(super) struct Rings {
    pub(super) panes: PanesOfTime,
    pub(super) layout: Layout,
    /// The default window, as asked for and in panes.
    window: Span,
    window_panes: u64,
    /// How many panes are kept.
    pub(super) span: u64,
    lines_per_ring: usize,
    lines: Box<[CacheLine<[AtomicU64; SLOTS_PER_LINE]>]>,
    /// Of each own ring.
    pub(super) heads: Box<[CacheLine<Head>]>,
    /// One past the newest pane that was hit; 0 before any. Written once a pane. It only grows, so who
    /// learns that a hit was acknowledged sees no less than the thread did that made the hit: Relaxed is
    /// enough.
    pub(super) end: CacheLine<AtomicU64>,
    pub(super) total: CacheLine<RunningTotal>,
}

impl Rings {
    pub(super) fn new(shape: Shape, window: Span) -> Rings {
        let panes = PanesOfTime::new(shape.resolution);
        let rings = shape.thread_rings + 1;
        let slot_bits = shape.slots.trailing_zeros();
        let ring_bits = rings.next_power_of_two().trailing_zeros();
        let slots = usize::try_from(shape.slots).expect("at most twice MAX_EXACT_PANES");
        let lines_per_ring = slots.div_ceil(SLOTS_PER_LINE);
        let line = || CacheLine(std::array::from_fn(|_| AtomicU64::new(0)));
        Rings {
            panes,
            layout: Layout::new(slot_bits, ring_bits, panes.pane_of(Timestamp::MAX)),
            window,
            window_panes: shape.window,
            span: shape.span,
            lines_per_ring,
            lines: (0..lines_per_ring * rings).map(|_| line()).collect(),
            heads: (0..shape.thread_rings).map(|_| CacheLine(Head::new())).collect(),
            end: CacheLine(AtomicU64::new(0)),
            total: CacheLine(RunningTotal::new()),
        }
    }

    pub(super) fn window(&self) -> Span {
        self.window
    }

    /// When the newest pane begins, if there was a hit.
    pub(super) fn newest(&self) -> Option<Timestamp> {
        let newest = self.end.0.load(Ordering::Relaxed).checked_sub(1)?;
        Some(self.panes.start_of(newest))
    }

    /// Hits in the window of length `window` that ends with the pane of `at`.
    #[inline]
    pub(super) fn hits(&self, window: Span, at: Timestamp) -> u64 {
        let at = self.panes.pane_of(at);
        let end = self.end.0.load(Ordering::Relaxed);
        if window != self.window {
            return self.scan(self.range((at, end), self.panes.panes_in(window)));
        }
        let own = self.own_live((at, end));
        let of = Of { at, end, versions: own.versions };
        match self.total.0.read(of) {
            Some(sealed) if self.versions() == own.versions => sealed + self.live(of) + own.hits,
            _ => self.refill(of),
        }
    }

    /// Whether `pane` is kept, when one past the newest is `end`.
    #[inline]
    pub(super) fn is_kept(&self, pane: u64, end: u64) -> bool {
        end.wrapping_sub(1).wrapping_sub(pane) < self.span
    }

    /// The word a hit is added to, in a slot that holds `word`: that one, or the pane's without hits in place of
    /// an older pane's.
    pub(super) fn admit(&self, word: u64, hit: Hit) -> Result<u64, HitError> {
        let Hit { pane, at, weight } = hit;
        if pane + self.span < self.end.0.load(Ordering::Relaxed) {
            return Err(self.late(at));
        }
        let (empty, most) = (self.layout.empty(pane), self.layout.most());
        let (kept, hits) = match self.layout.look(empty, word) {
            Seen::Older => (empty, 0),
            Seen::Open(hits) | Seen::Sealed(hits) => (word, hits),
            // A newer pane has got the slot since `end` was read.
            Seen::Newer => return Err(self.late(at)),
        };
        if weight > most.saturating_sub(hits) {
            return Err(HitError::PaneFull { hits, weight, most });
        }
        Ok(kept)
    }

    /// Notes that `pane` is hit, before a hit of it is acknowledged: a total is of a newest pane, and no
    /// later one has acknowledged hits.
    pub(super) fn advance(&self, pane: u64) {
        if self.end.0.load(Ordering::Relaxed) <= pane {
            self.end.0.fetch_max(pane + 1, Ordering::Relaxed);
        }
    }

    /// First and one past the last pane with hits in a window of `window` panes.
    fn range(&self, (at, end): (u64, u64), window: u64) -> (u64, u64) {
        let first_asked = (at + 1).saturating_sub(window);
        let first_kept = end.max(at + 1).saturating_sub(self.span);
        (first_asked.max(first_kept), end.min(at + 1))
    }

    /// The range of panes of the default window.
    #[inline]
    pub(super) fn default_range(&self, of: (u64, u64)) -> (u64, u64) {
        self.range(of, self.window_panes)
    }

    /// Hits of the panes of a range in all rings.
    fn scan(&self, (first, end): (u64, u64)) -> u64 {
        let rings = COMMON..=self.heads.len();
        (first..end).map(|pane| rings.clone().map(|ring| self.count(ring, pane)).sum::<u64>()).sum()
    }

    /// Hits of `pane` in a ring.
    #[inline]
    pub(super) fn count(&self, ring: usize, pane: u64) -> u64 {
        // Acquire: partner of the hits; who sees one sees that it was sent.
        let word = self.slot(ring, pane).load(Ordering::Acquire);
        self.layout.hits(self.layout.empty(pane), word)
    }

    /// Hits of the newest pane in the common ring, when it is in the default window.
    #[inline]
    fn live(&self, of: Of) -> u64 {
        let newest = of.end.wrapping_sub(1);
        if of.at.wrapping_sub(newest) < self.window_panes { self.count(COMMON, newest) } else { 0 }
    }

    /// Sums the default window, and keeps the sum unless another thread is doing so.
    #[cold]
    #[inline(never)]
    fn refill(&self, of: Of) -> u64 {
        if of.end > 0
            && let Some(filling) = self.total.0.begin(of, self.window_panes)
            && let Some(hits) = self.fill(&filling, of)
        {
            return hits;
        }
        self.scan(self.default_range((of.at, of.end)))
    }

    /// Adds up all but the newest panes, seals those of the common ring, and keeps the sum; gives all hits
    /// of the default window. They are an answer even if a hit spoils the sum meanwhile: each pane was
    /// added up as it stood during this read.
    fn fill(&self, filling: &Filling, of: Of) -> Option<u64> {
        let (first, end) = self.default_range((of.at, of.end));
        // Of the common ring all panes before the newest. It is the last that was hit, so the slots of these
        // hold nothing that is still kept but themselves.
        let common = (first..end.min(of.end - 1)).map(|pane| self.seal(pane)).sum::<Option<u64>>();
        let own = self.own_sealed((of.at, of.end), of.versions);
        let (Some(common), Some((own, live))) = (common, own) else {
            self.total.0.give_up(filling);
            return None;
        };
        self.total.0.publish(filling, of, common + own);
        Some(common + own + self.live(of) + live)
    }

    #[inline]
    pub(super) fn slot(&self, ring: usize, pane: u64) -> &AtomicU64 {
        self.slot_at(self.place_of(ring, pane))
    }

    /// Which of all slots is that of a pane in a ring.
    #[inline]
    pub(super) fn place_of(&self, ring: usize, pane: u64) -> u64 {
        (ring * self.lines_per_ring * SLOTS_PER_LINE) as u64 + self.layout.slot_of(pane)
    }

    /// The slot with this number among all.
    #[inline]
    pub(super) fn slot_at(&self, place: u64) -> &AtomicU64 {
        #[expect(clippy::cast_possible_truncation, reason = "below the number of slots, which was a usize")]
        let place = place as usize;
        &self.lines[place / SLOTS_PER_LINE].0[place % SLOTS_PER_LINE]
    }

    pub(super) fn late(&self, at: Timestamp) -> HitError {
        let end = self.end.0.load(Ordering::Relaxed);
        HitError::Late { at, oldest: self.panes.start_of(end.saturating_sub(self.span)) }
    }
}
