//! The protocol of the shared counters: rings of slots, and a total of the default window.
//!
//! A hit adds to the word of its pane's slot. The word says which pane it is of, so the addition
//! itself tells whether the slot was still that pane's. A read of the default window is the running
//! total of the panes before the newest, and the newest pane as it stands. For the total to hold, its
//! panes are **sealed**: whoever hits a sealed pane sees so in the word it changed, and spoils the
//! total before the hit is acknowledged.

use crate::error::{HitError, SettingsError};
use crate::limits::{MAX_STRIPES, SPIN_TRIES};
use crate::own_line::OwnLine;
use crate::settings::Settings;
use crate::sync::{AtomicU64, Ordering, yield_now};
use crate::time::{Span, Timestamp};

use super::panes_of_time::PanesOfTime;
use super::running_total::{Filling, Of, RunningTotal};
use super::word::{Layout, Seen};

/// Slots on one line of the cache, or what is fetched with it. Few under loom, which follows each.
const SLOTS_PER_LINE: usize = if cfg!(loom) { 2 } else { 16 };
/// Rings are no shorter, so that counts have bits enough.
const LEAST_SLOTS: u64 = 256;

/// How many panes the parts of a counter have.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) resolution: Span,
    pub(super) window: u64,
    pub(super) span: u64,
    pub(super) slots: u64,
    pub(super) stripes: usize,
}

impl Shape {
    /// Panes of `resolution`, exact over `window` and a fifth or a minute more, as of a class.
    pub(super) fn new(resolution: Span, window: Span, stripes: usize) -> Result<Shape, SettingsError> {
        if stripes == 0 || stripes > MAX_STRIPES {
            return Err(SettingsError::Stripes { given: stripes, most: MAX_STRIPES });
        }
        let settings = Settings::builder().resolution(resolution).window(window).retain(Span::MAX).build()?;
        let panes = PanesOfTime::new(resolution);
        let span = panes.panes_in(settings.exact());
        let slots = span.next_power_of_two().max(LEAST_SLOTS);
        let window = panes.panes_in(window);
        Ok(Shape { resolution, window, span, slots, stripes: stripes.next_power_of_two() })
    }
}

/// Hits to be counted, and the pane of their time.
#[derive(Clone, Copy, Debug)]
struct Hit {
    pane: u64,
    at: Timestamp,
    weight: u64,
}

/// Rings of slots, one for each stripe; the newest pane; the running total.
#[derive(Debug)]
pub(super) struct Rings {
    panes: PanesOfTime,
    layout: Layout,
    /// The default window, as asked for and in panes.
    window: Span,
    window_panes: u64,
    /// How many panes are kept.
    span: u64,
    stripes: usize,
    lines_per_stripe: usize,
    lines: Box<[OwnLine<[AtomicU64; SLOTS_PER_LINE]>]>,
    /// One past the newest pane that was hit; 0 before any. Written once a pane. It only grows, so who
    /// learns that a hit was acknowledged sees no less than the thread did that made the hit: Relaxed is
    /// enough.
    end: OwnLine<AtomicU64>,
    total: OwnLine<RunningTotal>,
}

impl Rings {
    pub(super) fn new(shape: Shape, window: Span) -> Rings {
        let panes = PanesOfTime::new(shape.resolution);
        let slot_bits = shape.slots.trailing_zeros();
        let stripe_bits = shape.stripes.trailing_zeros();
        let layout = Layout::new(slot_bits, stripe_bits, panes.pane_of(Timestamp::MAX));
        let slots = usize::try_from(shape.slots).expect("at most twice MAX_EXACT_PANES");
        let lines_per_stripe = slots.div_ceil(SLOTS_PER_LINE);
        let line = || OwnLine(std::array::from_fn(|_| AtomicU64::new(0)));
        Rings {
            panes,
            layout,
            window,
            window_panes: shape.window,
            span: shape.span,
            stripes: shape.stripes,
            lines_per_stripe,
            lines: (0..lines_per_stripe * shape.stripes).map(|_| line()).collect(),
            end: OwnLine(AtomicU64::new(0)),
            total: OwnLine(RunningTotal::new()),
        }
    }

    pub(super) fn window(&self) -> Span {
        self.window
    }

    pub(super) fn stripes(&self) -> usize {
        self.stripes
    }

    /// When the newest pane begins, if there was a hit.
    pub(super) fn newest(&self) -> Option<Timestamp> {
        let newest = self.end.0.load(Ordering::Relaxed).checked_sub(1)?;
        Some(self.panes.start_of(newest))
    }

