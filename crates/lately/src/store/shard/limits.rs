//! The limit state of a shard's keys: lockouts, arrival times, denied hits, and eviction guards.

use std::borrow::Cow;
use std::sync::Arc;

use super::super::cached_denial::CachedDenial;
use super::super::context::{Context, Hit};
use super::super::eviction_guard::{EvictionGuard, LimitGuard, Protection, RateGuard};
use super::super::id_owner::Owner;
use super::super::slot::Slot;
use super::Shard;
use crate::class::Classes;
use crate::delta::{Delta, Forgotten};
use crate::entry::{Entry, GivenBack, LimitWindow};
use crate::error::HitError;
use crate::gcra::{Arrival, Rate};
use crate::lockout::{PastLockout, StartedLockout};
use crate::merge::Cell;
use crate::settings::Settings;
use crate::time::{Span, Timestamp};

impl Shard {
    /// The time until which a limit on the key at `place` is in force, if one is.
    #[inline]
    pub(in crate::store) fn limit_at(&self, place: u32) -> Option<Timestamp> {
        self.slot_at(place)?.state.limited_until().filter(|&until| until > self.now)
    }

    /// How well limits protect the key at `place` from eviction. `others` returns the hits of other nodes on a key.
    pub(in crate::store) fn protection(
        &self,
        place: u32,
        classes: &Classes,
        others: impl FnOnce(&[u8]) -> Option<Arc<Entry>>,
    ) -> Protection {
        let Some(slot) = self.slot_at(place) else { return Protection::Nothing };
        if self.limit_at(place).is_some() {
            return Protection::Held;
        }
        let EvictionGuard { limit, rate } = slot.state.guard();
        let by_rate = rate.map_or(Protection::Nothing, |rate| rate.protection(slot.arrival(), self.now));
        let by_limit = limit.map_or(Protection::Nothing, |limit| {
            let window = LimitWindow::ending_at(self.now, limit.window(), self.now);
            let used = |hits: &Entry| hits.used(window, classes.settings(slot.class));
            let of_others = self.key_at(place).and_then(others).map_or(0, |others| used(&others));
            limit.protection(used(slot.state.hits()).saturating_add(of_others))
        });
        by_rate.max(by_limit)
    }

    /// Updates the eviction guard of the key at `place`: a limit of this window has `left` of `max` hits left.
    #[inline]
    pub(in crate::store) fn guard_limit(
        &mut self,
        place: Option<u32>,
        left_of_max: (u64, u64),
        window: Span,
        context: &mut Context<'_>,
    ) {
        let Some(slot) = place.and_then(|place| self.slot_at(place)) else { return };
        let limit = LimitGuard::next(slot.state.guard().limit, left_of_max, window);
        if let (Some(place), Some(_)) = (place, limit) {
            self.guard(place, EvictionGuard { limit, rate: None }, context);
        }
    }

    /// Updates the eviction guard of the key at `place`: a rate has `left` of `max` hits left.
    #[inline]
    pub(in crate::store) fn guard_rate(
        &mut self,
        place: Option<u32>,
        left_of_max: (u64, u64),
        rate: Rate,
        context: &mut Context<'_>,
    ) {
        let Some(slot) = place.and_then(|place| self.slot_at(place)) else { return };
        let rate = RateGuard::next(slot.state.guard().rate, left_of_max, rate, self.now);
        if let (Some(place), Some(_)) = (place, rate) {
            self.guard(place, EvictionGuard { limit: None, rate }, context);
        }
    }

    fn guard(&mut self, place: u32, guard: EvictionGuard, context: &mut Context<'_>) {
        self.change_state(place, context.classes, |state, _, now| state.put_guard(guard, now));
        self.record_guard(place, guard, context);
    }

    /// Records what is new in the guard of the key at `place`.
    pub(super) fn record_guard(&mut self, place: u32, guard: EvictionGuard, context: &mut Context<'_>) {
        if let (Some(batch), Some(key)) = (context.deltas.as_deref_mut(), self.key_at(place)) {
            let generation = self.generation_at(place);
            batch.push(self.next_sequence(), Delta::Guarded { key, generation, guard });
            self.number += 1;
        }
    }

    /// Replays a guard, if the key exists.
    pub(in crate::store) fn put_guard_back(
        &mut self,
        key: &[u8],
        hash: u64,
        guard: EvictionGuard,
        context: &mut Context<'_>,
    ) {
        if let Some(place) = self.place_of(key, hash) {
            self.change_state(place, context.classes, |state, _, now| state.put_guard(guard, now));
        }
    }

