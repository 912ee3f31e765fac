//! How a shard takes keys from a journal, a dump or another node, and how it is written as bytes.

use std::mem;
use std::panic::{UnwindSafe, catch_unwind};
use std::sync::atomic::Ordering::Relaxed;

use super::super::context::Context;
use super::super::id_owner::Owner;
use super::super::ids::{IdMemory, read_saved};
use super::super::key_state::Extras;
use super::super::rollback::{Owed, Rollback, Taken};
use super::super::saved_key::{Content, Mark, SavedKey};
use super::Shard;
use crate::class::Classes;
use crate::delta::{CountedId, Delta, Forgotten, Generation, LimitState};
use crate::entry::Entry;
use crate::error::Malformed;
use crate::gcra::Arrival;
use crate::settings::Settings;
use crate::time::{Span, Timestamp};
use crate::uniques::Uniques;

/// Decodes the hits of a key. A file may come from a version with a bug, and a panic on its data must not end
/// the start of the server.
fn read_safely(read: impl FnOnce() -> Result<Entry, Malformed> + UnwindSafe) -> Result<Entry, Malformed> {
    catch_unwind(read).unwrap_or(Err(Malformed::Bug))
}

impl Shard {
    /// Replays hits. They were checked when they were counted.
    pub(in crate::store) fn put_back(
        &mut self,
        (key, hash): (&[u8], u64),
        at: Timestamp,
        hits: u64,
        context: &mut Context<'_>,
    ) {
        let place = self.slot_for(key, hash, context);
        self.change(place, context.classes, |entry, settings, now| entry.add_again(at, hits, settings, now));
    }

