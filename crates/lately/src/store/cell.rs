//! A shard behind its lock.

use std::ops::{Deref, DerefMut};
use std::sync::PoisonError;

use super::Store;
use super::shard::Shard;
use crate::machine::prefetch;
use crate::sync::{Mutex, MutexGuard};
use crate::time::Timestamp;

/// A shard that is changed under a lock. Two shards share no cache line.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct ShardCell {
    shard: Mutex<Shard>,
}

impl ShardCell {
    pub(super) fn new(shard: Shard) -> ShardCell {
        ShardCell { shard: Mutex::new(shard) }
    }

    /// The shard under its lock, its clock brought up to `now`; it is one of `store`.
    #[inline]
    pub(super) fn lock<'a>(&'a self, store: &'a Store, now: Timestamp) -> LockedShard<'a> {
        let guard = self.lock_shard(now);
        LockedShard { bytes: guard.bytes(), guard, store }
    }

    /// The shard under its lock, for a caller that changes no tables and accounts for the bytes itself.
    #[inline]
    pub(super) fn lock_shard(&self, now: Timestamp) -> MutexGuard<'_, Shard> {
        // A panic under the lock is a bug that leaves at worst one key's totals half changed; the
        // other keys are served on.
        let mut guard = self.shard.lock().unwrap_or_else(PoisonError::into_inner);
        guard.advance(now);
        guard
    }

    /// Has the lock and what lies beside it fetched.
    #[inline]
    pub(super) fn prefetch(&self) {
        prefetch(self);
        prefetch(std::ptr::from_ref(self).cast::<u8>().wrapping_add(64));
    }
}

/// A shard under its lock; what happened to its bytes and tables is passed on when the lock is given
/// back.
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
    fn a_shard_and_its_lock_are_two_lines() {
        assert_eq!(size_of::<ShardCell>(), 128);
    }
}