    /// Whether hits of the key at `place` were denied.
    pub(in crate::store) fn is_limited_at(&self, place: u32) -> bool {
        self.slot_at(place).is_some_and(|slot| slot.state.is_limited())
    }

    /// Caches a denial of the key at `place`.
    pub(in crate::store) fn set_denial(&mut self, place: u32, denial: CachedDenial, classes: &Classes) {
        self.change_state(place, classes, |state, _, _| state.set_denial(denial));
    }

    /// Keeps the key and denies all its requests until `until`, or until the end of a longer lockout.
    pub(in crate::store) fn limit_until(
        &mut self,
        key: &[u8],
        hash: u64,
        until: Timestamp,
        context: &mut Context<'_>,
    ) {
        self.lock_out(key, hash, StartedLockout { until, past: None }, context);
    }

    /// Locks a key out like `limit_until`, and keeps what its next lockout grows from.
    pub(in crate::store) fn lock_out(
        &mut self,
        key: &[u8],
        hash: u64,
        StartedLockout { until, past }: StartedLockout,
        context: &mut Context<'_>,
    ) {
        let place = self.slot_for(key, hash, context);
        self.change_state(place, context.classes, |state, _, _| state.lock_out(until, past));
        self.record_change(context, |shard| {
            let generation = shard.generation_at(place);
            Delta::Limited { key, generation, until, past }
        });
    }

    /// The last lockout of the key at `place`, if the next one grows from it.
    pub(in crate::store) fn past_lockout_at(&self, place: u32) -> Option<PastLockout> {
        self.slot_at(place)?.state.past_lockout().filter(|past| past.forgotten_at > self.now)
    }

    pub(in crate::store) fn limited_until(&mut self, key: &[u8], hash: u64) -> Option<Timestamp> {
        let place = self.place_of(key, hash)?;
        self.limit_at(place)
    }

    /// The time until which limits keep the key, in milliseconds; 0 if they do not. `leaves_ms` returns when
    /// hits leave the retention, given the time of the newest.
    pub(in crate::store) fn limits_until_ms(
        &mut self,
        key: &[u8],
        hash: u64,
        leaves_ms: impl FnOnce(Timestamp) -> i64,
    ) -> i64 {
        let slot = self.place_of(key, hash).and_then(|place| Some((place, self.slot_at(place)?)));
        let Some((place, slot)) = slot else { return 0 };
        let locked_ms = self.limit_at(place).map_or(0, Timestamp::as_millis);
        let past_ms = self.past_lockout_at(place).map_or(0, |past| past.forgotten_at.as_millis());
        let limited_ms = locked_ms.max(past_ms);
        let arrival_ms = slot.arrival().rounded_up().as_millis();
        limited_ms.max(arrival_ms).max(slot.state.denied_last().map_or(0, leaves_ms))
    }

    /// The arrival time of the key at `place`: when all that it was granted is used up.
    pub(in crate::store) fn arrival_at(&self, place: Option<u32>) -> Arrival {
        let slot = place.and_then(|place| self.slot_at(place));
        slot.map_or_else(Arrival::default, Slot::arrival)
    }

    /// Sets the arrival time of the key at `place`.
    pub(in crate::store) fn set_arrival(
        &mut self,
        key: &[u8],
        place: u32,
        arrival: Arrival,
        context: &mut Context<'_>,
    ) {
        self.change_slot(place, context.classes, |slot, _, _| slot.set_arrival(arrival));
        self.record_arrival(key, place, arrival, context);
    }

    /// Records the new arrival time.
    #[inline]
    pub(super) fn record_arrival(
        &mut self,
        key: &[u8],
        place: u32,
        arrival: Arrival,
        context: &mut Context<'_>,
    ) {
        self.record_change(context, |shard| {
            let generation = shard.generation_at(place);
            Delta::Arrival { key, generation, arrival }
        });
    }

