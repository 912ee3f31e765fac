//! Rings with one writer each: a hit is a load and a store.
//!
//! Only its own thread writes a ring's slots, so no addition is lost, and no slot changes its pane
//! unexpectedly. The newest pane of a ring is never part of the running total. Before the thread changes
//! another pane, or moves to a new one, it makes the ring's **version** odd, and afterwards even and higher.
//! A total of older versions is then not used any more. Readers check the versions before and after, as with
//! a sequence lock, but never wait (Lamport, Concurrent Reading and Writing, 1977).

use crate::error::HitError;
use crate::sync::{AtomicU64, Ordering};
use crate::time::Timestamp;

use super::rings::{COMMON, Hit, Rings};

/// The state of a ring. Only its thread writes to it, once per pane and for each late hit.
#[derive(Debug)]
pub(super) struct Head {
    /// Odd while panes change that belong to the running total.
    version: AtomicU64,
    /// One past the ring's newest pane; 0 before any.
    end: AtomicU64,
    newest: Newest,
}

/// A cache for hits of the newest pane. Only the ring's thread reads it.
#[derive(Debug)]
struct Newest {
    /// Its start in milliseconds.
    start_ms: AtomicU64,
    /// The index of its slot.
    slot: AtomicU64,
    /// The largest word that the slot may hold.
    full: AtomicU64,
}

/// No time is in a pane that starts here.
const NEVER_MS: u64 = 1 << 63;

/// What readers need of all own rings, besides the running total.
pub(super) struct OwnLive {
    /// The sum of the versions. Each only grows, so if the sum is unchanged, all are.
    pub(super) versions: u64,
    /// The hits of each ring's newest pane, if that is in the default window.
    pub(super) hits: u64,
}

impl Head {
    pub(super) fn new() -> Head {
        let newest =
            Newest { start_ms: AtomicU64::new(NEVER_MS), slot: AtomicU64::new(0), full: AtomicU64::new(0) };
        Head { version: AtomicU64::new(0), end: AtomicU64::new(0), newest }
    }
}

impl Rings {
    /// Counts `weight` hits at `at` in the own ring number `own`. Only one thread at a time may do so. The
    /// next one must be synchronized with the end of the last call.
    #[inline(always)]
    pub(super) fn add_own(&self, own: usize, at: Timestamp, weight: u64) -> Result<(), HitError> {
        let head = &self.heads[own].0;
        let Newest { start_ms, slot, full } = &head.newest;
        let age_ms = at.as_millis().cast_unsigned().wrapping_sub(start_ms.load(Ordering::Relaxed));
        let newest = head.end.load(Ordering::Relaxed).wrapping_sub(1);
        let is_kept = self.is_kept(newest, self.end.0.load(Ordering::Relaxed));
        if age_ms < self.panes.width_ms() && is_kept {
            let slot = self.slot_at(slot.load(Ordering::Relaxed));
            let word = slot.load(Ordering::Relaxed);
            if weight <= full.load(Ordering::Relaxed) - word {
                // Release: partner of the loads in `count`.
                slot.store(word + weight, Ordering::Release);
                return Ok(());
            }
        }
        self.add_own_slowly(own, Hit { pane: self.panes.pane_of(at), at, weight })
    }

    #[cold]
    #[inline(never)]
    fn add_own_slowly(&self, own: usize, hit: Hit) -> Result<(), HitError> {
        let Hit { pane, weight, .. } = hit;
        let (head, place) = (&self.heads[own].0, self.place_of(COMMON + 1 + own, pane));
        let slot = self.slot_at(place);
        let kept = self.admit(slot.load(Ordering::Relaxed), hit)?;
        if weight == 0 {
            return Ok(());
        }
        let version = head.version.load(Ordering::Relaxed);
        head.version.store(version + 1, Ordering::Relaxed);
        // Release: a thread that sees either store also sees the odd version that follows.
        slot.store(kept + weight, Ordering::Release);
        if head.end.load(Ordering::Relaxed) <= pane {
            head.end.store(pane + 1, Ordering::Release);
            let start_ms = self.panes.start_of(pane).as_millis().cast_unsigned();
            head.newest.start_ms.store(start_ms, Ordering::Relaxed);
            head.newest.slot.store(place, Ordering::Relaxed);
            head.newest.full.store(self.layout.empty(pane) + self.layout.most(), Ordering::Relaxed);
            self.advance(pane);
        }
        // Release: a thread that sees this version sees the hits.
        head.version.store(version + 2, Ordering::Release);
        Ok(())
    }

    /// The sum of the versions of the own rings.
    #[inline]
    pub(super) fn versions(&self) -> u64 {
        // Acquire: partner of the last store of a version.
        self.heads.iter().map(|head| head.0.version.load(Ordering::Acquire)).sum()
    }

    /// The versions, and then the newest panes, for the default window that ends with pane `at`. They are
    /// consistent if the versions are the same afterwards.
    #[inline]
    pub(super) fn own_live(&self, (at, end): (u64, u64)) -> OwnLive {
        let mut live = OwnLive { versions: self.versions(), hits: 0 };
        if !self.heads.is_empty() {
            let (first, _) = self.default_range((at, end));
            for (ring, head) in (COMMON + 1..).zip(&self.heads) {
                // Acquire: a thread that sees a new one sees the odd version that follows.
                let newest = head.0.end.load(Ordering::Acquire).wrapping_sub(1);
                if (first..=at).contains(&newest) {
                    live.hits += self.count(ring, newest);
                }
            }
        }
        live
    }

    /// The hits of the default window in the own rings: those of all panes but the newest ones, and those of
    /// the newest. `None` unless the versions are `versions`, and even, throughout.
    pub(super) fn own_sealed(&self, (at, end): (u64, u64), versions: u64) -> Option<(u64, u64)> {
        let (first, end_asked) = self.default_range((at, end));
        let mut sealed = 0;
        for (ring, head) in (COMMON + 1..).zip(&self.heads) {
            let newest = head.0.end.load(Ordering::Acquire).wrapping_sub(1);
            let panes = (first..end_asked).filter(|&pane| pane != newest);
            sealed += panes.map(|pane| self.count(ring, pane)).sum::<u64>();
        }
        let live = self.own_live((at, end));
        let is_even = |head: &Head| head.version.load(Ordering::Acquire).is_multiple_of(2);
        let settled = live.versions == versions && self.heads.iter().all(|head| is_even(&head.0));
        (settled && self.versions() == versions).then_some((sealed, live.hits))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::rings::Shape;
    use super::*;
    use crate::time::{milliseconds, minutes};

    /// Symptom: after a hit with a weight of a hundred, each read summed up the window. Cause: the hit took
    /// the slow path, which is for rings with several writers, and the version rose. Fix: an own ring has one
    /// writer, so the fast path allows it.
    #[test]
    fn hits_of_the_newest_pane_spoil_no_total() {
        let window = minutes(5);
        let rings = Rings::new(Shape::new(milliseconds(1), window, 1).expect("valid"), window);
        let at = Timestamp::from_millis(7_000).expect("a time");
        rings.add_own(0, at, 1).expect("counted");
        let (version, most) = (rings.versions(), rings.layout.most());
        for weight in [100, most / 2, most / 2 - 101] {
            rings.add_own(0, at, weight).expect("counted");
        }
        assert_eq!((rings.versions(), rings.hits(window, at)), (version, most));
        let full = rings.add_own(0, at, 1);
        assert_eq!(full, Err(HitError::PaneFull { hits: most, weight: 1, most }));
    }
}
