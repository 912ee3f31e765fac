//! One part of the store's keys, behind one lock: a table of indices into a slab of slots.

use std::collections::HashMap;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use hashbrown::HashTable;

use crate::class::{ClassId, Classes};
use crate::delta::{Delta, DeltaBatch, Forgotten, Generation, Sequence};
use crate::entry::Entry;
use crate::error::HitError;
use crate::settings::Settings;
use crate::time::Timestamp;

/// A key and what is known of it.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) key: Box<[u8]>,
    pub(super) hash: u64,
    pub(super) class: ClassId,
    pub(super) generation: Generation,
    pub(super) entry: Entry,
}

impl Slot {
    fn bytes(&self) -> usize {
        SLOT_BYTES + self.key.len() + self.entry.heap_bytes()
    }
}

/// What a key costs beside its name and its hits: the slot and the table's index and control byte,
/// at the load a table has on average.
const SLOT_BYTES: usize = size_of::<Option<Slot>>() + (size_of::<u32>() + 1) * 4 / 3;

/// A part of the keys.
#[derive(Debug, Default)]
pub(super) struct Shard {
    table: HashTable<u32>,
    /// Slots stay where they are while a key lives, so a scan by place sees each once.
    slots: Vec<Option<Slot>>,
    free: Vec<u32>,
    /// Until when a limit on a key is in force; few keys have one.
    limited_until: HashMap<u32, Timestamp>,
    /// The latest `now` this shard was given: panes may have been merged by it.
    now: Timestamp,
    sequence: Sequence,
    bytes: usize,
}

/// What a change to a shard needs to know beside the key: set up once for a batch.
pub(super) struct Context<'a> {
    pub(super) classes: &'a Classes,
    /// The generation of the next new key; forgetting a key raises it.
    pub(super) generation: &'a AtomicU64,
    /// Where what happened is written down, if anywhere.
    pub(super) deltas: Option<&'a mut DeltaBatch>,
}

impl Shard {
    /// Brings the clock as this shard knows it up to `now`.
    pub(super) fn advance(&mut self, now: Timestamp) {
        self.now = self.now.max(now);
    }

    pub(super) fn now(&self) -> Timestamp {
        self.now
    }

    pub(super) fn len(&self) -> usize {
        self.table.len()
    }

    /// Bytes the keys of this shard account for.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Places of the slab, used and free.
    pub(super) fn places(&self) -> u32 {
        u32::try_from(self.slots.len()).unwrap_or(u32::MAX)
    }

    /// The slot at `place`, when a key lives there.
    pub(super) fn slot_at(&self, place: u32) -> Option<&Slot> {
        self.slots.get(place as usize)?.as_ref()
    }

    fn slot_mut(&mut self, place: u32) -> &mut Slot {
        self.slots[place as usize].as_mut().expect("the table names only places in use")
    }

    fn place_of(&self, key: &[u8], hash: u64) -> Option<u32> {
        let slots = &self.slots;
        self.table
            .find(hash, |&place| slots[place as usize].as_ref().is_some_and(|slot| *slot.key == *key))
            .copied()
    }

    /// The key's slot, when the key has hits within its retention or a limit in force.
    pub(super) fn live(&mut self, key: &[u8], hash: u64, context: &mut Context<'_>) -> Option<&Slot> {
        let place = self.live_place(key, hash, context)?;
        self.change(place, context.classes, Entry::advance);
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
        let before = slot.bytes();
        let result = change(&mut slot.entry, classes.settings(slot.class), now);
        let after = slot.bytes();
        self.bytes = self.bytes + after - before;
        result
    }

