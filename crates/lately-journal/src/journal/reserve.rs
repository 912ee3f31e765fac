//! Disk space that is reserved for the next checkpoint. With it, a log that has filled the disk can be cut,
//! and a server can start.

use std::io;
use std::sync::atomic::Ordering::Relaxed;

use super::Journal;
use crate::disk::{Disk, DiskFile};
use crate::limits::{CHECK_BYTES, LEAST_RESERVE_BYTES, SMALL_DISK, START_BYTES};
use crate::names::RESERVE;

impl<D: Disk> Journal<D> {
    /// An upper bound of the size of a checkpoint: about the memory of the keys.
    fn checkpoint_needs(&self) -> u64 {
        let checkpoint_bytes = self.checkpoint_bytes.load(Relaxed);
        self.store.memory().used_bytes.max(checkpoint_bytes + checkpoint_bytes / 8)
    }

    fn wanted_reserve(&self) -> u64 {
        START_BYTES + self.bounds.reserve_bytes + self.checkpoint_needs()
    }

    /// Reserves room for the next checkpoint. False if it is less than a checkpoint needs. On a small disk a
    /// part is reserved before there are keys, because the log may fill the disk between two checks. Half of
    /// the free room is left for the log, unless the log is what fills the disk: then cutting it is more
    /// important.
    pub(crate) fn keep_reserve(&self) -> bool {
        let needed = self.wanted_reserve();
        let reserved = self.reserved_bytes.load(Relaxed);
        let Ok(room) = self.disk.room() else { return true };
        let most = room + reserved;
        let is_small = most < 4 * self.bounds.log_bytes;
        let part = if is_small { (most / 4).min(self.bounds.reserve_bytes * SMALL_DISK) } else { 0 };
        let wanted = needed.max(part);
        let is_for_the_log = self.log_bytes.load(Relaxed) < self.checkpoint_needs();
        let share = if is_for_the_log { most / 2 } else { most - most / 8 };
        let bytes = wanted.min(share.max(reserved)).max(START_BYTES.min(most - most / 8));
        // If no room can be reserved, continue without.
        if bytes >= LEAST_RESERVE_BYTES && self.disk.reserve(RESERVE, bytes).is_ok() {
            self.reserved_bytes.store(bytes, Relaxed);
        }
        bytes >= needed
    }

    /// Frees the part that a new segment of the log needs.
    pub(crate) fn free_start_room(&self) {
        let reserved = self.reserved_bytes.load(Relaxed);
        let left = reserved.saturating_sub(START_BYTES).max(LEAST_RESERVE_BYTES);
        if reserved > left && self.disk.reserve(RESERVE, left).is_ok() {
            self.reserved_bytes.store(left, Relaxed);
        }
    }

    /// Creates the file of a checkpoint from the reserved room, so that no other file can take that room.
    pub(crate) fn take_reserve(&self, name: &str) -> io::Result<D::File> {
        if self.reserved_bytes.swap(0, Relaxed) == 0 || self.disk.rename(RESERVE, name).is_err() {
            return self.disk.create(name);
        }
        let file = self.disk.open(name).inspect_err(|_| self.restore_reserve(name))?;
        // Reserve room for the next start again, as far as there is some.
        let sizes = std::iter::successors(Some(START_BYTES), |bytes| Some(bytes / 2));
        let mut sizes = sizes.take_while(|&bytes| bytes >= LEAST_RESERVE_BYTES);
        if let Some(bytes) = sizes.find(|&bytes| self.disk.reserve(RESERVE, bytes).is_ok()) {
            self.reserved_bytes.store(bytes, Relaxed);
        }
        Ok(file)
    }

    /// Reserves the room of a failed checkpoint again.
    pub(crate) fn restore_reserve(&self, name: &str) {
        let size = self.disk.open(name).and_then(|file| file.size());
        if let Ok(bytes) = size
            && bytes >= self.reserved_bytes.load(Relaxed).max(LEAST_RESERVE_BYTES)
            && self.disk.rename(name, RESERVE).is_ok()
        {
            self.reserved_bytes.store(bytes, Relaxed);
        } else {
            // A file that cannot be removed is removed at the next start.
            let _ = self.disk.remove(name);
        }
        self.keep_reserve();
    }

    /// Requests a checkpoint when the log has taken half of its room, if that frees more than a checkpoint
    /// takes. On a disk smaller than the log's bound, hits then do not wait until it is full.
    pub(super) fn check_log_room(&self) {
        let log_bytes = self.log_bytes.load(Relaxed);
        let is_worth_it = log_bytes > self.checkpoint_needs().max(CHECK_BYTES);
        if is_worth_it && self.disk.room().is_ok_and(|room| room < log_bytes) {
            self.wanted.store(true, Relaxed);
        }
    }

    /// Reserves more room when there are more keys. If there is not enough, requests a checkpoint while it
    /// still fits, if the log is longer than half of what the checkpoint may take.
    pub(super) fn grow_reserve(&self) {
        let Ok(_no_checkpoint) = self.checkpointing.try_lock() else { return };
        if self.wanted_reserve() <= self.reserved_bytes.load(Relaxed) * 5 / 4 || self.keep_reserve() {
            return;
        }
        if self.log_bytes.load(Relaxed) > self.checkpoint_needs().max(self.bounds.reserve_bytes) / 2 {
            self.wanted.store(true, Relaxed);
        }
    }
}
