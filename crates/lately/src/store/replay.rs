//! Replay: applies the changes of a journal, a dump or another node.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use super::Store;
use super::context::Context;
use super::key::{SHARDS, shard_of};
use super::operation::STAGED;
use super::positions::SOURCES_SHARD;
use super::saved_key::SavedKey;
use super::shard::Shard;
use crate::delta::{Delta, DeltaFormat, Deltas, Generation, Sequence};
use crate::error::{Malformed, Unreadable};
use crate::lockout::StartedLockout;
use crate::time::Timestamp;

/// The keys that one of several threads replays.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Portion {
    index: usize,
    of: usize,
}

impl Portion {
    /// All keys.
    pub const ALL: Portion = Portion { index: 0, of: 1 };

    /// One portion for each of `threads` threads.
    pub fn each(threads: usize) -> impl Iterator<Item = Portion> {
        (0..threads).map(move |index| Portion { index, of: threads })
    }

    fn has(self, part: usize) -> bool {
        part % self.of == self.index
    }
}

/// Replays the changes of one store into another, in the order in which they were made. They may be given in another
/// order, because threads record their changes a little later: a change waits for those that were made before it.
pub struct Replay<'s> {
    store: &'s Store,
    portion: Portion,
    /// The progress of each part of the original store.
    made: Vec<Made>,
    waiting: Waiting,
    /// Keys of lower generations were flushed.
    floor: Generation,
    /// Keys with a change that could not be applied.
    unreadable: Vec<Unreadable>,
}

/// The progress of a part.
#[derive(Clone, Copy)]
struct Made {
    /// The last change that was applied, after all before it. [`ABSENT`] if the part was not loaded.
    last: u64,
    /// The time of the part: that of its latest change.
    now: Timestamp,
}

/// A change that is about to be applied, the hash of its key, and the time of its part.
type Staged<'d> = (Delta<'d>, u64, Timestamp);

/// Waiting changes, by part and number.
type Waiting = BTreeMap<(u16, u64), Waits>;

struct Waits {
    format: DeltaFormat,
    written: Timestamp,
    /// Empty if the key is in another portion.
    bytes: Box<[u8]>,
}

/// Changes of parts that were not loaded are skipped.
const ABSENT: u64 = u64::MAX;

