//! A shard behind its lock.

use std::ops::{Deref, DerefMut};
use std::sync::PoisonError;

use super::Store;
use super::shard::Shard;
use crate::machine::prefetch;
use crate::sync::{Mutex, MutexGuard};
use crate::time::Timestamp;

/// A shard and its lock. No two shards share a cache line.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct ShardCell {
    shard: Mutex<Shard>,
}

impl ShardCell {
    pub(super) fn new(shard: Shard) -> ShardCell {
        ShardCell { shard: Mutex::new(shard) }
    }

    /// Locks the shard, which belongs to `store`, and advances its time to `now`.
    #[inline]
    pub(super) fn lock<'a>(&'a self, store: &'a Store, now: Timestamp) -> LockedShard<'a> {
        let guard = self.lock_shard(now);
        LockedShard { bytes: guard.bytes(), guard, store }
    }

    /// Locks the shard, for a caller that does not change its tables and updates the account itself.
    #[inline]
    pub(super) fn lock_shard(&self, now: Timestamp) -> MutexGuard<'_, Shard> {
        // A panic under the lock is a bug. At worst it leaves the totals of one key half changed. The other
        // keys remain usable.
        let mut guard = self.shard.lock().unwrap_or_else(PoisonError::into_inner);
        guard.advance(now);
        guard
    }

    /// Prefetches the lock and the fields beside it.
    #[inline]
    pub(super) fn prefetch(&self) {
        prefetch(self);
        prefetch(std::ptr::from_ref(self).cast::<u8>().wrapping_add(64));
    }
}

/// A locked shard. Unlocking passes the change of its bytes and its tables on to the store.
pub(super) struct LockedShard<'a> {
    guard: MutexGuard<'a, Shard>,
    store: &'a Store,
    bytes: usize,
}

impl LockedShard<'_> {
    #[cold]
    fn publish(&mut self) {
        if self.store.prefetch_tables.publish(self.guard.index(), &self.guard.tables()) {
            self.guard.tables_are_published();
        }
    }
}

impl Deref for LockedShard<'_> {
    type Target = Shard;

    fn deref(&self) -> &Shard {
        &self.guard
    }
}

impl DerefMut for LockedShard<'_> {
    fn deref_mut(&mut self) -> &mut Shard {
        &mut self.guard
    }
}

impl Drop for LockedShard<'_> {
    #[inline]
    fn drop(&mut self) {
        self.store.memory.change(self.bytes, self.guard.bytes());
        if !self.guard.has_published() {
            self.publish();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shard_and_its_lock_take_two_cache_lines() {
        assert_eq!(size_of::<ShardCell>(), 128);
    }
}
