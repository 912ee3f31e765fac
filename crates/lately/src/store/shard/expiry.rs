//! Removal of expired keys.

use std::sync::atomic::Ordering::Relaxed;

use super::super::context::Context;
use super::super::slot::Slot;
use super::Shard;
use crate::class::Classes;
use crate::limits::{KEYS_FOR_A_SWEEP, PLACES_OF_A_SWEEP};

impl Shard {
    /// Removes the key at `place`, which has expired.
    pub(super) fn expire(&mut self, place: u32, context: &Context<'_>) {
        self.remove(place);
        context.expired_keys.fetch_add(1, Relaxed);
    }

    /// Called for each new key. After some of them, expired keys are removed from the next places of the
    /// sweep.
    #[inline]
    pub(super) fn sweep_for_new(&mut self, context: &Context<'_>) {
        self.unswept_keys += 1;
        if self.unswept_keys >= KEYS_FOR_A_SWEEP {
            self.unswept_keys = 0;
            self.sweep_on(context);
        }
    }

    /// Removes keys that can never show in an answer again. During a replay the clock may be ahead of a key's changes, so hits
    /// may still be put back at earlier times.
    #[inline(never)]
    fn sweep_on(&mut self, context: &Context<'_>) {
        let first = self.side.swept;
        let end = first.saturating_add(PLACES_OF_A_SWEEP).min(self.places());
        let mut horizon = None;
        for place in first..end {
            let Some(slot) = self.slot_at(place) else { continue };
            // Most keys have the class of the one before. A horizon takes two divisions.
            let ms = match horizon {
                Some((class, ms)) if class == slot.class => ms,
                _ => context.classes.settings(slot.class).horizon_ms(self.now),
            };
            horizon = Some((slot.class, ms));
            if self.is_nothing_since(slot, ms) {
                self.expire(place, context);
            }
        }
        self.side.swept = end;
        if end == self.places() {
            self.side.swept = 0;
            self.shrink();
        }
    }

    /// Whether the key at `place` has expired.
    pub(in crate::store) fn has_expired(&self, place: u32, classes: &Classes) -> bool {
        self.slot_at(place).is_some_and(|slot| {
            self.is_nothing_since(slot, classes.settings(slot.class).edges(self.now).kept_ms)
        })
    }

    /// Whether a key has no hits since `ms`, and no limit in force.
    pub(super) fn is_nothing_since(&self, slot: &Slot, ms: i64) -> bool {
        slot.state.hits().expired(ms) && !slot.outlives_hits(self.now, ms)
    }
}
