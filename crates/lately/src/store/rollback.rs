//! Rollback of changes that could not be committed. Batches of several threads are rolled back in any order, so a
//! deletion may be undone before or after what another batch did to that life of the key, or to the next.

use std::collections::BTreeSet;
use std::sync::PoisonError;
use std::sync::atomic::AtomicU64;

use super::Store;
use crate::delta::{Delta, DeltaBatch, DeltaMark, Deltas, Forgotten, Generation};
use crate::time::Timestamp;

/// What was rolled back since the last commit that succeeded.
#[derive(Default, Debug)]
pub(super) struct Rollback {
    /// Hits of lives that a batch has ended that was not rolled back, or not yet.
    debts: Vec<Debt>,
    /// Lives whose end was rolled back: their hits are where the key is now, whatever its generation.
    revived: Vec<(Box<[u8]>, Generation)>,
    /// Whether one of them has another generation now than it had.
    is_mixed: bool,
}

#[derive(Debug)]
struct Debt {
    key: Box<[u8]>,
    generation: Generation,
    hits: Owed,
}

/// Hits that are to leave a life.
#[derive(Clone, Copy, Debug)]
pub(super) struct Owed {
    pub(super) at: Timestamp,
    pub(super) hits: u64,
    /// Whether they were denied, not counted.
    pub(super) is_denied: bool,
}

impl Rollback {
    pub(super) fn owe(&mut self, key: &[u8], generation: Generation, hits: Owed) {
        self.debts.push(Debt { key: key.into(), generation, hits });
    }

    /// Takes note that the end of a life was rolled back, which goes on as `now`; gives the hits it owes.
    pub(super) fn revive(&mut self, key: &[u8], generation: Generation, now: Generation) -> Vec<Owed> {
        self.is_mixed |= now != generation;
        self.revived.push((key.into(), generation));
        let is_owed = |debt: &mut Debt| *debt.key == *key && debt.generation == generation;
        self.debts.extract_if(.., is_owed).map(|debt| debt.hits).collect()
    }

    pub(super) fn is_revived(&self, key: &[u8], generation: Generation) -> bool {
        self.revived.iter().any(|(revived, life)| **revived == *key && *life == generation)
    }
}

impl Store {
    /// Rolls back the changes of a batch, last change first, and empties the batch. Reads may have seen the changes, and
    /// keys that were evicted for them do not come back. Batches of several threads may be rolled back in any order; then
    /// call [`Store::end_rollback`].
    pub fn roll_back(&self, batch: &mut DeltaBatch) {
        self.roll_back_since(batch, &DeltaMark::default());
        batch.clear();
    }

    /// As [`Store::roll_back`], of what was added to a batch since a mark. The batch is still to be kept: the numbers of
    /// these changes stay in it, because those of later changes follow them, and so do evictions.
    pub fn roll_back_since(&self, batch: &mut DeltaBatch, mark: &DeltaMark) {
        let now = batch.now();
        let mut deleted = batch.deleted.split_off(mark.deleted);
        let mut moved = batch.moved.split_off(mark.moved);
        let mut rollback = self.rollback.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes = batch.split_off(mark);
        let deltas: Vec<_> = Deltas::new(now, &bytes).flatten().collect();
        // Nothing is left to be taken back of keys that were evicted later.
        let is_eviction = |delta: &Delta<'_>| matches!(delta, Delta::Forget { why: Forgotten::Evicted, .. });
        let life_of = |delta: &Delta<'_>| (delta.key().to_vec(), delta.generation());
        let evicted: BTreeSet<_> =
            deltas.iter().filter(|(_, delta)| is_eviction(delta)).map(|(_, delta)| life_of(delta)).collect();
        for (_, delta) in deltas.iter().rev() {
            self.take_position_back(delta, &mut moved);
            if !evicted.is_empty() && evicted.contains(&life_of(delta)) {
                continue;
            }
            let (Delta::Hits { key, generation, .. }
            | Delta::Denied { key, generation, .. }
            | Delta::Forget { key, generation, why: Forgotten::Deleted }
            | Delta::Restored { key, generation, .. }) = delta
            else {
                continue;
            };
            let hash = self.hash(key);
            let (mut shard, _, mut context) = self.lock_for(hash, now, None);
            let life = AtomicU64::new(generation.0);
            context.generation = &life;
            shard.roll_back(delta, hash, (&mut deleted, &mut rollback), &mut context);
        }
        for (sequence, delta) in deltas {
            batch.push(sequence, if is_eviction(&delta) { delta } else { Delta::Void });
        }
    }

    /// Whether a rollback has left a key with another generation than it had. Replaying later hits on that key would lose
    /// its older ones, so write a checkpoint first.
    pub fn is_mixed(&self) -> bool {
        self.rollback.lock().unwrap_or_else(PoisonError::into_inner).is_mixed
    }

    /// Ends a rollback: all failed batches have been rolled back.
    pub fn end_rollback(&self) {
        *self.rollback.lock().unwrap_or_else(PoisonError::into_inner) = Rollback::default();
    }
}
