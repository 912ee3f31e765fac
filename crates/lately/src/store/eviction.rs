//! Eviction: what goes when the memory ceiling is reached.
//!
//! Expired keys are evicted first, then keys with a single hit, then those with the oldest newest hit, each
//! among a small sample. A key that is locked out, or that has used up a limit, is never evicted: otherwise a
//! flood of other keys would bypass the limit. A key that has used half of a limit is evicted after all
//! others.

use std::sync::atomic::Ordering::Relaxed;

use super::Store;
use super::eviction_guard::Protection;
use super::memory::{MemoryStats, NO_NEWCOMERS};
use super::shard::Shard;
use super::table::place_of;
use super::tags::fraction;
use crate::delta::{DeltaBatch, Forgotten};
use crate::limits::{
    EVICTION_LOOKS, EVICTION_SAMPLE, EVICTION_SAMPLE_A_SHARD, FEWER_LOOKS, ID_BUCKETS_OF_A_SWEEP,
};
use crate::time::Timestamp;

/// A candidate for eviction. The least is evicted first. Another key may be at its place when its shard is
/// locked again.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Victim {
    is_live: bool,
    is_near: bool,
    /// Whether the key was created since [`Newcomers`] exists.
    is_newcomer: bool,
    has_several: bool,
    newest: Timestamp,
    index: usize,
    place: u32,
}

/// A place for each step of the hand, without a pattern. Shards have equal numbers of places, and the hand
/// visits each with a constant step (Fibonacci hashing: Knuth, The Art of Computer Programming 3, 6.4).
fn scattered(hand: u64, places: u32) -> u32 {
    place_of(fraction(places as usize, hand.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32))
}

/// While this exists, new keys are evicted after those that were there before. It is for restored keys, whose hits may
/// be old.
#[derive(Debug)]
pub struct Newcomers<'s> {
    store: &'s Store,
    evicted_before: u64,
}

impl Newcomers<'_> {
    /// The number of new keys that were evicted.
    #[must_use]
    pub fn evicted_keys(&self) -> u64 {
        self.store.memory.evicted_newcomers.load(Relaxed) - self.evicted_before
    }
}

impl Drop for Newcomers<'_> {
    fn drop(&mut self) {
        self.store.memory.newcomers_from.store(NO_NEWCOMERS, Relaxed);
    }
}

impl Store {
    /// Accounted memory, and counters of removed keys.
    #[must_use]
    pub fn memory(&self) -> MemoryStats {
        MemoryStats {
            used_bytes: self.memory.used_bytes.load(Relaxed),
            ceiling_bytes: self.memory.ceiling(),
            evicted_keys: self.memory.evicted_keys.load(Relaxed),
            expired_keys: self.memory.expired_keys.load(Relaxed),
            ids: self.ids.count(),
            id_bytes: self.ids.used_bytes(),
            forgotten_ids: self.ids.forgotten(),
        }
    }

    /// Charges memory outside the store to the ceiling: something that took `before_bytes` now takes `after_bytes`.
    /// Beyond the ceiling, keys are evicted.
    pub fn charge(&self, before_bytes: usize, after_bytes: usize) {
        self.charge_into(before_bytes, after_bytes, Timestamp::MIN, None);
    }

    /// Charges memory like [`Store::charge`], and evicts nothing: for a store that is being loaded, where what protects a key may come
    /// after its hits. Call [`Store::keep_to_ceiling`] when all is loaded.
    pub fn charge_while_loading(&self, before_bytes: usize, after_bytes: usize) {
        self.memory.change_other(before_bytes, after_bytes);
    }

    /// Charges memory like [`Store::charge`], and appends the changes to `deltas`.
    pub fn charge_into(
        &self,
        before_bytes: usize,
        after_bytes: usize,
        now: Timestamp,
        mut deltas: Option<&mut DeltaBatch>,
    ) {
        self.memory.change_other(before_bytes, after_bytes);
        if after_bytes > before_bytes {
            if let Some(deltas) = &mut deltas {
                deltas.advance(now);
            }
            self.settle(&[], now, deltas);
        }
    }

    /// Evicts keys until the store is below the ceiling, except keys whose limit is in force. Call it after
    /// loading keys that may be too many. Otherwise the next hit evicts them.
    pub fn keep_to_ceiling(&self, now: Timestamp) {
        self.settle(&[], now, None);
    }