    /// The denied hits of the key at `place`.
    pub(in crate::store) fn denied_at(&self, place: u32, settings: &Settings) -> Option<Cow<'_, Entry>> {
        self.slot_at(place)?.state.denied(settings, self.now)
    }

    /// Counts denied hits of a key. The key is at `place`, or does not exist. Returns its place afterwards.
    /// In a full store no key is created.
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
            None if context.full.is_some() => return None,
            None => self.add_slot(hit.key, hit.hash, context.classes.of(hit.key), context),
            // Without room, denied hits are counted only if that takes no memory. The request is denied all
            // the same.
            Some(place) if context.full.is_some() => {
                let at = self.time_of_denial(hit);
                let is_counted = self.slot_mut(place).state.deny_in_place(at, hit.weight);
                if is_counted {
                    self.record_denied(place, hit, context);
                }
                return Some(place);
            }
            Some(place) => place,
        };
        let at = self.time_of_denial(hit);
        if self.add_denied(place, at, hit.weight, context).is_ok() {
            self.record_denied(place, hit, context);
        }
        Some(place)
    }

    /// Records denied hits.
    #[inline]
    pub(super) fn record_denied(&mut self, place: u32, hit: &Hit<'_>, context: &mut Context<'_>) {
        self.record_change(context, |shard| {
            let (key, hits, generation) = (hit.key, hit.weight, shard.generation_at(place));
            Delta::Denied { key, generation, at: shard.time_of_denial(hit), hits }
        });
    }

    /// When denied hits count: at their time, but not ahead of the clock. Only their pane is kept. After a change of classes, the hits of the
    /// running pane are taken to have come before now.
    fn time_of_denial(&self, hit: &Hit<'_>) -> Timestamp {
        hit.at.map_or(self.now, |at| at.min(self.now))
    }

    /// Adds to the denied hits of the key at `place`.
    pub(super) fn add_denied(
        &mut self,
        place: u32,
        at: Timestamp,
        hits: u64,
        context: &mut Context<'_>,
    ) -> Result<(), HitError> {
        self.change_state(place, context.classes, |state, settings, now| state.deny(at, hits, settings, now))
    }

    /// Replays denied hits of the key at `place`.
    pub(in crate::store) fn put_denied_back(
        &mut self,
        place: u32,
        at: Timestamp,
        hits: u64,
        context: &mut Context<'_>,
    ) {
        self.change_state(place, context.classes, |state, settings, now| {
            state.deny_again(at, hits, settings, now);
        });
    }

    /// Rolls back denied hits of the key at `place`. Returns how many it does not have.
    pub(super) fn subtract_denied(&mut self, place: u32, at: Timestamp, hits: u64, classes: &Classes) -> u64 {
        self.change_state(place, classes, |state, settings, now| {
            state.denied_mut(settings, now).subtract(settings.pane_start(at), hits, settings, now)
        })
    }

    /// Gives hits back that are certainly in the window of a limit, at most `hits`, of the key at `place`. Returns the place, unless
    /// the key had no other hits and is deleted.
    pub(in crate::store) fn give_back(
        &mut self,
        key: &[u8],
        place: u32,
        (window, hits): (LimitWindow, u64),
        context: &mut Context<'_>,
    ) -> Option<u32> {
        let give = |entry: &mut Entry, settings: &Settings, now| entry.give_back(window, hits, settings, now);
        self.keep_moments(place, context.classes);
        let slot = self.slot_at(place)?;
        let (settings, entry) = (context.classes.settings(slot.class), slot.state.hits());
        if let Some(last_ms) = window.past_ms().filter(|last_ms| *last_ms < entry.newest_ms()) {
            // Later hits stay, so these are not the newest.
            let (ranges, total) = (entry.newest_until(window, last_ms, hits), entry.total());
            if ranges.iter().map(|(_, hits)| hits).sum::<u64>() < total {
                for (range, hits) in ranges {
                    self.take_range_back((key, place), range, hits, context);
                }
                return Some(place);
            }
        }
        let most = entry.certain_hits(window, settings).min(hits);
        if most == entry.total() && !slot.outlives_hits(self.now, 0) {
            // A key without hits may expire, and its next hits are of another generation. So this generation ends.
            self.forget(place, Forgotten::Deleted, context);
            return None;
        }
        let Some(GivenBack { entry, hits }) = self.change(place, context.classes, give) else {
            return Some(place);
        };
        if let Some(batch) = context.deltas.as_deref_mut() {
            batch.given_back.push((entry, self.side.places.owner_and_members(place)));
        }
        let ends_ids = self.end_ids_without_hits(place);
        let from = Timestamp::from_millis(window.first_ms()).unwrap_or(Timestamp::MIN);
        self.record_change(context, |shard| {
            let generation = shard.generation_at(place);
            Delta::GivenBack { key, generation, from, hits, ends_ids }
        });
        Some(place)
    }

    /// Replays that hits were given back. If `ends_ids` is false, there were others then: perhaps hits that the disk refused
    /// afterwards, which are not replayed.
    pub(in crate::store) fn give_back_again(
        &mut self,
        (key, hash): (&[u8], u64),
        (from, hits): (Timestamp, u64),
        ends_ids: bool,
        context: &mut Context<'_>,
    ) {
        if let Some(place) = self.place_of(key, hash) {
            self.change(place, context.classes, |entry, settings, now| {
                entry.give_back_from(from.as_millis(), hits, settings, now);
            });
            if ends_ids {
                self.end_ids_without_hits(place);
            }
        }
    }

    /// Hits of the key at `place` were given back. If none are left, their ids count again, and their members are gone. Returns whether
    /// that is so.
    fn end_ids_without_hits(&mut self, place: u32) -> bool {
        let has_none = self.entry_at(Some(place)).is_none_or(Entry::is_empty);
        if has_none {
            self.set_owner(place, Owner::NONE);
            self.remove_members(place);
        }
        has_none
    }

    /// Takes hits out of cells of a live key. The key is deleted when none are left. The change names the hits that are taken, not
    /// those that are left: these may be of batches that are not written yet, and may be refused.
    pub(in crate::store) fn take_back(
        &mut self,
        (key, hash): (&[u8], u64),
        cells: &[(Cell, u64)],
        context: &mut Context<'_>,
    ) -> Vec<u64> {
        let Some(place) = self.live_place(key, hash, context) else { return Vec::new() };
        let take = |entry: &mut Entry, &(cell, hits): &(Cell, u64), settings: &Settings, now| {
            entry.take_back((cell.start_ms, cell.end_ms() - 1), hits, settings, now)
        };
        let hits_of = |taken: &Option<GivenBack>| taken.as_ref().map_or(0, |taken| taken.hits);
        let Some(slot) = self.slot_at(place) else { return Vec::new() };
        let hits = slot.state.hits();
        if cells.iter().fold(0_u64, |sum, (_, hits)| sum.saturating_add(*hits)) >= hits.total() {
            let (settings, mut left) = (context.classes.settings(slot.class), hits.clone());
            let taken = cells.iter().map(|of| hits_of(&take(&mut left, of, settings, self.now))).collect();
            if left.is_empty() {
                self.forget(place, Forgotten::Deleted, context);
                return taken;
            }
        }
        let range = |cell: &Cell| (cell.start_ms, cell.end_ms() - 1);
        cells
            .iter()
            .map(|(cell, hits)| self.take_range_back((key, place), range(cell), *hits, context))
            .collect()
    }

    /// Takes hits of the key at `place` out of a range of milliseconds, at most `hits`. Others are left. Returns how many it took.
    fn take_range_back(
        &mut self,
        (key, place): (&[u8], u32),
        (from_ms, last_ms): (i64, i64),
        hits: u64,
        context: &mut Context<'_>,
    ) -> u64 {
        let taken = self.change(place, context.classes, |entry, settings, now| {
            entry.take_back((from_ms, last_ms), hits, settings, now)
        });
        let Some(GivenBack { entry, hits }) = taken else { return 0 };
        if let Some(batch) = context.deltas.as_deref_mut() {
            batch.given_back.push((entry, self.side.places.owner_and_members(place)));
        }
        let [from, to] = [from_ms, last_ms].map(|ms| Timestamp::from_millis(ms).unwrap_or(Timestamp::MIN));
        self.record_change(context, |shard| {
            let generation = shard.generation_at(place);
            Delta::TakenBack { key, generation, from, to, hits }
        });
        hits
    }

    /// Replays that hits were taken back.
    pub(in crate::store) fn take_back_again(
        &mut self,
        (key, hash): (&[u8], u64),
        (from, to): (Timestamp, Timestamp),
        hits: u64,
        context: &mut Context<'_>,
    ) {
        if let Some(place) = self.place_of(key, hash) {
            self.change(place, context.classes, |entry, settings, now| {
                entry.take_back((from.as_millis(), to.as_millis()), hits, settings, now);
            });
        }
    }

    /// Makes sure that `hits` of the key at `place` can be counted.
    pub(in crate::store) fn make_room_for(
        &mut self,
        place: u32,
        hits: u64,
        classes: &Classes,
    ) -> Result<(), HitError> {
        if self.entry_at(Some(place)).is_some_and(|entry| entry.has_room(hits)) {
            return Ok(());
        }
        self.change(place, classes, |entry, settings, now| entry.make_room(hits, settings, now))
    }
}
