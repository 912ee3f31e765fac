//! The ring that all threads may hit: a hit is one atomic addition.
//!
//! The word has the number of its pane, so the result of the addition shows whether the slot was still that pane's. The
//! panes of the running total are **sealed**: a thread that hits a sealed pane sees that in the word it changed, and
//! spoils the total before the hit is acknowledged.

use crate::error::HitError;
use crate::limits::SPIN_TRIES;
use crate::sync::{AtomicU64, Ordering, yield_now};
use crate::time::Timestamp;

use super::rings::{COMMON, Hit, Rings};
use super::word::Seen;

impl Rings {
    /// Counts `weight` hits at `at` in the common ring. Always inlined: a call would save registers, and the
    /// atomic addition would wait for those stores.
    #[inline(always)]
    pub(super) fn add(&self, at: Timestamp, weight: u64) -> Result<(), HitError> {
        // A copy: fields behind `self` would be read again after each atomic operation.
        let layout = self.layout;
        let pane = self.panes.pane_of(at);
        let slot = self.slot(COMMON, pane);
        let (empty, word) = (layout.empty(pane), slot.load(Ordering::Relaxed));
        let end = self.end.0.load(Ordering::Relaxed);
        if self.is_kept(pane, end) && layout.takes(empty, word, weight) {
            // AcqRel: partner of the loads in `count` and `seal`.
            let before = slot.fetch_add(weight, Ordering::AcqRel);
            if layout.is_open(empty, before) {
                return Ok(());
            }
            return self.settle(slot, before, Hit { pane, at, weight });
        }
        self.add_slowly(slot, Hit { pane, at, weight })
    }

    /// The slow path: a new pane, a sealed or nearly full one, or a weight that is too large for an unchecked
    /// addition.
    #[cold]
    #[inline(never)]
    fn add_slowly(&self, slot: &AtomicU64, hit: Hit) -> Result<(), HitError> {
        for attempt in 1_u32.. {
            let word = slot.load(Ordering::Relaxed);
            let kept = self.admit(word, hit)?;
            if hit.weight == 0 {
                return Ok(());
            }
            // AcqRel: like the addition in `add`.
            let added = slot.compare_exchange(word, kept + hit.weight, Ordering::AcqRel, Ordering::Relaxed);
            if added.is_ok() {
                self.advance(hit.pane);
                if !self.layout.is_open(self.layout.empty(hit.pane), kept) {
                    self.total.0.spoil();
                }
                return Ok(());
            }
            give_way(attempt);
        }
        Ok(())
    }

    /// The slot was sealed or had a newer pane when the hit was added.
    #[cold]
    #[inline(never)]
    fn settle(&self, slot: &AtomicU64, before: u64, hit: Hit) -> Result<(), HitError> {
        let empty = self.layout.empty(hit.pane);
        if matches!(self.layout.look(empty, before), Seen::Sealed(_)) {
            self.total.0.spoil();
            return Ok(());
        }
        // The ring went round while this thread was stopped, so the hit is late. Subtract it from the pane
        // that it was added to. If that pane has left too, the hit has left with it.
        for attempt in 1_u32.. {
            let word = slot.load(Ordering::Relaxed);
            if !self.layout.is_same_pane(word, before) {
                break;
            }
            // AcqRel: like the addition in `add`.
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

    /// Seals the slot of `pane` and returns its hits. `None` if other threads keep changing it.
    pub(super) fn seal(&self, pane: u64) -> Option<u64> {
        let (slot, empty) = (self.slot(COMMON, pane), self.layout.empty(pane));
        for _ in 0..SPIN_TRIES {
            // Acquire: partner of the additions.
            let word = slot.load(Ordering::Acquire);
            match self.layout.look(empty, word) {
                Seen::Newer => return Some(0),
                Seen::Sealed(hits) => return Some(hits),
                Seen::Open(_) => {
                    // If the slot has a newer pane by now, that one is sealed, which costs time only.
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
}

/// After losing a race: retries at once for some time, then yields to other threads.
fn give_way(attempt: u32) {
    if attempt.is_multiple_of(SPIN_TRIES) {
        yield_now();
    }
}