    /// Counts `weight` hits at `at` in the ring of `stripe`. Always inlined: saving registers would be stores
    /// that the atomic addition has to wait for.
    #[inline(always)]
    pub(super) fn add(&self, stripe: usize, at: Timestamp, weight: u64) -> Result<(), HitError> {
        // A copy: what is read from behind `self` would be read again after each atomic.
        let layout = self.layout;
        let pane = self.panes.pane_of(at);
        let slot = self.slot(stripe, pane);
        let (empty, word) = (layout.empty(pane), slot.load(Ordering::Relaxed));
        let end = self.end.0.load(Ordering::Relaxed);
        let is_kept = end.wrapping_sub(1).wrapping_sub(pane) < self.span;
        if is_kept && layout.takes(empty, word, weight) {
            // AcqRel: partner of the loads in `count` and `seal`.
            let before = slot.fetch_add(weight, Ordering::AcqRel);
            if layout.is_open(empty, before) {
                return Ok(());
            }
            return self.settle(slot, before, Hit { pane, at, weight });
        }
        self.add_slowly(slot, Hit { pane, at, weight })
    }

    /// Hits in the window of length `window` that ends with the pane of `at`.
    #[inline]
    pub(super) fn hits(&self, window: Span, at: Timestamp) -> u64 {
        let at = self.panes.pane_of(at);
        let end = self.end.0.load(Ordering::Relaxed);
        let of = Of { at, end };
        if window != self.window {
            return self.scan(of, self.panes.panes_in(window));
        }
        match self.total.0.read(of) {
            Some(sealed) => sealed + self.live(of),
            None => self.refill(of),
        }
    }

    /// A pane that is new, sealed or nearly full, or a hit too heavy to be added unseen.
    #[cold]
    #[inline(never)]
    fn add_slowly(&self, slot: &AtomicU64, hit: Hit) -> Result<(), HitError> {
        let Hit { pane, at, weight } = hit;
        if pane + self.span < self.end.0.load(Ordering::Relaxed) {
            return Err(self.late(at));
        }
        let (empty, most) = (self.layout.empty(pane), self.layout.most());
        for attempt in 1_u32.. {
            let word = slot.load(Ordering::Relaxed);
            let (kept, hits) = match self.layout.look(empty, word) {
                Seen::Older => (empty, 0),
                Seen::Open(hits) | Seen::Sealed(hits) => (word, hits),
                // A newer pane has got the slot since `end` was read.
                Seen::Newer => return Err(self.late(at)),
            };
            if weight > most.saturating_sub(hits) {
                return Err(HitError::PaneFull { hits, weight, most });
            }
            if weight == 0 {
                return Ok(());
            }
            // AcqRel: as the addition in `add`.
            let added = slot.compare_exchange(word, kept + weight, Ordering::AcqRel, Ordering::Relaxed);
            if added.is_ok() {
                self.advance(pane);
                if !self.layout.is_open(empty, kept) {
                    self.total.0.spoil();
                }
                return Ok(());
            }
            give_way(attempt);
        }
        Ok(())
    }

    /// Notes that `pane` is hit, before a hit of it is acknowledged: a total is of a newest pane, and no
    /// later one has acknowledged hits.
    fn advance(&self, pane: u64) {
        if self.end.0.load(Ordering::Relaxed) <= pane {
            self.end.0.fetch_max(pane + 1, Ordering::Relaxed);
        }
    }

    /// The slot was not as it should have been when the hit was added: sealed, or of a newer pane.
    #[cold]
    #[inline(never)]
    fn settle(&self, slot: &AtomicU64, before: u64, hit: Hit) -> Result<(), HitError> {
        let empty = self.layout.empty(hit.pane);
        if matches!(self.layout.look(empty, before), Seen::Sealed(_)) {
            self.total.0.spoil();
            return Ok(());
        }
        // This thread stood still for a turn of the ring: the pane is late, and the hits are taken out
        // of the pane they fell into; if that one is gone too, they went with it.
        for attempt in 1_u32.. {
            let word = slot.load(Ordering::Relaxed);
            if !self.layout.is_same_pane(word, before) {
                break;
            }
            // AcqRel: as the addition in `add`.
            let taken = slot.compare_exchange(word, word - hit.weight, Ordering::AcqRel, Ordering::Relaxed);
            if taken.is_ok() {
                if word & self.layout.seal() != 0 {
                    self.total.0.spoil();
                }
                break;
            }
            give_way(attempt);
        }
        Err(self.late(hit.at))
    }