    /// Restores a key and its hits, and replaces the existing key. Returns its place, or `None` if it has
    /// expired.
    pub(in crate::store) fn restore(
        &mut self,
        (saved, hash): (&SavedKey<'_>, u64),
        context: &mut Context<'_>,
    ) -> Result<Option<u32>, Malformed> {
        let (class, now) = (context.classes.of(saved.key), self.now);
        let settings = context.classes.settings(class);
        let mut entry = read_safely(|| Entry::read(saved.entry, settings, now))?;
        let LimitState { limited_until, past, arrival, guard, denied, ids, members } = saved.limits;
        let ids = read_saved(ids).ok_or(Malformed::Entry)?;
        let members = match members {
            [] => None,
            members => {
                let saved = Uniques::read(members).ok_or(Malformed::Entry)?;
                Some(Box::new(saved.fit(settings, now)))
            }
        };
        let mut denied = if denied.is_empty() {
            Entry::new()
        } else {
            read_safely(|| Entry::read_panes(denied, settings, now))?
        };
        if context.is_clock_repaired {
            entry.end_by(now, false, settings);
            denied.end_by(now, true, settings);
        }
        let known = self.place_of(saved.key, hash);
        let limited_until = limited_until.filter(|&until| until > now);
        let past = past.filter(|past| past.forgotten_at > now);
        let guard = guard.in_force(now);
        let arrival = if arrival.is_after(now) { arrival } else { Arrival::default() };
        let kept_ms = context.frame(class, now).0.kept_ms;
        let has_denied = !denied.expired(kept_ms);
        let has_lockout = limited_until.is_some() || past.is_some();
        let has_limits = has_lockout || arrival != Arrival::default() || has_denied;
        if entry.expired(kept_ms) && !has_limits {
            known.into_iter().for_each(|place| self.remove(place));
            return Ok(None);
        }
        let place = match known {
            Some(place) => {
                // The slot and the name stay: a replaced key takes no more memory than before.
                self.change_state(place, context.classes, |state, _, _| mem::take(state));
                self.set_generation(place, Generation(context.generation.load(Relaxed)));
                self.side.places.set_owner(place, Owner::NONE);
                _ = self.side.places.take_uniques(place);
                self.account_side_tables();
                place
            }
            None => self.add_slot(saved.key, hash, class, context),
        };
        self.change(place, context.classes, |old, _, _| *old = entry);
        self.restore_ids(place, &ids, settings, context);
        self.give_members(place, members.filter(|_| settings.unique()), context);
        if has_limits || !guard.is_none() {
            let denied = if has_denied { denied } else { Entry::new() };
            let extras = Extras { limited_until, past, arrival, guard, denied, ..Extras::default() };
            self.change_state(place, context.classes, |state, settings, now| {
                state.give(extras, settings, now);
            });
        }
        Ok(Some(place))
    }

    /// Replays the id of counted hits. It changes nothing if the key does not exist. Ids of another salt that the key has by now
    /// stay: they end with the change that ended them, unless the disk refused it.
    pub(in crate::store) fn put_id_back(
        &mut self,
        (key, hash): (&[u8], u64),
        id: CountedId,
        context: &mut Context<'_>,
    ) {
        let Some(place) = self.live_place(key, hash, context) else { return };
        let settings = context.classes.settings(self.class_of(key, Some(place), context));
        let before = self.side.places.owner(place);
        self.restore_ids(place, &[id], settings, context);
        let owner = self.side.places.owner(place);
        if before != Owner::NONE {
            self.change_ids(context.ids, |ids, _| ids.join(owner, before));
        }
    }

    /// The owner of the ids of the key at `place` that have this salt. It may be one that was joined, or a new one.
    fn owner_with(&mut self, place: u32, salt: u64) -> Owner {
        let owner = self.side.places.owner(place);
        let mut joined = self.side.ids.joined_to(owner);
        let known = if owner.salt == salt { Some(owner) } else { joined.find(|other| other.salt == salt) };
        drop(joined);
        known.unwrap_or_else(|| self.new_owner(salt))
    }

    /// Adds ids to the key at `place`, whose salt becomes that of the first.
    fn restore_ids(&mut self, place: u32, ids: &[CountedId], settings: &Settings, context: &Context<'_>) {
        let Some(&CountedId { salt, .. }) = ids.first() else { return };
        let first = self.owner_with(place, salt);
        self.set_owner(place, first);
        for ids in ids.chunk_by(|one, next| one.salt == next.salt) {
            let owner = self.owner_with(place, ids[0].salt);
            self.change_ids(context.ids, |all, _| all.join(first, owner));
            self.add_ids(owner, ids, settings, context);
        }
    }

    fn add_ids(&mut self, owner: Owner, ids: &[CountedId], settings: &Settings, context: &Context<'_>) {
        let now = self.now;
        self.change_ids(context.ids, |all, known| {
            for &(mut id) in ids {
                if context.is_clock_repaired {
                    // The hits count as of now, and their ids are known for as long as before.
                    let ahead = Span::from_millis(id.at.as_millis() - now.as_millis());
                    id.at = id.at.min(now);
                    id.until = ahead.map_or(id.until, |ahead| id.until.saturating_sub(ahead));
                    if let Some(dedupe) = settings.dedupe() {
                        id.until = id.until.min(now.saturating_add(dedupe));
                    }
                }
                if id.until >= now {
                    all.insert(owner, id, known);
                }
            }
        });
    }

    /// Restores a key from elsewhere. It starts a generation, and the change is recorded. False if the key
    /// has expired.
    pub(in crate::store) fn bring(
        &mut self,
        saved: &SavedKey<'_>,
        hash: u64,
        context: &mut Context<'_>,
    ) -> Result<bool, Malformed> {
        if let Some(place) = self.live_place(saved.key, hash, context) {
            self.end_life(saved.key, place, context);
        }
        let restored = self.restore((saved, hash), context);
        if restored.is_err() {
            self.place_of(saved.key, hash).into_iter().for_each(|place| self.remove(place));
        }
        let place = restored?;
        if let Some(place) = place {
            self.record_change(context, |shard| {
                let (generation, &SavedKey { key, limits, entry, .. }) = (shard.generation_at(place), saved);
                Delta::Restored { key, generation, limits, entry }
            });
        }
        Ok(place.is_some())
    }

    /// Ends the generation of the live key at `place`, but keeps its slot for the new generation.
    fn end_life(&mut self, key: &[u8], place: u32, context: &mut Context<'_>) {
        let generation = self.generation_at(place);
        let life = self.change_state(place, context.classes, |state, _, _| mem::take(state));
        let (entry, extras) = life.into_parts();
        let owner = self.side.places.owner(place);
        self.side.places.set_owner(place, Owner::NONE);
        let uniques = self.side.places.take_uniques(place);
        self.account_side_tables();
        self.end_generation(
            (key, generation),
            (entry, Extras { owner, uniques, ..extras }),
            Forgotten::Deleted,
            context,
        );
    }

    /// Appends the live keys and their state to `out`.
    pub(in crate::store) fn write(
        &mut self,
        classes: &Classes,
        memory: &IdMemory,
        out: &mut Vec<u8>,
    ) -> Content {
        self.move_all();
        let (mut content, mut entry, mut denied) = (Content::default(), Vec::new(), Vec::new());
        let (all_ids, mut ids) = (self.side.ids.by_owner(memory.known(self.now)), Vec::new());
        let mut members = Vec::new();
        for (place, slot) in self.slots.iter() {
            self.prefetch_ahead(place);
            if self.has_expired(place, classes) {
                continue;
            }
            entry.clear();
            let settings = classes.settings(slot.class);
            slot.state.hits().write(settings, &mut entry);
            denied.clear();
            if let Some(hits) = slot.state.denied(settings, self.now) {
                hits.write_panes(settings, &mut denied);
            }
            ids.clear();
            all_ids.write(self.side.places.owner(place), &mut ids);
            members.clear();
            if let Some(uniques) = self.side.places.uniques(place) {
                uniques.write(settings, &mut members);
            }
            let (limited_until, arrival) = (slot.state.limited_until(), slot.arrival());
            let past = slot.state.past_lockout().filter(|past| past.forgotten_at > self.now);
            let guard = slot.state.guard().in_force(self.now);
            let saved = SavedKey {
                key: slot.key(&self.side.long_keys),
                generation: self.generation_at(place),
                limits: LimitState {
                    limited_until,
                    past,
                    arrival,
                    guard,
                    denied: &denied,
                    ids: &ids,
                    members: &members,
                },
                entry: &entry,
            };
            saved.write(out);
            content.add(slot.state.hits().total());
        }
        for (source, position) in self.sources().in_order() {
            Mark { source, position }.write(out);
            content.add_source(position);
        }
        content
    }

    /// Rolls back a change. `taken` has what the changes of the batch took out of the shard.
    pub(in crate::store) fn roll_back(
        &mut self,
        delta: &Delta<'_>,
        hash: u64,
        (taken, rollback): (&mut Taken, &mut Rollback),
        context: &mut Context<'_>,
    ) {
        match *delta {
            Delta::Hits { key, generation, at, hits } => {
                let owed = Owed { at, hits, is_denied: false };
                self.subtract_from_life((key, hash), generation, owed, rollback, context);
            }
            Delta::Denied { key, generation, at, hits } => {
                let owed = Owed { at, hits, is_denied: true };
                self.subtract_from_life((key, hash), generation, owed, rollback, context);
            }
            Delta::GivenBack { key, generation, .. } | Delta::TakenBack { key, generation, .. } => {
                let Some((entry, extras)) = taken.given_back.pop() else { return };
                // If its other hits have expired meanwhile, the key may be gone with its ids and members, or in another
                // generation.
                let place = self.slot_for(key, hash, context);
                self.bring_ids_back(place, extras.owner, rollback, context);
                self.give_members(place, extras.uniques, context);
                self.change(place, context.classes, |hits, settings, now| hits.absorb(entry, settings, now));
                let current = self.generation_at(place);
                let owed = if current == generation {
                    rollback.take_owed(key, generation)
                } else if current < generation || rollback.is_revived(key, generation) {
                    rollback.revive(key, generation, current)
                } else {
                    // Another batch has ended the generation, or the key has expired. What is owed is subtracted when that batch
                    // is rolled back.
                    rollback.mix();
                    Vec::new()
                };
                self.settle_debts((key, hash), generation, owed, rollback, context);
            }
            Delta::Forget { key, generation, .. } => {
                let Some((entry, mut extras)) = taken.deleted.pop().flatten() else { return };
                let place = self.slot_for(key, hash, context);
                self.bring_ids_back(place, extras.owner, rollback, context);
                self.give_members(place, extras.uniques.take(), context);
                self.change_state(place, context.classes, |state, settings, now| {
                    state.hits_mut().absorb(entry, settings, now);
                    state.give(extras, settings, now);
                });
                let owed = rollback.revive(key, generation, self.generation_at(place));
                self.settle_debts((key, hash), generation, owed, rollback, context);
            }
            Delta::Id { id, .. } => self.change_ids(context.ids, |ids, _| ids.remove(id)),
            Delta::Restored { key, .. } => {
                if let Some(place) = self.place_of(key, hash) {
                    self.remove(place);
                }
            }
            // A key may stay limited or guarded for too long: that allows too little, not too much. A flush
            // is committed before it is applied. A member stays: a hit that is kept may have the same one. What another
            // node has deleted is removed again.
            Delta::Member { .. }
            | Delta::MembersDropped { .. }
            | Delta::Limited { .. }
            | Delta::Arrival { .. }
            | Delta::Guarded { .. }
            | Delta::Flush { .. }
            | Delta::Position { .. }
            | Delta::Void => {}
        }
    }

    /// Makes the ids of an owner known again to the key at `place`. The key may have other ids by now, of hits which are kept: then
    /// it has both.
    fn bring_ids_back(&mut self, place: u32, owner: Owner, rollback: &mut Rollback, context: &Context<'_>) {
        match self.side.places.owner(place) {
            _ if owner == Owner::NONE => {}
            Owner::NONE => self.set_owner(place, owner),
            current if current == owner => {}
            current => {
                self.change_ids(context.ids, |ids, _| ids.join(current, owner));
                rollback.mix();
            }
        }
    }

    /// Subtracts hits from a generation of a key. If it has ended, records the debt.
    fn subtract_from_life(
        &mut self,
        (key, hash): (&[u8], u64),
        generation: Generation,
        owed: Owed,
        rollback: &mut Rollback,
        context: &Context<'_>,
    ) {
        let is_its = |shard: &Shard, place| {
            shard.generation_at(place) == generation || rollback.is_revived(key, generation)
        };
        let missing = match self.place_of(key, hash) {
            Some(place) if is_its(self, place) => self.take_hits_back(place, owed, context),
            _ => owed.hits,
        };
        if missing > 0 {
            rollback.owe(key, generation, Owed { hits: missing, ..owed });
        }
    }

    /// Subtracts hits that were owed from the present generation of a key. What it does not have stays owed.
    fn settle_debts(
        &mut self,
        (key, hash): (&[u8], u64),
        generation: Generation,
        owed: Vec<Owed>,
        rollback: &mut Rollback,
        context: &Context<'_>,
    ) {
        for owed in owed {
            let missing = match self.place_of(key, hash) {
                Some(place) => self.take_hits_back(place, owed, context),
                None => owed.hits,
            };
            if missing > 0 {
                rollback.owe(key, generation, Owed { hits: missing, ..owed });
            }
        }
    }

    /// Subtracts hits. Returns how many the key does not have: another batch may have given them back.
    fn take_hits_back(&mut self, place: u32, owed: Owed, context: &Context<'_>) -> u64 {
        let Owed { at, hits, is_denied } = owed;
        let missing = if is_denied {
            self.subtract_denied(place, at, hits, context.classes)
        } else {
            self.change(place, context.classes, |entry, settings, now| {
                entry.subtract(at, hits, settings, now)
            })
        };
        self.remove_if_empty(place);
        missing
    }

    fn remove_if_empty(&mut self, place: u32) {
        let Some(slot) = self.slot_at(place) else { return };
        if slot.state.hits().is_empty() && !slot.outlives_hits(self.now, 0) {
            self.remove(place);
        }
    }

    /// Moves the key to `generation`. False if it is in a newer one.
    pub(in crate::store) fn enter_generation(
        &mut self,
        key: &[u8],
        hash: u64,
        generation: Generation,
        context: &mut Context<'_>,
    ) -> bool {
        let Some(place) = self.live_place(key, hash, context) else { return true };
        let current = self.generation_at(place);
        if current < generation {
            self.remove(place);
        }
        current <= generation
    }
}
