//! A part of the store's keys, behind one lock.

mod account;
mod expiry;
mod fast_path;
mod hits;
mod limits;
mod members;
mod restored;
mod unsent;

use std::hash::BuildHasher;
use std::mem;
use std::sync::atomic::Ordering::Relaxed;

use foldhash::quality::SeedableRandomState;

use super::context::Context;
use super::ids::{IdMemory, Ids, Known};
use super::key::check_key;
use super::key_state::{Extras, KeyState};
use super::long_keys::LongKeys;
use super::mark::Before;
use super::places::Places;
use super::prefetch::Tables;
use super::slot::Slot;
use super::sources::Sources;
use super::table::Table;
use crate::class::{ClassId, Classes};
use crate::delta::{Delta, Forgotten, Generation, Sequence};
use crate::entry::{Entry, Fetched};
use crate::frame::Frame;
use crate::settings::Settings;
use crate::time::Timestamp;

/// See [`Shard::prefetch_ahead`].
const PLACES_AHEAD: u32 = 8;

/// A part of the keys. The order of fields matters: the fields that a hit writes share a cache line with the
/// lock, which is before them. The next line is only read, so all cores can have it in their caches.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Shard {
    /// The latest `now`. Panes may have been merged as of it.
    now: Timestamp,
    /// The number of changes.
    number: u64,
    bytes: usize,
    slots: Table<Slot>,
    side: Box<SideTables>,
    /// Whether the tables for prefetching are published.
    published: bool,
    /// Whether all keys so far were of the first generation. If so, a hit need not look it up.
    is_first_generation: bool,
    /// New keys since the last step of the sweep.
    unswept_keys: u8,
    /// The index of this shard in the store.
    part: u16,
}

/// The fields that few operations need. They are boxed so that a shard and its lock fit in two cache lines.
#[derive(Debug)]
struct SideTables {
    hasher: SeedableRandomState,
    long_keys: LongKeys,
    places: Places,
    ids: Ids,
    /// The number of owners that ids got.
    owners: u32,
    /// What the side tables add to the shard's bytes.
    bytes: usize,
    /// The place where the sweep for expired keys continues.
    swept: u32,
    /// Used in one of the shards only.
    sources: Sources,
}

impl Shard {
    pub(super) fn new(part: u16, hasher: SeedableRandomState) -> Shard {
        Shard {
            slots: Table::default(),
            published: false,
            is_first_generation: true,
            unswept_keys: 0,
            part,
            side: Box::new(SideTables {
                hasher,
                long_keys: LongKeys::default(),
                places: Places::default(),
                ids: Ids::default(),
                owners: 0,
                bytes: 0,
                swept: 0,
                sources: Sources::default(),
            }),
            now: Timestamp::MIN,
            number: 0,
            bytes: 0,
        }
    }

    /// Advances the time to `now`.
    pub(super) fn advance(&mut self, now: Timestamp) {
        self.now = self.now.max(now);
    }

    /// Sets the time, possibly to an earlier one. Replay uses it: only the changes of one key come in order.
    pub(super) fn set_now(&mut self, now: Timestamp) {
        self.now = now;
    }

    pub(super) fn now(&self) -> Timestamp {
        self.now
    }

