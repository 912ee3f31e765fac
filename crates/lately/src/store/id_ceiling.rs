//! The part of the memory that ids may take. Past it, those are forgotten first that no key has any more, and then those that would
//! be over next.

use std::sync::atomic::Ordering::Relaxed;

use super::Store;
use super::key::SHARDS;
use crate::limits::{IDS_FORGOTTEN_AT_ONCE, IDS_SAMPLE, IDS_VISITED};
use crate::time::Timestamp;

impl Store {
    /// Forgets ids if they take too much memory. One call visits some thousand ids, so it takes several until their memory
    /// is free: each is called for a batch of hits that adds far fewer. No shard may be locked.
    #[inline]
    pub(super) fn keep_ids_to_ceiling(&self, now: Timestamp) {
        if self.ids.is_full(&self.memory) || self.ids.to_visit().load(Relaxed) > 0 {
            self.forget_ids(now);
        }
    }

    /// Forgets ids at once until they take no more than their part. For keys that were loaded: the ceiling may be lower than
    /// before.
    pub(super) fn keep_loaded_ids_to_ceiling(&self) {
        if self.ids.is_full(&self.memory) {
            (0..SHARDS).for_each(|index| _ = self.lock(index, Timestamp::MIN).drop_dead_ids(&self.ids));
        }
        while self.ids.is_full(&self.memory) {
            let before_bytes = self.ids.used_bytes();
            self.raise_floor(Timestamp::MIN);
            (0..SHARDS).for_each(|index| _ = self.lock(index, Timestamp::MIN).prune_ids(&self.ids));
            if self.ids.used_bytes() >= before_bytes {
                break;
            }
        }
    }

    #[cold]
    fn forget_ids(&self, now: Timestamp) {
        let to_visit = self.ids.to_visit();
        if to_visit.load(Relaxed) == 0 {
            to_visit.store(2 * SHARDS, Relaxed);
        }
        let mut visited = 0;
        while visited < IDS_VISITED {
            // Another thread may visit, too.
            let Ok(left) = to_visit.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)) else { break };
            if left > SHARDS {
                visited += self.lock(left - SHARDS - 1, now).drop_dead_ids(&self.ids);
                continue;
            }
            if left == SHARDS {
                if !self.ids.is_full(&self.memory) {
                    to_visit.store(0, Relaxed);
                    break;
                }
                self.raise_floor(now);
            }
            visited += self.lock(left - 1, now).prune_ids(&self.ids);
        }
    }

    /// Finds the time that a part of the ids is kept until, in a sample of all shards, and forgets these ids.
    fn raise_floor(&self, now: Timestamp) {
        let lens = (0..SHARDS).map(|index| self.lock(index, now).ids().len());
        let of = lens.sum::<usize>().div_ceil(IDS_SAMPLE).max(1);
        let mut ends_ms = Vec::new();
        (0..SHARDS).for_each(|index| self.lock(index, now).ids().sample(of, &mut ends_ms));
        ends_ms.retain(|&end_ms| end_ms >= now.as_millis());
        if ends_ms.is_empty() {
            return;
        }
        let forgotten = ends_ms.len() / IDS_FORGOTTEN_AT_ONCE;
        let (_, &mut floor_ms, _) = ends_ms.select_nth_unstable(forgotten);
        self.ids.raise_floor(floor_ms);
    }
}