impl<'s> Replay<'s> {
    /// A replay of a portion of the keys into an empty store.
    #[must_use]
    pub fn new(store: &'s Store, portion: Portion) -> Replay<'s> {
        let made = vec![Made { last: ABSENT, now: Timestamp::MIN }; SHARDS];
        let (floor, unreadable) = (Generation::default(), Vec::new());
        Replay { store, portion, made, waiting: BTreeMap::new(), floor, unreadable }
    }

    /// Records that the store has loaded a part as of a time, with all changes up to a number. Changes of parts that were
    /// not loaded are skipped.
    ///
    /// # Errors
    /// [`Malformed`] when the part or the number is out of range.
    pub fn include(&mut self, part: u16, number: u64, now: Timestamp) -> Result<(), Malformed> {
        let made = self.made.get_mut(usize::from(part)).filter(|_| number <= Sequence::MAX_NUMBER);
        let now = self.store.repaired(now).0;
        *made.ok_or(Malformed::Delta)? = Made { last: number, now };
        Ok(())
    }

    /// Applies the changes on keys of the portion. They were checked when they were made, so nothing is refused or
    /// evicted. The rules are those of [`Delta`].
    ///
    /// Each is applied as of the time of its part, whatever other threads replay meanwhile: a key that had not expired
    /// when it was hit keeps its old hits. The store's time does not change; set it with [`Store::set_now`] when all is
    /// replayed, and do not sweep the store before that.
    ///
    /// # Errors
    /// [`Malformed`] when the bytes are no changes. Those before it are applied. A valid change that cannot be applied is
    /// skipped, see [`Replay::take_unreadable`].
    pub fn record(&mut self, mut deltas: Deltas<'_>) -> Result<(), Malformed> {
        self.store.forget_busy();
        let written = deltas.now();
        let now = self.store.repaired(written).0;
        let mut staged = Vec::with_capacity(STAGED);
        loop {
            let bytes = deltas.rest();
            let Some(next) = deltas.next() else { break };
            if next.is_err() {
                self.store.replay_staged(&mut staged, written, &mut self.unreadable);
            }
            let (Sequence { part, number }, delta) = next?;
            if let Delta::Flush { below } = delta {
                // A flush belongs to no part. Later keys have a higher generation, and earlier keys a lower
                // one.
                self.store.replay_staged(&mut staged, written, &mut self.unreadable);
                self.store.replay_flush(below, self.portion);
                self.floor = self.floor.max(below);
                continue;
            }
            let made = self.made.get_mut(usize::from(part)).filter(|_| number <= Sequence::MAX_NUMBER);
            let made = made.ok_or(Malformed::Delta)?;
            if number <= made.last {
                continue;
            }
            let hash = self.store.hash(delta.key());
            let is_own = match delta {
                Delta::Position { .. } => self.portion.has(SOURCES_SHARD),
                _ => self.portion.has(shard_of(hash)),
            };
            if number > made.last + 1 {
                let len = if is_own { bytes.len() - deltas.rest().len() } else { 0 };
                let waits = Waits { format: deltas.format(), written, bytes: bytes[..len].into() };
                self.waiting.insert((part, number), waits);
                continue;
            }
            *made = Made { last: number, now: made.now.max(now) };
            if is_own && delta.generation() >= self.floor {
                staged.push((delta, hash, made.now));
            }
            let is_awaited = !self.waiting.is_empty() && self.waiting.contains_key(&(part, number + 1));
            if staged.len() == STAGED || is_awaited {
                self.store.replay_staged(&mut staged, written, &mut self.unreadable);
            }
            if is_awaited {
                self.catch_up(part)?;
            }
        }
        self.store.replay_staged(&mut staged, written, &mut self.unreadable);
        self.store.keep_loaded_ids_to_ceiling();
        // With a lower ceiling than before, keys are evicted as others arrive; the next start may load them
        // again. Keys of other threads expire as of the time of their own part.
        self.store.settle(&[], Timestamp::MIN, None);
        Ok(())
    }

    /// Gives up waiting for missing changes, and continues behind a number.
    ///
    /// # Errors
    /// [`Malformed`] when a change that waited cannot be applied.
    pub fn settle(&mut self, number: u64) -> Result<(), Malformed> {
        if number > Sequence::MAX_NUMBER {
            return Err(Malformed::Delta);
        }
        while let Some((&(part, first), _)) = self.waiting.first_key_value() {
            self.made[usize::from(part)].last = first - 1;
            self.catch_up(part)?;
        }
        for made in self.made.iter_mut().filter(|made| made.last != ABSENT) {
            made.last = number.max(made.last);
        }
        Ok(())
    }

    /// Whether all parts were loaded.
    #[must_use]
    pub fn has_all_parts(&self) -> bool {
        self.made.iter().all(|made| made.last != ABSENT)
    }

    /// The highest number of a change that was applied.
    #[must_use]
    pub fn last(&self) -> u64 {
        self.made.iter().map(|made| made.last).filter(|&last| last != ABSENT).max().unwrap_or(0)
    }

    /// Applies the changes of a part that do not have to wait any more.
    fn catch_up(&mut self, part: u16) -> Result<(), Malformed> {
        let made = &mut self.made[usize::from(part)];
        while let Some(waits) = self.waiting.remove(&(part, made.last + 1)) {
            let Waits { format, written, bytes } = waits;
            *made = Made { last: made.last + 1, now: made.now.max(self.store.repaired(written).0) };
            for delta in Deltas::of_format(format, written, &bytes) {
                let delta = delta?.1;
                if delta.generation() >= self.floor {
                    let staged = (delta, self.store.hash(delta.key()), made.now);
                    self.store.replay_one(&staged, written, &mut self.unreadable);
                }
            }
        }
        Ok(())
    }

    /// Takes the keys with a change that could not be applied.
    pub fn take_unreadable(&mut self) -> Vec<Unreadable> {
        std::mem::take(&mut self.unreadable)
    }
}

impl Store {
    fn replay_staged(
        &self,
        staged: &mut Vec<Staged<'_>>,
        written: Timestamp,
        unreadable: &mut Vec<Unreadable>,
    ) {
        let mut hashes = [0; STAGED];
        for (hash, staged) in hashes.iter_mut().zip(&*staged) {
            *hash = staged.1;
        }
        self.fetch_slots(&hashes[..staged.len()], &mut [None; STAGED]);
        staged.drain(..).for_each(|staged| self.replay_one(&staged, written, unreadable));
    }

