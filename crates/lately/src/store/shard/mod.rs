//! One part of the store's keys, behind one lock: a table of indices into a slab of slots.

mod hits;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicPtr;
use std::sync::atomic::Ordering::Relaxed;

use std::hash::BuildHasher;

use foldhash::quality::SeedableRandomState;

use super::context::Context;
use super::generations::Generations;
use super::index::Index;
use super::peek::{Chunks, Tables};
use super::slab::{self, Slab, locate};
use super::slot::{LongKeys, Slot};
use crate::allocation::allocated;
use crate::class::{ClassId, Classes};
use crate::delta::{Delta, Forgotten, Generation, Sequence};
use crate::entry::Entry;
use crate::settings::Settings;
use crate::time::Timestamp;

/// What a key costs beside its name, if that is long, and its hits: its part of a chunk of slots, four
/// bytes of the index at the least load it has, and its place among those free again.
const SLOT_BYTES: usize = allocated(slab::CHUNK * size_of::<Option<Slot>>()).div_ceil(slab::CHUNK)
    + size_of::<u32>() * 2
    + size_of::<u32>();

/// What a long key costs beside its bytes: its place among the others.
const LONG_KEY_BYTES: usize = size_of::<Option<Box<[u8]>>>() + size_of::<u32>();

/// A part of the keys. In this order what a hit changes shares a cache line with the lock before it, and
/// the line after that is only read: it is in the caches of all cores.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Shard {
    /// The latest `now` this shard was given: panes may have been merged by it.
    now: Timestamp,
    sequence: Sequence,
    bytes: usize,
    index: Index,
    /// Slots stay where they are while a key lives, so a scan by place sees each once.
    slots: Slab<Slot>,
    beside: Box<Beside>,
    /// Whether others know where the buckets and chunks are.
    published: bool,
}

/// What few operations need. Without it a shard and its lock are two cache lines.
#[derive(Debug)]
struct Beside {
    hasher: SeedableRandomState,
    /// Where the chunks of the slots are, for looking ahead.
    chunks: Chunks,
    long_keys: LongKeys,
    /// Generations of keys that are not in their first.
    generations: Generations,
    /// Until when a limit on a key is in force; few keys have one.
    limited_until: HashMap<u32, Timestamp>,
}

impl Shard {
    pub(super) fn new(hasher: SeedableRandomState) -> Shard {
        Shard {
            index: Index::default(),
            slots: Slab::default(),
            published: false,
            beside: Box::new(Beside {
                hasher,
                chunks: Arc::new([]),
                long_keys: LongKeys::default(),
                generations: Generations::default(),
                limited_until: HashMap::new(),
            }),
            now: Timestamp::MIN,
            sequence: Sequence::default(),
            bytes: 0,
        }
    }

    /// Brings the clock as this shard knows it up to `now`.
    pub(super) fn advance(&mut self, now: Timestamp) {
        self.now = self.now.max(now);
    }

    pub(super) fn now(&self) -> Timestamp {
        self.now
    }

    pub(super) fn len(&self) -> usize {
        self.index.len()
    }

    /// Bytes the keys of this shard account for.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Places of the slab, used and free.
    pub(super) fn places(&self) -> u32 {
        self.slots.end()
    }

    /// The slot at `place`, when a key lives there.
    pub(super) fn slot_at(&self, place: u32) -> Option<&Slot> {
        self.slots.get(place)
    }

    fn slot_mut(&mut self, place: u32) -> &mut Slot {
        self.slots.get_mut(place).expect("the index names only places in use")
    }

    /// Where the key is, when it is there.
    #[inline]
    pub(super) fn place_of(&self, key: &[u8], hash: u64) -> Option<u32> {
        self.index.find(hash, |place| self.is_at(place, key))
    }

    /// Where the key with this hash most likely is.
    #[inline]
    pub(super) fn guess(&self, hash: u64) -> Option<u32> {
        self.index.guess(hash)
    }

    /// As `place_of`, by a guess that may be wrong.
    pub(super) fn place_near(&mut self, guess: Option<u32>, key: &[u8], hash: u64) -> Option<u32> {
        // The guess may be wrong because the key has yet to move.
        self.move_places();
        guess.filter(|&guess| self.is_at(guess, key)).or_else(|| self.place_of(key, hash))
    }

    #[inline]
    fn is_at(&self, place: u32, key: &[u8]) -> bool {
        self.slots.get(place).is_some_and(|slot| slot.is(key, &self.beside.long_keys))
    }

    /// Has what the slot at `place` points at fetched; false when it points at nothing.
    #[inline]
    pub(super) fn prefetch_heap(&self, place: u32) -> bool {
        self.slots.get(place).is_some_and(|slot| slot.entry.prefetch_heap())
    }

    /// Whether the tables for looking ahead are published.
    #[inline]
    pub(super) fn has_published(&self) -> bool {
        self.published
    }

    /// Tables for looking ahead.
    pub(super) fn tables(&self) -> Tables {
        Tables { buckets: Arc::clone(self.index.buckets()), chunks: Arc::clone(&self.beside.chunks) }
    }

