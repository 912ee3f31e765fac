//! A shard and its lock.

use std::ops::{Deref, DerefMut};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicPtr, AtomicUsize};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::memory::Memory;
use super::shard::Shard;
use crate::prefetch::prefetch;
use crate::time::Timestamp;

/// A shard that is changed under a lock, and a hint that is read without it.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct ShardCell {
    /// Where the index's buckets were, and how many, when the lock was last given back. Only ever
    /// prefetched: a stale hint costs a cache line and nothing else.
    buckets: AtomicPtr<u32>,
    bucket_mask: AtomicUsize,
    shard: Mutex<Shard>,
}

impl ShardCell {
    pub(super) fn new(shard: Shard) -> ShardCell {
        ShardCell {
            buckets: AtomicPtr::default(),
            bucket_mask: AtomicUsize::new(0),
            shard: Mutex::new(shard),
        }
    }

    /// The shard under its lock, its clock brought up to `now`.
    pub(super) fn lock<'a>(&'a self, now: Timestamp, memory: &'a Memory) -> LockedShard<'a> {
        // A panic under the lock is a bug that leaves at worst one key's totals half changed; the
        // other keys are served on.
        let mut guard = self.shard.lock().unwrap_or_else(PoisonError::into_inner);
        guard.advance(now);
        LockedShard { bytes: guard.bytes(), buckets: guard.buckets().len(), guard, cell: self, memory }
    }

    /// Looks at the shard, unless somebody has the lock.
    pub(super) fn try_with(&self, look: impl FnOnce(&Shard)) {
        if let Ok(shard) = self.shard.try_lock() {
            look(&shard);
        }
    }

    /// Has the bucket fetched where a search for `hash` begins.
    pub(super) fn prefetch_bucket(&self, hash: u64) {
        #[expect(clippy::cast_possible_truncation, reason = "the low bits are what is wanted")]
        let bucket = hash as usize & self.bucket_mask.load(Relaxed);
        prefetch(self.buckets.load(Relaxed).wrapping_add(bucket));
    }
}

/// A shard under its lock; what happened to its bytes is accounted for when the lock is given back.
pub(super) struct LockedShard<'a> {
    guard: MutexGuard<'a, Shard>,
    cell: &'a ShardCell,
    memory: &'a Memory,
    bytes: usize,
    buckets: usize,
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
    fn drop(&mut self) {
        self.memory.change(self.bytes, self.guard.bytes());
        let buckets = self.guard.buckets();
        if buckets.len() != self.buckets {
            self.cell.buckets.store(buckets.as_ptr().cast_mut(), Relaxed);
            self.cell.bucket_mask.store(buckets.len().wrapping_sub(1), Relaxed);
        }
    }
}