    fn replay_one(&self, staged: &Staged<'_>, written: Timestamp, unreadable: &mut Vec<Unreadable>) {
        if let Err(why) = self.make(staged, written) {
            unreadable.push(Unreadable { key: staged.0.key().into(), why });
        }
    }

    fn make(&self, &(delta, hash, now): &Staged<'_>, written: Timestamp) -> Result<(), Malformed> {
        let shift = self.repaired(written).1;
        match shift.map_or(delta, |shift| shift.delta(delta)) {
            Delta::Hits { key, generation, at, hits } => {
                self.replay_life(key, hash, generation, now, |shard, context| {
                    shard.put_back((key, hash), at, hits, context);
                    Ok(())
                })
            }
            Delta::Limited { key, generation, until, past } => {
                self.replay_life(key, hash, generation, now, |shard, context| {
                    shard.lock_out(key, hash, StartedLockout { until, past }, context);
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
            Delta::GivenBack { key, generation, from, hits, ends_ids } => {
                self.replay_life(key, hash, generation, now, |shard, context| {
                    shard.give_back_again((key, hash), (from, hits), ends_ids, context);
                    Ok(())
                })
            }
            Delta::TakenBack { key, generation, from, to, hits } => {
                self.replay_life(key, hash, generation, now, |shard, context| {
                    shard.take_back_again((key, hash), (from, to), hits, context);
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
            Delta::Id { key, generation, id } => {
                self.replay_life(key, hash, generation, now, |shard, context| {
                    shard.put_id_back((key, hash), id, context);
                    Ok(())
                })
            }
            Delta::Member { key, generation, at, member } => {
                self.replay_life(key, hash, generation, now, |shard, context| {
                    shard.put_member_back((key, hash), at, member, context);
                    Ok(())
                })
            }
            Delta::MembersDropped { key, generation, until } => {
                self.replay_life(key, hash, generation, now, |shard, context| {
                    shard.drop_members((key, hash), until, context);
                    Ok(())
                })
            }
            Delta::Forget { key, generation, .. } => {
                let ended = Generation(generation.0.saturating_add(1));
                self.replay_life(key, hash, ended, now, |_, _| Ok(()))
            }
            Delta::Restored { key, generation, limits, entry } => {
                self.replay_life(key, hash, generation, now, |shard, context| {
                    let saved = SavedKey { key, generation, limits, entry };
                    context.is_clock_repaired = shift.is_some();
                    shard.restore((&saved, hash), context).map(|_| ())
                })
            }
            Delta::Flush { below } => {
                self.replay_flush(below, Portion::ALL);
                Ok(())
            }
            Delta::Position { source, position } => {
                self.put_position_back(source, position);
                Ok(())
            }
            Delta::Void => Ok(()),
        }
    }

    /// Moves `key` to `generation`, deletes it if it is in an older one, and applies `change` unless it is in
    /// a newer one.
    fn replay_life(
        &self,
        key: &[u8],
        hash: u64,
        generation: Generation,
        now: Timestamp,
        change: impl FnOnce(&mut Shard, &mut Context<'_>) -> Result<(), Malformed>,
    ) -> Result<(), Malformed> {
        self.generation.fetch_max(generation.0, Relaxed);
        let (mut shard, mut context) = (self.lock_as_of(shard_of(hash), now), self.context(None));
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
