//! What limits know of a key of a shard beside its hits: lockouts, arrival times, what was denied, and who is not
//! to be evicted.

use super::super::context::{Context, Hit};
use super::super::side::{Guard, Side};
use super::Shard;
use crate::class::Classes;
use crate::delta::Delta;
use crate::entry::Entry;
use crate::error::HitError;
use crate::gcra::Arrival;
use crate::time::{Span, Timestamp};

impl Shard {
    /// Whether limits keep the key at `place` when its hits are gone; `oldest_ms` is the edge of the retention.
    pub(in crate::store) fn outlives_hits(&self, place: u32, oldest_ms: i64) -> bool {
        if !self.has_limits {
            return false;
        }
        let side = &self.beside.side;
        self.limit_at(place).is_some()
            || side.arrival(place).is_after(self.now)
            || side.denied(place).is_some_and(|denied| !denied.expired(oldest_ms))
    }

    /// Has what limits know of the key at `place` beside its hits fetched; false when they know of no key.
    #[inline]
    pub(in crate::store) fn prefetch_side(&self, place: u32) -> bool {
        if self.has_limits {
            self.beside.side.prefetch(place);
        }
        self.has_limits
    }

    /// Until when a limit on the key at `place` is in force, if one is.
    #[inline]
    pub(in crate::store) fn limit_at(&self, place: u32) -> Option<Timestamp> {
        if !self.has_limits {
            return None;
        }
        self.beside.side.limited_until(place).filter(|&until| until > self.now)
    }

    /// Whether the key at `place` never goes: it is locked out, or has nothing left of a limit.
    pub(in crate::store) fn is_held(&self, place: u32) -> bool {
        self.guard_at(place).is_some_and(|guard| guard.is_full) || self.limit_at(place).is_some()
    }

    /// Whether the key at `place` would be allowed more if it went, if anybody knows.
    pub(in crate::store) fn guard_at(&self, place: u32) -> Option<Guard> {
        if !self.has_limits {
            return None;
        }
        self.beside.side.guard(place).filter(|guard| guard.until > self.now)
    }

    /// Takes note of what is left of `max` for the key at `place`, for `window` at most: with half of it gone the
    /// key goes after others, and with all of it never.
    #[inline]
    pub(in crate::store) fn guard(&mut self, place: Option<u32>, (left, max): (u64, u64), window: Span) {
        // Who has used nothing has nothing to lose.
        let Some(place) = place.filter(|_| left <= max / 2 && left < max) else { return };
        let guard = Guard { until: self.now.saturating_add(window), is_full: left == 0 };
        let known = self.guard_at(place);
        // Once a quarter of the window, or when it gets worse, not with each request.
        let is_known = known.is_some_and(|known| {
            (known.is_full || !guard.is_full)
                && 4 * (guard.until.as_millis() - known.until.as_millis()) <= window.as_millis()
        });
        if !is_known {
            self.change_side(place, |side| side.set_guard(place, guard));
        }
    }

    /// Keeps the key, and denies all to it, until `until`, or as long as was asked for before.
    pub(in crate::store) fn limit_until(
        &mut self,
        key: &[u8],
        hash: u64,
        until: Timestamp,
        context: &mut Context<'_>,
    ) {
        let place = self.slot_for(key, hash, context);
        self.change_side(place, |side| side.limit_until(place, until));
        let generation = self.generation_at(place);
        self.record(context, Delta::Limited { key, generation, until });
    }

    pub(in crate::store) fn limited_until(&mut self, key: &[u8], hash: u64) -> Option<Timestamp> {
        let place = self.place_of(key, hash)?;
        self.limit_at(place)
    }

    /// Until when limits keep the key, in milliseconds; 0 when they do not. `leaves_ms` says when hits leave the
    /// retention of which the newest came then.
    pub(in crate::store) fn limits_until_ms(
        &mut self,
        key: &[u8],
        hash: u64,
        leaves_ms: impl FnOnce(Timestamp) -> i64,
    ) -> i64 {
        let Some(place) = self.place_of(key, hash) else { return 0 };
        let side = &self.beside.side;
        let limited_ms = self.limit_at(place).map_or(0, Timestamp::as_millis);
        let arrival_ms = side.arrival(place).rounded_up().as_millis();
        let denied = side.denied(place).filter(|denied| !denied.is_empty());
        limited_ms.max(arrival_ms).max(denied.map_or(0, |denied| leaves_ms(denied.newest())))
    }

