//! Rollback of changes that could not be committed. Batches of several threads are rolled back in any order,
//! so a deletion may be undone before or after the changes of another batch to the same generation of the
//! key, or to the next.

use std::collections::BTreeSet;
use std::sync::PoisonError;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Release;

use super::Store;
use super::key_state::Extras;
use crate::delta::{Delta, DeltaBatch, DeltaMark, Deltas, Forgotten, Generation};
use crate::entry::Entry;
use crate::time::Timestamp;

/// What was rolled back since the last successful commit.
#[derive(Default, Debug)]
pub(super) struct Rollback {
    /// Hits that were rolled back after another batch had ended their generation, or had given them back. They are
    /// subtracted if that is rolled back, too.
    debts: Vec<Debt>,
    /// Generations whose hits were restored in another generation. They are in the current generation of the key.
    revived: Vec<(Box<[u8]>, Generation)>,
    /// See [`Store::is_mixed`].
    is_mixed: bool,
}

/// What the changes of a batch took out of a store, the last change last.
pub(super) struct Taken {
    /// The state of deleted keys that existed.
    pub(super) deleted: Vec<Option<(Entry, Extras)>>,
    /// Hits that were given back or taken back, and the salt and the members of their key. Without the hits, the key may expire before the rollback.
    pub(super) given_back: Vec<(Entry, Extras)>,
}

#[derive(Debug)]
struct Debt {
    key: Box<[u8]>,
    generation: Generation,
    hits: Owed,
}

/// Hits to subtract from a generation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Owed {
    pub(super) at: Timestamp,
    pub(super) hits: u64,
    /// Whether they are denied hits.
    pub(super) is_denied: bool,
}

impl Rollback {
    pub(super) fn owe(&mut self, key: &[u8], generation: Generation, hits: Owed) {
        self.debts.push(Debt { key: key.into(), generation, hits });
    }

    /// Records that hits of a generation were restored, and are now in generation `now` of the key. Returns what is owed.
    pub(super) fn revive(&mut self, key: &[u8], generation: Generation, now: Generation) -> Vec<Owed> {
        self.is_mixed |= now != generation;
        if !self.is_revived(key, generation) {
            self.revived.push((key.into(), generation));
        }
        self.take_owed(key, generation)
    }

    /// The hits to subtract from a generation. They are no longer owed.
    pub(super) fn take_owed(&mut self, key: &[u8], generation: Generation) -> Vec<Owed> {
        let is_owed = |debt: &mut Debt| *debt.key == *key && debt.generation == generation;
        self.debts.extract_if(.., is_owed).map(|debt| debt.hits).collect()
    }

    /// Records that a key has hits of two generations, or ids of two salts.
    pub(super) fn mix(&mut self) {
        self.is_mixed = true;
    }

    pub(super) fn is_revived(&self, key: &[u8], generation: Generation) -> bool {
        self.revived.iter().any(|(revived, life)| **revived == *key && *life == generation)
    }
}

impl Store {
    /// Rolls back the changes of a batch, last change first, and empties the batch. Reads may have seen the changes, and
    /// keys that were evicted for them do not come back. Members of its hits stay until they leave the window or their key goes:
    /// another hit, which is kept, may have the same member. Batches of several threads may be rolled back in any order; then
    /// call [`Store::end_rollback`].
    pub fn roll_back(&self, batch: &mut DeltaBatch) {
        self.roll_back_since(batch, &DeltaMark::default());
        batch.clear();
    }

    /// Rolls back what was added to a batch since a mark, like [`Store::roll_back`]. The batch must still be
    /// committed: the numbers of these changes stay in it, because later changes have higher numbers.
    /// Evictions stay, too.
    pub fn roll_back_since(&self, batch: &mut DeltaBatch, mark: &DeltaMark) {
        let now = batch.now();
        let mut taken = Taken {
            deleted: batch.deleted.split_off(mark.deleted),
            given_back: batch.given_back.split_off(mark.given_back),
        };
        let mut moved = batch.moved.split_off(mark.moved);
        self.forget_busy();
        let mut rollback = self.rollback.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes = batch.split_off(mark);
        let deltas: Vec<_> = Deltas::new(now, &bytes).flatten().collect();
        // Keys that were evicted later have no hits left to subtract.
        let is_eviction = |delta: &Delta<'_>| matches!(delta, Delta::Forget { why: Forgotten::Evicted, .. });
        let life_of = |delta: &Delta<'_>| (delta.key().to_vec(), delta.generation());
        let evicted: BTreeSet<_> =
            deltas.iter().filter(|(_, delta)| is_eviction(delta)).map(|(_, delta)| life_of(delta)).collect();
        for (_, delta) in deltas.iter().rev() {
            self.take_position_back(delta, &mut moved);
            if !evicted.is_empty() && evicted.contains(&life_of(delta)) {
                if matches!(delta, Delta::GivenBack { .. } | Delta::TakenBack { .. }) {
                    taken.given_back.pop();
                }
                continue;
            }
            let (Delta::Hits { key, generation, .. }
            | Delta::Denied { key, generation, .. }
            | Delta::GivenBack { key, generation, .. }
            | Delta::TakenBack { key, generation, .. }
            | Delta::Forget { key, generation, why: Forgotten::Deleted }
            | Delta::Id { key, generation, .. }
            | Delta::Restored { key, generation, .. }) = delta
            else {
                continue;
            };
            let hash = self.hash(key);
            let (mut shard, _, mut context) = self.lock_for(hash, now, None);
            let life = AtomicU64::new(generation.0);
            context.generation = &life;
            shard.roll_back(delta, hash, (&mut taken, &mut rollback), &mut context);
            if matches!(delta, Delta::Forget { .. } | Delta::GivenBack { .. } | Delta::TakenBack { .. }) {
                // It is not known which of the hits that are back were sent.
                shard.mark_all_unsent(key, hash);
            }
        }
        self.decreases.fetch_add(1, Release);
        for (sequence, delta) in deltas {
            batch.push(sequence, if is_eviction(&delta) { delta } else { Delta::Void });
        }
    }

    /// Whether a rollback has left a key with another generation than it had, or with ids of two salts. Replaying later hits on
    /// that key would lose its older ones, or their ids, so write a checkpoint first.
    pub fn is_mixed(&self) -> bool {
        self.rollback.lock().unwrap_or_else(PoisonError::into_inner).is_mixed
    }

    /// Ends a rollback: all failed batches have been rolled back.
    pub fn end_rollback(&self) {
        *self.rollback.lock().unwrap_or_else(PoisonError::into_inner) = Rollback::default();
    }
}