    fn live_place(&mut self, key: &[u8], hash: u64, context: &mut Context<'_>) -> Option<u32> {
        let place = self.place_of(key, hash)?;
        if !self.hits_expired(place, context.classes) {
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
        let slot = self.slot_at(place);
        slot.is_some_and(|slot| slot.entry.expired(classes.settings(slot.class), self.now))
    }

    /// Whether a limit on the key at `place` is in force.
    pub(super) fn is_limited(&self, place: u32) -> bool {
        self.limited_until.get(&place).is_some_and(|&until| until > self.now)
    }

    /// The key's slot, a new one when there is none.
    fn slot_for(&mut self, key: &[u8], hash: u64, context: &mut Context<'_>) -> u32 {
        if let Some(place) = self.live_place(key, hash, context) {
            return place;
        }
        let class = context.classes.of(key);
        let generation = Generation(context.generation.load(Relaxed));
        let slot = Slot { key: key.into(), hash, class, generation, entry: Entry::new() };
        self.bytes += slot.bytes();
        let place = match self.free.pop() {
            Some(place) => {
                self.slots[place as usize] = Some(slot);
                place
            }
            None => {
                self.slots.push(Some(slot));
                u32::try_from(self.slots.len() - 1).expect("fewer than 2^32 keys a shard")
            }
        };
        let slots = &self.slots;
        self.table
            .insert_unique(hash, place, |&other| slots[other as usize].as_ref().map_or(0, |slot| slot.hash));
        place
    }

    /// Counts `weight` hits at `at`; none make no key.
    pub(super) fn hit(
        &mut self,
        key: &[u8],
        hash: u64,
        at: Timestamp,
        weight: u64,
        context: &mut Context<'_>,
    ) -> Result<(), HitError> {
        if weight == 0 {
            return Ok(());
        }
        let place = self.slot_for(key, hash, context);
        let counted =
            self.change(place, context.classes, |entry, settings, now| entry.add(at, weight, settings, now));
        if let Err(error) = counted {
            if self.has_expired(place, context.classes) {
                self.remove(place);
            }
            return Err(error);
        }
        let generation = self.slot_mut(place).generation;
        self.record(context, || Delta::Hits { key: key.into(), generation, at, hits: weight });
        Ok(())
    }

    /// Keeps the key from being evicted until `until`, or as long as was asked for before.
    pub(super) fn limit_until(&mut self, key: &[u8], hash: u64, until: Timestamp, context: &mut Context<'_>) {
        let place = self.slot_for(key, hash, context);
        let limited = self.limited_until.entry(place).or_insert(until);
        *limited = until.max(*limited);
        let generation = self.slot_mut(place).generation;
        self.record(context, || Delta::Limited { key: key.into(), generation, until });
    }

    pub(super) fn limited_until(&self, key: &[u8], hash: u64) -> Option<Timestamp> {
        let place = self.place_of(key, hash)?;
        self.limited_until.get(&place).copied().filter(|&until| until > self.now)
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
        let current = self.slot_mut(place).generation;
        if current < generation {
            self.remove(place);
        }
        current <= generation
    }

    /// Forgets the key at `place`, which lives.
    pub(super) fn forget(&mut self, place: u32, why: Forgotten, context: &mut Context<'_>) {
        let slot = self.remove(place);
        // Under the shard's lock: the key cannot come back before the count is up.
        context.generation.fetch_max(slot.generation.0 + 1, Relaxed);
        self.record(context, || Delta::Forget { key: slot.key, generation: slot.generation, why });
    }

    pub(super) fn forget_key(&mut self, key: &[u8], hash: u64, context: &mut Context<'_>) -> bool {
        let Some(place) = self.live_place(key, hash, context) else { return false };
        self.forget(place, Forgotten::Deleted, context);
        true
    }

    /// Removes the key at `place` without a word: its hits have left the retention.
    pub(super) fn remove(&mut self, place: u32) -> Slot {
        let slot = self.slots[place as usize].take().expect("a key lives here");
        let found = self.table.find_entry(slot.hash, |&other| other == place);
        found.expect("a slot in use is in the table").remove();
        self.limited_until.remove(&place);
        self.free.push(place);
        self.bytes -= slot.bytes();
        slot
    }

    /// Forgets all keys, and gives their memory back.
    pub(super) fn clear(&mut self) {
        let (now, sequence) = (self.now, self.sequence);
        *self = Shard { now, sequence, ..Shard::default() };
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
        if let Some(batch) = context.deltas.as_deref_mut() {
            batch.deltas.push((self.sequence, delta()));
        }
    }

    pub(super) fn check_consistency(&self, classes: &Classes) {
        let mut bytes = 0;
        let mut used = 0;
        for (place, slot) in self.slots.iter().enumerate() {
            let Some(slot) = slot else { continue };
            let place = u32::try_from(place).expect("fewer than 2^32 keys a shard");
            assert_eq!(self.place_of(&slot.key, slot.hash), Some(place), "the table knows each slot");
            slot.entry.check_consistency(classes.settings(slot.class), self.now);
            bytes += slot.bytes();
            used += 1;
        }
        assert_eq!((used, used + self.free.len()), (self.table.len(), self.slots.len()), "slots add up");
        assert_eq!(bytes, self.bytes, "accounted bytes are the sum over the slots");
        assert!(self.limited_until.keys().all(|&place| self.slot_at(place).is_some()));
    }
}
