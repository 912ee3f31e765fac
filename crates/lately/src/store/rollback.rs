//! Rollback of changes that could not be committed. Batches of several threads are rolled back in any order, so a
//! deletion may be undone before or after what another batch did to that life of the key, or to the next.

use std::mem;
use std::sync::PoisonError;
use std::sync::atomic::AtomicU64;

use super::Store;
use crate::delta::{Delta, DeltaBatch, Forgotten, Generation};
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
    /// Takes back what a batch changed, because it could not be kept: the last change first. Reads may have
    /// seen it. Keys that were evicted for it do not come back. The batch is empty then. Batches of other
    /// threads may be rolled back in any order; when all are, [`Store::end_rollback`] is to be called.
    pub fn roll_back(&self, batch: &mut DeltaBatch) {
        let now = batch.now();
        let mut deleted = mem::take(&mut batch.deleted);
        let mut rollback = self.rollback.lock().unwrap_or_else(PoisonError::into_inner);
        let deltas: Vec<Delta<'_>> = batch.deltas().flatten().map(|(_, delta)| delta).collect();
        for delta in deltas.iter().rev() {
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
        batch.clear();
    }

    /// Whether a key has another generation now than it had before something was rolled back: hits on it from
    /// here on would end, where they are replayed, the life that it goes on with.
    pub fn is_mixed(&self) -> bool {
        self.rollback.lock().unwrap_or_else(PoisonError::into_inner).is_mixed
    }

    /// Takes note that all batches that could not be kept have been rolled back.
    pub fn end_rollback(&self) {
        *self.rollback.lock().unwrap_or_else(PoisonError::into_inner) = Rollback::default();
    }
}
