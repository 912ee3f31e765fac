//! Putting back what happened: deltas from a journal, a dump or another node.

use std::sync::atomic::Ordering::Relaxed;

use super::{Context, Store};
use crate::delta::{Delta, DeltaBatch, Generation};
use crate::time::Timestamp;

impl Store {
    /// Applies deltas as they stand: they were checked when they happened, so nothing is refused and
    /// nothing evicted. The rules are those of [`Delta`].
    pub fn replay(&self, batch: &DeltaBatch) {
        for (_, delta) in &batch.deltas {
            match delta {
                Delta::Hits { key, generation, at, hits } => {
                    self.replay_life(key, *generation, batch.now, |shard, hash, context| {
                        // Checked against the bound when it happened, on the same hits.
                        let counted = shard.put_back((key, hash), *at, *hits, context);
                        debug_assert!(counted.is_ok(), "a delta that does not fit");
                    });
                }
                Delta::Limited { key, generation, until } => {
                    self.replay_life(key, *generation, batch.now, |shard, hash, context| {
                        shard.limit_until(key, hash, *until, context);
                    });
                }
                Delta::Forget { key, generation, .. } => {
                    let ended = Generation(generation.0 + 1);
                    self.replay_life(key, ended, batch.now, |_, _, _| ());
                }
                Delta::Flush { below } => self.replay_flush(*below),
            }
        }
    }

    /// Brings `key` into `generation`, forgetting an older life, and applies `change` unless the key
    /// is in a newer life already.
    fn replay_life(
        &self,
        key: &[u8],
        generation: Generation,
        now: Timestamp,
        change: impl FnOnce(&mut super::Shard, u64, &mut Context<'_>),
    ) {
        self.generation.fetch_max(generation.0, Relaxed);
        let hash = self.hash(key);
        let (mut shard, _, mut context) = self.lock_for(hash, now, None);
        let wanted = std::sync::atomic::AtomicU64::new(generation.0);
        context.generation = &wanted;
        if shard.enter_generation(key, hash, generation, &mut context) {
            change(&mut shard, hash, &mut context);
        }
    }

    fn replay_flush(&self, below: Generation) {
        self.generation.fetch_max(below.0, Relaxed);
        for index in 0..self.shards.len() {
            let mut shard = self.lock(index, Timestamp::MIN);
            shard.move_all();
            for place in 0..shard.places() {
                if shard.slot_at(place).is_some() && shard.generation_at(place) < below {
                    shard.remove(place);
                }
            }
        }
    }
}
