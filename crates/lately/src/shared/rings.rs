//! The counters that threads share: rings of slots, and a total of the default window.
//!
//! Every thread may hit the **common ring** (`common_ring.rs`). An **own ring** is hit by one thread only
//! (`thread_rings.rs`). Their slots are the same: one word with the number of its pane and the hits. A read
//! of the default window is the running total of the panes before the newest, plus the newest panes. Each
//! kind of ring has its own way to invalidate the total.

use crate::cache_line::CacheLine;
use crate::error::{HitError, SettingsError};
use crate::settings::Settings;
use crate::sync::{AtomicU64, Ordering};
use crate::time::{Span, Timestamp};

use super::panes_of_time::PanesOfTime;
use super::running_total::{Filling, Of, RunningTotal};
use super::thread_rings::Head;
use super::word::{Layout, Seen};

/// Slots on one cache line, or on the pair of lines that is fetched together. Few under loom, which tracks
/// each.
const SLOTS_PER_LINE: usize = if cfg!(loom) { 2 } else { 16 };
/// Rings are at least this long, so that counts have enough bits.
const LEAST_SLOTS: u64 = 256;
/// The index of the ring that all threads share. The own rings follow.
pub(super) const COMMON: usize = 0;

/// The numbers of panes of a counter's parts, and the number of own rings.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) resolution: Span,
    pub(super) window: u64,
    pub(super) span: u64,
    pub(super) slots: u64,
    pub(super) thread_rings: usize,
}

impl Shape {
    /// Panes of `resolution`, exact over `window` and a fifth or a minute more, like those of a class.
    pub(super) fn new(resolution: Span, window: Span, thread_rings: usize) -> Result<Shape, SettingsError> {
        let settings = Settings::builder().resolution(resolution).window(window).retain(Span::MAX).build()?;
        let panes = PanesOfTime::new(resolution);
        let span = panes.panes_in(settings.exact());
        let slots = span.next_power_of_two().max(LEAST_SLOTS);
        Ok(Shape { resolution, window: panes.panes_in(window), span, slots, thread_rings })
    }
}

/// Hits to count, and the pane of their time.
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
    /// The default window, as a span and in panes.
    window: Span,
    window_panes: u64,
    /// The number of panes that are kept.
    pub(super) span: u64,
    lines_per_ring: usize,
    lines: Box<[CacheLine<[AtomicU64; SLOTS_PER_LINE]>]>,
    /// One for each own ring.
    pub(super) heads: Box<[CacheLine<Head>]>,
    /// One past the newest pane that was hit; 0 before any hit. Written once per pane. It only grows, so a
    /// thread that learns of an acknowledged hit reads at least the value that the hitting thread had:
    /// Relaxed is enough.
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

    /// The start of the newest pane, if there was a hit.
    pub(super) fn newest(&self) -> Option<Timestamp> {
        let newest = self.end.0.load(Ordering::Relaxed).checked_sub(1)?;
        Some(self.panes.start_of(newest))
    }

    /// The hits in the window of length `window` that ends with the pane of `at`.
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

    /// Whether `pane` is kept, if `end` is one past the newest pane.
    #[inline]
    pub(super) fn is_kept(&self, pane: u64, end: u64) -> bool {
        end.wrapping_sub(1).wrapping_sub(pane) < self.span
    }

    /// The word to add a hit to, for a slot that holds `word`: that word, or the pane's empty word in place
    /// of an older pane's.
    pub(super) fn admit(&self, word: u64, hit: Hit) -> Result<u64, HitError> {
        let Hit { pane, at, weight } = hit;
        if pane + self.span < self.end.0.load(Ordering::Relaxed) {
            return Err(self.late(at));
        }
        let (empty, most) = (self.layout.empty(pane), self.layout.most());
        let (kept, hits) = match self.layout.look(empty, word) {
            Seen::Older => (empty, 0),
            Seen::Open(hits) | Seen::Sealed(hits) => (word, hits),
            // A newer pane took the slot after `end` was read.
            Seen::Newer => return Err(self.late(at)),
        };
        if weight > most.saturating_sub(hits) {
            return Err(HitError::PaneFull { hits, weight, most });
        }
        Ok(kept)
    }

    /// Records that `pane` is hit, before the hit is acknowledged. So a total for a newest pane is never used
    /// after a later pane has acknowledged hits.
    pub(super) fn advance(&self, pane: u64) {
        if self.end.0.load(Ordering::Relaxed) <= pane {
            self.end.0.fetch_max(pane + 1, Ordering::Relaxed);
        }
    }

    /// The first pane, and one past the last, of those with hits in a window of `window` panes.
    fn range(&self, (at, end): (u64, u64), window: u64) -> (u64, u64) {
        let first_asked = (at + 1).saturating_sub(window);
        let first_kept = end.max(at + 1).saturating_sub(self.span);
        (first_asked.max(first_kept), end.min(at + 1))
    }

    /// That range for the default window.
    #[inline]
    pub(super) fn default_range(&self, of: (u64, u64)) -> (u64, u64) {
        self.range(of, self.window_panes)
    }

    /// The hits of a range of panes in all rings.
    fn scan(&self, (first, end): (u64, u64)) -> u64 {
        let rings = COMMON..=self.heads.len();
        (first..end).map(|pane| rings.clone().map(|ring| self.count(ring, pane)).sum::<u64>()).sum()
    }

    /// The hits of `pane` in a ring.
    #[inline]
    pub(super) fn count(&self, ring: usize, pane: u64) -> u64 {
        // Acquire: partner of the hits. A thread that sees a hit also sees that it was sent.
        let word = self.slot(ring, pane).load(Ordering::Acquire);
        self.layout.hits(self.layout.empty(pane), word)
    }

    /// The hits of the newest pane in the common ring, if it is in the default window.
    #[inline]
    fn live(&self, of: Of) -> u64 {
        let newest = of.end.wrapping_sub(1);
        if of.at.wrapping_sub(newest) < self.window_panes { self.count(COMMON, newest) } else { 0 }
    }

    /// Sums up the default window. Stores the sum as the running total, unless another thread is doing so.
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

    /// Sums up all panes but the newest, seals those of the common ring, and stores the sum. Returns all hits
    /// of the default window. They are a valid answer even if a hit invalidates the sum meanwhile, because
    /// each pane was read during this call.
    fn fill(&self, filling: &Filling, of: Of) -> Option<u64> {
        let (first, end) = self.default_range((of.at, of.end));
        // All panes of the common ring before the newest. Since no later pane was hit, their slots hold these
        // panes or expired ones.
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

    /// The index of a pane's slot in a ring, among all slots.
    #[inline]
    pub(super) fn place_of(&self, ring: usize, pane: u64) -> u64 {
        (ring * self.lines_per_ring * SLOTS_PER_LINE) as u64 + self.layout.slot_of(pane)
    }

    /// The slot with this index.
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