    pub(super) fn tables_are_published(&mut self) {
        self.published = true;
    }

    /// The name of the key at `place`.
    pub(super) fn key_at(&self, place: u32) -> Option<&[u8]> {
        self.slots.get(place).map(|slot| slot.key(&self.beside.long_keys))
    }

    /// The key's slot, when the key has hits within its retention or a limit in force.
    pub(super) fn live(&mut self, key: &[u8], hash: u64, context: &mut Context<'_>) -> Option<&Slot> {
        let place = self.place_of(key, hash)?;
        self.live_at(place, context)
    }

    /// As `live`, of the key at `place`.
    pub(super) fn live_at(&mut self, place: u32, context: &mut Context<'_>) -> Option<&Slot> {
        let place = self.alive(place, context)?;
        let class = self.slot_at(place)?.class;
        let from_ms = context.frame(class, self.now).0.from_ms;
        self.change(place, context.classes, |entry, settings, now| entry.advance(from_ms, settings, now));
        self.slot_at(place)
    }

    /// Changes the hits of the key at `place`, and accounts for the memory that takes or gives.
    fn change<T>(
        &mut self,
        place: u32,
        classes: &Classes,
        change: impl FnOnce(&mut Entry, &Settings, Timestamp) -> T,
    ) -> T {
        let now = self.now;
        let slot = self.slot_mut(place);
        let before = slot.entry.heap_bytes();
        let result = change(&mut slot.entry, classes.settings(slot.class), now);
        let after = slot.entry.heap_bytes();
        self.bytes = self.bytes + after - before;
        result
    }

    fn live_place(&mut self, key: &[u8], hash: u64, context: &mut Context<'_>) -> Option<u32> {
        let place = self.place_of(key, hash)?;
        self.alive(place, context)
    }

    /// The place, when the key there lives. A key that does not is removed.
    fn alive(&mut self, place: u32, context: &mut Context<'_>) -> Option<u32> {
        let slot = self.slots.get(place)?;
        let oldest_ms = context.frame(slot.class, self.now).0.oldest_ms;
        if !slot.entry.expired(oldest_ms) {
            return Some(place);
        }
        if self.is_limited(place) {
            // The key stays for its limit; its hits are gone.
            self.change(place, context.classes, |entry, _, _| *entry = Entry::new());
            return Some(place);
        }
        self.remove(place);
        None
    }

    /// Whether nothing is left of the key at `place`.
    pub(super) fn has_expired(&self, place: u32, classes: &Classes) -> bool {
        self.hits_expired(place, classes) && !self.is_limited(place)
    }

    fn hits_expired(&self, place: u32, classes: &Classes) -> bool {
        self.slot_at(place)
            .is_some_and(|slot| slot.entry.expired(classes.settings(slot.class).retention_edge_ms(self.now)))
    }

    /// Whether a limit on the key at `place` is in force.
    pub(super) fn is_limited(&self, place: u32) -> bool {
        self.beside.limited_until.get(&place).is_some_and(|&until| until > self.now)
    }

    /// The key's slot, a new one when there is none.
    fn slot_for(&mut self, key: &[u8], hash: u64, context: &mut Context<'_>) -> u32 {
        if let Some(place) = self.live_place(key, hash, context) {
            return place;
        }
        self.add_slot(key, hash, context.classes.of(key), context)
    }

    fn add_slot(&mut self, key: &[u8], hash: u64, class: ClassId, context: &Context<'_>) -> u32 {
        if !self.index.has_room() {
            while self.index.is_moving() {
                self.move_places();
            }
            self.index.grow(hash);
            self.rebuild_chunks();
        }
        self.move_places();
        let place = self.slots.insert(Slot::new(key, class, &mut self.beside.long_keys));
        self.point_at_chunk(locate(place).0);
        self.index.insert(hash, place);
        self.beside.generations.set(place, Generation(context.generation.load(Relaxed)));
        self.bytes += self.slot_bytes(place);
        place
    }

    /// Moves some places to the index's new table, if it has one.
    #[inline]
    pub(super) fn move_places(&mut self) {
        if self.index.is_moving() {
            self.move_some_places();
        }
    }

    #[cold]
    fn move_some_places(&mut self) {
        let places = self.index.next_to_move(self.slots.end());
        let moved = places.end;
        for place in places {
            if let Some(slot) = self.slots.get(place) {
                let hash = self.beside.hasher.hash_one(slot.key(&self.beside.long_keys));
                self.index.move_in(hash, place);
            }
        }
        self.index.have_moved(moved, self.slots.end());
    }

    fn rebuild_chunks(&mut self) {
        let most = self.index.capacity().max(self.slots.end() as usize);
        let count = locate(u32::try_from(most).expect("bounded by the index")).0 + 1;
        self.beside.chunks = (0..count).map(|_| AtomicPtr::default()).collect();
        (0..self.slots.chunks().len()).for_each(|chunk| self.point_at_chunk(chunk));
        self.published = false;
    }

    fn point_at_chunk(&self, chunk: usize) {
        let address = self.slots.chunks()[chunk].as_ptr().cast_mut();
        self.beside.chunks[chunk].store(address, Relaxed);
    }