    /// The index of this shard in the store.
    #[inline]
    pub(super) fn index(&self) -> usize {
        self.part.into()
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    /// The bytes that the keys of this shard account for.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The number of slots, used and free.
    pub(super) fn places(&self) -> u32 {
        self.slots.places()
    }

    /// The slot at `place`, if it holds a key.
    pub(super) fn slot_at(&self, place: u32) -> Option<&Slot> {
        self.slots.get(place)
    }

    /// The hits of the key at a place, if there is a key.
    pub(super) fn entry_at(&self, place: Option<u32>) -> Option<&Entry> {
        place.and_then(|place| self.slot_at(place)).map(|slot| slot.state.hits())
    }

    /// The class of a key. The key is at `place`, or does not exist.
    pub(super) fn class_of(&self, key: &[u8], place: Option<u32>, context: &Context<'_>) -> ClassId {
        let slot = place.and_then(|place| self.slot_at(place));
        slot.map_or_else(|| context.classes.of(key), |slot| slot.class)
    }

    /// The slot at `place`, if it holds this key.
    #[inline(always)]
    fn slot_of(&mut self, place: u32, key: &[u8]) -> Option<&mut Slot> {
        let slot = self.slots.get_mut(place)?;
        // With `filter`, the comparison would be a call.
        if slot.is(key, &self.side.long_keys) { Some(slot) } else { None }
    }

    fn slot_mut(&mut self, place: u32) -> &mut Slot {
        self.slots.get_mut(place).expect("a key lives here")
    }

    /// The place of the key, if it exists.
    #[inline]
    pub(super) fn place_of(&mut self, key: &[u8], hash: u64) -> Option<u32> {
        let SideTables { long_keys, places, .. } = &mut *self.side;
        let moved = |from, to| places.moved(from, to);
        self.slots.find(hash, |slot| slot.is(key, long_keys), moved)
    }

    /// The place of the key, if it exists. Tries `guess` first.
    pub(super) fn place_near(&mut self, guess: Option<u32>, key: &[u8], hash: u64) -> Option<u32> {
        guess.filter(|&guess| self.is_at(guess, key)).or_else(|| self.place_of(key, hash))
    }

    #[inline]
    pub(super) fn is_at(&self, place: u32, key: &[u8]) -> bool {
        self.slots.get(place).is_some_and(|slot| slot.is(key, &self.side.long_keys))
    }

    /// Prefetches the heap memory of the slot at `place`.
    #[inline]
    pub(super) fn prefetch_heap(&self, place: u32) -> Fetched {
        self.slots.get(place).map_or(Fetched::Nothing, Slot::prefetch)
    }

    /// Prefetches the deeper heap memory of the slot: at level 1 what the first pointer leads to, and so on.
    #[inline]
    pub(super) fn prefetch_behind(&self, level: usize, place: u32) -> Fetched {
        self.slots.get(place).map_or(Fetched::Nothing, |slot| slot.state.prefetch_behind(level, self.now))
    }

    /// Prefetches the heap memory of keys a few places ahead, for a caller that visits place after place.
    #[inline]
    pub(super) fn prefetch_ahead(&self, place: u32) {
        self.prefetch_heap(place.saturating_add(PLACES_AHEAD));
        self.prefetch_behind(1, place.saturating_add(PLACES_AHEAD / 2));
    }

    /// Whether the tables for prefetching are published.
    #[inline]
    pub(super) fn has_published(&self) -> bool {
        self.published
    }

    /// The tables for prefetching.
    pub(super) fn tables(&self) -> Tables {
        Tables::new(&self.slots, self.side.places.unsent().map_or(0, super::unsent::Unsent::marks_at))
    }

    pub(super) fn tables_are_published(&mut self) {
        self.published = true;
    }

    /// The key at `place`.
    pub(super) fn key_at(&self, place: u32) -> Option<&[u8]> {
        self.slots.get(place).map(|slot| slot.key(&self.side.long_keys))
    }

    /// The slot of the key, if the key lives. It lives until a pane after its newest hit leaves the
    /// retention, or while a limit is in force.
    pub(super) fn live(&mut self, key: &[u8], hash: u64, context: &mut Context<'_>) -> Option<&Slot> {
        let place = self.place_of(key, hash)?;
        self.live_at(place, context)
    }

    /// The slot at `place`, if its key lives.
    pub(super) fn live_at(&mut self, place: u32, context: &mut Context<'_>) -> Option<&Slot> {
        let place = self.alive(place, context)?;
        let slot = self.slot_at(place)?;
        let &Frame { from_ms, .. } = context.frame(slot.class, self.now).0;
        self.change(place, context.classes, |entry, settings, now| entry.advance(from_ms, settings, now));
        self.slot_at(place)
    }

    /// From now on, the key at `place` keeps the exact times of its newest hits.
    pub(super) fn keep_moments(&mut self, place: u32, classes: &Classes) {
        if self.slot_mut(place).state.hits().keeps_moments() {
            return;
        }
        self.change(place, classes, Entry::keep_moments);
    }

    /// Changes the hits of the key at `place` and updates the account.
    fn change<T>(
        &mut self,
        place: u32,
        classes: &Classes,
        change: impl FnOnce(&mut Entry, &Settings, Timestamp) -> T,
    ) -> T {
        self.change_slot(place, classes, |slot, settings, now| change(slot.state.hits_mut(), settings, now))
    }

    /// Changes the whole state of the key at `place` and updates the account.
    fn change_state<T>(
        &mut self,
        place: u32,
        classes: &Classes,
        change: impl FnOnce(&mut KeyState, &Settings, Timestamp) -> T,
    ) -> T {
        self.change_slot(place, classes, |slot, settings, now| {
            slot.change(|state| change(state, settings, now))
        })
    }

    fn change_slot<T>(
        &mut self,
        place: u32,
        classes: &Classes,
        change: impl FnOnce(&mut Slot, &Settings, Timestamp) -> T,
    ) -> T {
        let now = self.now;
        let slot = self.slot_mut(place);
        let before = slot.state.heap_bytes();
        let result = change(slot, classes.settings(slot.class), now);
        slot.note_hits();
        let after = slot.state.heap_bytes();
        self.bytes = self.bytes + after - before;
        result
    }

    fn live_place(&mut self, key: &[u8], hash: u64, context: &mut Context<'_>) -> Option<u32> {
        let place = self.place_of(key, hash)?;
        self.alive(place, context)
    }

    /// Returns the place if its key lives. An expired key is removed.
    pub(super) fn alive(&mut self, place: u32, context: &mut Context<'_>) -> Option<u32> {
        let slot = self.slots.get(place)?;
        let kept_ms = context.frame(slot.class, self.now).0.kept_ms;
        if !slot.state.hits().expired(kept_ms) {
            if slot.state.is_to_fit_again(self.now) {
                self.change_state(place, context.classes, KeyState::fit_again);
            }
            return Some(place);
        }
        if slot.outlives_hits(self.now, kept_ms) {
            // The hits have expired, but the key stays for its limits.
            self.change(place, context.classes, |entry, _, _| *entry = Entry::new());
            return Some(place);
        }
        self.expire(place, context);
        None
    }

    /// The place of the key, which is created if it does not exist.
    pub(super) fn slot_for(&mut self, key: &[u8], hash: u64, context: &mut Context<'_>) -> u32 {
        if let Some(place) = self.live_place(key, hash, context) {
            return place;
        }
        self.add_slot(key, hash, context.classes.of(key), context)
    }

    fn add_slot(&mut self, key: &[u8], hash: u64, class: ClassId, context: &Context<'_>) -> u32 {
        self.sweep_for_new(context);
        if !self.slots.has_room() {
            self.move_all();
            self.resize(hash);
        }
        self.move_page();
        let slot = Slot::new(key, hash, class, &mut self.side.long_keys);
        let is_long = slot.location().is_some();
        let place = self.slots.insert(hash, slot);
        self.bytes += self.slot_bytes(place);
        let generation = Generation(context.generation.load(Relaxed));
        // Most new keys leave the side tables as they are, and need not load them.
        if is_long || !self.is_first_generation || generation != Generation::default() {
            self.set_generation(place, generation);
            self.account_side_tables();
        }
        place
    }

    /// Changes the ids, and updates the accounts.
    fn change_ids<T>(&mut self, memory: &IdMemory, change: impl FnOnce(&mut Ids, Known) -> T) -> T {
        let ids = &mut self.side.ids;
        let before = ids.account();
        let result = change(ids, memory.known(self.now));
        let (after, forgotten) = (ids.account(), ids.take_forgotten());
        memory.change(before, after, forgotten);
        if before.1 != after.1 {
            self.account_side_tables();
        }
        result
    }

    /// Drops ids that are over from the next buckets in turn.
    pub(super) fn visit_ids(&mut self, memory: &IdMemory, buckets: usize) {
        if self.side.ids.len() > 0 {
            self.change_ids(memory, |ids, known| ids.visit(buckets, known));
        }
    }

    /// Drops the ids of keys that were forgotten or replaced. Returns how many ids there were before. A change that is not committed
    /// yet, and forgot a key, cannot bring its ids back any more: so only for want of memory.
    pub(super) fn drop_dead_ids(&mut self, memory: &IdMemory) -> usize {
        let before = self.side.ids.len();
        if before > 0 {
            let live = self.side.places.owners();
            self.change_ids(memory, |ids, _| ids.keep_owners(live));
        }
        before
    }

    /// Drops all ids that are over. Returns how many there were before.
    pub(super) fn prune_ids(&mut self, memory: &IdMemory) -> usize {
        if self.side.ids.len() == 0 {
            return 0;
        }
        self.change_ids(memory, Ids::prune_all)
    }

    pub(super) fn ids(&self) -> &Ids {
        &self.side.ids
    }

    /// Call [`Shard::account_side_tables`] afterwards.
    fn set_generation(&mut self, place: u32, generation: Generation) {
        self.is_first_generation &= generation == Generation::default();
        self.side.places.set_generation(place, generation);
    }

    /// Starts to resize the table, to a little more room than its keys need. `hash` is that of any key.
    fn resize(&mut self, hash: u64) {
        self.slots.resize(hash);
        self.side.places.resize(self.slots.places(), self.slots.is_moving());
        self.account_side_tables();
        self.published = false;
    }

    /// Reserves room for this number of keys in an empty shard.
    pub(super) fn reserve(&mut self, keys: usize) {
        if self.slots.len() == 0 && !self.slots.is_moving() {
            self.slots = Table::with_room(keys);
            self.side.places.clear(self.slots.places());
            self.account_side_tables();
            self.published = false;
        }
    }

    /// Moves one page of slots to their new places, if a resize is under way.
    pub(super) fn move_page(&mut self) {
        if self.slots.is_moving() {
            let SideTables { hasher, long_keys, places, .. } = &mut *self.side;
            let hash_of = |slot: &Slot| hasher.hash_one(slot.key(long_keys));
            self.slots.move_page(hash_of, |from, to| places.moved(from, to));
            if !self.slots.is_moving() {
                places.end_move();
            }
            self.account_side_tables();
        }
    }

    /// Finishes a resize, for a caller that visits place after place.
    pub(super) fn move_all(&mut self) {
        while self.slots.is_moving() {
            self.move_page();
        }
    }

    /// Frees memory after many keys were removed.
    pub(super) fn shrink(&mut self) {
        if self.slots.is_sparse() && !self.slots.is_moving() {
            self.resize(0);
        }
    }

    /// Visits the live keys whose hash has a low half of at least `from`, in about `count` slots. Returns
    /// where to continue, if there are more.
    pub(super) fn walk(
        &mut self,
        from: u32,
        count: usize,
        classes: &Classes,
        mut visit: impl FnMut(&[u8]),
    ) -> Option<u32> {
        self.move_all();
        let hash_of = |slot: &Slot| self.side.hasher.hash_one(slot.key(&self.side.long_keys));
        self.slots.walk(from, count, hash_of, |_, slot| {
            if !self.is_nothing_since(slot, classes.settings(slot.class).retention_edge_ms(self.now)) {
                visit(slot.key(&self.side.long_keys));
            }
        })
    }

    #[inline]
    pub(super) fn generation_at(&self, place: u32) -> Generation {
        if self.is_first_generation { Generation::default() } else { self.side.places.generation(place) }
    }

    /// Deletes the key at `place`, which lives.
    pub(super) fn forget(&mut self, place: u32, why: Forgotten, context: &mut Context<'_>) {
        let generation = self.generation_at(place);
        let (key, life) = self.take(place);
        self.end_generation((&key, generation), life, why, context);
    }

    /// Records that a generation of a key has ended.
    fn end_generation(
        &mut self,
        (key, generation): (&[u8], Generation),
        life: (Entry, Extras),
        why: Forgotten,
        context: &mut Context<'_>,
    ) {
        if let Some(batch) = context.deltas.as_deref_mut().filter(|_| why == Forgotten::Deleted) {
            batch.deleted.push(Some(life));
        }
        // Under the shard's lock: the key cannot come back before the generation is raised.
        context.generation.fetch_max(generation.0 + 1, Relaxed);
        self.record_change(context, |_| Delta::Forget { key, generation, why });
    }

    /// Deletes a key. Returns whether it lived. The deletion of an expired or absent key is recorded, too: a
    /// journal may still have its hits, and a longer retention would bring them back.
    pub(super) fn forget_key(&mut self, key: &[u8], hash: u64, context: &mut Context<'_>) -> bool {
        let Some(place) = self.place_of(key, hash) else {
            self.forget_absent(key, context);
            return false;
        };
        let oldest_ms = context.frame(self.slot_mut(place).class, self.now).0.oldest_ms;
        let is_seen = self.slot_at(place).is_some_and(|slot| !self.is_nothing_since(slot, oldest_ms));
        self.forget(place, Forgotten::Deleted, context);
        is_seen
    }

    /// Records the deletion of an absent key, if changes are recorded.
    fn forget_absent(&mut self, key: &[u8], context: &mut Context<'_>) {
        let Some(batch) = context.deltas.as_deref_mut().filter(|_| check_key(key).is_ok()) else { return };
        batch.deleted.push(None);
        // No generation of the key was later: a new key would start in this one.
        let generation = Generation(context.generation.fetch_add(1, Relaxed));
        self.record_change(context, |_| Delta::Forget { key, generation, why: Forgotten::Deleted });
    }

    /// Removes the key at `place` without a record: it has expired.
    pub(super) fn remove(&mut self, place: u32) {
        self.take(place);
    }

    /// Removes the key at `place`. Returns its name and its state.
    fn take(&mut self, place: u32) -> (Box<[u8]>, (Entry, Extras)) {
        self.bytes -= self.slot_bytes(place);
        let (owner, uniques) = (self.side.places.owner(place), self.side.places.take_uniques(place));
        let slot = self.slots.take(place).expect("a key lives here");
        if self.slots.len() == 0 {
            self.side.places.clear(self.slots.places());
        } else {
            self.side.places.free(place);
        }
        let key = match slot.location() {
            Some(location) => self.side.long_keys.take(location),
            None => slot.key(&self.side.long_keys).into(),
        };
        self.compact_long_keys();
        self.account_side_tables();
        let (entry, extras) = slot.into_parts();
        (key, (entry, Extras { owner, uniques, ..extras }))
    }

    /// Deletes all keys and frees their memory.
    pub(super) fn clear(&mut self, memory: &IdMemory) {
        let (now, number, owners) = (self.now, self.number, self.side.owners);
        memory.change(self.side.ids.account(), (0, 0), 0);
        let (sources, mut places) = (mem::take(&mut self.side.sources), mem::take(&mut self.side.places));
        *self = Shard { now, number, ..Shard::new(self.part, self.side.hasher.clone()) };
        places.clear(self.slots.places());
        (self.side.sources, self.side.places, self.side.owners) = (sources, places, owners);
        self.account_side_tables();
    }

    /// Merges the old panes of the key at `place`, and drops what has expired.
    pub(super) fn merge(&mut self, place: u32, classes: &Classes) {
        if self.slot_at(place).is_none() {
            return;
        }
        self.change_slot(place, classes, Slot::tidy);
        self.tidy_members(place, classes);
    }

    pub(super) fn merge_key(&mut self, key: &[u8], hash: u64, classes: &Classes) {
        if let Some(place) = self.place_of(key, hash) {
            self.merge(place, classes);
        }
    }

    pub(super) fn side_places(&self) -> &Places {
        &self.side.places
    }

    /// Tables for prefetching have the marks of unsent keys, too.
    pub(super) fn publish_again(&mut self) {
        self.published = false;
    }

    #[inline]
    pub(super) fn places_mut(&mut self) -> &mut Places {
        &mut self.side.places
    }

    pub(super) fn sources(&self) -> &Sources {
        &self.side.sources
    }

    pub(super) fn set_position(
        &mut self,
        (source, position): (&[u8], u64),
        most_bytes: usize,
        context: &mut Context<'_>,
    ) -> Before {
        let before = self.side.sources.set(source, position, most_bytes);
        self.account_side_tables();
        self.record_change(context, |_| Delta::Position { source, position });
        before
    }

    pub(super) fn take_position_back(&mut self, source: &[u8], before: Before) {
        self.side.sources.roll_back(source, before);
        self.account_side_tables();
    }

    /// Numbers have no gaps: a change that is not recorded gets none.
    #[inline(always)]
    fn record_change<'d>(&mut self, context: &mut Context<'_>, delta: impl FnOnce(&Shard) -> Delta<'d>) {
        if let Some(batch) = context.deltas.as_deref_mut() {
            batch.push(self.next_sequence(), delta(self));
            self.number += 1;
        }
    }