    /// Hits of the newest pane, when it is in the default window.
    #[inline]
    fn live(&self, of: Of) -> u64 {
        let newest = of.end.wrapping_sub(1);
        if of.at.wrapping_sub(newest) < self.window_panes { self.count(newest) } else { 0 }
    }

    /// Hits of `pane` in all stripes.
    #[inline]
    fn count(&self, pane: u64) -> u64 {
        let (layout, empty) = (self.layout, self.layout.empty(pane));
        // Acquire: partner of the additions; who sees a hit sees that it was sent.
        let hits = |stripe| layout.hits(empty, self.slot(stripe, pane).load(Ordering::Acquire));
        (0..self.stripes).map(hits).sum()
    }

    /// First and one past the last pane with hits in a window of `window` panes.
    fn range(&self, of: Of, window: u64) -> (u64, u64) {
        let first_asked = (of.at + 1).saturating_sub(window);
        let first_kept = of.end.max(of.at + 1).saturating_sub(self.span);
        (first_asked.max(first_kept), of.end.min(of.at + 1))
    }

    fn scan(&self, of: Of, window: u64) -> u64 {
        let (first, end) = self.range(of, window);
        (first..end).map(|pane| self.count(pane)).sum()
    }

    /// Adds the default window up, and keeps the sum when nobody else does so.
    #[cold]
    #[inline(never)]
    fn refill(&self, of: Of) -> u64 {
        if of.end > 0
            && let Some(filling) = self.total.0.begin(of.at, self.window_panes)
            && let Some(sealed) = self.fill(&filling, of)
        {
            return sealed + self.live(of);
        }
        self.scan(of, self.window_panes)
    }

    /// Adds up all but the newest pane, seals them, and keeps the sum. It is an answer even if a hit spoils
    /// it meanwhile: each pane was added up as it stood during this read.
    fn fill(&self, filling: &Filling, of: Of) -> Option<u64> {
        let (first, end) = self.range(of, self.window_panes);
        // All panes before the newest. It is the last that was hit, so the slots of these hold nothing
        // that is still kept but themselves.
        let panes = first..end.min(of.end - 1);
        let slots = panes.flat_map(|pane| (0..self.stripes).map(move |stripe| (stripe, pane)));
        let sealed = slots.map(|(stripe, pane)| self.seal(stripe, pane)).sum::<Option<u64>>();
        let Some(sealed) = sealed else {
            self.total.0.give_up(filling);
            return None;
        };
        self.total.0.publish(filling, of, sealed);
        Some(sealed)
    }

    /// Seals the slot of `pane` and gives its hits; `None` when other threads keep changing it.
    fn seal(&self, stripe: usize, pane: u64) -> Option<u64> {
        let (slot, empty) = (self.slot(stripe, pane), self.layout.empty(pane));
        for _ in 0..SPIN_TRIES {
            // Acquire: partner of the additions.
            let word = slot.load(Ordering::Acquire);
            match self.layout.look(empty, word) {
                Seen::Newer => return Some(0),
                Seen::Sealed(hits) => return Some(hits),
                Seen::Open(_) => {
                    // Should the slot be a newer pane's by now, that one is sealed, which only costs.
                    let word = slot.fetch_or(self.layout.seal(), Ordering::AcqRel);
                    return Some(self.layout.hits(empty, word));
                }
                Seen::Older => {
                    let sealed = empty | self.layout.seal();
                    let swapped = slot.compare_exchange(word, sealed, Ordering::AcqRel, Ordering::Relaxed);
                    if swapped.is_ok() {
                        return Some(0);
                    }
                }
            }
        }
        None
    }

    #[inline]
    fn slot(&self, stripe: usize, pane: u64) -> &AtomicU64 {
        #[expect(clippy::cast_possible_truncation, reason = "below the number of slots, which was a usize")]
        let index = self.layout.slot_of(pane) as usize;
        &self.lines[stripe * self.lines_per_stripe + index / SLOTS_PER_LINE].0[index % SLOTS_PER_LINE]
    }

    fn late(&self, at: Timestamp) -> HitError {
        let end = self.end.0.load(Ordering::Relaxed);
        HitError::Late { at, oldest: self.panes.start_of(end.saturating_sub(self.span)) }
    }
}

/// After another thread was quicker: again at once for some time, then let others run first.
fn give_way(attempt: u32) {
    if attempt.is_multiple_of(SPIN_TRIES) {
        yield_now();
    }
}
