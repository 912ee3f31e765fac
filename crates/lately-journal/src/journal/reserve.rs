//! Room on the disk that is kept for the next checkpoint: a log that has filled the disk can be cut then, and a
//! server can start.

use std::io;
use std::sync::atomic::Ordering::Relaxed;

use super::Journal;
use crate::disk::{Disk, DiskFile};
use crate::limits::{LEAST_RESERVE_BYTES, LOOK_BYTES, SMALL_DISK, START_BYTES};
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

    /// Takes up room for the next checkpoint; false if it is less than that needs. Of a small disk it is a part
    /// before there are keys: the log may fill it faster than is looked how many there are. Half of what is left
    /// is for the log, unless the log is what fills the disk: then no room is worth more than for cutting it.
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
        // Where no room can be taken up it is gone on without.
        if bytes >= LEAST_RESERVE_BYTES && self.disk.reserve(RESERVE, bytes).is_ok() {
            self.reserved_bytes.store(bytes, Relaxed);
        }
        bytes >= needed
    }

    /// Gives back what a new segment of the log takes.
    pub(crate) fn spend_start(&self) {
        let reserved = self.reserved_bytes.load(Relaxed);
        let left = reserved.saturating_sub(START_BYTES).max(LEAST_RESERVE_BYTES);
        if reserved > left && self.disk.reserve(RESERVE, left).is_ok() {
            self.reserved_bytes.store(left, Relaxed);
        }
    }

    /// A file for a checkpoint, which has the room that was kept: nobody else takes it meanwhile.
    pub(crate) fn spend_reserve(&self, name: &str) -> io::Result<D::File> {
        if self.reserved_bytes.swap(0, Relaxed) == 0 || self.disk.rename(RESERVE, name).is_err() {
            return self.disk.create(name);
        }
        let file = self.disk.open(name).inspect_err(|_| self.take_back_reserve(name))?;
        // What is there for the next start again, as far as it can be had.
        let sizes = std::iter::successors(Some(START_BYTES), |bytes| Some(bytes / 2));
        let mut sizes = sizes.take_while(|&bytes| bytes >= LEAST_RESERVE_BYTES);
        if let Some(bytes) = sizes.find(|&bytes| self.disk.reserve(RESERVE, bytes).is_ok()) {
            self.reserved_bytes.store(bytes, Relaxed);
        }
        Ok(file)
    }

    /// Keeps the room that a checkpoint has which comes to nothing.
    pub(crate) fn take_back_reserve(&self, name: &str) {
        let size = self.disk.open(name).and_then(|file| file.size());
        if let Ok(bytes) = size
            && bytes >= self.reserved_bytes.load(Relaxed).max(LEAST_RESERVE_BYTES)
            && self.disk.rename(name, RESERVE).is_ok()
        {
            self.reserved_bytes.store(bytes, Relaxed);
        } else {
            // What cannot be removed is removed at the next start.
            let _ = self.disk.remove(name);
        }
        self.keep_reserve();
    }

    /// Wants a checkpoint when the log has taken half of the room it finds, if that cuts it by more than a
    /// checkpoint takes: on a disk smaller than the log may get nobody is to wait until it is full.
    pub(super) fn tend_room(&self) {
        let log_bytes = self.log_bytes.load(Relaxed);
        let is_worth_it = log_bytes > self.checkpoint_needs().max(LOOK_BYTES);
        if is_worth_it && self.disk.room().is_ok_and(|room| room < log_bytes) {
            self.wanted.store(true, Relaxed);
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