    /// What the key at `place` accounts for.
    fn slot_bytes(&self, place: u32) -> usize {
        let Some(slot) = self.slots.get(place) else { return 0 };
        let long_key = slot.long_place().and_then(|place| self.beside.long_keys.get(place));
        let beside = SLOT_BYTES + self.beside.generations.bytes_at(place);
        beside + long_key.map_or(0, |key| LONG_KEY_BYTES + allocated(key.len())) + slot.entry.heap_bytes()
    }

    pub(super) fn generation_at(&self, place: u32) -> Generation {
        self.beside.generations.get(place)
    }

    /// Keeps the key from being evicted until `until`, or as long as was asked for before.
    pub(super) fn limit_until(&mut self, key: &[u8], hash: u64, until: Timestamp, context: &mut Context<'_>) {
        let place = self.slot_for(key, hash, context);
        let limited = self.beside.limited_until.entry(place).or_insert(until);
        *limited = until.max(*limited);
        let generation = self.generation_at(place);
        self.record(context, || Delta::Limited { key: key.into(), generation, until });
    }

    pub(super) fn limited_until(&self, key: &[u8], hash: u64) -> Option<Timestamp> {
        let place = self.place_of(key, hash)?;
        self.beside.limited_until.get(&place).copied().filter(|&until| until > self.now)
    }

    /// Ends a life of the key older than `generation`; false when the key is in a newer one.
    pub(super) fn enter_generation(
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

    /// Forgets the key at `place`, which lives.
    pub(super) fn forget(&mut self, place: u32, why: Forgotten, context: &mut Context<'_>) {
        let generation = self.generation_at(place);
        let key = self.remove(place);
        // Under the shard's lock: the key cannot come back before the count is up.
        context.generation.fetch_max(generation.0 + 1, Relaxed);
        self.record(context, || Delta::Forget { key, generation, why });
    }

    pub(super) fn forget_key(&mut self, key: &[u8], hash: u64, context: &mut Context<'_>) -> bool {
        let Some(place) = self.live_place(key, hash, context) else { return false };
        self.forget(place, Forgotten::Deleted, context);
        true
    }

    /// Removes the key at `place` without a word: its hits have left the retention. Gives its name.
    pub(super) fn remove(&mut self, place: u32) -> Box<[u8]> {
        self.bytes -= self.slot_bytes(place);
        let slot = self.slots.take(place).expect("a key lives here");
        self.index.remove(self.beside.hasher.hash_one(slot.key(&self.beside.long_keys)), place);
        self.beside.limited_until.remove(&place);
        self.beside.generations.set(place, Generation::default());
        match slot.long_place() {
            Some(place) => self.beside.long_keys.take(place).expect("a long key is kept as long as its slot"),
            None => slot.key(&self.beside.long_keys).into(),
        }
    }

    /// Forgets all keys, and gives their memory back.
    pub(super) fn clear(&mut self) {
        let (now, sequence) = (self.now, self.sequence);
        *self = Shard { now, sequence, ..Shard::new(self.beside.hasher.clone()) };
    }

    /// Tidies the hits of the key at `place`.
    pub(super) fn merge(&mut self, place: u32, classes: &Classes) {
        if self.slot_at(place).is_none() {
            return;
        }
        self.change(place, classes, Entry::merge);
    }

    pub(super) fn merge_key(&mut self, key: &[u8], hash: u64, classes: &Classes) {
        if let Some(place) = self.place_of(key, hash) {
            self.merge(place, classes);
        }
    }

    fn record(&mut self, context: &mut Context<'_>, delta: impl FnOnce() -> Delta) {
        self.sequence.0 += 1;
        self.write_down(context, delta);
    }

    /// Writes down what happened, just now.
    fn write_down(&self, context: &mut Context<'_>, delta: impl FnOnce() -> Delta) {
        if let Some(batch) = context.deltas.as_deref_mut() {
            batch.deltas.push((self.sequence, delta()));
        }
    }

    pub(super) fn check_consistency(&self, classes: &Classes) {
        let mut bytes = 0;
        let mut used = 0;
        for (place, slot) in self.slots.iter() {
            let key = slot.key(&self.beside.long_keys);
            let found = self.place_of(key, self.beside.hasher.hash_one(key));
            assert_eq!(found, Some(place), "the index knows each slot");
            slot.entry.check_consistency(classes.settings(slot.class), self.now);
            bytes += self.slot_bytes(place);
            used += 1;
        }
        assert_eq!(used, self.index.len(), "the index has the slots in use and no others");
        assert_eq!(bytes, self.bytes, "accounted bytes are the sum over the slots");
        let mut limited = self.beside.limited_until.keys().copied();
        assert!(limited.all(|place| self.slot_at(place).is_some()), "a limit outlives its key");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A word of the lock comes first.
    #[test]
    fn what_a_hit_changes_is_on_the_line_of_the_lock() {
        assert!(size_of::<u64>() + std::mem::offset_of!(Shard, index) <= 64);
        assert_eq!(size_of::<u64>() + std::mem::offset_of!(Shard, slots), 64);
    }
}
