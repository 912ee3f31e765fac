//! Visits to the keys with hits that were not sent to other nodes.

use std::sync::atomic::Ordering::{Acquire, Relaxed};

use super::Store;
use super::key::SHARDS;
use super::unsent::{Since, Taken, UnsentKey};
use crate::time::Timestamp;

impl Store {
    /// From here on, keys with hits are marked until [`Store::take_unsent`] has visited them.
    pub fn track_unsent(&self, now: Timestamp) {
        (0..SHARDS).for_each(|index| self.lock(index, now).track_unsent());
        self.is_tracked.store(true, Relaxed);
    }

    /// The parts of the keys, for [`Store::take_unsent`].
    #[must_use]
    pub fn unsent_parts(&self) -> usize {
        SHARDS
    }

    /// Visits keys of a part that have hits since the last visit, at most this number. Gives the counts of the cells that have
    /// changed: always of the finest, of the wider ones every few seconds, or with `with_wider`.
    ///
    /// A count is of all hits that the store has in the cell. Cells of the same key may be given again later, with a greater
    /// count, or with the same.
    pub fn take_unsent(
        &self,
        part: usize,
        most: usize,
        with_wider: bool,
        now: Timestamp,
        visit: impl FnMut(UnsentKey<'_>),
    ) -> Taken {
        let mut shard = self.lock(part, now);
        let since = Since { finest_ms: i64::MAX, wider_ms: i64::MAX };
        let taken = shard.take_unsent(most, with_wider, &self.classes, visit);
        taken.unwrap_or(Taken { keys: 0, is_done: true, since })
    }

    /// Undoes a visit to a key whose counts were not sent.
    pub fn put_back_unsent(&self, key: &[u8], has_older: bool, taken: &Taken) {
        let hash = self.hash(key);
        let (mut shard, ..) = self.lock_for(hash, Timestamp::MIN, None);
        if let Some(place) = shard.place_of(key, hash) {
            shard.put_back_unsent(place, has_older, taken.since);
        }
    }

    /// Marks all keys that were hit since a time: what was sent of them may be lost.
    pub fn mark_unsent_since(&self, since: Timestamp) {
        (0..SHARDS).for_each(|part| self.lock(part, Timestamp::MIN).mark_unsent_since(since.as_millis()));
    }

    /// How often hits were taken out of the store, by a rollback or by [`Store::flush`]. Compare it before and after counts were read:
    /// while it stays, they are not greater than what has been committed since.
    pub fn decreases(&self) -> u64 {
        self.decreases.load(Acquire)
    }

    /// The number of keys with hits that were not taken.
    #[must_use]
    pub fn unsent_keys(&self) -> usize {
        (0..SHARDS).map(|index| self.lock(index, Timestamp::MIN).unsent_keys()).sum()
    }
}
