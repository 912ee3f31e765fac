//! Room on the disk that is kept for the next checkpoint: a log that has filled the disk can be cut then, and a
//! server can start.

use std::sync::atomic::Ordering::Relaxed;

use super::Journal;
use crate::disk::Disk;
use crate::limits::{LEAST_RESERVE_BYTES, START_BYTES};
use crate::names::RESERVE;

impl<D: Disk> Journal<D> {
    /// What a checkpoint may take by now, at most about as much as the keys in memory.
    fn checkpoint_needs(&self) -> u64 {
        let checkpoint_bytes = self.checkpoint_bytes.load(Relaxed);
        self.store.memory().used_bytes.max(checkpoint_bytes + checkpoint_bytes / 8)
    }

    fn wanted_reserve(&self) -> u64 {
        START_BYTES + self.bounds.reserve_bytes + self.checkpoint_needs()
    }

    /// Takes up room for the next checkpoint, but no more than is left then, unless that is what a start needs; false
    /// if it is less than a checkpoint needs.
    pub(crate) fn keep_reserve(&self) -> bool {
        let wanted = self.wanted_reserve();
        let reserved = self.reserved_bytes.load(Relaxed);
        let Ok(room) = self.disk.room() else { return true };
        let most = room + reserved;
        let bytes = wanted.min(most / 2).max(START_BYTES.min(most - most / 8));
        // Where no room can be taken up it is gone on without.
        if bytes >= LEAST_RESERVE_BYTES && self.disk.reserve(RESERVE, bytes).is_ok() {
            self.reserved_bytes.store(bytes, Relaxed);
        }
        bytes >= wanted
    }

    /// Gives the room back, for a checkpoint that begins, but for what a start needs: others write meanwhile.
    pub(crate) fn spend_reserve(&self) {
        let reserved = self.reserved_bytes.load(Relaxed);
        if reserved > START_BYTES && self.disk.reserve(RESERVE, START_BYTES).is_ok() {
            self.reserved_bytes.store(START_BYTES, Relaxed);
        }
    }

    /// Keeps more room when there are more keys. Where there is not as much, a checkpoint is wanted while it fits
    /// still, if that cuts the log by half of what it may take.
    pub(super) fn tend_reserve(&self) {
        let Ok(_no_checkpoint) = self.checkpointing.try_lock() else { return };
        if self.wanted_reserve() <= self.reserved_bytes.load(Relaxed) * 5 / 4 || self.keep_reserve() {
            return;
        }
        if self.log_bytes.load(Relaxed) > self.checkpoint_needs().max(self.bounds.reserve_bytes) / 2 {
            self.wanted.store(true, Relaxed);
        }
    }
}