    fn next_sequence(&self) -> Sequence {
        Sequence { part: self.part, number: self.number + 1 }
    }

    /// The number of the last change.
    pub(super) fn sequence(&self) -> Sequence {
        Sequence { part: self.part, number: self.number }
    }

    /// Continues the numbers of changes after `number`, if it is higher.
    pub(super) fn start_after(&mut self, number: u64) {
        self.number = self.number.max(number);
    }

    pub(super) fn check_consistency(&mut self, classes: &Classes) {
        self.move_all();
        let mut bytes = self.side.held_bytes();
        let (mut used, mut long_bytes) = (0, 0);
        for (place, slot) in self.slots.iter() {
            let key = slot.key(&self.side.long_keys);
            let is_it = |other: &Slot| other.is(key, &self.side.long_keys);
            let found = self.slots.find_moved(self.side.hasher.hash_one(key), is_it);
            assert_eq!(found, Some(place), "the table finds each slot");
            slot.state.hits().check_consistency(classes.settings(slot.class), self.now);
            bytes += self.slot_bytes(place);
            long_bytes += slot.location().map_or(0, LongKeys::live_bytes);
            used += 1;
        }
        self.side.long_keys.check_consistency(long_bytes);
        assert_eq!(used, self.slots.len(), "the table counts the slots in use");
        assert_eq!(bytes, self.bytes, "accounted bytes are the sum over the slots, and what is beside them");
        assert!(self.side.places.has_moved(), "what moved was left behind");
        self.check_unsent();
        self.side.places.check_uniques();
        self.side.ids.check_consistency();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lock itself takes the first word.
    #[test]
    fn the_fields_of_a_hit_share_the_cache_line_of_the_lock() {
        assert!(size_of::<u64>() + mem::offset_of!(Shard, slots) + Table::<Slot>::SEARCHED_BYTES <= 64);
    }
}
