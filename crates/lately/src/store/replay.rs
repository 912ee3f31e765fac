//! Putting back what happened: deltas from a journal, a dump or another node.

use std::sync::PoisonError;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use super::batch::STAGED;
use super::keyed::Keyed;
use super::{Context, Shard, Store, shard_of};
use crate::delta::{Delta, DeltaBatch, Deltas, Generation, Sequence};
use crate::error::Malformed;
use crate::time::Timestamp;

/// Hits that were taken back when the life they were of had been ended by a batch that is not taken back, or
/// not yet.
#[derive(Debug)]
pub(super) struct Debt {
    pub(super) key: Box<[u8]>,
    pub(super) generation: Generation,
    pub(super) at: Timestamp,
    pub(super) hits: u64,
}

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

impl Store {
    /// Applies deltas, flushes and those of which `is_wanted` holds, on keys of a portion, as they stand: they were checked
    /// when they happened, so nothing is refused and nothing evicted. The rules are those of [`Delta`]. The
    /// store's time stays as it is: see [`Store::set_now`].
    ///
    /// # Errors
    /// [`Malformed`] when they are no deltas; those before it are applied.
    pub fn replay(
        &self,
        deltas: Deltas<'_>,
        portion: Portion,
        is_wanted: impl Fn(Sequence) -> bool,
    ) -> Result<(), Malformed> {
        let now = deltas.now();
        let mut staged = Vec::with_capacity(STAGED);
        for delta in deltas {
            let (sequence, delta) = delta?;
            let (Delta::Hits { key, .. }
            | Delta::Limited { key, .. }
            | Delta::Forget { key, .. }
            | Delta::Restored { key, .. }) = delta
            else {
                // It is of no part: what came after it has a later generation.
                if let Delta::Flush { below } = delta {
                    self.replay_staged(&mut staged, now)?;
                    self.replay_flush(below, portion);
                }
                continue;
            };
            if !is_wanted(sequence) {
                continue;
            }
            let hash = self.hash(key);
            if portion.has(shard_of(hash)) {
                staged.push((delta, hash));
            }
            if staged.len() == STAGED {
                self.replay_staged(&mut staged, now)?;
            }
        }
        self.replay_staged(&mut staged, now)?;
        self.peek.tidy();
        Ok(())
    }

    fn replay_staged(&self, staged: &mut Vec<(Delta<'_>, u64)>, now: Timestamp) -> Result<(), Malformed> {
        let mut hashes = [0; STAGED];
        for (hash, staged) in hashes.iter_mut().zip(&*staged) {
            *hash = staged.1;
        }
        self.fetch_slots(&hashes[..staged.len()], &mut [None; STAGED]);
        staged.drain(..).try_for_each(|(delta, hash)| self.replay_one(&delta, hash, now))
    }

    fn replay_one(&self, delta: &Delta<'_>, hash: u64, now: Timestamp) -> Result<(), Malformed> {
        match *delta {
            Delta::Hits { key, generation, at, hits } => {
                self.replay_life(key, hash, generation, now, |shard, context| {
                    shard.put_back((key, hash), at, hits, context).map_err(|_| Malformed::Total)
                })
            }
            Delta::Limited { key, generation, until } => {
                self.replay_life(key, hash, generation, now, |shard, context| {
                    shard.limit_until(key, hash, until, context);
                    Ok(())
                })
            }
            Delta::Forget { key, generation, .. } => {
                let ended = Generation(generation.0.saturating_add(1));
                self.replay_life(key, hash, ended, now, |_, _| Ok(()))
            }
            Delta::Restored { key, generation, limited_until, entry } => {
                self.replay_life(key, hash, generation, now, |shard, context| {
                    let keyed = Keyed { key, generation, limited_until, entry };
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

    /// Takes back what a batch changed, because it could not be kept: the last change first. Reads may have
    /// seen it. Keys that were evicted for it do not come back. The batch is empty then. Batches of other
    /// threads may be taken back in any order; when all are, [`Store::all_taken_back`] is to be called.
    pub fn take_back(&self, batch: &mut DeltaBatch) {
        let now = batch.now();
        let mut deleted = std::mem::take(&mut batch.deleted);
        let mut debts = self.debts.lock().unwrap_or_else(PoisonError::into_inner);
        let deltas: Vec<Delta<'_>> = batch.deltas().flatten().map(|(_, delta)| delta).collect();
        for delta in deltas.iter().rev() {
            let (Delta::Hits { key, generation, .. }
            | Delta::Forget { key, generation, .. }
            | Delta::Restored { key, generation, .. }) = delta
            else {
                continue;
            };
            let hash = self.hash(key);
            let (mut shard, _, mut context) = self.lock_for(hash, now, None);
            let life = AtomicU64::new(generation.0);
            context.generation = &life;
            shard.take_back(delta, hash, (&mut deleted, &mut debts), &mut context);
        }
        batch.clear();
    }

    /// Takes note that all batches that could not be kept have been taken back.
    pub fn all_taken_back(&self) {
        *self.debts.lock().unwrap_or_else(PoisonError::into_inner) = Vec::new();
    }
}
