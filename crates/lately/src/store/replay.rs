//! Putting back what happened: deltas from a journal, a dump or another node.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use super::batch::STAGED;
use super::keyed::Keyed;
use super::{Context, SHARDS, Shard, Store, shard_of};
use crate::delta::{Delta, DeltaFormat, Deltas, Generation, Sequence};
use crate::error::{Malformed, Unreadable};
use crate::time::Timestamp;

/// The keys that one of several threads puts back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Portion {
    index: usize,
    of: usize,
}

impl Portion {
    /// All keys.
    pub const ALL: Portion = Portion { index: 0, of: 1 };

    /// Portions for so many threads.
    pub fn each(threads: usize) -> impl Iterator<Item = Portion> {
        (0..threads).map(move |index| Portion { index, of: threads })
    }

    fn has(self, part: usize) -> bool {
        part % self.of == self.index
    }
}

/// Puts back what happened in a store into another, in the order it happened in. What is given may be in
/// another order: threads write down what they did some time after they did it. A change that comes before
/// one that was made earlier waits for it.
pub struct Replay<'s> {
    store: &'s Store,
    portion: Portion,
    /// Of each part of the store that it happened in, the last change that was made, and so were those before
    /// it. [`ABSENT`] where the part is not there yet.
    last: Vec<u64>,
    waiting: Waiting,
    /// Keys of lower generations were flushed.
    floor: Generation,
    /// Keys with a change that could not be made.
    unreadable: Vec<Unreadable>,
}

/// Changes that wait, by part and number.
type Waiting = BTreeMap<(u16, u64), Waits>;

struct Waits {
    format: DeltaFormat,
    now: Timestamp,
    /// None if the key is of another portion.
    bytes: Box<[u8]>,
}

/// No change of a part that is not there is made.
const ABSENT: u64 = u64::MAX;