    /// Until the result is dropped, new keys are evicted after the keys that exist now. Only one may exist at
    /// a time.
    #[must_use]
    pub fn prefer_newcomers(&self) -> Newcomers<'_> {
        let memory = &self.memory;
        // An empty store has no other keys, and a higher generation takes memory.
        let from = if self.is_empty() { 0 } else { self.generation.fetch_add(1, Relaxed) + 1 };
        memory.newcomers_from.store(from, Relaxed);
        Newcomers { store: self, evicted_before: memory.evicted_newcomers.load(Relaxed) }
    }

    /// Evicts keys other than `keep` until there is room for one more. False if every candidate is held by a
    /// limit.
    ///
    /// It frees no more than is over the ceiling when it is called, and what evictions themselves take. Other threads may use the room at once,
    /// and evict for themselves when they find none: with no such bound, this one would go on for as long as they
    /// add keys.
    pub(super) fn make_room(&self, keep: &[u8], now: Timestamp, mut deltas: Option<&mut DeltaBatch>) -> bool {
        let mut over_bytes = self.memory.over_bytes();
        while over_bytes > 0 && self.memory.is_full() {
            let Some(victim) = self.victim(keep, now) else { return false };
            over_bytes =
                over_bytes.saturating_sub_signed(self.evict(&victim, keep, now, deltas.as_deref_mut()));
        }
        true
    }

    /// The next victim. After searches that found newcomers only, or after all places were searched in vain, the next ones visit fewer places:
    /// each search visits others, so a key that may be evicted is still found.
    fn victim(&self, keep: &[u8], now: Timestamp) -> Option<Victim> {
        let memory = &self.memory;
        let (passed, in_vain) = (memory.newcomers_only.load(Relaxed), memory.searched_in_vain.load(Relaxed));
        // A key takes a slot at least.
        let is_futile = in_vain >= memory.most_keys() as u64;
        let fewer = if is_futile { FEWER_LOOKS } else { passed.min(FEWER_LOOKS) };
        let looks = EVICTION_LOOKS >> fewer;
        let mut victim = self.victim_of(looks, keep, now);
        if victim.is_none() && looks < EVICTION_LOOKS && !is_futile {
            victim = self.victim_of(EVICTION_LOOKS, keep, now);
        }
        match &victim {
            None => _ = memory.searched_in_vain.fetch_add(looks.into(), Relaxed),
            Some(_) if in_vain > 0 => memory.searched_in_vain.store(in_vain / 2, Relaxed),
            Some(_) => {}
        }
        let is_newcomer = victim.as_ref().is_some_and(|victim| victim.is_newcomer);
        if is_newcomer || passed > 0 {
            let passed = if is_newcomer { passed.saturating_add(1) } else { 0 };
            memory.newcomers_only.store(passed, Relaxed);
        }
        victim
    }

    /// The best victim of a small sample, from as many shards as needed. `None` after `looks` places without a
    /// candidate; the next call continues behind them.
    fn victim_of(&self, mut looks: u32, keep: &[u8], now: Timestamp) -> Option<Victim> {
        let hand = self.memory.hand.fetch_add(1, Relaxed);
        let count = self.shards.len();
        let first = usize::try_from(hand).unwrap_or(0) % count;
        let mut candidates = Vec::with_capacity(EVICTION_SAMPLE);
        let newcomers_from = self.memory.newcomers_from.load(Relaxed);
        // Newcomers are evicted only if no other key is found.
        let mut newcomer: Option<Victim> = None;
        for (passed, index) in (0..).zip((first..first + count).map(|index| index % count)) {
            if looks == 0 {
                self.memory.hand.fetch_add(passed, Relaxed);
                break;
            }
            let mut shard = self.lock(index, now);
            shard.move_all();
            // Do not visit the empty places of removed keys again and again.
            shard.shrink();
            shard.move_all();
            let places = shard.places();
            let start = scattered(hand, places);
            let seen = places.min(looks);
            // An empty shard also uses up a look, so that the loop ends.
            looks -= seen.max(1);
            let found = (0..seen)
                .map(|step| (start + step) % places)
                .filter(|&place| shard.key_at(place) != Some(keep))
                .map(|place| (place, self.protection(&shard, place, now)))
                .filter(|&(_, protection)| protection < Protection::Held)
                .filter_map(|(place, protection)| Some((place, protection, shard.slot_at(place)?)))
                .map(|(place, protection, slot)| {
                    let is_live = !shard.has_expired(place, &self.classes);
                    let hits = slot.state.hits();
                    let (has_several, newest) = (!hits.is_single(), hits.newest());
                    let is_near = protection == Protection::Near;
                    let is_newcomer = newcomers_from > 0 && shard.generation_at(place).0 >= newcomers_from;
                    Victim { is_live, is_near, is_newcomer, has_several, newest, index, place }
                })
                .filter_map(|victim| {
                    if !victim.is_newcomer {
                        return Some(victim);
                    }
                    newcomer = newcomer.take().into_iter().chain([victim]).min();
                    None
                });
            candidates.extend(found.take(EVICTION_SAMPLE_A_SHARD));
            if candidates.len() >= EVICTION_SAMPLE {
                break;
            }
        }
        candidates.into_iter().chain(newcomer).min()
    }

    fn protection(&self, shard: &Shard, place: u32, now: Timestamp) -> Protection {
        shard.protection(place, &self.classes, |key| self.hits_of_others(key, self.hash(key), now))
    }

    /// Evicts a key, unless it was removed or hit since, or a limit holds it now. Never evicts `keep`. Returns the
    /// bytes freed. They are below 0 if the tables of the shard grew by more than the key had.
    fn evict(&self, victim: &Victim, keep: &[u8], now: Timestamp, deltas: Option<&mut DeltaBatch>) -> i64 {
        let &Victim { has_several, newest, index, place, .. } = victim;
        let mut shard = self.lock(index, now);
        // A key that replaced it and looks the same is an equally good victim.
        let is_same = shard
            .entry_at(Some(place))
            .is_some_and(|hits| hits.newest() == newest && hits.is_single() != has_several);
        let is_held = self.protection(&shard, place, now) == Protection::Held;
        if !is_same || is_held || shard.key_at(place) == Some(keep) {
            return 0;
        }
        let before_bytes = shard.bytes();
        if shard.has_expired(place, &self.classes) {
            shard.remove(place);
            self.memory.expired_keys.fetch_add(1, Relaxed);
        } else {
            if shard.generation_at(place).0 >= self.memory.newcomers_from.load(Relaxed) {
                self.memory.evicted_newcomers.fetch_add(1, Relaxed);
            }
            let mut context = self.context(deltas);
            shard.forget(place, Forgotten::Evicted, &mut context);
            self.memory.evicted_keys.fetch_add(1, Relaxed);
        }
        before_bytes.cast_signed() as i64 - shard.bytes().cast_signed() as i64
    }

    /// Removes expired keys and merges old panes of the others, in `places` slots from the cursor `from` on. Returns the
    /// cursor for the next call.
    ///
    /// Without it, expired keys are removed as new keys come. Call it regularly to free memory sooner, and to shrink keys
    /// that have become quiet.
    pub fn sweep(&self, from: super::Cursor, places: usize, now: Timestamp) -> super::Cursor {
        self.prefetch_tables.tidy();
        let mut cursor = from;
        for _ in 0..places {
            let (index, place) = cursor.split();
            if index >= self.shards.len() {
                return super::Cursor::START;
            }
            let mut shard = self.lock(index, now);
            shard.move_page();
            if place >= shard.places() {
                shard.shrink();
                shard.visit_ids(&self.ids, ID_BUCKETS_OF_A_SWEEP);
                drop(shard);
                self.sweep_others(index, now);
                cursor = super::Cursor::at(index + 1, 0);
                continue;
            }
            shard.prefetch_ahead(place);
            if shard.has_expired(place, &self.classes) {
                shard.remove(place);
                self.memory.expired_keys.fetch_add(1, Relaxed);
            } else {
                shard.merge(place, &self.classes);
            }
            cursor = super::Cursor::at(index, place + 1);
        }
        cursor
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Symptom: on a server full of keys with used-up limits, each request took 1 ms, also a read. Cause: each searched 4,096 places for a key
    /// to evict. Fix: after a search of all places, the next ones are short. They still find a key.
    #[test]
    fn searches_stay_cheap_when_no_key_may_be_evicted() {
        let now = Timestamp::from_seconds(1_700_000_000).expect("a time");
        let store = Store::builder().memory_ceiling(1 << 20).seed(1).build().expect("valid");
        let hour = crate::time::hours(1);
        let mut held = 0..;
        let mut fill = || {
            held.find(|number: &u32| {
                store.limit(format!("held:{number}").as_bytes(), 1, hour, 1, now).is_err()
            })
        };
        let full = fill().expect("it is full at last");
        assert!(full > 1_000, "{full}");
        (0..200).for_each(|_| _ = fill());
        let hand = || store.memory.hand.load(Relaxed);
        let before = hand();
        for _ in 0..100 {
            assert!(store.hit(b"new", now).is_err());
        }
        assert!(hand() - before <= 100 * 65, "{}", hand() - before);
        // What room there is again, and keys that may go, are found.
        (0..200).for_each(|number| assert!(store.forget(format!("held:{number}").as_bytes(), now)));
        let counted = (0..5_000).filter(|number: &u32| store.hit(&number.to_le_bytes(), now).is_ok());
        let counted = counted.count();
        assert!(counted > 400, "{counted}");
        store.check_consistency();
    }

    /// Symptom: while a client sent new keys to a full server, a restore did not end. Cause: both evict, and once no older keys
    /// were left, each eviction visited 4,096 slots to find that out. Fix: after such searches, the next ones are short.
    #[test]
    fn evictions_stay_cheap_when_only_newcomers_are_left() {
        let now = Timestamp::from_seconds(1_700_000_000).expect("a time");
        let store = Store::builder().memory_ceiling(1 << 20).seed(1).build().expect("valid");
        let fill = |name: &str, keys: u32| {
            for number in 0..keys {
                store.hit(format!("{name}:{number}").as_bytes(), now).expect("room");
            }
        };
        fill("old", 40_000);
        let newcomers = store.prefer_newcomers();
        fill("new", 80_000);
        let at = || (store.memory.hand.load(Relaxed), newcomers.evicted_keys());
        let before = at();
        fill("newer", 1_000);
        let (shards, evicted) = (at().0 - before.0, at().1 - before.1);
        assert!(evicted >= 900, "{evicted}");
        assert!(shards <= 20 * evicted, "{shards} shards for {evicted} keys");
        assert!(store.memory().used_bytes <= 1 << 20);
        store.check_consistency();
    }
}