    /// When all that the key at `place` was given is used up.
    pub(in crate::store) fn arrival_at(&self, place: Option<u32>) -> Arrival {
        let place = place.filter(|_| self.has_limits);
        place.map_or_else(Arrival::default, |place| self.beside.side.arrival(place))
    }

    /// Sets when all that the key at `place` was given is used up.
    pub(in crate::store) fn set_arrival(
        &mut self,
        key: &[u8],
        place: u32,
        arrival: Arrival,
        context: &mut Context<'_>,
    ) {
        self.has_limits = true;
        if (self.beside.side.arrival(place) == Arrival::default()) == (arrival == Arrival::default()) {
            self.beside.side.set_arrival(place, arrival);
        } else {
            self.change_side(place, |side| side.set_arrival(place, arrival));
        }
        let generation = self.generation_at(place);
        self.record(context, Delta::Arrival { key, generation, arrival });
    }

    /// The hits that were denied to the key at `place`.
    pub(in crate::store) fn denied_at(&self, place: u32) -> Option<&Entry> {
        self.beside.side.denied(place)
    }

    /// Counts hits that were denied to a key that is at `place` or nowhere; gives where it is then. No key is made
    /// where there is no room for it.
    pub(in crate::store) fn deny(
        &mut self,
        hit: &Hit<'_>,
        place: Option<u32>,
        context: &mut Context<'_>,
    ) -> Option<u32> {
        if hit.weight == 0 {
            return place;
        }
        let place = match place {
            None if context.ceiling_bytes.is_some() => return None,
            None => self.add_slot(hit.key, hit.hash, context.classes.of(hit.key), context),
            Some(place) => place,
        };
        let at = hit.at.unwrap_or(self.now);
        if self.add_denied(place, at, hit.weight, context).is_ok() {
            let (key, hits, generation) = (hit.key, hit.weight, self.generation_at(place));
            self.record(context, Delta::Denied { key, generation, at, hits });
        }
        Some(place)
    }

    /// Adds to the hits that were denied to the key at `place`.
    pub(in crate::store) fn add_denied(
        &mut self,
        place: u32,
        at: Timestamp,
        hits: u64,
        context: &mut Context<'_>,
    ) -> Result<(), HitError> {
        let (class, now) = (self.slot_mut(place).class, self.now);
        let (frame, settings) = context.frame(class, now);
        if self.beside.side.denied(place).is_none() {
            self.change_side(place, |side| _ = side.denied_mut(place));
        }
        let denied = self.beside.side.denied_mut(place);
        let before = denied.heap_bytes();
        if denied.expired(frame.oldest_ms) {
            *denied = Entry::new();
        }
        let counted = match at == now {
            true => denied.hit_now(hits, frame, settings).map(|_| ()),
            false => denied.add(at, hits, settings, now),
        };
        self.bytes = self.bytes + denied.heap_bytes() - before;
        counted
    }

    /// Takes back hits that were denied to the key at `place`.
    pub(super) fn take_denied_back(&mut self, place: u32, at: Timestamp, hits: u64, classes: &Classes) {
        let now = self.now;
        let settings = classes.settings(self.slot_mut(place).class);
        self.change_side(place, |side| side.denied_mut(place).take_back(at, hits, settings, now));
    }

    /// Drops what is over of what limits know of the key at `place`, and tidies the rest.
    pub(super) fn tidy_limits(&mut self, place: u32, classes: &Classes) {
        if !self.has_limits {
            return;
        }
        let (class, now) = (self.slot_mut(place).class, self.now);
        let settings = classes.settings(class);
        self.change_side(place, |side| {
            side.tidy(place, now, settings.retention_edge_ms(now));
            if side.denied(place).is_some() {
                side.denied_mut(place).merge(settings, now);
            }
        });
    }

    /// Finds out whether so many hits can be counted of the key at `place`.
    pub(in crate::store) fn make_room_for(
        &mut self,
        place: u32,
        hits: u64,
        classes: &Classes,
    ) -> Result<(), HitError> {
        self.change(place, classes, |entry, settings, now| entry.make_room(hits, settings, now))
    }

    /// Changes what limits know of the key at `place`, and accounts for the memory that takes or gives.
    pub(super) fn change_side(&mut self, place: u32, change: impl FnOnce(&mut Side)) {
        self.has_limits = true;
        let side = &mut self.beside.side;
        let before = side.bytes_at(place);
        change(side);
        self.bytes = self.bytes + side.bytes_at(place) - before;
    }
}