impl<'s> Replay<'s> {
    /// Of a portion of the keys; the store has nothing yet.
    #[must_use]
    pub fn new(store: &'s Store, portion: Portion) -> Replay<'s> {
        let (last, waiting) = (vec![ABSENT; SHARDS], BTreeMap::new());
        let (floor, unreadable) = (Generation::default(), Vec::new());
        Replay { store, portion, last, waiting, floor, unreadable }
    }

    /// Takes note that the store has a part, with all changes up to a number. Those of parts it has not are left
    /// out.
    ///
    /// # Errors
    /// [`Malformed`] when there is no such part, or no such number can be counted on from.
    pub fn include(&mut self, part: u16, number: u64) -> Result<(), Malformed> {
        let last = self.last.get_mut(usize::from(part)).filter(|_| number <= Sequence::MAX_NUMBER);
        *last.ok_or(Malformed::Delta)? = number;
        Ok(())
    }

    /// Applies deltas on keys of the portion as they stand: they were checked when they happened, so nothing
    /// is refused and nothing evicted. The rules are those of [`Delta`]. The store's time stays as it is: see
    /// [`Store::set_now`].
    ///
    /// # Errors
    /// [`Malformed`] when they are no deltas; those before it are applied. A change that is one and cannot be made is
    /// left out, see [`Replay::take_unreadable`].
    pub fn record(&mut self, mut deltas: Deltas<'_>) -> Result<(), Malformed> {
        let now = deltas.now();
        let mut staged = Vec::with_capacity(STAGED);
        loop {
            let bytes = deltas.rest();
            let Some(next) = deltas.next() else { break };
            if next.is_err() {
                self.store.replay_staged(&mut staged, now, &mut self.unreadable);
            }
            let (Sequence { part, number }, delta) = next?;
            if let Delta::Flush { below } = delta {
                // It is of no part: what came after it has a later generation, and what came before has not.
                self.store.replay_staged(&mut staged, now, &mut self.unreadable);
                self.store.replay_flush(below, self.portion);
                self.floor = self.floor.max(below);
                continue;
            }
            let last = self.last.get_mut(usize::from(part)).filter(|_| number <= Sequence::MAX_NUMBER);
            let last = last.ok_or(Malformed::Delta)?;
            if number <= *last {
                continue;
            }
            let hash = self.store.hash(delta.key());
            let is_own = self.portion.has(shard_of(hash));
            if number > *last + 1 {
                let len = if is_own { bytes.len() - deltas.rest().len() } else { 0 };
                let waits = Waits { format: deltas.format(), now, bytes: bytes[..len].into() };
                self.waiting.insert((part, number), waits);
                continue;
            }
            *last = number;
            if is_own && delta.generation() >= self.floor {
                staged.push((delta, hash));
            }
            let is_awaited = !self.waiting.is_empty() && self.waiting.contains_key(&(part, number + 1));
            if staged.len() == STAGED || is_awaited {
                self.store.replay_staged(&mut staged, now, &mut self.unreadable);
            }
            if is_awaited {
                self.catch_up(part)?;
            }
        }
        self.store.replay_staged(&mut staged, now, &mut self.unreadable);
        // With a lower ceiling than before, what has no room goes as others come: the next start may have it again.
        self.store.settle(&[], now, None);
        Ok(())
    }

    /// Takes note that what is missing by now will never come, and that changes go on behind a number.
    ///
    /// # Errors
    /// [`Malformed`] when a change that waited cannot be made.
    pub fn settle(&mut self, number: u64) -> Result<(), Malformed> {
        if number > Sequence::MAX_NUMBER {
            return Err(Malformed::Delta);
        }
        while let Some((&(part, first), _)) = self.waiting.first_key_value() {
            self.last[usize::from(part)] = first - 1;
            self.catch_up(part)?;
        }
        for last in self.last.iter_mut().filter(|last| **last != ABSENT) {
            *last = number.max(*last);
        }
        Ok(())
    }

    /// Whether no part is missing.
    #[must_use]
    pub fn has_all_parts(&self) -> bool {
        !self.last.contains(&ABSENT)
    }

    /// The highest number of a change that was made.
    #[must_use]
    pub fn last(&self) -> u64 {
        self.last.iter().copied().filter(|&last| last != ABSENT).max().unwrap_or(0)
    }

    /// Makes the changes of a part that need not wait any more.
    fn catch_up(&mut self, part: u16) -> Result<(), Malformed> {
        let last = usize::from(part);
        while let Some(waits) = self.waiting.remove(&(part, self.last[last] + 1)) {
            self.last[last] += 1;
            let Waits { format, now, bytes } = waits;
            for delta in Deltas::of_format(format, now, &bytes) {
                let delta = delta?.1;
                if delta.generation() >= self.floor {
                    self.store.replay_one(&delta, self.store.hash(delta.key()), now, &mut self.unreadable);
                }
            }
        }
        Ok(())
    }

    /// Takes out the keys with a change that could not be made.
    pub fn take_unreadable(&mut self) -> Vec<Unreadable> {
        std::mem::take(&mut self.unreadable)
    }
}

impl Store {
    fn replay_staged(
        &self,
        staged: &mut Vec<(Delta<'_>, u64)>,
        now: Timestamp,
        unreadable: &mut Vec<Unreadable>,
    ) {
        let mut hashes = [0; STAGED];
        for (hash, staged) in hashes.iter_mut().zip(&*staged) {
            *hash = staged.1;
        }
        self.fetch_slots(&hashes[..staged.len()], &mut [None; STAGED]);
        staged.drain(..).for_each(|(delta, hash)| self.replay_one(&delta, hash, now, unreadable));
    }

    fn replay_one(&self, delta: &Delta<'_>, hash: u64, now: Timestamp, unreadable: &mut Vec<Unreadable>) {
        if let Err(why) = self.make(delta, hash, now) {
            unreadable.push(Unreadable { key: delta.key().into(), why });
        }
    }

    fn make(&self, delta: &Delta<'_>, hash: u64, now: Timestamp) -> Result<(), Malformed> {
        let (now, turn) = self.turned(now);
        match turn.map_or(*delta, |turn| turn.delta(*delta)) {
            Delta::Hits { key, generation, at, hits } => {
                self.replay_life(key, hash, generation, now, |shard, context| {
                    shard.put_back((key, hash), at, hits, context);
                    Ok(())
                })
            }
            Delta::Limited { key, generation, until } => {
                self.replay_life(key, hash, generation, now, |shard, context| {
                    shard.limit_until(key, hash, until, context);
                    Ok(())
                })
            }
            Delta::Denied { key, generation, at, hits } => {
                self.replay_life(key, hash, generation, now, |shard, context| {
                    let place = shard.slot_for(key, hash, context);
                    shard.put_denied_back(place, at, hits, context);
                    Ok(())
                })
            }
            Delta::Arrival { key, generation, arrival } => {
                self.replay_life(key, hash, generation, now, |shard, context| {
                    let place = shard.slot_for(key, hash, context);
                    shard.set_arrival(key, place, arrival, context);
                    Ok(())
                })
            }
            Delta::Guarded { key, generation, guard } => {
                self.replay_life(key, hash, generation, now, |shard, context| {
                    shard.put_guard_back(key, hash, guard, context);
                    Ok(())
                })
            }
            Delta::Forget { key, generation, .. } => {
                let ended = Generation(generation.0.saturating_add(1));
                self.replay_life(key, hash, ended, now, |_, _| Ok(()))
            }
            Delta::Restored { key, generation, beside, entry } => {
                self.replay_life(key, hash, generation, now, |shard, context| {
                    let keyed = Keyed { key, generation, beside, entry };
                    context.is_turned_back = turn.is_some();
                    shard.restore((&keyed, hash), context).map(|_| ())
                })
            }
            Delta::Flush { below } => {
                self.replay_flush(below, Portion::ALL);
                Ok(())
            }
        }
    }

    /// Brings `key` into `generation`, forgetting an older life, and applies `change` unless the key
    /// is in a newer life already.
    fn replay_life(
        &self,
        key: &[u8],
        hash: u64,
        generation: Generation,
        now: Timestamp,
        change: impl FnOnce(&mut Shard, &mut Context<'_>) -> Result<(), Malformed>,
    ) -> Result<(), Malformed> {
        self.generation.fetch_max(generation.0, Relaxed);
        // Each shard has its own time meanwhile: other threads may be further.
        let (mut shard, mut context) = (self.lock_at(shard_of(hash), now), self.context(None));
        let wanted = AtomicU64::new(generation.0);
        context.generation = &wanted;
        if shard.enter_generation(key, hash, generation, &mut context) {
            change(&mut shard, &mut context)?;
        }
        Ok(())
    }

    fn replay_flush(&self, below: Generation, portion: Portion) {
        self.generation.fetch_max(below.0, Relaxed);
        for index in (0..self.shards.len()).filter(|&index| portion.has(index)) {
            let mut shard = self.lock_at(index, Timestamp::MIN);
            shard.move_all();
            for place in 0..shard.places() {
                if shard.slot_at(place).is_some() && shard.generation_at(place) < below {
                    shard.remove(place);
                }
            }
        }
    }
}
